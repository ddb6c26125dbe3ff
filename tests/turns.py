"""Products of settings: every entry with all of them, of which the default suite runs one for each entry."""

from collections.abc import Collection, Mapping, Sequence
from itertools import product
from typing import Any

import pytest
from registry import Entry
from suites import mostly_long

METHODS = {"map": "map", "vi": "vi"}
FREE = {"prior": False, "parameter": True}
ORDERS = {"from loadings": "loadings", "from components": "components"}
SCHEDULES = {"joint": "joint", "alternating": "alternating"}
DTYPES = {"float64": "float64", "float32": "float32"}


def case_of(entry: Entry, settings: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Any:
    """Return one case of a product: an entry and a named value of each setting."""
    values = [setting[name] for setting, name in zip(settings, names, strict=True)]
    return pytest.param(entry, *values, id="-".join([entry.id, *names]))


def in_turn(
    entries: Sequence[Entry], *settings: Mapping[str, Any], default: Collection[str] | None = None
) -> list[Any]:
    """Return every entry with every combination of settings; by default each entry with one, the next with the next.

    Where some entries are named as the default, the long suite runs the others.
    """
    combinations = list(product(*settings))
    cases = [case_of(entry, settings, names) for entry in entries for names in combinations]
    size = len(combinations)
    return mostly_long(
        cases, [size * at + at % size for at in range(len(entries)) if default is None or entries[at].id in default]
    )
