"""Write a comparison as text, files and figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bayesnmf.cards import CAUTION, Card, Shown
from bayesnmf.data.splitting import Split
from bayesnmf.fitting.fitted import Fit
from bayesnmf.needs import needed_for
from bayesnmf.noise.poisson import POISSON
from bayesnmf.options import METHODS, methods_with
from bayesnmf.results.draws import chains_and_draws, draws_size
from bayesnmf.results.resampling import is_resampled
from bayesnmf.results.thinning import STORED_BYTES, components_table, draws_within, loadings_table, thin_fit
from bayesnmf.studies.comparison.finding import finding
from bayesnmf.studies.comparison.measures import reference_of
from bayesnmf.writing import write_text

if TYPE_CHECKING:
    import pandas as pd


SHOWN_ROWS = 4
NOTE = "posterior around one mode; chains started from the fit"
NOTE_OF_PARTICLES = "draws of independent runs from the prior, resampled by their estimates of p(X)"
UNKNOWN = "unknown"
TREE, TABLE, REPORT = "compare.nc", "table.csv", "report.txt"
FIGURES = ("components", "objectives", "agreement", "loadings_intervals")


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Shown):
    """Fits of one model by several methods, and their measures.

    Attributes
    ----------
    fits : dict of str to Fit
        Fits by method, with components in the order of the reference: the first posterior fit, else the first fit.
    table : DataFrame
        One row for each method; `bayesnmf.studies.comparison.measures.COLUMNS` explains the columns.
    split : Split
        Training counts and held-out counts.
    cautions : list of str
        Reasons to doubt the numbers.
    draws : {"thinned", "all"}
        Draws that `save` writes, as in `Settings`.
    """

    fits: dict[str, Fit]
    table: pd.DataFrame
    split: Split
    cautions: list[str]
    draws: Literal["thinned", "all"] = "thinned"

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C stopped a method, or prevented one or the runs from other starts."""
        return any("interrupted" in caution for caution in self.cautions)

    def save(self, out: str | Path, image_shape: tuple[int, int] | None = None) -> list[Path]:
        """Write `compare.nc`, `table.csv` and the figures into a folder; return their paths."""
        return write(self, Path(out), image_shape)

    def card(self) -> Card:
        """Return what was found, and the measures that say so: a column for each method."""
        found = finding(self.table, reference := reference_of(self.fits))
        shown = f"in nats; last rows: against {reference}; found.details(), or --verbose, shows all measures"
        calls = [
            "print(found.details())  # all measures, and how they were made",
            "bayesnmf.plots.components(found.fits)",
        ]
        more = [shown, *(f"{CAUTION}{each}" for each in self.cautions)]
        return Card(self._title(), ["", *self.fits], measured(self, SHORT), more, calls, found)

    def details(self) -> str:
        """Return all measures as text: what was found, a row for each measure, and how it was made."""
        headings, found = ["", *self.fits], finding(self.table, reference_of(self.fits))
        return Card(self._title(), headings, measured(self), notes(self), findings=found).as_text()

    def _title(self) -> str:
        first, (n, m), seen = next(iter(self.fits.values())), self.split.train.shape, self.split.seen
        noise = "" if first.noise == POISSON else f", noise {first.noise.word}"
        aside = "" if seen is None else f", and {seen.shape[0]:,} samples set aside"
        return f"{first.model}, rank {first.rank}{noise}: {n:,} samples × {m:,} features{aside}"


# Heading and format of each measure, in the order of the table.
MEASURES = {
    "seconds": ("seconds", "{:.1f}"),
    "loglik": ("log-likelihood at Eθ·Eβ", "{:,.1f}"),
    "elbo_augmented": ("elbo_augmented", "{:,.1f}"),
    "elbo_marginal": ("elbo_marginal", "{:,.1f}"),
    "elbo_marginal_se": ("  ± se", "{:.1f}"),
    "log_evidence": ("log p(X)", "{:,.1f}"),
    "log_evidence_se": ("  ± se", "{:.2f}"),
    "log_evidence_at_least": ("  at least", "{:,.1f}"),
    "heldout_thinned": ("held-out/count, thinned", "{:.4f}"),
    "heldout_thinned_error": ("  ± Monte Carlo", "{:.4f}"),
    "heldout_thinned_behind": ("  behind the best", "{:.4f}"),
    "heldout_thinned_behind_se": ("  ± se", "{:.4f}"),
    "heldout_withheld": ("held-out/count, new rows", "{:.4f}"),
    "heldout_withheld_error": ("  ± Monte Carlo", "{:.4f}"),
    "heldout_withheld_behind": ("  behind the best", "{:.4f}"),
    "heldout_withheld_behind_se": ("  ± se", "{:.4f}"),
    "floored_entries": ("entries at the 1e-6 floor", "{:.0f}"),
    "coverage90": ("held-out counts in 90 %", "{:.3f}"),
    "min_ess": ("min ESS", "{:.0f}"),
    "max_r_hat": ("max R-hat", "{:.3f}"),
    "cosine_other_start": ("cosine, other start", "{:.3f}"),
    "cosine": ("components, mean cosine", "{:.4f}"),
    "cosine_min": ("components, min cosine", "{:.4f}"),
    "loadings_corr": ("loadings, correlation", "{:.4f}"),
    "held": ("reference's draws in 90 %", "{:.3f}"),
    "held_response": ("  by linear response", "{:.3f}"),
}

SHORT = (
    "seconds", "log_evidence", "log_evidence_at_least", "heldout_withheld", "cosine_min", "held", "cosine_other_start",
)  # fmt: skip


def measured(comparison: Comparison, chosen: Collection[str] = tuple(MEASURES)) -> list[list[str]]:
    """Return the rows of the table as text: the heading of a measure, and its value for each method."""
    fits, rows = comparison.fits, []
    for measure, (heading, form) in MEASURES.items():
        if measure in comparison.table and measure in chosen:
            missing = {
                name: UNKNOWN if measure == "log_evidence" and is_resampled(fits[name]) else "–" for name in fits
            }
            rows.append([heading, *(_entry(comparison.table.loc[name, measure], form, missing[name]) for name in fits)])
    return rows


def _entry(value: Any, form: str, missing: str) -> str:
    return missing if isinstance(value, float) and math.isnan(value) else form.format(value)


def notes(comparison: Comparison) -> list[str]:
    """Return the notes that are needed to read all measures."""
    split = comparison.split
    chains = [name for name, fitted in comparison.fits.items() if _is_chains(fitted)]
    lines = [f"in nats; held-out given row totals; reference of the last rows: {reference_of(comparison.fits)}"]
    lines += [f"{' and '.join(chains)}: {NOTE}"] if chains else []
    lines += [f"{name}: {NOTE_OF_PARTICLES}" for name, fitted in comparison.fits.items() if is_resampled(fitted)]
    lines.append(
        f"{split.train.total:,.0f} counts trained on, {split.thinned.total:,.0f} thinned (each kept with probability "
        f"{split.keep:g})"
    )
    if split.seen is not None and split.withheld is not None:
        lines.append(
            f"{split.seen.shape[0]} new samples: {split.seen.total:,.0f} counts seen, "
            f"{split.withheld.total:,.0f} predicted"
        )
    return [*lines, *(f"{CAUTION}{caution}" for caution in comparison.cautions)]


def file_names() -> list[str]:
    """Return the names of all files that `write` may write, so that they can be checked before the fits."""
    factors = [f"{side}_{method}.csv" for method in METHODS for side in ("loadings", "components")]
    return [
        TREE,
        TABLE,
        REPORT,
        *factors,
        *(f"{name}.png" for name in (*FIGURES, *(f"chains_{name}" for name in methods_with("draws")))),
    ]


def _is_chains(fitted: Fit) -> bool:
    return METHODS[fitted.method].posterior == "draws" and not is_resampled(fitted)


def write(comparison: Comparison, out: Path, image_shape: tuple[int, int] | None) -> list[Path]:
    """Write `compare.nc` (`.zarr` above 1 GiB), tables, `report.txt` and the figures; return their paths."""
    from bayesnmf.results.storage import path_by_size, write_tree

    out.mkdir(parents=True, exist_ok=True)
    tree = to_datatree(comparison)
    written = [path_by_size(tree.nbytes, out / TREE), out / TABLE, out / REPORT]
    write_text(written[1], comparison.table.to_csv())  # small files first, in case there is no room for all
    write_text(written[2], comparison.details() + "\n")
    written += write_factors(comparison, out)
    write_tree(tree, written[0])
    return written + figures(comparison, out, image_shape)


def to_datatree(comparison: Comparison) -> Any:
    """Return one tree with the table and a branch for each method; draws are thinned unless all are requested."""
    with needed_for("a tree of all fits"):
        import xarray as xr

    branches = {}
    for name, fitted in comparison.fits.items():
        stored = fitted if comparison.draws == "all" else thin_fit(fitted)  # keeps the statistics of all draws
        number = (
            None
            if METHODS[fitted.method].posterior != "mean field"
            else min(draws_within(fitted, STORED_BYTES) // 4 or 1, 250)
        )
        size = draws_size(stored, chains_and_draws(stored, None, number), stored.counts.shape)
        branches[name] = stored.to_datatree(number, limit=max(size, STORED_BYTES))
        if branches[name]["observed_data"].nbytes > STORED_BYTES // 2:  # the files of the fits contain the counts
            del branches[name]["observed_data"]
    table = comparison.table.reset_index().to_xarray().set_coords("method").swap_dims(index="method").drop_vars("index")
    return xr.DataTree.from_dict({"comparison": table, **branches})


def write_factors(comparison: Comparison, out: Path) -> list[Path]:
    """Write `loadings_METHOD.csv` and `components_METHOD.csv` of every method; return their paths."""
    written = []
    for name, fitted in comparison.fits.items():
        for side, table in (("loadings", loadings_table(fitted)), ("components", components_table(fitted))):
            written.append(out / f"{side}_{name}.csv")
            write_text(written[-1], table.to_csv(float_format="%.8g"))
    return written


def figures(comparison: Comparison, out: Path, image_shape: tuple[int, int] | None) -> list[Path]:
    """Write the figures; return their paths."""
    from bayesnmf.plots.style import save_figure

    paths = []
    for name, draw in figures_of(comparison, image_shape).items():
        paths.append(out / f"{name}.png")
        save_figure(draw(), paths[-1])
    return paths


def figures_of(comparison: Comparison, image_shape: tuple[int, int] | None) -> dict[str, Callable[[], Any]]:
    """Return functions that draw components, objectives, agreement, intervals of loadings, and chains, by name."""
    with needed_for("a figure"):
        from bayesnmf import plots

    fits = comparison.fits
    with_posterior = {name: fitted for name, fitted in fits.items() if fitted.estimate.kind != "point"}
    totals = comparison.split.train.row_totals
    rows = comparison.split.train.row_names[np.argsort(-totals, kind="stable")[:SHOWN_ROWS]]
    reference = reference_of(fits)  # the same as in the table
    drawn: dict[str, Callable[[], Any]] = {
        "components": lambda: plots.components(fits, image_shape=image_shape, reference=reference)
    }
    if not all(METHODS[fitted.method].posterior == "draws" for fitted in fits.values()):
        drawn["objectives"] = lambda: plots.objectives(fits)
    if len(fits) > 1:
        drawn["agreement"] = lambda: plots.agreement(fits)
    if with_posterior:
        among = reference_of(with_posterior)
        drawn["loadings_intervals"] = lambda: plots.loadings_intervals(with_posterior, rows, reference=among)
    for name, fitted in fits.items():
        if _is_chains(fitted):
            drawn[f"chains_{name}"] = lambda name=name: plots.chains(fits[name])  # type: ignore[misc]
    return drawn
