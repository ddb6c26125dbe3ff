"""Programs that no closed form fits run as they stand: their factors are found, and their posterior is that of NumPyro.

A Weibull distribution of shape 1 is an exponential one, which closed forms fit: both must give the same posterior.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import smallfits
import xarray as xr

import bayesnmf
from bayesnmf import NUTS, SVI
from bayesnmf.fitting.own_programs import as_it_stands
from bayesnmf.results.record import SITE

N, K, M = 8, 2, 6
X = np.random.default_rng(0).poisson(4.0, (N, M))
COUNTS = bayesnmf.as_counts(X)
EXPOSURE = np.linspace(0.5, 2.0, N)
SEEN = np.random.default_rng(1).random((N, M)) < 0.9
QUICK = NUTS(chains=2, draws=30, warmup=30, max_tree_depth=4)
pytestmark = smallfits.quietly


def stands(program, named=None):
    return as_it_stands(program, COUNTS, "nuts", named, ValueError("no closed form"))


def shares(rank=K):
    return numpyro.sample("beta", dist.Dirichlet(jnp.ones((rank, M))).to_event(1))


def amounts():
    return numpyro.sample("theta", dist.LogNormal(jnp.zeros((N, K)), 1.0).to_event(2))


def observe(x, mean):
    numpyro.sample("x", dist.Poisson(mean).to_event(2), obs=x)


def log_normal(x):
    observe(x, amounts() @ shares())


def hierarchy(x):
    spread = numpyro.sample("spread", dist.HalfNormal(1.0))
    size = numpyro.sample("size", dist.LogNormal(0.0, 1.0).expand([K]).to_event(1))
    theta = numpyro.sample("theta", dist.Gamma(spread * jnp.ones((N, K)), 1 / size).to_event(2))
    observe(x, theta @ shares())


def turned(x):
    with numpyro.plate("parts", K, dim=-2), numpyro.plate("rows", N, dim=-1):
        theta = numpyro.sample("theta", dist.HalfNormal(3.0))
    observe(x, theta.T @ shares())


def computed(x):
    weights = numpyro.sample("weights", dist.Normal(jnp.zeros((1, K)), 1.0).to_event(2))
    z = numpyro.sample("z", dist.Normal(jnp.zeros((K, M)), 1.0).to_event(2))
    theta = numpyro.deterministic("theta", jnp.exp(weights * jnp.linspace(-1, 1, N)[:, None]))
    observe(x, theta @ numpyro.deterministic("beta", jnp.exp(z)))


def topics(x):
    z = numpyro.sample("z", dist.Normal(jnp.zeros((N, K)), 1.0).to_event(2))
    theta = numpyro.deterministic("theta", jax.nn.softmax(z))
    numpyro.sample("x", dist.Multinomial(x.sum(1), theta @ shares()).to_event(1), obs=x)


def scaled(x):
    z = numpyro.sample("z", dist.Normal(jnp.zeros((N, K)), 1.0).to_event(2))
    theta = numpyro.deterministic("theta", jax.nn.softmax(z))
    total = numpyro.sample("total", dist.LogNormal(jnp.ones(N), 1.0).to_event(1))
    observe(x, total[:, None] * theta @ shares())


def exposed(x):
    observe(x, EXPOSURE[:, None] * amounts() @ shares())


def masked(x):
    numpyro.sample("x", dist.Poisson(amounts() @ shares()).mask(SEEN).to_event(2), obs=x)


def dispersed(x):
    numpyro.sample("x", dist.NegativeBinomial2(amounts() @ shares(), 2.0).to_event(2), obs=x)


def dispersion_drawn(x):
    size = numpyro.sample("phi", dist.LogNormal(0.0, 1.0))
    numpyro.sample("x", dist.NegativeBinomial2(amounts() @ shares(), size).to_event(2), obs=x)


PROGRAMS = {
    "log_normal": (log_normal, "poisson", {}),
    "hierarchy": (hierarchy, "poisson", {}),
    "turned": (turned, "poisson", {}),
    "computed": (computed, "poisson", {}),
    "topics": (topics, "dirichlet_poisson", {}),
    "scaled": (scaled, "dirichlet_gamma", {"scale": "total"}),
    "exposed": (exposed, "poisson", {}),
    "masked": (masked, "poisson", {}),
    "dispersed": (dispersed, "poisson", {}),
    "dispersion_drawn": (dispersion_drawn, "poisson", {}),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_factors_of_a_program_are_those_whose_product_is_its_mean(name):
    program, model, more = PROGRAMS[name]
    found = stands(program)
    assert found.names == {"loadings": "theta", "components": "beta", **more}
    assert (found.model, found.rank) == (model, K)
    if name == "exposed":
        np.testing.assert_allclose(found.row_exposure, EXPOSURE)
    if name == "masked":
        np.testing.assert_array_equal(found.observed, SEEN)
    assert found.noise.word == ("nb2" if name.startswith("disp") else "poisson")


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("method", ["map", "vi", "gibbs", "smc"])
def test_other_methods_refuse_it_and_say_which_can_fit_it(name, method):
    with pytest.raises(ValueError, match="or method='nuts' or 'svi', which can fit this program as it stands"):
        bayesnmf.fit(X, PROGRAMS[name][0], method=method)


def test_the_site_that_is_not_conjugate_is_named():
    with pytest.raises(ValueError, match="the prior LogNormal of 'theta' is not conjugate"):
        bayesnmf.fit(X, log_normal)


@pytest.mark.parametrize("name", ["hierarchy", pytest.param("scaled", marks=pytest.mark.long),
                                  pytest.param("topics", marks=pytest.mark.long),
                                  pytest.param("computed", marks=pytest.mark.long),
                                  pytest.param("turned", marks=pytest.mark.long),
                                  pytest.param("masked", marks=pytest.mark.long)])  # fmt: skip
def test_nuts_returns_a_fit_of_the_factors_with_all_other_sites(name, tmp_path):
    fit = bayesnmf.fit(X, PROGRAMS[name][0], method="nuts", seed=0, options=QUICK)
    assert fit.method == "nuts"
    assert "prior of its own program" in " ".join(repr(fit).split())
    assert fit.posterior.held == (2, 30)
    assert fit.objective == "log joint"
    if name == "hierarchy":
        assert fit.statistics[f"{SITE}spread"].shape == (2, 30)
        assert fit.statistics[f"{SITE}size"].shape == (2, 30, K)
    own = fit.to_datatree()["posterior"]
    assert {"theta", "beta"} <= {*own.data_vars}
    fit.save(tmp_path / "fit.nc")
    again = bayesnmf.load(tmp_path / "fit.nc")
    assert repr(again) == repr(fit)
    xr.testing.assert_identical(again.to_datatree(), fit.to_datatree())
    with pytest.raises(ValueError, match="found prior of its own program; run the program on those counts"):
        again.transform(X)
    means = bayesnmf.from_draws(X, fit.to_datatree(), loadings="theta", components="beta",
                                scale="total" if name == "scaled" else "scale")  # fmt: skip
    np.testing.assert_allclose(means.components, fit.components)


@pytest.mark.long
def test_svi_returns_draws_of_a_mean_field(tmp_path):
    def one(x):
        theta = numpyro.sample("theta", dist.LogNormal(5.0, 3.0).expand([N, 1]).to_event(2))
        observe(x, theta @ shares(1))

    many = 100 * X
    fit = bayesnmf.fit(many, one, method="svi", seed=0, options=SVI(max_iter=3000))
    assert fit.posterior.held == (1, 1000)
    assert "draws of a mean field; too narrow" in repr(fit)
    assert fit.objective == "elbo_marginal, estimated,"
    # So many counts outweigh the priors: the means of one component are those of rows and features.
    means = np.outer(many.sum(1), many.sum(0)) / many.sum()
    np.testing.assert_allclose(fit.expected()["mean"].to_numpy().reshape(N, M), means, rtol=0.03)
    fit.save(tmp_path / "fit.nc")
    assert repr(bayesnmf.load(tmp_path / "fit.nc")) == repr(fit)
    bayesnmf.plots.objectives(fit)
    with pytest.raises(ValueError, match="an evidence lower bound needs"):
        bayesnmf.elbo_augmented(fit)


@pytest.mark.long
def test_a_program_in_other_words_has_the_posterior_of_the_closed_form():
    def other_words(x):
        theta = numpyro.sample("theta", dist.Weibull(10.0 * jnp.ones((N, K)), 1.0).to_event(2))
        observe(x, theta @ shares())

    def conjugate(x):
        theta = numpyro.sample("theta", dist.Exponential(0.1 * jnp.ones((N, K))).to_event(2))
        observe(x, theta @ shares())

    own = bayesnmf.fit(X, other_words, method="nuts", seed=1, options=NUTS(chains=4, draws=1000))
    gibbs = bayesnmf.fit(X, conjugate, method="gibbs", seed=2, options=bayesnmf.Gibbs(draws=4000))
    # Effective draws are some 1,500 and more, so means differ by a twentieth of deviations of half a mean at most.
    np.testing.assert_allclose(own.expected()["mean"], gibbs.expected()["mean"], rtol=0.03)
    totals = [fit.posterior.loadings.sum(axis=-1).reshape(-1, N) for fit in (own, gibbs)]
    np.testing.assert_allclose(totals[0].std(axis=0), totals[1].std(axis=0), rtol=0.1)


@pytest.mark.long
def test_a_dispersion_that_is_drawn_is_that_of_the_fit():
    fit = bayesnmf.fit(X, dispersion_drawn, method="nuts", seed=0, options=NUTS(draws=300))
    drawn = 1 / fit.statistics[f"{SITE}phi"]
    np.testing.assert_allclose(fit.statistics["dispersion"], drawn)
    assert fit.noise.dispersion == pytest.approx(drawn.mean())
    assert fit.noise.word == "nb2"
    bayesnmf.predictive_checks(fit, draws=20, refits=10)
    assert "dispersion" in fit.to_datatree()["posterior"]


def squares(x):
    observe(x, amounts() ** 2 @ shares())


def added(x):
    base = numpyro.sample("base", dist.LogNormal(0.0, 1.0))
    observe(x, amounts() @ shares() + base)


def twice(x):
    theta, beta = amounts(), shares()
    numpyro.deterministic("again", theta * 1.0)
    observe(x, theta @ beta)


def named(x):
    theta, beta = amounts(), shares()
    numpyro.deterministic("loadings", theta * 1.0)
    observe(x, theta @ numpyro.deterministic("components", beta * 1.0))


def part(x):
    with numpyro.plate("rows", N, subsample_size=4) as rows:
        theta = numpyro.sample("theta", dist.LogNormal(jnp.zeros(K), 1.0).to_event(1))
    numpyro.sample("x", dist.Poisson(theta @ shares()).to_event(2), obs=x[rows])


def other_counts(x):
    observe(x + 1, amounts() @ shares())


FAULTS = {
    "squares": (squares, {}, r"not the product of two sites.*numpyro\.deterministic\('loadings', …\)"),
    "added": (added, {}, "not the product of two sites"),
    "twice": (twice, {}, r"the product of 'theta' and 'beta', and of 'again' and 'beta'.*sites=\{'loadings': 'theta'"),
    "part": (part, {}, "takes a subsample in the plate 'rows'"),
    "other counts": (other_counts, {}, "0 of its sites observe the counts"),
    "wrong sites": (log_normal, {"sites": {"loadings": "beta", "components": "theta"}}, "sites 'beta' and 'theta'"),
    "half of the sites": (log_normal, {"sites": {"loadings": "theta"}}, "sites must name both factors"),
    "checkpoint": (log_normal, {"checkpoint": "folder"}, "checkpoint needs a model of this library"),
    "augmented": (log_normal, {"method": "svi", "options": SVI(bound="augmented")}, "leave bound out"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_no_factorisation_is_refused(fault, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    program, given, message = FAULTS[fault]
    with pytest.raises(ValueError, match=message):
        bayesnmf.fit(X, program, **{"method": "nuts", "options": None, **given})


def test_sites_say_which_of_several_are_the_factors():
    names = {"loadings": "again", "components": "beta"}
    assert stands(twice, names).names == names
    assert stands(named).names == {"loadings": "loadings", "components": "components"}
    with pytest.raises(ValueError, match="sites need a program"):
        bayesnmf.fit(X, rank=2, sites=names)

    def conjugate(x):
        theta = numpyro.sample("theta", dist.Gamma(jnp.ones((N, K)), 1.0).to_event(2))
        observe(x, theta @ shares())

    assert bayesnmf.fit(X, conjugate, seed=0, sites={"loadings": "theta", "components": "beta"}).rank == K
    with pytest.raises(ValueError, match="sites must be those that the mean is a product of"):
        bayesnmf.fit(X, conjugate, sites={"loadings": "theta", "components": "gamma"})


@pytest.mark.long
@pytest.mark.parametrize("more", [{"dense_mass": True}, {"init_strategy": "median"}, {"chain_method": "sequential"}])
@pytest.mark.parametrize("program", ["gamma_poisson", log_normal])
def test_settings_of_nuts_reach_the_sampler(more, program):
    given = {} if callable(program) else {"rank": K}
    plain = bayesnmf.fit(X, program, method="nuts", seed=0, options=QUICK, **given)
    options = NUTS(chains=2, draws=30, warmup=30, max_tree_depth=4, **more)
    found = bayesnmf.fit(X, program, method="nuts", seed=0, options=options, **given)
    same = np.array_equal(found.posterior.loadings, plain.posterior.loadings)
    assert same == (more == {"chain_method": "sequential"})
