"""Encode counts for a file: their numbers, or for counts on disk the folder that they are in.

The folder is named from the folder of the file or from the user's home, where it lies in one of them, so that both can
be moved together and a file says no more of a machine than it must. A folder that is not there is looked for by the
fingerprint of its counts: beside the file, beside the place that the file names, and in the user's cache.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.data.batches import Batches
from bayesnmf.data.blocks.counts import BlockedCounts
from bayesnmf.data.blocks.opening import default_scratch
from bayesnmf.data.blocks.store import ABOUT, Store
from bayesnmf.data.blocks.stored_matrix import StoredMatrix
from bayesnmf.data.counts import Counts
from bayesnmf.data.mask import Mask
from bayesnmf.data.several import Matrices, SeveralCounts
from bayesnmf.results.saved_arrays import CSR, Group, decode_arrays, encode_arrays
from bayesnmf.results.saved_checks import check_found_store

EXPOSURES = ("row_exposure", "feature_exposure")
MATRICES = ("matrices", "matrix_of_feature", "own_feature_names", "weights")
HAS = "has_rows"  # which rows each matrix has; files of earlier versions lack it
MASK = ("mask_indices", "mask_indptr")


def encode_counts(counts: Counts, near: Path) -> Group:
    """Return the group of counts, with names and exposures, for a file in the folder `near`."""
    names = {"row_names": counts.row_names, "feature_names": counts.feature_names}
    arrays, about = {**names, **{name: getattr(counts, name) for name in EXPOSURES}}, dict[str, Any]()
    if isinstance(counts, BlockedCounts):
        about |= {
            "folder": place_of(counts.store.folder, near), "fingerprint": counts.store.fingerprint,
            "nonzeros": counts.matrix.nonzeros, "dtype": counts.dtype.name,
        }  # fmt: skip
    else:
        arrays = {**{name: getattr(counts.matrix, name) for name in CSR}, **arrays}
    if isinstance(counts, SeveralCounts):
        told = counts.matrices
        values = np.array(told.names, dtype=object), told.codes, told.features, told.weights
        arrays |= {**dict(zip(MATRICES, values, strict=True)), HAS: counts.has}
    if counts.batch is not None:
        arrays |= {"batch_names": counts.batch.names, "batch_codes": counts.batch.codes}
        about |= {} if counts.batch.shape is None else {"batch_shape": counts.batch.shape}
    if counts.mask is not None:
        mask = counts.mask.as_entries
        arrays |= {name: getattr(mask.pattern, name.removeprefix("mask_")) for name in MASK}
        about |= {"mask_of_missing": int(mask.of_missing)}
    return encode_arrays(arrays, **about)


def decode_counts(group: Group, near: Path, *, by_sums: bool = False) -> Counts:
    """Return the counts of a group of a file in the folder `near`.

    With `by_sums`, the fingerprint of counts on disk is the older one, of the sums of their rows and features.
    """
    parts, about = decode_arrays(group), group.attrs
    names = parts["row_names"], parts["feature_names"]
    more: dict[str, Any] = {name: parts.get(name) for name in EXPOSURES}
    more |= {"mask": _mask_of(parts, about, (len(names[0]), len(names[1]))), "batch": _batches_of(parts, about)}
    if "folder" in about:
        place = Path(os.path.abspath(near / Path(about["folder"]).expanduser()))
        store = _find_store(place, about["fingerprint"], near, by_sums)
        stored = StoredMatrix(store, np.dtype(about["dtype"]), int(about["nonzeros"]), store.folder.parent)
        return BlockedCounts(stored, *names, **more)
    matrix = csr_array(tuple(parts[name] for name in CSR), shape=(len(names[0]), len(names[1])))
    if MATRICES[0] in parts:
        of_matrices, *others = (parts[name] for name in MATRICES)
        told = Matrices(tuple(str(each) for each in of_matrices), *others)
        return SeveralCounts(matrix, *names, **more, matrices=told, has=parts.get(HAS))
    return Counts(matrix, *names, **more)


def _batches_of(parts: dict[str, Any], about: Any) -> Batches | None:
    """Return the batches in a file; None if there are none."""
    if "batch_codes" not in parts:
        return None
    shape = about.get("batch_shape")
    return Batches(parts["batch_names"], parts["batch_codes"], None if shape is None else float(shape))


def _mask_of(parts: dict[str, Any], about: Any, shape: Any) -> Mask | None:
    """Return the mask in a file; None if no entry is missing."""
    if MASK[0] not in parts:
        return None
    indices, indptr = (parts[name] for name in MASK)
    return Mask(csr_array((np.ones(len(indices)), indices, indptr), shape=shape), bool(about["mask_of_missing"]))


def place_of(folder: Path, near: Path) -> str:
    """Return a folder as seen from the folder `near`, or from the user's home, or from the root."""
    folder, near, home = folder.resolve(), near.resolve(), Path.home().resolve()
    if folder.is_relative_to(near):
        return folder.relative_to(near).as_posix()
    if folder.is_relative_to(home) and home != Path(home.anchor):
        return f"~/{folder.relative_to(home).as_posix()}"
    together = folder.anchor == near.anchor and folder.parts[1:2] == near.parts[1:2]
    return Path(os.path.relpath(folder, near)).as_posix() if together else str(folder)


def _find_store(place: Path, fingerprint: str, near: Path, by_sums: bool) -> Store:
    """Return the store with a fingerprint, at a place or where else it may be."""
    for store in _stores_at(place, near):
        if (store.fingerprint_of_sums() if by_sums else store.fingerprint) == fingerprint:
            return store
    return check_found_store(place, near)


def _stores_at(place: Path, near: Path) -> Iterator[Store]:
    beside = (each for parent in (place.parent, near, default_scratch()) for each in sorted(parent.glob("counts-*")))
    for folder in [place, *(each for each in beside if each != place)]:
        if (folder / ABOUT).is_file():
            try:
                yield Store.open(folder)
            except ValueError:
                if folder == place:
                    raise
