"""The two sides as a device carries them: what `bayesnmf.priors` and `sides` state, in `jax.numpy`.

A side is one or two parts: loadings or components (one), or proportions and their scale (two). Each part has a Gamma or
a Dirichlet conditional; their formulas stand here once, tested equal to the priors' own. Factors and the
parameters of conditionals have the dtype of the counts; logarithms, penalties and objectives are float64.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma, gammaln, xlogy

from bayesnmf.inference import sides
from bayesnmf.priors import Dirichlet, ScaledDirichlet, ScaledProportions

FLOAT = jnp.float64


class GammaPart(NamedTuple):
    """Gamma(shape, rate), elementwise (`bayesnmf.priors.Gamma`)."""

    shape: Any
    rate: Any

    def conditional(self, total: Any, exposure: Any) -> GammaPart:
        """Gamma(shape + total, rate + exposure)."""
        return GammaPart(self.shape.astype(total.dtype) + total, self.rate.astype(total.dtype) + exposure)

    def mode(self, total: Any, exposure: Any, previous: Any) -> Any:
        """(shape − 1 + total) / (rate + exposure), or `previous` at a rate of 0."""
        rate = self.rate.astype(total.dtype) + exposure
        return jnp.where(rate > 0, _peak(self.shape, total) / jnp.where(rate > 0, rate, 1), previous)

    def imbalance(self, value: Any, total: Any, exposure: Any, less: float) -> Any:
        """Value × (rate + exposure) − (shape − less + total), in counts."""
        return value * (self.rate + exposure) - (_peak(self.shape, total) + (1 - less))

    def mean(self) -> Any:
        """Expectation."""
        return self.shape / self.rate

    def expected_log(self) -> Any:
        """E log."""
        return digamma(self.shape.astype(FLOAT)) - jnp.log(self.rate.astype(FLOAT))

    def log_normaliser(self, size: tuple[int, ...]) -> Any:
        """Σ a log b − logΓ(a) over a factor of the given size."""
        shape, rate = self.shape.astype(FLOAT), self.rate.astype(FLOAT)
        terms = xlogy(shape, jnp.where(rate == 0, 1, rate)) - gammaln(shape)
        return terms.sum() * (np.prod(size) / terms.size)

    def log_density(self, value: Any) -> Any:
        """Sum of log densities."""
        value = value.astype(FLOAT)
        return (xlogy(self.shape - 1, value) - self.rate * value).sum() + self.log_normaliser(value.shape)

    def kl(self, prior: GammaPart, expected_log: Any) -> Any:
        """KL(self ‖ prior), summed."""
        shape, mean = self.shape.astype(FLOAT), self.shape.astype(FLOAT) / self.rate.astype(FLOAT)
        tilt = (shape - prior.shape) * expected_log - shape + prior.rate * mean
        return tilt.sum() + self.log_normaliser(tilt.shape) - prior.log_normaliser(tilt.shape)


class DirichletPart(NamedTuple):
    """Dirichlet(concentration) over the last axis (`bayesnmf.priors.Dirichlet`)."""

    concentration: Any

    def conditional(self, total: Any, exposure: Any) -> DirichletPart:
        """Dirichlet(concentration + total)."""
        return DirichletPart(self.concentration.astype(total.dtype) + total)

    def mode(self, total: Any, exposure: Any, previous: Any) -> Any:
        """∝ concentration − 1 + total, or `previous` in rows where that is 0."""
        peak = _peak(self.concentration, total)
        sums = _row_sums(peak)
        return jnp.where(sums > 0, peak / jnp.where(sums > 0, sums, 1), previous)

    def imbalance(self, value: Any, total: Any, exposure: Any, less: float) -> Any:
        """Value × Σ(α − less + total) − (α − less + total), in counts."""
        peak = _peak(self.concentration, total) + (1 - less)
        return value * _row_sums(peak) - peak

    def mean(self) -> Any:
        """Expectation."""
        return self.concentration / _row_sums(self.concentration)

    def expected_log(self) -> Any:
        """E log."""
        alpha = self.concentration.astype(FLOAT)
        return digamma(alpha) - digamma(alpha.sum(axis=-1, keepdims=True))

    def log_normaliser(self, size: tuple[int, ...]) -> Any:
        """Σ over rows of logΓ(Σα) − Σ logΓ(α)."""
        alpha = self.concentration.astype(FLOAT)
        rows = jnp.broadcast_to(alpha, (*(alpha.shape[:-1] or (1,)), size[-1]))
        terms = gammaln(rows.sum(axis=-1)) - gammaln(rows).sum(axis=-1)
        return terms.sum() * (np.prod(size[:-1]) / terms.size)

    def log_density(self, value: Any) -> Any:
        """Sum of log densities."""
        return xlogy(self.concentration - 1, value.astype(FLOAT)).sum() + self.log_normaliser(value.shape)

    def kl(self, prior: DirichletPart, expected_log: Any) -> Any:
        """KL(self ‖ prior), summed."""
        tilt = (self.concentration.astype(FLOAT) - prior.concentration) * expected_log
        return tilt.sum() + self.log_normaliser(tilt.shape) - prior.log_normaliser(tilt.shape)


Parts = tuple[Any, ...]


def _peak(shape: Any, total: Any) -> Any:
    """Shape − 1 + total, exact where the total is far below 1."""
    return (shape - 1).astype(total.dtype) + total


def _row_sums(values: Any) -> Any:
    """Sums over the last axis, (…, 1), added up in float64."""
    return values.sum(axis=-1, keepdims=True, dtype=FLOAT).astype(values.dtype)


def parts_of(distribution: Any, dtype: Any = np.float64) -> Parts:
    """Return the parts of a prior or a conditional of the host's, as arrays of the given type."""
    arrays = {name: np.asarray(value, dtype) for name, value in vars(distribution).items()}
    if isinstance(distribution, Dirichlet):
        return (DirichletPart(**arrays),)
    if isinstance(distribution, ScaledDirichlet):
        return (DirichletPart(arrays.pop("concentration")), GammaPart(**arrays))
    return (GammaPart(**arrays),)


class Kind(NamedTuple):
    """How a side is carried (`sides.Mode`, `sides.MeanField`): part of what is compiled."""

    carried: Literal["natural", "log", "mean field"]
    estimated: bool = False
    component_axis: int = 1


class Side(NamedTuple):
    """`sides.Side` with its value in parts; `conditional` is empty for modes."""

    value: Parts
    geometric: Any
    log_shift: Any
    penalty: Any
    conditional: Parts

    @property
    def matrix(self) -> Any:
        """The value as one matrix."""
        return self.value[0] * self.value[1] if len(self.value) == 2 else self.value[0]


def carry(kind: Kind, prior: Parts, total: Any, exposure: Any, previous: Side) -> Side:
    """Carry the conditional of `prior` given a total and an exposure."""
    received = _per_part(prior, total, exposure)
    if kind.carried == "natural":
        return at(kind, prior, tuple(p.mode(*r, v) for p, r, v in zip(prior, received, previous.value, strict=True)))
    conditional = tuple(p.conditional(*r) for p, r in zip(prior, received, strict=True))
    if kind.carried == "log":
        return at(kind, prior, tuple(part.mean() for part in conditional))
    return of(kind, prior, conditional)


def _per_part(prior: Parts, total: Any, exposure: Any) -> list[tuple[Any, Any]]:
    """Total and exposure of each part: a scale receives the whole row, at an exposure of 1."""
    scale = (_row_sums(total), jnp.ones((1, 1), total.dtype))
    return [(total, exposure), scale][: len(prior)]


def at(kind: Kind, prior: Parts, value: Parts) -> Side:
    """Carry a given value, as `sides.Mode` does."""
    penalty = jnp.zeros((), FLOAT)
    if not kind.estimated:
        penalty = sum((p.log_density(v) for p, v in zip(prior, value, strict=True)), penalty)
    if kind.carried == "log":
        jacobian = sum(jnp.log(v.astype(FLOAT)).sum() for v in value)
        penalty = jnp.where(jnp.isfinite(jacobian), penalty + jacobian, -jnp.inf)
    shift = jnp.log(value[1].astype(FLOAT)) if len(value) == 2 else None
    return Side(value, value[0], shift, penalty, ())


def of(kind: Kind, prior: Parts, conditional: Parts) -> Side:
    """Carry a given mean field, as `sides.MeanField` does."""
    logs = [part.expected_log() for part in conditional]
    kl = sum(q.kl(p, log) for q, p, log in zip(conditional, prior, logs, strict=True))
    expected_log = sum(logs[1:], logs[0])
    shift = expected_log.max(axis=kind.component_axis, keepdims=True)
    value = tuple(part.mean() for part in conditional)
    return Side(value, jnp.exp(expected_log - shift).astype(value[0].dtype), shift, -kl, conditional)


def given(kind: Kind, prior: Parts, parameters: Parts) -> Side:
    """Carry a side that is stated by `parameters_of`."""
    return of(kind, prior, parameters) if kind.carried == "mean field" else at(kind, prior, parameters)


def parameters_of(side: Side) -> Parts:
    """Return what states a side: the parts of its mean field, or of its value."""
    return side.conditional or side.value


def on_the_simplex(prior: Parts, parameters: Parts) -> Parts:
    """Normalise a mode whose rows must sum to 1; leave everything else as it is."""
    if isinstance(parameters[0], DirichletPart | GammaPart) or not isinstance(prior[0], DirichletPart):
        return parameters
    return (parameters[0] / _row_sums(parameters[0]), *parameters[1:])


def from_host(side: sides.Side, dtype: Any) -> Parts:
    """Return what states a side of the host's, as arrays of the given type."""
    if side.conditional is not None:
        return parts_of(side.conditional, dtype)
    value = side.value if isinstance(side.value, ScaledProportions) else (side.value,)
    return tuple(np.asarray(each, dtype) for each in value)


def to_host(summary: Any, prior: Any, parameters: Parts) -> sides.Side:
    """Carry, on the host, a side that is stated by parameters on the device."""
    arrays = [np.array(each) for each in jax.tree.leaves(parameters)]
    if isinstance(summary, sides.MeanField):
        return summary.of(prior, type(prior)(*arrays))
    value: Any = ScaledProportions(*arrays) if len(arrays) == 2 else arrays[0]
    return summary.at(prior, value)
