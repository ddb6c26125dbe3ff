"""Rank models and ranks by the log-likelihood of held-out counts, of the training rows and of withheld rows.

In each split, some rows are withheld, and every count of the others is kept for training with some probability. Two
scores follow: of the thinned counts of the training rows, and of half of the features of the withheld rows given the
other half. Where the rates of single entries vary more than the model allows,
both parts of a thinned entry share its excess, so that components which describe single rows predict thinned counts;
counts of other rows and features they do not.

Scores are pooled over splits by row: standard errors are those of ratios of sums over rows, and differences are paired.

Predict one half of the features of rows that no fit has seen from the other half.

The loadings of a row given its counts of the shown features S have a variational posterior q, in which component k has
the exposure Σ_{j in S} β_kj, with the components at their posterior means. The counts of the hidden features are then
multinomial given their total, with probabilities in proportion to Σ_k θ_k β_kj. Unlike two halves of the counts of a
entry, counts of different entries share no excess beyond the components.

Proportions without a free scale are θ_k = g π_k with g ~ Gamma(Σ α, ρ), where ρ makes the prior mean of the shown total
the observed one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.assessment.scoring import (
    MIXED,
    MOST_SCORE_DRAWS,
    SCORE_DRAWS,
    background,
    entry_probabilities,
    ratio_of_sums,
    score,
)
from bayesnmf.checks import check_count, check_fraction
from bayesnmf.data.counts import Counts
from bayesnmf.data.splitting import Split, rows_aside, split_counts
from bayesnmf.fitting.fit import fit
from bayesnmf.fitting.fitted import Fit
from bayesnmf.fitting.many import uninterrupted
from bayesnmf.inference.ascent.settled_loadings import even_loadings, settle_loadings
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.side import MeanField, Mode
from bayesnmf.options import Options
from bayesnmf.priors import Gamma
from bayesnmf.studies.selection.criterion import ByScore, Candidate, Line, SelectionPlan, SelectionRecord
from bayesnmf.text import plus_minus
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd


KEEP, WITHHOLD = 0.8, 0.2
CLEAR = 2.0  # standard errors by which one rank predicts other rows worse than another beyond chance
MAX_ITER, TOL = 500, 1e-6
DRAWS = 100
STAND_IN = Gamma(1.0, 1.0)  # no prior of the components is used, but their sums, which differ from 1


def hidden_features(features: int, rng: np.random.Generator) -> Array:
    """Return which features are hidden, half of them, (m,)."""
    hidden = np.zeros(features, bool)
    hidden[rng.permutation(features)[: features // 2]] = True
    return hidden


def predict_hidden(
    fit: Fit, rows: Counts, hidden: Array, frequencies: Array, seed: int, first: int = 0
) -> tuple[Array, Array]:
    """Return the log-probability of the hidden counts of new rows, and their number, (rows,) each.

    Parameters
    ----------
    rows : Counts
        All counts of the rows.
    hidden : ndarray (m,) of bool
        Features to predict.
    frequencies : ndarray (m,)
        Frequencies of the features, which are mixed in as in `bayesnmf.assessment.scoring.score`.
    seed : int
        Seed of the draws of the loadings.
    first : int
        Place of the first row among all rows that are predicted with this seed.
    """
    shown, asked = _part(rows, ~hidden), _part(rows, hidden).matrix
    components = np.asarray(fit.exposed_components, np.float64)
    q: Any = _loadings_given(fit, shown, components * ~hidden)
    of_hidden, shares = components * hidden, frequencies / frequencies[hidden].sum()
    places = np.repeat(np.arange(asked.shape[0]), np.diff(asked.indptr))
    total, rng = np.full(asked.shape[0], -np.inf), np.random.default_rng(seed)
    for _ in range(DRAWS):
        p = entry_probabilities(asked, places, q.draw_rows(rng, first), of_hidden)
        logs = asked.data * np.log((1 - MIXED) * p + MIXED * shares[asked.indices])
        total = np.logaddexp(total, np.bincount(places, weights=logs, minlength=asked.shape[0]))
    return total - np.log(DRAWS), _part(rows, hidden).row_totals


def _part(rows: Counts, kept: Array) -> Counts:
    """Return the counts of some features; those of the others are 0."""
    matrix = rows.matrix.astype(np.float64)
    matrix.data = matrix.data * kept[matrix.indices]
    matrix.eliminate_zeros()
    return Counts(csr_array(matrix), rows.row_names, rows.feature_names, rows.row_exposure)


def _loadings_given(fit: Fit, shown: Counts, components: Array) -> Any:
    """Return q of the loadings of new rows given components that are 0 at the hidden features."""
    prior = loadings_prior(fit, shown, components)
    problem = Problem(shown, prior, STAND_IN, MeanField(component_axis=1), Mode(estimated=True), fixed_components=True)
    side = Mode(estimated=True).at(STAND_IN, np.asfortranarray(components))
    state = State(even_loadings(problem, side, fit.rank), side)
    found: Any = settle_loadings(problem, state, TOL, MAX_ITER, None).state
    return found.loadings.conditional


def loadings_prior(fit: Fit, shown: Counts, components: Array) -> Any:
    """Return a positive prior of the loadings of new rows."""
    prior: Any = fit.priors.loadings.of_new_rows(fit.loadings)  # type: ignore[union-attr]
    if prior.support == "positive":
        return prior
    alpha = np.broadcast_to(getattr(prior, "proportions", prior).concentration, (1, fit.rank))
    total = np.maximum(shown.row_totals[:, None], 1.0) / shown.row_factor
    return Gamma(alpha, np.asarray((alpha @ components.sum(axis=1))[:, None] / total))


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


@dataclass(frozen=True)
class HeldOut(ByScore):
    """Log-likelihood of held-out counts, in nats for each of them.

    Attributes
    ----------
    splits : int
        Number of random splits, each with its own fits.
    keep : float
        Probability that a count is a training count.
    withhold : float, optional
        Share of the rows that are withheld; by default a fifth, or none where there are too few rows or features.
    """

    splits: int = 3
    keep: float = KEEP
    withhold: float | None = None

    word: ClassVar[str] = "heldout"
    noises: ClassVar[Any] = "poisson"
    label: ClassVar[str] = "held-out log-likelihood\nfor each count (nats)"
    title: ClassVar[str] = "held-out counts,\nsame samples"
    units: ClassVar[str] = "random splits of the counts"
    prefers: ClassVar[str] = "Held-out counts are predicted best"

    def __post_init__(self) -> None:
        check_count(self.splits, "splits")
        check_fraction(self.keep, "keep")
        if self.withhold:
            check_fraction(self.withhold, "withhold")

    @property
    def takes_covariates(self) -> bool:
        """Whether loadings may depend on covariates: not of rows that are withheld."""
        return not self.withhold

    @property
    def without_covariates(self) -> str:
        """What about it has no use for covariates: that it withholds rows."""
        return f"withhold={self.withhold:g}"

    @property
    def asks_other_rows(self) -> bool:
        """Whether it predicts rows that no fit has seen."""
        return bool(self.withhold)

    def check(self, method: str, counts: Counts, options: Options) -> None:
        """Refuse to withhold rows that are not there."""
        super().check(method, counts, options)
        if self.withhold and not _can_withhold(counts, self.withhold):
            n, m = counts.shape
            raise ValueError(
                f"withhold={self.withhold:g} needs at least two features, and rows of which it is at least half a row, "
                f"beside one to fit: found {n} × {m} counts; give withhold=0"
            )

    def settled(self, counts: Counts) -> HeldOut:
        """Return the same with the share of rows to withhold; 0 if it is too small and was not asked for."""
        share = WITHHOLD if self.withhold is None else self.withhold
        return replace(self, withhold=share if _can_withhold(counts, share) else 0.0)

    def compare(self, plan: SelectionPlan) -> SelectionRecord:
        """Score every candidate in every split; after Ctrl-C, compare the complete splits, or the first one."""
        share = self.withhold or 0.0
        splits = (
            split_counts(plan.counts, self.keep, share, np.random.default_rng([plan.seed, number]))
            for number in range(self.splits)
        )
        return _compared(plan, *plan.score_all(splits, self.splits, plan.candidates, partial(_score, plan)), self.keep)

    @classmethod
    def headline(cls, found: SelectionRecord) -> str:
        """Return the title of the table."""
        splits = int(found.table["fits"].iloc[0])
        return (
            f"by {found.method}, trained on {found.keep:.0%} of the counts, {splits} split{'s' if splits > 1 else ''}"
        )

    @classmethod
    def headings(cls, found: SelectionRecord) -> Line:
        """Return the headings of what the table says of each candidate."""
        of_rows = [] if found.best_for_rows is None else ["withheld rows, minus their best"]
        return ["held-out nats per count", "minus the best", *of_rows, "converged"]

    @classmethod
    def line(cls, found: SelectionRecord, each: Any) -> Line:
        """Return what the table says of a candidate."""
        line = super().line(found, each)
        if found.best_for_rows is not None:
            line += [plus_minus(each.rows_difference, each.rows_difference_se) if each.rows_difference else "0"]
        return [*line, f"{each.converged} of {each.fits}"]

    @classmethod
    def cautions(cls, found: SelectionRecord) -> list[str]:
        """Return that the best rank predicts other rows worse than a smaller one."""
        rows, best = found.best_for_rows, found.best
        if rows is None or best is None or rows.rank >= best.rank:
            return []
        line: Any = found.table.loc[found.place(best)]
        gap, error = float(line["rows_difference"]), float(line["rows_difference_se"])
        if not -gap > CLEAR * error:
            return []
        return [
            f"rank {best.rank} predicts other rows worse than rank {rows.rank}: by {-gap:.4f} ± {error:.4f} nats for "
            "each count of the hidden features of withheld rows; some components may describe single entries, whose "
            "held-out counts share an excess with their training counts"
        ]


def _can_withhold(counts: Counts, share: float) -> bool:
    return bool(share and counts.shape[1] > 1 and rows_aside(counts.shape[0], share))


def _compared(
    plan: SelectionPlan, found: list[list[Scored]], scored: Sequence[Candidate], interrupted: bool, keep: float
) -> SelectionRecord:
    import pandas as pd

    index = pd.MultiIndex.from_tuples(scored, names=["model", "rank"])
    scores = pd.DataFrame([[one.per_count for one in row] for row in found], columns=index).rename_axis("split")
    table = pooled([[one.thinned for one in row] for row in found], index)
    rows = pooled([[one.withheld for one in row] for row in found], index)
    table = with_fits(table.join(rows.add_prefix("rows_")), found)
    best = best_of(table, scored)
    chosen = best and Candidate(*best)
    return SelectionRecord(table, scores, chosen, plan.method, keep, interrupted, HeldOut.word)


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


def pooled(found: Sequence[Sequence[tuple[Array, Array] | None]], index: Any) -> pd.DataFrame:
    """Return means, differences from the best, and standard errors, of logs pooled over splits by row.

    A candidate without scores in the last splits differs from the best by what it does in its own, and so does its
    mean.
    """
    import pandas as pd

    by_candidate = [[one for one in column if one is not None] for column in zip(*found, strict=True)]
    own = [ratio_of_sums(*_added(column)) for column in by_candidate]
    whole = [len(column) == len(found) for column in by_candidate]
    means = np.where(whole, [each.value for each in own], np.nan)
    best = 0 if np.isnan(means).all() else int(np.nanargmax(means))
    lines = []
    for column, (mean, se), complete in zip(by_candidate, own, whole, strict=True):
        (logs, counted), (others, _) = _added(column), _added(by_candidate[best][: len(column)])
        gap = ratio_of_sums(logs - others, counted)
        lines.append((mean if complete else means[best] + gap.value, se, *gap))
    return pd.DataFrame(lines, columns=["mean", "se", "difference", "difference_se"], index=index)


def _added(parts: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Return logs and held-out counts of each row, added over splits."""
    logs, counted = np.sum(parts, axis=0)
    return logs, counted


def with_fits(table: pd.DataFrame, found: list[list[Any]]) -> pd.DataFrame:
    """Return the table with the number of fits of each candidate, and of those that converged."""
    scored = [[one for one in column if one is not None] for column in zip(*found, strict=True)]
    converged = [sum(one.converged for one in column) for column in scored]
    return table.assign(fits=[len(column) for column in scored], converged=converged)


def best_of[C](table: pd.DataFrame, scored: Sequence[C]) -> C | None:
    """Return the candidate with the best mean of those with scores in all splits; None if no count was held out."""
    means = table["mean"].where(table["fits"] == table["fits"].max()).to_numpy()
    return None if np.isnan(means).all() else scored[int(np.nanargmax(means))]
