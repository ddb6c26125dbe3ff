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
BY_HAND = re.compile(
    r"\.(imshow|hist|barh?|errorbar|semilog[xy]|loglog|[vh]lines|fill_between|scatter|stairs)\(|\bax\w*\.plot\("
)
MOST_WORDS, MOST_LINES = 1000, 100  # some 900 words and 90 lines of code, so that a notebook is read in ten minutes


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


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_begins_with_what_was_learnt_and_is_short(path):
    text = [source(cell) for cell in cells(path, "markdown")]
    code = [line for cell in cells(path, "code") for line in source(cell).splitlines() if line.strip()]
    assert "\n\n**What was learnt.** " in text[0]
    assert len(" ".join(text).split()) <= MOST_WORDS
    assert len(code) <= MOST_LINES


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_figures_are_drawn_by_the_library(path):
    drawn = [line for cell in cells(path, "code") for line in source(cell).splitlines() if BY_HAND.search(line)]
    assert not drawn, drawn


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_reader_s_own_cautions_stay_warnings(path):
    """What must not warn is said by `notebooks/run.py`, not by a cell that turns a reader's cautions into crashes."""
    assert not [cell for cell in cells(path, "code") if 'simplefilter("error"' in source(cell)]
