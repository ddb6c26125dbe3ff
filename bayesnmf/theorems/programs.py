"""Statement 11: the closed-form bounds equal NumPyro's bounds of the hand-written programs at the same q."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer import TraceMeanField_ELBO

from bayesnmf.assessment.bounds import elbo_augmented, state_of_fit
from bayesnmf.fitting.fitted import Fit
from bayesnmf.fitting.numpyro_bridge import guide_parameters, load_program, program_arguments
from bayesnmf.models.entries import as_observation
from bayesnmf.priors.specification import MODELS
from bayesnmf.theorems.study import Study, joined_notes, permitted_errors, plain_vi, rounding_of_bound
from bayesnmf.theorems.table import Claim, Row
from bayesnmf.types import Array

SOURCE = "NumPyro"
# Most of the time is spent on compiling the samplers; without optimisation this is faster.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def bounds_of_programs(study: Study) -> Iterator[Row]:
    """Compare the bounds of all models with NumPyro's `TraceMeanField_ELBO`, given its standard errors."""
    note = study.small[1]
    for model in MODELS:
        options = plain_vi(max_iter=study.iterations, tol=0)
        fit = study.fit(study.counts, model, "vi", options)
        fit = fit if study.part is None else study.part.restrict_fit(fit)
        closed = elbo_augmented(fit)
        draws = numpyro_bounds(fit, study.effort.draws, study.seed, augmented=study.counts.is_integer)
        slack = rounding_of_bound(fit.counts, fit.rank)  # at K = m = 1 only rounding varies
        means, errors = draws.mean(axis=0), draws.std(axis=0, ddof=1) / np.sqrt(len(draws))
        off = permitted_errors(len(draws)) * errors + slack
        claim = Claim(11, f"{model}: ELBO in closed form = ELBO of the augmented program", SOURCE)
        if study.counts.is_integer:
            yield claim.equal(closed, means[1], off[1], joined_notes(note, f"± {errors[1]:.2g}"))
        else:
            yield claim.not_computed("needs whole numbers")
        claim = Claim(11, f"{model}: ELBO in closed form ≤ ELBO of the marginal program", SOURCE)
        yield claim.at_most(closed, means[0], off[0], joined_notes(note, f"± {errors[0]:.2g}"))


def numpyro_bounds(fit: Fit, draws: int, seed: int, augmented: bool) -> Array:
    """Return single-draw estimates of the bounds of the marginal and the augmented program, (draws, 1 or 2)."""
    problem, state = state_of_fit(fit)
    module = load_program(fit.model)
    pairs = [(module.program, module.guide), (module.augmented, module.augmented_guide)][: 1 + augmented]
    with jax.enable_x64(True):
        arguments = program_arguments(fit.counts, fit.rank, fit.priors)
        arguments["counts"] = as_observation(fit.counts.matrix)
        bound = TraceMeanField_ELBO()

        def one(parameters: dict[str, Any], key: jax.Array) -> jax.Array:
            return jnp.stack([-bound.loss(key, parameters, *pair, **arguments) for pair in pairs])

        def every(parameters: dict[str, Any], keys: jax.Array) -> jax.Array:
            return jax.lax.map(lambda key: one(parameters, key), keys)

        keys = jax.random.split(jax.random.key(seed), draws)
        found = jax.jit(every, compiler_options=QUICK)(guide_parameters(state, problem), keys)
        return np.asarray(found)
