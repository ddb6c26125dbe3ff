"""Poisson: counts are Poisson with a product of nonnegative matrices as their mean.

    θ_ik ~ Gamma(a, b)                                  loadings; flat, Gamma(1, 0), for maximum likelihood
    β_k  ~ Dirichlet(η), or β_kj ~ Gamma(c, d), or free on the simplex
    X_ij ~ Poisson((θβ)_ij)

With flat priors on both sides, its modes are those of KL-NMF: alternating multiplicative updates ([GP] alg. 1,
[P] 3–4, [C] 27–28) and joint updates ([GP] alg. 4). Gamma(c, d) components give the MAP of [C] 19–20, and Gamma(1, τ)
loadings give the lasso of [GP] 24–25.
"""

from typing import Any

import jax
import numpyro

from .augmentation import mean_field, mean_field_with_allocations, with_allocations, with_expected_allocations
from .factors import Prior, draw
from .likelihood import PoissonProduct


def factors(*, size: tuple[int, int], rank: int, loadings: Prior, components: Prior) -> tuple[jax.Array, jax.Array]:
    """Sample θ (n, K) and β (K, m)."""
    n, m = size
    theta = draw("loadings", loadings, "gamma", row=n, component=rank)
    beta = draw("components", components, "gamma", "dirichlet", "parameter", component=rank, feature=m)
    return theta, beta


def program(counts: Any = None, *, size: tuple[int, int], rank: int, loadings: Prior, components: Prior) -> jax.Array:
    """Sample or observe counts under the model.

    Parameters
    ----------
    counts : array (n, m), Triplets or None
        Counts to observe; None to simulate.
    size : (n, m)
    rank : int
        Number of components K.
    loadings : {"shape", "rate"}
        Scalars, or arrays that broadcast to (n, K).
    components : {"concentration"}, {"shape", "rate"} or "parameter"
        Scalars, or arrays that broadcast to (K, m).

    Returns
    -------
    The counts, observed or drawn.
    """
    theta, beta = factors(size=size, rank=rank, loadings=loadings, components=components)
    dims = {"event_dims": ["row", "feature"]}
    return numpyro.sample("counts", PoissonProduct(theta, beta), obs=counts, infer=dims)


guide = mean_field(factors)
augmented = with_allocations(factors)
augmented_guide = mean_field_with_allocations(factors)
augmented_bound = with_expected_allocations(factors)
