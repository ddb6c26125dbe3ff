"""Describe what determines a fit, so that fits kept in a folder can be told apart."""

from __future__ import annotations

import hashlib
from dataclasses import fields
from typing import Any

import numpy as np

from bayesnmf.data.counts import Counts
from bayesnmf.options import Options, Start
from bayesnmf.priors import Distribution, ScaledProportions

# Priors are described by side; threads and what intervals are read from do not say what is fitted.
NOT_SETTINGS = ("priors", "threads", "intervals")


def describe_settings(
    counts: Counts, model: str, rank: int, method: str, seed: int, options: Options
) -> dict[str, str]:
    """Return everything that determines a fit, as texts by name; arrays as digests."""
    settings = {"counts": digest_of_counts(counts), "model": model, "rank": str(rank), "method": method}
    settings["seed"] = str(seed)
    return settings | describe_options(options)


def describe_options(options: Options) -> dict[str, str]:
    """Return options and priors, as texts by name; arrays as digests."""
    settings = {}
    for each in fields(options):
        if each.name not in NOT_SETTINGS:
            settings[f"options.{each.name}"] = describe_value(getattr(options, each.name))
    for side in ("loadings", "components"):
        settings[f"priors.{side}"] = describe_value(getattr(options.priors, side))
    return settings


def digest_of_counts(counts: Counts) -> str:
    """Return a text that differs between counts, without their names."""
    exposures = ["none" if each is None else _digest(each) for each in (counts.row_exposure, counts.feature_exposure)]
    masked = list(() if counts.mask is None else counts.mask.arrays)
    if counts.batch is not None:
        masked += [counts.batch.codes, np.asarray(counts.batch.shape or np.nan)]
    parts = (each if isinstance(each, str) else _digest(each) for each in (*counts.identity, *masked))
    return " ".join([*parts, *exposures])


def _digest(values: Any) -> str:
    array = np.ascontiguousarray(values)
    about = f"{array.dtype.str}{array.shape}".encode()
    return hashlib.sha256(about + array.tobytes()).hexdigest()[:16]


def describe_value(value: Any) -> str:
    """Return a prior, a start, or one of their parameters, as text."""
    parts: dict[str, Any] | None = None
    if isinstance(value, Distribution):
        parts = {**value.parameters, **value.constants, **value.settings}
    elif isinstance(value, Start):
        parts = {"loadings": value.loadings, "components": value.components}
    elif isinstance(value, ScaledProportions):
        parts = {"proportions": value.proportions, "scale": value.scale}
    if parts is not None:
        return f"{type(value).__name__}({', '.join(f'{name}={describe_value(part)}' for name, part in parts.items())})"
    if np.ndim(value):
        return f"array {np.shape(value)} {_digest(value)}"
    return repr(value.item() if hasattr(value, "item") else value)
