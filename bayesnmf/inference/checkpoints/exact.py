"""Turn the state of a loop into bytes and back, so that the loop goes on with the same bits.

The bytes are a tree of words and numbers, as JSON, and after it the arrays. Sums depend on the order of the numbers in
memory, so arrays keep their order and their padding; what is in two places of a state is written once and read as one
object. The counts are not written: they are those of the call that reads the bytes. A file names no code: an object is
read only as one of the classes that are listed here, whose attributes are set and whose functions are not called.

Of what runs in a loop, a checkpoint keeps the attributes that its class names in `checkpointed`, or its `memory` where
going on takes more than these; of a random generator, its state. `recall` brings all of them back.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bayesnmf.data.blocks.raw import TemporaryFolder
from bayesnmf.data.counts import Counts
from bayesnmf.inference.blocked.passes import BlockedLoadings
from bayesnmf.inference.blocked.sides import RowLayout, RowSums, checksums, of_block, read_rows
from bayesnmf.inference.checkpoints.checks import check_can_be_kept, check_is_known, check_same_files
from bayesnmf.inference.problem import State
from bayesnmf.inference.side import Bare, Field, Side
from bayesnmf.kernels.cpu.factors import is_padded, padded_copy
from bayesnmf.kernels.cpu.urn import Tokens
from bayesnmf.priors import ScaledProportions
from bayesnmf.priors.families import FAMILIES

NUMBERS = "biufc"  # kinds of arrays
KEPT = (Bare, Side, Field, RowLayout, RowSums, ScaledProportions, State, Tokens)
CLASSES: dict[str, type] = {each.__name__: each for each in KEPT}
SEQUENCES: dict[str, Callable[[Any], Any]] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}


def to_bytes(thing: Any, counts: Counts | None, keep: Callable[[Path], str]) -> bytes:
    """Return the state of a loop as bytes.

    Parameters
    ----------
    thing : object
        Sides, priors, arrays and numbers, in tuples, lists and dicts, and what runs in a loop.
    counts : Counts
        Counts that the state may refer to.
    keep : callable
        Function that keeps a folder of loadings and returns the name under which it is found again.

    Raises
    ------
    TypeError
        The state has an object of another class.
    """
    writer = _Writer(counts, keep)
    tree = json.dumps(writer.node(thing)).encode()
    return b"".join([len(tree).to_bytes(8, "little"), tree, *writer.arrays])


def from_bytes(content: bytes, counts: Counts | None, kept: Callable[[str], Path]) -> Any:
    """Return the state of a loop that `to_bytes` wrote; `kept` returns the folder of loadings of a name."""
    first = 8 + int.from_bytes(content[:8], "little")
    return _Reader(memoryview(content)[first:], counts, kept).thing(json.loads(content[8:first]))


def recall(thing: Any, kept: Any) -> None:
    """Bring an object to where it was when its attributes were written, and what is kept of these."""
    if isinstance(thing, np.random.Generator):
        thing.bit_generator.state = kept
    elif not hasattr(thing, "checkpointed"):
        thing.memory = kept
    else:
        for name in thing.checkpointed:
            if _goes_on(own := getattr(thing, name)):
                recall(own, kept[name])
            else:
                setattr(thing, name, kept[name])


def _goes_on(thing: Any) -> bool:
    """Return whether an object stays as it is when a checkpoint is read, but for what is kept of it."""
    return isinstance(thing, np.random.Generator) or hasattr(thing, "checkpointed") or hasattr(thing, "memory")


def link_files(source: Path, target: Path) -> None:
    """Give all files of a folder, which are never changed, a second place; copy them to another file system."""
    for file in source.iterdir():
        try:
            os.link(file, target / file.name)
        except OSError:
            shutil.copyfile(file, target / file.name)


def _classes() -> dict[str, type]:
    return {**FAMILIES, **CLASSES}


class _Writer:
    """Makes the tree, a word or a list [kind, …] for each object, and collects the arrays."""

    def __init__(self, counts: Counts | None, keep: Callable[[Path], str]) -> None:
        self.counts, self.keep = counts, keep
        self.arrays: list[bytes] = []
        self.size = 0
        self._met: dict[int, tuple[int, Any]] = {}  # the objects too, so that no other one gets their place in memory

    def node(self, thing: Any) -> Any:
        """Return the node of an object; one that was met before is named by its number."""
        if thing is None or isinstance(thing, str | bool):
            return thing
        if type(thing) in (int, float):
            return [type(thing).__name__, hex(thing) if type(thing) is int else thing.hex()]
        if _goes_on(thing):
            return self.node(_kept_of(thing))
        if id(thing) in self._met:
            return ["again", self._met[id(thing)][0]]
        found = self._new(thing)
        self._met[id(thing)] = len(self._met), thing
        return found

    def _new(self, thing: Any) -> list[Any]:
        if thing is self.counts:
            return ["counts"]
        if isinstance(thing, BlockedLoadings):
            folder, layout = thing.reader.folder, thing.reader.layout
            return ["rows", self.keep(folder), checksums(folder), self.node(layout), self.node(thing.over)]
        if isinstance(thing, np.ndarray | np.generic):
            return self._array(thing)
        if isinstance(thing, np.dtype):
            return ["dtype", _known_type(thing).str]
        kind = type(thing).__name__
        if type(thing) in SEQUENCES.values():
            return [kind, *map(self.node, thing)]
        if type(thing) is dict:
            return [kind, *([self.node(key), self.node(value)] for key, value in thing.items())]
        if type(thing) is slice:
            return [kind, *map(self.node, (thing.start, thing.stop, thing.step))]
        if type(thing).__module__.startswith("jax"):
            return ["jax", bool(thing.weak_type), self.node(np.asarray(thing))]
        check_can_be_kept(_classes().get(kind) is type(thing), f"{type(thing).__module__}.{kind}")
        return ["object", kind, *([name, self.node(value)] for name, value in _state(thing).items())]

    def _array(self, given: Any) -> list[Any]:
        array = np.asarray(given)
        padded = [axis for axis in (1, 0) if array.ndim == 2 and is_padded(array, axis)]
        order: Literal["C", "F"] = (
            "F" if not padded and array.flags.f_contiguous and not array.flags.c_contiguous else "C"
        )
        content, first = array.tobytes(order), self.size
        self.arrays.append(content)
        self.size += len(content)
        form = "number" if isinstance(given, np.generic) else padded[0] if padded else order
        return ["array", _known_type(array.dtype).str, list(array.shape), form, first]


def _kept_of(thing: Any) -> Any:
    if isinstance(thing, np.random.Generator):
        return thing.bit_generator.state
    names = getattr(thing, "checkpointed", None)
    return thing.memory if names is None else {name: getattr(thing, name) for name in names}


def _known_type(dtype: Any) -> np.dtype:
    check_can_be_kept(dtype.kind in NUMBERS, f"arrays of {dtype}")
    return np.dtype(dtype)


def _state(thing: Any) -> Any:
    if isinstance(thing, tuple):
        return thing._asdict()  # type: ignore[attr-defined]
    if is_dataclass(thing):
        return {each.name: getattr(thing, each.name) for each in fields(thing)}
    return thing.__getstate__()


class _Reader:
    """Makes objects of the nodes of a tree."""

    def __init__(self, arrays: memoryview, counts: Counts | None, kept: Callable[[str], Path]) -> None:
        self.arrays, self.counts, self.kept = arrays, counts, kept
        self._met: list[Any] = []

    def thing(self, node: Any) -> Any:
        """Return the object of a node."""
        if not isinstance(node, list):
            return node
        kind, parts = node[0], node[1:]
        if kind in ("int", "float"):
            return int(parts[0], 16) if kind == "int" else float.fromhex(parts[0])
        if kind == "again":
            return self._met[parts[0]]
        found = self._new(kind, parts)
        self._met.append(found)
        return found

    def _new(self, kind: str, parts: Sequence[Any]) -> Any:
        if kind == "counts":
            return self.counts
        if kind == "rows":
            return self._rows(parts[0], parts[1], self.thing(parts[2]), self.thing(parts[3]))
        if kind == "array":
            return self._array(*parts)
        if kind == "dtype":
            return _known_type(np.dtype(parts[0]))
        if kind in SEQUENCES:
            return SEQUENCES[kind](map(self.thing, parts))
        if kind == "dict":
            return {self.thing(key): self.thing(value) for key, value in parts}
        if kind == "slice":
            return slice(*map(self.thing, parts))
        if kind == "jax":
            return _on_device(parts[0], self.thing(parts[1]))
        check_is_known(kind == "object" and parts[0] in _classes(), parts[0] if kind == "object" else kind)
        state = {name: self.thing(value) for name, value in parts[1:]}
        return _object(_classes()[parts[0]], state)

    def _rows(self, name: str, written: dict[str, int], layout: RowLayout, over: RowSums) -> BlockedLoadings:
        counts: Any = self.counts
        folder = TemporaryFolder(counts.scratch, "rows-")
        link_files(self.kept(name), folder.path)
        for number in range(len(counts.blocks)):
            read_rows(of_block(folder.path, number), layout.ranks)  # an OSError if they are damaged
        check_same_files(checksums(folder.path), written, self.kept(name))
        return BlockedLoadings(folder, layout, over, counts)

    def _array(self, kind: str, shape: Sequence[int], form: Any, first: int) -> Any:
        order: Literal["C", "F"] = "F" if form == "F" else "C"
        read: Any = np.ndarray(tuple(shape), _known_type(np.dtype(kind)), self.arrays, first, order=order)
        if form == "number":
            return read[()]
        return np.array(read, order=order) if form in ("C", "F") else padded_copy(read, form)


def _object(kind: type, state: dict[str, Any]) -> Any:
    """Return an object with these attributes, as it was: what its class makes of given values is not done again."""
    if issubclass(kind, tuple):
        return kind(**state)
    found = object.__new__(kind)
    for name, value in state.items():
        object.__setattr__(found, name, value)
    return found


def _on_device(weak: bool, values: Any) -> Any:
    import jax

    return jax.numpy.asarray(values.item()) if weak and not values.ndim else jax.device_put(values)
