"""`compare`, `modes`, estimators and `tl.fit` of counts on disk: the tables and factors of counts in memory."""

import anndata
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from suites import mostly_long

import bayesnmf
from bayesnmf import MAP, VI, BayesLDA, BayesNMF, Blocks, Gibbs
from bayesnmf.studies.comparison.comparing import Settings

pytestmark = [
    pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.* did not converge:bayesnmf.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:.*:bayesnmf.DataWarning"),
]
X = bayesnmf.simulate(size=(103, 30), rank=2, totals=90, seed=1).counts.matrix.toarray().astype(int)
X[[5, 100]] = 0
LOST = np.random.default_rng(3).random(X.shape) < 0.1
NAMED = pd.DataFrame(X, columns=[str(j) for j in range(30)])
FEW = VI(start="svd", algorithm="coordinate", max_iter=3, restarts=1, intervals="mean_field")
CHAIN = Gibbs(start="random", algorithm="allocations", chains=1, warmup=1, draws=4)


@pytest.fixture(scope="module")
def blocks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("studied")
    cells = pd.DataFrame(index=[f"c{i}" for i in range(len(X))])
    anndata.AnnData(csr_matrix(X.astype(np.float32)), cells).write_h5ad(folder / "cells.h5ad")
    return Blocks(folder / "cells.h5ad", nonzeros=450, scratch=folder / "scratch")


def same_tables(one, two):
    one, two = (table.drop(columns="seconds", errors="ignore") for table in (one, two))
    pd.testing.assert_frame_equal(one, two, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    "given",
    mostly_long(
        [
            {"methods": ["map"]},
            {"methods": ["map", "vi", "gibbs"]},
            {"methods": ["vi"], "noise": "nb1", "missing": LOST},
        ]
    ),
)
def test_comparisons_are_those_in_memory(blocks, given):
    """Thinned and withheld counts, scores, intervals and draws: everything but seconds."""
    options = {"map": MAP(start="svd", algorithm="em", max_iter=3), "vi": FEW, "gibbs": CHAIN}
    one, two = (
        bayesnmf.compare(counts, rank=2, settings=Settings(options=options, dispersed=False), **given)
        for counts in (blocks, X)
    )
    assert all(fit.counts.store is not None for fit in one.fits.values())
    same_tables(one.table, two.table)
    assert one.cautions == two.cautions
    assert one.split.train.row_names.tolist() == [f"c{row}" for row in two.split.rows]


@pytest.mark.parametrize("given", mostly_long([{}, {"missing": LOST, "scored": 0}]))
def test_modes_are_those_in_memory(blocks, given):
    options = VI(start="random", algorithm="coordinate", max_iter=5)
    one, two = (bayesnmf.modes(counts, rank=2, starts=2, options=options, **given) for counts in (blocks, X))
    for name in ("table", "runs", "components"):
        same_tables(getattr(one, name), getattr(two, name))
    np.testing.assert_allclose(one.run_components, two.run_components, rtol=1e-11)


@pytest.mark.parametrize("kind", [BayesNMF, BayesLDA])
def test_estimators_take_counts_on_disk(blocks, kind):
    """As counts in memory, whatever `fit` was given; rows of both kinds may be transformed."""
    one, two = (kind(2, options=FEW, random_state=0).fit(counts) for counts in (blocks, NAMED))
    assert one.fit_.counts.store is not None
    assert (one.n_features_in_, list(one.feature_names_in_)) == (30, [str(j) for j in range(30)])
    np.testing.assert_allclose(one.components_, two.components_, rtol=1e-12)
    for given in (blocks, str(blocks.source), NAMED):
        np.testing.assert_allclose(one.transform(given), two.transform(NAMED), rtol=1e-11)
    assert one.score(blocks) == pytest.approx(two.score(NAMED), rel=1e-12)
    other = kind(2, options=FEW).fit(NAMED.iloc[:, 1:])
    with pytest.raises(ValueError, match="feature names"):
        other.transform(blocks)


def test_estimators_refuse_what_counts_on_disk_do_not_say(blocks):
    with pytest.raises(TypeError, match=r"missing='nan' needs an array.*found Blocks"):
        BayesNMF(2, missing="nan").fit(blocks)
    with pytest.raises(TypeError, match="X must be in memory here: found Blocks"):
        BayesNMF(2).partial_fit(blocks)


def test_results_are_written_into_an_object_whose_counts_are_on_disk(blocks):
    adata = anndata.read_h5ad(blocks.source, backed="r")
    given = {"rank": 2, "seed": 0, "options": FEW}
    found = bayesnmf.tl.fit(Blocks(adata, nonzeros=450, scratch=blocks.scratch), **given)
    assert found.counts.store is not None
    expected = anndata.AnnData(csr_matrix(X.astype(float)))
    bayesnmf.tl.fit(expected, **given)
    np.testing.assert_allclose(adata.obsm["X_bayesnmf"], expected.obsm["X_bayesnmf"], rtol=1e-11)
    np.testing.assert_allclose(adata.varm["bayesnmf"], expected.varm["bayesnmf"], rtol=1e-11)
    with pytest.raises(TypeError, match=r"adata must be an AnnData object: found .*read_h5ad\(path, backed='r'\)"):
        bayesnmf.tl.fit(blocks, rank=2)
