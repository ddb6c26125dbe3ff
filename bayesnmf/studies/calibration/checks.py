"""Checks of the arguments of a calibration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bayesnmf.checks import check_choice, check_path
from bayesnmf.options import methods_with
from bayesnmf.priors.specification import PARAMETER


def check_calibrated_method(method: Any) -> None:
    """Refuse methods without a posterior to draw from."""
    allowed = methods_with("draws", "mean field")
    if isinstance(method, str) and method in methods_with("point"):
        listed = " or ".join(repr(name) for name in allowed)
        raise ValueError(f"method must have a posterior for calibration: found {method!r}; choose {listed}")
    check_choice(method, "method", allowed)


def check_enough_draws(ranked: int, chains: int, draws: Any) -> None:
    """Refuse to rank among more draws than the chains keep, or among a number that depends on them."""
    if isinstance(draws, str):
        raise ValueError(
            f"options.draws must be a number for calibrate: found {draws!r}, which ends chains when they look right; "
            f"give draws={ranked} or more"
        )
    if chains * draws < ranked:
        raise ValueError(
            f"draws must be at most the number that the chains keep, {chains} × {draws}: found {ranked}; "
            "ask for fewer, or raise draws in the options (particles with smc)"
        )


def check_draws_of_components(components: Any) -> None:
    """Refuse components that are parameters, as they have no posterior."""
    if components == PARAMETER:
        raise ValueError(
            "options.priors.components='parameter' has no posterior to rank the truth in; leave it out, or give a prior"
        )


def check_without_covariates(loadings: Any) -> None:
    """Refuse covariates, whose effects the log joint of a draw would need."""
    if loadings.has_effects:
        raise ValueError("calibrate does not rank effects of covariates: give priors of a fit without any")


def check_suffix(path: Any, suffix: str) -> Path:
    """Return a path; refuse one with another suffix."""
    if check_path(path, "path").suffix != suffix:
        raise ValueError(f"path must end in {suffix}: found {path}; rename it")
    return Path(path)


def check_calibration_header(line: str, path: Path) -> dict[str, Any]:
    """Return the settings in the first line of a saved calibration."""
    wanted = {"model", "method", "size", "rank", "draws", "priors", "settings", "seed", "seconds", "ess"}
    try:
        about = json.loads(line.removeprefix("# "))
    except (ValueError, RecursionError):
        about = {}
    if not isinstance(about, dict) or set(about) != wanted:
        raise ValueError(f"{path} must be a file that Calibration.save wrote; save the calibration again")
    return about
