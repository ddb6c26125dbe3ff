"""Estimators with scikit-learn's interface."""

import pickle
import warnings
from contextlib import suppress
from unittest import SkipTest

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array, csr_matrix
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import estimator_checks_generator

import bayesnmf
from bayesnmf import MAP, VI, BayesLDA, BayesNMF, Dirichlet, Gamma, Gibbs, Priors
from bayesnmf.assessment.scoring import background, score
from bayesnmf.data.conversion import as_counts
from bayesnmf.data.splitting import halves_of_rows

DRAWN = bayesnmf.simulate(
    "dirichlet_poisson", (40, 12), 3, priors=Priors(Dirichlet(0.5), Dirichlet(0.3)), seed=1, totals=np.full(40, 80)
)
DENSE = DRAWN.counts.matrix.toarray()
QUICK = {"options": VI(start="svd", tol=1e-3, threads=1), "random_state": 0}
POINTS = {"method": "map", "options": MAP(start="svd", threads=1), "random_state": 0}  # whose scores need no draws
FRUIT, TOOLS = ["apple pear apple plum", "pear plum pear", "plum apple"], ["bolt nut screw nut", "screw bolt nail nut"]


# They call `partial_fit`, or ask for the type of their counts: the options of a quick fit have one of their own.
OF_DEFAULTS = (
    "check_dataframe_column_names_consistency", "check_estimators_partial_fit_n_features", "check_fit_score_takes_y",
    "check_n_features_in_after_fitting", "check_transformer_preserve_dtypes",
)  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(
    "quick",
    [
        BayesNMF(3, options=VI(start="svd", max_iter=30), random_state=0),
        BayesLDA(3, method="map", options=MAP(start="svd", max_iter=30), random_state=0),
    ],
    ids=["BayesNMF", "BayesLDA"],
)
def test_scikit_learn_accepts_them(quick):
    as_it_is = clone(quick).set_params(options=None)
    both = zip(estimator_checks_generator(quick), estimator_checks_generator(as_it_is), strict=True)
    for (one, check), (other, _) in both:
        with warnings.catch_warnings(), suppress(SkipTest):  # of checks that do not apply
            warnings.simplefilter("ignore")  # that fits of noise have not converged
            check(other if check.func.__name__ in OF_DEFAULTS else one)


@pytest.mark.parametrize("method", ["map", "vi"])
def test_a_fit_is_that_of_the_library(method):
    options = {"map": MAP, "vi": VI}[method](start="svd")
    estimator = BayesNMF(3, method=method, options=options, random_state=0).fit(DENSE)
    seed = np.random.RandomState(0).randint(2**31 - 1)
    alone = bayesnmf.fit(DENSE, rank=3, method=method, seed=seed, options=options)
    np.testing.assert_array_equal(estimator.components_, alone.components)
    np.testing.assert_array_equal(estimator.transform(DENSE), alone.transform(DENSE))
    np.testing.assert_array_equal(estimator.fit_transform(DENSE), estimator.transform(DENSE))
    np.testing.assert_allclose(estimator.inverse_transform([[1.0, 2.0, 0.0]])[0], [1.0, 2.0] @ alone.components[:2])
    assert (estimator.n_iter_, estimator.converged_) == (alone.status.iterations, alone.status.converged)
    assert (estimator.n_components_, estimator.n_features_in_) == (3, 12)


def test_sparse_and_dense_counts_and_both_types_are_equal():
    quick = BayesLDA(3, **QUICK).fit(DENSE)
    for kind in (csr_matrix, csr_array):
        np.testing.assert_array_equal(BayesLDA(3, **QUICK).fit(kind(DENSE)).components_, quick.components_)
    narrow = BayesLDA(1, random_state=0).fit(DENSE[:10].astype(np.float32))
    assert narrow.components_.dtype == np.float32
    seed = np.random.RandomState(0).randint(2**31 - 1)
    alone = bayesnmf.fit(DENSE[:10], "dirichlet_poisson", 1, seed=seed, options=VI(dtype="float32"))
    np.testing.assert_array_equal(narrow.components_, alone.components)
    np.testing.assert_allclose(quick.transform(DENSE).sum(axis=1), 1.0)


def test_options_and_priors_reach_the_fit():
    priors = Priors(Gamma(0.5, 0.1), Dirichlet(0.2))
    estimator = BayesNMF(2, priors=priors, max_iter=3, tol=1e-12, restarts=2, random_state=0)
    with pytest.warns(bayesnmf.ConvergenceWarning):
        estimator.fit(DENSE)
    options = estimator.fit_.options
    assert (options.priors.loadings.shape, options.max_iter, options.tol, options.restarts) == (0.5, 3, 1e-12, 2)
    given = BayesNMF(2, options=VI(priors=priors, start="svd"), random_state=0).fit(DENSE)
    assert given.fit_.options.start == "svd"
    drawn = BayesNMF(2, method="gibbs", options=Gibbs(start="random", draws=30, warmup=10, chains=1), random_state=0)
    with pytest.warns(bayesnmf.ConvergenceWarning):
        assert drawn.fit(DENSE).posterior_.components.shape == (1, 30, 2, 12)


@pytest.mark.parametrize(
    ("message", "settings"),
    [
        ("give either options or max_iter", {"options": VI(), "max_iter": 3}),
        ("tol does not apply to method='gibbs'", {"method": "gibbs", "tol": 0.1}),
        ("method must be one of", {"method": "cd"}),
        ("model must be one of", {"model": "pca"}),
        ("rank must be", {"n_components": 0}),
    ],
)
def test_wrong_parameters_are_refused_when_fitted(message, settings):
    estimator = BayesNMF(**settings)
    with pytest.raises(ValueError, match=message):
        estimator.fit(DENSE)


def test_methods_that_need_whole_numbers_say_so():
    with pytest.raises(ValueError, match="needs whole-number counts"):
        BayesNMF(2, method="gibbs").fit(np.where(DENSE > 2, DENSE + 0.1234, DENSE))
    for bad in (-DENSE, np.where(DENSE > 3, np.nan, DENSE)):
        with pytest.raises(ValueError, match=r"[Nn]egative|NaN"):
            BayesNMF(2).fit(bad)


def test_frames_keep_their_names_and_other_columns_are_refused():
    frame = pd.DataFrame(DENSE, columns=[f"g{j}" for j in range(12)], index=[f"s{i}" for i in range(40)])
    estimator = BayesNMF(2, **QUICK).set_output(transform="pandas").fit(frame)
    shown = estimator.transform(frame)
    assert shown.columns.tolist() == ["bayesnmf0", "bayesnmf1"] == estimator.get_feature_names_out().tolist()
    assert shown.index.tolist() == frame.index.tolist()
    assert estimator.fit_.feature_names.tolist() == frame.columns.tolist()
    assert estimator.fit_.row_names.tolist() == frame.index.tolist()
    with pytest.raises(ValueError, match="feature names"):
        estimator.transform(frame.rename(columns={"g0": "x"}))
    with pytest.raises(ValueError, match="feature names"):
        estimator.transform(frame.iloc[:, :5])
    with pytest.raises(ValueError, match="12 features"):
        BayesNMF(2, **QUICK).fit(DENSE).transform(DENSE[:, :5])


def test_columns_named_by_numbers_are_matched_too():
    """Such names are no names of features to scikit-learn."""
    frame = pd.DataFrame(DENSE)
    estimator = BayesNMF(2, **QUICK).fit(frame)
    turned = frame.iloc[:, ::-1]
    np.testing.assert_array_equal(estimator.transform(turned), estimator.transform(frame))
    assert estimator.score(turned) == pytest.approx(estimator.score(frame), rel=1e-12)
    far = frame.set_axis(range(10, 22), axis=1)
    with pytest.raises(ValueError, match="X must have the 12 features of the estimator"):
        BayesNMF(2, **QUICK).fit(far).transform(far.rename(columns={10: 22}))


def test_loadings_with_names_are_matched_with_the_components():
    estimator = BayesNMF(2, **QUICK).set_output(transform="pandas").fit(DENSE)
    loadings = estimator.transform(DENSE)
    for other in (loadings.iloc[:, ::-1], loadings.to_numpy()):
        np.testing.assert_array_equal(estimator.inverse_transform(other), estimator.inverse_transform(loadings))
    with pytest.raises(ValueError, match="X must have the 2 components of the estimator"):
        estimator.inverse_transform(loadings.rename(columns={"bayesnmf0": "x"}))


@pytest.mark.parametrize("method", ["fit", "partial_fit", "transform", "score", "perplexity"])
@pytest.mark.parametrize("masked", [lambda x: x, list], ids=["array", "list of rows"])
def test_masked_counts_are_refused(method, masked):
    estimator = BayesNMF(2, **QUICK).fit(DENSE)
    with pytest.raises(TypeError, match="X must not be a masked array"):
        getattr(estimator, method)(masked(np.ma.masked_less(DENSE, 1)))


def test_generators_are_refused_with_the_cure():
    with pytest.raises(ValueError, match=r"random_state must be a whole number.*int\(generator.integers\(2\*\*31\)\)"):
        BayesNMF(2, random_state=np.random.default_rng(0)).fit(DENSE)


def test_in_pipelines_grids_clones_and_files(tmp_path):
    pipeline = make_pipeline(CountVectorizer(), BayesLDA(2, **QUICK))
    first = pipeline.fit_transform(FRUIT + TOOLS)[:, 0] > 0.5
    assert first.tolist() in ([True] * 3 + [False] * 2, [False] * 3 + [True] * 2)
    grid = GridSearchCV(BayesLDA(**POINTS), {"n_components": [1, 3]}, cv=2).fit(DENSE)
    assert grid.best_params_ == {"n_components": 3}
    estimator = clone(grid.best_estimator_).fit(DENSE)
    np.testing.assert_array_equal(estimator.components_, grid.best_estimator_.components_)
    joblib.dump(estimator, tmp_path / "estimator.joblib")
    for other in (joblib.load(tmp_path / "estimator.joblib"), pickle.loads(pickle.dumps(estimator))):
        np.testing.assert_array_equal(other.transform(DENSE), estimator.transform(DENSE))


@pytest.mark.long
def test_fits_in_other_processes_are_those_of_this_one():
    """In one process `test_in_pipelines_grids_clones_and_files` shows that what is pickled is whole."""
    both = joblib.Parallel(n_jobs=2)(
        joblib.delayed(lambda seed: BayesLDA(2, options=QUICK["options"], random_state=seed).fit(DENSE).components_)(
            seed
        )
        for seed in (0, 0)
    )
    np.testing.assert_array_equal(*both)


def test_the_score_of_many_rows_is_the_mean_of_single_ones():
    estimator = BayesLDA(3, **POINTS).fit(DENSE[10:])
    new = DENSE[:10]
    _, held_out = halves_of_rows(as_counts(new))
    alone = [estimator.score(row[None]) for row in new]
    assert estimator.score(new) == pytest.approx(np.average(alone, weights=held_out.row_totals), rel=1e-4)
    assert estimator.perplexity(new) == pytest.approx(np.exp(-estimator.score(new)))
    assert estimator.score(new[::-1]) == pytest.approx(estimator.score(new), rel=1e-4)
    assert 1 < estimator.perplexity(new) < 12
    assert estimator.score(new) > BayesLDA(1, **POINTS).fit(DENSE[10:]).score(new) + 0.02
    assert np.isnan(estimator.score(np.zeros((2, 12))))


def test_the_score_is_that_of_document_completion():
    estimator = BayesLDA(3, **QUICK).fit(DENSE[:30])
    seen, held_out = halves_of_rows(as_counts(DENSE[30:]))
    wanted = score(estimator.fit_.project(seen), held_out, background(as_counts(DENSE[:30])), 200, 0, 1600)
    assert estimator.score(DENSE[30:]) == pytest.approx(wanted.per_count, rel=1e-12)


def test_halves_of_rows_depend_on_their_counts_alone():
    counts = as_counts(DENSE)
    seen, held_out = halves_of_rows(counts)
    np.testing.assert_array_equal((seen.matrix + held_out.matrix).toarray(), DENSE)
    np.testing.assert_array_equal(halves_of_rows(counts.rows([7]))[1].matrix.toarray()[0], held_out.matrix.toarray()[7])
    # 40 × 80 counts: the share of one half has an sd of 0.9 %
    assert abs(held_out.total / counts.total - 0.5) < 0.03
    fitted = BayesNMF(2, **QUICK).fit(DENSE)
    with pytest.warns(bayesnmf.DataWarning, match="X must be whole numbers for a score"):
        fitted.score(DENSE + 0.5 * np.eye(*DENSE.shape))
    fractions = as_counts([[2.5, 0.75]])
    seen, held_out = halves_of_rows(fractions)
    assert set(held_out.matrix.data) <= {1.0, 2.0}
    assert seen.total + held_out.total == 3.25


def test_blocks_of_rows_are_learned_from():
    estimator = BayesLDA(3, random_state=0)
    for before in ([], [DENSE]):  # fit in between starts anew
        for counts in before:
            estimator.set_params(options=QUICK["options"]).fit(counts).set_params(options=None)
        for block in (DENSE[:10], DENSE[10:18]):
            estimator.partial_fit(block)
        stream = bayesnmf.MinibatchVI("dirichlet_poisson", 3, seed=np.random.RandomState(0).randint(2**31 - 1))
        stream.partial_fit(DENSE[:10]).partial_fit(DENSE[10:18])
        np.testing.assert_array_equal(estimator.components_, stream.components)
        np.testing.assert_array_equal(estimator.transform(DENSE), stream.transform(DENSE))
        np.testing.assert_array_equal(estimator.fit_.loadings, stream.transform(DENSE[10:18]))  # of the last block
        assert (estimator.n_iter_, estimator.converged_) == (stream.steps, True)
        copy = pickle.loads(pickle.dumps(estimator))
        np.testing.assert_array_equal(
            copy.partial_fit(DENSE[5:12]).components_, stream.partial_fit(DENSE[5:12]).components
        )
    assert not hasattr(BayesLDA(method="map"), "partial_fit")


def test_options_of_fits_do_not_stand_in_the_way_of_streams():
    """What concerns a stream is used; a rule for when to stop is for `fit`."""
    plain = BayesLDA(3, random_state=0).partial_fit(DENSE).components_
    for settings in ({"max_iter": 3, "tol": 1e-3, "restarts": 2}, {"options": VI()}):
        given = BayesLDA(3, random_state=0, **settings).partial_fit(DENSE)
        np.testing.assert_array_equal(given.components_, plain)
    priors = Priors(Dirichlet(0.7), Dirichlet(0.2))
    batches = VI(priors=priors, algorithm="minibatch", batch_size=10, start="random")
    stream = bayesnmf.MinibatchVI(
        "dirichlet_poisson", 3, options=batches, seed=np.random.RandomState(0).randint(2**31 - 1)
    )
    estimator = BayesLDA(3, random_state=0, options=batches).partial_fit(DENSE)
    np.testing.assert_array_equal(estimator.components_, stream.partial_fit(DENSE).components)
    assert (estimator.n_iter_, estimator.fit_.priors.loadings.concentration) == (4, 0.7)
    with pytest.raises(ValueError, match="a stream needs a start by name: found Start"):
        BayesLDA(2, options=VI(start=bayesnmf.Start(np.ones((40, 2)), np.ones((2, 12))))).partial_fit(DENSE)


def test_what_is_not_fitted_is_refused():
    for name in ("transform", "score", "perplexity", "inverse_transform"):
        with pytest.raises(ValueError, match="not fitted"):
            getattr(BayesNMF(), name)(DENSE)


# --- what subclasses have of their own --------------------------------------------------------------------


class Shares(BayesNMF):
    """Loadings as shares of each row."""

    def transform(self, X):
        found = super().transform(X)
        return found / found.sum(axis=1, keepdims=True)


class Halves(BayesNMF):
    """A fit to every other row."""

    def fit(self, X):
        return super().fit(X[::2])


def test_subclasses_have_their_own_fit_and_transform_in_fit_transform():
    """`fit_transform` passed by both."""
    shares, halves = Shares(3, **QUICK), Halves(3, **QUICK)
    np.testing.assert_allclose(shares.fit_transform(DENSE).sum(axis=1), 1.0)
    assert halves.fit_transform(DENSE).shape == (40, 3)
    np.testing.assert_array_equal(halves.components_, BayesNMF(3, **QUICK).fit(DENSE[::2]).components_)
    kept = set(vars(halves))
    with pytest.raises(ValueError, match="Negative values"):
        halves.fit_transform(-DENSE)
    assert set(vars(halves)) == kept


# --- counts that the library has made ---------------------------------------------------------------------


def test_counts_of_the_library_are_read_with_their_labels():
    """They were scalars to scikit-learn."""
    named = bayesnmf.as_counts(pd.DataFrame(DENSE, [f"s{i}" for i in range(40)], [f"f{j}" for j in range(12)]))
    table = bayesnmf.datasets.RealCounts(named, pd.DataFrame(index=range(40)), pd.DataFrame(index=range(12)))
    wanted = BayesNMF(3, **QUICK).fit(DENSE)
    for given in (named, table):
        estimator = BayesNMF(3, **QUICK).fit(given)
        np.testing.assert_array_equal(estimator.components_, wanted.components_)
        np.testing.assert_array_equal(estimator.transform(given), wanted.transform(DENSE))
        np.testing.assert_array_equal(estimator.fit_transform(given), wanted.transform(DENSE))
        assert list(estimator.feature_names_in_) == list(named.feature_names)
        assert list(estimator.fit_.row_names) == list(named.row_names)
    assert BayesNMF(3, random_state=0).partial_fit(table).n_features_in_ == 12
    single = BayesNMF(3, method="map", random_state=0).fit(bayesnmf.as_counts(DENSE, dtype="float32"))
    assert single.components_.dtype == np.float32


def test_what_only_has_counts_is_told_to_give_them():
    estimator = BayesNMF(3, **QUICK).fit(DENSE)
    for given in (DRAWN, estimator.fit_):
        for call in (estimator.fit, estimator.transform, estimator.partial_fit, estimator.fit_transform):
            with pytest.raises(
                TypeError, match=rf"^X must be counts themselves: found {type(given).__name__}.*\.counts$"
            ):
                call(given)
    table = bayesnmf.datasets.RealCounts(DRAWN.counts, pd.DataFrame(), pd.DataFrame())
    for call in (BayesNMF(3, missing="nan").fit, lambda x: bayesnmf.fit(x, rank=3, missing="nan")):
        with pytest.raises(TypeError, match="found RealCounts; give the values"):
            call(table)
