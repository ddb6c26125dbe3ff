"""The evidence: Σ_S p(S) = p(X), sequential Monte Carlo is unbiased for it, and bounds stay below it."""

import inspect
import warnings
from itertools import product
from pathlib import Path
from threading import Event

import numpy as np
import pytest
from golden import reference
from plain import even_priors, plain_vi
from scipy.stats import nbinom, poisson
from smallfits import plain_bounds
from suites import mostly_long

import bayesnmf
import bayesnmf.assessment.evidence as front_door
from bayesnmf import Dirichlet, Gamma, Priors, ScaledDirichlet, log_evidence, log_p_allocation
from bayesnmf.data.conversion import as_counts
from bayesnmf.inference import side_by_side
from bayesnmf.inference.marginal.allocation_model import urn_of
from bayesnmf.kernels.cpu import urn as urn_module
from bayesnmf.kernels.cpu.urn import Particles, filter_row, systematic_offspring
from bayesnmf.priors import matrix

GOLDEN = reference.load(Path(__file__).parents[1] / "golden" / "closed_forms.json")
GOLDEN_PRIORS = Priors(ScaledDirichlet(0.3, 5, 1.5), Dirichlet(0.4))
STANDARD_ERRORS = 4  # exceeded by chance once in 16,000; seeds are fixed

COUNTS = np.array([[0, 2, 2], [0, 0, 1], [2, 1, 1]])
ETA = np.array([[0.4, 0.9, 1.5], [1.2, 0.3, 0.7]])
CASES = {  # every parameter differs between rows, components or features
    "gamma_poisson": Priors(Gamma([[0.5, 1.5], [1.0, 0.7], [2.0, 0.4]], [0.4, 1.3]), Dirichlet(ETA)),
    "dirichlet_poisson": Priors(Dirichlet([[0.5, 1.5], [1.0, 0.7], [2.0, 0.4]]), Dirichlet(ETA)),
    "dirichlet_gamma": Priors(
        ScaledDirichlet([0.5, 1.5], [[2.0], [1.0], [3.0]], [[0.5], [1.0], [0.8]]), Dirichlet(ETA)
    ),
}
every_case = pytest.mark.parametrize("model", CASES)


@pytest.fixture(autouse=True)
def _plain_bounds(monkeypatch):
    plain_bounds(monkeypatch)


def exact(model, counts=COUNTS, rank=2, priors=None):
    return log_evidence(counts, model, rank, "exact", priors=priors or CASES[model]).log_evidence


# --- p(S), and its sum --------------------------------------------------------------------------------


def test_log_p_of_an_allocation_is_the_golden_one():
    inputs = GOLDEN["inputs"]
    S = reference.allocations(inputs["X"], inputs["loadings"], inputs["components"])
    found = log_p_allocation(S, ScaledDirichlet(inputs["alpha"], 5, 1.5), Dirichlet(inputs["eta"]))
    assert found == pytest.approx(GOLDEN["results"]["log_p_allocation a5 b1.5"], rel=1e-12)


@pytest.mark.parametrize(
    ("case", "rank"), mostly_long([*product(GOLDEN["evidence"], [1, 2]), *product(GOLDEN["evidence"], [3])], 4)
)
def test_sum_over_allocations_is_the_golden_evidence(case, rank):
    golden = GOLDEN["evidence"][case]
    result = log_evidence(golden["X"], "dirichlet_gamma", rank, "exact", priors=GOLDEN_PRIORS)
    assert result.log_evidence == pytest.approx(golden["log_evidence"][rank], rel=1e-12)
    assert (result.se, result.method, result.particles, result.estimates) == (0, "exact", 0, ())


@every_case
def test_probabilities_of_all_allocations_sum_to_the_evidence(model):
    priors = CASES[model]
    logs = [log_p_allocation(S, priors.loadings, priors.components) for S in reference.enumerate_allocations(COUNTS, 2)]
    assert np.log(np.exp(logs).sum()) == pytest.approx(exact(model), rel=1e-12)


@every_case
def test_evidence_is_the_expected_likelihood_under_the_prior(model):
    """By simple Monte Carlo, which knows nothing of allocations."""
    rng, draws, priors = np.random.default_rng(3), 100_000, CASES[model]
    loadings = matrix(priors.loadings.broadcast((3, 2)).draw(rng, (draws,)))
    components = priors.components.broadcast((2, 3)).draw(rng, (draws,))
    likelihood = np.exp(poisson.logpmf(COUNTS, loadings @ components).sum(axis=(1, 2)) - exact(model))
    assert abs(likelihood.mean() - 1) < STANDARD_ERRORS * likelihood.std() / np.sqrt(draws)
    assert likelihood.std() / np.sqrt(draws) < 0.02


def test_gammas_of_one_rate_are_a_scaled_dirichlet():
    """Independent Gamma(α_k, a) are s·π with s ~ Gamma(Σα, a) and π ~ Dirichlet(α)."""
    alpha, rate = np.array([0.5, 1.5]), 0.7
    one = Priors(Gamma(alpha, rate), Dirichlet(ETA))
    other = Priors(ScaledDirichlet(alpha, alpha.sum(), rate), Dirichlet(ETA))
    assert exact("gamma_poisson", priors=one) == pytest.approx(exact("dirichlet_gamma", priors=other), rel=1e-13)


def test_two_models_of_the_totals_differ_by_the_probabilities_of_the_totals():
    """Poisson(N; 1) where totals are given, NB(N; a, b) under a scale; the multinomial evidence is the same."""
    alpha, (a, b) = [0.5, 1.5], (2.0, 0.5)
    given = exact("dirichlet_poisson", priors=Priors(Dirichlet(alpha), Dirichlet(ETA)))
    scaled = exact("dirichlet_gamma", priors=Priors(ScaledDirichlet(alpha, a, b), Dirichlet(ETA)))
    totals = COUNTS.sum(axis=1)
    ratio = nbinom.logpmf(totals, a, b / (1 + b)) - poisson.logpmf(totals, 1)
    assert scaled - given == pytest.approx(ratio.sum(), rel=1e-12)


def test_one_component_is_a_closed_form():
    """With K = 1 all is in one place: p(X) = p(S)."""
    priors = CASES["dirichlet_gamma"]
    single = Priors(ScaledDirichlet(0.5, priors.loadings.shape, priors.loadings.rate), Dirichlet(ETA[0]))
    smc = log_evidence(COUNTS, "dirichlet_gamma", 1, priors=single, particles=3, runs=2, seed=0)
    closed = log_p_allocation(COUNTS[:, None, :], single.loadings, single.components)
    assert exact("dirichlet_gamma", rank=1, priors=single) == pytest.approx(closed, rel=1e-13)
    assert smc.log_evidence == pytest.approx(closed, rel=1e-13)
    assert smc.se < 1e-13


# --- sequential Monte Carlo ---------------------------------------------------------------------------


def particle_pass(priors, particles, seed, counts=COUNTS):
    """Particles after a whole pass."""
    urn = urn_of(priors.loadings, priors.components, 2, counts.shape[1])
    state = Particles(np.zeros((counts.shape[1], particles, 2)), np.tile(urn.sums, (particles, 1)), np.ones(particles))
    entries = as_counts(counts).matrix
    for row, row_seed in enumerate(np.random.SeedSequence(seed).generate_state(len(counts), np.uint64)):
        filter_row(entries, row, urn, state, row_seed)
    return state


@pytest.mark.parametrize("model", mostly_long(CASES, [2]))
def test_the_estimate_of_the_evidence_is_unbiased(model):
    """Mean of p̂(X)/p(X) over runs of 8 particles, under a sparse prior, where the weights differ and resample."""
    counts = np.array([[4, 0, 2], [1, 3, 0], [2, 1, 3]])
    sparse = Priors(CASES[model].loadings, Dirichlet(ETA / 4))
    result = log_evidence(counts, model, 2, priors=sparse, particles=8, runs=1_000, seed=5)
    assert abs(np.exp(result.log_evidence - exact(model, counts, priors=sparse)) - 1) < STANDARD_ERRORS * result.se
    assert result.se < 0.02
    resampled = [np.all(particle_pass(sparse, 8, seed, counts).weights == 1) for seed in range(100)]
    assert any(resampled)  # only resampling makes all weights 1 again


def test_particles_stay_consistent():
    """Whatever is copied over whatever, each particle holds every token once."""
    for seed in range(20):
        state = particle_pass(CASES["gamma_poisson"], 8, seed)
        np.testing.assert_array_equal(state.components.sum(axis=2), np.tile(COUNTS.sum(axis=0)[:, None], 8))
        np.testing.assert_allclose(state.sums, state.components.sum(axis=0) + ETA.sum(axis=1), rtol=1e-14)
        assert state.weights.mean() == pytest.approx(1, rel=1e-14)


def test_resampling_is_unbiased():
    """Averaged over the uniform, a particle goes on particles · weight times; always that, rounded up or down."""
    weights = np.array([0.01, 2.3, 0.0, 1.7, 0.4, 0.9, 1e-9, 3.1])
    expected = len(weights) * weights / weights.sum()
    grid = (np.arange(10_000) + 0.5) / 10_000
    offspring = np.empty((len(grid), len(weights)), dtype=np.int64)
    for u, row in zip(grid, offspring, strict=True):
        systematic_offspring(weights, u, row)
    assert np.all(offspring.sum(axis=1) == len(weights))
    assert np.all((offspring == np.floor(expected)) | (offspring == np.ceil(expected)))
    np.testing.assert_allclose(offspring.mean(axis=0), expected, atol=2 / len(grid))  # two steps of a grid


def test_the_standard_error_is_that_of_the_estimate(monkeypatch):
    """Z scores of 60 estimates have variance 1; that of 60 normal ones lies in (0.5, 1.8) but once in 2,000."""
    truth = exact("gamma_poisson")
    monkeypatch.setattr(front_door, "variational_bound", lambda job: -100.0)
    scores = []
    for seed in range(60):
        result = log_evidence(
            COUNTS, "gamma_poisson", 2, priors=CASES["gamma_poisson"], particles=50, runs=30, seed=seed
        )
        scores.append((result.log_evidence - truth) / result.se)
    assert 0.5 < np.mean(np.square(scores)) < 1.8


def test_runs_that_disagree_warn_that_the_estimate_is_too_low():
    """Of many counts one run outweighs the others: the error seems to be 1, and a lower bound is above the estimate."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(120 * rng.dirichlet(np.full(2, 0.3), 8) @ rng.dirichlet(np.full(20, 0.3), 2))
    with pytest.warns(bayesnmf.ConvergenceWarning, match="deviation of .* too low and its error is unknown") as caught:
        result = log_evidence(counts, rank=2, method="tokens", particles=100, runs=4, seed=0)
    assert caught[0].filename == __file__
    assert np.std(result.estimates, ddof=1) > 1
    assert result.log_evidence == pytest.approx(np.log(np.mean(np.exp(result.estimates))), rel=1e-12)
    assert result.se == np.inf
    marginal = bayesnmf.elbo_marginal(
        bayesnmf.fit(counts, rank=2, seed=0, options=plain_vi(priors=even_priors(counts, rank=2))), draws=300
    )
    assert result.log_evidence < result.bound < marginal.mean + STANDARD_ERRORS * marginal.se
    assert result.at_least == result.bound
    assert result.interval() == (result.bound, np.inf)
    assert f"log p(X) unknown, at least {result.bound:,.3f} nats; 4 runs of 100 particles" in repr(result)


def test_runs_that_agree_below_the_bound_have_no_standard_error(monkeypatch):
    """Two particles may agree on what is far too low."""
    monkeypatch.setattr(front_door, "variational_bound", lambda *given: -1.0)
    with pytest.warns(bayesnmf.ConvergenceWarning, match="nats, is below the bound of a variational fit, -1.0; the"):
        result = log_evidence(COUNTS, priors=CASES["gamma_poisson"], rank=2, seed=0)
    assert result.se == np.inf
    assert result.at_least == -1.0


@every_case
def test_the_bound_is_below_the_evidence_and_intervals_hold_it(model):
    """Of eight runs: 95 % intervals by Student's t; the normal ones would be 17 % shorter."""
    truth = exact(model)
    result = log_evidence(COUNTS, model, 2, priors=CASES[model], seed=1)
    assert truth - 5 < result.bound < truth
    low, high = result.interval(0.999)
    assert low < truth < high
    low, high = result.interval()
    np.testing.assert_allclose(high - result.log_evidence, 2.364624 * result.se, rtol=1e-6)
    np.testing.assert_allclose(result.log_evidence - low, 2.364624 * result.se, rtol=1e-6)
    assert f"± {result.se:.3f} nats, 95 % from {low:,.3f} to {high:,.3f}; 8 runs of 1,000" in repr(result)


def test_a_single_run_has_a_lower_end_alone():
    result = log_evidence(COUNTS, priors=CASES["gamma_poisson"], rank=2, runs=1, seed=0)
    assert np.isnan(result.se)
    assert result.interval() == (result.at_least, np.inf)
    assert "unknown, at least" in repr(result)
    assert "; 1 run of 1,000 particles" in repr(result)
    known = log_evidence([[3, 1], [1, 1]], rank=2, method="exact")
    assert known.interval() == (known.log_evidence,) * 2
    assert f"{known.log_evidence:,.3f} nats, exact" in repr(known)


def test_runs_that_agree_do_not_warn(monkeypatch):
    monkeypatch.undo()  # the bound, too, is that of a user
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = log_evidence(COUNTS, priors=CASES["gamma_poisson"], rank=2, seed=0)
    assert len(result.estimates) == 8
    assert np.std(result.estimates, ddof=1) < 0.5


def test_the_arguments_come_in_the_order_of_fit():
    of_fit, of_evidence = (list(inspect.signature(f).parameters.values())[:4] for f in (bayesnmf.fit, log_evidence))
    assert [p.name for p in of_fit] == [p.name for p in of_evidence] == ["counts", "model", "rank", "method"]
    assert [p.default for p in of_fit[:2]] == [p.default for p in of_evidence[:2]]  # a rank may follow from a catalogue


def test_more_particles_vary_less():
    """Variance falls as one over their number: by 16 here, and a ratio of sample variances of 40 is within 3 of it."""
    few, many = (
        log_evidence(COUNTS, "gamma_poisson", 2, priors=CASES["gamma_poisson"], particles=p, runs=40, seed=1).se
        for p in (25, 400)
    )
    assert 16 / 3 < (few / many) ** 2 < 16 * 3


def test_estimates_follow_the_seed():
    def run(seed, runs=3):
        return log_evidence(COUNTS, "dirichlet_gamma", 2, priors=GOLDEN_PRIORS, particles=50, runs=runs, seed=seed)

    assert run(4) == run(4)
    assert run(4) != run(5)
    single = run(4, runs=1)
    assert np.isnan(single.se)
    assert (single.particles, single.estimates) == (50, run(4).estimates[:1])


@every_case
def test_rows_and_columns_of_zeros_have_a_probability(model):
    """They have a probability too. Without any count nothing is left to chance."""
    counts = np.zeros((3, 3))
    nothing = log_evidence(counts, model, 2, priors=CASES[model], particles=5, runs=2, seed=0)
    assert nothing.log_evidence == pytest.approx(exact(model, counts), rel=1e-14)
    counts[1, 2] = 3
    some = log_evidence(counts, model, 2, priors=CASES[model], particles=500, runs=20, seed=0)
    assert abs(some.log_evidence - exact(model, counts)) < STANDARD_ERRORS * some.se


def test_an_interrupted_estimate_keeps_the_finished_runs(monkeypatch):
    def estimate(data, rank, sides, particles, seed, stop: Event):
        if seed.spawn_key[-1] == 0:
            return -3.0
        assert stop.wait(timeout=10)
        return None

    def interrupted_wait(passes, *_):
        passes[0].result()
        raise KeyboardInterrupt

    monkeypatch.setattr(front_door, "estimated_log_evidence", estimate)
    monkeypatch.setattr(side_by_side, "wait", interrupted_wait)
    result = log_evidence(COUNTS, rank=2, particles=7, runs=4, seed=0)
    assert (result.log_evidence, result.particles, result.estimates) == (-3.0, 7, (-3.0,))


@pytest.mark.parametrize("tokens_at_once", [1, 2])
def test_pieces_of_a_pass_estimate_what_the_whole_pass_does(tokens_at_once, monkeypatch):
    asked = {"rank": 2, "priors": CASES["gamma_poisson"], "particles": 20, "runs": 2, "seed": 0}
    whole = log_evidence(COUNTS, **asked)
    monkeypatch.setattr(urn_module, "tokens_at_once", lambda _: tokens_at_once)
    np.testing.assert_allclose(log_evidence(COUNTS, **asked).estimates, whole.estimates, rtol=1e-14)


def test_what_would_take_days_is_refused():
    with pytest.raises(ValueError, match=r"must be at most 1e\+12: found 4e\+12; give fewer rows"):
        log_evidence([[1e12, 2]], rank=2, method="tokens", particles=2, runs=1)
    with pytest.raises(ValueError, match="at most 100,000 allocations: these counts and rank have 1e\\+300"):
        log_evidence(np.full((2_000, 1_000), 50), rank=20, method="exact")


# --- bounds -------------------------------------------------------------------------------------------


@every_case
def test_both_bounds_stay_below_the_evidence(model):
    fit = bayesnmf.fit(COUNTS, model, 2, "vi", seed=0, options=plain_vi(priors=CASES[model], tol=1e-10))
    marginal = bayesnmf.elbo_marginal(fit, draws=1_000)
    truth = exact(model)
    assert bayesnmf.elbo_augmented(fit) < truth
    assert marginal.mean - STANDARD_ERRORS * marginal.se < truth
    assert truth - bayesnmf.elbo_augmented(fit) < 5  # nats, of 9 counts in 3 rows: the same scale


# --- refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        (
            "method='tokens' needs Dirichlet components",
            {"priors": Priors(Gamma(1, 1), Gamma(1, 1)), "method": "tokens"},
        ),
        ("method='smc' needs a prior", {"priors": Priors(components="parameter")}),
        ("method='tokens' needs a proper prior", {"model": "poisson"}),
        ("model must be one of", {"model": "lda"}),
        ("method must be one of 'tempered', 'tokens', 'exact'", {"method": "vi"}),
        ("must be Gamma or HierarchicalGamma for model='gamma_poisson'", {"priors": Priors(Dirichlet(1.0))}),
        ("must broadcast to", {"priors": Priors(Gamma([1, 2, 3], 1))}),
        ("particles must be at least 1", {"particles": 0}),
        ("runs must be at least 1", {"runs": 0}),
        ("whole numbers", {"counts": COUNTS + 0.5}),
        ("at most 100,000 allocations.* method='tempered'", {"counts": COUNTS * 30, "method": "exact"}),
        ("the particles would take", {"particles": 10**9}),
    ],
)
def test_what_has_no_evidence_is_refused(message, arguments):
    with pytest.raises(ValueError, match=message):
        log_evidence(**{"counts": COUNTS, "rank": 2, **arguments})


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        (r"shape \(n, K, m\)", (COUNTS, Gamma(1, 1), Dirichlet(1))),
        ("nonnegative", (-np.ones((2, 2, 2)), Gamma(1, 1), Dirichlet(1))),
        ("needs Dirichlet components", (np.ones((2, 2, 2)), Gamma(1, 1), Gamma(1, 1))),
        ("proper prior", (np.ones((2, 2, 2)), Gamma(1, 0), Dirichlet(1))),
        ("proper prior", (np.ones((2, 2, 2)), None, Dirichlet(1))),
        ("must broadcast", (np.ones((2, 2, 2)), Gamma(np.ones(3), 1), Dirichlet(1))),
    ],
)
def test_what_has_no_log_p_is_refused(message, arguments):
    with pytest.raises(ValueError, match=message):
        log_p_allocation(*arguments)


def test_log_p_takes_whole_numbers_of_any_type():
    """With concentrations below 1, which a conversion to the type of the totals would lose."""
    S = np.array(list(product([0, 2], [1, 3]))).reshape(2, 2, 2)
    prior = (ScaledDirichlet(0.3, 5, 1.5), Dirichlet(0.4))
    dense = reference.log_p_allocation(S.astype(float), 0.3, 0.4, 5, 1.5)
    assert log_p_allocation(S.astype(np.int8), *prior) == pytest.approx(dense, rel=1e-13)
