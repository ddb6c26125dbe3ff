"""Zero-inflated Poisson noise.

An entry with mean λ is 0 whatever its mean with probability π, and else Poisson:

    log p(0) = log(π + (1 − π) e^−λ)          log p(x) = log(1 − π) + x log λ − λ − log x!

Given which zeros are of the first kind, everything is Poisson: a zero has the rate 0 or 1, and expects the probability
(1 − π) e^−λ / (π + (1 − π) e^−λ) that it is of the second kind. It is convex in λ, so that this bounds it below.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.special import gammaln, xlogy

from bayesnmf.checks import check_choice
from bayesnmf.noise.abilities import WithRates
from bayesnmf.noise.checks import check_share
from bayesnmf.types import Array

A, B = 1.0, 2.0  # of the Beta prior of a share


@dataclass(frozen=True, eq=False)
class ZeroInflated(WithRates):
    """Zero-inflated Poisson noise: a share of the entries is 0 whatever their expected values.

    The other entries are Poisson. So components describe the counts where a feature shows at all, and `fit.expected`
    has the expected counts, 1 − share times as many. A share that is not given is learned with the fit, with a
    Beta(1, 2) prior.

    Parameters
    ----------
    share : float, array, "row" or "feature", optional
        Share of such zeros, from 0 to 1, of all entries; or a word that says that each row or each feature has its own.
        By default one that is learned for all entries.
    by : {"row", "feature"}, optional
        Whose the shares of an array are.

    Raises
    ------
    TypeError, ValueError
        A share that is no such number or word; an array without `by`.

    See Also
    --------
    bayesnmf.fit : Its argument `noise` takes this object, or the word "zip".
    NegativeBinomial : Counts that vary more, with more zeros for that reason.

    Examples
    --------
    >>> import bayesnmf
    >>> fit = bayesnmf.fit([[30, 0, 9], [0, 21, 14]], rank=1, seed=0, noise=bayesnmf.ZeroInflated(share=0.3))
    >>> fit.noise
    ZeroInflated(share=0.3)
    """

    share: Any = None
    by: Literal["row", "feature"] | None = None
    word: ClassVar[str] = "zip"
    hides_means: ClassVar[bool] = True
    parameter: ClassVar[str] = "share"
    largest: ClassVar[float] = 1 - 1e-10
    first: ClassVar[float] = 0.1

    def __post_init__(self) -> None:
        share: Any = self.share
        by: Any = self.by
        if isinstance(share, str):
            by, share = check_choice(share, "share", ("row", "feature")), None
            check_choice(self.by or by, "by", (by,))
        elif by is not None:
            check_choice(by, "by", ("row", "feature"))
        object.__setattr__(self, "by", by)
        object.__setattr__(self, "share", None if share is None else check_share(share, by))

    @property
    def dispersion(self) -> Any:
        """The share."""
        return self.share

    def example(self) -> ZeroInflated:
        """Return one with a known share."""
        return ZeroInflated(0.1)

    def thinned(self, keep: float) -> ZeroInflated:
        """Return the same noise: entries of the first kind stay 0, and others stay Poisson."""
        return self

    def in_words(self, matrices: Any = None) -> str:
        """Return the share, or the range of most of them."""
        if self.by is None:
            return f"zero-inflated Poisson noise: {float(self.share):.3g} of the entries are 0 whatever their means"
        low, high = np.quantile(self.share, (0.05, 0.95))
        return f"zero-inflated Poisson noise: {low:.2g} to {high:.2g} of the entries are 0 by {self.by}"

    def log_pmf(self, counts: Array, means: Array, places: Any = None, log_factorials: Any = None) -> Array:
        """Return log p of each count given its mean, in nats."""
        log_factorials = gammaln(counts + 1) if log_factorials is None else log_factorials
        s = self.of_places(counts.shape, places)
        poisson = np.log1p(-s) + xlogy(counts, means) - means - log_factorials
        return np.asarray(np.where(counts > 0, poisson, np.logaddexp(np.log(s), np.log1p(-s) - means)))

    def expected(self, means: Array) -> Array:
        """Return (1 − π) λ."""
        return np.asarray((1 - self.entry_dispersions) * means)

    def factors_of_expected(self, loadings: Array, components: Array) -> tuple[Array, Array]:
        """Return factors of (1 − π) λ."""
        kept = 1 - self.entry_dispersions
        return (loadings, components * kept) if self.by_feature else (loadings * kept, components)

    def variances(self, expected: Array) -> Array:
        """Return (1 − π) λ (1 + π λ)."""
        s = self.entry_dispersions
        return np.asarray(expected * (1 + s / (1 - s) * expected))

    def zeros(self, means: Array) -> Array:
        """Return π + (1 − π) e^−λ."""
        s = self.entry_dispersions
        return np.asarray(s + (1 - s) * np.exp(-means))

    def draw(self, means: Array, rng: np.random.Generator) -> Array:
        """Draw a count for each of the means (n, m)."""
        return np.where(rng.random(means.shape) < self.entry_dispersions, 0, rng.poisson(means))

    def sum_of_squares(self, loadings: Array, components: Array) -> float:
        """Return Σ (1 − π) (λ + λ²)."""
        left, right = self.factors_of_expected(loadings, components)
        squares = float(np.sum((left.T @ loadings) * (right @ components.T)))
        return squares + float(left.sum(axis=0) @ right.sum(axis=1))

    def log_prior(self, s: Array) -> Array:
        """Return the log density of log π for π from a Beta distribution, up to a constant; −∞ from 1 on."""
        inside = s < 1
        return np.where(inside, A * np.log(s) + (B - 1) * np.log1p(-np.where(inside, s, 0.5)), -np.inf)

    def derivatives_of_prior(self, s: Array) -> tuple[Array, Array]:
        """Return both derivatives of the log prior by log π."""
        return A - (B - 1) * s / (1 - s), -(B - 1) * s / (1 - s) ** 2

    @property
    def widest(self) -> float:
        """Standard deviation of the logarithm of a share of which the counts say nothing."""
        return 1.0 / A

    def expected_rates(self, x: Array, rho: Array, s: Array) -> tuple[Array, float]:
        """Return 1 for counts, the probability of the second kind for zeros, and Σ rate ρ + log p without x log λ."""
        from bayesnmf.kernels.cpu.entry_rates import rates_of_zeros

        return rates_of_zeros(x, rho, s)

    def drawn_rates(self, x: Array, means: Array, s: Array, seed: int, first: int) -> Array:
        """Draw which zeros are of the second kind; rates of the first kind are 0."""
        from bayesnmf.kernels.cpu.draws import gamma_draws

        log_second = np.log1p(-s) - means - np.logaddexp(np.log(s), np.log1p(-s) - means)
        drawn = gamma_draws(np.ones_like(means), seed, 1, first_row=first) > -log_second  # exponential draws
        return np.where(x > 0, 1.0, drawn)

    def log_terms(self, x: Array, rho: Array, s: Array) -> Array:
        """Return log(1 − π) of counts, and log p of zeros."""
        s = np.minimum(s, self.largest)
        return np.where(x > 0, np.log1p(-s), np.logaddexp(np.log(s), np.log1p(-s) - rho))

    def derivatives_of_terms(self, x: Array, rho: Array, s: Array) -> tuple[Array, Array]:
        """Return both derivatives of `log_terms` by log π."""
        below = np.exp(-rho)
        once = np.where(x > 0, -1 / (1 - s), -np.expm1(-rho) / (s + (1 - s) * below))
        return s * once, s * once - (s * once) ** 2

    def __eq__(self, other: object) -> bool:
        return self.same_as(other) if isinstance(other, ZeroInflated) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.word, self.by))

    def __repr__(self) -> str:
        return f"ZeroInflated({self.shown_dispersion()})"
