"""Draws that are resampled particles of independent runs: their error, and what is said and kept of them."""

import numpy as np
import pytest

import bayesnmf
from bayesnmf import SMC, VI, plots
from bayesnmf.results.draws import error_over_runs, runs_of_draws, share_effective
from bayesnmf.results.thinning import thin_fit

DRAWN = bayesnmf.simulate("gamma_poisson", (10, 6), 2, totals=60, seed=0)


@pytest.fixture(scope="module")
def fit():
    options = SMC(priors=DRAWN.priors, runs=8, particles=24, efficiency=0.7, threads=1)
    return bayesnmf.fit(DRAWN.counts, rank=2, method="smc", seed=0, options=options)


def test_the_error_is_that_of_means_over_runs_of_any_number_of_draws():
    """Draws share the level of their run: their error is about 3 times that of as many independent draws."""
    rng, runs, draws = np.random.default_rng(0), 24, 240
    means, errors, naive = [], [], []
    for _ in range(1500):
        run = np.repeat(np.arange(runs), rng.multinomial(draws, rng.dirichlet(np.full(runs, 5.0))))
        values = rng.normal(size=runs)[run] + rng.normal(size=draws)
        means.append(values.mean())
        errors.append(error_over_runs(values[:, None], run, runs)[0] ** 2)
        naive.append(values.var() / draws)
    assert np.var(means) / np.mean(naive) > 5
    np.testing.assert_allclose(np.mean(errors), np.var(means), rtol=0.12)  # sd of a variance of 1500 means: 4 %


def test_independent_draws_are_fully_effective_and_constants_are_not_judged():
    rng = np.random.default_rng(1)
    run = np.repeat(np.arange(50), 8)
    shares = share_effective(rng.normal(size=(400, 200)), run, 50)
    assert 1 / np.mean(1 / shares) == pytest.approx(1.0, abs=0.1)
    assert np.isnan(share_effective(np.ones((400, 1)), run, 50)).all()
    assert np.isnan(error_over_runs(rng.normal(size=(9, 2)), np.zeros(9, int), 1)).all()
    np.testing.assert_array_equal(
        error_over_runs(np.array([[0.0], [0.0], [3.0], [3.0]]), np.array([0, 0, 1, 1]), 2), 1.5
    )


def test_the_tree_says_that_its_draws_are_not_chains(fit):
    tree = fit.to_datatree()
    assert tree["posterior"].attrs["resampled_draws"] == 1
    assert "not chains: their R-hat and ESS say nothing" in tree.attrs["note"]
    np.testing.assert_array_equal(tree["sample_stats"]["run"].to_numpy().ravel(), runs_of_draws(fit))
    assert (
        "resampled_draws"
        not in bayesnmf.fit(DRAWN.counts, rank=2, seed=0, options=VI(start="svd", tol=1e-2)).to_datatree(draws=2).attrs
    )


def test_thinned_draws_keep_the_verdict_of_the_fit(fit):
    thin = thin_fit(fit, most=8 * 8 * 6 * 2 * (10 + 6))
    assert thin.posterior.loadings.shape[:2] == (8, 6)
    assert thin.status == fit.status
    assert thin.diagnostics == {**fit.diagnostics, "kept_every": 4.0}
    assert set(thin.moments) == {"loadings_sd", "components_sd"}
    np.testing.assert_allclose(thin.loadings, fit.loadings)
    np.testing.assert_allclose(
        thin.moments["components_sd"], fit.posterior.components.std(axis=(0, 1), ddof=1), rtol=1e-6
    )
    np.testing.assert_array_equal(runs_of_draws(thin), fit.statistics["run"][:, ::4].ravel())
    group = thin.to_datatree()["all_draws"]
    assert group.attrs["note"] == "means and standard deviations of all draws"
    assert not [name for name in group.data_vars if "r_hat" in name or "ess" in name]


def test_figures_have_a_colour_for_it_and_traces_are_refused(fit):
    assert plots.METHOD_COLOURS["smc"] not in [
        plots.METHOD_COLOURS[name] for name in plots.METHOD_COLOURS if name != "smc"
    ]
    with pytest.raises(ValueError, match=r"plots\.chains needs chains: found draws by 'smc'.*see fit\.status"):
        plots.chains(fit)
    assert len(plots.predictive_checks(fit)) == 9
    plots.loadings_intervals(fit, fit.row_names[:2])
