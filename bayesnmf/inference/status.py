"""Whether and why an algorithm stopped."""

from __future__ import annotations

from typing import NamedTuple

INTERRUPTED = "interrupted"
NOT_A_NUMBER = "the objective is not a number: priors or counts are beyond the range of this dtype"


class ConvergenceWarning(UserWarning):
    """A fit stopped before it converged; the message names the cure."""


class Status(NamedTuple):
    """Whether and why an algorithm stopped."""

    converged: bool
    reason: str
    iterations: int
