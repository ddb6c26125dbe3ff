"""Every bad input is refused with a message that names the argument, the rule and the cure."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import xarray as xr

import bayesnmf
from bayesnmf.checks import check_choice, check_count, check_positive, check_rank, check_seed
from bayesnmf.data.conversion import as_counts, check_integer_counts

# --- what as_counts refuses -----------------------------------------------------------------------


EMPTY_ANNDATA = SimpleNamespace(X=None, layers={}, obs_names=["u"], var_names=["a"])


def corrupt(form):
    x = form(np.eye(3))
    x.indices[1] = 7
    return x


BAD = {
    "negative": (
        [[0, 1], [2, -3]],
        ValueError,
        r"nonnegative: found -3.0 at row 1, column 1, as in scaled or corrected data; pass the raw counts",
    ),
    "negative sparse": (
        sp.csc_array([[0, 0], [-1, 0]]),
        ValueError,
        "nonnegative: found -1.0 at row 1, column 0",
    ),
    "NaN": ([[0, np.nan]], ValueError, "finite as float64: found nan at row 0, column 1; replace"),
    "NaN and negative": ([[-1, np.nan]], ValueError, "finite"),
    "infinite": ([[np.inf, 0]], ValueError, "finite as float64: found inf"),
    "NaN in frame": (pd.DataFrame({"a": [1, None]}), ValueError, "finite .* found nan at row 1"),
    "NA in frame": (pd.DataFrame({"a": pd.array([None, 1], "Int64")}), ValueError, "finite .* at row 0"),
    "one dimension": ([1, 2], ValueError, r"two-dimensional, samples in rows: found shape \(2,\); reshape"),
    "series": (pd.Series([1, 2]), ValueError, "two-dimensional"),
    "sparse vector": (sp.coo_array([1, 2]), ValueError, "two-dimensional"),
    "three dimensions": (np.ones((2, 2, 2)), ValueError, "two-dimensional"),
    "number": (3, ValueError, "two-dimensional"),
    "ragged": ([[1, 2], [3]], ValueError, "rectangular: give every row the same number"),
    "no rows": (np.ones((0, 3)), ValueError, r"at least one row and one column: found shape \(0, 3\)"),
    "no rows chosen": (bayesnmf.as_counts(np.ones((2, 3)))[[]], ValueError, r"at least one row.*found shape \(0, 3\)"),
    "no columns chosen": (bayesnmf.as_counts(np.ones((2, 3)))[:, :0], ValueError, r"at least one row.*\(2, 0\)"),
    "no columns": (sp.csr_array((3, 0)), ValueError, "at least one row and one column"),
    "empty frame": (pd.DataFrame(), ValueError, "at least one row and one column"),
    "numbers as text": ([["1", "2"]], TypeError, "real numbers: found dtype <U1; convert"),
    "words": ([["a", "b"]], TypeError, r"be numbers, and these are lists of words: .*CountVectorizer\(analyzer=list"),
    "text and numbers": ([[1, "b"]], TypeError, "be numbers, and these are lists of words"),
    "object": (np.array([[1, 2]], object), TypeError, "real numbers: found dtype object"),
    "None": (None, TypeError, "real numbers: found dtype object"),
    "dict": ({"a": [1]}, TypeError, "one matrix here: found several by name"),
    "dates": (np.array([["2020-01-01"]], "M8[D]"), TypeError, "real numbers"),
    "complex": ([[1j]], TypeError, "real numbers: found dtype complex128"),
    "complex sparse": (sp.csr_array([[1j]]), TypeError, "real numbers: found dtype complex128"),
    "text in frame": (pd.DataFrame({"a": [1], "b": ["x"]}), TypeError, "real numbers: column 'b' has dtype"),
    "categories": (pd.DataFrame({"a": pd.Categorical([1])}), TypeError, "column 'a' has dtype category"),
    "sparse NaN": (pd.DataFrame({"a": [1.0]}).astype(pd.SparseDtype(float)), ValueError, "fill value 0"),
    "masked": (np.ma.ones((2, 2)), TypeError, r"not be a masked array: .* use \.filled\(0\)"),
    "corrupt csr": (corrupt(sp.csr_array), ValueError, "valid sparse matrix: indices must be < 3"),
    "corrupt csc": (corrupt(sp.csc_array), ValueError, "valid sparse matrix: indices must be < 3"),
    "class that is no array": (xr.Dataset({"a": ("x", [1])}), TypeError, "real numbers: found Dataset; pass an array"),
    "AnnData without counts": (EMPTY_ANNDATA, ValueError, r"neither X nor layers\['counts'\]; store"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_counts_are_refused(case):
    x, error, rule = BAD[case]
    with pytest.raises(error, match=f"^heights .*{rule}"):
        as_counts(x, name="heights")


def test_overflow_in_float32_is_refused():
    assert as_counts([[1e300]]).total == 1e300
    with pytest.raises(ValueError, match="counts must be finite as float32: found inf"):
        as_counts([[1e300]], dtype=np.float32)


@pytest.mark.parametrize("dtype", [int, "float16", ">f8", None, complex])
def test_other_dtypes_are_refused(dtype):
    with pytest.raises(ValueError, match="dtype must be float64 or float32, not"):
        as_counts([[1]], dtype=dtype)
    with pytest.raises(TypeError, match="dtype must be float64 or float32, not 'number'"):
        as_counts([[1]], dtype="number")


# --- options --------------------------------------------------------------------------------------


def test_fractions_are_refused_where_counts_must_be_whole():
    check_integer_counts(as_counts([[1, 2]]), "method='gibbs'", "round them")
    with pytest.raises(ValueError, match=r"counts must be whole numbers for method='gibbs': found 1.5 at row 1"):
        check_integer_counts(as_counts([[1, 2], [0, 1.5]]), "method='gibbs'", "round them")


def test_counts_beyond_exact_whole_numbers_are_refused():
    """Gibbs took them for something else in silence."""
    check_integer_counts(as_counts([[2.0**53]]), "method='gibbs'", "round them")
    with pytest.raises(ValueError, match=r"counts must be at most 2\*\*53 for method='gibbs': found 1e\+19; divide"):
        check_integer_counts(as_counts([[1e19]]), "method='gibbs'", "round them")


def test_only_whole_numbers_from_the_least_are_taken():
    assert check_rank(np.int32(3)) == 3
    assert check_count(0, "burn_in", minimum=0) == 0
    assert (check_seed(None), check_seed(0)) == (None, 0)
    for bad in (0, -1):
        with pytest.raises(ValueError, match=f"rank must be at least 1: found {bad}"):
            check_rank(bad)
    for bad in (True, np.True_, 2.0, "2", None):
        with pytest.raises(TypeError, match="rank must be a whole number of at least 1, not"):
            check_rank(bad)
    with pytest.raises(ValueError, match="seed must be at least 0"):
        check_seed(-1)
    with pytest.raises(TypeError, match="seed must be a whole number"):
        check_seed(1.5)


def test_only_positive_finite_numbers_are_taken():
    assert check_positive(np.float32(0.5), "shape") == 0.5
    assert isinstance(check_positive(2, "shape"), float)
    for bad in (0, -1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="shape must be positive and finite: found"):
            check_positive(bad, "shape")
    for bad in ("1", None, True, 1j, [1]):
        with pytest.raises(TypeError, match="shape must be a positive number, not"):
            check_positive(bad, "shape")


def test_a_word_that_is_not_among_the_choices_is_refused():
    choices = ("em", "vi", "gibbs")
    assert check_choice("vi", "method", choices) == "vi"
    with pytest.raises(
        ValueError, match=r"method must be one of 'em', 'vi', 'gibbs': found 'gibs'; did you mean 'gibbs'"
    ):
        check_choice("gibs", "method", choices)
    with pytest.raises(ValueError, match=r"method must be one of .*: found None$"):
        check_choice(None, "method", choices)


def test_arrays_with_gaps_in_memory_are_made_contiguous():
    """Compiled loops step from one number to the next: strided views of a CSR matrix once gave other counts."""
    plain = sp.csr_array(np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 4.0]]))
    for stride in (2, -1):
        parts = []
        for part in (plain.data, plain.indices):
            wide = np.full(len(part) * abs(stride), 77, part.dtype)
            wide[::stride] = part
            parts.append(wide[::stride])
        strided = plain.copy()
        strided.data, strided.indices = parts
        assert not strided.data.flags.c_contiguous
        counts = as_counts(strided)
        assert counts.matrix.data.flags.c_contiguous
        assert counts.matrix.indices.flags.c_contiguous
        np.testing.assert_array_equal(counts.matrix.toarray(), plain.toarray())


@pytest.mark.parametrize(("dtype", "count"), [("float64", 1e308), ("float64", 1e100), ("float32", 1e38)])
def test_counts_whose_totals_overflow_are_refused_by_name(dtype, count):
    counts, options = np.full((3, 4), count), bayesnmf.VI(dtype=dtype, start="random", max_iter=2, tol=0)
    with pytest.raises(ValueError, match=rf"counts must have a total of at most 1e\+\d+ in {dtype}: found"):
        bayesnmf.fit(counts, rank=2, options=options)
    fit = bayesnmf.fit(np.eye(3, 4), rank=2, seed=0, options=options)
    with pytest.raises(ValueError, match="counts must have a total of at most"):
        fit.transform(counts)
    with pytest.raises(ValueError, match="counts must have a total of at most"):
        bayesnmf.MinibatchVI(rank=2, options=bayesnmf.VI(algorithm="minibatch", dtype=dtype)).partial_fit(counts)
