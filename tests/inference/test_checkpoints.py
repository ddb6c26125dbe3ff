"""A fit that was ended at any point goes on from its checkpoint, and ends with the same bits."""

import errno
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from suites import mostly_long

import bayesnmf
from bayesnmf import MAP, SMC, VI, Checkpoint, Dirichlet, Gamma, Gibbs, Priors
from bayesnmf.fitting.checkpointing import keep_each_fit
from bayesnmf.inference.checkpoints import keeper, slots
from bayesnmf.inference.checkpoints.exact import from_bytes, to_bytes
from bayesnmf.inference.checkpoints.keeper import read_pieces, write_pieces
from bayesnmf.kernels.cpu.factors import is_padded, padded_copy

pytestmark = [
    pytest.mark.filterwarnings("ignore:.* did not converge:bayesnmf.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:all .* draws would take:UserWarning"),
]
X = bayesnmf.simulate(size=(24, 12), rank=3, totals=80, seed=1).counts.matrix.toarray().astype(int)
X[7] = 0
SPARSE = Priors(Gamma(0.3, 0.1), Dirichlet(0.1))
SCALES = Priors(Gamma(0.5, 0.1), Gamma(0.7, 0.2))
SHORT = {"chains": 2, "warmup": 3, "draws": 6, "threads": 1}
CASES = {
    "map": ("map", "gamma_poisson", MAP(max_iter=40, threads=1)),
    "em": ("map", "gamma_poisson", MAP(algorithm="em", max_iter=16, start="svd", threads=1)),
    "em, restarts": ("map", "dirichlet_poisson", MAP(algorithm="em", max_iter=9, restarts=3, threads=1)),
    "vi": ("vi", "gamma_poisson", VI(max_iter=30, threads=1)),
    "vi, sparse": ("vi", "gamma_poisson", VI(max_iter=16, start="random", threads=1, priors=SPARSE)),
    "vi, learned": ("vi", "dirichlet_poisson", VI(max_iter=16, start="svd", learn=("loadings",), threads=1)),
    "vi, hierarchical": ("vi", "hierarchical_poisson", VI(max_iter=16, start="svd", threads=1)),
    "vi, float32": ("vi", "dirichlet_gamma", VI(max_iter=16, start="svd", threads=1, dtype="float32")),
    "gradient": ("vi", "gamma_poisson", VI(algorithm="gradient", start="svd", max_iter=9, threads=1)),
    "minibatch": ("vi", "gamma_poisson", VI(algorithm="minibatch", batch_size=8, max_iter=5, threads=1)),
    "gibbs": ("gibbs", "gamma_poisson", Gibbs(algorithm="allocations", start="random", **SHORT)),
    "gibbs, moments": (
        "gibbs",
        "dirichlet_gamma",
        Gibbs(algorithm="allocations", keep="moments", start="random", **SHORT),
    ),
    "marginal gibbs": ("gibbs", "gamma_poisson", Gibbs(algorithm="marginal", start="random", **SHORT)),
    "marginal gibbs of topics": ("gibbs", "dirichlet_poisson", Gibbs(algorithm="marginal", start="random", **SHORT)),
    "hierarchical gibbs": ("gibbs", "hierarchical_poisson", Gibbs(start="random", **SHORT)),
    "collapsed gibbs": ("gibbs", "dirichlet_poisson", Gibbs(collapsed=True, start="random", **SHORT)),
    "gibbs with scales": ("gibbs", "gamma_poisson", Gibbs(algorithm="allocations", priors=SCALES, **SHORT)),
    "vi, covariates": ("vi", "gamma_poisson", VI(max_iter=16, start="random", threads=1)),
    "gibbs, covariates": ("gibbs", "gamma_poisson", Gibbs(algorithm="allocations", priors=SCALES, **SHORT)),
    "marginal gibbs, covariates": ("gibbs", "dirichlet_poisson", Gibbs(algorithm="marginal", **SHORT)),
    "vi, batches with nb1": ("vi", "gamma_poisson", VI(max_iter=16, start="random", threads=1)),
    "gradient, batches with nb2": ("vi", "gamma_poisson", VI(algorithm="gradient", max_iter=9, threads=1)),
    "gibbs, batches with nb2": ("gibbs", "gamma_poisson", Gibbs(algorithm="allocations", start="random", **SHORT)),
    "marginal gibbs, batches with nb1": (
        "gibbs",
        "gamma_poisson",
        Gibbs(algorithm="marginal", start="random", **SHORT),
    ),
    "smc": ("smc", "gamma_poisson", SMC(runs=2, particles=4, efficiency=0.3, threads=1)),
}
# One of each kind of algorithm and of each kind of state that it keeps.
BRIEF = [
    "em, restarts",
    "vi, sparse",
    "vi, learned",
    "minibatch",
    "gibbs, moments",
    "marginal gibbs",
    "collapsed gibbs",
    "gibbs, covariates",
    "vi, batches with nb1",
    "gibbs, batches with nb2",
    "smc",
]


class Killed(BaseException):
    """Ends a fit as a signal that cannot be caught would."""


def run(case, checkpoint=None, counts=X, **more):
    method, model, options = CASES[case]
    more |= {"covariates": {"x": np.linspace(-1, 1, len(X)) ** 3}} if "covariates" in case else {}
    more |= {"batch": ["a", "b"] * 12, "noise": case[-3:]} if "batches" in case else {}
    return bayesnmf.fit(counts, model, 3, method, seed=5, options=options, checkpoint=checkpoint, **more)


def same(one, two):
    assert one.status == two.status
    for name in ("loadings", "components", "scale", "trace", "residuals"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    assert one.diagnostics == two.diagnostics
    for name in set(vars(one.estimate)) & {"loadings", "components"}:
        for ours, theirs in zip(parts(one, name), parts(two, name), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def parts(fit, name):
    found = getattr(fit.estimate, name)
    return list(found.parameters.values()) if hasattr(found, "parameters") else [found]


def killed_after(steps, monkeypatch, case, folder, counts=X):
    """Run a fit that writes a snapshot at every step; end it at a step. Return whether it was ended."""
    left = [steps]
    plain = slots.Slot.due

    def due(slot):
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        return plain(slot)

    with monkeypatch.context() as patch:
        patch.setattr(slots.Slot, "due", due)
        patch.setattr(slots.Keeper, "flush", lambda keeper: None if left[0] < 0 else flush(keeper))
        try:
            run(case, Checkpoint(folder, seconds=1e-9), counts)
        except Killed:
            return True
    return False


flush = slots.Keeper.flush


@pytest.mark.parametrize("case", mostly_long([*BRIEF, *(case for case in CASES if case not in BRIEF)], len(BRIEF)))
def test_a_fit_that_was_ended_again_and_again_ends_with_the_same_bits(case, monkeypatch, tmp_path):
    expected = run(case)
    ends = 0
    for steps in (1, 4, 11):
        ends += killed_after(steps, monkeypatch, case, tmp_path / "run")
    assert ends >= (1 if case != "gradient" else 0), "the fit had ended before it could be killed"
    made = []
    with monkeypatch.context() as patch:
        patch.setattr(slots, "to_bytes", lambda *given, plain=slots.to_bytes: made.append(0) or plain(*given))
        same(run(case, Checkpoint(tmp_path / "run", seconds=3600)), expected)
        same(run(case, tmp_path / "run"), expected)  # read from the file of the fit that has ended
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["fit.json", "fit.nc", "lock"]


@pytest.fixture
def blocks(tmp_path):
    anndata = pytest.importorskip("anndata")
    anndata.AnnData(csr_matrix(X.astype(np.float32))).write_h5ad(tmp_path / "cells.h5ad")
    return bayesnmf.Blocks(tmp_path / "cells.h5ad", nonzeros=90, scratch=tmp_path / "scratch")


@pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    "case", mostly_long(["vi, sparse", "gibbs, moments", "em", "vi, covariates", "gibbs, covariates"], 2)
)
def test_fits_of_counts_on_disk_go_on(case, blocks, monkeypatch, tmp_path):
    expected, ends = run(case, counts=blocks), 0
    for steps in (2, 5):
        ends += killed_after(steps, monkeypatch, case, tmp_path / "run", blocks)
        kept = [path.name for path in (tmp_path / "run").iterdir() if path.name.startswith("rows-")]
        most = 8 if "gibbs" not in case else 8 + 2 * 6  # each kept draw has one
        assert len(kept) <= most, "folders of loadings are removed with the snapshots that need them"
    assert ends == 2
    same(run(case, tmp_path / "run", blocks), expected)
    same(run(case, tmp_path / "run", blocks), expected)
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["fit.json", "fit.nc", "lock"]


def test_what_is_on_a_device_is_read_with_the_same_bits():
    """Numbers of 64 bits as well, which JAX would round."""
    import jax

    with jax.enable_x64():
        given = jax.device_put({"loadings": np.arange(6.0).reshape(2, 3) / 7, "step": 2**40 + 1})
        found = from_bytes(to_bytes(given, None, str), None, Path)
    assert all(isinstance(each, jax.Array) for each in found.values())
    for name, each in found.items():
        assert each.dtype == given[name].dtype
        np.testing.assert_array_equal(each, given[name])


@pytest.mark.long
@pytest.mark.parametrize("case", ["vi on a device", "map on a device"])
def test_fits_on_a_device_go_on(case, monkeypatch, tmp_path):
    """With JAX's CPU backend in place of a GPU."""
    import jax

    from bayesnmf.fitting import closed_form

    monkeypatch.setattr(closed_form, "find_gpus", lambda _: jax.devices("cpu")[:1])
    method, kind = ("map", MAP) if case.startswith("map") else ("vi", VI)
    more = {"algorithm": "em"} if method == "map" else {}
    monkeypatch.setitem(CASES, case, (method, "gamma_poisson", kind(device="gpu", max_iter=9, start="svd", **more)))
    expected = run(case)
    ends = sum(killed_after(steps, monkeypatch, case, tmp_path / "run") for steps in (1, 3, 2, 7))
    assert ends >= 3
    same(run(case, tmp_path / "run"), expected)


@pytest.mark.parametrize("case", mostly_long(["em", "gibbs", "smc", "marginal gibbs", "minibatch"], 2))
def test_no_step_is_made_twice(case, monkeypatch, tmp_path):
    """Together, the calls make as many steps as one call, plus the one during which each was ended."""
    steps = []
    plain = slots.Slot.due
    monkeypatch.setattr(slots.Slot, "due", lambda slot: steps.append(0) or plain(slot))
    run(case)
    needed = len(steps)
    assert needed >= 5
    before, ended = 0, 0
    while killed_after(4, monkeypatch, case, tmp_path / "run"):
        before, ended = before + 4, ended + 1
    assert ended >= needed // 8
    threads = 2 if CASES[case][0] in ("gibbs", "smc") else 1  # each of them is at another step
    assert before <= needed * (1 + threads / 2) + 4


def test_damaged_files_cost_steps_and_change_no_bit(monkeypatch, tmp_path):
    expected = run("em, restarts")
    assert killed_after(20, monkeypatch, "em, restarts", tmp_path / "run")
    files = sorted(path for path in (tmp_path / "run").iterdir() if path.name.startswith(("journal", "snapshot")))
    assert len(files) >= 2
    rng = np.random.default_rng(0)
    for path in files[::2]:
        content = bytearray(path.read_bytes())
        content[int(rng.integers(len(content)))] ^= 1
        path.write_bytes(content)
    files[1].write_bytes(files[1].read_bytes()[:-1])
    same(run("em, restarts", tmp_path / "run"), expected)


def test_other_counts_and_settings_are_refused_by_name(tmp_path):
    run("em", tmp_path / "run")
    with pytest.raises(ValueError, match=r"checkpoint must contain fits of the same counts .* differs in counts;"):
        run("em", tmp_path / "run", X + 1)
    with pytest.raises(ValueError, match=r"differs in rank \(3 there, 2 here\), .*give another folder"):
        bayesnmf.fit(X, "gamma_poisson", 2, "map", seed=5, options=CASES["em"][2], checkpoint=tmp_path / "run")
    with pytest.raises(ValueError, match=r"seed \(5 there, 6 here\)"):
        bayesnmf.fit(X, "gamma_poisson", 3, "map", seed=6, options=CASES["em"][2], checkpoint=tmp_path / "run")
    one, two = (bayesnmf.Start(np.full((24, 3), value), np.full((3, 12), 1 / 12)) for value in (1.0, 2.0))
    bayesnmf.fit(X, rank=3, seed=0, options=VI(start=one, max_iter=2), checkpoint=tmp_path / "start")
    with pytest.raises(ValueError, match=r"differs in options\.start"):
        bayesnmf.fit(X, rank=3, seed=0, options=VI(start=two, max_iter=2), checkpoint=tmp_path / "start")
    (tmp_path / "run" / "fit.json").write_text("{}")
    with pytest.raises(ValueError, match=r"the settings in .*run are damaged"):
        run("em", tmp_path / "run")
    with pytest.raises(TypeError, match="checkpoint must be"):
        run("em", 3)


def test_without_a_seed_the_folder_says_it(tmp_path):
    one, two = (bayesnmf.fit(X, rank=2, options=VI(max_iter=3), checkpoint=tmp_path / "run") for _ in range(2))
    assert one.seed == two.seed
    same(one, two)


def test_a_folder_in_use_is_refused(tmp_path):
    pytest.importorskip("fcntl")

    def again(*_):
        run("em", tmp_path / "run")

    with pytest.raises(ValueError, match="no other fit uses"):
        run("em", tmp_path / "run", progress=again)


def test_the_same_fit_within_a_study_twice_at_once_is_kept_once(tmp_path):
    pytest.importorskip("fcntl")
    inner = []

    def again(*_):
        if not inner:
            inner.append(run("em"))

    with keep_each_fit(Checkpoint(tmp_path / "study", seconds=1e-9)):
        outer = run("em", progress=again)
    same(inner[0], outer)
    (folder,) = (tmp_path / "study").iterdir()
    same(bayesnmf.load(folder / "fit.nc"), outer)


def test_a_fit_that_was_interrupted_goes_on(tmp_path):
    def stop(label, done, *_):
        if done == 7:
            raise KeyboardInterrupt

    with pytest.warns(bayesnmf.ConvergenceWarning, match="was interrupted"):
        run("em", Checkpoint(tmp_path / "run", seconds=1e-9), progress=stop)
    assert not (tmp_path / "run" / "fit.nc").exists()
    same(run("em", tmp_path / "run"), run("em"))


def test_a_disk_that_is_full_at_the_end_loses_nothing(monkeypatch, tmp_path):
    from bayesnmf.results import storage

    def full(*_):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(storage, "save_by_size", full)
        with pytest.warns(UserWarning, match="was not written to the checkpoint: no space left; call fit.save") as said:
            same(run("em", tmp_path / "run"), run("em"))
        assert next(each for each in said if "not written" in str(each.message)).filename == __file__
    same(run("em", tmp_path / "run"), run("em"))


def test_pieces_are_whole_or_absent(tmp_path):
    write_pieces(tmp_path / "x", {"a": b"12", "b": b""}, {"seconds": 1.5})
    found = read_pieces(tmp_path / "x")
    assert (found["a"], found["b"], found.about) == (b"12", b"", {"seconds": 1.5})
    content = (tmp_path / "x").read_bytes()
    for place in range(len(content)):
        (tmp_path / "x").write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        assert read_pieces(tmp_path / "x") is None, place
        (tmp_path / "x").write_bytes(content[:place])
        assert read_pieces(tmp_path / "x") is None, place
    assert read_pieces(tmp_path / "none") is None


def test_a_disk_that_is_full_for_a_while_costs_no_fit_and_is_told_once(monkeypatch, tmp_path):
    """Whatever cannot be written while the loops run; what can be written later is."""
    expected = run("em, restarts")
    for what in ("write_pieces in slots", "write_pieces in keeper"):
        name, place = what.split(" in ")
        module, tried, plain = {"slots": slots, "keeper": keeper}[place], [], write_pieces

        def full(*given, tried=tried, plain=plain):
            tried.append(0)
            if len(tried) < 5:
                raise OSError(errno.ENOSPC, "No space left on device")
            plain(*given)

        with monkeypatch.context() as patch:
            patch.setattr(module, name, full)
            with pytest.warns(UserWarning, match="could not be written: .*No space left.*the fit goes on") as said:
                same(run("em, restarts", Checkpoint(tmp_path / place, seconds=1e-9)), expected)
        (told,) = [each for each in said if "could not be written" in str(each.message)]
        assert told.filename == __file__
        assert len(tried) > 5
        same(run("em, restarts", tmp_path / place), expected)


@pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:the checkpoint could not be written:UserWarning")
def test_loadings_that_cannot_be_kept_cost_no_fit(blocks, monkeypatch, tmp_path):
    expected = run("gibbs, moments", counts=blocks)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(keeper, "link_files", full)
    same(run("gibbs, moments", Checkpoint(tmp_path / "run", seconds=1e-9), blocks), expected)


def test_seconds_are_those_of_all_calls_together(monkeypatch, tmp_path):
    """However many files a call writes: each says the seconds from the beginning of the first call."""
    now = [1000.0]
    for module in (slots, keeper):
        monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    for call in range(3):
        kept = keeper.Keeper(tmp_path, 1.0, "fit")
        assert kept.spent == 10.0 * call
        for piece in range(10):
            now[0] += 1
            kept.put(f"{call}/{piece}", b"", set())
            slots.Slot(kept, "loop", None).snapshot()
        slot = slots.Slot(kept, f"loop {call}", None)
        slot.save(1)
        assert slots.Slot(kept, f"loop {call}", None).snapshot() == 1
        assert kept.about(set())["seconds"] == 10.0 * (call + 1)
        now[0] += 500  # until the next call


def test_what_a_killed_write_has_left_is_removed(tmp_path):
    """Of files of the checkpoint alone."""
    pytest.importorskip("fcntl")
    folder = tmp_path / "run"
    folder.mkdir()
    left = [".journal-00001-0a1b2c3d", ".snapshot-00001-ascent-0a1b2c3d.1", ".fit-0a1b2c3d.nc", ".fit-0a1b2c3d.json"]
    others = [".fit-of-mine", ".notes-0a1b2c3d", "journal"]
    for name in [*left, *others]:
        (folder / name).touch()
    (folder / ".rows-xyz-0a1b2c3d").mkdir()
    run("em", folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted([*others, "fit.json", "fit.nc", "lock"])


def test_files_of_another_fit_are_not_used(monkeypatch, tmp_path):
    """Copied from the folder of one with other settings: journals and snapshots, and the fit that has ended."""
    expected = run("em, restarts")
    monkeypatch.setitem(CASES, "other", ("map", "dirichlet_poisson", MAP(algorithm="em", max_iter=8, restarts=3)))
    for name in ("one", "two"):
        case = "em, restarts" if name == "one" else "other"
        assert killed_after(12, monkeypatch, case, tmp_path / name)
    for path in (tmp_path / "two").iterdir():
        if path.name.startswith(("journal", "snapshot")):
            shutil.copyfile(path, tmp_path / "one" / path.name)
    same(run("em, restarts", tmp_path / "one"), expected)
    run("other", tmp_path / "two")
    shutil.copyfile(tmp_path / "two" / "fit.nc", tmp_path / "one" / "fit.nc")
    same(run("em, restarts", tmp_path / "one"), expected)


@pytest.mark.parametrize("case", mostly_long(["em, restarts", "gibbs, moments"]))
def test_missing_and_exchanged_files_change_no_bit(case, monkeypatch, tmp_path):
    expected = run(case)
    assert killed_after(14, monkeypatch, case, tmp_path / "run")
    files = sorted(path for path in (tmp_path / "run").iterdir() if path.name.startswith(("journal", "snapshot")))
    assert len(files) >= 3
    for number, damage in enumerate(("first", "all but one", "exchanged", "snapshots")):
        folder = shutil.copytree(tmp_path / "run", tmp_path / str(number))
        there = [folder / path.name for path in files]
        for place, path in enumerate(there):
            if damage == "snapshots" and path.name.startswith("snapshot"):
                shutil.copyfile(there[0], path)
            elif damage == "exchanged" and place:
                shutil.copyfile(files[place - 1], path)
            elif (damage == "first" and not place) or (damage == "all but one" and place != 1):
                path.unlink()
        same(run(case, Checkpoint(folder, seconds=1e-9)), expected)


def test_no_folder_elsewhere_is_removed(tmp_path):
    """Though a file made by someone else names it as one of loadings."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "run").mkdir()
    for name in ("../mine", str(tmp_path / "mine"), "rows-/../../mine", "rows-x/../../mine"):
        about = {"identity": "fit", "seconds": 0.0, "generation": 1, "added": 0, "rows": [name]}
        for generation in (0, 1):
            path = tmp_path / "run" / f"snapshot-loop.{generation}"
            write_pieces(path, {"loop": to_bytes(3, None, str)}, {**about, "generation": generation})
        slot = slots.Slot(keeper.Keeper(tmp_path / "run", 1.0, "fit"), "loop", None)
        assert slot.snapshot() is None
        slot.save(1)
        slot.save(2)
        slot.end(3)
        assert (tmp_path / "mine").is_dir()


def test_damaged_settings_and_older_folders_are_refused(tmp_path):
    run("em", tmp_path / "run")
    path = tmp_path / "run" / "fit.json"
    text = path.read_text()
    assert '"seed": "5"' in text
    path.write_text(text.replace('"seed": "5"', '"seed": "6"'))
    for seed in (None, 5, 6):
        with pytest.raises(ValueError, match=r"the settings in .*run are damaged"):
            bayesnmf.fit(X, "gamma_poisson", 3, "map", seed=seed, options=CASES["em"][2], checkpoint=tmp_path / "run")
    path.write_text(text.replace('"format_version": 4', '"format_version": 1'))
    with pytest.raises(ValueError, match=r"must be of format 4.*has format 1; end that fit with the version that"):
        run("em", tmp_path / "run")


@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX systems")
def test_a_new_folder_is_private_and_an_older_one_keeps_its_permissions(tmp_path):
    (tmp_path / "shared").mkdir(mode=0o755)
    for name, mode in (("new", 0o700), ("shared", 0o755)):
        run("em", tmp_path / name)
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == mode


def with_tree(tree, arrays=b""):
    text = json.dumps(tree).encode()
    return len(text).to_bytes(8, "little") + text + arrays


@pytest.mark.parametrize(
    ("tree", "rule"),
    [
        (["object", "system"], "a checkpoint contains no system"),
        (["object", "os.system", ["command", "true"]], r"contains no os\.system"),
        (["object", "numpy.testing._private.utils.runstring"], "contains no numpy"),
        (["object", "bayesnmf.inference.checkpoints.exact.os.system"], "contains no bayesnmf"),
        (["system", "true"], "contains no system"),
        (["array", "|O", [1], "C", 0], "keeps no arrays of object"),
        (["array", "<f8", [1000], "C", 0], "too small"),
    ],
)
def test_a_checkpoint_names_no_code(tree, rule):
    with pytest.raises((TypeError, ValueError), match=rule):
        from_bytes(with_tree(tree, bytes(64)), None, Path)


def test_a_checkpoint_unpickles_nothing(tmp_path):
    """Neither in the place of a state nor of a whole file, nor in an array."""
    import pickle

    for content in (pickle.dumps(os.system), with_tree(["array", "<f8", [1], "C", 0], pickle.dumps(os.system))):
        try:
            found = from_bytes(content, None, Path)
        except (ValueError, IndexError):
            continue
        assert type(found) is np.ndarray
    for name in ("journal-00001", "snapshot-00001-ascent.0"):
        (tmp_path / name).write_bytes(pickle.dumps(os.system))
        assert read_pieces(tmp_path / name) is None


def test_states_are_read_as_they_were():
    """Types, order in memory, padding, what is in two places, whole numbers of any size, generators."""
    padded = padded_copy(np.arange(12.0).reshape(4, 3))
    rng = np.random.Generator(np.random.MT19937(3))
    state = {
        "padded": (padded, padded.T, padded),
        "orders": [
            np.asfortranarray(np.ones((2, 3))),
            np.arange(6).reshape(2, 3)[:, ::2],
            np.float32(0.1),
            np.array(1),
        ],
        3: (2**200, -1, True, None, 0.1, -0.0, float("inf"), slice(1, None), {1, 2}, "ü\ud800"),
        "rng": [rng.bit_generator.state, np.random.default_rng(1).bit_generator.state],
        "prior": Gamma(np.ones((2, 1)), np.full((1, 3), 0.1)),
    }
    found = from_bytes(to_bytes(state, None, str), None, Path)
    one, turned, again = found["padded"]
    assert one is again
    assert is_padded(one)
    assert is_padded(turned, 0)
    np.testing.assert_array_equal(turned.T, padded)
    for ours, theirs in zip(found["orders"], state["orders"], strict=True):
        assert (type(ours), ours.dtype, ours.shape) == (type(theirs), theirs.dtype, theirs.shape)
        np.testing.assert_array_equal(ours, theirs)
    assert found["orders"][0].flags.f_contiguous
    assert found["orders"][0].flags.writeable
    assert repr(found[3]) == repr(state[3])
    np.testing.assert_equal(found["rng"], state["rng"])
    assert type(found["prior"]) is Gamma
    np.testing.assert_array_equal(found["prior"].rate, state["prior"].rate)
    for strange in (object(), np.array([object()]), 1j, os.system):
        with pytest.raises(TypeError, match="a checkpoint keeps no"):
            to_bytes({"thing": strange}, None, str)


PROGRAM = """
    import sys, os, signal, threading, time
    import numpy as np
    sys.path[:0] = {tests!r}
    from test_checkpoints import run, Checkpoint
    if len(sys.argv) > 3:
        seconds = float(sys.argv[3])
        def die():
            time.sleep(seconds)
            os.kill(os.getpid(), signal.SIGKILL)
        begun = []
        def began(*_):
            if not begun:
                begun.append(threading.Thread(target=die, daemon=True))
                begun[0].start()
        run(sys.argv[1], Checkpoint(sys.argv[2], seconds=0.01), progress=began)
    fit = run(sys.argv[1], Checkpoint(sys.argv[2], seconds=3600))
    np.savez(sys.argv[2] + ".npz", loadings=fit.loadings, components=fit.components, trace=fit.trace)
"""


@pytest.mark.long
@pytest.mark.parametrize("case", ["vi", "smc"])
def test_kill_9_at_random_moments(case, tmp_path):
    """The process itself is killed, three times, at random moments of its first half second."""
    rng = np.random.default_rng(3)
    program = textwrap.dedent(PROGRAM).format(tests=[str(folder) for folder in Path(__file__).parents[:2]])
    command = [sys.executable, "-c", program, case, str(tmp_path / "run")]
    killed = 0
    for _ in range(3):
        ended = subprocess.run([*command, str(rng.uniform(0, 0.5))], capture_output=True, text=True, check=False)
        assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
        killed += ended.returncode != 0
    assert killed >= 1
    subprocess.run(command, check=True)
    expected, found = run(case), np.load(tmp_path / "run.npz")
    for name in ("loadings", "components", "trace"):
        np.testing.assert_array_equal(found[name], getattr(expected, name))
