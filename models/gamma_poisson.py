"""Gamma–Poisson: loadings are Gamma, so row totals vary freely.

    θ_ik ~ Gamma(α_k, a_k)                              loadings; a_k is a rate
    β_k  free on the simplex, or β_k ~ Dirichlet(η), or β_kj ~ Gamma(c, d)
    X_ij ~ Poisson((θβ)_ij)

With free components, the closed-form fit is the VI-EM of [GP] alg. 7; with Gamma on both sides ("doubly Gamma") it is
the VI of [P] 34–36. The density is that of the `poisson` model, whose factors are estimated by their modes; here the
loadings are integrated over.
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
