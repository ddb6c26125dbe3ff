"""The prior of new rows of a fit with covariates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bayesnmf.data.covariates.checks import check_given, check_no_covariates
from bayesnmf.data.covariates.coding import Coding
from bayesnmf.data.covariates.reading import design_of
from bayesnmf.priors.checks import check_one_prior_for_all_rows
from bayesnmf.priors.log_linear import EFFECTS, SHAPES
from bayesnmf.priors.pair import replace_sides
from bayesnmf.results.record import FitRecord
from bayesnmf.types import Array


def with_covariates_of_rows[F: FitRecord](fit: F, covariates: Any, row_names: Array) -> F:
    """Return the fit with the prior of new rows, which depends on their covariates where the fit had some."""
    prior: Any = fit.priors.loadings
    if not prior.has_effects:
        check_no_covariates(covariates)
        check_one_prior_for_all_rows(prior)
        return fit
    check_given(covariates, "transform")
    coding = Coding.of_text(prior.coding)
    own = replace(prior, design=design_of(coding, covariates, row_names))
    return replace(fit, priors=replace_sides(fit.priors, loadings=own))


def prior_of_draw(prior: Any, statistics: dict[str, Array] | None, place: int) -> Any:
    """Return the prior of loadings with the effects of one draw among those of all chains."""
    if not prior.has_effects or statistics is None:
        return prior
    effects, shapes = statistics[EFFECTS].reshape(-1, *prior.effects.shape), statistics.get(SHAPES)
    shape = None if shapes is None else shapes.reshape(-1, 1, prior.effects.shape[1])[place]
    return prior.with_effects(effects[place], shape)
