"""Run a fit with a noise other than Poisson, or of counts in batches, whose features have factors in each.

A routine for Poisson counts is given `working_counts`, with factors of batches around these. An unknown dispersion
begins with a Poisson fit of the same call: by the same method and options under map and vi, from which the fit then
starts; by vi under gibbs. That of quasi-Poisson noise is the dispersion around this fit; others are learned from there
on. Where a noise makes zeros of any means, components of that fit may have learned to avoid them: so a second one
leaves zeros out, and of what both end with the better is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from bayesnmf.data.batched import BatchedCounts
from bayesnmf.data.counts import Counts
from bayesnmf.data.missing import with_missing
from bayesnmf.data.powered import working_counts
from bayesnmf.fitting.chains import closed_form_fit, vi_options_of
from bayesnmf.fitting.closed_form import fit_closed_form
from bayesnmf.fitting.job import Job
from bayesnmf.fitting.problems import with_own_start
from bayesnmf.inference.status import BROKEN
from bayesnmf.noise.abilities import Dispersed, Noise
from bayesnmf.noise.poisson import POISSON
from bayesnmf.noise.quasi import Quasi
from bayesnmf.options import MAP, METHODS, VI, Options
from bayesnmf.priors.specification import MODELS
from bayesnmf.results.checks import check_has_dispersion
from bayesnmf.results.dispersion import overall_dispersion
from bayesnmf.results.record import LEARNED, FitRecord


def _in_batches(job: Job, counts: Counts, first: FitRecord | None = None) -> Counts:
    """Return counts around which factors of batches are, if those of a job are in batches; learned ones begin there."""
    if job.counts.batch is None:
        return counts
    shape = job.counts.batch.shape
    begun = shape if first is None or first.batch is None else first.batch.shape
    return BatchedCounts.in_batches(counts, begun, learned=shape is None)


def _poisson_fit(job: Job, run: Callable[[Job], FitRecord]) -> FitRecord:
    """Return a fit with Poisson noise of the same counts, in batches if they are."""
    found = run(replace(job, noise=POISSON, counts=_in_batches(job, job.counts)))
    return replace(found, counts=job.counts)


RESTARTED = ("restarts", "worst_restart")  # diagnostics of the first fit, under Poisson noise
_MADE: ContextVar[FitRecord | None] = ContextVar("made", default=None)


@contextmanager
def begun_with(first: FitRecord | None) -> Iterator[None]:
    """Take a Poisson fit of the same counts, method, options and seed for the first fit of a noise, if there is one."""
    token = _MADE.set(first)
    try:
        yield
    finally:
        _MADE.reset(token)


def run_with_noise(job: Job) -> FitRecord:
    """Run the method of a job with a noise, and return the record of its fit; after Ctrl-C in a first fit, that fit."""
    if job.noise == POISSON:
        return _poisson_fit(job, METHODS[job.method].run)
    noise, options, first = job.noise, job.options, None
    if not noise.known:
        first = _first_fit(job)
        if first is not None and first.status.reason in BROKEN:
            return first
        noise, options = _begun(job, first)
    learned = isinstance(noise, Dispersed) and not job.noise.known
    counts = _in_batches(job, _working_counts(job, noise, learned), first)
    noisy = replace(job, counts=counts, options=options, noise=noise)
    found = METHODS[job.method].run(noisy)
    if learned and (other := _from_nonzeros(job)) is not None:
        again = METHODS[job.method].run(replace(noisy, options=_started(job, other)))
        found = max(found, again, key=lambda each: each.trace[-1])
    said = {name: first.diagnostics[name] for name in RESTARTED if first and name in first.diagnostics}
    said |= {LEARNED: 1.0} if learned else {}
    options = _as_given(found.options, job.options)
    return replace(found, counts=job.counts, options=options, diagnostics={**said, **found.diagnostics})


def _first_fit(job: Job) -> FitRecord | None:
    """Return the fit that an unknown dispersion begins with, if one is needed, or under nuts and svi has: by vi."""
    options = job.options
    if isinstance(options, MAP | VI):
        return _MADE.get() or _poisson_fit(job, fit_closed_form)
    if job.noise.from_first_fit:
        return _poisson_fit(job, closed_form_fit)
    if METHODS[job.method].resampled:  # which draws it from its prior
        return None
    if "program" not in METHODS[job.method].needs and options.start != "fit":  # which draws the dispersion
        return None
    return run_with_noise(replace(job, method="vi", options=vi_options_of(job), report=lambda *_: None))


def _from_nonzeros(job: Job) -> FitRecord | None:
    """Return a Poisson fit of the counts above 0, if zeros may say nothing of their means; None if they do.

    On disk, where it would take the place of every nonzero, there is none: map and vi by themselves are refused.
    """
    starts = job.counts.rows_held and job.counts.mask is None
    if not (starts and job.noise.hides_means and isinstance(job.options, MAP | VI)):
        return None
    return _poisson_fit(replace(job, counts=with_missing(job.counts, None, None, "zeros")), fit_closed_form)


def _started(job: Job, first: FitRecord) -> Any:
    """Return the options of a job with a fit as the one start."""
    restarts = {"restarts": 1} if hasattr(job.options, "restarts") else {}
    return with_own_start(replace(job.options, start=first, **restarts), job.counts)


def _begun(job: Job, first: FitRecord | None) -> tuple[Noise, Any]:
    """Return a noise whose dispersion is that around a first fit, or where learning begins, and options to go on."""
    noise, options = job.noise, job.options
    begins = getattr(options, "start", None) in ("fit", None) or isinstance(options, MAP | VI)
    if first is not None and begins and (isinstance(noise, Dispersed) or isinstance(options, MAP | VI)):
        options = _started(job, first)
    if isinstance(noise, Dispersed):
        if first is not None and first.noise.known and first.noise != POISSON:
            return first.noise, options
        return noise.with_first_dispersion(job.counts.shape), options
    assert first is not None
    ratio, _ = overall_dispersion(first)
    check_has_dispersion(first, ratio)
    return Quasi(max(ratio - 1.0, 0.0)), options


def counts_to_temper(job: Job) -> Counts:
    """Return the counts that tempering is given for a job; unknown dispersions are drawn from their prior."""
    noise: Any = job.noise
    if noise == POISSON:
        return job.counts
    known = noise if noise.known else noise.with_first_dispersion(job.counts.shape)
    return _working_counts(job, known, not noise.known)


def _working_counts(job: Job, noise: Noise, learned: bool) -> Counts:
    totals, components = MODELS[job.model].given_totals, job.options.priors.components
    return working_counts(job.counts, noise, given_totals=totals, learned=learned, components=components)


def _as_given(resolved: Any, given: Any) -> Options:
    """Return resolved options with the start and the restarts that were given."""
    names = [name for name in ("start", "restarts") if hasattr(given, name)]
    return replace(resolved, **{name: getattr(given, name) for name in names})
