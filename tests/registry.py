"""One list of models and priors; every conformance test runs over it, so a new line adds its tests everywhere.

The sizes are arguments, so that the same priors serve tiny sampler tests and larger fits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from suites import mostly_long

from bayesnmf import Dirichlet, Gamma, HierarchicalGamma, Priors, ScaledDirichlet
from bayesnmf.inference.problem import State
from bayesnmf.inference.side import Draw
from bayesnmf.priors import ScaledProportions
from bayesnmf.priors.partly_known import PartlyKnown
from bayesnmf.priors.values import joined

SIZE, RANK = (9, 7), 3

Build = Callable[[int, int, int], Priors]


class Entry(NamedTuple):
    """A model with priors for any size (n, m, K)."""

    id: str
    model: str
    build: Build

    def priors(self, size: tuple[int, int] = SIZE, rank: int = RANK) -> Priors:
        """Return the priors for one size."""
        return self.build(*size, rank)

    @property
    def proper(self) -> bool:
        """Whether the model can be simulated."""
        priors = self.priors()
        return priors.loadings.proper and priors.components.proper

    @property
    def natural(self) -> bool:
        """Whether the MAP exists in the natural basis."""
        priors = self.priors()
        return min(priors.loadings.smallest_shape, priors.components.smallest_shape) >= 1


def spread(low: float, high: float, *size: int) -> np.ndarray:
    """All different, from `low` to `high`."""
    return np.linspace(low, high, int(np.prod(size))).reshape(size)


def _asymmetric_gamma(n: int, m: int, K: int) -> Priors:
    return Priors(Gamma(spread(1.0, 2.5, K), spread(0.2, 0.6, K)), Dirichlet(spread(1.0, 2.0, m)))


def _asymmetric_doubly_gamma(n: int, m: int, K: int) -> Priors:
    loadings = Gamma(spread(1.1, 3.0, n, K), spread(0.3, 0.9, n, 1))
    return Priors(loadings, Gamma(spread(1.0, 2.0, K, 1), spread(0.5, 2.0, K, m)))


def _asymmetric_dirichlet(n: int, m: int, K: int) -> Priors:
    return Priors(Dirichlet(spread(1.0, 3.0, K)), Dirichlet(spread(1.0, 2.0, K, m)))


def _asymmetric_scaled(n: int, m: int, K: int) -> Priors:
    loadings = ScaledDirichlet(spread(1.0, 3.0, n, K), spread(2.0, 5.0, n, 1), spread(0.2, 0.5, n, 1))
    return Priors(loadings, Dirichlet(spread(1.0, 2.0, m)))


def _asymmetric_hierarchical(n: int, m: int, K: int) -> Priors:
    rates = Gamma(spread(3.0, 6.0, n, 1), spread(1.0, 2.0, n, 1))
    loadings = HierarchicalGamma(spread(1.1, 3.0, n, K), rates, "row")
    return Priors(loadings, HierarchicalGamma(spread(1.0, 2.0, m), Gamma(spread(3.0, 4.0, K, 1), 1.5), "component"))


def _known(m: int, at: list[int]) -> PartlyKnown:
    known = np.eye(len(at), m) + spread(0.1, 1.0, len(at), m)
    return PartlyKnown(known / known.sum(axis=1, keepdims=True), Dirichlet(1.2), np.array(at))


def _partly_known(n: int, m: int, K: int) -> Priors:
    return Priors(Gamma(1.3, 0.2), _known(m, [0]))


def _partly_known_gammas(n: int, m: int, K: int) -> Priors:
    known = replace(_known(m, [K - 1]), free=HierarchicalGamma(1.2, Gamma(3.0, 0.5), "feature"))
    return Priors(HierarchicalGamma(1.3, Gamma(3.5, 2.5), "row"), known)


MODELS_AND_PRIORS = [
    Entry("poisson", "poisson", lambda n, m, K: Priors(Gamma(1.0, 0.0), Dirichlet(1.0))),
    Entry("poisson-gammas", "poisson", lambda n, m, K: Priors(Gamma(1.2, 0.3), Gamma(1.5, 2.0))),
    Entry("gamma_poisson", "gamma_poisson", lambda n, m, K: Priors(Gamma(1.3, 0.2), Dirichlet(1.2))),
    Entry("doubly_gamma", "gamma_poisson", lambda n, m, K: Priors(Gamma(1.5, 0.4), Gamma(1.2, 0.7))),
    Entry("dirichlet_poisson", "dirichlet_poisson", lambda n, m, K: Priors(Dirichlet(1.0), Dirichlet(1.0))),
    Entry(
        "dirichlet_gamma",
        "dirichlet_gamma",
        lambda n, m, K: Priors(ScaledDirichlet(1.0, 2.0, 0.2), Dirichlet(1.0)),
    ),
    Entry("gamma_poisson-asymmetric", "gamma_poisson", _asymmetric_gamma),
    Entry("doubly_gamma-asymmetric", "gamma_poisson", _asymmetric_doubly_gamma),
    Entry("dirichlet_poisson-asymmetric", "dirichlet_poisson", _asymmetric_dirichlet),
    Entry("dirichlet_gamma-asymmetric", "dirichlet_gamma", _asymmetric_scaled),
    Entry("gamma_poisson-sparse", "gamma_poisson", lambda n, m, K: Priors(Gamma(0.4, 0.1), Dirichlet(0.3))),
    Entry("doubly_gamma-sparse", "gamma_poisson", lambda n, m, K: Priors(Gamma(0.5, 0.2), Gamma(0.4, 0.5))),
    Entry("dirichlet_poisson-sparse", "dirichlet_poisson", lambda n, m, K: Priors(Dirichlet(0.3), Dirichlet(0.2))),
    Entry(
        "dirichlet_gamma-sparse",
        "dirichlet_gamma",
        lambda n, m, K: Priors(ScaledDirichlet(0.3, 0.8, 0.1), Dirichlet(0.2)),
    ),
    Entry("hierarchical_poisson-asymmetric", "hierarchical_poisson", _asymmetric_hierarchical),
    Entry(
        "relevance-sparse",
        "gamma_poisson",
        lambda n, m, K: Priors(HierarchicalGamma(0.4, Gamma(2.5, 0.3), "component"), Dirichlet(0.3)),
    ),
    Entry("partly_known", "gamma_poisson", _partly_known),
    Entry("partly_known-gammas", "poisson", _partly_known_gammas),
]


def over(entries: list[Entry], default: Collection[str] | None = None) -> Any:
    """Parametrise a test by `entry`; where some are named as the default, the long suite runs the others."""
    named = [pytest.param(entry, id=entry.id) for entry in entries]
    if default is None:
        return pytest.mark.parametrize("entry", named)
    places = [[entry.id for entry in entries].index(name) for name in default]
    return pytest.mark.parametrize("entry", mostly_long(named, places))


def having(*parts: str) -> list[Entry]:
    """Return the entries with these optional parts in the families of both priors."""
    return [
        entry
        for entry in MODELS_AND_PRIORS
        if all(set(parts) <= prior.optional for prior in vars(entry.priors()).values())
    ]


every_entry = over(MODELS_AND_PRIORS)
proper_entries = over([entry for entry in MODELS_AND_PRIORS if entry.proper])
simplex_entries = over([entry for entry in MODELS_AND_PRIORS if isinstance(entry.priors().components, Dirichlet)])


def nasty_counts(seed: int = 0, size: tuple[int, int] = SIZE) -> np.ndarray:
    """Counts with an empty row, an empty column, a row and a column with a single nonzero, and large counts."""
    rng = np.random.default_rng(seed)
    n, m = size
    assert n >= 5
    assert m >= 5
    counts = rng.poisson(rng.gamma(0.7, 4.0, size)).astype(np.float64)
    counts[1], counts[:, 2] = 0, 0
    counts[3] = 0
    counts[3, 4] = 7
    counts[:, 1] = 0
    counts[4, 1] = 3
    counts[0, 0], counts[n - 1, m - 1] = 2_000, 35_000
    counts[5:, 0] = rng.poisson(1.0, n - 5)
    return counts


def plain_counts(seed: int = 0, size: tuple[int, int] = SIZE, mean: float = 3.0) -> np.ndarray:
    """Small counts with zeros."""
    return np.random.default_rng(seed).poisson(mean, size).astype(np.float64)


def interior_value(prior: Any, size: tuple[int, int], rng: np.random.Generator) -> Any:
    """Random values of one side away from the boundary, not drawn from the prior, so that flat ones have them too."""
    if isinstance(prior, ScaledDirichlet):
        return ScaledProportions(rng.dirichlet(np.full(size[1], 2.0), size[0]), rng.gamma(3.0, 2.0, (size[0], 1)))
    if isinstance(prior, PartlyKnown):
        free = interior_value(prior.free, (size[0] - len(prior.known), size[1]), rng)
        return joined(prior.known, free, prior.at)
    if isinstance(prior, Dirichlet):
        return rng.dirichlet(np.full(size[1], 2.0), size[0])
    return rng.gamma(2.0, 1.0, size)


def interior_state(priors: Priors, size: tuple[int, int], rank: int, rng: np.random.Generator) -> State:
    """Both sides at random points, carried as draws are."""
    n, m = size
    carry = Draw(rng)
    return State(
        carry.at(priors.loadings, interior_value(priors.loadings, (n, rank), rng)),
        carry.at(priors.components, interior_value(priors.components, (rank, m), rng)),
    )


def with_parameter(priors: Priors) -> Priors:
    """Return the same priors with the components as a parameter."""
    return replace(priors, components="parameter")


def heavy_tailed(rows, columns, seed=0):
    """A full first row and column, and fewer counts further down and right."""
    rng = np.random.default_rng(seed)
    mean = 30.0 / (1 + np.arange(rows))[:, None] / (1 + np.arange(columns))
    counts = rng.poisson(mean).astype(float)
    counts[0], counts[:, 0] = 2, 3
    return counts
