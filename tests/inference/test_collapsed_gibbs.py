"""Collapsed Gibbs: it leaves p(S | X) as it is, and its draws are those of plain Gibbs."""

import numpy as np
import pytest
from golden import reference
from registry import nasty_counts, plain_counts
from suites import mostly_long

import bayesnmf
from bayesnmf import ConvergenceWarning, Dirichlet, Gamma, Gibbs, Priors, ScaledDirichlet
from bayesnmf.data.conversion import as_counts
from bayesnmf.fitting import job
from bayesnmf.fitting.problems import draws_problem, start_state
from bayesnmf.inference.marginal.allocation_model import log_p_allocation, urn_of
from bayesnmf.inference.problem import State
from bayesnmf.inference.sampling.gibbs import Schedule, collapsed_gibbs_chain
from bayesnmf.inference.sides import objective
from bayesnmf.kernels.cpu import urn as urn_module
from bayesnmf.kernels.cpu.allocation import expected_allocations
from bayesnmf.kernels.cpu.urn import assign_tokens, reassign_tokens
from bayesnmf.priors import ScaledProportions

brief = pytest.mark.filterwarnings("ignore::bayesnmf.inference.status.ConvergenceWarning")  # chains of a few draws
ETA = np.array([[0.4, 0.9, 1.5], [1.2, 0.3, 0.7]])
CASES = {  # every parameter differs between rows, components or features
    "gamma_poisson": Priors(Gamma([[0.5, 1.5], [1.0, 0.7]], [[0.4, 1.3], [2.0, 0.2]]), Dirichlet(ETA)),
    "dirichlet_poisson": Priors(Dirichlet([[0.5, 1.5], [1.0, 0.7]]), Dirichlet(ETA)),
    "dirichlet_gamma": Priors(ScaledDirichlet([0.5, 1.5], [[2.0], [1.0]], [[0.5], [0.8]]), Dirichlet(ETA)),
    "poisson": Priors(Gamma(1.0, 0.0), Dirichlet(0.6)),  # flat: the posterior is proper all the same
}
every_case = pytest.mark.parametrize("model", CASES)
BATCHES, LARGEST_Z = 40, 4.5  # with 39 degrees of freedom exceeded by chance once in 8,000; seeds are fixed
COUNTS = np.array([[2, 1, 0], [1, 0, 2]])


def batch_scores(draws, expected):
    """Z scores of means over a chain (draws, …), the error by batches, which allow for autocorrelation."""
    batches = draws.reshape(BATCHES, -1, *draws.shape[1:]).mean(axis=1)
    return (batches.mean(axis=0) - expected) / (batches.std(axis=0, ddof=1) / np.sqrt(BATCHES))


def tokens_of(counts, rank, seed=0):
    rng = np.random.default_rng(seed)
    n, m = counts.shape
    matrix = as_counts(counts).matrix
    return matrix, assign_tokens(matrix, rng.gamma(1.0, size=(n, rank)), rng.dirichlet(np.ones(m), rank), seed)


def recounted(matrix, tokens):
    """Totals from the assignments alone."""
    rows, columns = matrix.nonzero()
    times = matrix.data.astype(int)
    A, Bt = np.zeros_like(tokens.loadings), np.zeros_like(tokens.components)
    np.add.at(A, (np.repeat(rows, times), tokens.assignments), 1)
    np.add.at(Bt, (np.repeat(columns, times), tokens.assignments), 1)
    return A, Bt


# --- the sweep ----------------------------------------------------------------------------------------


@every_case
def test_long_run_frequencies_are_the_posterior_of_the_allocation(model):
    """Against all allocations, enumerated: each S as often as p(S) / p(X) says."""
    priors, sweeps = CASES[model], 8_000
    allocations = list(reference.enumerate_allocations(COUNTS, 2))
    log_p = np.array([log_p_allocation(S, priors.loadings, priors.components) for S in allocations])
    posterior = np.exp(log_p - log_p.max()) / np.exp(log_p - log_p.max()).sum()
    matrix, tokens = tokens_of(COUNTS, 2)
    urn = urn_of(priors.loadings, priors.components, 2, 3)
    seen = np.empty((sweeps, int(COUNTS.sum())), dtype=np.uint8)
    for sweep in range(sweeps):
        reassign_tokens(matrix, tokens, urn, sweep)
        seen[sweep] = tokens.assignments
    starts = np.cumsum([0, *matrix.data[:-1]]).astype(int)
    in_second = np.add.reduceat(seen, starts, axis=1)  # of the counts of every nonzero: this is S, with K = 2
    entries = [S[rows, 1, columns] for S in allocations for rows, columns in [matrix.nonzero()]]
    visits = np.stack([np.all(in_second == entry, axis=1) for entry in entries], axis=1).astype(float)
    assert np.all(visits.sum(axis=1) == 1)
    scores = batch_scores(visits, posterior)
    assert np.abs(scores).max() < LARGEST_Z
    assert np.mean(scores**2) < 2.2  # 1 on average, with a standard deviation of about 1/4


@pytest.mark.parametrize("rank", [1, 3, 300])
def test_totals_are_those_of_the_assignments_and_the_counts(rank):
    counts = nasty_counts()
    matrix, tokens = tokens_of(counts, rank)
    urn = urn_of(Gamma(0.3, 0.1), Dirichlet(0.01), rank, counts.shape[1])
    assert tokens.assignments.dtype == (np.uint8 if rank < 256 else np.uint16)
    for seed in range(3):
        for total, again in zip((tokens.loadings, tokens.components), recounted(matrix, tokens), strict=True):
            np.testing.assert_array_equal(total, again)
        np.testing.assert_array_equal(tokens.loadings.sum(axis=1), counts.sum(axis=1))
        np.testing.assert_array_equal(tokens.components.sum(axis=1), counts.sum(axis=0))
        reassign_tokens(matrix, tokens, urn, seed)


@pytest.mark.parametrize("tokens_at_once", [1, 3, 10])
def test_pieces_of_a_sweep_draw_what_the_whole_sweep_does(tokens_at_once, monkeypatch):
    """Wherever they end: within an entry, between two, after a row; entries and rows without counts are among them."""
    priors = Gamma(np.linspace(0.2, 2.0, 11)[:, None] * [1, 2, 3], 0.1), Dirichlet(0.3)

    def drawn(at_once):
        monkeypatch.setattr(urn_module, "tokens_at_once", lambda _: at_once)
        matrix, tokens = tokens_of(nasty_counts(), 3)
        heard = []
        for seed in range(3):
            reassign_tokens(matrix, tokens, urn_of(*priors, 3, matrix.shape[1]), seed, lambda: heard.append(None))
        return tokens, heard, int(matrix.sum())

    whole, nothing, total = drawn(10**9)
    parts, heard, _ = drawn(tokens_at_once)
    assert (len(nothing), len(heard)) == (0, 3 * ((total - 1) // tokens_at_once))
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one, other)


def test_first_assignments_are_draws_given_the_factors():
    """An entry of many counts shows its φ: shares within 4.5 standard deviations of a binomial."""
    count, loadings, components = 100_000, np.array([[0.2, 3.0, 1.0]]), np.array([[0.9], [0.1], [0.6]])
    tokens = assign_tokens(as_counts([[count]]).matrix, loadings, components, 7)
    phi = expected_allocations(as_counts([[1]]).matrix, loadings, components, 1).loadings
    deviations = np.abs(tokens.loadings - count * phi) / np.sqrt(count * phi * (1 - phi))
    assert deviations.max() < LARGEST_Z


def test_first_assignments_where_the_mean_of_a_entry_underflows():
    tiny = np.full((1, 2), 1e-200)
    tokens = assign_tokens(as_counts([[9]]).matrix, tiny * [1, 1e-30], tiny.T, 0)
    np.testing.assert_array_equal(tokens.loadings, [[9, 0]])


def test_the_counts_are_not_touched():
    matrix, tokens = tokens_of(plain_counts(), 3)
    before = matrix.toarray()
    reassign_tokens(matrix, tokens, urn_of(Gamma(1.0, 1.0), Dirichlet(1.0), 3, 7), 0)
    np.testing.assert_array_equal(matrix.toarray(), before)


# --- chains -------------------------------------------------------------------------------------------


def run(model, counts=None, rank=2, seed=0, progress=False, **settings):
    options = Gibbs(**{"collapsed": True, "chains": 2, "draws": 30, "warmup": 20, "start": "random", **settings})
    counts = plain_counts(size=(6, 5)) if counts is None else counts
    return bayesnmf.fit(counts, model, rank, "gibbs", seed=seed, options=options, progress=progress)


AGREEING = {  # of 6 × 5 counts; few tokens and one mode, so that plain Gibbs mixes too
    "gamma_poisson": Priors(Gamma([1.5, 0.8], [0.3, 0.6]), Dirichlet(1.2)),
    "dirichlet_poisson": Priors(Dirichlet([1.5, 0.8]), Dirichlet(1.2)),
    "dirichlet_gamma": Priors(ScaledDirichlet([1.5, 0.8], 2.0, 0.4), Dirichlet(1.2)),
}


@brief
@pytest.mark.parametrize("model", mostly_long(AGREEING, [2]))
def test_posterior_means_are_those_of_plain_gibbs(model):
    """Log joint, rates, and a mean square that tells components apart: the draws have the same form and law."""
    counts = plain_counts(size=(6, 5), mean=1.5)
    found = []
    for collapsed in (True, False):
        settings = {"draws": 400, "warmup": 50, "chains": 1, "priors": AGREEING[model], "collapsed": collapsed}
        fit = run(model, counts, **settings)
        draws = fit.posterior
        rates = np.einsum("cdnk,cdkm->dnm", draws.loadings, draws.components)
        squares = (draws.components**2).mean(axis=(0, 2, 3))[:, None]
        parts = [fit.trace.T, rates.reshape(len(rates), -1), squares]
        if draws.scale is not None:
            parts.append(draws.scale[0])
        batches = np.concatenate(parts, axis=1).reshape(BATCHES, -1, sum(p.shape[1] for p in parts)).mean(axis=1)
        found.append((batches.mean(axis=0), batches.var(axis=0, ddof=1) / BATCHES))
    (mean, variance), (other, its_variance) = found
    assert np.abs((mean - other) / np.sqrt(variance + its_variance)).max() < LARGEST_Z


@brief
@pytest.mark.parametrize("model", mostly_long(CASES, 2))
def test_draws_have_the_form_of_plain_gibbs(model):
    counts = nasty_counts()
    priors = Priors(CASES[model].loadings if model == "poisson" else None, Dirichlet(0.7))
    one, plain = (run(model, counts, 3, priors=priors, collapsed=c) for c in (True, False))
    assert one.posterior.loadings.shape == plain.posterior.loadings.shape == (2, 30, 9, 3)
    assert one.posterior.components.shape == plain.posterior.components.shape
    assert (one.posterior.scale is None) == (plain.posterior.scale is None)
    assert one.trace.shape == (2, 30)
    np.testing.assert_allclose(one.posterior.components.sum(axis=-1), 1, rtol=1e-12)
    assert np.isfinite(one.trace).all()


@brief
@pytest.mark.parametrize("model", AGREEING)
def test_the_log_joint_is_that_of_the_draw(model):
    counts = plain_counts(size=(6, 5))
    fit = run(model, counts, priors=AGREEING[model])
    problem = draws_problem(as_counts(counts), fit.priors, np.random.default_rng(0))
    posterior = fit.posterior
    for at in ((0, 0), (1, 7), (1, 29)):
        value = posterior.loadings[at]
        if posterior.scale is not None:
            value = ScaledProportions(value, posterior.scale[at][:, None])
        state = State(
            problem.loadings_summary.at(problem.loadings_prior, value),
            problem.components_summary.at(problem.components_prior, posterior.components[at]),
        )
        loglik = expected_allocations(problem.counts.matrix, state.loadings.geometric, posterior.components[at]).loglik
        # The components' order is asymmetric here, so no draw was relabelled; sums differ by rounding.
        assert fit.trace[at] == pytest.approx(objective(problem, state, loglik), rel=1e-12)


@brief
def test_draws_follow_the_seed_and_not_the_threads():
    one, same, other = run("gamma_poisson", threads=1), run("gamma_poisson", threads=2), run("gamma_poisson", seed=1)
    np.testing.assert_array_equal(one.posterior.loadings, same.posterior.loadings)
    np.testing.assert_array_equal(one.trace, same.trace)
    assert not np.array_equal(one.trace, other.trace)


def test_every_kept_draw_is_so_many_sweeps_after_the_last():
    """Warm-up 2, thinning 3: kept are the states after 5, 8 and 11 sweeps, and drawn for these alone."""
    reports = []
    rng = np.random.default_rng(5)
    problem = draws_problem(as_counts(plain_counts(size=(6, 5))), AGREEING["gamma_poisson"], rng)
    state = start_state(problem, "random", 2, rng)
    chain = collapsed_gibbs_chain(
        problem, state, rng, Schedule(2, 3, 3), 1, lambda done, value, _: reports.append(value)
    )
    assert len(chain.draws) == len(chain.log_joint) == 3
    assert np.flatnonzero(np.isfinite(reports)).tolist() == [5, 8]  # the last one ends the chain
    assert len(reports) == 11


@brief
def test_chains_start_from_a_fit_by_default_and_continue_from_one():
    first = run("gamma_poisson", start="fit", draws=10)
    again = run("gamma_poisson", start=first, draws=10)
    assert again.trace.shape == (2, 10)


@brief
def test_interruption_keeps_what_there_is():
    def stop(label, done, total, value):
        if done == 31:
            raise KeyboardInterrupt

    settings = {"chains": 1, "warmup": 20, "threads": 1}
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        fit = run("gamma_poisson", progress=stop, draws=500, **settings)
    assert fit.trace.shape == (1, 10)
    np.testing.assert_array_equal(fit.trace, run("gamma_poisson", draws=10, **settings).trace)


@brief
def test_a_collapsed_fit_transforms_and_survives_a_file(tmp_path):
    fit = run("dirichlet_gamma", draws=5)
    assert fit.transform(plain_counts(seed=1, size=(4, 5))).shape == (4, 2)
    fit.save(tmp_path / "fit.nc")
    loaded = bayesnmf.load(tmp_path / "fit.nc")
    assert loaded.options.collapsed
    np.testing.assert_array_equal(loaded.trace, fit.trace)


@brief
def test_counts_of_zero_give_the_prior():
    """Means of 400 independent draws of 6 loadings and of 2 components, in standard deviations of a mean."""
    prior = Priors(Gamma(2.0, 3.0), Dirichlet([1.0, 2.0]))
    draws = run("gamma_poisson", np.zeros((3, 2)), priors=prior, draws=200, warmup=0).posterior
    spread = np.sqrt(2.0 / 16 / 2_400)  # Gamma(2, 3 + 1): an empty row has been seen
    assert abs(draws.loadings.mean() - 0.5) < LARGEST_Z * spread
    beta = np.sqrt(2 / 9 / 4 / 800)  # of Beta(1, 2)
    assert abs(draws.components[..., 0].mean() - 1 / 3) < LARGEST_Z * beta


# --- refusals -----------------------------------------------------------------------------------------


def test_gammas_on_both_sides_are_refused():
    with pytest.raises(
        ValueError, match=r"collapsed Gibbs needs Dirichlet components.*use bayesnmf.Gibbs\(collapsed=False\)"
    ):
        run("gamma_poisson", priors=Priors(Gamma(1, 1), Gamma(1, 1)))


def test_a_parameter_is_refused():
    with pytest.raises(ValueError, match="no posterior to sample"):
        run("gamma_poisson", priors=Priors(components="parameter"))


def test_fractions_are_refused():
    with pytest.raises(ValueError, match="whole-number counts"):
        run("gamma_poisson", [[0.5, 1], [2, 3]])


def test_a_word_is_no_flag():
    with pytest.raises(TypeError, match="collapsed must be True or False"):
        Gibbs(collapsed="yes")


def test_more_single_counts_than_memory_are_refused(monkeypatch):
    monkeypatch.setattr(job, "LARGEST_TOKENS", 100)
    with pytest.raises(ValueError, match=r"every single count.*use bayesnmf.Gibbs\(collapsed=False\)"):
        run("gamma_poisson")
