"""Learn priors by variational EM: replace each by the best prior of its family for the current q."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bayesnmf.inference.ascent.coordinate_ascent import Learn
from bayesnmf.inference.blocked.passes import pass_over_rows
from bayesnmf.inference.blocked.sides import RowSums
from bayesnmf.inference.blocked.tasks import Pass
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.side import Mode, Side
from bayesnmf.inference.sides import Where
from bayesnmf.types import Array


def prior_learner(sides: Sequence[str]) -> Learn:
    """Return a function that replaces the priors of the given sides ("loadings", "components") by the best ones."""

    def learn(problem: Problem, state: State) -> tuple[Problem, State]:
        for side in sides:
            if side == "loadings":
                problem, state = _learn_of_loadings(problem, state)
                continue
            q: Any = state.components.conditional
            given: Any = problem.components_prior
            prior = given.learned(q)
            problem = replace(problem, components_prior=prior)
            state = state._replace(components=problem.components_summary.of(prior, q))
        return problem, state

    return learn


def _learn_of_loadings(problem: Problem, state: State) -> tuple[Problem, State]:
    """Learn the prior of the loadings: a pass for the means of their statistics, and one for their divergence.

    Rows with parameters of their own keep their own statistics.
    """
    given: Any = problem.loadings_prior
    shared = not given.has_effects and all(len(np.atleast_2d(each)) == 1 for each in given.parameters.values())

    def add_up(part: Problem, here: State, _: Where) -> tuple[None, None, list[Array]]:
        prior: Any = part.loadings_prior
        found = _statistics_of(prior, here.loadings)
        if not shared:
            return None, None, found
        return None, None, [np.array(len(found[0])), *(each.sum(axis=0, keepdims=True) for each in found)]

    def measure(part: Problem, here: State, _: Where) -> tuple[None, None, RowSums]:
        return None, None, RowSums.of(part.counts, _with_penalty(part, here.loadings))

    kind = Pass(writes=False, reads=False, plus=_add_each if shared else _join_each)
    found, _ = pass_over_rows(problem, state, add_up, kind)
    statistics = [each / found.more[0] for each in found.more[1:]] if shared else found.more
    held: Any = {"shapes": False} if given.has_effects and isinstance(problem.loadings_summary, Mode) else {}
    problem = replace(problem, loadings_prior=given.learned_from(statistics, **held))
    found, _ = pass_over_rows(problem, state, measure, Pass(writes=False, reads=False))
    return problem, state._replace(loadings=state.loadings.with_sums(found.more))


def _statistics_of(prior: Any, side: Side) -> list[Array]:
    """Return the statistics that a prior is learned from, of a mean field or of a mode."""
    found: list[Array] = (
        prior.statistics_of_value(side.value) if side.conditional is None else prior.statistics(side.conditional)
    )
    return found


def _with_penalty(part: Problem, side: Side) -> Side:
    """Return loadings with the term of the objective that belongs to the prior of a problem."""
    summary: Any = part.loadings_summary
    prior, q = part.loadings_prior, side.conditional
    found: Side = summary.at(prior, side.value) if q is None else summary.of(prior, q)
    return found


def _add_each(one: list[Array], two: list[Array]) -> list[Array]:
    return [mine + its for mine, its in zip(one, two, strict=True)]


def _join_each(one: list[Array], two: list[Array]) -> list[Array]:
    return [np.concatenate(both) for both in zip(one, two, strict=True)]
