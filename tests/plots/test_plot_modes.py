"""Figures of modes show the runs, their distances and what comes back; those of a consensus its clusters."""

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from blocks import BLOCKS

import bayesnmf
from bayesnmf import VI, plots
from bayesnmf.plots.style import PALETTE


@pytest.fixture(scope="module")
def found():
    return bayesnmf.modes(BLOCKS, rank=2, starts=12, seed=1, scored=0)


@pytest.fixture(autouse=True)
def closed():
    """Close every figure."""
    yield
    plt.close("all")


def test_every_run_is_a_point_at_its_distance_with_the_colour_of_its_mode(found):
    left, _ = plots.modes(found)
    drawn = [line for line in left.get_lines() if line.get_marker() not in ("None", None)]
    assert len(drawn) == len(found.table) == 3
    for mode, line in enumerate(drawn):
        wanted = found.runs.loc[found.runs["mode"] == mode, "behind"]
        np.testing.assert_allclose(sorted(line.get_ydata()), sorted(wanted))
        assert line.get_color() == PALETTE[mode]
        assert line.get_label() == f"mode {mode}: {len(wanted)} runs"
    places = np.concatenate([line.get_xdata() for line in drawn])
    np.testing.assert_array_equal(np.sort(places), np.arange(1, 13))
    assert left.get_title() == "12 runs end in 3 modes"
    assert "nats behind the best run" in left.get_ylabel()


def test_the_map_has_the_cosines_and_dots_where_a_component_comes_back(found):
    _, right = plots.modes(found)
    order = found.runs.sort_values(["mode", "behind"], kind="stable").index
    cosines = found.cosines().loc[order].to_numpy().T
    np.testing.assert_array_equal(right.images[0].get_array(), cosines)
    (dots,) = [line for line in right.get_lines() if line.get_marker() == "o"]
    wanted = {(run, k) for k, run in np.argwhere(cosines > 0.95).tolist()}
    assert set(zip(dots.get_xdata(), dots.get_ydata(), strict=True)) == wanted
    labels = [label.get_text() for label in right.get_yticklabels()]
    assert labels == [f"{k}: {count} of 12" for k, count in enumerate(found.components.loc[0]["runs"])]


def test_runs_that_did_not_converge_are_crosses():
    short = bayesnmf.modes(BLOCKS, rank=2, starts=3, scored=0, options=VI(max_iter=1))
    left, _ = plots.modes(short)
    drawn = [line for line in left.get_lines() if line.get_marker() not in ("None", None)]
    assert {line.get_marker() for line in drawn} == {"x"}
    assert left.get_legend() is not None


def test_many_modes_are_drawn_and_ten_named():
    counts = np.random.default_rng(0).poisson(2.0, (20, 15))
    many = bayesnmf.modes(counts, rank=6, starts=14, scored=0, options=VI(max_iter=10))
    assert len(many.table) > 10
    left, _ = plots.modes(many)
    assert len(left.get_legend().get_texts()) == 10
    assert left.get_title().endswith("modes, 10 of them named")


def test_the_clustergram_is_sorted_by_cluster_and_the_histogram_has_all_components(found):
    consensus = found.consensus(density=0.1)
    outliers = int((~consensus.members["kept"]).sum())
    assert outliers > 0
    left, right = plots.consensus(consensus)
    shown, members = left.images[0].get_array(), consensus.members
    sizes = [*consensus.clusters["members"], outliers]
    np.testing.assert_allclose(np.sort(shown.ravel()), np.sort(consensus.distances.ravel()))
    for first, last in zip(np.cumsum([0, *sizes[:-2]]), np.cumsum(sizes[:-1]), strict=True):
        assert shown[first:last, first:last].max() < 0.1  # components of one cluster are alike
    assert [label.get_text() for label in left.get_yticklabels()] == ["0", "1", "outliers"]
    assert f"silhouette {consensus.silhouette:.3f}" in left.get_title()
    heights = sum(patch.get_height() for patch in right.patches)
    assert heights == len(members)
    texts = [text.get_text() for text in right.get_legend().get_texts()]
    assert set(texts) == {f"kept: {len(members) - outliers}", f"outliers: {outliers}", "density=0.1"}


def test_given_axes_are_drawn_on_and_others_refused(found):
    _, axes = plt.subplots(1, 2)
    for drawn in (plots.modes(found, axes=axes), plots.consensus(found.consensus(density=2), axes=axes)):
        assert drawn.tolist() == axes.tolist()
    with pytest.raises(TypeError, match=r"found must be a result of bayesnmf\.modes: found Fit"):
        plots.modes(found.best)
    with pytest.raises(TypeError, match="consensus must be a result of"):
        plots.consensus(found)
    with pytest.raises(ValueError, match="axes must be 2 axes"):
        plots.modes(found, axes=axes[0])


def test_one_component_and_one_run_can_be_drawn():
    single = bayesnmf.modes(BLOCKS, rank=1, starts=1, scored=0)
    plots.modes(single)
    pair = bayesnmf.modes(BLOCKS, rank=1, starts=2, scored=0)
    left, _ = plots.consensus(pair.consensus())
    assert "silhouette –" in left.get_title()
