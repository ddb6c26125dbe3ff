"""Increasing functions x(z) of standard normal coordinates, by which a Gaussian becomes a copula of positive entries.

All are quantile functions: of a log-normal, of a Gamma, and of a normal distribution that is cut off at 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import (
    digamma,
    gammainc,
    gammaincc,
    gammainccinv,
    gammaincinv,
    gammaln,
    log_ndtr,
    ndtr,
    ndtri,
    ndtri_exp,
    polygamma,
)

Array = NDArray[Any]
HALF_LOG_TAU = 0.5 * np.log(2 * np.pi)
FARTHEST = 12.0  # coordinate
TINY = 1e-290


class Curve(NamedTuple):
    """x(z) with derivatives: x, x′, x″, log x′, and the first two derivatives of log x′."""

    x: Array
    first: Array
    second: Array
    log_first: Array
    slope: Array
    bend: Array


class Map(Protocol):
    """Functions x(z), one for each entry, with given shapes 1 / (coefficient of variation)² and means."""

    @classmethod
    def of(cls, shape: Array, mean: Array) -> Self: ...

    def curve(self, z: Array) -> Curve: ...

    def inverse(self, x: Array) -> Array: ...


@dataclass(frozen=True, eq=False)
class LogNormal:
    """x = exp(location + scale z), with the mean and variance of log x of a Gamma."""

    location: Array
    scale: Array

    @classmethod
    def of(cls, shape: Array, mean: Array) -> Self:
        """Return those of Gammas."""
        return cls(digamma(shape) - np.log(shape / mean), np.sqrt(polygamma(1, shape)))

    def curve(self, z: Array) -> Curve:
        """Return x(z)."""
        u = self.location + self.scale * z
        x = np.exp(u)
        slope = np.broadcast_to(self.scale, z.shape)
        return Curve(x, x * slope, x * slope**2, u + np.log(self.scale), slope, np.zeros_like(z))

    def inverse(self, x: Array) -> Array:
        """Return z(x)."""
        return np.asarray((np.log(x) - self.location) / self.scale)


@dataclass(frozen=True, eq=False)
class GammaQuantile:
    """x is the quantile of Gamma(shape, rate) at Φ(z)."""

    shape: Array
    rate: Array

    @classmethod
    def of(cls, shape: Array, mean: Array) -> Self:
        """Return those of Gammas."""
        return cls(shape, shape / mean)

    def curve(self, z: Array) -> Curve:
        """Return x(z); each tail is inverted from its own end."""
        shape = np.broadcast_to(self.shape, z.shape)
        y, tail, low = np.empty_like(z), ndtr(-np.abs(z)), z < 0
        y[low], y[~low] = gammaincinv(shape[low], tail[low]), gammainccinv(shape[~low], tail[~low])
        y = np.maximum(y, TINY)
        log_first = -z * z / 2 - HALF_LOG_TAU - ((shape - 1) * np.log(y) - y - gammaln(shape))
        first, score = np.exp(log_first), (shape - 1) / y - 1
        slope = -z - score * first
        second = first * slope
        bend = -1 + (shape - 1) * (first / y) ** 2 - score * second
        rate = self.rate
        return Curve(y / rate, first / rate, second / rate, log_first - np.log(rate), slope, bend)

    def inverse(self, x: Array) -> Array:
        """Return z(x)."""
        below, above = gammainc(self.shape, x * self.rate), gammaincc(self.shape, x * self.rate)
        return np.where(below < 0.5, ndtri(np.maximum(below, TINY)), -ndtri(np.maximum(above, TINY)))


def _moments(alpha: Array) -> tuple[Array, Array]:
    """Return means, and squared coefficients of variation, of α + Y where Y is a standard normal above −α."""
    hazard = np.exp(-alpha * alpha / 2 - HALF_LOG_TAU - log_ndtr(alpha))
    mean = alpha + hazard
    return mean, (1 - hazard * mean) / mean**2


ALPHAS = np.concatenate([np.linspace(-6, 6, 600), np.geomspace(6.02, 3e4, 600)])
MEANS, SQUARED_CVS = _moments(ALPHAS)


@dataclass(frozen=True, eq=False)
class TruncatedNormal:
    """x is the quantile at Φ(z) of N(scale · alpha, scale²) above 0; the coefficient of variation is below 1."""

    alpha: Array
    scale: Array

    @classmethod
    def of(cls, shape: Array, mean: Array) -> Self:
        """Return those with means and coefficients of variation of Gammas."""
        alpha = np.interp(-np.log(shape), np.log(SQUARED_CVS[::-1]), ALPHAS[::-1])
        return cls(alpha, mean / np.interp(alpha, ALPHAS, MEANS))

    def curve(self, z: Array) -> Curve:
        """Return x(z); the upper tails are equal, so that x near 0 is not lost to rounding."""
        inside = log_ndtr(self.alpha)
        above = np.maximum(self.alpha - ndtri_exp(log_ndtr(-z) + inside), 1e-13)
        y = above - self.alpha
        unit = np.exp((y - z) * (y + z) / 2 + inside)
        slope = y * unit - z
        bend = unit**2 + y * unit * slope - 1
        log_first = (y - z) * (y + z) / 2 + inside + np.log(self.scale)
        first = unit * self.scale
        return Curve(above * self.scale, first, first * slope, log_first, slope, bend)

    def inverse(self, x: Array) -> Array:
        """Return z(x)."""
        y = x / self.scale - self.alpha
        return -ndtri_exp(np.minimum(log_ndtr(-y) - log_ndtr(self.alpha), -1e-300))


KINDS: dict[str, list[tuple[float, type[Map]]]] = {
    "log": [(0.0, LogNormal)],
    "gamma": [(0.0, GammaQuantile), (50.0, LogNormal)],
    "normal": [(0.0, GammaQuantile), (1.1, TruncatedNormal)],
}
"""Functions by the least shape that they are used from."""


@dataclass(frozen=True, eq=False)
class Maps:
    """Functions x(z) of all entries.

    Attributes
    ----------
    kind : {"log", "gamma", "normal"}
    parts : list of (ndarray, Map)
        Numbers of entries, and their functions.
    """

    kind: str
    parts: list[tuple[Array, Map]]

    @classmethod
    def of(cls, kind: str, shape: Array, mean: Array) -> Self:
        """Return functions with given shapes and means."""
        least, maps = zip(*KINDS[kind], strict=True)
        which = np.searchsorted(least, shape, side="right") - 1
        found = ((np.flatnonzero(which == number), each) for number, each in enumerate(maps))
        return cls(kind, [(at, each.of(shape[at], mean[at])) for at, each in found if len(at)])

    def curve(self, z: Array) -> Curve:
        """Return x(z) of all entries, (S, d)."""
        out = Curve(*np.empty((6, *z.shape)))
        for at, each in self.parts:
            for whole, part in zip(out, each.curve(z[:, at]), strict=True):
                whole[:, at] = part
        return out

    def inverse(self, x: Array) -> Array:
        """Return z(x) of all entries, (S, d)."""
        z = np.empty_like(x)
        for at, each in self.parts:
            z[:, at] = each.inverse(x[:, at])
        return np.clip(z, -FARTHEST, FARTHEST)
