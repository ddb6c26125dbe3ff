"""Tables of runs, of modes, and of how often and how closely each component comes back in fits from other starts.

Let c_kr be the cosine between component k of a mode's best fit and the component of run r that is matched to it, one to
one, with the largest sum of cosines over all K (`bayesnmf.studies.stability.grouping`). For R runs and a threshold t,

    recurrence_k = (1/R) Σ_r [c_kr > t],    closeness_k = (1/R) Σ_r c_kr,    least_k = min_r c_kr.

The run of the best fit itself is one of the R runs, with cosine 1, so recurrence is at least 1/R. Recurrence does not
ask that the other components of run r come back, too: a component may come back in every run although no two runs end
in one mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bayesnmf.fitting.fitted import Fit
from bayesnmf.studies.stability.grouping import Found, Groups, match_found
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd


def matched_cosines(leader: Found, runs: Sequence[Found], movable: Array) -> Array:
    """Return the cosine of each component of a leader with the matched component of each run, (R, K)."""
    return np.stack([match_found(run, leader, movable)[1] for run in runs])


def recurrence_table(runs: Sequence[Found], groups: Groups, movable: Array, threshold: float) -> pd.DataFrame:
    """Return how each component of each mode comes back, by mode and component."""
    import pandas as pd

    lines = []
    best = runs[groups.leaders[0]]
    for mode, leader in enumerate(groups.leaders):
        cosines = matched_cosines(runs[leader], runs, movable)
        order, with_best = match_found(best, runs[leader], movable)
        total = max(float(runs[leader].size.sum()), np.finfo(np.float64).tiny)
        for k in range(cosines.shape[1]):
            comes_back = cosines[:, k] > threshold
            lines.append(
                {
                    "mode": mode,
                    "component": k,
                    "share_of_counts": float(runs[leader].size[k] / total),
                    "runs": int(comes_back.sum()),
                    "recurrence": float(comes_back.mean()),
                    "closeness": float(cosines[:, k].mean()),
                    "least": float(cosines[:, k].min()),
                    "in_best": int(order[k]),
                    "in_best_cosine": float(with_best[k]),
                }
            )
    return pd.DataFrame(lines).set_index(["mode", "component"])


def run_table(starts: Sequence[int], fits: Sequence[Fit], groups: Groups, cosines: Sequence[float]) -> pd.DataFrame:
    """Return a row for each run, by number of its start.

    Parameters
    ----------
    cosines : sequence of float
        Smallest matched cosine of each run with the best run of its mode.
    """
    import pandas as pd

    objectives = np.array([float(each.trace[-1]) for each in fits])
    columns = {
        "mode": groups.mode,
        "objective": objectives,
        "behind": objectives[groups.leaders[0]] - objectives,
        "cosine": np.asarray(cosines, np.float64),
        "converged": [bool(each.status.converged) for each in fits],
        "iterations": [int(each.status.iterations) for each in fits],
        "seconds": [float(each.seconds) for each in fits],
        "seed": [int(each.seed) for each in fits],
    }
    return pd.DataFrame(columns, index=pd.Index(starts, name="run"))


def mode_table(runs: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each mode: objective of its best run, its distance behind the best, and its runs."""
    by_mode = runs.groupby("mode")
    table = by_mode["objective"].max().to_frame()
    table["behind"] = table["objective"].iloc[0] - table["objective"]
    table["runs"] = by_mode.size()
    table["share"] = table["runs"] / len(runs)
    return table
