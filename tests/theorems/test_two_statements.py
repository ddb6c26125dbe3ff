"""Every model is stated twice, by the package and as a NumPyro program: the two must agree.

First the log joint, then the evidence lower bound; the posterior is in test_sampling.py.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bayesnmf.models.entries import as_observation
from numpyro.infer import TraceMeanField_ELBO
from numpyro.infer.util import log_density
from plain import plain_vi
from registry import (
    MODELS_AND_PRIORS,
    RANK,
    SIZE,
    every_entry,
    interior_state,
    nasty_counts,
    over,
    plain_counts,
    simplex_entries,
    with_parameter,
)
from scipy import stats
from scipy.special import rel_entr
from suites import mostly_long

import bayesnmf
from bayesnmf import HierarchicalGamma, Start
from bayesnmf.data.conversion import as_counts
from bayesnmf.data.mask import Mask, as_pattern
from bayesnmf.fitting.numpyro_bridge import (
    guide_parameters,
    hyperparameters,
    load_program,
    program_arguments,
    state_of_parameters,
)
from bayesnmf.fitting.nuts_and_svi import log_joints
from bayesnmf.fitting.problems import draws_problem, point_or_mean_field, start_state
from bayesnmf.inference.sides import objective
from bayesnmf.inference.starts.states import random_state
from bayesnmf.kernels.cpu.allocation import expected_allocations
from bayesnmf.priors import ScaledProportions

N, M = SIZE
HIDDEN = np.random.default_rng(8).random(SIZE) < 0.3
HIDDEN[1], HIDDEN[:, 2] = True, True
FLAT = {"shape": 1.0, "rate": 0.0}
# Most of the time goes into compiling the samplers; without optimisation they compile faster.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


def sites(state, priors):
    """The values of a state by site of the program, with shared rates at their means."""
    value = state.loadings.value
    named = {"components": priors.components.sites_of_value(state.components.value)}
    for side in ("loadings", "components"):
        named |= getattr(priors, side).sites_of_shared(side, getattr(state, side).matrix)
    if isinstance(value, ScaledProportions):
        return {**named, "loadings": value.proportions, "scale": value.scale[:, 0]}
    return {**named, "loadings": value}


def shared_density(state, priors):
    """Log density of the shared rates at those sites, given the entries: ours has them integrated out."""
    total = 0.0
    for side in ("loadings", "components"):
        prior = getattr(priors, side)
        entries = prior.sites_of_value(getattr(state, side).matrix)
        prior = getattr(prior, "free", prior)
        if isinstance(prior, HierarchicalGamma):
            axes = {"row": (1,), "feature": (0,), "all": (0, 1)}.get(prior.over) or (
                (0,) if side == "loadings" else (1,)
            )
            a = np.broadcast_to(prior.shape, entries.shape).sum(axis=axes, keepdims=True)
            shape, rate = prior.rate.shape + a, prior.rate.rate + entries.sum(axis=axes, keepdims=True)
            total += stats.gamma.logpdf(shape / rate, shape, scale=1 / rate).sum()
    return total


# --- the log joint ----------------------------------------------------------------------------------


@every_entry
def test_log_joint_is_that_of_the_program(entry):
    rng = np.random.default_rng(0)
    priors = entry.priors()
    missing = [Mask(as_pattern(of_missing == HIDDEN), of_missing) for of_missing in (True, False)]
    complete = [as_counts(plain_counts()), as_counts(nasty_counts())]
    for counts in (*complete, *(complete[0].with_mask(mask) for mask in missing)):
        arguments = program_arguments(counts, RANK, priors)
        problem = draws_problem(counts, priors, rng)
        state = interior_state(priors, SIZE, RANK, rng)
        totals = expected_allocations(counts.matrix, state.loadings.geometric, state.components.geometric)
        found = objective(problem, state, totals.loglik)
        joint, _ = log_density(load_program(entry.model).program, (), arguments, sites(state, priors))
        expected = joint - shared_density(state, priors)
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        value = state.loadings.value
        one = ScaledProportions(*(x[None, None] for x in value)) if isinstance(value, tuple) else value[None, None]
        again = log_joints(counts, priors, one, state.components.value[None, None])
        np.testing.assert_allclose(again, [[expected]], rtol=1e-9)


@simplex_entries
def test_log_joint_with_components_as_a_parameter(entry):
    """A parameter has no density: what is left are the likelihood and the prior of the loadings."""
    rng = np.random.default_rng(1)
    counts, priors = as_counts(plain_counts()), entry.priors()
    state = interior_state(priors, SIZE, RANK, rng)
    arguments = program_arguments(counts, RANK, with_parameter(priors))
    joint, _ = log_density(load_program(entry.model).program, (), arguments, sites(state, priors))
    expected = joint - shared_density(state, priors)
    problem = draws_problem(counts, priors, rng)
    ell = expected_allocations(counts.matrix, state.loadings.geometric, state.components.geometric).loglik
    found = objective(problem, state, ell) - state.components.penalty
    np.testing.assert_allclose(found, expected, rtol=1e-9)


# --- the evidence lower bound -----------------------------------------------------------------------

OPTIONAL = ("hierarchical_poisson-asymmetric", "relevance-sparse", "partly_known", "partly_known-gammas")


@over([entry for entry in MODELS_AND_PRIORS if entry.id in OPTIONAL])
def test_augmented_bound_has_the_allocations_of_the_mean_field(entry):
    """It is below the log joint by Σ X KL(φ ‖ θβ / Σ θβ), with φ from E log of q; other families: test_programs.py."""
    rng = np.random.default_rng(5)
    counts, priors, module = as_counts(nasty_counts()), entry.priors(), load_program(entry.model)
    problem = point_or_mean_field(counts, plain_vi(priors=priors))
    q, point = random_state(problem, RANK, rng), interior_state(priors, SIZE, RANK, rng)
    arguments, values = program_arguments(counts, RANK, priors, dense=False), sites(point, priors)
    joint, _ = log_density(module.program, (), arguments, values)
    bound, _ = log_density(module.augmented_bound, (), arguments, guide_parameters(q, problem) | values)
    geometric, rates = (
        loadings[:, None, :] * components.T
        for loadings, components in (
            (q.loadings.geometric, q.components.geometric),
            (point.loadings.matrix, point.components.matrix),
        )
    )
    phi, shares = (each / each.sum(axis=2, keepdims=True) for each in (geometric, rates))
    lost = (counts.matrix.toarray() * rel_entr(phi, shares).sum(axis=2)).sum()
    np.testing.assert_allclose(joint - bound, lost, rtol=1e-9)


@cache
def compiled_bounds(model, traced, fixed, batches=20, particles=100):
    """A function of the hyperparameters, so that priors of the same families are compiled once.

    Returns estimates of NumPyro's augmented and marginal bounds, (batches, 2).
    """
    module = load_program(model)
    entries = as_observation(as_counts(plain_counts(seed=2)).matrix)
    pairs = ((module.augmented, module.augmented_guide), (module.program, module.guide))
    elbo = TraceMeanField_ELBO(particles)
    concrete = dict(fixed)
    assert set(traced).isdisjoint(concrete)

    def run(parameters, hyperparameters):
        arguments = {"size": SIZE, "rank": RANK, **hyperparameters}
        arguments |= {side: FLAT if value == "flat" else value for side, value in concrete.items()}

        def one(key):
            return jnp.stack([-elbo.loss(key, parameters, *pair, entries, **arguments) for pair in pairs])

        return jax.lax.map(one, jax.random.split(jax.random.key(0), batches))

    return jax.jit(run, compiler_options=QUICK)


def bounds(fit, priors, counts):
    """Mean and standard error of NumPyro's augmented and marginal bounds at the q of a fit."""
    problem = point_or_mean_field(counts, plain_vi(priors=priors))
    components = fit.components if fit.posterior.components is None else fit.posterior.components
    state = start_state(problem, Start(fit.posterior.loadings, components), RANK, None)
    fixed, traced = {}, {}
    for side, size in (("loadings", (N, RANK)), ("components", (RANK, M))):
        prior = getattr(priors, side)
        if prior == "parameter" or prior.flat:
            fixed[side] = prior if prior == "parameter" else "flat"
            continue
        traced[side] = hyperparameters(prior.broadcast(size), size)
    run = compiled_bounds(fit.model, tuple(traced), tuple(fixed.items()))
    draws = run(guide_parameters(state, problem), traced)
    return draws.mean(axis=0), draws.std(axis=0, ddof=1) / np.sqrt(len(draws))


def check_bounds(entry, priors):
    counts = as_counts(plain_counts(seed=2))
    options = plain_vi(priors=priors, max_iter=15, tol=0)
    fit = bayesnmf.fit(counts, entry.model, RANK, "vi", seed=3, options=options)
    (augmented, marginal), error = bounds(fit, priors, counts)
    # Both means have standard errors estimated from 20 batches; keys are fixed.
    assert abs(augmented - fit.trace[-1]) < 4 * error[0]
    assert marginal > fit.trace[-1] - 4 * error[1]
    assert error[0] < 0.005 * abs(fit.trace[-1])  # or the comparison says nothing


@pytest.mark.long
@every_entry
def test_elbo_is_that_of_the_augmented_program(entry):
    check_bounds(entry, entry.priors())


@pytest.mark.parametrize("position", mostly_long([4, 0, 5]))
def test_elbo_with_components_as_a_parameter(position):
    entry = MODELS_AND_PRIORS[position]
    check_bounds(entry, with_parameter(entry.priors()))


@every_entry
def test_a_mean_field_survives_as_parameters_of_the_guide(entry):
    """A mean field as the parameters of the guide, and as a mean field again, is the same."""
    counts, priors = as_counts(nasty_counts()), entry.priors()
    problem = point_or_mean_field(counts, plain_vi(priors=priors))
    state = random_state(problem, RANK, np.random.default_rng(4))
    again = state_of_parameters(guide_parameters(state, problem), problem)
    for one, two in zip(state, again, strict=True):
        np.testing.assert_allclose(one.matrix, two.matrix, rtol=1e-12)
        np.testing.assert_allclose(one.geometric, two.geometric, rtol=1e-12)
        np.testing.assert_allclose(one.penalty, two.penalty, rtol=1e-12)
