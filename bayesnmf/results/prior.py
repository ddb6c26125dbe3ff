"""The prior of a fit: log densities of its draws, and draws from it."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesnmf.noise.abilities import Dispersed
from bayesnmf.options.rules import PROPER_COMPONENTS, PROPER_LOADINGS, Request
from bayesnmf.priors.specification import PARAMETER
from bayesnmf.priors.values import attach_scale, separate_scale
from bayesnmf.results.checks import check_prior_without_terms
from bayesnmf.results.draws import drawn_dispersions
from bayesnmf.results.estimates import Draws
from bayesnmf.results.record import DISPERSION, FitRecord
from bayesnmf.types import Array


def log_priors(fit: FitRecord, values: Draws, what: str = "log_prior") -> dict[str, Array]:
    """Return the log prior densities of draws of all rows and features, (chains, draws), by side, in nats.

    That of loadings includes their scale. Rates that entries share are summed out. Components that are parameters have
    none. That of drawn dispersions is of their logarithms, up to a constant.
    """
    check_prior_without_terms(fit, what)
    number = values.chains, values.draws
    found = {side: np.empty(number) for side, prior in vars(fit.priors).items() if prior != PARAMETER}
    for at in np.ndindex(number):
        scale = None if values.scale is None else values.scale[at].astype(np.float64)
        both = values.loadings[at], values.components[at]
        loadings, components = (np.ascontiguousarray(side, np.float64) for side in both)  # sums have one order
        value = {"loadings": attach_scale(loadings, scale), "components": components}
        for side, densities in found.items():
            densities[at] = getattr(fit.priors, side).log_density(value[side])
    drawn = drawn_dispersions(fit, number, None)
    if drawn is not None and isinstance(fit.noise, Dispersed):
        found[DISPERSION] = fit.noise.log_prior(drawn).reshape(*number, -1).sum(axis=-1)
    return found


def draw_priors(fit: FitRecord, number: tuple[int, int], seed: int) -> Draws:
    """Return independent draws (chains, draws, …) of all rows and features from the prior of a fit."""
    check_prior_without_terms(fit, "prior")
    for need in (PROPER_LOADINGS, PROPER_COMPONENTS):
        need.check(Request(priors=fit.priors), "prior needs")
    (n, m), priors, rng = fit.counts.shape, fit.priors, np.random.default_rng([seed, 2])
    value: Any = priors.loadings.broadcast((n, fit.rank)).draw(rng, number)  # type: ignore[union-attr]
    components: Any = priors.components.broadcast((fit.rank, m)).draw(rng, number)  # type: ignore[union-attr]
    loadings, scale = separate_scale(value)
    return Draws(loadings, components, scale)
