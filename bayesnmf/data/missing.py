"""Read which entries of counts are missing: from the counts themselves, or from a mask beside them.

A missing entry is not a count of 0, but one that nobody made: it adds neither counts nor exposure.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.data.annotated import counts_within, is_annotated, is_lazy, is_paths
from bayesnmf.data.checks import (
    check_entries,
    check_may_have_nan,
    check_missing_word,
    check_not_turned,
    check_zeros_in_memory,
)
from bayesnmf.data.counts import Counts
from bayesnmf.data.labels import Order, is_frame, order_of, split_labels
from bayesnmf.data.mask import Mask, as_pattern, without_nan


def without_missing(counts: Any, missing: Any = None) -> tuple[Any, csr_array | None]:
    """Return counts as given, with 0 at entries that they say to be missing, and the pattern of these entries.

    Masked arrays say it by their mask; NaN does with missing="nan". Other counts stay as they are, and so do files and
    AnnData objects, whose NaN is found where they are read (`bayesnmf.data.blocks.opening.open_counts`).
    """
    if isinstance(missing, str):
        check_missing_word(missing)
    given, counts = counts, counts_within(counts, "counts")
    if isinstance(counts, np.ma.MaskedArray):
        pattern = as_pattern(np.ma.getmaskarray(counts)) if counts.ndim == 2 else None
        return counts.filled(0), pattern
    is_file = isinstance(counts, str | os.PathLike) or is_paths(counts)
    if not is_nan(missing) or is_file or is_annotated(counts) or is_lazy(counts):
        return counts, None
    check_may_have_nan(counts, type(given).__name__)
    if is_frame(values := split_labels(counts).values):
        if any(hasattr(dtype, "fill_value") for dtype in values.dtypes):
            values = values.sparse.to_dense()
        return values.fillna(0), as_pattern(values.isna().to_numpy())
    return without_nan(values)


def is_nan(missing: Any) -> bool:
    """Return whether NaN are missing entries."""
    return isinstance(missing, str) and missing == "nan"


def with_missing(counts: Counts, own: csr_array | None, observed: Any = None, missing: Any = None) -> Counts:
    """Return counts with a mask of all entries that are missing.

    Parameters
    ----------
    counts : Counts
    own : csr_array or None
        Entries that the counts themselves say to be missing (`without_missing`).
    observed : array or DataFrame of booleans, or sparse matrix (n, m), optional
        Where a count was made: where booleans are True, and the entries that a sparse matrix of numbers stores, be they
        0. What has labels is matched by name.
    missing : array or DataFrame of booleans, or sparse matrix (n, m), "zeros" or "nan", optional
        Where none was made, in the same way. "zeros": all entries without a count. "nan": those of NaN in the counts.
    """
    none = own is None and observed is None and counts.mask is None
    if none and isinstance(missing, str) and missing == "zeros":
        check_zeros_in_memory(counts)
        return counts.with_mask(Mask(as_pattern(counts.matrix), of_missing=False))
    parts = [] if own is None else [own]
    if counts.mask is not None and (own is not None or observed is not None or missing is not None):
        parts.append(counts.mask.missing)
    if observed is not None:
        parts.append(as_pattern(~_in_order(observed, counts, "observed").astype(bool).toarray()))
    if isinstance(missing, str) and missing == "zeros":
        check_zeros_in_memory(counts)
        parts.append(as_pattern(counts.matrix.toarray() == 0))
    elif missing is not None and not isinstance(missing, str):
        parts.append(_in_order(missing, counts, "missing"))
    if not parts:
        return counts
    whole = as_pattern(sum(parts[1:], parts[0]))
    return counts.with_mask(Mask.of(whole) if whole.nnz else None)


def _in_order(given: Any, counts: Counts, argument: str) -> csr_array:
    """Return the pattern of chosen entries in the order of the counts."""
    found = split_labels(given)
    values = found.values
    if is_frame(values):
        values = _sparse_or_dense(values)
    elif hasattr(values, "to_memory"):  # of AnnData on disk
        values = values.to_memory()
    check_not_turned(getattr(values, "shape", ()), argument, counts.shape)
    places = [
        order_of(labels, names, Order(argument, side))
        for side, labels, names in (
            ("row", found.rows, counts.row_names),
            ("feature", found.columns, counts.feature_names),
        )
    ]
    entries: Any = as_pattern(check_entries(values, argument, counts.shape))
    rows, features = (slice(None) if each is None else each for each in places)
    return as_pattern(entries[rows][:, features])


def _sparse_or_dense(frame: Any) -> Any:
    """Return the values of a frame: of booleans as such, of sparse columns of numbers as a sparse matrix."""
    kinds = {getattr(dtype, "subtype", dtype).kind for dtype in frame.dtypes}
    if kinds == {"b"} and not frame.isna().to_numpy().any():  # as those of pandas that may be missing
        return frame.to_numpy(dtype=bool)
    if all(hasattr(dtype, "fill_value") for dtype in frame.dtypes):
        return frame.sparse.to_coo()
    return frame.to_numpy()
