"""Figures show what they say: matched components, quantiles of the posterior, traces and ranks."""

import re
import warnings
from dataclasses import replace
from inspect import getdoc, signature
from itertools import pairwise

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgba
from scipy.stats import beta, gamma
from suites import mostly_long

import bayesnmf
from bayesnmf import plots
from bayesnmf.inference import alignment
from bayesnmf.plots.agreement import mean_cosines
from bayesnmf.plots.convergence import rise_at_end, running_mean
from bayesnmf.plots.mixing import rank_counts, worst_entries
from bayesnmf.plots.style import grid_shape
from bayesnmf.plots.summaries import normalised_components
from bayesnmf.results.mixing import r_hat_and_ess

RANK, ROWS, FEATURES = 3, 30, 12
COLOURS = plots.METHOD_COLOURS


def simulate(seed=0):
    """Counts (30, 12) of three components that share few features."""
    rng = np.random.default_rng(seed)
    components = rng.dirichlet(np.full(FEATURES, 0.3), RANK)
    return rng.poisson(rng.gamma(0.7, 40, (ROWS, RANK)) @ components)


def fit(model="gamma_poisson", method="vi", **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bayesnmf.ConvergenceWarning)
        if method != "gibbs":
            options = {"start": "svd", "max_iter": 40, "threads": 1, **options}  # figures need no converged fit
        if method == "vi":
            options = {"intervals": "mean_field", **options}
        made = {"map": bayesnmf.MAP, "vi": bayesnmf.VI, "gibbs": bayesnmf.Gibbs}[method](**options)
        return bayesnmf.fit(simulate(), model, RANK, method, seed=3, options=made)


def shuffled(fitted):
    """Return the same point estimate, components in another order."""
    order = np.array([2, 0, 1])
    return replace(fitted, loadings=fitted.loadings[:, order], components=fitted.components[order])


@pytest.fixture(scope="module")
def fits():
    """One fit a method; svi and nuts are vi and gibbs under another name, with a trace of their own."""
    vi = fit()
    gibbs = fit(method="gibbs", chains=2, draws=40, warmup=5, start=vi, threads=1)
    noisy = -500 + np.random.default_rng(0).normal(size=200)
    svi = replace(vi, method="svi", options=bayesnmf.SVI(max_iter=200), trace=noisy)
    return {
        "map": shuffled(fit(method="map")),
        "vi": vi,
        "svi": svi,
        "gibbs": gibbs,
        "nuts": replace(gibbs, method="nuts"),
    }


@pytest.fixture(autouse=True)
def closed():
    """Close every figure, of files that ran before, too."""
    plt.close("all")
    yield
    plt.close("all")


DRAWERS = {
    "images": lambda fits, **options: plots.components(fits, (3, 4), **options),
    "top features": lambda fits, **options: plots.components(fits, n_features=4, **options),
    "loadings": lambda fits, **options: plots.loadings_intervals(fits, [0, 7], **options),
    "objectives": plots.objectives,
    "chains": lambda fits, **options: plots.chains(fits["gibbs"], n=2, **options),
    "agreement": plots.agreement,
    "lift": lambda fits, **options: plots.top_features(fits, 4, "lift", **options),
}


@pytest.mark.parametrize("name", DRAWERS)
def test_one_figure_is_made_and_settings_are_left_alone(fits, name):
    before = dict(mpl.rcParams)
    axes = np.atleast_1d(DRAWERS[name](fits, figsize=(9, 7)))
    assert len(plt.get_fignums()) == 1
    assert {ax.figure.number for ax in axes.flat} == set(plt.get_fignums())
    assert tuple(axes.flat[0].figure.get_size_inches()) == (9, 7)
    axes.flat[0].figure.draw_without_rendering()  # warnings of the layout are errors
    assert dict(mpl.rcParams) == before


@pytest.mark.parametrize("name", DRAWERS)
def test_given_axes_are_drawn_on(fits, name):
    shapes = {"images": (2, 3), "loadings": (1, 2), "objectives": (1, 2), "chains": (3, 2)}
    shapes |= dict.fromkeys(("top features", "lift"), (1, 3))
    some = {label: fits[label] for label in ("map", "gibbs" if name == "chains" else "vi")}
    _, axes = plt.subplots(*shapes.get(name, (1, 1)), squeeze=False)
    drawn = np.atleast_1d(DRAWERS[name](some, axes=axes if axes.size > 1 else axes[0, 0]))
    assert len(plt.get_fignums()) == 1
    assert list(drawn.flat) == list(axes.flat)
    with pytest.raises(ValueError, match="axes must be"):
        DRAWERS[name](some, axes=np.append(axes.flat, axes.flat[0]))


def test_images_are_the_matched_components(fits):
    axes = plots.components(fits, (3, 4), reference="vi")
    assert axes.shape == (len(fits), RANK)
    target = fits["vi"].components
    for row, (label, fitted) in zip(axes, fits.items(), strict=True):
        matched = fitted.components[alignment.match_components(fitted.components, target)]
        for k, ax in enumerate(row):
            shown = ax.images[0].get_array()
            np.testing.assert_allclose(shown.ravel(), matched[k] / matched[k].sum())
            assert ax.get_xlabel() == ("" if label == "vi" else f"{alignment.cosine(matched, target)[k, k]:.3f}")
        assert row[0].get_ylabel() == label
    for k, column in enumerate(axes.T):
        assert len({ax.images[0].get_clim() for ax in column}) == 1
        assert column[0].get_title() == f"component {k}"
    said = axes[0, 0].figure.get_suptitle()
    assert said.startswith("Components, each summing to 1")
    assert said.endswith("cosine with the component of vi; 1 if equal")


def test_images_of_gamma_components_sum_to_one():
    priors = bayesnmf.Priors(bayesnmf.Gamma(1.0, 0.1), bayesnmf.Gamma(0.5, 2.0))
    fitted = fit(priors=priors)
    for ax in plots.components({"vi": fitted}, (3, 4)).flat:
        assert ax.images[0].get_array().sum() == pytest.approx(1.0)
    assert not np.allclose(fitted.components.sum(axis=1), 1.0)


def lines_of(ax, colour):
    """Ends of the horizontal or vertical lines of one colour, (lines, 2, 2)."""
    found = [c for c in ax.collections if np.allclose(c.get_color()[0], to_rgba(colour))]
    return np.concatenate([c.get_segments() for c in found]) if found else np.empty((0, 2, 2))


def test_top_features_have_the_quantiles_of_q(fits):
    pair = {"map": fits["map"], "vi": fits["vi"]}
    axes = plots.top_features(pair, 5, "share", reference="vi")
    assert axes.shape == (RANK,)
    alpha = fits["vi"].posterior.components.concentration
    for k, ax in enumerate(axes):
        top = np.argsort(-fits["vi"].components[k])[:5]
        assert [text.get_text() for text in ax.get_yticklabels()] == [str(j) for j in top]
        ends = lines_of(ax, COLOURS["vi"])[:, :, 0]
        rest = alpha[k].sum() - alpha[k]
        expected = beta.ppf([[0.05], [0.95]], alpha[k, top], rest[top]).T
        np.testing.assert_allclose(ends, expected)
        assert not len(lines_of(ax, COLOURS["map"]))
        (points,) = [line for line in ax.lines if line.get_label() == "map (point)"]
        order = alignment.match_components(fits["map"].components, fits["vi"].components)
        np.testing.assert_allclose(points.get_xdata(), fits["map"].components[order[k], top])
        widths = [bar.get_width() for bar in ax.patches]
        np.testing.assert_allclose(widths, beta.ppf(0.5, alpha[k, top], rest[top]))
    assert [text.get_text() for text in axes[0].figure.legends[0].get_texts()] == ["map (point)", "vi (mean field)"]


@pytest.mark.parametrize("order", ["distinct", "lift"])
def test_features_are_common_here_and_rare_elsewhere(fits, order):
    vi = fits["vi"]
    shares = vi.components / vi.components.sum(axis=1, keepdims=True)
    for k, ax in enumerate(plots.top_features(vi, 4, order)):
        others = np.arange(RANK) != k
        beside = vi.expected_sizes[others] @ shares[others] / vi.expected_sizes[others].sum()
        score, label = np.sqrt(shares[k]) - np.sqrt(beside), "the rest of the counts"
        if order == "lift":
            beside, label = shares.mean(axis=0), "mean of all components"
            score = shares[k] * np.log(shares[k] / beside)
        top = np.argsort(-score)[:4]
        assert [text.get_text() for text in ax.get_yticklabels()] == [str(j) for j in top]
        (ticks,) = [line for line in ax.lines if line.get_label() == label]
        np.testing.assert_allclose(ticks.get_xdata(), beside[top])


@pytest.mark.parametrize(("order", "named"), [("next", "the next best component"), ("rest", "the other components")])
def test_features_can_be_those_that_set_components_apart(fits, order, named):
    vi = fits["vi"]
    axes = plots.top_features(vi, 4, order)
    wanted = bayesnmf.markers(vi, 4, against=order)["feature"].astype(str).to_numpy().reshape(RANK, 4)
    for k, ax in enumerate(axes):
        assert [text.get_text() for text in ax.get_yticklabels()] == wanted[k].tolist()
    assert named in axes[0].figure.get_suptitle()


def test_a_fit_by_itself_is_drawn_as_one_in_a_mapping(fits):
    vi = fits["vi"]
    for draw in (
        plots.components,
        plots.objectives,
        lambda given: plots.components(given, (3, 4)),
        lambda given: plots.loadings_intervals(given, [0]),
    ):
        alone, mapped = draw(vi), draw({"vi": vi})
        assert alone.shape == mapped.shape
        for one, other in zip(alone.flat, mapped.flat, strict=True):
            assert [line.get_label() for line in one.lines] == [line.get_label() for line in other.lines]
            for line, twin in zip(one.lines, other.lines, strict=True):
                np.testing.assert_array_equal(line.get_xydata(), twin.get_xydata())


def edge_case(name):
    """Counts that are legal and awkward, and a rank."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(4.0, (25, 21))
    if name == "one row":
        return counts[:1], 2
    if name == "zeros":
        counts[[0, 3]] = counts[:, [1, 5]] = 0
    names = [f"a feature of which much could be said {j}" for j in range(21)]
    rows = [f"a sample whose name is far too long for an axis {i}" for i in range(25)]
    frame = pd.DataFrame(counts, rows, names)
    if name == "a row of rank 1":
        return frame[:1], 1
    return frame, {"rank 1": 1, "rank 20": 20}.get(name, 3)


@pytest.mark.parametrize("name", mostly_long(["a row of rank 1", "rank 1", "one row", "zeros", "rank 20"]))
def test_awkward_fits_are_drawn_without_a_warning(name):
    counts, rank = edge_case(name)
    options = {
        "map": bayesnmf.MAP(start="svd", max_iter=5, threads=1),
        "vi": bayesnmf.VI(start="svd", max_iter=5, threads=1, intervals="mean_field"),
        "bld": bayesnmf.BLD(max_iter=3, start="random", threads=1),
        "gibbs": bayesnmf.Gibbs(chains=2, draws=10, warmup=2, start="random", threads=1),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bayesnmf.ConvergenceWarning)
        awkward = {
            method: bayesnmf.fit(counts, "dirichlet_gamma", rank, method, seed=0, options=option)
            for method, option in options.items()
        }
    climbers = {method: fitted for method, fitted in awkward.items() if method != "gibbs"}
    with_posterior = {method: awkward[method] for method in ("vi", "gibbs")}
    rows = [awkward["vi"].row_names[0]]
    drawn = [
        (plots.components(with_posterior, (3, 7)), (2, rank)),
        (plots.components(awkward, n_features=3), (rank,)),
        (plots.top_features(awkward["map"], 5, "lift"), (rank,)),
        (plots.loadings_intervals(awkward, rows), (1,)),
        (plots.objectives(climbers), (3,)),
        (plots.convergence(awkward["map"]), (2, 1)),
        (plots.chains(awkward["gibbs"], 1), (2, 2)),
        (plots.agreement(awkward), ()),
        *((plots.structure(fitted, figsize=(6, 3)), ()) for fitted in with_posterior.values()),
    ]
    for axes, shape in drawn:
        assert np.shape(axes) == shape
        np.ravel(axes)[0].figure.draw_without_rendering()


def test_grids_fill_their_rows_evenly():
    assert [grid_shape(count, 3.0) for count in (1, 3, 4, 5, 7)] == [(1, 1), (1, 3), (2, 2), (2, 3), (3, 3)]
    assert grid_shape(2, 20) == (2, 1)


def test_components_without_posterior_are_points():
    fitted = fit(priors=bayesnmf.Priors(components="parameter"))
    axes = plots.components({"vi": fitted}, n_features=50)
    assert len(axes[0].get_yticklabels()) == FEATURES
    assert axes[0].get_legend_handles_labels()[1] == ["vi (point)", "the rest of the counts"]


def test_loadings_have_the_quantiles_of_each_posterior(fits):
    axes = plots.loadings_intervals(fits, [4, 7], interval=0.8, reference="vi")
    assert [ax.get_title() for ax in axes] == ["row 4", "row 7"]
    assert {ax.get_ylabel() for ax in axes} == {"loading (counts)"}
    q, draws = fits["vi"].posterior.loadings, fits["gibbs"].posterior.loadings
    order = alignment.match_components(fits["gibbs"].components, fits["vi"].components)
    for row, ax in zip([4, 7], axes, strict=True):
        shape, rate = (np.broadcast_to(value, (ROWS, RANK))[row] for value in (q.shape, q.rate))
        expected = gamma.ppf([[0.1], [0.9]], shape, scale=1 / rate).T
        np.testing.assert_allclose(lines_of(ax, COLOURS["vi"])[:, :, 1], expected)
        expected = np.quantile(draws[:, :, row][..., order], [0.1, 0.9], axis=(0, 1)).T
        np.testing.assert_allclose(lines_of(ax, COLOURS["gibbs"])[:, :, 1], expected)


def test_map_is_a_bare_matched_point(fits):
    (ax,) = plots.loadings_intervals(fits, [7], reference="vi")
    assert not len(lines_of(ax, COLOURS["map"]))
    (points,) = [line for line in ax.lines if line.get_label() == "map (point)"]
    order = alignment.match_components(fits["map"].components, fits["vi"].components)
    np.testing.assert_allclose(points.get_ydata(), fits["map"].loadings[7, order])


@pytest.mark.parametrize("model", ["dirichlet_poisson", "dirichlet_gamma"])
def test_proportions_have_beta_quantiles(model):
    fitted = fit(model)
    (ax,) = plots.loadings_intervals({"vi": fitted}, "3")
    assert ax.get_ylabel() == "loading (proportion)"
    alpha = fitted.posterior.loadings.concentration[3]
    expected = beta.ppf([[0.05], [0.95]], alpha, alpha.sum() - alpha).T
    np.testing.assert_allclose(lines_of(ax, COLOURS["vi"])[:, :, 1], expected)
    at = np.zeros((1, 1), int), np.zeros((1, 1), int)
    assert np.all(bayesnmf.Dirichlet(np.ones((1, 1))).quantiles(at, np.array([0.05, 0.95])) == 1)  # rank 1


def test_loadings_carry_the_sum_of_gamma_components():
    priors = bayesnmf.Priors(bayesnmf.Gamma(1.0, 0.1), bayesnmf.Gamma(0.5, 2.0))
    fitted = fit(method="map", basis="log", priors=priors)
    (ax,) = plots.loadings_intervals({"map": fitted}, [0])
    fitted_means = ax.lines[0].get_ydata() @ normalised_components(fitted)
    np.testing.assert_allclose(fitted_means, fitted.loadings[0] @ fitted.components)


def points_of(ax, label):
    (points,) = [line for line in ax.lines if line.get_label().startswith(label)]
    return points.get_ydata()


def test_shares_are_those_of_the_table_whatever_the_unit_of_loadings():
    both = {"vi": fit(), "d": fit("dirichlet_gamma")}
    for label, ax in zip([4, 7], plots.loadings_intervals(both, [4, 7], values="shares"), strict=True):
        assert ax.get_ylabel() == "share of the row's counts"
        orders = {"vi": np.arange(RANK), "d": alignment.match_components(both["d"].components, both["vi"].components)}
        for name, order in orders.items():
            table = both[name].shares([label]).iloc[order]
            np.testing.assert_allclose(points_of(ax, name), table["share"])
    np.testing.assert_allclose(lines_of(ax, COLOURS["vi"])[:, :, 1], both["vi"].shares([7])[["low", "high"]])
    (point,) = plots.loadings_intervals(fit(method="map"), [4], values="shares")
    np.testing.assert_allclose(points_of(point, "map"), bayesnmf.to_topic_model(fit(method="map")).proportions[4])


@pytest.mark.parametrize("model", ["gamma_poisson", "dirichlet_poisson", "dirichlet_gamma"])
def test_counts_are_what_the_rows_are_expected_to_have(model):
    exposure = {} if model == "dirichlet_poisson" else {"row_exposure": np.linspace(0.5, 2, ROWS)}
    options = bayesnmf.MAP(start="svd", max_iter=5, tol=0, kkt_tol=0, threads=1)
    point = bayesnmf.fit(simulate(), model, RANK, "map", seed=3, options=options, **exposure)
    (ax,) = plots.loadings_intervals(point, [4], values="counts")
    topics = bayesnmf.to_topic_model(point)
    np.testing.assert_allclose(points_of(ax, "map"), topics.proportions[4] * topics.totals[4])
    assert ax.get_ylabel() == "expected counts"
    (own,) = plots.loadings_intervals(fit(model), [4])
    (counts,) = plots.loadings_intervals(fit(model), [4], values="counts")
    ratio = lines_of(counts, COLOURS["vi"])[:, :, 1] / lines_of(own, COLOURS["vi"])[:, :, 1]
    total = 1.0 if model == "gamma_poisson" else bayesnmf.to_topic_model(fit(model)).totals[4]
    np.testing.assert_allclose(ratio, total, rtol=1e-9)  # of ends of intervals


def test_the_leading_components_of_the_rows_are_drawn():
    rank = 30
    counts = np.random.default_rng(0).poisson(np.linspace(1, 30, rank), (4, rank))
    counts[0] = counts[0, ::-1]
    options = bayesnmf.MAP(max_iter=1, tol=0, kkt_tol=0, threads=1)
    fitted = bayesnmf.fit(counts, rank=rank, method="map", fixed_components=np.eye(rank), options=options, seed=0)
    shares = bayesnmf.to_topic_model(fitted).proportions
    for rows, n, number in (([0], None, 20), ([1, 2], 3, 3), ([0, 1], 99, rank)):
        ax = plots.loadings_intervals(fitted, rows, n=n)[0]
        largest = np.sort(np.argsort(-shares[rows].mean(axis=0))[:number])
        assert [text.get_text() for text in ax.get_xticklabels()] == [str(k) for k in largest]
        np.testing.assert_allclose(points_of(ax, "map"), fitted.loadings[rows[0], largest])
        assert ax.get_xlabel() == ("component" if number == rank else f"component (the leading {number} of {rank})")
    with pytest.raises(ValueError, match="values must be one of 'loadings', 'shares', 'counts': found 'share'"):
        plots.loadings_intervals(fitted, [0], values="share")


def test_each_kind_of_objective_has_its_panel(fits):
    both = {**fits, "vi again": fits["vi"]}
    axes = plots.objectives(both)
    kinds = ["log joint\n", "evidence lower bound\nelbo_augmented ", "evidence lower bound\nelbo_marginal, estimated "]
    assert [ax.get_title() for ax in axes] == [f"{kind}of gamma_poisson" for kind in kinds]
    assert [len(ax.lines) for ax in axes] == [1, 2, 2]
    first, again = axes[1].lines
    assert first.get_color() == again.get_color() == COLOURS["vi"]
    assert first.get_linestyle() != again.get_linestyle()
    np.testing.assert_array_equal(first.get_ydata(), fits["vi"].trace[1:])
    np.testing.assert_array_equal(first.get_xdata(), np.arange(1, len(fits["vi"].trace)))


def test_a_log_joint_under_flat_priors_is_called_log_likelihood_and_a_log_basis_is_named():
    flat = fit("poisson", "map", priors=bayesnmf.Priors(bayesnmf.Gamma(1.0, 0.0), "parameter"))
    sparse = fit(method="map", basis="log", priors=bayesnmf.Priors(bayesnmf.Gamma(0.5, 0.1), bayesnmf.Dirichlet(0.5)))
    titles = [plots.objectives(each)[0].get_title() for each in (flat, sparse)]
    assert titles == ["log-likelihood\nof poisson", "log joint, log basis\nof gamma_poisson"]


def test_the_axis_of_objectives_begins_after_a_tenth_of_the_iterations(fits):
    trace = np.concatenate([[-np.inf], -1000 / np.arange(1, 101) ** 2])
    (ax,) = plots.objectives(replace(fits["vi"], trace=trace))
    low, high = ax.get_ylim()
    assert low == pytest.approx(-10 - 0.05 * 9.9, rel=1e-3)
    assert high > trace.max()
    assert ax.get_legend_handles_labels()[1] == [f"vi: −0.1 (+{trace[-1] - trace[-11]:.2g})"]


def test_rises_are_those_of_the_last_tenth_and_running_means_are_centred():
    assert rise_at_end(np.arange(41.0) ** 2) == 40**2 - 36**2
    assert rise_at_end(np.array([-5.0, -3.0])) == 2
    assert rise_at_end(np.array([-3.0])) == 0
    assert rise_at_end(np.array([-3.0, -4.0])) == -1
    assert np.isnan(rise_at_end(np.array([-np.inf, -4.0])))
    steps, means = running_mean(np.arange(1.0, 11.0), 4)
    np.testing.assert_allclose(steps, means)


def test_short_traces_are_drawn(fits):
    for iterations in (0, 1):
        assert np.ravel(plots.objectives({"vi": fit(max_iter=iterations)})).shape == (1,)
    assert np.ravel(plots.objectives({"svi": replace(fits["svi"], trace=np.array([-5.0]))})).shape == (1,)


def test_chains_show_every_draw_with_r_hat_and_ess(fits):
    axes = plots.chains(fits["nuts"], n=3)
    assert axes.shape == (4, 2)
    for ax, draws in zip(axes[0, 0].lines, fits["nuts"].trace, strict=True):
        np.testing.assert_array_equal(ax.get_ydata(), draws)
    assert all("R-hat" in ax.get_title() and "ESS" in ax.get_title() for ax in axes[:, 0])
    assert f"{fits['gibbs'].diagnostics['r_hat_log_joint']:.3f}" in axes[0, 0].get_title()
    assert [text.get_text() for text in axes[0, 0].figure.legends[0].get_texts()] == ["chain 0", "chain 1"]
    assert all(len(ax.patches) == 2 for ax in axes[:, 1])


def test_the_entries_are_those_that_mixed_worst_so_that_no_figure_is_better_than_the_status(fits):
    gibbs = fits["gibbs"]
    entries = worst_entries(gibbs, gibbs.posterior, 5)
    sizes = [float(r_hat_and_ess(entry.draws)[1]) for entry in entries]
    assert sizes == sorted(sizes)
    every = [r_hat_and_ess(side)[1].ravel() for side in (gibbs.posterior.components, gibbs.posterior.loadings)]
    np.testing.assert_allclose(sizes, np.sort(np.concatenate(every))[:5])
    assert min(sizes[0], gibbs.diagnostics["ess_log_joint"]) == pytest.approx(gibbs.diagnostics["min_ess"])


def test_the_worst_entries_are_named_by_their_side_row_and_feature(fits):
    gibbs = fits["gibbs"]
    stuck = replace(gibbs.posterior, loadings=gibbs.posterior.loadings.copy())
    stuck.loadings[:, :, 7, 1] = np.sort(stuck.loadings[:, :, 7, 1], axis=1)
    assert worst_entries(gibbs, stuck, 1)[0].name == "loading of row 7\non component 1"
    stuck = replace(gibbs.posterior, components=gibbs.posterior.components.copy())
    stuck.components[:, :, 2, 5] = np.sort(stuck.components[:, :, 2, 5], axis=1)
    assert worst_entries(gibbs, stuck, 1)[0].name == "share of feature 5\nin component 2"


def test_ranks_of_equal_chains_are_even():
    draws = np.stack([np.arange(0, 100, 2), np.arange(1, 100, 2)])
    edges, counts = rank_counts(draws, 5)
    np.testing.assert_array_equal(counts, np.full((2, 5), 10))
    assert (edges[0], edges[-1]) == (0.5, 100.5)
    apart = rank_counts(np.stack([np.arange(50), np.arange(50, 100)]), 2)[1]
    np.testing.assert_array_equal(apart, [[50, 0], [0, 50]])


def test_few_draws_have_no_diagnosis(fits):
    gibbs, kept = fits["gibbs"], fits["gibbs"].posterior
    posterior = replace(kept, loadings=kept.loadings[:, :3], components=kept.components[:, :3])
    axes = plots.chains(replace(gibbs, trace=gibbs.trace[:, :3], estimate=posterior), n=0)
    assert axes.shape == (1, 2)
    assert "nan" in axes[0, 0].get_title()


def test_agreement_shows_cosines_as_numbers(fits):
    ax = plots.agreement(fits)
    values = mean_cosines(fits)
    np.testing.assert_array_equal(ax.images[0].get_array(), values)
    assert [text.get_text() for text in ax.texts] == [f"{value:.3f}" for value in values.flat]
    assert [text.get_text() for text in ax.get_xticklabels()] == list(fits)
    assert ax.images[0].get_clim() == (min(np.floor(10 * values.min()) / 10, 0.9), 1)
    rescaled = replace(fits["vi"], components=5 * fits["vi"].components[[1, 2, 0]])
    np.testing.assert_allclose(mean_cosines({"a": fits["vi"], "b": rescaled}), 1.0)


def test_refusals_name_the_cure(fits):
    vi = {"vi": fits["vi"]}
    shares = replace(fits["vi"], priors=bayesnmf.Priors(bayesnmf.Dirichlet(1.0)))
    other_rank = replace(fits["vi"], rank=2, components=fits["vi"].components[:2])
    cases = [
        (lambda: plots.chains(fits["vi"]), ValueError, "method='gibbs' or method='nuts'"),
        (lambda: plots.components([fits["vi"]]), TypeError, "put several fits in a dict"),
        (lambda: plots.agreement(fits["vi"]), TypeError, "found a single fit"),
        (lambda: plots.chains(vi), TypeError, "fit must be a result of bayesnmf.fit"),
        (lambda: plots.top_features(vi, 0), ValueError, "n must be at least 1"),
        (lambda: plots.components(vi, n_features=0), ValueError, "n_features must be at least 1"),
        (lambda: plots.top_features(vi, order="lft"), ValueError, "did you mean 'lift'"),
        (lambda: plots.agreement({}), ValueError, "at least one fit"),
        (lambda: plots.agreement({**vi, "two": other_rank}), ValueError, "fit with one rank"),
        (lambda: plots.components(vi, (3, 5)), ValueError, "with 12 pixels"),
        (lambda: plots.components(vi, reference="v"), ValueError, "did you mean 'vi'"),
        (lambda: plots.loadings_intervals(vi, ["x"]), ValueError, "choose from fit.row_names"),
        (lambda: plots.loadings_intervals(vi, [0], 90), ValueError, "interval must be below 1"),
        (lambda: plots.objectives({"gibbs": fits["gibbs"]}), ValueError, "plots.chains"),
        (lambda: plots.loadings_intervals({**vi, "d": shares}, [0]), ValueError, "one figure for each unit"),
    ]
    for draw, error, message in cases:
        with pytest.raises(error, match=message):
            draw()
    assert not plt.get_fignums()


def test_headings_call_what_has_no_interval_a_point_estimate():
    point, vi = fit(method="map"), fit()
    for draw, more in ((plots.loadings_intervals, {"rows": point.row_names[:1]}), (plots.top_features, {"n": 2})):
        said = [np.ravel(draw(each, **more))[0].figure.get_suptitle() for each in (point, {"map": point, "vi": vi})]
        assert "point estimate" in said[0]
        assert "interval" not in said[0]
        assert "posterior median and" in said[1]


def test_numbers_of_many_components_do_not_overlap():
    components = np.random.default_rng(0).dirichlet(np.ones(FEATURES), 79)
    options = bayesnmf.MAP(max_iter=1, tol=0.0)
    fitted = bayesnmf.fit(simulate(), rank=79, method="map", fixed_components=components, options=options, seed=0)
    ax = plots.loadings_intervals(fitted, fitted.row_names[:1], n=79)[0]
    ax.figure.canvas.draw()
    boxes = [label.get_window_extent() for label in ax.get_xticklabels()]
    assert all(left.x1 <= right.x0 for left, right in pairwise(boxes))


def test_identifiers_of_ensembl_are_pointed_out(fits):
    identifiers = [f"ENSG{j:011d}" for j in range(FEATURES)]
    for names, told in ((identifiers, True), ([f"gene {j}" for j in range(FEATURES)], False)):
        axes = plots.top_features(fits["vi"].rename(features=names), 4)
        assert ("Ensembl identifiers" in axes[0].figure.get_suptitle()) == told


def test_every_figure_takes_axes_and_figsize_and_says_so():
    for name in set(plots.__all__) - {"METHOD_COLOURS", "PALETTE"}:
        draw = getattr(plots, name)
        assert [*signature(draw).parameters][-2:] == ["axes", "figsize"], name
        assert [*signature(draw).parameters] == [
            each for line in re.findall(r"^(\w[\w, ]*) : ", getdoc(draw).partition("Returns\n")[0], re.MULTILINE)
            for each in line.split(", ")
        ]  # fmt: skip


def test_figures_refuse_what_they_do_not_take(fits):
    with pytest.raises(TypeError, match=r"plots\.agreement: got an unexpected keyword argument 'axis'; print"):
        plots.agreement(fits, axis=None)
    with pytest.raises(ValueError, match="figsize must be width and height in inches"):
        plots.agreement(fits, figsize=5)
