"""Files that h5py alone writes are those that xarray writes, part by part, and each reads what the other wrote."""

from dataclasses import replace
from io import BytesIO
from pathlib import Path

import h5py
import numpy as np
import pytest
import smallfits
import xarray as xr
from sameness import same
from suites import mostly_long

import bayesnmf
from bayesnmf.fitting.fitted import Fit
from bayesnmf.results import storage
from bayesnmf.results.codec import decode, encode
from bayesnmf.results.netcdf import from_netcdf, to_netcdf

pytestmark = smallfits.quietly

NAMES = {  # of 12 rows and 9 features
    "text and flags": (np.array([f"séq {i}" for i in range(12)]), np.arange(9) % 2 == 0),
    "dates and bytes": (np.arange(12).astype("datetime64[D]").astype("datetime64[ns]"), np.arange(9).astype("S2")),
    "durations and fractions": (np.arange(12).astype("timedelta64[h]"), np.arange(9) / 8),
}
# Far apart, with NaT, and in every unit; xarray counts from the first of them, and overflows for some.
TIMES = [
    np.array(["1700-01-01", "2200-01-01", *["NaT"] * 10], "datetime64[ns]"),
    np.array(["1000-01-01", "3000-06-01", *["2020-01-01"] * 10], "datetime64[D]"),
    (np.arange(12) * 3601).astype("datetime64[s]"),
    (10**17 + np.arange(12)).astype("datetime64[ns]"),
    np.array(["NaT", "2020-01-01T00:00:00.5", *["1970-01-01"] * 10], "datetime64[ms]"),
    np.arange(12).astype("datetime64[Y]"),
    np.array(["NaT", *[7] * 11], "timedelta64[us]"),
]


CASES = mostly_long(list(zip(("map", "vi", "gibbs"), NAMES, strict=True)), 2)


def fit_of(method, names):
    fit = smallfits.fit("dirichlet_gamma" if method == "vi" else "gamma_poisson", method)
    rows, features = NAMES[names]
    return replace(fit, counts=replace(fit.counts, row_names=rows, feature_names=features))


def by_xarray(groups):
    packed = {name: {"zlib": True, "shuffle": True} for name in storage.CSR}
    return bytes(storage._as_tree(groups).to_netcdf(None, engine="h5netcdf", encoding={"/counts.matrix": packed}))


def parts_of(content):
    """Return all that a file says of its groups, arrays, dimensions and attributes, with their types."""
    parts = {}

    def add(name, item):
        about = {key: attribute_of(item, key) for key in item.attrs if key != "_NCProperties"}
        parts[name] = about
        if isinstance(item, h5py.Dataset):
            plan = item.id.get_create_plist()
            scales = [[scale.name for scale in axis.values()] for axis in item.dims]
            told = (item.compression, item.compression_opts, item.shuffle, item.chunks, item.fletcher32, scales)
            about[""] = (item.shape, item.maxshape, item.dtype.str, h5py.check_string_dtype(item.dtype), *told)
            fill = None if item.dtype.kind == "O" else item.fillvalue.item()
            about["plan"] = repr((plan.get_layout(), plan.get_fill_time(), plan.get_attr_creation_order(), fill))
            values = None if item.is_scale else item[()]
            about["values"] = values.tolist() if isinstance(values, np.ndarray) else repr(values)

    with h5py.File(BytesIO(content)) as file:
        add("/", file)
        file.visititems(add)
    return parts


def attribute_of(item, key):
    kept = h5py.h5a.open(item.id, key.encode())
    value = None if key.endswith("_LIST") else repr(item.attrs[key])  # lists hold references
    return kept.get_type().get_class(), kept.dtype.str, kept.shape, value


@pytest.mark.parametrize(("method", "names"), CASES)
def test_a_file_is_the_one_that_xarray_writes(method, names):
    groups = encode(fit_of(method, names), Path())
    ours, theirs = (parts_of(content) for content in (to_netcdf(groups, storage.CSR), by_xarray(groups)))
    assert len(ours) > 20
    assert list(ours) == list(theirs)
    for name in ours:
        assert ours[name] == theirs[name], name
    for content in (ours, theirs):
        assert content["counts.matrix/data"][""][4:7] == ("gzip", 4, True)


@pytest.mark.parametrize(("method", "names"), CASES)
def test_each_reads_what_the_other_wrote(method, names, tmp_path):
    fit = fit_of(method, names)
    fit.save(tmp_path / "ours.nc")
    groups = encode(fit, tmp_path)
    with xr.open_datatree(tmp_path / "ours.nc", engine="h5netcdf") as tree:
        assert tree.identical(storage._as_tree(groups))
        assert same(Fit.of(decode(storage._as_groups(tree.load()), tmp_path)), fit)
    (tmp_path / "theirs.nc").write_bytes(by_xarray(groups))
    assert same(Fit.of(decode(from_netcdf(tmp_path / "theirs.nc"), tmp_path)), fit)


def test_arrays_without_entries_are_read_by_both(tmp_path):
    fit = bayesnmf.fit(np.zeros((4, 3)), "gamma_poisson", 2, options=bayesnmf.VI(start="random", max_iter=2))
    fit.save(tmp_path / "fit.nc")
    with xr.open_datatree(tmp_path / "fit.nc", engine="h5netcdf") as tree:
        assert tree["counts.matrix"]["data"].shape == (0,)
        assert same(Fit.of(decode(storage._as_groups(tree.load()), tmp_path)), fit)


@pytest.mark.parametrize("times", TIMES, ids=lambda times: str(times.dtype))
def test_times_of_any_unit_are_kept(times, tmp_path):
    fit = smallfits.fit("gamma_poisson", "map")
    fit = replace(fit, counts=replace(fit.counts, row_names=times))
    fit.save(tmp_path / "fit.nc")
    assert same(bayesnmf.load(tmp_path / "fit.nc"), fit)


def test_files_that_xarray_wrote_before_this_version_load():
    """Of version 0.2.0: `bayesnmf.fit([[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]], rank=2, method="gibbs")`, named."""
    fit = bayesnmf.load(Path(__file__).parents[1] / "golden" / "version_7_gibbs.nc")
    assert fit.counts.matrix.toarray().tolist() == [[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]]
    assert fit.row_names.dtype == np.dtype("datetime64[ns]")
    assert fit.row_names.astype(str)[3].startswith("2020-01-04T00")
    assert fit.feature_names.tolist() == ["a", "b", "ç"]
    assert fit.posterior.loadings.shape == (1, 3, 4, 2)
    assert fit.method == "gibbs"
