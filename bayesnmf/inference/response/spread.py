"""Covariances of linear response: of chosen sums exactly, and variances of all entries from draws.

Their equations are solved by conjugate gradients, or by an inverse where they are few; draws come from Lanczos' method.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import cached_property, partial
from threading import Event
from typing import Any, NamedTuple

import numba
import numpy as np

from bayesnmf.inference.response.coupled import Coupled, Tilt
from bayesnmf.inference.side_by_side import side_by_side
from bayesnmf.types import Array

TOL = 1e-6  # of the length of the residual; variances are then accurate to its square
MOST_PRODUCTS = 2000
FEW = 1500  # equations: as many products, and an inverse in memory
LOST = 1e-13  # of the largest curvature: directions flatter than this have no solution
FELT = 1e-8  # of the right side: what lies along a flat direction by rounding alone
DRAWN_TO = 1e-3  # tolerance of a draw, far below its Monte Carlo error
LEAST_DRAWS, MOST_DRAWS = 16, 256
PRODUCTS = 50  # of a solution by conjugate gradients, roughly: an inverse pays for more than this share of solutions


class Solved(NamedTuple):
    """Solution x of (I − J) x = b.

    `strict` is False if the search met a direction in which the bound does not curve downwards; `finished` if it ended
    within its number of products. Otherwise x is where the search stopped. `products` counts products with I − J.
    """

    x: Array
    strict: bool
    finished: bool
    products: int


def solve(coupled: Coupled, b: Array, tol: float = TOL, most: int = MOST_PRODUCTS) -> Solved:
    """Solve (I − J) x = b by conjugate gradients with the Fisher information as inner product."""
    x, left = np.zeros_like(b), b.copy()
    squares = first = float(left @ coupled.product_of_fisher(left))
    direction = left.copy()
    for done in range(most):
        if squares <= tol**2 * first or squares == 0:
            return Solved(x, True, True, done)
        curved = coupled.product(direction)
        curvature = float(direction @ coupled.product_of_fisher(curved))
        if not curvature > 0:
            return Solved(x, False, True, done)
        length = squares / curvature
        x += length * direction
        left -= length * curved
        before, squares = squares, float(left @ coupled.product_of_fisher(left))
        direction = left + squares / before * direction
    return Solved(x, True, False, most)


class Inverse:
    """The inverse of F (I − J), dense: the covariance of what the components and the rates respond with.

    Attributes
    ----------
    strict : bool
        Whether the bound curves downwards in every direction.
    flat : ndarray
        Directions, one a row, in which it does not curve at all; solutions along them are NaN.
    """

    def __init__(self, coupled: Coupled) -> None:
        length = coupled.length
        curved = np.empty((length, length))
        for row, unit in zip(curved, np.eye(length), strict=True):
            row[:] = coupled.product_of_fisher(coupled.product(unit))
        # Natural parameters have different units, so each is measured by its own curvature.
        own = np.abs(np.diag(curved))
        unit = 1 / np.sqrt(np.where(own > 0, own, 1.0))
        scaled = unit[:, None] * curved * unit
        values, vectors = np.linalg.eigh((scaled + scaled.T) / 2)
        flat = np.abs(values) <= LOST * np.abs(values).max(initial=0.0)
        self.strict = bool(np.all(values > 0) and not flat.any())
        self.vectors, self.values = (unit[:, None] * vectors)[:, ~flat], values[~flat]
        self.flat = (unit[:, None] * vectors)[:, flat].T
        self.coupled = coupled

    def solve(self, b: Array) -> Array:
        """Return x with (I − J) x = b."""
        changed = self.coupled.product_of_fisher(b)
        if np.abs(self.flat @ changed).max(initial=0.0) > FELT * np.abs(changed).max(initial=0.0):
            return np.full_like(b, np.nan)
        along = self.vectors.T @ changed
        return np.asarray(self.vectors @ (along / self.values))

    def roots(self) -> tuple[Array, Array]:
        """Return vectors, one a row, and signs: the signed sum of their squares is the covariance."""
        return (self.vectors / np.sqrt(np.abs(self.values))).T, np.sign(self.values)


def draw(coupled: Coupled, rng: np.random.Generator, tol: float, most: int = 300) -> tuple[Array, Array, bool]:
    """Draw a vector whose covariance is the inverse of F (I − J), by Lanczos' method.

    With w a draw from the inverse of F, this is (I − J)^(−1/2) w. It is taken from the Krylov space that I − J and w
    span, which is made larger until the draw changes by at most `tol` of its length.

    Returns
    -------
    drawn, w : ndarray
        The draw, and the draw w that it was made from.
    strict : bool
        Whether no direction was met in which the bound does not curve downwards.
    """
    w = coupled.draw(rng)
    length = np.sqrt(w @ coupled.product_of_fisher(w))
    basis, before = [w / length], np.zeros(0)
    diagonal: list[float] = []
    beside: list[float] = []
    for done in range(min(most, coupled.length)):
        after = coupled.product(basis[-1])
        fisher = coupled.product_of_fisher(after)
        diagonal.append(float(basis[-1] @ fisher))
        after -= diagonal[-1] * basis[-1] + (beside[-1] * basis[-2] if beside else 0.0)
        squares = float(after @ coupled.product_of_fisher(after))
        beside.append(max(squares, 0.0) ** 0.5)
        if done % 5 == 4 or beside[-1] < 1e-12 or done + 1 == min(most, coupled.length):
            found, strict = _first_column(diagonal, beside[:-1])
            if not strict:
                return np.full_like(w, np.nan), w, False
            change = found - np.concatenate([before, np.zeros(len(found) - len(before))])
            before = found
            if beside[-1] < 1e-12 or np.linalg.norm(change) <= tol * np.linalg.norm(found):
                break
        basis.append(after / beside[-1])
    drawn = sum(weight * vector for weight, vector in zip(before, basis, strict=False))
    return np.asarray(length * drawn), w, True


def _first_column(diagonal: list[float], beside: list[float]) -> tuple[Array, bool]:
    """Return the first column of the inverse square root of a tridiagonal matrix, and whether it is positive."""
    from scipy.linalg import eigh_tridiagonal

    values, vectors = eigh_tridiagonal(diagonal, beside)
    if values.min() <= 0:
        return np.zeros(len(values)), False
    return np.asarray(vectors @ (vectors[0] / np.sqrt(values))), True


class Sides(NamedTuple):
    """Numbers for all loadings (n, K) and all components (K, m)."""

    loadings: Array
    components: Array


class WeightedEntries(NamedTuple):
    """Entries of a matrix (n, K) or (K, m) by their rows and columns, and their weights; all of one length."""

    rows: Sequence[int] | Array = ()
    columns: Sequence[int] | Array = ()
    weights: Sequence[float] | Array = ()


class Weights(NamedTuple):
    """A weighted sum of entries of the loadings (n, K) and of the components (K, m)."""

    loadings: WeightedEntries = WeightedEntries()
    components: WeightedEntries = WeightedEntries()

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
