"""Priors and starts at the limits of what is accepted: fits without NaN and without NumPy's warnings."""

import numpy as np
import pytest
from plain import PLAIN
from registry import RANK, plain_counts
from suites import crossed

import bayesnmf
from bayesnmf import Dirichlet, Gamma, Priors, ScaledDirichlet, Start
from bayesnmf.fitting.checks import RANGE, RANGE_OF_STARTS
from bayesnmf.priors.gamma import MOST

COUNTS = plain_counts()
STEPS = [("map", {"basis": "log"}), ("vi", {}), ("vi", {"algorithm": "settled"}), ("vi", {"algorithm": "gradient"})]
LEARN = [("vi", {"learn": ("loadings", "components")}), ("vi", {"learn": ("components",), "extrapolate": True})]
by_dtype = pytest.mark.parametrize("dtype", RANGE)


def extreme_priors(dtype):
    """Every parameter of every family at its least and at its greatest, alone and together."""
    least, shape, rate = RANGE[dtype]
    for a, b in ((least, least), (least, rate), (shape, least), (shape, rate), (1.0, least), (1.0, rate), (shape, 1.0)):
        yield "gamma_poisson", Priors(Gamma(a, b), Dirichlet(1.0))
        yield "gamma_poisson", Priors(Gamma(1.0, 1.0), Gamma(a, b))
        yield "dirichlet_gamma", Priors(ScaledDirichlet(1.0, a, b), Dirichlet(1.0))
    for alpha in (least, shape):
        yield "dirichlet_poisson", Priors(Dirichlet(alpha), Dirichlet(1.0))
        yield "dirichlet_poisson", Priors(Dirichlet(1.0), Dirichlet(alpha))
        yield "dirichlet_poisson", Priors(Dirichlet(alpha), Dirichlet(alpha))


def is_finite(fit):
    return all(np.isfinite(each).all() for each in (fit.trace, fit.loadings, fit.components))


@pytest.mark.filterwarnings("ignore:float32 rounds its objective")  # which is huge under such priors
@pytest.mark.parametrize(("step", "dtype"), crossed(STEPS + LEARN, RANGE), ids=str)
def test_fits_are_finite_at_the_limits(step, dtype):
    method, settings = step
    for model, priors in extreme_priors(dtype):
        options = PLAIN[method](priors=priors, max_iter=3, tol=0, dtype=dtype, threads=1, **settings)
        fit = bayesnmf.fit(COUNTS, model, RANK, method, seed=0, options=options)
        assert is_finite(fit), (model, priors)


@by_dtype
@pytest.mark.parametrize("method", PLAIN)
def test_fits_are_finite_from_starts_at_the_limits(method, dtype):
    least, shape, rate = RANGE_OF_STARTS[dtype]
    n, m = COUNTS.shape
    for a, b in ((least, rate), (shape, least), (shape, rate)):
        start = Start(Gamma(np.full((n, RANK), a), np.full((n, RANK), b)), np.full((RANK, m), 1 / m))
        options = PLAIN[method](start=start, max_iter=5, tol=0, dtype=dtype, threads=1)
        assert is_finite(bayesnmf.fit(COUNTS, "gamma_poisson", RANK, method, seed=0, options=options)), (a, b)


@pytest.mark.parametrize(
    ("priors", "dtype", "message"),
    [
        (Priors(Gamma(1.0, 1e300)), "float64", r"priors\.loadings\.rate must be between 1e-100 and 1e\+100"),
        (Priors(Gamma(5e-324, 1.0)), "float64", r"priors\.loadings\.shape must be between .* found 4\.94066e-324"),
        (Priors(Gamma(1e15, 1.0)), "float64", r"priors\.loadings\.shape must be between 1e-100 and 1e\+08"),
        (Priors(None, Dirichlet(np.array([1.0] * 6 + [1e9]))), "float64", r"components\.concentration .* found 1e\+09"),
        (Priors(Gamma(1.0, 1e100)), "float32", r"between 1e-20 and 1e\+20 in float32.* use dtype='float64'"),
        (Priors(None, Dirichlet(1e-40)), "float32", r"priors\.components\.concentration must be .* in float32"),
    ],
)
def test_what_would_overflow_or_hide_progress_is_refused(priors, dtype, message):
    for method in PLAIN:
        with pytest.raises(ValueError, match=message):
            bayesnmf.fit(COUNTS, rank=RANK, method=method, options=PLAIN[method](priors=priors, dtype=dtype))


def test_starts_that_would_overflow_are_refused():
    n, m = COUNTS.shape
    start = Start(Gamma(np.full((n, RANK), 1e300), 1e-300), np.full((RANK, m), 1 / m))
    for method in PLAIN:
        with pytest.raises(ValueError, match=r"start\.loadings\.shape must be between"):
            bayesnmf.fit(COUNTS, rank=RANK, method=method, options=PLAIN[method](start=start))


@pytest.mark.parametrize("shape", ["1", "many", [[1.0], [1.0, 2.0]], True, None])
def test_parameters_that_are_no_numbers_are_refused(shape):
    with pytest.raises(TypeError, match=r"priors\.loadings\.shape must be a number or an array of numbers"):
        Priors(Gamma(shape, 1.0))


def test_a_concentration_that_runs_off_stops_where_rounding_would_hide_the_bound():
    """All counts alike: the best concentration is infinite, and the bound rises to the end."""
    options = PLAIN["vi"](
        priors=Priors(Gamma(6e4, 6e3), Dirichlet(6e4)), learn=("loadings", "components"), extrapolate=True,
        max_iter=100, tol=0, threads=1,
    )  # fmt: skip
    fit = bayesnmf.fit(np.full((8, 6), 7.0), rank=RANK, method="vi", seed=0, options=options)
    assert fit.priors.loadings.shape == MOST
    assert fit.priors.components.concentration == MOST
    # Terms MOST · log MOST of 24 loadings and 18 components, rounded to 1e-16: 1e-8 nats at the very most.
    assert np.all(np.diff(fit.trace) > -1e-8)
