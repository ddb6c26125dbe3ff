"""Every prior against numerical integrals, numerical maxima, SciPy's densities and the moments of its draws."""

import itertools

import numpy as np
import pytest
from scipy import integrate, optimize, stats
from scipy.special import softmax
from suites import mostly_long

import bayesnmf
from bayesnmf import VI, Dirichlet, Gamma, Priors, ScaledDirichlet
from bayesnmf.priors import ScaledProportions, matrix
from bayesnmf.priors.dirichlet import learned_concentration

SHAPE, RATE = np.array([[0.3, 1.0, 2.5], [0.9, 7.0, 40.0]]), np.array([[0.2, 3.0, 1.0], [1.5, 0.7, 9.0]])
ALPHA = np.array([[0.3, 1.0, 2.5], [4.0, 0.7, 1.6]])
SCALE_SHAPE, SCALE_RATE = np.array([[2.5], [0.8]]), np.array([[0.4], [1.3]])

GAMMA, DIRICHLET = Gamma(SHAPE, RATE), Dirichlet(ALPHA)
SCALED = ScaledDirichlet(ALPHA, SCALE_SHAPE, SCALE_RATE)
# The same families as priors to compare with, of all the shapes that broadcast.
GAMMA_PRIORS = [Gamma(1.4, 0.6), Gamma(np.array([1.0, 2.0, 0.5]), 0.3), Gamma(SHAPE[::-1], RATE[:, ::-1])]
DIRICHLET_PRIORS = [Dirichlet(1.0), Dirichlet(np.array([0.5, 1.0, 3.0])), Dirichlet(ALPHA[::-1])]
FLAT = Gamma(1.0, 0.0)
TOTAL = np.array([[4.0, 1.0, 0.7], [0.0, 2.0, 9.0]])

families = pytest.mark.parametrize("prior", [GAMMA, DIRICHLET, SCALED], ids=["gamma", "dirichlet", "scaled"])


def log_entries(function, shape, rate):
    """E of a function of log x under Gamma(shape, rate), by quadrature on the log scale."""
    density = lambda t: np.exp(stats.gamma.logpdf(np.exp(t), shape, scale=1 / rate) + t)  # noqa: E731
    centre, width = np.log(shape / rate), 1 / min(shape, np.sqrt(shape))
    points = [centre - 60 * width, centre - 5 * width, centre, centre + 12]
    pieces = itertools.pairwise(points)
    return sum(integrate.quad(lambda t: function(t) * density(t), *ends, limit=200)[0] for ends in pieces)


def over_entries(function, q):
    q = q.broadcast(SHAPE.shape)
    pairs = zip(q.shape.ravel(), q.rate.ravel(), strict=True)
    return np.array([log_entries(function, a, b) for a, b in pairs]).reshape(SHAPE.shape)


# --- densities --------------------------------------------------------------------------------------


@pytest.mark.parametrize("prior", [GAMMA, *GAMMA_PRIORS])
def test_density_of_the_gamma(prior):
    value = np.random.default_rng(0).gamma(1.0, 2.0, (2, 3))
    full = prior.broadcast((2, 3))
    wanted = stats.gamma.logpdf(value, full.shape, scale=1 / full.rate).sum()
    np.testing.assert_allclose(prior.log_density(value), wanted, rtol=1e-12)


@pytest.mark.parametrize("prior", [DIRICHLET, *DIRICHLET_PRIORS])
def test_density_of_the_dirichlet(prior):
    value = np.random.default_rng(1).dirichlet(np.ones(3), 2)
    rows = zip(value, prior.broadcast((2, 3)).concentration, strict=True)
    wanted = sum(stats.dirichlet.logpdf(x / x.sum(), alpha) for x, alpha in rows)
    np.testing.assert_allclose(prior.log_density(value), wanted, rtol=1e-12)


def test_density_of_the_scaled_dirichlet():
    rng = np.random.default_rng(2)
    value = ScaledProportions(rng.dirichlet(np.ones(3), 2), rng.gamma(1.0, size=(2, 1)))
    wanted = DIRICHLET.log_density(value.proportions) + Gamma(SCALE_SHAPE, SCALE_RATE).log_density(value.scale)
    assert SCALED.log_density(value) == pytest.approx(wanted, rel=1e-12)
    with_scalars = ScaledDirichlet(0.7, 2.0, 0.3)
    by_scipy = stats.gamma.logpdf(value.scale, 2.0, scale=1 / 0.3).sum()
    by_scipy += sum(stats.dirichlet.logpdf(row / row.sum(), np.full(3, 0.7)) for row in value.proportions)
    assert with_scalars.log_density(value) == pytest.approx(by_scipy, rel=1e-12)


def test_the_flat_prior_has_log_density_zero():
    value = np.random.default_rng(3).gamma(1.0, size=(2, 3))
    assert FLAT.log_density(value) == 0
    assert FLAT.flat
    assert not FLAT.proper
    assert Gamma(np.ones(3), np.zeros(3)).flat
    for other in (Gamma(1.0, 0.1), Gamma(2.0, 0.0), Gamma(1.0, np.array([0.0, 1.0]))):
        assert not other.flat
    assert GAMMA.proper
    assert DIRICHLET.proper
    assert SCALED.proper


def test_densities_at_the_boundary():
    assert Gamma(1.0, 2.0).log_density(np.zeros((1, 1))) == pytest.approx(np.log(2))
    assert Gamma(2.0, 2.0).log_density(np.zeros((1, 1))) == -np.inf
    assert Gamma(0.5, 2.0).log_density(np.zeros((1, 1))) == np.inf
    assert Dirichlet(1.0).log_density(np.array([[0.0, 1.0, 0.0]])) == pytest.approx(np.log(2))


# --- moments ----------------------------------------------------------------------------------------


def test_moments_of_the_gamma_are_those_of_scipy():
    # The quadrature is good to about 1e-8; scipy's moments are exact.
    frozen = stats.gamma(SHAPE, scale=1 / RATE)
    np.testing.assert_allclose(GAMMA.mean(), frozen.mean(), rtol=1e-12)
    np.testing.assert_allclose(GAMMA.variance(), frozen.var(), rtol=1e-12)
    np.testing.assert_allclose(GAMMA.expected_log(), over_entries(lambda t: t, GAMMA), rtol=1e-6, atol=1e-6)


def test_moments_of_the_dirichlet_are_those_of_scipy():
    np.testing.assert_allclose(DIRICHLET.mean(), [stats.dirichlet.mean(a) for a in ALPHA], rtol=1e-12)
    np.testing.assert_allclose(DIRICHLET.variance(), [stats.dirichlet.var(a) for a in ALPHA], rtol=1e-12)
    # Each share is Beta(α_k, Σα − α_k).
    for alpha, found in zip(ALPHA, DIRICHLET.expected_log(), strict=True):
        for a, b, value in zip(alpha, alpha.sum() - alpha, found, strict=True):
            logarithm = lambda y, a=a, b=b: (  # noqa: E731  y = log x: the density of log x has no pole
                y * np.exp(stats.beta.logpdf(np.exp(y), a, b) + y)
            )
            near_one = integrate.quad(lambda x, a=a, b=b: np.log(x) * stats.beta.pdf(x, a, b), 0.1, 1)[0]
            near_zero = integrate.quad(logarithm, -80 / a, np.log(0.1), limit=400)[0]
            assert value == pytest.approx(near_one + near_zero, rel=1e-5)


def test_moments_of_the_scaled_dirichlet():
    scale = Gamma(SCALE_SHAPE, SCALE_RATE)
    np.testing.assert_array_equal(matrix(SCALED.mean()), DIRICHLET.mean() * scale.mean())
    np.testing.assert_array_equal(SCALED.variance().proportions, DIRICHLET.variance())
    np.testing.assert_array_equal(SCALED.variance().scale, scale.variance())
    np.testing.assert_array_equal(SCALED.expected_log(), DIRICHLET.expected_log() + scale.expected_log())


# --- Kullback-Leibler divergences -------------------------------------------------------------------


@pytest.mark.parametrize("prior", mostly_long(GAMMA_PRIORS))
def test_kl_of_gammas_is_the_integral(prior):
    full = prior.broadcast(SHAPE.shape)
    total = 0.0
    for a, b, c, d in zip(*(x.ravel() for x in (SHAPE, RATE, full.shape, full.rate)), strict=True):

        def log_ratio(t, a=a, b=b, c=c, d=d):
            return stats.gamma.logpdf(np.exp(t), a, scale=1 / b) - stats.gamma.logpdf(np.exp(t), c, scale=1 / d)

        total += log_entries(log_ratio, a, b)
    assert GAMMA.kl(prior) == pytest.approx(total, rel=1e-6)
    assert GAMMA.kl(prior) > 0


def test_kl_to_the_flat_prior_is_minus_the_entropy():
    assert GAMMA.kl(FLAT) == pytest.approx(-stats.gamma(SHAPE, scale=1 / RATE).entropy().sum(), rel=1e-12)
    # It is the limit of KL to Gamma(1, ε) less its diverging constant −log ε, up to ε · mean.
    rate = 1e-9
    limit = GAMMA.kl(Gamma(1.0, rate)) + SHAPE.size * np.log(rate)
    assert GAMMA.kl(FLAT) == pytest.approx(limit, rel=1e-6)


@pytest.mark.parametrize("prior", DIRICHLET_PRIORS)
def test_kl_of_dirichlets_is_the_expectation(prior):
    other = prior.broadcast(ALPHA.shape).concentration
    draws = 20_000
    total, variance = 0.0, 0.0
    for q, p in zip(ALPHA, other, strict=True):
        log_x = np.log(Dirichlet(q).draw(np.random.default_rng(4), (draws,)))
        constants = [stats.dirichlet.logpdf(np.full(3, 1 / 3), a) + (a - 1).sum() * np.log(3) for a in (q, p)]
        ratio = constants[0] - constants[1] + ((q - p) * log_x).sum(axis=1)
        total += ratio.mean()
        variance += ratio.var() / draws
    assert abs(DIRICHLET.kl(prior) - total) < 4 * np.sqrt(variance) + 1e-9
    assert variance < 0.02**2 * max(1, total**2)
    assert DIRICHLET.kl(prior) > 0


def test_kl_of_a_dirichlet_with_two_entries_is_that_of_its_beta():
    q, p = np.array([[2.0, 5.0]]), np.array([1.5, 0.8])
    integral, _ = integrate.quad(
        lambda x: stats.beta.pdf(x, *q[0]) * (stats.beta.logpdf(x, *q[0]) - stats.beta.logpdf(x, *p)), 0, 1
    )
    assert Dirichlet(q).kl(Dirichlet(p)) == pytest.approx(integral, rel=1e-7)


def test_kl_of_the_scaled_dirichlet_is_the_sum():
    prior = ScaledDirichlet(0.5, 2.0, 1.0)
    parts = DIRICHLET.kl(Dirichlet(0.5)) + Gamma(SCALE_SHAPE, SCALE_RATE).kl(Gamma(2.0, 1.0))
    assert SCALED.kl(prior) == pytest.approx(parts, rel=1e-12)


@families
def test_kl_to_oneself_is_zero(prior):
    assert abs(prior.kl(prior)) < 1e-10


# --- conditionals and modes -------------------------------------------------------------------------


def test_conditionals_add_totals_to_shapes_and_exposures_to_rates():
    exposure = np.array([[2.0, 0.5, 1.5]])
    gamma = GAMMA.conditional(TOTAL, exposure)
    np.testing.assert_allclose(gamma.shape, SHAPE + TOTAL)
    np.testing.assert_allclose(gamma.rate, RATE + exposure)
    np.testing.assert_allclose(DIRICHLET.conditional(TOTAL, exposure).concentration, ALPHA + TOTAL)
    of_rows = np.array([[2.0], [0.5]])
    scaled = SCALED.conditional(TOTAL, of_rows)
    np.testing.assert_allclose(scaled.concentration, ALPHA + TOTAL)
    np.testing.assert_allclose(scaled.shape, SCALE_SHAPE + TOTAL.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(scaled.rate, SCALE_RATE + of_rows)


def test_conditional_is_prior_times_likelihood():
    """Bayes' rule: log prior + Poisson log-likelihood of the total − log conditional is a constant."""
    rng = np.random.default_rng(5)
    exposure = np.array([[2.0, 0.5, 1.5]])
    posterior = GAMMA.conditional(TOTAL, exposure)
    points = [rng.gamma(2.0, size=(2, 3)) for _ in range(3)]
    evidence = [
        GAMMA.log_density(x) + (TOTAL * np.log(x) - exposure * x).sum() - posterior.log_density(x) for x in points
    ]
    np.testing.assert_allclose(evidence, evidence[0], rtol=1e-10)
    points = [ScaledProportions(rng.dirichlet(np.ones(3), 2), rng.gamma(2.0, size=(2, 1))) for _ in range(3)]
    of_rows = np.array([[2.0], [0.5]])
    posterior = SCALED.conditional(TOTAL, of_rows)
    evidence = [
        SCALED.log_density(x) + (TOTAL * np.log(matrix(x)) - of_rows * matrix(x)).sum() - posterior.log_density(x)
        for x in points
    ]
    np.testing.assert_allclose(evidence, evidence[0], rtol=1e-10)


def test_mode_of_the_gamma_is_the_maximum():
    prior, exposure = Gamma(np.array([1.0, 1.6, 3.0]), 0.4), np.array([[2.0, 0.5, 1.5]])
    conditional = prior.conditional(TOTAL, exposure)
    found = prior.mode(TOTAL, exposure)
    for a, b, value in zip(*(x.ravel() for x in (*vars(conditional.broadcast((2, 3))).values(), found)), strict=True):
        slope = lambda x, a=a, b=b: -stats.gamma.logpdf(x, a, scale=1 / b)  # noqa: E731
        best = optimize.minimize_scalar(slope, bounds=(0, 40), method="bounded", options={"xatol": 1e-9}).x
        assert value == pytest.approx(best, abs=1e-5)


def test_mode_of_the_dirichlet_is_the_maximum():
    prior = Dirichlet(np.array([1.5, 2.0, 4.0]))
    found = prior.mode(TOTAL, np.ones((1, 3)))
    for row, alpha in zip(found, ALPHA * 0 + prior.concentration + TOTAL, strict=True):
        best = optimize.minimize(lambda z, a=alpha: -stats.dirichlet.logpdf(softmax(z), a), np.zeros(3), tol=1e-12)
        np.testing.assert_allclose(row, softmax(best.x), atol=1e-5)
    np.testing.assert_allclose(found.sum(axis=1), 1)


def test_mode_of_the_scaled_dirichlet():
    prior = ScaledDirichlet(1.5, 2.0, 0.4)
    found = prior.mode(TOTAL)
    np.testing.assert_allclose(found.proportions, Dirichlet(1.5).mode(TOTAL))
    np.testing.assert_allclose(found.scale, (1.0 + TOTAL.sum(axis=1, keepdims=True)) / 1.4)


def test_modes_that_are_not_unique_keep_the_previous_value():
    previous = np.array([[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]])
    total = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 3.0]])
    np.testing.assert_allclose(Dirichlet(1.0).mode(total, 1.0, previous), [previous[0], [0.25, 0, 0.75]])
    np.testing.assert_allclose(Dirichlet(1.0).mode(total)[0], [1 / 3] * 3)
    kept = ScaledDirichlet(1.0, 1.0, 0.5).mode(total, 1.0, ScaledProportions(previous, np.ones((2, 1))))
    np.testing.assert_allclose(kept.proportions[0], previous[0])
    np.testing.assert_allclose(kept.scale, [[0], [4 / 1.5]])
    exposure = np.array([[0.0, 2.0, 2.0]])  # a dead component: no total, no exposure
    np.testing.assert_allclose(
        FLAT.mode(np.array([[0.0, 1.0, 3.0]]), exposure, previous[:1]), [[previous[0, 0], 0.5, 1.5]]
    )
    np.testing.assert_allclose(FLAT.mode(np.array([[0.0, 1.0, 3.0]]), exposure), [[0, 0.5, 1.5]])


def test_totals_far_below_one_are_not_lost():
    """Multiplicative updates shrink entries to 1e-91: 1 + 1e-91 − 1 would be 0."""
    total = np.array([[1e-91, 2.0]])
    assert FLAT.mode(total, np.ones((1, 2)))[0, 0] == 1e-91
    assert Dirichlet(1.0).mode(total)[0, 0] == pytest.approx(5e-92)


# --- draws ------------------------------------------------------------------------------------------


def parts(value):
    return value if isinstance(value, ScaledProportions) else (value,)


@families
def test_draws_have_the_right_moments(prior):
    draws = 20_000
    drawn = prior.draw(np.random.default_rng(6), (draws,))
    for x, mean, variance in zip(parts(drawn), parts(prior.mean()), parts(prior.variance()), strict=True):
        assert x.shape == (draws, *mean.shape)
        assert np.all(np.abs(x.mean(axis=0) - mean) < 4.5 * np.sqrt(variance / draws))
        # The kurtosis of a Gamma is 6/shape, at most 20 here, and that of a share is less.
        assert np.all(np.abs(x.var(axis=0) / variance - 1) < 4.5 * np.sqrt(22 / draws))
    log_x = np.log(matrix(drawn))
    error = log_x.std(axis=0) / np.sqrt(draws)
    assert np.all(np.abs(log_x.mean(axis=0) - prior.expected_log()) < 4.5 * error)


def test_draws_have_the_right_distribution():
    drawn = GAMMA.draw(np.random.default_rng(7), (5_000,))
    shares = DIRICHLET.draw(np.random.default_rng(8), (5_000,))
    for i, k in np.ndindex(2, 3):
        gamma = stats.gamma(SHAPE[i, k], scale=1 / RATE[i, k])
        assert stats.kstest(drawn[:, i, k], gamma.cdf).pvalue > 1e-4
        beta = stats.beta(ALPHA[i, k], ALPHA[i].sum() - ALPHA[i, k])
        assert stats.kstest(shares[:, i, k], beta.cdf).pvalue > 1e-4
    np.testing.assert_allclose(shares.sum(axis=-1), 1, rtol=1e-12)


@pytest.mark.parametrize("shape", [1e-3, 1e-5])
def test_draws_are_never_zero(shape):
    """A Gamma(0.001) draw is below 1e-308 half of the time; its logarithm is what one would need."""
    rng = np.random.default_rng(9)
    for drawn in (Gamma(shape, 2.0).broadcast((50, 40)).draw(rng), Dirichlet(np.full((50, 40), shape)).draw(rng)):
        assert np.all(np.isfinite(drawn))
        assert np.all(drawn > 0)
    few = Dirichlet(np.full((4_000, 2), shape)).draw(rng)[:, 0]  # one entry takes all; which, by a fair coin
    assert abs(np.mean(few > 0.5) - 0.5) < 4.5 * 0.5 / np.sqrt(4_000)


@families
def test_draws_follow_their_generator(prior):
    one, two, other = (parts(prior.draw(np.random.default_rng(seed)))[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, two)
    assert not np.any(one == other)


# --- types and shapes -------------------------------------------------------------------------------

SINGLE_TOTAL = TOTAL.astype(np.float32)


@pytest.mark.parametrize(
    "prior",
    [GAMMA, Gamma(1.5, 0.5), FLAT, DIRICHLET, Dirichlet(0.7), SCALED, ScaledDirichlet(1.0, 2.0, 0.3)],
)
def test_float32_stays_float32(prior):
    exposure = np.ones((1, 3), np.float32)
    conditional = prior.conditional(SINGLE_TOTAL, exposure)
    for name, value in vars(conditional).items():
        assert np.asarray(value).dtype == np.float32, name
    for value in (*parts(conditional.mean()), conditional.expected_log(), *parts(conditional.variance())):
        assert value.dtype == np.float32
    if prior.smallest_shape >= 1:
        for value in parts(prior.mode(SINGLE_TOTAL, exposure)):
            assert value.dtype == np.float32
    double = prior.conditional(TOTAL, exposure.astype(float))
    np.testing.assert_allclose(conditional.expected_log(), double.expected_log(), rtol=1e-4, atol=1e-5)
    assert conditional.kl(prior) == pytest.approx(double.kl(prior), rel=1e-4)


@families
def test_broadcast_is_the_same_distribution(prior):
    scalars = {"gamma": Gamma(1.5, 0.5), "dirichlet": Dirichlet(0.7), "scaled": ScaledDirichlet(0.7, 2.0, 0.3)}
    narrow = next(value for value in scalars.values() if type(value) is type(prior))
    wide = narrow.broadcast((2, 3))
    value = prior.draw(np.random.default_rng(10))
    assert wide.log_density(value) == pytest.approx(narrow.log_density(value), rel=1e-12)
    assert prior.kl(wide) == pytest.approx(prior.kl(narrow), rel=1e-12)
    assert wide.smallest_shape == narrow.smallest_shape


@families
def test_jacobian_of_the_log_basis(prior):
    value = prior.draw(np.random.default_rng(11))
    assert prior.log_jacobian(value) == pytest.approx(sum(np.log(x).sum() for x in parts(value)))


@families
def test_the_mode_in_the_log_basis_is_the_mean(prior):
    """The density with its Jacobian falls away from the mean in every direction of the log (softmax) basis."""
    rng = np.random.default_rng(12)
    conditional = prior.conditional(TOTAL, np.ones((1, 3)))

    def height(value):
        return conditional.log_density(value) + conditional.log_jacobian(value)

    def moved(value, step):
        return [rescale(part * np.exp(step * rng.normal(size=part.shape))) for part in parts(value)]

    def rescale(part):
        on_simplex = not isinstance(prior, Gamma) and part.shape[1] > 1
        return part / part.sum(axis=1, keepdims=True) if on_simplex else part

    mean = conditional.mean()
    for step in (1e-3, 1e-2, 0.3):
        for _ in range(20):
            other = moved(mean, step)
            assert height(ScaledProportions(*other) if len(other) > 1 else other[0]) < height(mean)


def test_modes_of_numbers_are_numbers():
    assert Gamma(3.0, 2.0).mode() == 1.0
    assert Gamma(3.0, 2.0).mode(4.0, 1.0) == 2.0
    assert FLAT.mode(0.0, 0.0) == 0.0


def test_priors_given_as_arrays_of_jax_are_those_of_numpy():
    """An array of JAX may lie on the host as well; a fit whose priors are such arrays runs on the CPU."""
    jnp = pytest.importorskip("jax.numpy")
    counts = np.random.default_rng(0).poisson(2, (6, 5))
    traces = []
    for array in (np.asarray, jnp.asarray):
        priors = Priors(Gamma(array([1.5, 2.0]), array([0.25, 0.5])), Dirichlet(array([1.25])))
        options = VI(priors=priors, start="svd", max_iter=5, tol=0, threads=1)
        traces.append(bayesnmf.fit(counts, rank=2, seed=0, options=options).trace)
    np.testing.assert_array_equal(*traces)


@pytest.mark.parametrize("mean_log", [-np.inf, np.nan])
def test_a_concentration_of_values_that_are_no_numbers_is_learned_to_an_end_without_a_warning(mean_log):
    learned = learned_concentration(1.0, np.array([[mean_log, -1.0]]))
    assert 0 < learned <= 1
