"""Priors and, since they are conjugate, posteriors of loadings and components.

Each is a frozen dataclass of parameters with `conditional`, `mode`, `mean`, `expected_log`, `draw`, `kl` and
`log_density`; the conditional of a prior is a member of the same class.
"""

from bayesnmf.priors.dirichlet import Dirichlet
from bayesnmf.priors.gamma import Gamma
from bayesnmf.priors.scaled_dirichlet import ScaledDirichlet, ScaledProportions, matrix

Distribution = Gamma | Dirichlet | ScaledDirichlet

__all__ = ["Dirichlet", "Distribution", "Gamma", "ScaledDirichlet", "ScaledProportions", "matrix"]
