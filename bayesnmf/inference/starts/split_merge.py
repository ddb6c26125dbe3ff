"""Exchanges of components: merge two similar components, and split one that two components would fit better.

At a local optimum, often two components share the counts that one could explain, and another explains counts that need
two. Ueda, Nakano, Ghahramani & Hinton 2000, *SMEM algorithm for mixture models*, leave local optima of mixtures in this
way. Here exchanges are proposed by the likelihood alone, at the current allocations, and then tried by some iterations
on the objective itself.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array, vstack
from scipy.special import xlogy

from bayesnmf.data.counts import Counts
from bayesnmf.inference.ascent.course import Schedule
from bayesnmf.inference.ascent.poisson_regression import regression_steps
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.sides import allocate, objective
from bayesnmf.inference.starts.states import data_state, flat_problem, state_after_steps, state_of_totals
from bayesnmf.kernels.cpu.allocation import Totals, row_blocks
from bayesnmf.kernels.cpu.dense import entry_allocations
from bayesnmf.options.algorithms import ALGORITHMS
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
    schedule = Schedule(
        "alternating", sweeps=ALGORITHMS["scd"].sweeps, max_iter=SPLIT_ITERATIONS, tol=0, threads=threads
    )
    fitted = state_after_steps(
        problem, data_state(problem, 2, rng), schedule, regression_steps(problem, schedule, "scd")
    )
    totals = allocate(problem, fitted, threads)
    one = _rank_one_loglik(part.row_totals, part.feature_totals) - part.total
    two = objective(problem, fitted, totals.loglik)
    return two - one, Shares(_first_share(totals.loadings.T), _first_share(totals.components))


def _first_share(totals: Array) -> Array:
    """Return the first of two rows of totals as a share of both; 0.5 where both are 0."""
    both = totals.sum(axis=0)
    return np.divide(totals[0], both, out=np.full_like(both, 0.5), where=both > 0)
