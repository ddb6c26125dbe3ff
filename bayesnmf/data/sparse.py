"""Checks of SciPy's sparse matrices.

Users can set the parts of a matrix directly, and compiled loops do not check positions.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
from scipy.sparse import coo_array, csr_array


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
