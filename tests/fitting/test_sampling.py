"""Gibbs: Geweke's joint-distribution test of the sweep; Gibbs against NUTS; chains, seeds, threads."""

import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from arviz_stats.base import array_stats
from registry import MODELS_AND_PRIORS, every_entry, nasty_counts, over, plain_counts, proper_entries
from scipy import stats
from scipy.sparse import csr_array
from suites import mostly_long

import bayesnmf
from bayesnmf import NUTS, ConvergenceWarning, Dirichlet, Gamma, Gibbs, Priors, ScaledDirichlet, Start
from bayesnmf.data.counts import Counts
from bayesnmf.fitting.nuts_and_svi import log_joints
from bayesnmf.fitting.problems import draws_problem
from bayesnmf.inference import alignment
from bayesnmf.inference.problem import State
from bayesnmf.inference.sampling.gibbs import sweep
from bayesnmf.inference.side import Draw
from bayesnmf.inference.sides import objective, update_components, update_loadings
from bayesnmf.kernels.cpu.allocation import expected_allocations
from bayesnmf.kernels.cpu.sampling import sampled_allocations
from bayesnmf.priors import ScaledProportions, matrix
from bayesnmf.priors.pair import components_exchangeable

brief = pytest.mark.filterwarnings("ignore::bayesnmf.inference.status.ConvergenceWarning")  # chains of a few draws
THREADS = 2
# One of each pair of families.
ONE_OF_EACH = (
    "gamma_poisson", "doubly_gamma", "dirichlet_poisson", "dirichlet_gamma-sparse", "hierarchical_poisson-asymmetric",
    "partly_known-gammas",
)  # fmt: skip


def entry_of(name):
    return next(entry for entry in MODELS_AND_PRIORS if entry.id == name)


# --- Geweke's test ----------------------------------------------------------------------------------

TINY, TWO = (3, 4), 2
TOTALS = np.array([2, 4, 7])  # rows of dirichlet_poisson, where totals are given
FROM_PRIOR, STEPS, FEW_STEPS, BATCHES = 20_000, 1_200, 600, 40
LARGEST_Z = 4.5  # of 260 scores with 39 degrees of freedom: exceeded by chance in 1 of 70 suites; seeds are fixed


def simulate_counts(model, rates, rng):
    """Counts (…, n, m) given rates; given the row totals where the model says so."""
    if model == "dirichlet_poisson":
        return rng.multinomial(TOTALS, rates / rates.sum(axis=-1, keepdims=True))
    return rng.poisson(rates)


def functionals(loadings, components, counts):
    """Scalars of a joint draw, or of many: first and second moments of every part, and of how they hang together.

    Averages over the entries of a part have less noise than single entries; logarithms tame heavy tails.
    """
    theta, beta = loadings, components
    sums, lengths = theta.sum(axis=-2), beta.sum(axis=-1)
    shares = theta / theta.sum(axis=-1, keepdims=True)
    profiles = beta / lengths[..., None]
    log_theta, log_beta = np.log1p(theta), np.log1p(beta)
    log_counts = np.log1p(counts)
    total = counts.sum(axis=(-2, -1))
    both, last = (-2, -1), -1
    values = {
        "loading": log_theta[..., 0, 0],
        "loadings": log_theta.mean(axis=both),
        "loadings squared": (log_theta**2).mean(axis=both),
        "shares of component 0": shares[..., 0].mean(axis=last),
        "shares squared": (shares**2).mean(axis=both),
        "component": log_beta[..., 1, 3],
        "components": log_beta.mean(axis=both),
        "components squared": (profiles**2).mean(axis=both),
        "exposures": np.log1p(sums).mean(axis=last),
        "lengths": np.log1p(lengths).mean(axis=last),
        "exposures and lengths": (np.log1p(sums) * np.log1p(lengths)).mean(axis=last),
        "overlap of components": (profiles[..., 0, :] * profiles[..., 1, :]).sum(axis=last),
        "overlap of rows": (shares[..., 0, :] * shares[..., 1, :]).sum(axis=last),
        "rates": np.log1p(theta @ beta).mean(axis=both),
        "counts": log_counts.mean(axis=both),
        "no counts": (counts == 0).mean(axis=both),
        "total": np.log1p(total),
        "total squared": np.log1p(total) ** 2,
        "counts and shares": (log_counts[..., None] * shares[..., None, :] * profiles.swapaxes(-1, -2)[..., None, :, :])
        .sum(axis=last)
        .mean(axis=both),
        "total and exposures": np.log1p(total) * np.log1p(sums).mean(axis=last),
    }
    return {name: np.asarray(value, float) for name, value in values.items()}


def as_tiny_counts(counts):
    entries = csr_array(counts.astype(np.float64))
    entries.indices, entries.indptr = entries.indices.astype(np.int32), entries.indptr.astype(np.int32)
    return Counts(entries, np.arange(TINY[0]), np.arange(TINY[1]))


def from_prior(entry, rng):
    """Independent draws of everything."""
    priors, (n, m) = entry.priors(TINY, TWO), TINY
    loadings = priors.loadings.broadcast((n, TWO)).draw(rng, (FROM_PRIOR,))
    components = priors.components.broadcast((TWO, m)).draw(rng, (FROM_PRIOR,))
    theta = matrix(loadings)
    return functionals(theta, components, simulate_counts(entry.model, theta @ components, rng))


def by_sweeps(entry, rng, one_sweep, steps):
    """The successive-conditional simulator: a sweep given the counts, counts given the factors, and so on."""
    priors, (n, m) = entry.priors(TINY, TWO), TINY
    carry = Draw(rng)
    state = State(
        carry.of(priors.loadings, priors.loadings.broadcast((n, TWO))),
        carry.of(priors.components, priors.components.broadcast((TWO, m))),
    )
    seen = []
    for _ in range(steps):
        counts = simulate_counts(entry.model, state.loadings.matrix @ state.components.matrix, rng)
        problem = draws_problem(as_tiny_counts(counts), priors, rng)
        seen.append((state.loadings.matrix, state.components.matrix, counts))
        state = one_sweep(problem, state, rng)
    return functionals(*(np.stack(parts) for parts in zip(*seen, strict=True)))


def geweke_scores(entry, one_sweep, seed, steps=STEPS):
    """Z scores of the differences of means; errors of the chain by batches, which allow for autocorrelation."""
    rng = np.random.default_rng(seed)
    exact, chain = from_prior(entry, rng), by_sweeps(entry, rng, one_sweep, steps)
    scores = {}
    for name, draws in chain.items():
        batches = draws.reshape(BATCHES, -1).mean(axis=1)
        variance = batches.var(ddof=1) / BATCHES + exact[name].var() / FROM_PRIOR
        difference = draws.mean() - exact[name].mean()
        # A functional that is a constant (total counts that are given) must be that constant.
        scores[name] = difference / np.sqrt(variance) if variance > 1e-20 else 1e3 * difference
    return scores


def right_sweep(problem, state, rng):
    return sweep(problem, state, rng, 1)[0]


def wrong_sweep(problem, state, rng, fault):
    """A sweep with one fault."""
    at = (problem.counts.matrix, state.loadings.geometric, state.components.geometric)
    totals = sampled_allocations(*at, int(rng.integers(2**63)), 1)
    A, B = totals.loadings, totals.components
    if fault == "expected instead of drawn":
        A, B, _ = expected_allocations(*at, 1)
    if fault == "one count too many":
        A = A + np.eye(1, A.shape[1])
    new = update_loadings(problem, state, A)
    return State(new.loadings, update_components(problem, new, B).components)


def assert_left_as_it_is(scores):
    assert np.isfinite(list(scores.values())).all()
    worst = max(scores, key=lambda name: abs(scores[name]))
    assert abs(scores[worst]) < LARGEST_Z, scores


@pytest.mark.long
@proper_entries
def test_sweeps_leave_the_joint_distribution_as_it_is(entry):
    assert_left_as_it_is(geweke_scores(entry, right_sweep, seed=12))


@pytest.mark.parametrize("name", ["gamma_poisson", "dirichlet_poisson-asymmetric", "dirichlet_gamma"])
def test_a_few_sweeps_leave_the_joint_distribution_as_it_is(name):
    assert_left_as_it_is(geweke_scores(entry_of(name), right_sweep, seed=14, steps=FEW_STEPS))


@pytest.mark.parametrize(
    ("name", "fault"),
    mostly_long(
        [
            ("gamma_poisson", "one count too many"),
            ("dirichlet_poisson", "expected instead of drawn"),
            ("dirichlet_gamma", "one count too many"),
        ],
        default=2,
    ),
)
def test_a_sweep_with_a_fault_changes_the_joint_distribution(name, fault):
    scores = geweke_scores(entry_of(name), partial(wrong_sweep, fault=fault), seed=13, steps=FEW_STEPS)
    assert max(abs(score) for score in scores.values()) > 1.3 * LARGEST_Z, scores


@pytest.mark.long
def test_a_sweep_without_the_fault_leaves_the_joint_distribution_as_it_is():
    """The harness of the faults itself has none."""
    assert_left_as_it_is(geweke_scores(entry_of("doubly_gamma"), partial(wrong_sweep, fault=None), seed=14))


def test_components_are_drawn_given_the_new_loadings():
    """With one component allocations are the counts: given new loadings, β_j is Gamma(a + Σ_i X_ij, Σ_i θ_i) but for b.

    The last step of a sweep divides β by what it multiplies θ by. The loadings before are far off: they would show.
    """
    priors, rng = Priors(Gamma(1.5, 0.4), Gamma(1.2, 1e-9)), np.random.default_rng(0)
    counts = np.full((5, 4), 1_000.0)
    problem, carry = draws_problem(bayesnmf.data.conversion.as_counts(counts), priors, rng), Draw(rng)
    state = State(carry.at(priors.loadings, np.full((5, 1), 9.0)), carry.at(priors.components, np.full((1, 4), 3.0)))
    new, _ = sweep(problem, state, rng, 1)
    shape = 1.2 + counts.sum(axis=0)
    scores = (new.components.matrix[0] * new.loadings.matrix.sum() - shape) / np.sqrt(shape)
    assert np.abs(scores).max() < 4
    assert scores.std() > 0.1


# --- Gibbs and NUTS ---------------------------------------------------------------------------------


def rates(fit):
    """Draws of the mean counts (chains, draws, n, m), which no relabelling changes."""
    draws = fit.posterior
    scale = 1.0 if draws.scale is None else draws.scale[..., None]
    return draws.loadings * scale @ draws.components


def mean_and_error(draws):
    return draws.mean(axis=(0, 1)), array_stats.mcse(draws, chain_axis=0, draw_axis=1)


@pytest.mark.long
@brief
@pytest.mark.parametrize("name", ["doubly_gamma", "dirichlet_gamma-asymmetric"])
def test_gibbs_and_nuts_agree_on_rates_and_log_joint(name):
    entry = entry_of(name)
    counts = plain_counts(seed=4, size=(12, 8))
    counts[3] = 0
    priors = entry.priors(counts.shape, 2)
    gibbs, nuts = (
        bayesnmf.fit(counts, entry.model, 2, method, seed=5, options=options)
        for method, options in (
            ("gibbs", Gibbs(priors=priors, chains=2, draws=1_500, warmup=200)),
            ("nuts", NUTS(priors=priors, chains=2, draws=300, warmup=200)),
        )
    )
    assert nuts.diagnostics["divergences"] == 0
    for draws in (rates, lambda fit: fit.trace[..., None]):
        (one, error), (two, other) = mean_and_error(draws(gibbs)), mean_and_error(draws(nuts))
        assert np.all(np.isfinite(error))
        assert np.all(np.isfinite(other))
        # 97 correlated z scores, their errors good to a tenth or so.
        assert np.abs((one - two) / np.hypot(error, other)).max() < 4.5
        assert np.max(np.hypot(error, other) / (np.abs(one) + 0.1)) < 0.15  # or it says nothing


@pytest.mark.long
def test_nuts_works_after_arviz_was_imported():
    """ArviZ puts a lazy stand-in for NumPyro among the modules, which an import of a part of it tears."""
    code = (
        "import arviz_base, bayesnmf.inference.sampling.nuts_and_svi, numpyro; numpyro.distributions.distribution.Unit"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@brief
def test_nuts_takes_fractions_and_gibbs_refuses_them():
    counts = plain_counts(size=(5, 5)) + 0.5
    options = {
        "priors": entry_of("doubly_gamma").priors((5, 5), 2),
        "chains": 2,
        "draws": 5,
        "warmup": 5,
        "start": "random",
    }
    fit, again = (bayesnmf.fit(counts, "gamma_poisson", 2, "nuts", seed=1, options=NUTS(**options)) for _ in range(2))
    np.testing.assert_array_equal(fit.posterior.loadings, again.posterior.loadings)
    np.testing.assert_array_equal(fit.trace, again.trace)
    assert np.all(np.isfinite(fit.trace))
    with pytest.raises(ValueError, match=r"method='gibbs' needs whole-number counts: found \d+\.5 at row 0"):
        bayesnmf.fit(counts, "gamma_poisson", 2, "gibbs", options=Gibbs(**options))


# --- chains -----------------------------------------------------------------------------------------

FEW = {"chains": 2, "draws": 6, "warmup": 2, "start": "random"}


def run(entry, counts, *, seed=3, rank=2, priors=None, progress=False, **settings):
    priors = entry.priors(counts.shape, rank) if priors is None else priors
    options = Gibbs(**{"priors": priors, **FEW, **settings})
    return bayesnmf.fit(counts, entry.model, rank, "gibbs", seed=seed, options=options, progress=progress)


def parts(fit):
    draws = fit.posterior
    named = {"loadings": draws.loadings, "components": draws.components, "trace": fit.trace}
    return named if draws.scale is None else {**named, "scale": draws.scale}


def same(one, two):
    for name, values in parts(one).items():
        np.testing.assert_array_equal(values, parts(two)[name], err_msg=name)


@brief
@every_entry
def test_draws_are_positive_with_their_means_and_log_joints(entry):
    counts = nasty_counts()
    fit = run(entry, counts, rank=3)
    n, m = counts.shape
    draws = fit.posterior
    assert draws.loadings.shape == (2, 6, n, 3)
    assert draws.components.shape == (2, 6, 3, m)
    assert (draws.chains, draws.draws) == (2, 6)
    assert (draws.scale is None) == (entry.model != "dirichlet_gamma")
    for values in parts(fit).values():
        assert np.all(np.isfinite(values))
    assert min(draws.loadings.min(), draws.components.min()) > 0
    np.testing.assert_allclose(fit.loadings, draws.loadings.mean(axis=(0, 1)))
    np.testing.assert_allclose(fit.components, draws.components.mean(axis=(0, 1)))
    loadings = draws.loadings
    if draws.scale is not None:
        np.testing.assert_allclose(fit.scale, draws.scale.mean(axis=(0, 1)))
        loadings = ScaledProportions(loadings, draws.scale[..., None])
    expected = log_joints(fit.counts, entry.priors(counts.shape, 3), loadings, draws.components)
    np.testing.assert_allclose(fit.trace, expected, rtol=1e-9)


@brief
@over(MODELS_AND_PRIORS, default=ONE_OF_EACH)
def test_draws_follow_the_seed_and_nothing_else(entry):
    counts = nasty_counts()
    one = run(entry, counts, threads=1)
    same(one, run(entry, counts, threads=1))
    same(one, run(entry, counts, threads=THREADS))
    same(one, run(entry, csr_array(counts), threads=None))
    assert not np.any(parts(one)["trace"] == parts(run(entry, counts, seed=4))["trace"])
    assert not np.any(one.trace[0] == one.trace[1])  # chains have streams of their own


@brief
@over([entry_of(name) for name in ("gamma_poisson", "dirichlet_gamma")], default=("gamma_poisson",))
def test_chains_from_a_fit_do_not_depend_on_threads(entry):
    """The fit that they start from too."""
    counts = nasty_counts(size=(6, 5))
    one = run(entry, counts, threads=1, start="fit")
    same(one, run(entry, counts, threads=THREADS, start="fit"))
    assert len(np.unique(one.posterior.loadings[:, 0, 0, 0])) == 2  # chains start at different states


@brief
def test_a_single_chain_does_not_depend_on_threads():
    counts = nasty_counts(size=(60, 20))
    entry = entry_of("gamma_poisson")
    one, two = (run(entry, counts, chains=1, threads=threads) for threads in (1, THREADS))
    np.testing.assert_array_equal(one.posterior.loadings, two.posterior.loadings)
    np.testing.assert_array_equal(one.posterior.components, two.posterior.components)
    np.testing.assert_allclose(one.trace, two.trace, rtol=1e-12)  # a sum over blocks of rows


@brief
def test_warm_up_and_thinning_keep_what_they_say():
    """Draw d of a chain is its state after warmup + (d + 1) · thin sweeps."""
    counts, entry = plain_counts(), entry_of("doubly_gamma-asymmetric")  # never relabelled
    every = run(entry, counts, draws=12, warmup=0, rank=3).posterior.loadings
    for warmup, thin in ((0, 3), (4, 2), (4, 1), (11, 1)):
        draws = (12 - warmup) // thin
        some = run(entry, counts, draws=draws, warmup=warmup, thin=thin, rank=3).posterior.loadings
        np.testing.assert_array_equal(some, every[:, warmup + thin - 1 :: thin])


@brief
@pytest.mark.parametrize("start", mostly_long(["random", "fit"]))
def test_chains_start_at_different_states(start):
    counts, entry = plain_counts(), entry_of("doubly_gamma-asymmetric")
    first = run(entry, counts, warmup=0, draws=1, chains=3, start=start).posterior.loadings[:, 0]
    assert len(np.unique(first[:, 0, 0])) == 3


@brief
def test_a_given_start_is_where_chains_start():
    """A state that the data hold fast: a thousand counts in two blocks, with the components the other way round."""
    counts, entry = np.kron(np.eye(2), np.full((3, 3), 1_000.0)), entry_of("gamma_poisson-asymmetric")
    rows, columns = np.arange(6) // 3, np.arange(6) // 3
    for order in ([0, 1], [1, 0]):
        loadings = np.eye(2)[rows][:, order] * 3_000 + 1.0
        components = np.eye(2)[order][:, columns] / 3 + 1e-6
        start = Start(loadings, components / components.sum(axis=1, keepdims=True))
        fit = run(entry, counts, start=start)
        assert np.all(alignment.cosine(fit.components, components).argmax(axis=1) == [0, 1])
        again = run(entry, counts, start=fit)
        assert np.all(alignment.cosine(again.components, components).argmax(axis=1) == [0, 1])


BLOCKS = np.kron(np.eye(3), np.full((6, 4), 20.0)) + np.random.default_rng(0).poisson(0.2, (18, 12))


@brief
def test_components_of_all_chains_come_in_one_order():
    """Three clear components: from random starts chains find them in different orders, and are brought into one."""
    priors = Priors(Gamma(1.0, 0.1), Dirichlet(0.5))
    fit = run(entry_of("gamma_poisson"), BLOCKS, priors=priors, rank=3, chains=4, draws=20, warmup=60)
    by_chain = fit.posterior.components.mean(axis=1)
    for components in by_chain:
        similar = alignment.cosine(components, by_chain[0])
        assert np.diag(similar).min() > 0.99
        assert (similar - np.diag(np.diag(similar))).max() < 0.2
    # Loadings are permuted with them: every chain gives every block of rows to the component of its columns.
    for loadings, components in zip(fit.posterior.loadings.mean(axis=1), by_chain, strict=True):
        for block in range(3):
            rows, columns = slice(6 * block, 6 * block + 6), slice(4 * block, 4 * block + 4)
            assert np.all(loadings[rows].argmax(axis=1) == components[:, columns].sum(axis=1).argmax())


@brief
def test_random_starts_do_need_aligning():
    """Under a prior that hardly tells components apart they are not relabelled, and come in several orders."""
    nearly = Priors(Gamma(1.0, 0.1 + 1e-9 * np.arange(3)), Dirichlet(0.5))
    fit = run(entry_of("gamma_poisson"), BLOCKS, priors=nearly, rank=3, chains=6, draws=5, warmup=30)
    orders = {tuple(chain.mean(axis=0).argmax(axis=1) // 4) for chain in fit.posterior.components}
    assert len(orders) > 1


@pytest.mark.parametrize(
    ("loadings", "components", "alike"),
    [
        (Gamma(1.0, 0.5), Dirichlet(1.0), True),
        (Gamma(1.0, 0.0), Dirichlet([1.0, 2.0, 3.0]), True),
        (Gamma([[1.0], [2.0]], 0.5), Gamma(1.0, [1.0, 2.0, 3.0]), True),
        (ScaledDirichlet(1.0, [[1.0], [2.0]], [[0.5], [0.1]]), Dirichlet(1.0), True),
        (Dirichlet([2.0, 2.0]), Dirichlet(np.ones((2, 3))), True),
        (Gamma([1.0, 2.0], 0.5), Dirichlet(1.0), False),
        (Gamma(1.0, [0.5, 0.6]), Dirichlet(1.0), False),
        (Dirichlet([[1.0, 2.0]]), Dirichlet(1.0), False),
        (ScaledDirichlet([1.0, 2.0], 1.0, 1.0), Dirichlet(1.0), False),
        (Gamma(1.0, 0.5), Gamma([[1.0], [2.0]], 1.0), False),
        (Dirichlet(1.0), Dirichlet([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]), False),
    ],
)
def test_components_are_exchangeable_where_no_prior_tells_them_apart(loadings, components, alike):
    assert components_exchangeable(Priors(loadings, components)) == alike


@brief
def test_asymmetric_priors_keep_their_order():
    """The prior says which component is which: component 0 is the common one, whatever the chain started from."""
    counts = np.outer(np.full(8, 20), [9, 1, 1, 1]) + np.outer(np.arange(8), [0, 1, 1, 3])
    priors = Priors(Dirichlet([60.0, 2.0]), Dirichlet(1.0))
    fit = run(entry_of("dirichlet_poisson"), counts, priors=priors, chains=4, draws=10, warmup=30, seed=8)
    assert np.all(fit.posterior.loadings[..., 0] > fit.posterior.loadings[..., 1])


def test_chains_that_mixed_say_so_and_others_warn():
    counts, entry = plain_counts(), entry_of("gamma_poisson")
    fit = run(entry, counts, rank=1, chains=2, draws=300, warmup=20)  # a warning would be an error
    assert fit.status.converged
    assert fit.status.reason.startswith("600 draws; R-hat at most 1.0")
    assert fit.diagnostics["r_hat_log_joint"] < 1.05
    assert fit.diagnostics["ess_log_joint"] > 200
    with pytest.warns(ConvergenceWarning, match=r"gibbs did not converge .*raise warmup and draws in bayesnmf.Gibbs"):
        assert not run(entry, counts, draws=3).status.converged


def test_a_single_chain_is_judged_by_its_halves():
    fit = run(entry_of("gamma_poisson"), plain_counts(), rank=1, chains=1, draws=500, warmup=20)
    assert fit.status.converged
    assert fit.diagnostics["r_hat_log_joint"] < 1.05


def interrupted(entry, counts, at, **settings):
    """A fit that Ctrl-C ends after `at` sweeps of all chains."""

    def stop(label, done, total, objective):
        assert label == f"gibbs {entry.model}"
        if done == at:
            raise KeyboardInterrupt

    try:
        with pytest.warns(ConvergenceWarning, match="interrupted"):
            return run(entry, counts, progress=stop, **settings)
    except KeyboardInterrupt:  # or it would end the whole suite
        return pytest.fail("the draws are lost")


def test_interruption_keeps_what_there_is():
    counts, entry = plain_counts(), entry_of("gamma_poisson-asymmetric")
    settings = {"chains": 1, "warmup": 5, "seed": 2}
    fit = interrupted(entry, counts, 50, draws=1_000, **settings)
    assert (fit.status.converged, fit.status.reason) == (False, "interrupted")
    chains, draws = fit.trace.shape
    assert chains == 1
    assert 40 <= draws <= 45
    with pytest.warns(ConvergenceWarning):
        whole = run(entry, counts, draws=draws, **settings)
    np.testing.assert_array_equal(fit.trace, whole.trace)
    np.testing.assert_array_equal(fit.posterior.loadings, whole.posterior.loadings)


def test_interruption_keeps_complete_chains():
    """Chains run one after the other, and the second is still warming up."""
    settings = {"chains": 3, "draws": 10, "warmup": 20, "threads": 1}
    fit = interrupted(entry_of("gamma_poisson-asymmetric"), plain_counts(), 35, **settings)
    assert fit.trace.shape == (1, 10)


def test_interruption_before_any_draw_is_passed_on():
    def stop(label, done, total, objective):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(entry_of("gamma_poisson"), plain_counts(), progress=stop)


@brief
@over([entry_of("gamma_poisson"), entry_of("dirichlet_poisson-sparse")])
def test_all_zero_counts_give_the_prior(entry):
    """Nothing seen: every sweep draws components from their prior anew. Both together, as they are relabelled."""
    fit = run(entry, np.zeros((4, 3)), chains=2, draws=150, warmup=1)
    alpha = float(entry.priors((4, 3), 2).components.concentration)
    for j in range(3):
        entries = fit.posterior.components[..., j].ravel()
        assert stats.kstest(entries, stats.beta(alpha, 2 * alpha).cdf).pvalue > 1e-3


def test_the_log_joint_of_a_sweep_is_that_of_the_state_it_leaves():
    entry, rng = entry_of("dirichlet_gamma"), np.random.default_rng(2)
    counts = bayesnmf.data.conversion.as_counts(nasty_counts())
    priors = entry.priors()
    problem = draws_problem(counts, priors, rng)
    state = State(
        problem.loadings_summary.of(priors.loadings, priors.loadings.broadcast((9, 3))),
        problem.components_summary.of(priors.components, priors.components.broadcast((3, 7))),
    )
    ell = expected_allocations(counts.matrix, state.loadings.geometric, state.components.geometric).loglik
    _, found = sweep(problem, state, rng, 1)
    np.testing.assert_allclose(found, objective(problem, state, ell), rtol=1e-12)
