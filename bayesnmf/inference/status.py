"""The status with which an algorithm stopped."""

from __future__ import annotations

from typing import NamedTuple

INTERRUPTED = "interrupted"
NOT_A_NUMBER = "the objective is not a number: priors or counts are beyond the range of this dtype"
NO_CHANCE = "the objective is −inf: some counts have probability 0 at the range of this dtype"
BROKEN = (INTERRUPTED, NOT_A_NUMBER, NO_CHANCE)  # reasons for which no more iterations help


class ConvergenceWarning(UserWarning):
    """Warning that a fit stopped before it converged; the message names the cure."""


class Status(NamedTuple):
    """Status with which an algorithm stopped.

    Attributes
    ----------
    converged : bool
        Whether the algorithm met its convergence rule.
    reason : str
        Reason for the stop.
    iterations : int
        Number of iterations done.
    """

    converged: bool
    reason: str
    iterations: int
