"""Gibbs sampling with the allocations summed out: exact posteriors, single conditionals, moves along orbits."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from registry import MODELS_AND_PRIORS, over
from scipy import stats
from scipy.sparse import csr_array
from suites import mostly_long

import bayesnmf
from bayesnmf import Dirichlet, Gamma, Gibbs, Priors, ScaledDirichlet
from bayesnmf.data.conversion import as_counts
from bayesnmf.fitting.problems import draws_problem
from bayesnmf.inference.sampling.marginal_gibbs import factors_of, state_of, untied
from bayesnmf.inference.starts.states import random_state
from bayesnmf.kernels.cpu.entries import draw_entries
from bayesnmf.kernels.cpu.orbits import log_scales, shear_components

brief = pytest.mark.filterwarnings("ignore::bayesnmf.inference.status.ConvergenceWarning")


KEPT, THIN = 20, 2


def draws_of(counts, priors, rank, warmup=30, chains=240):
    """Return draws of loadings, or of their shares, and of components, one chain of many after the other."""
    rng = np.random.default_rng(0)
    problem = draws_problem(as_counts(counts), priors, rng)
    factors = factors_of(problem, random_state(problem, rank, rng), rng)
    factors.take(np.zeros(chains, int))  # all begin at one state
    drawn = []
    for sweep in range(1, warmup + KEPT * THIN + 1):
        factors.sweep(1)
        if sweep > warmup and (sweep - warmup) % THIN == 0:
            drawn += [factors.value(place) for place in range(chains)]
    sides = zip(
        *[(getattr(loadings, "proportions", loadings), components) for loadings, components in drawn], strict=True
    )
    return [np.swapaxes(np.reshape(side, (KEPT, chains, *side[0].shape)), 0, 1) for side in sides]


# --- one entry ------------------------------------------------------------------------------------------


def density_on_grid(counts, w, other, shape, linear, power, rest):
    """Return a grid of u and the distribution function of its density, by summation."""
    u = np.linspace(-690 if shape < 0.1 else -150, 9, 300_001)
    x = np.exp(u)
    log_p = shape * u - linear * x + power * np.log(rest + x)
    for count, own, base in zip(counts, w, other, strict=True):
        log_p += count * np.log(base + x * own)
    p = np.exp(log_p - log_p.max())
    return u, np.cumsum(p) / p.sum()


SEEN = [[3, 0, 1], [200, 50, 7], [0, 0, 0], [1, 0, 0]]
QUICK = [(1.0, SEEN[1]), (0.3, SEEN[0]), (0.03, SEEN[3])]
OTHERS = [case for case in [(5.0, SEEN[2]), *itertools.product([0.3, 0.03], SEEN)] if case not in QUICK]


@pytest.mark.parametrize(("shape", "counts"), mostly_long([*QUICK, *OTHERS], 3), ids=str)
def test_an_entry_has_its_conditional(shape, counts):
    """2,000 rows with the same counts are independent chains; p is below 1e-3 if the draws are off by 0.044."""
    rng = np.random.default_rng(1)
    w, rows = rng.gamma(1.0, 1.0, (3, 2)), 2000
    matrix = csr_array(np.tile(np.array(counts, float), (rows, 1)))
    factor = np.column_stack([np.full(rows, 0.5), np.full(rows, 0.7)])
    terms, free = (np.array([[shape]]), np.array([[2.0]])), np.array([True, False])
    for seed in range(150):
        draw_entries(matrix, factor, w, terms, seed, free=free)
    np.testing.assert_array_equal(factor[:, 1], 0.7)
    u, distribution = density_on_grid(counts, w[:, 0], 0.7 * w[:, 1], shape, 2.0, 0.0, 1.0)
    found = stats.kstest(np.log(factor[:, 0]), lambda v: np.interp(v, u, distribution))
    assert found.pvalue > 1e-3, found


@pytest.mark.parametrize(("shape", "power"), mostly_long([(1.2, 80.0), (0.3, 2.0), (0.1, 30.0)]))
def test_an_entry_tied_to_others_by_their_sum_has_its_conditional(shape, power):
    rng = np.random.default_rng(2)
    w, counts, rest = rng.gamma(1.0, 1.0, (3, 2)), np.array([2.0, 0.0, 9.0]), 0.8
    matrix, factor = csr_array(counts[None]), np.array([[0.5, 0.7]])
    terms, free = (np.array([[shape]]), np.array([[2.0]])), np.array([True, False])
    sums, drawn = np.array([rest + 0.5, 1.0]), []
    for seed in range(12_000):
        draw_entries(matrix, factor, w, terms, seed, (np.array([power, 0.0]), sums), free)
        if seed % 12 == 11:
            drawn.append(factor[0, 0])
    assert sums[0] == pytest.approx(rest + factor[0, 0])
    u, distribution = density_on_grid(counts, w[:, 0], 0.7 * w[:, 1], shape, 2.0, power, rest)
    assert stats.kstest(np.log(drawn), lambda v: np.interp(v, u, distribution)).pvalue > 1e-3


@pytest.mark.parametrize("power", [0.3, 2.0, 7.6])
def test_pseudo_counts_and_a_rate_stand_for_a_power_of_a_sum(power):
    """500 components are independent chains; under Π b^(η−1) e^(−2b) Z^p the sum Z has a Gamma distribution."""
    rng = np.random.default_rng(5)
    shape = np.array([[0.3], [1.0], [0.7]])
    b = rng.gamma(shape, 1.0, (3, 500))
    for _ in range(25):
        pseudo, rate = untied(b, np.full(500, power), np.arange(500), rng)
        b = np.maximum(rng.gamma(shape + pseudo) / (2.0 + rate), 1e-300)
    assert stats.kstest(b.sum(axis=0), stats.gamma(2.0 + power, scale=0.5).cdf).pvalue > 1e-3
    assert stats.kstest(b[0] / b.sum(axis=0), stats.beta(0.3, 1.7).cdf).pvalue > 1e-3


def test_draws_do_not_depend_on_threads():
    rng = np.random.default_rng(0)
    matrix = csr_array(rng.poisson(0.5, (300, 40)).astype(float))
    other, start = rng.gamma(1.0, 1.0, (40, 5)), rng.gamma(1.0, 1.0, (300, 5))
    drawn = []
    for threads in (1, 2, 3):
        factor = start.copy()
        draw_entries(matrix, factor, other, (np.ones((1, 1)), np.full((1, 1), 3.0)), 7, threads=threads)
        drawn.append(factor)
    np.testing.assert_array_equal(drawn[0], drawn[1])
    np.testing.assert_array_equal(drawn[0], drawn[2])


# --- moves along orbits ---------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [False, True], ids=["gammas", "simplex"])
def test_shears_leave_the_means_and_their_density(tied):
    """τ from its density, by summation on a grid, has the same density after a shear by the kernel."""
    rng = np.random.default_rng(3)
    t0, b0 = rng.gamma(2.0, 1.0, (2, 6)), rng.gamma(2.0, 1.0, (2, 4))
    shapes = rng.uniform(0.8, 2.5, (2, 6)), rng.uniform(0.8, 2.5, (2, 4))
    rates = rng.uniform(0.2, 1.5, (2, 6)), np.ones((2, 1)) if tied else rng.uniform(0.2, 1.5, (2, 4))
    power = shapes[0].sum(axis=1) if tied else None
    low, high = -(b0[0] / b0[1]).min(), (t0[1] / t0[0]).min()
    grid = np.linspace(low, high, 200_001)[1:-1]
    log_p = ((shapes[1][0] - 1)[:, None] * np.log(b0[0][:, None] + grid * b0[1][:, None])).sum(axis=0)
    log_p += ((shapes[0][1] - 1)[:, None] * np.log(t0[1][:, None] - grid * t0[0][:, None])).sum(axis=0)
    if tied:  # the priors of θ = t Σb and of b, as they are
        sums = b0.sum(axis=1)
        whole = sums[0] + grid * sums[1]
        log_p += power[0] * np.log(whole) - whole * (rates[0][0] @ t0[0]) - whole
        log_p -= sums[1] * (rates[0][1] @ t0[1] - grid * (rates[0][1] @ t0[0]))
    else:
        log_p += grid * (rates[0][1] @ t0[0] - rates[1][0] @ b0[1])
    p = np.exp(log_p - log_p.max())
    distribution = np.cumsum(p) / p.sum()
    before, after = np.interp(rng.random(2500), distribution, grid), []
    for seed, tau in enumerate(before):
        t, b = t0.copy(), b0.copy()
        b[0], t[1] = b[0] + tau * b[1], t[1] - tau * t[0]
        terms = [tuple(each[None] for each in pair) for pair in (shapes, rates)]
        shear_components(t[None], b[None], *terms, None if power is None else power[None], np.array([0, 1]), seed)
        np.testing.assert_allclose(t.T @ b, t0.T @ b0)
        after.append(((b[0] - b0[0]) / b0[1])[0])  # component 0 is sheared first, by component 1 as it was
    assert np.mean(np.abs(after - before) > 1e-3 * (high - low)) > 0.9
    assert stats.kstest(after, lambda v: np.interp(v, grid, distribution)).pvalue > 1e-3


@pytest.mark.parametrize(("power", "up", "down"), [(3.0, 2.0, 5.0), (-40.0, 0.3, 70.0), (20.0, 50.0, 0.1)])
def test_scales_are_generalised_inverse_gaussian(power, up, down):
    """Slices start from v = 0, so the target is a fixed point: v is drawn, applied, and drawn again."""
    chains = 4000
    ups, downs = np.full(chains, up), np.full(chains, down)
    for seed in range(40):
        v = log_scales(np.full(chains, power), ups, downs, seed)
        ups, downs = ups * np.exp(v), downs * np.exp(-v)
    scale = np.sqrt(down / up)
    expected = stats.geninvgauss(power, 2 * np.sqrt(up * down), scale=scale)
    assert stats.kstest(ups / up, expected.cdf).pvalue > 1e-3


# --- exact posteriors -------------------------------------------------------------------------------------

TINY = np.array([[2, 1, 0], [0, 3, 1]])


def exact_moments(priors, rank=2):
    """Return E θ (n, K), or of the shares, and E β (K, m), by a sum over all allocations."""
    entries = [(i, j, int(x)) for (i, j), x in np.ndenumerate(TINY) if x]
    ways = [[(x - s, s) for s in range(x + 1)] for _, _, x in entries]
    logs, loadings, components = [], [], []
    for parts in itertools.product(*ways):
        allocations = np.zeros((len(TINY), rank, TINY.shape[1]))
        for (i, j, _), split in zip(entries, parts, strict=True):
            allocations[i, :, j] = split
        logs.append(bayesnmf.log_p_allocation(allocations, priors.loadings, priors.components))
        q = priors.loadings.conditional(allocations.sum(axis=2), np.ones((1, 1)))
        mean = q.proportions.mean() if isinstance(q, ScaledDirichlet) else q.mean()
        loadings.append(np.broadcast_to(mean, (len(TINY), rank)))
        components.append(priors.components.conditional(allocations.sum(axis=0), np.ones((1, 1))).mean())
    weights = np.exp(np.array(logs) - max(logs))
    weights /= weights.sum()
    return np.tensordot(weights, loadings, 1), np.tensordot(weights, components, 1)


EXACT = {
    "gamma": Priors(Gamma(np.array([1.0, 2.0]), 0.5), Dirichlet(np.array([[1.0, 1.0, 2.0], [0.5, 1.0, 1.0]]))),
    "gamma, sparse": Priors(Gamma(np.array([0.3, 0.1]), 0.2), Dirichlet(np.array([[0.1, 0.1, 0.2], [0.3, 0.1, 0.1]]))),
    "dirichlet": Priors(Dirichlet(np.array([1.0, 0.4])), Dirichlet(np.array([[1.0, 1.0, 2.0], [0.3, 1.0, 1.0]]))),
    "scaled dirichlet": Priors(
        ScaledDirichlet(np.array([1.0, 0.3]), 2.0, 0.5), Dirichlet(np.array([[0.2, 1.0, 2.0], [0.5, 1.0, 1.0]]))
    ),
}


@pytest.mark.parametrize(
    ("name", "warmup", "chains"),
    mostly_long(
        [("gamma", 20, 240), ("scaled dirichlet", 20, 120), ("dirichlet", 20, 240), ("gamma, sparse", 120, 900)], 3
    ),
)
def test_the_posterior_is_exact(name, warmup, chains):
    """All 96 allocations of a tiny matrix are summed; priors differ between components, so that labels are fixed."""
    priors = EXACT[name]
    for expected, values in zip(exact_moments(priors), draws_of(TINY, priors, 2, warmup, chains), strict=True):
        assert_mean(values, expected)


def assert_mean(values, expected):
    """Assert that the mean over independent chains is the expected one, as far as batches of chains tell."""
    batches = values.reshape(60, -1, *expected.shape).mean(axis=1)
    error = batches.std(axis=0, ddof=1) / np.sqrt(60)
    assert (np.abs(batches.mean(axis=0) - expected) < 4.2 * error + 1e-4).all()
    assert error.max() < 0.03


def test_the_posterior_under_two_gammas_is_exact():
    """One count of one component: the density of both logarithms is summed on a grid. Forgotten rates would show."""
    priors = Priors(Gamma(1.5, 0.7), Gamma(2.0, 1.2))
    log_theta, log_beta = np.meshgrid(np.linspace(-12, 5, 900), np.linspace(-12, 5, 900), indexing="ij")
    theta, beta = np.exp(log_theta), np.exp(log_beta)
    p = np.exp((1.5 + 2) * log_theta - 0.7 * theta + (2.0 + 2) * log_beta - 1.2 * beta - theta * beta)
    loadings, components = draws_of([[2]], priors, 1)
    for values, exact in ((loadings, (theta, log_theta)), (components, (beta, log_beta))):
        for drawn, function in zip((values, np.log(values)), exact, strict=True):
            assert_mean(drawn, np.array([(p * function).sum() / p.sum()]))


@brief
@pytest.mark.parametrize("shape", [0.7, 10.0])
def test_sums_of_loadings_are_gamma_whatever_the_components(shape):
    """Σ_k θ_ik | N_i ~ Gamma(K a + N_i, b + r_i) exactly: an exposure that is 5 % wrong shifts it by one sd.

    So does, at shape 10, a component's sum whose power is forgotten.
    """
    rng = np.random.default_rng(4)
    rates = 500 * rng.dirichlet(np.ones(8), 12)
    counts, exposure = rng.poisson(rates), rng.uniform(0.5, 2.0, 12)
    priors = Priors(Gamma(shape, 0.3), Dirichlet(0.5))
    options = Gibbs(
        priors=priors, algorithm="marginal", start="random", chains=1, draws=100, warmup=30, thin=3, threads=1
    )
    fit = bayesnmf.fit(counts, rank=3, method="gibbs", seed=0, options=options, row_exposure=exposure)
    sums = fit.posterior.loadings[0].sum(axis=-1)
    uniform = stats.gamma.cdf(sums, 3 * shape + counts.sum(axis=1), scale=1 / (0.3 + exposure))
    assert stats.kstest(uniform.ravel(), "uniform").pvalue > 1e-3
    off = stats.gamma.cdf(sums, 3 * shape + counts.sum(axis=1), scale=1 / (0.3 + 1.05 * exposure))
    assert stats.kstest(off.ravel(), "uniform").pvalue < 1e-12


JOINT = ("doubly_gamma-asymmetric", "hierarchical_poisson-asymmetric", "relevance-sparse", "partly_known-gammas")


@pytest.mark.long
@over([entry for entry in MODELS_AND_PRIORS if entry.id in JOINT])
def test_sweeps_leave_the_joint_distribution_as_it_is(entry, monkeypatch):
    """What the exact posteriors do not have: Gammas on both sides, hierarchies, known components."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "fitting")
    from test_sampling import LARGEST_Z, geweke_scores

    def one_sweep(problem, state, rng):
        factors = factors_of(problem, state, rng)
        factors.sweep(1)
        return state_of(factors, factors.problem)

    scores = geweke_scores(entry, one_sweep, seed=1, steps=2_400)
    worst = max(scores, key=lambda name: abs(scores[name]))
    assert abs(scores[worst]) < LARGEST_Z, scores


# --- in users' hands -----------------------------------------------------------------------------------------


@brief
@pytest.mark.parametrize("model", ["gamma_poisson", "dirichlet_poisson", "dirichlet_gamma", "hierarchical_poisson"])
def test_every_model_can_be_sampled(model):
    drawn = bayesnmf.simulate("gamma_poisson", (30, 12), 2, seed=0).counts
    options = Gibbs(algorithm="marginal", chains=2, draws=40, warmup=20, threads=1, start="random")
    fit = bayesnmf.fit(drawn, model, 2, "gibbs", seed=0, options=options)
    again = bayesnmf.fit(drawn, model, 2, "gibbs", seed=0, options=replace(options, threads=2))
    np.testing.assert_array_equal(fit.posterior.loadings, again.posterior.loadings)
    np.testing.assert_array_equal(fit.trace, again.trace)
    loadings, components = fit.posterior.loadings, fit.posterior.components
    scale = {"dirichlet_poisson": drawn.row_totals, "dirichlet_gamma": fit.posterior.scale}.get(model, np.ones(30))
    totals = (scale[..., None] * loadings * components.sum(axis=-1)[..., None, :]).sum(axis=(-2, -1))
    assert totals.mean() == pytest.approx(drawn.total, rel=0.02)


@brief
def test_known_components_stay_and_empty_counts_are_legal():
    known = np.array([[0.5, 0.5, 0.0, 0.0], [0.0, 0.1, 0.4, 0.5]])
    counts = np.vstack([np.zeros(4, int), np.random.default_rng(0).poisson(5.0, (10, 4))])
    counts[:, 3] = 0
    options = Gibbs(start="random", algorithm="marginal", chains=1, draws=10, warmup=5)
    for rank in (2, 3):
        fit = bayesnmf.fit(counts, rank=rank, method="gibbs", seed=0, options=options, fixed_components=known)
        np.testing.assert_array_equal(fit.posterior.components[0, :, :2], np.tile(known, (10, 1, 1)))
        assert np.isfinite(fit.trace).all()


@brief
def test_chains_mix_where_allocations_hold_them():
    """Simulated counts, 40 × 20: the smallest effective sample size of as many draws."""
    priors = Priors(Gamma(1.0, 0.01), Dirichlet(1.0))
    counts = bayesnmf.simulate("gamma_poisson", (40, 20), 3, priors=priors, seed=2).counts
    sizes = {}
    for algorithm in ("marginal", "allocations"):
        options = Gibbs(priors=priors, algorithm=algorithm, start="random", chains=2, draws=120, warmup=60, threads=1)
        sizes[algorithm] = bayesnmf.fit(counts, rank=3, method="gibbs", seed=0, options=options).diagnostics["min_ess"]
    assert sizes["marginal"] > 2 * sizes["allocations"]


def test_what_does_not_work_together_is_refused():
    with pytest.raises(
        ValueError, match="collapsed needs algorithm='allocations': found algorithm='marginal', an algorithm of its own"
    ):
        Gibbs(collapsed=True, algorithm="marginal")
    with pytest.raises(ValueError, match="algorithm must be one of 'allocations', 'marginal'"):
        Gibbs(algorithm="entries")


@brief
def test_scales_of_components_mix_in_gibbs_over_allocations():
    """Without scale moves the autocorrelation of a component's sum is 0.95 at lag 5 here; with them, 0.2."""
    priors = Priors(Gamma(2.0, 0.1), Gamma(2.0, 1.0))
    counts = bayesnmf.simulate("gamma_poisson", (12, 8), 2, priors=priors, seed=1).counts
    options = Gibbs(priors=priors, chains=1, draws=400, warmup=50, start="random")
    fit = bayesnmf.fit(counts, rank=2, method="gibbs", seed=0, options=options)
    sums = np.log(fit.posterior.components[0].sum(axis=-1)).T
    assert max(np.corrcoef(each[:-5], each[5:])[0, 1] for each in sums) < 0.5


@pytest.mark.filterwarnings("ignore:gibbs did not converge")
@pytest.mark.parametrize(("times", "chosen"), [(1, "allocations"), (200, "marginal")])
def test_the_default_sampler_is_chosen_by_the_counts(times: int, chosen: str) -> None:
    """From 16 counts for each entry of loadings and components on, and never where collapsed or named otherwise."""
    counts = np.full((6, 5), times)
    options = Gibbs(start="random", chains=1, draws=20, warmup=5)
    assert bayesnmf.fit(counts, rank=2, method="gibbs", seed=0, options=options).options.algorithm == chosen
    named = replace(options, algorithm="allocations")
    assert bayesnmf.fit(counts, rank=2, method="gibbs", seed=0, options=named).options.algorithm == "allocations"
    collapsed = replace(options, collapsed=True)
    assert bayesnmf.fit(counts, rank=2, method="gibbs", seed=0, options=collapsed).options.algorithm is None


@pytest.mark.parametrize(("up", "down"), [(1.0, 1e15), (1e15, 1.0), (1e-12, 1e30), (1e300, 1e300)])
def test_a_scale_far_from_its_mode_is_drawn_in_few_steps(up: float, down: float) -> None:
    """Steps as wide as the curvature at 0 would be 1e8 and more; Ctrl-C is not heard meanwhile."""
    power, at = 3.0, 0.0
    for seed in range(60):
        at += log_scales(*(np.array([each]) for each in (power, up * np.exp(at), down * np.exp(-at))), seed)[0]
    middle = np.log(down / up) / 2
    assert abs(at - middle) < max(1.0, abs(power) / np.sqrt(up) / np.sqrt(down))


@pytest.mark.filterwarnings("ignore:gibbs did not converge")
@pytest.mark.parametrize("model", ["gamma_poisson", "dirichlet_poisson"])
def test_large_counts_and_tiny_concentrations_give_finite_draws(model: str) -> None:
    counts = np.random.default_rng(0).poisson(3, (6, 5)) * 1e15
    options = Gibbs(
        priors=Priors(components=Dirichlet(1e-8)), algorithm="marginal", start="random", chains=1, draws=20, warmup=5
    )
    fit = bayesnmf.fit(counts, model, 3, "gibbs", seed=0, options=options)
    assert np.isfinite(fit.trace).all()
    assert all(np.isfinite(each).all() for each in (fit.loadings, fit.components))
