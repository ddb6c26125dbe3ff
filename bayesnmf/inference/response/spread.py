"""Covariances of linear response: of chosen sums exactly, and variances of all entries from draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import cached_property, partial
from threading import Event
from typing import Any, NamedTuple

import numba
import numpy as np

from bayesnmf.inference.response.coupled import Coupled, Tilt
from bayesnmf.inference.response.solving import FELT, FEW, Inverse, draw, solve
from bayesnmf.inference.side_by_side import side_by_side
from bayesnmf.types import Array

DRAWN_TO = 1e-3  # tolerance of a draw, far below its Monte Carlo error
LEAST_DRAWS, MOST_DRAWS = 16, 256
PRODUCTS = 50  # of a solution by conjugate gradients, roughly: an inverse pays for more than this share of solutions


class Sides(NamedTuple):
    """Numbers for all loadings (n, K) and all components (K, m)."""

    loadings: Array
    components: Array


class Weights(NamedTuple):
    """A weighted sum of entries: places and weights among the loadings, and among the components.

    Each is a triple of arrays: two places in the matrix (n, K) or (K, m), and the weights there.
    """

    loadings: tuple[Any, Any, Any] = ((), (), ())
    components: tuple[Any, Any, Any] = ((), (), ())

    def dense(self, shape: tuple[int, int], rank: int) -> Sides:
        """Return the weights as matrices, for counts of this shape."""
        found = Sides(np.zeros((shape[0], rank)), np.zeros((rank, shape[1])))
        for matrix, (one, two, weights) in zip(found, self, strict=True):
            np.add.at(matrix, (np.asarray(one, int), np.asarray(two, int)), weights)
        return found

    def of(self, values: Sides) -> float:
        """Return the sum with these weights of given values."""
        pairs = zip(values, self.arrays(), strict=True)
        return float(sum((each[one, two] * weights).sum() for each, (one, two, weights) in pairs))

    def arrays(self) -> list[tuple[Array, Array, Array]]:
        """Return places and weights as arrays."""
        return [(np.asarray(one, int), np.asarray(two, int), np.asarray(w, float)) for one, two, w in self]


class Spread(NamedTuple):
    """Variances of all loadings (n, K) and components (K, m), and their Monte Carlo standard errors; 0 if exact."""

    loadings: Array
    components: Array
    loadings_error: Array
    components_error: Array
    draws: int


class Responses:
    """What a linearised mean field responds with.

    Attributes
    ----------
    strict : bool
        Whether no direction was met in which the bound does not curve downwards.
    """

    def __init__(self, coupled: Coupled, threads: int | None = None) -> None:
        self.coupled, self.strict = coupled, True
        self.threads = threads or numba.get_num_threads()

    @cached_property
    def inverse(self) -> Inverse:
        """The dense inverse."""
        return Inverse(self.coupled)

    def covariances[T](self, sums: Sequence[Weights], keep: Callable[[Weights, Sides], T]) -> list[T]:
        """Return what `keep` takes from the covariances of each sum with all entries; NaN without a solution."""
        if 0 < self.coupled.length <= FEW and len(sums) * PRODUCTS > self.coupled.length:
            self.strict &= self.inverse.strict
            return [keep(each, self._covariance(self.coupled, each, self.inverse.solve)) for each in sums]

        def solved(weights: Weights, coupled: Coupled) -> T:
            return keep(weights, self._covariance(coupled, weights, partial(self._by_gradients, coupled)))

        return self._side_by_side([partial(solved, each) for each in sums])

    def variances(self, sums: Sequence[Weights]) -> Array:
        """Return the variance of every sum; NaN where there is no solution, or where it is negative."""
        found = np.array(self.covariances(sums, lambda own, sides: own.of(sides)))
        self.strict &= bool(np.all(found >= 0))
        return np.where(found >= 0, found, np.nan)

    def variances_under_q(self, sums: Sequence[Weights]) -> Array:
        """Return the variance of every sum without coupling."""
        coupled, found = self.coupled, []
        for each in sums:
            weights = each.dense(coupled.problem.counts.shape, coupled.rank)
            variance = coupled.loadings.covariance(weights.loadings, weights.loadings)
            if coupled.components is not None:
                free = weights.components[coupled.free]
                variance += coupled.components.covariance(free, free)
            found.append(variance)
        return np.array(found)

    def _by_gradients(self, coupled: Coupled, right_side: Array) -> Array:
        found = solve(coupled, right_side)
        self.strict &= found.strict
        return found.x if found.strict and found.finished else np.full_like(found.x, np.nan)

    def _covariance(self, coupled: Coupled, sums: Weights, solved: Callable[[Array], Array]) -> Sides:
        weights = sums.dense(coupled.problem.counts.shape, coupled.rank)
        of, rows = coupled.components, weights.loadings
        free = weights.components[coupled.free]
        tilt = Tilt(coupled.loadings.slope(rows), () if of is None else of.slope(free))
        step = coupled.whole(solved(coupled.right_side(tilt)), tilt)
        loadings = coupled.loadings.mean_change(step.loadings) + coupled.loadings.remainder(rows)
        components = np.zeros(weights.components.shape)
        if of is not None:
            components[coupled.free] = of.mean_change(step.components) + of.remainder(free)
        return Sides(loadings, components)

    def _side_by_side(self, tasks: Sequence[Any]) -> list[Any]:
        """Run tasks that take the sides, each on a thread of its own."""
        if len(tasks) == 1:
            return [tasks[0](self.coupled)]
        own = copy(self.coupled)
        own.threads, own.stop = 1, Event()
        return side_by_side([partial(task, own) for task in tasks], self.threads, own.stop)

    def spread(self, side: str, error: float, seed: int, progress: Any = None) -> Spread:
        """Return variances of all entries: exact where the equations are few, otherwise from draws.

        Draws are added until the Monte Carlo error of every standard deviation of a side is at most `error` of it, or
        up to 256.
        """
        coupled = self.coupled
        base = coupled.loadings.row_variance(coupled.rows)
        if not coupled.length:
            nothing = np.zeros((coupled.rank, coupled.problem.counts.shape[1]))
            return Spread(base, nothing, np.zeros_like(base), nothing, 0)
        if coupled.length <= FEW:
            found = self._exact_spread
            self.strict &= self.inverse.strict and bool(np.all(found.loadings >= 0) and np.all(found.components >= 0))
            return found
        sums, seeds = _Squares(self, base), np.random.SeedSequence(seed)
        while sums.number < MOST_DRAWS:
            batch = seeds.spawn(min(max(LEAST_DRAWS, sums.still_needed(side, error)), MOST_DRAWS - sums.number))
            for drawn, plain in self.drawn(batch):
                sums.add(drawn, 1.0, plain)
                if progress is not None:
                    progress(sums.number)
            if not sums.still_needed(side, error) or not self.strict:
                break
        return sums.estimated()

    def changes(self, vector: Array) -> Sides:
        """Return how the means of all entries change with a vector; known ones do not."""
        coupled = self.coupled
        tilt = coupled.whole(vector, Tilt(coupled.no_step(), ()))
        components = np.zeros((coupled.rank, coupled.problem.counts.shape[1]))
        if coupled.components is not None:
            components[coupled.free] = coupled.components.mean_change(tilt.components)
        return Sides(coupled.loadings.mean_change(tilt.loadings), components)

    @cached_property
    def _exact_spread(self) -> Spread:
        sums = _Squares(self, self.coupled.loadings.row_variance(self.coupled.rows))
        for root, sign in zip(*self.inverse.roots(), strict=True):
            sums.add(root, sign)
        return sums.exact(self.inverse.flat)

    def drawn(self, seeds: Sequence[np.random.SeedSequence]) -> Iterator[tuple[Array, Array]]:
        """Yield pairs of a draw and the draw without coupling that it was made from."""

        def one(seed: np.random.SeedSequence, coupled: Coupled) -> tuple[Array, Array]:
            drawn, plain, strict = draw(coupled, np.random.default_rng(seed), DRAWN_TO)
            self.strict &= strict
            return drawn, plain

        for first in range(0, len(seeds), self.threads):
            yield from self._side_by_side([partial(one, seed) for seed in seeds[first : first + self.threads]])


class _Squares:
    """Running sums of squares of what loadings and components do for vectors of components and rates."""

    def __init__(self, responses: Responses, base: Array) -> None:
        self.responses, self.coupled, self.base, self.number = responses, responses.coupled, base, 0
        m = self.coupled.problem.counts.shape[1]
        self.of_loadings = np.zeros_like(base)
        self.of_components = np.zeros((2, self.coupled.rank, m))  # sums, and sums of squares

    def add(self, vector: Array, sign: float, plain: Array | None = None) -> None:
        """Add the squares for a vector, with a sign; for components, less those for the vector without coupling."""
        coupled = self.coupled
        loadings, components = self.responses.changes(vector)
        self.number += 1
        self.of_loadings += sign * loadings**2
        squares = sign * components**2
        if plain is not None and coupled.components is not None:
            squares[coupled.free] -= coupled.components.mean_change(coupled.split(plain)[0]) ** 2
        self.of_components += squares, squares**2

    def exact(self, flat: Array) -> Spread:
        """Return the variances for vectors that make up the whole covariance; NaN for what moves along flat ones."""
        components = np.zeros(self.of_components[0].shape)
        if self.coupled.components is not None:
            of, free = self.coupled.components, self.coupled.free
            components[free] = of.variance() + self.of_components[0, free] - of.explained()
        found = self.base + self.of_loadings, components
        for vector in flat:
            for changes, variances in zip(self.responses.changes(vector), found, strict=True):
                variances[np.abs(changes) > FELT * np.abs(changes).max(initial=0.0)] = np.nan
        return Spread(*found, np.zeros_like(found[0]), np.zeros_like(found[1]), 0)

    def estimated(self) -> Spread:
        """Return the variances and their errors for draws; squares of normal draws have a known error."""
        number = self.number
        part = self.of_loadings / number
        components, error = np.zeros((2, *self.of_components[0].shape))
        if self.coupled.components is not None:
            free = self.coupled.free
            mean = self.of_components[0, free] / number
            components[free] = self.coupled.components.variance() + mean
            error[free] = np.sqrt(np.maximum(self.of_components[1, free] / number - mean**2, 0) / (number - 1))
        return Spread(self.base + part, components, np.sqrt(2 / number) * part, error, number)

    def still_needed(self, side: str, error: float) -> int:
        """Return how many more draws a side needs for this relative error of every standard deviation."""
        if not self.number:
            return 0
        found = self.estimated()
        variance, of_variance = getattr(found, side), getattr(found, f"{side}_error")
        with np.errstate(invalid="ignore", divide="ignore"):
            relative = np.nanmax(np.where(variance > 0, of_variance / (2 * variance), 0.0), initial=0.0)
        return max(int(np.ceil(self.number * (relative / error) ** 2)) - self.number, 0)
