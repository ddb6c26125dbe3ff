"""The page of the gallery: a picture of every plot function, the code that made it, and how to read it."""

from __future__ import annotations

import ast
import inspect
import io
import textwrap
import warnings
from collections.abc import Callable
from typing import Any

import gallery
import numpy as np
from matplotlib import pyplot as plt

from bayesnmf import ConvergenceWarning

ABOUT = """# Gallery

Every figure of `bayesnmf.plots`, on data that need no download. The pictures are drawn by the code beside them whenever
this site is built. Every function returns the axes of its figure, and takes `axes=` to draw on existing ones. Give it
one fit, or a mapping from labels to fits to compare them. [The API](reference/plots.rst) has all arguments.
"""


def body_of(function: Callable[..., Any]) -> str:
    """Return the code of an example, without its name and docstring; the last line draws."""
    lines = textwrap.dedent(inspect.getsource(function)).splitlines()
    statements = ast.parse("\n".join(lines)).body[0].body  # type: ignore[attr-defined]
    return textwrap.dedent("\n".join(lines[statements[1].lineno - 1 :])).replace("return ", "", 1)


def gallery_page() -> str:
    """Return the Markdown of the page."""
    parts = [ABOUT, thumbnails()]
    for name, function in gallery.entries().items():
        figure = gallery.figure_of(name)
        api = f"[`plots.{figure}`](reference/bayesnmf.plots.{figure}.rst)"
        parts.append(f"(gallery-{name})=\n## {name}\n\n{inspect.getdoc(function)} All arguments: {api}.\n")
        parts.append(f"![{name}](gallery/{name}.png)\n\n```python\n{body_of(function)}\n```\n")
    shared = "\n\n".join(inspect.getsource(function).rstrip() for function in gallery.SHARED)
    opening = (
        "from collections.abc import Callable\nfrom functools import cache\n\nimport bayesnmf\n"
        "from bayesnmf import plots\n"
        "from bayesnmf.data.mutations import cn48_types, dbs78_types, id83_types"
    )
    about = "The examples share these functions, which fit once and keep the result."
    parts.append(f"## Counts and fits of the examples\n\n{about}\n\n```python\n{opening}\n\n\n{shared}\n```\n")
    return "\n".join(parts)


def thumbnails() -> str:
    """Return a table of small pictures, each of which leads to its example."""
    cards = (
        f":::{{grid-item-card}} {name}\n:img-top: gallery/{name}.png\n:link: gallery-{name}\n:link-type: ref\n:::\n"
        for name in gallery.entries()
    )
    return "::::{grid} 2 2 4 4\n:gutter: 2\n:class-container: thumbnails\n\n" + "\n".join(cards) + "::::\n"


def as_png(axes: Any) -> bytes:
    """Return the figure of axes as a PNG, and close it."""
    figure = np.ravel(np.asarray(axes, dtype=object))[0].figure
    memory = io.BytesIO()
    figure.savefig(memory, format="png", dpi=100, bbox_inches="tight")
    plt.close(figure)
    return memory.getvalue()


def picture(function: Callable[[], Any]) -> bytes:
    """Return the picture of an example as a PNG; an example may show a fit that has not converged."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return as_png(function())
