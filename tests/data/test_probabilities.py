"""Probabilities and variances of counts of given means, against SciPy."""

import numpy as np
import pytest
from scipy.stats import nbinom, poisson

from bayesnmf import NegativeBinomial
from bayesnmf.noise.poisson import POISSON

RNG = np.random.default_rng(0)
MEANS = RNG.gamma(0.5, 20, (7, 5)) + 1e-3
COUNTS = RNG.poisson(MEANS).astype(float)


@pytest.mark.parametrize("by", [None, "row", "feature"])
@pytest.mark.parametrize("variance", ["linear", "quadratic"])
def test_they_are_those_of_scipy(variance, by):
    own = {None: 0.7, "row": RNG.gamma(1, 1, 9), "feature": RNG.gamma(1, 1, 8)}[by]
    rows, features = np.arange(2, 9), np.arange(0, 5)
    noise = NegativeBinomial(variance, own, by).of_rows(rows).of_features(features)
    s = own if by is None else own[rows][:, None] if by == "row" else own[features]
    r = MEANS / s if variance == "linear" else 1 / s
    p = r / (r + MEANS)
    np.testing.assert_allclose(noise.log_pmf(COUNTS, MEANS), nbinom.logpmf(COUNTS, r, p), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(noise.variances(MEANS), nbinom.var(r, p), rtol=1e-12)


@pytest.mark.parametrize("variance", ["linear", "quadratic"])
def test_no_dispersion_is_poisson(variance):
    right = poisson.logpmf(COUNTS, MEANS)
    np.testing.assert_allclose(POISSON.log_pmf(COUNTS, MEANS), right, rtol=1e-10)
    np.testing.assert_allclose(NegativeBinomial(variance, 0).log_pmf(COUNTS, MEANS), right, rtol=1e-6)
    np.testing.assert_array_equal(POISSON.variances(MEANS), MEANS)
