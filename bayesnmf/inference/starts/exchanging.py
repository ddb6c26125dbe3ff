"""Exchange components: merge two similar ones, and split a third that two would fit better in their place.

At a local optimum, often two components share the counts that one could explain, and another explains counts that need
two: an exchange leads to a higher optimum faster than a new start. Ueda, Nakano, Ghahramani & Hinton 2000, *SMEM
algorithm for mixture models*, leave local optima of mixtures in this way. Here exchanges are proposed by the likelihood
alone, at the current allocations, and then tried by some iterations on the objective itself. On large counts, where
trials take long, only components that carry nothing of their own are merged. What no exchange betters is left as it is,
since the objective asks for it: the prior is then too even for so many components.

An ascent with exchanges runs in several stages (`Climb`), as one ascent with one trace and one status.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array, vstack
from scipy.special import xlogy

from bayesnmf.data.counts import Counts
from bayesnmf.inference.ascent.coordinate_ascent import Ascent
from bayesnmf.inference.ascent.course import Schedule
from bayesnmf.inference.ascent.poisson_regression import descended
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.sides import allocate, objective
from bayesnmf.inference.starts.states import data_state, flat_problem, is_little_work, state_of_totals
from bayesnmf.inference.status import BROKEN, INTERRUPTED, NO_CHANCE
from bayesnmf.kernels.cpu.allocation import Totals
from bayesnmf.kernels.cpu.dense import entry_allocations
from bayesnmf.kernels.cpu.threads import row_blocks
from bayesnmf.options.algorithms import ALGORITHMS
from bayesnmf.priors import Distribution
from bayesnmf.priors.pair import favoured
from bayesnmf.types import Array

LEAST_SHARE = 0.1  # smallest share of a count in a component for which its split uses the count
SPLIT_ITERATIONS = 5
ENTRIES = 2**22  # counts × components that are allocated at once
PAIRS_FOR_EACH = 10  # pairs of components to consider per requested exchange
PAIR_WORK = 2e7  # nonzeros × pairs of components in the estimate of the losses by merging


class Exchange(NamedTuple):
    """Components to merge and to split, with an estimate of the gain, in nats."""

    gain: float
    merged: tuple[int, int]
    split: int


class Exchanges:
    """All exchanges of components at a state, and the states after them.

    Parameters
    ----------
    problem : Problem
    state : State
        State with at least three components.
    rng : Generator
        Generator for the starts of splits.
    threads : int or None
        Number of row blocks processed at once.
    """

    def __init__(self, problem: Problem, state: State, rng: np.random.Generator, threads: int | None) -> None:
        self.problem = problem
        self.totals = allocate(problem, state, threads)
        self.losses = _merge_losses(problem.counts, state, self.totals, rng)
        self.splits = [_split_component(part, rng, threads) for part in _counts_of_components(problem.counts, state)]

    def best(self, number: int, merged: Array) -> list[Exchange]:
        """Return at most `number` exchanges, the best first, among the pairs that lose least by merging.

        One of each pair is among the components `merged`.
        """
        first, second = np.triu_indices(len(self.splits), 1)
        asked = np.isin(first, merged) | np.isin(second, merged)
        first, second = first[asked], second[asked]
        pairs = np.argsort(self.losses[first, second])[: PAIRS_FOR_EACH * number]
        a, b = first[pairs], second[pairs]
        gains = np.array([gain for gain, _ in self.splits]) - self.losses[a, b][:, None]
        places = np.arange(len(a))
        gains[places, a] = gains[places, b] = -np.inf  # a merged component is not split
        flat = np.argsort(gains, axis=None)[::-1][:number]
        found = [(pair, split) for pair, split in zip(*np.unravel_index(flat, gains.shape), strict=True)]
        return [
            Exchange(float(gains[pair, split]), (int(a[pair]), int(b[pair])), int(split))
            for pair, split in found
            if np.isfinite(gains[pair, split])
        ]

    def state_after(self, exchange: Exchange) -> State:
        """Return the state of the conditionals given the totals after an exchange."""
        loadings, components = (np.array(each) for each in (self.totals.loadings, self.totals.components))
        a, b = exchange.merged
        _, shares = self.splits[exchange.split]
        for totals, share in ((loadings.T, shares.loadings), (components, shares.components)):
            totals[a] += totals[b]
            totals[b] = share * totals[exchange.split]
            totals[exchange.split] -= totals[b]
        return state_of_totals(self.problem, loadings, np.asfortranarray(components))


class Shares(NamedTuple):
    """Shares of a split component's counts in the first part, for each row and for each feature."""

    loadings: Array
    components: Array


def _rank_one_loglik(of_rows: Array, of_features: Array) -> float:
    """Return Σ S log(R C / T) for the totals of a component: its term of the log-likelihood of its own counts."""
    total = of_rows.sum()
    return float(xlogy(of_rows, of_rows).sum() + xlogy(of_features, of_features).sum() - xlogy(total, total))


def _merge_losses(counts: Counts, state: State, totals: Totals, rng: np.random.Generator) -> Array:
    """Return the loss of the log-likelihood bound when two components merge, (K, K), above the diagonal."""
    A, B = np.asarray(totals.loadings.T, np.float64), np.asarray(totals.components, np.float64)
    rank = len(A)
    sample = _sample_rows(counts, int(PAIR_WORK / rank**2), rng)
    entries = entry_allocations(counts.matrix[sample], state.loadings.geometric[sample], state.components.geometric)
    scale = counts.total / max(entries.sum(), 1e-300)
    apart = xlogy(entries, entries).sum(axis=0)
    own = np.array([_rank_one_loglik(*each) for each in zip(A, B, strict=True)])
    losses = np.full((rank, rank), np.inf)
    for a in range(rank - 1):
        both = entries[:, a, None] + entries[:, a + 1 :]
        entropy = scale * (xlogy(both, both).sum(axis=0) - apart[a] - apart[a + 1 :])
        together = np.array([_rank_one_loglik(A[a] + A[b], B[a] + B[b]) for b in range(a + 1, rank)])
        losses[a, a + 1 :] = own[a] + own[a + 1 :] + entropy - together
    return losses


def _sample_rows(counts: Counts, nonzeros: int, rng: np.random.Generator) -> Array:
    """Return random rows, in order, that together have about `nonzeros` nonzeros."""
    order = rng.permutation(counts.shape[0])
    upto = np.searchsorted(np.cumsum(np.diff(counts.matrix.indptr)[order]), nonzeros) + 1
    return np.sort(order[:upto])


def _counts_of_components(counts: Counts, state: State) -> list[Counts]:
    """Return the counts of each component, without counts in which its share is below `LEAST_SHARE`."""
    rank = len(state.components.geometric)
    found: list[list[csr_array]] = [[] for _ in range(rank)]
    bounds = row_blocks(counts.matrix.indptr, -(-counts.nnz // max(ENTRIES // rank, 1)) or 1).tolist()
    for first, last in pairwise(bounds):
        part = counts.block(first, last)
        entries = entry_allocations(part.matrix, state.loadings.geometric[first:last], state.components.geometric)
        rows = np.repeat(np.arange(part.shape[0]), np.diff(part.matrix.indptr))
        kept = entries >= LEAST_SHARE * part.matrix.data[:, None]
        for k in range(rank):
            chosen = kept[:, k]
            indptr = np.concatenate([[0], np.cumsum(np.bincount(rows[chosen], minlength=part.shape[0]))])
            indices = part.matrix.indices[chosen]  # one type for both, that of the counts: kernels are compiled for it
            arrays = (entries[chosen, k], indices, indptr.astype(indices.dtype))
            found[k].append(csr_array(arrays, shape=part.shape))
    return [counts.with_matrix(csr_array(vstack(blocks, format="csr"))) for blocks in found]


def _split_component(part: Counts, rng: np.random.Generator, threads: int | None) -> tuple[float, Shares]:
    """Fit two components to the counts of one; return the gain over one component, and the shares of the first."""
    n, m = part.shape
    if not part.nnz:
        return 0.0, Shares(np.full(n, 0.5), np.full(m, 0.5))
    flat = flat_problem(part.with_mask(None))  # only a proposal: zeros do for missing entries
    problem = replace(flat, constant=False)  # the constant is the same for one component and for two
    schedule = Schedule("alternating", sweeps=ALGORITHMS["scd"].sweeps, threads=threads)
    fitted = descended(problem, data_state(problem, 2, rng), schedule, "scd", SPLIT_ITERATIONS)
    totals = allocate(problem, fitted, threads)
    one = _rank_one_loglik(part.row_totals, part.feature_totals) - part.total
    two = objective(problem, fitted, totals.loglik)
    return two - one, Shares(_first_share(totals.loadings.T), _first_share(totals.components))


def _first_share(totals: Array) -> Array:
    """Return the first of two rows of totals as a share of both; 0.5 where both are 0."""
    both = totals.sum(axis=0)
    return np.divide(totals[0], both, out=np.full_like(both, 0.5), where=both > 0)


Show = Callable[..., None]


class Climb:
    """An ascent that goes on from its end when it is called again.

    It gives its state away while it runs: no other reference keeps the state in memory, which is as large as the
    factors.

    Parameters
    ----------
    ascent : callable
        Function of a problem, a state, a schedule and what shows progress.
    problem, state : Problem, State
        Where to begin.
    """

    def __init__(self, ascent: Callable[[Problem, State, Schedule, Show], Ascent], problem: Problem, state: State):
        self._ascent, self._problem, self._held = ascent, problem, [state]

    def __call__(self, schedule: Schedule, show: Show) -> Ascent:
        """Run the ascent by a schedule."""
        found = self._ascent(self._problem, self._held.pop(), schedule, show)
        self._problem, self._held = found.problem, [found.state]
        return found


def continue_climb(climb: Climb, sofar: Ascent, schedule: Schedule, show: Show) -> Ascent:
    """Continue an ascent until `schedule` ends it; earlier iterations count towards its `max_iter`.

    Parameters
    ----------
    show : callable
        Function for progress, called with the iteration and the objective.
    """
    done = sofar.status.iterations
    trace, residuals = sofar.trace, sofar.residuals
    del sofar  # now only `climb` refers to its state, and can free it
    last = climb(replace(schedule, done=done), lambda more, value, *_: show(done + more, value))
    return last._replace(trace=trace + last.trace[1:], residuals=residuals + last.residuals[1:])


def finish_climb(climb: Climb, sofar: Ascent, schedule: Schedule, show: Show) -> Ascent:
    """Continue an ascent of several stages to its end, with a status by the rules of the whole ascent.

    The stages before end by rules of their own, such as a higher tolerance. Parameters as for `continue_climb`.
    """
    if not has_ended(sofar, schedule):
        return continue_climb(climb, sofar, schedule, show)
    if sofar.status.reason in BROKEN:
        return sofar
    if last_objective(sofar) == -np.inf:
        return told_of_no_chance(sofar)
    course = schedule.course(trace=sofar.trace[:-1], residuals=sofar.residuals[:-1])
    course.reach(sofar.trace[-1], residual=sofar.residuals[-1] if sofar.residuals else None)
    return sofar._replace(status=course.status)


def told_of_no_chance(ascent: Ascent) -> Ascent:
    """Return an ascent whose status says so if its counts are impossible at the parameters; others as they are."""
    if ascent.status.reason in BROKEN or last_objective(ascent) > -np.inf:
        return ascent
    return ascent._replace(status=ascent.status._replace(converged=False, reason=NO_CHANCE))


def has_ended(ascent: Ascent, schedule: Schedule) -> bool:
    """Return whether an ascent cannot continue: iterations used up, Ctrl-C, or an objective that is not finite."""
    bad = ascent.status.reason in BROKEN or last_objective(ascent) == -np.inf
    return bad or ascent.status.iterations >= schedule.max_iter


def as_interrupted(ascent: Ascent) -> Ascent:
    """Return an ascent with the status of an interrupt by Ctrl-C."""
    return ascent._replace(status=ascent.status._replace(converged=False, reason=INTERRUPTED))


def last_objective(ascent: Ascent) -> float:
    """Return the last objective of an ascent, or −inf if it is NaN."""
    return ascent.trace[-1] if ascent.trace and not np.isnan(ascent.trace[-1]) else -np.inf


ROUGH_TOL = 1e-5  # tolerance of the ascents before an exchange, which mostly gains more than they still could
GLANCE, TRIAL = 3, 15  # iterations of each exchange in a first round, and of the best of these in a second round
GLANCES, TRIALS = 10, 3  # exchanges in each round
FEWEST = 3  # smallest number of components
LEAST_GAIN = 0.1  # in nats; by less, an ascent that has converged may still rise, and exchanges could go on for ever
Climber = Callable[[Problem, State], Climb]
Begun = tuple[Climb, Ascent]


def exchange_components(
    climber: Climber, begun: Begun, schedule: Schedule, rng: np.random.Generator, show: Show, search: Show
) -> Ascent:
    """Exchange components as long as this raises the objective; return the ascent, continued to its end.

    Parameters
    ----------
    climber : callable
        Function of a problem and a state that returns a `Climb` from this state.
    begun : Climb, Ascent
        Ascent at rest, and the climb that continues it.
    schedule : Schedule
        Schedule of the whole ascent. Iterations after an accepted exchange count towards its `max_iter`.
    rng : Generator
        Generator for the starts of splits.
    show, search : callable
        Functions for progress: of the ascents, called with the iteration and the objective; of the trials, called with
        iterations done, iterations in all and the objective.
    """
    climb, best = begun
    while len(merged := _to_merge(best)) and not has_ended(best, schedule):
        try:
            found = _find_exchange(climber, best, merged, schedule, rng, search)
        except KeyboardInterrupt:
            return as_interrupted(best)
        if found is None:
            break
        climb, best = found
        if not has_ended(best, schedule):
            best = continue_climb(climb, best, replace(schedule, tol=max(schedule.tol, ROUGH_TOL)), show)
    return best if best is begun[1] else finish_climb(climb, best, schedule, show)


def _to_merge(ascent: Ascent) -> np.ndarray:
    """Return the components to merge with others: all, where trials take little time, else those that are idle."""
    counts, (loadings, components) = ascent.problem.counts, ascent.state
    rank = len(components.geometric)
    if rank < FEWEST or len(favoured(ascent.problem.components_prior)):  # whose places have a meaning
        return np.empty(0, np.intp)
    if is_little_work(counts, rank):  # then exchanges of all are tried
        return np.arange(rank)
    weights = counts.row_totals if ascent.problem.loadings_prior.support == "simplex" else counts.row_weights
    sizes = loadings.exposed_sums(1, weights) * components.exposed_sums(0, counts.feature_weights)
    return find_idle(components.matrix, sizes, ascent.problem.components_prior)


def _find_exchange(
    climber: Climber, best: Ascent, merged: np.ndarray, schedule: Schedule, rng: np.random.Generator, search: Show
) -> Begun | None:
    """Return the climb and the ascent after an exchange that raises the objective; None if no exchange does."""
    exchanges = Exchanges(best.problem, best.state, rng, schedule.threads)
    highest = last_objective(best)
    last = min(TRIAL, schedule.max_iter - best.status.iterations)
    chosen, done = exchanges.best(GLANCES, merged), 0
    total = len(chosen) * GLANCE + TRIALS * TRIAL

    def show(iteration: int, value: float, *_: Any) -> None:
        search(done + iteration, total, value)

    def tried(begun: Exchange | Begun, iterations: int) -> Begun:
        nonlocal done
        to = replace(schedule, max_iter=min(iterations, last), tol=0.0)
        if isinstance(begun, Exchange):
            climb = climber(best.problem, exchanges.state_after(begun))
            found = climb(to, show)
        else:
            climb, sofar = begun
            found = continue_climb(climb, sofar, to, show)
        done += iterations
        if found.status.reason == INTERRUPTED:
            raise KeyboardInterrupt
        return climb, found

    small = is_little_work(best.problem.counts, len(best.state.components.geometric))
    held = list[tuple[float, Exchange | Begun]]()
    for exchange in chosen:
        climb, found = tried(exchange, GLANCE)
        held.append((last_objective(found), (climb, found) if small else exchange))
    for _, begun in sorted(held, key=lambda each: -each[0])[:TRIALS]:
        climb, found = tried(begun, TRIAL)
        if last_objective(found) > highest + max(ROUGH_TOL * abs(highest), LEAST_GAIN):
            return climb, _append_ascent(best, found)
    return None


def _append_ascent(best: Ascent, found: Ascent) -> Ascent:
    """Return an ascent followed by those iterates of another, without its start, that have a higher objective."""
    above = [number for number, value in enumerate(found.trace) if number and value > best.trace[-1]]
    trace = best.trace + [found.trace[number] for number in above]
    residuals = best.residuals + [found.residuals[number] for number in above if found.residuals]
    return found._replace(trace=trace, residuals=residuals, status=found.status._replace(iterations=len(trace) - 1))


ALIKE = 0.99  # cosine of components that are one; of different ones it was at most 0.81 on real and simulated counts


def find_idle(components: Array, sizes: Array, prior: Distribution) -> Array:
    """Return the components that are copies of a larger one, in order: the cosine of both is above 0.99.

    What the prior alone shapes is returned too: components that are alike, or like their prior's mean, with less than a
    tenth of an even share of the expected counts. Known components are left out.

    Parameters
    ----------
    components : ndarray of shape (K, m)
        Components, in any unit.
    sizes : ndarray of shape (K,)
        Expected counts of each component.
    prior : Distribution
        Prior of the components.
    """
    rank, norms = len(components), np.linalg.norm(components, axis=1)
    profiles = components / np.where(norms > 0, norms, 1.0)[:, None]
    alike = np.triu(profiles @ profiles.T > ALIKE, 1)
    alike |= alike.T
    smaller = (sizes[:, None] < sizes) | ((sizes[:, None] == sizes) & np.tri(rank, k=-1, dtype=bool))
    copies = (alike & smaller).any(axis=1)
    shaped = alike.any(axis=1) | _like_their_prior(prior, profiles)
    return np.setdiff1d(np.flatnonzero(copies | (shaped & (sizes < sizes.sum() / (10 * rank)))), prior.given_rows[1])


def _like_their_prior(prior: Distribution, profiles: Array) -> Array:
    """Return whether each component, given at length 1, is in proportion to its prior's mean, (K,) or (1,)."""
    if not prior.proper:
        return np.zeros(1, dtype=bool)
    means = np.broadcast_to(prior.broadcast(profiles.shape).typical(), profiles.shape)
    return np.einsum("km,km->k", profiles, means) > ALIKE * np.linalg.norm(means, axis=1)
