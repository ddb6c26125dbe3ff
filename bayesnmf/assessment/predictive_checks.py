"""Posterior predictive checks: could the model have produced counts like these?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesnmf.assessment.predictive_statistics import LEAST, Gathered, RefitStatistics, with_replicates
from bayesnmf.cards import Card, Shown
from bayesnmf.checks import check_choice, check_count, check_fraction, check_size
from bayesnmf.data.several import check_of_all
from bayesnmf.fitting.fitted import Fit
from bayesnmf.fitting.job import ProgressReport, progress_context
from bayesnmf.priors.specification import MODELS
from bayesnmf.results.cautions import cautions_of
from bayesnmf.results.checks import check_distribution, check_fit
from bayesnmf.results.draws import LIMIT
from bayesnmf.results.replication import draws_to_replicate, number_to_replicate, replication_rng
from bayesnmf.results.residuals import told_structure
from bayesnmf.text import number, p_value
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd


SCALARS = {
    "total": "sum of all counts",
    "share of zeros": "share of all entries that are zero",
    "largest count": "largest count in any entry",
    "dispersion": "variance of the entries divided by their mean; 0 without counts",
    "misfit": "Freeman–Tukey, Σ (√count − √mean)², at the fitted means",
    "structure": "largest share of the squared residuals in one pattern of rows times features, over that by chance",
}
DRAWS, REFITS = 200, 24
LEVEL = 0.05  # rate at which a right model is called misfitted
REFITTED = (
    "p-values: {refits} replicates were fitted as the counts were, and p-values are tails of a t distribution through "
    "them. One below {level:g} speaks against the model; larger ones, near 1 too, do not. They are small where a "
    "statistic is large, and for total and zeros also where it is small; adjusted: for all statistics together, but "
    "the structure, whose p-value is that of residuals whose signs were drawn"
)
FEW = f"fewer than {LEAST} replicates were fitted, so there are no p-values"
POINT = "a point estimate: replicated totals lack the uncertainty of the parameters, so their intervals are too narrow"
SAMPLED = "p-values and statistics are those of {rows:,} of {all:,} rows, evenly spaced"
GIVEN = "the model is given the row totals, so they and the total are equal in every replicate and not checked"
MISSING = "of the observed entries alone: {:,} are missing, in replicates as in the counts"
ROUNDED = "not all counts are whole, but all replicated ones are: do not compare shares of zeros and small counts"


@dataclass(frozen=True, eq=False, repr=False)
class PredictiveChecks(Shown):
    """Statistics of replicated data sets, beside those of the observed counts.

    Attributes
    ----------
    table : DataFrame
        One row for each statistic (docs/reliability.md): the observed value;
        mean, low and high of what a right model would show, fitted as the counts were; p_value, the probability that it
        lies further out, and p_adjusted, that any of the statistics has a p-value as small. NaN without refits. The
        structure is judged by itself, by drawn signs of residuals, and has no p_adjusted.
    rows, features : DataFrame
        By name: observed total, mean, low and high of the replicated totals; p_value of the misfit of each row and
        feature, and misfit_ratio, the misfit of the counts divided by the mean misfit of refitted replicates. Under
        dirichlet_poisson row totals are given, so `rows` does not contain them.
    histogram : DataFrame
        By count (0, 1, 2, …, up to 39): the number of entries with this count, observed, mean, low and high.
    replicated : dict of ndarray (refits,)
        By statistic, what it would be in the observed counts if it differed from expectation as in each refitted
        replicate.
    draws : int
        Number of replicates for the totals and the histogram.
    interval : float
        Probability between low and high.
    model, method : str
    notes : list of str
        Remarks that are needed to interpret the numbers.

    See Also
    --------
    predictive_checks : which makes them.
    plots.predictive_checks : draws them.

    Examples
    --------
    >>> import bayesnmf
    >>> fit = bayesnmf.fit([[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]], rank=2, seed=0)
    >>> found = bayesnmf.predictive_checks(fit, draws=50, refits=10)
    >>> bool(0 < found.p_value <= 1)
    True
    """

    table: pd.DataFrame
    rows: pd.DataFrame
    features: pd.DataFrame
    histogram: pd.DataFrame
    replicated: Mapping[str, Array]
    draws: int
    interval: float
    model: str
    method: str
    notes: list[str]

    @property
    def refits(self) -> int:
        """Number of replicates that were fitted."""
        return len(self.replicated["misfit"])

    @property
    def p_value(self) -> float:
        """Probability that a right model has a statistic as far out as the worst one here; NaN without refits."""
        return float(self.table["p_adjusted"].min())

    @property
    def failed(self) -> list[str]:
        """Statistics that a right model shows in at most 5 % of the data sets, all statistics taken together."""
        return [str(name) for name in self.table.index[self.table["p_adjusted"] < LEVEL]]

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

    def card(self) -> Card:
        """Return what is shown of it."""
        title = f"{self.model} by {self.method}: {self.draws} replicated data sets, {self.refits} fitted again"
        verdict, calls = verdict_of(self), ["bayesnmf.plots.predictive_checks(found)"]
        notes = [*self._side_notes(), *self.notes]
        if self.failed:
            return Card(title, *headings_and_lines(self), notes, calls, failed=verdict)
        return Card(title, *headings_and_lines(self), [verdict, *notes], calls)

    def _side_notes(self) -> Iterable[str]:
        for side in ("rows", "features"):
            table = self._table_of(side)
            text = ""
            if self.refits >= LEAST:
                p = table["p_value"].dropna()
                text = f"misfit too large (p below {LEVEL:g}) in {np.mean(p < LEVEL):.1%} of {len(p):,}, "
                text += f"worst {', '.join(map(str, self.worst(side).index))}; "
            if "observed" in table:
                text += f"total outside its {self.interval:.0%} interval in {self.outside(side):.1%} (right "
                text += f"model: below {1 - self.interval:.0%})"
            yield f"{side}: {text.removesuffix('; ')}"


def headings_and_lines(found: PredictiveChecks) -> tuple[list[str], list[list[str]]]:
    """Return the table of statistics as text."""
    rows: Any = found.table.itertuples()
    numbers = [(row.Index, (row.observed, row.mean, row.low, row.high), (row.p_value, row.p_adjusted)) for row in rows]
    headings = ["statistic", "observed", "right model", f"{found.interval:.0%} from", "to", "p-value", "adjusted"]
    return headings, [[str(name), *map(number, four), *map(p_value, two)] for name, four, two in numbers]


def verdict_of(found: PredictiveChecks) -> str:
    """Return what the statistics say together, in a sentence."""
    if np.isnan(found.p_value):
        return "Too few replicates were fitted to judge the statistics."
    often = f"a right model is below {LEVEL:g} in {LEVEL:.0%} of data sets"
    told = f"p-value of all together {p_value(found.p_value)}; {often}"
    if not found.failed:
        return f"No statistic is further out than the model allows ({told})."
    large = found.table["observed"] > found.table["mean"]
    high, low = ([name for name in found.failed if large[name] == side] for side in (True, False))
    sides = [f"{', '.join(names)} too {side}" for side, names in (("large", high), ("small", low)) if names]
    return f"The counts have what the model does not: {'; '.join(sides)} ({told})."


def predictive_checks(
    fit: Fit,
    draws: int | None = None,
    *,
    refits: int = REFITS,
    interval: float = 0.9,
    seed: int = 0,
    progress: ProgressReport | bool | None = None,
) -> PredictiveChecks:
    """Compare the counts with data sets replicated from the fit.

    Totals and the histogram are compared with one data set for each posterior draw. P-values come from data sets that
    are drawn in the same way and fitted again (`bayesnmf.assessment.predictive_statistics`), since counts lie closer to
    means that were fitted to them: by map for fits by map, else by vi, with the noise of the fit and its dispersion.
    They ask whether the model could have made the counts. All together have a p-value below 0.05 in about 5 % of data
    sets that follow the model (docs/reliability.md). The misfit, which compares single entries with their means, shows
    best that the rank is too small or that counts vary more than the noise says. The structure tells one from the
    other: it asks whether residuals vary together, whatever their size, as they do where a component is missing.

    The time of a replicate grows with the number of its counts, or of its entries if these are fewer; a refit takes up
    to 12 iterations of a fit. Missing entries are missing in replicates, too, and are in no statistic.

    Parameters
    ----------
    fit : Fit
        Fit by any method. For a map or bld fit, all replicates are drawn at its one point.
    draws : int, optional
        Number of replicates, by default 200; at most, and by default not above, the number of kept draws for gibbs,
        nuts and smc.
    refits : int
        Number of replicates that are fitted again, at least 10. Of counts with more than 2²⁶ nonzeros times
        components, evenly spaced rows stand for all.
    interval : float
        Probability of the predictive intervals.
    seed : int
        Seed of the replicates.
    progress : bool or callable, optional
        Progress report, as for `bayesnmf.fit`. After Ctrl-C, the replicates made so far are compared.

    Returns
    -------
    PredictiveChecks

    Raises
    ------
    TypeError, ValueError
        Invalid arguments, or more draws than the fit has.

    See Also
    --------
    PredictiveChecks : what it returns.
    plots.predictive_checks : draws it.
    Fit.dispersion : by how much counts vary more.

    Examples
    --------
    >>> import bayesnmf
    >>> fit = bayesnmf.fit([[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]], rank=2, seed=0)
    >>> list(bayesnmf.predictive_checks(fit, draws=50).table.index)
    ['total', 'share of zeros', 'largest count', 'dispersion', 'misfit']
    """
    check_fit(fit)
    check_distribution(fit, "predictive checks")
    check_of_all(fit, "predictive checks")
    draws = number_to_replicate(fit, DRAWS) if draws is None else check_count(draws, "draws")
    refits = check_count(refits, "refits", minimum=LEAST)
    interval = check_fraction(interval, "interval")
    seed = check_count(seed, "seed", minimum=0)
    size = 8 * (draws + refits) * sum(fit.counts.shape)  # other statistics are summed over replicates
    check_size(size, LIMIT, "totals of all replicates", "ask for fewer draws")
    gathered, refitted = Gathered(fit), RefitStatistics(fit)
    with progress_context(progress) as report:

        def told(done: int) -> None:
            report("predictive checks", done, draws + refits, np.nan)

        try:
            gathered.visit(draws_to_replicate(fit, draws, seed), replication_rng(seed), told)
            refitted.visit(refits, seed, lambda done: told(draws + done))
            told(draws + refits)
        except KeyboardInterrupt:  # what is done is compared
            if not gathered.rows:
                raise
    found = _compare(gathered, refitted, interval)
    if (found.draws, refitted.number) != (draws, refits):
        found.notes.append(
            f"interrupted after {found.draws} of {draws} replicates and {refitted.number} of {refits} refits"
        )
    return found


def _compare(gathered: Gathered, refits: RefitStatistics, interval: float) -> PredictiveChecks:
    """Return the counts beside the replicates that were made."""
    fit, draws = gathered.fit, len(gathered.rows)
    given = MODELS[fit.model].given_totals
    measured = refits.names or set(SCALARS)
    table, values = refits.table(interval, [n for n in SCALARS if n in measured and not (given and n == "total")])
    sides = []
    for side, totals in (("row", gathered.rows), ("feature", gathered.features)):
        names, observed = getattr(fit, f"{side}_names"), getattr(fit.counts, f"{side}_totals")
        part = with_replicates(observed, totals, interval, names)
        part = part[[]] if given and side == "row" else part
        sides.append(part.assign(**refits.misfits(f"{side}s")).rename_axis(side))
    counted = np.array(gathered.histograms)
    histogram = with_replicates(gathered.observed, counted, interval, np.arange(counted.shape[1])).rename_axis("count")
    return PredictiveChecks(
        table, sides[0], sides[1], histogram, values, draws, interval, fit.model, fit.method, _notes(fit, refits)
    )


def _notes(fit: Fit, refits: RefitStatistics) -> list[str]:
    notes = [REFITTED.format(refits=refits.number, level=LEVEL) if refits.number >= LEAST else FEW]
    notes += [told] if (told := told_structure(fit)) else []
    if 0 < len(refits.rows) < fit.counts.shape[0]:
        notes.append(SAMPLED.format(rows=len(refits.rows), all=fit.counts.shape[0]))
    if fit.estimate.kind == "point":
        notes.append(POINT)
    if MODELS[fit.model].given_totals:
        notes.append(GIVEN)
    if fit.counts.mask is not None:
        notes.append(MISSING.format(fit.counts.mask.number))
    if not fit.counts.is_integer:
        notes.append(ROUNDED)
    return notes + [f"CAUTION {caution}" for caution in cautions_of(fit)]
