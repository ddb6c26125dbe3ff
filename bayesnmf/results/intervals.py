"""What intervals and probabilities are read from: the one place where readers ask for it.

A fit by vi has a mean field, q, whose intervals are too narrow, and one by map or bld has none. `Fit.with_intervals`,
or an option of `VI`, puts draws beside these. Every reader of intervals replaces its fit by `for_intervals(fit)`, whose
estimate is what to read: draws if the fit has them, or if the option is "auto" and they cost little; else q or the
point. Fits by samplers stay as they are.
"""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral
from typing import Any
from weakref import WeakKeyDictionary

from bayesnmf.results.estimates import Intervals
from bayesnmf.results.record import FitRecord
from bayesnmf.results.short_chain import (
    DRAWS,
    MIXED,
    WARMUP,
    expected_seconds,
    fault_of_part,
    fault_of_sampling,
    sample_around,
)

SOME, MANY = 0.01, 0.1  # shares of unmixed entries from which on intervals are provisional, and unusable
AUTOMATIC, LONGEST = 5.0, 60.0  # seconds that a reader may sample for, or as long as the fit took, up to a minute
_SAMPLED: WeakKeyDictionary[FitRecord, Intervals] = WeakKeyDictionary()  # by readers; a fit is never changed


def for_intervals[F: FitRecord](fit: F) -> F:
    """Return the fit with what intervals are to be read from as its estimate, and in `intervals` what that is."""
    if fit.estimate.kind == "draws":
        return fit
    found = fit.intervals
    if found is None and _is_automatic(fit):
        found = _SAMPLED.get(fit)
        if found is None:
            threads = getattr(fit.options, "threads", None)
            found = _SAMPLED[fit] = sample_around(fit, (WARMUP, DRAWS), fit.seed, threads)
    return fit if found is None else replace(fit, estimate=found.draws, intervals=found)


def for_draws[F: FitRecord](fit: F, draws: Any, chains: Any = None) -> F:
    """Return the fit as `for_intervals` does; as it is if "auto" makes fewer draws or chains than are asked for."""
    more = any(isinstance(asked, Integral) and int(asked) > made for asked, made in ((draws, DRAWS), (chains, 1)))
    return fit if more and fit.intervals is None else for_intervals(fit)


def samples_by_itself(fit: FitRecord, warmup: int = WARMUP, draws: int = DRAWS) -> bool:
    """Return whether a chain from the fit is possible, and expected to take no longer than "auto" allows."""
    return not fault_of_sampling(fit, draws) and expected_seconds(fit, warmup + draws) <= max(
        AUTOMATIC, min(fit.seconds, LONGEST)
    )


def _is_automatic(fit: FitRecord) -> bool:
    return getattr(fit.options, "intervals", "") == "auto" and samples_by_itself(fit)


def kind_of_intervals(fit: FitRecord) -> str:
    """Return the kind of the estimate, or of the draws beside it, of what `for_intervals` returned."""
    return fit.estimate.kind if _beside(fit) is None else fit.intervals.kind  # type: ignore[union-attr]


def _beside(fit: FitRecord) -> Intervals | None:
    """Return the draws beside an estimate that a fit of `for_intervals` is read from; None if there are none."""
    return None if fit.intervals is None or fit.estimate is not fit.intervals.draws else fit.intervals


def source_of_intervals(fit: FitRecord) -> str:
    """Return a sentence with what the intervals of a fit are, of what `for_intervals` returned; "" for a point."""
    if fit.estimate.kind == "point":
        return ""
    if fit.estimate.kind == "mean field":
        return f"intervals: mean field; too narrow; {_cure(fit)}"
    found = _beside(fit)
    if found is None:
        return "intervals: draws of the posterior"
    number = found.draws.draws
    if found.kind == "bootstrap":
        wrong = f"; {found.unsettled} of their fits did not converge" if found.unsettled else ""
        return f"intervals: bootstrap, {number} replicates{wrong}"
    if found.kind != "sampled":
        return f"intervals: linear response ({number} draws), wider than the mean field, and often still too narrow"
    about = f"intervals: sampled ({number} draws of one chain from the fit, R-hat of its halves at most "
    about += f"{found.r_hat:.2f})"
    if not found.share_above:
        return about
    if found.share_above < SOME:
        return f"{about}; it has mixed but for {share_unmixed(found)}, above {MIXED}, whose intervals are too narrow"
    where = f"it has not mixed in {share_unmixed(found)}, above {MIXED}, whose intervals are too narrow"
    if found.share_above >= MANY:
        where = f"it has not mixed: {share_unmixed(found)} are above {MIXED}, and no interval can be relied on"
    draws = 4 * number
    if fault_of_sampling(fit, draws):
        return f"{about}; {where}"
    longer = f"fit.with_intervals('sampled', warmup={number}, draws={draws})"
    return f"{about}; {where}; {longer} runs longer, {duration(expected_seconds(fit, number + draws))}"


def share_unmixed(found: Intervals) -> str:
    """Return in how many of the entries of loadings and components the chain of some intervals has not mixed."""
    return f"{in_percent(found.share_above)} of entries"


def in_percent(share: float) -> str:
    """Return a share, with a digit after the point below 1 %."""
    return f"{share:.0%}" if share >= 0.01 else f"{share:.1%}"


def unmixed(fit: FitRecord) -> Intervals | None:
    """Return the draws that intervals are read from if their chain has not all mixed; nothing is sampled."""
    found = _SAMPLED.get(fit) if fit.intervals is None else fit.intervals
    return found if found is not None and found.share_above else None


def told_of_intervals(fit: FitRecord) -> str:
    """Return a sentence with what the intervals of a fit are, or will be; nothing is sampled for it."""
    if fit.estimate.kind == "point" and fit.intervals is None:
        cure = "" if fault_of_part(fit) else "; fit.with_intervals('bootstrap') makes some"
        return f"no intervals: a point estimate{cure}"
    if fit.intervals is None and _is_automatic(fit) and fit not in _SAMPLED:
        return f"intervals: sampled when they are first read, {duration(expected_seconds(fit))}"
    return source_of_intervals(for_intervals(fit))


def _cure(fit: FitRecord) -> str:
    if fault := fault_of_sampling(fit):
        return f"not sampled, since {fault}"
    return f"fit.with_intervals('sampled') samples, {duration(expected_seconds(fit))}"


def duration(seconds: float) -> str:
    """Return a duration in words."""
    return f"about {max(seconds, 1):.0f} s" if seconds < 120 else f"about {seconds / 60:.0f} min"


def cautions_of_intervals(fit: FitRecord) -> list[str]:
    """Return a caution if the intervals of a fit are too narrow, of what `for_intervals` returned."""
    found = _beside(fit)
    wrong = found is not None and (found.share_above or found.unsettled or found.kind == "linear response")
    if fit.estimate.kind == "mean field" or wrong:
        return [source_of_intervals(fit)]
    return []
