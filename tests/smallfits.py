"""Small fits that several test files share: made once, quick, and not converged."""

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from plain import plain_map, plain_vi

import bayesnmf
from bayesnmf import Gibbs, Priors
from bayesnmf.assessment import evidence
from bayesnmf.fitting.closed_form import fit_closed_form
from bayesnmf.priors.specification import MODELS

N, M, K = 12, 9, 3
COUNTS = pd.DataFrame(
    np.random.default_rng(0).poisson(3, (N, M)), index=[f"s{i}" for i in range(N)], columns=list("abcdefghi")
)
QUICK = plain_vi(max_iter=60, threads=1)
OPTIONS = {
    "map": plain_map(max_iter=60, threads=1),
    "vi": QUICK,
    "gibbs": Gibbs(start="random", chains=2, draws=60, warmup=100, threads=1),
}

every_model = pytest.mark.parametrize("model", MODELS)
every_method = pytest.mark.parametrize("method", OPTIONS)
quietly = pytest.mark.filterwarnings("ignore::bayesnmf.inference.status.ConvergenceWarning")


@cache
def fit(model="gamma_poisson", method="vi"):
    """Return the fit of the small counts, always the same one."""
    return bayesnmf.fit(COUNTS, model, K, method, seed=0, options=OPTIONS[method])


def parameter_fit(model="gamma_poisson"):
    """Return a fit whose components have no posterior."""
    options = replace(QUICK, priors=Priors(components="parameter"))
    return bayesnmf.fit(COUNTS, model, K, "vi", seed=0, options=options)


def plain_bounds(monkeypatch):
    """Take plain steps from a random start for the variational bound of an evidence."""

    def plain_fit(job):
        return fit_closed_form(replace(job, options=plain_vi(priors=job.options.priors, max_iter=100, threads=1)))

    monkeypatch.setattr(evidence, "closed_form_fit", plain_fit)
