"""Numbers for figures: matched components, medians and central intervals."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import fill
from typing import Any, Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bayesnmf.checks import check_choice
from bayesnmf.fitting.fitted import Fit
from bayesnmf.inference import alignment
from bayesnmf.plots import style
from bayesnmf.plots.checks import check_matchable
from bayesnmf.results.intervals import for_intervals, kind_of_intervals, source_of_intervals
from bayesnmf.results.shares import shares_of
from bayesnmf.types import Array

Side = Literal["loadings", "components"]
DRAWS = 500  # of which quantiles of sums of features are read
LETTERS = 11  # of 10 points in an inch


KINDS = {
    "draws": "",
    **{kind: f" ({kind})" for kind in ("point", "mean field", "sampled", "linear response", "bootstrap")},
}


class Interval(NamedTuple):
    """Medians and ends of central intervals; for a point estimate its values, with ends None.

    `kind` follows the label of a fit in legends: what the intervals are.
    """

    middle: Array
    low: Array | None
    high: Array | None
    kind: str = KINDS["point"]

    def named(self, label: str) -> str:
        """Return the label of a fit with the kind of its intervals, unless the label says it."""
        return label if label in self.kind else f"{label}{self.kind}"

    def draw(self, ax: Axes, row: int, places: Array, look: style.Look, label: str, across: bool = False) -> None:
        """Draw one row of the numbers at these places, upright or, smaller, across, with a marker at each middle."""
        width, size = (1.3, 3.5) if across else (1.6, 4.0)
        if self.low is not None and self.high is not None:
            lines = ax.hlines if across else ax.vlines
            lines(places, self.low[row], self.high[row], color=look.colour, linewidth=width)
        at = (self.middle[row], places) if across else (places, self.middle[row])
        ax.plot(*at, look.marker, color=look.colour, markersize=size, linestyle="none", label=self.named(label))

    def times(self, factor: Array) -> Interval:
        """Return all numbers, multiplied."""
        if self.low is None or self.high is None:
            return Interval(self.middle * factor, None, None, self.kind)
        return Interval(self.middle * factor, self.low * factor, self.high * factor, self.kind)


def match_fits(fits: Mapping[str, Fit], reference: str | None) -> tuple[str, dict[str, Array]]:
    """Return the label of the reference (by default the first), and for each fit the order that matches it."""
    check_matchable(fits)
    chosen = next(iter(fits)) if reference is None else check_choice(reference, "reference", fits)
    orders = {label: alignment.match_fits(fit, fits[chosen]) for label, fit in fits.items()}
    orders[chosen] = np.arange(fits[chosen].rank)  # equal components have no best matching
    return chosen, orders


def has_proportions(fit: Fit) -> bool:
    """Return whether the loadings are proportions."""
    return fit.priors.loadings.support != "positive"  # type: ignore[union-attr]


def component_sums(fit: Fit) -> Array:
    """Return the sum of each component, (K,), by which figures multiply loadings and divide components.

    It is 1 for components on the simplex; under a Gamma prior it fixes the scale, which the likelihood leaves
    undetermined. Exposures of features do not enter: components are per unit of exposure.
    """
    total = fit.components.astype(np.float64).sum(axis=-1)
    return np.where(total > 0, total, 1.0)


def normalised_components(fit: Fit) -> Array:
    """Return the components, (K, m), each divided by its sum."""
    return fit.components / component_sums(fit)[:, None]


def summarise(fit: Fit, side: Side, at: tuple[Array, Array], interval: float, response: Any = None) -> Interval:
    """Return median and central interval of some entries, on the scale on which components sum to 1.

    Quantiles are those that the intervals of the fit are read from, or those of its linear response, if it is given.
    """
    component = at[1] if side == "loadings" else at[0]
    unit = component_sums(fit)[component] if side == "loadings" else 1 / component_sums(fit)[component]
    tail = (1 - interval) / 2
    read = for_intervals(fit) if response is None else fit
    found = (response or read.estimate).quantiles(side, at, np.array([tail, 0.5, 1 - tail]))
    if found is None:
        return Interval(getattr(fit, side)[at] * unit, None, None)
    low, middle, high = found * unit
    return Interval(middle, low, high, KINDS[kind_of_intervals(read) if response is None else response.kind])


def summarise_rows(
    fit: Fit, rows: Array, order: Array, interval: float, values: str = "loadings", response: Any = None
) -> Interval:
    """Return middle and central interval of the loadings, shares or expected counts of some rows, (rows, K).

    Middles of shares are means, others medians.
    """
    if values != "shares":
        found = summarise(fit, "loadings", (rows[:, None], order[None, :]), interval, response)
        return found if values == "loadings" else found.times(_counts_of_loadings(fit)[np.ix_(rows, order)])
    if response is None:
        share, low, high = (each[:, order] for each in shares_of(fit, rows, interval).values())
        kind = KINDS[kind_of_intervals(for_intervals(fit))]
        return Interval(share, None, None) if np.isnan(low).all() else Interval(share, low, high, kind)
    table = response.proportions(fit.row_names[rows], interval)
    middle, low, high = (table[name].to_numpy().reshape(len(rows), -1)[:, order] for name in ("mean", "lower", "upper"))
    return Interval(middle, low, high, KINDS[response.kind])


def _counts_of_loadings(fit: Fit) -> Array:
    """Return what loadings of components that sum to 1 are multiplied by to be expected counts, (n, K)."""
    sums = fit.loadings.sum(axis=1, dtype=np.float64)
    of_rows = fit.expected_loadings.sum(axis=1, dtype=np.float64) / np.where(sums > 0, sums, 1.0)
    exposed: Array = fit.exposed_components.sum(axis=1, dtype=np.float64) / component_sums(fit)
    return of_rows[:, None] * exposed


def summarise_sums(fit: Fit, order: Array, members: list[list[int]], interval: float) -> Interval:
    """Return median and central interval of sums of features, (K, number of sums), of components that sum to 1."""
    if all(len(each) == 1 for each in members):
        return summarise(fit, "components", (order[:, None], np.array(members)[:, 0][None, :]), interval)
    starts = np.cumsum([0, *map(len, members[:-1])])

    def summed(components: Array) -> Array:
        values = components[order][:, np.concatenate(members)] / component_sums(fit)[order, None]
        return np.add.reduceat(values, starts, axis=1)

    read = for_intervals(fit)
    if read.estimate.kind == "point":
        return Interval(summed(fit.components), None, None)
    drawn = np.array([summed(components) for *_, components in read.estimate.iterate(read, DRAWS, fit.seed)])
    tail = (1 - interval) / 2
    low, middle, high = np.quantile(drawn, [tail, 0.5, 1 - tail], axis=0)
    return Interval(middle, low, high, KINDS[kind_of_intervals(read)])


def named_middles(fits: Mapping[str, Fit], interval: str = "90 % interval") -> str:
    """Return what is drawn of these fits: medians of a bootstrap are no posterior's, and points have no interval."""
    if all(fit.estimate.kind == "point" and fit.intervals is None for fit in fits.values()):
        return "point estimate"
    replicated = any(fit.intervals and fit.intervals.kind == "bootstrap" for fit in fits.values())
    return f"{'median' if replicated else 'posterior median'} and {interval}"


def named_sources(fits: Mapping[str, Fit], figure: Figure) -> str:
    """Return lines with what intervals other than those of samplers are, for the heading of a figure; "" without."""
    width = int(LETTERS * figure.get_figwidth())
    sources = {label: source_of_intervals(for_intervals(fit)) for label, fit in fits.items()
               if fit.by.posterior != "draws"}  # fmt: skip
    # Points have none. What to call for better ones is no part of a figure.
    sources = {label: source.partition("; fit.")[0] for label, source in sources.items() if source}
    if len(fits) > 1:
        sources = {label: f"{label}: {source.removeprefix('intervals: ')}" for label, source in sources.items()}
    return "".join(f"\n{fill(line, width)}" for line in sources.values())
