"""Covariates of rows: matched by name, coded by a formula or as numbers, standardised, coded again for other rows."""

import re
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from bayesnmf.data.covariates.coding import Coding
from bayesnmf.data.covariates.design import design_of, frame_of_design, read_covariates
from bayesnmf.data.covariates.formulas import read_formula
from bayesnmf.data.suspicions import DataWarning

NAMES = np.array(["s0", "s1", "s2", "s3", "s4", "s5"], dtype=object)
AGE, ARM = [30.0, 41.0, 52.0, 60.0, 35.0, 77.0], ["b", "a", "c", "a", "b", "c"]
FRAME = pd.DataFrame({"age": AGE, "arm": ARM, "my column": [0, 1, 0, 1, 1, 0]}, NAMES)


def test_a_formula_codes_categories_against_their_first_level():
    design, coding, _ = read_covariates("~ age + arm", FRAME, NAMES)
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
    assert named["sample"].tolist() == NAMES[::-1].tolist()
    for given in (*tables, named):
        assert np.array_equal(read_covariates("~ age * arm", given, NAMES).design, design)
        assert np.array_equal(read_covariates("~ age * arm", given, np.arange(6)).design, design[::-1])
    lacking = {name: column[1:] for name, column in tables[2].items()}
    with pytest.raises(ValueError, match=r"1 row missing: 's5'.*drop the column 'sample' if they are in the order"):
        read_covariates("~ age", lacking, NAMES)
    numbers = pl.DataFrame(named[["sample", "age"]].to_dict("list"))
    assert np.array_equal(read_covariates(None, numbers, NAMES).design[:, 1], AGE)


def test_columns_of_numbers_need_no_formula():
    numbers = {"age": AGE, "dose": np.arange(6.0)}
    expected = np.column_stack([np.ones(6), AGE, np.arange(6)])
    series = pd.Series(AGE, NAMES, name="age")
    for given in (pd.DataFrame(numbers, NAMES), expected[:, 1:]):
        assert np.array_equal(read_covariates(None, given, NAMES).design, expected)
    assert read_covariates(None, expected[:, 1:], NAMES).coding.terms == ["Intercept", "x0", "x1"]
    assert read_covariates(None, series, NAMES).coding.terms == ["Intercept", "age"]
    assert read_covariates(None, series, NAMES).coding.formula is None


def test_rows_without_names_are_taken_in_their_order_and_told():
    """Whatever the table is: the index 0 … n − 1 of pandas has no names, and a mapping has none either (F66)."""
    numbers = {"age": AGE, "dose": np.arange(6.0)}
    frame = pd.DataFrame(numbers)
    expected = np.column_stack([np.ones(6), AGE, np.arange(6)])
    for given in (frame, numbers, pl.DataFrame(numbers), pa.table(numbers)):
        for formula in (None, "~ age + dose"):
            with pytest.warns(DataWarning, match=r"covariates have no names of rows \('s0', 's1', 's2', …\)"):
                assert np.array_equal(read_covariates(formula, given, NAMES).design, expected)
        for counted in (np.arange(6), frame.index.astype(str)):  # the second as of AnnData
            assert np.array_equal(read_covariates(None, given, counted).design, expected)
    with pytest.warns(DataWarning, match="no names of rows"):
        read_covariates("~ age", frame["age"], NAMES)
    cured = pd.DataFrame(numbers).set_axis(NAMES)  # as the warning says
    assert np.array_equal(read_covariates("~ age", cured, NAMES).design, expected[:, :2])
    other = frame.set_axis(list("uvwxyz"))
    with pytest.raises(ValueError, match=r"or covariates in the order .* as covariates.reset_index\(drop=True\)"):
        read_covariates("~ age", other, NAMES)
    with pytest.warns(DataWarning, match="no names of rows"):
        assert np.array_equal(read_covariates("~ age", other.reset_index(drop=True), NAMES).design, expected[:, :2])
    with pytest.raises(
        ValueError, match=r"there are 'x0'; .* pd.DataFrame\(array, columns=\['age'\], index=counts.index"
    ):
        read_covariates("~ age", np.array(AGE)[:, None], NAMES)


def test_categories_keep_their_own_order_and_numbers_can_be_categories():
    ordered = FRAME.assign(arm=pd.Categorical(ARM, categories=["c", "unused", "a", "b"]))
    assert read_covariates("~ arm", ordered, NAMES).coding.terms == ["Intercept", "arm[T.a]", "arm[T.b]"]
    coded = read_covariates("~ C(`my column`) + C(age)", FRAME.assign(age=[1, 2, 3, 1, 2, 3]), NAMES)
    assert coded.coding.terms == ["Intercept", "my column[T.1]", "age[T.2]", "age[T.3]"]


def test_categories_with_unreadable_names_keep_their_order():
    levels = pd.Index(["c\ud800", "a\ud800", "b\ud800"], dtype=object)
    arm = pd.Categorical.from_codes([["c", "a", "b"].index(each) for each in ARM], levels)
    found = read_covariates("~ arm", FRAME.assign(arm=arm), NAMES).coding.levels["arm"]
    assert [each[0] for each in found] == ["c", "a", "b"]
    assert all(each.encode() for each in found)


def test_types_of_columns():
    """Numbers that may be missing are numbers, and names of columns may be numbers."""
    nullable = FRAME.assign(age=pd.array([30, 41, 52, 60, 35, 77], dtype="Int64"))
    assert read_covariates("~ age", nullable, NAMES).coding.levels == {}
    numbered = pd.DataFrame({0: AGE, 1: np.arange(6.0)}, NAMES)
    _, coding, standardised = read_covariates(None, numbered, NAMES)
    assert coding.terms == ["Intercept", "0", "1"]
    assert np.array_equal(design_of(coding, numbered, NAMES), standardised)
    assert read_covariates("~ age", FRAME.astype(object), NAMES).coding.levels == {}
    as_text = FRAME.assign(age=[*map(str, AGE)])
    assert len(read_covariates("~ C(age)", as_text, NAMES[:5]).coding.levels["age"]) == 5
    assert len(read_covariates("~ age", as_text.astype({"age": "category"}), NAMES[:5]).coding.levels["age"]) == 5
    assert read_covariates("~ flag", FRAME.assign(flag=[True, False] * 3), NAMES).coding.terms == ["Intercept", "flag"]


def test_other_rows_are_coded_as_the_fitted_ones():
    """By a text without code: a level that is not there keeps its column, standardised by the fitted rows."""
    design, coding, standard = read_covariates("~ age * arm", FRAME, NAMES)
    coding = Coding.of_text(coding.text)
    again = design_of(coding, FRAME.iloc[[1, 3]], NAMES[[1, 3]])
    assert np.array_equal(again, standard[[1, 3]])
    assert standard.mean(axis=0)[1:] == pytest.approx(0, abs=1e-12)
    assert standard.std(axis=0)[1:] == pytest.approx(1)
    effects = np.random.default_rng(0).standard_normal((len(coding.terms), 2))
    assert standard @ effects == pytest.approx(design @ (coding.unit @ effects))
    with pytest.raises(ValueError, match=r"covariates column 'arm' has 'd', which no fitted row has"):
        design_of(coding, FRAME.assign(arm="d"), NAMES)
    with pytest.raises(ValueError, match=r"covariates column 'age' must be numbers, as in the fit"):
        design_of(coding, FRAME.assign(age="old"), NAMES)


@pytest.mark.parametrize(
    ("fitted", "others"),
    [
        ([1, 2], ([1.0, 2.0], ["1", "2"], ["1.0", "2.0"], np.array([1, 2], np.int8), pd.Categorical([1, 2]))),
        ([1.0, 2.0], ([1, 2], ["1", "2"], np.array([1, 2], np.float32))),
        ([False, True], (["False", "True"], [0, 1], np.array([False, True]), [np.False_, np.True_])),
        ([0.1, 0.25], (np.array([0.1, 0.25], np.float32), ["0.10", "0.25"])),
        (["1", "1.0"], (["1", "1.0"],)),
        ([1, "b"], (["1", "b"], [1.0, "b"])),
    ],
)
def test_levels_are_the_same_however_they_are_stored(fitted, others):
    given = pd.DataFrame({"y": pd.Series([*fitted] * 3, dtype=object).infer_objects()})
    _, coding, standardised = read_covariates("~ C(y)", given, np.arange(6))
    for other in others:
        assert np.array_equal(design_of(coding, pd.DataFrame({"y": other}), np.arange(2)), standardised[:2])
    old = {"y": [each if "." in each or not each.isdigit() else f"{each}.0" for each in coding.levels["y"]]}
    if coding.levels["y"] == ["1", "2"]:  # as files of earlier versions have the levels of numbers
        assert np.array_equal(design_of(replace(coding, levels=old), given, np.arange(6)), standardised)


def test_levels_that_are_written_alike_are_refused():
    """They would be one, and their sum could not be sorted (F42)."""
    for values in ([1, "1", 2, "b", "b", 2], [True, "True", 2, "b", "b", 2]):
        with pytest.raises(ValueError, match=r"column 'y' has categories that are written alike: .*\.astype\(str\)"):
            read_covariates("~ C(y)", pd.DataFrame({"y": values}), np.arange(6))
        cured = pd.DataFrame({"y": values}).astype({"y": str})
        assert len(read_covariates("~ C(y)", cured, np.arange(6)).coding.levels["y"]) == 3
    with pytest.raises(TypeError, match=r"column 'y' must have a word or a number for each row: found \[1\]"):
        read_covariates("~ C(y)", pd.DataFrame({"y": [[1], [2]] * 3}), np.arange(6))


Z = np.random.default_rng(0).standard_normal(40)
Z2 = np.random.default_rng(1).standard_normal(40)


@pytest.mark.parametrize(
    ("centre", "width"),
    [(3e9, 1e9), (1.7e9, 1e7), (2.46e6, 100.0), (2e7, 1e4), (5e-9, 1e-9), (1e6, 1e-3), (0.0, 1e-300), (0.0, 1e200)],
)
def test_size_and_place_of_numbers_do_not_matter(centre, width):
    """Standardised designs are the same, of products too, and effects come back in units of the covariates (F13)."""
    digits = max(4e-16 * centre / width, 1e-14)
    for formula in ("~ x + y", "~ x * y", "~ y + x", "~ c + x:c", "~ x * c + y", None):
        names = ["x", "y"] if formula is None else ["x", "y", "c"]
        one = pd.DataFrame({"x": Z, "y": Z2, "c": np.where(Z2 > 0, "a", "b")})[names]
        plain = read_covariates(formula, one, np.arange(40))
        frame = one.assign(x=centre + width * Z)
        found = read_covariates(formula, frame, np.arange(40))
        np.testing.assert_allclose(found.standardised, plain.standardised, atol=50 * digits)
        np.testing.assert_allclose(design_of(found.coding, frame, np.arange(40)), found.standardised, atol=1e-13)
        if centre / width < 1e8:
            effects = np.ones((len(found.coding.terms), 1))
            in_units = found.design @ (found.coding.unit @ effects)
            np.testing.assert_allclose(in_units, found.standardised @ effects, atol=1e-4)


def test_both_factors_of_a_product_may_be_far_from_0():
    one = pd.DataFrame({"x": Z, "y": Z2})
    far = pd.DataFrame({"x": 1.7e9 + 1e7 * Z, "y": 2.46e6 + 100 * Z2})
    plain, found = (read_covariates("~ x * y", frame, np.arange(40)) for frame in (one, far))
    np.testing.assert_allclose(found.standardised, plain.standardised, atol=1e-9)
    np.testing.assert_allclose(found.coding.unit[3, 3] * 1e7 * 100, plain.coding.unit[3, 3], rtol=1e-6)
    recovered = frame_of_design(found.coding, found.standardised, np.arange(40))
    np.testing.assert_allclose(recovered, far, rtol=1e-12)
    alone = read_covariates("~ x:y", far, np.arange(40))  # without its factors, it may not be moved
    np.testing.assert_allclose(alone.design[:, 1], far.x * far.y, rtol=1e-15)


def test_what_is_constant_but_for_rounding_and_what_float64_cannot_hold():
    almost = np.where(Z > 0, 0.3, 0.1 * 3)
    assert np.ptp(almost) > 0
    for constant in (almost, np.full(40, 3e9), np.full(40, 2**60)):
        with pytest.raises(ValueError, match="must vary between rows: 'x' does not"):
            read_covariates(None, {"x": constant}, np.arange(40))
    close = 2**60 + np.arange(40)
    with pytest.raises(ValueError, match=r"float64 loses their differences: .* covariates\['x'\] -= covariates\['x'\]"):
        read_covariates(None, {"x": close}, np.arange(40))
    plain = read_covariates(None, {"x": np.arange(40)}, np.arange(40)).standardised
    assert np.array_equal(read_covariates(None, {"x": close - close.min()}, np.arange(40)).standardised, plain)
    spread = read_covariates(None, {"x": 2**60 + 10**12 * np.arange(40)}, np.arange(40)).standardised
    np.testing.assert_allclose(spread, plain, atol=1e-9)


def test_dates_are_refused_with_a_cure_that_works():
    days = pd.date_range("2020", periods=6)
    plain = read_covariates(None, {"day": np.arange(6)}, np.arange(6)).standardised
    for column in (days, days.date, days.to_period("D"), days.tz_localize("UTC"), days - days[0]):
        covariates = pd.DataFrame({"day": column})
        for formula in ("~ day", None):
            with pytest.raises(ValueError, match=r"column 'day' has (dates|spans of time): make numbers") as refused:
                read_covariates(formula, covariates, np.arange(6))
        exec("covariates['day'] = [" + str(refused.value).split("= [")[1], {}, {"covariates": covariates})
        np.testing.assert_allclose(read_covariates(None, covariates, np.arange(6)).standardised, plain, atol=1e-9)


NO_FORMULAS = {
    "~ age**2": (r"found '\*\*' .* make a column", None), "~ age^2": (r"found '\^' .* make a column", None),
    "~ age/arm": ("found '/'", "~ age + age:arm"), "~ age %in% arm": ("found '%in%'", "~ arm:age"),
    "~ age + age": (r"found 'age' \+ 'age'", "~ age"), "~ age - arm": ("found '-'", "~ age"),
    "~ -1 + age": ("keep its intercept", "~ age"), "~ age + 0": ("keep its intercept", "~ age"),
    "~ .": ("name the columns, as '~ age [+] arm [+] `my column`'", "~ age + arm + `my column`"),
    "~ log(age)": (r"found 'log\(age\)'", None), "~ I(age**2)": (r"found 'I\(age\*\*2\)'", None),
    "~ Q('my column')": ("in backticks", "~ `my column`"), "~ my column": ("in backticks", "~ `my column`"),
    "~ (age + arm)**200": ("write products of sums out", "~ age + arm + age:arm"),
    "~ ((age + arm)^50)^50": ("write products of sums out", None), "~ age:age": ("make a column of its square", None),
    "~ age*age": ("make a column of its square", None), "~ (age + arm):(arm + age)": ("'age' : 'age'", None),
    "~ age:arm + arm:age": (r"found 'age:arm' \+ 'age:arm'", "~ age:arm"),
    "~ C(age) + age": (r"found 'age' \+ 'age'", None),
    "~ C(age):arm + age": (r"both in .*covariates\['age_category'\] = covariates\['age'\].astype\(str\)", None),
    "~ C(arm, Treatment('b'))": ("C takes one name. .* pd.Categorical", None), "~ C(age + arm)": ("C takes one", None),
    "~ 2*age": ("found '2'", None), "~ 1:age": ("the intercept is there by itself", None), "~ (age": ("bracket", None),
    "~ age)": (r"found '\)'", "~ age"), "~ age, arm": ("put [+], : or [*] between", "~ age + arm"),
    "~ age == 30": ("found '='", None), "~ age[0]": (r"found '\['", None), "~ `age": ("close the name", "~ `age`"),
    "~ age + + arm": ("leave one [+] out", "~ age + arm"), "": ("with no covariate", None),
    "~ (1 | arm)": ("no |", None), "~ " + "*".join(f"v{i}" for i in range(60)): ("at most 1,000 terms", None),
    "~ " + "(" * 3000 + "age" + ")" * 3000: ("too many brackets", None),
}  # fmt: skip


@pytest.mark.parametrize("formula", NO_FORMULAS)
def test_other_formulas_are_refused_by_name_and_cured(formula):
    """Before anything is multiplied out: the last ones would not end (F14)."""
    message, cure = NO_FORMULAS[formula]
    with pytest.raises(ValueError, match=message):
        read_covariates(formula, FRAME, NAMES)
    if cure is not None:
        assert read_covariates(cure, FRAME, NAMES).coding.formula is not None


@pytest.mark.parametrize(
    ("formula", "terms"),
    [
        ("age + dose", "Intercept age dose"),
        ("~ 1 + age", "Intercept age"),
        ("~ (age + arm):dose", "Intercept age:dose arm[a]:dose arm[b]:dose"),
        ("~ (age + dose) * arm", "Intercept age dose arm[T.b] age:arm[T.b] dose:arm[T.b]"),
        ("~ age * arm + age", "Intercept arm[T.b] age age:arm[T.b]"),
        ("~ arm:age:dose", "Intercept arm[a]:age:dose arm[b]:age:dose"),
        ("~ C(`age.y`) + C( dose )", "Intercept age.y[T.2] dose[T.1] dose[T.2]"),
        ("~ age.y", "Intercept age.y"),
        ("~ C", "Intercept C"),
    ],
)
def test_what_formulas_mean(formula, terms):
    frame = pd.DataFrame({"age": AGE, "arm": list("ababba"), "dose": [0, 1, 2, 2, 0, 1], "age.y": [1, 2, 2, 1, 2, 2]})
    frame["C"] = frame.age**2
    names = frame if len(terms.split()) < 6 else pd.concat([frame, frame + frame.iloc[::-1].reset_index(drop=True)])
    names = names.assign(arm=list("ababba" * (len(names) // 6))).reset_index(drop=True)
    found = read_covariates(formula, names, np.arange(len(names))).coding
    assert " ".join(found.terms) == terms
    words = names.assign(**{each: [f"level {value}" for value in names[each]] for each in found.levels})
    again = read_covariates(found.formula, words, np.arange(len(names))).coding  # as files keep it
    assert again.terms == [re.sub(r"\[(T\.)?", r"[\1level ", term) for term in found.terms]


@pytest.mark.parametrize(
    ("formula", "name"),
    [
        ("~ arm + `arm[T.b]`", "arm[T.b]"),
        ("~ age * arm + `age:arm[T.b]`", "age:arm[T.b]"),
        ("~ Intercept + age", "Intercept"),
        (None, "Intercept"),
    ],
)
def test_columns_that_are_named_as_terms_are_refused(formula, name):
    """They would be one term with it, or two of one name (F39, F40)."""
    covariates = FRAME.assign(arm=list("aabbab"), **{name: [3.0, 1.0, 4.0, 1.5, 9.0, 2.0]})
    covariates = covariates if formula else covariates[[name]]
    with pytest.raises(ValueError, match=f"names that no other term has: {re.escape(repr(name))}") as refused:
        read_covariates(formula, covariates, NAMES)
    cure = str(refused.value).split("as by ")[1]
    cured = eval(cure, {"pd": pd, "covariates": covariates})
    again = formula and formula.replace(name, f"other_{name}")
    assert f"other_{name}" in read_covariates(again, cured, NAMES).coding.terms


REFUSED = {
    "no column": ("~ weight", FRAME, "columns of the formula: 'weight' missing; there are 'age'"),
    "nothing": ("~ age", None, "formula needs covariates"),
    "a missing value": ("~ age", FRAME.assign(age=[*AGE[:5], None]), "column 'age' has 1, the first in row 's5'"),
    "words": (None, FRAME, "must be numbers: column 'arm' has others; give formula="),
    "infinity in a formula": ("~ age", FRAME.assign(age=[*AGE[:5], np.inf]), "must be finite: column 'age'"),
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
    "too many": (None, np.vander(AGE, 8)[:, :-1] / 77.0, "found 8 with the intercept for 6 rows; leave some"),
    "as many as rows": (None, np.vander(AGE, 7)[:, :-1] / 77.0, "found 7 with .* until 5 are left beside"),
    "too many in a formula": (
        "~ age + arm * dose", FRAME.assign(dose=list("xyzxyz")), "of arm:dose; leave arm:dose out"),
    "too few rows": (None, {"age": AGE[:5]}, "a row for each of 6 rows of the counts: found 5"),
    "names that repeat": ("~ age", pd.concat([FRAME, FRAME], axis=1), "names that differ: 'age' repeats"),
    "names that repeat, without a formula": (None, pd.concat([FRAME[["age"]]] * 2, axis=1), "'age' repeats"),
    "columns of other lengths": (None, {"age": AGE, "dose": [1.0]}, "a list for each column, all of one length"),
    "no lists": (None, {"age": 40}, "a list for each column"),
    "numbers as text": ("~ age", FRAME.assign(age=[*map(str, AGE)]), r"written as text: .* or write C\(age\)"),
    "dates": ("~ day", FRAME.assign(day=pd.date_range("2020", periods=6)), "column 'day' has dates"),
    "periods": ("~ day", FRAME.assign(day=pd.period_range("2020", periods=6)), "column 'day' has dates: .*[.]ordinal"),
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


WIDE = pd.DataFrame({name: [f"level {(i // step) % 12}" for i in range(144)] for step, name in enumerate("abcde", 1)})


@pytest.mark.parametrize("sign", ["*", ":"])
def test_wide_products_of_categories_are_refused_before_they_are_made(sign, monkeypatch):
    """They took gigabytes and minutes (F14)."""
    monkeypatch.setitem(sys.modules, "formulaic", None)  # which would make them
    with pytest.raises(ValueError, match=r"found 248,832 with .* for 144 rows, .* leave a:b:c:d:e out, or merge"):
        read_covariates("~ " + sign.join(WIDE), WIDE, np.arange(144))


@pytest.mark.parametrize(
    "formula",
    ["~ age", "~ a", "~ a:b", "~ a*b", "~ a + a:b", "~ a:age", "~ a*b*c*age", "~ a:b + b:c + age:c", "~ a:b:c + age"],
)
def test_columns_are_counted_before_they_are_made(formula):
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {name: random.permutation(np.arange(200) % size) for name, size in zip("abc", (2, 3, 4), strict=True)}
    )
    frame = ("level " + frame.astype(str)).assign(age=random.normal(size=200))
    coding = read_covariates(formula, frame, np.arange(200)).coding
    assert read_formula(formula, []).width(coding.levels, 200)[0] == len(coding.terms)


def test_an_identifier_among_the_covariates_is_told():
    """Effects of it take up what rows differ in, in silence."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"id": [f"p{i % 40}" for i in range(60)], "site": rng.choice(list("abcde"), 60)})
    with pytest.warns(DataWarning, match="'id' of covariates has 40 categories in 60 rows, .*like an identifier"):
        read_covariates("~ site + id", frame, np.arange(60))
    read_covariates("~ site", frame, np.arange(60))
