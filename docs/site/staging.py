"""Fill the folder from which Sphinx builds the site: `python docs/site/staging.py FOLDER`.

Pages of the repository are copied, with links that lead to pages of the site; the gallery, the API, the glossary,
pictures of the models and what the menus say are made here. `conf.py` has the settings of Sphinx.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from pathlib import Path

import matplotlib

matplotlib.use("agg")

sys.path.insert(0, str(Path(__file__).parents[1]))  # docs/, where the gallery's examples are

import gallery
import menus
import reference
from gallery_page import as_png, gallery_page, picture
from glossary_page import glossary_page
from repository import ROOT, links, pages, place, rewrite_links, source_page

from bayesnmf import plots
from bayesnmf.priors import specification
from bayesnmf.questions import questions

PART = re.compile(r"^<!-- part: (\S+) (\w+) -->$", re.MULTILINE)


def fill(folder: Path) -> None:
    """Write all pages and pictures into a folder."""
    made: dict[str, str | bytes] = {"gallery.md": gallery_page(), "glossary.rst": glossary_page()}
    made |= menus.made_pages() | reference.made_pages()
    made |= {f"gallery/{name}.png": picture(function) for name, function in gallery.entries().items()}
    made |= {f"models/{name}.png": draw_model(name, False) for name in specification.MODELS}
    made |= {f"models/{name}_augmented.png": draw_model(name, True) for name in specification.MODELS}
    made |= {f"source/{path}.md": "---\norphan: true\n---\n" + source_page(path) for path in linked_sources()}
    made |= {place(path) or path: staged(path) for path in pages()}
    for path, content in made.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content if isinstance(content, bytes) else (meta_of(path) + content).encode())


def meta_of(path: str) -> str:
    """Return the head of a page with the words of its questions (`bayesnmf.which`), which the search box then knows."""
    own = [each for each in questions() if re.sub(r"(#.*)?$", "", each.page).replace(".py", ".md") == path]
    words = sorted({word for each in own for word in re.findall(r"[\w']+", f"{each.question} {each.also}".lower())})
    return f'---\nmyst:\n  html_meta:\n    keywords: "{", ".join(words)}"\n---\n' if words else ""


def staged(path: str) -> str | bytes:
    """Return a page or picture of the repository as the site has it."""
    page = place(path) or path
    if path.endswith(".ipynb"):
        notebook = json.loads((ROOT / path).read_text(encoding="utf-8"))
        for cell in notebook["cells"]:
            if cell["cell_type"] == "markdown":
                cell["source"] = rewrite_links("".join(cell["source"]), path, page)
        return json.dumps(notebook)
    if path.endswith(".md"):
        text = rewrite_links((ROOT / path).read_text(encoding="utf-8"), path, page)
        return include(PART.sub(lambda match: part_of(*match.groups(), page), text)) + menus.menu_of(page)
    return (ROOT / path).read_bytes()


def part_of(path: str, name: str, page: str) -> str:
    """Return what stands between ``<!-- begin: name -->`` and ``<!-- end -->`` in a file, for a page of the site."""
    text = (ROOT / path).read_text(encoding="utf-8")
    return rewrite_links(text.split(f"<!-- begin: {name} -->\n", 1)[1].split("<!-- end -->", 1)[0], path, page)


def linked_sources() -> set[str]:
    """Return the files of code and data to which pages link."""
    found = {place(target) for path in pages() if path.endswith(".md") for target in links(path)}
    found.add("source/CITATION.cff.md")
    return {each.removeprefix("source/").removesuffix(".md") for each in found if each and each.startswith("source/")}


def draw_model(model: str, augmented: bool) -> bytes:
    """Return the plate diagram of a model, as a PNG."""
    return as_png(plots.model_graph(model, augmented=augmented))


def include(markdown: str) -> str:
    """Replace comments such as ``<!-- plate: model -->`` by what GitHub does not show.

    That are the diagrams of a model, an example of the gallery (``figure: name``) and the text of a file (``source:
    path``).
    """

    def diagrams(match: re.Match[str]) -> str:
        model, half = match[1], '{width="48%"}'
        return f"![Diagram of {model}]({model}.png){half} ![The same with allocations]({model}_augmented.png){half}"

    def figure(match: re.Match[str]) -> str:
        name = match[1]
        about = inspect.getdoc(gallery.entries()[name])
        return f"![{name}](/gallery/{name}.png)\n\n*{about}* [Its code is in the gallery](#gallery-{name})."

    markdown = re.sub(r"<!-- plate: (\w+) -->", diagrams, markdown)
    markdown = re.sub(r"^<!-- figure: (\w+) -->$", figure, markdown, flags=re.MULTILINE)
    return re.sub(r"<!-- source: (\S+) -->", lambda match: source_page(match[1]).split("\n", 2)[2], markdown)


if __name__ == "__main__":
    fill(Path(sys.argv[1]))
