"""What the page of a fit says first: what was found, what failed, what may be trusted; and the same as tiles."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bayesnmf.inference.status import BROKEN, INTERRUPTED
from bayesnmf.options import METHODS
from bayesnmf.pages.of_evidence import rank_in_words, unstable
from bayesnmf.pages.parts import Tile
from bayesnmf.pages.reading import Read
from bayesnmf.pages.words import listed
from bayesnmf.priors.partly_known import PartlyKnown
from bayesnmf.results.cautions import idle_components, mixing_of
from bayesnmf.results.intervals import cautions_of_intervals, kind_of_intervals
from bayesnmf.results.mixing import ESS_LIMIT, R_HAT_LIMIT

NUMBERS = ["No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten", "Eleven", "Twelve"]
LARGE = {
    "total": "the sum of all counts is larger than the model expects",
    "share of zeros": "more entries are zero than it expects",
    "largest count": "the largest count is larger than it expects",
    "dispersion": "entries differ from each other more than it expects",
    "misfit": "counts vary more around their expected values than it says",
}
SMALL = {
    "total": "the sum of all counts is smaller than the model expects",
    "share of zeros": "fewer entries are zero than it expects",
}
TRUST = {
    "point": "Take shares and leading features as best guesses: a point estimate has no intervals, so nothing says how "
    "sure they are.",
    "mean field": "Take shares and leading features as estimates, and all intervals as too narrow: variational "
    "inference leaves out that one component can make up for another.",
    "sampled": "Intervals may be taken as 90 % intervals of this one factorisation; others may explain the counts "
    "about as well.",
    "linear response": "Intervals were corrected and are about as wide as they should be, often still a little too "
    "narrow.",
    "bootstrap": "Intervals say how much the estimates vary from one set of counts to the next, not where the truth "
    "is.",
}
TRUST["draws"] = TRUST["sampled"]
KINDS = {
    "point": ("plain", "none", "a point estimate"),
    "mean field": ("doubt", "too narrow", "mean field, by variational inference"),
    "sampled": ("good", "sampled", "by a short chain from the fit"),
    "linear response": ("good", "corrected", "mean field with linear response"),
    "bootstrap": ("good", "bootstrap", "spread of refitted counts"),
    "draws": ("good", "sampled", "draws of the posterior"),
}
UNUSABLE = "cannot be used"
AT_REST = "the result no longer changes; this says nothing about whether the model suits the counts"
PROVISIONAL = "Take the intervals as provisional: chains that do not agree have not seen the whole posterior."
FEW_DRAWS = "Take the intervals as provisional: they come from few independent draws."
ONLY_OF_MODEL = "Since checks failed, intervals hold for the model at best; the true uncertainty is larger."


class State(NamedTuple):
    """How a fit ended: the tone of a tile, a word, more of it, and a sentence on what failed; "" if nothing did."""

    tone: str
    word: str
    more: str
    failure: str


def in_short(read: Read) -> list[tuple[str, str]]:
    """Return what was found, what failed and what may be trusted, each with its heading."""
    return [("Found", _found(read)), ("Failed", _failed(read)), ("To be trusted", _trusted(read))]


def tiles(read: Read) -> list[Tile]:
    """Return status, checks, intervals and the size of the counts."""
    counts, (n, m), state = read.fit.counts, read.fit.counts.shape, state_of(read)
    size = f"{counts.total:,.12g} counts; {1 - counts.nnz / (n * m):.1%} of the entries are zero"
    return [
        Tile("Status", *state[:3]),
        Tile("Checks of the model", *_checked(read)),
        Tile("Intervals", *_intervals(read)),
        Tile("Samples × features", "plain", f"{n:,} × {m:,}", size),
    ]


def number_in_words(number: int) -> str:
    """Return a number at the beginning of a sentence."""
    return NUMBERS[number] if number < len(NUMBERS) else f"{number:,}"


def state_of(read: Read) -> State:
    """Return how the fit ended: for chains whether they agree, else whether it came to rest."""
    fit, status = read.fit, read.fit.status
    if status.reason == INTERRUPTED:
        return State("bad", "interrupted", "before it came to rest", "The fit was interrupted before it came to rest.")
    if status.reason in BROKEN:
        return State("bad", UNUSABLE, status.reason, f"The fit cannot be used: {status.reason}.")
    found = {} if METHODS[fit.method].resampled else mixing_of(fit)
    if found:
        r_hat, ess = found["max_r_hat"], found["min_ess"]
        told = f"R-hat at most {r_hat:.2f}, ESS at least {ess:.0f}"
        if not r_hat <= R_HAT_LIMIT:
            return State("bad", "chains do not agree yet", told, f"The chains do not agree yet ({told}).")
        if not ess >= ESS_LIMIT:
            return State("doubt", "too few draws", told, f"There are too few independent draws ({told}).")
        if status.converged:
            return State("good", "chains agree", told, "")
    if status.converged:
        return State("good", "converged", AT_REST, "")
    return State("doubt", "not converged", status.reason, f"The fit had not come to rest ({status.reason}).")


def _found(read: Read) -> str:
    fit, (n, m) = read.fit, read.fit.counts.shape
    prior, titles, sizes = fit.priors.components, fit.component_titles, read.sizes
    given = len(prior.known) if isinstance(prior, PartlyKnown) else 0
    told = f"{number_in_words(fit.rank)} component{'s describe' if fit.rank > 1 else ' describes'} {n:,} samples"
    told += f", by counts of {m:,} features"
    told += "; all were given" if given == fit.rank else f"; {given} of them were given" if given else ""
    if fit.rank > 1:
        first, last = int(np.argmax(sizes)), int(np.argmin(sizes))
        told += (
            f". {titles[first][:1].upper()}{titles[first][1:]} is the largest, with {_percent(sizes[first])} of all "
        )
        told += f"expected counts, and {titles[last]} the smallest, with {_percent(sizes[last])}"
    told += f"; {names}" if (names := _known_in_words(read)) else ""
    return f"{told}. {rank_in_words(read)}"


def _known_in_words(read: Read) -> str:
    known = read.given.known
    if known is None:
        return ""
    return f"{len(known.table)} match the catalogue ({listed(map(str, known.table['reference']))})"


def _percent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %") if share >= 0.01 else f"{share:.1%}".replace("%", " %")


def _failed(read: Read) -> str:
    sentences = [told] if (told := state_of(read).failure) else []
    if len(idle := idle_components(read.fit)):
        carry = "component carries nothing of its own" if len(idle) == 1 else "components carry nothing of their own"
        sentences.append(f"{number_in_words(len(idle))} {carry}.")
    found = read.checks
    if found is None:
        first = sentences or ["Nothing of what was looked at."]
        return " ".join([*first, "The model was not checked against the counts."])
    number = len(found.table)
    if np.isnan(found.p_value):
        sentences.append("The model could not be checked: too few replicates.")
    elif found.failed:
        larger = found.table["observed"] > found.table["mean"]
        what = [(LARGE if larger[name] or name not in SMALL else SMALL)[name] for name in found.failed]
        sentences.append(
            f"{number_in_words(len(found.failed))} of {number} checks of the model failed: {listed(what)}."
        )
    else:
        rest = f"none of {number} checks of the model failed, so simulated counts look like those observed."
        sentences.append(rest[:1].upper() + rest[1:] if sentences else f"Nothing: the fit came to rest, and {rest}")
    return " ".join(sentences)


def _trusted(read: Read) -> str:
    state, kind = state_of(read), kind_of_intervals(read.intervals)
    if state.word == UNUSABLE:
        return "Nothing on this page: the fit cannot be used."
    told = [TRUST[kind]]
    if kind == "draws" and state.tone != "good":
        told = [PROVISIONAL if state.tone == "bad" else FEW_DRAWS]
    elif kind in ("sampled", "bootstrap") and cautions_of_intervals(read.intervals):
        told = ["The intervals come from a chain or refits that had not come to rest; take them as provisional."]
    elif state.tone != "good":
        told = ["The numbers may still change, so take all of them as provisional."]
    if read.checks is not None and read.checks.failed and kind != "point":
        told.append(ONLY_OF_MODEL)
    elif read.checks is not None and read.checks.failed:
        told.append("Since checks failed, other components than these may be behind the counts.")
    if names := unstable(read):
        lack = "it" if len(names) == 1 else "them"
        told.append(f"Do not interpret {listed(names)}: fits from other starts often lack {lack}.")
    return " ".join(told)


def _checked(read: Read) -> tuple[str, str, str]:
    """Return tone, word and more of the tile of checks."""
    found = read.checks
    if found is None:
        return "plain", "not made", "the section on checks says why"
    if np.isnan(found.p_value):
        return "plain", "not possible", "too few replicates"
    number, failed = len(found.table), found.failed
    told = f"against {found.refits} simulated sets of counts"
    if not failed:
        return "good", f"none of {number} failed", told
    return "bad", f"{len(failed)} of {number} failed", f"{listed(failed)}; {told}"


def _intervals(read: Read) -> tuple[str, str, str]:
    """Return tone, word and more of the tile of intervals."""
    kind = kind_of_intervals(read.intervals)
    tone, word, more = KINDS[kind]
    doubtful = kind != "linear response" and cautions_of_intervals(read.intervals)
    if tone == "good" and (state_of(read).tone != "good" or doubtful):
        return "doubt", "provisional", more
    return tone, word, more
