"""Checks of options, priors and starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bayesnmf.checks.values import as_numbers, check_choice, check_count, make_plain, shown
from bayesnmf.priors import Dirichlet, Gamma, ScaledDirichlet
from bayesnmf.specification import MODELS, PARAMETER

FAMILIES = {"Gamma": ("shape", "rate"), "Dirichlet": ("concentration",),
            "ScaledDirichlet": ("concentration", "shape", "rate")}  # fmt: skip
MOST_THREADS = 1024
POINT_OR_BOUND = ("map", "vi", "svi")

# The least parameter, the greatest shape or concentration, the greatest rate. Beyond the least and the greatest rate,
# sums and ratios over- or underflow. A shape a enters the objective as a log a, rounded to 1e-16 of itself: above 1e8 a
# fit could not see changes of the objective as small as the default tolerance.
RANGE = {"float64": (1e-100, 1e8, 1e100), "float32": (1e-20, 1e8, 1e20)}
RANGE_OF_STARTS = {"float64": (1e-100, 1e100, 1e100), "float32": (1e-15, 1e15, 1e20)}  # finite as means, too


def check_start(start: Any, words: tuple[str, ...]) -> None:
    """Refuse a start that is neither one of the words, nor a Start, nor a Fit."""
    if isinstance(start, str):
        check_choice(start, "start", words)
    elif not (hasattr(start, "loadings") and hasattr(start, "components")):
        listed = ", ".join(repr(word) for word in words)
        raise TypeError(f"start must be a Start(loadings, components), a Fit or one of {listed}: found {shown(start)}")


def check_threads(threads: Any) -> None:
    """Refuse a number of threads that is neither None nor a whole number from 1 to `MOST_THREADS`."""
    if threads is not None and check_count(threads, "threads", most=10**40) > MOST_THREADS:
        raise ValueError(f"threads must be at most {MOST_THREADS:,}; give the number of cores, or leave threads out")


def check_settings(options: Any) -> None:
    """Make numbers among the options plain, and refuse priors that are none."""
    make_plain(options)
    if type(options.priors).__name__ != "Priors":
        raise TypeError(f"priors must be Priors(loadings=..., components=...): found {shown(options.priors)}")


def check_sampler(options: Any) -> None:
    """Check what the options of gibbs and nuts have in common."""
    check_settings(options)
    check_start(options.start, ("fit", "random"))
    check_count(options.chains, "chains")
    check_count(options.draws, "draws")
    check_count(options.warmup, "warmup", minimum=0)


def check_options_by_method(options: Any) -> None:
    """Refuse options of several methods that do not say which are whose."""
    if options is not None and not isinstance(options, Mapping):
        raise TypeError(f"options must map methods to options, as in {{'vi': VI(...)}}: found {shown(options)}")


def check_options(options: Any, method: str, expected: type) -> None:
    """Refuse the options of another method."""
    if not isinstance(options, expected):
        raise TypeError(
            f"options must be bayesnmf.{expected.__name__}(...) for method={method!r}: found {type(options).__name__}"
        )


def check_priors(priors: Any) -> None:
    """Check the parameters of both priors by themselves."""
    for side in ("loadings", "components"):
        prior = getattr(priors, side)
        if prior is None or (side == "components" and isinstance(prior, str) and prior == PARAMETER):
            continue
        if type(prior).__name__ not in FAMILIES:
            allowed = "Gamma, Dirichlet, 'parameter'" if side == "components" else ", ".join(FAMILIES)
            raise TypeError(f"priors.{side} must be one of {allowed} or None: found {shown(prior)}")
        for parameter in FAMILIES[type(prior).__name__]:
            _check_parameter(getattr(prior, parameter), f"priors.{side}.{parameter}", parameter == "rate")
        if not prior.proper and not prior.flat:
            raise ValueError(
                f"priors.{side}.rate must be positive (found 0); only the flat prior Gamma(1, 0) has rate 0"
            )


def _check_parameter(value: Any, name: str, may_be_zero: bool) -> None:
    array = as_numbers(value, name)
    if not np.all(np.isfinite(array)) or np.any(array < 0) or (not may_be_zero and np.any(array == 0)):
        rule = "nonnegative" if may_be_zero else "positive"
        raise ValueError(f"{name} must be {rule} and finite: found {shown(value)}")


def _check_range(value: Any, name: str, limits: tuple[float, float], dtype: str) -> None:
    least, most = limits
    array = np.asarray(value, np.float64)
    outside = (array != 0) & ((array < least) | (array > most))
    if outside.any():
        wider = "use dtype='float64' or " if dtype == "float32" else ""
        raise ValueError(
            f"{name} must be between {least:g} and {most:g} in {dtype}, where objectives keep their digits: "
            f"found {array[outside].flat[0]:g}; {wider}choose a value nearer to 1, or another unit of the counts"
        )


def _check_ranges(given: Any, name: str, dtype: str, ranges: dict[str, tuple[float, float, float]]) -> None:
    least, shape, rate = ranges[dtype]
    for parameter in FAMILIES.get(type(given).__name__, ()):
        limits = (least, rate if parameter == "rate" else shape)
        _check_range(getattr(given, parameter), f"{name}.{parameter}", limits, dtype)


def check_ranges(options: Any, dtype: str) -> None:
    """Refuse parameters of priors and given starts with which numbers of this type over- or underflow.

    A start that is a fit has been reached with numbers of this kind.
    """
    for side in ("loadings", "components"):
        _check_ranges(getattr(options.priors, side), f"priors.{side}", dtype, RANGE)
        if type(getattr(options, "start", None)).__name__ == "Start":
            _check_ranges(getattr(options.start, side), f"start.{side}", dtype, RANGE_OF_STARTS)


def check_family(model: str, side: str, prior: Any, size: tuple[int, int]) -> None:
    """Refuse a prior that is not conjugate in the model, or whose parameters do not fit (n, K) or (K, m)."""
    spec = MODELS[model]
    allowed = (spec.loadings,) if side == "loadings" else spec.components
    if prior == PARAMETER:
        return
    if not isinstance(prior, allowed):
        names = " or ".join(family.__name__ for family in allowed)
        raise ValueError(
            f"priors.{side} must be {names} for model={model!r}, where the updates are conjugate: "
            f"found {type(prior).__name__}"
        )
    check_broadcast(prior, side, size)


def check_broadcast(prior: Any, side: str, size: tuple[int, int]) -> None:
    """Refuse a prior whose parameters do not fit (n, K) or (K, m)."""
    for parameter in FAMILIES[type(prior).__name__]:
        full = (size[0], 1) if isinstance(prior, ScaledDirichlet) and parameter != "concentration" else size
        shape = np.shape(getattr(prior, parameter))
        try:
            fits = np.broadcast_shapes(shape, full) == full
        except ValueError:
            fits = False
        if not fits:
            raise ValueError(f"priors.{side}.{parameter} must broadcast to {full}: found shape {shape}")


def check_posterior_exists(model: str, method: str, loadings: Any, components: Any, natural_mode: bool) -> None:
    """Refuse improper posteriors, and parameters where there must be a prior."""
    if components == PARAMETER and method not in POINT_OR_BOUND:
        raise ValueError(
            f"components='parameter' has no posterior to sample: method={method!r} needs a prior; "
            "give priors.components, or use method='vi'"
        )
    flat_loadings = isinstance(loadings, Gamma) and loadings.flat
    flat_components = isinstance(components, Gamma) and components.flat
    on_simplex = components == PARAMETER or isinstance(components, Dirichlet)
    if not natural_mode and (flat_components or (flat_loadings and not on_simplex)):
        side = "components" if flat_components else "loadings"
        raise ValueError(
            f"priors.{side} is flat, Gamma(1, 0), and the posterior of model={model!r} is improper; give it a "
            "rate above 0, put the components on the simplex with Dirichlet(...), or use method='map' in the "
            "natural basis"
        )


def check_natural_basis(loadings: Any, components: Any) -> None:
    """Refuse the natural basis where the density is unbounded at 0."""
    for side, prior in (("loadings", loadings), ("components", components)):
        if prior != PARAMETER and prior.smallest_shape < 1:
            raise ValueError(
                f"basis='natural' needs priors.{side} at 1 or above, else the density is unbounded at 0: "
                f"found {prior.smallest_shape:g}; use basis='log'"
            )


def check_start_factor(value: Any, name: str, size: tuple[int, int]) -> np.ndarray:
    """Return a given factor as a nonnegative, finite array of the right size."""
    array = as_numbers(value, f"start.{name}", "an array of numbers or a distribution")
    if array.shape != size:
        raise ValueError(f"start.{name} must have shape {size}: found {array.shape}")
    if not np.all(np.isfinite(array)) or np.any(array < 0):
        raise ValueError(f"start.{name} must be nonnegative and finite; clip it at 0")
    return array


def check_on_simplex(array: np.ndarray, name: str) -> None:
    """Refuse a start off the simplex on which its prior lives."""
    sums = array.sum(axis=-1)
    if not np.allclose(sums, 1, rtol=0, atol=1e-6):
        worst = int(np.argmax(np.abs(sums - 1)))
        raise ValueError(
            f"start.{name} must have rows that sum to 1: row {worst} sums to {sums[worst]:g}; divide by it"
        )


def check_start_distribution(value: Any, prior: Any, name: str, size: tuple[int, int]) -> Any:
    """Return a starting q at full size; refuse another family than the conditional's, and impossible parameters."""
    if type(value) is not type(prior):
        raise ValueError(
            f"start.{name} must be a {type(prior).__name__}, the family of its posterior, or an array: "
            f"found {type(value).__name__}"
        )
    for parameter in FAMILIES[type(value).__name__]:
        _check_parameter(getattr(value, parameter), f"start.{name}.{parameter}", may_be_zero=False)
    try:
        return value.broadcast(size)
    except ValueError as error:
        raise ValueError(f"start.{name} must broadcast to {size}") from error


def check_same_features(names: np.ndarray, given: np.ndarray) -> None:
    """Refuse new counts whose features are not those of the fit."""
    if len(names) != len(given):
        raise ValueError(
            f"counts must have the {len(names)} features of the fit: found {len(given)}; select or pad the columns"
        )
    default = np.arange(len(given))
    if not np.array_equal(given, default) and not np.array_equal(names, default):
        same = np.asarray(names, dtype=str) == np.asarray(given, dtype=str)
        if not same.all():
            first = int(np.argmin(same))
            raise ValueError(
                f"counts must have the features of the fit in their order: column {first} is {given[first]!r}, "
                f"not {names[first]!r}; reindex the columns"
            )


def check_one_prior_for_all_rows(prior: Any) -> None:
    """Refuse to give new samples the prior of particular old ones."""
    for parameter in FAMILIES[type(prior).__name__]:
        shape = np.shape(getattr(prior, parameter))
        if len(shape) == 2 and shape[0] > 1:
            raise ValueError(
                f"priors.loadings.{parameter} differs between rows, so new samples have none; "
                "give one of shape (K,), or do without transform and withheld samples (Settings(withhold=0))"
            )
