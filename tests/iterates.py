"""Every iterate of a closed-form fit, for statements about whole sequences; and points to start them from."""

from typing import NamedTuple

import numpy as np
from plain import PLAIN
from registry import RANK

from bayesnmf import Priors, Start
from bayesnmf.data.conversion import as_counts
from bayesnmf.fitting.closed_form import schedule_of
from bayesnmf.fitting.problems import point_or_mean_field, start_state
from bayesnmf.inference.ascent.coordinate_ascent import ascend
from bayesnmf.inference.problem import State
from bayesnmf.inference.side import Side


class Point(NamedTuple):
    """One iterate: its objective in nats, and both sides as they are carried."""

    objective: float
    loadings: Side
    components: Side


def iterates(counts, method, priors, start, steps, *, rank=RANK, **settings):
    """Return the start and all `steps` iterates of a fit by `method` with these options, in order.

    A start that is an iterate of the same problem is carried on as it is, to the bit.
    """
    options = PLAIN[method](priors=Priors(*priors), max_iter=steps, tol=0, **settings)
    problem = point_or_mean_field(as_counts(counts), options)
    seen = []

    def keep(iteration, objective, state):
        seen.append(Point(objective, *state))

    if isinstance(start, Point):
        state = State(start.loadings, start.components)
    else:
        state = start_state(problem, Start(*start), rank, np.random.default_rng(0))
    ascend(problem, state, schedule_of(options), progress=keep)
    return seen


def random_point(counts, rank=RANK, seed=7):
    """Positive loadings or variational shapes (n, K), and components (K, m) on the simplex."""
    rng = np.random.default_rng(seed)
    n, m = counts.shape
    return rng.gamma(3.0, size=(n, rank)) + 0.1, rng.dirichlet(np.ones(m), rank)


def unscaled_point(counts, rank=RANK, seed=8):
    """Positive loadings (n, K) and components (K, m) whose sums are anything."""
    rng = np.random.default_rng(seed)
    n, m = counts.shape
    return rng.gamma(2.0, size=(n, rank)), rng.gamma(2.0, size=(rank, m))


def separated_counts():
    """Two components that share little, so that EM stands still, to rounding, within 1,000 steps."""
    rng = np.random.default_rng(0)
    components = np.array([[5, 4, 3, 1, 1, 0.5, 0.2], [0.2, 0.5, 1, 1, 3, 4, 5]]) / 14.7
    return rng.poisson(rng.dirichlet([0.3, 0.3], 9) @ components * 60).astype(np.float64)
