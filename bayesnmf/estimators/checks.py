"""Checks of what estimators are given."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import issparse

from bayesnmf.data.conversion import is_several


def check_one_matrix(X: Any) -> None:
    """Refuse several matrices by name, whose rows scikit-learn would not take parts of."""
    if is_several(X):
        raise TypeError(
            "X must be one matrix, as scikit-learn takes rows of it: found several by name; use bayesnmf.fit and its "
            "transform, or put them side by side"
        )


def check_not_negative(values: Any) -> Any:
    """Return an array or a sparse matrix; refuse negative numbers in the words that scikit-learn looks for."""
    data: Any = values.data if issparse(values) else values  # type: ignore[attr-defined]
    if data.size and data.min() < 0:
        raise ValueError(
            f"Negative values in data passed to X: found {data.min():g}, as in scaled or corrected data; pass the raw "
            "counts"
        )
    return values


def check_streamed(estimator: Any) -> None:
    """Refuse settings that `partial_fit` does not have."""
    if estimator.seeds is not None:
        raise ValueError("partial_fit takes no seeds: use fit, or leave seeds out")
    if estimator.formula is not None:
        raise ValueError("partial_fit takes no covariates: use fit, or leave formula out")


def check_no_generator(state: Any) -> Any:
    """Return the state of random numbers; refuse a Generator, which scikit-learn does not know."""
    if isinstance(state, np.random.Generator):
        raise ValueError(
            "random_state must be a whole number, a RandomState or None, as in scikit-learn: found a Generator; "
            "give a number, such as int(generator.integers(2**31))"
        )
    return state


def check_options_given(given: dict[str, Any], options: Any, known: Any, method: str) -> None:
    """Refuse settings beside options that have them, and settings that the options of the method do not know."""
    if options is not None and given:
        raise ValueError(f"give either options or {', '.join(given)}: found both; put all into options")
    for name in given:
        if name not in known.__dataclass_fields__:
            raise ValueError(f"{name} does not apply to method={method!r}: leave it out")
