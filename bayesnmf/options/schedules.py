"""The orders in which an iteration of coordinate ascent updates the two sides, as data.

A schedule is a list of moves ``(place, fresh)``: update the side in that place of the order (0 or 1), after a fresh
allocation step or with the totals at hand. The totals of the current iterate are there for the first move.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Moves = list[tuple[int, bool]]


@dataclass(frozen=True)
class UpdateOrder:
    """A schedule; a new one is one more of these in `SCHEDULES`.

    Attributes
    ----------
    moves : callable
        Takes the number of sweeps, and returns the moves of an iteration.
    one_side : bool
        Whether an allocation step is for the side that is updated next alone, and not for both.
    """

    moves: Callable[[int], Moves]
    one_side: bool


SCHEDULES = {
    "joint": UpdateOrder(lambda sweeps: [(0, False), *[(0, True)] * (sweeps - 1), (1, False)], one_side=False),
    "alternating": UpdateOrder(
        lambda sweeps: [(0, False), *[(0, True)] * (sweeps - 1), *[(1, True)] * sweeps], one_side=True
    ),
}
