"""The leading component of each row: by lift and by share, with ties and rows without counts."""

from dataclasses import replace

import numpy as np
import pytest
import smallfits

import bayesnmf

pytestmark = smallfits.quietly


def fit_with(shares, counts=None):
    """Return a fit whose rows have these shares (n, 3), by components that sum to 1."""
    shares = np.asarray(shares, float)
    fit = smallfits.fit()
    part = fit.counts.rows(np.arange(len(shares)))
    if counts is not None:
        part = bayesnmf.as_counts(np.asarray(counts, float)[:, None] * np.ones(smallfits.M))
    components = fit.components / fit.components.sum(axis=1, keepdims=True)
    return replace(fit, loadings=50 * shares, components=components, counts=part)


def test_a_component_of_all_rows_does_not_lead_where_others_say_more():
    shares = [[0.6, 0.4, 0.0], [0.6, 0.0, 0.4], [0.6, 0.35, 0.05], [0.9, 0.05, 0.05]]
    table = fit_with(shares).leading_components()
    assert table["component"].tolist() == [1, 2, 1, 0]
    assert fit_with(shares).leading_components("share")["component"].tolist() == [0, 0, 0, 0]
    assert fit_with(shares).leading_components("specific")["component"].tolist() == [1, 2, 1, 1]  # 0 is in all rows
    np.testing.assert_allclose(table["share"], [0.4, 0.4, 0.35, 0.9])
    means = np.mean(shares, axis=0)
    np.testing.assert_allclose(table["lift"], [0.4 / means[1], 0.4 / means[2], 0.35 / means[1], 0.9 / means[0]])
    assert table.index.tolist() == ["s0", "s1", "s2", "s3"]


def test_a_component_that_carries_nothing_does_not_lead_by_a_large_ratio():
    """The ratio is 4 for the last component of the last row, whose share is 4e-6."""
    shares = np.array([[0.5, 0.5, 0], [0.5, 0.5, 0], [0.5, 0.5, 0], [0.45, 0.55, 4e-6]])
    table = fit_with(shares).leading_components()
    assert table["component"].iloc[3] == 1


def test_ties_go_to_the_larger_share_and_then_to_the_first():
    table = fit_with([[0.3, 0.5, 0.2]] * 2).leading_components()  # all rows are the mean row: every term is 0
    assert table["component"].tolist() == [1, 1]
    table = fit_with([[0.5, 0.5, 0.0]] * 2).leading_components()
    assert table["component"].tolist() == [0, 0]
    np.testing.assert_array_equal(table["lift"], 1)


def test_rows_without_counts_have_no_leading_component_and_do_not_count():
    shares = np.array([[0.6, 0.4, 0.0], [0.6, 0.0, 0.4], [0.0, 0.0, 1.0]])
    table = fit_with(shares, counts=[3, 3, 0]).leading_components()
    assert table["component"].isna().tolist() == [False, False, True]
    assert np.isnan(table[["share", "lift"]].to_numpy()[2]).all()
    np.testing.assert_allclose(table["lift"][:2], [2, 2])
    assert table["component"].value_counts(sort=False).tolist() == [0, 1, 1]


def test_names_of_components_are_categories_and_other_orders_are_refused():
    named = smallfits.fit().rename(["a", "b", "c"])
    assert named.leading_components()["component"].cat.categories.tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="order must be one of 'lift', 'specific', 'share'"):
        named.leading_components("weight")


@smallfits.every_model
@smallfits.every_method
def test_every_fit_has_leading_components(model, method):
    fit = smallfits.fit(model, method)
    table, shares = fit.leading_components("share"), bayesnmf.to_topic_model(fit).proportions
    np.testing.assert_array_equal(table["component"].to_numpy(), shares.argmax(axis=1))
    np.testing.assert_allclose(table["share"], shares.max(axis=1))
