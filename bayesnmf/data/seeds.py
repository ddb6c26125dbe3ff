"""Features that are named beforehand for some components.

A component of named features has the prior of the others, and `strength` counts more, which its features share equally:
as if so many counts of them had been seen in it before. The counts of a fit outweigh them, or do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bayesnmf.checks import check_path, check_positive
from bayesnmf.data.checks import check_has_features, check_seed_sets
from bayesnmf.data.labels import listed
from bayesnmf.data.naming import check_distinct
from bayesnmf.data.suspicions import warn_of_data
from bayesnmf.types import Array

STRENGTH = 100.0


@dataclass(frozen=True, eq=False)
class Seeds:
    """Sets of features that are named beforehand, each for a component that has the name of the set.

    Parameters
    ----------
    sets : mapping
        Names of components, and the names of the features of each, such as marker genes or keywords.
    strength : float
        Counts that the prior adds to each of these components, which its features share equally; 100 by default.
    descriptions : mapping, optional
        Of a ``.gmt`` file, what stands before the features of each set. If these are features of the counts, too, the
        file has no descriptions, and they belong to their sets; a DataWarning says so.

    Raises
    ------
    TypeError, ValueError
        No mapping of names to lists of names, empty sets, or a strength that is not above 0.

    See Also
    --------
    bayesnmf.fit : Its argument `seeds` takes this object, or the mapping alone.

    Examples
    --------
    >>> import bayesnmf
    >>> seeds = bayesnmf.Seeds({"pets": ["cat", "dog"]}, strength=20)
    >>> texts, words = [[3, 1, 0], [0, 0, 5], [2, 4, 1]], ["cat", "dog", "tax"]
    >>> fit = bayesnmf.fit(texts, rank=2, seed=0, seeds=seeds, feature_names=words)
    >>> fit.component_titles[0]
    'pets'
    """

    sets: Mapping[str, Sequence[Any]]
    strength: float = STRENGTH
    descriptions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sets", check_seed_sets(self.sets))
        object.__setattr__(self, "strength", check_positive(self.strength, "strength"))

    def members(self, names: Array) -> Array:
        """Return which features are in each set, (sets, m), given their names; tell of names that there are not.

        Raises
        ------
        ValueError
            A set without any of the features.
        """
        own = [str(name) for name in names]
        known = {*own}
        first = {name: each for name, each in self.descriptions.items() if each in known}
        if first and 2 * len(first) < len(self.sets):
            warn_of_data(
                f"seeds have descriptions that are features of the counts, {listed(list(first.values()))}, and are not "
                "taken as such; name these features once more in their sets if they belong to them"
            )
            first = {}
        elif first:
            warn_of_data(
                f"seeds have features of the counts where descriptions of the sets are in a .gmt file: "
                f"{listed(list(first.values()))}; they are taken into their sets; write a description, as na, after "
                "each name to say so"
            )
        sets = [{*features, first.get(name)} for name, features in self.sets.items()]
        found = np.array([[name in each for name in own] for each in sets])
        unknown = list(dict.fromkeys(name for each in self.sets.values() for name in each if name not in known))
        check_has_features(found.any(axis=1), list(self.sets), unknown)
        if unknown:
            number = "a name that is no feature" if len(unknown) < 2 else f"{len(unknown):,} names that are no features"
            warn_of_data(f"seeds have {number} of the counts: {listed(unknown)}")
        return found


def seeds_of(given: Any) -> Seeds | None:
    """Return seeds that are given as such, as a mapping alone, or as a file of gene sets (``.gmt``); None for None."""
    if given is None or isinstance(given, Seeds):
        return given
    return _read_sets(check_path(given, "seeds")) if isinstance(given, (str, Path)) else Seeds(given)


def _read_sets(path: Path) -> Seeds:
    """Return the sets in a file with one in each line: name, description and features, separated by tabs."""
    lines = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    check_distinct(np.array([name for name, *_ in lines], dtype=object), f"sets of features in {path}")
    sets = {name: [each.strip() for each in rest[1:] if each.strip()] for name, *rest in lines}
    return Seeds(sets, descriptions={name: rest[0].strip() for name, *rest in lines if rest})
