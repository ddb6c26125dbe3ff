"""Counts whose modes are known, and a comparison of two results of `bayesnmf.modes` to the bit."""

import numpy as np
import pandas as pd

# Three kinds of rows that share no feature, of 14, 10 and 6 rows. Two components leave one kind by itself and join the
# other two: three modes, which are told apart by the kind that is alone. The more rows it has, the better the mode.
KIND, OF_FEATURE = np.repeat([0, 1, 2], [14, 10, 6]), np.repeat([0, 1, 2], 4)
BLOCKS = np.where(KIND[:, None] == OF_FEATURE, 20, 0)


def lone_kind(components):
    """Return the kind of features that has a component of its own."""
    return lone_component(components)[0]


def lone_component(components):
    """Return the kind of features that has a component of its own, and the number of this component."""
    shares = np.stack([components[:, kind == OF_FEATURE].sum(axis=1) for kind in range(3)], axis=1)
    ((component, kind),) = np.argwhere(shares > 0.95)
    return int(kind), int(component)


def same(one, other):
    """Assert that two results are equal to the bit, apart from seconds."""
    for name in ("table", "components"):
        pd.testing.assert_frame_equal(getattr(one, name), getattr(other, name), check_exact=True)
    pd.testing.assert_frame_equal(
        one.runs.drop(columns="seconds"), other.runs.drop(columns="seconds"), check_exact=True
    )
    np.testing.assert_array_equal(one.run_components, other.run_components)
    for a, b in zip(one.fits, other.fits, strict=True):
        np.testing.assert_array_equal(a.loadings, b.loadings)
    assert (one.stack is None) == (other.stack is None)
    if one.stack is not None:
        np.testing.assert_array_equal(one.stack.weights, other.stack.weights)
        assert one.stack[1:] == other.stack[1:]
