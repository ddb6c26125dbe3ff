"""What a comparison has found, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bayesnmf.results.mixing import ESS_LIMIT, R_HAT_LIMIT

if TYPE_CHECKING:
    import pandas as pd

SAME, NARROW, WIDE = 0.95, 0.85, 0.95  # a cosine of the same component; shares held by an interval of 90 %
HELD_OUT = {"thinned": "held-out counts", "withheld": "new samples"}
SURE = 2  # standard errors by which a method must be behind the best


def finding(table: pd.DataFrame, reference: str) -> list[str]:
    """Return what the table says about components, intervals, chains, predictions and other starts, a sentence each."""
    others = table.drop(index=reference)
    of_reference = [_components(others, reference), _intervals(others, reference)]
    sentences = [*of_reference, _chains(table)]
    sentences += [_predictions(table, kind, what) for kind, what in HELD_OUT.items()] + [_starts(table)]
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


def _chains(table: pd.DataFrame) -> str:
    """Return whether the chains have mixed."""
    r_hats, sizes = _column(table, "max_r_hat"), _column(table, "min_ess")
    if not len(r_hats):
        return ""
    figures = f"R-hat at most {r_hats.max():.3f}, effective sample size at least {sizes.min():.0f}"
    if r_hats.max() <= R_HAT_LIMIT and sizes.min() >= ESS_LIMIT:
        return f"The chains of {_listed(r_hats)} have mixed ({figures})."
    return f"Not all chains have mixed ({figures}): what is said of their intervals is provisional."


def _predictions(table: pd.DataFrame, kind: str, what: str) -> str:
    """Return which method predicts held-out counts best, and whether others are as good as far as can be told."""
    behind = _column(table, f"heldout_{kind}_behind").sort_values(kind="stable")
    if len(behind) < 2:
        return ""
    best: Any = behind.index[0]
    se: Any = table[f"heldout_{kind}_behind_se"]
    told = ", ".join(f"{name} {value:.3f} ± {se[name]:.3f}" for name, value in behind.iloc[1:].items())
    alike = behind.iloc[1:][~(behind.iloc[1:] > SURE * se[behind.index[1:]])]
    unsure = f", but {_listed(alike)} within two standard errors as well" if len(alike) else ""
    return f"{best} predicts {what} best{unsure}; behind it, in nats for each count: {told}."


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
