"""Elements that heat maps share: numbers in their fields, colour bars, names below."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.image import AxesImage

from bayesnmf.plots.style import SMALL
from bayesnmf.types import Array

LUMINANCE = (0.3, 0.59, 0.11)  # of red, green and blue
UPRIGHT = 0.2  # inches for each number, below which they stand upright; below half of it they are small, too
SMALLEST = 6
SLANTED: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}


def write_numbers(ax: Axes, image: AxesImage, values: Array, pattern: str, least: float = -np.inf) -> None:
    """Write values of at least `least` into the fields of an image, white on dark colours."""
    for (i, j), value in np.ndenumerate(values):
        if value >= least:
            dark = np.dot(image.to_rgba(np.array([[value]]))[0, 0, :3], LUMINANCE) < 0.5
            ax.text(j, i, pattern.format(value), ha="center", va="center", fontsize=SMALL,
                    color="white" if dark else "black")  # fmt: skip


def add_colour_bar(ax: Axes, image: AxesImage, label: str, fraction: float = 0.05) -> None:
    """Draw a colour bar beside a panel; the ticks of the heat map lose their marks."""
    image.axes.tick_params(labelsize=SMALL, length=0)
    bar: Any = ax.figure.colorbar(image, ax=ax, fraction=fraction)
    bar.set_label(label, fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL)


def turned(ax: Axes, named: bool, number: int) -> dict[str, Any]:
    """Return how names or numbers below a panel are written: names slanted, numbers without room upright or small."""
    if named:
        return {**SLANTED, "fontsize": SMALL}
    figure: Any = ax.figure
    room = ax.get_position().width * figure.get_figwidth() / number
    small = {"fontsize": SMALL if room > UPRIGHT / 2 else SMALLEST}
    return {"rotation": 90, **small} if room < UPRIGHT else small
