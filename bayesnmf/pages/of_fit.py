"""The sections of the page of a fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bayesnmf import plots
from bayesnmf.assessment.matching import Match
from bayesnmf.assessment.predictive_checks import headings_and_lines, predictive_checks, verdict_of
from bayesnmf.data.labels import listed
from bayesnmf.data.several import is_weighted
from bayesnmf.fitting.fitted import Fit
from bayesnmf.fitting.job import ProgressReport
from bayesnmf.options import METHODS as RECORDS
from bayesnmf.pages.of_components import components_of_matrices
from bayesnmf.pages.of_known import known_components
from bayesnmf.pages.parts import Section, Table, drawn
from bayesnmf.pages.references import SIGNS, references_of
from bayesnmf.pages.words import (
    INTERVALS,
    METHODS,
    MISFITTED,
    MODELS,
    NO_DISTRIBUTION,
    OF_ALL,
    ON_DISK,
    P_VALUES,
)
from bayesnmf.priors.noise import Quasi
from bayesnmf.priors.partly_known import PartlyKnown
from bayesnmf.results.cautions import cautions_of, cautions_of_model
from bayesnmf.results.checks import Groups
from bayesnmf.results.describing import noise_in_words, state_of
from bayesnmf.results.effects import has_effects_to_show
from bayesnmf.results.intervals import for_intervals, kind_of_intervals, source_of_intervals, told_of_intervals
from bayesnmf.results.record import LEARNED
from bayesnmf.results.replication import number_to_replicate
from bayesnmf.results.resampling import is_resampled
from bayesnmf.results.topic_model import to_topic_model
from bayesnmf.types import Array

REPLICATES, SHOWN_ROWS, MOST_BARS = 50, 4, 2000
CHECKED = "Could the model have made these counts?"
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


def sections_of_fit(
    fit: Fit, groups: Groups | None, image_shape: tuple[int, int] | None, known: Match | None, told: ProgressReport
) -> tuple[str, list[Section]]:
    """Return the heading and the sections."""
    title = f"{fit.rank} component{'s' if fit.rank > 1 else ''} of {fit.counts.shape[0]:,} samples"
    made: list[Section] = []
    parts = (
        lambda: [overview(fit)],
        lambda: [composition(fit, groups)],
        lambda: [covariates(fit)] if has_effects_to_show(fit) else [],
        lambda: [] if known is None else [known_components(fit, known)],
        lambda: components_of_matrices(fit, image_shape, known),
        lambda: [convergence(fit)],
        lambda: [uncertainty(fit)],
        lambda: [checks(fit)],
        lambda: [settings(fit)],
    )
    for done, part in enumerate(parts):
        told("report", done, len(parts), np.nan)
        made.extend(part())
    told("report", len(parts), len(parts), np.nan)
    return title, [*made, Section("How to cite", references=references_of(fit.model, [fit.method], (SIGNS,)))]


def overview(fit: Fit) -> Section:
    """Return what was fitted, and cautions."""
    counts, (n, m) = fit.counts, fit.counts.shape
    rows = [
        [
            "counts",
            f"{n:,} samples × {m:,} features; {counts.total:,.12g} counts, {1 - counts.nnz / (n * m):.1%} zeros",
        ],
        ["model", MODELS[fit.model]],
        ["components", _number_of_components(fit)],
        ["method", METHODS[fit.method]],
        ["status", state_of(fit)],
        ["intervals", told_of_intervals(for_intervals(fit)).removeprefix("intervals: ")],
    ]
    if noise := noise_in_words(fit).removeprefix(", "):
        rows.insert(2, ["noise", f"{noise}, in place of the Poisson distribution"])
    if counts.exposed:
        rows.insert(1, ["exposures", "given; loadings and components are per unit of exposure"])
    cautions = [*cautions_of(fit), *cautions_of_model(fit)]
    return Section("What was fitted", cautions=cautions, tables=[Table(["", ""], rows, numeric=False)])


def _number_of_components(fit: Fit) -> str:
    if fit.is_projected:
        return f"{fit.rank}, held from another fit; only the loadings were estimated"
    if isinstance(fit.priors.components, PartlyKnown):
        return f"{fit.rank}, of which {len(fit.priors.components.known)} were given"
    return str(fit.rank)


def composition(fit: Fit, groups: Groups | None) -> Section:
    """Return the structure plot, and the size of each component."""
    proportions = to_topic_model(fit).proportions
    n = len(proportions)
    leading = fit.leading_components()["component"].value_counts(sort=False)
    shares = fit.expected_sizes / max(fit.expected_sizes.sum(), np.finfo(float).tiny)
    rows = [
        [title, f"{share:.1%}", f"{count:,} ({count / n:.0%})", f"{median:.1%}"]
        for title, share, count, median in zip(
            fit.component_titles, shares, leading, np.median(proportions, axis=0), strict=True
        )
    ]
    most = None if groups is None and n <= MOST_BARS else MOST_BARS
    picture = drawn(
        lambda: plots.structure(fit, groups, most),
        "One stacked bar for each sample: the share of each component in its expected counts.",
    )
    return Section(
        "What the samples consist of",
        [
            "Each bar is a sample; colours are the shares of the components in its expected counts. In a sample the "
            "component leads that sets it apart most: the greatest share × log(share / mean share).",
            *([f"{groups.ungrouped:,} samples without a group are left out."] if groups and groups.ungrouped else []),
        ],
        tables=[
            Table(["component", "share of all counts", "samples where it leads", "median share"], rows),
            *([] if groups is None else [_by_group(fit, groups, proportions)]),
        ],
        figures=[picture],
    )


def covariates(fit: Fit) -> Section:
    """Return the effects of covariates on the components, with intervals."""
    table, titles = fit.effects(), dict(zip(fit.component_labels, fit.component_titles, strict=True))
    rows = [
        [titles[component], str(term), f"{row.effect:.3g} [{row.low:.3g}, {row.high:.3g}]", f"{row.lfsr:.3f}"]
        for (component, term), row in zip(table.index, table.itertuples(), strict=True)
    ]
    text = f"Effects are on the {table.attrs['scale']}, in the units of the covariates; {table.attrs['intervals']}."
    tables = [Table(["component", "term", "effect", "lfsr"], rows)]
    return Section("What the loadings depend on", [text], cautions=table.attrs["cautions"], tables=tables)


def _by_group(fit: Fit, groups: Groups, proportions: Array) -> Table:
    """Return the mean share of each component in each group."""
    labels, names = groups
    rows = []
    for name in names:
        inside = labels == name
        rows.append([name, f"{inside.sum():,}", *(f"{share:.1%}" for share in proportions[inside].mean(axis=0))])
    return Table(["group", "samples", *(f"mean share of {title}" for title in fit.component_titles)], rows)


def convergence(fit: Fit) -> Section:
    """Return the course of the fit."""
    text = [f"{fit.status.reason[:1].upper()}{fit.status.reason[1:]}; {fit.seconds:,.1f} s."]
    if fit.estimate.kind == "draws" and is_resampled(fit):
        text.append("Draws are resampled particles of independent runs, not chains; R-hat does not apply to them.")
        return Section("Convergence", text)
    if fit.estimate.kind == "draws":
        figure = drawn(lambda: plots.chains(fit, 3), "Traces and rank histograms of the chains.")
        return Section("Convergence", [*text, "Chains that agree have flat rank histograms."], figures=[figure])
    figure = drawn(lambda: plots.objectives(fit), f"The objective, {fit.objective}, by iteration.")
    return Section("Convergence", text, figures=[figure])


def uncertainty(fit: Fit) -> Section:
    """Return what the intervals are, and those of some samples."""
    read = for_intervals(fit)
    text = [INTERVALS[kind_of_intervals(read)]]
    if RECORDS[fit.method].posterior != "draws" and (source := source_of_intervals(read)):
        text.append(f"{source[:1].upper()}{source[1:]}.")
    if read.estimate.kind == "point":
        return Section("Uncertainty", text)
    names = fit.row_names[np.argsort(-fit.counts.row_totals, kind="stable")[:SHOWN_ROWS]]
    figure = drawn(
        lambda: plots.loadings_intervals(fit, names),
        "Medians and intervals of the loadings of the samples with most counts.",
    )
    return Section("Uncertainty", [*text, "The samples with most counts:"], figures=[figure])


def checks(fit: Fit) -> Section:
    """Return predictive checks; of counts on disk, how to make them."""
    if not fit.counts.rows_held:
        return Section(CHECKED, [ON_DISK])
    if isinstance(fit.noise, Quasi):
        return Section(CHECKED, [NO_DISTRIBUTION])
    if fit.is_of_matrix or is_weighted(fit.counts):
        return Section(CHECKED, [OF_ALL])
    found = predictive_checks(fit, number_to_replicate(fit, REPLICATES), seed=fit.seed)
    figure = drawn(lambda: plots.predictive_checks(found), "Statistics of replicated counts beside those observed.")
    text = [verdict_of(found), MISFITTED, P_VALUES] if found.failed else [verdict_of(found), P_VALUES]
    return Section(
        CHECKED,
        [*text, *(f"{note[:1].upper()}{note[1:]}." for note in found.notes)],
        tables=[Table(*headings_and_lines(found))],
        figures=[figure],
    )


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
        ["priors", repr(own)],
        ["noise", repr(fit.noise)],
        ["options", repr(replace(fit.options, priors=own))],
    ]
    if fit.batch is not None:
        rows.append(["batches", f"{listed(fit.batch.names.tolist())}; factors of shape {fit.batch.shape:.3g}"])
    return Section(
        "How to repeat it",
        tables=[Table(["", ""], rows, numeric=False)],
        code=PROJECT if fit.is_projected else REPEAT.format(noise=noise),
    )
