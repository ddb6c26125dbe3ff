"""Take covariates of rows into the prior of the loadings."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesnmf.data.covariates.checks import check_effects, check_takes_covariates
from bayesnmf.data.covariates.reading import Covariates
from bayesnmf.priors import Priors
from bayesnmf.priors.log_linear import LogLinear
from bayesnmf.priors.pair import replace_sides


def with_covariates(priors: Priors, covariates: Covariates, rank: int, effects: Any = None) -> Priors:
    """Return the priors, which have no None left, with loadings that depend on covariates.

    Effects are in the units of the covariates, the intercept that of a loading; without any they are 0.
    """
    plain: Any = priors.loadings
    check_takes_covariates(plain)
    design, coding = covariates.standardised, covariates.coding.text
    centre = np.broadcast_to(np.asarray(plain.parameters[plain.counted], np.float64), (1, rank)).copy()
    prior = LogLinear(plain, design, np.zeros((design.shape[1], rank)), centre, len(design), coding)
    if effects is not None:
        own = check_effects(effects, prior.effects.shape)
        own[0] -= prior.intercepts
        prior = prior.with_effects(np.linalg.solve(covariates.coding.unit, own))
    return replace_sides(priors, loadings=prior)
