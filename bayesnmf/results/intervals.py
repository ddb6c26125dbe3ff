"""What intervals and probabilities are read from: the one place where readers ask for it.

A fit by vi has a mean field, q, whose intervals are too narrow, and one by map or bld has none. `Fit.with_intervals`,
or an option of `VI`, puts draws beside these. Every reader of intervals replaces its fit by `for_intervals(fit)`, whose
estimate is what to read: draws if the fit has them, or if the option is "auto" and they cost little; else q or the
point. Fits by samplers stay as they are.

The draws are a short chain of Gibbs sampling: intervals that hold, for a known number of seconds. A mean field is too
narrow, because it ignores how loadings and components move together. One chain of marginal Gibbs sampling
(`bayesnmf.inference.sampling.marginal_gibbs`) from a draw of q describes the posterior around the same mode:
docs/posteriors.md has what 50 + 250 sweeps hold of longer runs, and what they cost.
"""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from bayesnmf.data.counts import Counts
from bayesnmf.inference import alignment
from bayesnmf.inference.ascent.course import Progress
from bayesnmf.inference.problem import Problem
from bayesnmf.inference.sampling.gibbs import Chain, Schedule, marginal_gibbs_chain
from bayesnmf.inference.side import Draw, Side
from bayesnmf.inference.starts.states import given_state
from bayesnmf.inference.status import BROKEN
from bayesnmf.priors.distribution import OPTIONAL
from bayesnmf.priors.pair import Priors, movable_components
from bayesnmf.priors.specification import PARAMETER, stated_components
from bayesnmf.priors.values import separate_scale
from bayesnmf.results.draws import LIMIT
from bayesnmf.results.estimates import Draws, Intervals
from bayesnmf.results.mixing import judged_parts, r_hat_and_ess
from bayesnmf.results.record import FitRecord

SOME, MANY = 0.01, 0.1  # shares of unmixed entries from which on intervals are provisional, and unusable
AUTOMATIC, LONGEST = 5.0, 60.0  # seconds that a reader may sample for, or as long as the fit took, up to a minute
_SAMPLED: WeakKeyDictionary[FitRecord, Intervals] = WeakKeyDictionary()  # by readers; a fit is never changed
WARMUP, DRAWS = 50, 250
MIXED = 1.2  # R-hat of halves of a chain; short ones of 250 draws reach 1.1 by chance
# Processor seconds of a sweep, and of each of its K nonzeros and K (n + m) entries, by least squares of relative errors
# over 12 sizes, from 100 × 50 (K = 3, 1.2 ms a sweep) to 400 rows of pbmc_facs (K = 6, 95 ms) and 500 of nips (K = 10,
# 126 ms); they were 0.83 to 1.21 times what this predicts. All rows of pbmc_facs: 375 ms, predicted 427.
BY_SWEEP, BY_NONZERO, BY_ENTRY = 0.63e-3, 22e-9, 0.56e-6
STREAM = 2  # of random numbers, beside those of the fit with the same seed


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


def with_own_draws[F: FitRecord](fit: F, *kinds: str) -> F:
    """Return the fit with the draws of these kinds that it has beside q as its estimate, if it has some."""
    found = fit.intervals
    return fit if found is None or found.kind not in kinds else replace(fit, estimate=found.draws)


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
    if found is None and fit.by.posterior == "mean field":  # of a program of its own
        return "intervals: draws of a mean field; too narrow"
    if found is None:
        return "intervals: draws of the posterior"
    number = found.draws.draws
    if found.kind == "bootstrap":
        wrong = f"; {found.unsettled} of their fits did not converge" if found.unsettled else ""
        of = "bootstrap of rows" if found.variation == "rows" else "bootstrap"
        return f"intervals: {of}, {number} replicates{wrong}"
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


def fault_of_sampling(fit: FitRecord, draws: int = DRAWS, part: str = "entries") -> str:
    """Return why no draws around a fit can be made, by families with an optional part; "" if they can."""
    if fault := f"the fit is by {fit.method}" if fit.method != "vi" else fault_of_part(fit):
        return fault
    loadings: Any = fit.priors.loadings
    if fit.noise.has_entry_rates and loadings.support != "positive":
        return "its loadings are proportions, and its entries have rates; use method='gibbs'"
    if fit.noise.has_entry_rates and not fit.counts.rows_held:
        return "its counts are on disk, and its entries have rates; use method='gibbs', or read counts into memory"
    return fault_of_parts(fit.counts, fit.priors, fit.rank, draws, part)


def fault_of_part(fit: FitRecord) -> str:
    """Return why a fit is not the end of a fit of all its counts, which draws around it need; "" if it is."""
    if fit.status.reason in BROKEN:
        return f"the fit ended early: {fit.status.reason}"
    if fit.is_of_matrix:
        return "it is of one of several matrices, whose loadings come from all; ask the fit of all, then for the matrix"
    return "its components are held from another fit" if fit.is_projected else ""


def fault_of_parts(counts: Counts, priors: Priors, rank: int, draws: int = DRAWS, part: str = "entries") -> str:
    """Return why no chain can be made with these counts and priors, whose families need an optional part."""
    if priors.components == PARAMETER:
        return "its components are parameters, without a posterior"
    if counts.batch is not None and part == "response":
        return "its counts are in batches, whose factors linear response leaves out"
    if not counts.is_integer and part == "entries":
        return "not all its counts are whole numbers"
    loadings: Any = priors.loadings
    if counts.mask is not None:
        drawn = loadings.support == "positive" and loadings.proper
        if not (drawn if part == "entries" else loadings.support != "scaled simplex"):
            return "entries of its counts are missing"
    sides: Any = priors.loadings, priors.components
    if lacking := [type(prior).__name__ for prior in sides if part not in prior.optional]:
        return f"{lacking[0]} has no {OPTIONAL[part]}"
    return fault_of_size(counts, rank, draws)


def fault_of_size(counts: Counts, rank: int, draws: int) -> str:
    """Return that draws take more memory than is allowed; "" if they do not."""
    size = 8 * draws * rank * sum(counts.shape)
    return f"{draws} draws take {size / 2**30:.1f} GiB, over {LIMIT / 2**30:.0f}; ask for fewer" if size > LIMIT else ""


def expected_seconds(fit: FitRecord, sweeps: int = WARMUP + DRAWS) -> float:
    """Return the processor seconds that a chain is expected to take; where it is long, cores share them."""
    return sweeps * (BY_SWEEP + fit.rank * (BY_NONZERO * fit.counts.nnz + BY_ENTRY * sum(fit.counts.shape)))


def sample_around(
    fit: FitRecord, number: tuple[int, int], seed: int, threads: int | None = None, report: Any = None
) -> Intervals:
    """Return draws of one chain that starts from a draw of q.

    Parameters
    ----------
    fit : FitRecord
        Fit by vi without a fault (`fault_of_sampling`).
    number : tuple of int
        Numbers of warm-up sweeps and of draws.
    seed : int
        Seed of the chain, which is independent of a fit with this seed.
    threads : int, optional
        Number of row blocks processed at once; the draws do not depend on it.
    report : callable, optional
        Progress report.
    """
    rng = np.random.default_rng([seed, STREAM])
    counts, schedule = fit.working_counts.as_type(np.float64), Schedule(*number, 1)
    if fit.batch is not None:
        counts = replace(counts, learns_shape=fit.batch.learned)  # type: ignore[call-arg]
    prior: Any = fit.priors.loadings
    components = stated_components(fit.priors.components)
    problem = Problem(counts, prior, components, Draw(rng, threads), Draw(rng, threads))
    q: Any = fit.estimate
    sides = q.loadings.broadcast(fit.loadings.shape), q.components.broadcast(fit.components.shape)
    state = given_state(problem, sides[0], components.with_known(sides[1]))
    chain = marginal_gibbs_chain(problem, state, rng, schedule, threads, _progress(report, schedule.sweeps))
    if chain.interrupted:
        raise KeyboardInterrupt
    draws = _matched(fit, chain)
    r_hat = np.concatenate([r_hat_and_ess(part, threads)[0].ravel() for part in judged_parts(draws, fit.seed)])
    varying = r_hat[~np.isnan(r_hat)]
    above = float(np.mean(varying > MIXED)) if len(varying) else 0.0
    return Intervals("sampled", draws, float(np.fmax.reduce(varying, initial=1.0)), above)


def _progress(report: Any, sweeps: int) -> Progress | None:
    """Return what a chain calls after every sweep."""
    return report and (lambda done, value, state: report("intervals", done + 1, sweeps, value))


def _matched(fit: FitRecord, chain: Chain) -> Draws:
    """Return the draws of a chain in the order of the components of the fit, in float32; the chain is emptied."""
    number, (n, rank), m = len(chain.draws), fit.loadings.shape, fit.components.shape[1]
    loadings, components = np.empty((1, number, n, rank), np.float32), np.empty((1, number, rank, m), np.float32)
    scale = None if fit.scale is None else np.empty((1, number, n), np.float32)
    movable, of_batches = movable_components(fit.priors, rank), chain.draws[0][2:]
    factors = np.empty((1, number, *of_batches[0].shape), np.float32) if of_batches else None
    for place in reversed(range(number)):
        value, drawn, *more = chain.draws.pop()
        if factors is not None:
            factors[0, place] = more[0]
        assert isinstance(drawn, np.ndarray)  # for mypy
        order = alignment.match_components(drawn, fit.components, movable)
        own, of_scale = separate_scale(value.whole()[0] if isinstance(value, Side) else value)
        loadings[0, place], components[0, place] = own[:, order], drawn[order]
        if scale is not None:
            scale[0, place] = of_scale
    return Draws(loadings, components, scale, factors)
