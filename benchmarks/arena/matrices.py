"""The matrices of the arena: of the package, of a folder, and simulated anew, each with its task and what is known."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

import bayesnmf
from benchmarks import recommend
from benchmarks.data import ROOT
from benchmarks.data import read as read_named

Array = NDArray[Any]
DATA = Path(os.environ.get("BAYESNMF_DATA", ROOT.parent / "shared" / "data"))
RANKS = {"texts": 20, "cells": 10, "signatures": 8, "refit": 0, "items": 20, "images": 10}
LABELS = ("labels", "subpop", "topic", "group")
ARRAYS = {"loadings": ("usage", "true_loadings"), "components": ("components", "true_components")}


@dataclass(frozen=True)
class Matrix:
    """Counts of one task, with what is known about them.

    Attributes
    ----------
    name, task : str
    counts : csr_array of shape (n, m)
    rank : int
    labels : ndarray of shape (n,) or None
        Known groups of the rows.
    loadings, components : ndarray of shape (n, K) and (K, m), or None
        The truth of counts that were simulated.
    catalogue : ndarray of shape (K, m) or None
        Known components, of a refit.
    kept_out : bool
        Whether its scores are shown only on request.
    """

    name: str
    task: str
    counts: csr_array
    rank: int
    labels: Array | None = None
    loadings: Array | None = None
    components: Array | None = None
    catalogue: Array | None = None
    kept_out: bool = False


def read_matrix(path: Path, task: str | None = None, *, kept_out: bool = False, rows: int | None = None) -> Matrix:
    """Return the matrix of an .npz file, with what a .json file of the same name says about it.

    Parameters
    ----------
    path : Path
        A file of the arrays data, indices, indptr and shape of a CSR matrix, samples in rows; it may have `labels` or
        `group` (n,), the truth as `usage` (n, K) and `components` (K, m), and a `catalogue` (K, m). The .json file may
        have "task", "rank", and labels in "row_meta".
    task : str, optional
        Task, where the file does not say it.
    kept_out : bool
    rows : int, optional
        Number of rows, drawn at random, of a larger matrix.
    """
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    beside = path.with_suffix(".json")
    told = json.loads(beside.read_text()) if beside.exists() else {}
    task = told.get("task", task)
    if task not in RANKS:
        raise SystemExit(
            f'{path} needs a task: write {{"task": "texts"}} into {beside.name}, or one of {sorted(RANKS)}'
        )
    counts = csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=tuple(arrays["shape"]))
    more = {**told.get("row_meta", {}), **{name: arrays[name] for name in LABELS if name in arrays}}
    labels = next((np.asarray(more[name]) for name in LABELS if name in more), None)
    truth = {side: next((arrays[name] for name in names if name in arrays), None) for side, names in ARRAYS.items()}
    known = truth["components"]
    rank = int(told.get("rank", RANKS[task] if known is None else len(known)))
    found = Matrix(path.stem, task, counts.astype(np.float64), rank, labels, **truth,
                   catalogue=arrays.get("catalogue"), kept_out=kept_out)  # fmt: skip
    return found if rows is None or rows >= counts.shape[0] else of_rows(found, rows)


def of_rows(matrix: Matrix, rows: int) -> Matrix:
    """Return some rows, drawn at random, with the features that these have."""
    chosen = np.sort(np.random.default_rng(0).choice(matrix.counts.shape[0], rows, replace=False))
    counts = csr_array(matrix.counts[chosen])
    seen = np.flatnonzero(counts.sum(axis=0))
    labels = None if matrix.labels is None else matrix.labels[chosen]
    return Matrix(f"{matrix.name}, {rows:,} rows", matrix.task, csr_array(counts[:, seen]), matrix.rank, labels)


def catalogue() -> Array | None:
    """Return the signatures of the shared catalogue with sum 1, (79, 96); None where it is not."""
    path = DATA / "COSMIC_v3.3.1_SBS_GRCh38.csv"
    if not path.exists():
        return None
    found = bayesnmf.read_catalogue(path).to_numpy(float)
    return np.asarray(found / found.sum(axis=1, keepdims=True))


def tumours(known: Array, rows: int, seed: int) -> tuple[csr_array, Array]:
    """Return mutations of tumours with 3 to 7 of the signatures, whose types vary by 30 %, and their true numbers.

    Numbers of mutations are log-normal around 2,000. No part is drawn from a model of this library.
    """
    rng = np.random.default_rng(seed)
    shares = np.zeros((rows, len(known)))
    for i in range(rows):
        chosen = rng.choice(len(known), rng.integers(min(3, len(known)), min(8, len(known) + 1)), replace=False)
        shares[i, chosen] = rng.dirichlet(np.full(len(chosen), 2.0))
    loadings = shares * np.exp(rng.normal(np.log(2000), 0.8, rows))[:, None]
    rates = loadings @ known * np.exp(rng.normal(-0.045, 0.3, (rows, known.shape[1])))
    return csr_array(rng.poisson(rates).astype(float)), loadings


def simulated(seed: int) -> list[Matrix]:
    """Return matrices that are drawn anew with a seed."""
    found = [Matrix("simulated users", "items", recommend.simulated(seed), RANKS["items"])]
    texts = read_named("ap_like", 20, seed).matrix
    found.append(Matrix("ap_like", "texts", csr_array(texts, dtype=np.float64), 20))
    known = catalogue()
    if known is not None:
        rng = np.random.default_rng([seed, 1])
        few = known[rng.choice(len(known), 8, replace=False)]
        counts, loadings = tumours(few, 200, seed)
        found.append(Matrix("simulated tumours", "signatures", counts, 8, None, loadings, few))
        counts, loadings = tumours(known, 100, seed + 1)
        found.append(Matrix("simulated tumours, known signatures", "refit", counts, len(known), None, loadings,
                            known, known))  # fmt: skip
    return found


def images() -> list[Matrix]:
    """Return the images that everybody has."""
    digits, swimmer = bayesnmf.datasets.digits(), bayesnmf.datasets.swimmer()
    pairs = (("digits", digits, 10), ("swimmer", swimmer, 17))
    return [Matrix(name, "images", csr_array(c.matrix, dtype=np.float64), rank) for name, c, rank in pairs]


def shared() -> list[Matrix]:
    """Return the matrices of the folder that BAYESNMF_DATA names, as far as they are there."""
    given: list[tuple[str, str, dict[str, Any]]] = [
        ("nips", "texts", {}),
        ("newsgroups", "texts", {"rows": 4000}),
        ("pbmc_facs", "cells", {}),
        ("scsim_k14", "cells", {}),
        ("scsim_k14_b", "cells", {"kept_out": True}),
        ("pcawg_breast_sbs96", "signatures", {}),
    ]
    return [
        read_matrix(DATA / f"{name}.npz", task, **more) for name, task, more in given if (DATA / f"{name}.npz").exists()
    ]


def of_folder(folder: Path, task: str | None) -> list[Matrix]:
    """Return all matrices of a folder; those in a folder with the name of a task have this task."""
    paths = sorted(folder.rglob("*.npz"))
    if not paths:
        raise SystemExit(f"{folder} has no .npz file: put matrices there, as benchmarks/arena/README.md says")
    return [read_matrix(path, path.parent.name if path.parent.name in RANKS else task) for path in paths]
