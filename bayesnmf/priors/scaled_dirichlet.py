"""The distribution of Dirichlet rows times Gamma scales: loadings of the Dirichlet-Gamma allocation model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from bayesnmf.priors.dirichlet import Dirichlet
from bayesnmf.priors.distribution import Distribution, Every
from bayesnmf.priors.gamma import Gamma
from bayesnmf.priors.values import ScaledProportions, row_sums
from bayesnmf.types import Array

if TYPE_CHECKING:
    from bayesnmf.kernels.cpu.mean_field import Moments


@dataclass(frozen=True, eq=False)
class ScaledDirichlet(Distribution, Every):
    """Distribution of rows s_i · θ_i with s_i ~ Gamma(shape, rate), θ_i ~ Dirichlet(concentration) ([K] section 2).

    Parameters
    ----------
    concentration : array_like
        Concentration α > 0 of the proportions, without unit, broadcastable to (n, K).
    shape : array_like
        Shape > 0 of the scale, without unit, broadcastable to (n, 1).
    rate : array_like
        Rate > 0 of the scale, in inverse counts, broadcastable to (n, 1).

    See Also
    --------
    Priors, Dirichlet, Gamma

    Examples
    --------
    >>> import bayesnmf
    >>> prior = bayesnmf.Priors(loadings=bayesnmf.ScaledDirichlet(0.3, 1.0, 0.01))
    """

    concentration: ArrayLike
    shape: ArrayLike
    rate: ArrayLike

    flat = False
    support = "scaled simplex"
    counted, exposed = "concentration", "rate"
    by_row = ("shape", "rate")
    with_unit = may_be_zero = ("rate",)
    learned_together = ("shape", "rate")

    @property
    def proportions(self) -> Dirichlet:
        """Distribution of the proportions."""
        return Dirichlet(self.concentration)

    @property
    def scale(self) -> Gamma:
        """Distribution of the scale, (n, 1)."""
        return Gamma(self.shape, self.rate)

    @property
    def proper(self) -> bool:
        """Whether the density integrates to one."""
        return self.scale.proper

    @property
    def smallest_shape(self) -> float:
        """Smallest concentration or shape; if it is at least 1, the density is bounded and has a mode."""
        return min(self.proportions.smallest_shape, self.scale.smallest_shape)

    def conditional(self, total: Array, exposure: Array, *, reuse: bool = False) -> ScaledDirichlet:
        """Return the conditional: scale Gamma(a + N_i, b + r_i), proportions Dirichlet(α + A) ([K] 5-6).

        The exposure, (1 or n, 1), is that of the rows alone, because components are on the simplex. With `reuse` the
        total may be overwritten.
        """
        scale = self.scale.conditional(row_sums(total), exposure)
        proportions = self.proportions.conditional(total, exposure, reuse=reuse)
        return ScaledDirichlet(proportions.concentration, scale.shape, scale.rate)

    def near_conditional(
        self, total: Array, exposure: Array, q: ScaledDirichlet, *, whole: bool = False
    ) -> ScaledDirichlet:
        """Return q after a step of the proportions, and then the conditional of the scale, given exposures (n, K).

        With `whole`, the step is the natural gradient, and the conditional of the scale is that of the proportions of
        q, so that both differ from q by natural gradients.
        """
        exposure = np.asarray(exposure, np.float64)
        proportions = self.proportions.near_conditional(total, exposure * q.scale.mean(), q.proportions, whole=whole)
        shares = np.asarray((q.proportions if whole else proportions).mean(), np.float64)
        exposed = (exposure * shares).sum(axis=1, keepdims=True).astype(total.dtype)
        scale = self.scale.conditional(row_sums(total), exposed)
        return ScaledDirichlet(proportions.concentration, scale.shape, scale.rate)

    def mode(
        self,
        total: Array,
        exposure: Array | float = 1.0,
        previous: ScaledProportions | None = None,
        *,
        reuse: bool = False,
    ) -> ScaledProportions:
        """Return the modes of both conditionals, given the total (n, K) and the exposure of the rows, (1 or n, 1).

        Where the mode of the proportions is not unique, those of `previous` are returned. With `reuse` the total may be
        overwritten.
        """
        kept = None if previous is None else previous.proportions
        scale = self.scale.mode(row_sums(total), exposure)
        return ScaledProportions(self.proportions.mode(total, exposure, kept, reuse=reuse), scale)

    def balance(self, value: Array, total: Array, exposure: Any, less: float = 1.0) -> tuple[Array, Array]:
        """Return f and g of the proportions; the mode of the scale does not depend on them."""
        return self.proportions.balance(value, total, exposure, less)

    def mean(self) -> ScaledProportions:
        """Return the means of proportions and scale; they are independent, so the product is the mean loading."""
        return ScaledProportions(self.proportions.mean(), self.scale.mean())

    def variance(self) -> ScaledProportions:
        """Return the variances of the proportions and of the scale."""
        return ScaledProportions(self.proportions.variance(), self.scale.variance())

    def expected_log(self) -> Array:
        """Return the expected logarithm of the product, (n, K)."""
        return self.proportions.expected_log() + self.scale.expected_log()

    def draw(self, rng: np.random.Generator, draws: tuple[int, ...] = (), threads: int | None = 1) -> ScaledProportions:
        """Return independent draws of proportions (*draws, n, K) and scale (*draws, n, 1)."""
        return ScaledProportions(self.proportions.draw(rng, draws, threads), self.scale.draw(rng, draws, threads))

    def draw_rows(self, rng: np.random.Generator, first: int, threads: int | None = 1) -> ScaledProportions:
        """Return the draw that `draw` of a larger factor has in these rows, the first of which is row `first`."""
        return ScaledProportions(*(part.draw_rows(rng, first, threads) for part in (self.proportions, self.scale)))

    def log_density(self, value: ScaledProportions) -> float:
        """Return the sum of log densities at `value`, in nats."""
        return self.proportions.log_density(value.proportions) + self.scale.log_density(value.scale)

    def moments(self, prior: ScaledDirichlet | None, component_axis: int, threads: int | None = None) -> Moments:
        """Return None for the sums, exp(E log x − shift) of the product, the shift and KL(self ‖ prior).

        The shift is the largest E log x over the components. Without a prior the divergence is NaN.
        """
        from bayesnmf.kernels.cpu.mean_field import Moments

        found = self.proportions.moments(None if prior is None else prior.proportions, component_axis, threads)
        scale = self.scale
        kl = np.nan if prior is None else scale.kl(prior.scale)
        return Moments(None, found.geometric, found.shift + scale.expected_log(), found.divergence + kl)

    def kl(self, prior: ScaledDirichlet) -> float:
        """Return KL(self ‖ prior), summed over rows, in nats."""
        return self.proportions.kl(prior.proportions) + self.scale.kl(prior.scale)

    def log_jacobian(self, value: ScaledProportions) -> float:
        """Return Σ log proportions + Σ log scale, the log Jacobian of the softmax and log bases."""
        return self.proportions.log_jacobian(value.proportions) + self.scale.log_jacobian(value.scale)

    def quantiles(self, at: tuple[Array, Array], levels: Array) -> Array:
        """Return quantiles of the chosen proportions, (levels, …)."""
        return self.proportions.quantiles(at, levels)

    def value_of(self, parts: list[Array]) -> ScaledProportions:
        """Return the normalised proportions and the scale."""
        return ScaledProportions(self.proportions.value_of(parts[:1]), parts[1])

    def statistics(self, q: ScaledDirichlet) -> list[Array]:
        """Return those of the proportions and of the scale."""
        return [*self.proportions.statistics(q.proportions), *self.scale.statistics(q.scale)]

    def learned_from(self, statistics: list[Array]) -> ScaledDirichlet:
        """Return the member of the family that maximises E_q log p; proportions and scale are learned separately."""
        proportions, scale = self.proportions.learned_from(statistics[:1]), self.scale.learned_from(statistics[1:])
        return ScaledDirichlet(proportions.concentration, scale.shape, scale.rate)

    def gradient(self, best: ScaledDirichlet) -> list[Array]:
        """Return the derivatives of the ELBO by log concentration, log shape and log rate, given the conditional."""
        return [*self.proportions.gradient(best.proportions), *self.scale.gradient(best.scale)]

    def settled_terms(self, exposure: Array) -> tuple[Array, Array | None]:
        """Return the terms of the proportions, since the scale cancels from the allocations."""
        return self.proportions.settled_terms(exposure)

    @property
    def flat_in_shares(self) -> bool:
        """Whether every concentration is 1."""
        return self.proportions.flat_in_shares

    def regression_terms(self, length: int) -> tuple[Array, Array]:
        """Return the terms of the proportions."""
        return self.proportions.regression_terms(length)

    def with_best_scale(self, loadings: Array, totals: Array, exposure: Array) -> ScaledProportions:
        """Return these proportions with the mode of the scale given totals (n, 1) and exposures (1 or n, 1) of rows."""
        return ScaledProportions(loadings, self.scale.mode(totals, exposure))

    def log_marginal(self, total: Array) -> float:
        """Return log ∫ p(s, θ) s^N exp(−s) θ^total ds dθ, summed over rows; N is the sum of a row's total."""
        return self.scale.log_marginal(total.sum(axis=1, keepdims=True)) + self.proportions.log_marginal(total)

    def log_beside_urn(self, row_totals: Array, rank: int) -> float:
        """Return the term of the proportions, plus the marginal of the scale."""
        return self.proportions.log_beside_urn(row_totals, rank) + self.scale.log_marginal(row_totals[:, None])

    def urn_terms(self) -> tuple[Array, Array]:
        """Return the terms of the proportions."""
        return self.proportions.urn_terms()
