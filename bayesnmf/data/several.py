"""Several count matrices of the same rows, side by side, and which matrix each feature is of.

Components and loadings of the joined matrix are those of a model with shared loadings: each matrix has its own features
of every component. Rows are matched by name, or where no matrix has names by position; what a matrix lacks are missing
entries. Names of features stay as they are, but for those that two matrices have, and for numbers in place of names,
which are told apart as "sbs: A[C>A]A".
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from scipy.sparse import csr_array, hstack

from bayesnmf.checks import as_numbers, check_choice, is_counted, shown
from bayesnmf.data.checks import check_shape
from bayesnmf.data.conversion import canonical, is_of_matrices, is_several
from bayesnmf.data.counts import Counts
from bayesnmf.data.labels import is_missing, listed
from bayesnmf.data.mask import GroupMask, Mask, as_pattern
from bayesnmf.data.suspicions import warn_of_data
from bayesnmf.noise.abilities import Dispersed, Noise
from bayesnmf.noise.poisson import POISSON
from bayesnmf.priors.checks import check_noise
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

    def in_short(self) -> str:
        sizes = np.bincount(self.matrices.codes, minlength=len(self.matrices.names))
        parts = ", ".join(f"{name}: {size:,}" for name, size in zip(self.matrices.names, sizes, strict=True))
        return f"{super().in_short()[:-1]}, features of {parts})"


def _unweighted(counts: Array, weight: Any) -> Array:
    """Return counts over their weight, without what rounding has made of whole numbers."""
    found = counts / weight
    whole = np.rint(found)
    return np.where(np.isclose(found, whole, rtol=4 * np.finfo(counts.dtype).eps, atol=0), whole, found)


def without_weights(counts: Counts, components: Array) -> tuple[csr_array, Array]:
    """Return the matrix of counts, and exposed components (K, m), without weights of several matrices if they have any.

    Components of weighted counts have their scale.
    """
    if not isinstance(counts, SeveralCounts) or not counts.matrices.weighted:
        return counts.matrix, components
    weights, plain = counts.matrices.weights[counts.matrices.codes], counts.matrix.copy()
    plain.data = _unweighted(plain.data, weights[plain.indices])
    return plain, components / weights


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


def is_weighted(counts: Any) -> bool:
    """Return whether counts are several matrices with weights."""
    return isinstance(counts, SeveralCounts) and counts.matrices.weighted


def weights_of(counts: Counts) -> Array:
    """Return how often the counts of each feature count, (m,)."""
    if not isinstance(counts, SeveralCounts):
        return np.ones(counts.shape[1])
    return counts.matrices.weights[counts.matrices.codes]


def check_unweighted(counts: Any, what: str) -> None:
    """Refuse what needs a distribution of the counts for matrices with weights, which have none."""
    if is_weighted(counts):
        raise ValueError(
            f"{what} need a distribution of the counts, which weights of matrices leave none: fit without weights"
        )


def is_mudata_file(x: Any) -> bool:
    """Return whether this is the path of a file of MuData."""
    return isinstance(x, str | os.PathLike) and str(x).lower().endswith(".h5mu")


def matrices_of(x: Any) -> dict[str, Any]:
    """Return the matrices of a mapping, of MuData or of a file of it, by name."""
    if is_mudata_file(x):
        try:
            import mudata
        except ImportError as error:
            raise ImportError("reading .h5mu files needs mudata: pip install mudata") from error
        x = mudata.read_h5mu(x)
    if not is_several(x):
        raise TypeError(
            f"weights must be those of several matrices, as in bayesnmf.fit({{'sbs': X, 'id': Y}}, "
            f"weights={{'id': 2}}): found counts in one, {type(x).__name__}; leave weights out"
        )
    found = dict(getattr(x, "mod", x))
    if not found or not all(isinstance(name, str) and name for name in found):
        raise ValueError(
            f"counts as a mapping must have the name and the counts of each matrix, as in {{'sbs': X, 'id': Y}}: found "
            f"{shown(list(found))}"
        )
    return found


def of_each_matrix(given: Any, argument: str, names: Iterable[str]) -> dict[str, Any]:
    """Return what is given for each matrix: of a mapping what is under its name, a word for all."""
    if given is None or isinstance(given, str):
        return dict.fromkeys(names, given)
    if not isinstance(given, Mapping):
        raise TypeError(
            f"{argument} must map names of matrices to what is given for each, as in {{'sbs': {argument}}}: found "
            f"{shown(given)}"
        )
    return {check_choice(name, f"names in {argument}", names): value for name, value in given.items()}


def noise_of_matrices(noise: Any, counts: Counts) -> Noise:
    """Return the noise of counts, in which each of several matrices has a dispersion of its own.

    Parameters
    ----------
    noise : Poisson, NegativeBinomial, Quasi or mapping
        One for all matrices; or that of each, Poisson where none is given. An unknown dispersion is that of each.
    counts : Counts

    Raises
    ------
    TypeError, ValueError
        A mapping for one matrix, other names, or noises that cannot be combined.
    """
    if not isinstance(counts, SeveralCounts):
        raise TypeError(f"noise must be one noise for counts of one matrix: found {shown(noise)}")
    told = counts.matrices
    if not isinstance(noise, Mapping):
        return noise.of_matrices(told.codes, told.names)
    return _combined({check_choice(name, "noise", told.names): check_noise(one) for name, one in noise.items()}, told)


def noise_for(noise: Any, counts: Counts) -> Noise:
    """Return the noise that is given by words, or by a mapping from matrices to them."""
    asked: Any = noise if isinstance(noise, Mapping) else check_noise(noise)
    return noise_of_matrices(asked, counts) if is_of_matrices(asked, counts) else asked


def sizes_of(size: Any) -> tuple[int, int, dict[str, int]]:
    """Return the numbers of rows and of features, and that of each matrix by name, "" for one without."""
    if not (isinstance(size, tuple | list) and len(size) == 2 and isinstance(size[1], Mapping)):
        n, m = check_shape(size, "size")
        return n, m, {"": m}
    sizes = {name: check_shape((size[0], m), f"size of {name!r}")[1] for name, m in matrices_of(size[1]).items()}
    return check_shape((size[0], 1), "size")[0], sum(sizes.values()), sizes


def _combined(noises: Mapping[str, Noise], told: Matrices) -> Noise:
    """Return the noise of matrices with these; a matrix without one has Poisson noise, of dispersion 0."""
    every = [noises.get(name, POISSON) for name in told.names]
    kinds = {each.word: each for each in every if each != POISSON}
    if not kinds:
        return POISSON
    ((_, kind), *others) = kinds.items()
    if others or not (isinstance(kind, Dispersed) and kind.combines):
        raise ValueError(
            f"noise of several matrices must be one of 'nb1' and 'nb2', beside 'poisson', as one likelihood holds all: "
            f"found {', '.join(map(repr, kinds))}; give one, or noise='quasi' for all of them"
        )
    return kind.combined(every, told.codes)


def joined(parts: Mapping[str, Counts], weights: Any = None) -> SeveralCounts:
    """Return matrices side by side; their rows are matched by name, and what one lacks are missing entries.

    Parameters
    ----------
    parts : mapping of str to Counts
    weights : mapping of str to float, optional
        How often the counts of a matrix count; 1 for those that are not named.

    Raises
    ------
    TypeError, ValueError
        No matrices, rows that cannot be matched, or weights of other matrices.

    Examples
    --------
    >>> from bayesnmf.data.conversion import as_counts
    >>> joined({"a": as_counts([[1, 2], [3, 4]]), "b": as_counts([[5], [6]])})
    Counts(2 rows × 3 features, 6 nonzeros, total 21, features of a: 2, b: 1)
       a: 0  a: 1  b: 0
    0     1     2     5
    1     3     4     6
    """
    weighted = _weights(weights, tuple(parts))
    for name, each in parts.items():
        if isinstance(each, SeveralCounts) or not each.rows_held:
            found = "several matrices" if isinstance(each, SeveralCounts) else "counts on disk"
            raise TypeError(
                f"counts {name!r} must be one matrix in memory, to be put beside others: found {found}; read it with "
                "bayesnmf.read_counts, or join them first"
            )
    row_names, places = _rows(parts)
    lacks = np.stack([each < 0 for each in places], axis=1)
    _tell(lacks, row_names, list(parts))
    counts = list(parts.values())
    codes = np.repeat(np.arange(len(counts)), [each.shape[1] for each in counts])
    own = np.concatenate([each.feature_names.astype(object) for each in counts])
    matrices = Matrices(tuple(parts), codes, own, weighted)
    columns = [
        _in_rows(each.matrix * weight, place) for each, place, weight in zip(counts, places, weighted, strict=True)
    ]
    exposures = [each.feature_factor * np.ones(each.shape[1]) for each in counts]
    exposed = any(each.feature_exposure is not None for each in counts)
    return SeveralCounts(
        canonical(csr_array(hstack(columns, format="csr")), counts[0].dtype), row_names, _feature_names(parts),
        None, np.concatenate(exposures) if exposed else None, _mask(counts, places, lacks, codes), matrices=matrices,
        has=~lacks,
    )  # fmt: skip


def _rows(parts: Mapping[str, Counts]) -> tuple[Array, list[Array]]:
    """Return the names of all rows, and their positions in each matrix, -1 for those that it lacks."""
    names = [each.row_names for each in parts.values()]
    if all(len(each) == len(names[0]) and np.array_equal(each.astype(str), names[0].astype(str)) for each in names):
        return names[0], [np.arange(len(names[0]))] * len(names)
    for check in (_check_named, _check_different, _check_common):
        for name, each in parts.items():
            check(name, each, parts)
    union = np.array(list(dict.fromkeys(str(name) for each in names for name in each)), dtype=object)
    places = []
    for own in names:
        at = {str(name): place for place, name in enumerate(own)}
        places.append(np.array([at.get(name, -1) for name in union], dtype=np.intp))
    return union, places


def _check_named(name: str, counts: Counts, parts: Mapping[str, Counts]) -> None:
    """Refuse rows without names, where other matrices have other rows."""
    if is_counted(counts.row_names):
        sizes = ", ".join(f"{other!r}: {each.shape[0]:,}" for other, each in parts.items())
        named = [other for other, each in parts.items() if not is_counted(each.row_names)]
        cure = "give DataFrames with the names of their rows, or arrays of as many rows"
        if named and parts[named[0]].shape[0] == counts.shape[0]:
            cure = (
                f"if they are in the order of {named[0]!r}, give them its names, as pd.DataFrame({name}, "
                f"index={named[0]}.index), or give all without names, as arrays"
            )
        elif named:
            cure = f"{named[0]!r} has names: give {name!r} as a DataFrame with the names of its own rows, too"
        raise ValueError(
            f"counts {name!r} must have names of rows, as {listed(named) if named else 'all'} have, or no matrix any, "
            f"and all the same rows in the same order: found rows {sizes}; {cure}"
        )


def _check_different(name: str, counts: Counts, parts: Mapping[str, Counts]) -> None:
    """Refuse names of rows that repeat."""
    times = Counter(map(str, counts.row_names))
    repeated = [each for each, number in times.items() if number > 1]
    if repeated or any(map(is_missing, counts.row_names)):
        raise ValueError(
            f"counts {name!r} must have names of rows that differ, so that rows of matrices can be matched: found "
            f"{listed(repeated or ['a missing value'])} more than once; make them different"
        )


def _check_common(name: str, counts: Counts, parts: Mapping[str, Counts]) -> None:
    """Refuse a matrix that has no row of another one."""
    others = {str(row) for other, each in parts.items() if other != name for row in each.row_names}
    if others.isdisjoint(map(str, counts.row_names)):
        raise ValueError(
            f"counts {name!r} must have rows of the other matrices, by name: found none; its first rows are "
            f"{listed(list(map(str, counts.row_names)))}, so give all matrices the same names of rows"
        )


def _weights(given: Any, names: tuple[str, ...]) -> Array:
    """Return the weight of each matrix, 1 for those that are not named."""
    if given is None:
        return np.ones(len(names))
    if not isinstance(given, Mapping):
        raise TypeError(f"weights must map names of matrices to numbers, as in {{'sbs': 2}}: found {shown(given)}")
    found = {
        check_choice(name, "weights", names): as_numbers(weight, f"weights[{name!r}]") for name, weight in given.items()
    }
    for name, weight in found.items():
        if weight.ndim or not 1e-6 <= weight <= 1e6:
            raise ValueError(f"weights[{name!r}] must be a number from 1e-6 to 1e6: found {shown(given[name])}")
    return np.array([float(found.get(name, 1.0)) for name in names])


def _in_rows(matrix: Any, places: Array) -> csr_array:
    """Return a matrix with its rows at these places, and empty ones at -1."""
    kept = np.flatnonzero(places >= 0)
    chosen = csr_array((np.ones(len(kept)), (kept, places[kept])), shape=(len(places), matrix.shape[0]))
    return csr_array(chosen @ matrix)


def _feature_names(parts: Mapping[str, Counts]) -> Array:
    """Return the names of all features; those of two matrices, and numbers, follow the name of their matrix."""
    times = Counter(str(name) for each in parts.values() for name in {*each.feature_names.tolist()})
    found = [
        f"{matrix}: {name}" if times[str(name)] > 1 or is_counted(each.feature_names) else name
        for matrix, each in parts.items()
        for name in each.feature_names
    ]
    return np.array(found, dtype=object)


def _mask(counts: list[Counts], places: list[Array], lacks: Array, codes: Array) -> Mask | None:
    """Return the entries that matrices say to be missing, and those of rows that they lack."""
    mask: Mask | None = None
    if lacks.any():
        kinds, groups = np.unique(lacks, axis=0, return_inverse=True)
        mask = GroupMask.of_groups(np.ravel(groups), codes, kinds)
    if all(each.mask is None for each in counts):
        return mask
    parts = [
        csr_array((len(place), each.shape[1])) if each.mask is None else _in_rows(each.mask.missing, place)
        for each, place in zip(counts, places, strict=True)
    ]
    whole: Any = csr_array(hstack(parts, format="csr"))
    return Mask.of(as_pattern(whole if mask is None else whole + mask.missing))


def _tell(lacks: Array, row_names: Array, names: list[str]) -> None:
    """Tell how many rows each matrix lacks."""
    for name, lost in zip(names, lacks.T, strict=True):
        if lost.any():
            first = listed([str(each) for each in row_names[lost]])
            warn_of_data(
                f"counts {name!r} lack {lost.sum():,} of the {len(lost):,} rows, which are taken as missing entries, "
                f"not as zeros: {first}"
            )
