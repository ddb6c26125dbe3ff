"""Rank models and ranks by the log-likelihood of held-out counts, of the training rows and of withheld rows.

In each split, some rows are withheld, and every count of the others is kept for training with some probability. Two
scores follow: of the thinned counts of the training rows, and of half of the features of the withheld rows given the
other half (`bayesnmf.studies.selection.new_rows`). Where the rates of single entries vary more than the model allows,
both parts of a thinned entry share its excess, so that components which describe single rows predict thinned counts;
counts of other rows and features they do not.

Scores are pooled over splits by row: standard errors are those of ratios of sums over rows, and differences are paired.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bayesnmf.assessment.scoring import MOST_SCORE_DRAWS, SCORE_DRAWS, background, ratio_of_sums, score
from bayesnmf.data.counts import Counts
from bayesnmf.data.splitting import Split, split_counts
from bayesnmf.fitting.fit import fit
from bayesnmf.fitting.fitted import Fit
from bayesnmf.fitting.many import uninterrupted
from bayesnmf.studies.selection.new_rows import hidden_features, predict_hidden
from bayesnmf.studies.selection.plan import SelectionPlan
from bayesnmf.studies.selection.record import Candidate
from bayesnmf.studies.selection.result import Selection
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd

HIDDEN = 2**31  # seed beside that of the fits


class Scored(NamedTuple):
    """One fit's predictions in one split: logs and held-out counts of each row of the whole data, (n,)."""

    thinned: tuple[Array, Array]
    withheld: tuple[Array, Array]
    converged: bool

    @property
    def per_count(self) -> float:
        """Score of the thinned counts for each count."""
        logs, counted = self.thinned
        return float(logs.sum() / counted.sum()) if counted.sum() else np.nan


def by_held_out_counts(plan: SelectionPlan) -> Selection:
    """Score every candidate in every split; after Ctrl-C, compare the complete splits, or the unfinished first one."""
    import pandas as pd

    splits = (_split(plan, number) for number in range(plan.splits))
    found, scored, interrupted = plan.score_all(splits, plan.splits, plan.candidates, partial(_score, plan))
    index = pd.MultiIndex.from_tuples(scored, names=["model", "rank"])
    scores = pd.DataFrame([[one.per_count for one in row] for row in found], columns=index).rename_axis("split")
    table = pooled([[one.thinned for one in row] for row in found], index)
    rows = pooled([[one.withheld for one in row] for row in found], index)
    table = with_fits(table.join(rows.add_prefix("rows_")), found)
    best = best_of(table, scored)
    return Selection(table, scores, best and Candidate(*best), plan.method, plan.keep, interrupted)


def _split(plan: SelectionPlan, number: int) -> Split:
    return split_counts(plan.counts, plan.keep, plan.withhold, np.random.default_rng([plan.seed, number]))


def _score(plan: SelectionPlan, split: Split, candidate: Candidate, seed: int) -> Scored:
    """Fit and score a candidate."""
    options = plan.options_for(candidate, split.train)
    fitted = uninterrupted(fit(split.train, *candidate, plan.method, seed=seed, options=options))
    frequencies, n = background(split.train), plan.counts.shape[0]
    thinned = _logs_of(fitted, split.thinned, split.rows, frequencies, seed, n)
    withheld = np.zeros(n), np.zeros(n)
    if len(split.withheld_rows):
        hidden = hidden_features(plan.counts.shape[1], np.random.default_rng([seed, HIDDEN]))
        first = 0
        for rows in np.array_split(split.withheld_rows, len(plan.counts.blocks)):
            found = predict_hidden(fitted, plan.counts.rows(rows), hidden, frequencies, seed, first)
            for whole, part in zip(withheld, found, strict=True):
                whole[rows] = part
            first += len(rows)
    return Scored(thinned, withheld, fitted.status.converged)


def _logs_of(fitted: Fit, held_out: Counts, rows: Array, frequencies: Array, seed: int, n: int) -> tuple[Array, Array]:
    """Return the log-probability of held-out counts, and their number, by row of the whole data."""
    scored = score(fitted, held_out, frequencies, SCORE_DRAWS, seed, MOST_SCORE_DRAWS)
    logs, counted = np.zeros(n), np.zeros(n)
    logs[rows], counted[rows] = scored.rows, held_out.row_totals
    return logs, counted


def pooled(found: list[list[tuple[Array, Array]]], index: pd.MultiIndex) -> pd.DataFrame:
    """Return means, differences from the best, and standard errors, of logs pooled over splits by row."""
    import pandas as pd

    logs = np.sum([[logs for logs, _ in row] for row in found], axis=0)
    counted = np.sum([row[0][1] for row in found], axis=0)
    means = np.array([ratio_of_sums(each, counted) for each in logs])
    best = 0 if np.isnan(means[:, 0]).all() else int(np.nanargmax(means[:, 0]))
    gaps = np.array([ratio_of_sums(each - logs[best], counted) for each in logs])
    columns = {"mean": means[:, 0], "se": means[:, 1], "difference": gaps[:, 0], "difference_se": gaps[:, 1]}
    return pd.DataFrame(columns, index=index)


def with_fits(table: pd.DataFrame, found: list[list[Any]]) -> pd.DataFrame:
    """Return the table with the number of fits of each candidate, and of those that converged."""
    converged = np.sum([[one.converged for one in row] for row in found], axis=0)
    return table.assign(fits=len(found), converged=converged)


def best_of[C](table: pd.DataFrame, scored: Sequence[C]) -> C | None:
    """Return the candidate with the best mean; None if no count was held out."""
    means = table["mean"].to_numpy()
    return None if np.isnan(means).all() else scored[int(np.nanargmax(means))]
