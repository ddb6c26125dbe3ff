"""Negative binomial noise of quadratic variance: objectives against SciPy, posteriors against integrals and priors."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from plain import PLAIN, plain_map, plain_vi
from scipy.special import digamma
from scipy.stats import beta, dirichlet, gamma, nbinom
from smallfits import quietly

import bayesnmf
from bayesnmf import Dirichlet, Gamma, Gibbs, NegativeBinomial, Priors
from bayesnmf.data.conversion import as_counts
from bayesnmf.data.missing import with_missing
from bayesnmf.data.powered import working_counts
from bayesnmf.fitting.problems import draws_problem, point_or_mean_field
from bayesnmf.inference.checkpoints.exact import from_bytes, recall, to_bytes
from bayesnmf.inference.evidence_of_dispersion import evidence_at
from bayesnmf.inference.rates import EntryMeans
from bayesnmf.inference.sampling import gibbs
from bayesnmf.inference.sampling.clusters import DrawnBeside
from bayesnmf.inference.sampling.gibbs import Allocating, Entries, sweep
from bayesnmf.inference.sides import exposure_of_components, exposure_of_loadings, given_totals, with_rates_at
from bayesnmf.inference.starts.states import given_state
from bayesnmf.options.combinations import check_together
from bayesnmf.options.rules import Request
from bayesnmf.results.intervals import r_hat_and_ess

K, N, M = 3, 18, 12
PRIORS = {
    "poisson": Priors(Gamma(1.5, 0.05), Gamma(1.3, 1.0)),
    "gamma_poisson": Priors(Gamma(1.5, 0.01), Dirichlet(1.4)),
    "hierarchical_poisson": None,
    "dirichlet_gamma": None,
}
DISPERSION = {None: 0.1, "row": np.linspace(0.02, 0.3, N), "feature": np.linspace(0.3, 0.02, M)}
every_axis = pytest.mark.parametrize("by", [None, "row", "feature"])
both_kinds = pytest.mark.parametrize("model", ["poisson", "gamma_poisson"])
masked = pytest.mark.parametrize("mask", [False, True])
MONOTONE = [  # by default every model with every axis, each with a method, and with a mask or without
    pytest.param(
        model, method, by, mask, marks=() if (i + a) % 2 == j and (i // 2 + a) % 2 == mask else pytest.mark.long
    )
    for i, model in enumerate(PRIORS)
    for j, method in enumerate(("map", "vi"))
    for a, by in enumerate(DISPERSION)
    for mask in (False, True)
]


def sample(n=N, m=M, alpha=0.1, seed=1, total=150):
    rng = np.random.default_rng(seed)
    means = rng.gamma(1, 1, (n, K)) @ rng.dirichlet(np.full(m, 0.4), K) * total
    return rng.poisson(means * rng.gamma(1 / alpha, alpha, means.shape))


COUNTS = sample()
OBSERVED = np.random.default_rng(5).random(COUNTS.shape) > 0.2
OBSERVED[3] = False


def noise_of(by=None, given=True):
    return NegativeBinomial("quadratic", DISPERSION[by] if given else by, by if given else None)


def fitted(model, method, noise, mask=False, **settings):
    priors = {} if PRIORS[model] is None else {"priors": PRIORS[model]}
    options = PLAIN[method](threads=1, **priors, **settings)
    observed = OBSERVED if mask else None
    return bayesnmf.fit(COUNTS, model, K, method, seed=0, options=options, noise=noise, observed=observed)


@quietly
@both_kinds
@every_axis
def test_the_objective_of_a_mode_is_the_log_joint(model, by):
    """With exposures of rows and missing entries, to rounding."""
    rows = np.linspace(0.5, 2, N)
    options = plain_map(threads=1, priors=PRIORS[model], basis="natural", max_iter=7)
    given = {"seed": 0, "options": options, "row_exposure": rows, "observed": OBSERVED}
    fit = bayesnmf.fit(COUNTS, model, K, "map", noise=noise_of(by), **given)
    alpha = np.asarray(DISPERSION[by])[:, None] if by == "row" else DISPERSION[by] * np.ones(M)
    mean = rows[:, None] * (fit.loadings @ fit.components)
    value = nbinom.logpmf(COUNTS, 1 / alpha, 1 / (1 + alpha * mean))[OBSERVED].sum()
    value += PRIORS[model].loadings.log_density(fit.loadings)
    if model == "poisson":
        value += gamma.logpdf(fit.components, 1.3).sum()
    else:
        value += sum(dirichlet.logpdf(row / row.sum(), np.full(M, 1.4)) for row in fit.components)
    assert fit.trace[-1] == pytest.approx(value, rel=1e-12)


@quietly
@pytest.mark.parametrize(("model", "method", "by", "mask"), MONOTONE)
def test_the_objective_never_falls(model, method, by, mask):
    """Whether the dispersion is given or learned; without the guard of learned steps, vi with a mask fell by 0.06."""
    if mask and PRIORS[model] is None and method == "vi":
        mask = False  # their default priors of rows without cells are not proper
    for given in (True, False):
        fit = fitted(model, method, noise_of(by, given), mask, tol=0, max_iter=60)
        assert np.diff(fit.trace).min() > -1e-11 * abs(fit.trace[-1])


@quietly
@pytest.mark.parametrize("method", ["map", "vi"])
@pytest.mark.parametrize("schedule", ["joint", "alternating"])
@both_kinds
def test_other_schedules_do_not_fall_either(model, method, schedule):
    fit = fitted(model, method, noise_of("feature"), True, tol=0, max_iter=60, schedule=schedule, order="components")
    assert np.diff(fit.trace).min() > -1e-11 * abs(fit.trace[-1])


def state_at(model, method, mask, by=None, rows=None):
    """Return a problem and a state away from any optimum, and what the counts are given."""
    rng = np.random.default_rng(7)
    counts = as_counts(COUNTS).with_exposure(rows, None)
    if mask:
        counts = with_missing(counts, None, OBSERVED)
    working = working_counts(counts, noise_of(by), given_totals=False, learned=True)
    if method == "gibbs":
        problem = draws_problem(working, PRIORS[model], rng)
    else:
        problem = point_or_mean_field(working, PLAIN[method](priors=PRIORS[model]))
    loadings, components = rng.gamma(2, 20, (N, K)), rng.dirichlet(np.ones(M), K)
    return problem, given_state(problem, loadings, components)


@both_kinds
@pytest.mark.parametrize("method", ["map", "vi"])
@masked
def test_exposures_and_totals_are_those_of_rates(model, method, mask):
    """By brute force: what an entry's conditional says is exposed, and receives, is a sum of entries times rates."""
    rows = np.linspace(0.5, 2, N)
    problem, state = state_at(model, method, mask, rows=rows)
    seen = OBSERVED if mask else np.ones(COUNTS.shape, bool)
    U, V = (side.matrix for side in state)
    means, phi = rows[:, None] * (U @ V), 1 / 0.1
    found = with_rates_at(problem, state)
    counts = found.counts
    rates = counts.rates.ceilings[:, None] * (1 - counts.mask.lost)
    np.testing.assert_allclose(rates, np.where(seen, (COUNTS + phi) / (means + phi), 0), rtol=1e-12, atol=1e-12)
    exposure = exposure_of_loadings(found, state.components)
    np.testing.assert_allclose(np.broadcast_to(exposure, (N, K)), rows[:, None] * (rates @ V.T), rtol=1e-10, atol=1e-10)
    assert not given_totals(found, state, "loadings", np.zeros((N, K))).any()
    imputes = (method, model) == ("map", "gamma_poisson")
    whole = counts.rates.ceilings[:, None] * np.ones(M) if imputes else rates
    exposure = exposure_of_components(found, state.loadings)
    np.testing.assert_allclose(np.broadcast_to(exposure, (K, M)), (rows[:, None] * U).T @ whole, rtol=1e-10)
    left = (whole - rates) * seen.any(axis=1)[:, None] * rows[:, None]
    received = given_totals(found, state, "components", np.zeros((K, M)))
    np.testing.assert_allclose(received, V * (U.T @ left), rtol=1e-9, atol=1e-9)


@quietly
@pytest.mark.parametrize("components", ["known", "unknown"])
def test_the_bound_is_below_the_evidence(components):
    """By integrals over a loading, and over a component of two features, which receives counts of entries."""
    a, b, alpha = 2.0, 0.1, 0.3
    counts = np.array([[8, 3], [4, 5]])
    known = np.array([[0.6, 0.4]])
    given = {"fixed_components": known} if components == "known" else {}
    priors = Priors(Gamma(a, b)) if components == "known" else Priors(Gamma(a, b), Dirichlet(1.5))
    options = plain_vi(priors=priors, tol=1e-12, threads=1)
    fit = bayesnmf.fit(counts, rank=1, seed=0, options=options, noise=NegativeBinomial("quadratic", alpha), **given)

    t, size = np.linspace(0, 200, 1501)[1:, None], 1 / alpha

    def of_all(share):
        chances = size / (size + t * np.array([share, 1 - share]))
        return np.prod([
            gamma.pdf(t[:, 0], a, scale=1 / b) @ nbinom.pmf(x, size, chances).prod(axis=1) * t[0, 0] for x in counts
        ])  # fmt: skip

    shares = np.linspace(0, 1, 61)[1:-1]
    each = [of_all(share) for share in ([0.6] if components == "known" else shares)]
    evidence = each[0] if components == "known" else beta.pdf(shares, 1.5, 1.5) @ each / 60
    assert 0 < np.log(evidence) - fit.trace[-1] < 2


@quietly
@pytest.mark.parametrize("method", ["map", "vi"])
@both_kinds
def test_no_dispersion_is_poisson(model, method):
    settings = {"tol": 0, "max_iter": 25}
    plain = fitted(model, method, "poisson", **settings)
    fit = fitted(model, method, NegativeBinomial("quadratic", 1e-9), **settings)
    np.testing.assert_allclose(fit.trace[1:], plain.trace[1:], atol=1e-3)
    np.testing.assert_allclose(fit.components, plain.components, atol=1e-6)


@quietly
@pytest.mark.parametrize("method", ["map", "vi", "gibbs"])
@both_kinds
def test_a_mask_of_nothing_changes_no_bit(model, method):
    options = PLAIN[method](max_iter=10, priors=PRIORS[model], threads=1) if method != "gibbs" else chain(model, 5)
    one, two = (
        bayesnmf.fit(COUNTS, model, K, method, seed=0, options=options, noise="nb2", observed=each)
        for each in (None, np.ones(COUNTS.shape, bool))
    )
    np.testing.assert_array_equal(one.loadings, two.loadings)
    np.testing.assert_array_equal(one.components, two.components)
    assert one.noise == two.noise


@every_axis
@pytest.mark.parametrize("method", ["map", "vi"])
def test_derivatives_of_the_log_likelihood_are_those_of_differences(by, method):
    problem, state = state_at("poisson", method, True, by)
    evidence, counts = evidence_at(problem, state, 1), with_rates_at(problem, state).counts
    rates, means = counts.rates.ceilings[:, None] * (1 - counts.mask.lost), EntryMeans.at(problem.counts, state)
    assert evidence.log_likelihood(problem.counts.dispersions).sum() == pytest.approx(
        counts.log_noise + counts.gain_of_rates - problem.counts.log_prior
        - (means.beside(slice(None))[1] * rates).sum(),
        rel=1e-10,
    )  # fmt: skip
    for scale in (1e-7, 1e-3, 1.0, 30.0):
        s, step = scale * problem.counts.dispersions, 1e-4
        up, down = (evidence.log_likelihood(s * np.exp(each)) for each in (step, -step))
        first, second = evidence.derivatives(s)
        slopes = [evidence.derivatives(s * np.exp(each))[0] for each in (step, -step)]
        size = np.abs(evidence.log_likelihood(s)).max()
        np.testing.assert_allclose(first, (up - down) / (2 * step), rtol=1e-5, atol=1e-9 * size)
        np.testing.assert_allclose(second, (slopes[0] - slopes[1]) / (2 * step), rtol=1e-5, atol=1e-9 * size)


def chain(model, draws, algorithm="marginal", **more):
    settings = {"chains": 1, "warmup": 5, "start": "random", "threads": 1, "priors": PRIORS[model], "keep": "draws"}
    return Gibbs(draws=draws, algorithm=algorithm, **(settings | more))


@quietly
@pytest.mark.parametrize("algorithm", ["allocations", "marginal"])
def test_draws_of_a_loading_are_those_of_its_density(algorithm):
    """Means and sds by integrals, of 400 copies of two rows, one with a missing entry; Poisson counts have others."""
    a, b, alpha = 2.0, 0.1, 0.3
    known, counts = np.array([[0.5, 0.3, 0.2]]), np.array([[30, 4, 12], [2, 9, 0]])
    observed = np.array([[True, True, True], [True, False, True]])
    options = Gibbs(algorithm=algorithm, draws=20, warmup=20, thin=3, chains=1, priors=Priors(Gamma(a, b)), threads=1)
    t = np.linspace(0, 500, 20_001)[1:, None]

    def moments(noise):
        p = 1 / (1 + noise * t * known[0])
        density = [gamma.pdf(t[:, 0], a, scale=1 / b) * nbinom.pmf(x, 1 / noise, p)[:, seen].prod(axis=1)
                   for x, seen in zip(counts, observed, strict=True)]  # fmt: skip
        means = [(t[:, 0] @ each) / each.sum() for each in density]
        return [
            (mean, np.sqrt((t[:, 0] - mean) ** 2 @ each / each.sum()))
            for mean, each in zip(means, density, strict=True)
        ]

    fit = bayesnmf.fit(
        np.repeat(counts, 400, axis=0), rank=1, method="gibbs", seed=0, observed=np.repeat(observed, 400, axis=0),
        fixed_components=known, options=options, noise=NegativeBinomial("quadratic", alpha),
    )  # fmt: skip
    draws = fit.posterior.loadings[0, :, :, 0]
    for i, (mean, sd) in enumerate(moments(alpha)):
        own = draws[:, 400 * i : 400 * (i + 1)]
        assert own.mean() == pytest.approx(mean, abs=4 * sd / np.sqrt(2000))
        assert own.std() == pytest.approx(sd, rel=0.06)
        assert sd > 1.3 * moments(1e-6)[i][1]


@quietly
@pytest.mark.long
@pytest.mark.parametrize(("model", "mask"), [("gamma_poisson", True), ("poisson", False)])
def test_both_samplers_draw_from_one_posterior(model, mask):
    """Means of the dispersion and of all rates of 2 × 4,000 draws, in standard errors by effective sample sizes."""
    found = []
    for algorithm in ("allocations", "marginal"):
        options = chain(model, 4000, algorithm, chains=2, warmup=500)
        fit = bayesnmf.fit(
            COUNTS[:8, :6], model, 2, "gibbs", seed=2, options=options, noise="nb2",
            observed=OBSERVED[:8, :6] if mask else None,
        )  # fmt: skip
        rates = np.einsum("cdnk,cdkm->cdnm", fit.posterior.loadings, fit.posterior.components)
        values = np.concatenate(
            [np.log(rates).reshape(2, 4000, -1), np.log(fit.statistics["dispersion"])[..., None]], 2
        )
        ess = np.asarray(r_hat_and_ess(values, 1)[1])
        found.append((values.mean(axis=(0, 1)), values.std(axis=(0, 1)) / np.sqrt(ess)))
    (one, e1), (two, e2) = found
    z = (one - two) / np.hypot(e1, e2)
    assert np.abs(z).max() < 4.5
    assert np.sqrt(np.mean(z**2)) < 1.7


@quietly
@pytest.mark.parametrize(("model", "mask"), [("poisson", True), ("gamma_poisson", True), ("dirichlet_gamma", False)])
def test_a_sweep_takes_no_random_number_twice(monkeypatch, model, mask):
    """After the pass, the generator of all rows is where the copy that drew loadings ended."""
    copies, wholes = [], []
    loadings, components = gibbs.update_loadings, gibbs.update_components

    def watched_loadings(problem, *rest):
        found = loadings(problem, *rest)
        copies.append(problem.loadings_summary.rng.bit_generator.state)
        return found

    def watched_components(problem, *rest):
        wholes.append(problem.loadings_summary.rng.bit_generator.state)
        return components(problem, *rest)

    monkeypatch.setattr(gibbs, "update_loadings", watched_loadings)
    monkeypatch.setattr(gibbs, "update_components", watched_components)
    options = chain(model, 2, "allocations", warmup=0, priors=PRIORS[model] or Priors())
    bayesnmf.fit(COUNTS, model, K, "gibbs", options=options, noise="nb2", observed=OBSERVED if mask else None)
    assert len(copies) > 1
    assert copies == wholes


@both_kinds
@pytest.mark.parametrize("sweeps", [Allocating, Entries])
def test_chains_go_on_from_their_memory_to_the_bit(model, sweeps):
    """What a checkpoint keeps is in the unit of the problem, and not in that of the last rates."""
    whole, part = [], []
    for found, memory in ((whole, None), (part, "kept")):
        problem, state = state_at(model, "gibbs", True)
        running = sweeps(problem, state, problem.loadings_summary.rng, 1)
        for number in range(9):
            if number == 5 and memory:
                kept = to_bytes(running, None, str)
                problem, state = state_at(model, "gibbs", True)
                running = sweeps(problem, state, problem.loadings_summary.rng, 1)
                recall(running, from_bytes(kept, None, Path))
            found.append(running(True)[0])
    for one, two in zip(whole, part, strict=True):
        np.testing.assert_array_equal(one.loadings.matrix, two.loadings.matrix)
        np.testing.assert_array_equal(one.components.matrix, two.components.matrix)


def rounds_of_geweke(number, alter=lambda problem: problem, seed=3):
    """Return log α, and means of loadings and log components, of rounds that draw these and counts given the others."""
    rng, priors = np.random.default_rng(seed), Priors(Gamma(2.0, 0.2), Dirichlet(2.0))
    loadings, components, alpha, found = rng.gamma(2, 5, (3, 2)), rng.dirichlet(np.full(4, 2.0), 2), 0.3, []
    for _ in range(number):
        means = loadings @ components
        counts = as_counts(rng.poisson(means * rng.gamma(1 / alpha, 1.0, means.shape) * alpha))
        noise = NegativeBinomial("quadratic", alpha)
        problem = draws_problem(working_counts(counts, noise, given_totals=False, learned=True), priors, rng)
        state, dispersion = given_state(problem, loadings, components), DrawnBeside(problem, rng, 1)
        dispersion.steps.length = np.array([2.0])
        dispersion.draw(state)
        state, _ = sweep(alter(dispersion.problem), state, rng, 1)
        loadings, components = state.loadings.matrix, state.components.matrix
        alpha = float(dispersion.problem.counts.dispersions[0])
        found.append((np.log(alpha), loadings.mean(), np.log(components).mean()))
    return np.array(found)


@quietly
@pytest.mark.long
def test_draws_of_parameters_and_counts_keep_their_distribution():
    """Geweke 2004. Sweeps that take the dispersion for half of what it is are 4.8 standard errors off."""
    values = rounds_of_geweke(10_000)
    ess = np.asarray(r_hat_and_ess(values[None], 1)[1])
    expected, sd = np.array([np.log(0.3), 10.0, digamma(2) - digamma(8)]), values.std(axis=0)
    assert ess.min() > 200
    assert np.abs((values.mean(axis=0) - expected) / sd * np.sqrt(ess)).max() < 4
    assert sd[0] == pytest.approx(2, abs=4 * 2 / np.sqrt(2 * ess[0]))


@quietly
@pytest.mark.long
def test_the_dispersion_is_found():
    """Of 192 × 96 counts with noise of 20 % and 30 % on their rates, and of halves of the features with their own."""
    rng = np.random.default_rng(0)
    means = rng.gamma(1, 1, (192, 5)) @ rng.dirichlet(np.full(96, 0.3), 5) * 3000
    for alpha in (0.04, 0.09):
        counts = rng.poisson(means * rng.gamma(1 / alpha, alpha, means.shape))
        fit = bayesnmf.fit(counts, rank=5, seed=0, noise="nb2", options=plain_vi(threads=1, extrapolate=True))
        assert fit.noise.dispersion == pytest.approx(alpha, rel=0.15)
    own = np.repeat([0.02, 0.2], 48)
    counts = rng.poisson(means * rng.gamma(1 / own, own, means.shape))
    noise = NegativeBinomial("quadratic", "feature")
    fit = bayesnmf.fit(counts, rank=5, seed=0, noise=noise, options=plain_vi(threads=1, extrapolate=True))
    halves = np.exp(np.log(fit.noise.dispersion).reshape(2, 48).mean(axis=1))
    np.testing.assert_allclose(halves, [0.02, 0.2], rtol=0.25)


@quietly
@pytest.mark.long
def test_new_rows_files_and_intervals(tmp_path):
    fit = fitted("gamma_poisson", "vi", "nb2", tol=1e-10, max_iter=2000)
    fit.save(tmp_path / "fit.nc")
    loaded = bayesnmf.load(tmp_path / "fit.nc")
    assert loaded.noise == fit.noise
    assert "negative binomial noise: variance mean + " in " ".join(repr(loaded).split())
    assert bayesnmf.elbo_augmented(loaded) == pytest.approx(fit.trace[-1] - prior_of(fit), abs=1e-6)
    new = fit.project(COUNTS)
    alone = fit.project(COUNTS[4:6])
    np.testing.assert_array_equal(new.loadings[4:6], alone.loadings)  # rows settle by themselves
    np.testing.assert_allclose(new.loadings @ new.components, fit.loadings @ fit.components, rtol=0.1, atol=1)
    drawn = fit.with_intervals("sampled", draws=20).intervals.draws
    assert drawn.components.shape == (1, 20, K, M)


def prior_of(fit):
    """Return what the prior of a learned dispersion adds to the objective; a fit that is read again has a given one."""
    return -((np.log(fit.noise.dispersion) - np.log(0.3)) ** 2) / 8


@quietly
def test_a_fit_in_single_precision_is_that_in_double():
    fits = [
        fitted("gamma_poisson", "vi", noise_of(), max_iter=30, tol=0, dtype=each) for each in ("float64", "float32")
    ]
    assert fits[1].trace[-1] == pytest.approx(fits[0].trace[-1], rel=1e-5)
    np.testing.assert_allclose(fits[0].components, fits[1].components, atol=1e-3)


@quietly
def test_the_marginal_bound_is_above_the_augmented_one():
    fit = fitted("gamma_poisson", "vi", noise_of(), True, max_iter=100)
    marginal = bayesnmf.elbo_marginal(fit, 200)
    assert 0 < marginal.mean - fit.trace[-1] < 100


@quietly
@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (lambda: bayesnmf.fit(COUNTS, "dirichlet_poisson", 2, noise="nb2"), "needs loadings with a scale"),
        (lambda: bayesnmf.fit(COUNTS, rank=2, method="smc", noise="nb2"), "noise='nb2' needs method='map'"),
        (lambda: bayesnmf.fit(COUNTS + 0.1234, rank=2, noise="nb2"), "needs whole-number counts"),
        (
            lambda: bayesnmf.fit(
                COUNTS, "dirichlet_gamma", 2, "gibbs", noise="nb2", options=Gibbs(algorithm="marginal")
            ),
            "need bayesnmf.Gibbs\\(algorithm='allocations'\\)",
        ),
        (
            lambda: bayesnmf.fit(COUNTS, rank=2, noise=NegativeBinomial("quadratic", np.ones(3), "row")),
            "dispersion must have one number for each row",
        ),
        (
            lambda: bayesnmf.linear_response(fitted("poisson", "vi", noise_of(), max_iter=5)),
            "linear response needs entries",
        ),
        (
            lambda: bayesnmf.fit(COUNTS, rank=2, noise="nb2", options=bayesnmf.VI(algorithm="minibatch")),
            "needs algorithm='coordinate' or 'settled' or 'gradient'",
        ),
        (lambda: refuse_size(20_000, 5_001), "100,020,000"),
    ],
)
def test_what_quadratic_variance_does_not_have_is_refused(refused, words):
    with pytest.raises(ValueError, match=words):
        refused()


def quick_fit():
    return fitted("poisson", "vi", noise_of(), max_iter=5)


def refuse_size(n, m):
    counts = SimpleNamespace(rows_held=True, mask=None, is_integer=True, shape=(n, m), batch=None, row_exposure=None,
                             feature_exposure=None)  # fmt: skip
    options = replace(plain_vi(), priors=PRIORS["gamma_poisson"])
    check_together(Request("gamma_poisson", "vi", options.priors, options, NegativeBinomial("quadratic"), counts, 2))


def test_posteriors_that_may_not_exist_are_refused():
    for method in ("vi", "gibbs"):
        with pytest.raises(ValueError, match="with which the posterior may not exist"):
            bayesnmf.fit(COUNTS, "poisson", 2, method, noise="nb2")


@quietly
def test_proportions_with_rates_have_no_sampled_intervals():
    """The short chain knows no ceilings of rows: deviations of scales were a third of the right ones."""
    fit = bayesnmf.fit(COUNTS, "dirichlet_gamma", 2, seed=0, noise="nb2", options=bayesnmf.VI(max_iter=5))
    assert "its entries have rates" in str(fit)
    with pytest.raises(ValueError, match="its entries have rates"):
        fit.with_intervals("sampled")
