"""Learn the hyperparameters that maximise E_q log p, the only term of the ELBO that depends on them.

For each prior this is a maximum-likelihood problem with expected sufficient statistics. The rate of a Gamma has a
closed form; its shape and the concentration of a Dirichlet are found by Newton's method (Minka, *Estimating a
Dirichlet distribution*, 2000). Both problems are concave, and the ELBO never decreases.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import digamma, gammaln, polygamma

from bayesnmf.types import Array

MOST_STEPS, TOL = 100, 1e-12
# Limits of shapes and concentrations that would diverge: the terms a log a of the ELBO, with their relative rounding
# error of 1e-16, must not hide the gain of an update. At 1e5, the relative standard deviation is 0.3 %.
LEAST, MOST = 1e-30, 1e5
LEAST_SPREAD, MOST_SPREAD = 1 / (2 * MOST), 1 / LEAST  # log E − E log of Gammas with these shapes
LEAST_RATE, MOST_RATE = 1e-30, 1e20  # float32 can represent the ratios of these
ROUNDING = 1e-14  # relative decrease of the objective that rounding may show in a last full step


def _shared_mean(values: Array, like: Any) -> Array:
    """Return float64 means over the axes along which the parameter `like` is constant; these axes get length 1."""
    shape = (1,) * (values.ndim - np.ndim(like)) + np.shape(like)
    axes = tuple(axis for axis, length in enumerate(shape) if length == 1)
    return values.mean(axis=axes, keepdims=True, dtype=np.float64)


def learned_gamma(given_shape: Any, given_rate: Any, mean: Array, expected_log: Array) -> tuple[Array, Array]:
    """Return shape and rate of the Gamma prior that maximises E log p, given E[x] and E[log x].

    They solve log a − ψ(a) = log E − E log and rate = a / E, within the limits above. Where the limits would make the
    objective lower than at the given shape and rate, the given ones are returned. Array shapes are those of
    `given_shape`.
    """
    mean, expected_log = _shared_mean(mean, given_shape), _shared_mean(expected_log, given_shape)
    log_mean = np.log(np.maximum(mean, np.finfo(np.float64).tiny))
    spread = np.clip(log_mean - expected_log, LEAST_SPREAD, MOST_SPREAD)
    # Start from Minka, "Estimating a Gamma distribution" (2002), accurate to a few per cent; Newton steps are in 1 / a.
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
    given = given_shape, given_rate
    old_shape, old_rate = (np.asarray(each, np.float64).reshape(shape.shape) for each in given)
    worse = _gamma_height(shape, rate, mean, expected_log) < _gamma_height(old_shape, old_rate, mean, expected_log)
    size = np.shape(given_shape)
    shape, rate = np.where(worse, old_shape, shape), np.where(worse, old_rate, rate)
    return shape.reshape(size), rate.reshape(size)


def _gamma_height(shape: Array, rate: Array, mean: Array, expected_log: Array) -> Array:
    """Return the mean of E_q log Gamma(shape, rate), without terms that depend on q alone."""
    return shape * (np.log(rate) + expected_log) - gammaln(shape) - rate * mean


def learned_concentration(given: Any, expected_log: Array) -> Array:
    """Return the concentration of the Dirichlet prior that maximises E log p, given E[log x] (rows, entries).

    It has the shape of the given concentration: one for all rows or one per row, as a vector or as one number for all
    entries.
    """
    width = expected_log.shape[1]
    if width == 1:  # the simplex is one point, with density 1 for any concentration
        return given
    given = np.asarray(given, np.float64)
    padded = given.reshape((1,) * (2 - given.ndim) + given.shape)
    means = expected_log.mean(axis=0, keepdims=True) if len(padded) == 1 else expected_log
    rows = [
        _newton(mean_log, start) if len(start) == width else _newton_symmetric(mean_log, float(start[0]))
        for mean_log, start in zip(means, padded, strict=True)
    ]
    return np.array(rows).reshape(given.shape)


def _dirichlet_height(alpha: Array, mean_log: Array) -> float:
    """Return logΓ(Σα) − Σ logΓ(α) + Σ α E log."""
    return float(gammaln(alpha.sum()) - gammaln(alpha).sum() + (alpha * mean_log).sum())


def _newton(mean_log: Array, alpha: Array) -> Array:
    """Return the α that maximises `_dirichlet_height`, by Newton's method; the Hessian is diagonal plus rank one."""
    height = _dirichlet_height(alpha, mean_log)
    for _ in range(MOST_STEPS):
        total = alpha.sum()
        gradient = digamma(total) - digamma(alpha) + mean_log
        curvature = -polygamma(1, alpha)
        shared = (gradient / curvature).sum() / (1 / polygamma(1, total) + (1 / curvature).sum())
        move = (gradient - shared) / curvature
        length = 1.0
        while True:
            new = np.minimum(alpha - length * move, MOST)
            if np.all(new >= LEAST) and _dirichlet_height(new, mean_log) >= height - ROUNDING * abs(height):
                break
            length /= 2
            if length < TOL:
                return alpha
        alpha, height = new, _dirichlet_height(new, mean_log)
        if np.all(np.abs(length * move) <= TOL * alpha):
            break
    return alpha


def _newton_symmetric(mean_log: Array, alpha: float) -> Array:
    """Return the α, equal for all entries, that maximises `_dirichlet_height`, by Newton's method in log α."""
    size = len(mean_log)
    height = _dirichlet_height(np.full(size, alpha), mean_log)
    for _ in range(MOST_STEPS):
        gradient = size * (digamma(size * alpha) - digamma(alpha)) + mean_log.sum()
        curvature = size**2 * polygamma(1, size * alpha) - size * polygamma(1, alpha)
        slope, bend = gradient * alpha, curvature * alpha**2 + gradient * alpha
        most = 2.0 if bend < 0 else 1.0
        move = -slope / bend if abs(slope) < -most * bend else most * np.sign(slope)
        while True:
            new = min(max(alpha * np.exp(move), LEAST), MOST)
            if _dirichlet_height(np.full(size, new), mean_log) >= height - ROUNDING * abs(height):
                break
            move /= 2
            if not abs(move) >= TOL:  # as NaN is not, which has no height to reach
                return np.array([alpha])
        alpha, height = float(new), _dirichlet_height(np.full(size, new), mean_log)
        if abs(move) <= TOL:
            break
    return np.array([alpha])
