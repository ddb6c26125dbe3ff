"""Checks of what models and methods need of covariates."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesnmf.checks import as_numbers
from bayesnmf.data.labels import listed
from bayesnmf.priors.checks import check_one_prior_for_all_rows
from bayesnmf.types import Array


def check_takes_covariates(prior: Any) -> None:
    """Refuse a prior of the loadings whose mean or concentration covariates cannot multiply."""
    name = type(prior).__name__
    if name not in ("Gamma", "Dirichlet", "ScaledDirichlet") or not prior.proper:
        found = "the flat bayesnmf.Gamma(1, 0)" if name == "Gamma" else name
        raise ValueError(
            f"covariates need loadings with a Gamma, Dirichlet or ScaledDirichlet prior that is proper: found {found}; "
            "use model='gamma_poisson', or give bayesnmf.Priors(loadings=bayesnmf.Gamma(shape, rate))"
        )
    check_one_prior_for_all_rows(prior)


def check_has_effects(prior: Any) -> None:
    """Refuse fits without covariates where their effects are asked for."""
    if not prior.has_effects:
        raise ValueError(
            "effects are those of a fit with covariates: give formula='~ ...' and covariates to bayesnmf.fit"
        )


def check_no_covariates(covariates: Any) -> None:
    """Refuse covariates of new rows where the fit had none."""
    if covariates is not None:
        raise ValueError(
            "covariates need a fit with covariates: found one without; leave them out, or fit with formula"
        )


def check_is_population[F](fit: F, population: bool) -> F:
    """Return the fit; refuse to compare its samples alone by covariates, whose effects are those of a population."""
    if not population:
        raise ValueError("population=False compares groups of these rows: give labels of them, or leave population out")
    return fit


def check_is_covariate(name: str, columns: list[str]) -> None:
    """Refuse a name that is no covariate of a fit."""
    if name not in columns:
        raise ValueError(
            f"groups must be the name of a covariate of the fit, {listed(columns)}, or groups of rows: found {name!r}"
        )


def check_effects(effects: Any, size: tuple[int, int]) -> Array:
    """Return effects as an array of their own, (p, K)."""
    values = effects.to_numpy() if hasattr(effects, "to_numpy") else effects
    found = as_numbers(values, "effects", "an array of numbers").astype(np.float64)
    if found.shape != size or not np.all(np.isfinite(found)):
        raise ValueError(
            f"effects must be finite numbers of shape {size}, a row for the intercept and each term, a column for each "
            f"component: found shape {found.shape}; write them so"
        )
    return found


def check_has_formula(effects: Any, covariates: Any) -> None:
    """Refuse effects without what they are effects of."""
    if effects is not None and covariates is None:
        raise ValueError("effects need covariates: give covariates, and a formula where they are no numbers")


def check_given(covariates: Any, what: str) -> None:
    """Refuse new rows without covariates, which their prior depends on."""
    if covariates is None:
        raise ValueError(
            f"{what} of a fit with covariates needs those of its rows: give covariates=frame (--covariates FILE)"
        )
