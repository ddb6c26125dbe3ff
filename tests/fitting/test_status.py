"""What a status says of a fit: its reason, iterations, trace and warning agree, whatever stages the fit had."""

import re
import warnings
from dataclasses import replace

import numpy as np
import pytest
from plain import plain_map, plain_vi

import bayesnmf
from bayesnmf import BLD, MAP, VI, ConvergenceWarning, Dirichlet, Gamma, Priors
from bayesnmf.fitting.job import told_of_parameters
from bayesnmf.inference.ascent.coordinate_ascent import Ascent
from bayesnmf.inference.ascent.course import Schedule
from bayesnmf.inference.starts.exchanging import finish_climb
from bayesnmf.inference.status import NO_CHANCE, NOT_FINITE, Status
from bayesnmf.results.cautions import (
    caution_of_rounding,
    cautions_of,
    cautions_of_model,
    cure_of,
    idle_components,
    warn_of,
)

ALGORITHMS = {"map": ("em", "scd", "ccd"), "vi": ("coordinate", "settled", "gradient", "minibatch"), "bld": ("",)}
LIMIT = re.compile(r"all (\d+) (iterations|epochs) done")


def random_case(rng):
    """Return counts, a model, a rank and options drawn at random."""
    method = rng.choice(["map", "map", "vi", "vi", "bld"])
    algorithm = rng.choice(ALGORITHMS[method])
    start = rng.choice(["random"] if algorithm in ("gradient", "minibatch") else ["descent", "svd", "random"])
    settings = {"max_iter": int(rng.choice([0, 1, 2, 25, 49, 50, 51, 60])), "threads": 1}
    settings |= {"tol": float(rng.choice([1e-3, 1e-7, 1e-12]))} | ({"restarts": 2} if rng.random() < 0.2 else {})
    sizes = int(rng.integers(3, 12)), int(rng.integers(3, 9))
    counts = rng.poisson(rng.gamma(0.5, 4.0, sizes)) + np.eye(*sizes, dtype=int)
    rank = int(rng.integers(1, 5))
    if method == "bld":
        return counts, "dirichlet_gamma", rank, "bld", BLD(start="random", **settings)
    settings |= {"start": str(start), "algorithm": str(algorithm)}
    if algorithm not in ("gradient", "minibatch") and method == "vi":
        settings |= {"extrapolate": bool(rng.random() < 0.5)}
    return counts, "gamma_poisson", rank, str(method), (MAP if method == "map" else VI)(**settings)


def check_status(counts, model, rank, method, options, seed):
    """Assert that what a fit says of its end agrees with itself and with its options."""
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        fit = bayesnmf.fit(counts, model, rank, method, seed=seed, options=options)
    told = [str(each.message) for each in raised if issubclass(each.category, ConvergenceWarning)]
    converged, reason, iterations = fit.status
    assert iterations == len(fit.trace) - 1 <= options.max_iter
    assert fit.residuals is None or len(fit.residuals) == len(fit.trace)
    assert len(told) == (not converged)
    assert all(reason in message for message in told)
    limit = LIMIT.fullmatch(reason)
    assert (iterations == options.max_iter) or limit is None
    if limit is not None:
        assert (converged, int(limit[1])) == (False, options.max_iter)
    elif "settled to" in reason:
        assert f"settled to {options.tol:g} relative" in reason


@pytest.mark.parametrize("seed", range(12))
def test_reason_iterations_trace_and_warning_agree(seed):
    rng = np.random.default_rng(seed)
    check_status(*random_case(rng), seed)


@pytest.mark.parametrize("make", [plain_map, plain_vi])
@pytest.mark.parametrize("max_iter", [25, 60])
def test_the_limit_that_a_fit_of_several_stages_meets_is_that_of_the_user(make, max_iter):
    counts = np.random.default_rng(3).poisson(3, (12, 9))
    options = make(max_iter=max_iter, tol=1e-15, threads=1, priors=Priors(Gamma(1.0, 0.1), Dirichlet(1.0)))
    with pytest.warns(ConvergenceWarning, match=rf"\(all {max_iter} iterations done\); raise max_iter"):
        fit = bayesnmf.fit(counts, rank=4, method="map" if make is plain_map else "vi", seed=0, options=options)
    assert tuple(fit.status) == (False, f"all {max_iter} iterations done", max_iter)


def test_a_stage_with_a_higher_tolerance_does_not_converge_a_fit():
    rough = Ascent(None, None, [-9.0, -5.0, -4.99], [], Status(True, "objective settled to 0.01 relative", 2))
    found = finish_climb(None, rough, Schedule(max_iter=2, tol=1e-7), None)
    assert found.status == Status(False, "all 2 iterations done", 2)
    settled = rough._replace(trace=[-9.0, -5.0, -5.0])
    assert finish_climb(None, settled, Schedule(max_iter=2, tol=1e-7), None).status.converged


def test_an_objective_of_minus_infinity_is_told():
    stuck = Ascent(None, None, [-np.inf, -np.inf], [], Status(False, "all 1 iterations done", 1))
    assert finish_climb(None, stuck, Schedule(max_iter=9), None).status == Status(False, NO_CHANCE, 1)


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_parameters_that_are_not_finite_are_told_first(value):
    status, good = Status(True, "objective settled", 3), np.ones((2, 2), np.float32)
    assert told_of_parameters(status, good, good, None) == status
    assert told_of_parameters(status, good, np.full((1, 1), value), None) == Status(False, NOT_FINITE, 3)
    assert told_of_parameters(status, good, good, np.full(3, value)) == Status(False, NOT_FINITE, 3)


def copies(sizes, **more):
    """Return a fit of which components 0 and 2 have one profile, with expected counts of these sizes."""
    profiles = np.eye(3, 8) + 0.01
    profiles[2] = profiles[0]
    fit = bayesnmf.fit(np.eye(5, 8), rank=3, seed=0, options=plain_vi(max_iter=1, tol=0))
    loadings = np.broadcast_to(np.asarray(sizes, float), (5, 3))
    return replace(fit, components=profiles, loadings=loadings, status=Status(True, "settled", 1), **more)


@pytest.mark.parametrize(
    ("sizes", "idle"), [((5, 4, 3), [2]), ((3, 4, 5), [0]), ((3, 4, 3), [2]), ((0.1, 9, 0.1), [0, 2])]
)
def test_components_that_are_copies_are_told_wherever_a_fit_is_read(sizes, idle):
    fit = copies(sizes)
    assert idle_components(fit).tolist() == idle
    with pytest.warns(
        UserWarning, match=rf"{len(idle)} of 3 components carr.*: fit rank {3 - len(idle)}, or a sparser"
    ):
        warn_of(fit, 2)
    assert any("nothing of" in caution for caution in cautions_of_model(fit))
    told, *noise = cautions_of_model(fit)
    assert all("as much as Poisson counts" in each for each in noise)  # means so wrong look like noise
    assert f">\ncaution: {told}" in repr(fit).replace("\n    ", " ")
    assert fit.summary(rows=[0]).attrs["cautions"] == [told, *noise]
    table = bayesnmf.markers(fit, 2)
    assert set(table["component"]) == set(range(3)) - set(idle)  # what carries nothing has no markers
    assert told in table.attrs["cautions"]


def test_components_that_differ_are_not_told():
    fit = replace(copies((3, 4, 3)), components=np.eye(3, 8) + 0.3)  # cosine 0.75
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of(fit, 2)
    assert not len(idle_components(fit))


@pytest.mark.parametrize(("size", "idle"), [(0.1, [2]), (3, [])])
def test_a_single_component_like_its_prior_is_told_if_it_is_small(size, idle):
    """A small one of another profile, and a large one of the prior's profile, carry something."""
    fit = copies((5, 4, size))
    assert not len(idle_components(replace(fit, components=np.eye(3, 8) + 0.01)))
    flat = replace(fit, components=np.vstack([np.eye(2, 8) + 0.01, np.full((1, 8), 0.125)]))
    assert idle_components(flat).tolist() == idle
    tilted = replace(flat.priors, components=replace(flat.priors.components, concentration=np.arange(1.0, 9) ** 2))
    assert not len(idle_components(replace(flat, priors=tilted)))


@pytest.mark.parametrize(("dtype", "total", "told"), [("float32", 1e9, 1), ("float32", 1e3, 0), ("float64", 1e9, 0)])
def test_an_objective_that_rounding_has_reached_is_told_with_the_cure(dtype, total, told):
    """Two samples in proportion: their objective is that of the prior alone, however large they are."""
    counts = np.floor(np.outer([1, 2], [1.0, 2.0, 3.0]) * total / 18)
    options = plain_vi(max_iter=30, tol=0, dtype=dtype)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        fit = bayesnmf.fit(counts, rank=1, options=options, seed=0)
    assert sum("use dtype='float64'" in str(each.message) for each in found) == told
    assert sum("float32 rounds" in caution for caution in cautions_of(fit)) == told


LARGE = np.random.default_rng(0).poisson(
    np.random.default_rng(1).gamma(0.5, 1, (24, 3)) @ np.random.default_rng(2).dirichlet(np.ones(8), 3) * 4e6
)
ONE_HUGE = np.where(np.arange(24 * 8).reshape(24, 8) == 27, 2**40, np.random.default_rng(3).poisson(5, (24, 8)))
FALLING = {
    "batch": (LARGE, {"batch": list("abc") * 8}),
    "nb2 by feature": (LARGE, {"noise": bayesnmf.NegativeBinomial("quadratic", dispersion="feature")}),
    "quasi": (LARGE, {"noise": "quasi"}),
    "nb1": (LARGE, {"noise": "nb1"}),
    "exposures": (LARGE, {"row_exposure": np.geomspace(0.01, 100, 24)}),
    "missing": (LARGE, {"observed": np.random.default_rng(4).random((24, 8)) < 0.8}),
    "one huge count": (ONE_HUGE, {"method": "map", "noise": "nb2"}),
}


@pytest.mark.parametrize("case", FALLING)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_objective_that_falls_by_rounding_is_told_with_a_cure_that_works(case):
    """By 0.2 % with batches, and nothing was said: what noise and batches add is not in the counts' own rounding."""
    counts, more = FALLING[case]
    kind = MAP if more.get("method") == "map" else VI
    fit = bayesnmf.fit(counts, rank=3, seed=0, options=kind(dtype="float32", max_iter=150, threads=1), **more)
    fallen = np.max(np.maximum.accumulate(fit.trace) - fit.trace)
    told = "float32 rounds its objective" in " ".join(repr(fit).split())
    assert told or fallen <= max(1.0, 1e-5 * abs(fit.trace[-1]))
    assert told == any("use dtype='float64'" in each for each in cautions_of(fit))
    cured = bayesnmf.fit(counts, rank=3, seed=0, options=kind(max_iter=150, threads=1), **more)
    rounded = 4 * np.finfo(float).eps * (counts * np.log1p(counts)).sum()  # of the terms x log λ of the objective
    assert np.max(np.maximum.accumulate(cured.trace) - cured.trace) <= 1e-9 * abs(cured.trace[-1]) + rounded
    assert "float32" not in repr(cured)


def test_a_fall_is_told_however_few_the_counts_are():
    fit = replace(copies((5, 4, 3)), options=VI(dtype="float32"), trace=np.array([-9000.0, -5000.0, -5002.0, -5001.0]))
    assert "float32 rounds its objective by up to 2 nats" in caution_of_rounding(fit)
    assert "float64" in cure_of(replace(fit, status=Status(False, "all 3 iterations done", 3)))
    assert caution_of_rounding(replace(fit, options=VI())) == ""
    assert caution_of_rounding(replace(fit, options=VI(dtype="float32", algorithm="minibatch"))) == ""
    assert caution_of_rounding(replace(fit, trace=fit.trace[:2])) == ""
