"""The models as pairs of priors, and the default priors of each.

====================  =======================================  =======================================
model                 loadings                                 components
====================  =======================================  =======================================
poisson               Gamma(1, 0): flat                        Dirichlet(1)
gamma_poisson         Gamma(1, K / mean row total)             Dirichlet(1)
dirichlet_poisson     Dirichlet(1)                             Dirichlet(1)
dirichlet_gamma       Dirichlet(1), scale                      Dirichlet(1)
                      Gamma(1, 1 / mean row total)
hierarchical_poisson  HierarchicalGamma(0.3, Gamma(0.3, mean   HierarchicalGamma(0.3, Gamma(0.3, 0.3),
                      row total / (0.3 K m)), "row")           "feature")
====================  =======================================  =======================================

With these rates, the prior mean of a sample's total is the mean row total of the counts; with exposures of rows, the
mean row total is per unit of exposure. If the components have a Gamma prior, the rate of the loadings is multiplied by
the prior mean of a component's sum. All default shapes and concentrations but those of hierarchical_poisson are at
least 1, so that the MAP exists in the natural basis; choose values below 1 for sparse priors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bayesnmf.checks import check_choice
from bayesnmf.priors.dirichlet import Dirichlet
from bayesnmf.priors.distribution import Distribution, Support
from bayesnmf.priors.gamma import Gamma
from bayesnmf.priors.hierarchical_gamma import HierarchicalGamma
from bayesnmf.priors.scaled_dirichlet import ScaledDirichlet

Array = NDArray[Any]
PARAMETER: Literal["parameter"] = "parameter"
EVEN, SPARSE = Dirichlet(1.0), 0.3


@dataclass(frozen=True)
class Specification:
    """Description of a model by the priors that it allows; a new model is one more entry of `MODELS`.

    Attributes
    ----------
    name : str
        Name of the model, and of the file of its NumPyro program.
    loadings : str
        Support of the priors that the loadings may have.
    components : tuple of str
        Supports of the priors that the components may have.
    default_loadings : callable
        Function that returns the default prior of the loadings. Its arguments are the prior mean of a row's total for
        loadings with mean 1, and the mean row total of the counts.
    default_components : Distribution
        Default prior of the components.
    given_totals : bool
        Whether row totals are given, not modelled: simulation and prediction then draw multinomials of these totals.
    """

    name: str
    loadings: Support
    components: tuple[Support, ...]
    default_loadings: Callable[[float, float], Distribution]
    default_components: Distribution = EVEN
    given_totals: bool = False


MODELS = {
    spec.name: spec
    for spec in (
        Specification("poisson", "positive", ("simplex", "positive"), lambda *_: Gamma(1.0, 0.0)),
        Specification(
            "gamma_poisson", "positive", ("simplex", "positive"), lambda unit, total: Gamma(1.0, unit / total)
        ),
        Specification("dirichlet_poisson", "simplex", ("simplex",), lambda *_: EVEN, given_totals=True),
        Specification(
            "dirichlet_gamma",
            "scaled simplex",
            ("simplex",),
            lambda _, total: ScaledDirichlet(1.0, 1.0, 1.0 / total),
        ),
        Specification(
            "hierarchical_poisson",
            "positive",
            ("positive",),
            lambda unit, total: HierarchicalGamma(SPARSE, Gamma(SPARSE, total / unit), "row"),
            HierarchicalGamma(SPARSE, Gamma(SPARSE, SPARSE), "feature"),
        ),
    )
}


OTHER_NAMES = {
    "lda": "dirichlet_poisson", "topic_model": "dirichlet_poisson", "plsa": "dirichlet_poisson",
    "nmf": "poisson", "klnmf": "poisson", "kl-nmf": "poisson", "poisson_nmf": "poisson",
    "gap": "gamma_poisson", "gamma-poisson": "gamma_poisson", "bayesian_nmf": "gamma_poisson",
    "hpf": "hierarchical_poisson", "schpf": "hierarchical_poisson",
}  # fmt: skip


def check_model(model: Any, name: str = "model") -> str:
    """Return the name of a model; refuse others, with the name that is meant by those of other libraries."""
    return check_choice(model, name, MODELS, OTHER_NAMES)


def stated_components(components: Any) -> Any:
    """Return the prior of the components, or Dirichlet(1) for components without one: their mode is the same."""
    return EVEN if components == PARAMETER else components


def default_loadings(model: str, mean_total: float, rank: int, components: Any, exposure: Array) -> Distribution:
    """Return the default prior of the loadings, given the mean row total, and prior and exposure of the components."""
    return MODELS[model].default_loadings(rank * _prior_sum(stated_components(components), exposure), mean_total)


def _prior_sum(components: Distribution, exposure: Array) -> float:
    """Return the prior mean of a component's sum over features, times their exposure (m,); 1 if it is improper."""
    if components.support == "simplex" or not components.proper:
        return 1.0
    typical = components.typical()
    if np.all(exposure == exposure[0]):
        return float(len(exposure) * np.mean(typical) * exposure[0])
    return float((typical * exposure).sum(axis=-1).mean())


def on_simplex(components: Any) -> bool:
    """Return whether components lie on the simplex, because of their prior or as a parameter without a prior."""
    return components == PARAMETER or components.support == "simplex"
