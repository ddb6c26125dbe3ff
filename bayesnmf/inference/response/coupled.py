"""The linear response of a mean field: how q changes when the log joint is tilted a little.

At the optimum, q is the fixed point of the simultaneous update M of all natural parameters ζ. A tilt by t Σ w x moves
it by t x with (I − J) x = F⁻¹ G: J is the derivative of M, F the Fisher information and G that of Σ w E[x] by ζ. The
change of the expectations estimates the covariance with Σ w x, with the coupling that a mean field leaves out
(Giordano, Broderick & Jordan 2018; mathematics.md section 10). F (I − J) is minus the Hessian of the bound: symmetric,
and positive definite at a strict optimum.

Rows of loadings respond to the rest independently of each other, so they are eliminated, K × K. What is left are the
components, and the rates that entries of hierarchical priors share: one vector, of which `Coupled` gives products.
"""

from __future__ import annotations

from threading import Event
from typing import Any, NamedTuple

import numpy as np

from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.response.fisher import Fisher, Step, fisher_of
from bayesnmf.inference.response.missing_entries import Unexposed
from bayesnmf.inference.sides import allocate, conditional_of, spread_at
from bayesnmf.kernels.cpu.clusters import expected_clusters
from bayesnmf.kernels.cpu.tangent import Tangent
from bayesnmf.priors.gamma import sum_to_shape
from bayesnmf.priors.unequal import solved
from bayesnmf.priors.values import others
from bayesnmf.types import Array

BLOCK_ROWS = 4096


class Tilt(NamedTuple):
    """Steps of loadings (n, K) and components that are not known, (free, m), in natural parameters."""

    loadings: Step
    components: Step


class Coupled:
    """The coupled sides of a mean field, linearised at its parameters.

    Parameters
    ----------
    problem : Problem
        Counts in float64 and priors.
    state : State
        Mean fields of both sides; components without one are constant.
    threads : int, optional
        Number of threads of a product; by default the fastest.
    """

    def __init__(self, problem: Problem, state: State, threads: int | None = None) -> None:
        self.problem, self.state, self.threads = problem, state, threads
        self.stop: Event | None = None  # set by the thread that waits for this one
        counts, q = problem.counts, state.components.conditional
        totals = allocate(problem, state, threads)
        self.totals = totals
        both = np.asarray(totals.loadings), np.asarray(totals.components)
        factors, spread = (state.loadings.geometric, state.components.geometric), spread_at(counts, state)
        matrix, bends = counts.matrix, None
        if spread is not None:
            matrix, bends = expected_clusters(matrix, *factors, spread, threads)
        self.tangent = Tangent(matrix, *factors, both, bends)
        self.rank = both[0].shape[1]
        held = q is None or problem.fixed_components or (both[1].shape[1] == 1 and q.support == "simplex")
        known = np.arange(self.rank) if held else q.constants.get("at", np.zeros(0, np.int64))  # type: ignore[union-attr]
        self.free = others(known, self.rank)
        self.unexposed = Unexposed(problem, state, np.zeros(0, np.int64) if held else self.free)
        self.loadings: Fisher = fisher_of(state.loadings.conditional)
        self.components: Fisher | None = fisher_of(q.free_prior) if q is not None and len(self.free) else None
        self.rates = _shared(problem.loadings_prior, self.loadings), _shared(problem.components_prior, self.components)
        self.sizes = [each.shape for each in self._arrays()]
        self.length = sum(int(np.prod(each)) for each in self.sizes)
        self.rows = self._responses_of_rows(both[0])

    def _responses_of_rows(self, totals: Array) -> Array:
        """Return (F⁻¹ − S)⁻¹ of every row, (n, K, K), with S the derivative of the totals by log U."""
        rows = self.tangent.curvature(self.threads)
        for first in range(0, len(rows), BLOCK_ROWS):  # in blocks, for memory
            at = slice(first, first + BLOCK_ROWS)
            slope = totals[at, :, None] * np.eye(self.rank) - rows[at]
            if self.unexposed.loadings is not None:
                slope += self.unexposed.loadings.of_log(at)
            fisher = self.loadings.log_covariance(at)
            solved = np.linalg.solve(np.eye(self.rank) - fisher @ slope, fisher)
            rows[at] = (solved + solved.transpose(0, 2, 1)) / 2
        return rows

    # --- vectors of components and shared rates -----------------------------------------------------------

    def _arrays(self) -> list[Array]:
        """Return one array for each part of a vector: steps of components, and of the rates of both sides."""
        parts = [] if self.components is None else [np.empty(self.components.size)] * self.components.parts
        return [*parts, *(np.empty(rates.shape.shape) for rates in self.rates if rates is not None)]

    def split(self, vector: Array) -> tuple[Step, list[Array | None]]:
        """Return the step of the components, and those of the rates of both sides."""
        ends = np.cumsum([0, *(int(np.prod(size)) for size in self.sizes)])
        parts = [vector[ends[part] : ends[part + 1]].reshape(size) for part, size in enumerate(self.sizes)]
        steps = 0 if self.components is None else self.components.parts
        left = parts[steps:]
        return tuple(parts[:steps]), [left.pop(0) if rates is not None else None for rates in self.rates]

    def no_step(self) -> Step:
        """Return steps of the loadings that are 0."""
        return tuple(np.zeros(self.loadings.size) for _ in range(self.loadings.parts))

    def _joined(self, components: Step, rates: list[Array | None]) -> Array:
        parts = [np.ravel(each) for each in (*components, *rates) if each is not None]
        return np.concatenate(parts) if parts else np.zeros(0)

    def product_of_fisher(self, vector: Array) -> Array:
        """Return F times a vector."""
        components, rates = self.split(vector)
        changes = () if self.components is None else self.components.product(components)
        moved = [
            None if step is None else step * of.variance() for step, of in zip(rates, self.rates, strict=True)
        ]  # fmt: skip
        return self._joined(changes, moved)

    def draw(self, rng: np.random.Generator) -> Array:
        """Return a normal draw whose covariance is the inverse of F."""
        steps = () if self.components is None else self.components.draw(rng)
        rates = [None if of is None else rng.normal(0, of.variance() ** -0.5) for of in self.rates]
        return self._joined(steps, rates)

    # --- the response ---------------------------------------------------------------------------------------

    def residual(self) -> Tilt:
        """Return M(ζ) − ζ: the steps that the simultaneous update of both sides would make."""
        problem = self.problem
        one, two = (side.conditional for side in self.state)
        prior = problem.loadings_prior.expected_prior(one)[0].free_prior
        best = conditional_of(problem, self.state, "loadings", np.array(self.totals.loadings), prior)
        steps = self.loadings.towards(best.broadcast(self.loadings.size))
        if self.components is None:
            return Tilt(steps, ())
        prior = problem.components_prior.expected_prior(two)[0]
        updated = conditional_of(problem, self.state, "components", np.array(self.totals.components), prior)
        return Tilt(steps, self.components.towards(updated.free_prior.broadcast(self.components.size)))

    def moved(self, tilt: Tilt) -> tuple[Any, Any]:
        """Return the distributions of both sides after steps; their parameters may be outside their range."""
        found = []
        for side, fisher, step in zip(self.state, (self.loadings, self.components), tilt, strict=True):
            q = side.conditional
            moves = fisher is not None and q is not None
            found.append(q.with_parameters({**q.parameters, **fisher.moved(step).parameters}) if moves else q)  # type: ignore[union-attr]
        return found[0], found[1]

    def respond(self, vector: Array, given: Step | None = None) -> tuple[Step, Array]:
        """Return the response of the loadings to a vector and to steps given to them, and what M makes of both.

        The second array is M's derivative applied to the loadings' response and to the vector, as a vector.
        """
        steps, rates = self.split(vector)
        changes = () if self.components is None else self.components.product(steps)
        exposed = self._exposed(steps)
        given, tangent = self._given(exposed, rates[0], given), self.tangent
        added = self.loadings.added_totals(given)
        if not self.length:
            moved = np.einsum("ikl,il->ik", self.rows, added)
            return self.loadings.step_of(moved, given), np.zeros(0)
        log_change = np.zeros(tangent.totals[1].shape)
        if changes:
            log_change[self.free] = changes[0]
        moved, totals = tangent.row_responses(log_change, np.ascontiguousarray(added), self.rows, self.threads)
        response = self.loadings.step_of(moved, given)
        return response, self._answer(response, totals, (steps, changes, exposed), rates[1])

    def _exposed(self, steps: Step) -> Array | None:
        """Return the changes of the exposures of the loadings for steps of the components; None if they stay equal."""
        if self.components is None or (self.components.parts == 1 and self.unexposed.components is None):
            return None
        means = np.zeros((self.rank, self.components.size[1]))
        means[self.free] = self.components.mean_change(steps)
        return self.unexposed.of_loadings(means)

    def _given(self, exposed: Array | None, rates: Array | None, given: Step | None) -> Step:
        """Return the steps that the loadings get besides those from their totals."""
        out = [np.zeros(self.loadings.size) if given is None else given[0]]
        if self.loadings.parts == 1:
            unequal = self.unexposed.loadings
            return (out[0] if unequal is None or exposed is None else out[0] + unequal.exposed(exposed),)
        by_rate = np.zeros(self.loadings.size) if given is None else np.array(given[1])
        if exposed is not None:
            by_rate -= exposed
        if rates is not None:
            by_rate -= rates * self.rates[0].variance()
        return out[0], by_rate

    def _answer(self, response: Step, totals: Array, moved: tuple[Step, Step, Any], rates: Array | None) -> Array:
        """Return the steps of the components and of the rates for responses of everything else.

        Moved are the components, by these steps and changes, and the exposures of the loadings.
        """
        (own, changes, exposed), mean = moved, self.loadings.mean_change(response)
        steps: list[Array] = []
        if self.components is not None:
            steps = [totals[self.free]]
            if self.components.parts > 1:
                by_rate = -self.unexposed.of_components(mean, exposed)[self.free]
                steps.append(by_rate if rates is None else by_rate - rates * self.rates[1].variance())
            elif (unequal := self.unexposed.components) is not None:
                exposure = self.unexposed.of_components(mean, exposed)[self.free]
                steps[0] = steps[0] + solved(unequal.nu, unequal.own(own[0])) + unequal.exposed(exposure)
        means = mean, changes[1] if len(changes) > 1 else None
        shared = [
            None if of is None else -sum_to_shape(each, of.shape.shape)  # type: ignore[arg-type]
            for of, each in zip(self.rates, means, strict=True)
        ]
        return self._joined(tuple(steps), shared)

    def product(self, vector: Array) -> Array:
        """Return (I − J) times a vector, with the loadings eliminated; raise KeyboardInterrupt once `stop` is set."""
        if self.stop is not None and self.stop.is_set():
            raise KeyboardInterrupt
        return vector - self.respond(vector)[1]

    def right_side(self, tilt: Tilt) -> Array:
        """Return the right side of the equations of a tilt, with the loadings eliminated."""
        _, of_loadings = self.respond(np.zeros(self.length), tilt.loadings)
        return of_loadings + self._joined(tilt.components, [None if of is None else 0 * of.rate for of in self.rates])

    def whole(self, vector: Array, tilt: Tilt) -> Tilt:
        """Return the steps of both sides, given the solution for the components and rates."""
        return Tilt(self.respond(vector, tilt.loadings)[0], self.split(vector)[0])


def _shared(prior: Any, fisher: Fisher | None) -> Any:
    """Return the distribution of the rates that the entries of a side share, in full size; None if there are none."""
    if fisher is None or fisher.parts == 1:
        return None
    size = fisher.size
    rates = prior.free_prior.rates_given(fisher.q.mean())  # type: ignore[attr-defined]
    return None if rates is None else rates.broadcast(prior.free_prior.sizes(size)["rate_shape"])
