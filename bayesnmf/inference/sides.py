"""The two sides of the factorisation, and the three ways to carry one: mode, mean field, draw.

Given allocations, the loadings and the components separate, and each has a conjugate conditional,
``prior.conditional(total, exposure)``. What is done with it is the whole difference between the algorithms::

    EM, multiplicative updates, MAP     its mode
    variational inference               itself (mean field)
    Gibbs                               a draw from it
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bayesnmf.data.counts import Counts
from bayesnmf.kernels.cpu.mean_field import Moments
from bayesnmf.kernels.cpu.sums import sum_rows
from bayesnmf.priors import Distribution, matrix
from bayesnmf.priors.arrays import as_number, float64_on_device, namespace_of, on_host
from bayesnmf.priors.values import Value, parts_of, separate_scale

Array = NDArray[Any]
Basis = Literal["natural", "log"]


class Side:
    """Loadings or components as an algorithm carries them between updates.

    Attributes
    ----------
    value : ndarray or ScaledProportions
        The mode, the expectation or the draw.
    geometric : ndarray
        What the allocation step multiplies: the value itself or exp E log, times any row (column) factor that
        cancels from the responsibilities.
    log_shift : ndarray or None
        Logarithm of that factor, (n, 1) or (1, m): log U = log geometric + log_shift. None is 0.
    penalty : float
        What the side adds to the objective: log prior density of a mode or draw, −KL of a mean field, in nats.
    conditional : Distribution or None
        The mean field; None for modes and draws.
    """

    conditional: Distribution | None = None

    def __init__(self, value: Value, geometric: Array, log_shift: Array | None, penalty: float) -> None:
        self.value, self.geometric, self.log_shift, self.penalty = value, geometric, log_shift, penalty
        self.dtype = geometric.dtype
        self._sums: dict[int, Array] = {}

    @property
    def matrix(self) -> Array:
        """The value as one matrix, (n, K) or (K, m)."""
        return matrix(self.value)

    def sums(self, component_axis: int) -> Array:
        """Σ of the value for each component, (K,), float64; components are in columns (1) or in rows (0)."""
        if component_axis not in self._sums:
            value = self.matrix
            rows = value if component_axis == 1 else value.T
            self._sums[component_axis] = sum_rows(rows) if on_host(rows) else rows.sum(axis=0, dtype=np.float64)
        return self._sums[component_axis]

    def forget(self) -> None:
        """Free cached arrays, which can be computed again."""


class Field(Side):
    """A side that is a mean field: its means and geometric means are made when asked for."""

    def __init__(self, conditional: Distribution, component_axis: int, found: Moments) -> None:
        self.conditional, self._component_axis = conditional, component_axis
        self.log_shift, self.penalty = found.shift, -found.divergence
        self._sums = {} if found.sums is None else {component_axis: found.sums}
        self._geometric: Array | None = found.geometric
        self.dtype = found.geometric.dtype

    @property
    def value(self) -> Value:  # type: ignore[override]
        """The expectation."""
        return self.conditional.mean()  # type: ignore[union-attr]

    @property
    def geometric(self) -> Array:  # type: ignore[override]
        """Exp E log, less the shift."""
        if self._geometric is None:
            return self.conditional.moments(None, self._component_axis).geometric  # type: ignore[union-attr]
        return self._geometric

    def forget(self) -> None:
        """Let go of the geometric means."""
        self._geometric = None


class Summary(Protocol):
    """How a conditional is carried; `basis` is that of a mode, else None."""

    @property
    def basis(self) -> Basis | None:
        """The basis of a mode."""

    def carry(
        self, prior: Distribution, total: Array, exposure: Array, previous: Side | None, *, reuse: bool = False
    ) -> Side:
        """Carry the conditional of `prior` given a total, which may be overwritten with `reuse`, and an exposure."""

    def of(self, prior: Distribution, conditional: Distribution) -> Side:
        """Carry a distribution that is given."""


def _point(value: Value, penalty: float) -> Side:
    """Carry a single value; a scale cancels from the responsibilities, and enters ℓ as a shift."""
    shares, scale = separate_scale(value)
    if scale is None:
        return Side(value, shares, None, penalty)
    with np.errstate(divide="ignore"):  # the scale of an empty row may be 0; no count meets its logarithm
        return Side(value, shares, namespace_of(scale).xp.log(float64_on_device(scale[:, None])), penalty)


@dataclass(frozen=True)
class Mode:
    """Carry the mode, in the natural basis or in the log (softmax) basis, where it is the mean.

    In the log basis the objective includes the Jacobian, Σ log value. A side without a prior
    (`estimated`: a parameter) adds nothing.
    """

    basis: Basis = "natural"
    estimated: bool = False

    def carry(
        self, prior: Distribution, total: Array, exposure: Array, previous: Side | None, *, reuse: bool = False
    ) -> Side:
        """Take the mode; where it is not unique, keep the previous value."""
        if self.basis == "log":
            return self.of(prior, prior.conditional(total, exposure, reuse=reuse))
        kept: Any = previous.value if previous else None
        return self.at(prior, prior.mode(total, exposure, kept, reuse=reuse))

    def of(self, prior: Distribution, conditional: Distribution) -> Side:
        """Take the mean: the mode in the log basis, and a start in either."""
        return self.at(prior, conditional.mean())

    def at(self, prior: Distribution, value: Any) -> Side:
        """Carry a given value."""
        penalty = 0.0 if self.estimated else prior.log_density(value)
        if self.basis == "log":
            with np.errstate(divide="ignore"):  # at a start with zeros the density of the logarithms is 0
                jacobian = prior.log_jacobian(value)
            xp = namespace_of(jacobian).xp
            penalty = as_number(xp.where(xp.isfinite(jacobian), penalty + jacobian, -np.inf))
        return _point(value, penalty)


@dataclass(frozen=True)
class MeanField:
    """Carry the conditional itself; `component_axis` is 1 for loadings (n, K), 0 for components (K, m).

    Without `penalised` the penalty is not a number: −KL costs as much as the rest, and only the objective needs it.
    It is found on `threads` threads (None: as many as pay).
    """

    component_axis: int
    penalised: bool = True
    threads: int | None = None

    basis = None

    def carry(
        self, prior: Distribution, total: Array, exposure: Array, previous: Side | None, *, reuse: bool = False
    ) -> Side:
        """Carry the whole conditional."""
        return self.of(prior, prior.conditional(total, exposure, reuse=reuse))

    def of(self, prior: Distribution, conditional: Distribution) -> Side:
        """Take exp E log for the allocations and the mean for the exposure."""
        given: Any = conditional
        found = given.moments(prior if self.penalised else None, self.component_axis, self.threads)
        return Field(conditional, self.component_axis, found)


@dataclass(frozen=True)
class Draw:
    """Carry a draw from `rng`, made on `threads` threads (None: as many as pay), on which it does not depend."""

    rng: np.random.Generator
    threads: int | None = 1

    basis = None

    def carry(
        self, prior: Distribution, total: Array, exposure: Array, previous: Side | None, *, reuse: bool = False
    ) -> Side:
        """Draw from the conditional."""
        return self.of(prior, prior.conditional(total, exposure, reuse=reuse))

    def of(self, prior: Distribution, conditional: Distribution) -> Side:
        """Draw from a given distribution."""
        return self.at(prior, conditional.draw(self.rng, threads=self.threads))

    def at(self, prior: Distribution, value: Any) -> Side:
        """Carry a given value."""
        return _point(value, prior.log_density(value))


class State(NamedTuple):
    """Both sides: loadings (n, K) and components (K, m)."""

    loadings: Side
    components: Side


def parameters_of(side: Side) -> tuple[Array, ...]:
    """Return the positive arrays that state a side: parameters of its mean field, or its value."""
    if side.conditional is not None:
        return tuple(side.conditional.parameters.values())
    return parts_of(side.value)


def side_of(prior: Distribution, summary: Any, like: Side, parameters: list[Array]) -> Side:
    """Carry a side with other parameters, of the kind of `like`; a mode on the simplex is normalised."""
    if like.conditional is not None:
        return summary.of(prior, type(like.conditional)(*parameters))
    return summary.at(prior, prior.value_of(parameters))


@dataclass(frozen=True)
class Problem:
    """Counts, and for each side its prior and the way it is carried.

    `fixed_components` leaves the components as they are: `transform` of new samples. Without `constant` the objective
    leaves out Σ log X!, which is a pass over the counts and which no parameter enters. `cells` are the counts on a
    device, where the factors are then, too.
    """

    counts: Counts
    loadings_prior: Distribution
    components_prior: Distribution
    loadings_summary: Summary
    components_summary: Summary
    fixed_components: bool = False
    constant: bool = True
    cells: Any = None


def exposure_of_loadings(state: State) -> Array:
    """Σ_j β_kj, (1, K)."""
    return state.components.sums(0)[None, :].astype(state.components.dtype)


def exposure_of_components(state: State) -> Array:
    """Σ_i θ_ik, (K, 1)."""
    return state.loadings.sums(1)[:, None].astype(state.loadings.dtype)


def update_loadings(problem: Problem, state: State, total: Array, *, reuse: bool = False) -> State:
    """Replace the loadings by the summary of their conditional, given their total (n, K).

    With `reuse` the total may be overwritten: what follows is made in its memory.
    """
    given = problem.loadings_prior, total, exposure_of_loadings(state), state.loadings
    return state._replace(loadings=problem.loadings_summary.carry(*given, reuse=reuse))


def update_components(problem: Problem, state: State, total: Array, *, reuse: bool = False) -> State:
    """Replace the components by the summary of their conditional, given their total (K, m); `reuse` as above."""
    if problem.fixed_components:
        return state
    given = problem.components_prior, total, exposure_of_components(state), state.components
    return state._replace(components=problem.components_summary.carry(*given, reuse=reuse))


def objective(problem: Problem, state: State, loglik: float) -> float:
    """The one objective: log joint or evidence lower bound, Poisson scale, in nats.

    ``ℓ − Σ_k (Σ_i Eθ_ik)(Σ_j Eβ_kj) − Σ log X! + penalty(θ) + penalty(β)``, with ℓ = Σ X log(UV) from the
    allocation step at `state`. The penalty is the log prior density of a mode or a draw, −KL of a mean field.
    """
    counts, (loadings, components) = problem.counts, state
    if loadings.log_shift is not None:
        shift = np.where(counts.row_totals > 0, loadings.log_shift.ravel(), 0)
        loglik += float(counts.row_totals @ shift)
    if components.log_shift is not None:
        loglik += float(counts.feature_totals @ components.log_shift.ravel())
    exposure = float(loadings.sums(1) @ components.sums(0))
    constant = counts.log_factorial if problem.constant else 0.0
    return float(loglik - exposure - constant + loadings.penalty + components.penalty)
