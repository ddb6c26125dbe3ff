"""What the menus of the site say: which pages stand below which, and the pages that only lead to others."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from repository import ROOT

# Pages below a page, which Sphinx finds by these names; a page that stands nowhere is an error when the site is built.
BELOW = {
    "index.md": (
        "get_started", "tutorials", "guides", "reference/index", "gallery", "models", "glossary", "benchmarks/README",
        "project",
    ),
    "fields/README.md": ("fields/cells", "fields/signatures", "fields/texts", "fields/items", "fields/images"),
    "models.md": (
        "models/poisson", "models/gamma_poisson", "models/dirichlet_poisson", "models/dirichlet_gamma",
        "models/hierarchical_poisson",
    ),
    "benchmarks/README.md": (
        "benchmarks/*", "benchmarks/published/README", "benchmarks/arena/README", "benchmarks/arena/results/table",
        "benchmarks/calibration/README",
        "benchmarks/agreement/README",
    ),
    "benchmarks/agreement/README.md": ("benchmarks/agreement/*",),
}  # fmt: skip
GUIDES = {  # pages with the nouns by which menus name them
    "Begin": {"which_call": "Which call", "fields/README": "Fields"},
    "Counts": {"input": "Input", "on_disk": "Counts on disk", "several": "Several matrices"},
    "Models": {
        "noise": "Noise", "batches": "Batches", "covariates": "Covariates", "programs": "NumPyro programs",
        "combinations": "What goes with what",
    },
    "Computation": {
        "algorithms": "Methods", "speed": "Speed and size", "checkpoints": "Checkpoints",
        "command_line": "Command line",
    },
    "Choice and checks": {
        "ranks": "Ranks", "modes": "Modes", "posteriors": "Intervals", "arviz_functions": "ArviZ",
        "reliability": "Checks",
        "main_job": "Comparison of methods",
    },
}  # fmt: skip
PROJECT = ("readme", "contributing", "changelog", "source/CITATION.cff")


def toctree(names: Sequence[str], *options: str) -> str:
    """Return a list of pages, by their paths or as "title </path>", as Sphinx reads it."""
    entries = (name if name.endswith(">") else f"/{name}" for name in names)
    return "\n".join(["```{toctree}", *options, "", *entries, "```", ""])


def menu_of(page: str) -> str:
    """Return the hidden list of pages below a page, to stand at its end."""
    return "\n" + toctree(BELOW[page], ":hidden:", ":glob:") if page in BELOW else ""


def made_pages() -> dict[str, str]:
    """Return the pages that lead to others, by their place on the site."""
    guides = "\n".join(
        f"## {title}\n\n{toctree([f'{noun} </{name}>' for name, noun in names.items()], ':maxdepth: 1')}"
        for title, names in GUIDES.items()
    )
    about = "Each guide does one thing, with the calls for it and what they gave on real data."
    return {
        "tutorials.md": tutorials(),
        "guides.md": f"# How-to guides\n\n{about}\n\n{guides}",
        "project.md": f"# Project\n\n{toctree(PROJECT, ':maxdepth: 1')}",
    }


def tutorials() -> str:
    """Return the page of the notebooks, in the order of their numbers, each with its first sentence."""
    paths = sorted((ROOT / "notebooks").glob("*.ipynb"))
    lines = [f"1. [{title}](notebooks/{path.name})  \n   {about}" for path in paths for title, about in [opening(path)]]
    names = tuple(f"notebooks/{path.stem}" for path in paths)
    about = "Notebooks with their outputs, in the order in which to read them; each goes from counts to a conclusion."
    return f"# Tutorials\n\n{about}\n\n" + "\n".join(lines) + "\n\n" + toctree(names, ":hidden:")


def opening(path: Path) -> tuple[str, str]:
    """Return the title of a notebook, and its first sentence."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    title, _, rest = text.lstrip("# ").partition("\n")
    paragraph = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", rest.strip().split("\n\n")[0].replace("\n", " "))
    sentences = re.sub(r"^\*\*[^*]*\*\*\s*", "", paragraph)  # without what the paragraph is about, in bold
    return title.strip(), re.split(r"(?<=[.?!])\s", sentences)[0]
