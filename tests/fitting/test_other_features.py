"""New samples with other features than those of the fit: missing ones are missing entries, others are left out."""

import numpy as np
import pandas as pd
import pytest
import smallfits
from labelled import TABLES
from plain import plain_map, plain_vi
from suites import crossed

import bayesnmf
from bayesnmf import DataWarning, Gibbs

K, SHARED = 3, ["gene9", "gene3", "gene2", "gene7"]
COUNTS = pd.DataFrame(np.random.default_rng(0).poisson(3, (15, 10)), columns=[f"gene{i}" for i in range(10)])
OTHER = COUNTS[SHARED].assign(another=5)
SEEN = pd.DataFrame([COUNTS.columns.isin(SHARED)] * len(COUNTS), columns=COUNTS.columns)
OPTIONS = {
    "map": plain_map(max_iter=20, threads=1),
    "vi": plain_vi(max_iter=10, threads=1),
    "gibbs": Gibbs(start="random", chains=1, warmup=5, draws=5, threads=1),
}
SCALED = ["hierarchical_poisson", "dirichlet_gamma"]
pytestmark = smallfits.quietly


def fitted(method, model="gamma_poisson"):
    return bayesnmf.fit(COUNTS, model, K, method, seed=0, options=OPTIONS[method])


@pytest.mark.filterwarnings("ignore::bayesnmf.DataWarning")
@pytest.mark.parametrize(
    ("method", "model"), crossed(["vi", "gibbs", "map"], ["gamma_poisson", "dirichlet_poisson", *SCALED])
)
def test_features_that_new_samples_lack_are_missing_entries(model, method):
    fit = fitted(method, model)
    new = fit.project(OTHER)
    np.testing.assert_allclose(new.loadings, fit.transform(COUNTS, observed=SEEN), rtol=1e-9)
    np.testing.assert_array_equal(new.feature_names, COUNTS.columns)
    if model == "gamma_poisson":  # zeros in their place would say that there is less of every component
        assert fit.transform(COUNTS.where(SEEN, 0)).sum() < 0.8 * new.loadings.sum()


@pytest.mark.filterwarnings("ignore::bayesnmf.DataWarning")
def test_entries_that_are_missing_besides_stay_missing():
    fit, seen = fitted("vi"), SEEN.copy()
    seen.loc[::2, "gene3"] = False
    new = fit.project(OTHER, observed=seen[SHARED].assign(another=True))
    np.testing.assert_allclose(new.loadings, fit.transform(COUNTS, observed=seen), rtol=1e-9)
    loaded = new.counts.mask.missing.toarray() > 0
    np.testing.assert_array_equal(loaded, ~seen.to_numpy())


@pytest.mark.parametrize("container", TABLES)
def test_what_was_done_is_said(container):
    make, _ = TABLES[container]
    with pytest.warns(DataWarning) as told:
        fitted("map").transform(make(OTHER))
    said = [str(each.message) for each in told if "features" in str(each.message)]
    assert said == [
        "counts lack 6 of the 10 features of the fit, which are taken as missing entries, not as zeros: 'gene0', "
        "'gene1', 'gene4', …",
        "counts have features that the fit lacks, 1 left out: 'another'",
    ]


@pytest.mark.filterwarnings("ignore::bayesnmf.DataWarning")
def test_counts_with_exposures_of_their_own_need_none_of_missing_features():
    exposure = pd.Series(np.linspace(0.5, 2, 10), COUNTS.columns)
    priors = bayesnmf.Priors(bayesnmf.Gamma(1, 0.1), bayesnmf.Gamma(1, 1))
    given = {"rank": K, "method": "vi", "seed": 0, "options": plain_vi(max_iter=5, threads=1, priors=priors)}
    fit = bayesnmf.fit(COUNTS, "poisson", feature_exposure=exposure, **given)
    other = bayesnmf.fit(COUNTS[SHARED], "poisson", feature_exposure=exposure[SHARED], **given)
    np.testing.assert_allclose(fit.transform(other.counts), fit.transform(COUNTS[SHARED]), rtol=1e-9)


@pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated:DeprecationWarning")
def test_counts_on_disk_need_the_features_of_the_fit(tmp_path):
    anndata = pytest.importorskip("anndata")
    made = anndata.AnnData(OTHER.to_numpy(np.float32), var=pd.DataFrame(index=list(OTHER)))
    made.write_h5ad(tmp_path / "other.h5ad")
    blocks = bayesnmf.Blocks(tmp_path / "other.h5ad", scratch=tmp_path / "scratch")
    message = "on disk must have the 10 features of the fit, and no others: found 5, of which 4 are among them; read"
    with pytest.raises(ValueError, match=message):
        fitted("map").transform(blocks)


def test_nothing_is_said_where_names_are_the_same(recwarn):
    fitted("map").transform(COUNTS.iloc[:, ::-1])
    assert not [each for each in recwarn if "features" in str(each.message)]


def test_identifiers_in_place_of_symbols_are_told_of_the_column_that_has_them():
    anndata = pytest.importorskip("anndata")
    made = anndata.AnnData(COUNTS.to_numpy(np.float32), var=pd.DataFrame({"symbol": list(COUNTS)}, list("abcdefghij")))
    made.var_names = [f"ENSG{i}" for i in range(10)]
    with pytest.raises(
        ValueError, match=r"10 features not in the fit: 'ENSG0'.*column of var that feature_labels names"
    ):
        fitted("map").transform(made)
    found = fitted("map").transform(made[:, ::-1], feature_labels="symbol")
    np.testing.assert_allclose(found, fitted("map").transform(COUNTS), rtol=1e-9)
    made.layers["raw"], made.X = made.X, 2 * made.X
    np.testing.assert_array_equal(fitted("map").transform(made, layer="raw", feature_labels="symbol"), found)


@pytest.mark.filterwarnings("ignore::bayesnmf.DataWarning")
def test_blocks_of_a_stream_may_have_other_features():
    """Those that a block lacks are missing entries."""
    options = bayesnmf.VI(algorithm="minibatch", priors=bayesnmf.Priors(components=bayesnmf.Gamma(1.0, 1.0)))
    streams = [bayesnmf.MinibatchVI(rank=2, seed=0, options=options).partial_fit(COUNTS) for _ in range(2)]
    found = streams[0].partial_fit(OTHER).components
    np.testing.assert_allclose(found, streams[1].partial_fit(COUNTS, observed=SEEN).components, rtol=1e-10)
    np.testing.assert_allclose(streams[0].transform(OTHER), streams[1].transform(COUNTS, observed=SEEN), rtol=1e-10)


def test_a_stream_says_so_and_refuses_missing_features_of_dirichlet_components():
    stream = bayesnmf.MinibatchVI(rank=2, seed=0).partial_fit(COUNTS)
    before = stream.components
    with (
        pytest.warns(DataWarning, match="counts lack 6 of the 10 features of the stream"),
        pytest.raises(ValueError, match="need Gamma priors on both sides"),
    ):
        stream.partial_fit(COUNTS[SHARED])
    np.testing.assert_array_equal(stream.components, before)
