"""Compare the posteriors of several fits with one of them, and with the truth if it is known.

Posterior moments of loadings, components and expected counts are compared entry by entry, in one order of the
components.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bayesnmf.cards import CAUTION, Card, Shown
from bayesnmf.checks import check_count, check_fraction
from bayesnmf.data.simulation import Simulation, effective
from bayesnmf.fitting.fitted import Fit
from bayesnmf.inference import alignment
from bayesnmf.needs import needed_for
from bayesnmf.places import check_folder
from bayesnmf.priors.checks import same_priors
from bayesnmf.priors.pair import components_exchangeable
from bayesnmf.priors.specification import on_simplex
from bayesnmf.priors.unknown import unknown_side
from bayesnmf.priors.values import component_sums, rows_to_shares
from bayesnmf.results.cautions import cautions_of, with_label
from bayesnmf.results.checks import check_comparable, check_reference, check_truth
from bayesnmf.results.draws import error_over_runs, is_resampled, restrict_rows, runs_of_draws
from bayesnmf.results.mixing import r_hat_and_ess
from bayesnmf.results.record import effective_loadings
from bayesnmf.results.relabelling import relabel
from bayesnmf.text import Column, or_dash
from bayesnmf.types import Array
from bayesnmf.writing import write_text

if TYPE_CHECKING:
    import pandas as pd

QUANTITIES = ("loadings", "components", "expected counts")
Q_DRAWS = 4000
CONSTANT = 1e-9  # an sd below this share of the mean is rounding error


class Entries(NamedTuple):
    """Rows, features and entries to compare; entries are given by positions within these rows and features."""

    rows: Array
    features: Array
    entries: tuple[Array, Array]


class Moments(NamedTuple):
    """Posterior moments of one quantity in one fit, each array (entries,).

    `error` is the Monte Carlo standard error of the mean. `r_hat` and `ess` are computed for chains, and None for q and
    resampled draws.
    """

    mean: Array
    sd: Array
    low: Array
    high: Array
    error: Array
    r_hat: Array | None = None
    ess: Array | None = None

    @property
    def varies(self) -> Array:
        """Mask of the entries whose posterior is not a single point."""
        return self.sd > CONSTANT * np.abs(self.mean)


def choose_entries(fit: Fit, most: int, seed: int) -> Entries:
    """Choose rows, features and entries at random, at most `most` entries of each quantity."""
    rng = np.random.default_rng(seed)
    rows, features = (
        np.sort(rng.choice(size, min(size, max(most // fit.rank, 1)), replace=False)) for size in fit.counts.shape
    )
    number = len(rows) * len(features)
    entries = np.sort(rng.choice(number, min(number, most), replace=False))
    return Entries(rows, features, np.divmod(entries, len(features)))


def draw_quantities(fit: Fit, reference: Fit, chosen: Entries, seed: int) -> dict[str, Array]:
    """Return draws of every quantity, (chains, draws, entries), in the reference's order; one draw of a point."""
    return _quantities(*draw_sides(fit, reference, chosen.rows, chosen.features, seed), chosen)


def draw_sides(fit: Fit, reference: Fit, rows: Array, features: Array, seed: int) -> tuple[Array, Array]:
    """Return draws of loadings on the scale of the counts and components on the simplex, at some rows and features."""
    number = fit.estimate.held or (1, Q_DRAWS)
    normalised = on_simplex(fit.priors.components)
    part = restrict_rows(fit, rows)
    whole = not normalised or part.counts.mask is not None  # sums need all features
    drawn = part.estimate.take(part, number, seed, None if whole else features)
    loadings = effective_loadings(part, drawn.loadings, drawn.scale, drawn.components)
    components = drawn.components if normalised else part.counts.exposed_components(drawn.components)
    if not normalised:
        loadings, components = _on_simplex(loadings, components)
    components = components[..., features] if whole else components
    order = alignment.match_fits(fit, reference)
    if fit is reference:
        order = np.arange(fit.rank)  # equal components have no best matching
    return loadings[..., order], components[..., order, :]


def values_of_truth(truth: Simulation, reference: Fit, chosen: Entries) -> dict[str, Array]:
    """Return the true value of every quantity, (entries,), in the reference's order."""
    loadings, components = _on_simplex(effective(truth), truth.counts.exposed_components(truth.components))
    order = alignment.match_fits(truth, reference)
    return _quantities(loadings[chosen.rows][:, order], components[order][:, chosen.features], chosen)


def _on_simplex(loadings: Array, components: Array) -> tuple[Array, Array]:
    """Divide components by their sums, and multiply the loadings by these."""
    sums = component_sums(components)
    return loadings * sums[..., None, :], rows_to_shares(components, sums)


def _quantities(loadings: Array, components: Array, chosen: Entries) -> dict[str, Array]:
    row, feature = chosen.entries
    entries = np.zeros((*loadings.shape[:-2], len(row)))
    for k in range(loadings.shape[-1]):  # one component at a time, for memory
        entries += loadings[..., row, k] * components[..., k, feature]
    flat = (loadings.reshape(*entries.shape[:-1], -1), components.reshape(*entries.shape[:-1], -1), entries)
    return dict(zip(QUANTITIES, flat, strict=True))


def moments(draws: Array, interval: float) -> Moments:
    """Summarise independent draws (chains, draws, entries)."""
    pooled = draws.reshape(-1, draws.shape[-1])
    tail = (1 - interval) / 2
    low, high = np.quantile(pooled, [tail, 1 - tail], axis=0)
    sd = pooled.std(axis=0, ddof=int(len(pooled) > 1))
    return Moments(pooled.mean(axis=0), sd, low, high, sd / np.sqrt(len(pooled)))


def moments_of_fit(draws: Array, interval: float, fit: Fit) -> Moments:
    """Summarise the draws of a fit; those of chains are autocorrelated, and have R-hat and an effective sample size."""
    found = moments(draws, interval)
    if fit.estimate.kind != "draws":
        return found
    if is_resampled(fit):
        pooled = draws.reshape(-1, draws.shape[-1])
        return found._replace(error=error_over_runs(pooled, runs_of_draws(fit), len(draws)))
    with needed_for("the error of means of chains"):
        from arviz_stats.base import array_stats

    r_hat, ess = r_hat_and_ess(draws)
    with np.errstate(invalid="ignore", divide="ignore"):  # constants have no effective sample size
        error = array_stats.mcse(draws, chain_axis=0, draw_axis=1)
    return found._replace(error=error, r_hat=r_hat, ess=ess)


COLUMNS = {
    "entries": Column("number of entries compared"),
    "correlation": Column("correlation of posterior means with those of the reference", "means: corr.", "{:.4f}"),
    "difference": Column("rms difference of means, in sds of the reference", "Δ mean / sd", "{:.3f}"),
    "by_chance": Column("the difference expected from Monte Carlo error alone", "by chance", "{:.3f}"),
    "sd_ratio": Column(
        "posterior sd divided by that of the reference, median over entries", "sd ratio (5–95 % of entries)", "{:.2f}"
    ),
    "sd_ratio_low": Column("its 5 % quantile"),
    "sd_ratio_high": Column("its 95 % quantile"),
    "mass": Column("share of the reference's draws inside the intervals of this fit", "mass in {}", "{:.3f}"),
    "coverage": Column("share of the true values inside the intervals of this fit", "truth in {}", "{:.3f}"),
    "max_r_hat": Column("largest R-hat of the entries (chains of gibbs and nuts)", "max R-hat", "{:.3f}"),
    "min_ess": Column("smallest bulk effective sample size of the entries (of chains)", "min ESS", "{:,.0f}"),
}
NOTE = "Δ mean: rms difference of posterior means, in sds of the reference; by chance: from Monte Carlo error alone"


@dataclass(frozen=True, eq=False, repr=False)
class Agreement(Shown):
    """Agreement between the posteriors of several fits.

    Attributes
    ----------
    table : DataFrame
        One row for each fit and quantity.
    reference : str
        Label of the fit that the others are compared with.
    interval : float
        Probability of the central intervals.
    cautions : list of str
        Reasons to doubt the numbers: chains that have not mixed, components or priors that differ.

    See Also
    --------
    posterior_agreement : which makes it.

    Examples
    --------
    >>> import bayesnmf
    >>> counts, options = [[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]], bayesnmf.Gibbs(chains=2, warmup=50, draws=50)
    >>> fits = {
    ...     "vi": bayesnmf.fit(counts, rank=1, seed=0),
    ...     "gibbs": bayesnmf.fit(counts, rank=1, method="gibbs", seed=0, options=options),
    ... }
    >>> bayesnmf.posterior_agreement(fits).interval
    0.9
    """

    table: pd.DataFrame
    reference: str
    interval: float
    cautions: list[str]

    def save(self, out: str | Path) -> list[Path]:
        """Write `agreement.csv` and `agreement.txt` into a folder; return their paths."""
        folder = check_folder(out, "out")
        written = [folder / "agreement.csv", folder / "agreement.txt"]
        write_text(written[0], self.table.to_csv())
        write_text(written[1], f"{self!r}\n")
        return written

    def card(self) -> Card:
        """Return what is shown of it."""
        headings = [COLUMNS[name].heading.format(f"{self.interval:.0%}") for name in _printed(self.table)]
        notes = [NOTE, *(f"{CAUTION}{caution}" for caution in self.cautions)]
        calls = ["found.table  # all numbers", "bayesnmf.plots.posterior_agreement(fits)"]
        title = f"posteriors compared with {self.reference}"
        return Card(title, ["quantity (entries)", "fit", *headings], _lines(self), notes, calls)


def _lines(agreement: Agreement) -> list[list[str]]:
    """Return the rows of the table as text: a quantity with its entries, a fit, and the numbers."""
    table, lines = agreement.table, []
    for quantity in QUANTITIES:
        for turn, label in enumerate(table.index.unique("fit")):
            row = table.loc[(label, quantity)]
            named = "" if turn else f"{quantity} ({row['entries']:,.0f})"
            lines.append([named, str(label), *(_entry(row, name) for name in _printed(table))])
    return lines


def _printed(table: pd.DataFrame) -> list[str]:
    """Return the columns that are printed."""
    return [name for name, column in COLUMNS.items() if column.heading and name in table]


def _entry(row: Any, name: str) -> str:
    text = or_dash(row[name], COLUMNS[name].form)
    if name != "sd_ratio" or np.isnan(row[name]):
        return text
    return f"{text} ({row['sd_ratio_low']:.2f}–{row['sd_ratio_high']:.2f})"


SAME_COMPONENT = 0.9
OTHER_ORDER = (
    "in another order, although the priors differ by component: this mode assigns components to the wrong priors"
)


def posterior_agreement(
    fits: Mapping[str, Fit],
    reference: str | None = None,
    *,
    truth: Simulation | None = None,
    interval: float = 0.9,
    entries: int = 2000,
    seed: int = 0,
) -> Agreement:
    """Compare the posterior means, standard deviations and intervals of several fits of one model.

    Three quantities are compared, entry by entry, after matching components to the reference by their cosines:

    - *loadings* on the scale of the counts, (n, K): the expected counts of a sample that come from a component,
      θ_ik Σ_j β_kj, multiplied by the scale or the given total of the sample if the model has one;
    - *components* on the simplex, (K, m);
    - *expected counts* (n, m), the product of both, which is invariant to relabelling and rescaling.

    Entries that are constant in the reference (the loadings of an empty row under dirichlet_poisson) are left out.

    Parameters
    ----------
    fits : mapping of str to Fit
        Fits of the same model, rank and counts. From a fit by vi or svi, 4,000 independent draws are taken; of a point
        estimate (map, bld), only the means are compared.
    reference : str, optional
        Label of a fit with a posterior. By default the first fit by nuts, else by gibbs, smc, vi, svi.
    truth : Simulation, optional
        Simulation that these counts were drawn in; adds the share of true values inside each fit's intervals.
    interval : float
        Probability of the central intervals.
    entries : int
        Largest number of entries of each quantity to compare; entries are chosen at random.
    seed : int
        Seed of the choice of entries and of the draws from q.

    Returns
    -------
    Agreement

    Raises
    ------
    TypeError, ValueError
        Fits of different counts, models or ranks, a reference without a posterior, or a truth from which the counts
        were not drawn.

    See Also
    --------
    Agreement : what it returns.
    plots.posterior_agreement : draws it.
    compare : fits by several methods, and this table of them.

    Examples
    --------
    >>> import bayesnmf
    >>> counts, options = [[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]], bayesnmf.Gibbs(chains=2, warmup=50, draws=50)
    >>> fits = {
    ...     "vi": bayesnmf.fit(counts, rank=1, seed=0),
    ...     "gibbs": bayesnmf.fit(counts, rank=1, method="gibbs", seed=0, options=options),
    ... }
    >>> bayesnmf.posterior_agreement(fits).reference
    'gibbs'
    """
    check_comparable(fits)
    reference = check_reference(reference, fits)
    interval = check_fraction(interval, "interval")
    entries = check_count(entries, "entries")
    seed = check_count(seed, "seed", minimum=0)
    base = fits[reference]
    if truth is not None:
        check_truth(truth, base)
    table = _compare_all(fits, reference, truth, interval, choose_entries(base, entries, seed), seed)
    cautions = _cautions(fits, base, reference, table)
    if truth is not None:
        cautions += _cautions_of_truth(truth, base, reference)
    return Agreement(table, reference, interval, cautions)


def _compare_all(
    fits: Mapping[str, Fit], reference: str, truth: Simulation | None, interval: float, chosen: Entries, seed: int
) -> pd.DataFrame:
    """Return the rows of the table, for one fit at a time; keep only the draws of the reference."""
    base = fits[reference]
    held = draw_quantities(base, base, chosen, seed)
    standard = {name: moments_of_fit(values, interval, base) for name, values in held.items()}
    true_values = None if truth is None else values_of_truth(truth, base, chosen)
    rows: dict[tuple[str, str], dict[str, float]] = {}
    for label, fit in fits.items():
        drawn = held if label == reference else draw_quantities(fit, base, chosen, seed)
        for name in QUANTITIES:
            ours = standard[name] if label == reference else moments_of_fit(drawn[name], interval, fit)
            rows[label, name] = _compare(ours, standard[name], held[name], label == reference)
            if true_values is not None:
                rows[label, name]["coverage"] = _share_inside(ours, true_values[name], standard[name].varies)
    return _as_table(rows)


def _compare(ours: Moments, theirs: Moments, held: Array, same: bool) -> dict[str, float]:
    """Return a row of the table, from the entries that vary in the reference; `held` are the reference's draws."""
    kept = theirs.varies
    row: dict[str, float] = {"entries": float(kept.sum())}
    if not kept.any():
        return row
    sd = theirs.sd[kept]
    if same or kept.sum() > 1:  # a single entry has no correlation
        with np.errstate(invalid="ignore", divide="ignore"):  # nor have means that are all equal
            row["correlation"] = 1.0 if same else float(np.corrcoef(ours.mean[kept], theirs.mean[kept])[0, 1])
    row["difference"] = _rms((ours.mean - theirs.mean)[kept] / sd)
    if not same:
        row["by_chance"] = _rms(np.hypot(ours.error, theirs.error)[kept] / sd)
    if ours.varies.any():
        ratios = ours.sd[kept] / sd
        for name, level in (("sd_ratio", 0.5), ("sd_ratio_low", 0.05), ("sd_ratio_high", 0.95)):
            row[name] = float(np.quantile(ratios, level))
        row["mass"] = float(np.mean(((held >= ours.low) & (held <= ours.high))[..., kept]))
    if ours.r_hat is not None and ours.ess is not None:
        row["max_r_hat"], row["min_ess"] = float(np.max(ours.r_hat[kept])), float(np.min(ours.ess[kept]))
    return row


def _rms(values: Array) -> float:
    return float(np.sqrt(np.mean(values**2)))


def _share_inside(ours: Moments, true_values: Array, kept: Array) -> float:
    if not (kept.any() and ours.varies.any()):
        return np.nan
    return float(np.mean(((true_values >= ours.low) & (true_values <= ours.high))[kept]))


def _as_table(rows: Mapping[tuple[str, str], Mapping[str, float]]) -> pd.DataFrame:
    import pandas as pd

    index = pd.MultiIndex.from_tuples(rows, names=["fit", "quantity"])
    truth_known = any("coverage" in row for row in rows.values())
    columns = [name for name in COLUMNS if name != "coverage" or truth_known]
    return pd.DataFrame([dict(row) for row in rows.values()], index=index, columns=columns)


def _cautions(fits: Mapping[str, Fit], base: Fit, reference: str, table: pd.DataFrame) -> list[str]:
    cautions = []
    for label, fit in fits.items():
        worst = (None, None)
        if fit.estimate.kind == "draws":
            rows = table.loc[label]
            worst = (rows["max_r_hat"].max(skipna=False), rows["min_ess"].min(skipna=False))
        cautions += [with_label(label, caution) for caution in cautions_of(fit, *worst)]
        if label == reference:
            continue
        order = alignment.match_fits(fit, base)
        if unknown_side(fit.priors) or unknown_side(base.priors):
            cautions.append(f"{label}: whether its priors are those of {reference} is not known")
        elif not any(same_priors(one.priors, base.priors) for one in (fit, relabel(fit, order))):
            cautions.append(f"{label}: its priors differ from those of {reference}, so its posterior differs too")
        if not in_same_order(fit, base):
            cautions.append(f"{label}: its components match those of {reference} {OTHER_ORDER}")
        least = alignment.fit_cosines(fit, base, order).min()
        if least < SAME_COMPONENT:
            cautions.append(f"{label}: a component differs from its match in {reference}, cosine {least:.2f}")
    return cautions


def _cautions_of_truth(truth: Simulation, base: Fit, reference: str) -> list[str]:
    cautions = []
    if truth.model != base.model:
        cautions.append(f"the truth was drawn from {truth.model}: intervals under {base.model} may miss it")
    elif not same_priors(truth.priors, base.priors):
        cautions.append(f"the truth was drawn from other priors than those of {reference}: intervals may miss it")
    if not in_same_order(truth, base):
        cautions.append(f"{reference}: its components match the truth's {OTHER_ORDER}")
    return cautions


def in_same_order(one: Fit | Simulation, base: Fit) -> bool:
    """Return whether components match in their present order, or have exchangeable priors."""
    order = alignment.match_fits(one, base)
    return components_exchangeable(one.priors) or bool(np.all(order == np.arange(base.rank)))
