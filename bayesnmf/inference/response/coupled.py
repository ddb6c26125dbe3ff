"""The linear response of a mean field: how q changes when the log joint is tilted a little.

At the optimum, q is the fixed point of the simultaneous update M of all natural parameters ζ. A tilt by t Σ w x moves
it by t x with (I − J) x = F⁻¹ G: J is the derivative of M, F the Fisher information and G that of Σ w E[x] by ζ. The
change of the expectations estimates the covariance with Σ w x, with the coupling that a mean field leaves out
(Giordano, Broderick & Jordan 2018; mathematics.md section 10). F (I − J) is minus the Hessian of the bound: symmetric,
and positive definite at a strict optimum.

Rows of loadings respond to the rest independently of each other, so they are eliminated, K × K. What is left are the
components, and the rates that entries of hierarchical priors share: one vector, of which `Coupled` gives products.

Missing entries have no exposure, and are left out of its changes. The natural gradient of a row of a side on the
simplex with q = Dirichlet(ν) is α − ν − F⁻¹h, with h_j = (E_j − Ē) / ν₀ for exposures E (`bayesnmf.priors.dirichlet`).
For a step x of ν and a change dE, with p = ν / ν₀ and r = F⁻¹h at the optimum, it changes beside α − ν by F⁻¹ of

    ψ″(ν) x r − ψ″(ν₀) Σx Σr + [(E − Ē) Σx + Σ(E − Ē) x] / ν₀²  −  (dE − Σ p dE) / ν₀

Given the totals N of the observed entries, loadings have the exposures E = g O, with O that of observed entries without
totals and g = N / P, P = Σ p O. Then dE = g dO + O dg, dg = −g dP / P with dP = Σ (O − P) x / ν₀ + Σ p dO.

A step is a change of the natural parameters, and a change is one of the expectations of the sufficient statistics::

    Gamma(α, ρ)     natural parameters (α, −ρ)    statistics (log x, x)
    Dirichlet(ν)    natural parameters ν          statistics log x

The Fisher information F, the covariance of the statistics, turns a step into a change (mathematics.md section 10).
Steps and changes are tuples of arrays of the size of the factor, one for each natural parameter.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from threading import Event
from typing import Any, NamedTuple

import numpy as np
from scipy.special import polygamma

from bayesnmf.inference.missing import differs, weights
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.side import spread_at
from bayesnmf.inference.sides import allocate, conditional_of, exposure_of, exposure_of_loadings
from bayesnmf.kernels.cpu.clusters import expected_clusters
from bayesnmf.kernels.cpu.tangent import Tangent
from bayesnmf.priors import Dirichlet, Gamma, ScaledDirichlet
from bayesnmf.priors.dirichlet import solved
from bayesnmf.priors.gamma import sum_to_shape
from bayesnmf.priors.values import others
from bayesnmf.types import Array

Step = tuple[Array, ...]
BLOCK_ROWS = 4096


class Fisher(ABC):
    """Fisher information of independent entries, or of independent rows on the simplex.

    Attributes
    ----------
    parts : int
        Number of natural parameters of an entry.
    size : tuple of int
        Size of the factor.
    """

    parts: int
    size: tuple[int, int]

    @abstractmethod
    def product(self, step: Step) -> Step:
        """Return the change of the expected statistics for a step."""

    @abstractmethod
    def towards(self, other: Any) -> Step:
        """Return the step to another distribution of the family."""

    @abstractmethod
    def moved(self, step: Step) -> Any:
        """Return the distribution after a step, in logarithms of the parameters, which so stay positive."""

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> Step:
        """Return a normal draw of a step whose covariance is the inverse of F."""

    @abstractmethod
    def mean_change(self, step: Step) -> Array:
        """Return the change of the expectations of the entries for a step."""

    @abstractmethod
    def slope(self, weights: Array) -> Step:
        """Return F⁻¹ G, with G the derivatives of Σ weights · E[x] by the natural parameters."""

    @abstractmethod
    def remainder(self, weights: Array) -> Array:
        """Return Cov_q(x, Σ weights · x) − mean_change(slope(weights)): what F alone does not contain."""

    @abstractmethod
    def covariance(self, one: Array, two: Array) -> float:
        """Return the covariance of Σ one · x and Σ two · x under q."""

    @abstractmethod
    def variance(self) -> Array:
        """Return the variances of the entries under q."""

    @abstractmethod
    def explained(self) -> Array:
        """Return the part of the variances that the statistics explain, GᵀF⁻¹G."""

    @abstractmethod
    def log_covariance(self, rows: slice) -> Array:
        """Return the covariance of the logarithms of each of some rows, (rows, K, K)."""

    @abstractmethod
    def added_totals(self, step: Step) -> Array:
        """Return what a given step adds to the tangent of the totals when a row responds."""

    @abstractmethod
    def step_of(self, log_change: Array, given: Step) -> Step:
        """Return the step with this change of the expected logarithms and the given second part."""

    @abstractmethod
    def row_variance(self, response: Array) -> Array:
        """Return variances of the entries, (n, K), if logarithms of a row have the covariance `response` (n, K, K)."""


class GammaFisher(Fisher):
    """Fisher information of independent Gamma entries."""

    parts = 2

    def __init__(self, q: Gamma) -> None:
        self.q = q
        self.shape, self.rate = np.broadcast_arrays(*(np.asarray(each, np.float64) for each in (q.shape, q.rate)))
        self.size = self.shape.shape
        self.trigamma = polygamma(1, self.shape)

    def product(self, step: Step) -> Step:
        """Return the changes of E log x and E x."""
        by_shape, by_rate = step[0] / self.rate, step[1] / self.rate
        return self.trigamma * step[0] + by_rate, by_shape + self.shape * by_rate / self.rate

    def towards(self, other: Gamma) -> Step:
        """Return the differences of the shapes, and of the rates with the opposite sign."""
        return np.asarray(other.shape) - self.shape, self.rate - np.asarray(other.rate)

    def moved(self, step: Step) -> Gamma:
        """Return the Gamma with other shapes and rates."""
        return type(self.q)(self.shape * np.exp(step[0] / self.shape), self.rate * np.exp(-step[1] / self.rate))

    def draw(self, rng: np.random.Generator) -> Step:
        """Return a draw by conditioning the shape on the rate."""
        one, two = rng.standard_normal((2, *self.size))
        by_rate = self.rate * np.sqrt(self.trigamma / self._excess) * two
        return one / np.sqrt(self.trigamma) - by_rate / (self.rate * self.trigamma), by_rate

    @property
    def _excess(self) -> Array:
        """α ψ′(α) − 1, by its series where the difference would cancel."""
        series = 1 / (2 * self.shape) + 1 / (6 * self.shape**2)
        return np.where(self.shape > 1e5, series, self.shape * self.trigamma - 1)

    def mean_change(self, step: Step) -> Array:
        """Return the change of E x, the second statistic."""
        return self.product(step)[1]

    def slope(self, weights: Array) -> Step:
        """Return the weights as a step of the second natural parameter, since x is a statistic."""
        return np.zeros(self.size), np.broadcast_to(weights, self.size)

    def remainder(self, weights: Array) -> Array:
        """Return 0, since x is a statistic."""
        return np.zeros(self.size)

    def covariance(self, one: Array, two: Array) -> float:
        """Return Σ one · two · variance."""
        return float((one * two * self.variance()).sum())

    def variance(self) -> Array:
        """Return α / ρ²."""
        return np.asarray(self.shape / self.rate**2)

    def explained(self) -> Array:
        """Return all of the variances, since x is a statistic."""
        return self.variance()

    def log_covariance(self, rows: slice) -> Array:
        """Return ψ′(α) on the diagonals."""
        return self.trigamma[rows, :, None] * np.eye(self.size[1])

    def added_totals(self, step: Step) -> Array:
        """Return the step of the shape, and that of the rate through E log x."""
        return step[0] + step[1] / (self.rate * self.trigamma)

    def step_of(self, log_change: Array, given: Step) -> Step:
        """Return the step of the shape that makes this change, with the given step of the rate."""
        return (log_change - given[1] / self.rate) / self.trigamma, given[1]

    def row_variance(self, response: Array) -> Array:
        """Return the response of each E x to its own weight 1."""
        of_log = np.diagonal(response, axis1=1, axis2=2) / (self.rate * self.trigamma)
        shape = (of_log - 1 / self.rate) / self.trigamma
        return np.asarray(shape / self.rate + self.variance())


class DirichletFisher(Fisher):
    """Fisher information of independent Dirichlet rows; a row of one entry has none."""

    parts = 1

    def __init__(self, q: Dirichlet) -> None:
        self.q = q
        self.concentration = np.asarray(q.concentration, np.float64)
        self.size = self.concentration.shape
        self.total = self.concentration.sum(axis=1, keepdims=True)
        self.mean = self.concentration / self.total
        self.trigamma, self.of_total = polygamma(1, self.concentration), polygamma(1, self.total)
        # F⁻¹ = D⁻¹ + shared · (D⁻¹ 1)(D⁻¹ 1)ᵀ with D the diagonal of trigamma; F is 0 for a single entry.
        self.single = self.size[1] == 1
        left = 1 - self.of_total * (1 / self.trigamma).sum(axis=1, keepdims=True)
        self.shared = np.zeros_like(left) if self.single else self.of_total / left

    def product(self, step: Step) -> Step:
        """Return the change of E log x."""
        (own,) = step
        return (self.trigamma * own - self.of_total * own.sum(axis=1, keepdims=True),)

    def _solve(self, change: Array) -> Array:
        """Return F⁻¹ times a change; 0 for a single entry."""
        if self.single:
            return np.zeros(self.size)
        own = change / self.trigamma
        return np.asarray(own + self.shared * own.sum(axis=1, keepdims=True) / self.trigamma)

    def towards(self, other: Dirichlet) -> Step:
        """Return the differences of the concentrations."""
        return (np.asarray(other.concentration) - self.concentration,)

    def moved(self, step: Step) -> Dirichlet:
        """Return the Dirichlet with other concentrations."""
        return type(self.q)(self.concentration * np.exp(step[0] / self.concentration))

    def draw(self, rng: np.random.Generator) -> Step:
        """Return the sum of independent draws for both terms of the inverse."""
        if self.single:
            return (np.zeros(self.size),)
        own, common = rng.standard_normal(self.size), rng.standard_normal((self.size[0], 1))
        return (own / np.sqrt(self.trigamma) + np.sqrt(self.shared) * common / self.trigamma,)

    def mean_change(self, step: Step) -> Array:
        """Return the change of the proportions' expectations."""
        return np.asarray((step[0] - self.mean * step[0].sum(axis=1, keepdims=True)) / self.total)

    def _slope_of_mean(self, weights: Array) -> Array:
        """Return the derivatives of Σ weights · E[x] by the concentrations."""
        return np.asarray((weights - (weights * self.mean).sum(axis=1, keepdims=True)) / self.total)

    def slope(self, weights: Array) -> Step:
        """Return F⁻¹ times the derivatives."""
        return (self._solve(self._slope_of_mean(np.broadcast_to(weights, self.size))),)

    def remainder(self, weights: Array) -> Array:
        """Return the error of projecting the proportions on their logarithms."""
        weights = np.broadcast_to(weights, self.size)
        under_q = self.mean * (weights - (weights * self.mean).sum(axis=1, keepdims=True)) / (self.total + 1)
        return np.asarray(under_q - self.mean_change(self.slope(weights)))

    def covariance(self, one: Array, two: Array) -> float:
        """Return the sum over rows of the covariances."""
        means = [(each * self.mean).sum(axis=1, keepdims=True) for each in (one, two)]
        within = (one * two * self.mean).sum(axis=1, keepdims=True) - means[0] * means[1]
        return float((within / (self.total + 1)).sum())

    def variance(self) -> Array:
        """Return E(1 − E) / (Σν + 1)."""
        return np.asarray(self.mean * (1 - self.mean) / (self.total + 1))

    def explained(self) -> Array:
        """Return GᵀF⁻¹G for G = (δ_jl − E_j) / Σν of every entry j."""
        own = 1 / self.trigamma
        whole = own.sum(axis=1, keepdims=True)
        squares = own * (1 - 2 * self.mean) + self.mean**2 * whole
        if self.single:
            return np.zeros(self.size)
        return np.asarray((squares + self.shared * (own - self.mean * whole) ** 2) / self.total**2)

    def log_covariance(self, rows: slice) -> Array:
        """Return ψ′(ν) on the diagonals, less ψ′(Σν)."""
        return self.trigamma[rows, :, None] * np.eye(self.size[1]) - self.of_total[rows, :, None]

    def added_totals(self, step: Step) -> Array:
        """Return the step itself."""
        return step[0]

    def step_of(self, log_change: Array, given: Step) -> Step:
        """Return the step that makes this change."""
        return (self._solve(log_change),)

    def row_variance(self, response: Array) -> Array:
        """Return the variance under q, with F in the space of the logarithms replaced by the response."""
        out = self.variance() - self.explained()
        for k in range(self.size[1]):
            weights = np.zeros(self.size)
            weights[:, k] = 1
            (slope,) = self.slope(weights)
            out[:, k] += np.einsum("ik,ikl,il->i", slope, response, slope)
        return out


def fisher_of(q: Any) -> Fisher:
    """Return the Fisher information of a mean field, or that of its proportions if it has a scale."""
    if isinstance(q, ScaledDirichlet):
        q = q.proportions
    return GammaFisher(q) if isinstance(q, Gamma) else DirichletFisher(q)


class Unequal:
    """Rows of a side on the simplex whose exposures differ, at the optimum.

    Parameters
    ----------
    nu : ndarray (rows, entries)
        Concentrations.
    exposure : ndarray (rows, entries)
    totals : ndarray (rows, 1), optional
        Totals N, where exposures follow from them.
    """

    def __init__(self, nu: Array, exposure: Array, totals: Array | None = None) -> None:
        self.nu, self.exposure = np.asarray(nu, np.float64), np.asarray(exposure, np.float64)
        self.total = self.nu.sum(axis=1, keepdims=True)
        self.mean = self.nu / self.total
        self.off = self.exposure - (self.exposure * self.mean).sum(axis=1, keepdims=True)
        self.pull = solved(self.nu, self.off / self.total)
        self.per_count = (
            None if totals is None else np.divide(1.0, totals, out=np.zeros(totals.shape), where=totals > 0)
        )

    def own(self, step: Array) -> Array:
        """Return what a step of the concentrations changes, but for −F and the exposures."""
        along, bent = step.sum(axis=1, keepdims=True), polygamma(2, self.total) * self.pull.sum(axis=1, keepdims=True)
        tilted = (self.off * step).sum(axis=1, keepdims=True)
        found = polygamma(2, self.nu) * step * self.pull - bent * along
        found += (self.off * along + tilted) / self.total**2
        if self.per_count is not None:
            found += self.off * self.per_count * tilted / self.total**2
        return np.asarray(found)

    def of_log(self, rows: slice) -> Array:
        """Return the symmetric matrices F⁻¹ (…) F⁻¹ of what a change of E log x of some rows changes, (rows, K, K)."""
        part = Unequal(self.nu[rows], self.exposure[rows])
        part.per_count = None if self.per_count is None else self.per_count[rows]
        units = np.eye(self.nu.shape[1])
        columns = [solved(part.nu, part.own(solved(part.nu, np.tile(unit, (len(part.nu), 1))))) for unit in units]
        return np.stack(columns, axis=2)

    def exposed(self, change: Array) -> Array:
        """Return the step −F⁻¹ dh for a change of the exposures; given totals, for the one that g times it is."""
        at_mean = (change * self.mean).sum(axis=1, keepdims=True)
        tilt = change - at_mean
        if self.per_count is not None:
            tilt = tilt - self.off * self.per_count * at_mean
        return -solved(self.nu, tilt / self.total)


class Unexposed:
    """Sides on the simplex beside missing entries, and how changes of means change their exposures.

    Attributes
    ----------
    loadings, components : Unequal or None
        Sides whose exposures differ; of components, those that are not known.
    """

    def __init__(self, problem: Problem, state: State, free: Array) -> None:
        self.problem = problem
        given = problem.loadings_prior.support == "simplex" and differs(problem, "loadings")
        self.loadings = self.components = None
        if given and state.loadings.geometric.shape[1] > 1:
            q: Any = state.loadings.conditional
            exposure = exposure_of(problem, state, "loadings")
            self.loadings = Unequal(q.concentration, exposure, problem.counts.row_totals[:, None])
        if differs(problem, "components") and len(free) and state.components.geometric.shape[1] > 1:
            q = state.components.conditional
            if q is not None and not problem.fixed_components:
                exposure = exposure_of(problem, state, "components")
                self.components = Unequal(q.free_prior.concentration, exposure[free])
        self.means = state.loadings.matrix
        if given:
            self.per_share = weights(problem, state)[0].sum(axis=1, keepdims=True)  # g, as shares sum to 1
            self.observed = exposure_of_loadings(problem, state.components) / problem.counts.row_factor
            self.per_total = _inverse(problem.counts.row_totals[:, None])

    def of_loadings(self, changes: Array) -> Array:
        """Return the changes of the exposures of loadings, (n, K), for changes of the means of components (K, m).

        Given totals these are g dO.
        """
        counts = self.problem.counts
        whole = counts.row_factor * (counts.feature_factor * changes).sum(axis=1)
        found = whole - unexposed_of_loadings(self.problem, changes)
        return found * (self.per_share / counts.row_factor) if hasattr(self, "per_share") else found

    def of_components(self, changes: Array, of_others: Array | None) -> Array:
        """Return the changes of the exposures of components, (K, m), for changes of the means of loadings (n, K).

        Given totals, g changes with both sides; `of_others` is what `of_loadings` returns for the other one.
        """
        counts = self.problem.counts
        if hasattr(self, "per_share"):
            moved = self.per_share * self.observed * changes + (0.0 if of_others is None else self.means * of_others)
            relative = moved.sum(axis=1, keepdims=True) * self.per_total  # −dg / g
            changes = self.per_share * (changes - self.means * relative) / counts.row_factor  # which cancels
        sums = (counts.row_factor * changes).sum(axis=0)[:, None] * np.broadcast_to(
            counts.feature_factor, (changes.shape[1], counts.shape[1])
        )
        return np.asarray(sums - unexposed_of_components(self.problem, changes))


def unexposed_of_loadings(problem: Problem, changes: Array) -> Array:
    """Return r_i Σ c_j of changes (K, m) over the missing entries of each row, (n, K); 0 without missing entries."""
    counts, mask = problem.counts, problem.counts.mask
    if mask is None:
        return np.zeros(1)
    return np.asarray(counts.row_factor * mask.sums_by_row((counts.feature_factor * changes).T))


def unexposed_of_components(problem: Problem, changes: Array) -> Array:
    """Return c_j Σ r_i of changes (n, K) over the rows in which each feature is missing, (K, m); 0 without any."""
    counts, mask = problem.counts, problem.counts.mask
    if mask is None:
        return np.zeros(1)
    return np.asarray(counts.feature_factor * mask.sums_by_feature(counts.row_factor * changes).T)


def _inverse(totals: Array) -> Array:
    return np.divide(1.0, totals, out=np.zeros(totals.shape), where=totals > 0)


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
