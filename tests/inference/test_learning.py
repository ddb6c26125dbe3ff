"""Learned hyperparameters: they maximise the bound, which keeps rising, and come close to what data were drawn from."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from plain import plain_vi
from registry import RANK, having, nasty_counts, plain_counts
from scipy.optimize import minimize
from scipy.special import digamma, gammaln
from suites import mostly_long
from turns import DTYPES, in_turn

import bayesnmf
from bayesnmf import (
    VI,
    ConvergenceWarning,
    Dirichlet,
    Gamma,
    HierarchicalGamma,
    NegativeBinomial,
    Priors,
    ScaledDirichlet,
)
from bayesnmf.assessment.bounds import elbo_augmented
from bayesnmf.inference.alignment import match_components

NASTY = nasty_counts()
BOTH = ("loadings", "components")
N, M, K = 8, 6, 3


def run(counts, model, priors, learn=BOTH, *, rank=RANK, seed=0, max_iter=40, tol=0, **settings):
    options = plain_vi(priors=priors, learn=learn, max_iter=max_iter, tol=tol, **settings)
    return bayesnmf.fit(counts, model, rank, "vi", seed=seed, options=options)


def pooled(entry, size=(9, 7)):
    """The entry's priors, with parameters that vary along rows and columns made one for each component."""

    def one(prior, rank_axis):
        out = {}
        for name, value in vars(prior).items():
            value = np.asarray(value)
            if isinstance(prior, Gamma) and value.ndim:
                value = np.linspace(*sorted([value.min(), value.max() + 0.1]), RANK)
                value = value if rank_axis == 1 else value[:, None]
            elif value.ndim == 2 and name == "concentration":
                value = value[0] if rank_axis == 1 else value[:, :1]
            elif value.ndim == 2:
                value = value[0, 0]
            out[name] = value
        if isinstance(prior, Gamma) and np.shape(out["shape"]) != np.shape(out["rate"]):
            out = {name: np.broadcast_to(value, (RANK, 1)) for name, value in out.items()}
        return type(prior)(**out)

    priors = entry.priors(size)
    return Priors(one(priors.loadings, 1), one(priors.components, 0))


PROPER = [entry for entry in having("gradient") if entry.proper]
EXTRAPOLATE = {"plain": False, "extrapolated": True}


# --- each prior -------------------------------------------------------------------------------------


def some_q(family, size, seed=0):
    rng = np.random.default_rng(seed)
    if family is Gamma:
        return Gamma(rng.gamma(2.0, 2.0, size) + 0.1, rng.gamma(3.0, 1.0, (size[0], 1)) + 0.2)
    if family is Dirichlet:
        return Dirichlet(rng.gamma(2.0, 2.0, size) + 0.1)
    return ScaledDirichlet(rng.gamma(2.0, 2.0, size) + 0.1, rng.gamma(3.0, 5.0, (size[0], 1)) + 1, np.array([[1.4]]))


def expected_log_prior(parameters, q, size):
    """E_q log p by hand: of a Gamma for (shape, rate), of a Dirichlet for (concentration,)."""
    if isinstance(q, Gamma):
        a, b = (np.broadcast_to(each, size) for each in parameters)
        mean, log = q.shape / q.rate, digamma(q.shape) - np.log(q.rate)
        return (a * np.log(b) - gammaln(a) + (a - 1) * log - b * mean).sum()
    alpha = np.broadcast_to(parameters[0], size)
    log = digamma(q.concentration) - digamma(q.concentration.sum(axis=1, keepdims=True))
    return (gammaln(alpha.sum(axis=1)) - gammaln(alpha).sum(axis=1) + ((alpha - 1) * log).sum(axis=1)).sum()


def best_by_scipy(shapes, q, size):
    """The maximum over positive parameters of given shapes, and the parameters."""
    sizes = [int(np.prod(shape)) for shape in shapes]

    def split(logs):
        parts = np.split(np.exp(logs), np.cumsum(sizes)[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

    found = minimize(
        lambda logs: -expected_log_prior(split(logs), q, size), np.zeros(sum(sizes)), options={"gtol": 1e-6}
    )
    return -found.fun, split(found.x)


GAMMA = [((N, K), (), ()), ((N, K), (K,), (K,)), ((N, K), (1, K), (1, K)), ((K, M), (), ()), ((K, M), (M,), (M,)),
         ((K, M), (K, 1), (K, 1))]  # fmt: skip
DIRICHLET = [((N, K), ()), ((N, K), (K,)), ((N, K), (1, K)), ((K, M), ()), ((K, M), (M,)), ((K, M), (K, 1))]


@pytest.mark.parametrize(("family", "shapes"), [(Gamma, s) for s in GAMMA] + [(Dirichlet, s) for s in DIRICHLET])
def test_learned_parameters_maximise_the_expected_log_density(family, shapes):
    """SciPy, from other starts and without derivatives, finds the same; the parameters keep their shapes."""
    size, *shapes = shapes
    q = some_q(family, size)
    given = family(*(np.full(shape, 0.7) for shape in shapes))
    found = list(vars(given.learned(q)).values())
    assert [np.shape(each) for each in found] == shapes
    height, best = best_by_scipy(shapes, q, size)
    # BFGS with differences for gradients is good to 1e-6 nats or so, and parameters to the root of it.
    assert expected_log_prior(found, q, size) >= height - 1e-10
    for one, two in zip(found, best, strict=True):
        np.testing.assert_allclose(one, two, rtol=2e-4)


def test_a_scaled_dirichlet_is_learned_part_by_part():
    q = some_q(ScaledDirichlet, (N, K))
    prior = ScaledDirichlet(np.full(K, 0.7), 1.0, 0.1).learned(q)
    proportions, scale = Dirichlet(np.full(K, 0.7)).learned(q.proportions), Gamma(1.0, 0.1).learned(q.scale)
    np.testing.assert_array_equal(prior.concentration, proportions.concentration)
    np.testing.assert_array_equal([prior.shape, prior.rate], [scale.shape, scale.rate])


@pytest.mark.parametrize("family", [Gamma, Dirichlet])
def test_a_learned_prior_is_learned_again(family):
    """It is a maximum whatever prior it starts from, and the prior itself where q is the prior."""
    q = some_q(family, (N, K))
    starts = [family(*(np.full(K, value) for _ in vars(q))) for value in (1e-3, 1.0, 1e4)]
    found = [vars(start.learned(q)) for start in starts]
    for other in found[1:]:
        for name, value in found[0].items():
            np.testing.assert_allclose(other[name], value, rtol=1e-8)
    prior = family(*(np.array([0.3, 2.0, 40.0]) for _ in vars(q)))
    again = family(*(np.ones(K) for _ in vars(q))).learned(prior.broadcast((N, K)))
    for name, value in vars(prior).items():
        np.testing.assert_allclose(getattr(again, name), value, rtol=1e-8)


@pytest.mark.parametrize("level", [1e-3, 1.0, 1e8, 1e15])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("like", [(), (K,)], ids=["number", "vector"])
def test_what_is_learned_from_an_extreme_q_is_finite_and_positive(level, dtype, like):
    """Nearly 0, nearly certain, all the same: what is learned is finite and positive."""
    same = np.full((N, K), level, dtype)
    several = (np.geomspace(1e-2, 1, N)[:, None] * same).astype(dtype)
    for shape in (same, several):
        for q in (Gamma(shape, np.ones((1, K), dtype)), Dirichlet(shape)):
            prior = type(q)(*(np.full(like, 0.5) for _ in vars(q))).learned(q)
            for value in vars(prior).values():
                assert np.all(np.isfinite(value))
                assert np.all(np.asarray(value) > 0)


def test_a_simplex_of_one_point_teaches_nothing():
    """Its density is 1 whatever the concentration: rank 1, or one feature."""
    for given in (0.7, np.array([0.7])):
        assert Dirichlet(given).learned(Dirichlet(np.array([[3.0], [5.0]]))).concentration is given
    fit = run(plain_counts(), "dirichlet_poisson", Priors(Dirichlet(0.7), Dirichlet(1.0)), rank=1)
    assert np.all(np.isfinite(fit.trace))
    assert fit.priors.loadings.concentration == 0.7
    assert fit.priors.components.concentration != 1.0


# --- fits -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("entry", "extrapolate"), in_turn(PROPER, EXTRAPOLATE))
def test_the_bound_never_falls_and_ends_above_that_of_given_priors(entry, extrapolate):
    """From where a fit with the given priors ended."""
    priors = pooled(entry)
    plain = run(NASTY, entry.model, priors, (), max_iter=20)
    for learn in (("loadings",), ("components",), BOTH):
        fit = run(NASTY, entry.model, priors, learn, start=plain, extrapolate=extrapolate, max_iter=20)
        assert np.all(fit.trace[:-1] - fit.trace[1:] <= 1e-12 * np.maximum(np.abs(fit.trace[1:]), 4e5))
        np.testing.assert_allclose(fit.trace[0], plain.trace[-1], rtol=1e-12)
        assert fit.trace[-1] > plain.trace[-1]
        for side in BOTH:
            given, now = vars(getattr(priors, side)), vars(getattr(fit.priors, side))
            assert all(np.array_equal(given[name], now[name]) for name in given) == (side not in learn)
            for name, value in vars(getattr(fit.options.priors, side)).items():
                np.testing.assert_array_equal(value, given[name])
            for name, value in vars(getattr(fit.priors, side)).items():
                assert np.all(np.isfinite(value) & (np.asarray(value) > 0))
                assert np.shape(value) == np.shape(getattr(getattr(priors, side), name))


@pytest.mark.parametrize("model", ["gamma_poisson", "dirichlet_poisson", "dirichlet_gamma"])
def test_nothing_is_learned_by_default(model):
    assert VI().learn == ()
    fit = bayesnmf.fit(NASTY, model, RANK, seed=0, options=plain_vi(max_iter=3, tol=0))
    assert fit.priors is fit.options.priors


@pytest.mark.parametrize(("entry", "dtype"), in_turn(PROPER, DTYPES))
def test_without_counts_priors_stay_finite_and_positive(entry, dtype):
    """The prior has nothing to learn from but itself, and stays positive and finite."""
    fit = run(np.zeros((5, 4)), entry.model, pooled(entry, (5, 4)), max_iter=30, dtype=dtype)
    assert np.all(np.isfinite(fit.trace))
    for side in BOTH:
        for value in vars(getattr(fit.priors, side)).values():
            assert np.all(np.isfinite(value) & (np.asarray(value) > 0))


def test_learned_priors_are_those_of_the_bound_and_of_new_samples(tmp_path):
    """Through a save; `options` keeps the given ones."""
    counts = plain_counts(size=(20, 7))
    priors = Priors(Gamma(np.ones(RANK), np.full(RANK, 0.5)), Dirichlet(0.8))
    fit = run(counts, "gamma_poisson", priors, max_iter=60)
    fit.save(tmp_path / "fit.nc")
    again = bayesnmf.load(tmp_path / "fit.nc")
    for one in (fit, again):
        np.testing.assert_allclose(elbo_augmented(one), fit.trace[-1], rtol=1e-12)
        np.testing.assert_array_equal(one.priors.loadings.shape, fit.priors.loadings.shape)
        np.testing.assert_array_equal(one.options.priors.loadings.shape, 1)
        assert one.options.learn == BOTH
        # A row of no counts has the prior's Gamma(a, b + 1): components are on the simplex.
        prior = fit.priors.loadings
        np.testing.assert_allclose(one.transform(np.zeros((1, 7)))[0], prior.shape / (prior.rate + 1), rtol=1e-10)
    given = elbo_augmented(replace(fit, priors=priors))
    assert given < fit.trace[-1] - 1


# --- what the data were drawn from ------------------------------------------------------------------


def separate_components(rng, rank=3, m=40):
    return rng.dirichlet(np.full(m, 0.1), rank)


@pytest.mark.parametrize("seed", mostly_long([0, 7]))
def test_recovers_gammas(seed):
    """From 800 rows of 670 counts, sparse components: each parameter within a fifth, in their order.

    The standard error of a Gamma shape is about 5 % here; mean-field q are too narrow, which adds to shapes.
    """
    rng = np.random.default_rng(seed)
    beta = separate_components(rng)
    shape, rate = np.array([0.6, 1.0, 2.0]), np.array([0.004, 0.005, 0.006])
    counts = rng.poisson(rng.gamma(shape, 1 / rate, (800, 3)) @ beta)
    priors = Priors(Gamma(np.ones(3), np.full(3, 0.02)), Dirichlet(1.0))
    fit = run(counts, "gamma_poisson", priors, rank=3, tol=1e-7, max_iter=500, extrapolate=True)
    order = match_components(fit.components, beta)
    np.testing.assert_allclose(fit.priors.loadings.shape[order], shape, rtol=0.2)
    np.testing.assert_allclose(fit.priors.loadings.rate[order], rate, rtol=0.2)
    assert 0.05 < fit.priors.components.concentration < 0.15  # of 120 entries


@pytest.mark.parametrize("seed", mostly_long([0, 7]))
def test_recovers_a_dirichlet(seed):
    """From 800 rows of 600 counts: within 15 %, four standard errors.

    Components have no feature in common, so that allocations are certain and mean field has no bias.
    """
    rng = np.random.default_rng(seed)
    beta = np.kron(np.eye(3), np.ones((1, 5))) * rng.dirichlet(np.ones(5), 3).reshape(1, 15)
    alpha = np.array([0.3, 0.6, 1.2])
    counts = np.array([rng.multinomial(600, row @ beta) for row in rng.dirichlet(alpha, 800)])
    priors = Priors(Dirichlet(np.ones(3)), Dirichlet(1.0))
    fit = run(counts, "dirichlet_poisson", priors, rank=3, tol=1e-7, max_iter=500, extrapolate=True, start="svd")
    order = match_components(fit.components, beta)
    np.testing.assert_allclose(fit.priors.loadings.concentration[order], alpha, rtol=0.15)


def test_the_scale_is_learned_by_maximum_likelihood():
    """Its q is exact, so the totals' Negative Binomial is maximised ([K] section 2; no bias of mean field)."""
    rng = np.random.default_rng(1)
    scale = rng.gamma(3.0, 100.0, 60)
    counts = rng.poisson(scale[:, None] * rng.dirichlet(np.ones(3), 60) @ separate_components(rng, m=8))
    totals = counts.sum(axis=1)

    def loss(logs):
        a, b = np.exp(logs)
        terms = gammaln(totals + a) - gammaln(a) + a * np.log(b / (1 + b)) - totals * np.log(1 + b)
        return -terms.sum()

    best = np.exp(minimize(loss, [0, -5], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-10}).x)
    priors = Priors(ScaledDirichlet(np.ones(3), 1.0, 0.01), Dirichlet(1.0))
    fit = run(counts, "dirichlet_gamma", priors, ("loadings",), rank=3, max_iter=60, extrapolate=True)
    # Nelder-Mead stops at 1e-10 nats, the root of which the parameters are good to.
    np.testing.assert_allclose([fit.priors.loadings.shape, fit.priors.loadings.rate], best, rtol=1e-4)


# --- settings ---------------------------------------------------------------------------------------


def test_interruption_keeps_the_priors_of_the_last_iterate():
    priors = Priors(Gamma(np.ones(RANK), np.full(RANK, 0.5)), Dirichlet(0.8))

    def stop(label, done, total, objective):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.warns(ConvergenceWarning, match="interrupted"):
        fit = bayesnmf.fit(
            NASTY, "gamma_poisson", RANK, seed=0, options=plain_vi(priors=priors, learn=BOTH, tol=1e-12), progress=stop
        )
    whole = run(NASTY, "gamma_poisson", priors, max_iter=3)
    np.testing.assert_array_equal(fit.trace, whole.trace)
    np.testing.assert_array_equal(fit.priors.loadings.shape, whole.priors.loadings.shape)


@pytest.mark.parametrize(
    ("model", "priors", "learn", "message"),
    [
        ("poisson", Priors(), ("loadings",), "learn='loadings' needs a proper prior of the loadings"),
        ("gamma_poisson", Priors(components="parameter"), BOTH, "learn='components' needs a prior of the components"),
        (
            "gamma_poisson",
            Priors(Gamma(np.ones(RANK), 1.0)),
            ("loadings",),
            r"shape and rate of priors\.loadings together.*give both as numbers, or both for each component",
        ),
        (
            "dirichlet_poisson",
            Priors(Dirichlet(np.ones((9, RANK)))),
            ("loadings",),
            r"priors\.loadings\.concentration to pool over rows or features: found one of shape \(9, 3\)",
        ),
        (
            "dirichlet_poisson",
            Priors(components=Dirichlet(np.ones((RANK, 7)))),
            ("components",),
            r"priors\.components\.concentration to pool over",
        ),
        (
            "dirichlet_gamma",
            Priors(ScaledDirichlet(1.0, np.ones((9, 1)), np.ones((9, 1)))),
            ("loadings",),
            r"priors\.loadings\.shape to pool over",
        ),
    ],
)
def test_priors_that_cannot_be_learned(model, priors, learn, message):
    with pytest.raises(ValueError, match=message):
        run(NASTY, model, priors, learn)


@pytest.mark.parametrize(
    ("learn", "error", "message"),
    [
        (("scale",), ValueError, "learn must contain only 'loadings' and 'components'"),
        ("loadings", TypeError, r"learn must be a tuple of sides, as in learn=\('loadings',\)"),
        (None, TypeError, "learn must be a tuple"),
        (iter(("loadings",)), TypeError, "learn must be a tuple"),
    ],
)
def test_sides_that_do_not_exist_are_refused(learn, error, message):
    with pytest.raises(error, match=message):
        VI(learn=learn)


def test_a_list_of_sides_is_a_tuple():
    assert VI(learn=["loadings"]).learn == ("loadings",)


# --- beside a dispersion -----------------------------------------------------------------------------


DEEP = pytest.param("hierarchical_poisson", marks=pytest.mark.long)


def log_prior_of_dispersion(noise):
    """Log-normal, of median 0.3 and factor e²."""
    return -float((np.log(np.atleast_1d(noise.dispersion) / 0.3) ** 2).sum() / 8)


@pytest.mark.parametrize("noise", ["nb1", "nb2", NegativeBinomial(dispersion="row"), NegativeBinomial(dispersion=2.0)])
@pytest.mark.parametrize("model", ["gamma_poisson", "dirichlet_poisson", "dirichlet_gamma", DEEP])
def test_priors_and_dispersion_maximise_one_bound(model, noise):
    """No other dispersion, and no other prior of either side, has a higher bound at the same q."""
    if model == "dirichlet_poisson" and noise == "nb2":
        pytest.skip("refused")
    learned = noise if isinstance(noise, str) else noise.dispersion is None
    learn = BOTH if model != "hierarchical_poisson" else ("components",)
    counts = bayesnmf.simulate(size=(20, 8), rank=2, noise=NegativeBinomial(dispersion=2.0), seed=1).counts
    options = plain_vi(learn=learn, max_iter=400, tol=1e-10, threads=1, extrapolate=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fit = bayesnmf.fit(counts, model, 2, "vi", seed=0, options=options, noise=noise)
    assert np.diff(fit.trace).min() > -1e-9 * abs(fit.trace[-1])

    def bound(**changed):
        other = replace(fit, **changed)
        return elbo_augmented(other) + (log_prior_of_dispersion(other.noise) if learned else 0.0)

    here = bound()
    assert here == pytest.approx(fit.trace[-1], rel=1e-9)
    slack = 1e-4  # of a q that was updated once more
    for factor in (0.8, 1.25):
        if learned:
            assert bound(noise=fit.noise.with_dispersion(factor * np.asarray(fit.noise.dispersion)[()])) < here + slack
        for side in learn:
            prior = getattr(fit.priors, side)
            deeper = prior.rate if isinstance(prior, HierarchicalGamma) else prior
            for name, value in deeper.parameters.items():
                moved = replace(deeper, **{name: factor * value})
                moved = replace(prior, rate=moved) if deeper is not prior else moved
                assert bound(priors=replace(fit.priors, **{side: moved})) < here + slack
