"""What `fit` refuses: every message names the argument and the rule, and most the cure."""

import numpy as np
import pandas as pd
import pytest
from registry import plain_counts
from scipy.sparse import csr_array

import bayesnmf
from bayesnmf import BLD, MAP, NUTS, SVI, VI, Dirichlet, Gamma, Gibbs, Priors, ScaledDirichlet, Start
from bayesnmf.options import METHODS
from bayesnmf.priors import ScaledProportions
from bayesnmf.priors.specification import MODELS

COUNTS = plain_counts(size=(6, 5))
OPTIONS = {name: method.options for name, method in METHODS.items()}
STARTED = tuple(options for options in OPTIONS.values() if hasattr(options(), "start"))  # smc starts from the prior
FLAT = Gamma(1.0, 0.0)
ONE = {"dirichlet_poisson": Dirichlet, "dirichlet_gamma": ScaledDirichlet}
ONE |= dict.fromkeys(("poisson", "gamma_poisson", "hierarchical_poisson"), Gamma)


def refused(error, rule, counts=COUNTS, model="gamma_poisson", rank=2, method="vi", **settings):
    with pytest.raises(error, match=rule):
        bayesnmf.fit(counts, model, rank, method, **settings)


# --- counts -----------------------------------------------------------------------------------------


def with_entry(value):
    counts = COUNTS.copy()
    counts[2, 3] = value
    return counts


BAD_COUNTS = {
    "negative": (
        with_entry(-1),
        ValueError,
        r"counts must be nonnegative: found -1\.0 at row 2, column 3, as in scaled or",
    ),
    "NaN": (with_entry(np.nan), ValueError, "counts must be finite .*found nan at row 2, column 3; replace"),
    "infinite": (with_entry(np.inf), ValueError, "counts must be finite .*found inf at row 2, column 3; replace"),
    "negative sparse": (csr_array(with_entry(-2)), ValueError, r"counts must be nonnegative: found -2\.0 at row 2"),
    "text": ([["a", "b"], ["c", "d"]], TypeError, "counts must be numbers, and these are lists of words: count them"),
    "column of text": (pd.DataFrame({"x": [1], "y": ["a"]}), TypeError, "counts must be real numbers: column 'y'"),
    "ragged": ([[1, 2], [3]], ValueError, "counts must be rectangular: give every row the same number"),
    "empty": ([[]], ValueError, r"counts must have at least one row and one column: found shape \(1, 0\)"),
    "no rows": (np.empty((0, 3)), ValueError, "counts must have at least one row and one column"),
    "one dimension": ([1, 2, 3], ValueError, "counts must be two-dimensional, samples in rows"),
    "nothing": (None, TypeError, "counts must be real numbers"),
    "a path of no file": ("counts.csv", FileNotFoundError, "there is no file counts.csv; check the path"),
}


@pytest.mark.parametrize("method", ["vi", "gibbs"])
@pytest.mark.parametrize("case", BAD_COUNTS)
def test_counts_that_make_no_sense_are_refused(case, method):
    counts, error, rule = BAD_COUNTS[case]
    refused(error, f"^{rule}", counts=counts, method=method)


def test_gibbs_refuses_fractions():
    rule = r"^method='gibbs' needs whole-number counts: found 0\.5 at row 2, column 3; round them, or use method='vi'"
    refused(ValueError, rule, counts=with_entry(0.5), method="gibbs")


def test_counts_too_large_for_float32_are_refused():
    rule = "^counts must be finite as float32: found inf at row 2, column 3"
    refused(ValueError, rule, counts=with_entry(1e300), options=VI(dtype="float32"))


# --- model, method, rank, seed, options -------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "error", "rule"),
    [
        ({"rank": 0}, ValueError, "rank must be at least 1: found 0"),
        ({"rank": -3}, ValueError, "rank must be at least 1: found -3"),
        ({"rank": 2.0}, TypeError, r"rank must be a whole number of at least 1, not 2\.0"),
        ({"rank": "2"}, TypeError, "rank must be a whole number of at least 1, not '2'"),
        ({"rank": True}, TypeError, "rank must be a whole number"),
        ({"model": "gamma-poisson"}, ValueError, "model must be one of .*did you mean 'gamma_poisson'"),
        ({"model": None}, ValueError, "model must be one of 'poisson', 'gamma_poisson'"),
        ({"method": "gibs"}, ValueError, "method must be one of .*did you mean 'gibbs'"),
        (
            {"method": "em"},
            ValueError,
            "method must be one of 'map', 'vi', 'gibbs', 'nuts', 'smc', 'svi', 'bld': found 'em'",
        ),
        ({"seed": -1}, ValueError, "seed must be at least 0: found -1"),
        ({"seed": 0.5}, TypeError, r"seed must be a whole number of at least 0, not 0\.5"),
        ({"options": {"max_iter": 3}}, TypeError, r"options must be bayesnmf\.VI\(\.\.\.\) .*found dict"),
        ({"options": VI}, TypeError, r"options must be bayesnmf\.VI\(\.\.\.\) .*found type"),
        ({"options": Priors()}, TypeError, r"options must be bayesnmf\.VI\(\.\.\.\) .*found Priors"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(settings, error, rule):
    refused(error, f"^{rule}", **settings)


@pytest.mark.parametrize("given", METHODS)
@pytest.mark.parametrize("method", METHODS)
def test_options_of_another_method_are_refused(method, given):
    options = OPTIONS[given]
    if given != method:
        rule = rf"^options must be bayesnmf\.{OPTIONS[method].__name__}\(\.\.\.\) for method='{method}': found "
        refused(TypeError, rule + options.__name__, method=method, options=options())


@pytest.mark.parametrize("options", OPTIONS.values())
def test_options_take_no_unknown_words_and_no_positions(options):
    with pytest.raises(TypeError, match="unexpected keyword argument 'iterations'"):
        options(iterations=10)
    with pytest.raises(TypeError, match="positional argument"):
        options(Priors())


BAD_OPTIONS = [
    ({"max_iter": -1}, ValueError, "max_iter must be at least 0", (MAP, VI)),
    ({"max_iter": 0}, ValueError, "max_iter must be at least 1", (SVI,)),
    ({"max_iter": 1.5}, TypeError, "max_iter must be a whole number", (MAP, VI, SVI)),
    ({"tol": -1e-3}, ValueError, "tol must be at least 0", (MAP, VI)),
    ({"tol": "small"}, TypeError, "tol must be a number of at least 0, not 'small'", (MAP, VI)),
    ({"tol": np.nan}, ValueError, "tol must be at least 0 and finite", (MAP, VI)),
    ({"schedule": "both"}, ValueError, "schedule must be one of 'joint', 'alternating': found 'both'", (MAP, VI)),
    ({"order": "rows"}, ValueError, "order must be one of 'loadings', 'components': found 'rows'", (MAP, VI)),
    ({"basis": "softmax"}, ValueError, "basis must be one of 'natural', 'log': found 'softmax'", (MAP,)),
    ({"dtype": "float16"}, ValueError, "dtype must be one of 'float64', 'float32'", (MAP, VI, NUTS, SVI)),
    ({"dtype": float}, ValueError, "dtype must be one of 'float64', 'float32'", (MAP, VI, NUTS, SVI)),
    ({"threads": 0}, ValueError, "threads must be at least 1: found 0", (MAP, VI)),
    ({"threads": "all"}, TypeError, "threads must be a whole number", (MAP, VI)),
    (
        {"start": "nndsvd"},
        ValueError,
        "start must be one of 'svd', 'descent', 'random', 'random_descent': found 'nndsvd'",
        (MAP, VI),
    ),
    ({"start": "vi"}, ValueError, "start must be one of 'fit', 'random': found 'vi'", (Gibbs, NUTS, SVI)),
    ({"start": COUNTS}, TypeError, r"start must be a bayesnmf.Start\(loadings, components\), a Fit", STARTED),
    ({"start": 3}, TypeError, r"start must be a bayesnmf.Start\(loadings, components\)", STARTED),
    ({"start": None}, TypeError, r"start must be a bayesnmf.Start\(loadings, components\)", (BLD, Gibbs, NUTS, SVI)),
    ({"chains": 0}, ValueError, "chains must be at least 1", (Gibbs, NUTS)),
    ({"draws": 0}, ValueError, "draws must be at least 1", (Gibbs, NUTS)),
    ({"draws": 10.0}, TypeError, "draws must be a whole number", (Gibbs, NUTS)),
    ({"warmup": -1}, ValueError, "warmup must be at least 0", (Gibbs, NUTS)),
    ({"thin": 0}, ValueError, "thin must be at least 1", (Gibbs,)),
    ({"threads": 0}, ValueError, "threads must be at least 1", (Gibbs,)),
    ({"target_accept": 1.0}, ValueError, "target_accept must be below 1", (NUTS,)),
    ({"target_accept": 0.0}, ValueError, "target_accept must be positive", (NUTS,)),
    ({"max_tree_depth": 0}, ValueError, "max_tree_depth must be at least 1", (NUTS,)),
    ({"bound": "tight"}, ValueError, "bound must be one of 'marginal', 'augmented'", (SVI,)),
    ({"learning_rate": 0.0}, ValueError, "learning_rate must be positive", (SVI,)),
    ({"particles": 0}, ValueError, "particles must be at least 1", (SVI,)),
]


@pytest.mark.parametrize(
    ("options", "settings", "error", "rule"),
    [(options, *bad) for *bad, classes in BAD_OPTIONS for options in classes],
)
def test_options_that_make_no_sense_are_refused(options, settings, error, rule):
    with pytest.raises(error, match=f"^{rule}"):
        options(**settings)


@pytest.mark.parametrize("method", METHODS)
def test_priors_must_be_priors(method):
    for wrong in (Gamma(1.0, 1.0), {"loadings": Gamma(1.0, 1.0)}, (Gamma(1.0, 1.0), Dirichlet(1.0)), None):
        with pytest.raises(TypeError, match=r"^priors must be .*Priors\("):
            bayesnmf.fit(COUNTS, "gamma_poisson", 2, method, options=OPTIONS[method](priors=wrong))


@pytest.mark.parametrize("method", ["gibbs", "nuts"])
def test_more_draws_than_memory_bears(method):
    rule = "^the draws of .* would take .* GiB, above the limit .*; ask for (fewer draws|bayesnmf.Gibbs.keep='moments')"
    kept = {"keep": "draws"} if method == "gibbs" else {}
    refused(ValueError, rule, method=method, options=OPTIONS[method](draws=10**9, **kept))


# --- priors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("loadings", [Gamma(1.0, 1.0), Dirichlet(1.0), ScaledDirichlet(1.0, 1.0, 1.0)])
def test_loadings_have_the_family_of_the_model(model, loadings):
    priors = Priors(loadings=loadings)
    if isinstance(loadings, ONE[model]):
        fit = bayesnmf.fit(COUNTS, model, 2, "vi", seed=0, options=VI(priors=priors, max_iter=2, tol=0))
        assert fit.priors.loadings is loadings
        return
    names = "Gamma or HierarchicalGamma" if ONE[model] is Gamma else ONE[model].__name__
    rule = rf"^priors\.loadings must be {names} for model='{model}'.* found {type(loadings).__name__}"
    refused(ValueError, rule, model=model, options=VI(priors=priors))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("model", ["dirichlet_poisson", "dirichlet_gamma"])
def test_dirichlet_loadings_need_components_on_the_simplex(model, method):
    options = OPTIONS[method](priors=Priors(components=Gamma(1.0, 1.0)))
    rule = rf"^priors\.components must be Dirichlet for model='{model}', so that the updates are conjugate: found Gamma"
    refused(ValueError, rule, model=model, method=method, options=options)


def test_components_with_a_scale_are_refused():
    with pytest.raises((TypeError, ValueError), match=r"^priors\.components must be .*Gamma"):
        bayesnmf.fit(COUNTS, rank=2, options=VI(priors=Priors(components=ScaledDirichlet(1.0, 1.0, 1.0))))


@pytest.mark.parametrize(
    ("side", "prior", "error", "rule"),
    [
        ("loadings", Gamma(0.0, 1.0), ValueError, r"priors\.loadings\.shape must be positive and finite: found 0"),
        ("loadings", Gamma(-1.0, 1.0), ValueError, r"priors\.loadings\.shape must be positive"),
        ("loadings", Gamma(1.0, -1.0), ValueError, r"priors\.loadings\.rate must be nonnegative"),
        ("loadings", Gamma(np.nan, 1.0), ValueError, r"priors\.loadings\.shape must be positive and finite"),
        ("loadings", Gamma(np.inf, 1.0), ValueError, r"priors\.loadings\.shape must be positive and finite"),
        ("loadings", Gamma([1.0, 0.0], 1.0), ValueError, r"priors\.loadings\.shape must be positive"),
        ("loadings", Gamma("one", 1.0), TypeError, r"priors\.loadings\.shape must be a number or an array"),
        ("loadings", Gamma(None, 1.0), (TypeError, ValueError), r"priors\.loadings\.shape must be"),
        ("loadings", Gamma([[1.0], [1.0, 2.0]], 1.0), TypeError, r"priors\.loadings\.shape must be a number"),
        (
            "loadings",
            Gamma(2.0, 0.0),
            ValueError,
            r"priors\.loadings\.rate must be positive .*Gamma\(1, 0\)",
        ),
        ("loadings", Gamma(1.0, [0.0, 1.0]), ValueError, r"priors\.loadings\.rate must be positive"),
        ("loadings", Dirichlet(0.0), ValueError, r"priors\.loadings\.concentration must be positive"),
        ("loadings", ScaledDirichlet(-1.0, 1.0, 1.0), ValueError, r"priors\.loadings\.concentration must be positive"),
        ("loadings", ScaledDirichlet(1.0, 0.0, 1.0), ValueError, r"priors\.loadings\.shape must be positive"),
        ("loadings", ScaledDirichlet(1.0, 1.0, 0.0), ValueError, r"priors\.loadings\.rate must be positive"),
        ("components", Dirichlet([1.0, -1.0]), ValueError, r"priors\.components\.concentration must be positive"),
        ("components", Gamma(1.0, np.inf), ValueError, r"priors\.components\.rate must be nonnegative and finite"),
        (
            "loadings",
            1.0,
            TypeError,
            r"priors\.loadings must be one of Gamma, HierarchicalGamma, Dirichlet, ScaledDirichlet or None",
        ),
        ("loadings", "parameter", TypeError, r"priors\.loadings must be one of .*found 'parameter'"),
        ("loadings", Gamma, TypeError, r"priors\.loadings must be one of"),
        (
            "components",
            "free",
            TypeError,
            r"priors\.components must be one of Gamma, HierarchicalGamma, Dirichlet, 'parameter' or None",
        ),
        (
            "components",
            np.ones(5),
            TypeError,
            r"priors\.components must be one of Gamma, HierarchicalGamma, Dirichlet, 'parameter'",
        ),
        ("components", {"concentration": 1.0}, TypeError, r"priors\.components must be one of"),
    ],
)
def test_hyperparameters_that_make_no_sense_are_refused(side, prior, error, rule):
    with pytest.raises(error, match=f"^{rule}"):
        Priors(**{side: prior})


@pytest.mark.parametrize(
    ("model", "priors", "rule"),
    [
        ("gamma_poisson", Priors(Gamma([1.0, 2.0, 3.0], 1.0)), r"loadings\.shape must broadcast to \(6, 2\)"),
        ("gamma_poisson", Priors(Gamma(1.0, np.ones((5, 2)))), r"loadings\.rate must broadcast to \(6, 2\)"),
        ("gamma_poisson", Priors(Gamma(1.0, np.ones(6))), r"loadings\.rate must broadcast to \(6, 2\): found .*\(6,\)"),
        ("gamma_poisson", Priors(Gamma(1.0, np.ones((1, 6, 2)))), r"loadings\.rate must broadcast to \(6, 2\)"),
        ("gamma_poisson", Priors(None, Dirichlet(np.ones(6))), r"components\.concentration must broadcast to \(2, 5\)"),
        ("gamma_poisson", Priors(None, Gamma(1.0, np.ones((3, 5)))), r"components\.rate must broadcast to \(2, 5\)"),
        (
            "dirichlet_poisson",
            Priors(Dirichlet(np.ones((7, 2)))),
            r"loadings\.concentration must broadcast to \(6, 2\)",
        ),
        (
            "dirichlet_gamma",
            Priors(ScaledDirichlet(1.0, np.ones(6), 1.0)),
            r"loadings\.shape must broadcast to \(6, 1\): found shape \(6,\)",
        ),
        (
            "dirichlet_gamma",
            Priors(ScaledDirichlet(1.0, 1.0, np.ones((6, 2)))),
            r"loadings\.rate must broadcast to \(6, 1\)",
        ),
    ],
)
@pytest.mark.parametrize("method", METHODS)
def test_hyperparameters_must_broadcast_to_the_factors(model, priors, rule, method):
    refused(ValueError, rf"^priors\.{rule}", model=model, method=method, options=OPTIONS[method](priors=priors))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("priors", "side"),
    [(Priors(FLAT, FLAT), "components"), (Priors(Gamma(1.0, 1.0), FLAT), "components"),
     (Priors(FLAT, Gamma(1.0, 1.0)), "loadings")],
)  # fmt: skip
def test_flat_priors_are_refused_where_the_posterior_is_improper(method, priors, side):
    """Flat sides are for the mode in the natural basis, or for loadings with components on the simplex."""
    rule = rf"^the posterior of model='poisson' needs proper priors: found the flat .* in priors\.{side}, with which"
    if method != "map":
        refused(ValueError, rule, model="poisson", method=method, options=OPTIONS[method](priors=priors))
        return
    refused(ValueError, rule, model="poisson", method="map", options=MAP(priors=priors, basis="log"))
    fit = bayesnmf.fit(COUNTS, "poisson", 2, "map", seed=0, options=MAP(priors=priors, max_iter=3, tol=0))
    assert np.all(np.isfinite(fit.trace))


def test_flat_loadings_in_the_log_basis():
    """With components on the simplex the exposure is 1, and every mode in the log basis is finite and positive."""
    priors = Priors(FLAT, Dirichlet(1.0))
    fit = bayesnmf.fit(COUNTS, "poisson", 2, "map", seed=0, options=MAP(priors=priors, basis="log", max_iter=9, tol=0))
    assert np.all(np.diff(fit.trace) > -1e-9)
    assert fit.loadings.min() > 0


@pytest.mark.parametrize("method", ["gibbs", "nuts"])
@pytest.mark.parametrize("model", MODELS)
def test_a_parameter_has_no_posterior_to_sample(method, model):
    options = OPTIONS[method](priors=Priors(components="parameter"))
    rule = f"^method='{method}' needs a prior of the components: found priors.components='parameter', which has no post"
    refused(ValueError, rule, model=model, method=method, options=options)


@pytest.mark.parametrize(
    ("model", "priors", "side"),
    [
        ("gamma_poisson", Priors(Gamma(0.5, 1.0), None), "loadings"),
        ("gamma_poisson", Priors(Gamma([1.0, 0.9], 1.0), None), "loadings"),
        ("gamma_poisson", Priors(None, Dirichlet(0.9)), "components"),
        ("dirichlet_poisson", Priors(Dirichlet(0.1), "parameter"), "loadings"),
        ("dirichlet_gamma", Priors(ScaledDirichlet(1.0, 0.5, 1.0), None), "loadings"),
    ],
)
def test_the_natural_basis_needs_a_mode(model, priors, side):
    rule = rf"^basis='natural' needs priors\.{side} at 1 or above, else .* unbounded at 0: .*; use basis='log'"
    refused(ValueError, rule, model=model, method="map", options=MAP(priors=priors, basis="natural"))


# --- starts -----------------------------------------------------------------------------------------

GOOD = np.full((6, 2), 0.5), np.full((2, 5), 0.2)


def changed(array, value):
    array = array.copy()
    array[0, 0] = value
    return array


@pytest.mark.parametrize(
    ("loadings", "components", "error", "rule"),
    [
        (np.ones((5, 2)), GOOD[1], ValueError, r"start\.loadings must have shape \(6, 2\): found \(5, 2\)"),
        (np.ones((6, 3)), GOOD[1], ValueError, r"start\.loadings must have shape \(6, 2\): found \(6, 3\)"),
        (GOOD[0], GOOD[1].T, ValueError, r"start\.components must have shape \(2, 5\): found \(5, 2\)"),
        (GOOD[0], 0.5, ValueError, r"start\.components must have shape \(2, 5\): found \(\)"),
        (changed(GOOD[0], -1), GOOD[1], ValueError, r"start\.loadings must be nonnegative and finite"),
        (changed(GOOD[0], np.nan), GOOD[1], ValueError, r"start\.loadings must be nonnegative and finite"),
        (GOOD[0], changed(GOOD[1], np.inf), ValueError, r"start\.components must be nonnegative and finite"),
        ("loadings", GOOD[1], TypeError, r"start\.loadings must be an array of numbers or a distribution"),
        (GOOD[0], Gamma(1.0, 1.0), ValueError, r"start\.components must be a Dirichlet, the family of its posterior"),
        (Dirichlet(GOOD[0]), GOOD[1], ValueError, r"start\.loadings must be a Gamma, the family of its posterior"),
        (Gamma(np.ones((4, 2)), 1.0), GOOD[1], ValueError, r"start\.loadings must broadcast to \(6, 2\)"),
        (GOOD[0], Dirichlet(np.ones(4)), ValueError, r"start\.components must broadcast to \(2, 5\)"),
        (Gamma(-np.ones((6, 2)), 1.0), GOOD[1], ValueError, r"start\.loadings\.shape must be between .* found -1"),
        (Gamma(np.ones((6, 2)), 0.0), GOOD[1], ValueError, r"start\.loadings\.rate must be positive"),
        (GOOD[0], Dirichlet(changed(GOOD[1], 0)), ValueError, r"start\.components\.concentration must be positive"),
    ],
)
@pytest.mark.parametrize("method", [method for method in METHODS if method not in ("bld", "smc")])
def test_starts_that_make_no_sense_are_refused(loadings, components, error, rule, method):
    options = OPTIONS[method](start=Start(loadings, components))
    refused(error, f"^{rule}", method=method, options=options)


@pytest.mark.parametrize(
    ("loadings", "rule"),
    [
        (ScaledProportions(np.ones((5, 2)), np.ones((6, 1))), r"start\.loadings\.proportions must have shape \(6, 2\)"),
        (ScaledProportions(GOOD[0], np.ones(6)), r"start\.loadings\.scale must have shape \(6, 1\): found \(6,\)"),
        (ScaledProportions(GOOD[0], -np.ones((6, 1))), r"start\.loadings\.scale must be nonnegative"),
        (Gamma(GOOD[0], 1.0), r"start\.loadings must be a ScaledDirichlet, the family of its posterior"),
    ],
)
def test_starts_with_a_scale_need_its_shape(loadings, rule):
    options = VI(start=Start(loadings, GOOD[1]))
    refused(ValueError, f"^{rule}", model="dirichlet_gamma", options=options)


def test_starts_from_fits_of_another_size_are_refused():
    other = bayesnmf.fit(COUNTS, "gamma_poisson", 3, "vi", seed=0, options=VI(max_iter=3, tol=0))
    refused(ValueError, r"^start\.loadings must .*\(6, 2\)", options=VI(start=other))
    refused(ValueError, r"^start\.loadings must .*\(5, 3\)", rank=3, counts=COUNTS[:5], options=VI(start=other))


def test_a_map_fit_has_no_posterior():
    fit = bayesnmf.fit(COUNTS, "poisson", 2, "map", seed=0)
    with pytest.raises(AttributeError, match="a MAP fit has no posterior; fit with method='vi'"):
        _ = fit.posterior
