"""Negative binomial noise of linear variance: densities, bounds and draws of every model that has it."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from plain import PLAIN, even_priors, plain_map, plain_vi
from scipy.stats import dirichlet_multinomial, nbinom
from smallfits import quietly
from suites import crossed

import bayesnmf
from bayesnmf import VI, Dirichlet, Gamma, Gibbs, NegativeBinomial, Priors
from bayesnmf.assessment.bounds import state_of_fit
from bayesnmf.data.clustered import exposure_of
from bayesnmf.data.conversion import as_counts
from bayesnmf.data.missing import with_missing
from bayesnmf.data.powered import working_counts
from bayesnmf.fitting.problems import point_or_mean_field, start_state
from bayesnmf.inference.ascent import minibatch
from bayesnmf.inference.ascent.coordinate_ascent import ascend, plain_steps
from bayesnmf.inference.ascent.course import Schedule
from bayesnmf.inference.ascent.minibatch import Batching, minibatch_ascent
from bayesnmf.inference.dispersion import DispersionLearner
from bayesnmf.inference.evidence_of_dispersion import evidence_at
from bayesnmf.inference.sampling.clusters import log_likelihood_at
from bayesnmf.inference.sides import allocate, objective
from bayesnmf.inference.starts.states import given_state
from bayesnmf.options import MAP
from bayesnmf.priors.specification import MODELS

K, S = 3, 1.5
every_model = pytest.mark.parametrize("model", MODELS)
POSITIVE = ("poisson", "gamma_poisson", "hierarchical_poisson")


def clustered(n=40, m=25, s=S, seed=3):
    """Return counts of this dispersion."""
    rng = np.random.default_rng(seed)
    means = rng.gamma(1, 1, (n, K)) @ rng.dirichlet(np.full(m, 0.3), K) * 200
    return rng.poisson(rng.gamma(means / s, s))


COUNTS = clustered()
GAMMA = Priors(Gamma(1.0, 0.01), Gamma(0.5, 5.0))


def options_of(method, model="gamma_poisson", **settings):
    if method == "gibbs":
        return Gibbs(**{"chains": 2, "draws": 40, "warmup": 20, "start": "random", "threads": 1} | settings)
    return PLAIN[method](**{"priors": even_priors(COUNTS, model), "threads": 1, "tol": 1e-6} | settings)


# --- densities ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "missing"])
@pytest.mark.parametrize("by", [None, "row", "feature"])
@pytest.mark.parametrize("model", ["poisson", "dirichlet_poisson", "dirichlet_gamma"])
def test_the_objective_is_the_density_of_scipy(model, by, whole):
    """With exposures; given totals, what it gains is that of Dirichlet-multinomials over multinomials."""
    given = MODELS[model].given_totals
    if given and (by == "feature" or not whole):
        pytest.skip("refused")
    rng = np.random.default_rng(0)
    n, m = COUNTS.shape
    lines = {None: 1, "row": n, "feature": m}[by]
    s = rng.gamma(1, 1, lines)
    noise = NegativeBinomial("linear", float(s[0]) if by is None else s, by)
    seen = (rng.random((n, m)) < 0.7) | whole
    data = with_missing(as_counts(COUNTS), None, None if whole else seen)
    if not given:
        data = data.with_exposure(rng.gamma(2, 1, n), rng.gamma(2, 1, m) if model == "poisson" else None)
    priors = Priors(Gamma(1.0, 0.0), Gamma(1.0, 0.0)) if model == "poisson" else even_priors(COUNTS, model)
    counts = working_counts(data, noise, given_totals=given, components=priors.components)
    problem = point_or_mean_field(counts, MAP(priors=priors, basis="natural"))
    theta, beta = rng.gamma(1, 20, (n, K)), rng.dirichlet(np.ones(m), K)
    if model != "poisson":
        scale, theta = rng.gamma(20, 10, (n, 1)), theta / theta.sum(axis=1, keepdims=True)
    value = bayesnmf.priors.ScaledProportions(theta, scale) if model == "dirichlet_gamma" else theta
    state = given_state(problem, value, beta)
    means = theta @ beta * (data.row_totals[:, None] if given else scale if model == "dirichlet_gamma" else 1.0)
    means = means * data.row_factor * data.feature_factor
    each = np.broadcast_to(s[:, None] if by == "row" else s, means.shape)
    found = objective(problem, state, allocate(problem, state, 1).loglik)
    found -= state.loadings.penalty + state.components.penalty
    if given:
        dense = [
            dirichlet_multinomial.logpmf(x, mean / t, x.sum())
            for x, mean, t in zip(COUNTS, means, each[:, :1], strict=True)
        ]
        plain = replace(problem, counts=data)
        at = (
            objective(plain, state, allocate(plain, state, 1).loglik)
            - state.loadings.penalty
            - state.components.penalty
        )
        from scipy.stats import multinomial

        base = sum(multinomial.logpmf(x, x.sum(), mean / mean.sum()) for x, mean in zip(COUNTS, means, strict=True))
        assert found - at == pytest.approx(sum(dense) - base, rel=1e-9)
    else:
        dense = nbinom.logpmf(COUNTS, means / each, 1 / (1 + each))
        assert found == pytest.approx(dense[seen].sum(), rel=1e-9)
    assert log_likelihood_at(problem, state, 1) == pytest.approx(allocate(problem, state, 1).loglik, rel=1e-12)


@quietly
@every_model
@pytest.mark.parametrize("method", ["map", "vi"])
def test_without_dispersion_it_is_the_poisson_fit(method, model):
    options = options_of(method, model, max_iter=15)
    one, two = (bayesnmf.fit(COUNTS, model, K, method, seed=0, options=options, noise=noise)
                for noise in ("poisson", NegativeBinomial(dispersion=0)))  # fmt: skip
    np.testing.assert_allclose(two.trace, one.trace, rtol=1e-7)
    np.testing.assert_allclose(two.components, one.components, rtol=1e-4, atol=1e-12)


# --- ascents --------------------------------------------------------------------------------------------


@quietly
@every_model
@pytest.mark.parametrize("method", ["map", "vi"])
@pytest.mark.parametrize("dispersion", [None, "row", 2.0])
def test_every_step_raises_the_objective(method, model, dispersion):
    noise = NegativeBinomial(dispersion=dispersion)
    fit = bayesnmf.fit(COUNTS, model, K, method, seed=0, options=options_of(method, model, max_iter=40), noise=noise)
    assert np.diff(fit.trace).min() > -1e-9 * abs(fit.trace[-1])
    found = np.asarray(fit.noise.dispersion)
    assert found.shape == (() if dispersion != "row" else (len(COUNTS),))
    if dispersion is None:
        assert 0.8 < found < 1.9  # of 1.5; maximum likelihood gives some of the noise to 200 free numbers


@quietly
@pytest.mark.parametrize("dispersion", [None, "row"])
@pytest.mark.parametrize("model", ["poisson", "gamma_poisson"])
def test_coordinate_descent_ends_where_em_does_at_a_stationary_point(model, dispersion):
    """Derivatives of Poisson counts would end tens of nats lower, and leave a gradient."""
    ends = {}
    for algorithm in ("em", "scd", "ccd"):
        options = options_of("map", model, algorithm=algorithm, tol=1e-10, max_iter=400)
        noise = NegativeBinomial(dispersion=dispersion)
        fit = bayesnmf.fit(COUNTS, model, K, "map", seed=0, options=options, noise=noise)
        assert np.diff(fit.trace).min() > -1e-9 * abs(fit.trace[-1])
        ends[algorithm] = fit.trace[-1]
        if algorithm != "em":
            assert fit.status.converged
            assert fit.status.iterations < 80
            assert fit.diagnostics["least_gradient"] > -1e-3
    assert ends["scd"] == pytest.approx(ends["ccd"], abs=0.05)
    assert ends["em"] == pytest.approx(ends["scd"], abs=0.5)
    single = options_of("map", model, algorithm="scd", dtype="float32")
    rough = bayesnmf.fit(COUNTS, model, K, "map", seed=0, options=single, noise=noise)
    assert rough.trace[-1] == pytest.approx(ends["scd"], abs=1.0)


@quietly
@pytest.mark.parametrize("model", ["gamma_poisson", "dirichlet_poisson"])
def test_loadings_that_settle_first_end_at_the_same_bound(model):
    ends = []
    for algorithm in ("settled", "coordinate"):
        options = options_of("vi", model, algorithm=algorithm, tol=1e-8, max_iter=300)
        fit = bayesnmf.fit(COUNTS, model, K, seed=0, options=options, noise="nb1")
        assert np.diff(fit.trace).min() > -1e-9 * abs(fit.trace[-1])
        ends.append(fit.trace[-1])
    assert ends[0] == pytest.approx(ends[1], abs=0.5)


@quietly
@pytest.mark.parametrize("method", ["map", "vi"])
def test_features_of_gamma_components_have_their_own_dispersion(method):
    rng = np.random.default_rng(1)
    s = np.where(np.arange(20) < 10, 0.3, 6.0)
    means = rng.gamma(1, 1, (150, K)) @ rng.dirichlet(np.ones(20), K) * 300
    counts = rng.poisson(rng.gamma(means / s, s))
    options = PLAIN[method](priors=GAMMA, threads=1, max_iter=150, tol=1e-6)
    fit = bayesnmf.fit(
        counts, "gamma_poisson", K, method, seed=0, options=options, noise=NegativeBinomial(dispersion="feature")
    )
    assert np.diff(fit.trace).min() > -1e-9 * abs(fit.trace[-1])
    assert fit.noise.dispersion[:10].max() < 1 < 3 < fit.noise.dispersion[10:].min()


@quietly
@pytest.mark.parametrize("model", ["gamma_poisson", "dirichlet_poisson"])
def test_the_bound_is_below_the_evidence_and_reached_by_no_other_dispersion(model):
    """The marginal bound is between; Newton's dispersion is a maximum of the bound at its q, to 1e-4 nats."""
    fit = bayesnmf.fit(COUNTS, model, K, seed=0, options=options_of("vi", model, tol=1e-9), noise="nb1")
    problem, state = state_of_fit(fit)
    assert objective(problem, state, allocate(problem, state, 1).loglik) == pytest.approx(
        fit.trace[-1] + (np.log(fit.noise.dispersion / 0.3)) ** 2 / 8, abs=1e-3
    )
    s = float(fit.noise.dispersion)
    at = [evidence_at(problem, state, 1).log_density(np.array([s * factor]))[0] for factor in (0.97, 1.0, 1.03)]
    assert at[1] > max(at[0], at[2])


def test_the_bound_of_a_tiny_case_is_that_of_enumerated_clusters():
    """E_q log p(x, l, allocations) + entropy by brute force over the numbers of clusters: Stirling numbers and all."""
    counts = working_counts(
        as_counts(np.array([[3.0, 0.0], [1.0, 4.0]])), NegativeBinomial(dispersion=0.8), given_totals=False
    )
    problem = point_or_mean_field(counts, VI(priors=Priors(Gamma(1.0, 1.0), Dirichlet(1.0))))
    rng = np.random.default_rng(0)
    state = given_state(problem, rng.gamma(1, 2, (2, 2)), rng.dirichlet(np.ones(2), 2))
    found = (
        objective(problem, state, allocate(problem, state, 1).loglik)
        - state.loadings.penalty
        - state.components.penalty
    )
    e, stirling = exposure_of(0.8), [[1], [0, 1], [0, 1, 1], [0, 2, 3, 1], [0, 6, 11, 6, 1]]
    geometric = state.loadings.geometric @ state.components.geometric
    if state.loadings.log_shift is not None:
        geometric = geometric * np.exp(state.loadings.log_shift)
    if state.components.log_shift is not None:
        geometric = geometric * np.exp(state.components.log_shift)
    expected = -e * (state.loadings.value @ state.components.value).sum()
    for i, j in product(range(2), range(2)):
        x = int(counts.matrix[i, j])
        r = geometric[i, j] / 0.8
        terms = sum(number * r**clusters for clusters, number in enumerate(stirling[x]))
        expected += np.log(terms) + x * np.log(0.8 / 1.8) - np.log(float(np.prod(range(1, x + 1))))
    assert found == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("by", [None, "row"])
def test_derivatives_of_the_dispersion_are_differences_of_its_density(by, given):
    counts = working_counts(
        as_counts(COUNTS), NegativeBinomial("linear", np.ones(40) if by else 1.0, by), given_totals=given
    )
    model = "dirichlet_poisson" if given else "gamma_poisson"
    problem = point_or_mean_field(counts, VI(priors=even_priors(COUNTS, model)))
    rng = np.random.default_rng(0)
    theta = rng.dirichlet(np.ones(K), 40) if given else rng.gamma(1, 60, (40, K))
    state = given_state(problem, theta, rng.dirichlet(np.ones(25), K))
    evidence = evidence_at(problem, state, 1)
    for s in (3e-5, 0.02, 0.7, 30.0):
        at, step = np.full(40 if by else 1, s), 1e-4
        low, high = (evidence.log_density(at * np.exp(h)) for h in (-step, step))
        slopes = [evidence._slope_and_bend(at * np.exp(h))[0] for h in (-step, step)]
        slope, bend = evidence._slope_and_bend(at)
        np.testing.assert_allclose(slope, (high - low) / (2 * step), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(bend, (slopes[1] - slopes[0]) / (2 * step), rtol=1e-4, atol=1e-5)


# --- draws ----------------------------------------------------------------------------------------------


@quietly
@pytest.mark.long
@pytest.mark.parametrize("model", ["gamma_poisson", "dirichlet_poisson", "dirichlet_gamma"])
def test_both_samplers_agree_on_dispersion_and_means(model):
    """A wrong exposure of the clusters, e(s), would move the means by about a quarter."""
    fits = [
        bayesnmf.fit(
            COUNTS,
            model,
            1,
            "gibbs",
            seed=seed,
            noise="nb1",
            options=options_of("gibbs", algorithm=algorithm, draws=1500, warmup=100),
        )
        for seed, algorithm in enumerate(("allocations", "marginal"))
    ]
    s = [fit.statistics["dispersion"] for fit in fits]
    assert s[0].mean() == pytest.approx(s[1].mean(), abs=5 * s[0].std() / np.sqrt(300))
    assert s[0].std() == pytest.approx(s[1].std(), rel=0.2)
    for side in ("loadings", "components"):
        one, two = (getattr(fit.posterior, side) for fit in fits)
        z = (one.mean(axis=(0, 1)) - two.mean(axis=(0, 1))) / np.maximum(one.std(axis=(0, 1)), 1e-12) * np.sqrt(500)
        assert np.sqrt(np.mean(z**2)) < 2
    assert fits[0].noise.dispersion == pytest.approx(s[0].mean())


@quietly
@pytest.mark.parametrize(("algorithm", "by"), crossed(["allocations", "marginal"], [None, "feature"]))
def test_draws_of_one_row_given_its_component_are_those_of_the_exact_posterior(algorithm, by):
    """One loading, by numerical integration; sampling clusters with x / λ in place of W halves the sd here.

    With a dispersion for each feature, one entry is missing, too: its exposure would move the mean by a sixth.
    """
    x, beta, s = np.array([[30, 0, 11, 4]]), np.array([[0.4, 0.1, 0.3, 0.2]]), 4.0
    seen = None
    if by:
        s, seen = np.array([1.0, 2.0, 8.0, 4.0]), np.array([[True, False, True, True]])
    theta = np.linspace(0.5, 200, 4000)
    log_p = nbinom.logpmf(x, theta[:, None] * beta / s, 1 / (1 + s))
    log_p = (log_p if seen is None else log_p * seen).sum(axis=1) - 0.02 * theta
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean, sd = p @ theta, np.sqrt(p @ theta**2 - (p @ theta) ** 2)
    priors = Priors(Gamma(1.0, 0.02), Dirichlet(1.0))
    fit = bayesnmf.fit(
        x, "gamma_poisson", method="gibbs", seed=0, fixed_components=beta, observed=seen,
        noise=NegativeBinomial(dispersion=s, by=by),
        options=Gibbs(priors=priors, chains=2, draws=800, warmup=50, start="random", algorithm=algorithm, threads=1),
    )  # fmt: skip
    draws = fit.posterior.loadings.ravel()
    assert draws.mean() == pytest.approx(mean, abs=6 * sd / np.sqrt(600))
    assert draws.std() == pytest.approx(sd, rel=0.15)


@quietly
def test_chains_resume_and_thin_with_their_dispersions(tmp_path):
    options = options_of("gibbs", draws=30, warmup=5)
    one = bayesnmf.fit(COUNTS, rank=2, method="gibbs", seed=0, options=options, noise="nb1")
    two = bayesnmf.fit(COUNTS, rank=2, method="gibbs", seed=0, options=options, noise="nb1", checkpoint=tmp_path)
    np.testing.assert_array_equal(one.statistics["dispersion"], two.statistics["dispersion"])
    assert one.statistics["dispersion"].shape == (2, 30)
    rows = bayesnmf.fit(
        COUNTS, rank=2, method="gibbs", seed=0, options=options, noise=NegativeBinomial(dispersion="row")
    )
    assert rows.statistics["dispersion"].shape == (2, 30, 40)
    np.testing.assert_array_equal(rows.noise.dispersion, rows.statistics["dispersion"].mean(axis=(0, 1)))


# --- views, files, refusals -----------------------------------------------------------------------------


@quietly
@pytest.mark.parametrize("dispersion", [None, "row"])
def test_views_and_files_keep_the_noise(dispersion, tmp_path):
    options = options_of("vi", tol=1e-10)
    fit = bayesnmf.fit(COUNTS, rank=K, seed=0, options=options, noise=NegativeBinomial(dispersion=dispersion))
    fit.save(tmp_path / "fit.nc")
    loaded = bayesnmf.load(tmp_path / "fit.nc")
    assert all(view.noise == fit.noise for view in (loaded, fit.rename(components=list("abc"))))
    assert "negative binomial noise: variance" in " ".join(repr(loaded).split())
    if dispersion is None:
        assert fit.project(COUNTS[:4]).noise == fit.noise
        np.testing.assert_allclose(fit.transform(COUNTS), fit.loadings, rtol=1e-3)
        assert fit.with_intervals("sampled", draws=20).noise == fit.noise
    else:
        assert fit.project(COUNTS[:4]).noise.dispersion == pytest.approx(np.median(fit.noise.dispersion))


@quietly
def test_missing_entries_add_nothing():
    """The fit without a row whose entries are all missing is the fit without the row."""
    observed = np.ones(COUNTS.shape, bool)
    observed[7] = False
    options = options_of(
        "map", "poisson", priors=GAMMA, start=bayesnmf.Start(np.ones((40, 2)), np.arange(1, 51).reshape(2, 25) / 99.0)
    )
    noise = NegativeBinomial(dispersion=1.2)
    whole = bayesnmf.fit(COUNTS, "poisson", 2, "map", seed=0, options=options, noise=noise, observed=observed)
    part = replace(options, start=bayesnmf.Start(np.ones((39, 2)), options.start.components))
    without = bayesnmf.fit(np.delete(COUNTS, 7, 0), "poisson", 2, "map", seed=0, options=part, noise=noise)
    np.testing.assert_allclose(whole.components, without.components, rtol=1e-9)


@quietly
@every_model
@pytest.mark.parametrize("method", ["map", "vi", "gibbs"])
def test_rows_and_features_without_counts_are_legal(method, model):
    counts = COUNTS.copy()
    counts[3], counts[:, 4] = 0, 0
    options = options_of(method, model) if method == "gibbs" else options_of(method, model, max_iter=15)
    fit = bayesnmf.fit(counts, model, 2, method, seed=0, noise="nb1", options=options)
    assert np.isfinite(fit.loadings).all()
    assert np.isfinite(fit.trace).all()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            {"method": "bld", "model": "dirichlet_gamma"},
            "noise='nb1' needs method='map', 'vi', 'nuts', 'svi', 'smc' or 'gibbs'",
        ),
        ({"counts": COUNTS + 0.1234}, "needs whole-number counts"),
        (
            {"method": "map", "model": "dirichlet_poisson", "options": plain_map(algorithm="scd")},
            "noise='nb1' and algorithm='scd' need Gamma loadings",
        ),
        ({"method": "gibbs", "options": Gibbs(collapsed=True), "model": "dirichlet_poisson"}, "collapsed=False"),
        (
            {"noise": NegativeBinomial(dispersion="feature"), "options": VI(algorithm="minibatch")},
            "per feature and components on the simplex need algorithm='coordinate'",
        ),
        (
            {"noise": NegativeBinomial(dispersion="feature"), "method": "gibbs", "model": "dirichlet_gamma"},
            "need Gamma loadings: found ScaledDirichlet",
        ),
        ({"noise": NegativeBinomial(dispersion="feature"), "model": "dirichlet_poisson"}, "no closed form"),
        ({"noise": NegativeBinomial("linear", np.ones(3), "row")}, "one number for each row"),
        ({"model": "dirichlet_poisson", "observed": COUNTS > 1}, "given totals need all entries"),
    ],
)
def test_what_has_no_closed_form_is_refused_by_name(arguments, words):
    given = {"counts": COUNTS, "rank": 2, "noise": "nb1", **arguments}
    with pytest.raises(ValueError, match=words):
        bayesnmf.fit(given.pop("counts"), **given)


def test_a_dispersion_is_a_number_an_array_or_a_word():
    assert NegativeBinomial(dispersion="row").by == "row"
    for wrong in (-1, np.ones(3), np.inf):
        with pytest.raises(ValueError, match="dispersion must be"):
            NegativeBinomial(dispersion=wrong)
    with pytest.raises(ValueError, match="dispersion must be one of 'row', 'feature'"):
        NegativeBinomial(dispersion="gene")


def test_a_noise_keeps_its_own_array_and_says_one_thing_of_whose_it_is():
    own = np.zeros(12)
    noise = NegativeBinomial("linear", own, by="row")
    own[0] = 9.0
    assert noise.dispersion[0] == 0
    with pytest.raises(ValueError, match="read-only"):
        noise.dispersion[0] = 1.0
    with pytest.raises(ValueError, match="by must be"):
        NegativeBinomial(dispersion="row", by="feature")


@quietly
@pytest.mark.parametrize("dispersion", [None, "row", "feature"])
@pytest.mark.parametrize("model", ["gamma_poisson", "dirichlet_gamma"])
def test_the_bound_with_missing_entries_rises_to_the_best_dispersion(model, dispersion):
    """With the means of observed entries alone, rows fell by 1e-3 nats, and one dispersion was a third of the best."""
    observed = np.random.default_rng(5).random(COUNTS.shape) < 0.5
    given = {"model": model, "rank": 2, "seed": 0, "observed": observed}
    options = options_of("vi", model, max_iter=150)
    fit = bayesnmf.fit(COUNTS, noise=NegativeBinomial(dispersion=dispersion), options=options, **given)
    assert np.diff(fit.trace).min() > -1e-9 * abs(fit.trace[-1])
    if dispersion is None:
        s, again = fit.noise.dispersion, replace(options, start=fit)
        at, low, high = (
            bayesnmf.fit(COUNTS, noise=NegativeBinomial(dispersion=s * k), options=again, **given).trace[-1]
            for k in (1.0, 0.7, 1.4)
        )
        assert at > max(low, high)


@quietly
def test_checkpoints_tell_arrays_of_dispersions_apart(tmp_path):
    given = {"rank": 2, "seed": 0, "options": options_of("vi", max_iter=5), "checkpoint": tmp_path}
    bayesnmf.fit(COUNTS, noise=NegativeBinomial("linear", np.zeros(40), "row"), **given)
    with pytest.raises(ValueError, match="checkpoint must contain fits of the same"):
        bayesnmf.fit(COUNTS, noise=NegativeBinomial("linear", np.full(40, 5.0), "row"), **given)


@quietly
@pytest.mark.long
def test_a_report_repeats_a_learned_noise(tmp_path):
    options = plain_vi(max_iter=3, restarts=2, threads=1)
    fit = bayesnmf.fit(COUNTS, rank=2, seed=0, options=options, noise="nb1")
    assert fit.diagnostics["restarts"] == 2
    assert "noise=bayesnmf.NegativeBinomial(&#39;linear&#39;)" in bayesnmf.report(fit, tmp_path / "a.html").read_text()
    assert len(bayesnmf.predictive_checks(fit.project(COUNTS[:3]), draws=10, refits=20).table) == 5


# --- batches --------------------------------------------------------------------------------------------

MOST_ROWS = clustered(150, 20)
MOST_ROWS[7], MOST_ROWS[:, 5] = 0, 0


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("by", [None, "row", "feature"])
@pytest.mark.parametrize("model", ["gamma_poisson", "dirichlet_poisson", "dirichlet_gamma", "poisson"])
def test_whole_steps_of_all_rows_are_coordinate_ascent(model, by, learned, monkeypatch):
    """Features without counts are merged; a dispersion is learned after each step, as in coordinate ascent."""
    if by == "feature" and model != "poisson":
        pytest.skip("refused")
    monkeypatch.setattr(minibatch, "FINAL_ITER", 0)
    size = {None: (), "row": (150,), "feature": (20,)}[by]
    noise = NegativeBinomial(dispersion=np.full(size, S) if size else S, by=by)
    counts = working_counts(as_counts(MOST_ROWS), noise, given_totals=MODELS[model].given_totals, learned=learned)
    priors = even_priors(MOST_ROWS, model, 2) if model != "poisson" else GAMMA
    problem = point_or_mean_field(counts, plain_vi(priors=priors, threads=1))
    state = start_state(problem, "random", 2, np.random.default_rng(3))
    learn = DispersionLearner(1) if learned else None
    steps = plain_steps(Schedule(threads=1, max_iter=4, tol=0))
    theirs = ascend(problem, state, Schedule(max_iter=4, tol=0, threads=1), steps=steps, learn=learn)
    ours = minibatch_ascent(
        problem, state, Schedule(max_iter=4, tol=0, threads=1), lambda *_: None,
        Batching(size=150, forgetting=0.0, delay=0.0, sweeps=1), np.random.default_rng(0),
    )  # fmt: skip
    np.testing.assert_allclose(ours.problem.counts.dispersions, theirs.problem.counts.dispersions, rtol=1e-6)
    np.testing.assert_allclose(ours.trace, theirs.trace, rtol=1e-9)
    np.testing.assert_allclose(ours.state.components.matrix, theirs.state.components.matrix, rtol=1e-6, atol=1e-12)


@quietly
@pytest.mark.long
def test_batches_of_rows_end_near_all_rows():
    options = VI(algorithm="minibatch", batch_size=40, threads=1, tol=1e-6)
    whole, fit = (
        bayesnmf.fit(MOST_ROWS, rank=3, seed=0, noise="nb1", options=each) for each in (VI(threads=1), options)
    )
    assert fit.trace[-1] == pytest.approx(whole.trace[-1], rel=5e-4)
    assert fit.noise.dispersion == pytest.approx(whole.noise.dispersion, rel=0.01)


@quietly
def test_batches_resume_with_their_dispersion(tmp_path):
    options = VI(algorithm="minibatch", batch_size=80, threads=1, max_iter=2, start="random")
    given = {"counts": MOST_ROWS, "rank": 2, "seed": 0, "noise": "nb1", "options": options}
    one, two = (bayesnmf.fit(**given, checkpoint=place) for place in (None, tmp_path))
    assert one.noise == two.noise
    np.testing.assert_array_equal(one.components, two.components)
