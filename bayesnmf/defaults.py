"""Options that were left out, resolved for a call: what measured best on whole real matrices.

`benchmarks/defaults.md` has the measurements, and the command that repeats them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bayesnmf import checks
from bayesnmf.options import MAP, VI, Options


def resolve_options(options: Options) -> Options:
    """Return the options with every None of map and vi that stands for a default filled in; priors must be resolved."""
    if not isinstance(options, MAP | VI):
        return options
    chosen: dict[str, Any] = {"algorithm": options.algorithm or _algorithm(options)}
    in_steps = chosen["algorithm"] in ("gradient", "minibatch")
    chosen["start"] = ("svd" if in_steps else "race") if options.start is None else options.start
    chosen["extrapolate"] = not in_steps if options.extrapolate is None else options.extrapolate
    if options.tol is None:
        chosen["tol"] = 1e-4 if chosen["algorithm"] == "minibatch" else 1e-7
    return replace(options, **chosen)


def _algorithm(options: MAP | VI) -> str:
    """Return the best algorithm that priors, schedule, basis and device allow."""
    if isinstance(options, VI):
        return "coordinate"
    stated_for_em = options.schedule == "joint" or options.basis == "log" or options.device == "gpu"
    fault = checks.regression_fault(options.priors.loadings, options.priors.components)
    return "em" if stated_for_em or fault else "scd"
