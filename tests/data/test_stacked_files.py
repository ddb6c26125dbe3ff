"""Counts of several files, one below the other: their rows, their features by name, and what is refused."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix

import bayesnmf
from bayesnmf import Blocks
from bayesnmf.data.blocks.opening import open_counts

anndata = pytest.importorskip("anndata")
pytestmark = pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated:DeprecationWarning")

FEATURES = np.array([f"g{j}" for j in range(9)])
EDGES = (0, 14, 15, 40)


def counts() -> np.ndarray:
    return np.random.default_rng(3).poisson(1.5, (EDGES[-1], len(FEATURES)))


def write(path: Path, values: np.ndarray, features: Any = FEATURES, first: int = 0) -> Path:
    names = [f"c{i}" for i in range(first, first + len(values))]
    path.parent.mkdir(exist_ok=True)
    matrix = csr_matrix(values.astype(np.float32))
    anndata.AnnData(matrix, pd.DataFrame(index=names), pd.DataFrame(index=list(map(str, features)))).write_h5ad(path)
    return path


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    """Three runs, whose features are in other orders, and a barcode comes in each."""
    found, rng = [], np.random.default_rng(4)
    for run, (first, last) in enumerate(pairwise(EDGES)):
        order = rng.permutation(len(FEATURES)) if run else np.arange(len(FEATURES))
        found.append(write(tmp_path / f"run{run}" / "cells.h5ad", counts()[first:last][:, order], FEATURES[order]))
    return found


def scratch(path: Path) -> dict[str, Any]:
    return {"scratch": path / "scratch"}


def test_rows_are_below_each_other_and_features_found_by_name(paths: list[Path]) -> None:
    found = open_counts(paths, "float64")
    assert np.array_equal(found.dense, counts())
    assert list(found.feature_names) == list(FEATURES)
    assert list(found.row_names[[0, 14, 15, 39]]) == ["run0:c0", "run1:c0", "run2:c0", "run2:c24"]


def test_names_that_do_not_repeat_stay(tmp_path: Path) -> None:
    made = [write(tmp_path / f"{first}.h5ad", counts()[first : first + 20], first=first) for first in (0, 20)]
    assert list(open_counts(made, "float64").row_names) == [f"c{i}" for i in range(40)]


def test_files_of_one_folder_are_told_by_their_names(tmp_path: Path) -> None:
    made = [write(tmp_path / f"{name}.h5ad", counts()[:5]) for name in ("ann", "bob")]
    assert list(open_counts(made, "float64").row_names[[0, 5]]) == ["ann:c0", "bob:c0"]


def test_a_fit_of_several_files_is_that_of_one(paths: list[Path], tmp_path: Path) -> None:
    """On disk to the bit, with several blocks of rows a file and a file of a single row."""
    whole = write(tmp_path / "whole.h5ad", counts())
    one, two = (
        bayesnmf.fit(Blocks(source, nonzeros=60, **scratch(tmp_path)), rank=2, seed=0) for source in (whole, paths)
    )
    assert np.array_equal(one.loadings, two.loadings)
    assert np.array_equal(one.components, two.components)
    assert one.objective == two.objective
    assert np.array_equal(bayesnmf.fit(paths, rank=2, seed=0).loadings, bayesnmf.fit(whole, rank=2, seed=0).loadings)


def test_counts_that_were_written_are_found_again_until_a_file_changes(paths: list[Path], tmp_path: Path) -> None:
    blocks = Blocks(paths, **scratch(tmp_path))
    first, again = (open_counts(blocks, "float64") for _ in range(2))
    assert first.store.folder == again.store.folder
    write(paths[1], 7 * counts()[14:15] + 1)
    changed = open_counts(blocks, "float64")
    assert changed.store.folder != first.store.folder
    assert changed.total != first.total


def test_other_kinds_of_files_go_with_them(paths: list[Path], tmp_path: Path) -> None:
    table = pd.DataFrame(counts()[:3], [f"t{i}" for i in range(3)], FEATURES)
    table.to_csv(tmp_path / "table.csv")
    found = open_counts([paths[0], tmp_path / "table.csv"], "float64")
    assert np.array_equal(found.dense, np.concatenate([counts()[:14], counts()[:3]]))


def test_features_that_a_file_lacks_are_refused_or_left_out(paths: list[Path], tmp_path: Path) -> None:
    fewer = write(tmp_path / "fewer.h5ad", counts()[:6, 2:], FEATURES[2:])
    with pytest.raises(ValueError, match=r"fewer\.h5ad lacks 'g0' and 1 more, unlike .*cells\.h5ad.*join='inner'"):
        open_counts([paths[0], fewer], "float64")
    with pytest.raises(ValueError, match=r"cells\.h5ad has 'g0'"):
        open_counts([fewer, paths[0]], "float64")
    found = open_counts(Blocks([paths[1], fewer], join="inner", **scratch(tmp_path)), "float64")
    expected = np.concatenate([counts()[14:15], counts()[:6]])
    place = [list(FEATURES).index(name) for name in found.feature_names]
    assert set(found.feature_names) == set(FEATURES[2:])
    assert np.array_equal(found.rows(np.arange(7)).dense, expected[:, place])


@pytest.mark.filterwarnings("ignore:Variable names are not unique")
def test_what_is_wrong_is_named(paths: list[Path], tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no .*nowhere\.h5ad"):
        open_counts([paths[0], tmp_path / "nowhere.h5ad"], "float64")
    with pytest.raises(ValueError, match="each file once"):
        open_counts([paths[0], paths[0]], "float64")
    with pytest.raises(ValueError, match="join needs several files"):
        Blocks(paths[0], join="inner")
    with pytest.raises(ValueError, match="join must be one of 'inner'"):
        Blocks(paths, join="outer")  # type: ignore[arg-type]
    other = write(tmp_path / "other.h5ad", counts()[:3], [f"ENSG{j}" for j in range(9)])
    with pytest.raises(ValueError, match="a feature in common"):
        open_counts(Blocks([paths[0], other], join="inner", **scratch(tmp_path)), "float64")
    twice = write(tmp_path / "twice.h5ad", counts()[:3], ["g0", *FEATURES[:-1]])
    with pytest.raises(ValueError, match=r"twice\.h5ad must name each feature once"):
        open_counts([paths[0], twice], "float64")
    half = write(tmp_path / "half.h5ad", counts()[:3] + 0.5)
    with pytest.raises(ValueError, match="whole numbers"):
        open_counts(Blocks([paths[0], half], **scratch(tmp_path)), "float64")
    assert not list((tmp_path / "scratch").glob("counts-*"))
    short = tmp_path / "short.h5ad"
    short.write_bytes(paths[0].read_bytes()[:900])
    with pytest.raises(ValueError, match=r"short\.h5ad must be a whole file .*truncated"):
        open_counts([paths[0], short], "float64")
