"""The positive arrays that define a side, for algorithms that move along lines: gradient ascent and extrapolation."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from bayesnmf.inference.side import Side
from bayesnmf.priors import Distribution
from bayesnmf.priors.values import parts_of

Array = NDArray[Any]


def parameters_of(side: Side) -> tuple[Array, ...]:
    """Return the positive arrays that define a side: the parameters of its mean field, or its value.

    Loadings in files stand for themselves.
    """
    if not side.in_memory:
        return (side,)  # type: ignore[return-value]
    if side.conditional is not None:
        return tuple(side.conditional.parameters.values())
    return parts_of(side.value)


def side_of(prior: Distribution, summary: Any, like: Side, parameters: list[Array]) -> Side:
    """Return a side of the kind of `like` with other parameters; a mode on the simplex is normalised."""
    if like.conditional is not None:
        named = dict(zip(like.conditional.parameters, parameters, strict=True))
        return summary.of(prior, like.conditional.with_parameters(named))
    return summary.at(prior, prior.value_of(parameters))
