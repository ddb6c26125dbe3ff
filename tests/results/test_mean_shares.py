"""Mean shares at covariates are those of the rows, also where loadings are not of the shape of their prior."""

import warnings
from functools import cache

import numpy as np
import pytest
from plain import plain_map, plain_vi
from scipy.special import expit
from scipy.stats import ttest_ind
from smallfits import quietly
from suites import mostly_long

import bayesnmf
from bayesnmf import Gibbs
from bayesnmf.inference.alignment import match_components
from bayesnmf.results.draws import restrict_rows
from bayesnmf.results.mean_shares import mean_shares, unbiased_shares

N, K = 300, 4
OPTIONS = {
    "map": plain_map(max_iter=100),
    "vi": plain_vi(max_iter=60, intervals="mean_field"),
    "gibbs": Gibbs(start="random", chains=1, draws=60, warmup=60, threads=1),
}


def made(n=N, words=100, seed=0, means=None):
    """Return counts, groups, shares and components: .75 of the texts with topic 0 are it, 10 % of a, 35 % of b."""
    rng = np.random.default_rng(seed)
    components, groups = rng.dirichlet(np.full(40, 0.1), K), np.repeat(["a", "b"], n // 2)
    chance = np.where(groups == "a", 0.10, 0.35) if means is None else means / 0.75
    first = np.where(rng.random(n) < chance, rng.beta(30, 10, n), 0.0)
    shares = np.column_stack([first, rng.dirichlet(np.full(K - 1, 0.5), n) * (1 - first)[:, None]])
    sizes = np.broadcast_to(words, n)
    counts = np.array([rng.multinomial(size, share) for size, share in zip(sizes, shares @ components, strict=True)])
    return counts, groups, shares, components


@cache
def fitted(model="dirichlet_poisson", method="vi", words=100, known=True):
    """Return a fit, of known components by default: then only what is read of it can be wrong."""
    counts, groups, shares, components = made(words=words)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bayesnmf.ConvergenceWarning)
        fit = bayesnmf.fit(
            counts, model, K, method, seed=0, options=OPTIONS[method] if known else None, formula="~ g",
            covariates={"g": groups}, fixed_components=components if known else None,
        )  # fmt: skip
    return fit, groups, shares, match_components(fit.components, components)[0]


CASES = [(model, "vi") for model in ("dirichlet_poisson", "dirichlet_gamma", "gamma_poisson")]
CASES += [("gamma_poisson", "map"), ("gamma_poisson", "gibbs"), ("dirichlet_poisson", "gibbs")]


@pytest.mark.parametrize(
    ("model", "method", "known"),
    [(*case, True) for case in CASES]
    + [pytest.param(*case, False, marks=pytest.mark.long) for case in CASES if case[1] == "vi"],
)
def test_mean_shares_of_groups_are_those_of_their_rows(model, method, known):
    """Means of the fitted prior of proportions were .02 and .13 in place of .08 and .28 (F3)."""
    fit, groups, shares, k = fitted(model, method, known=known)
    true = np.array([shares[groups == name, 0].mean() for name in "ab"])
    table = fit.predicted_shares({"g": ["a", "b"]}).xs(k, level="component")
    assert table.share.to_numpy() == pytest.approx(true, abs=0.02)
    assert ((table.low < true) & (true < table.high)).all()
    assert fit.predicted_shares({"g": ["a", "b"]}).share.groupby("row").sum().to_numpy() == pytest.approx(1, abs=0.01)
    adjusted, plain = (bayesnmf.group_contrasts(fit, by).set_index("component").loc[k] for by in ("g", groups))
    assert adjusted.difference_low < true[1] - true[0] < adjusted.difference_high
    for column in ("difference", "difference_low", "difference_high", "lfc", "lfc_low", "lfc_high"):
        assert adjusted[column] == pytest.approx(plain[column], abs=0.03 if "lfc" in column else 0.003)
    assert adjusted.lfsr < 1e-3


@pytest.mark.parametrize("model", ["dirichlet_poisson", "gamma_poisson"])
def test_few_counts_do_not_pull_mean_shares(model):
    """Posterior means of rows are pulled to the means of the prior: .05 of b here, under gamma_poisson."""
    fit, groups, shares, k = fitted(model, words=12)
    true = [shares[groups == name, 0].mean() for name in "ab"]
    found = fit.predicted_shares({"g": ["a", "b"]}).share.xs(k, level="component").to_numpy()
    assert found == pytest.approx(true, abs=0.03)


@quietly
def test_long_rows_count_as_much_as_short_ones():
    """Means of shares are no shares of means: here rows of the topic are ten times as long."""
    counts, groups, shares, components = made()
    rng = np.random.default_rng(1)
    sizes = np.where(shares[:, 0] > 0, 500, 50)
    counts = np.array([rng.multinomial(size, share) for size, share in zip(sizes, shares @ components, strict=True)])
    given = {"formula": "~ g", "covariates": {"g": groups}, "fixed_components": components}
    fit, k = bayesnmf.fit(counts, rank=K, seed=0, options=OPTIONS["vi"], **given), 0
    true = [shares[groups == name, 0].mean() for name in "ab"]
    found = fit.predicted_shares({"g": ["a", "b"]}).share.xs(k, level="component").to_numpy()
    assert found == pytest.approx(true, abs=0.02)


def test_effects_on_concentrations_that_are_no_effects_on_shares_are_told():
    """Where shares are no Dirichlet ones; where they are, nothing is told."""
    fit, *_ = fitted("dirichlet_poisson")
    caution = fit.effects().attrs["cautions"][-1]
    assert "shares of 1 of 4 components are not as Dirichlet distributions have them (component 0: mean" in caution
    assert caution in bayesnmf.group_contrasts(fit, "g").attrs["cautions"]
    assert caution not in fit.predicted_shares({"g": ["a"]}).attrs["cautions"]
    rng = np.random.default_rng(0)
    components, groups = rng.dirichlet(np.full(40, 0.1), K), np.repeat(["a", "b"], N // 2)
    shares = np.array([rng.dirichlet([0.8 if name == "b" else 0.2, 0.5, 0.5, 0.5]) for name in groups])
    counts = np.array([rng.multinomial(100, share) for share in shares @ components])
    own = bayesnmf.fit(
        counts, "dirichlet_poisson", K, seed=0, options=plain_vi(tol=1e-4), formula="~ g", covariates={"g": groups},
        fixed_components=components,
    )  # fmt: skip
    assert not any("Dirichlet" in caution for caution in own.effects().attrs["cautions"])
    ratio = np.log(own.predicted_shares({"g": ["a", "b"]}).share.xs(0, level="component"))
    assert np.diff(ratio) == pytest.approx(np.log(0.8 / 2.3 / (0.2 / 1.7)), abs=0.3)


def without_covariates(counts, components):
    """Return a fit of known components, whose prior has the same mean in all rows."""
    options = plain_vi(max_iter=60, intervals="mean_field")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bayesnmf.ConvergenceWarning)
        return bayesnmf.fit(counts, "dirichlet_poisson", K, seed=0, options=options, fixed_components=components)


@pytest.mark.parametrize("number", mostly_long([15, 100], [0]))
def test_intervals_hold_mean_shares_at_numbers_and_categories(number):
    """90 % intervals at three places, and of the contrasts of two levels, in simulations of 200 rows."""
    inside = []
    for seed in range(number):
        x = np.random.default_rng([seed, 1]).normal(size=200)
        second = np.repeat([0.0, 1.0], 100)
        counts, _, _, components = made(200, 100, seed, np.minimum(expit(0.6 * x - 2 + second), 0.74))
        fit = without_covariates(counts, components)
        design = np.column_stack([np.ones(200), x, second - 0.5])
        found = mean_shares(fit, design, 10, 0)
        asked = np.array([[1, 0, -0.5], [1, 0, 0.5], [1, 1, 0.5]])
        _, low, high = (each[:, 0] for each in found.at(asked).limits_of_shares(0.05))
        true = expit(asked @ [-1.5, 0.6, 1.0])
        inside += [(low < true) & (true < high)]
        levels = [design * [1, 1, 0] + [0, 0, place] for place in (-0.5, 0.5)]
        means = [expit(each @ [-1.5, 0.6, 1.0]).mean() for each in levels]
        for logarithms, true in ((False, means[1] - means[0]), (True, np.log2(means[1] / means[0]))):
            _, low, high = found.contrast(levels, np.array([-1.0, 1.0]), logarithms).limits(0.05, -np.inf, np.inf)
            inside += [[low[0] < true < high[0]]]
    assert np.mean(np.concatenate(inside)) > (0.8 if number < 20 else 0.85)


@pytest.mark.parametrize("number", mostly_long([60, 400], [0]))
@pytest.mark.parametrize("sizes", [(50, 50), (8, 92), (4, 4)])
def test_permuted_labels_differ_as_often_as_they_say(sizes, number):
    """90 % intervals of a random category leave out 0 in .09, .14 and .05 of 400 permutations, as Welch's do.

    Of shares as skew as these, Welch's intervals leave out 0 in .14 of them with groups of 8 and 92 rows.
    """
    fit, rng, found = without_covariates(*(made(100, 60)[place] for place in (0, 3))), np.random.default_rng(3), []
    shares = unbiased_shares(fit)
    for _ in range(number):
        rows, second = rng.permutation(100)[: sum(sizes)], rng.permutation(np.repeat([0, 1], sizes))
        design, levels = np.column_stack([np.ones(len(rows)), second]), [np.array([[1.0, place]]) for place in (0, 1)]
        own = mean_shares(restrict_rows(fit, rows), design, 10, 0).contrast(levels, np.array([-1, 1]))
        _, low, high = own.limits(0.05, -1.0, 1.0)
        welch = ttest_ind(shares[rows][second == 1], shares[rows][second == 0], equal_var=False).pvalue < 0.1
        found.append([(low > 0) | (high < 0), welch])
    ours, plain = np.mean(found, axis=(0, 2))
    assert ours == pytest.approx(plain, abs=0.03)
    assert ours < 0.14 or sizes == (8, 92)


@quietly
def test_missing_entries_and_levels_of_one_row_are_told():
    counts, groups, shares, components = made(200, 100)
    mask = np.random.default_rng(0).random(counts.shape) < 0.05
    fit = bayesnmf.fit(
        counts, "gamma_poisson", K, seed=0, missing=mask, options=plain_vi(max_iter=60), formula="~ g",
        covariates={"g": groups},
    )  # fmt: skip
    table = fit.predicted_shares({"g": ["a", "b"]})
    assert "shares of rows with missing entries are posterior ones" in table.attrs["cautions"][-1]
    k = match_components(fit.components, components)[0]
    true = [shares[groups == name, 0].mean() for name in "ab"]
    assert table.share.xs(k, level="component").to_numpy() == pytest.approx(true, abs=0.04)
    one = np.where(np.arange(200) == 7, "c", groups)
    fit = bayesnmf.fit(counts, rank=K, seed=0, options=plain_vi(max_iter=60), formula="~ g", covariates={"g": one})
    table = fit.predicted_shares({"g": ["a", "c"]})
    assert (table.low[1] == 0).all()
    assert (table.high[1] == 1).all()
    assert (table.high[0] < 0.9).all()
    contrast = bayesnmf.group_contrasts(fit, "g").set_index("contrast").loc["c - a"]
    assert (contrast.lfsr == 0.5).all()
    assert (contrast.difference_low == -1).all()


@quietly
def test_factors_of_batches_are_no_shares():
    """Least-squares shares know them: a batch that counts some features more often has no more of a component."""
    counts, groups, shares, components = made(300, 400)
    batch = np.where(np.random.default_rng(1).random(300) < np.where(groups == "a", 0.8, 0.3), "x", "y")
    factors = np.where(batch[:, None] == "x", np.random.default_rng(3).gamma(2, 1 / 2, 40), 1.0)
    counts = np.random.default_rng(2).poisson(400 * shares @ components * factors)
    given = {"batch": batch, "options": plain_vi(max_iter=150), "formula": "~ g", "covariates": {"g": groups}}
    fit = bayesnmf.fit(counts, rank=K, seed=0, **given)
    own = fit.shares()["share"].to_numpy().reshape(-1, K)
    means = np.stack([own[groups == name].mean(axis=0) for name in "ab"])
    assert fit.predicted_shares({"g": ["a", "b"]}).share.to_numpy().reshape(2, K) == pytest.approx(means, abs=0.01)
    plain = bayesnmf.group_contrasts(fit, groups)
    assert plain.difference.to_numpy() == pytest.approx(means[1] - means[0], abs=0.01)
