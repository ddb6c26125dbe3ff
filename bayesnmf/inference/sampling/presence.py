"""Sample which known components are present in each row, with what the rows share: prevalence, shape and dispersion.

Rows are drawn by `bayesnmf.kernels.cpu.presence_draws`. Given which components are present, the chance π_k of each has
the prior Beta(c m, c (1 − m)), whose mean m and weight c are drawn by Metropolis steps with π summed out; so are the
shape a of the loadings, whose shares are Dirichlet(a), and the dispersion. The first rounds have a larger dispersion,
which falls, so that rows come near the supports that explain them best whatever they start from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csc_array, csr_array, vstack
from scipy.special import betaln, expit, gammaln

from bayesnmf.data.counts import Counts
from bayesnmf.inference.sampling.extra_components import draw_extra
from bayesnmf.kernels.cpu.presence_draws import draw_presence
from bayesnmf.kernels.cpu.supports import LINEAR, POISSON, QUADRATIC
from bayesnmf.priors.noise import NegativeBinomial, Noise
from bayesnmf.types import Array

EXPECTED = 5.0  # components of a row, before the counts are seen
MOVES = 8  # of all loadings of a row, in a round
HEATED, FALL, COLD = 30, 0.88, 0.02  # rounds of falling dispersion, its factor a round, and where Poisson rows end
FREE_FROM = 20  # round from which on chances and shape are drawn
SHAPE, SHAPE_SPREAD = 1.5, 0.5  # median of the shape, and standard deviation of its logarithm
WEIGHT, WEIGHT_SPREAD = 5.0, 1.5  # of the Beta prior of the chances, in the same way
DISPERSION, DISPERSION_SPREAD = 0.3, 2.0  # as for fits
STEPS = 10


class Drawn(NamedTuple):
    """Draws of one chain: loadings (draws, n K) sparse, shares of moves with presence (n, K), and what rows share.

    Extra components (draws, E, m) are those that are not known. Rows without counts have no loadings, and shares of
    NaN: they say nothing, and are left out of what rows share.
    """

    loadings: csr_array
    presence: Array
    prevalence: Array
    shared: Array
    extra: Array


def draw_chain(
    counts: Counts, components: tuple[Array, Array], noise: Noise, rounds: tuple[int, int], rng: np.random.Generator,
    tell: Callable[[int], None],
) -> Drawn:  # fmt: skip
    """Return draws of a chain, after warm-up.

    Parameters
    ----------
    components : tuple of ndarray (K, m) and (E, m)
        Known components, whose rows sum to 1, and where the extra ones begin.
    rounds : tuple of int
        Rounds of warm-up, and rounds that are kept.
    tell : callable
        Function that hears the number of each round.
    """
    some = np.flatnonzero(counts.row_totals > 0)
    chain, kept, prevalence, shared, extra = _Chain(counts.rows(some), components, noise, rng), [], [], [], []
    loadings = np.zeros((counts.shape[0], len(chain.components)))
    presence = np.full_like(loadings, np.nan)
    presence[some] = 0.0
    for number in range(sum(rounds)):
        share = chain.step(number)
        tell(number)
        if number >= rounds[0]:
            presence[some] += share
            loadings[some] = chain.loadings
            kept.append(csr_array(loadings.reshape(1, -1).astype(np.float32)))
            prevalence.append(chain.chances)
            shared.append((chain.shape, chain.dispersion))
            extra.append(chain.components[chain.known :].copy())
    presence /= rounds[1]
    return Drawn(vstack(kept, format="csr"), presence, np.array(prevalence), np.array(shared), np.array(extra))


class _Chain:
    """State of a chain: loadings (n, K), chances of presence (K,), shape, dispersion, and logits and log weight."""

    def __init__(self, counts: Counts, components: tuple[Array, Array], noise: Noise, rng: np.random.Generator) -> None:
        self.counts, self.noise, self.rng = counts, noise, rng
        self.known, self.components = len(components[0]), np.ascontiguousarray(np.vstack(components))
        rank = len(self.components)
        self.begun = HEATED if rank > self.known else 0  # what is begun from counts left over is lost in the heat
        mean = min(EXPECTED / rank, 0.5)
        self.centre = np.array([np.log(mean / (1 - mean)), np.log(WEIGHT)])
        self.common, self.chances, self.shape = self.centre.copy(), np.full(rank, mean), SHAPE
        given = noise.dispersion if isinstance(noise, NegativeBinomial) else 0.0
        self.learned, self.dispersion = given is None, DISPERSION if given is None else float(given)
        self.loadings = _first_loadings(counts, self.components)
        self.missing = np.zeros((0, counts.shape[1]), bool)
        if counts.mask is not None:
            self.missing = counts.mask.missing.toarray() > 0

    @property
    def exposure(self) -> Array:
        """Share of each component in the features that are counted, (n or 1, K)."""
        if self.counts.mask is None:
            return np.ones((1, len(self.components)))
        return np.maximum(1.0 - self.counts.mask.sums_by_row(self.components.T), 0.0)

    def step(self, number: int) -> Array:
        """Draw everything once; return the share of the moves in which each component was present."""
        number += self.begun
        share = np.zeros(self.loadings.shape)
        odds = np.log(self.chances) - np.log1p(-self.chances)
        prior = np.full(len(self.chances), self.shape), odds
        seed, noise = int(self.rng.integers(2**63)), self._noise_at(number)
        draw_presence(self.counts.matrix, self.components, (self.missing, self.exposure), prior, noise,
                      seed, MOVES, self.loadings, share)  # fmt: skip
        if self.known < len(self.components):
            entries = self.counts.dense, self.missing
            draw_extra(entries, self.loadings, self.components, self.known, noise[:2], self.rng)
        if number >= FREE_FROM:
            self._draw_chances()
            self._draw_shape()
        if self.learned:
            self._draw_dispersion()
        return share

    def _noise_at(self, number: int) -> tuple[int, float, float]:
        """Return variance, dispersion and the factor of the mean."""
        heat = FALL**number if number < HEATED else 0.0
        linear = not isinstance(self.noise, NegativeBinomial) or self.noise.variance == "linear"
        if not linear:
            return QUADRATIC, max(self.dispersion, heat, 1e-6), 0.0
        s = max(self.dispersion, heat * max(self.counts.total / np.prod(self.counts.shape), 1.0))
        if s < 1e-6 or (self.dispersion == 0.0 and heat < COLD):
            return POISSON, 0.0, 1.0
        return LINEAR, s, np.log1p(s) / s

    def _draw_chances(self) -> None:
        used, n = (self.loadings > 0).sum(axis=0), len(self.loadings)

        def log_density(at: Array) -> float:
            a, b = np.exp(at[1]) * expit(at[0]), np.exp(at[1]) * expit(-at[0])
            far = (at - self.centre) / [1.0, WEIGHT_SPREAD]
            return float((betaln(a + used, b + n - used) - betaln(a, b)).sum() - 0.5 * far @ far)

        self.common = self._metropolis(self.common, np.array([0.15, 0.4]), log_density)
        a, b = np.exp(self.common[1]) * expit(self.common[0]), np.exp(self.common[1]) * expit(-self.common[0])
        self.chances = np.clip(self.rng.beta(a + used, b + n - used), 1e-9, 1 - 1e-9)

    def _draw_shape(self) -> None:
        there = self.loadings > 0
        sizes, totals = there.sum(axis=1), self.loadings.sum(axis=1, keepdims=True)
        logs = float(np.log(np.divide(self.loadings, totals, out=np.ones_like(self.loadings), where=there)).sum())

        def log_density(at: Array) -> float:
            a = np.exp(at[0])
            far = (at[0] - np.log(SHAPE)) / SHAPE_SPREAD
            return float(gammaln(a * sizes).sum() - sizes.sum() * gammaln(a) + a * logs - 0.5 * far**2)

        self.shape = float(np.exp(self._metropolis(np.log([self.shape]), np.array([0.15]), log_density)[0]))

    def _draw_dispersion(self) -> None:
        x, means = self.counts.dense, np.maximum(self.loadings @ self.components, 1e-290)
        seen = np.ones(x.shape, bool) if not len(self.missing) else ~self.missing
        x, means = x[seen], means[seen]
        quadratic = isinstance(self.noise, NegativeBinomial) and self.noise.variance == "quadratic"

        def log_density(at: Array) -> float:
            d = np.exp(at[0])
            size = 1.0 / d if quadratic else means / d
            ratio = d * means if quadratic else d
            found = gammaln(x + size) - gammaln(size) - size * np.log1p(ratio) + x * (np.log(ratio) - np.log1p(ratio))
            return float(found.sum() - 0.5 * ((at[0] - np.log(DISPERSION)) / DISPERSION_SPREAD) ** 2)

        self.dispersion = float(np.exp(self._metropolis(np.log([self.dispersion]), np.array([0.1]), log_density, 2)[0]))

    def _metropolis(self, at: Array, width: Array, log_density: Callable[[Array], float], steps: int = STEPS) -> Array:
        here = log_density(at)
        for _ in range(steps):
            new = at + width * self.rng.normal(size=len(at))
            there = log_density(new)
            if np.log(self.rng.random()) < there - here:
                at, here = new, there
        return at


def _first_loadings(counts: Counts, components: Array) -> Array:
    """Return loadings after fifty steps of EM, without those below 4 % of the total of their row."""
    n, rank = counts.shape[0], len(components)
    totals = np.maximum(counts.row_totals, 1.0)[:, None]
    loadings: Any = np.full((n, rank), 1.0 / rank) * totals
    x = counts.dense
    for _ in range(50):
        loadings *= (x / np.maximum(loadings @ components, 1e-290)) @ components.T
    chosen = np.argmax(loadings, axis=1)
    largest = np.maximum(loadings[np.arange(n), chosen], 1e-3)
    loadings[loadings < 0.04 * totals] = 0.0
    loadings[np.arange(n), chosen] = largest
    return loadings


def quantiles_of_stored(values: csc_array, levels: tuple[float, ...]) -> list[Array]:
    """Return quantiles of the stored entries of every column, or NaN for a column without any.

    The entry of rank r of n is the quantile r / (n + 1) (Weibull), so that intervals of few draws hold on average what
    they should.
    """
    sizes = np.diff(values.indptr)
    columns = np.repeat(np.arange(values.shape[1]), sizes)
    ordered = values.data[np.lexsort((values.data, columns))].astype(np.float64)
    some: Array = sizes > 0
    found = []
    for level in levels:
        place = np.clip(level * (sizes[some] + 1) - 1, 0, sizes[some] - 1)
        below = np.floor(place).astype(np.int64)
        above = np.minimum(below + 1, sizes[some] - 1)
        begun, part = values.indptr[:-1][some], place - below
        out = np.full(values.shape[1], np.nan)
        out[some] = ordered[begun + below] * (1 - part) + ordered[begun + above] * part
        found.append(out)
    return found
