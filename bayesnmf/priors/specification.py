"""The models as pairs of priors, and the default priors of each.

====================  =======================================  =======================================
model                 loadings                                 components
====================  =======================================  =======================================
poisson               Gamma(1, 0): flat                        Dirichlet(1)
gamma_poisson         Gamma(a, a K / mean row total)           Dirichlet(a)
dirichlet_poisson     Dirichlet(a)                             Dirichlet(a)
dirichlet_gamma       Dirichlet(a), scale                      Dirichlet(a)
                      Gamma(1, 1 / mean row total)
hierarchical_poisson  HierarchicalGamma(0.3, Gamma(0.3, mean   HierarchicalGamma(0.3, Gamma(0.3, 0.3),
                      row total / (0.3 K m)), "row")           "feature")
====================  =======================================  =======================================

Sparse priors, a = 0.3, predict best (`benchmarks/priors.md`), and are the default of vi and svi; with more than 20,000
features, components have 6,000 / m, so that a prior does not outweigh the counts of a component. Both are times the
share of the features that have counts, else a prior over many empty features would outweigh the others. The density of
sparse priors has no mode, and chains mix many times slower: for map, bld, gibbs, nuts and smc, a = 1.

With these rates, the prior mean of a sample's total is the mean row total of the counts; with exposures of rows, the
mean row total is per unit of exposure. If the components have a Gamma prior, the rate of the loadings is multiplied by
the prior mean of a component's sum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from bayesnmf.checks import check_choice, check_given_once, check_is_no_rank, is_rank
from bayesnmf.noise.abilities import Noise
from bayesnmf.priors.dirichlet import Dirichlet
from bayesnmf.priors.distribution import Distribution, Support
from bayesnmf.priors.gamma import Gamma
from bayesnmf.priors.hierarchical_gamma import HierarchicalGamma
from bayesnmf.priors.scaled_dirichlet import ScaledDirichlet
from bayesnmf.types import Array

PARAMETER: Literal["parameter"] = "parameter"
HIERARCHICAL = 0.3


class Shapes(NamedTuple):
    """Default shapes or concentrations of the loadings and of the components; of known ones beside their strength."""

    loadings: float
    components: float
    beside: float = 0.01


EVEN, SPARSE = Shapes(1.0, 1.0), Shapes(0.3, 0.3)
LARGEST_SUM = 6000.0  # of the concentrations of a sparse prior over all features


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
        Function that returns the default prior of the loadings. Its arguments are their shape, the prior mean of a
        row's total for loadings with mean 1, and the mean row total of the counts.
    default_components : callable
        Function that returns the default prior of the components. Its argument is their concentration.
    given_totals : bool
        Whether row totals are given, not modelled: simulation and prediction then draw multinomials of these totals.
    """

    name: str
    loadings: Support
    components: tuple[Support, ...]
    default_loadings: Callable[[float, float, float], Distribution]
    default_components: Callable[[float], Distribution] = Dirichlet
    given_totals: bool = False


MODELS = {
    spec.name: spec
    for spec in (
        Specification(
            "poisson", "positive", ("simplex", "positive"), lambda *_: Gamma(1.0, 0.0), lambda _: Dirichlet(1.0)
        ),
        Specification(
            "gamma_poisson",
            "positive",
            ("simplex", "positive"),
            lambda shape, unit, total: Gamma(shape, shape * unit / total),
        ),
        Specification(
            "dirichlet_poisson", "simplex", ("simplex",), lambda shape, *_: Dirichlet(shape), given_totals=True
        ),
        Specification(
            "dirichlet_gamma",
            "scaled simplex",
            ("simplex",),
            lambda shape, _, total: ScaledDirichlet(shape, 1.0, 1.0 / total),
        ),
        Specification(
            "hierarchical_poisson",
            "positive",
            ("positive",),
            lambda _, unit, total: HierarchicalGamma(HIERARCHICAL, Gamma(HIERARCHICAL, total / unit), "row"),
            lambda _: HierarchicalGamma(HIERARCHICAL, Gamma(HIERARCHICAL, HIERARCHICAL), "feature"),
        ),
    )
}


_LDA = "'dirichlet_poisson', which is latent Dirichlet allocation"
_NMF = "'poisson', whose method='map' is NMF with the Kullback-Leibler divergence, or 'gamma_poisson', with a posterior"
_GAP, _HPF = "'gamma_poisson'", "'hierarchical_poisson'"
OTHER_NAMES = {
    "lda": _LDA, "topic_model": _LDA, "plsa": "'dirichlet_poisson', whose method='map' with flat priors is PLSA",
    "nmf": _NMF, "klnmf": _NMF, "kl-nmf": _NMF, "kl_nmf": _NMF, "poisson_nmf": _NMF,
    "gap": _GAP, "bayesian_nmf": _GAP, "hpf": _HPF, "schpf": _HPF,
}  # fmt: skip
DEFAULT_MODEL = "gamma_poisson"


def check_model(model: Any, name: str = "model") -> str:
    """Return the name of a model; refuse others, with the name that is meant by those of other libraries."""
    check_is_no_rank(model, name, DEFAULT_MODEL)
    return check_choice(model, name, MODELS, OTHER_NAMES)


def model_and_rank(model: Any, rank: Any, default: int | None = None) -> tuple[str, Any]:
    """Return the name of a model and the rank; a whole number in place of a model is the rank of the default model.

    So ``fit(counts, 10)`` means what ``BayesNMF(10)`` does. A rank of None becomes the `default`.
    """
    if not is_rank(model):
        return check_model(model), default if rank is None else rank
    check_given_once(rank is None, "rank", model, rank, f"model={DEFAULT_MODEL!r}, rank={model}")
    return DEFAULT_MODEL, int(model)


def stated_components(components: Any) -> Any:
    """Return the prior of the components, or Dirichlet(1) for components without one: their mode is the same."""
    return Dirichlet(1.0) if components == PARAMETER else components


def default_components(model: str, features: int, shapes: Shapes, seen: float) -> Distribution:
    """Return the default prior of components over so many features, a share of which has counts."""
    given = shapes.components
    return MODELS[model].default_components(given if given >= 1 else min(given, LARGEST_SUM / features) * seen)


def default_loadings(
    model: str, mean_total: float, rank: int, components: Any, exposure: Array, shapes: Shapes
) -> Distribution:
    """Return the default prior of the loadings, given the mean row total, and prior and exposure of the components."""
    unit = rank * _prior_sum(stated_components(components), exposure)
    return MODELS[model].default_loadings(shapes.loadings, unit, mean_total)


def _prior_sum(components: Distribution, exposure: Array) -> float:
    """Return the prior mean of a component's sum over features, times their exposure (m,); 1 if it is improper."""
    if components.support == "simplex" or not components.proper:
        return 1.0
    typical = components.typical()
    if np.all(exposure == exposure[0]):
        return float(len(exposure) * np.mean(typical) * exposure[0])
    return float((typical * exposure).sum(axis=-1).mean())


def uniformises(noise: Noise, components: Any) -> bool:
    """Return whether clusters of features have exposures of their own, and components lie on the simplex."""
    return noise.in_clusters and noise.by_feature and on_simplex(components)


def on_simplex(components: Any) -> bool:
    """Return whether components lie on the simplex, because of their prior or as a parameter without a prior."""
    return components == PARAMETER or components.support == "simplex"
