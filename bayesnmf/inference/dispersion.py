"""Learn the dispersion of counts that cluster: Newton's method in log s, at fixed means.

The log-likelihood of a row, a feature or of all counts with dispersion s is, up to terms without s,

    f(s) = ΣL(x, λ, s) − Σx log(1 + s) − Σλ e(s)        e(s) = log(1 + s) / s

with Σλ over all cells, but L over the nonzeros alone; given row totals, ΣL(x, λ, s) − ΣL(N, N, s). Under vi, L is taken
at the geometric means and λ in the other term is the expectation, which is the part of the elbo that depends on s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesnmf.data.clustered import SMALL, ClusteredCounts, exposure_of
from bayesnmf.data.dispersed import CENTRE, LEAST, WIDTH
from bayesnmf.inference.sides import Problem, State
from bayesnmf.kernels.cpu.clusters import cluster_sums, sums_of_cells
from bayesnmf.kernels.cpu.underflow import Spread

Array = NDArray[Any]
LARGEST = 1e6  # dispersion
LONGEST, NEAR, MOST = 1.0, 0.02, 20  # longest step in log s, step at which the first search ends, most of its steps
REST = 8  # most iterations between two steps once steps are short


def _pooled(values: Array, counts: ClusteredCounts) -> Array:
    """Return sums over rows or features (…, lines) for each dispersion."""
    return values.sum(axis=-1, keepdims=True) if counts.noise.by is None else values


@dataclass(frozen=True)
class Evidence:
    """What a dispersion is learned from, at the means of a state.

    Attributes
    ----------
    counts : ClusteredCounts
    sums : callable
        Function that returns ΣL, Σ(x − λW) and Σ(x − 2λW + λ²V) for dispersions, of rows or features.
    totals, means : ndarray
        Σx and Σλ of each row or feature.
    """

    counts: ClusteredCounts
    sums: Callable[[Array], Array]
    totals: Array
    means: Array

    @classmethod
    def at(cls, problem: Problem, state: State, threads: int | None) -> Evidence:
        """Return what a state says of the dispersion."""
        counts: Any = problem.counts
        U, V = state.loadings.geometric, state.components.geometric
        by_feature = counts.noise.by == "feature"
        unit = counts.with_dispersions(np.ones_like(counts.dispersions))
        shifts = [None if side.log_shift is None else np.exp(np.float64(side.log_shift)).ravel() for side in state]
        rows, features = unit.spread(*shifts)  # with s = 1, those of clusters are those of their means

        def sums(s: Array) -> Array:
            spread: Spread
            if by_feature:
                assert features is not None
                spread = features * s, rows
                return cluster_sums(counts.transposed, V.T, U.T, spread, threads)
            spread = rows * s, features
            return cluster_sums(counts.matrix, U, V, spread, threads)

        totals = counts.feature_totals if by_feature else counts.row_totals
        return cls(counts, sums, totals, _sums_of_means(problem, state) if not counts.given_totals else totals)

    def log_density(self, s: Array) -> Array:
        """Return f(s) + log prior of log s, for each dispersion."""
        found = _pooled(self.sums(s)[:, 0], self.counts)
        if self.counts.given_totals:
            found = found - _pooled(self._of_totals(s)[:, 0], self.counts)
        else:
            totals, means = (_pooled(each, self.counts) for each in (self.totals, self.means))
            found = found - totals * np.log1p(s) - means * exposure_of(s)
        return found - (np.log(s) - CENTRE) ** 2 / (2 * WIDTH**2)

    def _of_totals(self, s: Array) -> Array:
        """Return L, W and V of the totals of rows, with their own mean."""
        return sums_of_cells(self.totals, np.maximum(self.totals, 1.0), s)

    def best(self, s: Array, most: int = MOST) -> Array:
        """Return dispersions after at most so many steps of Newton's method, which ends once steps are short."""
        for _ in range(most):
            slope, bend = self._slope_and_bend(s)
            step = np.where(bend < 0, -slope / np.where(bend < 0, bend, 1.0), np.sign(slope) * LONGEST)
            step = np.clip(step, -LONGEST, LONGEST)
            s = np.clip(s * np.exp(step), LEAST, LARGEST)
            if np.abs(step).max() < NEAR:
                break
        return s

    def deviation(self, s: Array) -> Array:
        """Return about the standard deviation of log s, at most that of its prior."""
        return np.sqrt(1 / np.maximum(-self._slope_and_bend(s)[1], 1 / WIDTH**2))

    def _slope_and_bend(self, s: Array) -> tuple[Array, Array]:
        """Return the first and the second derivative of the log density in log s."""
        _, first, second = (_pooled(each, self.counts) for each in self.sums(s).T)
        if self.counts.given_totals:
            _, W, V = self._of_totals(s).T
            N = self.totals
            slope = first - _pooled(N - N * W, self.counts)
            bend = slope - second + _pooled(N - 2 * N * W + N * N * V, self.counts)
        else:
            totals, means = (_pooled(each, self.counts) for each in (self.totals, self.means))
            small, share = s < SMALL, s / (1 + s)
            once = np.where(small, -s / 2 + 2 * s * s / 3, 1 / (1 + s) - exposure_of(s))  # s e′
            twice = np.where(small, 2 * s * s / 3, -s / (1 + s) ** 2 - 2 * once)  # s² e″
            slope = first - totals * share - means * once
            bend = slope - second + totals * share**2 - means * twice
        return slope - (np.log(s) - CENTRE) / WIDTH**2, bend - 1 / WIDTH**2


def _sums_of_means(problem: Problem, state: State) -> Array:
    """Return Σλ over the observed cells of each row, or of each feature, without the exposure of clusters."""
    counts: Any = problem.counts
    plain = counts.plain
    loadings, components = (
        plain.exposed_loadings(_whole(state.loadings)),
        plain.exposed_components(np.asarray(state.components.matrix, np.float64)),
    )
    if counts.noise.by == "feature":
        sums = loadings.sum(axis=0) @ components
        return sums if plain.mask is None else sums - (components * plain.mask.sums_by_feature(loadings).T).sum(axis=0)
    sums = loadings @ components.sum(axis=1)
    return sums if plain.mask is None else sums - plain.mask.products_by_row(loadings, components.T)


def _whole(side: Any) -> Array:
    return np.asarray(side.matrix, np.float64)


class DispersionLearner:
    """Replaces the dispersion of a problem by a better one at each state, or after a rest where steps are short.

    Attributes
    ----------
    memory : tuple of int
        What a checkpoint keeps: whether it has begun, the states to wait for, and how many there were to wait for.
    """

    def __init__(self, threads: int | None) -> None:
        self.threads = threads
        self.begun, self.waits, self.rest = 0, 0, 0

    @property
    def memory(self) -> tuple[int, int, int]:
        return self.begun, self.waits, self.rest

    @memory.setter
    def memory(self, kept: tuple[int, int, int]) -> None:
        self.begun, self.waits, self.rest = kept

    def __call__(self, problem: Problem, state: State) -> tuple[Problem, State]:
        """Return the problem with a new dispersion."""
        if self.waits > 0:
            self.waits -= 1
            return problem, state
        counts: Any = problem.counts
        s = Evidence.at(problem, state, self.threads).best(counts.dispersions, 1 if self.begun else MOST)
        short = np.abs(np.log(s / counts.dispersions)).max() < NEAR
        self.rest = min(max(2 * self.rest, 1), REST) if short else 0
        self.begun, self.waits = 1, self.rest
        return replace(problem, counts=counts.with_dispersions(s)), state
