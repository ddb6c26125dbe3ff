"""A picture of all samples: those with alike shares of components lie near each other."""

from __future__ import annotations

import warnings
from importlib.util import find_spec

import numpy as np
from matplotlib.colors import to_hex

from bayesnmf.pages.parts import Cloud, Dot, Legend
from bayesnmf.pages.reading import Read
from bayesnmf.plots.style import OTHERS, PALETTE, leading
from bayesnmf.results.kept import kept_with_fit
from bayesnmf.results.record import FitRecord
from bayesnmf.results.topic_model import to_topic_model
from bayesnmf.types import Array

MOST, FEWEST = 2000, 20  # samples
WIDTH, HEIGHT, EDGE = 640, 420, 10
NEIGHBOURS, ITERATIONS = 30, 350
TOLD = (
    "Each dot is a sample, and samples with alike shares of the components lie near each other (t-SNE of the square "
    "roots of the shares). Distances between groups that are far apart, and sizes of groups, mean nothing."
)


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
    some = f" {len(rows):,} of {len(read.shares):,} samples are shown." if len(rows) < len(read.shares) else ""
    return Cloud(dots, legends, f"{TOLD}{some}", WIDTH, HEIGHT)


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
