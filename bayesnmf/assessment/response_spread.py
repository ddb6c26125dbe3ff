"""Standard deviations of all entries of one side by linear response, with their Monte Carlo errors."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bayesnmf.assessment.response_quantities import warn
from bayesnmf.types import Array


class Spread(NamedTuple):
    """Standard deviations of all entries of one side, (n, K) or (K, m).

    Attributes
    ----------
    sd : ndarray
        By linear response.
    mean_field_sd : ndarray
        Under q.
    error : ndarray
        Monte Carlo standard error of `sd`; 0 where it is exact.
    draws : int
        Number of draws that `sd` was estimated from; 0 if it is exact.
    """

    sd: Array
    mean_field_sd: Array
    error: Array
    draws: int


def spread_of(variances: tuple[Array, Array, Array], draws: int, asked: float) -> Spread:
    """Return standard deviations; warn if the error of one is a larger share of it than was asked for.

    `variances` are those by linear response, their Monte Carlo errors, and those under q.
    """
    variance, error, under_q = variances
    with np.errstate(invalid="ignore", divide="ignore"):
        sd = np.sqrt(np.where(variance >= 0, variance, np.nan))
        error_of_sd = np.where(error > 0, error / (2 * sd), 0.0)
        reached = np.nanmax(error_of_sd / np.where(sd > 0, sd, 1.0), initial=0.0)
    if reached > asked:
        warn(
            f"the Monte Carlo error of a standard deviation is {reached:.1%} of it after {draws} draws, more than the "
            f"{asked:.1%} asked for; Spread.error has that of every entry, and summary() has none"
        )
    return Spread(sd, np.sqrt(under_q), error_of_sd, draws)
