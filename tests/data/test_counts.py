"""Counts are the same whatever container they come in, and know their totals."""

import copy
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.special import gammaln

import bayesnmf
from bayesnmf.data.conversion import as_counts
from bayesnmf.data.counts import Counts

X = np.array([[0, 1, 2, 0], [0, 0, 0, 0], [5, 0, 300, 0]])

matrices = hnp.arrays(
    st.sampled_from([np.uint8, np.int64, np.float32, np.float64, np.bool_]),
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=7),
    elements=st.integers(0, 1),
) | hnp.arrays(np.int64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=7), elements=st.integers(0, 2**52))


def split_in_two(x):
    """Store every entry twice, as halves that add up to it, in reversed order."""
    x = sp.coo_array(x.astype(float))
    halves = np.concatenate([x.data / 2, x.data / 2])[::-1]
    return sp.coo_array((halves, tuple(np.tile(c, 2)[::-1] for c in x.coords)), shape=x.shape)


def with_explicit_zeros(x):
    """Store every entry, zeros too, columns from right to left."""
    n, m = x.shape
    indices = np.tile(np.arange(m)[::-1], n)
    return sp.csr_array((x[:, ::-1].astype(float).ravel(), indices, np.arange(n + 1) * m), shape=x.shape)


CONTAINERS = {
    "array": lambda x: x,
    "fortran": np.asfortranarray,
    "list": lambda x: x.tolist(),
    "frame": pd.DataFrame,
    "sparse frame": lambda x: pd.DataFrame(x.astype(float)).astype(pd.SparseDtype(float, 0)),
    "nullable frame": lambda x: pd.DataFrame(x.astype(float)).astype("Float64"),
    "split entries": split_in_two,
    "explicit zeros": with_explicit_zeros,
    "int64 indices": lambda x: sp.csr_array(
        (sp.csr_array(x).data, *(np.int64(a) for a in (sp.csr_array(x).indices, sp.csr_array(x).indptr))),
        shape=x.shape,
    ),
    "Counts": as_counts,
    **{form: getattr(sp, form) for form in ("csr_array", "csc_array", "lil_array", "bsr_array", "csc_matrix")},
    **{form: lambda x, form=form: getattr(sp, form)(sp.coo_array(x)) for form in ("dok_array", "dia_array")},
}


def assert_canonical(counts, expected):
    matrix = counts.matrix
    assert isinstance(matrix, sp.csr_array)
    fresh = sp.csr_array((matrix.data, matrix.indices, matrix.indptr), shape=matrix.shape)
    assert fresh.has_canonical_format
    assert matrix.data.all()
    assert matrix.indices.dtype == matrix.indptr.dtype == np.int32
    np.testing.assert_array_equal(matrix.toarray(), expected)


# --- what as_counts accepts -----------------------------------------------------------------------


@pytest.mark.parametrize("container", CONTAINERS)
@settings(max_examples=25)
@given(x=matrices)
def test_every_container_gives_the_same_counts(container, x):
    counts = as_counts(CONTAINERS[container](x))
    assert counts.dtype == np.float64
    assert_canonical(counts, x)


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("dtype", [np.float32, "float64"])
def test_dtype_is_the_one_asked_for(container, dtype):
    counts = as_counts(CONTAINERS[container](X), dtype=dtype)
    assert counts.dtype == dtype
    assert_canonical(counts, X)


def stored(x):
    """Every array inside a container, with the order and the zeros it holds."""
    if sp.issparse(x):
        return [np.array(a) for a in (x.data, x.indices, x.indptr)]
    return [np.array(x)]


@pytest.mark.parametrize("container", ["array", "frame", "explicit zeros", "csr_array", "csc_array", "bsr_array"])
def test_input_is_not_modified(container):
    x = CONTAINERS[container](X.astype(float))
    before, attributes = stored(x), copy.copy(vars(x)) if sp.issparse(x) else {}
    as_counts(x)
    as_counts(x, dtype=np.float32)
    for old, new in zip(before, stored(x), strict=True):
        np.testing.assert_array_equal(old, new)
        assert old.dtype == new.dtype
    assert all(vars(x)[key] is value for key, value in attributes.items())


def test_input_may_be_read_only():
    x = with_explicit_zeros(X)
    for array in (x.data, x.indices, x.indptr):
        array.flags.writeable = False
    assert_canonical(as_counts(x), X)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("container", ["array", "frame", "explicit zeros", "csr_array", "csc_array", "bsr_array"])
def test_counts_share_no_memory_with_what_they_were_made_of(container, dtype):
    x = CONTAINERS[container](X.astype(dtype))
    parts = [x.data, x.indices, x.indptr] if sp.issparse(x) else [np.asarray(x)]
    matrix = as_counts(x, dtype=dtype).matrix
    assert not any(
        np.shares_memory(own, part) for own in (matrix.data, matrix.indices, matrix.indptr) for part in parts
    )


def test_counts_stay_when_the_matrix_is_worked_on_in_place():
    """As scanpy's pp.log1p and pp.normalize_total do, and SciPy's own eliminate_zeros and sort_indices."""
    x = sp.csr_array(X.astype(float))
    counts = as_counts(x)
    np.log1p(x.data, out=x.data)
    x.data[::2] = 0
    x.eliminate_zeros()
    np.testing.assert_array_equal(counts.matrix.toarray(), X)
    assert counts.total == X.sum()


def test_names_are_copied():
    names = np.array([f"g{j}" for j in range(X.shape[1])], dtype=object)
    counts = as_counts(pd.DataFrame(X, columns=pd.Index(names, copy=False)))
    names[0] = "changed"
    assert counts.feature_names[0] == "g0"


def test_counts_that_nobody_else_holds_are_shared():
    x = sp.csr_array(X.astype(float))
    assert np.shares_memory(as_counts(x, share=True).matrix.data, x.data)
    counts = as_counts(x)
    assert as_counts(counts) is counts


def test_duplicates_are_added_before_they_can_overflow():
    x = sp.coo_array((np.array([200, 100], np.uint8), ([0, 0], [1, 1])), shape=(1, 2))
    np.testing.assert_array_equal(as_counts(x, dtype=np.float32).matrix.toarray(), [[0, 300]])


def test_wide_sparse_input_is_not_densified():
    x = sp.coo_array(([2**53, 3], ([0, 10**6 - 1], [10**6 - 1, 0])), shape=(10**6, 10**6))
    counts = as_counts(x)
    assert counts.nnz == 2
    assert counts.total == 2.0**53 + 3


@pytest.mark.parametrize("dtype", [">f8", ">i4", np.float16, np.longdouble])
def test_every_type_of_number_is_taken(dtype):
    assert_canonical(as_counts(X.astype(dtype)), X)


def test_zero_rows_columns_and_matrices_are_legal():
    counts = as_counts(np.zeros((3, 2)))
    assert (counts.nnz, counts.total, counts.log_factorial, counts.is_integer) == (0, 0.0, 0.0, True)
    np.testing.assert_array_equal(counts.row_totals, np.zeros(3))
    np.testing.assert_array_equal(counts.feature_totals, np.zeros(2))


def test_names_come_from_the_container():
    frame = pd.DataFrame(X, index=["u", "v", "w"], columns=list("abcd"))
    counts = as_counts(frame)
    assert list(counts.row_names) == ["u", "v", "w"]
    assert list(counts.feature_names) == list("abcd")
    np.testing.assert_array_equal(as_counts(X).row_names, np.arange(3))
    np.testing.assert_array_equal(as_counts(X).feature_names, np.arange(4))
    assert as_counts(counts, dtype=np.float32).feature_names is counts.feature_names


def test_frame_with_sparse_and_dense_columns():
    frame = pd.DataFrame(X, columns=list("abcd")).astype({"a": pd.SparseDtype(int, 0), "b": "Int64"})
    assert_canonical(as_counts(frame), X)


class FakeAnnData:
    """The four attributes of AnnData that are read."""

    def __init__(self, x, **layers):
        self.X, self.layers = x, layers
        self.obs_names, self.var_names = pd.Index(["u", "v", "w"]), pd.Index(list("abcd"))


def test_anndata_layer_counts_comes_before_x():
    counts = as_counts(FakeAnnData(X * 0.5, counts=sp.csc_matrix(X)))
    assert_canonical(counts, X)
    assert list(counts.row_names) == ["u", "v", "w"]
    assert_canonical(as_counts(FakeAnnData(X)), X)


# --- what Counts knows ----------------------------------------------------------------------------


@settings(max_examples=50)
@given(x=matrices, dtype=st.sampled_from([np.float32, np.float64]))
def test_totals_and_constants_are_those_of_the_matrix(x, dtype):
    counts = as_counts(x, dtype=dtype)
    dense = x.astype(dtype).astype(float)
    np.testing.assert_allclose(counts.row_totals, dense.sum(1), rtol=1e-14)
    np.testing.assert_allclose(counts.feature_totals, dense.sum(0), rtol=1e-14)
    np.testing.assert_allclose(counts.total, dense.sum(), rtol=1e-14)
    np.testing.assert_allclose(counts.log_factorial, gammaln(dense + 1).sum(), rtol=1e-12)
    assert counts.row_totals.dtype == counts.feature_totals.dtype == np.float64
    assert counts.shape == x.shape
    assert counts.nnz == np.count_nonzero(x)
    assert counts.is_integer


@pytest.mark.parametrize("index", [1, -1, slice(0, 2), [2, 0, 0], np.array([True, False, True]), []])
def test_rows_keep_their_names(index):
    counts = as_counts(pd.DataFrame(X, index=["u", "v", "w"]))
    chosen = counts.rows(index)
    assert_canonical(chosen, np.atleast_2d(X[index]).reshape(-1, 4))
    np.testing.assert_array_equal(chosen.row_names, np.atleast_1d(counts.row_names[index]))
    assert chosen.feature_names is counts.feature_names


def test_with_matrix_keeps_names_and_forgets_totals():
    counts = as_counts(pd.DataFrame(X, index=["u", "v", "w"]))
    assert counts.total == 308
    doubled = counts.with_matrix(counts.matrix * 2)
    assert doubled.total == 616
    assert doubled.row_names is counts.row_names


def test_counts_are_frozen_and_describe_themselves():
    counts = as_counts(np.full((2, 600), 10.5))
    with pytest.raises(AttributeError):
        counts.matrix = None
    first, head, *rows, rest = repr(counts).splitlines()
    assert first == "Counts(2 rows × 600 features, 1,200 nonzeros, total 12,600)"
    assert head.split() == [str(j) for j in range(8)]
    assert [row.split() for row in rows] == [["0", *["10.5"] * 8], ["1", *["10.5"] * 8]]
    assert rest == "… 592 more features"
    assert isinstance(counts, Counts)


def test_a_print_shows_the_features_with_most_counts_in_80_columns():
    lines = repr(bayesnmf.datasets.cells()).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[1].split()[:2] == ["LYZ", "HLA-DRA"]
    assert [line.split()[0] for line in lines[2:7]] == bayesnmf.datasets.cells().row_names[:5].tolist()


def test_a_print_shows_missing_entries_as_such():
    counts = as_counts(np.array([[1.0, np.nan], [2.0, 3.0]]), missing="nan")
    assert repr(counts).splitlines()[2].split() == ["0", "1", "–"]


FRAME = pd.DataFrame(X, ["u", "v", "w"], list("abcd"))
INDICES = [0, -1, slice(0, 2), slice(None), [2, 0], np.array([True, False, True]), "v", ["w", "u"]]


@pytest.mark.parametrize("features", INDICES, ids=str)
@pytest.mark.parametrize("rows", INDICES, ids=str)
def test_rows_and_features_are_taken_by_position_mask_and_name(rows, features):
    """pandas, by `iloc` and `loc`, is the judge; its frames have two axes where a single row is asked for."""
    if isinstance(features, np.ndarray):
        features = np.array([True, False, True, False])
    features = {"v": "b", str(["w", "u"]): ["d", "a"]}.get(str(features), features)
    frame = FRAME
    for axis, index in enumerate((rows, features)):
        listed = [index] if isinstance(index, int | str) else index
        named = isinstance(listed, list) and isinstance(listed[0], str)
        key = (listed, slice(None)) if axis == 0 else (slice(None), listed)
        frame = frame.loc[key] if named else frame.iloc[key]
    found = as_counts(FRAME)[rows, features]
    assert_canonical(found, frame.to_numpy())
    pd.testing.assert_frame_equal(found.to_frame(), frame, check_dtype=False)


def test_names_are_text_and_whole_numbers_are_positions():
    years = as_counts(pd.DataFrame(X, columns=[1990, 1991, 1992, 1993]))
    np.testing.assert_array_equal(np.asarray(years[:, "1991"]), X[:, [1]])
    np.testing.assert_array_equal(np.asarray(years[:, 1]), X[:, [1]])
    with pytest.raises(IndexError, match="1991 is out of bounds"):
        years[:, 1991]


@pytest.mark.filterwarnings("ignore:names of features repeat")
def test_a_name_that_repeats_is_all_that_have_it():
    found = as_counts(FRAME.set_axis(["a", "b", "a", "d"], axis=1))[:, "a"]
    np.testing.assert_array_equal(np.asarray(found), X[:, [0, 2]])


@pytest.mark.parametrize(
    ("key", "error", "told"),
    [
        ("a", KeyError, r"no row is named 'a', but a feature is: write counts\[:, 'a'\]"),
        ((slice(None), "B"), KeyError, "no feature is named 'B'; did you mean 'b'"),
        ((slice(None), ["a", "none"]), KeyError, "no feature is named 'none': see counts.feature_names"),
        ((0, 0, 0), IndexError, "counts have rows and features"),
        (3, IndexError, "out of bounds"),
    ],
)
def test_what_is_not_there_is_refused(key, error, told):
    with pytest.raises(error, match=told):
        as_counts(FRAME)[key]


def test_counts_are_arrays_and_frames_and_are_not_iterated():
    counts = as_counts(FRAME)
    assert len(counts) == 3
    np.testing.assert_array_equal(np.asarray(counts), X)
    assert np.asarray(counts, dtype=np.float32).dtype == np.float32
    np.testing.assert_array_equal(pd.DataFrame(counts).to_numpy(), X)
    assert counts.to_frame().dtypes.eq(np.int64).all()
    with pytest.raises(TypeError, match=r"counts\[i\] is row i"):
        list(counts)
    with pytest.raises(ValueError, match="leave copy=False out"):
        counts.__array__(copy=False)


def test_missing_entries_are_nan_in_arrays_and_frames_of_parts():
    x = np.array([[1.0, np.nan, 2.0], [0.0, 3.0, np.nan]])
    counts = as_counts(x, missing="nan")
    np.testing.assert_array_equal(np.asarray(counts), x)
    np.testing.assert_array_equal(np.asarray(counts[[1, 0], [2, 0]]), x[[1, 0]][:, [2, 0]])
    np.testing.assert_array_equal(as_counts(counts.to_frame(), missing="nan").mask.missing.toarray(), np.isnan(x))


def test_parts_keep_exposures_and_batches():
    counts = as_counts(FRAME).with_exposure(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0, 4.0]))
    part = counts[["w", "u"], ["c", "a"]]
    assert part.row_exposure.tolist() == [3, 1]
    assert part.feature_exposure.tolist() == [3, 1]


def test_several_matrices_are_one_once_features_are_chosen():
    counts = bayesnmf.fit({"one": FRAME, "two": FRAME}, rank=1, method="map", seed=0).counts
    np.testing.assert_array_equal(np.asarray(counts[:, "two: b"]), X[:, [1]])
    assert counts[:2].matrices.names == ("one", "two")


def test_raw_counts_of_anndata():
    """`adata.raw` has X and names, but no layers."""
    raw = SimpleNamespace(X=X, obs_names=["u", "v", "w"], var_names=["a", "b", "c", "d"])
    counts = as_counts(raw)
    np.testing.assert_array_equal(counts.dense, X)
    assert list(counts.feature_names) == ["a", "b", "c", "d"]


def test_sparse_columns_of_numbers_and_booleans():
    columns = {"a": pd.arrays.SparseArray([1.5, 0], fill_value=0), "b": pd.arrays.SparseArray([True, False])}
    np.testing.assert_array_equal(as_counts(pd.DataFrame(columns)).dense, [[1.5, 1], [0, 0]])
