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
from bayesnmf.data.long_tables import (
    NAMES_OF_FEATURES,
    NAMES_OF_ROWS,
    from_long,
    is_identifier,
    long_columns,
    named_columns,
    numbers,
    stem,
)
from bayesnmf.data.mutations import read_types
from bayesnmf.data.sidecars import open_text
from bayesnmf.data.suspicions import warn_of_data
from bayesnmf.places import check_axes

NO_NAME = "Unnamed: 0"  # pandas' name for a first column without a header
GENES, ANNOTATION = "Geneid", ("Chr", "Start", "End", "Strand", "Length")  # in tables of featureCounts
LINES_BELOW = 20  # the first line, whose names are compared with its own
MOST_LABELS = 4  # columns that name a mutation type together


def read_csv(path: Path, layout: str | None = None) -> Any:
    """Read a table separated by commas."""
    return _read_text(path, ",", layout)


def read_tsv(path: Path, layout: str | None = None) -> Any:
    """Read a table separated by tabs."""
    return _read_text(path, "\t", layout)


def read_txt(path: Path, layout: str | None = None) -> Any:
    """Read a table separated by tabs, by commas or, as R's write.table does unless told otherwise, by spaces."""
    with open_text(path) as lines:
        start = "".join(itertools.islice(lines, 2))  # the header of a single column holds no separator
    separator = next((each for each in "\t, " if each in start), "\t")
    return _read_text(path, separator, layout)


def read_parquet(path: Path, layout: str | None = None) -> Any:
    """Read a Parquet file; names of rows may be in the index that pandas has stored."""
    try:
        from pyarrow.parquet import read_metadata
    except ImportError as error:
        raise ImportError("reading .parquet files needs pyarrow: pip install 'bayesnmf[files]'") from error
    import pandas as pd

    declared = read_metadata(path)
    check_axes((declared.num_rows, declared.num_columns), path)
    frame = pd.read_parquet(path, engine="pyarrow", partitioning=None)  # else a folder a=1 would become a column
    return _arranged(path, frame.reset_index() if frame.index.nlevels > 1 else frame, None, layout)


def _read_text(path: Path, separator: str, layout: str | None) -> Any:
    import pandas as pd

    header, skipped = _read_header(path, separator)
    first = (header[0] if header else "") or NO_NAME
    frame = pd.read_csv(
        path,
        sep=separator,
        skiprows=skipped,
        dtype=dict.fromkeys(_names_in(header, layout) or [first], str),  # as text: 007 is a name
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
        read = _arranged(path, frame.drop(columns=empty) if empty else frame, separator, layout)
    except OverflowError as error:
        raise ValueError(f"its counts must be below {sys.float_info.max:.2g}: {error}; divide them") from error
    if isinstance(read, pd.DataFrame):
        read = read.set_axis([(given.get(name) or name).strip() for name in read.columns], axis="columns")
    return read


def _arranged(path: Path, frame: Any, separator: str | None, layout: str | None) -> Any:
    """Return a long table as a sparse matrix with names, and a wide one as a frame of numbers with names of rows.

    Without `separator`, the frame is from a file that stores the types of its columns.
    """
    import pandas as pd

    frame = _without_annotation(frame, path)
    first = frame.columns[0] if frame.shape[1] else NO_NAME
    if layout != "long" and (typed := _with_types(frame)) is not None:
        frame = typed
    elif (columns := long_columns(frame, layout)) is not None:
        return from_long(frame, columns, path)
    elif not isinstance(frame.index, pd.RangeIndex):
        if separator is not None and _may_name_rows(first):
            warn_of_data(
                f"the rows of {path} have one entry more than its header, so {first!r} is read as the counts of a "
                "feature, and the entries before it as names of rows; if that is wrong, give every column a name"
            )
    elif frame.shape[1] and _holds_names(frame[first], separator is not None):
        names = frame[first].fillna("").str.strip() if separator is not None else frame[first].astype(str)
        frame = frame.iloc[:, 1:].set_axis(names, axis="index")  # pop and set_index would copy every column
    elif _may_name_rows(first) and (frame[first].is_unique or is_identifier(first)) and len(frame) > 2:
        warn_of_data(
            f"the column {first!r} of {path} contains numbers, so it is read as the counts of a feature; leave its "
            "header empty to make it the names of the rows, or remove it"
        )
    if frame.shape[1] == 0:
        asked = "" if separator is None else f"; are its entries separated by {separator!r}?"
        raise ValueError(f"it has no column of numbers{asked}")
    for name, column in frame.select_dtypes(exclude=["number", "bool"]).items():
        frame[name] = numbers(column)
    return frame


def _without_annotation(frame: Any, path: Path) -> Any:
    """Return a table of featureCounts or BIOM without its columns of annotation, with a warning; others unchanged."""
    first, last = map(str, frame.columns[[0, -1]]) if frame.shape[1] else ("", "")
    if first == GENES and tuple(frame.columns[1:6]) == ANNOTATION:
        kind, left = "featureCounts", [*ANNOTATION]
    elif first.startswith("#") and stem(first) == "otu" and last != first and _has_no_number(frame[last]):
        kind, left = "BIOM", [last]
    else:
        return frame
    warn_of_data(f"{path} is read as a table of {kind}; left out: {', '.join(left)}")
    return frame.drop(columns=left)


def _names_in(header: list[str], layout: str | None) -> list[str]:
    """Return the headers of the columns that name rows and features, if the table is long by its headers."""
    columns = None if layout == "wide" else named_columns(header)
    if columns is None:
        return header[:2] if layout == "long" else []
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
        header = next(csv.reader(itertools.chain([line], lines), delimiter=separator), [])
        below = {_form(line.partition(separator)[0]) for line in itertools.islice(lines, LINES_BELOW)}
    named = entries(before[-1]) if before else []
    if len(named) > 1 and len(named) == len(header) and any(map(_is_number, header[1:])):
        return named, len(before) - 1
    numbers = [_is_number(entry) for entry in header]
    default = [str(place) for place in range(len(header))]  # header of a DataFrame without names
    # Names differ; counts after the name of a row rarely all do, and that name looks like those below it.
    is_row = len(set(header[1:])) < len(header[1:]) or _form(*header[:1]) in below
    if '"' not in line and header != default and (all(numbers) or (all(numbers[1:]) and header[0] and is_row)):
        raise ValueError(
            f"its first line must name the columns, but holds counts ({shown(separator.join(header))}); write a "
            "line of names above it"
        )
    return header, len(before)


def _form(entry: str = "") -> str:
    """Return the form of a name: ``A9`` for ``ENSG00000186092``, ``a9`` for ``s12``."""
    for letters, one in (("[A-Z]+", "A"), ("[a-z]+", "a"), (r"\d+", "9")):
        entry = re.sub(letters, one, entry)
    return entry


def _is_number(entry: str) -> bool:
    try:
        float(entry)
    except ValueError:
        return False
    return entry.strip()[0] in "+-.0123456789"  # nan and inf count as names


# --- names of rows --------------------------------------------------------------------------------


def _holds_names(first: Any, is_text_file: bool) -> bool:
    import pandas as pd

    if first.name in (NO_NAME, "", GENES) or str(first.name).startswith("#"):
        return True
    return _has_no_number(first) if is_text_file else not pd.api.types.is_numeric_dtype(first)


def _has_no_number(column: Any) -> bool:
    import pandas as pd

    return not pd.to_numeric(column, errors="coerce").notna().any()


def _may_name_rows(header: Any) -> bool:
    return stem(header) in NAMES_OF_ROWS | NAMES_OF_FEATURES


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
