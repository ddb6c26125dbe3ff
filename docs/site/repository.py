"""Where files of the repository stand on the site, and their links, which are written for the repository."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
RENAMED = {
    "docs/site/home.md": "index.md",
    "README.md": "readme.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
KINDS = (".md", ".ipynb", ".png")
LANGUAGES = {".py": "python", ".c": "c", ".cff": "yaml", ".toml": "toml", ".json": "json", ".csv": "text"}
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
CODE = re.compile(r"(^(?:```|~~~).*?^(?:```|~~~)\s*$|`+[^`\n]+`+)", re.DOTALL | re.MULTILINE)


def pages() -> Iterator[str]:
    """Yield the pages and pictures of the site, as paths in the repository."""
    yield from RENAMED
    patterns = [f"{folder}/**/*.{kind}" for folder in ("docs", "benchmarks") for kind in ("md", "png")]
    for pattern in (*patterns, "notebooks/*.ipynb"):
        found = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern))
        yield from (path for path in found if not path.startswith("docs/site/"))


def place(path: str) -> str | None:
    """Return where a file or folder of the repository stands on the site; None if it does not exist."""
    if (ROOT / path).is_dir():
        return place(posixpath.join(path, "README.md"))
    if not (ROOT / path).is_file():
        return None
    if path in RENAMED:
        return RENAMED[path]
    folder, suffix = path.split("/")[0], posixpath.splitext(path)[1]
    if folder == "docs" and suffix in KINDS:
        return path.removeprefix("docs/")
    if folder in ("benchmarks", "notebooks") and suffix in KINDS:
        return path
    return f"source/{path}.md"


def is_of_repository(link: str) -> bool:
    """Return whether a link leads to a file of the repository, not to another site or within its own page."""
    return not re.match(r"[a-z]+:|#|/", link)


def target_of(link: str, path: str) -> str:
    """Return the path in the repository to which a link in a file at `path` leads."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), link.partition("#")[0]))


def links(path: str) -> set[str]:
    """Return the files of the repository to which a page links."""
    text = CODE.sub("", (ROOT / path).read_text(encoding="utf-8"))
    return {target_of(link, path) for *_, link in LINK.findall(text) if is_of_repository(link)}


def rewrite_links(text: str, path: str, page: str) -> str:
    """Return Markdown whose links lead to pages of the site.

    Raises
    ------
    FileNotFoundError
        A link leads to a file that does not exist.
    """
    code: list[str] = []

    def hide(match: re.Match[str]) -> str:
        code.append(match[0])
        return f"\0{len(code) - 1}\0"

    def rewrite(match: re.Match[str]) -> str:
        picture, label, link = match.groups()
        if not is_of_repository(link):
            return match[0]
        found = place(target_of(link, path))
        if found is None:
            raise FileNotFoundError(f"{path} links to {link}, which does not exist: correct the link")
        anchor = "#" + link.partition("#")[2] if "#" in link else ""
        return f"{picture}[{label}]({posixpath.relpath(found, posixpath.dirname(page) or '.')}{anchor})"

    rewritten = LINK.sub(rewrite, CODE.sub(hide, text))
    return re.sub("\0(\\d+)\0", lambda match: code[int(match[1])], rewritten)


def source_page(path: str) -> str:
    """Return a page with the text of a file."""
    text = (ROOT / path).read_text(encoding="utf-8")
    language = LANGUAGES.get(posixpath.splitext(path)[1], "text")
    return f"# {path}\n\n``````{language}\n{text.rstrip()}\n``````\n"
