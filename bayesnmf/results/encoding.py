"""Encode a fit as groups of arrays, the layout of saved files, and decode it.

Groups: `point`, `trace`, `posterior` (the parameters of q, or the draws), `priors`, `counts` (CSR, with names) and, if
the fit has them, `start`, `multipliers`, `statistics`, `moments` and, from version 7 on, `intervals`. Values that are
not arrays are JSON in the attribute `settings`. Every array has its type and a checksum as attributes, since files of
draws are long and missing parts of a Zarr store are read as zeros. The settings list all groups and arrays with their
attributes, and have their own checksum, so that missing or changed parts are detected; from version 6 on, NetCDF files
also end with a digest of all that is in them (`bayesnmf.results.storage`). Fits with a noise other than Poisson have it
among the settings, those of counts with missing entries have a mask among the counts, and both have version 8, so that
versions of the package which do not know these refuse them; fits of several matrices, and of counts in batches, which
have a group `batch`, have version 9. Files of version 1 have neither list nor checksum of the settings, so only their
shapes are checked.

Encode counts for a file: their numbers, or for counts on disk the folder that they are in.

The folder is named from the folder of the file or from the user's home, where it lies in one of them, so that both can
be moved together and a file says no more of a machine than it must. A folder that is not there is looked for by the
fingerprint of its counts: beside the file, beside the place that the file names, and in the user's cache.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path, PurePosixPath
from typing import Any
from zlib import crc32

import numpy as np
from scipy.sparse import csc_array, csr_array

import bayesnmf
from bayesnmf.data.batches import Batches
from bayesnmf.data.blocks.counts import BlockedCounts, StoredMatrix
from bayesnmf.data.blocks.opening import default_scratch
from bayesnmf.data.blocks.store import ABOUT, Store
from bayesnmf.data.counts import Counts
from bayesnmf.data.mask import Mask
from bayesnmf.data.several import Matrices, SeveralCounts
from bayesnmf.inference.status import Status
from bayesnmf.noise.abilities import FeatureGroups
from bayesnmf.noise.poisson import POISSON
from bayesnmf.noise.words import kinds
from bayesnmf.options import METHODS, Options, Start
from bayesnmf.priors import Gamma, Priors, ScaledProportions
from bayesnmf.priors.families import FAMILIES
from bayesnmf.results.batches import FittedBatches
from bayesnmf.results.estimates import Draws, Estimate, Intervals, Point, VariationalPosterior
from bayesnmf.results.record import FitRecord
from bayesnmf.results.saved_arrays import CSR, Group, Groups, as_python, decode_arrays, encode_arrays
from bayesnmf.results.saved_checks import (
    check_found_store,
    check_kept_by_json,
    check_saved_settings,
    check_saved_shapes,
)
from bayesnmf.types import Array

EXPOSURES = ("row_exposure", "feature_exposure")
MATRICES = ("matrices", "matrix_of_feature", "own_feature_names", "weights")
HAS = "has_rows"  # which rows each matrix has; files of earlier versions lack it
MASK = ("mask_indices", "mask_indptr")


def encode_counts(counts: Counts, near: Path) -> Group:
    """Return the group of counts, with names and exposures, for a file in the folder `near`."""
    names = {"row_names": counts.row_names, "feature_names": counts.feature_names}
    arrays, about = {**names, **{name: getattr(counts, name) for name in EXPOSURES}}, dict[str, Any]()
    if isinstance(counts, BlockedCounts):
        about |= {
            "folder": place_of(counts.store.folder, near), "fingerprint": counts.store.fingerprint,
            "nonzeros": counts.matrix.nonzeros, "dtype": counts.dtype.name,
        }  # fmt: skip
    else:
        arrays = {**{name: getattr(counts.matrix, name) for name in CSR}, **arrays}
    if isinstance(counts, SeveralCounts):
        told = counts.matrices
        values = np.array(told.names, dtype=object), told.codes, told.features, told.weights
        arrays |= {**dict(zip(MATRICES, values, strict=True)), HAS: counts.has}
    if counts.batch is not None:
        arrays |= {"batch_names": counts.batch.names, "batch_codes": counts.batch.codes}
        about |= {} if counts.batch.shape is None else {"batch_shape": counts.batch.shape}
    if counts.mask is not None:
        mask = counts.mask.as_entries
        arrays |= {name: getattr(mask.pattern, name.removeprefix("mask_")) for name in MASK}
        about |= {"mask_of_missing": int(mask.of_missing)}
    return encode_arrays(arrays, **about)


def decode_counts(group: Group, near: Path, *, by_sums: bool = False) -> Counts:
    """Return the counts of a group of a file in the folder `near`.

    With `by_sums`, the fingerprint of counts on disk is the older one, of the sums of their rows and features.
    """
    parts, about = decode_arrays(group), group.attrs
    names = parts["row_names"], parts["feature_names"]
    more: dict[str, Any] = {name: parts.get(name) for name in EXPOSURES}
    more |= {"mask": _mask_of(parts, about, (len(names[0]), len(names[1]))), "batch": _batches_of(parts, about)}
    if "folder" in about:
        place = Path(os.path.abspath(near / Path(about["folder"]).expanduser()))
        store = _find_store(place, about["fingerprint"], near, by_sums)
        stored = StoredMatrix(store, np.dtype(about["dtype"]), int(about["nonzeros"]), store.folder.parent)
        return BlockedCounts(stored, *names, **more)
    matrix = csr_array(tuple(parts[name] for name in CSR), shape=(len(names[0]), len(names[1])))
    if MATRICES[0] in parts:
        of_matrices, *others = (parts[name] for name in MATRICES)
        told = Matrices(tuple(str(each) for each in of_matrices), *others)
        return SeveralCounts(matrix, *names, **more, matrices=told, has=parts.get(HAS))
    return Counts(matrix, *names, **more)


def _batches_of(parts: dict[str, Any], about: Any) -> Batches | None:
    """Return the batches in a file; None if there are none."""
    if "batch_codes" not in parts:
        return None
    shape = about.get("batch_shape")
    return Batches(parts["batch_names"], parts["batch_codes"], None if shape is None else float(shape))


def _mask_of(parts: dict[str, Any], about: Any, shape: Any) -> Mask | None:
    """Return the mask in a file; None if no entry is missing."""
    if MASK[0] not in parts:
        return None
    indices, indptr = (parts[name] for name in MASK)
    return Mask(csr_array((np.ones(len(indices)), indices, indptr), shape=shape), bool(about["mask_of_missing"]))


def place_of(folder: Path, near: Path) -> str:
    """Return a folder as seen from the folder `near`, or from the user's home, or from the root."""
    folder, near, home = folder.resolve(), near.resolve(), Path.home().resolve()
    if folder.is_relative_to(near):
        return folder.relative_to(near).as_posix()
    if folder.is_relative_to(home) and home != Path(home.anchor):
        return f"~/{folder.relative_to(home).as_posix()}"
    together = folder.anchor == near.anchor and folder.parts[1:2] == near.parts[1:2]
    return Path(os.path.relpath(folder, near)).as_posix() if together else str(folder)


def _find_store(place: Path, fingerprint: str, near: Path, by_sums: bool) -> Store:
    """Return the store with a fingerprint, at a place or where else it may be."""
    for store in _stores_at(place, near):
        if (store.fingerprint_of_sums() if by_sums else store.fingerprint) == fingerprint:
            return store
    return check_found_store(place, near)


def _stores_at(place: Path, near: Path) -> Iterator[Store]:
    beside = (each for parent in (place.parent, near, default_scratch()) for each in sorted(parent.glob("counts-*")))
    for folder in [place, *(each for each in beside if each != place)]:
        if (folder / ABOUT).is_file():
            try:
                yield Store.open(folder)
            except ValueError:
                if folder == place:
                    raise


FORMAT, VERSION, NOISY, COMPLETE = "bayesnmf.Fit", 9, 8, 7
RECORD_VERSION = 1  # of the files of other results
SEALED = 6  # from this version on NetCDF files end with a digest of all of it
WORDS = {"quasi": "Quasi"}  # of noises in files before 0.3
RECORDS: dict[str, Any] = {kind.__name__: kind for kind in (ScaledProportions, Draws)}  # beside the families of priors


def encode_fit(fit: FitRecord, near: Path) -> Groups:
    """Return the groups of a file in the folder `near`, by path."""
    scalars = ("model", "method", "rank", "seed", "seconds", "diagnostics")
    plain = fit.noise == POISSON and fit.counts.mask is None
    settings, version = {name: getattr(fit, name) for name in scalars}, COMPLETE if plain else NOISY
    version = VERSION if isinstance(fit.counts, SeveralCounts) or fit.batch is not None else version
    settings |= {"status": list(fit.status), "options": _encode_options(fit.options), "format_version": version}
    about = {"format": FORMAT, "format_version": version, "bayesnmf_version": bayesnmf.__version__}
    point = {name: getattr(fit, name) for name in ("loadings", "components", "scale", "component_names")}
    groups = {
        "/point": encode_arrays(point),
        "/trace": encode_arrays({"trace": fit.trace, "residuals": fit.residuals}),
        "/counts": encode_counts(fit.counts, near),
        **_encode_sides("/priors", fit.priors),
        **({} if fit.options.priors is fit.priors else _encode_sides("/options/priors", fit.options.priors)),
        **_encode_start(fit),
        **_encode_estimate(fit.estimate),
        **_encode_multipliers(fit),
        **({} if fit.statistics is None else {"/statistics": encode_arrays(fit.statistics)}),
        **({} if fit.moments is None else {"/moments": encode_arrays(fit.moments)}),
    }
    if fit.intervals is not None:
        groups["/intervals"] = _encode_value(fit.intervals.draws)
        settings["intervals"] = {name: value for name, value in _fields(fit.intervals).items() if name != "draws"}
    if fit.noise != POISSON:
        noise = _fields(fit.noise)
        settings["noise"] = {"kind": type(fit.noise).__name__, **noise}
        parts = {name: value for name, value in noise.items() if name != "groups" and np.ndim(value)}
        settings["noise"] |= dict.fromkeys(parts)
        if (told := settings["noise"].pop("groups", None)) is not None:
            parts |= told._asdict()
        if parts:
            groups["/noise"] = encode_arrays(parts)
    if fit.batch is not None:
        own = {} if fit.batch.q is None else {f"q_{name}": value for name, value in fit.batch.q.parameters.items()}
        groups["/batch"] = encode_arrays({"names": fit.batch.names, "mean": fit.batch.mean, **own})
        settings["batch"] = {"shape": fit.batch.shape, "learned": fit.batch.learned}
    return _with_settings(groups, settings, about)


def _with_settings(groups: Groups, settings: dict[str, Any], about: dict[str, Any]) -> Groups:
    """Return the groups of a file: with their parents, and what they are and the settings as attributes of the root."""
    groups = _with_parents(groups)
    text = json.dumps({**settings, "parts": _describe_parts(groups)}, default=as_python)
    return {"/": Group({}, {**about, "settings": text, "settings_crc32": crc32(text.encode())}), **groups}


def _with_parents(groups: Groups) -> Groups:
    """Return groups with those that contain them."""
    found: Groups = {}
    for path, group in groups.items():
        for parent in reversed(PurePosixPath(path).parents[:-1]):
            found.setdefault(str(parent), Group({}, {}))
        found[path] = group
    return found


def decode_fit(groups: Groups, near: Path) -> FitRecord:
    """Return the fit in a file in the folder `near`; refuse a file with missing or changed parts."""
    settings = _decode_settings(groups)
    check_saved_settings(settings)
    status = Status(*settings.pop("status"))
    priors = Priors(**_decode_sides(groups, "/priors"))
    options = _decode_options(settings, groups, priors)
    intervals = _decode_intervals(settings.pop("intervals", None), groups)
    noise = settings.pop("noise", {"kind": type(POISSON).__name__})
    own: dict[str, Any] = decode_arrays(groups["/noise"]) if "/noise" in groups else {}
    if "codes" in own:
        own["groups"] = FeatureGroups(own.pop("codes"), own.pop("given"))
    batch = _decode_batch(settings.pop("batch", None), groups)
    fit = FitRecord(
        **{"scale": None, **decode_arrays(groups["/point"]), **decode_arrays(groups["/trace"]), **settings},
        status=status,
        priors=priors,
        options=options,
        counts=decode_counts(groups["/counts"], near, by_sums=groups["/"].attrs["format_version"] == 5),
        multipliers=_decode_multipliers(groups),
        statistics=decode_arrays(groups["/statistics"]) if "/statistics" in groups else None,
        moments=decode_arrays(groups["/moments"]) if "/moments" in groups else None,
        intervals=intervals,
        batch=batch,
        noise=kinds()[WORDS.get(kind := noise.pop("kind"), kind)](**{**noise, **own}),
        estimate=_decode_estimate(groups),
    )
    check_saved_shapes(fit)
    return fit


def _decode_settings(groups: Groups) -> dict[str, Any]:
    """Return the checked settings; refuse a file with missing, new or changed parts."""
    about = groups["/"].attrs
    text, version = about["settings"], about["format_version"]
    settings = json.loads(text)
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


def _encode_options(options: Options) -> dict[str, Any]:
    values = _fields(options)
    del values["priors"]
    if not isinstance(values.get("start"), str | None):
        del values["start"]
    return {"kind": type(options).__name__, "values": values}


def _decode_options(settings: dict[str, Any], groups: Groups, priors: Priors) -> Options:
    values = dict(settings.pop("options")["values"])
    if "/start" in groups:
        values["start"] = Start(**_decode_sides(groups, "/start"))
    if "/options" in groups:
        priors = Priors(**_decode_sides(groups, "/options/priors"))
    return METHODS[settings["method"]].options(priors=priors, **values)


def _encode_start(fit: FitRecord) -> Groups:
    """Return the groups of a given start; a start given as a word is stored with the options."""
    start = getattr(fit.options, "start", None)
    return _encode_sides("/start", start) if isinstance(start, Start) else {}


def _encode_estimate(estimate: Estimate) -> Groups:
    if isinstance(estimate, VariationalPosterior):
        return _encode_sides("/posterior", estimate)
    return {"/posterior": _encode_value(estimate if isinstance(estimate, Draws) else None)}


def _decode_estimate(groups: Groups) -> Any:
    if "/posterior/loadings" in groups:
        return VariationalPosterior(**_decode_sides(groups, "/posterior"))
    return _decode_value(groups["/posterior"]) or Point()


def _decode_intervals(about: Any, groups: Groups) -> Intervals | None:
    return None if about is None else Intervals(draws=_decode_value(groups["/intervals"]), **about)


def _decode_batch(about: Any, groups: Groups) -> FittedBatches | None:
    if about is None:
        return None
    parts = decode_arrays(groups["/batch"])
    q = Gamma(parts["q_shape"], parts["q_rate"]) if "q_shape" in parts else None
    return FittedBatches(parts["names"], float(about["shape"]), parts["mean"], q, bool(about["learned"]))


def _encode_multipliers(fit: FitRecord) -> Groups:
    if fit.multipliers is None:
        return {}
    return {"/multipliers": encode_arrays(dict(zip(("loadings", "components"), fit.multipliers, strict=True)))}


def _decode_multipliers(groups: Groups) -> tuple[Array, Array] | None:
    if "/multipliers" not in groups:
        return None
    parts = decode_arrays(groups["/multipliers"])
    return parts["loadings"], parts["components"]


def _encode_sides(group: str, pair: Priors | Start | VariationalPosterior) -> Groups:
    return {f"{group}/{side}": _encode_value(getattr(pair, side)) for side in ("loadings", "components")}


def _decode_sides(groups: Groups, group: str) -> dict[str, Any]:
    return {side: _decode_value(groups[f"{group}/{side}"]) for side in ("loadings", "components")}


def _encode_value(value: Any) -> Group:
    """Return the group of a distribution, draws, proportions with a scale, an array, a word or None."""
    kind = type(value).__name__
    if kind in FAMILIES or kind in RECORDS:
        if kind in FAMILIES:
            return encode_arrays({**value.parameters, **value.constants}, kind=kind, **value.settings)
        parts = value._asdict() if isinstance(value, ScaledProportions) else _fields(value)
        return encode_arrays(parts, kind=kind)
    if value is None or isinstance(value, str):
        return encode_arrays({}, kind="None" if value is None else "word", word=value or "")
    return encode_arrays({"value": np.asarray(value)}, kind="array")


def _fields(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _decode_value(group: Group) -> Any:
    kind = group.attrs["kind"]
    if kind in ("None", "word"):
        return group.attrs["word"] if kind == "word" else None
    parts = decode_arrays(group)
    if kind not in {**FAMILIES, **RECORDS, "array": None}:
        raise ValueError(f"the prior {kind} is not in bayesnmf.priors.families.FAMILIES; add it there before loading")
    if kind in FAMILIES:
        return FAMILIES[kind].of_parameters(parts, {name: v for name, v in group.attrs.items() if name != "kind"})
    return parts["value"] if kind == "array" else RECORDS[kind](**parts)


# --- other results: data classes of arrays, tables and what JSON keeps ------------------------------------


def encode_record(record: Any) -> Groups:
    """Return the groups of the file of a result other than a fit: one for each field that is an array or a table."""
    groups, settings = dict[str, Group](), dict[str, Any]()
    for name, value in _fields(record).items():
        if hasattr(value, "columns"):
            parts = {f"column {number}": value.iloc[:, number].to_numpy() for number in range(value.shape[1])}
            names = {"index": value.index.to_numpy(), "columns": value.columns.to_numpy()}
            groups[f"/{name}"] = encode_arrays({**names, **parts}, kind="table")
        elif isinstance(value, csc_array):
            parts = {each: getattr(value, each) for each in CSR}
            groups[f"/{name}"] = encode_arrays({**parts, "shape": np.array(value.shape)}, kind="csc")
        elif isinstance(value, np.ndarray):
            groups[f"/{name}"] = encode_arrays({"value": value}, kind="array")
        else:
            settings[name] = check_kept_by_json(name, value)
    version = {"format_version": RECORD_VERSION}
    about = {"format": format_of(type(record)), **version, "bayesnmf_version": bayesnmf.__version__}
    return _with_settings(groups, {"fields": settings, **version}, about)


def format_of(kind: type) -> str:
    """Return the word by which files say of what class their result is."""
    return f"bayesnmf.{kind.__name__}"


def decode_record[T](groups: Groups, kind: type[T]) -> T:
    """Return the result in a file; refuse a file with missing or changed parts."""
    found = dict(_decode_settings(groups)["fields"])
    for path, group in groups.items():
        if path != "/":
            found[path[1:]] = _decode_field(decode_arrays(group), group.attrs["kind"])
    return kind(**found)


def _decode_field(parts: dict[str, Any], kind: str) -> Any:
    if kind == "table":
        import pandas as pd

        columns = {number: parts[f"column {number}"] for number in range(len(parts["columns"]))}
        return pd.DataFrame(columns, index=parts["index"]).set_axis(parts["columns"], axis=1)
    if kind == "csc":
        return csc_array(tuple(parts[each] for each in CSR), shape=tuple(parts["shape"].tolist()))
    return parts["value"]
