"""Long tables, with a row, a feature and a count in each line: tell them from wide ones, and read them.

Columns are found by their headers, in any order. Where the headers say nothing, text in the second column does, or that
no pair of the first two numbers repeats, which counts do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesnmf.data.counts import Counts
from bayesnmf.data.mutations import read_types
from bayesnmf.data.suspicions import warn_of_data

LAYOUTS = ("long", "wide")
MOST_COLUMNS = 6  # of a long table
FEWEST_REPEATS = 8  # expected of two columns of counts before their absence proves anything
# Headers of columns: in small letters, without punctuation and without an ending such as "id" or "s".
NAMES_OF_LINES = frozenset(("id", "ids", "idx", "index", "row"))  # name rows if no other column does
NAMES_OF_ROWS = NAMES_OF_LINES | frozenset((
    "sample", "cell", "barcode", "doc", "document", "user", "customer", "patient",
))  # fmt: skip
NAMES_OF_FEATURES = frozenset((
    "feature", "word", "term", "token", "gene", "item", "type", "mutationtype", "movie", "book", "song", "track",
    "artist", "product", "species", "taxon", "otu", "asv", "genesymbol", "quad",
))  # fmt: skip
NAMES_OF_COUNTS = frozenset(("count", "n", "value", "freq", "frequency", "rating", "score", "play"))
_ENDING = re.compile(r"(?:ids?|idx|index|names?|s)$")


class Columns(NamedTuple):
    """Places of the three columns of a long table."""

    row: int
    feature: int
    counts: int


def stem(header: Any) -> str:
    """Return a header in small letters, without punctuation and without an ending such as "id" or "s"."""
    plain = "".join(letter for letter in str(header).lower() if letter.isalnum())
    known = (NAMES_OF_ROWS, NAMES_OF_FEATURES, NAMES_OF_COUNTS)
    return plain if any(plain in names for names in known) else _ENDING.sub("", plain) or plain


def header_of_features(table: Any) -> str | None:
    """Return the header above the names of the rows of a frame if it is one of features, else None."""
    header = str(getattr(getattr(table, "index", None), "name", None) or "")
    return header if stem(header) in NAMES_OF_FEATURES else None


def warn_of_header(table: Any, counts: Counts, name: str) -> None:
    """Warn if the header above the names of the rows of a frame is one of features."""
    header = header_of_features(table)
    if header is not None and read_types(counts.row_names) is None:  # of mutation types another warning tells
        warn_of_data(
            f"{name} have features in their rows, as the name {header!r} of their index says; rows must be "
            "samples: transpose them, counts.T, or name the index 'sample'"
        )


def is_identifier(header: Any) -> bool:
    """Return whether a header is that of identifiers of rows, such as ``userId``."""
    return stem(header) in NAMES_OF_ROWS - NAMES_OF_LINES and str(header).lower().endswith("id")


def named_columns(header: Iterable[Any]) -> Columns | None:
    """Return the columns that the headers of a long table name, or None.

    Raises
    ------
    ValueError
        Headers that name all three columns, and one of them more than once.
    """
    stems = [stem(each) for each in header]
    if not 3 <= len(stems) <= MOST_COLUMNS:
        return None
    found = [
        [place for place, each in enumerate(stems) if each in names]
        for names in (NAMES_OF_ROWS, NAMES_OF_FEATURES, NAMES_OF_COUNTS)
    ]
    if not all(found):
        return None
    found[0] = [place for place in found[0] if stems[place] not in NAMES_OF_LINES] or found[0][:1]
    if (several := next((places for places in found if len(places) > 1), None)) is not None:
        listed = ", ".join(repr(stems[place]) for place in several)
        raise ValueError(
            f"its headers must name one column of rows, one of features and one of counts: found {listed}; remove all "
            'but one of these columns, or pass layout="wide" (--layout wide on the command line)'
        )
    return Columns(*(places[0] for places in found))


def long_columns(frame: Any, layout: str | None) -> Columns | None:
    """Return the columns of a long table, or None for a wide one.

    Raises
    ------
    ValueError
        Three columns that are not found although the layout is "long"; a table without headers; and numbers that are
        no counts of features.
    """
    import pandas as pd

    if layout == "wide":
        return None
    header = [*frame.columns]
    if (named := named_columns(header)) is not None:
        return named
    if layout == "long":
        if len(header) != 3:
            raise ValueError(
                "its headers must name the columns of a long table, as in 'sample', 'feature' and 'count': found "
                f"{', '.join(map(repr, header[:MOST_COLUMNS]))}; rename them, or remove all but three columns"
            )
        return Columns(0, 1, 2)
    if not 3 <= len(header) <= MOST_COLUMNS:
        return None
    first, second = frame.iloc[:, 0], frame.iloc[:, 1]
    if (
        len(header) == 3
        and not pd.api.types.is_numeric_dtype(second)
        and _is_text_and_numbers(second, frame.iloc[:, 2])
    ):
        _check_has_header(header)
        return Columns(0, 1, 2)
    if never_repeat(first, second):
        raise ValueError(
            f"it must be a long or a wide table: no two lines have the same {header[0]!r} and {header[1]!r}, as in a "
            "long table, but the headers do not name a column of rows, one of features and one of counts; say "
            'layout="long" or layout="wide" (--layout on the command line), or name the columns, as in "sample", '
            '"feature", "count"'
        )
    return None


def _is_text_and_numbers(second: Any, third: Any) -> bool:
    """Return whether a column is text and the next numbers; some words may be numbers, and some counts wrong."""
    import pandas as pd

    in_second, in_third = (int(pd.to_numeric(each, errors="coerce").notna().sum()) for each in (second, third))
    return in_second < second.notna().sum() / 2 and in_third > len(third) / 2


def _check_has_header(header: list[Any]) -> None:
    if re.fullmatch(r"\d+(\.\d*)?", str(header[2])):
        raise ValueError(
            f"its first line must name the columns, but holds a count ({', '.join(map(str, header))}); write a line "
            "of names above it, as in sample,feature,count"
        )


def never_repeat(first: Any, second: Any) -> bool:
    """Return whether no pair of two columns repeats, although pairs of counts would: columns of text or whole numbers.

    Were the columns independent, as many pairs would be equal as the product of their shares of equal pairs says.
    """
    import pandas as pd

    codes, shares = [], []
    for column in (first, second):
        if not _is_whole_or_text(column):
            return False
        codes.append(pd.factorize(column)[0].astype(np.int64))
        number = np.bincount(codes[-1][codes[-1] >= 0]).astype(float)
        shares.append((number * (number - 1)).sum() / 2)
    pairs = len(codes[0]) * (len(codes[0]) - 1) / 2
    if pairs == 0 or shares[0] * shares[1] / pairs < FEWEST_REPEATS:
        return False
    both = codes[0] * (codes[1].max() + 1) + codes[1]
    return len(np.unique(both)) == len(both)


def _is_whole_or_text(column: Any) -> bool:
    import pandas as pd

    if not pd.api.types.is_numeric_dtype(column):
        return True
    values: NDArray[np.float64] = np.asarray(column, dtype=np.float64)
    return bool(np.isfinite(values).all() and (values == np.floor(values)).all())


def warn_of_long(counts: Counts) -> None:
    """Warn if the columns, at most `MOST_COLUMNS`, are a row, a feature and a count, and not features."""
    if counts.shape[1] < 3:
        return
    try:
        is_long = named_columns(counts.feature_names) is not None
    except ValueError:
        is_long = True
    first, second = counts.matrix[:, [0, 1]].toarray().T
    if is_long or never_repeat(first, second):
        names = ", ".join(repr(str(name)) for name in counts.feature_names)
        warn_of_data(
            f"counts look like a long table, with a row, a feature and a count in each line, but each column ({names}) "
            "is taken as a feature; make it wide, as with frame.pivot_table(values, rows, features, fill_value=0), or "
            'write it to a file for read_counts(path, layout="long")'
        )


def from_long(frame: Any, columns: Columns, path: Path) -> Any:
    """Return the counts of a long table as a sparse matrix with names, both in the order of first appearance.

    Columns that are left out are told in a warning, but for a first one without a name.
    """
    import pandas as pd
    from scipy.sparse import coo_array

    left = [
        name for place, name in enumerate(frame.columns) if place not in columns and not str(name).startswith("Unnamed")
    ]
    row, feature, count = (frame.iloc[:, place] for place in columns)
    if left:
        warn_of_data(
            f"{path} is read as a long table of {row.name!r}, {feature.name!r} and {count.name!r}; left out: "
            f"{', '.join(map(repr, left))}; remove these columns, or "
            'pass layout="wide" (--layout wide on the command line) if each column is a feature'
        )
    places, names = [], []
    for column in (row, feature):
        if column.isna().any():
            at = int(column.isna().to_numpy().argmax())
            raise ValueError(
                f"column {column.name!r} of a long table must have a name in every line: entry {at} is missing"
            )
        codes, found = pd.factorize(column)
        places.append(codes)
        names.append(np.array([str(name) for name in found], dtype=object))
    counts = numbers(count).to_numpy(dtype=np.float64, na_value=np.nan)
    valid = np.isfinite(counts) & (counts >= 0)
    if not valid.all():  # told before repeated pairs are added, which may hide a negative count
        at = int(valid.argmin())
        raise ValueError(
            f"column {count.name!r} of a long table must be counts of at least 0: found {counts[at]} for "
            f"{names[0][places[0][at]]!r} and {names[1][places[1][at]]!r}"
        )
    matrix = coo_array((counts, tuple(places)), shape=(len(names[0]), len(names[1])))
    return SimpleNamespace(X=matrix, obs_names=names[0], var_names=names[1], layers={})


def numbers(column: Any) -> Any:
    """Return a column as numbers; refuse other text."""
    import pandas as pd

    try:
        found = pd.to_numeric(column.astype(object))  # else dates would become nanoseconds
        return found if pd.api.types.is_numeric_dtype(found) else found.astype(float)  # integers above 2**64
    except (TypeError, ValueError) as error:
        cure = "all columns but that of the names of rows must be numbers: mend the entry, or remove the column"
        raise ValueError(f"column {column.name!r}: {error}; {cure}") from error
