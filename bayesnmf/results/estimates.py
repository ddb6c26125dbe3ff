"""The estimate of a fit: a point, a mean field, or draws, with one interface for all three.

Rows or features are selected before drawing, so that a small selection is cheap: rows of q are independent, and the sum
of all other features of a Dirichlet is drawn as one entry.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np

from bayesnmf.priors.values import separate_scale
from bayesnmf.results.batches import drawn_factors
from bayesnmf.text import outline
from bayesnmf.types import Array

Kind = Literal["point", "mean field", "draws"]
TakeRows = Callable[[slice], tuple[Array, Array | None]]
Drawn = tuple[Array, Array | None, Array]  # loadings (n, K), scale (n,) or None, components (K, m)
PointSummaries = Any  # what has loadings (n, K), scale (n,) or None, components (K, m), and factors of batches or None


class Estimate(ABC):
    """Interface of a point, a mean field and draws. Methods take the fit for its point summaries."""

    kind: ClassVar[Kind]
    __repr__ = outline

    @property
    @abstractmethod
    def held(self) -> tuple[int, int] | None:
        """Numbers of chains and of draws in each; None if any number can be drawn."""

    @abstractmethod
    def take(self, fit: PointSummaries, number: tuple[int, int], seed: int, features: Array | None) -> Draws:
        """Return draws (chains, draws, …) of all rows and of the features at some positions; None means all."""

    @abstractmethod
    def iterate(self, fit: PointSummaries, draws: int, seed: int) -> Iterator[Drawn]:
        """Yield up to `draws` draws one at a time, evenly spaced among all chains."""

    def iterate_by_rows(self, fit: PointSummaries, draws: int, seed: int) -> Iterator[tuple[TakeRows, Array]]:
        """Yield the same draws, with a function that returns loadings and scale of a slice of rows."""
        for loadings, scale, components in self.iterate(fit, draws, seed):
            yield partial(_rows_of, loadings, scale), components

    @abstractmethod
    def rows(self, rows: Array, size: tuple[int, int]) -> Self:
        """Return the estimate of some rows of loadings of the given size (n, K)."""

    @abstractmethod
    def reordered(self, order: Array) -> Self:
        """Return the estimate with component `order[k]` as component k."""

    @abstractmethod
    def sd(self, fit: PointSummaries, side: str) -> Array | None:
        """Return standard deviations of "loadings", "components" or "scale"; None if there is no posterior."""

    @abstractmethod
    def quantiles(self, side: str, at: tuple[Array, Array], levels: Array) -> Array | None:
        """Return quantiles (levels, …) of the chosen entries of a side; None if there is no posterior."""

    def length(self, most: int) -> int:
        """Return the number of draws that `iterate` yields if asked for `most`."""
        return most if self.held is None else min(most, self.held[0] * self.held[1])


def take_features(values: Any, features: Array | None) -> Any:
    """Return the values of the features at some positions on the last axis; None means all."""
    return values if features is None or values is None else values[..., features]


def _rows_of(loadings: Array, scale: Array | None, rows: slice) -> tuple[Array, Array | None]:
    return loadings[rows], None if scale is None else scale[rows]


def _drawn_rows(q: Any, rng: np.random.Generator, rows: slice) -> tuple[Array, Array | None]:
    return separate_scale(q.rows(rows).draw_rows(deepcopy(rng), rows.start))


def evenly_spaced(number: int, available: int) -> Array:
    """Return positions of `number` of `available` draws, evenly spaced."""
    return np.arange(number) * available // number


@dataclass(frozen=True, eq=False)
class Point(Estimate):
    """Estimate without a posterior, described by the point summaries of the fit alone."""

    kind = "point"
    held = (1, 1)

    def take(self, fit: PointSummaries, number: tuple[int, int], seed: int, features: Array | None) -> Draws:
        """Return the point as one draw."""
        scale = None if fit.scale is None else fit.scale[None, None]
        components = take_features(fit.components[None, None], features)
        return Draws(fit.loadings[None, None], components, scale, drawn_factors(fit, (1, 1), seed, features))

    def iterate(self, fit: PointSummaries, draws: int, seed: int) -> Iterator[Drawn]:
        """Yield the point."""
        yield fit.loadings, fit.scale, fit.components

    def rows(self, rows: Array, size: tuple[int, int]) -> Point:
        """Return itself."""
        return self

    def reordered(self, order: Array) -> Point:
        """Return itself."""
        return self

    def sd(self, fit: PointSummaries, side: str) -> None:
        """Return None."""
        return

    def quantiles(self, side: str, at: tuple[Array, Array], levels: Array) -> None:
        """Return None."""
        return


@dataclass(frozen=True, eq=False, repr=False)
class VariationalPosterior(Estimate):
    """Closed-form mean-field posterior q, with independent rows of loadings and components.

    Attributes
    ----------
    loadings : Distribution
        q of the loadings, of the family of their prior, with parameters (n, K); a ScaledDirichlet also has the
        parameters of the scale, (n, 1).
    components : Distribution or None
        q of the components, with parameters (K, m); None if they are parameters without a posterior.
    """

    loadings: Any
    components: Any

    kind = "mean field"
    held = None

    def take(self, fit: PointSummaries, number: tuple[int, int], seed: int, features: Array | None) -> Draws:
        """Return independent draws from q."""
        rng = np.random.default_rng(seed)
        loadings, scale = separate_scale(self.loadings.draw(rng, number))
        more = scale, drawn_factors(fit, number, seed, features)
        if self.components is None:
            return Draws(loadings, np.tile(take_features(fit.components, features), (*number, 1, 1)), *more)
        q = self.components.broadcast(fit.components.shape)
        return Draws(
            loadings, q.draw(rng, number) if features is None else q.draw_features(rng, number, features), *more
        )

    def iterate(self, fit: PointSummaries, draws: int, seed: int) -> Iterator[Drawn]:
        """Yield independent draws from q."""
        rng = np.random.default_rng(seed)
        for _ in range(draws):
            loadings, scale = separate_scale(self.loadings.draw(rng))
            yield loadings, scale, fit.components if self.components is None else self.components.draw(rng)

    def iterate_by_rows(self, fit: PointSummaries, draws: int, seed: int) -> Iterator[tuple[TakeRows, Array]]:
        """Yield the same draws; those of rows are drawn where they are asked for, so that all are never in memory."""
        rng = np.random.default_rng(seed)
        for _ in range(draws):
            take = partial(_drawn_rows, self.loadings, deepcopy(rng))
            self.loadings.rows(slice(0, 1)).draw(rng)  # takes from `rng` what all rows take
            yield take, fit.components if self.components is None else self.components.draw(rng)

    def rows(self, rows: Array, size: tuple[int, int]) -> VariationalPosterior:
        """Return the q of the chosen rows."""
        return VariationalPosterior(self.loadings.broadcast(size).mapped(lambda value: value[rows]), self.components)

    def reordered(self, order: Array) -> VariationalPosterior:
        """Return the q with its components reordered."""
        components = None if self.components is None else self.components.reordered(order, -2)
        return VariationalPosterior(self.loadings.reordered(order, -1), components)

    def sd(self, fit: PointSummaries, side: str) -> Array | None:
        """Return the standard deviations of q."""
        q = self.components if side == "components" else self.loadings
        if q is None:
            return None
        shares, scale = separate_scale(q.variance())
        variance: Any = scale if side == "scale" else shares
        return np.sqrt(np.broadcast_to(variance, getattr(fit, side).shape))

    def quantiles(self, side: str, at: tuple[Array, Array], levels: Array) -> Array | None:
        """Return the quantiles of q, in closed form."""
        q = getattr(self, side)
        return None if q is None else q.quantiles(at, levels)


@dataclass(frozen=True, eq=False, repr=False)
class Draws(Estimate):
    """Posterior draws, matched to one order of the components.

    Attributes
    ----------
    loadings : ndarray (chains, draws, n, K)
        Draws of the loadings; of the proportions if there is a scale.
    components : ndarray (chains, draws, K, m)
        Draws of the components.
    scale : ndarray (chains, draws, n) or None
        Draws of the scale under dirichlet_gamma, else None.
    factors : ndarray (chains, draws, B, m) or None
        Draws of the factors of batches, if there are any.
    """

    loadings: Array
    components: Array
    scale: Array | None = None
    factors: Array | None = None

    kind = "draws"

    @property
    def chains(self) -> int:
        """Number of chains."""
        return self.loadings.shape[0]

    @property
    def draws(self) -> int:
        """Number of draws in each chain."""
        return self.loadings.shape[1]

    @property
    def held(self) -> tuple[int, int]:
        """Numbers of chains and of draws in each."""
        return self.chains, self.draws

    def take(self, fit: PointSummaries, number: tuple[int, int], seed: int, features: Array | None) -> Draws:
        """Return evenly thinned draws of the first chains."""
        at = np.s_[: number[0], evenly_spaced(number[1], self.draws)]
        scale, factors = (None if each is None else each[at] for each in (self.scale, self.factors))
        of_features = take_features(self.components[at], features), scale, take_features(factors, features)
        return Draws(self.loadings[at], *of_features)

    def places(self, draws: int) -> list[tuple[int, int]]:
        """Return the chains and places of draws that are evenly spaced among all chains."""
        found = np.unique(np.linspace(0, (total := self.chains * self.draws) - 1, min(draws, total)).astype(int))
        return [divmod(int(index), self.draws) for index in found]

    def iterate(self, fit: PointSummaries, draws: int, seed: int) -> Iterator[Drawn]:
        """Yield draws that are evenly spaced among all chains."""
        for at in self.places(draws):
            yield self.loadings[at], None if self.scale is None else self.scale[at], self.components[at]

    def rows(self, rows: Array, size: tuple[int, int]) -> Draws:
        """Return the draws of some rows."""
        scale = None if self.scale is None else self.scale[:, :, rows]
        return replace(self, loadings=self.loadings[:, :, rows], scale=scale)

    def reordered(self, order: Array) -> Draws:
        """Return the draws with their components reordered."""
        return replace(self, loadings=self.loadings[..., order], components=self.components[..., order, :])

    def sd(self, fit: PointSummaries, side: str) -> Array:
        """Return standard deviations of all draws."""
        values = getattr(self, side)
        return np.asarray(values.std(axis=(0, 1), ddof=int(self.chains * self.draws > 1)))

    def quantiles(self, side: str, at: tuple[Array, Array], levels: Array) -> Array:
        """Return quantiles of all draws."""
        return np.quantile(getattr(self, side)[(..., *at)].astype(np.float64), levels, axis=(0, 1))


Variation = Literal["counts", "rows"]  # of replicates


@dataclass(frozen=True, eq=False)
class Intervals:
    """Draws beside a mean field or a point, from which intervals and probabilities are read (`Fit.with_intervals`).

    Attributes
    ----------
    kind : {"sampled", "linear response", "bootstrap"}
        A short chain of marginal Gibbs sampling from the fit, its linear response, or estimates of replicated counts.
    draws : Draws
        The draws, (1, draws, …), in the order of the components of the fit, in float32.
    r_hat : float
        Largest R-hat of the halves of the chain, of all components and the loadings of up to 50 rows; 1 without one.
    share_above : float
        Share of these entries above 1.2.
    unsettled : int
        Number of replicates of a bootstrap whose fit has not converged.
    variation : {"counts", "rows"}
        Whether replicates have the same rows with other counts, or other rows.
    """

    kind: Literal["sampled", "linear response", "bootstrap"]
    draws: Draws
    r_hat: float = 1.0
    share_above: float = 0.0
    unsettled: int = 0
    variation: Variation = "counts"

    def rows(self, rows: Array, size: tuple[int, int]) -> Intervals:
        """Return the draws of some rows."""
        return replace(self, draws=self.draws.rows(rows, size))

    def reordered(self, order: Array) -> Intervals:
        """Return the draws with their components reordered."""
        return replace(self, draws=self.draws.reordered(order))
