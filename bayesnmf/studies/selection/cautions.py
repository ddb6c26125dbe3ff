"""Reasons to doubt the rank that a selection prefers; each begins with a short form, up to the first colon."""

from __future__ import annotations

import math
from typing import Any

from bayesnmf.studies.selection.record import COMES_BACK, SelectionRecord
from bayesnmf.text import p_value

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
