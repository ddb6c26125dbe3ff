"""`plots.moved`: known components where they were and where they are now."""

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import bayesnmf
from bayesnmf import plots
from bayesnmf.data.mutations import sbs96_types

NAMES = ["SBS1", "SBS2", "SBS3"]


def made(m=96):
    rng = np.random.default_rng(0)
    known, factors = rng.dirichlet(np.full(m, 0.3), 3), np.exp(0.4 * rng.normal(size=m))
    return rng.poisson(rng.gamma(2.0, 400.0, (12, 3)) @ (known * factors)), pd.DataFrame(known, NAMES)


def test_bars_are_the_component_now_and_marks_the_known_one():
    counts, known = made()
    types = list(reversed(sbs96_types()))
    counts, known = pd.DataFrame(counts, columns=types), known.set_axis(types, axis=1)
    found = bayesnmf.assign(counts, known, drift=1000, chains=1, draws=5, warmup=20)
    axes = plots.moved(found, n=2)
    order = found.moved["cosine"].sort_values().index[:2]
    assert [ax.get_title(loc="left") for ax in axes] == [f"{k} ({found.moved['cosine'][k]:.3f})" for k in order]
    for ax, name in zip(axes, order, strict=True):
        np.testing.assert_allclose(
            [bar.get_height() for bar in ax.containers[0]], found.components[NAMES.index(name)][::-1]
        )
        np.testing.assert_allclose(ax.lines[0].get_ydata(), known.loc[name].to_numpy()[::-1], atol=1e-12)
    plt.close(axes[0].figure)


def test_of_other_features_those_are_drawn_that_changed_most():
    counts, known = made(30)
    fit = bayesnmf.fit(counts, fixed_components=known, drift=500, seed=0, options=bayesnmf.VI(max_iter=30, tol=0))
    (ax,) = plots.moved(fit, n=1)
    name = fit.moved["cosine"].idxmin()
    now, was = fit.components[NAMES.index(name)], known.loc[name].to_numpy()
    shown = np.sort(np.argsort(-np.abs(now - was))[:20])
    np.testing.assert_allclose([bar.get_height() for bar in ax.patches], now[shown])
    np.testing.assert_allclose(ax.lines[0].get_ydata(), was[shown])
    plt.close(ax.figure)


def test_what_has_not_moved_is_refused():
    counts, known = made(6)
    with pytest.raises(ValueError, match="found must have known components that may move: found none"):
        plots.moved(bayesnmf.assign(counts, known, drift=None, chains=1, draws=3, warmup=3))
    with pytest.raises(TypeError, match="found must be an Assignment or a Fit: found a mapping"):
        plots.moved({})
