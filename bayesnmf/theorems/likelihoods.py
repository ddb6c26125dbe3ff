"""Statements 1, 6 and 9: equal likelihoods, and the bound of LDA as KL-NMF."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.special import digamma, gammaln, xlogy

from bayesnmf.assessment.bounds import elbo_augmented
from bayesnmf.data.counts import Counts
from bayesnmf.kernels.cpu.likelihood import poisson_loglik
from bayesnmf.priors import Dirichlet, Priors
from bayesnmf.priors.specification import PARAMETER
from bayesnmf.results.topic_model import TopicModel, factors_of, topic_model_of
from bayesnmf.theorems import explicit
from bayesnmf.theorems.study import Study, plain_map, plain_vi, rounding, rounding_of_bound, rounding_of_loglik
from bayesnmf.theorems.table import Claim, Row
from bayesnmf.theorems.updates import FLAT, unscaled_start
from bayesnmf.types import Array

MOST_TOKENS = 2e8


def _fitted_point(study: Study) -> tuple[Array, Array]:
    options = plain_map(priors=Priors(FLAT, FLAT), schedule="alternating", max_iter=study.iterations, tol=0)
    fit = study.fit(study.counts, "poisson", "map", options)
    return fit.loadings, fit.components


def poisson_is_multinomial(study: Study) -> Iterator[Row]:
    """Check [C] lemma 1, from factors to the topic model and back, at a fitted point and at a random one."""
    for name, point in (("fitted", _fitted_point(study)), ("random", unscaled_start(study))):
        model = topic_model_of(*point)
        right, tolerance = _multinomial_and_totals(study, model)
        claim = Claim(1, "log Poisson(X | θβ) = log Multinomial(X | LF) + Σ log Poisson(Nᵢ; sᵢ)", "[C] lemma 1")
        left = poisson_loglik(study.counts.matrix, *point, study.counts.log_factorial)
        yield claim.equal(left, right, tolerance, f"at {name} θ and β")
        back = poisson_loglik(study.counts.matrix, *factors_of(model), study.counts.log_factorial)
        yield claim.equal(back, right, tolerance, f"and back, from L, F, s and u of the {name} point")


def _multinomial_and_totals(study: Study, model: TopicModel) -> tuple[float, float]:
    """Return the right side of [C] lemma 1, and the rounding error of both sides."""
    rates = explicit.rates(study.counts.matrix, model.proportions, model.components)
    loglik = explicit.multinomial_loglik(study.counts, rates)
    loglik += float(explicit.poisson_logpmf(study.counts.row_totals, model.totals).sum())
    orders = float(gammaln(study.counts.row_totals + 1).sum())
    of_totals = float(np.abs(xlogy(study.counts.row_totals, model.totals)).sum()) + model.totals.sum()
    tolerance = rounding_of_loglik(study.counts, study.rank, rates)
    return loglik, 2 * tolerance + rounding(study.counts.nnz, 2 * orders + of_totals)


def four_likelihoods(study: Study) -> Iterator[Row]:
    """Check [GP] D.1-D.3 with rows on the simplex: L and F of a fitted point."""
    counts, model = study.counts, topic_model_of(*_fitted_point(study))
    point = (model.proportions, model.components)
    left = poisson_loglik(counts.matrix, *point, counts.log_factorial)
    rates = explicit.rates(counts.matrix, *point)
    # allocations have K times as many terms, and two terms for each log X!: log S! and log X!
    orders = float(gammaln(counts.row_totals + 1).sum())
    tolerance = 4 * rounding_of_loglik(counts, study.rank, rates) * np.sqrt(study.rank)
    tolerance += rounding(counts.nnz, orders)
    augmented = Claim(6, "log p(X) = log p(S) − log p(S | X) at a drawn S", "[GP] D.1, [P] 16-17")
    tokens = Claim(6, "Poisson = categorical tokens + a constant of the data", "[GP] D.3")
    constant = float(explicit.poisson_logpmf(counts.row_totals, np.ones(counts.shape[0])).sum())
    if counts.is_integer:
        log_p, given = explicit.drawn_allocation(counts.matrix, *point, study.rng("allocation"))
        yield augmented.equal(left, log_p - given, tolerance)
    else:
        yield augmented.not_computed("needs whole numbers")
    right = explicit.multinomial_loglik(counts, rates) + constant
    yield Claim(6, "Poisson = multinomial + Σ log Poisson(Nᵢ; 1)", "[GP] D.2").equal(left, right, tolerance)
    if not counts.is_integer:
        yield tokens.not_computed("needs whole numbers")
    elif counts.total > MOST_TOKENS:
        yield tokens.not_computed(f"needs at most {MOST_TOKENS:g} counts: there are {counts.total:.3g}")
    else:
        right = explicit.token_loglik(counts.matrix, *point) + orders - counts.log_factorial + constant
        yield tokens.equal(left, right, tolerance + rounding(counts.total, abs(right)))


def lda_is_kl_nmf(study: Study) -> Iterator[Row]:
    """Check [F] 10-12, corrected: logΓ(x) ≈ x log x − x and ψ(x) ≈ log x in the γ terms of the bound of LDA."""
    counts, alpha = study.counts, np.linspace(0.5, 1.5, study.rank)
    options = plain_vi(priors=Priors(Dirichlet(alpha), PARAMETER), max_iter=study.iterations, tol=0)
    fit = study.fit(counts, "dirichlet_poisson", "vi", options)
    gamma: Array = np.asarray(fit.posterior.loadings.concentration)  # type: ignore[union-attr]
    p = gamma / gamma.sum(axis=1, keepdims=True)
    rates = explicit.rates(counts.matrix, p, fit.components)
    fitted = float(xlogy(counts.matrix.data, rates).sum())
    of_alpha = len(p) * float(gammaln(alpha.sum()) - gammaln(alpha).sum())
    data = of_alpha - len(p) - counts.log_factorial
    # every term of the bound, with both series truncated; in the approximation they are cancelled by hand
    sums = gamma.sum(axis=1)
    tilt = ((alpha - gamma) * (np.log(gamma) - np.log(sums)[:, None])).sum()
    cut = fitted + data + float(tilt + (xlogy(gamma, gamma) - gamma).sum() - (xlogy(sums, sums) - sums).sum())
    x, means = counts.matrix.data, counts.row_totals
    expected = explicit.quotients(x, np.repeat(means, np.diff(counts.matrix.indptr)) * rates, np.ones(1))
    divergence = float(xlogy(x, expected).sum() - x.sum() + means @ (p @ fit.components.sum(axis=1)))
    of_data = float(xlogy(x, x).sum() - xlogy(means, means).sum())
    right = -divergence + float((alpha * np.log(p)).sum()) + data + of_data
    size = float(xlogy(sums, sums).sum() + np.abs(tilt) + abs(of_data) + abs(data))
    tolerance = 2 * rounding_of_loglik(counts, study.rank, rates) + rounding(counts.nnz + gamma.size, 4 * size)
    claim = Claim(9, "LDA bound, series truncated = −KL(X ‖ diag(N) pβ) + Σ α log p + constant", "[F] 10-12, corrected")
    yield claim.equal(cut, right, tolerance)
    bound = elbo_augmented(fit)
    rest = _cut_off(gamma, alpha) + _cut_off_rates(counts, gamma, fit.components, fitted)
    claim = Claim(9, "LDA bound = truncated bound + truncated terms", "[F] 10-12, corrected")
    yield claim.equal(bound, cut + rest, tolerance + rounding_of_bound(counts, study.rank))
    gap = (bound - right) / max(counts.total, 1.0)
    claim = Claim(9, "bound of LDA and its approximation by KL-NMF", "[F] 10-12, corrected")
    yield claim.not_judged(bound, right, f"{gap:.3g} nats per count; not judged, it vanishes as counts grow")


def _cut_off(gamma: Array, alpha: Array) -> float:
    """Return what logΓ(x) ≈ x log x − x and ψ(x) ≈ log x omit from −KL(q(θ) ‖ p(θ)), for Dirichlet loadings (n, K)."""
    sums = gamma.sum(axis=1, keepdims=True)

    def of_log_gamma(x: Array) -> float:
        return float((gammaln(x) - (xlogy(x, x) - x)).sum())

    of_digamma = (digamma(gamma) - np.log(gamma)) - (digamma(sums) - np.log(sums))
    return of_log_gamma(gamma) - of_log_gamma(sums) + float(((alpha - gamma) * of_digamma).sum())


def _cut_off_rates(counts: Counts, gamma: Array, components: Array, fitted: float) -> float:
    """Return what ψ(x) ≈ log x omits from Σ X log Σ_k exp(E log θ_ik) β_kj, whose exact value is `fitted`."""
    log_shares = digamma(gamma) - digamma(gamma.sum(axis=1, keepdims=True))
    rates = explicit.rates(counts.matrix, np.exp(log_shares), components)
    return float(xlogy(counts.matrix.data, rates).sum()) - fitted
