"""The families of priors."""

from __future__ import annotations

from bayesnmf.priors.dirichlet import Dirichlet
from bayesnmf.priors.gamma import Gamma
from bayesnmf.priors.scaled_dirichlet import ScaledDirichlet

Distribution = Gamma | Dirichlet | ScaledDirichlet
