"""Poisson: counts are Poisson with a product of nonnegative matrices as their mean.

    θ_ik ~ Gamma(a, b)                                  loadings; flat, Gamma(1, 0), for maximum likelihood
    β_k  ~ Dirichlet(η), or β_kj ~ Gamma(c, d), or free on the simplex
    X_ij ~ Poisson((θβ)_ij)

With flat priors on both sides, its modes are those of KL-NMF: alternating multiplicative updates ([GP] alg. 1,
[P] 3–4, [C] 27–28) and joint updates ([GP] alg. 4). Gamma(c, d) components give the MAP of [C] 19–20, and Gamma(1, τ)
loadings give the lasso of [GP] 24–25.
"""

import jax

from .augmentation import mean_field, mean_field_with_allocations, with_allocations, with_expected_allocations
from .factors import Prior, draw
from .likelihood import poisson_product


def factors(*, size: tuple[int, int], rank: int, loadings: Prior, components: Prior) -> tuple[jax.Array, jax.Array]:
    """Sample θ (n, K) and β (K, m).

    Parameters
    ----------
    size : (n, m)
    rank : int
        Number of components K.
    loadings : {"shape", "rate"}
        Scalars, or arrays that broadcast to (n, K).
    components : {"concentration"}, {"shape", "rate"} or "parameter"
        Scalars, or arrays that broadcast to (K, m).
    """
    n, m = size
    theta = draw("loadings", loadings, "gamma", row=n, component=rank)
    beta = draw("components", components, "gamma", "dirichlet", "parameter", component=rank, feature=m)
    return theta, beta


program = poisson_product(factors)
guide = mean_field(factors)
augmented = with_allocations(factors)
augmented_guide = mean_field_with_allocations(factors)
augmented_bound = with_expected_allocations(factors)
