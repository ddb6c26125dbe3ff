"""The status with which an algorithm stopped."""

from __future__ import annotations

from typing import NamedTuple

INTERRUPTED = "interrupted"
NOT_A_NUMBER = "the objective is not a number: priors or counts are beyond the range of this dtype"
NO_CHANCE = "the objective is −inf: some counts have probability 0 at the range of this dtype"
NOT_FINITE = "loadings or components are not finite: priors or counts are beyond the range of this dtype"
BROKEN = (INTERRUPTED, NOT_A_NUMBER, NO_CHANCE, NOT_FINITE)  # reasons for which no more iterations help


class FitWarning(UserWarning):
    """Warning about one fit. Studies of many fits leave it out, and report on all of them together."""


class ConvergenceWarning(FitWarning):
    """Warning that a fit stopped before it converged; the message names the cure.

    See Also
    --------
    Fit : its `status` says why it stopped.

    Examples
    --------
    >>> import warnings
    >>> import bayesnmf
    >>> counts = [[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]]
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     fit = bayesnmf.fit(counts, rank=2, seed=0, options=bayesnmf.VI(max_iter=1))
    >>> caught[-1].category.__name__
    'ConvergenceWarning'
    """


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
