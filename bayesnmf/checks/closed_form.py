"""Checks of what map and vi can be asked for, and of algorithms against priors."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesnmf.checks.options import check_settings, check_start, check_threads
from bayesnmf.checks.values import (
    check_choice,
    check_count,
    check_flag,
    check_nonnegative,
    check_positive,
    shown,
)
from bayesnmf.priors import Dirichlet, Gamma
from bayesnmf.specification import PARAMETER

STARTS = ("race", "svd", "descent", "random")


def check_coordinate_ascent(options: Any) -> None:
    """Check what the options of map and vi have in common."""
    check_settings(options)
    if options.start is not None:
        check_start(options.start, STARTS)
    if options.schedule is not None:
        check_choice(options.schedule, "schedule", ("joint", "alternating"))
    check_choice(options.order, "order", ("loadings", "components"))
    if options.sweeps is not None:
        check_count(options.sweeps, "sweeps")
    if options.extrapolate is not None:
        check_flag(options.extrapolate, "extrapolate")
    check_count(options.restarts, "restarts")
    check_choice(options.dtype, "dtype", ("float64", "float32"))
    check_count(options.max_iter, "max_iter", minimum=0)
    if options.tol is not None:
        check_nonnegative(options.tol, "tol")
    check_threads(options.threads)
    if options.restarts > 1 and not isinstance(options.start, str | None):
        raise ValueError(
            f"restarts={options.restarts} must go with a start that is a word, after which all others are random: a "
            "given start is the same each time; leave start or restarts out"
        )


def check_decomposition(options: Any) -> None:
    """Check the options of bld."""
    check_settings(options)
    check_start(options.start, ("fit", "map", "vi", "random"))
    check_count(options.restarts, "restarts")
    check_count(options.max_iter, "max_iter", minimum=0)
    check_nonnegative(options.tol, "tol")
    check_threads(options.threads)
    if options.restarts > 1 and not isinstance(options.start, str):
        raise ValueError(
            f"restarts={options.restarts} needs a random start: a given one is one and the same; use start='fit'"
        )


def check_allocation_model(model: str) -> None:
    """Refuse the best latent decomposition of a model whose allocations it is not stated for."""
    if model != "dirichlet_gamma":
        raise ValueError(
            f"method='bld' needs model='dirichlet_gamma', whose factors integrate out given the allocations: found "
            f"{model!r}; use model='dirichlet_gamma', or method='map'"
        )


def check_map_algorithm(options: Any) -> None:
    """Check the algorithm of map against its other options."""
    if options.algorithm is not None:
        check_choice(options.algorithm, "algorithm", ("em", "scd", "ccd"))
    check_nonnegative(options.kkt_tol, "kkt_tol")
    if options.algorithm in (None, "em"):
        return
    if options.schedule == "joint":
        raise ValueError(
            f"schedule='joint' must go with algorithm='em': {options.algorithm!r} regresses one side on the other; "
            "leave schedule out"
        )
    if options.basis == "log":
        raise ValueError(f"basis='log' must go with algorithm='em': {options.algorithm!r} works in the natural basis")


def check_vi_algorithm(options: Any) -> None:
    """Check the algorithm of vi against its other options."""
    if options.algorithm is not None:
        check_choice(options.algorithm, "algorithm", ("coordinate", "settled", "gradient", "minibatch"))
    _check_batches(options)
    if not isinstance(options.learn, tuple | list):
        raise TypeError(f"learn must be a tuple of sides, as in learn=('loadings',): found {shown(options.learn)}")
    if not all(isinstance(side, str) and side in ("loadings", "components") for side in options.learn):
        raise ValueError(f"learn must list sides, of 'loadings' and 'components': found {shown(options.learn)}")
    if options.algorithm in (None, "coordinate"):
        return
    batches = options.algorithm == "minibatch"
    asked = {
        "start='race'": isinstance(options.start, str) and options.start == "race" and options.algorithm != "settled",
        "schedule": options.schedule is not None,
        "order": options.order != "loadings",
        "sweeps": options.sweeps is not None and not batches,
        "extrapolate": options.extrapolate and options.algorithm != "settled",
        "learn": bool(options.learn) and options.algorithm != "settled",
    }
    reasons = {
        "settled": "loadings settle, then the components move",
        "gradient": "a gradient moves everything at once",
        "minibatch": "batches settle their loadings, then take one step of the components",
    }
    reason = reasons[options.algorithm]
    for name, given in asked.items():
        if given:
            raise ValueError(f"{name} must go with algorithm='coordinate': {reason}; leave {name} out")


def _check_batches(options: Any) -> None:
    """Check batch size and step sizes, which are of algorithm="minibatch" alone."""
    for name in ("batch_size", "forgetting", "delay"):
        if getattr(options, name) is not None and options.algorithm != "minibatch":
            raise ValueError(
                f"{name} must go with algorithm='minibatch': algorithm={options.algorithm!r} takes all rows at once; "
                f"leave {name} out"
            )
    if options.batch_size is not None:
        check_count(options.batch_size, "batch_size")
    if options.forgetting is not None and not 0.5 < check_positive(options.forgetting, "forgetting") <= 1:
        raise ValueError(
            f"forgetting must be above 0.5 and at most 1, so that the steps converge: found {options.forgetting:g}; "
            "give 0.6"
        )
    if options.delay is not None:
        check_nonnegative(options.delay, "delay")


def check_regression(options: Any, loadings: Any, components: Any) -> None:
    """Refuse coordinate descent where the priors have no interior mode or tie the scales of both sides."""
    if options.algorithm in (None, "em"):
        return
    fault = regression_fault(loadings, components)
    if fault:
        raise ValueError(f"algorithm={options.algorithm!r} needs {fault}")


def regression_fault(loadings: Any, components: Any) -> str:
    """Return what coordinate descent needs and these priors lack, with the cure; "" if it can fit them."""
    for side, prior in (("loadings", loadings), ("components", components)):
        if prior != PARAMETER and prior.smallest_shape < 1:
            return (
                f"priors.{side} at 1 or above, else the density is unbounded at 0: found {prior.smallest_shape:g}; "
                "use algorithm='em', which takes the log basis"
            )
    on_simplex = components == PARAMETER or isinstance(components, Dirichlet)
    if on_simplex and not _flat_in_shares(loadings):
        return (
            "flat loadings where components are on the simplex, Gamma(1, rate) with one rate for all components or "
            "concentration 1, since the scale of a component moves between the sides; give Gamma components, or use "
            "algorithm='em'"
        )
    return ""


def _flat_in_shares(prior: Any) -> bool:
    """Whether a prior of the loadings has no say in how a row's total is shared out among the components."""
    if isinstance(prior, Gamma):
        one_rate = np.atleast_2d(prior.rate).shape[-1] == 1
        return one_rate and bool(np.all(np.asarray(prior.shape) == 1))
    return bool(np.all(np.asarray(prior.concentration) == 1))


def check_learnable(learn: Any, loadings: Any, components: Any) -> None:
    """Refuse to learn hyperparameters that are not there, or that differ from row to row."""
    for side, prior in (("loadings", loadings), ("components", components)):
        if side not in learn:
            continue
        if prior == PARAMETER:
            raise ValueError("learn='components' needs a prior on the components: found 'parameter'; give Dirichlet(1)")
        if isinstance(prior, Gamma) and prior.flat:
            raise ValueError(f"learn needs a proper priors.{side}: found the flat Gamma(1, 0); give it a rate above 0")
        _check_groups(side, prior)


def _check_groups(side: str, prior: Any) -> None:
    shapes = {name: np.shape(value) for name, value in vars(prior).items()}
    pair = [shapes[name] for name in ("shape", "rate") if name in shapes]
    if len(set(pair)) > 1:
        raise ValueError(
            f"learn takes shape and rate of priors.{side} together, so they must be of one size: found shapes "
            f"{pair[0]} and {pair[1]}; give both as numbers, or both for each component"
        )
    for name, size in shapes.items():
        if (side == "loadings" and len(size) == 2 and size[0] > 1) or (
            side == "components" and len(size) == 2 and min(size) > 1
        ):
            raise ValueError(
                f"learn needs priors.{side}.{name} to pool over rows or features: found one of shape {size}; give a "
                "number, or one for each component"
            )
