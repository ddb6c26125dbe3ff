"""A noise that somebody adds outside the package: everything that needs no ability that it lacks works with it."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from plain import plain_map, plain_vi
from scipy.special import gammaln, xlogy
from smallfits import quietly

import bayesnmf
from bayesnmf.noise.abilities import WithRates
from bayesnmf.noise.words import NOISES

pytestmark = quietly


@dataclass(frozen=True)
class ManyZeros(WithRates):
    """Zero-inflated Poisson noise: what an entry is told of its zeros is a rate of at most 1."""

    dispersion: Any = None
    by: Any = None
    word: ClassVar[str] = "many zeros"
    hides_means: ClassVar[bool] = True
    largest: ClassVar[float] = 0.999

    def thinned(self, keep):
        return self

    def in_words(self, matrices=None):
        return f"many zeros: {float(self.dispersion):.2f}"

    def log_pmf(self, counts, means, places=None, log_factorials=None):
        s = self.of_places(counts.shape, places)
        logs = np.log(1 - s) + xlogy(counts, means) - means - gammaln(counts + 1)
        return np.where(counts > 0, logs, np.log(s + (1 - s) * np.exp(-means)))

    def expected(self, means):
        return (1 - self.entry_dispersions) * means

    def variances(self, expected):
        s = self.entry_dispersions
        return expected * (1 + expected * s / (1 - s))

    def zeros(self, means):
        s = self.entry_dispersions
        return s + (1 - s) * np.exp(-means)

    def draw(self, means, rng):
        return rng.poisson(means) * (rng.random(means.shape) >= self.entry_dispersions)

    def sum_of_squares(self, loadings, components):
        means = loadings @ components
        return float(((1 - self.entry_dispersions) * (means + means**2)).sum())

    def log_prior(self, s):
        return np.log(s) + np.log1p(-s)

    def derivatives_of_prior(self, s):
        return 1 - s / (1 - s), -s / (1 - s) ** 2

    @property
    def widest(self):
        return 1.0

    def expected_rates(self, x, rho, s):
        rates = np.where(x > 0, 1.0, (1 - s) * np.exp(-rho) / (s + (1 - s) * np.exp(-rho)))
        return rates, float((rates * rho * (x == 0) + self.log_terms(x, rho, s)).sum())

    def drawn_rates(self, x, means, s, seed, first):
        p = (1 - s) * np.exp(-means) / (s + (1 - s) * np.exp(-means))
        return np.where(x > 0, 1.0, np.random.default_rng([seed, first]).random(x.shape) < p)

    def log_terms(self, x, rho, s):
        return np.where(x > 0, np.log(1 - s), np.log(s + (1 - s) * np.exp(-rho)))

    def derivatives_of_terms(self, x, rho, s):
        slope = np.where(x > 0, -1 / (1 - s), (1 - np.exp(-rho)) / (s + (1 - s) * np.exp(-rho)))
        return s * slope, s * slope - (s * slope) ** 2


RNG = np.random.default_rng(0)
N, M, K, SHARE = 60, 20, 2, 0.4
MEANS = RNG.gamma(2.0, 30.0, (N, K)) @ RNG.dirichlet(np.ones(M), K)
COUNTS = ManyZeros(SHARE).draw(MEANS, RNG)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(NOISES, "many zeros", ManyZeros())


@pytest.mark.parametrize("options", [plain_map(extrapolate=True), plain_vi(extrapolate=True)], ids=["map", "vi"])
def test_it_is_fitted_saved_loaded_drawn_checked_scored_and_printed(options, tmp_path):
    method = "map" if isinstance(options, bayesnmf.MAP) else "vi"
    fit = bayesnmf.fit(COUNTS, rank=K, method=method, seed=0, noise="many zeros", options=options)
    assert (np.diff(fit.trace) > -1e-9 * np.abs(fit.trace[-1])).all()
    assert fit.noise.dispersion == pytest.approx(SHARE, abs=0.1)
    assert "many zeros: 0." in " ".join(repr(fit).split())
    fit.save(tmp_path / "fit.nc")
    loaded = bayesnmf.load(tmp_path / "fit.nc")
    assert loaded.noise == fit.noise
    assert loaded.expected().equals(fit.expected())
    assert fit.expected()["mean"].sum() == pytest.approx(COUNTS.sum(), rel=0.05)
    if method == "vi":
        tree = fit.to_datatree(posterior_predictive=True, log_likelihood=True)
        drawn = tree["posterior_predictive"]["counts"].values
        assert (drawn == 0).mean() == pytest.approx((COUNTS == 0).mean(), abs=0.03)
        assert np.isfinite(tree["log_likelihood"]["counts"].values).all()
        assert "share of zeros" not in bayesnmf.predictive_checks(fit, 5, refits=10, seed=0).failed


def test_masked_entries_prefer_it():
    noises, options = ("poisson", "many zeros"), plain_vi(tol=1e-4)
    found = bayesnmf.select(COUNTS, ranks=[K], noise=noises, criterion="masked", seed=0, options=options)
    assert found.noise.word == "many zeros"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"method": "nuts"}, "noise='many zeros' needs method='map', 'vi' or 'gibbs': found 'nuts'"),
        ({"model": "dirichlet_poisson"}, "noise='many zeros' needs loadings with a scale"),
        ({"options": bayesnmf.VI(algorithm="minibatch")}, "noise='many zeros' needs algorithm="),
    ],
)
def test_what_it_cannot_do_is_refused(asked, words):
    with pytest.raises(ValueError, match=words):
        bayesnmf.fit(COUNTS, **{"rank": K, "noise": "many zeros", **asked})


@pytest.mark.parametrize("method", ["map", "vi", "gibbs", "nuts", "svi", "smc"])
def test_a_noise_that_gives_routines_nothing_is_not_fitted_as_poisson(method):
    class Nothing(ManyZeros):
        has_entry_rates = False

    with pytest.raises(
        ValueError, match=r"noise='many zeros' needs counts that are Poisson, or in clusters.* no method fits it"
    ):
        bayesnmf.fit(COUNTS, rank=K, method=method, noise=Nothing(0.3))
