"""`plots.presence`: what is drawn of an assignment, and in which order."""

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import bayesnmf
from bayesnmf import plots

KNOWN = pd.DataFrame(np.eye(4), list("abcd"), list("wxyz"))
COUNTS = pd.DataFrame([[0, 60, 9, 0], [0, 0, 0, 0], [0, 40, 0, 0], [0, 0, 80, 0]], list("pqrs"), list("wxyz"))


@pytest.fixture(scope="module")
def found():
    return bayesnmf.assign(COUNTS, KNOWN, chains=1, draws=20, warmup=30)


@pytest.fixture
def drawn(found):
    axes = plots.presence(found)
    yield axes
    plt.close(axes[0].figure)


def test_present_components_are_drawn_by_how_many_samples_have_them(found, drawn):
    left, right = drawn
    assert [label.get_text() for label in left.get_yticklabels()] == ["b (2)", "c (2)"]
    assert [label.get_text() for label in left.get_xticklabels()] == ["r", "p", "s", "q"]  # the last has no counts
    image = left.images[0].get_array()
    np.testing.assert_array_equal(image.filled(np.nan), found.presence[[2, 0, 3, 1]][:, [1, 2]].T)
    (dots,) = right.lines
    expected = [(found.exposures[i, k], place) for i in range(4) for place, k in ((0, 1), (1, 2))
                if found.presence[i, k] >= 0.5]  # fmt: skip
    assert {*map(tuple, dots.get_xydata())} == {*expected}
    assert left.get_title() == "2 of 4 components: those that some sample has"


def test_it_draws_on_given_axes_and_refuses_what_it_cannot_draw(found):
    figure, axes = plt.subplots(1, 2)
    assert plots.presence(found, axes=axes)[0] is axes[0]
    plt.close(figure)
    with pytest.raises(TypeError, match=r"found must be a result of bayesnmf\.assign: found dict"):
        plots.presence({})
    with pytest.raises(ValueError, match="least must be below 1"):
        plots.presence(found, 1.0)
    with pytest.warns(bayesnmf.DataWarning, match="equal components"):
        unsure = bayesnmf.assign([[1]], [[1.0], [1.0], [1.0]], chains=1, draws=200, warmup=30)
    with pytest.raises(ValueError, match=r"least must be a chance .*: found 0\.95; give a lower one"):
        plots.presence(unsure, 0.95)
