"""Where files of the repository stand on the site, and their links, which are written for the repository."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
RENAMED = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
KINDS = (".md", ".ipynb", ".png")
LANGUAGES = {".py": "python", ".c": "c", ".cff": "yaml", ".toml": "toml", ".json": "json", ".csv": "text"}
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
CODE = re.compile(r"(^(?:```|~~~).*?^(?:```|~~~)\s*$|`+[^`\n]+`+)", re.DOTALL | re.MULTILINE)


def pages() -> Iterator[str]:
    """Yield the pages and pictures outside docs/ that belong to the site, as paths in the repository."""
    yield from RENAMED
    for pattern in ("benchmarks/**/*.md", "benchmarks/**/*.png", "notebooks/*.ipynb"):
        yield from sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern))


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


def origin(page: str) -> str | None:
    """Return which file of the repository a page of the site is; None for a generated page."""
    for path, renamed in RENAMED.items():
        if page == renamed:
            return path
    found = [path for path in (page, f"docs/{page}") if place(path) == page]
    return found[0] if found else None


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


def separate_lists(text: str) -> str:
    """Return Markdown with an empty line before each list, which GitHub does not need and Python-Markdown does."""
    lines, inside, fenced = [], False, False
    for line in text.split("\n"):
        fenced ^= line.startswith(("```", "~~~"))
        item = not fenced and re.match(r"(?:[-*+]|\d+\.) ", line)
        if item and not inside and lines and lines[-1].strip():
            lines.append("")
        inside = bool(line.strip()) and (inside or bool(item)) and not fenced
        lines.append(line)
    return "\n".join(lines)


def source_page(path: str) -> str:
    """Return a page with the text of a file."""
    text = (ROOT / path).read_text(encoding="utf-8")
    language = LANGUAGES.get(posixpath.splitext(path)[1], "text")
    return f"# {path}\n\n``````{{ .{language} }}\n{text.rstrip()}\n``````\n"
