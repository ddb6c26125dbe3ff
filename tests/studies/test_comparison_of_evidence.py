"""Comparisons with sequential Monte Carlo: the evidence beside the bounds, draws without chains."""

import numpy as np
import pytest
from plain import even_priors

import bayesnmf
from bayesnmf import SMC, VI, Settings
from bayesnmf.studies.comparison import comparing, measures

DRAWN = bayesnmf.simulate("gamma_poisson", (16, 8), 2, priors=even_priors(rank=2, total=40), seed=0)


def compared(options):
    settings = Settings(priors=DRAWN.priors, options={"vi": VI(start="svd"), "smc": options})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measures, "MOST_SCORE_DRAWS", 200)
        return bayesnmf.compare(DRAWN.counts, rank=2, methods=["vi", "smc"], settings=settings)


@pytest.fixture(scope="module")
def comparison():
    return compared(SMC(efficiency=0.9, particles=16, runs=8))


def cells(comparison, heading):
    """Return the cells of a row of the text."""
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in repr(comparison).splitlines() if "│" in line]
    return next(row[1:] for row in rows if row[0].startswith(heading))


def test_the_evidence_is_above_the_bounds_in_the_table(comparison):
    fit, table = comparison.fits["smc"], comparison.table
    assert fit.status.converged
    assert table.loc["smc", "log_evidence"] == fit.diagnostics["log_p"]
    assert table.loc["smc", "log_evidence_se"] == fit.diagnostics["log_p_se"]
    assert table.loc["smc", "log_evidence"] > table.loc["vi", "elbo_marginal"] > table.loc["vi", "elbo_augmented"]
    assert np.isnan(table.loc["vi", "log_evidence"])
    assert "log_evidence_at_least" not in table
    assert cells(comparison, "log p(X)") == ["–", f"{fit.diagnostics['log_p']:,.1f}"]
    assert comparison.cautions == []


def test_draws_are_the_reference_without_diagnostics_of_chains(comparison):
    table, text = comparison.table, comparison.details()
    assert "min_ess" not in table
    assert "R-hat" not in text
    assert "reference of the last rows: smc" in " ".join(text.split())
    assert "smc: draws of independent runs from the prior" in text
    assert "chains started" not in text
    assert 0.5 < table.loc["vi", "held"] < 1
    assert table["cosine_other_start"].min() > 0.98


def test_it_is_saved_without_a_figure_of_chains(comparison, tmp_path, monkeypatch):
    assert {*comparing.figures_of(comparison, None)} == {"components", "objectives", "agreement", "loadings_intervals"}
    monkeypatch.setattr(comparing, "figures", lambda *_: [])
    assert {"compare.nc", "components_smc.csv"} <= {path.name for path in comparison.save(tmp_path)}


def test_what_disagreeing_runs_do_not_know_is_unknown():
    comparison = compared(SMC(efficiency=0.8, particles=4, runs=1))
    fit = comparison.fits["smc"]
    assert not fit.status.converged
    assert cells(comparison, "log p(X)") == ["–", "unknown"]
    assert cells(comparison, "at least") == ["–", f"{fit.diagnostics['log_p'] - np.log(20):,.1f}"]
    assert f"{fit.diagnostics['log_p']:,.1f}" not in repr(comparison)
    assert any(caution.startswith("smc did not converge: a single run") for caution in comparison.cautions)
