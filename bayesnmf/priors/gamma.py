"""The Gamma distribution, by shape and rate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import digamma, gammaln, polygamma

from bayesnmf.priors.distribution import Distribution, Every, log_marginal_of, plain_moments
from bayesnmf.priors.values import (
    add_to_total,
    as_array,
    as_number,
    divide_or_keep,
    float64_on_device,
    namespace_of,
    on_host,
    shape_minus_one,
    weighted_log_sum,
)
from bayesnmf.types import Array

if TYPE_CHECKING:
    from bayesnmf.kernels.cpu.mean_field import Moments


MOST_STEPS, TOL = 100, 1e-12  # of Newton's method for hyperparameters
# Limits of shapes and concentrations that would diverge: the terms a log a of the ELBO, with their relative rounding
# error of 1e-16, must not hide the gain of an update. At 1e5, the relative standard deviation is 0.3 %.
LEAST, MOST = 1e-30, 1e5
LEAST_SPREAD, MOST_SPREAD = 1 / (2 * MOST), 1 / LEAST  # log E − E log of Gammas with these shapes
LEAST_RATE, MOST_RATE = 1e-30, 1e20  # float32 can represent the ratios of these
# Standard draws are at least 2e-308. Division by less than this would show that limit, so logarithms are drawn instead.
LEAST_DIVISOR = 1e-6


def draw_seed(rng: np.random.Generator) -> int:
    """Draw a seed for a compiled loop."""
    return int(rng.integers(2**63))


def broadcast_to_size(array: Array, size: tuple[int, ...]) -> Array:
    """Return the array broadcast to a size, or itself if it has that size: broadcasting takes microseconds."""
    return array if array.shape == size else np.broadcast_to(array, size)


def kernel_moments(
    component_axis: int, shape: Any, scale: Any, log_scale: Any, prior: Any, weight: Any, threads: int | None
) -> Moments:
    """Return the moments from the kernel, which needs the components in columns."""
    from bayesnmf.kernels.cpu.mean_field import Moments, mean_field_moments

    def in_columns(each: Any) -> Any:
        rows = np.asarray(each)
        if rows.ndim < 2:
            rows = rows.reshape(1, -1)
        return rows.T if component_axis == 0 else rows

    found = mean_field_moments(
        in_columns(shape),
        in_columns(scale),
        None if log_scale is None else in_columns(log_scale),
        in_columns(prior),
        in_columns(weight),
        threads,
    )
    if component_axis == 1:
        return found
    return Moments(found.sums, found.geometric.T, found.shift.T, found.divergence)


def positive_exp(log_value: Array) -> Array:
    """Return exp(log_value), but at least the smallest normal number, so that draws are never exactly 0."""
    return np.maximum(np.exp(log_value), np.finfo(log_value.dtype).tiny)


@dataclass(frozen=True, eq=False)
class Gamma(Distribution, Every):
    """Gamma distribution of every entry; a prior or a posterior.

    Parameters
    ----------
    shape : array_like
        Shape a > 0, without unit, broadcastable to (n, K) for loadings or (K, m) for components.
    rate : array_like
        Rate b ≥ 0, in inverse units of the loadings or components, broadcastable in the same way. Gamma(1, 0) is the
        flat prior, with log density 0; no other prior may have rate 0.

    See Also
    --------
    Priors, HierarchicalGamma

    Examples
    --------
    >>> import bayesnmf
    >>> prior = bayesnmf.Priors(loadings=bayesnmf.Gamma(0.3, 0.1))  # few components in each sample
    """

    shape: ArrayLike
    rate: ArrayLike

    support = "positive"
    counted, exposed = "shape", "rate"
    with_unit = may_be_zero = ("rate",)
    learned_together = ("shape", "rate")

    @property
    def flat(self) -> bool:
        """Whether this is the improper flat prior, Gamma(1, 0)."""
        return bool(np.all(np.asarray(self.shape) == 1) and np.all(np.asarray(self.rate) == 0))

    @property
    def proper(self) -> bool:
        """Whether the density integrates to one."""
        return bool(np.all(np.asarray(self.rate) > 0))

    @property
    def smallest_shape(self) -> float:
        """Smallest shape; if it is at least 1, the density is bounded and has a mode."""
        return float(np.asarray(self.shape).min())

    def conditional(self, total: Array, exposure: Array, *, reuse: bool = False) -> Gamma:
        """Return the conditional given allocations, Gamma(shape + total, rate + exposure) ([P] 34-36, [GP] alg. 7).

        With `reuse` the total may be overwritten.
        """
        return Gamma(add_to_total(self.shape, total, reuse), as_array(self.rate, total.dtype) + exposure)

    def mode(
        self, total: Array | float = 0.0, exposure: Array | float = 0.0, previous: Any = None, *, reuse: bool = False
    ) -> Array:
        """Return the mode of the conditional, (shape − 1 + total) / (rate + exposure).

        The total is added last: shape + total would round off totals far below 1. Where an empty component leaves a
        rate of 0, the mode is `previous`, or 0 if that is None. With `reuse` the total may be overwritten.
        """
        peak = shape_minus_one(self.shape, total, reuse)
        return divide_or_keep(peak, as_array(self.rate + as_array(exposure)), previous, 0.0)

    def balance(self, value: Array, total: Array, exposure: Array, less: float = 1.0) -> tuple[Array, Array]:
        """Return f = rate + exposure and g = shape − less, for which value × f = total + g at an interior mode.

        `less` is 1 in the natural basis and 0 in the log basis.
        """
        return as_array(self.rate) + as_array(exposure), as_array(self.shape) - less

    def mean(self) -> Array:
        """Return the expectation, shape / rate."""
        return as_array(self.shape) / as_array(self.rate)

    def variance(self) -> Array:
        """Return the variance, shape / rate²."""
        return np.asarray(self.shape) / np.asarray(self.rate) ** 2

    def expected_log(self) -> Array:
        """Return the expected logarithm, ψ(shape) − log rate."""
        xp, special = namespace_of(self.shape, self.rate)
        return special.digamma(float64_on_device(self.shape)) - xp.log(float64_on_device(self.rate))

    def draw(self, rng: np.random.Generator, draws: tuple[int, ...] = (), threads: int | None = 1) -> Array:
        """Return independent draws, (*draws, *factor), never exactly 0; they do not depend on `threads`."""
        return self._drawn(rng, draws, threads, 0)

    def draw_rows(self, rng: np.random.Generator, first: int, threads: int | None = 1) -> Array:
        """Return the draw that `draw` of a larger factor has in these rows, the first of which is row `first`."""
        return self._drawn(rng, (), threads, first)

    def _drawn(self, rng: np.random.Generator, draws: tuple[int, ...], threads: int | None, first: int) -> Array:
        from bayesnmf.kernels.cpu.draws import gamma_draws

        shape, rate = np.asarray(self.shape), np.asarray(self.rate)
        full = broadcast_to_size(shape, draws + np.broadcast_shapes(shape.shape, rate.shape))
        small, seed = rate < LEAST_DIVISOR, draw_seed(rng)
        drawn = gamma_draws(full, seed, threads, first_row=first)
        found = np.maximum(drawn / np.where(small, 1.0, rate), np.finfo(drawn.dtype).tiny)
        if not small.any():
            return found
        logarithms = gamma_draws(full, seed, threads, logarithms=True, first_row=first)
        return np.where(small, positive_exp(logarithms - np.log(rate)), found)

    def log_normaliser(self, size: tuple[int, ...]) -> float:
        """Return Σ a log b − logΓ(a) over a factor of the given size; 0 for the flat prior."""
        xp, special = namespace_of(self.shape, self.rate)
        shape, rate = xp.asarray(self.shape, np.float64), xp.asarray(self.rate, np.float64)
        terms = special.xlogy(shape, xp.where(rate == 0, 1.0, rate)) - special.gammaln(shape)
        return as_number(terms.sum() * (math.prod(size) / terms.size))

    def log_density(self, value: Array) -> float:
        """Return the sum of log densities at `value`, in nats."""
        rate = as_array(self.rate)
        if rate.size == 1:
            linear = as_number(rate.reshape(()) * value.sum(dtype=np.float64))
        else:
            linear = as_number((rate * value).sum(dtype=np.float64))
        return weighted_log_sum(as_array(self.shape) - 1, value) - linear + self.log_normaliser(value.shape)

    def moments(self, prior: Gamma | None, component_axis: int, threads: int | None = None) -> Moments:
        """Return Σ E[x] per component, exp(E log x − shift), the shift and KL(self ‖ prior), for an update.

        The shift is the largest E log x over the components. Without a prior the divergence is NaN.
        """
        if not on_host(self.shape, self.rate):
            return plain_moments(self, prior, component_axis)
        if np.ndim(self.rate) == 2 and np.shape(self.shape) == np.shape(self.rate):  # logarithms are taken in passing
            before, weight = (0.0, 0.0) if prior is None else (prior.shape, prior.rate)
            found = kernel_moments(component_axis, self.shape, self.rate, None, before, weight, threads)
            constant = np.nan if prior is None else prior.log_normaliser(found.geometric.shape)
            return found._replace(divergence=found.divergence - constant)
        rate = np.asarray(self.rate, np.float64)
        log_rate = np.log(rate)
        if prior is None:
            found = kernel_moments(component_axis, self.shape, rate, log_rate, 0.0, 0.0, threads)
            return found._replace(divergence=np.nan)
        weight = np.asarray(prior.rate) / rate
        found = kernel_moments(component_axis, self.shape, rate, log_rate, prior.shape, weight, threads)
        return found._replace(divergence=found.divergence - prior.log_normaliser(found.geometric.shape))

    def kl(self, prior: Gamma) -> float:
        """Return KL(self ‖ prior), summed over entries, in nats; minus the entropy of `self` if the prior is flat."""
        shape, mean = as_array(self.shape), self.mean()
        tilt = (shape - prior.shape) * self.expected_log() - shape + as_array(prior.rate) * mean
        tilted = as_number(tilt.sum(dtype=np.float64))
        return tilted + self.log_normaliser(mean.shape) - prior.log_normaliser(mean.shape)

    def quantiles(self, at: tuple[Array, Array], levels: Array) -> Array:
        """Return quantiles of the chosen entries, (levels, …)."""
        from scipy.stats import gamma

        shape, rate = np.broadcast_arrays(*(np.asarray(v, np.float64) for v in (self.shape, self.rate)))
        return np.asarray(gamma.ppf(levels[:, None, None], shape[at], scale=1 / rate[at]))

    def statistics(self, q: Gamma) -> list[Array]:
        """Return E x and E log x."""
        q = q.mapped(lambda value: np.asarray(value, np.float64))
        return [q.mean(), q.expected_log()]

    def learned_from(self, statistics: list[Array]) -> Gamma:
        """Return the Gamma that maximises E_q log p (`learned_gamma`)."""
        return Gamma(*learned_gamma(self.shape, self.rate, *statistics))

    def gradient(self, best: Gamma) -> list[Array]:
        """Return the derivatives of the ELBO by log shape and log rate; 0 if q equals the conditional `best`."""
        shape, rate = np.asarray(self.shape), np.asarray(self.rate)
        shape_off, rate_off = best.shape - shape, best.rate - rate
        by_shape = shape * (shape_off * polygamma(1, shape) - rate_off / rate)
        by_rate = -shape_off + rate_off * shape / rate
        return [sum_to_shape(by_shape, shape.shape), sum_to_shape(by_rate, rate.shape)]

    def settled_terms(self, exposure: Array) -> tuple[Array, Array | None]:
        """Return the shape, which is added to totals, and the rate of the conditional."""
        return np.asarray(self.shape), np.asarray(self.rate) + exposure

    @property
    def flat_in_shares(self) -> bool:
        """Whether the shape is 1 and all components have the same rate, so that shares do not matter."""
        one_rate = np.atleast_2d(self.rate).shape[-1] == 1
        return one_rate and bool(np.all(np.asarray(self.shape) == 1))

    def regression_terms(self, length: int) -> tuple[Array, Array]:
        """Return shape − 1 and rate."""
        return np.atleast_2d(self.shape) - 1, np.atleast_2d(self.rate)

    def log_marginal(self, total: Array) -> float:
        """Return log ∫ p(x) x^total exp(−x) dx, summed over entries; the flat prior has density 1."""
        return log_marginal_of(self, total)

    def log_beside_urn(self, row_totals: Array, rank: int) -> float:
        """Return the log of the factor that does not depend on the tokens: Σ a log(b / (b + 1))."""
        return self.log_marginal(np.zeros((len(row_totals), rank)))

    def urn_terms(self) -> tuple[Array, Array]:
        """Return the shape, and 1 / (1 + rate): a token chooses a component with weight (shape + A) / (rate + 1)."""
        return np.asarray(self.shape), 1 / (1 + np.asarray(self.rate, np.float64))


def sum_to_shape(values: Array, shape: tuple[int, ...]) -> Array:
    """Return sums over the axes along which a parameter of this shape is constant."""
    values = np.atleast_2d(values)
    full = (1,) * (values.ndim - len(shape)) + shape
    axes = tuple(axis for axis, length in enumerate(full) if length == 1 and values.shape[axis] > 1)
    return values.sum(axis=axes, keepdims=True).reshape(shape)


# --- hyperparameters that maximise E_q log p, the only term of the ELBO that depends on them ----------------
# These are maximum-likelihood problems with expected sufficient statistics, and concave: the ELBO never decreases.


def _shared_mean(values: Array, like: Any) -> Array:
    """Return float64 means over the axes along which the parameter `like` is constant; these axes get length 1."""
    shape = (1,) * (values.ndim - np.ndim(like)) + np.shape(like)
    axes = tuple(axis for axis, length in enumerate(shape) if length == 1)
    return values.mean(axis=axes, keepdims=True, dtype=np.float64)


def learned_gamma(given_shape: Any, given_rate: Any, mean: Array, expected_log: Array) -> tuple[Array, Array]:
    """Return shape and rate of the Gamma prior that maximises E log p, given E[x] and E[log x].

    They solve log a − ψ(a) = log E − E log and rate = a / E, within the limits above. Where the limits would make the
    objective lower than at the given shape and rate, the given ones are returned. Array shapes are those of
    `given_shape`.
    """
    mean, expected_log = _shared_mean(mean, given_shape), _shared_mean(expected_log, given_shape)
    log_mean = np.log(np.maximum(mean, np.finfo(np.float64).tiny))
    spread = np.clip(log_mean - expected_log, LEAST_SPREAD, MOST_SPREAD)
    # Start from Minka, "Estimating a Gamma distribution" (2002), accurate to a few per cent; Newton steps are in 1 / a.
    root = np.sqrt((spread - 3) ** 2 + 24 * spread)
    shape = np.where(spread < 1, (3 - spread + root) / (12 * spread), 2 / (root - 3 + spread))  # without cancellation
    for _ in range(MOST_STEPS):
        off = np.log(shape) - digamma(shape) - spread
        new = 1 / (1 / shape + off / (shape**2 * (1 / shape - polygamma(1, shape))))
        done = np.all(np.abs(new - shape) <= TOL * shape)
        shape = new
        if done:
            break
    shape = np.clip(shape, LEAST, MOST)
    rate = np.exp(np.clip(np.log(shape) - log_mean, np.log(LEAST_RATE), np.log(MOST_RATE)))
    given = given_shape, given_rate
    old_shape, old_rate = (np.asarray(each, np.float64).reshape(shape.shape) for each in given)
    worse = _gamma_height(shape, rate, mean, expected_log) < _gamma_height(old_shape, old_rate, mean, expected_log)
    size = np.shape(given_shape)
    shape, rate = np.where(worse, old_shape, shape), np.where(worse, old_rate, rate)
    return shape.reshape(size), rate.reshape(size)


def _gamma_height(shape: Array, rate: Array, mean: Array, expected_log: Array) -> Array:
    """Return the mean of E_q log Gamma(shape, rate), without terms that depend on q alone."""
    return shape * (np.log(rate) + expected_log) - gammaln(shape) - rate * mean
