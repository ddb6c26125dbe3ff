"""Posterior draws of a fit, their Monte Carlo error, and the fit of some of its rows.

Draws may be resampled particles of independent runs. Those of one run are related: they may descend from one ancestor,
and their number follows from the run's estimate of the evidence. Runs are independent. So with D draws, of which those
of run r have the mean x̄_r and the number D_r, the error of the mean x̄ is that of a ratio of sums over R runs:

    se² = R / (R − 1) · Σ_r (D_r (x̄_r − x̄))² / D²,    effective number of draws = variance / se².

The order of the draws within a run, from which R-hat and effective sample sizes of chains are computed, has no meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import repeat

import numpy as np

from bayesnmf.checks import check_available, check_count, check_size
from bayesnmf.noise.abilities import Dispersed, Noise
from bayesnmf.results.estimates import Draws, evenly_spaced, take_features
from bayesnmf.results.record import DISPERSION, FitRecord
from bayesnmf.types import Array

LIMIT = 2 * 2**30
DEFAULT_CHAINS, DEFAULT_DRAWS = 4, 1000
MORE = "make more with fit.with_intervals('sampled', draws=...), or draw from q, fit.with_intervals('mean_field')"
MORE_REPLICATES = "make more with fit.with_intervals('bootstrap', draws=...)"


def sample_posterior(fit: FitRecord, draws: int | None = None, chains: int | None = None, seed: int = 0) -> Draws:
    """Return draws (chains, draws, …): from q, or evenly thinned draws of the chains of gibbs and nuts.

    Components that are parameters, without a posterior, are the same in every draw.

    Raises
    ------
    AttributeError
        The fit is a point estimate (map, bld), which has no posterior.
    ValueError
        More draws or chains than a sampler has kept, or more than 2 GiB of draws.
    """
    _ = fit.posterior  # raises for a point estimate
    number = chains_and_draws(fit, chains, draws)
    check_count(seed, "seed", minimum=0)
    size = draws_size(fit, number, fit.counts.shape)
    check_size(size, LIMIT, "the draws", "ask for fewer draws at a time, each time with another seed")
    return fit.estimate.take(fit, number, seed, None)


def chains_and_draws(fit: FitRecord, chains: int | None, draws: int | None) -> tuple[int, int]:
    """Return the numbers of chains and draws to take: any from q, at most the kept ones otherwise."""
    held = fit.estimate.held
    if held is None:
        chains = DEFAULT_CHAINS if chains is None else check_count(chains, "chains")
        return chains, DEFAULT_DRAWS if draws is None else check_count(draws, "draws")
    cure = "" if fit.intervals is None else MORE_REPLICATES if fit.intervals.kind == "bootstrap" else MORE
    chains = held[0] if chains is None else check_available(chains, held[0], "chains", cure)
    return chains, held[1] if draws is None else check_available(draws, held[1], "draws", cure)


def draws_size(fit: FitRecord, number: tuple[int, int], size: tuple[int, int]) -> int:
    """Return the size in bytes of draws for a given number of rows and features."""
    n, m = size
    scales = 0 if fit.scale is None else n
    return 8 * number[0] * number[1] * ((n + m) * fit.rank + scales)


def restrict_rows[F: FitRecord](fit: F, rows: Array | None) -> F:
    """Return the fit restricted to the rows at some positions, with their posterior and all components."""
    if rows is None:
        return fit
    return replace(
        fit,
        counts=fit.counts.rows(rows),
        noise=fit.noise.of_rows(rows),
        statistics=_statistics_of_rows(fit, rows),
        loadings=fit.loadings[rows],
        scale=None if fit.scale is None else fit.scale[rows],
        multipliers=None if fit.multipliers is None else (fit.multipliers[0][rows], fit.multipliers[1]),
        moments=None
        if fit.moments is None
        else {name: moments_of_rows(name, fit.moments[name], rows) for name in fit.moments},
        intervals=None if fit.intervals is None else fit.intervals.rows(rows, fit.loadings.shape),
        estimate=fit.estimate.rows(rows, fit.loadings.shape),
    )


def _statistics_of_rows(fit: FitRecord, rows: Array) -> dict[str, Array] | None:
    """Return the statistics of draws, with the dispersions of some rows if each row has its own."""
    if fit.statistics is None or DISPERSION not in fit.statistics or fit.noise.by != "row":
        return fit.statistics
    return {**fit.statistics, DISPERSION: fit.statistics[DISPERSION][:, :, rows]}


def drawn_dispersions(fit: FitRecord, number: tuple[int, int], features: Array | None) -> Array | None:
    """Return dispersions of as many chains and draws as `Draws.take` returns, of some features; None if none are drawn.

    They have one more axis, that of rows or features, if each has its own dispersion.
    """
    drawn = _dispersions_of_kept(fit)
    if drawn is None:
        return None
    chosen = drawn[: number[0], evenly_spaced(number[1], drawn.shape[1])]
    return take_features(chosen, features) if fit.noise.by == "feature" else chosen


def _dispersions_of_kept(fit: FitRecord) -> Array | None:
    """Return the dispersions of the kept draws, which may be some of all; None if none are drawn."""
    drawn = (fit.statistics or {}).get(DISPERSION)
    if drawn is None:
        return None
    drawn = drawn[:, :: int(fit.diagnostics.get("kept_every", 1))]
    return drawn if drawn.shape[:2] == fit.estimate.held else None


def noises_of_draws(fit: FitRecord, number: tuple[int, int]) -> Callable[[tuple[int, int]], Noise]:
    """Return what returns the noise at a draw of as many chains and draws as `Draws.take` returns."""
    drawn, noise = drawn_dispersions(fit, number, None), fit.noise
    if drawn is None or not isinstance(noise, Dispersed):
        return lambda at: noise
    return lambda at: noise.with_dispersion(drawn[at])


def iterate_noises(fit: FitRecord, draws: int) -> Iterator[Noise]:
    """Yield the noise at each of the draws that the estimate of a fit iterates over."""
    drawn, noise = _dispersions_of_kept(fit), fit.noise
    if drawn is None or not isinstance(noise, Dispersed):
        return repeat(noise)
    return (noise.with_dispersion(drawn[at]) for at in fit.estimate.places(draws))  # type: ignore[union-attr]


def moments_of_rows(name: str, values: Array, rows: Array) -> Array:
    """Return the moments of one side for some rows; those of components are the same for all rows."""
    return values if name.startswith("components") else values[rows]


def is_resampled(fit: FitRecord) -> bool:
    """Return whether the draws of a fit are resampled particles, not chains."""
    return fit.by.resampled


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
