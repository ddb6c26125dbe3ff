"""Monte Carlo error of draws that are resampled particles of independent runs.

Draws of one run are related: they may descend from one ancestor, and their number follows from the run's estimate of
the evidence. Runs are independent. So with D draws, of which those of run r have the mean x̄_r and the number D_r, the
error of the mean x̄ is that of a ratio of sums over R runs:

    se² = R / (R − 1) · Σ_r (D_r (x̄_r − x̄))² / D²,    effective number of draws = variance / se².

The order of the draws within a run, from which R-hat and effective sample sizes of chains are computed, has no meaning.
"""

from __future__ import annotations

import numpy as np

from bayesnmf.options import METHODS
from bayesnmf.results.record import FitRecord
from bayesnmf.types import Array


def is_resampled(fit: FitRecord) -> bool:
    """Return whether the draws of a fit are resampled particles, not chains."""
    return METHODS[fit.method].resampled


def runs_of_draws(fit: FitRecord) -> Array:
    """Return the run of each draw in the posterior, (chains · draws,); of new rows, that of its place."""
    chains, draws = fit.estimate.held or (1, 1)
    if fit.statistics is None:
        return np.repeat(np.arange(chains), draws)
    return fit.statistics["run"].astype(np.int64).ravel()


def error_over_runs(draws: Array, run: Array, runs: int) -> Array:
    """Return the standard error of the mean of draws (D, …), from their runs (D,); NaN for a single run."""
    if runs < 2:
        return np.full(draws.shape[1:], np.nan)
    sums = np.zeros((runs, *draws.shape[1:]))
    np.add.at(sums, run, draws - draws.mean(axis=0))
    return np.asarray(np.sqrt(runs / (runs - 1) * (sums**2).sum(axis=0)) / len(draws))


def share_effective(draws: Array, run: Array, runs: int) -> Array:
    """Return the effective number of draws (D, …) as a share of D; NaN for constants and for a single run."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(draws.var(axis=0) / (len(draws) * error_over_runs(draws, run, runs) ** 2))
