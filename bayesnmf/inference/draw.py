"""Summarise a conditional by a draw, of all rows or of some with the random numbers that belong to them."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np

from bayesnmf.inference.side import Side, side_of_value
from bayesnmf.priors import Distribution
from bayesnmf.types import Array


@dataclass(frozen=True)
class Draw:
    """Summary by a draw from `rng`, which does not depend on `threads` (None chooses the fastest number).

    With `first`, rows from row `first` on are drawn, as they are in a draw of all rows.
    """

    rng: np.random.Generator
    threads: int | None = 1
    first: int | None = None

    basis = None

    def summarise(
        self, prior: Distribution, total: Array, exposure: Array, previous: Side | None, *, reuse: bool = False
    ) -> Side:
        """Return a draw from the conditional; parameters that entries share are drawn first, given the entries."""
        given = prior if previous is None else prior.drawn(previous.matrix, self.rng, self.first or 0)
        return self.of(prior, given.conditional(total, exposure, reuse=reuse))

    def of(self, prior: Distribution, conditional: Any) -> Side:
        """Return a draw from a given distribution."""
        if self.first is None:
            return self.at(prior, conditional.draw(self.rng, threads=self.threads))
        return self.at(prior, conditional.draw_rows(self.rng, self.first, self.threads))

    def at(self, prior: Distribution, value: Any) -> Side:
        """Return the side of a given value."""
        return side_of_value(value, prior.log_density(value))

    def on_rows(self, first: int, beside: bool) -> Draw:
        """Return the same summary for some rows, with random numbers from the same place, which stays as it is."""
        return Draw(deepcopy(self.rng), 1 if beside else self.threads, first)
