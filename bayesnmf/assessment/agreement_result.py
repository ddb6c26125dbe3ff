"""The table of how far posteriors agree, as it is returned, saved and shown."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesnmf.assessment.moments import QUANTITIES
from bayesnmf.cards import CAUTION, Card, Shown
from bayesnmf.places import check_folder
from bayesnmf.writing import write_text

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = {
    "entries": "number of entries compared",
    "correlation": "correlation of posterior means with those of the reference",
    "difference": "root mean square difference of means, in sds of the reference",
    "by_chance": "the difference expected from Monte Carlo error alone",
    "sd_ratio": "posterior sd divided by that of the reference, median over entries",
    "sd_ratio_low": "its 5 % quantile",
    "sd_ratio_high": "its 95 % quantile",
    "mass": "share of the reference's posterior draws inside the intervals of this fit",
    "coverage": "share of the true values inside the intervals of this fit",
    "max_r_hat": "largest R-hat of the entries (chains of gibbs and nuts)",
    "min_ess": "smallest bulk effective sample size of the entries (chains of gibbs and nuts)",
}
FORMATS = {
    "correlation": "{:.4f}",
    "difference": "{:.3f}",
    "by_chance": "{:.3f}",
    "sd_ratio": "{:.2f}",
    "mass": "{:.3f}",
    "coverage": "{:.3f}",
    "max_r_hat": "{:.3f}",
    "min_ess": "{:,.0f}",
}
HEADINGS = {
    "correlation": "means: corr.",
    "difference": "Δ mean / sd",
    "by_chance": "by chance",
    "sd_ratio": "sd ratio (5–95 % of entries)",
    "mass": "mass in {}",
    "coverage": "truth in {}",
    "max_r_hat": "max R-hat",
    "min_ess": "min ESS",
}
NOTE = "Δ mean: rms difference of posterior means, in sds of the reference; by chance: from Monte Carlo error alone"


@dataclass(frozen=True, eq=False, repr=False)
class Agreement(Shown):
    """Agreement between the posteriors of several fits.

    Attributes
    ----------
    table : DataFrame
        One row for each fit and quantity; `bayesnmf.assessment.agreement_result.COLUMNS` explains the columns.
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
        headings = [heading.format(f"{self.interval:.0%}") for name, heading in HEADINGS.items() if name in self.table]
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
            lines.append([named, str(label), *(_entry(row, name) for name in HEADINGS if name in table)])
    return lines


def _entry(row: Any, name: str) -> str:
    if np.isnan(row[name]):
        return "–"
    text = FORMATS[name].format(row[name])
    return f"{text} ({row['sd_ratio_low']:.2f}–{row['sd_ratio_high']:.2f})" if name == "sd_ratio" else text
