"""`select`: rank models and numbers of components by counts that no fit has seen."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesnmf.assessment.checks import check_ranks
from bayesnmf.assessment.measures import MOST_SCORE_DRAWS, SCORE_DRAWS
from bayesnmf.assessment.scoring import background, score
from bayesnmf.checks import check_choice, check_count, check_fraction, check_words
from bayesnmf.data.conversion import as_counts, check_integer_counts
from bayesnmf.data.counts import Counts
from bayesnmf.data.exposures import with_exposures
from bayesnmf.data.splitting import Split, split_counts
from bayesnmf.fitting.fit import fit
from bayesnmf.fitting.job import check_combination, resolve_priors
from bayesnmf.fitting.progress import ProgressReport, progress_context
from bayesnmf.inference.status import INTERRUPTED, ConvergenceWarning
from bayesnmf.options import METHODS, Options
from bayesnmf.options.checks import check_options
from bayesnmf.priors.specification import MODELS
from bayesnmf.text import text_table

if TYPE_CHECKING:
    import pandas as pd


Array = NDArray[Any]
SPREAD = "± is the standard error over random splits of the same counts, not over other samples"
ONE_SE = (
    "one se: the smallest rank that falls short of the best by at most one standard error of the paired differences"
)
SINGLE = "a single split has no standard error: raise splits"


class Candidate(NamedTuple):
    """A model and a rank; ``bayesnmf.fit(counts, *candidate)`` fits it."""

    model: str
    rank: int


@dataclass(frozen=True, eq=False, repr=False)
class Selection:
    """Predictions of held-out counts by every model and rank.

    Attributes
    ----------
    table : DataFrame
        By model and rank: mean (held-out log-likelihood for each count, in nats, without the multinomial coefficient)
        and its se over splits; difference from the best, and the se of the paired differences; number of splits, and
        number of fits that converged.
    scores : DataFrame (splits, candidates)
        Scores whose means are in `table`.
    best : Candidate
        Candidate with the largest mean.
    method : str
    keep : float
        Probability with which a count was in the training counts.
    interrupted : bool
        Whether Ctrl-C stopped the selection: only candidates that were scored in every split are compared.
    """

    table: pd.DataFrame
    scores: pd.DataFrame
    best: Candidate
    method: str
    keep: float
    interrupted: bool

    @property
    def one_standard_error(self) -> Candidate:
        """The smallest rank whose score is within one standard error of the best, and its best model.

        The standard error is that of the differences from the best, paired by split, so the variation that all scores
        share does not enter. It is over random splits of the same counts, not over other samples. A single split has no
        standard error, and then the best is returned.
        """
        table = self.table.reset_index()
        good = table[-table["difference"] <= np.nan_to_num(table["difference_se"])]
        first: Any = good.sort_values(["rank", "mean"], ascending=[True, False]).iloc[0]
        return Candidate(str(first["model"]), int(first["rank"]))

    @property
    def cautions(self) -> list[str]:
        """Reasons to doubt the best rank: it is the largest or the smallest of those tried."""
        tried = self.table.index.get_level_values("rank")
        if tried.min() == tried.max():
            return []
        if self.best.rank == tried.max():
            cure = "try larger ones; if none is worse, `predictive_checks` shows what the model misses"
            return [f"the best rank, {self.best.rank}, is the largest that was tried: {cure}"]
        if self.best.rank == tried.min() > 1:
            return [f"the best rank, {self.best.rank}, is the smallest that was tried: try smaller ones"]
        return []

    def __repr__(self) -> str:
        marks = {self.best: ["best"]}
        if len(self.scores) > 1:
            marks.setdefault(self.one_standard_error, []).append("one se")
        lines = []
        rows: Any = self.table.reset_index().itertuples()
        for row in rows:
            here = Candidate(row.model, row.rank)
            means = _plus_minus(row.mean, row.se)
            gap = "" if here == self.best else _plus_minus(row.difference, row.difference_se)
            converged = f"{row.converged} of {row.splits}"
            lines.append([row.model, f"{row.rank}", means, gap, converged, ", ".join(marks.get(here, []))])
        splits = len(self.scores)
        notes = [SPREAD, ONE_SE] if splits > 1 else [SINGLE]
        notes += ["interrupted: the rest was not fitted"] if self.interrupted else []
        notes += [f"CAUTION {caution}" for caution in self.cautions]
        headings = ["model", "rank", "held-out nats per count", "minus the best", "converged", ""]
        title = f"by {self.method}, trained on {self.keep:.0%} of the counts, {splits} split{'s' if splits > 1 else ''}"
        return text_table(title, headings, lines, notes)


def _plus_minus(value: float, se: float) -> str:
    return f"{value:.4f} ± {'–' if np.isnan(se) else f'{se:.4f}'}"


def select(
    counts: Any,
    models: Iterable[str] | str = ("gamma_poisson",),
    ranks: Iterable[int] | int = (2, 3, 4, 5, 6, 8, 10),
    method: str = "vi",
    *,
    splits: int = 3,
    keep: float = 0.8,
    seed: int = 0,
    options: Options | None = None,
    row_exposure: Any = None,
    feature_exposure: Any = None,
    progress: ProgressReport | bool = False,
) -> Selection:
    """Rank models and numbers of components by the log-likelihood of held-out counts.

    For each split, a count is kept for training with probability `keep`. Every model and rank is fitted to the same
    training counts, and predicts the others, given the row totals and averaged over the posterior.

    Parameters
    ----------
    counts : array, SciPy sparse matrix, pandas DataFrame, AnnData or nested list, (n, m)
        Whole-number counts, which are thinned binomially.
    models : iterable of str
        Names of models, as for `bayesnmf.fit`.
    ranks : iterable of int
    method : {"map", "vi", "svi", "gibbs", "nuts", "bld"}
    splits : int
        Number of random splits, each with its own fits.
    keep : float
    seed : int
    row_exposure, feature_exposure : array or Series, as for `bayesnmf.fit`
    options : MAP, VI, Gibbs, NUTS, SVI or BLD, optional
        Options of the fits. Local optima make scores jump from rank to rank; `restarts` helps.
    progress : bool or callable
        Progress report, as for `bayesnmf.fit`. Ctrl-C keeps the complete splits, or the unfinished first one.

    Returns
    -------
    Selection

    Raises
    ------
    TypeError, ValueError
        Invalid arguments, before the first fit.

    Examples
    --------
    >>> import bayesnmf
    >>> drawn = bayesnmf.simulate(size=(60, 12), rank=2, seed=0)
    >>> bayesnmf.select(drawn.counts, ranks=[1, 2, 3]).best
    Candidate(model='gamma_poisson', rank=2)
    """
    names = [check_choice(model, "models", MODELS) for model in check_words(models, "models")]
    candidates = [Candidate(model, rank) for model in names for rank in check_ranks(ranks)]
    check_choice(method, "method", METHODS)
    splits, seed = check_count(splits, "splits"), check_count(seed, "seed", minimum=0)
    keep = check_fraction(keep, "keep")
    options = METHODS[method].options() if options is None else options
    check_options(options, method, METHODS[method].options)
    data = with_exposures(as_counts(counts), row_exposure, feature_exposure)
    check_integer_counts(data, "select, which thins them", "round them")
    for model, rank in candidates:  # before the first fit, not after hours of fits
        filled = replace(options, priors=resolve_priors(model, data, rank, options.priors))
        check_combination(model, method, rank, data, filled)
    rows: list[list[tuple[float, bool]]] = []
    with progress_context(progress) as report, warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the table reports it
        job = _Job(data, candidates, method, options, report)
        for number in range(splits):
            rows.append(job.score_all(number, splits, keep, seed))
            if len(rows[-1]) < len(candidates):
                break
        return _summarise(rows, candidates, method, keep, job.report_end(rows, splits))


@dataclass(frozen=True, eq=False)
class _Job:
    """Settings shared by all fits."""

    counts: Counts
    candidates: list[Candidate]
    method: str
    options: Options
    report: ProgressReport

    def score_all(self, number: int, splits: int, keep: float, seed: int) -> list[tuple[float, bool]]:
        """Return each candidate's score on one split and whether its fit converged; after Ctrl-C, of those fitted."""
        split = split_counts(self.counts, keep, 0.0, np.random.default_rng([seed, number]))
        found: list[tuple[float, bool]] = []
        for place, candidate in enumerate(self.candidates):
            try:
                self.report("select", number * len(self.candidates) + place, splits * len(self.candidates), np.nan)
                one = self._score(split, candidate, seed + number)
            except KeyboardInterrupt:
                one = None
            if one is None:
                if number == 0 and not found:
                    raise KeyboardInterrupt
                return found
            found.append(one)
        return found

    def report_end(self, rows: list[list[tuple[float, bool]]], splits: int) -> bool:
        """Report the end if all candidates are scored; return whether Ctrl-C was pressed."""
        done, total = sum(map(len, rows)), splits * len(self.candidates)
        try:
            if done == total:
                self.report("select", done, total, np.nan)
        except KeyboardInterrupt:
            return True
        return done < total

    def _score(self, split: Split, candidate: Candidate, seed: int) -> tuple[float, bool] | None:
        """Fit and score a candidate; return None if Ctrl-C stopped the fit early."""
        fitted = fit(split.train, *candidate, self.method, seed=seed, options=self.options)
        if fitted.status.reason == INTERRUPTED:
            return None
        scored = score(fitted, split.thinned, background(split.train), SCORE_DRAWS, seed, MOST_SCORE_DRAWS)
        return scored.per_count, fitted.status.converged


def _summarise(
    rows: list[list[tuple[float, bool]]], candidates: list[Candidate], method: str, keep: float, interrupted: bool
) -> Selection:
    """Compare the candidates on the complete splits, or on the unfinished first one."""
    import pandas as pd

    complete = [row for row in rows if len(row) == len(candidates)] or rows[:1]
    done = candidates[: len(complete[0])]
    index = pd.MultiIndex.from_tuples(done, names=["model", "rank"])
    scores = pd.DataFrame([[value for value, _ in row] for row in complete], columns=index).rename_axis("split")
    best = Candidate(*done[int(np.argmax(scores.mean().to_numpy()))])
    differences = scores.sub(scores[best], axis=0)
    table = pd.DataFrame(
        {
            "mean": scores.mean(),
            "se": scores.sem(),
            "difference": differences.mean(),
            "difference_se": differences.sem(),
            "splits": len(complete),
            "converged": np.sum([[converged for _, converged in row] for row in complete], axis=0),
        }
    )
    return Selection(table, scores, best, method, keep, interrupted)
