"""Bayesian non-negative matrix factorisation of counts.

Everything public is imported on first use: `import bayesnmf` itself loads nothing heavier than NumPy.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np  # noqa: F401  what everything rests on, loaded here so that a first use is not slower for it

if TYPE_CHECKING:
    from bayesnmf import datasets as datasets
    from bayesnmf.bounds import elbo_augmented as elbo_augmented
    from bayesnmf.bounds import elbo_marginal as elbo_marginal
    from bayesnmf.calibration import Calibration as Calibration
    from bayesnmf.calibration import calibrate as calibrate
    from bayesnmf.certificates import Effort as Effort
    from bayesnmf.certificates import Equivalences as Equivalences
    from bayesnmf.certificates import equivalences as equivalences
    from bayesnmf.comparison import Settings as Settings
    from bayesnmf.comparison import compare as compare
    from bayesnmf.counts import DataWarning as DataWarning
    from bayesnmf.diagnostics import LeaveOneOut as LeaveOneOut
    from bayesnmf.diagnostics import PredictiveChecks as PredictiveChecks
    from bayesnmf.diagnostics import loo as loo
    from bayesnmf.diagnostics import predictive_checks as predictive_checks
    from bayesnmf.evidence import log_evidence as log_evidence
    from bayesnmf.evidence import log_p_allocation as log_p_allocation
    from bayesnmf.fitting import ConvergenceWarning as ConvergenceWarning
    from bayesnmf.fitting import Fit as Fit
    from bayesnmf.fitting import fit as fit
    from bayesnmf.fitting import load as load
    from bayesnmf.io import read_counts as read_counts
    from bayesnmf.options import BLD as BLD
    from bayesnmf.options import MAP as MAP
    from bayesnmf.options import NUTS as NUTS
    from bayesnmf.options import SVI as SVI
    from bayesnmf.options import VI as VI
    from bayesnmf.options import Gibbs as Gibbs
    from bayesnmf.options import Priors as Priors
    from bayesnmf.options import Start as Start
    from bayesnmf.posteriors import Agreement as Agreement
    from bayesnmf.posteriors import posterior_agreement as posterior_agreement
    from bayesnmf.priors import Dirichlet as Dirichlet
    from bayesnmf.priors import Gamma as Gamma
    from bayesnmf.priors import ScaledDirichlet as ScaledDirichlet
    from bayesnmf.selection import Selection as Selection
    from bayesnmf.selection import select as select
    from bayesnmf.simulation import Simulation as Simulation
    from bayesnmf.simulation import simulate as simulate
    from bayesnmf.streaming import MinibatchVI as MinibatchVI
    from bayesnmf.views import TopicModel as TopicModel
    from bayesnmf.views import from_topic_model as from_topic_model
    from bayesnmf.views import to_topic_model as to_topic_model

__version__ = "0.1.0"

_HOMES = {
    "Agreement": "posteriors",
    "BLD": "options",
    "Calibration": "calibration",
    "ConvergenceWarning": "fitting",
    "DataWarning": "counts",
    "Dirichlet": "priors",
    "Effort": "certificates",
    "Equivalences": "certificates",
    "Fit": "fitting",
    "Gamma": "priors",
    "Gibbs": "options",
    "LeaveOneOut": "diagnostics",
    "MAP": "options",
    "MinibatchVI": "streaming",
    "NUTS": "options",
    "PredictiveChecks": "diagnostics",
    "Priors": "options",
    "SVI": "options",
    "ScaledDirichlet": "priors",
    "Selection": "selection",
    "Settings": "comparison",
    "Simulation": "simulation",
    "Start": "options",
    "TopicModel": "views",
    "VI": "options",
    "calibrate": "calibration",
    "compare": "comparison",
    "elbo_augmented": "bounds",
    "elbo_marginal": "bounds",
    "equivalences": "certificates",
    "fit": "fitting",
    "from_topic_model": "views",
    "load": "fitting",
    "log_evidence": "evidence",
    "log_p_allocation": "evidence",
    "loo": "diagnostics",
    "posterior_agreement": "posteriors",
    "predictive_checks": "diagnostics",
    "read_counts": "io",
    "select": "selection",
    "simulate": "simulation",
    "to_topic_model": "views",
}
_MODULES = ("datasets", "models", "plots")

__all__ = ["__version__", *sorted(_HOMES), *_MODULES]

_root = Path(__file__).parent.parent
if not (_root / "bayesnmf" / "models").exists() and (_root / "models" / "likelihood.py").exists():
    __path__.append(str(_root))  # a checkout that is not installed: models/ stands beside the package


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"bayesnmf.{_HOMES[name]}"), name)
    if name in _MODULES:
        return import_module(f"bayesnmf.{name}")
    raise AttributeError(f"module 'bayesnmf' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
