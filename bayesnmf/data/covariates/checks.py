"""Checks of covariates and formulas."""

from __future__ import annotations

import re
from collections.abc import Hashable
from datetime import date, timedelta
from typing import Any, NoReturn

import numpy as np

from bayesnmf.checks import as_numbers, shown
from bayesnmf.data.covariates.coding import INTERCEPT, scales_of
from bayesnmf.data.labels import listed
from bayesnmf.priors.checks import check_one_prior_for_all_rows
from bayesnmf.types import Array

DEPENDENT = 1e-9  # of the largest singular value of standardised columns
MOST_TERMS = 1000  # of a formula
MOST_NAMED = 6  # columns that a cure names
RULE = "formula must have names, +, :, * and C(name) alone"
OF_COLUMN = (
    "make a column of that in covariates, and name it (columns are standardised by themselves), as "
    "covariates['age_2'] = covariates['age'] ** 2 and '~ age + age_2'"
)
BETWEEN = "put +, : or * between names, and names with spaces in backticks, as `my column`"
POWER = f"x**2 and x^2 are x in formulas elsewhere; {OF_COLUMN}; write products of sums out, as '~ a + b + a:b'"
IN_PLACE = {
    "**": POWER,
    "^": POWER,
    "/": "for a/b write '~ a + a:b'",
    "%": "for b %in% a write '~ a:b'",
    ".": "name the columns, as '~ EVERY'",
    "1": "the intercept is there by itself, and has no products; leave it out",
    ",": BETWEEN,
    ")": "a bracket is closed that none opens; leave it out",
    "(": "it has too many brackets within brackets; write the terms out, as '~ a + b + a:b'",
    "+": "a name must stand on both sides of +; leave one + out",
    "*": "a name must stand on both sides of *; leave it out",
    ":": "a name must stand on both sides of :; leave it out",
    "`": "close the name with another `",
    "": OF_COLUMN,
}
SQUARE = ", or make a column of its square, covariates['{name}_2'] = covariates['{name}'] ** 2, and name that"


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
            f"{listed([str(each) for each in frame.columns]) or 'none'}; use these, or name the columns so, as "
            f"pd.DataFrame(array, columns={names}, index=counts.index)"
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


def check_numbers(frame: Any) -> None:
    """Refuse columns that are no numbers, where no formula says how to code them."""
    if words := [str(name) for name in frame.columns if not is_number(frame[name])]:
        raise ValueError(
            f"covariates without a formula must be numbers: column {listed(words)} has others; give "
            "formula='~ column + ...', which codes categories"
        )


def check_finite(frame: Any, names: list[str]) -> None:
    """Refuse infinite numbers."""
    for name in names:
        if is_number(frame[name]) and not np.isfinite(np.asarray(frame[name], np.float64)).all():
            raise ValueError(f"covariates must be finite: column {name!r} has infinite values; clip them")


def check_kinds(frame: Any, names: list[str]) -> None:
    """Refuse columns of dates, and of numbers that are written as text, which would be a category for each value."""
    import pandas as pd

    for name in names:
        column = frame[name]
        words = column.dtype == object or isinstance(column.dtype, pd.StringDtype)
        if column.dtype.kind == "M" or isinstance(column.dtype, pd.PeriodDtype) or _all_of(column, words, (date,)):
            number = "ordinal" if isinstance(column.dtype, pd.PeriodDtype) else "toordinal()"
            raise ValueError(
                f"covariates column {name!r} has dates: make numbers of them, such as years or days, as "
                f"covariates[{name!r}] = [each.{number} for each in covariates[{name!r}]]"
            )
        if column.dtype.kind == "m" or _all_of(column, words, (timedelta,)):
            raise ValueError(
                f"covariates column {name!r} has spans of time: make numbers of them, as covariates[{name!r}] = "
                f"[each.total_seconds() for each in covariates[{name!r}]]"
            )
        if words and pd.to_numeric(column, errors="coerce").notna().all():
            raise ValueError(
                f"covariates column {name!r} has numbers that are written as text: make numbers of them, "
                f"covariates[{name!r}] = covariates[{name!r}].astype(float), or write C({name}) in formula for a "
                "category of each"
            )


def _all_of(column: Any, words: bool, types: tuple[type, ...]) -> bool:
    return bool(words and len(column) and all(isinstance(each, types) for each in column))


def check_are_numbers(frame: Any, names: list[str]) -> None:
    """Refuse other values in columns that were numbers in the fit."""
    if words := [name for name in names if not is_number(frame[name])]:
        raise ValueError(
            f"covariates column {listed(words)} must be numbers, as in the fit: found others; convert them"
        )


def is_number(column: Any) -> bool:
    """Return whether a column has numbers or booleans."""
    return column.dtype.kind in "biuf"  # types of pandas with missing values, too


def refuse_in_formula(formula: str, found: str, columns: list[str]) -> NoReturn:
    """Refuse what formulas have elsewhere and not here, with what to write in its place."""
    every = " + ".join(name if name.isidentifier() else f"`{name}`" for name in columns[:MOST_NAMED])
    if found in ("~", "|"):
        cure = "; with nothing left of ~ and no |: loadings are on the left; write '~ age + treatment'"
    elif found in ("-", "0"):
        cure = "; keep its intercept, the size of a component: leave out 0, -1, and what is not wanted"
    elif found.startswith("C("):
        cure = (
            "; C takes one name. The first level is compared with: covariates['arm'] = pd.Categorical("
            "covariates['arm'], categories=['b', 'a']) makes it 'b'"
        )
    elif found.startswith("Q(") or re.fullmatch(r"`.+`|[^\W\d][\w.]*", found):
        cure = f"; {BETWEEN}"
    else:
        cure = "; " + IN_PLACE.get(found, IN_PLACE["%"] if found.startswith("%") else IN_PLACE[""])
    raise ValueError(f"{RULE}: found {shown(found)} in {shown(formula)}{cure.replace('EVERY', every)}")


def check_formula_ends(formula: str, fine: bool) -> None:
    """Refuse a formula that ends where a name, or a bracket, should follow."""
    if not fine:
        raise ValueError(
            f"formula must name columns of covariates, as '~ age + treatment': found {formula!r}, which ends before "
            "its last name or bracket; complete it"
        )


def check_terms(formula: str, terms: list[Any]) -> None:
    """Refuse a formula without a covariate."""
    if not terms:
        raise ValueError(
            f"formula must name columns of covariates, as '~ age + treatment': found {formula!r}, with no covariate; "
            "name one, or leave formula out"
        )


def check_number_of_terms(formula: str, number: int) -> None:
    """Refuse products with more terms than anybody would read."""
    if number > MOST_TERMS:
        raise ValueError(
            f"formula must have at most {MOST_TERMS:,} terms: found more in {shown(formula)}; write the products that "
            "are wanted, as '~ a + b + a:b'"
        )


def check_with_itself(formula: str, names: list[str], sign: str) -> None:
    """Refuse a term beside itself, and the product of a column with itself, which is no square."""
    if names:
        name = names[0]
        cure = f"name it once{'' if sign == '+' else SQUARE.format(name=name)}"
        raise ValueError(
            f"formula must have each name once in a term: found {name!r} {sign} {name!r} in {formula!r}; {cure}"
        )


def check_one_kind(formula: str, names: list[str]) -> None:
    """Refuse a column that is named both as it is and as a category."""
    if names:
        name = names[0]
        raise ValueError(
            f"formula must name a column either as {name} or as C({name}): found both in {formula!r}; for both, give "
            f"the categories a column of their own, covariates[{name + '_category'!r}] = "
            f"covariates[{name!r}].astype(str)"
        )


def check_names_differ(names: list[str]) -> None:
    """Refuse terms of one name: columns that are called as the intercept, or as a level of another."""
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        found = f"{twice[0]!r} is the name of a column and of {'the intercept' if twice[0] == INTERCEPT else 'a term'}"
        raise ValueError(
            f"covariates must have names that no other term has: {found}; rename the column, as by "
            f"pd.DataFrame(covariates).rename(columns={{{twice[0]!r}: {'other_' + twice[0]!r}}})"
        )


def check_precise(name: str, exact: bool) -> None:
    """Refuse whole numbers that differ by less than floating-point numbers of their size can tell."""
    if not exact:
        raise ValueError(
            f"covariates column {name!r} has whole numbers so large that float64 loses their differences: subtract one "
            f"of them first, covariates[{name!r}] -= covariates[{name!r}].min()"
        )


def check_number_of_columns(number: int, rows: int, widest: str = "") -> None:
    """Refuse a design with more columns than rows; `widest` is its term with most columns, if that has several."""
    if number > rows:
        where = f", most of them of {widest}" if widest else ""
        cure = f"leave {widest} out, or merge levels of its categories" if widest else "leave some covariates out"
        raise ValueError(
            "covariates must have at most as many columns as there are rows of counts, or they fit any loadings: found "
            f"{number:,} with the intercept for {rows:,} rows{where}; {cure}, until {rows - 1:,} are left beside it"
        )


def check_design(design: Array, names: list[str]) -> None:
    """Refuse constant columns, and columns that others determine; `design` begins with ones.

    Columns are compared in their own units of location and scale, so large and small numbers are alike.
    """
    check_number_of_columns(len(names), len(design))
    same = np.ptp(design, axis=0) <= 4 * np.finfo(np.float64).eps * np.abs(design).max(axis=0)  # but for rounding
    if constant := [name for name, each in zip(names[1:], same[1:], strict=True) if each]:
        raise ValueError(f"covariates must vary between rows: {listed(constant)} does not; leave it out")
    means, sds = scales_of(design)
    factor = np.linalg.qr((design - means) / sds, mode="r")
    for last in range(2, len(names) + 1):
        found = np.linalg.svd(factor[:, :last], compute_uv=False)
        if found[-1] <= DEPENDENT * found[0]:
            raise ValueError(
                f"covariates must not determine each other: {names[last - 1]!r} is a sum of others; leave it out"
            )


def check_levels_vary(levels: dict[str, list[str]]) -> None:
    """Refuse categories of a single level."""
    same = [name for name, each in levels.items() if len(each) < 2]
    if same:
        raise ValueError(f"covariates must vary between rows: {listed(same)} has one level; leave it out")


def check_levels(column: str, new: list[str], levels: list[str]) -> None:
    """Refuse categories that no fitted row has."""
    if new:
        raise ValueError(
            f"covariates column {column!r} has {listed(new)}, which no fitted row has: there are {listed(levels)}; "
            "leave these rows out"
        )


def check_hashable(column: Any) -> None:
    """Refuse lists and the like as categories."""
    if bad := [each for each in column.to_numpy() if not isinstance(each, Hashable)]:
        raise TypeError(
            f"covariates column {str(column.name)!r} must have a word or a number for each row: found "
            f"{shown(bad[0])}; give text, covariates[{str(column.name)!r}].astype(str)"
        )


def check_labels_differ(column: str, twice: list[str]) -> None:
    """Refuse categories that differ and are written alike, such as 1 and the text "1"."""
    if twice:
        raise ValueError(
            f"covariates column {column!r} has categories that are written alike: {listed(twice)}, as a number and as "
            f"text; make text of all, covariates[{column!r}] = covariates[{column!r}].astype(str)"
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
