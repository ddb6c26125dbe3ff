"""What stands in the way of reading a figure: text over text, text and legends on lines, names of ticks that touch.

Lines are those of the data and of the frame, and those that lead from a name to its point.
"""

from __future__ import annotations

from itertools import chain, combinations, pairwise
from unittest.mock import patch

import numpy as np
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox

TOUCH = 1.0  # points by which boxes of text may lie over each other, as they are larger than the letters
APART = 2.0  # points between names of ticks beside each other
CLEAR = 1.9  # points between names of ticks and the axis
LETTER = 0.75  # height of a capital letter, relative to the size of its font


def faults(figure):
    """Return a sentence for everything in a figure that cannot be read."""
    texts, room = drawn_texts(figure), TOUCH * scale(figure)
    straight = {text: box for text, box in texts.items() if is_straight(text)}
    found = []
    for (one, box), (other, beside) in combinations(straight.items(), 2):
        if overlap(box, beside) > room:
            found.append(f"{one.get_text()!r} over {other.get_text()!r}")
    for leader, paths in leaders(figure, texts):
        found += [f"{text.get_text()!r} on the line of {leader.get_text()!r}" for text, box in straight.items()
                  if text is not leader and any(crosses(path, shrunk(box, room)) for path in paths)]  # fmt: skip
    for ax in figure.axes:
        found += [f"{ax.get_title()!r}: {each}" for each in (*crowded(ax, texts), *on_the_axis(ax, texts))]
        boxes = {repr(text.get_text()): box for text, box in texts.items() if text in ax.texts}
        if ax.get_legend() is not None and ax.get_legend().get_visible():
            boxes["the legend"] = ax.get_legend().get_window_extent()
        for name, box in boxes.items():
            kinds = {kind for kind, path in marks(ax) if crosses(path, shrunk(box, room))}
            found += [f"{ax.get_title()!r}: {name} on a {kind}" for kind in sorted(kinds)]
    return found


def drawn_texts(figure):
    """Return the box, in pixels, of every text that drawing the figure writes."""
    found, draw = {}, Text.draw

    def record(text, renderer):
        if text.get_visible() and text.get_text().strip():
            found[text] = Text.get_window_extent(text, renderer)  # of an annotation, without its arrow
        draw(text, renderer)

    with patch.object(Text, "draw", record):
        figure.canvas.draw()
    return found


def leaders(figure, texts):
    """Return each annotation that is drawn with an arrow, and the lines of the arrow, in pixels."""
    for each in figure.findobj(Annotation):
        is_drawn = each in texts or (each.get_visible() and not each.get_text().strip())
        if is_drawn and each.arrow_patch is not None:
            yield each, each.arrow_patch.get_path().to_polygons(closed_only=False)


def tick_texts(axis, texts):
    """Return the names of the ticks of an axis that are drawn, from its beginning to its end."""
    labels = [label for minor in (False, True) for label in axis.get_ticklabels(minor=minor) if label in texts]
    return sorted(labels, key=lambda label: texts[label].x0 if axis.axis_name == "x" else texts[label].y0)


def crowded(ax, texts):
    """Return the names of ticks that touch their neighbours; slanted ones are as far apart as their lines are."""
    unit, names = scale(ax.figure), tick_texts(ax.xaxis, texts)
    rows = {}  # staggered names are in two
    for name in names:
        rows.setdefault(round(texts[name].y1 / unit) if is_straight(name) else None, []).append(name)
    for one, other in chain.from_iterable(map(pairwise, rows.values())):
        box, beside = texts[one], texts[other]
        if is_straight(one):
            close = beside.x0 - box.x1 < APART * unit * (one.get_rotation() == 0)
        else:
            slant = np.sin(np.deg2rad(one.get_rotation()))
            close = abs(beside.x1 - box.x1) * slant < LETTER * one.get_fontsize() * unit
        if close:
            yield f"tick {one.get_text()!r} touches {other.get_text()!r}"


def on_the_axis(ax, texts):
    """Return the names of ticks that stand on the line of their axis."""
    for axis, line in ((ax.xaxis, "bottom"), (ax.yaxis, "left")):
        for text in tick_texts(axis, texts):
            end = texts[text].y1 - ax.bbox.y0 if line == "bottom" else texts[text].x1 - ax.bbox.x0
            if ax.spines[line].get_visible() and is_straight(text) and end > -CLEAR * scale(ax.figure):
                yield f"tick {text.get_text()!r} is on the axis"


def marks(ax):
    """Return the kind and the path, in pixels, of lines, and of each marker, that a panel shows."""
    for line in (each for each in ax.lines if each.get_visible() and len(each.get_xdata())):
        path = line.get_transform().transform(np.asarray(line.get_xydata(), float))
        if line.get_linestyle() != "None":
            yield "line", path
        if line.get_marker() not in ("None", None, ""):
            yield from (("marker", point[None]) for point in path)
    for part in (each for each in ax.collections if each.get_visible()):
        if isinstance(part, LineCollection):
            yield from (("line", part.get_transform().transform(path.vertices)) for path in part.get_paths())
        elif isinstance(part, PathCollection):
            points = part.get_offset_transform().transform(np.ma.filled(part.get_offsets(), np.nan))
            yield from (("marker", point[None]) for point in points)
    yield from (("line", ax.spines[side].get_window_extent().corners()[[0, 3]]) for side in ("left", "bottom")
                if ax.spines[side].get_visible())  # fmt: skip


def crosses(path, box):
    """Return whether a line, or a single point, is anywhere inside a box."""
    path = path[np.isfinite(path).all(axis=1)]
    if not len(path) or np.any(path.max(axis=0) < box.min) or np.any(path.min(axis=0) > box.max):
        return False  # as of most lines, which are far away
    steps = np.linspace(0, 1, 200)[:, None, None]
    inner = path if len(path) < 2 else (path[:-1] + steps * (path[1:] - path[:-1])).reshape(-1, 2)
    return bool(np.any((inner > box.min).all(axis=1) & (inner < box.max).all(axis=1)))


def shrunk(box, room):
    """Return a box that is smaller on each side."""
    return Bbox(box.get_points() + room * np.array([[1, 1], [-1, -1]]))


def overlap(one, other):
    """Return how far two boxes lie over each other in the direction in which they do least, in pixels."""
    return min(min(one.x1, other.x1) - max(one.x0, other.x0), min(one.y1, other.y1) - max(one.y0, other.y0))


def is_straight(text):
    return text.get_rotation() % 90 == 0


def scale(figure):
    """Return the number of pixels in a point."""
    return figure.dpi / 72
