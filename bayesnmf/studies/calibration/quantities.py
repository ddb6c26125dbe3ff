"""Quantities whose true values are ranked among posterior draws.

None of them changes when components are relabelled, since neither the likelihood nor exchangeable priors identify
their order. Quantities that depend on both data and parameters find faults that no function of the parameters alone
can find, such as a sampler that returns the prior.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import xlogy

from bayesnmf.data.simulation import Simulation
from bayesnmf.priors import Priors, ScaledProportions
from bayesnmf.priors.specification import MODELS
from bayesnmf.results.estimates import Draws
from bayesnmf.types import Array


@dataclass(frozen=True, eq=False)
class Points:
    """D parameter values, with the counts and priors of one simulation.

    Attributes
    ----------
    loadings : ndarray (D, n, K)
        Loadings; under dirichlet_poisson and dirichlet_gamma they are proportions.
    components : ndarray (D, K, m)
    scale : ndarray (D, n) or None
    counts : ndarray (n, m)
    priors : Priors
        Priors of the simulation.
    given_totals : bool
        Whether row totals are given.
    """

    loadings: Array
    components: Array
    scale: Array | None
    counts: Array
    priors: Priors
    given_totals: bool

    @cached_property
    def means(self) -> Array:
        """Expected counts (D, n, m)."""
        scale = self.counts.sum(axis=1) if self.given_totals else self.scale
        loadings = self.loadings if scale is None else self.loadings * scale[..., None]
        return loadings @ self.components

    @cached_property
    def shares(self) -> Array:
        """Return the share of each component in each row's expected total, (D, n, K)."""
        parts = self.loadings * self.components.sum(axis=-1)[:, None, :]
        return parts / parts.sum(axis=-1, keepdims=True)

    @cached_property
    def profiles(self) -> Array:
        """Components divided by their sums, (D, K, m)."""
        return self.components / self.components.sum(axis=-1, keepdims=True)


def true_point(simulation: Simulation) -> Points:
    """Return the true parameters of a simulation as one point."""
    scale = None if simulation.scale is None else simulation.scale[None]
    return _points((simulation.loadings[None], simulation.components[None], scale), simulation)


def draws_as_points(draws: Draws, simulation: Simulation, chosen: Array) -> Points:
    """Return the draws at the `chosen` positions as points; positions run through one chain after another."""
    parts = (draws.loadings, draws.components, draws.scale)
    flat = [None if part is None else part.reshape(-1, *part.shape[2:])[chosen] for part in parts]
    return _points((flat[0], flat[1], flat[2]), simulation)  # type: ignore[arg-type]


def _points(parts: tuple[Array, Array, Array | None], simulation: Simulation) -> Points:
    given_totals = MODELS[simulation.model].given_totals
    return Points(*parts, simulation.counts.matrix.toarray(), simulation.priors, given_totals)


def first_entry(at: Points) -> Array:
    """Return the expected count of the first row and first feature."""
    return at.means[:, 0, 0]


def last_entry(at: Points) -> Array:
    """Return the expected count of the last row and last feature."""
    return at.means[:, -1, -1]


def row_total(at: Points) -> Array:
    """Return the expected total of the first row; left out if row totals are given."""
    return at.means[:, 0].sum(axis=-1)


def largest_share(at: Points) -> Array:
    """Return the share of the largest component in the first row's expected total."""
    return at.shares[:, 0].max(axis=-1)


def loading_spread(at: Points) -> Array:
    """Return the sum of all squared shares: how far rows are from even mixtures."""
    return (at.shares**2).sum(axis=(-2, -1))


def component_spread(at: Points) -> Array:
    """Return the sum of all squared entries of normalised components: how far components are from even."""
    return (at.profiles**2).sum(axis=(-2, -1))


def log_likelihood(at: Points) -> Array:
    """Return the log-likelihood of the counts, up to a constant of the data, in nats."""
    return (xlogy(at.counts, at.means) - at.means).sum(axis=(-2, -1))


def log_joint(at: Points) -> Array:
    """Return the log-likelihood plus the log prior density of all parameters, in nats."""
    loadings: Any = at.priors.loadings
    components: Any = at.priors.components
    scaled = [None] * len(at.loadings) if at.scale is None else at.scale[..., None]
    prior = [
        loadings.log_density(value if scale is None else ScaledProportions(value, scale))
        + components.log_density(other)
        for value, scale, other in zip(at.loadings, scaled, at.components, strict=True)
    ]
    return log_likelihood(at) + np.array(prior)


QUANTITIES: dict[str, Callable[[Points], Array]] = {
    function.__name__: function
    for function in (
        first_entry,
        last_entry,
        row_total,
        largest_share,
        loading_spread,
        component_spread,
        log_likelihood,
        log_joint,
    )
}
"""All quantities by name; each takes `Points` and returns one number for each point, (D,)."""


def names_for(model: str, rank: int, priors: Priors) -> tuple[str, ...]:
    """Return the names of the quantities that vary, and differ from each other, under a model and priors.

    Left out are given totals; shares if K is 1; and the log joint if the prior density is constant, as with
    Dirichlet(1) on both sides: it would have the same ranks as the log-likelihood.
    """
    constant = {"row_total"} if MODELS[model].given_totals else set()
    if rank == 1:
        constant |= {"largest_share", "loading_spread"}
    if all(prior.support == "simplex" and prior.flat_in_shares for prior in vars(priors).values()):
        constant |= {"log_joint"}
    return tuple(name for name in QUANTITIES if name not in constant)


def evaluate(names: tuple[str, ...], at: Points) -> Array:
    """Return the quantities of every point, (D, quantities)."""
    return np.stack([QUANTITIES[name](at) for name in names], axis=1)
