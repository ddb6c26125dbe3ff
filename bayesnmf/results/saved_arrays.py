"""Encode arrays as variables of a file, with their type and a checksum as attributes, and decode them."""

from __future__ import annotations

import json
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from bayesnmf.data.suspicions import warn_of_data
from bayesnmf.types import Array

CSR = ("data", "indices", "indptr")
NUMBER, SINGLE_ENTRY = 1, 2  # type of a value without axes: a Python number, an array; 0 is a NumPy number


class Variable(NamedTuple):
    """Array in a file, and its attributes; its dimensions have its name and a number."""

    values: Array
    attrs: dict[str, Any]


class Group(NamedTuple):
    """Group of a file: its arrays by name, and its attributes."""

    variables: dict[str, Variable]
    attrs: dict[str, Any]


Groups = dict[str, Group]  # by path, such as /priors/loadings


def encode_arrays(values: dict[str, Any], **about: Any) -> Group:
    """Return a group of arrays, without those that are None, with the attributes `about`."""
    return Group({name: _encode_array(name, value) for name, value in values.items() if value is not None}, about)


def decode_arrays(group: Group) -> dict[str, Any]:
    """Return the arrays of a group by name."""
    return {name: _decode_array(name, variable) for name, variable in group.variables.items()}


def size_of(groups: Groups) -> int:
    """Return the bytes of all arrays of a file."""
    return sum(variable.values.nbytes for group in groups.values() for variable in group.variables.values())


def _encode_array(name: str, value: Any) -> Variable:
    """Return a variable with attributes for properties that files do not keep."""
    array = np.asarray(value)
    attributes = {
        "saved_as": "object" if array.dtype.kind in "OT" else array.dtype.str,
        "order": "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C",
        "number": NUMBER if type(value) in (int, float) else SINGLE_ENTRY if _is_single(value) else 0,
    }
    if array.dtype.kind in "OTU":
        texts, attributes["json"] = _texts(array)
        stored = np.array(texts, dtype=object)
    else:
        stored = _compact(array) if name in CSR else array
    attributes["crc32"] = _checksum(array if stored.dtype.kind != "O" else stored)
    return Variable(stored, attributes)


def _decode_array(name: str, variable: Variable) -> Any:
    """Return the encoded value, with the same type and order in memory; refuse a value that has changed."""
    array, about = variable
    if array.dtype.kind in "OTU":
        array = np.array([str(text) for text in array], dtype=object)
    else:
        array = array.astype(about["saved_as"], order=about["order"], copy=False)
    if _checksum(array) != about["crc32"]:
        raise ValueError(f"the values of {name!r} differ from those that were saved")
    if array.dtype.kind == "O":
        return _names(array, bool(about["json"]), about["saved_as"])
    return array.item() if about["number"] == NUMBER else array if about["number"] == SINGLE_ENTRY else array[()]


def _is_single(value: Any) -> bool:
    """Return whether a value is an array without axes, rather than a Python or NumPy number."""
    return isinstance(value, np.ndarray) and value.ndim == 0


def _texts(names: Array) -> tuple[list[str], int]:
    """Return names as text, and whether it is JSON, as needed unless all names are printable text."""
    listed = names.tolist()
    if all(isinstance(name, str) and name.isprintable() for name in listed):
        return listed, 0
    _tell_of_kinds(listed)
    return [json.dumps(name, default=as_python) for name in listed], 1


def _tell_of_kinds(names: list[Any]) -> None:
    """Tell that names of a type that no file has become text, which is not what other tables know them by."""
    parts = (part for name in names for part in (name if isinstance(name, tuple) else (name,)))
    other = next((part for part in parts if not isinstance(part, str | int | float | np.generic | None)), None)
    if other is not None:
        warn_of_data(
            f"names of type {type(other).__name__} are saved as text: {as_python(other)!r}; give names that are text "
            "to have the same ones in a loaded fit, as frame.index.astype(str) makes them"
        )


def _names(texts: Array, coded: bool, saved_as: str) -> Array:
    names = np.empty(len(texts), dtype=object)
    for position, text in enumerate(texts):
        name = json.loads(text) if coded else text
        names[position] = tuple(name) if isinstance(name, list) else name
    return names.astype(saved_as)


def _compact(values: Array) -> Array:
    """Return whole numbers in the smallest unsigned type that can represent them; other values unchanged."""
    for kind in (np.uint8, np.uint16, np.uint32):
        if values.size and values.max() <= np.iinfo(kind).max:
            small = values.astype(kind)
            return small if np.array_equal(small, values) else values
    return values


def _checksum(array: Array) -> int:
    if array.dtype.kind == "O":
        return crc32("\n".join(array).encode())
    return crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8))


def as_python(value: Any) -> Any:
    """Return a NumPy scalar as a Python scalar, and any other object as text."""
    return value.item() if hasattr(value, "item") else str(value)
