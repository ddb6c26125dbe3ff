"""Compute the evidence of a model: the probability of counts, with loadings and components integrated out."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial
from threading import Event
from typing import Any, Literal, NamedTuple

import numba
import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import t as student

from bayesnmf.assessment.bounds import elbo_marginal
from bayesnmf.assessment.checks import check_allocation, check_enumerable, check_truth, check_untempered, check_visits
from bayesnmf.checks import check_choice, check_count, check_fraction, check_rank, check_seed, check_size
from bayesnmf.data.batches import check_no_batches
from bayesnmf.data.checks import check_complete
from bayesnmf.data.conversion import as_counts, check_integer_counts
from bayesnmf.data.counts import Counts
from bayesnmf.data.simulation import Simulation
from bayesnmf.fitting.chains import closed_form_fit, vi_options_of
from bayesnmf.fitting.job import Job, ProgressReport, check_combination, progress_context, resolve_priors
from bayesnmf.fitting.known import RANK
from bayesnmf.fitting.noisy import counts_to_temper, run_with_noise
from bayesnmf.inference.marginal import allocation_model
from bayesnmf.inference.marginal.allocation_model import (
    count_allocations,
    enumerated_log_evidence,
    estimated_log_evidence,
)
from bayesnmf.inference.side_by_side import side_by_side
from bayesnmf.inference.status import ConvergenceWarning
from bayesnmf.inference.tempering.annealing import (
    IN_TWENTY,
    WIDEST_SPREAD,
    agree,
    descend_ladder,
    log_of_mean,
    spread_of,
    tempered_runs,
)
from bayesnmf.inference.tempering.clusters import tempered_target
from bayesnmf.noise.abilities import Noise
from bayesnmf.noise.negative_binomial import NegativeBinomial
from bayesnmf.noise.poisson import POISSON
from bayesnmf.options import SMC, VI
from bayesnmf.options.rules import COLLAPSIBLE, UNEXPOSED, Request
from bayesnmf.priors import Dirichlet, Distribution, Priors
from bayesnmf.priors.checks import check_broadcast, check_family, check_noise
from bayesnmf.priors.specification import model_and_rank
from bayesnmf.types import ModelName

CURES = {
    "tempered": "raise refinement, particles or efficiency, or read at_least",
    "tokens": "ask for more particles, take method='tempered', or read at_least",
}


class Evidence(NamedTuple):
    """An evidence and how it was computed.

    Attributes
    ----------
    log_evidence : float
        Log p(X) on the Poisson scale, in nats. Unless it is exact, the log of the mean of the runs' estimates of p(X),
        which is unbiased; its log is too low on average.
    se : float
        Standard error of `log_evidence` from the spread of the runs, to first order: std(p̂) / mean(p̂) / √runs. It is
        0 with "exact" and NaN for a single run. It is infinite if unknown: if the standard deviation of the runs' logs
        is above 1, so that one run dominates the mean, or if the estimate is below `bound`.
    method : {"tempered", "tokens", "exact"}
    particles : int
        Number of particles in each run; 0 with "exact".
    estimates : tuple of float
        Log p̂(X) of each finished run, in nats; empty with "exact".
    bound : float
        Lower bound of log p(X), in nats: `elbo_marginal` of a variational fit with the same priors, minus four of its
        standard errors. Minus infinity with "exact".
    rungs : int
        Number of powers of the likelihood with "tempered", else 0.
    upper : float
        With `truth`, log p̂(X) of chains from the true parameters to the prior, in nats: an estimate that is too high on
        average. Infinity otherwise.
    """

    log_evidence: float
    se: float
    method: str
    particles: int
    estimates: tuple[float, ...]
    bound: float
    rungs: int = 0
    upper: float = np.inf

    @property
    def known(self) -> bool:
        """Whether the standard error is known."""
        return bool(np.isfinite(self.se))

    @property
    def spread(self) -> float:
        """Standard deviation of the runs' log estimates, in nats; 0 with "exact", NaN for a single run."""
        return 0.0 if self.method == "exact" else spread_of(np.array(self.estimates))

    @property
    def at_least(self) -> float:
        """Lower limit of log p(X), in nats, with a probability of at least 95 %.

        It is the larger of `bound` and log(p̂/20): an unbiased estimate exceeds 20 p(X) at most once in 20 times.
        """
        return max(self.bound, self.log_evidence - (0.0 if self.method == "exact" else IN_TWENTY))

    @property
    def at_most(self) -> float:
        """Upper limit of log p(X), in nats, with a probability of at least 95 %; infinity without `truth`."""
        return self.log_evidence if self.method == "exact" else self.upper + IN_TWENTY

    def interval(self, probability: float = 0.95) -> tuple[float, float]:
        """Return the ends of a confidence interval of log p(X), in nats, by Student's t for the number of runs.

        If the standard error is unknown, the interval reaches from `at_least` to `at_most` for any probability.
        """
        probability = check_fraction(probability, "probability")
        if not self.known:
            return self.at_least, self.at_most
        if self.method == "exact":
            return self.log_evidence, self.log_evidence
        reach = float(student.ppf((1 + probability) / 2, len(self.estimates) - 1)) * self.se
        return self.log_evidence - reach, self.log_evidence + reach

    def __repr__(self) -> str:
        if self.method == "exact":
            return f"<bayesnmf.Evidence: log p(X) {self.log_evidence:,.3f} nats, exact>"
        runs = f"{len(self.estimates)} run{'s' if len(self.estimates) > 1 else ''} of {self.particles:,} particles"
        above = f", at most {self.at_most:,.3f}" if np.isfinite(self.at_most) else ""
        if not self.known:
            spread = "" if np.isnan(self.spread) else f" with a spread of {self.spread:.1f} nats"
            return f"<bayesnmf.Evidence: log p(X) unknown, at least {self.at_least:,.3f}{above} nats; {runs}{spread}>"
        low, high = self.interval()
        ends = f"95 % from {low:,.3f} to {high:,.3f}{above}"
        return f"<bayesnmf.Evidence: log p(X) {self.log_evidence:,.3f} ± {self.se:.3f} nats, {ends}; {runs}>"


def average(
    method: str, estimates: list[float], particles: int, bound: float, rungs: int = 0, upper: float = np.inf
) -> Evidence:
    """Average the runs; warn if they do not determine the error of their mean."""
    logs = np.array(estimates)
    mean, error = log_of_mean(logs)
    if reason := _why_unknown(logs, mean, bound):
        warnings.warn(
            f"{reason}; the estimate is too low and its error is unknown; {CURES[method]}",
            ConvergenceWarning,
            stacklevel=4,
        )
        error = np.inf
    return Evidence(mean, error, method, particles, tuple(estimates), bound, rungs, upper)


def _why_unknown(logs: np.ndarray, mean: float, bound: float) -> str:
    """Return why the runs do not determine the error of their mean; an empty text if they do."""
    spread = spread_of(logs)
    if len(logs) > 1 and not agree(logs):  # the mean is then close to the luckiest run
        return f"the runs' log estimates have a standard deviation of {spread:.1f} nats, above {WIDEST_SPREAD:g}"
    if mean < bound:
        return f"the log estimate, {mean:,.1f} nats, is below the bound of a variational fit, {bound:,.1f}"
    return ""


MOST_ALLOCATIONS = 100_000
MOST_VISITS = 10**12  # about an hour
MOST_RUNS = 100_000
LARGEST_PARTICLES = 4 * 2**30
ROUNDING = 1e-9
PARTICLES = {"tempered": 16, "tokens": 1000, "exact": 0}  # by method
FEW_COUNTS = 200  # total up to which single counts are the default: benchmarks/README.md, "Evidence"


def log_evidence(
    counts: Any,
    model: ModelName | int = "gamma_poisson",
    rank: int | None = None,
    method: Literal["tempered", "tokens", "exact"] | None = None,
    *,
    priors: Priors | None = None,
    particles: int | None = None,
    runs: int = 8,
    efficiency: float | None = None,
    refinement: int | None = None,
    truth: Simulation | None = None,
    noise: Literal["poisson", "nb1"] | NegativeBinomial = "poisson",
    seed: int | None = None,
    progress: ProgressReport | bool | None = None,
) -> Evidence:
    """Estimate log p(X), with loadings and components integrated out.

    The result is on the Poisson scale of the bounds: under dirichlet_poisson, which is given the row totals N_i, the
    multinomial is multiplied by Poisson(N_i; 1).

    Parameters
    ----------
    counts : array-like, (n, m)
        Whole-number counts; those of a fit with missing entries (``fit.counts``) with "tempered" and Gamma loadings.
    model, rank : as for `bayesnmf.fit`; "poisson" has no evidence under its flat default
    method : {"tempered", "tokens", "exact"}, optional
        "tempered": sequential Monte Carlo through powers of the likelihood (`bayesnmf.SMC`), for all models. "tokens":
        through the Pólya urn, one single count after another; it needs Dirichlet components and time O(ΣX · K) for each
        particle. "exact": the sum over all allocations, at most 100,000. Where they are possible, the default is
        "exact" for rank 1, which has one allocation, and "tokens" up to a total of 200, else "tempered".
    priors : Priors, optional
        Proper priors; None means the model's default, which depends on the mean row total and the rank.
    particles : int, optional
        Number of particles in each run: 16 by default with "tempered", 1000 with "tokens".
    runs : int
        Number of independent estimates to average. Ctrl-C keeps the finished ones. A ConvergenceWarning is given if
        their logs have a standard deviation above 1, or if their mean is below the bound of a variational fit: the
        evidence is then too low, and its standard error infinite.
    efficiency, refinement : float and int, optional
        As in `bayesnmf.SMC`, with "tempered".
    truth : Simulation, optional
        Simulation that made the counts, for an upper estimate (`Evidence.upper`) with "tempered", from its own priors.
    noise : {"poisson", "nb1"} or NegativeBinomial
        Noise of the counts; "nb1" needs "tempered". A dispersion that is not given is integrated out with its prior.
    seed : int, optional
    progress : bool or callable, optional
        Progress report, as for `bayesnmf.fit`.

    Returns
    -------
    Evidence

    Raises
    ------
    TypeError, ValueError
        Invalid counts, priors or settings; the message names the argument, the rule and the cure.

    See Also
    --------
    select : several ranks by it, with ``criterion="evidence"``.
    SMC : draws beside it.
    elbo_marginal : a lower bound.

    Examples
    --------
    >>> import bayesnmf
    >>> bayesnmf.log_evidence([[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]], rank=1, seed=0).method
    'exact'
    """
    model, rank = model_and_rank(model, rank, RANK)
    seed = check_seed(seed)
    if method is not None:
        check_choice(method, "method", tuple(PARTICLES))
    data = check_no_batches(as_counts(counts), "log_evidence")
    check_integer_counts(data, "the evidence", "round them")
    given = truth.priors if priors is None and isinstance(truth, Simulation) else priors
    job = _job(data, model, check_rank(rank), given, check_noise(noise))
    chosen = method or _default_method(job, particles)
    number = PARTICLES[chosen] if particles is None else check_count(particles, "particles")
    runs = check_count(runs, "runs", most=MOST_RUNS)
    of_ladder = {"efficiency": efficiency, "refinement": refinement}
    if chosen != "tempered":
        check_untempered(chosen, {**of_ladder, "truth": truth, "noise": None if job.noise == POISSON else job.noise})
        return _by_allocations(job, chosen, number, runs, seed)
    options = replace(SMC(priors=job.options.priors, particles=number, runs=runs), **_given(of_ladder))
    with progress_context(progress) as report:
        return _tempered(replace(job, method="smc", options=options, report=report), seed, truth)


def _job(data: Counts, model: str, rank: int, priors: Priors | None, noise: Noise) -> Job:
    """Return a closed-form variational fit of the counts as a job, with priors of the model's families."""
    resolved = resolve_priors(model, data, rank, Priors() if priors is None else priors)
    check_family(model, "loadings", resolved.loadings, (data.shape[0], rank))
    check_family(model, "components", resolved.components, (rank, data.shape[1]))
    return Job(data, model, rank, "vi", 0, VI(priors=resolved), lambda *_: None, noise)


def _by_allocations(job: Job, method: str, particles: int, runs: int, seed: int | None) -> Evidence:
    """Sum over all allocations, or estimate the sum one single count after another."""
    what, data, rank, priors = f"method={method!r}", job.counts, job.rank, job.options.priors
    check_complete(data, what)
    for need in (UNEXPOSED, *COLLAPSIBLE):
        need.check(Request(priors=priors, counts=data), f"{what} needs", cure="use method='tempered'")
    sides: Any = priors.loadings, priors.components
    if method == "exact":
        check_enumerable(count_allocations(data, rank), MOST_ALLOCATIONS)
        return Evidence(enumerated_log_evidence(data, rank, *sides), 0.0, "exact", 0, (), -np.inf)
    check_visits(data.total, rank * particles * runs, MOST_VISITS)
    bound = variational_bound(job)
    estimates = _by_tokens(data, rank, sides, particles, np.random.SeedSequence(seed).spawn(runs))
    return average("tokens", estimates, particles, bound)


def _given(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _default_method(job: Job, particles: int | None) -> str:
    """Return the method that is used unless another is named."""
    if job.noise != POISSON or not _is_collapsible(job):
        return "tempered"
    if job.rank == 1 and particles is None:
        return "exact"
    return "tokens" if job.counts.total <= FEW_COUNTS else "tempered"


def _is_collapsible(job: Job) -> bool:
    """Return whether single counts can be added one after another."""
    priors = job.options.priors
    dirichlet = isinstance(priors.components, Dirichlet) and not job.counts.exposed and job.counts.mask is None
    return dirichlet and all("marginal" in side.optional for side in (priors.loadings, priors.components))


def _tempered(job: Job, seed: int | None, truth: Simulation | None) -> Evidence:
    """Estimate the evidence by tempered runs, and with a simulation by chains down from its parameters, too."""
    check_combination(Request(job.model, "smc", job.options.priors, job.options, job.noise, job.counts, job.rank))
    check_truth(truth, job)
    target = tempered_target(counts_to_temper(job), job.options.priors, job.rank)
    bound, upper = variational_bound(job), np.inf

    def report(label: str, done: int, total: int, power: float) -> None:
        job.report(f"evidence, {label}", done, total, power)

    found = tempered_runs(target, job.options, seed, report)
    ladder = found.ladder
    if truth is not None:
        rng, show = np.random.default_rng([0 if seed is None else seed, 2]), partial(_report_descent, report, ladder)
        upper = descend_ladder(target, ladder, truth.loadings, truth.components, job.options.particles, rng, show)
    return average("tempered", found.logs.tolist(), job.options.particles, bound, len(ladder) - 1, upper)


def _report_descent(report: Any, ladder: Any, done: int, power: float) -> None:
    report("from the truth", done, len(ladder) - 1, power)


def variational_bound(job: Job) -> float:
    """Return `elbo_marginal` of a closed-form fit, minus four standard errors and its rounding error.

    The bound of a fit that learns a dispersion is none of the evidence, which integrates the dispersion out.
    """
    if job.noise != POISSON and not job.noise.known:
        return -np.inf
    vi = replace(job, method="vi", options=VI(priors=job.options.priors), report=lambda *_: None)
    plain = job.noise == POISSON
    marginal = elbo_marginal(closed_form_fit(vi) if plain else run_with_noise(replace(vi, options=vi_options_of(vi))))
    return marginal.mean - 4 * marginal.se - ROUNDING * abs(marginal.mean)


def _by_tokens(data: Counts, rank: int, sides: Any, particles: int, seeds: list[np.random.SeedSequence]) -> list[float]:
    """Return the log estimates of the runs, which have a thread each; after Ctrl-C, only those of finished runs."""
    at_once = min(len(seeds), numba.get_num_threads())
    size = 8 * at_once * particles * rank * data.shape[1]
    check_size(size, LARGEST_PARTICLES, "the particles", "ask for fewer, or fewer features")
    stop = Event()
    passes = [partial(estimated_log_evidence, data, rank, sides, particles, seed, stop) for seed in seeds]
    finished = [log_p for log_p in side_by_side(passes, at_once, stop) if log_p is not None]
    if not finished:
        raise KeyboardInterrupt
    return finished


def log_p_allocation(allocations: ArrayLike, loadings: Distribution, components: Dirichlet) -> float:
    """Compute log p(S) of an allocation, with loadings and components integrated out ([K] 7-9).

    Parameters
    ----------
    allocations : array_like of shape (n, K, m)
        S_ikj, the part of the counts of feature j in sample i that component k produced: nonnegative, whole or not.
    loadings : ScaledDirichlet, Dirichlet or Gamma
        Prior with parameters broadcastable to (n, K), for dirichlet_gamma, dirichlet_poisson or gamma_poisson.
    components : Dirichlet
        Prior with parameters broadcastable to (K, m).

    Returns
    -------
    float
        Log p(S) in nats, Poisson scale: its exponential sums to p(X) over all whole-number S that add up to X.

    Raises
    ------
    TypeError, ValueError
        Invalid allocations or priors.

    See Also
    --------
    log_evidence : of the counts, with allocations summed out as well.

    Examples
    --------
    >>> import bayesnmf
    >>> S = [[[3, 0], [0, 1]], [[1, 0], [0, 1]]]
    >>> prior = bayesnmf.ScaledDirichlet(0.3, shape=5, rate=1.5)
    >>> round(bayesnmf.log_p_allocation(S, prior, bayesnmf.Dirichlet(0.4)), 4)
    -9.5997
    """
    S = check_allocation(allocations)
    n, rank, m = S.shape
    priors = Priors(loadings, components)
    for need in COLLAPSIBLE:
        need.check(Request(priors=priors), "log_p_allocation needs")
    sides: Any = priors.loadings, priors.components
    check_broadcast(loadings, "loadings", (n, rank))
    check_broadcast(components, "components", (rank, m))
    return allocation_model.log_p_allocation(S, *sides)
