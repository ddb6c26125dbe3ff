"""Several matrices on the command line: NAME=FILE for each."""

import numpy as np
import pandas as pd
import pytest

import bayesnmf
from bayesnmf import MAP, cli

X = pd.DataFrame(
    np.random.default_rng(0).poisson(4, (10, 9)), [f"s{i}" for i in range(10)], [f"g{j}" for j in range(9)]
)
PARTS = {"sbs": X.iloc[:, :5], "id": X.iloc[:, 5:]}
QUICK = ("--rank", "2", "--method", "map", "--start", "random", "--set", "tol=1e-2", "--quiet", "--seed", "0")

pytestmark = pytest.mark.filterwarnings("ignore::bayesnmf.inference.status.ConvergenceWarning")


@pytest.fixture
def here(tmp_path, monkeypatch):
    for name, part in PARTS.items():
        part.to_csv(tmp_path / f"{name}.csv")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_files_are_fitted_and_new_ones_transformed(here, capsys):
    words = ("sbs=sbs.csv", "id=id.csv", *QUICK, "--noise", "sbs=nb1", "--loadings", "loadings.csv")
    assert cli.main(["fit", *words]) == 0
    options = MAP(start="random", tol=1e-2)
    wanted = bayesnmf.fit(PARTS, rank=2, method="map", seed=0, options=options, noise={"sbs": "nb1"})
    found = bayesnmf.load("fit.nc")
    np.testing.assert_array_equal(found.loadings, wanted.loadings)
    assert found.counts.matrices.names == ("sbs", "id")
    assert cli.main(["transform", "fit.nc", "id=id.csv", "--out", "new.csv"]) == 0
    assert "counts lack 'sbs' of the matrices of the fit" in capsys.readouterr().err
    new = pd.read_csv("new.csv", index_col=0).to_numpy()
    with pytest.warns(bayesnmf.DataWarning):
        np.testing.assert_allclose(new, wanted.transform({"id": PARTS["id"]}), rtol=1e-6)


def test_weights(here):
    assert cli.main(["fit", "sbs=sbs.csv", "id=id.csv", *QUICK, "--weights", "id=2.5"]) == 0
    assert bayesnmf.load("fit.nc").counts.matrices.weights.tolist() == [1, 2.5]


def test_select_takes_weights_or_a_noise_of_each(here):
    words = ("select", "sbs=sbs.csv", "id=id.csv", "--ranks", "1,2", "--set", "max_iter=20", "--quiet", "--seed", "0")
    given = {"weights": {"id": 2.0}}, {"noise": {"id": "nb1"}}
    for more, settings in zip((("--weights", "id=2"), ("--noise", "id=nb1")), given, strict=True):
        assert cli.main([*words, *more, "--table", "ranks.csv"]) == 0
        wanted = bayesnmf.select(PARTS, ranks=(1, 2), options=bayesnmf.VI(max_iter=20), check=False, **settings)
        np.testing.assert_allclose(pd.read_csv("ranks.csv")["mean"], wanted.table["mean"], rtol=1e-7)  # of eight digits


REFUSED = {
    "a file without a name": (["sbs=sbs.csv", "id.csv"], "FILE must be one, or NAME=FILE"),
    "one name twice": (["a=sbs.csv", "a=id.csv"], "with names that differ"),
    "weights without names": (["sbs=sbs.csv", "id=id.csv", "--weights", "2"], "--weights must be NAME=NUMBER"),
    "a word of no noise": (["sbs=sbs.csv", "id=id.csv", "--noise", "sbs=nb3"], "--noise must be one of"),
    "a dispersion of several": (
        ["sbs=sbs.csv", "id=id.csv", "--noise", "sbs=nb1", "--dispersion", "1"],
        "--dispersion must be that of one --noise",
    ),
    "an AnnData file": (["sbs=sbs.csv", "id=id.csv", "--anndata", "a.h5ad"], "--anndata needs one FILE"),
    "entries in a table": (
        ["sbs=sbs.csv", "id=id.csv", "--missing", "sbs.csv"],
        "--missing with a table needs one FILE",
    ),
    "output over input": (["sbs=sbs.csv", "id=id.csv", "--loadings", "id.csv"], "would replace id.csv, which is read"),
}


@pytest.mark.parametrize(("words", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(here, capsys, words, message):
    assert cli.main(["fit", *words, *QUICK]) == 2
    assert message in capsys.readouterr().err
