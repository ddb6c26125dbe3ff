"""Take covariates of rows into the prior of the loadings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bayesnmf.data.covariates.checks import check_takes_covariates
from bayesnmf.data.covariates.coding import Coding
from bayesnmf.data.covariates.reading import Covariates, design_of
from bayesnmf.priors import Priors
from bayesnmf.priors.log_linear import LogLinear
from bayesnmf.priors.pair import replace_sides
from bayesnmf.types import Array


def with_covariates(priors: Priors, covariates: Covariates, rank: int) -> Priors:
    """Return the priors, which have no None left, with loadings that depend on covariates."""
    plain: Any = priors.loadings
    check_takes_covariates(plain)
    design, coding = covariates.coding.standardised(covariates.design), covariates.coding.text
    centre = np.broadcast_to(np.asarray(plain.parameters[plain.counted], np.float64), (1, rank)).copy()
    prior = LogLinear(plain, design, np.zeros((design.shape[1], rank)), centre, len(design), coding)
    return replace_sides(priors, loadings=prior)


def prior_of_rows(prior: LogLinear, covariates: Any, row_names: Array) -> LogLinear:
    """Return a fitted prior for other rows, given their covariates."""
    coding = Coding.of_text(prior.coding)
    return replace(prior, design=coding.standardised(design_of(coding, covariates, row_names)))
