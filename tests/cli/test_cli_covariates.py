"""Covariates on the command line: fit with a formula, a table of effects, and new rows."""

import json

import numpy as np
import pandas as pd
import pytest

import bayesnmf
from bayesnmf.cli.entry import main

N = 30
RNG = np.random.default_rng(0)
NAMES = [f"s{i}" for i in range(N)]
FRAME = pd.DataFrame({"age": RNG.uniform(20, 80, N).round(1), "arm": RNG.choice(["a", "b"], N)}, NAMES)
COUNTS = pd.DataFrame(RNG.poisson(5, (N, 4)), NAMES, list("wxyz"))
FEW = ("--rank", "2", "--set", "max_iter=3", "--quiet", "--seed", "0")


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    COUNTS.to_csv("counts.csv")
    FRAME.iloc[::-1].to_csv("samples.csv")
    FRAME.to_csv("samples.tsv", sep="\t")


@pytest.mark.filterwarnings("ignore::bayesnmf.inference.status.ConvergenceWarning")
def test_a_fit_with_a_formula_and_new_rows(files, capsys):
    given = ["fit", "counts.csv", "--covariates", "samples.csv", "--effects", "effects.csv", "--json", "--formula"]
    assert main([*given, "~ age + arm", *FEW]) == 0
    assert json.loads(capsys.readouterr().out)["model"] == "gamma_poisson"
    effects = pd.read_csv("effects.csv")
    assert effects.columns.tolist() == ["component", "term", "effect", "low", "high", "sd", "lfsr"]
    assert effects.term.tolist() == ["Intercept", "age", "arm[T.b]"] * 2
    expected = bayesnmf.fit(
        COUNTS, rank=2, seed=0, formula="~ age + arm", covariates=FRAME, options=bayesnmf.VI(max_iter=3)
    )
    fit = bayesnmf.load("fit.nc")
    np.testing.assert_array_equal(fit.loadings, expected.loadings)
    given = ["transform", "fit.nc", "counts.csv", "--covariates", "samples.tsv"]
    assert main([*given, "--out", "new.csv", "--quiet"]) == 0
    new = pd.read_csv("new.csv", index_col=0).iloc[:, :2]
    assert new.to_numpy() == pytest.approx(fit.transform(COUNTS, covariates=FRAME), rel=1e-6)


def test_what_is_refused(files, capsys):
    assert main(["fit", "counts.csv", *FEW, "--effects", "effects.csv"]) == 2
    assert "--effects needs covariates" in capsys.readouterr().err
    assert main(["fit", "counts.csv", *FEW, "--formula", "~ age"]) == 2
    told = capsys.readouterr().err
    assert "formula needs covariates" in told
    assert "--covariates FILE" in told
    assert main(["fit", "counts.csv", *FEW, "--covariates", "samples.csv", "--formula", "~ sex"]) == 2
    assert "'sex' missing" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore::bayesnmf.inference.status.ConvergenceWarning")
def test_modes_and_select_take_batches(files, capsys):
    FRAME[["arm"]].to_csv("arms.csv")
    assert main(["modes", "counts.csv", "--starts", "2", "--batch", "arms.csv", "--out", "best.nc", *FEW]) == 0
    assert bayesnmf.load("best.nc").batch.names.tolist() == ["a", "b"]
    given = ["select", "counts.csv", "--ranks", "2", "--quiet", "--set", "max_iter=3", "--json"]
    capsys.readouterr()
    scores = []
    for more in ([], ["--batch", "arms.csv"]):
        assert main([*given, *more]) == 0
        scores.append(json.loads(capsys.readouterr().out)["table"][0]["mean"])
    assert scores[0] != scores[1]


@pytest.mark.filterwarnings("ignore::bayesnmf.inference.status.ConvergenceWarning")
def test_modes_take_covariates(files, capsys):
    given = ["modes", "counts.csv", "--starts", "2", "--covariates", "samples.csv", "--formula", "~ arm"]
    assert main([*given, "--out", "best.nc", "--json", *FEW]) == 0
    assert bayesnmf.load("best.nc").effects().index.get_level_values("term").unique().tolist() == [
        "Intercept",
        "arm[T.b]",
    ]
