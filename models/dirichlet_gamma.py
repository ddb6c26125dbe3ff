"""Dirichlet–Gamma allocation: loadings are proportions times a scale for each row.

    s_i  ~ Gamma(a, b)                                  scale
    π_i  ~ Dirichlet(α)                                 loadings (proportions; the model's θ_i is s_i π_i)
    β_k  ~ Dirichlet(η), or free on the simplex
    X_ij ~ Poisson(s_i (πβ)_ij)

The allocation model of [K]. Rows of πβ sum to 1, so N_i ~ Poisson(s_i), and given N_i, s_i is independent of all other
variables, with distribution Gamma(a + N_i, b + 1). [K] 7–9 is the marginal of its allocations.
"""

import jax

from .augmentation import mean_field, mean_field_with_allocations, with_allocations, with_expected_allocations
from .factors import Prior, draw
from .likelihood import poisson_product


def factors(*, size: tuple[int, int], rank: int, loadings: Prior, components: Prior) -> tuple[jax.Array, jax.Array]:
    """Sample s_i π_i (n, K) and β (K, m).

    Parameters
    ----------
    size : (n, m)
    rank : int
        Number of components K.
    loadings : {"concentration", "shape", "rate"}
        Concentration of the proportions, broadcasting to (n, K), and shape and rate of the scale,
        broadcasting to (n,).
    components : {"concentration"} or "parameter"
        Scalar, or an array that broadcasts to (K, m).
    """
    n, m = size
    theta = draw("loadings", loadings, "scaled dirichlet", row=n, component=rank)
    beta = draw("components", components, "dirichlet", "parameter", component=rank, feature=m)
    return theta, beta


program = poisson_product(factors)
guide = mean_field(factors)
augmented = with_allocations(factors)
augmented_guide = mean_field_with_allocations(factors)
augmented_bound = with_expected_allocations(factors)
