"""Checks of what a page is made of."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from bayesnmf.checks import check_path, shown
from bayesnmf.places import check_file_to_write, check_plots_can_be_drawn
from bayesnmf.plots.checks import check_known


def check_page(path: str | os.PathLike[str]) -> Path:
    """Return the path of a page that can be written."""
    target = check_path(path, "path")
    if target.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"path must end in .html: found {target}; change the file name")
    check_plots_can_be_drawn()
    return check_file_to_write(target, "path")


def check_source(source: Any, kinds: tuple[type, type], groups: Any, known: Any) -> None:
    """Refuse anything but a fit or a comparison, groups and a match for a comparison, and a match of another fit."""
    if not isinstance(source, kinds):
        raise TypeError(
            f"source must be a result of bayesnmf.fit or bayesnmf.compare: found {shown(source)}; read a saved fit "
            "with bayesnmf.load"
        )
    for name, given in (("groups", groups), ("known", known)):
        if given is not None and isinstance(source, kinds[1]):
            raise ValueError(f"{name} belong to the page of one fit; leave {name} out, or give one of comparison.fits")
    if known is not None:
        check_known(known, source.rank)


def check_title(title: Any) -> str | None:
    """Return the heading."""
    if title is not None and not isinstance(title, str):
        raise TypeError(f"title must be text: found {shown(title)}; give a string, or leave it out")
    return title
