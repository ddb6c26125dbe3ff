"""Sequential Monte Carlo over powers κ of the likelihood: 0 is the prior, 1 the posterior (mathematics.md section 9).

Particles are independent draws from the prior. At each power of a fixed ladder they are weighted by the change of the
likelihood, resampled if the weights have become too uneven, and moved by one sweep of marginal Gibbs sampling. The
product of the mean weights is an unbiased estimate of the integral: the ladder comes from a pilot run, and no move
depends on other particles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from bayesnmf.inference.ascent.course import NOWHERE, Slot, next_slot
from bayesnmf.inference.sampling.marginal_gibbs import Factors
from bayesnmf.inference.tempering.target import Change, Target
from bayesnmf.types import Array

Report = Callable[[int, float], None]  # rungs done, and the power

RESAMPLED = 0.5  # share of the particles; they are resampled if the effective number falls below it
BISECTIONS, NEAR = 60, 1e-3  # most halvings of a step, and the relative error of the step that ends them


@dataclass
class Run:
    """Particles at power 1, and the estimate of the integral.

    Attributes
    ----------
    factors : Factors
        States of the particles.
    log_weights : ndarray (S,)
        Logarithms of their normalised weights.
    log_estimate : float
        Logarithm of the estimate of p(X), in nats.
    ancestors : ndarray (S,)
        Draw from the prior that each particle descends from.
    """

    factors: Factors
    log_weights: Array
    log_estimate: float
    ancestors: Array


class Particles:
    """Weighted particles on their way from the prior to the posterior, or back.

    Parameters
    ----------
    factors : Factors
        States that follow the target at the power given.
    """

    def __init__(
        self, target: Target, factors: Factors, power: float, rng: np.random.Generator, threads: int | None
    ) -> None:
        self.target, self.factors, self.power, self.rng, self.threads = target, factors, power, rng, threads
        number = len(factors.theta)
        self.log_weights = np.full(number, -np.log(number))
        self.ancestors = np.arange(number)
        self.log_ratio = 0.0  # log of the estimated integral at this power over that at the start

    @property
    def memory(self) -> tuple[Any, ...]:
        """What a checkpoint keeps."""
        own = self.power, self.log_weights, self.ancestors, self.log_ratio
        return own, self.factors.memory, self.rng.bit_generator.state

    @memory.setter
    def memory(self, kept: tuple[Any, ...]) -> None:
        own, self.factors.memory, self.rng.bit_generator.state = kept
        self.power, self.log_weights, self.ancestors, self.log_ratio = own

    def change(self) -> Change:
        """Return how the log-likelihoods of the particles change with the power."""
        return self.target.change(self.factors, self.power, self.threads)

    def move_to(self, power: float, change: Change) -> None:
        """Weight the particles for another power, resample them if necessary, and move them."""
        raised = self.log_weights + change.by(power - self.power)
        total = float(logsumexp(raised))
        self.log_ratio += total
        self.log_weights, self.power = raised - total, power
        if np.exp(-logsumexp(2 * self.log_weights)) < RESAMPLED * len(raised):
            chosen = systematic(np.exp(self.log_weights), len(raised), self.rng)
            self.factors.take(chosen)
            self.ancestors = self.ancestors[chosen]
            self.log_weights = np.full(len(raised), -np.log(len(raised)))
        self.factors.raise_to(power)
        self.factors.sweep(self.threads)


def systematic(weights: Array, number: int, rng: np.random.Generator) -> Array:
    """Return places drawn with probabilities proportional to weights, in order, each about number × share times."""
    edges = np.cumsum(weights)
    points = (rng.random() + np.arange(number)) / number * edges[-1]
    return np.minimum(np.searchsorted(edges, points, side="right"), len(weights) - 1)


def pilot_ladder(target: Target, options: Any, rng: np.random.Generator, report: Report) -> Array:
    """Return powers from 0 to 1 at which the conditional effective share of the particles is `options.efficiency`."""
    slot = next_slot("pilot", target.counts)
    ended, begun = slot.result(), slot.snapshot()
    if ended is not None:
        return np.asarray(ended)
    at, ladder = Particles(target, target.draw(options.particles, rng), 0.0, rng, options.threads), [0.0]
    if begun is not None:
        at.memory, ladder = begun
    while at.power < 1.0:
        if slot.due():
            slot.save((at.memory, ladder))
        change = at.change()
        at.move_to(next_power(at.power, change, at.log_weights, options.efficiency), change)
        ladder.append(at.power)
        report(len(ladder) - 1, at.power)
    slot.end(np.array(ladder))
    return np.array(ladder)


def next_power(power: float, change: Change, log_weights: Array, efficiency: float) -> float:
    """Return the next power at which the conditional effective share of the particles is `efficiency`, at most 1."""
    weights = np.exp(log_weights)

    def share(step: float) -> float:
        ratios = np.exp(change.spread(step))
        raised = weights * ratios
        return float(raised.sum() ** 2 / (raised @ ratios))

    low, high = 0.0, 1.0 - power
    if share(high) >= efficiency:
        return 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if share(middle) >= efficiency else (low, middle)
        if high - low < NEAR * low:
            break
    return max(power + low, np.nextafter(power, 1.0))


def finer_ladder(ladder: Array, factor: int) -> Array:
    """Return a ladder with each step divided into as many equal ones."""
    rungs = np.arange(len(ladder))
    return np.asarray(np.interp(np.linspace(0, len(ladder) - 1, factor * (len(ladder) - 1) + 1), rungs, ladder))


class Way(NamedTuple):
    """A fixed ladder of powers, the number of particles that go up, and their place in a checkpoint."""

    ladder: Array
    particles: int
    slot: Slot = NOWHERE


def climb_ladder(target: Target, way: Way, rng: np.random.Generator, threads: int | None, report: Report) -> Run:
    """Take particles from the prior up a fixed ladder to the posterior."""
    at = Particles(target, target.draw(way.particles, rng), 0.0, rng, threads)
    first, slot = 1, way.slot
    ended = slot.result()
    begun = slot.snapshot() if ended is None else ended
    if begun is not None:
        at.memory, first = begun
    for rung in range(first, len(way.ladder)):
        if slot.due():
            slot.save((at.memory, rung))
        at.move_to(way.ladder[rung], at.change())
        report(rung, way.ladder[rung])
    if ended is None:
        slot.end((at.memory, len(way.ladder)))
    return Run(at.factors, at.log_weights, target.constant + at.log_ratio, at.ancestors)


def descend_ladder(
    target: Target, ladder: Array, truth: tuple[Array, Array], particles: int, rng: np.random.Generator, report: Report
) -> float:
    """Return the log of an estimate of p(X) whose reciprocal is unbiased: it is too high on average.

    The particles need not be independent at the start: the estimate is linear in their distribution there, so it is
    enough that each of them is a draw from the posterior.

    Parameters
    ----------
    truth : tuple of ndarray (n, K) and (K, m)
        Loadings (proportions if there is a scale) and components that were drawn together with the counts, from the
        priors: an exact draw from the posterior, with which all particles start.
    """
    loadings, components = (np.repeat(each[None], particles, axis=0) for each in truth)
    at = Particles(target, target.factors(loadings, components, rng), 1.0, rng, None)
    at.factors.sweep(None)
    for rung, power in enumerate(ladder[-2::-1], start=1):
        at.move_to(power, at.change())
        report(rung, power)
    return target.constant - at.log_ratio
