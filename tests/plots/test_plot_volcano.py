"""The volcano plot."""

from functools import cache
from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from legibility import faults

import bayesnmf
from bayesnmf import MAP, VI, plots

DRAWN = bayesnmf.simulate(size=(60, 8), rank=3, seed=2)


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


@cache
def table_of(method="vi"):
    options = {"map": MAP, "vi": VI}[method](start="random")
    return bayesnmf.markers(bayesnmf.fit(DRAWN.counts, rank=3, method=method, seed=0, options=options), None)


@pytest.mark.parametrize("contrast", ["next", "rest"])
def test_every_feature_is_a_point_and_the_surest_are_named(contrast):
    table = table_of()
    axes = plots.volcano(table, 2, contrast)
    assert len(axes) == 3
    for ax, (component, part) in zip(axes, table.groupby("component"), strict=True):
        points = np.concatenate([each.get_offsets() for each in ax.collections])
        width = part[f"lfc_{contrast}_high"] - part[f"lfc_{contrast}_low"]
        wanted = np.column_stack([part[f"lfc_{contrast}"], np.abs(part[f"lfc_{contrast}"]) * 3.2897072539 / width])
        np.testing.assert_allclose(points[np.argsort(points[:, 0])], wanted[np.argsort(wanted[:, 0])], rtol=1e-6)
        assert len(ax.collections[1].get_offsets()) == (part[f"lfsr_{contrast}"] < 0.01).sum()
        surest = part.nlargest(2, f"lfc_{contrast}_low")["feature"].astype(str).tolist()
        assert sorted(text.get_text() for text in ax.texts) == sorted(surest)
        assert ax.get_title() == f"component {component}"


def test_lines_to_names_do_not_cross():
    rng = np.random.default_rng(0)
    values = rng.uniform(1, 5, 40)
    columns = {"lfc_next": values, "lfc_next_low": values - rng.uniform(0.1, 1, 40), "lfc_next_high": values + 0.5}
    table = pd.DataFrame({"component": 0, "feature": [f"f{j}" for j in range(40)], **columns, "lfsr_next": 0.0})
    (ax,) = plots.volcano(table, 10)
    lines = np.array([[text.xy, text.xyann] for text in ax.texts])
    ax.figure.canvas.draw()
    points = ax.transAxes.inverted().transform(ax.transData.transform(ax.collections[1].get_offsets()))
    assert np.abs(lines[:, 0, None] - points).max(axis=2).min(axis=1).max() < 1e-9  # lines begin at points

    def side(a, b, c):  # of the line from a to b, on which c lies
        return np.sign(np.linalg.det(np.array([b - a, c - a])))

    crossing = [side(a, b, c) != side(a, b, d) and side(c, d, a) != side(c, d, b)
                for (a, b), (c, d) in combinations(lines, 2)]  # fmt: skip
    assert len(lines) == 10
    assert not any(crossing)


@pytest.mark.parametrize("n", [8, 20])
def test_many_long_names_are_read_beside_the_lines_of_others(n):
    """Lines ended in the middle of names, and so crossed the names between."""
    rng = np.random.default_rng(1)
    names = [f"ENSG{j:011d}" if j % 3 else f"GENE{j}" for j in range(400)]
    parts = []
    for component in range(2):
        change, width = rng.normal(0, 2.5, 400), rng.uniform(0.2, 1, 400)
        columns = {"lfc_next": change, "lfc_next_low": change - width, "lfc_next_high": change + width}
        parts.append(pd.DataFrame({"component": component, "feature": names, **columns, "lfsr_next": 0.0}))
    axes = plots.volcano(pd.concat(parts), n)
    assert [len(ax.texts) for ax in axes] == [n, n]
    assert faults(axes[0].figure) == []


def changes(names, seed=0):
    rng = np.random.default_rng(seed)
    change, width = rng.normal(0, 2.5, len(names)), rng.uniform(0.2, 1, len(names))
    columns = {"lfc_next": change, "lfc_next_low": change - width, "lfc_next_high": change + width}
    return pd.DataFrame({"component": 0, "feature": names, **columns, "lfsr_next": 0.0})


@pytest.mark.parametrize("drawn_on", ["panels of its own", "a figure of this size", "given axes"])
def test_no_more_names_are_written_than_fit(drawn_on):
    """200 names were written on each other."""
    table = changes([f"GENE{j}" for j in range(300)])
    given = {"axes": plt.figure(figsize=(5, 5)).subplots()} if drawn_on == "given axes" else {}
    given |= {"figsize": (5, 6)} if drawn_on == "a figure of this size" else {}
    (ax,) = plots.volcano(table, 200, **given)
    assert (75 if not given else 25) < len(ax.texts) < (85 if not given else 40)
    assert [each for each in faults(ax.figure) if " over " in each] == []


def test_rows_that_are_not_finite_have_no_name():
    """SciPy refused them as places of an assignment."""
    table = changes([f"GENE{j}" for j in range(30)])
    table.loc[0, ["lfc_next", "lfc_next_low"]] = np.inf
    table.loc[1, ["lfc_next_low", "lfc_next_high"]] = np.nan  # no standard deviation
    table.loc[2, "lfc_next"] = -np.inf
    (ax,) = plots.volcano(table, 30)
    ax.figure.canvas.draw()
    assert {text.get_text() for text in ax.texts} == {f"GENE{j}" for j in range(3, 30)}


def test_given_axes_are_used():
    given = plt.subplots(1, 3)[1]
    assert all(plots.volcano(table_of(), axes=given) == given)


def test_other_tables_are_refused():
    with pytest.raises(TypeError, match=r"table must be a table of bayesnmf\.markers"):
        plots.volcano(DRAWN)
    with pytest.raises(ValueError, match="point estimate"):
        plots.volcano(table_of("map"))
    with pytest.raises(ValueError, match="contrast must be one of"):
        plots.volcano(table_of(), contrast="all")
