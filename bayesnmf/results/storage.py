"""Save fits and other results to NetCDF or Zarr files, in the layout of `bayesnmf.results.codec`, and load them.

A NetCDF file is sealed by a digest at its end, which is compared before anything reads the file. HDF5 takes a damaged
file for what it says: a flipped bit may send it through the file for ever. It ignores what follows the end that a file
declares, so that other tools read a sealed file as any other.
"""

from __future__ import annotations

import hashlib
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from bayesnmf.checks import check_choice, check_count, check_path
from bayesnmf.needs import needed_for
from bayesnmf.options import FOREIGN, METHODS, methods_with
from bayesnmf.priors import Distribution
from bayesnmf.priors.checks import check_family
from bayesnmf.priors.specification import MODELS
from bayesnmf.results.codec import (
    CSR,
    ELSEWHERE,
    FIT,
    VERSION,
    CountsElsewhereError,
    Group,
    Groups,
    UnknownClassError,
    Variable,
    decode,
    encode,
    size_of,
)
from bayesnmf.results.earlier_files import VERSIONS, decode_earlier
from bayesnmf.results.estimates import Variation
from bayesnmf.results.netcdf import from_netcdf, to_netcdf
from bayesnmf.results.record import FitRecord
from bayesnmf.writing import replacing, write_bytes

if TYPE_CHECKING:
    import xarray as xr

SUFFIXES = (".nc", ".zarr")
KINDS = {f"bayesnmf.{kind}": kind for kind in (FIT, *ELSEWHERE)}  # what a file is of, by its format
SEALED = 6  # the version of fits from which on NetCDF files end with a digest of all of it
BESIDE = {  # kinds of intervals, and what they can be beside
    "sampled": ("mean field",),
    "linear response": ("mean field",),
    "bootstrap": ("mean field", "point"),
}
LARGEST_NETCDF = 2**30  # bytes; NetCDF files are made in memory, since HDF5 on a full disk ends the interpreter


def save(result: Any, path: str | os.PathLike[str]) -> None:
    """Write a fit or another result to a NetCDF file (`.nc`) or a Zarr store (`.zarr`, needs zarr).

    An older file at this path is replaced only once the new one is complete. `load` returns the same result bit by bit,
    with two exceptions: a start given as a `Fit` becomes the equivalent `Start`, and names that are not text, numbers
    or dates become text.

    Raises
    ------
    ValueError
        The path has another suffix, or something other than a fit exists at this path.
    OSError
        The file cannot be written.
    """
    target = Path(os.path.realpath(check_path(path, "path")))
    _check_target(target, _suffix(target))
    _write(encode(result, target.parent), target)


def save_by_size(fit: FitRecord, path: Path) -> None:
    """Write a fit to a NetCDF file or, if it is too large for one, to a Zarr store with the same name.

    Raises
    ------
    ImportError
        The fit is too large for NetCDF, and zarr is not installed.
    OSError, ValueError
        As `save`.
    """
    groups = encode(fit, path.parent)
    target = path_by_size(size_of(groups), path)
    _check_target(target, _suffix(target))
    _write(groups, target)


def _write(groups: Groups, path: Path) -> None:
    """Write the groups of a fit; in NetCDF, counts are compressed, and the end is a digest of the content."""
    if path.suffix.lower() == ".zarr":
        write_tree(_as_tree(groups), path)
        return
    _check_size(size_of(groups), path)
    with to_netcdf(groups, CSR) as content:  # released here: a traceback that kept it would end the interpreter
        write_bytes(path, content, seal_of(content))


def path_by_size(size: int, path: Path) -> Path:
    """Return the path of a NetCDF file, or of a Zarr store of the same name for more bytes than NetCDF allows here."""
    return path if size <= LARGEST_NETCDF else path.with_suffix(".zarr")


def write_tree(tree: xr.DataTree, path: Path) -> None:
    """Write a tree to a NetCDF file (`.nc`) or a Zarr store (`.zarr`); replace an older one once the new is complete.

    Parameters
    ----------
    tree : DataTree
    path : Path
        Path of the file. A NetCDF file is made in memory, which needs memory of the size of the file.

    Raises
    ------
    ValueError
        The tree is too large for NetCDF.
    OSError
        The file cannot be written.
    """
    if path.suffix.lower() == ".zarr":
        with replacing(path) as temporary, _own_locks():
            tree.to_zarr(temporary, mode="w-", consolidated=False)
        return
    _check_size(tree.nbytes, path)
    with _own_locks(), memoryview(tree.to_netcdf(None, engine="h5netcdf")) as content:
        write_bytes(path, content)


def _check_size(size: int, path: Path) -> None:
    if size > LARGEST_NETCDF:
        raise ValueError(
            f"{path} must be below {LARGEST_NETCDF / 2**30:.1f} GiB, since NetCDF files are made in memory: this one "
            f"would take {size / 2**30:.1f} GiB; save to {path.with_suffix('.zarr').name}, a Zarr store, instead"
        )


def read_fit(path: str | os.PathLike[str]) -> FitRecord:
    """Return the fit in a file that `save` wrote; refuse a file of another result."""
    found = read_saved(path)
    if not isinstance(found, FitRecord):
        raise ValueError(
            f"{path} must be a fit that Fit.save wrote: found {type(found).__name__}; read it with bayesnmf.load"
        )
    return found


def read_saved(path: str | os.PathLike[str]) -> Any:
    """Return the fit or the other result in a file; see `bayesnmf.load`."""
    source = check_path(path, "path")
    suffix = _suffix(source)
    if not source.exists():
        raise FileNotFoundError(f"there is no {source}; check the path (now in {Path.cwd()})")
    if source.is_dir() != (suffix == ".zarr"):
        form = "a directory, as Zarr stores are" if suffix == ".zarr" else "a file, not a directory"
        raise ValueError(f"{source} must be {form}; give the path that was given to save")
    whole = is_whole(source) if suffix == ".nc" else None
    if whole is False:
        raise _damaged_file_error(source, ValueError("its content is not that of its checksum"))
    try:
        groups = _read(source, suffix)
    except (ImportError, MemoryError, PermissionError):
        raise
    except Exception as error:  # readers raise many types of exceptions for damaged files
        raise _damaged_file_error(source, error) from error
    about = groups["/"].attrs
    _check_format(about, source)
    kind, version = KINDS[about["format"]], about["format_version"]
    if suffix == ".nc" and whole is None and (kind != FIT or version >= SEALED):
        raise _damaged_file_error(source, ValueError("its end, a checksum of its content, is missing"))
    try:
        earlier = version <= VERSIONS[kind]
        found = decode_earlier(groups, kind, source.parent) if earlier else decode(groups, source.parent)
        if isinstance(found, FitRecord):
            check_saved_fit(found)
    except (CountsElsewhereError, UnknownClassError):
        raise
    except Exception as error:  # decoding also raises many types of exceptions
        raise _damaged_file_error(source, error) from error
    if kind == FIT:
        _warn_of_older(version, source)
    return found


def _warn_of_older(version: int, path: Path) -> None:
    """Warn of files of versions that lack a checksum of something."""
    lacks = {1: "without a checksum of its settings, so that damage to them would not be seen",
             5: "with a digest of the sums of its counts on disk alone, which other counts may share"}  # fmt: skip
    if version in lacks:
        warnings.warn(
            f"{path} is unchecked in part: an earlier version of bayesnmf wrote it {lacks[version]}; save it again",
            UserWarning,
            skip_file_prefixes=(str(Path(__file__).parents[1]),),
        )


@contextmanager
def _own_locks() -> Iterator[None]:
    """Let xarray use locks of this process: with an active Dask client it asks the cluster for one, and may fail."""
    if "distributed" not in sys.modules:
        yield
        return
    import dask

    with dask.config.set(scheduler="threads"):
        yield


# --- files -----------------------------------------------------------------------------------------


def _suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(
            f"{path} must end in {' or '.join(SUFFIXES)}, as files of fits do; make one with "
            "fit.save, or with `bayesnmf fit` on the command line"
        )
    if suffix == ".zarr":
        with needed_for("a Zarr store"):
            import xarray  # noqa: F401
        try:
            import zarr  # noqa: F401
        except ImportError as error:
            raise ImportError(
                f"{path} is a Zarr store, which needs zarr: pip install 'bayesnmf[files]', or use .nc"
            ) from error
    return suffix


def _check_target(path: Path, suffix: str) -> None:
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no directory {path.parent} to write {path.name} in; make it first")
    store = suffix == ".zarr" and (path / "zarr.json").is_file()
    if path.exists() and not store and (suffix == ".zarr" or path.is_dir()):
        form = "Zarr store" if suffix == ".zarr" else "file"
        raise ValueError(f"{path} must be a {form}, to be replaced, or not exist; choose another path")


def _check_format(about: dict[str, Any], path: Path) -> None:
    if about.get("format") not in KINDS:
        raise ValueError(
            f"{path} must be a fit that Fit.save wrote, but it is another kind of file; read trees of draws with "
            "arviz.from_netcdf or arviz.from_zarr"
        )
    version: Any = about.get("format_version")
    version = version.item() if hasattr(version, "item") else version
    if not isinstance(version, int | np.integer) or version < 1:
        raise _damaged_file_error(
            path, ValueError(f"its format version must be a whole number from 1: found {version!r}")
        )
    if version > VERSION:
        raise ValueError(
            f"{path} must have format version {VERSION} or lower: found {version}, written by "
            f"bayesnmf {about.get('bayesnmf_version')}; upgrade bayesnmf"
        )


def _damaged_file_error(path: Path, error: Exception) -> ValueError:
    about = f"{type(error).__name__}: {str(error).strip()}"
    return ValueError(f"{path} must be a whole file that Fit.save wrote: {about}; save the fit again")


def _read(path: Path, suffix: str) -> Groups:
    if suffix == ".nc":
        return from_netcdf(path)
    import xarray as xr

    with _own_locks(), xr.open_datatree(path, engine="zarr", consolidated=False, zarr_format=3) as tree:
        return _as_groups(tree.load())


def _as_tree(groups: Groups) -> xr.DataTree:
    """Return the tree of some groups, with dimensions of each array's own."""
    import xarray as xr

    def named(name: str, variable: Variable) -> xr.Variable:
        return xr.Variable([f"{name}_{axis}" for axis in range(variable.values.ndim)], *variable)

    return xr.DataTree.from_dict(
        {
            path: xr.Dataset({name: named(name, each) for name, each in group.variables.items()}, attrs=group.attrs)
            for path, group in groups.items()
        }
    )


def _as_groups(tree: xr.DataTree) -> Groups:
    def read(group: xr.DataTree) -> Group:
        found = {str(name): Variable(each.to_numpy(), each.attrs) for name, each in group.variables.items()}
        return Group(found, {str(name): value for name, value in group.attrs.items()})

    return {group.path: read(group) for group in tree.subtree}


MARK = b"bayesnmf sha256:"
CHUNK = 2**22


def seal_of(content: bytes | memoryview) -> bytes:
    """Return what follows the content of a file."""
    return MARK + hashlib.sha256(content).digest()


def is_whole(path: Path) -> bool | None:
    """Return whether a file is as it was sealed; None for one that has no seal."""
    length = len(MARK) + hashlib.sha256().digest_size
    left = path.stat().st_size - length
    if left < 0:
        return None
    digest = hashlib.sha256()
    with path.open("rb") as file:
        file.seek(left)
        seal = file.read(length)
        if not seal.startswith(MARK):
            return None
        file.seek(0)
        while left and (chunk := file.read(min(CHUNK, left))):
            digest.update(chunk)
            left -= len(chunk)
    return seal[len(MARK) :] == digest.digest()


# --- checks of fits that were read -----------------------------------------------------------------------


def check_saved_fit(fit: FitRecord) -> None:
    """Refuse a fit of a file whose settings are of the wrong type or out of range, or do not match its arrays."""
    check_choice(fit.model, "model", MODELS)
    check_choice(fit.method, "method", METHODS | FOREIGN)
    check_count(fit.rank, "rank")
    check_count(fit.seed, "seed", minimum=0)
    expected = fit.by.options
    if type(fit.options) is not expected:
        raise ValueError(f"options must be {expected.__name__} for {fit.method}: found {type(fit.options).__name__}")
    converged, reason, iterations = fit.status
    if not (isinstance(converged, bool) and isinstance(reason, str) and _is_number(iterations, Integral)):
        raise ValueError(f"status must be a flag, a reason and a number of iterations: found {list(fit.status)}")
    beside = {} if fit.intervals is None else {**vars(fit.intervals), "kind": 0, "draws": 0, "variation": 0}
    for name, value in {"seconds": fit.seconds, **fit.diagnostics, **beside}.items():
        if not _is_number(value, Real):
            raise ValueError(f"{name} must be a number: found {value!r}")
    if fit.intervals is not None:
        check_choice(fit.intervals.variation, "variation", get_args(Variation))
    check_saved_shapes(fit)


def check_saved_shapes(fit: Any) -> None:
    """Refuse a fit with arrays that do not match its counts, rank, model and method."""
    n, m = fit.counts.shape
    rank = fit.rank
    scaled = MODELS[fit.model].loadings == "scaled simplex"
    _check_shape(fit.loadings, (n, rank), "loadings")
    _check_shape(fit.components, (rank, m), "components")
    _check_shape(fit.scale, (n,) if scaled else None, "scale")
    _check_shape(fit.component_names, None if fit.component_names is None else (rank,), "component_names")
    check_family(fit.model, "loadings", fit.priors.loadings, (n, rank))
    check_family(fit.model, "components", fit.priors.components, (rank, m))
    if fit.multipliers is not None:
        _check_shape(fit.multipliers[0], (n, rank), "multipliers of loadings")
        _check_shape(fit.multipliers[1], (rank, m), "multipliers of components")
    for name, values in (fit.moments or {}).items():
        _check_shape(values, np.shape(getattr(fit, name.split("_")[0])), f"moments[{name!r}]")
    posterior = fit.estimate
    if (posterior.kind == "point") != (fit.by.posterior == "point"):
        others = " and ".join(methods_with("point"))
        raise ValueError(f"a posterior belongs to every method but {others}: this fit is by {fit.method}")
    beside = None if fit.intervals is None else fit.intervals.draws
    for side, shape in (("loadings", (n, rank)), ("components", (rank, m))):
        _check_posterior_shape(getattr(posterior, side, None), shape, f"posterior.{side}")
        _check_posterior_shape(getattr(beside, side, None), shape, f"intervals.{side}")
    if beside is not None and posterior.kind not in BESIDE.get(fit.intervals.kind, ()):
        able = [kind for kind, of in BESIDE.items() if posterior.kind in of]
        raise ValueError(f"intervals beside a {posterior.kind} are {' or '.join(able)}: found {fit.intervals.kind!r}")


def _check_posterior_shape(side: Any, shape: tuple[int, int], name: str) -> None:
    """Refuse draws (chains, draws, rows, columns) or parameters that do not match the shape of a side."""
    if isinstance(side, np.ndarray):
        _check_shape(side, (*side.shape[:2], *shape), name)
    for parameter, value in side.parameters.items() if isinstance(side, Distribution) else ():
        given, size = np.shape(value), side.sizes(shape)[parameter]
        if len(given) != 2 or any(length not in (1, full) for length, full in zip(given, size, strict=True)):
            raise ValueError(f"{name}.{parameter} must broadcast to {size}: found shape {given}")


def _check_shape(array: Any, shape: tuple[int, ...] | None, name: str) -> None:
    found = None if array is None else np.shape(array)
    if found != shape:
        raise ValueError(f"{name} must have shape {shape}: found {found}")


def _is_number(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)
