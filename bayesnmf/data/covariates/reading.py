"""Read covariates of rows, matched by name, and make a design of them, by a formula or of columns of numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from bayesnmf.checks import is_counted
from bayesnmf.data.annotated import is_annotated
from bayesnmf.data.counts import Counts
from bayesnmf.data.covariates.checks import (
    check_are_numbers,
    check_columns,
    check_design,
    check_finite,
    check_frame,
    check_has_covariates,
    check_hashable,
    check_kinds,
    check_labels_differ,
    check_levels,
    check_levels_vary,
    check_mapping,
    check_names_differ,
    check_number_of_columns,
    check_numbers,
    check_precise,
    check_recovered,
    is_number,
)
from bayesnmf.data.covariates.coding import INTERCEPT, Coding, scales_of
from bayesnmf.data.covariates.formulas import Formula, read_formula
from bayesnmf.data.covariates.levels import is_text, label_of, places_of_levels
from bayesnmf.data.labels import Order, listed, order_of, same_labels, split_labels
from bayesnmf.data.suspicions import warn_of_data
from bayesnmf.text import readable, readable_names
from bayesnmf.types import Array

MANY_LEVELS = 10  # of a column of words, from which on it may be an identifier
PRECISE = 1e-6  # of the range of a column of whole numbers, by which rounding may move them


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
    check_has_covariates(formula, covariates)
    frame, named = _in_order(covariates, row_names)
    found = _coded(formula, frame)
    _warn_of_no_names(named, row_names)
    return found


def _coded(formula: str | None, frame: Any) -> Covariates:
    """Return the design of a frame, and its coding."""
    if formula is None:
        columns = list(frame.columns)
        check_columns(frame, columns)
        check_kinds(frame, columns)
        _check_precision(frame, columns)
        names, design = [INTERCEPT, *columns], _numbers(frame)
        check_names_differ(names)
        coding = Coding(None, names, columns, {}, *scales_of(design))
        check_design(design, names)
        return Covariates(design, coding, coding.standardised(design))
    read = read_formula(formula, list(frame.columns))
    columns = read.columns
    check_columns(frame, columns)
    check_kinds(frame, [name for name in columns if name not in read.categories])
    check_finite(frame, columns)
    levels = {name: _levels(frame[name]) for name in columns if name in read.categories or not is_number(frame[name])}
    check_levels_vary(levels)
    _warn_of_identifiers(levels, len(frame))
    _check_precision(frame, [name for name in columns if name not in levels])
    number, widest = read.width(levels, len(frame))
    check_number_of_columns(number, len(frame), widest)
    names, design = _matrix(read, frame, levels, {})
    check_names_differ(names)
    scales = _scales(read, frame, levels)
    scaled = _matrix(read, frame, levels, scales)[1] if scales else design
    check_design(scaled, names)
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
    check_columns(frame, coding.columns)
    check_are_numbers(frame, [name for name in coding.columns if name not in coding.levels])
    check_finite(frame, coding.columns)
    _warn_of_no_names(named, row_names)
    if coding.formula is None:
        return coding.standardised(_numbers(frame[coding.columns]))
    return coding.standardised(_matrix(read_formula(coding.formula, []), frame, coding.levels, coding.scales)[1])


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
            check_precise(name, width == 0 or float(np.spacing(float(abs(exact).max()))) <= PRECISE * width)


def frame_of_design(coding: Coding, standardised: Array, row_names: Array) -> Any:
    """Return the covariates that made a standardised design, as a DataFrame."""
    import pandas as pd

    columns = dict(zip(coding.terms, (standardised * np.array(coding.sds) + np.array(coding.means)).T, strict=True))
    found: dict[str, Any] = {}
    for name in coding.columns:
        if name not in coding.levels:
            check_recovered(name, name in columns)
            mean, sd = coding.scales.get(name, (0.0, 1.0))
            found[name] = mean + sd * columns[name]
            continue
        first, *others = coding.levels[name]
        dummies = [f"{name}[T.{level}]" for level in others]
        check_recovered(name, all(each in columns for each in dummies))
        found[name] = np.array([first] * len(standardised), dtype=object)
        for level, dummy in zip(others, dummies, strict=True):
            found[name][columns[dummy] > 0.5] = level
    return pd.DataFrame(found, index=row_names)


def names_of_rows(covariates: Any) -> Array:
    """Return the labels of the rows of covariates; their numbers without labels."""
    frame, rows = _frame_of(covariates)
    check_frame(covariates, frame, None)
    return np.arange(len(frame)) if rows is None else np.asarray(rows)


def _in_order(covariates: Any, row_names: Array) -> tuple[Any, bool]:
    """Return covariates as a DataFrame in the order of the rows, by names or by position, and False if names lack.

    An array has no place for names, so it lacks none. The index 0 … n − 1 of a table has none, and neither have counts
    whose names are these numbers as text, as AnnData writes them.
    """
    (frame, rows), named = _frame_of(covariates), True
    unnamed = "covariates in the order of the counts without names, as covariates.reset_index(drop=True)"
    if frame is not None and not is_counted(row_names) and (rows is None or is_counted(rows)):
        rows = rows if same_labels(rows, row_names) else None
        if rows is None and not isinstance(covariates, np.ndarray | list | tuple):
            frame, rows, column = _without_names(frame, row_names)
            named = rows is not None or list(map(str, row_names)) == list(map(str, range(len(row_names))))
            unnamed = f"drop the column {column!r} if they are in the order of the counts"
    places = None if frame is None else order_of(rows, row_names, Order("covariates", more=True, cure=unnamed))
    if places is not None:
        frame = frame.iloc[places]
    check_frame(covariates, frame, len(row_names))
    return frame.set_axis(row_names, axis=0), named


def _without_names(frame: Any, row_names: Array) -> tuple[Any, Array | None, str]:
    """Return a table without its column of the names of rows, if it has one, these names, and that of the column.

    A column of text that has half of the names is meant so, and names that it lacks are not taken by position.
    """
    wanted = set(map(str, row_names))
    for place, name in enumerate(frame.columns):
        there = wanted & set(map(str, frame.iloc[:, place]))
        if there == wanted or (2 * len(there) >= len(wanted) and not is_number(frame.iloc[:, place])):
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
    """Return covariates as a DataFrame, None for what is no table, and the labels of its rows."""
    import pandas as pd

    columns_alone = isinstance(covariates, Mapping) and not hasattr(covariates, "dims")
    if columns_alone:
        covariates = _frame_of_columns(covariates)
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
        return None, rows
    return pd.DataFrame(
        array, columns=[f"x{place}" for place in range(array.shape[1])] if columns is None else columns
    ), rows


def _readable_column(column: Any) -> Any:
    """Return a column with readable words, of the type that it has: categories keep their order, and dates are none."""
    if hasattr(column, "cat"):
        return column.cat.rename_categories(readable_names(list(column.cat.categories)))
    if column.dtype.kind != "O":
        return column
    words = column.to_numpy(dtype=object)
    found = readable_names(words)
    return column if found is words else found


def _frame_of_columns(covariates: Any) -> Any:
    """Return a mapping of columns as a DataFrame."""
    import pandas as pd

    found, fault = None, None
    try:
        found = pd.DataFrame({readable(name): readable_names(column) for name, column in covariates.items()})
    except ValueError as error:
        fault = error
    check_mapping(covariates, fault)
    return found


def _levels(column: Any) -> list[str]:
    """Return the levels of a category that rows have: in its own order, or sorted."""
    check_hashable(column)
    if hasattr(column, "cat"):
        values = list(column.cat.remove_unused_categories().cat.categories)
    else:
        values = list({(is_text(each), each): each for each in column.to_numpy()}.values())
        if len({is_text(each) for each in values}) == 1:
            values.sort()
        else:
            values.sort(key=label_of)
    labels = [label_of(each) for each in values]
    check_labels_differ(str(column.name), [label for label in dict.fromkeys(labels) if labels.count(label) > 1])
    return labels


def _numbers(frame: Any) -> Array:
    """Return columns of numbers after a column of ones."""
    check_numbers(frame)
    check_finite(frame, list(frame.columns))
    return np.column_stack([np.ones(len(frame)), frame.to_numpy(dtype=np.float64)])


def _matrix(
    read: Formula, frame: Any, levels: dict[str, list[str]], scales: dict[str, list[float]]
) -> tuple[list[str], Array]:
    """Return names and columns of the design of a formula.

    Columns and levels have names of their own while formulaic codes them, so that no name is read as a term.
    """
    try:
        from formulaic import Formula as Coded
    except ImportError as error:
        raise ImportError("formula needs formulaic: pip install 'bayesnmf[formulas]', or give numbers alone") from error
    import pandas as pd

    own = {name: f"v{place}" for place, name in enumerate(read.columns)}
    coded: dict[str, Any] = {}
    for name, short in own.items():
        if name in levels:
            check_hashable(frame[name])
            values = frame[name].to_numpy()  # of their own type, which has as many digits as it shows
            places = places_of_levels(values, levels[name])
            new = [label_of(each) for each, place in zip(values, places, strict=True) if place < 0]
            check_levels(name, list(dict.fromkeys(new)), levels[name])
            coded[short] = pd.Categorical([str(place) for place in places], list(map(str, range(len(levels[name])))))
        else:
            mean, sd = scales.get(name, (0.0, 1.0))
            coded[short] = (np.asarray(frame[name], np.float64) - mean) / sd
    text = "1 + " + " + ".join(":".join(own[name] for name in term) for term in read.terms)
    found = Coded(text).get_model_matrix(pd.DataFrame(coded, index=frame.index), context={})
    columns = {short: name for name, short in own.items()}
    names = [":".join(_named(part, columns, levels) for part in str(name).split(":")) for name in found.columns]
    return names, np.asarray(found, np.float64)


def _named(part: str, columns: dict[str, str], levels: dict[str, list[str]]) -> str:
    """Return the name of a factor of a term, such as v0 or v1[T.2], with its column and level."""
    short, _, level = part.rstrip("]").partition("[")
    if not level:
        return columns.get(short, short)
    name = columns[short]
    reduced = "T." if level.startswith("T.") else ""
    return f"{name}[{reduced}{levels[name][int(level.removeprefix('T.'))]}]"
