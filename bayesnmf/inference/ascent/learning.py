"""Learn priors by variational EM: replace each by the best prior of its family for the current q."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from bayesnmf.inference.ascent.coordinate_ascent import Learn
from bayesnmf.inference.blocked.passes import Pass, Where, pass_over_rows
from bayesnmf.inference.blocked.sides import Part
from bayesnmf.inference.sides import Problem, State

Array = NDArray[Any]


def prior_learner(sides: Sequence[str]) -> Learn:
    """Return a function that replaces the priors of the given sides ("loadings", "components") by the best ones."""

    def learn(problem: Problem, state: State) -> tuple[Problem, State]:
        for side in sides:
            if not getattr(state, side).in_memory:
                problem, state = _learn_on_disk(problem, state)
                continue
            q: Any = getattr(state, side).conditional
            prior = getattr(problem, f"{side}_prior").learned(q)
            changed: dict[str, Any] = {f"{side}_prior": prior}
            problem = replace(problem, **changed)
            state = state._replace(**{side: getattr(problem, f"{side}_summary").of(prior, q)})
        return problem, state

    return learn


def _learn_on_disk(problem: Problem, state: State) -> tuple[Problem, State]:
    """Learn the prior of loadings in files: a pass for the means of their statistics, and one for their divergence."""

    def add_up(part: Problem, here: State, _: Where) -> tuple[None, None, list[Array]]:
        q: Any = here.loadings.conditional
        return None, None, [each.sum(axis=0, keepdims=True) for each in part.loadings_prior.statistics(q)]

    def measure(part: Problem, here: State, _: Where) -> tuple[None, None, Part]:
        q: Any = here.loadings.conditional
        return None, None, Part.of(part.counts, part.loadings_summary.of(part.loadings_prior, q))

    found, _ = pass_over_rows(problem, state, add_up, Pass(writes=False, reads=False, plus=_add_each))
    prior = problem.loadings_prior.learned_from([each / problem.counts.shape[0] for each in found.more])
    problem = replace(problem, loadings_prior=prior)
    found, _ = pass_over_rows(problem, state, measure, Pass(writes=False, reads=False))
    loadings: Any = state.loadings
    return problem, State(loadings.with_part(found.more), state.components)


def _add_each(one: list[Array], two: list[Array]) -> list[Array]:
    return [mine + its for mine, its in zip(one, two, strict=True)]
