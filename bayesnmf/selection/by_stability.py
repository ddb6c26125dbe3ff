"""Rank numbers of components by stability: which components come back in fits from other starts.

With too many components, some describe noise, and which noise depends on the start, or they are left without counts.
The best rank is the largest at which every component has counts, and comes back in at least four of five runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesnmf.selection.held_out import Study
from bayesnmf.selection.result import Candidate, Selection
from bayesnmf.stability.grouping import EMPTY, found_in
from bayesnmf.stability.modes import Modes, modes

COMES_BACK = 0.8  # least share of the runs


def by_stability(study: Study, starts: int) -> Selection:
    """Fit every candidate from several starts; after Ctrl-C, compare those that are done."""
    import pandas as pd

    lines: dict[Candidate, dict[str, Any]] = {}
    scores: dict[Candidate, Any] = {}
    try:
        for candidate in study.candidates:
            study.report("select", len(lines), len(study.candidates), np.nan)
            found = _modes_of(study, candidate, starts, len(lines))
            if found.interrupted:
                raise KeyboardInterrupt
            lines[candidate], scores[candidate] = line_of(found), found.runs["cosine"]
        study.report("select", len(lines), len(study.candidates), np.nan)
    except KeyboardInterrupt:
        if not lines:
            raise
    index = pd.MultiIndex.from_tuples(list(lines), names=["model", "rank"])
    table = pd.DataFrame(list(lines.values()), index=index)
    good = table[(table["empty"] == 0) & (table["least"] >= COMES_BACK)]
    by_run = pd.concat(list(scores.values()), axis=1)
    by_run.columns = index
    return Selection(
        table, by_run, _largest(good), study.method, study.keep, len(lines) < len(study.candidates),
        criterion="stability",
    )  # fmt: skip


def _modes_of(study: Study, candidate: Candidate, starts: int, done: int) -> Modes:
    def tick(*_: Any) -> None:
        study.report("select", done, len(study.candidates), np.nan)

    return modes(
        study.counts, *candidate, study.method, starts=starts, options=study.options, scored=0, seed=study.seed,
        progress=tick,
    )  # fmt: skip


def line_of(found: Modes) -> dict[str, Any]:
    """Return a line of the table."""
    best = found.components.loc[0]
    empty = int(np.sum(found_in(found.best).size < EMPTY))
    return {
        "least": float(best["recurrence"].min()),
        "closeness": float(best["closeness"].min()),
        "empty": empty,
        "modes": len(found.table),
        "converged": int(found.runs["converged"].sum()),
    }


def _largest(good: Any) -> Candidate | None:
    """Return the largest rank that qualifies, and of several models the one whose components are closest."""
    if not len(good):
        return None
    first = good.reset_index().sort_values(["rank", "closeness"], ascending=False).iloc[0]
    return Candidate(str(first["model"]), int(first["rank"]))
