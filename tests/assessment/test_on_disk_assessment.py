"""Assessment of fits of counts on disk: the same numbers as in memory, or a refusal that names what to do."""

from dataclasses import replace

import anndata
import numpy as np
import pandas as pd
import pytest
from plain import even_priors
from scipy.sparse import csr_matrix
from suites import mostly_long

import bayesnmf
from bayesnmf import MAP, VI, Blocks, Dirichlet, Gamma, Gibbs, Priors, ScaledDirichlet
from bayesnmf.assessment import linear_response

pytestmark = [
    pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.* did not converge:bayesnmf.ConvergenceWarning"),
]
EVEN = even_priors(total=90)  # under sparse ones rows have several optima
X = bayesnmf.simulate(size=(103, 40), rank=3, priors=EVEN, seed=1).counts.matrix.toarray().astype(int)
X[[5, 100]] = 0
X[:, 7] = 0
NAMES = [f"c{i}" for i in range(len(X))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("assessed")


@pytest.fixture(scope="module")
def blocks(folder):
    adata = anndata.AnnData(csr_matrix(X.astype(np.float32)), pd.DataFrame(index=NAMES))
    adata.write_h5ad(folder / "cells.h5ad")
    return Blocks(folder / "cells.h5ad", nonzeros=450, scratch=folder / "scratch")


def both(blocks, model="gamma_poisson", exposure=None, **options):
    """Return fits on disk and in memory, after a few iterations, where they differ by rounding alone."""
    settings = VI(start="random", tol=0, max_iter=4, threads=1, **options)
    fits = [
        bayesnmf.fit(given, model, 3, options=settings, seed=3, row_exposure=exposure, row_names=NAMES)
        for given in (blocks, X)
    ]
    assert len(fits[0].counts.blocks) > 5
    return fits


CASES = [
    ("gamma_poisson", {}, None),
    ("gamma_poisson", {"priors": Priors(Gamma(0.3, 0.1), Dirichlet(0.1))}, np.linspace(1, 3, len(X))),
    ("gamma_poisson", {"priors": Priors(components="parameter")}, None),
    ("dirichlet_poisson", {}, None),
    ("dirichlet_gamma", {}, np.linspace(1, 3, len(X))),
]


@pytest.mark.parametrize("model", ["gamma_poisson", "dirichlet_poisson"])
def test_shares_of_components_are_those_in_memory(blocks, model):
    one, two = both(blocks, model, intervals="mean_field")
    np.testing.assert_allclose(one.shares(), two.shares(), rtol=1e-9)
    assert one.top_rows()["row"].tolist() == two.top_rows()["row"].tolist()


@pytest.mark.parametrize(("model", "options", "exposure"), CASES)
def test_bounds_are_those_in_memory(blocks, model, options, exposure):
    """To rounding; other draws of a block would move the mean by far more."""
    one, two = both(blocks, model, exposure, **options)
    assert bayesnmf.elbo_augmented(one) == pytest.approx(bayesnmf.elbo_augmented(two), rel=1e-12)
    assert bayesnmf.elbo_augmented(one) == pytest.approx(one.trace[-1], rel=1e-12)
    found, expected = (bayesnmf.elbo_marginal(each, 5, 2) for each in (one, two))
    assert found.mean == pytest.approx(expected.mean, rel=1e-12)
    assert found.se == pytest.approx(expected.se, rel=1e-7)


def test_bounds_of_fits_in_single_precision(blocks):
    one, two = both(blocks, dtype="float32")
    for fit in (one, two):
        assert bayesnmf.elbo_augmented(fit) == pytest.approx(fit.trace[-1], rel=1e-5)
    assert bayesnmf.elbo_marginal(one, 5).mean == pytest.approx(bayesnmf.elbo_marginal(two, 5).mean, rel=1e-5)


def test_points_on_disk_have_no_bound(blocks):
    fit = bayesnmf.fit(blocks, rank=2, method="map", options=MAP(start="random", max_iter=2))
    with pytest.raises(ValueError, match="an evidence lower bound needs"):
        bayesnmf.elbo_augmented(fit)


def test_draws_of_rows_are_those_of_all_rows():
    shape = np.random.default_rng(0).gamma(0.5, size=(40, 3)) + 1e-3
    for whole in (Gamma(shape, 2.0), Dirichlet(shape), ScaledDirichlet(shape, shape[:, :1], 1.5)):
        drawn = whole.draw(np.random.default_rng(1))
        part = whole.rows(slice(11, 30)).draw_rows(np.random.default_rng(1), 11)
        parts = zip(*([each] if isinstance(each, np.ndarray) else each for each in (drawn, part)), strict=True)
        for all_rows, rows in parts:
            np.testing.assert_array_equal(all_rows[11:30], rows)


@pytest.mark.parametrize(
    ("model", "method", "options"),
    [
        ("dirichlet_gamma", "vi", VI(start="random", max_iter=5, intervals="mean_field")),
        ("poisson", "map", MAP(algorithm="em", start="random", max_iter=5)),
        ("dirichlet_poisson", "gibbs", Gibbs(start="random", algorithm="allocations", draws=6, warmup=2, chains=2)),
    ],
)
def test_assessments_are_those_in_memory(blocks, model, method, options):
    """A replicate whose rows had other random numbers in each block would differ in every total."""
    on_disk, in_memory = (bayesnmf.fit(counts, model, 3, method, seed=0, options=options) for counts in (blocks, X))
    one, two = (bayesnmf.predictive_checks(fit, 12, refits=10, seed=3) for fit in (on_disk, in_memory))
    of_refits = ["p_value", "p_adjusted", "misfit_ratio"]  # they go on from fits that differ by rounding
    for name in ("table", "rows", "features", "histogram"):
        for columns, rtol in ((of_refits, 1e-6), (["observed", "mean", "low", "high"], 1e-9)):
            both = [getattr(found, name).filter(columns).to_numpy(float) for found in (one, two)]
            np.testing.assert_allclose(*both, rtol=rtol)
    one, two = (bayesnmf.coherence(fit) for fit in (on_disk, in_memory))
    np.testing.assert_array_equal(one, two)


@pytest.fixture(scope="module")
def fitted(blocks):
    return bayesnmf.fit(
        replace(blocks, nonzeros=10**6), rank=3, seed=0, options=VI(start="svd", threads=1, priors=EVEN)
    )


def test_dispersions_and_contrasts_are_those_in_memory(blocks):
    """A pool of small entries that did not go on into the next block would change the dispersion of its feature."""
    one, two = both(blocks, intervals="mean_field")
    ours, theirs = one.dispersion(), two.dispersion()
    assert ours.ratio == pytest.approx(theirs.ratio, rel=1e-10)
    np.testing.assert_allclose(ours.rows, theirs.rows, rtol=1e-8)
    np.testing.assert_allclose(ours.features, theirs.features, rtol=1e-8)
    groups = np.array(["a", "b"])[np.arange(len(X)) % 2]
    ours, theirs = (bayesnmf.group_contrasts(fit, groups, seed=0) for fit in (one, two))
    np.testing.assert_allclose(ours.select_dtypes(float), theirs.select_dtypes(float), rtol=1e-6, atol=1e-9)


PROJECT = r"this needs counts in memory, but they are on disk .*fit\.project\(fit\.counts\.rows\(range\(1000\)\)\)"
REFUSED = {
    "allocations": lambda fit: fit.allocations(),
    "to_datatree": lambda fit: fit.to_datatree(),
    "to_anndata": lambda fit: fit.to_anndata(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_all_counts_names_the_cure(fitted, name):
    with pytest.raises(ValueError, match=PROJECT):
        REFUSED[name](fitted)


@pytest.mark.parametrize("given", [{}, {"given_components": True}], ids=["coupled", "given"])
def test_linear_response_is_that_in_memory(fitted, given, monkeypatch):
    """Counts are read, unless what is kept of their rows would not fit."""
    one, two = fitted, bayesnmf.fit(X, rank=3, seed=0, options=fitted.options)
    responses = [bayesnmf.linear_response(fit, **given) for fit in (one, two)]
    for side in ("loadings", "components"):
        ours, theirs = (response.spread(side).sd for response in responses)
        np.testing.assert_allclose(ours, theirs, rtol=1e-7)  # of optima with a gradient of 1e-8
    monkeypatch.setattr(linear_response, "LARGEST", 1e3)
    with pytest.raises(ValueError, match=r"linear response of .* rows at once would take .*fit\.project"):
        bayesnmf.linear_response(one, **given)


def test_the_cure_works(fitted):
    """Chosen rows in memory, at the components of the fit, can be assessed."""
    chosen = fitted.project(fitted.counts.rows(range(60)))
    assert chosen.counts.in_memory
    np.testing.assert_array_equal(chosen.components, fitted.components)
    np.testing.assert_allclose(chosen.loadings, fitted.loadings[:60], rtol=1e-3, atol=1e-4)
    assert bayesnmf.predictive_checks(chosen, 5).draws == 5
    assert bayesnmf.group_contrasts(chosen, ["a", "b"] * 30) is not None
    assert bayesnmf.linear_response(chosen, given_components=True) is not None
    assert chosen.allocations().shape == (60, 3, 40)


TAKE_COUNTS = {
    "as_counts": bayesnmf.as_counts,
    "equivalences": lambda counts: bayesnmf.equivalences(counts, rank=2),
    "log_evidence": lambda counts: bayesnmf.log_evidence(counts, rank=2),
    "stream": lambda counts: bayesnmf.MinibatchVI(rank=2).partial_fit(counts),
}


@pytest.mark.parametrize("name", TAKE_COUNTS)
def test_counts_on_disk_are_for_fit_alone(blocks, fitted, name):
    for given in (blocks, fitted.counts):
        with pytest.raises(TypeError, match=r"must be in memory here: found Block.*read it with bayesnmf\.read_coun"):
            TAKE_COUNTS[name](given)


@pytest.mark.usefixtures("without_pictures")
@pytest.mark.parametrize("method", mostly_long(["vi", "map"]))
def test_pages_of_fits_on_disk(blocks, tmp_path, method):
    options = (
        MAP(start="random", max_iter=5) if method == "map" else VI(start="random", max_iter=5, intervals="mean_field")
    )
    fit = bayesnmf.fit(replace(blocks, nonzeros=1200), rank=2, method=method, seed=0, options=options)
    assert len(fit.counts.blocks) > 1
    page = bayesnmf.report(fit, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Could the model have made these counts?" in page
    assert "The counts of this fit are on disk" in page
    assert "How to repeat it" in page
