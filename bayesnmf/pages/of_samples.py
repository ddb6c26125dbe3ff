"""The sections of the samples on the page of a fit: what they consist of, and how sure that is."""

from __future__ import annotations

import numpy as np

from bayesnmf import plots
from bayesnmf.options import METHODS as RECORDS
from bayesnmf.pages.cloud import cloud_of
from bayesnmf.pages.parts import Number, Section, Table, drawn, share
from bayesnmf.pages.reading import Read
from bayesnmf.pages.words import INTERVALS
from bayesnmf.results.intervals import kind_of_intervals, source_of_intervals
from bayesnmf.types import Array

TYPICAL, LARGEST, MOST_BARS = 4, 2, 2000
CHOSEN = (
    "The first are typical: of the samples that a component leads, the one whose shares are nearest to their average, "
    "for the components that lead most often. The last have the most counts of all, and so the narrowest intervals."
)


def composition(read: Read) -> Section:
    """Return the structure plot, a picture of all samples, and mean shares by group."""
    fit, groups, n = read.fit, read.given.groups, len(read.shares)
    most = None if groups is None and n <= MOST_BARS else MOST_BARS
    picture = drawn(
        lambda: plots.structure(fit, groups, most),
        "One stacked bar for each sample: the share of each component in its expected counts.",
    )
    text = [
        "Each bar is a sample; colours are the shares of the components in its expected counts. In a sample the "
        "component leads that sets it apart most: the greatest share × log(share / mean share)."
    ]
    if groups and groups.ungrouped:
        text.append(f"{groups.ungrouped:,} samples without a group are left out.")
    tables = [] if groups is None else [_by_group(read)]
    return Section("What the samples consist of", text, tables=tables, figures=[picture], cloud=cloud_of(read))


def _by_group(read: Read) -> Table:
    """Return the mean share of each component in each group: a row for each component."""
    groups, rows = read.given.groups, [[title] for title in read.fit.component_titles]
    headings = ["mean share of"]
    for name in groups.names:
        inside = groups.labels == name
        headings.append(f"{name} ({inside.sum():,})")
        for row, mean in zip(rows, read.shares[inside].mean(axis=0), strict=True):
            row.append(share(mean))
    return Table(headings, rows, colours=read.colours)


def uncertainty(read: Read) -> Section:
    """Return what the intervals are, and those of some samples."""
    fit, of = read.fit, read.intervals
    text = [INTERVALS[kind_of_intervals(of)]]
    if RECORDS[fit.method].posterior != "draws" and (source := source_of_intervals(of)):
        text.append(f"{source[:1].upper()}{source[1:]}.")
    if of.estimate.kind == "point":
        return Section("Uncertainty", text)
    typical = typical_rows(read.shares, read.lead)
    totals = fit.counts.row_totals.copy()
    totals[typical] = -1
    rows = [*typical, *np.argsort(-totals, kind="stable")[: min(LARGEST, len(totals) - len(typical))].tolist()]
    # Of the fit itself: what it is read from is kept beside it, so that nothing is sampled again.
    figure = drawn(
        lambda: plots.loadings_intervals(fit, fit.row_names[rows]), "Medians and intervals of loadings of some samples."
    )
    lines = []
    for row in rows:
        total, chosen = fit.counts.row_totals[row], "typical" if row in typical else "most counts"
        lead = read.lead[row]
        first = (fit.component_titles[lead], share(read.shares[row, lead], 0)) if lead >= 0 else ("–", "–")
        own = Number(f"{total:,.12g}", total), *first
        lines.append([str(fit.row_names[row]), chosen, *own])
    table = Table(["sample", "chosen as", "counts", "leading component", "its share"], lines)
    return Section("Uncertainty", [*text, CHOSEN], figures=[figure], tables=[table])


def typical_rows(shares: Array, lead: Array) -> list[int]:
    """Return for up to 4 components that lead most often, the row nearest to the mean of the rows that each leads."""
    numbers = np.bincount(lead[lead >= 0], minlength=shares.shape[1])
    found = []
    for k in np.argsort(-numbers, kind="stable")[:TYPICAL]:
        inside = np.flatnonzero(lead == k)
        if len(inside):
            roots = np.sqrt(shares[inside])
            found.append(int(inside[np.square(roots - roots.mean(axis=0)).sum(axis=1).argmin()]))
    return found
