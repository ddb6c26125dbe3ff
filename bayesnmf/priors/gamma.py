"""The Gamma distribution, by shape and rate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import polygamma

from bayesnmf.priors.arrays import (
    added,
    as_array,
    as_number,
    divided,
    log_sum,
    namespace,
    on_host,
    precise,
    shape_minus_one,
    weighted_log_sum,
)
from bayesnmf.priors.distribution import OPTIONAL, Distribution, log_marginal_of, plain_moments
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


def moments_of(component_axis: int, shape: ArrayLike, others: tuple[ArrayLike, ...], threads: int | None) -> Moments:
    """Call the kernel with the components in columns, and turn what it returns back."""

    def turned(each: Array) -> Array:
        return each.T if component_axis == 0 else each

    from bayesnmf.kernels.cpu.mean_field import Moments, mean_field_moments

    first, *rest = (turned(np.atleast_2d(each)) for each in (shape, *others))
    scale, log_scale, prior, weight = rest
    sums, geometric, shift, divergence = mean_field_moments(first, scale, log_scale, prior, weight, threads)
    return Moments(sums, turned(geometric), turned(shift), divergence)


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
        return Gamma(added(self.shape, total, reuse), as_array(self.rate, total.dtype) + exposure)

    def mode(
        self, total: Array | float = 0.0, exposure: Array | float = 0.0, previous: Any = None, *, reuse: bool = False
    ) -> Array:
        """Mode of the conditional, (shape − 1 + total) / (rate + exposure).

        The total is added last: shape + total would lose totals far below 1. `previous`, or 0, is kept where a
        dead component leaves a rate of 0. With `reuse` the total may be overwritten.
        """
        peak = shape_minus_one(self.shape, total, reuse)
        return divided(peak, as_array(self.rate + as_array(exposure)), previous, 0.0)

    def balance(self, value: Array, total: Array, exposure: Array, less: float = 1.0) -> tuple[Array, Array]:
        """Return rate + exposure and shape − less: value × (the first) = total + (the second) at a mode inside.

        `less` is 1 in the natural basis, 0 in the log basis.
        """
        return as_array(self.rate) + as_array(exposure), as_array(self.shape) - less

    def mean(self) -> Array:
        """Expectation, shape / rate."""
        return as_array(self.shape) / as_array(self.rate)

    def variance(self) -> Array:
        """Variance, shape / rate²."""
        return np.asarray(self.shape) / np.asarray(self.rate) ** 2

    def expected_log(self) -> Array:
        """E log, ψ(shape) − log rate."""
        xp, special = namespace(self.shape, self.rate)
        return special.digamma(precise(self.shape)) - xp.log(precise(self.rate))

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
        xp, special = namespace(self.shape, self.rate)
        shape, rate = xp.asarray(self.shape, np.float64), xp.asarray(self.rate, np.float64)
        terms = special.xlogy(shape, xp.where(rate == 0, 1.0, rate)) - special.gammaln(shape)
        return as_number(terms.sum() * (math.prod(size) / terms.size))

    def log_density(self, value: Array) -> float:
        """Sum of log densities at `value`, in nats."""
        rate = as_array(self.rate)
        if rate.size == 1:
            linear = as_number(rate.reshape(()) * value.sum(dtype=np.float64))
        else:
            linear = as_number((rate * value).sum(dtype=np.float64))
        return weighted_log_sum(as_array(self.shape) - 1, value) - linear + self.log_normaliser(value.shape)

    def moments(self, prior: Gamma | None, component_axis: int, threads: int | None = None) -> Moments:
        """Return what an update needs: Σ E[x] per component, exp(E log x − shift), the shift and KL(self ‖ prior).

        The shift is the largest E log x over the components. Without a prior the divergence is NaN.
        """
        if not on_host(self.shape, self.rate):
            return plain_moments(self, prior, component_axis)
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
        """KL(self ‖ prior), summed, in nats: minus the entropy of `self` where the prior is flat."""
        shape, mean = as_array(self.shape), self.mean()
        tilt = (shape - prior.shape) * self.expected_log() - shape + as_array(prior.rate) * mean
        tilted = as_number(tilt.sum(dtype=np.float64))
        return tilted + self.log_normaliser(mean.shape) - prior.log_normaliser(mean.shape)

    def log_jacobian(self, value: Array) -> float:
        """Σ log value: what the log basis adds to a log density."""
        return log_sum(value)

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
