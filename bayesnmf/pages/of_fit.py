"""The page of a fit."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from bayesnmf import plots
from bayesnmf.assessment.matching import Match
from bayesnmf.assessment.predictive_checks import headings_and_lines, verdict_of
from bayesnmf.fitting.fitted import Fit
from bayesnmf.fitting.job import ProgressReport
from bayesnmf.pages.in_short import in_short, tiles
from bayesnmf.pages.of_components import components_of_matrices
from bayesnmf.pages.of_evidence import evidence
from bayesnmf.pages.of_methods import citations, methods, settings
from bayesnmf.pages.of_samples import composition, uncertainty
from bayesnmf.pages.parts import Number, Page, Section, Table, drawn
from bayesnmf.pages.reading import Given, Read, read
from bayesnmf.pages.words import MISFITTED, P_VALUES, counted
from bayesnmf.results.cautions import cautions_of, cautions_of_model
from bayesnmf.results.checks import check_groups
from bayesnmf.results.effects import has_effects_to_show
from bayesnmf.results.resampling import is_resampled
from bayesnmf.text import rate

COSINES = (
    "A cosine of 1 is the same profile. Flat profiles have large cosines with each other, whatever made them, so look "
    "at the profiles, too."
)
ENDS = "In brackets: 90 % of the draws, whose cosines are mostly below that of their mean, since each varies by itself."


def known_components(fit: Fit, known: Match) -> Section:
    """Return the known component that each component matches, with their cosines."""
    titles, rows = fit.component_titles, []
    for each in known.table.to_dict("records"):
        ends = [each["low"], each["high"]] if "low" in each else []
        told = f"{each['cosine']:.2f}{' [{:.2f}, {:.2f}]'.format(*ends) if ends else ''}"
        other = "" if each["closest"] == each["reference"] else f"{each['closest']} ({each['closest cosine']:.2f})"
        rows.append([titles[each["component"]], str(each["reference"]), Number(told, each["cosine"], *ends), other])
    text = [
        f"Components are matched one to one to those of the catalogue. {COSINES}",
        *([ENDS] if "low" in known.table else []),
        *([f"Without a match: {', '.join(titles[k] for k in known.unmatched)}."] if len(known.unmatched) else []),
        f"{len(known.leftover):,} of the catalogue are left over.",
    ]
    return Section(
        "Known components", text, tables=[Table(["component", "known as", "cosine", "closest, if another"], rows)]
    )


def page_of_fit(fit: Fit, given: Given, told: ProgressReport) -> Page:
    """Return the page."""
    number = f"{counted(fit.rank, 'component')} of {counted(fit.counts.shape[0], 'sample')}"
    if given.groups is not None:
        given = given._replace(groups=check_groups(given.groups, fit.row_names))
    told("report", 0, 10, np.nan)
    found, made = read(fit, given), []
    parts = (
        lambda: [composition(found)],
        lambda: [covariates(fit)] if has_effects_to_show(fit) else [],
        lambda: [] if given.known is None else [known_components(fit, given.known)],
        lambda: components_of_matrices(found),
        lambda: evidence(found),
        lambda: [convergence(fit)],
        lambda: [uncertainty(found)],
        lambda: [checks(found)],
        lambda: [methods(found), settings(fit), citations(found)],
    )
    for done, part in enumerate(parts, 1):
        told("report", done, len(parts) + 1, np.nan)
        made.extend(part())
    told("report", len(parts) + 1, len(parts) + 1, np.nan)
    cautions = [*cautions_of(fit), *cautions_of_model(fit)]  # that of intervals is in what may be trusted
    return Page(number, made, in_short(found), tiles(found), cautions)


def covariates(fit: Fit) -> Section:
    """Return the effects of covariates on the components, with intervals."""
    table, titles = fit.effects(), dict(zip(fit.component_labels, fit.component_titles, strict=True))
    effects, draws = cast(Any, table.itertuples()), table.attrs["draws"]
    rows = [
        [
            titles[component],
            str(term),
            Number(f"{row.effect:.3g} [{row.low:.3g}, {row.high:.3g}]", row.effect, row.low, row.high),
            Number(rate(row.lfsr, draws), row.lfsr),
        ]
        for (component, term), row in zip(table.index, effects, strict=True)
    ]
    text = f"Effects are on the {table.attrs['scale']}, in the units of the covariates; {table.attrs['intervals']}."
    tables = [Table(["component", "term", "effect", "lfsr"], rows)]
    return Section("What the loadings depend on", [text], cautions=table.attrs["cautions"], tables=tables)


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


def checks(read: Read) -> Section:
    """Return predictive checks; where there are none, why."""
    heading, found = "Could the model have made these counts?", read.checks
    if found is None:
        return Section(heading, [read.unchecked])
    figure = drawn(lambda: plots.predictive_checks(found), "Statistics of replicated counts beside those observed.")
    text = [verdict_of(found), MISFITTED, P_VALUES] if found.failed else [verdict_of(found), P_VALUES]
    notes = [f"{note[:1].upper()}{note[1:]}." for note in found.notes if not note.startswith("CAUTION ")]
    _, lines = headings_and_lines(found)
    numbers = found.table[["observed", "mean", "low", "high", "p_value", "p_adjusted"]].to_numpy()
    rows = [
        [name, Number(observed, own[0]), Number(f"{mean} [{low}, {high}]", *own[1:4]), *map(Number, chances, own[4:])]
        for (name, observed, mean, low, high, *chances), own in zip(lines, numbers, strict=True)
    ]
    table = Table(["statistic", "observed", f"right model [{found.interval:.0%}]", "p-value", "adjusted"], rows)
    return Section(heading, [*text, *notes], tables=[table], figures=[figure])
