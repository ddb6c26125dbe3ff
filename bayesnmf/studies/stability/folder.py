"""Keep the fits of many starts in a folder, so that the same call goes on where an earlier one ended.

The folder contains `modes.json`, the settings with a digest of the counts, and a fit for each start that has ended,
`start-0000.nc`, … (`bayesnmf.load` reads them); `under-way-0000`, … are checkpoints of those that run. Fits of other
counts or settings are refused by name of what differs. A file that is damaged, or is not the fit of its start, is
replaced by a new fit.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

from bayesnmf.data.counts import Counts
from bayesnmf.fitting.fitted import Fit
from bayesnmf.fitting.settings import describe_settings
from bayesnmf.inference.checkpoints.checks import check_same_settings
from bayesnmf.options.checkpoint import Checkpoint
from bayesnmf.places import check_folder
from bayesnmf.results.storage import read_fit, save_by_size
from bayesnmf.writing import put, remove, write_text

SETTINGS, FORMAT, VERSION = "modes.json", "bayesnmf.modes", 1


class Folder:
    """Fits of many starts in a folder.

    Reading and writing happen one at a time, since not every HDF5 library may be used by several threads.

    Parameters
    ----------
    path : str or path
        Folder, created if necessary.
    settings : dict of str
        Settings of the fits.

    Raises
    ------
    ValueError
        The folder cannot be written to, or contains fits of other settings.
    """

    def __init__(self, path: Any, settings: dict[str, str]) -> None:
        self.path, self.lock = check_folder(path, "checkpoint", [SETTINGS], private=True), Lock()
        self.settings = settings
        self._failed = False  # whether it was told that a fit could not be written
        file = self.path / SETTINGS
        if file.is_file():
            check_same_settings(_read_settings(file), settings, self.path, "checkpoint")
        else:
            about = {"format": FORMAT, "format_version": VERSION, "settings": settings}
            write_text(file, json.dumps(about, indent=1) + "\n")

    def read(self, start: int, counts: Counts, seed: int) -> tuple[Fit | None, bool]:
        """Return the fit of a start, with these counts, or None; and whether there is a file that is not this fit."""
        with self.lock:
            places = [path for path in (self._path(start, suffix) for suffix in (".nc", ".zarr")) if path.exists()]
            if not places:
                return None, False
            try:
                record = read_fit(places[0])
            except ValueError:
                return None, True
        fitted = describe_settings(record.counts, record.model, record.rank, record.method, record.seed, record.options)
        if fitted != {**self.settings, "seed": str(seed)}:
            return None, True
        return Fit.of(replace(record, counts=counts)), False

    def under_way(self, start: int, seconds: float) -> Checkpoint:
        """Return the checkpoint of the fit of a start while it runs."""
        return Checkpoint(self.path / f"under-way-{start:04d}", seconds)

    def write(self, start: int, fit: Fit) -> None:
        """Write the fit of a start; an older file is replaced only once the new one is complete.

        Warn, once, if that fails: the fit itself is at hand.
        """
        try:
            self._write(start, fit)
        except (ImportError, OSError) as error:
            if not self._failed:
                self._failed = True
                warnings.warn(f"fits are not written to the checkpoint: {error}; they are in the result", stacklevel=2)

    def _write(self, start: int, fit: Fit) -> None:
        with self.lock:
            ended = Path(self.under_way(start, 1.0).folder)
            written = [path for path in (ended / "fit.nc", ended / "fit.zarr") if path.exists()]
            if written:
                put(written[0], self._path(start, written[0].suffix))
            else:  # it could not be written there
                save_by_size(fit, self._path(start, ".nc"))
        remove(ended)

    def _path(self, start: int, suffix: str) -> Path:
        return self.path / f"start-{start:04d}{suffix}"


def _read_settings(file: Path) -> Any:
    """Return the settings in a file; None if it is not such a file."""
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:  # not JSON, or not text
        return None
    known = isinstance(about, dict) and about.get("format") == FORMAT and about.get("format_version") == VERSION
    return about.get("settings") if known else None
