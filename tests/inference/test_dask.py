"""Fits of counts on disk by workers of a cluster: the same numbers to the bit, whatever happens to the workers."""

import os
import signal

import numpy as np
import pytest
from plain import even_priors, plain_vi
from scipy.sparse import csr_matrix
from suites import mostly_long

import bayesnmf
from bayesnmf import MAP, Blocks, Checkpoint, Gibbs, NegativeBinomial
from bayesnmf.inference.blocked import passes
from bayesnmf.inference.checkpoints import slots

distributed = pytest.importorskip("distributed", reason="needs bayesnmf[dask]")
anndata = pytest.importorskip("anndata")
pytestmark = [
    pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.* did not converge:bayesnmf.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # of a worker that was killed
]
X = bayesnmf.simulate(size=(120, 50), rank=4, priors=even_priors(rank=4, total=80), seed=1).counts.matrix
OPTIONS = {
    "map": MAP(max_iter=3, tol=0),
    "descent": MAP(algorithm="scd", max_iter=3, tol=0),
    "vi": plain_vi(start="random", max_iter=6, tol=1e-12),
    "gibbs": Gibbs(start="random", chains=1, warmup=1, draws=3, keep="moments"),
    "noise": plain_vi(start="random", max_iter=2, tol=0),
    "noisy gibbs": Gibbs(start="random", chains=1, warmup=1, draws=2, keep="draws"),
}

METHODS = {"descent": "map", "noise": "vi", "noisy gibbs": "gibbs"}
MORE = {
    "noise": {"noise": NegativeBinomial(dispersion=0.3), "missing": np.random.default_rng(0).random(X.shape) < 0.1},
    "noisy gibbs": {"noise": NegativeBinomial(dispersion="row")},
}


@pytest.fixture(scope="module")
def blocks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dask")
    anndata.AnnData(csr_matrix(X.astype(np.float32))).write_h5ad(folder / "cells.h5ad")
    return Blocks(folder / "cells.h5ad", nonzeros=600, scratch=folder / "scratch")


# A process imports the package anew, which takes seconds. Threads are sent pickled messages just as well.
CLUSTERS = {
    "threads": {"n_workers": 1, "threads_per_worker": 2, "processes": False, "protocol": "tcp"},
    "processes": {"n_workers": 2, "threads_per_worker": 1},
}


@pytest.fixture(scope="module", params=mostly_long(CLUSTERS))
def client(request):
    given = {**CLUSTERS[request.param], "dashboard_address": ":0"}
    with distributed.LocalCluster(**given) as cluster, distributed.Client(cluster) as client:
        yield client


def fitted(blocks, method="vi"):
    given = {"seed": 0, "options": OPTIONS[method], **MORE.get(method, {})}
    return bayesnmf.fit(blocks, rank=4, method=METHODS.get(method, method), **given)


def alone(monkeypatch, blocks, method="vi"):
    with monkeypatch.context() as patch:
        patch.setattr(passes, "active_client", lambda: None)
        return fitted(blocks, method)


def same(one, two):
    for name in ("loadings", "components", "trace"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


@pytest.mark.parametrize("method", mostly_long(OPTIONS, (2, 3, 4)))
def test_workers_make_the_numbers_of_this_process(client, blocks, monkeypatch, method):
    seen = []
    plain = passes.active_client
    monkeypatch.setattr(passes, "active_client", lambda: seen.append(plain()) or seen[-1])
    there = fitted(blocks, method)
    assert seen[0] is client
    same(there, alone(monkeypatch, blocks, method))


def _die_once(flag, number):
    """On a worker: end the process the next time that this block runs, unless the flag is there."""
    from bayesnmf.inference.blocked.passes import RowTask

    plain = RowTask.run

    def run(task, blocks):
        if number in blocks and not os.path.exists(flag):
            with open(flag, "w"):
                pass
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(task, blocks)

    RowTask.run = run


@pytest.mark.long
@pytest.mark.parametrize("client", ["processes"], indirect=True)
def test_a_worker_that_is_killed_within_a_task_changes_no_bit(client, blocks, monkeypatch, tmp_path):
    """A new worker takes the place of the one that ends at the sixth block, which is of the second shard."""
    expected = alone(monkeypatch, blocks)
    flag = tmp_path / "killed"
    client.wait_for_workers(2)
    client.run(_die_once, str(flag), 5)
    same(fitted(blocks), expected)
    assert flag.exists()


def test_what_is_lost_with_a_worker_is_submitted_again(client, blocks, monkeypatch):
    """Data that was scattered may be lost although its tasks are known: every third result is."""
    monkeypatch.setitem(OPTIONS, "vi", plain_vi(start="random", max_iter=3, tol=0))
    expected, plain, asked = alone(monkeypatch, blocks), distributed.Future.result, []

    def result(future, *given, **more):
        asked.append(0)
        if len(asked) % 3 == 0:
            raise distributed.client.FutureCancelledError(future.key, "lost")
        return plain(future, *given, **more)

    monkeypatch.setattr(distributed.Future, "result", result)
    same(fitted(blocks), expected)
    assert len(asked) > 9


@pytest.mark.long
@pytest.mark.parametrize("client", ["processes"], indirect=True)
def test_a_driver_that_was_killed_goes_on(client, blocks, monkeypatch, tmp_path):
    """The second process knows nothing but the folder of the checkpoint; the snapshot was made after four steps."""
    expected, steps, plain = alone(monkeypatch, blocks), [], slots.Slot.due

    def due(slot):
        steps.append(0)
        if len(steps) == 5:
            raise SystemExit
        return plain(slot)

    given = {"rank": 4, "method": "vi", "seed": 0, "options": OPTIONS["vi"]}
    with monkeypatch.context() as patch:
        patch.setattr(slots.Slot, "due", due)
        with pytest.raises(SystemExit):
            bayesnmf.fit(blocks, **given, checkpoint=Checkpoint(tmp_path / "run", seconds=1e-9))
    assert list((tmp_path / "run").glob("snapshot-*"))
    reached = []

    def report(label, done, *_):
        if label != "checking counts on disk":
            reached.append(done)

    found = bayesnmf.fit(blocks, **given, checkpoint=tmp_path / "run", progress=report)
    same(found, expected)
    same(bayesnmf.load(tmp_path / "run" / "fit.nc"), expected)
    assert min(reached) > 3, "the first steps were made again"


def test_errors_of_a_task_are_those_of_this_process(client, blocks, monkeypatch):
    from bayesnmf.data.blocks.store import Store

    def changed(self):
        raise ValueError("data.npy was changed")

    monkeypatch.setattr(Store, "check", changed)
    with pytest.raises(ValueError, match=r"data\.npy was changed"):
        fitted(blocks)


def test_shards_cover_all_blocks_in_order():
    for blocks, number in {1: 1, 2: 1, 5: 2, 9: 4, 17: 8, 36: 8, 60: 16, 1000: 32, 2049: 33, 10_000: 157}.items():
        shards = passes.shards_of(blocks)
        assert [block for shard in shards for block in shard] == list(range(blocks))
        assert len(shards) == number


def test_no_client_is_needed(monkeypatch):
    with monkeypatch.context() as patch:
        patch.delitem(passes.sys.modules, "distributed")
        assert passes.active_client() is None
