"""What missing entries add to the linear response: the tangents of counts that entries receive, and of exposures.

Where loadings and components receive expected counts of missing entries (`bayesnmf.inference.missing`), their totals
gain

    A'_ik = g_i U_ik Σ_j V_kj        B'_kj = V_kj Σ_i g_i U_ik        over missing entries, with geometric means U, V

with g_i = 1, or g_i = N_i / (1 − s_i) given the totals N of the observed entries, s_i = Σ_k U_ik Σ_j V_kj. For small
changes du of log U and dv of log V, with Q_ik = g_i U_ik Σ_j V_kj dv_kj::

    dA' = A' (du + dg) + Q        dB' = B' dv + V Σ_i g_i U_ik (du_ik + dg_i)        dg_i = Σ_k (A' du + Q)_ik / N_i

and dg = 0 where totals are not given. Else, missing entries have no exposure, and are left out of its changes.
"""

from __future__ import annotations

import numpy as np

from bayesnmf.data.mask import Mask
from bayesnmf.inference.missing import imputes_loadings, weights
from bayesnmf.inference.problem import Problem, State
from bayesnmf.types import Array


class Received:
    """Counts that loadings and components receive for missing entries, and their tangent.

    Parameters
    ----------
    problem, state
        Problem with missing entries, in which loadings receive counts of them.
    """

    def __init__(self, problem: Problem, state: State) -> None:
        self.mask: Mask = problem.counts.mask  # type: ignore[assignment]
        self.U, self.V = weights(problem, state)
        self.loadings = self.U * self.mask.sums_by_row(self.V)
        self.components = (self.V * self.mask.sums_by_feature(self.U)).T
        self.shares: Array | None = None  # 1 / N_i
        if problem.loadings_prior.support == "simplex":
            totals = problem.counts.row_totals[:, None]
            self.shares = np.divide(1.0, totals, out=np.zeros(totals.shape), where=totals > 0)

    @classmethod
    def of(cls, problem: Problem, state: State) -> Received | None:
        """Return what entries receive; None if they receive nothing."""
        return cls(problem, state) if imputes_loadings(problem, state.components) else None

    def slope(self, rows: slice) -> Array:
        """Return the derivative of A' by log U of some rows, (rows, K, K)."""
        own = self.loadings[rows]
        found = own[:, :, None] * np.eye(own.shape[1])
        return found if self.shares is None else found + own[:, :, None] * (own * self.shares[rows])[:, None, :]

    def row_changes(self, dv: Array) -> Array:
        """Return dA' for a change dv (K, m) of log V alone, (n, K)."""
        of_features = self._of_features(dv)
        if self.shares is None:
            return of_features
        return np.asarray(of_features + self.loadings * self.shares * of_features.sum(axis=1, keepdims=True))

    def component_changes(self, du: Array, dv: Array) -> Array:
        """Return dB', (K, m)."""
        moved = self.U * du
        if self.shares is not None:
            both = (self.loadings * du + self._of_features(dv)).sum(axis=1, keepdims=True)
            moved += self.U * self.shares * both
        return np.asarray(self.components * dv + (self.V * self.mask.sums_by_feature(moved)).T)

    def _of_features(self, dv: Array) -> Array:
        return np.asarray(self.U * self.mask.sums_by_row(self.V * dv.T))


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
