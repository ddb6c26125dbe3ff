"""What routines for Poisson counts ask of the counts that they are given, with the answers of Poisson counts.

Counts with another noise, and counts in batches, are given to the same routines as classes of their own, which answer
otherwise (`bayesnmf.data.powered.working_counts`). A routine asks for what it needs, never for the class.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from bayesnmf.noise.poisson import POISSON
from bayesnmf.types import Array


class Working:
    """Counts as routines for Poisson counts see them.

    Attributes
    ----------
    noise : Noise
        Noise of the entries, with the dispersion that has been learned so far.
    learned : bool
        Whether a dispersion changes with a fit.
    in_clusters : bool
        Whether an allocation step shares out clusters of counts.
    has_entry_rates : bool
        Whether each entry has a rate, which changes with the state.
    has_factors : bool
        Whether features have factors in each batch, which change with the state unless they are held.
    factors : ndarray (B, m) or None
        These factors.
    held : bool
        Whether they stay as they are.
    log_prior : float
        Log prior density of a dispersion that is learned, in nats.
    """

    noise: Any = POISSON
    learned: Any = False
    held: Any = False
    factors: Any = None
    in_clusters: ClassVar[bool] = False
    has_entry_rates: ClassVar[bool] = False
    has_factors: ClassVar[bool] = False

    @property
    def log_prior(self) -> float:
        """Log prior density of a dispersion that is learned, in nats."""
        return 0.0

    @property
    def plain(self) -> Any:
        """The counts without their noise."""
        return self

    @property
    def with_exposures_alone(self) -> Any:
        """The counts without their noise, exposed to the factors of batches."""
        return self.plain

    @property
    def parameters(self) -> Array:
        """Dispersions that are learned, and 1/a of factors of batches if it is, (…,)."""
        return np.zeros(0)

    def with_parameters(self, parameters: Array) -> Any:
        """Return the same counts with others of what is learned, as far as there is anything."""
        return self

    @property
    def memory(self) -> Any:
        """What a checkpoint keeps of what a fit learns."""
        return None

    def recalled(self, memory: Any) -> Any:
        """Return the same counts as a checkpoint has kept them."""
        return self

    @property
    def to_start_from(self) -> Any:
        """The counts that a start is made from."""
        return self

    @property
    def exposures_move(self) -> bool:
        """Whether exposures may have changed since a pass over the rows has written the loadings."""
        return bool(self.learned)

    @property
    def gain_of_rates(self) -> float:
        """What the distribution of rates of entries adds to the objective, in nats."""
        return 0.0

    def waits_for(self, state: Any, moving: Array | None) -> bool:
        """Return whether rates are to be those of a state, or of its rows that are `moving` (n,)."""
        return False

    def spread(self, factor: Array | None, other: Array | None) -> Any:
        """Return the spreads of clusters whose means are products of two sides times factors; None without clusters."""
        return None

    def spread_of_means(self) -> Any:
        """Return the spreads of counts whose means are given; None without clusters."""
        return None
