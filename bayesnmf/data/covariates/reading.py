"""Read covariates of rows, matched by name, and make a design of them, by a formula or of columns of numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from bayesnmf.checks import is_counted
from bayesnmf.data.annotated import is_annotated
from bayesnmf.data.counts import Counts
from bayesnmf.data.covariates.checks import (
    check_are_numbers,
    check_code,
    check_columns,
    check_design,
    check_formula,
    check_frame,
    check_has_covariates,
    check_kinds,
    check_levels,
    check_levels_vary,
    check_mapping,
    check_numbers,
    check_recovered,
    is_number,
)
from bayesnmf.data.covariates.coding import INTERCEPT, Coding, scales_of
from bayesnmf.data.labels import Order, listed, order_of, split_labels
from bayesnmf.data.suspicions import warn_of_data
from bayesnmf.types import Array

CATEGORY = re.compile(
    r"(?<![\w.])C\(\s*(`[^`]+`|[^\W\d]\w*)\s*\)"
)  # as in formulas elsewhere: a column taken as categories


class Covariates(NamedTuple):
    """Design of rows (n, p) in the units of the covariates, and its coding."""

    design: Array
    coding: Coding


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
    frame = _in_order(covariates, row_names)
    if formula is None:
        check_columns(frame, list(frame.columns))
        names, columns, levels = [INTERCEPT, *frame.columns], list(frame.columns), {}
        design = _numbers(frame)
    else:
        formula = CATEGORY.sub(lambda found: found[1], given := formula)
        categories = {found[1].strip("`") for found in CATEGORY.finditer(given)}
        columns = _names_in(formula)
        check_columns(frame, columns)
        check_kinds(frame, [name for name in columns if name not in categories])
        levels = {name: _levels(frame[name]) for name in columns if name in categories or not is_number(frame[name])}
        check_levels_vary(levels)
        names, design = _matrix(formula, frame, columns, levels)
    check_design(design, names)
    return Covariates(design, Coding(formula, names, columns, levels, *scales_of(design)))


def design_of(coding: Coding, covariates: Any, row_names: Array) -> Array:
    """Return the design of other rows by a coding, (n, p)."""
    frame = _in_order(covariates, row_names)
    check_columns(frame, coding.columns)
    check_are_numbers(frame, [name for name in coding.columns if name not in coding.levels])
    if coding.formula is None:
        return _numbers(frame[coding.columns])
    return _matrix(coding.formula, frame, coding.columns, coding.levels)[1]


def frame_of_design(coding: Coding, standardised: Array, row_names: Array) -> Any:
    """Return the covariates that made a standardised design, as a DataFrame."""
    import pandas as pd

    columns = dict(zip(coding.terms, (standardised * np.array(coding.sds) + np.array(coding.means)).T, strict=True))
    found: dict[str, Any] = {}
    for name in coding.columns:
        if name not in coding.levels:
            check_recovered(name, name in columns)
            found[name] = columns[name]
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


def _in_order(covariates: Any, row_names: Array) -> Any:
    """Return covariates as a DataFrame in the order of the rows."""
    frame, rows = _frame_of(covariates)
    if rows is None and frame is not None and not is_counted(row_names):
        frame, rows = _without_names(frame, row_names)
    places = None if frame is None else order_of(rows, row_names, Order("covariates", more=True))
    if places is not None:
        frame = frame.iloc[places]
    check_frame(covariates, frame, len(row_names))
    return frame.set_axis(row_names, axis=0)


def _without_names(frame: Any, row_names: Array) -> tuple[Any, Array | None]:
    """Return a table without its column of the names of all rows, and these; tables without an index have them so."""
    wanted = set(map(str, row_names))
    for place in range(frame.shape[1]):
        if wanted <= set(map(str, frame.iloc[:, place])):
            return frame.drop(columns=frame.columns[place]), frame.iloc[:, place].to_numpy()
    return frame, None


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
        return values.rename(columns=str).infer_objects(), rows
    array = np.asarray(values)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        return None, rows
    return pd.DataFrame(
        array, columns=[f"x{place}" for place in range(array.shape[1])] if columns is None else columns
    ), rows


def _frame_of_columns(covariates: Any) -> Any:
    """Return a mapping of columns as a DataFrame."""
    import pandas as pd

    found, fault = None, None
    try:
        found = pd.DataFrame(dict(covariates))
    except ValueError as error:
        fault = error
    check_mapping(covariates, fault)
    return found


def _levels(column: Any) -> list[str]:
    """Return the levels of a category that rows have: in its own order, or sorted."""
    if hasattr(column, "cat"):
        return [str(each) for each in column.cat.remove_unused_categories().cat.categories]
    return [
        str(each) for each in np.unique(column.to_numpy().astype(object if not is_number(column) else column.dtype))
    ]


def _numbers(frame: Any) -> Array:
    """Return columns of numbers after a column of ones."""
    found: Any = None
    fine = all(is_number(frame[name]) for name in frame.columns)
    if fine:
        found = frame.to_numpy(dtype=np.float64)
    check_numbers(frame, found)
    return np.column_stack([np.ones(len(frame)), found])


def _parsed(formula: str) -> Any:
    """Return a formula as formulaic reads it."""
    try:
        from formulaic import Formula
        from formulaic.errors import FormulaicError
    except ImportError as error:
        raise ImportError("formula needs formulaic: pip install 'bayesnmf[formulas]', or give numbers alone") from error
    try:
        parsed, fault = Formula(formula), None
    except (FormulaicError, SyntaxError, ValueError, TypeError) as error:
        parsed, fault = None, error
    check_formula(formula, parsed, fault)
    code = [factor.expr for term in parsed for factor in term.factors if factor.eval_method.value == "python"]
    check_code(formula, code)
    return parsed


def _names_in(formula: str) -> list[str]:
    """Return the names of the columns in a formula, in their order in it."""
    return list(dict.fromkeys(
        factor.expr for term in _parsed(formula) for factor in term.factors if factor.eval_method.value == "lookup"
    ))  # fmt: skip


def _matrix(formula: str, frame: Any, columns: list[str], levels: dict[str, list[str]]) -> tuple[list[str], Array]:
    """Return names and columns of the design of a formula."""
    import pandas as pd

    coded: dict[str, Any] = {}
    for name in columns:
        column = frame[name]
        if name in levels:
            words = np.array([str(each) for each in column], dtype=object)
            check_levels(name, words, levels[name])
            coded[name] = pd.Categorical(words, categories=levels[name])
        else:
            coded[name] = np.asarray(column, np.float64)
    found = _parsed(formula).get_model_matrix(pd.DataFrame(coded, index=frame.index), context={})
    return [str(name) for name in found.columns], np.asarray(found, np.float64)
