"""Devices of JAX for tests: its CPU backend, and a GPU where there is one."""

from functools import partial

import numpy as np
import pytest
from plain import PLAIN
from registry import MODELS_AND_PRIORS, RANK, nasty_counts
from suites import mostly_long

from bayesnmf.data.conversion import as_counts
from bayesnmf.fitting.closed_form import schedule_of, steps_of
from bayesnmf.fitting.problems import point_or_mean_field, start_state
from bayesnmf.inference.ascent.coordinate_ascent import ascend
from bayesnmf.inference.device.placing import run_on_devices

OPTIONS = PLAIN
NASTY = nasty_counts()
# One of each pair of families, and of each shape of prior.
FAMILIES = [MODELS_AND_PRIORS[i] for i in (0, 3, 4, 5, 11)]
DIAGONAL = [f"{entry.id}-{method}" for entry, method in zip(FAMILIES, 3 * ["map", "vi"], strict=False)]

# Sums in another order: rounding of the last few bits, amplified by a dozen steps.
SAME = 1e-10


def by_entry_and_method(entries, default):
    """Parametrise by entry and method; the default suite runs the cases named, as in "poisson-map"."""
    named = [pytest.param(e, method, id=f"{e.id}-{method}") for e in entries for method in ("map", "vi")]
    places = [[case.id for case in named].index(name) for name in default]
    return pytest.mark.parametrize(("entry", "method"), mostly_long(named, places))


def ascents(counts, method, priors, device, *, rank=RANK, start="random", dtype="float64", **stated):
    """One ascent on the host, in float64, and one on the device, from the same start."""
    stated = {"max_iter": 12, "tol": 0, **stated}
    found = []
    for where, kind in (("host", "float64"), ("device", dtype)):
        options = OPTIONS[method](priors=priors, dtype=kind, start=start, **stated)
        problem = point_or_mean_field(as_counts(counts, dtype=kind), options)
        state = start_state(problem, options.start, rank, np.random.default_rng(0))
        schedule = schedule_of(options)
        steps = steps_of(problem, options, schedule)
        ascent = partial(ascend, schedule=schedule, steps=steps)
        found.append(ascent(problem, state) if where == "host" else run_on_devices([device], ascent, problem, state))
    return found


def compare_ascents(host, other, tolerance, scale=0.0):
    """Traces, factors and mean fields agree relative to the largest entry; so does why they ended."""

    def same(a, b, size=None):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * max(size or 0, np.abs(b).max(), 1e-300))

    assert other.status == host.status
    assert len(other.trace) == len(host.trace)
    same(other.trace, host.trace, scale)
    for a, b in zip(other.state, host.state, strict=True):
        same(a.matrix, b.matrix)
        same(a.geometric, b.geometric)
        if b.conditional is not None:
            for name, value in vars(b.conditional).items():
                same(getattr(a.conditional, name), np.broadcast_to(value, getattr(a.conditional, name).shape))
    assert len(other.residuals) == len(host.residuals)
    if host.residuals:
        same(other.residuals, host.residuals, NASTY.max())
