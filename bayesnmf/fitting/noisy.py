"""Run a fit with a noise other than Poisson.

With quasi-Poisson noise, a routine for Poisson counts is given `working_counts`. An unknown dispersion is that of a
Poisson fit of the same call: by the same method and options under map and vi, from which the fit then starts; by vi
under gibbs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bayesnmf.data.powered import working_counts
from bayesnmf.fitting.chains import closed_form_fit
from bayesnmf.fitting.closed_form import fit_closed_form
from bayesnmf.fitting.job import Job
from bayesnmf.fitting.problems import with_own_start
from bayesnmf.inference.status import BROKEN
from bayesnmf.options import METHODS, Options
from bayesnmf.priors.noise import POISSON, Quasi
from bayesnmf.results.checks import check_has_dispersion
from bayesnmf.results.dispersion import overall_dispersion
from bayesnmf.results.record import FitRecord


def run_job(job: Job) -> FitRecord:
    """Run the method of a job, and return the record of its fit; after Ctrl-C in a first Poisson fit, that fit."""
    run = METHODS[job.method].run
    if job.noise == POISSON:
        found: FitRecord = run(job)
        return found
    plain, first = replace(job, noise=POISSON), None
    noise: Any = job.noise
    options: Any = job.options
    if noise.dispersion is None:
        draws = METHODS[job.method].posterior == "draws"
        first = closed_form_fit(plain) if draws else fit_closed_form(plain)
        if first.status.reason in BROKEN:
            return first
        ratio, _ = overall_dispersion(first)
        check_has_dispersion(first, ratio)
        noise = Quasi(max(ratio - 1.0, 0.0))
        if not draws:
            options = with_own_start(replace(options, start=first, restarts=1), job.counts)
    found = run(replace(plain, counts=working_counts(job.counts, noise), options=options))
    return replace(found, counts=job.counts, noise=noise, options=_as_given(found.options, job.options))


def _as_given(resolved: Any, given: Any) -> Options:
    """Return resolved options with the start and the restarts that were given."""
    names = ("start", "restarts") if hasattr(given, "restarts") else ("start",)
    return replace(resolved, **{name: getattr(given, name) for name in names})
