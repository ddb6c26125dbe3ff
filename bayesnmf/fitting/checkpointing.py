"""Run a fit with a checkpoint: go on from an earlier call, keep what is reached, and return a fit that had ended.

The folder contains `fit.json`, what determines the fit with a digest of the counts; while the fit runs, what its loops
have reached (`bayesnmf.inference.checkpoints`); and at last the fit itself, `fit.nc` or `fit.zarr`, with its digest in
`fit.json`.
"""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any

from bayesnmf.checks import seed_or_new
from bayesnmf.data.suspicions import PACKAGE
from bayesnmf.fitting.job import Job
from bayesnmf.fitting.settings import describe_settings, digest_of_counts
from bayesnmf.inference.checkpoints.checks import (
    FolderInUseError,
    check_not_in_use,
    check_same_settings,
    check_version,
)
from bayesnmf.inference.checkpoints.keeper import Keeper
from bayesnmf.inference.checkpoints.slots import keeping
from bayesnmf.inference.status import INTERRUPTED
from bayesnmf.noise.poisson import POISSON
from bayesnmf.options import Gibbs, Options
from bayesnmf.options.checkpoint import Checkpoint
from bayesnmf.places import check_folder
from bayesnmf.results.record import FitRecord
from bayesnmf.writing import remove, take_lock, write_text

SETTINGS, FORMAT, VERSION = "fit.json", "bayesnmf.checkpoint", 4
UNFINISHED = re.compile(r"\.(fit|journal|snapshot|rows)-.*[0-9a-f]{8}(\..+)?")  # of a write that was killed
EACH: ContextVar[Checkpoint | None] = ContextVar("each", default=None)


def seed_of(given: int | None, checkpoint: Checkpoint | None) -> int:
    """Return the seed of a fit: the given one, else that of the call that the folder is from, else a new one."""
    saved = None if given is not None or checkpoint is None else _read_settings(Path(checkpoint.folder) / SETTINGS)
    return int(saved["seed"]) if saved is not None else seed_or_new(given)


@contextmanager
def keep_each_fit(checkpoint: Checkpoint | None) -> Iterator[None]:
    """Keep each fit that runs inside the block in a folder of its own, which its counts and settings name.

    The same work again then skips the fits that had ended, whatever their order, and goes on with the others.
    """
    if checkpoint is not None:
        check_folder(checkpoint.folder, "checkpoint", private=True)
    token = EACH.set(checkpoint)
    try:
        yield
    finally:
        EACH.reset(token)


def run_with_checkpoint(run: Callable[[Job], FitRecord], job: Job, checkpoint: Checkpoint | None) -> FitRecord:
    """Run a fit in the folder of its checkpoint, or of `keep_each_fit`, and resume an earlier identical call.

    Raises
    ------
    ValueError
        The folder has a fit of other counts or settings, cannot be written to, or is in use.
    """
    settings = _settings_of(job)
    if checkpoint is not None:
        return _run_in(checkpoint, settings, run, job)
    each = EACH.get()
    assert each is not None
    try:
        return _run_in(each.within(f"{job.method}-{job.model}-{job.rank}-{_name_of(settings)}"), settings, run, job)
    except FolderInUseError:  # the same fit runs at this moment in another thread or process, which keeps it
        with keeping(None):
            return run(job)


def _run_in(checkpoint: Checkpoint, settings: dict[str, str], run: Callable[[Job], FitRecord], job: Job) -> FitRecord:
    with kept_in(checkpoint, settings) as keeper:
        ended = _ended_fit(keeper, job)
        if ended is not None:
            return ended
        with keeping(keeper):
            found = run(replace(job, started=job.started - keeper.spent))
        if found.status.reason != INTERRUPTED and _write_fit(found, keeper, settings):
            keeper.clear()
        return found


def _name_of(settings: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


@contextmanager
def keep_loops(checkpoint: Checkpoint | None, kind: str, settings: dict[str, str]) -> Iterator[None]:
    """Keep the loops that run inside the block and belong to no fit, in a folder that the settings name."""
    if checkpoint is None:
        yield
        return
    with kept_in(checkpoint.within(f"{kind}-{_name_of(settings)}"), settings) as keeper, keeping(keeper):
        yield


@contextmanager
def kept_in(checkpoint: Checkpoint, settings: dict[str, str]) -> Iterator[Keeper]:
    """Yield the keeper of a folder, and write what waits at the end; refuse a folder of other settings or in use."""
    folder = check_folder(checkpoint.folder, "checkpoint", [SETTINGS], private=True)
    with _alone_in(folder) as alone:
        for path in folder.iterdir() if alone else ():
            if UNFINISHED.fullmatch(path.name):
                remove(path)
        _check_settings(folder, settings)
        keeper = Keeper(folder, checkpoint.seconds, _name_of(settings))
        try:
            yield keeper
        finally:
            keeper.flush()


def _settings_of(job: Job) -> dict[str, str]:
    import bayesnmf

    settings = describe_settings(job.counts, job.model, job.rank, job.method, job.seed, job.options)
    if job.noise != POISSON:
        settings["noise"] = job.noise.in_full()
    return {**settings, "bayesnmf": bayesnmf.__version__}  # another version may end with other numbers


def _check_settings(folder: Path, settings: dict[str, str]) -> None:
    """Write what determines the fit, or refuse the folder of another one."""
    file = folder / SETTINGS
    if not file.is_file():
        _write_settings(folder, settings, {})
        return
    about = _read_about(file)
    if about.get("format") == FORMAT:
        check_version(about.get("format_version"), VERSION, folder, "checkpoint")
    check_same_settings(_read_settings(file), settings, folder, "checkpoint")


def _write_settings(folder: Path, settings: dict[str, str], ended: dict[str, str]) -> None:
    """Write what determines the fit, and a digest of the file of the fit that has ended, by its name."""
    about = {"format": FORMAT, "format_version": VERSION, "settings": settings, "digest": _name_of(settings)}
    write_text(folder / SETTINGS, json.dumps({**about, "ended": ended}, indent=1) + "\n")


def _read_about(file: Path) -> dict[str, Any]:
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return about if isinstance(about, dict) else {}


def _read_settings(file: Path) -> Any:
    """Return the settings in a file; None if there are none, or if they were damaged."""
    about = _read_about(file)
    settings = about.get("settings")
    whole = isinstance(settings, dict) and about.get("digest") == _name_of(settings)
    return settings if whole and about.get("format_version") == VERSION else None


def _ended_fit(keeper: Keeper, job: Job) -> FitRecord | None:
    """Return the fit that had ended; None without one, or if its file is not the one that was written."""
    from bayesnmf.results.storage import read_fit

    for path, whole in _ended_files(keeper.folder):
        if whole:
            try:
                found = read_fit(path)
            except ValueError as error:  # such as counts on disk that are elsewhere now
                warnings.warn(
                    f"the fit in {keeper.folder} had ended, but cannot be read, and is done again: {error}",
                    UserWarning,
                    skip_file_prefixes=(PACKAGE,),
                )
                return None
            if found.seed == job.seed and digest_of_counts(found.counts) == digest_of_counts(job.counts):
                batch = found.batch and replace(found.batch, names=job.counts.batch.names)  # names are no settings
                return replace(found, counts=job.counts, options=_of_method(job.options, found.options), batch=batch)
    return None


def _of_method(options: Options, found: Options) -> Options:
    """Return the options of a call with the algorithm that its method chose."""
    return replace(options, algorithm=found.algorithm) if isinstance(found, Gibbs) else options  # type: ignore[arg-type]


def has_damaged_fit(checkpoint: Checkpoint | None) -> bool:
    """Return whether the folder has the file of a fit, but not as it was written."""
    return checkpoint is not None and any(not whole for _, whole in _ended_files(Path(checkpoint.folder)))


def _ended_files(folder: Path) -> list[tuple[Path, bool]]:
    """Return the files of fits that have ended, and whether each is the one that was written."""
    ended = _read_about(folder / SETTINGS).get("ended")
    digests = ended if isinstance(ended, dict) else {}
    return [(path, digests.get(path.name) == _digest_of(path)) for path in _places(folder) if path.exists()]


def _places(folder: Path) -> tuple[Path, Path]:
    return folder / "fit.nc", folder / "fit.zarr"


def _digest_of(path: Path) -> str:
    """Return a digest of a file, or of all files in a folder with their names."""
    digest = hashlib.sha256()
    for file in sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]:
        digest.update(f"{file.relative_to(path)} {file.stat().st_size} ".encode())
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()


def _write_fit(found: FitRecord, keeper: Keeper, settings: dict[str, str]) -> bool:
    """Write a fit that has ended; warn and return False if that fails, since the fit itself is at hand."""
    from bayesnmf.results.storage import save_by_size

    try:
        save_by_size(found, keeper.folder / "fit.nc")
        written = {path.name: _digest_of(path) for path in _places(keeper.folder) if path.exists()}
        _write_settings(keeper.folder, settings, written)
    except (ImportError, OSError) as error:
        warnings.warn(
            f"the fit has ended, but was not written to the checkpoint: {error}; call fit.save",
            UserWarning,
            skip_file_prefixes=(PACKAGE,),
        )
        return False
    return True


@contextmanager
def _alone_in(folder: Path) -> Iterator[bool]:
    """Refuse a folder in which another process works, where there are locks; they end with their process.

    Yield whether no other process can be there.
    """
    try:
        held = take_lock(folder / "lock")
    except OSError:
        yield False
        return
    check_not_in_use(held is None, folder)
    assert held is not None
    with held:
        yield True
