"""Every closed-form routine of the golden file, by `bayesnmf.fit`, entry by entry."""

import numpy as np
import pytest
from golden import reference
from golden.reference import STEPS, TOLERANCE
from plain import PLAIN
from suites import mostly_long

import bayesnmf
from bayesnmf import Dirichlet, Gamma, Priors, ScaledDirichlet, Start
from bayesnmf.data.conversion import as_counts
from bayesnmf.inference.marginal import allocation_model

GOLDEN = reference.load()
RESULTS = GOLDEN["results"]
X, LOADINGS, COMPONENTS, GAMMA, NU, ALPHA, RATE, ETA = (
    GOLDEN["inputs"][name] for name in ("X", "loadings", "components", "gamma", "nu", "alpha", "rate", "eta")
)
FLAT = Gamma(1.0, 0.0)
LOG_POISSON_OF_TOTALS = (-1 - reference.gammaln(X.sum(axis=1) + 1)).sum()  # rate 1
RANK = LOADINGS.shape[1]

every_step = pytest.mark.parametrize("steps", mostly_long(STEPS[::-1]))


def run(model, method, priors, start, steps, **settings):
    options = PLAIN[method]
    chosen = options(priors=Priors(*priors), start=Start(*start), max_iter=steps, tol=0, **settings)
    return bayesnmf.fit(X, model, RANK, method, options=chosen)


def equal(found, expected):
    """Relative, entry by entry: some golden entries are 1e-91, and they must be right too."""
    np.testing.assert_allclose(found, expected, rtol=TOLERANCE, atol=0)


def factors_are(fit, result):
    equal(fit.loadings, result["loadings"])
    equal(fit.components, result["components"])


def poisson_loglik(fit):
    return reference.poisson_loglik(X, fit.loadings @ fit.components)


def test_some_golden_entries_are_tiny():
    entries = RESULTS["joint/25"]["components"]
    assert entries[entries > 0].min() < 1e-50


@every_step
def test_alternating_multiplicative_updates_are_golden(steps):
    start = (LOADINGS, COMPONENTS)
    fit = run("poisson", "map", (FLAT, FLAT), start, steps, schedule="alternating", order="components")
    result = RESULTS[f"alternating_mu/{steps}"]
    factors_are(fit, result)
    equal(fit.trace[-1], result["loglik"])


@every_step
def test_joint_updates_are_golden(steps):
    fit = run("poisson", "map", (FLAT, "parameter"), (LOADINGS, COMPONENTS), steps)
    result = RESULTS[f"joint/{steps}"]
    factors_are(fit, result)
    equal(fit.trace[-1], result["loglik"])


@every_step
def test_plsa_is_golden(steps):
    start = (LOADINGS / LOADINGS.sum(axis=1, keepdims=True), COMPONENTS)
    fit = run("dirichlet_poisson", "map", (Dirichlet(1.0), "parameter"), start, steps)
    result = RESULTS[f"plsa/{steps}"]
    factors_are(fit, result)
    # The density of a Dirichlet(1) is logΓ(K) in every row.
    equal(fit.trace[-1], result["loglik"] + len(X) * reference.gammaln(RANK))


@every_step
def test_kkt_residuals_of_joint_updates(steps):
    fit = run("poisson", "map", (FLAT, "parameter"), (LOADINGS, COMPONENTS), steps)
    equal(fit.residuals, RESULTS[f"joint_residuals/{steps}"]["residuals"])
    equal(fit.diagnostics["kkt_residual"], fit.residuals[-1])


@every_step
def test_extrapolated_joint_updates_are_golden(steps):
    fit = run("poisson", "map", (FLAT, "parameter"), (LOADINGS, COMPONENTS), steps, extrapolate=True)
    result = RESULTS[f"extrapolated_joint/{steps}"]
    factors_are(fit, result)
    equal(fit.trace, result["logliks"])


def test_the_golden_extrapolation_accepts_and_rejects():
    assert 0 < RESULTS["extrapolated_joint/25"]["rejected"] < 24


@every_step
def test_lasso_is_golden(steps):
    priors = (Gamma(1.0, reference.TAU), "parameter")
    fit = run("poisson", "map", priors, (LOADINGS, COMPONENTS), steps)
    result = RESULTS[f"lasso/{steps}"]
    factors_are(fit, result)
    penalised = reference.kl_divergence(X, fit.loadings @ fit.components) + reference.TAU * fit.loadings.sum()
    equal(penalised, result["penalised_kl"])
    # The log joint is minus the penalised divergence, up to the normaliser of the prior and a constant of the data.
    constant = reference.poisson_loglik(X, X) + LOADINGS.size * np.log(reference.TAU)
    equal(fit.trace[-1], constant - result["penalised_kl"])


@every_step
def test_map_with_gamma_components_is_golden(steps):
    prior = Gamma(reference.MAP_SHAPE, reference.MAP_RATE)
    fit = run("poisson", "map", (FLAT, prior), (LOADINGS, COMPONENTS), steps, schedule="alternating")
    result = RESULTS[f"map_gamma_1.5_2/{steps}"]
    factors_are(fit, result)
    equal(poisson_loglik(fit), result["loglik"])
    equal(fit.trace[-1], result["loglik"] + prior.log_density(fit.components))


@every_step
def test_map_with_gammas_on_both_sides(steps):
    a, b, c, d = reference.MAP_GAMMAS
    fit = run("poisson", "map", (Gamma(a, b), Gamma(c, d)), (LOADINGS, COMPONENTS), steps)
    result = RESULTS[f"map_gammas_1.2_.3_1.5_2/{steps}"]
    factors_are(fit, result)
    densities = Gamma(a, b).log_density(fit.loadings) + Gamma(c, d).log_density(fit.components)
    equal(fit.trace[-1], result["loglik"] + densities)


@every_step
def test_alternating_poisson_regression_by_em(steps):
    settings = {"schedule": "alternating", "sweeps": reference.SWEEPS}
    fit = run("poisson", "map", (FLAT, FLAT), (LOADINGS, COMPONENTS), steps, **settings)
    result = RESULTS[f"regression_em_4/{steps}"]
    factors_are(fit, result)
    equal(fit.trace[-1], result["loglik"])


@every_step
def test_alternating_poisson_regression_by_coordinate_descent(steps):
    settings = {"algorithm": "scd", "sweeps": reference.SWEEPS}
    fit = run("poisson", "map", (FLAT, FLAT), (LOADINGS, COMPONENTS), steps, **settings)
    result = RESULTS[f"coordinate_descent_4/{steps}"]
    factors_are(fit, result)
    equal(fit.trace[-1], result["loglik"])


@every_step
def test_alternating_poisson_regression_by_cyclic_coordinate_descent(steps):
    fit = run("poisson", "map", (FLAT, FLAT), (LOADINGS, COMPONENTS), steps, algorithm="ccd")
    result = RESULTS[f"cyclic_coordinate_descent_1/{steps}"]
    factors_are(fit, result)
    equal(fit.trace[-1], result["loglik"])


def test_the_golden_second_newton_step_matters():
    one_step = reference.coordinate_descent(X, LOADINGS, COMPONENTS, 1, 1, 1)
    assert RESULTS["cyclic_coordinate_descent_1/1"]["loglik"] > one_step["loglik"] + 1e-3


@every_step
def test_dirichlet_poisson_is_golden(steps):
    start = (Dirichlet(GAMMA), COMPONENTS)
    fit = run("dirichlet_poisson", "vi", (Dirichlet(ALPHA), "parameter"), start, steps)
    result = RESULTS[f"dirichlet_poisson/{steps}"]
    equal(fit.posterior.loadings.concentration, result["gamma"])
    equal(fit.components, result["components"])
    equal(fit.trace[-1], result["elbo"])
    assert fit.posterior.components is None


@every_step
def test_several_updates_of_the_loadings_in_a_row(steps):
    start = (Dirichlet(GAMMA), COMPONENTS)
    priors = (Dirichlet(ALPHA), "parameter")
    fit = run("dirichlet_poisson", "vi", priors, start, steps, sweeps=reference.SWEEPS)
    result = RESULTS[f"inner_sweeps_lda_4/{steps}"]
    equal(fit.posterior.loadings.concentration, result["gamma"])
    equal(fit.components, result["components"])
    equal(fit.trace[-1], result["elbo"])


@every_step
def test_dirichlet_poisson_with_a_learned_prior(steps):
    start = (Dirichlet(GAMMA), COMPONENTS)
    fit = run("dirichlet_poisson", "vi", (Dirichlet(ALPHA), "parameter"), start, steps, learn=("loadings",))
    result = RESULTS[f"learned_dirichlet_poisson/{steps}"]
    equal(fit.priors.loadings.concentration, result["alpha"])
    equal(fit.posterior.loadings.concentration, result["gamma"])
    equal(fit.components, result["components"])
    equal(fit.trace[-1], result["elbo"])


@every_step
def test_gamma_poisson_with_a_learned_prior(steps):
    start = (Gamma(GAMMA, 1 + RATE), COMPONENTS)
    prior = Gamma(ALPHA, np.full(RANK, RATE))
    fit = run("gamma_poisson", "vi", (prior, "parameter"), start, steps, learn=("loadings",))
    result = RESULTS[f"learned_gamma_poisson/{steps}"]
    equal(fit.priors.loadings.shape, result["alpha"])
    equal(fit.priors.loadings.rate, result["rate"])
    equal(fit.posterior.loadings.shape, result["gamma"])
    equal(fit.components, result["components"])
    equal(fit.trace[-1], result["elbo"])


@every_step
def test_gamma_poisson_is_golden(steps):
    start = (Gamma(GAMMA, 1 + RATE), COMPONENTS)
    fit = run("gamma_poisson", "vi", (Gamma(ALPHA, RATE), "parameter"), start, steps)
    result = RESULTS[f"gamma_poisson/{steps}"]
    equal(fit.posterior.loadings.shape, result["gamma"])
    equal(np.broadcast_to(fit.posterior.loadings.rate, GAMMA.shape), np.broadcast_to(1 + RATE, GAMMA.shape))
    equal(fit.components, result["components"])
    equal(fit.trace[-1], result["elbo"])


@every_step
def test_doubly_gamma_is_golden(steps):
    a, b, c, d = reference.GAMMAS
    start = (Gamma(GAMMA, 1.0), Gamma(NU, 1.0))
    priors = (Gamma(a, b), Gamma(c, d))
    fit = run("gamma_poisson", "vi", priors, start, steps, schedule="alternating")
    result = RESULTS[f"doubly_gamma_.3_.1_.4_1/{steps}"]
    gammas_are(fit, result)
    equal(fit.trace[-1], result["elbo"])


def gammas_are(fit, result):
    for side, name, factor in (("loadings", "theta", LOADINGS), ("components", "beta", COMPONENTS)):
        q = getattr(fit.posterior, side).broadcast(factor.shape)
        equal(q.shape, result[f"{name}_shape"])
        equal(q.rate, result[f"{name}_rate"])


@every_step
def test_doubly_gamma_with_learned_priors(steps):
    """One shape and rate for each component of the loadings, one of each for all components."""
    a, b, c, d = reference.GAMMAS
    priors = (Gamma(np.full(RANK, a), np.full(RANK, b)), Gamma(c, d))
    start = (Gamma(GAMMA, 1.0), Gamma(NU, 1.0))
    learn = ("loadings", "components")
    fit = run("gamma_poisson", "vi", priors, start, steps, schedule="alternating", learn=learn)
    result = RESULTS[f"learned_doubly_gamma_.3_.1_.4_1/{steps}"]
    learned = (fit.priors.loadings, fit.priors.components)
    for found, name in zip([each for prior in learned for each in (prior.shape, prior.rate)], "abcd", strict=True):
        equal(found, result[name])
    gammas_are(fit, result)
    equal(fit.trace[-1], result["elbo"])


@every_step
def test_smoothed_lda_is_golden(steps):
    start = (Dirichlet(GAMMA), Dirichlet(NU))
    fit = run("dirichlet_poisson", "vi", (Dirichlet(ALPHA), Dirichlet(ETA)), start, steps)
    result = RESULTS[f"smoothed_lda/{steps}"]
    equal(fit.posterior.loadings.concentration, result["gamma"])
    equal(fit.posterior.components.concentration, result["nu"])
    equal(fit.trace[-1], result["elbo_multinomial"] + LOG_POISSON_OF_TOTALS)


@every_step
def test_smoothed_lda_with_learned_symmetric_priors(steps):
    start = (Dirichlet(GAMMA), Dirichlet(NU))
    priors = tuple(Dirichlet(concentration) for concentration in reference.SYMMETRIC)
    fit = run("dirichlet_poisson", "vi", priors, start, steps, learn=("loadings", "components"))
    result = RESULTS[f"learned_smoothed_lda_.5_.3/{steps}"]
    equal(fit.priors.loadings.concentration, result["alpha"])
    equal(fit.priors.components.concentration, result["eta"])
    equal(fit.posterior.loadings.concentration, result["gamma"])
    equal(fit.posterior.components.concentration, result["nu"])
    equal(fit.trace[-1], result["elbo_multinomial"] + LOG_POISSON_OF_TOTALS)


@every_step
def test_dirichlet_gamma_is_golden(steps):
    a, b = reference.SCALE
    totals = X.sum(axis=1, keepdims=True)
    start = (ScaledDirichlet(GAMMA, a + totals, b + 1), Dirichlet(NU))
    fit = run("dirichlet_gamma", "vi", (ScaledDirichlet(ALPHA, a, b), Dirichlet(ETA)), start, steps)
    result = RESULTS[f"smoothed_lda/{steps}"]
    equal(fit.posterior.loadings.concentration, result["gamma"])
    equal(fit.posterior.components.concentration, result["nu"])
    equal(fit.scale, (a + totals[:, 0]) / (b + 1))
    equal(fit.trace[-1], result["elbo_dirichlet_gamma_a5_b1_5"])


def test_best_decomposition_at_its_start():
    """Log p(S) and its gradients in the logarithms of the multipliers; what the gauge changes is not S."""
    priors = (ScaledDirichlet(ALPHA, *reference.SCALE), Dirichlet(ETA))
    model = allocation_model.AllocationModel(as_counts(X), *priors)
    result = RESULTS["log_p_gradients a5 b1.5"]
    for multipliers in ((LOADINGS, COMPONENTS), allocation_model.canonical_multipliers(3 * LOADINGS, COMPONENTS)):
        point = allocation_model.evaluate_multipliers(model, *multipliers)
        slopes = point.gradients
        equal(point.log_p, result["log_p"])
        equal(slopes.loadings_up - slopes.loadings_down, result["log_mu"])
        equal(slopes.components_up - slopes.components_down, result["log_nu"])
    equal(result["log_p"], RESULTS["log_p_allocation a5 b1.5"])


def test_reference_regenerates_the_file():
    new = reference.regenerate(GOLDEN)
    found = dict(reference.differences(new, GOLDEN))
    assert len(found) > 50
    assert max(found.values()) < TOLERANCE
