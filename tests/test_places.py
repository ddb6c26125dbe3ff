"""A place that cannot be written to is found before the first fit, and what cannot be written later costs no result."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from smallfits import quietly

import bayesnmf
from bayesnmf import Calibration, cli, places, writing
from bayesnmf.options import MAP
from bayesnmf.results import storage
from bayesnmf.studies.comparison import comparing
from bayesnmf.studies.comparison.comparing import Settings, compare
from bayesnmf.theorems.table import Equivalences

pytestmark = quietly

COUNTS = np.random.default_rng(0).poisson(3, (20, 6))
OPTIONS = MAP(start="svd", max_iter=5, threads=1)
QUICK = Settings(options={"map": OPTIONS}, dispersed=False)
CLOSED = pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="no folder that not even root can write to")


@pytest.fixture
def counts(tmp_path):
    path = tmp_path / "counts.npz"
    np.savez(path, COUNTS)
    return path


@pytest.fixture
def no_fit(monkeypatch):
    """Any fit is a failure of the test."""
    monkeypatch.setattr(comparing, "fit", lambda *_, **__: pytest.fail("a fit ran"))


def run(capsys, *words):
    code = cli.main([*map(str, words)])
    return code, *capsys.readouterr()


@pytest.mark.parametrize("place", ["fits/map.nc", "fits"])
def test_what_is_in_the_way_of_a_fit_is_found_before(place, no_fit, tmp_path):
    if place == "fits":
        (tmp_path / place).write_text("mine")
        rule = "out must be a folder that can be written to: .*fits"
    else:
        (tmp_path / place).mkdir(parents=True)
        rule = r"out must not contain a folder with the name of a file: .*map\.nc is one; move it away"
    with pytest.raises(ValueError, match=rule):
        compare(COUNTS, rank=2, methods=["map"], out=tmp_path)


@pytest.mark.parametrize("name", comparing.file_names())
def test_what_is_in_the_way_of_a_report_is_found_before(name, no_fit, capsys, counts, tmp_path):
    (tmp_path / "out" / name).mkdir(parents=True)
    code, out, err = run(capsys, "compare", counts, "--out", tmp_path / "out", "--quiet")
    assert (code, out) == (2, "")
    assert f"--out must not contain a folder with the name of a file: {tmp_path / 'out' / name} is one" in err


@CLOSED
def test_a_closed_folder_is_found_before(no_fit, capsys, counts, monkeypatch):
    monkeypatch.setattr("bayesnmf.theorems.statements.equivalences", lambda *_, **__: pytest.fail("identities ran"))
    for words in (
        ("compare", counts, "--out", "/proc/self"),
        ("equivalences", counts, "--csv", "/proc/self/table.csv"),
    ):
        code, out, err = run(capsys, *words, "--quiet")
        assert (code, out) == (2, "")
        assert "must be a folder that can be written to: /proc/self (" in err.replace(str(os.getpid()), "self")


def test_every_file_that_is_written_is_looked_for_before(capsys, counts, tmp_path, monkeypatch):
    monkeypatch.setitem(comparing.DEFAULTS, "map", OPTIONS)
    code, _, _ = run(capsys, "compare", counts, "--methods", "map", "--rank", "2", "--out", tmp_path / "out", "--quiet")
    assert code == 0
    assert {*os.listdir(tmp_path / "out")} - {"fits"} <= {*comparing.file_names()}


def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_without_room_the_table_is_printed_and_older_files_stay(capsys, counts, tmp_path, monkeypatch):
    monkeypatch.setitem(comparing.DEFAULTS, "map", OPTIONS)
    monkeypatch.setattr(writing, "put", full)
    out_folder = tmp_path / "out"
    (out_folder / "fits").mkdir(parents=True)
    for name in ("compare.nc", "table.csv", "fits/map.nc"):
        (out_folder / name).write_text("older")
    code, out, err = run(capsys, "compare", counts, "--methods", "map", "--rank", "2", "--out", out_folder, "--quiet")
    assert code == 2
    assert "log-likelihood at" in out
    assert "CAUTION the fit by map could not be saved: cannot write" in out.replace("\n", " ")
    assert "bayesnmf: error: cannot write" in err
    assert "No space left on device; check free space and permissions" in err.replace("\n", " ")
    assert sorted(str(path.relative_to(out_folder)) for path in out_folder.rglob("*") if path.is_file()) == [
        "compare.nc", "fits/map.nc", "table.csv",
    ]  # fmt: skip
    assert {(out_folder / name).read_text() for name in ("compare.nc", "table.csv", "fits/map.nc")} == {"older"}


def test_identities_are_printed_where_their_table_has_no_room(capsys, counts, tmp_path, monkeypatch):
    monkeypatch.setattr("bayesnmf.theorems.statements.equivalences", lambda *_, **__: Equivalences((), "a title"))
    monkeypatch.setattr(writing, "put", full)
    (tmp_path / "table.csv").write_text("older")
    code, out, err = run(capsys, "equivalences", counts, "--csv", tmp_path / "table.csv", "--quiet")
    assert code == 2
    assert "a title" in out
    assert "cannot write" in err
    assert (tmp_path / "table.csv").read_text() == "older"


def test_a_calibration_without_room_leaves_the_older_file(tmp_path, monkeypatch):
    found = Calibration(
        model="gamma_poisson", method="vi", size=(2, 2), rank=1, draws=3, quantities=("a",), ranks=np.ones((4, 1), int),
        ess=np.ones(1), priors="", settings="", seed=0, seconds=1.0,
    )  # fmt: skip
    found.save(tmp_path / "c.csv")
    before = (tmp_path / "c.csv").read_bytes()
    monkeypatch.setattr(writing, "put", full)
    with pytest.raises(OSError, match="cannot write"):
        found.save(tmp_path / "c.csv")
    assert (tmp_path / "c.csv").read_bytes() == before
    assert os.listdir(tmp_path) == ["c.csv"]


@pytest.mark.parametrize("limit", [2**30, 10])
def test_fits_too_large_for_netcdf_are_saved_as_zarr(limit, tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "LARGEST_NETCDF", limit)
    result = compare(COUNTS, rank=2, methods=["map"], settings=QUICK, out=tmp_path)
    name = "map.nc" if limit > 10 else "map.zarr"
    assert os.listdir(tmp_path / "fits") == [name]
    np.testing.assert_array_equal(
        bayesnmf.load(tmp_path / "fits" / name).loadings.shape, result.fits["map"].loadings.shape
    )


def test_a_text_has_room_for_as_many_entries_as_it_declares(tmp_path):
    path = tmp_path / "counts.mtx"
    path.write_bytes(b"x" * 60)
    places.check_entries(10, 6, path)
    with pytest.raises(ValueError, match="at most 10 entries, as it has no room for more: found 11"):
        places.check_entries(11, 6, path)
