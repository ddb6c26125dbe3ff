"""Records that describe the algorithms of map and vi, and the orders of their updates; all other code asks these.

A schedule is a list of moves ``(place, fresh)``: update the side in that place of the order (0 or 1), after a fresh
allocation step or with the totals at hand. The totals of the current iterate are there for the first move.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bayesnmf.noise.abilities import Noise


@dataclass(frozen=True)
class Algorithm:
    """Description of an algorithm.

    To add one, add a record to `ALGORITHMS` and its steps to `fitting/closed_form.py`.

    Attributes
    ----------
    methods : tuple of str
        Methods that have the algorithm. The first algorithm of a method in `ALGORITHMS` is its plain algorithm.
    needs : tuple of str
        Words of the abilities that the families of both priors must have (`bayesnmf.priors.distribution`).
    tol : float
        Default tolerance.
    sweeps : int
        Default number of consecutive updates of each side.
    alternates : bool
        Whether each side always has its own allocation step.
    uneven : bool
        Whether some steps are short, so that the objective must be at rest for several steps before the fit stops.
    exchanges : bool
        Whether idle components are restarted; other algorithms would copy the counts for each exchange that is tried.
    extrapolates : bool
        Whether the steps can be extrapolated.
    ends_settled : bool
        Whether the loadings of every row have settled given the components when it ends.
    device : bool
        Whether it runs on a GPU.
    masks : bool
        Whether counts may have missing entries.
    rates : bool
        Whether entries may have rates, which change with the state.
    on_disk : bool
        Whether counts may be on disk.
    parts : bool
        Whether counts may be other than whole numbers, as a power of the likelihood makes them.
    why : str
        Difference from the plain algorithm, for messages.
    """

    methods: tuple[str, ...]
    needs: tuple[str, ...] = ()
    tol: float = 1e-7
    sweeps: int = 1
    alternates: bool = False
    uneven: bool = False
    exchanges: bool = True
    extrapolates: bool = True
    ends_settled: bool = False
    device: bool = False
    masks: bool = False
    rates: bool = False
    on_disk: bool = True
    parts: bool = True
    why: str = ""


ALGORITHMS: dict[str, Algorithm] = {
    "em": Algorithm(("map",), device=True, masks=True, rates=True),
    # Coordinate descent needs only a few more iterations to bring the whole gradient near 0: on newsgroups, K = 10,
    # the distance was 0.02 at tol 1e-8 after 112 iterations, and 0.0004 at 1e-9 after 28 more.
    "scd": Algorithm(("map",), ("regression",), tol=1e-9, sweeps=3, alternates=True, masks=True),
    "ccd": Algorithm(("map",), ("regression",), tol=1e-9, alternates=True, masks=True),
    "coordinate": Algorithm(("vi",), device=True, masks=True, rates=True),
    "settled": Algorithm(("vi",), alternates=True, uneven=True, masks=True, rates=True,
                         why="loadings settle, then the components move"),
    "gradient": Algorithm(("vi",), ("gradient",), masks=True, uneven=True, exchanges=False, extrapolates=False,
                          rates=True, on_disk=False, why="a gradient step moves both sides at once"),
    # The elbo of minibatches fluctuates, hence the tolerance.
    "minibatch": Algorithm(("vi",), ("merged",), masks=True, tol=1e-4, exchanges=False, extrapolates=False,
                           ends_settled=True,
                           why="batches settle their loadings, then take one step of the components"),
    "allocations": Algorithm(("gibbs",), masks=True, rates=True, parts=False),
    "marginal": Algorithm(("gibbs",), ("entries",), masks=True, rates=True, why="allocations are summed out"),
}  # fmt: skip


def serves(name: str, noise: Noise) -> bool:
    """Return whether an algorithm fits counts with a noise."""
    algorithm = ALGORITHMS[name]
    given = noise.of_poisson or noise.in_clusters or noise.has_entry_rates  # else there is nothing to be given
    return given and (algorithm.rates or not noise.has_entry_rates) and (algorithm.parts or noise.whole)


def methods_for(noise: Noise) -> list[str]:
    """Return the methods that fit counts with a noise, by one of their algorithms or by an ability of the noise."""
    found = [method for name, each in ALGORITHMS.items() if serves(name, noise) for method in each.methods]
    found += ["nuts", "svi"] * noise.has_program + ["smc"] * noise.in_clusters
    return list(dict.fromkeys(found))


def algorithms_of(method: str) -> tuple[str, ...]:
    """Return the names of the algorithms of a method, the plain algorithm first."""
    return tuple(name for name, algorithm in ALGORITHMS.items() if method in algorithm.methods)


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
