"""A criterion of `bayesnmf.select`: what it asks of the counts, how it compares candidates, and how this is told.

A criterion is a class, whose fields are its own settings. Defining it makes it known by its word: to `select`, to what
prints, draws and reports a selection, and to the command line.
A criterion compares the candidates of a `SelectionPlan`, and returns their scores as a `SelectionRecord`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, cast, get_args

import numpy as np

from bayesnmf.assessment.predictive_checks import PredictiveChecks
from bayesnmf.data.counts import Counts
from bayesnmf.data.covariates.design import Covariates
from bayesnmf.data.seeds import Seeds
from bayesnmf.fitting.job import ProgressReport, resolve_priors
from bayesnmf.fitting.known import Beforehand
from bayesnmf.noise.abilities import Noise
from bayesnmf.noise.poisson import POISSON
from bayesnmf.noise.words import NOISES
from bayesnmf.options import Options
from bayesnmf.options.checkpoint import Checkpoint
from bayesnmf.text import plus_minus
from bayesnmf.types import Array, CriterionWord

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
        chi_squared; a candidate that was stopped has fewer fits, its difference is that in their masks, and its mean
        that of the best plus this difference. With "evidence": log_evidence, se (infinite if unknown), known, at_least,
        spread, rungs, could_win, difference, difference_se, probability. With "stability": least (share of the halves
        in which the least recurrent component comes back), closeness, recurrent (number of components that come back in
        80 % of them), empty, fits, converged.
    scores : DataFrame
        Scores by split and candidate with "heldout" and "masked", NaN where there is none, estimates by run and
        candidate with "evidence", least cosines by half of the rows, or by resampled counts, with "stability".
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
    """Return the smallest rank that falls short of the best by at most one standard error, of those with all fits."""
    flat = table.reset_index()
    if "fits" in flat:
        flat = flat[flat["fits"] == flat["fits"].max()]
    good = flat[-flat[difference] <= np.nan_to_num(flat[se])]
    first: Any = good.sort_values(["rank", mean], ascending=[True, False]).iloc[0]
    return Candidate(str(first["model"]), int(first["rank"]))


@dataclass(frozen=True, eq=False)
class SelectionPlan:
    """Settings shared by all fits.

    Attributes
    ----------
    counts : Counts
    candidates : list of Candidate
    method : str
    options : object
    seed : int
    report : callable
    noises : list of Noise
        Noises that every candidate is fitted with.
    seeds : Seeds or None
        What the priors of the first components favour.
    covariates : Covariates or None
        What the loadings of all rows depend on.
    checkpoint : Checkpoint or None
        Folder that keeps what takes long beside fits.
    """

    counts: Counts
    candidates: list[Candidate]
    method: str
    options: Options
    seed: int
    report: ProgressReport
    noises: list[Noise] = field(default_factory=lambda: [POISSON])
    seeds: Seeds | None = None
    covariates: Covariates | None = None
    checkpoint: Checkpoint | None = None

    def options_for(self, candidate: Candidate, counts: Counts) -> Any:
        """Return the options of a candidate's fit to these counts, whose priors have no None left.

        Shapes and concentrations that are left open are 1, for vi too. The sparse ones that `bayesnmf.fit` takes for
        its predictions find fewer of the ranks that made simulated counts (benchmarks/README.md, "Ranks").
        """
        given = Beforehand(seeds=self.seeds, covariates=self.covariates)
        priors = resolve_priors(candidate.model, counts, candidate.rank, self.options.priors, given)
        unread: Any = {"intervals": "mean_field"} if hasattr(self.options, "intervals") else {}  # by every criterion
        return replace(self.options, priors=priors, **unread)

    def score_all[P, C, S](
        self,
        parts: Iterable[P],
        number: int,
        tried: Sequence[C],
        score: Callable[[P, C, int], S],
        going: Callable[[list[list[S]]], list[bool]] | None = None,
    ) -> tuple[list[list[S]], Sequence[C], bool]:
        """Score every candidate by every part of the counts.

        Parameters
        ----------
        parts : iterable
            Splits or masks of the counts.
        number : int
            Number of the parts.
        tried : sequence
            Candidates.
        score : callable
            Function of a part, a candidate and a seed.
        going : callable, optional
            Function of the scores of the parts so far that returns which candidates are scored by the next one; all
            are without it.

        Returns
        -------
        found : list of list
            Scores by part and candidate, None where it was not scored; after Ctrl-C of the complete parts, or of the
            unfinished first one.
        scored : sequence
            Candidates that these scores belong to.
        interrupted : bool

        Raises
        ------
        KeyboardInterrupt
            Ctrl-C before the first score.
        """
        found, done, interrupted = list[list[S]](), 0, False
        goes, nothing = [True] * len(tried), cast(S, None)  # one of S, where some do not go on
        try:
            for place, part in enumerate(parts):
                found.append([])
                total = done + (number - place) * sum(goes)
                for candidate, asked in zip(tried, goes, strict=True):
                    if not asked:
                        found[-1].append(nothing)
                        continue
                    self.report("select", done, total, np.nan)
                    found[-1].append(score(part, candidate, self.seed + place))
                    done += 1
                goes = going(found) if going else goes
            self.report("select", done, done, np.nan)
        except KeyboardInterrupt:
            interrupted = True
            if not done:
                raise
        complete = [row for row in found if len(row) == len(tried)] or found[:1]
        return complete, tried[: len(complete[0])], interrupted


CRITERIA: dict[str, Any] = dict.fromkeys(get_args(CriterionWord))  # class by word; those of the package come first
Line = list[str]


@dataclass(frozen=True)
class Criterion(ABC):
    """A way to compare models, ranks and noises.

    Attributes
    ----------
    word : str
        Its name: ``criterion="masked"``.
    method : str
        Method of the fits, unless another is asked for.
    noises : {"one", "several", "poisson"}
        Whether fits have one noise, noises are compared, or counts must be Poisson counts.
    takes_batch, takes_weights : bool
        Whether rows may be of batches, and matrices may have weights.
    scored : bool
        Whether the table has the mean, its standard error over rows, and differences from the best, paired by row.
    hides_entries : bool
        Whether entries are missing in fits.
    largest_wins : bool
        Whether the best rank is the largest that qualifies, not the one with the best number.
    column, error : str
        Columns of the table with what is compared, and with its error; no word where there is none.
    label, short : str
        What the column has, on an axis, and where there is little room.
    threshold : float or None
        What qualifies, in this column.
    title : str
        What is compared, as the title of a panel.
    units : str
        What the rows of the scores are, in the plural; no word for what `SelectionRecord.resampled` says.
    prefers : str
        Beginning of a sentence that goes on "with 5 components".
    notes : list of str
        What is said below the table.
    """

    word: ClassVar[str]
    method: ClassVar[str] = "vi"
    noises: ClassVar[Literal["one", "several", "poisson"]] = "one"
    takes_batch: ClassVar[bool] = False
    takes_weights: ClassVar[bool] = False
    scored: ClassVar[bool] = False
    hides_entries: ClassVar[bool] = False
    largest_wins: ClassVar[bool] = False
    column: ClassVar[str]
    error: ClassVar[str] = ""
    label: ClassVar[str]
    short: ClassVar[str] = ""
    threshold: ClassVar[float | None] = None
    title: ClassVar[str]
    units: ClassVar[str] = "fits"
    prefers: ClassVar[str]
    notes: ClassVar[list[str]] = []

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "word" in vars(cls):
            CRITERIA[cls.word] = cls

    @property
    def takes_covariates(self) -> bool:
        """Whether loadings may depend on covariates."""
        return False

    @property
    def without_covariates(self) -> str:
        """What about it has no use for covariates, as a message names it."""
        return repr(self.word)

    @property
    def asks_other_rows(self) -> bool:
        """Whether it fits or predicts other rows than all, so that these need one prior."""
        return False

    def check(self, method: str, counts: Counts, options: Options) -> None:
        """Refuse a method, counts or options that it has no use for."""
        if not counts.total:
            raise ValueError("counts must not all be 0 to compare ranks: found no count; give other rows or features")

    def settled(self, counts: Counts) -> Criterion:
        """Return the same with settings that depend on the counts."""
        return self

    @abstractmethod
    def compare(self, plan: SelectionPlan) -> SelectionRecord:
        """Compare the candidates; after Ctrl-C, those that are done."""

    def fitted_by(self, plan: SelectionPlan, options: Any) -> tuple[str, Any]:
        """Return method and options of the fit of the best candidate that is checked."""
        return plan.method, options

    @classmethod
    def headline(cls, found: SelectionRecord) -> str:
        """Return the title of the table."""
        return f"by {found.method}{with_noise(found)}, {cls.title}"

    @classmethod
    def headings(cls, found: SelectionRecord) -> Line:
        """Return the headings of what the table says of each candidate."""
        return [cls.title]

    @classmethod
    def line(cls, found: SelectionRecord, each: Any) -> Line:
        """Return what the table says of a candidate; `each` is its line, with the columns as attributes."""
        value = getattr(each, cls.column)
        return [plus_minus(value, getattr(each, cls.error)) if cls.error else f"{value:,.3f}"]

    @classmethod
    def why_none(cls, found: SelectionRecord) -> str:
        """Return why there is no best candidate."""
        return "no candidate is best"

    @classmethod
    def cautions(cls, found: SelectionRecord) -> list[str]:
        """Return what speaks against the best candidate, beside what any criterion says."""
        return []


@dataclass(frozen=True)
class ByScore(Criterion):
    """A criterion whose table has mean scores, with errors over rows and differences from the best paired by row."""

    scored: ClassVar[bool] = True
    column: ClassVar[str] = "mean"
    error: ClassVar[str] = "se"
    notes: ClassVar[list[str]] = [
        "± is the standard error over rows, that of differences from the best paired by row",
        "one se: the smallest rank that falls short of the best by at most one standard error of the paired "
        "differences",
    ]

    @classmethod
    def line(cls, found: SelectionRecord, each: Any) -> Line:
        """Return the score of a candidate, and by how much it falls short of the best."""
        behind = plus_minus(each.difference, each.difference_se) if each.difference else ""
        return [*super().line(found, each), behind]

    @classmethod
    def why_none(cls, found: SelectionRecord) -> str:
        """Return why there is no best candidate."""
        return "no candidate is best: no count was held out; lower keep, or raise splits"


def settings_of(kind: type[Criterion]) -> list[str]:
    """Return the names of the settings of a criterion."""
    return [each.name for each in fields(kind)]


def with_noise(found: SelectionRecord) -> str:
    """Return the one noise of all fits, if it is not Poisson noise."""
    return "" if found.noise == POISSON or "noise" in found.table.index.names else f" with noise {word_of(found.noise)}"
