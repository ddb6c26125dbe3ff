"""Solve the equations of linear response: conjugate gradients, or an inverse where they are few; and draw from them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesnmf.inference.response.coupled import Coupled

Array = NDArray[np.float64]
TOL = 1e-6  # of the length of the residual; variances are then accurate to its square
MOST_PRODUCTS = 2000
FEW = 1500  # equations: as many products, and an inverse in memory
LOST = 1e-13  # of the largest curvature: directions flatter than this have no solution
FELT = 1e-8  # of the right side: what lies along a flat direction by rounding alone


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
