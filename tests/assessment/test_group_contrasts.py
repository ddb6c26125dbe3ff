"""Contrasts of loadings between groups of samples."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from plain import even_priors, plain_vi
from realdata import find_data, real_counts
from suites import mostly_long

import bayesnmf
from bayesnmf import MAP
from bayesnmf.assessment.group_contrasts import collect, described, design_of_names
from bayesnmf.inference.alignment import match_components

COLUMNS = [
    "contrast", "component", "lfc", "lfc_low", "lfc_high", "lfsr", "difference", "difference_low", "difference_high",
]  # fmt: skip
LEVELS = np.array([0.05, 0.95])
NAMES = [f"s{i}" for i in range(12)]
GROUPS = ["b"] * 4 + ["a"] * 4 + ["c"] * 4
TOPICS = np.random.default_rng(2).dirichlet(np.full(20, 0.2), 3)
MIXED = np.repeat([[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]], 4, axis=0)
COUNTS = pd.DataFrame(np.random.default_rng(0).poisson(2000 * MIXED @ TOPICS), NAMES)


@pytest.fixture(scope="module")
def fit():
    return bayesnmf.fit(COUNTS, rank=3, seed=0, options=plain_vi(threads=1, priors=even_priors(COUNTS)))


def test_the_default_compares_all_groups_with_the_first(fit):
    table = bayesnmf.group_contrasts(fit, GROUPS)
    assert table.columns.tolist() == COLUMNS
    assert table["contrast"].tolist() == ["a - b"] * 3 + ["c - b"] * 3
    assert table["component"].tolist() == [0, 1, 2] * 2
    shares = least_squares(fit)
    means = np.stack([shares[np.array(GROUPS) == name].mean(axis=0) for name in "abc"])
    np.testing.assert_allclose(table["difference"], np.concatenate([means[0] - means[1], means[2] - means[1]]))
    np.testing.assert_allclose(table["lfc"][:3], np.log2(means[0] / means[1]))
    posterior = bayesnmf.to_topic_model(fit, 4000, chains=1).proportions[0].mean(axis=0)  # a prior of little weight
    np.testing.assert_allclose(shares, posterior, atol=0.05)
    for name in ("difference", "lfc"):
        assert (table[f"{name}_low"] < table[name]).all()
        assert (table[name] < table[f"{name}_high"]).all()
    np.testing.assert_allclose(
        table.groupby("contrast")["difference"].sum(), 0, atol=1e-4
    )  # regressions do not know that shares sum to 1


def least_squares(fit):
    """Return the shares by which one regression per sample on the components explains its relative frequencies."""
    root = np.sqrt(COUNTS.to_numpy().sum(axis=0))
    profiles = fit.components / fit.components.sum(axis=1, keepdims=True)
    frequencies = COUNTS.to_numpy() / COUNTS.to_numpy().sum(axis=1, keepdims=True)
    return np.linalg.lstsq((profiles / root).T, (frequencies / root).T, rcond=None)[0].T


without_some = pytest.mark.filterwarnings("ignore:groups are missing values:bayesnmf.DataWarning")


@without_some
def test_groups_are_matched_by_name_and_missing_ones_left_out(fit):
    kept = [None if name == "c" else name for name in GROUPS]
    with pytest.warns(bayesnmf.DataWarning, match="4 of 12 rows, which are left out"):
        wanted = bayesnmf.group_contrasts(fit, kept)
    assert wanted["contrast"].unique().tolist() == ["a - b"]
    named = pd.Series(kept, NAMES)
    for given in (named.sample(frac=1, random_state=0), named.to_dict(), np.array(kept, dtype=object)):
        np.testing.assert_allclose(bayesnmf.group_contrasts(fit, given)["difference"], wanted["difference"], rtol=1e-12)
    nan = pd.Series(pd.Categorical(kept, categories=["a", "b"]), NAMES)
    reordered = bayesnmf.group_contrasts(fit, nan)
    assert reordered["contrast"].unique().tolist() == ["b - a"]
    np.testing.assert_allclose(reordered["difference"], -wanted["difference"], rtol=1e-12)


def test_shares_of_samples_that_components_do_not_describe_are_told(fit):
    known = [[0.5, 0.3, 0.2], [0.4, 0.3, 0.3]]
    other = np.random.default_rng(0).poisson(2000 * np.repeat([[0.8, 0.1, 0.1], [0.1, 0.3, 0.6]], 4, axis=0))
    found = bayesnmf.fit(other, rank=2, fixed_components=known, seed=0, options=plain_vi(threads=1))
    groups = list("aaaabbbb")
    with pytest.warns(bayesnmf.DataWarning, match=r"leave \[0, 1\] in 4 of 4 pairs .* \(4.01 of component 1 in"):
        table = bayesnmf.group_contrasts(found, groups, draws=20)
    assert table["difference"].abs().max() == 1
    assert table[["difference_low", "difference_high"]].abs().max(axis=None) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error", bayesnmf.DataWarning)
        bayesnmf.group_contrasts(found, groups, population=False, draws=20)
        bayesnmf.group_contrasts(fit, GROUPS, draws=20)


@pytest.mark.parametrize(
    "numbers", [np.linspace(0, 1, 12), [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, -7], [*"0123456789", 1e9, 11]]
)
def test_a_covariate_of_numbers_is_refused_with_the_cure(fit, numbers):
    with pytest.raises(ValueError, match=r"found \d+ different numbers, .*; cut .* as with pandas.qcut"):
        bayesnmf.group_contrasts(fit, numbers)


def test_contrasts_are_weighted_sums(fit):
    given = {"half": {"a": 0.5, "c": 0.5, "b": -1}, "one": {"c": 1, "a": -1}}
    table = bayesnmf.group_contrasts(fit, GROUPS, given).set_index(["contrast", "component"])
    plain = bayesnmf.group_contrasts(fit, GROUPS).set_index(["contrast", "component"])
    for name in ("difference", "lfc"):
        a, c = plain.loc["a - b", name], plain.loc["c - b", name]
        np.testing.assert_allclose(table.loc["half", name], (a + c) / 2, rtol=1e-10)
        np.testing.assert_allclose(table.loc["one", name], c - a, rtol=1e-10)


def test_factors_have_main_effects_and_interactions():
    groups_of = {"p": ["no", "no", "yes", "yes"], "q": ["0", "1", "0", "1"]}
    frame = pd.DataFrame({name: np.repeat(levels, [2, 3, 4, 2]) for name, levels in groups_of.items()})
    frame = frame.iloc[::-1].reset_index(drop=True)  # the order of appearance has no part in it
    design = design_of_names(frame, None, np.arange(11))
    assert design.groups == ["p=no, q=0", "p=no, q=1", "p=yes, q=0", "p=yes, q=1"]
    assert [len(rows) for rows in design.members] == [2, 3, 4, 2]
    means = np.array([1.0, 3.0, 4.0, 11.0])
    found = {name: weights @ means for name, weights in design.contrasts.items()}
    assert found == {"p": 7.5 - 2.0, "q": 7.0 - 2.5, "p:q": (11 - 3) - (4 - 1)}
    three = design_of_names(
        pd.DataFrame(np.array(np.meshgrid(*[[0, 1]] * 3)).reshape(3, -1).T, columns=[*"xyz"]), None, range(8)
    )
    assert list(three.contrasts) == ["x", "y", "z", "x:y", "x:z", "y:z"]
    values = np.array(
        [sum(2.0**place * int(part[-1]) for place, part in enumerate(name.split(", "))) for name in three.groups]
    )
    assert [weights @ values for weights in three.contrasts.values()] == [1, 2, 4, 0, 0, 0]
    product = np.array([int(name[2]) * int(name[7]) for name in three.groups])  # an interaction of x and y
    assert [weights @ product for weights in three.contrasts.values()] == [0.5, 0.5, 0, 1, 0, 0]


AT_ONCE = 200


def given_shares(rng, sizes, spread, noise, shared):
    """Posterior draws of shares in samples of two groups, of many simulations at once in place of components.

    True means of the groups are 0.4 and 0.5. The posterior mean of a sample is off by `noise`, and those of the second
    group by one number of sd `shared`.
    """
    means, second = (np.repeat(pair, sizes)[:, None] for pair in ([0.4, 0.5], [0.0, 1.0]))
    size = (len(means), AT_ONCE)
    found = means + rng.normal(0, spread, size) + rng.normal(0, noise, size)
    found += shared * rng.normal(size=AT_ONCE) * second
    return found + rng.normal(0, noise, (400, *size)) + shared * rng.normal(size=(400, 1, AT_ONCE)) * second


@pytest.mark.parametrize(
    ("sizes", "spread", "noise", "shared", "least", "most"),
    mostly_long(
        [
            ((3, 3), 0.02, 0.0, 0.0, 0.88, 0.98),  # two unknown variances from three samples each: conservative
            ((5, 5), 0.02, 0.0, 0.0, 0.86, 0.95),
            ((10, 10), 0.02, 0.0, 0.0, 0.86, 0.94),
            ((10, 10), 0.0, 0.02, 0.0, 0.86, 0.94),  # with the noise of draws in s_g, too: 0.997
            ((10, 10), 0.01, 0.01, 0.01, 0.86, 0.94),  # without what samples share: 0.65 and 0.71
        ],
        [0, 4],
    ),
)
def test_intervals_contain_the_truth_as_often_as_they_say(sizes, spread, noise, shared, least, most):
    """400 simulations: a standard error of 1.5 %. Three samples a group: 0.97, five: 0.93, ten: 0.89 to 0.93."""
    rng, inside = np.random.default_rng(5), []
    design = design_of_names(np.repeat(["a", "b"], sizes), None, np.arange(sum(sizes)))
    for _ in range(2):
        shares = collect(given_shares(rng, sizes, spread, noise, shared), design.members)
        found = described(shares, design, design.contrasts["b - a"], LEVELS, rng)
        inside.append((found["difference_low"] <= 0.1) & (found["difference_high"] >= 0.1))
        inside.append((found["lfc_low"] <= np.log2(0.5 / 0.4)) & (np.log2(0.5 / 0.4) <= found["lfc_high"]))
    of_differences, of_logarithms = np.reshape(inside, (-1, 2, AT_ONCE)).mean(axis=(0, 2))
    assert least < of_differences < most
    assert least < of_logarithms < most


def test_these_samples_alone_have_the_uncertainty_of_their_shares(fit):
    table = bayesnmf.group_contrasts(fit, GROUPS, population=False, draws=2000)
    drawn = bayesnmf.to_topic_model(fit, 2000, chains=1, seed=7).proportions[0]
    means = {name: drawn[:, np.array(GROUPS) == name].mean(axis=1) for name in "abc"}
    low, high = np.quantile(means["a"] - means["b"], LEVELS, axis=0)
    np.testing.assert_allclose(table["difference_low"][:3], low, atol=0.1 * (high - low).max())
    np.testing.assert_allclose(table["difference_high"][:3], high, atol=0.1 * (high - low).max())
    low, high = np.quantile(np.log2(means["a"] / means["b"]), LEVELS, axis=0)
    np.testing.assert_allclose(table["lfc_low"][:3], low, atol=0.1 * (high - low).max())
    wider = bayesnmf.group_contrasts(fit, GROUPS, population=False, interval=0.99)
    assert (wider["lfc_high"] - wider["lfc_low"] > table["lfc_high"] - table["lfc_low"]).all()


def test_single_samples_can_be_compared_alone(fit):
    groups = ["x"] + ["y"] * 11
    with pytest.raises(ValueError, match=r"at least two samples each.*found 1 in 'x'; give population=False"):
        bayesnmf.group_contrasts(fit, groups)
    assert np.isfinite(bayesnmf.group_contrasts(fit, groups, population=False).iloc[:, 2:]).all(axis=None)
    unused = ["x"] + ["y"] * 5 + ["z"] * 6
    assert len(bayesnmf.group_contrasts(fit, unused, {"z - y": {"z": 1, "y": -1}})) == 3


def test_points_have_intervals_of_the_population_only():
    point = bayesnmf.fit(COUNTS, rank=3, method="map", seed=0, options=MAP(start="svd", threads=1))
    with_samples = bayesnmf.group_contrasts(point, GROUPS)
    assert np.isfinite(with_samples.iloc[:, 2:]).all(axis=None)
    shares = least_squares(point)
    errors = [shares[np.array(GROUPS) == name].std(axis=0, ddof=1) / 2 for name in "ab"]
    students = np.random.default_rng(9).standard_t(3, (2, 200_000, 1))
    wanted = np.quantile(errors[0] * students[0] - errors[1] * students[1], LEVELS, axis=0)
    found = with_samples[["difference_low", "difference_high"]][:3].T - with_samples["difference"][:3]
    np.testing.assert_allclose(found, wanted, rtol=0.06)  # 20,000 values: a standard error of 1.5 %
    alone = bayesnmf.group_contrasts(point, GROUPS, population=False)
    assert alone[["difference_low", "lfc_high", "lfsr"]].isna().all(axis=None)
    posterior = bayesnmf.to_topic_model(point).proportions
    means = [posterior[np.array(GROUPS) == name].mean(axis=0) for name in "ab"]
    np.testing.assert_allclose(alone["difference"][:3], means[0] - means[1])


def test_groups_of_other_depth_do_not_differ():
    """6 simulations, standard error 0.007: most intervals contain 0. By posterior means, 0.06, -0.03 and -0.02."""
    found, posterior, inside = [], [], []
    groups = np.repeat(["few", "many"], 100)
    for seed in range(6):
        rng = np.random.default_rng(seed)
        components, shares = rng.dirichlet(np.full(30, 0.3), 3), rng.dirichlet([8.0, 1.0, 1.0], 200)
        counts = rng.poisson(np.where(groups == "few", 40, 4000)[:, None] * shares @ components)
        options = plain_vi(threads=1, tol=1e-6, priors=even_priors(counts))
        fit = bayesnmf.fit(counts, rank=3, fixed_components=components, seed=0, options=options)
        table = bayesnmf.group_contrasts(fit, groups)
        found.append(table["difference"])
        posterior.append(bayesnmf.group_contrasts(fit, groups, population=False, draws=50)["difference"])
        inside += [(table[f"{name}_low"] < 0) & (table[f"{name}_high"] > 0) for name in ("difference", "lfc")]
    assert np.abs(np.mean(found, axis=0)).max() < 0.012
    assert np.abs(np.mean(posterior, axis=0)).max() > 0.04
    assert np.mean(inside) > 0.85


@without_some
def test_samples_without_counts_are_left_out():
    counts = COUNTS.copy()
    counts.iloc[[0, 5]] = 0
    fit = bayesnmf.fit(counts, rank=3, seed=0, options=plain_vi(threads=1, tol=1e-5))
    for population in (True, False):
        table = bayesnmf.group_contrasts(fit, GROUPS, population=population, draws=100)
        without = [None if place in (0, 5) else name for place, name in enumerate(GROUPS)]
        pd.testing.assert_frame_equal(table, bayesnmf.group_contrasts(fit, without, population=population, draws=100))
        assert np.isfinite(table.iloc[:, 2:]).all(axis=None)


def test_names_of_components_are_those_of_the_fit(fit):
    named = fit.rename(["x", "y", "z"])
    assert bayesnmf.group_contrasts(named, GROUPS)["component"].tolist() == ["x", "y", "z"] * 2


@pytest.mark.parametrize(
    ("error", "message", "settings"),
    [
        (TypeError, "fit must be a result", {"fit": 3}),
        (TypeError, "groups must be a list", {"groups": 3}),
        (ValueError, "one entry for each of 12 rows", {"groups": ["a", "b"]}),
        (ValueError, "groups must be at least two", {"groups": ["a"] * 12}),
        (ValueError, "contrasts must have finite weights that sum to 0", {"contrasts": {"x": {"a": 1, "b": 1}}}),
        (ValueError, "are not all 0", {"contrasts": {"x": {"a": 0, "b": 0}}}),
        (ValueError, "a group of 'x' must be one of 'b', 'a', 'c'", {"contrasts": {"x": {"a": 1, "d": -1}}}),
        (TypeError, "contrasts must map names to weights", {"contrasts": ["a"]}),
        (TypeError, "contrasts must be a number", {"contrasts": {"x": {"a": "1", "b": -1}}}),
        (TypeError, "population must be True or False", {"population": 1}),
        (ValueError, "interval must be below 1", {"interval": 90}),
        (ValueError, "draws must be at least 1", {"draws": 0}),
        (ValueError, "factors of two levels", {"groups": pd.DataFrame({"p": GROUPS}, NAMES)}),
        (
            ValueError,
            "found none with p=x, q=v",
            {"groups": pd.DataFrame({"p": ["x"] * 6 + ["y"] * 6, "q": ["u"] * 8 + ["v"] * 4}, NAMES)},
        ),
        (
            ValueError,
            "contrasts must be left out",
            {"groups": pd.DataFrame({"p": ["x", "y"] * 6}, NAMES), "contrasts": {"x": {}}},
        ),
        (ValueError, "columns of different names, at least one", {"groups": pd.DataFrame(index=NAMES)}),
    ],
)
def test_bad_arguments_are_refused(fit, error, message, settings):
    with pytest.raises(error, match=message):
        bayesnmf.group_contrasts(**{"fit": fit, "groups": GROUPS, **settings})


def of_simulation(samples, seed):
    """Return what intervals contain the difference of two populations: (components, of the population or not)."""
    rng = np.random.default_rng(seed)
    components, populations = rng.dirichlet(np.full(200, 0.1), 3), np.array([[0.5, 0.3, 0.2], [0.3, 0.4, 0.3]])
    shares = [*(rng.dirichlet(30 * each, samples) for each in populations), rng.dirichlet(np.full(3, 0.3), 40)]
    totals = 10_000 * rng.lognormal(0, 0.3, (2 * samples + 40, 1))
    counts = rng.poisson(totals * np.concatenate(shares) @ components)
    fit = bayesnmf.fit(counts, rank=3, seed=seed, options=plain_vi(start="svd", threads=1))
    order = match_components(fit.components, components)
    groups = [*["a"] * samples, *["b"] * samples, *[None] * 40]  # rows that determine the components
    truth, found = populations[1] - populations[0], []
    for population in (True, False):
        table = bayesnmf.group_contrasts(fit, groups, population=population).iloc[order]
        found.append((table["difference_low"] <= truth) & (truth <= table["difference_high"]))
    return np.array(found)


@without_some
@pytest.mark.long
def test_differences_of_simulated_populations_are_in_their_intervals():
    """Of five samples each, in 94 % of simulations.

    Intervals of the samples alone contain the truth in 4 to 8 %, so a variation between samples that is left out or far
    too small would be found; so would shares of other components than the true ones.
    """
    of_population, of_samples = np.mean([of_simulation(5, seed) for seed in range(20)], axis=(0, 2))
    assert of_population > 0.85
    assert of_samples < 0.2


@pytest.mark.long
def test_components_that_answer_treatments_of_cells_are_found():
    """36 samples of MCF-7 cells: retinoic acid and TGFb raise one component each, and not that of the other."""
    counts, path = real_counts("mcf7"), find_data("mcf7")
    described_rows = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    rows = pd.DataFrame(described_rows["row_meta"], counts.row_names)
    rows = rows[~rows["treatment"].str.contains("technicalrep")]  # of samples that are there already
    chosen = counts.matrix[np.isin(counts.row_names, rows.index)]
    fit = bayesnmf.fit(chosen, rank=3, seed=0, row_names=list(rows.index))
    table = bayesnmf.group_contrasts(fit, rows[["RA", "TGFb"]])
    assert table["contrast"].unique().tolist() == ["RA", "TGFb", "RA:TGFb"]
    acid, growth = (table[table["contrast"] == name].set_index("component") for name in ("RA", "TGFb"))
    of_acid, of_growth = acid["difference"].idxmax(), growth["difference"].idxmax()
    assert of_acid != of_growth
    assert acid.loc[of_acid, "difference_low"] > 0.4
    assert growth.loc[of_growth, "difference_low"] > 0.3
    assert max(acid.loc[of_acid, "lfsr"], growth.loc[of_growth, "lfsr"]) < 0.001
    assert min(acid.loc[of_growth, "lfsr"], growth.loc[of_acid, "lfsr"]) > 0.05
