"""Rank models and ranks by the log-likelihood of entries that are held out as missing.

Noises are compared in the same way. An entry that is held out adds neither counts nor exposure to the fit
(`bayesnmf.inference.missing`), so that its whole count is new to it, with whatever excess it has over its mean. Two
parts of one entry's count share such an excess: components that describe single entries predict thinned counts, but not
these. Scores are log probabilities of the fit's noise at the posterior means of the entries, in nats for each held-out
count, pooled over masks by row. Pearson's χ² of the same entries, with small means pooled, says how well the noise
describes new entries: 1 if it does and if predictions have no error.

Masks never look at the counts. Of small matrices they are single entries at random: each is held out in one of `FOLDS`
folds. Of large ones they are groups: rows and features are put at random in as many groups, each row group is held out
in one feature group, and another one in the next fold; so each row misses the same share of the features, and sums over
missing entries take no time. There are so many groups that no more entries are held out than counts are positive.

Unless a number of masks is asked for, a candidate that is far behind the best after two of them or more is stopped: it
is not fitted to the others. Its difference from the best is that in its own masks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.assessment.scoring import ratio_of_sums
from bayesnmf.checks import check_count
from bayesnmf.data.counts import Counts
from bayesnmf.data.mask import GroupMask, Mask, as_pattern
from bayesnmf.data.several import weights_of
from bayesnmf.fitting.fit import fit
from bayesnmf.fitting.fitted import Fit
from bayesnmf.fitting.many import uninterrupted
from bayesnmf.fitting.noisy import begun_with
from bayesnmf.kernels.cpu.pearson import pearson_sums
from bayesnmf.noise.abilities import Noise, distribution_of
from bayesnmf.noise.poisson import POISSON
from bayesnmf.options import Options
from bayesnmf.results.dispersion import LOW
from bayesnmf.studies.selection.criterion import (
    ByScore,
    Candidate,
    Line,
    SelectionPlan,
    SelectionRecord,
    with_noise,
    word_of,
)
from bayesnmf.studies.selection.held_out import best_of, pooled, with_fits
from bayesnmf.types import Array

FOLDS = 10  # of which each holds out a tenth of the entries, or less
SMALL = 1_000_000  # entries of a matrix whose entries are held out one by one
FEW, MANY = 2, 5  # masks of large and of small matrices
MASKS = 2**31 + 7  # seed beside those of the fits
FIRST, BEHIND = 2, 5.0  # masks after which a candidate is stopped, so many standard errors behind the best


def make_masks(counts: Counts, number: int, seed: int) -> list[Mask]:
    """Return the masks of the first folds: a given number, or for 0, 5 of small matrices and 2 of large ones."""
    n, m = counts.shape
    number = number or (MANY if n * m <= SMALL else FEW)
    rng = np.random.default_rng([seed, MASKS])
    if n * m <= SMALL:
        folds = rng.permutation(n * m).reshape(n, m) % FOLDS
        return [Mask.of(as_pattern(folds == each % FOLDS)) for each in range(number)]
    groups = min(max(FOLDS, -(-n * m // max(counts.nnz, 1))), n, m)
    rows, features = rng.permutation(n) % groups, rng.permutation(m) % groups
    return [GroupMask.of_groups(rows, (features + each) % groups, groups) for each in range(number)]


def tiles(mask: Mask, counts: Counts) -> Iterator[tuple[Array, Array, Array, Array]]:
    """Yield held-out entries in pieces: positions of rows and features, dense counts, and which are held out."""
    for rows, part in counts.parts():
        own = mask.rows(rows)
        if not isinstance(own, GroupMask):
            entries = part.matrix.toarray()
            yield np.arange(rows.start, rows.stop), np.arange(entries.shape[1]), entries, own.hidden(slice(None))
            continue
        for places, features in own.members():
            entries = part.matrix[places][:, features].toarray()
            yield rows.start + places, features, entries, np.ones(entries.shape, bool)


class Scored(NamedTuple):
    """One fit's predictions of the entries of one mask: logs and held-out counts of each row, (n,), and χ²."""

    logs: Array
    counted: Array
    squares: float
    entries: float
    converged: bool

    @property
    def per_count(self) -> float:
        """Score for each held-out count."""
        return ratio_of_sums(self.logs, self.counted).value


@dataclass(frozen=True)
class Masked(ByScore):
    """Log-likelihood of entries that are held out as missing, in nats for each count of them.

    Attributes
    ----------
    splits : int, optional
        Number of masks, each with its own fits; by default 5, of large counts 2, of which candidates that are far
        behind have the first ones.
    """

    splits: int | None = None

    word: ClassVar[str] = "masked"
    noises: ClassVar[Any] = "several"
    takes_batch: ClassVar[bool] = True
    takes_weights: ClassVar[bool] = True
    hides_entries: ClassVar[bool] = True
    label: ClassVar[str] = "log-likelihood of held-out entries\nfor each count (nats)"
    title: ClassVar[str] = "held-out entries"
    units: ClassVar[str] = "masks of entries"
    prefers: ClassVar[str] = "Held-out entries are predicted best"
    notes: ClassVar[list[str]] = [
        *ByScore.notes,
        "χ²: of the held-out entries, over their number; 1 if they vary as the noise says around exact predictions",
    ]

    def __post_init__(self) -> None:
        if self.splits is not None:
            check_count(self.splits, "splits", most=FOLDS)

    @property
    def takes_covariates(self) -> bool:
        """Whether loadings may depend on covariates: all rows are fitted."""
        return True

    def check(self, method: str, counts: Counts, options: Options) -> None:
        """Refuse counts of one row, or of one feature."""
        super().check(method, counts, options)
        if min(counts.shape) < 2:
            raise ValueError(
                f"criterion='masked' needs at least two rows and two features: found {counts.shape[0]} × "
                f"{counts.shape[1]} counts; use criterion='heldout'"
            )

    def compare(self, plan: SelectionPlan) -> SelectionRecord:
        """Score every candidate with every mask; after Ctrl-C, compare the complete masks, or the first one."""
        import pandas as pd

        masks, tried = make_masks(plan.counts, self.splits or 0, plan.seed), list(product(plan.noises, plan.candidates))
        going = None if self.splits else _not_far_behind
        found, scored, interrupted = plan.score_all(masks, len(masks), tried, partial(_score, plan, {}), going)
        crossed = len(plan.noises) > 1
        places = [(word_of(noise), *candidate) if crossed else candidate for noise, candidate in scored]
        index = pd.MultiIndex.from_tuples(places, names=["noise", "model", "rank"] if crossed else ["model", "rank"])
        of_counts = [[each.per_count if each else np.nan for each in row] for row in found]
        scores = pd.DataFrame(of_counts, columns=index).rename_axis("mask")
        table = pooled(_logs(found), index)
        sums = np.sum([[(each.squares, each.entries) if each else (0.0, 0.0) for each in row] for row in found], axis=0)
        table = with_fits(table.assign(chi_squared=sums[:, 0] / np.maximum(sums[:, 1], 1)), found)
        noise, best = best_of(table, scored) or (plan.noises[0], None)
        told: Any = {"interrupted": interrupted, "criterion": self.word, "noise": noise}
        return SelectionRecord(table, scores, best, plan.method, **told)

    @classmethod
    def headline(cls, found: SelectionRecord) -> str:
        """Return the title of the table."""
        masks = int(found.table["fits"].max())
        told = f"by {found.method}{with_noise(found)}, {masks} mask{'s' if masks > 1 else ''} of entries"
        if (found.table["fits"] == masks).all():
            return told
        return f"{told}; stopped: over {BEHIND:g} standard errors behind the best after {FIRST} or more of them"

    @classmethod
    def headings(cls, found: SelectionRecord) -> Line:
        """Return the headings of what the table says of each candidate."""
        return ["nats per held-out count", "minus the best", "χ²", "converged"]

    @classmethod
    def line(cls, found: SelectionRecord, each: Any) -> Line:
        """Return what the table says of a candidate."""
        return [*super().line(found, each), f"{each.chi_squared:.2f}", f"{each.converged} of {each.fits}"]


def _logs(found: list[list[Scored | None]]) -> list[list[tuple[Array, Array] | None]]:
    """Return logs and held-out counts of each row, by mask and candidate."""
    return [[(each.logs, each.counted) if each else None for each in row] for row in found]


def _not_far_behind(found: list[list[Scored | None]]) -> list[bool]:
    """Return which candidates are scored by the next mask: those that have not been far behind the best."""
    if len(found) < FIRST:
        return [True] * len(found[0])
    table = pooled(_logs(found), range(len(found[0])))
    far = table["difference"] < -BEHIND * table["difference_se"]
    return [each is not None and not behind for each, behind in zip(found[-1], far, strict=True)]


def _score(
    plan: SelectionPlan, poisson: dict[Candidate, Fit], mask: Mask, candidate: tuple[Noise, Candidate], seed: int
) -> Scored | None:
    """Fit a candidate, with its noise, to the entries outside a mask, and score those inside.

    A Poisson fit of the same mask, which has its seed, is what a noise begins with.
    """
    noise, of_means = candidate
    counts, options = plan.counts.with_mask(mask), plan.options_for(of_means, plan.counts)
    first = poisson.get(of_means)
    with begun_with(first if first is not None and first.seed == seed else None):
        fitted = uninterrupted(fit(counts, *of_means, plan.method, seed=seed, options=options, noise=noise))
    if noise == POISSON and len(plan.noises) > 1:
        poisson[of_means] = fitted
    return score_masked(fitted, plan, mask)


def score_masked(fitted: Fit, plan: SelectionPlan, mask: Mask) -> Scored:
    """Return the scores of the entries of a mask, each as often as its matrix counts."""
    n = plan.counts.shape[0]
    logs, counted, squares = np.zeros(n), np.zeros(n), np.zeros(2)
    loadings, components = fitted.mean_factors
    weights = weights_of(plan.counts)
    for rows, features, weighted, hidden in tiles(mask, plan.counts):
        weight = weights[features]
        counts = np.rint(weighted / weight)
        factors = loadings[rows], components[:, features] / weight
        means = np.maximum(factors[0] @ factors[1], np.finfo(np.float64).tiny)
        own = distribution_of(fitted.noise).of_rows(rows).of_features(features)
        logs[rows] += (np.where(hidden, own.log_pmf(counts, means), 0) * weight).sum(axis=1)
        counted[rows] += np.where(hidden, weighted, 0).sum(axis=1)
        expected = own.factors_of_expected(*factors)
        given = csr_array(counts), *expected, LOW, (~hidden).__getitem__, lambda mean, _, own=own: own.variances(mean)
        sums, _ = pearson_sums(*given, by_column=False)
        squares += sums[:, [0, 2]].sum(axis=0)
    return Scored(logs, counted, float(squares[0]), float(squares[1]), fitted.status.converged)
