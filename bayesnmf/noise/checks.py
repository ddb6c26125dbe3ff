"""Checks of noises."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesnmf.checks import check_dispersion, shown


def check_is_distribution(able: bool, noise: Any, what: str) -> None:
    """Refuse a noise that is no distribution of counts."""
    if not able:
        raise ValueError(
            f"{what} need a distribution of the counts, which noise={noise.word!r} is not: fit with noise='nb1', or "
            "'poisson', for it"
        )


def check_number_of_dispersions(given: Any, names: tuple[str, ...], dispersion: Any) -> None:
    """Refuse dispersions that are not one for each of several matrices."""
    if len(given) != len(names):
        raise ValueError(f"dispersion must have a number for each of {names}: found {shown(dispersion)}")


def check_one_dispersion(noises: list[Any]) -> None:
    """Refuse noises of several matrices of which one has dispersions of rows or features."""
    if any(each.by for each in noises):
        raise ValueError("noise of a matrix must have one dispersion: found those of rows or features; give a number")


def check_share(share: Any, by: str | None) -> Any:
    """Return shares of zeros as a number, or as an array that nobody can write into; refuse others than 0 to 1."""
    found = check_dispersion(share, by, "share")
    if not np.all(np.asarray(found) < 1):
        raise ValueError(f"share must be below 1, as counts would be 0 only: found {shown(share)}; give less")
    if isinstance(found, np.ndarray):
        found = found.copy()
        found.setflags(write=False)
    return found
