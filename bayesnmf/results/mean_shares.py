"""Mean shares of the components at covariates: a regression of the shares of the rows, and not a reading of the prior.

A prior with effects has means, too, but they are those of the rows only where loadings vary as the prior says: effects
on concentrations are fitted to logarithms of shares, so that a topic that few texts have, and these for the most part,
has a mean of the prior that is several times too small. So the mean share of component k at covariates x is

    m_k(x) = exp(x'b_k) / Σ_l exp(x'b_l),    Σ_i x_i (s_ik − m_k(x_i)) = 0 for all k,

a fractional regression (Papke & Wooldridge 1996), whose equations hold whatever the distribution of the shares s_i is.
Under a formula of one category, m is the mean of the rows of each level. Two kinds of shares of rows are used. The
posterior ones, which are positive, give b; but the prior pulls them, the more so the fewer counts a row has.
Least-squares estimates, `unbiased_shares`, are not pulled, and have no bounds; one step of Newton's
method leads from the first to the solution for these, and is exact for means of levels. Where entries are missing there
are no such estimates, and posterior shares are used alone.

Intervals have two sources, as those of `bayesnmf.group_contrasts`. Rows vary around their mean, which the residuals
tell (White's covariance with the correction HC2; for groups, the squared standard error of a mean). And the components,
which the shares of all rows depend on, are known up to their posterior. Limits are quantiles of Student's t, with the
degrees of freedom of Satterthwaite for the first source; for the mean of n rows there are n − 1. Those of a mean share
are about its logit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import expit, log_softmax, logit, softmax

from bayesnmf.data.checks import check_complete
from bayesnmf.data.counts import Counts
from bayesnmf.data.suspicions import warn_of_data
from bayesnmf.priors.log_linear import climbed
from bayesnmf.priors.values import component_sums, rows_to_shares
from bayesnmf.results.batches import iterate_factors
from bayesnmf.results.markers import SMALLEST
from bayesnmf.results.record import FitRecord
from bayesnmf.types import Array

EVEN = 1e-3  # of equal shares in those that give b, whose information is then well known; the step takes it out again
RIDGE = 1e-9  # of the mean of the information, for coefficients that the rows do not tell
ALONE = 1e-9  # 1 − leverage of a row whose mean no other row tells
AT_ONCE = 2**24  # numbers in memory


class Described(NamedTuple):
    """An estimate of each component, its standard error and degrees of freedom, of the same shape."""

    value: Array
    error: Array
    freedom: Array

    def limits(self, tail: float, least: float, most: float) -> tuple[Array, Array, Array]:
        """Return the value and the limits of its interval within bounds, which are the limits if one row is all."""
        low, high = self.value - self._far(tail), self.value + self._far(tail)
        value, low, high = (np.clip(each, least, most) for each in (self.value, low, high))
        return value, low, high

    def limits_of_shares(self, tail: float) -> tuple[Array, Array, Array]:
        """Return a share and its limits: about its logit, as means of few rows that have a component are skew.

        A share below its standard error has the upper limit of one that equals it, and 0 as the lower one.
        """
        share = np.clip(self.value, 0.0, 1.0)
        near = np.clip(share, np.minimum(self.error, 0.5), np.maximum(1 - self.error, 0.5))
        near = np.clip(near, SMALLEST, 1 - SMALLEST)
        far = self._far(tail) / (near * (1 - near))
        low, high = expit(logit(near) - far), expit(logit(near) + far)
        return share, np.where(share > self.error, low, 0.0), np.where(1 - share > self.error, high, 1.0)

    def _far(self, tail: float) -> Array:
        """Return how far limits are from the value: infinitely, if one row is all."""
        from scipy.stats import t as student

        known = self.freedom > 0
        return np.where(known, student.isf(tail, np.where(known, self.freedom, 1.0)) * self.error, np.inf)

    def false_sign_rate(self) -> Array:
        """Return the smaller of the probabilities that it is at least 0 and that it is at most 0."""
        from scipy.stats import t as student

        known = self.freedom > 0
        ratio = np.abs(self.value) / np.maximum(self.error, np.finfo(np.float64).tiny)
        return np.where(known, student.sf(ratio, np.where(known, self.freedom, 1.0)), 0.5)


@dataclass(frozen=True, eq=False)
class MeanShares:
    """Mean shares of the components at covariates.

    Attributes
    ----------
    coefficients : ndarray (p, K)
        Coefficients b of a standardised design, of posterior shares of the rows.
    move : ndarray (K, p)
        The step to those of least-squares estimates.
    between, shared : ndarray (K p, K p)
        Covariances of the coefficients: of the variation between rows, and of what is not known of the components.
    design : ndarray (n, p)
        Standardised design of the rows that have counts.
    """

    coefficients: Array
    move: Array
    between: Array
    shared: Array
    design: Array

    def at(self, design: Array) -> Described:
        """Return the mean shares at each row of a standardised design, (rows, K)."""
        rows, place = np.unique(design, axis=0, return_inverse=True)
        each = [self._described(*self._mean(row[None]), row) for row in rows]
        return Described(*(np.stack(parts)[place.ravel()] for parts in zip(*each, strict=True)))

    def contrast(self, designs: list[Array], weights: Array, logarithms: bool = False) -> Described:
        """Return Σ_l w_l of the means over rows of designs (n, p) of mean shares, or of their logarithms to base 2.

        A mean below its standard error counts as that in a logarithm.
        """
        value, gradient, direction = np.zeros(1), np.zeros(1), np.zeros(1)
        for design, weight in zip(designs, weights, strict=True):
            (mean, slope), at = self._mean(design), design.mean(axis=0)
            if logarithms:
                above = np.maximum(mean, np.maximum(self._described(mean, slope, at).error, SMALLEST))
                mean, slope = np.log2(above), slope / (above * np.log(2))[:, None, None]
            value, gradient, direction = value + weight * mean, gradient + weight * slope, direction + weight * at
        return self._described(value, gradient, direction)

    @cached_property
    def _inverse(self) -> Array:
        return np.asarray(np.linalg.pinv(self.design.T @ self.design, hermitian=True))

    @cached_property
    def _left(self) -> Array:
        """1 − leverage of the rows; 0 of a row whose mean no other row tells, which says nothing of variation."""
        return np.asarray(1 - ((self.design @ self._inverse) * self.design).sum(axis=1))

    def _mean(self, design: Array) -> tuple[Array, Array]:
        """Return the mean over rows of a standardised design of mean shares, (K,), and its derivative (K, K, p)."""
        shares = softmax(design @ self.coefficients, axis=1)
        every, number = np.arange(len(self.move)), len(design)
        gradient = -(shares.T @ _scores(design, shares)).reshape(len(every), *self.move.shape)
        gradient[every, every] += shares.T @ design
        return shares.mean(axis=0) + np.einsum("klp,lp->k", gradient, self.move) / number, gradient / number

    def _described(self, value: Array, gradient: Array, direction: Array) -> Described:
        """Return an estimate (K,) with this derivative (K, K, p), of a mean at the design `direction` (p,)."""
        flat = gradient.reshape(len(gradient), -1)
        between, shared = (np.maximum(((flat @ each) * flat).sum(axis=1), 0.0) for each in (self.between, self.shared))
        squares = (self.design @ (self._inverse @ direction)) ** 2
        rows = squares.sum() ** 2 / (squares**2).sum()  # that the estimate is a mean of
        freedom = 0.0 if (squares[self._left < ALONE] > ALONE * squares.max()).any() else max(rows - 1, 0.0)
        of_rows = np.divide(between, between + shared, out=np.ones_like(between), where=between > 0)
        return Described(value, np.sqrt(between + shared), freedom / of_rows**2)


def mean_shares(fit: FitRecord, design: Array, draws: int, seed: int) -> MeanShares:
    """Return mean shares of a fit, of `for_intervals`, as a function of covariates.

    Parameters
    ----------
    fit : Fit
    design : ndarray (n, p)
        Standardised design of its rows; those without counts are left out.
    draws, seed : int
        Most draws that say what is not known of the components, and their seed.
    """
    kept, complete = np.flatnonzero(fit.counts.row_totals > 0), fit.counts.mask is None
    posterior = _posterior_shares(fit, fit.loadings, fit.components)[kept]
    shares, design = unbiased_shares(fit)[kept] if complete else posterior, design[kept]
    rank = posterior.shape[1]
    start = (1 - EVEN) * posterior + EVEN / rank
    coefficients, information = _fractional(design, start)
    inverse = np.linalg.inv(information)
    move = (inverse @ ((shares - start).T @ design).ravel()).reshape(rank, -1)
    fitted, along = softmax(design @ coefficients, axis=1), design @ move.T
    residuals = shares - fitted * (1 + along - (fitted * along).sum(axis=1, keepdims=True))
    left = MeanShares(coefficients, move, inverse, inverse, design)._left
    residuals *= np.where(left > ALONE, np.maximum(left, ALONE) ** -0.5, 0.0)[:, None]
    between, step = np.zeros_like(inverse), max(AT_ONCE // len(inverse), 1)
    for first in range(0, len(design), step):
        scores = _scores(design[first : first + step], residuals[first : first + step])
        between += scores.T @ scores
    drawn = (_sums_given_components if complete else _sums_of_posterior)(fit, design, kept, draws, seed)
    shared = np.cov(drawn, rowvar=False).reshape(between.shape) if len(drawn) > 1 else np.zeros_like(between)
    between, shared = (inverse @ each @ inverse for each in (between, shared))
    return MeanShares(coefficients, move, between, shared, design)


def _posterior_shares(fit: FitRecord, loadings: Array, components: Array) -> Array:
    """Return the shares of the components in the rows, given both sides."""
    sums = component_sums(fit.counts.exposed_components(components.astype(np.float64)))
    expected = loadings.astype(np.float64) * sums
    return rows_to_shares(expected, expected.sum(axis=1))


def _scores(design: Array, values: Array) -> Array:
    """Return the products of values (n, K) and a design (n, p), (n, K p)."""
    return np.asarray(values[:, :, None] * design[:, None, :]).reshape(len(design), -1)


def _fractional(design: Array, shares: Array) -> tuple[Array, Array]:
    """Return coefficients (p, K) with Σ_i x_i (s_i − m(x_i)) = 0, and the information at them, (K p, K p).

    The equations leave the sum of the coefficients over components free, which is 0; the information is that of
    contrasts of components, and in their sum that of the design.
    """
    rows, place = np.unique(design, axis=0, return_inverse=True)
    times = np.bincount(place.ravel()).astype(np.float64)[:, None]
    sums = np.stack([np.bincount(place.ravel(), each, len(rows)) for each in shares.T], axis=1)
    p, rank = design.shape[1], shares.shape[1]
    squares = (rows * times).T @ rows
    ridge = RIDGE * np.trace(squares) / (p * rank)

    def information(coefficients: Array) -> Array:
        mean = softmax(rows @ coefficients, axis=1)
        pulled = _scores(rows, mean * np.sqrt(times))
        found = np.kron(np.full((rank, rank), 1 / rank), squares) - pulled.T @ pulled
        own = np.einsum("ip,ik,iq->kpq", rows, mean * times, rows, optimize=True)
        for k in range(rank):
            at = slice(k * p, (k + 1) * p)
            found[at, at] += own[k]
        return np.asarray(found + ridge * np.eye(len(found)))

    def height(coefficients: Array) -> Array:
        logarithms = log_softmax(rows @ coefficients, axis=1)
        return np.atleast_1d((sums * logarithms).sum() - ridge * (coefficients**2).sum() / 2)

    def step(coefficients: Array) -> Array:
        slope = (sums - times * softmax(rows @ coefficients, axis=1)).T @ rows - ridge * coefficients.T
        return np.linalg.solve(information(coefficients), slope.ravel()).reshape(rank, p).T

    first = np.zeros((p, rank))
    first[0] = np.log(sums.sum(axis=0) / times.sum())
    first[0] -= first[0].mean()
    found = climbed(first, height, step)
    return found, information(found)


def _sums_given_components(fit: FitRecord, design: Array, kept: Array, draws: int, seed: int) -> Array:
    """Return Σ_i x_i s_i, (draws, K p), of least-squares shares given each draw of the components."""
    counts = fit.counts
    scaled = np.zeros((len(counts.row_totals), design.shape[1]))
    scaled[kept] = design / counts.row_totals[kept, None]
    codes = np.zeros(len(scaled), np.intp) if fit.batch is None else counts.batch.codes
    number = 1 if fit.batch is None else len(fit.batch.names)
    sums = np.zeros((number, design.shape[1], counts.shape[1]))
    for rows, part in counts.parts():
        for batch in range(number):
            sums[batch] += np.asarray(part.matrix.T @ np.where(codes[rows, None] == batch, scaled[rows], 0.0)).T
    found = []
    pairs = zip(fit.estimate.iterate_by_rows(fit, draws, seed), iterate_factors(fit, draws, seed), strict=False)
    for (_, components), factors in pairs:
        profiles = profiles_of(counts.exposed_components(components))
        own = profiles[None] if factors is None else profiles * factors[:, None, :]
        weights = [weights_of_features(each, counts) for each in own]
        found.append(np.sum([weight.T @ each.T for weight, each in zip(weights, sums, strict=True)], axis=0))
    return np.reshape(found, (len(found), -1))


def _sums_of_posterior(fit: FitRecord, design: Array, kept: Array, draws: int, seed: int) -> Array:
    """Return Σ_i x_i s_i, (draws, K p), of draws of the shares of rows."""
    every, drawn = slice(0, len(fit.loadings)), fit.estimate.iterate_by_rows(fit, draws, seed)
    shares = (_posterior_shares(fit, take(every)[0], components)[kept] for take, components in drawn)
    return np.array([(each.T @ design).ravel() for each in shares])


FAR = 3.0  # standard errors of a mean
SMALL = 0.05  # what components that are slightly wrong add


def unbiased_shares(fit: FitRecord) -> Array:
    """Return least-squares estimates of the shares of all samples given the components, (n, K), without bounds.

    With factors of batches, each batch has the components times its factors, and shares are those of a batch with
    factors of 1. Samples without counts have NaN.
    """
    counts = check_complete(fit.counts, "least squares")
    profiles = profiles_of(fit.exposed_components)
    found = np.empty(fit.loadings.shape)
    if fit.batch is None:
        found[:], totals = _products(counts, weights_of_features(profiles, counts)), counts.row_totals[:, None]
    else:
        for batch, factors in enumerate(fit.batch.mean):
            rows = np.flatnonzero(counts.batch.codes == batch)
            found[rows] = _products(counts.rows(rows), weights_of_features(profiles * factors, counts))
        totals = np.where(counts.row_totals > 0, found.sum(axis=1), 0.0)[:, None]
    return np.divide(found, totals, out=np.full_like(found, np.nan), where=totals > 0)


def profiles_of(exposed: Array) -> Array:
    """Return exposed components (K, m) as shares of features."""
    return rows_to_shares(exposed, component_sums(exposed)).astype(np.float64)


def weights_of_features(profiles: Array, counts: Counts) -> Array:
    """Return the weights (m, K) with which sums of the counts of a sample estimate its counts of each component.

    They are D⁻¹ Fᵀ (F D⁻¹ Fᵀ)⁻¹, where F are the profiles and D the counts of the features in all samples.
    """
    totals = counts.feature_totals
    scaled = np.divide(profiles, totals, out=np.zeros_like(profiles), where=totals > 0)
    return np.asarray((np.linalg.pinv(scaled @ profiles.T, hermitian=True) @ scaled).T)


def _products(counts: Counts, weights: Array) -> Array:
    return np.concatenate([np.asarray(part.matrix @ weights, np.float64) for _, part in counts.parts()])


def warn_of_shares(shares: Array, groups: list[str], members: list[Array], components: list[str]) -> None:
    """Warn if the mean share of a component in a group is outside [0, 1] by more than chance and `SMALL`.

    Single samples often are, by chance alone; the mean of a group only if the components do not describe its samples.
    """
    found = []
    for name, rows in zip(groups, members, strict=True):
        if len(rows) > 1:
            mean = shares[rows].mean(axis=0)
            beyond = np.maximum(-mean, mean - 1) - SMALL
            beyond -= FAR * shares[rows].std(axis=0, ddof=1) / np.sqrt(len(rows))
            found += [(float(beyond[k]), f"{mean[k]:.2f} of {components[k]} in group {name!r}")
                      for k in np.flatnonzero(beyond > 0)]  # fmt: skip
    if found:
        warn_of_data(
            f"mean shares leave [0, 1] in {len(found)} of {shares.shape[1] * len(groups)} pairs of group and component "
            f"({max(found)[1]}): the components do not describe these samples, and differences are cut at 1; fit "
            "these samples too or with more components, or compare them alone, with population=False"
        )
