"""Checks of folders with checkpoints and with fits of many starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bayesnmf.checks import LONGEST_SHOWN


def check_same_settings(saved: Any, settings: Mapping[str, str], path: Path, name: str) -> None:
    """Refuse a folder of other counts or settings, and one whose settings cannot be read.

    Parameters
    ----------
    name : str
        Name of the argument that gave the folder.
    """
    if not isinstance(saved, Mapping):
        raise ValueError(
            f"{name} must be new, or the folder of an earlier call: the settings in {path} are damaged, so its "
            "contents cannot be told from others; give another folder, or delete this one"
        )
    different = [each for each in {**settings, **saved} if saved.get(each) != settings.get(each)]
    if "counts" in different:  # default priors depend on the counts
        different = [each for each in different if not each.startswith("priors.")]
    if different:
        listed = ", ".join(_difference(each, saved.get(each), settings.get(each)) for each in different)
        raise ValueError(
            f"{name} must contain fits of the same counts and settings: {path} differs in {listed}; give another "
            "folder, or the settings of this one"
        )


def _difference(name: str, there: Any, here: Any) -> str:
    """Return the name of a setting that differs, with both values if they can be read."""
    if name == "counts" or there is None or here is None:
        return name
    return f"{name} ({_in_short(there)} there, {_in_short(here)} here)"


def _in_short(text: Any) -> str:
    line = str(text)
    return line if len(line) <= LONGEST_SHOWN else line[: LONGEST_SHOWN - 3] + "..."


class FolderInUseError(ValueError):
    """Another fit writes to the folder of a checkpoint."""


def check_not_in_use(taken: bool, folder: Path) -> None:
    """Refuse a folder that another process writes to."""
    if taken:
        raise FolderInUseError(
            f"checkpoint must be a folder that no other fit uses: another one writes to {folder} now; give another "
            "folder, or wait for its end"
        )


def check_can_be_kept(known: bool, what: str) -> None:
    """Refuse to write what could not be read again."""
    if not known:
        raise TypeError(f"a checkpoint keeps no {what}")


def check_is_known(known: bool, what: str) -> None:
    """Refuse to read what no checkpoint of this version has: a class that is not listed, or another kind of thing."""
    if not known:
        raise ValueError(f"a checkpoint contains no {what}")


def check_pieces(found: Sequence[Any], folder: Path) -> None:
    """Refuse to go on without loadings that the journal refers to."""
    if any(each is None for each in found):
        raise ValueError(f"checkpoint must have whole files: loadings in {folder} are damaged or missing; delete it")


def check_version(found: Any, version: int, folder: Path, name: str) -> None:
    """Refuse a folder that another version of bayesnmf has written."""
    if found != version:
        raise ValueError(
            f"{name} must be of format {version}, which this version of bayesnmf reads: {folder} has format {found}; "
            "end that fit with the version that began it, or give another folder, or delete this one"
        )


def check_same_files(found: Mapping[str, int], written: Mapping[str, int], folder: Path) -> None:
    """Refuse files of loadings that are not those that a state refers to, though each of them is whole."""
    if found != written:
        raise OSError(f"{folder} has other files than the checkpoint says")
