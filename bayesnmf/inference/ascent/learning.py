"""Learn priors by variational EM: replace each by the best prior of its family for the current q."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bayesnmf.inference.ascent.coordinate_ascent import Learn
from bayesnmf.inference.sides import Problem, State


def prior_learner(sides: Sequence[str]) -> Learn:
    """Return a function that replaces the priors of the given sides ("loadings", "components") by the best ones."""

    def learn(problem: Problem, state: State) -> tuple[Problem, State]:
        for side in sides:
            q: Any = getattr(state, side).conditional
            prior = getattr(problem, f"{side}_prior").learned(q)
            changed: dict[str, Any] = {f"{side}_prior": prior}
            problem = replace(problem, **changed)
            state = state._replace(**{side: getattr(problem, f"{side}_summary").of(prior, q)})
        return problem, state

    return learn
