"""Fits on a device against those of the host: on JAX's CPU backend, and on a GPU where there is one."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from devices import (
    DIAGONAL,
    FAMILIES,
    NASTY,
    OPTIONS,
    SAME,
    ascents,
    by_entry_and_method,
    compare_ascents,
)
from plain import plain_vi
from registry import MODELS_AND_PRIORS, RANK, SIZE, having, over, plain_counts, with_parameter
from suites import mostly_long

import bayesnmf
from bayesnmf import MAP, VI, ConvergenceWarning, Dirichlet, Gamma, Priors, Start
from bayesnmf.data.conversion import as_counts
from bayesnmf.fitting import closed_form
from bayesnmf.fitting.closed_form import schedule_of
from bayesnmf.fitting.problems import point_or_mean_field, start_state
from bayesnmf.inference.ascent.coordinate_ascent import ascend, prior_learner
from bayesnmf.inference.device.placing import run_on_devices
from bayesnmf.inference.status import NOT_A_NUMBER

pytestmark = pytest.mark.usefixtures("quick_compilation")

SINGLE = 1e-5  # rounding of float32, amplified by a dozen steps


# --- whole ascents ----------------------------------------------------------------------------------


@by_entry_and_method(having("device"), DIAGONAL)
def test_iterates_are_those_of_the_host(entry, method, device):
    compare_ascents(*ascents(NASTY, method, entry.priors(), device), SAME)


@pytest.mark.parametrize(
    ("method", "name", "stated"),
    [
        ("map", "gamma_poisson", {"schedule": "joint", "order": "components", "sweeps": 3}),
        ("map", "poisson", {"schedule": "alternating", "order": "components"}),
        ("vi", "dirichlet_gamma", {"schedule": "alternating", "order": "loadings"}),
        ("vi", "doubly_gamma", {"schedule": "alternating", "order": "components", "sweeps": 3}),
    ],
)
def test_iterates_in_other_schedules_are_those_of_the_host(method, name, stated, device):
    (entry,) = (entry for entry in MODELS_AND_PRIORS if entry.id == name)
    compare_ascents(*ascents(NASTY, method, entry.priors(), device, **stated), SAME)


@pytest.mark.parametrize(
    ("method", "entry"), [("map", MODELS_AND_PRIORS[0]), ("vi", MODELS_AND_PRIORS[2])], ids=["map", "vi"]
)
def test_components_as_a_parameter_are_those_of_the_host(method, entry, device):
    compare_ascents(*ascents(NASTY, method, with_parameter(entry.priors()), device), SAME)


@by_entry_and_method(FAMILIES, ("dirichlet_poisson-map", "dirichlet_gamma-vi"))
def test_float32_is_close_to_float64(entry, method, device):
    host, other = ascents(NASTY, method, entry.priors(), device, dtype="float32")
    assert all(side.matrix.dtype == np.float32 for side in other.state)
    # The objective is a difference of sums of this size.
    compare_ascents(host, other, SINGLE, scale=as_counts(NASTY).log_factorial)


def test_a_float32_trace_is_good_to_seven_digits(device):
    """ℓ and the penalties are float64: what is left is the rounding of single factors, which averages out."""
    host, other = ascents(NASTY, "map", MODELS_AND_PRIORS[4].priors(), device, dtype="float32", max_iter=5)
    np.testing.assert_allclose(other.trace, host.trace, rtol=2e-8)


@by_entry_and_method(FAMILIES, ("dirichlet_gamma-vi",))
def test_extrapolation_is_that_of_the_host(entry, method, device):
    host, other = ascents(NASTY, method, entry.priors(), device, extrapolate=True, max_iter=40)
    # Forty bold steps amplify rounding; a single step accepted by one and not by the other would show in the trace.
    compare_ascents(host, other, 1e-7)
    plain = OPTIONS[method](priors=entry.priors(), max_iter=40, tol=0)
    plain = bayesnmf.fit(NASTY, entry.model, RANK, method, seed=0, options=plain)
    assert plain.trace[1] == pytest.approx(host.trace[1])
    assert np.any(np.abs(plain.trace[5:] - host.trace[5:]) > 1e-6)


@pytest.mark.parametrize("method", mostly_long(["vi", "map"]))
def test_underflowing_means_on_the_way(method, device):
    """Tiny concentrations: exp E log and modes spread over hundreds of orders of magnitude."""
    priors = Priors(Dirichlet(1e-3), Dirichlet(2e-3))
    compare_ascents(*ascents(NASTY, method, priors, device, max_iter=25), SAME)


@pytest.mark.parametrize(
    ("method", "counts", "rank"),
    mostly_long(
        [
            pytest.param("vi", np.zeros(SIZE), RANK, id="nothing"),
            pytest.param("map", np.eye(2) * 0.5, 5, id="rank above size"),
            pytest.param("map", np.array([[5.0], [0.0], [2.0]]), 2, id="one column"),
            pytest.param("vi", np.array([[3.0]]), 1, id="one entry"),
        ]
    ),
)
def test_empty_and_tiny_counts_are_fitted_as_on_the_host(method, counts, rank, device):
    host, other = ascents(counts, method, MODELS_AND_PRIORS[3].priors(counts.shape, rank), device, rank=rank)
    compare_ascents(host, other, SAME)


def test_starts_with_parameters_of_any_shape_are_taken(device):
    """Parameters of a start may be larger or smaller than those that updates have."""
    entry = MODELS_AND_PRIORS[3]
    rates = np.linspace(0.5, 2, SIZE[0] * RANK).reshape(SIZE[0], RANK)
    for loadings in (Gamma(2.0 * rates, rates), Gamma(np.full((SIZE[0], RANK), 2.0) * rates, 1.0)):
        start = Start(loadings, Gamma(np.linspace(1, 2, 21).reshape(3, 7), 1.5))
        compare_ascents(*ascents(NASTY, "vi", entry.priors(), device, start=start, max_iter=4), SAME)


def test_a_start_with_zeros_in_the_log_basis(device):
    components = np.array([[1, 0, 0, 0, 0, 0, 0], [0, 0.5, 0.5, 0, 0, 0, 0], [0, 0, 0, 0.25, 0.25, 0.25, 0.25]])
    start = Start(np.full((9, 3), 1 / 3), components)
    host, other = ascents(NASTY, "map", Priors(Dirichlet(0.5), Dirichlet(0.4)), device, start=start)
    assert other.trace[0] == host.trace[0] == -np.inf
    host.trace[0] = other.trace[0] = 0.0
    compare_ascents(host, other, SAME)


@over([entry for entry in MODELS_AND_PRIORS if entry.natural][2:5], default=("dirichlet_poisson",))
def test_learned_priors_are_those_of_the_host(entry):
    """The loop of the host drives, so that what it can do comes with it: here variational EM of the priors."""
    cpu = jax.devices("cpu")[0]
    counts = as_counts(NASTY)
    options = plain_vi(priors=entry.priors(), max_iter=8, tol=0, start="random")
    problem = point_or_mean_field(counts, options)
    state = start_state(problem, "random", RANK, np.random.default_rng(0))
    learn, schedule = prior_learner(("loadings",)), schedule_of(options)
    host = ascend(problem, state, schedule, learn=learn)
    other = run_on_devices([cpu], lambda *placed: ascend(*placed, schedule, learn=learn), problem, state)
    compare_ascents(host, other, SAME)
    for name, value in host.problem.loadings_prior.parameters.items():
        np.testing.assert_allclose(other.problem.loadings_prior.parameters[name], value, rtol=1e-8)
        assert np.any(value != entry.priors().loadings.parameters[name])


# --- stopping ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "stated"),
    [
        ("vi", {"tol": 1e-4}),
        ("vi", {"tol": 1e-4, "extrapolate": True}),
        ("map", {"tol": 1e-4}),
        ("map", {"kkt_tol": 0.5}),
        ("vi", {"max_iter": 0}),
    ],
    ids=["settled", "settled over a window", "map settled", "stationary", "no step"],
)
def test_it_stops_where_the_host_does(method, stated, device):
    stated = {"max_iter": 3000, **stated}
    host, other = ascents(plain_counts(), method, MODELS_AND_PRIORS[3].priors(), device, **stated)
    assert other.status == host.status
    assert host.status.converged == ("tol" in "".join(stated))
    np.testing.assert_allclose(other.trace, host.trace, rtol=1e-9)


def test_an_objective_that_is_not_a_number(device):
    priors = Priors(Dirichlet(1e-310), Dirichlet(1e-310))
    with np.errstate(all="ignore"):
        host, other = ascents(NASTY, "vi", priors, device)
    assert other.status == host.status
    assert other.status.reason == NOT_A_NUMBER


# --- the option -------------------------------------------------------------------------------------


@pytest.fixture
def lent(monkeypatch, device):
    """Take this device for the GPU."""
    monkeypatch.setattr(closed_form, "find_gpus", lambda _: [device])


@by_entry_and_method(FAMILIES, ("dirichlet_gamma-map",))
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
def test_restarts_are_reported_and_saved(tmp_path):
    seen = []
    entry = MODELS_AND_PRIORS[5]
    options = plain_vi(priors=entry.priors(), max_iter=7, tol=0, restarts=2, device="gpu", dtype="float32")
    told = {"options": options, "progress": lambda *told: seen.append(told)}
    fit = bayesnmf.fit(NASTY, entry.model, RANK, seed=1, **told)
    assert [told[:3] for told in seen[:8]] == [("vi dirichlet_gamma, start 1", i, 7) for i in range(8)]
    np.testing.assert_array_equal(
        fit.trace, max(([t[3] for t in seen[:8]], [t[3] for t in seen[8:]]), key=lambda t: t[-1])
    )
    fit.save(tmp_path / "fit.nc")
    again = bayesnmf.load(tmp_path / "fit.nc")
    assert again.options.device == "gpu"
    np.testing.assert_array_equal(again.components, fit.components)


@pytest.mark.parametrize("method", mostly_long(["vi", "map"]))
@pytest.mark.usefixtures("lent")
def test_interruption_keeps_what_there_is(method):
    """The fit is that of the last objective in its trace."""

    def stop(_, done, __, ___):
        if done == 3:
            raise KeyboardInterrupt

    options = {"priors": MODELS_AND_PRIORS[3].priors(), "tol": 1e-12, "device": "gpu"}
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        fit = bayesnmf.fit(NASTY, rank=RANK, method=method, seed=0, options=OPTIONS[method](**options), progress=stop)
    assert fit.status.reason == "interrupted"
    assert len(fit.trace) == fit.status.iterations + 1 == 4
    whole = OPTIONS[method](**options | {"max_iter": fit.status.iterations, "tol": 0})
    whole = bayesnmf.fit(NASTY, rank=RANK, method=method, seed=0, options=whole)
    np.testing.assert_array_equal(fit.trace, whole.trace)
    np.testing.assert_array_equal(fit.components, whole.components)


@pytest.mark.usefixtures("lent")
def test_no_global_switch_is_thrown():
    before, entry = jax.config.jax_enable_x64, MODELS_AND_PRIORS[5]
    for dtype in ("float32", "float64"):
        options = plain_vi(priors=entry.priors(), max_iter=2, tol=0, device="gpu", dtype=dtype)
        fit = bayesnmf.fit(NASTY, entry.model, RANK, seed=0, options=options)
        assert fit.loadings.dtype == fit.components.dtype == dtype
    assert jax.config.jax_enable_x64 == before
    assert jnp.zeros(1).dtype == (np.float64 if before else np.float32)


@pytest.mark.parametrize(
    ("kind", "stated", "said"),
    [
        (MAP, {"algorithm": "scd"}, "device='gpu' needs algorithm='em': found 'scd'"),
        (MAP, {"algorithm": "ccd"}, "device='gpu' needs algorithm='em': found 'ccd'"),
        (VI, {"algorithm": "gradient"}, "device='gpu' needs algorithm='coordinate': found 'gradient'"),
        (VI, {"threads": 2}, "threads needs device='cpu': found 'gpu'; leave threads out"),
    ],
)
def test_what_a_gpu_does_not_do_is_refused(kind, stated, said):
    with pytest.raises(ValueError, match=said):
        kind(device="gpu", **stated)


def test_the_device_has_a_name():
    with pytest.raises(ValueError, match="device must be one of 'cpu', 'gpu', 'gpus'"):
        MAP(device="tpu")


def test_a_gpu_where_there_is_one():
    if jax.default_backend() == "cpu":
        pytest.skip("JAX finds no GPU")
    options = plain_vi(max_iter=10, tol=0)
    host = bayesnmf.fit(NASTY, rank=RANK, seed=0, options=options)
    fit = bayesnmf.fit(NASTY, rank=RANK, seed=0, options=replace(options, device="gpu"))
    np.testing.assert_allclose(fit.trace, host.trace, rtol=SAME)


def test_no_gpu_is_an_error_with_a_cure(monkeypatch):
    def none(kind):
        raise RuntimeError(f"Unknown backend: {kind!r}")

    monkeypatch.setattr(jax, "devices", none)
    with pytest.raises(ValueError, match=r"device='gpu' needs a GPU .* install jax\[cuda12\] .* use device='cpu'"):
        bayesnmf.fit(NASTY, rank=2, options=VI(device="gpu"))
