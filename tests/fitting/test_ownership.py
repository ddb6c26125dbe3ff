"""A fit owns its counts, its priors and its start: work in place on the user's arrays later changes nothing in it."""

import weakref

import numpy as np
import pytest
import scipy.sparse as sp
from smallfits import COUNTS, quietly
from suites import mostly_long

import bayesnmf
from bayesnmf import BLD, MAP, NUTS, SVI, VI, Dirichlet, Gamma, Gibbs, Priors, ScaledDirichlet, Start
from bayesnmf.assessment import bounds
from bayesnmf.priors import ScaledProportions

pytestmark = quietly

X = COUNTS.to_numpy()
N, M = X.shape
K = 3
QUICK = VI(start="svd", max_iter=5, threads=1)


def test_work_in_place_on_the_matrix_changes_no_fit():
    matrix = sp.csr_array(X.astype(float))
    fit = bayesnmf.fit(matrix, rank=K, seed=0, options=QUICK)
    before, total = bounds.elbo_augmented(fit), fit.counts.matrix.data.sum()
    np.log1p(matrix.data, out=matrix.data)
    assert bounds.elbo_augmented(fit) == before
    assert fit.counts.matrix.data.sum() == total == fit.counts.total


def test_a_projection_owns_its_counts():
    fit = bayesnmf.fit(X, rank=K, seed=0, options=QUICK)
    rows = sp.csr_array(X[:4].astype(float))
    projected = fit.project(rows)
    rows.data[:] = 1
    np.testing.assert_array_equal(projected.counts.matrix.toarray(), X[:4])


@pytest.mark.parametrize(
    ("model", "family", "names"),
    [
        ("gamma_poisson", Gamma, ("shape", "rate")),
        ("dirichlet_poisson", Dirichlet, ("concentration",)),
        ("dirichlet_gamma", ScaledDirichlet, ("concentration", "shape", "rate")),
    ],
)
def test_work_in_place_on_prior_arrays_changes_no_fit(model, family, names):
    given = [np.full(() if name == "rate" else (N, 1), 1.5) for name in names]
    of_components = [0.5] * M
    priors = Priors(family(*given), Dirichlet(of_components))
    fit = bayesnmf.fit(X, model, K, seed=0, options=VI(priors=priors, max_iter=5, threads=1))
    for array in given:
        array[...] = 99
    of_components[0] = 99
    for priors in (fit.priors, fit.options.priors):
        assert all(np.all(np.asarray(getattr(priors.loadings, name)) == 1.5) for name in names)
        assert priors.components.concentration == [0.5] * M


def test_priors_of_numbers_are_kept_as_they_are():
    prior = Gamma(1.0, np.float64(0.5))
    assert Priors(prior, "parameter").loadings is prior


def test_work_in_place_on_a_start_changes_no_fit():
    rng = np.random.default_rng(0)
    proportions, scale, components = rng.dirichlet(np.ones(K), N), np.ones((N, 1)), rng.dirichlet(np.ones(M), K)
    start = Start(ScaledProportions(proportions, scale), components)
    fit = bayesnmf.fit(X, "dirichlet_gamma", K, "map", seed=0, options=MAP(start=start, max_iter=3, threads=1))
    kept = [each.copy() for each in (proportions, scale, components)]
    for array in (proportions, scale, components):
        array[:] = 99
    own = fit.options.start
    for array, before in zip((*own.loadings, own.components), kept, strict=True):
        np.testing.assert_array_equal(array, before)


@pytest.mark.parametrize("method", mostly_long(["map", "vi", "gibbs", "bld", "nuts", "svi"], 4))
def test_a_fit_that_is_started_from_keeps_nothing_else_of_it(method):
    model = "dirichlet_gamma" if method == "bld" else "gamma_poisson"
    kind = {"gibbs": Gibbs, "nuts": NUTS, "svi": SVI, "map": MAP, "vi": VI, "bld": BLD}[method]
    few = {"draws": 4, "warmup": 4, "chains": 1} if method in ("gibbs", "nuts") else {"max_iter": 3}
    made_by = ("bld", BLD(start="random", max_iter=5)) if method == "bld" else ("vi", QUICK)
    first = bayesnmf.fit(X, model, K, made_by[0], seed=0, options=made_by[1])
    posterior, multipliers = first.estimate, first.multipliers
    fit = bayesnmf.fit(X, model, K, method, seed=0, options=kind(start=first, **few))
    gone = weakref.ref(first)
    del first
    assert gone() is None
    start = fit.options.start
    if method == "bld":
        for taken, given in zip((start.loadings, start.components), multipliers, strict=True):
            np.testing.assert_array_equal(taken, given)
    else:
        np.testing.assert_array_equal(start.loadings.shape, posterior.loadings.shape)
