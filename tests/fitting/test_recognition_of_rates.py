"""Programs with rates that are drawn and with factors of batches, recognised in other words; wrong ones never."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from bayesnmf.models import hierarchical_poisson
from numpyro.infer.util import log_density
from scipy.stats import dirichlet, gamma, poisson
from smallfits import quietly

import bayesnmf
from bayesnmf.fitting.recognition import recognise

N, K, M, B = 6, 3, 5, 2
X = np.random.default_rng(1).poisson(3.0, (N, M))
COUNTS = bayesnmf.as_counts(X)
LABELS = np.array([0, 1, 1, 0, 1, 0])
OVER = {"row": (N, 1), "component of loadings": (1, K), "feature": (1, M), "component": (K, 1), "all": (1, 1), "": None}


class Stated(NamedTuple):
    """A program as a choice for each of its parts: what shares a rate, how it is written, and what is wrong."""

    loadings: str = "row"
    components: str = "feature"  # "" is a rate that is a number, and "Dirichlet" another family
    names: tuple[str, str, str, str, str] = ("theta", "beta", "xi", "eta", "depth")
    turned: bool = False
    plates: bool = False
    flat: bool = True  # whether rates have one axis
    components_first: bool = False
    exponential: bool = False
    batches: bool = False
    wrong: str = ""
    seed: int = 0


def program_of(stated):
    """Return the program as a user may write it, and the parameters of its priors by site."""
    rng = np.random.default_rng(stated.seed)
    theta, beta, xi, eta, depth = stated.names
    numbers = rng.uniform(0.4, 2.0, (4, 3))
    times, strength = rng.uniform(0.5, 2.0), rng.uniform(2.0, 9.0)

    def rate(name, over, own):
        size = OVER[over]
        size = tuple(each for each in size if each > 1) if stated.flat else size
        prior = dist.Exponential(own[1]) if stated.exponential else dist.Gamma(own[0], own[1])
        if stated.wrong == "rate of a rate" and over in ("row", "component of loadings"):
            prior = dist.Gamma(own[0], numpyro.sample("above", dist.Gamma(1.0, 1.0)))
        if stated.plates and stated.flat and size:
            with numpyro.plate(f"of {name}", *size):
                value = numpyro.sample(name, prior)
        else:
            value = numpyro.sample(name, prior.expand(size).to_event(len(size)))
        value = value.reshape(OVER[over])
        value = {"square": value**2, "shift": value + 1e-6, "root": jnp.sqrt(value), "mean": 1 / value}.get(
            stated.wrong, value
        )
        return times * value

    def factor(name, size, over, above, own):
        if over == "Dirichlet":
            return numpyro.sample(name, dist.Dirichlet(own[0] * jnp.ones(size)).to_event(1))
        shared = rate(above, over, own[1:]) if over else own[1]
        if stated.wrong == "shape" and over:
            own = (shared, *own[1:])
        prior = dist.Gamma(own[0] * jnp.ones(size), jnp.broadcast_to(shared, size))
        if stated.turned:
            turned = dist.Gamma(own[0] * jnp.ones(size).T, jnp.broadcast_to(shared, size).T)
            return numpyro.sample(name, turned.to_event(2)).T
        if stated.plates:
            with numpyro.plate(f"rows of {name}", size[0], dim=-2), numpyro.plate(f"columns of {name}", size[1]):
                return numpyro.sample(name, dist.Gamma(own[0], shared))
        return numpyro.sample(name, prior.to_event(2))

    def program(x):
        sides = [("U", theta, (N, K), stated.loadings, xi, numbers[0]), ("V", beta, (K, M), stated.components, eta,
                 numbers[1])]  # fmt: skip
        drawn = {side: factor(*given) for side, *given in (sides[::-1] if stated.components_first else sides)}
        mean = drawn["U"] @ drawn["V"]
        if stated.wrong == "mean of counts":
            mean = mean + 1e-6
        if stated.wrong == "unused":
            numpyro.sample("more", dist.Gamma(jnp.ones(N), 1.0).to_event(1))
        if stated.batches:
            own = dist.Gamma(strength, strength * (2 if stated.wrong == "prior of batches" else 1))
            factors = numpyro.sample(depth, own.expand((B, M)).to_event(2))
            factors = {"square of batches": factors**2, "shift of batches": factors + 1e-6}.get(stated.wrong, factors)
            if stated.wrong == "sum of batches":
                mean = mean + factors[LABELS]
            elif stated.wrong == "batches of features":
                mean = mean * factors[:, [0, 0, 1, 2, 3]][LABELS]
            else:
                mean = mean * factors[LABELS]
        numpyro.sample("X", dist.Poisson(mean).to_event(2), obs=x)

    return program


def point_of(stated, rng):
    """Values of the sites of a program, of any size."""
    theta, beta, xi, eta, depth = stated.names
    right = rng.dirichlet(np.ones(M), K) if stated.components == "Dirichlet" else rng.gamma(1.0, size=(K, M))
    left = rng.gamma(1.0, size=(N, K))
    turned = (left.T, right.T if stated.components != "Dirichlet" else right) if stated.turned else (left, right)
    sites = dict(zip((theta, beta), turned, strict=True))
    for name, over in ((xi, stated.loadings), (eta, stated.components)):
        if OVER.get(over):
            size = tuple(each for each in OVER[over] if each > 1) if stated.flat else OVER[over]
            sites[name] = rng.gamma(1.0, size=size)
    if stated.batches:
        sites[depth] = rng.gamma(5.0, 0.2, size=(B, M))
    return sites, left, right


def log_prior(prior, values):
    """The log density of values under a prior of ours by SciPy; rates that are drawn are at their conditional's mean.

    It is log p(x | ξ) + log p(ξ) − log p(ξ | x), which is log p(x) at any ξ.
    """
    if isinstance(prior, bayesnmf.Dirichlet):
        return sum(dirichlet.logpdf(row, np.full(M, prior.concentration)) for row in values)
    if isinstance(prior, bayesnmf.Gamma):
        return gamma.logpdf(values, prior.shape, scale=1 / np.asarray(prior.rate)).sum()
    shapes = np.broadcast_to(prior.shape, values.shape)
    left = values.shape == (N, K)
    axes = {"row": 1, "feature": 0, "component": 0 if left else 1, "all": (0, 1)}[prior.over]
    a = np.broadcast_to(prior.rate.shape, values.sum(axis=axes, keepdims=True).shape)
    b = np.broadcast_to(prior.rate.rate, a.shape)
    a_post, b_post = a + shapes.sum(axis=axes, keepdims=True), b + values.sum(axis=axes, keepdims=True)
    rates = a_post / b_post
    return (
        gamma.logpdf(values, shapes, scale=1 / rates).sum()
        + gamma.logpdf(rates, a, scale=1 / b).sum()
        - gamma.logpdf(rates, a_post, scale=1 / b_post).sum()
    )


def conditional_of_rates(stated, sites, left, right):
    """Log p(rates | factors) of a program by its own definition: Gamma, of the rates that its sites are."""
    rng = np.random.default_rng(stated.seed)
    numbers = rng.uniform(0.4, 2.0, (4, 3))
    times, total = rng.uniform(0.5, 2.0), 0.0
    for values, over, name, own in (
        (left, stated.loadings, stated.names[2], numbers[0]),
        (right, stated.components, stated.names[3], numbers[1]),
    ):
        if not OVER.get(over):
            continue
        size = OVER[over]
        axes = tuple(axis for axis in (0, 1) if size[axis] == 1)
        a = (1.0 if stated.exponential else own[1]) + own[0] * np.ones(values.shape).sum(axis=axes, keepdims=True)
        b = own[2] + times * values.sum(axis=axes, keepdims=True)
        total += gamma.logpdf(sites[name].reshape(size), a, scale=1 / b).sum()
    return total


def check_same_log_joint(stated):
    """The log joint of a program, with rates summed out, is that of what is recognised, at random points."""
    program, rng = program_of(stated), np.random.default_rng(stated.seed + 1)
    found = recognise(program, COUNTS)
    assert (found.names["loadings"], found.names["components"]) == stated.names[:2]
    assert (found.batch is not None) == stated.batches
    for _ in range(3):
        sites, left, right = point_of(stated, rng)
        with jax.enable_x64(True):
            theirs, _ = log_density(program, (jnp.asarray(X),), {}, sites)
        mean = left @ right
        ours = log_prior(found.priors.loadings, left) + log_prior(found.priors.components, right)
        if found.batch is not None:
            factors, a = sites[stated.names[4]], found.batch.shape
            np.testing.assert_array_equal(found.batch.labels, LABELS)
            ours += gamma.logpdf(factors, a, scale=1 / a).sum()
            mean = mean * factors[LABELS]
        ours += poisson.logpmf(X, mean).sum()
        np.testing.assert_allclose(
            float(theirs) - conditional_of_rates(stated, sites, left, right), ours, rtol=1e-9, atol=1e-9
        )


RIGHT = {
    "as scHPF": Stated(),
    "other names and order": Stated(names=("z", "a", "y", "b", "c"), components_first=True),
    "names of other sites of the library": Stated(names=("components", "loadings", "scale", "counts", "c")),
    "plates": Stated(plates=True),
    "transposed": Stated(turned=True),
    "rates with both axes": Stated(flat=False),
    "exponential rates": Stated(exponential=True),
    "of loadings alone": Stated(components=""),
    "of components alone": Stated(loadings=""),
    "Dirichlet components": Stated(components="Dirichlet"),
    "automatic relevance": Stated("component of loadings", "Dirichlet"),
    "of components, one for each": Stated("", "component"),
    "one for all": Stated("all", "all"),
    "batches": Stated("", "Dirichlet", batches=True),
    "batches and rates": Stated(batches=True, plates=True),
}


@pytest.mark.parametrize("stated", RIGHT.values(), ids=RIGHT)
def test_the_log_joint_of_what_is_recognised_is_that_of_the_program(stated):
    check_same_log_joint(stated)


WRONG = {
    "square": (Stated(wrong="square"), "the rate of the prior of 'theta' depends on other sites"),
    "shift": (Stated(wrong="shift"), "the rate of the prior of 'theta' depends on other sites"),
    "root": (Stated(wrong="root"), "the rate of the prior of 'theta' depends on other sites"),
    "mean": (Stated(wrong="mean"), "the rate of the prior of 'theta' depends on other sites"),
    "shape": (Stated(wrong="shape"), "the shape of the prior of 'theta' depends on other sites"),
    "rate of a rate": (Stated(wrong="rate of a rate"), "the rate of the prior of 'xi' depends on other sites"),
    "mean of counts": (Stated(wrong="mean of counts"), "not the product of two factors"),
    "unused": (Stated(wrong="unused"), "it samples .*'more'"),
    "square of batches": (Stated(batches=True, wrong="square of batches"), "not the product of two factors"),
    "shift of batches": (Stated(batches=True, wrong="shift of batches"), "not the product of two factors"),
    "sum of batches": (Stated(batches=True, wrong="sum of batches"), "not the product of two factors"),
    "batches of features": (Stated(batches=True, wrong="batches of features"), "not the product of two factors"),
    "prior of batches": (Stated(batches=True, wrong="prior of batches"), "'depth' are factors of batches without one"),
}


@pytest.mark.parametrize(("stated", "fault"), WRONG.values(), ids=WRONG)
def test_what_is_no_model_is_refused_with_its_site(stated, fault):
    with pytest.raises(ValueError, match=fault):
        recognise(program_of(stated), COUNTS)


def test_one_rate_of_both_factors_is_refused():
    def program(x):
        tau = numpyro.sample("tau", dist.Gamma(1.0, 1.0))
        U = numpyro.sample("U", dist.Gamma(jnp.ones((N, K)), tau).to_event(2))
        V = numpyro.sample("V", dist.Gamma(jnp.ones((K, M)), tau).to_event(2))
        numpyro.sample("X", dist.Poisson(U @ V).to_event(2), obs=x)

    with pytest.raises(ValueError, match="it samples 'tau', 'U', 'V'"):
        recognise(program, COUNTS)


@pytest.mark.parametrize(
    ("noise", "more"),
    [
        ("poisson", {}),
        (bayesnmf.NegativeBinomial("linear", 0.5), {"dispersion": 0.5 * np.ones((1, 1)), "variance": "linear"}),
        (bayesnmf.NegativeBinomial("quadratic", 0.5), {"dispersion": 0.5 * np.ones((1, 1)), "variance": "quadratic"}),
    ],
    ids=["poisson", "nb1", "nb2"],
)
@quietly
def test_the_program_of_the_library_is_recognised_as_its_model(noise, more):
    of_rows = bayesnmf.HierarchicalGamma(0.3, bayesnmf.Gamma(0.5, 2.0), "row")
    of_features = bayesnmf.HierarchicalGamma(0.4, bayesnmf.Gamma(1.5, 3.0), "feature")
    priors = bayesnmf.Priors(of_rows, of_features)

    def program(x):
        hierarchical_poisson.program(x, rank=K, loadings=priors.loadings, components=priors.components, **more)

    options = bayesnmf.MAP(max_iter=5, priors=priors)
    named = bayesnmf.fit(X, "hierarchical_poisson", K, "map", seed=0, options=options, noise=noise)
    found = bayesnmf.fit(X, program, method="map", seed=0, options=bayesnmf.MAP(max_iter=5))
    assert found.model == "hierarchical_poisson"
    np.testing.assert_array_equal(found.components, named.components)
    np.testing.assert_array_equal(found.trace, named.trace)


@quietly
def test_a_program_with_batches_is_fitted_as_the_model_with_their_labels():
    program = program_of(Stated("", "Dirichlet", batches=True))
    found = bayesnmf.fit(X, program, method="map", seed=0, options=bayesnmf.MAP(max_iter=5))
    said = recognise(program, COUNTS)
    options, batch = bayesnmf.MAP(max_iter=5, priors=said.priors), bayesnmf.Batch(LABELS.tolist(), said.batch.shape)
    named = bayesnmf.fit(X, "gamma_poisson", K, "map", seed=0, options=options, batch=batch)
    np.testing.assert_array_equal(found.components, named.components)
    np.testing.assert_array_equal(found.batch.mean, named.batch.mean)


@quietly
def test_a_program_with_batches_is_refused_by_methods_without_their_factors():
    program = program_of(Stated("", "Dirichlet", batches=True))
    with pytest.raises(ValueError, match=r"method must be 'map', 'vi' or 'gibbs' for this program.* found 'nuts'"):
        bayesnmf.fit(X, program, method="nuts")


@pytest.mark.parametrize(
    ("codes", "number"), [(np.zeros(N, int), 2), (np.arange(N) % 2, 3)], ids=["one", "two of three"]
)
def test_batches_that_no_row_has_are_refused_by_their_site(codes, number):
    def program(x):
        depth = numpyro.sample("depth", dist.Gamma(2.0, 2.0).expand((number, M)).to_event(2))
        U = numpyro.sample("U", dist.Gamma(0.5, 0.5).expand((N, K)).to_event(2))
        V = numpyro.sample("V", dist.Dirichlet(jnp.ones(M)).expand((K,)).to_event(1))
        numpyro.sample("X", dist.Poisson(U @ V * depth[codes]).to_event(2), obs=x)

    with pytest.raises(ValueError, match="no row of the counts has some of the batches of 'depth'"):
        bayesnmf.fit(X, program)


def test_one_component_of_one_feature_is_no_factor_of_batches():
    def program(x):
        U = numpyro.sample("U", dist.Gamma(1.0, 1.0).expand((N, 1)).to_event(2))
        V = numpyro.sample("V", dist.Gamma(1.0, 1.0).expand((1, 1)).to_event(2))
        numpyro.sample("X", dist.Poisson(U @ V).to_event(2), obs=x)

    assert recognise(program, bayesnmf.as_counts(X[:, :1])).batch is None


@quietly
def test_a_prior_that_is_improper_is_refused():
    stated = bayesnmf.fit(X, "poisson", K, "map", seed=0, options=bayesnmf.MAP(max_iter=3)).program()
    with pytest.raises(ValueError, match="a site without a proper prior"):
        recognise(lambda x: stated.model(x, **{k: v for k, v in stated.arguments.items() if k != "counts"}), COUNTS)


def test_effects_of_covariates_are_refused_by_their_site_with_what_fits_them():
    age = np.linspace(-1, 1, N)[:, None]

    def program(x):
        slopes = numpyro.sample("slopes", dist.Normal(jnp.zeros(K), 1.0).to_event(1))
        U = numpyro.sample("U", dist.Gamma(jnp.ones((N, K)), jnp.exp(-age * slopes)).to_event(2))
        V = numpyro.sample("V", dist.Dirichlet(jnp.ones((K, M))).to_event(1))
        numpyro.sample("X", dist.Poisson(U @ V).to_event(2), obs=x)

    with pytest.raises(ValueError, match=r"the prior Normal of 'slopes' is not conjugate.*or method='nuts'"):
        bayesnmf.fit(X, program)


def drawn(seed):
    """A random program."""
    rng = np.random.default_rng(seed)
    of = lambda *choices: choices[rng.integers(len(choices))]  # noqa: E731
    return Stated(
        of("row", "component of loadings", "all", ""), of("feature", "component", "all", "", "Dirichlet"),
        tuple(rng.permutation(["a", "b", "c", "d", "loadings"])), of(True, False), of(True, False), of(True, False),
        of(True, False), of(True, False), of(True, False), seed=seed,
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("seed", range(200))
def test_random_programs_have_the_log_joint_of_what_is_recognised(seed):
    stated = drawn(seed)
    check_same_log_joint(stated._replace(turned=stated.turned and stated.components != "Dirichlet"))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(60))
def test_random_programs_with_a_fault_are_never_recognised(seed):
    right = drawn(seed)._replace(turned=False)
    for _, (faulty, _) in WRONG.items():
        wrong = right._replace(wrong=faulty.wrong, batches=right.batches or faulty.batches)
        if faulty.wrong in ("square", "shift", "root", "mean", "shape"):
            wrong = wrong._replace(loadings=right.loadings or "row")
        if faulty.wrong == "rate of a rate":
            wrong = wrong._replace(loadings="row", exponential=False)
        with pytest.raises(ValueError, match="model must be a program that a closed form fits"):
            recognise(program_of(wrong), COUNTS)
