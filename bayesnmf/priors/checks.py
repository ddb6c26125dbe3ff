"""Checks of priors: their parameters, families and shapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesnmf.checks import as_numbers, check_choice, shown
from bayesnmf.noise.abilities import Dispersed, Noise
from bayesnmf.noise.words import NOISES, OTHERS
from bayesnmf.priors.distribution import Distribution
from bayesnmf.priors.families import names_of
from bayesnmf.priors.specification import MODELS, PARAMETER


def check_noise(noise: Any) -> Noise:
    """Return a noise, which may be given by its word."""
    if isinstance(noise, Noise):
        return noise
    if not isinstance(noise, str):
        raise TypeError(f"noise must be a word, as 'nb1', or bayesnmf.NegativeBinomial(...): found {shown(noise)}")
    return NOISES[check_choice(noise, "noise", NOISES, OTHERS)]


def check_length_of_dispersion(noise: Noise, size: tuple[int, int]) -> None:
    """Refuse dispersions that are not one for each row, or feature, of (n, m) counts."""
    if not isinstance(noise, Dispersed) or noise.by in (None, "matrix") or not noise.known:
        return
    length = size[0 if noise.by == "row" else 1]
    if len(noise.dispersion) != length:
        raise ValueError(
            f"dispersion must have one number for each {noise.by} of the counts: found {len(noise.dispersion):,} for "
            f"{length:,}; put it in the order of the counts"
        )


def same_prior(one: Any, other: Any) -> bool:
    """Return whether two priors of one side are equal."""
    if type(one) is not type(other) or isinstance(one, str):
        return type(one) is type(other) and bool(one == other)
    same = [np.array_equal(value, other.parameters[name]) for name, value in one.parameters.items()]
    return all(same) and one.settings == other.settings


def same_priors(one: Any, other: Any) -> bool:
    """Return whether the priors of both sides are equal."""
    return all(map(same_prior, vars(one).values(), vars(other).values()))


def check_priors(priors: Any) -> None:
    """Check the classes and parameters of both priors, without a model or counts."""
    for side in ("loadings", "components"):
        prior = getattr(priors, side)
        if prior is None or (side == "components" and isinstance(prior, str) and prior == PARAMETER):
            continue
        if not isinstance(prior, Distribution):
            allowed = names_of("positive", "simplex")
            allowed += names_of("scaled simplex") if side == "loadings" else ["'parameter'"]
            raise TypeError(f"priors.{side} must be one of {', '.join(allowed)} or None: found {shown(prior)}")
        if side not in prior.sides:
            raise ValueError(
                f"priors.{side} must be a prior for {side}: found {shown(prior)}, which is for "
                f"{' and '.join(prior.sides)}; share its rates over another axis"
            )
        for name, value in prior.parameters.items():
            check_parameter(value, f"priors.{side}.{name}", name in prior.may_be_zero)
        if not prior.proper and not prior.flat:
            raise ValueError(
                f"priors.{side}.rate must be positive (found 0); only the flat prior bayesnmf.Gamma(1, 0) has rate 0"
            )


def check_parameter(value: Any, name: str, may_be_zero: bool) -> None:
    """Refuse a parameter with entries that are negative, not finite, or 0 unless `may_be_zero`."""
    array = as_numbers(value, name)
    if not np.all(np.isfinite(array)) or np.any(array < 0) or (not may_be_zero and np.any(array == 0)):
        rule = "nonnegative" if may_be_zero else "positive"
        raise ValueError(f"{name} must be {rule} and finite: found {shown(value)}")


def check_family(model: str, side: str, prior: Any, size: tuple[int, int]) -> None:
    """Refuse a prior that is not conjugate in the model, or does not broadcast to (n, K) or (K, m)."""
    spec = MODELS[model]
    if prior == PARAMETER:
        return
    supports = (spec.loadings,) if side == "loadings" else spec.components
    if prior.support not in supports:
        raise ValueError(
            f"priors.{side} must be {' or '.join(names_of(*supports))} for model={model!r}, so that the updates are "
            f"conjugate: found {type(prior).__name__}"
        )
    check_broadcast(prior, side, size)


def check_broadcast(prior: Distribution, side: str, size: tuple[int, int]) -> None:
    """Refuse a prior with parameters that do not broadcast to (n, K) or (K, m)."""
    sizes = prior.sizes(size)
    if misfit := prior.misfit(size):
        what = "fixed_components" if "known" in prior.constants else "covariates"
        raise ValueError(f"priors.{side} {misfit}; give {what} for these counts and this rank")
    beside = "known" in prior.constants
    of = f", for the {sizes[prior.counted][0]} components besides the known ones" if beside else ""
    for name, value in prior.parameters.items():
        shape, full = np.shape(value), sizes[name]
        try:
            fits = np.broadcast_shapes(shape, full) == full
        except ValueError:
            fits = False
        if not fits:
            raise ValueError(f"priors.{side}.{name} must broadcast to {full}{of}: found shape {shape}")


def check_one_prior_for_all_rows(prior: Any) -> None:
    """Refuse a prior of the loadings that differs between rows, since new rows would have none."""
    if prior.has_effects:
        raise ValueError(
            "covariates differ between rows, so new samples need theirs; give covariates, or leave both out"
        )
    for name, value in prior.parameters.items():
        shape, shared = np.shape(value), prior.sizes((2, 3))[name][1] > 1
        if len(shape) == 2 and shape[0] > 1:
            raise ValueError(
                f"priors.loadings.{name} differs between rows, so new samples have none; give a number"
                f"{' or a parameter of shape (K,)' * shared}, or use neither transform nor withheld samples "
                "(withhold=0) nor criterion='stability'"
            )
