"""Posterior draws and replicated counts of a fit.

Rows or features are selected before anything is drawn, so that a few of very many cost little: rows of q are
independent, and features of a Dirichlet that are not wanted are added up into one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesnmf.checks import check_available, check_count, check_size
from bayesnmf.priors.values import split
from bayesnmf.results.record import Draws, FitRecord, VariationalPosterior

Array = NDArray[Any]
LIMIT = 2 * 2**30
DEFAULT_CHAINS, DEFAULT_DRAWS = 4, 1000


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
    check_count(seed, "seed", minimum=0)
    size = draws_size(fit, number, fit.counts.shape)
    check_size(size, LIMIT, "the draws", "ask for fewer draws at a time, each time with another seed")
    return take_draws(fit, number, seed, None)


def chains_and_draws(fit: FitRecord, chains: int | None, draws: int | None) -> tuple[int, int]:
    """Return how many to take: any number from q, at most the kept ones of a sampler, one point of a MAP."""
    if isinstance(fit._posterior, VariationalPosterior):
        chains = DEFAULT_CHAINS if chains is None else check_count(chains, "chains")
        return chains, DEFAULT_DRAWS if draws is None else check_count(draws, "draws")
    kept = (1, 1) if fit._posterior is None else (fit._posterior.chains, fit._posterior.draws)
    chains = kept[0] if chains is None else check_available(chains, kept[0], "chains")
    return chains, kept[1] if draws is None else check_available(draws, kept[1], "draws")


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
    loadings, scale = split(value)
    if q.components is None:
        point = columns(fit.components, features)
        return Draws(loadings, np.tile(point, (*number, 1, 1)), scale)
    full = q.components.broadcast(fit.components.shape)
    components = full.draw(rng, number) if features is None else full.draw_features(rng, number, features)
    return Draws(loadings, components, scale)


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
    chosen = posterior.loadings.broadcast((size[0], size[1])).mapped(lambda value: value[rows])
    return VariationalPosterior(chosen, posterior.components)
