"""`fit`: one entry for every model and method."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bayesnmf import checks
from bayesnmf.counts import Counts
from bayesnmf.inference.coordinate_ascent import INTERRUPTED, Status, coordinate_ascent
from bayesnmf.inference.sides import State
from bayesnmf.options import MAP, METHODS, NUTS, Gibbs, Options, Priors, schedule_of
from bayesnmf.priors import Dirichlet, ScaledProportions
from bayesnmf.problems import natural_basis, point_or_mean_field, start_state
from bayesnmf.results import Fit, VariationalPosterior
from bayesnmf.specification import MODELS, PARAMETER, default_loadings

LARGEST_FACTORS, LARGEST_DRAWS = 4 * 2**30, 4 * 2**30

ProgressReport = Callable[[str, int, int, float], None]


class ConvergenceWarning(UserWarning):
    """A fit stopped before it converged; the message names the cure."""


def fit(
    counts: Any,
    model: str = "gamma_poisson",
    rank: int = 10,
    method: str = "vi",
    *,
    seed: int | None = None,
    options: Options | None = None,
    progress: ProgressReport | bool = False,
) -> Fit:
    """Fit a Bayesian non-negative matrix factorisation of counts.

    Parameters
    ----------
    counts : array, SciPy sparse matrix, pandas DataFrame, AnnData or nested list, (n, m)
        Nonnegative counts, samples in rows. Whole numbers for gibbs.
    model : {"poisson", "gamma_poisson", "dirichlet_poisson", "dirichlet_gamma"}
        See `bayesnmf.specification` for the priors of each.
    rank : int
        Number of components, K.
    method : {"map", "vi", "gibbs", "nuts", "svi"}
        Point estimate, closed-form variational inference, Gibbs sampling, Hamiltonian Monte Carlo, stochastic
        variational inference.
    seed : int, optional
        Makes the run reproducible; by default a fresh one, kept in the result.
    options : MAP, VI, Gibbs, NUTS or SVI, optional
        Settings of the method: priors, start, schedule, stopping rule.
    progress : bool or callable
        True shows a progress bar; a callable gets (label, done, total, objective).

    Returns
    -------
    Fit

    Raises
    ------
    TypeError, ValueError
        On counts, options or combinations that make no sense, naming the argument, the rule and the cure.

    Examples
    --------
    >>> import bayesnmf
    >>> counts = [[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]]
    >>> fit = bayesnmf.fit(counts, model="gamma_poisson", rank=2, method="vi", seed=0)
    >>> fit.loadings.shape, fit.components.shape
    ((4, 2), (2, 3))
    """
    checks.check_choice(model, "model", MODELS)
    checks.check_choice(method, "method", METHODS)
    checks.check_rank(rank)
    checks.check_seed(seed)
    options = METHODS[method]() if options is None else options
    checks.check_options(options, method, METHODS[method])
    data = checks.as_counts(counts, dtype=getattr(options, "dtype", "float64"))
    options = replace(options, priors=resolve_priors(model, data, rank, options.priors))
    check_combination(model, method, rank, data, options)
    if seed is None:
        seed = int(np.random.SeedSequence().generate_state(1)[0])
    with reporting(progress) as report:
        started = time.perf_counter()
        result = _run(Job(data, model, rank, method, seed, options, report))
        result = replace(result, seconds=time.perf_counter() - started)
    _warn_if_not_converged(result)
    return result


def resolve_priors(model: str, counts: Counts, rank: int, priors: Priors) -> Priors:
    """Fill in the model's defaults."""
    checks.check_instance(priors, Priors, "priors")
    components = Dirichlet(1.0) if priors.components is None else priors.components
    prior_of_sums = Dirichlet(1.0) if components == PARAMETER else components
    loadings = priors.loadings
    if loadings is None:
        loadings = default_loadings(model, counts, rank, prior_of_sums)
    return Priors(loadings, components)


def check_combination(model: str, method: str, rank: int, counts: Counts, options: Options) -> None:
    """Refuse what makes no sense together."""
    n, m = counts.shape
    priors = options.priors
    checks.check_family(model, "loadings", priors.loadings, (n, rank))
    checks.check_family(model, "components", priors.components, (rank, m))
    natural = isinstance(options, MAP) and natural_basis(options)
    checks.check_posterior_exists(model, method, priors.loadings, priors.components, natural)
    if isinstance(options, MAP) and options.basis == "natural":
        checks.check_natural_basis(priors.loadings, priors.components)
    checks.check_size(8 * rank * (n + m), LARGEST_FACTORS, "loadings and components", "lower rank")
    if method == "gibbs":
        checks.check_integer_counts(counts, "method='gibbs'", "round them or use method='vi'")
    if isinstance(options, Gibbs | NUTS):
        size = 8 * options.chains * options.draws * rank * (n + m)
        cure = f"ask for fewer draws or chains, fit fewer rows, or leave {method} out"
        checks.check_size(size, LARGEST_DRAWS, f"the draws of {method}", cure)


@dataclass(frozen=True, eq=False)
class Job:
    """A fit to be done, checked, with priors filled in: what every runner takes.

    `report` is told label, steps done, steps in all, and the objective.
    """

    counts: Counts
    model: str
    rank: int
    method: str
    seed: int
    options: Any
    report: ProgressReport


def _run(job: Job) -> Fit:
    """Dispatch to the method's runner; MCMC and SVI are imported only when asked for."""
    if job.method in ("map", "vi"):
        return _coordinate_ascent(job)
    if job.method == "gibbs":
        from bayesnmf.sampling import fit_gibbs as runner
    elif job.method == "nuts":
        from bayesnmf.programs import fit_nuts as runner
    else:
        from bayesnmf.programs import fit_svi as runner
    return runner(job)


def _coordinate_ascent(job: Job) -> Fit:
    problem = point_or_mean_field(job.counts, job.options)
    state = start_state(problem, job.options.start, job.rank, np.random.default_rng(job.seed))

    label = f"{job.method} {job.model}"

    def show(iteration: int, value: float, _: State) -> None:
        job.report(label, iteration, job.options.max_iter, value)

    state, trace, status = coordinate_ascent(problem, state, schedule_of(job.options), show)
    if status.converged:
        with suppress(KeyboardInterrupt):  # what is computed is kept
            job.report(label, status.iterations, status.iterations, trace[-1])
    return fit_of_state(job, state, trace, status)


def fit_of_state(job: Job, state: State, trace: list[float], status: Status) -> Fit:
    """Make a `Fit` of a final state of coordinate ascent."""
    value = state.loadings.value
    posterior = None
    if job.method != "map":
        posterior = VariationalPosterior(state.loadings.conditional, state.components.conditional)  # type: ignore[arg-type]
    return Fit(
        model=job.model,
        method=job.method,
        rank=job.rank,
        loadings=value.proportions if isinstance(value, ScaledProportions) else value,
        components=np.ascontiguousarray(state.components.matrix),
        scale=value.scale[:, 0] if isinstance(value, ScaledProportions) else None,
        trace=np.asarray(trace),
        status=status,
        priors=job.options.priors,
        options=job.options,
        counts=job.counts,
        seed=job.seed,
        seconds=0.0,
        diagnostics={},
        _posterior=posterior,
    )


def _warn_if_not_converged(result: Fit) -> None:
    if result.status.converged or getattr(result.options, "tol", 1.0) == 0:
        return
    cures = {
        "map": "raise max_iter or tol in bayesnmf.MAP(...)",
        "vi": "raise max_iter or tol in bayesnmf.VI(...)",
        "svi": "raise max_iter or particles, or lower learning_rate, in bayesnmf.SVI(...)",
        "gibbs": "raise warmup and draws in bayesnmf.Gibbs(...)",
        "nuts": "raise warmup and draws in bayesnmf.NUTS(...)",
    }
    if result.status.reason == INTERRUPTED:
        message = f"{result.method} was interrupted: this is what it had reached; continue with start=fit"
    else:
        message = f"{result.method} did not converge ({result.status.reason}); {cures[result.method]}"
    warnings.warn(message, ConvergenceWarning, stacklevel=3)


def reporting(progress: ProgressReport | bool) -> Any:
    """Return a context that gives a progress report: a bar, the caller's own, or none."""
    from contextlib import nullcontext

    if callable(progress):
        return nullcontext(progress)
    if not progress:
        return nullcontext(lambda *_: None)
    from bayesnmf.progress import progress_bar

    return progress_bar()
