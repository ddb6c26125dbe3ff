"""Run NUTS and SVI on the NumPyro program of a model."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
from scipy.stats import sem

from bayesnmf.data.counts import Counts
from bayesnmf.fitting.chains import chain_starts, fit_of_draws, log_joints, resolve_start
from bayesnmf.fitting.closed_form import fit_of_ascent
from bayesnmf.fitting.job import Job
from bayesnmf.fitting.numpyro_bridge import (
    guide_parameters,
    load_program,
    program_arguments,
    sites_of,
    state_of_parameters,
)
from bayesnmf.fitting.problems import point_or_mean_field, start_state
from bayesnmf.inference.ascent.coordinate_ascent import Ascent
from bayesnmf.inference.sampling.nuts_and_svi import NutsRun, run_nuts, run_svi, starts_by, unconstrain
from bayesnmf.inference.status import INTERRUPTED, Status
from bayesnmf.noise.abilities import distribution_of
from bayesnmf.options import VI
from bayesnmf.priors.values import attach_scale
from bayesnmf.results.record import FitRecord
from bayesnmf.types import Array

JUDGED_STEPS, SETTLED = 20, 1e-3


def counts_in_float64(counts: Counts) -> Counts:
    """Return the same counts in float64."""
    return counts if counts.dtype == np.float64 else counts.with_matrix(counts.matrix.astype(np.float64))


def fit_nuts(job: Job) -> FitRecord:
    """Run NUTS on the model's program, from a draw of the closed-form posterior for each chain."""
    priors, options = job.options.priors, job.options
    doubles = replace(job, counts=counts_in_float64(job.counts))
    program, arguments = load_program(job.model).program, program_arguments(doubles.counts, job.rank, priors)
    with jax.enable_x64(options.dtype == "float64"):
        run = run_nuts(
            program,
            arguments,
            _starts(doubles)
            if options.init_strategy is None
            else starts_by(options.init_strategy, [{}] * options.chains, program, arguments, job.seed),
            job.seed,
            options,
            lambda done, total: job.report(f"nuts {job.model}", done, total, np.nan),
        )
    drawn = {name: values.astype(np.float64) for name, values in run.draws.items()}
    loadings = attach_scale(drawn["loadings"], drawn.get("scale"))
    site = drawn.get("components", np.empty((*drawn["loadings"].shape[:2], 0, job.counts.shape[1])))
    components = priors.components.value_of_sites(site)
    log_joint = log_joints(doubles.counts, priors, loadings, components, distribution_of(doubles.noise))
    about = diagnostics_of(run)
    return fit_of_draws(job, [loadings, components], log_joint, about, run.interrupted, run.statistics)


def _starts(job: Job) -> dict[str, jax.Array]:
    """Return unconstrained values of the sites to start chains from, those of a start of the job."""
    priors = job.options.priors
    values = [sites_of(state.loadings.value, state.components.matrix, priors) for state in chain_starts(job)[0]]
    stacked = {name: np.stack([value[name] for value in values]) for name in values[0]}
    simplex = {side for side, prior in vars(priors).items() if prior.support != "positive"}
    return unconstrain(stacked, frozenset(simplex))


def diagnostics_of(run: NutsRun) -> dict[str, float]:
    """Return the divergences of a run, and means of its steps and acceptance."""
    return {
        "divergences": float(run.statistics["diverging"].sum()),
        "mean_steps": float(run.statistics["num_steps"].mean()),
        "mean_acceptance": float(run.statistics["accept_prob"].mean()),
    }


def fit_svi(job: Job) -> FitRecord:
    """Maximise the elbo by gradient steps over the parameters of q, from the closed-form fit."""
    options = job.options
    doubles = replace(job, counts=counts_in_float64(job.counts))
    problem = point_or_mean_field(doubles.counts, VI(priors=options.priors))
    state = start_state(problem, resolve_start(doubles), job.rank, np.random.default_rng(job.seed))
    module = load_program(job.model)
    marginal = options.bound == "marginal"
    program = module.program if marginal else module.augmented_bound
    with jax.enable_x64(options.dtype == "float64"):
        run = run_svi(
            (program, module.guide),
            program_arguments(doubles.counts, job.rank, options.priors, dense=None if marginal else False),
            guide_parameters(state, problem),
            job.seed,
            options,
            lambda done, value: job.report(f"svi {job.model}", done, options.max_iter, value),
        )
    status = svi_status(run.bounds, run.interrupted, options.max_iter)
    state = state_of_parameters(run.parameters, problem)
    return fit_of_ascent(job, Ascent(problem, state, list(run.bounds), [], status))


def svi_status(bounds: Array, interrupted: bool, steps: int) -> Status:
    """Return the status: converged if the mean elbo over the last tenth of the steps rises by less than 0.1 %."""
    if interrupted:
        return Status(False, INTERRUPTED, len(bounds))
    tenth = len(bounds) // 10
    if tenth < JUDGED_STEPS:
        return Status(False, f"all {steps} steps done, too few to judge: {10 * JUDGED_STEPS} at least", len(bounds))
    last, before = bounds[-tenth:], bounds[-2 * tenth : -tenth]
    rise = float(last.mean() - before.mean())
    noise = float(np.hypot(sem(last), sem(before)))
    reason = f"bound rose by {rise:.3g} ± {noise:.2g} nats over the last tenth of {steps} steps"
    return Status(bool(rise + 2 * noise < SETTLED * abs(last.mean())), reason, len(bounds))
