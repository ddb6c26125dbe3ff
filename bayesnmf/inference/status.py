"""The status with which an algorithm stopped."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

INTERRUPTED = "interrupted"
NOT_A_NUMBER = "the objective is not a number: priors or counts are beyond the range of this dtype"
NO_CHANCE = "the objective is −inf: some counts have probability 0 at the range of this dtype"
NOT_FINITE = "loadings or components are not finite: priors or counts are beyond the range of this dtype"
BROKEN = (INTERRUPTED, NOT_A_NUMBER, NO_CHANCE, NOT_FINITE)  # reasons for which no more iterations help


class FitWarning(UserWarning):
    """Warning about one fit. Studies of many fits leave it out, and report on all of them together."""


class ConvergenceWarning(FitWarning):
    """Warning that a fit stopped before it converged; the message names the cure."""


class Status(NamedTuple):
    """Status with which an algorithm stopped.

    Attributes
    ----------
    converged : bool
        Whether the algorithm met its convergence rule: map, vi, svi and bld reached an optimum of their objective,
        chains or runs of samplers agree. Of intervals it says nothing: those of a mean field are too narrow at its
        optimum, too.
    reason : str
        Reason for the stop.
    iterations : int
        Number of iterations done.
    """

    converged: bool
    reason: str
    iterations: int


def told_of_parameters(status: Status, *parameters: np.ndarray | None) -> Status:
    """Return the status of a fit: not converged, with the reason, if some of its parameters are not finite."""
    finite = all(each is None or np.isfinite(each.sum(dtype=np.float64)) for each in parameters)
    return status if finite or status.reason == NOT_A_NUMBER else status._replace(converged=False, reason=NOT_FINITE)
