"""Checks of fits whose posteriors are held against one another."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from bayesnmf.checks.values import shown


def check_comparable(fits: Any, kind: type) -> None:
    """Refuse anything but a mapping of labels to fits of the same counts, of one model and rank."""
    if not isinstance(fits, Mapping) or not all(isinstance(fit, kind) for fit in fits.values()):
        raise TypeError(
            f"fits must map labels to fits, as in {{'vi': one, 'gibbs': other}}: found {found_in(fits)}; "
            "give every fit a label in a dict"
        )
    if not fits:
        raise ValueError("fits must not be empty; give at least one fit, as in {'gibbs': fit}")
    first_label, first = next(iter(fits.items()))
    for label, fit in fits.items():
        for what, ours, theirs in (
            ("model", fit.model, first.model),
            ("rank", fit.rank, first.rank),
            ("shape of the counts", fit.counts.shape, first.counts.shape),
        ):
            if ours != theirs:
                raise ValueError(
                    f"fits must have the same {what}, else they have no entries in common: found {ours!r} in "
                    f"{label!r}, {theirs!r} in {first_label!r}; compare the others apart"
                )
        for what in ("row_names", "feature_names"):
            if not np.array_equal(getattr(fit, what), getattr(first, what)):
                raise ValueError(
                    f"fits must be of the same rows and features in the same order: the {what} of {label!r} differ "
                    f"from those of {first_label!r}; fit the same counts"
                )
        if not same_counts(fit.counts, first.counts):
            raise ValueError(
                f"fits must be of the same counts, else their posteriors differ as the data do: those of {label!r} "
                f"differ from those of {first_label!r}; fit the same counts"
            )


def found_in(fits: Any) -> str:
    """Say what was given in place of a mapping of labels to fits."""
    if isinstance(fits, Mapping):
        return "a mapping of " + ", ".join(sorted({type(fit).__name__ for fit in fits.values()}))
    return f"a {type(fits).__name__}"


def check_fit(fit: Any, kind: type) -> None:
    """Refuse anything but one fit."""
    if not isinstance(fit, kind):
        raise TypeError(
            f"fit must be what bayesnmf.fit returns: found {type(fit).__name__}; make one with bayesnmf.fit, read one "
            "with bayesnmf.load, or take one out of several, as in fits['gibbs']"
        )


def same_counts(one: Any, other: Any) -> bool:
    """Whether two sets of counts are the same matrix; names may differ."""
    a, b = one.matrix, other.matrix
    return a is b or (a.shape == b.shape and all(
        np.array_equal(getattr(a, part), getattr(b, part)) for part in ("indptr", "indices", "data")
    ))  # fmt: skip


def same_prior(one: Any, other: Any) -> bool:
    """Whether two priors of one side are the same."""
    if type(one) is not type(other) or isinstance(one, str):
        return type(one) is type(other) and bool(one == other)
    return all(np.array_equal(value, getattr(other, name)) for name, value in vars(one).items())


def same_priors(one: Any, other: Any) -> bool:
    """Whether the priors of both sides are the same."""
    return all(map(same_prior, vars(one).values(), vars(other).values()))


def check_reference(reference: Any, fits: Mapping[str, Any], preferred: tuple[str, ...]) -> str:
    """Return the label of a fit that has a posterior: the one asked for, else the first of the preferred method."""
    with_posterior = [label for label, fit in fits.items() if fit._posterior is not None]
    if reference is None:
        for method in preferred:
            for label in with_posterior:
                if fits[label].method == method:
                    return label
    elif isinstance(reference, Hashable) and reference in with_posterior:
        return str(reference)
    found = "none" if reference is None else shown(reference)
    listed = ", ".join(map(repr, with_posterior)) or "none of these has one; add a fit by 'gibbs', 'nuts' or 'vi'"
    raise ValueError(f"reference must be the label of a fit with a posterior: found {found}; choose from {listed}")


def check_truth(truth: Any, kind: type, fit: Any) -> None:
    """Refuse a truth that is not a simulation of the fit's counts, at its rank."""
    if not isinstance(truth, kind):
        raise TypeError(f"truth must be what bayesnmf.simulate returns: found {type(truth).__name__}")
    given: Any = truth
    found, wanted = ((one.counts.shape, one.rank) for one in (given, fit))
    if found != wanted:
        raise ValueError(
            f"truth must have the size and rank of the fits, {wanted}: found {found}; "
            "give the simulation that was fitted"
        )
    if not same_counts(given.counts, fit.counts):
        raise ValueError(
            "truth must be what the counts were drawn from: the counts of this simulation are not those of the fits; "
            "give the simulation that was fitted"
        )
