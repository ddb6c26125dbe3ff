"""What counts can be read from, row by row: files, AnnData objects on disk, Dask arrays.

A source says its shape and its names, and reads any block of rows. Files are read once and written to a store
(`bayesnmf.data.blocks.store`), from which every pass of a fit reads.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array, vstack

from bayesnmf.checks import shown
from bayesnmf.data.annotated import RAW, chosen_layer, is_annotated, labels_of, where_raw_counts_are
from bayesnmf.data.conversion import matrix_of
from bayesnmf.data.files import read_counts
from bayesnmf.data.matrix_files import open_10x_h5
from bayesnmf.types import Array

NONZEROS, ROWS = 2**20, 4096  # read at once: of sparse counts, and rows of others
ANNOTATED, TENX = (".h5ad", ".zarr"), (".h5",)


@dataclass(frozen=True)
class Source:
    """Counts that can be read by rows.

    Attributes
    ----------
    values : object
        Array-like of shape (n, m) of which ``values[first:last]`` is an array, a sparse matrix or a lazy array.
    name : str
        What messages call the source.
    row_names, feature_names : array or None
    nnz : int or None
        Number of nonzeros, if it is known before all are read.
    file : object or None
        What must stay open, and is closed in the end.
    beside, layer : object and str
        AnnData object, or one like it, that the values are from, and the layer asked for; else None.
    """

    values: Any
    name: str
    row_names: Any = None
    feature_names: Any = None
    nnz: int | None = None
    file: Any = None
    beside: Any = None
    layer: str | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of features."""
        n, m = self.values.shape
        return int(n), int(m)

    def bounds(self) -> list[tuple[int, int]]:
        """Return the blocks of rows in which the source is read."""
        n = self.shape[0]
        chunks = getattr(self.values, "chunks", None)
        if isinstance(chunks, tuple) and isinstance(chunks[0], tuple):  # of a Dask array
            edges = np.cumsum([0, *chunks[0]]).tolist()
            return [(first, last) for first, last in pairwise(edges) if last > first]
        rows = ROWS if self.nnz is None else int(np.clip(NONZEROS * n // max(self.nnz, 1), 1, n))
        return [(first, min(first + rows, n)) for first in range(0, n, rows)]

    def read(self, first: int, last: int) -> Any:
        """Return some rows, as what `bayesnmf.data.conversion.convert` takes."""
        block = self.values[first:last]
        return block.compute() if hasattr(block, "compute") else block

    def where_raw_counts_are(self) -> str:
        """Return what to pass in place of values that are no counts."""
        return where_raw_counts_are(self.beside, self.layer)

    def close(self) -> None:
        """Close the file."""
        if self.file is not None:
            self.file.close()


@dataclass(frozen=True)
class Made:
    """A source of counts that are made in blocks of rows, one after the other.

    Attributes
    ----------
    edges : list of int
        First row of each block, and the number of rows.
    features : int
    name : str
        What messages call the source.
    nnz : int
        Number of nonzeros, at most.
    read : callable
        Function of the first row of a block and the one after its last that returns its counts.
    """

    edges: list[int]
    features: int
    name: str
    nnz: int
    read: Callable[[int, int], csr_array]
    row_names: ClassVar[None] = None
    feature_names: ClassVar[None] = None

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of features."""
        return self.edges[-1], self.features

    def bounds(self) -> list[tuple[int, int]]:
        """Return the blocks of rows in which the source is read, in order."""
        return list(pairwise(self.edges))

    def where_raw_counts_are(self) -> str:
        """Return what to pass in place of values that are no counts."""
        return RAW


@dataclass(frozen=True)
class Stacked:
    """Counts of several files, one below the other, of which one is open at a time.

    Attributes
    ----------
    paths : list of Path
    open : callable
        Function of a path that returns its source.
    edges : list of int
        First row of each file, and the number of all rows.
    inner_bounds : list of list of pairs of int
        Blocks of rows in which each file is read.
    places : list of (ndarray of shape (m,) or None)
        Where the features are in each file; None where they are the same in the same order.
    row_names, feature_names : ndarray
    nnz : int or None
        Number of nonzeros, if it is known before all are read.
    """

    paths: list[Path]
    open: Callable[[Path], Source]
    edges: list[int]
    inner_bounds: list[list[tuple[int, int]]]
    places: list[Array | None]
    row_names: Array
    feature_names: Array
    nnz: int | None
    beside: ClassVar[None] = None

    @classmethod
    def of(cls, paths: list[Path], open_path: Callable[[Path], Source], join: str | None) -> Stacked:
        """Return the files below each other, with features by their names.

        Parameters
        ----------
        paths : list of Path
        open_path : callable
        join : "inner" or None
            Whether features that a file lacks are left out; otherwise they are refused.

        Raises
        ------
        ValueError
            Files without names, with features that differ, or with a name twice.
        """
        rows, features, bounds, nonzeros = [], [], [], []
        for path in paths:
            source = open_path(path)
            try:
                for side, names in (("rows", source.row_names), ("features", source.feature_names)):
                    if names is None:
                        raise ValueError(f"{path} must name its {side} to be read with other files: it has no names")
                rows.append(np.asarray(source.row_names, str))
                features.append(np.asarray(source.feature_names, str))
                bounds.append(source.bounds())
                nonzeros.append(source.nnz)
            finally:
                source.close()
        common = _common(paths, features, join)
        places = [None if np.array_equal(names, common) else _places_in(names, common) for names in features]
        nnz = None if None in nonzeros else int(sum(nonzeros))  # type: ignore[arg-type]
        edges = [0, *np.cumsum([len(names) for names in rows]).tolist()]
        return cls(paths, open_path, edges, bounds, places, _distinct(paths, rows), common, nnz)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of features."""
        return self.edges[-1], len(self.feature_names)

    @property
    def name(self) -> str:
        """What messages call the source."""
        return f"{len(self.paths)} files, {self.paths[0]} to {self.paths[-1]}"

    def bounds(self) -> list[tuple[int, int]]:
        """Return the blocks of rows in which the source is read, none across two files."""
        every = zip(self.edges[:-1], self.inner_bounds, strict=True)
        return [(begun + first, begun + last) for begun, blocks in every for first, last in blocks]

    def read(self, first: int, last: int) -> csr_array:
        """Return some rows."""
        found = []
        for at, path in enumerate(self.paths):
            a, b = max(first, self.edges[at]) - self.edges[at], min(last, self.edges[at + 1]) - self.edges[at]
            if a < b:
                found.append(self._read_from(at, path, a, b))
        return found[0] if len(found) == 1 else csr_array(vstack(found))

    def _read_from(self, at: int, path: Path, first: int, last: int) -> csr_array:
        source = self.open(path)
        try:
            values = source.read(first, last)
            name = f"rows {first} to {last - 1} of {path}"
            matrix = matrix_of(values, name, np.dtype(np.float64), source.where_raw_counts_are)
        finally:
            source.close()
        places = self.places[at]
        return matrix if places is None else csr_array(matrix[:, places])

    def where_raw_counts_are(self) -> str:
        """Return what to pass in place of values that are no counts."""
        return RAW

    def close(self) -> None:
        """Do nothing: no file is open between two blocks."""


def _common(paths: list[Path], features: list[Array], join: str | None) -> Array:
    """Return the features of all files in the order of the first, or those that all have."""
    first = features[0]
    for path, names in zip(paths, features, strict=True):
        if len(np.unique(names)) < len(names):
            raise ValueError(f"{path} must name each feature once to be read with other files: a name repeats")
    if join == "inner":
        kept = np.logical_and.reduce([np.isin(first, names) for names in features])
        if not kept.any():
            raise ValueError("files must have a feature in common: there is none, so their names are of another kind")
        return np.asarray(first[kept])
    for path, names in zip(paths[1:], features[1:], strict=True):
        one, two = np.setdiff1d(first, names), np.setdiff1d(names, first)
        if len(one) or len(two):
            lacks = f"lacks {shown(str(one[0]))} and {len(one) - 1} more" if len(one) else f"has {shown(str(two[0]))}"
            raise ValueError(
                f"files must have the same features: {path} {lacks}, unlike {paths[0]}; take those that all have, "
                "with bayesnmf.Blocks([...], join='inner')"
            )
    return first


def _places_in(names: Array, wanted: Array) -> Array:
    """Return where the wanted names are."""
    order = np.argsort(names)
    return np.asarray(order[np.searchsorted(names, wanted, sorter=order)])


def _distinct(paths: list[Path], rows: list[Array]) -> Array:
    """Return the names of all rows, after the part of the path that tells files apart where one name is in two."""
    every = np.concatenate(rows)
    if len(np.unique(every)) == len(every):
        return every.astype(object)
    words = _telling_apart(paths)
    return np.array([f"{word}:{name}" for word, names in zip(words, rows, strict=True) for name in names], dtype=object)


def _telling_apart(paths: list[Path]) -> list[str]:
    """Return the stem of each path, or the folder that tells files of one name apart."""
    for of_path in (lambda path: path.stem, lambda path: path.parent.name, lambda path: path.parent.parent.name):
        words = [of_path(path.absolute()) for path in paths]
        if len(set(words)) == len(words):
            return words
    return [str(path) for path in paths]


def open_stacked(paths: Iterable[Any], layer: str | None, feature_labels: str | None, join: str | None) -> Stacked:
    """Open several files as one source; what cannot be read by rows is read into memory, one file at a time.

    Raises
    ------
    ValueError, FileNotFoundError
        A file that does not exist or comes twice; features that differ.
    """
    found = [check_exists(Path(each)) for each in paths]
    if len({path.resolve() for path in found}) < len(found):
        raise ValueError("counts must name each file once: one of the paths comes twice")

    def open_path(path: Path) -> Source:
        if path.suffix.lower() in (*ANNOTATED, *TENX):
            return _open_path(path, layer, feature_labels)
        counts = read_counts(path, layer=layer, feature_labels=feature_labels)
        return Source(counts.matrix, str(path), counts.row_names, counts.feature_names, counts.nnz)

    return Stacked.of(found, open_path, join)


def open_source(x: Any, layer: str | None, feature_labels: str | None) -> Source:
    """Open a path, an AnnData object, or a lazy array as a source.

    Raises
    ------
    TypeError, ValueError, FileNotFoundError
        What is no source, a layer or labels that are missing, or counts that are stored by columns.
    """
    if isinstance(x, (str, os.PathLike)):
        return _open_path(check_exists(Path(x)), layer, feature_labels)
    if is_annotated(x):
        values = chosen_layer(x, "counts", layer)
        _check_order(values, "counts")
        names = np.array(x.obs_names), labels_of(x, "counts", feature_labels)
        return Source(values, "counts", *names, _nnz_of(values), beside=x, layer=layer)
    if hasattr(x, "compute_chunk_sizes") and np.isnan(x.shape).any():  # as of what pandas or a filter has made
        x = x.compute_chunk_sizes()
    return Source(x, "counts", nnz=_nnz_of(x))


def _open_path(path: Path, layer: str | None, feature_labels: str | None) -> Source:
    if path.suffix.lower() not in (*ANNOTATED, *TENX):
        raise ValueError(
            f"{path} must end in one of {', '.join((*ANNOTATED, *TENX))} to be read by rows, or be a folder that "
            "bayesnmf.Blocks has written; read other files with bayesnmf.read_counts"
        )
    try:
        if path.suffix.lower() in TENX:
            values, rows, features, file = open_10x_h5(path)
            return Source(values, str(path), rows, features, values.nnz, file)
        file, adata = _open_annotated(path)
    except PermissionError:
        raise
    except (OSError, KeyError) as error:
        raise ValueError(
            f"{path} must be a whole file of AnnData or of 10x Genomics: {error}; write it or fetch it again"
        ) from error
    values = chosen_layer(adata, str(path), layer)
    _check_order(values, str(path))
    names = np.array(adata.obs_names), labels_of(adata, str(path), feature_labels)
    return Source(values, str(path), *names, _nnz_of(values), file, adata, layer)


def _open_annotated(path: Path) -> tuple[Any, Any]:
    """Return the open file and an object like an AnnData object, of which only the names are in memory."""
    from types import SimpleNamespace

    from anndata.io import read_elem, sparse_dataset

    file: Any
    if path.suffix.lower() == ".zarr":
        import zarr

        _check_runs_no_code(path)
        file = zarr.open_group(path, mode="r")
        closing: Any = SimpleNamespace(close=lambda: None)
    else:
        import h5py

        closing = file = h5py.File(path)

    def opened(element: Any) -> Any:
        return sparse_dataset(element) if "encoding-type" in element.attrs and "matrix" in str(
            element.attrs["encoding-type"]) else element  # fmt: skip

    obs: Any
    var: Any
    obs, var = (read_elem(file[each]) for each in ("obs", "var"))
    layers = {name: opened(file["layers"][name]) for name in file["layers"]} if "layers" in file else {}
    values = opened(file["X"]) if "X" in file else None
    stored: Any = file.get("raw")
    raw = SimpleNamespace(X=opened(stored["X"])) if hasattr(stored, "keys") else None  # None may be stored, too
    names: Any = {"obs_names": obs.index, "var_names": var.index, "var": var}
    return closing, SimpleNamespace(X=values, layers=layers, raw=raw, **names)


def check_exists(path: Path) -> Path:
    """Return the path of a file or folder that is there."""
    if not path.exists():
        raise FileNotFoundError(f"there is no {path}; check the path (now in {Path.cwd()})")
    return path


def _check_order(values: Any, name: str) -> None:
    """Refuse a sparse matrix on disk that is stored by columns, from which rows cannot be read."""
    if getattr(values, "format", None) == "csc":
        raise ValueError(
            f"{name} is stored by columns (csc_matrix), so that its rows cannot be read one after the other; write it "
            "again with X.tocsr(), or read it into memory with bayesnmf.read_counts"
        )


def _check_runs_no_code(store: Path) -> None:
    """Refuse a Zarr store with arrays of pickles, which run code when they are read; not every version of zarr does."""
    for place, folders, files in os.walk(store):
        for path in (Path(place) / name for name in {".zarray", ".zmetadata", "zarr.json"} & {*files}):
            if _names_pickles(json.loads(path.read_text(encoding="utf-8"))):
                raise ValueError(
                    f"{path} must name no codec that unpickles, as that may run any code; write the store again "
                    "without arrays of objects"
                )
        if ".zarray" in files:
            folders.clear()  # of chunks


def _names_pickles(about: Any) -> bool:
    parts = about.values() if isinstance(about, dict) else about if isinstance(about, list) else ()
    found = isinstance(about, dict) and any(about.get(key) in ("pickle", "numcodecs.pickle") for key in ("id", "name"))
    return bool(found) or any(map(_names_pickles, parts))


def _nnz_of(values: Any) -> int | None:
    """Return the number of stored counts of a sparse matrix on disk."""
    group = getattr(values, "group", None)
    return None if group is None else int(group["indices"].shape[0])
