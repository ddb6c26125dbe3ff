"""The rules by which all loops run and end: the order of updates, the record of the objective, when to stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, ClassVar, Literal

import numpy as np

from bayesnmf.inference.status import INTERRUPTED, NOT_A_NUMBER, Status
from bayesnmf.kernels.cpu.allocation import Sides
from bayesnmf.options.algorithms import SCHEDULES

Progress = Callable[..., None]
WINDOW = 5  # for steps of varying length: a single short step does not mean that the objective is at rest


def objective_settled(trace: list[float], tol: float, window: int = 1) -> bool:
    """Return whether the objective changed by less than `tol` times its size over the last `window` iterations."""
    if tol == 0 or len(trace) <= window or not np.isfinite(trace[-1 - window]):
        return False
    return abs(trace[-1] - trace[-1 - window]) < tol * max(abs(trace[-1]), 1.0)


@dataclass
class Course:
    """Record of a run of an algorithm, with its stopping rules.

    Inside ``with course:`` the algorithm passes the objective of every iterate to `reach`, and continues while that
    returns True. Ctrl-C ends the block and is recorded as the reason.

    Attributes
    ----------
    max_iter : int
        Largest number of iterations; the start is not counted, but iterations of earlier stages are.
    tol : float
        Tolerance of `at_rest`.
    window : int
        Number of iterations that `at_rest` compares.
    kkt_tol : float or None
        KKT residual, in counts, at which to stop; 0 and None disable this rule.
    progress : callable, optional
        Function called for every iterate with its number, its objective and the further arguments of `reach`.
    at_rest : callable
        Function of the trace, the tolerance and the window that returns whether the objective is at rest.
    words : tuple of str
        Reasons for a stop at rest and after the last iteration, with fields for the other attributes.
    trace : list of float
        Objective at the start and after each iteration.
    residuals : list of float
        KKT residuals of the same iterates; empty if the algorithm gives none.
    done : int
        Number of iterations of earlier stages of the same fit, from whose end this course starts.
    """

    max_iter: int
    tol: float = 0.0
    window: int = 1
    kkt_tol: float | None = None
    progress: Callable[..., None] | None = None
    at_rest: Callable[[list[float], float, int], bool] = objective_settled
    words: tuple[str, str] = ("objective settled to {tol:g} relative", "all {max_iter} iterations done")
    checkpointed: ClassVar = "trace", "residuals", "_end"
    trace: list[float] = field(default_factory=list)
    residuals: list[float] = field(default_factory=list)
    done: int = 0
    _end: tuple[bool, str] | None = None

    def reach(self, value: float, *shown: Any, residual: float | None = None) -> bool:
        """Record and report the objective of an iterate; return whether to continue."""
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
        elif self.iterations >= self.max_iter:
            self.end(False, self.words[1].format_map(vars(self)))
        return self._end is None

    def end(self, converged: bool, reason: str) -> None:
        """End the course for another reason, unless it has ended already."""
        self._end = self._end or (converged, reason)

    @property
    def iterations(self) -> int:
        """Number of iterations so far, with those of earlier stages."""
        return self.done + max(len(self.trace) - 1, 0)

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the course."""
        return self._end == (False, INTERRUPTED)

    @property
    def status(self) -> Status:
        """Whether the course converged, the reason for its end and the number of iterations."""
        assert self._end is not None
        return Status(*self._end, self.iterations)

    def __enter__(self) -> Course:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        if not isinstance(error, KeyboardInterrupt):
            return False
        self._end = (False, INTERRUPTED)
        return True


@dataclass(frozen=True)
class Schedule:
    """Order of the updates, and rules for stopping.

    Attributes
    ----------
    kind : {"joint", "alternating"}
        One allocation step for both sides, or a new one for each side. In both cases the second side's exposure uses
        the first side's new value, since otherwise the objective would not be monotone.
    order : {"loadings", "components"}
        Side that is updated first.
    sweeps : int
        Number of consecutive updates of the first side, each from a new allocation step ([GP] alg. 3: several for each
        sample before the components move); of both sides if alternating ([C] alg. 1 with [C] 38).
    max_iter : int
        Largest number of updates of both sides, those of earlier stages included.
    tol : float
        Relative change of the objective below which to stop; 0 disables this rule.
    window : int
        Number of iterations over which the change is measured. One is enough for plain steps; other steps may be short.
    kkt_tol : float or None
        KKT residual, in counts, at which to stop; 0 disables this rule, None does not compute the residual.
    threads : int or None
        Number of row blocks processed at once.
    done : int
        Number of updates that earlier stages of the same fit have done.
    """

    kind: Literal["joint", "alternating"] = "joint"
    order: Literal["loadings", "components"] = "loadings"
    sweeps: int = 1
    max_iter: int = 1000
    tol: float = 1e-7
    window: int = 1
    kkt_tol: float | None = None
    threads: int | None = None
    done: int = 0

    def course(self, progress: Progress | None = None, **more: Any) -> Course:
        """Return a course with these stopping rules; `more` are further attributes of `Course`."""
        return Course(self.max_iter, self.tol, self.window, self.kkt_tol, progress, done=self.done, **more)

    @property
    def sides(self) -> tuple[str, str]:
        """Both sides, in order."""
        return ("loadings", "components") if self.order == "loadings" else ("components", "loadings")

    @property
    def visited(self) -> Sides:
        """Sides with totals computed at an iterate: those needed by the first update and by KKT residuals."""
        rule = SCHEDULES[self.kind]
        at_hand = {self.sides[place] for place, fresh in rule.moves(self.sweeps) if not fresh}
        alone = rule.one_side and at_hand == {"loadings"} and self.kkt_tol is None
        return "loadings" if alone else "both"
