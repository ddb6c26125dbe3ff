"""Read counts from files.

Each format is one reader in the table `_FORMATS`; all of them end in `bayesnmf.checks.as_counts`, so a file
is checked as an array is. Nothing is ever unpickled.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bayesnmf.checks import as_counts, check_flag
from bayesnmf.counts import Counts
from bayesnmf.sidecars import add_names_beside

__all__ = ["read_counts"]


def read_counts(path: str | os.PathLike[str], transpose: bool = False) -> Counts:
    """Read a count matrix, samples in rows, in the format that the file's suffix names.

    Parameters
    ----------
    path : path
        - ``.npz``: a SciPy sparse matrix (`scipy.sparse.save_npz`) or one 2-D NumPy array (`numpy.savez`);
        - ``.mtx``, ``.mtx.gz``: a Matrix Market file;
        - ``.csv``, ``.tsv``, also ``.gz``: a table whose first line names the features. Its first column
          names the rows if that column's header is empty or missing, or if none of its entries is a number;
        - ``.h5ad``: an AnnData file; ``layers["counts"]`` if there, else ``X``.
    transpose : bool
        Whether the file has features in its rows, as matrices of 10x Genomics and tables of mutation types have. It
        is never transposed unasked; a DataWarning says where names prove that it should be.

    Returns
    -------
    Counts
        Names for ``data.npz`` and ``data.mtx`` come from a file ``data.json`` beside it, if there:
        ``{"rows": [...], "cols": [...]}``, as they stand in the file. Those for ``matrix.mtx`` come from
        ``barcodes.tsv`` and ``features.tsv`` or ``genes.tsv``, if there, also ``.gz`` and after a common prefix: of
        features the symbol, with the identifier behind it where a symbol comes twice.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    ValueError
        The file is not what its suffix promises, or its content is not a count matrix.
    """
    check_flag(transpose, "transpose")
    path = Path(path)
    suffix = _suffix(path)
    kind = _FORMATS[suffix]
    try:
        values = kind.read(path)
    except (ImportError, MemoryError, PermissionError):
        raise
    except Exception as error:  # whatever a parser raises, the file is not what its suffix promises
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
    if path.is_dir():
        raise ValueError(f"{path} must be a file, not a directory; name one file in it")
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}; check the path (now in {Path.cwd()})")
    for suffix in _FORMATS:
        if path.name.lower().endswith(suffix):
            return suffix
    raise ValueError(f"{path} must end in one of {', '.join(_FORMATS)}; convert the file to one of these formats")


# --- readers: path -> whatever as_counts takes ----------------------------------------------------


def _read_npz(path: Path) -> Any:
    from scipy.sparse import load_npz

    if not zipfile.is_zipfile(path):  # NumPy would take it for a pickle, and say so
        raise ValueError("the file is not a complete zip archive")
    with np.load(path, allow_pickle=False) as arrays:
        if "format" not in arrays:
            if len(arrays.files) != 1:
                raise ValueError(f"it holds {len(arrays.files)} arrays: {', '.join(arrays.files)}")
            return arrays[arrays.files[0]]
    return load_npz(path)


def _read_mtx(path: Path) -> Any:
    from scipy.io import mmread

    return mmread(path, spmatrix=False)


def _read_csv(path: Path) -> Any:
    return _read_table(path, ",")


def _read_tsv(path: Path) -> Any:
    return _read_table(path, "\t")


def _read_table(path: Path, separator: str) -> Any:
    import pandas as pd

    first = str(pd.read_csv(path, sep=separator, nrows=0).columns[0])
    frame = pd.read_csv(
        path,
        sep=separator,
        dtype={first: str},  # as written: 007 is a name
        keep_default_na=False,  # and so is NA
        na_values=[""],
        low_memory=False,
    )
    if frame.index.nlevels > 1:
        raise ValueError("its rows have more entries than its header")
    if isinstance(frame.index, pd.RangeIndex) and _holds_names(frame[first]):
        frame = frame.set_index(frame.pop(first).fillna(""))
    if frame.shape[1] == 0:
        raise ValueError(f"it has no column of numbers; are its entries separated by {separator!r}?")
    for name, column in frame.select_dtypes(exclude=["number", "bool"]).items():
        try:
            frame[name] = pd.to_numeric(column)
        except ValueError as error:
            raise ValueError(f"column {name!r}: {error}") from error
    return frame


def _holds_names(first: Any) -> bool:
    import pandas as pd

    return first.name == "Unnamed: 0" or not pd.to_numeric(first, errors="coerce").notna().any()


def _read_h5ad(path: Path) -> Any:
    try:
        from anndata import read_h5ad
    except ImportError as error:
        raise ImportError("reading .h5ad files needs anndata: pip install 'bayesnmf[files]'") from error
    return read_h5ad(path)


class _Format(NamedTuple):
    read: Callable[[Path], Any]
    content: str
    nameless: bool = False  # names may stand in a .json file beside it


_NPZ = _Format(_read_npz, "a SciPy sparse matrix (save_npz) or one 2-D array (numpy.savez)", nameless=True)
_MTX = _Format(_read_mtx, "a Matrix Market file", nameless=True)
_CSV = _Format(_read_csv, "a comma-separated table of numbers with a header line")
_TSV = _Format(_read_tsv, "a tab-separated table of numbers with a header line")
_H5AD = _Format(_read_h5ad, "an AnnData file")

_FORMATS = {
    ".npz": _NPZ,
    ".mtx": _MTX,
    ".mtx.gz": _MTX,
    ".csv": _CSV,
    ".csv.gz": _CSV,
    ".tsv": _TSV,
    ".tsv.gz": _TSV,
    ".h5ad": _H5AD,
}
