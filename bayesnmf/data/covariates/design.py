"""Read covariates of rows, matched by name, and make a design of them, by a formula or of columns of numbers."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from datetime import date, timedelta
from typing import Any, NamedTuple

import numpy as np

from bayesnmf.checks import is_counted, shown
from bayesnmf.data.annotated import is_annotated
from bayesnmf.data.counts import Counts
from bayesnmf.data.covariates.checks import check_effects, check_takes_covariates
from bayesnmf.data.covariates.coding import INTERCEPT, Coding, is_text, label_of, places_of_levels, scales_of
from bayesnmf.data.covariates.formulas import Formula, read_formula
from bayesnmf.data.labels import Order, listed, order_of, same_labels, split_labels
from bayesnmf.data.suspicions import warn_of_data
from bayesnmf.priors import Priors
from bayesnmf.priors.log_linear import LogLinear
from bayesnmf.priors.pair import replace_sides
from bayesnmf.text import readable, readable_names
from bayesnmf.types import Array

MANY_LEVELS = 10  # of a column of words, from which on it may be an identifier
PRECISE = 1e-6  # of the range of a column of whole numbers, by which rounding may move them
DEPENDENT = 1e-9  # of the largest singular value of standardised columns


class Covariates(NamedTuple):
    """Design of rows (n, p) in the units of the covariates, its coding, and the design with standardised columns."""

    design: Array
    coding: Coding
    standardised: Array


def read_given(formula: str | None, covariates: Any, given: Any, counts: Counts) -> Covariates | None:
    """Return the design of the rows of counts, of covariates that are given, or of the `obs` of AnnData; or None.

    Given is what the counts were made from. A warning tells of covariates that batches of the counts determine.
    """
    if formula is None and covariates is None:
        return None
    source = getattr(given, "source", given)  # of `Blocks`
    if covariates is None and is_annotated(source):
        covariates = source.obs
    found = read_covariates(formula, covariates, counts.row_names)
    if counts.batch is not None:
        _warn_of_batches(found, counts.batch)
    return found


def _warn_of_batches(covariates: Covariates, batches: Any) -> None:
    """Warn of columns of a design that have one value in each batch: factors may take up a part of their effects."""
    means = batches.sums(covariates.design) / np.bincount(batches.codes, minlength=batches.number)[:, None]
    same = np.all(np.isclose(covariates.design, means[batches.codes]), axis=0)
    if same[1:].any():
        terms = listed([name for name, alike in zip(covariates.coding.terms[1:], same[1:], strict=True) if alike])
        warn_of_data(
            f"covariates are confounded with batch: {terms}, with one value in each batch. Factors of features may "
            "take up a part of what they do; fit without batch, or without them"
        )


def read_covariates(formula: str | None, covariates: Any, row_names: Array) -> Covariates:
    """Return the design of the rows of counts, and its coding.

    Parameters
    ----------
    formula : str, optional
        Formula without a left side, of columns of the covariates: names, ``+``, ``:``, ``*`` and ``C(name)``. Columns
        of words are categories, coded against their first level in order. Without one, all columns are numbers.
    covariates : DataFrame, Series, mapping of columns or array (n, p)
        A row for each row of the counts; what has labels is matched by name, and may have more rows.
    row_names : ndarray (n,)
        Names of the rows of the counts.

    Raises
    ------
    TypeError, ValueError
        Covariates without a row of the counts, with missing values, or that determine each other; formulas with
        functions; words without a formula.
    ImportError
        A formula without formulaic.
    """
    if formula is not None and not isinstance(formula, str):
        raise TypeError(f"formula must be text, as '~ age + treatment': found {shown(formula)}; write it so")
    if covariates is None:
        raise ValueError(
            "formula needs covariates, which its names are columns of: give covariates=frame (--covariates FILE), or "
            "AnnData"
        )
    frame, named = _in_order(covariates, row_names)
    found = _coded(formula, frame)
    _warn_of_no_names(named, row_names)
    return found


def _coded(formula: str | None, frame: Any) -> Covariates:
    """Return the design of a frame, and its coding."""
    read = read_formula(formula, list(frame.columns))
    columns = read.columns
    _check_columns(frame, columns)
    _check_kinds(frame, [name for name in columns if name not in read.categories])
    words = [name for name in columns if not _is_number(frame[name])]
    if formula is None and words:
        raise ValueError(
            f"covariates without a formula must be numbers: column {listed(words)} has others; give "
            "formula='~ column + ...', which codes categories"
        )
    _check_finite(frame, columns)
    levels = {name: _levels(frame[name]) for name in columns if name in read.categories or name in words}
    if same := [name for name, each in levels.items() if len(each) < 2]:
        raise ValueError(f"covariates must vary between rows: {listed(same)} has one level; leave it out")
    _warn_of_identifiers(levels, len(frame))
    _check_precision(frame, [name for name in columns if name not in levels])
    if formula is not None:
        _check_number_of_columns(*read.width(levels, len(frame)), len(frame))
    names, design = _matrix(read, frame, levels, {})
    _check_names_differ(names)
    scales = _scales(read, frame, levels)
    scaled = _matrix(read, frame, levels, scales)[1] if scales else design
    _check_design(scaled, names)
    coding = Coding(read.text, names, columns, levels, *scales_of(scaled), scales)
    standardised = coding.standardised(scaled)
    if scales:
        largest = np.abs(design).max(axis=0)
        of_columns = np.linalg.lstsq(standardised, design / largest, rcond=None)[0] * largest
        coding = replace(coding, matrix=np.linalg.inv(of_columns).tolist())
    return Covariates(design, coding, standardised)


def _warn_of_identifiers(levels: dict[str, list[str]], rows: int) -> None:
    """Warn of columns of words of which hardly two rows have the same."""
    for name, found in levels.items():
        if len(found) >= MANY_LEVELS and 2 * len(found) > rows:
            warn_of_data(
                f"the column {name!r} of covariates has {len(found)} categories in {rows} rows, so that its effects "
                "take up what rows differ in: it looks like an identifier, or like numbers; leave it out of formula, "
                "or give numbers as numbers"
            )


def design_of(coding: Coding, covariates: Any, row_names: Array) -> Array:
    """Return the standardised design of other rows by a coding, (n, p)."""
    frame, named = _in_order(covariates, row_names)
    _check_columns(frame, coding.columns)
    if words := [name for name in coding.columns if name not in coding.levels and not _is_number(frame[name])]:
        raise ValueError(
            f"covariates column {listed(words)} must be numbers, as in the fit: found others; convert them"
        )
    _check_finite(frame, coding.columns)
    _warn_of_no_names(named, row_names)
    read = read_formula(coding.formula, coding.columns)
    return coding.standardised(_matrix(read, frame, coding.levels, coding.scales)[1])


def _scales(read: Formula, frame: Any, levels: dict[str, list[str]]) -> dict[str, list[float]]:
    """Return mean and standard deviation of columns of numbers in products, if the model stays the same by them."""
    found: dict[str, list[float]] = {}
    for name in dict.fromkeys(name for term in read.terms if len(term) > 1 for name in term):
        if name not in levels and read.moves(name):
            means, sds = scales_of(np.column_stack([np.ones(len(frame)), np.asarray(frame[name], np.float64)]))
            found[name] = [means[1], sds[1]]
    return found


def _check_precision(frame: Any, names: list[str]) -> None:
    """Refuse whole numbers beyond 2^53 whose differences are lost among floating-point numbers."""
    for name in names:
        column = frame[name]
        if column.dtype.kind in "iu":
            exact = np.asarray(column).astype(object)
            width = float(exact.max() - exact.min())
            if width and float(np.spacing(float(abs(exact).max()))) > PRECISE * width:
                raise ValueError(
                    f"covariates column {name!r} has whole numbers so large that float64 loses their differences: "
                    f"subtract one of them first, covariates[{name!r}] -= covariates[{name!r}].min()"
                )


def frame_of_design(coding: Coding, standardised: Array, row_names: Array) -> Any:
    """Return the covariates that made a standardised design, as a DataFrame."""
    import pandas as pd

    columns = dict(zip(coding.terms, (standardised * np.array(coding.sds) + np.array(coding.means)).T, strict=True))
    found: dict[str, Any] = {}
    for name in coding.columns:
        levels = coding.levels.get(name)
        parts = [name] if levels is None else [f"{name}[T.{level}]" for level in levels[1:]]
        if not columns.keys() >= {*parts}:
            raise ValueError(
                f"the covariate {name!r} is in the formula with others alone, so that its values are not kept: name it "
                "there by itself, too, as in '~ age + age:treatment'"
            )
        if levels is None:
            mean, sd = coding.scales.get(name, (0.0, 1.0))
            found[name] = mean + sd * columns[name]
            continue
        found[name] = np.array(levels[:1] * len(standardised), dtype=object)
        for level, part in zip(levels[1:], parts, strict=True):
            found[name][columns[part] > 0.5] = level
    return pd.DataFrame(found, index=row_names)


def names_of_rows(covariates: Any) -> Array:
    """Return the labels of the rows of covariates; their numbers without labels."""
    frame, rows = _frame_of(covariates)
    return np.arange(len(frame)) if rows is None else np.asarray(rows)


def _in_order(covariates: Any, row_names: Array) -> tuple[Any, bool]:
    """Return covariates as a DataFrame in the order of the rows, by names or by position, and False if names lack.

    An array has no place for names, so it lacks none. The index 0 … n − 1 of a table has none, and neither have counts
    whose names are these numbers as text, as AnnData writes them.
    """
    (frame, rows), named = _frame_of(covariates), True
    unnamed = "covariates in the order of the counts without names, as covariates.reset_index(drop=True)"
    if not is_counted(row_names) and (rows is None or is_counted(rows)):
        rows = rows if same_labels(rows, row_names) else None
        if rows is None and not isinstance(covariates, np.ndarray | list | tuple):
            frame, rows, column = _without_names(frame, row_names)
            named = rows is not None or list(map(str, row_names)) == list(map(str, range(len(row_names))))
            unnamed = f"drop the column {column!r} if they are in the order of the counts"
    places = order_of(rows, row_names, Order("covariates", more=True, cure=unnamed))
    if places is not None:
        frame = frame.iloc[places]
    if len(frame) != len(row_names):
        raise ValueError(
            f"covariates must have a row for each of {len(row_names):,} rows of the counts: found {len(frame):,}; give "
            "one for each, in their order, or name the rows"
        )
    return frame.set_axis(row_names, axis=0), named


def _without_names(frame: Any, row_names: Array) -> tuple[Any, Array | None, str]:
    """Return a table without its column of the names of rows, if it has one, these names, and that of the column.

    A column of text that has half of the names is meant so, and names that it lacks are not taken by position.
    """
    wanted = set(map(str, row_names))
    for place, name in enumerate(frame.columns):
        there = wanted & set(map(str, frame.iloc[:, place]))
        if there == wanted or (2 * len(there) >= len(wanted) and not _is_number(frame.iloc[:, place])):
            return frame.drop(columns=name), frame.iloc[:, place].to_numpy(), str(name)
    return frame, None, ""


def _warn_of_no_names(named: bool, row_names: Array) -> None:
    """Warn that rows are taken by position although the counts have names."""
    if named:
        return
    warn_of_data(
        f"covariates have no names of rows ({listed(list(map(str, row_names)))}) and are taken in the order of the "
        "counts; if they are in it, say so, as by pd.DataFrame(covariates).set_axis(counts.index); else name them by a "
        "column or an index, and they are matched"
    )


def _frame_of(covariates: Any) -> tuple[Any, Array | None]:
    """Return covariates as a DataFrame, and the labels of its rows; refuse what is no table."""
    import pandas as pd

    columns_alone = isinstance(covariates, Mapping) and not hasattr(covariates, "dims")
    if columns_alone:
        try:
            covariates = pd.DataFrame({readable(name): readable_names(column) for name, column in covariates.items()})
        except ValueError as error:
            raise ValueError(
                "covariates as a mapping must have a list for each column, all of one length, as in {'age': [40, 70]}: "
                f"found {shown(dict(covariates))}; write them so"
            ) from error
    if hasattr(covariates, "to_frame") and hasattr(covariates, "index"):
        covariates = covariates.to_frame()
    values, rows, columns = split_labels(covariates)
    rows = None if columns_alone and is_counted(covariates.index) else rows
    if isinstance(values, pd.DataFrame):
        named = values.rename(columns=readable)
        for place in range(named.shape[1]):
            named.isetitem(place, _readable_column(named.iloc[:, place]))
        return named.infer_objects(), rows
    array = np.asarray(values)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        raise TypeError(
            f"covariates must be a DataFrame, a Series, a mapping of columns or an array of numbers (n, p): found "
            f"{shown(covariates)}; give a column for each covariate"
        )
    names = [f"x{place}" for place in range(array.shape[1])] if columns is None else columns
    return pd.DataFrame(array, columns=names), rows


def _readable_column(column: Any) -> Any:
    """Return a column with readable words, of the type that it has: categories keep their order, and dates are none."""
    if hasattr(column, "cat"):
        return column.cat.rename_categories(readable_names(list(column.cat.categories)))
    if column.dtype.kind != "O":
        return column
    words = column.to_numpy(dtype=object)
    found = readable_names(words)
    return column if found is words else found


def _levels(column: Any) -> list[str]:
    """Return the levels of a category that rows have: in its own order, or sorted."""
    _check_hashable(column)
    if hasattr(column, "cat"):
        values = list(column.cat.remove_unused_categories().cat.categories)
    else:
        values = list({(is_text(each), each): each for each in column.to_numpy()}.values())
        if len({is_text(each) for each in values}) == 1:
            values.sort()
        else:
            values.sort(key=label_of)
    labels = [label_of(each) for each in values]
    if twice := [label for label in dict.fromkeys(labels) if labels.count(label) > 1]:
        name = str(column.name)
        raise ValueError(
            f"covariates column {name!r} has categories that are written alike: {listed(twice)}, as a number and as "
            f"text; make text of all, covariates[{name!r}] = covariates[{name!r}].astype(str)"
        )
    return labels


def _matrix(
    read: Formula, frame: Any, levels: dict[str, list[str]], scales: dict[str, list[float]]
) -> tuple[list[str], Array]:
    """Return names and columns of the design of a formula, or of columns of numbers without one.

    Columns and levels have names of their own while formulaic codes them, so that no name is read as a term.
    """
    if not read.given:
        columns = frame[read.columns].to_numpy(dtype=np.float64)
        return [INTERCEPT, *read.columns], np.column_stack([np.ones(len(frame)), columns])
    try:
        from formulaic import Formula as Coded
    except ImportError as error:
        raise ImportError("formula needs formulaic: pip install 'bayesnmf[formulas]', or give numbers alone") from error
    import pandas as pd

    own = {name: f"v{place}" for place, name in enumerate(read.columns)}
    coded: dict[str, Any] = {}
    for name, short in own.items():
        if name in levels:
            _check_hashable(frame[name])
            values = frame[name].to_numpy()  # of their own type, which has as many digits as it shows
            places = places_of_levels(values, levels[name])
            if new := [label_of(each) for each, place in zip(values, places, strict=True) if place < 0]:
                raise ValueError(
                    f"covariates column {name!r} has {listed(list(dict.fromkeys(new)))}, which no fitted row has: "
                    f"there are {listed(levels[name])}; leave these rows out"
                )
            coded[short] = pd.Categorical([str(place) for place in places], list(map(str, range(len(levels[name])))))
        else:
            mean, sd = scales.get(name, (0.0, 1.0))
            coded[short] = (np.asarray(frame[name], np.float64) - mean) / sd
    text = "1 + " + " + ".join(":".join(own[name] for name in term) for term in read.terms)
    found = Coded(text).get_model_matrix(pd.DataFrame(coded, index=frame.index), context={})
    named = {short: name for name, short in own.items()}
    names = [":".join(_named(part, named, levels) for part in str(name).split(":")) for name in found.columns]
    return names, np.asarray(found, np.float64)


def _named(part: str, columns: dict[str, str], levels: dict[str, list[str]]) -> str:
    """Return the name of a factor of a term, such as v0 or v1[T.2], with its column and level."""
    short, _, level = part.rstrip("]").partition("[")
    if not level:
        return columns.get(short, short)
    name = columns[short]
    reduced = "T." if level.startswith("T.") else ""
    return f"{name}[{reduced}{levels[name][int(level.removeprefix('T.'))]}]"


def with_covariates(priors: Priors, covariates: Covariates, rank: int, effects: Any = None) -> Priors:
    """Return the priors, which have no None left, with loadings that depend on covariates.

    Effects are in the units of the covariates, the intercept that of a loading; without any they are 0.
    """
    plain: Any = priors.loadings
    check_takes_covariates(plain)
    design, coding = covariates.standardised, covariates.coding.text
    centre = np.broadcast_to(np.asarray(plain.parameters[plain.counted], np.float64), (1, rank)).copy()
    prior = LogLinear(plain, design, np.zeros((design.shape[1], rank)), centre, len(design), coding)
    if effects is not None:
        own = check_effects(effects, prior.effects.shape)
        own[0] -= prior.intercepts
        prior = prior.with_effects(np.linalg.solve(covariates.coding.unit, own))
    return replace_sides(priors, loadings=prior)


# --- checks ----------------------------------------------------------------------------------------


def _check_columns(frame: Any, names: list[str]) -> None:
    """Refuse names that are no columns or several, and missing values in those that are used."""
    if absent := [name for name in names if name not in frame.columns]:
        raise ValueError(
            f"covariates must have the columns of the formula: {listed(absent)} missing; there are "
            f"{listed([str(each) for each in frame.columns]) or 'none'}; use these, or name the columns so, as "
            f"pd.DataFrame(array, columns={names}, index=counts.index)"
        )
    if twice := [name for name in dict.fromkeys(names) if (frame.columns == name).sum() > 1]:
        raise ValueError(f"covariates must have columns with names that differ: {listed(twice)} repeats; rename them")
    for name in names:
        gone = np.flatnonzero(frame[name].isna().to_numpy())
        if len(gone):
            raise ValueError(
                f"covariates must have no missing values: column {name!r} has {len(gone):,}, the first in row "
                f"{str(frame.index[gone[0]])!r}; leave these rows out of counts and covariates, or fill them in"
            )


def _check_finite(frame: Any, names: list[str]) -> None:
    """Refuse infinite numbers."""
    for name in names:
        if _is_number(frame[name]) and not np.isfinite(np.asarray(frame[name], np.float64)).all():
            raise ValueError(f"covariates must be finite: column {name!r} has infinite values; clip them")


def _check_kinds(frame: Any, names: list[str]) -> None:
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


def _is_number(column: Any) -> bool:
    """Return whether a column has numbers or booleans."""
    return column.dtype.kind in "biuf"  # types of pandas with missing values, too


def _check_names_differ(names: list[str]) -> None:
    """Refuse terms of one name: columns that are called as the intercept, or as a level of another."""
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        found = f"{twice[0]!r} is the name of a column and of {'the intercept' if twice[0] == INTERCEPT else 'a term'}"
        raise ValueError(
            f"covariates must have names that no other term has: {found}; rename the column, as by "
            f"pd.DataFrame(covariates).rename(columns={{{twice[0]!r}: {'other_' + twice[0]!r}}})"
        )


def _check_number_of_columns(number: int, widest: str, rows: int) -> None:
    """Refuse a design with more columns than rows; `widest` is its term with most columns, if that has several."""
    if number > rows:
        where = f", most of them of {widest}" if widest else ""
        cure = f"leave {widest} out, or merge levels of its categories" if widest else "leave some covariates out"
        raise ValueError(
            "covariates must have at most as many columns as there are rows of counts, or they fit any loadings: found "
            f"{number:,} with the intercept for {rows:,} rows{where}; {cure}, until {rows - 1:,} are left beside it"
        )


def _check_design(design: Array, names: list[str]) -> None:
    """Refuse constant columns, and columns that others determine; `design` begins with ones.

    Columns are compared in their own units of location and scale, so large and small numbers are alike.
    """
    _check_number_of_columns(len(names), "", len(design))
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


def _check_hashable(column: Any) -> None:
    """Refuse lists and the like as categories."""
    if bad := [each for each in column.to_numpy() if not isinstance(each, Hashable)]:
        raise TypeError(
            f"covariates column {str(column.name)!r} must have a word or a number for each row: found "
            f"{shown(bad[0])}; give text, covariates[{str(column.name)!r}].astype(str)"
        )
