"""A criterion that somebody adds outside the package: `select`, print, plots, report and command line know it."""

import json
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from scipy.stats import poisson
from smallfits import quietly

import bayesnmf
from bayesnmf import cli, plots
from bayesnmf.studies.selection.criterion import CRITERIA, Candidate, Criterion, SelectionRecord

pytestmark = quietly


@pytest.fixture
def bic():
    """The class, which is known as long as the test runs."""

    @dataclass(frozen=True)
    class Bic(Criterion):
        """Bayesian information criterion of fits by map, halved, with a penalty a parameter."""

        penalty: float = 1.0

        word: ClassVar[str] = "bic"
        method: ClassVar[str] = "map"
        column: ClassVar[str] = "bic"
        label: ClassVar[str] = "minus BIC / 2 (nats)"
        title: ClassVar[str] = "minus BIC / 2"
        prefers: ClassVar[str] = "The BIC is lowest"
        notes: ClassVar[list[str]] = ["counts are taken as independent"]

        def compare(self, plan):
            def score(counts, candidate, seed):
                options = plan.options_for(candidate, counts)
                fit = bayesnmf.fit(counts, *candidate, plan.method, seed=seed, options=options)
                likelihood = poisson.logpmf(counts.dense, fit.loadings @ fit.components).sum()
                return likelihood - self.penalty * candidate.rank * sum(counts.shape) / 2 * np.log(counts.total)

            (found,), scored, interrupted = plan.score_all([plan.counts], 1, plan.candidates, score)
            index = pd.MultiIndex.from_tuples(scored, names=["model", "rank"])
            table = pd.DataFrame({"bic": found}, index=index)
            best = Candidate(*table["bic"].idxmax())
            return SelectionRecord(table, table.T, best, plan.method, interrupted=interrupted, criterion=self.word)

    yield Bic
    del CRITERIA["bic"]


@pytest.fixture
def counts():
    return bayesnmf.simulate(size=(40, 12), rank=2, seed=0).counts


@pytest.mark.usefixtures("without_pictures")
def test_a_new_criterion_is_known_everywhere(bic, counts, tmp_path):
    found = bayesnmf.select(counts, ranks=(1, 2, 3), criterion="bic")
    assert found.best == Candidate("gamma_poisson", 2)
    assert found.checks is not None
    assert "minus BIC / 2" in repr(found)
    assert "counts are taken as independent" in repr(found)
    assert found.one_standard_error == found.best
    assert plots.selection(found).get_ylabel() == "minus BIC / 2 (nats)"
    assert "minus BIC / 2" in plots.ranks([found])[0].get_title()
    fit = bayesnmf.fit(counts, *found.best)
    bayesnmf.report(fit, tmp_path / "report.html", selection=found)
    assert "The BIC is lowest with 2 components" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_its_settings_are_its_fields(bic, counts):
    less = bayesnmf.select(counts, ranks=(1, 2, 5), criterion=bic(penalty=1e-6), check=False)
    assert less.best.rank == 5  # without a penalty the largest rank has the largest likelihood
    with pytest.raises(ValueError, match="splits needs criterion='masked' or criterion='heldout': found criterion='bi"):
        bayesnmf.select(counts, criterion="bic", splits=2)
    with pytest.raises(ValueError, match="splits belongs to the criterion where this is an object: leave splits out"):
        bayesnmf.select(counts, criterion=bic(), splits=2)


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({"noise": ("poisson", "nb1")}, "criterion='bic' needs one noise"),
        ({"batch": ["a", "b"] * 20}, "batch needs criterion='masked': found 'bic'"),
        ({"formula": "age", "covariates": {"age": range(40)}}, "covariates need criterion='masked'"),
    ],
)
def test_what_it_does_not_say_that_it_takes_is_refused(bic, counts, given, refused):
    with pytest.raises(ValueError, match=refused):
        bayesnmf.select(counts, criterion="bic", **given)


def test_the_command_line_knows_it(bic, counts, tmp_path, capsys):
    file = tmp_path / "counts.csv"
    pd.DataFrame(counts.dense.astype(int)).to_csv(file)
    words = ["select", str(file), "--ranks", "1-2", "--criterion", "bic", "--quiet", "--json"]
    assert cli.main(words) == 0
    assert json.loads(capsys.readouterr().out)["criterion"] == "bic"
    assert cli.main([*words[:4], "--criterion", "aic"]) != 0
    assert "'bic'" in capsys.readouterr().err


def test_an_object_that_is_no_criterion_is_refused(counts):
    with pytest.raises(TypeError, match="criterion must be a word or a Criterion: found 3"):
        bayesnmf.select(counts, criterion=3)
