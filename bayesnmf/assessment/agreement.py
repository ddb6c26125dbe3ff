"""Compare the posteriors of several fits with one of them, and with the truth if it is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from bayesnmf.assessment.agreement_result import COLUMNS, Agreement
from bayesnmf.assessment.moments import (
    QUANTITIES,
    Entries,
    Moments,
    choose_entries,
    draw_quantities,
    moments_of_fit,
    values_of_truth,
)
from bayesnmf.checks import check_count, check_fraction
from bayesnmf.data.simulation import Simulation
from bayesnmf.fitting.fitted import Fit
from bayesnmf.inference import alignment
from bayesnmf.priors.checks import same_priors
from bayesnmf.priors.pair import components_exchangeable
from bayesnmf.results.cautions import cautions_of, with_label
from bayesnmf.results.checks import check_comparable, check_reference, check_truth
from bayesnmf.results.relabelling import relabel
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd


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
        if not any(same_priors(one.priors, base.priors) for one in (fit, relabel(fit, order))):
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
