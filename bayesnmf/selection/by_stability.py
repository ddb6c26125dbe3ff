"""Rank numbers of components by stability: which components come back in other rows, from other starts.

The rows are split at random in halves, again and again, and each half is fitted by itself, from a random start. A
component of the fit to all counts comes back in a half if the component of this half that is matched to it has a cosine
above 0.85 (`bayesnmf.stability.grouping`). The best rank is the largest at which every component has counts, and comes
back in at least four of five halves.

With too many components, some describe single rows or noise. These do not come back in other rows; from other starts
alone they often do, since the noise of the counts is the same. An excess in the variance of single cells is not shared
by the two halves either, unlike that of two parts of one cell's counts.
"""

from __future__ import annotations

from functools import partial
from threading import Event
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesnmf.data.counts import Counts
from bayesnmf.fitting.fit import Fit
from bayesnmf.selection.held_out import Study
from bayesnmf.selection.result import Candidate, Selection
from bayesnmf.stability.grouping import found_in, match_found, movable_components
from bayesnmf.stability.running import Report, number_of_jobs, run_tasks, seed_of, varied_options
from bayesnmf.stability.running import Study as Fitting

Array = NDArray[Any]
CLOSE = 0.85  # cosine above which a component comes back
COMES_BACK = 0.8  # least share of the halves
SPLITS = 2**31 + 1  # seed beside those of the fits


class Recurrence(NamedTuple):
    """How the components of one candidate come back.

    Attributes
    ----------
    cosines : ndarray (halves, K)
        Cosine of each component with the one that is matched to it in each half.
    empty : int
        Number of components without counts.
    converged : int
        Number of fits to halves that converged.
    """

    cosines: Array
    empty: int
    converged: int

    @property
    def line(self) -> dict[str, Any]:
        """The line of the table."""
        return {
            "least": float((self.cosines > CLOSE).mean(axis=0).min()),
            "closeness": float(self.cosines.mean(axis=0).min()),
            "empty": self.empty,
            "converged": self.converged,
        }


def by_stability(study: Study, halves: int) -> Selection:
    """Fit every candidate to all rows and to halves of them; after Ctrl-C, compare those that are done."""
    import pandas as pd

    found: dict[Candidate, Recurrence] = {}
    parts = split_rows(study.counts, halves, study.seed)
    try:
        for candidate in study.candidates:
            study.report("select", len(found), len(study.candidates), np.nan)
            found[candidate] = _recurrence(study, candidate, parts, len(found))
        study.report("select", len(found), len(study.candidates), np.nan)
    except KeyboardInterrupt:
        if not found:
            raise
    index = pd.MultiIndex.from_tuples(list(found), names=["model", "rank"])
    table = pd.DataFrame([each.line for each in found.values()], index=index)
    good = table[(table["empty"] == 0) & (table["least"] >= COMES_BACK)]
    scores = pd.DataFrame(np.stack([each.cosines.min(axis=1) for each in found.values()], axis=1), columns=index)
    return Selection(
        table, scores.rename_axis("half"), _largest(good), study.method, study.keep,
        len(found) < len(study.candidates), criterion="stability",
    )  # fmt: skip


def split_rows(counts: Counts, halves: int, seed: int) -> list[Counts]:
    """Return halves of the rows: two and two from one random order, so that they have no row in common."""
    n, parts = counts.shape[0], list[Counts]()
    for number in range(-(-halves // 2)):
        order = np.random.default_rng([seed, SPLITS, number]).permutation(n)
        parts += [counts.rows(np.sort(order[: n // 2])), counts.rows(np.sort(order[n // 2 :]))]
    return parts[:halves]


def _recurrence(study: Study, candidate: Candidate, parts: list[Counts], done: int) -> Recurrence:
    """Fit a candidate to all counts and to the halves.

    Raises
    ------
    KeyboardInterrupt
        Ctrl-C before the last fit has ended.
    """

    def tick(*_: Any) -> None:
        study.report("select", done, len(study.candidates), np.nan)

    fits, stop = dict[int, Fit](), Event()
    varied = varied_options(study.options, study.method)
    told = Report(tick, "select", len(parts), stop)
    jobs = number_of_jobs(None, len(parts), varied)
    fitting = Fitting(study.counts, *candidate, study.method, varied, study.seed, jobs)

    def run(number: int) -> None:
        found = None if stop.is_set() else fitting.fit(parts[number], seed_of(study.seed, number), varied, stop)
        if found is not None:
            fits[number] = found
            told.one_more()

    whole = fitting.fit(study.counts, study.seed, study.options, stop)
    run_tasks([partial(run, number) for number in range(len(parts))], jobs, stop)
    if stop.is_set() or whole is None:
        raise KeyboardInterrupt
    return recurrence_in(whole, [fits[number] for number in range(len(parts))])


def recurrence_in(whole: Fit, halves: list[Fit]) -> Recurrence:
    """Match the components of fits to halves of the rows to those of the fit to all counts."""
    wanted, movable = found_in(whole), movable_components(whole.priors, whole.rank)
    cosines = np.stack([match_found(found_in(half), wanted, movable)[1] for half in halves])
    return Recurrence(cosines, int(wanted.empty.sum()), sum(half.status.converged for half in halves))


def _largest(good: Any) -> Candidate | None:
    """Return the largest rank that qualifies, and of several models the one whose components are closest."""
    if not len(good):
        return None
    first = good.reset_index().sort_values(["rank", "closeness"], ascending=False).iloc[0]
    return Candidate(str(first["model"]), int(first["rank"]))
