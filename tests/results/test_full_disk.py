"""On a full disk every command fails with a plain OSError, and loses nothing that was there."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import smallfits

import bayesnmf
from bayesnmf.results import storage

pytestmark = smallfits.quietly

ROOT = Path(__file__).parents[2]

# Save a small fit to each path, under a limit on the size of files where one stands before the path: it fails as a full
# disk does, and needs no rights. All in one process, which takes seconds to start.
SAVES = """
import resource, signal, sys, numpy as np, bayesnmf
counts = np.random.default_rng(0).poisson(3.0, (100, 80))
fit = bayesnmf.fit(counts, rank=10, method="map", seed=0, options=bayesnmf.MAP(max_iter=2, tol=0, start="random"))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for words in sys.argv[1:]:
    limit, path = words.split(":", 1)
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), resource.RLIM_INFINITY))
    try:
        fit.save(path)
        print("saved")
    except OSError as error:
        print("OSError:", error)
"""
LIMITS = (0, 4096, 20_000)


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 48 kB, where mounting is allowed."""
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=48k", "none", str(place)], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"mounting is not allowed: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def run(*arguments, **settings):
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=ROOT, **settings)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def saved_elsewhere(path):
    """Save a small fit, and return what the file holds."""
    smallfits.fit("gamma_poisson", "map").save(path)
    return path.read_bytes()


def test_a_fit_that_finds_no_room_raises_and_leaves_the_older_file(tmp_path):
    before = saved_elsewhere(tmp_path / "fit.nc")
    done = run("-c", SAVES, *(f"{limit}:{tmp_path / 'fit.nc'}" for limit in LIMITS))
    assert done.returncode == 0, done
    told = done.stdout.splitlines()
    assert len(told) == len(LIMITS)
    for line in told:
        assert line.startswith("OSError: cannot write")
        assert "File too large" in line
    assert (tmp_path / "fit.nc").read_bytes() == before
    assert os.listdir(tmp_path) == ["fit.nc"]


def test_a_full_disk_is_told_of_and_nothing_is_left_on_it(small_disk):
    done = run("-c", SAVES, *(f":{small_disk / name}" for name in ("fit.nc", "fit.zarr")))
    assert done.returncode == 0, done
    told = done.stdout.splitlines()
    assert len(told) == 2
    for line in told:
        assert "No space left on device" in line
        assert "check free space" in line
    assert os.listdir(small_disk) == []


def test_compare_on_a_full_disk_prints_its_table_and_keeps_the_older_files(small_disk, tmp_path):
    """Both columns of the table were worth their time; what did not fit is left out, and what was there is whole."""
    counts = tmp_path / "counts.npz"
    np.savez(counts, np.random.default_rng(0).poisson(3.0, (100, 80)))
    out = small_disk / "out"
    out.mkdir()
    for name in ("compare.nc", "table.csv"):
        (out / name).write_text("older")
    done = run(
        "-m", "bayesnmf.cli", "compare", str(counts), "--methods", "map", "--rank", "8", "--out", str(out), "--quiet"
    )
    assert done.returncode == 2, done
    assert "log-likelihood at" in done.stdout
    assert "could not be saved" in done.stdout
    assert "bayesnmf: error: cannot write" in done.stderr
    assert (out / "compare.nc").read_text() == "older"
    assert not [name for name in os.listdir(out) if name.startswith(".")]


def test_netcdf_takes_as_much_memory_again_as_the_file(tmp_path):
    """Peak of the process, the fit itself left out: the file once, and what HDF5 needs by the way."""
    code = """
import sys, numpy as np, bayesnmf, xarray as xr
from dataclasses import replace
from bayesnmf.results.estimates import Draws
rng = np.random.default_rng(0)
fit = bayesnmf.fit(rng.poisson(3.0, (100, 80)), rank=5, method="gibbs", seed=0,
                   options=bayesnmf.Gibbs(chains=1, draws=5, warmup=0, start="random"))
fit.save(sys.argv[1])
times = 5_000
draws = Draws(*(np.tile(each, (1, times // 5, 1, 1)) for each in (fit.posterior.loadings, fit.posterior.components)))
fit = replace(fit, estimate=draws)
def peak():
    return 1024 * int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
open("/proc/self/clear_refs", "w").write("5")
before = peak()
fit.save(sys.argv[1])
print(peak() - before)
"""
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("this system does not tell the peak of memory")
    done = run("-W", "ignore", "-c", code, str(tmp_path / "fit.nc"))
    assert done.returncode == 0, done
    size = (tmp_path / "fit.nc").stat().st_size
    assert size > 30 * 2**20
    assert int(done.stdout) < 2 * size


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
