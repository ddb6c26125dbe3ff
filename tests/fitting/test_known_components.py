"""Known components: they stay as they are, the others and the loadings are fitted beside them."""

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from plain import even_priors
from registry import nasty_counts, plain_counts
from scipy.optimize import minimize
from suites import crossed, mostly_long

import bayesnmf
from bayesnmf import BLD, MAP, NUTS, SVI, VI, Dirichlet, Gamma, Gibbs, Priors, ScaledDirichlet, Start, plots

N, M, K = 40, 12, 4
TRUTH = bayesnmf.simulate("gamma_poisson", (N, M), K, priors=Priors(Gamma(1.0, 0.02), Dirichlet(0.3)), seed=1)
KNOWN = TRUTH.components
FRAME = pd.DataFrame(TRUTH.counts.matrix.toarray(), columns=[f"g{j}" for j in range(M)])
COUNTS = TRUTH.counts.matrix.toarray()
FEW = {"chains": 2, "draws": 40, "warmup": 40}
CLOSED = {"map": MAP, "vi": VI}
NASTY = {"plain": plain_counts(), "nasty": nasty_counts()}
OPTIONS = {
    "map": MAP(start="svd"),
    "vi": VI(start="svd"),
    "gibbs": Gibbs(start="random", **FEW),
    "nuts": NUTS(start="random", **FEW),
    "svi": SVI(start="random", max_iter=50),
}
MODELS = ["poisson", "gamma_poisson", "dirichlet_poisson", "dirichlet_gamma"]
quiet = pytest.mark.filterwarnings("ignore::bayesnmf.inference.status.ConvergenceWarning")


def fit(known, model="gamma_poisson", method="vi", rank=K, counts=TRUTH.counts, options=None):
    options = options or OPTIONS[method]
    return bayesnmf.fit(counts, model, rank, method, seed=0, options=options, fixed_components=known)


# --- what is known stays, and the rest is fitted ----------------------------------------------------


# Of NUTS and SVI, whose every model and number of rows is a program of its own, each is met once.
STAY = [(model, method, rows) for model in ("gamma_poisson", "dirichlet_gamma") for method in ("map", "vi", "gibbs")
        for rows in (2, K)]  # fmt: skip
STAY += [("gamma_poisson", "nuts", 2), ("dirichlet_gamma", "svi", 2)]


@quiet
@pytest.mark.parametrize(("model", "method", "rows"), mostly_long(STAY, [0, 3, 4, 7, 8, 11, 12]))
def test_known_components_stay_in_every_method(model, method, rows):
    fitted = fit(KNOWN[:rows], model, method)
    np.testing.assert_allclose(fitted.components[:rows], KNOWN[:rows], rtol=1e-12)
    np.testing.assert_allclose(fitted.components.sum(axis=1), 1)
    if method != "map":
        drawn = fitted.sample_posterior(30, chains=1, seed=0).components
        np.testing.assert_allclose(drawn[..., :rows, :], np.broadcast_to(KNOWN[:rows], (1, 30, rows, M)), rtol=1e-12)
        assert rows == K or drawn[..., rows:, :].std(axis=1).max() > 1e-4


@quiet
@pytest.mark.parametrize(("model", "method", "rows"), [("gamma_poisson", "vi", 2), ("dirichlet_gamma", "gibbs", K)])
def test_known_components_are_saved_and_loaded(model, method, rows, tmp_path):
    few = Gibbs(start="random", chains=2, draws=5, warmup=5)
    fitted = fit(KNOWN[:rows], model, method, options=few if method == "gibbs" else None)
    fitted.save(tmp_path / "fit.nc")
    again = bayesnmf.load(tmp_path / "fit.nc")
    np.testing.assert_array_equal(again.components, fitted.components)
    np.testing.assert_array_equal(again.priors.components.known, fitted.priors.components.known)
    np.testing.assert_array_equal(again.transform(COUNTS[:4]), fitted.transform(COUNTS[:4]))


@pytest.mark.parametrize(("model", "method", "counts"), crossed(MODELS, CLOSED, NASTY))
def test_the_objective_never_falls(model, method, counts):
    known = (np.eye(2, 7) + 0.1) / 1.7
    options = CLOSED[method](max_iter=60, tol=0, start="random", extrapolate=False)
    fitted = fit(known, model, method, 3, NASTY[counts], options)
    assert np.all(np.diff(fitted.trace) >= -1e-9 * np.abs(fitted.trace[1:]))
    np.testing.assert_allclose(fitted.components[:2], known)


def test_loadings_given_all_components_maximise_the_log_joint():
    """The problem is concave, with one optimum: SciPy finds the same for two rows."""
    fitted = fit(KNOWN, "gamma_poisson", "map", options=MAP(start="svd", tol=1e-12, priors=Priors(Gamma(1.5, 0.03))))
    counts = TRUTH.counts.matrix.toarray()
    for row in (0, 7):

        def loss(log_loadings, row=row):
            loadings = np.exp(log_loadings)
            means = loadings @ KNOWN
            return means.sum() - counts[row] @ np.log(means) - (0.5 * log_loadings - 0.03 * loadings).sum()

        best = minimize(loss, np.zeros(K), options={"gtol": 1e-9})
        np.testing.assert_allclose(fitted.loadings[row], np.exp(best.x), rtol=1e-3)


@pytest.mark.parametrize(("model", "method"), crossed(MODELS, CLOSED))
def test_transform_is_a_fit_with_all_components_known(model, method):
    """Of new rows, without a prior that the counts set: `transform` of a fit with the same components."""
    priors = {
        "poisson": Priors(Gamma(1.0, 0.0)),
        "gamma_poisson": Priors(Gamma(1.2, 0.05)),
        "dirichlet_poisson": Priors(Dirichlet(1.3)),
        "dirichlet_gamma": Priors(ScaledDirichlet(1.3, 2.0, 0.01)),
    }[model]
    options = CLOSED[method](priors=priors, start="svd", tol=1e-12)
    old = fit(KNOWN, model, method, options=options, counts=TRUTH.counts.matrix[:25])
    new = fit(KNOWN, model, method, options=options, counts=TRUTH.counts.matrix[25:])
    np.testing.assert_allclose(old.transform(TRUTH.counts.matrix[25:]), new.loadings, rtol=2e-3, atol=1e-3)


def test_known_components_are_found_among_the_others():
    """Two known of four: the two free ones become the two that are left out, and the loadings are the true ones."""
    fitted = fit(KNOWN[:2], options=VI(threads=1))
    found = bayesnmf.match(fitted, KNOWN)
    assert sorted(found.table["reference"]) == [0, 1, 2, 3]
    np.testing.assert_array_equal(found.table["reference"][:2], [0, 1])


def test_the_start_leaves_to_the_others_what_known_components_do_not_explain():
    """The free ones are found for 19 of 20 seeds; where the start does not heed what is known, for 10 of 20."""
    for seed in (1, 3, 4, 5, 9):
        drawn = bayesnmf.simulate("gamma_poisson", (40, 12), 4, priors=TRUTH.priors, seed=seed)
        fitted = fit(drawn.components[:2], counts=drawn.counts, options=VI(threads=1))
        assert bayesnmf.match(fitted, drawn.components).table["cosine"].min() > 0.9


@quiet
def test_intervals_of_loadings_hold_the_truth():
    """All components known: 90 % intervals of Gibbs hold 87 to 93 % of 1,200 true loadings, of VI fewer."""
    truth = Priors(Gamma(1.0, 0.02), Dirichlet(0.3))
    drawn = bayesnmf.simulate("gamma_poisson", (400, M), 3, priors=truth, seed=0)
    gibbs = Gibbs(priors=truth, start="random", chains=1, draws=400, warmup=100)
    held = {}
    for method, options in (("gibbs", gibbs), ("vi", VI(priors=truth, start="svd"))):
        fitted = fit(drawn.components, "gamma_poisson", method, 3, drawn.counts, options)
        draws = fitted.sample_posterior(400, chains=1, seed=0).loadings[0]
        low, high = np.quantile(draws, [0.05, 0.95], axis=0)
        held[method] = np.mean((low <= drawn.loadings) & (drawn.loadings <= high))
    assert 0.87 < held["gibbs"] < 0.93
    assert held["vi"] < 0.9


# --- names ------------------------------------------------------------------------------------------


def test_features_are_matched_by_name():
    named = pd.DataFrame(KNOWN, columns=FRAME.columns, index=list("abcd"))
    shuffled = named[list(np.random.default_rng(0).permutation(FRAME.columns))]
    plain, matched = fit(KNOWN[:3], counts=FRAME), fit(shuffled.iloc[:3], counts=FRAME)
    np.testing.assert_array_equal(plain.components, matched.components)
    found = bayesnmf.match(matched, shuffled)
    assert found.table["reference"].tolist()[:3] == ["a", "b", "c"]
    np.testing.assert_allclose(found.table["cosine"][:3], 1)


def test_a_match_says_what_is_left_on_both_sides():
    fitted = fit(KNOWN)
    found = bayesnmf.match(fitted, KNOWN[[2, 0]], least=0.99)
    assert found.table["component"].tolist() == [0, 2]
    assert found.table["reference"].tolist() == [1, 0]
    assert found.unmatched.tolist() == [1, 3]
    assert len(found.leftover) == 0
    assert "components without a match: 1, 3" in str(found)
    more = bayesnmf.match(fitted, pd.DataFrame(np.vstack([KNOWN, np.eye(1, M)])))
    assert more.leftover.tolist() == [4]
    assert bayesnmf.match(fitted, fitted).table["cosine"].min() == pytest.approx(1)


def test_frames_of_counts_without_names_are_matched_by_their_numbers():
    order = np.random.default_rng(0).permutation(M)
    shuffled = pd.DataFrame(KNOWN)[list(order)]
    np.testing.assert_array_equal(fit(shuffled).components, KNOWN / KNOWN.sum(axis=1, keepdims=True))
    named = pd.DataFrame(KNOWN, columns=FRAME.columns)  # names that the counts do not have: by position
    np.testing.assert_array_equal(fit(named).components, fit(KNOWN).components)


@quiet
@pytest.mark.parametrize("method", ["map", "vi"])
def test_a_start_does_not_change_what_is_known(method):
    other = fit(KNOWN[2:], "gamma_poisson", method)
    for start in (other, Start(np.ones((N, K)), KNOWN[::-1])):
        options = CLOSED[method](start=start, max_iter=0, tol=0)
        found = fit(KNOWN[:2], "gamma_poisson", method, options=options)
        np.testing.assert_allclose(found.components[:2], KNOWN[:2], rtol=1e-12)


def test_known_components_replace_those_of_a_fit():
    old = fit(KNOWN[:2])
    new = fit(KNOWN[2:], options=old.options)
    np.testing.assert_allclose(new.components[:2], KNOWN[2:], rtol=1e-12)


def test_priors_with_known_components_fit_their_size_only():
    priors = fit(KNOWN[:2]).priors
    for counts, rank, message in ((COUNTS[:, :9], 3, "of 12 features, for 9"), (COUNTS, 1, "2 known .*, for rank 1")):
        with pytest.raises(ValueError, match=rf"^priors\.components has .*{message}"):
            fit(None, rank=rank, counts=counts, options=VI(priors=priors, start="svd"))


def test_a_fit_with_known_components_is_drawn_and_summarised():
    plots.model_graph(fit(KNOWN[:2]))
    plt.close("all")
    few = Gibbs(start="random", chains=2, draws=60, warmup=60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bayesnmf.ConvergenceWarning)
        fitted = fit(KNOWN[:2], method="gibbs", options=few)
        table = fitted.summary()
    assert not any(name.startswith(("components[0", "components[1")) for name in table.index)
    assert (table["median"] > 0).all()
    assert np.isfinite(fitted.diagnostics["max_r_hat"])


# --- what is refused --------------------------------------------------------------------------------


BAD = {
    "too many": (KNOWN, {"rank": 3}, "rank must be at least the number of fixed_components, 4: found 3"),
    "sums": (2 * KNOWN, {}, "fixed_components must have rows that sum to 1: row 0 sums to 2"),
    "negative": (-KNOWN, {}, "fixed_components must be nonnegative"),
    "not finite": (KNOWN * np.nan, {}, "fixed_components must be nonnegative and finite"),
    "shape": (KNOWN[:, :5], {}, rf"fixed_components must have shape \(r, {M}\)"),
    "words": (["SBS1"], {}, "fixed_components must be an array, a frame, a fit or a file"),
    "turned": (KNOWN.T, {}, r"must have shape \(r, 12\), one row for each component: found \(12, 4\); transpose it"),
    "features in rows": (
        pd.DataFrame(KNOWN.T, FRAME.columns),
        {"counts": FRAME},
        "found them in its rows; give it transposed",
    ),
    "empty row": (np.vstack([KNOWN[:1], np.zeros((1, M))]), {}, "positive entry in every row: row 1 has none"),
    "impossible": (
        np.full((1, M), 1 / (M - 1)) * (np.arange(M) > 0),
        {"rank": 1},
        r"positive entry wherever there are counts.*row \d+ has \d+ of feature 0",
    ),
    "parameter": (
        KNOWN[:2],
        {"options": VI(priors=Priors(components="parameter"))},
        "'parameter' needs all components in fixed_components: found 2 of 4",
    ),
    "collapsed": (
        KNOWN,
        {"method": "gibbs", "options": Gibbs(collapsed=True)},
        "collapsed Gibbs needs .* found fixed_comp",
    ),
    "bld": (
        KNOWN,
        {"method": "bld", "model": "dirichlet_gamma", "options": BLD()},
        "method='bld' needs .* found fixed_comp",
    ),
    "scd": (
        KNOWN,
        {"method": "map", "options": MAP(algorithm="scd")},
        "algorithm='scd' needs .* found fixed_components",
    ),
    "minibatch": (KNOWN, {"options": VI(algorithm="minibatch")}, "algorithm='minibatch' needs .* found fixed_"),
    "other priors": (
        KNOWN[:2],
        {"options": VI(priors=Priors(components=Dirichlet(np.ones((K, M)))))},
        r"must broadcast to \(2, 12\), for the 2 components besides the known ones: found shape \(4, 12\)",
    ),
    "a fit": (
        lambda: bayesnmf.fit(plain_counts(), rank=2, seed=0, options=OPTIONS["vi"]),
        {},
        rf"fixed_components must have shape \(r, {M}\)",
    ),
    "too large": (
        KNOWN * 1e120,
        {"options": VI(priors=Priors(components=Gamma(1.0, 1.0)))},
        "must be between 1e-100 and",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_is_refused(name):
    known, settings, message = BAD[name]
    with pytest.raises((TypeError, ValueError), match=message):
        fit(known() if callable(known) else known, **settings)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([f"g{j}" for j in range(1, M + 1)], "1 feature missing: 'g0'; 1 feature not in the (counts|fit): 'g12'"),
        (["g0"] * 2 + [f"g{j}" for j in range(2, M)], "1 feature missing: 'g1'; 1 label there more than once: 'g0'"),
    ],
)
def test_features_must_be_those_of_the_counts(columns, message):
    with pytest.raises(ValueError, match=f"^fixed_components must have the 12 features.*{message}"):
        fit(pd.DataFrame(KNOWN, columns=columns), counts=FRAME)
    with pytest.raises(ValueError, match=f"^reference must have the 12 features.*{message}"):
        bayesnmf.match(fit(None, counts=FRAME), pd.DataFrame(KNOWN, columns=columns))


def test_known_components_are_constant_in_running_moments_too():
    """Sums over equal draws differ by rounding errors, which must not be taken for chains that disagree."""
    counts = np.random.default_rng(0).poisson(np.random.default_rng(1).gamma(1, 40, (8, len(KNOWN))) @ KNOWN)
    options = bayesnmf.Gibbs(
        priors=even_priors(counts, rank=len(KNOWN)), start="random", chains=4, warmup=50, draws=200, keep="moments",
        algorithm="marginal",
    )  # fmt: skip
    found = bayesnmf.fit(counts, rank=len(KNOWN), method="gibbs", seed=0, fixed_components=KNOWN, options=options)
    assert np.all(found.moments["components_sd"] == 0)
    assert np.all(np.isnan(found.moments["components_r_hat"]))
    assert np.all(found.moments["components_ess"] == 800)
    assert np.isfinite(found.diagnostics["max_r_hat"])
    assert found.status.converged


def test_known_components_may_have_zeros():
    known = np.where(KNOWN[:2] < 0.05, 0, KNOWN[:2])
    known /= known.sum(axis=1, keepdims=True)
    assert (known == 0).any()
    np.testing.assert_allclose(fit(known).components[:2], known)


@quiet
@pytest.mark.parametrize("algorithm", ["allocations", "marginal"])
def test_chains_of_rates_of_features_run_with_all_components_known(algorithm):
    """Rates that no free component says anything of are drawn from their prior."""
    options = Gibbs(start="random", algorithm=algorithm, **FEW)
    found = fit(KNOWN, "hierarchical_poisson", "gibbs", rank=len(KNOWN), options=options)
    np.testing.assert_allclose(found.components, KNOWN, rtol=1e-12)
    np.testing.assert_allclose(found.loadings.sum(), COUNTS.sum(), rtol=0.02)
