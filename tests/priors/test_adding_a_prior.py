"""A prior is added in one file, outside the package: a class of what `Distribution` asks, and a name in `FAMILIES`."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy.special import kve
from scipy.stats import geninvgauss, kstest
from smallfits import COUNTS, K, quietly

import bayesnmf
from bayesnmf import MAP, NUTS, SMC, SVI, VI, Dirichlet, Gamma, Gibbs, Priors, plots
from bayesnmf.priors.distribution import Distribution, Draws, MeanField, plain_moments
from bayesnmf.priors.families import FAMILIES


@dataclass(frozen=True, eq=False)
class InverseGaussian(Distribution, MeanField, Draws):
    """Generalised inverse Gaussian, ∝ x^(order − 1) exp(−(rate x + pole / x) / 2): conjugate, and never 0."""

    order: Any
    rate: Any
    pole: Any

    support = "positive"
    counted = "order"
    flat, proper, smallest_shape = False, True, np.inf

    @property
    def _root(self):
        return np.sqrt(np.asarray(self.rate) * self.pole)

    @property
    def _unit(self):
        return np.sqrt(np.asarray(self.pole) / self.rate)

    def _log_bessel(self, more=0.0):
        return np.log(kve(np.asarray(self.order) + more, self._root)) - self._root

    def conditional(self, total, exposure, *, reuse=False):
        parameters = self.order + total, self.rate + 2 * np.asarray(exposure), self.pole
        return InverseGaussian(*(np.atleast_2d(each).astype(total.dtype) for each in parameters))

    def mode(self, total=0.0, exposure=0.0, previous=None, *, reuse=False):
        peak, rate = self.order - 1 + total, self.rate + 2 * np.asarray(exposure)
        return (peak + np.sqrt(peak**2 + rate * self.pole)) / rate

    def balance(self, value, total, exposure, less=1.0):
        return self.rate / 2 + exposure, self.order - less + self.pole / (2 * value)

    def mean(self):
        return self._unit * np.exp(self._log_bessel(1) - self._log_bessel())

    def variance(self):
        return self._unit**2 * np.exp(self._log_bessel(2) - self._log_bessel()) - self.mean() ** 2

    def expected_log(self):
        step = 1e-4
        return np.log(self._unit) + (self._log_bessel(step) - self._log_bessel(-step)) / (2 * step)

    def quantiles(self, at, levels):
        order, root, unit = np.broadcast_arrays(self.order, self._root, self._unit)
        return geninvgauss.ppf(levels[:, None, None], order[at], root[at], scale=unit[at])

    def draw(self, rng, draws=(), threads=1):
        out = np.zeros(draws + np.broadcast_shapes(np.shape(self.order), np.shape(self.rate)))
        parameters = self.order, 2 / np.asarray(self.rate), self.pole
        order, scale, pole = (np.broadcast_to(each, out.shape) for each in parameters)
        while (left := out == 0).any():  # draws from a Gamma, accepted with the probability of its pole
            drawn = rng.gamma(order[left], scale[left])
            out[left] = np.where(rng.random(drawn.shape) < np.exp(-pole[left] / (2 * drawn)), drawn, 0)
        return out

    def _log_normaliser(self):
        return np.log(2.0) + self._log_bessel() + np.asarray(self.order) * np.log(self._unit)

    def log_density(self, value):
        kernel = (self.order - 1) * np.log(value) - (self.rate * value + self.pole / value) / 2
        return float((kernel - self._log_normaliser()).sum())

    def moments(self, prior, component_axis, threads=None):
        return plain_moments(self, prior, component_axis)

    def kl(self, prior):
        tilt = (np.asarray(self.order) - prior.order) * self.expected_log()
        tilt = tilt - (np.asarray(self.rate) - prior.rate) / 2 * self.mean()
        return float((tilt - self._log_normaliser() + prior._log_normaliser()).sum())


PRIOR = InverseGaussian(1.5, 0.4, 0.8)
PRIORS = Priors(loadings=PRIOR, components=Dirichlet(1.2))
OPTIONS = {
    "map": MAP(priors=PRIORS, start="svd"),
    "vi": VI(priors=PRIORS, start="svd"),
    "gibbs": Gibbs(priors=PRIORS, start="random", chains=2, draws=100, warmup=50),
}
FEW = Gibbs(priors=PRIORS, start="random", chains=2, draws=10, warmup=10)


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    """Add the family."""
    monkeypatch.setitem(FAMILIES, "InverseGaussian", InverseGaussian)


@cache
def fit_by(method, options=None):
    return bayesnmf.fit(COUNTS, rank=K, method=method, seed=0, options=options or OPTIONS[method])


def test_the_family_is_what_it_says():
    """Mean, variance, E log and density against SciPy's distribution, and the conditional against Bayes' theorem."""
    same = geninvgauss(PRIOR.order, PRIOR._root, scale=PRIOR._unit)
    assert PRIOR.mean() == pytest.approx(same.mean(), rel=1e-9)
    assert PRIOR.variance() == pytest.approx(same.var(), rel=1e-7)
    assert PRIOR.expected_log() == pytest.approx(same.expect(np.log), rel=1e-6)
    x = np.array([0.3, 2.0])
    assert PRIOR.log_density(x) == pytest.approx(same.logpdf(x).sum(), rel=1e-9)
    after = PRIOR.conditional(np.array(3.0), np.array(0.7))
    drawn = PRIOR.draw(np.random.default_rng(0), (4000,))
    assert kstest(drawn, same.cdf).pvalue > 1e-3
    odds = [q.log_density(x[:1]) - q.log_density(x[1:]) for q in (after, PRIOR)]
    assert odds[0] - odds[1] == pytest.approx(3 * np.log(x[0] / x[1]) - 0.7 * (x[0] - x[1]), rel=1e-9)


def test_the_bound_never_falls_and_vi_converges():
    fitted = fit_by("vi")
    assert fitted.status.converged
    assert np.all(np.diff(fitted.trace) >= -1e-7 * abs(fitted.trace[-1]))
    assert bayesnmf.elbo_augmented(fitted) == pytest.approx(fitted.trace[-1], rel=1e-8)


def test_map_ends_at_an_optimum():
    """No loading, multiplied by 0.99 or 1.01, has a higher log joint."""
    fitted = fit_by("map")
    assert fitted.status.converged
    assert fitted.options.algorithm == "em"  # coordinate descent does not know the family

    def log_joint(loadings):
        means, counts = loadings @ fitted.components, fitted.counts.matrix.toarray()
        return (counts * np.log(means) - means).sum() + PRIOR.log_density(loadings)

    for by in (0.99, 1.01):
        for at in ((0, 0), (3, 1)):
            moved = fitted.loadings.copy()
            moved[at] *= by
            assert log_joint(moved) < log_joint(fitted.loadings)


@quietly  # so few draws of the components have not mixed
def test_gibbs_and_vi_agree_on_the_fitted_means():
    """Posterior means of the row totals: within 4 % of the largest, of 200 draws. A rate halved moves them by 10 %."""
    by_vi, by_gibbs = fit_by("vi"), fit_by("gibbs")
    totals = [(f.expected_loadings @ f.components).sum(axis=1) for f in (by_vi, by_gibbs)]
    np.testing.assert_allclose(*totals, atol=0.04 * max(totals[0]))


@quietly
@pytest.mark.parametrize("method", OPTIONS)
def test_fits_are_saved_transform_and_are_drawn(method, tmp_path):
    fitted = fit_by(method, FEW if method == "gibbs" else None)
    fitted.save(tmp_path / "fit.nc")
    again = bayesnmf.load(tmp_path / "fit.nc")
    assert isinstance(again.priors.loadings, InverseGaussian)
    np.testing.assert_array_equal(again.components, fitted.components)
    np.testing.assert_array_equal(again.transform(COUNTS), fitted.transform(COUNTS))
    plots.components({method: fitted})
    plots.loadings_intervals({method: fitted}, list(COUNTS.index[:2]))
    assert len(bayesnmf.predictive_checks(fitted, draws=20).table) == 6
    plt.close("all")


def test_transform_of_the_fitted_rows_gives_their_loadings():
    """Rows settle by whole updates, where the family has no compiled loop, each by itself."""
    fitted = fit_by("vi")
    np.testing.assert_allclose(fitted.transform(COUNTS), fitted.loadings, rtol=2e-3)
    np.testing.assert_allclose(fitted.transform(COUNTS.iloc[:2]), fitted.transform(COUNTS)[:2], rtol=1e-12)


def test_it_may_stand_on_both_sides():
    priors = Priors(PRIOR, InverseGaussian(1.0, 1.0, 0.1))
    fitted = fit_by("vi", options=VI(priors=priors, max_iter=50, tol=0, start="random", extrapolate=False))
    assert np.all(np.diff(fitted.trace) > -1e-6)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("nuts", NUTS(priors=PRIORS), "method='nuts' needs a NumPyro program"),
        ("svi", SVI(priors=PRIORS), "method='svi' needs a NumPyro program"),
        ("map", MAP(priors=PRIORS, algorithm="scd"), "algorithm='scd' needs modes that coordinate descent can find"),
        ("map", MAP(priors=PRIORS, basis="log"), "the mode in the log basis needs the mean as the mode"),
        ("vi", VI(priors=PRIORS, algorithm="gradient"), "algorithm='gradient' needs gradients of the ELBO"),
        ("vi", VI(priors=PRIORS, algorithm="minibatch"), "algorithm='minibatch' needs sums of features"),
        ("vi", VI(priors=PRIORS, learn=("loadings",)), "learn='loadings' needs hyperparameters that can be learned"),
        ("gibbs", Gibbs(priors=PRIORS, collapsed=True), "collapsed Gibbs needs allocations whose factors integrate"),
    ],
)
def test_what_the_family_lacks_is_refused_by_name(method, options, message):
    with pytest.raises(ValueError, match=f"{message}.*found InverseGaussian in priors.loadings, which has none; use"):
        fit_by(method, options=options)


class Bare(InverseGaussian):
    """The same family, of which only modes are known."""

    optional = frozenset()


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("vi", VI, "method='vi' needs conditionals with moments and divergences"),
        ("gibbs", Gibbs, "method='gibbs' needs conditionals that can be drawn from"),
        ("smc", SMC, "method='smc' needs densities of single entries"),
    ],
)
def test_a_family_of_modes_alone_is_refused_at_the_door(method, options, message, monkeypatch):
    monkeypatch.setitem(FAMILIES, "Bare", Bare)
    priors = Priors(Bare(1.5, 0.4, 0.8), Dirichlet(1.2))
    assert bayesnmf.fit(COUNTS, rank=K, method="map", options=MAP(priors=priors)).status.converged
    with pytest.raises(ValueError, match=f"{message}.*found Bare in priors.loadings, which has none; use"):
        bayesnmf.fit(COUNTS, rank=K, method=method, options=options(priors=priors))


def test_models_name_it_among_the_families_that_they_allow():
    with pytest.raises(
        ValueError, match="must be Gamma or HierarchicalGamma or InverseGaussian for model='gamma_poisson'"
    ):
        bayesnmf.fit(COUNTS, rank=K, options=VI(priors=Priors(loadings=Dirichlet(1.0))))
    with pytest.raises(ValueError, match="must be Dirichlet for model='dirichlet_poisson'"):
        bayesnmf.fit(COUNTS, "dirichlet_poisson", K, options=VI(priors=PRIORS))
    assert isinstance(Gamma(1.0, 1.0), FAMILIES["Gamma"])


def test_the_evidence_asks_whether_allocations_integrate_out():
    counts, asked = [[3, 1], [1, 1]], "needs allocations whose factors integrate out"
    for method in ("exact", "tokens"):
        with pytest.raises(ValueError, match=asked):
            bayesnmf.log_evidence(counts, "gamma_poisson", 2, method, priors=PRIORS)
    with pytest.raises(ValueError, match=asked):
        bayesnmf.log_p_allocation(np.ones((2, 2, 3)), PRIOR, Dirichlet(1.0))


def test_a_file_of_a_family_that_is_not_registered_says_so(tmp_path, monkeypatch):
    fit_by("map").save(tmp_path / "fit.nc")
    monkeypatch.delitem(FAMILIES, "InverseGaussian")
    with pytest.raises(
        ValueError,
        match=r"a .InverseGaussian., which is no class of files; add .* to bayesnmf\.priors\.families\.FAMILIES",
    ):
        bayesnmf.load(tmp_path / "fit.nc")
