"""Several count matrices of the same rows, side by side, and which matrix each feature is of.

Components and loadings of the joined matrix are those of a model with shared loadings: each matrix has its own features
of every component. `bayesnmf.data.joining` joins them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.checks import check_choice
from bayesnmf.data.conversion import canonical
from bayesnmf.data.counts import Counts
from bayesnmf.types import Array


@dataclass(frozen=True, eq=False)
class Matrices:
    """Which features are of which matrix.

    Attributes
    ----------
    names : tuple of str
        Names of the matrices.
    codes : ndarray (m,)
        Number of the matrix that each feature is of.
    features : ndarray (m,)
        Names of the features in their own matrix.
    weights : ndarray (matrices,)
        How often the counts of each matrix count.
    """

    names: tuple[str, ...]
    codes: Array
    features: Array
    weights: Array

    def code(self, name: Any) -> int:
        """Return the number of the matrix of a name."""
        return self.names.index(check_choice(name, "name", self.names))

    @property
    def weighted(self) -> bool:
        """Whether the counts of any matrix count more or less than once."""
        return bool(np.any(self.weights != 1))


def _none() -> Matrices:
    return Matrices((), np.zeros(0, np.intp), np.zeros(0, object), np.ones(0))


@dataclass(frozen=True, eq=False, repr=False)
class SeveralCounts(Counts):
    """Counts of several matrices, side by side.

    Attributes
    ----------
    matrices : Matrices
    has : ndarray (n, matrices) or None
        Which rows each matrix has, where an entry, or all of a row, may yet be missing. None says that it has those
        with an observed entry.
    """

    matrices: Matrices = field(default_factory=_none)
    has: Array | None = None

    def features_of(self, name: Any) -> Array:
        """Return the positions of the features of a matrix."""
        return np.flatnonzero(self.matrices.codes == self.matrices.code(name))

    def rows_of(self, name: Any) -> Array:
        """Return the positions of the rows that a matrix has."""
        if self.has is not None:
            return np.flatnonzero(self.has[:, self.matrices.code(name)])
        seen = (
            np.ones(self.shape[0], bool) if self.mask is None else self.mask.features(self.features_of(name)).seen_rows
        )
        return np.flatnonzero(seen)

    def of(self, name: Any) -> Counts:
        """Return one matrix, of the rows that it has, with its own names of features and without its weight."""
        at, weight = self.features_of(name), self.matrices.weights[self.matrices.code(name)]
        mask = None if self.mask is None else self.mask.features(at)
        exposure = None if self.feature_exposure is None else self.feature_exposure[at]
        matrix = canonical(self.matrix[:, at], self.dtype)
        if weight != 1:
            matrix.data = _unweighted(matrix.data, weight)
        names = self.row_names, self.matrices.features[at]
        found = Counts(matrix, *names, self.row_exposure, exposure, mask).rows(self.rows_of(name))
        return found if found.mask is None or found.mask.number else found.with_mask(None)

    def of_rows(self, index: Any) -> dict[str, Any]:
        """Return what belongs to some rows beside their counts, with which matrices have them."""
        return {**super().of_rows(index), "has": None if self.has is None else self.has[index]}

    def as_one(self) -> Counts:
        """Return the same counts as one matrix."""
        return Counts(**{each.name: getattr(self, each.name) for each in fields(Counts)})

    def with_features(self, matrix: csr_array, names: Any) -> Counts:
        """Return the same rows with other features of no matrix, and a canonical matrix of them."""
        return self.as_one().with_features(matrix, names)

    def __repr__(self) -> str:
        sizes = np.bincount(self.matrices.codes, minlength=len(self.matrices.names))
        parts = ", ".join(f"{name}: {size:,}" for name, size in zip(self.matrices.names, sizes, strict=True))
        return f"{super().__repr__()[:-1]}, features of {parts})"


def _unweighted(counts: Array, weight: float) -> Array:
    """Return counts over their weight, without what rounding has made of whole numbers."""
    found = counts / weight
    whole = np.rint(found)
    return np.where(np.isclose(found, whole, rtol=4 * np.finfo(counts.dtype).eps, atol=0), whole, found)


def coordinates_of(counts: Counts) -> tuple[Array, Array] | None:
    """Return the names of several matrices, and that of the matrix of each feature; None for one matrix."""
    if not isinstance(counts, SeveralCounts):
        return None
    names = np.array(counts.matrices.names)
    return names, names[counts.matrices.codes]


def check_several(counts: Any) -> SeveralCounts:
    """Return counts of several matrices; refuse those of one."""
    if not isinstance(counts, SeveralCounts):
        raise ValueError(
            "fit must be of several matrices for this, as of bayesnmf.fit({'sbs': X, 'id': Y}): found one matrix"
        )
    return counts


def check_of_all(fit: Any, what: str) -> None:
    """Refuse what would fit one of several matrices alone, whose loadings come from all."""
    if fit.is_of_matrix:
        raise ValueError(
            f"{what} need the fit of all matrices, as loadings come from all of them: found that of one; give the fit "
            "that fit.matrix(name) was asked of"
        )


def check_weights_served(counts: SeveralCounts, method: str) -> None:
    """Refuse weights of matrices with a method that needs a distribution of the counts, or whole numbers of them."""
    if not counts.matrices.weighted:
        return
    if method not in ("map", "vi", "gibbs"):
        raise ValueError(f"weights need method='map', 'vi' or 'gibbs': found {method!r}, which needs a distribution")
    if method == "gibbs" and not counts.is_integer:
        raise ValueError("weights must be whole numbers for method='gibbs', which draws whole counts; use method='vi'")


def is_weighted(counts: Any) -> bool:
    """Return whether counts are several matrices with weights."""
    return isinstance(counts, SeveralCounts) and counts.matrices.weighted


def check_unweighted(counts: Any, what: str) -> None:
    """Refuse what needs a distribution of the counts for matrices with weights, which have none."""
    if is_weighted(counts):
        raise ValueError(
            f"{what} need a distribution of the counts, which weights of matrices leave none: fit without weights"
        )
