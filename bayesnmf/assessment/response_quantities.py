"""Quantities whose uncertainty linear response gives, weighted sums of loadings and components; cautions about it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bayesnmf.assessment.checks import check_weights
from bayesnmf.inference.response.spread import Sides, Weights
from bayesnmf.inference.status import ConvergenceWarning
from bayesnmf.priors.specification import MODELS, on_simplex
from bayesnmf.results.record import FitRecord
from bayesnmf.types import Array

NOT_OPTIMAL = (
    "the fit was not continued to its optimum (gradient {:.1e}), and linear response holds there only; fit with a "
    "smaller tol, another seed or a smaller rank"
)
NOT_STRICT = (
    "the bound does not curve downwards in every direction: two components are equal or one is empty, and variances "
    "along that direction are NaN; fit with another seed or a smaller rank"
)
TOO_WIDE = (
    "the variance of a share is larger than that of any distribution on 0 to 1 with its mean, so its interval and "
    "draws are NaN: linear response does not describe it; use method='gibbs'"
)


class Quantity(NamedTuple):
    """A number with a posterior.

    Attributes
    ----------
    name : str
        Name in tables.
    mean : float
        Its mean under q.
    weights : Weights
        Its derivatives by the means of the entries.
    values : {"positive", "share", "any"}
        Values that it can have.
    times : float
        Number by which the variance of the weighted sum is multiplied.
    more : float
        What is added to the variance.
    """

    name: str
    mean: float
    weights: Weights
    values: str = "positive"
    times: float = 1.0
    more: float = 0.0


class Quantities:
    """Makes the quantities of a fit by vi."""

    def __init__(self, fit: FitRecord) -> None:
        self.fit, self.every, self.labels = fit, np.arange(fit.rank), fit.component_labels
        self.positive = getattr(fit.priors.loadings, "support", "") == "positive"
        self.loadings, self.components = fit.loadings.astype(np.float64), fit.components.astype(np.float64)

    @cached_property
    def variances(self) -> dict[str, Array]:
        """Variances under q of loadings, components and scale; 0 for what has no posterior."""
        found = {side: self.fit.estimate.sd(self.fit, side) for side in ("loadings", "components", "scale")
                 if getattr(self.fit, side) is not None}  # fmt: skip
        return {
            side: np.zeros(getattr(self.fit, side).shape) if sd is None else np.asarray(sd, np.float64) ** 2
            for side, sd in found.items()
        }

    def loading(self, row: int, k: int) -> Quantity:
        """Return one loading; a proportion if loadings are on the simplex."""
        weights = Weights(loadings=([row], [k], [1.0]))
        name = f"loadings[{self.fit.row_names[row]}, {self.labels[k]}]"
        return Quantity(name, float(self.loadings[row, k]), weights, "positive" if self.positive else "share")

    def component(self, k: int, feature: int) -> Quantity:
        """Return one entry of a component."""
        values = "share" if on_simplex(self.fit.priors.components) else "positive"
        name = f"components[{self.labels[k]}, {self.fit.feature_names[feature]}]"
        return Quantity(name, float(self.components[k, feature]), Weights(components=([k], [feature], [1.0])), values)

    def rate(self, row: int, feature: int) -> Quantity:
        """Return the expected count of an entry given loadings and components."""
        counts, theta, beta = self.fit.counts, self.loadings[row], self.components[:, feature]
        rows = counts.row_totals if MODELS[self.fit.model].given_totals else counts.row_factor.ravel()
        unit = float(np.broadcast_to(rows, counts.shape[:1])[row])
        unit *= float(np.broadcast_to(counts.feature_factor, counts.shape[1:])[feature])
        mean, second = float(theta @ beta), self.variances["loadings"][row] @ self.variances["components"][:, feature]
        at = [row] * len(theta), [feature] * len(theta)
        weights = Weights((at[0], self.every, beta), (self.every, at[1], theta))
        square, more = unit**2, 0.0
        if self.fit.scale is not None:
            scale, spread = float(self.fit.scale[row]), float(self.variances["scale"][row])
            square, more = unit**2 * (scale**2 + spread), spread * (unit * mean) ** 2
            unit *= scale
        name = f"rates[{self.fit.row_names[row]}, {self.fit.feature_names[feature]}]"
        return Quantity(name, unit * mean, weights, times=square, more=more + square * float(second))

    def proportion(self, row: int, k: int) -> Quantity:
        """Return the share of a row's expected counts that comes from a component."""
        name = f"proportions[{self.fit.row_names[row]}, {self.labels[k]}]"
        if not self.positive:
            return self.loading(row, k)._replace(name=name)
        (rank, m), exposure = self.components.shape, self.fit.counts.feature_factor
        sums = self.fit.counts.exposed_components(self.components).sum(axis=1)
        share = self.loadings[row] * sums / (self.loadings[row] @ sums)
        slope = ((self.every == k) - share[k]) / (self.loadings[row] @ sums)
        by_feature = np.broadcast_to(exposure, (rank, m)) * (self.loadings[row] * slope)[:, None]
        of_components = np.repeat(self.every, m), np.tile(np.arange(m), rank), by_feature.ravel()
        weights = Weights(([row] * rank, self.every, sums * slope), of_components)
        return Quantity(name, float(share[k]), weights, "share")

    def contrast(self, loadings: Mapping[Any, float], components: Mapping[Any, float], *, name: str) -> Quantity:
        """Return a weighted sum of loadings, by (row, component), and of components, by (component, feature)."""
        fit = self.fit
        of_loadings = check_weights(loadings, fit.row_names, self.every, "loadings")
        of_components = check_weights(components, self.every, fit.feature_names, "components")
        weights = Weights(of_loadings, of_components)
        return Quantity(name, weights.of(Sides(self.loadings, self.components)), weights, "any")


def warn(message: str) -> None:
    """Issue a warning that points to the user's line."""
    warnings.warn(message, ConvergenceWarning, skip_file_prefixes=(str(Path(__file__).parents[1]),))
