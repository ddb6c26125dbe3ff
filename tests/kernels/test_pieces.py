"""Compiled loops are short, however large the counts: Python hears Ctrl-C in between, and results do not change."""

import threading
import time
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType, SimpleNamespace

import numpy as np
import pytest
from numba.core.registry import CPUDispatcher

from bayesnmf.inference.side_by_side import side_by_side
from bayesnmf.kernels import cpu
from bayesnmf.kernels.cpu import allocation, draws, factors, settling, threads, urn
from bayesnmf.kernels.cpu.threads import in_blocks
from benchmarks.interrupts import calls, pieces

SHORT = 2**9  # multiply-adds of a piece
CALLS = calls(n=200, m=40, nonzeros=4_000, K=3)
# They do next to nothing with an entry of a factor: 1e8 entries take half a second. Those of rates are given blocks.
WHOLE = (
    "log_scales", "sum_rows", "scale_rows", "largest_imbalance", "digamma_with_excess", "move", "trigamma",
    "dense_rows", "gamma_rates", "gamma_slopes", "rates_of_zeros",
)  # fmt: skip
# They, and the benchmarks, call these inner loops by themselves.
CALLED_BY_TESTS = {
    "log_gamma_and_digamma", "gamma_at_least_one", "systematic_offspring", "poisson", "binomial", "add_many",
    "add_multinomial", "stream", "bits", "uniform",
}  # fmt: skip


@pytest.fixture(autouse=True)
def as_large_counts(monkeypatch):
    """Small counts go by loops that are compiled already, and by NumPy; here they go where large ones do."""
    monkeypatch.setattr(allocation, "FEW", 0)
    monkeypatch.setattr(factors, "SMALL", 0)


def parts_of(result):
    return [part for each in result for part in parts_of(each)] if isinstance(result, tuple) else [np.asarray(result)]


@pytest.mark.parametrize("name", CALLS)
def test_a_loop_over_large_counts_is_cut_into_pieces_which_give_what_the_whole_gives(name, monkeypatch):
    """Sums over blocks are the same to rounding, everything else to the bit."""
    with pieces() as whole:
        expected = CALLS[name]()
    for module, limit in ((threads, "LONGEST"), (urn, "PIECE"), (settling, "PIECE"), (draws, "LEAST_DRAWS")):
        monkeypatch.setattr(module, limit, SHORT if module is not draws else 1)
    with pieces() as cut:
        found = CALLS[name]()
    assert (len(cut) < 3) if name in WHOLE else len(cut) >= max(12, 2 * len(whole))
    for ours, theirs in zip(parts_of(found), parts_of(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def names_in(code):
    inner = [names_in(each) for each in code.co_consts if isinstance(each, CodeType)]
    return set(code.co_names).union(*inner)


def entered_from_python():
    """The compiled functions that plain functions of the kernels name."""
    found = set()
    for path in Path(cpu.__file__).parent.glob("*.py"):
        space = vars(import_module(f"{cpu.__name__}.{path.stem}"))
        plain = [each for each in space.values() if isinstance(each, FunctionType)]
        plain += [f for each in space.values() if isinstance(each, type) for f in vars(each).values()
                  if isinstance(f, FunctionType)]  # fmt: skip
        plain = [each for each in plain if each.__module__ == space["__name__"]]
        named = set().union(*(names_in(each.__code__) for each in plain))
        found |= {space[name] for name in named if isinstance(space.get(name), CPUDispatcher)}
    return found


def test_every_compiled_loop_is_in_the_list():
    with pieces() as found:
        for call in CALLS.values():
            call()
    missing = entered_from_python() - {loop for loop, _ in found}
    assert {loop.py_func.__name__ for loop in missing} == {"least_mean", "responsibilities"}  # a number, an entry


def test_only_what_python_calls_is_compiled_for_it():
    spaces = [vars(import_module(f"{cpu.__name__}.{path.stem}")) for path in Path(cpu.__file__).parent.glob("*.py")]
    compiled = {each for space in spaces for each in space.values() if isinstance(each, CPUDispatcher)}
    callable_ = {each for each in compiled if not each.targetoptions.get("no_cpython_wrapper")}
    assert entered_from_python() <= callable_
    assert {each.py_func.__name__ for each in callable_ - entered_from_python()} == CALLED_BY_TESTS


def test_ctrl_c_ends_the_blocks_of_all_threads_between_pieces(monkeypatch):
    monkeypatch.setattr(threads, "config", SimpleNamespace(NUMBA_NUM_THREADS=2))
    begun, done = threading.Event(), []

    def work(block, first, _):
        if block == 1:
            begun.set()
            time.sleep(0.01)
        elif first == 10:
            assert begun.wait(20)
            raise KeyboardInterrupt
        done.append((block, first))

    with pytest.raises(KeyboardInterrupt):
        in_blocks(np.array([0, 50, 100]), work, cuts=np.arange(0, 101, 5))
    of_helper = [first for block, first in done if block == 1]
    assert of_helper == list(range(50, 50 + 5 * len(of_helper), 5))
    assert len(of_helper) < 10
    assert [first for block, first in done if block == 0] == [0, 5]


def test_a_task_beside_the_main_thread_ends_between_pieces():
    stop, done = threading.Event(), []

    def work(_, first, __):
        done.append(first)
        if first == 10:
            stop.set()

    with pytest.raises(KeyboardInterrupt):
        side_by_side([lambda: in_blocks(np.array([0, 100]), work, cuts=np.arange(0, 101, 5))], 1, stop)
    assert done == [0, 5, 10]
