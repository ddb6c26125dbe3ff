"""The sections of the components on the page of a fit: their sizes, their pictures, and what sets each apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bayesnmf import plots
from bayesnmf.assessment.markers import markers
from bayesnmf.data.mutations import read_types
from bayesnmf.data.several import SeveralCounts
from bayesnmf.fitting.fitted import Fit
from bayesnmf.pages.parts import Figure, Number, Section, Table, drawn, share
from bayesnmf.pages.reading import Read
from bayesnmf.pages.words import say
from bayesnmf.plots.factors import SYMBOLS, is_ensembl
from bayesnmf.plots.style import SHOWN
from bayesnmf.results.intervals import for_intervals
from bayesnmf.results.markers import leading_features
from bayesnmf.text import rate

DRAWS, MARKED, NAMED = 200, 10, 5
LONG = 30  # rows of a table beyond which it is on the screen alone


def shared_among_matrices(fit: Fit) -> Section:
    """Return how the expected counts of each component are shared among matrices, with intervals."""
    shares = [_in_words(each) for each in fit.matrices().to_dict("records")]
    counts: Any = fit.counts
    number = len(counts.matrices.names)
    rows = [[title, *shares[k * number : (k + 1) * number]] for k, title in enumerate(fit.component_titles)]
    return Section(
        "Matrices", [say("components.matrices")], tables=[Table(["component", *counts.matrices.names], rows)]
    )


def _in_words(row: dict[Any, Any]) -> Number:
    if "lower" not in row:
        return share(row["share"])
    text = f"{row['share']:.1%} [{row['lower']:.1%}, {row['upper']:.1%}]"
    return Number(text, row["share"], row["lower"], row["upper"])


def components_of_matrices(read: Read) -> list[Section]:
    """Return the components: of several matrices, a section for each, after how counts are shared among them."""
    fit = read.fit
    if not isinstance(fit.counts, SeveralCounts):
        return [components(read, fit)]
    own = [(name, components(read, fit.matrix(name))) for name in fit.counts.matrices.names]
    headed = [replace(section, heading=f"{section.heading}: {name}") for name, section in own]
    return [shared_among_matrices(fit), *headed]


def components(read: Read, fit: Fit) -> Section:
    """Return the sizes and the leading features of each component, and what sets each apart, of a fit or a matrix."""
    text = [say("components.about")]
    pictures = _pictures(read, fit)
    if fit.rank == 1:
        return Section("Components", text, figures=pictures)
    found = markers(fit, MARKED, draws=DRAWS)
    higher = found[found["lfc_next"] > 0]
    text += [f"{SYMBOLS}."] * is_ensembl(higher["feature"].to_numpy())
    tables = [_sizes(read, fit, found), _table(read, fit, higher)]
    return Section(
        "Components",
        [*text, say("components.markers")],
        cautions=found.attrs["cautions"],
        figures=pictures,
        tables=tables,
    )


def _sizes(read: Read, fit: Fit, found: Any) -> Table:
    """Return sizes of the components, in how many samples each leads, and the features that set it apart.

    Without intervals, rare features have the largest changes by chance, so the most distinct ones are shown.
    """
    leaders = None if found.attrs["intervals"] else fit.feature_names[leading_features(fit, NAMED, "distinct")]
    numbers, medians = np.bincount(read.lead[read.lead >= 0], minlength=read.fit.rank), np.median(read.shares, axis=0)
    rows = []
    for k, (label, title) in enumerate(zip(read.fit.component_labels, read.fit.component_titles, strict=True)):
        part = found[found["component"] == label]
        names = part["feature"][part["lfc_next"] > 0].head(NAMED).map(str).tolist()
        names = list(map(str, leaders[k])) if names and leaders is not None else names
        told = ", ".join(names) or say("components.nothing" if len(part) else "components.idle")
        leads = Number(f"{numbers[k]:,}", numbers[k])
        rows.append([title, share(read.sizes[k]), leads, share(medians[k]), told])
    last = "set apart most surely by" if leaders is None else "leading features"
    headings = ["component", "share of all counts", "leads in samples", "median share", last]
    return Table(headings, rows, colours=read.colours)


def _table(read: Read, fit: Fit, higher: Any) -> Table:
    """Return the features that set components apart."""
    number = {label: k for k, label in enumerate(read.fit.component_labels)}
    draws = for_intervals(fit).estimate.length(DRAWS)  # as many as the fit has, if they are fewer
    rows, colours = [], []
    for each in higher.itertuples():
        change = Number(f"{each.lfc_next:.1f}", each.lfc_next)
        if not np.isnan(each.lfc_next_low):
            ends = each.lfc_next_low, each.lfc_next_high
            change = Number(f"{change} [{ends[0]:.1f}, {ends[1]:.1f}]", each.lfc_next, *ends)
        sign = Number("–" if np.isnan(each.lfsr_next) else rate(each.lfsr_next, draws), each.lfsr_next)
        k = number[each.component]
        rows.append([read.fit.component_titles[k], str(each.feature), share(each.share, 2),
                     Number(f"{each.lift:.3g}", each.lift), change, sign])  # fmt: skip
        colours.append(read.colours[k])
    headings = ["component", "feature", "share", "lift", "log2 change", "lfsr"]
    return Table(headings, rows, colours=colours, printed=len(rows) <= LONG)


def _pictures(read: Read, fit: Fit) -> list[Figure]:
    """Return the picture of the components: of many signatures the largest, of many others none beside their table."""
    known, shape = read.given.known, read.given.image_shape
    if shape is not None:
        return [drawn(lambda: plots.components(fit, image_shape=shape), say("components.images"))]
    types = read_types(fit.feature_names)
    if types is not None and types.is_complete:
        told = [say("components.mutations"), say("components.largest", shown=SHOWN, all=fit.rank)]
        told = told if fit.rank > SHOWN else told[:1]
        return [drawn(lambda: plots.signatures(fit, known, n=SHOWN), " ".join(told))]
    if fit.rank > SHOWN:
        return []
    return [drawn(lambda: plots.components(fit), say("components.features"))]
