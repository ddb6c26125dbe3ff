"""Mutational signatures: the order and the colours of COSMIC, whatever the order of the features."""

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from realdata import find_file

import bayesnmf
from bayesnmf import MAP, VI, plots
from bayesnmf.data.mutations import cn48_types, dbs78_types, id83_types, sbs96_types, sbs1536_types, sv32_types
from bayesnmf.plots.mutations import SUBSTITUTIONS

mpl.use("Agg")
pytestmark = pytest.mark.filterwarnings("ignore::bayesnmf.ConvergenceWarning")
NAMES = np.array(sbs96_types())
SHUFFLED = np.random.default_rng(0).permutation(96)
COUNTS = bayesnmf.simulate(size=(15, 96), rank=2, totals=900, seed=0).counts.matrix.toarray()
PLAIN = MAP(start="random", tol=0, kkt_tol=0, max_iter=30)


@pytest.fixture(autouse=True)
def closed():
    """Close every figure."""
    yield
    mpl.pyplot.close("all")


def bars_at(name):
    return sbs96_types().index(name)


def fitted(method="vi", names=NAMES):
    options = {"map": PLAIN, "vi": VI(start="random", tol=1e-4, intervals="mean_field")}[method]
    return bayesnmf.fit(COUNTS, rank=2, method=method, seed=0, feature_names=names[SHUFFLED], options=options)


def test_bars_are_in_the_order_and_the_colours_of_cosmic():
    fit = fitted()
    axes = plots.signatures(fit.rename(["one", "SBS$2$"]))
    in_order = np.argsort(SHUFFLED)
    medians = fit.estimate.quantiles("components", (np.arange(2)[:, None], in_order[None, :]), np.array([0.5]))[0]
    for k, ax in enumerate(axes):
        bars = ax.patches[:96]
        np.testing.assert_allclose([bar.get_height() for bar in bars], medians[k], rtol=1e-12)
        assert [to_hex(bar.get_facecolor()).upper() for bar in bars[::16]] == [*SUBSTITUTIONS.values()]
        assert [text.get_text() for text in ax.texts[:6]] == [*SUBSTITUTIONS]
    labels = [label.get_text() for label in axes[-1].get_xticklabels()]
    assert labels == list("ACGT" * 6)  # the base before; C[T>G]A begins the sixth block from the end
    assert axes[-1].get_xticks()[-3] == np.mean([bars_at("C[T>G]A"), bars_at("C[T>G]T")])
    axes[0].figure.draw_without_rendering()


def test_the_largest_components_can_be_drawn_alone():
    fit = fitted("map").rename(["one", "other"])
    largest = int(np.argmax(fit.expected_sizes))
    whole, (alone,) = plots.signatures(fit), plots.signatures(fit, n=1)
    heights = [[bar.get_height() for bar in ax.patches[:96]] for ax in (whole[largest], alone)]
    np.testing.assert_allclose(*heights, rtol=0)
    assert alone.get_title("left") == fit.component_titles[largest]


def test_other_spellings_are_understood_and_several_fits_are_matched():
    sigfit = np.array([f"{name[0]}{name[2]}{name[-1]}>{name[0]}{name[4]}{name[-1]}" for name in sbs96_types()])
    vi, point = fitted(), fitted("map", sigfit)
    plain = plots.signatures(fitted("map"))
    np.testing.assert_allclose(
        [bar.get_height() for bar in plots.signatures(point)[0].patches], [bar.get_height() for bar in plain[0].patches]
    )
    both = plots.signatures({"vi": vi, "map": fitted("map")})
    assert {line.get_label() for line in both[0].lines} == {"vi (mean field)", "map (point)"}
    assert len(plain[0].collections) == 0  # a point has no intervals


@pytest.mark.parametrize("names", [(*sbs96_types()[:95], "other"), (*sbs96_types()[:95], "A[C>A]A")])
def test_other_features_are_refused(names):
    with pytest.raises(ValueError, match="the features must be all mutation types of one kind"):
        plots.signatures(fitted(names=np.array(names)))


def test_signatures_of_one_of_several_matrices():
    """Its own names of features are those of the types, whatever stands beside them."""
    others = np.random.default_rng(0).poisson(5, (15, 4))
    fit = bayesnmf.fit({"sbs": pd.DataFrame(COUNTS, columns=NAMES), "id": others}, rank=2, seed=0, method="map")
    axes = plots.signatures(fit.matrix("sbs"))
    heights = [patch.get_height() for patch in axes[0].patches[:96]]
    np.testing.assert_allclose(heights, fit.matrix("sbs").components[0], rtol=1e-12)


def of_types(types, rank=1):
    """A point estimate of features of these types, in an order of their own."""
    names = np.random.default_rng(0).permutation(types)
    counts = np.random.default_rng(0).poisson(3.0, (6, len(names)))
    return bayesnmf.fit(counts, rank=rank, method="map", seed=0, feature_names=names, options=PLAIN)


def shares_of(fit, names, k=0):
    """Shares of types in a component, by their names."""
    shares = dict(zip(fit.feature_names, fit.components[k] / fit.components[k].sum(), strict=True))
    return np.array([shares[name] for name in names])


def heights_of(ax, number):
    return [bar.get_height() for bar in ax.patches[:number]]


STRIPS = {
    dbs78_types: (["AC>NN", "AT>NN", "CC>NN", "CG>NN", "CT>NN", "GC>NN", "TA>NN", "TC>NN", "TG>NN", "TT>NN"],
                  [0, 9, 15, 24, 30, 39, 45, 51, 60, 69], "AC>CA", "#03BDEF"),
    id83_types: ([*"CTCT", *["2", "3", "4", "5+"] * 3], [*range(0, 73, 6), 73, 75, 78], "1:Del:C:0", "#FDBE6F"),
    cn48_types: (["0", "1", "2", "3-4", "5-8", "9+", "2", "3-4", "5-8", "9+"], [0, *range(3, 44, 5)],
                 "0:homdel:0-100kb", "#F0F8FF"),
    sv32_types: (["del", "tds", "inv", ""] * 2, [0, 5, 10, 15, 16, 21, 26, 31], "clustered_del_1-10Kb", "#FFF0F5"),
}  # fmt: skip


@pytest.mark.parametrize("kind", STRIPS, ids=lambda kind: kind.__name__)
def test_every_kind_has_its_strips(kind):
    """Labels, where strips begin, the first type and its colour, as SigProfilerPlotting 1.4.3 has them."""
    fit = of_types(kind(), 2)
    axes = plots.signatures(fit)
    labels, begins, first, colour = STRIPS[kind]
    np.testing.assert_allclose(heights_of(axes[1], len(kind())), shares_of(fit, kind(), 1), rtol=1e-12)
    bars, strips = axes[0].patches[: len(kind())], axes[0].patches[len(kind()) :]
    assert kind()[0] == first
    assert to_hex(bars[0].get_facecolor()).upper() == colour
    assert [round(strip.get_x() + 0.4) for strip in strips] == begins
    assert [text.get_text() for text in axes[0].texts[: len(labels)] if text.get_text()] == [*filter(None, labels)]
    for begin, strip in zip([*begins[1:], len(kind())], strips, strict=True):  # a strip has the colour of its last bar
        assert to_hex(bars[begin - 1].get_facecolor()) == to_hex(strip.get_facecolor())


def names_below(ax, minor):
    return {place: label.get_text() for place, label in zip(ax.get_xticks(minor=minor),
            ax.get_xticklabels(minor=minor), strict=True)}  # fmt: skip


def test_bars_are_named_by_what_the_types_say():
    named = names_below(plots.signatures(of_types(dbs78_types()))[-1], False)
    named |= names_below(mpl.pyplot.gcf().axes[-1], True)
    assert [named[place] for place in range(78)] == [name[3:] for name in dbs78_types()]
    indels = names_below(plots.signatures(of_types(id83_types()))[-1], False)
    at = {name: place for place, name in enumerate(id83_types())}
    assert indels[at["1:Del:C:5"]] == indels[at["4:Del:R:5"]] == "6+"  # with the one that is deleted
    assert (indels[at["1:Ins:C:0"] + 1], indels[at["1:Ins:T:5"]], indels[at["5:Del:M:5"]]) == ("1", "5+", "5+")
    segments = names_below(plots.signatures(of_types(cn48_types()))[-1], False)
    assert [segments[place] for place in range(48)] == [name.split(":")[2] for name in cn48_types()]


def test_types_by_strand_have_a_bar_for_each_strand():
    types = [f"{strand}:{name}" for strand in "TUN" for name in sbs96_types()]
    fit = of_types(types)
    ax = plots.signatures(fit)[0]
    np.testing.assert_allclose(heights_of(ax, 288), shares_of(fit, types), rtol=1e-12)
    assert [bars.get_label() for bars in ax.containers] == ["transcribed", "untranscribed", "not transcribed"]
    centres = [bars[5].get_x() + bars[5].get_width() / 2 for bars in ax.containers]
    np.testing.assert_allclose(centres, 5 + np.array([-1, 0, 1]) * 0.8 / 3)


def test_wider_contexts_are_summed_and_their_intervals_are_those_of_sums():
    fit = of_types(sbs1536_types())
    point = plots.signatures(fit)
    inner = pd.Series(shares_of(fit, sbs1536_types())).groupby([name[1:-1] for name in sbs1536_types()]).sum()
    np.testing.assert_allclose(heights_of(point[0], 96), inner[[*sbs96_types()]], rtol=1e-12)
    assert point[-1].get_xlabel().endswith("; summed over the outer bases")
    options = bayesnmf.Gibbs(warmup=5, draws=20, chains=1)
    drawn = bayesnmf.fit(fit.counts.matrix, rank=2, method="gibbs", seed=0, feature_names=sbs1536_types(),
                         options=options)  # fmt: skip
    with_sum = drawn.estimate.components.reshape(20, 2, 96, 16).sum(axis=3) / drawn.components.sum(axis=1)[:, None]
    ax = plots.signatures(drawn)[1]
    lines = np.array([line[:, 1] for line in ax.collections[0].get_segments()])
    np.testing.assert_allclose(lines.T, np.quantile(with_sum[:, 1], [0.05, 0.95], axis=0), rtol=1e-6)
    np.testing.assert_allclose(heights_of(ax, 96), np.median(with_sum[:, 1], axis=0), rtol=1e-6)


def test_titles_name_the_known_signatures():
    fit = fitted("map").rename(["S1", "S2"])
    other = np.random.default_rng(0).dirichlet(np.full(96, 0.1), 1)
    known = pd.DataFrame(np.vstack([other, fit.components[1]]), ["SBS3", "SBS40a"], fit.feature_names)
    found = bayesnmf.match(fit, known, least=0.9)
    assert [ax.get_title("left") for ax in plots.signatures(fit, found)] == ["S1", "S2: SBS40a (1.00)"]
    every = bayesnmf.match(fit, known)
    cosine = every.table.set_index("component")["cosine"][0]
    assert plots.signatures(fit, known=every)[0].get_title("left") == f"S1: SBS3 ({cosine:.2f})"
    named = fit.rename(found.names)
    assert [ax.get_title("left") for ax in plots.signatures(named, found)] == ["S1", "SBS40a (1.00)"]
    single = bayesnmf.fit(COUNTS, rank=1, method="map", seed=0, feature_names=NAMES[SHUFFLED], options=PLAIN)
    with pytest.raises(ValueError, match="known must be a match of the 2 components that are drawn: found one of 1"):
        plots.signatures(fit, bayesnmf.match(single, known))
    vi = fitted("vi")  # of as many components, but other ones: names would stand above the wrong panels
    with pytest.raises(ValueError, match="found one of another fit, whose components differ; match this fit"):
        plots.signatures(fit, bayesnmf.match(vi, known))
    pair = plots.signatures({"map": fit, "vi": vi}, bayesnmf.match(vi, known), reference="vi")
    assert "SBS40a" in "".join(ax.get_title("left") for ax in pair)
    with pytest.raises(TypeError, match=r"known must be a result of bayesnmf\.match"):
        plots.signatures(fit, known)


def test_the_catalogue_of_indels():
    """Drawn from the file as COSMIC offers it, its signatures have the heights of the file, and match themselves."""
    path = find_file("COSMIC_v3.4_ID_GRCh37.txt")
    if path is None:
        pytest.skip("the catalogue of COSMIC was not found: set BAYESNMF_DATA to the folder that holds it")
    known = bayesnmf.read_catalogue(path).loc[["ID1", "ID2", "ID8", "ID23"]]
    counts = np.random.default_rng(0).poisson(200 * known)
    fit = bayesnmf.fit(counts, rank=len(known), method="map", fixed_components=known, feature_names=known.columns,
                       options=PLAIN, seed=0)  # fmt: skip
    axes = plots.signatures(fit, bayesnmf.match(fit, known))
    table = pd.read_csv(path, index_col=0)[known.index]
    for name, ax in zip(table, axes, strict=True):
        np.testing.assert_allclose(heights_of(ax, 83), table[name] / table[name].sum(), rtol=1e-9)
        assert ax.get_title("left") == f"{name} (1.00)"


def test_the_old_name_is_deprecated():
    with pytest.warns(DeprecationWarning, match=r"call plots\.signatures"):
        assert plots.sbs96 is plots.signatures
    with pytest.raises(AttributeError, match="no attribute 'sbs97'"):
        _ = plots.sbs97
