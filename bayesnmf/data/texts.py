"""Texts that are given in place of counts: refused, with the way to count their words."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np

from bayesnmf.data.labels import is_frame, is_missing

LOOKED_AT = 20  # the first texts


def check_no_texts(x: Any, name: str) -> None:
    """Refuse texts, lists of words, and a table with a column of texts; numbers that are written as text are none."""
    if is_frame(x):
        for j, (column, dtype) in enumerate(zip(x.columns, x.dtypes, strict=True)):
            if dtype.kind not in "biufcmM" and any(map(_has_words, _first(x.iloc[:, j]))):
                raise TypeError(
                    f"{name} must be numbers, and column {column!r} has texts: count their words, as with "
                    f"CountVectorizer().fit_transform(frame[{column!r}]) of scikit-learn"
                )
        return
    if not isinstance(x, list | tuple | np.ndarray) and not hasattr(x, "to_numpy"):
        return
    first = [each for each in _first(x) if hasattr(each, "__len__") or not is_missing(each)]
    if first and all(isinstance(each, str) for each in first) and any(map(_is_word, first)):
        raise TypeError(
            f"{name} must be numbers, and these are texts: count their words, as with "
            "CountVectorizer().fit_transform(texts) of scikit-learn, or in "
            "make_pipeline(CountVectorizer(), bayesnmf.BayesLDA(10))"
        )
    if any(isinstance(each, list | tuple | np.ndarray) and any(map(_is_word, _first(each))) for each in first):
        raise TypeError(
            f"{name} must be numbers, and these are lists of words: count them, as with "
            "CountVectorizer(analyzer=list).fit_transform(lists) of scikit-learn"
        )


def _first(x: Any) -> list[Any]:
    return list(islice(x, LOOKED_AT)) if isinstance(x, list | tuple) or getattr(x, "shape", None) else []


def _has_words(value: Any) -> bool:
    return isinstance(value, str) and len(value.split()) > 2 and _is_word(value)


def _is_word(value: Any) -> bool:
    """Return whether a value is text, and no number that is written as text."""
    if not isinstance(value, str):
        return False
    try:
        float(value)
    except ValueError:
        return True
    return False
