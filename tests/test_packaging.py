"""What a release states in several places agrees: its version, the changelog, the versions of Python."""

import re
import tomllib
from pathlib import Path

import bayesnmf

ROOT = Path(__file__).resolve().parents[1]


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def project() -> dict:
    return tomllib.loads(text_of("pyproject.toml"))["project"]


def test_the_version_is_that_of_the_changelog_and_of_the_citation():
    newest = re.search(r"^## (\S+) \(\d{4}-\d\d-\d\d\)$", text_of("CHANGELOG.md"), re.MULTILINE)
    assert newest is not None
    assert newest[1] == bayesnmf.__version__
    assert f"\nversion: {bayesnmf.__version__}\n" in text_of("CITATION.cff")


def test_the_readme_names_the_versions_of_python_that_are_classified():
    versions = re.findall(r"Python :: (3\.\d+)", " ".join(project()["classifiers"]))
    assert f"Python {versions[0]} to {versions[-1]}" in text_of("README.md")
    assert project()["requires-python"] == f">={versions[0]}"
