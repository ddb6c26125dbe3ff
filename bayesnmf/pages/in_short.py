"""What the page of a fit says first: what was found, what failed, what may be trusted; and the same as tiles."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bayesnmf.inference.status import BROKEN, INTERRUPTED
from bayesnmf.options import METHODS
from bayesnmf.pages.of_evidence import is_alone, rank_in_words, unstable
from bayesnmf.pages.parts import Tile
from bayesnmf.pages.reading import Read
from bayesnmf.pages.words import counted, listed
from bayesnmf.priors.partly_known import PartlyKnown
from bayesnmf.results.cautions import (
    caution_of_rounding,
    faint_components,
    faults_of_draws,
    idle_components,
    little_used_components,
    mixing_of,
)
from bayesnmf.results.estimates import Intervals
from bayesnmf.results.intervals import (
    MANY,
    SOME,
    cautions_of_intervals,
    in_percent,
    kind_of_intervals,
    share_unmixed,
)
from bayesnmf.results.mixing import ESS_LIMIT, R_HAT_LIMIT
from bayesnmf.results.short_chain import MIXED

MATCHED = 0.9  # cosine from which on a component is said to match one of a catalogue
NUMBERS = ["No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten", "Eleven", "Twelve"]
LARGE = {
    "total": "the sum of all counts is larger than the model expects",
    "share of zeros": "more entries are zero than the model expects",
    "largest count": "the largest count is larger than the model expects",
    "dispersion": "entries differ from each other more than the model expects",
    "misfit": "counts vary more around their expected values than the model says",
}
SMALL = {
    "total": "the sum of all counts is smaller than the model expects",
    "share of zeros": "fewer entries are zero than the model expects",
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
OF_ONE = "Intervals are those of this one factorisation; others may explain the counts about as well."
UNUSABLE = "cannot be used"
NOTHING = "Nothing on this page: the fit cannot be used."
UNSETTLED = "The numbers may still change, so take all of them as provisional."
UNSETTLED_REFITS = "The intervals come from refits of which some had not come to rest; take them as provisional."
FEW_UNMIXED = (
    "Intervals may be taken as 90 % intervals of this one factorisation, but for {}, where they are too narrow."
)
SOME_UNMIXED = "Take the intervals as provisional: their chain had not come to rest in {} (R-hat up to {:.2f})."
UNMIXED = "Do not rely on any interval: their chain had not come to rest, in {} (R-hat up to {:.2f})."
AT_REST = "the result no longer changes; this says nothing about whether the model suits the counts"
PROVISIONAL_THERE = (
    "Take the intervals of {} as provisional, where chains do not agree; the others may be taken as 90 %."
)
PROVISIONAL = "Take the intervals as provisional: chains that do not agree have not seen the whole posterior."
FEW_DRAWS = "Take the intervals as provisional: they come from few independent draws."
IN_DOUBT = "Take the intervals as provisional: some draws are in doubt, as said above."
ONLY_OF_MODEL = "intervals hold for the model at best; the true uncertainty is larger."
ALONE = "Do not interpret single components: no fit from another start ended in this factorisation."
UNCHECKED = "The model was not checked, so that intervals hold only if counts vary as its noise says."


class State(NamedTuple):
    """How a fit ended: the tone of a tile, a word, and more of it.

    If something failed, a sentence on it, and on what may be trusted; else "".
    """

    tone: str
    word: str
    more: str
    failure: str = ""
    trust: str = ""


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
        told = "The fit was interrupted before it came to rest."
        return State("bad", "interrupted", "before it came to rest", told, UNSETTLED)
    if status.reason in BROKEN:
        return State("bad", UNUSABLE, status.reason, f"The fit cannot be used: {status.reason}.", NOTHING)
    drawn = fit.estimate.kind == "draws"
    agreed = State("good", "converged", status.reason if drawn else AT_REST)
    if (found := mixing_of(fit)) and not METHODS[fit.method].resampled:
        agreed = _state_of_chains(found["max_r_hat"], found["min_ess"], found.get("share_above", 1.0))
    if agreed.tone != "good":
        return agreed
    if drawn and (faults := [fault for fault, _ in faults_of_draws(fit)]):
        return State("doubt", "draws in doubt", "; ".join(faults), _sentences(faults), IN_DOUBT)
    if status.converged:
        return agreed
    return State("doubt", "not converged", status.reason, f"The fit had not come to rest ({status.reason}).", UNSETTLED)


def _state_of_chains(r_hat: float, ess: float, share: float) -> State:
    if not np.isfinite(r_hat):
        told = "too few draws to compute R-hat, or chains that do not move"
        failure = "Nothing says whether the chains agree: there are too few draws, or they do not move."
        return State("bad", "agreement unknown", told, failure, FEW_DRAWS)
    told = f"R-hat at most {r_hat:.2f}, ESS at least {ess:.0f}"
    if not r_hat <= R_HAT_LIMIT and 0 < share < SOME:
        where = f"{in_percent(share)} of the components and loadings"
        failure = f"The chains agree but for {where} ({told})."
        return State(
            "doubt", f"chains agree but for {in_percent(share)}", told, failure, PROVISIONAL_THERE.format(where)
        )
    if not r_hat <= R_HAT_LIMIT:
        told += f", above {R_HAT_LIMIT} in {in_percent(share)} of the components and loadings" if share else ""
        return State("bad", "chains do not agree yet", told, f"The chains do not agree yet ({told}).", PROVISIONAL)
    if not ess >= ESS_LIMIT:
        return State("doubt", "too few draws", told, f"There are too few independent draws ({told}).", FEW_DRAWS)
    return State("good", "chains agree", told)


def _found(read: Read) -> str:
    fit, (n, m) = read.fit, read.fit.counts.shape
    prior = fit.priors.components
    given = len(prior.known) if isinstance(prior, PartlyKnown) else 0
    told = f"{number_in_words(fit.rank)} component{'s describe' if fit.rank > 1 else ' describes'} "
    told += f"{counted(n, 'sample')}, by counts of {counted(m, 'feature')}"
    if fit.is_projected:
        told += "; components were held from another fit, so that only the loadings are of these counts"
    else:
        told += "; all were given" if given == fit.rank else f"; {given} of them were given" if given else ""
    told += _sizes_in_words(read) if fit.rank > 1 else ""
    told += f"; {names}" if (names := _known_in_words(read)) else ""
    return f"{told}. {rank_in_words(read)}"


def _sizes_in_words(read: Read) -> str:
    if not read.fit.counts.total:
        return ". All counts are 0, so that nothing tells the components apart"
    titles, sizes = read.fit.component_titles, read.sizes
    first, last = int(np.argmax(sizes)), int(np.argmin(sizes))
    if _percent(sizes[first]) == _percent(sizes[last]):
        return f". Each has {_percent(sizes[first])} of all expected counts"
    told = f". {_capital(titles[first])} is the largest, with {_percent(sizes[first])} of all expected counts, and "
    return f"{told}{titles[last]} the smallest, with {_percent(sizes[last])}"


def _known_in_words(read: Read) -> str:
    known = read.given.known
    if known is None:
        return ""
    names = known.table["reference"][known.table["cosine"] >= MATCHED].map(str).tolist()
    number = len(names) or "none"
    told = f"{number} match{'' if len(names) > 1 else 'es'} the catalogue with a cosine of at least {MATCHED}"
    return f"{told} ({listed(names)})" if names else told


def _percent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %") if share >= 0.01 else f"{share:.1%}".replace("%", " %")


def _failed(read: Read) -> str:
    fit, sentences = read.fit, [told] if (told := state_of(read).failure) else []
    if len(idle := idle_components(fit)):
        carry = "component carries nothing of its own" if len(idle) == 1 else "components carry nothing of their own"
        sentences.append(f"{number_in_words(len(idle))} {carry}.")
    faint = "" if len(idle) or fit.status.reason in BROKEN else faint_components(fit)
    little = "" if fit.is_projected or len(idle) or fit.status.reason in BROKEN else little_used_components(fit)
    sentences += [_sentences([told]) for told in (faint, little, caution_of_rounding(fit), read.excess) if told]
    found = read.checks
    if found is None:
        first = sentences or ["Nothing of what was looked at."]
        return " ".join([*first, "The model was not checked against simulated counts."])
    number = len(found.table)
    if np.isnan(found.p_value):
        sentences.append("The model could not be checked: too few replicates.")
    elif found.failed:
        what = [_difference(name, *found.table.loc[name, ["observed", "mean"]]) for name in found.failed]
        sentences.append(
            f"{number_in_words(len(found.failed))} of {number} checks of the model failed: {listed(what)}."
        )
    else:
        rest = f"none of {number} checks of the model failed, so simulated counts look like those observed."
        sentences.append(_capital(rest) if sentences else f"Nothing: the fit came to rest, and {rest}")
    return " ".join(sentences)


def _difference(name: str, observed: float, expected: float) -> str:
    """Return how a statistic differs from what the model expects, and by how much: a small difference can be sure."""
    words = (LARGE if observed > expected or name not in SMALL else SMALL)[name]
    if not expected:
        return words
    percent = 100 * abs(observed / expected - 1)
    return f"{words} (by {percent:.{0 if percent >= 10 else 1 if percent >= 1 else 2}f} %)"


def _sentences(told: list[str]) -> str:
    return " ".join(f"{_capital(each)}." for each in told)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _trusted(read: Read) -> str:
    state, kind, misfit = state_of(read), kind_of_intervals(read.intervals), _misfit(read)
    if state.word == UNUSABLE:
        return NOTHING
    told = [OF_ONE if misfit and kind in ("sampled", "draws") else TRUST[kind]]
    wrong = _unmixed(read)
    if wrong is not None and (wrong.share_above >= SOME or not (misfit or state.trust)):
        told = [_trust_of(wrong)]
    elif kind == "bootstrap" and cautions_of_intervals(read.intervals):
        told = [UNSETTLED_REFITS]
    elif state.trust:
        told = [state.trust]
    if misfit and kind == "point":
        told.append(f"Since {misfit}, other components than these may be behind the counts.")
    elif misfit:
        told.append(f"Since {misfit}, {ONLY_OF_MODEL}")
    elif not _is_checked(read) and kind != "point":
        told.append(UNCHECKED)
    if names := unstable(read):
        lack = "it" if len(names) == 1 else "them"
        told.append(f"Do not interpret {listed(names)}: fits from other starts often lack {lack}.")
    if is_alone(read):
        told.append(ALONE)
    return " ".join(told)


def _unmixed(read: Read) -> Intervals | None:
    """Return the draws that intervals are read from if their chain has not mixed in some entries."""
    found = read.intervals.intervals
    told = kind_of_intervals(read.intervals) == "sampled" and found is not None and found.share_above
    return found if told else None


def _trust_of(found: Intervals) -> str:
    """Return what may be trusted of the intervals of a chain that has not mixed in some entries."""
    told = FEW_UNMIXED if found.share_above < SOME else SOME_UNMIXED if found.share_above < MANY else UNMIXED
    return told.format(share_unmixed(found), found.r_hat)


def _misfit(read: Read) -> str:
    """Return why the model is not that of the counts, as a clause; "" if nothing speaks against it."""
    if read.checks is not None and read.checks.failed:
        return "checks failed"
    return "counts vary more than the model says" if read.excess else ""


def _is_checked(read: Read) -> bool:
    return read.checks is not None and not np.isnan(read.checks.p_value)


def _checked(read: Read) -> tuple[str, str, str]:
    """Return tone, word and more of the tile of checks."""
    found = read.checks
    if found is None:
        return "doubt" if read.excess else "plain", "not made", read.excess or "the section on checks says why"
    if np.isnan(found.p_value):
        return "plain", "not possible", "too few replicates"
    number, failed = len(found.table), found.failed
    told = f"against {found.refits} simulated sets of counts"
    if not failed and read.excess:
        return "doubt", f"none of {number} failed", f"but {read.excess}; {told}"
    if not failed:
        return "good", f"none of {number} failed", told
    return "bad", f"{len(failed)} of {number} failed", f"{listed(failed)}; {told}"


def _intervals(read: Read) -> tuple[str, str, str]:
    """Return tone, word and more of the tile of intervals."""
    kind = kind_of_intervals(read.intervals)
    tone, word, more = KINDS[kind]
    if (wrong := _unmixed(read)) is not None:
        where = share_unmixed(wrong)
        if wrong.share_above >= MANY:
            return "bad", "not mixed", f"{more}, R-hat above {MIXED} in {where}"
        if wrong.share_above >= SOME:
            return "doubt", f"provisional in {where}", f"{more}, R-hat up to {wrong.r_hat:.2f}"
        more = f"{more}; not mixed in {where}"
    doubtful = kind == "bootstrap" and cautions_of_intervals(read.intervals)
    if tone == "good" and (state_of(read).tone != "good" or doubtful):
        return "doubt", "provisional", more
    if tone == "good" and _misfit(read):
        return "doubt", "hold for the model at best", more
    if tone == "good" and not _is_checked(read):
        return "plain", word, f"{more}; hold only if the noise is right"
    return tone, word, more
