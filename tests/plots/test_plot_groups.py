"""The heat map of groups shows mean shares, with components by group."""

from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

mpl.use("Agg")

import matplotlib.pyplot as plt

import bayesnmf
from bayesnmf import plots

ROWS, RANK = 9, 3


@pytest.fixture(scope="module")
def fit():
    """Each third of the samples is of one component, the middle one of the component with number 0."""
    pure = np.kron(np.eye(RANK)[[1, 0, 2]], np.ones((ROWS // RANK, 1)))
    made = bayesnmf.fit(np.ones((ROWS, 6)), "poisson", RANK, "map", seed=0, options=bayesnmf.MAP(max_iter=1, tol=0))
    return replace(made, loadings=100 * (0.9 * pure + 0.05), components=np.full((RANK, 6), 1 / 6))


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def groups():
    return np.repeat(["b", "a", "c"], ROWS // RANK)


def test_fields_are_mean_shares_with_the_components_on_the_diagonal(fit):
    ax = plots.group_shares(fit, groups())
    expected = 100 * (0.9 * np.eye(RANK) + 0.05) / 1.05
    np.testing.assert_allclose(ax.images[0].get_array(), expected)
    assert [text.get_text() for text in ax.get_xticklabels()] == ["1", "0", "2"]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["b (3)", "a (3)", "c (3)"]
    assert [text.get_text() for text in ax.texts] == ["90", "90", "90"]  # others are below 5 %


def test_groups_have_the_order_of_a_categorical_and_any_number_of_samples(fit):
    uneven = pd.Categorical(["b"] * 4 + ["a"] * 5, ["a", "b", "none"])
    ax = plots.group_shares(fit, uneven)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["a (5)", "b (4)"]
    shares = bayesnmf.to_topic_model(fit).proportions
    by_component = ax.images[0].get_array()[:, np.argsort([int(t.get_text()) for t in ax.get_xticklabels()])]
    np.testing.assert_allclose(by_component, 100 * np.array([shares[4:].mean(axis=0), shares[:4].mean(axis=0)]))


def test_only_leading_components_are_shown_on_request(fit):
    ax = plots.group_shares(fit, groups(), n=2)
    assert len(ax.get_xticklabels()) == 2
    assert ax.get_xlabel() == "component (the leading 2 of 3)"


def test_names_of_components_are_written(fit):
    ax = plots.group_shares(fit.rename(["x", "y", "z"]), groups())
    assert [text.get_text() for text in ax.get_xticklabels()] == ["y", "x", "z"]
    _, given = plt.subplots()
    assert plots.group_shares(fit, groups(), axes=given) is given
    with pytest.raises(TypeError, match="fit must be a result"):
        plots.group_shares(fit.loadings, groups())
