"""The tools, a file each: what to install, and the ways in which its users call it.

A file is imported by the arena, which reads `REQUIREMENTS` and `WAYS`, and by the tool's own Python, which has NumPy
and SciPy beside the tool and not bayesnmf. So the tool itself is imported inside functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

Array = NDArray[Any]


@dataclass(frozen=True)
class Job:
    """What a tool is given.

    Attributes
    ----------
    counts : csr_array of shape (n, m)
        Counts in float64.
    rank : int
        Number of components.
    seed, threads : int
    catalogue : ndarray of shape (K, m) or None
        Components that are known, of a refit.
    """

    counts: csr_array
    rank: int
    seed: int
    threads: int
    catalogue: Array | None = None


@dataclass(frozen=True)
class Way:
    """One way to call a tool.

    Attributes
    ----------
    tasks : tuple of str
        Tasks that it can do.
    call : callable
        Function of the job and the settings that returns arrays: `loadings` (n, K) and `components` (K, m), whose
        product is proportional to the means of each row, or predicts items; of a refit `present` (n, K), too.
    settings : mapping
    most_entries : int or None
        Number of entries n·m above which it is not tried, as of tools that fill zeros in.
    warm : bool
        Whether it first fits a few rows, so that seconds have no imports and no compiling.
    """

    tasks: tuple[str, ...]
    call: Callable[..., Mapping[str, Array]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    most_entries: int | None = None
    warm: bool = True


def as_tokens(counts: csr_array) -> list[list[str]]:
    """Return the words of each document, which are the numbers of the features."""
    words = np.array([str(j) for j in range(counts.shape[1])])
    bounds, numbers = counts.indptr, counts.data.astype(int)
    return [np.repeat(words[counts.indices[a:b]], numbers[a:b]).tolist() for a, b in pairwise(bounds)]


def of_all_words(topics: Array, words: list[str], size: int) -> Array:
    """Return topics (K, size) of all features from those of the words that a tool has kept."""
    found = np.zeros((len(topics), size))
    found[:, [int(word) for word in words]] = topics
    return found


def of_all_rows(loadings: Array, counts: csr_array) -> Array:
    """Return loadings of all rows from those of rows with counts; the others have the mean."""
    found = np.tile(loadings.mean(axis=0), (counts.shape[0], 1))
    found[np.diff(counts.indptr) > 0] = loadings
    return found
