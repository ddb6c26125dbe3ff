"""What is tempered: the likelihood of counts under the priors of a model, with allocations summed out.

Where the loadings of a row are proportions times a scale that is independent of them, the row totals N_i say nothing
about proportions and components. The multinomial of the counts given N_i is then tempered instead of the Poisson, and
log p(N) is added in closed form: one run serves all models that share proportions and components, and its estimates
vary less (mathematics.md section 9). This holds for dirichlet_poisson, for dirichlet_gamma, and for Gamma loadings with
one rate for each row if the components sum to 1. Where entries are missing, the totals of the observed ones do say
something, and the Poisson is tempered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy.special import gammaln

from bayesnmf.data.counts import Counts
from bayesnmf.inference.problem import Problem
from bayesnmf.inference.sampling.marginal_gibbs import Factors
from bayesnmf.inference.side import Draw
from bayesnmf.kernels.cpu.likelihood import log_likelihoods
from bayesnmf.priors import Dirichlet, Distribution, Gamma, ScaledDirichlet
from bayesnmf.priors.values import ScaledProportions, separate_scale
from bayesnmf.types import Array


class Change(Protocol):
    """How the log-likelihoods of some states change with the power, from a given one on."""

    def by(self, step: float) -> Array:
        """Return the change of each log-likelihood for a step of the power, (S,), in nats."""

    def spread(self, step: float) -> Array:
        """Return the same less the largest."""


@dataclass(frozen=True)
class Straight:
    """The change of likelihoods that are raised to the power: in proportion to their logarithms."""

    logs: Array

    def by(self, step: float) -> Array:
        """Return the change of each log-likelihood for a step of the power, (S,), in nats."""
        return step * self.logs

    def spread(self, step: float) -> Array:
        """Return the same less the largest."""
        return step * (self.logs - self.logs.max())


@dataclass(frozen=True)
class Target:
    """Counts and priors of a problem to temper.

    Attributes
    ----------
    counts : Counts
    loadings, components : Distribution
        Proper priors, in full size. Gamma loadings that are proportions times an independent scale are written as such.
    joined : bool
        Whether the model's loadings are the product of these proportions and this scale.
    constant : float
        What is added to the log of the tempered integral, in nats, for log p(X) on the Poisson scale.
    """

    counts: Counts
    loadings: Any
    components: Any
    joined: bool
    constant: float

    @property
    def of_shares(self) -> bool:
        """Whether the multinomial given the row totals is tempered."""
        return self.loadings.support != "positive"

    def draw(self, states: int, rng: np.random.Generator) -> Factors:
        """Return independent draws from the prior."""
        loadings, _ = separate_scale(self.loadings.draw(rng, (states,)))
        return self.factors(loadings, self.components.draw(rng, (states,)), rng)

    def factors(self, loadings: Array, components: Array, rng: np.random.Generator) -> Factors:
        """Return factors with the given values, (S, n, K) and (S, K, m), without scales."""
        side = Draw(rng, 1)
        problem = Problem(self.counts, self.loadings, self.components, side, side)
        return Factors(problem, loadings, components, rng)

    def log_likelihoods(self, factors: Factors, threads: int | None = None) -> Array:
        """Return the log-likelihood that is tempered of each state, without constants, (S,), in nats."""
        theta, beta = factors.theta, factors.beta
        logs = log_likelihoods(self.counts.matrix, theta, beta, threads)
        if self.of_shares:
            return np.asarray(logs - np.log(theta.sum(axis=2)) @ self.counts.row_totals)
        logs -= np.einsum("sk,sk->s", theta.sum(axis=1), beta.sum(axis=1))
        if self.counts.mask is not None:
            logs += [self.counts.mask.products_by_row(*each).sum() for each in zip(theta, beta, strict=True)]
        return np.asarray(logs)

    def change(self, factors: Factors, power: float, threads: int | None = None) -> Change:
        """Return how the log-likelihoods of some states change with the power, from a given one on."""
        return Straight(self.log_likelihoods(factors, threads))

    def at(self, problem: Problem, factors: Factors, place: int) -> Problem:
        """Return the problem at a state, whose counts may have a dispersion of its own."""
        return problem

    def value(self, factors: Factors, place: int) -> tuple[Any, Array]:
        """Return loadings and components of a state as values of the model's sides; a scale is drawn."""
        loadings, components = factors.value(place)
        if self.joined and isinstance(loadings, ScaledProportions):
            return loadings.proportions * loadings.scale, components
        return loadings, components


def target_of(counts: Counts, priors: Any, rank: int) -> Target:
    """Return the target for counts and proper priors without None."""
    n, m = counts.shape
    loadings: Distribution = priors.loadings.broadcast((n, rank))
    components: Distribution = priors.components.broadcast((rank, m))
    apart = components.support == "simplex" and counts.mask is None
    scaled = _with_scale(loadings) if apart else None
    chosen = loadings if scaled is None else scaled
    constant = -counts.log_factorial
    if chosen.support != "positive":
        constant += float(gammaln(counts.row_totals + 1.0).sum()) + log_p_totals(counts, chosen)
    return Target(counts, chosen, components, scaled is not None, constant)


def _with_scale(loadings: Distribution) -> Distribution | None:
    """Return Gamma loadings with one rate for each row as proportions times an independent scale; None for others."""
    if not isinstance(loadings, Gamma):
        return None
    shape, rate = np.asarray(loadings.shape, np.float64), np.asarray(loadings.rate, np.float64)
    if np.any(rate != rate[:, :1]):
        return None
    return ScaledDirichlet(shape, shape.sum(axis=1, keepdims=True), rate[:, :1])


def log_p_totals(counts: Counts, loadings: Any) -> float:
    """Return log p(N) of the row totals: Poisson(N_i; 1) where they are given, else with the scale integrated out."""
    totals = counts.row_totals
    logs = -gammaln(totals + 1.0)
    if isinstance(loadings, Dirichlet):
        return float(np.sum(logs - 1.0))
    size, r = (len(totals), 1), counts.row_factor
    a, b = (np.broadcast_to(each, size)[:, 0] for each in (loadings.shape, loadings.rate))
    exposure = np.broadcast_to(r, size)[:, 0]
    logs += gammaln(totals + a) - gammaln(a) + a * np.log(b / (b + exposure))
    return float(np.sum(logs + totals * np.log(exposure / (b + exposure))))
