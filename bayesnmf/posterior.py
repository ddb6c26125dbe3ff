"""Posterior draws and replicated counts of a fit.

Rows or features are selected before anything is drawn, so that a few of very many cost little: rows of q are
independent, and features of a Dirichlet that are not wanted are added up into one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesnmf import checks
from bayesnmf.priors import Dirichlet, Distribution, Gamma, ScaledProportions
from bayesnmf.results import Draws, FitRecord, VariationalPosterior, iterate_draws
from bayesnmf.specification import MODELS

__all__ = ["sample_posterior", "sample_posterior_predictive"]

Array = NDArray[Any]

LIMIT = 2 * 2**30
DEFAULT_CHAINS, DEFAULT_DRAWS = 4, 1000


# --- draws -----------------------------------------------------------------------------------------


def sample_posterior(fit: FitRecord, draws: int | None = None, chains: int | None = None, seed: int = 0) -> Draws:
    """Return draws from q, (chains, draws, …); of gibbs and nuts, evenly thinned draws of their own chains.

    Components that are parameters, without a posterior, are the same in every draw.

    Raises
    ------
    AttributeError
        The fit is a MAP.
    ValueError
        More draws or chains than a sampler has kept, or more than memory bears.
    """
    _ = fit.posterior  # a MAP has none, and says so
    number = chains_and_draws(fit, chains, draws)
    checks.check_count(seed, "seed", minimum=0)
    size = draws_size(fit, number, fit.counts.shape)
    checks.check_size(size, LIMIT, "the draws", "ask for fewer draws at a time, each time with another seed")
    return take_draws(fit, number, seed, None)


def chains_and_draws(fit: FitRecord, chains: int | None, draws: int | None) -> tuple[int, int]:
    """Return how many to take: any number from q, at most the kept ones of a sampler, one point of a MAP."""
    if isinstance(fit._posterior, VariationalPosterior):
        chains = DEFAULT_CHAINS if chains is None else checks.check_count(chains, "chains")
        return chains, DEFAULT_DRAWS if draws is None else checks.check_count(draws, "draws")
    kept = (1, 1) if fit._posterior is None else (fit._posterior.chains, fit._posterior.draws)
    chains = kept[0] if chains is None else checks.check_available(chains, kept[0], "chains")
    return chains, kept[1] if draws is None else checks.check_available(draws, kept[1], "draws")


def draws_size(fit: FitRecord, number: tuple[int, int], size: tuple[int, int]) -> int:
    """Bytes that draws of so many rows and features take."""
    n, m = size
    scales = 0 if fit.scale is None else n
    return 8 * number[0] * number[1] * ((n + m) * fit.rank + scales)


def take_draws(fit: FitRecord, number: tuple[int, int], seed: int, features: Array | None) -> Draws:
    """Draws (chains, draws, …) of all rows and of the features at some positions."""
    chains, draws = number
    posterior = fit._posterior
    if isinstance(posterior, VariationalPosterior):
        return _draw(fit, posterior, number, np.random.default_rng(seed), features)
    if posterior is None:
        scale = None if fit.scale is None else np.array([[fit.scale]])
        return Draws(np.array([[fit.loadings]]), columns(np.array([[fit.components]]), features), scale)
    kept = evenly_spaced(draws, posterior.draws)
    scale = None if posterior.scale is None else posterior.scale[:chains, kept]
    components = columns(posterior.components[:chains, kept], features)
    return Draws(posterior.loadings[:chains, kept], components, scale)


def evenly_spaced(number: int, available: int) -> Array:
    """Positions of `number` of `available` draws, evenly spaced."""
    return np.arange(number) * available // number


def columns(values: Any, features: Array | None) -> Any:
    """Take the features at some positions, those of the last axis; all by default."""
    return values if features is None else values[..., features]


def _draw(
    fit: FitRecord, q: VariationalPosterior, number: tuple[int, int], rng: np.random.Generator, features: Array | None
) -> Draws:
    """Draw independently from q."""
    value: Any = q.loadings.draw(rng, number)
    scale = None
    if isinstance(value, ScaledProportions):
        value, scale = value.proportions, value.scale[..., 0]
    if q.components is None:
        point = columns(fit.components, features)
        return Draws(value, np.tile(point, (*number, 1, 1)), scale)
    components = _draw_components(q.components.broadcast(fit.components.shape), number, rng, features)
    return Draws(value, components, scale)


def _draw_components(
    q: Gamma | Dirichlet, number: tuple[int, int], rng: np.random.Generator, features: Array | None
) -> Array:
    """Draw some features of the components; the sum of the others is one more category of a Dirichlet."""
    if features is None:
        return q.draw(rng, number)
    if isinstance(q, Gamma):
        return Gamma(*(np.asarray(value)[:, features] for value in (q.shape, q.rate))).draw(rng, number)
    concentration = np.asarray(q.concentration)
    kept, others = concentration[:, features], np.delete(concentration, features, axis=1)
    if others.shape[1]:
        kept = np.hstack([kept, others.sum(axis=1, keepdims=True)])
    return Dirichlet(kept).draw(rng, number)[..., : len(features)]


def restrict_rows[F: FitRecord](fit: F, rows: Array | None) -> F:
    """Return the fit of the rows at some positions, with their posterior and the components of all."""
    if rows is None:
        return fit
    return replace(
        fit,
        counts=fit.counts.rows(rows),
        loadings=fit.loadings[rows],
        scale=None if fit.scale is None else fit.scale[rows],
        multipliers=None if fit.multipliers is None else (fit.multipliers[0][rows], fit.multipliers[1]),
        moments=None if fit.moments is None else {name: of_rows(name, fit.moments[name], rows) for name in fit.moments},
        _posterior=_restrict_posterior(fit._posterior, rows, fit.loadings.shape),
    )


def of_rows(name: str, values: Array, rows: Array) -> Array:
    """Take some rows of what is known of all draws of one side."""
    return values if name.startswith("components") else values[rows]


def _restrict_posterior(
    posterior: VariationalPosterior | Draws | None, rows: Array, size: tuple[int, ...]
) -> VariationalPosterior | Draws | None:
    if isinstance(posterior, Draws):
        scale = None if posterior.scale is None else posterior.scale[:, :, rows]
        return Draws(posterior.loadings[:, :, rows], posterior.components, scale)
    if posterior is None:
        return None
    full: Distribution = posterior.loadings.broadcast((size[0], size[1]))
    chosen = type(full)(**{name: np.asarray(value)[rows] for name, value in vars(full).items()})
    return VariationalPosterior(chosen, posterior.components)


# --- replicated counts -----------------------------------------------------------------------------


def sample_posterior_predictive(
    fit: FitRecord, draws: int = 100, seed: int = 0, rows: Iterable[Any] | None = None
) -> Array:
    """Return replicated counts (draws, rows, m), whole numbers: one set for each posterior draw.

    Counts are Poisson; under dirichlet_poisson multinomial of the given row totals, rounded where those are not
    whole. A MAP fit gives counts at its one point, without the uncertainty of the parameters. Draws of gibbs and
    nuts are evenly spaced among all chains.
    """
    positions = checks.check_names(rows, fit.row_names, "rows")
    checks.check_count(seed, "seed", minimum=0)
    draws = checks.check_count(draws, "draws")
    if isinstance(fit._posterior, Draws):
        checks.check_available(draws, fit._posterior.chains * fit._posterior.draws, "draws")
    n, m = selected_size(fit, positions, None)
    checks.check_size(8 * draws * n * m, LIMIT, "replicated counts", "choose some with rows=, or fewer draws=")
    part = restrict_rows(fit, positions)
    pairs: Iterable[tuple[Array, Array]] = iterate_draws(part, draws, seed)
    if part._posterior is None:
        pairs = repeat((part.expected_loadings, part.components), draws)
    rng = replication_rng(seed)
    out = np.empty((draws, n, m), np.int64)
    for index, (loadings, components) in enumerate(pairs):
        out[index] = replicate(part, loadings @ components, rng)
    return out


def selected_size(fit: FitRecord, rows: Array | None, features: Array | None) -> tuple[int, int]:
    """Return how many rows and features a selection has."""
    n, m = fit.counts.shape
    return n if rows is None else len(rows), m if features is None else len(features)


def replication_rng(seed: int) -> np.random.Generator:
    """Return a stream apart from that of the draws from q with the same seed."""
    return np.random.default_rng([seed, 1])


def replicate(fit: FitRecord, means: Array, rng: np.random.Generator) -> Array:
    """Draw counts (n, …) of given means; of given row totals, in which other features take what is left."""
    checks.check_drawable(means, "fit smaller counts")
    if not MODELS[fit.model].given_totals:
        return rng.poisson(means)
    totals = fit.counts.row_totals[:, None]
    shares = np.divide(means, totals, out=np.zeros(means.shape), where=totals > 0)
    sums = shares.sum(axis=1, keepdims=True)
    if means.shape[1] == fit.counts.shape[1]:
        shares = np.divide(shares, sums, out=shares, where=sums > 0)
    else:
        shares = np.hstack([shares, np.maximum(1 - sums, 0)])
    whole = np.rint(totals[:, 0]).astype(np.int64)
    return rng.multinomial(whole, shares)[:, : means.shape[1]]
