"""Components that may drift from known ones: the catalogue as a prior.

The prior of a known component w is Dirichlet(s w + c): it weighs as many counts as the strength s, beside the
concentrations c of a component without any. The conditionals are plain Dirichlets. Learned from the expectations of the
logarithms, the strength alone changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from scipy.special import gammaln

from bayesnmf.priors.dirichlet import Dirichlet
from bayesnmf.priors.distribution import Distribution
from bayesnmf.priors.values import as_array
from bayesnmf.types import Array

STRENGTH = 5000.0  # counts that a known component weighs before its strength is learned
LEAST_STRENGTH, MOST_STRENGTH = 1000.0, 1e7  # of what is learned: with less, flat spectra have cosines below 0.95


@dataclass(frozen=True, eq=False)
class Drifting(Dirichlet):
    """Dirichlet prior of components, around known ones in some rows.

    `bayesnmf.fit` makes it from `fixed_components`, `drift` and the prior of the components.

    Parameters
    ----------
    concentration : ndarray (K, m)
        Concentrations, with `strength` times `known` in them.
    known : ndarray (K, m)
        Known components, whose rows sum to 1; zeros in the rows of others.
    strength : float
        Counts that a known component weighs.
    is_learned : bool
        Whether the strength is learned.
    """

    known: Array
    strength: float
    is_learned: bool = False

    support = property(lambda self: "simplex", doc="That of a Dirichlet; nobody gives this prior by its name.")

    @classmethod
    def around(
        cls, known: Array, others: Dirichlet, drift: float | Literal["learned"], rank: int, least: float
    ) -> Self:
        """Return the prior around known components (r, m), the first of K, with that of the others.

        Known ones have the concentration `least` beside their strength.
        """
        size, r = (rank, known.shape[1]), len(known)
        given = np.array(np.broadcast_to(np.asarray(others.concentration, np.float64), size))
        given[:r] = least
        whole = np.vstack([known, np.zeros((rank - r, size[1]))])
        strength = STRENGTH if isinstance(drift, str) else float(drift)
        return cls(given + strength * whole, whole, strength, isinstance(drift, str))

    @property
    def parameters(self) -> dict[str, Any]:
        """The concentrations, by name."""
        return {"concentration": self.concentration}

    @property
    def constants(self) -> dict[str, Any]:
        """The known components, and their strength."""
        return {"around": self.known, "strength": self.strength}

    @property
    def settings(self) -> dict[str, Any]:
        """Whether the strength is learned."""
        return {"is_learned": self.is_learned}

    @classmethod
    def of_parameters(cls, parameters: dict[str, Any], settings: dict[str, Any]) -> Self:
        """Return the distribution with these parameters, constants and settings."""
        given = dict(parameters)
        return cls(given["concentration"], given["around"], given["strength"], **settings)

    def mapped(self, function: Callable[[Array], Array]) -> Self:
        """Return the distribution with a function applied to concentrations and known components."""
        return replace(self, concentration=function(as_array(self.concentration)), known=function(self.known))

    def reordered(self, order: Array, axis: int) -> Self:
        """Return the distribution with its components in the given order."""
        return replace(super().reordered(order, axis), known=np.take(self.known, order, axis=axis))

    @property
    def conditional_family(self) -> type[Distribution]:
        """Plain Dirichlets."""
        return Dirichlet

    @property
    def others(self) -> Dirichlet:
        """The prior without what known components add."""
        return Dirichlet(self._beside)

    @property
    def given_rows(self) -> tuple[Array, Array]:
        """The known components, and their places."""
        at = np.flatnonzero(self.known.any(axis=1))
        return self.known[at], at

    @property
    def _beside(self) -> Array:
        return np.asarray(self.concentration, np.float64) - self.strength * self.known

    @property
    def learned_parameters(self) -> dict[str, Any]:
        """The strength."""
        return {"strength": self.strength}

    def learned_from(self, statistics: list[Array]) -> Self:
        """Return the prior with the strength that maximises E_q log p, within the limits of this file."""
        from scipy.optimize import minimize_scalar  # slow to import, and most fits do not need it

        (known, at), beside = self.given_rows, self._beside
        logs = statistics[0][at]

        def loss(log_strength: float) -> float:
            c = np.exp(log_strength) * known + beside[at]
            return -float(gammaln(c.sum(axis=1)).sum() - gammaln(c).sum() + (c * logs).sum())

        limits = np.log(LEAST_STRENGTH), np.log(MOST_STRENGTH)
        strength = float(np.exp(minimize_scalar(loss, bounds=limits, method="bounded").x))
        return replace(self, concentration=beside + strength * self.known, strength=strength)
