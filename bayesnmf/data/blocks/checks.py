"""Checks of counts on disk: sources, blocks of them, and folders that they are written to."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.checks import shown


class CountsOnDiskError(AttributeError, ValueError):
    """Something asks for numbers that are on disk, where counts in memory are needed."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"this needs counts in memory, but they are on disk ({what}); give chosen rows, as in "
            "fit.project(fit.counts.rows(range(1000))) for a fit, or read all counts with bayesnmf.read_counts"
        )


def check_read(counts: Any, what: str) -> None:
    """Refuse counts on disk where all of them are needed."""
    if not counts.in_memory:
        raise CountsOnDiskError(what)


def check_whole_numbers(matrix: csr_array, name: str, largest: int, cure: Callable[[], str]) -> None:
    """Refuse counts that are not whole numbers up to `largest`, which the store has room for; say where such are."""
    bad = (matrix.data != np.floor(matrix.data)) | (matrix.data > largest)
    if bad.any():
        place = int(np.argmax(bad))
        row = int(np.searchsorted(matrix.indptr, place, side="right")) - 1
        raise ValueError(
            f"counts on disk must be whole numbers up to {largest}: found {matrix.data[place]} in row {row}, column "
            f"{matrix.indices[place]} of {name}; {cure()}, or read these into memory"
        )


def check_rows_of_source(values: Any, shape: tuple[int, int], name: str) -> None:
    """Refuse a block of another shape than the source has announced: it was changed meanwhile."""
    if tuple(values.shape) != shape:
        raise ValueError(f"{name} must have the shape {shape}: found {tuple(values.shape)}; was the file changed?")


def check_room(folder: Path, source: Any, bytes_of_nonzero: int) -> None:
    """Refuse to begin to write more than the disk has room for."""
    if source.nnz is None:
        return
    needed, free = bytes_of_nonzero * source.nnz + 16 * source.shape[0], shutil.disk_usage(folder).free
    if needed > free:
        raise ValueError(
            f"scratch needs {needed / 1e9:.1f} GB for {source.name}: {folder} has {free / 1e9:.1f} GB; name a folder "
            "with more room, as in bayesnmf.Blocks(..., scratch=...)"
        )


def check_room_for_rows(counts: Any, rank: int, more: int = 0) -> None:
    """Refuse a fit whose loadings, of up to four states, and what else it writes would not fit on the disk."""
    if counts.in_memory:
        return
    needed = 4 * 2 * counts.shape[0] * rank * counts.dtype.itemsize + more
    free = shutil.disk_usage(counts.scratch).free
    if needed > free:
        raise ValueError(
            f"scratch needs {needed / 1e9:.1f} GB for what a fit of rank {rank} writes: {counts.scratch} has "
            f"{free / 1e9:.1f} GB; name a folder with more room, as in bayesnmf.Blocks(..., scratch=...)"
        )


def check_is_store(file: Path, version: int, digest_of: Callable[[Any], str]) -> dict[str, Any]:
    """Return what a file says about the counts in its folder; refuse other folders, and a file that was changed."""
    folder = file.parent
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        known, digest = found.pop("version"), found.pop("digest", None)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder} must be a folder of counts that bayesnmf has written: {error}") from error
    if known != version:
        raise ValueError(
            f"{folder} must be of version {version}: found {shown(known)}; write it again, with bayesnmf.Blocks of the "
            "file that the counts are from"
        )
    check_as_written(digest == digest_of(found), file)
    return found


def check_as_written(same: bool, file: Path) -> None:
    """Refuse a folder with a file that is not as it was written."""
    if not same:
        raise ValueError(
            f"{file} was changed, damaged or removed after it was written; remove {file.parent}, and begin again with "
            "the file that the counts are from"
        )


def check_starts(folder: Path, starts: Any, nnz: int) -> None:
    """Refuse places of rows that are out of order or beyond the nonzeros."""
    if starts[0] < 0 or starts[-1] > nnz or np.any(starts[1:] < starts[:-1]):
        check_as_written(False, folder / "indptr.npy")


def check_indices(folder: Path, indices: Any, features: int) -> None:
    """Refuse features that do not exist, which a compiled loop would look for anywhere in memory."""
    if len(indices) and indices.view(np.uint32).max() >= features:  # negative numbers are the largest there
        check_as_written(False, folder / "indices.npy")


def check_exists(path: Path) -> Path:
    """Return the path of a file or folder that is there."""
    if not path.exists():
        raise FileNotFoundError(f"there is no {path}; check the path (now in {Path.cwd()})")
    return path


def check_source(path: Path, suffixes: Sequence[str]) -> Path:
    """Return the path of a file or folder that can be read by rows."""
    check_exists(path)
    if path.suffix.lower() not in suffixes:
        raise ValueError(
            f"{path} must end in one of {', '.join(suffixes)} to be read by rows, or be a folder that "
            "bayesnmf.Blocks has written; read other files with bayesnmf.read_counts"
        )
    return path


def check_runs_no_code(store: Path) -> None:
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


def check_compressed_by_rows(kind: Any, name: str) -> None:
    """Refuse a sparse matrix on disk that is stored by columns, from which rows cannot be read."""
    if kind == "csc_matrix":
        raise ValueError(
            f"{name} is stored by columns (csc_matrix), so that its rows cannot be read one after the other; write it "
            "again with X.tocsr(), or read it into memory with bayesnmf.read_counts"
        )


def check_on_disk(method: str, options: Any) -> None:
    """Refuse what needs counts in memory."""
    needs = "or counts in memory: bayesnmf.read_counts reads a file, and adata.to_memory() an AnnData object"
    if method not in ("map", "vi", "gibbs"):
        raise ValueError(f"counts on disk need method='map', 'vi' or 'gibbs', {needs}: found {method!r}")
    wanted: dict[str, tuple[Any, ...]] = {
        "algorithm": ("em", "scd", "ccd", "coordinate", "settled", "minibatch", None),
        "start": ("svd", "descent", "random", "random_descent"),
        "order": ("loadings",), "collapsed": (False,),
    }  # fmt: skip
    if method == "gibbs":
        wanted |= {"algorithm": ("allocations", "marginal", None), "start": ("fit", "random")}
    for name, allowed in wanted.items():
        found = getattr(options, name, allowed[0])
        if (isinstance(found, str) or name != "start") and found not in allowed:
            listed = " or ".join(repr(each) for each in allowed if each is not None)
            raise ValueError(f"counts on disk need {name}={listed}, {needs}: found {name}={found!r}")
    shared = getattr(options.priors.loadings, "over", "row")
    if shared != "row":
        raise ValueError(
            f"counts on disk need a prior of loadings without rates that rows share, {needs}: found over={shared!r}"
        )
