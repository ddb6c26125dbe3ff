"""A Dirichlet row times a Gamma scale: loadings of the Dirichlet-Gamma allocation model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bayesnmf.priors.arrays import ones_like, row_sums
from bayesnmf.priors.dirichlet import Dirichlet
from bayesnmf.priors.distribution import OPTIONAL, Distribution
from bayesnmf.priors.gamma import Gamma
from bayesnmf.priors.values import ScaledProportions

if TYPE_CHECKING:
    from bayesnmf.kernels.cpu.mean_field import Moments


Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class ScaledDirichlet(Distribution):
    """s_i · θ_i with s_i ~ Gamma(shape, rate) and θ_i ~ Dirichlet(concentration) ([K] section 2).

    Parameters
    ----------
    concentration : array_like
        α > 0, broadcastable to (n, K).
    shape, rate : array_like
        Of the scale, > 0, broadcastable to (n, 1).
    """

    concentration: ArrayLike
    shape: ArrayLike
    rate: ArrayLike

    flat = False
    support = "scaled simplex"
    counted = "concentration"
    optional = frozenset(OPTIONAL)
    by_row = ("shape", "rate")
    may_be_zero = ("rate",)

    @property
    def proportions(self) -> Dirichlet:
        """The distribution of the proportions."""
        return Dirichlet(self.concentration)

    @property
    def scale(self) -> Gamma:
        """The distribution of the scale, (n, 1)."""
        return Gamma(self.shape, self.rate)

    @property
    def proper(self) -> bool:
        """Whether it integrates to one."""
        return self.scale.proper

    @property
    def smallest_shape(self) -> float:
        """The least of concentration and shape: at 1 or above, the density has a mode."""
        return min(self.proportions.smallest_shape, self.scale.smallest_shape)

    def conditional(self, total: Array, exposure: Array, *, reuse: bool = False) -> ScaledDirichlet:
        """Scale Gamma(a + N_i, b + 1), proportions Dirichlet(α + A) ([K] 5-6); components are on the simplex.

        With `reuse` the total may be overwritten.
        """
        scale = self.scale.conditional(row_sums(total), ones_like(total))
        proportions = self.proportions.conditional(total, exposure, reuse=reuse)
        return ScaledDirichlet(proportions.concentration, scale.shape, scale.rate)

    def mode(
        self,
        total: Array,
        exposure: Array | float = 1.0,
        previous: ScaledProportions | None = None,
        *,
        reuse: bool = False,
    ) -> ScaledProportions:
        """Modes of both conditionals, given the total (n, K); `previous` proportions where theirs is not unique.

        With `reuse` the total may be overwritten.
        """
        kept = None if previous is None else previous.proportions
        scale = self.scale.mode(row_sums(total), ones_like(total))
        return ScaledProportions(self.proportions.mode(total, exposure, kept, reuse=reuse), scale)

    def balance(self, value: Array, total: Array, exposure: Any, less: float = 1.0) -> tuple[Array, Array]:
        """Balance of the proportions; the mode of the scale does not depend on them."""
        return self.proportions.balance(value, total, exposure, less)

    def mean(self) -> ScaledProportions:
        """Expectations; the two are independent, so their product is the mean loading."""
        return ScaledProportions(self.proportions.mean(), self.scale.mean())

    def variance(self) -> ScaledProportions:
        """Variances of the proportions and of the scale."""
        return ScaledProportions(self.proportions.variance(), self.scale.variance())

    def expected_log(self) -> Array:
        """E log of the product, (n, K)."""
        return self.proportions.expected_log() + self.scale.expected_log()

    def draw(self, rng: np.random.Generator, draws: tuple[int, ...] = (), threads: int | None = 1) -> ScaledProportions:
        """Independent draws of proportions (*draws, n, K) and scale (*draws, n, 1)."""
        return ScaledProportions(self.proportions.draw(rng, draws, threads), self.scale.draw(rng, draws, threads))

    def log_density(self, value: ScaledProportions) -> float:
        """Sum of log densities at `value`, in nats."""
        return self.proportions.log_density(value.proportions) + self.scale.log_density(value.scale)

    def moments(self, prior: ScaledDirichlet | None, component_axis: int, threads: int | None = None) -> Moments:
        """Return what an update needs: no sums, exp(E log x − shift) of the product, the shift and KL(self ‖ prior).

        The shift is the largest E log x over the components. Without a prior the divergence is NaN.
        """
        from bayesnmf.kernels.cpu.mean_field import Moments

        found = self.proportions.moments(None if prior is None else prior.proportions, component_axis, threads)
        scale = self.scale
        kl = np.nan if prior is None else scale.kl(prior.scale)
        return Moments(None, found.geometric, found.shift + scale.expected_log(), found.divergence + kl)

    def kl(self, prior: ScaledDirichlet) -> float:
        """KL(self ‖ prior), summed, in nats."""
        return self.proportions.kl(prior.proportions) + self.scale.kl(prior.scale)

    def log_jacobian(self, value: ScaledProportions) -> float:
        """Σ log proportions + Σ log scale: what the softmax and log bases add to a log density."""
        return self.proportions.log_jacobian(value.proportions) + self.scale.log_jacobian(value.scale)

    def quantiles(self, at: tuple[Array, Array], levels: Array) -> Array:
        """Quantiles of some proportions, (levels, …)."""
        return self.proportions.quantiles(at, levels)

    def draw_features(self, rng: np.random.Generator, draws: tuple[int, ...], features: Array) -> Array:
        """Raise, since components have no scale."""
        raise NotImplementedError

    def value_of(self, parts: list[Array]) -> ScaledProportions:
        """Return proportions, normalised, and the scale."""
        return ScaledProportions(self.proportions.value_of(parts[:1]), parts[1])

    def learned(self, q: ScaledDirichlet) -> ScaledDirichlet:
        """Return the member of the family that maximises E_q log p: proportions and scale each by themselves."""
        proportions, scale = self.proportions.learned(q.proportions), self.scale.learned(q.scale)
        return ScaledDirichlet(proportions.concentration, scale.shape, scale.rate)

    def gradient(self, best: ScaledDirichlet) -> list[Array]:
        """Return the bound's derivatives by log concentration, log shape and log rate, given the conditional."""
        return [*self.proportions.gradient(best.proportions), *self.scale.gradient(best.scale)]

    def settled_terms(self, exposure: Array) -> tuple[Array, Array | None]:
        """Return those of the proportions, since the scale cancels from the allocations."""
        return self.proportions.settled_terms(exposure)

    @property
    def flat_in_shares(self) -> bool:
        """Whether every concentration is 1."""
        return self.proportions.flat_in_shares

    def regression_terms(self, length: int) -> tuple[Array, Array]:
        """Return those of the proportions."""
        return self.proportions.regression_terms(length)

    def with_best_scale(self, loadings: Array, totals: Array) -> ScaledProportions:
        """Return these proportions with the mode of the scale given row totals (n, 1)."""
        return ScaledProportions(loadings, self.scale.mode(totals, ones_like(totals)))

    def log_marginal(self, total: Array) -> float:
        """Return log ∫ p(s, θ) s^N exp(−s) θ^total, summed over rows, with N the sum of a row."""
        return self.scale.log_marginal(total.sum(axis=1, keepdims=True)) + self.proportions.log_marginal(total)

    def urn_terms(self) -> tuple[Array, Array]:
        """Return those of the proportions."""
        return self.proportions.urn_terms()
