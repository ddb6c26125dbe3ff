"""Sequential Monte Carlo over powers κ of the likelihood: 0 is the prior, 1 the posterior (mathematics.md section 9).

Particles are independent draws from the prior. At each power of a fixed ladder they are weighted by the change of the
likelihood, resampled if the weights have become too uneven, and moved by one sweep of marginal Gibbs sampling. The
product of the mean weights is an unbiased estimate of the integral: the ladder comes from a pilot run, and no move
depends on other particles. Estimates of independent runs are combined by the log of their mean, never by the mean of
their logs.

A pilot run sets the first ladder. If the logs of the runs' estimates then have a standard deviation σ above 1 nat, all
runs are made again on a ladder with more steps: the variance falls at least in proportion to their number, so that
(σ / AIM)² times as many are enough. At most STAGE times as many are taken at once, since σ is an estimate, and often
that of a few runs that went astray. Each pass has a fixed ladder that does not depend on its own particles, so its
estimates are unbiased. Where the runs disagree because they end in different modes, (σ / AIM)² is beyond the limit, and
no other pass is made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from threading import Event
from typing import Any

import numba
import numpy as np
from scipy.special import logsumexp

from bayesnmf.inference.checkpoints.slots import NOWHERE, Slot, next_slot
from bayesnmf.inference.sampling.marginal_gibbs import Factors
from bayesnmf.inference.side_by_side import side_by_side
from bayesnmf.inference.tempering.target import Change, Target
from bayesnmf.types import Array

Report = Callable[[int, float], None]  # rungs done, and the power

RESAMPLED = 0.5  # share of the particles; they are resampled if the effective number falls below it
BISECTIONS, NEAR = 60, 1e-3  # most halvings of a step, and the relative error of the step that ends them
IN_TWENTY = float(np.log(20))  # an unbiased estimate exceeds 20 times its mean at most once in 20 times
WIDEST_SPREAD = 1.0  # limit for the sd of the log estimates, in nats; beyond it, one run dominates the mean
StageReport = Callable[[str, int, int, float], None]  # label, steps done, steps in all, power
AIM = 0.7  # spread for which a refined ladder is made, in nats: that of 8 runs varies by a quarter of itself
STAGE = 4  # most steps of a refined ladder, as a multiple of those of the one before


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

    checkpointed = "powers", "log_weights", "ancestors", "log_ratio", "factors", "rng"

    def __init__(
        self, target: Target, factors: Factors, power: float, rng: np.random.Generator, threads: int | None
    ) -> None:
        self.target, self.factors, self.rng, self.threads = target, factors, rng, threads
        self.powers = [power]  # that they have been at
        number = len(factors.theta)
        self.log_weights = np.full(number, -np.log(number))
        self.ancestors = np.arange(number)
        self.log_ratio = 0.0  # log of the estimated integral at this power over that at the start

    @property
    def power(self) -> float:
        """The power that they are at."""
        return self.powers[-1]

    def change(self) -> Change:
        """Return how the log-likelihoods of the particles change with the power."""
        return self.target.change(self.factors, self.power, self.threads)

    def move_to(self, power: float, change: Change) -> None:
        """Weight the particles for another power, resample them if necessary, and move them."""
        raised = self.log_weights + change.by(power - self.power)
        total = float(logsumexp(raised))
        self.log_ratio += total
        self.powers.append(power)
        self.log_weights = raised - total
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
    ended = slot.result()
    if ended is not None:
        return np.asarray(ended)
    at = Particles(target, target.draw(options.particles, rng), 0.0, rng, options.threads)
    slot.recall(at)
    while at.power < 1.0:
        if slot.due():
            slot.save(at)
        change = at.change()
        at.move_to(next_power(at.power, change, at.log_weights, options.efficiency), change)
        report(len(at.powers) - 1, at.power)
    ladder = np.array(at.powers)
    slot.end(ladder)
    return ladder


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


def climb_ladder(
    target: Target, ladder: Array, particles: int, rng: np.random.Generator, threads: int | None, report: Report,
    slot: Slot = NOWHERE,
) -> Run:  # fmt: skip
    """Take particles from the prior up a fixed ladder of powers to the posterior."""
    at = Particles(target, target.draw(particles, rng), 0.0, rng, threads)
    begun = slot.recall(at)
    for rung in range(len(at.powers), len(ladder)):
        if slot.due():
            slot.save(at)
        at.move_to(ladder[rung], at.change())
        report(rung, ladder[rung])
    if begun != "ended":
        slot.end(at)
    return Run(at.factors, at.log_weights, target.constant + at.log_ratio, at.ancestors)


def descend_ladder(
    target: Target, ladder: Array, loadings: Array, components: Array, particles: int, rng: np.random.Generator,
    report: Report,
) -> float:  # fmt: skip
    """Return the log of an estimate of p(X) whose reciprocal is unbiased: it is too high on average.

    The particles need not be independent at the start: the estimate is linear in their distribution there, so it is
    enough that each of them is a draw from the posterior.

    Parameters
    ----------
    loadings, components : ndarray (n, K) and (K, m)
        Loadings (proportions if there is a scale) and components that were drawn together with the counts, from the
        priors: an exact draw from the posterior, with which all particles start.
    """
    loadings, components = (np.repeat(each[None], particles, axis=0) for each in (loadings, components))
    at = Particles(target, target.factors(loadings, components, rng), 1.0, rng, None)
    at.factors.sweep(None)
    for rung, power in enumerate(ladder[-2::-1], start=1):
        at.move_to(power, at.change())
        report(rung, power)
    return target.constant - at.log_ratio


def log_of_mean(logs: Array) -> tuple[float, float]:
    """Return the log of the mean of exp(logs), and its standard error to first order, NaN for a single one."""
    ratios = np.exp(logs - logs.max())
    error = ratios.std(ddof=1) / ratios.mean() / np.sqrt(len(logs)) if len(logs) > 1 else np.nan
    return float(logsumexp(logs) - np.log(len(logs))), float(error)


def agree(logs: Array) -> bool:
    """Return whether runs determine the error of their mean: whether their logs have an sd of at most 1 nat."""
    return spread_of(logs) <= WIDEST_SPREAD


def spread_of(logs: Array) -> float:
    """Return the standard deviation of log estimates, in nats; NaN for a single one."""
    return float(np.std(logs, ddof=1)) if len(logs) > 1 else np.nan


@dataclass(eq=False)
class TemperedRuns:
    """Independent runs up one ladder, which can be made again on a finer one.

    Parameters
    ----------
    target : Target
    options : SMC
    seed : int or None
        Seed of the pilot run and of all others. The results do not depend on the number of threads.
    report : callable
        Function of a label, steps done, steps in all, and the power reached. An exception that it raises ends the runs.

    Attributes
    ----------
    ladder : ndarray
        Powers, from 0 to 1.
    runs : list of Run
        Runs up this ladder that have finished.
    refined : int
        Number of steps, as a multiple of those of the first ladder.
    interrupted : bool
        Whether Ctrl-C ended other runs.

    Raises
    ------
    KeyboardInterrupt
        Ctrl-C before the first run has finished.
    """

    target: Target
    options: Any
    seed: int | None
    report: StageReport
    ladder: Array = field(init=False)
    runs: list[Run] = field(init=False)
    refined: int = 1
    interrupted: bool = False

    def __post_init__(self) -> None:
        self._seeds = np.random.SeedSequence(self.seed)
        pilot, *streams = self._seeds.spawn(self.options.runs + 1)
        report = partial(_report_pilot, self.report, [0.0])
        self.ladder = pilot_ladder(self.target, self.options, np.random.default_rng(pilot), report)
        self.runs = self._climb(self.ladder, streams)
        self.interrupted = len(self.runs) < len(streams)
        if not self.runs:
            raise KeyboardInterrupt

    @property
    def logs(self) -> Array:
        """Log estimates of p(X) of the runs, in nats."""
        return np.array([run.log_estimate for run in self.runs])

    def refine(self) -> bool:
        """Make the runs again on a finer ladder; return False if they agree, or need one beyond the limit.

        After Ctrl-C, the finer runs replace the others only if all of them have finished.
        """
        spread = spread_of(self.logs)
        if self.interrupted or not spread > WIDEST_SPREAD:
            return False
        needed = np.ceil((spread / AIM) ** 2)
        if self.refined * needed > self.options.refinement:
            return False
        factor = int(min(needed, STAGE))
        ladder = finer_ladder(self.ladder, factor)
        runs = self._climb(ladder, self._seeds.spawn(self.options.runs))
        self.interrupted = len(runs) < self.options.runs
        if not self.interrupted:
            self.ladder, self.runs, self.refined = ladder, runs, self.refined * factor
        return not self.interrupted

    def _climb(self, ladder: Array, seeds: list[np.random.SeedSequence]) -> list[Run]:
        """Return the runs that finished; Ctrl-C ends the others."""
        number, threads = len(seeds), self.options.threads
        blocks = threads if number == 1 else 1
        stop, done = Event(), [0] * number
        slots = [next_slot("run", self.target.counts) for _ in seeds]

        def run(place: int) -> Run | None:
            def show(rung: int, power: float) -> None:
                if stop.is_set():
                    raise KeyboardInterrupt
                done[place] = rung
                self.report("runs", sum(done), number * (len(ladder) - 1), power)

            try:
                rng, particles = np.random.default_rng(seeds[place]), self.options.particles
                return climb_ladder(self.target, ladder, particles, rng, blocks, show, slots[place])
            except KeyboardInterrupt:
                stop.set()
                return None

        at_once = min(threads or numba.get_num_threads(), number)
        found = side_by_side([partial(run, place) for place in range(number)], at_once, stop)
        return [each for each in found if each is not None]


def tempered_runs(target: Target, options: Any, seed: int | None, report: StageReport) -> TemperedRuns:
    """Make the runs, and make them again on finer ladders while they disagree and the limit allows it."""
    found = TemperedRuns(target, options, seed, report)
    while found.refine():
        pass
    return found


def _report_pilot(report: StageReport, before: list[float], rung: int, power: float) -> None:
    """Report a rung of the pilot run; the number of all is a guess from the last step."""
    left = np.ceil((1.0 - power) / max(power - before[0], 1e-3))
    before[0] = power
    report("pilot", rung, rung + int(left), power)
