"""Gibbs sampling with the allocations summed out: one entry at a time, with shears and scales of components.

Gibbs sampling over allocations mixes as slowly as EM converges. Given the other factor and the rest of its row, the
density of a single entry is known up to a constant without allocations (`bayesnmf.kernels.cpu.entries`), and an entry
can move as far as the counts allow. Shears and scales move whole components where the counts say nothing
(`bayesnmf.kernels.cpu.orbits`).

One representation serves all models: Gamma factors t and b whose product gives the means of the counts.

- Loadings on the simplex, π_i, are θ_i = g_i π_i with g_i ~ Gamma(Σ α, ρ): given row totals N_i,
  g_i ~ Gamma(Σ α + N_i, ρ + 1), independently of π and β, for any ρ > 0. A scale s_i is drawn likewise, beside them.
- Exposures of rows and features multiply θ and β, and divide the rates of their priors.
- Components on the simplex, β_k, are b_k = c_k β_k with c_k ~ Gamma(Σ η, 1), and t_k = θ_k / c_k. The prior of θ then
  ties the entries of b_k through their sum c_k: by a power of it, which pseudo-counts replace where counts are many, so
  that the entries are drawn by all threads.

Rates that entries share (hierarchical priors) are drawn between the sweeps, given the entries.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.data.counts import Counts, Lines
from bayesnmf.inference.blocked.passes import Pass, pass_over_rows
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.sampling.scales import Terms, log_scales_of, terms_of
from bayesnmf.inference.side import Side
from bayesnmf.inference.sides import ROUNDING, Where
from bayesnmf.kernels.cpu.draws import gamma_draws
from bayesnmf.kernels.cpu.entries import LEAST, draw_entries
from bayesnmf.kernels.cpu.orbits import shear_components
from bayesnmf.priors.pair import free_components
from bayesnmf.priors.values import ScaledProportions, rows_of_value, separate_scale
from bayesnmf.types import Array

SHEARED = 0.3  # least shape for which shears pay: below it, entries near 0 leave them no room
# Most shears of a component a sweep. On all counts of pcawg_breast_sbs96, K = 5, the smallest effective sample size of
# 8,000 draws was 26, 49, 130, 187 and 194 with 1, 5, 20, 60 and 150, in 38, 36, 42, 48 and 68 s.
MOST_SHEARS = 60
LEAST_SUM = 1e-290  # of components on the simplex, for loadings up to 1
UNTIED = 16  # least counts a pseudo-count of components: an untied sweep moves Σb less, by their share of all counts


class Factors:
    """Both factors of S independent states, (S, n, K) and (S, m, K), positive, whose products give the means.

    The likelihood may be raised to a power, for tempering.

    Parameters
    ----------
    problem : Problem
        Problem with draws as the summaries of both sides.
    loadings, components : ndarray of shape (S, n, K) and (S, K, m)
        Values to start from, without the scale of a scaled simplex.
    rng : Generator
        Generator of the states.
    """

    def __init__(self, problem: Problem, loadings: Array, components: Array, rng: np.random.Generator) -> None:
        self.rng, counts = rng, problem.counts
        self.shares = problem.loadings_prior.support != "positive"  # loadings on the simplex
        self.rows = np.ones((1, 1)) if self.shares else counts.row_factor
        self.features = counts.feature_factor[:, None]
        self.theta = np.maximum(np.ascontiguousarray(loadings * self.rows), LEAST)
        self.beta = np.maximum(np.ascontiguousarray(np.swapaxes(components, 1, 2) * self.features), LEAST)
        rank = self.theta.shape[2]
        held = problem.fixed_components
        self.free = np.empty(0, np.intp) if held else free_components(problem.components_prior, rank)
        self.is_free = np.isin(np.arange(rank), self.free)
        self.shears = int(np.clip(counts.nnz // sum(counts.shape), 1, MOST_SHEARS))
        self.simplex = problem.components_prior.support == "simplex"
        self.power, self.problem = 1.0, problem
        self._take(counts)

    def _take(self, counts: Counts) -> None:
        self.by_row, self.by_feature = counts.by_row(), counts.by_feature()
        self.totals = counts.row_totals[:, None]

    def see(self, problem: Problem) -> None:
        """Take the counts of a problem, and their exposures, as those that are given from now on."""
        self.problem, counts = problem, problem.counts
        if not self.shares:
            self.theta *= counts.row_factor / self.rows
            self.rows = counts.row_factor
        self.beta *= counts.feature_factor[:, None] / self.features
        self.features = counts.feature_factor[:, None]
        self._take(counts)

    def raise_to(self, power: float) -> None:
        """Raise the likelihood to a power from now on."""
        counts = self.problem.counts
        self.power, self.totals = power, power * counts.row_totals[:, None]
        self.by_row, self.by_feature = (Lines(scaled(each, power)) for each in (counts.matrix, counts.transposed))

    @property
    def memory(self) -> tuple[Array, Array, float]:
        """The states and the power: what a checkpoint keeps."""
        return self.theta, self.beta, self.power

    @memory.setter
    def memory(self, kept: tuple[Array, Array, float]) -> None:
        self.theta, self.beta, power = kept
        if power != self.power:
            self.raise_to(power)

    def take(self, order: Array) -> None:
        """Take the states at the given places."""
        self.theta, self.beta = self.theta[order], self.beta[order]

    def seed(self) -> int:
        """Return a new seed for a compiled loop."""
        return int(self.rng.integers(2**63))

    def sweep(self, threads: int | None) -> None:
        """Draw every entry once, and shear and scale the components."""
        loadings, components = self._terms()
        if self.shares:
            self._draw_totals(loadings)
        self._draw_loadings(loadings, threads)
        if not len(self.free):
            return
        if self.simplex:
            self._draw_simplex(loadings, components, threads)
        else:
            self._draw_components(loadings, components, threads)

    def _terms(self) -> tuple[Terms, Terms]:
        """Return shapes and rates of loadings, (S, 1 or n, 1 or K), and components, (S, 1 or m, 1 or K).

        Shared rates are drawn. Without rates of their own, loadings on the simplex have any; see ρ above.
        """
        rank = self.theta.shape[2]
        shape, rate = self._drawn_terms(self.problem.loadings_prior, self.theta / self.rows)
        rate = rate / self.rows
        if self.shares:
            rate = shape.sum(axis=2, keepdims=True) * (rank / shape.shape[2]) / np.maximum(self.totals, 1.0)
        values = np.swapaxes(self.beta / self.features, 1, 2)
        of_components = [
            np.swapaxes(self._of_free(each), 1, 2) for each in self._drawn_terms(self.problem.components_prior, values)
        ]
        return (shape, rate), (of_components[0], of_components[1] / self.features)

    def _drawn_terms(self, prior: Any, values: Array) -> Terms:
        """Return shapes and rates of a prior for every state, with shared rates drawn."""
        shapes, rates = zip(*[terms_of(prior.drawn(value, self.rng)) for value in values], strict=True)
        return np.stack(shapes), np.stack(rates)

    def _of_free(self, values: Array) -> Array:
        """Return terms of the free components, (S, 1 or free, 1 or m), as terms of all; known ones have none."""
        if values.shape[1] == 1:
            return values
        whole = np.ones((len(values), self.theta.shape[2], values.shape[2]))
        whole[:, self.free] = values
        return whole

    def _observed(self, whole: Array, factor: Array, side: str) -> Array:
        """Return sums over all features of a row (rows of a feature) without those of missing entries."""
        mask = self.problem.counts.mask
        if mask is None:
            return whole
        sums = mask.sums_by_row if side == "row" else mask.sums_by_feature
        left = whole - self.power * np.stack([sums(each) for each in factor])
        return np.where(left > ROUNDING * whole, left, 0.0)

    def _draw_totals(self, terms: Terms) -> None:
        shape, rate = terms
        whole = np.broadcast_to(shape, self.theta.shape).sum(axis=2, keepdims=True) + self.totals
        drawn = gamma_draws(whole, self.seed()) / (rate + self.power)
        self.theta *= drawn / self.theta.sum(axis=2, keepdims=True)
        np.maximum(self.theta, LEAST, out=self.theta)

    def _draw_loadings(self, terms: Terms, threads: int | None) -> None:
        exposure = self._observed(self.power * self.beta.sum(axis=1, keepdims=True), self.beta, "row")
        given = terms[0], terms[1] + exposure
        self._draw_lines(self.by_row, (self.theta, self.beta), given, None, threads)

    def _draw_lines(
        self, lines: Any, factors: tuple[Array, Array], terms: Terms, tied: Any, threads: int | None
    ) -> None:
        """Draw the entries of all rows or features of a factor given the other one, in place, block by block."""
        (own, other), seed = factors, self.seed()
        free = None if lines is self.by_row else self.is_free
        for number, block in enumerate(lines.blocks):
            given: Any = tuple(each[:, block] if each.shape[1] > 1 else each for each in terms)
            matrix = lines.read(number, np.float64)
            draw_entries(matrix, own[:, block], other, given, seed, tied, free, threads, block.start)

    def _draw_components(self, loadings: Terms, components: Terms, threads: int | None) -> None:
        """Draw components with Gamma priors, then shears and scales."""
        exposure = self._observed(self.power * self.theta.sum(axis=1, keepdims=True), self.theta, "feature")
        given = components[0], components[1] + exposure
        self._draw_lines(self.by_feature, (self.beta, self.theta), given, None, threads)
        self._shear(self.theta, self.beta, loadings, components, None, threads)
        log_scale = log_scales_of(self.theta, self.beta, loadings, components, self.seed())[:, None]
        self.theta *= np.exp(-np.where(self.is_free, log_scale, 0.0))
        self.beta *= np.exp(np.where(self.is_free, log_scale, 0.0))

    def _draw_simplex(self, loadings: Terms, components: Terms, threads: int | None) -> None:
        """Draw components on the simplex times their sums, then shears, and normalise."""
        (a, r), shape = loadings, components[0]
        whole = np.broadcast_to(shape, self.beta.shape).sum(axis=1, keepdims=True)
        least = LEAST_SUM * np.maximum(self.theta[..., self.free].max(axis=1, keepdims=True), 1.0)
        drawn = np.maximum(gamma_draws(whole[..., self.free], self.seed()), least)  # so that theta / sums is finite
        sums = np.ones((len(self.beta), 1, len(self.is_free)))
        sums[..., self.free] = drawn
        b, t = self.beta * sums, self.theta / sums
        linear = self._observed(1.0 + ((r + self.power) * t).sum(axis=1, keepdims=True), t, "feature")
        power = np.broadcast_to(a, t.shape).sum(axis=1)
        tied: tuple[Array, Array] | None = (power, b.sum(axis=1))
        if len(b) == 1 and self.power * self.problem.counts.total >= UNTIED * power.sum():
            pseudo, rate = untied(b[0], power[0], self.free, self.rng)
            shape, linear, tied = shape + pseudo, linear + rate, None
        self._draw_lines(self.by_feature, (b, t), (shape, linear), tied, threads)
        self._shear(t, b, loadings, (components[0], np.ones((1, 1, 1))), power, threads)
        sums = np.where(self.is_free, b.sum(axis=1, keepdims=True), sums)
        self.beta, self.theta = np.maximum(b / sums, LEAST), np.maximum(t * sums, LEAST)

    def _shear(
        self, t: Array, b: Array, loadings: Terms, components: Terms, power: Array | None, threads: int | None
    ) -> None:
        """Shear the components, in place, if entries near 0 leave room."""
        shapes, rates = ((np.swapaxes(loadings[place], 1, 2), np.swapaxes(components[place], 1, 2)) for place in (0, 1))
        if min(each.min() for each in shapes) < SHEARED:
            return
        rows = [np.ascontiguousarray(np.swapaxes(each, 1, 2)) for each in (t, b)]
        shear_components(rows[0], rows[1], shapes, rates, power, self.free, self.seed(), self.shears, threads)
        t[:], b[:] = (np.swapaxes(each, 1, 2) for each in rows)

    def loadings(self, place: int = 0) -> Array:
        """Return the loadings of one state, without their scale."""
        theta = self.theta[place]
        return theta / theta.sum(axis=1, keepdims=True) if self.shares else theta / self.rows

    def value(self, place: int = 0) -> tuple[Any, Array]:
        """Return loadings and components of one state as values of the problem's sides; a scale is drawn."""
        shares = self.loadings(place)
        components = self.problem.components_prior.with_known((self.beta[place] / self.features).T)
        components = np.asfortranarray(components)
        if not self.shares:
            return shares, components
        prior: Any = self.problem.loadings_prior
        if prior.support == "simplex":
            return shares, components
        counts = self.problem.counts
        scale = prior.scale.conditional(counts.row_totals[:, None], counts.row_factor).draw(self.rng)
        return ScaledProportions(shares, scale), components


def untied(b: Array, power: Array, free: Array, rng: np.random.Generator) -> Terms:
    """Return what to add to the shapes, (m, K), and rates, (K,), of entries b for the powers of their sums Z, (K,).

    Z^p is Z^n Z^(p − n) with n = ⌈p⌉. The first is a sum over allocations of n pseudo-counts to the entries, of which
    one is drawn; the second is an integral, ∫ g^(n−p−1) e^(−gZ) dg / Γ(n − p), over a rate g ~ Gamma(n − p, Z).
    """
    whole = np.ceil(power)
    pseudo, below = np.zeros(b.shape), np.cumsum(b, axis=0)
    for k in free:
        places = np.searchsorted(below[:, k], rng.random(int(whole[k])) * below[-1, k], side="right")
        pseudo[:, k] = np.bincount(np.minimum(places, len(b) - 1), minlength=len(b))
    return pseudo, rng.gamma(whole - power) / below[-1]


def scaled(matrix: csr_array, by: float) -> csr_array:
    """Return a matrix of counts times a number, which shares its pattern."""
    return csr_array((matrix.data * by, matrix.indices, matrix.indptr), shape=matrix.shape)


def factors_of(problem: Problem, state: State, rng: np.random.Generator) -> Factors:
    """Return the factors of one state."""
    loadings, _ = separate_scale(state.loadings.whole()[0])
    return Factors(problem, loadings[None], np.asarray(state.components.matrix)[None], rng)


def state_of(factors: Factors, problem: Problem) -> State:
    """Return the current draw of the first state, as a `State` of a problem, whose noise may be drawn beside it."""
    loadings, components = factors.value()
    summary: Any = problem.components_summary

    def work(part: Problem, _: Any, at: Where) -> tuple[Side, None, float]:
        of_rows: Any = part.loadings_summary
        return of_rows.at(part.loadings_prior, rows_of_value(loadings, at.rows)), None, 0.0

    _, side = pass_over_rows(problem, None, work, Pass(pure=False, reads=False))  # the rows are sent nowhere
    return State(side, summary.at(problem.components_prior, components))
