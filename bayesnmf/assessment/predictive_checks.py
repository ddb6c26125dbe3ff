"""Posterior predictive checks: could the model have produced counts like these?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bayesnmf.assessment.predictive_statistics import Gathered, ties_by_half
from bayesnmf.checks import check_choice, check_count, check_fraction, check_size
from bayesnmf.fitting.fit import Fit
from bayesnmf.fitting.progress import ProgressReport, progress_context
from bayesnmf.options import METHODS
from bayesnmf.priors.specification import MODELS
from bayesnmf.results.cautions import cautions_of
from bayesnmf.results.checks import check_fit
from bayesnmf.results.draws import LIMIT
from bayesnmf.results.estimates import TakeRows
from bayesnmf.results.intervals import for_draws, source_of_intervals
from bayesnmf.results.replication import draws_to_replicate, replication_rng
from bayesnmf.text import number, text_table

if TYPE_CHECKING:
    import pandas as pd


Array = NDArray[Any]
SCALARS = {
    "total": "sum of all counts",
    "share of zeros": "share of all cells that are zero",
    "largest count": "largest count in any cell",
    "dispersion": "variance of the cells divided by their mean; 0 without counts",
    "misfit": "Freeman–Tukey, Σ (√count − √mean)², at the means of each draw",
}
DRAWS, ENTRIES = 200, 2**16
TWICE = "the model was fitted to these counts, so p-values cluster near 0.5; those near 0 or 1 strongly suggest misfit"
POINT = "a point estimate: replicates lack the uncertainty of the parameters, and intervals are too narrow"
MEAN_FIELD = "a mean field is too narrow, so that its replicates may call a right model wrong"
GIVEN = "the model is given the row totals, so they and the total are equal in every replicate and not checked"
ROUNDED = "not all counts are whole, but all replicated ones are: do not compare shares of zeros and small counts"


@dataclass(frozen=True, eq=False, repr=False)
class PredictiveChecks:
    """Statistics of replicated data sets, beside those of the observed counts.

    Attributes
    ----------
    table : DataFrame
        One row for each statistic (`bayesnmf.assessment.predictive_checks.SCALARS` explains them): the observed value,
        mean, low and high of the replicates, and p_value, the share of replicates above the observed value (ties count
        half). The observed misfit depends on the draw: its mean is shown, and it is compared draw by draw.
    rows, features : DataFrame
        By name: observed total, mean, low and high of the replicated totals; p_value of the misfit of each row and
        feature, and misfit_ratio, the mean misfit of the counts divided by that of the replicates. Under
        dirichlet_poisson row totals are given, so `rows` does not contain them.
    histogram : DataFrame
        By count (0, 1, 2, …, up to 39): the number of cells with this count, observed, mean, low and high.
    replicated : dict of ndarray (draws,)
        The statistics of every replicate.
    observed_misfit : ndarray (draws,)
        Misfit of the observed counts at each draw.
    interval : float
        Probability between low and high.
    model, method : str
    notes : list of str
        Remarks that are needed to interpret the numbers.
    """

    table: pd.DataFrame
    rows: pd.DataFrame
    features: pd.DataFrame
    histogram: pd.DataFrame
    replicated: Mapping[str, Array]
    observed_misfit: Array
    interval: float
    model: str
    method: str
    notes: list[str]

    @property
    def draws(self) -> int:
        """Number of replicates."""
        return len(self.replicated["misfit"])

    @property
    def failed(self) -> list[str]:
        """Statistics whose p-value lies outside the central interval."""
        tail = (1 - self.interval) / 2
        p = self.table["p_value"]
        return [str(name) for name in self.table.index[(p < tail) | (p > 1 - tail)]]

    def outside(self, side: str) -> float:
        """Return the share of totals outside their predictive interval; `side` is "rows" or "features"."""
        table = self._table_of(side)
        return float(np.mean((table["observed"] < table["low"]) | (table["observed"] > table["high"])))

    def worst(self, side: str, n: int = 3) -> pd.DataFrame:
        """Return the rows or features with the strongest evidence of a misfit that is too large, worst first."""
        table = self._table_of(side)
        return table.sort_values(["p_value", "misfit_ratio"], ascending=[True, False], kind="stable").head(n)

    def _table_of(self, side: str) -> pd.DataFrame:
        check_choice(side, "side", ("rows", "features"))
        return self.rows if side == "rows" else self.features

    def __repr__(self) -> str:
        rows: Any = self.table.itertuples()
        lines = [
            [row.Index, *map(number, (row.observed, row.mean, row.low, row.high)), f"{row.p_value:.3f}"] for row in rows
        ]
        headings = ["statistic", "observed", "replicates", f"{self.interval:.0%} from", "to", "p-value"]
        title = f"{self.model} by {self.method}: {self.draws} replicated data sets"
        return text_table(title, headings, lines, [*self._side_notes(), *self.notes])

    def _side_notes(self) -> Iterable[str]:
        for side in ("rows", "features"):
            table = self._table_of(side)
            tail = (1 - self.interval) / 2
            bad = float(np.mean(table["p_value"] < tail))
            text = f"{side}: misfit too large (p below {tail:g}) in {bad:.1%} of {len(table):,}"
            if "observed" in table:
                text += f"; total outside its {self.interval:.0%} interval in {self.outside(side):.1%}"
            yield text + "; worst: " + ", ".join(map(str, self.worst(side).index))


def predictive_checks(
    fit: Fit,
    draws: int | None = None,
    *,
    interval: float = 0.9,
    seed: int = 0,
    progress: ProgressReport | bool = False,
) -> PredictiveChecks:
    """Compare the counts with data sets replicated from the fit.

    One data set is drawn for each posterior draw, row by row, and only its statistics are kept. They do not depend on
    the number of threads. The time of a replicate grows with the number of its counts, or of its cells if these are
    fewer. Such models fit row and feature totals best; the misfit, which compares single cells with their means, shows
    that the rank is too small or that counts vary more than Poisson.

    Parameters
    ----------
    fit : Fit
        Fit by any method. For a map or bld fit, all replicates are drawn at its one point.
    draws : int, optional
        Number of replicates, by default 200; at most, and by default not above, the number of kept draws for gibbs,
        nuts and smc, and of those beside q for vi (`Fit.with_intervals`); for more than "auto" makes, q is drawn from.
    interval : float
        Probability of the predictive intervals.
    seed : int
        Seed of the replicates.
    progress : bool or callable
        Progress report, as for `bayesnmf.fit`. After Ctrl-C, the replicates made so far are compared.

    Returns
    -------
    PredictiveChecks

    Raises
    ------
    TypeError, ValueError
        Invalid arguments, or more draws than the fit has.

    Examples
    --------
    >>> import bayesnmf
    >>> fit = bayesnmf.fit([[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]], rank=2, seed=0)
    >>> list(bayesnmf.predictive_checks(fit, draws=50).table.index)
    ['total', 'share of zeros', 'largest count', 'dispersion', 'misfit']
    """
    check_fit(fit)
    fit = for_draws(fit, draws)
    draws = fit.estimate.length(DRAWS) if draws is None else check_count(draws, "draws")
    interval = check_fraction(interval, "interval")
    seed = check_count(seed, "seed", minimum=0)
    size = 8 * draws * sum(fit.counts.shape)  # other statistics are summed over replicates
    check_size(size, LIMIT, "totals of all replicates", "ask for fewer draws")
    draws_of = draws_to_replicate(fit, draws, seed)
    gathered = Gathered(fit)
    with progress_context(progress) as report:
        interrupted = _visit_all(gathered, draws_of, draws, seed, report)
    notes = _notes(fit)
    if interrupted:
        notes.append(f"interrupted after {len(gathered.scalars)} of {draws} replicates")
    return _compare(gathered, interval, notes)


def _visit_all(
    gathered: Gathered, drawn: Iterable[tuple[TakeRows, Array]], draws: int, seed: int, report: ProgressReport
) -> bool:
    """Replicate the data at every draw; return whether Ctrl-C stopped it."""
    rng = replication_rng(seed)
    try:
        for done, (take, components) in enumerate(drawn):
            report("predictive checks", done, draws, np.nan)
            gathered.add_replicate(take, components, rng)
        report("predictive checks", draws, draws, np.nan)
    except KeyboardInterrupt:
        if not gathered.scalars:
            raise
        return True
    return False


def _compare(gathered: Gathered, interval: float, notes: list[str]) -> PredictiveChecks:
    import pandas as pd

    fit = gathered.fit
    given = MODELS[fit.model].given_totals
    names = [name for name in SCALARS if not (given and name == "total")]
    ours, theirs = (pd.DataFrame([pair[which] for pair in gathered.scalars])[names] for which in (0, 1))
    table = _with_replicates(ours.mean().to_numpy(), theirs.to_numpy(), interval, names)
    table["p_value"] = ties_by_half(ours.to_numpy(), theirs.to_numpy()).mean(axis=0)
    sides = []
    for labels, side in ((fit.row_names, gathered.rows), (fit.feature_names, gathered.features)):
        known = given and side is gathered.rows
        part = _with_replicates(side.observed, side.totals, interval, labels)
        part = part[[]] if known else part
        part["p_value"] = side.above / len(gathered.scalars)
        part["misfit_ratio"] = side.ratio()
        sides.append(part.rename_axis("row" if side is gathered.rows else "feature"))
    counted = np.array(gathered.histograms)
    histogram = _with_replicates(
        gathered.observed.histogram, counted, interval, np.arange(counted.shape[1])
    ).rename_axis("count")
    values, misfit = {name: theirs[name].to_numpy() for name in names}, ours["misfit"].to_numpy()
    return PredictiveChecks(
        table, sides[0], sides[1], histogram, values, misfit, interval, fit.model, fit.method, notes
    )


def _with_replicates(observed: Array, replicated: Sequence[Array] | Array, interval: float, names: Any) -> pd.DataFrame:
    """Return the observed values beside the mean and the interval of their replicates, one array for each draw."""
    import pandas as pd

    tail, found = (1 - interval) / 2, []
    for first in range(0, len(observed), ENTRIES):  # the replicates of all rows together are large
        part = np.array([each[first : first + ENTRIES] for each in replicated])
        found.append([part.mean(axis=0), *np.quantile(part, [tail, 1 - tail], axis=0)])
    mean, low, high = (np.concatenate(each) for each in zip(*found, strict=True))
    return pd.DataFrame({"observed": observed, "mean": mean, "low": low, "high": high}, index=names)


def _notes(fit: Fit) -> list[str]:
    notes = [TWICE]
    if fit.estimate.kind == "point":
        notes.append(POINT)
    if fit.estimate.kind == "mean field":
        notes.append(MEAN_FIELD)
    if METHODS[fit.method].posterior == "mean field":
        notes.append(source_of_intervals(fit))
    if MODELS[fit.model].given_totals:
        notes.append(GIVEN)
    if not fit.counts.is_integer:
        notes.append(ROUNDED)
    return notes + [f"CAUTION {caution}" for caution in cautions_of(fit)]
