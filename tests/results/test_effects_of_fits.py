"""Effects of covariates as tables, predicted shares, files, trees and new rows; their curvature by theory."""

import warnings
from functools import cache

import numpy as np
import pandas as pd
import pytest
from plain import plain_map, plain_vi
from scipy.special import gammaln
from smallfits import quietly

import bayesnmf
from bayesnmf import Dirichlet, Gamma, Gibbs, Priors
from bayesnmf.assessment.bounds import state_of_fit
from bayesnmf.data.covariates.coding import Coding
from bayesnmf.inference.response.effects import information_of_effects, known_of_effects, terms_of_mean_field
from bayesnmf.results.effects import drawn_effects
from bayesnmf.results.relabelling import relabel

N, K = 60, 2
RNG = np.random.default_rng(3)
NAMES = [f"s{i}" for i in range(N)]
FRAME = pd.DataFrame({"age": RNG.uniform(20, 80, N), "arm": RNG.choice(["a", "b", "c"], N)}, NAMES)
MEANS = 20 * np.exp(np.outer((FRAME.age - 50) / 30, [1.0, -0.5]))
COUNTS = pd.DataFrame(RNG.poisson(RNG.gamma(2, MEANS / 2) @ np.array([[0.7, 0.3, 0, 0], [0, 0, 0.4, 0.6]])), NAMES)
OPTIONS = {
    "map": plain_map(max_iter=200),
    "vi": plain_vi(max_iter=200),
    "gibbs": Gibbs(start="random", chains=2, draws=100, warmup=50, threads=1),
}


@cache
def fitted(method="vi", model="gamma_poisson"):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bayesnmf.ConvergenceWarning)
        return bayesnmf.fit(
            COUNTS, model, K, method, seed=0, options=OPTIONS[method], formula="~ age + arm", covariates=FRAME
        )


def test_the_curvature_is_that_of_a_negative_binomial_regression():
    """Where each component has features of its own, its counts A are negative binomial given the effects."""
    known = np.eye(2)
    counts = COUNTS.to_numpy() @ np.array([[1, 0], [1, 0], [0, 1], [0, 1]])
    fit = bayesnmf.fit(
        counts, rank=2, seed=0, fixed_components=known, covariates={"age": FRAME.age.to_numpy()},
        options=plain_vi(priors=Priors(Gamma(1.5, 0.1), Dirichlet(1))),
    )  # fmt: skip
    prior = fit.priors.loadings
    a, rate = (np.ravel(each) for each in (prior.plain.shape, prior.plain.rate))

    def log_marginal(effects):
        b = rate * np.exp(-prior.design @ effects)
        found = gammaln(a + counts) - gammaln(a) + a * np.log(b) - (a + counts) * np.log(b + 1)
        return found.sum() - (prior.precision * effects**2).sum() / 2

    p, step = prior.effects.size, 1e-4
    hessian = np.empty((p, p))
    moves = np.eye(p).reshape(p, 2, 2).transpose(0, 2, 1) * step  # component by component
    for i in range(p):
        for j in range(p):
            signs = [(1, 1), (1, -1), (-1, 1), (-1, -1)]
            four = [s * t * log_marginal(prior.effects + s * moves[i] + t * moves[j]) for s, t in signs]
            hessian[i, j] = sum(four) / (4 * step**2)
    terms = terms_of_mean_field(*state_of_fit(fit))
    assert information_of_effects(prior, terms) == pytest.approx(-hessian, rel=2e-4, abs=2e-3)


def test_learned_effects_of_known_allocations_maximise_their_marginal_likelihood():
    """EM in effects ends where the slope of the negative binomial likelihood is 0; shapes are those it ended with."""
    counts = COUNTS.to_numpy() @ np.array([[1, 0], [1, 0], [0, 1], [0, 1]])
    fit = bayesnmf.fit(
        counts, rank=2, seed=0, fixed_components=np.eye(2), covariates={"age": FRAME.age.to_numpy()},
        options=plain_vi(tol=1e-13, max_iter=3000),
    )  # fmt: skip
    prior = fit.priors.loadings
    a, mean = prior.plain.shape, prior.mean()
    slope = prior.design.T @ (a * (counts - mean) / (a + mean)) - prior.precision * prior.effects
    assert slope == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("method", OPTIONS)
def test_tables_of_effects(method):
    table = fitted(method).effects()
    assert list(table.index.names) == ["component", "term"]
    assert table.loc[0].index.tolist() == ["Intercept", "age", "arm[T.b]", "arm[T.c]"]
    assert (table.low < table.effect).all()
    assert (table.effect < table.high).all()
    assert table.attrs["scale"] == "log scale of loadings"
    first = int(np.argmax(fitted(method).components[:, 0]))
    age = table.xs("age", level="term")
    assert age.low[first] < 1 / 30 < age.high[first]
    assert age.lfsr[first] < 0.01
    assert age.low[1 - first] < -0.5 / 30 < age.high[1 - first]
    narrow = fitted(method).effects(interval=0.5)
    assert (narrow.high - narrow.low < table.high - table.low).all()


def test_intercepts_are_expected_counts_whatever_the_scale_of_components():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bayesnmf.ConvergenceWarning)
        fits = [
            bayesnmf.fit(
                COUNTS, rank=K, seed=0, covariates=FRAME[["age"]] - 50,
                options=plain_vi(max_iter=400, priors=Priors(components=prior)),
            )
            for prior in (Dirichlet(0.3), Gamma(0.3, 0.01))
        ]  # fmt: skip
    for fit in fits:
        intercepts = fit.effects().xs("Intercept", level="term").effect
        assert intercepts.to_numpy() == pytest.approx(np.log(20), abs=0.3)


def test_effects_of_sampled_draws_are_those_of_gibbs():
    """Intervals of vi with draws beside q are about as wide as those of chains; the curvature is no wider."""
    chains = fitted("gibbs").effects()
    vi = fitted("vi")
    order = np.argsort(-vi.components[:, 0]), np.argsort(-fitted("gibbs").components[:, 0])
    sampled = vi.with_intervals("sampled").effects()
    assert sampled.attrs["intervals"].startswith("intervals: sampled")
    one, two = (table.sd.to_numpy().reshape(K, -1)[at] for table, at in zip((sampled, chains), order, strict=True))
    assert one / two == pytest.approx(1, abs=0.35)
    laplace = vi.effects()
    assert laplace.attrs["intervals"].startswith("intervals: Laplace")
    assert laplace.attrs["cautions"]


@quietly
def test_loadings_that_vary_more_than_gammas():
    """Sizes of rows with heavy tails widen intervals; by the prior these are too narrow, which is told."""
    rng = np.random.default_rng(0)
    sizes = np.exp(rng.normal(0, 1.5, 300))
    means = 20 * sizes[:, None] * rng.gamma(5, 1 / 5, (300, 2)) @ np.array([[0.7, 0.3, 0, 0], [0, 0, 0.4, 0.6]])
    counts, x = rng.poisson(means), {"x": rng.standard_normal(300)}
    options = plain_vi(max_iter=100)
    plain = bayesnmf.fit(counts, rank=2, seed=0, covariates=x, options=options)
    rows, prior = (plain.effects(variation=each) for each in ("rows", "prior"))
    assert rows.effect.equals(prior.effect)
    wider = rows.sd / prior.sd
    assert wider.min() > 1.2
    assert wider.max() > 2  # of the component that varies 5 times as much
    assert "loadings of 2 of 2 components vary up to" in prior.attrs["cautions"][-1]
    assert not any("vary up to" in caution for caution in rows.attrs["cautions"])
    assert rows.attrs["intervals"].endswith("variation between rows as rows show it")
    assert prior.attrs["intervals"].endswith("variation between rows as the prior says")
    exposed = bayesnmf.fit(counts, rank=2, seed=0, covariates=x, options=options, row_exposure=sizes)
    for fit in (exposed, fitted("vi")):
        assert not any("vary up to" in caution for caution in fit.effects(variation="prior").attrs["cautions"])
    with pytest.raises(ValueError, match="variation"):
        plain.effects(variation="posterior")


@quietly
def test_the_covariance_by_rows_is_that_of_fits_without_each_row():
    """A jackknife of the marginal likelihood of loadings with heavy tails, whose shape is held."""
    rng = np.random.default_rng(1)
    x, n = np.append(rng.standard_normal(58), [3.0, -3.0]), 60  # two rows with much leverage
    counts = rng.poisson(np.exp(rng.normal(3, 1, n)))[:, None] * np.ones((1, 1), np.int64)
    options = plain_vi(tol=1e-12, max_iter=2000, priors=Priors(Gamma(1.5, 0.1), Dirichlet(1)))
    fit = bayesnmf.fit(counts, rank=1, seed=0, fixed_components=np.eye(1), covariates={"x": x}, options=options)
    prior = fit.priors.loadings
    a, rate = float(prior.plain.shape[0, 0]), float(np.ravel(prior.plain.rate)[0])

    def found_without(row):
        kept, beta = np.arange(n) != row, prior.effects[:, 0]
        design, y = prior.design[kept], counts[kept, 0]
        for _ in range(30):
            mean = a / rate * np.exp(design @ beta)
            slope = design.T @ (a * (y - mean) / (a + mean)) - prior.precision[:, 0] * beta
            weight = a * mean * (a + y) / (a + mean) ** 2
            beta = beta + np.linalg.solve((design.T * weight) @ design + np.diag(prior.precision[:, 0]), slope)
        return beta

    moved = np.array([found_without(row) for row in range(n)]) - found_without(-1)
    known = known_of_effects(prior, terms_of_mean_field(*state_of_fit(fit)))
    of_prior = known.by_prior @ np.diag(prior.precision[:, 0]) @ known.by_prior
    assert known.by_rows - of_prior == pytest.approx(moved.T @ moved, rel=0.1, abs=2e-4)


@quietly
def test_a_level_of_one_row_has_the_variation_of_the_prior():
    """It leaves no residual, which would be an interval of no width."""
    level = np.where(np.arange(N) == 7, "alone", "others")
    fit = bayesnmf.fit(COUNTS.to_numpy(), rank=K, seed=0, formula="~ level", covariates={"level": level},
                       options=plain_vi(max_iter=200))  # fmt: skip
    rows, prior = (fit.effects(variation=each).xs("level[T.others]", level="term").sd for each in ("rows", "prior"))
    assert rows.to_numpy() == pytest.approx(prior.to_numpy(), rel=0.25)


@pytest.mark.parametrize("method", ["vi", "gibbs"])
def test_predicted_shares(method):
    """Shares lie in [0, 1] and sum to 1; they are those of the expected counts at the covariates."""
    fit = fitted(method)
    table = fit.predicted_shares(pd.DataFrame({"age": [20.0, 80.0], "arm": ["a", "c"]}, ["young", "old"]))
    assert table.share.groupby("row").sum().to_numpy() == pytest.approx(1)
    assert ((table.low >= 0) & (table.high <= 1) & (table.low < table.share) & (table.share < table.high)).all()
    first = int(np.argmax(fit.components[:, 0]))
    assert table.share["old", first] == pytest.approx(np.exp(1.5) / (1 + np.exp(1.5)), abs=0.15)
    assert table.share["young", first] == pytest.approx(1 - np.exp(1.5) / (1 + np.exp(1.5)), abs=0.15)
    with pytest.raises(ValueError, match="'d', which no fitted row has"):
        fit.predicted_shares({"age": [20.0], "arm": ["d"]})


@pytest.mark.parametrize("method", OPTIONS)
def test_files_keep_effects(method, tmp_path):
    fit = fitted(method)
    fit.save(tmp_path / "fit.nc")
    again = bayesnmf.load(tmp_path / "fit.nc")
    pd.testing.assert_frame_equal(again.effects(), fit.effects(), check_exact=True)
    new = {"age": [33.0], "arm": ["b"]}
    pd.testing.assert_frame_equal(again.predicted_shares(new), fit.predicted_shares(new), check_exact=True)
    assert again.priors.loadings.coding == fit.priors.loadings.coding


def test_components_in_another_order_take_their_effects_along():
    for method in ("vi", "gibbs"):
        fit = fitted(method)
        other = bayesnmf.Fit.of(relabel(fit, np.array([1, 0])))
        assert other.effects().effect[1].to_numpy() == pytest.approx(fit.effects().effect[0].to_numpy(), rel=0.05)
    exact = drawn_effects(fit, "prior").draws[:, :, ::-1]
    assert drawn_effects(other, "prior").draws == pytest.approx(exact)


@quietly
def test_trees_and_summaries_have_drawn_effects():
    fit = fitted("gibbs").rename(["first", "second"])
    tree = fit.to_datatree(draws=50)
    effects = tree.posterior.effects
    assert effects.dims == ("chain", "draw", "term", "k")
    assert effects.term.values.tolist() == ["Intercept", "age", "arm[T.b]", "arm[T.c]"]
    assert tree.posterior.shapes.dims == ("chain", "draw", "k")
    assert "effects" not in tree.sample_stats
    whole = fit.to_datatree().posterior.effects.mean(("chain", "draw"))
    table = fit.effects().effect.unstack("component")
    assert whole.sel(term=table.index.to_numpy()).values == pytest.approx(table.to_numpy())
    summary = fit.summary()
    assert {"effects[age, first]", "effects[Intercept, second]"} <= set(summary.index)
    assert (
        fit.diagnostics["max_r_hat"]
        >= summary.r_hat[[name for name in summary.index if "effects" in name]].max() - 0.01
    )


@pytest.mark.parametrize("method", OPTIONS)
def test_new_rows_have_the_prior_at_their_covariates(method):
    """A row without counts has the loadings that its prior leaves: (a + 0) / (a / μ + 1) on average."""
    fit = fitted(method)
    prior = fit.priors.loadings
    new = pd.DataFrame({"age": [25.0, 75.0], "arm": ["a", "b"]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bayesnmf.DataWarning)
        found = fit.transform(np.array([[0, 0, 0, 0], [0, 0, 0, 1]]), covariates=new)[0]
    coding = Coding.of_text(prior.coding)
    at = coding.standardised(np.array([[1, 25.0, 0, 0]]))
    mean = np.ravel(prior.plain.mean()) * np.exp(at @ prior.effects)[0]
    shape = np.ravel(prior.plain.shape)
    assert found == pytest.approx(shape / (shape / mean + 1), rel=0.2 if method == "gibbs" else 1e-5)


def test_new_rows_without_covariates_are_refused():
    fit = fitted("vi")
    with pytest.raises(ValueError, match="transform of a fit with covariates needs those of its rows"):
        fit.transform(COUNTS)
    plain = bayesnmf.fit(COUNTS, rank=K, seed=0, options=plain_vi(tol=1e-3))
    with pytest.raises(ValueError, match="covariates need a fit with covariates"):
        plain.transform(COUNTS, covariates=FRAME)
    for ask in (
        plain.effects,
        lambda: plain.predicted_shares(FRAME),
        lambda: fit.project(COUNTS, covariates=FRAME).effects(),
    ):
        with pytest.raises(ValueError, match="effects are those of a fit with covariates"):
            ask()
