"""Checks of what posteriors are asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bayesnmf.checks.values import check_count, shown


def check_components_have_posterior(components: Any) -> None:
    """Refuse to summarise components that are parameters."""
    if components is None:
        raise ValueError(
            "components are parameters here, without a posterior: found priors.components='parameter'; ask for rows= "
            "alone, or give the components a prior"
        )


def check_leave_one_out(method: str) -> None:
    """Refuse leave-one-out on anything but the draws of a sampler."""
    if method not in ("gibbs", "nuts"):
        raise ValueError(
            f"loo needs a fit by method='gibbs' or method='nuts': found {method!r}, whose draws are not of the "
            "posterior, so that it would be favoured for intervals that are too narrow; "
            "rank such fits by held-out counts, with bayesnmf.select"
        )


def check_least_draws(chains: int, draws: int, needed: tuple[int, int], what: str) -> None:
    """Refuse `what` of fewer draws than it takes, in each chain and in all."""
    each, together = needed
    if draws < each or chains * draws < together:
        raise ValueError(
            f"{what} needs at least {each} draws in each chain and {together} in all: found {chains} × {draws}; "
            "fit with more draws"
        )


def check_ranks(ranks: Any) -> list[int]:
    """Return ranks as a list of different whole numbers of at least 1, in rising order; one number will do."""
    listed = list(ranks) if isinstance(ranks, Iterable) and not isinstance(ranks, str | bytes) else [ranks]
    found = [check_count(rank, "ranks") for rank in listed]
    if not found or len(set(found)) < len(found):
        raise ValueError(f"ranks must name at least one, and none twice: found {shown(listed)}")
    return sorted(found)
