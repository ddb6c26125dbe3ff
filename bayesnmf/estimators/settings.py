"""What the settings of an estimator are to `bayesnmf`: options of its method or of a stream, and a seed."""

from __future__ import annotations

from typing import Any

from sklearn.utils import check_random_state

from bayesnmf.checks import check_choice
from bayesnmf.estimators.checks import check_no_generator, check_options_given
from bayesnmf.options import METHODS, VI

LARGEST_SEED = 2**31 - 1
SINGLE = ("priors", "tol", "max_iter", "restarts")  # settings that may stand in place of options
OF_STREAMS = ("priors", "start", "batch_size", "forgetting", "delay", "sweeps", "learn", "dtype", "threads", "device")


def options_of(estimator: Any, dtype: str) -> Any:
    """Return the options of the method: those given as a whole, or of single settings and the type of the counts."""
    known = METHODS[check_choice(estimator.method, "method", METHODS)].options
    given = {name: getattr(estimator, name) for name in SINGLE if getattr(estimator, name) is not None}
    check_options_given(given, estimator.options, known, estimator.method)
    if estimator.options is not None:
        return estimator.options
    return known(**given, **({"dtype": dtype} if "dtype" in known.__dataclass_fields__ else {}))


def options_of_stream(estimator: Any, dtype: str) -> VI:
    """Return the options of a stream, which has no stopping rule, one start and an algorithm of its own."""
    given = options_of(estimator, dtype)
    return VI(algorithm="minibatch", **{name: getattr(given, name) for name in OF_STREAMS})


def seed_of(estimator: Any) -> int:
    """Return the seed of a fit."""
    return int(check_random_state(check_no_generator(estimator.random_state)).randint(LARGEST_SEED))
