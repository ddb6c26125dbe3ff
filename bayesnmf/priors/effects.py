"""Effects of covariates that maximise E_q log p: Newton's method for Gammas, Fisher scoring for Dirichlets.

Rows have linear predictors η_ik = x_i'β_k. Entries are ``u_ik ~ Gamma(a_k, r_k exp(−η_ik))``, whose means are
proportional to exp(η_ik), or rows are Dirichlet with the concentrations c_k exp(η_ik) (Mimno & McCallum, *Topic models
conditioned on arbitrary features with Dirichlet-multinomial regression*, 2008). Every effect has a normal prior about 0
with the precision of its term. Steps are halved until the sum does not fall.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import digamma, gammaln, polygamma

from bayesnmf.types import Array

MOST_STEPS, MOST_HALVINGS, TOL = 50, 40, 1e-10
LARGEST = 40.0  # of a linear predictor: what is beyond is no size of loadings, and exp of it would overflow
LEAST_SHAPE, MOST_SHAPE = 1e-6, 1e5
SHAPE_SD = 1.0  # of the logarithm of a shape, about that of the given one


def predictors(design: Array, effects: Array) -> Array:
    """Return η, (n, K), within ±`LARGEST`."""
    return np.clip(design @ effects, -LARGEST, LARGEST)


def log_prior_of_effects(effects: Array, precision: Array) -> float:
    """Return Σ log Normal(β; 0, 1 / precision) of effects (p, K), with precisions (p, 1)."""
    constant = np.log(precision / (2 * np.pi)) / 2
    return float((constant - precision * effects**2 / 2).sum())


def log_prior_of_shapes(shape: Array, given: Array) -> float:
    """Return Σ log Normal(log a; log of the given shape, `SHAPE_SD`²), a density in log a."""
    z = np.log(shape / given) / SHAPE_SD
    return float((-(z**2) / 2 - np.log(SHAPE_SD * np.sqrt(2 * np.pi))).sum())


def gamma_effects(start: Array, design: Array, weights: Array, shape: Array, precision: Array) -> Array:
    """Return the effects that maximise Σ_i −a_k η_ik − w_ik exp(−η_ik) + log p(β_k), which is concave.

    Parameters
    ----------
    start : ndarray (p, K)
    design : ndarray (n, p)
    weights : ndarray (n, K)
        Rate r_k times E u_ik.
    shape : ndarray (1, K)
    precision : ndarray (p, 1)
    """

    def height(effects: Array) -> Array:
        eta = predictors(design, effects)
        return (-shape * eta - weights * np.exp(-eta)).sum(axis=0) - (precision * effects**2).sum(axis=0) / 2

    def step(effects: Array) -> Array:
        left = weights * np.exp(-predictors(design, effects))
        slope = design.T @ (left - shape) - precision * effects
        bend = np.einsum("ip,ik,iq->kpq", design, left, design, optimize=True) + np.diagflat(precision)
        return np.linalg.solve(bend, slope.T[:, :, None])[:, :, 0].T

    return climbed(start, height, step)


def dirichlet_effects(start: Array, design: Array, expected_log: Array, base: Array, precision: Array) -> Array:
    """Return effects at a maximum of Σ_i log Dirichlet(x_i; c exp(η_i)) + log p(β), given E log x, (n, K).

    The steps solve with the Fisher information, of all components together, which is positive definite.
    """
    p, rank = start.shape

    def height(effects: Array) -> Array:
        alpha = base * np.exp(predictors(design, effects))
        terms = gammaln(alpha.sum(axis=1)) + (alpha * expected_log - gammaln(alpha)).sum(axis=1)
        return np.atleast_1d(terms.sum() - (precision * effects**2).sum() / 2)

    def step(effects: Array) -> Array:
        alpha = base * np.exp(predictors(design, effects))
        total = alpha.sum(axis=1, keepdims=True)
        slope = design.T @ (alpha * (digamma(total) - digamma(alpha) + expected_log)) - precision * effects
        own = np.einsum("ip,ik,iq->kpq", design, alpha**2 * polygamma(1, alpha), design, optimize=True)
        pulled = (design[:, None, :] * (alpha * np.sqrt(polygamma(1, total)))[:, :, None]).reshape(len(design), -1)
        bend = -(pulled.T @ pulled)
        for k in range(rank):
            at = slice(k * p, (k + 1) * p)
            bend[at, at] += own[k] + np.diagflat(precision)
        return np.linalg.solve(bend, slope.T.ravel()).reshape(rank, p).T

    return climbed(start, height, step)


def climbed(start: Array, height: Callable[[Array], Array], step: Callable[[Array], Array]) -> Array:
    """Return where steps lead from `start`, each halved until no height falls; there is one height, or one a column."""
    here, now = np.asarray(start, np.float64), height(start)
    for _ in range(MOST_STEPS):
        move, length = step(here), np.ones_like(now)
        for _ in range(MOST_HALVINGS):
            there = height(here + length * move)
            falls = ~(there >= now)
            if not falls.any():
                break
            length = np.where(falls, length / 2, length)
        else:
            length, there = np.where(falls, 0.0, length), np.where(falls, now, there)
        here, now = here + length * move, there
        if np.abs(length * move).max() <= TOL * (1 + np.abs(here).max()):
            break
    return here


def gamma_shapes(shape: Array, given: Array, eta: Array, ratio: Array, expected_log: Array) -> Array:
    """Return the shapes a_k, (1, K), that maximise E log p(u | a) + log p(a), by Newton's method in log a.

    Parameters
    ----------
    shape, given : ndarray (1, K)
        Shapes to start from, and those that the prior is about.
    eta : ndarray (n, K)
        Logarithms of the means μ.
    ratio, expected_log : ndarray (n, K)
        E u / μ, and E log u.
    """
    rows = len(eta)
    rest = (expected_log - eta - ratio).sum(axis=0, keepdims=True)

    def height(a: Array) -> Array:
        return rows * (a * np.log(a) - gammaln(a)) + a * rest - (np.log(a / given) / SHAPE_SD) ** 2 / 2

    def step(log_a: Array) -> Array:
        a = np.exp(log_a)
        slope = a * (rows * (np.log(a) + 1 - digamma(a)) + rest)
        bend = slope + a * rows * (1 - a * polygamma(1, a))
        slope, bend = slope - (log_a - np.log(given)) / SHAPE_SD**2, bend - 1 / SHAPE_SD**2
        return np.where(bend < 0, np.clip(-slope / np.minimum(bend, -1e-12), -1, 1), np.sign(slope))

    found = climbed(np.log(shape), lambda log_a: height(np.exp(log_a))[0], step)
    return np.asarray(np.exp(np.clip(found, np.log(LEAST_SHAPE), np.log(MOST_SHAPE))))
