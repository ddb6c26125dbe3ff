"""Checks of what a stream of rows can be asked for."""

from __future__ import annotations

from typing import Any

from bayesnmf.checks.options import check_start


def check_stream(options: Any, default: Any) -> None:
    """Refuse options that a stream has no use for; `default` are those it starts from."""
    if options.algorithm != "minibatch":
        raise ValueError(
            f"options.algorithm must be 'minibatch' for a stream: found {options.algorithm!r}; use "
            "VI(algorithm='minibatch', ...)"
        )
    for name in ("max_iter", "tol", "restarts"):
        if getattr(options, name) != getattr(default, name):
            raise ValueError(
                f"{name} must be left out of the options of a stream, which takes one step for each batch it is given: "
                f"found {getattr(options, name)}; for epochs over rows in memory use bayesnmf.fit"
            )
    if options.start is None:
        return
    if not isinstance(options.start, str):
        raise ValueError(
            "start must be 'svd', 'descent' or 'random' for a stream, whose rows are not those of a given start: found "
            f"{type(options.start).__name__}; leave it out"
        )
    check_start(options.start, ("svd", "descent", "random"))


def check_has_learned(rows: int, what: str) -> None:
    """Refuse to tell the components before there are any."""
    if rows == 0:
        raise ValueError(f"{what} needs rows to have been learned from: found none; call partial_fit(counts) first")
