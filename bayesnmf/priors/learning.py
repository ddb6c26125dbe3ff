"""Hyperparameters that maximise E_q log p, as arrays: the priors' part of the bound, given q.

Only E log p(θ) of a prior depends on its parameters, so each is a maximum-likelihood problem with expected sufficient
statistics: for Gammas the rate is in closed form and the shape by Newton's method, for Dirichlets Newton's method
(Minka, *Estimating a Dirichlet distribution*, 2000). Both problems are concave, and the bound never falls.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammaln, polygamma

Array = NDArray[Any]
MOST_STEPS, TOL = 100, 1e-12
# Shapes and concentrations that run off end here: the terms a log a of the bound, rounded to 1e-16 of themselves, must
# not hide what an update gains. At 1e5, a factor varies by 0.3 % of itself.
LEAST, MOST = 1e-30, 1e5
LEAST_SPREAD, MOST_SPREAD = 1 / (2 * MOST), 1 / LEAST  # log E − E log of Gammas of these shapes
LEAST_RATE, MOST_RATE = 1e-30, 1e20  # what float32 can hold the ratios of
ROUNDING = 1e-14  # a last full step may seem to lower the height by this, relative


def _pooled(values: Array, like: Any) -> Array:
    """Mean over the axes along which a parameter is the same, kept with length 1, in float64."""
    shape = (1,) * (values.ndim - np.ndim(like)) + np.shape(like)
    axes = tuple(axis for axis, length in enumerate(shape) if length == 1)
    return values.mean(axis=axes, keepdims=True, dtype=np.float64)


def learned_gamma(given: tuple[Any, Any], mean: Array, expected_log: Array) -> tuple[Array, Array]:
    """Return shape and rate of the Gamma prior that is best for given E[x] and E[log x], of the shapes of the given.

    They solve log a − ψ(a) = log E − E log and rate = a / E, where these are in range. Where a limit makes the given
    shape and rate better, these stay.
    """
    mean, expected_log = _pooled(mean, given[0]), _pooled(expected_log, given[0])
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
    old_shape, old_rate = (np.asarray(each, np.float64).reshape(shape.shape) for each in given)
    worse = _gamma_height(shape, rate, mean, expected_log) < _gamma_height(old_shape, old_rate, mean, expected_log)
    size = np.shape(given[0])
    shape, rate = np.where(worse, old_shape, shape), np.where(worse, old_rate, rate)
    return shape.reshape(size), rate.reshape(size)


def _gamma_height(shape: Array, rate: Array, mean: Array, expected_log: Array) -> Array:
    """Mean of E_q log Gamma(shape, rate), without what depends on q alone."""
    return shape * (np.log(rate) + expected_log) - gammaln(shape) - rate * mean


def learned_concentration(given: Any, expected_log: Array) -> Array:
    """Return the concentration of the Dirichlet prior that is best for given E[log x] (rows, entries).

    Each group of rows has its own, a vector or one number for all entries, as the given concentration has.
    """
    width = expected_log.shape[1]
    if width == 1:  # a simplex of one point: its density is 1 whatever the concentration
        return given
    given = np.asarray(given, np.float64)
    padded = given.reshape((1,) * (2 - given.ndim) + given.shape)
    means = expected_log.mean(axis=0, keepdims=True) if len(padded) == 1 else expected_log
    rows = [
        _newton(mean_log, start) if len(start) == width else _newton_symmetric(mean_log, float(start[0]))
        for mean_log, start in zip(means, padded, strict=True)
    ]
    return np.array(rows).reshape(given.shape)


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
