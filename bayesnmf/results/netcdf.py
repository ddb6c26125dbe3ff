"""Write groups of arrays as NetCDF, and read them, with h5py alone.

The files are those that xarray writes with h5netcdf, to the types of attributes, so that either reads what the other
wrote: a dimension scale for each axis, NaN as the fill value of fractions, text as UTF-8 of any length, flags as bytes,
and dates and durations as whole numbers of the largest unit in which they are whole.
"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import bayesnmf
from bayesnmf.results.codec import Group, Groups, Variable
from bayesnmf.types import Array

if TYPE_CHECKING:
    import h5py

Attributes = dict[str, Any]
NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable."
OURS = (
    "CLASS",
    "NAME",
    "DIMENSION_LIST",
    "REFERENCE_LIST",
    "_FillValue",
)  # attributes of the format, and all _Netcdf4…
UNITS = {
    "days": "D", "hours": "h", "minutes": "m", "seconds": "s", "milliseconds": "ms", "microseconds": "us",
    "nanoseconds": "ns",
}  # fmt: skip


def to_netcdf(groups: Groups, packed: tuple[str, ...] = ()) -> memoryview:
    """Return the bytes of a NetCDF file of some groups; arrays with the names `packed` are compressed."""
    import h5py

    buffer, axes = BytesIO(), 0
    with h5py.File(buffer, "w", track_order=True) as file:
        for path, group in groups.items():
            place = file.require_group(path) if path == "/" else file.create_group(path, track_order=True)
            _set_attributes(place, group.attrs)
            axes = _write_arrays(place, group, axes, packed)
        versions = f"version=2,bayesnmf={bayesnmf.__version__},hdf5={h5py.version.hdf5_version},h5py={h5py.__version__}"
        file.attrs["_NCProperties"] = np.array(versions, h5py.string_dtype("ascii", len(versions)))
    return buffer.getbuffer()


def from_netcdf(path: Path) -> Groups:
    """Return the groups of a NetCDF file, by path, with all that contain others."""
    import h5py

    groups: Groups = {}

    def read(place: h5py.Group, at: str) -> None:
        groups[at] = Group({}, _attributes(place))
        for name, item in place.items():
            if isinstance(item, h5py.Group):
                read(item, f"{at.rstrip('/')}/{name}")
            elif not _text(item.attrs.get("NAME", "")).startswith(NO_VARIABLE):
                groups[at].variables[name] = _read_array(item)

    with h5py.File(path, "r") as file:
        read(file, "/")
    return groups


def _write_arrays(place: h5py.Group, group: Group, axes: int, packed: tuple[str, ...]) -> int:
    """Write dimensions and arrays of a group; return how many dimensions the file has now."""
    stored = {name: _encode(variable.values) for name, variable in group.variables.items()}
    scales: dict[str, tuple[int, Any]] = {}
    named = {name: _dimensions(name, values, group) for name, (values, _) in stored.items()}
    for name, (values, _) in stored.items():
        for dimension, length in zip(named[name], values.shape, strict=True):
            if dimension not in scales:
                scales[dimension] = axes, _write_scale(place, dimension, length, axes)
                axes += 1
    for name, (values, more) in stored.items():
        settings: dict[str, Any] = {"compression": "gzip", "shuffle": True} if name in packed else {}
        if 0 in values.shape:
            settings |= {"chunks": True, "maxshape": tuple(length or None for length in values.shape)}
        written = place.create_dataset(name, values.shape, track_order=True, data=values, **_typed(values), **settings)
        for axis, dimension in enumerate(named[name]):
            written.dims[axis].attach_scale(scales[dimension][1])
        if named[name]:
            numbers = np.array([scales[dimension][0] for dimension in named[name]], np.int32)
            written.attrs["_Netcdf4Coordinates"], written.attrs["_Netcdf4Dimid"] = numbers, numbers[0]
        if values.dtype.kind == "f":
            written.attrs["_FillValue"] = np.full(1, np.nan, values.dtype)
        _set_attributes(written, {**group.variables[name].attrs, **more})
    return axes


def _dimensions(name: str, values: Array, group: Group) -> list[str]:
    """Return the names of the dimensions of an array as it is stored; bytes have one more, of their length."""
    own = [f"{name}_{axis}" for axis in range(group.variables[name].values.ndim)]
    return own if values.ndim == len(own) else [*own, f"string{values.shape[-1]}"]


def _write_scale(place: h5py.Group, name: str, length: int, number: int) -> Any:
    growing = {} if length else {"maxshape": (None,)}
    scale = place.create_dataset(name, (length,), ">f4", track_order=True, **growing)
    scale.attrs["_Netcdf4Dimid"] = np.int32(number)
    scale.make_scale(f"{NO_VARIABLE}{length:10}")
    return scale


def _typed(values: Array) -> dict[str, Any]:
    import h5py

    if values.dtype.kind == "O":
        return {"dtype": h5py.string_dtype()}
    return {"dtype": values.dtype, "fillvalue": np.nan if values.dtype.kind == "f" else None}


def _set_attributes(place: Any, attributes: Attributes) -> None:
    for name, value in attributes.items():
        place.attrs[name] = value if isinstance(value, str) else np.atleast_1d(value)


def _attributes(place: Any) -> Attributes:
    """Return the attributes that were given, without those of the format; one number is a number."""
    found = {}
    for name in place.attrs:
        if name not in OURS and not name.startswith(("_Netcdf4", "_NCProperties")):
            value = place.attrs[name]
            found[name] = value[0] if np.shape(value) == (1,) else value
    return found


def _read_array(stored: h5py.Dataset) -> Variable:
    import h5py

    attributes = _attributes(stored)
    values = stored.asstr()[()] if h5py.check_string_dtype(stored.dtype) and stored.dtype.kind == "O" else stored[()]
    return Variable(_decode(np.asarray(values), attributes), attributes)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


# --- what NetCDF has no type for -------------------------------------------------------------------------


def _encode(values: Array) -> tuple[Array, Attributes]:
    """Return values of a type that NetCDF has, and attributes that say what they were."""
    kind = values.dtype.kind
    if kind == "b":
        return values.astype(np.int8), {"dtype": "bool"}
    if kind == "S":
        return np.ascontiguousarray(values).view("S1").reshape(*values.shape, -1), {}
    if kind in "mM":
        fine = values.astype(f"{kind}8[{_at_most_seconds(values.dtype)}]")
        unit = next(unit for unit, code in UNITS.items() if _same(fine, fine.astype(f"{kind}8[{code}]")))
        numbers = fine.astype(f"{kind}8[{UNITS[unit]}]").astype(np.int64)
        if kind == "m":
            return numbers, {"units": unit, "dtype": fine.dtype.name}
        return numbers, {"units": f"{unit} since 1970-01-01 00:00:00", "calendar": "proleptic_gregorian"}
    return values.astype(values.dtype.newbyteorder("="), copy=False), {}


def _at_most_seconds(kind: np.dtype[Any]) -> str:
    """Return the unit of dates or durations, or seconds if it is longer, as xarray has them."""
    unit = np.datetime_data(kind)[0]
    return unit if unit in ("ms", "us", "ns") else "s"


def _same(one: Array, two: Array) -> bool:
    return bool(((one == two) | np.isnat(one)).all())


def _decode(values: Array, attributes: Attributes) -> Array:
    """Return values of the type that they had; remove the attributes that say so."""
    if values.dtype == "S1" and values.ndim > 1:
        return values.view(f"S{values.shape[-1]}").reshape(values.shape[:-1])
    if "units" not in attributes:
        return values.astype(attributes.pop("dtype")) if "dtype" in attributes else values
    unit, _, origin = attributes.pop("units").partition(" since ")
    durations = values.astype(np.int64).astype(f"m8[{UNITS[unit]}]")
    if not origin:
        return durations.astype(attributes.pop("dtype"))
    del attributes["calendar"]
    return np.datetime64(origin) + durations
