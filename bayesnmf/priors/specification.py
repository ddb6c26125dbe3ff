"""The four models as pairs of priors, and the default priors of each.

===================  =================================  ============================
model                loadings                           components
===================  =================================  ============================
poisson              Gamma(1, 0): flat                  Dirichlet(1)
gamma_poisson        Gamma(1, K / mean row total)       Dirichlet(1)
dirichlet_poisson    Dirichlet(1)                       Dirichlet(1)
dirichlet_gamma      Dirichlet(1), scale                Dirichlet(1)
                     Gamma(1, 1 / mean row total)
===================  =================================  ============================

The rates make the prior mean of a sample's total the mean row total; with a Gamma prior given for the components,
the loadings' rate is multiplied by the prior mean of a component's sum. All defaults are at least 1, so that the
MAP exists in the natural basis; sparse priors (below 1) are the user's choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from bayesnmf.priors.dirichlet import Dirichlet
from bayesnmf.priors.families import Distribution
from bayesnmf.priors.gamma import Gamma
from bayesnmf.priors.scaled_dirichlet import ScaledDirichlet

PARAMETER: Literal["parameter"] = "parameter"


@dataclass(frozen=True)
class Specification:
    """Which priors a model allows on either side.

    Attributes
    ----------
    name : str
        Of the model, and of the file of its NumPyro program.
    loadings, components : tuple of classes
        Families of priors; the first is the default.
    given_totals : bool
        Whether row totals are given, not modelled: simulation and prediction draw multinomials of given totals.
    """

    name: str
    loadings: type[Distribution]
    components: tuple[type[Distribution], ...]
    given_totals: bool = False


MODELS = {
    spec.name: spec
    for spec in (
        Specification("poisson", Gamma, (Dirichlet, Gamma)),
        Specification("gamma_poisson", Gamma, (Dirichlet, Gamma)),
        Specification("dirichlet_poisson", Dirichlet, (Dirichlet,), given_totals=True),
        Specification("dirichlet_gamma", ScaledDirichlet, (Dirichlet,)),
    )
}


def default_loadings(model: str, mean_total: float, rank: int, components: Distribution, m: int) -> Distribution:
    """Return the default prior of a model's loadings, given the mean row total and the prior on the m features."""
    if model == "poisson":
        return Gamma(1.0, 0.0)
    if model == "gamma_poisson":
        return Gamma(1.0, rank * _prior_sum(components, m) / mean_total)
    if model == "dirichlet_poisson":
        return Dirichlet(1.0)
    return ScaledDirichlet(1.0, 1.0, 1.0 / mean_total)


def _prior_sum(components: Distribution, m: int) -> float:
    """Prior mean of the sum of a component over its m features."""
    if not isinstance(components, Gamma) or components.flat:
        return 1.0
    return float(m * np.mean(components.mean()))
