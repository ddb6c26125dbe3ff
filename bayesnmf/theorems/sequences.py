"""Sequences of iterates: two computations from one start, and how far rounding may separate them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from bayesnmf.data.counts import Counts
from bayesnmf.fitting.closed_form import schedule_of
from bayesnmf.fitting.problems import point_or_mean_field, start_state
from bayesnmf.inference.ascent.coordinate_ascent import evaluate_state, next_iterate, plain_steps
from bayesnmf.options import MAP, VI, Start
from bayesnmf.theorems.study import Study, rounding_of_step
from bayesnmf.theorems.table import Worst
from bayesnmf.types import Array

Pair = tuple[Array, Array]
NUDGE = 1e-9  # relative change of a start, to measure how small differences grow


class Point(NamedTuple):
    """One iterate: loadings or the concentrations of their q (n, K), components (K, m), objective in nats."""

    loadings: Array
    components: Array
    value: float


def package_route(counts: Counts, options: MAP | VI, start: Any, rank: int) -> Iterator[Point]:
    """Yield the start and every iterate of a fit with these options, without end."""
    problem = point_or_mean_field(counts, options)
    schedule = schedule_of(options)
    state = start_state(problem, Start(*start), rank, np.random.default_rng(0))
    here = evaluate_state(problem, state, None)
    while True:
        q: Any = here.state.loadings.conditional
        loadings = here.state.loadings.matrix if q is None else getattr(q, "shape", getattr(q, "concentration", None))
        yield Point(np.asarray(loadings), here.state.components.matrix, here.value)
        here = next_iterate(here, plain_steps(schedule), None, None)


def explicit_route(step: Callable[..., Pair], matrix: Any, start: Pair) -> Iterator[Point]:
    """Yield the start and every iterate of an explicit update, without end."""
    here = start
    while True:
        yield Point(*here, np.nan)
        here = step(matrix, *here)


class Comparison(NamedTuple):
    """Comparison of two computations from one start.

    Attributes
    ----------
    loadings, components : Worst
        Entries that differ most, over all iterates.
    objectives : ndarray (iterations + 1, 2)
        Objectives of both computations; NaN for an explicit one.
    tolerance : float
        Tolerance for entries, relative to the sum of their row.
    growth : float
        Factor by which the sequence magnified a small change of its start.
    """

    loadings: Worst
    components: Worst
    objectives: Array
    tolerance: float
    growth: float


def compare_routes(
    study: Study, left: Iterator[Point], right: Callable[[Pair], Iterator[Point]], start: Pair
) -> Comparison:
    """Run `left` and `right(start)`, which should have equal iterates, in parallel for `study.iterations` updates.

    The right one is also run from a start in which every entry is changed by 1e-9, to measure how much the sequence
    magnifies rounding errors. The tolerance is this growth times the rounding error of one update times their number.
    """
    rng = study.rng("nudge")
    first, second = (side * (1 + NUDGE * rng.choice([-1.0, 1.0], side.shape)) for side in start)
    routes = zip(left, right(start), right((first, second)), strict=False)
    sides, drift = (Worst(), Worst()), (Worst(), Worst())
    objectives = np.empty((study.iterations + 1, 2))
    for at, (one, other, beside) in enumerate(islice(routes, study.iterations + 1)):
        objectives[at] = one.value, other.value
        for side, expected in enumerate((other.loadings, other.components)):
            sides[side].compare((one.loadings, one.components)[side], expected)
            drift[side].compare((beside.loadings, beside.components)[side], expected)
    growth = max(1.0, *(each.relative / NUDGE for each in drift))
    step = rounding_of_step(study.counts, study.rank)
    return Comparison(*sides, objectives, max(study.iterations, 1) * growth * step, growth)
