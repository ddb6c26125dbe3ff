"""The sections of the samples on the page of a fit: what they consist of, and how sure that is."""

from __future__ import annotations

import warnings
from importlib.util import find_spec

import numpy as np
from matplotlib.colors import to_hex

from bayesnmf import plots
from bayesnmf.pages.parts import Cloud, Dot, Legend, Number, Section, Table, drawn, share
from bayesnmf.pages.reading import Read
from bayesnmf.pages.words import capital, say
from bayesnmf.plots.style import OTHERS, PALETTE, leading
from bayesnmf.results.intervals import kind_of_intervals, source_of_intervals
from bayesnmf.results.record import FitRecord, kept_with_fit
from bayesnmf.results.topic_model import to_topic_model
from bayesnmf.types import Array

MOST, FEWEST = 2000, 20  # samples
WIDTH, HEIGHT, EDGE = 640, 420, 10
NEIGHBOURS, ITERATIONS = 30, 350
TYPICAL, LARGEST, MOST_BARS = 4, 2, 2000


def cloud_of(read: Read) -> Cloud | None:
    """Return the picture; None for one or two components, for few samples, and without scikit-learn."""
    placed = _placed(read.fit)
    if placed is None:
        return None
    (rows, places), by_component = placed, _of_components(read)
    legends, groups = [by_component[0]], read.given.groups
    numbers = by_component[1][read.lead[rows]][:, None]
    if groups is not None:
        of_groups, own = _of_groups(groups.names, groups.labels[rows])
        legends, numbers = [*legends, of_groups], np.column_stack([numbers, own])
    names, titles = read.fit.row_names[rows], read.fit.component_titles
    dots = [
        Dot(round(float(x), 1), round(float(y), 1), own.tolist(), f"{name}: {titles[k]} {read.shares[row, k]:.0%}")
        for (x, y), own, name, k, row in zip(places, numbers, names, read.lead[rows], rows, strict=True)
    ]
    told, all_rows = [say("samples.cloud")], len(read.shares)
    told += [say("samples.some", shown=len(rows), all=all_rows)] if len(rows) < all_rows else []
    return Cloud(dots, legends, " ".join(told), WIDTH, HEIGHT)


@kept_with_fit
def _placed(fit: FitRecord) -> tuple[Array, Array] | None:
    """Return the rows that are shown and their places, the same in every page of the fit; None for no picture."""
    shares, counted = to_topic_model(fit).proportions, np.flatnonzero(fit.counts.row_totals > 0)
    rows = counted[np.linspace(0, len(counted) - 1, min(len(counted), MOST)).round().astype(int)]
    if fit.rank < 3 or len(rows) < FEWEST or find_spec("sklearn") is None:
        return None
    roots = np.sqrt(shares[rows])
    return (rows, _in_plane(roots)) if roots.std(axis=0).any() else None


def _in_plane(roots: Array) -> Array:
    """Return places in the box. One thread: several would wait for each other in loops this short."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    near = min(NEIGHBOURS, (len(roots) - 1) / 3)
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of the first components of shares that hardly differ
        made = TSNE(init="pca", perplexity=near, max_iter=ITERATIONS, random_state=0, n_jobs=1).fit_transform(roots)
    low, high = made.min(axis=0), made.max(axis=0)
    within = (made - low) / np.maximum(high - low, np.finfo(np.float32).tiny)
    return EDGE + within * (np.array([WIDTH, HEIGHT]) - 2 * EDGE)


def _of_components(read: Read) -> tuple[Legend, Array]:
    """Return the legend of the components with colours, as in the structure plot, and the number of each component."""
    rank, titles = read.fit.rank, read.fit.component_titles
    shown = leading(read.fit.expected_sizes, None)
    numbers = np.full(rank, len(shown))
    numbers[shown] = np.arange(len(shown))
    named = [(read.colours[k], titles[k]) for k in shown]
    named += [(to_hex(OTHERS), f"others ({rank - len(shown)})")] if len(shown) < rank else []
    return Legend("leading component", named), numbers


def _of_groups(names: list[str], labels: Array) -> tuple[Legend, Array]:
    """Return the legend of groups, and the number of the group of each sample; grey without one, or beyond the last."""
    shown = names[: len(PALETTE)]
    numbers = np.array([shown.index(label) if label in shown else len(shown) for label in labels])
    named = [*zip(PALETTE, shown, strict=False), (to_hex(OTHERS), "others")]
    return Legend("group", named if np.any(numbers == len(shown)) else named[:-1]), numbers


def composition(read: Read) -> Section:
    """Return the structure plot, a picture of all samples, and mean shares by group."""
    fit, groups, n = read.fit, read.given.groups, len(read.shares)
    most = None if groups is None and n <= MOST_BARS else MOST_BARS
    picture, text = drawn(lambda: plots.structure(fit, groups, most), say("samples.structure")), [say("samples.order")]
    if groups and groups.ungrouped:
        text.append(say("samples.ungrouped", number=groups.ungrouped))
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
    text = [say(f"intervals.{kind_of_intervals(of)}.told")]
    if fit.by.posterior != "draws" and (source := source_of_intervals(of)):
        text.append(f"{capital(source)}.")
    if of.estimate.kind == "point":
        return Section("Uncertainty", text)
    typical = typical_rows(read.shares, read.lead)
    totals = fit.counts.row_totals.copy()
    totals[typical] = -1
    rows = [*typical, *np.argsort(-totals, kind="stable")[: min(LARGEST, len(totals) - len(typical))].tolist()]
    # Of the fit itself: what it is read from is kept beside it, so that nothing is sampled again.
    figure = drawn(lambda: plots.loadings_intervals(fit, fit.row_names[rows]), say("samples.intervals"))
    lines = []
    for row in rows:
        total, lead, chosen = fit.counts.row_totals[row], read.lead[row], "typical" if row in typical else "most counts"
        first = (fit.component_titles[lead], share(read.shares[row, lead], 0)) if lead >= 0 else ("–", "–")
        lines.append([str(fit.row_names[row]), chosen, Number(f"{total:,.12g}", total), *first])
    table = Table(["sample", "chosen as", "counts", "leading component", "its share"], lines)
    return Section("Uncertainty", [*text, say("samples.chosen")], figures=[figure], tables=[table])


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
