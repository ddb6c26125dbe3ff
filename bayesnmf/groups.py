"""Public names in groups, so that what completes `bayesnmf.` are its actions, and a group completes its own names.

Every name can be reached from `bayesnmf` as well: ``bayesnmf.VI`` is ``bayesnmf.options.VI``.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

GROUPS = {
    "options": ("BLD", "Checkpoint", "Effort", "Gibbs", "MAP", "NUTS", "SMC", "SVI", "Settings", "Start", "VI"),
    "priors": (
        "Batch", "Dirichlet", "Gamma", "HierarchicalGamma", "NegativeBinomial", "Priors", "Quasi", "ScaledDirichlet",
        "Seeds", "ZeroInflated",
    ),
    "results": (
        "Agreement", "Assignment", "Calibration", "Consensus", "ConvergenceWarning", "Counts", "DataWarning",
        "Equivalences", "Fit", "LeaveOneOut", "LinearResponse", "Match", "ModeEvidence", "Modes", "PredictiveChecks",
        "Selection", "Simulation", "TopicModel",
    ),
}  # fmt: skip


def member_of(group: str, name: str) -> Any:
    """Return a public name of a group, for the group's `__getattr__`."""
    if name not in GROUPS[group]:
        raise AttributeError(f"module 'bayesnmf.{group}' has no attribute {name!r}")
    return getattr(import_module("bayesnmf"), name)
