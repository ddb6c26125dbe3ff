"""Figures of fits, each drawn by one function, which returns its axes.

Most functions take a fit, or a mapping from labels to fits as in ``{"map": map_fit, "vi": vi_fit}``; `agreement` takes
a mapping, `chains` and `structure` take one fit, `calibration` takes one or several results of `bayesnmf.calibrate`,
`presence` takes one of `bayesnmf.assign`, and `moved` one of this or a fit. All take ``axes`` to draw on, and
``figsize``. Each method has a colour (`METHOD_COLOURS`); if all fits are by one method, each fit has its own.
Components have the colours of `PALETTE`, in their order.
"""

from typing import Any
from warnings import warn

from bayesnmf.checks import did_you_mean
from bayesnmf.plots.agreement import agreement as agreement
from bayesnmf.plots.agreement import posterior_agreement as posterior_agreement
from bayesnmf.plots.calibration import calibration as calibration
from bayesnmf.plots.convergence import convergence as convergence
from bayesnmf.plots.convergence import objectives as objectives
from bayesnmf.plots.factors import components as components
from bayesnmf.plots.factors import top_features as top_features
from bayesnmf.plots.factors import volcano as volcano
from bayesnmf.plots.graph import model_graph as model_graph
from bayesnmf.plots.loadings import loadings_intervals as loadings_intervals
from bayesnmf.plots.loadings import loadings_scatter as loadings_scatter
from bayesnmf.plots.mixing import chains as chains
from bayesnmf.plots.modes import consensus as consensus
from bayesnmf.plots.modes import modes as modes
from bayesnmf.plots.mutations import moved as moved
from bayesnmf.plots.mutations import signatures as signatures
from bayesnmf.plots.predictive import misfit as misfit
from bayesnmf.plots.predictive import predictive_checks as predictive_checks
from bayesnmf.plots.samples import group_shares as group_shares
from bayesnmf.plots.samples import presence as presence
from bayesnmf.plots.samples import structure as structure
from bayesnmf.plots.selection import ranks as ranks
from bayesnmf.plots.selection import selection as selection
from bayesnmf.plots.style import FIGURES, METHOD_COLOURS, PALETTE

__all__ = ["METHOD_COLOURS", "PALETTE", *sorted(FIGURES)]


def __getattr__(name: str) -> Any:
    if name == "sbs96":  # the name of version 0.2
        warn("plots.sbs96 will be removed: call plots.signatures", DeprecationWarning, stacklevel=2)
        return signatures
    raise AttributeError(f"module 'bayesnmf.plots' has no attribute {name!r}{did_you_mean(name, __all__)}")
