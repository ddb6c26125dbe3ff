"""Make replicates of the counts of a fit, fit each as the counts were, and keep their estimates.

Parametric bootstrap (Efron & Tibshirani 1993, chapter 6): counts are drawn around the means of the fit with its noise,
with the same entries missing, the same exposures and, where totals of rows are given, the same totals. Every replicate
is fitted by the method of the fit with its options, priors and noise; what the fit had learned besides both sides is
learned again (priors, effects of covariates, shapes of batches), but a dispersion is held. The components of each are
matched one to one to those of the fit, and have their sums.

Fits start near the estimate, not at it: a zero, or what a sparse prior has brought near to it, would stay there. On
200 × 96 Poisson counts, K = 5, 2,000 a row, 90 % intervals of the components by vi (50 replicates) held 0.63 of the
truth from the estimate itself, and 0.78 from 2 % towards the mean, or from 10 %.

With `variation="rows"` a replicate has as many rows, drawn with replacement from those of the fit (a nonparametric
bootstrap, as rows were a sample), and the loadings of all rows are a draw given its components. Rows differ by more
than the model says, and another sample of them leads to another mode where modes compete. So each is fitted from the
estimate and, since that remembers its mode, from the start that the fit had, too; the better bound is kept.
docs/posteriors.md ("Other rows") has how often intervals of contrasts hold between halves of real counts.

Multinomial counts from those of each sample, as SigProfiler draws them, were tried and are not offered: they know no
noise but their own. On such counts with nb2 noise of dispersion 0.05, intervals by map held 0.68 of the loadings, and
0.83 with the noise of the fit; without overdispersion there was little between them (0.81 and 0.84).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from bayesnmf.assessment.replicates import replicate_of
from bayesnmf.data.counts import Counts
from bayesnmf.data.suspicions import PACKAGE
from bayesnmf.fitting.fit import run_once
from bayesnmf.fitting.job import Job, ProgressReport
from bayesnmf.fitting.many import fit_side_by_side, number_of_jobs, uninterrupted
from bayesnmf.fitting.projection import project
from bayesnmf.inference import alignment
from bayesnmf.inference.status import FitWarning
from bayesnmf.options import BLD, MAP, VI, Start
from bayesnmf.priors.pair import movable_components
from bayesnmf.priors.specification import on_simplex
from bayesnmf.priors.values import attach_scale, component_sums, rows_to_shares, separate_scale
from bayesnmf.results.checks import check_can_have, check_distribution
from bayesnmf.results.estimates import Draws, Intervals, Variation
from bayesnmf.results.intervals import fault_of_part, fault_of_size
from bayesnmf.results.record import FitRecord
from bayesnmf.types import Array

STREAM = 5  # of random numbers, beside those of the fit with the same seed
NEAR = 0.02  # of the way from the estimate to the mean of its components, at which fits start
LEAST = 8  # replicates, below which there are no intervals


class Replicate(NamedTuple):
    """Whether the fit of a replicate has converged, and its estimates, in the order of the fit and in float32."""

    converged: bool
    loadings: Array | None
    components: Array | None
    scale: Array | None
    factors: Array | None


Make = Callable[[FitRecord, int, int, ProgressReport], FitRecord]


def fault_of_bootstrap(fit: FitRecord, draws: int, variation: Variation) -> str:
    """Return why replicates of a fit cannot be fitted as it was, and the cure; "" if they can."""
    if not isinstance(fit.options, MAP | VI | BLD):
        cure = "read the intervals of its draws" if fit.estimate.kind == "draws" else "fit by vi"
        return f"the fit is by {fit.method}; {cure}"
    if fault := fault_of_part(fit):
        return f"{fault}; fit with fixed_components=" if fit.is_projected else fault
    if not fit.counts.rows_held:
        return "its counts are on disk; fit some of the rows in memory"
    if variation == "rows" and (fault := _fault_of_rows(fit)):
        return f"{fault}; variation='counts' keeps the rows"
    return fault_of_size(fit.counts, fit.rank, draws)


def _fault_of_rows(fit: FitRecord) -> str:
    """Return why other rows cannot take the place of those of a fit; "" if they can."""
    prior: Any = fit.priors.loadings
    if fit.method != "vi":
        return f"the fit is by {fit.method}, and other rows need q of the loadings given components, by vi"
    own = any(np.ndim(each) == 2 and len(each) > 1 for each in prior.parameters.values())
    if fit.batch is not None or prior.has_effects or own:
        return "its rows are in batches, or have covariates or priors of their own"
    return ""


def draws_of_bootstrap(
    fit: FitRecord,
    number: tuple[int, int],
    seed: int,
    threads: int | None,
    report: ProgressReport,
    variation: Variation = "counts",
) -> Intervals:
    """Return the estimates of replicates of the counts of a fit.

    Parameters
    ----------
    fit : FitRecord
        Fit by map, vi or bld.
    number : tuple of int
        Number of replicates in second place, as for a chain.
    seed : int
        Seed of the replicates; one more replicate changes no other.
    threads : int, optional
        Number of fits at once, by default one for each core; the estimates do not depend on it.
    report : callable
        Progress report.
    variation : {"counts", "rows"}
        Whether counts are drawn for the same rows, or rows with the counts that they have.

    Raises
    ------
    KeyboardInterrupt
        Ctrl-C stopped it before 8 fits had ended; of those that had, there are intervals, and a `FitWarning`.
    ValueError
        A fit whose counts have no distribution, or that cannot be repeated.
    """
    total = number[1]
    check_can_have("bootstrap", fault_of_bootstrap(fit, total, variation))
    if variation == "counts":
        check_distribution(fit, "replicates of a bootstrap")
    word, fit = getattr(fit.options, "start", None), _with_start(fit)
    make = partial(_of_rows, word if isinstance(word, str) else None) if variation == "rows" else _of_counts
    seeds = np.random.SeedSequence([seed, STREAM]).spawn(total)
    jobs = number_of_jobs(threads, total, fit.options)
    found, interrupted = fit_side_by_side(partial(_replicate, fit, seeds, make), total, jobs, (report, "bootstrap"))
    if len(found) < min(total, LEAST):
        raise KeyboardInterrupt
    if interrupted:
        text = f"its bootstrap was interrupted after {len(found)} of {total} replicates, of which its intervals are"
        warnings.warn(text, FitWarning, skip_file_prefixes=(PACKAGE,))
    done = [found[place] for place in sorted(found)]
    sides = {name: [getattr(each, name) for each in done] for name in Draws.__dataclass_fields__}
    draws = Draws(**{name: np.stack(parts)[None] for name, parts in sides.items() if parts[0] is not None})  # (1, R, …)
    return Intervals("bootstrap", draws, unsettled=sum(not each.converged for each in done), variation=variation)


def _with_start(fit: FitRecord) -> FitRecord:
    """Return the fit with options for its replicates: one thread and one start, near its estimate."""
    loadings, components = fit.multipliers or (fit.loadings, fit.components)
    sums = component_sums(components)[:, None]
    near = _towards(loadings, loadings.mean(axis=1, keepdims=True))
    shares = rows_to_shares(components, sums[:, 0])
    start: Any = near if fit.scale is None or fit.multipliers else attach_scale(near, fit.scale)
    start = Start(start, sums * _towards(shares, shares.mean(axis=0)))
    given: Any = fit.options
    threads = {} if getattr(given, "device", "cpu") != "cpu" else {"threads": 1}
    return replace(fit, options=replace(given, priors=fit.priors, start=start, restarts=1, **threads))


def _towards(values: Array, mean: Array) -> Array:
    return (1 - NEAR) * values + NEAR * mean


def _of_counts(fit: FitRecord, drawn: int, own: int, tick: ProgressReport) -> FitRecord:
    """Return the fit of counts that are drawn around the means of a fit."""
    left, right = (np.asarray(each, np.float64) for each in fit.mean_factors)
    matrix = replicate_of(fit, left, right, drawn, 1).astype(fit.counts.dtype, copy=False)
    return _fitted(fit, fit.counts.with_matrix(matrix), own, fit.options, tick)


def _of_rows(word: str | None, fit: FitRecord, drawn: int, own: int, tick: ProgressReport) -> FitRecord:
    """Return the fit of rows drawn with replacement, with loadings of all rows that are drawn given its components.

    The better of a fit from near the estimate, and of one from the start of this word, if there is one, is kept.
    """
    n = fit.counts.shape[0]
    rows = np.sort(np.random.default_rng(drawn).integers(n, size=n))
    given: Any = fit.options
    counts, (loadings, scale) = fit.counts.rows(rows), separate_scale(given.start.loadings)
    near = Start(attach_scale(loadings[rows], None if scale is None else scale[rows]), given.start.components)
    starts = [near, *([word] if word else [])]
    found = max(
        (_fitted(fit, counts, own, replace(given, start=start), tick) for start in starts),
        key=lambda each: each.trace[-1],
    )
    projected = project(found, fit.counts, None, own)
    loadings, scale, _ = next(iter(projected.estimate.iterate(projected, 1, own)))
    return replace(found, loadings=loadings, scale=scale)


def _fitted(fit: FitRecord, counts: Counts, seed: int, options: Any, tick: ProgressReport) -> FitRecord:
    """Return the fit of a replicate."""
    return uninterrupted(run_once(Job(counts, fit.model, fit.rank, fit.method, seed, options, tick, fit.noise)))


def _replicate(
    fit: FitRecord, seeds: Sequence[np.random.SeedSequence], make: Make, place: int, tick: ProgressReport
) -> Replicate:
    """Return the estimates of one replicate."""
    drawn, own = (int(each) for each in seeds[place].generate_state(2, np.uint32))
    found = make(fit, drawn, own, tick)
    movable = movable_components(fit.priors, fit.rank)
    order = alignment.match_components(found.exposed_components, fit.exposed_components, movable)
    loadings, components = found.loadings[:, order], found.components[order]
    if not on_simplex(fit.priors.components):  # a scale that priors alone determine, and fits approach slowly
        sums = component_sums(components)
        unit = np.divide(component_sums(fit.components), sums, out=np.ones(fit.rank), where=sums > 0)
        loadings, components = loadings / unit, components * unit[:, None]
    sides = loadings, components, found.scale, None if found.batch is None else found.batch.mean
    kept = (None if each is None else each.astype(np.float32) for each in sides)
    return Replicate(found.status.converged, *kept)
