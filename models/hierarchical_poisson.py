"""Hierarchical Poisson factorisation: rows and features have rates of their own.

    ξ_i  ~ Gamma(a', b'),   θ_ik ~ Gamma(a, ξ_i)         loadings, one rate for each row
    η_j  ~ Gamma(c', d'),   β_kj ~ Gamma(c, η_j)         components, one rate for each feature
    X_ij ~ Poisson((θβ)_ij)

Gopalan, Hofman and Blei (2015), *Scalable recommendation with hierarchical Poisson factorization*; scHPF (Levitin et
al. 2019) uses it for cells × genes. The rates absorb how large the totals of rows and features are, so that the
factors describe what differs beyond that. Either side may have another Gamma prior, too.
"""

from .augmentation import mean_field, mean_field_with_allocations, with_allocations, with_expected_allocations
from .likelihood import poisson_product
from .poisson import factors

program = poisson_product(factors)
guide = mean_field(factors)
augmented = with_allocations(factors)
augmented_guide = mean_field_with_allocations(factors)
augmented_bound = with_expected_allocations(factors)
