"""Run a fit with a checkpoint: go on from an earlier call, keep what is reached, and return a fit that had ended.

The folder contains `fit.json`, what determines the fit with a digest of the counts; while the fit runs, what its loops
have reached (`bayesnmf.inference.checkpoints`); and at last the fit itself, `fit.nc` or `fit.zarr`.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from bayesnmf.checks import seed_or_new
from bayesnmf.data.checks import same_counts
from bayesnmf.fitting.job import Job
from bayesnmf.fitting.settings import describe_settings
from bayesnmf.inference.checkpoints.checks import check_not_in_use, check_same_settings
from bayesnmf.inference.checkpoints.slots import Keeper, keeping
from bayesnmf.inference.status import INTERRUPTED
from bayesnmf.options.checkpoint import Checkpoint
from bayesnmf.places import check_folder
from bayesnmf.results.record import FitRecord
from bayesnmf.writing import write_text

SETTINGS, FORMAT, VERSION = "fit.json", "bayesnmf.checkpoint", 1


def seed_of(given: int | None, checkpoint: Checkpoint | None) -> int:
    """Return the seed of a fit: the given one, else that of the call that the folder is from, else a new one."""
    saved = None if given is not None or checkpoint is None else _read_settings(Path(checkpoint.folder) / SETTINGS)
    return int(saved["seed"]) if saved else seed_or_new(given)


def run_kept(run: Callable[[Job], FitRecord], job: Job, checkpoint: Checkpoint | None) -> FitRecord:
    """Run a fit, from where an earlier call of the same fit had come to if there is a checkpoint.

    Raises
    ------
    ValueError
        The folder has a fit of other counts or settings, cannot be written to, or is in use.
    """
    if checkpoint is None:
        return run(job)
    folder = check_folder(checkpoint.folder, "checkpoint", [SETTINGS])
    with _alone_in(folder):
        _note_settings(folder, job)
        ended = _ended_fit(folder, job)
        if ended is not None:
            return ended
        keeper = Keeper(folder, checkpoint.seconds)
        try:
            with keeping(keeper):
                found = run(replace(job, started=job.started - keeper.spent))
        finally:
            keeper.flush()
        if found.status.reason != INTERRUPTED and _write_fit(found, folder):
            keeper.clear()
        return found


def _note_settings(folder: Path, job: Job) -> None:
    """Write what determines the fit, or refuse the folder of another one."""
    import bayesnmf

    settings = describe_settings(job.counts, job.model, job.rank, job.method, job.seed, job.options)
    settings["bayesnmf"] = bayesnmf.__version__
    file = folder / SETTINGS
    if file.is_file():
        check_same_settings(_read_settings(file), settings, folder, "checkpoint")
    else:
        about = {"format": FORMAT, "format_version": VERSION, "settings": settings}
        write_text(file, json.dumps(about, indent=1) + "\n")


def _read_settings(file: Path) -> Any:
    """Return the settings in a file; None if there is no such file."""
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    known = isinstance(about, dict) and about.get("format") == FORMAT and about.get("format_version") == VERSION
    return about.get("settings") if known else None


def _ended_fit(folder: Path, job: Job) -> FitRecord | None:
    """Return the fit of these counts and this seed that had ended; None without one, or if its file is damaged."""
    from bayesnmf.results.storage import read_fit

    for path in (folder / "fit.nc", folder / "fit.zarr"):
        if path.exists():
            try:
                found = read_fit(path)
            except ValueError:
                return None
            if found.seed == job.seed and _same(found.counts, job.counts):
                return replace(found, counts=job.counts, options=job.options)
    return None


def _same(one: Any, two: Any) -> bool:
    """Return whether counts are the same; those on disk have been compared by their fingerprints."""
    return same_counts(one, two) if one.in_memory and two.in_memory else one.shape == two.shape


def _write_fit(found: FitRecord, folder: Path) -> bool:
    """Write a fit that has ended; warn and return False if that fails, since the fit itself is at hand."""
    from bayesnmf.results.storage import save_by_size

    try:
        save_by_size(found, folder / "fit.nc")
    except (ImportError, OSError) as error:
        warnings.warn(
            f"the fit has ended, but was not written to the checkpoint: {error}; call fit.save",
            UserWarning,
            stacklevel=6,
        )
        return False
    return True


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Refuse a folder in which another process works; the lock ends with the process."""
    try:
        import fcntl
    except ImportError:  # Windows, where two processes in one folder are not refused
        yield
        return
    with (folder / "lock").open("w") as file:
        taken = False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            taken = True
        check_not_in_use(taken, folder)
        yield
