"""What other fits say: a comparison of ranks, and fits from other starts, in words and as a section."""

from __future__ import annotations

from typing import Any

from bayesnmf import plots
from bayesnmf.inference import alignment
from bayesnmf.pages.parts import Number, Section, Table, as_number, drawn
from bayesnmf.pages.reading import Read
from bayesnmf.pages.words import capital, counted, listed, say
from bayesnmf.studies.selection.criterion import word_of
from bayesnmf.studies.selection.selecting import Selection, headings_and_lines
from bayesnmf.studies.stability.modes import Modes

COMES_BACK = 0.8  # share of the runs in which a component should come back


def rank_in_words(read: Read) -> str:
    """Return what is known of the number of components."""
    found, rank = read.given.selection, read.fit.rank
    if found is None:
        return say("ranks.untested")
    if found.best is None:
        return say("ranks.undecided")
    best, tried = found.best, found.table.index.unique("rank").tolist()
    if len(tried) == 1:
        return say("ranks.one", components=counted(best.rank, "component"))
    told = f"{found.by.prefers} with {counted(best.rank, 'component')}, of {listed(map(str, sorted(tried)))} tried"
    if found.table.index.unique("model").size > 1:
        told += f", under the model {best.model}"
    if found.table.index.nlevels > 2:
        told += f", with {word_of(found.noise)} noise"
    here = "" if best.rank == rank else f" This fit has {rank}{'' if rank in tried else ', which was not tried'}."
    return f"{told}.{here}{_other_fit(read, found)}"


def _other_fit(read: Read, found: Selection) -> str:
    """Return the model and the noise of this fit, where those of the best candidate are others."""
    fit, best = read.fit, found.best
    model = "" if best is None or best.model == fit.model else f"is of the model {fit.model}"
    noise = "" if found.noise.word == fit.noise.word else f"has {fit.noise.word} noise"
    return f" This fit {' and '.join(filter(None, (model, noise)))}." if model or noise else ""


def unstable(read: Read) -> list[str]:
    """Return the components that come back in less than 80 % of the fits from other starts."""
    if read.given.modes is None or (table := _recurrence(read, read.given.modes)) is None:
        return []
    rows = zip(read.fit.component_titles, table, strict=True)
    return [title for title, row in rows if row["recurrence"] < COMES_BACK]


def is_alone(read: Read) -> bool:
    """Return whether fits from other starts were made, and none of them ended in this factorisation."""
    return read.given.modes is not None and _recurrence(read, read.given.modes) is None


def evidence(read: Read) -> list[Section]:
    """Return sections of the comparison of ranks and of the fits from other starts, if they are given."""
    found, modes = read.given.selection, read.given.modes
    return [*([] if found is None else [_ranks(read, found)]), *([] if modes is None else [_stability(read, modes)])]


def _ranks(read: Read, found: Selection) -> Section:
    title, headings, lines = headings_and_lines(found)
    figure = drawn(lambda: plots.selection(found), say("ranks.picture"))
    text = [rank_in_words(read), f"{capital(title)}."]
    tables = [Table(headings, [[model, *map(as_number, rest)] for model, *rest in lines])]
    return Section("How many components?", text, cautions=found.cautions, figures=[figure], tables=tables)


def _stability(read: Read, modes: Modes) -> Section:
    table, number = _recurrence(read, modes), len(modes.runs)
    figure = drawn(lambda: plots.modes(modes), say("starts.picture"))
    if table is None:
        text = [say("starts.none", modes=len(modes.table), number=number)]
        return Section("Do components come back?", text, figures=[figure])
    rows = []
    for title, row in zip(read.fit.component_titles, table, strict=True):
        cosines = (Number(f"{row[name]:.2f}", row[name]) for name in ("closeness", "least"))
        rows.append([title, f"{row['runs']:.0f} of {number}", *cosines])
    often = [title for title in read.fit.component_titles if title not in unstable(read)]
    text = [say("starts.back", share=COMES_BACK, number=number, names=listed(often) or "none")]
    tables = [Table(["component", "comes back in fits", "mean cosine", "least cosine"], rows)]
    return Section("Do components come back?", text, cautions=modes.cautions, figures=[figure], tables=tables)


def _recurrence(read: Read, modes: Modes) -> list[dict[str, Any]] | None:
    """Return how often each component of the fit comes back; None if the fit is none of the modes."""
    mode = modes.assign(read.fit)
    if mode is None:
        return None
    order = alignment.match_fits(modes.fits[mode], read.fit)
    records: Any = modes.components.loc[mode]
    return records.iloc[order].to_dict("records")
