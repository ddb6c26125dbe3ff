"""What a state says of a dispersion: a log density of its logarithm, with derivatives for Newton's method.

Of counts that cluster, the log-likelihood of a row, a feature or all counts with dispersion s is, but for a constant,

    f(s) = ΣL(x, λ, s) − Σx log(1 + s) − Σλ e(s)        e(s) = log(1 + s) / s

with Σλ over all entries, but L over the nonzeros alone; given row totals, ΣL(x, λ, s) − ΣL(N, N, s). Under vi, L is
taken at the geometric means and λ in the other term is the expectation, which is the part of the elbo that depends on
s.

Of counts whose entries have rates, it is with dispersion α, and the sum over all observed entries,

    f(α) = ΣL(x, 1, α) − Σ(x + 1/α) log(1 + αρ)
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.data.batched import OF_FACTORS, BatchedCounts
from bayesnmf.data.clustered import ClusteredCounts
from bayesnmf.data.rated import RatedCounts
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.rates import EntryMeans, in_row_blocks, sum_of_row_blocks
from bayesnmf.inference.side import spread_at
from bayesnmf.kernels.cpu.clusters import cluster_sums, sums_of_entries
from bayesnmf.noise.abilities import LEAST
from bayesnmf.noise.negative_binomial import SMALL, exposure_of, log_rising
from bayesnmf.types import Array

Terms = Callable[[Array, Array, Array], tuple[Array, ...]]  # of x, ρ and the dispersion of entries
LONGEST, NEAR, MOST = 1.0, 0.02, 20  # longest step in log s, step at which the first search ends, most of its steps


def _pooled(values: Array, counts: Any) -> Array:
    """Return sums over rows or features (…, lines) for each dispersion."""
    if counts.noise.groups is None:
        return values.sum(axis=-1, keepdims=True) if counts.noise.by is None else values
    codes, number = counts.noise.groups.codes, len(counts.noise.groups.given)
    return np.stack([values[..., codes == code].sum(axis=-1) for code in range(number)], axis=-1)


def _beside(one: Array, two: Array) -> Array:
    """Return what is of some rows beside what is of the next."""
    return np.concatenate([one, two], axis=-1)


class Evidence(ABC):
    """What a dispersion is learned from, at the means of a state: its log density, and derivatives in its logarithm."""

    counts: Any

    @property
    def noise(self) -> Any:
        """Noise whose dispersion it is, with the prior."""
        return self.counts.noise

    @property
    def values(self) -> Array:
        """The dispersions of the counts."""
        return np.asarray(self.counts.dispersions)

    def taken(self, problem: Problem, s: Array) -> Problem:
        """Return a problem with other dispersions."""
        return replace(problem, counts=problem.counts.with_dispersions(s))  # type: ignore[attr-defined]

    @abstractmethod
    def log_likelihood(self, s: Array) -> Array:
        """Return f(s), for each dispersion."""

    @abstractmethod
    def derivatives(self, s: Array) -> tuple[Array, Array]:
        """Return the first and the second derivative of f in log s."""

    def log_density(self, s: Array) -> Array:
        """Return f(s) + log prior of log s, for each dispersion."""
        return self.log_likelihood(s) + self.noise.log_prior(s)

    def best(self, s: Array, most: int = MOST) -> Array:
        """Return dispersions after at most so many steps of Newton's method, which ends once steps are short."""
        for _ in range(most):
            before, s = s, self.moved(s)
            if np.abs(np.log(s / before)).max() < NEAR:
                break
        return s

    def moved(self, s: Array, share: float = 1.0, rate: float = 1.0) -> Array:
        """Return dispersions after a step of Newton's method, or the fraction `rate` of one.

        The log-likelihood counts `share` times: that of a batch as that of all rows.
        """
        slope, bend = self._slope_and_bend(s, share)
        step = np.where(bend < 0, -slope / np.where(bend < 0, bend, 1.0), np.sign(slope) * LONGEST)
        step = np.nan_to_num(np.clip(step, -LONGEST, LONGEST))  # without counts nothing says anything
        return np.asarray(np.clip(s * np.exp(rate * step), LEAST, self.noise.largest))

    def deviation(self, s: Array) -> Array:
        """Return about the standard deviation of log s, at most that of its prior."""
        return np.sqrt(1 / np.maximum(-self._slope_and_bend(s)[1], 1 / self.noise.widest**2))

    def slope(self, s: Array) -> Array:
        """Return the derivative of the log density in log s."""
        return self._slope_and_bend(s)[0]

    def _slope_and_bend(self, s: Array, share: float = 1.0) -> tuple[Array, Array]:
        """Return the first and the second derivative of the log density in log s."""
        slope, bend = self.derivatives(s)
        moving, of_prior = ~self.noise.held, self.noise.derivatives_of_prior(s)
        return moving * (share * slope + of_prior[0]), moving * share * bend + of_prior[1]


@dataclass(frozen=True)
class ClusterEvidence(Evidence):
    """What the dispersion of counts that cluster is learned from.

    Attributes
    ----------
    counts : ClusteredCounts
    sums : callable
        Function that returns ΣL, Σ(x − λW) and Σ(x − 2λW + λ²V) for each dispersion, (3, dispersions).
    totals : ndarray
        Σx of each row or feature.
    means : ndarray
        Σλ for each dispersion.
    """

    counts: ClusteredCounts
    sums: Callable[[Array], Array]
    totals: Array
    means: Array

    @classmethod
    def at(cls, problem: Problem, state: State, threads: int | None) -> ClusterEvidence:
        """Return what a state says of the dispersion."""
        counts: Any = problem.counts
        by_row = counts.noise.by == "row"
        plus = _beside if by_row else operator.add

        def sums(s: Array) -> Array:
            def of_rows(part: Problem, here: State, rows: slice) -> Array:
                found = _sums_of_clusters(part, here, s[rows] if by_row else s, threads)
                return np.stack([_pooled(each, part.counts) for each in found.T])

            return problem.over_rows(state, of_rows, plus, reads=True)

        def means(part: Problem, here: State, rows: slice) -> Array:
            return _pooled(_sums_of_means(part, here), part.counts)

        totals = counts.feature_totals if counts.noise.by_feature else counts.row_totals
        given = counts.given_totals
        return cls(counts, sums, totals, totals if given else problem.over_rows(state, means, plus, reads=False))

    def log_likelihood(self, s: Array) -> Array:
        """Return f(s), for each dispersion."""
        found = self.sums(s)[0]
        if self.counts.given_totals:
            found = found - _pooled(self._of_totals(s)[:, 0], self.counts)
        else:
            found = found - _pooled(self.totals, self.counts) * np.log1p(s) - self.means * exposure_of(s)
        return found

    def _of_totals(self, s: Array) -> Array:
        """Return L, W and V of the totals of rows, with their own mean."""
        return sums_of_entries(self.totals, np.maximum(self.totals, 1.0), s)

    def derivatives(self, s: Array) -> tuple[Array, Array]:
        """Return the first and the second derivative of f in log s."""
        _, first, second = self.sums(s)
        if self.counts.given_totals:
            _, W, V = self._of_totals(s).T
            N = self.totals
            slope = first - _pooled(N - N * W, self.counts)
            bend = slope - second + _pooled(N - 2 * N * W + N * N * V, self.counts)
        else:
            totals, means = _pooled(self.totals, self.counts), self.means
            small, share = s < SMALL, s / (1 + s)
            once = np.where(small, -s / 2 + 2 * s * s / 3, 1 / (1 + s) - exposure_of(s))  # s e′
            twice = np.where(small, 2 * s * s / 3, -s / (1 + s) ** 2 - 2 * once)  # s² e″
            slope = first - totals * share - means * once
            bend = slope - second + totals * share**2 - means * twice
        return slope, bend


def _sums_of_clusters(part: Problem, here: State, s: Array, threads: int | None) -> Array:
    """Return ΣL, Σ(x − λW) and Σ(x − 2λW + λ²V) of each row or feature, (lines, 3)."""
    counts: Any = part.counts
    U, V = here.loadings.geometric, here.components.geometric
    unit: Any = spread_at(counts.with_dispersions(np.ones_like(counts.dispersions)), here)
    rows, features = unit  # with s = 1, spreads of clusters are those of their means
    if not counts.noise.by_feature:
        return cluster_sums(counts.matrix, U, V, (rows * s, features), threads)
    own = counts.noise.of_lines(s)
    if not isinstance(features, tuple):
        return cluster_sums(counts.transposed, V.T, U.T, (features * own, rows), threads)
    found = np.zeros((len(own), 3))
    for code, of_batch in enumerate(features[0]):  # whose rows alone have these
        at = np.flatnonzero(features[1] == code)
        found += cluster_sums(csr_array(counts.matrix[at].T), V.T, U[at].T, (of_batch * own, rows[at]), threads)
    return found


def _sums_of_means(problem: Problem, state: State) -> Array:
    """Return Σλ over the observed entries of each row, or of each feature, without the exposure of clusters."""
    counts: Any = problem.counts
    plain = counts.with_exposures_alone
    loadings = plain.exposed_loadings(np.asarray(state.loadings.matrix, np.float64))
    components = plain.exposed_components(np.asarray(state.components.matrix, np.float64))
    if counts.noise.by_feature:
        sums = loadings.sum(axis=0) @ components
        return sums if plain.mask is None else sums - (components * plain.mask.sums_by_feature(loadings).T).sum(axis=0)
    sums = loadings @ components.sum(axis=1)
    return sums if plain.mask is None else sums - plain.mask.products_by_row(loadings, components.T)


@dataclass(frozen=True)
class RateEvidence(Evidence):
    """What the dispersion of counts whose entries have rates is learned from.

    Attributes
    ----------
    counts : RatedCounts
    sums : callable
        Function of dispersions, and of one that returns terms of x, ρ and the dispersion, that returns the sums of
        these over the entries of each dispersion, (terms, dispersions). ρ is that of `bayesnmf.inference.rates`, 0 at
        missing entries. Where it is not the mean, it is that of the dispersion of the state, as the derivative is that
        of the bound then.
    """

    counts: RatedCounts
    sums: Callable[[Array, Terms], Array]

    @classmethod
    def at(cls, problem: Problem, state: State, threads: int | None) -> RateEvidence:
        """Return what a state says of the dispersion."""
        counts: Any = problem.counts
        by_row = counts.noise.by == "row"

        def sums(s: Array, terms: Terms) -> Array:
            def of_rows(part: Problem, here: State, rows: slice) -> Array:
                return _sums_of_terms(part.counts, here, s[rows] if by_row else s, terms, threads)

            return problem.over_rows(state, of_rows, _beside if by_row else operator.add, reads=True)

        return cls(counts, sums)

    def log_likelihood(self, s: Array) -> Array:
        """Return f, for each dispersion."""
        noise: Any = self.counts.noise
        sizes = _pooled(noise.sums_of_sizes(self.counts, s)[:, 0], self.counts)
        return np.asarray(sizes + self.sums(s, lambda *entry: (noise.log_terms(*entry),))[0])

    def derivatives(self, s: Array) -> tuple[Array, Array]:
        """Return the first and the second derivative of f in the logarithm of the dispersion."""
        noise: Any = self.counts.noise
        _, first, second = (_pooled(each, self.counts) for each in noise.sums_of_sizes(self.counts, s).T)
        slope, bend = self.sums(s, noise.derivatives_of_terms)
        return first + slope, first - second + bend


def _sums_of_terms(counts: Any, state: State, s: Array, terms: Terms, threads: int | None) -> Array:
    """Return sums of terms of x, ρ and the dispersion over the entries of each dispersion, (terms, dispersions)."""
    means = EntryMeans.at(counts, state)
    axis: Any = {None: (1, 2), "row": 2}.get(counts.noise.by, 1)

    def work(rows: slice) -> Array:
        x, rho, _ = means.beside(rows)
        found = np.stack(terms(x, rho, counts.of_entries(s, rows)))
        found = found.sum(axis=axis).reshape(len(found), -1)
        return found if counts.noise.groups is None else _pooled(found, counts)

    if counts.noise.by == "row":
        return np.concatenate(in_row_blocks(counts.shape, work, threads), axis=1)
    return sum_of_row_blocks(counts.shape, work, threads)


def evidence_at(problem: Problem, state: State, threads: int | None) -> Evidence:
    """Return what a state says of the dispersion of a problem."""
    kind: Any = ClusterEvidence if problem.counts.in_clusters else RateEvidence
    found: Evidence = kind.at(problem, state, threads)
    return found


@dataclass(frozen=True)
class ShapeEvidence(Evidence):
    """What the shape a of factors of batches is learned from: 1/a is a dispersion of the counts of whole batches.

    Attributes
    ----------
    counts : BatchedCounts
    counted, means : ndarray (B, m)
        Counts or clusters of batches and features, and their means without factors.
    """

    counts: BatchedCounts
    counted: Array
    means: Array

    @classmethod
    def at(cls, counts: BatchedCounts) -> ShapeEvidence:
        """Return what expected factors say of their shape."""
        counted, factors, a = counts.counted, counts.factors, counts.shape_of_factors
        assert counted is not None
        assert factors is not None
        return cls(counts, counted, np.maximum((a + counted) / factors - a, 0.0))

    @property
    def noise(self) -> Any:
        """Noise of the counts of whole batches."""
        return OF_FACTORS

    @property
    def values(self) -> Array:
        """1/a, (1,)."""
        return np.array([1 / self.counts.shape_of_factors])

    def taken(self, problem: Problem, s: Array) -> Problem:
        """Return a problem with another shape."""
        return replace(problem, counts=problem.counts.with_shape(1 / float(s[0])))  # type: ignore[attr-defined]

    def log_likelihood(self, s: Array) -> Array:
        """Return f(1/a), (1,)."""
        found = log_rising(self.counted, s[0])[0] + OF_FACTORS.log_terms(self.counted, self.means, s)
        return np.array([found.sum()])

    def derivatives(self, s: Array) -> tuple[Array, Array]:
        """Return the first and the second derivative of f in log 1/a, (1,) each."""
        both = zip(
            log_rising(self.counted, s[0])[1:],
            OF_FACTORS.derivatives_of_terms(self.counted, self.means, s[:, None]),
            strict=True,
        )
        slope, bend = (np.array([one.sum() + two.sum()]) for one, two in both)
        return slope, bend
