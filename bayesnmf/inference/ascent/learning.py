"""Hyperparameters that maximise the bound: the priors' part of it, given q.

Only E log p(θ) of a prior depends on its parameters, so each is a maximum-likelihood problem with expected sufficient
statistics: for Gammas the rate is in closed form and the shape by Newton's method, for Dirichlets Newton's method
(Minka, *Estimating a Dirichlet distribution*, 2000). Both problems are concave, and the bound never falls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammaln, polygamma

from bayesnmf.inference.ascent.coordinate_ascent import Learn
from bayesnmf.inference.sides import Problem, State
from bayesnmf.priors import Dirichlet, Distribution, Gamma, ScaledDirichlet

Array = NDArray[Any]
MOST_STEPS, TOL = 100, 1e-12
# Shapes and concentrations that run off end here: the terms a log a of the bound, rounded to 1e-16 of themselves, must
# not hide what an update gains. At 1e5, a factor varies by 0.3 % of itself.
LEAST, MOST = 1e-30, 1e5
LEAST_SPREAD, MOST_SPREAD = 1 / (2 * MOST), 1 / LEAST  # log E − E log of Gammas of these shapes
LEAST_RATE, MOST_RATE = 1e-30, 1e20  # what float32 can hold the ratios of
ROUNDING = 1e-14  # a last full step may seem to lower the height by this, relative


def learner(sides: Sequence[str]) -> Learn:
    """Return what replaces the priors of the given sides ("loadings", "components") by the best for a state."""

    def learn(problem: Problem, state: State) -> tuple[Problem, State]:
        for side in sides:
            q: Any = getattr(state, side).conditional
            prior = learned(getattr(problem, f"{side}_prior"), q)
            changed: dict[str, Any] = {f"{side}_prior": prior}
            problem = replace(problem, **changed)
            state = state._replace(**{side: getattr(problem, f"{side}_summary").of(prior, q)})
        return problem, state

    return learn


def learned(prior: Distribution, q: Distribution) -> Distribution:
    """Return the member of the prior's family that maximises E_q log p, its parameters of the same shapes."""
    if isinstance(prior, ScaledDirichlet):
        proportions: Any = learned(prior.proportions, q.proportions)  # type: ignore[union-attr]
        scale: Any = learned(prior.scale, q.scale)  # type: ignore[union-attr]
        return ScaledDirichlet(proportions.concentration, scale.shape, scale.rate)
    if isinstance(prior, Gamma):
        return _gamma(prior, q)  # type: ignore[arg-type]
    return _dirichlet(prior, q)  # type: ignore[arg-type]


def _pooled(values: Array, like: Any) -> Array:
    """Mean over the axes along which a parameter is the same, kept with length 1, in float64."""
    shape = (1,) * (values.ndim - np.ndim(like)) + np.shape(like)
    axes = tuple(axis for axis, length in enumerate(shape) if length == 1)
    return values.mean(axis=axes, keepdims=True, dtype=np.float64)


def _gamma(prior: Gamma, q: Gamma) -> Gamma:
    """Solve log a − ψ(a) = log E − E log for the shape; the rate is a / E, where it is in range.

    Where a limit makes the prior that was given better, that one stays.
    """
    q = Gamma(np.asarray(q.shape, np.float64), np.asarray(q.rate, np.float64))
    mean, expected_log = _pooled(q.mean(), prior.shape), _pooled(q.expected_log(), prior.shape)
    log_mean = np.log(np.maximum(mean, np.finfo(np.float64).tiny))
    spread = np.clip(log_mean - expected_log, LEAST_SPREAD, MOST_SPREAD)
    # Start of Minka, "Estimating a Gamma distribution" (2002), good to a few per cent; steps are in 1 / a.
    root = np.sqrt((spread - 3) ** 2 + 24 * spread)
    shape = np.where(spread < 1, (3 - spread + root) / (12 * spread), 2 / (root - 3 + spread))  # without cancellation
    for _ in range(MOST_STEPS):
        off = np.log(shape) - digamma(shape) - spread
        new = 1 / (1 / shape + off / (shape**2 * (1 / shape - polygamma(1, shape))))
        done = np.all(np.abs(new - shape) <= TOL * shape)
        shape = new
        if done:
            break
    shape = np.clip(shape, LEAST, MOST)
    rate = np.exp(np.clip(np.log(shape) - log_mean, np.log(LEAST_RATE), np.log(MOST_RATE)))
    old_shape, old_rate = (np.asarray(each, np.float64).reshape(shape.shape) for each in (prior.shape, prior.rate))
    worse = _gamma_height(shape, rate, mean, expected_log) < _gamma_height(old_shape, old_rate, mean, expected_log)
    size = np.shape(prior.shape)
    shape, rate = np.where(worse, old_shape, shape), np.where(worse, old_rate, rate)
    return Gamma(shape.reshape(size), rate.reshape(size))


def _gamma_height(shape: Array, rate: Array, mean: Array, expected_log: Array) -> Array:
    """Mean of E_q log Gamma(shape, rate), without what depends on q alone."""
    return shape * (np.log(rate) + expected_log) - gammaln(shape) - rate * mean


def _dirichlet(prior: Dirichlet, q: Dirichlet) -> Dirichlet:
    """Newton's method for each group of rows: for a vector, or one number for all entries."""
    size = q.mean().shape
    if size[1] == 1:  # a simplex of one point: its density is 1 whatever the concentration
        return prior
    q = Dirichlet(np.asarray(q.concentration, np.float64))
    given = np.asarray(prior.concentration, np.float64)
    padded = given.reshape((1,) * (2 - given.ndim) + given.shape)
    means = q.expected_log().mean(axis=0, keepdims=True) if len(padded) == 1 else q.expected_log()
    rows = [
        _newton(mean_log, start) if len(start) == size[1] else _newton_symmetric(mean_log, float(start[0]))
        for mean_log, start in zip(means, padded, strict=True)
    ]
    return Dirichlet(np.array(rows).reshape(given.shape))


def _height(alpha: Array, mean_log: Array) -> float:
    return float(gammaln(alpha.sum()) - gammaln(alpha).sum() + (alpha * mean_log).sum())


def _newton(mean_log: Array, alpha: Array) -> Array:
    """Maximise logΓ(Σα) − Σ logΓ(α) + Σ α E log; its Hessian is diagonal plus rank one."""
    height = _height(alpha, mean_log)
    for _ in range(MOST_STEPS):
        total = alpha.sum()
        gradient = digamma(total) - digamma(alpha) + mean_log
        curvature = -polygamma(1, alpha)
        shared = (gradient / curvature).sum() / (1 / polygamma(1, total) + (1 / curvature).sum())
        move = (gradient - shared) / curvature
        length = 1.0
        while True:
            new = np.minimum(alpha - length * move, MOST)
            if np.all(new >= LEAST) and _height(new, mean_log) >= height - ROUNDING * abs(height):
                break
            length /= 2
            if length < TOL:
                return alpha
        alpha, height = new, _height(new, mean_log)
        if np.all(np.abs(length * move) <= TOL * alpha):
            break
    return alpha


def _newton_symmetric(mean_log: Array, alpha: float) -> Array:
    """Maximise the same over α equal for all entries, by Newton's method in log α."""
    size = len(mean_log)
    height = _height(np.full(size, alpha), mean_log)
    for _ in range(MOST_STEPS):
        gradient = size * (digamma(size * alpha) - digamma(alpha)) + mean_log.sum()
        curvature = size**2 * polygamma(1, size * alpha) - size * polygamma(1, alpha)
        slope, bend = gradient * alpha, curvature * alpha**2 + gradient * alpha
        move = np.clip(-slope / bend if bend < 0 else np.sign(slope), -2.0, 2.0)
        while True:
            new = min(max(alpha * np.exp(move), LEAST), MOST)
            if _height(np.full(size, new), mean_log) >= height - ROUNDING * abs(height):
                break
            move /= 2
            if abs(move) < TOL:
                return np.array([alpha])
        alpha, height = float(new), _height(np.full(size, new), mean_log)
        if abs(move) <= TOL:
            break
    return np.array([alpha])
