"""Draw the distance to the best value against seconds on log axes, or the values if tools have other objectives."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path

import numpy as np

from benchmarks.report import OBJECTIVES, Result, gaps

LEAST = 1e-9
OURS = ("#08306b", "#2171b5", "#6baed6", "#00441b", "#238b45", "#74c476")
OTHERS = ("#d94801", "#a50f15", "#6a51a3", "#e7298a", "#8c6d31", "#525252")


def draw(result: Result, path: Path) -> None:
    """Draw a curve for each tool, dashed for other tools than ours."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    colours = {True: cycle(OURS), False: cycle(OTHERS)}
    own_objective = result.task in ("gibbs", "heldout")
    for run in result.runs:
        if not run.checkpoints:
            continue
        mine = run.tool.peer == "ours"
        seconds = np.array([c.seconds for c in run.checkpoints])
        values = np.array([c.value for c in run.checkpoints])
        if result.task == "gibbs":
            values = np.array([loglik for loglik, _ in run.draws])
            seconds = seconds[-1] - run.per_iteration * np.arange(len(values))[::-1]
        elif not own_objective:
            values = np.maximum(gaps(run, result.best), LEAST)
        label = run.tool.name + (f", chain {run.chain + 1}" if result.task == "gibbs" else "")
        axes.plot(seconds, values, "-" if mine else "--", color=next(colours[mine]), label=label, linewidth=1.5)
    axes.set_xscale("log")
    axes.set_yscale("linear" if own_objective else "log")
    axes.set_xlabel("seconds of fitting")
    axes.set_ylabel(
        OBJECTIVES[result.task] if own_objective else f"{OBJECTIVES[result.task]}: below the best, relative"
    )
    axes.set_title(result.title, fontsize=9)
    if axes.lines:
        axes.legend(fontsize=7)
    figure.savefig(path, dpi=120)
