"""The arguments of pyLDAvis, which is no dependency: what it needs of them is asked here."""

from dataclasses import replace

import numpy as np
import pytest
from plain import plain_map
from smallfits import COUNTS, K, every_model, fit, quietly

import bayesnmf


def assert_it_takes(given):
    """Assert what `pyLDAvis.prepare` 3.4.0 checks, and that the logarithms that it takes are finite."""
    (rank, m), (n, columns) = given["topic_term_dists"].shape, given["doc_topic_dists"].shape
    assert rank == columns
    assert (len(given["doc_lengths"]), len(given["vocab"]), len(given["term_frequency"])) == (n, m, m)
    for name in ("topic_term_dists", "doc_topic_dists"):
        np.testing.assert_allclose(given[name].sum(axis=1), 1, rtol=1e-12)
    sizes = given["doc_lengths"] @ given["doc_topic_dists"]
    expected = sizes[:, None] * given["topic_term_dists"]
    with np.errstate(divide="raise", invalid="raise"):  # as `_topic_info` does
        np.log(given["topic_term_dists"] / (expected.sum(axis=0) / expected.sum()))
        shares = given["topic_term_dists"] / given["topic_term_dists"].sum(axis=0)
        np.log(shares.T / (sizes / sizes.sum()))
    assert (given["term_frequency"] > 0).all()
    assert all(type(word) is str for word in given["vocab"])


@every_model
@quietly
def test_it_takes_fits_of_all_models(model):
    made = fit(model)
    given = bayesnmf.to_pyldavis(made)
    assert_it_takes(given)
    np.testing.assert_allclose(given["doc_topic_dists"], bayesnmf.to_topic_model(made).proportions, rtol=1e-10)
    np.testing.assert_array_equal(given["doc_lengths"], COUNTS.sum(axis=1))
    np.testing.assert_array_equal(given["term_frequency"], COUNTS.sum(axis=0))
    assert given["vocab"] == list(COUNTS.columns)


@quietly
def test_rows_and_features_without_counts_are_left_out_and_no_share_is_0():
    counts = COUNTS.to_numpy().copy()
    counts[3], counts[:, 5] = 0, 0
    made = bayesnmf.fit(counts, rank=K, method="map", seed=0, options=plain_map(max_iter=20, threads=1))
    components, loadings = made.components.copy(), made.loadings.copy()
    components[0, 1:] = loadings[:, 2] = 0  # one feature alone, and a component that carries nothing
    made = replace(made, components=components, loadings=loadings)
    given = bayesnmf.to_pyldavis(made)
    assert_it_takes(given)
    assert given["vocab"] == [str(j) for j in range(9) if j != 5]
    assert given["doc_topic_dists"].shape == (11, K)


def test_it_is_of_a_fit():
    with pytest.raises(TypeError, match="fit must be a result of"):
        bayesnmf.to_pyldavis("fit")


@quietly
def test_topics_are_numbered_as_components():
    """PyLDAvis sorts topics by their size and counts from 1, unless it is told otherwise."""
    given = bayesnmf.to_pyldavis(fit("gamma_poisson"))
    assert (given["sort_topics"], given["start_index"]) == (False, 0)
