"""Read which entries of counts are missing: from the counts themselves, or from a mask beside them.

A missing entry is not a count of 0, but one that nobody made: it adds neither counts nor exposure.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.data.annotated import counts_within
from bayesnmf.data.checks import check_entries, check_may_have_nan, check_missing_word, check_zeros_in_memory
from bayesnmf.data.counts import Counts
from bayesnmf.data.labels import Order, is_frame, order_of, split_labels
from bayesnmf.data.mask import Mask, as_pattern


def without_missing(counts: Any, missing: Any = None) -> tuple[Any, csr_array | None]:
    """Return counts as given, with 0 at entries that they say to be missing, and the pattern of these entries.

    Masked arrays say it by their mask; NaN does with missing="nan". Other counts stay as they are.
    """
    given, counts = counts, counts_within(counts, "counts")
    if isinstance(counts, np.ma.MaskedArray):
        pattern = as_pattern(np.ma.getmaskarray(counts)) if counts.ndim == 2 else None
        return counts.filled(0), pattern
    if not (isinstance(missing, str) and missing == "nan"):
        return counts, None
    check_may_have_nan(counts, type(given).__name__)
    if hasattr(counts, "tocoo"):
        found = counts.tocoo(copy=True)
        entries = np.isnan(found.data)
        pattern = as_pattern(
            csr_array((np.ones(entries.sum()), (found.row[entries], found.col[entries])), shape=found.shape)
        )
        found.data[entries] = 0
        return found, pattern
    if is_frame(values := split_labels(counts).values):
        return values.fillna(0), as_pattern(values.isna().to_numpy())
    dense = np.array(values, np.float64)
    lost = np.isnan(dense)
    dense[lost] = 0
    return dense, as_pattern(lost)


def with_missing(counts: Counts, own: csr_array | None, observed: Any = None, missing: Any = None) -> Counts:
    """Return counts with a mask of all entries that are missing.

    Parameters
    ----------
    counts : Counts
    own : csr_array or None
        Entries that the counts themselves say to be missing (`without_missing`).
    observed : array, DataFrame or sparse matrix of booleans (n, m), optional
        True where a count was made. What has labels is matched by name.
    missing : sparse matrix, array or DataFrame (n, m), "zeros" or "nan", optional
        Missing entries: those that a sparse matrix stores, or where others are True. "zeros": all entries without a
        count.
    """
    none = own is None and observed is None and counts.mask is None
    if none and isinstance(missing, str) and missing == "zeros":
        check_zeros_in_memory(counts)
        return counts.with_mask(Mask(as_pattern(counts.matrix), of_missing=False))
    if isinstance(missing, str):
        check_missing_word(missing)
    parts = [] if own is None else [own]
    if counts.mask is not None and (own is not None or observed is not None or missing is not None):
        parts.append(counts.mask.missing)
    if observed is not None:
        seen: Any = _in_order(observed, counts, "observed")
        seen = seen.toarray() if hasattr(seen, "toarray") else seen
        parts.append(as_pattern(~seen.astype(bool)))
    if isinstance(missing, str) and missing == "zeros":
        check_zeros_in_memory(counts)
        parts.append(as_pattern(counts.matrix.toarray() == 0))
    elif missing is not None and not isinstance(missing, str):
        parts.append(as_pattern(_in_order(missing, counts, "missing")))
    if not parts:
        return counts
    whole = as_pattern(sum(parts[1:], parts[0]))
    return counts.with_mask(Mask.of(whole) if whole.nnz else None)


def _in_order(given: Any, counts: Counts, argument: str) -> Any:
    """Return entries in the order of the counts: an array of booleans, or a sparse matrix."""
    found = split_labels(given)
    values = found.values.to_numpy() if is_frame(found.values) else found.values
    entries = check_entries(values, argument, counts.shape)
    for side, labels, names in (
        ("row", found.rows, counts.row_names),
        ("feature", found.columns, counts.feature_names),
    ):
        places = order_of(labels, names, Order(argument, side))
        if places is not None:
            entries = entries[places] if side == "row" else entries[:, places]
    return entries
