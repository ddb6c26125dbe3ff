"""Checks of places to write to: whatever would fail after the work is refused before it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from bayesnmf.checks.values import check_path
from bayesnmf.writing import try_folder


def check_folder(path: str | Path, name: str, files: Iterable[str] = ()) -> Path:
    """Return a folder that can be written to, made if need be, with nothing in the way of files of these names.

    A name may hold a folder, `fits/map.nc`, which is made as well.
    """
    folder = _writable(check_path(path, name), name)
    for file in files:
        place = folder / file
        if place.parent != folder:
            _writable(place.parent, name)
        if place.is_dir() and place.suffix != ".zarr":
            raise ValueError(f"{name} must not have a folder in the place of a file: {place} is one; move it away")
        _check_unprotected(place, name)
    return folder


def check_file_to_write(path: str | Path, name: str) -> Path:
    """Return the path of a file that can be written, in a folder that exists."""
    file = check_path(path, name)
    if file.is_dir():
        raise ValueError(f"{name} must be a file: {path} is a folder; add a file name")
    if not file.parent.is_dir():
        raise ValueError(f"{name} must be in a folder that exists: {file.parent} does not; create the folder")
    if file.exists() and not file.is_file():  # a device or a pipe, as /dev/stdout is
        return file
    _check_unprotected(file, name)
    _writable(Path(os.path.realpath(file)).parent, name)
    return file


def _writable(folder: Path, name: str) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try_folder(folder)
    except OSError as error:
        raise ValueError(f"{name} must be a folder that can be written to: {folder} ({error.strerror})") from error
    return folder


def _check_unprotected(file: Path, name: str) -> None:
    if file.is_file() and not os.access(file, os.W_OK):
        raise ValueError(f"{name} must not have a write-protected file in its way: {file} is one; move it away")
