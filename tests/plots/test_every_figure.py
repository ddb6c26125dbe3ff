"""Every figure can be read: units on all axes, text of at least 7 points when printed, nothing in its way.

The figures are those of the gallery, which has every function of `bayesnmf.plots`.
"""

import sys
import warnings
from pathlib import Path

import matplotlib as mpl
import pytest

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from legibility import drawn_texts, faults
from matplotlib.text import Text

from bayesnmf import ConvergenceWarning

sys.path.append(str(Path(__file__).parents[2] / "docs"))
import gallery

pytestmark = pytest.mark.long
PRINTED = 7.0  # inches: the width of a page without its margins
SMALLEST = 7.0  # points


@pytest.fixture(scope="module", params=gallery.entries())
def figure(request):
    """The figure of one entry of the gallery, drawn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        axes = gallery.entries()[request.param]()
    found = np.ravel(np.asarray(axes, dtype=object))[0].figure
    found.canvas.draw()
    yield found
    plt.close(found)


def visible_texts(figure):
    return [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]


def tick_texts(axis):
    return [label for label in axis.get_ticklabels() if label.get_visible() and label.get_text().strip()]


def label_of(ax, name):
    """Return the label of an axis, or the one at the edge of its column or row of panels, or of the whole figure."""
    beside = [ax]
    if ax.get_subplotspec() is not None:
        line = "colspan" if name == "x" else "rowspan"
        specs = {other: other.get_subplotspec() for other in ax.figure.axes}
        beside += [other for other, spec in specs.items()
                   if spec is not None and getattr(spec, line) == getattr(ax.get_subplotspec(), line)]  # fmt: skip
    own = "".join(getattr(other, f"{name}axis").label.get_text() for other in beside)
    return own or getattr(ax.figure, f"get_sup{name}label")()


def test_every_axis_with_numbers_has_a_label(figure):
    """Axes whose ticks are names need none."""
    for ax in figure.axes:
        for name, axis in (("x", ax.xaxis), ("y", ax.yaxis)):
            numbers = ax.axison and any(any(map(str.isdigit, text.get_text())) for text in tick_texts(axis))
            assert not numbers or label_of(ax, name), f"{ax.get_title()!r}: {name} axis"


def test_text_is_large_enough_in_print(figure):
    scale = min(1.0, PRINTED / figure.get_figwidth())
    small = {text.get_text(): text.get_fontsize() * scale for text in visible_texts(figure)}
    small = {text: size for text, size in small.items() if size < SMALLEST - 0.01}
    assert not small


def test_no_text_is_cut_off(figure):
    """Titles, labels of axes and of the figure, and names in legends and panels."""
    width, height = figure.canvas.get_width_height()
    for text, box in drawn_texts(figure).items():
        inside = box.x0 >= -1 and box.y0 >= -1 and box.x1 <= width + 1 and box.y1 <= height + 1
        assert inside, f"{text.get_text()!r} is cut off"


def test_nothing_stands_in_the_way_of_reading(figure):
    """No text over another, no text or legend on lines, ticks apart and off their axis (`test_legibility`)."""
    assert faults(figure) == []
