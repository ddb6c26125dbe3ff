"""Real data sets by name: from a folder, and from copies of their public sources on a local server."""

import io
import tarfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from realdata import find_data

import bayesnmf
from bayesnmf.data import real as module
from bayesnmf.data.real import SOURCES, digest_of
from bayesnmf.datasets import real
from bayesnmf.writing import write_text


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        """Print nothing."""


@pytest.fixture
def served(tmp_path, monkeypatch):
    """Serve a folder in place of all public addresses, with an empty cache; return the folder."""
    folder = tmp_path / "public"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    here = f"http://127.0.0.1:{server.server_port}"
    moved = {
        name: source._replace(addresses=tuple(f"{here}/{address.rsplit('/', 1)[1]}" for address in source.addresses))
        for name, source in SOURCES.items()
    }
    monkeypatch.setattr(module, "SOURCES", moved)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("BAYESNMF_DATA", raising=False)
    yield folder
    server.shutdown()
    server.server_close()


def local_copy(name: str) -> module.RealCounts:
    """Return the data set of the folder of real data, or skip."""
    path = find_data(name)
    if path is None:
        pytest.skip(f"real data {name!r} not found")
    return real(name, path.parent)


def write_signatures(counts, path: Path, seed: int = 0) -> None:
    """Write a table as in the public source: types in rows, samples in any order."""
    order = np.random.default_rng(seed).permutation(counts.shape[0])
    table = pd.DataFrame(
        counts.matrix[order].toarray().T.astype(int), counts.feature_names, counts.row_names[order]
    ).rename_axis("SBS")
    write_text(path, table.to_csv())


def write_newsgroups(copy: module.RealCounts, folder: Path) -> None:
    """Write texts as in the public source: training and test texts apart, and words that only one text has."""
    counts, topics = copy.counts, copy.rows["topic"]
    n, m = counts.shape
    groups, codes = np.unique(topics, return_inverse=True)
    half = n // 2
    with tarfile.open(folder / "20news-bydate-matlab.tgz", "w:gz", compresslevel=1) as packed:
        for part, rows in (("train", slice(0, half)), ("test", slice(half, n))):
            found = counts.matrix[rows].tocoo()
            table = np.column_stack([found.coords[0] + 1, found.coords[1] + 1, found.data]).astype(int)
            table = np.vstack([table, [1, m + 1 if part == "train" else m + 2, 7]])
            texts = {
                f"{part}.data": "\n".join(" ".join(map(str, line)) for line in table),
                f"{part}.label": "\n".join(map(str, codes[rows] + 1)),
                "train.map": "\n".join(f"{group} {i + 1}" for i, group in enumerate(groups)),
            }
            for name, text in texts.items():
                member = tarfile.TarInfo(f"20news-bydate/matlab/{name}")
                member.size = len(text.encode())
                packed.addfile(member, io.BytesIO(text.encode()))
    write_text(folder / "vocabulary.txt", "\n".join([*counts.feature_names, "once", "twice-in-one"]) + "\n")


@pytest.mark.parametrize("name", SOURCES)
def test_the_digest_of_each_source_is_that_of_the_local_copy(name):
    assert digest_of(local_copy(name).counts) == SOURCES[name].digest


def test_signatures_are_downloaded_turned_and_sorted(served):
    local = local_copy("pcawg_breast_sbs96")
    write_signatures(local.counts, served / "pcawg_breast_sbs.csv")
    found = real("pcawg_breast_sbs96")
    assert found.counts.row_names.tolist() == local.counts.row_names.tolist()
    np.testing.assert_array_equal(found.counts.matrix.toarray(), local.counts.matrix.toarray())
    (served / "pcawg_breast_sbs.csv").unlink()
    assert real("pcawg_breast_sbs96").counts.total == local.counts.total  # from the cache


@pytest.mark.long
def test_texts_are_downloaded_without_words_of_a_single_text(served):
    local = local_copy("newsgroups")
    write_newsgroups(local, served)
    found = real("newsgroups")
    assert found.counts.feature_names.tolist() == local.counts.feature_names.tolist()
    assert (found.counts.matrix != local.counts.matrix).nnz == 0
    assert found.rows["topic"].tolist() == local.rows["topic"].tolist()


def test_texts_of_both_parts_stand_one_below_the_other(tmp_path):
    """As above, on few texts, whose digest nobody knows."""
    few = bayesnmf.as_counts(np.random.default_rng(0).poisson(3, (7, 4)) + 1)
    names = np.array(["once", "and", "again", "twice"], dtype=object)
    local = module.RealCounts(
        module.Counts(few.matrix, np.array([f"doc{i + 1}" for i in range(7)], dtype=object), names),
        pd.DataFrame({"topic": list("abcabca")}),
        pd.DataFrame(index=names),
    )
    write_newsgroups(local, tmp_path)
    found, about = module._read_newsgroups([tmp_path / "20news-bydate-matlab.tgz", tmp_path / "vocabulary.txt"])
    np.testing.assert_array_equal(found.matrix.toarray(), few.matrix.toarray())
    assert found.feature_names.tolist() == names.tolist()
    assert np.array(about["topic_levels"])[about["topic"]].tolist() == list("abcabca")


def test_one_other_count_is_refused(served):
    counts = local_copy("pcawg_breast_sbs96").counts
    changed = counts.matrix.copy()
    changed.data[1000] += 1
    write_signatures(module.Counts(changed, counts.row_names, counts.feature_names), served / "pcawg_breast_sbs.csv")
    with pytest.raises(ValueError, match="must have the digest"):
        real("pcawg_breast_sbs96")


def test_failed_downloads_and_damaged_files_name_the_cure(served):
    with pytest.raises(FileNotFoundError, match=r"cannot be downloaded: .*; set BAYESNMF_DATA to a folder"):
        real("pcawg_breast_sbs96")
    write_text(served / "20news-bydate-matlab.tgz", "no archive")
    write_text(served / "vocabulary.txt", "words")
    with pytest.raises(
        ValueError, match=r"changed or is damaged: .*; remove .*20news-bydate-matlab.tgz and .* try again"
    ):
        real("newsgroups")


def test_what_is_nowhere_is_refused_with_the_cure(tmp_path, monkeypatch):
    monkeypatch.delenv("BAYESNMF_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="set BAYESNMF_DATA to a folder with pbmc_facs"):
        real("pbmc_facs")
    with pytest.raises(FileNotFoundError, match="leave folder out"):
        real("newsgroups", tmp_path)


def test_metadata_are_frames_with_names_in_place_of_codes(tmp_path):
    from scipy.sparse import csr_array, save_npz

    save_npz(tmp_path / "few.npz", csr_array(np.array([[1, 0], [2, 3], [0, 4]])))
    write_text(
        tmp_path / "few.json",
        '{"rows": ["a", "b", "c"], "cols": ["x", "y"], "col_meta": {"symbol": ["X", "Y"]},'
        ' "row_meta": {"kind": [1, 0, 1], "kind_levels": ["low", "high"], "dose": [1, 2, 3]}}',
    )
    counts, rows, features = real("few", tmp_path)
    assert counts.shape == (3, 2)
    assert rows["kind"].tolist() == ["high", "low", "high"]
    assert rows.loc["b", "dose"] == 2
    assert features.loc["y", "symbol"] == "Y"


def test_a_data_set_is_taken_for_its_counts_and_is_a_card(tmp_path):
    from scipy.sparse import csr_array, save_npz

    save_npz(tmp_path / "few.npz", csr_array(np.array([[1, 0], [2, 3], [0, 4]])))
    write_text(
        tmp_path / "few.json", '{"rows": ["a", "b", "c"], "cols": ["x", "y"], "row_meta": {"<kind>": [1, 0, 1]}}'
    )
    found = real("few", tmp_path)
    for missing in (None, "zeros"):
        fit = bayesnmf.fit(found, rank=1, method="map", seed=0, missing=missing)
        wanted = bayesnmf.fit(found.counts, rank=1, method="map", seed=0, missing=missing)
        np.testing.assert_array_equal(fit.loadings, wanted.loadings)
    assert fit.row_names.tolist() == ["a", "b", "c"]
    html = found._repr_html_()
    assert "3 rows × 2 features" in html
    assert "&lt;kind&gt;" in html
    assert "columns of features" in html
    assert "counts, rows, features = data" in html


def test_others_that_have_counts_are_refused_with_the_cure():
    drawn = bayesnmf.simulate(size=(5, 4), rank=1)
    for given in (drawn, bayesnmf.fit(drawn.counts, rank=1, seed=0)):
        with pytest.raises(TypeError, match=rf"counts themselves: found {type(given).__name__}, .*; give its \.counts"):
            bayesnmf.fit(given)
