"""The families of priors by name: add a new family as a file, and in one line here."""

from __future__ import annotations

from bayesnmf.priors.dirichlet import Dirichlet
from bayesnmf.priors.distribution import Distribution, Support
from bayesnmf.priors.drifting import Drifting
from bayesnmf.priors.gamma import Gamma
from bayesnmf.priors.hierarchical_gamma import HierarchicalGamma
from bayesnmf.priors.log_linear import LogLinear
from bayesnmf.priors.partly_known import PartlyKnown
from bayesnmf.priors.scaled_dirichlet import ScaledDirichlet

FAMILIES: dict[str, type[Distribution]] = {
    family.__name__: family
    for family in (Gamma, HierarchicalGamma, Dirichlet, ScaledDirichlet, PartlyKnown, Drifting, LogLinear)
}


def names_of(*supports: Support) -> list[str]:
    """Return the names of the families with one of these supports, in the order of the supports."""
    return [name for support in supports for name, family in FAMILIES.items() if family.support == support]
