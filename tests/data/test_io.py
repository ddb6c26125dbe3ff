"""Every format reads back what was written."""

import gzip
import io
import json
import sys
import tracemalloc
import warnings

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import bayesnmf
from bayesnmf.data.files import read_counts

pytestmark = pytest.mark.filterwarnings(  # anndata under pandas 3
    "ignore:The 'future.infer_string' option is deprecated:DeprecationWarning"
)

X = np.array([[0, 1, 2], [0, 0, 0], [5, 0, 300]])
FRAME = pd.DataFrame(X, index=["NA", "007", "x y"], columns=["é", "b", "c"])


# --- writers: (path, dense counts) -> None --------------------------------------------------------


def write_mtx(path, x):
    buffer = io.BytesIO()
    scipy.io.mmwrite(buffer, sp.coo_array(x))
    path.write_bytes(gzip.compress(buffer.getvalue()) if path.suffix == ".gz" else buffer.getvalue())


def write_table(path, x):
    pd.DataFrame(x).to_csv(path, sep="," if ".csv" in path.name else "\t")


def annotated(x):
    n, m = x.shape
    obs, var = (
        pd.DataFrame(index=[f"s{i}" for i in range(n)]),
        pd.DataFrame(index=[f"f{j}" for j in range(m)]),
    )
    return anndata.AnnData(sp.csr_matrix(x.astype(float)), obs=obs, var=var)


def write_h5ad(path, x):
    annotated(x).write_h5ad(path)


WRITERS = {
    ".npz": lambda path, x: sp.save_npz(path, sp.csr_array(x)),
    ".mtx": write_mtx,
    ".mtx.gz": write_mtx,
    ".csv": write_table,
    ".csv.gz": write_table,
    ".tsv": write_table,
    ".tsv.gz": write_table,
    ".txt": write_table,
    ".txt.gz": write_table,
    ".all": write_table,
    ".parquet": lambda path, x: pd.DataFrame(x).rename(columns=str).to_parquet(path),
    ".h5ad": write_h5ad,
}
QUICK = [".npz", ".mtx", ".tsv.gz", ".parquet"]  # each writer once, but for the slowest


# --- what is read ---------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", WRITERS)
def test_counts_are_read_as_they_were_written(tmp_path, suffix):
    path = tmp_path / f"My.Data{suffix}"
    WRITERS[suffix](path, X)
    np.testing.assert_array_equal(read_counts(path).matrix.toarray(), X)
    np.testing.assert_array_equal(read_counts(str(path)).matrix.toarray(), X)


@pytest.mark.parametrize("suffix", QUICK)
@settings(max_examples=20)
@given(x=hnp.arrays(np.int64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=5), elements=st.integers(0, 2**52)))
def test_round_trip_of_any_counts(tmp_path_factory, suffix, x):
    path = tmp_path_factory.mktemp("round_trip") / f"x{suffix}"
    WRITERS[suffix](path, x)
    np.testing.assert_array_equal(read_counts(path).matrix.toarray(), x)


@pytest.mark.parametrize("form", ["csr_array", "csc_array", "coo_array", "dia_array", "bsr_array", "csr_matrix"])
def test_npz_of_any_sparse_form(tmp_path, form):
    sp.save_npz(tmp_path / "x.npz", getattr(sp, form)(sp.coo_array(X)))
    np.testing.assert_array_equal(read_counts(tmp_path / "x.npz").matrix.toarray(), X)


def test_npz_of_one_array_of_any_name_is_read(tmp_path):
    np.savez_compressed(tmp_path / "X.NPZ.npz", heights=X)
    (tmp_path / "X.NPZ.npz").rename(tmp_path / "X.NPZ")
    np.testing.assert_array_equal(read_counts(tmp_path / "X.NPZ").matrix.toarray(), X)


def test_dense_and_pattern_mtx_are_read(tmp_path):
    scipy.io.mmwrite(tmp_path / "dense.mtx", X)
    np.testing.assert_array_equal(read_counts(tmp_path / "dense.mtx").matrix.toarray(), X)
    pattern = "%%MatrixMarket matrix coordinate pattern general\n2 3 2\n1 1\n2 3\n"
    (tmp_path / "pattern.mtx").write_text(pattern)
    np.testing.assert_array_equal(read_counts(tmp_path / "pattern.mtx").matrix.toarray(), [[1, 0, 0], [0, 0, 1]])


# --- tables: which column holds the names ---------------------------------------------------------


@pytest.mark.parametrize("suffix", [".csv", ".tsv.gz"])
@pytest.mark.parametrize("label", [None, "sample"])
def test_row_names_are_read_as_written(tmp_path, suffix, label):
    path = tmp_path / f"x{suffix}"
    frame = FRAME if label is None else FRAME.rename(index={"007": "s7"})
    frame.to_csv(path, sep="\t" if "tsv" in suffix else ",", index_label=label)
    counts = read_counts(path)
    np.testing.assert_array_equal(counts.matrix.toarray(), X)
    assert list(counts.row_names) == list(frame.index)
    assert list(counts.feature_names) == list(frame.columns)


TABLES = {
    "no row names": ("a,b\n1,2\n3,4\n", [[1, 2], [3, 4]], [0, 1], ["a", "b"]),
    "text": ("id,b\ns1,2\ns2,4\n", [[2], [4]], ["s1", "s2"], ["b"]),
    "empty header": (",b\n10,2\n011,4\n", [[2], [4]], ["10", "011"], ["b"]),
    "short header": ("a,b\ns1,1,2\ns2,3,4\n", [[1, 2], [3, 4]], ["s1", "s2"], ["a", "b"]),
    "an empty name": (",b\ns1,2\n,4\n", [[2], [4]], ["s1", ""], ["b"]),
    "fractions": ("a,b\n1.5,2e3\n0,-0\n", [[1.5, 2000], [0, 0]], [0, 1], ["a", "b"]),
    "quotes": ('"a, b",c\r\n1,2\r\n', [[1, 2]], [0], ["a, b", "c"]),
}


@pytest.mark.parametrize("case", TABLES)
def test_a_first_column_of_words_names_the_rows(tmp_path, case):
    text, values, row_names, feature_names = TABLES[case]
    (tmp_path / "x.csv").write_text(text)
    counts = read_counts(tmp_path / "x.csv")
    np.testing.assert_array_equal(counts.matrix.toarray(), values)
    assert list(counts.row_names) == row_names
    assert list(counts.feature_names) == feature_names


# --- AnnData --------------------------------------------------------------------------------------


def test_h5ad_layer_counts_comes_before_x(tmp_path):
    adata = annotated(X)
    adata.layers["counts"] = adata.X.copy()
    adata.X = adata.X * 0.5
    adata.write_h5ad(tmp_path / "x.h5ad")
    counts = read_counts(tmp_path / "x.h5ad")
    np.testing.assert_array_equal(counts.matrix.toarray(), X)
    assert list(counts.row_names) == ["s0", "s1", "s2"]
    assert list(counts.feature_names) == ["f0", "f1", "f2"]


def test_h5ad_without_anndata_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "x.h5ad").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "anndata", None)
    with pytest.raises(ImportError, match=r"pip install 'bayesnmf\[files\]'"):
        read_counts(tmp_path / "x.h5ad")


# --- names in a file beside it --------------------------------------------------------------------


@pytest.fixture(params=[".npz", ".mtx", ".mtx.gz"])
def nameless(request, tmp_path):
    """Write a file without names; return its path and that of its sidecar."""
    path = tmp_path / f"my.data{request.param}"
    WRITERS[request.param](path, X)
    return path, tmp_path / "my.data.json"


def test_a_sidecar_names_rows_and_features(nameless):
    path, sidecar = nameless
    sidecar.write_text(json.dumps({"rows": ["u", "v", 3], "cols": ["é", "b", "c"], "stats": {}}), encoding="utf-8")
    counts = read_counts(path)
    assert list(counts.row_names) == ["u", "v", "3"]
    assert list(counts.feature_names) == ["é", "b", "c"]


@pytest.mark.parametrize("content", ["[1]", '{"rows": 3, "cols": null}', "{}"])
def test_a_sidecar_about_something_else_is_ignored(nameless, content):
    path, sidecar = nameless
    sidecar.write_text(content)
    assert list(read_counts(path).row_names) == [0, 1, 2]


def test_sidecars_that_do_not_fit_are_refused(nameless):
    path, sidecar = nameless
    sidecar.write_text('{"rows": ["u"]}')
    with pytest.raises(ValueError, match=r"'rows' in .*my.data.json must have 3 names: found 1; mend"):
        read_counts(path)
    sidecar.write_text('{"rows": ["u", "v", "w"], "rows": ["w", "v", "u"]}')
    with pytest.raises(
        ValueError, match=r"my.data.json must be JSON: the key 'rows' is given more than once; keep one"
    ):
        read_counts(path)
    sidecar.write_text('{"rows": ')
    with pytest.raises(ValueError, match=r"my.data.json must be JSON: .*; mend"):
        read_counts(path)


# --- tables whose first line or first column is not what it seems ------------------------------------------


def written(tmp_path, text, name="x.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "text", ["3,0,1\n0,2,4\n", "1,2,3\n4,5,6\n", "0.5,2\n1,1\n", "s1,3,0,3\ns2,1,2,2\n", "\n7,7\n1,2\n"]
)
def test_a_table_without_names_of_features_is_refused(tmp_path, text):
    with pytest.raises(ValueError, match=r"first line must name the columns, but holds counts \(.*\); write a line"):
        read_counts(written(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("0,1,2\n4,5,6\n", ["0", "1", "2"]),  # as a DataFrame without names writes them
        (",0,1\ns1,5,6\n", ["0", "1"]),
        ('"7","3"\n5,6\n', ["7", "3"]),  # quoted, so names
        ("sample,2001,2002\ns1,5,6\n", ["2001", "2002"]),
        ("nan,inf\n5,6\n", ["nan", "inf"]),
        ("\ufeffa,b\n5,6\n", ["a", "b"]),
    ],
)
def test_names_that_are_numbers_are_told_from_counts(tmp_path, text, names):
    assert read_counts(written(tmp_path, text)).feature_names.tolist() == names


def test_numbers_under_id_are_told(tmp_path):
    path = written(tmp_path, "id,a,b\n1,5,6\n2,0,3\n9,1,1\n")
    with pytest.warns(
        bayesnmf.DataWarning,
        match="the column 'id' of .*x.csv contains numbers, and is read as the names of the rows; .*layout=.wide",
    ):
        assert read_counts(path).feature_names.tolist() == ["a", "b"]
    assert read_counts(path, layout="wide").feature_names.tolist() == ["id", "a", "b"]
    with pytest.warns(bayesnmf.DataWarning, match="one entry more than its header, so 'id' is read as the counts"):
        assert read_counts(written(tmp_path, "id,a\nu,1,5\nv,2,6\n")).row_names.tolist() == ["u", "v"]
    read_counts(written(tmp_path, "id,a,b\nu,5,6\nv,0,3\nw,1,1\n"))  # names, as they should be
    read_counts(written(tmp_path, "id,a,b\n1,5,6\n1,0,3\n0,1,1\n"))  # no names: some are the same


def test_a_warning_raised_as_an_error_stays_one(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(bayesnmf.DataWarning):
            read_counts(written(tmp_path, "id,a\n1,5\n2,0\n3,1\n"))


def hostile(path, form):
    """Write a small file that declares a thousand million rows or columns."""
    length = 10**9
    if form == "dia":
        sp.save_npz(path, sp.dia_array((np.ones((1, 1)), [0]), shape=(length, length)))
    elif form in ("csr", "csc"):
        one = sp.csr_array((np.ones(1), np.zeros(1, np.int64), np.array([0, 1])), shape=(1, length))
        sp.save_npz(path, one if form == "csr" else one.T)
    else:
        text = {
            "rows": f"%%MatrixMarket matrix coordinate integer general\n{length} 2 1\n1 1 1\n",
            "entries": f"%%MatrixMarket matrix coordinate integer general\n9 9 {length}\n1 1 1\n",
            "array": f"%%MatrixMarket matrix array integer general\n{length // 100} 900\n1\n",
        }[form].encode()
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("data.npz", "csr"),
        ("data.npz", "csc"),
        ("data.npz", "dia"),
        ("data.mtx", "rows"),
        ("data.mtx.gz", "rows"),
        ("data.mtx", "entries"),
        ("data.mtx.gz", "entries"),
        ("data.mtx", "array"),
    ],
)
def test_small_files_that_ask_for_much_memory_are_refused(tmp_path, name, form):
    path = tmp_path / name
    hostile(path, form)
    assert path.stat().st_size < 2000
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=rf"{name} must be .*it must declare at most .*found .*,000"):
            read_counts(path)
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()


def test_a_large_shape_within_the_limit_is_read(tmp_path):
    """A million rows of which one has counts are nothing strange."""
    wide = sp.coo_array((np.ones(1), ([7], [1])), shape=(10**6, 2))
    sp.save_npz(tmp_path / "wide.npz", wide)
    scipy.io.mmwrite(tmp_path / "wide.mtx", wide)
    for name in ("wide.npz", "wide.mtx"):
        assert read_counts(tmp_path / name).shape == (10**6, 2)
