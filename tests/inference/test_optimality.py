"""A point estimate is called converged only at an optimum: the rule of `bayesnmf.inference.ascent.kkt`."""

import warnings
from functools import cache

import numpy as np
import pytest
from plain import plain_map

import bayesnmf
from bayesnmf import MAP, Dirichlet, Gamma, HierarchicalGamma, Priors, Start
from bayesnmf.inference.ascent.kkt import COUNTS, LEAST_GRADIENT, SHARE, checked_status
from bayesnmf.inference.status import INTERRUPTED, ConvergenceWarning, Status
from bayesnmf.results.cautions import cautions_of, cure_of_mode

FLAT = Gamma(1.0, 0.0)
SETTLED = Status(True, "objective settled to 1e-07 relative", 7)


def verdict(least=0.0, residual=0.0, total=1e4, kkt_tol=0.0, status=SETTLED):
    return checked_status(status, {"least_gradient": least, "kkt_residual": residual}, total, kkt_tol)


def test_the_rule_is_as_stated():
    """Both bounds are met exactly at their limits, and not beyond them."""
    assert verdict(LEAST_GRADIENT, SHARE * 1e4) == SETTLED
    assert verdict(0.9, COUNTS, total=0.0) == SETTLED
    assert verdict(residual=5.0, kkt_tol=5.0) == SETTLED
    grows = verdict(least=-0.12)
    assert not grows.converged
    assert grows.reason == f"{SETTLED.reason}, but one more EM update would multiply some entry by 1.12"
    assert grows.iterations == SETTLED.iterations
    off = verdict(residual=0.2)
    assert not off.converged
    assert off.reason == f"{SETTLED.reason}, but the KKT residual is 0.2 counts, above 0.1"
    assert not verdict(residual=2.0, total=1e5).converged
    for nothing in (verdict(least=np.nan), verdict(residual=np.nan)):
        assert not nothing.converged


@pytest.mark.parametrize("reason", [INTERRUPTED, "all 3 iterations done"])
def test_a_fit_that_stopped_for_another_reason_keeps_it(reason):
    status = Status(False, reason, 3)
    assert verdict(least=-3.0, residual=1e9, status=status) is status


def counts_of_three(rows=60, features=30, seed=0):
    rng = np.random.default_rng(seed)
    return rng.poisson(20 * rng.gamma(0.5, 1, (rows, 3)) @ rng.dirichlet(np.full(features, 0.3), 3))


@cache
def stuck_start():
    """An optimum with the better half of one component set to 0, which EM cannot bring back."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        options = MAP(priors=Priors(FLAT, FLAT), max_iter=200, extrapolate=True, start="svd")
        free = bayesnmf.fit(counts_of_three(), "poisson", 3, "map", seed=1, options=options)
    emptied = free.components.copy()
    emptied[0, emptied[0] > emptied[0].mean()] = 0
    return Start(free.loadings, emptied)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_em_stuck_at_zeros_is_not_converged_and_the_cure_works(dtype):
    counts = counts_of_three()
    settings = {"priors": Priors(FLAT, FLAT), "start": stuck_start(), "dtype": dtype}
    message = (
        r"map did not converge \(objective settled to 1e-06 relative, but one more EM update would multiply some entry "
        r"by .*\); use algorithm='scd', extrapolate=True in bayesnmf\.MAP"
    )
    with pytest.warns(ConvergenceWarning, match=message):
        stuck = bayesnmf.fit(counts, "poisson", 3, "map", seed=0, options=plain_map(**settings, tol=1e-6))
    assert not stuck.status.converged
    assert "not converged: objective settled" in repr(stuck)
    (caution,) = cautions_of(stuck)
    assert caution.endswith("use algorithm='scd', extrapolate=True in bayesnmf.MAP(...)")
    cured = bayesnmf.fit(
        counts, "poisson", 3, "map", seed=0, options=MAP(**settings, algorithm="scd", extrapolate=True, tol=1e-6)
    )
    assert cured.status == Status(True, "objective settled to 1e-06 relative", cured.status.iterations)
    assert cured.trace[-1] > stuck.trace[-1] + 20


SPARSE = Priors(Gamma(0.3, 0.1), Dirichlet(0.1))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (plain_map(priors=Priors(FLAT, FLAT)), "use algorithm='scd', extrapolate=True in"),
        (
            plain_map(priors=Priors(Gamma(2.0, 1.0), Gamma(1.0, 1.0)), extrapolate=True),
            "use algorithm='scd', extrapolate",
        ),
        (plain_map(priors=SPARSE), "use extrapolate=True or a lower tol in"),
        (plain_map(priors=SPARSE, extrapolate=True), "use a lower tol in"),
        (plain_map(priors=SPARSE, extrapolate=True, tol=0, kkt_tol=1.0), "use a lower kkt_tol in"),
        (plain_map(priors=Priors(FLAT, FLAT), algorithm="ccd"), "use extrapolate=True or a lower tol in"),
        (plain_map(priors=Priors(FLAT, FLAT), basis="log"), "use extrapolate=True or a lower tol in"),
        (plain_map(priors=Priors(FLAT, FLAT), device="gpu"), "use extrapolate=True or a lower tol in"),
    ],
)
def test_the_cure_is_legal_for_these_priors(options, words):
    assert cure_of_mode(options).startswith(words)


@pytest.mark.parametrize(("scale", "dtype"), [(1e-6, "float64"), (1.0, "float32"), (1.0, "float64"), (1e9, "float32")])
@pytest.mark.parametrize("priors", [Priors(FLAT, FLAT), Priors(FLAT, Dirichlet(1.0))], ids=["gamma", "dirichlet"])
def test_an_optimum_is_converged_whatever_the_counts(scale, dtype, priors):
    """Empty rows and columns, a single nonzero in a row, and counts of any size: nothing there should grow."""
    counts = counts_of_three().astype(float) * scale
    counts[3], counts[:, 4], counts[5] = 0, 0, 0
    counts[5, 6] = scale
    tol = 1e-6 * min(scale, 1.0)  # below one nat, tolerances are absolute
    options = MAP(priors=priors, algorithm="scd", extrapolate=True, dtype=dtype, tol=tol, start="svd")
    fit = bayesnmf.fit(counts, "poisson", 3, "map", seed=0, options=options)
    assert fit.status.converged
    options = MAP(priors=priors, dtype=dtype, tol=tol, start="svd")
    one = bayesnmf.fit(counts, "poisson", 1, "map", seed=0, options=options)
    assert one.status.converged


def test_no_counts_are_converged():
    for priors in (Priors(FLAT, FLAT), Priors(), Priors(Gamma(1.3, 0.2), Dirichlet(1.2))):
        options = MAP(priors=priors, start="svd")
        assert bayesnmf.fit(np.zeros((4, 3)), "gamma_poisson", 2, "map", seed=0, options=options).status.converged


def test_the_best_of_several_starts_is_judged():
    counts = counts_of_three(seed=3)
    options = plain_map(priors=Priors(FLAT, FLAT), restarts=2, tol=1e-3)
    with pytest.warns(ConvergenceWarning, match="but one more EM update"):
        fit = bayesnmf.fit(counts, "poisson", 3, "map", seed=0, options=options)
    assert not fit.status.converged


def test_emptied_components_are_not_judged_by_their_entries():
    """Automatic relevance empties components; what their entries are then does not matter to any count."""
    priors = Priors(Gamma(0.5, 0.005), Dirichlet(0.3))
    counts = bayesnmf.simulate("gamma_poisson", (80, 40), 3, priors=priors, seed=0).counts
    relevance = Priors(HierarchicalGamma(1.0, Gamma(1e-3, 1e-3), "component"), Dirichlet(1.0))
    options = MAP(priors=relevance, start="svd", tol=1e-9)
    fit = bayesnmf.fit(counts, rank=8, method="map", seed=0, options=options)
    sums = fit.loadings.sum(axis=0)
    assert np.sum(sums > 1e-3 * sums.max()) == 3
    assert fit.status.converged


def test_a_component_wrongly_without_loadings_is_found():
    """Its entries do not matter, but its loadings do: an EM update would bring them back."""
    counts = counts_of_three()
    priors = Priors(FLAT, FLAT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        free = bayesnmf.fit(counts, "poisson", 3, "map", seed=1, options=MAP(priors=priors, max_iter=200, start="svd"))
        loadings = free.loadings.copy()
        loadings[:, 0] = 0
        options = MAP(priors=priors, start=Start(loadings, free.components), max_iter=20, tol=1e-5, algorithm="em")
        stuck = bayesnmf.fit(counts, "poisson", 3, "map", seed=1, options=options)
    assert stuck.loadings[:, 0].max() == 0
    assert stuck.diagnostics["least_gradient"] < -0.05
    assert not stuck.status.converged
