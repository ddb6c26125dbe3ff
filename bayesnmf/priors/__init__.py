"""Priors and, since they are conjugate, posteriors of loadings and components; the models as pairs of them.

Each is a frozen dataclass of parameters with `conditional`, `mode`, `mean`, `expected_log`, `draw`, `kl` and
`log_density`; the conditional of a prior is a member of the same class.
"""

from bayesnmf.priors.dirichlet import Dirichlet
from bayesnmf.priors.distribution import Distribution
from bayesnmf.priors.gamma import Gamma
from bayesnmf.priors.pair import Priors
from bayesnmf.priors.scaled_dirichlet import ScaledDirichlet
from bayesnmf.priors.values import ScaledProportions, matrix

__all__ = ["Dirichlet", "Distribution", "Gamma", "Priors", "ScaledDirichlet", "ScaledProportions", "matrix"]
