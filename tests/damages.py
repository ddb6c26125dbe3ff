"""Damage files before a call, at random, and say what the call makes of them.

    python tests/damages.py --number 2000 --seed 0

A damage is a flipped bit, an overwritten piece, a cut, an empty or missing file, two files exchanged, a file of another
fit of the same kind, or a file by somebody who wants their code to run. Each call runs in a forked process, so that one
that kills the interpreter is seen. The outcome is "refused" (an error that names the rule, and no other), "same"
(numbers and names are those of undamaged files), or one of `BAD`, at which the script ends with status 1. What tools of
others write has no checksum unless it is compressed: of these, the tables here are compressed.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import pickle
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.io import mmwrite
from scipy.sparse import csr_matrix

import bayesnmf
from bayesnmf import Blocks, Checkpoint
from bayesnmf.data.blocks.opening import open_counts
from bayesnmf.inference.checkpoints import slots

SECONDS = 120  # of one call
BAD = ("other numbers", "crash", "code ran", "unclear error", "too long")
X = bayesnmf.simulate(size=(24, 12), rank=3, totals=80, seed=1).counts.matrix.toarray().astype(int)
OTHER = X[::-1].copy()
EM = bayesnmf.MAP(algorithm="em", max_iter=9, restarts=2, start="random", threads=1)
VI = bayesnmf.VI(algorithm="coordinate", max_iter=8, start="random", threads=1)
GIBBS = bayesnmf.Gibbs(algorithm="allocations", start="random", chains=1, warmup=2, draws=4, threads=1, keep="moments")


class Payload:
    """Unpickled, it leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


class Kind(NamedTuple):
    """Files of one kind: those that are damaged, others of the same names, and the call that reads them.

    A whole file of another fit, or a table in place of another, is read as what it is: there are no others then.
    """

    one: Path
    two: Path | None
    call: Callable[[Path], str]


def digest(*things: Any) -> str:
    """Return a digest of arrays, names and words."""
    found = hashlib.sha256()
    for thing in things:
        array = np.asarray(thing)
        found.update(
            repr(array.tolist()).encode() if array.dtype.kind in "OU" else np.ascontiguousarray(array).tobytes()
        )
    return found.hexdigest()


def of_fit(fit: Any) -> str:
    """Return a digest of what a fit says."""
    estimate = vars(fit.estimate)
    sides = [estimate[name] for name in ("loadings", "components") if name in estimate]
    arrays = [part for each in sides for part in (each.parameters.values() if hasattr(each, "parameters") else [each])]
    names = fit.counts.row_names, fit.counts.feature_names
    return digest(fit.loadings, fit.components, fit.trace, fit.seed, *arrays, *names, fit.status.reason)


def of_counts(counts: Any) -> str:
    """Return a digest of counts in memory."""
    return digest(counts.matrix.toarray(), counts.row_names, counts.feature_names)


def make_store(folder: Path, counts: Any) -> Path:
    """Write counts to a folder as `Blocks` does."""
    import anndata
    import pandas as pd

    folder.mkdir()
    names = pd.DataFrame(index=[f"cell {i}" for i in range(len(counts))])
    genes = pd.DataFrame(index=[f"gene {j}" for j in range(counts.shape[1])])
    anndata.AnnData(csr_matrix(counts.astype(np.float32)), names, genes).write_h5ad(folder / "cells.h5ad")
    store = open_counts(Blocks(folder / "cells.h5ad", scratch=folder), "float64").store  # type: ignore[attr-defined]
    return store.folder


def on_disk(folder: Path) -> Any:
    return Blocks(folder, nonzeros=60, scratch=folder.parent)


def fitted(counts: Any, options: Any, checkpoint: Any = None) -> Any:
    method = {"MAP": "map", "VI": "vi", "Gibbs": "gibbs"}[type(options).__name__]
    return bayesnmf.fit(counts, "gamma_poisson", 3, method, seed=5, options=options, checkpoint=checkpoint)


class Ended(BaseException):
    """Ends a fit as a signal would."""


def end_early(counts: Any, options: Any, folder: Path, steps: int) -> None:
    """Run a fit with snapshots at every step, and end it."""
    left, plain = [steps], slots.Slot.due

    def due(slot: Any) -> bool:
        left[0] -= 1
        if left[0] < 0:
            raise Ended
        return plain(slot)

    slots.Slot.due = due  # type: ignore[method-assign]
    try:
        fitted(counts, options, Checkpoint(folder, seconds=1e-9))
    except Ended:
        return
    finally:
        slots.Slot.due = plain  # type: ignore[method-assign]
    raise SystemExit(f"the fit in {folder} had ended too early")


def make_tenx(folder: Path, counts: Any) -> Path:
    """Write a compressed folder as Cell Ranger does."""
    folder.mkdir()
    mmwrite(folder / "matrix.mtx", csr_matrix(counts.T), field="integer")
    (folder / "barcodes.tsv").write_text("".join(f"cell{i}\n" for i in range(len(counts))))
    (folder / "features.tsv").write_text("".join(f"id{j}\tgene{j}\tGene Expression\n" for j in range(counts.shape[1])))
    for path in list(folder.iterdir()):
        Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
        path.unlink()
    return folder


def store(folder: Path) -> Kind:
    stores = [make_store(folder / f"store{i}", counts) for i, counts in enumerate((X, OTHER))]
    return Kind(*stores, lambda path: of_fit(fitted(on_disk(path), VI)))


def saved(options: Any, suffix: str) -> Callable[[Path], Kind]:
    def make(folder: Path) -> Kind:
        places = [folder / f"{i}-{type(options).__name__}{suffix}" for i in range(2)]
        for counts, place in zip((X, OTHER), places, strict=True):
            fitted(counts, options).save(place)
        return Kind(*places, lambda path: of_fit(bayesnmf.load(path)))

    return make


def checkpoint(options: Any, steps: int | None) -> Callable[[Path], Kind]:
    """Return a maker of checkpoints, of fits that had made some steps, or that have ended."""

    def make(folder: Path) -> Kind:
        places = [folder / f"checkpoint-{type(options).__name__}-{steps}-{i}" for i in range(2)]
        for counts, place in zip((X, OTHER), places, strict=True):
            if steps is None:
                fitted(counts, options, place)
            else:
                end_early(counts, options, place, steps)
        return Kind(*places, lambda path: of_fit(fitted(X, options, path)))

    return make


def checkpoint_on_disk(folder: Path) -> Kind:
    stores = [make_store(folder / f"store-of-checkpoint{i}", counts) for i, counts in enumerate((X, OTHER))]
    places = [folder / f"checkpoint-disk-{i}" for i in range(2)]
    for each, place in zip(stores, places, strict=True):
        end_early(on_disk(each), GIBBS, place, 4)
    return Kind(*places, lambda path: of_fit(fitted(on_disk(stores[0]), GIBBS, path)))


def tenx(folder: Path) -> Kind:
    return Kind(make_tenx(folder / "tenx", X), None, lambda path: of_counts(bayesnmf.read_counts(path)))


MAKERS: dict[str, Callable[[Path], Kind]] = {
    "store": store,
    "fit.nc": saved(VI, ".nc"),
    "fit of draws.nc": saved(GIBBS, ".nc"),
    "fit.zarr": saved(VI, ".zarr"),
    "checkpoint, map": checkpoint(EM, 12),
    "checkpoint, gibbs": checkpoint(GIBBS, 4),
    "checkpoint, ended": checkpoint(VI, None),
    "checkpoint, on disk": checkpoint_on_disk,
    "10x folder": tenx,
}


# --- damages --------------------------------------------------------------------------------------------


def _flipped(content: bytearray, rng: np.random.Generator) -> None:
    content[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))


def _overwritten(content: bytearray, rng: np.random.Generator) -> None:
    first, length = int(rng.integers(len(content))), int(rng.integers(1, 64))
    piece = content[first : first + length]
    content[first : first + length] = bytes(len(piece)) if rng.random() < 0.5 else rng.bytes(len(piece))


def _cut(content: bytearray, rng: np.random.Generator) -> None:
    del content[int(rng.integers(len(content))) :]


def _longer(content: bytearray, rng: np.random.Generator) -> None:
    content += rng.bytes(int(rng.integers(1, 64)))


IN_PLACE = {"bit": _flipped, "piece": _overwritten, "cut": _cut, "longer": _longer}
DAMAGES = ("bit", "bit", "bit", "piece", "cut", "longer", "empty", "missing", "exchanged", "pickle", "folder")


def damage(kind: Kind, place: Path, mark: Path, rng: np.random.Generator) -> str:
    """Copy the files of a kind to a place and damage one of them; return how."""
    if kind.one.is_file():
        shutil.copyfile(kind.one, place)
        files = [place]
    else:
        shutil.copytree(kind.one, place)
        files = sorted(path for path in place.rglob("*") if path.is_file() and path.name != "lock")
    target = files[int(rng.integers(len(files)))]
    theirs = None if kind.two is None or kind.one.is_file() else kind.two / target.relative_to(place)
    how = str(rng.choice(DAMAGES if theirs is None else (*DAMAGES, "of another")))
    content = bytearray(target.read_bytes())
    if how in IN_PLACE and content:
        IN_PLACE[how](content, rng)
        target.write_bytes(content)
    elif how in ("missing", "folder"):
        target.unlink()
        if how == "folder":
            target.mkdir()
    elif how == "pickle":
        target.write_bytes(pickle.dumps(Payload(mark)))
    elif how == "exchanged" and len(files) > 1:
        other = files[int(rng.integers(len(files)))]
        target.write_bytes(other.read_bytes())
        other.write_bytes(content)
    elif how == "of another" and theirs is not None and theirs.is_file():
        target.write_bytes(theirs.read_bytes())
    else:
        target.write_bytes(b"")
    return f"{how}: {target.relative_to(place) if target != place else place.name}"


def outcome(kind: Kind, place: Path, expected: set[str]) -> str:
    """Return what the call makes of the files: "same", "refused" or one of `BAD`."""
    try:
        found = kind.call(place)
    except (ValueError, OSError) as error:
        return "refused" if str(error).strip() else "unclear error"
    except Exception:
        traceback.print_exc()
        return "unclear error"
    return "same" if found in expected else "other numbers"


def forked(kind: Kind, place: Path, mark: Path, expected: set[str]) -> str:
    """Return the outcome of a call in a process of its own."""
    ours, theirs = os.pipe()
    process = os.fork()
    if not process:
        signal.alarm(SECONDS)
        warnings.simplefilter("ignore")
        os.write(theirs, outcome(kind, place, expected).encode())
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as read:
        found = read.read()
    status = os.waitpid(process, 0)[1]
    if mark.exists():
        return "code ran"
    if os.WIFSIGNALED(status):
        return "too long" if os.WTERMSIG(status) == signal.SIGALRM else "crash"
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=2000, help="damages in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="kinds whose names contain this")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    table: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kinds = {kind: make(folder) for kind, make in MAKERS.items() if given.only in kind}
        expected = {kind: undamaged(each, folder) for kind, each in kinds.items()}
        for number in range(given.number):
            kind = list(kinds)[number % len(kinds)]
            rng = np.random.default_rng([given.seed, number])
            place, mark = folder / f"damaged{kinds[kind].one.suffix}", folder / "mark"
            how = damage(kinds[kind], place, mark, rng)
            found = forked(kinds[kind], place, mark, expected[kind])
            table.setdefault(kind, Counter())[found] += 1
            if found in BAD:
                print(f"{number}: {kind}, {how}: {found}", flush=True)
            for path in (place, mark):
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    print_table(table)
    return int(any(counter[bad] for counter in table.values() for bad in BAD))


def undamaged(kind: Kind, folder: Path) -> set[str]:
    """Return the digest of what the call makes of undamaged files."""
    place = Path(tempfile.mkdtemp(dir=folder)) / f"whole{kind.one.suffix}"
    if kind.one.is_file():
        shutil.copyfile(kind.one, place)
    else:
        shutil.copytree(kind.one, place)
    return {kind.call(place)}


def print_table(table: dict[str, Counter[str]]) -> None:
    columns = ("refused", "same", *BAD)
    print(f"{'':22}" + "".join(f"{column:>15}" for column in columns))
    for kind, counter in table.items():
        print(f"{kind:22}" + "".join(f"{counter[column]:>15}" for column in columns))


if __name__ == "__main__":
    sys.exit(main())
