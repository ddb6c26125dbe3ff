"""Panels of several criteria, and misfits by rank, show the numbers of their tables."""

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

mpl.use("Agg")

import matplotlib.pyplot as plt

from bayesnmf import PredictiveChecks, Selection, plots
from bayesnmf.studies.selection.criterion import Candidate

RANKS = [2, 4, 5, 6, 8]
FALLS = np.array([-5.0, -0.3, -0.1, 0.0, -0.2])


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def table(**columns):
    index = pd.MultiIndex.from_product([["gamma_poisson"], RANKS], names=["model", "rank"])
    return pd.DataFrame(columns, index)


def selected(criterion, best, **columns):
    return Selection(table(**columns), pd.DataFrame(), Candidate("gamma_poisson", best), "vi", 0.8, False, criterion)


@pytest.fixture
def held_out():
    own = {"mean": FALLS - 3, "se": 1.0, "difference": FALLS, "difference_se": 0.05}
    rows = {"rows_mean": FALLS[::-1] - 3, "rows_difference": FALLS[::-1], "rows_difference_se": 0.25}
    return selected("heldout", 6, **own, **rows)


@pytest.fixture
def stable():
    return selected("stability", 4, least=[1.0, 0.9, 0.6, 0.7, 0.1])


def drawn(ax):
    return ax.containers[0][0].get_xydata()


def marked(ax, marker):
    (line,) = (line for line in ax.lines if line.get_marker() == marker and line.get_fillstyle() == "none")
    return line.get_xydata()[0]


def test_every_criterion_has_its_panels(held_out, stable):
    axes = plots.ranks([held_out, stable])
    titles = ["held-out counts,\nsame samples: best 6", "held-out counts,\nother samples: best 4", "stability: best 4"]
    assert [ax.get_title() for ax in axes] == titles
    for ax, values in zip(axes, (FALLS, FALLS[::-1], stable.table["least"]), strict=True):
        np.testing.assert_array_equal(drawn(ax), np.column_stack([RANKS, values]))
    assert list(marked(axes[0], "o")) == [6, 0]
    assert list(marked(axes[0], "s")) == [6, 0]  # rank 5 falls short by two standard errors
    assert list(marked(axes[1], "o")) == [4, 0]
    assert list(marked(axes[1], "s")) == [2, FALLS[4]]
    assert axes[2].get_ylim() == (0, 1.05)
    assert len(plots.ranks(stable)) == 1


def test_ranks_far_below_are_arrows_at_the_bottom(held_out, stable):
    first, second, third = plots.ranks([held_out, stable])
    assert -1.1 < first.get_ylim()[0] < -0.3
    for ax, far in ((first, 2), (second, 8)):
        (arrows,) = (line for line in ax.lines if line.get_marker() == "v")
        assert list(arrows.get_xdata()) == [far]
    assert not any(line.get_marker() == "v" for line in third.lines)


def test_ranks_draws_on_given_axes_and_refuses_others(held_out, stable):
    figure, given = plt.subplots(3, 1)
    assert list(plots.ranks([held_out, stable], axes=given)) == list(given)
    assert not figure.legends
    with pytest.raises(TypeError, match="results of"):
        plots.ranks([held_out, 3])
    with pytest.raises(ValueError, match="must not be empty"):
        plots.ranks([])


def checks(observed, mean=10.0):
    row = {"observed": observed, "mean": mean, "low": 0.8 * mean, "high": 1.1 * mean, "p_value": 0.5, "p_adjusted": 0.5}
    nothing = pd.DataFrame()
    return PredictiveChecks(pd.DataFrame(row, ["misfit"]), nothing, nothing, nothing, {}, 50, 0.9, "poisson", "vi", [])


def test_misfits_are_multiples_of_the_mean_of_the_replicates():
    by_rank = {8: checks(11.0), 2: checks(60.0), 5: checks(40.0, mean=20.0)}
    ax = plots.misfit({"one": by_rank, "other": {8: checks(9.0)}})
    first, other = (line for line in ax.lines if not line.get_label().startswith("_"))
    np.testing.assert_allclose(first.get_xydata(), [[2, 6], [5, 2], [8, 1.1]])
    np.testing.assert_allclose(other.get_xydata(), [[8, 0.9]])
    band = ax.collections[0].get_paths()[0].vertices[:, 1]
    np.testing.assert_allclose([band.min(), band.max()], [0.8, 1.1])
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["one: 90% of the replicates", "one", "other: 90% of the replicates", "other"]
    assert [text.get_text() for text in plots.misfit(by_rank).get_legend().get_texts()][1] == "observed"


def test_misfit_refuses_what_is_no_check_and_no_rank():
    with pytest.raises(TypeError, match="predictive_checks"):
        plots.misfit({2: 3.0})
    with pytest.raises(ValueError, match="must not be empty"):
        plots.misfit({})
    with pytest.raises((TypeError, ValueError), match="ranks of checks"):
        plots.misfit({"two": checks(1.0)})
