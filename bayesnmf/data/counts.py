"""The one form of counts within the package: a canonical CSR matrix with names.

`bayesnmf.data.conversion.as_counts` makes it, and all other code relies on it. Totals are in float64, computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np
from scipy.sparse import csr_array
from scipy.special import gammaln

from bayesnmf.cards import Card
from bayesnmf.checks import check_index, check_may_copy, check_pair, refuse_iteration
from bayesnmf.data.mask import Mask
from bayesnmf.data.working import Working
from bayesnmf.text import WIDTH, readable_names

if TYPE_CHECKING:
    import pandas as pd

BLOCK = 2**18  # nonzeros processed at once
LARGEST = 8  # features that are named
PRINTED = 5  # rows of which a print shows some counts
CALLS = ("bayesnmf.select(counts)  # how many components", "bayesnmf.fit(counts, rank=10)  # a model of them")


@dataclass(frozen=True, eq=False)
class Lines:
    """Counts by rows or by features, in one block of all."""

    matrix: csr_array
    beside: ClassVar[bool] = False

    @property
    def blocks(self) -> list[slice]:
        """Lines of each block."""
        return [slice(0, self.matrix.shape[0])]

    def read(self, block: int, dtype: Any) -> csr_array:
        """Return the counts of a block of lines."""
        return self.matrix


class Rows:
    """An array with a row for each sample, given block by block."""

    def __init__(self, dtype: Any) -> None:
        self._dtype, self._blocks = dtype, list[Any]()

    def append(self, rows: Any) -> None:
        """Add more rows."""
        self._blocks.append(np.asarray(rows, self._dtype))

    def array(self, *, changes: bool = False) -> Any:
        """Return all rows; with `changes`, as an array that nothing else refers to."""
        if len(self._blocks) > 1:
            return np.concatenate(self._blocks)
        return self._blocks[0].copy() if changes else self._blocks[0]


@dataclass(frozen=True, eq=False, repr=False)
class Counts(Working):
    """A validated count matrix: CSR, samples in rows.

    ``counts[rows, features]`` are the counts of some rows and features, each given as a position, a slice, a boolean
    mask, a name or a list of names. ``len(counts)`` is the number of rows, ``np.asarray(counts)`` a dense array, and
    ``counts.to_frame()`` the same with its names.

    Attributes
    ----------
    matrix : csr_array, (n, m)
        Finite, nonnegative counts in float64 or float32, with sorted indices, no duplicates and no stored zeros.
        Counts from `as_counts` share no memory with the user's matrix. Never write into it.
    row_names : array, (n,)
        Names of the samples; 0 … n-1 if the user gave none.
    feature_names : array, (m,)
        Names of the features; 0 … m-1 if the user gave none.
    row_exposure : array, (n,), or None
        Exposure r_i > 0 of every sample, in float64: its expected counts are r_i times loadings times components. None
        is 1 for all.
    feature_exposure : array, (m,), or None
        Exposure c_j > 0 of every feature, in the same way.
    mask : Mask or None
        Entries that are missing, where the matrix has no counts; None is no entry.
    batch : Batches or None
        Batch of every sample (`bayesnmf.data.batches`).

    See Also
    --------
    as_counts, read_counts, simulate : which return it.

    Examples
    --------
    >>> import bayesnmf
    >>> counts = bayesnmf.datasets.cells()
    >>> counts[:3, ["CD3D", "LYZ"]]
    Counts(3 rows × 2 features, 6 nonzeros, total 15)
                    CD3D  LYZ
    ATGCCAGAACGACT     4    1
    CATGGCCTGTGCAT     4    1
    GAACCTGATGAACC     4    1
    """

    matrix: csr_array
    row_names: np.ndarray
    feature_names: np.ndarray
    row_exposure: np.ndarray | None = None
    feature_exposure: np.ndarray | None = None
    mask: Mask | None = None
    batch: Any = None

    in_memory: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("row_names", "feature_names"):
            object.__setattr__(self, name, readable_names(getattr(self, name)))

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of features, (n, m)."""
        n, m = self.matrix.shape
        return int(n), int(m)

    @property
    def nnz(self) -> int:
        """Number of nonzero counts."""
        return int(self.matrix.nnz)

    @property
    def dtype(self) -> np.dtype:
        """Type of the stored counts, float64 or float32."""
        return self.matrix.dtype

    def parts(self) -> Iterator[tuple[slice, Counts]]:
        """Yield the rows and the counts of each part that is in memory at once: all of them, or blocks of a store."""
        yield slice(0, self.shape[0]), self

    @property
    def blocks(self) -> list[slice]:
        """Rows of each block: all of them."""
        return [slice(0, self.shape[0])]

    @property
    def rows_held(self) -> int:
        """Number of rows whose loadings a fit may hold in memory, as descents do, and draws: all, or none on disk."""
        return self.shape[0]

    def without_names(self) -> Counts:
        """Return the same counts: they are sent nowhere."""
        return self

    def at_hand(self) -> Counts:
        """Return the same counts in memory."""
        return self

    def by_row(self) -> Lines:
        """Return the counts by rows, in one block."""
        return Lines(self.matrix)

    def by_feature(self) -> Lines:
        """Return the counts by features, in one block."""
        return Lines(self.transposed)

    def new_rows(self, columns: int, dtype: Any) -> Rows:
        """Return an array that rows are appended to, block by block."""
        return Rows(dtype)

    @cached_property
    def transposed(self) -> csr_array:
        """The same counts with features in rows, (m, n), made on first use: many as uint16 if they fit."""
        matrix = self.matrix
        if self.is_integer and matrix.nnz > BLOCK and matrix.data.max(initial=0) <= np.iinfo(np.uint16).max:
            matrix = csr_array((matrix.data.astype(np.uint16), matrix.indices, matrix.indptr), shape=matrix.shape)
        return csr_array(matrix.T)

    @cached_property
    def dense(self) -> np.ndarray:
        """The same counts as a dense array, (n, m): a second copy, made on first use."""
        return self.matrix.toarray()

    @cached_property
    def sizes(self) -> tuple[np.ndarray, np.ndarray]:
        """The different counts above 0, and how many there are of each."""
        return np.unique(self.matrix.data, return_counts=True)

    @cached_property
    def row_totals(self) -> np.ndarray:
        """Sum of each row, (n,), float64."""
        rows = np.repeat(np.arange(self.shape[0]), np.diff(self.matrix.indptr))
        return np.bincount(rows, self.matrix.data, self.shape[0]).astype(np.float64, copy=False)  # int if empty

    @cached_property
    def feature_totals(self) -> np.ndarray:
        """Sum of each column, (m,), float64."""
        return np.bincount(self.matrix.indices, self.matrix.data, self.shape[1]).astype(np.float64, copy=False)

    @cached_property
    def total(self) -> float:
        """Sum of all counts."""
        return float(self.matrix.data.sum(dtype=np.float64))

    @cached_property
    def log_factorial(self) -> float:
        """Σ log X!, the term of the Poisson log-likelihood without parameters."""
        return self.log_factorial_of(1.0)

    def log_factorial_of(self, unit: float) -> float:
        """Return Σ log (X / unit)!."""
        data = self.matrix.data
        blocks = (data[first : first + BLOCK].astype(np.float64) for first in range(0, len(data), BLOCK))
        return float(sum(gammaln(block * (1.0 / unit) + 1.0).sum() for block in blocks))

    @property
    def identity(self) -> list[Any]:
        """Arrays, or texts, that differ between counts."""
        matrix = self.matrix
        places = (each.astype(np.int64) for each in (matrix.indices, matrix.indptr))
        return [np.asarray(self.shape), matrix.data, *places]

    @property
    def exposed(self) -> bool:
        """Whether the rows or the features have exposures."""
        return self.row_exposure is not None or self.feature_exposure is not None

    @cached_property
    def row_weights(self) -> np.ndarray | None:
        """Exposure of the rows, (n,), or None if it is 1 for all."""
        return _unless_all_one(self.row_exposure)

    @cached_property
    def feature_weights(self) -> np.ndarray | None:
        """Exposure of the features, (m,), or None if it is 1 for all."""
        return _unless_all_one(self.feature_exposure)

    @property
    def row_factor(self) -> np.ndarray:
        """Exposure of the rows as a column, (1 or n, 1)."""
        return np.ones((1, 1)) if self.row_weights is None else self.row_weights[:, None]

    @property
    def feature_factor(self) -> np.ndarray:
        """Exposure of the features, (1 or m,)."""
        return np.ones(1) if self.feature_weights is None else self.feature_weights

    @cached_property
    def log_exposure(self) -> float:
        """Σ X log(r c), the term of the Poisson log-likelihood that exposures add; 0 without them."""
        totals = ((self.row_weights, self.row_totals), (self.feature_weights, self.feature_totals))
        return sum(float(counted @ np.log(weights)) for weights, counted in totals if weights is not None)

    @property
    def log_noise(self) -> float:
        """What the noise adds to the log-likelihood; 0 for Poisson noise."""
        return 0.0

    def exposed_loadings(self, loadings: Any) -> Any:
        """Return loadings (..., n, K) times the exposure of their rows."""
        return loadings if self.row_weights is None else loadings * self.row_factor

    def exposed_components(self, components: Any, features: Any = None) -> Any:
        """Return components (..., K, m) times the exposure of their features, which may be some at given positions."""
        if self.feature_weights is None:
            return components
        return components * (self.feature_weights if features is None else self.feature_weights[features])

    def exposed_like(self, other: Counts) -> bool:
        """Return whether rows and features have the same exposures as those of other counts of this size."""
        pairs = ((self.row_factor, other.row_factor), (self.feature_factor, other.feature_factor))
        return all(np.array_equal(one, two) for one, two in pairs)

    @cached_property
    def is_integer(self) -> bool:
        """Whether every count is a whole number."""
        return bool(np.all(self.matrix.data == np.floor(self.matrix.data)))

    def rows(self, index: Any) -> Counts:
        """Return the rows at positions, a slice or where a boolean mask is True, with their names and exposures."""
        chosen = np.atleast_1d(np.arange(self.shape[0])[index])
        return replace(self, matrix=self.matrix[chosen], **self.of_rows(chosen))

    def columns(self, places: np.ndarray) -> Counts:
        """Return the features at positions, with their names, exposures and missing entries."""
        exposure = None if self.feature_exposure is None else self.feature_exposure[places]
        mask = None if self.mask is None else self.mask.features(places)
        own = {"feature_names": self.feature_names[places], "feature_exposure": exposure, "mask": mask}
        matrix = csr_array(self.matrix[:, places])
        matrix.sort_indices()
        return replace(self, matrix=matrix, **own)

    def of_rows(self, index: Any) -> dict[str, Any]:
        """Return what belongs to some rows beside their counts: names, exposures, missing entries and batches."""
        own = {name: getattr(self, name) for name in ("mask", "batch")}
        exposure = None if self.row_exposure is None else self.row_exposure[index]
        parts = {name: each and each.rows(index) for name, each in own.items()}
        return {"row_names": self.row_names[index], "row_exposure": exposure, **parts}

    def block(self, first: int, last: int) -> Counts:
        """Return the rows from `first` to `last` (excluded), in memory shared with these counts."""
        starts = self.matrix.indptr[first : last + 1]
        inside = slice(starts[0], starts[-1])
        arrays = (self.matrix.data[inside], self.matrix.indices[inside], starts - starts[0])
        view = csr_array(arrays, shape=(last - first, self.shape[1]))
        part = replace(self, matrix=view, **self.of_rows(slice(first, last)))
        vars(part)["row_totals"] = self.row_totals[first:last]  # where the cached property stores its value
        return part

    def with_exposure(self, row_exposure: np.ndarray | None, feature_exposure: np.ndarray | None) -> Counts:
        """Return the same counts with other exposures."""
        if row_exposure is None and feature_exposure is None and not self.exposed:
            return self
        return replace(self, row_exposure=row_exposure, feature_exposure=feature_exposure)

    def with_mask(self, mask: Mask | None) -> Counts:
        """Return the counts with these entries missing, and no others; what is counted there is left out."""
        if mask is None:
            return self if self.mask is None else replace(self, mask=None)
        return replace(self, matrix=mask.apply(self.matrix), mask=mask)

    def completed(self, means: tuple[np.ndarray, np.ndarray] | None) -> Counts:
        """Return the counts without a mask, with products of factors, (n,) and (m,), or zeros in missing entries."""
        plain = self.with_mask(None)
        if self.mask is None or means is None:
            return plain
        return plain.with_matrix(self.mask.filled(self.matrix, *means))

    def times(self, factor: float) -> Counts:
        """Return the counts times a factor."""
        return self.with_matrix((self.matrix * factor).astype(self.dtype, copy=False))

    def as_type(self, dtype: Any) -> Counts:
        """Return the same counts in another type."""
        return self.with_matrix(self.matrix.astype(dtype))

    def with_matrix(self, matrix: csr_array) -> Counts:
        """Return counts with the same names and exposures, and another canonical matrix of the same shape."""
        return replace(self, matrix=matrix)

    def apart(self, chosen: np.ndarray, change: Callable[[csr_array], csr_array] = lambda matrix: matrix) -> Counts:
        """Return chosen rows as counts of their own, as a change makes them from the matrix of some of these rows."""
        part = self.rows(chosen)
        return part.with_matrix(change(part.matrix))

    def rewritten(self, whole: Counts, change: Callable[[int, slice, Counts], csr_array]) -> Counts:
        """Return counts with the same names and exposures, and what a change makes of each block of `whole`."""
        return self.with_matrix(change(0, slice(0, self.shape[0]), whole))

    def with_features(self, matrix: csr_array, names: np.ndarray) -> Counts:
        """Return the same rows with other features, which have no exposures, and a canonical matrix of them."""
        return replace(self, matrix=matrix, feature_names=names)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without cached values, which can be computed again."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Counts:
        rows, features = check_pair(key)
        found = self if _is_all(rows) else self.rows(check_index(rows, "row", self.row_names, self.feature_names))
        if _is_all(features):
            return found
        return found.as_one().columns(check_index(features, "feature", self.feature_names, self.row_names))

    def __iter__(self) -> NoReturn:
        refuse_iteration()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return a dense array, (n, m), with NaN in missing entries."""
        check_may_copy(copy)
        dense = self.at_hand().matrix.toarray()
        if self.mask is not None:
            dense[self.mask.hidden(slice(None))] = np.nan
        return dense if dtype is None else dense.astype(dtype)

    def as_one(self) -> Counts:
        """Return the same counts as one matrix."""
        return self

    def to_frame(self) -> pd.DataFrame:
        """Return a data frame with the names of rows and features, whole numbers as such, NaN in missing entries."""
        import pandas as pd

        dense = np.asarray(self)
        whole = self.mask is None and self.is_integer
        return pd.DataFrame(dense.astype(np.int64) if whole else dense, self.row_names, self.feature_names)

    def __repr__(self) -> str:
        return "\n".join([self.in_short(), *_corner(self)])

    def in_short(self) -> str:
        """Return the sizes in one line."""
        return f"Counts({', '.join(sizes_of(self))})"

    def _repr_html_(self) -> str:
        return card_of(self).as_html()


def _is_all(index: Any) -> bool:
    return isinstance(index, slice) and index == slice(None)


def _corner(counts: Counts) -> list[str]:
    """Return the lines of a table of the first rows and the features with most counts, as far as a page is wide."""
    if not counts.in_memory or 0 in counts.shape:
        return []
    largest = np.argsort(-counts.feature_totals, kind="stable")[:LARGEST]
    part = counts.as_one().rows(slice(0, PRINTED)).columns(np.sort(largest) if len(largest) < LARGEST else largest)
    shown = part.to_frame()
    for taken in range(len(largest), 0, -1):
        lines = shown.iloc[:, :taken].to_string(na_rep="–", float_format="{:.4g}".format, max_colwidth=WIDTH // 3)
        if len(lines.partition("\n")[0]) <= WIDTH:
            break
    beyond = {"rows": len(counts) - len(part), "features": counts.shape[1] - taken}
    rest = " and ".join(f"{number:,} more {what}" for what, number in beyond.items() if number)
    return [*lines.splitlines(), *([f"… {rest}"] if rest else [])]


def _unless_all_one(exposure: np.ndarray | None) -> np.ndarray | None:
    return None if exposure is None or np.all(exposure == 1) else exposure


def sizes_of(counts: Any) -> list[str]:
    """Return what counts are, in words, part by part."""
    n, m = counts.shape
    given = {"rows": counts.row_exposure, "features": counts.feature_exposure}
    exposed = " and ".join(side for side, exposure in given.items() if exposure is not None)
    sizes = [f"{n:,} rows × {m:,} features", f"{counts.nnz:,} nonzeros", f"total {counts.total:,.12g}"]
    sizes += [f"with exposures of {exposed}"] if exposed else []
    return sizes + ([] if counts.mask is None else [f"{counts.mask.number:,} entries missing"])


def card_of(counts: Any) -> Card:
    """Return what a notebook shows of counts."""
    n, m = counts.shape
    rows, features = counts.row_totals, counts.feature_totals
    low, middle, high = np.quantile(rows, (0.0, 0.5, 1.0)) if n else np.zeros(3)
    names = ", ".join(map(str, counts.feature_names[np.argsort(-features, kind="stable")[:LARGEST]]))
    lines = [
        ["entries with counts", f"{counts.nnz / max(n * m, 1):.2%} of {n * m:,}"],
        ["counts of a row", f"{middle:,.4g} in the median, {low:,.4g} to {high:,.4g}"],
        ["rows and features without any", f"{np.count_nonzero(rows == 0):,} and {np.count_nonzero(features == 0):,}"],
        ["features with most counts", names],
    ]
    return Card(f"Counts: {', '.join(sizes_of(counts))}", ["", ""], lines, calls=CALLS)
