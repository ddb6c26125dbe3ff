"""Programs with explicit allocations, and the guides of all models.

Let S_ijk ~ Poisson(θ_ik β_kj) and X_ij = Σ_k S_ijk. Then X is Poisson with rate θβ, and given X the allocations are
S_ij ~ Multinomial(X_ij, φ_ij) with φ_ijk ∝ θ_ik β_kj  ([P] 16–17, [GP] D.1, [K] 5). For a mean field over θ, β and S
the optimum is φ_ijk ∝ exp(E log θ_ik + E log β_kj), so φ needs no parameters. Where X_ij = 0, all S_ijk are 0, with
probability exp(−λ_ij): only nonzero entries need allocations.

A model is represented by its ``factors``: the function that samples θ and β from their priors.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import gammaln, xlogy
from jax.typing import ArrayLike
from numpyro.distributions import constraints

from .entries import Triplets, as_triplets, rates_at, row_totals, size_of, total_exposed
from .factors import Prior, free, mean_log
from .likelihood import with_exposures

Factors = Callable[..., tuple[jax.Array, jax.Array]]
Program = Callable[..., Any]


class SharedOut(dist.Distribution):
    """Multinomial(counts, chances) whose draws take memory of their own size only, for counts of any size.

    NumPyro's Multinomial draws every unit separately, and needs a static largest count.

    Parameters
    ----------
    counts : array (...)
        Whole-number counts.
    chances : array (..., K)
        Probabilities, rows on the simplex.
    """

    arg_constraints = {"counts": constraints.nonnegative, "chances": constraints.simplex}  # noqa: RUF012
    pytree_data_fields = ("counts", "chances")

    def __init__(self, counts: ArrayLike, chances: ArrayLike, validate_args: bool | None = None) -> None:
        self.counts, self.chances = jnp.asarray(counts, dtype=float), jnp.asarray(chances)
        super().__init__(self.counts.shape, self.chances.shape[-1:], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        """Whole numbers (..., K) that add up to the counts."""
        return constraints.multinomial(self.counts)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Whole numbers (*sample_shape, ..., K), as floats."""
        return jax.random.multinomial(key, self.counts, self.chances, shape=sample_shape + self.batch_shape)

    def log_prob(self, value: jax.Array) -> jax.Array:
        """Log probability (...) of a split of the counts."""
        parts = xlogy(value, self.chances) - gammaln(value + 1)
        return gammaln(self.counts + 1) + parts.sum(-1)


def mean_field(factors: Factors) -> Program:
    """Return the guide of a model: its own priors, with free hyperparameters for every entry.

    This is the closed-form posterior's family, as each conditional belongs to the family of its prior.
    """

    def guide(
        counts: Any = None,
        *,
        size: tuple[int, int] | None = None,
        rank: int,
        loadings: Prior,
        components: Prior,
        **others: Any,
    ) -> None:
        """Sample from the mean field in the closed-form family; `factors.free` names its parameters.

        It has the signature of `program`, but does not use counts, totals and exposures.
        """
        size = size_of(counts, size)
        factors(size=size, rank=rank, **_posterior(size, rank, loadings, components))

    return guide


def with_allocations(factors: Factors, given_totals: bool = False) -> Program:
    """Return the model with the allocations of the nonzero entries as a site of shape (nnz, K)."""

    def augmented(
        counts: Any, *, row_exposure: Any = None, feature_exposure: Any = None, observed: Any = None, **given: Any
    ) -> None:
        """Sample S_ijk ~ Poisson(r_i c_j θ_ik β_kj) with X_ij = Σ_k S_ijk; arguments are those of `program`."""
        entries, size = as_triplets(counts), size_of(counts, given.pop("size", None))
        theta, beta = with_exposures(factors(size=size, **given), row_exposure, feature_exposure)
        rates = rates_at(entries, theta, beta)
        allocations = numpyro.sample("allocations", dist.Poisson(rates).to_event(2))
        numpyro.sample("counts", dist.Delta(allocations.sum(-1), event_dim=1), obs=entries.values)
        totals = row_totals(entries, len(theta)) if given_totals else None
        numpyro.factor("zeros", rates.sum() - total_exposed(theta, beta, observed, totals))

    return augmented


def mean_field_with_allocations(factors: Factors) -> Program:
    """Return the guide of the augmented model, with allocations at the best φ for the parameters of the factors."""

    def augmented_guide(
        counts: Any,
        *,
        size: tuple[int, int] | None = None,
        rank: int,
        loadings: Prior,
        components: Prior,
        **others: Any,
    ) -> None:
        """Sample from the mean field, and S_ij ~ Multinomial(X_ij, φ_ij). Counts are whole numbers, and concrete.

        Exposures cancel from φ.
        """
        entries, size = as_triplets(counts), size_of(counts, size)
        posterior = _posterior(size, rank, loadings, components)
        theta, beta = factors(size=size, rank=rank, **posterior)
        chances = jnp.exp(_log_chances(entries, posterior, theta, beta))
        numpyro.sample("allocations", SharedOut(entries.values, chances).to_event(1))

    return augmented_guide


def with_expected_allocations(factors: Factors, given_totals: bool = False) -> Program:
    """Return the augmented model with its allocations integrated over their optimal distribution.

    Given θ and β, the allocations contribute  Σ X_ij Σ_k φ_ijk log(θ_ik β_kj / φ_ijk) − Σ λ − Σ log X!.  It has the
    same expectation as the augmented ELBO, and can be differentiated. φ depends on the guide of `mean_field`: the
    program reads the guide's parameters by name.
    """

    def augmented_bound(
        counts: Any, *, row_exposure: Any = None, feature_exposure: Any = None, observed: Any = None, **given: Any
    ) -> None:
        """Compute a lower bound of the program for every θ and β; for use with `guide`."""
        entries = as_triplets(counts)
        given["size"] = size_of(counts, given.get("size"))
        drawn = factors(**given)
        theta, beta = with_exposures(drawn, row_exposure, feature_exposure)
        posterior = _posterior(**given)
        # The bound is stationary at the optimal φ: without the gradient through φ it has the same mean and less noise.
        log_chances = jax.lax.stop_gradient(_log_chances(entries, posterior, *drawn))
        log_rates = _log_rates(entries, _log(theta), _log(beta))
        gain = jnp.exp(log_chances) * (log_rates - jnp.where(jnp.isfinite(log_chances), log_chances, 0))
        seen = entries.values @ gain.sum(-1) - gammaln(entries.values + 1).sum()
        totals = row_totals(entries, len(theta)) if given_totals else None
        numpyro.factor("counts", seen - total_exposed(theta, beta, observed, totals))

    return augmented_bound


def _posterior(size: tuple[int, int], rank: int, loadings: Prior, components: Prior) -> dict[str, Prior]:
    n, m = size
    return {
        "loadings": free("loadings", loadings, (n, rank)),
        "components": free("components", components, (rank, m)),
    }


def _log_chances(entries: Triplets, posterior: dict[str, Prior], theta: jax.Array, beta: jax.Array) -> jax.Array:
    """Return log φ at the nonzero entries, shape (nnz, K)."""
    log_u, log_v = mean_log(posterior["loadings"], theta), mean_log(posterior["components"], beta)
    return jax.nn.log_softmax(_log_rates(entries, log_u, log_v), axis=-1)


def _log_rates(entries: Triplets, log_u: jax.Array, log_v: jax.Array) -> jax.Array:
    return log_u[entries.rows] + log_v[:, entries.columns].T


def _log(values: jax.Array) -> jax.Array:
    # a draw that underflowed to 0 has φ = 0 to rounding, but 0 · log 0 would not be 0
    return jnp.log(jnp.maximum(values, jnp.finfo(values.dtype).tiny))
