"""Models and ranks, ranked by a criterion, and how they are printed."""

from __future__ import annotations

from typing import Any

from bayesnmf.cards import Card, Shown
from bayesnmf.noise.poisson import POISSON
from bayesnmf.noise.words import NOISES
from bayesnmf.studies.selection.by_evidence import Evidence
from bayesnmf.studies.selection.by_stability import Stability
from bayesnmf.studies.selection.criterion import CRITERIA, Criterion, Line
from bayesnmf.studies.selection.held_out import HeldOut
from bayesnmf.studies.selection.masked import Masked
from bayesnmf.studies.selection.record import Candidate, SelectionRecord, frugal_of, word_of
from bayesnmf.text import p_value

BUILT_IN = Masked, HeldOut, Evidence, Stability  # whose definition makes them known


class Selection(Shown, SelectionRecord):
    __doc__ = SelectionRecord.__doc__

    @property
    def by(self) -> type[Criterion]:
        """The criterion, as a class."""
        return CRITERIA[self.criterion]

    @property
    def one_standard_error(self) -> Candidate | None:
        """The smallest rank with the best noise whose score is within one standard error of the best, and its model.

        The standard error is that of the differences from the best, paired by row, so the variation that all scores
        share does not enter. With a single row, and with the other criteria, there is none, and the best is returned.
        """
        if self.best is None or not self.by.scored:
            return self.best
        table: Any = self.table if self.table.index.nlevels == 2 else self.table.xs(word_of(self.noise), level="noise")
        return frugal_of(table, "mean", "difference", "difference_se")

    @property
    def cautions(self) -> list[str]:
        """Reasons to doubt the best candidate, or why there is none."""
        if self.best is None:
            return [self.by.why_none(self)]
        return [*_edge(self), *_unconverged(self), *_misfit(self), *self.by.cautions(self)]

    def card(self) -> Card:
        """Return what is shown of it."""
        title, headings, lines = headings_and_lines(self)
        notes = list(self.by.notes)
        if self.by.scored and self.table["se"].isna().all():
            notes = ["a single row has no standard error"]
        notes += ["interrupted: other candidates or the checks are missing"] if self.interrupted else []
        notes += [f"CAUTION {caution}" for caution in self.cautions]
        calls = ["bayesnmf.plots.selection(found)"]
        if self.best is not None:
            word = word_of(self.noise)
            given = repr(word) if word in NOISES else "found.noise"
            noise = "" if self.noise == POISSON else f", noise={given}"
            calls.append(f"bayesnmf.fit(counts, {self.best.model!r}, rank={self.best.rank}{noise})")
        return Card(title, headings, lines, notes, calls)


def headings_and_lines(found: Selection) -> tuple[str, Line, list[Line]]:
    """Return title, headings and lines of the table."""
    lines = []
    for place, each in zip(found.table.index, found.table.itertuples(), strict=True):
        lines.append([*map(str, place), *found.by.line(found, each), ", ".join(_marks(found, place))])
    headings = [*map(str, found.table.index.names), *found.by.headings(found), ""]
    return found.by.headline(found), headings, lines


def _marks(found: Selection, here: Any) -> list[str]:
    if found.best is None:
        return []
    best, frugal = found.place(found.best), found.one_standard_error
    marks = ["best"] if here == best else []
    if found.by.scored:
        marks += ["one se"] if frugal and here == found.place(frugal) != best else []
        marks += ["one se, rows"] if here == found.one_standard_error_for_rows else []
    return marks


def _edge(found: Selection) -> list[str]:
    tried, best = found.table.index.get_level_values("rank"), _best(found)
    if tried.min() == tried.max():
        return []
    if best == tried.max():
        more = "; if the scores go on rising, `predictive_checks` shows what the model misses"
        more = "" if found.by.largest_wins else more
        return [f"the best rank, {best}, is the largest that was tried: try larger ones{more}"]
    if best == tried.min() > 1 and not found.by.largest_wins:
        return [f"the best rank, {best}, is the smallest that was tried: try smaller ones"]
    return []


def _unconverged(found: Selection) -> list[str]:
    if "converged" not in found.table:
        return []
    line: Any = found.table.loc[found.place(found.best)]
    failed = int(line["fits"] - line["converged"])
    if not failed:
        return []
    return [f"{failed} of {int(line['fits'])} fits of the best candidate did not converge: raise max_iter in options"]


def _misfit(found: Selection) -> list[str]:
    if found.checks is None or not found.checks.failed:
        return []
    failed = f"{', '.join(found.checks.failed)}; p-value {p_value(found.checks.p_value)}"
    return [
        f"the model is misfitted at rank {_best(found)} ({failed}): either "
        "components are missing, or the counts of single entries vary more than the model allows. In the second case, "
        "further components absorb this variation, and larger ranks may win without being real; that the misfit "
        "disappears at a larger rank is then only weak evidence for this rank"
    ]


def _best(found: Selection) -> int:
    best: Any = found.best
    return int(best.rank)
