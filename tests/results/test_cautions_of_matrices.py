"""What is said of several matrices: what a fit leaves in their residuals, and how much they share."""

import numpy as np
import pandas as pd
import pytest
from plain import plain_vi

import bayesnmf
from bayesnmf.results.cautions import caution_of_matrices, cautions_of_model
from bayesnmf.results.relatedness import relatedness
from bayesnmf.results.residuals import LEVEL, structures_of

N = 80


def drawn(seed, shared=0, size=20, noise=0.0):
    """Return two matrices of four components each, of which some have the same loadings; rates may vary."""
    rng = np.random.default_rng(seed)
    loadings = [rng.dirichlet(np.full(4, 0.4), N) for _ in "ab"]
    loadings[1][:, :shared] = loadings[0][:, :shared]
    means = [500 * each @ rng.dirichlet(np.full(size, 0.3), 4) for each in loadings]
    rates = [each * rng.gamma(1 / noise, noise, each.shape) if noise else each for each in means]
    return dict(zip("ab", map(rng.poisson, rates), strict=True))


def fitted(counts, rank, **given):
    return bayesnmf.fit(counts, rank=rank, seed=0, options=plain_vi(max_iter=1000, tol=1e-5, threads=1), **given)


def lacking(counts, rank, **given):
    """Return the matrices whose residuals share structure, of a fit that has it of both."""
    found = structures_of(fitted(counts, rank, **given))
    assert list(found) == ["a", "b"]
    return [name for name, each in found.items() if each.p_value < LEVEL / 2]


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_residuals_share_structure_where_a_component_is_missing(noise):
    """And not of noise, though counts vary more than Poisson counts, which the fit knows nothing of."""
    counts = drawn(1, shared=4, noise=noise)
    assert lacking(counts, 4) == []
    assert lacking(counts, 3) == ["a", "b"]


@pytest.mark.parametrize("seed", [1, 2, 4])
def test_loadings_that_another_matrix_decides_leave_structure(seed):
    """Where two of four components are shared, a rank of five has as many components as each matrix needs alone."""
    counts = drawn(seed, shared=2)
    assert lacking(counts, 6) == []
    assert lacking(counts, 5) == ["a", "b"]


def test_weights_change_no_residuals():
    counts = drawn(2, shared=4)
    for weight in (0.5, 2.0):
        assert lacking(counts, 4, weights={"b": weight}) == []
        assert lacking(counts, 2, weights={"b": weight}) == ["a", "b"]


def test_missing_entries_leave_none():
    counts = drawn(3, shared=4)
    observed = {name: np.random.default_rng(0).random(each.shape) < 0.8 for name, each in counts.items()}
    counts = {name: np.where(observed[name], each, 10_000) for name, each in counts.items()}
    assert lacking(counts, 4, observed=observed) == []


def test_a_matrix_with_few_rows_is_not_judged():
    """Nor does it change what is said of the other."""
    counts = {name: pd.DataFrame(each, [f"r{i}" for i in range(N)]) for name, each in drawn(1, shared=4).items()}
    with pytest.warns(bayesnmf.DataWarning, match="lack 73 of the 80 rows"):
        fit = fitted({**counts, "b": counts["b"].iloc[:7]}, 4)
    found = structures_of(fit)
    assert list(found) == ["a"]
    assert found["a"].p_value > LEVEL


def test_relatedness_is_the_correlation_of_cosines_of_different_rows():
    counts = drawn(4, shared=2)
    found = relatedness(fitted(counts, 2).counts)[("a", "b")]
    pairs = []
    for each in counts.values():
        expected = each.sum(axis=1, keepdims=True) * each.sum(axis=0) / each.sum()
        kept = each.sum(axis=0) > 0
        differences = ((each - expected)[:, kept] / np.sqrt(expected[:, kept])).tolist()
        cosine = [
            np.dot(one, two) / np.linalg.norm(one) / np.linalg.norm(two)
            for i, one in enumerate(differences) for j, two in enumerate(differences) if i != j
        ]  # fmt: skip
        pairs.append(np.array(cosine))
    assert found == pytest.approx(
        np.sum(pairs[0] * pairs[1]) / np.sqrt(np.prod([np.sum(e**2) for e in pairs])), rel=1e-9
    )


def test_rows_are_related_by_name():
    counts = {name: pd.DataFrame(each, [f"r{i}" for i in range(N)]) for name, each in drawn(5, shared=4).items()}
    mixed = {**counts, "b": counts["b"].iloc[np.random.default_rng(0).permutation(N)[: N - 10]]}
    with pytest.warns(bayesnmf.DataWarning, match="lack 10 of the 80 rows"):
        fit = fitted(mixed, 2)
    assert relatedness(fit.counts)[("a", "b")] == pytest.approx(
        relatedness(fitted(counts, 2).counts)[("a", "b")], abs=0.1
    )


def test_matrices_that_share_nothing_are_told_so_and_need_the_sum_of_their_ranks():
    counts = drawn(6)
    small = cautions_of_model(fitted(counts, 4))
    assert len(small) == 1  # and no noise, though counts vary more than Poisson counts around such means
    assert "components are missing: residuals of 'a' share a pattern" in small[0]
    assert ", and residuals of 'b' share a pattern" in small[0]
    assert "rows that are alike in 'a' are hardly so in 'b'" in small[0]
    assert "try rank=5 or more" in small[0]
    assert "noise" not in small[0]
    enough = fitted(counts, 8)
    assert (
        "they share little, as fit.matrices() shows, and a fit of each alone says nearly as much"
        in caution_of_matrices(enough)
    )
    for name, each in counts.items():
        alone = bayesnmf.match(fitted(each, 4), enough.matrix(name))
        assert alone.table["cosine"].min() > 0.95


def test_matrices_that_share_their_loadings_are_told_nothing():
    assert caution_of_matrices(fitted(drawn(7, shared=4), 4)) == ""
    assert caution_of_matrices(fitted(drawn(7)["a"], 4)) == ""
