"""Missing entries in the algorithms beside EM and coordinate ascent: coordinate descent, gradients and batches."""

from dataclasses import replace

import numpy as np
import pytest
from plain import plain_map, plain_vi
from scipy.sparse import csr_array
from scipy.special import digamma
from smallfits import quietly

import bayesnmf
from bayesnmf import Dirichlet, Gamma, NegativeBinomial, Priors, ScaledDirichlet
from bayesnmf.assessment.bounds import state_of_fit
from bayesnmf.data.conversion import as_counts
from bayesnmf.data.mask import Mask, as_pattern
from bayesnmf.fitting.problems import point_or_mean_field, start_state
from bayesnmf.inference.ascent.coordinate_ascent import evaluate_state
from bayesnmf.inference.ascent.gradient_ascent import gradient_of_logs, logs_of_state, state_of_logs
from bayesnmf.inference.ascent.minibatch import Batching, RunningComponents, step_on_batch
from bayesnmf.inference.ascent.settled_loadings import even_loadings, settle_loadings
from bayesnmf.inference.problem import State
from bayesnmf.inference.sides import allocate, objective, update_components, update_loadings
from bayesnmf.kernels.cpu.regression import poisson_regression

pytestmark = quietly
K = 2


def sample(n=20, m=12, seed=1, share=0.3):
    """Return counts, and where they were observed: a row and a column are missing as a whole."""
    rng = np.random.default_rng(seed)
    means = rng.gamma(1, 1, (n, K)) @ rng.dirichlet(np.full(m, 0.6), K) * 60
    observed = rng.random((n, m)) > share
    observed[2], observed[:, 4] = False, False
    return rng.poisson(means), observed


COUNTS, OBSERVED = sample()
EXPOSED = {"row_exposure": np.linspace(0.5, 2, 20), "feature_exposure": np.linspace(2, 0.5, 12)}
PRIORS = Priors(Gamma(1.2, 0.05), Gamma(1.3, 1.0))


# --- coordinate descent ---------------------------------------------------------------------------------


@pytest.mark.parametrize("newton_steps", [1, 2])
def test_a_row_is_regressed_on_its_observed_features(newton_steps):
    """Many sweeps end where the gradient of Σ over observed entries, which is computed densely, is 0 or points to 0."""
    rng = np.random.default_rng(0)
    beta, seen = rng.gamma(1, 1, (K, 12)), np.where(OBSERVED, COUNTS, 0).astype(float)
    prior = np.full((1, K), 0.2), np.full((1, K), 0.05)
    found = poisson_regression(
        csr_array(seen), np.ones((20, K)), beta, prior, 200, newton_steps, exposure=OBSERVED @ beta.T
    )
    slope = OBSERVED @ beta.T + prior[1] - (seen / (found @ beta)) @ beta.T - prior[0] / found
    np.testing.assert_allclose(slope * found, 0, atol=1e-8)


@pytest.mark.parametrize("zeros", [False, True], ids=["entries", "zeros"])
@pytest.mark.parametrize("exposed", [False, True])
@pytest.mark.parametrize("algorithm", ["scd", "ccd"])
def test_coordinate_descent_has_the_optimum_of_em(algorithm, exposed, zeros):
    """From the same start, and without ever falling; with all zeros missing, the observed entries are the fewer."""
    start = bayesnmf.Start(np.ones((20, K)) + np.eye(20, K), np.random.default_rng(0).gamma(1, 1, (K, 12)))
    given = {"missing": "zeros"} if zeros else {"observed": OBSERVED}
    fits = []
    for name, limit in (("em", 50_000), (algorithm, 5000)):
        options = plain_map(
            algorithm=name, priors=PRIORS, start=start, tol=1e-13, max_iter=limit, threads=1, basis="natural",
            extrapolate=name == "em" and not zeros,
        )  # fmt: skip
        more = EXPOSED if exposed else {}
        fits.append(bayesnmf.fit(COUNTS, "poisson", K, "map", seed=0, options=options, **given, **more))
    assert np.diff(fits[1].trace).min() > -1e-10 * abs(fits[1].trace[-1])
    assert fits[1].trace[-1] == pytest.approx(fits[0].trace[-1], rel=1e-9)
    rates = [fit.expected_loadings @ fit.exposed_components for fit in fits]
    np.testing.assert_allclose(rates[1], rates[0], rtol=1e-3, atol=1e-3)
    assert fits[1].diagnostics["kkt_residual"] < 1e-3
    assert len(fits[1].trace) < len(fits[0].trace)


@pytest.mark.parametrize("noise", ["quasi", NegativeBinomial(dispersion=0.5)], ids=["quasi", "nb1"])
@pytest.mark.parametrize("flat", [False, True])
def test_coordinate_descent_with_noise_has_the_optimum_of_em(noise, flat):
    priors = Priors(Gamma(1.0, 0.0), Gamma(1.0, 0.0)) if flat else PRIORS
    found = []
    for name in ("em", "scd"):
        options = plain_map(algorithm=name, priors=priors, start="svd", tol=1e-12, max_iter=20_000, threads=1)
        options = replace(options, extrapolate=name == "em")
        fit = bayesnmf.fit(COUNTS, "poisson", K, "map", seed=0, observed=OBSERVED, options=options, noise=noise)
        found.append(fit.trace[-1])
    assert found[1] == pytest.approx(found[0], rel=1e-7)


def test_coordinate_descent_is_refused_where_sides_are_scaled_to_totals():
    for model in ("gamma_poisson", "dirichlet_poisson"):
        with pytest.raises(ValueError, match="missing entries and algorithm='scd' need Gamma priors on both sides"):
            bayesnmf.fit(COUNTS, model, K, "map", observed=OBSERVED, options=plain_map(algorithm="scd"))


# --- gradients and batches ------------------------------------------------------------------------------


def vi_priors(model, components):
    loadings = Dirichlet(0.8) if model == "dirichlet_poisson" else Gamma(1.2, 0.05)
    return Priors(loadings, components)


BOUNDS = [
    ("gamma_poisson", Gamma(1.3, 1.0)), ("gamma_poisson", Dirichlet(0.7)), ("gamma_poisson", "parameter"),
    ("dirichlet_poisson", Dirichlet(0.7)), ("dirichlet_poisson", "parameter"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "components"), BOUNDS, ids=str)
def test_the_gradient_is_the_derivative_of_the_bound(model, components):
    """By central differences of the elbo in 12 random directions, off the conditionals."""
    observed = OBSERVED.copy()
    observed[0, 4] = True  # a feature without any observed entry needs a proper prior
    options = plain_vi(priors=vi_priors(model, components), max_iter=2, threads=1)
    fit = bayesnmf.fit(COUNTS, model, K, "vi", seed=0, observed=observed, options=options)
    problem, state = state_of_fit(fit)
    rng, logs = np.random.default_rng(0), logs_of_state(state)

    def place(at):
        return evaluate_state(problem, state_of_logs(problem, state, at), 1)

    gradient = gradient_of_logs(place(logs))
    for _ in range(12):
        along = rng.standard_normal(len(logs))
        ends = [place(logs + sign * 1e-5 * along).value for sign in (1, -1)]
        assert gradient @ along == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5, abs=1e-3)


@pytest.mark.parametrize(("model", "components"), BOUNDS[:2] + BOUNDS[3:4], ids=str)
def test_gradient_ascent_has_the_optimum_of_coordinate_ascent(model, components):
    """From a state in its basin, and without ever falling."""
    given = {"priors": vi_priors(model, components), "threads": 1}
    start = plain_vi(start="svd", max_iter=60, **given)
    begun = bayesnmf.fit(COUNTS, model, K, "vi", seed=0, observed=OBSERVED, options=start)
    found = []
    for name, limit in (("coordinate", 20_000), ("gradient", 2000)):
        bold = name == "coordinate"
        options = plain_vi(algorithm=name, start=begun, tol=1e-12, max_iter=limit, extrapolate=bold, **given)
        fit = bayesnmf.fit(COUNTS, model, K, "vi", seed=0, observed=OBSERVED, options=options)
        found.append(fit.trace[-1])
        assert np.diff(fit.trace).min() > -1e-9 * abs(fit.trace[-1])
    assert found[0] > begun.trace[-1] + 1e-3
    assert found[1] == pytest.approx(found[0], rel=1e-6)


SETTLED = [(model, components, "poisson") for model, components in BOUNDS[:2] + BOUNDS[3:4]] + [
    ("dirichlet_gamma", Dirichlet(0.7), "poisson"),
    ("gamma_poisson", Gamma(1.3, 1.0), NegativeBinomial(dispersion=0.5)),
    ("gamma_poisson", Dirichlet(0.7), NegativeBinomial(dispersion=0.5)),
    ("gamma_poisson", Dirichlet(0.7), NegativeBinomial("quadratic", 0.1)),
]


@pytest.mark.long
@pytest.mark.parametrize(("model", "components", "noise"), SETTLED, ids=str)
def test_rows_that_settle_first_have_the_optimum_of_coordinate_ascent(model, components, noise):
    """Rows settle by the exposures of their own entries, or by what these receive, so that both raise one bound."""
    loadings = ScaledDirichlet(0.8, 1.2, 0.05) if model == "dirichlet_gamma" else vi_priors(model, components).loadings
    given = {"priors": Priors(loadings, components), "start": "svd", "threads": 1, "extrapolate": True}
    found = []
    for algorithm in ("coordinate", "settled"):
        options = plain_vi(algorithm=algorithm, tol=1e-11, max_iter=1000, **given)
        fit = bayesnmf.fit(COUNTS, model, K, "vi", seed=0, observed=OBSERVED, options=options, noise=noise)
        assert np.diff(fit.trace).min() > -1e-9 * abs(fit.trace[-1])
        found.append(fit.trace[-1])
    assert found[1] == pytest.approx(found[0], rel=1e-9)


def test_a_step_that_settles_rows_ends_where_each_is_its_own_conditional():
    """The elbo of the observed entries, computed densely, has no derivative by the loadings of any row there."""
    options = plain_vi(algorithm="settled", priors=PRIORS, start="svd", tol=1e-12, max_iter=2000, threads=1)
    fit = bayesnmf.fit(COUNTS, "poisson", K, "vi", seed=0, observed=OBSERVED, options=options)
    q, beta = fit.posterior.loadings, fit.posterior.components
    U, V = (np.exp(digamma(each.shape)) / each.rate for each in (q, beta))
    received = U * (np.where(OBSERVED, COUNTS, 0) / (U @ V) @ V.T)
    np.testing.assert_allclose(q.shape, PRIORS.loadings.shape + received, rtol=1e-4)
    np.testing.assert_allclose(q.rate, PRIORS.loadings.rate + OBSERVED @ (beta.shape / beta.rate).T, rtol=1e-4)


@pytest.mark.parametrize(
    ("model", "components"), [("gamma_poisson", Dirichlet(0.7)), ("dirichlet_poisson", Dirichlet(0.7))]
)
def test_a_row_that_has_settled_stays_as_it_is_while_others_move(model, components):
    """So blocks of rows, on disk or in memory, settle as all rows do."""
    fit = bayesnmf.fit(
        COUNTS, model, K, "vi", seed=0, observed=OBSERVED, options=plain_vi(priors=vi_priors(model, components))
    )
    problem, state = state_of_fit(fit)
    found = []
    for rows in (slice(None), slice(0, 3)):
        part = replace(problem, counts=problem.counts.rows(rows))
        even = State(even_loadings(part, state.components, K), state.components)
        found.append(settle_loadings(part, even, 1e-2, 30, 1).state.loadings.matrix[:3])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12)


def test_one_batch_of_all_rows_is_an_update_of_all_rows():
    """With a first step of size 1, and settled loadings, components are those of coordinate ascent's next update."""
    counts = as_counts(COUNTS.astype(float)).with_mask(Mask.of(as_pattern(~OBSERVED)))
    problem = point_or_mean_field(counts, plain_vi(priors=PRIORS))
    state = start_state(problem, "random", K, np.random.default_rng(0))
    running = RunningComponents(problem, state.components, 20)
    step_on_batch(running, problem, None, Batching(size=20, delay=0.0), 1, 1)
    fixed = replace(problem, fixed_components=True)
    settled = settle_loadings(fixed, State(even_loadings(fixed, state.components, K), state.components), 1e-2, 100, 1)
    totals = allocate(problem, settled.state, 1)
    loadings = update_loadings(fixed, settled.state, totals.loadings)
    wanted = update_components(problem, loadings, totals.components).components.matrix
    np.testing.assert_allclose(running.side().matrix, wanted, rtol=1e-6)


def test_batches_come_near_the_bound_of_all_rows():
    """Within 1 % of the elbo, as with all entries; components that take missing entries for zeros are 23 % below it."""
    counts, observed = sample(200, 20, seed=3)
    found = []
    for more in ({"algorithm": "coordinate"}, {"algorithm": "minibatch", "batch_size": 40, "max_iter": 60}):
        options = plain_vi(priors=PRIORS, start="svd", threads=1, **more)
        fit = bayesnmf.fit(counts, "gamma_poisson", K, "vi", seed=0, observed=observed, options=options)
        problem, state = state_of_fit(fit)
        bound = objective(problem, state, allocate(problem, state, 1).loglik)
        assert bound == pytest.approx(fit.trace[-1], rel=1e-9)
        found.append(bound)
    assert found[1] == pytest.approx(found[0], rel=1e-2)
    with pytest.raises(ValueError, match="missing entries and algorithm='minibatch' need Gamma priors on both sides"):
        bayesnmf.fit(counts, rank=K, observed=observed, options=plain_vi(algorithm="minibatch"))
