"""Counts as Cell Ranger of 10x Genomics writes them: a folder of three files, or one HDF5 file."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from bayesnmf.data.sidecars import BARCODES, FEATURES, MATRIX, existing_file, genes_among, names_with_identifiers

MOST_SHOWN = 5


def matrix_in(folder: Path) -> Path:
    """Return the matrix file of a 10x folder, whose names may have a prefix; refuse a folder without all files."""
    prefix = _prefix_in(folder)
    parts = ((MATRIX,), (BARCODES,), FEATURES)
    found = [existing_file(folder / MATRIX, prefix, names) for names in parts]
    missing = [
        " or ".join(prefix + name for name in names) for names, file in zip(parts, found, strict=True) if file is None
    ]
    if len(missing) == len(parts):
        raise ValueError(f"{folder} must be a file, not a directory; name one file in it")
    if missing:
        others = sorted(each.name for each in folder.iterdir() if each.name.removesuffix(".gz").endswith(".mtx"))
        shown = f" of {', '.join(others[:MOST_SHOWN])}" if others and found[0] is None else ""
        raise ValueError(
            f"{folder} must have all files of a 10x Genomics folder, each also with .gz: {', '.join(missing)} is "
            f"missing; add it, or name the one file{shown} to read"
        )
    matrix: Any = found[0]
    return matrix


def _prefix_in(folder: Path) -> str:
    """Return what stands before the name of the only matrix in a folder, as in the files of GEO."""
    names = {file.name.removesuffix(".gz") for file in folder.iterdir() if file.is_file()}
    prefixes = sorted(name.removesuffix(MATRIX) for name in names if name.endswith(MATRIX))
    if len(prefixes) > 1 and "" not in prefixes:
        raise ValueError(
            f"{folder} must have one matrix: found {prefixes[0]}{MATRIX}, {prefixes[1]}{MATRIX}; name one of the files"
        )
    return prefixes[0] if prefixes else ""


class CellsOfFile:
    """Counts in an HDF5 file of 10x Genomics, (cells, features), of which a slice of cells is read.

    Parameters
    ----------
    group : h5py.Group
        Matrix of features × cells, compressed by cells.
    chosen : ndarray of bool or None
        Features to read; None for all.
    """

    def __init__(self, group: Any, chosen: np.ndarray | None) -> None:
        features, cells = (int(each) for each in group["shape"][:])
        self.shape = cells, features if chosen is None else int(chosen.sum())
        self.nnz = int(group["data"].shape[0])
        self._group, self._chosen, self._width, self._starts = group, chosen, features, group["indptr"][:]

    def __getitem__(self, cells: slice) -> Any:
        from scipy.sparse import csr_array

        first, last, _ = cells.indices(self.shape[0])
        starts = self._starts[first : last + 1]
        data, indices = (self._group[name][starts[0] : starts[-1]] for name in ("data", "indices"))
        read = csr_array((data, indices, starts - starts[0]), shape=(last - first, self._width))
        return read if self._chosen is None else read[:, self._chosen]


def open_10x_h5(path: Path) -> tuple[CellsOfFile, np.ndarray, np.ndarray, Any]:
    """Open an HDF5 file of Cell Ranger 3 and later, or of version 2 with one genome.

    Returns
    -------
    CellsOfFile
        Counts with cells in rows.
    ndarray, ndarray
        Barcodes, and names of the features.
    h5py.File
        Open file, to be closed.
    """
    import h5py

    file = h5py.File(path)
    try:
        group = file["matrix"] if "matrix" in file else _only_genome(file)
        features = group.get("features")
        identifiers, symbols = (
            (features["id"], features["name"]) if features is not None else (group["genes"], group["gene_names"])
        )
        names = names_with_identifiers(_texts(symbols), _texts(identifiers))
        barcodes = np.array(_texts(group["barcodes"]), dtype=object)
        number, cells = (int(each) for each in group["shape"][:])
        if (number, cells) != (len(names), len(barcodes)):
            raise ValueError(
                f"its matrix has the shape {(number, cells)}, but there are {len(names)} features and {len(barcodes)} "
                "barcodes"
            )
        types = _texts(features["feature_type"]) if features is not None and "feature_type" in features else []
        genes = genes_among(types, path)
    except BaseException:
        file.close()
        raise
    return CellsOfFile(group, genes), barcodes, names if genes is None else names[genes], file


def read_10x_h5(path: Path) -> Any:
    """Read an HDF5 file of 10x Genomics; cells are in rows."""
    values, barcodes, names, file = open_10x_h5(path)
    with file:
        return SimpleNamespace(X=values[:], obs_names=barcodes, var_names=names, layers={})


def _only_genome(file: Any) -> Any:
    groups = [each for each in file.values() if "gene_names" in getattr(each, "keys", tuple)()]
    if len(groups) != 1:
        raise ValueError(f"it holds {len(groups)} matrices of 10x Genomics, and not one")
    return groups[0]


def _texts(stored: Any) -> list[str]:
    return [each.decode() if isinstance(each, bytes) else str(each) for each in stored[:]]
