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

from bayesnmf.counts import Counts
from bayesnmf.kernels.cpu import sum_rows
from bayesnmf.priors import Dirichlet, Distribution, Gamma, ScaledProportions, matrix

Array = NDArray[Any]
Value = Array | ScaledProportions
Basis = Literal["natural", "log"]


@dataclass(frozen=True, eq=False)
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

    value: Value
    geometric: Array
    log_shift: Array | None
    penalty: float
    conditional: Distribution | None = None

    @property
    def matrix(self) -> Array:
        """The value as one matrix, (n, K) or (K, m)."""
        return matrix(self.value)


class Summary(Protocol):
    """How a conditional is carried."""

    def carry(self, prior: Distribution, total: Array, exposure: Array, previous: Side | None) -> Side:
        """Carry the conditional of `prior` given a total and an exposure."""

    def of(self, prior: Distribution, conditional: Distribution) -> Side:
        """Carry a distribution that is given."""


def _point(value: Value, penalty: float) -> Side:
    """Carry a single value; a scale cancels from the responsibilities, and enters ℓ as a shift."""
    if isinstance(value, ScaledProportions):
        with np.errstate(divide="ignore"):  # the scale of an empty row may be 0; no count meets its logarithm
            return Side(value, value.proportions, np.log(value.scale), penalty)
    return Side(value, value, None, penalty)


@dataclass(frozen=True)
class Mode:
    """Carry the mode, in the natural basis or in the log (softmax) basis, where it is the mean.

    In the log basis the objective includes the Jacobian, Σ log value. A side without a prior
    (`estimated`: a parameter) adds nothing.
    """

    basis: Basis = "natural"
    estimated: bool = False

    def carry(self, prior: Distribution, total: Array, exposure: Array, previous: Side | None) -> Side:
        """Take the mode; where it is not unique, keep the previous value."""
        if self.basis == "log":
            return self.of(prior, prior.conditional(total, exposure))
        kept: Any = previous.value if previous else None
        return self.at(prior, prior.mode(total, exposure, kept))

    def of(self, prior: Distribution, conditional: Distribution) -> Side:
        """Take the mean: the mode in the log basis, and a start in either."""
        return self.at(prior, conditional.mean())

    def at(self, prior: Distribution, value: Any) -> Side:
        """Carry a given value."""
        penalty = 0.0 if self.estimated else prior.log_density(value)
        if self.basis == "log":
            with np.errstate(divide="ignore"):  # at a start with zeros the density of the logarithms is 0
                jacobian = prior.log_jacobian(value)
            penalty = penalty + jacobian if np.isfinite(jacobian) else -np.inf
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

    def carry(self, prior: Distribution, total: Array, exposure: Array, previous: Side | None) -> Side:
        """Carry the whole conditional."""
        return self.of(prior, prior.conditional(total, exposure))

    def of(self, prior: Distribution, conditional: Distribution) -> Side:
        """Take exp E log for the allocations and the mean for the exposure."""
        given: Any = conditional
        found = given.moments(prior if self.penalised else None, self.component_axis, self.threads)
        return Side(found.mean, found.geometric, found.shift, -found.divergence, conditional)


@dataclass(frozen=True)
class Draw:
    """Carry a draw from `rng`, made on `threads` threads (None: as many as pay), on which it does not depend."""

    rng: np.random.Generator
    threads: int | None = 1

    def carry(self, prior: Distribution, total: Array, exposure: Array, previous: Side | None) -> Side:
        """Draw from the conditional."""
        return self.of(prior, prior.conditional(total, exposure))

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
        return tuple(vars(side.conditional).values())
    return tuple(side.value) if isinstance(side.value, ScaledProportions) else (side.value,)


def side_of(prior: Distribution, summary: Any, like: Side, parameters: list[Array]) -> Side:
    """Carry a side with other parameters, of the kind of `like`; a mode on the simplex is normalised."""
    if like.conditional is not None:
        return summary.of(prior, type(like.conditional)(*parameters))
    if isinstance(prior, Gamma):
        return summary.at(prior, parameters[0])
    parameters[0] = parameters[0] / parameters[0].sum(axis=-1, keepdims=True)
    value = ScaledProportions(*parameters) if isinstance(like.value, ScaledProportions) else parameters[0]
    return summary.at(prior, value)


@dataclass(frozen=True)
class Problem:
    """Counts, and for each side its prior and the way it is carried.

    `fixed_components` leaves the components as they are: `transform` of new samples.
    """

    counts: Counts
    loadings_prior: Distribution
    components_prior: Gamma | Dirichlet
    loadings_summary: Summary
    components_summary: Summary
    fixed_components: bool = False


def exposure_of_loadings(state: State) -> Array:
    """Σ_j β_kj, (1, K)."""
    components = state.components.matrix
    return sum_rows(components.T)[None, :].astype(components.dtype)


def exposure_of_components(state: State) -> Array:
    """Σ_i θ_ik, (K, 1)."""
    loadings = state.loadings.matrix
    return sum_rows(loadings)[:, None].astype(loadings.dtype)


def update_loadings(problem: Problem, state: State, total: Array) -> State:
    """Replace the loadings by the summary of their conditional, given their total (n, K)."""
    prior, summary = problem.loadings_prior, problem.loadings_summary
    return state._replace(loadings=summary.carry(prior, total, exposure_of_loadings(state), state.loadings))


def update_components(problem: Problem, state: State, total: Array) -> State:
    """Replace the components by the summary of their conditional, given their total (K, m)."""
    if problem.fixed_components:
        return state
    prior, summary = problem.components_prior, problem.components_summary
    return state._replace(components=summary.carry(prior, total, exposure_of_components(state), state.components))


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
    exposure = float(sum_rows(loadings.matrix) @ sum_rows(components.matrix.T))
    return loglik - exposure - counts.log_factorial + loadings.penalty + components.penalty
