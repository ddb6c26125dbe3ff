"""A folder keeps the fits: the same call goes on where an earlier one ended, and others are refused."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from blocks import BLOCKS, same
from smallfits import COUNTS, quietly
from suites import mostly_long

import bayesnmf
from bayesnmf import VI, Dirichlet, Gamma, HierarchicalGamma, Priors
from bayesnmf.options.methods import Method
from bayesnmf.results import storage

pytestmark = quietly
SHORT = VI(start="random", max_iter=30)


@pytest.fixture
def fits_made(monkeypatch):
    """Seeds of the fits to all counts that were run."""
    made, plain = [], Method.run

    def run(method, job):
        if job.counts.total == BLOCKS.sum():
            made.append(job.seed)
        return plain(method, job)

    monkeypatch.setattr(Method, "run", run)
    return made


def run(folder, starts=4, counts=BLOCKS, **more):
    settings = {"options": SHORT, "scored": 0, **more}
    return bayesnmf.modes(counts, rank=2, starts=starts, seed=1, checkpoint=folder, **settings)


def test_an_interrupted_call_goes_on_and_ends_with_the_same_bits(tmp_path, fits_made):
    def stop(label, done, *_):
        if done == 1:
            raise KeyboardInterrupt

    stopped = run(tmp_path / "kept", starts=3, jobs=1, progress=stop)
    assert len(stopped.runs) == 1
    assert len(fits_made) == 1
    fits_made.clear()
    resumed = run(tmp_path / "kept", starts=3, jobs=2, scored=1)
    assert sorted(fits_made) == sorted(resumed.runs["seed"][1:])
    assert not resumed.interrupted
    same(resumed, run(None, starts=3, scored=1))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return a folder with two fits, and their result: files are most of the work."""
    folder = tmp_path_factory.mktemp("modes")
    return folder, run(folder, starts=2)


@pytest.fixture
def kept(whole, tmp_path):
    """Return a copy of the folder with two fits, and their result."""
    folder, first = whole
    return shutil.copytree(folder, tmp_path / "copy"), first


def test_starts_are_added_and_left_out_and_nothing_is_fitted_twice(kept, fits_made):
    folder, first = kept
    same(run(folder, starts=2), first)
    assert fits_made == []
    more = run(folder, starts=3, threshold=0.9, scored=1, keep=0.8)
    assert len(fits_made) == 1
    np.testing.assert_array_equal(more.run_components[:2], first.run_components)
    assert len(run(folder, starts=1).runs) == 1


def test_a_full_disk_loses_no_fit_and_is_told(tmp_path, monkeypatch):
    def full(*_):
        raise OSError("no space left")

    expected = run(None, starts=2)
    monkeypatch.setattr(storage, "save_by_size", full)
    with pytest.warns(UserWarning, match="no space left") as said:
        same(run(tmp_path / "kept", starts=2), expected)
    assert len([each for each in said if "was not written to the checkpoint" in str(each.message)]) == 2


def test_fits_of_another_study_are_not_used(kept, tmp_path, fits_made):
    """With the same counts and seeds, copied into the folder under the names of its own."""
    folder, first = kept
    run(tmp_path / "other", starts=2, options=VI(start="random", max_iter=5))
    for name in ("start-0000/fit.nc", "start-0001/fit.nc"):
        shutil.copyfile(tmp_path / "other" / name, folder / name)
    fits_made.clear()
    same(run(folder, starts=2), first)
    assert len(fits_made) == 2


def test_every_fit_is_written_once(tmp_path, monkeypatch):
    written, plain = [], storage.save_by_size
    monkeypatch.setattr(storage, "save_by_size", lambda *given: written.append(0) or plain(*given))
    run(tmp_path / "kept", starts=2)
    assert len(written) == 2
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["start-0000", "start-0001"]


def test_every_fit_can_be_loaded_by_itself(kept):
    folder, found = kept
    for start, seed in found.runs["seed"].items():
        loaded = bayesnmf.load(folder / f"start-{start:04d}" / "fit.nc")
        assert loaded.seed == seed
        np.testing.assert_array_equal(loaded.components, found.run_components[start])


@pytest.mark.parametrize("damage", mostly_long(["cut", "other", "empty"], 2))
def test_a_damaged_file_is_fitted_again(kept, fits_made, damage):
    folder, first = kept
    file = folder / "start-0001" / "fit.nc"
    content = {"cut": file.read_bytes()[:2000], "empty": b"", "other": (folder / "start-0000" / "fit.nc").read_bytes()}
    file.write_bytes(content[damage])
    again = run(folder, starts=2)
    assert fits_made == [first.runs["seed"][1]]
    same(again, first)
    assert again.damaged == (1,)
    assert "fitted again, as the file was damaged: start 1" in again.cautions
    assert run(folder, starts=2).damaged == ()


def test_other_counts_and_settings_are_refused_by_name(kept):
    folder, _ = kept
    content = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    changed = BLOCKS.copy()
    changed[0, 0] += 1
    exposure = np.linspace(1, 2, len(BLOCKS))
    twos = Priors(components=Dirichlet(2.0))
    cases = [
        (r"differs in counts;", {"counts": changed}),
        (r"rank \(2 there, 3 here\)", {"rank": 3}),
        (r"differs in seed ", {"seed": 2}),
        (r"options.max_iter \(30 there, 31 here\)", {"options": replace(SHORT, max_iter=31)}),
        (r"options.dtype", {"options": replace(SHORT, dtype="float32")}),
        (r"model \(gamma_poisson there, dirichlet_poisson here\)", {"model": "dirichlet_poisson"}),
        (r"differs in priors.components \(Dirichlet.*2.0", {"options": replace(SHORT, priors=twos)}),
        (r"differs in counts;", {"row_exposure": exposure}),
        (r"differs in priors.components", {"fixed_components": np.full((1, 12), 1 / 12)}),
        (r"method \(vi there, map here\)", {"method": "map", "options": None}),
    ]  # fmt: skip
    for message, change in cases:
        settings = {"counts": BLOCKS, "rank": 2, "seed": 1, "options": SHORT, **change}
        with pytest.raises(ValueError, match=message) as refused:
            bayesnmf.modes(**settings, starts=2, scored=0, checkpoint=folder)
        assert "give another folder, or the settings of this one" in str(refused.value)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == content


def test_priors_that_hold_arrays_are_told_apart(tmp_path):
    def settings(prior):
        return {"options": replace(SHORT, priors=Priors(loadings=prior)), "starts": 1}

    rates = np.linspace(0.1, 0.2, len(BLOCKS))[:, None]
    shared = HierarchicalGamma(1.0, Gamma(1.0, 1.0), "row")
    for number, (prior, other) in enumerate(
        [(Gamma(1.0, rates), Gamma(1.0, rates[::-1])), (shared, replace(shared, over="all"))]
    ):
        run(tmp_path / str(number), **settings(prior))
        run(tmp_path / str(number), **settings(replace(prior)))
        with pytest.raises(ValueError, match=r"priors\.loadings"):
            run(tmp_path / str(number), **settings(other))


def test_names_may_change_and_are_those_of_the_call(tmp_path):
    frame = pd.DataFrame(BLOCKS, columns=[f"a{j}" for j in range(12)])
    run(tmp_path, starts=1, counts=frame)
    again = run(tmp_path, starts=1, counts=frame.rename(columns=lambda name: f"b{name}"))
    assert again.best.feature_names[0] == "ba0"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": "bayesnmf.modes", "format_version": 2}'])
def test_a_folder_without_readable_settings_is_refused(tmp_path, content):
    (tmp_path / "start-0000").mkdir()
    (tmp_path / "start-0000" / "fit.json").write_text(content)
    with pytest.raises(ValueError, match=r"the settings in .* are damaged, .*give another folder, or delete this one"):
        run(tmp_path)


def test_the_folder_must_be_a_place_to_write_to(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="checkpoint must be a folder that can be written to"):
        run(tmp_path / "file")


def test_the_settings_are_plain_text(kept):
    about = json.loads((kept[0] / "start-0000" / "fit.json").read_text())
    assert about["settings"]["rank"] == "2"
    assert about["settings"]["options.start"] == "'random'"


def test_large_and_float32_fits_come_back_in_their_type(tmp_path):
    options = VI(start="random", dtype="float32", max_iter=20, threads=1)
    first = bayesnmf.modes(COUNTS, rank=2, starts=1, options=options, checkpoint=tmp_path)
    again = bayesnmf.modes(COUNTS, rank=2, starts=1, options=options, checkpoint=tmp_path)
    same(first, again)
    assert again.best.components.dtype == np.float32
