"""ArviZ on the trees of Gibbs and NUTS fits as they are: every diagnostic and plot that a user would call."""

import warnings
from functools import cache

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pytest

import bayesnmf
from bayesnmf import NUTS, Gibbs
from bayesnmf.priors.specification import MODELS

OPTIONS = {
    "gibbs": Gibbs(start="random", chains=2, draws=100, warmup=50, threads=1),
    "nuts": NUTS(chains=2, draws=60, warmup=50),
}
COMPONENTS = {"var_names": ["components"], "coords": {"component": [0], "feature": [0, 3]}}
LOADINGS = {"var_names": ["loadings"], "coords": {"row": [1], "component": [1]}}
PLOTS = [
    "plot_trace", "plot_trace_dist", "plot_rank", "plot_rank_dist", "plot_ess", "plot_ess_evolution", "plot_mcse",
    "plot_autocorr", "plot_forest", "plot_dist", "plot_ridge", "plot_pair",
]  # fmt: skip
WHOLE = ["plot_convergence_dist", "plot_ppc_tstat", "plot_ppc_rootogram", "plot_ppc_pit", "plot_energy"]

# What the tree of a NUTS fit holds besides that of a Gibbs fit does not depend on the model, but for the scale.
every_fit = pytest.mark.parametrize(
    ("model", "method"),
    [*((model, "gibbs") for model in MODELS), ("gamma_poisson", "nuts"), ("dirichlet_gamma", "nuts")],
)


@cache
def fit(model, method):
    drawn_from = "gamma_poisson" if model == "poisson" else model  # a flat prior cannot be drawn from
    counts = bayesnmf.simulate(drawn_from, (6, 5), 2, seed=1, totals=60).counts
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bayesnmf.ConvergenceWarning)  # chains of few draws
        return bayesnmf.fit(counts, model, 2, method, seed=0, options=OPTIONS[method])


@cache
def tree(model, method, cells=False):
    return fit(model, method).to_datatree(log_likelihood=True, posterior_predictive=True, cells=cells)


@pytest.fixture(autouse=True)
def closed():
    """Close every figure."""
    yield
    plt.close("all")


@every_fit
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
        flat, loo = (az.loo(tree(model, method, cells), pointwise=True) for cells in (True, False))
    assert loo.pareto_k.dims == ("row", "feature")
    np.testing.assert_allclose(flat.elpd, loo.elpd, rtol=1e-12)


def drawn_on_figures():
    """Whether some axes have something on them."""
    return any(ax.has_data() for number in plt.get_fignums() for ax in plt.figure(number).axes)


@every_fit
def test_every_plot_draws_something(model, method):
    drawn = tree(model, method)
    for name in PLOTS:
        getattr(az, name)(drawn, **COMPONENTS)
        assert drawn_on_figures(), name
        plt.close("all")
    az.plot_trace_dist(drawn, **LOADINGS)
    az.plot_rank_dist(drawn, **LOADINGS)
    for name in WHOLE:
        if name == "plot_energy" and method == "gibbs":
            continue  # there is no energy without a momentum
        cells = name in ("plot_ppc_rootogram", "plot_ppc_pit")
        with warnings.catch_warnings():
            if name == "plot_ppc_pit":  # it smooths tails, and those of a few discrete replicates may all be equal
                warnings.filterwarnings("ignore", "invalid value encountered in", RuntimeWarning)
            getattr(az, name)(tree(model, method, cells))
        plt.close("all")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Variables counts in .* look discrete")  # its advice is the plots above
        az.plot_ppc_dist(drawn)


def test_plots_of_cells_need_cells():
    """These two take one dimension of observations alone: the reason for `cells`."""
    for plot, error in ((az.plot_ppc_rootogram, ValueError), (az.plot_ppc_pit, TypeError)):
        with pytest.raises(error):
            plot(tree("gamma_poisson", "gibbs"))


def test_cells_keep_their_names():
    by_cell, by_row = (tree("dirichlet_gamma", "gibbs", cells) for cells in (True, False))
    for group in ("log_likelihood", "posterior_predictive", "observed_data"):
        values = by_cell[group]["counts"]
        assert values.dims[-1] == "cell"
        i, j = values["row"].to_numpy(), values["feature"].to_numpy()
        np.testing.assert_array_equal(values, by_row[group]["counts"].to_numpy()[..., i, j])
    assert by_cell["posterior"]["loadings"].dims == ("chain", "draw", "row", "component")
    assert by_cell.attrs == by_row.attrs
    with pytest.raises(TypeError, match="cells must be True or False"):
        fit("dirichlet_gamma", "gibbs").to_datatree(cells=1)


def test_nuts_says_what_it_did_at_every_draw(tmp_path):
    fitted = fit("gamma_poisson", "nuts")
    stats = tree("gamma_poisson", "nuts")["sample_stats"]
    assert set(stats.data_vars) == {"lp", "diverging", "n_steps", "acceptance_rate", "energy"}
    assert stats["diverging"].dtype == bool
    assert stats["diverging"].sum() == fitted.diagnostics["divergences"]
    np.testing.assert_allclose(stats["n_steps"].mean(), fitted.diagnostics["mean_steps"])
    np.testing.assert_allclose(stats["acceptance_rate"].mean(), fitted.diagnostics["mean_acceptance"])
    kept = fitted.to_datatree(draws=20, chains=1)["sample_stats"]
    np.testing.assert_array_equal(kept["energy"], stats["energy"][:1, ::3])
    fitted.save(tmp_path / "fit.nc")
    again = bayesnmf.load(tmp_path / "fit.nc").statistics
    assert again.keys() == fitted.statistics.keys()
    for name, values in fitted.statistics.items():
        np.testing.assert_array_equal(again[name], values)
        assert again[name].dtype == values.dtype
    assert fit("gamma_poisson", "gibbs").statistics is None


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
    drawn = bayesnmf.fit(counts, "gamma_poisson", 2, method, seed=0).to_datatree(posterior_predictive=True, cells=True)
    az.plot_ppc_rootogram(drawn)
    assert drawn_on_figures()
    plt.close("all")
    if method == "vi":
        az.plot_forest(drawn, **COMPONENTS)
        assert drawn_on_figures()
