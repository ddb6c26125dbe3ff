"""Batches of rows: labels of samples that were measured together, so that each feature has a factor in each batch.

The expected count of a row i of batch g is r_i c_j b_gj (θβ)_ij, with a factor b_gj ~ Gamma(a, a) of every batch and
feature, whose mean is 1: what one batch has more or less of than others, whatever the components of its rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.checks import check_positive, shown
from bayesnmf.data.annotated import is_annotated
from bayesnmf.data.labels import Order, in_order, is_frame, is_missing, listed
from bayesnmf.data.suspicions import warn_of_data
from bayesnmf.text import readable
from bayesnmf.types import Array


@dataclass(frozen=True, eq=False)
class Batch:
    """Labels of batches, with the shape of their factors: the argument `batch` of `bayesnmf.fit`.

    Parameters
    ----------
    labels : list, array, mapping, Series or str
        Batch of each row; what has labels, such as a mapping or a Series, is matched by the names of rows. With counts
        in an AnnData object, the name of a column of ``obs``.
    shape : float, optional
        Shape a > 0 of the prior Gamma(a, a) of a factor, whose standard deviation is 1/√a. By default it is learned.

    Raises
    ------
    TypeError, ValueError
        A shape that is no number above 0; labels are checked with the counts.

    See Also
    --------
    bayesnmf.fit : Its argument `batch` takes this object, or the labels alone.
    bayesnmf.Fit.batch_factors : The factors, with intervals.

    Examples
    --------
    >>> import bayesnmf
    >>> counts = [[30, 0, 9], [20, 21, 14], [51, 11, 0], [2, 33, 61]]
    >>> fit = bayesnmf.fit(counts, rank=1, seed=0, batch=bayesnmf.Batch(["a", "a", "b", "b"], shape=10))
    >>> fit.batch_factors().columns.tolist()
    ['mean', 'lower', 'upper']
    """

    labels: Any
    shape: float | None = None

    def __post_init__(self) -> None:
        if self.shape is not None:
            object.__setattr__(self, "shape", check_shape_of_factors(self.shape))


@dataclass(frozen=True, eq=False)
class Batches:
    """Batches of the rows of counts.

    Attributes
    ----------
    names : ndarray (B,)
        Labels of the batches, as text.
    codes : ndarray (n,)
        Number of the batch of each row.
    shape : float or None
        Shape of the prior of factors; None if it is to be learned.
    """

    names: Array
    codes: Array
    shape: float | None = None

    @property
    def number(self) -> int:
        """Number of batches."""
        return len(self.names)

    def rows(self, index: Any) -> Batches:
        """Return the batches of some rows, with the same names."""
        return replace(self, codes=self.codes[index])

    @property
    def members(self) -> csr_array:
        """Ones at the rows of each batch, (B, n)."""
        n = len(self.codes)
        return csr_array((np.ones(n), (self.codes, np.arange(n))), shape=(self.number, n))

    def totals(self, counts: Any) -> Array:
        """Return sums of counts (n, m), in memory or on disk, over the rows of each batch, (B, m)."""
        parts = (self.rows(rows).members @ part.matrix.astype(np.float64) for rows, part in counts.parts())
        return np.asarray(sum(parts).toarray())

    def sums(self, factor: Array) -> Array:
        """Return sums of the rows of a factor (n, K) over each batch, (B, K), in float64."""
        return np.asarray(self.members @ np.asarray(factor, np.float64))


SMALLEST_SHAPE = 1e-3  # of Gamma(a, a), whose standard deviation 1/√a is 32 times its mean there


def check_shape_of_factors(shape: Any) -> float:
    """Return the shape of the prior of factors; refuse one with which factors have no scale that can be computed."""
    found = check_positive(shape, "shape")
    if found < SMALLEST_SHAPE:
        raise ValueError(
            f"shape must be at least {SMALLEST_SHAPE:g}, where factors of features differ by hundreds of times: "
            f"found {found:g}; leave shape out, to learn it"
        )
    return found


def with_batch(counts: Any, batch: Any, source: Any = None) -> Any:
    """Return counts with the given batches of their rows; with their own if none are given.

    Parameters
    ----------
    counts : Counts
    batch : Batch, list, array, mapping, Series, str or None
    source : object, optional
        What the counts were made from: an AnnData object has columns.

    Raises
    ------
    TypeError, ValueError
        Labels that are missing or too many, a single batch, or a column that does not exist.
    """
    if batch is None:
        return counts
    given = batch if isinstance(batch, Batch) else Batch(batch)
    labels = _labels(given.labels, counts.row_names, source)
    names = sorted({*labels})
    if len(names) < 2:
        raise ValueError(
            f"batch must have at least two different labels: found {shown(names[0])} alone; leave batch out"
        )
    alone = sum(number == 1 for number in Counter(labels).values())
    if 2 * alone > len(labels):
        warn_of_data(
            f"batch has another label for each of {alone} of {len(labels)} rows, so that factors of features take up "
            "what rows differ in, and nothing is left for components; give rows that were measured together the same "
            "label"
        )
    return replace(counts, batch=Batches(np.array(names, dtype=object), _codes(labels, names), given.shape))


def with_known_batch(counts: Any, batch: Any, known: Batches | None, source: Any = None) -> Any:
    """Return counts of new rows with batches among the known ones; a last one stands for all others, with a warning.

    Raises
    ------
    TypeError, ValueError
        Labels for rows of a fit without batches, or none for those of a fit with batches.
    """
    own = counts.batch
    if batch is None and (known is None or (own is not None and np.array_equal(own.names, known.names))):
        return counts
    if known is None:
        raise ValueError("batch needs a fit with batches: found one without; leave batch out")
    if batch is None:
        raise ValueError(
            "batch must be given for new rows of a fit with batches: give their labels, of "
            f"{listed(known.names.tolist())} or new ones, whose factors are 1"
        )
    labels = _labels(batch.labels if isinstance(batch, Batch) else batch, counts.row_names, source)
    names = known.names.tolist()
    new = [label for label in dict.fromkeys(labels) if label not in names]
    if new:
        warn_of_data(
            f"batch has {len(new)} labels that the fit does not have: {listed(new)}; the factors of their features are "
            "taken as 1, the mean of their prior"
        )
    every = [*names, *new]
    return replace(counts, batch=Batches(np.array(every, dtype=object), _codes(labels, every), known.shape))


def _codes(labels: list[str], names: list[str]) -> Array:
    places = {name: place for place, name in enumerate(names)}
    return np.array([places[label] for label in labels], np.intp)


def _labels(given: Any, row_names: Array, source: Any) -> list[str]:
    """Return the label of each row as text: of a column of ``obs``, or of given labels in the order of the rows."""
    if isinstance(given, str):
        given = column_of(given, source)
    if is_frame(given) and given.shape[1] == 1:
        given = given.iloc[:, 0]
    if not isinstance(given, Iterable):
        raise TypeError(
            f"batch must be a list, a mapping or a Series of labels: found {shown(given)}; give one for each row"
        )
    values = in_order(given, row_names, Order("batch", more=True))
    flat = getattr(values, "ndim", 1) == 1
    entries = list(values) if flat else []
    if len(entries) != len(row_names) or any(np.ndim(each) for each in entries):
        found = len(entries) if flat else f"shape {np.shape(values)}"
        raise ValueError(f"batch must have one label for each of {len(row_names)} rows: found {found}; give a list")
    without = sum(is_missing(each) for each in entries)
    if without:
        raise ValueError(
            f"batch must have a label for each row: {without} are missing values; give these rows a label of their own"
        )
    return [readable(each) for each in entries]


def column_of(name: str, source: Any) -> Any:
    """Return a column of ``obs`` of the AnnData object that counts are from, or `Blocks` of one."""
    adata = getattr(source, "source", source)
    if not is_annotated(adata) or not hasattr(adata, "obs"):
        raise TypeError(
            f"batch={name!r} names a column of an AnnData object, and the counts are in {type(source).__name__}; give "
            "the labels themselves"
        )
    if name not in adata.obs:
        raise ValueError(f"batch must be a column of obs: found {name!r}; there are {listed([*map(str, adata.obs)])}")
    return adata.obs[name]


def warn_of_confounding(batches: Batches | None, groups: list[str], members: list[Array]) -> None:
    """Warn if batches tell groups apart, or groups batches: factors then take up what groups differ in, or part of it.

    Parameters
    ----------
    batches : Batches or None
    groups : list of str
        Names of groups.
    members : list of ndarray
        Rows of each group.
    """
    rows = [each for each in members if len(each)]
    if batches is None or len(rows) < 2:
        return
    table = np.array([np.bincount(batches.codes[each], minlength=batches.number) for each in rows]) > 0
    used = table[:, table.any(axis=0)]
    if used.shape[1] < 2 or not ((used.sum(axis=0) == 1).all() or (used.sum(axis=1) == 1).all()):
        return
    own = [f"{name!r} in {listed(batches.names[each].tolist())}" for name, each in zip(groups, table, strict=False)]
    warn_of_data(
        f"groups are confounded with batch: {'; '.join(own[:3])}{'; …' * (len(own) > 3)}. What groups differ in cannot "
        "be told from what batches differ in; fit without batch, or compare groups within batches"
    )


def check_no_batches(counts: Any, what: str) -> Any:
    """Return counts; refuse those in batches, as of a simulation or a fit, for what has no factors of batches."""
    if counts.batch is not None:
        raise ValueError(f"{what} needs counts without batches, as it has no factors of them: give counts.matrix")
    return counts
