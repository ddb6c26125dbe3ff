"""The record of a fit: point summaries, posterior, trace and status, and what is computed of it once and kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, NamedTuple, Self
from weakref import WeakKeyDictionary

import numpy as np

from bayesnmf.data.counts import Counts
from bayesnmf.data.powered import working_counts
from bayesnmf.inference.status import Status
from bayesnmf.noise.abilities import DISPERSION as DISPERSION
from bayesnmf.noise.abilities import Noise
from bayesnmf.noise.poisson import POISSON
from bayesnmf.options import Method, Options, method_of
from bayesnmf.priors import Priors
from bayesnmf.priors.specification import MODELS
from bayesnmf.priors.values import component_sums
from bayesnmf.results.batches import FittedBatches, iterate_factors, widened
from bayesnmf.results.estimates import Draws, Intervals, Point, VariationalPosterior
from bayesnmf.types import Array

HELD = "components_held"  # diagnostic of fits of new rows
OF_MATRIX = "share_of_matrix"  # diagnostic of one of several matrices of a fit: its share of the counts of its rows
LEARNED = "dispersion_learned"  # diagnostic of fits whose dispersion was not given
COMPONENT = "k"  # dimension of components in trees; ArviZ's psense_summary makes one named "component"


SITE = "site "  # how the names of statistics begin that are other sites of a program, or of draws from elsewhere

AT_THE_END = ("converged", "iterations", "objective", "objective_change")  # diagnostics of every fit


class Reference(NamedTuple):
    """The fit that new rows were projected onto, and the totals of these rows with all features given, (n,)."""

    fit: FitRecord
    totals: Array


@dataclass(frozen=True, eq=False, repr=False)
class FitRecord:
    """Data of a fitted model, the argument of all functions that take a fit.

    `bayesnmf.Fit` adds the methods and documents the attributes. It is defined above the functions that its methods
    call.
    """

    model: str
    method: str
    rank: int
    loadings: Array
    components: Array
    scale: Array | None
    trace: Array
    status: Status
    priors: Priors
    options: Options
    counts: Counts
    seed: int
    seconds: float
    diagnostics: dict[str, float]
    residuals: Array | None = None
    multipliers: tuple[Array, Array] | None = None
    statistics: dict[str, Array] | None = None
    moments: dict[str, Array] | None = None
    component_names: Array | None = None
    intervals: Intervals | None = None
    noise: Noise = POISSON
    estimate: Point | VariationalPosterior | Draws = field(default_factory=Point)
    batch: FittedBatches | None = None
    sites: dict[str, str] | None = None
    reference: Reference | None = field(default=None, metadata={"saved": False})  # of a projection

    def __post_init__(self) -> None:
        object.__setattr__(self, "diagnostics", {**_end_of(self.trace, self.status), **self._own_diagnostics()})

    def _own_diagnostics(self) -> dict[str, float]:
        """Return the diagnostics without what is known of every fit, which follows from its trace and status."""
        return {name: value for name, value in self.diagnostics.items() if name not in AT_THE_END}

    @property
    def by(self) -> Method:
        """The record of its method."""
        return method_of(self.method)

    @property
    def posterior(self) -> VariationalPosterior | Draws:
        """The closed-form q (vi, svi) or the draws (gibbs, nuts)."""
        if isinstance(self.estimate, Point):
            cure = "fit with method='vi' (or 'gibbs', 'nuts', 'svi')"
            if not self.is_projected and self.intervals is None:
                cure += "; for intervals alone, fit.with_intervals('bootstrap')"
            if not self.by.runner:
                raise AttributeError(f"a {self.method} has no posterior; give draws to bayesnmf.from_draws")
            raise AttributeError(f"a {self.method.upper()} fit has no posterior; {cure}")
        return self.estimate

    @classmethod
    def of(cls, record: FitRecord) -> Self:
        """Return a fit with the data of a record."""
        return cls(**vars(record))

    @property
    def is_projected(self) -> bool:
        """Whether the components are held from another fit, as by `Fit.project`."""
        return HELD in self.diagnostics

    @property
    def is_of_matrix(self) -> bool:
        """Whether this is one of several matrices of a fit, as of `Fit.matrix`."""
        return OF_MATRIX in self.diagnostics

    @property
    def working_counts(self) -> Counts:
        """The counts that routines for Poisson counts are given, so that they see the likelihood of this fit."""
        totals, components = MODELS[self.model].given_totals, self.priors.components
        working = working_counts(self.counts, self.noise, given_totals=totals, components=components)
        return working if self.batch is None else self.batch.around(working, held=self.is_projected)

    @property
    def row_names(self) -> Array:
        """Names of the samples."""
        return self.counts.row_names

    @property
    def feature_names(self) -> Array:
        """Names of the features."""
        return self.counts.feature_names

    @property
    def component_labels(self) -> Array:
        """Names of the components in tables: their numbers unless `Fit.rename` named them."""
        return np.arange(self.rank) if self.component_names is None else self.component_names

    @property
    def component_titles(self) -> list[str]:
        """Names of the components in figures and headings."""
        if self.component_names is None:
            return [f"component {k}" for k in range(self.rank)]
        return self.component_names.tolist()

    @property
    def expected_loadings(self) -> Array:
        """Loadings on the scale of the counts, (n, K): times scale, given totals and exposure.

        Their product with `exposed_components` gives the fitted means.
        """
        return effective_loadings(self, self.loadings, self.scale, self.components)

    @property
    def exposed_components(self) -> Array:
        """Components times the exposure of the features, (K, m); the components themselves without exposures."""
        return self.counts.exposed_components(self.components)

    @property
    def mean_factors(self) -> tuple[Array, Array]:
        """Two factors whose product are the fitted means, those of batches included."""
        own = self.expected_loadings, self.exposed_components
        return own if self.batch is None else widened(self.counts.batch.codes, *own, self.batch.mean)

    @property
    def expected_sizes(self) -> Array:
        """Expected counts of each component, over all rows and features, (K,)."""
        return self.expected_loadings.sum(axis=0, dtype=np.float64) * component_sums(self.exposed_components)

    @property
    def objective(self) -> str:
        """Name of the objective in `trace`."""
        if self.by.objective_of_rows and self.multipliers is None:
            return self.by.objective_of_rows
        return self.by.objective.format(bound=getattr(self.options, "bound", ""))


def component_axis(shape: tuple[int, ...], rank: int) -> int | None:
    """Return the axis of another site that is that of the components: the only one of their number, if there is one."""
    return shape.index(rank) if rank > 1 and shape.count(rank) == 1 else None


def _end_of(trace: Array, status: Status) -> dict[str, float]:
    """Return how a fit ended: of chains, the mean of the objective, and half the difference of the means of halves."""
    last, before = np.nan, np.nan
    if trace.ndim == 1 and trace.size:
        last, before = float(trace[-1]), float(trace[-2:][0])
    elif trace.size:
        half = trace.shape[1] // 2
        last, before = float(trace.mean()), float(trace[:, : max(half, 1)].mean())
    with np.errstate(invalid="ignore"):
        change = (last - before) / max(abs(last), np.finfo(float).tiny)
    return dict(zip(AT_THE_END, (float(status.converged), float(status.iterations), last, float(change)), strict=True))


def effective_loadings(fit: Any, loadings: Array, scale: Array | None, components: Array) -> Array:
    """Return loadings (…, n, K) on the scale of the counts: times scale, or the given row totals, and exposure.

    The components (…, K, m) that belong to them say how much of a row's total is missing.
    """
    if MODELS[fit.model].given_totals:
        return loadings * expected_totals(fit.counts, loadings, components)[..., None]
    return fit.counts.exposed_loadings(loadings if scale is None else loadings * scale[..., None])


def factors_of_means(
    fit: Any,
    loadings: Array,
    components: Array,
    factors: Array | None,
    features: Array | None = None,
    rows: slice = slice(None),
) -> tuple[Array, Array]:
    """Return two factors whose products are means of entries, given loadings (…, n, K) of these rows.

    They are these and the components (…, K, m) times exposures of features, or of some at given positions; with factors
    of batches (…, B, m), those of `bayesnmf.results.batches.widened`.
    """
    exposed = fit.counts.exposed_components(components, features)
    return (loadings, exposed) if factors is None else widened(fit.counts.batch.codes[rows], loadings, exposed, factors)


def expected_totals(counts: Counts, loadings: Array, components: Array) -> Array:
    """Return the given totals of rows, (n,); with missing entries, those that all entries would have, (…, n)."""
    totals, mask = counts.row_totals, counts.mask
    if mask is None:
        return totals
    whole = np.empty(loadings.shape[:-1])
    for at in np.ndindex(loadings.shape[:-2]):
        seen = 1.0 - mask.products_by_row(loadings[at], components[at].T)
        whole[at] = totals / np.maximum(seen, np.finfo(np.float64).eps)
    return whole


def trace_of_kept(fit: FitRecord) -> Array:
    """Return the log joint of the kept draws of gibbs or nuts, (chains, draws)."""
    return fit.trace[:, :: int(fit.diagnostics.get("kept_every", 1))]


def iterate_draws(fit: FitRecord, draws: int, seed: int, *, shares: bool = False) -> Iterator[tuple[Array, Array]]:
    """Yield pairs of draws, one at a time: loadings on the scale of the counts (n, K) and exposed components (K, m).

    With `shares`, loadings are not multiplied by scale, given row totals and exposure, so that rows with total 0 are
    included. Draws from q are independent; those of gibbs and nuts are evenly spaced among all chains; a point estimate
    yields its point.
    """
    for loadings, scale, components in fit.estimate.iterate(fit, draws, seed):
        exposed = fit.counts.exposed_components(components)
        yield loadings if shares else effective_loadings(fit, loadings, scale, components), exposed


def iterate_means(fit: FitRecord, draws: int, seed: int) -> Iterator[tuple[Array, Array]]:
    """Yield pairs of factors, draw by draw, whose products are in proportion to the means of the entries of a row."""
    sides, of_batches = iterate_draws(fit, draws, seed, shares=True), iterate_factors(fit, draws, seed)
    for (loadings, exposed), factors in zip(sides, of_batches, strict=False):
        yield (loadings, exposed) if factors is None else widened(fit.counts.batch.codes, loadings, exposed, factors)


def kept_with_fit[R](of_fit: Callable[[FitRecord], R]) -> Callable[[FitRecord], R]:
    """Return a function of a fit that computes its result once for each; a fit is never changed."""
    found: WeakKeyDictionary[FitRecord, R] = WeakKeyDictionary()

    @wraps(of_fit)
    def once(fit: FitRecord) -> R:
        if fit not in found:
            found[fit] = of_fit(fit)
        return found[fit]

    return once
