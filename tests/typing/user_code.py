"""Code as users write it, whose types `tests/options/test_editors.py` and `.ci/wheel` check; it is never run."""

from typing import assert_type

import numpy as np
import pandas as pd

import bayesnmf
from bayesnmf import Dirichlet, Gamma, Gibbs, Priors
from bayesnmf.results import Fit, Selection

counts = pd.DataFrame(np.ones((4, 3)), index=list("abcd"))

found = bayesnmf.fit(counts, "gamma_poisson", 2, "gibbs", seed=0, options=Gibbs(draws=100), noise="nb2")
assert_type(found, Fit)
assert_type(found.rank, int)
assert_type(found.summary(rows=["a"]), pd.DataFrame)
assert_type(bayesnmf.markers(found), pd.DataFrame)
priors = Priors(loadings=Gamma(1.0, 0.1), components=Dirichlet(0.5))
method = str(input())  # a word that is not known beforehand, as of a method that was added
assert_type(bayesnmf.fit(counts, rank=2, method=method, options=bayesnmf.VI(priors=priors)), bayesnmf.Fit)

selection = bayesnmf.select(counts, ranks=range(2, 5), criterion="masked")
assert_type(selection, Selection)
if selection.best is not None:
    assert_type(bayesnmf.fit(counts, selection.best.model, selection.best.rank), bayesnmf.Fit)
assert_type(bayesnmf.modes(counts, rank=2).best, bayesnmf.Fit)
assert_type(bayesnmf.load("fit.nc").project(counts), bayesnmf.Fit)
assert_type(bayesnmf.compare(counts, methods=["map", "vi"]).table, pd.DataFrame)
assert_type(bayesnmf.predictive_checks(found), bayesnmf.PredictiveChecks)
bayesnmf.fit(counts, criterion="masked")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
