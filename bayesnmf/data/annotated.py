"""Counts and names in AnnData objects, recognised by their attributes, so that anndata need not be installed."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesnmf.checks import shown


def is_annotated(x: Any) -> bool:
    """Return whether an object is an AnnData object or like one."""
    return all(hasattr(x, attribute) for attribute in ("X", "obs_names", "var_names"))


def values_of(adata: Any, name: str, layer: str | None) -> Any:
    """Return the counts: of the given layer, or of the layer "counts" if there is one, or X."""
    layers = getattr(adata, "layers", {})  # adata.raw has no layers
    if layer is not None and layer not in layers:
        there = ", ".join(repr(each) for each in layers if each is not None) or "none"
        raise ValueError(f"layer must be one of the layers of {name}: found {shown(layer)}; there are {there}")
    wanted = "counts" if layer is None and "counts" in layers else layer
    values = adata.X if wanted is None else layers[wanted]
    if values is None:
        raise ValueError(f"{name} has neither X nor layers['counts']; store the counts in one of them")
    return values.to_memory() if hasattr(values, "to_memory") else values


def labels_of(adata: Any, name: str, column: str | None) -> np.ndarray:
    """Return the names of the features, or the labels in a column of `var`, made unique.

    The second feature with a label "A" is called "A-1", the third "A-2". A feature without a label keeps its name.
    """
    if column is None:
        return np.array(adata.var_names)
    if column not in adata.var:
        there = ", ".join(repr(each) for each in adata.var) or "none"
        raise ValueError(f"feature_labels must be a column of {name}.var: found {shown(column)}; there are {there}")
    given = adata.var[column]
    labels = [str(name) if missing else str(label) for label, missing, name in
              zip(given, given.isna(), adata.var_names, strict=True)]  # fmt: skip
    return np.array(unique(labels))


def unique(labels: list[str]) -> list[str]:
    """Return labels with numbers behind those that came before."""
    seen, taken, found = dict[str, int](), set(labels), list[str]()
    for label in labels:
        number = seen.get(label, 0)
        chosen = label
        while number and (chosen := f"{label}-{number}") in taken:
            number += 1
        seen[label] = number + 1
        taken.add(chosen)
        found.append(chosen)
    return found
