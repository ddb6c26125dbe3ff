"""The Dirichlet distribution of rows on the simplex."""

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
    row_sums,
    shape_minus_one,
    weighted_log_sum,
)
from bayesnmf.priors.distribution import OPTIONAL, Distribution, log_marginal_of, plain_moments
from bayesnmf.priors.gamma import LEAST_DIVISOR, moments_of, positive_exp, seed_of, spread
from bayesnmf.priors.learning import learned_concentration

if TYPE_CHECKING:
    from bayesnmf.kernels.cpu.mean_field import Moments


Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Dirichlet(Distribution):
    """Dirichlet(concentration) for every row, over the last axis; as a prior and as a posterior.

    Parameters
    ----------
    concentration : array_like
        α > 0, broadcastable to the factor: (n, K) for loadings, (K, m) for components.
    """

    concentration: ArrayLike

    flat = False
    proper = True
    support = "simplex"
    counted = "concentration"
    optional = frozenset(OPTIONAL)

    @property
    def smallest_shape(self) -> float:
        """The least concentration: at 1 or above, the density has a mode."""
        return float(np.asarray(self.concentration).min())

    def conditional(self, total: Array, exposure: Array, *, reuse: bool = False) -> Dirichlet:
        """Dirichlet(concentration + total) ([GP] alg. 5); the exposure is constant along the simplex.

        With `reuse` the total may be overwritten.
        """
        return Dirichlet(added(self.concentration, total, reuse))

    def mode(
        self, total: Array | float = 0.0, exposure: Array | float = 0.0, previous: Any = None, *, reuse: bool = False
    ) -> Array:
        """Mode of the conditional, ∝ α − 1 + total; `previous`, or even shares, in rows where that is 0.

        The exposure is constant along the simplex and does not enter. With `reuse` the total may be overwritten.
        """
        peak = shape_minus_one(self.concentration, total, reuse)
        return divided(peak, row_sums(peak), previous, 1 / peak.shape[-1])

    def balance(self, value: Array, total: Array, exposure: Any = 0.0, less: float = 1.0) -> tuple[Array, Array]:
        """Return Σ(α − less + total) and α − less: value × (the first) = total + (the second) at a mode inside.

        `less` is 1 in the natural basis, 0 in the log (softmax) basis.
        """
        beyond = as_array(self.concentration) - less
        sums = namespace(beyond).xp.broadcast_to(beyond, total.shape).sum(axis=-1, keepdims=True)
        return sums + total.sum(axis=-1, keepdims=True, dtype=np.float64), beyond

    def mean(self) -> Array:
        """Expectation, α / Σα."""
        alpha = as_array(self.concentration)
        return alpha / row_sums(alpha)

    def variance(self) -> Array:
        """Variances, E(1 − E) / (Σα + 1)."""
        mean = self.mean()
        return mean * (1 - mean) / (np.asarray(self.concentration).sum(axis=-1, keepdims=True) + 1)

    def expected_log(self) -> Array:
        """E log, ψ(α) − ψ(Σα)."""
        alpha = precise(self.concentration)
        digamma = namespace(alpha).special.digamma
        return digamma(alpha) - digamma(alpha.sum(axis=-1, keepdims=True))

    def draw(self, rng: np.random.Generator, draws: tuple[int, ...] = (), threads: int | None = 1) -> Array:
        """Independent draws, shape (*draws, *factor), never exactly 0; on any number of threads the same."""
        from bayesnmf.kernels.cpu.gamma_draws import gamma_draws

        alpha, seed = np.asarray(self.concentration), seed_of(rng)
        full = spread(alpha, draws + alpha.shape)
        weights = gamma_draws(full, seed, threads)
        sums = weights.sum(axis=-1, keepdims=True)
        if (sums < LEAST_DIVISOR).any():
            log_draw = gamma_draws(full, seed, threads, logarithms=True)
            log_draw -= log_draw.max(axis=-1, keepdims=True)
            weights = np.where(sums < LEAST_DIVISOR, positive_exp(log_draw), weights)
            sums = weights.sum(axis=-1, keepdims=True)
        weights /= sums
        return weights

    def log_normaliser(self, size: tuple[int, ...]) -> float:
        """Σ over rows of logΓ(Σα) − Σ logΓ(α), for a factor of the given size."""
        xp, special = namespace(self.concentration)
        alpha, gammaln = xp.atleast_1d(xp.asarray(self.concentration, np.float64)), special.gammaln
        repeats = size[-1] / alpha.shape[-1]
        terms = gammaln(repeats * alpha.sum(axis=-1)) - repeats * gammaln(alpha).sum(axis=-1)
        return as_number(terms.sum() * (math.prod(size[:-1]) / terms.size))

    def log_density(self, value: Array) -> float:
        """Sum of log densities at `value`, in nats; not 0 at α = 1, where it is Σ logΓ(m)."""
        return weighted_log_sum(as_array(self.concentration) - 1, value) + self.log_normaliser(value.shape)

    def moments(self, prior: Dirichlet | None, component_axis: int, threads: int | None = None) -> Moments:
        """Return what an update needs: Σ E[x] per component, exp(E log x − shift), the shift and KL(self ‖ prior).

        The shift is the largest E log x over the components. Without a prior the divergence is NaN.
        """
        if not on_host(self.concentration):
            return plain_moments(self, prior, component_axis)
        from bayesnmf.kernels.cpu.mean_field import digamma_with_excess

        sums = np.asarray(self.concentration).sum(axis=-1, keepdims=True, dtype=np.float64)
        psi, excess = digamma_with_excess(sums)
        before = 0.0 if prior is None else prior.concentration
        found = moments_of(component_axis, self.concentration, (sums, psi, before, 0.0), threads)
        if prior is None:
            return found._replace(divergence=np.nan)
        beyond = float(excess.sum()) + prior.log_normaliser(found.geometric.shape)
        return found._replace(divergence=found.divergence - beyond)

    def kl(self, prior: Dirichlet) -> float:
        """KL(self ‖ prior), summed, in nats."""
        tilt = (as_array(self.concentration) - prior.concentration) * self.expected_log()
        size = tilt.shape
        return as_number(tilt.sum(dtype=np.float64)) + self.log_normaliser(size) - prior.log_normaliser(size)

    def log_jacobian(self, value: Array) -> float:
        """Σ log value: what the softmax basis adds to a log density."""
        return log_sum(value)

    def quantiles(self, at: tuple[Array, Array], levels: Array) -> Array:
        """Quantiles of some entries, (levels, …): their marginals are Beta(α_k, Σα − α_k)."""
        from scipy.stats import beta

        alpha = np.asarray(self.concentration, np.float64)
        rest = alpha.sum(axis=-1, keepdims=True) - alpha
        found = beta.ppf(levels[:, None, None], alpha[at], rest[at])
        return np.where(rest[at] > 0, found, 1.0)  # a single proportion is 1

    def draw_features(self, rng: np.random.Generator, draws: tuple[int, ...], features: Array) -> Array:
        """Independent draws of some features of components of full size; all others are drawn as one, their sum."""
        concentration = np.asarray(self.concentration)
        kept, others = concentration[:, features], np.delete(concentration, features, axis=1)
        if others.shape[1]:
            kept = np.hstack([kept, others.sum(axis=1, keepdims=True)])
        return Dirichlet(kept).draw(rng, draws)[..., : len(features)]

    def value_of(self, parts: list[Array]) -> Array:
        """Return the one array with its rows normalised."""
        return parts[0] / row_sums(parts[0])

    def learned(self, q: Dirichlet) -> Dirichlet:
        """Return the Dirichlet that maximises E_q log p: see `learned_concentration`."""
        q = q.mapped(lambda value: np.asarray(value, np.float64))
        return Dirichlet(learned_concentration(self.concentration, q.expected_log()))

    def gradient(self, best: Dirichlet) -> list[Array]:
        """Return the bound's derivatives by log concentration, given the conditional; 0 where q is that."""
        alpha = np.asarray(self.concentration)
        off = np.asarray(best.concentration) - alpha
        shared = polygamma(1, alpha.sum(axis=-1, keepdims=True)) * off.sum(axis=-1, keepdims=True)
        return [alpha * (polygamma(1, alpha) * off - shared)]

    def settled_terms(self, exposure: Array) -> tuple[Array, Array | None]:
        """Return the concentration, which is added to totals whose rows are then normalised."""
        return np.asarray(self.concentration), None

    @property
    def flat_in_shares(self) -> bool:
        """Whether every concentration is 1."""
        return bool(np.all(np.asarray(self.concentration) == 1))

    def regression_terms(self, length: int) -> tuple[Array, Array]:
        """Return α − 1 and Σ(α − 1), the rate with which the best sum of a row is 1 ([C] cor. 2)."""
        beyond = np.atleast_2d(self.concentration) - 1
        full = np.broadcast_to(beyond.T, (length, len(beyond)))
        return beyond, full.sum(axis=0, keepdims=True).T

    def log_marginal(self, total: Array) -> float:
        """Return log ∫ p(x) x^total dx, summed over rows."""
        return log_marginal_of(self, total)

    def urn_terms(self) -> tuple[Array, Array]:
        """Return the concentration, and 1: a token has weight α + A."""
        return np.asarray(self.concentration), np.ones(())
