"""What missing entries add to the linear response: changes of exposures, also of those that differ along a simplex.

Missing entries have no exposure, and are left out of its changes. The natural gradient of a row of a side on the
simplex with q = Dirichlet(ν) is α − ν − F⁻¹h, with h_j = (E_j − Ē) / ν₀ for exposures E (`bayesnmf.priors.unequal`).
For a step x of ν and a change dE, with p = ν / ν₀ and r = F⁻¹h at the optimum, it changes beside α − ν by F⁻¹ of

    ψ″(ν) x r − ψ″(ν₀) Σx Σr + [(E − Ē) Σx + Σ(E − Ē) x] / ν₀²  −  (dE − Σ p dE) / ν₀

Given the totals N of the observed entries, loadings have the exposures E = g O, with O that of observed entries without
totals and g = N / P, P = Σ p O. Then dE = g dO + O dg, dg = −g dP / P with dP = Σ (O − P) x / ν₀ + Σ p dO.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import polygamma

from bayesnmf.inference.missing import differs, weights
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.sides import exposure_of, exposure_of_loadings
from bayesnmf.priors.unequal import solved
from bayesnmf.types import Array


class Unequal:
    """Rows of a side on the simplex whose exposures differ, at the optimum.

    Parameters
    ----------
    nu : ndarray (rows, entries)
        Concentrations.
    exposure : ndarray (rows, entries)
    totals : ndarray (rows, 1), optional
        Totals N, where exposures follow from them.
    """

    def __init__(self, nu: Array, exposure: Array, totals: Array | None = None) -> None:
        self.nu, self.exposure = np.asarray(nu, np.float64), np.asarray(exposure, np.float64)
        self.total = self.nu.sum(axis=1, keepdims=True)
        self.mean = self.nu / self.total
        self.off = self.exposure - (self.exposure * self.mean).sum(axis=1, keepdims=True)
        self.pull = solved(self.nu, self.off / self.total)
        self.per_count = (
            None if totals is None else np.divide(1.0, totals, out=np.zeros(totals.shape), where=totals > 0)
        )

    def own(self, step: Array) -> Array:
        """Return what a step of the concentrations changes, but for −F and the exposures."""
        along, bent = step.sum(axis=1, keepdims=True), polygamma(2, self.total) * self.pull.sum(axis=1, keepdims=True)
        tilted = (self.off * step).sum(axis=1, keepdims=True)
        found = polygamma(2, self.nu) * step * self.pull - bent * along
        found += (self.off * along + tilted) / self.total**2
        if self.per_count is not None:
            found += self.off * self.per_count * tilted / self.total**2
        return np.asarray(found)

    def of_log(self, rows: slice) -> Array:
        """Return the symmetric matrices F⁻¹ (…) F⁻¹ of what a change of E log x of some rows changes, (rows, K, K)."""
        part = Unequal(self.nu[rows], self.exposure[rows])
        part.per_count = None if self.per_count is None else self.per_count[rows]
        units = np.eye(self.nu.shape[1])
        columns = [solved(part.nu, part.own(solved(part.nu, np.tile(unit, (len(part.nu), 1))))) for unit in units]
        return np.stack(columns, axis=2)

    def exposed(self, change: Array) -> Array:
        """Return the step −F⁻¹ dh for a change of the exposures; given totals, for the one that g times it is."""
        at_mean = (change * self.mean).sum(axis=1, keepdims=True)
        tilt = change - at_mean
        if self.per_count is not None:
            tilt = tilt - self.off * self.per_count * at_mean
        return -solved(self.nu, tilt / self.total)


class Unexposed:
    """Sides on the simplex beside missing entries, and how changes of means change their exposures.

    Attributes
    ----------
    loadings, components : Unequal or None
        Sides whose exposures differ; of components, those that are not known.
    """

    def __init__(self, problem: Problem, state: State, free: Array) -> None:
        self.problem = problem
        given = problem.loadings_prior.support == "simplex" and differs(problem, "loadings")
        self.loadings = self.components = None
        if given and state.loadings.geometric.shape[1] > 1:
            q: Any = state.loadings.conditional
            exposure = exposure_of(problem, state, "loadings")
            self.loadings = Unequal(q.concentration, exposure, problem.counts.row_totals[:, None])
        if differs(problem, "components") and len(free) and state.components.geometric.shape[1] > 1:
            q = state.components.conditional
            if q is not None and not problem.fixed_components:
                exposure = exposure_of(problem, state, "components")
                self.components = Unequal(q.free_prior.concentration, exposure[free])
        self.means = state.loadings.matrix
        if given:
            self.per_share = weights(problem, state)[0].sum(axis=1, keepdims=True)  # g, as shares sum to 1
            self.observed = exposure_of_loadings(problem, state.components) / problem.counts.row_factor
            self.per_total = _inverse(problem.counts.row_totals[:, None])

    def of_loadings(self, changes: Array) -> Array:
        """Return the changes of the exposures of loadings, (n, K), for changes of the means of components (K, m).

        Given totals these are g dO.
        """
        counts = self.problem.counts
        whole = counts.row_factor * (counts.feature_factor * changes).sum(axis=1)
        found = whole - unexposed_of_loadings(self.problem, changes)
        return found * (self.per_share / counts.row_factor) if hasattr(self, "per_share") else found

    def of_components(self, changes: Array, of_others: Array | None) -> Array:
        """Return the changes of the exposures of components, (K, m), for changes of the means of loadings (n, K).

        Given totals, g changes with both sides; `of_others` is what `of_loadings` returns for the other one.
        """
        counts = self.problem.counts
        if hasattr(self, "per_share"):
            moved = self.per_share * self.observed * changes + (0.0 if of_others is None else self.means * of_others)
            relative = moved.sum(axis=1, keepdims=True) * self.per_total  # −dg / g
            changes = self.per_share * (changes - self.means * relative) / counts.row_factor  # which cancels
        sums = (counts.row_factor * changes).sum(axis=0)[:, None] * np.broadcast_to(
            counts.feature_factor, (changes.shape[1], counts.shape[1])
        )
        return np.asarray(sums - unexposed_of_components(self.problem, changes))


def unexposed_of_loadings(problem: Problem, changes: Array) -> Array:
    """Return r_i Σ c_j of changes (K, m) over the missing entries of each row, (n, K); 0 without missing entries."""
    counts, mask = problem.counts, problem.counts.mask
    if mask is None:
        return np.zeros(1)
    return np.asarray(counts.row_factor * mask.sums_by_row((counts.feature_factor * changes).T))


def unexposed_of_components(problem: Problem, changes: Array) -> Array:
    """Return c_j Σ r_i of changes (n, K) over the rows in which each feature is missing, (K, m); 0 without any."""
    counts, mask = problem.counts, problem.counts.mask
    if mask is None:
        return np.zeros(1)
    return np.asarray(counts.feature_factor * mask.sums_by_feature(counts.row_factor * changes).T)


def _inverse(totals: Array) -> Array:
    return np.divide(1.0, totals, out=np.zeros(totals.shape), where=totals > 0)
