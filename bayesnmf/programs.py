"""Between the package and the NumPyro programs: `fit` by NUTS and SVI."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray
from scipy.stats import sem

from bayesnmf.closed_form import fit_of_ascent
from bayesnmf.counts import Counts
from bayesnmf.fitting import Job
from bayesnmf.inference.coordinate_ascent import INTERRUPTED, Ascent, Status
from bayesnmf.inference.nuts import run_nuts, unconstrain
from bayesnmf.inference.sides import Problem, State
from bayesnmf.inference.svi import run_svi
from bayesnmf.kernels.cpu import poisson_loglik
from bayesnmf.options import VI, Priors
from bayesnmf.priors import Dirichlet, Distribution, Gamma, ScaledDirichlet, ScaledProportions, matrix
from bayesnmf.problems import point_or_mean_field, start_state
from bayesnmf.results import FitRecord
from bayesnmf.sampling import chain_starts, fit_of_draws, resolve_start
from bayesnmf.specification import PARAMETER

Array = NDArray[Any]

DENSE_CELLS = 2_000_000
INTERIOR = 1e-3
JUDGED_STEPS, SETTLED = 20, 1e-3


def load_program(model: str) -> Any:
    """Return the module of a model: `program`, `guide`, `augmented`, …"""
    return import_module(f"bayesnmf.models.{model}")


def program_arguments(counts: Counts, rank: int, priors: Priors, dense: bool | None = None) -> dict[str, Any]:
    """Return what every program of a model is called with.

    Counts are dense where that is the faster form, or as told: a product of small dense matrices beats gathers in
    XLA on a CPU unless the counts are many and sparse. Augmented programs, which work on the nonzero cells, can find
    them in concrete counts alone, so that compiled ones must be given them.
    """
    from bayesnmf.models.likelihood import as_observation

    n, m = counts.shape
    dense = n * m <= DENSE_CELLS if dense is None else dense
    return {
        "counts": as_observation(counts.matrix.toarray() if dense else counts.matrix),
        "size": (n, m),
        "rank": rank,
        "loadings": hyperparameters(priors.loadings),
        "components": hyperparameters(priors.components),
    }


def hyperparameters(prior: Any) -> Any:
    """Return a prior as the plain mapping that the programs take; the scale's are (n,) there, (n, 1) here."""
    if prior == PARAMETER:
        return PARAMETER
    values = {name: np.asarray(value, np.float64) for name, value in vars(prior).items()}
    if isinstance(prior, ScaledDirichlet):
        for name in ("shape", "rate"):
            values[name] = values[name].ravel() if values[name].size > 1 else values[name].reshape(())
    return values


def sites_of(state: State) -> dict[str, Array]:
    """Return the values of a state by site, pulled a little inside the boundary, where NUTS cannot start."""
    value = state.loadings.value
    sites = {"components": inside(state.components.matrix)}
    if isinstance(value, ScaledProportions):
        return {**sites, "loadings": inside(value.proportions), "scale": inside(value.scale)[:, 0]}
    return {**sites, "loadings": inside(value)}


def inside(values: Array) -> Array:
    """Mix each row with its mean, which leaves its sum as it is."""
    return (1 - INTERIOR) * values + INTERIOR * np.maximum(values.mean(axis=-1, keepdims=True), 1e-12)


def in_doubles(counts: Counts) -> Counts:
    """Return the same counts in float64."""
    return counts if counts.dtype == np.float64 else counts.with_matrix(counts.matrix.astype(np.float64))


def fit_nuts(job: Job) -> FitRecord:
    """Run NUTS on the model's program, from a draw of the closed-form posterior for each chain."""
    priors, options = job.options.priors, job.options
    doubles = replace(job, counts=in_doubles(job.counts))
    values = [sites_of(state) for state in chain_starts(doubles)[0]]
    stacked = {name: np.stack([value[name] for value in values]) for name in values[0]}
    simplex = {"components"} if isinstance(priors.components, Dirichlet) else set()
    if not isinstance(priors.loadings, Gamma):
        simplex.add("loadings")
    with jax.enable_x64(options.dtype == "float64"):
        run = run_nuts(
            load_program(job.model).program,
            program_arguments(doubles.counts, job.rank, priors),
            unconstrain(stacked, frozenset(simplex)),
            job.seed,
            options,
            lambda done, total: job.report(f"nuts {job.model}", done, total, np.nan),
        )
    loadings: Any = run.draws["loadings"].astype(np.float64)
    if "scale" in run.draws:
        loadings = ScaledProportions(loadings, run.draws["scale"].astype(np.float64)[..., None])
    components = run.draws["components"].astype(np.float64)
    statistics = {
        "divergences": float(run.statistics["diverging"].sum()),
        "mean_steps": float(run.statistics["num_steps"].mean()),
        "mean_acceptance": float(run.statistics["accept_prob"].mean()),
    }
    log_joint = log_joints(doubles.counts, priors, loadings, components)
    return fit_of_draws(job, [loadings, components], log_joint, statistics, run.interrupted, run.statistics)


def log_joints(counts: Counts, priors: Priors, loadings: Any, components: Array) -> Array:
    """Log joint of every draw, (chains, draws), in closed form, without the Jacobians of the sampler's space."""
    prior: Any = priors.loadings
    other: Any = priors.components
    chains, draws = components.shape[:2]
    out = np.empty((chains, draws))
    for at in np.ndindex(chains, draws):
        value: Any = loadings[at] if isinstance(loadings, np.ndarray) else None
        if value is None:
            value = ScaledProportions(*(part[at] for part in loadings))
        out[at] = (
            poisson_loglik(counts.matrix, matrix(value), components[at], counts.log_factorial)
            + prior.log_density(value)
            + other.log_density(components[at])
        )
    return out


def fit_svi(job: Job) -> FitRecord:
    """Maximise the bound by gradient steps over the parameters of q, from the closed-form fit."""
    options = job.options
    doubles = replace(job, counts=in_doubles(job.counts))
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
    """Judge by whether the mean bound over the last tenth of the steps can still be rising, by 0.1 % or more."""
    if interrupted:
        return Status(False, INTERRUPTED, len(bounds))
    tenth = len(bounds) // 10
    if tenth < JUDGED_STEPS:
        return Status(False, f"all {steps} steps done, too few to judge: {10 * JUDGED_STEPS} at least", len(bounds))
    last, before = bounds[-tenth:], bounds[-2 * tenth : -tenth]
    rise = float(last.mean() - before.mean())
    noise = float(np.hypot(sem(last), sem(before)))
    said = f"bound rose by {rise:.3g} ± {noise:.2g} nats over the last tenth of {steps} steps"
    return Status(bool(rise + 2 * noise < SETTLED * abs(last.mean())), said, len(bounds))


def guide_parameters(state: State, problem: Problem) -> dict[str, Array]:
    """Return a mean-field state as the parameters of the model's guide, by name."""
    n, rank = state.loadings.matrix.shape
    q: Any = state.loadings.conditional.broadcast((n, rank))  # type: ignore[union-attr]
    named = {f"loadings_{name}": value for name, value in vars(q).items()}
    if isinstance(q, ScaledDirichlet):
        named = {
            "loadings_concentration": q.concentration,
            "scale_shape": np.asarray(q.shape)[:, 0],
            "scale_rate": np.asarray(q.rate)[:, 0],
        }
    if state.components.conditional is None:
        return {**named, "components": inside(state.components.matrix)}
    components = state.components.conditional.broadcast((rank, problem.counts.shape[1]))
    named.update({f"components_{name}": value for name, value in vars(components).items()})
    return {name: np.ascontiguousarray(value) for name, value in named.items()}


def state_of_parameters(parameters: dict[str, Array], problem: Problem) -> State:
    """Return the parameters of a guide as a mean-field state: the inverse of `guide_parameters`."""
    p = {name: np.asarray(value, np.float64) for name, value in parameters.items()}
    q: Distribution
    if "scale_shape" in p:
        q = ScaledDirichlet(p["loadings_concentration"], p["scale_shape"][:, None], p["scale_rate"][:, None])
    elif "loadings_shape" in p:
        q = Gamma(p["loadings_shape"], p["loadings_rate"])
    else:
        q = Dirichlet(p["loadings_concentration"])
    loadings = problem.loadings_summary.of(problem.loadings_prior, q)
    prior, summary = problem.components_prior, problem.components_summary
    if "components" in p:
        return State(loadings, summary.at(prior, p["components"]))  # type: ignore[attr-defined]
    if "components_shape" in p:
        return State(loadings, summary.of(prior, Gamma(p["components_shape"], p["components_rate"])))
    return State(loadings, summary.of(prior, Dirichlet(p["components_concentration"])))
