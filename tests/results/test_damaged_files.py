"""Whatever is changed in a saved fit is refused, or changes nothing; and files of earlier versions still load."""

import json
import shutil
import zipfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import h5py
import numpy as np
import pytest
import smallfits
from sameness import same
from smallfits import COUNTS, K, quietly
from suites import mostly_long

import bayesnmf
from bayesnmf import BLD, VI, Gamma, Priors
from bayesnmf.assessment import bounds
from bayesnmf.results import storage

pytestmark = quietly

GOLDEN = Path(__file__).parents[1] / "golden"
# Single bits flipped in the values of a file. If a changed file were loaded after one flip in thirty, the many of four
# files would show it with a chance of 98 %.
FLIPS, MANY = 1, 30
FEW = 20  # by default, every twentieth part of a file is taken out, another one of each kind


@cache
def fitted(kind):
    """Return a small fit: by q, by draws, with learned priors, and of the best decomposition."""
    if kind == "learned":
        priors = Priors(Gamma(np.array(1.0), np.array(1.0)), None)
        options = VI(start="random", max_iter=5, threads=1, learn=("loadings",), priors=priors)
        return bayesnmf.fit(COUNTS, rank=K, seed=0, options=options)
    if kind == "bld":
        return bayesnmf.fit(
            COUNTS, "dirichlet_gamma", K, "bld", seed=0, options=BLD(start="random", max_iter=5, threads=1)
        )
    fit = smallfits.fit("dirichlet_gamma", kind)
    if kind == "gibbs":  # few draws, so that bits of all parts are flipped
        return replace(
            fit,
            estimate=type(fit.posterior)(
                *(part if part is None else part[:, :3] for part in vars(fit.posterior).values())
            ),
        )
    return fit


KINDS = ("vi", "gibbs", "learned", "bld")


def assert_refused_or_equal(path, fit):
    """Return whether a file is refused; it must be by ValueError, or give the fit that was saved."""
    try:
        loaded = bayesnmf.load(path)
    except ValueError:
        return True
    assert same(loaded, fit)
    return False


@pytest.fixture
def unsealed(monkeypatch):
    """Read files as those of versions that had no digest at their end, so that what is in them is compared."""
    monkeypatch.setattr(storage, "is_whole", lambda _: None)
    monkeypatch.setattr(storage, "SEALED", 99)


def flipped(content, place, bit):
    changed = bytearray(content)
    changed[place] ^= 1 << bit
    return changed


def stored_bytes(path):
    """Return the places of all bytes in which HDF5 keeps the values of arrays."""
    places = []

    def add(_, item):
        if not isinstance(item, h5py.Dataset) or not item.id.get_storage_size():
            return
        if item.chunks is None:
            places.extend(range(item.id.get_offset(), item.id.get_offset() + item.id.get_storage_size()))
            return
        for chunk in (item.id.get_chunk_info(index) for index in range(item.id.get_num_chunks())):
            places.extend(range(chunk.byte_offset, chunk.byte_offset + chunk.size))

    with h5py.File(path) as file:
        file.visititems(add)
    return places


@pytest.mark.usefixtures("unsealed")
@pytest.mark.parametrize(
    ("kind", "flips"), mostly_long([("gibbs", FLIPS), ("learned", FLIPS), *((kind, MANY) for kind in KINDS)], 2)
)
def test_a_flipped_bit_of_values_is_refused(kind, flips, tmp_path):
    """Without the digest of the file, too: in its values, where each bit counts, and where no flip misleads HDF5."""
    path = tmp_path / "fit.nc"
    fitted(kind).save(path)
    content = path.read_bytes()
    fit = bayesnmf.load(path)
    rng = np.random.default_rng(KINDS.index(kind))
    refused = 0
    for place in rng.choice(stored_bytes(path), flips):
        path.write_bytes(flipped(content, place, rng.integers(8)))
        refused += assert_refused_or_equal(path, fit)
    assert refused > 0.9 * flips


@pytest.mark.usefixtures("unsealed")
def test_a_changed_character_of_the_settings_is_refused(tmp_path):
    """What flips took for other settings before: a rank, a seed, a misspelt method."""
    path = tmp_path / "fit.nc"
    fitted("learned").save(path)
    with h5py.File(path) as file:
        text = file.attrs["settings"]
    for place in range(1, len(text), len(text) // 2):
        with h5py.File(path, "r+") as file:
            file.attrs["settings"] = text[:place] + chr(ord(text[place]) ^ 1) + text[place + 1 :]
        with pytest.raises(ValueError, match=r"must be a whole file that Fit\.save wrote"):
            bayesnmf.load(path)


@pytest.mark.usefixtures("unsealed")
@pytest.mark.parametrize(("kind", "every"), mostly_long([("vi", FEW), ("bld", FEW), *((kind, 4) for kind in KINDS)], 2))
def test_a_missing_part_of_netcdf_is_refused(kind, every, tmp_path):
    whole, path = tmp_path / "whole.nc", tmp_path / "fit.nc"
    fitted(kind).save(whole)
    fit, names = bayesnmf.load(whole), []
    with h5py.File(whole) as file:
        file.visititems(lambda name, _: names.append(name))
    axes = ("_0", "_1", "_2", "_3")  # dimensions, which hold nothing
    parts = [name for name in names if not name.endswith(axes)]
    for name in parts[KINDS.index(kind) :: every] if every > 1 else parts:
        shutil.copy(whole, path)
        with h5py.File(path, "r+") as file:
            del file[name]
        assert assert_refused_or_equal(path, fit), name


@pytest.mark.parametrize(("kind", "every"), mostly_long([("bld", FEW), ("vi", 3)]))
def test_a_missing_or_changed_part_of_zarr_is_refused_or_changes_nothing(kind, every, tmp_path):
    path, aside = tmp_path / "fit.zarr", tmp_path / "aside"
    fitted(kind).save(path)
    fit = bayesnmf.load(path)
    rng = np.random.default_rng(KINDS.index(kind))
    for part in sorted(path.rglob("*"))[::every]:
        name = part.relative_to(path)
        if part.is_dir():
            part.rename(aside)
            refused = assert_refused_or_equal(path, fit)
            aside.rename(part)
            assert refused or not (part / "zarr.json").is_file(), name
        else:
            content = part.read_bytes()
            part.write_bytes(flipped(content, rng.integers(len(content)), rng.integers(8)))
            assert_refused_or_equal(path, fit)
            part.write_bytes(content)
    assert same(bayesnmf.load(path), fit)


def test_a_file_that_is_not_as_it_was_written_is_refused_before_anything_reads_it(tmp_path, monkeypatch):
    path = tmp_path / "fit.nc"
    fitted("vi").save(path)
    content, rng = path.read_bytes(), np.random.default_rng(0)
    assert len(content) > 10_000
    with h5py.File(path) as file:  # other tools find what they read
        assert file["fit/loadings"].shape == (12, K)
    for cut in (len(content) - 1, len(content) - 48, len(content) // 2, 40, 0):
        path.write_bytes(content[:cut])
        with pytest.raises(ValueError, match=r"fit\.nc must be a whole file that Fit\.save wrote"):
            bayesnmf.load(path)
    path.write_bytes(content + b"more")
    with pytest.raises(ValueError, match="its end, a checksum of its content, is missing"):
        bayesnmf.load(path)
    monkeypatch.setattr(storage, "_read", None)
    for place in [0, len(content) - 1, *rng.integers(0, len(content) - 48, 200)]:
        path.write_bytes(flipped(content, place, int(rng.integers(8))))
        with pytest.raises(ValueError, match="its content is not that of its checksum"):
            bayesnmf.load(path)


# --- settings that somebody edited, with their checksum; and files of version 1 -------------------------


def rewritten(path, version=1, **settings):
    """Write a fit of version 1, which has no checksum of its settings, with others."""
    shutil.copy(GOLDEN / "version_1_vi.nc", path)
    with h5py.File(path, "r+") as file:
        file.attrs["settings"] = json.dumps({**json.loads(file.attrs["settings"]), **settings})
        if version is None:
            del file.attrs["format_version"]
        else:
            file.attrs["format_version"] = version
    return path


@pytest.mark.parametrize(
    ("rule", "settings"),
    [
        (r"loadings must have shape \(12, 4\): found \(12, 3\)", {"rank": 4}),
        ("rank must be a whole number", {"rank": 3.0}),
        ("model must be one of .*: found 'dirichlet_gamna'", {"model": "dirichlet_gamna"}),
        (r"scale must have shape \(12,\)", {"model": "dirichlet_gamma"}),
        ("method must be one of .*: found 'vj'", {"method": "vj"}),
        ("options must be Gibbs for gibbs: found VI", {"method": "gibbs"}),
        ("status must be a flag, a reason and a number of iterations", {"status": [1, "x", 2]}),
        ("seconds must be a number", {"seconds": "1"}),
        ("seed must be at least 0", {"seed": -1}),
        ("max_iter must be at least 0", {"options": {"kind": "VI", "values": {"start": "random", "max_iter": -1}}}),
        ("its format version must be a whole number from 1: found None", {"version": None}),
        ("its format version must be a whole number from 1: found 'one'", {"version": "one"}),
        ("its format version must be a whole number from 1: found 0", {"version": 0}),
        ("settings_crc32", {"version": 2}),
    ],
)
def test_settings_that_make_no_sense_are_refused(rule, settings, tmp_path):
    path = rewritten(tmp_path / "fit.nc", **settings)
    with pytest.raises(ValueError, match=rf"fit\.nc must be a whole file that Fit\.save wrote: .*{rule}"):
        bayesnmf.load(path)


def test_files_of_version_1_load(tmp_path):
    with pytest.warns(UserWarning, match=r"vi\.nc is unchecked in part: .* without a checksum of its settings"):
        fit = bayesnmf.load(GOLDEN / "version_1_vi.nc")
    np.testing.assert_array_equal(fit.counts.matrix.toarray(), COUNTS)
    assert fit.row_names.tolist() == COUNTS.index.tolist()
    assert (fit.model, fit.method, fit.rank, fit.options.learn) == (
        "gamma_poisson",
        "vi",
        K,
        ("loadings", "components"),
    )
    assert np.shape(fit.priors.components.shape) == (K, 1)
    # The bound is a sum of some hundred terms, computed anew in another order.
    assert bounds.elbo_augmented(fit) == pytest.approx(fit.trace[-1], rel=1e-11)
    with zipfile.ZipFile(GOLDEN / "version_1_bld.zarr.zip") as archive:
        archive.extractall(tmp_path / "fit.zarr")
    with pytest.warns(UserWarning, match="is unchecked in part"):
        fit = bayesnmf.load(tmp_path / "fit.zarr")
    assert (fit.model, fit.method, fit.rank) == ("dirichlet_gamma", "bld", K)
    np.testing.assert_allclose(fit.allocations().sum(axis=1), COUNTS, rtol=1e-12)
    fit.save(tmp_path / "again.nc")
    assert same(bayesnmf.load(tmp_path / "again.nc"), fit)


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
def test_learned_priors_of_one_number_keep_their_type(suffix, tmp_path):
    fit = fitted("learned")
    assert isinstance(fit.priors.loadings.shape, np.ndarray)
    fit.save(tmp_path / f"fit{suffix}")
    assert same(bayesnmf.load(tmp_path / f"fit{suffix}").priors, fit.priors)
