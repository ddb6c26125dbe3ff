"""Contrasts between the levels of a covariate of a fit, adjusted for its other covariates.

Every row is given each level in turn, and keeps its other covariates. The average of its linear predictors is the log
scale of loadings, and that of its expected shares the scale of shares: both are read from the same draws of the effects
(`bayesnmf.results.effects`), and shares by prediction cannot leave [0, 1].
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bayesnmf.assessment.checks import check_contrast_weights
from bayesnmf.data.covariates.checks import check_is_covariate
from bayesnmf.data.covariates.coding import Coding
from bayesnmf.data.covariates.reading import design_of, frame_of_design
from bayesnmf.results.effects import SCALES, EffectsDrawn, drawn_effects, expected_shares, prior_with_effects
from bayesnmf.results.record import FitRecord
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
    weights = check_contrast_weights(contrasts or _plain(levels, name in coding.levels), list(levels))
    drawn = _chosen(drawn_effects(fit), *chosen)
    designs = [design_of(coding, frame.assign(**{name: level}), fit.row_names) for level in levels.values()]
    pairs = zip(*(_means(drawn.draws, design) for design in designs), strict=True)
    shares, logs = (np.stack(each, axis=1) for each in pairs)
    values = {"difference": shares, "lfc": np.log2(shares), "effect": logs}
    parts = [
        pd.DataFrame({"contrast": label, "component": fit.component_labels, **_described(values, weight, tail)})
        for label, weight in weights.items()
    ]
    table = pd.concat(parts, ignore_index=True)
    scale = f"difference, lfc: expected shares, by prediction; effect, lfsr: {SCALES[prior.support]}"
    table.attrs |= {"intervals": drawn.source, "cautions": drawn.cautions, "scale": scale}
    return table


def _levels(coding: Coding, name: str, frame: Any) -> dict[str, Any]:
    """Return what the covariate is set to in each of the cases that are compared."""
    if name in coding.levels:
        return {level: level for level in coding.levels[name]}
    sd = float(frame[name].std(ddof=0))
    return {name: frame[name], f"{name} + {sd:.3g}": frame[name] + sd}


def _plain(levels: dict[str, Any], categories: bool) -> dict[str, dict[str, float]]:
    first, *others = levels
    return {f"{level} - {first}" if categories else level: {level: 1.0, first: -1.0} for level in others}


def _described(values: dict[str, Array], weight: Array, tail: float) -> dict[str, Array]:
    """Return the columns of one contrast, (K,) each, given draws of what is compared, (draws, levels, K)."""
    columns: dict[str, Array] = {}
    for column, value in values.items():
        found = np.einsum("l,slk->sk", weight, value)
        low, high = np.quantile(found, [tail, 1 - tail], axis=0)
        columns |= {column: found.mean(axis=0), f"{column}_low": low, f"{column}_high": high}
    return columns | {"lfsr": np.minimum((found >= 0).mean(axis=0), (found <= 0).mean(axis=0))}


def _chosen(drawn: EffectsDrawn, draws: int, seed: int) -> EffectsDrawn:
    """Return at most so many of the draws."""
    if draws >= len(drawn.draws):
        return drawn
    return drawn._replace(draws=drawn.draws[np.random.default_rng(seed).choice(len(drawn.draws), draws, replace=False)])


def _means(effects: Array, design: Array) -> tuple[Array, Array]:
    """Return means over rows of expected shares and of linear predictors, (draws, K) each."""
    shares = np.stack([expected_shares(design @ each).mean(axis=0) for each in effects])
    return shares, np.einsum("p,spk->sk", design.mean(axis=0), effects)
