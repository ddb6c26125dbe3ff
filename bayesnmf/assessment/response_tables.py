"""The result of linear response: tables, correlations, draws and standard deviations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bayesnmf.assessment.checks import check_some
from bayesnmf.assessment.response_quantities import NOT_OPTIMAL, NOT_STRICT, TOO_WIDE, Quantities, Quantity, warn
from bayesnmf.assessment.response_shapes import SHAPES, copula_draws
from bayesnmf.cards import Card, Shown
from bayesnmf.checks import check_choice, check_count, check_fraction, check_names
from bayesnmf.data.checks import check_complete
from bayesnmf.fitting.fitted import Fit
from bayesnmf.fitting.job import ProgressReport, progress_context
from bayesnmf.inference.response.continuing import GRADIENT
from bayesnmf.inference.response.spread import Responses
from bayesnmf.priors.specification import MODELS
from bayesnmf.text import folded
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd


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


def spread_of(variances: tuple[Array, Array, Array], draws: int, asked: float) -> Spread:
    """Return standard deviations; warn if the error of one is a larger share of it than was asked for.

    `variances` are those by linear response, their Monte Carlo errors, and those under q.
    """
    variance, error, under_q = variances
    with np.errstate(invalid="ignore", divide="ignore"):
        sd = np.sqrt(np.where(variance >= 0, variance, np.nan))
        error_of_sd = np.where(error > 0, error / (2 * sd), 0.0)
        reached = np.nanmax(error_of_sd / np.where(sd > 0, sd, 1.0), initial=0.0)
    if reached > asked:
        warn(
            f"the Monte Carlo error of a standard deviation is {reached:.1%} of it after {draws} draws, more than the "
            f"{asked:.1%} asked for; Spread.error has that of every entry, and summary() has none"
        )
    return Spread(sd, np.sqrt(under_q), error_of_sd, draws)


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
        self, side: str = "loadings", *, error: float = 0.05, seed: int = 0, progress: ProgressReport | bool = False
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
        progress : bool or callable
            Progress report, as for `bayesnmf.fit`.
        """
        check_choice(side, "side", ("loadings", "components"))
        check_fraction(error, "error")
        check_count(seed, "seed", minimum=0)
        with progress_context(progress) as report:
            found = self.responses.spread(side, error, seed, lambda done: report("linear response", done, 256, np.nan))
        self._warn_unless_strict()
        variances = getattr(found, side), getattr(found, f"{side}_error"), Quantities(self.fit).variances[side]
        return spread_of(variances, found.draws, error)

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
