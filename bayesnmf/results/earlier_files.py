"""Read files of fits of the format versions 1 to 9, and of assignments of version 1.

Groups: `point`, `trace`, `posterior` (the parameters of q, or the draws), `priors`, `counts` (CSR, with names) and, if
the fit has them, `options/priors`, `start`, `multipliers`, `statistics` and `moments`. Values that are not arrays are
JSON in the attribute `settings`. What a version added:

| version | what |
|--:|---|
| 2 | checksums of the settings and of all parts; files of version 1 have neither, so only their shapes are checked |
| 3 | exposures of rows and features |
| 4 | names of components |
| 5 | counts on disk, known by a digest of the sums of rows and features |
| 6 | a digest at the end of NetCDF files; counts on disk known by a digest of every count |
| 7 | group `intervals` |
| 8 | a noise other than Poisson, missing entries |
| 9 | several matrices; batches |
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csc_array, csr_array

from bayesnmf.data.batches import Batches
from bayesnmf.data.blocks.counts import BlockedCounts
from bayesnmf.data.counts import Counts
from bayesnmf.data.mask import Mask
from bayesnmf.data.several import Matrices, SeveralCounts
from bayesnmf.inference.status import Status
from bayesnmf.noise.abilities import FeatureGroups, Noise
from bayesnmf.noise.poisson import POISSON
from bayesnmf.noise.words import kinds
from bayesnmf.options import Options, Start
from bayesnmf.priors import Gamma, Priors
from bayesnmf.priors.families import FAMILIES
from bayesnmf.results.batches import FittedBatches
from bayesnmf.results.codec import (
    CSR,
    FIT,
    Groups,
    checked_settings,
    class_elsewhere,
    classes,
    decode_array,
    stored_matrix,
    table_of,
)
from bayesnmf.results.estimates import Draws, Intervals, Point, VariationalPosterior
from bayesnmf.results.record import FitRecord

VERSIONS = {FIT: 9, "Assignment": 1}  # the last ones, by what files are of
BY_SUMS = 5  # the version with another fingerprint of counts on disk
NOISES = {"quasi": "Quasi"}  # names of noises in the first files that have one


def decode_earlier(groups: Groups, kind: str, near: Path) -> Any:
    """Return the fit, or the result of another kind, in a file of an earlier version in the folder `near`."""
    settings = checked_settings(groups)
    if kind == FIT:
        return _fit_of(groups, settings, near)
    tables = {path[1:]: _field_of(groups, path) for path in groups if path != "/"}
    return class_elsewhere(kind)(**settings["fields"], **tables)


def _fit_of(groups: Groups, settings: dict[str, Any], near: Path) -> FitRecord:
    priors = Priors(**_sides(groups, "/priors"))
    multipliers = _arrays(groups, "/multipliers")
    more = {
        "status": Status(*settings.pop("status")),
        "options": _options_of(groups, settings.pop("options"), priors),
        "counts": _counts_of(groups, near, by_sums=groups["/"].attrs["format_version"] == BY_SUMS),
        "intervals": _intervals_of(groups, settings.pop("intervals", None)),
        "noise": _noise_of(groups, settings.pop("noise", None)),
        "batch": _batch_of(groups, settings.pop("batch", None)),
    }
    return FitRecord(
        **{"scale": None, **_arrays(groups, "/point"), **_arrays(groups, "/trace"), **settings, **more},
        priors=priors,
        estimate=_estimate_of(groups),
        multipliers=(multipliers["loadings"], multipliers["components"]) if multipliers else None,
        statistics=_arrays(groups, "/statistics") or None,
        moments=_arrays(groups, "/moments") or None,
    )


def _arrays(groups: Groups, path: str) -> dict[str, Any]:
    """Return the arrays of a group by name; none if there is no such group."""
    return {name: decode_array(name, each) for name, each in groups[path].variables.items()} if path in groups else {}


def _sides(groups: Groups, path: str) -> dict[str, Any]:
    return {side: _value(groups, f"{path}/{side}") for side in ("loadings", "components")}


def _value(groups: Groups, path: str) -> Any:
    """Return the distribution, draws, proportions with a scale, array, word or None of a group."""
    about, parts = dict(groups[path].attrs), _arrays(groups, path)
    kind = about.pop("kind")
    if kind in ("None", "word", "array"):
        return {"None": None, "word": about.get("word"), "array": parts.get("value")}[kind]
    if kind in FAMILIES:
        return FAMILIES[kind].of_parameters(parts, about)
    return classes()[kind](**parts)


def _counts_of(groups: Groups, near: Path, *, by_sums: bool) -> Counts:
    parts, about = _arrays(groups, "/counts"), groups["/counts"].attrs
    names = parts["row_names"], parts["feature_names"]
    shape = (len(names[0]), len(names[1]))
    more: dict[str, Any] = {name: parts.get(name) for name in ("row_exposure", "feature_exposure")}
    if "mask_indices" in parts:
        indices, indptr = parts["mask_indices"], parts["mask_indptr"]
        pattern = csr_array((np.ones(len(indices)), indices, indptr), shape=shape)
        more["mask"] = Mask(pattern, bool(about["mask_of_missing"]))
    if "batch_codes" in parts:
        given = about.get("batch_shape")
        more["batch"] = Batches(parts["batch_names"], parts["batch_codes"], None if given is None else float(given))
    if "folder" in about:
        place = about["folder"], about["fingerprint"], int(about["nonzeros"]), about["dtype"]
        return BlockedCounts(stored_matrix(*place, near, by_sums=by_sums), *names, **more)
    matrix = csr_array(tuple(parts[name] for name in CSR), shape=shape)
    if "matrices" in parts:
        of_matrices, *others = (
            parts[name] for name in ("matrices", "matrix_of_feature", "own_feature_names", "weights")
        )
        told = Matrices(tuple(map(str, of_matrices)), *others)
        return SeveralCounts(matrix, *names, **more, matrices=told, has=parts.get("has_rows"))
    return Counts(matrix, *names, **more)


def _options_of(groups: Groups, about: dict[str, Any], priors: Priors) -> Options:
    values = dict(about["values"])
    if "/start" in groups:
        values["start"] = Start(**_sides(groups, "/start"))
    if "/options" in groups:
        priors = Priors(**_sides(groups, "/options/priors"))
    made: Options = classes()[about["kind"]](priors=priors, **values)
    return made


def _estimate_of(groups: Groups) -> Any:
    if "/posterior/loadings" in groups:
        return VariationalPosterior(**_sides(groups, "/posterior"))
    return _value(groups, "/posterior") or Point()


def _intervals_of(groups: Groups, about: dict[str, Any] | None) -> Intervals | None:
    return None if about is None else Intervals(draws=Draws(**_arrays(groups, "/intervals")), **about)


def _noise_of(groups: Groups, about: dict[str, Any] | None) -> Noise:
    if about is None:
        return POISSON
    told = {**about, **_arrays(groups, "/noise")}
    if "codes" in told:
        told["groups"] = FeatureGroups(told.pop("codes"), told.pop("given"))
    kind = told.pop("kind")
    return kinds()[NOISES.get(kind, kind)](**told)


def _batch_of(groups: Groups, about: dict[str, Any] | None) -> FittedBatches | None:
    if about is None:
        return None
    parts = _arrays(groups, "/batch")
    q = Gamma(parts["q_shape"], parts["q_rate"]) if "q_shape" in parts else None
    return FittedBatches(parts["names"], float(about["shape"]), parts["mean"], q, bool(about["learned"]))


def _field_of(groups: Groups, path: str) -> Any:
    """Return the table, the sparse matrix or the array of a group."""
    parts, kind = _arrays(groups, path), groups[path].attrs["kind"]
    if kind == "table":
        return table_of(**{name.removeprefix("column "): each for name, each in parts.items()})
    if kind == "csc":
        return csc_array(tuple(parts[name] for name in CSR), shape=tuple(parts["shape"].tolist()))
    return parts["value"]
