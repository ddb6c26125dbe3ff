"""The convergence plot shows gaps to the best of all fits, and KKT residuals, of fits that have a best in common."""

import warnings
from dataclasses import replace
from functools import cache, partial

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from plain import plain_map, plain_vi
from smallfits import COUNTS, K

import bayesnmf
from bayesnmf import BLD, Gamma, Priors, plots
from bayesnmf.plots.convergence import gap_to, resolution
from bayesnmf.plots.style import PALETTE


@cache
def fit(method="map", model="gamma_poisson", counts=None, rank=K, **options):
    """Return one fit of the small counts."""
    kind = {"map": plain_map, "vi": plain_vi, "bld": partial(BLD, start="random")}[method]
    made = kind(max_iter=30, threads=1, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bayesnmf.ConvergenceWarning)
        return bayesnmf.fit(COUNTS if counts is None else np.array(counts), model, rank, method, seed=1, options=made)


@pytest.fixture(autouse=True)
def closed():
    """Close every figure."""
    yield
    plt.close("all")


def drawn(ax):
    return {line.get_label().split(":")[0]: line for line in ax.lines}


def test_gaps_are_to_the_best_of_all_fits():
    fits = {"em": fit(), "extrapolated": fit(extrapolate=True)}
    best = max(one.trace.max() for one in fits.values())
    axes = plots.convergence(fits)
    assert axes.shape == (2, 1)
    for label, one in fits.items():
        gap, residual = drawn(axes[0, 0])[label], drawn(axes[1, 0])[label]
        np.testing.assert_array_equal(gap.get_xdata(), np.arange(1, 31))
        np.testing.assert_array_equal(gap.get_ydata(), np.maximum(best - one.trace, resolution(best))[1:])
        np.testing.assert_array_equal(residual.get_ydata(), one.residuals[1:])
    assert {ax.get_xscale() for ax in axes.flat} == {ax.get_yscale() for ax in axes.flat} == {"log"}
    worse, better = sorted(fits, key=lambda label: fits[label].trace[-1])
    names = [text.get_text() for text in axes[0, 0].figure.legends[0].get_texts()]
    assert f"{better}: at the best" in names
    assert next(name for name in names if name.startswith(f"{worse}:")).endswith("behind")


def test_a_given_best_moves_the_gaps_and_must_be_one():
    one = fit()
    best = one.trace.max() + 5
    line = drawn(plots.convergence(one, best=best)[0, 0])["map"]
    np.testing.assert_allclose(line.get_ydata()[-1], best - one.trace[-1])
    with pytest.raises(ValueError, match="best must be at least"):
        plots.convergence(one, best=one.trace.max() - 5)
    with pytest.raises(TypeError, match="best must be a finite number"):
        plots.convergence(one, best="high")
    with pytest.raises(TypeError, match="best must be a finite number"):
        plots.convergence(one, best=np.nan)
    with pytest.raises(ValueError, match="best must belong to one kind of objective, but fits have 2"):
        plots.convergence({"map": one, "vi": fit("vi")}, best=best)


def test_every_kind_of_objective_has_its_column():
    fits = {"map": fit(), "vi": fit("vi"), "bld": fit("bld", "dirichlet_gamma")}
    axes = plots.convergence(fits)
    assert axes.shape == (2, 3)
    assert [list(drawn(ax)) for ax in axes[0]] == [["map"], ["vi"], ["bld"]]
    titles = [ax.get_title().split("\n")[0] for ax in axes[0]]
    assert titles == ["log joint", "evidence lower bound", "log p(S)"]
    assert [ax.axison for ax in axes[1]] == [True, False, False]  # map alone has residuals
    assert [text.get_text() for text in axes[1, 1].texts] == ["no KKT residual"]
    assert plots.convergence({"vi": fits["vi"], "bld": fits["bld"]}).shape == (1, 2)


def test_fits_by_one_method_have_colours_of_their_own():
    fits = {"em": fit(), "extrapolated": fit(extrapolate=True)}
    lines = plots.convergence(fits)[0, 0].lines
    assert [line.get_color() for line in lines] == list(PALETTE[:2])
    (alone,) = plots.convergence(fits["em"])[0, 0].lines
    assert alone.get_color() == plots.METHOD_COLOURS["map"]


def test_noisy_objectives_and_chains_are_left_out():
    noisy = replace(fit("vi"), method="svi", options=bayesnmf.SVI())
    chains = replace(fit("vi"), method="gibbs")
    assert [list(drawn(ax)) for ax in plots.convergence({"map": fit(), "svi": noisy, "gibbs": chains})[0]] == [["map"]]
    with pytest.raises(ValueError, match="by 'map', 'vi', 'bld', which climb an objective: found none"):
        plots.convergence({"svi": noisy, "gibbs": chains})


def test_fits_without_a_common_best_are_refused():
    first = fit(priors=Priors(Gamma(1.0, 0.1)))
    others = {
        "counts": fit(priors=first.options.priors, counts=tuple(map(tuple, COUNTS.to_numpy() + 1))),
        "rank": fit(priors=first.options.priors, rank=2),
        "priors": fit(priors=Priors(Gamma(1.0, 0.2))),
    }
    for differs, other in others.items():
        with pytest.raises(ValueError, match=f"'other' and 'first' differ in {differs}"):
            plots.convergence({"first": first, "other": other})
    again = fit(priors=Priors(Gamma(1.0, 0.1)), counts=tuple(map(tuple, COUNTS.to_numpy())))
    assert plots.convergence({"first": first, "again": again}).shape == (2, 1)  # equal counts and priors, read anew


def test_gaps_below_rounding_are_drawn_at_it():
    trace = np.array([-np.inf, -2e6, -1e6 - 1e-9, -1e6])
    np.testing.assert_array_equal(gap_to(-1e6, trace), [np.inf, 1e6, 1e-6, 1e-6])


@pytest.mark.parametrize("length", [1, 2])
def test_short_runs_and_residuals_of_zero_are_drawn(length):
    one = fit()
    short = replace(one, trace=one.trace[:length], residuals=np.zeros(length))
    axes = plots.convergence(short)
    axes[0, 0].figure.canvas.draw()  # warnings are errors
    assert all(np.isnan(line.get_ydata()).all() for line in axes[1, 0].lines)


def test_it_draws_on_given_axes_and_leaves_settings_alone():
    before = dict(mpl.rcParams)
    _, given = plt.subplots(2, 1)
    axes = plots.convergence(fit(), axes=given)
    assert list(axes.flat) == list(given)
    assert [text.get_text() for text in given[0].get_legend().get_texts()] == ["map: at the best"]
    assert len(plt.get_fignums()) == 1
    with pytest.raises(ValueError, match="axes must be 1 axes"):
        plots.convergence(fit("vi"), axes=given)
    figure = plots.convergence(fit(), figsize=(5, 4))[0, 0].figure
    assert tuple(figure.get_size_inches()) == (5, 4)
    figure.canvas.draw()
    assert dict(mpl.rcParams) == before


def test_the_plunge_of_the_best_fit_does_not_fill_the_panel():
    behind, ahead = fit(), fit(extrapolate=True)
    axes = plots.convergence({"behind": behind, "ahead": ahead})
    gap = ahead.trace.max() - behind.trace[-1]
    assert gap > 1e-3
    assert axes[0, 0].get_ylim()[0] == pytest.approx(gap / 10)
    best = ahead.trace.max() + 1e-6
    low = plots.convergence({"behind": behind, "ahead": ahead}, best=best)[0, 0].get_ylim()[0]
    assert low < 1e-6  # nothing is hidden where the best is given
