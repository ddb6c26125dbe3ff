"""Fits in AnnData objects."""

import anndata
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix

import bayesnmf
from bayesnmf.results.annotation import proportions_of

pytestmark = pytest.mark.filterwarnings(  # anndata under pandas 3
    "ignore:The 'future.infer_string' option is deprecated:DeprecationWarning",
    "ignore:Consolidated metadata:UserWarning",
)
DRAWN = bayesnmf.simulate(size=(12, 6), rank=2, seed=0)
QUICK = {"rank": 2, "seed": 0, "options": bayesnmf.VI(start="svd")}


def annotated():
    dense = DRAWN.counts.matrix.toarray()
    obs = pd.DataFrame(index=[f"cell{i}" for i in range(12)])
    var = pd.DataFrame({"symbol": ["A", "B", "A", None, "A-1", "C"]}, index=[f"ENS{j}" for j in range(6)])
    made = anndata.AnnData(csr_matrix(np.log1p(dense)), obs=obs, var=var)
    made.layers["raw"], made.layers["counts"] = csr_matrix(dense), csr_matrix(dense + 1.0)
    return made


def test_layers_and_labels_are_read():
    adata = annotated()
    for layer, wanted in (("raw", DRAWN.counts.matrix.toarray()), (None, DRAWN.counts.matrix.toarray() + 1)):
        np.testing.assert_array_equal(bayesnmf.as_counts(adata, layer=layer).matrix.toarray(), wanted)
    found = bayesnmf.fit(adata, layer="raw", feature_labels="symbol", **QUICK)
    assert found.feature_names.tolist() == ["A (ENS0)", "B", "A (ENS2)", "ENS3", "A-1", "C"]
    np.testing.assert_array_equal(found.components, bayesnmf.fit(DRAWN.counts, **QUICK).components)


@pytest.mark.parametrize(("method", "kind"), [("vi", "h5ad"), ("map", "zarr")])
def test_files_keep_what_a_fit_has_written(tmp_path, method, kind):
    adata, before = annotated(), annotated()
    options = {"vi": bayesnmf.VI, "map": bayesnmf.MAP}[method](start="svd")
    found = bayesnmf.tl.fit(adata, rank=2, method=method, layer="raw", feature_labels="symbol", seed=0, options=options)
    np.testing.assert_array_equal(adata.X.toarray(), before.X.toarray())
    path = tmp_path / f"cells.{kind}"
    (adata.write_h5ad if kind == "h5ad" else adata.write_zarr)(path)
    read = anndata.read_h5ad(path) if kind == "h5ad" else anndata.read_zarr(path)
    np.testing.assert_allclose(read.obsm["X_bayesnmf"].sum(axis=1), 1.0)
    np.testing.assert_array_equal(read.varm["bayesnmf"], found.components.T)
    assert ("X_bayesnmf_sd" in read.obsm) == (method == "vi")
    settings = read.uns["bayesnmf"]
    assert (settings["model"], settings["method"], settings["rank"]) == ("gamma_poisson", method, 2)
    assert settings["objective"] == found.trace[-1]
    assert bool(settings["converged"])


def test_proportions_are_the_posterior_mean_of_shares_of_counts():
    priors = bayesnmf.Priors(bayesnmf.Gamma(1.0, 0.1), bayesnmf.Gamma(1.0, 1.0))  # components do not sum to 1
    fit = bayesnmf.fit(DRAWN.counts, rank=2, seed=0, options=bayesnmf.VI(priors=priors, start="svd"))
    draws = fit.sample_posterior(4000, chains=1, seed=1)
    parts = draws.loadings[0] * draws.components[0].sum(axis=2)[:, None]
    shares = parts / parts.sum(axis=2, keepdims=True)
    mean, sd = proportions_of(fit, 0)
    # 200 draws: the mean has an error of 7 % of the standard deviation, and this of 5 % of itself
    np.testing.assert_array_less(np.abs(mean - shares.mean(axis=0)), 0.3 * shares.std(axis=0))
    np.testing.assert_allclose(sd, shares.std(axis=0), rtol=0.3)


def test_a_new_object_has_the_counts_and_names():
    fit = bayesnmf.fit(annotated(), **QUICK)
    made = fit.to_anndata(key_added="two")
    np.testing.assert_array_equal(made.X.toarray(), DRAWN.counts.matrix.toarray() + 1)
    assert made.obs_names.tolist() == fit.row_names.tolist()
    assert made.var_names.tolist() == fit.feature_names.tolist()
    assert set(made.obsm) == {"X_two", "X_two_sd"}
    point = bayesnmf.fit(annotated(), rank=2, method="map", seed=0, options=bayesnmf.MAP(start="svd"))
    assert set(point.to_anndata(made, key_added="two").obsm) == {"X_two"}  # no standard deviation of another fit


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (ValueError, "layer must be one of the layers of counts: found 'spliced'; there are 'raw', 'counts'",
         lambda: bayesnmf.fit(annotated(), layer="spliced")),
        (ValueError, r"feature_labels must be a column of counts.var: found 'gene'; there are 'symbol'",
         lambda: bayesnmf.fit(annotated(), feature_labels="gene")),
        (TypeError, "layer needs counts in an AnnData object: found ndarray",
         lambda: bayesnmf.fit(np.ones((2, 2)), layer="raw")),
        (TypeError, "adata must be an AnnData object", lambda: bayesnmf.tl.fit(np.ones((2, 2)))),
        (ValueError, "adata must have the rows of the fit: found 5, and 12 in the fit",
         lambda: bayesnmf.fit(annotated(), **QUICK).to_anndata(annotated()[:5])),
        (ValueError, "adata must have the rows of the fit in their order",
         lambda: bayesnmf.fit(annotated(), **QUICK).to_anndata(annotated()[::-1])),
        (ValueError, "key_added must be a name", lambda: bayesnmf.fit(annotated(), **QUICK).to_anndata(key_added="")),
    ],
)  # fmt: skip
def test_what_does_not_match_is_refused(error, message, call):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # mudata under pandas 3
def test_fits_of_mudata_are_written_into_it_and_its_modalities():
    """Rows of a modality keep their order, whatever that of the others is."""
    mudata = pytest.importorskip("mudata", reason="needs mudata")
    X, rows = np.random.default_rng(0).poisson(5, (8, 9)), [f"c{i}" for i in range(8)]
    parts = {"rna": X[:, :5], "adt": X[::-1, 5:]}
    frames = {name: pd.DataFrame(index=rows if name == "rna" else rows[::-1]) for name in parts}
    var = {name: pd.DataFrame(index=[f"{name}{j}" for j in range(part.shape[1])]) for name, part in parts.items()}
    mdata = mudata.MuData({name: anndata.AnnData(parts[name].astype(float), frames[name], var[name]) for name in parts})
    fit = bayesnmf.tl.fit(mdata, rank=2, method="map", seed=0, key_added="nmf")
    assert mdata.obsm["X_nmf"].shape == (8, 2)
    np.testing.assert_allclose(mdata.mod["adt"].varm["nmf"].T, fit.matrix("adt").components)
    own = fit.matrix("adt")
    np.testing.assert_allclose(
        mdata.mod["adt"].obsm["X_nmf"][::-1], own.loadings / own.loadings.sum(axis=1, keepdims=True)
    )
