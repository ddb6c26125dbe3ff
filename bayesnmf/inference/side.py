"""A side of the factorisation, loadings or components, and the ways to summarise a conditional as one.

The algorithms differ only in how they use the conditional of a side::

    EM, multiplicative updates, MAP     its mode: `Mode`
    variational inference               the conditional itself: `MeanField`
    Gibbs                               a draw from it: `Draw`
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from bayesnmf.data.counts import Counts
from bayesnmf.kernels.cpu.allocation import Spread, Totals
from bayesnmf.kernels.cpu.factors import sum_rows
from bayesnmf.kernels.cpu.mean_field import Moments
from bayesnmf.priors import Distribution, matrix
from bayesnmf.priors.values import Value, as_number, float64_on_device, namespace_of, on_host, parts_of, separate_scale
from bayesnmf.types import Array


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
    allocate: Callable[..., Totals] | None = None  # the allocation step of these loadings, where it is one of their own
    add_up: Callable[..., Any] | None = None  # sums over these loadings, where their rows are not at hand

    def __init__(self, value: Value, geometric: Array, log_shift: Array | None, penalty: float) -> None:
        self.value, self.geometric, self.log_shift, self.penalty = value, geometric, log_shift, penalty
        self.dtype = geometric.dtype
        self._sums: dict[int, Array] = {}
        self._exposed_sums: dict[int, tuple[Array, Array]] = {}

    @property
    def matrix(self) -> Array:
        """The value as one matrix, (n, K) or (K, m)."""
        return matrix(self.value)

    @property
    def parameters(self) -> tuple[Array, ...]:
        """The positive arrays that define the side: the parameters of its mean field, or its value."""
        return parts_of(self.value) if self.conditional is None else tuple(self.conditional.parameters.values())

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

    def shift(self, counts: Counts) -> float:
        """Return Σ N_i log_shift_i of loadings, the part of ℓ that the allocation step leaves out."""
        if self.log_shift is None:
            return 0.0
        # A matrix product of long vectors would wake NumPy's threads, which then wait busily for more.
        where = namespace_of(self.log_shift).xp.where
        return float((counts.row_totals * where(counts.row_totals > 0, self.log_shift.ravel(), 0)).sum())

    @property
    def reader(self) -> Any:
        """What has the loadings of blocks of rows, and can be sent to where these are worked on."""
        return self

    def block(self, number: int) -> Side:
        """Return the loadings of a block of rows."""
        return self

    def with_sums(self, sums: Any) -> Side:
        """Return the same loadings with another term of the objective, as a pass has computed it with their sums."""
        other = copy(self)
        other.penalty = sums.penalty
        return other

    @property
    def drawn(self) -> Any:
        """The draw that a chain keeps."""
        return self.value

    def rescaled(self, times: Array) -> Side:
        """Return these draws with component k times `times[k]`, whose penalty is not known before a pass."""
        value = self.matrix * times
        return Side(value, value, None, np.nan)

    def unpenalised(self) -> Side:
        """Return these draws, whose penalty is not known before a pass, since their prior has changed."""
        other = copy(self)
        other.penalty = np.nan
        return other

    def forget(self) -> None:
        """Free cached arrays, which can be computed again."""

    def bare(self) -> Any:
        """Return the arrays that define this side, without all others."""
        return Bare(self.parameters)

    def whole(self) -> tuple[Value, Distribution | None]:
        """Return the value and the mean field, whose parameters are without the padding of their columns."""
        q = self.conditional
        return self.value, None if q is None else q.mapped(lambda each: np.array(each, order="K"))


class Bare(NamedTuple):
    """The arrays that define a side."""

    parameters: tuple[Array, ...]

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shapes of the arrays."""
        return [each.shape for each in self.parameters]

    def block(self, number: int) -> Bare:
        """Return the arrays of a block of rows."""
        return self


def empty_side() -> Side:
    """Return a side without entries, in place of one that is not needed."""
    return Side(np.empty((0, 0)), np.empty((0, 0)), None, 0.0)


class Field(Side):
    """A side that is a mean field.

    Its moments are computed when one of them is first asked for: a state that is only a step towards another, beyond
    it, is asked for its parameters alone. Means and geometric means that were given up are computed again.

    Parameters
    ----------
    conditional : Distribution
    component_axis : {0, 1}
    moments : callable
        Function that returns the moments.
    """

    def __init__(self, conditional: Distribution, component_axis: int, moments: Callable[[], Moments]) -> None:
        self.conditional, self._component_axis, self._moments = conditional, component_axis, moments
        self._exposed_sums = {}

    def __getattr__(self, name: str) -> Any:
        """Compute the moments."""
        if name not in ("log_shift", "penalty", "dtype", "_sums", "_geometric"):
            raise AttributeError(name)
        found = self._moments()
        self.log_shift, self.penalty, self.dtype = found.shift, -found.divergence, found.geometric.dtype
        self._sums = {} if found.sums is None else {self._component_axis: found.sums}
        self._geometric: Array | None = found.geometric
        return vars(self)[name]

    def __getstate__(self) -> dict[str, Any]:
        """Return the state with its moments, which are computed before the side is sent or kept anywhere."""
        kept = {"penalty": self.penalty, **vars(self)}
        kept.pop("_moments", None)
        return kept

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
        if "_geometric" in vars(self):
            self._geometric = None


Basis = Literal["natural", "log"]


class Summary(Protocol):
    """Interface of the ways to summarise a conditional as a side."""

    @property
    def basis(self) -> Basis | None:
        """Basis of a mode; None for other summaries."""

    def summarise(
        self, prior: Distribution, total: Array, exposure: Array, previous: Side | None, *, reuse: bool = False
    ) -> Side:
        """Return the summary of the conditional given a total and an exposure; `reuse` may overwrite the total."""

    def of(self, prior: Distribution, conditional: Distribution) -> Side:
        """Return the summary of a given distribution."""


def side_of_value(value: Value, penalty: float) -> Side:
    """Return the side of a single value; a scale cancels from the responsibilities, and enters ℓ as a shift."""
    shares, scale = separate_scale(value)
    if scale is None:
        return Side(value, shares, None, penalty)
    return Side(value, shares, log_scale(scale[:, None]), penalty)


def log_scale(scale: Array) -> Array:
    """Return the logarithms of scales; the scale of an empty row may be 0, and its logarithm is not used."""
    with np.errstate(divide="ignore"):
        found: Array = namespace_of(scale).xp.log(float64_on_device(scale))
    return found


@dataclass(frozen=True)
class Mode:
    """Summary by the mode, in the natural basis or in the log (softmax) basis, where it equals the mean.

    In the log basis the objective includes the Jacobian, Σ log value. A side without a prior (`estimated`) adds
    nothing to the objective.
    """

    basis: Basis = "natural"
    estimated: bool = False

    def summarise(
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
        return side_of_value(value, penalty)

    def on_rows(self, first: int, beside: bool) -> Mode:
        """Return the same summary: the mode of a row depends on no other row."""
        return self


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

    def summarise(
        self, prior: Distribution, total: Array, exposure: Array, previous: Side | None, *, reuse: bool = False
    ) -> Side:
        """Return the conditional as a side."""
        return self.of(prior, prior.conditional(total, exposure, reuse=reuse))

    def of(self, prior: Distribution, conditional: Distribution) -> Side:
        """Return a side with exp E log for the allocations and the mean for the exposure."""
        given: Any = conditional

        def moments() -> Moments:
            if not self.penalised:
                return given.moments(None, self.component_axis, self.threads)
            plain, more = prior.expected_prior(conditional)
            found: Moments = given.moments(plain, self.component_axis, self.threads)
            return found._replace(divergence=found.divergence + more) if more else found

        return Field(conditional, self.component_axis, moments)

    def on_rows(self, first: int, beside: bool) -> MeanField:
        """Return the same summary, on one thread if other rows are worked on `beside`."""
        return replace(self, threads=1) if beside else self


def side_like(like: Side, prior: Distribution, summary: Any, parameters: list[Array]) -> Side:
    """Return a side of the same kind with other parameters; a mode on the simplex is normalised."""
    found: Side
    if like.conditional is None:
        found = summary.at(prior, prior.value_of(parameters))
    else:
        named = dict(zip(like.conditional.parameters, parameters, strict=True))
        found = summary.of(prior, like.conditional.with_parameters(named))
    return found


SOMEWHERE = np.random.SeedSequence(0)


def twin_of(rng: np.random.Generator) -> np.random.Generator:
    """Return a generator at the same place, which moves on by itself; `deepcopy` would take four times as long."""
    bits: Any = type(rng.bit_generator)(SOMEWHERE)
    bits.state = rng.bit_generator.state
    return np.random.Generator(bits)


@dataclass(frozen=True)
class Draw:
    """Summary by a draw from `rng`, which does not depend on `threads` (None chooses the fastest number).

    With `first`, rows from row `first` on are drawn, as they are in a draw of all rows.
    """

    rng: np.random.Generator
    threads: int | None = 1
    first: int | None = None

    basis = None

    def summarise(
        self, prior: Distribution, total: Array, exposure: Array, previous: Side | None, *, reuse: bool = False
    ) -> Side:
        """Return a draw from the conditional; parameters that entries share are drawn first, given the entries."""
        given = prior if previous is None else prior.drawn(previous.matrix, self.rng, self.first or 0)
        return self.of(prior, given.conditional(total, exposure, reuse=reuse))

    def of(self, prior: Distribution, conditional: Any) -> Side:
        """Return a draw from a given distribution."""
        if self.first is None:
            return self.at(prior, conditional.draw(self.rng, threads=self.threads))
        return self.at(prior, conditional.draw_rows(self.rng, self.first, self.threads))

    def at(self, prior: Distribution, value: Any) -> Side:
        """Return the side of a given value."""
        return side_of_value(value, prior.log_density(value))

    def on_rows(self, first: int, beside: bool) -> Draw:
        """Return the same summary for some rows, with random numbers from the same place, which stays as it is."""
        return Draw(twin_of(self.rng), 1 if beside else self.threads, first)


def spread_at(counts: Counts, state: Iterable[Side]) -> Spread | None:
    """Return the spreads of counts that cluster, at the geometric means of both sides; None for other counts."""
    found: Spread | None = counts.spread(*(_factor_of(side) for side in state))
    return found


def _factor_of(side: Side) -> Array | None:
    return None if side.log_shift is None else np.exp(np.asarray(side.log_shift, np.float64).ravel())
