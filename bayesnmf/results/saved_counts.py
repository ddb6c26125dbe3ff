"""Encode counts for a file: their numbers, or for counts on disk the folder that they are in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from scipy.sparse import csr_array

from bayesnmf.data.blocks.counts import BlockedCounts, StoredMatrix
from bayesnmf.data.blocks.store import Store
from bayesnmf.data.counts import Counts
from bayesnmf.results.saved_arrays import CSR, decode_arrays, encode_arrays
from bayesnmf.results.saved_checks import check_saved_store

EXPOSURES = ("row_exposure", "feature_exposure")


def encode_counts(counts: Counts) -> xr.Dataset:
    """Return the dataset of counts, with names and exposures."""
    names = {"row_names": counts.row_names, "feature_names": counts.feature_names}
    more = {**names, **{name: getattr(counts, name) for name in EXPOSURES}}
    if isinstance(counts, BlockedCounts):
        about = {
            "folder": str(counts.store.folder.resolve()), "fingerprint": counts.store.fingerprint,
            "nonzeros": counts.matrix.nonzeros, "dtype": counts.dtype.name,
        }  # fmt: skip
        return encode_arrays(more).assign_attrs(about)
    return encode_arrays({**{name: getattr(counts.matrix, name) for name in CSR}, **more})


def decode_counts(group: Any) -> Counts:
    """Return the counts of a dataset."""
    parts, about = decode_arrays(group), group.attrs
    names = parts["row_names"], parts["feature_names"]
    exposures: dict[str, Any] = {name: parts.get(name) for name in EXPOSURES}
    if "folder" in about:
        folder = Path(about["folder"])
        check_saved_store(folder, about["fingerprint"])
        stored = StoredMatrix(Store.open(folder), np.dtype(about["dtype"]), int(about["nonzeros"]), folder.parent)
        return BlockedCounts(stored, *names, **exposures)
    matrix = csr_array(tuple(parts[name] for name in CSR), shape=(len(names[0]), len(names[1])))
    return Counts(matrix, *names, **exposures)
