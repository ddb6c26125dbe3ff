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
  ties the entries of b_k through their sum c_k.

Rates that entries share (hierarchical priors) are drawn between the sweeps, given the entries.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesnmf.inference.ascent.coordinate_ascent import Progress
from bayesnmf.inference.sampling.gibbs import Chain, Schedule, record_chain
from bayesnmf.inference.sampling.scales import free_components, log_scales_of, terms_of
from bayesnmf.inference.sides import Problem, State, objective
from bayesnmf.kernels.cpu.entries import LEAST, draw_entries
from bayesnmf.kernels.cpu.gamma_draws import gamma_draws
from bayesnmf.kernels.cpu.likelihood import cell_rates
from bayesnmf.kernels.cpu.orbits import shear_components
from bayesnmf.priors.values import ScaledProportions, separate_scale

Array = NDArray[Any]
SHEARED = 0.3  # least shape for which shears pay: below it, entries near 0 leave them no room
# Most shears of a component a sweep. On all counts of pcawg_breast_sbs96, K = 5, the smallest effective sample size of
# 8,000 draws was 26, 49, 130, 187 and 194 with 1, 5, 20, 60 and 150, in 38, 36, 42, 48 and 68 s.
MOST_SHEARS = 60


class Factors:
    """Both factors of a chain, (n, K) and (m, K), positive, whose product gives the means of the counts.

    Parameters
    ----------
    problem : Problem
        Problem with draws as the summaries of both sides.
    state : State
        State to start from.
    rng : Generator
        Generator of the chain.
    """

    def __init__(self, problem: Problem, state: State, rng: np.random.Generator) -> None:
        self.problem, self.rng, self.counts = problem, rng, problem.counts
        loadings, _ = separate_scale(state.loadings.value)
        self.shares = problem.loadings_prior.support != "positive"  # loadings on the simplex
        self.rows = np.ones((1, 1)) if self.shares else self.counts.row_factor
        self.features = self.counts.feature_factor[:, None]
        self.theta = np.maximum(np.ascontiguousarray(loadings * self.rows), LEAST)
        self.beta = np.maximum(np.ascontiguousarray(state.components.matrix.T * self.features), LEAST)
        rank = self.theta.shape[1]
        self.free = free_components(problem.components_prior, rank)
        self.shears = int(np.clip(self.counts.nnz // sum(self.counts.shape), 1, MOST_SHEARS))
        self.totals = self.counts.row_totals[:, None]
        self.simplex = problem.components_prior.support == "simplex"

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
            self._draw_simplex(loadings, components)
        else:
            self._draw_components(loadings, components, threads)

    def _terms(self) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        """Return shapes and rates of loadings, (1 or n, 1 or K), and components, (1 or m, 1 or K).

        Shared rates are drawn. Without rates of their own, loadings on the simplex have any; see ρ above.
        """
        problem, rank = self.problem, self.theta.shape[1]
        shape, rate = terms_of(problem.loadings_prior.drawn(self.theta / self.rows, self.rng))
        rate = rate / self.rows
        if self.shares:
            rate = shape.sum(axis=1, keepdims=True) * (rank / shape.shape[1]) / np.maximum(self.totals, 1.0)
        prior = problem.components_prior.drawn((self.beta / self.features).T, self.rng)
        of_components = [self._of_free(each).T for each in terms_of(prior)]
        return (shape, rate), (of_components[0], of_components[1] / self.features)

    def _of_free(self, values: Array) -> Array:
        """Return terms of the free components, (1 or free, 1 or m), as terms of all; known ones have none."""
        if len(values) == 1:
            return values
        whole = np.ones((self.theta.shape[1], values.shape[1]))
        whole[self.free] = values
        return whole

    def _draw_totals(self, terms: tuple[Array, Array]) -> None:
        shape, rate = terms
        whole = np.broadcast_to(shape, self.theta.shape).sum(axis=1, keepdims=True) + self.totals
        drawn = gamma_draws(whole, self.seed()) / (rate + 1.0)
        self.theta *= drawn / self.theta.sum(axis=1, keepdims=True)
        np.maximum(self.theta, LEAST, out=self.theta)

    def _draw_loadings(self, terms: tuple[Array, Array], threads: int | None) -> None:
        given = terms[0], terms[1] + self.beta.sum(axis=0)
        draw_entries(self.counts.matrix, self.theta, self.beta, given, self.seed(), threads=threads)

    def _draw_components(self, loadings: Any, components: Any, threads: int | None) -> None:
        """Draw components with Gamma priors, then shears and scales."""
        given = components[0], components[1] + self.theta.sum(axis=0)
        drawn = np.isin(np.arange(self.theta.shape[1]), self.free)
        draw_entries(self.counts.transposed, self.beta, self.theta, given, self.seed(), free=drawn, threads=threads)
        self._shear(self.theta, self.beta, loadings, components, None)
        log_scale = log_scales_of(self.theta, self.beta, loadings, components, self.seed())
        self.theta *= np.exp(-np.where(drawn, log_scale, 0.0))
        self.beta *= np.exp(np.where(drawn, log_scale, 0.0))

    def _draw_simplex(self, loadings: Any, components: Any) -> None:
        """Draw components on the simplex times their sums, then shears, and normalise."""
        (a, r), (shape, _) = loadings, components
        rank, m = self.theta.shape[1], len(self.beta)
        sums = np.ones(rank)
        whole = np.broadcast_to(shape, (m, rank)).sum(axis=0)
        sums[self.free] = np.maximum(gamma_draws(whole[self.free][None], self.seed())[0], LEAST)
        b, t = self.beta * sums, self.theta / sums
        drawn = np.isin(np.arange(rank), self.free)
        linear = 1.0 + ((r + 1.0) * t).sum(axis=0)
        power = np.broadcast_to(a, t.shape).sum(axis=0)
        draw_entries(
            self.counts.transposed, b, t, (shape, linear[None]), self.seed(), (power, b.sum(axis=0)), drawn
        )  # fmt: skip
        self._shear(t, b, loadings, (shape, np.ones((1, 1))), power)
        sums = np.where(drawn, b.sum(axis=0), sums)
        self.beta, self.theta = np.maximum(b / sums, LEAST), np.maximum(t * sums, LEAST)

    def _shear(self, t: Array, b: Array, loadings: Any, components: Any, power: Array | None) -> None:
        """Shear the components, in place, if entries near 0 leave room."""
        shapes = loadings[0].T, components[0].T
        if min(each.min() for each in shapes) < SHEARED:
            return
        rows = np.ascontiguousarray(t.T), np.ascontiguousarray(b.T)
        rates = loadings[1].T, components[1].T
        shear_components(*rows, shapes, rates, power, self.free, self.seed(), self.shears)
        t[:], b[:] = rows[0].T, rows[1].T

    def value(self) -> tuple[Any, Array]:
        """Return loadings and components as values of the problem's sides; a scale is drawn."""
        components = self.problem.components_prior.with_known((self.beta / self.features).T)
        components = np.asfortranarray(components)
        if not self.shares:
            return self.theta / self.rows, components
        shares = self.theta / self.theta.sum(axis=1, keepdims=True)
        prior: Any = self.problem.loadings_prior
        if prior.support == "simplex":
            return shares, components
        scale = prior.scale.conditional(self.totals, self.counts.row_factor).draw(self.rng)
        return ScaledProportions(shares, scale), components


def marginal_gibbs_chain(
    problem: Problem,
    state: State,
    rng: np.random.Generator,
    schedule: Schedule,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Chain:
    """Run one chain; parameters as in `bayesnmf.inference.sampling.gibbs.gibbs_chain`.

    The log joint is computed for draws alone, and reported as NaN for all other sweeps.
    """
    factors: Factors | None = None

    def step(keep: bool) -> tuple[State, float]:
        nonlocal factors
        if factors is None:
            factors = Factors(problem, state, rng)
            return state, np.nan
        factors.sweep(threads)
        return drawn_state(factors, threads) if keep else (state, np.nan)

    return record_chain(step, schedule, progress)


def drawn_state(factors: Factors, threads: int | None) -> tuple[State, float]:
    """Return the current draw as a state, and its log joint."""
    problem = factors.problem
    summaries: Any = problem.loadings_summary, problem.components_summary
    loadings, components = factors.value()
    state = State(
        summaries[0].at(problem.loadings_prior, loadings), summaries[1].at(problem.components_prior, components)
    )
    rates = cell_rates(problem.counts.matrix, state.loadings.geometric, components, threads)
    return state, objective(problem, state, float(problem.counts.matrix.data @ np.log(rates)))
