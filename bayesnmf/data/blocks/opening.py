"""Open counts that a user names: in memory if there is room, else on disk, block by block."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from bayesnmf.checks import check_choice, check_count, check_path
from bayesnmf.data.annotated import is_annotated, is_lazy, is_paths
from bayesnmf.data.blocks.counts import BlockedCounts, StoredMatrix
from bayesnmf.data.blocks.raw import TemporaryFolder
from bayesnmf.data.blocks.sources import ANNOTATED, TENX, Source, Stacked, check_exists, open_source, open_stacked
from bayesnmf.data.blocks.store import ABOUT, VERSION, Store, write_store
from bayesnmf.data.checks import check_may_have_nan
from bayesnmf.data.conversion import as_counts, is_several, matrix_of, warn_of_all
from bayesnmf.data.counts import Counts
from bayesnmf.data.files import read_counts
from bayesnmf.data.labels import is_frame, split_labels
from bayesnmf.data.mask import Mask, without_nan
from bayesnmf.data.missing import is_nan, with_missing, without_missing
from bayesnmf.data.several import SeveralCounts, is_mudata_file, joined, matrices_of, of_each_matrix

NONZEROS = 2**21
BYTES_IN_MEMORY = 28  # of a nonzero during a fit in memory: the counts, their transpose and what reading takes


@dataclass(frozen=True)
class Blocks:
    """Counts to be read from disk block by block, in place of counts in memory.

    Attributes
    ----------
    source : path, list of paths, AnnData or Dask array
        File ``.h5ad``, ``.zarr`` or ``.h5`` of 10x Genomics; several files of any kind that `read_counts` reads, whose
        rows are put below each other and whose features are found by name; an AnnData object that is backed by a file
        or lazy; a Dask array of samples × features; or a folder that an earlier fit has written to `scratch`. Counts
        must be whole numbers. Rows of several files keep their names if none repeats, and otherwise have the name of
        the file, or of its folder, before them, as in "run1:AAACCTG".
    nonzeros : int
        Nonzero counts in a block. A block takes about 20 bytes of memory for each, beside its loadings.
    scratch : path, optional
        Folder with room for 6 bytes for each nonzero, and for the loadings during a fit. Counts are written there once
        and found again as long as the file does not change. By default a folder in the user's cache.
    layer, feature_labels : str, optional
        As for `bayesnmf.fit`.
    join : "inner", optional
        Of several files: that the features which all of them have are taken. By default features that a file lacks are
        refused, as nobody counted them there.

    See Also
    --------
    read_counts : counts in memory.

    Examples
    --------
    >>> import bayesnmf
    >>> fit = bayesnmf.fit(bayesnmf.Blocks("cells.h5ad"), rank=20)  # doctest: +SKIP
    """

    in_memory: ClassVar[bool] = False

    source: Any
    nonzeros: int = NONZEROS
    scratch: str | os.PathLike[str] | None = None
    layer: str | None = None
    feature_labels: str | None = None
    join: Literal["inner"] | None = None

    def __post_init__(self) -> None:
        check_count(self.nonzeros, "nonzeros", minimum=1)
        if self.join is not None:
            check_choice(self.join, "join", ("inner",))
            if not is_paths(self.source):
                raise ValueError("join needs several files: found one source; leave join out")


def _open(x: Any, layer: str | None, feature_labels: str | None, join: str | None = None) -> Source | Stacked:
    return open_stacked(x, layer, feature_labels, join) if is_paths(x) else open_source(x, layer, feature_labels)


def may_be_on_disk(x: Any) -> bool:
    """Return whether counts are a path, `Blocks`, counts on disk, or lazy, so that `open_counts` decides where to."""
    return isinstance(x, str | os.PathLike | Blocks | BlockedCounts) or is_paths(x) or is_lazy(x)


def open_counts(
    x: Any,
    dtype: Any,
    layer: str | None = None,
    feature_labels: str | None = None,
    told: Any = None,
    missing: Any = None,
    weights: Any = None,
) -> Counts:
    """Return counts in any form that `bayesnmf.fit` takes.

    A path is read into memory if a fit would take less than a quarter of the machine's memory; otherwise, and always
    for `Blocks`, the counts stay on disk. The same holds for an AnnData object that is backed or lazy, and for Dask
    arrays. With `missing="nan"`, NaN in files and AnnData objects are missing entries; other values of it say nothing.
    """
    nan: Any = {"missing": "nan"} if is_nan(missing) else {}
    told = told or (lambda *_: None)
    if is_several(x) or is_mudata_file(x) or weights is not None:
        return open_several(x, dtype, layer, feature_labels, told, weights=weights)
    if isinstance(x, BlockedCounts) and layer is None and feature_labels is None:
        return x.as_type(dtype)
    if isinstance(x, Blocks):
        more: Any = {name: value for name, value in (("layer", layer), ("feature_labels", feature_labels)) if value}
        return _on_disk(replace(x, **more), dtype, told)
    is_path = isinstance(x, (str, os.PathLike))
    if not is_path and not is_paths(x) and not is_lazy(x):
        return as_counts(x, dtype=dtype, layer=layer, feature_labels=feature_labels, **nan)
    path = check_path(x, "counts") if is_path else None
    if path is not None and not _is_readable_by_rows(path):
        return as_counts(read_counts(path, layer=layer, feature_labels=feature_labels, **nan), dtype=dtype)
    if path is not None and (path / ABOUT).is_file():
        return _on_disk(Blocks(path), dtype, told)
    source = _open(x, layer, feature_labels)
    try:
        dense = int(np.prod(source.shape)) if nan else np.inf  # what has NaN is no table of whole numbers on disk
        if (dense if source.nnz is None else source.nnz) * BYTES_IN_MEMORY > _memory() / 4:
            blocks = Blocks(x, layer=layer, feature_labels=feature_labels)
            if nan:
                check_may_have_nan(blocks, "counts that stay on disk")
            return _on_disk(blocks, dtype, told)
        values, cure = source.read(0, source.shape[0]), source.where_raw_counts_are
        values, lost = without_nan(values) if nan else (values, None)
        matrix = matrix_of(values, source.name, np.dtype(dtype), cure)
        given = zip((source.row_names, source.feature_names), matrix.shape, strict=True)
        rows, features = (np.arange(size) if names is None else names for names, size in given)
        counts = Counts(matrix, rows, features, mask=Mask.of(lost) if lost is not None and lost.nnz else None)
        warn_of_all(counts, source.beside, layer)
        return counts
    finally:
        source.close()


def open_several(
    x: Any, dtype: Any, layer: str | None = None, feature_labels: str | None = None, told: Any = None, **given: Any
) -> SeveralCounts:
    """Return several matrices side by side, each in any form that `bayesnmf.fit` takes.

    Parameters
    ----------
    x : mapping of names to counts, or MuData
    dtype, layer, feature_labels, told
        As for `open_counts`, for each matrix.
    **given
        `observed` and `missing`, mappings of names to what `bayesnmf.fit` takes, or for `missing` a word for all; and
        `weights`, as for `bayesnmf.data.several.joined`.
    """
    found, matrices = {}, matrices_of(x)
    entries = {each: of_each_matrix(given.get(each), each, matrices) for each in ("observed", "missing")}
    for name, each in matrices.items():
        one, own = without_missing(each, entries["missing"].get(name))
        data = open_counts(one, dtype, layer, feature_labels, told, entries["missing"].get(name))
        found[name] = with_missing(data, own, *(entries[side].get(name) for side in ("observed", "missing")))
    return joined(found, given.get("weights"))


def _is_readable_by_rows(path: Path) -> bool:
    return path.suffix.lower() in (*ANNOTATED, *TENX) or (path / ABOUT).is_file()


def _memory() -> int:
    """Return the memory of the machine, in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2**33


def _on_disk(blocks: Blocks, dtype: Any, told: Any) -> BlockedCounts:
    """Return counts on disk, which are written to the store unless they are there."""
    scratch = default_scratch() if blocks.scratch is None else check_path(blocks.scratch, "scratch")
    scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
    given: Any = blocks.source
    if not isinstance(given, (str, os.PathLike)) and getattr(given, "isbacked", False) and not given.is_view:
        given = given.filename
    if isinstance(given, (str, os.PathLike)) or is_paths(given):
        paths = [check_exists(check_path(each, "source")) for each in (given if is_paths(given) else [given])]
        if not is_paths(given) and (paths[0] / ABOUT).is_file():
            store = Store.open(paths[0])
            store.compare(told)
            return BlockedCounts.of(StoredMatrix(store, np.dtype(dtype), blocks.nonzeros, scratch))
        folder, keep = scratch / f"counts-{_key(paths, blocks)}", None
    else:
        keep = TemporaryFolder(scratch, "counts-")
        folder = keep.path / "store"
    if (folder / ABOUT).is_file():
        store = Store.open(folder)
        store.compare(told)
    else:
        source = _open(given, blocks.layer, blocks.feature_labels, blocks.join)
        try:
            store = write_store(folder, source, told)
        finally:
            source.close()
    return BlockedCounts.of(StoredMatrix(store, np.dtype(dtype), blocks.nonzeros, scratch, keep))


def default_scratch() -> Path:
    """Return the folder for counts on disk in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bayesnmf"


def _key(paths: list[Path], blocks: Blocks) -> str:
    """Return a digest of the names, sizes and times of files, so that one that changed is read again."""
    files = [
        each for path in paths for each in (sorted(path.rglob("*")) if path.is_dir() else [path]) if each.is_file()
    ]
    stamps = [(str(each), each.stat().st_size, each.stat().st_mtime_ns) for each in files]
    names = "\n".join(str(path.resolve()) for path in paths)
    about = (VERSION, names, blocks.layer, blocks.feature_labels, stamps, *filter(None, [blocks.join]))
    return hashlib.blake2b(repr(about).encode(), digest_size=8).hexdigest()


# --- what scikit-learn reads ----------------------------------------------------------------------------


def features_of(counts: Counts) -> Any:
    """Return a table without rows that has the features of counts, with their names if all are strings."""
    import pandas as pd

    names, none = counts.feature_names, np.empty((0, counts.shape[1]))
    return pd.DataFrame(none, columns=names) if all(isinstance(each, str) for each in names) else none


def as_table(X: Any, missing: str | None = None) -> Any:
    """Return X, or a DataFrame if scikit-learn would not read it, or not its labels; NaN may be missing entries."""
    import pandas as pd

    if is_annotated(X) and not may_be_on_disk(X):
        counts = as_counts(X, name="X", missing="nan" if is_nan(missing) else None)
        if counts.mask is not None:
            whole = np.where(counts.mask.hidden(slice(None)), np.nan, counts.dense)
            return pd.DataFrame(whole, counts.row_names, counts.feature_names)
        sparse: Any = pd.DataFrame.sparse
        return sparse.from_spmatrix(counts.matrix, counts.row_names, counts.feature_names)
    found = split_labels(X)
    if found.columns is None or is_frame(found.values):
        return X if found.columns is None else found.values
    return pd.DataFrame(np.asarray(found.values), found.rows, found.columns)
