"""Structure that a fit leaves in its residuals: do features differ from their means together?

Residuals are (x − λ) / sd, with variances a λ + b λ² that are fitted to their squares, whatever the noise of the fit;
large ones are cut at 4, and one count more where counts are few. Loadings and components that differ a little from the
best ones change the means by δθ β + θ δβ, and a fit takes up what of the noise has this form; so this is taken off
them, by weighted least squares.
Of the rest, the share of the sum of squares that lies in one direction, one pattern of rows times one of features, is
compared with the same share after signs of single residuals were drawn at random, which leaves their sizes but nothing
that they share (signflip parallel analysis; Hong, Sheng & Dobriban 2020). So sizes need be right only roughly. A
component that is missing is such a direction.

Of several matrices, each has variances and directions of its own, but what is taken off is taken off all together:
loadings that suit one and not the other would be free to move, were it taken off each alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.sparse import csr_array
from scipy.special import stdtr

from bayesnmf.data.labels import listed
from bayesnmf.data.mask import Mask
from bayesnmf.data.several import coordinates_of, without_weights
from bayesnmf.inference.status import BROKEN
from bayesnmf.results.record import FitRecord, kept_with_fit
from bayesnmf.text import p_value
from bayesnmf.types import Array

ENTRIES, FEATURES = 2**19, 512  # looked at, at most
SQUARES = 2**25  # rows times the square of the rank, at most
FLIPS, BLOCK, ROUNDS = 12, 8, 4
FAR, LOW, RIDGE = 4.0, 0.01, 1e-9
NONE = 1e-100  # a mean that is none: weights of smaller ones overflow
LEFT = 4  # rows and features beyond the rank that are needed
NAMED = 3  # features
LEVEL = 0.01  # p-value below which structure is told


@dataclass(frozen=True, eq=False)
class Structure:
    """What the residuals of a fit share.

    Attributes
    ----------
    ratio : float
        Largest share of their sum of squares in one direction, over its mean after signs were drawn.
    p_value : float
        Probability that independent residuals have a larger one, from a t distribution through the drawn signs.
    features : ndarray
        Positions of the features, those that differ most first.
    """

    ratio: float
    p_value: float
    features: Array


@kept_with_fit
def structures_of(fit: FitRecord) -> dict[str, Structure]:
    """Return what the residuals of each matrix of a fit share, by name, "" for one; of about 2¹⁹ entries at most.

    It is empty without counts and of new rows.
    """
    if fit.is_projected or not fit.counts.total:
        return {}
    n, m = fit.counts.shape
    rows = slice(None, None, max(n // _rows_of(min(m, FEATURES), fit.rank), 1))
    counts = fit.counts if rows.step == 1 and fit.counts.rows_held else fit.counts.rows(rows)
    loadings, components = fit.mean_factors
    matrix, components = without_weights(counts, components)
    factors = fit.noise.of_rows(rows).factors_of_expected(loadings[rows], components)
    several = coordinates_of(counts)
    return structures(matrix, *factors, np.full(m, "") if several is None else several[1], counts.mask)


def told_structure(fit: FitRecord) -> str:
    """Return which features vary together around the means of a fit, as a clause; "" if that may be chance.

    Of several matrices, it is told of those that have a p-value below the level over their number; not of means that
    have not converged.
    """
    if fit.status.reason in BROKEN or not fit.status.converged:
        return ""
    found = structures_of(fit)
    return ", and ".join(
        f"residuals{f' of {name!r}' if name else ''} share a pattern, {each.ratio:.2f} times as large as by chance "
        f"(p {'<' if each.p_value < 0.001 else '='} {p_value(each.p_value).removeprefix('< ')}), most of all in "
        f"{listed(list(map(str, fit.feature_names[each.features[:NAMED]])))}"
        for name, each in found.items()
        if each.p_value < LEVEL / len(found)
    )


def structure(matrix: csr_array, loadings: Array, components: Array, mask: Mask | None = None) -> Structure | None:
    """Return what the residuals of counts (n, m) around loadings (n, K) @ components (K, m) share.

    Of many rows they are those of evenly spaced ones, and of many features, of those with most counts. None where few
    rows or features are left.
    """
    return structures(matrix, loadings, components, np.full(matrix.shape[1], ""), mask).get("")


def structures(
    matrix: csr_array, loadings: Array, components: Array, names: Array, mask: Mask | None = None
) -> dict[str, Structure]:
    """Return what the residuals of each of several matrices, side by side, share, as `structure` does of one.

    Names are those of the matrix of each feature, (m,). What a fit takes up, it takes up of all matrices together, as
    loadings are those of all. A matrix of which few rows or features are left is not in the result.
    """
    n, rank = matrix.shape[0], len(components)
    totals = np.asarray(matrix.sum(axis=0)).ravel()
    of_matrices = {name: np.flatnonzero(names == name) for name in dict.fromkeys(names.tolist())}
    features = np.sort(
        np.concatenate([at[np.argsort(-totals[at], kind="stable")[:FEATURES]] for at in of_matrices.values()])
    )
    rows = slice(None, None, max(n // _rows_of(len(features), rank), 1))
    left, right = np.asarray(loadings[rows], np.float64), np.asarray(components[:, features], np.float64)
    means = left @ right
    residuals = matrix[rows][:, features].toarray() - means
    seen = means > NONE if mask is None else (means > NONE) & ~mask.hidden(rows)[:, features]
    weights, parts = np.zeros_like(means), {}
    for name in of_matrices:
        part = names[features] == name
        if len(features) >= rank + LEFT and np.count_nonzero(seen[:, part].any(axis=1)) >= rank + LEFT:
            parts[name], own = part, seen & part
            weights[own] = 1 / np.sqrt(_variances(residuals[own], means[own]))
    if not parts:
        return {}
    residuals = np.clip(residuals * weights, -FAR, FAR + weights)
    taken_up = TakenUp.of(weights, left, right)
    rng = np.random.default_rng(0)
    first = rng.normal(size=(len(features), BLOCK))
    rest = taken_up.off(residuals)
    flipped = (
        taken_up.off(np.where(rng.integers(0, 2, means.shape, bool), residuals, -residuals)) for _ in range(FLIPS)
    )
    chance = np.array([[_leading(each[:, part], first[part])[0] for part in parts.values()] for each in flipped])
    return {
        name: _beside(chance[:, number], *_leading(rest[:, part], first[part]), features[part])
        for number, (name, part) in enumerate(parts.items())
    }


def _beside(chance: Array, share: float, direction: Array, features: Array) -> Structure:
    """Return the structure of a share of the squares in one direction, beside the shares by chance."""
    mean, spread = np.mean(chance), np.std(chance, ddof=1) * np.sqrt(1 + 1 / FLIPS)
    p = float(stdtr(FLIPS - 1, (mean - share) / spread)) if spread > 0 else 1.0
    return Structure(float(share / mean) if mean > 0 else 1.0, p, features[np.argsort(-np.abs(direction))])


def _rows_of(features: int, rank: int) -> int:
    """Return the number of rows that are looked at of so many features, about."""
    return max(min(ENTRIES // features, SQUARES // rank**2), 1)


def _variances(residuals: Array, means: Array) -> Array:
    """Return variances a λ + b λ² that suit the squares of residuals of entries with means λ, but for those far out."""
    from scipy.optimize import nnls  # slow to import, and most fits do not need it

    both, found, limit = np.stack([means, means**2]), means, np.inf
    for _ in range(ROUNDS):
        squares = np.minimum(residuals**2, limit * found)
        weighted = both / (found + found**2)  # by the variances of squares, about
        scale = np.sqrt(np.maximum(np.sum(weighted * both, axis=1), np.finfo(np.float64).tiny))
        size, _ = nnls(weighted @ both.T / np.outer(scale, scale), weighted @ squares / scale)
        found, limit = np.maximum(size / scale @ both, LOW * means), FAR**2
    return found


class TakenUp(NamedTuple):
    """What a fit takes up of residuals (n, m): weights times (δθ β + θ δβ), for any δθ and δβ.

    Attributes
    ----------
    weights : ndarray (n, m)
    left, right : ndarray of shape (n, K) and (K, m)
        Loadings and components, on a scale of 1.
    of_rows, of_features : ndarray of shape (n, K, K) and (m, K, K)
        Inverse matrices of the normal equations of each row and each feature.
    """

    weights: Array
    left: Array
    right: Array
    of_rows: Array
    of_features: Array

    @classmethod
    def of(cls, weights: Array, left: Array, right: Array) -> Self:
        """Return what is taken up of residuals with these weights, around left @ right."""
        tiny = np.finfo(np.float64).tiny
        left = left / np.maximum(np.linalg.norm(left, axis=0), tiny)
        right = right / np.maximum(np.linalg.norm(right, axis=1, keepdims=True), tiny)
        squares = weights**2
        return cls(weights, left, right, _inverses(squares, right), _inverses(squares.T, left.T))

    def off(self, residuals: Array) -> Array:
        """Return residuals (n, m) less what is taken up of them, by turns for both sides."""
        rest: Any = residuals
        for _ in range(ROUNDS):
            for_rows = _each(self.of_rows, (rest * self.weights) @ self.right.T)
            rest = rest - self.weights * (for_rows @ self.right)
            for_features = _each(self.of_features, (rest * self.weights).T @ self.left)
            rest = rest - self.weights * (self.left @ for_features.T)
        return rest


def _each(matrices: Array, vectors: Array) -> Array:
    """Return the products of matrices (n, K, K) and vectors (n, K)."""
    found: Array = (matrices @ vectors[..., None])[..., 0]
    return found


def _inverses(squares: Array, factors: Array) -> Array:
    """Return the inverse of Σ_j w_ij f_kj f_lj for each i, (n, K, K), from squares w (n, m) and factors f (K, m)."""
    rank = len(factors)
    pairs = (factors[:, None] * factors).reshape(rank * rank, -1)
    sums = (squares @ pairs.T).reshape(-1, rank, rank)
    ridge = RIDGE * np.trace(sums, axis1=1, axis2=2) + np.finfo(np.float64).tiny
    found: Array = np.linalg.pinv(sums + ridge[:, None, None] * np.eye(rank), hermitian=True)
    return found


def _leading(rest: Array, first: Array) -> tuple[float, Array]:
    """Return the share of the sum of squares in one direction, by iterations from a first block, and its features."""
    block = first
    for _ in range(ROUNDS):
        block, _ = np.linalg.qr(rest.T @ (rest @ block))
    _, sizes, turned = np.linalg.svd(rest @ block, full_matrices=False)
    total = float(np.sum(rest**2))
    return (float(sizes[0] ** 2 / total) if total > 0 else 0.0), block @ turned[0]
