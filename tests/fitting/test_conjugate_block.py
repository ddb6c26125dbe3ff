"""Factors of programs with further sites, as a block of NumPyro's Gibbs sampler: their priors, draws and refusals."""

from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import MCMC, NUTS, CustomGibbs, Gibbs, HMCGibbs
from scipy.special import gammaln

import bayesnmf
from bayesnmf.fitting.recognition import recognise
from tests.suites import mostly_long

N, M, K = 6, 5, 2
X = np.random.default_rng(0).poisson(4.0, (N, M))


def level(x, **at):
    """A normal number that a program samples, or has where it is given."""
    return at["level"] if at else numpyro.sample("level", dist.Normal(0.0, 1.0))


def on_rate(x, **at):
    rate = jnp.exp(-level(x, **at)) * jnp.ones((N, K))
    topics = numpyro.sample("topics", dist.Dirichlet(0.5 * jnp.ones((K, M))).to_event(1))
    amounts = numpyro.sample("amounts", dist.Gamma(0.8, 0.2 * rate).to_event(2))
    numpyro.sample("x", dist.Poisson(amounts @ topics).to_event(2), obs=x)


def on_shape_transposed(x, **at):
    shape = jnp.exp(level(x, **at) * jnp.arange(K))[:, None] * jnp.ones((K, N))
    topics = numpyro.sample("topics", dist.Gamma(0.5 * jnp.ones((M, K)), 1.0).to_event(2))
    amounts = numpyro.sample("amounts", dist.Gamma(shape, 0.2).to_event(2))
    with handlers.mask(mask=np.arange(N * M).reshape(N, M) % 7 > 0):
        numpyro.sample("x", dist.Poisson(amounts.T @ topics.T).to_event(0), obs=x)


def on_components(x, **at):
    concentration = jnp.exp(0.3 * level(x, **at)) * jnp.ones((K, M))
    topics = numpyro.sample("topics", dist.Dirichlet(concentration).to_event(1))
    amounts = numpyro.sample("amounts", dist.Exponential(0.1 * jnp.ones((N, K))).to_event(2))
    numpyro.sample("x", dist.Poisson(2.0 * (amounts @ topics)).to_event(2), obs=x)


def on_proportions(x, **at):
    concentration = jnp.exp(level(x, **at)) * jnp.ones((N, K))
    topics = numpyro.sample("topics", dist.Dirichlet(0.5 * jnp.ones((K, M))).to_event(1))
    shares = numpyro.sample("shares", dist.Dirichlet(concentration).to_event(1))
    numpyro.sample("x", dist.Multinomial(x.sum(1), shares @ topics).to_event(1), obs=x)


def on_scale(x, **at):
    topics = numpyro.sample("topics", dist.Dirichlet(0.5 * jnp.ones((K, M))).to_event(1))
    shares = numpyro.sample("shares", dist.Dirichlet(jnp.ones((N, K))).to_event(1))
    scale = numpyro.sample("scale", dist.Gamma(2.0, jnp.exp(-level(x, **at)) * jnp.ones(N)).to_event(1))
    numpyro.sample("x", dist.Poisson((scale[:, None] * shares) @ topics).to_event(2), obs=x)


RIGHT = [on_rate, on_shape_transposed, on_components, on_proportions, on_scale]


@pytest.mark.parametrize("program", mostly_long(RIGHT))
def test_priors_are_those_that_the_program_has_at_its_further_sites(program):
    block = bayesnmf.conjugate_block(X, program)
    stated = recognise(partial(program, level=0.7), bayesnmf.as_counts(X))
    with jax.enable_x64(True):
        sites = handlers.trace(handlers.seed(program, 0)).get_trace(X)
        parameters = block._found.parameters({"level": 0.7} | {name: sites[name]["value"] for name in block.sites})
    found = block._found.priors({name: {word: np.asarray(value) for word, value in each.items()}
                                 for name, each in parameters.items()})  # fmt: skip
    assert set(block.sites) == set(stated.names.values())
    for side in ("loadings", "components"):
        ours, theirs = (getattr(each, side).parameters for each in (found, stated.priors))
        assert ours.keys() == theirs.keys()
        for word, value in theirs.items():
            np.testing.assert_allclose(ours[word], value, rtol=1e-12)


@pytest.mark.parametrize(("program", "x64"), mostly_long(product(RIGHT, [False, True])))
def test_new_values_have_the_form_of_the_sites(program, x64):
    with jax.enable_x64(x64):
        block = bayesnmf.conjugate_block(X, program)
        sites = handlers.trace(handlers.seed(program, 0)).get_trace(X)
        old = {name: sites[name]["value"] for name in block.sites}
        draw = jax.jit(lambda key: block(rng_key=key, gibbs_sites=old, hmc_sites={"level": jnp.asarray(0.7)}))
        one, again, two = (draw(jax.random.key(seed)) for seed in (0, 0, 1))
        for name, value in old.items():
            assert (one[name].shape, one[name].dtype) == (value.shape, value.dtype)
            assert sites[name]["fn"].support(one[name]).all()
            np.testing.assert_array_equal(one[name], again[name])
            assert not np.any(np.isclose(one[name], two[name], rtol=1e-6))


def normal_loadings(x):
    spread = numpyro.sample("spread", dist.HalfNormal(1.0))
    topics = numpyro.sample("topics", dist.Dirichlet(jnp.ones((K, M))).to_event(1))
    amounts = numpyro.sample("amounts", dist.LogNormal(jnp.zeros((N, K)), spread).to_event(2))
    numpyro.sample("x", dist.Poisson(amounts @ topics).to_event(2), obs=x)


def wrong(where):
    """A program with a term where it leaves no conjugate priors."""

    def program(x):
        effect = numpyro.sample("effect", dist.Normal(0.0, 1.0))
        rate = jnp.exp(-effect)
        topics = numpyro.sample("topics", dist.Dirichlet(jnp.ones((K, M))).to_event(1))
        if where == "each other":
            rate = rate + topics.max()
        amounts = numpyro.sample("amounts", dist.Gamma(jnp.ones((N, K)), rate).to_event(2))
        if where == "another site":
            numpyro.sample("height", dist.Normal(amounts.sum(1), 1.0).to_event(1))
        if where == "another observed site":
            numpyro.sample("height", dist.Normal(amounts.sum(1), 1.0).to_event(1), obs=jnp.zeros(N))
        if where == "a factor":
            numpyro.factor("penalty", -amounts.sum())
        if where == "discrete":
            numpyro.sample("kind", dist.Bernoulli(0.5))
        if where == "twice":
            numpyro.sample("again", dist.Poisson(amounts @ topics).to_event(2), obs=x)
        mean = amounts @ topics
        if where == "mean":
            mean = mean * jnp.exp(effect)
        if where == "added":
            mean = mean + jnp.exp(effect)
        counts = dist.GammaPoisson(2.0, 2.0 / mean) if where == "noise" else dist.Poisson(mean)
        numpyro.sample("x", counts.to_event(2), obs=x + 1 if where == "other counts" else x)

    return program


@pytest.mark.parametrize(
    ("program", "fault"),
    [
        (normal_loadings, "changes with 'amounts'.*a factor itself has a Gamma, Exponential or Dirichlet prior"),
        (wrong("each other"), "the rate of the prior of 'amounts' changes with 'amounts', 'topics'"),
        (wrong("another site"), "the density of 'height' changes with 'amounts', 'topics'"),
        (wrong("another observed site"), "the density of 'height' changes with 'amounts', 'topics'"),
        (wrong("a factor"), "the density of 'penalty' changes with 'amounts', 'topics'"),
        (wrong("discrete"), "'kind' is discrete"),
        (wrong("twice"), "it observes 'again', 'x', of which 2 have the counts"),
        (wrong("other counts"), "it observes 'x', of which 0 have the counts"),
        (wrong("mean"), "the mean of the counts 'x' changes with 'effect'.*prior of a factor depend on this instead"),
        (wrong("added"), "the mean of the counts 'x' changes with 'effect'"),
        (wrong("noise"), "the counts 'x' are negative binomial"),
        (partial(on_rate, level=0.3), "it has no further sites"),
    ],
)
def test_what_is_not_conjugate_given_the_rest_is_refused_by_site(program, fault):
    with pytest.raises(ValueError, match=fault):
        bayesnmf.conjugate_block(X, program)


def test_a_site_that_says_nothing_of_the_factors_may_be_observed():
    def program(x):
        age = numpyro.sample("age", dist.Normal(jnp.zeros(N), 1.0).to_event(1))
        numpyro.sample("measured", dist.Normal(age, 0.1).to_event(1), obs=jnp.linspace(-1, 1, N))
        topics = numpyro.sample("topics", dist.Dirichlet(jnp.ones((K, M))).to_event(1))
        amounts = numpyro.sample("amounts", dist.Gamma(1.0, jnp.exp(-age)[:, None] * jnp.ones((N, K))).to_event(2))
        numpyro.sample("x", dist.Poisson(amounts @ topics).to_event(2), obs=x)

    block = bayesnmf.conjugate_block(X, program)
    sites = handlers.trace(handlers.seed(block.rest, 0)).get_trace(X)
    assert {*sites} == {"age", "measured", "topics", "amounts"}


@pytest.mark.parametrize("sweeps", [0, 1.5, True])
def test_sweeps_are_a_whole_number(sweeps):
    with pytest.raises((TypeError, ValueError), match="sweeps must be"):
        bayesnmf.conjugate_block(X, on_rate, sweeps=sweeps)


# The exact posterior at tiny size: a sum over all allocations, and over a grid of the further site.

TINY = np.array([[2, 0, 1], [1, 3, 0]])
GRID = np.linspace(-6, 6, 401)
SHAPE, RATE, CONCENTRATION = 0.7, 0.5, 0.6


def tiny(x, faulty=1.0):
    """The further site moves the rate of the first component alone."""
    at = numpyro.sample("at", dist.Normal(0.0, 1.5))
    rate = RATE * faulty * jnp.stack([jnp.exp(-at), 1.0]) * jnp.ones((2, 2))
    topics = numpyro.sample("topics", dist.Dirichlet(CONCENTRATION * jnp.ones((2, 3))).to_event(1))
    amounts = numpyro.sample("amounts", dist.Gamma(SHAPE, rate).to_event(2))
    numpyro.sample("x", dist.Poisson(amounts @ topics).to_event(2), obs=x)


def exact():
    """Exact posterior means of the further site, its square, amounts (2, 2) and topics (2, 3) of the tiny program."""
    log_prior = -0.5 * (GRID / 1.5) ** 2
    rates = RATE * np.stack([np.exp(-GRID), np.ones_like(GRID)])  # (2, grid)
    total, moments = 0.0, None
    splits = [range(count + 1) for count in TINY.ravel()]
    largest = 0.0
    for chosen in product(*splits):
        first = np.array(chosen).reshape(TINY.shape)
        S = np.stack([first, TINY - first], axis=1)  # (rows, components, features)
        of_loadings, of_topics = S.sum(axis=2), S.sum(axis=0)
        log = -gammaln(S + 1).sum()
        log += (gammaln(CONCENTRATION + of_topics).sum(1) - gammaln(3 * CONCENTRATION + of_topics.sum(1))).sum()
        log += gammaln(SHAPE + of_loadings).sum()
        at = log + log_prior + sum(2 * SHAPE * np.log(rates[k]) - (2 * SHAPE + of_loadings[:, k].sum())
                                   * np.log(rates[k] + 1) for k in range(2))  # fmt: skip
        weight = np.exp(at - largest)
        amounts = (SHAPE + of_loadings)[..., None] / (rates + 1)  # (2, 2, grid)
        topics = (CONCENTRATION + of_topics) / (3 * CONCENTRATION + of_topics.sum(1, keepdims=True))
        found = [weight @ GRID, weight @ GRID**2, amounts @ weight, topics * weight.sum()]
        total += weight.sum()
        moments = found if moments is None else [one + two for one, two in zip(moments, found, strict=True)]
    return np.concatenate([np.ravel(each / total) for each in moments])


def scores(draws, faulty=1.0):
    """How many Monte Carlo standard errors the means of a chain, with exact draws of the site, are from the exact ones.

    The block may be that of a program with a faulty rate.
    """
    with jax.enable_x64(True):
        block = bayesnmf.conjugate_block(TINY, partial(tiny, faulty=faulty), sweeps=1)
        values = {"amounts": np.ones((2, 2)), "topics": np.full((2, 3), 1 / 3)}
        read = jax.vmap(lambda at: block._found.parameters({"at": at} | values))(GRID)
        on_grid = jax.tree.map(np.asarray, read)
    rng, found = np.random.default_rng(0), []
    for step in range(draws):
        amounts = values["amounts"][:, 0]
        log = -0.5 * (GRID / 1.5) ** 2 - 2 * SHAPE * GRID - RATE * np.exp(-GRID) * amounts.sum()
        chances = np.exp(log - log.max())
        at = rng.choice(len(GRID), p=chances / chances.sum())
        values = block._drawn(np.array([step]), values, jax.tree.map(lambda each, at=at: each[at], on_grid))
        found.append([GRID[at], GRID[at] ** 2, *values["amounts"].ravel(), *values["topics"].ravel()])
    found = np.array(found).reshape(4, draws // 4, -1)
    return (found.mean((0, 1)) - exact()) / (found.std((0, 1)) / np.sqrt(effective_sample_size(found)))


@pytest.mark.long
def test_chains_have_the_exact_posterior():
    # 12 means: the largest of 12 standard normal numbers is over 4 once in a thousand
    assert np.abs(scores(20_000)).max() < 4


@pytest.mark.long
def test_a_rate_that_is_a_fifth_off_would_be_found():
    # the power of the test above
    assert np.abs(scores(20_000, faulty=1.2)).max() > 4


@pytest.mark.long
def test_a_block_is_what_hmc_gibbs_takes_and_chains_begin_in_one_mode():
    with jax.enable_x64(True):
        block = bayesnmf.conjugate_block(X, on_rate)
        start = block.start(3)
        assert start["level"].shape == (3,)
        assert np.ptp(start["topics"], axis=0).max() > 0
        assert block.start(1)["topics"].shape == (K, M)
        np.testing.assert_array_equal(block.start(3)["topics"], start["topics"])
        kernel = HMCGibbs(NUTS(block.rest), gibbs_fn=block, gibbs_sites=block.sites)
        mcmc = MCMC(kernel, num_warmup=10, num_samples=10, progress_bar=False)
        mcmc.run(jax.random.key(0), X, init_params=block.start(1))
        assert mcmc.get_samples()["amounts"].shape == (10, N, K)


@pytest.mark.long
def test_chains_agree_with_nuts_of_the_whole_program():
    rng = np.random.default_rng(3)
    age, topics = rng.uniform(0, 2, 30), rng.dirichlet(np.full(8, 0.3), 2)
    mean = np.exp(3.0 + np.outer(1 - np.exp(-age), [1.0, -1.0]))
    x = rng.poisson(rng.gamma(2.0, mean / 2.0) @ topics)

    def program(x):
        effect = numpyro.sample("effect", dist.Normal(jnp.zeros(2), 1.0).to_event(1))
        tau = numpyro.sample("tau", dist.LogNormal(0.0, 0.5))
        eta = 3.0 + effect * (1.0 - jnp.exp(-age / tau))[:, None]
        topics = numpyro.sample("topics", dist.Dirichlet(0.3 * jnp.ones((2, 8))).to_event(1))
        amounts = numpyro.sample("amounts", dist.Gamma(2.0, 2.0 * jnp.exp(-eta)).to_event(2))
        numpyro.sample("x", dist.Poisson(amounts @ topics).to_event(2), obs=x)

    with jax.enable_x64(True):
        block = bayesnmf.conjugate_block(x, program)
        start = block.start(2)
        sites = handlers.trace(handlers.seed(program, 0)).get_trace(x)
        unconstrained = start | {
            name: dist.biject_to(sites[name]["fn"].support).inv(jnp.asarray(start[name])) for name in block.sites
        }
        runs = []
        for kernel, at in ((Gibbs([(CustomGibbs(block), block.sites), (NUTS(block.rest), None)]), start),
                           (NUTS(program), unconstrained)):  # fmt: skip
            mcmc = MCMC(kernel, num_warmup=500, num_samples=4000, num_chains=2, chain_method="sequential",
                        progress_bar=False)  # fmt: skip
            mcmc.run(jax.random.key(1), x, init_params=at)
            found = mcmc.get_samples(group_by_chain=True)
            runs.append(np.concatenate([np.asarray(found[name]).reshape(2, 4000, -1) for name in sorted(found)], 2))
    assert max(split_gelman_rubin(each).max() for each in runs) < 1.01
    errors = [each.std((0, 1)) / np.sqrt(effective_sample_size(each)) for each in runs]
    scores = (runs[0].mean((0, 1)) - runs[1].mean((0, 1))) / np.hypot(*errors)
    assert np.abs(scores).max() < 4.5  # the largest of 79 is over 4.5 once in two thousand
