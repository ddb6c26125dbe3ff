"""Where rows lie, so that distances between them are those of their expected profiles.

By shares alone, two components of nearly one profile are as different as any two: with every further component, rows
of one kind come to lie farther apart. With the shares p_i of a row, profiles β_k of components and the mean profile f,
the profile of a row differs from f by

    z_ij = (Σ_k p_ik β_kj − f_j) / √(f_j / N + α f_j²)

standard deviations of the share of feature j in a row of N counts whose rates vary by √α of themselves, as under
negative binomial noise of quadratic variance. So neither do features of many counts decide alone, as they would by
their differences, nor those of few, as by ratios. Distances between the rows of z need only the K × K products of the
components in these units, and their principal axes are functions of the shares: no array has every entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bayesnmf.results.record import FitRecord
from bayesnmf.results.shares import rows_to_compare_with
from bayesnmf.results.topic_model import to_topic_model
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd

DISPERSION = 0.3  # α, the median of the prior of those that are learned


def coordinates(fit: FitRecord) -> pd.DataFrame:
    """Return the coordinates of rows (n, K − 1) along the principal axes of their expected profiles.

    Euclidean distances are those of the profiles, each feature in standard deviations of its share in a row of median
    counts with a dispersion of 0.3. The origin is the mean row, and axes are in the order of their variance. A
    projection lies among the rows of its reference, along their axes. Rows without counts have none (NaN).
    """
    import pandas as pd

    own = rows_to_compare_with(fit, "coordinates")
    model, counted = to_topic_model(own), own.counts.row_totals > 0
    base, profiles = model.proportions[counted], np.asarray(model.components, np.float64)
    found = np.full((len(fit.row_names), len(profiles) - 1), np.nan)
    if len(base):
        axes = _axes(base, profiles, float(np.median(own.counts.row_totals[counted])))
        found = to_topic_model(fit).proportions @ axes - base.mean(axis=0) @ axes
    found[fit.counts.row_totals == 0] = np.nan
    index, columns = pd.Index(fit.row_names, name="row"), pd.RangeIndex(found.shape[1], name="axis")
    return pd.DataFrame(found, index, columns)


def _axes(base: Array, profiles: Array, size: float) -> Array:
    """Return what shares are multiplied by, (K, K − 1), for rows with these shares, of so many counts."""
    mean = base.mean(axis=0) @ profiles
    seen = mean > 0
    units = np.sqrt(mean[seen] / size + DISPERSION * mean[seen] ** 2)
    scaled = (profiles[:, seen] - mean[seen]) / units
    lengths, directions = np.linalg.eigh(scaled @ scaled.T)
    apart = directions * np.sqrt(np.maximum(lengths, 0.0))  # rows of it are as far apart as the components
    _, turned = np.linalg.eigh(np.cov(base @ apart, rowvar=False, ddof=0).reshape(len(apart), -1))
    axes = apart @ turned[:, :0:-1]
    largest = np.abs(axes).argmax(axis=0)
    return np.asarray(axes * np.sign(axes[largest, np.arange(axes.shape[1])]))
