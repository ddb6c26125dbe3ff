"""Label switching, summaries, predictive checks and leave-one-out of fits, and the figures of them."""

import warnings
from dataclasses import replace
from functools import cache

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy.stats import binom, gamma, nbinom, poisson
from smallfits import COUNTS, OPTIONS, QUICK, K, M, N, every_model, parameter_fit, quietly
from smallfits import fit as small
from suites import crossed, mostly_long

import bayesnmf
from bayesnmf import Dirichlet, Gamma, Gibbs, Priors, plots
from bayesnmf.assessment import leave_one_out, predictive_checks
from bayesnmf.assessment.predictive_statistics import Refitted
from bayesnmf.inference import alignment
from bayesnmf.priors.specification import MODELS
from bayesnmf.results import relabelling
from bayesnmf.results.cautions import cautions_of
from bayesnmf.results.draws import restrict_rows
from bayesnmf.results.mixing import r_hat_and_ess

pytestmark = quietly


@pytest.fixture(autouse=True)
def closed():
    """Close every figure."""
    yield
    plt.close("all")


# --- label switching --------------------------------------------------------------------------------

PROFILES = np.array([[0.4, 0.3, 0.15, 0.1, 0.05], [0.05, 0.1, 0.15, 0.3, 0.4]])
# Priors that hardly tell components apart: the same chain, whose draws are not matched.
NEARLY = Priors(Gamma(1.0, [0.1, 0.1 + 1e-12]), Dirichlet(1.0))
ALIKE = Priors(Gamma(1.0, 0.1), Dirichlet(1.0))


@cache
def two_components(total, matched=True):
    """Chains on a dozen samples of `total` counts each."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(total * rng.dirichlet([1, 1], 12) @ PROFILES)
    priors = ALIKE if matched else NEARLY
    options = Gibbs(algorithm="marginal", start="random", chains=2, draws=800, warmup=50, priors=priors, threads=1)
    return bayesnmf.fit(counts, "gamma_poisson", 2, "gibbs", seed=2, options=options)


def r_hats(fitted):
    return np.asarray(az.rhat(fitted.posterior.components, chain_axis=0, draw_axis=1))


def test_labels_that_switch_are_counted_and_matched():
    """With few counts a chain wanders from one order of the components to the other; matching undoes it."""
    fitted, raw = two_components(12), two_components(12, matched=False)
    assert "label_switches" not in raw.diagnostics  # the prior says which is which
    assert fitted.diagnostics["label_switches"] >= 2
    assert f"labels switched {fitted.diagnostics['label_switches']:.0f} times within chains" in " ".join(
        repr(fitted).split()
    )
    # before: the weight of a feature has a mode for each component, and chains differ in the time they spend in it
    first, last = (raw.posterior.components[..., 0, j].ravel() for j in (0, 4))
    assert min(np.mean(first > last + 0.1), np.mean(last > first + 0.1)) > 0.1
    assert r_hats(raw).max() > 1.05
    # after: one mode
    first, last = (fitted.posterior.components[..., 0, j].ravel() for j in (0, 4))
    assert min(np.mean(first > last), np.mean(last > first)) < 0.05
    assert r_hats(fitted).max() < 1.02


def test_labels_of_clear_components_do_not_switch():
    fitted = two_components(120)
    assert fitted.diagnostics["label_switches"] == 0
    assert fitted.diagnostics["ambiguous_draws"] == 0
    assert "switched" not in repr(fitted)


def test_flips_to_and_fro_are_not_switches():
    """The best order flips far more often than labels switch where components are hardly told apart."""
    fitted, raw = two_components(12), two_components(12, matched=False)
    orders = alignment.match_draws(raw.posterior.components, fitted.components)
    flips = np.sum(np.any(orders[:, 1:] != orders[:, :-1], axis=-1))
    assert 2 * fitted.diagnostics["label_switches"] < flips
    few = two_components(4)
    assert few.diagnostics["ambiguous_draws"] > relabelling.AMBIGUOUS_LIMIT > fitted.diagnostics["ambiguous_draws"]


def test_switches_are_counted_exactly():
    """Draws that are two profiles and a little noise, in an order that is known."""
    rng = np.random.default_rng(3)
    orders = np.array([[0, 0, 1, 1, 0, 0, 0, 1], [1, 1, 1, 1, 1, 1, 1, 1]])
    orders = np.stack([orders, 1 - orders], axis=-1)
    noise = rng.normal(scale=0.01, size=(2, 8, 2, 5))
    drawn = alignment.reorder(np.abs(PROFILES + noise), orders, axis=-2)
    components, found = relabelling.match_all_draws(drawn)
    np.testing.assert_array_equal(components, alignment.reorder(drawn, found, axis=-2))
    diagnosed = relabelling.label_switching(components, found)
    assert diagnosed == {"label_switches": 3.0, "ambiguous_draws": 0.0}  # 2 + 1 in the first chain, none in the other
    halfway = components.copy()
    halfway[0, 2] = PROFILES.mean(axis=0)
    assert relabelling.label_switching(halfway, found) == {"label_switches": 3.0, "ambiguous_draws": 1 / 16}
    alone = relabelling.label_switching(components[..., :1, :], np.zeros((2, 8, 1), int))
    assert alone == {"label_switches": 0.0, "ambiguous_draws": 0.0}


def test_a_cycle_of_three_components_counts_as_switches():
    """A cycle of three, which no swap makes."""
    profiles = np.eye(3) + 0.05
    orders = np.array([[[0, 1, 2], [1, 2, 0], [1, 2, 0], [0, 1, 2], [0, 2, 1]]])
    components, found = relabelling.match_all_draws(alignment.reorder(np.tile(profiles, (1, 5, 1, 1)), orders, -2))
    assert np.ptp(components, axis=1).max() < 1e-15
    assert relabelling.label_switching(components, found)["label_switches"] == 3


def test_only_draws_that_cannot_be_matched_are_a_caution():
    gibbs = small("gamma_poisson", "gibbs")
    for diagnostics, words in (({"label_switches": 9.0}, []), ({"ambiguous_draws": 0.2}, ["20%", "lower rank"])):
        cautions = cautions_of(replace(gibbs, diagnostics=diagnostics), 1.0, 1000.0)
        assert len(cautions) == (len(words) > 0)
        assert all(word in cautions[0] for word in words)


# --- chains that have not mixed ---------------------------------------------------------------------


@cache
def unmixed():
    """Two chains that sample different things, in an order of components that is a toss-up, and no more."""
    gibbs = small("gamma_poisson", "gibbs")
    told = {"r_hat_log_joint": 1.0, "max_r_hat": 1.8, "min_ess": 3.0, "ambiguous_draws": 0.5, "divergences": 2.0}
    return replace(gibbs, diagnostics=told)


TOLD = ("R-hat 1.80 > 1.05", "ESS 3 < 100", "in 50% of the draws", "2 divergences")


def test_every_result_tells_what_must_be_known_of_its_fit():
    fitted = unmixed()
    for found in (bayesnmf.loo(fitted), bayesnmf.predictive_checks(fitted, 10)):
        text = " ".join(repr(found).split())
        for words in TOLD:
            assert any(note.startswith(f"CAUTION {words}") for note in found.notes)
            assert f"CAUTION {words}" in text
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table = fitted.summary()
    assert {one.category for one in caught} == {bayesnmf.ConvergenceWarning}
    for words in TOLD:
        assert any(f"gamma_poisson by gibbs: {words}" in str(one.message) for one in caught)
        assert any(note.startswith(words) for note in table.attrs["cautions"])


def test_nothing_is_told_of_a_fit_that_converged():
    fitted = two_components(120)
    notes = [*bayesnmf.loo(fitted).notes, *bayesnmf.predictive_checks(fitted, 10).notes]
    assert not any("CAUTION" in note for note in notes)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fitted.summary().attrs["cautions"] == []


def test_r_hat_and_ess_are_those_of_arviz():
    draws = np.random.default_rng(0).normal(size=(2, 50, 3, 2)).cumsum(axis=1)
    r_hat, ess = r_hat_and_ess(draws)
    np.testing.assert_allclose(r_hat, az.rhat(draws, chain_axis=0, draw_axis=1))
    np.testing.assert_allclose(ess, az.ess(draws, chain_axis=0, draw_axis=1))
    alone, size = r_hat_and_ess(draws[:1])  # its halves differ, as one chain does not from itself
    np.testing.assert_allclose(alone, az.rhat(draws[0].reshape(2, 25, 3, 2), chain_axis=0, draw_axis=1))
    np.testing.assert_allclose(size, az.ess(draws[:1], chain_axis=0, draw_axis=1))
    draws[..., 0, 0] = 7.0
    r_hat, ess = r_hat_and_ess(draws)
    assert np.isnan(r_hat[0, 0])
    assert ess[0, 0] == 100
    assert np.isfinite(r_hat).sum() == 5
    for short in (draws[:, :3, 1], draws[:1, :3, 1]):
        assert all(np.isnan(found).all() for found in r_hat_and_ess(short))
    assert r_hat_and_ess(np.array([[1.0] * 8, [2.0] * 8]))[0] > 1.05  # stuck, in two places


# --- summaries --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["gibbs", "vi"])
def test_a_summary_is_that_of_the_draws(method):
    fitted = small("dirichlet_gamma", method)
    table = fitted.summary(rows=["s4", "s1"], features=["c"], interval=0.8)
    named = [f"loadings[{row}, {k}]" for row in ("s4", "s1") for k in range(K)]
    assert list(table.index) == [*named, "scale[s4]", "scale[s1]", *(f"components[{k}, c]" for k in range(K))]
    draws = fitted.sample_posterior()
    for name, values in (("loadings[s1, 2]", draws.loadings[:, :, 1, 2]), ("scale[s4]", draws.scale[:, :, 4])):
        expected = np.quantile(values, [0.5, 0.1, 0.9])
        close = {"rtol": 1e-12} if method == "gibbs" else {"atol": 0.1 * values.std()}  # other draws of the same q
        np.testing.assert_allclose(table.loc[name, ["median", "eti80_lb", "eti80_ub"]].astype(float), expected, **close)
    assert ("r_hat" in table.columns) == ("ess_median" in table.columns) == (method == "gibbs")
    assert ("note" in table.attrs) == (method == "vi")


@pytest.mark.parametrize("method", ["gibbs", "vi"])
def test_a_summary_prints_the_width_of_every_interval(method):
    """ArviZ prints as many digits for each number, so an interval from 0.0238 to 0.0243 was 0.024–0.024."""
    table = bayesnmf.fit(1000 * COUNTS, rank=2, method=method, seed=0, options=OPTIONS[method]).summary()
    for name, row in table.iterrows():
        shown = next(line for line in str(table).splitlines() if line.startswith(name)).removeprefix(name).split()
        printed = dict(zip(table.columns, map(float, shown), strict=True))
        for column in ("median", "eti90_lb", "eti90_ub"):
            assert abs(printed[column] - row[column]) <= 0.1 * (row["eti90_ub"] - row["eti90_lb"]) / 3.29


def test_a_summary_of_sparse_parameters_fits_a_terminal_and_has_no_false_digits():
    """Most loadings under a prior of shape 0.01 are nearly 0, with medians of 1e-30 and less."""
    priors = bayesnmf.Priors(bayesnmf.Gamma(0.01, 0.1), bayesnmf.Dirichlet(0.01))
    table = bayesnmf.fit(COUNTS, rank=5, seed=0, options=replace(OPTIONS["vi"], priors=priors)).summary()
    lines = str(table).splitlines()
    assert max(map(len, lines)) <= 80
    tiny = table["eti90_ub"].between(1e-300, 1e-3)
    for name in table.index[tiny]:
        shown = next(line for line in lines if line.startswith(name)).removeprefix(name).split()
        assert float(shown[-1]) == pytest.approx(table.loc[name, "eti90_ub"], rel=0.01)
    assert tiny.any()


@every_model
def test_a_summary_shows_few_parameters_unasked(model):
    fitted = small(model, "vi")
    table = fitted.summary()
    first = [name for name in table.index if name.startswith(("loadings[s0, ", "scale[s0]"))]
    assert len(first) == K + (fitted.scale is not None)
    table = table.drop(index=first)
    assert len(table) == 5 * K
    top = np.argsort(-fitted.components[1])[:5]
    assert list(table.index[5:10]) == [f"components[1, {fitted.feature_names[j]}]" for j in top]
    np.testing.assert_allclose(table["median"].to_numpy()[5:10], fitted.components[1, top], rtol=0.1)
    assert len(fitted.summary(rows=["s0"])) == K + (fitted.scale is not None)
    assert len(fitted.summary(features=list("ab"))) == 2 * K
    assert len(fitted.summary(rows=["s3"], features=["d"])) == 2 * K + (fitted.scale is not None)


def test_summaries_that_are_refused():
    with pytest.raises(AttributeError, match="a MAP fit has no posterior"):
        small(method="map").summary()
    for ask in ({}, {"features": ["a"]}):
        with pytest.raises(ValueError, match="components are parameters here"):
            parameter_fit().summary(**ask)
    assert len(parameter_fit().summary(rows=["s2"])) == K
    with pytest.raises(ValueError, match="rows must be names in the fit"):
        small().summary(rows=["x"])
    with pytest.raises(ValueError, match="interval must be below 1"):
        small().summary(interval=90)


# --- predictive checks ------------------------------------------------------------------------------


@cache
def simulated():
    """Thirty samples of three clear components, and the prior they were drawn from."""
    priors = Priors(Gamma(1.0, 0.01), Dirichlet(0.5))
    return bayesnmf.simulate("gamma_poisson", (30, 14), 3, priors=priors, seed=4)


@cache
def chains_of(rank):
    options = Gibbs(start="random", chains=2, draws=150, warmup=200, priors=simulated().priors, threads=1)
    return bayesnmf.fit(simulated().counts, "gamma_poisson", rank, "gibbs", seed=0, options=options)


def test_the_true_model_passes_and_too_small_a_rank_does_not():
    good, bad = (bayesnmf.predictive_checks(chains_of(rank), 150) for rank in (3, 2))
    assert good.failed == []
    assert good.p_value > 0.05
    assert "No statistic is further out than the model allows" in repr(good)
    assert "misfit" in bad.failed
    assert bad.table.loc["misfit", "p_value"] < 1e-9
    assert bad.p_value == bad.table["p_adjusted"].min() < 1e-8
    assert "The counts have what the model does not: " in repr(bad)
    # p-values of rows and features: as many of the true model are below 0.05 as are of a share of 0.05
    assert np.mean(good.rows["p_value"] < 0.05) <= binom.ppf(0.999, 30, 0.05) / 30
    assert np.mean(bad.rows["p_value"] < 0.05) > 0.2
    assert good.outside("rows") <= binom.ppf(0.999, 30, 0.1) / 30
    worst = bad.worst("features", 2)
    assert list(worst["p_value"]) == sorted(bad.features["p_value"])[:2]


def test_statistics_are_what_they_say():
    """One point, so that everything can be computed by hand; replicates against their exact distribution."""
    fitted = small("gamma_poisson", "map")
    found = bayesnmf.predictive_checks(fitted, 400, interval=0.8)
    counts, means = COUNTS.to_numpy(), fitted.expected_loadings @ fitted.components
    settled = np.matmul(*Refitted.of(fitted).factors())  # the small fit is not converged
    wanted = {
        "total": counts.sum(),
        "share of zeros": np.mean(counts == 0),
        "largest count": counts.max(),
        "dispersion": counts.var() / counts.mean(),
        "misfit": np.sum((np.sqrt(counts) - np.sqrt(settled)) ** 2),
    }
    for name, value in wanted.items():
        np.testing.assert_allclose(found.table.loc[name, "observed"], value, rtol=1e-12)
    np.testing.assert_array_equal(found.rows["observed"], counts.sum(axis=1))
    np.testing.assert_array_equal(found.features["observed"], counts.sum(axis=0))
    np.testing.assert_array_equal(found.histogram["observed"], np.bincount(counts.ravel()))
    assert list(found.rows.index) == list(COUNTS.index)
    # 400 replicates: means within 4.5 standard errors, p-values and quantiles within those of a binomial share
    z = (found.rows["mean"] - means.sum(axis=1)) / np.sqrt(means.sum(axis=1) / 400)
    assert np.abs(z).max() < 4.5
    z = (found.features["mean"] - means.sum(axis=0)) / np.sqrt(means.sum(axis=0) / 400)
    assert np.abs(z).max() < 4.5
    row = found.rows.iloc[0]
    mean = means[0].sum()
    assert 0.8 - 0.1 < poisson.cdf(row["high"], mean) - poisson.cdf(row["low"], mean) < 0.8 + 0.1
    assert predictive_checks.POINT in found.notes


@pytest.mark.parametrize(("model", "method"), crossed(MODELS, OPTIONS))
def test_every_fit_can_be_checked(model, method):
    found = bayesnmf.predictive_checks(small(model, method), 12, refits=10)
    given = model == "dirichlet_poisson"
    assert ("total" in found.table.index) == ("observed" in found.rows) == (not given)
    assert (predictive_checks.GIVEN in found.notes) == given
    assert (predictive_checks.POINT in found.notes) == (method == "map")
    assert len(found.rows) == N
    assert len(found.features) == M
    assert (found.draws, found.refits) == (12, 10)
    assert all(len(values) == 10 for values in found.replicated.values())
    assert found.table["p_value"].between(0, 1).all()
    together = found.table.drop(index="structure")  # which is judged by itself
    assert together["p_adjusted"].between(together["p_value"], 1).all()
    assert f"{model} by {method}: 12 replicated data sets, 10 fitted again" in repr(found)
    again = bayesnmf.predictive_checks(small(model, method), 12, refits=10)
    assert again.table.equals(found.table)


def test_checks_of_empty_and_fractional_counts():
    empty = bayesnmf.fit(np.zeros((4, 3)), rank=2, seed=0, options=QUICK)
    found = bayesnmf.predictive_checks(empty, 10)
    assert found.table.loc["largest count", "observed"] == 0
    assert found.table.notna().all(axis=None)
    plots.predictive_checks(found)[0].figure.canvas.draw()
    halves = bayesnmf.fit(COUNTS + 0.5, rank=2, seed=0, options=QUICK)
    assert predictive_checks.ROUNDED in bayesnmf.predictive_checks(halves, 10).notes


def test_point_fits_have_as_many_replicates_as_others():
    assert bayesnmf.predictive_checks(small(method="map")).draws == 200
    assert bayesnmf.predictive_checks(small(method="gibbs")).draws == 120


def test_interrupted_checks_keep_the_replicates_that_are_done():
    def stop(label, done, total, objective):
        if done == 7:
            raise KeyboardInterrupt

    found = bayesnmf.predictive_checks(small(), 20, progress=stop)
    assert found.draws == 7
    assert "interrupted after 7 of 20 replicates and 0 of 24 refits" in repr(found)
    assert found.failed == []
    assert np.isnan(found.p_value)
    assert predictive_checks.FEW in found.notes
    assert len(plots.predictive_checks(found)) == 3
    few = bayesnmf.predictive_checks(small(), 5, progress=lambda label, done, *_: stop(label, done - 10, 0, 0))
    assert "interrupted after 5 of 5 replicates and 12 of 24 refits" in repr(few)
    assert few.p_value > 0


def test_what_predictive_checks_refuse():
    with pytest.raises(ValueError, match="draws must be at most 120"):
        bayesnmf.predictive_checks(small(method="gibbs"), 121)
    with pytest.raises(TypeError, match=r"fit must be a result of bayesnmf\.fit: found DataFrame; make one with"):
        bayesnmf.predictive_checks(COUNTS)
    with pytest.raises(ValueError, match="side must be one of 'rows', 'features'"):
        bayesnmf.predictive_checks(small(), 5).worst("columns")
    with pytest.raises(ValueError, match="refits must be at least 10"):
        bayesnmf.predictive_checks(small(), refits=9)


def test_figures_of_checks_show_p_values_and_shares_outside():
    found = bayesnmf.predictive_checks(chains_of(2), 100)
    axes = plots.predictive_checks(found)
    assert len(axes) == 9
    titles = [ax.get_title() for ax in axes]
    assert titles[0].startswith("total\np-value ")
    assert titles[6].startswith(f"row totals outside 90% intervals:\n{found.outside('rows'):.1%}")
    for ax, name in zip(axes[:6], found.table.index, strict=True):
        assert sum(patch.get_height() for patch in ax.patches) == found.refits
        assert ax.lines[0].get_xdata()[0] == found.table.loc[name, "observed"]
    points = np.concatenate([part.get_offsets()[:, 1] for part in axes[7].collections[1:]])
    expected = found.features["mean"]
    np.testing.assert_allclose(np.sort(points), np.sort((found.features["observed"] - expected) / np.sqrt(expected)))
    (observed,) = axes[8].lines
    np.testing.assert_allclose(observed.get_ydata() ** 2, found.histogram["observed"])
    np.testing.assert_allclose([bar.get_height() ** 2 for bar in axes[8].patches], found.histogram["mean"])
    assert len(plots.predictive_checks(small("dirichlet_poisson", "vi"))) == 7
    given = plt.subplots(3, 3)[1]
    assert list(plots.predictive_checks(small("gamma_poisson", "gibbs"), axes=given)) == list(given.flat)
    with pytest.raises(TypeError, match=r"checks must be a result of bayesnmf\.predictive_checks"):
        plots.predictive_checks(found.table)


# --- leave-one-out ----------------------------------------------------------------------------------


@every_model
def test_leave_one_out_is_arviz_on_all_entries(model, monkeypatch):
    fitted = small(model, "gibbs")
    monkeypatch.setattr("bayesnmf.assessment.leave_one_out.BLOCK_BYTES", 8 * 120 * 25)  # blocks of 25 entries
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Estimated shape parameter of Pareto")
        for rows, features in ((None, None), (["s3", "s1"], list("hb"))):
            found = bayesnmf.loo(fitted, rows, features)
            tree = fitted.to_datatree(rows=rows, features=features, log_likelihood=True)
            arviz = az.loo(tree, pointwise=True)
            # equal to the rounding of log-likelihoods that are summed in another order
            np.testing.assert_allclose([found.elpd, found.se, found.p_loo], [arviz.elpd, arviz.se, arviz.p], rtol=1e-9)
            np.testing.assert_allclose(found.pareto_k, np.ravel(arviz.pareto_k), atol=1e-9)
            np.testing.assert_allclose(found.pointwise["elpd"], np.ravel(arviz.elpd_i), rtol=1e-9)
            assert found.good_k == arviz.good_k
            np.testing.assert_array_equal(found.pointwise["count"], np.ravel(tree["observed_data"]["counts"]))
    assert list(found.pointwise["row"]) == ["s3", "s3", "s1", "s1"]
    assert list(found.pointwise["feature"]) == ["h", "b", "h", "b"]
    assert found.sampling_se == 0
    assert ("row totals are given" in repr(found)) == (model == "dirichlet_poisson")


def test_k_hats_are_always_shown():
    found = bayesnmf.loo(small(method="gibbs"))
    text = " ".join(repr(found).replace("│", " ").split())
    assert f"largest k-hat {found.pareto_k.max():.2f}" in text
    assert f"k-hat above 0.7 {np.mean(found.pareto_k > 0.7):.2%} of the entries" in text
    worst = found.worst(1).iloc[0]
    assert f"({worst['row']}, {worst['feature']}) = {worst['count']:g}: k-hat {found.pareto_k.max():.2f}" in text


def test_whole_samples_cannot_be_left_out():
    """Why there is no leave-one-out of samples: nearly all have a k-hat above 0.7, where few entries have one."""
    fitted = chains_of(3)
    by_entry = fitted.to_datatree(log_likelihood=True)
    log_likelihood = by_entry["log_likelihood"].to_dataset().sum("feature")
    by_row = by_entry.assign(log_likelihood=type(by_entry)(log_likelihood))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Estimated shape parameter of Pareto")
        k_hats = az.loo(by_row, pointwise=True).pareto_k.to_numpy()
    assert k_hats.shape == (30,)
    assert np.mean(k_hats > 0.7) > 0.5
    assert np.mean(bayesnmf.loo(fitted).pareto_k > 0.7) < 0.1


def test_some_of_the_entries_estimate_the_sum_over_all():
    fitted = chains_of(3)
    whole = bayesnmf.loo(fitted)
    errors = []
    for seed in range(8):
        part = bayesnmf.loo(fitted, most=50, seed=seed)
        assert part.entries == whole.entries == 30 * 14
        assert len(part.pointwise) == 50
        assert 0 < part.sampling_se < whole.se
        errors.append((part.elpd - whole.elpd) / part.sampling_se)
    assert 0.4 < np.sqrt(np.mean(np.square(errors))) < 1.8  # √(χ²₈/8) is inside with probability 0.996
    assert "estimated from 50" in repr(part)


def test_leave_one_out_of_one_chain_and_of_one_component():
    options = Gibbs(start="random", chains=1, draws=60, warmup=20, threads=1)
    alone = bayesnmf.fit(COUNTS, "dirichlet_poisson", 1, "gibbs", seed=0, options=options)
    assert np.isfinite(bayesnmf.loo(alone).elpd)
    two = bayesnmf.fit(COUNTS, "dirichlet_poisson", 1, "gibbs", seed=0, options=replace(options, chains=2))
    assert np.isfinite(bayesnmf.loo(two, rows=["s0"]).elpd)  # its loadings are all 1


SHARES = np.array([[0.1, 0.2, 0.3, 0.4]])  # one known component: what is left of a row gives its loading a Gamma
UNLIKE = np.array([[1, 4, 2, 11], [9, 1, 2, 1], [0, 2, 3, 9], [8, 11, 8, 21], [0, 0, 1, 9], [1, 1, 1, 4]])
OF_ROWS = Gamma(2.0, 0.3)


@cache
def known_component(draws):
    options = Gibbs(chains=4, warmup=5, draws=draws, priors=Priors(OF_ROWS), threads=1)
    return bayesnmf.fit(UNLIKE, "gamma_poisson", method="gibbs", fixed_components=SHARES, options=options, seed=0)


def exactly_without(row, feature, draws):
    """Log p of an entry given the others, which is negative binomial, and its mean over draws' standard error."""
    shape = OF_ROWS.shape + np.delete(UNLIKE[row], feature).sum()
    rate, share, count = OF_ROWS.rate + 1 - SHARES[0, feature], SHARES[0, feature], UNLIKE[row, feature]
    log_p = nbinom.logpmf(count, shape, rate / (rate + share))
    loadings = gamma.rvs(shape, scale=1 / rate, size=200_000, random_state=0)
    p = poisson.pmf(count, loadings * share)
    return log_p, p.std() / p.mean() / np.sqrt(draws)


@pytest.mark.parametrize("draws", mostly_long([250, 1000]))
def test_entries_that_are_fitted_without_are_exact(draws):
    plain, found = (bayesnmf.loo(known_component(draws), refit=refit, seed=1) for refit in (0, 2))
    table = found.pointwise
    assert table["refitted"].sum() == 2
    assert not plain.pointwise["refitted"].any()
    np.testing.assert_array_equal(np.flatnonzero(table["refitted"]), np.sort(np.argsort(-plain.pareto_k)[:2]))
    kept = ~table["refitted"].to_numpy()
    np.testing.assert_array_equal(table["elpd"][kept], plain.pointwise["elpd"][kept])
    for place in np.flatnonzero(~kept):
        exact, error = exactly_without(*divmod(place, 4), 4 * draws)
        assert abs(table["elpd"][place] - exact) < 4 * error  # draws of one Gamma are independent
    assert found.elpd == pytest.approx(table["elpd"].sum())
    assert found.p_loo - plain.p_loo == pytest.approx(plain.elpd - found.elpd)
    assert "2 with k-hat above 0.7 were left out by a fit each" in repr(found)


def test_entries_of_chosen_rows_and_features_are_fitted_without_as_among_all():
    whole = bayesnmf.loo(known_component(100), refit=24).pointwise
    part = bayesnmf.loo(known_component(100), [4, 1], [3, 0], refit=24).pointwise
    wanted = whole.set_index(["row", "feature"]).loc[[(4, 3), (4, 0), (1, 3), (1, 0)]]
    assert part["refitted"].sum() >= 2
    np.testing.assert_array_equal(part["refitted"], wanted["refitted"])
    np.testing.assert_array_equal(part["elpd"][part["refitted"]], wanted["elpd"][wanted["refitted"]])
    np.testing.assert_array_equal(part["count"], wanted["count"])


@pytest.mark.long
@pytest.mark.parametrize("noise", ["poisson", "nb1"])
@quietly
def test_an_entry_that_is_fitted_without_has_the_probability_that_nuts_gives_it(noise):
    """An entry far out, whose k-hat is high, by chains from this fit, and by another sampler from its own start."""
    counts = simulated().counts.matrix.toarray()[:12].astype(int)
    counts[3, 2] += 60
    options = Gibbs(chains=4, warmup=500, draws=2000, priors=simulated().priors)
    fitted = bayesnmf.fit(counts, "gamma_poisson", 3, "gibbs", seed=0, options=options, noise=noise)
    found = bayesnmf.loo(fitted, [3], [2], refit=1).pointwise.iloc[0]
    assert found["refitted"]
    missing = np.zeros(counts.shape, bool)
    missing[3, 2] = True
    settings = bayesnmf.NUTS(chains=4, warmup=500, draws=1000, priors=simulated().priors)
    other = bayesnmf.fit(counts, "gamma_poisson", 3, "nuts", seed=1, options=settings, noise=noise, missing=missing)
    entries = leave_one_out._Entries(restrict_rows(replace(other, counts=fitted.counts), np.array([3])), None)
    p = np.exp(entries.log_likelihood(np.array([2])))[..., 0]
    # both means have errors: that of NUTS by its effective draws, and Gibbs' about as much
    error = p.std() / p.mean() / np.sqrt(az.ess(p, chain_axis=0, draw_axis=1))
    assert found["elpd"] == pytest.approx(np.log(p.mean()), abs=6 * error)


def test_fits_without_an_entry_are_refused_where_there_are_none():
    lda = small("dirichlet_poisson", "gibbs")
    with pytest.raises(ValueError, match="refit needs a model of the totals of rows: dirichlet_poisson is given these"):
        bayesnmf.loo(lda, refit=1)
    drawn = small(method="gibbs").posterior
    foreign = bayesnmf.from_draws(COUNTS, {"loadings": drawn.loadings, "components": drawn.components})
    with pytest.raises(ValueError, match=r"refit needs a fit by bayesnmf\.fit of a model by its name"):
        bayesnmf.loo(foreign, refit=1)
    with pytest.raises(ValueError, match="refit must be at least 0"):
        bayesnmf.loo(small(method="gibbs"), refit=-1)
    with pytest.raises(ValueError, match="refit needs the counts that components were fitted to: found projected rows"):
        bayesnmf.loo(small(method="gibbs").project(small(method="gibbs").counts.matrix[:2]), refit=1)


def test_leave_one_out_refuses_what_has_no_posterior_draws():
    for method in ("map", "vi"):
        with pytest.raises(ValueError, match=r"loo needs a fit by method='gibbs' or .* bayesnmf\.select"):
            bayesnmf.loo(small(method=method))
    gibbs = small(method="gibbs")
    for given, name in ((gibbs.to_datatree(), "DataTree"), (None, "NoneType"), ({"gibbs": gibbs}, "dict")):
        with pytest.raises(TypeError, match=f"found {name}; make one with bayesnmf.fit, .* as in fits"):
            bayesnmf.loo(given)


@pytest.mark.parametrize(
    ("chains", "draws", "enough"),
    [(1, 8, False), (1, 24, False), (1, 25, True), (2, 12, False), (2, 13, True), (3, 8, False), (4, 8, True),
     (8, 5, False)],
)  # fmt: skip
def test_leave_one_out_needs_as_many_draws_as_arviz_does(chains, draws, enough):
    options = Gibbs(start="random", chains=chains, draws=draws, warmup=10, threads=1)
    few = bayesnmf.fit(COUNTS, "gamma_poisson", 2, "gibbs", seed=0, options=options)
    if enough:
        assert np.isfinite(bayesnmf.loo(few, rows=["s0"]).elpd)
    else:
        with pytest.raises(ValueError, match=f"at least 8 draws in each chain and 25 in all: found {chains} × {draws}"):
            bayesnmf.loo(few)
