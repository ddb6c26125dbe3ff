"""Linear response: intervals of a variational fit that include how loadings and components move together.

Its quantities are weighted sums of loadings and components; tables, correlations, draws and standard deviations of
chosen ones have exact variances, and intervals of a distribution with that mean and variance.

For readers of intervals that need draws of all entries (`draws_of_response`), a draw of the linearised mean field moves
all expectations together (`bayesnmf.inference.response.spread.draw`). Added to it are the loadings of every row given
the components, with their covariance, and what the expectations leave of the variance of single entries. Every entry of
these normal draws is then brought to a Gamma distribution with the mean of q and the variance of the draws, a Gaussian
copula; shares are divided by their sums. The scale of dirichlet_gamma is drawn from q. Variances are those of the
draws.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import beta, gamma

from bayesnmf.assessment.bounds import elbo_augmented, state_of_fit
from bayesnmf.assessment.checks import check_response, check_some, check_strict, check_weights
from bayesnmf.cards import Card, Shown
from bayesnmf.checks import check_choice, check_count, check_fraction, check_names, check_size
from bayesnmf.data.checks import check_complete
from bayesnmf.data.several import check_of_all
from bayesnmf.fitting.fitted import Fit
from bayesnmf.fitting.job import ProgressReport, progress_context
from bayesnmf.inference import alignment
from bayesnmf.inference.response.continuing import GRADIENT, MOST_STEPS, Optimum, continue_to_optimum
from bayesnmf.inference.response.spread import Responses, Sides, WeightedEntries, Weights
from bayesnmf.inference.status import ConvergenceWarning, Status
from bayesnmf.options.checks import check_threads
from bayesnmf.priors.specification import MODELS, on_simplex
from bayesnmf.priors.values import rows_to_shares, separate_scale
from bayesnmf.results.checks import check_no_scale_beside_missing
from bayesnmf.results.estimates import Draws, Intervals, VariationalPosterior
from bayesnmf.results.record import FitRecord
from bayesnmf.text import folded
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd

SAME = 0.95  # cosine of components that are taken to be the same
LARGEST = 64 * 2**30  # bytes
CURE = "give rows, as in fit.project(fit.counts.rows(range(1000))), with given_components=True"
NOT_OPTIMAL = (
    "the fit was not continued to its optimum (gradient {:.1e}), and linear response holds there only; fit with a "
    "smaller tol, another seed or a smaller rank"
)
NOT_STRICT = (
    "the bound does not curve downwards in every direction: two components are equal or one is empty, and variances "
    "along that direction are NaN; fit with another seed or a smaller rank"
)
TOO_WIDE = (
    "the variance of a share is larger than that of any distribution on 0 to 1 with its mean, so its interval and "
    "draws are NaN: linear response does not describe it; use method='gibbs'"
)


def gamma_quantiles(mean: Array, variance: Array, levels: Array) -> Array:
    """Return quantiles (levels, …) of Gamma distributions; the mean where the variance is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        found = gamma.ppf(levels, mean**2 / variance, scale=variance / mean)
    return np.where(variance == 0, mean, found)


def beta_quantiles(mean: Array, variance: Array, levels: Array) -> Array:
    """Return quantiles (levels, …) of Beta distributions; NaN where none has such a variance."""
    with np.errstate(invalid="ignore", divide="ignore"):
        total = mean * (1 - mean) / variance - 1
        found = beta.ppf(levels, mean * total, (1 - mean) * total)
    return np.where(variance == 0, mean, found)


def normal_quantiles(mean: Array, variance: Array, levels: Array) -> Array:
    """Return quantiles (levels, …) of normal distributions."""
    with np.errstate(invalid="ignore"):
        return np.asarray(mean + np.sqrt(variance) * ndtri(levels))


SHAPES = {"positive": gamma_quantiles, "share": beta_quantiles, "any": normal_quantiles}
"""Quantile functions by the values that a quantity can have: above 0, between 0 and 1, or any."""


def copula_draws(
    marginals: Sequence[tuple[float, str]], covariance: Array, draws: int, rng: np.random.Generator
) -> Array:
    """Return draws (draws, quantities) from a Gaussian copula on marginals, given as means and kinds of values."""
    variance = np.diag(covariance)
    sd = np.sqrt(variance)
    with np.errstate(invalid="ignore", divide="ignore"):  # what is known has no correlation
        correlation = np.nan_to_num(covariance / np.outer(sd, sd))
    np.fill_diagonal(correlation, 1.0)
    values, vectors = np.linalg.eigh(correlation)
    root = vectors * np.sqrt(np.maximum(values, 0))
    levels = ndtr(rng.standard_normal((draws, len(marginals))) @ root.T)
    columns = [
        SHAPES[kind](np.array(mean), np.array(variance[place]), levels[:, place])
        for place, (mean, kind) in enumerate(marginals)
    ]
    return np.column_stack(columns)


class Quantity(NamedTuple):
    """A number with a posterior.

    Attributes
    ----------
    name : str
        Name in tables.
    mean : float
        Its mean under q.
    weights : Weights
        Its derivatives by the means of the entries.
    values : {"positive", "share", "any"}
        Values that it can have.
    times : float
        Number by which the variance of the weighted sum is multiplied.
    more : float
        What is added to the variance.
    """

    name: str
    mean: float
    weights: Weights
    values: str = "positive"
    times: float = 1.0
    more: float = 0.0


class Quantities:
    """Makes the quantities of a fit by vi."""

    def __init__(self, fit: FitRecord) -> None:
        self.fit, self.every, self.labels = fit, np.arange(fit.rank), fit.component_labels
        self.positive = getattr(fit.priors.loadings, "support", "") == "positive"
        self.loadings, self.components = fit.loadings.astype(np.float64), fit.components.astype(np.float64)

    @cached_property
    def variances(self) -> dict[str, Array]:
        """Variances under q of loadings, components and scale; 0 for what has no posterior."""
        found = {side: self.fit.estimate.sd(self.fit, side) for side in ("loadings", "components", "scale")
                 if getattr(self.fit, side) is not None}  # fmt: skip
        return {
            side: np.zeros(getattr(self.fit, side).shape) if sd is None else np.asarray(sd, np.float64) ** 2
            for side, sd in found.items()
        }

    def loading(self, row: int, k: int) -> Quantity:
        """Return one loading; a proportion if loadings are on the simplex."""
        weights = Weights(loadings=WeightedEntries([row], [k], [1.0]))
        name = f"loadings[{self.fit.row_names[row]}, {self.labels[k]}]"
        return Quantity(name, float(self.loadings[row, k]), weights, "positive" if self.positive else "share")

    def component(self, k: int, feature: int) -> Quantity:
        """Return one entry of a component."""
        values = "share" if on_simplex(self.fit.priors.components) else "positive"
        name = f"components[{self.labels[k]}, {self.fit.feature_names[feature]}]"
        weights = Weights(components=WeightedEntries([k], [feature], [1.0]))
        return Quantity(name, float(self.components[k, feature]), weights, values)

    def rate(self, row: int, feature: int) -> Quantity:
        """Return the expected count of an entry given loadings and components."""
        counts, theta, beta = self.fit.counts, self.loadings[row], self.components[:, feature]
        rows = counts.row_totals if MODELS[self.fit.model].given_totals else counts.row_factor.ravel()
        unit = float(np.broadcast_to(rows, counts.shape[:1])[row])
        unit *= float(np.broadcast_to(counts.feature_factor, counts.shape[1:])[feature])
        mean, second = float(theta @ beta), self.variances["loadings"][row] @ self.variances["components"][:, feature]
        of_loadings = WeightedEntries([row] * len(theta), self.every, beta)
        weights = Weights(of_loadings, WeightedEntries(self.every, [feature] * len(theta), theta))
        square, more = unit**2, 0.0
        if self.fit.scale is not None:
            scale, spread = float(self.fit.scale[row]), float(self.variances["scale"][row])
            square, more = unit**2 * (scale**2 + spread), spread * (unit * mean) ** 2
            unit *= scale
        name = f"rates[{self.fit.row_names[row]}, {self.fit.feature_names[feature]}]"
        return Quantity(name, unit * mean, weights, times=square, more=more + square * float(second))

    def proportion(self, row: int, k: int) -> Quantity:
        """Return the share of a row's expected counts that comes from a component."""
        name = f"proportions[{self.fit.row_names[row]}, {self.labels[k]}]"
        if not self.positive:
            return self.loading(row, k)._replace(name=name)
        (rank, m), exposure = self.components.shape, self.fit.counts.feature_factor
        sums = self.fit.counts.exposed_components(self.components).sum(axis=1)
        share = self.loadings[row] * sums / (self.loadings[row] @ sums)
        slope = ((self.every == k) - share[k]) / (self.loadings[row] @ sums)
        by_feature = np.broadcast_to(exposure, (rank, m)) * (self.loadings[row] * slope)[:, None]
        of_components = WeightedEntries(np.repeat(self.every, m), np.tile(np.arange(m), rank), by_feature.ravel())
        weights = Weights(WeightedEntries([row] * rank, self.every, sums * slope), of_components)
        return Quantity(name, float(share[k]), weights, "share")

    def contrast(self, loadings: Mapping[Any, float], components: Mapping[Any, float], *, name: str) -> Quantity:
        """Return a weighted sum of loadings, by (row, component), and of components, by (component, feature)."""
        fit = self.fit
        of_loadings = check_weights(loadings, fit.row_names, self.every, "loadings")
        of_components = check_weights(components, self.every, fit.feature_names, "components")
        weights = Weights(WeightedEntries(*of_loadings), WeightedEntries(*of_components))
        return Quantity(name, weights.of(Sides(self.loadings, self.components)), weights, "any")


def warn(message: str) -> None:
    """Issue a warning that points to the user's line."""
    warnings.warn(message, ConvergenceWarning, skip_file_prefixes=(str(Path(__file__).parents[1]),))


class Spread(NamedTuple):
    """Standard deviations of all entries of one side, (n, K) or (K, m).

    Attributes
    ----------
    sd : ndarray
        By linear response.
    mean_field_sd : ndarray
        Under q.
    error : ndarray
        Monte Carlo standard error of `sd`; 0 where it is exact.
    draws : int
        Number of draws that `sd` was estimated from; 0 if it is exact.
    """

    sd: Array
    mean_field_sd: Array
    error: Array
    draws: int


@dataclass(frozen=True, eq=False, repr=False)
class LinearResponse(Shown):
    """Uncertainty of a variational fit by linear response, made by `bayesnmf.linear_response`.

    Every number is computed on demand: standard deviations of chosen entries, sums and rates exactly, those of all
    entries exactly or from draws. Positive quantities are taken to be Gamma-shaped and shares Beta-shaped, with the
    mean of q and the variance of linear response; contrasts are normal. Proportions under Gamma priors are taken to
    first order.

    Attributes
    ----------
    fit : Fit
        The fit, continued to its optimum: a mean field.
    moved : float
        Largest distance that a loading or an entry of a component moved, in standard deviations of q.
    gained : float
        Gain of the elbo, in nats.
    gradient : float
        Largest change of a shape, rate or concentration by a further update, relative to it.
    steps : int
        Number of Newton steps.
    given : str
        What is taken as known: "", or words such as "given the learned values".
    responses : Responses
        The linearised mean field.

    See Also
    --------
    linear_response : which makes it.
    plots.loadings_intervals, markers : take it.

    Examples
    --------
    >>> import bayesnmf
    >>> fit = bayesnmf.fit([[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]], rank=2, seed=0)
    >>> bayesnmf.linear_response(fit).summary(rows=[0]).shape[0]
    2
    """

    fit: Fit
    moved: float
    gained: float
    gradient: float
    steps: int
    given: str
    responses: Responses

    kind = "linear response"

    # --- tables ---------------------------------------------------------------------------------------------

    def summary(
        self, rows: Iterable[Any] | None = None, features: Iterable[Any] | None = None, interval: float = 0.9
    ) -> pd.DataFrame:
        """Return means, sds and intervals of the loadings of some rows, and of the weights of some features.

        Rows or features must be given, as names. The table has one row per parameter, and the columns mean, sd,
        mean_field_sd, lower and upper, the ends of the central interval; `attrs` state the method.
        """
        return self._table(self._entries(rows, features), interval)

    def rates(self, rows: Iterable[Any] | None, features: Iterable[Any] | None, interval: float = 0.9) -> pd.DataFrame:
        """Return the same table for the expected counts of the entries of some rows and features.

        None stands for all of them; every entry is one solution.
        """
        at = self._places(rows, "rows"), self._places(features, "features")
        if MODELS[self.fit.model].given_totals:
            check_complete(self.fit.counts, "rates of linear response given row totals")
        make = Quantities(self.fit)
        return self._table([make.rate(i, j) for i in at[0] for j in at[1]], interval)

    def proportions(self, rows: Iterable[Any] | None, interval: float = 0.9) -> pd.DataFrame:
        """Return the same table for the shares of rows' expected counts that come from each component; None is all."""
        make = Quantities(self.fit)
        places = self._places(rows, "rows")
        return self._table([make.proportion(i, k) for i in places for k in range(self.fit.rank)], interval)

    def contrast(
        self,
        loadings: Mapping[tuple[Any, int], float] | None = None,
        components: Mapping[tuple[int, Any], float] | None = None,
        *,
        name: str = "contrast",
        interval: float = 0.9,
    ) -> pd.DataFrame:
        """Return the same table for a weighted sum of loadings and entries of components.

        Parameters
        ----------
        loadings, components : mapping, optional
            Weights by (row, component) and by (component, feature), such as ``{("a", 0): 1, ("b", 0): -1}``.
        name : str
            Name of the sum in the table.
        interval : float
            Probability of the central interval.
        """
        check_some(loadings is not None or components is not None, "loadings or components")
        given = ({} if side is None else side for side in (loadings, components))
        return self._table([Quantities(self.fit).contrast(*given, name=name)], interval)

    def covariance(self, rows: Iterable[Any] | None = None, features: Iterable[Any] | None = None) -> pd.DataFrame:
        """Return the covariance matrix of the entries that `summary` shows for these rows and features."""
        import pandas as pd

        chosen = self._entries(rows, features)
        names = [each.name for each in chosen]
        found = self.responses.covariances(
            [each.weights for each in chosen], lambda _, sides: [other.weights.of(sides) for other in chosen]
        )
        matrix = np.array(found)
        negative = np.diag(matrix) < 0
        matrix[negative], matrix[:, negative] = np.nan, np.nan
        self.responses.strict &= not negative.any()
        self._warn_unless_strict()
        return self._labelled(pd.DataFrame((matrix + matrix.T) / 2, names, names))

    def correlation(self, rows: Iterable[Any] | None = None, features: Iterable[Any] | None = None) -> pd.DataFrame:
        """Return the correlation matrix of the same entries."""
        import pandas as pd

        covariance = self.covariance(rows, features)
        sd = np.sqrt(np.diag(covariance))
        with np.errstate(invalid="ignore", divide="ignore"):
            matrix = covariance.to_numpy() / np.outer(sd, sd)
        return self._labelled(pd.DataFrame(matrix, covariance.index, covariance.columns))

    def spread(
        self,
        side: str = "loadings",
        *,
        error: float = 0.05,
        seed: int = 0,
        progress: ProgressReport | bool | None = None,
    ) -> Spread:
        """Return standard deviations of all loadings or all entries of the components.

        They are exact where at most 1,500 equations are left for the components. Otherwise they are estimated from 16
        to 256 draws, until the Monte Carlo error of every standard deviation of the side is at most `error` of it.

        Parameters
        ----------
        side : {"loadings", "components"}
        error : float
            Largest Monte Carlo error of a standard deviation, as a share of it.
        seed : int
            Seed of the draws.
        progress : bool or callable, optional
            Progress report, as for `bayesnmf.fit`.
        """
        check_choice(side, "side", ("loadings", "components"))
        check_fraction(error, "error")
        check_count(seed, "seed", minimum=0)
        with progress_context(progress) as report:
            found = self.responses.spread(side, error, seed, lambda done: report("linear response", done, 256, np.nan))
        self._warn_unless_strict()
        variance, of_variance = getattr(found, side), getattr(found, f"{side}_error")
        with np.errstate(invalid="ignore", divide="ignore"):
            sd = np.sqrt(np.where(variance >= 0, variance, np.nan))
            error_of_sd = np.where(of_variance > 0, of_variance / (2 * sd), 0.0)
            reached = np.nanmax(error_of_sd / np.where(sd > 0, sd, 1.0), initial=0.0)
        if reached > error:
            warn(
                f"the Monte Carlo error of a standard deviation is {reached:.1%} of it after {found.draws} draws, more "
                f"than the {error:.1%} asked for; Spread.error has that of every entry, and summary() has none"
            )
        return Spread(sd, np.sqrt(Quantities(self.fit).variances[side]), error_of_sd, found.draws)

    # --- draws and quantiles ----------------------------------------------------------------------------------

    def draws(
        self,
        rows: Iterable[Any] | None = None,
        features: Iterable[Any] | None = None,
        draws: int = 1000,
        seed: int = 0,
    ) -> pd.DataFrame:
        """Return draws of the entries that `summary` shows, (draws, entries), from a Gaussian copula.

        The marginals are those of `summary`, and the copula has the correlations of linear response: these are not
        draws of a posterior. Components drawn so do not sum to 1.
        """
        import pandas as pd

        rng, number = np.random.default_rng(check_count(seed, "seed", minimum=0)), check_count(draws, "draws")
        chosen, covariance = self._entries(rows, features), self.covariance(rows, features).to_numpy()
        values = copula_draws([(each.mean, each.values) for each in chosen], covariance, number, rng)
        if np.any(np.isnan(values).all(axis=0) & np.isfinite(np.diag(covariance))):
            warn(TOO_WIDE)
        table = self._labelled(pd.DataFrame(values, columns=[each.name for each in chosen]))
        table.attrs["note"] = "Gaussian copula on the marginals of linear response; " + table.attrs["note"]
        return table

    def quantiles(self, side: str, at: tuple[Array, Array], levels: Array) -> Array:
        """Return quantiles (levels, …) of chosen entries of a side."""
        one, two = np.broadcast_arrays(*at)
        make: Any = getattr(Quantities(self.fit), side.removesuffix("s"))
        chosen = [make(int(i), int(j)) for i, j in zip(one.ravel(), two.ravel(), strict=True)]
        variances = self._variances(chosen)
        pairs = zip(chosen, variances, strict=True)
        found = np.array([SHAPES[each.values](np.array(each.mean), np.array(own), levels) for each, own in pairs])
        if np.any(np.isnan(found).any(axis=1) & ~np.isnan(variances)):
            warn(TOO_WIDE)
        return found.T.reshape(len(levels), *one.shape)

    # --- parts --------------------------------------------------------------------------------------------------

    def _entries(self, rows: Iterable[Any] | None, features: Iterable[Any] | None) -> list[Quantity]:
        check_some(rows is not None or features is not None, "rows or features")
        make, every = Quantities(self.fit), range(self.fit.rank)
        found = [] if rows is None else [make.loading(i, k) for i in self._places(rows, "rows") for k in every]
        columns = () if features is None else self._places(features, "features")
        return found + [make.component(k, j) for k in every for j in columns]

    def _places(self, names: Any, what: str) -> Sequence[int]:
        of = self.fit.row_names if what == "rows" else self.fit.feature_names
        found = check_names(names, of, what)
        return range(len(of)) if found is None else [int(each) for each in found]

    def _variances(self, chosen: Sequence[Quantity]) -> Array:
        """Return the variances of some quantities; NaN where they are not positive."""
        found = self.responses.variances([each.weights for each in chosen])
        self._warn_unless_strict()
        return found * [each.times for each in chosen] + [each.more for each in chosen]

    def _table(self, chosen: Sequence[Quantity], interval: float) -> pd.DataFrame:
        import pandas as pd

        tail = (1 - check_fraction(interval, "interval")) / 2
        variances = self._variances(chosen)
        plain = self.responses.variances_under_q([each.weights for each in chosen])
        rows = []
        for each, variance, own in zip(chosen, variances, plain, strict=True):
            given = np.array(each.mean), np.array(variance), np.array([tail, 1 - tail])
            low, high = SHAPES[each.values](*given)
            rows.append((each.mean, np.sqrt(variance), np.sqrt(own * each.times + each.more), low, high))
        if any(np.isnan(row[3]) and not np.isnan(row[1]) for row in rows):
            warn(TOO_WIDE)
        columns = ["mean", "sd", "mean_field_sd", "lower", "upper"]
        return self._labelled(pd.DataFrame(rows, [each.name for each in chosen], columns))

    def _labelled(self, table: pd.DataFrame) -> pd.DataFrame:
        table.attrs["uncertainty"] = "linear response"
        more = f"; {NOT_OPTIMAL.format(self.gradient)}" if self.gradient > GRADIENT else ""
        table.attrs["note"] = f"{f'linear response {self.given}'.strip()}{more}"
        return table

    def _warn_unless_strict(self) -> None:
        """Warn once for each call if the bound is not concave, or the fit not at its optimum."""
        if not self.responses.strict:
            warn(NOT_STRICT)
        if self.gradient > GRADIENT:
            warn(NOT_OPTIMAL.format(self.gradient))
        self.responses.strict = True

    def __repr__(self) -> str:
        card = self.card()
        return folded(f"<bayesnmf.LinearResponse of {card.title}\n  {card.notes[0]}>", "    ")

    def card(self) -> Card:
        """Return what is shown of it."""
        title = f"{self.fit.model} by vi, rank {self.fit.rank}{', ' * bool(self.given)}{self.given}"
        note = (
            f"continued to a gradient of {self.gradient:.1e} by {self.steps} Newton steps: "
            f"the elbo rose by {self.gained:.3g} nats, entries moved by up to {self.moved:.2g} sd"
        )
        return Card(title, notes=[note], calls=["found.summary(rows=...)  # standard deviations and intervals"])


def linear_response(
    fit: FitRecord,
    *,
    given_components: bool = False,
    threads: int | None = None,
    progress: ProgressReport | bool | None = None,
) -> LinearResponse:
    """Prepare wider intervals for a fit by vi: those of its linear response (Giordano, Broderick & Jordan 2018).

    Mean-field intervals are too narrow, because q ignores how loadings and components move together. How q changes when
    the log joint is tilted a little estimates the covariances with that coupling. It corrects the spread, not the
    location of q, the shape of its tails, or other modes. The fit is first continued to its optimum in float64 by
    Newton's method. Counts on disk are read into memory, where K (K + 12) numbers of each row are beside them.

    Parameters
    ----------
    fit : Fit
        Fit by vi, with the counts that it was fitted to.
    given_components : bool
        Whether to hold the components at what they are in the fit, so that only loadings are uncertain given these.
        It is necessary for components="parameter", which have no q, and for new rows by `Fit.project`.
    threads : int, optional
        Number of threads; by default all.
    progress : bool or callable, optional
        Progress report, as for `bayesnmf.fit`.

    Returns
    -------
    LinearResponse
        Tables, correlations and draws of chosen entries; it says how far the fit moved.

    Raises
    ------
    TypeError, ValueError
        A fit by another method; components that are parameters or held, without `given_components`.

    See Also
    --------
    LinearResponse : what it returns.
    Fit.with_intervals : the same for all tables and figures of a fit.

    Examples
    --------
    >>> import bayesnmf
    >>> fit = bayesnmf.fit([[30, 0, 9], [0, 21, 14], [51, 11, 0], [2, 33, 61]], rank=2, seed=0)
    >>> response = bayesnmf.linear_response(fit)
    >>> list(response.summary(rows=[0]).columns)
    ['mean', 'sd', 'mean_field_sd', 'lower', 'upper']
    """
    check_response(fit, given_components)
    check_of_all(fit, "standard deviations of linear response")
    check_threads(threads)
    check_size(_bytes_of(fit), LARGEST, f"linear response of {len(fit.loadings):,} rows at once", CURE)
    fit = replace(fit, counts=fit.counts.at_hand())
    check_no_scale_beside_missing(fit, "linear response")
    problem, state = state_of_fit(fit)
    problem = replace(problem, fixed_components=given_components)
    with progress_context(progress) as report:
        found = continue_to_optimum(
            problem, state, threads, lambda done, size: report("continuing", done, MOST_STEPS, size)
        )
    if found.gradient > GRADIENT:
        warn(NOT_OPTIMAL.format(found.gradient))
    continued = _continued(fit, found)
    _warn_of_other_components(fit, continued)
    known = {"the learned values": fit.priors is not fit.options.priors, "the components": given_components}
    given = " and ".join(what for what, holds in known.items() if holds)
    gained = elbo_augmented(continued) - elbo_augmented(fit)
    moved = _largest_move(fit, continued)
    about = moved, gained, found.gradient, found.steps, f"given {given}" if given else ""
    return LinearResponse(continued, *about, Responses(found.coupled, threads))


def _bytes_of(fit: FitRecord) -> int:
    """Return the memory that the response takes: a K × K inverse and some 12 numbers a loading, beside the counts."""
    return 8 * fit.loadings.size * (fit.rank + 12) + 12 * fit.counts.nnz


def _continued(fit: FitRecord, found: Optimum) -> Fit:
    """Return the fit at its optimum."""
    state: Any = found.coupled.state
    loadings, scale = separate_scale(state.loadings.value)
    status = Status(
        found.gradient <= GRADIENT,
        f"continued by Newton's method to a gradient of {found.gradient:.1e}",
        fit.status.iterations + found.steps,
    )
    q: list[Any] = [side.whole()[1] for side in state]
    parts: dict[str, Any] = {
        "counts": fit.counts.as_type(np.float64),
        "loadings": np.ascontiguousarray(loadings),
        "components": np.ascontiguousarray(state.components.matrix),
        "estimate": VariationalPosterior(*q),
        "intervals": None,
    }
    return Fit.of(replace(fit, scale=scale, status=status, **parts))


def _warn_of_other_components(before: FitRecord, after: FitRecord) -> None:
    """Warn if the optimum has other components than the given fit."""
    cosine = float(np.min(alignment.fit_cosines(before, after, np.arange(before.rank)), initial=1.0))
    if cosine < SAME:
        warn(
            f"the components changed on the way to the optimum (smallest cosine {cosine:.3f}): linear response is that "
            "of response.fit, not of the given fit; fit with a smaller tol, and give a fit of its own counts"
        )


def _largest_move(before: FitRecord, after: FitRecord) -> float:
    """Return the largest distance between the means of two fits, in standard deviations of the second."""
    largest = 0.0
    for side in ("loadings", "components"):
        sd = after.estimate.sd(after, side)
        if sd is not None:
            distance = np.abs(getattr(after, side) - getattr(before, side))
            largest = max(largest, float(np.max(distance[sd > 0] / sd[sd > 0], initial=0.0)))
    return largest


def draws_of_response(
    fit: FitRecord, number: tuple[int, int], seed: int, threads: int | None = None, report: Any = None
) -> Intervals:
    """Return draws of the linear response of a fit by vi.

    Parameters
    ----------
    fit : FitRecord
        Fit by vi.
    number : tuple of int
        Number of draws in second place, as for a chain; draws of linear response need no warm-up.
    seed : int
        Seed of the draws.
    threads : int, optional
        Number of threads; the draws do not depend on it.
    report : callable, optional
        Progress report.

    Raises
    ------
    ValueError
        The linear response does not exist, as the bound does not curve downwards in every direction.
    """
    response, draws = linear_response(fit, threads=threads), number[1]
    seeds = np.random.SeedSequence([seed, 3]).spawn(draws)
    moved = _moves(response.responses, seeds, report)
    check_strict(response.responses.strict)
    loadings, components = (
        _gamma_draws(getattr(response.fit, side), change)
        for side, change in zip(("loadings", "components"), moved, strict=True)
    )
    if fit.priors.loadings.support != "positive":  # type: ignore[union-attr]
        loadings = rows_to_shares(loadings, loadings.sum(axis=-1)).astype(np.float32)
    if on_simplex(fit.priors.components):
        components = rows_to_shares(components, components.sum(axis=-1)).astype(np.float32)
    scale = None
    if fit.scale is not None:
        drawn = response.fit.estimate.take(response.fit, (1, draws), seed, np.arange(1)).scale
        scale = None if drawn is None else drawn.astype(np.float32)
    return Intervals("linear response", Draws(loadings[None], components[None], scale))


def _moves(responses: Any, seeds: list[np.random.SeedSequence], report: Any) -> tuple[Array, Array]:
    """Return normal draws of both sides about their means, (draws, n, K) and (draws, K, m)."""
    coupled = responses.coupled
    of_rows, of = coupled.loadings, coupled.components
    values, vectors = np.linalg.eigh(coupled.rows)
    roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    left = np.sqrt(np.maximum(of_rows.variance() - of_rows.explained(), 0.0))
    free = None if of is None else np.sqrt(np.maximum(of.variance() - of.explained(), 0.0))
    loadings, components = [], []
    for done, (seed, (drawn, _)) in enumerate(zip(seeds, responses.drawn(seeds), strict=True)):
        rng = np.random.default_rng(seed.spawn(1)[0])
        rows, features = responses.changes(drawn)
        noise = np.einsum("ikl,il->ik", roots, rng.standard_normal(left.shape))
        rows = rows + of_rows.mean_change(of_rows.step_of(noise, coupled.no_step()))
        loadings.append((rows + left * rng.standard_normal(left.shape)).astype(np.float32))
        if free is not None:
            features[coupled.free] += free * rng.standard_normal(free.shape)
        components.append(features.astype(np.float32))
        if report is not None:
            report("linear response", done + 1, len(seeds), np.nan)
    return np.stack(loadings), np.stack(components)


def _gamma_draws(mean: Array, moved: Array) -> Array:
    """Return draws with Gamma marginals of these means, and with the variances and the order of normal draws."""
    sd = np.sqrt((moved.astype(np.float64) ** 2).mean(axis=0))
    found = np.empty_like(moved)
    for place, each in enumerate(moved):
        level = ndtr(np.divide(each, sd, out=np.zeros(sd.shape), where=sd > 0))
        found[place] = gamma_quantiles(np.asarray(mean, np.float64), sd**2, level)
    return found
