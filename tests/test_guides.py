"""The guides: their code runs, all names and keywords in it exist, and the site shows everything that is public."""

import ast
import importlib
import inspect
import re
import sys
from pathlib import Path

import pytest

import bayesnmf
from bayesnmf import plots
from bayesnmf.priors import specification

ROOT = Path(__file__).parents[1]
GUIDES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
FENCE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def code_of(page: Path) -> str:
    """Return all Python code of a page as one script."""
    return "\n".join(FENCE.findall(page.read_text(encoding="utf-8")))


def tree_of(page: Path) -> ast.Module:
    return ast.parse(code_of(page))


def from_site(name: str):
    """Import a module that builds the site; those used here need nothing beyond the package."""
    for folder in (ROOT / "docs", ROOT / "docs" / "site"):
        if str(folder) not in sys.path:
            sys.path.append(str(folder))
    return importlib.import_module(name)


def imported(tree: ast.Module) -> dict:
    """Return the package and what a script imports from it, by name."""
    found = {"bayesnmf": bayesnmf, "plots": plots}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "bayesnmf":
            found |= {alias.asname or alias.name: getattr(bayesnmf, alias.name) for alias in node.names}
    return found


def value_of(node: ast.expr, known: dict):
    """Return the public object that an expression such as ``bayesnmf.plots.modes`` names; None for others."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = value_of(node.value, known)
        return None if owner is None else getattr(owner, node.attr)  # raises AttributeError: no such name
    return None


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_and_keywords_exist(page):
    tree = tree_of(page)
    known = imported(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            value_of(node, known)
        if isinstance(node, ast.Call) and callable(called := value_of(node.func, known)):
            accepted = inspect.signature(called).parameters
            free = any(parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values())
            given = {keyword.arg for keyword in node.keywords if keyword.arg}
            assert free or given <= set(accepted), ast.unparse(node)


def test_a_wrong_name_or_keyword_is_found(tmp_path):
    for code in ("bayesnmf.fitt(counts)", "bayesnmf.fit(counts, ranks=3)"):
        page = tmp_path / "page.md"
        page.write_text(f"```python\n{code}\n```\n", encoding="utf-8")
        with pytest.raises((AttributeError, AssertionError)):
            test_names_and_keywords_exist(page)


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_line_of_code_scrolls_sideways(page):
    """Comments stand alone: those behind code are what a narrow screen hides."""
    narrow = from_site("narrow")
    assert all(map(narrow.is_narrow, narrow.blocks(page))), "run python docs/narrow.py"


def test_code_is_made_narrow():
    narrow = from_site("narrow")
    wide = "if x:\n    call(first_argument, second_argument, third_argument=4)   # what comes of it\n"
    assert not narrow.is_narrow(wide)
    made = narrow.narrowed(wide)
    assert made == "if x:\n    # what comes of it\n    call(first_argument, second_argument, third_argument=4)\n"
    assert narrow.narrowed(made) == made
    long = narrow.narrowed(f"f(x)  # {'word ' * 20}\n")
    assert narrow.is_narrow(long)
    assert long.count("word") == 20
    assert ast.dump(ast.parse(long)) == ast.dump(ast.parse("f(x)"))


# --- what the site shows ---------------------------------------------------------------------------------------------


def test_every_plot_is_in_the_gallery():
    gallery = from_site("gallery")
    assert {gallery.figure_of(name) for name in gallery.entries()} == gallery.figures()
    assert all(inspect.getdoc(example) for example in gallery.entries().values())


def test_figures_of_guides_are_in_the_gallery():
    asked = [
        name for page in GUIDES for name in re.findall(r"<!-- figure: (\w+) -->", page.read_text(encoding="utf-8"))
    ]
    assert len(asked) > 5
    assert set(asked) <= set(from_site("gallery").entries())


def test_every_public_name_is_on_a_page_of_the_api():
    reference = from_site("reference")
    shown = [name for group in reference.GROUPS.values() for name in group.names]
    assert sorted([*shown, "__version__"]) == sorted(bayesnmf.__all__)
    documented = {name for group in reference.GROUPS.values() for name, _ in reference.entries(group)}
    assert {f"bayesnmf.plots.{name}" for name in from_site("gallery").figures()} <= documented


def test_every_model_has_a_page_with_its_diagram_and_its_program():
    for model in specification.MODELS:
        page = (ROOT / "docs" / "models" / f"{model}.md").read_text(encoding="utf-8")
        assert f"<!-- plate: {model} -->" in page
        assert f"<!-- source: models/{model}.py -->" in page


def test_links_of_the_repository_become_links_of_the_site():
    site = from_site("repository")
    text = "[a](docs/ranks.md#x) [`b`](models/poisson.py) [d](https://e.org) `[f](docs/ranks.md)`"
    expected = "[a](ranks.md#x) [`b`](source/models/poisson.py.md) [d](https://e.org) `[f](docs/ranks.md)`"
    assert site.rewrite_links(text, "README.md", "readme.md") == expected
    with pytest.raises(FileNotFoundError, match=r"README.md links to docs/none.md, which does not exist"):
        site.rewrite_links("[c](docs/none.md)", "README.md", "readme.md")
    back = site.rewrite_links("[readme](../../README.md)", "docs/fields/cells.md", "fields/cells.md")
    assert back == "[readme](../readme.md)"
    assert site.place("benchmarks/published") == "benchmarks/published/README.md"


def test_every_page_of_the_site_stands_in_one_menu():
    """Sphinx would warn of a page in none, but only when the site is built; here it is said at once."""
    menus, site = from_site("menus"), from_site("repository")
    named = [name for names in (*menus.BELOW.values(), *menus.GUIDES.values(), menus.PROJECT) for name in names]
    assert len(named) == len(set(named))
    guides = {path.removesuffix(".md") for path in map(site.place, site.pages()) if path.endswith(".md")}
    in_folders = {name for name in guides if name.startswith("benchmarks/") or name == "index"}
    assert guides - in_folders <= set(named)


def test_tutorials_stand_in_the_order_of_their_numbers():
    page = from_site("menus").made_pages()["tutorials.md"]
    links = re.findall(r"\]\(notebooks/(\d+)_", page)
    assert links == sorted(links)
    assert len(links) == len(list((ROOT / "notebooks").glob("*.ipynb")))


def test_pages_of_objects_differ_in_more_than_case():
    """Some disks take `Fit.html` and `fit.html` for one file."""
    reference = from_site("reference")
    names = [name for group in reference.GROUPS.values() for name, _ in reference.entries(group)]
    places = [reference.page(name).lower() for name in names if not name.startswith("bayesnmf.models")]
    assert len(places) == len(set(places)) > 80


def test_pages_of_the_api_point_to_no_page_that_is_not_there():
    """What is inside the package has none: its docstring is shown where it is pointed to."""
    reference = from_site("reference")
    lost = {}
    for name in reference.on_pages():
        text = reference.without_inside(inspect.getdoc(reference.find(name)) or "")
        named = {each.rstrip(".") for each in re.findall(r"`(bayesnmf\.[\w.]+)`", text)}
        if beyond := named - reference.on_pages():
            lost[name] = beyond
    assert not lost


def test_the_docstring_of_an_inner_function_stands_where_it_is_pointed_to():
    reference = from_site("reference")
    text = reference.without_inside(inspect.getdoc(bayesnmf.Fit.expected))
    assert "see `" not in text
    assert "rows, features : iterable of names, optional" in text
    assert "fit : Fit" not in text


def test_code_that_names_a_public_object_links_to_its_page():
    pytest.importorskip("sphinx")
    target_of = from_site("docstrings").target_of
    found = {code: target_of(code) for code in ("bayesnmf.select(counts, ranks=range(2))", "fit.transform(new)", "Fit")}
    assert list(found.values()) == ["bayesnmf.select", "bayesnmf.Fit.transform", "bayesnmf.Fit"]
    assert not any(map(target_of, ("fit.none()", "counts", "fit", "bayesnmf.fit(a) + 1", "select")))
