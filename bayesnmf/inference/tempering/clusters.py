"""Temper counts that cluster, so that every move stays one of Poisson counts: the numbers of their clusters.

A power of the negative binomial likelihood has no Gibbs moves. But x counts with λ / s in place of r are as likely as a
rising factorial r (r + 1) … (r + x − 1) says, which is a sum over numbers of clusters l of r^l times what depends on x
and l alone. So along the path

    T_κ = Σ log [r (r + 1) … (r + x − 1)] + κ Σ(x log s − x log(1 + s) − λ e(s))        r = (λ / s)^κ

clusters given the means are tables of a Chinese restaurant with concentration r, and given the clusters loadings and
components are those of Poisson counts l with their likelihood to the power κ. T_1 is the log-likelihood but for
Σ log x!, and T_0 is Σ log x! whatever the parameters. Given the totals N of rows, what follows the first sum is minus
the same sum of the totals, with mean N. Weights of particles have the clusters summed out. Dispersions that are not
given are drawn from their prior with each particle, and move by Metropolis steps of many lengths.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.special import gammaln

from bayesnmf.data.clustered import ClusteredCounts
from bayesnmf.inference.problem import Problem
from bayesnmf.inference.sampling.marginal_gibbs import Factors
from bayesnmf.inference.side import Draw
from bayesnmf.inference.tempering.target import Change, Target, target_of
from bayesnmf.kernels.cpu.clusters import drawn_clusters_of_entries, sums_of_entries
from bayesnmf.kernels.cpu.likelihood import LEAST as LEAST_MEAN
from bayesnmf.kernels.cpu.likelihood import entry_rates
from bayesnmf.noise.abilities import LEAST
from bayesnmf.noise.negative_binomial import CENTRE, WIDTH, exposure_of
from bayesnmf.types import Array

SHORTEST, LONGEST, STEPS = 0.03, 3.0, 3  # lengths of steps in log s, and steps a sweep


class ClusteredFactors(Factors):
    """Factors of S states of counts that cluster, with the dispersions (S, lines) of each state.

    The factors of a sweep see drawn clusters of one state; those that are kept have the exposures of the counts.
    """

    def __init__(
        self, problem: Problem, values: tuple[Array, Array], dispersions: Array, rng: np.random.Generator
    ) -> None:
        counts: Any = problem.counts
        super().__init__(replace(problem, counts=counts.plain), *values, rng)
        self.counts, self.matrix = counts, counts.matrix
        self.dispersions = dispersions
        rows: Array = np.repeat(np.arange(counts.shape[0]), np.diff(self.matrix.indptr))
        own = counts.noise.of_lines(np.arange(len(counts.dispersions)))
        of_rows = {None: np.zeros_like(rows), "row": rows}
        self.lines: Array = own[self.matrix.indices] if counts.noise.by_feature else of_rows[counts.noise.by]

    def raise_to(self, power: float) -> None:
        """Take this power from now on."""
        self.power = power

    @property
    def memory(self) -> Any:
        """What a checkpoint keeps: the states and the power."""
        return super().memory, self.dispersions

    @memory.setter
    def memory(self, kept: Any) -> None:
        (self.theta, self.beta, self.power), self.dispersions = kept

    def take(self, order: Array) -> None:
        """Take the states at the given places."""
        super().take(order)
        self.dispersions = self.dispersions[order]

    def sweep(self, threads: int | None) -> None:
        """Draw the clusters, the entries and unknown dispersions of every state."""
        for place, s in enumerate(self.dispersions):
            ratios = (self.rates(place) / s[self.lines]) ** self.power
            clusters = drawn_clusters_of_entries(self.matrix.data, ratios, self.seed())
            whole = csr_array((clusters, self.matrix.indices, self.matrix.indptr), shape=self.matrix.shape)
            problem = replace(self.problem, counts=self.counts.with_dispersions(s).of_clusters(whole))
            values = self.theta[place] / self.rows, (self.beta[place] / self.features).T
            one = Factors(problem, values[0][None], values[1][None], self.rng)
            one.raise_to(self.power)
            one.sweep(threads)
            self.theta[place] = one.theta[0] / one.rows * self.rows
            self.beta[place] = one.beta[0] / one.features * self.features
            if self.counts.learned:
                self.dispersions[place] = self._moved(place, s)

    def _moved(self, place: int, s: Array) -> Array:
        """Return dispersions of a state after a few Metropolis steps in their logarithms."""

        def log_density(s: Array) -> Array:
            return self.log_likelihoods_of_lines(place, s, rates, self.power) + self.counts.noise.log_prior(s)

        rates = self.rates(place)
        now = log_density(s)
        for _ in range(STEPS):
            length = np.exp(self.rng.uniform(np.log(SHORTEST), np.log(LONGEST)))
            new = np.maximum(s * np.exp(length * self.rng.standard_normal(len(s))), LEAST)
            there = log_density(new)
            kept = (np.log(self.rng.random(len(s))) < there - now) & (new > LEAST) & ~self.counts.noise.held
            s, now = np.where(kept, new, s), np.where(kept, there, now)
        return s

    def rates(self, place: int) -> Array:
        """Return the means of the nonzero counts of a state, (nnz,)."""
        theta = self.theta[place]
        if self.shares:
            theta = theta / theta.sum(axis=1, keepdims=True) * self.counts.row_totals[:, None]
        return np.maximum(entry_rates(self.matrix, theta, self.beta[place].T, 1), LEAST_MEAN)

    def log_likelihoods_of_lines(self, place: int, s: Array, rates: Array, power: float) -> Array:
        """Return the part of T_κ that each dispersion has, (lines,)."""

        def rising(counts: Array, means: Array, lines: Array) -> Array:
            ratios = np.exp(power * (np.log(means) - np.log(s[lines])))
            return np.bincount(lines, sums_of_entries(counts, ratios, 1.0)[:, 0], len(s))

        found, counts, by = rising(self.matrix.data, rates, self.lines), self.counts, self.counts.noise.by
        if counts.given_totals:
            rows = np.arange(counts.shape[0]) if by == "row" else np.zeros(counts.shape[0], np.intp)
            return np.asarray(found - rising(counts.row_totals, np.maximum(counts.row_totals, 1.0), rows))
        by_feature, sides = counts.noise.by_feature, (self.theta[place], self.beta[place])
        sides = sides[::-1] if by_feature else sides
        totals, means = counts.feature_totals if by_feature else counts.row_totals, sides[0] @ sides[1].sum(axis=0)
        if by == "matrix":
            totals, means = (np.bincount(counts.noise.groups.codes, each, len(s)) for each in (totals, means))
        if by is None:
            totals, means = totals.sum(keepdims=True), means.sum(keepdims=True)
        return np.asarray(found + power * (totals * (np.log(s) - np.log1p(s)) - exposure_of(s) * means))


class Curved:
    """How T_κ of some states changes with the power."""

    def __init__(self, factors: ClusteredFactors, power: float) -> None:
        self.factors, self.power, self.rates = (
            factors,
            power,
            [factors.rates(place) for place in range(len(factors.theta))],
        )
        self.now = self.at(power)

    def at(self, power: float) -> Array:
        """Return T_κ of each state, (S,), in nats."""
        states = enumerate(zip(self.factors.dispersions, self.rates, strict=True))
        of_lines = self.factors.log_likelihoods_of_lines
        return np.array([of_lines(place, s, rates, power).sum() for place, (s, rates) in states])

    def by(self, step: float) -> Array:
        """Return the change of each log-likelihood for a step of the power, (S,), in nats."""
        return self.at(self.power + step) - self.now

    def spread(self, step: float) -> Array:
        """Return the same less the largest."""
        change = self.by(step)
        return change - change.max()


@dataclass(frozen=True)
class ClusteredTarget(Target):
    """Counts that cluster, and priors, to temper."""

    counts: ClusteredCounts

    def factors(self, loadings: Array, components: Array, rng: np.random.Generator) -> ClusteredFactors:
        """Return factors with the given values, (S, n, K) and (S, K, m), and unknown dispersions from their prior."""
        side, given = Draw(rng, 1), self.counts.dispersions
        problem = Problem(self.counts, self.loadings, self.components, side, side)
        s = np.tile(given, (len(loadings), 1))
        if self.counts.learned:
            drawn = np.maximum(np.exp(CENTRE + WIDTH * rng.standard_normal(s.shape)), LEAST)
            s = np.where(self.counts.noise.held, s, drawn)
        return ClusteredFactors(problem, (loadings, components), s, rng)

    def change(self, factors: Any, power: float, threads: int | None = None) -> Change:
        """Return how T_κ of some states changes with the power, from a given one on."""
        return Curved(factors, power)

    def at(self, problem: Problem, factors: Any, place: int) -> Problem:
        """Return the problem with the dispersions of a state."""
        return replace(problem, counts=self.counts.with_dispersions(factors.dispersions[place]))


def tempered_target(counts: Any, priors: Any, rank: int) -> Target:
    """Return the target for counts, which may cluster if loadings have no scale of their own, and proper priors."""
    if not counts.in_clusters:
        return target_of(counts, priors, rank)
    n, m = counts.shape
    sides = priors.loadings.broadcast((n, rank)), priors.components.broadcast((rank, m))
    constant = -float(gammaln(counts.row_totals + 1.0).sum()) - n if counts.given_totals else 0.0
    return ClusteredTarget(counts, *sides, False, constant)
