"""Long tables, with a row, a feature and a count in each line: tell them from wide ones, and read them.

Columns are found by their headers, in any order. Where the headers say nothing, text in the second column does, or that
no pair of the first two numbers repeats, which counts do; fewer lines tell if the third has few numbers, and no 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesnmf.checks import is_counted
from bayesnmf.data.counts import Counts
from bayesnmf.data.mutations import read_types
from bayesnmf.data.suspicions import warn_of_data

LAYOUTS = ("long", "wide")
WIDE = 'layout="wide" (--layout wide on the command line)'
MOST_COLUMNS = 6  # of a long table
SURE = "'sample', 'feature' and 'count' to say so"
NO_NAME = "Unnamed: 0"  # pandas' name for a first column without a header
FEWEST_REPEATS = 8  # expected of two columns of counts before their absence proves anything
FEWEST_OF_IDS = 2  # if each of two columns has its numbers twice on average, and a third has few, and no 0
FEWEST_LINES = 30  # of a table without known headers
# Headers of columns: in small letters, without punctuation and without an ending such as "id" or "s".
NAMES_OF_LINES = frozenset(("id", "ids", "idx", "index", "row"))  # name rows if no other column does
NAMES_OF_ROWS = NAMES_OF_LINES | frozenset((
    "sample", "cell", "barcode", "doc", "document", "user", "customer", "patient", "reader", "visitor", "client",
    "tumorsamplebarcode", "spot", "invoice", "invoiceno", "basket", "transaction",
))  # fmt: skip
NAMES_OF_FEATURES = frozenset((
    "feature", "word", "term", "token", "gene", "item", "type", "mutationtype", "movie", "book", "song", "track",
    "artist", "product", "species", "taxon", "otu", "asv", "genesymbol", "quad", "transcript", "isoform", "protein",
    "peptide", "clade", "ensembl", "ensemblgene", "hugosymbol", "pathway",
    "genefamily", "sku", "stockcode", "isbn", "asin",
))  # fmt: skip
NAMES_OF_COUNTS = frozenset((
    "count", "n", "value", "freq", "frequency", "rating", "score", "play", "quantity", "qty", "tf", "cover",
    "abundance", "umi", "read", "weight", "times", "purchase", "click", "view", "listen",
))  # fmt: skip
# Of columns of a long table that are no counts.
NOT_COUNTS = re.compile(
    r".*(time|date|year|month|day|hour|price|cost|comment|note|session|lat|lon|status).*|ts|stamp", re.IGNORECASE
)
_IDENTIFIER = re.compile(r".*[a-z_. -](id|ID|Id|key|code)|.*(uuid|sha1|hash|mbid)")
MISSING_WORDS = (
    "NA", "N/A", "n/a", "na", "NaN", "nan", "NAN", "null", "NULL", "None", "missing", "<NA>", "#N/A", ".", "-", "?",
)  # fmt: skip
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
    if any(plain in names for names in known):
        return plain
    return "count" if plain.endswith(("count", "counts")) else _ENDING.sub("", plain) or plain


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


def named_columns(header: Iterable[Any]) -> Columns | None:
    """Return the columns that the headers of a long table name, or None.

    Raises
    ------
    ValueError
        Headers that name all three columns, and one of them more than once.
    """
    heads = [*header]
    rows, features, counts = found = _by_name(heads)
    if not (3 <= len(heads) <= MOST_COLUMNS and all(found)):
        return None
    if (several := next((places for places in found if len(places) > 1), None)) is not None:
        listed = ", ".join(repr(stem(heads[place])) for place in several)
        raise ValueError(
            f"its headers must name one column of rows, one of features and one of counts: found {listed}; remove all "
            f"but one of these columns, or pass {WIDE}"
        )
    return Columns(rows[0], features[0], counts[0])


def _by_name(header: list[Any]) -> tuple[list[int], list[int], list[int]]:
    """Return the places of headers that name rows, features and counts."""
    stems = [stem(each) for each in header]
    rows, features, counts = (
        [place for place, each in enumerate(stems) if each in names]
        for names in (NAMES_OF_ROWS, NAMES_OF_FEATURES, NAMES_OF_COUNTS)
    )
    return [place for place in rows if stems[place] not in NAMES_OF_LINES] or rows[:1], features, counts


def long_columns(frame: Any, layout: str | None) -> Columns | None:
    """Return the columns of a long table, or None for a wide one.

    Headers that name rows and features tell of the counts if one other column alone may have them. So do two columns
    of identifiers, whose entries repeat.

    Raises
    ------
    ValueError
        Three columns that are not found although the layout is "long"; a table without headers; a long table whose
        counts might be in several columns, or in none; and numbers that are no counts of features.
    """
    if layout == "wide":
        return None
    header = [str(each) for each in frame.columns]
    if (named := named_columns(header)) is not None:
        return named
    if not 2 <= len(header) <= MOST_COLUMNS:
        return _said_to_be_long(frame, header) if layout == "long" else None
    pair = _pair(frame, header)
    if pair is None:
        return _said_to_be_long(frame, header) if layout == "long" else _by_shape(frame, header)
    others = _by_name(header)[2] or [place for place in range(len(header)) if _may_be_counts(frame, header, place)]
    others = [place for place in others if place not in pair]
    if len(others) == 1 or (others and layout == "long"):
        return Columns(*pair, others[0])
    row, feature = (header[place] for place in pair)
    if others:
        raise ValueError(
            f"it looks like a long table of rows {row!r} and features {feature!r}, whose counts may be in "
            f"{', '.join(repr(header[place]) for place in others)}: name their column 'count'; pass layout=\"long\" "
            f"(--layout long on the command line) to take the first of these, or {WIDE} if each column is a feature"
        )
    raise ValueError(
        f"it looks like a list of {row!r} and {feature!r} without a column of counts: count its lines, as "
        f"frame.groupby([{row!r}, {feature!r}]).size().reset_index(name='count') does, and write the table that it "
        f"makes; or pass {WIDE} if each column is a feature"
    )


def _pair(frame: Any, header: list[str]) -> tuple[int, int] | None:
    """Return the columns of rows and features of a table that looks long: the rows repeat, and pairs may not."""
    rows, features, _ = _by_name(header)
    rows = [place for place in rows if stem(header[place]) not in NAMES_OF_LINES]
    if len(rows) == len(features) == 1 and not frame.iloc[:, rows[0]].is_unique:
        return rows[0], features[0]
    ids = [place for place, head in enumerate(header) if _IDENTIFIER.fullmatch(head)]
    if len(ids) < 2 or any(frame.iloc[:, place].is_unique for place in ids[:2]):
        return None
    return (ids[1], ids[0]) if ids[1] in rows or ids[0] in features else (ids[0], ids[1])


def _may_be_counts(frame: Any, header: list[str], place: int) -> bool:
    head, column = header[place], frame.iloc[:, place]
    other = NOT_COUNTS.fullmatch(head) or _IDENTIFIER.fullmatch(head) or head.startswith("Unnamed: ")
    return not other and _share_of_numbers(column) > 0.5


def _by_shape(frame: Any, header: list[str]) -> Columns | None:
    """Return the columns of a table whose headers say nothing, if its first two columns are those of a long table."""
    import pandas as pd

    if len(header) < 3:
        return None
    if numbers_lines(header[0], frame.iloc[:, 0]):  # an index, as pandas and R write it
        found = _by_shape(frame.iloc[:, 1:], header[1:])
        return None if found is None else Columns(*(place + 1 for place in found))
    first, second = frame.iloc[:, 0], frame.iloc[:, 1]
    text = not pd.api.types.is_numeric_dtype(second) and _share_of_numbers(second, among_all=False) < 0.5
    numbers_after = [place for place in range(2, len(header)) if _share_of_numbers(frame.iloc[:, place]) > 0.5]
    if text and numbers_after:
        _check_has_header(header, numbers_after[0])
    if text and len(header) == 3 and numbers_after:
        return Columns(0, 1, 2)
    repeating = text and not (first.is_unique or second.is_unique or frame.iloc[:, :2].duplicated().any())
    whole = never_repeat(first, second) or (repeating and _share_of_numbers(first) == 0 and numbers_after)
    found = Columns(0, 1, 2) if whole else _ids_and_counts(frame, header)
    if found is not None:
        raise ValueError(
            f"it must be a long or a wide table: no two lines have the same {header[found.row]!r} and "
            f"{header[found.feature]!r}, as in a "
            "long table, but the headers do not name a column of rows, one of features and one of counts; say "
            'layout="long" or layout="wide" (--layout on the command line), or name the columns, as in "sample", '
            '"feature", "count"'
        )
    return None


def _ids_and_counts(frame: Any, header: list[str]) -> Columns | None:
    """Return the columns of a table whose first two are identifiers and whose third has counts, by their values."""
    import pandas as pd

    places = _without_numbers_of_lines(frame, header)
    if len(frame) < FEWEST_LINES or len(places) != 3:
        return None
    first, second, third = (frame.iloc[:, place] for place in places)
    counts = pd.to_numeric(third, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    different = [column.nunique() for column in (first, second, third)]
    repeat = 2 * max(different[:2]) <= len(frame) and 2 * different[2] <= min(different[:2])
    if repeat and counts.min() > 0 and never_repeat(first, second, FEWEST_OF_IDS):
        return Columns(*places)
    return None


def _without_numbers_of_lines(frame: Any, header: list[str]) -> list[int]:
    """Return the places of columns but for a first one that numbers the lines, and for times and the like."""
    first = int(bool(header) and numbers_lines(header[0], frame.iloc[:, 0]))
    return [place for place in range(first, len(header)) if not NOT_COUNTS.fullmatch(header[place])]


def numbers_lines(head: str, column: Any) -> bool:
    """Return whether a column without a header is 0, 1, 2, … or 1, 2, 3, …, as pandas and R number lines."""
    import pandas as pd

    if head not in ("", NO_NAME):
        return False
    values = np.asarray(pd.to_numeric(column, errors="coerce"), dtype=np.float64)
    return bool(np.all(values == values[:1] + np.arange(len(values))))


def _said_to_be_long(frame: Any, header: list[str]) -> Columns:
    """Return the columns of a table that is said to be long: three, or two of text and the first of numbers.

    Columns that number the lines, and times, are none of three.
    """
    if len(header) == 3:
        return Columns(0, 1, 2)
    texts = [place for place in range(len(header)) if _share_of_numbers(frame.iloc[:, place]) == 0]
    counts = [place for place in range(len(header)) if _may_be_counts(frame, header, place)]
    places = _without_numbers_of_lines(frame, header)
    if len(places) == 3 and len(texts) < 2:
        return Columns(*places)
    if len(header) < 3 or len(texts) < 2 or not counts:
        raise ValueError(
            "its headers must name the columns of a long table, as in 'sample', 'feature' and 'count': found "
            f"{', '.join(map(repr, header[:MOST_COLUMNS]))}; rename them, or remove all but three columns"
        )
    return Columns(texts[0], texts[1], counts[0])


def _share_of_numbers(column: Any, among_all: bool = True) -> float:
    """Return the share of a column that is numbers, or that text of numbers; of all entries, or of those there are."""
    import pandas as pd

    entries = len(column) if among_all else column.notna().sum()
    return float(pd.to_numeric(column, errors="coerce").notna().sum()) / max(int(entries), 1)


def _check_has_header(header: list[str], place: int) -> None:
    if re.fullmatch(r"\d+(\.\d*)?", header[place]):
        raise ValueError(
            f"its first line must name the columns, but holds a count ({', '.join(header)}); write a line of names "
            "above it, as in sample,feature,count"
        )


def never_repeat(first: Any, second: Any, fewest: float = FEWEST_REPEATS) -> bool:
    """Return whether no pair of two columns repeats, although pairs of counts would: columns of text or whole numbers.

    Were the columns independent, as many pairs would be equal as the product of their shares of equal pairs says;
    where fewer than `fewest` would, nothing is known.
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
    if pairs == 0 or shares[0] * shares[1] / pairs < fewest:
        return False
    both = codes[0] * (codes[1].max() + 1) + codes[1]
    return len(np.unique(both)) == len(both)


def _is_whole_or_text(column: Any) -> bool:
    import pandas as pd

    if not pd.api.types.is_numeric_dtype(column):
        return True
    values: NDArray[np.float64] = np.asarray(column, dtype=np.float64)
    return bool(np.isfinite(values).all() and (values == np.floor(values)).all())


def warn_of_long(counts: Counts) -> bool:
    """Warn if the columns, at most `MOST_COLUMNS`, are a row, a feature and a count, and not features; return it."""
    if counts.shape[1] < 3:
        return False
    import pandas as pd

    frame = pd.DataFrame(counts.matrix.toarray(), columns=[str(name) for name in counts.feature_names])
    try:
        named = named_columns(frame.columns) or (
            None if is_counted(counts.feature_names) else long_columns(frame, None)
        )
    except ValueError:
        named = Columns(0, 1, 2)
    if named is None:
        named = _ids_and_counts(frame, [str(each) for each in frame.columns])
    if named is None and not never_repeat(frame.iloc[:, 0], frame.iloc[:, 1]):
        return False
    names = ", ".join(map(repr, frame.columns))
    row, feature, count = (frame.columns[place] for place in named or (0, 1, 2))
    warn_of_data(
        f"counts look like a long table, with a row, a feature and a count in each line, but each column ({names}) "
        f"is taken as a feature; make it wide, as frame.pivot_table({count!r}, {row!r}, {feature!r}, 'sum', 0) does, "
        'or write it to a file for bayesnmf.read_counts(path, layout="long")'
    )
    return True


def check_not_long(frame: Any, name: str) -> None:
    """Refuse a frame with text that is a long table, and say how to make it wide."""
    try:
        columns = long_columns(frame, None)
    except ValueError:
        return
    if columns is not None:
        row, feature, count = (frame.columns[place] for place in columns)
        raise TypeError(
            f"{name} must be a wide table, with samples in rows: found a long one of {row!r}, {feature!r} and "
            f"{count!r}; make it wide: frame.pivot_table({count!r}, {row!r}, {feature!r}, 'sum', 0)"
        )


def from_long(frame: Any, columns: Columns, path: Path, layout: str | None, missing: str | None = None) -> Any:
    """Return the counts of a long table as a sparse matrix with names, both in the order of first appearance.

    Columns that are left out are told in a warning, but for a first one without a name.
    """
    import pandas as pd
    from scipy.sparse import coo_array

    left = [
        name for place, name in enumerate(frame.columns) if place not in columns and not str(name).startswith("Unnamed")
    ]
    row, feature, count = (frame.iloc[:, place] for place in columns)
    known = layout == "long" or named_columns([row.name, feature.name, count.name]) is not None
    if left or not (known or _share_of_numbers(feature) < 0.5):
        lost = f"left out: {', '.join(map(repr, left))}; remove these columns" if left else f"name them {SURE}"
        warn_of_data(
            f"{path} is read as a long table of {row.name!r}, {feature.name!r} and {count.name!r}; {lost}, or pass "
            f"{WIDE} if each column is a feature"
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
    counts = numbers(count, missing).to_numpy(dtype=np.float64, na_value=np.nan)
    valid = (np.isfinite(counts) & (counts >= 0)) | (np.isnan(counts) & (missing == "nan"))
    if not valid.all():  # told before repeated pairs are added, which may hide a negative count
        at = int(valid.argmin())
        raise ValueError(
            f"column {count.name!r} of a long table must be counts of at least 0: found {counts[at]} for "
            f"{names[0][places[0][at]]!r} and {names[1][places[1][at]]!r}"
        )
    matrix = coo_array((counts, tuple(places)), shape=(len(names[0]), len(names[1])))
    return SimpleNamespace(X=matrix, obs_names=names[0], var_names=names[1], layers={})


def numbers(column: Any, missing: str | None = None) -> Any:
    """Return a column as numbers; refuse other text but, with missing="nan", words for missing entries."""
    import pandas as pd

    column = column.astype(object)  # else dates would become nanoseconds
    lost = column.isin(MISSING_WORDS)
    try:
        found = pd.to_numeric(column.mask(lost, np.nan) if missing == "nan" and lost.any() else column)
        return found if pd.api.types.is_numeric_dtype(found) else found.astype(float)  # integers above 2**64
    except (TypeError, ValueError) as error:
        cure = "all columns but that of the names of rows must be numbers: mend the entry, or remove the column"
        if missing is None and lost.any():
            cure += "; or say missing='nan' (--missing nan on the command line) if nobody counted there"
        raise ValueError(f"column {column.name!r}: {error}; {cure}") from error
