"""Bayesian non-negative matrix factorisation of counts.

Public names are imported on first use: `import bayesnmf` itself loads nothing larger than NumPy.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np  # noqa: F401  what everything rests on, loaded here so that a first use is not slower for it

if TYPE_CHECKING:
    from bayesnmf import datasets as datasets
    from bayesnmf import tl as tl
    from bayesnmf.assessment.absence import absence as absence
    from bayesnmf.assessment.agreement import Agreement as Agreement
    from bayesnmf.assessment.agreement import posterior_agreement as posterior_agreement
    from bayesnmf.assessment.allocation_marginal import log_p_allocation as log_p_allocation
    from bayesnmf.assessment.bounds import elbo_augmented as elbo_augmented
    from bayesnmf.assessment.bounds import elbo_marginal as elbo_marginal
    from bayesnmf.assessment.coherence import coherence as coherence
    from bayesnmf.assessment.evidence import log_evidence as log_evidence
    from bayesnmf.assessment.group_contrasts import group_contrasts as group_contrasts
    from bayesnmf.assessment.leave_one_out import LeaveOneOut as LeaveOneOut
    from bayesnmf.assessment.leave_one_out import loo as loo
    from bayesnmf.assessment.linear_response import linear_response as linear_response
    from bayesnmf.assessment.markers import markers as markers
    from bayesnmf.assessment.matching import Match as Match
    from bayesnmf.assessment.matching import match as match
    from bayesnmf.assessment.predictive_checks import PredictiveChecks as PredictiveChecks
    from bayesnmf.assessment.predictive_checks import predictive_checks as predictive_checks
    from bayesnmf.assessment.response_tables import LinearResponse as LinearResponse
    from bayesnmf.data.blocks.opening import Blocks as Blocks
    from bayesnmf.data.conversion import as_counts as as_counts
    from bayesnmf.data.counts import Counts as Counts
    from bayesnmf.data.counts import DataWarning as DataWarning
    from bayesnmf.data.reading import read_counts as read_counts
    from bayesnmf.data.simulation import Simulation as Simulation
    from bayesnmf.data.simulation import simulate as simulate
    from bayesnmf.estimators import BayesLDA as BayesLDA
    from bayesnmf.estimators import BayesNMF as BayesNMF
    from bayesnmf.fitting.fit import fit as fit
    from bayesnmf.fitting.fitted import Fit as Fit
    from bayesnmf.fitting.fitted import load as load
    from bayesnmf.fitting.streaming import MinibatchVI as MinibatchVI
    from bayesnmf.inference.status import ConvergenceWarning as ConvergenceWarning
    from bayesnmf.options import BLD as BLD
    from bayesnmf.options import MAP as MAP
    from bayesnmf.options import NUTS as NUTS
    from bayesnmf.options import SMC as SMC
    from bayesnmf.options import SVI as SVI
    from bayesnmf.options import VI as VI
    from bayesnmf.options import Gibbs as Gibbs
    from bayesnmf.options import Start as Start
    from bayesnmf.options.checkpoint import Checkpoint as Checkpoint
    from bayesnmf.pages.report import report as report
    from bayesnmf.priors import Dirichlet as Dirichlet
    from bayesnmf.priors import Gamma as Gamma
    from bayesnmf.priors import HierarchicalGamma as HierarchicalGamma
    from bayesnmf.priors import Priors as Priors
    from bayesnmf.priors import ScaledDirichlet as ScaledDirichlet
    from bayesnmf.priors.noise import NegativeBinomial as NegativeBinomial
    from bayesnmf.priors.noise import Quasi as Quasi
    from bayesnmf.results.topic_model import TopicModel as TopicModel
    from bayesnmf.results.topic_model import from_topic_model as from_topic_model
    from bayesnmf.results.topic_model import to_topic_model as to_topic_model
    from bayesnmf.studies.calibration import Calibration as Calibration
    from bayesnmf.studies.calibration import calibrate as calibrate
    from bayesnmf.studies.comparison.running import Settings as Settings
    from bayesnmf.studies.comparison.running import compare as compare
    from bayesnmf.studies.selection.result import Selection as Selection
    from bayesnmf.studies.selection.selecting import select as select
    from bayesnmf.studies.stability.consensus import Consensus as Consensus
    from bayesnmf.studies.stability.evidence import ModeEvidence as ModeEvidence
    from bayesnmf.studies.stability.modes import modes as modes
    from bayesnmf.studies.stability.result import Modes as Modes
    from bayesnmf.theorems.statements import equivalences as equivalences
    from bayesnmf.theorems.study import Effort as Effort
    from bayesnmf.theorems.table import Equivalences as Equivalences

__version__ = "0.2.0"

_HOMES = {
    "Agreement": "assessment.agreement",
    "BLD": "options",
    "BayesLDA": "estimators",
    "BayesNMF": "estimators",
    "Blocks": "data.blocks.opening",
    "Checkpoint": "options.checkpoint",
    "Calibration": "studies.calibration",
    "Consensus": "studies.stability.consensus",
    "ConvergenceWarning": "inference.status",
    "Counts": "data.counts",
    "DataWarning": "data.counts",
    "Dirichlet": "priors",
    "Effort": "theorems.study",
    "Equivalences": "theorems.table",
    "Fit": "fitting.fitted",
    "Gamma": "priors",
    "HierarchicalGamma": "priors",
    "Gibbs": "options",
    "LeaveOneOut": "assessment.leave_one_out",
    "LinearResponse": "assessment.response_tables",
    "MAP": "options",
    "Match": "assessment.matching",
    "MinibatchVI": "fitting.streaming",
    "ModeEvidence": "studies.stability.evidence",
    "Modes": "studies.stability.result",
    "NUTS": "options",
    "PredictiveChecks": "assessment.predictive_checks",
    "Priors": "priors",
    "NegativeBinomial": "priors.noise",
    "Quasi": "priors.noise",
    "SMC": "options",
    "SVI": "options",
    "ScaledDirichlet": "priors",
    "Selection": "studies.selection.result",
    "Settings": "studies.comparison.running",
    "Simulation": "data.simulation",
    "Start": "options",
    "TopicModel": "results.topic_model",
    "VI": "options",
    "absence": "assessment.absence",
    "as_counts": "data.conversion",
    "calibrate": "studies.calibration",
    "coherence": "assessment.coherence",
    "compare": "studies.comparison.running",
    "elbo_augmented": "assessment.bounds",
    "elbo_marginal": "assessment.bounds",
    "equivalences": "theorems.statements",
    "fit": "fitting.fit",
    "from_topic_model": "results.topic_model",
    "group_contrasts": "assessment.group_contrasts",
    "linear_response": "assessment.linear_response",
    "load": "fitting.fitted",
    "log_evidence": "assessment.evidence",
    "log_p_allocation": "assessment.allocation_marginal",
    "loo": "assessment.leave_one_out",
    "markers": "assessment.markers",
    "match": "assessment.matching",
    "modes": "studies.stability.modes",
    "posterior_agreement": "assessment.agreement",
    "predictive_checks": "assessment.predictive_checks",
    "read_counts": "data.reading",
    "report": "pages.report",
    "select": "studies.selection.selecting",
    "simulate": "data.simulation",
    "to_topic_model": "results.topic_model",
}
_MODULES = ("datasets", "models", "plots", "tl")

__all__ = ["__version__", *sorted(_HOMES), *_MODULES]

_root = Path(__file__).parent.parent
if not (_root / "bayesnmf" / "models").exists() and (_root / "models" / "likelihood.py").exists():
    __path__.append(str(_root))  # a checkout that is not installed: models/ is next to the package


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"bayesnmf.{_HOMES[name]}"), name)
    if name in _MODULES:
        return import_module(f"bayesnmf.{name}")
    raise AttributeError(f"module 'bayesnmf' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
