"""The one way in which loops end: the objective of every iterate is recorded, and judged by the same rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import numpy as np

from bayesnmf.inference.status import INTERRUPTED, NOT_A_NUMBER, Status

WINDOW = 5  # for steps of varying boldness, of which one may be short because it was cut or went too far


def settled(trace: list[float], tol: float, window: int = 1) -> bool:
    """Whether the objective has changed by less than `tol` times its size over the last `window` iterations."""
    if tol == 0 or len(trace) <= window or not np.isfinite(trace[-1 - window]):
        return False
    return abs(trace[-1] - trace[-1 - window]) < tol * max(abs(trace[-1]), 1.0)


@dataclass
class Course:
    """The way of an algorithm from its start to its end.

    Inside ``with course:`` the algorithm passes the objective of every iterate to `reach`, and goes on while that
    returns True. Ctrl-C ends the block and is kept as the reason.

    Attributes
    ----------
    max_iter : int
        Most iterations; the start is none.
    tol : float
        Tolerance of `at_rest`.
    window : int
        Number of iterations over which `at_rest` judges.
    kkt_tol : float or None
        End where the KKT residual, in counts, is at most this; 0 and None do not end there.
    progress : callable, optional
        Is called for every iterate with its number, its objective and what else `reach` was given.
    at_rest : callable
        Takes the trace, the tolerance and the window, and returns whether the objective is at rest.
    words : tuple of str
        The reasons for an end at rest and after the last iteration, with fields for the other attributes.
    trace : list of float
        Objective at the start and after each iteration.
    residuals : list of float
        KKT residuals of the same iterates, where they were given.
    """

    max_iter: int
    tol: float = 0.0
    window: int = 1
    kkt_tol: float | None = None
    progress: Callable[..., None] | None = None
    at_rest: Callable[[list[float], float, int], bool] = settled
    words: tuple[str, str] = ("objective settled to {tol:g} relative", "all {max_iter} iterations done")
    trace: list[float] = field(default_factory=list)
    residuals: list[float] = field(default_factory=list)
    _end: tuple[bool, str] | None = None

    def reach(self, value: float, *shown: Any, residual: float | None = None) -> bool:
        """Record the objective of an iterate and report it; return whether to go on from there."""
        self.trace.append(value)
        if residual is not None:
            self.residuals.append(residual)
        if self.progress is not None:
            self.progress(len(self.trace) - 1, value, *shown)
        if np.isnan(value):
            self.end(False, NOT_A_NUMBER)
        elif self.at_rest(self.trace, self.tol, self.window):
            self.end(True, self.words[0].format_map(vars(self)))
        elif self.kkt_tol and residual is not None and residual <= self.kkt_tol:
            self.end(True, f"KKT residual at most {self.kkt_tol:g} counts")
        elif len(self.trace) > self.max_iter:
            self.end(False, self.words[1].format_map(vars(self)))
        return self._end is None

    def end(self, converged: bool, reason: str) -> None:
        """End for another reason, unless the course has ended."""
        self._end = self._end or (converged, reason)

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the course."""
        return self._end == (False, INTERRUPTED)

    @property
    def status(self) -> Status:
        """Whether the course ended at rest, why it ended, and after how many iterations."""
        assert self._end is not None
        return Status(*self._end, max(len(self.trace) - 1, 0))

    def __enter__(self) -> Course:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        if not isinstance(error, KeyboardInterrupt):
            return False
        self._end = (False, INTERRUPTED)
        return True
