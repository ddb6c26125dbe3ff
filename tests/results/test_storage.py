"""What is saved comes back the same in every bit, and a file that is no fit is refused by name, rule and cure."""

import json
import os
import shutil
from dataclasses import replace
from zlib import crc32

import numpy as np
import pandas as pd
import pytest
import smallfits
import xarray as xr
from sameness import same
from smallfits import OPTIONS, quietly
from suites import mostly_long

import bayesnmf
from bayesnmf import NUTS, SVI, VI, Dirichlet, Gamma, Priors, Start, writing
from bayesnmf.results import storage
from bayesnmf.results.codec import CSR, decode, encode

pytestmark = quietly

COUNTS = smallfits.COUNTS.to_numpy()


def fit(model="gamma_poisson", method="vi", counts=None, options=None):
    if counts is None and options is None:
        return smallfits.fit(model, method)
    counts = smallfits.COUNTS if counts is None else counts
    return bayesnmf.fit(counts, model, 3, method, seed=0, options=options or OPTIONS[method])


def round_trip(fitted, path):
    fitted.save(path)
    return bayesnmf.load(path)


@pytest.mark.parametrize(
    ("model", "method"),
    [("poisson", "map"), ("gamma_poisson", "gibbs"), ("dirichlet_poisson", "vi"), ("hierarchical_poisson", "vi")],
)
def test_a_loaded_fit_is_the_saved_one(model, method, tmp_path):
    fitted = fit(model, method)
    loaded = round_trip(fitted, tmp_path / "fit.nc")
    assert same(fitted, loaded)
    assert repr(loaded) == repr(fitted)
    assert os.listdir(tmp_path) == ["fit.nc"]


@pytest.mark.parametrize(
    ("method", "suffix"), mostly_long([("vi", ".nc"), ("gibbs", ".zarr"), ("map", ".nc"), ("vi", ".zarr")], 2)
)
def test_a_loaded_fit_works_as_before(method, suffix, tmp_path):
    fitted = fit("dirichlet_gamma", method)
    loaded = round_trip(fitted, tmp_path / f"fit{suffix}")
    assert same(fitted, loaded)
    if suffix == ".nc":
        assert same(fitted.project(COUNTS[:4], seed=3).loadings, loaded.project(COUNTS[:4], seed=3).loadings)
    assert same(fitted.sample_posterior_predictive(5, seed=1), loaded.sample_posterior_predictive(5, seed=1))
    assert fitted.to_datatree().identical(loaded.to_datatree())
    if method != "map":
        assert same(fitted.sample_posterior(9, seed=2), loaded.sample_posterior(9, seed=2))


@pytest.mark.parametrize(
    ("method", "options"),
    [("nuts", NUTS(chains=2, draws=20, target_accept=0.9)), ("svi", SVI(bound="augmented", particles=2))],
)
def test_other_methods_keep_their_options(method, options, tmp_path):
    fitted = fit(method="gibbs" if method == "nuts" else "vi")
    fitted = replace(fitted, method=method, options=replace(options, priors=fitted.priors), diagnostics={"x": np.inf})
    loaded = round_trip(fitted, tmp_path / "fit.nc")
    assert same(fitted, loaded)
    assert loaded.options.priors is loaded.priors


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
def test_single_precision_and_fractions_are_kept(suffix, tmp_path):
    options = VI(start="svd", max_iter=5, threads=1, dtype="float32")
    fitted = fit("dirichlet_gamma", counts=COUNTS + 0.25, options=options)
    loaded = round_trip(fitted, tmp_path / f"fit{suffix}")
    assert same(fitted, loaded)
    assert loaded.counts.dtype == loaded.loadings.dtype == np.float32


@pytest.mark.parametrize(
    "priors",
    [
        Priors(Gamma(2, np.float64(0.5)), "parameter"),
        Priors(Gamma(np.full((12, 1), 0.7), 1.0), Gamma(np.linspace(1, 2, 9), np.ones((3, 1)))),
        Priors(None, Dirichlet([0.5] * 9)),
    ],
)
def test_priors_are_kept(priors, tmp_path):
    fitted = fit(options=VI(start="svd", priors=priors, max_iter=3, threads=1))
    loaded = round_trip(fitted, tmp_path / "fit.nc")
    assert same(fitted.priors.loadings, loaded.priors.loadings)
    assert same(fitted.estimate, loaded.estimate)
    np.testing.assert_equal(vars_of(fitted.priors.components), vars_of(loaded.priors.components))


def vars_of(prior):
    return prior if isinstance(prior, str) else {name: np.asarray(value) for name, value in vars(prior).items()}


@pytest.mark.parametrize(("given", "method"), mostly_long([("fit", "gibbs"), ("q", "vi"), ("factors", "vi")], 2))
def test_the_start_is_kept_so_that_the_fit_can_be_run_again(given, method, tmp_path):
    start = fit("dirichlet_gamma")
    if given == "factors":
        start = Start(bayesnmf.priors.ScaledProportions(start.loadings, start.scale[:, None]), start.components)
    elif given == "q":
        start = Start(start.posterior.loadings, start.posterior.components)
    brief = {"gibbs": {"draws": 5, "warmup": 5}, "vi": {"max_iter": 5}}[method]
    fitted = fit("dirichlet_gamma", method, options=replace(OPTIONS[method], start=start, **brief))
    loaded = round_trip(fitted, tmp_path / "fit.nc")
    assert isinstance(loaded.options.start, Start)
    again = fit("dirichlet_gamma", method, options=loaded.options)
    assert same(again.estimate, fitted.estimate)


NAMES = {
    "text": np.array([f"séq {i}" for i in range(12)]),
    "objects": np.array([f"s{i}" for i in range(12)], dtype=object),
    "odd text": np.array(["", "a\n", "b\0c", "\ud800", "nan", *"defghij"], dtype=object),
    "short integers": np.arange(12, dtype=np.int16),
    "numbers": np.arange(12) / 8,
    "dates": np.arange(12).astype("datetime64[D]").astype("datetime64[ns]"),
    "mixed": np.array([1, "1", 2.5, None, *range(4, 12)], dtype=object),
    "tuples": np.asarray(pd.MultiIndex.from_product([["a", "b"], range(6)])),
}


@pytest.mark.parametrize(
    ("rows", "features", "suffix"),
    mostly_long(
        [
            ("text", "objects", ".nc"),
            ("short integers", "odd text", ".zarr"),
            ("dates", "numbers", ".nc"),
            ("mixed", "tuples", ".zarr"),
            ("objects", "text", ".zarr"),
            ("odd text", "short integers", ".nc"),
            ("numbers", "dates", ".zarr"),
            ("tuples", "mixed", ".nc"),
        ],
        4,
    ),
)
def test_names_keep_their_type(rows, features, suffix, tmp_path):
    fitted = fit(method="map")
    names = {"row_names": NAMES[rows], "feature_names": NAMES[features][:9]}
    fitted = replace(fitted, counts=replace(fitted.counts, **names))
    assert same(fitted, round_trip(fitted, tmp_path / f"fit{suffix}"))


def test_names_of_other_kinds_become_text(tmp_path):
    frame = pd.DataFrame(COUNTS, index=pd.period_range("2020-01", periods=12, freq="M"))
    with pytest.warns(bayesnmf.DataWarning, match="names of type Period are saved as text: '2020-01'"):
        loaded = round_trip(fit(method="map", counts=frame), tmp_path / "fit.nc")
    assert loaded.row_names[:2].tolist() == ["2020-01", "2020-02"]


def test_counts_without_nonzeros_and_large_counts(tmp_path):
    empty, large = (np.zeros((4, 3)), COUNTS * 1e12)
    for counts in (empty, large):
        fitted = fit("gamma_poisson", counts=counts, options=VI(start="random", max_iter=2, threads=1))
        assert same(fitted, round_trip(fitted, tmp_path / "fit.nc"))


# --- overwriting -----------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
def test_saving_again_replaces_the_older_fit(suffix, tmp_path):
    path = tmp_path / f"fit{suffix}"
    fit(method="gibbs").save(path)
    newer = fit(method="map")
    assert same(newer, round_trip(newer, path))
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize(
    ("suffix", "place", "error"),
    [
        (".nc", "to_bytes", KeyboardInterrupt),
        (".zarr", "put", KeyboardInterrupt),
        (".nc", "put", OSError("disk full")),
        (".zarr", "to_bytes", OSError("disk full")),
    ],
)
def test_an_interrupted_save_leaves_the_older_fit(suffix, place, error, tmp_path, monkeypatch):
    path = tmp_path / f"fit{suffix}"
    older = fit(method="gibbs")
    older.save(path)

    def interrupted(*arguments, **settings):
        raise error

    if place == "put":
        monkeypatch.setattr(writing, place, interrupted)
    else:
        maker = (xr.DataTree, "to_zarr") if suffix == ".zarr" else (storage, "to_netcdf")
        monkeypatch.setattr(*maker, interrupted)
    with pytest.raises((KeyboardInterrupt, OSError), match=r"^$|disk full"):
        fit(method="map").save(path)
    assert same(older, bayesnmf.load(path))
    assert os.listdir(tmp_path) == [path.name]


def test_a_store_that_cannot_be_put_in_place_leaves_the_older_one(tmp_path, monkeypatch):
    older = fit(method="map")
    older.save(tmp_path / "fit.zarr")
    rename = os.rename

    def failing(source, target):
        if str(target).endswith("fit.zarr") and not str(source).endswith(".old"):
            raise PermissionError("no")
        rename(source, target)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(PermissionError, match="cannot write"):
        fit().save(tmp_path / "fit.zarr")
    assert same(older, bayesnmf.load(tmp_path / "fit.zarr"))


def test_a_link_is_written_through(tmp_path):
    (tmp_path / "link.nc").symlink_to(tmp_path / "fit.nc")
    fitted = fit(method="map")
    assert same(fitted, round_trip(fitted, tmp_path / "link.nc"))
    assert (tmp_path / "link.nc").is_symlink()


# --- what is refused -------------------------------------------------------------------------------


def test_save_refuses_bad_paths(tmp_path, monkeypatch):
    fitted = fit(method="map")
    for name in ("directory.nc", "other.zarr"):
        (tmp_path / name).mkdir()
    with pytest.raises(ValueError, match=r"fit\.h5 must end in \.nc or \.zarr, as files of fits do"):
        fitted.save(tmp_path / "fit.h5")
    with pytest.raises(FileNotFoundError, match=r"no directory .*missing to write fit\.nc in; make it first"):
        fitted.save(tmp_path / "missing" / "fit.nc")
    with pytest.raises(ValueError, match=r"directory\.nc must be a file, .*choose another path"):
        fitted.save(tmp_path / "directory.nc")
    with pytest.raises(ValueError, match=r"other\.zarr must be a Zarr store, .*choose another path"):
        fitted.save(tmp_path / "other.zarr")
    monkeypatch.setitem(__import__("sys").modules, "zarr", None)
    with pytest.raises(ImportError, match=r"needs zarr: pip install 'bayesnmf\[files\]', or use \.nc"):
        fitted.save(tmp_path / "fit.zarr")


def test_load_refuses_bad_paths(tmp_path):
    (tmp_path / "directory.nc").mkdir()
    (tmp_path / "file.zarr").write_text("x")
    with pytest.raises(FileNotFoundError, match=r"there is no .*missing\.nc; check the path"):
        bayesnmf.load(tmp_path / "missing.nc")
    with pytest.raises(ValueError, match=r"must end in \.nc or \.zarr"):
        bayesnmf.load(tmp_path / "fit.pickle")
    with pytest.raises(ValueError, match=r"directory\.nc must be a file, not a directory"):
        bayesnmf.load(tmp_path / "directory.nc")
    with pytest.raises(ValueError, match=r"file\.zarr must be a directory, as Zarr stores are"):
        bayesnmf.load(tmp_path / "file.zarr")


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
def test_truncated_files_are_refused(share, tmp_path):
    path = tmp_path / "fit.nc"
    fit(method="gibbs").save(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match=r"fit\.nc must be a whole file that Fit\.save wrote: .*; save the fit again"):
        bayesnmf.load(path)


def test_changed_and_missing_parts_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "is_whole", lambda _: True)  # so that what is in the file is compared
    fitted = fit(method="gibbs")
    fitted.save(tmp_path / "fit.nc")
    content = bytearray((tmp_path / "fit.nc").read_bytes())
    place = content.find(fitted.posterior.loadings.tobytes()[:64])
    content[place + 1] ^= 1
    (tmp_path / "fit.nc").write_bytes(content)
    with pytest.raises(
        ValueError, match=r"fit\.nc must be a whole file .*values of 'loadings' differ from those that were saved"
    ):
        bayesnmf.load(tmp_path / "fit.nc")
    fitted.save(tmp_path / "fit.zarr")
    shutil.rmtree(tmp_path / "fit.zarr" / "estimate" / "components" / "c")
    with pytest.raises(
        ValueError, match=r"fit\.zarr must be a whole file .*values of 'components' differ from those that were saved"
    ):
        bayesnmf.load(tmp_path / "fit.zarr")
    shutil.rmtree(tmp_path / "fit.zarr" / "counts.matrix")
    with pytest.raises(ValueError, match=r"fit\.zarr must be a whole file"):
        bayesnmf.load(tmp_path / "fit.zarr")


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
def test_other_files_are_refused(suffix, tmp_path):
    path = tmp_path / f"tree{suffix}"
    storage.write_tree(xr.DataTree.from_dict({"/counts": xr.Dataset({n: ("x", [1]) for n in CSR})}), path)
    with pytest.raises(
        ValueError, match=r"must be a fit that Fit\.save wrote, but it is another kind of file; .*arviz\.from_"
    ):
        bayesnmf.load(path)


def test_a_store_of_the_format_that_may_unpickle_is_not_read(tmp_path):
    """Fits are written in format 3 of Zarr alone."""
    path = tmp_path / "fit.zarr"
    (path / "trace").mkdir(parents=True)
    (path / ".zgroup").write_text('{"zarr_format": 2}')
    (path / ".zattrs").write_text('{"format": "bayesnmf.Fit", "format_version": 6}')
    with pytest.raises(ValueError, match=r"fit\.zarr must be a whole file that Fit\.save wrote: .*(NotFound|no group)"):
        bayesnmf.load(path)


def test_files_of_later_versions_are_refused(tmp_path, monkeypatch):
    fit(method="map").save(tmp_path / "fit.nc")
    monkeypatch.setattr(storage, "VERSION", 1)
    with pytest.raises(ValueError, match=r"format version 1 or lower: found 10, .*; upgrade bayesnmf"):
        bayesnmf.load(tmp_path / "fit.nc")


def test_a_file_makes_no_class_but_those_of_files(tmp_path):
    groups = encode(fit(method="map"), tmp_path)
    settings = json.loads(groups["/"].attrs["settings"])
    for kind in ("Popen", "os.system", "builtins.eval", "Fit.load"):
        settings["records"]["/noise"] = {"kind": kind, "fields": {"args": ["touch", str(tmp_path / "ran")]}}
        text = json.dumps({**settings, "format_version": 10})
        groups["/"].attrs.update(settings=text, settings_crc32=crc32(text.encode()))
        with pytest.raises(ValueError, match=f"the file has a '{kind}', which is no class of files; add the class of"):
            decode(groups, tmp_path)
    assert not (tmp_path / "ran").exists()


def test_what_no_file_has_is_refused_before_one_is_written(tmp_path):
    with pytest.raises(
        TypeError, match=r"diagnostics\.set must be an array, a table, .* to be saved: found .*; make it"
    ):
        replace(fit(method="map"), diagnostics={"set": {1.0}}).save(tmp_path / "fit.nc")
    assert not list(tmp_path.iterdir())
