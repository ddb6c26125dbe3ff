"""Assessments of fits by sequential Monte Carlo: all draws are used, and nothing depends on their order."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from plain import even_priors

import bayesnmf
from bayesnmf import SMC, Gibbs
from bayesnmf.assessment.leave_one_out import relative_efficiency
from bayesnmf.results.estimates import Draws
from bayesnmf.studies.comparison.measures import cautions_of_evidence, evidence_of

DRAWN = bayesnmf.simulate("gamma_poisson", (10, 6), 2, priors=even_priors(rank=2, total=60), seed=1)


@pytest.fixture(scope="module")
def fit():
    options = SMC(priors=DRAWN.priors, runs=16, particles=32, efficiency=0.8)
    return bayesnmf.fit(DRAWN.counts, rank=2, method="smc", seed=3, options=options)


@pytest.fixture(scope="module")
def chains():
    options = Gibbs(
        priors=DRAWN.priors, algorithm="marginal", start="random", chains=2, warmup=100, draws=900, threads=1
    )
    return bayesnmf.fit(DRAWN.counts, rank=2, method="gibbs", seed=1, options=options)


def shuffled(fit):
    """Return the fit with all its draws in another order, over all chains."""
    order = np.random.default_rng(0).permutation(fit.trace.size)

    def moved(values):
        return values.reshape(-1, *values.shape[2:])[order].reshape(values.shape)

    statistics = {name: moved(values) for name, values in fit.statistics.items()}
    estimate = Draws(moved(fit.posterior.loadings), moved(fit.posterior.components), None)
    return replace(fit, trace=moved(fit.trace), statistics=statistics, estimate=estimate)


def test_leave_one_out_agrees_with_chains(fit, chains):
    """The elpd within its Monte Carlo error, less than a nat for 512 draws of which half count."""
    ours, theirs = bayesnmf.loo(fit), bayesnmf.loo(chains)
    assert ours.elpd == pytest.approx(theirs.elpd, abs=2)
    assert ours.p_loo == pytest.approx(theirs.p_loo, rel=0.2)
    assert ours.pointwise["elpd"].corr(theirs.pointwise["elpd"]) > 0.995


def test_the_efficiency_for_leave_one_out_is_that_of_means_over_runs(fit):
    """The squared errors of the means of all parameters, each written out as a sum over runs, are averaged."""
    run, ratios = fit.statistics["run"].ravel(), []
    number = len(run)
    for side in (fit.posterior.loadings, fit.posterior.components):
        for values in side.reshape(number, -1).T:
            sums = [np.sum(values[run == each] - values.mean()) for each in range(16)]
            ratios.append(16 / 15 * np.sum(np.square(sums)) / number / values.var())
    found = relative_efficiency(fit, fit.posterior)
    assert found == pytest.approx(1 / np.mean(ratios))
    assert 0.1 < found < 0.9


def test_nothing_depends_on_the_order_of_the_draws(fit, chains):
    """R-hat, autocorrelations and effective sample sizes of chains would differ."""
    other = shuffled(fit)
    ours, theirs = (bayesnmf.loo(each, rows=list(range(10))) for each in (fit, other))
    assert ours.elpd == pytest.approx(theirs.elpd, rel=1e-10)
    np.testing.assert_allclose(ours.pareto_k, theirs.pareto_k, rtol=1e-6)
    tables = [bayesnmf.posterior_agreement({"gibbs": chains, "smc": each}, "gibbs").table for each in (fit, other)]
    pd.testing.assert_frame_equal(*tables, rtol=1e-8)


def test_posteriors_agree_with_chains_as_far_as_chance_allows(fit, chains):
    """The error by chance is that of runs: as if draws were independent, it would be about half of it."""
    found = bayesnmf.posterior_agreement({"smc": fit, "gibbs": chains})
    assert found.reference == "gibbs"
    rows = found.table.loc["smc"]
    assert rows[["max_r_hat", "min_ess"]].isna().all(axis=None)
    assert (rows["difference"] < 1.5 * rows["by_chance"]).all()
    assert (rows["by_chance"] < 3 * rows["difference"]).all()
    assert (rows["by_chance"] > 1.3 / np.sqrt(fit.trace.size)).all()
    assert ((rows["sd_ratio"] > 0.9) & (rows["sd_ratio"] < 1.1)).all()
    assert not [caution for caution in found.cautions if "smc" in caution]


@pytest.mark.filterwarnings("ignore::bayesnmf.inference.status.ConvergenceWarning")
def test_few_particles_in_many_runs_can_be_left_out_and_checked():
    few = SMC(priors=DRAWN.priors, runs=7, particles=4, efficiency=0.8, refinement=1)
    fit = bayesnmf.fit(DRAWN.counts, rank=2, method="smc", seed=0, options=few)
    assert np.isfinite(bayesnmf.loo(fit, rows=[0]).elpd)
    assert bayesnmf.predictive_checks(fit).draws == 28
    with pytest.raises(ValueError, match="draws must be at most 28"):
        bayesnmf.predictive_checks(fit, draws=29)
    with pytest.raises(ValueError, match="25 in all: found 6 × 4"):
        bayesnmf.loo(bayesnmf.fit(DRAWN.counts, rank=2, method="smc", seed=0, options=replace(few, runs=6)))
    alone = bayesnmf.fit(DRAWN.counts, rank=2, method="smc", seed=0, options=replace(few, runs=1, particles=30))
    assert any("did not converge: a single run" in note for note in bayesnmf.loo(alone, rows=[0]).notes)
    assert np.isnan(
        bayesnmf.posterior_agreement({"smc": alone, "other": fit}, "other").table.loc["smc", "by_chance"]
    ).all()


def test_checks_use_up_to_200_draws_by_default(fit, chains):
    assert bayesnmf.predictive_checks(fit).draws == bayesnmf.predictive_checks(chains).draws == 200


def test_an_evidence_that_is_unknown_is_no_number(fit):
    known = evidence_of(fit)
    assert known == {"log_evidence": fit.diagnostics["log_p"], "log_evidence_se": fit.diagnostics["log_p_se"]}
    unknown = evidence_of(replace(fit, status=fit.status._replace(converged=False)))
    assert np.isnan(unknown["log_evidence"])
    assert unknown["log_evidence_at_least"] == fit.diagnostics["log_p"] - np.log(20)
    assert "log_evidence_se" not in unknown


def test_an_evidence_below_a_bound_is_cautioned_against():
    bound = {"elbo_marginal": -100.0, "elbo_marginal_se": 0.5}
    assert cautions_of_evidence({"vi": bound, "smc": {"log_evidence": -101.9}}) == []
    assert cautions_of_evidence({"smc": {"log_evidence": -101.9}, "map": {}}) == []
    (caution,) = cautions_of_evidence({"vi": bound, "smc": {"log_evidence": -102.1}})
    assert caution.startswith("smc: its log evidence, -102.1, is below the bound of vi, -102.0")
