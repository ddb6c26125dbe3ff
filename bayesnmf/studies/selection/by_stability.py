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

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.checks import check_choice, check_count, shown
from bayesnmf.data.counts import Counts
from bayesnmf.data.splitting import with_data
from bayesnmf.fitting.fit import fit
from bayesnmf.fitting.fitted import Fit
from bayesnmf.fitting.job import ProgressReport
from bayesnmf.fitting.many import fit_side_by_side, number_of_jobs, uninterrupted
from bayesnmf.options import Options
from bayesnmf.priors.pair import movable_components
from bayesnmf.priors.values import component_sums, rows_to_shares
from bayesnmf.studies.selection.criterion import (
    UNIT,
    Candidate,
    Criterion,
    Line,
    SelectionPlan,
    SelectionRecord,
    with_noise,
)
from bayesnmf.studies.stability.checks import check_has_objective
from bayesnmf.studies.stability.grouping import Found, match_found
from bayesnmf.studies.stability.runs import Runs, seed_of, with_one_thread
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd

CLOSE = 0.75  # cosine of deviations above which a component comes back
COMES_BACK = 0.8  # least share of the halves in which every component of a stable rank comes back
FEWEST_HALVES = 5  # fewer cannot show a share of 80 % that is not 100 %
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


@dataclass(frozen=True)
class Stability(Criterion):
    """Share of halves of the rows, or of resampled counts, in which the components come back.

    Attributes
    ----------
    halves : int
        Number of halves, or of resampled counts.
    resample : {"halves", "counts"}
    """

    halves: int = 10
    resample: Literal["halves", "counts"] = "halves"

    word: ClassVar[str] = "stability"
    largest_wins: ClassVar[bool] = True
    column: ClassVar[str] = "least"
    label: ClassVar[str] = "share of the {} in which\nthe least recurrent component comes back"
    short: ClassVar[str] = "share in which the least\nrecurrent comes back"
    threshold: ClassVar[float | None] = COMES_BACK
    title: ClassVar[str] = "stability"
    units: ClassVar[str] = ""
    prefers: ClassVar[str] = "Components come back best"
    notes: ClassVar[list[str]] = [
        "each of them is fitted by itself; come back: share of them in which the least recurrent component is found "
        f"again: what sets it apart from the overall frequencies, with a cosine above {CLOSE}",
        "closeness: mean cosine of the component that is matched worst; empty: number of components without counts",
        "best: the largest rank at which all components have counts and come back in at least "
        f"{COMES_BACK:.0%} of them; recurrent: number of components that do",
    ]

    def __post_init__(self) -> None:
        check_count(self.halves, "halves", minimum=FEWEST_HALVES)
        check_choice(self.resample, "resample", UNIT)

    @property
    def asks_other_rows(self) -> bool:
        """Whether it fits some of the rows."""
        return True

    def check(self, method: str, counts: Counts, options: Options) -> None:
        """Refuse methods without an objective, a single row, and starts made for other rows."""
        super().check(method, counts, options)
        check_has_objective(method, "criterion='stability'")
        if counts.shape[0] < 2:
            raise ValueError(
                "criterion='stability' needs at least two rows, which it splits in halves: found one; use "
                "criterion='evidence'"
            )
        start = getattr(options, "start", None)
        if start is not None and not isinstance(start, str):
            raise ValueError(
                f"options.start must be made anew for the rows of each half: found {shown(start)}, made for other "
                "rows; leave start out of the options"
            )

    def compare(self, plan: SelectionPlan) -> SelectionRecord:
        """Fit every candidate to all counts and to parts or draws; after Ctrl-C, compare those that are done."""
        import pandas as pd

        draw = {"halves": split_rows, "counts": draw_again}[self.resample]
        parts = draw(plan.counts, self.halves, plan.seed)
        (found,), scored, interrupted = plan.score_all([parts], 1, plan.candidates, partial(_recurrence, plan))
        index = pd.MultiIndex.from_tuples(scored, names=["model", "rank"])
        table = pd.DataFrame([each.line for each in found], index=index)
        scores = pd.DataFrame(np.stack([each.cosines.min(axis=1) for each in found], axis=1), columns=index)
        told: Any = {"interrupted": interrupted, "criterion": self.word, "noise": plan.noises[0]}
        scores = scores.rename_axis(UNIT[self.resample])
        return SelectionRecord(table, scores, largest_stable(table), plan.method, **told)

    @classmethod
    def headline(cls, found: SelectionRecord) -> str:
        """Return the title of the table."""
        return f"by {found.method}{with_noise(found)}, {len(found.scores)} {found.resampled}"

    @classmethod
    def headings(cls, found: SelectionRecord) -> Line:
        """Return the headings of what the table says of each candidate."""
        return ["come back", "recurrent", "closeness", "empty", "converged"]

    @classmethod
    def line(cls, found: SelectionRecord, each: Any) -> Line:
        """Return what the table says of a candidate."""
        told = [f"{each.least:.0%}", str(each.recurrent), f"{each.closeness:.3f}", str(each.empty)]
        return [*told, f"{each.converged} of {each.fits}"]

    @classmethod
    def why_none(cls, found: SelectionRecord) -> str:
        """Return why there is no best candidate."""
        return (
            f"no rank is stable: at none of those tried do all components have counts and come back in at least "
            f"{COMES_BACK:.0%} of the {found.resampled}; try smaller ranks, or criterion='masked'"
        )

    @classmethod
    def cautions(cls, found: SelectionRecord) -> list[str]:
        """Return that smaller ranks are not stable, or that another seed may name another rank."""
        best: Any = found.best
        table, halves = found.table.loc[best.model], len(found.scores)
        told = []
        failed = table.index[(table.index < best.rank) & ((table["empty"] > 0) | (table["least"] < COMES_BACK))]
        if len(failed):
            told.append(
                f"smaller ranks are not stable ({_listed(failed)}): fewer components may each stand for several, and "
                "which ones they join depends on the rows; compare with another criterion"
            )
        error = math.sqrt(COMES_BACK * (1 - COMES_BACK) / halves)
        near = (table["empty"] == 0) & ((table["least"] - COMES_BACK).abs() <= error)
        close = table.index[near & (table.index >= best.rank)]
        if len(close):
            told.append(
                f"another seed may name another rank: the shares of {halves} {found.resampled} in which rank "
                f"{_listed(close)} comes back are within one standard error ({error:.0%}) of {COMES_BACK:.0%}; raise "
                "halves"
            )
        return told


def _listed(ranks: Any) -> str:
    return ", ".join(str(rank) for rank in ranks)


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
