"""Checks of covariates and formulas."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesnmf.checks import as_numbers, shown
from bayesnmf.data.labels import listed
from bayesnmf.priors.checks import check_one_prior_for_all_rows
from bayesnmf.types import Array

DEPENDENT = 1e-9  # of the largest singular value of standardised columns


def check_frame(covariates: Any, frame: Any, rows: int | None) -> None:
    """Refuse covariates that are no table with a row for each row of the counts."""
    if frame is None:
        raise TypeError(
            f"covariates must be a DataFrame, a Series, a mapping of columns or an array of numbers (n, p): found "
            f"{shown(covariates)}; give a column for each covariate"
        )
    if rows is not None and len(frame) != rows:
        raise ValueError(
            f"covariates must have a row for each of {rows:,} rows of the counts: found {len(frame):,}; give one for "
            "each, in their order, or name the rows"
        )


def check_has_covariates(formula: Any, covariates: Any) -> None:
    """Refuse a formula without covariates, and one that is no text."""
    if formula is not None and not isinstance(formula, str):
        raise TypeError(f"formula must be text, as '~ age + treatment': found {shown(formula)}; write it so")
    if covariates is None:
        raise ValueError(
            "formula needs covariates, which its names are columns of: give covariates=frame (--covariates FILE), or "
            "AnnData"
        )


def check_mapping(covariates: Any, error: Exception | None) -> None:
    """Refuse a mapping whose columns are not lists of one length."""
    if error is not None:
        raise ValueError(
            f"covariates as a mapping must have a list for each column, all of one length, as in {{'age': [40, 70]}}: "
            f"found {shown(dict(covariates))}; write them so"
        ) from error


def check_columns(frame: Any, names: list[str], argument: str = "covariates") -> None:
    """Refuse names that are no columns or several, and missing values in those that are used."""
    absent = [name for name in names if name not in frame.columns]
    if absent:
        raise ValueError(
            f"{argument} must have the columns of the formula: {listed(absent)} missing; there are "
            f"{listed([str(each) for each in frame.columns]) or 'none'}"
        )
    if twice := [name for name in dict.fromkeys(names) if (frame.columns == name).sum() > 1]:
        raise ValueError(f"{argument} must have columns with names that differ: {listed(twice)} repeats; rename them")
    for name in names:
        gone = np.flatnonzero(frame[name].isna().to_numpy())
        if len(gone):
            raise ValueError(
                f"{argument} must have no missing values: column {name!r} has {len(gone):,}, the first in row "
                f"{str(frame.index[gone[0]])!r}; leave these rows out of counts and covariates, or fill them in"
            )


def check_numbers(frame: Any, design: Array | None) -> None:
    """Refuse columns that are no finite numbers, where no formula says how to code them."""
    if design is None:
        words = [str(name) for name in frame.columns if not is_number(frame[name])]
        raise ValueError(
            f"covariates without a formula must be numbers: column {listed(words)} has others; give "
            "formula='~ column + ...', which codes categories"
        )
    bad = np.flatnonzero(~np.isfinite(design).all(axis=0))
    if len(bad):
        raise ValueError(
            f"covariates must be finite: column {str(frame.columns[bad[0]])!r} has infinite values; clip them"
        )


def check_kinds(frame: Any, names: list[str]) -> None:
    """Refuse columns of dates, and of numbers that are written as text, which would be a category for each value."""
    import pandas as pd

    for name in names:
        column = frame[name]
        if column.dtype.kind in "mM":
            raise ValueError(f"covariates column {name!r} has dates: make numbers of them, such as years")
        words = column.dtype == object or isinstance(column.dtype, pd.StringDtype)
        if words and pd.to_numeric(column, errors="coerce").notna().all():
            raise ValueError(
                f"covariates column {name!r} has numbers that are written as text: make numbers of them by "
                f"astype(float), or write C({name}) for a category of each"
            )


def check_are_numbers(frame: Any, names: list[str]) -> None:
    """Refuse other values in columns that were numbers in the fit."""
    if words := [name for name in names if not is_number(frame[name])]:
        raise ValueError(
            f"covariates column {listed(words)} must be numbers, as in the fit: found others; convert them"
        )


def is_number(column: Any) -> bool:
    """Return whether a column has numbers or booleans."""
    return column.dtype.kind in "biuf"  # types of pandas with missing values, too


def check_formula(formula: str, parsed: Any, error: Exception | None) -> None:
    """Refuse formulas with a left side or parts, without intercept, and with code."""
    rule = "formula must name columns of covariates, as '~ age + treatment' or '~ age * treatment'"
    if error is not None:
        first = str(error).splitlines()[0].rstrip(".")
        raise ValueError(f"{rule}: found {formula!r} ({first}); write it so") from error
    if not hasattr(parsed, "required_variables") or type(parsed).__name__ != "SimpleFormula":
        raise ValueError(f"{rule}, with nothing left of ~ and no |: found {formula!r}; loadings are on the left")
    if not any(str(term) == "1" for term in parsed):
        raise ValueError(f"{rule}, and keep its intercept, the size of a component: found {formula!r}; leave out 0, -1")
    if len(list(parsed)) < 2:
        raise ValueError(f"{rule}: found {formula!r}, with no covariate; name one, or leave formula out")


def check_code(formula: str, code: list[str]) -> None:
    """Refuse functions in formulas: what they learn from rows would be lost, and files would have code in them."""
    if code:
        raise ValueError(
            f"formula must have names, +, :, * and C(name) alone: found {listed(code)} in {formula!r}; make a column "
            "of that in covariates, and name it (columns are standardised by themselves)"
        )


def check_design(design: Array, names: list[str]) -> None:
    """Refuse constant columns, and columns that others determine; `design` begins with ones."""
    constant = [name for name, column in zip(names[1:], design.T[1:], strict=True) if np.ptp(column) == 0]
    if constant:
        raise ValueError(f"covariates must vary between rows: {listed(constant)} does not; leave it out")
    for last in range(2, len(names) + 1):
        found = np.linalg.svd(design[:, :last], compute_uv=False)
        if found[-1] <= DEPENDENT * found[0] or last > len(design):
            raise ValueError(
                f"covariates must not determine each other: {names[last - 1]!r} is a sum of others; leave it out"
            )


def check_levels_vary(levels: dict[str, list[str]]) -> None:
    """Refuse categories of a single level."""
    same = [name for name, each in levels.items() if len(each) < 2]
    if same:
        raise ValueError(f"covariates must vary between rows: {listed(same)} has one level; leave it out")


def check_levels(column: str, values: Array, levels: list[str]) -> None:
    """Refuse categories that no fitted row has."""
    new = [value for value in dict.fromkeys(values.tolist()) if value not in set(levels)]
    if new:
        raise ValueError(
            f"covariates column {column!r} has {listed(new)}, which no fitted row has: there are {listed(levels)}; "
            "leave these rows out"
        )


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


def check_covariates_served(options: Any, method: str, thinned: bool) -> None:
    """Refuse methods and options that neither learn nor draw the effects of covariates."""
    if method == "smc":
        raise ValueError("method='smc' does not temper effects of covariates: use method='gibbs', or leave both out")
    if method == "map" and options.priors.loadings.support != "positive":
        raise ValueError(
            "method='map' does not work with covariates of proportions: at the mode, concentrations would grow without "
            "bound; use method='vi', or model='gamma_poisson'"
        )
    if "loadings" in getattr(options, "learn", ()):
        raise ValueError(
            "learn='loadings' does not work with covariates, whose effects are learned anyway; leave it out"
        )
    if thinned:
        raise ValueError(
            "draws of effects are kept with all draws: ask for fewer draws, or bayesnmf.Gibbs(keep='draws')"
        )


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


def check_recovered(name: str, found: bool) -> None:
    """Refuse covariates whose values a design does not tell."""
    if not found:
        raise ValueError(
            f"the covariate {name!r} is in the formula with others alone, so that its values are not kept: name it "
            "there by itself, too, as in '~ age + age:treatment'"
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
