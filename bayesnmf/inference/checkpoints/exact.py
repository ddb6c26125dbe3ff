"""Turn the state of a loop into bytes and back, so that the loop goes on with the same bits.

Sums depend on the order of the numbers in memory, so arrays keep their order and their padding. The counts are not
written: they are those of the call that reads the bytes. Only classes of this package, NumPy and JAX are read, so that
a file made by someone else cannot run other code.
"""

from __future__ import annotations

import io
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bayesnmf.data.blocks.raw import TemporaryFolder
from bayesnmf.data.counts import Counts
from bayesnmf.inference.blocked.passes import BlockedLoadings
from bayesnmf.kernels.cpu.vectors import is_padded, padded_copy

KNOWN = ("bayesnmf", "numpy", "jax", "jaxlib")
BUILT_IN = frozenset({"slice", "range", "complex", "set", "frozenset", "bytearray"})
ROWS = "rows"


def to_bytes(thing: Any, counts: Counts | None, keep: Callable[[Path], str]) -> bytes:
    """Return the state of a loop as bytes.

    Parameters
    ----------
    thing : object
        Sides, priors, arrays and numbers, in tuples, lists and dicts.
    counts : Counts
        Counts that the state may refer to.
    keep : callable
        Function that keeps a folder of loadings and returns the name under which it is found again.
    """
    file = io.BytesIO()
    _Writer(file, counts, keep).dump(thing)
    return file.getvalue()


def from_bytes(content: bytes, counts: Counts | None, kept: Callable[[str], Path]) -> Any:
    """Return the state of a loop that `to_bytes` wrote; `kept` returns the folder of loadings of a name."""
    return _Reader(io.BytesIO(content), counts, kept).load()


def link_files(source: Path, target: Path) -> None:
    """Give all files of a folder, which are never changed, a second place; copy them to another file system."""
    for file in source.iterdir():
        try:
            os.link(file, target / file.name)
        except OSError:
            shutil.copyfile(file, target / file.name)


def _padded_again(values: Any, component_axis: int) -> Any:
    return padded_copy(values, component_axis)


class _Writer(pickle.Pickler):
    def __init__(self, file: Any, counts: Counts | None, keep: Callable[[Path], str]) -> None:
        super().__init__(file, protocol=5)
        self.counts, self.keep = counts, keep

    def persistent_id(self, thing: Any) -> Any:
        if thing is self.counts and thing is not None:
            return ("counts",)
        if isinstance(thing, BlockedLoadings):
            return (ROWS, self.keep(thing.reader.folder), thing.reader.form, thing.part)
        return None

    def reducer_override(self, thing: Any) -> Any:
        if type(thing) is np.ndarray and thing.ndim == 2:
            for component_axis in (1, 0):
                if is_padded(thing, component_axis):
                    return _padded_again, (np.array(thing, order="C"), component_axis)
        return NotImplemented


class _Reader(pickle.Unpickler):
    def __init__(self, file: Any, counts: Counts | None, kept: Callable[[str], Path]) -> None:
        super().__init__(file)
        self.counts, self.kept = counts, kept

    def persistent_load(self, known: Any) -> Any:
        if known[0] != ROWS:
            return self.counts
        counts: Any = self.counts
        folder = TemporaryFolder(counts.scratch, "rows-")
        link_files(self.kept(known[1]), folder.path)
        return BlockedLoadings(folder, known[2], known[3], counts)

    def find_class(self, module: str, name: str) -> Any:
        if module.split(".")[0] in KNOWN or (module == "builtins" and name in BUILT_IN):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"a checkpoint contains no {module}.{name}")
