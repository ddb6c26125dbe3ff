"""Contrasts between the levels of a covariate of a fit, adjusted for its other covariates.

Every row is given each level in turn, and keeps its other covariates. The average of its linear predictors, of draws
of the effects (`bayesnmf.results.effects`), is the log scale of loadings. The average of its mean shares, from a
regression of the shares of rows (`bayesnmf.results.mean_shares`), is the scale of shares: it is not read off the
effects, as a prior of another shape than that of the loadings has other means than they have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bayesnmf.assessment.checks import check_contrast_weights
from bayesnmf.data.covariates.checks import check_is_covariate
from bayesnmf.data.covariates.coding import Coding, label_of, scales_of
from bayesnmf.data.covariates.design import design_of, frame_of_design
from bayesnmf.results.effects import (
    SCALE_OF_SHARES,
    SCALES,
    EffectsDrawn,
    drawn_effects,
    mean_shares_of,
    prior_with_effects,
    told_of_mean_shares,
)
from bayesnmf.results.record import FitRecord
from bayesnmf.text import with_last
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd


def covariate_contrasts(
    fit: FitRecord, name: str, contrasts: Any, tail: float, chosen: tuple[int, int]
) -> pd.DataFrame:
    """Return contrasts between levels of a covariate, or a rise of a number by its standard deviation.

    Parameters
    ----------
    fit : Fit
        Fit with covariates.
    name : str
        Covariate.
    contrasts : mapping or None
        Weights of levels; by default every other level minus the first.
    tail : float
        Probability below, and above, the intervals.
    chosen : tuple of int
        Most draws of the effects to read, and the seed that chooses them.
    """
    import pandas as pd

    prior = prior_with_effects(fit)
    coding = Coding.of_text(prior.coding)
    check_is_covariate(name, coding.columns)
    frame = frame_of_design(coding, prior.design, fit.row_names)
    levels = _levels(coding, name, frame)
    weights = check_contrast_weights(contrasts or _plain(levels, name in coding.levels), list(levels), label_of)
    drawn = _chosen(drawn_effects(fit), *chosen)
    designs = [design_of(coding, frame.assign(**{name: level}), fit.row_names) for level in levels.values()]
    effects = np.stack([np.einsum("p,spk->sk", each.mean(axis=0), drawn.standardised) for each in designs], axis=1)
    shares = mean_shares_of(fit, *chosen)
    parts = []
    for label, weight in weights.items():
        used = np.flatnonzero(weight)
        at, most = ([designs[level] for level in used], weight[used]), np.abs(weight).sum() / 2
        difference = shares.contrast(*at)
        columns = _columns("difference", difference.limits(tail, -most, most))
        columns |= _columns("lfc", shares.contrast(*at, logarithms=True).limits(tail, -np.inf, np.inf))
        moved = np.einsum("l,slk->sk", weight, effects)
        columns |= _columns("effect", (moved.mean(axis=0), *np.quantile(moved, [tail, 1 - tail], axis=0)))
        columns["lfsr"] = difference.false_sign_rate()
        columns["effect_lfsr"] = np.minimum((moved >= 0).mean(axis=0), (moved <= 0).mean(axis=0))
        parts.append(pd.DataFrame({"contrast": label, "component": fit.component_labels, **columns}))
    table = with_last(pd.concat(parts, ignore_index=True), ["difference", "difference_low", "difference_high"])
    told = told_of_mean_shares(fit)
    scale = f"difference, lfc, lfsr: {SCALE_OF_SHARES}; effect, effect_lfsr: {SCALES[prior.support]}"
    table.attrs |= {"intervals": told["intervals"], "scale": scale}
    if drawn.source != told["intervals"]:
        table.attrs["intervals"] += f"; of effects: {drawn.source.removeprefix('intervals: ')}"
    table.attrs["cautions"] = list(dict.fromkeys([*told["cautions"], *drawn.cautions]))
    return table


def _columns(name: str, values: tuple[Array, Array, Array]) -> dict[str, Array]:
    return dict(zip((name, f"{name}_low", f"{name}_high"), values, strict=True))


def _levels(coding: Coding, name: str, frame: Any) -> dict[str, Any]:
    """Return what the covariate is set to in each of the cases that are compared."""
    if name in coding.levels:
        return {level: level for level in coding.levels[name]}
    sd = scales_of(np.column_stack([np.ones(len(frame)), frame[name]]))[1][1]
    return {name: frame[name], f"{name} + {sd:.3g}": frame[name] + sd}


def _plain(levels: dict[str, Any], categories: bool) -> dict[str, dict[str, float]]:
    first, *others = levels
    return {f"{level} - {first}" if categories else level: {level: 1.0, first: -1.0} for level in others}


def _chosen(drawn: EffectsDrawn, draws: int, seed: int) -> EffectsDrawn:
    """Return at most so many of the draws."""
    if draws >= len(drawn.draws):
        return drawn
    kept = np.random.default_rng(seed).choice(len(drawn.draws), draws, replace=False)
    return drawn._replace(standardised=drawn.standardised[kept])
