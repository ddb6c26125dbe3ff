"""The likelihood of every model: independent counts, Poisson or negative binomial, whose means are a matrix product.

    X_ij ~ Poisson(λ_ij),  λ = θβ,        log p(X) = Σ [X log λ − log X!] − (Σ_i θ_i)·(Σ_j β_j)

The last term sums λ over all entries without forming λ, so zero counts cost nothing. With exposures r of rows and c of
features, λ_ij = r_i c_j (θβ)_ij: the factors of the product are then rθ and βc. Where entries are missing, all sums are
over the observed ones; given the totals N_i of these, log p(X) loses Σ N_i log(Σ_j λ_ij) over the observed entries, as
their counts are multinomial.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro  # whole, before its parts: ArviZ leaves a lazy stand-in that they would tear
import numpyro.distributions as dist
from jax.scipy.special import gammaln
from jax.typing import ArrayLike
from numpyro.distributions import constraints

from .entries import Observed, Triplets, as_observation, rates_at, row_totals, size_of, total_exposed


def with_exposures(
    factors: tuple[jax.Array, jax.Array], rows: ArrayLike | None, features: ArrayLike | None
) -> tuple[jax.Array, jax.Array]:
    """Return loadings (n, K) and components (K, m) times the exposures of rows (n,) and of features (m,)."""
    theta, beta = factors
    if rows is not None:
        theta = theta * jnp.asarray(rows)[:, None]
    return theta, beta if features is None else beta * jnp.asarray(features)


class _NonnegativeCounts(type(constraints.nonnegative)):  # type: ignore[misc]
    """Nonnegative numbers that samplers must not treat as continuous; fractions are allowed."""

    is_discrete = True


class _ProductOfFactors(dist.Distribution):
    """Independent counts with mean ``loadings @ components``, whatever their noise."""

    arg_constraints = {  # noqa: RUF012 - the name and type that NumPyro reads
        "loadings": constraints.independent(constraints.nonnegative, 2),
        "components": constraints.independent(constraints.nonnegative, 2),
    }
    support = constraints.independent(_NonnegativeCounts(), 2)
    pytree_data_fields: tuple[str, ...] = ("loadings", "components")

    def __init__(self, loadings: ArrayLike, components: ArrayLike, validate_args: bool | None = None) -> None:
        self.loadings, self.components = jnp.asarray(loadings), jnp.asarray(components)
        (*left, n, rank), (*right, other_rank, m) = self.loadings.shape, self.components.shape
        if rank != other_rank:
            raise ValueError(f"loadings (n, K) and components (K, m) must share K, got {rank} and {other_rank}")
        batch = jnp.broadcast_shapes(tuple(left), tuple(right))
        super().__init__(batch, (n, m), validate_args=validate_args)

    @property
    def mean(self) -> jax.Array:
        """Mean λ = θβ, shape (..., n, m)."""
        return self.loadings @ self.components


class PoissonProduct(_ProductOfFactors):
    """Independent Poisson counts with mean ``loadings @ components``.

    Parameters
    ----------
    loadings : array (..., n, K)
    components : array (..., K, m)
    totals : array (n,), optional
        Row totals N_i for simulation: `sample` draws row i from Multinomial(N_i, λ_i / Σ_j λ_ij).
        They do not enter `log_prob`.
    observed : Observed, optional
        Which entries the density is of; by default all.
    given_totals : bool
        Whether the density is that of the observed entries given the totals of their rows.
    validate_args : bool, optional
        Whether to check that both factors are nonnegative.
    """

    pytree_data_fields = ("totals", "observed")
    pytree_aux_fields = ("given_totals",)

    def __init__(
        self,
        loadings: ArrayLike,
        components: ArrayLike,
        totals: ArrayLike | None = None,
        observed: Observed | None = None,
        given_totals: bool = False,
        validate_args: bool | None = None,
    ) -> None:
        self.totals = None if totals is None else jnp.asarray(totals)
        self.observed, self.given_totals = observed, given_totals
        super().__init__(loadings, components, validate_args)

    @property
    def variance(self) -> jax.Array:
        """λ again."""
        return self.mean

    def log_prob(self, value: Any) -> jax.Array:
        """Return the log density of counts, dense (..., n, m), SciPy sparse or `Triplets`; shape (...)."""
        value = as_observation(value)
        if isinstance(value, Triplets):
            rate = rates_at(value, self.loadings, self.components).sum(-1)
            seen = _log_of_seen(value.values, rate).sum(-1)
        else:
            seen = _log_of_seen(value, self.mean).sum((-2, -1))
        totals = row_totals(value, self.event_shape[0]) if self.given_totals else None
        return seen - total_exposed(self.loadings, self.components, self.observed, totals)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Sample dense counts (..., n, m), given the row totals if there are any."""
        rate = self.mean
        if self.totals is None:
            return jax.random.poisson(key, rate, sample_shape + rate.shape)
        row_rate = rate.sum(-1, keepdims=True)
        chances = rate / jnp.where(row_rate > 0, row_rate, 1)
        # NumPyro's Multinomial draws every count separately, and needs a static largest total
        draws = jax.random.multinomial(key, self.totals, chances, shape=sample_shape + rate.shape[:-1])
        return draws.astype(int)


class NegativeBinomialProduct(_ProductOfFactors):
    """Independent negative binomial counts with mean ``loadings @ components``.

    Parameters
    ----------
    loadings : array (..., n, K)
    components : array (..., K, m)
    dispersion : array, (1, 1), (n, 1) or (1, m)
        What the variance has beyond the mean λ, above 0: λ (1 + s), or λ + α λ².
    variance : {"linear", "quadratic"}
    observed : Observed, optional
        Which entries the density is of; by default all.
    """

    pytree_data_fields = ("dispersion", "observed")
    pytree_aux_fields = ("form",)

    def __init__(
        self,
        loadings: ArrayLike,
        components: ArrayLike,
        dispersion: ArrayLike,
        variance: str = "linear",
        observed: Observed | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self.dispersion, self.form, self.observed = jnp.asarray(dispersion), variance, observed
        super().__init__(loadings, components, validate_args)

    @property
    def variance(self) -> jax.Array:
        """Variance of the counts, shape (..., n, m)."""
        mean = self.mean
        return mean * (1 + self.dispersion * (1 if self.form == "linear" else mean))

    def log_prob(self, value: Any) -> jax.Array:
        """Return the log density of counts, dense (..., n, m), SciPy sparse or `Triplets`; shape (...)."""
        value = as_observation(value)
        if isinstance(value, Triplets):
            rate = rates_at(value, self.loadings, self.components).sum(-1)
            own = jnp.broadcast_to(self.dispersion, self.event_shape)[value.rows, value.columns]
            seen = self._log_of_seen(value.values, rate, own).sum(-1)
        else:
            seen = self._log_of_seen(value, self.mean, self.dispersion).sum((-2, -1))
        return seen - self._whole()

    def _log_of_seen(self, counts: jax.Array, rate: jax.Array, own: jax.Array) -> jax.Array:
        """Return what the log density has where X > 0, and 0 elsewhere, even if λ = 0."""
        rate = jnp.where(counts > 0, rate, 1)
        size = rate / own if self.form == "linear" else 1 / own
        odds = own / (1 + own) if self.form == "linear" else own * rate / (1 + own * rate)
        logs = gammaln(counts + size) - gammaln(size) - gammaln(counts + 1) + counts * jnp.log(odds)
        return jnp.where(counts > 0, logs, 0)

    def _whole(self) -> jax.Array:
        """Return minus the log probability that all observed counts are 0."""
        s, observed = self.dispersion, self.observed
        if self.form == "quadratic":
            every = jnp.log1p(s * self.mean) / s
            if observed is None:
                return jnp.sum(every, (-2, -1))
            some = every[..., observed.entries.rows, observed.entries.columns]
            return observed.whole * jnp.sum(every, (-2, -1)) + (observed.entries.values * some).sum(-1)
        share = jnp.log1p(s) / s
        if s.shape[-1] > 1:
            return total_exposed(self.loadings, self.components * share, observed)
        return total_exposed(self.loadings * share, self.components, observed)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Sample dense counts (..., n, m): a Gamma rate for every entry, then Poisson counts."""
        first, second = jax.random.split(key)
        mean, s = self.mean, self.dispersion
        shape = jnp.broadcast_to(mean / s if self.form == "linear" else 1 / s, sample_shape + mean.shape)
        rates = jax.random.gamma(first, shape) * (s if self.form == "linear" else s * mean)
        return jax.random.poisson(second, rates)


def _log_of_seen(counts: jax.Array, rate: jax.Array) -> jax.Array:
    """Return X log λ − log X!, with value and gradient 0 where X = 0, even if λ = 0."""
    return counts * jnp.log(jnp.where(counts > 0, rate, 1)) - gammaln(counts + 1)


def poisson_product(
    factors: Callable[..., tuple[jax.Array, jax.Array]], given_totals: bool = False
) -> Callable[..., jax.Array]:
    """Return the program of a model, whose ``factors`` sample θ and β from their priors.

    With `given_totals`, counts of rows with missing entries are multinomial given their totals.
    """

    def program(
        counts: Any = None,
        *,
        totals: ArrayLike | None = None,
        row_exposure: ArrayLike | None = None,
        feature_exposure: ArrayLike | None = None,
        dispersion: ArrayLike | None = None,
        variance: str = "linear",
        observed: Observed | None = None,
        **given: Any,
    ) -> jax.Array:
        """Sample or observe the counts.

        Parameters
        ----------
        counts : array, SciPy sparse matrix or `bayesnmf.Counts` (n, m), Triplets or None
            None to simulate.
        totals : array (n,), optional
            Row totals N_i to simulate under; they do not enter the density.
        row_exposure, feature_exposure : array (n,) and (m,), optional
            Exposures of rows and features, by which the means are multiplied.
        dispersion : array, (1, 1), (n, 1) or (1, m), optional
            Dispersion of negative binomial counts, of linear or quadratic `variance`; None for Poisson counts.
        observed : Observed, optional
            Which entries are observed; `counts` are 0 at the others.
        **given
            What ``factors`` takes: rank, the priors of loadings and components, and size (n, m), by default that of
            the counts.

        Returns
        -------
        counts, given or drawn
        """
        size = size_of(counts, given.pop("size", None))
        theta, beta = with_exposures(factors(size=size, **given), row_exposure, feature_exposure)
        counts = None if counts is None else as_observation(counts)
        dims = {"event_dims": ["row", "feature"]}
        noisy: dist.Distribution = PoissonProduct(theta, beta, totals, observed, given_totals)
        if dispersion is not None:
            noisy = NegativeBinomialProduct(theta, beta, dispersion, variance, observed)
        return numpyro.sample("counts", noisy, obs=counts, infer=dims)

    return program
