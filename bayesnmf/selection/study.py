"""What `select` compares, and how."""

from __future__ import annotations

from dataclasses import dataclass

from bayesnmf.data.counts import Counts
from bayesnmf.fitting.progress import ProgressReport
from bayesnmf.options import Options
from bayesnmf.selection.result import Candidate


@dataclass(frozen=True, eq=False)
class Study:
    """Settings shared by all fits.

    Attributes
    ----------
    counts : Counts
    candidates : list of Candidate
    method : str
    options : object
    seed : int
    report : callable
    splits : int
        Number of random splits.
    keep, withhold : float
        Probability with which a count is a training count, and share of the rows to withhold.
    halves : int
        Number of halves of the rows.
    """

    counts: Counts
    candidates: list[Candidate]
    method: str
    options: Options
    seed: int
    report: ProgressReport
    splits: int
    keep: float
    withhold: float
    halves: int
