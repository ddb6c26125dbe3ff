"""Rows that settle by themselves: the compiled loop against passes over all rows, written in NumPy."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import digamma

from bayesnmf.kernels.cpu.allocation import expected_allocations
from bayesnmf.kernels.cpu.settling import settled_totals

N, M, K = 23, 37, 5
rng = np.random.default_rng(0)
COUNTS = csr_array((rng.poisson(3.0, (N, M)) * (rng.random((N, M)) < 0.4)).astype(float))
EMPTY = COUNTS.copy()
EMPTY.data[EMPTY.indptr[4] : EMPTY.indptr[5]] = 0
EMPTY.eliminate_zeros()
START, MEANS = rng.gamma(1.0, 1.0, (N, K)), rng.gamma(1.0, 1.0, (N, K))
COMPONENTS = np.asfortranarray(rng.gamma(0.3, 1.0, (K, M)) + 1e-9)
PRIOR = {"one": np.full((1, K), 0.3), "each": rng.gamma(2.0, 1.0, (N, K)), "flat": np.zeros((1, K))}
RATE = {"simplex": None, "one": rng.gamma(2.0, 1.0, (1, K)), "each": rng.gamma(2.0, 1.0, (N, K))}


def by_passes(counts, prior, rate, tol, most, expects):
    """Update all rows together, and keep of each what it had when it settled."""
    u, before = START, MEANS
    totals, updates = np.zeros((N, K)), np.full(N, -most)
    live = np.ones(N, bool)
    for update in range(most):
        new = expected_allocations(counts, u, COMPONENTS).loadings
        totals[live] = new[live]
        s, below = prior + new, 1.0 if rate is None else rate
        u = np.exp(digamma(s) - np.log(below)) if expects else s / below
        after = s / below
        if rate is None:
            sums = after.sum(axis=1, keepdims=True)
            after = np.divide(after, sums, out=after, where=sums > 0)
        settles = live & (np.abs(after - before).max(axis=1) <= tol * after.max(axis=1))
        updates[settles] = update + 1
        live &= ~settles
        before = after
    return totals, updates


@pytest.mark.parametrize("rate", RATE)
@pytest.mark.parametrize(("prior", "expects"), [("one", True), ("each", True), ("one", False), ("flat", False)])
@pytest.mark.parametrize("tol", [1e-2, 1e-6])
def test_rows_settle_where_passes_over_all_rows_take_them(rate, prior, expects, tol):
    counts = COUNTS if prior == "flat" else EMPTY  # without a prior an empty row has no mode
    totals, updates = by_passes(counts, PRIOR[prior], RATE[rate], tol, 60, expects)
    found = settled_totals(counts, START, MEANS, COMPONENTS, PRIOR[prior], RATE[rate], tol, 60, expects=expects)
    np.testing.assert_array_equal(found[1], updates)
    np.testing.assert_allclose(found[0], totals, rtol=1e-8, atol=1e-9)
    assert (updates > 0).any()
    assert tol > 1e-3 or (updates < 0).any() or updates.max() > 20  # some take long, so that the last ones matter


def test_rows_do_not_depend_on_threads_or_on_each_other():
    arguments = COMPONENTS, PRIOR["one"], None, 1e-4, 100
    whole = settled_totals(COUNTS, START, MEANS, *arguments, expects=True, threads=1)
    for found in (
        settled_totals(COUNTS, START, MEANS, *arguments, expects=True, threads=3),
        settled_totals(COUNTS[[7]], START[[7]], MEANS[[7]], *arguments, expects=True),
    ):
        rows = slice(None) if len(found[0]) == N else [7]
        np.testing.assert_array_equal(found[0], whole[0][rows])
        np.testing.assert_array_equal(found[1], whole[1][rows])


def test_single_precision_follows_double():
    given = (START, MEANS, COMPONENTS, PRIOR["one"], RATE["one"], 1e-3, 50)
    double, _ = settled_totals(COUNTS, *given, expects=True)
    single, _ = settled_totals(
        COUNTS.astype(np.float32), *(each.astype(np.float32) for each in given[:3]), *given[3:], expects=True
    )
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, double, rtol=2e-3, atol=1e-3)  # a row may settle one update sooner or later


@pytest.mark.parametrize("expects", [True, False])
def test_counts_whose_mean_underflows_are_shared_out_all_the_same(expects):
    components = COMPONENTS.copy()
    components[:, 3] = 1e-300
    start = START.copy()
    start[:] = 1e-30
    found, _ = settled_totals(COUNTS, start, MEANS, components, PRIOR["one"], None, 0.0, 3, expects=expects)
    np.testing.assert_allclose(found.sum(axis=1), COUNTS.sum(axis=1), rtol=1e-12)


def test_a_dead_component_stays_where_it_was():
    rate = np.array([[1.0, 2.0, 0.0, 1.0, 1.0]])
    components = COMPONENTS.copy()
    components[2] = 0
    found, updates = settled_totals(COUNTS, START, MEANS, components, PRIOR["flat"], rate, 1e-4, 500, expects=False)
    assert (updates > 0).all()
    np.testing.assert_array_equal(found[:, 2], 0)
    np.testing.assert_allclose(found.sum(axis=1), COUNTS.sum(axis=1), rtol=1e-12)


def test_many_components_and_hardly_a_count():
    """Where every shape is so small that exp ψ is 0, components are told apart all the same."""
    many = 2000
    components = np.asfortranarray(rng.gamma(50.0, 1.0, (many, 3)))
    counts = csr_array(np.array([[1.0, 0, 0], [0, 0, 1.0]]))
    start = np.ones((2, many))
    found, _ = settled_totals(counts, start, start, components, np.full((1, many), 1e-5), None, 0.0, 2, expects=True)
    for row, column in ((0, 0), (1, 2)):
        s = 1e-5 + components[:, column] / components[:, column].sum()
        log = digamma(s) + np.log(components[:, column])
        assert (digamma(s) < -800).all()
        np.testing.assert_allclose(found[row], np.exp(log - np.logaddexp.reduce(log)), rtol=1e-10, atol=1e-300)
