"""A state to start from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from bayesnmf.priors import Distribution, ScaledProportions
from bayesnmf.priors.pair import copy_sides

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Start:
    """A state to start from: factors, or variational parameters, for each side.

    Under map, gibbs and nuts a factor is taken as it is; under vi and svi the first q is the conditional given the
    expected allocations at the factors. A distribution is the q itself under vi and svi; under map its mean, under
    gibbs and nuts a draw from it. Arrays are copied.

    Attributes
    ----------
    loadings : ndarray (n, K), ScaledProportions or a distribution
    components : ndarray (K, m) or a distribution
    """

    loadings: Array | ScaledProportions | Distribution
    components: Array | Distribution

    def __post_init__(self) -> None:
        copy_sides(self)
