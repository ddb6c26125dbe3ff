"""A state to start from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from bayesnmf.priors import Distribution, ScaledProportions
from bayesnmf.priors.pair import copy_sides
from bayesnmf.types import Array


class FitToStartFrom(Protocol):
    """A fit, from whose estimates another one starts."""

    @property
    def loadings(self) -> Array:
        """Loadings, (n, K)."""

    @property
    def components(self) -> Array:
        """Components, (K, m)."""

    @property
    def estimate(self) -> Any:
        """The mean field or the draws that these come from."""


@dataclass(frozen=True, eq=False)
class Start:
    """State to start from: values or distributions of both sides.

    Values are used unchanged under map, gibbs and nuts; under vi and svi, the first q is the conditional given the
    expected allocations at these values. A distribution is used as the first q under vi and svi; map starts from its
    mean, gibbs and nuts start from a draw from it. Arrays are copied.

    Attributes
    ----------
    loadings : ndarray of shape (n, K), ScaledProportions or a distribution
        Loadings, on the scale of the model.
    components : ndarray of shape (K, m) or a distribution
        Components, on the scale of the model.

    See Also
    --------
    MAP, VI, Gibbs : options that take it.
    Seeds : a start and a prior from lists of features.

    Examples
    --------
    >>> import bayesnmf
    >>> start = bayesnmf.Start([[1, 2], [2, 1], [3, 1], [1, 4]], [[0.8, 0.1, 0.1], [0.1, 0.3, 0.6]])
    >>> counts = [[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]]
    >>> fit = bayesnmf.fit(counts, rank=2, seed=0, options=bayesnmf.VI(start=start))
    """

    loadings: Array | ScaledProportions | Distribution
    components: Array | Distribution

    def __post_init__(self) -> None:
        copy_sides(self)
