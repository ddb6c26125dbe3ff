"""Negative binomial noise, of linear or of quadratic variance.

An entry with mean λ and dispersion s or α has, with L(x, λ, s) = Σ_{t<x} log(λ + ts), the log probability

    linear variance        L(x, λ, s) − x log(1 + s) − (λ / s) log(1 + s) − log x!
    quadratic variance     x log λ + L(x, 1, α) − (x + 1 / α) log(1 + αλ) − log x!

Given the totals N of rows, counts of linear variance are Dirichlet-multinomial with concentrations λ / s.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from scipy.special import digamma, gammaln, polygamma, xlogy

from bayesnmf.checks import check_choice, check_dispersion
from bayesnmf.noise.abilities import LEAST, WHOSE, Dispersed, FeatureGroups, Noise, WithRates
from bayesnmf.noise.checks import check_number_of_dispersions, check_one_dispersion
from bayesnmf.noise.poisson import POISSON
from bayesnmf.types import Array

if TYPE_CHECKING:
    from bayesnmf.kernels.cpu import dispersed_draws as kernel

SMALL = 1e-4  # dispersions below which log(1 + s) / s and its derivatives are series
MANY = 20.0  # 1/s from which on log Γ is a series
CENTRE, WIDTH = np.log(0.3), 2.0  # of the normal prior of the logarithm of a dispersion


def exposure_of(dispersion: Any) -> Any:
    """Return e = log(1 + s) / s, the mean number of clusters of one count."""
    s = np.maximum(dispersion, LEAST)
    return np.where(s < SMALL, 1 - s / 2 + s * s / 3, np.log1p(s) / s)


def log_rising(x: Array, s: Any) -> tuple[Array, Array, Array]:
    """Return L(x, 1, s) = log Γ(x + 1/s) − log Γ(1/s) + x log s, and both derivatives in log s, of x ≥ 0 of any kind.

    For 1/s above `MANY` from the series of Stirling, whose leading terms are cancelled beforehand.
    """
    a = 1.0 / np.maximum(s, LEAST)
    if a < MANY:
        once, twice = digamma(a + x) - digamma(a) - x / a, polygamma(1, a + x) - polygamma(1, a) + x / a**2
        return gammaln(a + x) - gammaln(a) - x * np.log(a), -a * once, a * once + a * a * twice
    y, both = x / a, a + x
    ends = [end - start for end, start in zip(_stirling(both), _stirling(a), strict=True)]
    once = np.log1p(y) - y + y / (2 * both) + ends[1]
    curved = x * x / both - x * (a + both) / (2 * both**2) + a * a * ends[2]
    return (both - 0.5) * np.log1p(y) - x + ends[0], -a * once, a * once + curved


def _stirling(z: Any) -> tuple[Any, Any, Any]:
    """Return what the series of log Γ(z) adds to (z − ½) log z − z + ½ log 2π, and both derivatives."""
    v = 1 / z
    found = v / 12 - v**3 / 360 + v**5 / 1260
    return found, -(v**2) / 12 + v**4 / 120 - v**6 / 252, v**3 / 6 - v**5 / 30 + v**7 / 42


@dataclass(frozen=True, eq=False)
class NegativeBinomial(WithRates):
    """Negative binomial noise: counts vary more than Poisson counts of the same expected value λ.

    With linear variance, λ (1 + s), counts come in clusters, as words do that are repeated once they are used; with
    quadratic variance, λ + α λ², the rate of every entry varies by √α of itself. A dispersion that is not given is
    learned with the fit, with a log-normal prior of median 0.3 and factor e² (half of its mass is between 0.08 and
    1.2), so that a row or feature of few counts has one near 0.3.

    Parameters
    ----------
    variance : {"linear", "quadratic"}
        How the variance grows with the expected value.
    dispersion : float, array, "row", "feature" or "matrix", optional
        s or α, at least 0, of all entries; or words that say that each row, each feature or each of several matrices
        has its own. By default one that is learned for all entries, or for each matrix.
    by : {"row", "feature", "matrix"}, optional
        Whose the dispersions of an array are.
    groups : FeatureGroups, optional
        Which features are of which matrix; `bayesnmf.fit` says so.

    Raises
    ------
    TypeError, ValueError
        A dispersion that is no such number or word; an array without `by`.

    See Also
    --------
    bayesnmf.fit : Its argument `noise` takes this object, or the words "nb1" (linear) and "nb2" (quadratic).

    Examples
    --------
    >>> import bayesnmf
    >>> fit = bayesnmf.fit([[30, 0, 9], [0, 21, 14]], rank=1, seed=0, noise=bayesnmf.NegativeBinomial(dispersion=0.5))
    >>> fit.noise
    NegativeBinomial('linear', dispersion=0.5)
    """

    variance: Literal["linear", "quadratic"] = "linear"
    dispersion: Any = None
    by: Literal["row", "feature", "matrix"] | None = None
    groups: FeatureGroups | None = None
    combines: ClassVar[bool] = True
    with_supports: ClassVar[bool] = True
    has_program: ClassVar[bool] = True
    cures_excess: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_choice(self.variance, "variance", ("linear", "quadratic"))
        if self.by is not None:
            check_choice(self.by, "by", WHOSE)
        if isinstance(self.dispersion, str):
            own = check_choice(self.dispersion, "dispersion", WHOSE)
            check_choice(self.by or own, "by", (own,))
            object.__setattr__(self, "by", own)
            object.__setattr__(self, "dispersion", None)
        if self.dispersion is not None:
            object.__setattr__(self, "dispersion", check_dispersion(self.dispersion, self.by))
        if isinstance(self.dispersion, np.ndarray):
            kept = self.dispersion.copy()
            kept.setflags(write=False)
            object.__setattr__(self, "dispersion", kept)

    @property
    def word(self) -> str:  # type: ignore[override]
        """Short name."""
        return "nb1" if self.in_clusters else "nb2"

    @property
    def in_clusters(self) -> bool:
        """Whether counts come in clusters."""
        return self.variance == "linear"

    @property
    def has_entry_rates(self) -> bool:
        """Whether entries have rates."""
        return self.variance == "quadratic"

    @property
    def given_totals(self) -> bool:
        """Whether counts can be drawn given the totals of rows."""
        return self.in_clusters and not self.by_feature

    def example(self) -> NegativeBinomial:
        """Return a noise of this variance with a known dispersion."""
        return NegativeBinomial(self.variance, 0.5)

    def of_matrix(self, code: int) -> Noise:
        """Return the noise of one of several matrices."""
        if self.by != "matrix":
            return self
        poisson = self.groups is not None and self.groups.given[code] == 0
        return POISSON if poisson else NegativeBinomial(self.variance, float(np.asarray(self.dispersion)[code]))

    def of_matrices(self, codes: Array, names: tuple[str, ...]) -> NegativeBinomial:
        """Return the noise of several matrices, each with a dispersion of its own unless one is given for all."""
        if self.by != "matrix" and (self.by or self.known):
            return self
        given = np.full(len(names), np.nan) if self.dispersion is None else np.asarray(self.dispersion)
        given = given if self.known or self.groups is None else self.groups.given
        check_number_of_dispersions(given, names, self.dispersion)
        return replace(self, by="matrix", groups=FeatureGroups(codes, given))

    def of_program(self) -> dict[str, Any]:
        """Return the arguments that say it to the NumPyro program of a model."""
        return {"dispersion": self.entry_dispersions, "variance": self.variance}

    def combined(self, every: list[Noise], codes: Array) -> NegativeBinomial:
        """Return the noise of several matrices from that of each; Poisson noise has dispersion 0."""
        check_one_dispersion(every)
        given = [each.dispersion if isinstance(each, Dispersed) else 0.0 for each in every]
        dispersions = np.array([np.nan if each is None else float(each) for each in given])
        known = None if np.isnan(dispersions).any() else dispersions
        return NegativeBinomial(self.variance, known, "matrix", FeatureGroups(codes, dispersions))

    def thinned(self, keep: float) -> NegativeBinomial:
        """Return the noise of counts of which every single one is kept with this probability."""
        if self.has_entry_rates or self.dispersion is None:
            return self
        return self.with_dispersion(keep * np.asarray(self.dispersion)[()])

    def in_words(self, matrices: Any = None) -> str:
        """Return how the variance grows."""
        return f"negative binomial noise: {self._variance_in_words(matrices)}"

    def _variance_in_words(self, matrices: Any) -> str:
        if self.by is None:
            s = float(self.dispersion)
            return f"variance {1 + s:.3g} × mean" if self.in_clusters else f"variance mean + {s:.3g} × mean²"
        what = "variance (1 + s) × mean, s" if self.in_clusters else "variance mean + α × mean², α"
        if matrices is not None and self.by == "matrix":
            return (
                f"{what} {', '.join(f'{s:.2g} of {name}' for name, s in zip(matrices, self.dispersion, strict=True))}"
            )
        low, high = np.quantile(self.dispersion, (0.05, 0.95))
        return f"{what} {low:.2g} to {high:.2g} by {self.by}"

    def log_pmf(self, counts: Array, means: Array, places: Any = None, log_factorials: Any = None) -> Array:
        """Return log p of each count given its mean, in nats."""
        from bayesnmf.kernels.cpu.clusters import sums_of_entries

        log_factorials = gammaln(counts + 1) if log_factorials is None else log_factorials
        s, some = self.of_places(counts.shape, places), counts > 0
        x, rates, own, found = counts[some], means[..., some], s[some], np.zeros(means.shape)
        if self.in_clusters:
            rising = sums_of_entries(np.broadcast_to(x, rates.shape), rates, own)[:, 0].reshape(rates.shape)
            found[..., some] = np.where(rates > 0, rising, -np.inf) - x * np.log1p(own)
            return np.asarray(found - means * exposure_of(s) - log_factorials)
        found[..., some] = xlogy(x, rates) + sums_of_entries(x, np.ones_like(own), own)[:, 0]
        return np.asarray(found - (counts + 1 / s) * np.log1p(s * means) - log_factorials)

    def variances(self, expected: Array) -> Array:
        """Return λ (1 + s) or λ + α λ²."""
        s = self.entry_dispersions
        return np.asarray(expected * (1 + s) if self.in_clusters else expected * (1 + s * expected))

    def zeros(self, means: Array) -> Array:
        """Return the probability of a count of 0 at each of the means (n, m)."""
        s = self.entry_dispersions
        return np.exp(-means * exposure_of(s) if self.in_clusters else -np.log1p(s * means) / s)

    def draw(self, means: Array, rng: np.random.Generator) -> Array:
        """Draw a count for each of the means (n, m): a rate from a Gamma distribution first."""
        s = self.entry_dispersions
        shapes, scales = (means / s, s) if self.in_clusters else (np.broadcast_to(1 / s, means.shape), means * s)
        return rng.poisson(scales * rng.gamma(shapes))

    def draw_given_totals(self, totals: Array, shares: Array, rng: np.random.Generator) -> Array:
        """Draw Dirichlet-multinomial counts (n, m)."""
        s = self.entry_dispersions
        return rng.multinomial(totals, _drawn_shares(np.maximum(totals, 1)[:, None] * shares / s, rng))

    def compiled(self, size: tuple[int, int]) -> kernel.Noise:
        """Return the noise as compiled draws take it."""
        from bayesnmf.kernels.cpu import dispersed_draws as kernel

        (n, m), s = size, self.entry_dispersions.ravel()
        kind = kernel.LINEAR if self.in_clusters else kernel.QUADRATIC
        rows, features = (np.ones(n), s) if self.by_feature else (np.broadcast_to(s, (n,)).copy(), np.ones(m))
        return kernel.Noise(kind, rows, np.array(features), self.by_feature)

    def log_likelihood(self, counts: Any, loadings: Array, components: Array, given_totals: bool) -> float:
        """Return log p(X | loadings @ components) of the observed entries, in nats."""
        from bayesnmf.kernels.cpu.likelihood import entry_rates

        if np.any(entry_rates(counts.matrix, loadings, components) <= 0):
            return -np.inf
        if self.has_entry_rates:
            return super().log_likelihood(counts, loadings, components, given_totals)
        logs = (self._given if given_totals else self._clustered)(counts, loadings, components)
        return logs - counts.log_factorial

    def _clustered(self, counts: Any, loadings: Array, components: Array) -> float:
        """Return ΣL − Σx log(1 + s) − Σλ e(s)."""
        from bayesnmf.kernels.cpu.clusters import cluster_sums

        s, mask = self.entry_dispersions, counts.mask
        rows, features = np.ones(counts.shape[0]), None
        left, right, totals = loadings, components, counts.row_totals
        if self.by_feature:
            features, right, totals = s.ravel(), components * exposure_of(s), counts.feature_totals
        else:
            rows, left = np.broadcast_to(s.ravel(), rows.shape).copy(), loadings * exposure_of(s)
        logs = cluster_sums(counts.matrix, loadings, components, (rows, features))[:, 0].sum()
        exposure = left.sum(axis=0) @ right.sum(axis=1)
        if mask is not None:
            exposure -= mask.products_by_row(left, right.T).sum()
        return float(logs - (totals * np.log1p(s.ravel())).sum() - exposure)

    def _given(self, counts: Any, loadings: Array, components: Array) -> float:
        """Return Σ(L − L(N, Λ, s)) + Σ(N log Λ − Λ) with sums Λ of means; dispersions are for means with sums N."""
        from bayesnmf.kernels.cpu.clusters import cluster_sums, sums_of_entries

        totals, sums = counts.row_totals, loadings @ components.sum(axis=1)
        s = self.entry_dispersions.ravel() * sums / np.maximum(totals, 1.0)
        logs = cluster_sums(counts.matrix, loadings, components, (s, None))[:, 0]
        return float((logs - sums_of_entries(totals, sums, s)[:, 0] + xlogy(totals, sums) - sums).sum())

    def sum_of_squares(self, loadings: Array, components: Array) -> float:
        """Return the sum of the expected squares of counts with means loadings @ components, in O((n + m) K²)."""
        more, plain = 1.0 + self.entry_dispersions, (loadings, components)
        weighted = (loadings, components * more) if self.by_feature else (loadings * more, components)
        first, second = (weighted, plain) if self.in_clusters else (plain, weighted)
        squares = float(np.sum((second[0].T @ loadings) * (second[1] @ components.T)))
        return squares + float(first[0].sum(axis=0) @ first[1].sum(axis=1))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NegativeBinomial):
            return NotImplemented
        return self.variance == other.variance and self.same_as(other)

    def __hash__(self) -> int:
        return hash((self.variance, self.by))

    def __repr__(self) -> str:
        return f"NegativeBinomial({', '.join(filter(None, [repr(self.variance), self.shown_dispersion()]))})"

    def log_prior(self, s: Array) -> Array:
        """Return the log density of a normal distribution of log s, up to a constant."""
        return -((np.log(s) - CENTRE) ** 2) / (2 * WIDTH**2)

    def derivatives_of_prior(self, s: Array) -> tuple[Array, Array]:
        """Return both derivatives of the log prior by log s."""
        return -(np.log(s) - CENTRE) / WIDTH**2, np.full(np.shape(s), -1 / WIDTH**2)

    @property
    def widest(self) -> float:
        """Standard deviation of the logarithm of a dispersion of which the counts say nothing."""
        return WIDTH

    def expected_rates(self, x: Array, rho: Array, s: Array) -> tuple[Array, float]:
        """Return the means of Gamma(x + 1/α, ρ + 1/α), and Σ ερ − (x + 1/α) log(1 + αρ)."""
        from bayesnmf.kernels.cpu.entry_rates import gamma_rates

        return gamma_rates(x, rho, s)

    def expected_rates_alone(self, x: Array, rho: Array, s: Array) -> Array:
        """Return the means of Gamma(x + 1/α, ρ + 1/α), without logarithms."""
        from bayesnmf.kernels.cpu.entry_rates import gamma_rates

        return gamma_rates(x, rho, s, gains=False)[0]

    def drawn_rates(self, x: Array, means: Array, s: Array, seed: int, first: int) -> Array:
        """Draw from Gamma(x + 1/α, λ + 1/α)."""
        from bayesnmf.kernels.cpu.draws import gamma_draws

        return np.asarray(gamma_draws(x + 1 / s, seed, 1, first_row=first) / (means + 1 / s))

    def sums_of_sizes(self, counts: Any, dispersions: Array) -> Array:
        """Return ΣL, Σ(x − W) and Σ(x − 2W + V) at λ = 1 of each row, or feature, or all for one dispersion."""
        from bayesnmf.kernels.cpu.clusters import cluster_sums, sums_of_entries

        if self.by is None:
            x, times = counts.sizes
            L, W, V = sums_of_entries(x, np.ones(len(x)), float(dispersions[0])).T
            return np.array([[times @ L, times @ (x - W), times @ (x - 2 * W + V)]])
        s = np.asarray(self.of_lines(dispersions))

        def of_lines(rows: slice, part: Any) -> Array:
            matrix, own = (part.transposed, s) if self.by_feature else (part.matrix, s[rows])
            ones = [np.ones((length, 1)) for length in matrix.shape]
            return cluster_sums(matrix, ones[0], ones[1].T, (own, None))

        found = [of_lines(rows, part) for rows, part in counts.plain.parts()]
        return np.sum(found, axis=0) if self.by_feature else np.concatenate(found)

    def log_terms(self, x: Array, rho: Array, s: Array) -> Array:
        """Return −(x + 1/α) log(1 + αρ)."""
        return -((x + 1 / s) * np.log1p(s * rho))

    def derivatives_of_terms(self, x: Array, rho: Array, s: Array) -> tuple[Array, Array]:
        """Return both derivatives of −(x + 1/α) log(1 + αρ) in log α."""
        from bayesnmf.kernels.cpu.entry_rates import gamma_slopes

        return gamma_slopes(x, rho, s)


def _drawn_shares(concentrations: Array, rng: np.random.Generator) -> Array:
    """Draw from Dirichlet distributions, from the logarithms of Gamma draws, which do not underflow."""
    small = np.maximum(concentrations, np.finfo(np.float64).tiny)
    logs = np.log(rng.gamma(small + 1.0)) + np.log1p(-rng.random(small.shape)) / small
    drawn = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(drawn / drawn.sum(axis=1, keepdims=True))
