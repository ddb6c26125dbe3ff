"""The checker of figures finds faults that are planted, one at a time, and none in a figure without them."""

import matplotlib as mpl
import pytest

mpl.use("Agg")

import matplotlib.pyplot as plt
from legibility import faults


@pytest.fixture
def panel():
    """A panel with a line, a legend beside it, a name above it and slanted names below."""
    figure, ax = plt.subplots(figsize=(4, 3), layout="constrained")
    ax.plot([0, 1, 2, 3], [0, 1, 2, 3], label="rising")
    ax.set_xticks(range(4), ["a long name", "another name", "a third name", "a fourth name"], rotation=45, ha="right",
                  rotation_mode="anchor")  # fmt: skip
    ax.set_title("a panel")
    ax.annotate("a point", (1, 1), (0.2, 2), arrowprops={"arrowstyle": "-"})
    ax.legend(loc="lower right")
    yield ax
    plt.close(figure)


def stagger(ax, names, apart):
    """Write names in two rows, every second one a line lower."""
    ax.xaxis.remove_overlapping_locs = False
    for minor in (False, True):
        ax.set_xticks([apart * (2 * i + minor) for i in range(2)], names[minor::2], minor=minor, rotation=0)
    ax.tick_params(axis="x", which="minor", pad=16)


PLANTED = {
    "'one' over 'other'": lambda ax: [ax.text(2.5, 1.5, word) for word in ("one", "other")],
    "'a note' over 'a panel'": lambda ax: ax.annotate("a note", (0.5, 1.02), xycoords="axes fraction", ha="center"),
    "the legend on a line": lambda ax: ax.legend(loc="upper right"),
    "the legend on a marker": lambda ax: ax.scatter([2.7], [0.3]),
    "'word' on a line": lambda ax: ax.text(1.5, 1.5, "word", ha="center", va="center"),
    "'level' on a line": lambda ax: (ax.axhline(2.5), ax.text(0.2, 2.5, "level", va="center")),
    "'edge' on a line": lambda ax: ax.text(0, 0.8, "edge", ha="center", transform=ax.transAxes),
    "'mark' on a line": lambda ax: (ax.vlines([0.5], 2, 3), ax.text(0.5, 2.8, "mark", ha="center")),
    "'between' on the line of 'a point'": lambda ax: ax.text(0.45, 1.45, "between"),
    "'a panel' on the line of ''": lambda ax: ax.annotate("", (1.5, 2.9), (1.5, 4), arrowprops={"arrowstyle": "->"}),
    "tick '1.0000' touches '1.2500'": lambda ax: ax.set_xticks([0, 1, 1.25], ["0", "1.0000", "1.2500"], rotation=0),
    "tick 'first' touches 'third'": lambda ax: stagger(ax, ["first", "second", "third", "fourth"], 0.12),
    "tick 'a long name' touches 'another name'": lambda ax: ax.set_xlim(-15, 20),
    "tick '1' is on the axis": lambda ax: (ax.set_yticks([1], ["1"]), ax.tick_params(axis="y", pad=-6)),
}


def test_a_figure_that_can_be_read_has_no_faults(panel):
    assert faults(panel.figure) == []


@pytest.mark.parametrize("fault", PLANTED)
def test_planted_faults_are_found(panel, fault):
    PLANTED[fault](panel)
    assert any(fault in found for found in faults(panel.figure)), faults(panel.figure)


def test_names_in_two_rows_may_stand_above_each_other(panel):
    stagger(panel, ["first", "second", "third", "fourth"], 0.7)
    assert faults(panel.figure) == []
