"""Fits of several matrices: those of their counts side by side, with missing cells where a matrix lacks rows."""

import numpy as np
import pytest
from smallfits import COUNTS, OPTIONS, K, M, N, every_method, quietly

import bayesnmf
from bayesnmf import DataWarning
from bayesnmf.data.probabilities import log_likelihood
from bayesnmf.priors.noise import POISSON

pytestmark = [quietly, pytest.mark.filterwarnings("ignore::bayesnmf.DataWarning")]
HALVES = {"a": COUNTS.iloc[:, :5], "b": COUNTS.iloc[:, 5:]}
LACKING = {"a": COUNTS.iloc[:, :5], "b": COUNTS.iloc[3:, 5:]}


def fitted(counts, method="vi", model="gamma_poisson", **given):
    return bayesnmf.fit(counts, model, K, method, seed=0, options=OPTIONS[method], **given)


@every_method
def test_two_halves_of_the_features_are_the_whole(method) -> None:
    """To the bit: they are one matrix, and a name changes nothing."""
    one, two = fitted(COUNTS, method), fitted(HALVES, method)
    np.testing.assert_array_equal(two.loadings, one.loadings)
    np.testing.assert_array_equal(two.components, one.components)
    np.testing.assert_array_equal(two.trace, one.trace)


@every_method
def test_rows_that_a_matrix_lacks_are_missing_cells(method) -> None:
    missing = np.zeros((N, M), bool)
    missing[:3, 5:] = True
    one, two = fitted(COUNTS, method, missing=missing), fitted(LACKING, method)
    np.testing.assert_allclose(two.loadings, one.loadings, rtol=1e-10)  # sums over missing cells in another order
    np.testing.assert_allclose(two.components, one.components, rtol=1e-10)


def test_the_log_likelihood_is_the_sum_of_those_of_the_matrices() -> None:
    fit = fitted(LACKING, model="poisson")
    parts = [fit.matrix(name) for name in LACKING]
    of_parts, whole = (
        [log_likelihood(POISSON, each.counts, each.expected_loadings, each.exposed_components, False) for each in fits]
        for fits in (parts, [fit])
    )
    assert sum(of_parts) == pytest.approx(whole[0], rel=1e-12)


def test_new_rows_may_lack_a_matrix() -> None:
    fit, new = fitted(HALVES), {name: each.iloc[:4] for name, each in HALVES.items()}
    np.testing.assert_allclose(fit.transform(new), fitted(COUNTS).transform(COUNTS.iloc[:4]), rtol=1e-12)
    with pytest.warns(DataWarning, match="counts lack 'a' of the matrices of the fit"):
        found = fit.transform({"b": new["b"][["i", "h", "g", "f"]]})
    missing = np.zeros((4, M), bool)
    missing[:, :5] = True
    np.testing.assert_allclose(found, fit.transform(COUNTS.iloc[:4], missing=missing), rtol=1e-10)
    with pytest.warns(DataWarning, match="lack 2 of the 4 features"):
        fit.transform({"a": new["a"], "b": new["b"][["h", "f"]]})


def test_new_matrices_must_be_those_of_the_fit() -> None:
    fit = fitted(HALVES)
    with pytest.raises(ValueError, match="names of the matrices of counts must be one of 'a', 'b': found 'c'"):
        fit.transform({"c": HALVES["b"]})
    with pytest.raises(ValueError, match="counts 'b' must have the 4 features of the fit: found 3"):
        fit.transform({"b": HALVES["b"].to_numpy()[:, :3]})
    with pytest.raises(ValueError, match="counts 'b' must have the 4 features of the fit"):
        fit.transform({"b": HALVES["b"].rename(columns=str.upper)})


def test_new_rows_have_the_weights_of_the_fit() -> None:
    weights = {"a": 1.0, "b": 3.0}
    fit, as_one = fitted(HALVES, weights=weights), fitted(COUNTS * np.repeat([1.0, 3.0], [5, 4]))
    np.testing.assert_array_equal(fit.components, as_one.components)
    new = COUNTS.iloc[:4]
    np.testing.assert_array_equal(
        fit.transform({name: each.iloc[:4] for name, each in HALVES.items()}), fit.transform(new)
    )
    np.testing.assert_array_equal(fit.transform(new), as_one.transform(new * np.repeat([1.0, 3.0], [5, 4])))
