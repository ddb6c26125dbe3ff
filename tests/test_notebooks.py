"""Notebooks as they are committed: with outputs, links that lead somewhere, and figures that can be read in print."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
WIDTH = re.compile(r"""figsize["=: ]+\(([\d.]+),""")
SIZE = re.compile(r"fontsize=([\d.]+)")
LINK = re.compile(r"\]\(([^)#\s]+)")
WIDEST, SMALLEST = 9.0, 9.0  # inches and points: 7 points where the figure is printed 7 inches wide


def cells(path: Path, kind: str) -> list[dict]:
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == kind]


def source(cell: dict) -> str:
    return "".join(cell["source"])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_figures_are_large_enough_in_print(path):
    code = "\n".join(source(cell) for cell in cells(path, "code"))
    assert max(map(float, WIDTH.findall(code)), default=0.0) <= WIDEST
    assert min(map(float, SIZE.findall(code)), default=99.0) >= SMALLEST


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_lead_to_files(path):
    links = [link for cell in cells(path, "markdown") for link in LINK.findall(source(cell)) if "://" not in link]
    assert not [link for link in links if not (path.parent / link).exists()]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_that_prints_has_its_output_and_none_an_error(path):
    for cell in cells(path, "code"):
        assert cell["outputs"] or not re.search(r"^print\(|plt\.show\(\)", source(cell), re.MULTILINE), source(cell)
        assert not [output for output in cell["outputs"] if output["output_type"] == "error"]
