"""Dirichlet–Poisson: loadings are proportions. Given the row totals, this is LDA.

    θ_i  ~ Dirichlet(α)                                 loadings
    β_k  free on the simplex, or β_k ~ Dirichlet(η)     ("smoothed" LDA)
    X_ij ~ Poisson((θβ)_ij)

Rows of θβ sum to 1, so the density of a row is Poisson(N_i; 1) times Multinomial(X_i; N_i, (θβ)_i)
([GP] D.1–D.3). N_i is given, so the Poisson factor is a constant of the data: simulate with `totals`. Where entries are
missing, N_i is the total of the observed ones, whose probabilities are divided by their sum.
With free components the closed-form fit is the VI-EM of [GP] alg. 5, with bound [GP] 17.
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
    loadings : {"concentration"}
        Scalar, or an array that broadcasts to (n, K).
    components : {"concentration"} or "parameter"
        Scalar, or an array that broadcasts to (K, m).
    """
    n, m = size
    theta = draw("loadings", loadings, "dirichlet", row=n, component=rank)
    beta = draw("components", components, "dirichlet", "parameter", component=rank, feature=m)
    return theta, beta


program = poisson_product(factors, given_totals=True)
guide = mean_field(factors)
augmented = with_allocations(factors, given_totals=True)
augmented_guide = mean_field_with_allocations(factors)
augmented_bound = with_expected_allocations(factors, given_totals=True)
