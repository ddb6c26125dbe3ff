"""Fits on several devices, and on devices to which blocks of counts on disk are sent, against those of the host.

JAX takes the CPU for three devices (`conftest.py`).
"""

import pickle
from dataclasses import replace
from functools import cache

import jax
import numpy as np
import pytest
from plain import even_priors, plain_map, plain_vi
from registry import nasty_counts
from scipy.sparse import csr_array
from suites import mostly_long

import bayesnmf
from bayesnmf import Blocks, Dirichlet, Gamma, Priors
from bayesnmf.fitting import closed_form
from bayesnmf.inference.blocked.passes import RowTask
from bayesnmf.inference.device.placing import StreamedEntries

OPTIONS = {"map": plain_map, "vi": plain_vi}
NUMBER = 3
NASTY = nasty_counts()  # 9 rows: loadings are split, 3 rows a device
UNEVEN = np.vstack([NASTY, NASTY[2:7], np.zeros((1, NASTY.shape[1])), NASTY[:1]])  # 16 rows: 6, 6 and 4; whole loadings
SHORT = NASTY[2:6]  # 4 rows: 2, 2 and none
CASES = {
    f"{model}, {method}, {name}": (model, method, name, more)
    for model, method, name, more in [
        ("gamma_poisson", "map", "uneven", {"priors": Priors(Gamma(1.3, 0.2), Dirichlet(1.2)), "extrapolate": True}),
        ("dirichlet_gamma", "vi", "nasty", {"schedule": "alternating", "sweeps": 2}),
        ("dirichlet_poisson", "vi", "short", {"dtype": "float32"}),
    ]
}


def fitted(case, device):
    model, method, name, more = CASES[case]
    counts = {"nasty": NASTY, "uneven": UNEVEN, "short": SHORT}[name]
    options = OPTIONS[method](**{"max_iter": 8, "tol": 0, "device": device, **more})
    return bayesnmf.fit(counts, model, 3, method, seed=1, options=options)


@pytest.fixture
def three_gpus(monkeypatch):
    """Take JAX's devices of the CPU for GPUs."""
    devices = jax.devices("cpu")
    assert len(devices) == NUMBER
    monkeypatch.setattr(closed_form, "find_gpus", lambda device: {"gpus": devices}[device])


@pytest.mark.usefixtures("quick_compilation", "three_gpus")
@pytest.mark.parametrize("case", mostly_long(CASES, default=2))
def test_several_devices_give_the_iterates_of_the_host(case):
    """A row shared out twice or by no device, or totals that are not added up, would change the trace at once."""
    host, several = fitted(case, "cpu"), fitted(case, "gpus")
    tolerance = 1e-5 if CASES[case][3].get("dtype") else 1e-10
    np.testing.assert_allclose(several.trace, host.trace, rtol=tolerance)
    np.testing.assert_allclose(several.loadings, host.loadings, rtol=0, atol=10 * tolerance * host.loadings.max())
    np.testing.assert_allclose(several.components, host.components, rtol=0, atol=10 * tolerance * host.components.max())


@pytest.mark.usefixtures("quick_compilation", "three_gpus")
def test_the_kernel_of_warp_serves_several_devices(monkeypatch):
    pytest.importorskip("warp")
    monkeypatch.setattr("bayesnmf.kernels.gpu.allocation.lanes_on", lambda device, rank: 1)
    host, several = (fitted("gamma_poisson, map, uneven", where) for where in ("cpu", "gpus"))
    np.testing.assert_allclose(several.trace, host.trace, rtol=1e-10)
    np.testing.assert_allclose(several.components, host.components, rtol=0, atol=1e-9 * host.components.max())


# --- counts on disk -----------------------------------------------------------------------------------


@cache
def counts():
    """Counts of 211 rows, two of them empty."""
    X = bayesnmf.simulate(size=(211, 40), rank=3, priors=even_priors(rank=3, total=90), seed=1).counts.matrix.toarray()
    X[[5, 200]] = 0
    return X


@pytest.fixture(scope="module")
def blocks(tmp_path_factory):
    import dask.array as da

    folder = tmp_path_factory.mktemp("blocks")
    return Blocks(da.from_array(csr_array(counts()), chunks=(50, 40), asarray=False), nonzeros=1200, scratch=folder)


@pytest.fixture
def lent(monkeypatch, device):
    """Take this device for the GPU; return how many blocks it has shared out."""
    monkeypatch.setattr(closed_form, "find_gpus", lambda _: [device])
    seen = []
    tally = StreamedEntries.tally

    def counted(self, *given):
        seen.append(given[1:])
        return tally(self, *given)

    monkeypatch.setattr(StreamedEntries, "tally", counted)
    return seen


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("map", {"extrapolate": True, "priors": Priors(Gamma(1.3, 0.2), Dirichlet(1.2))}),
        ("vi", {"schedule": "alternating"}),
        pytest.param("vi", {"dtype": "float32"}, marks=pytest.mark.long),
        ("vi", {"learn": ("loadings",), "priors": Priors(Gamma(0.5, 0.1), Gamma(0.7, 0.2))}),
    ],
)
def test_blocks_are_streamed_to_a_device(blocks, lent, method, more):
    options = OPTIONS[method](**{"start": "svd", "max_iter": 5, "tol": 0, **more})
    host = bayesnmf.fit(counts(), rank=3, method=method, seed=0, options=options)
    assert not lent
    fit = bayesnmf.fit(blocks, rank=3, method=method, seed=0, options=replace(options, device="gpu"))
    number = len(fit.counts.blocks)
    assert number > 4
    kinds = {sides for sides, _ in lent}
    assert kinds == ({"loadings", "components"} if "schedule" in more else {"both"})
    assert len({shard for _, shard in lent}) > 1
    assert fit.options.device == "gpu"
    assert fit.loadings.dtype == host.loadings.dtype
    tolerance = 1e-5 if "dtype" in more else 1e-10
    np.testing.assert_allclose(fit.trace, host.trace, rtol=tolerance)
    np.testing.assert_allclose(fit.loadings, host.loadings, rtol=0, atol=10 * tolerance * host.loadings.max())
    np.testing.assert_allclose(fit.components, host.components, rtol=0, atol=10 * tolerance * host.components.max())


@pytest.mark.usefixtures("quick_compilation", "lent")
def test_blocks_are_streamed_to_the_kernel_of_warp(blocks, monkeypatch):
    pytest.importorskip("warp")
    monkeypatch.setattr("bayesnmf.kernels.gpu.allocation.lanes_on", lambda device, rank: 1)
    options = plain_vi(start="svd", max_iter=3, tol=0)
    host = bayesnmf.fit(counts(), rank=3, seed=0, options=options)
    fit = bayesnmf.fit(blocks, rank=3, seed=0, options=replace(options, device="gpu"))
    np.testing.assert_allclose(fit.trace, host.trace, rtol=1e-10)
    np.testing.assert_allclose(fit.loadings, host.loadings, rtol=0, atol=1e-9 * host.loadings.max())


@pytest.mark.usefixtures("quick_compilation", "lent")
def test_blocks_of_any_size_use_one_compiled_program(blocks):
    from bayesnmf.inference.device import placing

    before = placing._share_out._cache_size()
    bayesnmf.fit(blocks, rank=4, seed=0, options=plain_vi(start="random", max_iter=2, tol=0, device="gpu"))
    assert placing._share_out._cache_size() == before + 1


@pytest.mark.usefixtures("quick_compilation", "lent")
def test_tasks_for_a_device_can_be_sent_to_workers(blocks, monkeypatch):
    cloudpickle = pytest.importorskip("cloudpickle")
    run = RowTask.run

    def sent(self, shard):
        return run(pickle.loads(cloudpickle.dumps(self)) if self.pure else self, shard)

    options = plain_vi(start="random", max_iter=3, tol=0, device="gpu")
    here = bayesnmf.fit(blocks, rank=3, seed=0, options=options)
    monkeypatch.setattr(RowTask, "run", sent)
    np.testing.assert_array_equal(bayesnmf.fit(blocks, rank=3, seed=0, options=options).trace, here.trace)
