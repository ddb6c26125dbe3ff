"""Naive dense reference for every closed-form routine: explicit S[i, k, j] arrays, no attempt at speed.

``python tests/golden/reference.py`` regenerates ``closed_forms.json`` from its own inputs, prints the largest
relative difference of every entry and exits 1 where one exceeds 1e-9; ``--write`` adds the results that the file
lacks, and leaves those it has as they are, to the bit.

X is (n, m) counts, loadings theta (n, K), components beta (K, m); Gamma(a, b) means shape a, rate b.
Sources: [GP] Geiger & Park; [C] Carbonetto et al.; [P] Paisley, lecture 12; [K] Kurutmaz et al.
"""

import argparse
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, root
from scipy.special import digamma, gammaln, logsumexp, xlogy

type Array = NDArray[np.float64]
type Number = float | Array
type Fit = dict[str, Any]

FILE = Path(__file__).with_name("closed_forms.json")
TOLERANCE, STEPS = 1e-9, (1, 25)
TAU, MAP_SHAPE, MAP_RATE = 0.7, 1.5, 2.0  # lasso penalty; Gamma prior of map_gamma
GAMMAS = (0.3, 0.1, 0.4, 1.0)  # a, b of the loadings, c, d of the components
SCALE = (5.0, 1.5)  # a, b of the Dirichlet-Gamma scales
MAP_GAMMAS = (1.2, 0.3, 1.5, 2.0)  # a, b of the loadings, c, d of the components, for the MAP of both
SWEEPS, FLOOR = 4, 1e-15  # updates of a side in a row; least parameter of coordinate descent
SYMMETRIC = (0.5, 0.3)  # alpha, eta, where learning symmetric Dirichlets starts
WEIGHT, GROWTH, CUT = 0.5, 1.1, 0.5  # of extrapolation: first weight, its factors before a step and after a rejection
EVIDENCE_PRIOR = (0.3, 0.4, *SCALE)  # alpha, eta, a, b


def allocations(X: Array, U: Array, V: Array) -> Array:
    """E[S_ikj] = X_ij U_ik V_kj / (UV)_ij, and 0 where X_ij = 0 ([P] 16-17, [GP] D.1, [K] 5)."""
    products = U[:, :, None] * V[None, :, :]
    used = X[:, None, :] > 0
    rate = np.where(used, products.sum(axis=1, keepdims=True), 1.0)
    return np.where(used, X[:, None, :] * products / rate, 0.0)


def log_allocations(X: Array, log_U: Array, log_V: Array) -> tuple[Array, float]:
    """E[S] and sum X log(UV) from log U and log V, so that no U or V can underflow."""
    log_products = np.where(X[:, None, :] > 0, log_U[:, :, None] + log_V[None, :, :], 0.0)
    log_rate = logsumexp(log_products, axis=1)
    return X[:, None, :] * np.exp(log_products - log_rate[:, None, :]), float(np.sum(X * log_rate))


def safe_log(x: Array) -> Array:
    """Log x with log 0 = -inf and no warning."""
    return np.log(x, where=x > 0, out=np.full_like(x, -np.inf))


def divide(top: Array, bottom: Number, previous: Array) -> Array:
    """Top / bottom, the previous value where bottom = 0 (there top = 0 too)."""
    return np.divide(top, bottom, where=np.greater(bottom, 0), out=previous.copy())


def normalise(totals: Array, previous: Array) -> Array:
    """Rows of totals on the simplex; a row of zeros keeps its previous value."""
    return divide(totals, totals.sum(axis=1, keepdims=True), previous)


def poisson_loglik(X: Array, rate: Array) -> float:
    """Sum of X log rate - rate - log X!, with 0 log 0 = 0."""
    return float(np.sum(xlogy(X, rate) - rate - gammaln(X + 1)))


def kl_divergence(X: Array, rate: Array) -> float:
    """KL(X || rate) = sum of X log(X / rate) - X + rate ([GP] sec. 2)."""
    return float(np.sum(xlogy(X, X) - xlogy(X, rate) - X + rate))


def log_negative_binomial(N: Array, a: float, b: float) -> Array:
    """Log NB(N; shape a, rate b), the marginal of Poisson(s) under s ~ Gamma(a, b)."""
    return gammaln(N + a) - gammaln(a) - gammaln(N + 1) + a * np.log(b / (1 + b)) - N * np.log(1 + b)


def dirichlet_expected_log(concentration: Array) -> Array:
    """E log theta_ik = psi(gamma_ik) - psi(sum_k gamma_ik), one Dirichlet per row."""
    return digamma(concentration) - digamma(concentration.sum(axis=1, keepdims=True))


def gamma_expected_log(shape: Array, rate: Number) -> Array:
    """E log theta = psi(shape) - log(rate)."""
    return digamma(shape) - np.log(rate)


def dirichlet_kl(q: Array, p: Number) -> float:
    """Sum over rows of KL(Dirichlet(q) || Dirichlet(p))."""
    p = np.broadcast_to(p, q.shape)
    log_norm_q = gammaln(q.sum(axis=1)) - gammaln(q).sum(axis=1)
    log_norm_p = gammaln(p.sum(axis=1)) - gammaln(p).sum(axis=1)
    return float(np.sum(log_norm_q - log_norm_p) + np.sum((q - p) * dirichlet_expected_log(q)))


def gamma_kl(shape: Array, rate: Number, a: Number, b: Number) -> float:
    """Sum over entries of KL(Gamma(shape, rate) || Gamma(a, b))."""
    mean, log_mean = shape / rate, gamma_expected_log(shape, rate)
    log_q = shape * np.log(rate) - gammaln(shape) + (shape - 1) * log_mean - rate * mean
    return float(np.sum(log_q - (a * np.log(b) - gammaln(a) + (a - 1) * log_mean - b * mean)))


def alternating_mu(X: Array, loadings: Array, components: Array, steps: int) -> Fit:
    """Alternating multiplicative updates, components first ([GP] alg. 1, [P] 3-4, [C] 27-28)."""
    theta, beta = loadings, components
    for _ in range(steps):
        B = allocations(X, theta, beta).sum(axis=0)
        beta = divide(B, theta.sum(axis=0)[:, None], beta)
        A = allocations(X, theta, beta).sum(axis=2)
        theta = divide(A, beta.sum(axis=1), theta)
    return {"loadings": theta, "components": beta, "loglik": poisson_loglik(X, theta @ beta)}


def joint(X: Array, loadings: Array, components: Array, steps: int) -> Fit:
    """One allocation step, then theta = A and beta_k proportional to B_k ([GP] alg. 4)."""
    theta, beta = loadings, components
    for _ in range(steps):
        S = allocations(X, theta, beta)
        theta, beta = S.sum(axis=2), normalise(S.sum(axis=0), beta)
    return {"loadings": theta, "components": beta, "loglik": poisson_loglik(X, theta @ beta)}


def plsa(X: Array, loadings: Array, components: Array, steps: int) -> Fit:
    """EM for the multinomial topic model: rows on both sides normalised, from one allocation step ([GP] alg. 6)."""
    theta, beta = normalise(loadings, loadings), components
    for _ in range(steps):
        S = allocations(X, theta, beta)
        theta, beta = normalise(S.sum(axis=2), theta), normalise(S.sum(axis=0), beta)
    return {"loadings": theta, "components": beta, "loglik": poisson_loglik(X, theta @ beta)}


def joint_residuals(X: Array, loadings: Array, components: Array, steps: int) -> Fit:
    """KKT residual of the start and of every joint iterate ([C] A.3).

    Rows of beta are on the simplex: sum_j B_kj, the multiplier of that constraint, stands where sum_i theta_ik would.
    """
    residuals = []
    for N in range(steps + 1):
        fit = joint(X, loadings, components, N)
        theta, beta = fit["loadings"], fit["components"]
        S = allocations(X, theta, beta)
        A, B = S.sum(axis=2), S.sum(axis=0)
        off_theta, off_beta = theta * beta.sum(axis=1) - A, beta * B.sum(axis=1)[:, None] - B
        residuals.append(max(np.abs(off_theta).max(), np.abs(off_beta).max()))
    return {"residuals": np.array(residuals)}


def beyond(new: Array, old: Array, weight: float) -> Array:
    """Where log new + weight (log new - log old) leads; an entry that is 0 in either stays as it is in new."""
    gone = (new == 0) | (old == 0)
    log_new, log_old = np.log(np.where(gone, 1, new)), np.log(np.where(gone, 1, old))
    return np.where(gone, new, np.exp(log_new + weight * (log_new - log_old)))


def extrapolated_joint(X: Array, loadings: Array, components: Array, steps: int) -> Fit:
    """Joint EM steps, each moved on from the one before ([C] 55, in logarithms) where the log-likelihood does not fall.

    The weight grows before every trial, up to 1; where a trial is rejected the step itself is taken and the weight cut.
    """
    theta, beta, before = loadings, components, None
    weight, rejected, logliks = WEIGHT, 0, [poisson_loglik(X, theta @ beta)]
    for _ in range(steps):
        fit = joint(X, theta, beta, 1)
        if before is not None:
            weight = min(GROWTH * weight, 1.0)
            theta = beyond(fit["loadings"], before["loadings"], weight)
            moved = beyond(fit["components"], before["components"], weight)
            beta = moved / moved.sum(axis=1, keepdims=True)
        if before is None or poisson_loglik(X, theta @ beta) < logliks[-1]:
            theta, beta = fit["loadings"], fit["components"]
            if before is not None:
                weight, rejected = CUT * weight, rejected + 1
        before = fit
        logliks.append(poisson_loglik(X, theta @ beta))
    return {"loadings": theta, "components": beta, "logliks": np.array(logliks), "rejected": rejected}


def lasso(X: Array, loadings: Array, components: Array, tau: float, steps: int) -> Fit:
    """Minimise KL(X || theta beta) + tau sum theta: joint with theta = A / (1 + tau) ([GP] 24-25)."""
    theta, beta = loadings, components
    for _ in range(steps):
        S = allocations(X, theta, beta)
        theta, beta = S.sum(axis=2) / (1 + tau), normalise(S.sum(axis=0), beta)
    objective = kl_divergence(X, theta @ beta) + tau * float(theta.sum())
    return {"loadings": theta, "components": beta, "penalised_kl": objective}


def map_gamma(X: Array, loadings: Array, components: Array, c: Number, d: Number, steps: int) -> Fit:
    """MAP with Gamma(c, d_k) on beta, theta flat and first; d a number or (K, 1) ([C] 19-20, cor. 2)."""
    theta, beta = loadings, components
    for _ in range(steps):
        A = allocations(X, theta, beta).sum(axis=2)
        theta = divide(A, beta.sum(axis=1), theta)
        B = allocations(X, theta, beta).sum(axis=0)
        beta = (c - 1 + B) / (d + theta.sum(axis=0)[:, None])
    return {"loadings": theta, "components": beta, "loglik": poisson_loglik(X, theta @ beta)}


def map_gammas(X: Array, loadings: Array, components: Array, a: float, b: float, c: float, d: float, steps: int) -> Fit:
    """MAP with Gamma(a, b) on theta and Gamma(c, d) on beta: one allocation step, theta first ([C] 19-20)."""
    theta, beta = loadings, components
    for _ in range(steps):
        S = allocations(X, theta, beta)
        theta = (a - 1 + S.sum(axis=2)) / (b + beta.sum(axis=1))
        beta = (c - 1 + S.sum(axis=0)) / (d + theta.sum(axis=0)[:, None])
    return {"loadings": theta, "components": beta, "loglik": poisson_loglik(X, theta @ beta)}


def em_sweeps(X: Array, loadings: Array, components: Array, sweeps: int) -> Array:
    """Rows of theta, beta given: EM for each row's Poisson regression ([C] 38)."""
    for _ in range(sweeps):
        loadings = divide(allocations(X, loadings, components).sum(axis=2), components.sum(axis=1), loadings)
    return loadings


def regression_em(X: Array, loadings: Array, components: Array, sweeps: int, steps: int) -> Fit:
    """Alternating Poisson regression by EM, loadings first ([C] alg. 1, 38)."""
    theta, beta = loadings, components
    for _ in range(steps):
        theta = em_sweeps(X, theta, beta, sweeps)
        beta = em_sweeps(X.T, beta.T, theta.T, sweeps).T
    return {"loadings": theta, "components": beta, "loglik": poisson_loglik(X, theta @ beta)}


def newton(x: Array, b: Array, components: Array, k: int) -> float:
    """The coordinate k of b after a full Newton step, down to the floor ([C] 29-31)."""
    mean = b @ components
    g = np.sum(components[k] * (1 - x / mean))
    q = np.sum(x * components[k] ** 2 / mean**2)
    if q > 0:
        return float(max(FLOOR, b[k] - g / q))
    return FLOOR if g > 0 else float(b[k])


def coordinate_sweeps(X: Array, loadings: Array, components: Array, sweeps: int, newton_steps: int) -> Array:
    """Rows of theta, beta given: one EM step, then Newton steps, one k at a time; another while b_k moves by half."""
    theta = np.maximum(em_sweeps(X, loadings, components, 1), FLOOR)
    for x, b in zip(X, theta, strict=True):
        for k in list(range(len(components))) * sweeps:
            for _ in range(newton_steps):
                old, b[k] = b[k], newton(x, b, components, k)
                if abs(b[k] - old) < old / 2:
                    break
    return theta


def equal_means(loadings: Array, components: Array) -> tuple[Array, Array]:
    """The same rates with column means of theta equal to row means of beta ([C] B.2)."""
    ratio = np.sqrt(loadings.mean(axis=0) / components.mean(axis=1))
    return loadings / ratio, components * ratio[:, None]


def coordinate_descent(X: Array, loadings: Array, components: Array, sweeps: int, newton_steps: int, steps: int) -> Fit:
    """Alternating Poisson regression by coordinate descent, loadings first; EM where it does not climb ([C] alg. 1)."""
    theta, beta = loadings, components
    for _ in range(steps):
        new, old = np.maximum(theta, FLOOR), np.maximum(beta, FLOOR)
        new, old = equal_means(coordinate_sweeps(X, new, old, sweeps, newton_steps), old)
        new, old = equal_means(new, coordinate_sweeps(X.T, old.T, new.T, sweeps, newton_steps).T)
        if poisson_loglik(X, new @ old) < poisson_loglik(X, theta @ beta):
            new = em_sweeps(X, theta, beta, 1)
            old = em_sweeps(X.T, beta.T, new.T, 1).T
        theta, beta = new, old
    return {"loadings": theta, "components": beta, "loglik": poisson_loglik(X, theta @ beta)}


def dirichlet_poisson(X: Array, gamma: Array, components: Array, alpha: Number, steps: int) -> Fit:
    """LDA by VI-EM: gamma = alpha + A, beta_k prop. to B_k; Poisson-scale ELBO ([GP] alg. 5, 17)."""
    beta = components
    for _ in range(steps):
        S, _ = log_allocations(X, dirichlet_expected_log(gamma), safe_log(beta))
        gamma, beta = alpha + S.sum(axis=2), normalise(S.sum(axis=0), beta)
    _, ell = log_allocations(X, dirichlet_expected_log(gamma), safe_log(beta))
    elbo = ell - len(X) - float(gammaln(X + 1).sum()) - dirichlet_kl(gamma, alpha)
    return {"gamma": gamma, "components": beta, "elbo": elbo}


def gamma_poisson(X: Array, gamma: Array, components: Array, alpha: Number, rate: Number, steps: int) -> Fit:
    """Gamma-Poisson VI-EM, q(theta_ik) = Gamma(gamma_ik, 1 + a_k), beta on the simplex ([GP] alg. 7)."""
    beta, q_rate = components, 1 + np.asarray(rate)
    for _ in range(steps):
        S, _ = log_allocations(X, gamma_expected_log(gamma, q_rate), safe_log(beta))
        gamma, beta = alpha + S.sum(axis=2), normalise(S.sum(axis=0), beta)
    _, ell = log_allocations(X, gamma_expected_log(gamma, q_rate), safe_log(beta))
    elbo = ell - float(np.sum(gamma / q_rate) + gammaln(X + 1).sum()) - gamma_kl(gamma, q_rate, alpha, rate)
    return {"gamma": gamma, "components": beta, "elbo": elbo}


def inner_sweeps_lda(X: Array, gamma: Array, components: Array, alpha: Number, sweeps: int, steps: int) -> Fit:
    """LDA by VI-EM with several updates of gamma before one of beta ([GP] alg. 3)."""
    beta = components
    for _ in range(steps):
        for _ in range(sweeps):
            S, _ = log_allocations(X, dirichlet_expected_log(gamma), safe_log(beta))
            gamma = alpha + S.sum(axis=2)
        beta = normalise(S.sum(axis=0), beta)
    return dirichlet_poisson(X, gamma, beta, alpha, 0)


def learned_dirichlet(gamma: Array, alpha: Array) -> Array:
    """The alpha (K,) that maximises sum_i E log Dirichlet(theta_i; alpha): its gradient is 0, solved in log alpha."""
    mean_log = dirichlet_expected_log(gamma).mean(axis=0)

    def gradient(log_alpha: Array) -> Array:
        return digamma(np.exp(log_alpha).sum()) - digamma(np.exp(log_alpha)) + mean_log

    return np.exp(root(gradient, np.log(alpha), tol=1e-15).x)


def learned_symmetric(gamma: Array) -> float:
    """The one alpha that maximises sum_i E log Dirichlet(theta_i; alpha, ..., alpha)."""
    K, mean_log = gamma.shape[1], float(dirichlet_expected_log(gamma).mean(axis=0).sum())

    def gradient(log_alpha: float) -> float:
        alpha = np.exp(log_alpha)
        return K * float(digamma(K * alpha) - digamma(alpha)) + mean_log

    return float(np.exp(brentq(gradient, -10, 10, xtol=1e-15, rtol=1e-15)))


def learned_gamma(shape: Array, rate: Number) -> tuple[Array, Array]:
    """The shapes a_k and rates of a column that maximise E log Gamma(theta_k; a_k, rate_k): a / rate = mean."""
    mean = (shape / rate).mean(axis=0)
    spread = np.log(mean) - gamma_expected_log(shape, rate).mean(axis=0)
    solved = [brentq(lambda a, s=s: np.log(a) - digamma(a) - s, 1e-3, 1e3, xtol=1e-15, rtol=1e-15) for s in spread]
    return np.array(solved), np.array(solved) / mean


def learned_dirichlet_poisson(X: Array, gamma: Array, components: Array, alpha: Array, steps: int) -> Fit:
    """LDA by VI-EM, after each update alpha at the maximum of the bound."""
    beta = components
    for _ in range(steps):
        fit = dirichlet_poisson(X, gamma, beta, alpha, 1)
        gamma, beta = fit["gamma"], fit["components"]
        alpha = learned_dirichlet(gamma, alpha)
    return {**dirichlet_poisson(X, gamma, beta, alpha, 0), "alpha": alpha}


def learned_gamma_poisson(X: Array, gamma: Array, components: Array, alpha: Array, rate: Number, steps: int) -> Fit:
    """Gamma-Poisson VI-EM, after each update alpha_k and rate_k at the maximum of the bound; q starts at rate 1 + a."""
    beta, q_rate = components, 1 + np.asarray(rate)
    for _ in range(steps):
        S, _ = log_allocations(X, gamma_expected_log(gamma, q_rate), safe_log(beta))
        gamma, q_rate, beta = alpha + S.sum(axis=2), 1 + np.asarray(rate), normalise(S.sum(axis=0), beta)
        alpha, rate = learned_gamma(gamma, q_rate)
    _, ell = log_allocations(X, gamma_expected_log(gamma, q_rate), safe_log(beta))
    elbo = ell - float(np.sum(gamma / q_rate) + gammaln(X + 1).sum()) - gamma_kl(gamma, q_rate, alpha, rate)
    return {"gamma": gamma, "components": beta, "elbo": elbo, "alpha": alpha, "rate": rate}


def doubly_gamma_step(X: Array, q: Fit, a: Number, b: Number, c: Number, d: Number) -> Fit:
    """Update q(theta), then q(beta) from a fresh allocation step ([P] 34-36)."""
    log_beta, mean_beta = gamma_expected_log(q["beta_shape"], q["beta_rate"]), q["beta_shape"] / q["beta_rate"]
    S, _ = log_allocations(X, gamma_expected_log(q["theta_shape"], q["theta_rate"]), log_beta)
    shape = a + S.sum(axis=2)
    rate = np.broadcast_to(b + mean_beta.sum(axis=1), shape.shape)
    S, _ = log_allocations(X, gamma_expected_log(shape, rate), log_beta)
    beta_shape = c + S.sum(axis=0)
    beta_rate = np.broadcast_to(d + (shape / rate).sum(axis=0)[:, None], beta_shape.shape)
    return {"theta_shape": shape, "theta_rate": rate, "beta_shape": beta_shape, "beta_rate": beta_rate}


def doubly_gamma_elbo(X: Array, q: Fit, a: Number, b: Number, c: Number, d: Number) -> float:
    """The bound of doubly Gamma, every constant kept."""
    theta, beta = (q["theta_shape"], q["theta_rate"]), (q["beta_shape"], q["beta_rate"])
    _, ell = log_allocations(X, gamma_expected_log(*theta), gamma_expected_log(*beta))
    mean_rate = (theta[0] / theta[1]) @ (beta[0] / beta[1])
    return ell - float(np.sum(mean_rate + gammaln(X + 1))) - gamma_kl(*theta, a, b) - gamma_kl(*beta, c, d)


def unit_rates(gamma: Array, nu: Array) -> Fit:
    """Q(theta) = Gamma(gamma, 1), q(beta) = Gamma(nu, 1)."""
    rates = {"theta_rate": np.ones_like(gamma), "beta_rate": np.ones_like(nu)}
    return {"theta_shape": gamma, "beta_shape": nu, **rates}


def doubly_gamma(X: Array, gamma: Array, nu: Array, a: float, b: float, c: float, d: float, steps: int) -> Fit:
    """Gammas on both sides from q = Gamma(gamma, 1), Gamma(nu, 1), loadings first ([P] 34-36)."""
    q = unit_rates(gamma, nu)
    for _ in range(steps):
        q = doubly_gamma_step(X, q, a, b, c, d)
    return {**q, "elbo": doubly_gamma_elbo(X, q, a, b, c, d)}


def learned_doubly_gamma(
    X: Array, gamma: Array, nu: Array, a: Number, b: Number, c: Number, d: Number, steps: int
) -> Fit:
    """Doubly Gamma, after each update a_k, b_k for each component and one c, d for all at the maximum of the bound."""
    q = unit_rates(gamma, nu)
    for _ in range(steps):
        q = doubly_gamma_step(X, q, a, b, c, d)
        a, b = learned_gamma(q["theta_shape"], q["theta_rate"])
        c, d = (each[0] for each in learned_gamma(q["beta_shape"].reshape(-1, 1), q["beta_rate"].reshape(-1, 1)))
    return {**q, "elbo": doubly_gamma_elbo(X, q, a, b, c, d), "a": a, "b": b, "c": c, "d": d}


def smoothed_lda(X: Array, gamma: Array, nu: Array, alpha: Number, eta: Number, a: float, b: float, steps: int) -> Fit:
    """Gamma = alpha + A, nu = eta + B; the multinomial bound, and that with s_i ~ Gamma(a, b) ([K])."""
    for _ in range(steps):
        S, _ = log_allocations(X, dirichlet_expected_log(gamma), dirichlet_expected_log(nu))
        gamma, nu = alpha + S.sum(axis=2), eta + S.sum(axis=0)
    _, ell = log_allocations(X, dirichlet_expected_log(gamma), dirichlet_expected_log(nu))
    N = X.sum(axis=1)
    elbo = ell + float(gammaln(N + 1).sum() - gammaln(X + 1).sum())
    elbo -= dirichlet_kl(gamma, alpha) + dirichlet_kl(nu, eta)
    log_totals = float(log_negative_binomial(N, a, b).sum())
    return {"gamma": gamma, "nu": nu, "elbo_multinomial": elbo, "elbo_dirichlet_gamma": elbo + log_totals}


def learned_smoothed_lda(X: Array, gamma: Array, nu: Array, alpha: float, eta: float, steps: int) -> Fit:
    """Smoothed LDA, after each update one alpha and one eta at the maximum of the bound."""
    for _ in range(steps):
        fit = smoothed_lda(X, gamma, nu, alpha, eta, *SCALE, 1)
        gamma, nu = fit["gamma"], fit["nu"]
        alpha, eta = learned_symmetric(gamma), learned_symmetric(nu)
    elbo = smoothed_lda(X, gamma, nu, alpha, eta, *SCALE, 0)["elbo_multinomial"]
    return {"gamma": gamma, "nu": nu, "elbo_multinomial": elbo, "alpha": alpha, "eta": eta}


def log_p_allocation(S: Array, alpha: Number, eta: Number, a: float, b: float) -> float:
    """Log p(S) with theta, beta and the scales integrated out, S (n, K, m) integer or real ([K] 7-9)."""
    n, K, m = S.shape
    alpha, eta = np.broadcast_to(alpha, K), np.broadcast_to(eta, m)
    N, by_sample, by_feature = S.sum(axis=(1, 2)), S.sum(axis=2), S.sum(axis=0)
    counts = gammaln(eta + by_feature).sum() + gammaln(alpha + by_sample).sum()
    counts -= gammaln(eta.sum() + by_feature.sum(axis=1)).sum() + gammaln(S + 1).sum()
    constants = K * (gammaln(eta.sum()) - gammaln(eta).sum())
    constants += n * (gammaln(alpha.sum()) - gammaln(alpha).sum() + a * np.log(b) - gammaln(a))
    totals = np.sum(gammaln(a + N) - gammaln(alpha.sum() + N)) - (a * n + N.sum()) * np.log(b + 1)
    return float(counts + constants + totals)


def log_p_gradients(X: Array, mu: Array, nu: Array, alpha: Array, eta: Number, a: float, b: float) -> Fit:
    """Log p(S) at S_ikj = X_ij mu_ik nu_kj / (mu nu)_ij, and its gradients in log mu and log nu ([K] 10-15)."""
    S = allocations(X, mu, nu)
    columns = eta + S.sum(axis=0)
    G = digamma(alpha + S.sum(axis=2))[:, :, None] + (digamma(columns) - digamma(columns.sum(axis=1))[:, None])
    G = G - digamma(S + 1)
    shares = S / np.where(X > 0, X, 1)[:, None, :]
    slope = S * (G - np.sum(shares * G, axis=1, keepdims=True))
    return {"log_p": log_p_allocation(S, alpha, eta, a, b), "log_mu": slope.sum(axis=2), "log_nu": slope.sum(axis=0)}


def enumerate_allocations(X: Array, K: int) -> Iterator[Array]:
    """Every integer S (n, K, m) with sum_k S_ikj = X_ij."""
    counts = np.asarray(X, dtype=int).ravel()
    entries = [[t for t in itertools.product(range(x + 1), repeat=K) if sum(t) == x] for x in counts]
    for choice in itertools.product(*entries):
        yield np.array(choice, dtype=float).reshape(*np.shape(X), K).transpose(0, 2, 1)


def log_evidence(X: Array, K: int, alpha: Number, eta: Number, a: float, b: float) -> float:
    """Exact log p(X) = log sum_S p(S) by enumeration, for tiny X."""
    return float(logsumexp([log_p_allocation(S, alpha, eta, a, b) for S in enumerate_allocations(X, K)]))


def load(file: Path = FILE) -> Fit:
    """The golden file: lists as arrays (evidence counts as integers), ranks K as integer keys."""

    def convert(entries: dict[Any, Any]) -> dict[Any, Any]:
        keys: list[Any] = [int(key) if key.isdigit() else key for key in entries]
        values = [np.array(v) if isinstance(v, list) else v for v in entries.values()]
        return dict(zip(keys, values, strict=True))

    return json.loads(file.read_text(), object_hook=convert)


def compute_results(inputs: Fit) -> Fit:
    """Every routine after every number of steps, named as in the golden file."""
    names = ("X", "loadings", "components", "gamma", "nu", "alpha", "rate", "eta")
    X, theta, beta, gamma, nu, alpha, rate, eta = (inputs[name] for name in names)
    results: Fit = {}
    for N in STEPS:
        results[f"alternating_mu/{N}"] = alternating_mu(X, theta, beta, N)
        results[f"joint/{N}"] = joint(X, theta, beta, N)
        results[f"lasso/{N}"] = lasso(X, theta, beta, TAU, N)
        results[f"map_gamma_1.5_2/{N}"] = map_gamma(X, theta, beta, MAP_SHAPE, MAP_RATE, N)
        results[f"dirichlet_poisson/{N}"] = dirichlet_poisson(X, gamma, beta, alpha, N)
        results[f"gamma_poisson/{N}"] = gamma_poisson(X, gamma, beta, alpha, rate, N)
        results[f"doubly_gamma_.3_.1_.4_1/{N}"] = doubly_gamma(X, gamma, nu, *GAMMAS, N)
        results[f"smoothed_lda/{N}"] = lda = smoothed_lda(X, gamma, nu, alpha, eta, *SCALE, N)
        lda["elbo_dirichlet_gamma_a5_b1_5"] = lda.pop("elbo_dirichlet_gamma")
        results[f"map_gammas_1.2_.3_1.5_2/{N}"] = map_gammas(X, theta, beta, *MAP_GAMMAS, N)
        results[f"regression_em_4/{N}"] = regression_em(X, theta, beta, SWEEPS, N)
        results[f"coordinate_descent_4/{N}"] = coordinate_descent(X, theta, beta, SWEEPS, 1, N)
        results[f"cyclic_coordinate_descent_1/{N}"] = coordinate_descent(X, theta, beta, 1, 2, N)
        results[f"inner_sweeps_lda_4/{N}"] = inner_sweeps_lda(X, gamma, beta, alpha, SWEEPS, N)
        results[f"learned_dirichlet_poisson/{N}"] = learned_dirichlet_poisson(X, gamma, beta, alpha, N)
        results[f"learned_gamma_poisson/{N}"] = learned_gamma_poisson(X, gamma, beta, alpha, rate, N)
        results[f"plsa/{N}"] = plsa(X, theta, beta, N)
        results[f"joint_residuals/{N}"] = joint_residuals(X, theta, beta, N)
        results[f"extrapolated_joint/{N}"] = extrapolated_joint(X, theta, beta, N)
        results[f"learned_smoothed_lda_.5_.3/{N}"] = learned_smoothed_lda(X, gamma, nu, *SYMMETRIC, N)
        results[f"learned_doubly_gamma_.3_.1_.4_1/{N}"] = learned_doubly_gamma(X, gamma, nu, *GAMMAS, N)
    results["log_p_gradients a5 b1.5"] = log_p_gradients(X, theta, beta, alpha, eta, *SCALE)
    log_p = log_p_allocation(allocations(X, theta, beta), alpha, eta, *SCALE)
    return {**results, "log_p_allocation a5 b1.5": log_p}


def regenerate(golden: Fit) -> Fit:
    """The whole file again, from its inputs and the X of its evidence cases."""
    evidence = {}
    for name, case in golden["evidence"].items():
        exact = {K: log_evidence(case["X"], K, *EVIDENCE_PRIOR) for K in (1, 2, 3)}
        evidence[name] = {"X": case["X"], "log_evidence": exact}
    return {**golden, "results": compute_results(golden["inputs"]), "evidence": evidence}


def differences(new: Any, old: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """The largest relative difference of every array and number; NaN counts as infinite."""
    if isinstance(old, dict):
        if new.keys() != old.keys():
            raise KeyError(f"{name}: {sorted(map(str, new.keys() ^ old.keys()))} on one side only")
        for key in old:
            yield from differences(new[key], old[key], f"{name}/{key}")
    elif not isinstance(old, str):
        relative = np.abs(np.subtract(new, old)) / np.where(np.equal(old, 0), 1.0, np.abs(old))
        yield name[1:], float(np.nan_to_num(np.max(relative), nan=np.inf))


def main() -> int:
    """Compare the golden file with its regeneration, or add what it lacks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="add to closed_forms.json the results it lacks")
    write, golden = parser.parse_args().write, load()
    new = regenerate(golden)
    if write:
        golden["results"] = {**golden["results"], **new["results"], **golden["results"]}
        FILE.write_text(json.dumps(golden, indent=0, default=np.ndarray.tolist))
    found = [*differences(new, golden)]
    largest = max(difference for _, difference in found)
    for name, difference in [*found, ("largest", largest)]:
        print(f"{difference:9.2e}  {name}")
    return int(largest > TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
