"""The Gamma distribution, by shape and rate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import digamma, gammaln, polygamma, xlogy

from bayesnmf.priors.distribution import OPTIONAL, Distribution, log_marginal_of
from bayesnmf.priors.learning import learned_gamma

if TYPE_CHECKING:
    from bayesnmf.kernels.cpu.mean_field import Moments


Array = NDArray[Any]
# Standard draws are held at 2e-308 or above. Divided by less than this they would show it, and are taken by logarithms.
LEAST_DIVISOR = 1e-6


def seed_of(rng: np.random.Generator) -> int:
    """Draw a seed for a compiled loop."""
    return int(rng.integers(2**63))


def spread(array: Array, size: tuple[int, ...]) -> Array:
    """Return the array broadcast to a size; as it is where it has that size, since broadcasting takes microseconds."""
    return array if array.shape == size else np.broadcast_to(array, size)


def weighted_log_sum(weight: ArrayLike, value: Array) -> float:
    """Σ weight · log value in float64, where 0 · log 0 counts as 0."""
    weight = np.asarray(weight, np.float64)
    if not weight.any():
        return 0.0
    if not weight.all():
        return float(xlogy(weight, value, dtype=np.float64).sum())
    with np.errstate(divide="ignore"):
        log_value = np.log(value, dtype=np.float64)
    return float(weight.item() * log_value.sum() if weight.size == 1 else np.sum(weight * log_value))


def moments_of(component_axis: int, shape: ArrayLike, others: tuple[ArrayLike, ...], threads: int | None) -> Moments:
    """Call the kernel with the components in columns, and turn what it returns back."""

    def turned(each: Array) -> Array:
        return each.T if component_axis == 0 else each

    from bayesnmf.kernels.cpu.mean_field import Moments, mean_field_moments

    first, *rest = (turned(np.atleast_2d(each)) for each in (shape, *others))
    scale, log_scale, prior, weight = rest
    sums, geometric, shift, divergence = mean_field_moments(first, scale, log_scale, prior, weight, threads)
    return Moments(sums, turned(geometric), turned(shift), divergence)


def added(given: ArrayLike, total: Array, reuse: bool = False) -> Array:
    """Return given + total in the type of the total, written over the total if it may be reused."""
    given = np.asarray(given, total.dtype)
    fits = reuse and np.broadcast_shapes(given.shape, total.shape) == total.shape
    return np.add(given, total, out=total) if fits else np.asarray(given + total)


def shape_minus_one(shape: ArrayLike, total: Array | float, reuse: bool = False) -> Array:
    """Shape − 1 + total, in the type of the total, exact where the total is far below 1."""
    return added(np.asarray(shape) - 1, np.asarray(total), reuse)


def positive_exp(log_value: Array) -> Array:
    """Return exp, kept at or above the smallest normal number, so that draws are never exactly 0."""
    return np.maximum(np.exp(log_value), np.finfo(log_value.dtype).tiny)


@dataclass(frozen=True, eq=False)
class Gamma(Distribution):
    """Gamma(shape, rate), elementwise; as a prior and as a posterior.

    Parameters
    ----------
    shape : array_like
        a > 0, broadcastable to the factor: (n, K) for loadings, (K, m) for components.
    rate : array_like
        b ≥ 0, in inverse units of the factor. Gamma(1, 0) is the flat prior; its log density is 0.
    """

    shape: ArrayLike
    rate: ArrayLike

    support = "positive"
    counted = "shape"
    optional = frozenset(OPTIONAL)
    may_be_zero = ("rate",)

    @property
    def flat(self) -> bool:
        """Whether this is the improper flat prior, Gamma(1, 0)."""
        return bool(np.all(np.asarray(self.shape) == 1) and np.all(np.asarray(self.rate) == 0))

    @property
    def proper(self) -> bool:
        """Whether it integrates to one."""
        return bool(np.all(np.asarray(self.rate) > 0))

    @property
    def smallest_shape(self) -> float:
        """The least shape: at 1 or above, the density has a mode."""
        return float(np.asarray(self.shape).min())

    def conditional(self, total: Array, exposure: Array, *, reuse: bool = False) -> Gamma:
        """Gamma(shape + total, rate + exposure): the conditional given allocations ([P] 34-36, [GP] alg. 7).

        With `reuse` the total may be overwritten.
        """
        return Gamma(added(self.shape, total, reuse), np.asarray(self.rate, total.dtype) + exposure)

    def mode(
        self, total: Array | float = 0.0, exposure: Array | float = 0.0, previous: Any = None, *, reuse: bool = False
    ) -> Array:
        """Mode of the conditional, (shape − 1 + total) / (rate + exposure).

        The total is added last: shape + total would lose totals far below 1. `previous`, or 0, is kept where a
        dead component leaves a rate of 0. With `reuse` the total may be overwritten.
        """
        peak, rate = shape_minus_one(self.shape, total, reuse), np.asarray(self.rate + np.asarray(exposure))
        out = peak if peak.shape == np.broadcast_shapes(peak.shape, rate.shape) else None
        if (rate > 0).all():
            return np.divide(peak, rate, out=out)
        peak, rate = np.broadcast_arrays(peak, rate)
        fallback = np.zeros_like(peak) if previous is None else previous.copy(order="K")
        return np.divide(peak, rate, out=fallback, where=rate > 0)

    def balance(self, value: Array, total: Array, exposure: Array, less: float = 1.0) -> tuple[Array, Array]:
        """Return rate + exposure and shape − less: value × (the first) = total + (the second) at a mode inside.

        `less` is 1 in the natural basis, 0 in the log basis.
        """
        return np.asarray(self.rate) + np.asarray(exposure), np.asarray(self.shape) - less

    def mean(self) -> Array:
        """Expectation, shape / rate."""
        return np.asarray(self.shape) / np.asarray(self.rate)

    def variance(self) -> Array:
        """Variance, shape / rate²."""
        return np.asarray(self.shape) / np.asarray(self.rate) ** 2

    def expected_log(self) -> Array:
        """E log, ψ(shape) − log rate."""
        return digamma(np.asarray(self.shape)) - np.log(self.rate)

    def draw(self, rng: np.random.Generator, draws: tuple[int, ...] = (), threads: int | None = 1) -> Array:
        """Independent draws, shape (*draws, *factor), never exactly 0; on any number of threads the same."""
        from bayesnmf.kernels.cpu.gamma_draws import gamma_draws

        shape, rate = np.asarray(self.shape), np.asarray(self.rate)
        full = spread(shape, draws + np.broadcast_shapes(shape.shape, rate.shape))
        by_logarithms = bool((rate < LEAST_DIVISOR).any())
        drawn = gamma_draws(full, seed_of(rng), threads, logarithms=by_logarithms)
        if by_logarithms:
            return positive_exp(drawn - np.log(rate))
        return np.maximum(drawn / rate, np.finfo(drawn.dtype).tiny)

    def log_normaliser(self, size: tuple[int, ...]) -> float:
        """Σ a log b − logΓ(a) over a factor of the given size; 0 for the flat prior."""
        shape, rate = np.asarray(self.shape, np.float64), np.asarray(self.rate, np.float64)
        terms = xlogy(shape, np.where(rate == 0, 1.0, rate)) - gammaln(shape)
        return float(terms.sum() * (math.prod(size) / terms.size))

    def log_density(self, value: Array) -> float:
        """Sum of log densities at `value`, in nats."""
        rate = np.asarray(self.rate)
        if rate.size == 1:
            linear = rate.item() * np.sum(value, dtype=np.float64)
        else:
            linear = np.sum(rate * value, dtype=np.float64)
        return weighted_log_sum(np.asarray(self.shape) - 1, value) - float(linear) + self.log_normaliser(value.shape)

    def expected_log_and_kl(self, prior: Gamma) -> tuple[Array, float]:
        """E log, and KL(self ‖ prior) summed, in nats: minus the entropy of `self` where the prior is flat."""
        expected_log, mean = self.expected_log(), self.mean()
        shape, size = np.asarray(self.shape), mean.shape
        tilt = (shape - prior.shape) * expected_log - shape + np.asarray(prior.rate) * mean
        kl = float(tilt.sum(dtype=np.float64)) + self.log_normaliser(size) - prior.log_normaliser(size)
        return expected_log, kl

    def moments(self, prior: Gamma | None, component_axis: int, threads: int | None = None) -> Moments:
        """Return what an update needs: Σ E[x] per component, exp(E log x − shift), the shift and KL(self ‖ prior).

        The shift is the largest E log x over the components. Without a prior the divergence is NaN.
        """
        rate = np.asarray(self.rate, np.float64)
        log_rate = np.log(rate)
        if prior is None:
            found = moments_of(component_axis, self.shape, (rate, log_rate, 0.0, 0.0), threads)
            return found._replace(divergence=np.nan)
        found = moments_of(
            component_axis, self.shape, (rate, log_rate, prior.shape, np.asarray(prior.rate) / rate), threads
        )
        return found._replace(divergence=found.divergence - prior.log_normaliser(found.geometric.shape))

    def kl(self, prior: Gamma) -> float:
        """KL(self ‖ prior), summed, in nats."""
        return self.expected_log_and_kl(prior)[1]

    def log_jacobian(self, value: Array) -> float:
        """Σ log value: what the log basis adds to a log density."""
        return float(np.log(value).sum(dtype=np.float64))

    def quantiles(self, at: tuple[Array, Array], levels: Array) -> Array:
        """Quantiles of some entries, (levels, …)."""
        from scipy.stats import gamma

        shape, rate = np.broadcast_arrays(*(np.asarray(v, np.float64) for v in (self.shape, self.rate)))
        return np.asarray(gamma.ppf(levels[:, None, None], shape[at], scale=1 / rate[at]))

    def draw_features(self, rng: np.random.Generator, draws: tuple[int, ...], features: Array) -> Array:
        """Independent draws of some features of components of full size (K, m)."""
        return self.mapped(lambda value: value[:, features]).draw(rng, draws)

    def value_of(self, parts: list[Array]) -> Array:
        """Return the one array."""
        return parts[0]

    def learned(self, q: Gamma) -> Gamma:
        """Return the Gamma that maximises E_q log p: see `learned_gamma`."""
        q = q.mapped(lambda value: np.asarray(value, np.float64))
        return Gamma(*learned_gamma((self.shape, self.rate), q.mean(), q.expected_log()))

    def gradient(self, best: Gamma) -> list[Array]:
        """Return the bound's derivatives by log shape and log rate, given the conditional; 0 where q is that."""
        shape, rate = np.asarray(self.shape), np.asarray(self.rate)
        shape_off, rate_off = best.shape - shape, best.rate - rate
        by_shape = shape * (shape_off * polygamma(1, shape) - rate_off / rate)
        by_rate = -shape_off + rate_off * shape / rate
        return [summed_to(by_shape, shape.shape), summed_to(by_rate, rate.shape)]

    def settled_terms(self, exposure: Array) -> tuple[Array, Array | None]:
        """Return the shape, which is added to totals, and the rate of the conditional."""
        return np.asarray(self.shape), np.asarray(self.rate) + exposure

    @property
    def flat_in_shares(self) -> bool:
        """Whether the shape is 1 and the rate is the same for all components, so that shares do not enter."""
        one_rate = np.atleast_2d(self.rate).shape[-1] == 1
        return one_rate and bool(np.all(np.asarray(self.shape) == 1))

    def regression_terms(self, length: int) -> tuple[Array, Array]:
        """Return shape − 1 and rate."""
        return np.atleast_2d(self.shape) - 1, np.atleast_2d(self.rate)

    def log_marginal(self, total: Array) -> float:
        """Return log ∫ p(x) x^total exp(−x) dx, summed over entries; the flat prior counts as the density 1."""
        return log_marginal_of(self, total)

    def urn_terms(self) -> tuple[Array, Array]:
        """Return the shape, and 1 / (1 + rate): a token has weight (shape + A) / (rate + 1)."""
        return np.asarray(self.shape), 1 / (1 + np.asarray(self.rate, np.float64))


def summed_to(values: Array, shape: tuple[int, ...]) -> Array:
    """Sum over the axes along which a parameter of this shape is the same."""
    values = np.atleast_2d(values)
    full = (1,) * (values.ndim - len(shape)) + shape
    axes = tuple(axis for axis, length in enumerate(full) if length == 1 and values.shape[axis] > 1)
    return values.sum(axis=axes, keepdims=True).reshape(shape)
