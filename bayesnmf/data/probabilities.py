"""The probability and the variance of counts of given means, for each noise."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, xlogy

from bayesnmf.data.clustered import LEAST, exposure_of
from bayesnmf.kernels.cpu.clusters import sums_of_cells
from bayesnmf.priors.noise import NegativeBinomial, Noise

Array = NDArray[Any]


def dispersion_of_cells(noise: NegativeBinomial, rows: Any = slice(None), features: Any = slice(None)) -> Any:
    """Return the dispersions of some rows and features, which broadcast with their cells: a number, (n, 1) or (m,)."""
    if noise.by is None:
        return float(noise.dispersion)
    own: Array = np.asarray(noise.dispersion)
    return own[rows][:, None] if noise.by == "row" else own[features]


def log_probabilities(
    noise: Noise, counts: Array, means: Array, rows: Any = slice(None), features: Any = slice(None)
) -> Array:
    """Return log p of each count (n, m) given its mean, which is above 0, in nats.

    Rows and features say which ones these are among those of the noise, where each has its own dispersion.
    """
    if not isinstance(noise, NegativeBinomial):
        return np.asarray(xlogy(counts, means) - means - gammaln(counts + 1))
    s = np.maximum(dispersion_of_cells(noise, rows, features), LEAST)
    if noise.variance == "linear":
        clusters = _rising(counts, means, s)
        return np.asarray(clusters - counts * np.log1p(s) - means * exposure_of(s) - gammaln(counts + 1))
    steps = _rising(counts, np.ones_like(means), s)
    return np.asarray(xlogy(counts, means) + steps - (counts + 1 / s) * np.log1p(s * means) - gammaln(counts + 1))


def _rising(counts: Array, means: Array, s: Any) -> Array:
    return sums_of_cells(counts, means, s)[:, 0].reshape(counts.shape)


def variances(noise: Noise, means: Array, rows: Any = slice(None), features: Any = slice(None)) -> Array:
    """Return the variances of counts of these means."""
    if not isinstance(noise, NegativeBinomial):
        return means
    s = dispersion_of_cells(noise, rows, features)
    return np.asarray(means * (1 + s) if noise.variance == "linear" else means * (1 + s * means))
