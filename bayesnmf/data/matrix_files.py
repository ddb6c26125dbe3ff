"""Matrices in files, whose names are in files beside them: of SciPy, Matrix Market, 10x Genomics, and other tools.

Each line of a Matrix Market file is checked, as SciPy drops whatever follows the numbers that it needs. Cell Ranger of
10x Genomics writes a folder of three files, or one HDF5 file.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import zipfile
import zlib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from bayesnmf.checks import shown
from bayesnmf.data.counts import Counts
from bayesnmf.data.suspicions import warn_of_data
from bayesnmf.places import check_axes, check_entries

BLOCK = 2**20  # bytes that are checked together
_PLACE = rb"\d++"
_VALUES = {
    "pattern": (rb"", "no value"),
    "integer": (rb"-?+\d++", "a whole number"),
    "unsigned-integer": (rb"\d++", "a whole number"),
    "real": (rb"-?+(?:(?:\d++\.?+\d*+|\.\d++)(?:[eE][+-]?+\d++)?+|(?i:nan|inf(?:inity)?+))", "a number"),
}


def read_mtx(path: Path) -> Any:
    """Read a Matrix Market file of any kind that SciPy reads, dense or sparse."""
    from scipy.io import mminfo, mmread

    rows, columns, entries, form, field, symmetry = mminfo(path)
    check_axes((rows, columns), path)
    if form == "array" and symmetry != "general":
        entries //= 4  # a symmetric file contains about half of them
    check_entries(entries, 4 if form == "coordinate" else 2, path)  # "1 1\n" and "1\n" are the shortest lines
    if field in _VALUES:  # complex numbers are no counts
        _check_lines(path, 2 if form == "coordinate" else 0, field)
    try:
        return mmread(path, spmatrix=False)
    except OverflowError as error:
        raise ValueError(
            f"its whole numbers must be below 2**63 ({str(error).strip('.')}); declare its entries real instead of "
            f"{field}, or divide them"
        ) from error


def _check_lines(path: Path, places: int, field: str) -> None:
    """Refuse a line that holds anything but its positions and its value."""
    value, words = _VALUES[field]
    right = _lines(*[_PLACE] * places, *[value] * bool(value))
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        number, line = 1, file.readline()
        while line.startswith(b"%") or (line and not line.strip()):
            number, line = number + 1, file.readline()
        while block := file.read(BLOCK) + file.readline():
            block += b"" if block.endswith(b"\n") else b"\n"
            if (end := right.match(block).end()) < len(block):  # type: ignore[union-attr]
                number += 1 + block.count(b"\n", 0, end)
                parts = " and ".join([*["a row, a column"] * bool(places), words])
                raise ValueError(
                    f"its line {number:,} must be {parts}, as its entries are declared {field}: found "
                    f"{_text(block[end : block.index(b'\n', end)])}"
                )
            number += block.count(b"\n")


def _lines(*parts: bytes) -> re.Pattern[bytes]:
    """Return a pattern of all lines from a place on that consist of these parts, or of nothing."""
    return re.compile(rb"(?:[ \t]*+(?:" + rb"[ \t]++".join(parts) + rb"[ \t]*+)?+\r?+\n)*+")


def _text(line: bytes) -> str:
    return shown(line[:60].decode(errors="replace").strip())


def read_npz(path: Path) -> Any:
    """Read a sparse matrix of SciPy, or the only array of NumPy."""
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


# --- names in files beside a matrix ----------------------------------------------------------------

# As Cell Ranger names them, that of ATAC too:
MATRIX, BARCODES, FEATURES = "matrix.mtx", "barcodes.tsv", ("features.tsv", "genes.tsv", "peaks.bed")
OTHERS = (("genes.names.txt", "genes.txt", "features.txt"), ("barcodes.txt", BARCODES))  # of kallisto bustools
LISTS = re.compile(r"\.(csv|tsv|txt|bed)(\.gz)?$", re.IGNORECASE)
MOST_BESIDE, LONGEST = 20, 2**26  # files beside a matrix, and bytes of one, that are looked at
GENES = "Gene Expression"
BARCODE = re.compile(r"(.*[_-])?[ACGTN]{8,}(-\d+)?")


class Orientation(NamedTuple):
    """What the names in or beside a file show about its rows; `reason` completes a sentence."""

    features_in_rows: bool
    features: str
    reason: str = ""


def add_names_beside(counts: Counts, path: Path, suffix: str) -> tuple[Counts, Orientation | None]:
    """Return counts, as the file has them, with names from the .json file with the same name, else from other files.

    These are files of rows and of columns with the name of the matrix, as alevin and the Expression Atlas write them,
    or files of features and of barcodes: with the name of the matrix, as kallisto writes them, or as of 10x Genomics.
    They also show the orientation.
    """
    base = path.name[: -len(suffix)]
    listed = path.with_name(base + ".json")
    if listed.is_file():
        return _with_listed_names(counts, listed), None
    for of_rows, of_columns in ((f"{base}.mtx_rows", f"{base}.mtx_cols"), (f"{base}_rows.txt", f"{base}_cols.txt")):
        sides = [existing_file(path, "", (each,)) for each in (of_rows, of_columns)]
        if all(sides):
            return _with_names_of_sides(counts, path, sides)
    for prefix in _prefixes(path, base):
        beside = [existing_file(path, prefix, names) for names in (FEATURES, (BARCODES,))]
        beside = beside if all(beside) else [existing_file(path, prefix, names) for names in OTHERS]
        if all(beside):
            return _with_names_beside(counts, path, beside)
    _warn_of_names_beside(counts.shape, path)
    return counts, None


def _warn_of_names_beside(shape: tuple[int, int], path: Path) -> None:
    """Warn of two files of text beside a matrix without names that have as many lines as it has rows and columns.

    A line of them may be a header.
    """
    files = sorted(each for each in path.parent.iterdir() if LISTS.search(each.name) and each != path)
    lines = {} if len(files) > MOST_BESIDE else {each.name: _number_of_lines(each) for each in files if each.is_file()}
    fitting = [[name for name, number in lines.items() if number in (size, size + 1)] for size in shape]
    if shape[0] != shape[1] and all(len(each) == 1 for each in fitting) and fitting[0] != fitting[1]:
        (rows,), (columns,) = fitting
        warn_of_data(
            f"counts in {path} have no names: {rows} and {columns} beside it have as many lines as there are rows and "
            "columns; give row_names and feature_names, and transpose=True if rows are features"
        )


def _number_of_lines(file: Path) -> int:
    """Return the number of lines of a text, -1 of one that is too long for names."""
    if file.stat().st_size > LONGEST:
        return -1
    with (gzip.open if file.suffix.lower() == ".gz" else open)(file, "rb") as lines:
        try:
            return sum(1 for _ in lines)
        except (EOFError, gzip.BadGzipFile, zlib.error):
            return -1


def _prefixes(path: Path, base: str) -> list[str]:
    """Return what may stand before the names of files of features and barcodes: of a matrix.mtx, what is before it."""
    if f"{base}.mtx".endswith(MATRIX):
        return [f"{base}.mtx".removesuffix(MATRIX)]
    names = (file.name.removesuffix(".gz").rpartition(".")[0] for file in path.parent.iterdir())
    found = {name.removesuffix("barcodes") for name in names if name.endswith("barcodes")}
    return sorted((prefix for prefix in found if f"{base}.".startswith(prefix)), key=len, reverse=True)


def _with_names_of_sides(counts: Counts, path: Path, sides: list[Any]) -> tuple[Counts, Orientation | None]:
    """Return counts with the names of their rows and columns, and the orientation that these show, if they show one.

    Features have identifiers in a second column, or barcodes are beside them.
    """
    (rows, _, more), (columns, _, others) = (_read_names(file) for file in sides)
    of_atlas = f"{sides[0].name}.".endswith((".mtx_rows.", ".mtx_rows.gz."))  # whose rows are genes
    if counts.shape != (len(rows), len(columns)):
        raise ValueError(
            f"{path} must have a row for each of {len(rows)} names in {sides[0].name} and a column for each of "
            f"{len(columns)} in {sides[1].name}: found shape {counts.shape}; remove what is no name, or rename the "
            "files to read the counts without them"
        )
    named = replace(counts, row_names=rows, feature_names=columns)
    barcodes = [bool(BARCODE.fullmatch(str(names[0]))) for names in (rows, columns)]
    if more == others and barcodes[0] == barcodes[1] and not of_atlas:
        return named, None
    in_rows = more > others if more != others else barcodes[1] or (of_atlas and not barcodes[0])
    return named, Orientation(in_rows, "features", f", as {sides[0].name} and {sides[1].name} show")


def _with_listed_names(counts: Counts, sidecar: Path) -> Counts:
    try:
        names = json.loads(sidecar.read_text(encoding="utf-8"), object_pairs_hook=_unrepeated)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{sidecar} must be JSON: {error}; mend it or move it away") from error
    if not isinstance(names, dict):
        return counts
    return replace(
        counts,
        row_names=_name_list(names.get("rows"), counts.row_names, f"'rows' in {sidecar}"),
        feature_names=_name_list(names.get("cols"), counts.feature_names, f"'cols' in {sidecar}"),
    )


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; refuse one that gives a key twice, of which Python would keep the last."""
    found = dict(pairs)
    if len(found) < len(pairs):
        repeated = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        raise ValueError(f"the key {shown(repeated)} is given more than once; keep one of them")
    return found


def _name_list(names: Any, default: np.ndarray, what: str) -> np.ndarray:
    if not isinstance(names, list):
        return default
    if len(names) != len(default):
        raise ValueError(
            f"{what} must have {len(default)} names: found {len(names)}; mend the list or move the file away"
        )
    return np.array([str(name) for name in names], dtype=object)


def existing_file(path: Path, prefix: str, names: tuple[str, ...]) -> Path | None:
    """Return the first file beside `path` with the prefix and one of the names, also with .gz; None without one."""
    files = [path.with_name(prefix + name + end) for name in names for end in ("", ".gz")]
    return next((file for file in files if file.is_file()), None)


def _with_names_beside(counts: Counts, path: Path, beside: list[Any]) -> tuple[Counts, Orientation | None]:
    """Return counts with the names of features and barcodes, and the orientation that the numbers of these show.

    Beside a matrix with a name of its own, files with other numbers of names are left alone, with a warning.
    """
    (features, types, columns), (barcodes, _, wide) = (_read_names(file) for file in beside)
    sizes = len(features), len(barcodes)
    fitting = counts.shape in (sizes, sizes[::-1])
    if not fitting and not path.name.removesuffix(".gz").endswith(MATRIX):
        warn_of_data(
            f"counts in {path} have no names: {beside[0].name} and {beside[1].name} beside it have {sizes[0]:,} "
            f"features and {sizes[1]:,} barcodes, and the shape is {counts.shape}; give row_names and feature_names"
        )
        return counts, None
    if columns == 1 < wide:
        raise ValueError(
            f"{beside[1].name} must have one barcode in each line: found {wide} columns, and one in {beside[0].name}, "
            f"as if the two were exchanged in {path.parent}; exchange their names"
        )
    if not fitting:
        raise ValueError(
            f"{path} must have a row for each of {sizes[0]} features ({beside[0].name}) and a column for each of "
            f"{sizes[1]} barcodes ({beside[1].name}), or the reverse: found shape {counts.shape}; "
            "remove a header line and whatever else is no name, or rename the files to read the counts without them"
        )
    cells_first = path.name.startswith("cells_x_")  # as kallisto writes a square matrix, and Cell Ranger does not
    in_rows = counts.shape == sizes and not (cells_first and sizes[0] == sizes[1])
    names = (features, barcodes) if in_rows else (barcodes, features)
    reason = f", as the lengths of {beside[0].name} and {beside[1].name} show"
    counts, genes = replace(counts, row_names=names[0], feature_names=names[1]), genes_among(types, path)
    if genes is not None:
        counts = counts.rows(genes) if in_rows else counts.columns(np.flatnonzero(genes))
    return counts, Orientation(in_rows, "features", reason)


def genes_among(types: list[str], path: Path) -> np.ndarray | None:
    """Return which features are genes, with a warning, if there are features of other types as well; else None."""
    genes = np.array([each == GENES for each in types])
    if genes.all() or not genes.any():
        return None
    others = ", ".join(sorted({*types} - {GENES}))
    warn_of_data(
        f"counts in {path} have {len(genes) - genes.sum()} features of other types than genes ({others}); they were "
        "left out; to fit them, pass an AnnData object, such as that of scanpy.read_10x_mtx(..., gex_only=False)"
    )
    return genes


def _read_names(file: Path) -> tuple[np.ndarray, list[str], int]:
    """Return the names in a 10x file, the types of features, and the number of columns.

    The names are the second of several columns (symbols), with the first if they repeat; the third has the types.
    """
    try:
        with open_text(file) as lines:
            rows = [row or [""] for row in csv.reader(lines, delimiter="\t", strict=True)]
    except (csv.Error, UnicodeDecodeError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{file} must be tab-separated text: {error}; mend it or move it away") from error
    while rows and not any(rows[-1]):
        rows.pop()
    if file.name.removesuffix(".gz").endswith(".bed"):
        rows = [["{}:{}-{}".format(*row) if len(row) > 2 else row[0]] for row in rows]
    names = names_with_identifiers([row[min(1, len(row) - 1)] for row in rows], [row[0] for row in rows])
    return names, [row[2] if len(row) > 2 else GENES for row in rows], max(map(len, rows), default=1)


def open_text(file: Path) -> Any:
    """Open a text file, which may start with a byte order mark."""
    return (gzip.open if file.suffix.lower() == ".gz" else open)(file, "rt", encoding="utf-8-sig", newline="")


def names_with_identifiers(names: list[str], identifiers: list[str]) -> np.ndarray:
    """Return names, followed by their identifiers where they repeat, or the identifiers of features without a name."""
    names = [name.strip() or identifier for name, identifier in zip(names, identifiers, strict=True)]
    unique, number = np.unique(names, return_counts=True)
    repeated = {*unique[number > 1].tolist()}
    both = (
        f"{name} ({identifier})" if name in repeated and name != identifier else name
        for name, identifier in zip(names, identifiers, strict=True)
    )
    return np.array([*both], dtype=object)


MOST_SHOWN = 5


def matrix_in(folder: Path) -> Path:
    """Return the matrix file of a 10x folder, whose names may have a prefix; refuse a folder without all files."""
    prefix = _prefix_in(folder)
    parts = ((MATRIX,), (BARCODES,), FEATURES)
    found = [existing_file(folder / MATRIX, prefix, names) for names in parts]
    missing = [
        " or ".join(prefix + name for name in names) for names, file in zip(parts, found, strict=True) if file is None
    ]
    if len(missing) == len(parts):
        raise ValueError(f"{folder} must be a file, not a directory; name one file in it")
    if missing:
        others = sorted(each.name for each in folder.iterdir() if each.name.removesuffix(".gz").endswith(".mtx"))
        shown = f" of {', '.join(others[:MOST_SHOWN])}" if others and found[0] is None else ""
        raise ValueError(
            f"{folder} must have all files of a 10x Genomics folder, each also with .gz: {', '.join(missing)} is "
            f"missing; add it, or name the one file{shown} to read"
        )
    matrix: Any = found[0]
    return matrix


def _prefix_in(folder: Path) -> str:
    """Return what stands before the name of the only matrix in a folder, as in the files of GEO."""
    names = {file.name.removesuffix(".gz") for file in folder.iterdir() if file.is_file()}
    prefixes = sorted(name.removesuffix(MATRIX) for name in names if name.endswith(MATRIX))
    if len(prefixes) > 1 and "" not in prefixes:
        raise ValueError(
            f"{folder} must have one matrix: found {prefixes[0]}{MATRIX}, {prefixes[1]}{MATRIX}; name one of the files"
        )
    return prefixes[0] if prefixes else ""


class CellsOfFile:
    """Counts in an HDF5 file of 10x Genomics, (cells, features), of which a slice of cells is read.

    Parameters
    ----------
    group : h5py.Group
        Matrix of features × cells, compressed by cells.
    chosen : ndarray of bool or None
        Features to read; None for all.
    """

    def __init__(self, group: Any, chosen: np.ndarray | None) -> None:
        features, cells = (int(each) for each in group["shape"][:])
        self.shape = cells, features if chosen is None else int(chosen.sum())
        self.nnz = int(group["data"].shape[0])
        self._group, self._chosen, self._width, self._starts = group, chosen, features, group["indptr"][:]

    def __getitem__(self, cells: slice) -> Any:
        from scipy.sparse import csr_array

        first, last, _ = cells.indices(self.shape[0])
        starts = self._starts[first : last + 1]
        data, indices = (self._group[name][starts[0] : starts[-1]] for name in ("data", "indices"))
        read = csr_array((data, indices, starts - starts[0]), shape=(last - first, self._width))
        return read if self._chosen is None else read[:, self._chosen]


def open_10x_h5(path: Path) -> tuple[CellsOfFile, np.ndarray, np.ndarray, Any]:
    """Open an HDF5 file of Cell Ranger 3 and later, or of version 2 with one genome.

    Returns
    -------
    CellsOfFile
        Counts with cells in rows.
    ndarray, ndarray
        Barcodes, and names of the features.
    h5py.File
        Open file, to be closed.
    """
    import h5py

    file = h5py.File(path)
    try:
        group = file["matrix"] if "matrix" in file else _only_genome(file)
        features = group.get("features")
        identifiers, symbols = (
            (features["id"], features["name"]) if features is not None else (group["genes"], group["gene_names"])
        )
        names = names_with_identifiers(_texts(symbols), _texts(identifiers))
        barcodes = np.array(_texts(group["barcodes"]), dtype=object)
        number, cells = (int(each) for each in group["shape"][:])
        if (number, cells) != (len(names), len(barcodes)):
            raise ValueError(
                f"its matrix has the shape {(number, cells)}, but there are {len(names)} features and {len(barcodes)} "
                "barcodes"
            )
        types = _texts(features["feature_type"]) if features is not None and "feature_type" in features else []
        genes = genes_among(types, path)
    except BaseException:
        file.close()
        raise
    return CellsOfFile(group, genes), barcodes, names if genes is None else names[genes], file


def read_10x_h5(path: Path) -> Any:
    """Read an HDF5 file of 10x Genomics; cells are in rows."""
    values, barcodes, names, file = open_10x_h5(path)
    with file:
        return SimpleNamespace(X=values[:], obs_names=barcodes, var_names=names, layers={})


def _only_genome(file: Any) -> Any:
    groups = [each for each in file.values() if "gene_names" in getattr(each, "keys", tuple)()]
    if len(groups) != 1:
        raise ValueError(f"it holds {len(groups)} matrices of 10x Genomics, and not one")
    return groups[0]


def _texts(stored: Any) -> list[str]:
    return [each.decode() if isinstance(each, bytes) else str(each) for each in stored[:]]
