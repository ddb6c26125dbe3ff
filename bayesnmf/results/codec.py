"""Encode a fit, or another result, as groups of arrays and JSON, the layout of saved files, and decode it.

A file holds records: values of the classes in `classes`, each with its fields. The arrays of a record are a group of
the file. All else is JSON in the attribute `settings`: for each record, by its path, the name of its class and its
fields, where ``{"array": path}`` and ``{"record": path}`` stand for what has a place of its own. So a new field is
saved and loaded by itself. Nothing but these classes is ever made: no file can run code.

Every array has its type and a checksum as attributes, since files of draws are long and missing parts of a Zarr store
are read as zeros. The settings list all groups and arrays with their attributes, and have their own checksum, so that
missing or changed parts are detected; NetCDF files also end with a digest of all that is in them
(`bayesnmf.results.storage`). Files of earlier versions are read by `bayesnmf.results.earlier_files`.

Of counts on disk, a file has the folder that they are in. It is named from the folder of the file or from the user's
home, where it lies in one of them, so that both can be moved together and a file says no more of a machine than it
must. A folder that is not there is looked for by the fingerprint of its counts: beside the file, beside the place that
the file names, and in the user's cache.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from zlib import crc32

import numpy as np
from scipy.sparse import csc_array, csr_array

import bayesnmf
from bayesnmf.checks import shown
from bayesnmf.data.batches import Batches
from bayesnmf.data.blocks.counts import BlockedCounts, Filling, StoredMatrix
from bayesnmf.data.blocks.opening import default_scratch
from bayesnmf.data.blocks.store import ABOUT, Store
from bayesnmf.data.counts import Counts
from bayesnmf.data.mask import GroupMask, Mask
from bayesnmf.data.several import Matrices, SeveralCounts
from bayesnmf.data.suspicions import warn_of_data
from bayesnmf.inference.status import Status
from bayesnmf.noise.abilities import FeatureGroups
from bayesnmf.noise.words import kinds
from bayesnmf.options import FOREIGN, METHODS, Start
from bayesnmf.priors import Priors, ScaledProportions
from bayesnmf.priors.families import FAMILIES
from bayesnmf.priors.unknown import Unknown
from bayesnmf.results.batches import FittedBatches
from bayesnmf.results.estimates import Draws, Intervals, Point, VariationalPosterior
from bayesnmf.results.record import FitRecord
from bayesnmf.types import Array

VERSION = 10
FIT = "Fit"  # what files call a `FitRecord`
TABLE = "DataFrame"
ELSEWHERE = {"Assignment": "bayesnmf.assessment.assignment"}  # modules of results, imported when one is read
OWN = (
    Status, Priors, ScaledProportions, Start, Point, VariationalPosterior, Draws, Intervals, FittedBatches, Counts,
    SeveralCounts, Matrices, BlockedCounts, StoredMatrix, Filling, Batches, Mask, GroupMask, FeatureGroups, csr_array,
    csc_array, Unknown,
)  # fmt: skip
KNOWN = (
    "add the class of a prior to bayesnmf.priors.families.FAMILIES, that of a noise, as an object, to "
    "bayesnmf.noise.words.NOISES, and that of options, with their method, to bayesnmf.options.METHODS"
)
CSR = ("data", "indices", "indptr")
NUMBER, SINGLE_ENTRY = 1, 2  # type of a value without axes: a Python number, an array; 0 is a NumPy number


def classes() -> dict[str, type]:
    """Return the classes of the records of files, by name; tables and results of other folders come besides."""
    options = [method.options for method in (METHODS | FOREIGN).values()]
    named = {kind.__name__: kind for kind in (*OWN, *options, *FAMILIES.values(), *kinds().values())}
    return {FIT: FitRecord, **named}


class UnknownClassError(ValueError):
    """A file has a record of a class that is not known here."""


class CountsElsewhereError(ValueError):
    """The counts of a saved fit are on disk, and not where they can be found."""


class Variable(NamedTuple):
    """Array in a file, and its attributes; its dimensions have its name and a number."""

    values: Array
    attrs: dict[str, Any]


class Group(NamedTuple):
    """Group of a file: its arrays by name, and its attributes."""

    variables: dict[str, Variable]
    attrs: dict[str, Any]


Groups = dict[str, Group]  # by path, such as /priors.loadings


def size_of(groups: Groups) -> int:
    """Return the bytes of all arrays of a file."""
    return sum(variable.values.nbytes for group in groups.values() for variable in group.variables.values())


def encode(result: Any, near: Path) -> Groups:
    """Return the groups of the file of a fit or another result in the folder `near`, by path."""
    kind = name_of(result)
    encoder = Encoder(near, f"/{kind.lower()}")
    settings = {"format_version": VERSION, "result": encoder.record(result, encoder.root), "records": encoder.records}
    groups = encoder.groups
    text = json.dumps({**settings, "parts": _describe_parts(groups)})
    about = {"format": f"bayesnmf.{kind}", "format_version": VERSION, "bayesnmf_version": bayesnmf.__version__}
    return {"/": Group({}, {**about, "settings": text, "settings_crc32": crc32(text.encode())}), **groups}


def decode(groups: Groups, near: Path) -> Any:
    """Return the result in a file in the folder `near`; refuse a file with missing or changed parts."""
    settings = checked_settings(groups)
    return Decoder(groups, settings["records"], near).record(settings["result"])


def name_of(value: Any) -> str:
    """Return the name of the class of a record, as files have it."""
    return FIT if isinstance(value, FitRecord) else type(value).__name__


class Encoder:
    """Groups of arrays and JSON of the records that were encoded, by path; each record is encoded once."""

    def __init__(self, near: Path, root: str) -> None:
        self.near, self.root, self.groups, self.records = near, root, Groups(), dict[str, Any]()
        self._paths: dict[int, str] = {}

    def record(self, value: Any, path: str) -> str:
        """Encode a record at a path, or find it where it is; return its path."""
        if id(value) not in self._paths:
            self._paths[id(value)] = path
            forms: dict[str, Any] = {}
            self.records[path] = {"kind": name_of(value), "fields": forms}
            for name, part in _parts_of(value, self.near).items():
                forms[name] = self._form(part, path, name)
        return self._paths[id(value)]

    def _form(self, value: Any, group: str, name: str) -> Any:
        """Return the JSON of a value with this name in a group, which its arrays go to."""
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, np.str_):
            return str(value)
        if type(value) is list:
            return [self._form(each, group, f"{name}.{place}") for place, each in enumerate(value)]
        if type(value) is tuple:
            return {"tuple": self._form(list(value), group, name)}
        if type(value) is dict and all(type(key) is str for key in value):
            named = (f"{name}.{key if key.isidentifier() else place}" for place, key in enumerate(value))
            return {"dict": {key: self._form(value[key], group, each) for key, each in zip(value, named, strict=True)}}
        if (kind := name_of(value)) in classes() or kind == TABLE or kind in ELSEWHERE:
            return {"record": self.record(value, f"/{name}" if group == self.root else f"{group}.{name}")}
        if not hasattr(value, "__array__"):
            _refuse_value(value, name)
        self.groups.setdefault(group, Group({}, {})).variables[name] = _encode_array(name, value)
        return {"array": f"{group}/{name}"}


class Decoder:
    """Records of a file, made of its groups and JSON, each once."""

    def __init__(self, groups: Groups, records: dict[str, Any], near: Path) -> None:
        self.groups, self.records, self.near = groups, records, near
        self._made: dict[str, Any] = {}

    def record(self, path: str) -> Any:
        """Return the record at a path."""
        if path not in self._made:
            about = self.records[path]
            parts = {name: self._value(form) for name, form in about["fields"].items()}
            self._made[path] = _record_of(about["kind"], parts, self.near)
        return self._made[path]

    def _value(self, form: Any) -> Any:
        if isinstance(form, list):
            return [self._value(each) for each in form]
        if not isinstance(form, dict):
            return form
        [(word, content)] = form.items()
        if word == "record":
            return self.record(content)
        if word == "array":
            group, _, name = content.rpartition("/")
            return decode_array(name, self.groups[group].variables[name])
        if word == "tuple":
            return tuple(self._value(content))
        return {name: self._value(each) for name, each in content.items()}


def _parts_of(value: Any, near: Path) -> dict[str, Any]:
    """Return the fields of a record by name."""
    if isinstance(value, csr_array | csc_array):
        return {**{name: getattr(value, name) for name in CSR}, "shape": tuple(map(int, value.shape))}
    if isinstance(value, StoredMatrix):
        about = {"folder": place_of(value.store.folder, near), "fingerprint": value.store.fingerprint}
        return {**about, "nonzeros": value.nonzeros, "dtype": value.dtype.name}
    if name_of(value) == TABLE:
        columns = {str(number): value.iloc[:, number].to_numpy() for number in range(value.shape[1])}
        return {"index": value.index.to_numpy(), "columns": value.columns.to_numpy(), **columns}
    if hasattr(value, "_asdict"):
        return dict(value._asdict())
    return {each.name: getattr(value, each.name) for each in fields(value) if each.metadata.get("saved", True)}


def _record_of(kind: str, parts: dict[str, Any], near: Path) -> Any:
    """Return the record of a class with these fields; refuse a class that is not known."""
    if kind in ("csr_array", "csc_array"):
        return classes()[kind](tuple(parts[name] for name in CSR), shape=parts["shape"])
    if kind == StoredMatrix.__name__:
        return stored_matrix(near=near, **parts)
    if kind == TABLE:
        return table_of(**parts)
    if kind in ELSEWHERE:
        return class_elsewhere(kind)(**parts)
    known = classes()
    if kind not in known:
        raise UnknownClassError(f"the file has a {shown(kind)}, which is no class of files; {KNOWN}, before loading it")
    return known[kind](**parts)


def class_elsewhere(kind: str) -> Any:
    """Return the class of a result other than a fit, one of `ELSEWHERE`."""
    from importlib import import_module

    return getattr(import_module(ELSEWHERE[kind]), kind)


def table_of(index: Array, columns: Array, **values: Array) -> Any:
    """Return the table with these columns, which are given by number."""
    import pandas as pd

    own = {number: values[str(number)] for number in range(len(columns))}
    return pd.DataFrame(own, index=index).set_axis(columns, axis=1)


def _refuse_value(value: Any, name: str) -> NoReturn:
    raise TypeError(
        f"{name} must be an array, a table, or a word, a number, a list of these, or of a class of files, to be saved: "
        f"found {shown(value)}; make it one, or {KNOWN}"
    )


# --- what a file says of its parts -----------------------------------------------------------------------


def checked_settings(groups: Groups) -> dict[str, Any]:
    """Return the settings of a file; refuse one with missing, new or changed parts."""
    about = groups["/"].attrs
    text, version = about["settings"], about["format_version"]
    settings: dict[str, Any] = json.loads(text)
    if version > 1 and about["settings_crc32"] != crc32(text.encode()):
        raise ValueError("the settings differ from those that were saved")
    if settings.pop("format_version", 1) != version:
        raise ValueError("the format version differs from the one that was saved")
    if version > 1:
        listed, found = settings.pop("parts"), _describe_parts(groups)
        changed = sorted(name for name in {*listed, *found} if listed.get(name) != found.get(name))
        if changed:
            raise ValueError(f"missing or changed: {', '.join(changed)}")
        places = {name: place for place, name in enumerate(listed)}
        for path, group in groups.items():  # a store of Zarr has arrays in an order of its own
            own = sorted(group.variables.items(), key=lambda each: places[f"{path}/{each[0]}"])
            groups[path] = group._replace(variables=dict(own))
    return settings


def _describe_parts(groups: Groups) -> dict[str, Any]:
    """Return the attributes of each group and of each array, by path, with the shapes of arrays."""
    parts: dict[str, Any] = {}
    for path, group in groups.items():
        if path != "/":
            parts[path] = _plain_attributes(group.attrs)
        for name, variable in group.variables.items():
            parts[f"{path}/{name}"] = {**_plain_attributes(variable.attrs), "shape": list(variable.values.shape)}
    return parts


def _plain_attributes(attributes: Any) -> dict[str, Any]:
    """Return attributes as words and whole numbers, and fractions as text, whatever type a file has read them as."""
    plain = {name: value.item() if hasattr(value, "item") else value for name, value in attributes.items()}
    return {name: value if isinstance(value, str | int) else str(value) for name, value in plain.items()}


# --- arrays ----------------------------------------------------------------------------------------------


def _encode_array(name: str, value: Any) -> Variable:
    """Return a variable with attributes for properties that files do not keep."""
    array = np.asarray(value)
    attributes = {
        "saved_as": "object" if array.dtype.kind in "OT" else array.dtype.str,
        "order": "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C",
        "number": SINGLE_ENTRY if isinstance(value, np.ndarray) and value.ndim == 0 else 0,
    }
    if array.dtype.kind in "OTU":
        texts, attributes["json"] = _texts(array)
        stored = np.array(texts, dtype=object)
    else:
        stored = _compact(array) if name in CSR else array
    attributes["crc32"] = _checksum(array if stored.dtype.kind != "O" else stored)
    return Variable(stored, attributes)


def decode_array(name: str, variable: Variable) -> Any:
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


def _texts(names: Array) -> tuple[list[str], int]:
    """Return names as text, and whether it is JSON, as needed unless all names are printable text."""
    listed = names.tolist()
    if all(isinstance(name, str) and name.isprintable() for name in listed):
        return listed, 0
    _tell_of_kinds(listed)
    return [json.dumps(name, default=_as_python) for name in listed], 1


def _tell_of_kinds(names: list[Any]) -> None:
    """Tell that names of a type that no file has become text, which is not what other tables know them by."""
    parts = (part for name in names for part in (name if isinstance(name, tuple) else (name,)))
    other = next((part for part in parts if not isinstance(part, str | int | float | np.generic | None)), None)
    if other is not None:
        warn_of_data(
            f"names of type {type(other).__name__} are saved as text: {_as_python(other)!r}; give names that are text "
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


def _as_python(value: Any) -> Any:
    """Return a NumPy scalar as a Python scalar, and any other object as text."""
    return value.item() if hasattr(value, "item") else str(value)


# --- counts on disk --------------------------------------------------------------------------------------


def place_of(folder: Path, near: Path) -> str:
    """Return a folder as seen from the folder `near`, or from the user's home, or from the root."""
    folder, near, home = folder.resolve(), near.resolve(), Path.home().resolve()
    if folder.is_relative_to(near):
        return folder.relative_to(near).as_posix()
    if folder.is_relative_to(home) and home != Path(home.anchor):
        return f"~/{folder.relative_to(home).as_posix()}"
    together = folder.anchor == near.anchor and folder.parts[1:2] == near.parts[1:2]
    return Path(os.path.relpath(folder, near)).as_posix() if together else str(folder)


def stored_matrix(
    folder: str, fingerprint: str, nonzeros: int, dtype: str, near: Path, *, by_sums: bool = False
) -> StoredMatrix:
    """Return the matrix of the counts with a fingerprint, in a folder that is named from `near`, or where else it is.

    With `by_sums`, the fingerprint is the older one, of the sums of rows and features.
    """
    place = Path(os.path.abspath(near / Path(folder).expanduser()))
    for store in _stores_at(place, near):
        if (store.fingerprint_of_sums() if by_sums else store.fingerprint) == fingerprint:
            return StoredMatrix(store, np.dtype(dtype), nonzeros, store.folder.parent)
    cure = (
        "move their folder there or beside the file of the fit, or fit their source once with bayesnmf.Blocks(..., "
        f"scratch={str(near)!r}), which writes a folder that is found"
    )
    if place.is_dir():
        raise CountsElsewhereError(f"the counts in the folder {place} are not those that the fit was made from; {cure}")
    raise CountsElsewhereError(f"the counts of this fit are in the folder {place}, which is missing; {cure}")


def _stores_at(place: Path, near: Path) -> Iterator[Store]:
    beside = (each for parent in (place.parent, near, default_scratch()) for each in sorted(parent.glob("counts-*")))
    for folder in [place, *(each for each in beside if each != place)]:
        if (folder / ABOUT).is_file():
            try:
                yield Store.open(folder)
            except ValueError:
                if folder == place:
                    raise
