"""Rank numbers of components by stability: which components come back in other rows, or in resampled counts.

The rows are split at random in halves, again and again, and each half is fitted by itself. What sets a component apart
is its deviation β_k − f from the frequencies f of the features in all counts. Components of a half are matched one to
one to those of the fit to all counts, with the largest sum of cosines of their deviations. A component comes back in a
half if this cosine is above 0.75. The best rank is the largest at which every component has counts, and comes back in
at least four of five halves. A single component has no deviation, and counts as stable.

With too many components, some describe single rows or noise, which other rows do not share. Each half starts as the fit
to all counts does, from its own counts: from random starts, components that are in the counts are missed, too, as the
fit ends in another mode. An excess in the variance of single entries is not shared by two halves of the rows either,
unlike by two parts of one entry's counts. Cosines of the components themselves have no chance level: components that
have most of their profile in common come back whatever they are.

A component that few rows have can be lost in a half of them, although it is as sure as any other. With
`resample="counts"` all rows stay, and each count is drawn again from a Poisson distribution around it, as programs for
mutational signatures do. Such counts share an excess of single entries with those that were observed, so that what they
ask is less: could chance in these rows have made the component?
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.data.counts import Counts
from bayesnmf.data.splitting import with_data
from bayesnmf.fitting.fit import fit
from bayesnmf.fitting.fitted import Fit
from bayesnmf.fitting.job import ProgressReport
from bayesnmf.fitting.many import fit_side_by_side, number_of_jobs, uninterrupted
from bayesnmf.priors.pair import movable_components
from bayesnmf.priors.values import component_sums, rows_to_shares
from bayesnmf.studies.selection.plan import SelectionPlan
from bayesnmf.studies.selection.record import CLOSE, COMES_BACK, UNIT, Candidate
from bayesnmf.studies.selection.result import Selection
from bayesnmf.studies.stability.grouping import Found, match_found
from bayesnmf.studies.stability.running import Runs, seed_of, with_one_thread
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd

SPLITS = 2**31 + 1  # seed beside those of the fits


class Recurrence(NamedTuple):
    """How the components of one candidate come back.

    Attributes
    ----------
    cosines : ndarray (halves, K)
        Cosine of the deviation of each component with that of the component matched to it in each half.
    empty : int
        Number of components without counts.
    fits, converged : int
        Number of fits, to all counts and to the halves, and number of those that converged.
    """

    cosines: Array
    empty: int
    fits: int
    converged: int

    @property
    def line(self) -> dict[str, Any]:
        """The line of the table."""
        return {
            "least": float((self.cosines > CLOSE).mean(axis=0).min()),
            "closeness": float(self.cosines.mean(axis=0).min()),
            "recurrent": int(((self.cosines > CLOSE).mean(axis=0) >= COMES_BACK).sum()),
            "empty": self.empty,
            "fits": self.fits,
            "converged": self.converged,
        }


def by_stability(plan: SelectionPlan) -> Selection:
    """Fit every candidate to all counts and to parts or draws of them; after Ctrl-C, compare those that are done."""
    import pandas as pd

    draw = {"halves": split_rows, "counts": draw_again}[plan.resample]
    parts = draw(plan.counts, plan.halves, plan.seed)
    (found,), scored, interrupted = plan.score_all([parts], 1, plan.candidates, partial(_recurrence, plan))
    index = pd.MultiIndex.from_tuples(scored, names=["model", "rank"])
    table = pd.DataFrame([each.line for each in found], index=index)
    scores = pd.DataFrame(np.stack([each.cosines.min(axis=1) for each in found], axis=1), columns=index)
    return Selection(
        table, scores.rename_axis(UNIT[plan.resample]), largest_stable(table), plan.method, plan.keep, interrupted,
        criterion="stability", noise=plan.noises[0],
    )  # fmt: skip


def split_rows(counts: Counts, halves: int, seed: int) -> list[Counts]:
    """Return halves of the rows: two and two from one random order, so that they have no row in common."""
    n, parts = counts.shape[0], list[Counts]()
    for number in range(-(-halves // 2)):
        order = np.random.default_rng([seed, SPLITS, number]).permutation(n)
        parts += [counts.apart(np.sort(order[: n // 2])), counts.apart(np.sort(order[n // 2 :]))]
    return parts[:halves]


def draw_again(counts: Counts, number: int, seed: int) -> list[Counts]:
    """Return counts of the same rows, each drawn from a Poisson distribution whose mean is the observed count."""
    rows = np.arange(counts.shape[0])

    def drawn(rng: np.random.Generator, matrix: csr_array) -> csr_array:
        return with_data(matrix, rng.poisson(matrix.data))

    rngs = (np.random.default_rng([seed, SPLITS, part]) for part in range(number))
    return [counts.apart(rows, partial(drawn, rng)) for rng in rngs]


def _recurrence(plan: SelectionPlan, parts: list[Counts], candidate: Candidate, seed: int) -> Recurrence:
    """Fit a candidate to all counts and to the halves.

    Raises
    ------
    KeyboardInterrupt
        Ctrl-C before the last fit has ended.
    """

    def tick(*_: Any) -> None:
        plan.report("select", plan.candidates.index(candidate), len(plan.candidates), np.nan)

    stated = plan.options_for(candidate, plan.counts)
    noise = plan.noises[0]
    whole = uninterrupted(fit(plan.counts, *candidate, plan.method, seed=seed, options=stated, noise=noise))
    options = with_one_thread(stated)
    jobs = number_of_jobs(None, len(parts), options)
    runs = Runs(plan.counts, *candidate, plan.method, options, seed, jobs, noise=noise)

    def one(number: int, ends: ProgressReport) -> Fit:
        return runs.fit(ends, counts=parts[number], seed=seed_of(seed, number))

    fits, interrupted = fit_side_by_side(one, len(parts), runs.jobs, (tick, "select"))
    if interrupted:
        raise KeyboardInterrupt
    return recurrence_in(whole, [fits[number] for number in range(len(parts))])


def recurrence_in(whole: Fit, halves: list[Fit]) -> Recurrence:
    """Match the components of fits to halves of the rows to those of the fit to all counts."""
    frequencies = whole.counts.feature_totals / whole.counts.total
    wanted, movable = deviations_in(whole, frequencies), movable_components(whole.priors, whole.rank)
    if whole.rank == 1:
        cosines = np.ones((len(halves), 1))
    else:
        cosines = np.stack([match_found(deviations_in(half, frequencies), wanted, movable)[1] for half in halves])
    fits = [whole, *halves]
    return Recurrence(cosines, int(wanted.empty.sum()), len(fits), sum(fit.status.converged for fit in fits))


def deviations_in(fit: Fit, frequencies: Array) -> Found:
    """Return the deviation of each component, as expected shares of counts, from the frequencies of the features."""
    expected = np.asarray(fit.exposed_components, np.float64)
    return Found(rows_to_shares(expected, component_sums(expected)) - frequencies, fit.expected_sizes)


def is_stable(table: pd.DataFrame) -> pd.Series:
    """Return whether all components of each candidate have counts and come back in enough halves."""
    return (table["empty"] == 0) & (table["least"] >= COMES_BACK)


def largest_stable(table: pd.DataFrame) -> Candidate | None:
    """Return the largest rank that is stable, and of several models the one whose components are closest."""
    good = table[is_stable(table)]
    if not len(good):
        return None
    first = good.reset_index().sort_values(["rank", "closeness"], ascending=False).iloc[0]
    return Candidate(str(first["model"]), int(first["rank"]))
