"""On a full disk every command fails with a plain OSError, and loses nothing that was there."""

import os
import signal
import subprocess
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import smallfits
from plain import plain_map

import bayesnmf
from bayesnmf import cli
from bayesnmf.results import storage
from bayesnmf.results.estimates import Draws
from bayesnmf.studies.comparison import comparing

pytestmark = smallfits.quietly


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 32 kB, where mounting is allowed."""
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32k", "none", str(place)], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"mounting is not allowed: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def too_large():
    """Return a fit of more than 32 kB."""
    counts = np.random.default_rng(0).poisson(3.0, (100, 80))
    return bayesnmf.fit(counts, rank=10, method="map", seed=0, options=plain_map(max_iter=2, tol=0))


@contextmanager
def files_of_at_most(size):
    """Limit the size of files: writing fails as on a full disk, and needs no rights."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


def saved_elsewhere(path):
    """Save a small fit, and return what the file holds."""
    smallfits.fit("gamma_poisson", "map").save(path)
    return path.read_bytes()


def test_a_fit_that_finds_no_room_raises_and_leaves_the_older_file(tmp_path):
    before, fit = saved_elsewhere(tmp_path / "fit.nc"), too_large()
    for size in (0, 4096, 20_000):
        with pytest.raises(OSError, match=r"^cannot write .*File too large"), files_of_at_most(size):
            fit.save(tmp_path / "fit.nc")
    assert (tmp_path / "fit.nc").read_bytes() == before
    assert os.listdir(tmp_path) == ["fit.nc"]


def test_a_full_disk_is_told_of_and_nothing_is_left_on_it(small_disk):
    fit = too_large()
    for name in ("fit.nc", "fit.zarr"):
        with pytest.raises(OSError, match=r"No space left on device.*check free space"):
            fit.save(small_disk / name)
    assert os.listdir(small_disk) == []


def test_compare_on_a_full_disk_prints_its_table_and_keeps_the_older_files(small_disk, tmp_path, capsys, monkeypatch):
    """Both columns of the table were worth their time; what did not fit is left out, and what was there is whole."""
    counts = tmp_path / "counts.npz"
    np.savez(counts, np.random.default_rng(0).poisson(3.0, (100, 80)))
    out = small_disk / "out"
    out.mkdir()
    for name in ("compare.nc", "table.csv"):
        (out / name).write_text("older")
    words = ["compare", str(counts), "--methods", "map", "--rank", "8", "--out", str(out), "--quiet"]
    monkeypatch.setitem(comparing.DEFAULTS, "map", plain_map(max_iter=5))
    assert cli.main(words) == 2
    said = capsys.readouterr()
    assert "log-likelihood at" in said.out
    assert "could not be saved" in said.out
    assert "bayesnmf: error: cannot write" in said.err
    assert (out / "compare.nc").read_text() == "older"
    assert not [name for name in os.listdir(out) if name.startswith(".")]


def test_netcdf_takes_as_much_memory_again_as_the_file(tmp_path):
    """Peak of the process, the fit itself left out: the file once, and what HDF5 needs by the way."""
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("this system does not tell the peak of memory")

    def peak():
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])

    fit = smallfits.fit("gamma_poisson", "gibbs")
    draws = (np.tile(each, (1, 600, 1, 1)) for each in (fit.posterior.loadings, fit.posterior.components))
    fit.save(tmp_path / "fit.nc")  # what is imported and made once
    fit = replace(fit, estimate=Draws(*draws))
    Path("/proc/self/clear_refs").write_text("5")
    before = peak()
    fit.save(tmp_path / "fit.nc")
    after = peak()
    size = (tmp_path / "fit.nc").stat().st_size
    assert size > 30 * 2**20
    assert after - before < 2 * size


def test_above_its_limit_netcdf_names_zarr(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "LARGEST_NETCDF", 1000)
    fitted = smallfits.fit("gamma_poisson", "map")
    message = (
        r"fit\.nc must be below 0\.0 GiB, since NetCDF files are made in memory: .*; save to fit\.zarr, a Zarr store"
    )
    with pytest.raises(ValueError, match=message):
        fitted.save(tmp_path / "fit.nc")
    assert os.listdir(tmp_path) == []
    fitted.save(tmp_path / "fit.zarr")
    assert bayesnmf.load(tmp_path / "fit.zarr").rank == 3
