"""Missing entries: every objective, update and chain leaves them out, by brute force over dense matrices."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from plain import PLAIN, even_priors, plain_map, plain_vi
from scipy.integrate import quad
from scipy.sparse import csr_array
from scipy.special import gammaln
from scipy.stats import dirichlet, gamma, poisson
from smallfits import quietly

import bayesnmf
from bayesnmf import VI, Dirichlet, Gamma, Gibbs, Priors
from bayesnmf.assessment.bounds import state_of_fit
from bayesnmf.data.mask import Mask, as_pattern
from bayesnmf.data.missing import with_missing
from bayesnmf.inference.sides import allocate, objective
from bayesnmf.priors.specification import MODELS

K = 2
every_model = pytest.mark.parametrize("model", MODELS)


def sample(n=8, m=6, seed=1, share=0.3):
    """Return counts, and where they were observed: a row and a column are missing as a whole."""
    rng = np.random.default_rng(seed)
    means = rng.gamma(1, 1, (n, K)) @ rng.dirichlet(np.full(m, 0.6), K) * 30
    observed = rng.random((n, m)) > share
    observed[2], observed[:, 4] = False, False
    return rng.poisson(means), observed


COUNTS, OBSERVED = sample()


def options_of(method, model="gamma_poisson", **more):
    priors = Priors(Gamma(1.2, 0.05), Gamma(1.3, 1.0)) if model == "poisson" else even_priors(COUNTS, model, K)
    if method == "gibbs":
        return Gibbs(chains=1, draws=5, warmup=5, start="random", threads=1, priors=priors, **more)
    return PLAIN[method](threads=1, priors=priors, **{"tol": 1e-12, "max_iter": 4000, **more})


@quietly
@every_model
@pytest.mark.parametrize("method", ["map", "vi", "gibbs"])
def test_a_mask_of_nothing_changes_no_bit(model, method):
    options = options_of(method, model) if method == "gibbs" else options_of(method, model, max_iter=20)
    one, two = (
        bayesnmf.fit(COUNTS, model, K, method, seed=0, options=options, observed=each)
        for each in (None, np.ones(COUNTS.shape, bool))
    )
    np.testing.assert_array_equal(one.loadings, two.loadings)
    np.testing.assert_array_equal(one.components, two.components)


@quietly
@every_model
@pytest.mark.parametrize("method", ["map", "vi"])
def test_the_objective_never_falls(model, method):
    fit = bayesnmf.fit(COUNTS, model, K, method, seed=0, observed=OBSERVED, options=options_of(method, model, tol=1e-9))
    assert np.diff(fit.trace).min() > -1e-10 * abs(fit.trace[-1])


def log_joint(counts, observed, loadings, components, priors):
    """Return the log joint under Gamma loadings and Dirichlet or Gamma components, over observed entries."""
    (a, b), c = priors
    value = poisson.logpmf(counts, loadings @ components)[observed].sum() + gamma.logpdf(loadings, a, scale=1 / b).sum()
    if isinstance(c, tuple):
        return value + gamma.logpdf(components, c[0], scale=1 / c[1]).sum()
    return value + sum(dirichlet.logpdf(row / row.sum(), np.full(len(row), c)) for row in components)


@quietly
@pytest.mark.parametrize("components", [1.4, (1.3, 1.0)])
def test_a_mode_is_that_of_the_observed_entries(components):
    """No step of 0.1 % in any direction of 500 raises the log joint that SciPy computes."""
    prior = Gamma(*components) if isinstance(components, tuple) else Dirichlet(components)
    priors, model = Priors(Gamma(1.5, 0.1), prior), "poisson" if isinstance(components, tuple) else "gamma_poisson"
    options = plain_map(priors=priors, tol=1e-13, max_iter=20_000, basis="natural", threads=1)
    fit = bayesnmf.fit(COUNTS, model, K, "map", seed=0, observed=OBSERVED, options=options)
    given = COUNTS, OBSERVED
    best = log_joint(*given, fit.loadings, fit.components, ((1.5, 0.1), components))
    assert fit.trace[-1] == pytest.approx(best, rel=1e-10)
    rng = np.random.default_rng(0)
    for _ in range(500):
        moved = [each * np.exp(1e-3 * rng.standard_normal(each.shape)) for each in (fit.loadings, fit.components)]
        if model == "gamma_poisson":
            moved[1] /= moved[1].sum(axis=1, keepdims=True)
        assert log_joint(*given, *moved, ((1.5, 0.1), components)) < best + 1e-7


@quietly
def test_given_totals_are_those_of_observed_entries():
    """The mode of proportions is that of multinomials over the observed entries, with renormalised probabilities."""
    options = plain_map(
        priors=Priors(Dirichlet(1.3), Dirichlet(1.4)), tol=1e-13, max_iter=20_000, basis="natural", threads=1
    )
    fit = bayesnmf.fit(COUNTS, "dirichlet_poisson", K, "map", seed=0, observed=OBSERVED, options=options)
    seen = np.where(OBSERVED, COUNTS, 0)

    def value(loadings, components):
        shares, totals = loadings @ components, seen.sum(axis=1)
        left = np.where(totals > 0, np.where(OBSERVED, shares, 0).sum(axis=1), 1)
        priors = [dirichlet.logpdf(row / row.sum(), np.full(K, 1.3)) for row in loadings]
        priors += [dirichlet.logpdf(row / row.sum(), np.full(6, 1.4)) for row in components]
        constant = len(seen) + gammaln(seen + 1.0).sum()  # the Poisson scale of the objective
        return (seen * np.log(shares)).sum() - totals @ np.log(left) - constant + sum(priors)

    best = value(fit.loadings, fit.components)
    assert fit.trace[-1] == pytest.approx(best, rel=1e-10)
    rng = np.random.default_rng(0)
    for _ in range(500):
        moved = [each * np.exp(1e-3 * rng.standard_normal(each.shape)) for each in (fit.loadings, fit.components)]
        assert value(*(each / each.sum(axis=1, keepdims=True) for each in moved)) < best + 1e-7


@quietly
@every_model
def test_half_the_likelihood_of_twice_the_counts_is_that_of_the_counts(model):
    """With missing entries too; proportions given totals have no exposure to double."""
    options, given = options_of("vi", model, max_iter=20), model == "dirichlet_poisson"
    one = bayesnmf.fit(COUNTS, model, K, "vi", seed=0, observed=OBSERVED, options=options)
    two = bayesnmf.fit(
        2 * COUNTS, model, K, "vi", seed=0, observed=OBSERVED, options=options, noise=bayesnmf.Quasi(1),
        row_exposure=None if given else np.full(8, 2.0),
    )  # fmt: skip
    np.testing.assert_allclose(one.loadings, two.loadings, rtol=1e-9)
    np.testing.assert_allclose(one.components, two.components, rtol=1e-9)


@quietly
@every_model
def test_the_bound_is_below_that_without_allocations(model):
    fit = bayesnmf.fit(COUNTS, model, K, "vi", seed=0, observed=OBSERVED, options=options_of("vi", model))
    problem, state = state_of_fit(fit)
    assert objective(problem, state, allocate(problem, state, 1).loglik) == pytest.approx(fit.trace[-1], rel=1e-10)
    marginal = bayesnmf.elbo_marginal(fit, 500)
    assert fit.trace[-1] < marginal.mean + 4 * marginal.se
    assert marginal.mean - fit.trace[-1] < 12


@quietly
@every_model
@pytest.mark.parametrize("method", ["map", "vi"])
def test_a_row_without_entries_leaves_the_others_alone(model, method):
    """From the same start, as if the row were not there; with Gamma components, a feature too."""
    rng = np.random.default_rng(2)
    observed = np.ones(COUNTS.shape, bool)
    observed[3] = False
    both = model == "poisson"
    if both:
        observed[:, 1] = False
    loadings, components = rng.dirichlet(np.ones(K), len(COUNTS)), rng.dirichlet(np.ones(6), K)
    start = bayesnmf.Start(loadings, components)
    rows, columns = np.delete(np.arange(8), 3), np.delete(np.arange(6), 1) if both else np.arange(6)
    less = components[:, columns] / components[:, columns].sum(axis=1, keepdims=True)
    options = options_of(method, model, tol=1e-13, max_iter=20_000, extrapolate=True)
    whole = bayesnmf.fit(COUNTS, model, K, method, seed=0, observed=observed, options=replace(options, start=start))
    part = bayesnmf.fit(
        COUNTS[np.ix_(rows, columns)], model, K, method, seed=0,
        options=replace(options, start=bayesnmf.Start(loadings[rows], less)),
    )  # fmt: skip
    one, two = whole.expected_loadings @ whole.components, part.expected_loadings @ part.components
    np.testing.assert_allclose(one[np.ix_(rows, columns)], two, rtol=1e-5, atol=1e-8)


def rates_of(model, algorithm, priors, draws):
    options = Gibbs(algorithm=algorithm, draws=draws, warmup=500, chains=2, priors=priors, keep="draws")
    fit = bayesnmf.fit(COUNTS, model, K, "gibbs", seed=1, observed=OBSERVED, options=options)
    return np.einsum("cdnk,cdkm->cdnm", fit.posterior.loadings, fit.posterior.components)


@quietly
@pytest.mark.parametrize("algorithm", ["allocations", "marginal"])
def test_loadings_are_drawn_with_the_exposure_of_observed_entries(algorithm):
    """Of one known component, the posterior is Gamma(a + N, b + Σ of the observed shares)."""
    known = np.array([[0.5, 0.3, 0.2]])
    observed = np.array([[True, False, True], [False, False, True], [False, False, False]])
    counts = np.array([[30, 4, 12], [9, 9, 9], [5, 5, 5]])
    options = Gibbs(algorithm=algorithm, draws=1000, warmup=10, chains=1, priors=Priors(Gamma(2.0, 0.1)), threads=1)
    fit = bayesnmf.fit(
        counts, rank=1, method="gibbs", seed=0, observed=observed, fixed_components=known, options=options
    )
    shape, rate = 2 + np.array([42, 9, 0]), 0.1 + np.array([0.7, 0.2, 0])
    draws = fit.posterior.loadings[0, :, :, 0]
    np.testing.assert_allclose(draws.mean(axis=0) * rate / shape, 1, atol=0.08)
    np.testing.assert_allclose(draws.std(axis=0) * rate / np.sqrt(shape), 1, atol=0.1)


@quietly
@pytest.mark.long
@pytest.mark.parametrize("components", [Dirichlet(1.4), Gamma(1.3, 1.0)])
def test_both_samplers_draw_from_one_posterior(components):
    """Means of 2 × 3,000 draws of all rates: a missing exposure would move them by tens of standard errors."""
    model = "poisson" if isinstance(components, Gamma) else "gamma_poisson"
    means, errors, spreads = [], [], []
    for algorithm in ("allocations", "marginal"):
        rates = rates_of(model, algorithm, Priors(Gamma(1.5, 0.1), components), 3000)
        batches = rates.reshape(2, 10, 300, *COUNTS.shape).mean(axis=2)
        means.append(rates.mean(axis=(0, 1)))
        errors.append(batches.std(axis=(0, 1)) / np.sqrt(20))
        spreads.append(rates.std(axis=(0, 1)))
    z = (means[0] - means[1]) / np.hypot(*errors)
    assert np.sqrt(np.mean(z**2)) < 1.8
    np.testing.assert_allclose(np.median(spreads[0] / spreads[1]), 1, atol=0.06)


@quietly
@pytest.mark.long
def test_proportions_given_totals_are_drawn_from_their_posterior():
    """One share of one row with known components, by quadrature of the renormalised multinomial."""
    known = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
    counts, observed = np.array([[7, 4, 9]]), np.array([[True, True, False]])
    options = Gibbs(draws=3000, warmup=100, chains=2, priors=Priors(loadings=Dirichlet(1.0)))
    fit = bayesnmf.fit(
        counts, "dirichlet_poisson", 2, "gibbs", seed=0, observed=observed, fixed_components=known, options=options
    )

    def density(share):
        shares = share * known[0] + (1 - share) * known[1]
        return np.exp(7 * np.log(shares[0]) + 4 * np.log(shares[1]) - 11 * np.log(shares[:2].sum()))

    total = quad(density, 0, 1)[0]
    mean = quad(lambda share: share * density(share), 0, 1)[0] / total
    draws = fit.posterior.loadings[..., 0, 0]
    assert draws.mean() == pytest.approx(mean, abs=0.012)  # 0.57; 0.82 if the third count were 0


def test_either_set_of_entries_gives_the_same_sums():
    rng = np.random.default_rng(0)
    missing = rng.random((9, 7)) < 0.8
    few = Mask.of(as_pattern(missing))
    assert not few.of_missing
    many = Mask(as_pattern(missing), True)
    for factor, name in ((rng.random((7, 2)), "sums_by_row"), (rng.random((9, 2)), "sums_by_feature")):
        np.testing.assert_allclose(getattr(few, name)(factor), getattr(many, name)(factor), atol=1e-12)
    assert few.number == many.number == missing.sum()
    np.testing.assert_array_equal(few.hidden(slice(2, 5)), missing[2:5])


def test_counts_without_what_is_missing_keep_the_kind_of_their_indices():
    """For indices of 64 bits every loop would be compiled again."""
    for observed in (OBSERVED, ~OBSERVED):
        matrix = with_missing(bayesnmf.as_counts(COUNTS), None, observed).matrix
        assert matrix.indices.dtype == matrix.indptr.dtype == np.int32


@quietly
def test_every_way_to_say_what_is_missing_says_the_same():
    floats = np.where(OBSERVED, COUNTS, np.nan)
    names = [f"r{i}" for i in range(8)], list("abcdef")
    frame = pd.DataFrame(COUNTS, *names)
    turned = pd.DataFrame(OBSERVED, *names).iloc[::-1, ::-1]
    options = options_of("vi", max_iter=10)
    fits = [
        bayesnmf.fit(counts, rank=K, seed=0, options=options, **words)
        for counts, words in (
            (COUNTS, {"observed": OBSERVED}),
            (COUNTS, {"missing": ~OBSERVED}),
            (COUNTS, {"missing": csr_array(~OBSERVED)}),
            (csr_array(COUNTS), {"observed": csr_array(OBSERVED)}),
            (np.ma.masked_array(COUNTS, ~OBSERVED), {}),
            (floats, {"missing": "nan"}),
            (pd.DataFrame(floats, *names), {"missing": "nan"}),
            (csr_array(floats), {"missing": "nan"}),
            (frame, {"observed": turned}),
        )
    ]
    for fit in fits:
        assert fit.counts.mask.number == (~OBSERVED).sum()
        np.testing.assert_array_equal(fit.loadings, fits[0].loadings)
    zeros = bayesnmf.fit(COUNTS, rank=K, seed=0, options=options, missing="zeros")
    assert zeros.counts.mask.number == (COUNTS == 0).sum()


@pytest.mark.parametrize(
    ("words", "kind", "says"),
    [
        ({"observed": np.ones((3, 2), bool)}, ValueError, "observed must have the shape of the counts"),
        ({"observed": np.ones((8, 6))}, TypeError, "observed must be an array of booleans"),
        ({"observed": OBSERVED, "method": "bld"}, ValueError, "missing entries need .*: found 'bld', which allocates"),
        (
            {"observed": OBSERVED, "method": "smc", "model": "dirichlet_poisson"},
            ValueError,
            "missing entries and method='smc' need Gamma loadings",
        ),
        (
            {"observed": OBSERVED, "method": "gibbs", "options": Gibbs(collapsed=True)},
            ValueError,
            "found collapsed=True",
        ),
        (
            {"observed": OBSERVED, "method": "gibbs", "model": "dirichlet_poisson",
             "options": Gibbs(algorithm="marginal")},
            ValueError,
            "missing entries and loadings that are proportions",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_name(words, kind, says):
    with pytest.raises(kind, match=says):
        bayesnmf.fit(COUNTS, rank=K, seed=0, **words)


@quietly
def test_what_needs_all_entries_says_so():
    fit = bayesnmf.fit(COUNTS, rank=K, seed=0, observed=OBSERVED, options=options_of("vi", max_iter=10))
    for call in (
        lambda: bayesnmf.select(fit.counts, ranks=[1, 2]),
        lambda: bayesnmf.log_evidence(fit.counts, rank=K, method="tokens"),
        lambda: fit.to_datatree(log_likelihood=True),
    ):
        with pytest.raises(ValueError, match="without missing entries"):
            call()


@quietly
def test_files_views_and_new_rows_keep_missing_entries(tmp_path):
    fit = bayesnmf.fit(COUNTS, rank=K, seed=0, observed=OBSERVED, options=options_of("vi"))
    fit.save(tmp_path / "fit.nc")
    loaded = bayesnmf.load(tmp_path / "fit.nc")
    assert loaded.counts.mask.same_as(fit.counts.mask)
    assert "entries missing" in repr(loaded.counts)
    held = {"observed": OBSERVED}
    np.testing.assert_allclose(
        loaded.transform(COUNTS[::-1], observed=OBSERVED[::-1])[::-1], loaded.transform(COUNTS, **held), rtol=1e-6
    )
    alone = fit.transform(COUNTS[:1], observed=OBSERVED[:1])
    np.testing.assert_allclose(alone, fit.transform(COUNTS, **held)[:1], rtol=1e-6)
    assert not np.allclose(alone, fit.transform(COUNTS[:1]), rtol=0.05)
    assert fit.dispersion().ratio < 4  # 60 and more with missing entries as zeros
    assert bayesnmf.fit(fit.counts, rank=K, seed=0, options=options_of("vi")).trace[-1] == fit.trace[-1]


@quietly
def test_intervals_of_missing_entries_hold_what_was_there():
    """90 % intervals of the expected counts of 600 missing entries hold 83 to 96 % of them."""
    rng = np.random.default_rng(4)
    loadings, components = rng.gamma(1, 100, (60, 3)), rng.dirichlet(np.full(40, 0.5), 3)
    means, observed = loadings @ components, rng.random((60, 40)) > 0.25
    options = VI(priors=Priors(Gamma(1.0, 0.01), Dirichlet(0.5)))
    fit = bayesnmf.fit(rng.poisson(means), rank=3, seed=0, observed=observed, options=options)
    table = fit.with_intervals("sampled").expected()
    missing = table["count"].isna().to_numpy()
    assert missing.sum() == (~observed).sum()
    inside = (table["lower"] <= means.ravel()) & (means.ravel() <= table["upper"])
    assert 0.83 < inside[missing].mean() < 0.96


@quietly
def test_estimators_take_missing_entries():
    """NaN where the estimator is told so, in new rows too; scikit-learn's check refuses it otherwise."""
    floats = np.where(OBSERVED, COUNTS, np.nan)
    options = options_of("vi", max_iter=10)
    found = bayesnmf.BayesNMF(K, options=options, missing="nan", random_state=0).fit(floats)
    assert found.fit_.counts.mask.number == (~OBSERVED).sum()
    assert found.__sklearn_tags__().input_tags.allow_nan
    np.testing.assert_allclose(
        found.transform(floats[:3]), found.fit_.transform(COUNTS[:3], observed=OBSERVED[:3]), rtol=1e-6
    )
    with pytest.raises(ValueError, match="NaN"):
        bayesnmf.BayesNMF(K, options=options).fit(floats)
    with pytest.raises(ValueError, match="score needs counts without missing entries"):
        found.score(floats)
    with pytest.raises(ValueError, match="missing must be one of 'nan', 'zeros'"):
        bayesnmf.BayesNMF(K, options=options, missing="none").fit(COUNTS)


@quietly
def test_totals_given_are_completed_for_each_draw():
    """Expected counts of a row are N p_j / Σ of the observed p, draw by draw; chains run until they have mixed, too."""
    observed = OBSERVED.copy()
    observed[0] = [True, True, False, False, False, False]
    options = Gibbs(chains=2, warmup=20, budget=2, start="random", threads=1)
    fit = bayesnmf.fit(COUNTS, "dirichlet_poisson", K, "gibbs", seed=0, observed=observed, options=options)
    shares = np.einsum(
        "ck,ckm->cm", fit.posterior.loadings[:, :, 0].reshape(-1, K), fit.posterior.components.reshape(-1, K, 6)
    )
    whole = COUNTS[0, :2].sum() / shares[:, :2].sum(axis=1)
    table = fit.expected()
    np.testing.assert_allclose(table.loc[0, "mean"], (whole[:, None] * shares).mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(table.loc[0, "upper"], np.quantile(whole[:, None] * shares, 0.95, axis=0), rtol=1e-9)
    assert table.loc[2, ["mean", "lower", "upper"]].isna().to_numpy().all()  # a row of no total


def test_flat_loadings_with_missing_entries_have_no_posterior():
    with pytest.raises(ValueError, match=r"missing entries and a posterior of the loadings need a proper prior"):
        bayesnmf.fit(COUNTS, "poisson", K, "gibbs", observed=np.arange(48).reshape(8, 6) > 3)
    with pytest.raises(ValueError, match=r"a proper prior of the loadings: found .* with which it would have no limit"):
        bayesnmf.fit(COUNTS, "poisson", K, "vi", observed=np.arange(48).reshape(8, 6) > 3)
    known = np.random.default_rng(0).dirichlet(np.ones(6), K)  # which no row lacks
    fit = bayesnmf.fit(COUNTS, "poisson", fixed_components=known, observed=np.arange(48).reshape(8, 6) > 3)
    assert "entries of its counts are missing" in " ".join(repr(fit).split())


@quietly
@pytest.mark.parametrize("model", ["gamma_poisson", "dirichlet_gamma", "hierarchical_poisson"])
def test_default_priors_are_those_of_all_entries(model):
    """Rows without an observed entry change no default prior; half of the entries missing change it by chance alone."""
    rng = np.random.default_rng(3)
    counts = rng.poisson(rng.gamma(2, 20, (60, 1)) * rng.dirichlet(np.ones(30)))
    observed = np.ones(counts.shape, bool)
    observed[30:] = False
    options = plain_vi(max_iter=2)

    def mean(counts, **words):
        prior = bayesnmf.fit(counts, model, 2, seed=0, options=options, **words).priors.loadings
        return float(
            np.mean((getattr(prior, "scale", prior)).mean() if model == "dirichlet_gamma" else prior.typical())
        )

    assert mean(counts, observed=observed) == pytest.approx(mean(counts[:30]), rel=1e-9)
    assert mean(counts, observed=rng.random(counts.shape) > 0.5) == pytest.approx(mean(counts), rel=0.1)


@quietly
def test_masks_add_up():
    fit = bayesnmf.fit(COUNTS, rank=K, seed=0, observed=OBSERVED, options=options_of("vi", max_iter=5))
    other = np.ones(COUNTS.shape, bool)
    other[0] = False
    again = bayesnmf.fit(fit.counts, rank=K, seed=0, observed=other, options=options_of("vi", max_iter=5))
    np.testing.assert_array_equal(again.counts.mask.hidden(slice(None)), ~(OBSERVED & other))
    with pytest.raises(ValueError, match="missing must be one of 'nan', 'zeros': found 'zero'; did you mean 'zeros'"):
        bayesnmf.fit(COUNTS, rank=K, missing="zero")


@quietly
def test_known_components_give_the_posterior_of_the_observed_entries():
    """Vi and the exact Gamma(a + N, b + Σ of the observed shares) of one component agree, means and sds."""
    known = np.array([[0.5, 0.3, 0.2]])
    observed = np.array([[True, False, True], [False, False, True]])
    counts, priors = np.array([[30, 4, 12], [9, 9, 9]]), Priors(Gamma(2.0, 0.1))
    fit = bayesnmf.fit(
        counts, rank=1, seed=0, observed=observed, fixed_components=known, options=plain_vi(priors=priors)
    )
    q = fit.posterior.loadings
    np.testing.assert_allclose(np.ravel(q.shape), 2 + np.array([42, 9]), rtol=1e-9)
    np.testing.assert_allclose(np.ravel(q.rate) * np.ones(2), 0.1 + np.array([0.7, 0.2]), rtol=1e-9)


@pytest.mark.usefixtures("without_pictures")
@quietly
def test_readers_see_missing_entries(tmp_path):
    fit = bayesnmf.fit(
        COUNTS, rank=K, seed=0, observed=OBSERVED, options=replace(options_of("vi"), intervals="mean_field")
    )
    page = bayesnmf.report(fit, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Of the observed entries alone" in page
    assert f"{(~OBSERVED).sum()} entries missing" in " ".join(repr(fit).split())
    tree = fit.to_datatree(draws=5, chains=1)
    np.testing.assert_array_equal(np.isnan(tree["observed_data"]["counts"]), ~OBSERVED)
    for refused in (lambda: bayesnmf.coherence(fit), fit.to_anndata):
        with pytest.raises(ValueError, match="without missing entries"):
            refused()
    table = bayesnmf.markers(fit, 6)
    frequencies = (fit.expected_loadings @ fit.components).sum(axis=0)
    row = table.iloc[0]
    place = list(fit.feature_names).index(row["feature"])
    assert row["lift"] == pytest.approx(row["share"] * frequencies.sum() / frequencies[place], rel=1e-6)
    expected = fit.expected()
    assert ((expected["lower"] <= expected["mean"]) & (expected["mean"] <= expected["upper"])).mean() > 0.97


def simulated(share=0.7, n=300, m=40, rank=3, seed=0):
    """Return counts, where they were observed, and means: 10 counts a row of Gamma(1) loadings, rank 3."""
    rng = np.random.default_rng(seed)
    means = rng.gamma(1, 1, (n, rank)) @ rng.dirichlet(np.ones(m), rank)
    means *= 10 / means.sum(axis=1).mean()
    return rng.poisson(means), rng.random((n, m)) >= share, means


@quietly
@pytest.mark.parametrize("model", ["gamma_poisson", "dirichlet_gamma", "hierarchical_poisson"])
def test_totals_do_not_shrink_with_what_is_missing(model):
    """Of seven entries in ten; by a bound with expected counts they were 0.7 of the truth."""
    counts, observed, means = simulated()
    fit = bayesnmf.fit(counts, model, 3, seed=0, observed=observed, options=VI(intervals="mean_field"))
    found = fit.mean_factors[0] @ fit.mean_factors[1]
    assert found.sum() == pytest.approx(means.sum(), rel=0.06)  # 900 counts have a standard error of 3.3 %


@quietly
@pytest.mark.parametrize("model", ["gamma_poisson", "dirichlet_gamma"])
def test_the_elbo_is_that_of_observed_entries(model):
    """By brute force: Σ X log UV − Σ E λ over observed entries, less divergences that the mean fields compute."""
    fit = bayesnmf.fit(COUNTS, model, K, seed=0, observed=OBSERVED, options=options_of("vi", model))
    (problem, state), q = state_of_fit(fit), fit.posterior
    U, V = (np.exp(side.conditional.expected_log()) for side in state)
    seen = np.where(OBSERVED, COUNTS, 0)
    value = (seen * np.log(U @ V)).sum() - (state.loadings.matrix @ state.components.matrix)[OBSERVED].sum()
    value -= gammaln(seen + 1.0).sum() + q.loadings.kl(problem.loadings_prior)
    assert fit.trace[-1] == pytest.approx(value - q.components.kl(problem.components_prior), rel=1e-9)


@pytest.mark.parametrize("size", [1, 10, 1000])
def test_a_step_towards_the_best_dirichlet_does_not_lower_the_bound(size):
    """From any start, with exposures from none to a thousand; at the end no change of 1 % raises it."""
    rng, prior = np.random.default_rng(0), Dirichlet(0.3)
    total, exposure = rng.gamma(0.5, size, (2, 4, 7))
    q = Dirichlet(rng.gamma(0.5, size, (4, 7)) + 1e-3)

    def bound(q):
        return (total * q.expected_log()).sum() - (exposure * q.mean()).sum() - q.kl(prior)

    values = [bound(q)]
    for _ in range(300):
        q = prior.near_conditional(total, exposure, q)
        values.append(bound(q))
    assert np.diff(values).min() > -1e-10 * np.abs(values).max()
    for _ in range(100):
        assert bound(Dirichlet(q.concentration * np.exp(1e-2 * rng.standard_normal((4, 7))))) < values[-1]
    equal = prior.near_conditional(total, np.full((4, 7), 3.0), q)
    np.testing.assert_allclose(equal.concentration, prior.conditional(total, 3.0).concentration, rtol=1e-12)


@pytest.mark.parametrize("seed", [2, 4])
def test_starts_are_those_of_observed_entries(seed):
    """Of counts as uneven as mutations, a fit climbs as high as one that begins at the fit of all counts.

    It would end 7 and 28 nats below, were means of rank one kept in missing entries while a start descends: on
    pcawg_breast_sbs96, a tenth missing, 1,100 nats.
    """
    rng = np.random.default_rng(seed)
    components = rng.dirichlet(np.full(30, 0.1), 5)
    loadings = rng.lognormal(5, 1.5, (60, 5)) * (rng.random((60, 5)) < 0.5)
    counts = rng.poisson(loadings @ components)
    observed = rng.random(counts.shape) >= 0.2
    best = bayesnmf.fit(
        counts, rank=5, seed=0, observed=observed, options=VI(start=bayesnmf.fit(counts, rank=5, seed=0))
    )
    assert bayesnmf.fit(counts, rank=5, seed=0, observed=observed).trace[-1] > best.trace[-1] - 5
