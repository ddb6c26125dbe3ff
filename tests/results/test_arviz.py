"""ArviZ on the trees of Gibbs and NUTS fits as they are: every diagnostic and plot that a user would call."""

import warnings
from dataclasses import replace
from functools import cache

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pytest
from suites import mostly_long

import bayesnmf
from bayesnmf import MAP, NUTS, VI, Gibbs

OPTIONS = {
    "gibbs": Gibbs(start="random", chains=2, draws=100, warmup=50, threads=1),
    "nuts": NUTS(start="random", chains=2, draws=60, warmup=50),
}
COMPONENTS = {"var_names": ["components"], "coords": {"k": [0], "feature": [0, 3]}}
LOADINGS = {"var_names": ["loadings"], "coords": {"row": [1], "k": [1]}}
PLOTS = [
    "plot_trace", "plot_trace_dist", "plot_rank", "plot_rank_dist", "plot_ess", "plot_ess_evolution", "plot_mcse",
    "plot_autocorr", "plot_forest", "plot_dist", "plot_ridge", "plot_pair",
]  # fmt: skip
WHOLE = [
    "plot_convergence_dist",
    "plot_ppc_tstat",
    "plot_ppc_rootogram",
    "plot_ppc_pit",
    "plot_energy",
    "plot_ppc_dist",
]

# The tree of a fit does not depend on the model, but for the scale and given totals.
FITS = [("dirichlet_gamma", "gibbs"), ("gamma_poisson", "nuts"), ("dirichlet_poisson", "gibbs")]


@cache
def fit(model, method):
    counts = bayesnmf.simulate(model, (6, 5), 2, seed=1, totals=60).counts
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bayesnmf.ConvergenceWarning)  # chains of few draws
        return bayesnmf.fit(counts, model, 2, method, seed=0, options=OPTIONS[method])


@cache
def tree(model, method, entries=False):
    return fit(model, method).to_datatree(log_likelihood=True, posterior_predictive=True, entries=entries)


@pytest.fixture(autouse=True)
def closed():
    """Close every figure."""
    yield
    plt.close("all")


@pytest.mark.parametrize(("model", "method"), mostly_long(FITS))
def test_every_diagnostic_is_finite_and_names_every_entry(model, method, capsys):
    drawn = tree(model, method)
    sizes = {"loadings": (6, 2), "components": (2, 5)} | ({"scale": (6,)} if model == "dirichlet_gamma" else {})
    for diagnose in (az.rhat, az.ess, az.mcse):
        found = diagnose(drawn)
        assert {name: found[name].shape for name in found.data_vars} == sizes
        assert all(np.isfinite(found[name]).all() for name in found.data_vars)
    table = az.summary(drawn, var_names=["loadings", "components"])
    assert len(table) == 22
    assert {"components[0, 3]", "loadings[5, 1]"} <= set(table.index)
    assert len(az.summary(drawn, **COMPONENTS, kind="all_median", ci_prob=0.9)) == 2
    az.diagnose(drawn)
    said = capsys.readouterr().out
    # what it has the statistics for, it judges
    assert ("diverg" in said.lower() or "treedepth" in said.lower().replace(" ", "")) == (method == "nuts")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Estimated shape parameter of Pareto")  # few draws
        flat, loo = (az.loo(tree(model, method, entries), pointwise=True) for entries in (True, False))
    assert loo.pareto_k.dims == ("row", "feature")
    np.testing.assert_allclose(flat.elpd, loo.elpd, rtol=1e-12)


def drawn_on_figures():
    """Whether some axes have something on them."""
    return any(ax.has_data() for number in plt.get_fignums() for ax in plt.figure(number).axes)


@pytest.mark.parametrize("name", mostly_long(PLOTS, [1, 8]))
def test_every_plot_of_draws_draws_something(name):
    getattr(az, name)(tree("gamma_poisson", "gibbs"), **COMPONENTS)
    assert drawn_on_figures()


@pytest.mark.parametrize("name", mostly_long(["plot_trace_dist", "plot_rank_dist"], [1]))
def test_every_model_has_plots_of_its_draws(name):
    getattr(az, name)(tree("dirichlet_gamma", "gibbs"), **LOADINGS)
    assert drawn_on_figures()


@pytest.mark.parametrize("name", mostly_long(WHOLE, [2]))
def test_every_plot_of_a_whole_tree_draws_something(name):
    method = "nuts" if name == "plot_energy" else "gibbs"
    drawn = tree("gamma_poisson", method, name in ("plot_ppc_rootogram", "plot_ppc_pit"))
    with warnings.catch_warnings():
        if name == "plot_ppc_pit":  # it smooths tails, and those of a few discrete replicates may all be equal
            warnings.filterwarnings("ignore", "invalid value encountered in", RuntimeWarning)
        if name == "plot_ppc_dist":  # its advice is the plots above
            warnings.filterwarnings("ignore", "Variables counts in .* look discrete")
        getattr(az, name)(drawn)
    assert drawn_on_figures()


def test_plots_of_entries_need_entries():
    """These two take one dimension of observations alone: the reason for `entries`."""
    for plot, error in ((az.plot_ppc_rootogram, ValueError), (az.plot_ppc_pit, TypeError)):
        with pytest.raises(error):
            plot(tree("gamma_poisson", "gibbs"))


def test_entries_keep_their_names():
    by_entry, by_row = (tree("dirichlet_gamma", "gibbs", entries) for entries in (True, False))
    for group in ("log_likelihood", "posterior_predictive", "observed_data"):
        values = by_entry[group]["counts"]
        assert values.dims[-1] == "entry"
        i, j = values["row"].to_numpy(), values["feature"].to_numpy()
        np.testing.assert_array_equal(values, by_row[group]["counts"].to_numpy()[..., i, j])
    assert by_entry["posterior"]["loadings"].dims == ("chain", "draw", "row", "k")
    assert by_entry.attrs == by_row.attrs
    with pytest.raises(TypeError, match="entries must be True or False"):
        fit("dirichlet_gamma", "gibbs").to_datatree(entries=1)


def as_if_by_nuts():
    """Return a fit with the statistics that NUTS keeps, made without compiling it."""
    drawn, rng = fit("gamma_poisson", "gibbs"), np.random.default_rng(0)
    energy, shares = rng.normal(size=drawn.trace.shape), rng.uniform(size=drawn.trace.shape)
    steps = rng.integers(1, 16, drawn.trace.shape).astype(np.int32)
    statistics = {"energy": energy, "num_steps": steps, "accept_prob": shares, "diverging": shares < 0.1}
    options = NUTS(chains=2, draws=100, priors=drawn.priors)
    return replace(drawn, method="nuts", options=options, statistics=statistics)


def test_the_statistics_of_nuts_are_in_the_tree_and_in_files(tmp_path):
    fitted = as_if_by_nuts()
    stats = fitted.to_datatree(draws=20, chains=1)["sample_stats"]
    names = {"energy": "energy", "num_steps": "n_steps", "accept_prob": "acceptance_rate", "diverging": "diverging"}
    assert set(stats.data_vars) == {"lp", *names.values()}
    fitted.save(tmp_path / "fit.nc")
    again = bayesnmf.load(tmp_path / "fit.nc").statistics
    for name, shown in names.items():
        np.testing.assert_array_equal(stats[shown], fitted.statistics[name][:1, ::5])
        np.testing.assert_array_equal(again[name], fitted.statistics[name])
        assert again[name].dtype == fitted.statistics[name].dtype
    assert fit("gamma_poisson", "gibbs").statistics is None


@pytest.mark.long
def test_nuts_says_what_it_did_at_every_draw():
    fitted = fit("gamma_poisson", "nuts")
    stats = tree("gamma_poisson", "nuts")["sample_stats"]
    assert set(stats.data_vars) == {"lp", "diverging", "n_steps", "acceptance_rate", "energy"}
    assert stats["diverging"].dtype == bool
    assert stats["diverging"].sum() == fitted.diagnostics["divergences"]
    np.testing.assert_allclose(stats["n_steps"].mean(), fitted.diagnostics["mean_steps"])
    np.testing.assert_allclose(stats["acceptance_rate"].mean(), fitted.diagnostics["mean_acceptance"])


@pytest.mark.long
def test_energies_have_their_mean():
    """Energy is potential and kinetic; the mean of the kinetic, ½ p'M⁻¹p, is half the number of parameters.

    The potential is minus the log joint with the log Jacobian of the sampler's space, Σ log of all entries, also for
    the sticks that a simplex is broken into.
    """
    fitted = fit("gamma_poisson", "nuts")
    loadings, components = fitted.posterior.loadings, fitted.posterior.components
    jacobian = np.log(loadings).sum(axis=(2, 3)) + np.log(components).sum(axis=(2, 3))
    kinetic = fitted.statistics["energy"] + fitted.trace + jacobian
    assert np.all(kinetic > 0)
    parameters = 6 * 2 + 2 * 4
    assert abs(kinetic.mean() - parameters / 2) < 4.5 * az.mcse(kinetic)


@pytest.mark.parametrize("method", ["vi", "map"])
def test_trees_without_chains_draw_too(method):
    counts = fit("gamma_poisson", "gibbs").counts
    options = {"vi": VI, "map": MAP}[method](start="svd")
    fitted = bayesnmf.fit(counts, "gamma_poisson", 2, method, seed=0, options=options)
    drawn = fitted.to_datatree(posterior_predictive=True, entries=True)
    az.plot_ppc_rootogram(drawn)
    assert drawn_on_figures()
    plt.close("all")
    if method == "vi":
        az.plot_forest(drawn, **COMPONENTS)
        assert drawn_on_figures()
