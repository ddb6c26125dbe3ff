"""What is given in place of counts: processed AnnData objects, scaled values, texts and TF-IDF weights."""

import anndata
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.pipeline import make_pipeline

import bayesnmf
from bayesnmf import cli
from bayesnmf.data.conversion import as_counts
from bayesnmf.data.files import read_counts

COUNTED = np.random.default_rng(5).poisson(np.random.default_rng(6).gamma(0.6, 3.0, 40), (60, 40))
DEPTH = COUNTED.sum(axis=1, keepdims=True)


# --- where the counts of an AnnData object are ------------------------------------------------------------


def processed(scaled, layers=(), raw=None):
    """Return what scanpy's usual processing leaves: half of the genes, log-normalised, or scaled as well."""
    kept = COUNTED[:, ::2]
    x = np.log1p(COUNTED / DEPTH * 1e4)[:, ::2]
    x = (x - x.mean(axis=0)) / np.maximum(x.std(axis=0), 1e-3) if scaled else x
    x = x if scaled else csr_array(x)
    adata = anndata.AnnData(x, layers=dict.fromkeys(layers, kept) if layers else {"log": x})
    if raw is not None:
        adata.raw = anndata.AnnData(raw)
    return adata


LOGGED = np.log1p(COUNTED / DEPTH * 1e4)
PLACES = {
    "a layer": ({"layers": ("raw_counts",), "raw": LOGGED}, r"layers\['raw_counts'\] has them \(layer='raw_counts'\)"),
    "the layer of that name": ({"layers": ("spliced", "UMIs")}, r"layers\['UMIs'\] has them"),
    "raw": ({"raw": COUNTED}, r"\.raw has them \(adata\.raw\)"),
    "nowhere": ({"raw": LOGGED}, r"which are in none of its layers and not in \.raw"),
}


@pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    "case", ["a layer", "raw", *(pytest.param(each, marks=pytest.mark.long) for each in list(PLACES)[1::2])]
)
def test_processed_objects_are_told_where_their_counts_are(case, tmp_path):
    settings, place = PLACES[case]
    quick = {"rank": 2, "options": bayesnmf.VI(max_iter=1, tol=0.0, threads=1)}
    path, whole = tmp_path / "cells.h5ad", processed(False, **settings)
    whole.write_h5ad(path)
    told = f"counts look transformed: .* multiples of one number in each row; pass the raw counts.*{place}"
    for given in (whole, whole[:, :12], path):
        with pytest.warns(bayesnmf.DataWarning, match=told):
            bayesnmf.fit(given, **quick)
    with pytest.warns(bayesnmf.DataWarning, match=told) as caught:
        bayesnmf.BayesNMF(2, options=quick["options"]).fit(whole)
    assert sum(each.category is bayesnmf.DataWarning for each in caught) == 1
    with pytest.raises(ValueError, match=f"must be whole numbers .*{place}.*, or read these into memory"):
        bayesnmf.fit(bayesnmf.Blocks(path, scratch=tmp_path), rank=2)
    scaled = processed(True, **settings)
    scaled.write_h5ad(path)
    for call in (bayesnmf.fit, bayesnmf.BayesNMF().fit, read_counts, bayesnmf.tl.fit):
        given = path if call is read_counts else scaled
        with pytest.raises(ValueError, match=f"nonnegative: found .*, as in scaled or corrected data; .*{place}"):
            call(given)
    with pytest.raises(ValueError, match=f"nonnegative: found .*, as in scaled or corrected data; .*{place}"):
        bayesnmf.fit(path, **quick)


def test_raw_values_of_an_object_are_told_of_its_layers():
    adata = processed(False, ("raw_counts",), LOGGED)
    with pytest.warns(
        bayesnmf.DataWarning, match=r"log-normalised: .* pass the raw counts: layers\['raw_counts'\] has"
    ):
        as_counts(adata.raw)
    adata.layers["counts"] = adata.X
    adata.X = COUNTED[:, ::2]
    del adata.layers["raw_counts"], adata.raw
    with pytest.warns(bayesnmf.DataWarning, match=r"pass the raw counts: X has them \(adata\.X\)"):
        as_counts(adata)  # its layer is taken for counts, because of its name
    assert as_counts(processed(False, raw=COUNTED).raw).is_integer  # warnings are errors


def test_a_mask_is_not_named_as_the_place_of_counts():
    adata = processed(False, raw=COUNTED)
    adata.layers["detected"] = (COUNTED[:, ::2] > 0).astype(float)
    with pytest.warns(bayesnmf.DataWarning, match=r"pass the raw counts: \.raw has them"):
        as_counts(adata)


# --- once a call ------------------------------------------------------------------------------------------

NO_COUNTS = {
    "logarithms": np.log1p(COUNTED),
    "log-normalised": LOGGED,
    "per million": COUNTED / DEPTH * 1e6,
    "TF-IDF": TfidfTransformer().fit_transform(COUNTED).toarray(),
}
ONE_STEP = bayesnmf.MAP(start="random", max_iter=1, tol=0.0)
SETTINGS = {"method": "map", "options": ONE_STEP}


def one_step(kind):
    return kind(2, random_state=0, **SETTINGS)


ONCE = {
    "fit": lambda frame: bayesnmf.fit(frame, rank=2, seed=0, **SETTINGS),
    "tl.fit": lambda frame: bayesnmf.tl.fit(anndata.AnnData(frame.to_numpy()), rank=2, seed=0, **SETTINGS),
    "BayesNMF.fit": lambda frame: one_step(bayesnmf.BayesNMF).fit(frame.to_numpy()),
    "BayesNMF.fit_transform": lambda frame: one_step(bayesnmf.BayesNMF).fit_transform(frame.to_numpy()),
    "BayesLDA.fit_transform": lambda frame: one_step(bayesnmf.BayesLDA).fit_transform(frame),
    "BayesNMF.transform": lambda frame: one_step(bayesnmf.BayesNMF).fit(COUNTED).transform(frame.to_numpy()),
    "BayesNMF.partial_fit": lambda frame: bayesnmf.BayesNMF(2, random_state=0).partial_fit(frame),
    "Fit.transform": lambda frame: bayesnmf.fit(COUNTED, rank=2, seed=0, **SETTINGS).transform(frame.to_numpy()),
}


@pytest.mark.parametrize("call", ONCE)
@pytest.mark.parametrize("given", NO_COUNTS)
@pytest.mark.filterwarnings("ignore::bayesnmf.ConvergenceWarning")
def test_each_call_tells_once_that_its_numbers_are_no_counts(given, call):
    """`fit_transform` looked at them twice."""
    frame = pd.DataFrame(NO_COUNTS[given]).rename(index="row {}".format, columns="feature {}".format)
    with pytest.warns(bayesnmf.DataWarning, match="^counts look") as told:
        ONCE[call](frame)
    assert len(told) == 1


@pytest.mark.parametrize("given", NO_COUNTS)
def test_each_command_tells_once_that_its_numbers_are_no_counts(given, tmp_path, capsys):
    counts, fit = tmp_path / "counts.csv", tmp_path / "fit.nc"
    pd.DataFrame(NO_COUNTS[given]).rename(index="row {}".format, columns="feature {}".format).to_csv(counts)
    for words in (("fit", counts, "--rank", "2", "--method", "map", "--out", fit, "--quiet"),
                  ("transform", fit, counts, "--out", tmp_path / "loadings.csv")):  # fmt: skip
        assert cli.main([str(word) for word in words]) == 0
        assert capsys.readouterr().err.count("warning: counts look") == 1


# --- texts ------------------------------------------------------------------------------------------------

TEXTS = ["the cat sat on the mat", "a dog in the rain", "the cat and the dog", "rain on the mat, and rain", "sun"] * 2


@pytest.mark.parametrize("form", [list, tuple, np.array, pd.Series, lambda x: np.array(x, dtype=object)])
def test_texts_are_to_be_counted(form):
    counter = CountVectorizer()
    matrix = counter.fit_transform(TEXTS)
    quick = bayesnmf.VI(max_iter=1, tol=0.0, threads=1)
    lda = bayesnmf.BayesLDA(2, options=quick).fit(matrix)
    fit = lda.fit_
    for call in (bayesnmf.fit, as_counts, fit.transform, lda.fit, lda.transform, lda.partial_fit, lda.score):
        for given, cure in (
            (TEXTS, r"\(\)\.fit_transform\(texts\)"),
            ([each.split() for each in TEXTS], r"\(analyzer=list"),
        ):
            if given is TEXTS or form is not np.array:  # which makes no array of lists of different lengths
                with pytest.raises(
                    TypeError, match=f"must be numbers, and these are .*: count .*CountVectorizer{cure}"
                ):
                    call(form(given))
    frame = pd.DataFrame({"label": 1, "text": TEXTS})
    for call in (bayesnmf.fit, lda.fit):
        with pytest.raises(
            TypeError, match=r"column 'text' has texts: count .*CountVectorizer\(\)\.fit_tr.*\(frame\['text"
        ):
            call(frame)


@pytest.mark.parametrize("missing", [None, np.nan])
def test_texts_of_which_some_are_missing_are_to_be_counted(missing):
    for given in ([missing, *TEXTS], pd.Series([*TEXTS, missing])):
        with pytest.raises(TypeError, match="must be numbers, and these are texts"):
            bayesnmf.fit(given, rank=1)


@pytest.mark.parametrize("settings", [{}, {"norm": None}, {"norm": None, "sublinear_tf": True, "smooth_idf": False}])
def test_tf_idf_is_told_to_be_no_counts(settings):
    weights = TfidfVectorizer(**settings).fit_transform(TEXTS)
    with pytest.warns(bayesnmf.DataWarning, match="TF-IDF weights.*pass those of CountVectorizer, since the model"):
        as_counts(weights)
    with pytest.warns(bayesnmf.DataWarning, match="TF-IDF weights.*pass those of CountVectorizer"):
        bayesnmf.BayesLDA(2, options=bayesnmf.VI(max_iter=99, tol=0.1, threads=1)).fit(weights)


def test_texts_without_a_known_word_are_told():
    counter = CountVectorizer()
    options = bayesnmf.VI(start="svd", tol=1e-3, threads=1)
    pipeline = make_pipeline(counter, bayesnmf.BayesLDA(2, options=options, random_state=0)).fit(TEXTS)
    fit = bayesnmf.fit(counter.transform(TEXTS), "dirichlet_poisson", 2, options=options, seed=0)
    stream = bayesnmf.MinibatchVI("dirichlet_poisson", 2, seed=0).partial_fit(counter.transform(TEXTS))
    new = ["zebra", "the cat", "unheard words"]
    for call, given in (
        (pipeline.transform, new),
        (fit.transform, counter.transform(new)),
        (stream.transform, counter.transform(new)),
    ):
        with pytest.warns(
            bayesnmf.DataWarning, match="^2 of 3 rows have no count of a feature of the fit.*prior gives"
        ):
            found = call(given)
        np.testing.assert_allclose(found[[0, 2]], 0.5, rtol=1e-6)
        call(given[1:2])  # warnings are errors


def test_words_of_a_pipeline_and_of_a_vectorizer():
    counter = CountVectorizer()
    options = bayesnmf.VI(start="svd", tol=1e-3, threads=1)
    pipeline = make_pipeline(counter, bayesnmf.BayesLDA(2, options=options, random_state=0)).fit(TEXTS)
    words = set(counter.get_feature_names_out())
    found = pipeline[-1].top_features(3, pipeline[:-1])
    assert found.shape == (3, 2)
    assert set(found.to_numpy().ravel()) <= words
    pd.testing.assert_frame_equal(found, pipeline[-1].fit_.rename(features=counter).top_features(3))
    assert pipeline[-1].top_features(3).to_numpy().dtype.kind == "i"  # numbers of the columns, without names
    fit = bayesnmf.fit(counter.transform(TEXTS), rank=2, options=options, feature_names=counter)
    assert set(fit.feature_names) == words
