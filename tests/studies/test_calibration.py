"""Simulation-based calibration: ranks, ties and p-values; samplers pass, wrong ones and mean-field VI do not."""

from dataclasses import replace
from functools import cache

import matplotlib.pyplot as plt
import numpy as np
import pytest
from plain import even_priors, plain_vi
from scipy.stats import binom

import bayesnmf
from bayesnmf import NUTS, SMC, VI, Calibration, Dirichlet, Gamma, Gibbs, Priors, plots
from bayesnmf.inference.sampling.nuts_and_svi import build_functions, compile_chain
from bayesnmf.plots.calibration import ecdf_band
from bayesnmf.priors.specification import MODELS
from bayesnmf.results.estimates import Draws
from bayesnmf.studies.calibration import QUANTITIES
from bayesnmf.studies.calibration.calibrating import (
    draws_as_points,
    effective_numbers,
    effective_sizes,
    evaluate,
    names_for,
    rank_among,
    true_point,
)

L = 99
ALPHA = 0.01  # what a calibration is rejected at; a right one is in 1 of 100 suites, and seeds are fixed
GAMMAS = Priors(Gamma(1.2, 0.3), Gamma(1.5, 2.0))
STEPS = NUTS(start="random", chains=1, warmup=150, draws=2 * L)
COLLAPSED = Gibbs(start="random", chains=1, warmup=50, draws=49, thin=4, threads=1, collapsed=True)
PLAIN = plain_vi(threads=1, max_iter=20)


@cache
def calibrated():
    """A calibration of mean-field VI that several tests share; seeds are fixed."""
    return bayesnmf.calibrate(
        "gamma_poisson", "vi", priors=even_priors(total=20), simulations=50, draws=49, seed=4, options=PLAIN
    )


def of_ranks(ranks, draws=L, seed=0):
    """A calibration with the given ranks (simulations, quantities)."""
    names = tuple(QUANTITIES)[: ranks.shape[1]]
    ess = np.full(len(names), float(draws))
    return Calibration("gamma_poisson", "gibbs", (6, 5), 2, names, ranks, draws, ess, "Priors()", "Gibbs()", seed, 1.0)


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


# --- ranks and their uniformity ---------------------------------------------------------------------


def test_ranks_count_the_draws_below():
    values = np.arange(10.0)[:, None] + np.zeros(4)
    ranks = rank_among(np.array([-1.0, 2.5, 8.5, 20.0]), values, np.random.default_rng(0))
    np.testing.assert_array_equal(ranks, [0, 3, 9, 10])


def test_ties_are_broken_evenly():
    """A truth that ties with 3 of 5 draws, one below: ranks 1 to 4, each in a quarter of the cases."""
    rng = np.random.default_rng(0)
    values = np.tile([[0.0], [1.0], [1.0], [1.0], [2.0]], 4000)
    ranks = rank_among(np.full(4000, 1.0), values, rng)
    found = np.bincount(ranks, minlength=6)
    assert found[[0, 5]].sum() == 0
    low, high = binom.ppf([0.0005, 0.9995], 4000, 0.25)
    assert np.all((found[1:5] >= low) & (found[1:5] <= high))


def test_p_values_are_those_of_arviz():
    import arviz_stats  # noqa: F401  registers the accessor

    result = calibrated()
    group = result.to_datatree()["prior_sbc"].dataset
    theirs = group.azstats.uniformity_test(dim=["chain", "draw"], method="pot_c")[0]
    for name, p in result.p_values().items():
        assert p == pytest.approx(float(theirs[name]), rel=1e-9)
    assert result.p_value == min(1.0, 8 * min(result.p_values().values()))


def test_p_values_of_uniform_ranks():
    """Small p-values are as frequent as they should be; pot_c is a little liberal and stops at 1/2."""
    rng = np.random.default_rng(1)
    p = np.array([list(of_ranks(rng.integers(0, L + 1, (200, 8)), seed=s).p_values().values()) for s in range(25)])
    # 200 tests; 99.9 % binomial limits of rates of 6.6 % at 0.05 and 1.2 % at 0.01, measured on 4,000 tests.
    assert (p < 0.05).sum() <= binom.ppf(0.999, 200, 0.066)
    assert (p < 0.05).sum() >= binom.ppf(0.001, 200, 0.05)
    assert (p < 0.01).sum() <= binom.ppf(0.999, 200, 0.012)


@pytest.mark.parametrize(
    ("spread", "shift", "words"),
    [(0.8, 0.0, "too narrow"), (1.25, 0.0, "too wide"), (1.0, 0.4, "too high"), (1.0, -0.4, "too low")],
)
def test_wrong_posteriors_are_caught_and_named(spread, shift, words):
    """Normal posteriors whose draws have another spread or mean than the truth has."""
    rng = np.random.default_rng(2)
    true = rng.normal(size=(500, 2))
    draws = shift + spread * rng.normal(size=(500, L, 2))
    result = of_ranks((draws < true[:, None]).sum(axis=1))
    assert result.p_value < 0.001
    assert set(result.table()["reading"]) == {words}
    right = of_ranks((rng.normal(size=(500, L, 2)) < true[:, None]).sum(axis=1))
    assert right.p_value > 0.05
    assert set(right.table()["reading"]) == {""}


def test_coverage_counts_central_ranks():
    result = of_ranks(np.arange(100)[:, None])  # every rank once
    for level in (0.1, 0.5, 0.9):
        assert result.coverage(level)["first_entry"] == pytest.approx(level, abs=0.02)
    assert of_ranks(np.full((50, 1), 99)).coverage(0.9)["first_entry"] == 0
    assert result.table().loc["first_entry", "outer"] == pytest.approx(0.2, abs=0.02)


def test_effective_sizes_are_few_where_draws_depend_on_those_before():
    rng = np.random.default_rng(5)
    independent = rng.normal(size=(500, 1))
    walk = np.cumsum(independent, axis=0)
    found = effective_sizes(np.hstack([independent, walk, np.ones_like(walk)]))
    assert found[0] > 350
    assert found[1] < 50
    assert found[2] == 500


# --- quantities -------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS)
def test_quantities_do_not_depend_on_the_order_of_components(model):
    drawn = bayesnmf.simulate(
        model, (5, 4), 3, priors=GAMMAS if model == "poisson" else even_priors(model=model), seed=6
    )
    names = names_for(model, 3, drawn.priors)
    assert ("row_total" in names) == ("log_joint" in names) == (model != "dirichlet_poisson")
    assert names_for(model, 1, drawn.priors) == tuple(
        name for name in names if "share" not in name and name != "loading_spread"
    )
    order = [2, 0, 1]
    scale = None if drawn.scale is None else drawn.scale[None, None]
    draws = Draws(drawn.loadings[None, None][..., order], drawn.components[None, None][..., order, :], scale)
    found = evaluate(names, draws_as_points(draws, drawn, np.array([0])))
    np.testing.assert_allclose(found, evaluate(names, true_point(drawn)), rtol=1e-12)
    at = true_point(drawn)
    np.testing.assert_allclose(at.means[0], drawn.means, rtol=1e-12)
    np.testing.assert_allclose(at.shares.sum(axis=-1), 1)


@pytest.mark.parametrize("concentration", [1.0, [1.0, 2.0]])
def test_log_joint_is_left_out_where_it_ranks_as_the_likelihood_does(concentration):
    priors = Priors(Dirichlet(concentration), Dirichlet(1.0))
    assert ("log_joint" in names_for("dirichlet_poisson", 2, priors)) == (np.ptp(concentration) > 0)


@pytest.mark.parametrize("model", MODELS)
def test_log_joint_is_that_of_the_fits(model):
    """The same as `Fit.trace` has it, up to a constant of the data."""
    drawn = bayesnmf.simulate(model, (5, 4), 2, priors=GAMMAS if model == "poisson" else None, seed=7)
    options = Gibbs(priors=drawn.priors, start="random", chains=1, draws=20, warmup=5)
    with pytest.warns(bayesnmf.ConvergenceWarning):
        fit = bayesnmf.fit(drawn.counts, model, 2, "gibbs", seed=8, options=options)
    found = QUANTITIES["log_joint"](draws_as_points(fit.posterior, drawn, np.arange(20)))
    assert np.ptp(fit.trace[0] - found) < 1e-9 * np.abs(fit.trace).max()


# --- samplers and approximations --------------------------------------------------------------------


RIGHT = Priors(Gamma(2.0, 2.0), Dirichlet(1.0))


def of_collapsed_gibbs(options, simulations, **told):
    """Return the calibration of a chain that is told these priors, or the right ones."""
    settings = {"size": (20, 3), "rank": 3, "priors": RIGHT, "simulations": simulations, "draws": options.draws}
    return bayesnmf.calibrate("gamma_poisson", "gibbs", options=replace(options, **told), seed=2, **settings)


def test_gibbs_is_calibrated_and_a_wrong_prior_is_caught():
    """Told a rate of the loadings that is half off, it is not."""
    short = replace(COLLAPSED, warmup=30, draws=19)
    right = of_collapsed_gibbs(short, 20)
    assert right.ranks.shape == (20, 8)
    assert right.p_value > ALPHA
    assert np.all(right.ess > 0.6 * 19)
    assert "collapsed=True" in right.settings
    assert "priors" not in right.settings
    # 99.9 % binomial limits of the coverage of 90 % in 20 simulations
    low, high = binom.ppf([0.0005, 0.9995], 20, 0.9) / 20
    assert all(low <= share <= high for share in right.coverage(0.9).values())
    wrong = of_collapsed_gibbs(short, 10, priors=Priors(Gamma(2.0, 3.0), Dirichlet(1.0)))
    assert "loadings=Gamma(shape=2.0, rate=3.0)" in wrong.settings
    assert wrong.p_value < 1e-4


@pytest.mark.long
def test_a_prior_that_is_20_percent_wrong_is_caught():
    assert of_collapsed_gibbs(COLLAPSED, 60).p_value > ALPHA
    assert of_collapsed_gibbs(COLLAPSED, 60, priors=Priors(Gamma(2.0, 2.4), Dirichlet(1.0))).p_value < 1e-4


@pytest.mark.long
def test_nuts_is_calibrated():
    before = compile_chain.cache_info().misses
    priors = even_priors(model="dirichlet_poisson")
    result = bayesnmf.calibrate(
        "dirichlet_poisson", "nuts", priors=priors, totals=20, simulations=40, draws=L, seed=4, options=STEPS
    )
    assert compile_chain.cache_info().misses <= before + 1  # 40 fits, compiled once
    assert compile_chain.cache_info().maxsize < 20
    assert "log_joint" not in result.quantities  # the priors are even
    assert result.p_value > ALPHA
    assert np.all(result.ess > 0.5 * L)


@pytest.mark.long
def test_smc_is_calibrated():
    """Weights that are wrong are found by moments that are known exactly, in test_tempering.py."""
    options = SMC(runs=16, particles=8, efficiency=0.8, threads=1)
    settings = {"size": (4, 3), "simulations": 40, "draws": 19, "seed": 3}
    result = bayesnmf.calibrate("gamma_poisson", "smc", options=options, **settings)
    assert result.p_value > ALPHA
    assert np.all(result.ess > 0.5 * 19)


def test_smc_has_runs_enough_for_the_draws_by_default():
    result = bayesnmf.calibrate("gamma_poisson", "smc", size=(3, 2), simulations=1, draws=19)
    assert result.ranks.shape == (1, 8)
    assert "particles=32" in result.settings
    assert np.all((result.ess > 1) & (result.ess <= 19))
    many = bayesnmf.calibrate("gamma_poisson", "smc", size=(3, 2), simulations=1, draws=132)
    assert "particles=34" in many.settings
    with pytest.raises(ValueError, match=r"draws must be at most the number that .* 8 × 2: found 19"):
        bayesnmf.calibrate("gamma_poisson", "smc", draws=19, options=SMC(particles=2))


def test_effective_numbers_are_few_where_runs_differ():
    run = np.repeat(np.arange(10), 10)
    rng = np.random.default_rng(0)
    values = np.stack([rng.normal(size=10)[run], rng.normal(size=100), np.ones(100)], axis=1)
    found = effective_numbers(values, run, 10)
    np.testing.assert_allclose(found[0], 9.0)  # as many as runs, less one
    assert 40 < found[1] <= 100
    assert found[2] == 100


def test_mean_field_is_too_narrow():
    result = calibrated()
    assert result.p_value < 1e-6
    table = result.table()
    assert "too narrow" in table.loc["loading_spread", "reading"]
    assert "too high" in table.loc["log_likelihood", "reading"]
    assert table.loc["loading_spread", "90 %"] < 0.8
    assert np.all(result.ess == 49)


def test_svi_is_ranked_among_independent_draws(monkeypatch):
    """What stands in for the fit, which would have to be compiled, is a mean field by coordinate ascent."""
    fitted, asked = bayesnmf.fit, []

    def stand_in(counts, model, rank, method, *, seed, options):
        asked.append((method, type(options), options.priors.loadings is not None))
        return fitted(counts, model, rank, "vi", seed=seed, options=replace(PLAIN, priors=options.priors))

    settings = {"simulations": 2, "draws": 9, "seed": 1}
    wanted = bayesnmf.calibrate("gamma_poisson", "vi", options=PLAIN, **settings)
    monkeypatch.setattr("bayesnmf.studies.calibration.calibrating.fit", stand_in)
    found = bayesnmf.calibrate("gamma_poisson", "svi", **settings)
    assert asked == [("svi", bayesnmf.SVI, True)] * 2
    assert found.settings == "SVI(max_iter=1000)"
    np.testing.assert_array_equal(found.ranks, wanted.ranks)


@pytest.mark.long
def test_svi_is_ranked_and_compiled_once():
    options = bayesnmf.SVI(max_iter=50)
    before = build_functions.cache_info().misses
    result = bayesnmf.calibrate("gamma_poisson", "svi", simulations=2, draws=9, options=options)
    assert result.ranks.shape == (2, 8)
    assert result.ranks.max() <= 9
    assert build_functions.cache_info().misses <= before + 1


# --- running ----------------------------------------------------------------------------------------


def test_same_seed_same_ranks_and_more_simulations_begin_alike():
    one, two = (bayesnmf.calibrate(method="vi", simulations=n, seed=9, options=PLAIN) for n in (3, 5))
    np.testing.assert_array_equal(one.ranks, two.ranks[:3])
    assert not np.array_equal(bayesnmf.calibrate(method="vi", simulations=3, seed=10, options=PLAIN).ranks, one.ranks)


@pytest.mark.filterwarnings("error:.*nothing of")
def test_simulations_are_judged_together_and_none_warns():
    """Of sparse counts as few as these, single fits have idle components."""
    assert len(bayesnmf.calibrate("dirichlet_poisson", "vi", totals=6, simulations=20, draws=9, seed=0).ranks) == 20


def test_totals_are_those_asked_for():
    drawn = bayesnmf.calibrate("dirichlet_poisson", "vi", size=(2, 3), totals=[4, 0], simulations=3, options=PLAIN)
    assert drawn.ranks.shape == (3, 7)
    with pytest.raises(ValueError, match="totals must be a number or 2"):
        bayesnmf.calibrate("dirichlet_poisson", "vi", size=(2, 3), totals=[4, 0, 1])
    assert "rate=0.012" in bayesnmf.calibrate("gamma_poisson", "vi", totals=50, simulations=1).priors


@pytest.mark.parametrize("after", [0, 3])
def test_interruption_keeps_what_there_is(after):
    def stop(label, done, total, objective):
        assert (label, total) == ("vi gamma_poisson", 10)
        if done == after:
            raise KeyboardInterrupt

    if not after:
        with pytest.raises(KeyboardInterrupt):
            bayesnmf.calibrate(method="vi", simulations=10, options=PLAIN, progress=stop)
        return
    result = bayesnmf.calibrate(method="vi", simulations=10, options=PLAIN, progress=stop)
    np.testing.assert_array_equal(result.ranks, bayesnmf.calibrate(method="vi", simulations=3, options=PLAIN).ranks)


def test_a_saved_calibration_comes_back(tmp_path):
    result = calibrated()
    result.save(tmp_path / "ranks.csv")
    again = Calibration.load(tmp_path / "ranks.csv")
    np.testing.assert_array_equal(again.ranks, result.ranks)
    assert again.p_values() == result.p_values()
    assert (again.size, again.settings, again.priors) == (result.size, result.settings, result.priors)
    assert "50 simulations of 6 × 5" in repr(again)
    assert "too narrow" in repr(again)
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"Calibration\.save wrote"):
        Calibration.load(tmp_path / "other.csv")
    with pytest.raises(ValueError, match="must end in"):
        result.save(tmp_path / "ranks.txt")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "map"}, "must have a posterior"),
        ({"method": "bld"}, "must have a posterior"),
        ({"method": "mcmc"}, "method must be one of"),
        ({"model": "poisson"}, "needs a proper prior of the loadings"),
        ({"model": "lda"}, "model must be"),
        ({"priors": Priors(components="parameter")}, "needs a proper prior of the components"),
        ({"draws": 0}, "draws must be at least 1"),
        ({"simulations": 0}, "simulations must be at least 1"),
        ({"seed": -1}, "seed"),
        ({"options": VI()}, "options must be bayesnmf.Gibbs"),
        ({"options": Gibbs()}, "options.draws must be a number for calibrate: found 'auto'"),
        ({"options": Gibbs(chains=1, draws=50)}, "draws must be at most the number that the chains keep, 1 × 50"),
        ({"method": "nuts", "options": NUTS(chains=2, draws=49)}, "2 × 49"),
        ({"method": "vi", "options": VI(priors=Priors(components="parameter"))}, "no posterior to rank"),
        ({"options": Gibbs(draws=99, priors=Priors(Gamma(1, 0), Gamma(1, 1)))}, "improper"),
        ({"priors": Priors(Gamma(1.0, 1.0)), "totals": 3}, "totals must not be given"),
    ],
)
def test_nonsense_is_refused(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        bayesnmf.calibrate(**arguments)


# --- figures ----------------------------------------------------------------------------------------


def test_histograms_and_differences_are_drawn():
    result = calibrated()
    axes = plots.calibration(result, bins=10)
    assert axes.shape == (2, 8)
    for name, (upper, lower) in zip(result.quantities, axes.T, strict=True):
        pit = result.pit[:, result.quantities.index(name)]
        heights = upper.patches[-1].get_data().values
        np.testing.assert_allclose(heights, np.histogram(pit, 10, (0, 1))[0] / 5)
        at, gap = lower.lines[-1].get_data()
        np.testing.assert_allclose(gap[1:-1], np.arange(1, 51) / 50 - np.sort(pit))
        np.testing.assert_array_equal(at[1:-1], np.sort(pit))
        assert name.replace("_", " ") in upper.get_title()
    assert "p-value < 0.001" in axes[0, -1].get_title()


def test_several_calibrations_share_their_quantities():
    one = calibrated()
    fewer = [n for n, name in enumerate(one.quantities) if name not in ("row_total", "log_joint")]
    names = tuple(one.quantities[n] for n in fewer)
    both = {"vi": one, "nuts, LDA": replace(one, method="nuts", quantities=names, ranks=one.ranks[::-1, fewer])}
    axes = plots.calibration(both)
    assert axes.shape == (2, 6)
    assert [text.get_text() for text in axes[0, 0].figure.legends[0].get_texts()] == list(both)
    (chosen,) = plots.calibration(both, "log_likelihood").T
    assert [line.get_color() for line in chosen[1].lines[1:]] == [plots.METHOD_COLOURS[m] for m in ("vi", "nuts")]
    made, given = plt.subplots(2, 1)
    assert list(plots.calibration(both, ["log_likelihood"], axes=given).flat) == list(given)
    assert made in map(plt.figure, plt.get_fignums())
    with pytest.raises(ValueError, match="quantities must be one of"):
        plots.calibration(both, ["row_total"])
    with pytest.raises(TypeError, match=r"bayesnmf\.calibrate"):
        plots.calibration(calibrated().ranks)
    with pytest.raises(ValueError, match="results must not be empty"):
        plots.calibration({})


def test_the_band_holds_uniform_curves():
    """99 of 100 whole curves of uniform PIT are inside."""
    at, low, high = ecdf_band(100)
    samples = np.sort(np.random.default_rng(11).random((1000, 100)))
    inside = 0
    for pit in samples:
        curve = np.searchsorted(pit, at, side="right") / 100
        inside += bool(np.all((curve >= low) & (curve <= high)))
    assert inside >= binom.ppf(0.001, 1000, 0.985)  # the band is itself simulated


def test_arviz_draws_the_tree():
    import arviz_plots

    collection = arviz_plots.plot_ecdf_pit(calibrated().to_datatree(), backend="matplotlib")
    assert "log_joint" in collection.viz["plot"].dataset
