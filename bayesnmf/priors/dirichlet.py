"""The Dirichlet distribution of rows on the simplex.

Exposures may differ along the simplex, as those of observed entries do. Given a total A, exposures E and the prior
Dirichlet(η), a row x then has a density ∝ x^(η + A − 1) exp(−Ex), which is a Dirichlet only if all exposures are equal.
With α = η + A and ν₀ = Σν, the elbo of q = Dirichlet(ν) is

    G(ν) = Σ (α_j − ν_j) E log x_j + Σ logΓ(ν_j) − logΓ(ν₀) − Ē        Ē = Σ E_j ν_j / ν₀

With F the Fisher information of q, its gradient is F (α − ν) − h, h_j = (E_j − Ē) / ν₀: the natural gradient, from ν
to α − F⁻¹h, is α − ν where exposures are equal. A step along it is cut until G does not fall.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import digamma, gammaln, polygamma

from bayesnmf.priors.distribution import Distribution, Every, log_marginal_of, plain_moments
from bayesnmf.priors.gamma import (
    LEAST,
    LEAST_DIVISOR,
    MOST,
    MOST_STEPS,
    TOL,
    broadcast_to_size,
    draw_seed,
    kernel_moments,
    positive_exp,
)
from bayesnmf.priors.values import (
    add_to_total,
    as_array,
    as_number,
    divide_or_keep,
    float64_on_device,
    namespace_of,
    on_host,
    row_sums,
    shape_minus_one,
    weighted_log_sum,
)
from bayesnmf.types import Array

if TYPE_CHECKING:
    from bayesnmf.kernels.cpu.mean_field import Moments


@dataclass(frozen=True, eq=False)
class Dirichlet(Distribution, Every):
    """Dirichlet distribution of every row, over the last axis; a prior or a posterior.

    Parameters
    ----------
    concentration : array_like
        Concentration α > 0, without unit, broadcastable to (n, K) for loadings or (K, m) for components.

    See Also
    --------
    Priors, ScaledDirichlet

    Examples
    --------
    >>> import bayesnmf
    >>> prior = bayesnmf.Priors(components=bayesnmf.Dirichlet(0.1))  # few features in each component
    """

    concentration: ArrayLike

    flat = False
    proper = True
    support = "simplex"
    counted = "concentration"

    @property
    def smallest_shape(self) -> float:
        """Smallest concentration; if it is at least 1, the density is bounded and has a mode."""
        return float(np.asarray(self.concentration).min())

    def conditional(self, total: Array, exposure: Array, *, reuse: bool = False) -> Dirichlet:
        """Return the conditional Dirichlet(concentration + total) ([GP] alg. 5).

        The exposure is constant along the simplex, so it does not matter. With `reuse` the total may be overwritten.
        """
        return Dirichlet(add_to_total(self.concentration, total, reuse))

    def near_conditional(self, total: Array, exposure: Array, q: Dirichlet, *, whole: bool = False) -> Dirichlet:
        """Return q after a step towards the conditional under exposures that differ along the simplex.

        The step does not lower the elbo (`stepped`). The `whole` step is the natural gradient, after
        which concentrations need not be positive.
        """
        alpha = np.asarray(self.concentration, np.float64) + np.asarray(total, np.float64)
        step = natural_target if whole else stepped
        found = step(np.asarray(q.concentration, np.float64), alpha, np.asarray(exposure, np.float64))
        return Dirichlet(found.astype(total.dtype))

    def mode(
        self, total: Array | float = 0.0, exposure: Array | float = 0.0, previous: Any = None, *, reuse: bool = False
    ) -> Array:
        """Return the mode of the conditional, ∝ α − 1 + total.

        Rows where α − 1 + total is 0 are taken from `previous`, or have equal entries if that is None. The exposure
        is constant along the simplex, so it does not matter. With `reuse` the total may be overwritten.
        """
        peak = shape_minus_one(self.concentration, total, reuse)
        return divide_or_keep(peak, row_sums(peak), previous, 1 / peak.shape[-1])

    def balance(self, value: Array, total: Array, exposure: Any = 0.0, less: float = 1.0) -> tuple[Array, Array]:
        """Return f = Σ(α − less + total) and g = α − less, for which value × f = total + g at an interior mode.

        `less` is 1 in the natural basis and 0 in the log (softmax) basis.
        """
        beyond = as_array(self.concentration) - less
        sums = namespace_of(beyond).xp.broadcast_to(beyond, total.shape).sum(axis=-1, keepdims=True)
        return sums + total.sum(axis=-1, keepdims=True, dtype=np.float64), beyond

    def mean(self) -> Array:
        """Return the expectation, α / Σα."""
        alpha = as_array(self.concentration)
        return alpha / row_sums(alpha)

    def variance(self) -> Array:
        """Return the variances, E(1 − E) / (Σα + 1)."""
        mean = self.mean()
        return mean * (1 - mean) / (np.asarray(self.concentration).sum(axis=-1, keepdims=True) + 1)

    def expected_log(self) -> Array:
        """Return the expected logarithm, ψ(α) − ψ(Σα)."""
        alpha = float64_on_device(self.concentration)
        digamma = namespace_of(alpha).special.digamma
        return digamma(alpha) - digamma(alpha.sum(axis=-1, keepdims=True))

    def draw(self, rng: np.random.Generator, draws: tuple[int, ...] = (), threads: int | None = 1) -> Array:
        """Return independent draws, (*draws, *factor), never exactly 0; they do not depend on `threads`."""
        return self._drawn(rng, draws, threads, 0)

    def draw_rows(self, rng: np.random.Generator, first: int, threads: int | None = 1) -> Array:
        """Return the draw that `draw` of a larger factor has in these rows, the first of which is row `first`."""
        return self._drawn(rng, (), threads, first)

    def _drawn(self, rng: np.random.Generator, draws: tuple[int, ...], threads: int | None, first: int) -> Array:
        from bayesnmf.kernels.cpu.draws import gamma_draws

        alpha, seed = np.asarray(self.concentration), draw_seed(rng)
        full = broadcast_to_size(alpha, draws + alpha.shape)
        weights = gamma_draws(full, seed, threads, first_row=first)
        sums = weights.sum(axis=-1, keepdims=True)
        if (sums < LEAST_DIVISOR).any():
            log_draw = gamma_draws(full, seed, threads, logarithms=True, first_row=first)
            log_draw -= log_draw.max(axis=-1, keepdims=True)
            weights = np.where(sums < LEAST_DIVISOR, positive_exp(log_draw), weights)
            sums = weights.sum(axis=-1, keepdims=True)
        weights /= sums
        return weights

    def log_normaliser(self, size: tuple[int, ...]) -> float:
        """Return Σ over rows of logΓ(Σα) − Σ logΓ(α), for a factor of the given size."""
        xp, special = namespace_of(self.concentration)
        alpha = xp.atleast_1d(xp.asarray(self.concentration, np.float64))
        repeats = size[-1] / alpha.shape[-1]
        terms = special.gammaln(repeats * alpha.sum(axis=-1)) - repeats * special.gammaln(alpha).sum(axis=-1)
        return as_number(terms.sum() * (math.prod(size[:-1]) / terms.size))

    def log_density(self, value: Array) -> float:
        """Return the sum of log densities at `value`, in nats; at α = 1 this is Σ logΓ(m), not 0."""
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
        found = kernel_moments(component_axis, self.concentration, sums, psi, before, 0.0, threads)
        if prior is None:
            return found._replace(divergence=np.nan)
        beyond = float(excess.sum()) + prior.log_normaliser(found.geometric.shape)
        return found._replace(divergence=found.divergence - beyond)

    def kl(self, prior: Dirichlet) -> float:
        """Return KL(self ‖ prior), summed over rows, in nats."""
        tilt = (as_array(self.concentration) - prior.concentration) * self.expected_log()
        size = tilt.shape
        return as_number(tilt.sum(dtype=np.float64)) + self.log_normaliser(size) - prior.log_normaliser(size)

    def quantiles(self, at: tuple[Array, Array], levels: Array) -> Array:
        """Return quantiles of the chosen entries, (levels, …), from their marginals Beta(α_k, Σα − α_k)."""
        from scipy.stats import beta

        alpha = np.asarray(self.concentration, np.float64)
        rest = alpha.sum(axis=-1, keepdims=True) - alpha
        found = beta.ppf(levels[:, None, None], alpha[at], rest[at])
        return np.where(rest[at] > 0, found, 1.0)  # a single proportion is 1

    def draw_features(self, rng: np.random.Generator, draws: tuple[int, ...], features: Array) -> Array:
        """Return independent draws of the chosen features; the sum of all other features is drawn as one entry."""
        concentration = np.asarray(self.concentration)
        kept, others = concentration[:, features], np.delete(concentration, features, axis=1)
        if others.shape[1]:
            kept = np.hstack([kept, others.sum(axis=1, keepdims=True)])
        return Dirichlet(kept).draw(rng, draws)[..., : len(features)]

    def value_of(self, parts: list[Array]) -> Array:
        """Return the only array, with its rows normalised."""
        return parts[0] / row_sums(parts[0])

    def statistics(self, q: Dirichlet) -> list[Array]:
        """Return E log x."""
        return [q.mapped(lambda value: np.asarray(value, np.float64)).expected_log()]

    def learned_from(self, statistics: list[Array]) -> Dirichlet:
        """Return the Dirichlet that maximises E_q log p (`learned_concentration`)."""
        return Dirichlet(learned_concentration(self.concentration, *statistics))

    def gradient(self, best: Dirichlet) -> list[Array]:
        """Return the derivatives of the ELBO by log concentration; 0 if q equals the conditional `best`."""
        alpha = np.asarray(self.concentration)
        off = np.asarray(best.concentration) - alpha
        shared = polygamma(1, alpha.sum(axis=-1, keepdims=True)) * off.sum(axis=-1, keepdims=True)
        return [alpha * (polygamma(1, alpha) * off - shared)]

    def settled_terms(self, exposure: Array) -> tuple[Array, Array | None]:
        """Return the concentration, which is added to the totals; None, since rows are then normalised."""
        return np.asarray(self.concentration), None

    @property
    def flat_in_shares(self) -> bool:
        """Whether every concentration is 1."""
        return bool(np.all(np.asarray(self.concentration) == 1))

    def regression_terms(self, length: int) -> tuple[Array, Array]:
        """Return α − 1 and Σ(α − 1), the rate for which the optimal sum of a row is 1 ([C] cor. 2)."""
        beyond = np.atleast_2d(self.concentration) - 1
        full = np.broadcast_to(beyond.T, (length, len(beyond)))
        return beyond, full.sum(axis=0, keepdims=True).T

    def log_marginal(self, total: Array) -> float:
        """Return log ∫ p(x) x^total dx, summed over rows."""
        return log_marginal_of(self, total)

    def log_beside_urn(self, row_totals: Array, rank: int) -> float:
        """Return Σ logΓ(Σα) − logΓ(Σα + N), which all components of a row share."""
        alpha = np.broadcast_to(np.asarray(self.concentration, np.float64), (len(row_totals), rank))
        sums = alpha.sum(axis=1)
        return float((gammaln(sums) - gammaln(sums + row_totals)).sum())

    def urn_terms(self) -> tuple[Array, Array]:
        """Return the concentration, and 1: a token chooses a component with weight α + A."""
        return np.asarray(self.concentration), np.ones(())


# --- the concentration that maximises E_q log p (Minka, *Estimating a Dirichlet distribution*, 2000) --------


ROUNDING = 1e-14  # relative decrease of the objective that rounding may show in a last full step


def learned_concentration(given: Any, expected_log: Array) -> Array:
    """Return the concentration of the Dirichlet prior that maximises E log p, given E[log x] (rows, entries).

    It has the shape of the given concentration: one for all rows or one per row, as a vector or as one number for all
    entries.
    """
    width = expected_log.shape[1]
    if width == 1:  # the simplex is one point, with density 1 for any concentration
        return given
    given = np.asarray(given, np.float64)
    padded = given.reshape((1,) * (2 - given.ndim) + given.shape)
    means = expected_log.mean(axis=0, keepdims=True) if len(padded) == 1 else expected_log
    rows = [
        _newton(mean_log, start) if len(start) == width else _newton_symmetric(mean_log, float(start[0]))
        for mean_log, start in zip(means, padded, strict=True)
    ]
    return np.array(rows).reshape(given.shape)


def _dirichlet_height(alpha: Array, mean_log: Array) -> float:
    """Return logΓ(Σα) − Σ logΓ(α) + Σ α E log."""
    return float(gammaln(alpha.sum()) - gammaln(alpha).sum() + (alpha * mean_log).sum())


def _newton(mean_log: Array, alpha: Array) -> Array:
    """Return the α that maximises `_dirichlet_height`, by Newton's method; the Hessian is diagonal plus rank one."""
    height = _dirichlet_height(alpha, mean_log)
    for _ in range(MOST_STEPS):
        total = alpha.sum()
        gradient = digamma(total) - digamma(alpha) + mean_log
        curvature = -polygamma(1, alpha)
        shared = (gradient / curvature).sum() / (1 / polygamma(1, total) + (1 / curvature).sum())
        move = (gradient - shared) / curvature
        length = 1.0
        while True:
            new = np.minimum(alpha - length * move, MOST)
            if np.all(new >= LEAST) and _dirichlet_height(new, mean_log) >= height - ROUNDING * abs(height):
                break
            length /= 2
            if length < TOL:
                return alpha
        alpha, height = new, _dirichlet_height(new, mean_log)
        if np.all(np.abs(length * move) <= TOL * alpha):
            break
    return alpha


def _newton_symmetric(mean_log: Array, alpha: float) -> Array:
    """Return the α, equal for all entries, that maximises `_dirichlet_height`, by Newton's method in log α."""
    size = len(mean_log)
    height = _dirichlet_height(np.full(size, alpha), mean_log)
    for _ in range(MOST_STEPS):
        gradient = size * (digamma(size * alpha) - digamma(alpha)) + mean_log.sum()
        curvature = size**2 * polygamma(1, size * alpha) - size * polygamma(1, alpha)
        slope, bend = gradient * alpha, curvature * alpha**2 + gradient * alpha
        most = 2.0 if bend < 0 else 1.0
        move = -slope / bend if abs(slope) < -most * bend else most * np.sign(slope)
        while True:
            new = min(max(alpha * np.exp(move), LEAST), MOST)
            if _dirichlet_height(np.full(size, new), mean_log) >= height - ROUNDING * abs(height):
                break
            move /= 2
            if not abs(move) >= TOL:  # as NaN is not, which has no height to reach
                return np.array([alpha])
        alpha, height = float(new), _dirichlet_height(np.full(size, new), mean_log)
        if abs(move) <= TOL:
            break
    return np.array([alpha])


# --- the best Dirichlet under exposures that differ ---------------------------------------------------------

LEAST_LEFT = 0.1  # of a concentration after a step
CUTS = 40  # of a step, to half of it
LOST = 1e-13  # of the largest term of G


def natural_target(nu: Array, alpha: Array, exposure: Array) -> Array:
    """Return α − F⁻¹h of rows, (rows, entries), which need not be positive; α where a row has one entry."""
    if nu.shape[1] == 1:
        return alpha + 0 * nu
    total = nu.sum(axis=1, keepdims=True)
    tilt = (exposure - (exposure * nu).sum(axis=1, keepdims=True) / total) / total
    return np.asarray(alpha - solved(nu, tilt))


def solved(nu: Array, change: Array) -> Array:
    """Return F⁻¹ times a change of E log x of rows with at least two entries."""
    from bayesnmf.kernels.cpu.mean_field import trigamma  # compiled code takes time to import

    own, of_total = 1 / trigamma(nu), trigamma(nu.sum(axis=1, keepdims=True))
    shared = of_total / (1 - of_total * own.sum(axis=1, keepdims=True))
    return np.asarray(own * (change + shared * (own * change).sum(axis=1, keepdims=True)))


def stepped(nu: Array, alpha: Array, exposure: Array) -> Array:
    """Return concentrations of rows after a step along the natural gradient that does not lower their G."""
    if nu.shape[1] == 1:
        return np.array(alpha + 0 * nu)
    alpha, exposure = np.broadcast_to(alpha, nu.shape), np.broadcast_to(exposure, nu.shape)
    target = natural_target(nu, alpha, exposure)
    way = target - nu
    falls = np.where(way < 0, way, -1.0)
    longest = np.where(way < 0, (LEAST_LEFT - 1) * nu / falls, 1.0).min(axis=1, keepdims=True)
    part = np.minimum(longest, 1.0)
    found = np.where(part == 1, target, nu + part * way)
    before, size = _bound(nu, alpha, exposure)
    low = np.arange(len(nu))
    for _ in range(CUTS):
        after, _ = _bound(found[low], alpha[low], exposure[low])
        low = low[~(after >= (before - LOST * size)[low])]
        if not len(low):
            return found
        part[low] /= 2
        found[low] = (nu + part * way)[low]
    found[low] = nu[low]
    return found


def _bound(nu: Array, alpha: Array, exposure: Array) -> tuple[Array, Array]:
    """Return G of rows, and the size of its terms, with logΓ(ν) = ν ψ(ν) − h(ν) − ν (`mean_field`)."""
    from bayesnmf.kernels.cpu.mean_field import digamma_with_excess

    total, (psi, excess) = nu.sum(axis=1, keepdims=True), digamma_with_excess(nu)
    of_total, exposed = gammaln(total[:, 0]), (exposure * nu).sum(axis=1) / total[:, 0]
    tilt = ((alpha - nu) * (psi - digamma(total))).sum(axis=1)
    found = tilt + (nu * (psi - 1) - excess).sum(axis=1) - of_total - exposed
    return found, np.abs(of_total) + np.abs(exposed) + np.abs(tilt)
