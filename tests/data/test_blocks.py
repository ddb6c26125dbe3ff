"""Counts on disk: what they are read from, the store, and what is refused."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csc_array, csc_matrix, csr_array, csr_matrix

import bayesnmf
from bayesnmf import Blocks
from bayesnmf.data.blocks import checks, opening, raw
from bayesnmf.data.blocks.counts import BlockedCounts
from bayesnmf.data.blocks.opening import open_counts
from bayesnmf.data.blocks.raw import NpyWriter, RawArray, TemporaryFolder
from bayesnmf.data.blocks.store import Store, _digest

# Of pandas, when anndata asks for the option.
pytestmark = pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated:DeprecationWarning")
X = np.random.default_rng(0).poisson(0.4, (301, 23))
X[17] = 0
CELLS, GENES = [f"c{i}" for i in range(301)], [f"g{j}" for j in range(23)]


def annotated(values=X, **layers):
    var = pd.DataFrame({"symbol": [f"SYM{j}" for j in range(23)]}, GENES)
    layers = {name: csr_matrix(each) for name, each in layers.items()}
    return anndata.AnnData(csr_matrix(values.astype(np.float32)), pd.DataFrame(index=CELLS), var, layers=layers)


def opened(source, tmp_path, **more):
    return open_counts(Blocks(source, scratch=tmp_path / "scratch", **{"nonzeros": 500, **more}), "float64")


def same(counts, rows=CELLS, features=GENES, values=X):
    assert isinstance(counts, BlockedCounts)
    whole = counts.block(0, counts.shape[0])
    np.testing.assert_array_equal(whole.matrix.toarray(), values)
    assert whole.matrix.has_canonical_format
    assert list(map(str, counts.row_names)) == list(map(str, rows))
    assert list(map(str, counts.feature_names)) == list(map(str, features))
    memory = bayesnmf.as_counts(values)
    for name in ("row_totals", "feature_totals", "total", "nnz", "shape"):
        np.testing.assert_array_equal(getattr(counts, name), getattr(memory, name))
    np.testing.assert_allclose(counts.log_factorial, memory.log_factorial, rtol=1e-14)


def test_annotated_files_and_layers(tmp_path):
    annotated(X / 2, counts=X, other=2 * X).write_h5ad(tmp_path / "cells.h5ad")
    annotated(X / 2, counts=X).write_zarr(tmp_path / "cells.zarr")
    for name in ("cells.h5ad", "cells.zarr"):
        same(opened(tmp_path / name, tmp_path))
    same(opened(tmp_path / "cells.h5ad", tmp_path, layer="other"), values=2 * X)
    named = opened(tmp_path / "cells.h5ad", tmp_path, feature_labels="symbol")
    same(named, features=[f"SYM{j}" for j in range(23)])


def test_dense_counts_in_a_file(tmp_path):
    adata = anndata.AnnData(X.astype(np.int64), pd.DataFrame(index=CELLS), pd.DataFrame(index=GENES))
    adata.write_h5ad(tmp_path / "dense.h5ad")
    same(opened(tmp_path / "dense.h5ad", tmp_path))


def test_backed_and_lazy_objects(tmp_path):
    annotated().write_h5ad(tmp_path / "cells.h5ad")
    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    same(opened(backed, tmp_path))
    view = opened(backed[10:200], tmp_path)
    same(view, rows=CELLS[10:200], values=X[10:200])
    temporary = view.store.folder.parent
    assert temporary.is_dir()
    del view
    assert not temporary.exists()  # no file is named by a view, so nobody could find its store again


def test_dask_arrays(tmp_path):
    array = pytest.importorskip("dask.array")
    lazy = array.from_array(X, chunks=(100, 23)).map_blocks(csr_array)
    same(opened(lazy, tmp_path), range(301), range(23))


def test_files_of_10x(tmp_path):
    matrix = csc_array(X.T)
    with h5py.File(tmp_path / "cells.h5", "w") as file:
        group = file.create_group("matrix")
        for name in ("data", "indices", "indptr"):
            group[name] = getattr(matrix, name)
        group["shape"], group["barcodes"] = matrix.shape, np.array(CELLS, "S")
        features = group.create_group("features")
        features["id"], features["name"] = np.array(GENES, "S"), np.array(GENES, "S")
        features["feature_type"] = np.array([*["Gene Expression"] * 20, *["Antibody Capture"] * 3], "S20")
    with pytest.warns(bayesnmf.DataWarning, match="3 features of other types than genes"):
        same(opened(tmp_path / "cells.h5", tmp_path), features=GENES[:20], values=X[:, :20])


def test_a_store_is_found_again_and_written_again_for_another_file(tmp_path):
    path = tmp_path / "cells.h5ad"
    annotated().write_h5ad(path)
    first = opened(path, tmp_path).store
    written = (first.folder / "about.json").stat().st_mtime_ns
    again = opened(path, tmp_path).store
    assert (again.folder, (again.folder / "about.json").stat().st_mtime_ns) == (first.folder, written)
    same(open_counts(first.folder, "float64"))  # the folder itself is a source
    annotated(2 * X).write_h5ad(path)
    other = opened(path, tmp_path).store
    assert other.folder != first.folder
    assert other.fingerprint != first.fingerprint
    assert sorted(each.name for each in (tmp_path / "scratch").iterdir()) == sorted(
        [first.folder.name, other.folder.name]
    )


@pytest.mark.parametrize("nonzeros", [1, 100, 777, 10**9])
def test_blocks_cover_all_rows_once_and_have_two_rows_or_more(tmp_path, nonzeros):
    annotated().write_h5ad(tmp_path / "cells.h5ad")
    counts = opened(tmp_path / "cells.h5ad", tmp_path, nonzeros=nonzeros)
    assert counts.bounds[0] == 0
    assert counts.bounds[-1] == 301
    assert np.diff(counts.bounds).min() >= 2
    parts = [counts.block(each.start, each.stop) for each in counts.blocks]
    np.testing.assert_array_equal(np.vstack([each.matrix.toarray() for each in parts]), X)
    assert [name for each in parts for name in each.row_names] == CELLS


def test_chosen_rows_and_types(tmp_path):
    annotated().write_h5ad(tmp_path / "cells.h5ad")
    counts = opened(tmp_path / "cells.h5ad", tmp_path)
    chosen = counts.rows([5, 3, 17])
    np.testing.assert_array_equal(chosen.matrix.toarray(), X[[5, 3, 17]])
    assert list(chosen.row_names) == ["c5", "c3", "c17"]
    assert counts.rows(slice(0, 0)).shape == (0, 23)
    assert counts.as_type("float32").block(0, 5).matrix.dtype == np.float32
    with pytest.raises(AttributeError, match=r"needs counts in memory, but they are on disk \(they have no data\)"):
        _ = counts.matrix.data
    with pytest.raises(AttributeError, match="they are read by blocks"):
        counts.matrix[:, 3]


def test_large_counts_are_written_in_a_wider_type(tmp_path):
    values = X.copy()
    values[300, 0] = 3_000_000_000  # in the last block, after all others were written as uint16
    annotated(values.astype(np.float64)).write_h5ad(tmp_path / "cells.h5ad")
    adata = anndata.AnnData(csr_matrix(values.astype(np.float64)), pd.DataFrame(index=CELLS), pd.DataFrame(index=GENES))
    adata.write_h5ad(tmp_path / "cells.h5ad")
    counts = opened(tmp_path / "cells.h5ad", tmp_path)
    assert counts.store.arrays["data"].dtype == np.uint32
    same(counts, values=values)


def test_unsorted_and_repeated_entries_are_put_in_order(tmp_path):
    with h5py.File(tmp_path / "cells.h5", "w") as file:
        group = file.create_group("matrix")
        group["data"], group["indices"] = np.array([1, 2, 3, 0, 5]), np.array([2, 0, 2, 1, 1])
        group["indptr"], group["shape"] = np.array([0, 3, 5]), np.array([3, 2])
        group["barcodes"], group["genes"], group["gene_names"] = (
            np.array(each, "S") for each in (["a", "b"], ["x", "y", "z"], ["x", "y", "z"])
        )
    same(opened(tmp_path / "cells.h5", tmp_path), ["a", "b"], ["x", "y", "z"], np.array([[2, 0, 4], [0, 5, 0]]))


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (-1.0, r"rows .* of .*cells\.h5ad must be nonnegative: found -1\.0"),
        (np.nan, r"rows .* of .*cells\.h5ad must be finite"),
        (1.5, r"counts on disk must be whole numbers up to 4294967295: found 1\.5 at row \d+, column 4 of rows"),
        (2.0**40, "must be whole numbers up to 4294967295"),
    ],
)
def test_what_is_no_count_is_refused_wherever_it_is_and_nothing_is_left(tmp_path, monkeypatch, value, rule):
    monkeypatch.setattr("bayesnmf.data.blocks.sources.NONZEROS", 50)  # some 50 blocks
    values = X.astype(np.float64)
    values[290, 4] = value
    adata = anndata.AnnData(csr_matrix(values), pd.DataFrame(index=CELLS), pd.DataFrame(index=GENES))
    adata.write_h5ad(tmp_path / "cells.h5ad")
    with pytest.raises(ValueError, match=rule):
        opened(tmp_path / "cells.h5ad", tmp_path)
    assert not list((tmp_path / "scratch").iterdir())


@pytest.mark.parametrize(
    ("name", "about"),
    [
        (".zarray", {"compressor": {"id": "pickle", "protocol": 5}}),
        (".zarray", {"filters": [{"id": "vlen-utf8"}, {"id": "pickle"}]}),
        ("zarr.json", {"codecs": [{"name": "bytes"}, {"name": "numcodecs.pickle", "configuration": {}}]}),
        (".zmetadata", {"metadata": {"obs/names/.zarray": {"filters": [{"id": "pickle"}]}}}),
    ],
)
def test_arrays_of_pickles_are_refused(tmp_path, name, about):
    """In a Zarr store made by somebody else, since some versions of zarr run them."""
    path = tmp_path / "cells.zarr" / "obs" / "names"
    path.mkdir(parents=True)
    (path / name).write_text(json.dumps(about).replace("pickle", "p\\u0069ckle"))
    with pytest.raises(ValueError, match=r"names.\.?z.* must name no codec that unpickles"):
        opened(tmp_path / "cells.zarr", tmp_path)


def test_other_sources_are_refused(tmp_path):
    adata = annotated()
    adata.X = csc_matrix(adata.X)
    adata.write_h5ad(tmp_path / "columns.h5ad")
    (tmp_path / "folder").mkdir()
    for source, error, rule in (
        (tmp_path / "columns.h5ad", ValueError, r"columns\.h5ad is stored by columns .*X\.tocsr\(\)"),
        (tmp_path / "nowhere.h5ad", FileNotFoundError, "there is no .*nowhere.h5ad"),
        (tmp_path / "folder", ValueError, r"must end in one of \.h5ad, \.zarr, \.h5 to be read by rows"),
    ):
        with pytest.raises(error, match=rule):
            opened(source, tmp_path)
    annotated().write_h5ad(tmp_path / "cells.h5ad")
    with pytest.raises(ValueError, match=r"layer must be one of the layers of .*found 'raw'; there are none"):
        opened(tmp_path / "cells.h5ad", tmp_path, layer="raw")
    with pytest.raises(ValueError, match="nonzeros must be at least 1"):
        Blocks("cells.h5ad", nonzeros=0)


def test_no_room_is_found_before_the_work(tmp_path, monkeypatch):
    annotated().write_h5ad(tmp_path / "cells.h5ad")
    full = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(checks.shutil, "disk_usage", lambda _: full)
    with pytest.raises(ValueError, match=r"scratch needs 0\.0 GB for .*cells\.h5ad: .* has 0\.0 GB; name a folder"):
        opened(tmp_path / "cells.h5ad", tmp_path)
    assert not list((tmp_path / "scratch").iterdir())


def test_stores_that_were_changed_are_refused(tmp_path):
    annotated().write_h5ad(tmp_path / "cells.h5ad")
    counts = opened(tmp_path / "cells.h5ad", tmp_path)
    about = counts.store.folder / "about.json"
    os.utime(counts.store.folder / "data.npy", ns=(0, 0))
    with pytest.raises(ValueError, match=r"data\.npy was changed, damaged or removed after it was written"):
        counts.store.check()
    same(opened(tmp_path / "cells.h5ad", tmp_path))  # compared again, and found to be as it was
    text = json.loads(about.read_text())
    for version in (2, 99):
        about.write_text(json.dumps({**text, "version": version}))
        with pytest.raises(ValueError, match=f"must be of version 3: found {version}; write it again"):
            Store.open(counts.store.folder)
    about.write_text(json.dumps({**text, "total": text["total"] + 1}))
    with pytest.raises(ValueError, match=r"about\.json was changed"):
        Store.open(counts.store.folder)
    for wrong in ({"shape": [301, 22]}, {"nnz": 1}, {"arrays_written": {}}, {"more": 1}):
        changed = {**text, **wrong}
        del changed["version"], changed["digest"]
        about.write_text(json.dumps({**changed, "version": 3, "digest": _digest(changed)}))
        with pytest.raises(ValueError, match=r"about\.json was changed"):
            Store.open(counts.store.folder)
    for damaged in ("{", "[]", '"a"', "3", ""):
        about.write_text(damaged)
        with pytest.raises(ValueError, match="must be a folder of counts that bayesnmf has written"):
            Store.open(counts.store.folder)


NAMES = ("about.json", *(f"{name}.npy" for name in ("data", "features", "feature_totals", "indices", "indptr")))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Return the folder of a store."""
    scratch = tmp_path_factory.mktemp("store")
    annotated().write_h5ad(scratch / "cells.h5ad")
    return opened(scratch / "cells.h5ad", scratch).store.folder


@pytest.fixture
def copied(written, tmp_path):
    """Return a copy of the store, whose files have other times: that it is the same, its digests say."""
    return shutil.copytree(written, tmp_path / "copy", copy_function=shutil.copyfile)


def as_source(folder):
    return open_counts(Blocks(folder, nonzeros=500, scratch=folder.parent), "float64")


@pytest.mark.parametrize("name", [*NAMES, "row_totals.npy", "rows.npy"])
def test_every_bit_of_a_store_counts(copied, name):
    """In the header and in the numbers; cut off; made longer where that says something else; and without the file."""
    same(as_source(copied))
    path, rng = copied / name, np.random.default_rng(0)
    content = path.read_bytes()
    begin = 0 if name == "about.json" else RawArray.of_npy(path).offset
    places = [0, begin, len(content) - 1, *rng.integers(0, begin + 1, 3), *rng.integers(begin, len(content), 3)]
    damaged = [content[:at] + bytes([content[at] ^ 1 << int(rng.integers(8))]) + content[at + 1 :] for at in places]
    for changed in [*damaged, content[:-1], content[: begin // 2], b"", None]:
        if changed is None:
            path.unlink()
        else:
            path.write_bytes(changed)
        with suppress(ValueError):  # not raised for a bit of the padding of a header
            same(as_source(copied))
            assert changed in damaged[:5]


def test_files_of_two_stores_cannot_be_swapped(copied, tmp_path):
    annotated(X[::-1]).write_h5ad(tmp_path / "other.h5ad")
    other = opened(tmp_path / "other.h5ad", tmp_path).store.folder
    for name in ("data.npy", "rows.npy", "row_totals.npy", "about.json"):
        kept = (copied / name).read_bytes()
        shutil.copyfile(other / name, copied / name)
        if (copied / name).read_bytes() != kept:
            with pytest.raises(ValueError, match="was changed, damaged or removed"):
                as_source(copied)
        (copied / name).write_bytes(kept)


@pytest.mark.parametrize(("name", "value"), [("indices", 23), ("indices", -1), ("indptr", 2**40), ("indptr", -5)])
def test_places_out_of_bounds_never_reach_a_kernel(copied, name, value):
    """Not even if they were written after all files were compared and before their stamps were looked at again."""
    counts = as_source(copied)
    path = copied / f"{name}.npy"
    array = np.load(path)
    array[150] = value
    stat = path.stat()
    with path.open("r+b") as file:
        file.seek(RawArray.of_npy(path).offset)
        file.write(array.tobytes())
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with pytest.raises(ValueError, match=rf"{name}\.npy was changed"):
        bayesnmf.fit(counts, rank=2, method="map", options=bayesnmf.MAP(start="random", max_iter=2, threads=1))


def test_files_that_change_while_a_fit_runs_are_named(copied):
    counts = as_source(copied)

    def damage(label, done, *_):
        if done == 2:
            os.utime(copied / "row_totals.npy", ns=(0, 0))

    with pytest.raises(ValueError, match=r"row_totals\.npy was changed"):
        bayesnmf.fit(counts, rank=2, options=bayesnmf.VI(start="random", max_iter=9, threads=1), progress=damage)


def test_a_fingerprint_is_of_every_count_and_its_place(tmp_path, monkeypatch):
    """Counts with equal sums of rows and of features are others; equal counts are equal in blocks of any size."""
    one, two = X.copy(), X.copy()
    one[:2, :2], two[:2, :2] = [[1, 0], [0, 1]], [[0, 1], [1, 0]]
    found = {}
    for name, values in (("one", one), ("two", two), ("again", one)):
        if name == "again":
            monkeypatch.setattr("bayesnmf.data.blocks.sources.NONZEROS", 50)
        annotated(values).write_h5ad(tmp_path / f"{name}.h5ad")
        found[name] = opened(tmp_path / f"{name}.h5ad", tmp_path).store
    np.testing.assert_array_equal(found["one"].feature_totals, found["two"].feature_totals)
    np.testing.assert_array_equal(found["one"].row_totals(0, 301), found["two"].row_totals(0, 301))
    assert found["one"].fingerprint == found["again"].fingerprint != found["two"].fingerprint


@pytest.mark.filterwarnings("ignore:vi did not converge:bayesnmf.ConvergenceWarning")
def test_a_checkpoint_does_not_take_counts_with_equal_sums_for_its_own(tmp_path):
    one, two = X.copy(), X.copy()
    one[:2, :2], two[:2, :2] = [[1, 0], [0, 1]], [[0, 1], [1, 0]]
    more = {"rank": 2, "seed": 1, "options": bayesnmf.VI(start="random", max_iter=2), "checkpoint": tmp_path / "run"}
    for values, refused in ((one, False), (two, True)):
        annotated(values).write_h5ad(tmp_path / f"{refused}.h5ad")
        counts = opened(tmp_path / f"{refused}.h5ad", tmp_path)
        if refused:
            with pytest.raises(ValueError, match="differs in counts"):
                bayesnmf.fit(counts, **more)
        else:
            bayesnmf.fit(counts, **more)


FORKING = """
import os, sys
from pathlib import Path
from bayesnmf.data.blocks.raw import TemporaryFolder
folder = TemporaryFolder(Path(sys.argv[1]), "rows-")
(folder.path / "0.rows").touch()
for ending in ("exit", "collected"):
    process = os.fork()
    if not process:
        if ending == "exit":
            sys.exit()
        del folder
        os._exit(0)
    os.waitpid(process, 0)
print(*sorted(each.name for each in folder.path.iterdir()))
del folder
print(*Path(sys.argv[1]).iterdir())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked on POSIX systems")
def test_a_forked_process_leaves_the_folders_of_its_parent(tmp_path):
    printed = subprocess.run([sys.executable, "-c", FORKING, tmp_path], capture_output=True, text=True, check=True)
    left, after = printed.stdout.split("\n")[:2]
    assert left.split() == sorted(["0.rows", raw.LOCK])
    assert not after


def test_stores_are_private(tmp_path):
    annotated().write_h5ad(tmp_path / "cells.h5ad")
    folder = opened(tmp_path / "cells.h5ad", tmp_path).store.folder
    assert [stat.S_IMODE(each.stat().st_mode) for each in (folder, folder.parent)] == [0o700, 0o700]


def test_paths_are_read_into_memory_if_there_is_room(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    annotated().write_h5ad(tmp_path / "cells.h5ad")
    counts = open_counts(tmp_path / "cells.h5ad", "float32")
    assert counts.in_memory
    assert counts.dtype == np.float32
    np.testing.assert_array_equal(counts.matrix.toarray(), X)
    assert list(counts.row_names) == CELLS
    pd.DataFrame(X, CELLS, GENES).to_csv(tmp_path / "cells.csv")
    np.testing.assert_array_equal(open_counts(str(tmp_path / "cells.csv"), "float64").matrix.toarray(), X)
    assert not (tmp_path / "cache").exists()
    monkeypatch.setattr(opening, "_memory", lambda: 1000)
    same(open_counts(tmp_path / "cells.h5ad", "float64"))
    same(open_counts(anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r"), "float64"))
    assert list((tmp_path / "cache" / "bayesnmf").iterdir())


def test_raw_arrays_grow_and_widen(tmp_path):
    with NpyWriter(tmp_path / "a.npy", np.uint16) as writer:
        for first in range(0, 70_000, 7000):
            writer.append(np.arange(first, first + 7000) % 65_536)
        wider = writer.widened(np.uint32)
        wider.append(np.array([4_000_000_000]))
        wider.close()
    expected = np.append(np.arange(70_000) % 65_536, 4_000_000_000)
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), expected)
    read = RawArray.of_npy(tmp_path / "a.npy")
    np.testing.assert_array_equal(read.read(69_998, 70_001), expected[-3:])
    assert read.read(5, 5).shape == (0,)
    with Path(tmp_path / "a.npy").open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(OSError, match="ends too early"):
        read.read(0, 70_000)


KILLED = """
import os, signal, sys
from pathlib import Path
import numpy as np
from bayesnmf.data.blocks.raw import NpyWriter, TemporaryFolder
from bayesnmf.data.blocks.opening import Blocks, open_counts

scratch = Path(sys.argv[1])
keep = TemporaryFolder(scratch, "rows-")

def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)

NpyWriter.close = killed
open_counts(Blocks(sys.argv[2], scratch=scratch), "float64")
"""


@pytest.mark.skipif(os.name == "nt", reason="needs locks that end with their process")
def test_folders_that_no_process_holds_are_removed(tmp_path):
    """Of which the lock is left, and free; one without a lock, or with that of another machine, may be in use."""
    for name, lock in (("ended", raw.LOCK), ("bare", "data"), ("elsewhere", "held-by-another machine")):
        (tmp_path / f"rows-{name}").mkdir()
        (tmp_path / f"rows-{name}" / lock).touch()
    live = TemporaryFolder(tmp_path, "rows-")
    again = TemporaryFolder(tmp_path, "rows-")
    assert set(rows_of(tmp_path)) == {tmp_path / "rows-bare", tmp_path / "rows-elsewhere", live.path, again.path}


@pytest.mark.long
@pytest.mark.skipif(os.name == "nt", reason="needs locks that end with their process")
def test_the_next_process_removes_what_a_killed_one_has_left(tmp_path):
    scratch, path = tmp_path / "scratch", tmp_path / "cells.h5ad"
    scratch.mkdir()
    annotated().write_h5ad(path)
    done = subprocess.run([sys.executable, "-c", KILLED, str(scratch), str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert sorted(each.name[:5] for each in scratch.iterdir()) == [".coun", "rows-"]
    other = scratch / "rows-elsewhere"
    other.mkdir()
    (other / "held-by-another machine").touch()  # whether that one still runs cannot be known here
    live = TemporaryFolder(scratch, "rows-")
    again = TemporaryFolder(scratch, "rows-")
    assert set(rows_of(scratch)) == {other, live.path, again.path}
    same(opened(path, tmp_path))
    stores = [each for each in scratch.iterdir() if each not in rows_of(scratch)]
    assert [each.name[:7] for each in stores] == ["counts-"]
    assert not list(stores[0].glob("*held*"))
    del live, again
    assert rows_of(scratch) == [other]


def rows_of(scratch):
    return list(scratch.glob("rows-*"))


@pytest.mark.skipif(os.name == "nt", reason="needs locks that end with their process")
def test_without_locks_nothing_is_marked_and_nothing_removed(tmp_path, monkeypatch):
    """As on some network disks: a folder without a mark could be in use."""

    def refused(path):
        path.touch()
        raise OSError("Function not implemented")

    (tmp_path / "rows-left").mkdir()
    monkeypatch.setattr(raw, "take_lock", refused)
    folders = [TemporaryFolder(tmp_path, "rows-") for _ in range(2)]
    assert len(rows_of(tmp_path)) == 3
    assert not any(list(each.iterdir()) for each in rows_of(tmp_path))
    del folders
    assert [each.name for each in rows_of(tmp_path)] == ["rows-left"]


def test_own_folders_are_kept_even_if_their_locks_can_be_taken_again(tmp_path, monkeypatch):
    """As a process may on a network disk."""
    monkeypatch.setattr(raw, "_is_free", lambda _: True)
    folders = [TemporaryFolder(tmp_path, "rows-") for _ in range(2)]
    assert len(rows_of(tmp_path)) == 2
    del folders
    assert not rows_of(tmp_path)
