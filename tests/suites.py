"""Which cases of a test the default suite runs, and which only `pytest -m long`; and how long tests take."""

from collections.abc import Collection, Iterable
from itertools import product
from typing import Any

import pytest


def mostly_long(cases: Iterable[Any], default: int | Collection[int] = 1) -> list[Any]:
    """Return the cases of a parametrised test, of which the default suite runs only some.

    Parameters
    ----------
    cases : iterable
        Values, or tuples of them, as `pytest.mark.parametrize` takes them.
    default : int or collection of int
        The first so many cases, or the cases at these places, are run by default; the others by the long suite.
    """
    kept = range(default) if isinstance(default, int) else default
    return [case if at in kept else in_long(case) for at, case in enumerate(cases)]


def crossed(*lists: Iterable[Any]) -> list[Any]:
    """Return all combinations of values; by default each of the longest list once, with those of the others in turn."""
    values = [list(each) for each in lists]
    places = list(product(*(range(len(each)) for each in values)))
    kept = {tuple(at % len(each) for each in values) for at in range(max(map(len, values)))}
    cases = [tuple(each[at] for each, at in zip(values, place, strict=True)) for place in places]
    return mostly_long(cases, [at for at, place in enumerate(places) if place in kept])


def in_long(case: Any) -> Any:
    """Return one case of a parametrised test, which only the long suite runs."""
    values = case.values if isinstance(case, type(pytest.param())) else case if isinstance(case, tuple) else (case,)
    known = {"id": case.id, "marks": case.marks} if isinstance(case, type(pytest.param())) else {"marks": ()}
    return pytest.param(*values, **{**known, "marks": [*known["marks"], pytest.mark.long]})
