"""Read counts from files.

Each format has one reader in the table `_FORMATS`. All readers end in `bayesnmf.data.conversion.as_counts`, so a file
is checked like an array. Nothing is ever unpickled.
"""

from __future__ import annotations

import csv
import gzip
import itertools
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bayesnmf.checks import check_flag, check_path, shown
from bayesnmf.data.conversion import as_counts
from bayesnmf.data.counts import Counts, DataWarning
from bayesnmf.data.sidecars import add_names_beside
from bayesnmf.data.suspicions import warn_of_data
from bayesnmf.data.tenx import matrix_in, read_10x_h5
from bayesnmf.places import check_axes, check_entries

NO_NAME = "Unnamed: 0"  # pandas' name for a first column without a header
NAMES_OF_ROWS = frozenset(
    ("id", "ids", "index", "row", "sample", "samples", "sample_id", "sampleid", "cell", "barcode")
)


def read_counts(path: str | os.PathLike[str], transpose: bool = False) -> Counts:
    """Read a count matrix, with samples in rows, in the format given by the file's suffix.

    Parameters
    ----------
    path : path
        - ``.npz``: a SciPy sparse matrix (`scipy.sparse.save_npz`) or one 2-D NumPy array (`numpy.savez`);
        - ``.mtx``, ``.mtx.gz``: a Matrix Market file;
        - ``.csv``, ``.tsv``, also ``.gz``: a table whose first line names the features; a first line of counts is
          refused. The first column names the rows if its header is empty or missing, or if none of its entries is a
          number. A DataWarning is given if numbers under "id", "sample" and the like are read as counts;
        - ``.h5ad``: an AnnData file; ``layers["counts"]`` is read if it exists, else ``X``;
        - ``.h5``: an HDF5 file of 10x Genomics; and a folder of 10x Genomics with ``matrix.mtx``, ``barcodes.tsv`` and
          ``features.tsv`` or ``genes.tsv``, each also with ``.gz``. Both give cells in rows.
    transpose : bool
        Whether the file has features in its rows, as matrices of 10x Genomics and tables of mutation types do. A file
        is transposed only on request; a DataWarning is given if the names show that it should be.

    Returns
    -------
    Counts
        Names for ``data.npz`` and ``data.mtx`` come from ``data.json`` in the same folder, if it exists: ``{"rows":
        [...], "cols": [...]}``, in the orientation of the file. Names for ``matrix.mtx`` come from ``barcodes.tsv`` and
        ``features.tsv`` or ``genes.tsv``, if they exist, also with ``.gz`` and with a common prefix. A feature's name
        is its symbol, followed by the identifier if the symbol occurs twice.

    Raises
    ------
    FileNotFoundError
        The file does not exist.
    ValueError
        The file is not in the format of its suffix, or does not contain a count matrix.
    """
    check_flag(transpose, "transpose")
    path = check_path(path, "path")
    if path.is_dir():
        _check_not_turned(path, transpose)
        return read_counts(matrix_in(path), transpose=True)
    suffix = _suffix(path)
    kind = _FORMATS[suffix]
    if kind.oriented:
        _check_not_turned(path, transpose)
    path.open("rb").close()  # raises PermissionError here, before a parser turns it into another error
    try:
        values = kind.read(path)
    except (ImportError, MemoryError, PermissionError, DataWarning):
        raise
    except Exception as error:  # any error of a parser means that the file is not in the format of its suffix
        raise ValueError(
            f"{path} must be {kind.content}: {type(error).__name__}: {str(error).strip()}; "
            "mend or rewrite the file, or give it the suffix of its format"
        ) from error
    try:
        counts = as_counts(values.T if transpose else values, name=f"counts in {path}", share=True)
    except TypeError as error:
        raise ValueError(str(error)) from error
    return add_names_beside(counts, path, suffix, transpose) if kind.nameless else counts


def _suffix(path: Path) -> str:
    if path.is_fifo() or path.is_char_device() or path.is_socket():
        raise ValueError(f"{path} must be a file that can be read twice, not a pipe or device; save the data in a file")
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}; check the path (now in {Path.cwd()})")
    for suffix in _FORMATS:
        if path.name.lower().endswith(suffix):
            return suffix
    raise ValueError(f"{path} must end in one of {', '.join(_FORMATS)}; convert the file to one of these formats")


def _check_not_turned(path: Path, transpose: bool) -> None:
    if transpose:
        raise ValueError(
            f"{path} must not be transposed: files of 10x Genomics say what their rows are, and cells are put in rows; "
            "leave transpose=True out (--transpose on the command line)"
        )


# --- readers: path -> input for as_counts ---------------------------------------------------------


def _read_npz(path: Path) -> Any:
    from scipy.sparse import load_npz

    if not zipfile.is_zipfile(path):  # NumPy would take it for a pickle, with a misleading error
        raise ValueError("the file is not a complete zip archive")
    _check_stored_positions(path)
    with np.load(path, allow_pickle=False) as arrays:
        if "format" not in arrays:
            if len(arrays.files) != 1:
                raise ValueError(f"it holds {len(arrays.files)} arrays: {', '.join(arrays.files)}")
            return arrays[arrays.files[0]]
    sparse = load_npz(path)
    check_axes(sparse.shape, path)
    return sparse


def _check_stored_positions(path: Path) -> None:
    """Refuse stored positions that are not whole numbers, as SciPy would truncate them."""
    parts = ("row", "col", "coords", "indices", "indptr", "offsets")
    with zipfile.ZipFile(path) as archive:
        for name in {f"{part}.npy" for part in parts} & {*archive.namelist()}:
            with archive.open(name) as file:
                older = np.lib.format.read_magic(file) == (1, 0)
                read = np.lib.format.read_array_header_1_0 if older else np.lib.format.read_array_header_2_0
                dtype = read(file)[2]
            if dtype.kind not in "iu":
                raise ValueError(f"{name.removesuffix('.npy')} must be whole numbers: found dtype {dtype}")


def _read_mtx(path: Path) -> Any:
    from scipy.io import mminfo, mmread

    rows, columns, entries, form, _, symmetry = mminfo(path)
    check_axes((rows, columns), path)
    if form == "array" and symmetry != "general":
        entries //= 4  # a symmetric file contains about half of them
    check_entries(entries, 4 if form == "coordinate" else 2, path)  # "1 1\n" and "1\n" are the shortest lines
    _check_whole_entries(path)
    return mmread(path, spmatrix=False)


def _check_whole_entries(path: Path) -> None:
    """Refuse a file declared as whole numbers that contains other characters, at which SciPy would stop reading."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        header = file.readline().lower().split()
        if header[3:4] not in ([b"integer"], [b"unsigned-integer"], [b"pattern"]):
            return
        while (line := file.readline()).startswith(b"%"):
            continue
        for block in itertools.chain([line], iter(lambda: file.read(2**20), b"")):
            if rest := block.translate(None, b"0123456789+- \t\r\n"):
                raise ValueError(
                    f"its entries are declared {header[3].decode()}, but hold {rest[:9].decode(errors='replace')!r}"
                )


def _read_csv(path: Path) -> Any:
    return _read_table(path, ",")


def _read_tsv(path: Path) -> Any:
    return _read_table(path, "\t")


def _read_table(path: Path, separator: str) -> Any:
    import pandas as pd

    header = _read_header(path, separator)
    first = (header[0] if header else "") or NO_NAME
    frame = pd.read_csv(
        path,
        sep=separator,
        dtype={first: str},  # as text: 007 is a name
        keep_default_na=False,  # so is NA
        na_values=[""],
        low_memory=False,
    )
    if frame.index.nlevels > 1:
        raise ValueError("its rows have more entries than its header")
    if isinstance(frame.index, pd.RangeIndex) and _holds_names(frame[first]):
        names = frame[first].fillna("")
        frame = frame.iloc[:, 1:].set_axis(names, axis="index")  # pop and set_index would copy every column
    elif first.strip().lower() in NAMES_OF_ROWS:
        _warn_of_first_column(path, frame, first)
    if frame.shape[1] == 0:
        raise ValueError(f"it has no column of numbers; are its entries separated by {separator!r}?")
    for name, column in frame.select_dtypes(exclude=["number", "bool"]).items():
        try:
            frame[name] = pd.to_numeric(column)
        except ValueError as error:
            raise ValueError(f"column {name!r}: {error}") from error
    return frame


def _read_header(path: Path, separator: str) -> list[str]:
    """Return the entries of the first line; refuse a first line of counts."""
    with (
        gzip.open(path, "rt", encoding="utf-8-sig")
        if path.suffix == ".gz"
        else path.open(encoding="utf-8-sig", newline="") as lines
    ):
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


def _warn_of_first_column(path: Path, frame: Any, first: str) -> None:
    """Warn if the first column is read as counts although its header suggests names of rows."""
    import pandas as pd

    if not isinstance(frame.index, pd.RangeIndex):
        warn_of_data(
            f"the rows of {path} have one entry more than its header, so {first!r} is read as the counts of a feature, "
            "and the entries before it as names of rows; if that is wrong, give every column a name"
        )
    elif frame[first].is_unique and len(frame) > 2:
        warn_of_data(
            f"the column {first!r} of {path} contains numbers, so it is read as the counts of a feature; leave its "
            "header empty to make it the names of the rows, or remove it"
        )


def _holds_names(first: Any) -> bool:
    import pandas as pd

    return first.name == NO_NAME or not pd.to_numeric(first, errors="coerce").notna().any()


def _read_h5ad(path: Path) -> Any:
    try:
        from anndata import read_h5ad
    except ImportError as error:
        raise ImportError("reading .h5ad files needs anndata: pip install 'bayesnmf[files]'") from error
    return read_h5ad(path)


class _Format(NamedTuple):
    read: Callable[[Path], Any]
    content: str
    nameless: bool = False  # the names may be in a .json file in the same folder
    oriented: bool = False  # the format says what its rows are


_NPZ = _Format(_read_npz, "a SciPy sparse matrix (save_npz) or one 2-D array (numpy.savez)", nameless=True)
_MTX = _Format(_read_mtx, "a Matrix Market file", nameless=True)
_CSV = _Format(_read_csv, "a comma-separated table of numbers with a header line")
_TSV = _Format(_read_tsv, "a tab-separated table of numbers with a header line")
_H5AD = _Format(_read_h5ad, "an AnnData file")
_TENX = _Format(read_10x_h5, "an HDF5 file of 10x Genomics", oriented=True)
_FORMATS = {
    ".npz": _NPZ,
    ".mtx": _MTX,
    ".mtx.gz": _MTX,
    ".csv": _CSV,
    ".csv.gz": _CSV,
    ".tsv": _TSV,
    ".tsv.gz": _TSV,
    ".h5ad": _H5AD,
    ".h5": _TENX,
}
