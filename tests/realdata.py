"""Real count matrices for tests and benchmarks; a user does not have them, so their tests skip."""

import os
from pathlib import Path

import pytest

from bayesnmf.data.counts import Counts
from bayesnmf.data.files import read_counts


def find_file(name: str) -> Path | None:
    """Return the path of a file in $BAYESNMF_DATA, or in ../shared/data beside the repository."""
    default = Path(__file__).resolve().parents[1].parent / "shared" / "data"
    path = Path(os.environ.get("BAYESNMF_DATA") or default) / name
    return path if path.is_file() else None


def find_data(name: str) -> Path | None:
    """Return the path of the file ``name.npz``."""
    return find_file(f"{name}.npz")


def real_counts(name: str) -> Counts:
    """Read a real data set, or skip the calling test."""
    path = find_data(name)
    if path is None:
        pytest.skip(f"real data {name!r} not found: set BAYESNMF_DATA to the folder that holds {name}.npz")
    return read_counts(path)
