"""What mkdocs does beyond docs/: other pages of the repository, notebooks, the API, pictures, formulas.

Events of mkdocs, in their order: `on_config` completes the navigation, `on_files` brings in the pages that are not in
docs/ and those that are made here, `on_page_markdown` rewrites links and includes, `on_page_content` renders formulas.
"""

from __future__ import annotations

import fnmatch
import html
import re
import sys
from collections.abc import Iterator
from typing import Any

import matplotlib
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

matplotlib.use("agg")

from repository import (
    ROOT,
    links,
    origin,
    pages,
    place,
    rewrite_links,
    separate_lists,
    source_page,
)  # fmt: skip

sys.path.insert(0, str(ROOT / "docs"))

import gallery
import reference
from gallery_page import as_png, gallery_page, picture

from bayesnmf import plots
from bayesnmf.priors import specification

MODELS = tuple(specification.MODELS)
STYLE = """
.md-grid { max-width: 76rem; }
.md-typeset table:not([class]) { font-size: .68rem; }
.md-typeset .doc-contents table { font-size: .64rem; }
.md-typeset pre > code { font-size: .66rem; }
.md-typeset td:first-child code { white-space: nowrap; }
.md-typeset math[display="block"] { margin: 1em 0; overflow-x: auto; font-size: 1.1em; }
.md-typeset h2.doc-heading { border-top: 1px solid var(--md-default-fg-color--lightest); padding-top: 1em; }
.md-typeset .doc-contents { margin-left: 1rem; }
.md-typeset img { background: white; }
.jupyter-wrapper .jp-OutputArea-output pre { white-space: pre !important; overflow-x: auto; }
"""


def on_config(config: MkDocsConfig) -> None:
    """Replace the patterns of the navigation by the pages that match them and are not named elsewhere."""
    config.nav = list(expand(config.nav, set(named(config.nav))))


def named(nav: Any) -> Iterator[str]:
    """Yield all pages that a navigation names."""
    for item in nav if isinstance(nav, list) else [nav]:
        if isinstance(item, dict):
            for inside in item.values():
                yield from named(inside)
        else:
            yield item


def expand(nav: list[Any], known: set[str]) -> Iterator[Any]:
    """Yield the items of a navigation, with patterns replaced."""
    there = sorted({*(path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/*.md"))})
    there += [place(path) for path in pages()] + [f"reference/{name}.md" for name in reference.GROUPS]
    for item in nav:
        if isinstance(item, dict):
            yield {title: list(expand(i, known)) if isinstance(i, list) else i for title, i in item.items()}
        elif "*" in item:
            depth = item.count("/")
            yield from (p for p in there if fnmatch.fnmatch(p, item) and p.count("/") == depth and p not in known)
        else:
            yield item


@event_priority(100)  # before mkdocs-jupyter looks for notebooks
def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside docs/, and those that are made here."""
    made: dict[str, str | bytes] = {"style.css": STYLE, "gallery.md": gallery_page()}
    made |= {f"gallery/{name}.png": picture(function) for name, function in gallery.entries().items()}
    made |= {f"reference/{name}.md": reference.write_page(group) for name, group in reference.GROUPS.items()}
    made |= {f"models/{name}.png": draw_model(name, False) for name in MODELS}
    made |= {f"models/{name}_augmented.png": draw_model(name, True) for name in MODELS}
    made |= {f"source/{path}.md": source_page(path) for path in linked_sources()}
    for path in pages():
        files.append(File.generated(config, place(path) or path, abs_src_path=str(ROOT / path)))
    for path, content in made.items():
        files.append(File.generated(config, path, content=content))
    return files


def linked_sources() -> set[str]:
    """Return the files of code and data to which pages link."""
    written = [path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md")]
    texts = [path for path in [*written, *pages()] if path.endswith(".md")]
    found = {place(target) for path in texts for target in links(path)} | {"source/CITATION.cff.md"}
    return {each.removeprefix("source/").removesuffix(".md") for each in found if each and each.startswith("source/")}


def draw_model(model: str, augmented: bool) -> bytes:
    """Return the plate diagram of a model, as a PNG."""
    return as_png(plots.model_graph(model, augmented=augmented))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make links lead to pages of the site, and include what comments ask for."""
    path = origin(page.file.src_uri)
    if path is None:
        return markdown
    markdown = rewrite_links(markdown, path, page.file.src_uri)
    return include(separate_lists(markdown)) if path.endswith(".md") else markdown


def include(markdown: str) -> str:
    """Replace ``<!-- plate: model -->`` by the diagrams of a model, ``<!-- source: path -->`` by the text of a file."""

    def diagrams(match: re.Match[str]) -> str:
        model = match[1]
        half = '{ width="48%" }'
        return f"![Diagram of {model}]({model}.png){half} ![The same with allocations]({model}_augmented.png){half}"

    markdown = re.sub(r"<!-- plate: (\w+) -->", diagrams, markdown)
    return re.sub(r"<!-- source: (\S+) -->", lambda match: source_page(match[1]).split("\n", 2)[2], markdown)


FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
MATHJAX = re.compile(r"<!-- Load mathjax -->.*?<!-- End of mathjax configuration -->", re.DOTALL)  # from elsewhere


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Render formulas as MathML, which browsers show without a script."""

    def render(match: re.Match[str]) -> str:
        return convert(html.unescape(match[3]), display="block" if match[2] == "[" else "inline")

    return FORMULA.sub(render, MATHJAX.sub("", content))
