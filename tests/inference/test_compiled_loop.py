"""The loop that is compiled as a whole against that of the host: formulas, iterates, and where it stops."""

import jax
import numpy as np
import pytest
from devices import (
    NASTY,
    SAME,
    ascents,
    by_method,
    compare_ascents,
    some_entries,
)
from registry import MODELS_AND_PRIORS, RANK, SIZE, having, over, plain_counts, with_parameter

from bayesnmf import Dirichlet, Gamma, Priors
from bayesnmf.inference.device import compiled_loop
from bayesnmf.inference.status import NOT_A_NUMBER
from bayesnmf.inference.summaries import MeanField, Mode

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("quick_compilation")]

# --- the sides --------------------------------------------------------------------------------------


CARRY, GIVEN = (jax.jit(each, static_argnums=0) for each in (compiled_loop.carry, compiled_loop.given))


def summaries(carried):
    if carried == "mean field":
        return MeanField(component_axis=1), MeanField(component_axis=0)
    return (Mode(carried),) * 2


def kinds(carried):
    return [compiled_loop.Kind(carried, component_axis=axis) for axis in (1, 0)]


@pytest.mark.parametrize("carried", ["natural", "log", "mean field"])
@over(having("device"))
def test_sides_are_those_of_the_priors(entry, carried):
    """Every formula of the device against the priors' own: what a side carries, given totals and an exposure."""
    priors = entry.priors()
    if carried == "natural" and not entry.natural:
        pytest.skip("has no mode in the natural basis")
    if carried == "mean field" and isinstance(priors.loadings, Gamma) and not priors.components.proper:
        pytest.skip("improper")
    rng = np.random.default_rng(0)
    both = zip(
        (priors.loadings, priors.components),
        ((SIZE[0], RANK), (RANK, SIZE[1])),
        ((1, RANK), (RANK, 1)),
        summaries(carried),
        kinds(carried),
        strict=True,
    )
    for prior, size, column, summary, kind in both:
        total, exposure = rng.gamma(1.0, 5.0, size), rng.gamma(2.0, 3.0, column)
        total[0] = 0
        if prior.support == "scaled simplex":
            exposure = np.ones((1, 1))  # of the scale, beside components that sum to 1
        before = summary.carry(prior, total + 1.0, exposure, None)
        wanted = summary.carry(prior, total, exposure, before)
        with jax.enable_x64(True):
            parts = compiled_loop.parts_of(prior)
            previous = GIVEN(kind, parts, compiled_loop.from_host(before, np.float64))
            new = CARRY(kind, parts, total, exposure, previous)
        compare_sides(new, wanted)


def compare_sides(found, wanted):
    np.testing.assert_allclose(found.matrix, wanted.matrix, rtol=1e-12)
    np.testing.assert_allclose(found.geometric, wanted.geometric, rtol=1e-11)
    np.testing.assert_allclose(found.penalty, wanted.penalty, rtol=1e-11)
    assert (found.log_shift is None) == (wanted.log_shift is None)
    if wanted.log_shift is not None:
        np.testing.assert_allclose(found.log_shift, wanted.log_shift, rtol=1e-11)
    stated = () if wanted.conditional is None else vars(wanted.conditional).values()
    for got, value in zip(jax.tree.leaves(found.conditional), stated, strict=True):
        np.testing.assert_allclose(got, value, rtol=1e-12)


# --- whole ascents ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("schedule", "order"), [("joint", "loadings"), ("alternating", "components")])
@by_method
@some_entries
def test_iterates_are_those_of_the_host(entry, method, schedule, order, device):
    stated = {"schedule": schedule, "order": order, "compiled": True}
    compare_ascents(*ascents(NASTY, method, entry.priors(), device, **stated), SAME)


@by_method
def test_several_sweeps_are_those_of_the_host(method, device):
    priors = with_parameter(MODELS_AND_PRIORS[3].priors())
    stated = {"schedule": "alternating", "sweeps": 3, "compiled": True}
    compare_ascents(*ascents(NASTY, method, priors, device, **stated), SAME)


@by_method
def test_extrapolation_is_that_of_the_host(method, device):
    priors = MODELS_AND_PRIORS[3].priors()
    found = ascents(NASTY, method, priors, device, extrapolate=True, max_iter=60, compiled=True)
    compare_ascents(*found, 1e-7)  # sixty bold steps amplify rounding


@pytest.mark.parametrize(
    ("method", "stated"),
    [
        ("vi", {"tol": 1e-6, "extrapolate": True}),
        ("map", {"tol": 1e-5}),
        ("map", {"kkt_tol": 0.5}),
        ("vi", {"max_iter": 0}),
        ("map", {"max_iter": 2 * compiled_loop.MOST + 20}),
    ],
    ids=["settled over a window", "settled", "stationary", "no step", "several chunks"],
)
def test_it_stops_where_the_host_does(method, stated, device):
    priors, stated = Priors(Gamma(1.3, 0.2), Dirichlet(1.2)), {"max_iter": 3000, **stated, "compiled": True}
    host, other = ascents(plain_counts(), method, priors, device, **stated)
    assert other.status == host.status
    np.testing.assert_allclose(other.trace, host.trace, rtol=1e-9)


def test_an_objective_that_is_not_a_number_ends_the_loop(device):
    priors = Priors(Dirichlet(1e-310), Dirichlet(1e-310))
    with np.errstate(all="ignore"):
        host, other = ascents([[1, 2], [3, 4]], "vi", priors, device, rank=2, compiled=True)
    assert other.status == host.status
    assert other.status.reason == NOT_A_NUMBER
