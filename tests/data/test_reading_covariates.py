"""Covariates of rows: matched by name, coded by a formula or as numbers, standardised, coded again for other rows."""

import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from bayesnmf.data.covariates.coding import Coding
from bayesnmf.data.covariates.reading import design_of, read_covariates

NAMES = np.array(["s0", "s1", "s2", "s3", "s4", "s5"], dtype=object)
AGE, ARM = [30.0, 41.0, 52.0, 60.0, 35.0, 77.0], ["b", "a", "c", "a", "b", "c"]
FRAME = pd.DataFrame({"age": AGE, "arm": ARM, "my column": [0, 1, 0, 1, 1, 0]}, NAMES)


def test_a_formula_codes_categories_against_their_first_level():
    design, coding = read_covariates("~ age + arm", FRAME, NAMES)
    assert coding.terms == ["Intercept", "age", "arm[T.b]", "arm[T.c]"]
    expected = np.column_stack([np.ones(6), AGE, np.array(ARM) == "b", np.array(ARM) == "c"])
    assert np.array_equal(design, expected)
    assert coding.levels == {"arm": ["a", "b", "c"]}


def test_labels_decide_and_rows_may_be_more():
    mixed = pd.concat([FRAME, FRAME.set_axis(list("uvwxyz"))]).sample(frac=1, random_state=0)
    assert np.array_equal(
        read_covariates("~ age * arm", mixed, NAMES).design, read_covariates("~ age * arm", FRAME, NAMES).design
    )
    without = FRAME.drop(index="s3")
    with pytest.raises(ValueError, match=r"covariates must have the 6 rows of the counts as labels.*'s3'"):
        read_covariates("~ age", without, NAMES)


def test_a_column_of_names_is_read_where_there_is_no_index():
    """Tables of polars and pyarrow, and mappings, have no other names; by position, rows would be mixed up."""
    named = FRAME.iloc[::-1].rename_axis("sample").reset_index()
    design = read_covariates("~ age * arm", FRAME, NAMES).design
    tables = (pl.DataFrame(named.to_dict("list")), pa.table(named.to_dict("list")), named.to_dict("list"))
    for given in tables:
        assert np.array_equal(read_covariates("~ age * arm", given, NAMES).design, design)
        assert np.array_equal(read_covariates("~ age * arm", given, np.arange(6)).design, design[::-1])
    numbers = pl.DataFrame(named[["sample", "age"]].to_dict("list"))
    assert np.array_equal(read_covariates(None, numbers, NAMES).design[:, 1], AGE)


def test_columns_of_numbers_need_no_formula():
    numbers = {"age": AGE, "dose": np.arange(6.0)}
    expected = np.column_stack([np.ones(6), AGE, np.arange(6)])
    series = pd.Series(AGE, NAMES, name="age")
    for given in (numbers, pd.DataFrame(numbers, NAMES), pl.DataFrame(numbers), expected[:, 1:]):
        assert np.array_equal(read_covariates(None, given, NAMES).design, expected)
    assert read_covariates(None, expected[:, 1:], NAMES).coding.terms == ["Intercept", "x0", "x1"]
    assert read_covariates(None, series, NAMES).coding.terms == ["Intercept", "age"]
    assert read_covariates(None, series, NAMES).coding.formula is None


def test_categories_keep_their_own_order_and_numbers_can_be_categories():
    ordered = FRAME.assign(arm=pd.Categorical(ARM, categories=["c", "unused", "a", "b"]))
    assert read_covariates("~ arm", ordered, NAMES).coding.terms == ["Intercept", "arm[T.a]", "arm[T.b]"]
    coded = read_covariates("~ C(`my column`) + C(age)", FRAME.assign(age=[1, 2, 3, 1, 2, 3]), NAMES)
    assert coded.coding.terms == ["Intercept", "my column[T.1]", "age[T.2]", "age[T.3]"]


def test_types_of_columns():
    """Numbers that may be missing are numbers, and names of columns may be numbers."""
    nullable = FRAME.assign(age=pd.array([30, 41, 52, 60, 35, 77], dtype="Int64"))
    assert read_covariates("~ age", nullable, NAMES).coding.levels == {}
    numbered = pd.DataFrame({0: AGE, 1: np.arange(6.0)}, NAMES)
    design, coding = read_covariates(None, numbered, NAMES)
    assert coding.terms == ["Intercept", "0", "1"]
    assert np.array_equal(design_of(coding, numbered, NAMES), design)
    assert read_covariates("~ age", FRAME.astype(object), NAMES).coding.levels == {}
    as_text = FRAME.assign(age=[*map(str, AGE)])
    assert len(read_covariates("~ C(age)", as_text, NAMES[:5]).coding.levels["age"]) == 5
    assert len(read_covariates("~ age", as_text.astype({"age": "category"}), NAMES[:5]).coding.levels["age"]) == 5
    assert read_covariates("~ flag", FRAME.assign(flag=[True, False] * 3), NAMES).coding.terms == ["Intercept", "flag"]


def test_other_rows_are_coded_as_the_fitted_ones():
    """By a text without code: a level that is not there keeps its column, standardised by the fitted rows."""
    design, coding = read_covariates("~ age * arm", FRAME, NAMES)
    coding = Coding.of_text(coding.text)
    again = design_of(coding, FRAME.iloc[[1, 3]], NAMES[[1, 3]])
    assert np.array_equal(again, design[[1, 3]])
    standard = coding.standardised(design)
    assert standard.mean(axis=0)[1:] == pytest.approx(0, abs=1e-12)
    assert standard.std(axis=0)[1:] == pytest.approx(1)
    effects = np.random.default_rng(0).standard_normal((len(coding.terms), 2))
    assert standard @ effects == pytest.approx(design @ (coding.unit @ effects))
    with pytest.raises(ValueError, match=r"covariates column 'arm' has 'd', which no fitted row has"):
        design_of(coding, FRAME.assign(arm="d"), NAMES)
    with pytest.raises(ValueError, match=r"covariates column 'age' must be numbers, as in the fit"):
        design_of(coding, FRAME.assign(age="old"), NAMES)


REFUSED = {
    "no column": ("~ weight", FRAME, "columns of the formula: 'weight' missing; there are 'age'"),
    "nothing": ("~ age", None, "formula needs covariates"),
    "a missing value": ("~ age", FRAME.assign(age=[*AGE[:5], None]), "column 'age' has 1, the first in row 's5'"),
    "words": (None, FRAME, "must be numbers: column 'arm' has others; give formula="),
    "infinity": (None, {"age": [*AGE[:5], np.inf]}, "must be finite: column 'age'"),
    "a left side": ("y ~ age", FRAME, "with nothing left of ~"),
    "parts": ("~ age | arm", FRAME, "no |"),
    "no intercept": ("~ 0 + age", FRAME, "keep its intercept"),
    "no covariate": ("~ 1", FRAME, "with no covariate"),
    "no formula": ("~ age +", FRAME, "formula must name columns"),
    "a function": ("~ np.log(age)", FRAME, r"C\(name\) alone: found 'np.log\(age\)'"),
    "code": ("~ {print(1)}", FRAME, "alone: found"),
    "a transform with memory": ("~ center(age)", FRAME, "make a column of that"),
    "a constant": ("~ age + one", FRAME.assign(one=1.0), "must vary between rows: 'one'"),
    "one level": ("~ age + one", FRAME.assign(one="a"), "'one' has one level"),
    "a sum of others": ("~ age + twice", FRAME.assign(twice=2 * np.array(AGE)), "'twice' is a sum of others"),
    "too many": (None, np.vander(AGE, 8)[:, :-1] / 77.0, "'x.' is a sum of others"),
    "too few rows": (None, {"age": AGE[:5]}, "a row for each of 6 rows of the counts: found 5"),
    "names that repeat": ("~ age", pd.concat([FRAME, FRAME], axis=1), "names that differ: 'age' repeats"),
    "names that repeat, without a formula": (None, pd.concat([FRAME[["age"]]] * 2, axis=1), "'age' repeats"),
    "columns of other lengths": (None, {"age": AGE, "dose": [1.0]}, "a list for each column, all of one length"),
    "no lists": (None, {"age": 40}, "a list for each column"),
    "numbers as text": ("~ age", FRAME.assign(age=[*map(str, AGE)]), r"written as text: .* or write C\(age\)"),
    "dates": ("~ day", FRAME.assign(day=pd.date_range("2020", periods=6)), "column 'day' has dates"),
    "other rows": ("~ age", FRAME.set_axis(list("uvwxyz")), "6 rows missing"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case):
    formula, covariates, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        read_covariates(formula, covariates, NAMES)


@pytest.mark.parametrize(("formula", "covariates"), [(3, FRAME), (None, 3), (None, "age")])
def test_other_types_are_refused(formula, covariates):
    with pytest.raises(TypeError, match=r"(formula must be text|covariates must be a DataFrame)"):
        read_covariates(formula, covariates, NAMES)


def test_formulaic_is_named_where_it_is_absent(monkeypatch):
    monkeypatch.setitem(sys.modules, "formulaic", None)
    with pytest.raises(ImportError, match=r"pip install 'bayesnmf\[formulas\]'"):
        read_covariates("~ age", FRAME, NAMES)
    assert read_covariates(None, FRAME[["age"]], NAMES).coding.terms == ["Intercept", "age"]
