"""Several matrices of the same rows: how they are joined, read apart again, and what is refused."""

import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

import bayesnmf
from bayesnmf import DataWarning
from bayesnmf.data.blocks.opening import open_counts, open_several
from bayesnmf.data.mask import GroupMask
from bayesnmf.data.several import SeveralCounts, joined

X = np.random.default_rng(0).poisson(3, (6, 5)).astype(float)
ROWS = [f"s{i}" for i in range(6)]
A = pd.DataFrame(X[:, :3], ROWS, ["A[C>A]A", "x", "y"])
B = pd.DataFrame(X[:, 3:], ROWS, ["x", "z"])


def opened(matrices, **given):
    return open_several(matrices, "float64", **given)


def test_matrices_stand_side_by_side_and_come_apart_again() -> None:
    counts = opened({"a": A, "b": B.iloc[::-1]})
    np.testing.assert_array_equal(counts.matrix.toarray(), X)
    assert list(counts.row_names) == ROWS
    assert counts.mask is None
    for name, table in (("a", A), ("b", B)):
        own = counts.of(name)
        assert type(own) is bayesnmf.Counts
        np.testing.assert_array_equal(own.matrix.toarray(), table)
        assert list(own.feature_names) == list(table.columns)
    assert counts.in_short().endswith("features of a: 3, b: 2)")


def test_names_that_two_matrices_have_follow_the_name_of_theirs() -> None:
    assert list(opened({"a": A, "b": B}).feature_names) == ["A[C>A]A", "a: x", "y", "b: x", "z"]
    assert list(opened({"a": A.to_numpy(), "b": csr_array(B.to_numpy())}).feature_names) == [
        "a: 0", "a: 1", "a: 2", "b: 0", "b: 1",
    ]  # fmt: skip


def test_rows_that_a_matrix_lacks_are_missing_entries() -> None:
    with pytest.warns(DataWarning) as told:
        counts = opened({"a": A.iloc[:4], "b": B.iloc[2:]})
    assert [str(each.message)[:31] for each in told] == [f"counts {name!r} lack 2 of the 6 rows" for name in "ab"]
    assert isinstance(counts.mask, GroupMask)
    hidden = np.zeros(X.shape, bool)
    hidden[4:, :3] = hidden[:2, 3:] = True
    np.testing.assert_array_equal(counts.mask.hidden(slice(None)), hidden)
    np.testing.assert_array_equal(counts.matrix.toarray(), np.where(hidden, 0, X))
    assert list(counts.of("b").row_names) == ROWS[2:]
    assert counts.of("b").mask is None
    assert counts.rows([0, 5]).of("a").row_names == ["s0"]


@pytest.mark.filterwarnings("ignore::bayesnmf.DataWarning")
def test_a_row_may_lack_all_but_one_of_three_matrices() -> None:
    C = pd.DataFrame(X[:, :2], ROWS, ["u", "v"])
    counts = opened({"a": A.iloc[:5], "b": B.iloc[:4], "c": C.iloc[1:]})
    hidden = counts.mask.hidden(slice(None))
    assert hidden[5].tolist() == [True] * 5 + [False] * 2
    factors = np.random.default_rng(1).random((7, 2)), np.random.default_rng(2).random((6, 2))
    np.testing.assert_allclose(counts.mask.sums_by_row(factors[0]), hidden @ factors[0], rtol=1e-14)
    np.testing.assert_allclose(counts.mask.sums_by_feature(factors[1]), hidden.T @ factors[1], rtol=1e-14)
    assert counts.mask.number == hidden.sum()
    np.testing.assert_array_equal(counts.mask.missing.toarray() > 0, hidden)
    np.testing.assert_array_equal(counts.mask.seen_rows, ~hidden.all(axis=1))
    numbers = np.arange(hidden.size - counts.mask.number)
    np.testing.assert_array_equal(counts.mask.places_of_observed(numbers), np.flatnonzero(~hidden))
    np.testing.assert_array_equal(counts.mask.features([0, 3]).seen_features, ~hidden[:, [0, 3]].all(axis=0))


@pytest.mark.filterwarnings("ignore::bayesnmf.DataWarning")
def test_missing_entries_of_a_matrix_stay_so() -> None:
    holes = A.mask(np.eye(6, 3, dtype=bool))
    counts = opened({"a": holes, "b": B.iloc[1:]}, missing="nan")
    hidden = np.zeros(X.shape, bool)
    hidden[:, :3], hidden[0, 3:] = np.eye(6, 3), True
    np.testing.assert_array_equal(counts.mask.hidden(slice(None)), hidden)
    told = opened({"a": A, "b": B.iloc[1:]}, missing={"a": np.eye(6, 3, dtype=bool)})
    np.testing.assert_array_equal(told.mask.hidden(slice(None)), hidden)
    assert counts.of("a").mask.number == 3


def test_weights_multiply_counts_and_are_undone_for_one_matrix() -> None:
    counts = opened({"a": A, "b": B}, weights={"b": 0.3})
    np.testing.assert_array_equal(counts.matrix.toarray(), X * [1, 1, 1, 0.3, 0.3])
    np.testing.assert_array_equal(counts.of("b").matrix.toarray(), B)


def test_mudata_is_a_mapping() -> None:
    class MuData:  # the part of mudata's class that is read
        mod = {"a": A, "b": B}  # noqa: RUF012

    assert isinstance(opened(MuData()), SeveralCounts)
    assert bayesnmf.fit(MuData(), rank=2, seed=0).counts.matrices.names == ("a", "b")


UNNAMED = X[:4, :2]
REFUSED = {
    "nothing": ({}, {}, "must have the name and the counts of each matrix"),
    "numbers as names": ({1: A}, {}, "must have the name and the counts of each matrix"),
    "no common rows": (
        {"a": A, "b": B.rename(index=lambda each: f"t{each}")},
        {},
        "must have rows of the other matrices",
    ),
    "other numbers of rows": ({"a": X, "b": UNNAMED}, {}, r"'a' must have names of rows, .* rows 'a': 6, 'b': 4"),
    "names beside none": ({"a": A, "b": UNNAMED}, {}, "'b' must have names of rows"),
    "several in several": ({"a": {"b": A}, "c": B}, {}, "must be one matrix in memory"),
    "another weight": ({"a": A, "b": B}, {"weights": {"c": 2}}, "weights must be one of 'a', 'b': found 'c'"),
    "no weight": ({"a": A, "b": B}, {"weights": {"a": 0}}, r"weights\['a'\] must be a number from 1e-6"),
    "a list of weights": ({"a": A, "b": B}, {"weights": [1, 2]}, "weights must map names"),
    "weights of one": (A, {"weights": {"a": 2}}, "weights must be those of several matrices"),
    "entries of all": ({"a": A, "b": B}, {"missing": X > 3}, "missing must map names of matrices"),
    "entries of another": ({"a": A, "b": B}, {"observed": {"c": X > 3}}, "names in observed must be one of"),
}


@pytest.mark.parametrize(("matrices", "given", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(matrices, given, message) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        opened(matrices, **given)


@pytest.mark.filterwarnings("ignore::bayesnmf.DataWarning")
def test_repeated_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="'a' must have names of rows that differ"):
        opened({"a": A.rename(index={"s1": "s0"}), "b": B})


def test_counts_on_disk_are_refused() -> None:
    on_disk = SimpleNamespace(rows_held=0)  # as that of blocks
    with pytest.raises(TypeError, match=r"'a' must be one matrix in memory, .* found counts on disk"):
        joined({"a": on_disk, "b": bayesnmf.as_counts(B)})


def test_files_of_mudata_are_read(tmp_path, monkeypatch) -> None:
    """By a package that need not be there, and is named then."""
    read = SimpleNamespace(read_h5mu=lambda path: SimpleNamespace(mod={"a": A, "b": B}))
    monkeypatch.setitem(sys.modules, "mudata", read)
    assert open_counts(tmp_path / "cells.h5mu", "float64").matrices.names == ("a", "b")
    assert opened(str(tmp_path / "cells.h5mu"), weights={"b": 2}).matrices.weights.tolist() == [1, 2]
    monkeypatch.setitem(sys.modules, "mudata", None)
    with pytest.raises(ImportError, match="needs mudata: pip install mudata"):
        open_counts("cells.h5mu", "float64")
