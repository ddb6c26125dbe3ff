"""Row blocks on several threads: every block once, also with many callers, after a fork, an error or Ctrl-C."""

import gc
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csr_array
from suites import mostly_long

from bayesnmf.kernels.cpu import threads
from bayesnmf.kernels.cpu.allocation import expected_allocations
from bayesnmf.kernels.cpu.draws import gamma_draws
from bayesnmf.kernels.cpu.sampling import sampled_allocations
from bayesnmf.kernels.cpu.threads import block_count, in_blocks, threads_or_default

TWO = SimpleNamespace(NUMBA_NUM_THREADS=2)


@pytest.fixture(autouse=True)
def two_threads(monkeypatch):
    """As on a machine with two cores, whatever this one has."""
    monkeypatch.setattr(threads, "get_num_threads", lambda: 2)
    monkeypatch.setattr(threads, "config", TWO)


def bounds_of(blocks):
    return np.arange(blocks + 1) * 10


@pytest.mark.parametrize("blocks", [1, 2, 3, 8])
def test_every_block_is_worked_on_once_and_results_are_in_order(blocks):
    seen = []

    def work(block, first, last):
        seen.append(block)
        return block, first, last

    expected = [(block, 10 * block, 10 * block + 10) for block in range(blocks)]
    for _ in range(200):
        seen.clear()
        assert in_blocks(bounds_of(blocks), work) == expected
        assert sorted(seen) == list(range(blocks))


def test_blocks_are_worked_on_at_once():
    """Both wait for one another, which a single thread could not."""
    meeting = threading.Barrier(2, timeout=20)
    in_blocks(bounds_of(2), lambda *_: meeting.wait())


def test_one_block_is_this_thread_s():
    assert in_blocks(bounds_of(1), lambda *_: threading.get_ident()) == [threading.get_ident()]


def test_no_more_blocks_at_once_than_asked_for(monkeypatch):
    """On a machine with many cores."""
    monkeypatch.setattr(threads, "config", SimpleNamespace(NUMBA_NUM_THREADS=16))
    running, most = set(), []

    def work(block, *_):
        running.add(block)
        most.append(len(running))
        time.sleep(0.005)
        running.remove(block)
        return block

    for allowed, blocks in ((1, 8), (2, 16), (3, 24)):
        most.clear()
        assert in_blocks(bounds_of(blocks), work, allowed) == list(range(blocks))
        assert max(most) == allowed
    assert (block_count(0), block_count(1e8)) == (1, 32)


def test_default_threads_are_numba_s_where_the_work_is_large():
    assert [threads_or_default(threads, work) for threads, work in ((3, 1), (None, 1), (None, 10**9))] == [3, 1, 2]


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_the_error_of_a_block_is_raised_when_no_block_runs_any_longer(failing):
    running = set()

    def work(block, *_):
        running.add(block)
        try:
            time.sleep(0.01)
            if block == failing:
                raise RuntimeError(f"block {block}")
            time.sleep(0.05)
        finally:
            running.remove(block)

    for _ in range(2):
        with pytest.raises(RuntimeError, match=f"^block {failing}$"):
            in_blocks(bounds_of(3), work)
        assert not running
    assert in_blocks(bounds_of(3), lambda block, *_: block) == [0, 1, 2]


def test_many_callers_at_once_have_the_results_of_one():
    """Numba's own threading layer may end the process here."""
    rng = np.random.default_rng(0)
    counts = csr_array(rng.poisson(1.0, (300, 50)).astype(np.float64))
    U, V = rng.gamma(1.0, size=(300, 4)), rng.gamma(1.0, size=(4, 50))

    def results(threads):
        totals = expected_allocations(counts, U, V, threads)
        return *totals[:2], *sampled_allocations(counts, U, V, 1, threads)[:2], gamma_draws(U, 2, threads)

    expected = {threads: results(threads) for threads in (1, 2, 5)}
    with ThreadPoolExecutor(6) as callers:
        asked = [threads for _ in range(60) for threads in expected]
        for threads, found in zip(asked, callers.map(results, asked), strict=True):
            for got, wanted in zip(found, expected[threads], strict=True):
                np.testing.assert_array_equal(got, wanted)


def test_arrays_are_let_go():
    """The helpers, which wait for the next call, keep nothing of the last one."""
    array = np.zeros(3)
    left = weakref.ref(array)
    meeting = threading.Barrier(2, timeout=20)
    in_blocks(bounds_of(2), lambda *_, array=array: (meeting.wait(), array.sum()))
    del array
    gc.collect()
    began = time.monotonic()
    while left() is not None and time.monotonic() < began + 20:
        time.sleep(0.001)  # a helper hands in its result, then lets go
    assert left() is None


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize(
    ("error", "at_work", "times"),
    mostly_long(
        itertools.product([KeyboardInterrupt, SystemExit, TimeoutError], [True, False], [(0.1,), (0.1, 0.3)]),
        (0, 3, 5, 10),  # each error, each place and each number of signals
    ),
)
def test_what_a_signal_raises_comes_once_the_running_blocks_have_ended(error, at_work, times):
    """In the main thread, at work on a block of its own or waiting for a helper's; no block is begun any more."""

    def handler(*_):
        raise error

    before = signal.signal(signal.SIGALRM, handler)
    ended, meeting = set(), threading.Barrier(2, timeout=20)

    def work(block, *_):
        if block < 2:
            meeting.wait()
            time.sleep((30.0 if at_work else 0.0, 0.5)[block])
        ended.add(block)

    for after in times:
        threading.Timer(after, os.kill, (os.getpid(), signal.SIGALRM)).start()
    try:
        with pytest.raises(error):
            in_blocks(bounds_of(3), work)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert ended == ({1} if at_work else {0, 1, 2})
    assert in_blocks(bounds_of(3), lambda block, *_: block) == [0, 1, 2]


def meet():
    test_blocks_are_worked_on_at_once()
    sys.exit(7)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_has_threads_of_its_own():
    """In a process without JAX, which warns of forks."""
    code = (
        "import multiprocessing, warnings; import test_threads as module\n"
        "warnings.filterwarnings('ignore', 'This process .* is multi-threaded', DeprecationWarning)\n"
        "module.threads.get_num_threads, module.threads.config = (lambda: 2), module.TWO\n"
        "module.test_blocks_are_worked_on_at_once()  # here they are started\n"
        "child = multiprocessing.get_context('fork').Process(target=module.meet)\n"
        "child.start(); child.join(60); child.kill(); assert child.exitcode == 7, child.exitcode"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, Path(__file__).parents[:2]))}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_the_interpreter_ends_where_a_helper_s_start_was_interrupted():
    """A thread that nobody knows of holds up the end unless it is a daemon; those of concurrent.futures are none."""
    code = (
        "import threading, numpy as np; from bayesnmf.kernels.cpu.threads import in_blocks\n"
        "start = threading.Thread.start\n"
        "def interrupted(thread): start(thread); raise KeyboardInterrupt\n"
        "threading.Thread.start = interrupted\n"
        "try: in_blocks(np.arange(3), lambda *_: None)\n"
        "except KeyboardInterrupt: print('heard')"
    )
    given = {"env": os.environ | {"NUMBA_NUM_THREADS": "2"}, "timeout": 60, "check": True}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, **given)
    assert (done.stdout, done.stderr) == ("heard\n", "")


def test_threads_are_started_when_first_needed_no_more_than_numba_has_and_end_with_the_interpreter():
    """With helpers that wait; with blocks at the very end; from a thread that outlives the main one."""
    code = (
        "import atexit, threading, time, numpy as np; from bayesnmf.kernels.cpu.draws import gamma_draws\n"
        "from bayesnmf.kernels.cpu.threads import in_blocks\n"
        "for blocks in (1, 2, 9, 9):\n"
        "    in_blocks(np.arange(blocks + 1), lambda *_: None)\n"
        "    print(threading.active_count())\n"
        "def draw(): gamma_draws(np.ones((4000, 3)), 1, 2); print('drawn')\n"
        "draw(); atexit.register(draw); threading.Thread(target=lambda: (time.sleep(0.2), draw())).start()"
    )
    given = {"env": os.environ | {"NUMBA_NUM_THREADS": "3"}, "timeout": 60, "check": True}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, **given)
    assert (done.stdout.split(), done.stderr) == (["1", "2", "3", "3"] + ["drawn"] * 3, "")
