"""The two sides of the factorisation, and the three ways to summarise a conditional: mode, mean field, draw.

Given allocations, the loadings and the components are independent, and each has a conjugate conditional,
``prior.conditional(total, exposure)``. The algorithms differ only in how they use this conditional::

    EM, multiplicative updates, MAP     its mode
    variational inference               the conditional itself (mean field)
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
from bayesnmf.priors.values import Value, separate_scale

Array = NDArray[Any]
Basis = Literal["natural", "log"]


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

    def forget(self) -> None:
        """Free cached arrays, which can be computed again."""


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


class Summary(Protocol):
    """Interface of the ways to summarise a conditional as a side."""

    @property
    def basis(self) -> Basis | None:
        """Basis of a mode; None for other summaries."""

    def carry(
        self, prior: Distribution, total: Array, exposure: Array, previous: Side | None, *, reuse: bool = False
    ) -> Side:
        """Return the summary of the conditional given a total and an exposure; `reuse` may overwrite the total."""

    def of(self, prior: Distribution, conditional: Distribution) -> Side:
        """Return the summary of a given distribution."""


def _side_of_value(value: Value, penalty: float) -> Side:
    """Return the side of a single value; a scale cancels from the responsibilities, and enters ℓ as a shift."""
    shares, scale = separate_scale(value)
    if scale is None:
        return Side(value, shares, None, penalty)
    with np.errstate(divide="ignore"):  # the scale of an empty row may be 0; its logarithm is not used
        return Side(value, shares, namespace_of(scale).xp.log(float64_on_device(scale[:, None])), penalty)


@dataclass(frozen=True)
class Mode:
    """Summary by the mode, in the natural basis or in the log (softmax) basis, where it equals the mean.

    In the log basis the objective includes the Jacobian, Σ log value. A side without a prior (`estimated`) adds
    nothing to the objective.
    """

    basis: Basis = "natural"
    estimated: bool = False

    def carry(
        self, prior: Distribution, total: Array, exposure: Array, previous: Side | None, *, reuse: bool = False
    ) -> Side:
        """Return the mode of the conditional; where it is not unique, the previous value."""
        if self.basis == "log":
            return self.of(prior, prior.conditional(total, exposure, reuse=reuse))
        kept: Any = previous.value if previous else None
        return self.at(prior, prior.mode(total, exposure, kept, reuse=reuse))

    def of(self, prior: Distribution, conditional: Distribution) -> Side:
        """Return the mean, which is the mode in the log basis, and a start in both bases."""
        return self.at(prior, conditional.mean())

    def at(self, prior: Distribution, value: Any) -> Side:
        """Return the side of a given value."""
        penalty = 0.0 if self.estimated else prior.log_density(value)
        if self.basis == "log":
            with np.errstate(divide="ignore"):  # a start may contain zeros, where the density of the logarithms is 0
                jacobian = prior.log_jacobian(value)
            xp = namespace_of(jacobian).xp
            penalty = as_number(xp.where(xp.isfinite(jacobian), penalty + jacobian, -np.inf))
        return _side_of_value(value, penalty)


@dataclass(frozen=True)
class MeanField:
    """Summary by the conditional itself; `component_axis` is 1 for loadings (n, K), 0 for components (K, m).

    If `penalised` is False, the penalty is NaN: −KL costs as much as all other moments, and only the objective needs
    it. `threads` is the number of threads for the moments; None chooses the fastest.
    """

    component_axis: int
    penalised: bool = True
    threads: int | None = None

    basis = None

    def carry(
        self, prior: Distribution, total: Array, exposure: Array, previous: Side | None, *, reuse: bool = False
    ) -> Side:
        """Return the conditional as a side."""
        return self.of(prior, prior.conditional(total, exposure, reuse=reuse))

    def of(self, prior: Distribution, conditional: Distribution) -> Side:
        """Return a side with exp E log for the allocations and the mean for the exposure."""
        given: Any = conditional
        if not self.penalised:
            return Field(conditional, self.component_axis, given.moments(None, self.component_axis, self.threads))
        plain, more = prior.averaged(conditional)
        found = given.moments(plain, self.component_axis, self.threads)
        return Field(conditional, self.component_axis, found._replace(divergence=found.divergence + more))


@dataclass(frozen=True)
class Draw:
    """Summary by a draw from `rng`, which does not depend on `threads` (None chooses the fastest number)."""

    rng: np.random.Generator
    threads: int | None = 1

    basis = None

    def carry(
        self, prior: Distribution, total: Array, exposure: Array, previous: Side | None, *, reuse: bool = False
    ) -> Side:
        """Return a draw from the conditional; parameters that entries share are drawn first, given the entries."""
        given = prior if previous is None else prior.drawn(previous.matrix, self.rng)
        return self.of(prior, given.conditional(total, exposure, reuse=reuse))

    def of(self, prior: Distribution, conditional: Distribution) -> Side:
        """Return a draw from a given distribution."""
        return self.at(prior, conditional.draw(self.rng, threads=self.threads))

    def at(self, prior: Distribution, value: Any) -> Side:
        """Return the side of a given value."""
        return _side_of_value(value, prior.log_density(value))


class State(NamedTuple):
    """Both sides: loadings (n, K) and components (K, m)."""

    loadings: Side
    components: Side


@dataclass(frozen=True)
class Problem:
    """Counts, and the prior and summary of each side.

    With `fixed_components` the components are never updated, as for `transform` of new samples. Without `constant` the
    objective leaves out Σ log X!, which needs a pass over the counts and depends on no parameter. `cells` are the
    counts on a device; the factors are then on the device too.
    """

    counts: Counts
    loadings_prior: Distribution
    components_prior: Distribution
    loadings_summary: Summary
    components_summary: Summary
    fixed_components: bool = False
    constant: bool = True
    cells: Any = None


def exposure_of_loadings(problem: Problem, components: Side) -> Array:
    """Return r_i Σ_j c_j β_kj, (1 or n, K); r_i, (1 or n, 1), for loadings with a scale, as components sum to 1."""
    sums = np.ones((1, 1))
    if problem.loadings_prior.support != "scaled simplex":
        sums = components.exposed_sums(0, problem.counts.feature_weights)[None, :]
    return (sums * problem.counts.row_factor).astype(components.dtype)


def exposure_of_components(problem: Problem, loadings: Side) -> Array:
    """Return c_j Σ_i r_i θ_ik, (K, 1 or m), with the exposures r of rows and c of features."""
    sums = loadings.exposed_sums(1, problem.counts.row_weights)[:, None]
    return (sums * problem.counts.feature_factor).astype(loadings.dtype)


def update_loadings(problem: Problem, state: State, total: Array, *, reuse: bool = False) -> State:
    """Return the state with the loadings replaced by the summary of their conditional, given their total (n, K).

    With `reuse` the total may be overwritten by the new loadings.
    """
    given = problem.loadings_prior, total, exposure_of_loadings(problem, state.components), state.loadings
    return state._replace(loadings=problem.loadings_summary.carry(*given, reuse=reuse))


def update_components(problem: Problem, state: State, total: Array, *, reuse: bool = False) -> State:
    """Return the state with the components replaced by the summary of their conditional, given their total (K, m)."""
    if problem.fixed_components:
        return state
    given = problem.components_prior, total, exposure_of_components(problem, state.loadings), state.components
    return state._replace(components=problem.components_summary.carry(*given, reuse=reuse))


def objective(problem: Problem, state: State, loglik: float) -> float:
    """Return the objective, the log joint or the elbo, on the Poisson scale, in nats.

    It is ``ℓ − Σ_k (Σ_i r_i Eθ_ik)(Σ_j c_j Eβ_kj) − Σ log X! + penalty(θ) + penalty(β)``, with ℓ = Σ X log(r c UV) and
    UV from the allocation step at `state`. The penalty is the log prior density of a mode or a draw, −KL of a q.
    """
    counts, (loadings, components) = problem.counts, state
    if loadings.log_shift is not None:
        shift = np.where(counts.row_totals > 0, loadings.log_shift.ravel(), 0)
        loglik += float(counts.row_totals @ shift)
    if components.log_shift is not None:
        loglik += float(counts.feature_totals @ components.log_shift.ravel())
    loglik += counts.log_exposure
    sums = loadings.exposed_sums(1, counts.row_weights), components.exposed_sums(0, counts.feature_weights)
    exposure = float(sums[0] @ sums[1])
    constant = counts.log_factorial if problem.constant else 0.0
    return float(loglik - exposure - constant + loadings.penalty + components.penalty)
