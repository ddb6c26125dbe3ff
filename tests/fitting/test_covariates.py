"""Fits with covariates: effects that made the counts come back; what is served, and what is refused."""

import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from plain import plain_map, plain_vi
from scipy.sparse import csr_matrix
from smallfits import quietly
from suites import mostly_long

import bayesnmf
from bayesnmf import MAP, NUTS, SMC, SVI, VI, Dirichlet, Gamma, Gibbs, Priors
from bayesnmf.assessment.bounds import elbo_augmented
from bayesnmf.data.covariates.coding import Coding
from bayesnmf.inference import alignment

N, M, K = 120, 16, 3
RNG = np.random.default_rng(5)
NAMES = [f"s{i}" for i in range(N)]
FRAME = pd.DataFrame({"dose": RNG.normal(3, 2, N), "arm": RNG.choice(["a", "b"], N)}, NAMES)
DESIGN = np.column_stack([np.ones(N), FRAME.dose, FRAME.arm == "b"])
EFFECTS = np.array([[4.0, 3.2, 4.5], [0.2, 0.15, -0.2], [-0.8, 0.9, 0.0]])  # on the scale of the covariates
SHAPE = 3.0
TRUTH = np.kron(np.eye(K), np.ones(5)) / 5.0 @ np.eye(15, M)  # each component has five features of its own
COUNTS = pd.DataFrame(RNG.poisson(RNG.gamma(SHAPE, np.exp(DESIGN @ EFFECTS) / SHAPE) @ TRUTH), NAMES)
FORMULA = "~ dose + arm"
OPTIONS = {
    "map": plain_map(max_iter=300),
    "vi": plain_vi(max_iter=150),
    "gibbs": Gibbs(start="random", chains=2, draws=60, warmup=60, threads=1),
}


@cache
def fitted(method="vi", model="gamma_poisson", **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bayesnmf.ConvergenceWarning)
        warnings.simplefilter("ignore", bayesnmf.DataWarning)
        return bayesnmf.fit(
            COUNTS, model, K, method, seed=0, options=OPTIONS[method], formula=FORMULA, covariates=FRAME, **more
        )


def effects_of(fit):
    """Effects on the scale of the covariates, with components in the order of the truth."""
    prior = fit.priors.loadings
    order = alignment.match_components(fit.components, TRUTH)
    found = Coding.of_text(prior.coding).unit @ prior.effects
    found[0] += np.log(np.ravel(prior.plain.mean()))
    return found[:, order]


@pytest.mark.parametrize("method", OPTIONS)
def test_effects_come_back(method):
    """With some 200 counts a row on features of their own, effects are known to about 0.1."""
    fit = fitted(method)
    assert effects_of(fit)[1:] == pytest.approx(EFFECTS[1:], abs=0.25)
    assert effects_of(fit)[0] == pytest.approx(EFFECTS[0], abs=0.5)
    if method != "map":
        assert np.ravel(fit.priors.loadings.plain.shape) == pytest.approx(SHAPE, rel=0.4)


@pytest.mark.parametrize("method", ["map", "vi"])
def test_the_objective_never_falls(method):
    """Effects are learned at every state, with their density in the objective; all but rounding."""
    trace = fitted(method).trace
    assert np.diff(trace).min() > -1e-9 * abs(trace[-1])


def test_the_objective_has_the_density_of_the_effects():
    """The elbo is that of the same q under the prior given the effects, and log p(effects)."""
    fit = fitted("vi")
    given = replace(fit, priors=Priors(fit.priors.loadings.given, fit.priors.components))
    assert elbo_augmented(fit) == pytest.approx(elbo_augmented(given) + fit.priors.loadings.log_prior, rel=1e-12)
    assert elbo_augmented(fit) >= fit.trace[-1]  # rows settle at the end


@quietly
@pytest.mark.parametrize("model", mostly_long(["dirichlet_poisson", "dirichlet_gamma"], 1))
def test_shares_follow_covariates(model):
    """Concentrations of what a covariate favours grow with it, against those of the others."""
    fit = fitted("vi", model)
    order = alignment.match_components(fit.components, TRUTH)
    effects = (Coding.of_text(fit.priors.loadings.coding).unit @ fit.priors.loadings.effects)[1:, order]
    effects, expected = (each - each.mean(axis=1, keepdims=True) for each in (effects, EFFECTS[1:]))
    assert effects == pytest.approx(expected, abs=0.35)
    assert np.diff(fit.trace).min() > -1e-9 * abs(fit.trace[-1])


def test_rows_are_matched_by_name():
    mixed = FRAME.sample(frac=1, random_state=0)
    options = plain_vi(max_iter=3)
    with pytest.warns(bayesnmf.ConvergenceWarning):
        one, two = (
            bayesnmf.fit(COUNTS, rank=K, seed=0, options=options, formula=FORMULA, covariates=each)
            for each in (FRAME, mixed)
        )
    assert np.array_equal(one.loadings, two.loadings)


@pytest.mark.parametrize("noise", mostly_long(["nb1", "nb2", "quasi"], 1))
@pytest.mark.filterwarnings("ignore::bayesnmf.inference.status.ConvergenceWarning")
def test_noise_goes_with_covariates(noise):
    """Only a prior changes: effects come back, and the elbo never falls."""
    fit = fitted("vi", noise=noise)
    assert effects_of(fit)[1:] == pytest.approx(EFFECTS[1:], abs=0.3)
    assert np.diff(fit.trace).min() > -1e-8 * abs(fit.trace[-1])


@quietly
@pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated:DeprecationWarning")
def test_counts_on_disk_have_the_same_effects(tmp_path):
    anndata = pytest.importorskip("anndata")
    anndata.AnnData(csr_matrix(COUNTS.to_numpy(np.float32))).write_h5ad(tmp_path / "counts.h5ad")
    blocks = bayesnmf.Blocks(tmp_path / "counts.h5ad", nonzeros=300, scratch=tmp_path / "scratch")
    held, columns = bayesnmf.as_counts(COUNTS.to_numpy()), {name: FRAME[name].to_numpy() for name in FRAME}
    for method, options in (
        ("vi", plain_vi(max_iter=5)),
        ("gibbs", Gibbs(algorithm="allocations", start="random", chains=1, draws=3, warmup=2)),
    ):
        one, two = (
            bayesnmf.fit(each, rank=K, seed=0, method=method, options=options, formula=FORMULA, covariates=columns)
            for each in (held, blocks)
        )
        assert one.priors.loadings.effects == pytest.approx(two.priors.loadings.effects, abs=1e-6)


REFUSED = {
    "nuts": ("gamma_poisson", "nuts", NUTS(), "covariates need method='map', 'vi' or 'gibbs'"),
    "svi": ("gamma_poisson", "svi", SVI(), "covariates need method='map', 'vi' or 'gibbs'"),
    "smc": ("gamma_poisson", "smc", SMC(), "covariates need method='map', 'vi' or 'gibbs'"),
    "bld": ("dirichlet_gamma", "bld", None, "covariates need method='map', 'vi' or 'gibbs'"),
    "modes of proportions": ("dirichlet_poisson", "map", MAP(), "concentrations would grow"),
    "the natural basis": ("gamma_poisson", "map", MAP(basis="natural"), "needs loadings without covariates"),
    "coordinate descent": ("gamma_poisson", "map", MAP(algorithm="scd"), "found covariates, which have none"),
    "gradients": ("gamma_poisson", "vi", VI(algorithm="gradient"), "found covariates, which have none"),
    "batches of rows": ("gamma_poisson", "vi", VI(algorithm="minibatch"), "found covariates, which have none"),
    "learned twice": ("gamma_poisson", "vi", VI(learn=("loadings",)), "learned anyway"),
    "collapsed": ("dirichlet_poisson", "gibbs", Gibbs(collapsed=True), "found covariates, which have none"),
    "moments": ("gamma_poisson", "gibbs", Gibbs(keep="moments", draws=10), "covariates need all draws"),
    "a flat prior": ("poisson", "map", MAP(), r"a Gamma, Dirichlet .* found the flat bayesnmf.Gamma\(1, 0\)"),
    "shared rates": ("hierarchical_poisson", "vi", VI(), "found HierarchicalGamma"),
    "priors of rows": (
        "gamma_poisson", "vi", VI(priors=Priors(Gamma(np.ones((N, 1)), 1.0), Dirichlet(1))), "differs between rows",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_served_is_refused(case):
    model, method, options, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        bayesnmf.fit(COUNTS, model, K, method, seed=0, options=options, formula=FORMULA, covariates=FRAME)
