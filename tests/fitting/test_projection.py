"""`transform` and `project`: new samples with the components fixed, by the method of the fit."""

from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pandas as pd
import pytest
from plain import plain_map, plain_vi
from registry import MODELS_AND_PRIORS
from scipy.sparse import csr_array
from suites import crossed, mostly_long

import bayesnmf
from bayesnmf import SVI, Dirichlet, Gamma, Gibbs, Priors, Start
from bayesnmf.assessment.bounds import elbo_augmented
from bayesnmf.data.conversion import as_counts
from bayesnmf.fitting.nuts_and_svi import log_joints
from bayesnmf.kernels.cpu.likelihood import poisson_loglik
from bayesnmf.priors import ScaledProportions
from bayesnmf.priors.specification import MODELS
from bayesnmf.results.estimates import Draws, VariationalPosterior

pytestmark = pytest.mark.filterwarnings("ignore::bayesnmf.inference.status.ConvergenceWarning")  # chains of a few draws

N, M, K = 20, 12, 3
SPARSE = {"gamma_poisson": "gamma_poisson-sparse", "dirichlet_poisson": "dirichlet_poisson-sparse",
          "dirichlet_gamma": "dirichlet_gamma-sparse"}  # fmt: skip


def simulate(seed, n):
    rng = np.random.default_rng(seed)
    components = np.random.default_rng(100).dirichlet(np.full(M, 0.4), K)
    return rng.poisson(rng.gamma(1.0, 12.0, (n, K)) @ components)


COUNTS, NEW = simulate(0, N), simulate(1, 15)
OPTIONS = {
    "map": plain_map(threads=1, extrapolate=True, tol=1e-10),
    "log": plain_map(threads=1, basis="log", tol=1e-12),
    "vi": plain_vi(threads=1, extrapolate=True, tol=1e-12),
    "single": plain_vi(threads=1, dtype="float32"),
    "parameter": plain_vi(threads=1, extrapolate=True, tol=1e-12, priors=Priors(components="parameter")),
    "gibbs": Gibbs(start="random", chains=2, warmup=50, draws=10, threads=1),
}

every_model = pytest.mark.parametrize("model", MODELS)
every_fit = pytest.mark.parametrize("kind", OPTIONS)
KINDS_AND_MODELS = list(zip(OPTIONS, [*MODELS, "dirichlet_gamma"], strict=True))  # each kind and each model once
OTHERS = [pair for pair in product(OPTIONS, MODELS) if pair not in KINDS_AND_MODELS]
once_each = pytest.mark.parametrize(("kind", "model"), KINDS_AND_MODELS)


@cache
def fit(model, kind):
    options = OPTIONS[kind]
    method = {"map": "map", "log": "map", "gibbs": "gibbs"}.get(kind, "vi")
    return bayesnmf.fit(COUNTS, model, K, method, seed=0, options=options)


# --- what every projection has ----------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "model"), mostly_long([*KINDS_AND_MODELS, *OTHERS], len(KINDS_AND_MODELS)))
def test_components_stay_and_loadings_are_those_of_the_new_rows(model, kind):
    fitted = fit(model, kind)
    new = fitted.project(NEW)
    assert (new.model, new.method, new.rank) == (fitted.model, fitted.method, K)
    assert new.loadings.shape == (len(NEW), K)
    assert new.counts.shape == NEW.shape
    assert (new.scale is None) == (fitted.scale is None)
    assert new.loadings.dtype == (np.float32 if kind == "single" else np.float64)
    assert np.all(np.isfinite(new.loadings))
    assert new.loadings.min() >= 0
    if kind != "gibbs":
        np.testing.assert_array_equal(new.components, fitted.components)
        assert new.status.converged
    else:  # 20 draws are fewer than the 200 asked for: all are used
        np.testing.assert_array_equal(new.posterior.components[0], fitted.posterior.components.reshape(-1, K, M))
    if kind in ("vi", "single"):
        for name, value in vars(fitted.posterior.components).items():
            np.testing.assert_array_equal(vars(new.posterior.components)[name], value)
    # Samples are told better by their own loadings than by those of their neighbours: 0.1 nats for each count.
    means = new.expected_loadings @ new.components
    logs = np.log(means / means.sum(axis=1, keepdims=True))
    assert np.sum(NEW * logs) > np.sum(NEW * np.roll(logs, 1, axis=0)) + 0.1 * NEW.sum()
    np.testing.assert_array_equal(fitted.transform(NEW), new.loadings)


@once_each
def test_the_fit_itself_is_left_as_it_was(model, kind):
    fitted = fit(model, kind)
    before = fitted.loadings.copy(), fitted.components.copy(), fitted.trace.copy()
    fitted.project(NEW)
    for now, then in zip((fitted.loadings, fitted.components, fitted.trace), before, strict=True):
        np.testing.assert_array_equal(now, then)
    assert fitted.counts.shape == COUNTS.shape


@once_each
def test_it_is_deterministic_and_the_seed_is_that_of_the_sweeps(model, kind):
    fitted = fit(model, kind)
    one = fitted.transform(NEW[:2], seed=3)
    np.testing.assert_array_equal(one, fitted.transform(NEW[:2], seed=3))
    np.testing.assert_array_equal(one, fitted.transform(csr_array(NEW[:2]), seed=3))
    assert np.array_equal(one, fitted.transform(NEW[:2], seed=4)) == (kind != "gibbs")


# --- closed form ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("model", "kind"), crossed(MODELS, ["map", "log", "vi", "parameter"]))
def test_training_counts_have_the_loadings_of_the_fit(model, kind):
    """A converged fit is a fixed point, and given the components the loadings have one maximum.

    The fit stops at a relative change of 1e-12 of about 1,000 nats; where the objective is as flat as the curvature
    of single counts, 1 nat per unit, that is an error of some √(1e-9 / (1 − rate)), or 1e-3 of loadings near 10. The
    natural basis has modes at 0, which are approached as slowly as 1/t.
    """
    fitted = fit(model, kind)
    tolerance = 0.01 if kind == "map" else 1e-3
    largest = fitted.loadings.max()
    np.testing.assert_allclose(fitted.transform(COUNTS), fitted.loadings, atol=tolerance * largest)


@pytest.mark.parametrize(("kind", "model"), KINDS_AND_MODELS[:-1])
def test_a_row_does_not_depend_on_those_beside_it(model, kind):
    """Exactly: each row stops by itself."""
    fitted = fit(model, kind)
    rows = np.vstack([NEW, np.zeros((1, M)), 1_000 * NEW[:1]])
    together = fitted.transform(rows)
    alone = np.vstack([fitted.transform(row[None]) for row in rows])
    np.testing.assert_allclose(together, alone, rtol=1e-12 if kind != "single" else 1e-5, atol=0)
    np.testing.assert_allclose(fitted.transform(rows[::-1])[::-1], together, rtol=1e-12 if kind != "single" else 1e-5)


@pytest.mark.parametrize("kind", ["map", "vi"])
def test_a_row_does_not_depend_on_thousands_beside_it(kind):
    """An objective of all rows together would settle long before its slowest row has."""
    fitted = fit("gamma_poisson", kind)
    crowd = simulate(2, 2_000)
    np.testing.assert_allclose(fitted.transform(crowd)[:40], fitted.transform(crowd[:40]), rtol=1e-12)


@pytest.mark.parametrize(("model", "kind"), crossed(MODELS, ["map", "log", "vi", "parameter"]))
def test_the_result_is_a_maximum_over_the_loadings(model, kind):
    """No loading can be moved, up or down, to a better objective; the trace ends above where it began."""
    fitted = fit(model, kind)
    new = fitted.project(NEW)
    assert new.trace.shape == (2,)
    assert new.trace[1] > new.trace[0]
    if new.estimate.kind != "point":
        np.testing.assert_allclose(elbo_augmented(new), new.trace[1], rtol=1e-10)
        return
    prior, basis = fitted.priors.loadings, "log" if kind == "log" else "natural"

    def objective(loadings, scale):
        value = loadings if scale is None else ScaledProportions(loadings, scale[:, None])
        rates = loadings if scale is None else loadings * scale[:, None]
        ell = poisson_loglik(new.counts.matrix, rates, new.components, new.counts.log_factorial)
        return ell + prior.log_density(value) + (prior.log_jacobian(value) if basis == "log" else 0)

    at = objective(new.loadings, new.scale)
    rng = np.random.default_rng(0)
    for _ in range(50):
        moved = new.loadings * np.exp(0.05 * rng.standard_normal(new.loadings.shape))
        if not isinstance(prior, Gamma):
            moved /= moved.sum(axis=1, keepdims=True)
        scale = None if new.scale is None else new.scale * np.exp(0.05 * rng.standard_normal(new.scale.shape))
        assert objective(moved, scale) < at


@pytest.mark.parametrize("name", ["gamma_poisson", "doubly_gamma", "dirichlet_poisson", "dirichlet_gamma"])
def test_vi_given_the_components_is_vi_of_the_loadings_alone(name):
    """Against a fixed point written out here: A = Σ X φ, φ ∝ exp(E log θ + E log β), then the conditional."""
    entry = next(entry for entry in MODELS_AND_PRIORS if entry.id == name)
    priors = entry.priors((N, M), K)
    fitted = bayesnmf.fit(COUNTS, entry.model, K, "vi", seed=1, options=plain_vi(priors=priors))
    new = fitted.project(NEW)
    q = fitted.posterior.components
    log_beta, exposure = q.expected_log(), q.mean().sum(axis=1)[None, :]
    if entry.model == "dirichlet_gamma":
        exposure = np.ones((1, 1))  # of the scale
    theta = priors.loadings.conditional(np.repeat(NEW.sum(1)[:, None] / K, K, axis=1), exposure)
    for _ in range(3_000):
        weights = np.exp(theta.expected_log()[:, :, None] + log_beta)
        weights /= weights.sum(axis=1, keepdims=True)
        theta = priors.loadings.conditional(np.einsum("ij,ikj->ik", NEW, weights), exposure)
    for found, expected in zip(vars(new.posterior.loadings).values(), vars(theta).values(), strict=True):
        # A change of 1e-8 of a row's largest loading is an error of 1e-8 / (1 − rate) of it, with rates up to 0.99.
        expected = np.broadcast_to(expected, np.shape(found))
        np.testing.assert_allclose(found, expected, atol=1e-6 * np.max(expected))


@pytest.mark.parametrize(("model", "kind"), crossed(MODELS, OPTIONS))
def test_rows_without_counts_have_loadings_of_the_prior(model, kind):
    """Nothing seen: the prior, given nothing but the components."""
    fitted = fit(model, kind)
    new = fitted.project(np.zeros((2, M)))
    assert np.all(np.isfinite(new.loadings))
    if kind == "vi":
        prior = fitted.priors.loadings
        expected = prior.conditional(np.zeros((2, K)), fitted.components.sum(axis=1)[None]).mean()
        proportions, scale = expected if isinstance(expected, tuple) else (expected, None)
        np.testing.assert_allclose(new.loadings, proportions)
        if scale is not None:
            np.testing.assert_allclose(new.scale, scale[:, 0])
    if kind in ("map", "log") and new.scale is not None:
        np.testing.assert_allclose(new.loadings, 1 / K)


def test_svi_transforms_as_its_q_does():
    """A projection needs nothing of the method but its q."""
    fitted = fit("gamma_poisson", "vi")
    as_svi = replace(fitted, method="svi", options=SVI(priors=fitted.priors))
    np.testing.assert_array_equal(as_svi.transform(NEW), fitted.transform(NEW))


# --- posterior draws --------------------------------------------------------------------------------


def given_components(model, priors, components):
    """A Gibbs fit whose only draw of the components is given."""
    fitted = bayesnmf.fit(
        COUNTS,
        model,
        K,
        "gibbs",
        seed=0,
        options=Gibbs(priors=priors, start="random", chains=1, warmup=0, draws=1, threads=1),
    )
    n, repeats = len(COUNTS), 200
    scale = None if fitted.scale is None else np.ones((1, repeats, n))
    draws = Draws(np.ones((1, repeats, n, K)), np.tile(components, (1, repeats, 1, 1)), scale)
    return replace(fitted, estimate=draws)


@pytest.mark.parametrize("model", mostly_long(MODELS, [1, 3]))
def test_sampled_loadings_are_those_of_the_exact_posterior(model):
    """Two separate components, known: every count's component is known, and the posterior is the conditional."""
    components = np.kron(np.eye(K), np.full((1, M // K), K / M))
    fitted = given_components(model, Priors(), components)
    new = fitted.project(NEW, seed=5)
    total = NEW.reshape(len(NEW), K, -1).sum(axis=2).astype(float)
    exact = fitted.priors.loadings.conditional(total, np.ones((1, K)))
    mean, variance = exact.mean(), exact.variance()
    parts = [(new.posterior.loadings, mean, variance)]
    if new.scale is not None:
        parts = [(new.posterior.loadings, mean.proportions, variance.proportions),
                 (new.posterior.scale, mean.scale[:, 0], variance.scale[:, 0])]  # fmt: skip
    for draws, centre, spread in parts:
        assert draws.shape[:2] == (1, 200)
        # 200 independent draws: at most 4.5 standard errors in some 60 means, and 0.6 to 1.6 times their variances.
        z = (draws.mean(axis=(0, 1)) - centre) / np.sqrt(spread / 200)
        assert np.abs(z).max() < 4.5
        ratio = draws.var(axis=(0, 1)) / spread
        assert ratio.min() > 0.6
        assert ratio.max() < 1.6


@pytest.mark.parametrize("model", mostly_long(MODELS, [3]))
def test_sampled_loadings_average_to_those_of_a_long_chain_and_lie_near_vi(model):
    """Overlapping components, a single draw of them: sweeps over the loadings alone, long and by hand."""
    components = np.random.default_rng(6).dirichlet(np.full(M, 0.4), K)
    fitted = given_components(model, Priors(), components)
    rows = NEW[:6]
    new = fitted.project(rows, seed=7)
    rng = np.random.default_rng(8)
    prior, sweeps = fitted.priors.loadings, 1_200
    shares, seen = np.full((len(rows), K), 1.0), np.zeros((sweeps, len(rows), K))
    for sweep in range(sweeps):
        probabilities = shares[:, :, None] * components
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        total = rng.multinomial(rows, probabilities.transpose(0, 2, 1)).sum(axis=1).astype(float)
        value = prior.conditional(total, np.ones((1, K))).draw(rng)
        seen[sweep] = shares = value.proportions if isinstance(value, ScaledProportions) else value
    long = seen[200:]
    draws = new.posterior.loadings[0]
    # 200 draws, ten sweeps apart: at least 50 independent ones, of 18 means at most 4.5 standard errors away.
    error = long.std(axis=0) / np.sqrt(50)
    assert np.all(np.abs(draws.mean(axis=0) - long.mean(axis=0)) < 4.5 * error)
    assert np.mean(np.abs(draws.mean(axis=0) - long.mean(axis=0)) < 2 * error) > 0.8  # the bound above is no sham
    # The mean field's mean is close to the exact one, by a posterior standard deviation, while totals are shared out.
    q = VariationalPosterior(prior.conditional(np.ones((N, K)), np.ones((1, K))), None)
    as_vi = replace(
        fitted, method="vi", options=plain_vi(), components=components, estimate=q,
        priors=Priors(prior, "parameter"),
    )  # fmt: skip
    assert np.mean(np.abs(as_vi.transform(rows) - long.mean(axis=0)) < long.std(axis=0)) > 0.95


@every_model
def test_the_trace_is_the_log_joint_of_each_draw(model):
    new = fit(model, "gibbs").project(NEW)
    draws, fitted = new.posterior, fit(model, "gibbs")
    value = draws.loadings
    if draws.scale is not None:
        value = ScaledProportions(value, draws.scale[..., None])
    expected = log_joints(as_counts(NEW), fitted.priors, value, draws.components)
    np.testing.assert_allclose(new.trace, expected, rtol=1e-9)
    np.testing.assert_allclose(new.loadings, draws.loadings.mean(axis=(0, 1)))
    np.testing.assert_allclose(new.components, draws.components.mean(axis=(0, 1)))


def test_many_draws_of_the_components_are_thinned_evenly():
    fitted = fit("gamma_poisson", "gibbs")
    many = np.arange(1.0, 1_001).reshape(2, 500, 1, 1) * np.ones((K, M))
    draws = Draws(np.ones((2, 500, N, K)), many, None)
    new = replace(fitted, estimate=draws).project(NEW[:2])
    used = new.posterior.components[0, :, 0, 0]
    assert len(used) == 200
    assert (used[0], used[-1]) == (1, 1_000)
    assert set(np.diff(used)) == {5.0, 6.0}


# --- names, and what is refused ---------------------------------------------------------------------

NAMED = pd.DataFrame(COUNTS, [f"old{i}" for i in range(N)], [f"gene{j}" for j in range(M)])


@cache
def named_fit(method="vi"):
    options = {
        "vi": plain_vi(max_iter=20, threads=1),
        "gibbs": Gibbs(start="random", chains=1, warmup=5, draws=5, threads=1),
    }
    return bayesnmf.fit(NAMED, rank=K, method=method, seed=0, options=options[method])


@pytest.mark.parametrize("method", ["vi", "gibbs"])
def test_names_of_new_rows_are_kept(method):
    frame = pd.DataFrame(NEW, [f"new{i}" for i in range(len(NEW))], NAMED.columns)
    new = named_fit(method).project(frame)
    assert list(new.row_names) == list(frame.index)
    assert list(new.feature_names) == list(frame.columns)
    assert new.to_datatree(5, 1)["posterior"].sizes["row"] == len(NEW)
    # Without names of its own an array is taken as it is.
    np.testing.assert_array_equal(named_fit(method).transform(NEW), named_fit(method).transform(frame))


def test_other_features_are_refused():
    fitted = named_fit()
    with pytest.raises(ValueError, match="counts must have the 12 features of the fit: found 11; select or pad"):
        fitted.transform(NEW[:, :-1])
    with pytest.raises(ValueError, match=r"12 features of the fit .* missing: 'gene0', .* not in the fit: 'new"):
        fitted.transform(pd.DataFrame(NEW, columns=[f"new{name}" for name in NAMED.columns]))
    swapped = pd.DataFrame(NEW, columns=[*NAMED.columns[:2], "gene3", "gene2", *NAMED.columns[4:]])
    np.testing.assert_array_equal(fitted.transform(swapped), fitted.transform(swapped[NAMED.columns]))
    with pytest.raises(ValueError, match="counts must be two-dimensional"):
        fitted.transform(NEW[0])
    with pytest.raises(ValueError, match="counts must be nonnegative"):
        fitted.transform(-NEW)


def test_fractions_are_refused_by_sampled_fits_alone():
    with pytest.raises(ValueError, match=r"whole numbers for transform with posterior draws: found .*\.5 at row"):
        named_fit("gibbs").transform(NEW + 0.5)
    np.testing.assert_allclose(named_fit().transform(NEW + 0.5).sum(), NEW.sum() + 0.5 * NEW.size, rtol=0.1)


def test_negative_seeds_are_refused():
    with pytest.raises(ValueError, match="seed must be at least 0: found -1"):
        named_fit("gibbs").transform(NEW, seed=-1)


@pytest.mark.parametrize("name", ["doubly_gamma-asymmetric", "dirichlet_gamma-asymmetric"])
def test_new_rows_have_no_prior_where_each_row_has_its_own(name):
    entry = next(entry for entry in MODELS_AND_PRIORS if entry.id == name)
    options = plain_vi(priors=entry.priors(COUNTS.shape, K), max_iter=5)
    fitted = bayesnmf.fit(COUNTS, entry.model, K, "vi", options=options)
    with pytest.raises(
        ValueError,
        match=r"priors.loadings.\w+ differs between rows, so new samples have none; give a number or a parameter of",
    ):
        fitted.transform(NEW)


def test_priors_that_differ_between_components_serve_new_rows():
    """Component 0 is favoured a priori: an empty row gets it."""
    priors = Priors(Dirichlet([50.0, 1.0, 1.0]), Dirichlet(1.0))
    fitted = bayesnmf.fit(COUNTS, "dirichlet_poisson", K, "vi", seed=0, options=plain_vi(priors=priors))
    np.testing.assert_allclose(fitted.transform(np.zeros((1, M))), [[50 / 52, 1 / 52, 1 / 52]])


def test_ctrl_c_is_passed_on(monkeypatch):
    """Half-settled loadings are no result."""

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("bayesnmf.inference.ascent.settled_loadings.allocate", stop)
    with pytest.raises(KeyboardInterrupt):
        named_fit().transform(NEW)


def test_a_given_point_is_projected_onto():
    """A MAP fit that is nothing but given factors: one count in a feature of its own is a loading of its own."""
    components = np.kron(np.eye(K), np.full((1, M // K), K / M))
    options = plain_map(start=Start(np.ones((N, K)), components), max_iter=0)
    fitted = bayesnmf.fit(COUNTS, "poisson", K, "map", options=options)
    np.testing.assert_allclose(fitted.transform(NEW), NEW.reshape(len(NEW), K, -1).sum(axis=2), rtol=1e-9)


def test_the_monte_carlo_error_of_draws_is_stated():
    """Means of five runs of the sweeps: how far they are from each other is what each says of itself."""
    counts = np.random.default_rng(3).poisson(8 * np.random.default_rng(4).dirichlet(np.ones(M), N))
    options = Gibbs(start="random", chains=1, draws=50, warmup=50, threads=1)
    fitted = bayesnmf.fit(counts, "gamma_poisson", K, "gibbs", seed=0, options=options)
    found = [fitted.project(counts[:4], seed=seed) for seed in range(5)]
    means = np.array([one.loadings for one in found])
    sds = np.mean([one.posterior.loadings[0].std(axis=0) for one in found], axis=0)
    apart = np.median(means.std(axis=0, ddof=1) / sds)
    assert 0.4 < apart / np.mean([one.diagnostics["median_mc_error"] for one in found]) < 2
    assert all(one.diagnostics["median_mc_error"] < one.diagnostics["largest_mc_error"] < 0.5 for one in found)
