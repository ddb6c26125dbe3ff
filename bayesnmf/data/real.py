"""Real count matrices: from a folder on this machine, else from their public sources."""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.sparse import coo_array, csr_array

from bayesnmf.checks import did_you_mean
from bayesnmf.data.conversion import as_counts
from bayesnmf.data.counts import Counts, card_of
from bayesnmf.data.files import read_counts

if TYPE_CHECKING:
    import pandas as pd

FOLDER = "BAYESNMF_DATA"


class RealCounts(NamedTuple):
    """Counts of a real data set, and what is known about its rows and features: see `real`.

    `bayesnmf.fit` and all that takes counts take it for its counts, and a notebook shows it as a card.

    Attributes
    ----------
    counts : Counts
        The whole matrix, (n, m).
    rows : pandas.DataFrame
        A line for each row, such as the label of a cell or the topic of a text; without columns if nothing is known.
    features : pandas.DataFrame
        A line for each feature, such as the symbol of a gene.

    See Also
    --------
    datasets.real : which returns it.

    Examples
    --------
    >>> import bayesnmf
    >>> bayesnmf.datasets.RealCounts._fields
    ('counts', 'rows', 'features')
    """

    counts: Counts
    rows: pd.DataFrame
    features: pd.DataFrame

    def _repr_html_(self) -> str:
        known = [[f"columns of {name}", ", ".join(getattr(self, name)) or "none"] for name in self._fields[1:]]
        shown = card_of(self.counts)
        calls = ["counts, rows, features = data", *shown.calls]
        return shown._replace(lines=[*shown.lines, *known], calls=calls).as_html()


class Source(NamedTuple):
    """Where a data set is public: its files, how to read them, and the digest of the counts (`digest_of`)."""

    addresses: tuple[str, ...]
    read: Callable[[list[Path]], tuple[Counts, dict[str, Any]]]
    digest: str


def real(name: str, folder: str | os.PathLike[str] | None = None) -> RealCounts:
    """Return a real data set: from a folder on this machine, else from its public source.

    Files that were downloaded stay in the cache of the operating system (``pooch.os_cache("bayesnmf")``). The counts of
    a public source are compared with a digest (SHA-256 of all names and counts), so that they are those of the guides.

    Parameters
    ----------
    name : str
        Name of the data set. Public sources are known of ``"pcawg_breast_sbs96"`` (192 breast cancers × 96 mutation
        types, from github.com/parklab/salamander) and ``"newsgroups"`` (18,774 texts × 55,911 words, from
        qwone.com/~jason/20Newsgroups).
    folder : str or path, optional
        Folder with ``name.npz`` (a SciPy sparse matrix) and ``name.json`` (names and metadata); by default the one that
        the environment variable BAYESNMF_DATA names.

    Returns
    -------
    RealCounts
        Named tuple of the counts and of the frames `rows` and `features`.

    Raises
    ------
    FileNotFoundError
        The data set is not in the folder, and has no public source that could be read.
    ImportError
        It would have to be downloaded, and pooch is not installed.
    ValueError
        The counts of the public source are not those that were expected.

    See Also
    --------
    datasets.cells, datasets.mutations, datasets.texts, datasets.digits : counts that need no download.

    Examples
    --------
    >>> import bayesnmf
    >>> counts, cells, genes = bayesnmf.datasets.real("pcawg_breast_sbs96")  # doctest: +SKIP
    """
    path = _local(name, folder)
    if path is not None:
        beside = path.with_suffix(".json")
        about = json.loads(beside.read_text(encoding="utf-8")) if beside.is_file() else {}
        return _described(read_counts(path), about.get("row_meta", {}), about.get("col_meta", {}))
    if name not in SOURCES:
        raise FileNotFoundError(
            f"no data set {name!r}: set {FOLDER} to a folder with {name}.npz, or choose one with a public source: "
            f"{', '.join(sorted(SOURCES))}{did_you_mean(name, SOURCES)}; bayesnmf.datasets.cells(), "
            "bayesnmf.datasets.mutations() and bayesnmf.datasets.texts() "
            "need neither"
        )
    source = SOURCES[name]
    files = [_download(address, name) for address in source.addresses]
    cure = f"remove {' and '.join(map(str, files))} and try again, or set {FOLDER} to a folder that has {name}.npz"
    try:
        counts, rows = source.read(files)
    except (tarfile.TarError, EOFError, KeyError, OSError, ValueError) as error:
        reason = str(error).split("\n", 1)[0]
        raise ValueError(f"{source.addresses[0]} has changed or is damaged: {reason}; {cure}") from error
    found = digest_of(counts)
    if found != source.digest:
        raise ValueError(
            f"counts from {source.addresses[0]} must have the digest {source.digest}: found {found}; the file has "
            f"changed or is damaged: {cure}"
        )
    return _described(counts, rows, {})


def digest_of(counts: Counts) -> str:
    """Return the SHA-256 of names and counts; the order of rows and features does not matter."""
    rows, features = (
        np.argsort(names.astype(str), kind="stable") for names in (counts.row_names, counts.feature_names)
    )
    matrix = csr_array(counts.matrix[rows][:, features])
    matrix.sort_indices()
    names = [counts.row_names[rows].astype(str).tolist(), counts.feature_names[features].astype(str).tolist()]
    digest = hashlib.sha256(json.dumps(names).encode())
    for values in (matrix.indptr, matrix.indices, matrix.data):
        digest.update(values.astype("<i8").tobytes())
    return digest.hexdigest()


def _local(name: str, folder: str | os.PathLike[str] | None) -> Path | None:
    place = folder if folder is not None else os.environ.get(FOLDER)
    path = Path(place) / f"{name}.npz" if place else None
    if path is not None and path.is_file():
        return path
    if folder is not None:
        raise FileNotFoundError(f"{path} does not exist: leave folder out to use the public source, if there is one")
    return None


def _described(counts: Counts, rows: dict[str, Any], features: dict[str, Any]) -> RealCounts:
    """Return counts with frames of metadata; codes whose names are listed as ``*_levels`` become these names."""
    import pandas as pd

    frames = []
    for meta, names in ((rows, counts.row_names), (features, counts.feature_names)):
        columns = {
            key: np.asarray(meta[f"{key}_levels"])[values] if f"{key}_levels" in meta else values
            for key, values in meta.items()
            if not key.endswith("_levels")
        }
        frames.append(pd.DataFrame(columns, index=pd.Index(names)))
    return RealCounts(counts, *frames)


def _download(address: str, name: str) -> Path:
    """Return the file of an address, which is downloaded at first."""
    other = f"set {FOLDER} to a folder that has {name}.npz"
    try:
        import pooch
    except ImportError as error:
        raise ImportError(f"downloads need pooch: pip install 'bayesnmf[data]', or {other}") from error
    try:
        file = pooch.retrieve(address, None, fname=address.rsplit("/", 1)[1], path=pooch.os_cache("bayesnmf"))
    except OSError as error:  # those of requests are, too
        raise FileNotFoundError(f"{address} cannot be downloaded: {error}; {other}") from error
    return Path(file)


def _read_signatures(files: list[Path]) -> tuple[Counts, dict[str, Any]]:
    """Read a table with mutation types in rows; return samples in rows, in the order of their names."""
    counts = read_counts(files[0], transpose=True)
    return counts.rows(np.argsort(counts.row_names.astype(str), kind="stable")), {}


def _read_newsgroups(files: list[Path]) -> tuple[Counts, dict[str, Any]]:
    """Read training and test texts as one matrix; words of a single text are left out."""
    archive, vocabulary = files
    triples, labels, before = [], [], 0
    with tarfile.open(archive) as packed:
        members = {member.name.rsplit("/", 1)[-1]: member for member in packed.getmembers()}
        for part in ("train", "test"):
            triples.append(_numbers(packed, members[f"{part}.data"]).reshape(-1, 3))
            triples[-1][:, 0] += before
            labels.append(_numbers(packed, members[f"{part}.label"]))
            before += len(labels[-1])
        groups = [line.split()[0] for line in _text(packed, members["train.map"]).splitlines()]
    words = np.array(vocabulary.read_text(encoding="utf-8").split(), dtype=object)
    row, word, count = np.concatenate(triples).T
    matrix = csr_array(coo_array((count.astype(float), (row - 1, word - 1)), shape=(before, len(words))))
    kept = np.flatnonzero(np.bincount(matrix.indices, minlength=len(words)) >= 2)
    names = np.array([f"doc{i + 1}" for i in range(before)], dtype=object)
    topics = {"topic": np.concatenate(labels) - 1, "topic_levels": groups}
    return Counts(as_counts(matrix[:, kept]).matrix, names, words[kept]), topics


def _text(packed: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    file = packed.extractfile(member)
    assert file is not None
    return file.read().decode("utf-8")


def _numbers(packed: tarfile.TarFile, member: tarfile.TarInfo) -> np.ndarray:
    return np.array(_text(packed, member).split(), dtype=np.int64)


SOURCES = {
    "pcawg_breast_sbs96": Source(
        (
            "https://raw.githubusercontent.com/parklab/salamander/cb890938eed153776cca0c0c37e47d9685e703be/data/"
            "pcawg_breast_sbs.csv",
        ),
        _read_signatures,
        "11da3a1f3dcccee1a15714255078ff2445832a520df9f49aac9daaf6decb8fce",
    ),
    "newsgroups": Source(
        (
            "http://qwone.com/~jason/20Newsgroups/20news-bydate-matlab.tgz",
            "http://qwone.com/~jason/20Newsgroups/vocabulary.txt",
        ),
        _read_newsgroups,
        "4970945add1f485ddd1e7ed47e0658cb0fb0ae87406f602e32797906571778bc",
    ),
}
"""Data sets with a public source in a readable format."""
