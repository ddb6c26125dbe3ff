"""Distributions of loadings and components, and the models as pairs of them.

Each distribution is a frozen dataclass of parameters with `conditional`, `mode`, `mean`, `expected_log`, `draw`, `kl`
and `log_density`. Priors are conjugate, so the conditional of a prior belongs to the same class; that of a
`HierarchicalGamma` is a `Gamma`.
"""

from typing import Any

from bayesnmf.groups import GROUPS, member_of
from bayesnmf.priors.dirichlet import Dirichlet
from bayesnmf.priors.distribution import Distribution
from bayesnmf.priors.gamma import Gamma
from bayesnmf.priors.hierarchical_gamma import HierarchicalGamma
from bayesnmf.priors.pair import Priors
from bayesnmf.priors.scaled_dirichlet import ScaledDirichlet
from bayesnmf.priors.values import ScaledProportions, matrix

__all__ = [
    "Dirichlet",
    "Distribution",
    "Gamma",
    "HierarchicalGamma",
    "Priors",
    "ScaledDirichlet",
    "ScaledProportions",
    "matrix",
]


def __getattr__(name: str) -> Any:
    return member_of("priors", name)


def __dir__() -> list[str]:
    return [*GROUPS["priors"]]
