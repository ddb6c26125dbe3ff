"""Checks of what a page is made of."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from bayesnmf.checks import check_path, shown
from bayesnmf.data.labels import Order, in_order, is_missing
from bayesnmf.data.several import is_weighted
from bayesnmf.pages.reading import Given
from bayesnmf.places import check_file_to_write, check_plots_can_be_drawn
from bayesnmf.plots.checks import check_known
from bayesnmf.studies.selection.selecting import Selection
from bayesnmf.studies.stability.modes import Modes
from bayesnmf.types import Array


def check_page(path: str | os.PathLike[str]) -> Path:
    """Return the path of a page that can be written."""
    target = check_path(path, "path")
    if target.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"path must end in .html: found {target}; change the file name")
    check_plots_can_be_drawn()
    return check_file_to_write(target, "path")


def check_source(source: Any, kinds: tuple[type[Any], type[Any]], given: Given) -> None:
    """Refuse anything but a fit or a comparison, what belongs to a fit for a comparison, and what is of another fit."""
    if not isinstance(source, kinds):
        raise TypeError(
            f"source must be a result of bayesnmf.fit or bayesnmf.compare: found {shown(source)}; read a saved fit "
            "with bayesnmf.load"
        )
    for name, value in given._asdict().items():
        if value is not None and name != "image_shape" and isinstance(source, kinds[1]):
            raise ValueError(f"{name} belong to the page of one fit; leave {name} out, or give one of comparison.fits")
    if given.known is not None:
        check_known(given.known, source)
    for name, kind, of in (("selection", Selection, "select"), ("modes", Modes, "modes")):
        value = getattr(given, name)
        if value is not None and not isinstance(value, kind):
            raise TypeError(
                f"{name} must be a result of bayesnmf.{of}: found {shown(value)}; give one, or leave it out"
            )
    if given.selection is not None and given.selection.totals is not None:  # of an older version
        _check_counts("selection", source, *given.selection.totals)
    if given.modes is not None and given.modes.best.components.shape != source.components.shape:
        rank, features = given.modes.best.components.shape
        raise ValueError(
            f"modes must be those of {source.rank} components and {source.counts.shape[1]:,} features: found "
            f"{rank} and {features:,}; run bayesnmf.modes with the counts and the rank of the fit"
        )
    if given.modes is not None:
        _check_counts("modes", source, *_totals_of(given.modes.best.counts))


def _check_counts(name: str, fit: Any, row_totals: Array, feature_totals: Array) -> None:
    """Refuse what was made of counts of another shape, or with other totals of rows and features."""
    own, what = fit.counts, f"bayesnmf.{'select' if name == 'selection' else name}"
    told = f"{name} must be made of the counts of the fit, {own.shape[0]:,} × {own.shape[1]:,}: found"
    cure = f"run {what} with the counts of the fit"
    n, m = len(row_totals), len(feature_totals)
    if (n, m) != tuple(own.shape):
        raise ValueError(f"{told} {n:,} × {m:,}; {cure}")
    rows, features = _totals_of(own)
    same = is_weighted(own) or np.allclose(row_totals, rows)  # rows of weighted matrices have other totals
    if not (same and np.allclose(feature_totals, features)):
        raise ValueError(f"{told} other totals of rows or features; {cure}")


def _totals_of(counts: Any) -> tuple[Array, Array]:
    """Return the totals of rows, and those of features as they were before their matrices were weighted."""
    features = counts.feature_totals
    if is_weighted(counts):
        features = features / counts.matrices.weights[counts.matrices.codes]
    return counts.row_totals, features


def check_title(title: Any) -> str | None:
    """Return the heading."""
    if title is not None and not isinstance(title, str):
        raise TypeError(f"title must be text: found {shown(title)}; give a string, or leave it out")
    return title


def check_texts(texts: Any, row_names: np.ndarray) -> list[str | None] | None:
    """Return a text for each row, None where it has none; those with labels go by them (`bayesnmf.data.labels`)."""
    if texts is None:
        return None
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise TypeError(f"texts must be a list, a mapping or a Series of strings: found {shown(texts)}")
    values = in_order(texts, row_names, Order("texts", of="fit", more=True))
    entries = [None if is_missing(each) else each for each in values]
    if len(entries) != len(row_names):
        raise ValueError(
            f"texts must have one entry for each of {len(row_names)} rows: found {len(entries)}; give None where there "
            "is no text"
        )
    for each in entries:
        if not (each is None or isinstance(each, str)):
            raise TypeError(f"texts must be strings: found {shown(each)}; join the words of a text by spaces")
    return entries
