"""The Fisher information of mean fields, in their natural parameters.

A step is a change of the natural parameters, and a change is one of the expectations of the sufficient statistics::

    Gamma(α, ρ)     natural parameters (α, −ρ)    statistics (log x, x)
    Dirichlet(ν)    natural parameters ν          statistics log x

The Fisher information F, the covariance of the statistics, turns a step into a change (mathematics.md section 10).
Steps and changes are tuples of arrays of the size of the factor, one for each natural parameter.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from scipy.special import polygamma

from bayesnmf.priors import Dirichlet, Gamma, ScaledDirichlet
from bayesnmf.types import Array

Step = tuple[Array, ...]


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
