"""Encode a fit as an xarray `DataTree`, the layout of saved files, and decode it.

Groups: `point`, `trace`, `posterior` (the parameters of q, or the draws), `priors`, `counts` (CSR, with names) and, if
the fit has them, `start`, `multipliers`, `statistics` and `moments`. Values that are not arrays are JSON in the
attribute `settings`. Every array has its type and a checksum as attributes, since files of draws are long and missing
parts of a Zarr store are read as zeros. The settings list all groups and arrays with their attributes, and have their
own checksum, so that missing or changed parts are detected. Files of version 1 have neither list nor checksum of the
settings, so only their shapes are checked.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any
from zlib import crc32

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.sparse import csr_array

import bayesnmf
from bayesnmf.data.counts import Counts
from bayesnmf.inference.status import Status
from bayesnmf.options import METHODS, Options, Start
from bayesnmf.priors import Priors, ScaledProportions
from bayesnmf.priors.families import FAMILIES
from bayesnmf.results.estimates import Draws, Estimate, Point, VariationalPosterior
from bayesnmf.results.record import FitRecord
from bayesnmf.results.saved_checks import check_saved_settings, check_saved_shapes

Array = NDArray[Any]
Groups = dict[str, xr.Dataset]
FORMAT, VERSION = "bayesnmf.Fit", 4
RECORDS: dict[str, Any] = {kind.__name__: kind for kind in (ScaledProportions, Draws)}  # beside the families of priors
CSR = ("data", "indices", "indptr")
EXPOSURES = ("row_exposure", "feature_exposure")
NUMBER, SINGLE_ENTRY = 1, 2  # type of a value without axes: a Python number, an array; 0 is a NumPy number


def encode_fit(fit: FitRecord) -> Groups:
    """Return the groups of a file, by path."""
    version = 4 if fit.component_names is not None else 3 if fit.counts.exposed else 2  # the first with all its parts
    scalars = ("model", "method", "rank", "seed", "seconds", "diagnostics")
    settings = {name: getattr(fit, name) for name in scalars}
    settings |= {"status": list(fit.status), "options": _encode_options(fit.options), "format_version": version}
    about = {"format": FORMAT, "format_version": version, "bayesnmf_version": bayesnmf.__version__}
    point = {name: getattr(fit, name) for name in ("loadings", "components", "scale", "component_names")}
    groups = {
        "/point": _encode_arrays(point),
        "/trace": _encode_arrays({"trace": fit.trace, "residuals": fit.residuals}),
        "/counts": _encode_counts(fit.counts),
        **_encode_sides("/priors", fit.priors),
        **({} if fit.options.priors is fit.priors else _encode_sides("/options/priors", fit.options.priors)),
        **_encode_start(fit),
        **_encode_estimate(fit.estimate),
        **_encode_multipliers(fit),
        **({} if fit.statistics is None else {"/statistics": _encode_arrays(fit.statistics)}),
        **({} if fit.moments is None else {"/moments": _encode_arrays(fit.moments)}),
    }
    settings["parts"] = _describe_parts(xr.DataTree.from_dict(groups))
    text = json.dumps(settings, default=_as_python)
    about |= {"settings": text, "settings_crc32": crc32(text.encode())}
    return {"/": xr.Dataset(attrs=about), **groups}


def decode_fit(tree: xr.DataTree) -> FitRecord:
    """Return the fit in a tree; refuse a tree with missing or changed parts."""
    settings = _decode_settings(tree)
    status = Status(*settings.pop("status"))
    priors = Priors(**_decode_sides(tree["priors"]))
    options = _decode_options(settings, tree, priors)
    fit = FitRecord(
        **{"scale": None, **_decode_arrays(tree["point"]), **_decode_arrays(tree["trace"]), **settings},
        status=status,
        priors=priors,
        options=options,
        counts=_decode_counts(tree["counts"]),
        multipliers=_decode_multipliers(tree),
        statistics=_decode_arrays(tree["statistics"]) if "statistics" in tree.children else None,
        moments=_decode_arrays(tree["moments"]) if "moments" in tree.children else None,
        estimate=_decode_estimate(tree),
    )
    check_saved_shapes(fit)
    return fit


def _decode_settings(tree: xr.DataTree) -> dict[str, Any]:
    """Return the checked settings; refuse a tree with missing, new or changed parts."""
    text, version = tree.attrs["settings"], tree.attrs["format_version"]
    settings = json.loads(text)
    if version > 1 and tree.attrs["settings_crc32"] != crc32(text.encode()):
        raise ValueError("the settings differ from those that were saved")
    if settings.pop("format_version", 1) != version:
        raise ValueError("the format version differs from the one that was saved")
    if version > 1:
        listed, found = settings.pop("parts"), _describe_parts(tree)
        changed = sorted(name for name in {*listed, *found} if listed.get(name) != found.get(name))
        if changed:
            raise ValueError(f"missing or changed: {', '.join(changed)}")
    check_saved_settings(settings)
    return settings


def _describe_parts(tree: xr.DataTree) -> dict[str, Any]:
    """Return the attributes of each group and of each array, by path, with the shapes of arrays."""
    parts: dict[str, Any] = {}
    for group in tree.subtree:
        if group.path != "/":
            parts[group.path] = _plain_attributes(group.attrs)
        for name, variable in group.variables.items():
            parts[f"{group.path}/{name}"] = {**_plain_attributes(variable.attrs), "shape": list(variable.shape)}
    return parts


def _plain_attributes(attributes: Any) -> dict[str, Any]:
    return {name: value if isinstance(value, str | int) else _as_python(value) for name, value in attributes.items()}


def _as_python(value: Any) -> Any:
    """Return a NumPy scalar as a Python scalar, and any other object as text."""
    return value.item() if hasattr(value, "item") else str(value)


def _encode_options(options: Options) -> dict[str, Any]:
    values = _fields(options)
    del values["priors"]
    if not isinstance(values.get("start"), str | None):
        del values["start"]
    return {"kind": type(options).__name__, "values": values}


def _decode_options(settings: dict[str, Any], tree: xr.DataTree, priors: Priors) -> Options:
    values = dict(settings.pop("options")["values"])
    if "start" in tree.children:
        values["start"] = Start(**_decode_sides(tree["start"]))
    if "options" in tree.children:
        priors = Priors(**_decode_sides(tree["options/priors"]))
    return METHODS[settings["method"]].options(priors=priors, **values)


def _encode_start(fit: FitRecord) -> Groups:
    """Return the groups of a given start; a start given as a word is stored with the options."""
    start = getattr(fit.options, "start", None)
    return _encode_sides("/start", start) if isinstance(start, Start) else {}


def _encode_estimate(estimate: Estimate) -> Groups:
    if isinstance(estimate, VariationalPosterior):
        return _encode_sides("/posterior", estimate)
    return {"/posterior": _encode_value(estimate if isinstance(estimate, Draws) else None)}


def _decode_estimate(tree: xr.DataTree) -> Any:
    group = tree["posterior"]
    return VariationalPosterior(**_decode_sides(group)) if group.children else _decode_value(group) or Point()


def _encode_multipliers(fit: FitRecord) -> Groups:
    if fit.multipliers is None:
        return {}
    return {"/multipliers": _encode_arrays(dict(zip(("loadings", "components"), fit.multipliers, strict=True)))}


def _decode_multipliers(tree: xr.DataTree) -> tuple[Array, Array] | None:
    if "multipliers" not in tree.children:
        return None
    parts = _decode_arrays(tree["multipliers"])
    return parts["loadings"], parts["components"]


def _encode_sides(group: str, pair: Priors | Start | VariationalPosterior) -> Groups:
    return {f"{group}/{side}": _encode_value(getattr(pair, side)) for side in ("loadings", "components")}


def _decode_sides(group: Any) -> dict[str, Any]:
    return {side: _decode_value(group[side]) for side in ("loadings", "components")}


def _encode_value(value: Any) -> xr.Dataset:
    """Return the dataset of a distribution, draws, proportions with a scale, an array, a word or None."""
    kind = type(value).__name__
    if kind in FAMILIES or kind in RECORDS:
        if kind in FAMILIES:
            return _encode_arrays({**value.parameters, **value.constants}).assign_attrs(kind=kind, **value.settings)
        parts = value._asdict() if isinstance(value, ScaledProportions) else _fields(value)
        return _encode_arrays(parts).assign_attrs(kind=kind)
    if value is None or isinstance(value, str):
        return xr.Dataset(attrs={"kind": "None" if value is None else "word", "word": value or ""})
    return _encode_arrays({"value": np.asarray(value)}).assign_attrs(kind="array")


def _fields(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _decode_value(group: Any) -> Any:
    kind = group.attrs["kind"]
    if kind in ("None", "word"):
        return group.attrs["word"] if kind == "word" else None
    parts = _decode_arrays(group)
    if kind not in {**FAMILIES, **RECORDS, "array": None}:
        raise ValueError(f"the prior {kind} is not in bayesnmf.priors.families.FAMILIES; add it there before loading")
    if kind in FAMILIES:
        return FAMILIES[kind].of_parameters(parts, {name: v for name, v in group.attrs.items() if name != "kind"})
    return parts["value"] if kind == "array" else RECORDS[kind](**parts)


# --- arrays ----------------------------------------------------------------------------------------


def _encode_counts(counts: Counts) -> xr.Dataset:
    parts = {name: getattr(counts.matrix, name) for name in CSR}
    names = {"row_names": counts.row_names, "feature_names": counts.feature_names}
    exposures = {name: getattr(counts, name) for name in EXPOSURES}
    return _encode_arrays({**parts, **names, **exposures})


def _decode_counts(group: Any) -> Counts:
    parts = _decode_arrays(group)
    rows, features = parts["row_names"], parts["feature_names"]
    matrix = csr_array(tuple(parts[name] for name in CSR), shape=(len(rows), len(features)))
    return Counts(matrix, rows, features, **{name: parts.get(name) for name in EXPOSURES})


def _encode_arrays(values: dict[str, Any]) -> xr.Dataset:
    return xr.Dataset({name: _encode_array(name, value) for name, value in values.items() if value is not None})


def _decode_arrays(group: Any) -> dict[str, Any]:
    return {str(name): _decode_array(group[name]) for name in group.variables}


def _encode_array(name: str, value: Any) -> xr.Variable:
    """Return a variable with its own dimensions, and with attributes for properties that files do not keep."""
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
    return xr.Variable([f"{name}_{axis}" for axis in range(array.ndim)], stored, attributes)


def _decode_array(variable: xr.DataArray) -> Any:
    """Return the encoded value, with the same type and order in memory; refuse a value that has changed."""
    about = variable.attrs
    array = variable.to_numpy()
    if array.dtype.kind in "OTU":
        array = np.array([str(text) for text in array], dtype=object)
    else:
        array = array.astype(about["saved_as"], order=about["order"], copy=False)
    if _checksum(array) != about["crc32"]:
        raise ValueError(f"the values of {variable.name!r} differ from those that were saved")
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
    return [json.dumps(name, default=_as_python) for name in listed], 1


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
