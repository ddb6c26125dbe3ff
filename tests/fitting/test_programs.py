"""Every NumPyro program against its formula, written out naively.

One list of models; every test runs over it.
"""

import itertools
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from bayesnmf.models import dirichlet_gamma, dirichlet_poisson, gamma_poisson, poisson
from bayesnmf.models.entries import as_observation
from bayesnmf.models.factors import free
from numpyro.handlers import seed, substitute, trace
from numpyro.infer import NUTS, SVI, TraceMeanField_ELBO
from numpyro.infer.util import log_density
from scipy import sparse, stats
from scipy.special import digamma, gammaln, log_softmax, logsumexp

N, K, M = 6, 3, 5
FLAT = {"shape": 1.0, "rate": 0.0}
SCALED = {"concentration": [0.8, 1.2, 2.0], "shape": np.linspace(2, 3, N), "rate": 0.3}
FREE = "parameter"


class Case(NamedTuple):
    model: ModuleType
    loadings: Any
    components: Any


CASES = {
    "poisson flat, free": Case(poisson, FLAT, FREE),
    "poisson flat, dirichlet": Case(poisson, FLAT, {"concentration": 1.5}),
    "poisson flat, gamma": Case(poisson, FLAT, {"shape": 2.0, "rate": [[0.5], [1.0], [2.0]]}),
    "poisson flat, flat": Case(poisson, FLAT, FLAT),
    "gamma-poisson": Case(gamma_poisson, {"shape": [1.2, 0.9, 2.0], "rate": [0.5, 1.0, 0.2]}, FREE),
    "doubly gamma": Case(gamma_poisson, {"shape": 1.3, "rate": 0.4}, {"shape": 1.1, "rate": 0.7}),
    "gamma-poisson, dirichlet": Case(gamma_poisson, {"shape": 1.3, "rate": 0.4}, {"concentration": 0.9}),
    "lda": Case(dirichlet_poisson, {"concentration": [0.7, 1.1, 1.6]}, FREE),
    "smoothed lda": Case(dirichlet_poisson, {"concentration": 0.8}, {"concentration": np.linspace(1, 2, M)}),
    "allocation": Case(dirichlet_gamma, SCALED, {"concentration": 0.9}),
    "allocation, free": Case(dirichlet_gamma, SCALED, FREE),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def cases(*names):
    """Parametrise a test by these cases."""
    return pytest.mark.parametrize("case", [pytest.param(CASES[name], id=name) for name in names])


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def settings(case, size=(N, M), rank=K):
    return {"size": size, "rank": rank, "loadings": case.loadings, "components": case.components}


def some_counts(rng, size=(N, M)):
    counts = rng.poisson(2.0, size)
    counts[1], counts[:, 2] = 0, 0
    return counts


def some_factor(rng, prior, name, shape):
    """Values of the sites of one side, at random."""
    if "concentration" not in prior and prior != FREE:
        return {name: rng.gamma(2.0, size=shape)}
    values = {name: rng.dirichlet(np.ones(shape[1]), shape[0])}
    return values | {"scale": rng.gamma(3.0, size=shape[0])} if "shape" in prior else values


def some_factors(rng, case, size=(N, M), rank=K):
    loadings = some_factor(rng, case.loadings, "loadings", (size[0], rank))
    return loadings | some_factor(rng, case.components, "components", (rank, size[1]))


def the_product(values):
    return values["loadings"] * values.get("scale", np.ones(1))[:, None], values["components"]


def log_prior(prior, values, name):
    """Log density of one side, by scipy."""
    if prior in (FREE, FLAT):
        return 0.0
    value, total = values[name], 0.0
    if "concentration" in prior:
        for alpha, row in zip(np.broadcast_to(prior["concentration"], value.shape), value, strict=True):
            total += stats.dirichlet.logpdf(row, alpha)
        value = values.get("scale")
    if "shape" in prior:
        total += stats.gamma.logpdf(value, prior["shape"], scale=1 / np.asarray(prior["rate"])).sum()
    return total


# --- the density -------------------------------------------------------------------------------------------


@every_case
def test_programs_have_the_sites_and_plates_that_are_named(case, rng):
    values = some_factors(rng, case)
    model = seed(substitute(case.model.program, data=values), 0)
    sites = trace(model).get_trace(**settings(case))
    shapes = {"loadings": (N, K), "components": (K, M), "counts": (N, M), "scale": (N,)}
    assert {"loadings", "components", "counts"} <= set(sites)
    for name in set(sites) & set(shapes):
        assert np.shape(sites[name]["value"]) == shapes[name]
    plates = {name: site["value"].size for name, site in sites.items() if site["type"] == "plate"}
    wanted = {"row": N, "component": K, "feature": M}
    assert plates == {name: wanted[name] for name in plates}
    assert sites["components"]["type"] == ("param" if case.components == FREE else "sample")
    assert ("scale" in sites) == (case.model is dirichlet_gamma)


@every_case
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_log_density_is_the_formula(case, form, rng):
    counts, values = some_counts(rng), some_factors(rng, case)
    theta, beta = the_product(values)
    expected = (
        stats.poisson.logpmf(counts, theta @ beta).sum()
        + log_prior(case.loadings, values, "loadings")
        + log_prior(case.components, values, "components")
    )
    observed = as_observation(form(counts))
    found, _ = log_density(case.model.program, (observed,), settings(case), values)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@every_case
def test_program_is_the_augmented_program_summed_over_allocations(case, rng):
    size, rank = (2, 2), 2
    case = Case(case.model, *(first_two(prior) for prior in case[1:]))
    counts, values = np.array([[2, 0], [1, 3]]), some_factors(rng, case, size, rank)
    entries = as_observation(sparse.csr_array(counts))
    expected, _ = log_density(case.model.program, (entries,), settings(case, size, rank), values)

    @jax.vmap
    def log_joint(allocations):
        sites = values | {"allocations": allocations}
        return log_density(case.model.augmented, (entries,), settings(case, size, rank), sites)[0]

    splits = itertools.product(*([(s, x - s) for s in range(int(x) + 1)] for x in entries.values))
    terms = log_joint(jnp.array(list(splits), dtype=float))
    np.testing.assert_allclose(logsumexp(terms), expected, rtol=1e-9)
    impossible = jnp.zeros((1, len(entries.values), rank))
    assert log_joint(impossible) == -np.inf


def first_two(prior):
    if isinstance(prior, str):
        return prior
    cut = {key: np.asarray(value, dtype=float) for key, value in prior.items()}
    return {key: value[tuple(slice(2) for _ in value.shape)] for key, value in cut.items()}


@pytest.mark.parametrize(
    ("model", "loadings", "components"),
    [
        (poisson, {"concentration": 1.0}, FREE),
        (poisson, FREE, FREE),
        (gamma_poisson, SCALED, FREE),
        (dirichlet_poisson, {"concentration": 1.0}, {"shape": 1.0, "rate": 1.0}),
        (dirichlet_gamma, {"concentration": 1.0}, FREE),
        (gamma_poisson, {"shape": 1.0, "scale": 1.0}, FREE),
        (gamma_poisson, {"shape": 1.0, "rate": 1.0}, "free"),
    ],
)
def test_refuses_other_families(model, loadings, components):
    with pytest.raises(ValueError, match="of this model must be"):
        seed(model.program, 0)(size=(N, M), rank=K, loadings=loadings, components=components)


@pytest.mark.parametrize("loadings", [{"shape": 2.0, "rate": 0.0}, {"shape": 1.0, "rate": [0.0, 1.0, 1.0]}])
def test_refuses_improper_gammas_that_are_not_flat(loadings):
    with pytest.raises(ValueError, match="rate of loadings must be positive"):
        seed(poisson.program, 0)(size=(N, M), rank=K, loadings=loadings, components=FREE)


# --- the evidence lower bound ------------------------------------------------------------------------------


def some_posterior(rng, case):
    """Random parameters of the guide, large enough for the draws to be well behaved."""
    shapes = {"loadings": (N, K), "components": (K, M), "scale": (N,)}
    names = []
    for side in ("loadings", "components"):
        prior = getattr(case, side)
        if prior != FREE:
            scaled = "concentration" in prior and "shape" in prior
            names += [(("scale" if scaled and key != "concentration" else side), key) for key in prior]
    drawn = {f"{site}_{key}": 2 + rng.gamma(2.0, size=shapes[site]) for site, key in names}
    return drawn | ({"components": rng.dirichlet(np.ones(M), K)} if case.components == FREE else {})


def gamma_kl(a, b, prior):
    c, d = np.broadcast_to(prior["shape"], a.shape), np.broadcast_to(prior["rate"], a.shape)
    prior_constant = np.zeros_like(a) if prior == FLAT else c * np.log(np.where(d > 0, d, 1)) - gammaln(c)
    log_x, x = digamma(a) - np.log(b), a / b
    q = a * np.log(b) - gammaln(a) + (a - 1) * log_x - b * x
    return (q - prior_constant - (c - 1) * log_x + d * x).sum()


def dirichlet_kl(gamma, alpha):
    alpha = np.broadcast_to(alpha, gamma.shape)
    log_x = digamma(gamma) - digamma(gamma.sum(1, keepdims=True))
    constant = [gammaln(p.sum(1)) - gammaln(p).sum(1) for p in (gamma, alpha)]
    return (constant[0] - constant[1] + ((gamma - alpha) * log_x).sum(1)).sum()


def summarise(case, q, side):
    """E x, E log x and KL(q‖prior) of one side."""
    prior = getattr(case, side)
    if prior == FREE:
        return q[side], np.log(q[side]), 0.0
    mean, mean_log, kl = 1.0, 0.0, 0.0
    site = side
    if "concentration" in prior:
        gamma = q[f"{side}_concentration"]
        total = gamma.sum(1, keepdims=True)
        mean, mean_log = gamma / total, digamma(gamma) - digamma(total)
        kl, site = dirichlet_kl(gamma, prior["concentration"]), "scale"
    if "shape" in prior:
        a, b = q[f"{site}_shape"], q[f"{site}_rate"]
        kl = kl + gamma_kl(a, b, prior)
        a, b = (a[:, None], b[:, None]) if site == "scale" else (a, b)
        mean, mean_log = mean * a / b, mean_log + digamma(a) - np.log(b)
    return mean, mean_log, kl


def closed_form(case, q, counts):
    """ELBO = ℓ − Σ (Eθ)(Eβ) − Σ log X! − KL(θ) − KL(β), allocations at their best φ."""
    theta, log_theta, kl_theta = summarise(case, q, "loadings")
    beta, log_beta, kl_beta = summarise(case, q, "components")
    log_rate = np.log(np.exp(log_theta) @ np.exp(log_beta))
    return (counts * log_rate).sum() - (theta @ beta).sum() - gammaln(counts + 1).sum() - kl_theta - kl_beta


def log_mean_field(case, q, values):
    """Log density of independent Gammas and Dirichlets with the hyperparameters q, by scipy."""
    total = 0.0
    for side in ("loadings", "components"):
        prior = getattr(case, side)
        if prior == FREE:
            continue
        if "concentration" in prior:
            rows = zip(values[side], q[f"{side}_concentration"], strict=True)
            total += sum(stats.dirichlet.logpdf(row, concentration) for row, concentration in rows)
        if "shape" in prior:
            site = "scale" if "concentration" in prior else side
            total += stats.gamma.logpdf(values[site], q[f"{site}_shape"], scale=1 / q[f"{site}_rate"]).sum()
    return total


def log_best_shares(case, q, at):
    """Log φ ∝ E log θ + E log β at these entries, (entries, K)."""
    (_, log_theta, _), (_, log_beta, _) = (summarise(case, q, side) for side in ("loadings", "components"))
    return log_softmax(log_theta[at[0]] + log_beta[:, at[1]].T, axis=1)


def some_point(rng, case):
    """Counts, parameters of the guide, and values of the sites that are not its parameters."""
    counts, q, values = some_counts(rng), some_posterior(rng, case), some_factors(rng, case)
    return counts, q, {name: value for name, value in values.items() if name not in q}


@every_case
def test_guides_have_the_families_of_the_priors_and_the_best_allocations(case, rng):
    counts, q, values = some_point(rng, case)
    at = np.nonzero(counts)
    expected = log_mean_field(case, q, values)
    found, _ = log_density(case.model.guide, (), settings(case), q | values)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    shares = np.exp(log_best_shares(case, q, at))
    allocations = rng.multinomial(counts[at].astype(int), shares)
    entries = as_observation(sparse.csr_array(counts))
    sites = q | values | {"allocations": allocations.astype(float)}
    found, _ = log_density(case.model.augmented_guide, (entries,), settings(case), sites)
    expected += stats.multinomial.logpmf(allocations, counts[at], shares).sum()
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@every_case
def test_bound_has_the_allocations_at_their_best_shares(case, rng):
    """Σ X Σ φ log(θβ / φ) − Σ θβ − Σ log X! and the priors, for every θ and β."""
    counts, q, values = some_point(rng, case)
    at = np.nonzero(counts)
    theta, beta = the_product(q | values)
    log_share = log_best_shares(case, q, at)
    gain = np.exp(log_share) * (np.log(theta[at[0]]) + np.log(beta[:, at[1]].T) - log_share)
    seen = counts[at] @ gain.sum(1) - (theta @ beta).sum() - gammaln(counts + 1).sum()
    priors = (log_prior(getattr(case, side), q | values, side) for side in ("loadings", "components"))
    found, _ = log_density(case.model.augmented_bound, (counts,), settings(case), q | values)
    np.testing.assert_allclose(found, seen + sum(priors), rtol=1e-9)


# most of the time goes into compiling the samplers, and the default level doubles it
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def over_keys(function, batches=20):
    """Values of a random function over `batches` keys."""
    keys = jax.random.split(jax.random.key(0), batches)
    return jax.jit(lambda keys: jax.lax.map(function, keys), compiler_options=QUICK)(keys)


def elbo(model, guide, q, counts, case, key, particles=200):
    return -TraceMeanField_ELBO(particles).loss(key, q, model, guide, counts, **settings(case))


def mean_and_error(draws):
    return np.mean(draws, 0), np.std(draws, 0, ddof=1) / np.sqrt(len(draws))


@pytest.mark.long
@cases("gamma-poisson", "allocation")
def test_elbo_of_the_augmented_program_is_the_closed_form(case, rng):
    counts, q, model = some_counts(rng), some_posterior(rng, case), case.model
    entries, expected = as_observation(sparse.csr_array(counts)), closed_form(case, q, counts)

    def elbos(key):
        augmented = elbo(model.augmented, model.augmented_guide, q, entries, case, key)
        marginal = elbo(model.program, model.guide, q, entries, case, key)
        return jnp.stack([augmented, marginal])

    (augmented, marginal), error = mean_and_error(over_keys(elbos))
    assert abs(augmented - expected) < 4 * error[0]
    assert marginal > expected - 4 * error[1]
    assert error.max() < 0.5


@pytest.mark.long
@cases("doubly gamma", "allocation")
def test_bound_has_the_value_and_gradient_of_the_closed_form(case, rng):
    counts, q, model = some_counts(rng), some_posterior(rng, case), case.model

    def bound(params, key):
        return elbo(model.augmented_bound, model.guide, params, counts, case, key)

    value, gradient = over_keys(lambda key: jax.value_and_grad(bound)(q, key))
    mean, error = mean_and_error(value)
    assert abs(mean - closed_form(case, q, counts)) < 4 * error
    for name in gradient:
        mean, error = (stack[(0,) * q[name].ndim] for stack in mean_and_error(gradient[name]))
        assert abs(mean - slope_of_closed_form(case, q, counts, name)) < 4.5 * error + 1e-6, name


def slope_of_closed_form(case, q, counts, name, step=1e-5):
    """Derivative with respect to the first entry of one parameter, by central differences."""
    moved = [{**q, name: q[name].copy()} for _ in range(2)]
    for sign, point in zip((1, -1), moved, strict=True):
        point[name].flat[0] += sign * step
    ahead, behind = (closed_form(case, point, counts) for point in moved)
    return (ahead - behind) / (2 * step)


@pytest.mark.long
def test_svi_starts_where_it_is_told_and_climbs(rng):
    case = CASES["gamma-poisson"]
    counts, q, model = some_counts(rng), some_posterior(rng, case), case.model
    svi = SVI(model.augmented_bound, model.guide, numpyro.optim.Adam(0.05), TraceMeanField_ELBO(5))

    def climb(key):
        first = svi.init(key, counts, init_params=q, **settings(case))
        last = jax.lax.fori_loop(0, 100, lambda _, state: svi.update(state, counts, **settings(case))[0], first)
        return svi.get_params(first), svi.get_params(last)

    start, reached = jax.device_get(jax.jit(climb, compiler_options=QUICK)(jax.random.key(0)))
    assert set(start) == set(q)
    for name in q:
        np.testing.assert_allclose(start[name], q[name], rtol=1e-6)
    assert closed_form(case, reached, counts) > closed_form(case, q, counts) + 1


@cases("lda", "allocation")
def test_guide_starts_without_help(case):
    drawn = {}

    def start():
        sites = trace(seed(case.model.guide, 0)).get_trace(**settings(case))
        drawn.update({name: site["value"].shape for name, site in sites.items() if site["type"] == "sample"})
        return {name: site["value"] for name, site in sites.items() if site["type"] == "param"}

    parameters = jax.jit(start, compiler_options=QUICK)()
    wanted = {"loadings": (N, K), "scale": (N,), "components": (K, M)}
    assert drawn == {name: wanted[name] for name in drawn}
    assert ("components" in drawn) == (case.components != FREE)
    assert all((value > 0).all() for value in parameters.values())


# --- simulation and sampling -------------------------------------------------------------------------------


@cases(*(name for name in CASES if "flat" not in name))
@pytest.mark.parametrize("double", [False, True])
def test_simulates_in_the_precision_in_force(case, double):
    with jax.enable_x64(double):
        drawn = jax.eval_shape(lambda: simulate(case))
    assert drawn.pop("counts").shape == (N, M)
    assert {site.dtype for site in drawn.values()} == {np.dtype("float64" if double else "float32")}


def simulate(case):
    sites = trace(seed(case.model.program, 0)).get_trace(**settings(case))
    return {name: site["value"] for name, site in sites.items() if site["type"] in ("sample", "param")}


def test_simulated_counts_have_the_totals_that_were_given():
    totals = np.arange(N) * 10
    program = seed(dirichlet_poisson.program, 0)
    drawn = program(**settings(CASES["smoothed lda"]), totals=totals)
    np.testing.assert_array_equal(drawn.sum(1), totals)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "form"),
    [("poisson flat, dirichlet", sparse.csr_array), ("smoothed lda", np.asarray), ("allocation", sparse.csr_array)],
)
def test_nuts_runs_on_every_form_of_counts(name, form, rng):
    case, observed = CASES[name], as_observation(form(some_counts(rng)))
    kernel = NUTS(case.model.program, max_tree_depth=2)
    arguments = (observed,), settings(case)

    def steps(key):
        start = kernel.init(key, 3, None, *arguments)
        return jax.lax.fori_loop(0, 6, lambda _, state: kernel.sample(state, *arguments), start)

    state = jax.jit(steps, compiler_options=QUICK)(jax.random.key(0))
    assert np.isfinite(state.potential_energy)
    assert state.num_steps > 0


def test_parameters_of_components_that_are_partly_known_are_those_of_the_others():
    """In a shape where rows and features cannot be taken for each other."""
    known = {"concentration": 1.2, "known": np.full((1, 7), 1 / 7), "order": np.array([1, 0, 2, 3])}
    with trace() as sites, seed(rng_seed=0):
        free("components", known, (4, 7))
    assert {name: np.shape(site["value"]) for name, site in sites.items()} == {"components_concentration": (3, 7)}
