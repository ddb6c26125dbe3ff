"""Compute the marginal of an allocation, with loadings and components integrated out."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from bayesnmf.assessment.checks import check_allocation
from bayesnmf.inference.marginal import allocation_model
from bayesnmf.priors import Dirichlet, Distribution, Priors
from bayesnmf.priors.checks import check_broadcast, check_collapsible


def log_p_allocation(allocations: ArrayLike, loadings: Distribution, components: Dirichlet) -> float:
    """Compute log p(S) of an allocation, with loadings and components integrated out ([K] 7-9).

    Parameters
    ----------
    allocations : array_like of shape (n, K, m)
        S_ikj, the part of the counts of feature j in sample i that component k produced: nonnegative, whole or not.
    loadings : ScaledDirichlet, Dirichlet or Gamma
        Prior with parameters broadcastable to (n, K), for dirichlet_gamma, dirichlet_poisson or gamma_poisson.
    components : Dirichlet
        Prior with parameters broadcastable to (K, m).

    Returns
    -------
    float
        Log p(S) in nats, Poisson scale: its exponential sums to p(X) over all whole-number S that add up to X.

    Raises
    ------
    TypeError, ValueError
        Invalid allocations or priors.

    See Also
    --------
    log_evidence : of the counts, with allocations summed out as well.

    Examples
    --------
    >>> import bayesnmf
    >>> S = [[[3, 0], [0, 1]], [[1, 0], [0, 1]]]
    >>> prior = bayesnmf.ScaledDirichlet(0.3, shape=5, rate=1.5)
    >>> round(bayesnmf.log_p_allocation(S, prior, bayesnmf.Dirichlet(0.4)), 4)
    -9.5997
    """
    S = check_allocation(allocations)
    n, rank, m = S.shape
    priors = Priors(loadings, components)
    check_collapsible(priors.loadings, priors.components, "log_p_allocation")
    sides: Any = priors.loadings, priors.components
    check_broadcast(loadings, "loadings", (n, rank))
    check_broadcast(components, "components", (rank, m))
    return allocation_model.log_p_allocation(S, *sides)
