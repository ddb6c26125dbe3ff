"""Posterior moments of loadings, components and expected counts, entry by entry, in one order of the components."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bayesnmf.data.simulation import Simulation, effective
from bayesnmf.fitting.fitted import Fit
from bayesnmf.inference import alignment
from bayesnmf.needs import needed_for
from bayesnmf.priors.specification import on_simplex
from bayesnmf.priors.values import component_sums, rows_to_shares
from bayesnmf.results.draws import restrict_rows
from bayesnmf.results.mixing import r_hat_and_ess
from bayesnmf.results.record import effective_loadings
from bayesnmf.results.resampling import error_over_runs, is_resampled, runs_of_draws
from bayesnmf.types import Array

QUANTITIES = ("loadings", "components", "expected counts")
Q_DRAWS = 4000
CONSTANT = 1e-9  # an sd below this share of the mean is rounding error


class Entries(NamedTuple):
    """Rows, features and entries to compare; entries are given by positions within these rows and features."""

    rows: Array
    features: Array
    entries: tuple[Array, Array]


class Moments(NamedTuple):
    """Posterior moments of one quantity in one fit, each array (entries,).

    `error` is the Monte Carlo standard error of the mean. `r_hat` and `ess` are computed for chains, and None for q and
    resampled draws.
    """

    mean: Array
    sd: Array
    low: Array
    high: Array
    error: Array
    r_hat: Array | None = None
    ess: Array | None = None

    @property
    def varies(self) -> Array:
        """Mask of the entries whose posterior is not a single point."""
        return self.sd > CONSTANT * np.abs(self.mean)


def choose_entries(fit: Fit, most: int, seed: int) -> Entries:
    """Choose rows, features and entries at random, at most `most` entries of each quantity."""
    rng = np.random.default_rng(seed)
    rows, features = (
        np.sort(rng.choice(size, min(size, max(most // fit.rank, 1)), replace=False)) for size in fit.counts.shape
    )
    number = len(rows) * len(features)
    entries = np.sort(rng.choice(number, min(number, most), replace=False))
    return Entries(rows, features, np.divmod(entries, len(features)))


def draw_quantities(fit: Fit, reference: Fit, chosen: Entries, seed: int) -> dict[str, Array]:
    """Return draws of every quantity, (chains, draws, entries), in the reference's order; one draw of a point."""
    return _quantities(*draw_sides(fit, reference, (chosen.rows, chosen.features), seed), chosen)


def draw_sides(fit: Fit, reference: Fit, at: tuple[Array, Array], seed: int) -> tuple[Array, Array]:
    """Return draws of loadings on the scale of the counts and components on the simplex, at some rows and features."""
    rows, features = at
    number = fit.estimate.held or (1, Q_DRAWS)
    normalised = on_simplex(fit.priors.components)
    part = restrict_rows(fit, rows)
    whole = not normalised or part.counts.mask is not None  # sums need all features
    drawn = part.estimate.take(part, number, seed, None if whole else features)
    loadings = effective_loadings(part, drawn.loadings, drawn.scale, drawn.components)
    components = drawn.components if normalised else part.counts.exposed_components(drawn.components)
    if not normalised:
        loadings, components = _on_simplex(loadings, components)
    components = components[..., features] if whole else components
    order = alignment.match_fits(fit, reference)
    if fit is reference:
        order = np.arange(fit.rank)  # equal components have no best matching
    return loadings[..., order], components[..., order, :]


def values_of_truth(truth: Simulation, reference: Fit, chosen: Entries) -> dict[str, Array]:
    """Return the true value of every quantity, (entries,), in the reference's order."""
    loadings, components = _on_simplex(effective(truth), truth.counts.exposed_components(truth.components))
    order = alignment.match_fits(truth, reference)
    return _quantities(loadings[chosen.rows][:, order], components[order][:, chosen.features], chosen)


def _on_simplex(loadings: Array, components: Array) -> tuple[Array, Array]:
    """Divide components by their sums, and multiply the loadings by these."""
    sums = component_sums(components)
    return loadings * sums[..., None, :], rows_to_shares(components, sums)


def _quantities(loadings: Array, components: Array, chosen: Entries) -> dict[str, Array]:
    row, feature = chosen.entries
    entries = np.zeros((*loadings.shape[:-2], len(row)))
    for k in range(loadings.shape[-1]):  # one component at a time, for memory
        entries += loadings[..., row, k] * components[..., k, feature]
    flat = (loadings.reshape(*entries.shape[:-1], -1), components.reshape(*entries.shape[:-1], -1), entries)
    return dict(zip(QUANTITIES, flat, strict=True))


def moments(draws: Array, interval: float) -> Moments:
    """Summarise independent draws (chains, draws, entries)."""
    pooled = draws.reshape(-1, draws.shape[-1])
    tail = (1 - interval) / 2
    low, high = np.quantile(pooled, [tail, 1 - tail], axis=0)
    sd = pooled.std(axis=0, ddof=int(len(pooled) > 1))
    return Moments(pooled.mean(axis=0), sd, low, high, sd / np.sqrt(len(pooled)))


def moments_of_fit(draws: Array, interval: float, fit: Fit) -> Moments:
    """Summarise the draws of a fit; those of chains are autocorrelated, and have R-hat and an effective sample size."""
    found = moments(draws, interval)
    if fit.estimate.kind != "draws":
        return found
    if is_resampled(fit):
        pooled = draws.reshape(-1, draws.shape[-1])
        return found._replace(error=error_over_runs(pooled, runs_of_draws(fit), len(draws)))
    with needed_for("the error of means of chains"):
        from arviz_stats.base import array_stats

    r_hat, ess = r_hat_and_ess(draws)
    with np.errstate(invalid="ignore", divide="ignore"):  # constants have no effective sample size
        error = array_stats.mcse(draws, chain_axis=0, draw_axis=1)
    return found._replace(error=error, r_hat=r_hat, ess=ess)
