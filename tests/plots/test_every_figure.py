"""Every figure can be read: units on all axes, names of colour scales, text of at least 7 points when printed.

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
from matplotlib.text import Text

from bayesnmf import ConvergenceWarning

sys.path.append(str(Path(__file__).parents[2] / "docs"))
import gallery

pytestmark = pytest.mark.long
PRINTED = 7.0  # inches: the width of a page without its margins
SMALLEST = 7.0  # points
CLEAR = 1.9  # points between the names of ticks and the axis


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


def test_no_text_is_cut_off_or_printed_over_another(figure):
    """Titles, labels of axes and of the figure."""
    renderer = figure.canvas.get_renderer()
    width, height = figure.canvas.get_width_height()
    labels = [text for ax in figure.axes if ax.axison for text in (ax.title, ax.xaxis.label, ax.yaxis.label)]
    labels += [text for legend in figure.legends for text in (*legend.get_texts(), legend.get_title())]
    labels = [text for text in labels if text.get_visible() and text.get_text().strip()]
    boxes = [text.get_window_extent(renderer) for text in labels]
    for text, box in zip(labels, boxes, strict=True):
        inside = box.x0 >= -1 and box.y0 >= -1 and box.x1 <= width + 1 and box.y1 <= height + 1
        assert inside, f"{text.get_text()!r} is cut off"
    for i, (one, box) in enumerate(zip(labels, boxes, strict=True)):
        for other, beside in zip(labels[:i], boxes[:i], strict=True):
            apart = min(box.x1, beside.x1) - max(box.x0, beside.x0), min(box.y1, beside.y1) - max(box.y0, beside.y0)
            assert min(apart) < 2, f"{one.get_text()!r} over {other.get_text()!r}"


def overlap(one, other):
    """Return how far two boxes lie over each other in the direction in which they do least, in pixels."""
    return min(min(one.x1, other.x1) - max(one.x0, other.x0), min(one.y1, other.y1) - max(one.y0, other.y0))


def test_names_of_ticks_lie_beside_each_other_and_off_the_axis(figure):
    """Of every axis: no name over another, none over the line that it stands below; slanted ones have larger boxes."""
    renderer, found = figure.canvas.get_renderer(), []
    for ax in (ax for ax in figure.axes if ax.axison):
        for name, axis, line in (("x", ax.xaxis, "bottom"), ("y", ax.yaxis, "left")):
            texts = [text for minor in (False, True) for text in axis.get_ticklabels(minor=minor)
                     if text.get_visible() and text.get_text().strip() and text.get_rotation() % 90 == 0]  # fmt: skip
            boxes = [text.get_window_extent(renderer) for text in texts]
            edge = ax.spines[line].get_window_extent(renderer)
            for i, (text, box) in enumerate(zip(texts, boxes, strict=True)):
                over = [other.get_text() for other, beside in zip(texts[:i], boxes[:i], strict=True)
                        if overlap(box, beside) > 1]  # fmt: skip
                end = box.y1 - edge.y0 if name == "x" else box.x1 - edge.x0
                on = ax.spines[line].get_visible() and end > -CLEAR * figure.dpi / 72
                found += [f"{ax.get_title()!r}: {name} {text.get_text()!r} over {other!r}" for other in over]
                found += [f"{ax.get_title()!r}: {name} {text.get_text()!r} on the axis"] * bool(on)
    assert not found
