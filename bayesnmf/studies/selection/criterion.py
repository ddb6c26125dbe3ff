"""A criterion of `bayesnmf.select`: what it asks of the counts, how it compares candidates, and how this is told.

A criterion is a class, whose fields are its own settings. Defining it makes it known by its word: to `select`, to what
prints, draws and reports a selection, and to the command line.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, get_args

from bayesnmf.data.counts import Counts
from bayesnmf.noise.poisson import POISSON
from bayesnmf.options import Options
from bayesnmf.studies.selection.plan import SelectionPlan
from bayesnmf.studies.selection.record import SelectionRecord, word_of
from bayesnmf.text import plus_minus
from bayesnmf.types import CriterionWord

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
    takes_batch : bool
        Whether rows may be of batches.
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
