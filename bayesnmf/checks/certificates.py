"""Checks of what certificates are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bayesnmf.checks.values import check_choice, check_count, check_words
from bayesnmf.counts import Counts
from bayesnmf.specification import MODELS


def check_effort(effort: Any) -> None:
    """Refuse an effort that makes no sense: at least 2 draws, so that they have a standard error."""
    check_count(effort.draws, "draws", minimum=2)
    for name in ("svi_steps", "cells", "particles"):
        check_count(getattr(effort, name), name)
    if effort.svi_models != ():
        for model in check_words(effort.svi_models, "svi_models"):
            check_choice(model, "svi_models", MODELS)


def check_file_to_write(path: str | Path, name: str) -> Path:
    """Return the path of a file in a folder that exists."""
    file = Path(path)
    if file.is_dir():
        raise ValueError(f"{name} must be a file: {path} is a folder; add a file name")
    if not file.parent.is_dir():
        raise ValueError(f"{name} must be in a folder that exists: {file.parent} does not; create the folder")
    return file


def check_some_counts(counts: Counts) -> None:
    """Refuse counts that are all zero: every statement would be about nothing."""
    if counts.nnz == 0:
        raise ValueError("counts must hold at least one count: all are zero; give a matrix that is not empty")
