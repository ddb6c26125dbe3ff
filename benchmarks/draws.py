"""Our Gamma, binomial and Poisson draws, beside NumPy's as Numba compiles them.

    python -m benchmarks.draws [--data pbmc_small nips] [--rank 10] [--rows 300] [--repeats 51]

prints nanoseconds a draw, what it takes to begin a stream of random numbers, and milliseconds of a sweep of Gibbs: the
least of all repeats, taken in turn.
"Generator" is `numpy.random.Generator` within compiled code. It cannot be made or moved there, so that a row can have a
stream of its own only if Python goes from row to row: in the sweeps, each of 64 rows has one instead, and the draws of
a row depend on the rows before it. "NumPy's on our streams" are the functions that Numba compiles Generators with,
handed our streams; they are not documented, and their names and draws may change with any version of Numba. They
have no logarithms of draws that underflow: as ours do, these are made of a draw of shape + 1.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import count
from typing import Any

import numpy as np
from numba import njit, types
from numba.core.extending import overload
from numba.np.random import distributions
from numba.np.random.generator_core import next_double, next_uint64
from numpy.typing import NDArray

from bayesnmf.kernels.cpu import draws, sampling
from bayesnmf.kernels.cpu.compiling import FAST, with_globals
from benchmarks.data import read
from benchmarks.limit import seconds_of

Array = NDArray[Any]
WAYS = ("ours", "Generator", "NumPy's on our streams")
GAMMA = [("gamma", (shape,)) for shape in (0.01, 0.3, 1.0, 10.0, 1e3)]
BINOMIAL = [("binomial", (number, p)) for number in (5, 100, 100_000) for p in (0.5, 0.01)]
POISSON = [("poisson", (mean,)) for mean in (0.1, 3.0, 30.0, 1e4)]
DRAWS, BEGUN = 20_000, 1_000  # within one turn that the system gives a thread
ROWS_A_GENERATOR = 64  # in sweeps

bits, uniform, stream = draws.bits, draws.uniform, draws.stream
compiled = njit(nogil=True, fastmath=FAST)
inlined = njit(inline="always")


# Numba takes the names of arguments from what it overloads, and compares annotations.
@overload(next_double)
def _next_double(bitgen):  # type: ignore[no-untyped-def]
    return (lambda bitgen: uniform(bitgen)) if bitgen == types.Array(types.uint64, 1, "C") else None


@overload(next_uint64)
def _next_uint64(bitgen):  # type: ignore[no-untyped-def]
    return (lambda bitgen: bits(bitgen)) if bitgen == types.Array(types.uint64, 1, "C") else None


def _gamma(at_least_one: Any) -> Any:
    """Compile what a row of `gamma_draws` does for each element."""

    @inlined
    def gamma(state: Any, shape: float) -> float:
        if shape >= 1.0:
            return at_least_one(state, shape)
        boost = math.log(uniform(state)) / shape
        return 0.0 if boost < -745.0 else at_least_one(state, shape + 1.0) * math.exp(boost)

    return gamma


_numpy_binomial, _numpy_poisson = distributions.random_binomial, distributions.random_poisson
LAWS = {  # by way
    "gamma": (
        _gamma(draws.gamma_at_least_one),
        inlined(lambda generator, shape: generator.standard_gamma(shape)),
        _gamma(distributions.random_standard_gamma),
    ),
    "binomial": (
        sampling.binomial,
        inlined(lambda generator, number, p: generator.binomial(number, p)),
        inlined(lambda state, number, p: _numpy_binomial(state, number, p)),
    ),
    "poisson": (
        draws.poisson,
        inlined(lambda generator, mean: generator.poisson(mean)),
        inlined(lambda state, mean: _numpy_poisson(state, mean)),
    ),
}


def begun(way: int, seed: int) -> Any:
    """Return a stream."""
    return np.random.Generator(np.random.PCG64(seed)) if way == 1 else np.array([seed], dtype=np.uint64)


@cache
def sum_of(draw: Any, parameters: int) -> Any:
    """Return what adds up many draws of a law with so many parameters."""

    @compiled
    def of_one(state: Any, draws: int, a: float) -> float:
        total = 0.0
        for _ in range(draws):
            total += draw(state, a)
        return total

    @compiled
    def of_two(state: Any, draws: int, a: int, b: float) -> float:
        total = 0.0
        for _ in range(draws):
            total += draw(state, a, b)
        return total

    return of_one if parameters == 1 else of_two


def least(calls: list[Callable[[], object]], repeats: int) -> Array:
    """Return the least seconds of each call, taken in turn."""
    for call in calls:
        call()
    return np.min([[seconds_of(call) for call in calls] for _ in range(repeats)], axis=0)


def print_draws(repeats: int) -> None:
    """Print nanoseconds a draw, of one thread and of two at once that have a stream each."""
    threads = ("1 thread", "2 threads")
    print("| ns a draw | " + " | ".join(f"{way}, {number}" for number in threads for way in WAYS) + " |")
    print("|---|" + "--:|" * 6)
    sums = {name: [sum_of(draw, 1 + (name == "binomial")) for draw in laws] for name, laws in LAWS.items()}

    def alone(name: str, way: int, parameters: Sequence[float], seed: int = 1) -> float:
        state = begun(way, seed)
        return seconds_of(lambda: sums[name][way](state, DRAWS, *parameters))

    with ThreadPoolExecutor(2) as pool:

        def together(name: str, way: int, parameters: Sequence[float]) -> float:
            return max(pool.map(lambda seed: alone(name, way, parameters, seed), (1, 2)))

        for name, given in (*GAMMA, *BINOMIAL, *POISSON):
            ways = [(call, way) for call in (alone, together) for way in range(3)]
            seconds = np.array([[call(name, way, given) for call, way in ways] for _ in range(repeats + 1)])[1:]
            figures = " | ".join(f"{1e9 * each / DRAWS:.0f}" for each in seconds.min(axis=0))
            print(f"| {name}{given} | {figures} |", flush=True)


@compiled
def _begin_streams(seed: Any, number: int) -> Any:
    state = np.zeros(1, dtype=np.uint64)
    for row in range(number):
        state[0] ^= stream(seed, row)
    return state[0]


@compiled
def _take(generator: Any) -> int:
    return 0


def print_streams(repeats: int) -> None:
    """Print what it costs to give a row a stream of its own."""
    pcg, generator, rows = np.random.PCG64(1), begun(1, 1), count()
    state, random = pcg.state, np.random
    ways: dict[str, Callable[[], object]] = {
        "Generator(PCG64([seed, row]))": lambda: random.Generator(random.PCG64([1, next(rows)])),
        "Generator(Philox(key=seed, counter=row))": lambda: random.Generator(random.Philox(key=1, counter=next(rows))),
        "PCG64.advance": lambda: pcg.advance(2**64),
        "PCG64.state = …": lambda: setattr(pcg, "state", state),
        "a compiled call that takes a Generator, besides": lambda: _take(generator),
    }
    calls = [lambda way=way: [way() for _ in range(BEGUN)] for way in ways.values()]  # type: ignore[misc]
    found = least([lambda: _begin_streams(np.uint64(1), BEGUN), *calls], repeats)
    print("\n| beginning a stream | µs |\n|---|--:|")
    for name, seconds in zip(["ours, within compiled code", *ways], found, strict=True):
        print(f"| {name} | {1e6 * seconds / BEGUN:.4f} |")


def _multinomials(name: str, **draws: Any) -> Any:
    """Compile a row of the sampled allocation step with other draws."""
    many = compiled(with_globals(sampling.add_many.py_func, f"add_many_{name}", **draws))
    multinomial = with_globals(sampling.add_multinomial.py_func, f"add_multinomial_{name}", add_many=many, **draws)
    return compiled(with_globals(sampling._draw_row.py_func, f"draw_row_{name}", add_multinomial=inlined(multinomial)))


def _allocations_by_generator(draw_row: Any) -> Any:
    entries = sampling.ENTRIES

    @compiled
    def rows(
        indptr: Array, indices: Array, values: Array, U: Array, Vt: Array, generator: Any, first: int, last: int,
        A: Array, Bt: Array,
    ) -> None:  # fmt: skip
        cumulative = np.empty((entries + 3, U.shape[1]))
        for i in range(first, last):
            a, b = indptr[i], indptr[i + 1]
            draw_row(indices[a:b], values[a:b], U[i], Vt, generator, cumulative, A[i], Bt)

    return rows


def _gammas(draw: Any) -> Any:
    @compiled
    def rows(shape: Array, seed: Any, first: int, last: int, out: Array) -> None:
        state = np.empty(1, dtype=np.uint64)
        for i in range(first, last):
            for k in range(shape.shape[1]):
                state[0] = stream(seed, i * shape.shape[1] + k)
                out[i, k] = draw(state, shape[i, k])

    return rows


@compiled
def _gammas_by_generator(shape: Array, generator: Any, first: int, last: int, out: Array) -> None:
    for i in range(first, last):
        for k in range(shape.shape[1]):
            out[i, k] = generator.standard_gamma(shape[i, k])


def _first_row_is_0(draw: Any) -> Callable[..., Any]:
    """Return the loop over rows without its argument for the place of the first row in a larger matrix."""
    return lambda *given: draw(*given[:6], 0, *given[6:])


def loops() -> list[tuple[Any, Any]]:
    """Return what draws the allocations of rows, and the Gammas of rows, by way."""
    random = inlined(lambda generator: generator.random())
    by_generator = _multinomials("generator", uniform=random, binomial=LAWS["binomial"][1])
    row = _multinomials("numpy", binomial=LAWS["binomial"][2])
    numpy_s = compiled(with_globals(sampling._draw_allocations.py_func, "draw_allocations_numpy", _draw_row=row))
    return [
        (_first_row_is_0(sampling._draw_allocations), _gammas(LAWS["gamma"][0])),
        (_allocations_by_generator(by_generator), _gammas_by_generator),
        (_first_row_is_0(numpy_s), _gammas(LAWS["gamma"][2])),
    ]


def sweep(way: int, rows: tuple[Any, Any], matrix: Any, U: Array, V: Array) -> None:
    """Draw allocations and both factors, on one thread."""

    def by_rows(length: int, draw: Callable[..., Any], given: tuple[Any, ...], out: tuple[Array, ...]) -> None:
        step = ROWS_A_GENERATOR if way == 1 else length
        for first in range(0, length, step):
            draw(*given, begun(1, first) if way == 1 else np.uint64(1), first, min(first + step, length), *out)

    A, Bt = np.zeros_like(U), np.zeros(V.T.shape)
    given = matrix.indptr, matrix.indices, matrix.data, U, np.ascontiguousarray(V.T)
    by_rows(len(U), rows[0], given, (A, Bt))
    for total in (A, Bt):
        by_rows(len(total), rows[1], (total + 0.1,), (np.empty_like(total),))


def print_sweeps(names: list[str], rank: int, most: int, repeats: int) -> None:
    """Print milliseconds of a sweep of Gibbs on the first rows of some counts."""
    print("\n| ms a sweep | rows | counts | " + " | ".join(WAYS) + " |\n|---|" + "--:|" * 5)
    by_way, rng = loops(), np.random.default_rng(0)
    for name in names:
        matrix = read(name, rank, 0).matrix.astype(np.float64)[:most]
        U, V = rng.gamma(1.0, size=(matrix.shape[0], rank)), rng.gamma(1.0, size=(rank, matrix.shape[1]))
        given = matrix, U, V
        calls = [lambda each=each, given=given: sweep(*each, *given) for each in enumerate(by_way)]  # type: ignore[misc]
        times = " | ".join(f"{1e3 * seconds:.2f}" for seconds in least(calls, repeats))
        print(f"| {name} | {matrix.shape[0]:,} | {matrix.sum():,.0f} | {times} |", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["pbmc_small", "pcawg_breast_sbs96", "nips"])
    parser.add_argument("--rank", type=int, default=10)
    parser.add_argument("--rows", type=int, default=300, help="of the counts, at most (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=51)
    given = parser.parse_args()
    print_draws(given.repeats)
    print_streams(given.repeats)
    print_sweeps(given.data, given.rank, given.rows, given.repeats)


if __name__ == "__main__":
    main()
