"""Exact sums: those of math.fsum, in any order and in any parts."""

import math

import numpy as np
import pytest

from bayesnmf.kernels.cpu.exact_sums import ExactSums

RNG = np.random.default_rng(0)
WIDE = RNG.normal(size=(500, 3)) * np.exp(RNG.normal(scale=120, size=(500, 3)))


@pytest.mark.parametrize(
    "rows",
    [
        WIDE,
        np.abs(WIDE),
        np.array([[5e-324], [-1e308], [1.7e308], [1e-310]]),
        np.array([[1.0], [2.0**-53], [2.0**-53]]),  # adding one after the other would lose both
        np.zeros((0, 2)),
        -np.array([[2.0**970, 1.0], [3.0, 2.0**-1074]]),
    ],
)
def test_sums_are_exact(rows):
    expected = [math.fsum(column) for column in rows.T]
    np.testing.assert_array_equal(ExactSums(rows).rounded(), expected)


def test_sums_depend_on_no_order_and_on_no_parts():
    rows = RNG.normal(size=(500, 3))
    expected = ExactSums(rows).rounded()
    assert not np.array_equal(rows.sum(axis=0), rows[::-1].sum(axis=0)), "plain sums depend on the order"
    for seed in range(5):
        rng = np.random.default_rng(seed)
        parts = np.split(rows[rng.permutation(500)], np.sort(rng.integers(0, 500, 6)))
        total = ExactSums(parts[0])
        for part in parts[1:]:
            total = total + ExactSums(part)
        np.testing.assert_array_equal(total.rounded(), expected)


def test_sums_that_are_too_large_or_of_other_than_numbers():
    np.testing.assert_array_equal(ExactSums(np.full((4, 1), 1e308)).rounded(), [np.inf])
    assert np.isnan(ExactSums(np.array([[1.0, np.inf], [2.0, 1.0]])).rounded()).all()
