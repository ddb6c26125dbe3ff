"""The documents: every link to a file of the repository leads somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/**/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page):
    links = re.findall(r"\]\(([^)\s#]+)[^)]*\)", page.read_text(encoding="utf-8"))
    inside = [link for link in links if "://" not in link and not link.startswith("/")]  # those are made for the site
    missing = [link for link in inside if not (page.parent / link).exists()]
    assert not missing


def test_every_guide_is_linked_from_the_table_of_questions():
    """The README leads to that table, where every guide stands beside the question that it answers."""
    table = (ROOT / "docs" / "which_call.md").read_text(encoding="utf-8")
    assert "(docs/which_call.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
    guides = {page.name for page in ROOT.glob("docs/*.md")} - {"which_call.md"}
    assert {name for name in guides if f"({name}" not in table} == set()


def test_the_site_begins_as_the_readme_does():
    """The page of the site takes these parts of the README."""
    readme, home = ((ROOT / path).read_text(encoding="utf-8") for path in ("README.md", "docs/site/home.md"))
    parts = re.findall(r"<!-- part: README.md (\w+) -->", home)
    assert parts == re.findall(r"<!-- begin: (\w+) -->", readme) == ["opening", "first"]
    assert readme.count("<!-- end -->") == len(parts)


def test_code_begins_on_the_first_screen_of_the_readme():
    """The two commands of a fresh machine, and then the first fit, before any figure or praise."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = "pip install uv\nuv run bayesnmf compare\nuv run pytest\n```"
    assert commands in readme[:700]
    assert readme.index("import bayesnmf") < readme.index("](docs/images/") < readme.index("## Why")
    assert readme.index("import bayesnmf") < 1500
