"""Counts in batches on disk: fits are those of counts in memory, iterate by iterate."""

import anndata
import numpy as np
import pytest
from scipy.sparse import csr_matrix
from suites import mostly_long

import bayesnmf
from bayesnmf import MAP, VI, Batch, Blocks, Dirichlet, Gamma, Gibbs, Priors, Quasi

pytestmark = [
    pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.* did not converge:bayesnmf.ConvergenceWarning"),
]
K, N, M = 2, 83, 30
LABELS = list("abcba" * 16 + "abc")
DRAWN = bayesnmf.simulate("gamma_poisson", (N, M), rank=K, totals=200, batch=Batch(LABELS, shape=6), seed=1)
X = DRAWN.counts.matrix.toarray()
PRIORS = {"gamma": Priors(Gamma(0.5, 0.1), Gamma(1.7, 0.2)), "dirichlet": Priors(Gamma(0.5, 0.01), Dirichlet(0.9))}


@pytest.fixture(scope="module")
def blocks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("batched")
    anndata.AnnData(csr_matrix(X.astype(np.float32))).write_h5ad(folder / "cells.h5ad")
    return Blocks(folder / "cells.h5ad", nonzeros=300, scratch=folder / "scratch")


FIRST = [("gamma", "map", False), ("gamma", "vi", True), ("dirichlet", "map", True), ("dirichlet", "vi", False)]
ASCENTS = [(*case, "poisson") for case in FIRST]
ASCENTS += [(kind, method, not lost, "poisson") for kind, method, lost in FIRST]
ASCENTS += [(kind, method, *more) for kind, method, _ in FIRST for more in ((True, "nb1"), (False, Quasi(0.5)))]


@pytest.mark.parametrize(("kind", "method", "lost", "noise"), mostly_long(ASCENTS, len(FIRST)))
def test_ascents_are_those_in_memory(kind, method, lost, noise, blocks):
    smooth = {"map": {"priors": Priors(Gamma(1.5, 0.1), Gamma(1.7, 0.2) if kind == "gamma" else Dirichlet(1.2))}}
    options = {"map": MAP, "vi": VI}[method](
        **({"priors": PRIORS[kind]} | smooth.get(method, {})), start="random", threads=1, tol=0, max_iter=5
    )
    entries = {"missing": np.random.default_rng(2).random(X.shape) < 0.1} if lost else {}
    given = {"model": "poisson", "rank": K, "method": method, "seed": 3, "options": options, "batch": LABELS, **entries}
    given |= {"noise": noise}
    one, two = bayesnmf.fit(blocks, **given), bayesnmf.fit(X, **given)
    assert not one.counts.in_memory
    np.testing.assert_allclose(one.trace, two.trace, rtol=1e-11)
    for name in ("loadings", "components"):
        np.testing.assert_allclose(getattr(one, name), getattr(two, name), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(one.batch.mean, two.batch.mean, rtol=1e-9)
    found = one.transform(X[:5], batch=LABELS[:5])
    np.testing.assert_allclose(found, two.transform(X[:5], batch=LABELS[:5]), rtol=1e-6)


@pytest.mark.parametrize(("kind", "noise"), [
    ("gamma", "poisson"), ("dirichlet", "poisson"), pytest.param("gamma", "nb1", marks=pytest.mark.long),
])  # fmt: skip
def test_draws_are_those_in_memory(kind, noise, blocks):
    options = Gibbs(
        priors=PRIORS[kind], start="random", draws=6, warmup=3, chains=2, threads=1, algorithm="allocations"
    )
    given = {"model": "poisson", "rank": K, "method": "gibbs", "seed": 3, "options": options, "batch": LABELS}
    given |= {"noise": noise}
    one, two = bayesnmf.fit(blocks, **given), bayesnmf.fit(X, **given)
    np.testing.assert_allclose(one.posterior.factors, two.posterior.factors, rtol=1e-9)
    np.testing.assert_allclose(np.array(one.posterior.loadings), two.posterior.loadings, rtol=1e-8)


@pytest.mark.long
def test_fits_by_default_begin_from_counts_without_what_batches_differ_in(blocks):
    fit = bayesnmf.fit(blocks, rank=K, seed=0, options=VI(max_iter=100), batch=LABELS)
    true, found = np.log(DRAWN.batch_factors), np.log(fit.batch.mean)
    assert np.corrcoef((true - true.mean(axis=0)).ravel(), (found - found.mean(axis=0)).ravel())[0, 1] > 0.8
    assert np.isfinite(bayesnmf.elbo_marginal(fit, draws=3).mean)
