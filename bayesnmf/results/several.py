"""One of several matrices of a fit: a fit of its counts, with its features of the components.

Components are cut to its features, with the loadings that belong to them.

Components on the simplex of all features are those on the simplex of some times a share, as a Dirichlet distribution
says: b_k = (w_k f_k, …) with independent shares w_k ~ Beta(Σα of these features, Σα of the others), and f_k Dirichlet
with the α of these features. So the components of some features are f, and their loadings are those of all times w:
expected counts of these features. Draws and points are exact. Under q the components are, and so are mean and variance
of Gamma loadings and of scales, which stay Gamma distributions; proportions have a Dirichlet distribution with the mean
and the sum of variances that the delta method gives. Gamma components have no sum, so that loadings stay as they are.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from bayesnmf.checks import check_fraction
from bayesnmf.data.several import check_several
from bayesnmf.noise.abilities import Noise
from bayesnmf.options import Start
from bayesnmf.priors import Dirichlet, Gamma, Priors, ScaledDirichlet
from bayesnmf.priors.pair import replace_sides
from bayesnmf.priors.partly_known import PartlyKnown
from bayesnmf.priors.specification import PARAMETER, on_simplex
from bayesnmf.priors.values import joined, rows_to_shares
from bayesnmf.results.draws import restrict_rows
from bayesnmf.results.estimates import Draws, Point, VariationalPosterior
from bayesnmf.results.intervals import for_intervals
from bayesnmf.results.record import DISPERSION, OF_MATRIX, FitRecord, iterate_draws
from bayesnmf.types import Array

DRAWS = 200


def matrix_of(fit: FitRecord, name: str) -> FitRecord:
    """Return the fit of one of several matrices: of the rows that it has, with its own names of features.

    Raises
    ------
    ValueError
        A fit of one matrix, or another name.
    """
    counts = check_several(fit.counts)
    fit = replace(fit, intervals=for_intervals(fit).intervals)  # those of all matrices
    features, rows = counts.features_of(name), counts.rows_of(name)
    weight = float(counts.matrices.weights[counts.matrices.code(name)])
    part = fit if len(rows) == counts.shape[0] else _of_rows(fit, rows)
    cut = (ShareOfComponents if on_simplex(fit.priors.components) else CutComponents)(part, features, weight)
    priors = replace_sides(part.priors, loadings=cut.loadings_prior(), components=cut.prior(fit.priors.components))
    loadings, scale, components = cut.point()
    own = counts.of(name)
    share = float(part.counts.feature_totals[features].sum() / max(part.counts.total, 1.0))
    return replace(
        part,
        counts=own,
        diagnostics={**part.diagnostics, OF_MATRIX: share},
        noise=_noise(part.noise, features, counts.matrices.code(name)),
        loadings=loadings,
        scale=scale,
        components=components,
        priors=priors,
        options=_options(fit.options, priors),
        residuals=None,
        reference=None,
        multipliers=None if part.multipliers is None else (part.multipliers[0], part.multipliers[1][:, features]),
        statistics=_statistics(part, features, counts.matrices.code(name)),
        moments=cut.moments(),
        intervals=part.intervals and replace(part.intervals, draws=cut.draws(part.intervals.draws)),
        estimate=cut.estimate(),
    )


def _of_rows(fit: FitRecord, rows: Array) -> FitRecord:
    """Return the fit of some rows, with their priors."""
    given: Any = fit.priors.loadings
    return replace(restrict_rows(fit, rows), priors=replace_sides(fit.priors, loadings=given.rows(rows)))


def shares_of_matrices(fit: FitRecord, interval: float = 0.9) -> Any:
    """Return the share of each matrix in the expected counts of each component, as a table.

    Parameters
    ----------
    fit : Fit
        Fit of several matrices.
    interval : float
        Probability of the central intervals.

    Returns
    -------
    DataFrame
        By component and matrix: ``share``, and ``lower`` and ``upper`` where there is a posterior. Shares of a
        component sum to 1, for a row with all features; weights of matrices do not count.
    """
    import pandas as pd

    matrices, tail = check_several(fit.counts).matrices, (1 - check_fraction(interval, "interval")) / 2
    number = len(matrices.names)
    of_matrices = np.eye(number)[matrices.codes] / matrices.weights  # (m, matrices)
    read = for_intervals(fit)
    sums = np.stack([components @ of_matrices for _, components in iterate_draws(read, DRAWS, 0)])
    shares = rows_to_shares(sums, sums.sum(axis=-1))
    index = pd.MultiIndex.from_product([fit.component_labels, matrices.names], names=["component", "matrix"])
    table = pd.DataFrame({"share": shares.mean(axis=0).ravel()}, index=index)
    if read.estimate.kind != "point":
        low, high = np.quantile(shares, (tail, 1 - tail), axis=0)
        table["lower"], table["upper"] = low.ravel(), high.ravel()
    return table


def _options(options: Any, priors: Priors) -> Any:
    """Return the options for one matrix, without a start for all."""
    changed: dict[str, Any] = {"priors": priors}
    if isinstance(getattr(options, "start", None), Start):
        changed["start"] = next(each.default for each in fields(options) if each.name == "start")
    return replace(options, **changed)


def _noise(noise: Noise, features: Array, code: int) -> Noise:
    """Return the noise of one matrix."""
    return noise.of_matrix(code) if noise.by == "matrix" else noise.of_features(features)


def _statistics(fit: FitRecord, features: Array, code: int) -> dict[str, Array] | None:
    """Return the statistics of draws, with the dispersions of one matrix or of its features if these have their own."""
    by = fit.noise.by
    if fit.statistics is None or DISPERSION not in fit.statistics or by not in ("feature", "matrix"):
        return fit.statistics
    return {**fit.statistics, DISPERSION: fit.statistics[DISPERSION][:, :, code if by == "matrix" else features]}


class CutComponents:
    """Components that are cut to some features, beside loadings that stay as they are.

    Parameters
    ----------
    fit : FitRecord
        Fit of the rows of the matrix.
    features : ndarray
        Positions of the features.
    weight : float
        Weight of the matrix, which its components are cleared of.
    """

    def __init__(self, fit: FitRecord, features: Array, weight: float) -> None:
        self.fit, self.features, self.weight = fit, features, weight

    def cut(self, values: Any) -> Any:
        """Return values (…, m) of the features; those that all features share stay as they are."""
        whole = np.ndim(values) > 0 and np.shape(values)[-1] == self.fit.components.shape[1]
        return np.asarray(values)[..., self.features] if whole else values

    def prior(self, given: Any) -> Any:
        """Return the prior, or q, of the components of these features."""
        if given is None or given == PARAMETER:
            return given
        if isinstance(given, PartlyKnown):
            return replace(given, known=self.known(given.known), free=self.prior(given.free))
        found = given.mapped(self.cut)
        named = [name for name in found.with_unit if self.weight != 1]
        return found.with_parameters(
            {**found.parameters, **{each: getattr(found, each) * self.weight for each in named}}
        )

    def known(self, components: Array) -> Array:
        """Return known components of these features."""
        return np.asarray(self.cut(components) / self.weight)

    def loadings_prior(self) -> Any:
        """Return the prior of the loadings."""
        return self.fit.priors.loadings

    def point(self) -> tuple[Array, Array | None, Array]:
        """Return loadings, scale and components of the fit."""
        return self.fit.loadings, self.fit.scale, self.cut(self.fit.components) / self.weight

    def draws(self, drawn: Draws) -> Draws:
        """Return draws of the components of these features."""
        return replace(drawn, components=self.cut(drawn.components) / self.weight)

    def posterior(self, q: VariationalPosterior) -> VariationalPosterior:
        """Return q of the components of these features."""
        return replace(q, components=self.prior(q.components))

    def estimate(self) -> Point | VariationalPosterior | Draws:
        """Return the estimate."""
        given = self.fit.estimate
        if isinstance(given, Draws):
            return self.draws(given)
        return self.posterior(given) if isinstance(given, VariationalPosterior) else given

    def moments(self) -> dict[str, Array] | None:
        """Return moments of all draws."""
        if self.fit.moments is None:
            return None
        found = {
            name: self.cut(value) if name.startswith("components") else value
            for name, value in self.fit.moments.items()
        }
        return {**found, "components_sd": found["components_sd"] / self.weight}


class ShareOfComponents(CutComponents):
    """Components on the simplex of some features, beside loadings times the share that they have in all features."""

    def shares_at(self, components: Array) -> Array:
        """Return the share that the features have in components (…, K, m), without the weight, (…, K)."""
        return np.asarray(components[..., self.features].sum(axis=-1) / self.weight)

    def known(self, components: Array) -> Array:
        """Return known components of these features."""
        own = components[..., self.features]
        return rows_to_shares(own, own.sum(axis=-1))

    def prior(self, given: Any) -> Any:
        """Return the prior, or q, of the components of these features."""
        if given is None or given == PARAMETER or isinstance(given, PartlyKnown):
            return super().prior(given)
        return given.mapped(self.cut)

    def loadings_prior(self) -> Any:
        """Return the prior of the loadings: a rate is that of the expected counts of this matrix."""
        prior: Any = self.fit.priors.loadings
        share = np.maximum(self.shares_at(self.fit.components), np.finfo(np.float64).tiny)
        plain = getattr(prior, "plain", prior)  # of one that depends on covariates
        if not isinstance(plain, Gamma):
            return prior
        own = replace(plain, rate=np.asarray(plain.rate) / share)
        return own if plain is prior else replace(prior, plain=own)

    def point(self) -> tuple[Array, Array | None, Array]:
        """Return loadings, scale and components of the fit: the mean of draws, if there are any."""
        given = self.fit.estimate
        if isinstance(given, Draws):
            of_draws = self.draws(given)
            parts = (of_draws.loadings, of_draws.scale, of_draws.components)
            return tuple(None if each is None else each.mean(axis=(0, 1)) for each in parts)  # type: ignore[return-value]
        if isinstance(given, VariationalPosterior):
            q = self.posterior(given)
            scale = q.loadings.scale.mean()[:, 0] if isinstance(q.loadings, ScaledDirichlet) else None
            mean = q.loadings.proportions.mean() if scale is not None else q.loadings.mean()
            return mean, scale, self.known(self.fit.components)
        return self.values(self.fit.loadings, self.fit.scale, self.fit.components)

    def values(self, loadings: Array, scale: Array | None, components: Array) -> tuple[Array, Array | None, Array]:
        """Return loadings (…, n, K), scale (…, n) and components (…, K, m) of these features."""
        found = loadings * self.shares_at(components)[..., None, :]
        if self.fit.priors.loadings.support != "positive":  # type: ignore[union-attr]
            sums = found.sum(axis=-1)
            found, scale = rows_to_shares(found, sums), None if scale is None else scale * sums
        return found, scale, self.known(components)

    def draws(self, drawn: Draws) -> Draws:
        """Return draws of the components of these features."""
        loadings, scale, components = self.values(drawn.loadings, drawn.scale, drawn.components)
        return Draws(loadings, components, scale)

    def posterior(self, q: VariationalPosterior) -> VariationalPosterior:
        """Return q of the components of these features, and of loadings times their shares."""
        first, second = self._share_moments(q.components)
        own: Any = q.loadings
        if isinstance(own, Gamma):
            loadings: Any = _gamma_of(*_times(own, first, second))
        else:
            a = np.asarray(own.concentration)
            loadings = _tilted(a, first, second)
            if isinstance(own, ScaledDirichlet):
                scale = _gamma_of(*_times(own.scale, *_sum_moments(a, first, second)))
                loadings = ScaledDirichlet(loadings.concentration, scale.shape, scale.rate)
        return VariationalPosterior(loadings, self.prior(q.components))

    def _share_moments(self, q: Any) -> tuple[Array, Array]:
        """Return the mean and the mean square of the shares of the features under q, (K,) each."""
        if q is None:
            share = self.shares_at(self.fit.components)
            return share, share**2
        if isinstance(q, PartlyKnown):
            known = self.shares_at(q.known)
            free = self._share_moments(q.free) if len(q.known) < self.fit.rank else (np.zeros(0), np.zeros(0))
            sides = zip((known, known**2), free, strict=True)
            return tuple(joined(one[:, None], two[:, None], q.at)[:, 0] for one, two in sides)  # type: ignore[return-value]
        a = np.asarray(q.concentration, np.float64)
        part, whole = a[:, self.features].sum(axis=1), a.sum(axis=1)
        return part / whole / self.weight, part * (part + 1) / (whole * (whole + 1)) / self.weight**2

    def moments(self) -> None:
        """Return None: moments of all draws do not tell those of loadings times shares."""
        return


def _times(q: Gamma, first: Array, second: Array) -> tuple[Array, Array]:
    """Return mean and mean square of a Gamma variable times an independent one with these."""
    shape, rate = np.asarray(q.shape, np.float64), np.asarray(q.rate, np.float64)
    return shape / rate * first, shape * (shape + 1) / rate**2 * second


def _gamma_of(first: Array, second: Array) -> Gamma:
    """Return the Gamma distribution with this mean and mean square."""
    shape = first**2 / (second - first**2)
    return Gamma(shape, shape / first)


def _sum_moments(a: Array, first: Array, second: Array) -> tuple[Array, Array]:
    """Return mean and mean square of Σ p w for p ~ Dirichlet(a), (n, K), and independent w, (n, 1) each."""
    whole = a.sum(axis=1, keepdims=True)
    mean = (a @ first)[:, None]
    square = mean**2 + (a**2 @ (second - first**2) + a @ second)[:, None]
    return mean / whole, square / (whole * (whole + 1))


def _tilted(a: Array, first: Array, second: Array) -> Dirichlet:
    """Return about the distribution of p w / Σ p w for p ~ Dirichlet(a), (n, K), and independent w.

    It has the mean and the sum of variances of the delta method, at entries a w of independent Gamma variables.
    """
    mean, variance = a * first, a * (a + 1) * second - (a * first) ** 2
    whole = mean.sum(axis=1, keepdims=True)
    share = mean / whole
    others = variance.sum(axis=1, keepdims=True) - variance
    spread = ((1 - share) ** 2 * variance + share**2 * others).sum(axis=1, keepdims=True) / whole**2
    total = np.where(
        spread > 0, (share * (1 - share)).sum(axis=1, keepdims=True) / np.where(spread > 0, spread, 1), whole
    )
    return Dirichlet(share * total)
