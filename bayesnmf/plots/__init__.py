"""Figures of fits, one line each; every function returns the axes it drew on.

`components`, `loadings_intervals`, `objectives` and `agreement` take a mapping from labels to fits, as in
``{"map": map_fit, "vi": vi_fit}``; `chains` and `structure` take one fit. Colours belong to methods (`METHOD_COLOURS`).
"""

from bayesnmf.plots.factors import components
from bayesnmf.plots.intervals import loadings_intervals
from bayesnmf.plots.mixing import chains
from bayesnmf.plots.similarity import agreement
from bayesnmf.plots.structure import structure
from bayesnmf.plots.style import METHOD_COLOURS
from bayesnmf.plots.traces import objectives

__all__ = ["METHOD_COLOURS", "agreement", "chains", "components", "loadings_intervals", "objectives", "structure"]
