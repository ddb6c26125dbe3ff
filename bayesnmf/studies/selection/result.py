"""Models and ranks, ranked by a criterion."""

from __future__ import annotations

from bayesnmf.inference.tempering.combining import WIDEST_SPREAD
from bayesnmf.studies.selection.cautions import cautions_of
from bayesnmf.studies.selection.printing import headings_and_lines
from bayesnmf.studies.selection.record import SCORED, SelectionRecord
from bayesnmf.studies.selection.rules import CLOSE, COMES_BACK
from bayesnmf.text import text_table

NOTES = {
    "heldout": [
        "± is the standard error over rows, that of differences from the best paired by row",
        "one se: the smallest rank that falls short of the best by at most one standard error of the paired "
        "differences",
    ],
    "masked": [
        "± is the standard error over rows, that of differences from the best paired by row",
        "one se: the smallest rank that falls short of the best by at most one standard error of the paired "
        "differences",
        "χ²: of the held-out cells, over their number; 1 if they vary as the noise says around exact predictions",
    ],
    "evidence": [
        "log p(X) in nats; probability: of each candidate, if all are equally probable before the counts are seen",
        f"unknown: the logs of the runs' estimates have a standard deviation above {WIDEST_SPREAD:g} nat, or are below "
        "a variational bound; the number is then a lower limit",
    ],
    "stability": [
        "every half of the rows is fitted by itself; come back: share of the halves in which the least recurrent "
        f"component is found again: what sets it apart from the overall frequencies, with a cosine above {CLOSE}",
        "closeness: mean cosine of the component that is matched worst; empty: number of components without counts",
        "best: the largest rank at which all components have counts and come back in at least "
        f"{COMES_BACK:.0%} of the halves",
    ],
}


class Selection(SelectionRecord):
    __doc__ = SelectionRecord.__doc__

    @property
    def cautions(self) -> list[str]:
        """Reasons to doubt the best candidate, or why there is none."""
        return cautions_of(self)

    def __repr__(self) -> str:
        title, headings, lines = headings_and_lines(self)
        notes = list(NOTES[self.criterion])
        if self.criterion in SCORED and self.table["se"].isna().all():
            notes = ["a single row has no standard error"]
        notes += ["interrupted: other candidates or the checks are missing"] if self.interrupted else []
        notes += [f"CAUTION {caution}" for caution in self.cautions]
        return text_table(title, headings, lines, notes)
