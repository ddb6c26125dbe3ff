"""A side of the factorisation, loadings or components, between two updates of an algorithm."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesnmf.kernels.cpu.exact_sums import ExactSums
from bayesnmf.kernels.cpu.mean_field import Moments
from bayesnmf.kernels.cpu.sums import sum_rows
from bayesnmf.priors import Distribution, matrix
from bayesnmf.priors.arrays import on_host
from bayesnmf.priors.values import Value

Array = NDArray[Any]


class Side:
    """Loadings or components between two updates of an algorithm.

    Attributes
    ----------
    value : ndarray or ScaledProportions
        The mode, the expectation or the draw.
    geometric : ndarray
        Input of the allocation step: the value itself or exp E log, without the row (column) factor exp(log_shift),
        which cancels from the responsibilities.
    log_shift : ndarray or None
        Logarithm of that factor, (n, 1) or (1, m): log U = log geometric + log_shift. None is 0.
    penalty : float
        Term of the objective for this side, in nats: log prior density of a mode or draw, −KL of a mean field.
    conditional : Distribution or None
        The mean field; None for modes and draws.
    """

    conditional: Distribution | None = None
    in_memory = True

    def __init__(self, value: Value, geometric: Array, log_shift: Array | None, penalty: float) -> None:
        self.value, self.geometric, self.log_shift, self.penalty = value, geometric, log_shift, penalty
        self.dtype = geometric.dtype
        self._sums: dict[int, Array] = {}
        self._exposed_sums: dict[int, tuple[Array, Array]] = {}

    @property
    def matrix(self) -> Array:
        """The value as one matrix, (n, K) or (K, m)."""
        return matrix(self.value)

    def sums(self, component_axis: int) -> Array:
        """Return Σ of the value for each component, (K,), float64; components are in columns (1) or in rows (0)."""
        if component_axis not in self._sums:
            value = self.matrix
            rows = value if component_axis == 1 else value.T
            self._sums[component_axis] = sum_rows(rows) if on_host(rows) else rows.sum(axis=0, dtype=np.float64)
        return self._sums[component_axis]

    def exposed_sums(self, component_axis: int, exposure: Array | None) -> Array:
        """Return Σ of the value times the exposure of its rows or features, for each component, (K,), float64."""
        if exposure is None:
            return self.sums(component_axis)
        if component_axis not in self._exposed_sums or self._exposed_sums[component_axis][0] is not exposure:
            rows = (self.matrix if component_axis == 1 else self.matrix.T) * exposure[:, None]
            self._exposed_sums[component_axis] = exposure, sum_rows(rows) if on_host(rows) else rows.sum(axis=0)
        return self._exposed_sums[component_axis][1]

    def row_sums(self, exposure: Array | None) -> Array | ExactSums:
        """Return the exposed sums of loadings, to be added to those of other rows."""
        return self.exposed_sums(1, exposure)

    def forget(self) -> None:
        """Free cached arrays, which can be computed again."""

    def whole(self) -> tuple[Value, Distribution | None]:
        """Return the value and the mean field of all rows."""
        return self.value, self.conditional


def empty_side() -> Side:
    """Return a side without entries, in place of one that is not needed."""
    return Side(np.empty((0, 0)), np.empty((0, 0)), None, 0.0)


class Drawn(Side):
    """A side that is a draw; sums of loadings do not depend on how rows are cut into blocks, not even in a bit."""

    def sums(self, component_axis: int) -> Array:
        """Return Σ of the value for each component, (K,), float64."""
        if component_axis == 0:
            return super().sums(component_axis)
        return self.exposed_sums(component_axis, None)

    def exposed_sums(self, component_axis: int, exposure: Array | None) -> Array:
        """Return Σ of the value times the exposure of its rows or features, for each component, (K,), float64."""
        if component_axis == 0:
            return super().exposed_sums(component_axis, exposure)
        if component_axis not in self._exposed_sums or self._exposed_sums[component_axis][0] is not exposure:
            self._exposed_sums[component_axis] = exposure, self.row_sums(exposure).rounded()  # type: ignore[assignment]
        return self._exposed_sums[component_axis][1]

    def row_sums(self, exposure: Array | None) -> ExactSums:
        """Return the exposed sums of loadings, to be added to those of other rows."""
        return ExactSums(self.matrix if exposure is None else self.matrix * exposure[:, None])


class Field(Side):
    """A side that is a mean field; means and geometric means are computed on demand."""

    def __init__(self, conditional: Distribution, component_axis: int, found: Moments) -> None:
        self.conditional, self._component_axis = conditional, component_axis
        self.log_shift, self.penalty = found.shift, -found.divergence
        self._sums = {} if found.sums is None else {component_axis: found.sums}
        self._exposed_sums = {}
        self._geometric: Array | None = found.geometric
        self.dtype = found.geometric.dtype

    @property
    def value(self) -> Value:  # type: ignore[override]
        """The expectation."""
        return self.conditional.mean()  # type: ignore[union-attr]

    @property
    def geometric(self) -> Array:  # type: ignore[override]
        """Geometric means without the shift, exp(E log x − shift)."""
        if self._geometric is None:
            return self.conditional.moments(None, self._component_axis).geometric  # type: ignore[union-attr]
        return self._geometric

    def forget(self) -> None:
        """Free the geometric means, which can be computed again."""
        self._geometric = None
