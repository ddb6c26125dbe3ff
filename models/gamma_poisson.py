"""Gamma–Poisson: loadings are Gamma, so row totals vary freely.

    θ_ik ~ Gamma(α_k, a_k)                              loadings; a_k is a rate
    β_k  free on the simplex, or β_k ~ Dirichlet(η), or β_kj ~ Gamma(c, d)
    X_ij ~ Poisson((θβ)_ij)

With free components, the closed-form fit is the VI-EM of [GP] alg. 7; with Gamma on both sides ("doubly Gamma") it is
the VI of [P] 34–36. The density is that of the `poisson` model, whose factors are estimated by their modes; here the
loadings are integrated over.
"""

from .augmentation import mean_field, mean_field_with_allocations, with_allocations, with_expected_allocations
from .likelihood import poisson_product
from .poisson import factors

program = poisson_product(factors)
guide = mean_field(factors)
augmented = with_allocations(factors)
augmented_guide = mean_field_with_allocations(factors)
augmented_bound = with_expected_allocations(factors)
