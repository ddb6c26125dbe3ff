"""Models and ranks, ranked by a criterion, and how they are printed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bayesnmf.cards import Card, Shown
from bayesnmf.inference.tempering.combining import WIDEST_SPREAD
from bayesnmf.noise.poisson import POISSON
from bayesnmf.noise.words import NOISES
from bayesnmf.studies.selection.record import CLOSE, COMES_BACK, SCORED, SelectionRecord, word_of
from bayesnmf.text import p_value, plus_minus

CLEAR = 2.0  # standard errors by which one rank predicts other rows worse than another beyond chance


def cautions_of(found: SelectionRecord) -> list[str]:
    """Return why there is no best candidate, or what speaks against it."""
    if found.best is None:
        return [_why_none(found)]
    return [*_edge(found), *_unconverged(found), *_misfit(found), *_other_rows(found), *_unstable_between(found)]


def _why_none(found: SelectionRecord) -> str:
    if found.criterion in ("heldout", "masked"):
        return "no candidate is best: no count was held out; lower keep, or raise splits"
    if found.criterion == "stability":
        return (
            f"no rank is stable: at none of those tried do all components have counts and come back in at least "
            f"{COMES_BACK:.0%} of the {found.resampled}; try smaller ranks, or criterion='masked'"
        )
    unknown = found.table.index[found.table["could_win"]]
    listed = ", ".join(f"{model} {rank}" for model, rank in unknown)
    return (
        f"no candidate is best: the evidence of {listed} is unknown and could be the largest; raise refinement or "
        "particles in options=bayesnmf.SMC(...), or take fewer rows"
    )


def _edge(found: SelectionRecord) -> list[str]:
    tried, best = found.table.index.get_level_values("rank"), _best(found)
    if tried.min() == tried.max():
        return []
    if best == tried.max():
        more = "; if the scores go on rising, `predictive_checks` shows what the model misses"
        more = "" if found.criterion == "stability" else more
        return [f"the best rank, {best}, is the largest that was tried: try larger ones{more}"]
    if best == tried.min() > 1 and found.criterion != "stability":  # stability asks for the largest that qualifies
        return [f"the best rank, {best}, is the smallest that was tried: try smaller ones"]
    return []


def _unconverged(found: SelectionRecord) -> list[str]:
    if "converged" not in found.table:
        return []
    line: Any = found.table.loc[found.place(found.best)]
    failed = int(line["fits"] - line["converged"])
    if not failed:
        return []
    return [f"{failed} of {int(line['fits'])} fits of the best candidate did not converge: raise max_iter in options"]


def _misfit(found: SelectionRecord) -> list[str]:
    if found.checks is None or not found.checks.failed:
        return []
    failed = f"{', '.join(found.checks.failed)}; p-value {p_value(found.checks.p_value)}"
    return [
        f"the model is misfitted at rank {_best(found)} ({failed}): either "
        "components are missing, or the counts of single entries vary more than the model allows. In the second case, "
        "further components absorb this variation, and larger ranks may win without being real; that the misfit "
        "disappears at a larger rank is then only weak evidence for this rank"
    ]


def _other_rows(found: SelectionRecord) -> list[str]:
    rows, best = found.best_for_rows, _best(found)
    if found.criterion != "heldout" or rows is None or rows.rank >= best:
        return []
    line: Any = found.table.loc[found.place(found.best)]
    gap, error = float(line["rows_difference"]), float(line["rows_difference_se"])
    if not -gap > CLEAR * error:
        return []
    return [
        f"rank {best} predicts other rows worse than rank {rows.rank}: by {-gap:.4f} ± {error:.4f} nats for each "
        "count of the hidden features of withheld rows; some components may describe single entries, whose held-out "
        "counts share an excess with their training counts"
    ]


def _unstable_between(found: SelectionRecord) -> list[str]:
    if found.criterion != "stability":
        return []
    best: Any = found.best
    table, halves = found.table.loc[best.model], len(found.scores)
    told = []
    failed = table.index[(table.index < best.rank) & ((table["empty"] > 0) | (table["least"] < COMES_BACK))]
    if len(failed):
        told.append(
            f"smaller ranks are not stable ({_listed(failed)}): fewer components may each stand for several, and which "
            "ones they join depends on the rows; compare with another criterion"
        )
    error = math.sqrt(COMES_BACK * (1 - COMES_BACK) / halves)
    near = (table["empty"] == 0) & ((table["least"] - COMES_BACK).abs() <= error)
    close = table.index[near & (table.index >= best.rank)]
    if len(close):
        told.append(
            f"another seed may name another rank: the shares of {halves} {found.resampled} in which rank "
            f"{_listed(close)} comes back are within one standard error ({error:.0%}) of {COMES_BACK:.0%}; raise halves"
        )
    return told


def _listed(ranks: Any) -> str:
    return ", ".join(str(rank) for rank in ranks)


def _best(found: SelectionRecord) -> int:
    best: Any = found.best
    return int(best.rank)


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
