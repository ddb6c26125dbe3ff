"""Read tables: wide ones with a column for each feature, and long ones with a row, a feature and a count in each line.

A wide table is returned as a frame, which has the names of its rows as its index if there are any.
"""

from __future__ import annotations

import csv
import itertools
import re
import sys
from pathlib import Path
from typing import Any

from bayesnmf.checks import shown
from bayesnmf.data.layouts import (
    IDENTIFIER,
    about_lines,
    form,
    holds_text,
    joined,
    read_as_its_tool_says,
)
from bayesnmf.data.long_tables import (
    MOST_COLUMNS,
    NAMES_OF_FEATURES,
    NAMES_OF_ROWS,
    NO_NAME,
    WIDE,
    from_long,
    long_columns,
    named_columns,
    numbers,
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


def read_csv(path: Path, layout: str | None = None, missing: str | None = None) -> Any:
    """Read a table separated by commas."""
    return _read_text(path, ",", layout, missing)


def read_tsv(path: Path, layout: str | None = None, missing: str | None = None) -> Any:
    """Read a table separated by tabs."""
    return _read_text(path, "\t", layout, missing)


def read_txt(path: Path, layout: str | None = None, missing: str | None = None) -> Any:
    """Read a table separated by tabs, by commas or, as R's write.table does unless told otherwise, by spaces."""
    with open_text(path) as lines:
        start = "".join(itertools.islice(lines, 2))  # the header of a single column holds no separator
    separator = next((each for each in "\t, " if each in start), "\t")
    return _read_text(path, separator, layout, missing)


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


def _read_text(path: Path, separator: str, layout: str | None, missing: str | None) -> Any:
    import pandas as pd

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
    if doubtful and layout != "wide":
        warn_of_data(
            f"{path} has fractions in {', '.join(repr(heads[place]) for place in doubtful)}, and whole numbers beside: "
            f"it is read as counts of a feature; remove what is about the rows, or pass {WIDE} if it is not"
        )
    if unlike and layout != "wide":
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
    index = joined(frame, frame.columns[names], as_they_are=typed)
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

    def entries(*lines: str) -> list[str]:
        return next(csv.reader(lines, delimiter=separator), [])

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
    named = entries(before[-1]) if before else []
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
