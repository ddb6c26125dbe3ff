"""Poisson noise.

Noises import compiled loops where they use them, as words of a noise are checked before anything is compiled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from scipy.special import gammaln, xlogy

from bayesnmf.noise.abilities import Distributed
from bayesnmf.types import Array

if TYPE_CHECKING:
    from bayesnmf.kernels.cpu.dispersed_draws import Noise as CompiledNoise


@dataclass(frozen=True)
class Poisson(Distributed):
    """Poisson noise: the variance of a count is its expected value. Probabilities are of any counts above 0, too."""

    word: ClassVar[str] = "poisson"
    of_poisson: ClassVar[bool] = True
    with_supports: ClassVar[bool] = True
    has_program: ClassVar[bool] = True

    @property
    def given_totals(self) -> bool:
        """Whether counts can be drawn given the totals of rows: they are multinomial."""
        return True

    def thinned(self, keep: float) -> Self:
        """Return the noise of counts of which every single one is kept with this probability."""
        return self

    def in_words(self, matrices: Any = None) -> str:
        """Return nothing: it is what counts have by default."""
        return ""

    def log_pmf(self, counts: Array, means: Array, places: Any = None, log_factorials: Any = None) -> Array:
        """Return x log λ − λ − log x!."""
        log_factorials = gammaln(counts + 1) if log_factorials is None else log_factorials
        return np.asarray(xlogy(counts, means) - means - log_factorials)

    def variances(self, expected: Array) -> Array:
        """Return the expected values."""
        return expected

    def zeros(self, means: Array) -> Array:
        """Return exp(−λ)."""
        return np.exp(-means)

    def draw(self, means: Array, rng: np.random.Generator) -> Array:
        """Draw a count for each of the means (n, m)."""
        return rng.poisson(means)

    def draw_given_totals(self, totals: Array, shares: Array, rng: np.random.Generator) -> Array:
        """Draw multinomial counts (n, m)."""
        return rng.multinomial(totals, shares)

    def compiled(self, size: tuple[int, int]) -> CompiledNoise:
        """Return the noise as compiled draws take it."""
        from bayesnmf.kernels.cpu.dispersed_draws import PLAIN

        return PLAIN

    def log_likelihood(self, counts: Any, loadings: Array, components: Array, given_totals: bool) -> float:
        """Return the Poisson log-likelihood of the observed entries; it is the same given totals."""
        from bayesnmf.kernels.cpu.likelihood import poisson_loglik

        gain = 0.0 if counts.mask is None else float(counts.mask.products_by_row(loadings, components.T).sum())
        return poisson_loglik(counts.matrix, loadings, components, counts.log_factorial) + gain

    def sum_of_squares(self, loadings: Array, components: Array) -> float:
        """Return Σ λ + λ²."""
        squares = float(np.sum((loadings.T @ loadings) * (components @ components.T)))
        return squares + float(loadings.sum(axis=0) @ components.sum(axis=1))


POISSON = Poisson()
