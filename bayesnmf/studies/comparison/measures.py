"""The measures of each fit in a comparison."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesnmf.assessment.bounds import elbo_augmented, elbo_marginal
from bayesnmf.assessment.checks import has_response
from bayesnmf.assessment.linear_response import linear_response
from bayesnmf.assessment.scoring import (
    MOST_SCORE_DRAWS,
    SCORE_DRAWS,
    Score,
    background,
    for_thinned,
    pit_coverage,
    ratio_of_sums,
    score,
)
from bayesnmf.data.probabilities import log_likelihood
from bayesnmf.data.splitting import Split
from bayesnmf.fitting.fitted import Fit
from bayesnmf.fitting.job import ProgressReport
from bayesnmf.inference import alignment
from bayesnmf.inference.status import ConvergenceWarning
from bayesnmf.inference.tempering.annealing import IN_TWENTY
from bayesnmf.noise.abilities import distribution_of
from bayesnmf.noise.poisson import POISSON
from bayesnmf.options import method_of
from bayesnmf.priors.specification import MODELS, on_simplex
from bayesnmf.priors.unknown import unknown_side
from bayesnmf.priors.values import component_sums
from bayesnmf.results.cautions import cautions_of, mixing_of, with_label
from bayesnmf.results.draws import is_resampled
from bayesnmf.results.relabelling import relabel
from bayesnmf.text import Column, with_last

if TYPE_CHECKING:
    import pandas as pd


ROWS_HELD, MOST_NUMBERS = 20, 10**7  # rows; numbers that linear response keeps, K² a row
PIT_DRAWS = 100
LOGS = "logs of the rows"  # what is kept of a score until all methods have theirs


def align(fits: Mapping[str, Fit]) -> dict[str, Fit]:
    """Return the fits with their components in the order of the reference."""
    reference = fits[reference_of(fits)]
    return {name: relabel(fit, alignment.match_fits(fit, reference)) for name, fit in fits.items()}


def reference_of(fits: Mapping[str, Fit]) -> str:
    """Return the label of the fit that the others are compared with: MCMC before VI before point estimates."""
    return min(fits, key=lambda label: method_of(fits[label].method).preference)


def measure(fits: Mapping[str, Fit], name: str, split: Split, other: Fit | None, seed: int) -> dict[str, Any]:
    """Measure one fit: return all values of its row in the table."""
    fitted, train = fits[name], split.train
    frequencies = background(train)
    row: dict[str, Any] = {"seconds": fitted.seconds if fitted.by.runner else np.nan}
    means, totals = fitted.mean_factors, MODELS[fitted.model].given_totals
    row["loglik"] = log_likelihood(distribution_of(fitted.noise), train, *means, totals)
    if fitted.estimate.kind == "mean field" and unknown_side(fitted.priors) is None:
        marginal = elbo_marginal(fitted, seed=seed)
        row.update(elbo_augmented=elbo_augmented(fitted), elbo_marginal=marginal.mean, elbo_marginal_se=marginal.se)
    row |= evidence_of(fitted)
    scored = {}
    if split.keep < 1:
        scored["thinned"] = score(fitted, split.thinned, frequencies, SCORE_DRAWS, seed, MOST_SCORE_DRAWS)
    if fitted.noise == POISSON and split.keep < 1:
        row["coverage90"] = pit_coverage(fitted, split.thinned, PIT_DRAWS, seed)
    if split.seen is not None and split.withheld is not None:
        projected = for_thinned(fitted, 0.5 / split.keep).project(split.seen.at_hand(), seed=seed)
        scored["withheld"] = score(projected, split.withheld, frequencies, SCORE_DRAWS, seed, MOST_SCORE_DRAWS)
    row.update(_scores(scored), **{LOGS: {kind: each.rows for kind, each in scored.items()}})
    row.update({name: value for name, value in mixing_of(fitted).items() if name in ("min_ess", "max_r_hat")})
    row.update(agreement(fitted, fits[reference_of(fits)]) | held_by_intervals(fitted, fits[reference_of(fits)], seed))
    if other is not None:
        row["cosine_other_start"] = agreement(other, fitted)["cosine"]
    return row


def measure_all(
    fits: Mapping[str, Fit], others: Mapping[str, Fit], split: Split, seed: int, report: ProgressReport
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Measure every fit until interrupted; return all rows, and a caution about fits without measures."""
    rows: dict[str, dict[str, Any]] = {}
    try:
        for done, name in enumerate(fits):
            report("scoring", done, len(fits), np.nan)
            rows[name] = measure(fits, name, split, others.get(name), seed)
        report("scoring", len(fits), len(fits), np.nan)
        add_distances_from_best(rows, split)
    except KeyboardInterrupt:
        missing = [name for name in fits if name not in rows]
        rows |= {name: {"seconds": fits[name].seconds} for name in missing}
        return rows, [f"interrupted: not scored: {', '.join(missing)}" if missing else "interrupted after all scores"]
    return rows, []


def add_distances_from_best(rows: dict[str, dict[str, Any]], split: Split) -> None:
    """Add how far each score is behind the best, and the standard error of this difference."""
    for kind, held_out in (("thinned", split.thinned), ("withheld", split.withheld)):
        if held_out is None or split.keep == 1:
            continue
        best = max(rows, key=lambda name: np.nan_to_num(rows[name][f"heldout_{kind}"], nan=-np.inf))
        for row in rows.values():
            behind = ratio_of_sums(rows[best][LOGS][kind] - row[LOGS][kind], held_out.row_totals)
            row |= {f"heldout_{kind}_behind": behind.value, f"heldout_{kind}_behind_se": behind.se}


def evidence_of(fitted: Fit) -> dict[str, float]:
    """Return the log evidence of a fit by smc with its standard error; only a lower limit if it is unknown."""
    if not is_resampled(fitted):
        return {}
    log_p, error = fitted.diagnostics["log_p"], fitted.diagnostics["log_p_se"]
    if fitted.status.converged:
        return {"log_evidence": log_p, "log_evidence_se": error}
    return {"log_evidence": np.nan, "log_evidence_at_least": log_p - IN_TWENTY}


def _scores(scored: Mapping[str, Score]) -> dict[str, float]:
    row = {f"heldout_{kind}": result.per_count for kind, result in scored.items()}
    row |= {f"heldout_{kind}_error": result.error for kind, result in scored.items()}
    return {**row, "floored_entries": sum(result.floored for result in scored.values())} if scored else row


def agreement(fitted: Fit, reference: Fit) -> dict[str, float]:
    """Return mean and smallest cosine of matched components, and the correlation of loadings on the scale of counts."""
    order = alignment.match_fits(fitted, reference)
    cosines = alignment.fit_cosines(fitted, reference, order)
    ours, theirs = (fit.expected_loadings * component_sums(fit.exposed_components) for fit in (fitted, reference))
    with np.errstate(invalid="ignore", divide="ignore"):  # constant loadings have no correlation
        correlation = np.corrcoef(ours[:, order].ravel(), theirs.ravel())[0, 1] if ours.size > 1 else np.nan
    return {"cosine": float(cosines.mean()), "cosine_min": float(cosines.min()), "loadings_corr": float(correlation)}


def held_by_intervals(fitted: Fit, reference: Fit, seed: int) -> dict[str, float]:
    """Return the share of the reference's draws of loadings in the 90 % intervals of a fit with the same order.

    It is computed for up to 20 rows, chosen at random. For a mean field it is returned for the intervals of linear
    response, too. Loadings whose scale the counts do not determine are left out, and so are point estimates.
    """
    kinds, unit = (fitted.estimate.kind, reference.estimate.kind), on_simplex(fitted.priors.components)
    if fitted is reference or kinds[0] == "point" or kinds[1] != "draws" or not unit:
        return {}
    n, rank = fitted.loadings.shape
    rows = np.sort(np.random.default_rng(seed).choice(n, min(n, ROWS_HELD), replace=False))
    posterior: Any = reference.posterior
    draws, at = posterior.loadings[:, :, rows], (rows[:, None], np.arange(rank)[None])

    def share(estimate: Any) -> float:
        low, high = estimate.quantiles("loadings", at, np.array([0.05, 0.95]))
        return float(((draws >= low) & (draws <= high)).mean())

    found = {"held": share(fitted.estimate)}
    if has_response(fitted) and n * rank**2 <= MOST_NUMBERS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # NaN is not inside, and is shown
            found["held_response"] = share(linear_response(fitted))
    return found


def as_table(rows: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    table = pd.DataFrame.from_dict(dict(rows), orient="index").rename_axis("method")
    table = table[[name for name in MEASURES if name in table]]
    return with_last(table, ["cosine_other_start"]) if "cosine_other_start" in table else table


MEASURES = {  # in the order in which they are printed
    "seconds": Column("wall time of the fit, including a closed-form start", "seconds", "{:.1f}"),
    "loglik": Column("in-sample log-likelihood at Eθ·Eβ, nats", "log-likelihood at Eθ·Eβ", "{:,.1f}"),
    "elbo_augmented": Column("lower bound with allocations in q (closed form), nats", "elbo_augmented", "{:,.1f}"),
    "elbo_marginal": Column("lower bound with allocations summed out (Monte Carlo), nats", "elbo_marginal", "{:,.1f}"),
    "elbo_marginal_se": Column("its standard error", "  ± se", "{:.1f}"),
    "log_evidence": Column("log p(X) of the training counts by smc, nats; NaN if unknown", "log p(X)", "{:,.1f}"),
    "log_evidence_se": Column("its standard error", "  ± se", "{:.2f}"),
    "log_evidence_at_least": Column("lower limit with 95 % probability, if it is unknown", "  at least", "{:,.1f}"),
    "heldout_thinned": Column("log-likelihood for each thinned count, nats", "held-out/count, thinned", "{:.4f}"),
    "heldout_thinned_error": Column("its Monte Carlo error, mostly a bias: too low", "  ± Monte Carlo", "{:.4f}"),
    "heldout_thinned_behind": Column("its difference from the best method", "  behind the best", "{:.4f}"),
    "heldout_thinned_behind_se": Column("its standard error over samples, paired", "  ± se", "{:.4f}"),
    "heldout_withheld": Column("of new samples, given half of their counts", "held-out/count, new rows", "{:.4f}"),
    "heldout_withheld_error": Column("its Monte Carlo error", "  ± Monte Carlo", "{:.4f}"),
    "heldout_withheld_behind": Column("its difference from the best method", "  behind the best", "{:.4f}"),
    "heldout_withheld_behind_se": Column("its standard error over samples, paired", "  ± se", "{:.4f}"),
    "floored_entries": Column("entries less probable than the background", "entries at the 1e-6 floor", "{:.0f}"),
    "coverage90": Column("of held-out entries, by PIT; Poisson noise only", "held-out counts in 90 %", "{:.3f}"),
    "min_ess": Column("of components, loadings of up to 50 rows, and log joint", "min ESS", "{:.0f}"),
    "max_r_hat": Column("largest R-hat of the same quantities", "max R-hat", "{:.3f}"),
    "cosine_other_start": Column("with a run of the same method from a random start", "cosine, other start", "{:.3f}"),
    "cosine": Column("mean cosine of matched components with the reference", "components, mean cosine", "{:.4f}"),
    "cosine_min": Column("smallest cosine of matched components", "components, min cosine", "{:.4f}"),
    "loadings_corr": Column("correlation of loadings with the reference", "loadings, correlation", "{:.4f}"),
    "held": Column("share of the reference's draws of loadings inside", "reference's draws in 90 %", "{:.3f}"),
    "held_response": Column("the same for the intervals of linear response", "  by linear response", "{:.3f}"),
}


def cautions_of_all(fits: Mapping[str, Fit], rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the cautions of every fit, with its chains judged by all measured quantities."""
    return [
        with_label(name, caution)
        for name, fit in fits.items()
        for caution in cautions_of(fit, rows[name].get("max_r_hat"), rows[name].get("min_ess"))
    ]


def cautions_of_evidence(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the fits by smc whose log evidence is below the lower bound of another fit, so that it is too low."""
    bounded = {name: row for name, row in rows.items() if "elbo_marginal" in row}
    bounds = {name: row["elbo_marginal"] - 4 * row["elbo_marginal_se"] for name, row in bounded.items()}
    return [
        f"{name}: its log evidence, {row['log_evidence']:,.1f}, is below the bound of {bound}, {least:,.1f}, so it is "
        "too low: raise particles or runs"
        for name, row in rows.items()
        for bound, least in bounds.items()
        if row.get("log_evidence", np.inf) < least
    ]


def cautions_of_missing(methods: Sequence[str], fits: Iterable[str], others: Iterable[str]) -> list[str]:
    """Return which fits, and which runs from other starts, are missing because of Ctrl-C."""
    cautions = [f"{name} is left out: interrupted before it had a result" for name in methods if name not in set(fits)]
    missing = [name for name in fits if name not in set(others)]
    if missing:
        cautions.append(f"interrupted: no run from another start for {', '.join(missing)}")
    return cautions
