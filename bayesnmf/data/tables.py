"""Read tables: wide ones with a column for each feature, and long ones with a row, a feature and a count in each line.

A wide table is returned as a frame, which has the names of its rows as its index if there are any. The columns of a
long one are found by their headers, in any order. Where the headers say nothing, text in the second column does, or
that no pair of the first two numbers repeats, which counts do; fewer lines tell if the third has few numbers, and no 0.
"""

from __future__ import annotations

import csv
import itertools
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesnmf.checks import is_counted, shown
from bayesnmf.data.counts import Counts
from bayesnmf.data.layouts import (
    IDENTIFIER,
    NAMES_OF_COUNTS,
    NAMES_OF_FEATURES,
    NAMES_OF_LINES,
    NAMES_OF_ROWS,
    NO_NAME,
    about_lines,
    floats_of,
    form,
    holds_text,
    names_of_lines,
    numbers_lines,
    read_as_its_tool_says,
    stem,
)
from bayesnmf.data.matrix_files import open_text
from bayesnmf.data.mutations import read_types
from bayesnmf.data.suspicions import warn_of_data
from bayesnmf.places import check_axes

GCT = re.compile(r"#1\.[23]\s*$")
NO_TABLES = (
    (re.compile(r"\s*\S+(\s+\d+:\d+(\.\d*)?)+\s*$"), "pairs of a feature and a count, as of svmlight and Blei's LDA-C",
     "pass the counts that sklearn.datasets.load_svmlight_file(path)[0] reads"),
    (re.compile(r".+::.+::"), "entries with '::' between them", "replace it by tabs, and write a line of names above"),
    (re.compile(r"\s*\d+\.\d+\t\d+\t\d+\t[UR]\t"), "a report of Kraken", "make a table of those of all "
     "samples, as combine_bracken_outputs.py or kraken-biom does"),
)  # fmt: skip
LINES_BELOW = 20  # the first line, whose names are compared with its own
MOST_LABELS = 4  # columns that name a mutation type together


def read_parquet(path: Path, layout: str | None = None, missing: str | None = None) -> Any:
    """Read a Parquet file; names of rows may be in the index that pandas has stored."""
    try:
        from pyarrow.parquet import read_metadata
    except ImportError as error:
        raise ImportError("reading .parquet files needs pyarrow: pip install 'bayesnmf[files]'") from error
    import pandas as pd

    declared = read_metadata(path)
    check_axes((declared.num_rows, declared.num_columns), path)
    frame = pd.read_parquet(path, engine="pyarrow", partitioning=None)  # else a folder a=1 would become a column
    return _arranged(path, frame.reset_index() if frame.index.nlevels > 1 else frame, None, layout, missing)


def read_text(separators: str, path: Path, layout: str | None = None, missing: str | None = None) -> Any:
    """Read a table whose entries are separated by the first of these signs that its first two lines have.

    R's write.table separates by spaces unless told otherwise. The header of a single column has no sign between.
    """
    import pandas as pd

    with open_text(path) as lines:
        start = "".join(itertools.islice(lines, 2))
    separator = next((each for each in separators if each in start), separators[0])
    header, skipped = _read_header(path, separator)
    first = (header[0] if header else "") or NO_NAME
    frame = pd.read_csv(
        path,
        sep=separator,
        skiprows=skipped,
        dtype=dict.fromkeys(_names_in(header, layout) or [first, *filter(IDENTIFIER.fullmatch, header)], str),  # 007
        keep_default_na=False,  # so is NA
        na_values=[""],
        low_memory=False,
    )
    if frame.index.nlevels > 1:
        raise ValueError("its rows have more entries than its header")
    given = dict(zip(frame.columns, header, strict=False))  # pandas has renamed those that repeat
    # Lines that end in separators have columns without a name and without entries.
    empty = [name for name in frame.columns[1:] if name.startswith("Unnamed: ") and frame[name].isna().all()]
    try:
        read = _arranged(path, frame.drop(columns=empty) if empty else frame, separator, layout, missing)
    except OverflowError as error:
        raise ValueError(f"its counts must be below {sys.float_info.max:.2g}: {error}; divide them") from error
    if isinstance(read, pd.DataFrame):
        read = read.set_axis([(given.get(name) or name).strip() for name in read.columns], axis="columns")
    return read


THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?")
LOOKED_AT = 1000  # entries of a column


def _check_no_thousands(frame: Any) -> None:
    """Refuse numbers whose thousands have commas between them, which would be taken for text."""
    for name, column in frame.select_dtypes(exclude=["number", "bool"]).items():
        found = [each for each in column.dropna().iloc[:LOOKED_AT] if isinstance(each, str)]
        commas = [each for each in found if THOUSANDS.fullmatch(each.strip())]
        if commas and all(each in commas or _is_number(each) for each in found):
            raise ValueError(
                f"its numbers must have no commas between thousands: found {commas[0]!r} in column {name!r}; write "
                "them without, as pd.read_csv(path, index_col=0, thousands=',').to_csv('without.csv') does"
            )


def _arranged(path: Path, frame: Any, separator: str | None, layout: str | None, missing: str | None) -> Any:
    """Return a long table as a sparse matrix with names, and a wide one as a frame of numbers with names of rows.

    Without `separator`, the frame is from a file that stores the types of its columns.
    """
    import pandas as pd

    _check_no_thousands(frame)
    first = frame.columns[0] if frame.shape[1] else NO_NAME
    has_index = not isinstance(frame.index, pd.RangeIndex)
    of_tool = None if layout == "long" or has_index else read_as_its_tool_says(frame, path)
    if of_tool is not None:
        frame = of_tool
    elif layout != "long" and (typed := _with_types(frame)) is not None:
        frame = typed
    elif (columns := long_columns(frame, layout)) is not None:
        return from_long(frame, columns, path, layout, missing)
    elif not has_index:
        frame = _with_names(path, frame, separator is None, layout)
    elif separator is not None and stem(first) in NAMES_OF_ROWS | NAMES_OF_FEATURES:
        warn_of_data(
            f"the rows of {path} have one entry more than its header, so {first!r} is read as the counts of a "
            "feature, and the entries before it as names of rows; if that is wrong, give every column a name"
        )
    if frame.shape[1] == 0:
        asked = "" if separator is None else f"; are its entries separated by {separator!r}?"
        raise ValueError(f"it has no column of numbers{asked}")
    for name, column in frame.select_dtypes(exclude=["number", "bool"]).items():
        frame[name] = numbers(column, missing)
    return frame


def _with_names(path: Path, frame: Any, typed: bool, layout: str | None) -> Any:
    """Return a wide table with the names of its rows as index, and without what else is about them, with a warning.

    In a layout that is said to be wide, all columns of numbers are features, but for a first one without a header.
    """
    names, left, doubtful, unlike = about_lines(frame, typed)
    heads = [str(each) for each in frame.columns]
    if layout == "wide":
        names, left = ([place for place in places if holds_text(frame.iloc[:, place], typed)
                        or heads[place] in ("", NO_NAME)] for places in (names, left))  # fmt: skip
        doubtful = unlike = ()
    if len({*names, *left}) == len(heads) > 1:
        raise ValueError("all of its columns are about its rows, and none has counts of features")
    told = [repr(heads[place]) for place in left if not heads[place].startswith("Unnamed: ")]
    if len(names) > 1:
        told.append(f"{' and '.join(repr(heads[place]) for place in names)}, which together name the rows")
    if told:
        warn_of_data(
            f"{path} has columns about its rows, which are no counts, left out: {', '.join(told)}; remove them to say "
            f"so, or pass {WIDE} if they are counts of features"
        )
    if doubtful:
        warn_of_data(
            f"{path} has fractions in {', '.join(repr(heads[place]) for place in doubtful)}, and whole numbers beside: "
            f"it is read as counts of a feature; remove what is about the rows, or pass {WIDE} if it is not"
        )
    if unlike:
        warn_of_data(
            f"{path} has columns whose headers look unlike all others: "
            f"{', '.join(repr(heads[place]) for place in unlike)}; each is read as counts of a feature: remove what is "
            f"about the rows, or pass {WIDE} if all are counts"
        )
    if not names:
        return frame.drop(columns=frame.columns[left]) if left else frame
    name = heads[names[-1]]
    if len(names) == 1 and not (
        holds_text(frame.iloc[:, names[-1]], typed) or name in ("", NO_NAME) or name.startswith("#")
    ):
        warn_of_data(
            f"the column {name!r} of {path} contains numbers, and is read as the names of the rows; leave its header "
            f"empty to say so, or pass {WIDE} if they are counts of a feature"
        )
    index = names_of_lines(frame, frame.columns[names], as_they_are=typed)
    return frame.drop(columns=frame.columns[[*names, *left]]).set_axis(index.rename(name), axis="index")


def _names_in(header: list[str], layout: str | None) -> list[str]:
    """Return the headers of the columns that name rows and features, if the table is long by its headers."""
    columns = None if layout == "wide" else named_columns(header)
    if columns is None:
        return header[: 2 + (header[0] == "")] if layout == "long" else []
    return [header[columns.row], header[columns.feature]]


# --- the first line -------------------------------------------------------------------------------


def _read_header(path: Path, separator: str) -> tuple[list[str], int]:
    """Return the entries of the line that names the columns, and the number of lines before it; refuse one of counts.

    Lines before it start with "#". The last of them names the columns if the next line has as many entries and a number
    among them, as in tables of BIOM.
    """
    with open_text(path) as lines:
        before = []
        for line in lines:
            if line.strip("\r\n") and not line.startswith("#"):
                break
            before.append(line)
        else:
            line = ""
        if before and GCT.match(before[0]):  # its next line has the numbers of rows and columns
            before.append(line)
            line = next(lines, "")
        header = next(csv.reader(itertools.chain([line], lines), delimiter=separator), [])
        below = [*itertools.islice(lines, LINES_BELOW)]
    named = next(csv.reader(before[-1:], delimiter=separator), [])
    if len(named) > 1 and len(named) == len(header) and any(map(_is_number, header[1:])):
        return named, len(before) - 1
    _check_has_header(header, line, below, separator)
    return header, len(before)


def _check_has_header(header: list[str], line: str, below: list[str], separator: str) -> None:
    """Refuse a first line of counts, and texts that are no tables."""
    for pattern, found, cure in NO_TABLES:
        if pattern.match(line):
            raise ValueError(f"it must be a table with a line of names, not {found}; {cure}")
    numbers = [_is_number(entry) for entry in header]
    default = [str(place) for place in range(len(header))]  # header of a DataFrame without names
    # Names differ; counts after the name of a row rarely all do, and that name looks like those below it.
    forms = {form(each.partition(separator)[0]) for each in below}
    is_row = len(set(header[1:])) < len(header[1:]) or form(*header[:1]) in forms
    if '"' in line or header == default or not (all(numbers) or (all(numbers[1:]) and header[0] and is_row)):
        return
    cure = "write a line of names above it"
    if header[0] == "N_unmapped":
        cure += ", as 'gene' and 'count', and keep of STAR's three columns that of the strand of your library"
    elif len(header) == 1 and len(below) > 2 and all(each.strip().isdigit() for each in below[:2]):
        cure = "of a docword file of UCI, replace the first three lines by one of names: document word count"
    elif all(numbers) and 2 < len(header) <= MOST_COLUMNS:
        cure += ", which of a long table are such as 'user', 'item' and 'count'"
    raise ValueError(
        f"its first line must name the columns, but holds counts ({shown(separator.join(header))}); {cure}"
    )


def _is_number(entry: str) -> bool:
    try:
        float(entry)
    except ValueError:
        return False
    return entry.strip()[0] in "+-.0123456789"  # nan and inf count as names


# --- mutation types ---------------------------------------------------------------------------------


def _with_types(frame: Any) -> Any:
    """Return the frame with mutation types as its index if its first columns name them together, else None."""
    from pandas.api.types import is_numeric_dtype

    columns = (frame.iloc[:, place] for place in range(min(MOST_LABELS, frame.shape[1])))
    labels = [*itertools.takewhile(lambda column: not is_numeric_dtype(column), columns)]
    for number in range(2, len(labels) + 1):
        types = read_types("_".join(map(str, parts)) for parts in zip(*labels[:number], strict=True))
        if types is None:
            continue
        again = read_types(labels[number]) if number < len(labels) else None  # COSMIC 2 also has the full name
        known = number + (again is not None and again.names == types.names)
        return frame.iloc[:, known:].set_axis(types.names, axis="index")
    return None


# --- long tables -----------------------------------------------------------------------------------

LAYOUTS = ("long", "wide")
WIDE = 'layout="wide" (--layout wide on the command line)'
MOST_COLUMNS = 6  # of a long table
SURE = "'sample', 'feature' and 'count' to say so"
FEWEST_REPEATS = 8  # expected of two columns of counts before their absence proves anything
FEWEST_OF_IDS = 2  # if each of two columns has its numbers twice on average, and a third has few, and no 0
FEWEST_LINES = 30  # of a table without known headers
# Of columns of a long table that are no counts.
NOT_COUNTS = re.compile(
    r".*(time|date|year|month|day|hour|price|cost|comment|note|session|lat|lon|status).*|ts|stamp", re.IGNORECASE
)
_IDENTIFIER = re.compile(r".*[a-z_. -](id|ID|Id|key|code)|.*(uuid|sha1|hash|mbid)")
MISSING_WORDS = (
    "NA", "N/A", "n/a", "na", "NaN", "nan", "NAN", "null", "NULL", "None", "missing", "<NA>", "#N/A", ".", "-", "?",
)  # fmt: skip


class Columns(NamedTuple):
    """Places of the three columns of a long table."""

    row: int
    feature: int
    counts: int


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
    few = 2 <= len(header) <= MOST_COLUMNS
    pair = _pair(frame, header) if few else None
    if pair is None:
        if layout == "long":
            return _said_to_be_long(frame, header)
        return _by_shape(frame, header) if few else None
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
    from pandas.api.types import is_numeric_dtype

    if len(header) < 3:
        return None
    if numbers_lines(header[0], frame.iloc[:, 0]):  # an index, as pandas and R write it
        found = _by_shape(frame.iloc[:, 1:], header[1:])
        return None if found is None else Columns(*(place + 1 for place in found))
    first, second = frame.iloc[:, 0], frame.iloc[:, 1]
    text = not is_numeric_dtype(second) and _share_of_numbers(second, among_all=False) < 0.5
    numbers_after = [place for place in range(2, len(header)) if _share_of_numbers(frame.iloc[:, place]) > 0.5]
    if text and numbers_after and re.fullmatch(r"\d+(\.\d*)?", header[numbers_after[0]]):
        raise ValueError(
            f"its first line must name the columns, but holds a count ({', '.join(header)}); write a line of names "
            "above it, as in sample,feature,count"
        )
    if text and len(header) == 3 and numbers_after:
        return Columns(0, 1, 2)
    repeating = text and not (first.is_unique or second.is_unique or frame.iloc[:, :2].duplicated().any())
    whole = never_repeat(first, second) or (repeating and _share_of_numbers(first) == 0 and numbers_after)
    found = Columns(0, 1, 2) if whole else _ids_and_counts(frame, header)
    if found is not None:
        raise ValueError(
            f"it must be a long or a wide table: no two lines have the same {header[found.row]!r} and "
            f"{header[found.feature]!r}, as in a long table, but the headers do not name a column of rows, one of "
            'features and one of counts; say layout="long" or layout="wide" (--layout on the command line), or name '
            'the columns, as in "sample", "feature", "count"'
        )
    return None


def _ids_and_counts(frame: Any, header: list[str]) -> Columns | None:
    """Return the columns of a table whose first two are identifiers and whose third has counts, by their values."""
    places = _without_numbers_of_lines(frame, header)
    if len(frame) < FEWEST_LINES or len(places) != 3:
        return None
    first, second, third = (frame.iloc[:, place] for place in places)
    different = [column.nunique() for column in (first, second, third)]
    repeat = 2 * max(different[:2]) <= len(frame) and 2 * different[2] <= min(different[:2])
    if repeat and floats_of(third).min() > 0 and never_repeat(first, second, FEWEST_OF_IDS):
        return Columns(*places)
    return None


def _without_numbers_of_lines(frame: Any, header: list[str]) -> list[int]:
    """Return the places of columns but for a first one that numbers the lines, and for times and the like."""
    first = int(bool(header) and numbers_lines(header[0], frame.iloc[:, 0]))
    return [place for place in range(first, len(header)) if not NOT_COUNTS.fullmatch(header[place])]


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
    entries = len(column) if among_all else column.notna().sum()
    return float(np.count_nonzero(~np.isnan(floats_of(column)))) / max(int(entries), 1)


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
