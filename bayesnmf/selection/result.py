"""Models and ranks, ranked by a criterion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bayesnmf.assessment.predictive_checks import PredictiveChecks
from bayesnmf.selection.printing import headings_and_lines
from bayesnmf.text import text_table

if TYPE_CHECKING:
    import pandas as pd

MISFIT = 0.01  # p-value of the misfit below which a caution is given
NOTES = {
    "heldout": [
        "± is the standard error over rows, that of differences from the best paired by row",
        "one se: the smallest rank that falls short of the best by at most one standard error of the paired "
        "differences",
    ],
    "evidence": [
        "log p(X) in nats; probability: of each candidate, if all are equally probable before the counts are seen",
        "unknown: the runs disagree by more than 1 nat; the number is then a lower limit",
    ],
    "stability": [
        "come back: in how many halves of the rows, fitted by themselves, the component that comes back least often "
        "comes back (cosine above 0.85); closeness: mean cosine of the least close one; empty: components without "
        "counts",
        "best: the largest rank at which all components have counts, and come back in at least 80 % of the halves",
    ],
}


class Candidate(NamedTuple):
    """A model and a rank; ``bayesnmf.fit(counts, *candidate)`` fits it."""

    model: str
    rank: int


@dataclass(frozen=True, eq=False, repr=False)
class Selection:
    """Models and ranks, ranked by a criterion.

    Attributes
    ----------
    table : DataFrame
        By model and rank. With "heldout": mean (held-out log-likelihood for each count, in nats, without the
        multinomial coefficient) and its se over rows; difference from the best, and the se of the paired differences;
        the same for withheld rows (`rows_mean`, …); number of splits, and number of fits that converged. With
        "evidence": log_evidence, se, difference, difference_se, probability, known, spread. With "stability": least
        (share of the halves in which the least recurrent component comes back), closeness, empty, converged.
    scores : DataFrame
        Scores by split and candidate with "heldout", estimates by run and candidate with "evidence", least
        cosines by half of the rows with "stability".
    best : Candidate or None
        Candidate that the criterion prefers; None while one that could win is unknown, or if none qualifies.
    method : str
    keep : float
        Probability with which a count was in the training counts, with "heldout".
    interrupted : bool
        Whether Ctrl-C stopped the selection: only candidates that were scored in every split are compared.
    criterion : {"heldout", "evidence", "stability"}
    checks : PredictiveChecks or None
        Predictive checks of the best candidate's fit to all counts.
    """

    table: pd.DataFrame
    scores: pd.DataFrame
    best: Candidate | None
    method: str
    keep: float
    interrupted: bool
    criterion: str = "heldout"
    checks: PredictiveChecks | None = None

    @property
    def one_standard_error(self) -> Candidate | None:
        """The smallest rank whose score is within one standard error of the best, and its best model.

        The standard error is that of the differences from the best, paired by row, so the variation that all scores
        share does not enter. With a single row, and with "stability", there is none, and the best is returned.
        """
        if self.best is None or "difference_se" not in self.table:
            return self.best
        return _frugal(self.table, "mean" if "mean" in self.table else "log_evidence", "difference", "difference_se")

    @property
    def best_for_rows(self) -> Candidate | None:
        """Candidate that predicts withheld rows best; None without them."""
        if "rows_mean" not in self.table or self.table["rows_mean"].isna().all():
            return None
        first: Any = self.table["rows_mean"].idxmax()
        return Candidate(str(first[0]), int(first[1]))

    @property
    def one_standard_error_for_rows(self) -> Candidate | None:
        """The smallest rank whose score for withheld rows is within one standard error of the best."""
        if self.best_for_rows is None:
            return None
        return _frugal(self.table, "rows_mean", "rows_difference", "rows_difference_se")

    @property
    def cautions(self) -> list[str]:
        """Reasons to doubt the best rank: an edge of those tried, a misfit, other rows or an unknown candidate."""
        if self.best is None:
            return [_why_none(self)]
        return [*_edges(self), *_misfit(self), *_disagreement(self)]

    def __repr__(self) -> str:
        title, headings, lines = headings_and_lines(self)
        notes = list(NOTES[self.criterion])
        if self.criterion == "heldout" and self.table["se"].isna().all():
            notes = ["a single row has no standard error"]
        notes += ["interrupted: the rest was not fitted"] if self.interrupted else []
        notes += [f"CAUTION {caution}" for caution in self.cautions]
        return text_table(title, headings, lines, notes)


def _frugal(table: pd.DataFrame, mean: str, difference: str, se: str) -> Candidate:
    flat = table.reset_index()
    good = flat[-flat[difference] <= np.nan_to_num(flat[se])]
    first: Any = good.sort_values(["rank", mean], ascending=[True, False]).iloc[0]
    return Candidate(str(first["model"]), int(first["rank"]))


def _why_none(found: Selection) -> str:
    if found.criterion == "evidence":
        unknown = found.table.index[found.table["could_win"]]
        listed = ", ".join(f"{model} {rank}" for model, rank in unknown)
        return (
            f"the evidence of {listed} is unknown and could be the largest, so none is called best; raise refinement "
            "or particles in options=SMC(...), or take fewer rows"
        )
    return (
        "at no rank tried do all components have counts and come back in at least 80 % of the halves of the rows; try "
        "smaller ranks, or criterion='heldout'"
    )


def _edges(found: Selection) -> list[str]:
    tried = found.table.index.get_level_values("rank")
    best: Any = found.best
    if tried.min() == tried.max():
        return []
    if best.rank == tried.max():
        cure = "try larger ones; if none is worse, `predictive_checks` shows what the model misses"
        return [f"the best rank, {best.rank}, is the largest that was tried: {cure}"]
    if best.rank == tried.min() > 1:
        return [f"the best rank, {best.rank}, is the smallest that was tried: try smaller ones"]
    return []


def _misfit(found: Selection) -> list[str]:
    if found.checks is None or found.best is None:
        return []
    p: Any = found.checks.table.loc["misfit", "p_value"]
    if not p < MISFIT:
        return []
    return [
        f"the model is misfitted at rank {found.best.rank} (p-value {p:.3f} of the misfit): the counts vary more "
        "than it allows, and further components absorb this variation, so that larger ranks may win without being "
        "real. If the misfit disappears at a larger rank, this is weak evidence for that rank, for the same reason"
    ]


def _disagreement(found: Selection) -> list[str]:
    rows, counts = found.one_standard_error_for_rows, found.one_standard_error
    if found.criterion != "heldout" or rows is None or counts is None or rows.rank >= counts.rank:
        return []
    return [
        f"features of withheld rows are predicted as well with rank {rows.rank} as with any other: more components "
        "describe single rows, whose held-out counts share an excess with their training counts, rather than what rows "
        "have in common"
    ]
