"""Combine independent, unbiased estimates of an evidence: by the log of their mean, never by the mean of their logs."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from bayesnmf.types import Array

IN_TWENTY = float(np.log(20))  # an unbiased estimate exceeds 20 times its mean at most once in 20 times
WIDEST_SPREAD = 1.0  # limit for the sd of the log estimates, in nats; beyond it, one run dominates the mean


def log_of_mean(logs: Array) -> tuple[float, float]:
    """Return the log of the mean of exp(logs), and its standard error to first order, NaN for a single one."""
    ratios = np.exp(logs - logs.max())
    error = ratios.std(ddof=1) / ratios.mean() / np.sqrt(len(logs)) if len(logs) > 1 else np.nan
    return float(logsumexp(logs) - np.log(len(logs))), float(error)


def agree(logs: Array) -> bool:
    """Return whether runs determine the error of their mean: whether their logs have an sd of at most 1 nat."""
    return spread_of(logs) <= WIDEST_SPREAD


def spread_of(logs: Array) -> float:
    """Return the standard deviation of log estimates, in nats; NaN for a single one."""
    return float(np.std(logs, ddof=1)) if len(logs) > 1 else np.nan
