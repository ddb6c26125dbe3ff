"""Checks of what needs counts in memory, or room on the disk."""

from __future__ import annotations

import shutil
from typing import Any


class CountsOnDiskError(AttributeError, ValueError):
    """Something asks for numbers that are on disk, where counts in memory are needed."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"this needs counts in memory, but they are on disk ({what}); give chosen rows, as in "
            "fit.project(fit.counts.rows(range(1000))) for a fit, or read all counts with bayesnmf.read_counts"
        )


def check_read(counts: Any, what: str) -> None:
    """Refuse counts on disk where all of them are needed."""
    if not counts.in_memory:
        raise CountsOnDiskError(what)


def check_room_for_rows(counts: Any, rank: int, more: int = 0) -> None:
    """Refuse a fit whose loadings, of up to four states, and what else it writes would not fit on the disk."""
    if counts.in_memory:
        return
    needed = 4 * 2 * counts.shape[0] * rank * counts.dtype.itemsize + more
    free = shutil.disk_usage(counts.scratch).free
    if needed > free:
        raise ValueError(
            f"scratch needs {needed / 1e9:.1f} GB for what a fit of rank {rank} writes: {counts.scratch} has "
            f"{free / 1e9:.1f} GB; name a folder with more room, as in bayesnmf.Blocks(..., scratch=...)"
        )
