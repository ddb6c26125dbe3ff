"""Draw the effects of covariates on loadings, and the shapes of Gammas, given the loadings, between sweeps.

Each is drawn by slice sampling (Neal 2003): with stepping out and shrinking, which leave its density as it is. Effects
move along directions in which the columns of the design are uncorrelated, those of all components of Gammas at once.
Where both sides have Gamma priors, the counts say nothing about the scale of a component; then the scale moves together
with the intercept: u_k ← e^−v u_k, β_0k ← β_0k − v, components_k ← e^v components_k, under which the density of
loadings given effects stays the same, so that v has the log density v Σ_j c − e^v Σ_j d x_j + log p(β_0k − v) of the
components' prior Gamma(c, d) and the intercept's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.special import gammaln

from bayesnmf.inference.problem import Problem
from bayesnmf.inference.sampling.scales import terms_of
from bayesnmf.priors.gamma import Gamma
from bayesnmf.priors.log_linear import EFFECTS, LARGEST, SHAPE_SD, SHAPES, LogLinear, predictors
from bayesnmf.priors.pair import free_components
from bayesnmf.types import Array

MOST_STEPS = 50  # by which a slice is widened: beyond, it is cut, which leaves the density as it is, too


def slice_draws(
    log_density: Callable[[Array], Array], size: int, width: Array | float, rng: np.random.Generator
) -> Array:
    """Return draws of `size` independent moves from 0, by the log densities of all moves at once.

    Parameters
    ----------
    log_density : callable
        Function of moves (size,) that returns their log densities, (size,).
    size : int
    width : ndarray (size,) or float
        Widths of steps, which may not depend on where the moves start from.
    rng : Generator
    """
    level = log_density(np.zeros(size)) - rng.exponential(size=size)
    width = np.broadcast_to(width, (size,))
    low = -width * rng.random(size)
    high, share = low + width, rng.random(size)
    steps_down = np.floor(MOST_STEPS * share)
    steps_up = MOST_STEPS - 1 - steps_down
    for end, sign, left in ((low, -1.0, steps_down), (high, 1.0, steps_up)):
        while True:
            out = (log_density(end) > level) & (left > 0)
            if not out.any():
                break
            end += np.where(out, sign * width, 0.0)
            left -= out
    found, open_ = np.zeros(size), np.ones(size, bool)
    while open_.any():
        found = np.where(open_, low + (high - low) * rng.random(size), found)
        open_ &= ~(log_density(found) > level)
        low, high = np.where(open_ & (found < 0), found, low), np.where(open_ & (found >= 0), found, high)
        done = open_ & (high - low <= 1e-12 * width)  # where rounding alone keeps a move from being accepted
        found, open_ = np.where(done, 0.0, found), open_ & ~done
    return found


class EffectDraws:
    """Draws of the effects of a prior of loadings, and of shapes.

    Parameters
    ----------
    prior : LogLinear
        Prior with the current effects.
    """

    def __init__(self, prior: LogLinear) -> None:
        self.prior = prior
        factor = np.linalg.qr(prior.design, mode="r")
        self.directions = np.linalg.solve(factor, np.eye(len(factor)))  # columns d with |X d| = 1
        self.begun = False

    @property
    def memory(self) -> Any:
        """What a checkpoint keeps."""
        return self.prior.effects, np.asarray(self.prior.plain.parameters[self.prior.counted]), self.begun

    @memory.setter
    def memory(self, kept: Any) -> None:
        effects, shape, self.begun = kept
        self.prior = self.prior.with_effects(effects, shape)

    @property
    def drawn(self) -> dict[str, Array]:
        """The current effects (p, K), and shapes (K,) of Gammas."""
        prior = self.prior
        if not isinstance(prior.plain, Gamma):
            return {EFFECTS: prior.effects}
        return {EFFECTS: prior.effects, SHAPES: np.broadcast_to(prior.plain.shape, prior.centre.shape)[0].copy()}

    def draw(self, loadings: Array, rng: np.random.Generator) -> LogLinear:
        """Draw effects and shapes given the loadings (n, K), without their scale; return the prior with them."""
        statistics = self.prior.statistics_of_value(np.asarray(loadings, np.float64))
        if not self.begun:
            self.prior, self.begun = self.prior.learned_from(statistics), True
        draw = self._draw_gamma if isinstance(self.prior.plain, Gamma) else self._draw_dirichlet
        self.prior = draw(statistics, rng)
        return self.prior

    def moved(self, v: Array) -> LogLinear:
        """Return the prior with intercepts moved by −v."""
        effects = self.prior.effects.copy()
        effects[0] -= v
        self.prior = self.prior.with_effects(effects)
        return self.prior

    def _draw_gamma(self, statistics: list[Array], rng: np.random.Generator) -> LogLinear:
        prior, (value, logarithm) = self.prior, statistics
        plain: Any = prior.plain
        shape = np.broadcast_to(np.asarray(plain.shape, np.float64), prior.centre.shape)
        effects, design, ratio = prior.effects, prior.design, np.asarray(plain.rate) / shape
        for direction, x in zip(self.directions.T, (design @ self.directions).T, strict=True):
            left = shape * ratio * value * np.exp(-predictors(design, effects))
            weighted = prior.precision[:, 0] * direction
            terms = left, x[:, None], shape[0] * x.sum() + weighted @ effects, weighted @ direction
            move = slice_draws(partial(_of_gamma_effects, terms), effects.shape[1], 2 * shape[0] ** -0.5, rng)
            effects = effects + direction[:, None] * move
        log_mean = predictors(design, effects) - np.log(ratio)
        rest = (logarithm - log_mean - value * np.exp(-log_mean)).sum(axis=0)
        given = partial(_of_shapes, (shape[0], prior.centre[0], len(value), rest))
        move = slice_draws(given, effects.shape[1], 4 * len(value) ** -0.5, rng)
        return prior.with_effects(effects, shape * np.exp(move))

    def _draw_dirichlet(self, statistics: list[Array], rng: np.random.Generator) -> LogLinear:
        prior, (logarithm,) = self.prior, statistics
        precision, effects = prior.precision[:, 0], prior.effects.copy()
        alpha = np.asarray(prior.given.concentration).copy()
        along = (prior.design @ self.directions).T
        for k in range(effects.shape[1]):
            others = alpha.sum(axis=1) - alpha[:, k]
            for direction, x in zip(self.directions.T, along, strict=True):
                weighted = precision * direction
                terms = alpha[:, k].copy(), others, logarithm[:, k], x, weighted @ effects[:, k], weighted @ direction
                move = slice_draws(partial(_of_dirichlet_effect, terms), 1, 2.0, rng)
                effects[:, k] += direction * move
                alpha[:, k] *= np.exp(x * move)
        return prior.with_effects(effects)


def _of_gamma_effects(terms: Any, move: Array) -> Array:
    """Return log densities of moves of the effects of all components along a direction, without a constant."""
    left, x, pull, curve = terms
    times = np.exp(np.clip(-x * move, -LARGEST, LARGEST))
    return np.asarray(-(left * times).sum(axis=0) - move * pull - curve * move**2 / 2)


def _of_shapes(terms: Any, move: Array) -> Array:
    """Return log densities of moves of the logarithms of shapes, without a constant."""
    shape, centre, rows, rest = terms
    a = shape * np.exp(move)
    return np.asarray(rows * (a * np.log(a) - gammaln(a)) + a * rest - (np.log(a / centre) / SHAPE_SD) ** 2 / 2)


def _of_dirichlet_effect(terms: Any, move: Array) -> Array:
    """Return the log density of a move of the effects on one component along a direction, without a constant."""
    alpha, others, logarithm, x, pull, curve = terms
    a = alpha * np.exp(np.clip(x * move, -LARGEST, LARGEST))
    found = (gammaln(others + a) - gammaln(a) + a * logarithm).sum() - move * pull - curve * move**2 / 2
    return np.atleast_1d(found)


def draw_scale_moves(problem: Problem, components: Array, rng: np.random.Generator) -> Array | None:
    """Return logarithms v of factors of components, (K,), that move with intercepts; None without scales to move."""
    prior: Any = problem.loadings_prior
    other = problem.components_prior
    if prior.support != "positive" or other.support != "positive" or problem.fixed_components:
        return None
    free, v = free_components(other, len(components)), np.zeros(len(components))
    if not len(free):
        return None
    c, d = terms_of(other.drawn(components, rng))
    value = components[free]
    power, sums = np.broadcast_to(c, value.shape).sum(axis=1), (d * value).sum(axis=1)
    intercept, precision = prior.effects[0, free], prior.precision[0, 0]

    def log_density(move: Array) -> Array:
        return np.asarray(power * move - sums * np.exp(move) - precision * (intercept - move) ** 2 / 2)

    v[free] = slice_draws(log_density, len(free), 2 / np.sqrt(power + precision), rng)
    return v
