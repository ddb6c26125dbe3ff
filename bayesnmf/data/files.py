"""Read counts from files.

Each format of files is a record in `FORMATS`, and the table of each tool one in `bayesnmf.data.layouts.TOOLS`. What a
reader returns is checked and converted like an array, named by the files beside it, and turned if it has features in
its rows. Nothing is ever unpickled.
"""

from __future__ import annotations

import gzip
import itertools
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bayesnmf.checks import check_choice, check_flag, check_path
from bayesnmf.data.annotated import is_annotated, where_raw_counts_are
from bayesnmf.data.conversion import convert
from bayesnmf.data.counts import Counts
from bayesnmf.data.layouts import TOOLS, warn_of_counters, without_counters
from bayesnmf.data.matrix_files import Orientation, add_names_beside, matrix_in, read_10x_h5, read_mtx, read_npz
from bayesnmf.data.mutations import read_types
from bayesnmf.data.suspicions import DataWarning, warn_of_data, warn_of_names, warn_of_scale
from bayesnmf.data.tables import LAYOUTS, header_of_features, read_parquet, read_text

MAKERS = {
    "VCF": "SigProfilerMatrixGenerator, or mut_matrix of MutationalPatterns in R",
    "MAF": "SigProfilerMatrixGenerator, or trinucleotideMatrix of maftools in R",
}
PACKED = (".gz", ".bgz")
LINES = 1000  # of comments before the header
COLUMNS = {b"Hugo_Symbol", b"Tumor_Sample_Barcode"}  # of every MAF


def mutations_listed_in(path: Path, is_text: bool) -> str | None:
    """Return "VCF" or "MAF" if a file is one by its suffix or, as a text file, by its first lines; else None."""
    name = path.with_suffix("") if path.suffix.lower() in PACKED else path
    kind = name.suffix.upper().removeprefix(".")
    if kind in MAKERS:
        return kind
    return _kind_of_lines(path) if is_text else None


def _kind_of_lines(path: Path) -> str | None:
    try:
        with (gzip.open if path.suffix.lower() in PACKED else open)(path, "rb") as lines:
            for line in itertools.islice(lines, LINES):
                if line.startswith((b"##fileformat=VCF", b"#CHROM\t")):
                    return "VCF"
                if line.strip() and not line.startswith(b"#"):
                    return "MAF" if {*line.rstrip().split(b"\t")} >= COLUMNS else None
    except (EOFError, OSError, zlib.error):
        return None  # its reader says what is wrong with it
    return None


def read_h5ad(path: Path) -> Any:
    """Read an AnnData file."""
    try:
        import anndata
    except ImportError as error:
        raise ImportError("reading .h5ad files needs anndata: pip install 'bayesnmf[files]'") from error
    return anndata.read_h5ad(path)


@dataclass(frozen=True)
class Format:
    """A format of files: how it is read, and what it says.

    Attributes
    ----------
    suffixes : tuple of str
        Ends of the names of its files.
    content : str
        What such a file must be, as messages say it.
    read : callable
        Function of a path that returns what `bayesnmf.as_counts` takes. That of a table has two more parameters, the
        `layout` and the word for `missing` entries of `read_counts`, or None.
    is_table : bool
        Whether it may be long or wide, and the table of a tool.
    of_tools : bool
        Whether files with the suffixes of `bayesnmf.data.layouts.TOOLS` are in this format, too.
    zipped : bool
        Whether it is read with ``.gz`` after its suffix, too.
    nameless : bool
        Whether its names are in files beside it.
    oriented : bool
        Whether it says what its rows are, and cells are put in rows.
    """

    suffixes: tuple[str, ...]
    content: str
    read: Callable[..., Any]
    is_table: bool = False
    of_tools: bool = False
    zipped: bool = False
    nameless: bool = False
    oriented: bool = False

    @property
    def all_suffixes(self) -> list[str]:
        """Ends of the names of its files, without ``.gz``."""
        return [*self.suffixes, *(suffix for tool in TOOLS if self.of_tools for suffix in tool.suffixes)]

    def suffix_of(self, path: Path) -> str | None:
        """Return the end of the name of a file if it is in this format."""
        ends = [suffix + end for suffix in self.all_suffixes for end in ("", ".gz")[: 1 + self.zipped]]
        return next((end for end in ends if path.name.lower().endswith(end)), None)


def _table(content: str, separators: str, suffixes: tuple[str, ...], of_tools: bool = False) -> Format:
    return Format(suffixes, content, partial(read_text, separators), is_table=True, of_tools=of_tools, zipped=True)


FORMATS = [
    Format((".npz",), "a SciPy sparse matrix (save_npz) or one 2-D array (numpy.savez)", read_npz, nameless=True),
    Format((".mtx",), "a Matrix Market file", read_mtx, zipped=True, nameless=True),
    _table("a comma-separated table of numbers with a header line", ",", (".csv",)),
    _table("a tab-separated table of numbers with a header line", "\t", (".tsv",)),
    _table("a table of numbers with a header line, separated by tabs or spaces", "\t, ",
           (".txt", ".dat", ".data", ".tab", ".tabular", ".counts"), of_tools=True),
    Format((".parquet",), "a Parquet file with a table of numbers", read_parquet, is_table=True),
    Format((".h5ad",), "an AnnData file", read_h5ad),
    Format((".h5",), "an HDF5 file of 10x Genomics", read_10x_h5, oriented=True),
]  # fmt: skip


def read_counts(
    path: str | os.PathLike[str],
    transpose: bool = False,
    *,
    layer: str | None = None,
    feature_labels: str | None = None,
    layout: str | None = None,
    missing: str | None = None,
) -> Counts:
    """Read a count matrix, with samples in rows, in the format given by the file's suffix.

    Parameters
    ----------
    path : path
        - ``.npz``: a SciPy sparse matrix (`scipy.sparse.save_npz`) or one 2-D NumPy array (`numpy.savez`);
        - ``.mtx``, ``.mtx.gz``: a Matrix Market file;
        - ``.csv``, ``.tsv``, ``.txt``, each also with ``.gz``, and ``.parquet``: a table, as described in the Notes; so
          are ``.dat``, ``.data`` and ``.tab``, and what tools write: ``.all``, ``.exome`` and ``.region`` of
          SigProfiler, ``.sf`` of salmon, ``.results`` of RSEM, ``.gct``, ``.shared`` and ``.count_table`` of mothur,
          ``.raw`` of PLINK;
        - ``.h5ad``: an AnnData file; ``layers["counts"]`` is read if it exists, else ``X``;
        - ``.h5``: an HDF5 file of 10x Genomics; and a folder of 10x Genomics with ``matrix.mtx``, ``barcodes.tsv`` and
          ``features.tsv`` or ``genes.tsv``, each also with ``.gz``. Cells are in rows, and only genes in columns.
    transpose : bool
        Whether the file has features in its rows; they are then turned into columns. A file whose names show this
        (mutation types, a header such as ``gene`` or ``#OTU ID`` above the names of rows, files of 10x Genomics beside
        a ``.mtx``) is turned as well, with a DataWarning. If the names show samples in the rows, True is refused.
    layer, feature_labels : str, optional
        Of an ``.h5ad`` file: the layer with the counts, and the column of ``var`` with the names of the features.
    layout : {"long", "wide"}, optional
        Of a table: how it is to be read, whatever its names show. In a wide one, all columns of numbers are features.
    missing : {"nan"}, optional
        That empty entries, ``NA`` and NaN are missing: nobody counted there. Without it they are refused.

    Returns
    -------
    Counts
        Names for ``data.npz`` and ``data.mtx`` come from ``data.json`` in the same folder, if it exists: ``{"rows":
        [...], "cols": [...]}``, in the orientation of the file; those for ``matrix.mtx`` come from the files of 10x
        Genomics beside it. A feature's name is its symbol, with the identifier if the symbol repeats.

    Raises
    ------
    FileNotFoundError
        The file does not exist.
    ImportError
        The format needs a package of ``bayesnmf[files]``.
    ValueError
        The file is not in the format of its suffix, or has no count matrix, as lists of mutations (VCF, MAF).

    See Also
    --------
    read_catalogue : known components.
    Blocks : counts that stay on disk.
    as_counts : counts in memory.

    Notes
    -----
    A **wide** table has a column for each feature. Its first line names the features; a first line of counts is
    refused. In a text file, the first column names the rows if its header is empty or missing, or if none of its
    entries is a number. In a Parquet file, the index that pandas has stored names the rows, or else a first column of
    text. Entries of ``.txt`` and ``.all`` files are separated by tabs, else commas, else spaces.

    A **long** table has a row, a feature and a count in each line, and counts of the same pair are added. It is known
    by its headers if 3 to 6 columns have one of each, in any order, as in ``userId,movieId,rating,timestamp``; other
    columns are left out, with a DataWarning. Without such headers, three columns are long if the second is text and the
    third is numbers. A table whose first two columns hold no pair twice is refused unless ``layout`` tells its kind.

    A table of **mutation types** has all 96 single base substitutions (SBS96), 78 doublet base substitutions (DBS78),
    83 insertions and deletions (ID83), 48 kinds of segments (CN48), 32 structural variants (SV32), or SBS192, SBS288,
    SBS384 or SBS1536, in its rows or columns. They are named as in COSMIC: ``A[C>A]A``, ``AC>CA``, ``1:Del:C:0``. The
    guide ``docs/input.md`` lists all layouts that are read.

    Examples
    --------
    >>> import pandas as pd
    >>> import bayesnmf
    >>> pd.DataFrame([[3, 0], [1, 2]], ["s1", "s2"], ["a", "b"]).to_csv("counts.csv")
    >>> bayesnmf.read_counts("counts.csv")
    Counts(2 rows × 2 features, 3 nonzeros, total 6)
        a  b
    s1  3  0
    s2  1  2
    """
    check_flag(transpose, "transpose")
    path, turn = check_path(path, "path"), bool(transpose)
    of_folder = path.is_dir()
    if of_folder:
        _check_not_turned(path, turn)
        path = matrix_in(path)
    kind, suffix = _format_of(path)
    if kind.oriented:
        _check_not_turned(path, turn)
    if layout is not None and check_choice(layout, "layout", LAYOUTS) and not kind.is_table:
        raise ValueError(f"layout is for tables, and {path} is {kind.content}; leave layout out")
    path.open("rb").close()  # raises PermissionError here, before a parser turns it into another error
    _check_counted(path, kind.is_table)
    try:
        values = kind.read(path, layout, missing) if kind.is_table else kind.read(path)
    except (ImportError, MemoryError, PermissionError, DataWarning):
        raise
    except Exception as error:  # any error of a parser means that the file is not in the format of its suffix
        raise ValueError(
            f"{path} must be {kind.content}: {type(error).__name__}: {str(error).strip()}; "
            "mend or rewrite the file, or give it the suffix of its format"
        ) from error
    try:
        counts = convert(values, f"counts in {path}", np.dtype(np.float64), True, layer, feature_labels, missing)
    except TypeError as error:
        raise ValueError(str(error)) from error
    by_header = _shown_by_header(values) if kind.is_table else None
    source = values if is_annotated(values) else None
    del values  # before the counts are copied
    counts, shown_by_names = add_names_beside(counts, path, suffix) if kind.nameless else (counts, None)
    if shown_by_names is None:
        counts, shown_by_names = _with_mutation_types(counts, path)
    if _is_to_turn(path, shown_by_names or by_header, None if of_folder else turn):
        mask = None if counts.mask is None else counts.mask.turned
        counts = Counts(counts.matrix.T.tocsr(), counts.feature_names, counts.row_names, mask=mask)
    if source is None and not kind.oriented:
        counts = without_counters(counts, path)
    else:
        warn_of_counters(counts)
    warn_of_names(counts)
    warn_of_scale(counts, partial(where_raw_counts_are, source, layer))
    return counts


def _format_of(path: Path) -> tuple[Format, str]:
    """Return the format of a file, and its suffix."""
    if path.is_fifo() or path.is_char_device() or path.is_socket():
        raise ValueError(f"{path} must be a file that can be read twice, not a pipe or device; save the data in a file")
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}; check the path (now in {Path.cwd()})")
    for each in FORMATS:
        if (suffix := each.suffix_of(path)) is not None:
            return each, suffix
    _check_counted(path, False)
    known = ", ".join(suffix for each in FORMATS for suffix in each.all_suffixes)
    raise ValueError(f"{path} must end in one of {known}; convert the file to one of these formats")


def _check_counted(path: Path, is_text: bool) -> None:
    if (kind := mutations_listed_in(path, is_text)) is not None:
        raise ValueError(
            f"{path} must be a table of counts, not a list of mutations ({kind}); make the table by {MAKERS[kind]}"
        )


# --- orientation ----------------------------------------------------------------------------------


def _check_not_turned(path: Path, transpose: bool) -> None:
    if transpose:
        raise ValueError(
            f"{path} must not be transposed: files of 10x Genomics say what their rows are, and cells are put in rows; "
            "leave transpose=True out (--transpose on the command line)"
        )


def _shown_by_header(table: Any) -> Orientation | None:
    """Return that a table has features in its rows, as those of its tool have, or as the header above them says."""
    if (tool := getattr(table, "attrs", {}).get("features of")) is not None:
        return Orientation(True, "features", f", as tables of {tool} have")
    if (header := header_of_features(table)) is not None:
        reason = f", as the header {header!r} above them says (replace it by 'sample' if they are samples)"
        return Orientation(True, "features", reason)
    return None


def _with_mutation_types(counts: Counts, path: Path) -> tuple[Counts, Orientation | None]:
    """Return counts with all mutation types of one kind named as in COSMIC, and the orientation that types show."""
    rows, features = read_types(counts.row_names), read_types(counts.feature_names)
    for axis, types in (("rows", rows), ("columns", features)):
        if types is not None and types.repeated is not None:
            raise ValueError(
                f"{path} must have each of the {len(types.kind)} mutation types once in its {axis}: found "
                f"{types.repeated!r} more than once; keep one of them, or add their counts"
            )
    for side, types in (("row_names", rows), ("feature_names", features)):
        if types is not None and types.is_complete:
            counts = replace(counts, **{side: np.array(types.names, dtype=object)})  # type: ignore[arg-type]
    found = features if rows is None else rows
    if found is None or None not in (rows, features):
        return counts, None
    all_types = f"the {len(found.kind)} mutation types"
    if found.is_complete:
        return counts, Orientation(found is rows, all_types)
    missing = next(name for name in found.kind if name not in found.names)
    return counts, Orientation(found is rows, f"{len(found.names)} of {all_types}", f" ({missing!r} is missing)")


def _is_to_turn(path: Path, shown_by_names: Orientation | None, transpose: bool | None) -> bool:
    """Return whether to exchange rows and columns, with a warning if only the names show this."""
    if shown_by_names is None:
        return transpose is not False
    if transpose and not shown_by_names.features_in_rows:
        raise ValueError(
            f"{path} must not be transposed: it has {shown_by_names.features} in its columns{shown_by_names.reason}, "
            "so samples are in rows already; leave transpose=True out (--transpose on the command line)"
        )
    if shown_by_names.features_in_rows and transpose is False:
        warn_of_data(
            f"counts in {path} have {shown_by_names.features} in their rows{shown_by_names.reason}; they were turned, "
            "so that samples are in rows; transpose=True (--transpose on the command line) says so without this warning"
        )
    return shown_by_names.features_in_rows
