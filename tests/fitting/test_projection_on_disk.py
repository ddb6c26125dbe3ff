"""Rows on disk are projected as rows in memory are."""

import anndata
import numpy as np
import pytest
from plain import plain_map, plain_vi
from scipy.sparse import csr_matrix

import bayesnmf
from bayesnmf import MAP, VI, Blocks, Dirichlet, Gamma, Gibbs, Priors

pytestmark = [
    pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.* did not converge:bayesnmf.ConvergenceWarning"),
]
X = bayesnmf.simulate(size=(103, 40), rank=3, totals=90, seed=1).counts.matrix.toarray().astype(int)
X[[5, 100]] = 0
X[:, 7] = 0
OTHERS = np.random.default_rng(0).poisson(2, size=(90, 40))
OTHERS[3] = 0


@pytest.fixture(scope="module")
def blocks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("projected")
    anndata.AnnData(csr_matrix(OTHERS.astype(np.float32))).write_h5ad(folder / "cells.h5ad")
    return Blocks(folder / "cells.h5ad", nonzeros=500, scratch=folder / "scratch")


@pytest.mark.parametrize(
    ("model", "options", "exposure"),
    [
        ("gamma_poisson", plain_map(max_iter=9), None),
        ("gamma_poisson", plain_vi(max_iter=9, priors=Priors(Gamma(0.3, 0.1), Dirichlet(0.1))), True),
        ("gamma_poisson", plain_vi(max_iter=9, dtype="float32"), None),
        ("dirichlet_poisson", plain_vi(max_iter=9), None),
        ("dirichlet_gamma", plain_vi(max_iter=9), True),
    ],
)
def test_projected_rows_are_those_in_memory(blocks, model, options, exposure):
    method = {MAP: "map", VI: "vi"}[type(options)]
    given = None if exposure is None else np.linspace(1, 3, len(X))
    fit = bayesnmf.fit(X, model, 3, method, seed=0, options=options, row_exposure=given)
    new = None if exposure is None else np.linspace(2, 1, len(OTHERS))
    names = {"row_exposure": new}
    found, expected = (fit.project(counts, **names) for counts in (blocks, OTHERS))
    assert not found.counts.in_memory
    assert len(found.counts.blocks) > 5
    tol = 1e-12 if options.dtype == "float64" else 1e-5
    np.testing.assert_allclose(found.trace, expected.trace, rtol=tol)
    np.testing.assert_allclose(found.loadings, expected.loadings, rtol=0, atol=10 * tol * expected.loadings.max())
    assert found.status == expected.status
    assert found.is_projected
    np.testing.assert_array_equal(fit.transform(blocks, **names), found.loadings)


def test_a_path_is_taken(blocks):
    fit = bayesnmf.fit(X, rank=3, seed=0, options=plain_vi(max_iter=9))
    np.testing.assert_array_equal(fit.transform(blocks.source), fit.transform(OTHERS))


def test_draws_need_rows_in_memory(blocks):
    fit = bayesnmf.fit(X, rank=2, method="gibbs", seed=0, options=Gibbs(start="random", chains=1, warmup=2, draws=5))
    with pytest.raises(ValueError, match=r"on disk \(draws of their loadings are kept in memory\); give chosen rows"):
        fit.transform(blocks)
