"""Results that are the same to the bit: what is saved and loaded, and what a checkpoint goes on to."""

from dataclasses import fields, is_dataclass

import numpy as np
import pandas as pd
import xarray as xr
from anndata import AnnData
from scipy.sparse import issparse

from bayesnmf.results.codec import CSR


def same(a, b):
    """Equal in type, bits and order in memory, all the way down."""
    if is_dataclass(a):
        return type(a) is type(b) and all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    if issparse(a):
        return type(a) is type(b) and all(same(getattr(a, n), getattr(b, n)) for n in CSR)
    if isinstance(a, pd.DataFrame):
        return type(a) is type(b) and all(map(same, *map(parts_of_frame, (a, b))))
    if isinstance(a, xr.DataTree):
        return a.identical(b)
    if isinstance(a, AnnData):
        return same(a.to_df(), b.to_df()) and all(
            same(dict(getattr(a, part)), dict(getattr(b, part))) for part in ("obsm", "varm", "uns")
        )
    if isinstance(a, dict):
        return type(a) is type(b) and list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, np.ndarray):
        kinds = (a.dtype, a.shape) == (b.dtype, b.shape)
        return kinds and (a.tolist() == b.tolist() if a.dtype.kind == "O" else a.tobytes() == b.tobytes())
    if type(a).__module__.startswith("jax"):
        return same(np.asarray(a), np.asarray(b))
    if isinstance(a, (tuple, list)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and (a == b or (a != a and b != b))


def parts_of_frame(frame):
    """Return the values, names and attributes of a frame."""
    columns = [frame.iloc[:, at].to_numpy() for at in range(frame.shape[1])]
    return [columns, frame.index.to_numpy(), frame.columns.to_numpy(), frame.index.names, dict(frame.attrs)]
