"""What `assign` returns: which known components each sample has, and how much of each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csc_array

from bayesnmf.cards import Card, Shown
from bayesnmf.checks import check_names
from bayesnmf.results.storage import save_record
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 10


@dataclass(frozen=True, eq=False, repr=False)
class Assignment(Shown):
    """Which known components each sample has, and how much of each.

    Attributes
    ----------
    presence : ndarray (n, K)
        Chance that each component is present in each sample; NaN for a sample without counts.
    exposures : ndarray (n, K)
        Posterior means of the exposures, in counts; a draw in which a component is absent has 0, and so have samples
        without counts.
    low, high : ndarray (n, K)
        Interval of each exposure if the component is present; NaN where no draw has it.
    prevalence : DataFrame
        Row for each component: mean, low and high of the share of the samples with counts in which it is present.
    r_hat : ndarray (n, K)
        R-hat of presence over the chains; NaN for chances below 0.05 or above 0.95.
    row_names : ndarray (n,)
    component_names : ndarray (K,)
        Names of the catalogue, or numbers, and of extra components.
    feature_names : ndarray (m,)
    components : ndarray (K, m)
        Components, whose rows sum to 1, with the features in the order of the counts: known ones, and posterior means
        of those that were drawn, extra ones or known ones that move.
    spread : ndarray (K, m)
        Their posterior standard deviations, 0 for known ones that stay.
    dispersion : ndarray (draws,) or (draws, m)
        Draws of the dispersion of negative binomial noise, or of that of each feature; zeros for Poisson noise.
    interval : float
        Probability between low and high.
    draws : csc_array (draws, n K)
        Exposures drawn by all chains, 0 where a component is absent.
    noise : str
    judged : DataFrame
        Row for each sample: ``between_chains``, the largest difference between means of the log-likelihood over the
        draws of chains; ``below_refit``, how far the mode of the best draw's support lies below a pruned refit, in
        their log joint density, both in nats; and whether the sample is ``stuck``: above 5, or above 10 (`assign`).
    cautions : list of str
        Reasons to doubt the result.
    interrupted : bool
        Whether Ctrl-C ended it before all chains had ended.
    moved : DataFrame or None
        Row for each known component, with `drift=`: the cosine between it and its posterior mean, which `components`
        has, and the posterior mean of the strength of all.

    See Also
    --------
    assign : which makes it.
    load : reads what `save` wrote.
    plots.presence : draws it.

    Examples
    --------
    >>> import bayesnmf
    >>> known = [[0.8, 0.1, 0.1], [0.1, 0.2, 0.7]]
    >>> found = bayesnmf.assign([[30, 5, 4], [2, 4, 16]], known)
    >>> found.presence.shape, found.exposures.shape
    ((2, 2), (2, 2))
    """

    presence: Array
    exposures: Array
    low: Array
    high: Array
    prevalence: pd.DataFrame
    r_hat: Array
    row_names: Array
    component_names: Array
    feature_names: Array
    components: Array
    spread: Array
    dispersion: Array
    interval: float
    draws: csc_array
    noise: str
    judged: pd.DataFrame
    cautions: list[str]
    interrupted: bool
    moved: pd.DataFrame | None = None

    def save(self, path: str | Path) -> None:
        """Write the result to a NetCDF file (`.nc`) or a Zarr store (`.zarr`), which `bayesnmf.load` reads.

        An older file is replaced only once the new one is complete. It says what `Fit.save` says of paths.
        """
        save_record(self, path)

    def table(self, least: float = 0.05) -> pd.DataFrame:
        """Return a row for each sample and component whose chance of presence is at least `least`.

        Samples without counts have none.

        Columns: ``sample``, ``component``, ``chance`` of presence, ``exposure`` (mean, in counts), ``share`` of the
        sample, ``if_present`` (mean if it is present), ``low`` and ``high`` of its interval then, and ``r_hat``.
        """
        import pandas as pd

        rows, columns = np.nonzero(self.presence >= least)
        mean = self.exposures[rows, columns]
        totals = np.maximum(self.exposures.sum(axis=1), 1e-300)
        there = np.diff(self.draws.indptr).reshape(self.presence.shape)[rows, columns] / self.draws.shape[0]
        with np.errstate(invalid="ignore", divide="ignore"):
            if_present = mean / there
        return pd.DataFrame(
            {
                "sample": self.row_names[rows],
                "component": self.component_names[columns],
                "chance": self.presence[rows, columns],
                "exposure": mean,
                "share": mean / totals[rows],
                "if_present": if_present,
                "low": self.low[rows, columns],
                "high": self.high[rows, columns],
                "r_hat": self.r_hat[rows, columns],
            }
        )

    def feature_probabilities(self, sample: Any) -> pd.DataFrame:
        """Return the probability that a count of each feature of a sample comes from each component, features by K.

        It is the posterior mean of u_k β_kj / Σ_l u_l β_lj, with components that are drawn at their posterior means. It
        says nothing of features without counts, and is NaN for a sample without any.
        """
        import pandas as pd

        at = check_names([sample], self.row_names, "sample")
        row, rank = 0 if at is None else int(at[0]), len(self.components)
        found, drawn = (
            np.zeros(self.components.shape),
            self.draws[:, row * rank : (row + 1) * rank].toarray().astype(np.float64),
        )
        for u in drawn:
            parts = u[:, None] * self.components
            found += parts / np.maximum(parts.sum(axis=0), 1e-300)
        found[np.isnan(self.presence[row])] = np.nan
        return pd.DataFrame(found.T / len(drawn), index=self.feature_names, columns=self.component_names)

    def card(self) -> Card:
        """Return what is shown of it."""
        n, rank = self.presence.shape
        title = f"{n} samples, {rank} components, {self.noise} noise"
        order = np.argsort(-np.nansum(self.presence, axis=0), kind="stable")[:SHOWN]
        shares = self.exposures.sum(axis=0) / max(self.exposures.sum(), 1e-300)
        lines = [
            [str(self.component_names[k]), f"{(self.presence[:, k] > 0.5).sum()}",
             f"{self.prevalence['mean'].iloc[k]:.0%}", f"{shares[k]:.1%}"] for k in order
        ]  # fmt: skip
        notes = [f"the {len(order)} most frequent of {rank} components"] if rank > len(order) else []
        if silent := int(np.isnan(self.presence).all(axis=1).sum()):
            notes.append(f"nothing is said of {silent} sample{'s' if silent > 1 else ''} without counts")
        if self.moved is not None:
            least, strength = self.moved["cosine"].idxmin(), self.moved["strength"].iloc[0]
            notes.append(
                f"known components have moved, least alike is {least} (cosine {self.moved['cosine'].min():.3f}); each "
                f"weighs {strength:,.0f} counts"
            )
        notes += [f"CAUTION {caution}" for caution in self.cautions]
        headings = ["component", "present in", "prevalence", "share of counts"]
        calls = ["found.table()  # chance, exposure and interval of each component in each sample"]
        return Card(title, headings, lines, notes, [*calls, "bayesnmf.plots.presence(found)"])
