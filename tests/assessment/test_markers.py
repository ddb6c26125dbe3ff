"""What sets components apart."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from plain import even_priors, plain_map, plain_vi
from realdata import find_data, real_counts

import bayesnmf
from bayesnmf import MAP, VI, Dirichlet, Gamma, Gibbs, Priors
from bayesnmf.assessment import markers as of_response
from bayesnmf.inference.alignment import match_components
from bayesnmf.pages.of_components import components
from bayesnmf.pages.reading import Given, read
from bayesnmf.results import markers as module
from bayesnmf.results.intervals import source_of_intervals
from bayesnmf.results.markers import contrasts, order_by_share

DRAWN = bayesnmf.simulate(size=(60, 8), rank=3, priors=Priors(Gamma(1.0, 0.02), Dirichlet(0.4)), seed=2)
COLUMNS = [
    "component", "feature", "share", "lift", "lfc_rest", "lfc_rest_low", "lfc_rest_high", "lfsr_rest",
    "lfsr_next", "lfc_next", "lfc_next_low", "lfc_next_high",
]  # fmt: skip


GAMMA = Priors(components=Gamma(1.0, 1.0))
OPTIONS = {
    "map": MAP(start="svd", threads=1),
    "vi": plain_vi(threads=1),
    "vi, gammas": plain_vi(threads=1, priors=GAMMA),
    "gibbs": Gibbs(start="random", chains=2, draws=300, warmup=100, threads=1),
}


@cache
def fitted(kind="vi"):
    return bayesnmf.fit(DRAWN.counts, rank=3, method=kind.split(",")[0], seed=0, options=OPTIONS[kind])


@cache
def response_to(seed):
    """Return the linear response of a posterior that is well determined."""
    counts = determined(seed)
    options = plain_vi(threads=1, priors=even_priors(counts))
    return bayesnmf.linear_response(bayesnmf.fit(counts, rank=3, seed=0, options=options))


def test_contrasts_are_those_with_the_next_best_and_with_the_rest():
    shares, sizes = np.array([[0.5, 0.3, 0.2], [0.25, 0.6, 0.15], [0.1, 0.1, 0.8]]), np.array([10.0, 30.0, 60.0])
    found = contrasts(shares, sizes)
    for k in range(3):
        others = [each for each in range(3) if each != k]
        following = shares[others].max(axis=0)
        rest = sizes[others] @ shares[others] / sizes[others].sum()
        np.testing.assert_allclose(found["next"][k], np.log2(shares[k] / following), rtol=1e-12)
        np.testing.assert_allclose(found["rest"][k], np.log2(shares[k] / rest), rtol=1e-12)
    tied = contrasts(np.array([[0.5, 0.5], [0.5, 0.5]]), np.zeros(2))
    np.testing.assert_array_equal(tied["next"], 0.0)
    assert np.isfinite(contrasts(np.array([[1.0, 0.0], [0.0, 1.0]]), np.ones(2))["next"]).all()


@pytest.mark.parametrize("against", ["next", "rest"])
def test_a_terminal_of_80_columns_shows_the_interval(against):
    with pd.option_context("display.width", 80):
        shown = repr(bayesnmf.markers(fitted("vi, gammas"), 3, against=against).head()).split()
    assert {"feature", "share", f"lfc_{against}_low", f"lfc_{against}_high"} < set(shown)


@pytest.mark.filterwarnings("ignore:gibbs did not converge:bayesnmf.ConvergenceWarning")  # few draws are enough here
@pytest.mark.parametrize("kind", ["vi, gammas", "gibbs"])
def test_the_table_describes_the_posterior(kind):
    fit = fitted(kind)
    table = bayesnmf.markers(fit, None, draws=600, seed=1)
    assert table.columns.tolist() == COLUMNS
    assert len(table) == 24
    drawn = fit.posterior if kind == "gibbs" else fit.sample_posterior(4000, chains=1, seed=5)
    components = drawn.components.reshape(-1, 3, 8)
    shares = components / components.sum(axis=2, keepdims=True)
    sizes = fit.expected_loadings.sum(axis=0) * fit.exposed_components.sum(axis=1)
    wanted = {name: np.stack(values) for name, values in
              {each: [contrasts(one, sizes)[each] for one in shares] for each in ("next", "rest")}.items()}  # fmt: skip
    frequencies = fit.counts.feature_totals / fit.counts.total
    for line in table.itertuples():
        at = line.component, int(np.flatnonzero(fit.feature_names == line.feature)[0])
        assert line.share == pytest.approx(shares[:, *at].mean(), rel=0.05, abs=2e-4)
        assert line.lift == pytest.approx(line.share / frequencies[at[1]], rel=1e-12)
        for name, draws in wanted.items():
            one = draws[:, *at]
            low, middle, high = np.quantile(one, [0.05, 0.5, 0.95])
            spread = high - low  # 600 draws: quantiles have errors of 2 to 4 % of it, and rates of at most 2 %
            assert getattr(line, f"lfc_{name}") == pytest.approx(middle, abs=0.15 * spread)
            assert getattr(line, f"lfc_{name}_low") == pytest.approx(low, abs=0.25 * spread)
            assert getattr(line, f"lfc_{name}_high") == pytest.approx(high, abs=0.25 * spread)
            rate = min((one >= 0).mean(), (one <= 0).mean())
            assert getattr(line, f"lfsr_{name}") == pytest.approx(rate, abs=0.1)


def test_the_surest_features_come_first():
    for against in ("next", "rest"):
        table = bayesnmf.markers(fitted(), 4, against=against)
        whole = bayesnmf.markers(fitted(), None, against=against)
        for component, part in table.groupby("component"):
            low = part[f"lfc_{against}_low"].to_numpy()
            assert np.all(np.diff(low) <= 0)
            assert low[0] == whole.loc[whole["component"] == component, f"lfc_{against}_low"].max()
            assert len(part) == 4


def test_blocks_of_features_give_the_same_table(monkeypatch):
    whole = bayesnmf.markers(fitted(), None, draws=50)
    monkeypatch.setattr(module, "LARGEST", 8 * 50 * 3 * 3)  # three features at once
    np.testing.assert_array_equal(bayesnmf.markers(fitted(), None, draws=50).to_numpy(), whole.to_numpy())


def test_points_have_no_intervals_and_absent_features_no_lift():
    point = bayesnmf.markers(fitted("map"), None)
    assert point[["lfc_next_low", "lfc_rest_high", "lfsr_next"]].isna().all(axis=None)
    assert np.isfinite(point["lfc_next"]).all()
    assert np.all(point.groupby("component")["lfc_next"].diff().dropna() <= 0)
    counts = DRAWN.counts.matrix.toarray()
    counts[:, 3] = 0
    table = bayesnmf.markers(bayesnmf.fit(counts, rank=2, seed=0, options=VI(start="svd", threads=1)), None)
    assert table.loc[table["feature"] == 3, "lift"].isna().all()


@pytest.mark.parametrize("prior", [Dirichlet(0.1), Gamma(0.1, 1.0)])
def test_a_few_counts_of_a_rare_feature_are_no_marker_of_a_sparse_prior(prior):
    """One component has all six counts of the last feature, but other components have few counts of anything."""
    fit = bayesnmf.fit(DRAWN.counts, rank=3, seed=0, options=plain_vi(threads=1, priors=Priors(components=prior)))
    name = "concentration" if isinstance(prior, Dirichlet) else "shape"
    total = np.full((3, 8), 30.0)
    total[:, -1], total[0] = [6, 0, 0], [3000, 3000, 3000, 3000, 3000, 3000, 3000, 6]

    def described_with(shape):
        given = {**prior.parameters, name: shape}
        components = type(prior)(**{**given, name: shape + total})
        estimate = replace(fit.estimate, components=components)
        priors = replace(fit.priors, components=type(prior)(**given))
        return module.described(replace(fit, estimate=estimate, priors=priors), 400, 0)

    sparse, even, wide = described_with(0.1), described_with(1.0), described_with(2.0)
    for column in ("lfc_next", "lfc_next_low", "lfc_next_high", "lfsr_next"):
        np.testing.assert_array_equal(sparse[column], even[column])
    assert even["lfc_next_low"][0, -1] < 0 < wide["lfc_next_high"][0, 0]
    mean = 0.1 + total
    np.testing.assert_allclose(sparse["share"], mean / mean.sum(axis=1, keepdims=True), rtol=1e-9)


def test_true_markers_are_found():
    topics = np.kron(np.eye(3), np.full(4, 0.2)) + 0.2 / 12
    rng = np.random.default_rng(0)
    counts = rng.poisson(rng.gamma(0.5, 100, (150, 3)) @ topics)
    fit = bayesnmf.fit(counts, rank=3, seed=0, options=plain_vi(start="svd", threads=1))
    table = bayesnmf.markers(fit, 4)
    groups = [set(part["feature"] // 4) for _, part in table.groupby("component")]
    assert sorted(map(tuple, groups)) == [(0,), (1,), (2,)]
    assert table["lfsr_next"].max() == 0
    everything = bayesnmf.markers(fit, None)
    assert everything.groupby("component")["lfsr_next"].apply(lambda rates: (rates < 0.01).sum()).min() >= 4


@pytest.mark.parametrize("order", ["distinct", "share", "lift", "next", "rest"])
def test_top_features_are_in_the_order_of_the_table(order):
    fit = fitted()
    found = fit.top_features(3, order)
    assert found.columns.tolist() == fit.component_titles
    if order in ("next", "rest"):
        wanted = bayesnmf.markers(fit, 3, against=order)["feature"].to_numpy().reshape(3, 3).T
    else:
        shares = fit.components
        score = shares if order == "share" else shares * np.log(shares / shares.mean(axis=0))
        if order == "distinct":
            rest = [np.average(np.delete(shares, k, 0), 0, np.delete(fit.expected_sizes, k)) for k in range(3)]
            score = np.sqrt(shares) - np.sqrt(rest)
        wanted = np.argsort(-score, axis=1)[:, :3].T
    np.testing.assert_array_equal(found.to_numpy(), wanted)


def test_orders_differ_and_others_are_refused():
    fit = fitted()
    assert not fit.top_features(3, "next").equals(fit.top_features(3, "share"))
    assert fit.top_features(3).equals(fit.top_features(3, "distinct"))
    assert not fit.top_features(3).equals(fit.top_features(3, "share"))
    with pytest.raises(ValueError, match="order must be one of 'distinct', 'share', 'lift', 'next', 'rest'"):
        fit.top_features(3, "weight")
    single = bayesnmf.fit(DRAWN.counts, rank=1, seed=0, options=OPTIONS["vi"])
    with pytest.raises(ValueError, match="at least two components"):
        single.top_features(3, "next")
    assert single.top_features(3).equals(single.top_features(3, "share"))


@pytest.mark.parametrize("order", ["distinct", "lift"])
def test_features_are_in_the_order_of_shares_where_nothing_sets_them_apart(order):
    one, sizes = np.array([[0.2, 0.5, 0.3, 0.0]]), np.array([40.0, 60.0])
    np.testing.assert_array_equal(order_by_share(one, order, sizes[:1]), [[1, 2, 0, 3]])
    apart = np.array([[0.6, 0.4, 0.0, 0.0], [0.6, 0.0, 0.4, 0.0]])  # a feature that nobody has is no one's
    np.testing.assert_array_equal(order_by_share(apart, order, sizes)[:, 0], [1, 2])
    np.testing.assert_array_equal(order_by_share(apart, order, 0 * sizes)[:, 0], [1, 2])
    np.testing.assert_array_equal(order_by_share(apart, "share", sizes)[:, 0], [0, 0])


def determined(seed):
    """Counts of a posterior that is well determined, and which chains therefore explore."""
    rng = np.random.default_rng(seed)
    return rng.poisson(rng.gamma(1, 100, (60, 3)) @ rng.dirichlet(np.full(30, 0.3), 3))


def widths(table, contrast):
    ordered = table.sort_values(["component", "feature"])
    return (ordered[f"lfc_{contrast}_high"] - ordered[f"lfc_{contrast}_low"]).to_numpy()


def test_intervals_of_linear_response_are_as_wide_as_those_of_chains():
    """Mean absolute log ratio of widths: 0.09 by linear response, 0.70 to 0.82 by the mean field."""
    response = response_to(0)
    options = Gibbs(
        priors=response.fit.priors, algorithm="marginal", chains=2, warmup=50, draws=500, start=response.fit, threads=1
    )
    chains = bayesnmf.fit(determined(0), rank=3, method="gibbs", seed=0, options=options)
    assert match_components(chains.components, response.fit.components).tolist() == [0, 1, 2]
    tables = [bayesnmf.markers(each, None, draws=1000) for each in (chains, response, response.fit)]
    for contrast in ("next", "rest"):
        wanted, found, plain = (widths(each, contrast) for each in tables)
        assert np.abs(np.log(found / wanted)).mean() < 0.18
        assert np.abs(np.log(plain / wanted)).mean() > 0.5
    assert tables[1].columns.tolist() == COLUMNS


def test_features_of_linear_response_are_those_that_lead_by_the_mean_field():
    response = response_to(0)
    table = bayesnmf.markers(response, 4)
    candidates = bayesnmf.markers(response.fit, 12)
    assert table.groupby("component").size().tolist() == [4, 4, 4]
    for component, part in table.groupby("component"):
        assert set(part["feature"]) <= set(candidates["feature"])
        assert np.all(np.diff(part["lfc_next_low"]) <= 0)
        shares = response.fit.components[component][part["feature"].to_numpy(int)]
        np.testing.assert_allclose(part["share"], shares, rtol=0.1)


def test_estimated_covariances_are_those_of_the_exact_solution(monkeypatch):
    """64 draws have Monte Carlo errors of 9 % of a standard deviation, and up to 0.12 of a correlation."""
    response = response_to(0)
    features = np.arange(30)
    exact = of_response._covariances(response, features, 0)
    monkeypatch.setattr(of_response, "FEW", 0)
    found = of_response._covariances(response, features, 0)
    sds = [np.sqrt(each.diagonal(axis1=1, axis2=2)) for each in (exact, found)]
    correlations = [each / sd[:, :, None] / sd[:, None, :] for each, sd in zip((exact, found), sds, strict=True)]
    assert np.sqrt(np.mean(np.log(sds[1] / sds[0]) ** 2)) < 0.12
    assert np.sqrt(np.mean((correlations[1] - correlations[0]) ** 2)) < 0.15
    off = ~np.eye(3, dtype=bool)
    assert np.abs(correlations[0][:, off]).mean() > 0.2  # so that errors of all correlations would be seen


def test_known_components_are_certain_in_linear_response(monkeypatch):
    known = np.random.default_rng(2).dirichlet(np.ones(30), 1)
    response = bayesnmf.linear_response(
        bayesnmf.fit(determined(2), rank=3, seed=0, fixed_components=known, options=OPTIONS["vi"])
    )
    exact = of_response._covariances(response, np.arange(30), 0)
    monkeypatch.setattr(of_response, "FEW", 0)
    for found in (exact, of_response._covariances(response, np.arange(30), 0)):
        assert not found[:, 0].any()
        assert not found[:, :, 0].any()
        assert (found[:, [1, 2], [1, 2]] > 0).all()


def test_linear_response_without_uncertain_shares_is_refused():
    with pytest.raises(ValueError, match=r"components on the simplex.*found Gamma"):
        bayesnmf.markers(bayesnmf.linear_response(fitted("vi, gammas")))
    with pytest.raises(ValueError, match="call linear_response without given_components"):
        bayesnmf.markers(bayesnmf.linear_response(fitted(), given_components=True))


@pytest.mark.parametrize(
    ("error", "message", "settings"),
    [
        (ValueError, "at least two components", {"fit": replace(fitted(), rank=1)}),
        (ValueError, "against must be one of 'next', 'rest'", {"against": "all"}),
        (ValueError, "n must be at least 1", {"n": 0}),
        (ValueError, "draws must be at least 1", {"draws": 0}),
        (TypeError, "fit must be a result", {"fit": 3}),
    ],
)
def test_bad_arguments_are_refused(error, message, settings):
    with pytest.raises(error, match=message):
        bayesnmf.markers(**{"fit": fitted(), **settings})


@pytest.mark.long
def test_known_markers_of_blood_cells_are_found():
    """B, T and NK cells and monocytes: Zheng et al. 2017, figure 3; CD34+ cells: the gene by which they were sorted.

    Under the sparse priors LYZ is the 29th of the monocytes: features of few counts come before it.
    """
    counts = real_counts("pbmc_facs")
    described = find_data("pbmc_facs").with_suffix(".json").read_text(encoding="utf-8")
    options = VI(priors=Priors(Gamma(1.0, 6 * counts.shape[0] / counts.total), Dirichlet(1.0)))
    names = json.loads(described)["col_meta"]["symbol"]
    fit = bayesnmf.fit(counts, rank=6, seed=0, options=options, feature_names=names)
    table = bayesnmf.markers(fit, 20, against="rest", draws=100)
    found = [set(part["feature"]) for _, part in table.groupby("component")]
    known = [{"CD79A", "MS4A1"}, {"CD3D", "CD3E"}, {"GNLY", "NKG7"}, {"S100A8", "S100A9", "LYZ"}, {"CD34"}]
    places = [next((k for k, features in enumerate(found) if genes <= features), None) for genes in known]
    assert None not in places
    assert len(set(places)) == 5  # each in a component of its own


def test_lift_is_per_unit_of_exposure():
    """A feature seen ten times as long has ten times the counts, and the same share and lift."""
    components = np.array([[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]])
    exposure = np.array([10.0, 1.0, 1.0])
    counts = np.array([[300.0, 100.0], [100.0, 300.0]]) @ components * exposure
    options = plain_map(priors=Priors(Gamma(1.0, 1e-3), Gamma(1.0, 1.0)))
    fit = bayesnmf.fit(counts, rank=2, method="map", seed=0, fixed_components=components, feature_exposure=exposure,
                       options=options)  # fmt: skip
    table = bayesnmf.markers(fit, None).pivot(index="component", columns="feature", values="lift")
    np.testing.assert_allclose(table, components / components.mean(axis=0))


@pytest.mark.filterwarnings("ignore:gibbs did not converge:bayesnmf.ConvergenceWarning")  # few draws are enough here
@pytest.mark.parametrize("kind", ["map", "vi", "gibbs"])
def test_intervals_of_a_mean_field_are_said_to_be_too_narrow_wherever_they_are_shown(kind, tmp_path):
    """In the tables, below the figure, and in the page; by one sentence."""
    fit = fitted(kind)
    too_narrow = source_of_intervals(fit)
    said = [too_narrow] * (kind == "vi")
    assert ("mean field; too narrow; fit.with_intervals('sampled') samples" in too_narrow) == (kind == "vi")
    table = bayesnmf.markers(fit, 3)
    assert table.attrs["cautions"] == said
    groups = np.arange(len(fit.row_names)) % 2
    assert bayesnmf.group_contrasts(fit, groups, population=False).attrs["cautions"] == said
    if kind == "map":
        return
    label = bayesnmf.plots.volcano(table)[0].figure.get_supxlabel()
    assert (too_narrow in label.replace("\n", " ")) == bool(said)
    section = components(read(fit, Given()), fit)
    assert section.cautions == said
