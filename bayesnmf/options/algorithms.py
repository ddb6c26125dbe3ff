"""What the library knows of each algorithm of map and vi: one record, which everything asks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Algorithm:
    """What an algorithm is; a new one is one more of these in `ALGORITHMS`, and its steps in `fitting/closed_form.py`.

    Attributes
    ----------
    methods : tuple of str
        The methods that have it; the first algorithm of a method in `ALGORITHMS` is its plain one.
    needs : tuple of str
        Optional parts that the families of both priors must have (`bayesnmf.priors.distribution.OPTIONAL`).
    tol : float
        The tolerance where none is stated.
    sweeps : int
        Updates of each side in a row where none are stated.
    alternates : bool
        Whether there is always a fresh allocation step for each side.
    uneven : bool
        Whether some steps are short, so that the objective is at rest only if it is for several of them.
    races : bool
        Whether several starts may race; others would copy the counts for each.
    extrapolates : bool
        Whether its steps can be extrapolated.
    allocation_steps : int
        The cost of an iteration, about, in allocation steps.
    why : str
        How it differs from the plain algorithm, in words for messages.
    """

    methods: tuple[str, ...]
    needs: tuple[str, ...] = ()
    tol: float = 1e-7
    sweeps: int = 1
    alternates: bool = False
    uneven: bool = False
    races: bool = True
    extrapolates: bool = True
    allocation_steps: int = 3
    why: str = ""


ALGORITHMS: dict[str, Algorithm] = {
    "em": Algorithm(("map",), allocation_steps=2),
    # Coordinate descent needs few iterations more for a gradient near 0 everywhere: newsgroups, K = 10, was 0.02 from
    # it at 1e-8 after 112 of them, and 0.0004 at 1e-9 after 28 more.
    "scd": Algorithm(("map",), ("regression",), tol=1e-9, sweeps=3, alternates=True, allocation_steps=5),
    "ccd": Algorithm(("map",), ("regression",), tol=1e-9, alternates=True, allocation_steps=5),
    "coordinate": Algorithm(("vi",)),
    "settled": Algorithm(
        ("vi",), alternates=True, uneven=True, allocation_steps=8, why="loadings settle, then the components move"
    ),
    "gradient": Algorithm(
        ("vi",),
        ("gradient",),
        uneven=True,
        races=False,
        extrapolates=False,
        why="a gradient moves everything at once",
    ),
    "minibatch": Algorithm(
        ("vi",),
        ("merged",),
        tol=1e-4,  # its bound wavers
        races=False,
        extrapolates=False,
        why="batches settle their loadings, then take one step of the components",
    ),
}


def algorithms_of(method: str) -> tuple[str, ...]:
    """Return the names of the algorithms that a method has, the plain one first."""
    return tuple(name for name, algorithm in ALGORITHMS.items() if method in algorithm.methods)
