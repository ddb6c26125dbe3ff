"""The theorems that link the models and the algorithms, and where each is tested.

1. Poisson is multinomial times totals, any θ, β, and back ([C] lemma 1):
   test_views.py::test_a_poisson_is_a_multinomial_and_its_total,
   test_views.py::test_there_and_back_is_the_identity_both_ways
2. Joint updates are PLSA ([GP] lemma B.1):
   test_theorems.py::test_lemma_b1_joint_updates_and_plsa_agree_for_ever
3. Gamma-Poisson and Dirichlet-Poisson iterates agree ([GP] lemma E.3):
   test_theorems.py::test_lemma_e3_gamma_poisson_and_dirichlet_poisson_agree_for_ever,
   test_theorems.py::test_lemma_e3_needs_one_rate_for_all_components
4. Their bounds differ by a constant of the data ([GP] 34, carried to the bounds):
   test_theorems_bounds.py::test_the_two_bounds_differ_by_a_constant_of_the_data,
   test_theorems_bounds.py::test_an_arbitrary_start_breaks_the_constant_by_a_divergence_of_scales
5. The lasso does not sparsify ([GP] lemma 6.1):
   test_theorems.py::test_lemma_6_1_the_lasso_scales_and_does_not_sparsify
6. Four likelihoods are one ([GP] D.1-D.3):
   test_theorems_bounds.py::test_poisson_augmented_multinomial_and_categorical_likelihoods_are_one
7. Multiplicative updates are EM, so is VI without expectations, and paths 1 and 2 meet ([P]):
   test_theorems_bounds.py::test_multiplicative_updates_maximise_the_expected_complete_log_likelihood,
   test_theorems_bounds.py::test_the_complete_log_likelihood_bounds_the_likelihood_from_below,
   test_theorems_bounds.py::test_variational_inference_with_expectations_removed_is_em,
   test_theorems_bounds.py::test_em_without_priors_is_multiplicative_updates,
   test_theorems_bounds.py::test_paths_1_and_2_meet
8. EM for topic models is a joint step; alternating ones share its fixed points; MAP is MLE with pseudo-samples ([C]):
   test_theorems.py::test_em_for_the_topic_model_is_a_joint_multiplicative_update,
   test_theorems.py::test_exposures_from_old_values_are_not_em,
   test_theorems.py::test_half_steps_are_exact_under_the_map,
   test_theorems.py::test_alternating_updates_take_another_way_to_the_same_fixed_points,
   test_theorems.py::test_map_is_maximum_likelihood_with_pseudo_samples,
   test_theorems.py::test_map_with_gammas_is_map_of_the_topic_model_with_dirichlets
9. LDA's bound becomes KL-NMF with a regulariser ([F], corrected):
   test_nmf_and_lda.py::test_the_approximation_is_kl_nmf_and_a_regulariser,
   test_nmf_and_lda.py::test_the_gap_per_count_falls_like_log_n_over_n,
   test_nmf_and_lda.py::test_the_gap_itself_grows_like_half_k_minus_1_log_n
10. Allocations sum to the evidence, which particles estimate and bounds stay below ([K]):
   test_evidence.py::test_sum_over_allocations_is_the_golden_evidence,
   test_evidence.py::test_the_estimate_of_the_evidence_is_unbiased,
   test_evidence.py::test_both_bounds_stay_below_the_evidence,
   test_theorems_bounds.py::test_allocations_and_bounds_stay_below_the_evidence,
   test_theorems_bounds.py::test_dirichlet_gamma_is_smoothed_lda_and_a_constant,
   test_best_decomposition.py::test_it_raises_log_p_and_sparseness_over_kl_nmf
11. NumPyro's ELBO at the same q:
   test_two_statements.py::test_elbo_is_that_of_the_augmented_program,
   test_two_statements.py::test_elbo_with_components_as_a_parameter,
   test_programs.py::test_elbo_of_the_augmented_program_is_the_closed_form
12. Everything is monotone:
   test_coordinate_ascent.py::test_objective_never_falls,
   test_poisson_regression.py::test_objective_never_falls,
   test_extrapolation.py::test_objective_never_falls,
   test_extrapolation.py::test_objective_never_falls_in_the_log_basis,
   test_extrapolation.py::test_inner_sweeps_never_lower_the_objective,
   test_gradient_ascent.py::test_the_bound_never_falls,
   test_learning.py::test_the_bound_never_falls_and_ends_above_that_of_given_priors,
   test_best_decomposition.py::test_log_p_never_falls,
   test_best_decomposition.py::test_an_update_that_would_lower_log_p_is_cut_and_never_taken
"""

import re
from pathlib import Path

import numpy as np
import pytest
from golden import reference
from iterates import iterates, random_point, separated_counts, unscaled_point
from plain import plain_map
from registry import RANK, nasty_counts
from scipy import stats

import bayesnmf
from bayesnmf import Dirichlet, Gamma, Priors, Start, to_topic_model
from bayesnmf.data.conversion import as_counts
from bayesnmf.fitting.problems import point_or_mean_field, start_state
from bayesnmf.inference.ascent.coordinate_ascent import update_side
from bayesnmf.inference.sides import allocate

FLAT, EVEN = Gamma(1.0, 0.0), Dirichlet(1.0)
NASTY = nasty_counts()
TOTALS = NASTY.sum(axis=1, keepdims=True)

# An entry on its way to 0 is a product of one rounded ratio a step, 50 or fewer, each of sums of 9 terms: relative
# errors stay near 1e-12, though entries fall below 1e-280. Those that are no longer normal numbers lose digits.
ALIKE = {"rtol": 1e-10, "atol": 1e-300}


def test_every_statement_names_tests_that_exist():
    named = re.findall(r"(test_\w+\.py)::(test_\w+)", __doc__)
    assert len(re.findall(r"^\d+\. ", __doc__, re.MULTILINE)) == 12
    for file, test in named:
        [place] = Path(__file__).parents[1].rglob(file)
        assert f"def {test}(" in place.read_text(encoding="utf-8"), f"{file}::{test}"


# --- 2, 3 and 5: sequences of [GP] --------------------------------------------------------------------


@pytest.mark.parametrize("components", ["parameter", EVEN], ids=["parameter", "dirichlet"])
@pytest.mark.parametrize("order", ["loadings", "components"])
def test_lemma_b1_joint_updates_and_plsa_agree_for_ever(components, order):
    """[GP] lemma B.1: from one normalised start, the same β, θ^joint = N_i θ^PLSA and Σ_k θ_ik = N_i.

    So the likelihoods differ by Σ_i [log Poisson(N_i; N_i) − log Poisson(N_i; 1)] at every iterate.
    """
    shapes, start = random_point(NASTY)
    shares = shapes / shapes.sum(axis=1, keepdims=True)
    joint = iterates(NASTY, "map", (FLAT, components), (TOTALS * shares, start), 50, order=order)
    plsa = iterates(NASTY, "map", (EVEN, components), (shares, start), 50, order=order)
    constant = np.sum(stats.poisson.logpmf(TOTALS, TOTALS) - stats.poisson.logpmf(TOTALS, 1))
    assert len(joint) == len(plsa) == 51
    for one, other in zip(joint, plsa, strict=True):
        np.testing.assert_allclose(one.components.value, other.components.value, **ALIKE)
        np.testing.assert_allclose(one.loadings.value, TOTALS * other.loadings.value, **ALIKE)
        np.testing.assert_allclose(one.loadings.value.sum(axis=1, keepdims=True), TOTALS, rtol=1e-13)
        logliks = [each.objective - each.loadings.penalty - each.components.penalty for each in (one, other)]
        # Differences of terms as large as Σ log X!, some 3e5, rounded to 1e-16 of it.
        np.testing.assert_allclose(logliks[0] - logliks[1], constant, rtol=0, atol=1e-9)


def both_vi(rate, components, steps, **settings):
    """Iterates of Gamma-Poisson and Dirichlet-Poisson VI from one γ and β, and Σα."""
    alpha = np.array([0.4, 1.0, 2.2])
    gamma, beta = random_point(NASTY)
    given = beta if components == "parameter" else Dirichlet(1 + 3 * beta)
    start = (Gamma(gamma, 1 + np.asarray(rate)), given)
    gammas = iterates(NASTY, "vi", (Gamma(alpha, rate), components), start, steps, **settings)
    dirichlets = iterates(NASTY, "vi", (Dirichlet(alpha), components), (Dirichlet(gamma), given), steps, **settings)
    return gammas, dirichlets, alpha.sum()


@pytest.mark.parametrize("components", ["parameter", Dirichlet(0.8)], ids=["parameter", "dirichlet"])
@pytest.mark.parametrize("order", ["loadings", "components"])
def test_lemma_e3_gamma_poisson_and_dirichlet_poisson_agree_for_ever(components, order):
    """[GP] lemma E.3: with a_k = a, the same γ and β (or q of β) for ever; Σ_k γ_ik = Σα + N_i from update 1 on."""
    gammas, dirichlets, alpha = both_vi(0.6, components, 50, order=order)
    for step, (one, other) in enumerate(zip(gammas, dirichlets, strict=True)):
        np.testing.assert_allclose(one.loadings.conditional.shape, other.loadings.conditional.concentration, **ALIKE)
        np.testing.assert_allclose(one.components.value, other.components.value, **ALIKE)
        if step > 0:
            np.testing.assert_allclose(one.loadings.conditional.rate, 1.6, rtol=1e-13)
            sums = one.loadings.conditional.shape.sum(axis=1, keepdims=True)
            np.testing.assert_allclose(sums, alpha + TOTALS, rtol=1e-13)
        if components != "parameter":
            pair = (side.components.conditional.concentration for side in (one, other))
            np.testing.assert_allclose(*pair, **ALIKE)


def test_lemma_e3_needs_one_rate_for_all_components():
    """Rates that differ tilt the responsibilities by 1 / (1 + a_k), which Dirichlet loadings cannot."""
    gammas, dirichlets, alpha = both_vi(np.array([0.2, 0.6, 1.5]), "parameter", 5)
    assert np.abs(gammas[5].components.value - dirichlets[5].components.value).max() > 0.01
    sums = gammas[5].loadings.conditional.shape.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(sums, alpha + TOTALS, rtol=1e-13)  # the totals do not care


@pytest.mark.parametrize("tau", [0.3, 5.0])
def test_lemma_6_1_the_lasso_scales_and_does_not_sparsify(tau):
    """[GP] lemma 6.1: the iterates of the lasso (24-25) have the same β, and θ scaled by 1/(1 + τ), for ever.

    At (θ/(1 + τ), β) the penalised divergence is KL(X‖θβ) + log(1 + τ) ΣX.
    """
    start = random_point(NASTY)
    free = iterates(NASTY, "map", (FLAT, "parameter"), start, 50)
    lasso = iterates(NASTY, "map", (Gamma(1.0, tau), "parameter"), start, 50)
    for plain, sparse in zip(free[1:], lasso[1:], strict=True):
        theta, beta = sparse.loadings.value, sparse.components.value
        np.testing.assert_allclose(beta, plain.components.value, **ALIKE)
        np.testing.assert_allclose(theta, plain.loadings.value / (1 + tau), **ALIKE)
        penalised = reference.kl_divergence(NASTY, theta @ beta) + tau * theta.sum()
        divergence = reference.kl_divergence(NASTY, plain.loadings.value @ plain.components.value)
        # Sums of X log X of some 4e5, rounded to 1e-16 of it.
        np.testing.assert_allclose(penalised, divergence + np.log1p(tau) * NASTY.sum(), rtol=0, atol=1e-9)


# --- 8: topic models ----------------------------------------------------------------------------------


def em_step(counts, proportions, components):
    """One EM step of the multinomial topic model, densely ([C] 45-49, [GP] alg. 6)."""
    S = reference.allocations(counts, proportions, components)
    return reference.normalise(S.sum(axis=2), proportions), reference.normalise(S.sum(axis=0), components)


@pytest.mark.parametrize("order", ["loadings", "components"])
def test_em_for_the_topic_model_is_a_joint_multiplicative_update(order):
    """[C]: a joint step with flat priors on both sides, mapped by `to_topic_model`, is one EM step, for ever.

    The proportions of a sample without counts are left out: nothing determines them.
    """
    some = NASTY.sum(axis=1) > 0
    updates = iterates(NASTY, "map", (FLAT, FLAT), unscaled_point(NASTY), 50, order=order)
    topics = to_topic_model((updates[0].loadings.value, updates[0].components.value))[:2]
    for point in updates[1:]:
        topics = em_step(NASTY, *topics)
        mapped = to_topic_model((point.loadings.value, point.components.value))
        np.testing.assert_allclose(mapped.proportions[some], topics[0][some], **ALIKE)
        np.testing.assert_allclose(mapped.components, topics[1], **ALIKE)
        np.testing.assert_allclose(mapped.totals, TOTALS[:, 0], rtol=1e-13)


def test_exposures_from_old_values_are_not_em():
    """Both exposures from before the step: components still agree, proportions do not."""
    theta, beta = unscaled_point(NASTY)
    S = reference.allocations(NASTY, theta, beta)
    mapped = to_topic_model((S.sum(axis=2) / beta.sum(axis=1), S.sum(axis=0) / theta.sum(axis=0)[:, None]))
    proportions, components = em_step(NASTY, *to_topic_model((theta, beta))[:2])
    np.testing.assert_allclose(mapped.components, components, rtol=1e-13)
    assert np.abs(mapped.proportions - proportions).max() > 0.01


def test_half_steps_are_exact_under_the_map():
    """[C]: a multiplicative update of one side alone does to that side, mapped, what EM does.

    That of the loadings leaves F as it is; that of the components multiplies L by what it changes the sums u by.
    """
    some = NASTY.sum(axis=1) > 0
    problem = point_or_mean_field(as_counts(NASTY), plain_map(priors=Priors(FLAT, FLAT)))
    state = start_state(problem, Start(*unscaled_point(NASTY)), RANK, np.random.default_rng(0))
    before = to_topic_model((state.loadings.value, state.components.value))
    proportions, components = em_step(NASTY, before.proportions, before.components)
    totals = allocate(problem, state, None)
    moved = [update_side(problem, state, side, totals) for side in ("loadings", "components")]
    loadings_moved, components_moved = (to_topic_model((s.loadings.value, s.components.value)) for s in moved)
    np.testing.assert_allclose(loadings_moved.proportions[some], proportions[some], rtol=1e-13)
    np.testing.assert_array_equal(loadings_moved.components, before.components)
    np.testing.assert_allclose(components_moved.components, components, rtol=1e-13)
    tilted = before.proportions * components_moved.sums / before.sums
    np.testing.assert_allclose(components_moved.proportions, reference.normalise(tilted, tilted), rtol=1e-13)


@pytest.mark.parametrize("schedule", ["joint", "alternating"])
def test_alternating_updates_take_another_way_to_the_same_fixed_points(schedule):
    """[C]: the sequences part at once, but where either has arrived neither moves, nor does EM."""
    counts = separated_counts()
    path = iterates(counts, "map", (FLAT, FLAT), unscaled_point(counts, 2), 1_000, rank=2, schedule=schedule)
    arrived = to_topic_model((path[-1].loadings.value, path[-1].components.value))
    beside = em_step(counts, *arrived[:2])
    for other in ("joint", "alternating"):
        after = iterates(counts, "map", (FLAT, FLAT), path[-1], 1, rank=2, schedule=other)[1]
        moved = to_topic_model((after.loadings.value, after.components.value))
        for found in (moved, beside):
            np.testing.assert_allclose(found[0], arrived.proportions, rtol=0, atol=1e-14)
            np.testing.assert_allclose(found[1], arrived.components, rtol=0, atol=1e-14)
    first = to_topic_model((path[1].loadings.value, path[1].components.value))
    em = em_step(counts, *to_topic_model((path[0].loadings.value, path[0].components.value))[:2])
    gap = max(np.abs(one - other).max() for one, other in zip(first[:2], em, strict=True))
    assert gap < 1e-14 if schedule == "joint" else gap > 0.01


C, D = np.linspace(1.2, 2.0, RANK * 7).reshape(RANK, 7), np.array([[0.5], [1.0], [3.0]])


def test_map_is_maximum_likelihood_with_pseudo_samples():
    """[C] 19-20: Gamma(c, d_k) on β and flat θ are unpenalised [X; c − 1] with [θ; diag(d)], the last K rows held."""
    path = iterates(NASTY, "map", (FLAT, Gamma(C, D)), unscaled_point(NASTY), 50, schedule="alternating")
    theta, beta = path[0].loadings.value, path[0].components.value
    data, held = np.vstack([NASTY, C - 1]), np.diag(D[:, 0])
    for point in path[1:]:
        S = reference.allocations(data, np.vstack([theta, held]), beta)
        theta = reference.divide(S.sum(axis=2)[:-RANK], beta.sum(axis=1), theta)
        stacked = np.vstack([theta, held])
        S = reference.allocations(data, stacked, beta)
        beta = S.sum(axis=0) / stacked.sum(axis=0)[:, None]
        np.testing.assert_allclose(point.loadings.value, theta, **ALIKE)
        np.testing.assert_allclose(point.components.value, beta, **ALIKE)
        # The objectives differ by what depends on the prior alone.
        prior = stats.gamma.logpdf(beta, C, scale=1 / D).sum()
        np.testing.assert_allclose(point.objective, reference.poisson_loglik(NASTY, theta @ beta) + prior, rtol=1e-9)


def test_map_with_gammas_is_map_of_the_topic_model_with_dirichlets():
    """[C] cor. 2: at the optimum Σ_j β_kj = Σ_j (c_kj − 1)/d_k, and (L, F) is the MAP under F_k ~ Dirichlet(c_k)."""
    counts, c, d = separated_counts(), 3 + C[:2], D[:2]
    options = plain_map(
        priors=Priors(FLAT, Gamma(c, d)), start=Start(*unscaled_point(counts, 2)), max_iter=1_000, tol=0
    )
    fit = bayesnmf.fit(counts, "poisson", 2, "map", options=options)
    np.testing.assert_allclose(fit.components.sum(axis=1), (c - 1).sum(axis=1) / d[:, 0], rtol=1e-13)
    model = to_topic_model(fit)
    # It stays where it is, for it is at a maximum to rounding; and EM brings back what is a little beside it.
    for beside, steps in ((1.0, 30), (1.001, 1_000)):
        start = [reference.normalise(side**beside, side) for side in model[:2]]
        point = iterates(counts, "map", (EVEN, Dirichlet(c)), start, steps, rank=2)[-1]
        np.testing.assert_allclose(point.loadings.value, model.proportions, rtol=0, atol=1e-13)
        np.testing.assert_allclose(point.components.value, model.components, rtol=0, atol=1e-13)
