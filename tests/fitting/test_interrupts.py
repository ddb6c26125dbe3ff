"""Whatever is raised while a fit runs, it ends and so do all of its threads."""

import gc
import os
import signal
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse
from suites import mostly_long

import bayesnmf
import bayesnmf.inference.sampling.nuts_and_svi
from bayesnmf import MAP, NUTS, VI, Dirichlet, Gibbs, Priors
from bayesnmf.fitting import chains, gibbs
from bayesnmf.inference import side_by_side as module
from bayesnmf.inference.marginal import allocation_model
from bayesnmf.inference.sampling.nuts_and_svi import next_length, run_steps
from bayesnmf.inference.status import ConvergenceWarning
from bayesnmf.kernels.cpu import settling, urn
from bayesnmf.kernels.cpu.settling import settled_totals
from bayesnmf.kernels.cpu.urn import filter_row
from bayesnmf.results import mixing

COUNTS = np.random.default_rng(0).poisson(3.0, (6, 5))
LONG = Gibbs(start="random", chains=2, draws=2, warmup=0, thin=20_000)
COLLAPSED = replace(LONG, collapsed=True, priors=Priors(components=Dirichlet(1.0)))
LONG_NUTS = NUTS(start="random", chains=2, draws=20_000, warmup=0, max_tree_depth=4)
pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")


@pytest.fixture(autouse=True)
def no_collection():
    """An exception that a signal raises within a callback of the collector, as JAX has one, is lost to everyone."""
    gc.disable()
    yield
    gc.enable()


@contextmanager
def raising(error):
    """What a program may do on an alarm, where a library has no say."""

    def handler(*_):
        raise error

    before = signal.signal(signal.SIGALRM, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)


def alarm_after(calls):
    """A progress callback that sends the alarm once; also return how often it was called."""
    seen = []

    def progress(*_):
        seen.append(None)
        if len(seen) == calls:
            os.kill(os.getpid(), signal.SIGALRM)

    return progress, seen


OTHERS = set()  # threads of other tests in this process, which may stay


@pytest.fixture(autouse=True)
def _threads_of_other_tests():
    OTHERS.clear()
    OTHERS.update(threading.enumerate())


def threads_end():
    """Whether chains end: one that is only just being started may have a sweep to do."""
    deadline = time.monotonic() + 10
    while running := any("ThreadPool" in thread.name for thread in set(threading.enumerate()) - OTHERS):
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    return not running


@pytest.mark.parametrize(
    ("method", "options", "error"),
    [
        ("gibbs", LONG, SystemExit(143)),
        ("gibbs", replace(LONG, chains=1), TimeoutError("too long")),
        ("gibbs", COLLAPSED, TimeoutError("too long")),
        pytest.param("nuts", LONG_NUTS, SystemExit(143), marks=pytest.mark.long),
    ],
    ids=["gibbs", "one chain", "collapsed", "nuts"],
)
def test_any_exception_ends_all_chains(method, options, error):
    """One that no chain has heard of, raised where the main thread waits for them."""
    progress, seen = alarm_after(20)
    with raising(error), pytest.raises(type(error)):
        bayesnmf.fit(COUNTS, rank=2, method=method, seed=0, options=options, progress=progress)
    assert len(seen) < 20_000  # of eighty thousand, as a busy machine may hear late
    assert threads_end()


@pytest.mark.parametrize("method", mostly_long(["gibbs", "nuts"]))
def test_an_exception_of_the_caller_s_progress_ends_all_chains(method):
    seen = []

    def progress(*_):
        seen.append(threading.get_ident())
        if len(seen) == 20:
            raise RuntimeError("no more room on the screen")

    options = LONG if method == "gibbs" else LONG_NUTS
    with pytest.raises(RuntimeError, match="no more room"):
        bayesnmf.fit(COUNTS, rank=2, method=method, seed=0, options=options, progress=progress)
    assert len(seen) < 2_000


@pytest.mark.parametrize("place", ["signal", "progress"])
def test_any_exception_ends_the_loop_of_nuts(place):
    """Of steps that do nothing, so that none is compiled."""
    progress, seen = alarm_after(20)

    def failing(*_):
        seen.append(None)
        if len(seen) == 20:
            raise TimeoutError

    def step(state, _):
        time.sleep(1e-3)
        return state, {"site": np.zeros(10)}

    stop = threading.Event()
    progress = progress if place == "signal" else failing
    with raising(TimeoutError("too long")), pytest.raises(TimeoutError):
        bayesnmf.inference.sampling.nuts_and_svi.run_threads(step, [None, None], 100_000, stop, progress, 2)
    assert stop.is_set()
    assert len(seen) < 10_000  # of twenty thousand
    assert threads_end()


def test_a_long_sweep_of_collapsed_gibbs_is_left(monkeypatch):
    """Of tens of thousands of pieces, which a single entry of counts is cut into."""
    monkeypatch.setattr(urn, "PIECE", 2**16)  # so that few of them are done until the wait ends
    progress, seen = alarm_after(20)
    with raising(TimeoutError("too long")), pytest.raises(TimeoutError):
        bayesnmf.fit([[40_000_000, 1]], rank=2, method="gibbs", seed=0, options=COLLAPSED, progress=progress)
    assert len(seen) < 20_000
    assert threads_end()


def test_a_long_pass_of_the_evidence_is_left(monkeypatch):
    """The same; Ctrl-C before any run is done is passed on."""
    heard = []

    def filtered(*given):
        def heed():
            heard.append(None)
            if len(heard) == 20:
                os.kill(os.getpid(), signal.SIGINT)
            given[-1]()

        return filter_row(*given[:-1], heed)

    monkeypatch.setattr(urn, "PIECE", 2**12)
    monkeypatch.setattr(allocation_model, "filter_row", filtered)
    with pytest.raises(KeyboardInterrupt):
        bayesnmf.log_evidence([[10_000_000, 1]], rank=2, method="tokens", particles=2, runs=1)
    assert len(heard) < 20_000
    assert threads_end()


def test_a_failing_task_stops_the_others_and_its_error_is_raised():
    stop, ended = threading.Event(), []

    def wait():
        assert stop.wait(20)
        ended.append("waiting")

    def fail():
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        module.side_by_side([wait, fail], 2, stop)
    assert ended == ["waiting"]


def test_ctrl_c_returns_what_tasks_have(monkeypatch):
    stop = threading.Event()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "wait", interrupted)
    assert module.side_by_side([lambda: stop.wait(20), lambda: 7], 2, stop) == [True, 7]


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_ctrl_c_in_the_first_of_many_tasks_is_heard_in_the_wait():
    """And not while the others are still being handed over, where nothing would be returned."""
    stop = threading.Event()

    def interrupt():
        os.kill(os.getpid(), signal.SIGINT)
        return stop.wait(20)

    found = module.side_by_side([interrupt, *[lambda: stop.wait(20)] * 3_000], 2, stop)
    assert len(found) == 3_001
    assert all(found)


@pytest.mark.parametrize("place", ["mixing", "matched_draws"])
def test_ctrl_c_while_chains_are_judged_keeps_their_draws(monkeypatch, place):
    heard, real = [], getattr(chains, place)

    def interrupted_once(*given):
        if not heard:
            heard.append(None)
            raise KeyboardInterrupt
        return real(*given)

    options = replace(LONG, draws=20, thin=1)
    with pytest.warns(ConvergenceWarning, match="R-hat"):
        whole = bayesnmf.fit(COUNTS, rank=2, method="gibbs", seed=0, options=options)
    monkeypatch.setattr(chains, place, interrupted_once)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        fit = bayesnmf.fit(COUNTS, rank=2, method="gibbs", seed=0, options=options)
    assert (fit.status.converged, fit.status.reason) == (False, "interrupted")
    np.testing.assert_array_equal(fit.posterior.components, whole.posterior.components)
    assert np.isinf(fit.diagnostics["max_r_hat"]) == (place == "mixing")


def test_judging_many_entries_is_left_within_a_block(monkeypatch):
    judged, real = [], mixing.r_hat_and_ess_of_block

    def one_block(draws):
        judged.append(None)
        if len(judged) == 5:
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        return real(draws)

    monkeypatch.setattr(mixing, "r_hat_and_ess_of_block", one_block)
    monkeypatch.setattr(mixing, "BLOCK", 40)
    with pytest.raises(KeyboardInterrupt):
        mixing.r_hat_and_ess(np.random.default_rng(0).normal(size=(2, 20, 2_000)), threads=2)
    assert len(judged) < 500  # of 2,000
    assert threads_end()


def test_long_settling_in_one_thread_is_cut_into_blocks():
    """Of about a second at most, between which Ctrl-C is heard."""
    counts = sparse.random_array((300, 200), density=0.1, format="csr", rng=np.random.default_rng(0))
    start, components = np.ones((300, 16)), np.ones((16, 200))
    seen, real = [], settling.in_blocks

    def note(bounds, work, threads):
        seen.append(bounds)
        return real(bounds, work, threads)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settling, "in_blocks", note)
        patch.setattr(settling, "PIECE", 2**13)
        settled_totals(counts, start, start, components, np.ones((1, 16)), None, 1e-3, 5, expects=False, threads=1)
    assert np.diff(counts.indptr[seen[0]]).max() * 16 <= 1.1 * 2**13


@pytest.mark.parametrize(("seconds", "lengths"), [(0.01, [1, 8, 10, 10]), (0.3, [1, 3, 3, 3]), (5.0, [1, 1, 1, 1])])
def test_compiled_strides_come_to_about_a_second(seconds, lengths):
    found = [1]
    for _ in range(3):
        found.append(next_length(found[-1], found[-1] * seconds, 10))
    assert found == lengths


def test_a_stride_of_any_length_gives_what_a_scan_does():
    def step(state):
        return state * 1.5, {"square": state**2, "row": jnp.stack([state, -state])}

    end, given = jax.jit(lambda length: run_steps(step, jnp.asarray(1.0), length, 6))(4)
    scanned, expected = jax.lax.scan(lambda state, _: step(state), jnp.asarray(1.0), length=4)
    assert end == scanned
    for name, value in expected.items():
        np.testing.assert_array_equal(given[name][:4], value)
        assert not np.any(given[name][4:])


def test_ctrl_c_in_the_last_moment_of_threads_is_not_lost(monkeypatch):
    """One block is judged, and has begun: nothing ends early, and what calls must know all the same."""
    real = mixing.r_hat_and_ess_of_block

    def signalled(draws):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)
        return real(draws)

    monkeypatch.setattr(mixing, "r_hat_and_ess_of_block", signalled)
    with pytest.raises(KeyboardInterrupt):
        mixing.r_hat_and_ess(np.random.default_rng(0).normal(size=(2, 20, 3)))


def test_ctrl_c_while_a_sweep_is_timed_ends_the_fit(monkeypatch):
    """Before chains that would take hours."""
    monkeypatch.setattr("bayesnmf.fitting.keeping.ALL", 1)
    real, runs = gibbs.gibbs_chain, []

    def timed(*given):
        runs.append(given)
        return real(*given)._replace(interrupted=len(runs) == 2)

    monkeypatch.setattr(gibbs, "gibbs_chain", timed)
    with pytest.raises(KeyboardInterrupt):
        bayesnmf.fit(COUNTS, rank=2, method="gibbs", seed=0, options=replace(LONG, draws=20, thin=1))
    assert len(runs) == 2


def test_ctrl_c_while_a_point_is_judged_keeps_it(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    options = MAP(start="random")
    whole = bayesnmf.fit(COUNTS, rank=2, method="map", seed=0, options=options)
    monkeypatch.setattr("bayesnmf.fitting.closed_form.least_gradient", interrupted)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        fit = bayesnmf.fit(COUNTS, rank=2, method="map", seed=0, options=options)
    assert (fit.status.converged, fit.status.reason) == (False, "interrupted")
    np.testing.assert_array_equal(fit.components, whole.components)


def test_ctrl_c_before_the_first_iterate_is_passed_on(monkeypatch):
    """A fit without an objective could not even be printed."""

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("bayesnmf.inference.ascent.coordinate_ascent.allocate", interrupted)
    for start in ("svd", "descent"):
        with pytest.raises(KeyboardInterrupt):
            bayesnmf.fit(COUNTS, rank=2, method="vi", seed=0, options=VI(start=start))


@pytest.mark.parametrize(
    ("options", "labels"),
    [
        (VI(start="descent"), ["vi gamma_poisson, preparation", "vi gamma_poisson"]),
        (VI(start="svd"), ["vi gamma_poisson"]),
        (
            bayesnmf.Gibbs(chains=1, draws=5, warmup=5),
            ["start by vi gamma_poisson, preparation", "start by vi gamma_poisson", "gibbs gamma_poisson"],
        ),
    ],
    ids=["descent", "svd", "fit"],
)
@pytest.mark.filterwarnings("ignore::bayesnmf.ConvergenceWarning")
def test_a_start_that_takes_long_is_told_and_can_be_left(options, labels):
    counts, told = np.random.default_rng(0).poisson(3.0, (40, 12)), dict[str, list]()

    def tell(label, done, total, _):
        told.setdefault(label, []).append((done, total))

    method = type(options).__name__.lower()
    bayesnmf.fit(counts, rank=3, method=method, seed=0, options=options, progress=tell)
    assert [label for label in told if "exchanges" not in label] == labels
    done = [steps for steps, _ in told[labels[0]]]
    assert done == sorted(done)
    assert len({*done}) > 3

    def leave(label, *_):
        if label == labels[0]:
            raise KeyboardInterrupt

    if len(labels) > 1:
        with pytest.raises(KeyboardInterrupt):
            bayesnmf.fit(counts, rank=3, method=method, seed=0, options=options, progress=leave)


@pytest.mark.filterwarnings("ignore::bayesnmf.ConvergenceWarning")
def test_components_with_seeds_tell_of_no_descent():
    """A bar of a preparation that never ran stayed at its first step."""
    labels = set()
    given = {"seeds": {"one": [0, 1], "two": [2]}, "options": VI(start="descent", max_iter=5), "seed": 0}
    bayesnmf.fit(COUNTS, rank=3, **given, progress=lambda label, *_: labels.add(label))
    assert labels == {"vi gamma_poisson"}


def test_a_label_of_exchanges_fits_in_80_columns():
    labels = set()
    options = bayesnmf.Gibbs(chains=1, draws=5, warmup=5)
    drawn = bayesnmf.simulate(size=(60, 20), rank=4, seed=0).counts
    with pytest.warns(ConvergenceWarning):
        bayesnmf.fit(
            drawn, rank=4, method="gibbs", seed=0, options=options, progress=lambda label, *_: labels.add(label)
        )
    assert "start by vi gamma_poisson, exchanges" in labels
    assert max(map(len, labels)) <= 44  # what `progress_line` has for it


def test_kept_strides_hold_no_more_than_their_steps():
    found = bayesnmf.inference.sampling.nuts_and_svi.run_threads(
        lambda state, length: (state, {"site": np.arange(10.0)}), [None], 3, threading.Event(), lambda _: None, 1
    )
    assert [part["site"].size for part in found[0]] == [1, 2]
    assert all(part["site"].base is None for part in found[0])
