"""Checks before the work: that output can be written, and that the sizes declared by a file are plausible."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from bayesnmf.checks import check_path
from bayesnmf.needs import needed_for
from bayesnmf.writing import try_folder

FREE_AXES = 2**30  # bytes always allowed for rows and columns
AXES_PER_BYTE = 64  # bytes allowed in addition for each byte of the file
DEFLATION = 1032  # most bytes that one compressed byte can expand to


def check_folder(path: str | Path, name: str, files: Iterable[str] = (), *, private: bool = False) -> Path:
    """Return a folder that can be written to, created if necessary, in which these files can be written.

    A file name may include a folder, as in `fits/map.nc`; it is created as well. With `private`, nobody but the user
    may look into a folder that is created here; one that was there before keeps its permissions.
    """
    folder = _writable(check_path(path, name), name, 0o700 if private else 0o777)
    for file in files:
        place = folder / file
        if place.parent != folder:
            _writable(place.parent, name)
        if place.is_dir() and place.suffix != ".zarr":
            raise ValueError(f"{name} must not contain a folder with the name of a file: {place} is one; move it away")
        _check_unprotected(place, name)
    return folder


def check_plots_can_be_drawn() -> None:
    """Refuse a value of MPLBACKEND with which matplotlib cannot be imported, and to draw without it."""
    try:
        with needed_for("a figure"):
            import matplotlib as _  # noqa: F401
    except ValueError as error:
        found = os.environ.get("MPLBACKEND")
        raise ValueError(
            f"the environment variable MPLBACKEND must name a backend of matplotlib: found {found!r}; unset it"
        ) from error


def check_file_to_write(path: str | Path, name: str) -> Path:
    """Return the path of a file that can be written, in an existing folder."""
    file = check_path(path, name)
    if file.is_dir():
        raise ValueError(f"{name} must be a file: {path} is a folder; add a file name")
    if not file.parent.is_dir():
        raise ValueError(f"{name} must be in a folder that exists: {file.parent} does not; create the folder")
    if file.exists() and not file.is_file():  # a device or a pipe, such as /dev/stdout
        return file
    _check_unprotected(file, name)
    _writable(Path(os.path.realpath(file)).parent, name)
    return file


def _writable(folder: Path, name: str, mode: int = 0o777) -> Path:
    try:
        folder.mkdir(mode, parents=True, exist_ok=True)
        try_folder(folder)
    except OSError as error:
        raise ValueError(f"{name} must be a folder that can be written to: {folder} ({error.strerror})") from error
    return folder


def _check_unprotected(file: Path, name: str) -> None:
    if file.is_file() and not os.access(file, os.W_OK):
        raise ValueError(f"{name} must be a place that can be written to: {file} is write-protected; move it away")


def check_axes(shape: Iterable[int], path: Path) -> None:
    """Refuse a shape whose rows and columns alone would take far more memory than the size of the file justifies.

    Each row and each column takes 8 bytes, for its name or for the start of its entries, even if it is empty. Together
    they may take 1 GiB, or 64 times the size of the file if that is more.
    """
    size = path.stat().st_size
    rows, columns = shape
    most = max(FREE_AXES, AXES_PER_BYTE * size) // 8
    if rows + columns > most:
        raise ValueError(
            f"it must declare at most {most:,} rows and columns together, as it has {size:,} bytes: found {rows:,} "
            f"rows and {columns:,} columns; remove those without counts"
        )


def check_entries(entries: int, least: int, path: Path) -> None:
    """Refuse more entries than fit into a text file; each takes at least `least` characters."""
    size = path.stat().st_size * (DEFLATION if path.suffix == ".gz" else 1)
    if entries * least > size:
        raise ValueError(
            f"it must declare at most {size // least:,} entries, as it has no room for more: found {entries:,}"
        )
