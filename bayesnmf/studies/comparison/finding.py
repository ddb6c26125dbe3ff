"""What a comparison has found, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

SAME, NARROW, WIDE = 0.95, 0.85, 0.95  # a cosine of the same component; shares held by an interval of 90 %


def finding(table: pd.DataFrame, reference: str) -> list[str]:
    """Return what the table says about components, intervals and other starts, a sentence each."""
    others = table.drop(index=reference)
    sentences = [_components(others, reference), _intervals(others, reference), _starts(table)]
    return [sentence for sentence in sentences if sentence]


def _components(others: pd.DataFrame, reference: str) -> str:
    """Return which methods have found the components of the reference."""
    worst = _column(others, "cosine_min")
    if not len(worst):
        return ""
    same, apart = worst[worst >= SAME], worst[worst < SAME]
    found = ""
    if len(same):
        found = f"{_listed(same)} found the components of {reference} (cosine at least {_cosine(same.min())})"
    least = ", ".join(f"{_cosine(value)} for {name}" for name, value in apart.items())
    lost = f"{_listed(apart)} did not find all components of {reference} (least cosine {least})" if len(apart) else ""
    return f"{'; '.join(part for part in (found, lost) if part)}."


def _intervals(others: pd.DataFrame, reference: str) -> str:
    """Return the share of the draws of the reference inside the intervals of each other method."""
    held, widened = _column(others, "held"), _column(others, "held_response")
    parts = []
    for name, share in held.items():
        verdict = "too narrow" if share < NARROW else "too wide" if share > WIDE else "about right"
        more = f", {widened.loc[str(name)]:.0%} by linear response" if name in widened else ""
        parts.append(f"those of {name} hold {share:.0%}{more} ({verdict})")
    if not parts:
        return ""
    return f"Of the draws of {reference}, 90 % intervals should hold 90 %: {'; '.join(parts)}."


def _starts(table: pd.DataFrame) -> str:
    """Return whether other starts have led to other components."""
    starts = _column(table, "cosine_other_start")
    if not len(starts):
        return ""
    if starts.min() >= SAME:
        return f"Other starts led to the same components (cosine at least {_cosine(starts.min())})."
    return (
        f"Other starts led to other components (cosine down to {_cosine(starts.min())}): all this is about one of "
        "several factorisations, which bayesnmf.modes counts."
    )


def _column(table: pd.DataFrame, name: str) -> pd.Series:
    """Return the known values of a measure."""
    import pandas as pd

    found: pd.Series = table[name] if name in table else pd.Series(dtype=float)
    return found[np.isfinite(found.astype(float))]


def _cosine(value: float) -> str:
    """Return a cosine rounded down, so that one below a limit is never shown as the limit."""
    return f"{np.floor(1000 * value) / 1000:.3f}"


def _listed(values: pd.Series) -> str:
    names = [str(name) for name in values.index]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
