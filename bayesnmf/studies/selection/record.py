"""Models and ranks with their scores, and which of them a criterion prefers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bayesnmf.assessment.predictive_checks import PredictiveChecks
from bayesnmf.noise.abilities import Noise
from bayesnmf.noise.poisson import POISSON
from bayesnmf.noise.words import NOISES
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd

UNIT = {"halves": "half", "counts": "resampled"}  # name of the index of the scores, by what is resampled


def word_of(noise: Noise) -> str:
    """Return the name of a noise in tables: its word, if it is the one that the word stands for."""
    return noise.word if NOISES[noise.word] == noise else repr(noise)


class Candidate(NamedTuple):
    """A model and a rank; ``bayesnmf.fit(counts, *candidate)`` fits it."""

    model: str
    rank: int


@dataclass(frozen=True, eq=False, repr=False)
class SelectionRecord:
    """Models and ranks, ranked by a criterion.

    Attributes
    ----------
    table : DataFrame
        By model and rank, and before by noise if several are compared. With "heldout": mean (held-out log-likelihood
        for each count, in nats, without the multinomial coefficient) and its se over rows; difference from the best,
        and the se of the paired differences; the same for withheld rows (`rows_mean`, …); number of fits, and number of
        those that converged. With "masked": the same of held-out entries, with all terms of the log-probability, and
        chi_squared. With "evidence": log_evidence, se (infinite if unknown), known, at_least, spread, rungs, could_win,
        difference, difference_se, probability. With "stability": least (share of the halves in which the least
        recurrent component comes back), closeness, recurrent (number of components that come back in 80 % of them),
        empty, fits, converged.
    scores : DataFrame
        Scores by split and candidate with "heldout" and "masked", estimates by run and candidate with "evidence", least
        cosines by half of the rows, or by resampled counts, with "stability".
    best : Candidate or None
        Candidate that the criterion prefers; None while one that could win is unknown, or if none qualifies.
    method : str
        Method of the fits.
    keep : float
        Probability with which a count was in the training counts: 1 but with "heldout".
    interrupted : bool
        Whether Ctrl-C stopped the selection: with "heldout" and "masked", only candidates that were scored in every
        split are compared; with the others, those that are done. Or it stopped the checks, which are then None.
    criterion : str
        Word of the criterion.
    noise : Noise
        Noise of the best candidate: ``bayesnmf.fit(counts, *best, noise=noise)`` fits it.
    checks : PredictiveChecks or None
        Predictive checks of the best candidate's fit to all counts.
    totals : tuple of ndarray (n,) and (m,), or None
        Totals of the rows and of the features of the counts, by which `report` knows them.

    See Also
    --------
    select : which makes it.
    plots.selection : draws it.

    Examples
    --------
    >>> import bayesnmf
    >>> found = bayesnmf.select([[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]], ranks=(1, 2), splits=2, check=False)
    >>> found.table.shape[0]
    2
    """

    table: pd.DataFrame
    scores: pd.DataFrame
    best: Candidate | None
    method: str
    keep: float = 1.0
    interrupted: bool = False
    criterion: str = "heldout"
    noise: Noise = POISSON
    checks: PredictiveChecks | None = None
    totals: tuple[Array, Array] | None = None

    def place(self, candidate: Any) -> tuple[Any, ...]:
        """Return where a candidate with the best noise is in the table."""
        return candidate if self.table.index.nlevels == 2 else (word_of(self.noise), *candidate)

    @property
    def resampled(self) -> str:
        """What components come back in, with "stability"."""
        return "resampled counts" if self.scores.index.name == UNIT["counts"] else "halves of the rows"

    @property
    def best_for_rows(self) -> Candidate | None:
        """Candidate that predicts withheld rows best; None without them."""
        if "rows_mean" not in self.table or self.table["rows_mean"].isna().all():
            return None
        first: Any = self.table["rows_mean"].idxmax()
        return Candidate(str(first[0]), int(first[1]))

    @property
    def one_standard_error_for_rows(self) -> Candidate | None:
        """The smallest rank whose score for withheld rows is within one standard error of the best."""
        if self.best_for_rows is None:
            return None
        return frugal_of(self.table, "rows_mean", "rows_difference", "rows_difference_se")


def frugal_of(table: pd.DataFrame, mean: str, difference: str, se: str) -> Candidate:
    """Return the smallest rank that falls short of the best by at most one standard error."""
    flat = table.reset_index()
    good = flat[-flat[difference] <= np.nan_to_num(flat[se])]
    first: Any = good.sort_values(["rank", mean], ascending=[True, False]).iloc[0]
    return Candidate(str(first["model"]), int(first["rank"]))
