"""Read tables: wide ones with a column for each feature, and long ones with a row, a feature and a count in each line.

A wide table is returned as a frame, which has the names of its rows as its index if there are any.
"""

from __future__ import annotations

import csv
import gzip
import itertools
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from bayesnmf.checks import shown
from bayesnmf.data.mutations import read_types
from bayesnmf.data.suspicions import warn_of_data
from bayesnmf.places import check_axes

NO_NAME = "Unnamed: 0"  # pandas' name for a first column without a header
MOST_LABELS = 4  # columns that name a mutation type together
# Headers of columns, in small letters, without spaces and punctuation.
NAMES_OF_ROWS = frozenset((
    "id", "ids", "index", "row", "rows", "rowid", "sample", "samples", "sampleid", "cell", "cells", "cellid", "barcode",
    "doc", "docs", "docid", "document", "documents", "documentid", "user", "users", "userid",
))  # fmt: skip
NAMES_OF_FEATURES = frozenset((
    "feature", "features", "featureid", "word", "words", "wordid", "term", "terms", "termid", "token", "tokens",
    "tokenid", "gene", "genes", "geneid", "item", "items", "itemid", "type", "mutationtype",
))  # fmt: skip
NAMES_OF_COUNTS = frozenset(("count", "counts", "n", "value", "freq", "frequency"))


def read_csv(path: Path) -> Any:
    """Read a table separated by commas."""
    return _read_text(path, ",")


def read_tsv(path: Path) -> Any:
    """Read a table separated by tabs."""
    return _read_text(path, "\t")


def read_txt(path: Path) -> Any:
    """Read a table separated by tabs or, as R's write.table does unless told otherwise, by spaces."""
    with _open_text(path) as lines:
        start = "".join(itertools.islice(lines, 2))  # the header of a single column holds no separator
    return _read_text(path, " " if " " in start and not {"\t", ","} & {*start} else "\t")


def read_parquet(path: Path) -> Any:
    """Read a Parquet file; names of rows may be in the index that pandas has stored."""
    try:
        from pyarrow.parquet import read_metadata
    except ImportError as error:
        raise ImportError("reading .parquet files needs pyarrow: pip install 'bayesnmf[files]'") from error
    import pandas as pd

    declared = read_metadata(path)
    check_axes((declared.num_rows, declared.num_columns), path)
    frame = pd.read_parquet(path, engine="pyarrow", partitioning=None)  # else a folder a=1 would become a column
    return _arranged(path, frame.reset_index() if frame.index.nlevels > 1 else frame, None)


def _read_text(path: Path, separator: str) -> Any:
    import pandas as pd

    header = _read_header(path, separator)
    first = (header[0] if header else "") or NO_NAME
    frame = pd.read_csv(
        path,
        sep=separator,
        dtype=dict.fromkeys(header[:2] if _says_long(header) else [first], str),  # as text: 007 is a name
        keep_default_na=False,  # so is NA
        na_values=[""],
        low_memory=False,
    )
    if frame.index.nlevels > 1:
        raise ValueError("its rows have more entries than its header")
    # Lines that end in separators have columns without a name and without entries.
    empty = [name for name in frame.columns[1:] if name.startswith("Unnamed: ") and frame[name].isna().all()]
    return _arranged(path, frame.drop(columns=empty) if empty else frame, separator)


def _arranged(path: Path, frame: Any, separator: str | None) -> Any:
    """Return a long table as a sparse matrix with names, and a wide one as a frame of numbers with names of rows.

    Without `separator`, the frame is from a file that stores the types of its columns.
    """
    import pandas as pd

    first = frame.columns[0] if frame.shape[1] else NO_NAME
    if (typed := _with_types(frame)) is not None:
        frame = typed
    elif _is_long(frame):
        return _from_long(frame)
    elif not isinstance(frame.index, pd.RangeIndex):
        if separator is not None and _plain(first) in NAMES_OF_ROWS:
            warn_of_data(
                f"the rows of {path} have one entry more than its header, so {first!r} is read as the counts of a "
                "feature, and the entries before it as names of rows; if that is wrong, give every column a name"
            )
    elif frame.shape[1] and _holds_names(frame[first], separator is not None):
        names = frame[first].fillna("") if separator is not None else frame[first].astype(str)
        frame = frame.iloc[:, 1:].set_axis(names, axis="index")  # pop and set_index would copy every column
    elif _plain(first) in NAMES_OF_ROWS and frame[first].is_unique and len(frame) > 2:
        warn_of_data(
            f"the column {first!r} of {path} contains numbers, so it is read as the counts of a feature; leave its "
            "header empty to make it the names of the rows, or remove it"
        )
    if frame.shape[1] == 0:
        asked = "" if separator is None else f"; are its entries separated by {separator!r}?"
        raise ValueError(f"it has no column of numbers{asked}")
    for name, column in frame.select_dtypes(exclude=["number", "bool"]).items():
        frame[name] = _numbers(column)
    return frame


def _numbers(column: Any) -> Any:
    import pandas as pd

    try:
        return pd.to_numeric(column.astype(object))  # else dates would become nanoseconds
    except (TypeError, ValueError) as error:
        raise ValueError(f"column {column.name!r}: {error}") from error


# --- the first line -------------------------------------------------------------------------------


def _open_text(path: Path) -> Any:
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig")
    return path.open(encoding="utf-8-sig", newline="")


def _read_header(path: Path, separator: str) -> list[str]:
    """Return the entries of the first line; refuse a first line of counts."""
    with _open_text(path) as lines:
        line = next((line for line in lines if line.strip("\r\n")), "")
        header = next(csv.reader(itertools.chain([line], lines), delimiter=separator), [])
    numbers = [_is_number(entry) for entry in header]
    default = [str(place) for place in range(len(header))]  # header of a DataFrame without names
    named = len(set(header[1:])) == len(header[1:])  # names differ; counts after the name of a row rarely all do
    if '"' not in line and header != default and (all(numbers) or (all(numbers[1:]) and header[0] and not named)):
        raise ValueError(
            f"its first line must name the columns, but holds counts ({shown(separator.join(header))}); write a "
            "line of names above it"
        )
    return header


def _is_number(entry: str) -> bool:
    try:
        float(entry)
    except ValueError:
        return False
    return entry.strip()[0] in "+-.0123456789"  # nan and inf count as names


def _plain(header: Any) -> str:
    return "".join(letter for letter in str(header).lower() if letter.isalnum())


# --- names of rows --------------------------------------------------------------------------------


def _holds_names(first: Any, is_text_file: bool) -> bool:
    import pandas as pd

    if first.name in (NO_NAME, ""):
        return True
    if not is_text_file:
        return not pd.api.types.is_numeric_dtype(first)
    return not pd.to_numeric(first, errors="coerce").notna().any()


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


# --- long tables ----------------------------------------------------------------------------------


def _says_long(header: Iterable[Any]) -> bool:
    names = [_plain(name) for name in header]
    sets = (NAMES_OF_ROWS, NAMES_OF_FEATURES, NAMES_OF_COUNTS)
    return len(names) == 3 and all(name in those for name, those in zip(names, sets, strict=True))


def _is_long(frame: Any) -> bool:
    """Return whether a table is long by its header, or has text in its second column and numbers in its third.

    Some words may be numbers, and some counts may be wrong.
    """
    import pandas as pd

    if _says_long(frame.columns):
        return True
    if frame.shape[1] != 3:
        return False
    second, third = frame.iloc[:, 1], frame.iloc[:, 2]
    if pd.api.types.is_numeric_dtype(second):
        return False
    in_second, in_third = (int(pd.to_numeric(each, errors="coerce").notna().sum()) for each in (second, third))
    return in_second < second.notna().sum() / 2 and in_third > len(third) / 2


def _from_long(frame: Any) -> Any:
    """Return the counts of a long table as a sparse matrix with names, both in the order of first appearance."""
    import pandas as pd
    from scipy.sparse import coo_array

    places, names = [], []
    for column in (frame.iloc[:, 0], frame.iloc[:, 1]):
        if column.isna().any():
            at = int(column.isna().to_numpy().argmax())
            raise ValueError(
                f"column {column.name!r} of a long table must have a name in every line: entry {at} is missing"
            )
        codes, found = pd.factorize(column)
        places.append(codes)
        names.append(np.array([str(name) for name in found], dtype=object))
    counts = _numbers(frame.iloc[:, 2]).to_numpy(dtype=np.float64, na_value=np.nan)
    valid = np.isfinite(counts) & (counts >= 0)
    if not valid.all():  # told before repeated pairs are added, which may hide a negative count
        at = int(valid.argmin())
        raise ValueError(
            f"column {frame.columns[2]!r} of a long table must be counts of at least 0: found {counts[at]} for "
            f"{names[0][places[0][at]]!r} and {names[1][places[1][at]]!r}"
        )
    matrix = coo_array((counts, tuple(places)), shape=(len(names[0]), len(names[1])))
    return SimpleNamespace(X=matrix, obs_names=names[0], var_names=names[1], layers={})
