"""The sections of the page of a fit."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.colors import to_hex

from bayesnmf import plots
from bayesnmf.assessment.markers import markers
from bayesnmf.assessment.predictive_checks import PredictiveChecks, predictive_checks
from bayesnmf.data.mutations import read_types, sbs96_types
from bayesnmf.fitting.fit import Fit
from bayesnmf.fitting.progress import ProgressReport
from bayesnmf.options import METHODS as RECORDS
from bayesnmf.pages.parts import Card, Section, Table, drawn
from bayesnmf.pages.references import SIGNS, references_of
from bayesnmf.pages.words import INTERVALS, MARKERS, METHODS, MODELS
from bayesnmf.plots.style import colours_of
from bayesnmf.results.cautions import cautions_of
from bayesnmf.results.resampling import is_resampled
from bayesnmf.results.topic_model import to_topic_model
from bayesnmf.text import number

REPLICATES, DRAWS, MARKED, SHOWN_ROWS, MOST_BARS = 50, 200, 10, 4, 2000
REPEAT = """import bayesnmf

fit = bayesnmf.load("fit.nc")  # the file of this fit: it has the counts, the priors and all settings
again = bayesnmf.fit(fit.counts, fit.model, fit.rank, fit.method, seed=fit.seed, options=fit.options)"""


def sections_of_fit(
    fit: Fit, groups: Any, image_shape: tuple[int, int] | None, told: ProgressReport
) -> tuple[str, list[Section]]:
    """Return the heading and the sections."""
    title = f"{fit.rank} component{'s' if fit.rank > 1 else ''} of {fit.counts.shape[0]:,} samples"
    made = []
    for done, part in enumerate(
        (
            lambda: overview(fit),
            lambda: composition(fit, groups),
            lambda: components(fit, image_shape),
            lambda: convergence(fit),
            lambda: uncertainty(fit),
            lambda: checks(fit),
            lambda: settings(fit),
        )
    ):
        told("report", done, 7, np.nan)
        made.append(part())
    told("report", 7, 7, np.nan)
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
        ["components", f"{fit.rank}"],
        ["method", METHODS[fit.method]],
        ["status", f"{'converged' if fit.status.converged else 'not converged'}: {fit.status.reason}"],
    ]
    if counts.exposed:
        rows.insert(1, ["exposures", "given; loadings and components are per unit of exposure"])
    return Section("What was fitted", cautions=cautions_of(fit), tables=[Table(["", ""], rows, numeric=False)])


def composition(fit: Fit, groups: Any) -> Section:
    """Return the structure plot, and the size of each component."""
    proportions = to_topic_model(fit).proportions
    n = len(proportions)
    leading = np.bincount(proportions.argmax(axis=1), minlength=fit.rank)
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
        ["Each bar is a sample; colours are the shares of the components in its expected counts."],
        tables=[Table(["component", "share of all counts", "samples where it is largest", "median share"], rows)],
        figures=[picture],
    )


def components(fit: Fit, image_shape: tuple[int, int] | None) -> Section:
    """Return the leading features of each component, with intervals, and what sets each apart."""
    text = [
        "Each component is a distribution over the features. Bars are shares of the component; lines are intervals."
    ]
    types = read_types(fit.feature_names)
    signatures = image_shape is None and types is not None and types.is_complete and types.kind == sbs96_types()
    picture = drawn(
        lambda: plots.sbs96(fit) if signatures else plots.components(fit, image_shape=image_shape),
        "The features with the largest share in each component."
        if image_shape is None
        else "The components as images.",
    )
    colours = [to_hex(colour) for colour in colours_of(fit.rank)]
    if fit.rank == 1:
        return Section("Components", text, figures=[picture])
    table = markers(fit, MARKED, draws=DRAWS)
    cards = []
    for title, colour, (_, part) in zip(
        fit.component_titles, colours, table.groupby("component", sort=False), strict=True
    ):
        cards.append(Card(title, colour, "features that set it apart most surely", _marker_table(part)))
    return Section("Components", [*text, MARKERS], cards=cards, figures=[picture])


def _marker_table(part: Any) -> Table:
    rows = []
    for each in part.itertuples():
        change = f"{each.lfc_next:.1f}"
        if not np.isnan(each.lfc_next_low):
            change += f" [{each.lfc_next_low:.1f}, {each.lfc_next_high:.1f}]"
        rate = "–" if np.isnan(each.lfsr_next) else f"{each.lfsr_next:.3f}" if each.lfsr_next else f"< {1 / DRAWS:.3f}"
        rows.append([str(each.feature), f"{each.weight:.2%}", f"{each.lift:.3g}", change, rate])
    return Table(["feature", "share", "lift", "log2 change", "lfsr"], rows)


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
    text = [INTERVALS[fit.estimate.kind]]
    if fit.estimate.kind == "point":
        return Section("Uncertainty", text)
    names = fit.row_names[np.argsort(-fit.counts.row_totals, kind="stable")[:SHOWN_ROWS]]
    figure = drawn(
        lambda: plots.loadings_intervals(fit, names),
        "Posterior medians and intervals of the loadings of the samples with most counts.",
    )
    return Section("Uncertainty", [*text, "The samples with most counts:"], figures=[figure])


def checks(fit: Fit) -> Section:
    """Return predictive checks."""
    found = predictive_checks(fit, fit.estimate.length(REPLICATES), seed=fit.seed)
    figure = drawn(lambda: plots.predictive_checks(found), "Statistics of replicated counts beside those observed.")
    every: Any = found.table.itertuples()
    rows = [
        [str(each.Index), *map(number, (each.observed, each.mean, each.low, each.high)), f"{each.p_value:.3f}"]
        for each in every
    ]
    headings = ["statistic", "observed", "replicates", f"{found.interval:.0%} from", "to", "p-value"]
    return Section(
        "Could the model have made these counts?",
        [_verdict(found), *(f"{note[:1].upper()}{note[1:]}." for note in found.notes)],
        tables=[Table(headings, rows)],
        figures=[figure],
    )


def _verdict(found: PredictiveChecks) -> str:
    if not found.failed:
        return f"All statistics of the counts lie within the {found.interval:.0%} interval of {found.draws} replicates."
    listed = ", ".join(found.failed)
    return (
        f"Outside the {found.interval:.0%} interval of {found.draws} replicates: {listed}. The counts vary in ways "
        "that the model does not have; components may be missing, or counts may vary more than Poisson."
    )


def settings(fit: Fit) -> Section:
    """Return what is needed to repeat the fit."""
    rows = [
        ["model", fit.model],
        ["method", f"{fit.method} (bayesnmf.{RECORDS[fit.method].options.__name__})"],
        ["rank", str(fit.rank)],
        ["seed", str(fit.seed)],
        ["objective", f"{fit.objective} {fit.trace.mean() if fit.trace.ndim == 2 else fit.trace[-1]:,.3f}"],
        ["priors", repr(fit.priors)],
        ["options", repr(fit.options)],
    ]
    return Section("How to repeat it", tables=[Table(["", ""], rows, numeric=False)], code=REPEAT)
