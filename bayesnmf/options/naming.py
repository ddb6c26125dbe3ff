"""Say the right name of an argument where another library's name was typed."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps

from bayesnmf.options.methods import METHODS

MEANT = {
    "X": "counts", "data": "counts", "adata": "counts",
    "n_components": "rank", "n_topics": "rank", "num_topics": "rank", "k": "rank", "K": "rank",
    "random_state": "seed", "verbose": "progress", "n_jobs": "threads", "alpha": "priors", "eta": "priors",
    "doc_topic_prior": "priors", "topic_word_prior": "priors", "init": "start", "n_init": "restarts",
    "max_iters": "max_iter", "n_iter": "max_iter",
}  # fmt: skip


def explains_names[**P, R](function: Callable[P, R]) -> Callable[P, R]:
    """Return the function, which refuses an unknown keyword with the name of the argument or option that is meant."""
    known = inspect.signature(function).parameters

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in known:
                advice = _advice(name, list(known), str(kwargs.get("method", "vi")))
                raise TypeError(f"{function.__name__} has no argument {name!r}: {advice}")
        return function(*args, **kwargs)

    return call


def _advice(name: str, known: list[str], method: str) -> str:
    meant = MEANT.get(name, name)
    if meant in known:
        return f"give {meant}"
    able = [one for one, each in METHODS.items() if meant in each.options.__dataclass_fields__]
    classes = [METHODS[one].options.__name__ for one in sorted(able, key=lambda one: one != method)]
    if classes:
        return f"it is an option, so give options={classes[0]}({meant}=...); {_listed(classes)}"
    return f"its arguments are {', '.join(known)}"


def _listed(classes: list[str]) -> str:
    if len(classes) == 1:
        return "no other method has it"
    return f"{', '.join(classes[:-1])} and {classes[-1]} have it"
