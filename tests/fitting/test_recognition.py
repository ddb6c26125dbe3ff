"""Programs that users write, recognised as models: the same log joint, and wrong ones are never taken for right."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.distributions import constraints
from numpyro.infer.util import log_density

import bayesnmf
from bayesnmf.data.exposures import with_exposures
from bayesnmf.data.missing import with_missing
from bayesnmf.fitting.nuts_and_svi import log_joints
from bayesnmf.fitting.recognition import recognise
from bayesnmf.priors.values import attach_scale

N, K, M = 7, 3, 5
X = np.random.default_rng(1).poisson(3.0, (N, M))
COUNTS = bayesnmf.as_counts(X)
POINTS = 3


class Stated(NamedTuple):
    """A program as a choice for each of its parts."""

    loadings: str = "Gamma"
    components: str = "Dirichlet"
    turned: tuple[bool, bool] = (False, False)
    plates: bool = False
    counts: str = "poisson"
    own: tuple[str, str] = ("all", "all")  # whose the hyperparameters are
    exposed: tuple[bool, bool] = (False, False)
    whose: str = "all"  # the dispersion or share
    masked: bool = False
    turned_counts: bool = False
    wrong: str = ""
    seed: int = 0


def positive(rng, whose, shape):
    """A hyperparameter of all entries, of each row or column, or of each entry."""
    size = {"all": (1, 1), "rows": (shape[0], 1), "columns": (1, shape[1]), "entries": shape}[whose]
    return np.broadcast_to(rng.uniform(0.3, 2.0, size), shape)


def program_of(stated):
    """Return a NumPyro program as a user may write it."""
    rng = np.random.default_rng(stated.seed)
    shapes = {"U": (N, K), "V": (K, M)}
    families = {"U": stated.loadings.removeprefix("scaled "), "V": stated.components}
    first = {side: positive(rng, own, shapes[side]) for side, own in zip(shapes, stated.own, strict=True)}
    second = {side: positive(rng, own, shapes[side]) for side, own in zip(shapes, stated.own, strict=True)}
    rows, features = rng.uniform(0.5, 2.0, (N, 1)), rng.uniform(0.5, 2.0, (1, M))
    exposure = (rows if stated.exposed[0] else 1.0) * (features if stated.exposed[1] else 1.0)
    noise = positive(rng, stated.whose, (N, M)) / 3
    observed = rng.random((N, M)) < 0.8

    def factor(name, turned):
        shape = shapes[name]
        parameters = [jnp.asarray(each[name]) for each in (first, second)]
        if families[name] == "parameter":
            return numpyro.param(name, jnp.ones(shape) / shape[1], constraint=constraints.simplex)
        if families[name] == "Dirichlet":
            if stated.plates:
                with numpyro.plate(f"rows of {name}", shape[0]):
                    return numpyro.sample(name, dist.Dirichlet(parameters[0]))
            return numpyro.sample(name, dist.Dirichlet(parameters[0]).to_event(1))
        kinds = {
            "Gamma": dist.Gamma(*parameters), "Exponential": dist.Exponential(parameters[1]),
            "HalfNormal": dist.HalfNormal(parameters[1]), "LogNormal": dist.LogNormal(0.0, parameters[1]),
        }  # fmt: skip
        prior = kinds[families[name]]
        if turned:
            arrays = [jnp.asarray(each[name].T) for each in (first, second)]
            return numpyro.sample(name, dist.Gamma(*arrays).to_event(2)).T
        if stated.plates:
            with numpyro.plate(f"rows of {name}", shape[0], dim=-2), numpyro.plate(f"columns of {name}", shape[1]):
                return numpyro.sample(name, prior)
        return numpyro.sample(name, prior.to_event(2))

    def program(x):
        U, V = factor("U", stated.turned[0]), factor("V", stated.turned[1])
        if stated.loadings.startswith("scaled"):
            with numpyro.plate("samples", N):
                U = U * numpyro.sample("s", dist.Gamma(jnp.asarray(first["U"][:, 0]), 0.2))[:, None]
        mean = exposure * (U @ V)
        match stated.wrong:
            case "square":
                mean = (U**2) @ V
            case "sum":
                mean = U @ V + V.sum(0)
            case "shift":
                mean = mean + 1e-6
            case "normalised":
                mean = U @ (V / (V.sum(0) + 1))
            case "exposed by entry":
                mean = mean * jnp.asarray(first["U"][:, :1] ** np.arange(M))
            case "prior of a prior":
                with numpyro.plate("features", M):
                    mean = (U * numpyro.sample("more", dist.Gamma(jnp.ones(M), 1.0)).sum()) @ V
            case "twice":
                numpyro.sample("again", dist.Poisson(mean).to_event(2), obs=x)
            case "factor":
                numpyro.factor("more", -(U**2).sum())
            case "other counts":
                x = x + 1
        counts = {
            "poisson": lambda: dist.Poisson(mean),
            "multinomial": lambda: dist.Multinomial(x.sum(axis=1), mean / mean.sum(axis=1, keepdims=True)),
            "nb1": lambda: dist.GammaPoisson(mean / noise, 1 / noise),
            "nb2": lambda: dist.NegativeBinomial2(mean, 1 / noise),
            "zip": lambda: dist.ZeroInflatedPoisson(noise, mean),
            "geometric": lambda: dist.NegativeBinomial2(mean, mean**2),
        }[stated.counts]()  # fmt: skip
        if stated.masked:
            counts = counts.mask(jnp.asarray(observed))
        if stated.wrong == "scaled":
            with handlers.scale(scale=2.0):
                numpyro.sample("X", counts.to_event(2), obs=x)
        elif stated.turned_counts:
            numpyro.sample("X", dist.Poisson(mean.T).to_event(2), obs=x.T)
        else:
            numpyro.sample("X", counts if stated.counts == "multinomial" else counts.to_event(2), obs=x)

    return program


def point_of(rng, names, stated):
    """Values of the sites, and of loadings, scale and components."""
    left = rng.gamma(1.0, size=(N, K)) if stated.loadings in ("Gamma", "Exponential") else rng.dirichlet([1] * K, N)
    right = rng.dirichlet([1] * M, K) if stated.components in ("Dirichlet", "parameter") else rng.gamma(1, 1, (K, M))
    sites = {names["loadings"]: left.T if stated.turned[0] else left,
             names["components"]: right.T if stated.turned[1] else right}  # fmt: skip
    scale = rng.gamma(9.0, size=N) if "scale" in names else None
    return sites | ({} if scale is None else {names["scale"]: scale}), left, scale, right


def same_log_joint(stated):
    """Differences of the log joint of a program from that of what is recognised, at random points."""
    program, rng = program_of(stated), np.random.default_rng(stated.seed)
    found = recognise(program, COUNTS)
    counts = with_exposures(COUNTS, found.row_exposure, found.feature_exposure)
    if found.observed is not None:
        counts = with_missing(counts, None, found.observed)
    differences = []
    for _ in range(POINTS):
        sites, left, scale, right = point_of(rng, found.names, stated)
        with jax.enable_x64(True):
            theirs, _ = log_density(program, (jnp.asarray(X),), {}, sites)
        loadings = attach_scale(left[None, None], None if scale is None else scale[None, None])
        ours = log_joints(counts, found.priors, loadings, right[None, None], found.noise)[0, 0]
        differences.append(float(theirs) - ours)
    return np.array(differences)


RIGHT = {
    "Gamma and Dirichlet": Stated(),
    "both transposed, a hyperparameter for each entry": Stated(components="Gamma", turned=(True, True),
                                                               own=("entries", "entries")),
    "Exponential in plates, hyperparameters of columns": Stated("Exponential", "Gamma", plates=True,
                                                                 own=("columns", "rows")),
    "exposures of rows and features": Stated(components="Gamma", exposed=(True, True)),
    "proportions and a scale": Stated("scaled Dirichlet", plates=True),
    "LDA with a multinomial": Stated("Dirichlet", counts="multinomial", own=("columns", "columns")),
    "LDA with Poisson counts and depths": Stated("Dirichlet", exposed=(True, False)),
    "linear variance of each feature": Stated(counts="nb1", whose="columns"),
    "quadratic variance of each row": Stated(counts="nb2", whose="rows"),
    "zeros": Stated(counts="zip"),
    "masked": Stated(masked=True),
    "transposed counts": Stated(turned_counts=True),
}  # fmt: skip


def check_same_log_joint(stated):
    """The log joint of a program is that of what is recognised, up to the probability of totals that are given."""
    differences = same_log_joint(stated)
    # JAX's betaln, which NumPyro's negative binomial uses, is off by up to 6e-7 in float64
    close = 1e-6 * X.size if stated.counts in ("nb1", "nb2") else 1e-9 * max(1, np.abs(differences).max())
    np.testing.assert_allclose(differences, differences[0], rtol=0, atol=close)
    assert stated.loadings == "Dirichlet" or abs(differences[0]) < max(close, 1e-8)


@pytest.mark.parametrize("stated", RIGHT.values(), ids=RIGHT)
def test_the_log_joint_of_what_is_recognised_is_that_of_the_program(stated):
    check_same_log_joint(stated)


WRONG = {
    "square": (Stated(wrong="square"), "not the product of two factors"),
    "sum": (Stated(wrong="sum"), "not the product of two factors"),
    "shift": (Stated(wrong="shift"), "not the product of two factors"),
    "normalised": (Stated(components="Gamma", wrong="normalised"), "not the product of two factors"),
    "exposed by entry": (Stated(wrong="exposed by entry", own=("rows", "all")), "no product of those of rows"),
    "prior of a prior": (Stated(wrong="prior of a prior"), "not the product of two factors"),
    "twice": (Stated(wrong="twice"), "it observes 'again', 'X'"),
    "factor": (Stated(wrong="factor"), "it observes 'more', 'X', and factors count as observed"),
    "other counts": (Stated(wrong="other counts"), "'X' observes other numbers than the counts"),
    "scaled": (Stated(wrong="scaled"), "the log density of 'X' is scaled"),
    "half normal": (Stated("HalfNormal"), "the prior HalfNormal of 'U' is not conjugate"),
    "log normal": (Stated(components="LogNormal"), "the prior LogNormal of 'V' is not conjugate"),
    "dispersion by entry": (Stated(counts="nb2", whose="entries"), "each entry has a parameter of its own"),
    "dispersion of the mean": (Stated(counts="geometric"), "the dispersion of the counts depends on the factors"),
    "given totals of loadings with a scale": (Stated(counts="multinomial"), "not the product of two factors"),
    "proportions with noise": (Stated("Dirichlet", counts="nb2"), "totals of rows depend on them"),
    "proportions and Gamma components": (Stated("Dirichlet", "Gamma"), "no model has proportions"),
}


@pytest.mark.parametrize(("stated", "fault"), WRONG.values(), ids=WRONG)
def test_what_is_no_model_is_refused_with_its_site(stated, fault):
    with pytest.raises(ValueError, match=fault):
        recognise(program_of(stated), COUNTS)


def test_a_dirichlet_prior_over_the_wrong_axis_is_refused():
    def program(x):
        V = numpyro.sample("V", dist.Dirichlet(jnp.ones((M, K))).to_event(1))
        U = numpyro.sample("U", dist.Gamma(jnp.ones((N, K)), 1.0).to_event(2))
        numpyro.sample("X", dist.Poisson(U @ V.T).to_event(2), obs=x)

    with pytest.raises(ValueError, match="'V' have a Dirichlet prior over the wrong axis"):
        recognise(program, COUNTS)


def test_a_program_is_fitted_as_the_model_of_its_priors_and_has_its_names():
    def program(x, rank):
        topics = numpyro.sample("topics", dist.Dirichlet(0.3 * jnp.ones((rank, M))).to_event(1))
        usage = numpyro.sample("usage", dist.Gamma(0.5 * jnp.ones((N, rank)), 0.1).to_event(2))
        numpyro.sample("X", dist.Poisson(usage @ topics).to_event(2), obs=x)

    found = bayesnmf.fit(X, partial(program, rank=K), method="map", seed=0)
    priors = bayesnmf.Priors(bayesnmf.Gamma(0.5, 0.1), bayesnmf.Dirichlet(0.3))
    named = bayesnmf.fit(X, "gamma_poisson", K, "map", seed=0, options=bayesnmf.MAP(priors=priors))
    np.testing.assert_array_equal(found.loadings, named.loadings)
    np.testing.assert_array_equal(found.trace, named.trace)
    tree = found.to_datatree()
    assert {*tree["posterior"]} == {"usage", "topics"}
    assert {*named.to_datatree()["posterior"]} == {"loadings", "components"}


def test_names_of_sites_are_saved(tmp_path):
    found = bayesnmf.fit(X, program_of(Stated(components="Gamma")), method="map", seed=0)
    found.save(tmp_path / "fit.nc")
    assert bayesnmf.load(tmp_path / "fit.nc").sites == {"loadings": "U", "components": "V"}


@pytest.mark.parametrize(
    ("given", "word"),
    [({"rank": 3}, "rank"), ({"noise": "nb1"}, "noise"), ({"observed": X > 0}, "observed"),
     ({"drift": 1000.0}, "drift"),
     ({"options": bayesnmf.VI(priors=bayesnmf.Priors(bayesnmf.Gamma(1, 1)))}, "options.priors")],
)  # fmt: skip
def test_what_a_program_states_is_not_stated_twice(given, word):
    with pytest.raises(ValueError, match=f"a program as the model states {word} itself"):
        bayesnmf.fit(X, program_of(Stated()), **given)


def test_a_program_that_needs_more_than_the_counts_is_told_how_to_give_it():
    with pytest.raises(TypeError, match=r"functools\.partial"):
        bayesnmf.fit(X, lambda x, rank: None)


def drawn(seed):
    """A random program."""
    rng = np.random.default_rng(seed)
    of = lambda *choices: choices[rng.integers(len(choices))]  # noqa: E731
    loadings = of("Gamma", "Gamma", "Exponential", "Dirichlet", "scaled Dirichlet")
    components = of("Dirichlet", "Gamma") if loadings in ("Gamma", "Exponential") else "Dirichlet"
    whose = ("all", "rows", "columns", "entries")
    counts = of("poisson", "nb1", "nb2", "zip")
    if loadings == "Dirichlet":
        counts = of("poisson", "multinomial")
    turned = tuple(family == "Gamma" and of(True, False) for family in (loadings, components))
    return Stated(
        loadings, components, turned, of(True, False), counts, (of(*whose), of(*whose)),
        (counts != "multinomial" and of(True, False), components == "Gamma" and of(True, False)), of(*whose[:3]),
        loadings != "Dirichlet" and of(True, False), seed=seed,
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("seed", range(200))
def test_random_programs_have_the_log_joint_of_what_is_recognised(seed):
    check_same_log_joint(drawn(seed))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(60))
def test_random_programs_with_a_fault_are_never_recognised(seed):
    right = drawn(seed)
    for wrong in ("square", "sum", "shift", "normalised", "prior of a prior", "twice", "factor", "other counts"):
        if right.counts == "multinomial" and wrong != "twice":
            continue
        with pytest.raises(ValueError, match="model must be a program that a closed form fits"):
            recognise(program_of(right._replace(wrong=wrong)), COUNTS)
