"""Checks of fits that were read from files: their settings and shapes."""

from __future__ import annotations

import json
from numbers import Integral, Real
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from bayesnmf.checks import check_choice, check_count, shown
from bayesnmf.options import METHODS, methods_with
from bayesnmf.priors import Distribution
from bayesnmf.priors.checks import check_family
from bayesnmf.priors.specification import MODELS
from bayesnmf.results.saved_arrays import as_python

KINDS = {
    "sampled": ("mean field",),
    "linear response": ("mean field",),
    "bootstrap": ("mean field", "point"),
}  # beside these


def check_saved_settings(settings: dict[str, Any]) -> None:
    """Refuse settings of a file with values of the wrong type or out of range."""
    check_choice(settings["model"], "model", MODELS)
    check_choice(settings["method"], "method", METHODS)
    check_count(settings["rank"], "rank")
    check_count(settings["seed"], "seed", minimum=0)
    expected = METHODS[settings["method"]].options.__name__
    if settings["options"]["kind"] != expected:
        raise ValueError(f"options must be {expected} for {settings['method']}: found {settings['options']['kind']}")
    converged, reason, iterations = settings["status"]
    if not (isinstance(converged, bool) and isinstance(reason, str) and _is_number(iterations, Integral)):
        raise ValueError(f"status must be a flag, a reason and a number of iterations: found {settings['status']}")
    about = settings.get("intervals", {})
    numbers = {
        "seconds": settings["seconds"],
        **settings["diagnostics"],
        **{k: v for k, v in about.items() if k != "kind"},
    }
    for name, value in numbers.items():
        if not _is_number(value, Real):
            raise ValueError(f"{name} must be a number: found {value!r}")


def check_kept_by_json(name: str, value: Any) -> Any:
    """Return a value that JSON gives back as it is; refuse another one, which would come back changed."""
    again = json.loads(json.dumps(value, default=as_python))
    if type(again) is not type(value) or (again != value and value == value):
        raise TypeError(
            f"{name} must be an array, a table, or a word, a number or a list of these, to be saved: found "
            f"{shown(value)}; make it one"
        )
    return value


class CountsElsewhereError(ValueError):
    """The counts of a saved fit are on disk, and not where they can be found."""


def check_found_store(place: Path, near: Path) -> NoReturn:
    """Refuse a fit whose counts on disk are not found: their folder is missing, or has other counts."""
    cure = (
        "move their folder there or beside the file of the fit, or fit their source once with bayesnmf.Blocks(..., "
        f"scratch={str(near)!r}), which writes a folder that is found"
    )
    if place.is_dir():
        raise CountsElsewhereError(f"the counts in the folder {place} are not those that the fit was made from; {cure}")
    raise CountsElsewhereError(f"the counts of this fit are in the folder {place}, which is missing; {cure}")


def check_saved_shapes(fit: Any) -> None:
    """Refuse a fit with arrays that do not match its counts, rank, model and method."""
    n, m = fit.counts.shape
    rank = fit.rank
    scaled = MODELS[fit.model].loadings == "scaled simplex"
    _check_shape(fit.loadings, (n, rank), "loadings")
    _check_shape(fit.components, (rank, m), "components")
    _check_shape(fit.scale, (n,) if scaled else None, "scale")
    _check_shape(fit.component_names, None if fit.component_names is None else (rank,), "component_names")
    check_family(fit.model, "loadings", fit.priors.loadings, (n, rank))
    check_family(fit.model, "components", fit.priors.components, (rank, m))
    if fit.multipliers is not None:
        _check_shape(fit.multipliers[0], (n, rank), "multipliers of loadings")
        _check_shape(fit.multipliers[1], (rank, m), "multipliers of components")
    for name, values in (fit.moments or {}).items():
        _check_shape(values, np.shape(getattr(fit, name.split("_")[0])), f"moments[{name!r}]")
    posterior = fit.estimate
    if (posterior.kind == "point") != (METHODS[fit.method].posterior == "point"):
        others = " and ".join(methods_with("point"))
        raise ValueError(f"a posterior belongs to every method but {others}: this fit is by {fit.method}")
    beside = None if fit.intervals is None else fit.intervals.draws
    for side, shape in (("loadings", (n, rank)), ("components", (rank, m))):
        _check_posterior_shape(getattr(posterior, side, None), shape, f"posterior.{side}")
        _check_posterior_shape(getattr(beside, side, None), shape, f"intervals.{side}")
    if beside is not None and posterior.kind not in KINDS.get(fit.intervals.kind, ()):
        able = [kind for kind, of in KINDS.items() if posterior.kind in of]
        raise ValueError(f"intervals beside a {posterior.kind} are {' or '.join(able)}: found {fit.intervals.kind!r}")


def _check_posterior_shape(side: Any, shape: tuple[int, int], name: str) -> None:
    """Refuse draws (chains, draws, rows, columns) or parameters that do not match the shape of a side."""
    if isinstance(side, np.ndarray):
        _check_shape(side, (*side.shape[:2], *shape), name)
    for parameter, value in side.parameters.items() if isinstance(side, Distribution) else ():
        given, size = np.shape(value), side.sizes(shape)[parameter]
        if len(given) != 2 or any(length not in (1, full) for length, full in zip(given, size, strict=True)):
            raise ValueError(f"{name}.{parameter} must broadcast to {size}: found shape {given}")


def _check_shape(array: Any, shape: tuple[int, ...] | None, name: str) -> None:
    found = None if array is None else np.shape(array)
    if found != shape:
        raise ValueError(f"{name} must have shape {shape}: found {found}")


def _is_number(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)
