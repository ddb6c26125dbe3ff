"""Checks of single values: numbers, words, seeds and sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from numbers import Integral, Real
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from bayesnmf.text import readable

LONGEST_SHOWN = 80


def check_rank(rank: Any) -> int:
    """Return the number of components as an int, at least 1."""
    return check_count(rank, "rank")


def is_rank(value: Any) -> bool:
    """Return whether a value in place of a model is a number of components."""
    return isinstance(value, Integral) and not isinstance(value, (bool, np.bool))


def check_is_no_rank(model: Any, name: str, example: str) -> None:
    """Refuse a number in place of the name of a model, where it cannot be the rank."""
    if is_rank(model) or (isinstance(model, str) and model.isdigit()):
        raise ValueError(
            f"{name} must be the name of a model, as {example!r}: found {shown(model)}; did you mean rank={model}?"
        )


def check_given_once(once: bool, name: str, in_place: Any, given: Any, cure: str) -> None:
    """Refuse ranks in place of models beside others."""
    if not once:
        raise ValueError(
            f"{name} must be given once: found {shown(in_place)} in place of the model, and {name}={shown(given)}; "
            f"give {cure}"
        )


def shown(value: Any) -> str:
    """Return the text of a value for a message: one short line, or the shape of an array."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape:
        return f"{type(value).__name__} of shape {shape}"
    if isinstance(value, Integral) and abs(int(value)) >= 10**30:
        return f"a number of {int(int(value).bit_length() * 0.30103) + 1} digits"
    line = " ".join(repr(value).split())
    return line if len(line) <= LONGEST_SHOWN else line[: LONGEST_SHOWN - 3] + "..."


def check_count(value: Any, name: str, minimum: int = 1, most: int = 2**63 - 1) -> int:
    """Return a whole number from `minimum` to `most` as an int; accept NumPy integers, but not booleans."""
    if isinstance(value, (bool, np.bool)) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be a whole number of at least {minimum}, not {shown(value)}")
    number = int(value)
    if number < minimum:
        raise ValueError(f"{name} must be at least {minimum}: found {shown(value)}")
    if number > most:
        raise ValueError(f"{name} must be at most {most:,}: found {shown(value)}")
    return number


def check_positive(value: Any, name: str) -> float:
    """Return a finite number above 0 as a float."""
    if isinstance(value, (bool, np.bool)) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a positive number, not {shown(value)}")
    number = _as_float(value)
    if not (number > 0 and np.isfinite(number)):
        raise ValueError(f"{name} must be positive and finite: found {shown(value)}")
    return number


def has_mask(value: Any) -> bool:
    """Return whether a value is a masked array, or a list with masked arrays, whose masks NumPy would drop."""
    if isinstance(value, list | tuple):
        return any(has_mask(each) for each in value)
    return isinstance(value, np.ma.MaskedArray)


def has_labels(value: Any) -> bool:
    """Return whether a table or a vector has names of rows or columns, other than 0 … n − 1."""
    found: list[Any] = [getattr(value, each, None) for each in ("index", "columns", "column_names")]
    axes = [each for each in found if each is not None and not callable(each)]
    axes += getattr(value, "indexes", {}).values()  # of xarray
    return not all(map(is_counted, axes))


def is_counted(names: Any) -> bool:
    """Return whether names are 0 … n − 1, as of counts without names."""
    return bool(np.array_equal(names, np.arange(len(names))))


def as_numbers(value: Any, name: str, rule: str = "a number or an array of numbers") -> np.ndarray:
    """Return an array of float64; refuse text, booleans, masked arrays, ragged lists, and labels that would be lost."""
    if has_labels(value):
        raise TypeError(
            f"{name} must have no labels, which are not compared with those of the counts: found {shown(value)}; put "
            "it in the order of the counts, as with frame.loc[names], and give frame.to_numpy()"
        )
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be {rule}: found {shown(value)}") from error
    if array.dtype.kind not in "iuf" or has_mask(value):
        raise TypeError(f"{name} must be {rule}: found {shown(value)}")
    return array.astype(np.float64, copy=False)


def make_plain(settings: Any) -> None:
    """Replace NumPy's numbers, booleans and strings in a dataclass of settings by Python's."""
    for name, value in vars(settings).items():
        if isinstance(value, np.generic):
            object.__setattr__(settings, name, value.item())


def check_flag(value: Any, name: str) -> None:
    """Refuse anything but True and False."""
    if not isinstance(value, (bool, np.bool)):
        raise TypeError(f"{name} must be True or False: found {shown(value)}")


def nearest(word: Any, words: Iterable[str]) -> str | None:
    """Return the one of some words that is probably meant: the same but for case and signs, or spelt nearly so."""
    if not isinstance(word, str):
        return None
    plain: dict[str, str] = {}
    for each in words:
        plain.setdefault(_plain(each), each)
    close = [_plain(word)] if _plain(word) in plain else get_close_matches(_plain(word), plain, n=1)
    return plain[close[0]] if close else None


def _plain(word: str) -> str:
    return word.casefold().replace("-", "_").replace(" ", "_").strip("_")


def did_you_mean(word: Any, words: Iterable[str], others: Mapping[str, str] | None = None) -> str:
    """Return a question that ends a message: whether another word is meant; "" if none is near.

    `others` maps words of other libraries, in small letters with "_", to what is meant by them, quoted.
    """
    by_others = {_plain(each): meant for each, meant in (others or {}).items()}
    if isinstance(word, str) and _plain(word) in by_others:
        return f"; did you mean {by_others[_plain(word)]}?"
    close = nearest(word, words)
    return "" if close is None else f"; did you mean {close!r}?"


def check_choice(value: Any, name: str, choices: Iterable[str], others: Mapping[str, str] | None = None) -> str:
    """Return `value` if it is one of `choices`; otherwise raise an error that lists them and suggests the closest.

    `others` maps names that other libraries use to those meant, as in `did_you_mean`.
    """
    options = list(choices)
    if isinstance(value, str) and value in options:
        return value
    hint = did_you_mean(value, options, others)
    listed = ", ".join(repr(option) for option in options)
    raise ValueError(f"{name} must be one of {listed}: found {shown(value)}{hint}")


def check_seed(seed: Any) -> int | None:
    """Return a seed: an int from 0 to below 2**63, or None for a different seed each time."""
    if seed is None:
        return None
    return check_count(seed, "seed", minimum=0)


def seed_or_new(seed: Any) -> int:
    """Return a seed, or a new one if it is None."""
    given = check_seed(seed)
    return int(np.random.SeedSequence().generate_state(1)[0]) if given is None else given


def check_fraction(value: Any, name: str) -> float:
    """Return a number strictly between 0 and 1."""
    number = check_positive(value, name)
    if number >= 1:
        raise ValueError(f"{name} must be below 1: found {value}")
    return number


def check_share(value: Any, name: str) -> float:
    """Return a number from 0 to 1."""
    number = check_nonnegative(value, name)
    if number > 1:
        raise ValueError(f"{name} must be at most 1: found {shown(value)}")
    return number


def check_nonnegative(value: Any, name: str) -> float:
    """Return a finite number of at least 0."""
    if isinstance(value, (bool, np.bool)) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number of at least 0, not {shown(value)}")
    number = _as_float(value)
    if not (0 <= number < np.inf):
        raise ValueError(f"{name} must be at least 0 and finite: found {shown(value)}")
    return number


def check_dispersion(value: Any, by: str | None, name: str = "dispersion") -> Any:
    """Return a dispersion of all entries as a number, or those of rows or features as an array."""
    if by is None and np.ndim(value) == 0:
        return check_nonnegative(value, name)
    array = as_numbers(value, name, "a number, an array of numbers, 'row', 'feature' or 'matrix'")
    if by is None or array.ndim != 1 or not np.all((array >= 0) & np.isfinite(array)):
        raise ValueError(
            f"{name} must be one number, or with by='row', 'feature' or 'matrix' an array of finite numbers, one "
            f"for each, of at least 0: found {shown(value)} with by={by!r}"
        )
    return array


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number too large for a float
        return float("inf") if value > 0 else float("-inf")


def check_instance(value: Any, kind: type, name: str) -> None:
    """Refuse anything but an instance of `kind`, one of the package's own classes."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be bayesnmf.{kind.__name__}(...): found {shown(value)}")


def check_size(size: int, limit: float, what: str, cure: str) -> None:
    """Refuse a `size` in bytes above `limit`."""
    if size > limit:
        raise ValueError(
            f"{what} would take {size / 2**30:.1f} GiB, above the limit of {limit / 2**30:.1f} GiB; {cure}"
        )


def check_method(method: str, allowed: tuple[str, ...], what: str) -> None:
    """Refuse a method that does not support `what`."""
    if method not in allowed:
        listed = " or ".join(f"method={name!r}" for name in allowed)
        raise ValueError(f"{what} needs a fit by {listed}: this one is by {method!r}")


def check_available(asked: Any, available: int, name: str, cure: str = "") -> int:
    """Return the requested number of draws or chains; refuse more than the fit has, with what else would give more."""
    number = check_count(asked, name)
    if number > available:
        raise ValueError(
            f"{name} must be at most {available}, the number that this fit has: found {number}; "
            f"ask for {name}={available}, or {cure or 'fit again with more'}"
        )
    return number


def check_names(asked: Any, names: np.ndarray, what: str) -> np.ndarray | None:
    """Return the positions of the requested rows or features (`what`); None means all of them."""
    if asked is None:
        return None
    if isinstance(asked, str) or not isinstance(asked, Iterable):
        raise TypeError(f"{what} must be a list of names, not {shown(asked)}; put a single name in a list")
    chosen = list(asked)
    if not chosen:
        raise ValueError(f"{what} must name at least one: found none; leave {what} out to choose all")
    places = places_of(names)
    positions: list[int] = []
    seen: set[str] = set()
    for name in chosen:
        if readable(name) not in places:
            raise ValueError(
                f"{what} must be names in the fit: there is no {shown(name)}; "
                f"choose from fit.{'row' if what == 'rows' else 'feature'}_names"
            )
        if readable(name) in seen:
            raise ValueError(f"{what} must not repeat a name: found {shown(name)} twice; remove the second")
        seen.add(readable(name))
        positions += places[readable(name)]
    return np.array(positions)


def places_of(names: np.ndarray) -> dict[str, list[int]]:
    """Return the positions of every name, compared as text, so that 3, "3" and NumPy's 3 are the same name."""
    places: dict[str, list[int]] = {}
    for position, name in enumerate(names):
        places.setdefault(readable(name), []).append(position)
    return places


def check_pair(key: Any) -> tuple[Any, Any]:
    """Return indices of rows and of features from what stands in brackets after counts."""
    rows, *rest = key if isinstance(key, tuple) else (key,)
    if len(rest) > 1:
        raise IndexError(f"counts have rows and features, as in counts[:5, ['CD3D']]: found {len(key)} indices")
    return rows, rest[0] if rest else slice(None)


def check_index(index: Any, side: str, names: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return positions of rows or features (`side`) from positions, a slice, a mask, a name or names.

    Texts are names, and everything else goes by position; `others` are the names of the other side.
    """
    texts = [index] if isinstance(index, str) else np.asarray(index).ravel().tolist() if np.ndim(index) else []
    if not any(isinstance(each, str) for each in texts):
        return np.atleast_1d(np.arange(len(names))[index])
    known = places_of(names)
    for name in texts:
        if name in known:
            continue
        if side == "row" and name in places_of(others):
            raise KeyError(f"no row is named {name!r}, but a feature is: write counts[:, {name!r}]")
        raise KeyError(f"no {side} is named {shown(name)}{did_you_mean(name, known) or f': see counts.{side}_names'}")
    return np.array([place for name in texts for place in known[name]], dtype=np.intp)


def refuse_iteration() -> NoReturn:
    """Refuse to go through counts one by one, which would be slow where they are sparse."""
    raise TypeError(
        "counts are not iterated over: counts[i] is row i, np.asarray(counts) an array, and counts.to_frame() a frame "
        "with names"
    )


def check_may_copy(copy: bool | None) -> None:
    """Refuse an array of sparse counts that would have to share their memory."""
    if copy is False:
        raise ValueError("counts are sparse, so that a dense array of them is a copy: leave copy=False out")


def check_words(value: Any, name: str) -> list[str]:
    """Return a nonempty list of distinct words; a single string is one word."""
    if not isinstance(value, Iterable):
        raise TypeError(f"{name} must be a list of words, not {shown(value)}")
    words = [value] if isinstance(value, str) else list(value)
    if not words or len(set(map(str, words))) < len(words):
        raise ValueError(f"{name} must name at least one, and none twice: found {shown(words)}")
    return words


def parse_int(text: str, name: str) -> int:
    """Return the whole number given by an argument of the command line."""
    try:
        return int(text)
    except ValueError as error:
        raise ValueError(f"{name} must be a whole number: found {shown(text)}") from error


def check_has_file(transpose: bool) -> None:
    """Refuse --transpose without a file."""
    if transpose:
        raise ValueError("--transpose needs a FILE to transpose: name one, or leave --transpose out")


def check_path(path: Any, name: str) -> Path:
    """Return a path; refuse other types, and strings that no file system accepts."""
    if not isinstance(path, str | PathLike) or not isinstance(fspath(path), str):
        raise TypeError(f"{name} must be a path, a string or pathlib.Path: found {shown(path)}")
    if "\0" in fspath(path):
        raise ValueError(f"{name} must be a path without the character NUL: found {shown(fspath(path))}")
    return Path(path)


def check_progress(progress: Any) -> None:
    """Refuse anything but True, False or a function."""
    if not (progress is None or callable(progress) or isinstance(progress, (bool, np.bool))):
        raise TypeError(
            f"progress must be True, False or a function of (label, done, total, objective): found {shown(progress)}"
        )


def check_keywords(given: Iterable[str], allowed: Iterable[str], what: str) -> None:
    """Refuse keywords that a function does not have, and suggest the closest."""
    for name in given:
        try:
            check_choice(name, f"a keyword of {what}", allowed)
        except ValueError as error:
            raise TypeError(str(error)) from error
