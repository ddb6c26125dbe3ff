"""The evidence of a model, and the marginal of an allocation: loadings and components integrated out."""

from __future__ import annotations

import warnings
from functools import partial
from threading import Event
from typing import Any, Literal, NamedTuple

import numba
import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from bayesnmf import checks
from bayesnmf.counts import Counts
from bayesnmf.fitting import ConvergenceWarning, resolve_priors
from bayesnmf.inference import allocation_model
from bayesnmf.inference.evidence import count_allocations, enumerated_log_evidence, estimated_log_evidence
from bayesnmf.inference.side_by_side import side_by_side
from bayesnmf.options import Priors
from bayesnmf.priors import Dirichlet, Distribution
from bayesnmf.specification import MODELS

MOST_ALLOCATIONS = 100_000
LARGEST_PARTICLES = 4 * 2**30
WIDEST_SPREAD = 1.0  # of the log estimates, in nats; beyond it one run decides the mean


class Evidence(NamedTuple):
    """An evidence and how it was computed.

    Attributes
    ----------
    log_evidence : float
        Log p(X), Poisson scale, in nats. By "smc" the log of an unbiased estimate of p(X), the mean of those of the
        runs, itself too low on average.
    se : float
        Standard error of `log_evidence` from the spread of the runs; NaN for a single run, 0 by "exact". It is first
        order, std(p̂) / mean(p̂) / √runs, and never above 1: close to 1 one run outweighs all others, and it says
        nothing about the error. Look at `estimates` then.
    method : {"smc", "exact"}
    particles : int
        Of each run; 0 by "exact".
    estimates : tuple of float
        Log p̂(X) of each finished run, in nats; empty by "exact".
    """

    log_evidence: float
    se: float
    method: str
    particles: int
    estimates: tuple[float, ...]


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
    """Estimate log p(X), loadings and components integrated out.

    Components need a Dirichlet prior and loadings a proper one. On the Poisson scale of the bounds: under
    dirichlet_poisson, where the row totals N_i are given, that of the multinomial times Poisson(N_i; 1).
    Default priors depend on the mean row total and the rank.

    Parameters
    ----------
    counts : array-like, (n, m)
        Whole numbers.
    model : {"gamma_poisson", "dirichlet_poisson", "dirichlet_gamma", "poisson"}
        "poisson" has no evidence under its flat default: give `priors` with proper loadings.
    rank : int
        Number of components, K.
    method : {"smc", "exact"}
        "smc": sequential Monte Carlo through the Pólya urn, one single count after another; time is
        O(ΣX · K · particles) and memory O(m · K · particles) a run. "exact": the sum over all allocations, at most
        100,000 of them.
    priors : Priors, optional
        None is the model's default.
    particles : int
        Of each run; the more, the less p̂(X) varies.
    runs : int
        Independent estimates, which are averaged and tell the standard error. Ctrl-C keeps the finished ones. A
        ConvergenceWarning says where their logs have a standard deviation above 1: the mean is then too low.
    seed : int, optional
        Makes the estimate reproducible.

    Returns
    -------
    Evidence

    Raises
    ------
    TypeError, ValueError
        On counts, priors or settings that make no sense, naming the argument, the rule and the cure.

    Examples
    --------
    >>> import bayesnmf
    >>> priors = bayesnmf.Priors(bayesnmf.ScaledDirichlet(0.3, 5, 1.5), bayesnmf.Dirichlet(0.4))
    >>> exact = bayesnmf.log_evidence([[3, 1], [1, 1]], "dirichlet_gamma", 2, "exact", priors=priors)
    >>> round(exact.log_evidence, 6)
    -6.582758
    """
    checks.check_choice(model, "model", MODELS)
    checks.check_choice(method, "method", ("smc", "exact"))
    checks.check_rank(rank)
    checks.check_seed(seed)
    checks.check_count(particles, "particles")
    checks.check_count(runs, "runs")
    data = checks.as_counts(counts)
    checks.check_integer_counts(data, "the evidence", "round them")
    sides: Any = _resolved_sides(model, data, rank, Priors() if priors is None else priors)
    if method == "exact":
        checks.check_enumerable(count_allocations(data, rank), MOST_ALLOCATIONS)
        return Evidence(enumerated_log_evidence(data, rank, *sides), 0.0, method, 0, ())
    logs = np.array(_run_all(data, rank, sides, particles, np.random.SeedSequence(seed).spawn(runs)))
    _warn_if_spread(logs)
    return Evidence(*_log_of_mean(logs), method, particles, tuple(logs.tolist()))


def _warn_if_spread(logs: np.ndarray) -> None:
    """Warn where the mean of the estimates is that of the luckiest run."""
    spread = logs.std(ddof=1) if len(logs) > 1 else 0.0
    if spread > WIDEST_SPREAD:
        message = (
            f"the runs' log estimates have a standard deviation of {spread:.1f} nats, above {WIDEST_SPREAD:g}: the "
            "evidence is estimated too low, and its se means nothing; ask for more particles, take fewer counts, or "
            "bound it by elbo_marginal of a fit by method='vi'"
        )
        warnings.warn(message, ConvergenceWarning, stacklevel=3)


def _log_of_mean(logs: np.ndarray) -> tuple[float, float]:
    """Log of the mean of exp(logs), and its standard error to first order, NaN for a single one."""
    ratios = np.exp(logs - logs.max())
    error = ratios.std(ddof=1) / ratios.mean() / np.sqrt(len(logs)) if len(logs) > 1 else np.nan
    return float(logsumexp(logs) - np.log(len(logs))), float(error)


def _resolved_sides(model: str, data: Counts, rank: int, priors: Priors) -> tuple[Distribution, Dirichlet]:
    """Fill in the model's defaults, and check that they fit the model and integrate out."""
    resolved = resolve_priors(model, data, rank, priors)
    n, m = data.shape
    checks.check_family(model, "loadings", resolved.loadings, (n, rank))
    checks.check_family(model, "components", resolved.components, (rank, m))
    return _checked_sides(resolved.loadings, resolved.components, "the evidence")


def _checked_sides(loadings: Any, components: Any, what: str) -> tuple[Distribution, Dirichlet]:
    """Return both priors where both sides integrate out."""
    checks.check_integrates_out(components, what, "bound it with elbo_marginal of a fit by method='vi'")
    checks.check_proper_loadings(loadings, what)
    return loadings, components


def _run_all(data: Counts, rank: int, sides: Any, particles: int, seeds: list[np.random.SeedSequence]) -> list[float]:
    """Log estimates of the runs, on threads of their own; after Ctrl-C of those that are finished."""
    at_once = min(len(seeds), numba.get_num_threads())
    size = 8 * at_once * particles * rank * data.shape[1]
    checks.check_size(size, LARGEST_PARTICLES, "the particles", "ask for fewer, or fewer features")
    stop = Event()
    passes = [partial(estimated_log_evidence, data, rank, sides, particles, seed, stop) for seed in seeds]
    finished = [log_p for log_p in side_by_side(passes, at_once, stop) if log_p is not None]
    if not finished:
        raise KeyboardInterrupt
    return finished


def log_p_allocation(allocations: ArrayLike, loadings: Distribution, components: Dirichlet) -> float:
    """Log p(S) of an allocation, loadings and components integrated out ([K] 7-9).

    Parameters
    ----------
    allocations : array_like of shape (n, K, m)
        S_ikj, how many of the counts of feature j in sample i component k produced: nonnegative, whole or not.
    loadings : ScaledDirichlet, Dirichlet or Gamma
        Prior, parameters broadcastable to (n, K): of dirichlet_gamma, dirichlet_poisson or gamma_poisson.
    components : Dirichlet
        Prior, parameters broadcastable to (K, m).

    Returns
    -------
    float
        In nats, Poisson scale: its exponential sums to p(X) over all S of whole numbers that add up to X.

    Raises
    ------
    TypeError, ValueError
        On allocations or priors that make no sense.

    Examples
    --------
    >>> import bayesnmf
    >>> S = [[[3, 0], [0, 1]], [[1, 0], [0, 1]]]
    >>> prior = bayesnmf.ScaledDirichlet(0.3, shape=5, rate=1.5)
    >>> round(bayesnmf.log_p_allocation(S, prior, bayesnmf.Dirichlet(0.4)), 4)
    -9.5997
    """
    S = checks.check_allocation(allocations)
    n, rank, m = S.shape
    Priors(loadings, components)  # checks their parameters
    _checked_sides(loadings, components, "log_p_allocation")
    checks.check_broadcast(loadings, "loadings", (n, rank))
    checks.check_broadcast(components, "components", (rank, m))
    return allocation_model.log_p_allocation(S, loadings, components)
