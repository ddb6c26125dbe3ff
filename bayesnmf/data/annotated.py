"""Counts and names in AnnData objects, recognised by their attributes, so that anndata need not be installed."""

from __future__ import annotations

import os
import re
from typing import Any

import numpy as np
from scipy.sparse import issparse

from bayesnmf.checks import shown
from bayesnmf.data.counts import Counts
from bayesnmf.data.matrix_files import names_with_identifiers

RAW = 'pass the raw counts, such as adata.layers["counts"] or adata.raw'
WORDS = ("count", "raw", "umi")  # in names of layers that are looked at first
ROWS_LOOKED_AT = 100
SUFFIX = re.compile(r"\S\.[A-Za-z]\w*(\.gz)?/?$")


def is_annotated(x: Any) -> bool:
    """Return whether an object is an AnnData object or like one."""
    return all(hasattr(x, attribute) for attribute in ("X", "obs_names", "var_names"))


def is_lazy(x: Any) -> bool:
    """Return whether counts are not in memory: a Dask array, or an AnnData object with such or on disk."""
    if is_annotated(x):
        return bool(getattr(x, "isbacked", False)) or is_lazy(getattr(x, "X", None))
    return (hasattr(x, "dask") and not hasattr(x, "columns")) or hasattr(x, "to_memory")


def is_paths(x: Any) -> bool:
    """Return whether counts are several files, and not texts: paths, or words that end as names of files do."""
    return isinstance(x, list | tuple) and bool(x) and all(
        isinstance(each, os.PathLike) or (isinstance(each, str) and (SUFFIX.search(each) or os.path.exists(each)))
        for each in x
    )  # fmt: skip


def counts_within(x: Any, name: str) -> Any:
    """Return the counts of a data set of `bayesnmf.datasets.real`, or what is given; refuse others that have counts."""
    own = getattr(x, "counts", None)
    if not isinstance(own, Counts):
        return x
    if isinstance(x, tuple):
        return own
    raise TypeError(f"{name} must be counts themselves: found {type(x).__name__}, which has some; give its .counts")


def check_annotated(adata: Any, cure: str) -> None:
    """Refuse what is not an AnnData object into which results can be written."""
    if not is_annotated(adata) or not hasattr(adata, "obsm"):
        raise TypeError(f"adata must be an AnnData object: found {shown(adata)}; {cure}")


def values_of(adata: Any, name: str, layer: str | None) -> Any:
    """Return the counts in memory (`chosen_layer`)."""
    values = chosen_layer(adata, name, layer)
    return values.to_memory() if hasattr(values, "to_memory") else values


def chosen_layer(adata: Any, name: str, layer: str | None) -> Any:
    """Return the counts: of the given layer, or of the layer "counts" if there is one, or X."""
    layers = getattr(adata, "layers", {})  # adata.raw has no layers
    if layer is not None and layer not in layers:
        there = ", ".join(repr(each) for each in layers if each is not None) or "none"
        raise ValueError(f"layer must be one of the layers of {name}: found {shown(layer)}; there are {there}")
    wanted = _layer_read(layers, layer)
    values = adata.X if wanted is None else layers[wanted]
    if values is None:
        raise ValueError(f"{name} has neither X nor layers['counts']; store the counts in one of them")
    return values


def _layer_read(layers: Any, layer: str | None) -> str | None:
    return "counts" if layer is None and "counts" in layers else layer


def where_raw_counts_are(x: Any, layer: str | None = None) -> str:
    """Return what to pass in place of numbers that are no counts: of AnnData, the first place with whole numbers."""
    if not is_annotated(x):
        return RAW
    adata = x if hasattr(x, "layers") else getattr(x, "_adata", x)  # that of adata.raw
    layers = getattr(adata, "layers", {})
    used = _layer_read(layers, layer) if adata is x else None
    names = sorted((each for each in layers if each not in (None, used)), key=_is_named_otherwise)
    for name in names:
        if _has_whole_numbers(layers[name]):
            return f"pass the raw counts: layers[{name!r}] has them (layer={name!r})"
    if adata is x and _has_whole_numbers(getattr(getattr(x, "raw", None), "X", None)):
        return "pass the raw counts: .raw has them (adata.raw)"
    if (used is not None or adata is not x) and _has_whole_numbers(adata.X):
        return "pass the raw counts: X has them (adata.X)"
    return "pass the raw counts, which are in none of its layers and not in .raw"


def _is_named_otherwise(layer: str) -> bool:
    return not any(word in layer.lower() for word in WORDS)


def _has_whole_numbers(values: Any) -> bool:
    """Return whether the first rows are whole numbers, none negative and some above 1, as those of a mask are not."""
    if values is None:
        return False
    block: Any = values[:ROWS_LOOKED_AT]
    block = block.compute() if hasattr(block, "compute") else block
    data = np.asarray(block.tocsr().data if issparse(block) else block)  # type: ignore[attr-defined]
    return bool(data.size and data.min() >= 0 and data.max() > 1 and np.array_equal(data, np.floor(data)))


def labels_of(adata: Any, name: str, column: str | None) -> np.ndarray:
    """Return the names of the features, or the labels in a column of `var`.

    Labels that repeat are followed by the names of the features; a feature without a label keeps its name.
    """
    if column is None:
        return np.array(adata.var_names)
    if column not in adata.var:
        there = ", ".join(repr(each) for each in adata.var) or "none"
        raise ValueError(f"feature_labels must be a column of {name}.var: found {shown(column)}; there are {there}")
    given = adata.var[column]
    own = [str(each) for each in adata.var_names]
    labels = [one if missing else str(each) for each, missing, one in zip(given, given.isna(), own, strict=True)]
    return names_with_identifiers(labels, own)
