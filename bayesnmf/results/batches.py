"""The factors of batches of a fit, and the means of entries with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import numpy as np

from bayesnmf.data.batched import BatchedCounts
from bayesnmf.data.labels import listed
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.sides import with_rates_at
from bayesnmf.priors import Gamma
from bayesnmf.types import Array


@dataclass(frozen=True, eq=False, repr=False)
class FittedBatches:
    """Factors of batches and features.

    Attributes
    ----------
    names : ndarray (B,)
        Labels of the batches.
    shape : float
        Shape a of the prior Gamma(a, a), given or learned; the mean of its draws under gibbs.
    mean : ndarray (B, m)
        Expected factors given the point estimates of both sides, so that the products of all are the fitted means.
    q : Gamma or None
        Their distribution: q under vi, that given the modes under map; None under gibbs, which has draws.
    learned : bool
        Whether the shape was not given.
    """

    names: Array
    shape: float
    mean: Array
    q: Gamma | None = None
    learned: bool = False

    def __repr__(self) -> str:
        told = f"shape {self.shape:.4g}, {'learned' if self.learned else 'given'}"
        return f"FittedBatches({listed(list(map(str, self.names)))}: {self.mean.shape[1]:,} factors each, {told})"

    def of_names(self, names: Array) -> FittedBatches:
        """Return the factors of batches with these names, the first of which are those here; 1 for all others."""
        more = (len(names) - len(self.names), self.mean.shape[1])
        mean = np.vstack([self.mean, np.ones(more)])
        q = self.q and self.q.mapped(lambda each: np.vstack([each, np.full(more, self.shape)]))
        return replace(self, names=names, mean=mean, q=q)

    def around(self, counts: Any, *, held: bool) -> BatchedCounts:
        """Return the counts as routines for Poisson counts are given them, with held factors or without any yet."""
        found = BatchedCounts.in_batches(counts, self.shape, learned=False)
        return found.with_factors(self.mean) if held else found


def factors_at(problem: Problem, state: State) -> FittedBatches:
    """Return the factors at the end of an ascent of counts in batches."""
    counts: Any = with_rates_at(problem, state).counts
    names, a, mean = counts.batches.names, counts.shape_of_factors, counts.factors
    if counts.held:
        return FittedBatches(names, a, mean)
    shape = counts.counted + a
    return FittedBatches(names, a, mean, Gamma(shape, shape / mean), counts.learns_shape)


STREAM = 3  # of random numbers, beside those of draws of both sides with the same seed


def drawn_factors(fit: Any, number: tuple[int, int], seed: int, features: Array | None) -> Array | None:
    """Return draws of the factors from q, (chains, draws, B, m), or the point in each place; None without batches."""
    batch = getattr(fit, "batch", None)
    if batch is None:
        return None
    chosen = slice(None) if features is None else features
    if batch.q is None or fit.estimate.kind == "point":
        return np.tile(batch.mean[:, chosen], (*number, 1, 1))
    q = batch.q.mapped(lambda each: each[:, chosen])
    drawn: Array = q.draw(np.random.default_rng([seed, STREAM]), number)
    return drawn


def iterate_factors(fit: Any, draws: int, seed: int) -> Iterator[Array | None]:
    """Yield the factors (B, m) of the draws that the estimate of a fit iterates over; None without batches."""
    if fit.batch is None or fit.batch.q is None or fit.estimate.kind != "mean field":
        own = getattr(fit.estimate, "factors", None)
        if own is None:
            yield from repeat(None if fit.batch is None else fit.batch.mean)
        else:
            yield from (own[at] for at in fit.estimate.places(draws))
        return
    rng = np.random.default_rng([seed, STREAM])
    while True:
        yield fit.batch.q.draw(rng)


def widened(codes: Array, loadings: Array, components: Array, factors: Array) -> tuple[Array, Array]:
    """Return loadings (…, n, B K) and components (…, B K, m) whose products are means with factors (…, B, m).

    The components of a batch are multiplied by its factors, and each row has loadings of the components of its batch.
    """
    number, m = factors.shape[-2:]
    own = (codes[:, None] == np.arange(number)).astype(loadings.dtype)
    left = own[:, :, None] * loadings[..., :, None, :]
    right = factors[..., :, None, :] * components[..., None, :, :]
    return left.reshape(*left.shape[:-2], -1), right.reshape(*right.shape[:-3], -1, m)
