"""Where and how often a long fit is kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bayesnmf.checks import check_path, check_positive


@dataclass(frozen=True)
class Checkpoint:
    """Folder that keeps a fit while it runs, so that the same call goes on after an interruption.

    Attributes
    ----------
    folder : str or path
        Folder for one fit; it is created if it does not exist.
    seconds : float
        Time between snapshots, and so the most that is lost. A snapshot takes the size of both factors on disk, two
        are kept; Gibbs sampling adds the draws that are kept.

    See Also
    --------
    fit, select, modes, compare, assign : take it, or a path.

    Examples
    --------
    >>> import bayesnmf
    >>> often = bayesnmf.Checkpoint("run", seconds=10)
    >>> fit = bayesnmf.fit([[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]], rank=2, seed=0, checkpoint=often)
    """

    folder: str | Path
    seconds: float = 60.0

    def __post_init__(self) -> None:
        check_path(self.folder, "checkpoint")
        check_positive(self.seconds, "seconds")

    def within(self, name: str) -> Checkpoint:
        """Return a checkpoint in a folder inside this one."""
        return Checkpoint(Path(self.folder) / name, self.seconds)


def as_checkpoint(given: str | Path | Checkpoint | None) -> Checkpoint | None:
    """Return a checkpoint for the path of a folder."""
    return given if given is None or isinstance(given, Checkpoint) else Checkpoint(given)


def place_within(given: Checkpoint | None, name: str) -> Checkpoint | None:
    """Return a checkpoint in a folder inside the given one, if there is one."""
    return None if given is None else given.within(name)
