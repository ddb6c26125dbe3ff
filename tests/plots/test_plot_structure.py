"""The structure plot shows the proportions of the topic model, each sample once, under its group."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.patches import StepPatch
from scipy.spatial.distance import pdist
from smallfits import COUNTS, OPTIONS, K, N, fit, quietly
from suites import crossed

import bayesnmf
from bayesnmf import plots
from bayesnmf.plots.samples import in_order
from bayesnmf.plots.style import OTHERS, colours_of
from bayesnmf.priors.specification import MODELS
from bayesnmf.results.shares import leading_of

pytestmark = quietly
GROUPS = ["b", "a", "b", "a", "c", "c", "a", "b", "c", "a", "b", "b"]


@pytest.fixture(autouse=True)
def closed():
    """Close every figure."""
    yield
    plt.close("all")


def bars_of(ax):
    """Shares as drawn, one array (samples, K) for each group, from the cumulated staircases."""
    stairs = [patch for patch in ax.patches if isinstance(patch, StepPatch)]
    blocks = [stairs[at : at + K][::-1] for at in range(0, len(stairs), K)]
    return [np.diff([patch.get_data().values for patch in block], axis=0, prepend=0).T for block in blocks]


def group_names(ax):
    return [text.get_text().replace("\n", " ") for text in ax.get_xticklabels()]


def sorted_rows(rows):
    return rows[np.lexsort(rows.T)]


@pytest.mark.parametrize(("model", "method"), crossed(MODELS, OPTIONS))
def test_bars_are_the_proportions_of_each_group(model, method):
    fitted = fit(model, method)
    ax = plots.structure(fitted, GROUPS)
    assert group_names(ax) == ["b (5)", "a (4)", "c (3)"]
    proportions = bayesnmf.to_topic_model(fitted).proportions
    for block, name in zip(bars_of(ax), "bac", strict=True):
        expected = proportions[np.array(GROUPS) == name]
        # Differences of cumulated shares: a few units in the last place of 1.
        np.testing.assert_allclose(sorted_rows(block), sorted_rows(expected), atol=1e-15)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [f"component {k}" for k in reversed(range(K))]


def test_groups_are_found_by_row_name_or_in_the_order_of_the_rows():
    fitted = fit()
    by_name = dict(zip(COUNTS.index, GROUPS, strict=True))
    shuffled = pd.Series(by_name).sample(frac=1, random_state=0)
    expected = bars_of(plots.structure(fitted, np.array(GROUPS)))
    for groups in (by_name, shuffled):
        for one, two in zip(bars_of(plots.structure(fitted, groups)), expected, strict=True):
            np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("kind", [pd.Categorical, lambda values, **options: pd.Series(pd.Categorical(values, **options),
                                                                                     COUNTS.index)])  # fmt: skip
def test_a_categorical_states_the_order_of_the_groups(kind):
    ax = plots.structure(fit(), kind(GROUPS, categories=["c", "unused", "a", "b"]))
    assert group_names(ax) == ["c (3)", "a (4)", "b (5)"]
    lost = kind([None if group == "b" else group for group in GROUPS], categories=["c", "a"])
    with pytest.warns(bayesnmf.DataWarning, match="missing values for 5 of 12 rows, which are left out"):
        ax = plots.structure(fit(), lost)
    assert (group_names(ax), ax.get_xlabel()) == (["c (3)", "a (4)"], "7 samples; 5 without a group are left out")


def test_samples_stand_by_leading_component_then_share():
    """Component 0 has more than half of every sample, and decides where only those stand that have most of it."""
    rows = np.column_stack([np.full(200, 0.6), 0.4 * np.random.default_rng(0).dirichlet(np.full(3, 0.5), 200)])
    rows[:20] = [0.97, 0.01, 0.01, 0.01]
    lead = leading_of(rows, np.ones(200, bool))
    order = in_order(rows, lead, 4)
    np.testing.assert_array_equal(np.sort(order), np.arange(200))
    assert set(lead[:20]) == {0}
    assert np.all(lead[20:] > 0)
    share = rows[order, lead[order]]
    blocks = np.split(share, np.flatnonzero(np.diff(lead[order])) + 1)
    assert len(blocks) == 4  # every component leads in one run
    assert [len(block) for block in blocks] == sorted(np.bincount(lead), reverse=True)
    for position, block in enumerate(blocks):
        assert np.all(np.diff(block) * (-1) ** position <= 0)
    largest = np.bincount(lead).argmax()
    others_last = np.r_[np.delete(np.arange(4), largest), largest]
    order = in_order(rows[:, others_last], np.argsort(others_last)[lead], 3)
    assert np.all(np.diff(lead[order] == largest) >= 0)


def of_rank(rank):
    """A fit of rows whose components are the features themselves, so that all sizes are known."""
    counts = np.random.default_rng(0).poisson(np.linspace(5, 50, rank), (10, rank))
    options = bayesnmf.MAP(max_iter=1, tol=0, kkt_tol=0, threads=1)
    return bayesnmf.fit(counts, rank=rank, method="map", fixed_components=np.eye(rank), options=options, seed=0)


def heights(ax):
    """Heights of all bands of the samples as drawn, (samples, bands) from the bottom to the top."""
    tops = [patch.get_data().values for patch in ax.patches if isinstance(patch, StepPatch)][::-1]
    return np.diff(tops, axis=0, prepend=0).T


def names_of(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()][::-1]


@pytest.mark.parametrize(("rank", "n", "shown"), [(12, None, 12), (13, None, 12), (79, None, 12), (79, 25, 25),
                                                  (6, 2, 2), (6, 9, 6)])  # fmt: skip
def test_the_leading_components_have_colours_and_the_rest_is_grey(rank, n, shown):
    fitted = of_rank(rank)
    ax = plots.structure(fitted, n=n)
    largest = sorted(np.argsort(-fitted.expected_sizes)[:shown])
    rest = [f"others ({rank - shown})"] if shown < rank else []
    assert names_of(ax) == [f"component {k}" for k in largest] + rest
    shares = bayesnmf.to_topic_model(fitted).proportions
    expected = np.column_stack([shares[:, largest], 1 - shares[:, largest].sum(axis=1)])[:, : shown + len(rest)]
    np.testing.assert_allclose(sorted_rows(heights(ax)), sorted_rows(expected), atol=1e-14)
    colours = [patch.get_facecolor() for patch in ax.patches][::-1]
    assert len(set(colours)) == len(colours)
    own = [*largest] if rank <= 20 else range(shown)  # the place in the palette, if it has enough colours
    assert colours[:shown] == [mpl.colors.to_rgba(colours_of(rank if rank <= 20 else shown)[k]) for k in own]
    if rest:
        assert colours[-1] == mpl.colors.to_rgba(OTHERS)


def test_counts_stand_by_their_sum():
    fitted = fit()
    ax = plots.structure(fitted, values="counts")
    model = bayesnmf.to_topic_model(fitted)
    drawn = heights(ax)
    np.testing.assert_allclose(sorted_rows(drawn), sorted_rows(model.proportions * model.totals[:, None]), rtol=1e-9)
    assert np.all(np.diff(drawn.sum(axis=1)) <= 1e-9)  # but for rounding: some samples have equally many
    assert ax.get_ylim() == (0, pytest.approx(model.totals.max()))
    assert ax.get_ylabel() == "expected counts of a sample"
    with pytest.raises(ValueError, match="values must be one of 'shares', 'counts': found 'count'"):
        plots.structure(fitted, values="count")
    with pytest.raises(ValueError, match="n must be at least 1"):
        plots.structure(fitted, n=0)


def test_thinned_groups_are_evenly_spaced_and_the_label_says_so():
    fitted = fit()
    whole, ax = bars_of(plots.structure(fitted, GROUPS)), plots.structure(fitted, GROUPS, max_per_group=3)
    thin = bars_of(ax)
    for before, after in zip(whole, thin, strict=True):
        kept = [0, len(before) // 2, len(before) - 1] if len(before) != 4 else [0, 2, 3]
        np.testing.assert_array_equal(after, before[kept] if len(before) > 3 else before)
    assert ax.get_xlabel() == f"{N} samples, at most 3 of each group (evenly spaced)"
    assert group_names(ax) == ["b (5)", "a (4)", "c (3)"]  # sizes of the groups, not of what is drawn
    assert plots.structure(fitted, GROUPS, max_per_group=5).get_xlabel() == f"{N} samples"
    assert plots.structure(fitted, max_per_group=4).get_xlabel() == f"{N} samples, 4 shown (evenly spaced)"


def test_it_draws_on_given_axes_and_leaves_settings_alone():
    before = dict(mpl.rcParams)
    _, given = plt.subplots()
    assert plots.structure(fit(), axes=given) is given
    assert len(plt.get_fignums()) == 1
    assert not len(given.get_xticks())
    ax = plots.structure(fit(), [f"a long name of group {name}" for name in GROUPS], figsize=(4, 3))
    assert tuple(ax.figure.get_size_inches()) == (4, 3)
    ax.figure.canvas.draw()  # warnings of the layout are errors
    assert {text.get_rotation() for text in ax.get_xticklabels()} == {35}
    assert dict(mpl.rcParams) == before


SEEN = {  # colours of light as seen without one kind of cone (Machado, Oliveira and Fernandes 2009)
    "with all cones": np.eye(3),
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
}


def lab(colours, seen="with all cones"):
    """CIELAB coordinates (n, 3) of sRGB colours, white point D65."""
    rgb = np.array([mpl.colors.to_rgb(colour) for colour in colours])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    linear = np.clip(linear @ np.transpose(SEEN[seen]), 0, 1)
    xyz = linear @ np.array([[0.4124, 0.2126, 0.0193], [0.3576, 0.7152, 0.1192], [0.1805, 0.0722, 0.9505]])
    f = np.cbrt(xyz / [0.9505, 1.0, 1.089])
    return np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], axis=1)


def test_twelve_colours_are_no_closer_than_the_eight_of_okabe_and_ito():
    np.testing.assert_allclose(lab(["white", "red"]), [[100, 0, 0], [53.24, 80.09, 67.20]], atol=0.1)  # as published
    assert pdist(lab(colours_of(12))).min() == pdist(lab(colours_of(8))).min() > 25


def test_twenty_colours_can_be_told_apart_by_the_colour_blind_too():
    """A distance of about 2.3 can just be seen; matplotlib's tab20 has pairs that are closer."""
    tab20 = mpl.colormaps["tab20"].colors
    for seen, least in (("with all cones", 20), ("protanopia", 10), ("deuteranopia", 10)):
        assert pdist(lab(colours_of(20), seen)).min() > least > pdist(lab(tab20, seen)).min()


def test_every_component_has_its_own_colour():
    for rank in (1, 8, 9, 20, 21, 60):
        assert len({mpl.colors.to_rgba(colour) for colour in colours_of(rank)}) == rank


def test_bars_keep_their_room_beside_the_names_of_79_components():
    components = np.random.default_rng(0).dirichlet(np.full(len(COUNTS.T), 0.3), 79)
    options = bayesnmf.MAP(max_iter=1, tol=0.0)
    fitted = bayesnmf.fit(COUNTS, rank=79, method="map", fixed_components=components, options=options, seed=0)
    ax = plots.structure(fitted, n=79)
    ax.figure.canvas.draw()
    assert ax.get_position().width > 0.4
    legend = ax.get_legend().get_window_extent().transformed(ax.figure.transFigure.inverted())
    assert 0 <= legend.y0 < legend.y1 <= 1


def test_senseless_groups_are_refused():
    with pytest.raises(TypeError, match=r"fit must be a result of bayesnmf\.fit"):
        plots.structure({"vi": fit()})
    with pytest.raises(ValueError, match="one entry for each of 12 rows: found 2"):
        plots.structure(fit(), ["a", "b"])
    with pytest.raises(ValueError, match=r"12 rows of the fit as labels.* 11 rows missing: 's1', 's2', 's3', …"):
        plots.structure(fit(), {"s0": "a"})
    with pytest.raises(TypeError, match="groups must be a list"):
        plots.structure(fit(), 3)
    with pytest.raises(ValueError, match="max_per_group must be at least 1"):
        plots.structure(fit(), max_per_group=0)
