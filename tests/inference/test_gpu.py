"""Fits that run on a device as a whole, against the host's: on JAX's CPU backend, and on a GPU where there is one."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from plain import PLAIN, plain_vi
from registry import MODELS_AND_PRIORS, RANK, SIZE, every_entry, nasty_counts, over, plain_counts, with_parameter
from scipy.sparse import csr_array

import bayesnmf
from bayesnmf import MAP, VI, ConvergenceWarning, Dirichlet, Gamma, Priors, Start
from bayesnmf.data.conversion import as_counts
from bayesnmf.fitting import closed_form
from bayesnmf.fitting.closed_form import _steps, schedule_of
from bayesnmf.fitting.problems import point_or_mean_field, start_state
from bayesnmf.inference.ascent.coordinate_ascent import ascend
from bayesnmf.inference.device import sides
from bayesnmf.inference.device.ascent import MOST, ascend_on
from bayesnmf.inference.sides import MeanField, Mode
from bayesnmf.inference.status import NOT_A_NUMBER
from bayesnmf.kernels.gpu import allocation
from bayesnmf.kernels.gpu.allocation import expected_allocations, place_cells

OPTIONS = PLAIN
NASTY = nasty_counts()
by_method = pytest.mark.parametrize("method", ["map", "vi"])
by_dtype = pytest.mark.parametrize("dtype", [np.float64, np.float32])
# One of each pair of families, and of each shape of prior.
some_entries = over([MODELS_AND_PRIORS[i] for i in (0, 3, 4, 5, 11)])

# Sums in another order: rounding of the last few bits, amplified by a dozen steps.
SAME, SINGLE = 1e-10, 1e-5


@pytest.fixture(scope="module", autouse=True)
def quick_compilation():
    """Without a GPU, compile without optimisation: compiling is most of what these tests take."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", jax.default_backend() == "cpu")
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(params=["cpu", "gpu"])
def device(request):
    try:
        return jax.devices(request.param)[0]
    except RuntimeError:
        return pytest.skip(f"JAX finds no {request.param}")


# --- the allocation step ----------------------------------------------------------------------------


def allocations(X, U, V, device, dtype=np.float64):
    with jax.enable_x64(True):
        counts = as_counts(X, dtype=dtype)
        cells = place_cells(counts.matrix, counts.transposed, U.shape[1], device)
        factors = jax.device_put((U.astype(dtype), V.astype(dtype)), device)
        totals = jax.jit(lambda *arrays: expected_allocations(*arrays))(cells, *factors)  # compiled anew each time
        assert totals.loadings.dtype == totals.components.dtype == dtype
        assert totals.loglik.dtype == np.float64
        return [np.asarray(each) for each in totals]


def naive(X, U, V):
    S, loglik = reference.log_allocations(X, reference.safe_log(U), reference.safe_log(V))
    return S.sum(axis=2), S.sum(axis=0), loglik


def heavy_tailed(rows, columns, seed=0):
    """A full first row and column, and fewer counts further down and right."""
    rng = np.random.default_rng(seed)
    mean = 30.0 / (1 + np.arange(rows))[:, None] / (1 + np.arange(columns))
    counts = rng.poisson(mean).astype(float)
    counts[0], counts[:, 0] = 2, 3
    return counts


@by_dtype
@pytest.mark.parametrize("small", [False, True], ids=["one chunk", "many chunks and levels"])
@pytest.mark.parametrize(
    ("X", "rank"),
    [
        (NASTY, 3),
        (heavy_tailed(60, 35), 4),
        (np.ones((7, 300)), 1),
        (np.zeros((4, 3)), 2),
        (np.array([[3.0]]), 5),
        (np.eye(23) * 0.25, 2),
    ],
    ids=["nasty", "heavy tails", "dense", "nothing", "one cell", "diagonal fractions"],
)
def test_expected_allocations_are_the_naive_ones(X, rank, small, dtype, device, monkeypatch):
    if small:
        for name, value in {"CHUNK": 40, "LONGEST": 4, "FAN": 2}.items():
            monkeypatch.setattr(allocation, name, value)
    rng = np.random.default_rng(0)
    U, V = rng.gamma(1.0, size=(len(X), rank)) + 1e-3, rng.gamma(1.0, size=(rank, X.shape[1])) + 1e-3
    # A sum of K·nnz products rounds to a few hundred units in the last place.
    tolerance = 1e-12 if dtype == np.float64 else 1e-4
    for got, wanted in zip(allocations(X, U, V, device, dtype), naive(X, U, V), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


@by_dtype
@pytest.mark.parametrize("spread", [0.3, 0.6, 0.9, 1.0])
def test_totals_are_kept_where_means_underflow(dtype, spread, device):
    """Factors over the whole range of exponents: products of two underflow, and quotients could overflow."""
    rng = np.random.default_rng(4)
    lowest = np.log10(np.finfo(dtype).tiny) * spread
    U, V = ((10.0 ** rng.uniform(lowest, 0, shape)).astype(dtype) for shape in ((9, 3), (3, 7)))
    found = allocations(NASTY, U, V, device, dtype)
    rounding = 1e-12 if dtype == np.float64 else 1e-4
    np.testing.assert_allclose(found[0].sum(axis=1), NASTY.sum(axis=1), rtol=rounding)
    np.testing.assert_allclose(found[1].sum(axis=0), NASTY.sum(axis=0), rtol=rounding)
    # Logarithms near −700 and −87 round to 1e-13 and 1e-5: so do their exponentials.
    tolerance = 1e-10 if dtype == np.float64 else 1e-3
    for got, wanted in zip(found, naive(NASTY, U.astype(float), V.astype(float)), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance * 1e-3)


@by_dtype
def test_exact_zeros(dtype, device):
    """A factor of 0 receives nothing, unless every component of the cell is 0."""
    tiny = np.finfo(dtype).tiny
    U, V = np.array([[tiny, 0], [0.5, 0], [1, 0]]), np.array([[1, tiny], [1, 1]])
    X = np.array([[4.0, 6.0], [3.0, 0.0], [0.0, 8.0]])
    A, B, loglik = allocations(X, U, V, device, dtype)
    np.testing.assert_array_equal(A[:, 1], 0)
    np.testing.assert_allclose(A[:, 0], X.sum(axis=1), rtol=1e-6)
    np.testing.assert_allclose(B[0], X.sum(axis=0), rtol=1e-6)
    assert np.isfinite(loglik)
    A, _, loglik = allocations([[5.0]], np.array([[1, 0]]), np.array([[0], [1]]), device, dtype)
    np.testing.assert_allclose(A, [[2.5, 2.5]], rtol=1e-6)
    np.testing.assert_allclose(loglik, 5 * np.log(2 * np.float64(tiny)), rtol=1e-6)


@by_dtype
def test_the_same_bits_at_every_run(dtype, device):
    rng = np.random.default_rng(1)
    X = heavy_tailed(300, 200)
    U, V = rng.gamma(1.0, size=(300, 4)), rng.gamma(1.0, size=(4, 200))
    for one, two in zip(*(allocations(X, U, V, device, dtype) for _ in range(2)), strict=True):
        np.testing.assert_array_equal(one, two)


@settings(max_examples=60, derandomize=True)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=30), st.integers(1, 9), st.integers(1, 5))
def test_every_cell_is_in_one_segment_of_its_row(lengths, longest, chunk):
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    matrix = csr_array((np.arange(1.0, indptr[-1] + 1), np.zeros(indptr[-1], int), indptr), (len(lengths), 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(allocation, "LONGEST", longest)
        patch.setattr(allocation, "CHUNK", chunk * longest)
        cells = allocation._segments(matrix, 1)
    owners, starts, ends = (np.ravel(each) for each in (cells.owners, cells.starts, cells.ends))
    assert np.all(ends - starts <= cells.length)
    assert cells.length <= longest
    found = np.zeros((len(owners), int(indptr[-1])), int)
    for s, (first, last) in enumerate(zip(starts, ends, strict=True)):
        found[s, first:last] = 1
    np.testing.assert_array_equal(found.sum(axis=0), 1)
    np.testing.assert_array_equal(owners[found.argmax(axis=0)], np.repeat(np.arange(len(lengths)), lengths))
    for first, last in cells.tree:  # summed up by levels, every cell ends in its row
        found = np.array([found[a:b].sum(axis=0) for a, b in zip(first, last, strict=True)])
    rows = found[: cells.rows]
    np.testing.assert_array_equal(rows.sum(axis=1), lengths)
    np.testing.assert_array_equal(rows.sum(axis=0), 1)


def test_temporaries_do_not_grow_with_counts_times_rank(monkeypatch):
    """What the compiler plans for a pass: chunks and sums of segments, far below one number for each count and rank."""
    monkeypatch.setattr(allocation, "CHUNK", 2**14)
    n, m, rank = 400, 300, 16
    X = np.random.default_rng(0).poisson(3.0, (n, m)).astype(float)
    with jax.enable_x64(True):
        counts = as_counts(X)
        cells = place_cells(counts.matrix, counts.transposed, rank)
        U, V = jnp.ones((n, rank)), jnp.ones((rank, m))
        planned = jax.jit(expected_allocations).lower(cells, U, V).compile().memory_analysis().temp_size_in_bytes
    # 15 MB for every count and rank; sums of segments take up to 5 (n + m) K, twice where means underflow.
    assert planned < 8 * (10 * (n + m) * rank + 16 * 2**14) < 8 * np.count_nonzero(X) * rank / 2


# --- the sides --------------------------------------------------------------------------------------


CARRY, GIVEN = (jax.jit(each, static_argnums=0) for each in (sides.carry, sides.given))


def summaries(carried):
    if carried == "mean field":
        return MeanField(component_axis=1), MeanField(component_axis=0)
    return (Mode(carried),) * 2


def kinds(carried):
    return [sides.Kind(carried, component_axis=axis) for axis in (1, 0)]


@pytest.mark.parametrize("carried", ["natural", "log", "mean field"])
@every_entry
def test_sides_are_those_of_the_priors(entry, carried):
    """Every formula of the device against the priors' own: what a side carries, given totals and an exposure."""
    priors = entry.priors()
    if carried == "natural" and not entry.natural:
        pytest.skip("has no mode in the natural basis")
    if carried == "mean field" and isinstance(priors.loadings, Gamma) and not priors.components.proper:
        pytest.skip("improper")
    rng = np.random.default_rng(0)
    both = zip(
        (priors.loadings, priors.components),
        ((SIZE[0], RANK), (RANK, SIZE[1])),
        ((1, RANK), (RANK, 1)),
        summaries(carried),
        kinds(carried),
        strict=True,
    )
    for prior, size, column, summary, kind in both:
        total, exposure = rng.gamma(1.0, 5.0, size), rng.gamma(2.0, 3.0, column)
        total[0] = 0
        before = summary.carry(prior, total + 1.0, exposure, None)
        wanted = summary.carry(prior, total, exposure, before)
        with jax.enable_x64(True):
            parts = sides.parts_of(prior)
            previous = GIVEN(kind, parts, sides.from_host(before, np.float64))
            new = CARRY(kind, parts, total, exposure, previous)
        compare_sides(new, wanted)


def compare_sides(found, wanted):
    np.testing.assert_allclose(found.matrix, wanted.matrix, rtol=1e-12)
    np.testing.assert_allclose(found.geometric, wanted.geometric, rtol=1e-11)
    np.testing.assert_allclose(found.penalty, wanted.penalty, rtol=1e-11)
    assert (found.log_shift is None) == (wanted.log_shift is None)
    if wanted.log_shift is not None:
        np.testing.assert_allclose(found.log_shift, wanted.log_shift, rtol=1e-11)
    stated = () if wanted.conditional is None else vars(wanted.conditional).values()
    for got, value in zip(jax.tree.leaves(found.conditional), stated, strict=True):
        np.testing.assert_allclose(got, value, rtol=1e-12)


# --- whole ascents ----------------------------------------------------------------------------------


def ascents(counts, method, priors, device, *, rank=RANK, start="random", dtype="float64", steps=12, **stated):
    """One ascent on the host, in float64, and one on the device, from the same start."""
    stated = {"max_iter": steps, "tol": 0, **stated}
    found = []
    for where, kind in (("host", "float64"), ("device", dtype)):
        options = OPTIONS[method](priors=priors, dtype=kind, start=start, **stated)
        problem = point_or_mean_field(as_counts(counts, dtype=kind), options)
        state = start_state(problem, options.start, rank, np.random.default_rng(0))
        schedule = schedule_of(options)
        if where == "host":
            found.append(ascend(problem, state, schedule, _steps(problem, options, schedule)))
        else:
            found.append(ascend_on(device, problem, state, schedule, options.extrapolate, lambda *_: None))
    return found


def compare_ascents(host, other, tolerance, scale=0.0):
    """Traces, factors and mean fields agree relative to the largest entry; so does why they ended."""

    def same(a, b, size=None):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * max(size or 0, np.abs(b).max(), 1e-300))

    assert other.status == host.status
    assert len(other.trace) == len(host.trace)
    same(other.trace, host.trace, scale)
    for a, b in zip(other.state, host.state, strict=True):
        same(a.matrix, b.matrix)
        same(a.geometric, b.geometric)
        if b.conditional is not None:
            for name, value in vars(b.conditional).items():
                same(getattr(a.conditional, name), np.broadcast_to(value, getattr(a.conditional, name).shape))
    assert len(other.residuals) == len(host.residuals)
    if host.residuals:
        same(other.residuals, host.residuals, NASTY.max())


@pytest.mark.parametrize(("schedule", "order"), [("joint", "loadings"), ("alternating", "components")])
@by_method
@every_entry
def test_iterates_are_those_of_the_host(entry, method, schedule, order, device):
    compare_ascents(*ascents(NASTY, method, entry.priors(), device, schedule=schedule, order=order), SAME)


@pytest.mark.parametrize(("schedule", "order"), [("joint", "components"), ("alternating", "loadings")])
@by_method
@some_entries
def test_the_other_orders(entry, method, schedule, order, device):
    compare_ascents(*ascents(NASTY, method, entry.priors(), device, schedule=schedule, order=order), SAME)


@pytest.mark.parametrize("schedule", ["joint", "alternating"])
@by_method
def test_several_sweeps(method, schedule, device):
    priors = MODELS_AND_PRIORS[3].priors()
    compare_ascents(*ascents(NASTY, method, priors, device, schedule=schedule, sweeps=3), SAME)


@by_method
@over([entry for entry in MODELS_AND_PRIORS[:6] if isinstance(entry.priors().components, Dirichlet)])
def test_components_as_a_parameter(entry, method, device):
    compare_ascents(*ascents(NASTY, method, with_parameter(entry.priors()), device), SAME)


@by_method
@some_entries
def test_float32_is_close_to_float64(entry, method, device):
    host, other = ascents(NASTY, method, entry.priors(), device, dtype="float32")
    assert all(side.matrix.dtype == np.float32 for side in other.state)
    # The objective is a difference of sums of this size.
    compare_ascents(host, other, SINGLE, scale=as_counts(NASTY).log_factorial)


def test_a_float32_trace_is_good_to_seven_digits(device):
    """ℓ and the penalties are float64: what is left is the rounding of single factors, which averages out."""
    X = heavy_tailed(500, 400) * 20
    for method in OPTIONS:
        host, other = ascents(
            X, method, MODELS_AND_PRIORS[4].priors(X.shape, 8), device, rank=8, dtype="float32", steps=5
        )
        np.testing.assert_allclose(other.trace, host.trace, rtol=1e-7)


@by_method
@some_entries
def test_extrapolation_is_that_of_the_host(entry, method, device):
    host, other = ascents(NASTY, method, entry.priors(), device, extrapolate=True, steps=60)
    # Sixty bold steps amplify rounding; a single step accepted by one and not by the other would show in the trace.
    compare_ascents(host, other, 1e-7)
    plain = OPTIONS[method](priors=entry.priors(), max_iter=60, tol=0)
    plain = bayesnmf.fit(NASTY, entry.model, RANK, method, seed=0, options=plain)
    assert plain.trace[1] == pytest.approx(host.trace[1])
    assert np.any(np.abs(plain.trace[5:] - host.trace[5:]) > 1e-6)


@by_method
def test_underflowing_means_on_the_way(method, device):
    """Tiny concentrations: exp E log and modes spread over hundreds of orders of magnitude."""
    priors = Priors(Dirichlet(1e-3), Dirichlet(2e-3))
    compare_ascents(*ascents(NASTY, method, priors, device, steps=25), SAME)


@by_method
@pytest.mark.parametrize(
    ("counts", "rank"),
    [(np.zeros((4, 3)), 2), (np.array([[5.0], [0.0], [2.0]]), 2), (np.array([[3.0]]), 1), (np.eye(2) * 0.5, 5)],
    ids=["nothing", "one column", "one cell", "rank above size"],
)
def test_odd_data(method, counts, rank, device):
    host, other = ascents(counts, method, MODELS_AND_PRIORS[2].priors(counts.shape, rank), device, rank=rank)
    compare_ascents(host, other, SAME)


@by_method
def test_starts_of_any_shape(method, device):
    """Parameters of a start may be larger or smaller than those that updates have."""
    entry = MODELS_AND_PRIORS[3]
    rates = np.linspace(0.5, 2, SIZE[0] * RANK).reshape(SIZE[0], RANK)
    for loadings in (Gamma(2.0 * rates, rates), Gamma(np.full((SIZE[0], RANK), 2.0) * rates, 1.0)):
        start = Start(loadings, Gamma(np.linspace(1, 2, 21).reshape(3, 7), 1.5))
        compare_ascents(*ascents(NASTY, method, entry.priors(), device, start=start, steps=4), SAME)


def test_a_start_with_zeros_in_the_log_basis(device):
    components = np.array([[1, 0, 0, 0, 0, 0, 0], [0, 0.5, 0.5, 0, 0, 0, 0], [0, 0, 0, 0.25, 0.25, 0.25, 0.25]])
    start = Start(np.full((9, 3), 1 / 3), components)
    host, other = ascents(NASTY, "map", Priors(Dirichlet(0.5), Dirichlet(0.4)), device, start=start)
    assert other.trace[0] == host.trace[0] == -np.inf
    host.trace[0] = other.trace[0] = 0.0
    compare_ascents(host, other, SAME)


# --- stopping ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "stated"),
    [
        ("vi", {"tol": 1e-6}),
        ("vi", {"tol": 1e-6, "extrapolate": True}),
        ("map", {"tol": 1e-5}),
        ("map", {"kkt_tol": 0.5}),
        ("vi", {"steps": 0}),
        ("map", {"steps": 2 * MOST + 20}),
    ],
    ids=["settled", "settled over a window", "map settled", "stationary", "no step", "several chunks"],
)
def test_it_stops_where_the_host_does(method, stated, device):
    stated = {"steps": 3000, **stated}
    host, other = ascents(plain_counts(), method, Priors(Gamma(1.3, 0.2), Dirichlet(1.2)), device, **stated)
    assert other.status == host.status
    assert host.status.converged == ("tol" in "".join(stated))
    np.testing.assert_allclose(other.trace, host.trace, rtol=1e-9)


def test_an_objective_that_is_not_a_number(device):
    priors = Priors(Dirichlet(1e-310), Dirichlet(1e-310))
    with np.errstate(all="ignore"):
        host, other = ascents([[1, 2], [3, 4]], "vi", priors, device, rank=2)
    assert other.status == host.status
    assert other.status.reason == NOT_A_NUMBER


# --- the option -------------------------------------------------------------------------------------


@pytest.fixture
def lent(monkeypatch, device):
    """Take this device for the GPU."""
    monkeypatch.setattr(closed_form, "first_gpu", lambda: device)


@by_method
@some_entries
@pytest.mark.usefixtures("lent")
def test_a_fit_is_an_ordinary_one(entry, method):
    fits = [
        bayesnmf.fit(
            NASTY, entry.model, RANK, method, seed=3,
            options=OPTIONS[method](priors=entry.priors(), max_iter=10, tol=0, device=device),
        )
        for device in ("cpu", "gpu")
    ]  # fmt: skip
    host, other = fits
    np.testing.assert_allclose(other.trace, host.trace, rtol=SAME)
    for name in ("loadings", "components", "expected_loadings"):
        found, wanted = getattr(other, name), getattr(host, name)
        assert found.flags.c_contiguous
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=SAME * wanted.max())
    assert other.diagnostics.keys() == host.diagnostics.keys()
    np.testing.assert_allclose(other.transform(NASTY), host.transform(NASTY), rtol=1e-6, atol=1e-8)
    assert other.options.device == "gpu"


@pytest.mark.usefixtures("lent")
def test_restarts_progress_and_storage(tmp_path):
    seen = []
    options = plain_vi(max_iter=7, tol=0, restarts=2, device="gpu", dtype="float32")
    fit = bayesnmf.fit(NASTY, rank=2, seed=1, options=options, progress=lambda *told: seen.append(told))
    assert [told[:3] for told in seen[:8]] == [("vi gamma_poisson, start 1", i, 7) for i in range(8)]
    np.testing.assert_array_equal(
        fit.trace, max(([t[3] for t in seen[:8]], [t[3] for t in seen[8:]]), key=lambda t: t[-1])
    )
    fit.save(tmp_path / "fit.nc")
    again = bayesnmf.load(tmp_path / "fit.nc")
    assert again.options.device == "gpu"
    np.testing.assert_array_equal(again.components, fit.components)


@by_method
@pytest.mark.usefixtures("lent")
def test_interruption_keeps_what_there_is(method):
    """The fit is that of the last objective in its trace, whatever the number of iterations the host had not seen."""

    def stop(_, done, __, ___):
        if done == 3:
            raise KeyboardInterrupt

    options = {"priors": Priors(Gamma(1.3, 0.2), Dirichlet(1.2)), "tol": 1e-12, "device": "gpu"}
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        fit = bayesnmf.fit(NASTY, rank=2, method=method, seed=0, options=OPTIONS[method](**options), progress=stop)
    assert fit.status.reason == "interrupted"
    assert len(fit.trace) == fit.status.iterations + 1 <= 4 + MOST
    whole = OPTIONS[method](**options | {"max_iter": fit.status.iterations, "tol": 0})
    whole = bayesnmf.fit(NASTY, rank=2, method=method, seed=0, options=whole)
    np.testing.assert_array_equal(fit.trace, whole.trace)
    np.testing.assert_array_equal(fit.components, whole.components)


@pytest.mark.usefixtures("lent")
def test_no_global_switch_is_thrown():
    before = jax.config.jax_enable_x64
    for dtype in ("float32", "float64"):
        fit = bayesnmf.fit(NASTY, rank=2, seed=0, options=VI(max_iter=2, tol=0, device="gpu", dtype=dtype))
        assert fit.loadings.dtype == fit.components.dtype == dtype
    assert jax.config.jax_enable_x64 == before
    assert jnp.zeros(1).dtype == (np.float64 if before else np.float32)


@pytest.mark.parametrize(
    ("kind", "stated", "said"),
    [
        (MAP, {"algorithm": "scd"}, "device='gpu' must go with algorithm='em': found 'scd'"),
        (MAP, {"algorithm": "ccd"}, "device='gpu' must go with algorithm='em': found 'ccd'"),
        (VI, {"algorithm": "gradient"}, "device='gpu' must go with algorithm='coordinate': found 'gradient'"),
        (VI, {"learn": ("loadings",)}, "learn must go with device='cpu'"),
        (VI, {"threads": 2}, "threads must go with device='cpu': found threads=2; leave threads out"),
    ],
)
def test_what_a_gpu_does_not_do_is_refused(kind, stated, said):
    with pytest.raises(ValueError, match=said):
        kind(device="gpu", **stated)


def test_the_device_has_a_name():
    with pytest.raises(ValueError, match="device must be one of 'cpu', 'gpu'"):
        MAP(device="tpu")


def test_no_gpu_is_an_error_with_a_cure(monkeypatch):
    def none(kind):
        raise RuntimeError(f"Unknown backend: {kind!r}")

    monkeypatch.setattr(jax, "devices", none)
    with pytest.raises(ValueError, match=r"device='gpu' needs a GPU .* install jax\[cuda12\] .* use device='cpu'"):
        bayesnmf.fit(NASTY, rank=2, options=VI(device="gpu"))


def test_asking_for_a_gpu_loads_jax_no_earlier_than_the_fit():
    code = (
        "import sys, bayesnmf; bayesnmf.VI(device='gpu'); import bayesnmf.fitting.closed_form; "
        "print('jax' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
