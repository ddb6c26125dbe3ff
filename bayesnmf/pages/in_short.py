"""What the page of a fit says first: what was found, what failed, what may be trusted; and the same as tiles."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bayesnmf.inference.status import BROKEN, INTERRUPTED
from bayesnmf.pages.of_evidence import is_alone, rank_in_words, unstable
from bayesnmf.pages.parts import Tile
from bayesnmf.pages.reading import Read
from bayesnmf.pages.words import WORDS, capital, counted, listed, say
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
    MIXED,
    SOME,
    cautions_of_intervals,
    in_percent,
    kind_of_intervals,
    share_unmixed,
)
from bayesnmf.results.mixing import ESS_LIMIT, R_HAT_LIMIT

MATCHED = 0.9  # cosine from which on a component is said to match one of a catalogue
NUMBERS = ["No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten", "Eleven", "Twelve"]


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
        return _state("interrupted")
    if status.reason in BROKEN:
        return _state("unusable", reason=status.reason)
    drawn = fit.estimate.kind == "draws"
    agreed = _state("settled", reason=status.reason if drawn else say("chains.at_rest"))
    if (found := mixing_of(fit)) and not fit.by.resampled:
        agreed = _state_of_chains(found["max_r_hat"], found["min_ess"], found.get("share_above", 1.0))
    if agreed.tone != "good":
        return agreed
    if drawn and (faults := [fault for fault, _ in faults_of_draws(fit)]):
        return _state("doubtful", faults="; ".join(faults), sentences=_sentences(faults))
    return agreed if status.converged else _state("unsettled", reason=status.reason)


def _state_of_chains(r_hat: float, ess: float, share: float) -> State:
    if not np.isfinite(r_hat):
        return _state("unknown")
    told, part = say("chains.told", r_hat=r_hat, ess=ess), in_percent(share)
    if r_hat <= R_HAT_LIMIT:
        return _state("agreed" if ess >= ESS_LIMIT else "few", told=told)
    if 0 < share < SOME:
        return _state("partly", told=told, share=part)
    return _state("apart", told=told + (say("chains.above", limit=R_HAT_LIMIT, share=part) if share else ""))


def _state(name: str, **told: str) -> State:
    return State(**{field: say(f"states.{name}.{field}", **told) for field in WORDS["states"][name]})


def _found(read: Read) -> str:
    fit, (n, m) = read.fit, read.fit.counts.shape
    prior = fit.priors.components
    given = len(prior.known) if isinstance(prior, PartlyKnown) else 0
    about = {"number": number_in_words(fit.rank), "samples": counted(n, "sample"), "features": counted(m, "feature")}
    told = say("found.many" if fit.rank > 1 else "found.one", **about)
    if fit.is_projected:
        told += say("found.held")
    elif given:
        told += say("found.given" if given == fit.rank else "found.some_given", number=given)
    return f"{told}{_sizes_in_words(read)}{_known_in_words(read)}. {rank_in_words(read)}"


def _sizes_in_words(read: Read) -> str:
    if read.fit.rank == 1:
        return ""
    if not read.fit.counts.total:
        return say("found.nothing")
    titles, shares = read.fit.component_titles, list(map(_percent, read.sizes))
    first, last = int(np.argmax(read.sizes)), int(np.argmin(read.sizes))
    if shares[first] == shares[last]:
        return say("found.equal", share=shares[first])
    named = {"first": capital(titles[first]), "last": titles[last]}
    return say("found.sizes", most=shares[first], least=shares[last], **named)


def _known_in_words(read: Read) -> str:
    known = read.given.known
    if known is None:
        return ""
    names = known.table["reference"][known.table["cosine"] >= MATCHED].map(str).tolist()
    told = say("found.match" if len(names) > 1 else "found.one_match", number=len(names) or "none", cosine=MATCHED)
    return f"{told} ({listed(names)})" if names else told


def _percent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %") if share >= 0.01 else f"{share:.1%}".replace("%", " %")


def _failed(read: Read) -> str:
    fit, found, sentences = read.fit, read.checks, [told] if (told := state_of(read).failure) else []
    if idle := len(idle_components(fit)):
        sentences.append(say("failed.idle" if idle > 1 else "failed.one_idle", number=number_in_words(idle)))
    broken = bool(idle) or fit.status.reason in BROKEN
    faint = "" if broken else faint_components(fit)
    little = "" if broken or fit.is_projected else little_used_components(fit)
    sentences += [_sentences([told]) for told in (faint, little, caution_of_rounding(fit), read.excess) if told]
    if found is None:
        return " ".join([*(sentences or [say("failed.none")]), say("failed.unchecked")])
    number = len(found.table)
    if np.isnan(found.p_value):
        sentences.append(say("failed.unable"))
    elif found.failed:
        names = listed(_difference(name, *found.table.loc[name, ["observed", "mean"]]) for name in found.failed)
        sentences.append(say("failed.checks", number=number_in_words(len(found.failed)), all=number, names=names))
    else:
        passed = say("failed.passed", all=number)
        sentences.append(capital(passed) if sentences else say("failed.nothing", passed=passed))
    return " ".join(sentences)


def _difference(name: str, observed: float, expected: float) -> str:
    """Return how a statistic differs from what the model expects, and by how much: a small difference can be sure."""
    words = say(f"{'larger' if observed > expected or name not in WORDS['smaller'] else 'smaller'}.{name}")
    if not expected:
        return words
    percent = 100 * abs(observed / expected - 1)
    return f"{words} (by {percent:.{0 if percent >= 10 else 1 if percent >= 1 else 2}f} %)"


def _sentences(told: list[str]) -> str:
    return " ".join(f"{capital(each)}." for each in told)


def _trusted(read: Read) -> str:
    state, kind, misfit, wrong = state_of(read), kind_of_intervals(read.intervals), _misfit(read), _unmixed(read)
    if state.word == WORDS["states"]["unusable"]["word"]:
        return state.trust
    if wrong is not None and (wrong.share_above >= SOME or not (misfit or state.trust)):
        told = [_trust_of(wrong)]
    elif kind == "bootstrap" and cautions_of_intervals(read.intervals):
        told = [say("trust.refits")]
    elif state.trust:
        told = [state.trust]
    else:
        told = [say("trust.of_one" if misfit and kind in ("sampled", "draws") else f"intervals.{kind}.trust")]
    if misfit:
        told.append(say("trust.misfit_point" if kind == "point" else "trust.misfit", misfit=misfit))
    elif not _is_checked(read) and kind != "point":
        told.append(say("trust.unchecked"))
    if names := unstable(read):
        told.append(say("trust.unstable", names=listed(names), them="it" if len(names) == 1 else "them"))
    if is_alone(read):
        told.append(say("trust.alone"))
    return " ".join(told)


def _unmixed(read: Read) -> Intervals | None:
    """Return the draws that intervals are read from if their chain has not mixed in some entries."""
    found = read.intervals.intervals
    told = kind_of_intervals(read.intervals) == "sampled" and found is not None and found.share_above
    return found if told else None


def _trust_of(found: Intervals) -> str:
    """Return what may be trusted of the intervals of a chain that has not mixed in some entries."""
    name = "few_unmixed" if found.share_above < SOME else "some_unmixed" if found.share_above < MANY else "unmixed"
    return say(f"trust.{name}", where=share_unmixed(found), r_hat=found.r_hat)


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
    tone, word, more = (say(f"intervals.{kind}.{field}") for field in ("tone", "word", "more"))
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
