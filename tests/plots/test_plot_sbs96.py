"""Mutational signatures: the order and the colours of COSMIC, whatever the order of the features."""

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

import bayesnmf
from bayesnmf import MAP, VI, plots
from bayesnmf.data.mutations import sbs96_types
from bayesnmf.plots.mutations import COLOURS

mpl.use("Agg")
NAMES = np.array(sbs96_types())
SHUFFLED = np.random.default_rng(0).permutation(96)
COUNTS = bayesnmf.simulate(size=(15, 96), rank=2, totals=900, seed=0).counts.matrix.toarray()


def bars_at(name):
    return sbs96_types().index(name)


def fitted(method="vi", names=NAMES):
    options = {"map": MAP(start="random", tol=1e-4), "vi": VI(start="random", tol=1e-4, intervals="mean_field")}[method]
    return bayesnmf.fit(COUNTS, rank=2, method=method, seed=0, feature_names=names[SHUFFLED], options=options)


def test_bars_are_in_the_order_and_the_colours_of_cosmic():
    fit = fitted()
    axes = plots.sbs96(fit.rename(["one", "SBS$2$"]))
    in_order = np.argsort(SHUFFLED)
    medians = fit.estimate.quantiles("components", (np.arange(2)[:, None], in_order[None, :]), np.array([0.5]))[0]
    for k, ax in enumerate(axes):
        bars = ax.patches[:96]
        np.testing.assert_allclose([bar.get_height() for bar in bars], medians[k], rtol=1e-12)
        assert [to_hex(bar.get_facecolor()).upper() for bar in bars[::16]] == [*COLOURS.values()]
        assert [text.get_text() for text in ax.texts[:6]] == [*COLOURS]
    labels = [label.get_text() for label in axes[-1].get_xticklabels()]
    assert labels == list("ACGT" * 6)  # the base before; C[T>G]A begins the sixth block from the end
    assert axes[-1].get_xticks()[-3] == np.mean([bars_at("C[T>G]A"), bars_at("C[T>G]T")])
    axes[0].figure.draw_without_rendering()
    mpl.pyplot.close("all")


def test_other_spellings_are_understood_and_several_fits_are_matched():
    sigfit = np.array([f"{name[0]}{name[2]}{name[-1]}>{name[0]}{name[4]}{name[-1]}" for name in sbs96_types()])
    vi, point = fitted(), fitted("map", sigfit)
    plain = plots.sbs96(fitted("map"))
    np.testing.assert_allclose(
        [bar.get_height() for bar in plots.sbs96(point)[0].patches], [bar.get_height() for bar in plain[0].patches]
    )
    both = plots.sbs96({"vi": vi, "map": fitted("map")})
    assert {line.get_label() for line in both[0].lines} == {"vi (mean field)", "map (point)"}
    assert len(plain[0].collections) == 0  # a point has no intervals
    mpl.pyplot.close("all")


@pytest.mark.parametrize("names", [(*sbs96_types()[:95], "other"), (*sbs96_types()[:95], "A[C>A]A")])
def test_other_features_are_refused(names):
    with pytest.raises(ValueError, match="the features must be the 96 types of single base substitutions"):
        plots.sbs96(fitted(names=np.array(names)))


def test_signatures_of_one_of_several_matrices():
    """Its own names of features are those of the types, whatever stands beside them."""
    others = np.random.default_rng(0).poisson(5, (15, 4))
    fit = bayesnmf.fit({"sbs": pd.DataFrame(COUNTS, columns=NAMES), "id": others}, rank=2, seed=0, method="map")
    axes = plots.sbs96(fit.matrix("sbs"))
    heights = [patch.get_height() for patch in axes[0].patches[:96]]
    np.testing.assert_allclose(heights, fit.matrix("sbs").components[0], rtol=1e-12)
