"""How far known components have moved that a prior lets move: a table, and a caution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bayesnmf.priors.specification import stated_components
from bayesnmf.priors.values import rows_to_shares
from bayesnmf.results.record import FitRecord
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd

FAR_MOVED = 0.9  # cosine of a component that has moved, below which it is told
NAMED = 5  # components that a caution names


def table_of_moved(known: Array, components: Array, names: Array, strength: float) -> pd.DataFrame:
    """Return a row for each known component, (K, m): the cosine between it and where it is now, and the strength."""
    import pandas as pd

    lengths = np.linalg.norm(known, axis=1) * np.linalg.norm(components, axis=1)
    cosine = (known * components).sum(axis=1) / np.maximum(lengths, 1e-300)
    return pd.DataFrame({"cosine": cosine, "strength": strength}, index=names)


def moved_of(fit: FitRecord) -> pd.DataFrame | None:
    """Return how far the known components of a fit have moved; None if they stay, or there are none."""
    prior: Any = stated_components(fit.priors.components)
    return table_of_moved(*known_and_moved(fit), prior.strength) if hasattr(prior, "strength") else None


def known_and_moved(fit: FitRecord) -> tuple[Array, Array, Array]:
    """Return known components of a fit, these as they are now, both with sums of 1, and their names."""
    known, at = stated_components(fit.priors.components).given_rows
    now = np.asarray(fit.components, np.float64)[at]
    return known, rows_to_shares(now, now.sum(axis=1)), np.array(fit.component_titles, dtype=object)[at]


def moved_in_words(moved: pd.DataFrame) -> str:
    """Return which known component has moved farthest."""
    return (
        f"known components have moved, least alike is {moved['cosine'].idxmin()} (cosine {moved['cosine'].min():.3f}); "
        f"each weighs {moved['strength'].iloc[0]:,.0f} counts"
    )


def caution_of_moved(moved: pd.DataFrame | None, used: Array) -> str:
    """Return which components that samples have are hardly the known ones any more; "" if there are none."""
    if moved is None:
        return ""
    far = moved[used & (moved["cosine"] < FAR_MOVED).to_numpy()].sort_values("cosine")
    if not len(far):
        return ""
    listed = ", ".join(f"{name} ({cosine:.2f})" for name, cosine in far["cosine"].iloc[:NAMED].items())
    return (
        f"components moved far from the known ones ({listed} is the cosine between them): their names may mean others; "
        "give a larger drift=, and see .moved"
    )
