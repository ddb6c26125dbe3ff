"""Validate a count matrix in any supported form, and convert it to the package's one form.

Parts of SciPy's sparse matrices can be set directly, and compiled loops do not check positions: those are checked here.
Texts in place of counts are refused, with the way to count their words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import DTypeLike
from scipy.sparse import coo_array, csr_array, issparse

from bayesnmf.checks import check_choice, has_mask, is_counted
from bayesnmf.data.annotated import counts_within, is_annotated, labels_of, values_of, where_raw_counts_are
from bayesnmf.data.counts import Counts
from bayesnmf.data.labels import is_frame, is_missing, split_labels
from bayesnmf.data.layouts import warn_of_columns, warn_of_counters
from bayesnmf.data.mask import Mask, without_nan
from bayesnmf.data.suspicions import warn_of_mutation_types_in_rows, warn_of_names, warn_of_scale
from bayesnmf.data.tables import MOST_COLUMNS, check_not_long, warn_of_header, warn_of_long


def check_sparse(sparse: Any, name: str) -> Any:
    """Return a two-dimensional sparse matrix with valid positions, which shares memory with `sparse` where possible.

    Positions are read once. The matrix is never modified, although SciPy's own check may do so.
    """
    try:
        return _CHECKED[sparse.format](sparse)
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must be a valid sparse matrix: {error}; rebuild it from its entries, as with "
            "scipy.sparse.coo_array((values, (rows, columns)), shape=shape)"
        ) from error


def check_positions(positions: Any, what: str) -> np.ndarray:
    """Return positions unchanged; refuse anything but an array of whole numbers."""
    if not isinstance(positions, np.ndarray) or positions.dtype.kind not in "iu":
        found = f"dtype {positions.dtype}" if isinstance(positions, np.ndarray) else type(positions).__name__
        raise ValueError(f"{what} must be an array of whole numbers: found {found}")
    return positions


def _checked_compressed(sparse: Any) -> Any:
    data = _checked_values(sparse.data)
    indices, indptr = (check_positions(getattr(sparse, part), part) for part in ("indices", "indptr"))
    view = type(sparse)((data, indices, indptr), shape=sparse.shape, copy=False)
    view.check_format(full_check=True)
    return view


def _checked_coordinates(sparse: Any) -> Any:
    data = _checked_values(sparse.data)
    if len(sparse.coords) != len(sparse.shape):
        raise ValueError(f"coords must be {len(sparse.shape)} arrays: found {len(sparse.coords)}")
    for axis, (positions, length) in enumerate(zip(sparse.coords, sparse.shape, strict=True)):
        what = ("row indices", "column indices")[axis]
        if check_positions(positions, what).shape != data.shape or data.ndim != 1:
            raise ValueError(f"{what} must have one entry for each value: found shapes {positions.shape}, {data.shape}")
        _check_range(positions, what, 0, length)
    return sparse


def _checked_diagonals(sparse: Any) -> Any:
    data, offsets = _checked_values(sparse.data), check_positions(sparse.offsets, "offsets")
    if data.ndim != 2 or offsets.shape != data.shape[:1]:
        raise ValueError(f"offsets must have one entry for each row: found shapes {offsets.shape}, {data.shape}")
    if len(np.unique(offsets)) < len(offsets):
        raise ValueError("offsets must be different")
    _check_range(offsets, "offsets", 1 - sparse.shape[0], sparse.shape[1])
    return sparse


def _checked_lists(sparse: Any) -> Any:
    """Return a LIL matrix as CSR."""
    lengths = np.array([len(row) for row in sparse.rows])
    if lengths.shape != sparse.shape[:1] or not np.array_equal(lengths, [len(row) for row in sparse.data]):
        raise ValueError("rows and data must hold one list for each row, of the same lengths")
    indices = np.array([*chain.from_iterable(sparse.rows)]) if lengths.any() else np.zeros(0, np.int64)
    data = np.array([*chain.from_iterable(sparse.data)], dtype=sparse.dtype)
    check_positions(indices, "column indices")
    return _checked_compressed(csr_array((data, indices, np.append(0, np.cumsum(lengths))), shape=sparse.shape))


def _checked_keys(sparse: Any) -> Any:
    """Return a DOK matrix as COO."""
    keys = np.array([*sparse.keys()]) if len(sparse.keys()) else np.zeros((0, 2), np.int64)
    if keys.ndim != 2 or keys.shape[1] != 2:
        raise ValueError("keys must be pairs (row, column)")
    data = np.array([*sparse.values()], dtype=sparse.dtype)
    for axis, what in enumerate(("row indices", "column indices")):
        _check_range(check_positions(keys[:, axis], what), what, 0, sparse.shape[axis])
    return coo_array((data, (keys[:, 0], keys[:, 1])), shape=sparse.shape)


def _checked_values(data: Any) -> np.ndarray:
    if not isinstance(data, np.ndarray) or isinstance(data, np.ma.MaskedArray):
        raise ValueError(f"data must be an array: found {type(data).__name__}")
    return data


def _check_range(positions: np.ndarray, what: str, first: int, end: int) -> None:
    if positions.size and (positions.min() < first or positions.max() >= end):
        worst = positions.max() if positions.max() >= end else positions.min()
        raise ValueError(f"{what} must be from {first} to {end - 1}: found {worst}")


_CHECKED = {
    "csr": _checked_compressed,
    "csc": _checked_compressed,
    "bsr": _checked_compressed,
    "coo": _checked_coordinates,
    "dia": _checked_diagonals,
    "lil": _checked_lists,
    "dok": _checked_keys,
}


LARGEST_INTEGER = 2.0**53
_FORMS = "pass an array, a sparse matrix, a DataFrame or an AnnData object"


def as_counts(
    x: Any,
    *,
    name: str = "counts",
    dtype: DTypeLike = np.float64,
    share: bool = False,
    layer: str | None = None,
    feature_labels: str | None = None,
    missing: str | None = None,
) -> Counts:
    """Validate a count matrix and convert it to the package's one form.

    Sparse counts stay sparse. `x` is never modified, and later changes to `x` do not change the result, which has its
    own arrays: 12 bytes for each nonzero in float64 with 4-byte positions. Entries stored twice (COO) are added.

    A DataWarning is given if the rows are all mutation types of one kind, and so not samples; if the columns are a row,
    a feature and a count, and so not features; if names repeat or are missing; if a row or a column is the sum of all
    others; and if fractional counts look normalised: all rows have the same sum, either directly or after undoing
    log(1 + x). The counts are not changed.

    Parameters
    ----------
    x : array, nested list, SciPy sparse matrix, table, DataArray, AnnData or Counts, (n, m)
        Counts with samples in rows. Tables are those of pandas, polars and pyarrow, and a DataArray is one of xarray:
        index and columns (or coordinates, or `obs_names` and `var_names`) become the names. From an AnnData object,
        `layers["counts"]` is read if it exists, else `X`.
    name : str
        Name of the argument in error messages.
    dtype : float64 or float32
        Type of the stored counts.
    share : bool
        Whether to use the arrays of a clean CSR matrix of the right type without a copy: for an `x` that nothing else
        refers to, or for counts that are not kept.
    layer, feature_labels : str, optional
        With an AnnData object, the layer with the counts, and the column of ``var`` with names of the features, such as
        gene symbols; labels that repeat are followed by the feature's own name.
    missing : {"nan"}, optional
        That entries of NaN are missing, which nobody counted; without it NaN is refused.

    See Also
    --------
    read_counts : counts in a file.

    Examples
    --------
    >>> import bayesnmf; bayesnmf.as_counts([[1, 0, 2], [0, 3, 0]])
    Counts(2 rows × 3 features, 3 nonzeros, total 6)
       0  1  2
    0  1  0  2
    1  0  3  0
    """
    x, dtype = x if isinstance(x, np.ndarray) else counts_within(x, name), _float_dtype(dtype)
    check_in_memory(x, name)
    if isinstance(x, Counts) and layer is None and feature_labels is None:
        _check_not_empty(x.shape, name)  # as counts[mask] may be
        return x if x.dtype == dtype else x.with_matrix(canonical(x.matrix, dtype))
    counts = convert(x, name, dtype, share, layer, feature_labels, missing)
    warn_of_all(counts, x, layer)
    if not isinstance(x, np.ndarray):
        warn_of_header(x, counts, name)
    return counts


def warn_of_all(counts: Counts, source: Any = None, layer: str | None = None) -> None:
    """Give the warnings of `as_counts`; an AnnData object as their source is looked at for raw counts."""
    if not is_counted(counts.row_names):
        warn_of_mutation_types_in_rows(counts.row_names, counts.feature_names)
    is_told = counts.shape[1] <= MOST_COLUMNS and warn_of_long(counts)
    if not is_counted(counts.feature_names) and not is_told:
        warn_of_columns(counts)
    if not (is_counted(counts.row_names) and is_counted(counts.feature_names)):
        warn_of_counters(counts)
    warn_of_names(counts)
    warn_of_scale(counts, partial(where_raw_counts_are, source, layer))


def check_in_memory(x: Any, name: str) -> None:
    """Refuse counts on disk, and several matrices."""
    if is_several(x):
        raise TypeError(
            f"{name} must be one matrix here: found several by name; fit, transform, select, modes, compare and assign "
            "take them, or give fit.counts of a fit of them"
        )
    if not getattr(x, "in_memory", True):
        raise TypeError(
            f"{name} must be in memory here: found {type(x).__name__}, which is on disk; read it with "
            "bayesnmf.read_counts, or give chosen rows, as in fit.counts.rows(range(1000))"
        )


def is_several(x: Any) -> bool:
    """Return whether counts are several matrices by name: a mapping, or MuData, whose `mod` is one."""
    others = hasattr(x, "dims") or hasattr(x, "shape")  # a Dataset of xarray, a sparse matrix by keys, a DataFrame
    return (not others and isinstance(x, Mapping)) or isinstance(getattr(x, "mod", None), Mapping)


def is_of_matrices(noise: Any, counts: Any) -> bool:
    """Return whether a noise is that of each of several matrices, by its words or by those of the counts."""
    return isinstance(noise, Mapping) or noise.by == "matrix" or hasattr(counts, "matrices")


def check_unmasked(x: Any, name: str) -> None:
    """Refuse masked arrays, and lists of masked rows."""
    if has_mask(x):
        raise TypeError(
            f"{name} must not be a masked array: only fit, compare, modes, project and transform take missing entries; "
            "leave out the rows or features that have some, or use .filled(0) if what is masked was counted as 0"
        )


def convert(
    x: Any,
    name: str,
    dtype: np.dtype,
    share: bool,
    layer: str | None = None,
    feature_labels: str | None = None,
    missing: str | None = None,
) -> Counts:
    """Return what `as_counts` returns for anything but Counts, without its warnings."""
    if missing is not None:
        check_choice(missing, "missing", ("nan",))
    if isinstance(x, np.ndarray) and x.dtype.kind in "biufc" and layer is None and feature_labels is None:
        values, row_names, feature_names = x, None, None
    else:
        values, row_names, feature_names = _split_names(x, name, layer, feature_labels)
    values, lost = (values, None) if missing is None else without_nan(values)
    matrix = matrix_of(values, name, dtype, partial(where_raw_counts_are, x, layer))
    n, m = matrix.shape
    if not share:
        _own_arrays(matrix, values)
    counts = Counts(
        matrix,
        np.arange(n) if row_names is None else row_names,
        np.arange(m) if feature_names is None else feature_names,
    )
    return counts if lost is None or not lost.nnz else counts.with_mask(Mask.of(lost))


def matrix_of(values: Any, name: str, dtype: np.dtype, cure: Callable[[], str]) -> csr_array:
    """Return the canonical matrix of values without labels; refuse what is no counts, and say where counts are."""
    values = values.compute() if hasattr(values, "dask") else values
    sparse = _checked(values, name) if issparse(values) else _sparse_from_dense(values, name)
    matrix = canonical(sparse, dtype)
    _check_values(matrix, name, cure)
    return matrix


def check_integer_counts(counts: Counts, why: str, cure: str) -> None:
    """Refuse fractional counts, and counts too large for exact whole numbers; `why` completes "whole numbers for"."""
    if counts.total > LARGEST_INTEGER and counts.matrix.data.max() > LARGEST_INTEGER:
        raise ValueError(f"counts must be at most 2**53 for {why}: found {counts.matrix.data.max():g}; divide them")
    if not counts.is_integer:
        data = counts.matrix.data
        first = int(np.argmax(data != np.floor(data)))
        raise ValueError(f"counts must be whole numbers for {why}: found {entry_at(counts.matrix, first)}; {cure}")


def _float_dtype(dtype: DTypeLike) -> np.dtype:
    try:
        kind = np.dtype(dtype)
    except TypeError as error:
        raise TypeError(f"dtype must be float64 or float32, not {dtype!r}") from error
    if dtype is None or kind not in (np.dtype(np.float64), np.dtype(np.float32)):
        raise ValueError(f"dtype must be float64 or float32, not {dtype!r}")
    return kind


def _split_names(
    x: Any, name: str, layer: str | None, feature_labels: str | None
) -> tuple[Any, np.ndarray | None, np.ndarray | None]:
    """Return values, row names and feature names of a labelled container, which is recognised by its attributes."""
    if is_annotated(x):
        return values_of(x, name, layer), np.array(x.obs_names), labels_of(x, name, feature_labels)
    for argument, value in (("layer", layer), ("feature_labels", feature_labels)):
        if value is not None:
            raise TypeError(f"{argument} needs {name} in an AnnData object: found {type(x).__name__}; leave it out")
    values, row_names, feature_names = split_labels(x)
    check_no_texts(values, name)
    return _frame_values(values, name) if is_frame(values) else values, row_names, feature_names


def _frame_values(frame: Any, name: str) -> Any:
    sparse = [hasattr(dtype, "fill_value") for dtype in frame.dtypes]
    for column, dtype in zip(frame.columns, frame.dtypes, strict=True):
        number = dtype.subtype if hasattr(dtype, "fill_value") else dtype
        if number.kind not in "biuf":
            check_not_long(frame, name)
            raise TypeError(
                f"{name} must be real numbers: column {column!r} has dtype {dtype}; "
                f"drop it, make it the index, or convert it with frame[{column!r}].astype(float)"
            )
    if not (sparse and all(sparse)):
        return frame.to_numpy(dtype=np.float64, na_value=np.nan)
    if any(dtype.fill_value != 0 for dtype in frame.dtypes):
        raise ValueError(
            f"{name} must have fill value 0 in its sparse columns; "
            "convert with frame.sparse.to_dense().fillna(0).astype(pd.SparseDtype(float, 0))"
        )
    if len(set(frame.dtypes)) > 1:  # pandas makes objects of bool and float together
        frame = frame.astype(type(frame.dtypes.iloc[0])(np.float64, 0))
    return frame.sparse.to_coo()


def _sparse_from_dense(values: Any, name: str) -> coo_array:
    check_unmasked(values, name)
    try:
        dense = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} must be rectangular: give every row the same number of entries") from error
    except TypeError as error:  # a class that cannot become an array
        raise TypeError(f"{name} must be real numbers: found {type(values).__name__}; {_FORMS}") from error
    _check_layout(dense, name)
    where = dense.nonzero()
    data = dense[where].astype(np.float64, copy=False)  # SciPy supports neither float16 nor big-endian
    return coo_array((data, where), shape=dense.shape)


def _checked(sparse: Any, name: str) -> Any:
    """Return a sparse matrix with a valid layout and valid positions; formats that SciPy converts may be new."""
    if hasattr(getattr(sparse, "data", None), "dtype") or sparse.format == "dok":
        _check_layout(sparse, name)
    return check_sparse(sparse, name)


def _check_layout(values: Any, name: str) -> None:
    if values.dtype.kind not in "biuf":
        raise TypeError(
            f"{name} must be real numbers: found dtype {values.dtype}; convert with x.astype(float), or {_FORMS}"
        )
    if values.ndim != 2:
        raise ValueError(
            f"{name} must be two-dimensional, samples in rows: found shape {values.shape}; "
            "reshape a single sample with x.reshape(1, -1)"
        )
    _check_not_empty(values.shape, name)


def _check_not_empty(shape: tuple[int, ...], name: str) -> None:
    if 0 in shape:
        raise ValueError(
            f"{name} must have at least one row and one column: found shape {shape}; "
            "check how the samples and features were selected"
        )


def canonical(view: Any, dtype: np.dtype) -> csr_array:
    """Return a CSR array with sorted, unique, nonzero entries, which shares memory with `view` where possible."""
    with np.errstate(over="ignore"):  # values that overflow become infinite, and are refused later
        if view.format == "csr":  # SciPy's own astype would copy the indices too
            arrays = (view.data.astype(dtype, copy=False), view.indices, view.indptr)
            view = csr_array(arrays, shape=view.shape)
        view = view.astype(dtype, copy=False)  # before duplicates are added: sums of uint8 would wrap
    matrix = csr_array(view.tocsr(copy=False))
    if not (matrix.has_canonical_format and matrix.data.all()):
        matrix = matrix.copy()
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
    if max(matrix.nnz, *matrix.shape) <= np.iinfo(np.int32).max:
        matrix.indices = matrix.indices.astype(np.int32, copy=False)
        matrix.indptr = matrix.indptr.astype(np.int32, copy=False)
    for part in ("data", "indices", "indptr"):  # compiled loops need contiguous arrays
        setattr(matrix, part, np.ascontiguousarray(getattr(matrix, part)))
    return matrix


def _own_arrays(matrix: csr_array, given: Any) -> None:
    """Copy the arrays of a CSR matrix that share memory with the given matrix."""
    for part in ("data", "indices", "indptr"):
        theirs, ours = getattr(given, part, None), getattr(matrix, part)
        if isinstance(theirs, np.ndarray) and np.may_share_memory(ours, theirs):
            setattr(matrix, part, ours.copy())


def _check_values(matrix: csr_array, name: str, cure: Callable[[], str]) -> None:
    data = matrix.data
    if data.size == 0 or (data.min() >= 0 and np.isfinite(data.max())):  # NaN fails the first comparison
        return
    if not np.isfinite(data).all():
        where = entry_at(matrix, int(np.argmin(np.isfinite(data))))
        raise ValueError(
            f"{name} must be finite as {data.dtype}: found {where}; replace missing or infinite entries, or give "
            "missing='nan' (--missing nan on the command line) if nobody counted there"
        )
    where = entry_at(matrix, int(np.argmax(data < 0)))
    raise ValueError(f"{name} must be nonnegative: found {where}, as in scaled or corrected data; {cure()}")


def entry_at(matrix: csr_array, position: int) -> str:
    """Return a stored entry, its row and its column in words."""
    row = int(np.searchsorted(matrix.indptr, position, side="right")) - 1
    return f"{matrix.data[position]} at row {row}, column {matrix.indices[position]}"


LOOKED_AT = 20  # the first texts


def check_no_texts(x: Any, name: str) -> None:
    """Refuse texts, lists of words, and a table with a column of texts; numbers that are written as text are none."""
    if is_frame(x):
        for j, (column, dtype) in enumerate(zip(x.columns, x.dtypes, strict=True)):
            if dtype.kind not in "biufcmM" and any(map(_has_words, _first(x.iloc[:, j]))):
                raise TypeError(
                    f"{name} must be numbers, and column {column!r} has texts: count their words, as with "
                    f"CountVectorizer().fit_transform(frame[{column!r}]) of scikit-learn"
                )
        return
    if not isinstance(x, list | tuple | np.ndarray) and not hasattr(x, "to_numpy"):
        return
    first = [each for each in _first(x) if hasattr(each, "__len__") or not is_missing(each)]
    if first and all(isinstance(each, str) for each in first) and any(map(_is_word, first)):
        raise TypeError(
            f"{name} must be numbers, and these are texts: count their words, as with "
            "CountVectorizer().fit_transform(texts) of scikit-learn, or in "
            "make_pipeline(CountVectorizer(), bayesnmf.BayesLDA(10))"
        )
    if any(isinstance(each, list | tuple | np.ndarray) and any(map(_is_word, _first(each))) for each in first):
        raise TypeError(
            f"{name} must be numbers, and these are lists of words: count them, as with "
            "CountVectorizer(analyzer=list).fit_transform(lists) of scikit-learn"
        )


def _first(x: Any) -> list[Any]:
    return list(islice(x, LOOKED_AT)) if isinstance(x, list | tuple) or getattr(x, "shape", None) else []


def _has_words(value: Any) -> bool:
    return isinstance(value, str) and len(value.split()) > 2 and _is_word(value)


def _is_word(value: Any) -> bool:
    """Return whether a value is text, and no number that is written as text."""
    if not isinstance(value, str):
        return False
    try:
        float(value)
    except ValueError:
        return True
    return False
