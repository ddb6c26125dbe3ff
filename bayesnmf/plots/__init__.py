"""Figures of fits, each drawn by one function, which returns its axes.

Most functions take a fit, or a mapping from labels to fits as in ``{"map": map_fit, "vi": vi_fit}``; `agreement` takes
a mapping, `chains` and `structure` take one fit, `calibration` takes one or several results of `bayesnmf.calibrate`,
and `presence` one of `bayesnmf.assign`. All take ``axes`` to draw on, and most ``figsize``. Each method has a colour
(`METHOD_COLOURS`); if all fits are by one method, each fit has its own. Components have the colours of `PALETTE`, in
their order.
"""

from typing import Any
from warnings import warn

from bayesnmf.checks import did_you_mean
from bayesnmf.plots.calibration import calibration
from bayesnmf.plots.convergence import convergence
from bayesnmf.plots.factors import components, top_features
from bayesnmf.plots.graph import model_graph
from bayesnmf.plots.groups import group_shares
from bayesnmf.plots.intervals import loadings_intervals
from bayesnmf.plots.misfits import misfit
from bayesnmf.plots.mixing import chains
from bayesnmf.plots.modes import consensus, modes
from bayesnmf.plots.mutations import signatures
from bayesnmf.plots.posteriors import loadings_scatter, posterior_agreement
from bayesnmf.plots.predictive import predictive_checks
from bayesnmf.plots.presence import presence
from bayesnmf.plots.selection import ranks, selection
from bayesnmf.plots.similarity import agreement
from bayesnmf.plots.structure import structure
from bayesnmf.plots.style import METHOD_COLOURS, PALETTE
from bayesnmf.plots.traces import objectives
from bayesnmf.plots.volcano import volcano

__all__ = [
    "METHOD_COLOURS",
    "PALETTE",
    "agreement",
    "calibration",
    "chains",
    "components",
    "consensus",
    "convergence",
    "group_shares",
    "loadings_intervals",
    "loadings_scatter",
    "misfit",
    "model_graph",
    "modes",
    "objectives",
    "posterior_agreement",
    "predictive_checks",
    "presence",
    "ranks",
    "selection",
    "signatures",
    "structure",
    "top_features",
    "volcano",
]


def __getattr__(name: str) -> Any:
    if name == "sbs96":  # the name of version 0.2
        warn("plots.sbs96 will be removed: call plots.signatures", DeprecationWarning, stacklevel=2)
        return signatures
    raise AttributeError(f"module 'bayesnmf.plots' has no attribute {name!r}{did_you_mean(name, __all__)}")
