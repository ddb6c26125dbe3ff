"""`compare`: one model, several methods, the same counts; aligned, and scored on held-out counts."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bayesnmf import checks, gauge
from bayesnmf.bounds import elbo_augmented, elbo_marginal
from bayesnmf.counts import Counts
from bayesnmf.fitting import ConvergenceWarning, ProgressReport, check_combination, fit, reporting, resolve_priors
from bayesnmf.inference.coordinate_ascent import INTERRUPTED
from bayesnmf.kernels.cpu import poisson_loglik
from bayesnmf.options import METHODS, NUTS, Gibbs, Options, Priors
from bayesnmf.results import Draws, Fit
from bayesnmf.scoring import Score, Split, background, pit_coverage, score, split_counts
from bayesnmf.specification import MODELS

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[Any]

NOTE = "posterior around one mode; chains started from the fit"
R_HAT_LIMIT, ESS_LIMIT = 1.05, 100
SCORE_DRAWS, PIT_DRAWS = 200, 100
DIAGNOSED_ROWS = 50

# Enough for R-hat ≤ 1.05 and ESS ≥ 100 on the default data; the dispersed runs only show where other starts lead.
DEFAULTS: dict[str, Options] = {
    "gibbs": Gibbs(chains=4, warmup=1000, draws=500, thin=4),
    "nuts": NUTS(chains=2, warmup=300, draws=300),
}
DISPERSED: dict[str, dict[str, int]] = {
    "gibbs": {"chains": 1, "warmup": 1000, "draws": 100, "thin": 1},
    "nuts": {"chains": 1, "warmup": 200, "draws": 50},
    "svi": {"max_iter": 1000},
}


@dataclass(frozen=True, eq=False)
class Settings:
    """How counts are set aside and which priors all methods share.

    Attributes
    ----------
    priors : Priors
        The same for every method.
    keep : float
        Probability with which a count is trained on; the rest is predicted.
    withhold : float
        Fraction of samples set aside whole.
    options : mapping of str to options, optional
        For single methods; their priors are replaced by `priors`.
    dispersed : bool
        Also run every method from a random start, to see whether it finds the same components.
    """

    priors: Priors = Priors()  # noqa: RUF009  frozen
    keep: float = 0.8
    withhold: float = 0.1
    options: Mapping[str, Options] | None = None
    dispersed: bool = True

    def __post_init__(self) -> None:
        checks.check_fraction(self.keep, "keep")
        if self.withhold != 0:
            checks.check_fraction(self.withhold, "withhold")

    def of(self, method: str) -> Options:
        """Return the options of a method."""
        chosen = (self.options or {}).get(method) or DEFAULTS.get(method) or METHODS[method]()
        return replace(chosen, priors=self.priors)


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Fits of one model by several methods, and what was measured of each.

    Attributes
    ----------
    fits : dict of str to Fit
        By method; components in the order of the reference, the first posterior fit (else the first fit).
    table : DataFrame
        A row a method; the columns are explained in `COLUMNS`.
    split : Split
        Counts trained on and set aside.
    cautions : list of str
        What a reader must know before believing the numbers.
    """

    fits: dict[str, Fit]
    table: pd.DataFrame
    split: Split
    cautions: list[str]

    def save(self, out: str | Path, image_shape: tuple[int, int] | None = None) -> list[Path]:
        """Write `compare.nc`, `table.csv` and the figures into a folder; return what was written."""
        from bayesnmf.reports import write

        return write(self, Path(out), image_shape)

    def __repr__(self) -> str:
        from bayesnmf.reports import as_text

        return as_text(self)


def compare(
    counts: Any,
    model: str = "gamma_poisson",
    rank: int = 8,
    methods: Sequence[str] = ("map", "vi", "gibbs", "nuts"),
    *,
    seed: int = 0,
    settings: Settings | None = None,
    out: str | Path | None = None,
    progress: ProgressReport | bool = False,
) -> Comparison:
    """Fit one model by several methods and compare them on the same footing.

    Parameters
    ----------
    counts : array, SciPy sparse matrix, pandas DataFrame, AnnData or nested list, (n, m)
        Whole numbers: they are thinned binomially.
    model, rank, seed
        As for `bayesnmf.fit`.
    methods : sequence of {"map", "vi", "svi", "gibbs", "nuts"}
    settings : Settings, optional
        Priors, held-out fractions, options of single methods.
    out : path, optional
        Folder in which each fit is saved as soon as it is done (`fits/METHOD.nc`).
    progress : bool or callable
        As for `bayesnmf.fit`.

    Returns
    -------
    Comparison
        Ctrl-C ends the method that is running; those that are done, and what there is of it, are compared.
    """
    methods = [checks.check_choice(method, "methods", METHODS) for method in checks.check_words(methods, "methods")]
    checks.check_choice(model, "model", MODELS)
    checks.check_rank(rank)
    seed = checks.check_count(seed, "seed", minimum=0)
    settings = Settings() if settings is None else settings
    data = checks.as_counts(counts)
    checks.check_integer_counts(data, "compare, which thins them")
    split = split_counts(data, settings.keep, settings.withhold, np.random.default_rng(seed))
    settings = replace(settings, priors=resolve_priors(model, split.train, rank, settings.priors))
    for method in methods:  # before the first fit, not after an hour of others
        check_combination(model, method, rank, split.train, settings.of(method))
    with reporting(progress) as report, warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # told as cautions, beside the numbers
        fits = _fit_all(split.train, model, rank, methods, seed, settings, out, report)
        fits = align(fits)
        others = _dispersed(fits, split.train, model, rank, seed, settings, report)
        rows = {name: _measure(fits, name, split, others.get(name), seed, report) for name in fits}
    return Comparison(fits, _table(rows), split, _cautions(fits, rows))


def _fit_all(
    train: Counts, model: str, rank: int, methods: Sequence[str], seed: int, settings: Settings, out: Any, report: Any
) -> dict[str, Fit]:
    fits: dict[str, Fit] = {}
    for method in methods:
        fits[method] = fit(train, model, rank, method, seed=seed, options=settings.of(method), progress=report)
        if out is not None:
            folder = Path(out) / "fits"
            folder.mkdir(parents=True, exist_ok=True)
            fits[method].save(folder / f"{method}.nc")
        if fits[method].status.reason == INTERRUPTED:
            break
    return fits


def align(fits: Mapping[str, Fit]) -> dict[str, Fit]:
    """Put the components of all fits in the order of the reference."""
    reference = fits[reference_of(fits)].components
    return {name: reordered(fit, gauge.match_components(fit.components, reference)) for name, fit in fits.items()}


def reference_of(fits: Mapping[str, Fit]) -> str:
    """Return the name of the fit that the others are held against: MCMC before VI before MAP."""
    return next(name for name in ("nuts", "gibbs", "vi", "svi", "map") if name in fits)


def reordered(fit: Fit, order: Array) -> Fit:
    """Return the same fit with its components, their posterior and their priors permuted."""
    from bayesnmf.relabel import relabel

    return relabel(fit, order)


def _dispersed(
    fits: Mapping[str, Fit], train: Counts, model: str, rank: int, seed: int, settings: Settings, report: Any
) -> dict[str, Fit]:
    """Fit every method again, from a random start of its own, MCMC and SVI for a short run."""
    if not settings.dispersed or any(fit.status.reason == INTERRUPTED for fit in fits.values()):
        return {}

    def relabelled(label: str, done: int, total: int, value: float) -> None:
        report(f"{label}, other start", done, total, value)

    others: dict[str, Fit] = {}
    for method in fits:
        options = replace(settings.of(method), start="random", **DISPERSED.get(method, {}))  # type: ignore[arg-type]
        other: Callable[..., Any] = relabelled
        others[method] = fit(train, model, rank, method, seed=seed + 1, options=options, progress=other)
        if others[method].status.reason == INTERRUPTED:
            break
    return others


def _measure(
    fits: Mapping[str, Fit], name: str, split: Split, other: Fit | None, seed: int, report: Any
) -> dict[str, Any]:
    """Measure one fit: everything in a row of the table."""
    fitted, train = fits[name], split.train
    report(f"scoring {name}", 0, 1, np.nan)
    frequencies = background(train)
    row: dict[str, Any] = {"seconds": fitted.seconds}
    row["loglik"] = poisson_loglik(train.matrix, fitted.expected_loadings, fitted.components, train.log_factorial)
    if name in ("vi", "svi"):
        marginal = elbo_marginal(fitted, seed=seed)
        row.update(elbo_augmented=elbo_augmented(fitted), elbo_marginal=marginal.mean, elbo_marginal_se=marginal.se)
    scored = {"thinned": score(fitted, split.thinned, frequencies, SCORE_DRAWS, seed)}
    row["coverage90"] = pit_coverage(fitted, split.thinned, PIT_DRAWS, seed)
    if split.seen is not None and split.withheld is not None:
        projected = fitted.project(split.seen, seed=seed)
        scored["withheld"] = score(projected, split.withheld, frequencies, SCORE_DRAWS, seed)
    row.update(_scores(scored))
    row.update(_chain_diagnostics(fitted, seed))
    row.update(agreement(fitted, fits[reference_of(fits)]))
    if other is not None:
        row["cosine_other_start"] = agreement(other, fitted)["cosine"]
    report(f"scoring {name}", 1, 1, np.nan)
    return row


def _scores(scored: Mapping[str, Score]) -> dict[str, float]:
    row = {f"heldout_{kind}": result.per_count for kind, result in scored.items()}
    return {**row, "floored_cells": sum(result.floored for result in scored.values())}


def _chain_diagnostics(fitted: Fit, seed: int) -> dict[str, float]:
    """Least ESS and greatest R-hat over the log joint, all components, and the loadings of up to 50 rows."""
    if not isinstance(fitted._posterior, Draws):
        return {}
    import arviz as az

    draws = fitted._posterior
    n = draws.loadings.shape[2]
    rows = np.random.default_rng(seed).choice(n, size=min(n, DIAGNOSED_ROWS), replace=False)
    flat = [draws.loadings[:, :, rows], draws.components, fitted.trace[:, :, None, None]]
    values = np.concatenate([array.reshape(*array.shape[:2], -1) for array in flat], axis=2)
    return {
        "min_ess": float(np.nanmin(az.ess(values, chain_axis=0, draw_axis=1))),
        "max_r_hat": float(np.nanmax(az.rhat(values, chain_axis=0, draw_axis=1))),
    }


def agreement(fitted: Fit, reference: Fit) -> dict[str, float]:
    """Mean and least cosine of matched components, and the correlation of the loadings, on the scale of the counts."""
    order = gauge.match_components(fitted.components, reference.components)
    cosines = np.diag(gauge.cosine(fitted.components[order], reference.components))
    ours, theirs = (fit.expected_loadings * gauge.component_sums(fit.components) for fit in (fitted, reference))
    correlation = np.corrcoef(ours[:, order].ravel(), theirs.ravel())[0, 1] if ours.size > 1 else np.nan
    return {"cosine": float(cosines.mean()), "cosine_min": float(cosines.min()), "loadings_corr": float(correlation)}


def _table(rows: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    table = pd.DataFrame.from_dict(rows, orient="index")  # type: ignore[arg-type]
    table.index.name = "method"
    return table.reindex(columns=[column for column in COLUMNS if column in table.columns])


COLUMNS = {
    "seconds": "wall time of the fit, a closed-form start included",
    "loglik": "in-sample Poisson log-likelihood at Eθ·Eβ, nats",
    "elbo_augmented": "evidence lower bound with allocations in q (closed form), nats",
    "elbo_marginal": "evidence lower bound with allocations summed out (Monte Carlo), nats",
    "elbo_marginal_se": "its standard error",
    "heldout_thinned": "held-out log-likelihood for each thinned count, nats",
    "heldout_withheld": "the same for samples not trained on, half of whose counts are seen",
    "floored_cells": "held-out cells whose probability was below the 1e-6 background",
    "coverage90": "share of held-out cells in the 90 % predictive interval (randomised PIT)",
    "min_ess": "least effective sample size",
    "max_r_hat": "greatest R-hat",
    "cosine": "mean cosine of matched components with the reference",
    "cosine_min": "the least of them",
    "loadings_corr": "correlation of loadings with the reference",
    "cosine_other_start": "mean cosine with a run of the same method from a random start",
}


def _cautions(fits: Mapping[str, Fit], rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    cautions = []
    for name, fitted in fits.items():
        if fitted.status.reason == INTERRUPTED:
            cautions.append(f"{name} was interrupted; its numbers are of what it had reached")
        elif not fitted.status.converged and "max_r_hat" not in rows[name]:
            cautions.append(f"{name} did not converge: {fitted.status.reason}; raise max_iter")
        if rows[name].get("max_r_hat", 1.0) > R_HAT_LIMIT:
            cautions.append(f"{name}: R-hat {rows[name]['max_r_hat']:.2f} > {R_HAT_LIMIT}; raise warmup and draws")
        if rows[name].get("min_ess", np.inf) < ESS_LIMIT:
            cautions.append(f"{name}: ESS {rows[name]['min_ess']:.0f} < {ESS_LIMIT}; raise draws")
        if fitted.diagnostics.get("divergences", 0) > 0:
            cautions.append(f"{name}: {fitted.diagnostics['divergences']:.0f} divergences; raise target_accept")
    return cautions
