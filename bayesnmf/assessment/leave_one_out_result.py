"""How well each entry is predicted from all others, as leave-one-out cross-validation returns and shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesnmf.cards import Card, Shown
from bayesnmf.text import number
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd

BAD_K = 0.7


@dataclass(frozen=True, eq=False, repr=False)
class LeaveOneOut(Shown):
    """Expected log predictive density of entries, each left out in turn.

    Attributes
    ----------
    elpd, se, p_loo : float
        The sum over all `entries`, in nats, its standard error over entries, and the effective number of parameters.
    sampling_se : float
        Standard error of `elpd` because only some entries were examined; 0 if all were.
    entries : int
        Number of entries in the sum `elpd`.
    pointwise : DataFrame
        One row for each examined entry: row, feature, count, elpd, pareto_k.
    good_k : float
        The reliability limit of k-hat for this number of draws, as in ArviZ: min(1 − 1/log₁₀ draws, 0.7).
    model, method : str
    notes : list of str

    See Also
    --------
    loo : which makes it.

    Examples
    --------
    >>> import bayesnmf
    >>> counts, options = [[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]], bayesnmf.Gibbs(chains=2, warmup=50, draws=50)
    >>> fit = bayesnmf.fit(counts, rank=1, method="gibbs", seed=0, options=options)
    >>> bayesnmf.loo(fit).pointwise.shape[0]
    12
    """

    elpd: float
    se: float
    p_loo: float
    sampling_se: float
    entries: int
    pointwise: pd.DataFrame
    good_k: float
    model: str
    method: str
    notes: list[str]

    @property
    def pareto_k(self) -> Array:
        """k-hat of every examined entry."""
        return self.pointwise["pareto_k"].to_numpy()

    def worst(self, n: int = 3) -> pd.DataFrame:
        """Return the entries with the largest k-hat, worst first."""
        return self.pointwise.nlargest(n, "pareto_k")

    def card(self) -> Card:
        """Return what is shown of it."""
        k, part = self.pareto_k, f", estimated from {len(self.pointwise):,} of them" if self.sampling_se else ""
        error = f", and ± {number(self.sampling_se)} for the entries not examined" if self.sampling_se else ""
        lines = [
            ["elpd", f"{self.elpd:,.1f} ± {number(self.se)} nats{error}"],
            ["effective parameters, p_loo", f"{self.p_loo:,.1f}"],
            ["largest k-hat", f"{k.max():.2f}"],
            [f"k-hat above {BAD_K:g}", f"{np.mean(k > BAD_K):.2%} of the entries"],
            [f"k-hat above {self.good_k:.2f}, the limit for so many draws", f"{np.mean(k > self.good_k):.2%}"],
        ]
        rows: Any = self.worst().itertuples()
        worst = "; ".join(f"({at.row}, {at.feature}) = {at.count:g}: k-hat {at.pareto_k:.2f}" for at in rows)
        title = f"{self.model} by {self.method}, leave-one-out over {self.entries:,} entries{part}"
        return Card(title, ["quantity", "value"], lines, [f"worst: {worst}", *self.notes], ["found.worst(20)"])
