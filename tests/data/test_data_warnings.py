"""A DataWarning says where names or numbers prove that something else than counts of samples was meant."""

import gzip
import json
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.io import mmwrite
from scipy.sparse import coo_array, csr_array, save_npz

import bayesnmf
from bayesnmf import cli
from bayesnmf.data.conversion import as_counts
from bayesnmf.data.files import read_counts
from bayesnmf.data.mutations import sbs96_types

TYPES = sorted(sbs96_types())
X = np.random.default_rng(0).poisson(3.0, (8, 5))


# --- features in rows -------------------------------------------------------------------------------------


def mutations(samples=4):
    counts = np.random.default_rng(1).poisson(2.0, (96, samples))
    return pd.DataFrame(counts, TYPES, [f"s{i}" for i in range(samples)])


def test_mutation_types_in_rows_are_told_and_not_transposed():
    with pytest.warns(
        bayesnmf.DataWarning, match=r"96 mutation types .* in their rows.*counts\.T.*--transpose"
    ) as caught:
        fit = bayesnmf.fit(mutations(), rank=2, options=bayesnmf.VI(max_iter=2, tol=0.0))
    assert fit.counts.shape == (96, 4)
    assert [warning.filename for warning in caught] == [__file__]  # it points at the user's line
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        as_counts(mutations().T)
        as_counts(pd.DataFrame(np.eye(96), TYPES, TYPES))  # the same in both
    with pytest.warns(bayesnmf.DataWarning, match=r"have 95 of the 96 mutation types .* in their rows.*counts\.T"):
        as_counts(mutations().iloc[:95])


@pytest.mark.parametrize("name", ["gene", "#OTU ID", "MutationType", "Gene Symbol"])
def test_frames_whose_index_is_named_after_features_are_told(name):
    """As of a table of genes and samples, read by pandas with index_col=0."""
    frame = pd.DataFrame({"s1": [1, 2], "s2": [3, 4]}, pd.Index(["u", "v"], name=name))
    with pytest.warns(bayesnmf.DataWarning, match=f"have features in their rows, as the name '{name}' of their index"):
        as_counts(frame)
    as_counts(frame.T)  # warnings are errors here
    as_counts(frame.rename_axis("sample"))


@pytest.mark.parametrize("suffix", [".csv", ".tsv.gz", ".npz", ".mtx"])
def test_files_with_mutation_types_in_rows_are_turned(tmp_path, suffix):
    frame, path = mutations(), tmp_path / f"x{suffix}"
    if suffix in (".npz", ".mtx"):
        (tmp_path / "x.json").write_text(json.dumps({"rows": TYPES, "cols": list(frame.columns)}))
        (save_npz if suffix == ".npz" else mmwrite)(path, csr_array(frame.to_numpy()))
    else:
        frame.to_csv(path, sep="\t" if "tsv" in suffix else ",")
    with pytest.warns(bayesnmf.DataWarning) as caught:
        told = read_counts(path)
    assert [str(warning.message) for warning in caught] == [
        f"counts in {path} have the 96 mutation types in their rows; they were turned, so that samples are in rows; "
        "transpose=True (--transpose on the command line) says so without this warning"
    ]
    assert caught[0].filename == __file__
    for counts in (told, read_counts(path, transpose=True)):
        assert counts.feature_names.tolist() == TYPES
        assert counts.row_names.tolist() == list(frame.columns)
        np.testing.assert_array_equal(counts.dense, frame.to_numpy().T)
        assert counts.matrix.has_canonical_format


@pytest.mark.parametrize("suffix", [".csv", ".npz"])
def test_files_with_mutation_types_in_columns_are_not_turned(tmp_path, suffix):
    frame, path = mutations().T, tmp_path / f"x{suffix}"
    if suffix == ".npz":
        (tmp_path / "x.json").write_text(json.dumps({"rows": list(frame.index), "cols": TYPES}))
        save_npz(path, csr_array(frame.to_numpy()))
    else:
        frame.to_csv(path)
    assert read_counts(path).feature_names.tolist() == TYPES
    with pytest.raises(
        ValueError, match=rf"x{suffix} must not be transposed: it has the 96 mutation types in its columns.*; leave"
    ):
        read_counts(path, transpose=True)


def folder(path, prefix="", ending="", features="features.tsv", symbols=("a", "b", "c", "a", "e")):
    """Write a 10x folder of the counts X: features in rows."""
    compress = gzip.compress if ending else bytes
    table = "".join(f"ENSG{j}\t{symbol}\tGene Expression\n" for j, symbol in enumerate(symbols))
    (path / f"{prefix}{features}{ending}").write_bytes(compress(table.encode()))
    barcodes = "".join(f"AC{i}-1\n" for i in range(len(X)))
    (path / f"{prefix}barcodes.tsv{ending}").write_bytes(compress(barcodes.encode()))
    mmwrite(path / f"{prefix}matrix.mtx", coo_array(X.T))
    return path / f"{prefix}matrix.mtx"


@pytest.mark.parametrize(
    "written", [{}, {"ending": ".gz"}, {"prefix": "GSM1_"}, {"features": "genes.tsv", "prefix": "hg19."}]
)
def test_a_10x_matrix_of_features_in_rows_is_turned(tmp_path, written):
    path = folder(tmp_path, **written)
    with pytest.warns(
        bayesnmf.DataWarning,
        match="features in their rows, as the lengths of .* show; they were turned.*transpose=True",
    ):
        told = read_counts(path)
    for counts in (told, read_counts(path, transpose=True)):
        np.testing.assert_array_equal(counts.dense, X)
        assert counts.row_names.tolist() == [f"AC{i}-1" for i in range(8)]
        assert counts.feature_names.tolist() == ["a (ENSG0)", "b", "c", "a (ENSG3)", "e"]


def test_10x_names_of_a_matrix_that_has_samples_in_rows(tmp_path):
    path = folder(tmp_path)
    mmwrite(path, coo_array(X))
    for place in (path, tmp_path):  # the matrix, and its folder
        counts = read_counts(place)
        np.testing.assert_array_equal(counts.dense, X)
        assert counts.row_names[0] == "AC0-1"
        with pytest.raises(ValueError, match="must not be transposed"):
            read_counts(place, transpose=True)


def test_10x_names_that_do_not_fit(tmp_path):
    path = folder(tmp_path, symbols=("a", "b"))
    with pytest.raises(
        ValueError, match=r"a row for each of 2 features \(features.tsv\) .* found shape \(5, 8\); remove a header line"
    ):
        read_counts(path)
    (tmp_path / "features.tsv").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"features\.tsv must be tab-separated text"):
        read_counts(path)
    (tmp_path / "features.tsv").unlink()
    assert read_counts(path).row_names.tolist() == [0, 1, 2, 3, 4]


def test_command_line_transposes(tmp_path, capsys, monkeypatch):
    seen = []

    def stop(counts, *_, **__):
        seen.append(counts.shape)
        raise KeyboardInterrupt

    monkeypatch.setattr("bayesnmf.studies.comparison.comparing.compare", stop)
    monkeypatch.setattr("bayesnmf.theorems.statements.equivalences", stop)
    path = folder(tmp_path)
    for command in (["compare", "--out", str(tmp_path / "out")], ["equivalences"]):
        cli.main([*command, str(path)])
        error = capsys.readouterr().err
        assert error.startswith(f"bayesnmf: warning: counts in {path} have features in their rows")
        cli.main([*command, str(path), "--transpose"])
        assert "warning" not in capsys.readouterr().err
        assert cli.main([*command, "--transpose"]) == 2
        assert "--transpose needs a FILE" in capsys.readouterr().err
    assert seen == [(8, 5)] * 4


# --- numbers that were normalised -------------------------------------------------------------------------


def normalised(dtype=np.float64, total=1e4):
    return (X / X.sum(axis=1, keepdims=True) * total).astype(dtype)


LOGS = {"exp(x) - 1": np.log1p, "2**x - 1": lambda x: np.log2(1 + x), "10**x - 1": lambda x: np.log10(1 + x)}


@pytest.mark.parametrize("inverse", LOGS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_log_normalised_counts_are_told_of(inverse, dtype):
    x = csr_array(LOGS[inverse](normalised(dtype)))
    with pytest.warns(bayesnmf.DataWarning) as caught:
        bayesnmf.fit(x, rank=2, method="map", options=bayesnmf.MAP(max_iter=1, tol=0.0))
    message = f"counts look log-normalised: they are not whole numbers, and {inverse} adds up to 10,000 in every row;"
    assert [str(warning.message)[: len(message)] for warning in caught] == [message]
    assert 'adata.layers["counts"] or adata.raw' in str(caught[0].message)


def test_small_shares_are_told_as_shares():
    """Of numbers that small exp(x) - 1 is x, and adds up to nearly the same as well."""
    shares = np.random.default_rng(3).dirichlet(np.full(2000, 0.5), 5)
    with pytest.warns(bayesnmf.DataWarning, match="counts look normalised"):
        as_counts(shares)


def test_normalised_counts_are_told_of():
    with pytest.warns(
        bayesnmf.DataWarning, match="counts look normalised: .*, and every row adds up to 1; pass the raw"
    ):
        as_counts(normalised(total=1.0))
    with pytest.warns(bayesnmf.DataWarning, match=r"counts in .*x.csv look normalised|counts look normalised"):
        as_counts(pd.DataFrame(normalised().round(2)))


def test_a_single_row_that_differs_is_no_normalised_matrix():
    shares = np.random.default_rng(2).dirichlet(np.ones(5), 8) * 1e4
    for x in (shares, np.log1p(shares)):
        x[-1] *= 1.1
        as_counts(x)  # a warning is an error here
    many = np.random.default_rng(2).dirichlet(np.ones(5), 1600)
    with pytest.warns(bayesnmf.DataWarning, match="look normalised"):
        as_counts(many)
    many[-1] *= 1.1  # beyond the rows that are looked at first
    as_counts(many)


@pytest.mark.parametrize(
    "x",
    [
        X,  # whole numbers
        np.full((6, 4), 2),  # of one sum, too
        X + 0.5,
        [[0.5, 0.5]],  # a single row proves nothing
        [[0.5, 0.5], [0, 1]],
        np.vstack([normalised()[:2], np.zeros((9, 5))]),
        np.random.default_rng(4).gamma(0.7, 2.0, (60, 40)),
        np.random.default_rng(4).poisson(2.0, (60, 40)) * np.where(np.arange(40) < 4, 0.5, 1.0),  # reads in two places
        np.full((4, 3), 0.5),  # the same numbers in every row
        [[0.5, 1.5, 3], [1.5, 3, 0.5], [3, 0.5, 1.5]],
        np.full((4, 3), 1e200) * np.arange(1.5, 5.5)[:, None],
        np.full((4, 3), 800.5) + np.arange(12).reshape(4, 3),  # exp overflows
    ],
)
def test_other_matrices_pass_without_a_word(x):
    """Warnings are errors here."""
    assert as_counts(x).shape == np.shape(x)


COUNTED = np.random.default_rng(5).poisson(np.random.default_rng(6).gamma(0.6, 3.0, 40), (60, 40))
DEPTH = COUNTED.sum(axis=1, keepdims=True)
RESCALED = {
    "a subset of genes": (COUNTED / DEPTH * 1e4)[:, :30],
    "log of a subset of genes": np.log1p(COUNTED / DEPTH * 1e4)[:, :30],
    "binary log of a subset of genes": np.log2(1 + COUNTED / DEPTH * 1e4)[:, :30],
    "decimal log": np.log10(1 + COUNTED),
    "log": np.log1p(COUNTED),
    "root": np.sqrt(COUNTED),
    "weights of columns": COUNTED * np.random.default_rng(7).uniform(0.5, 3.0, 40),
    "rounded": (COUNTED / DEPTH * 1e4).round(3)[:, :30],
    "a common factor": COUNTED * 0.37,
    "a mean of three": COUNTED / 3,
    "a mean of two": COUNTED / 2,
}


@pytest.mark.parametrize("case", RESCALED)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rescaled_and_transformed_counts_are_told(case, dtype):
    """Those of a subset of genes have no common sum any more."""
    with pytest.warns(bayesnmf.DataWarning, match=r"counts look (rescaled|transformed): .*; pass the raw counts"):
        as_counts(csr_array(RESCALED[case].astype(dtype)))


def test_rounded_and_unit_rows_are_told():
    wide = np.random.default_rng(5).gamma(0.5, 1.0, (30, 300))
    millions = wide / wide.sum(axis=1, keepdims=True) * 1e6
    with pytest.warns(bayesnmf.DataWarning, match="normalised and rounded: every row adds up to about 1e.06; pass"):
        as_counts(millions.round())
    with pytest.warns(
        bayesnmf.DataWarning,
        match="every row has the norm 1, .*; pass the raw counts.*; of texts, pass those of CountV",
    ):
        as_counts(wide / np.linalg.norm(wide, axis=1, keepdims=True))
    as_counts(np.random.default_rng(5).multinomial(10_000, np.full(300, 1 / 300), 30))  # rarefied; warnings are errors


def test_counts_that_were_only_transformed_are_whole_again():
    for inverse, function in (("exp(x) - 1", np.log1p), ("10**x - 1", lambda x: np.log10(1 + x)), ("x**2", np.sqrt)):
        with pytest.warns(bayesnmf.DataWarning) as caught:
            as_counts(function(COUNTED))
        assert f"but {inverse} gives whole numbers, which may be the counts; pass" in str(caught[0].message)


def test_negative_numbers_are_not_to_be_clipped():
    with pytest.raises(ValueError, match="as in scaled or corrected data; pass the raw counts, such as adata"):
        as_counts([[1.0, -0.5]])
    with pytest.raises(
        ValueError, match=r"Negative values in data passed to X: found -0\.5, as in scaled or .*; pass the"
    ):
        bayesnmf.BayesNMF().fit([[1.0, -0.5]])


# --- margins ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["total", "Total", "SUM", "All"])
@pytest.mark.parametrize("size", [(2, 2), (3, 2), (2, 5), (9, 9)])
def test_margins_are_told_by_their_names_however_small_the_table(name, size):
    """Without such a name, four lines are needed, since one of fewer may be the sum of the others by chance."""
    frame = pd.DataFrame(np.random.default_rng(0).poisson(5.0, size))
    frame.index, frame.columns = ([f"{side}{i}" for i in range(n)] for side, n in zip("sf", size, strict=True))
    with pytest.warns(bayesnmf.DataWarning, match=f"a column that is the sum of all others, '{name}'"):
        as_counts(frame.assign(**{name: frame.sum(axis=1)}))
    with pytest.warns(bayesnmf.DataWarning, match=f"a row that is the sum of all others, '{name}'"):
        as_counts(frame.T.assign(**{name: frame.T.sum(axis=1)}).T)
    as_counts(frame.assign(**{name: frame.iloc[:, 0]}))  # a word that is not the sum; warnings are errors here


def test_both_margins_are_told():
    frame = pd.DataFrame([[3, 1], [2, 6]], ["s1", "s2"], ["a", "b"])
    frame["Total"] = frame.sum(axis=1)
    frame.loc["Total"] = frame.sum()
    with pytest.warns(bayesnmf.DataWarning) as caught:
        as_counts(frame)
    assert [str(each.message)[:40] for each in caught] == [
        "counts have a row that is the sum of all",
        "counts have a column that is the sum of ",
    ]


def test_a_column_of_few_counts_is_the_sum_of_the_others_by_chance(recwarn):
    bayesnmf.as_counts(np.array([[1, 1, 0, 0], [0, 1, 1, 0], [1, 1, 0, 0], [0, 1, 0, 1]]))
    assert not recwarn
    with pytest.warns(bayesnmf.DataWarning, match="a column that is the sum of all others"):
        bayesnmf.as_counts(np.array([[40, 55, 10, 5], [20, 52, 30, 2], [7, 12, 2, 3], [25, 31, 5, 1]]))
