"""Which entries are missing, in any form: stored entries, booleans, masks of frames, NaN in files and objects."""

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import bayesnmf
from bayesnmf.data.conversion import as_counts
from bayesnmf.data.files import read_counts

QUICK = {"rank": 2, "method": "map", "seed": 0, "options": bayesnmf.MAP(max_iter=2, tol=0.0, algorithm="em")}
pytestmark = [
    pytest.mark.filterwarnings("ignore::bayesnmf.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated:DeprecationWarning"),
]
rng = np.random.default_rng(0)
COUNTED = rng.random((12, 6)) < 0.7
X = np.where(COUNTED, rng.poisson(0.8, (12, 6)), 0).astype(float)
STORED = sp.coo_array((X[COUNTED], COUNTED.nonzero()), shape=X.shape)  # some of these are counts of 0
FRAME = pd.DataFrame(X, [f"s{i}" for i in range(12)], list("abcdef"))
TWICE = sp.coo_array((np.tile(X[COUNTED] / 2, 2), tuple(np.tile(each, 2) for each in COUNTED.nonzero())), shape=X.shape)
assert (X[COUNTED] == 0).sum() > 5

FORMS = {
    "coo": STORED,
    "coo with entries twice": TWICE,
    "csr": STORED.tocsr(),
    "csc matrix": sp.csc_matrix(STORED),
    "lil": STORED.tolil(),
    "dok": STORED.todok(),
    "booleans": COUNTED,
    "sparse booleans": sp.csr_array(COUNTED),
    "frame": pd.DataFrame(COUNTED, FRAME.index, FRAME.columns).iloc[::-1, ::-1],
    "frame of booleans that may be missing": pd.DataFrame(COUNTED).astype("boolean"),
    "frame of sparse columns": pd.DataFrame.sparse.from_spmatrix(STORED.tocsr(), FRAME.index, FRAME.columns),
}


@pytest.mark.parametrize("form", FORMS)
def test_entries_are_those_that_are_stored_or_true(form):
    """Those that were counted as 0 were lost from observed=, and not from missing=."""
    given = FORMS[form]
    counts = FRAME if form == "frame" else X
    seen = bayesnmf.fit(counts, observed=given, **QUICK)
    assert seen.counts.mask.number == (~COUNTED).sum()
    np.testing.assert_array_equal(seen.counts.mask.hidden(slice(None)), ~COUNTED)
    lost = bayesnmf.fit(counts, missing=given, **QUICK)
    np.testing.assert_array_equal(lost.counts.mask.hidden(slice(None)), COUNTED)
    assert seen.project(counts, observed=given).counts.mask.number == (~COUNTED).sum()


def test_stored_false_is_told():
    """As astype(bool) makes it of a count of 0."""
    zeros = int((X[COUNTED] == 0).sum())
    with pytest.warns(bayesnmf.DataWarning, match=f"observed .* stores {zeros} times False, .* give the matrix"):
        fit = bayesnmf.fit(X, observed=STORED.tocsr().astype(bool), **QUICK)
    assert fit.counts.mask.number == (X == 0).sum()


def test_masks_of_another_shape_are_refused_with_what_is_wrong():
    fit = bayesnmf.fit(FRAME, **QUICK)
    names = [*FRAME.index, "s12"]
    for given, words in (
        (
            np.ones((13, 6), bool),
            r"must have the shape of the counts, \(12, 6\): found \(13, 6\); give it",
        ),
        (COUNTED.T, r"found \(6, 12\); transpose it"),
        (pd.DataFrame(np.ones((13, 6), bool), names, FRAME.columns), "1 row not in the counts: 's12'"),
        (pd.DataFrame(COUNTED, FRAME.index, FRAME.columns).iloc[1:], "1 row missing: 's0'"),
        (pd.DataFrame(COUNTED, FRAME.index, FRAME.columns).iloc[:, 1:], "1 feature missing: 'a'"),
        (pd.DataFrame(COUNTED, FRAME.index, FRAME.columns).T, "transpose it"),
    ):
        for call in (fit.transform, lambda counts, observed: bayesnmf.fit(counts, observed=observed, **QUICK)):
            with pytest.raises(ValueError, match=words) as caught:
                call(FRAME, observed=given)
            assert ("transpose" in str(caught.value)) == ("transpose" in words)


# --- NaN ------------------------------------------------------------------------------------------

WITH_NAN = FRAME.where(COUNTED)


def written(path):
    """Write counts with NaN in the format of the suffix."""
    if path.suffix == ".parquet":
        WITH_NAN.to_parquet(path)
    elif path.suffix == ".h5ad":
        anndata.AnnData(WITH_NAN).write_h5ad(path)
    elif path.suffix == ".npz":
        np.savez(path, WITH_NAN.to_numpy())
    elif path.suffix == ".mtx":
        lines = [f"{i + 1} {j + 1} {WITH_NAN.iloc[i, j]}" for i in range(12) for j in range(6)]
        path.write_text(f"%%MatrixMarket matrix coordinate real general\n12 6 {len(lines)}\n" + "\n".join(lines))
    else:
        WITH_NAN.to_csv(path, sep="\t" if path.suffix == ".tsv" else ",", na_rep="NA" if path.suffix == ".csv" else "")
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".h5ad", ".npz", ".mtx"])
def test_nan_in_files_are_missing_entries(tmp_path, suffix):
    path = written(tmp_path / f"x{suffix}")
    with pytest.raises(ValueError, match="missing='nan'"):
        read_counts(path)
    for counts in (read_counts(path, missing="nan"), bayesnmf.fit(path, missing="nan", **QUICK).counts):
        np.testing.assert_array_equal(counts.mask.hidden(slice(None)), ~COUNTED)
        np.testing.assert_array_equal(counts.dense, X)
    expected = bayesnmf.fit(WITH_NAN, missing="nan", **QUICK)
    np.testing.assert_array_equal(bayesnmf.fit(path, missing="nan", **QUICK).components, expected.components)


def test_nan_in_a_file_that_is_turned_are_turned(tmp_path):
    WITH_NAN.T.to_csv(tmp_path / "x.csv", na_rep="NA")
    counts = read_counts(tmp_path / "x.csv", transpose=True, missing="nan")
    np.testing.assert_array_equal(counts.mask.hidden(slice(None)), ~COUNTED)
    assert counts.row_names.tolist() == [*FRAME.index]


def test_nan_in_annotated_data_are_missing_entries():
    adata = anndata.AnnData(WITH_NAN)
    adata.layers["counts"] = adata.X.copy()
    with pytest.raises(ValueError, match="missing='nan'"):
        as_counts(adata)
    for fit in (
        bayesnmf.fit(adata, missing="nan", **QUICK),
        bayesnmf.tl.fit(adata, missing="nan", **QUICK),
        bayesnmf.BayesNMF(2, method="map", options=QUICK["options"], random_state=0, missing="nan").fit(adata).fit_,
    ):
        np.testing.assert_array_equal(fit.counts.mask.hidden(slice(None)), ~COUNTED)
    assert adata.obsm["X_bayesnmf"].shape == (12, 2)


# --- what is lazy, or has another form of what is missing (F20) -----------------------------------


def lazy():
    """Return counts that are not there yet, or as other packages have them."""
    dask = pytest.importorskip("dask.array")
    polars = pytest.importorskip("polars")
    pyarrow = pytest.importorskip("pyarrow")
    array = dask.from_array(X, chunks=(5, 6))
    return {
        "Dask, chunks of unknown size": array[array.sum(axis=1) >= 0],
        "Dask, sparse": array.map_blocks(sp.csr_matrix),
        "polars, lazy": polars.from_pandas(FRAME).lazy(),
        "pyarrow": pyarrow.Table.from_pandas(FRAME),
        "pandas, whole numbers that may be missing": FRAME.astype("Int64"),
        "pandas, sparse": FRAME.astype(pd.SparseDtype(float, 0)),
    }


@pytest.mark.parametrize("form", lazy())
def test_counts_that_are_lazy_are_converted(form):
    given = lazy()[form]
    np.testing.assert_array_equal(as_counts(given).dense, X)
    expected = bayesnmf.fit(X, **QUICK).components
    np.testing.assert_allclose(bayesnmf.fit(given, **QUICK).components, expected, rtol=1e-12)


def test_a_frame_of_dask_is_converted():
    frames = pytest.importorskip("dask.dataframe")
    counts = as_counts(frames.from_pandas(FRAME, npartitions=3, sort=False))
    np.testing.assert_array_equal(counts.dense, X)
    assert counts.row_names.tolist() == [*FRAME.index]


def test_nulls_of_other_packages_are_missing_entries():
    polars, pyarrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    columns = {"a": [1, None, 3], "b": [0, 2, 2]}
    for table in (
        polars.DataFrame(columns),
        polars.DataFrame(columns).lazy(),
        pyarrow.table(columns),
        pd.DataFrame(columns).astype("Int64"),
        pd.DataFrame(columns).astype(pd.SparseDtype(float, np.nan)),
    ):
        fit = bayesnmf.fit(table, missing="nan", **QUICK | {"rank": 1})
        assert np.argwhere(fit.counts.mask.hidden(slice(None))).tolist() == [[1, 0]]
