"""Shares of components in rows, with intervals, and the rows that show a component best."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from plain import plain_map, plain_vi
from smallfits import COUNTS, K, N, every_model, fit, parameter_fit

import bayesnmf
from bayesnmf.results import shares as module

pytestmark = pytest.mark.filterwarnings("ignore::bayesnmf.inference.status.ConvergenceWarning")
NAMES = ["one", "two", "three"]


def unstacked(table, column):
    return table[column].to_numpy().reshape(-1, K)


@pytest.mark.parametrize("model", ["gamma_poisson", "dirichlet_poisson", "dirichlet_gamma"])
def test_of_chains_they_are_quantiles_of_the_draws(model):
    made = fit(model, "gibbs")
    drawn = bayesnmf.to_topic_model(made, draws=60).proportions.reshape(-1, N, K)
    table = made.shares(interval=0.8)
    np.testing.assert_allclose(unstacked(table, "share"), drawn.mean(axis=0), rtol=1e-12)
    for name, level in (("low", 0.1), ("high", 0.9)):
        np.testing.assert_allclose(unstacked(table, name), np.quantile(drawn, level, axis=0), rtol=1e-12)
    assert table.attrs == {"intervals": "intervals: draws of the posterior", "cautions": []}


@every_model
def test_under_a_mean_field_they_are_those_of_draws_from_q(model):
    """Limits are 5 standard errors of 400 draws: faults of half a standard deviation are seen."""
    made = fit(model)
    drawn = bayesnmf.to_topic_model(made, draws=1000).proportions.reshape(-1, N, K)
    table = made.shares()
    spread = drawn.std(axis=0)
    for name, expected, most in (
        ("share", drawn.mean(axis=0), 0.25),
        ("low", np.quantile(drawn, 0.05, axis=0), 0.5),
        ("high", np.quantile(drawn, 0.95, axis=0), 0.5),
    ):
        assert np.max(np.abs(unstacked(table, name) - expected) / spread) < most
    assert "too narrow" in table.attrs["intervals"]
    assert table.attrs["cautions"] == [table.attrs["intervals"]]


def test_sums_of_gamma_components_have_their_mean_and_variance():
    """With exposures of features; 10 % of the standard deviation is 3.3 standard errors of the mean of 1,000 draws."""
    options = plain_vi(max_iter=60, threads=1, priors=bayesnmf.Priors(components=bayesnmf.Gamma(1.0, 1.0)))
    made = bayesnmf.fit(COUNTS, rank=K, seed=0, options=options, feature_exposure=np.linspace(0.1, 3, 9))
    drawn = bayesnmf.to_topic_model(made, draws=1000).sums.reshape(-1, K)
    found = module._drawn_sums(made, 1000)
    assert np.max(np.abs(found.mean(axis=0) - drawn.mean(axis=0)) / drawn.std(axis=0)) < 0.1
    np.testing.assert_allclose(found.std(axis=0), drawn.std(axis=0), rtol=0.1)


def test_a_row_has_the_same_numbers_whatever_rows_are_asked_for(monkeypatch):
    made = fit()
    whole = made.shares()
    monkeypatch.setattr(module, "BLOCK", 1)  # a row at a time
    pd.testing.assert_frame_equal(made.shares(rows=["s7", "s2"]), whole.loc[["s7", "s2"]])


def test_a_point_has_the_shares_of_its_topic_model_and_no_limits():
    made = fit(method="map")
    table = made.rename(NAMES).shares()
    np.testing.assert_allclose(unstacked(table, "share"), bayesnmf.to_topic_model(made).proportions, rtol=1e-12)
    assert table[["low", "high"]].isna().all(axis=None)
    assert table.index[:4].tolist() == [("s0", "one"), ("s0", "two"), ("s0", "three"), ("s1", "one")]
    assert table.attrs == {"intervals": "", "cautions": []}


def test_draws_beside_q_are_read():
    made = fit().with_intervals("sampled", draws=40, warmup=20)
    drawn = made.intervals.draws
    expected = drawn.loadings[0].astype(float) * drawn.components[0].sum(axis=-1, dtype=float)[:, None]
    expected /= expected.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(unstacked(made.shares(), "low"), np.quantile(expected, 0.05, axis=0), rtol=1e-5)
    assert "sampled" in made.top_rows().attrs["intervals"]


def test_components_that_are_parameters_or_known():
    assert np.isfinite(parameter_fit().shares()).all(axis=None)
    known = np.random.default_rng(0).dirichlet(np.ones(9), K)
    held = bayesnmf.fit(COUNTS, rank=K, seed=0, fixed_components=known, options=plain_vi(max_iter=20, threads=1))
    table = held.shares()
    assert (table["low"] < table["share"]).all()


PURE = np.zeros((8, 6), int)
PURE[:4, :3] = [[1, 1, 0], [300, 290, 310], [30, 40, 35], [0, 0, 0]]  # of one component: two counts, many, some, none
PURE[1, 3] = 4
PURE[4:, 3:] = [[200, 210, 190], [2, 0, 1], [50, 40, 60], [90, 80, 70]]


@pytest.mark.parametrize("options", [plain_vi(max_iter=300), plain_map(max_iter=300)], ids=["vi", "map"])
def test_rows_with_few_counts_do_not_lead(options):
    made = bayesnmf.fit(PURE, rank=2, seed=0, method=type(options).__name__.lower(), options=options)
    table = made.top_rows()
    first = table["component"].iloc[table["row"].tolist().index(1)]
    of_first = table[table["component"] == first]
    assert of_first["row"].iloc[:2].tolist() == [1, 2]
    assert of_first["row"].iloc[-1] == 3  # without counts
    assert of_first["row"].tolist().index(0) == 2
    assert sorted(of_first["row"]) == list(range(8))
    assert of_first["counts"].iloc[0] == 904


def test_the_table_of_leading_rows_has_the_shares_of_the_others():
    made = fit().rename(NAMES)
    table, whole = made.top_rows(4, 0.5), made.shares(interval=0.5)
    assert list(table.columns) == ["component", "row", "share", "low", "high", "counts"]
    assert len(table) == 4 * K
    for line in table.itertuples():
        assert tuple(whole.loc[(line.row, line.component)]) == (line.share, line.low, line.high)
        assert line.counts == COUNTS.loc[line.row].sum()
    for name, part in table.groupby("component"):
        assert part["low"].is_monotonic_decreasing
        assert part["low"].iloc[-1] >= np.sort(whole.xs(name, level="component")["low"])[-4]


def test_a_single_component_goes_by_counts():
    made = bayesnmf.fit(COUNTS, rank=1, seed=0, options=plain_vi(max_iter=5))
    assert made.top_rows(3)["counts"].tolist() == sorted(COUNTS.sum(axis=1), reverse=True)[:3]


def test_rows_of_counts_without_any_have_even_shares():
    made = replace(fit(method="map"), loadings=np.zeros((N, K)))
    np.testing.assert_array_equal(made.shares()["share"], 1 / K)


@pytest.mark.parametrize("call", [lambda made: made.top_rows(interval=1), lambda made: made.shares(interval=1)])
def test_an_interval_is_below_1(call):
    with pytest.raises(ValueError, match="interval must be below 1"):
        call(fit())
