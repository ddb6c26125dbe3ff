"""The three ways to summarise a conditional as a side: mode, mean field, draw.

The algorithms differ only in how they use the conditional of a side::

    EM, multiplicative updates, MAP     its mode
    variational inference               the conditional itself (mean field)
    Gibbs                               a draw from it
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np

from bayesnmf.inference.side import Field, Side
from bayesnmf.priors import Distribution
from bayesnmf.priors.values import Value, as_number, float64_on_device, namespace_of, separate_scale
from bayesnmf.types import Array

Basis = Literal["natural", "log"]


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
        plain, more = prior.expected_prior(conditional)
        found = given.moments(plain, self.component_axis, self.threads)
        return Field(conditional, self.component_axis, found._replace(divergence=found.divergence + more))

    def on_rows(self, first: int, beside: bool) -> MeanField:
        """Return the same summary, on one thread if other rows are worked on `beside`."""
        return replace(self, threads=1) if beside else self


@dataclass(frozen=True)
class Draw:
    """Summary by a draw from `rng`, which does not depend on `threads` (None chooses the fastest number).

    With `first`, rows from row `first` on are drawn, as they are in a draw of all rows.
    """

    rng: np.random.Generator
    threads: int | None = 1
    first: int | None = None

    basis = None

    def carry(
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
        return _side_of_value(value, prior.log_density(value))

    def on_rows(self, first: int, beside: bool) -> Draw:
        """Return the same summary for some rows, with random numbers from the same place, which stays as it is."""
        return Draw(deepcopy(self.rng), 1 if beside else self.threads, first)


def side_like(like: Side, prior: Distribution, summary: Any, parameters: list[Array]) -> Side:
    """Return a side of the same kind with other parameters; a mode on the simplex is normalised."""
    found: Side
    if like.conditional is None:
        found = summary.at(prior, prior.value_of(parameters))
    else:
        named = dict(zip(like.conditional.parameters, parameters, strict=True))
        found = summary.of(prior, like.conditional.with_parameters(named))
    return found


def skip_rows(summary: Summary, prior: Distribution, rank: int, *, again: bool) -> None:
    """Advance the random generator of draws as if all loadings had been drawn.

    With `again`, parameters that belong to rows were drawn before, given older loadings.
    """
    if isinstance(summary, Draw):
        ones = np.ones((1, rank))
        summary.carry(prior.rows(slice(0, 1)), ones, np.ones((1, 1)), Side(ones, ones, None, 0.0) if again else None)
