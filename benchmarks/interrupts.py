"""The longest piece of each compiled loop, during which Ctrl-C is not heard.

    python -m benchmarks.interrupts [--rows 100000] [--features 2000] [--nonzeros 10000000] [--rank 20] [NAME ...]

calls each function of `bayesnmf.kernels.cpu` on one thread, where pieces are longest, and prints how often it entered
compiled code and how long the longest stay was, in seconds: Python handles signals in between. Counts are up to 1e15
where the loop does not visit single counts. Several states: 64, as in sequential Monte Carlo, of a hundredth of the
rows.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numba.core.registry import CPUDispatcher
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array

from bayesnmf.kernels.cpu import (
    allocation,
    clusters,
    decomposition,
    draws,
    entries,
    entry_rates,
    factors,
    likelihood,
    masking,
    mean_field,
    orbits,
    pearson,
    presence,
    regression,
    replication,
    sampling,
    settling,
    shared_rates,
    tangent,
    urn,
)

Array = NDArray[Any]
STATES = 64


@contextmanager
def pieces() -> Iterator[list[tuple[Any, float]]]:
    """Collect the compiled function and the seconds of every call of compiled code from Python."""
    found: list[tuple[Any, float]] = []
    plain = CPUDispatcher.__call__

    def timed(self: Any, *words: Any, **named: Any) -> Any:
        begin = time.perf_counter()
        try:
            return plain(self, *words, **named)
        finally:
            found.append((self, time.perf_counter() - begin))

    CPUDispatcher.__call__ = timed  # type: ignore[method-assign, assignment]
    try:
        yield found
    finally:
        CPUDispatcher.__call__ = plain  # type: ignore[method-assign]


def large_counts(n: int, m: int, nonzeros: int, most: float, rng: np.random.Generator) -> csr_array:
    """Return counts with the same number of nonzeros in each row, of all sizes up to `most`."""
    each = nonzeros // n
    indices = (np.arange(each) * (m // each) + rng.integers(m // each, size=(n, each))).ravel().astype(np.int32)
    data = np.floor(np.exp(rng.uniform(0, np.log(most), len(indices))))
    return csr_array((data, indices, np.arange(n + 1, dtype=np.int32) * each), shape=(n, m))


def calls(n: int, m: int, nonzeros: int, K: int) -> dict[str, Callable[[], Any]]:
    """Return a call of each function on random input of this size."""
    rng = np.random.default_rng(0)
    X = large_counts(n, m, nonzeros, 1e15, rng)
    spread = np.full(n, 0.5), None
    Xt = X.T.tocsr()
    tokens = csr_array((np.minimum(X.data, 3.0), X.indices, X.indptr), shape=X.shape)
    U, Vt = rng.gamma(1.0, size=(n, K)) + 1e-3, rng.gamma(1.0, size=(m, K)) + 1e-3
    V, one, seed = np.asfortranarray(Vt.T), np.ones((1, 1)), 3
    prior = np.full((1, K), 0.3)
    few = csr_array((X.data[: X.indptr[n // 100]], X.indices[: X.indptr[n // 100]], X.indptr[: n // 100 + 1]),
                    shape=(n // 100, m))  # fmt: skip
    dense = entry_rates.dense_rows(few, slice(0, 1))
    states = np.ascontiguousarray(np.tile(U[: n // 100], (STATES, 1, 1))), np.tile(Vt, (STATES, 1, 1))
    city = urn.Urn(prior, np.ones((1, K)), np.full((1, K), 0.3), np.full(K, 0.3 * m))
    given: dict[str, Any] = {"threads": 1}

    def entries_of(matrix: csr_array, factor: Array, other: Array) -> Array:
        drawn = factor.copy()
        entries.draw_entries(matrix, drawn, other, (prior, np.ones((1, K))), seed, **given)
        return drawn

    def tied() -> Array:
        b = Vt.copy()
        entries.draw_entries(Xt, b, U, (prior, np.ones((1, K))), seed, (np.full(K, 0.3 * n), b.sum(axis=0)))
        return b

    def urns() -> tuple[Array, ...]:
        found = urn.assign_tokens(tokens, U, V, seed)
        urn.reassign_tokens(tokens, found, city, seed)
        return found

    def filtered() -> float:
        crowd = urn.Particles(np.zeros((m, 100, K)), np.full((100, K), 0.3 * m), np.ones(100))
        row = csr_array((np.full(m, 50.0), np.arange(m, dtype=np.int32), np.array([0, m], np.int32)), shape=(1, m))
        return urn.filter_row(row, 0, city, crowd, seed)

    def sheared(*factors: Array) -> tuple[Array, ...]:
        t, b = (np.ascontiguousarray(np.swapaxes(each, 1, 2)) for each in factors)
        ones = np.full((1, 1, 1), 1.3)
        orbits.shear_components(t, b, (ones, ones), (ones, ones), None, np.arange(K), seed, 60, 1)
        return t, b

    def responses() -> tuple[Array, ...]:
        way = tangent.Tangent(X, U, V, (U, V))
        return way.curvature(1), *way.row_responses(np.ones((K, m)), np.zeros((n, K)), np.zeros((n, K, K)), 1)

    def settle() -> tuple[Array, ...]:
        return settling.settled_totals(X, U, U, V, prior, np.ones((1, K)), 0.0, 2000, expects=True, **given)

    def gradients() -> tuple[Any, ...]:
        parts = np.ones((2, n, K)), np.ones((2, m, K))
        return decomposition.decomposition_gradients(X, U, V, *parts, **given)

    def scaled() -> Array:
        factor = U.copy()
        factors.scale_rows(factor, np.ones(K))
        return factor

    lost = factors.padded(U.shape, np.float64)
    lost[:] = 1e-200

    first, catalogue = tokens[: n // 10], np.ascontiguousarray(V / V.sum(axis=1, keepdims=True))  # as fits have them
    exposed = np.zeros((0, m), bool), np.ones((1, K))
    of_features = np.zeros(m), np.ones(m)
    model = presence.Model(catalogue, *exposed, np.ones(K), np.zeros(K), presence.POISSON, *of_features)

    def presences() -> tuple[Array, ...]:
        loadings, present = np.array(U[: n // 10]), np.zeros((n // 10, K))
        presence.draw_presence(first, model, seed, 2, False, loadings, present, 1)
        return loadings, present

    def judged() -> tuple[Array, ...]:
        drawn = csc_array(U[: n // 10].reshape(1, -1))
        return presence.judge_presence(first, model, drawn, catalogue[None, K:], 1)

    return {
        "draw_presence": presences,
        "refit_presence": lambda: presence.refit_presence(tokens, model, 1),
        "judge_presence": judged,
        "expected_allocations (scattered)": lambda: allocation.expected_allocations(X, U, V, **given),
        "expected_allocations (gathered)": lambda: allocation.expected_allocations(X, U, V, transposed=Xt, **given),
        "expected_allocations (means underflow)": lambda: allocation.expected_allocations(
            X, lost, np.asfortranarray(V * 1e-120), **given
        ),
        "sampled_allocations": lambda: sampling.sampled_allocations(X, U, V, seed, **given),
        "draw_entries (rows)": lambda: entries_of(X, U, Vt),
        "draw_entries (features)": lambda: entries_of(Xt, Vt, U),
        "draw_entries (tied)": tied,
        "draw_entries (states)": lambda: entries_of(few, *states),
        "shear_components": lambda: sheared(U[None], Vt[None]),
        "shear_components (states)": lambda: sheared(*states),
        "log_scales": lambda: orbits.log_scales(np.ones(K), np.ones(K), np.ones(K), seed),
        "assign_tokens, reassign_tokens": urns,
        "filter_row": filtered,
        "gamma_draws": lambda: draws.gamma_draws(U, seed, **given),
        "poisson_draws": lambda: draws.poisson_draws(U, seed),
        "at_entries": lambda: masking.at_entries(X, X, listed=False).data,
        "entry_rates": lambda: likelihood.entry_rates(X, U, V, **given),
        "log_likelihoods (states)": lambda: likelihood.log_likelihoods(few, *states, **given),
        "poisson_regression (rows)": lambda: regression.poisson_regression(X, U, V, (prior, prior), **given),
        "poisson_regression (features)": lambda: regression.poisson_regression(
            Xt, Vt, np.asfortranarray(U.T), (prior, prior), **given
        ),
        "settled_totals": settle,
        "Tangent": responses,
        "decomposition_gradients": gradients,
        "mean_field_moments": lambda: mean_field.mean_field_moments(U, one, np.zeros((1, 1)), one, one, **given),
        "digamma_with_excess": lambda: mean_field.digamma_with_excess(U),
        "trigamma": lambda: mean_field.trigamma(U),
        "dense_rows": lambda: entry_rates.dense_rows(few, slice(0, 1)),
        "gamma_rates": lambda: entry_rates.gamma_rates(dense, dense + 1.0, np.ones((1, 1))),
        "gamma_slopes": lambda: entry_rates.gamma_slopes(dense, dense + 1.0, np.ones((1, 1))),
        "rates_of_zeros": lambda: entry_rates.rates_of_zeros(dense, dense + 1.0, np.full((1, 1), 0.5)),
        "solve_shared_rates": lambda: shared_rates.solve_shared_rates(U, one, np.full(n, 3.0), np.ones(n), **given),
        "sum_ratios": lambda: shared_rates.sum_ratios(U, one, **given),
        "replicated_statistics (Poisson)": lambda: replication.replicated_statistics(U, V, None, 100, seed, **given),
        "replicated_statistics (multinomial)": lambda: replication.replicated_statistics(
            U, V, np.full(n, 1e15), 100, seed, **given
        ),
        "replicated_counts": lambda: replication.replicated_counts(U, V, None, 100, **given).toarray(),
        "misfits": lambda: replication.misfits(X, U, V, **given),
        "pearson_sums": lambda: pearson.pearson_sums(X, U, V, 0.1),
        "cluster_sums": lambda: clusters.cluster_sums(X, U, V, spread, 1),
        "expected_clusters": lambda: clusters.expected_clusters(X, U, V, spread, 1)[1],
        "drawn_clusters": lambda: clusters.drawn_clusters(X, U, V, spread, 0, 1).data,
        "drawn_clusters_of_entries": lambda: clusters.drawn_clusters_of_entries(X.data, np.ones(X.nnz), 0),
        "sums_of_entries": lambda: clusters.sums_of_entries(X.data, np.ones(X.nnz), 0.5),
        "weigh_block": lambda: clusters.weigh_block(X[:64].toarray(), np.ones((min(n, 64), m)), spread, 0),
        "move_logarithms": lambda: factors.move_logarithms(U, U + 1, 0.5, **given),
        "move": lambda: factors.move(U, U + 1, 0.5, 1e-10, **given),
        "sum_rows": lambda: factors.sum_rows(U),
        "scale_rows": scaled,
        "largest_imbalance": lambda: factors.largest_imbalance(U, U, np.ones((1, K)), np.ones((1, K))),
    }


def main() -> None:
    """Print the table."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("names", nargs="*", metavar="NAME", help="words of the functions to call; by default all")
    for name, number in (("rows", 100_000), ("features", 2_000), ("nonzeros", 10_000_000), ("rank", 20)):
        words.add_argument(f"--{name}", type=int, default=number)
    given = words.parse_args()
    compiled = calls(200, 100, 2_000, given.rank)  # the first call compiles
    print(f"{'function':<42}{'pieces':>8}{'longest, s':>12}{'whole, s':>10}", flush=True)
    for name, call in calls(given.rows, given.features, given.nonzeros, given.rank).items():
        if given.names and not any(word in name for word in given.names):
            continue
        compiled[name]()
        with pieces() as found:
            begin = time.perf_counter()
            call()
            whole = time.perf_counter() - begin
        longest = max(seconds for _, seconds in found)
        print(f"{name:<42}{len(found):>8}{longest:>12.3f}{whole:>10.2f}", flush=True)


if __name__ == "__main__":
    main()
