"""Models and ranks, ranked by a criterion, and how they are printed."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesnmf.cards import Card, Shown
from bayesnmf.inference.tempering.combining import WIDEST_SPREAD
from bayesnmf.noise.poisson import POISSON
from bayesnmf.noise.words import NOISES
from bayesnmf.studies.selection.cautions import cautions_of
from bayesnmf.studies.selection.record import CLOSE, COMES_BACK, SCORED, SelectionRecord, word_of
from bayesnmf.text import plus_minus

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
        "χ²: of the held-out entries, over their number; 1 if they vary as the noise says around exact predictions",
    ],
    "evidence": [
        "log p(X) in nats; probability: of each candidate, if all are equally probable before the counts are seen",
        f"unknown: the logs of the runs' estimates have a standard deviation above {WIDEST_SPREAD:g} nat, or are below "
        "a variational bound; the number is then a lower limit",
    ],
    "stability": [
        "each of them is fitted by itself; come back: share of them in which the least recurrent component is found "
        f"again: what sets it apart from the overall frequencies, with a cosine above {CLOSE}",
        "closeness: mean cosine of the component that is matched worst; empty: number of components without counts",
        "best: the largest rank at which all components have counts and come back in at least "
        f"{COMES_BACK:.0%} of them; recurrent: number of components that do",
    ],
}


class Selection(Shown, SelectionRecord):
    __doc__ = SelectionRecord.__doc__

    @property
    def cautions(self) -> list[str]:
        """Reasons to doubt the best candidate, or why there is none."""
        return cautions_of(self)

    def card(self) -> Card:
        """Return what is shown of it."""
        title, headings, lines = headings_and_lines(self)
        notes = list(NOTES[self.criterion])
        if self.criterion in SCORED and self.table["se"].isna().all():
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


Line = list[str]


def headings_and_lines(found: SelectionRecord) -> tuple[str, Line, list[Line]]:
    """Return title, headings and lines of the table."""
    make = {"heldout": _held_out, "masked": _masked, "evidence": _evidence, "stability": _stability}[found.criterion]
    title, headings, told = make(found)
    lines = []
    for number, place in enumerate(found.table.index):
        lines.append([*map(str, place), *told[number], ", ".join(_marks(found, place))])
    return title, [*map(str, found.table.index.names), *headings, ""], lines


def _marks(found: SelectionRecord, here: tuple[Any, ...]) -> list[str]:
    if found.best is None:
        return []
    best, frugal = found.place(found.best), found.one_standard_error
    marks = ["best"] if here == best else []
    if found.criterion in ("heldout", "masked"):
        marks += ["one se"] if frugal and here == found.place(frugal) != best else []
        marks += ["one se, rows"] if here == found.one_standard_error_for_rows else []
    return marks


def _held_out(found: SelectionRecord) -> tuple[str, Line, list[Line]]:
    splits, table, told = int(found.table["fits"].iloc[0]), found.table, []
    rows = found.best_for_rows is not None
    each: Any
    for each in table.itertuples():
        line = [plus_minus(each.mean, each.se)]
        line += [plus_minus(each.difference, each.difference_se) if each.difference else ""]
        if rows:
            line += [plus_minus(each.rows_difference, each.rows_difference_se) if each.rows_difference else "0"]
        told.append([*line, f"{each.converged} of {each.fits}"])
    title = f"by {found.method}, trained on {found.keep:.0%} of the counts, {splits} split{'s' if splits > 1 else ''}"
    headings = ["held-out nats per count", "minus the best"]
    headings += ["withheld rows, minus their best"] if rows else []
    return title, [*headings, "converged"], told


def _masked(found: SelectionRecord) -> tuple[str, Line, list[Line]]:
    splits, told = int(found.table["fits"].iloc[0]), []
    each: Any
    for each in found.table.itertuples():
        line = [plus_minus(each.mean, each.se)]
        line += [plus_minus(each.difference, each.difference_se) if each.difference else ""]
        told.append([*line, f"{each.chi_squared:.2f}", f"{each.converged} of {each.fits}"])
    title = f"by {found.method}{_with_noise(found)}, {splits} mask{'s' if splits > 1 else ''} of entries"
    return title, ["nats per held-out count", "minus the best", "χ²", "converged"], told


def _evidence(found: SelectionRecord) -> tuple[str, Line, list[Line]]:
    told = []
    each: Any
    for each in found.table.itertuples():
        value = plus_minus(each.log_evidence, each.se, 2) if each.known else f"unknown, at least {each.at_least:,.1f}"
        probability = f"{each.probability:.3f}" if np.isfinite(each.probability) else ""
        told.append([value, f"{each.spread:.2f}", probability])
    return (
        f"by the evidence, {len(found.scores)} runs by {found.method}",
        ["log p(X)", "sd of the runs", "probability"],
        told,
    )


def _stability(found: SelectionRecord) -> tuple[str, Line, list[Line]]:
    told, halves = [], len(found.scores)
    each: Any
    for each in found.table.itertuples():
        told.append(
            [f"{each.least:.0%}", str(each.recurrent), f"{each.closeness:.3f}", str(each.empty),
             f"{each.converged} of {each.fits}"]
        )  # fmt: skip
    headings = ["come back", "recurrent", "closeness", "empty", "converged"]
    return f"by {found.method}{_with_noise(found)}, {halves} {found.resampled}", headings, told


def _with_noise(found: SelectionRecord) -> str:
    """Return the one noise of all fits, if it is not Poisson noise."""
    return "" if found.noise == POISSON or "noise" in found.table.index.names else f" with noise {word_of(found.noise)}"
