"""The last sections of the page of a fit: methods in words, how to repeat it, and what to cite."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import bayesnmf
from bayesnmf.data.labels import listed as listed_labels
from bayesnmf.fitting.fitted import Fit
from bayesnmf.options import METHODS as RECORDS
from bayesnmf.pages.parts import Section, Table
from bayesnmf.pages.reading import Read
from bayesnmf.pages.references import CHAINS, NEIGHBOURS, SIGNS, references_of
from bayesnmf.pages.words import BRIEF, METHODS, MODELS, listed
from bayesnmf.priors.partly_known import PartlyKnown
from bayesnmf.results.describing import noise_in_words
from bayesnmf.results.intervals import kind_of_intervals, share_unmixed
from bayesnmf.results.record import LEARNED

LONGEST = 600  # characters of priors and options
LOAD = """import bayesnmf

fit = bayesnmf.load("fit.nc")  # the file of this fit: it has the counts, the priors and all settings
"""
REPEAT = LOAD + (
    "again = bayesnmf.fit(fit.counts, fit.model, fit.rank, fit.method, seed=fit.seed, noise={noise}, "
    "options=fit.options)"
)
PROJECT = (
    LOAD
    + """first = bayesnmf.load("first.nc")  # the file of the fit that the components are from
again = first.project(fit.counts, row_exposure=fit.counts.row_exposure, seed=fit.seed)"""
)


def methods(read: Read) -> Section:
    """Return what was done, as a paragraph for a paper."""
    fit, (n, m) = read.fit, read.fit.counts.shape
    told = f"Counts of {m:,} features in {n:,} samples ({fit.counts.total:,.12g} counts) were described by "
    told += f"{_components(fit)}, with bayesnmf {bayesnmf.__version__}. Model: {MODELS[fit.model]}"
    noise = noise_in_words(fit).removeprefix(", ")
    told += f"; {noise}, in place of the Poisson distribution. " if noise else ". "
    told += "Exposures were given; loadings and components are per unit of exposure. " if fit.counts.exposed else ""
    kind = kind_of_intervals(read.intervals)
    told += f"Method: {METHODS[fit.method]} (seed {fit.seed}). Intervals: {BRIEF[kind]}{_unmixed(read)}. "
    told += _checked(read)
    return Section("Methods, for a paper", [told])


def _unmixed(read: Read) -> str:
    """Return where the chain of the intervals has not mixed, which a paper has to say; "" where it has."""
    found = read.intervals.intervals
    if found is None or not found.share_above:
        return ""
    return f", which has not mixed in {share_unmixed(found)} (R-hat up to {found.r_hat:.2f}), where they are too narrow"


def _components(fit: Fit) -> str:
    number = f"{fit.rank} component{'s' if fit.rank > 1 else ''}"
    if fit.is_projected:
        return f"{number}, held from another fit, so that only the loadings were estimated"
    if isinstance(fit.priors.components, PartlyKnown):
        return f"{number}, of which {len(fit.priors.components.known)} were given"
    return number


def _checked(read: Read) -> str:
    found = read.checks
    if found is None or np.isnan(found.p_value):
        return "The model was not checked against replicated counts."
    told = f"The model was compared with {found.refits} replicated data sets, each fitted as the counts were: "
    names = listed(map(str, found.table.index))
    return f"{told}{f'{listed(found.failed)} differed' if found.failed else 'nothing differed'} (of {names})."


def settings(fit: Fit) -> Section:
    """Return what is needed to repeat the fit."""
    # Given components are left out, since all their numbers would be shown.
    own = replace(fit.priors, components=getattr(fit.priors.components, "free_prior", fit.priors.components))
    given: Any = fit.noise
    noise = f"bayesnmf.{given.with_dispersion(None)!r}" if LEARNED in fit.diagnostics else "fit.noise"
    noise = "fit.noise.with_dispersion(None)" if LEARNED in fit.diagnostics and given.by == "matrix" else noise
    rows = [
        ["model", fit.model],
        ["method", f"{fit.method} (bayesnmf.{RECORDS[fit.method].options.__name__})"],
        ["rank", str(fit.rank)],
        ["seed", str(fit.seed)],
        ["objective", f"{fit.objective} {fit.trace.mean() if fit.trace.ndim == 2 else fit.trace[-1]:,.3f}"],
        ["priors", _cut(repr(own))],
        ["noise", _cut(repr(fit.noise))],
        ["options", _cut(repr(replace(fit.options, priors=own)))],
    ]
    if fit.batch is not None:
        rows.append(["batches", f"{listed_labels(fit.batch.names.tolist())}; factors of shape {fit.batch.shape:.3g}"])
    return Section(
        "How to repeat it",
        tables=[Table(["", ""], rows, numeric=False)],
        code=PROJECT if fit.is_projected else REPEAT.format(noise=noise),
    )


def _cut(text: str) -> str:
    """Return a text, or its beginning where it has all numbers of an array."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} … (the file of the fit has all)"


def citations(read: Read) -> Section:
    """Return what to cite: the model, the method, and what the page computes."""
    fit = read.fit
    chains = fit.estimate.kind == "draws" and not RECORDS[fit.method].resampled
    more = (SIGNS, *((CHAINS,) if chains else ()), *((NEIGHBOURS,) if fit.rank > 2 else ()))
    return Section("How to cite", references=references_of(fit.model, [fit.method], more))
