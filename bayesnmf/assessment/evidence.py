"""Compute the evidence of a model, and the marginal of an allocation, with loadings and components integrated out."""

from __future__ import annotations

import warnings
from functools import partial
from threading import Event
from typing import Any, Literal, NamedTuple

import numba
import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp
from scipy.stats import t as student

from bayesnmf.assessment.bounds import elbo_marginal
from bayesnmf.assessment.checks import check_allocation, check_enumerable, check_visits
from bayesnmf.checks import check_choice, check_count, check_fraction, check_rank, check_seed, check_size
from bayesnmf.data.conversion import as_counts, check_integer_counts
from bayesnmf.data.counts import Counts
from bayesnmf.fitting.chains import closed_form_fit
from bayesnmf.fitting.checks import check_unexposed
from bayesnmf.fitting.job import Job, resolve_priors
from bayesnmf.inference.marginal import allocation_model
from bayesnmf.inference.marginal.evidence import count_allocations, enumerated_log_evidence, estimated_log_evidence
from bayesnmf.inference.side_by_side import side_by_side
from bayesnmf.inference.status import ConvergenceWarning
from bayesnmf.options import VI
from bayesnmf.priors import Dirichlet, Distribution, Priors
from bayesnmf.priors.checks import (
    check_broadcast,
    check_family,
    check_has_part,
    check_integrates_out,
    check_proper_loadings,
)
from bayesnmf.priors.specification import MODELS

MOST_ALLOCATIONS = 100_000
MOST_VISITS = 10**12  # about an hour
MOST_RUNS = 100_000
LARGEST_PARTICLES = 4 * 2**30
WIDEST_SPREAD = 1.0  # limit for the sd of the log estimates, in nats; beyond it, one run dominates the mean
ROUNDING = 1e-9
UNKNOWN = (
    "the estimate is too low and its error is unknown; ask for more particles, take fewer counts, or read at_least"
)


class Evidence(NamedTuple):
    """An evidence and how it was computed.

    Attributes
    ----------
    log_evidence : float
        Log p(X) on the Poisson scale, in nats. With "smc", the log of the mean of the runs' estimates of p(X), which is
        unbiased; its log is too low on average.
    se : float
        Standard error of `log_evidence` from the spread of the runs, to first order: std(p̂) / mean(p̂) / √runs. It is
        0 with "exact" and NaN for a single run. It is infinite if unknown: if the standard deviation of the runs' logs
        is above 1, so that one run dominates the mean, or if the estimate is below `bound`.
    method : {"smc", "exact"}
    particles : int
        Number of particles in each run; 0 with "exact".
    estimates : tuple of float
        Log p̂(X) of each finished run, in nats; empty with "exact".
    bound : float
        Lower bound of log p(X), in nats: `elbo_marginal` of a variational fit with the same priors, minus four of its
        standard errors. Minus infinity with "exact".
    """

    log_evidence: float
    se: float
    method: str
    particles: int
    estimates: tuple[float, ...]
    bound: float

    @property
    def known(self) -> bool:
        """Whether the standard error is known."""
        return bool(np.isfinite(self.se))

    @property
    def at_least(self) -> float:
        """Lower limit of log p(X), in nats, with a probability of at least 95 %.

        It is the larger of `bound` and log(p̂/20): an unbiased estimate exceeds 20 p(X) at most once in 20 times.
        """
        return max(self.bound, self.log_evidence - (0.0 if self.method == "exact" else float(np.log(20))))

    def interval(self, probability: float = 0.95) -> tuple[float, float]:
        """Return the ends of a confidence interval of log p(X), in nats, by Student's t for the number of runs.

        If the standard error is unknown, the interval reaches from `at_least` to infinity for any probability.
        """
        probability = check_fraction(probability, "probability")
        if not self.known:
            return self.at_least, np.inf
        if self.method == "exact":
            return self.log_evidence, self.log_evidence
        reach = float(student.ppf((1 + probability) / 2, len(self.estimates) - 1)) * self.se
        return self.log_evidence - reach, self.log_evidence + reach

    def __repr__(self) -> str:
        if self.method == "exact":
            return f"<bayesnmf.Evidence: log p(X) {self.log_evidence:,.3f} nats, exact>"
        runs = f"{len(self.estimates)} run{'s' if len(self.estimates) > 1 else ''} of {self.particles:,} particles"
        if not self.known:
            return f"<bayesnmf.Evidence: log p(X) unknown, at least {self.at_least:,.3f} nats; {runs}>"
        low, high = self.interval()
        ends = f"95 % from {low:,.3f} to {high:,.3f}"
        return f"<bayesnmf.Evidence: log p(X) {self.log_evidence:,.3f} ± {self.se:.3f} nats, {ends}; {runs}>"


def log_evidence(
    counts: Any,
    model: str = "gamma_poisson",
    rank: int = 10,
    method: Literal["smc", "exact"] = "smc",
    *,
    priors: Priors | None = None,
    particles: int = 1000,
    runs: int = 4,
    seed: int | None = None,
) -> Evidence:
    """Estimate log p(X), with loadings and components integrated out.

    Components need a Dirichlet prior, and loadings a proper one. The result is on the Poisson scale of the bounds:
    under dirichlet_poisson, which is given the row totals N_i, the multinomial is multiplied by Poisson(N_i; 1).

    Parameters
    ----------
    counts : array-like, (n, m)
        Whole-number counts.
    model : {"gamma_poisson", "dirichlet_poisson", "dirichlet_gamma", "poisson"}
        Name of the model. "poisson" has no evidence under its flat default: give `priors` with proper loadings.
    rank : int
        Number of components, K.
    method : {"smc", "exact"}
        "smc": sequential Monte Carlo through the Pólya urn, one single count after another. A run takes time
        O(ΣX · K · particles), with ΣX · K · particles · runs at most 1e12, and memory O(m · K · particles).
        "exact": the sum over all allocations, at most 100,000.
    priors : Priors, optional
        Priors; None means the model's default, which depends on the mean row total and the rank.
    particles : int
        Number of particles in each run; with more, p̂(X) varies less.
    runs : int
        Number of independent estimates to average; their spread gives the standard error, which a single one lacks.
        Ctrl-C keeps the finished runs. A ConvergenceWarning is given if the standard deviation of their logs is above
        1, or their mean is below the bound of a variational fit: the mean is then too low, and the standard error
        infinite.
    seed : int, optional
        Seed; the same seed gives the same estimate.

    Returns
    -------
    Evidence

    Raises
    ------
    TypeError, ValueError
        Invalid counts, priors or settings; the message names the argument, the rule and the cure.

    Examples
    --------
    >>> import bayesnmf
    >>> priors = bayesnmf.Priors(bayesnmf.ScaledDirichlet(0.3, 5, 1.5), bayesnmf.Dirichlet(0.4))
    >>> exact = bayesnmf.log_evidence([[3, 1], [1, 1]], "dirichlet_gamma", 2, "exact", priors=priors)
    >>> round(exact.log_evidence, 6)
    -6.582758
    """
    check_choice(model, "model", MODELS)
    check_choice(method, "method", ("smc", "exact"))
    rank = check_rank(rank)
    seed = check_seed(seed)
    particles, runs = check_count(particles, "particles"), check_count(runs, "runs", most=MOST_RUNS)
    data = as_counts(counts)
    check_integer_counts(data, "the evidence", "round them")
    check_unexposed(data, "the evidence", "elbo_marginal of a fit by method='vi'")
    sides: Any = _resolved_sides(model, data, rank, Priors() if priors is None else priors)
    if method == "exact":
        return _evidence_by_enumeration(data, rank, sides)
    check_visits(data.total, rank * particles * runs, MOST_VISITS)
    bound = variational_bound(data, model, rank, Priors(*sides))
    return _average(_run_all(data, rank, sides, particles, np.random.SeedSequence(seed).spawn(runs)), particles, bound)


def _evidence_by_enumeration(data: Counts, rank: int, sides: Any) -> Evidence:
    """Sum over all allocations, if they are few."""
    check_enumerable(count_allocations(data, rank), MOST_ALLOCATIONS)
    return Evidence(enumerated_log_evidence(data, rank, *sides), 0.0, "exact", 0, (), -np.inf)


def _average(estimates: list[float], particles: int, bound: float) -> Evidence:
    """Average the runs; warn if they do not determine the error of their mean."""
    logs = np.array(estimates)
    mean, error = _log_of_mean(logs)
    if reason := _why_unknown(logs, mean, bound):
        warnings.warn(f"{reason}; {UNKNOWN}", ConvergenceWarning, stacklevel=3)
        error = np.inf
    return Evidence(mean, error, "smc", particles, tuple(estimates), bound)


def _why_unknown(logs: np.ndarray, mean: float, bound: float) -> str:
    """Return why the runs do not determine the error of their mean; an empty text if they do."""
    spread = logs.std(ddof=1) if len(logs) > 1 else 0.0
    if spread > WIDEST_SPREAD:  # the mean is then close to the luckiest run
        return f"the runs' log estimates have a standard deviation of {spread:.1f} nats, above {WIDEST_SPREAD:g}"
    if mean < bound:
        return f"the log estimate, {mean:,.1f} nats, is below the bound of a variational fit, {bound:,.1f}"
    return ""


def variational_bound(data: Counts, model: str, rank: int, priors: Priors) -> float:
    """Return `elbo_marginal` of a closed-form fit, minus four standard errors and its rounding error."""
    marginal = elbo_marginal(closed_form_fit(Job(data, model, rank, "vi", 0, VI(priors=priors), lambda *_: None)))
    return marginal.mean - 4 * marginal.se - ROUNDING * abs(marginal.mean)


def _log_of_mean(logs: np.ndarray) -> tuple[float, float]:
    """Return the log of the mean of exp(logs), and its standard error to first order, NaN for a single one."""
    ratios = np.exp(logs - logs.max())
    error = ratios.std(ddof=1) / ratios.mean() / np.sqrt(len(logs)) if len(logs) > 1 else np.nan
    return float(logsumexp(logs) - np.log(len(logs))), float(error)


def _resolved_sides(model: str, data: Counts, rank: int, priors: Priors) -> tuple[Distribution, Dirichlet]:
    """Return the priors with defaults filled in; refuse priors that do not fit the model or do not integrate out."""
    resolved = resolve_priors(model, data, rank, priors)
    n, m = data.shape
    check_family(model, "loadings", resolved.loadings, (n, rank))
    check_family(model, "components", resolved.components, (rank, m))
    return _checked_sides(resolved.loadings, resolved.components, "the evidence")


def _checked_sides(loadings: Any, components: Any, what: str) -> tuple[Distribution, Dirichlet]:
    """Return both priors; refuse those that do not integrate out."""
    check_integrates_out(components, what, "bound it with elbo_marginal of a fit by method='vi'")
    check_proper_loadings(loadings, what)
    for side, prior in (("loadings", loadings), ("components", components)):
        check_has_part(prior, side, "marginal", what, "elbo_marginal of a fit by method='vi'")
    return loadings, components


def _run_all(data: Counts, rank: int, sides: Any, particles: int, seeds: list[np.random.SeedSequence]) -> list[float]:
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
    sides: Any = _checked_sides(priors.loadings, priors.components, "log_p_allocation")
    check_broadcast(loadings, "loadings", (n, rank))
    check_broadcast(components, "components", (rank, m))
    return allocation_model.log_p_allocation(S, *sides)
