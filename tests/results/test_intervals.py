"""Draws beside the mean field: how they are chosen, made, kept, and read by every table and figure."""

from dataclasses import replace
from functools import cache

import matplotlib as mpl
import numpy as np
import pytest
from plain import even_priors, plain_map, plain_vi
from smallfits import COUNTS, K, M, N, every_model, parameter_fit, quietly
from suites import mostly_long

import bayesnmf
from bayesnmf import VI, Blocks, Dirichlet, Gibbs, Priors, plots
from bayesnmf.data.blocks.opening import open_counts
from bayesnmf.fitting import intervals as making
from bayesnmf.inference.status import FitWarning
from bayesnmf.pages import of_samples
from bayesnmf.pages.reading import Given, read
from bayesnmf.priors.specification import MODELS
from bayesnmf.results import intervals as reading
from bayesnmf.results.estimates import Draws, Intervals
from bayesnmf.results.markers import described
from bayesnmf.results.relabelling import relabel
from bayesnmf.results.storage import check_saved_shapes
from bayesnmf.results.thinning import components_table, loadings_table

mpl.use("Agg")
pytestmark = quietly
SAMPLED = "intervals: sampled ("
NARROW = "intervals: mean field; too narrow; fit.with_intervals('sampled') samples"
GROUPS = ["a", "b"] * (N // 2)


@cache
def fit(model="gamma_poisson", intervals="auto"):
    return bayesnmf.fit(COUNTS, model, K, seed=0, options=plain_vi(max_iter=60, threads=1, intervals=intervals))


def forbidden(*_):
    raise AssertionError("sampled")


# --- who reads them ---------------------------------------------------------------------------------------


@cache
def marked():
    """Return a fit with draws that are all the same, and far from q: whoever reads them shows it."""
    rng = np.random.default_rng(5)
    loadings, components = rng.gamma(2.0, 400.0, (N, K)), rng.dirichlet(np.ones(M), K)
    draws = Draws(np.tile(loadings, (1, 20, 1, 1)), np.tile(components, (1, 20, 1, 1)))
    return replace(fit(), intervals=Intervals("sampled", draws, 1.01)), loadings, components


def test_the_summary_is_of_the_draws():
    made, loadings, components = marked()
    table = made.summary(rows=["s3"], features=["b"])
    expected = [*loadings[3], *components[:, 1]]
    for column in ("median", "eti90_lb", "eti90_ub"):
        np.testing.assert_allclose(table[column].to_numpy(float), expected, rtol=0.1)  # two digits
    assert table.attrs["uncertainty"] == "sampled"
    assert table.attrs["note"].startswith(SAMPLED)


def test_markers_and_their_order_are_of_the_draws():
    made, _, components = marked()
    made = replace(made, priors=even_priors(COUNTS))
    table = bayesnmf.markers(made, None)
    logs = np.log2(components)
    for k, part in table.groupby("component"):
        part = part.set_index("feature")
        expected = logs[k] - np.delete(logs, k, axis=0).max(axis=0)
        found = part.loc[list(COUNTS.columns)]
        for column in ("lfc_next", "lfc_next_low", "lfc_next_high"):
            np.testing.assert_allclose(found[column], expected, atol=1e-5)
        assert set(part["lfsr_next"]) == {0.0}
        assert made.top_features(M, "next").to_numpy()[:, k].tolist() == list(part.index)
    assert table.attrs["intervals"].startswith(SAMPLED)
    assert table.attrs["cautions"] == []


def test_markers_of_draws_under_a_sparse_prior_count_as_under_an_even_one():
    """A Dirichlet draw with 0.1 for each entry, and a Gamma variate of 0.9 counts added to it, is one with 1."""
    rng = np.random.default_rng(0)
    total = np.full((K, M), 30.0)
    total[:, -1], total[0] = [6, 0, 0], [300] * (M - 1) + [6]
    sizes = (N, 1)
    loadings = np.tile(total.sum(axis=1) / N, sizes)

    def described_with(shape):
        draws = np.stack([rng.dirichlet(shape + row, 4000) for row in total], axis=1)[None]
        beside = Intervals("sampled", Draws(np.ones((1, 4000, N, K)), draws))
        given = Priors(fit().priors.loadings, Dirichlet(shape))
        return described(replace(fit(), priors=given, loadings=loadings, intervals=beside), 4000, 0)

    sparse, even = described_with(0.1), described_with(1.0)
    for column in ("lfc_next", "lfc_next_low", "lfc_next_high"):
        np.testing.assert_allclose(sparse[column], even[column], atol=0.35)  # of the tail of rare ones: 0.1 by chance
    assert even["lfc_next_low"][0, -1] < sparse["lfc_next"][0, -1]
    mean = 0.1 + total
    np.testing.assert_allclose(sparse["share"], mean / mean.sum(axis=1, keepdims=True), rtol=0.05, atol=2e-4)


def test_group_contrasts_are_of_the_draws():
    made, loadings, _ = marked()
    table = bayesnmf.group_contrasts(made, GROUPS, population=False)
    shares = loadings / loadings.sum(axis=1, keepdims=True)
    expected = shares[1::2].mean(axis=0) - shares[::2].mean(axis=0)
    for column in ("difference", "difference_low", "difference_high"):
        np.testing.assert_allclose(table[column], expected)
    assert table.attrs["intervals"].startswith(SAMPLED)


def test_figures_of_intervals_are_of_the_draws_and_say_so():
    made, loadings, components = marked()
    (ax,) = plots.loadings_intervals(made, ["s3"])
    (points,) = [line for line in ax.lines if line.get_label() == "vi (sampled)"]
    np.testing.assert_allclose(points.get_ydata(), loadings[3])
    ends = np.array(ax.collections[0].get_segments())[:, :, 1]
    np.testing.assert_allclose(ends, np.tile(loadings[3], (2, 1)).T)
    assert SAMPLED in ax.figure.get_suptitle()
    axes = plots.components(made, n_features=M)
    names = [tick.get_text() for tick in axes[1].get_yticklabels()]
    found = dict(zip(names, (bar.get_width() for bar in axes[1].patches), strict=True))
    np.testing.assert_allclose([found[name] for name in COUNTS.columns], components[1])
    assert SAMPLED in axes[0].figure.get_suptitle()
    (ax,) = plots.loadings_scatter({"vi": made, "other": fit()}, interval=0.5, together=True)
    assert ax.get_xlabel() == "vi (sampled), counts"
    ends = np.array(ax.collections[0].get_segments())[:, :, 0]
    np.testing.assert_allclose(ends, np.tile(loadings[:, 0], (2, 1)).T)


def test_mutation_signatures_are_of_the_draws():
    names = bayesnmf.data.mutations.sbs96_types()
    counts = np.random.default_rng(0).poisson(2, (6, 96))
    options = plain_vi(max_iter=10, threads=1)
    made = bayesnmf.fit(counts, rank=2, seed=0, options=options, feature_names=names)
    components = np.random.default_rng(1).dirichlet(np.ones(96), 2)
    draws = Draws(np.ones((1, 10, 6, 2)), np.tile(components, (1, 10, 1, 1)))
    axes = plots.signatures(replace(made, intervals=Intervals("sampled", draws)))
    np.testing.assert_allclose([bar.get_height() for bar in axes[1].patches[:96]], components[1])
    assert SAMPLED in axes[0].figure.get_suptitle()


def test_files_for_others_have_the_draws():
    made, loadings, _ = marked()
    tree = made.to_datatree()
    assert dict(tree["posterior"].sizes)["draw"] == 20
    np.testing.assert_array_equal(tree["posterior"]["loadings"][0, 7], loadings)
    assert tree.attrs["intervals"].startswith(SAMPLED)
    assert "independent_draws" not in tree.attrs
    assert "objective" in tree["optimization"]
    adata = made.to_anndata()
    np.testing.assert_allclose(adata.obsm["X_bayesnmf"], loadings / loadings.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(adata.obsm["X_bayesnmf_sd"], 0, atol=1e-6)
    assert adata.uns["bayesnmf"]["intervals"].startswith(SAMPLED)
    for table in (loadings_table(made), components_table(made)):
        np.testing.assert_allclose(table.filter(like=" sd"), 0, atol=1e-12)
    with pytest.raises(ValueError, match=r"draws must be at most 20, .*with_intervals\('sampled', draws=...\)"):
        made.to_datatree(draws=100)


def test_a_printed_fit_says_what_its_intervals_are_and_samples_nothing():
    told = f"intervals: sampled when they are first read, {reading.duration(reading.expected_seconds(fit()))}>"
    one = replace(fit())  # that nothing has read
    assert told in repr(one)
    assert told in repr(one)
    one.summary()
    assert SAMPLED in repr(one)
    assert SAMPLED in repr(marked()[0])
    assert NARROW in repr(fit(intervals="mean_field"))
    point = bayesnmf.fit(COUNTS, rank=2, method="map", seed=0)
    assert "no intervals: a point estimate; fit.with_intervals('bootstrap') makes some>" in repr(point)
    assert "no intervals: a point estimate>" in repr(point.project(COUNTS))


def test_the_report_says_what_its_intervals_are(monkeypatch):
    monkeypatch.setattr(of_samples, "drawn", lambda *_: None)
    section = of_samples.uncertainty(read(marked()[0], Given()))
    assert any(SAMPLED[1:] in text for text in section.text)
    section = of_samples.uncertainty(read(fit(intervals="mean_field"), Given()))
    assert any(f"{NARROW[1:]}, about 1 s." in text for text in section.text)


def test_draws_follow_rows_order_and_names():
    made = fit().with_intervals("sampled", draws=20)
    order = np.array([2, 0, 1])
    np.testing.assert_array_equal(
        relabel(made, order).summary(rows=["s1"])["median"][:3], made.summary(rows=["s1"])["median"][:3].iloc[order]
    )
    renamed = made.rename(["x", "y", "z"], rows={"s1": "first"})
    np.testing.assert_array_equal(renamed.summary(rows=["first"])["median"], made.summary(rows=["s1"])["median"])


def test_what_describes_the_method_stays_with_q():
    made = fit().with_intervals("sampled", draws=20)
    assert made.posterior is fit().posterior
    assert bayesnmf.linear_response(made).fit.intervals is None


# --- how they are chosen ------------------------------------------------------------------------------------


def test_a_fit_does_not_depend_on_where_its_intervals_are_read():
    one, *others = (fit(intervals=kind) for kind in ("auto", "sampled", "mean_field"))
    for other in others:
        for name in ("loadings", "components", "trace"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert one.intervals is None
    assert fit(intervals="sampled").intervals.draws.held == (1, 250)
    assert SAMPLED in repr(fit(intervals="sampled"))


def test_readers_of_auto_sample_once_and_whoever_is_first_finds_the_same(monkeypatch):
    one, two = replace(fit()), replace(fit())
    first = bayesnmf.markers(one, None)
    summary = two.summary(rows=["s0"])
    monkeypatch.setattr(reading, "sample_around", forbidden)
    assert one.summary(rows=["s0"]).equals(summary)
    assert bayesnmf.markers(two, None).equals(first)
    named = fit().with_intervals("sampled")
    assert named.summary(rows=["s0"]).equals(summary)
    assert not fit().with_intervals("sampled", seed=1).summary(rows=["s0"]).equals(summary)


@pytest.mark.parametrize(("expected", "took", "samples"), [(4.9, 0.1, True), (60.0, 61.0, True), (60.0, 59.0, False)])
def test_auto_samples_up_to_five_seconds_or_as_long_as_the_fit_took(monkeypatch, expected, took, samples):
    monkeypatch.setattr(reading, "expected_seconds", lambda *_: expected)
    if not samples:
        monkeypatch.setattr(reading, "sample_around", forbidden)
    made = replace(fit(), seconds=took)
    note = made.summary(rows=["s0"]).attrs["note"]
    if samples:
        assert note.startswith(SAMPLED)
    else:
        assert note == "intervals: mean field; too narrow; fit.with_intervals('sampled') samples, about 60 s"
        assert bayesnmf.markers(made, 2).attrs["cautions"] == [note]
        assert made.with_intervals().intervals is None
        assert made.to_datatree(draws=10, chains=2)["posterior"].sizes["chain"] == 2


def test_more_draws_than_auto_makes_are_drawn_from_q():
    tree = fit().to_datatree(draws=300, chains=2)
    assert dict(tree["posterior"].sizes)["draw"] == 300
    assert tree.attrs["intervals"].startswith(
        "intervals: mean field; too narrow; fit.with_intervals('sampled') samples"
    )
    assert dict(fit().to_datatree(draws=30)["posterior"].sizes)["chain"] == 1


def test_the_advice_of_a_large_fit_can_be_followed(monkeypatch):
    """Plain `with_intervals` would stay with q, and takes nothing away that the fit has."""
    monkeypatch.setattr(reading, "AUTOMATIC", 0.0)
    large = replace(fit(), seconds=0.0)
    assert NARROW in large.summary(rows=["s0"]).attrs["note"]
    assert large.with_intervals().intervals is None
    made = large.with_intervals("sampled", draws=20)
    assert made.summary(rows=["s0"]).attrs["note"].startswith(SAMPLED)
    assert made.with_intervals().intervals is made.intervals


def test_expected_seconds_grow_with_sweeps_nonzeros_and_components():
    one = reading.expected_seconds(fit())
    assert reading.expected_seconds(fit(), 600) == pytest.approx(2 * one)
    assert reading.expected_seconds(replace(fit(), rank=3000)) > 10 * one
    assert reading.duration(200) == "about 3 min"


def test_an_unmixed_chain_is_told():
    made, *_ = marked()
    poor = replace(made, intervals=replace(made.intervals, r_hat=1.5, share_above=0.125))
    said = bayesnmf.group_contrasts(poor, GROUPS).attrs["cautions"]
    assert said == [
        "intervals: sampled (20 draws of one chain from the fit, R-hat of its halves at most 1.50); it has not mixed: "
        "12% of entries are above 1.2, and no interval can be relied on; fit.with_intervals('sampled', warmup=20, "
        "draws=80) runs longer, about 1 s"
    ]


# --- how they are made --------------------------------------------------------------------------------------


@every_model
def test_every_model_is_sampled_around_its_fit(model):
    made = fit(model).with_intervals("sampled", draws=100)
    draws = made.intervals.draws
    assert draws.loadings.shape == (1, 100, N, K)
    assert draws.components.shape == (1, 100, K, M)
    assert (draws.scale is None) == (made.scale is None)
    between = np.ptp(draws.loadings[0], axis=0) > 0
    assert between.all()
    again = made.with_intervals("sampled", draws=100, threads=2)
    np.testing.assert_array_equal(again.intervals.draws.components, draws.components)
    table = made.summary(rows=["s0"], features=["a"])
    assert np.isfinite(table.to_numpy(float)).all()


def test_known_components_stay_as_they_are():
    known = np.random.default_rng(2).dirichlet(np.ones(M), 2)
    options = plain_vi(max_iter=20, threads=1)
    made = bayesnmf.fit(COUNTS.to_numpy(), rank=3, seed=0, options=options, fixed_components=known)
    draws = made.with_intervals("sampled", draws=20).intervals.draws
    np.testing.assert_allclose(draws.components[0, :, :2], np.tile(known, (20, 1, 1)), rtol=1e-6)
    assert (np.ptp(draws.components[0, :, 2], axis=0) > 0).all()


@quietly
@pytest.mark.parametrize("method", ["vi", "gibbs"])
def test_a_fit_whose_components_are_all_known_is_summarised_by_its_loadings(method):
    known = np.random.default_rng(2).dirichlet(np.ones(M), 2)
    options = bayesnmf.Gibbs(draws=10, warmup=5, chains=1) if method == "gibbs" else None
    made = bayesnmf.fit(COUNTS.iloc[:5], method=method, options=options, seed=0, fixed_components=known)
    assert list(made.summary(rows=["s0", "s3"]).index) == [f"loadings[s{i}, {k}]" for i in (0, 3) for k in range(2)]


@pytest.mark.parametrize("model", mostly_long(MODELS, [1]))
def test_draws_of_linear_response_have_its_standard_deviations(model):
    options = plain_vi(tol=1e-9, threads=1, priors=Priors())
    counts = bayesnmf.simulate(size=(12, 6), rank=2, totals=400, seed=3).counts
    made = bayesnmf.fit(counts, model, 2, seed=0, options=options).with_intervals("response", draws=150)
    response = bayesnmf.linear_response(made)
    for side in ("loadings", "components"):
        drawn, sd = getattr(made.intervals.draws, side)[0], response.spread(side).sd
        assert np.median(drawn.std(axis=0) / sd) == pytest.approx(
            1, abs=0.06
        )  # 150 draws: 6 % of each sd, a third of that in the median
    assert made.summary(rows=[0]).attrs["uncertainty"] == "linear response"
    assert (made.intervals.draws.scale is None) == (made.scale is None)


def test_ctrl_c_while_intervals_are_made_keeps_the_fit(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(making, "sample_around", interrupted)
    with pytest.warns(FitWarning, match=r"interrupted, and are those of the mean field; make them with fit\.with_int"):
        made = bayesnmf.fit(COUNTS, rank=K, seed=0, options=plain_vi(max_iter=60, threads=1, intervals="sampled"))
    np.testing.assert_array_equal(made.loadings, fit().loadings)
    assert made.intervals is None


# --- what cannot have them ----------------------------------------------------------------------------------


def fractions():
    return bayesnmf.fit(COUNTS + 0.5, rank=K, seed=0, options=plain_vi(max_iter=5, threads=1, intervals="auto"))


WITHOUT = {
    "its components are parameters": parameter_fit,
    "not all its counts are whole numbers": fractions,
    "its components are held from another fit": lambda: fit().project(COUNTS),
}


@pytest.mark.parametrize("why", WITHOUT)
def test_fits_without_a_chain_keep_their_mean_field_and_say_why(why):
    made = WITHOUT[why]()
    made = made if why.startswith("its components are p") else made.with_intervals("auto")
    note = made.summary(rows=[made.row_names[0]]).attrs["note"]
    assert note.startswith("intervals: mean field; too narrow; not sampled, since ")
    assert why in note
    with pytest.raises(ValueError, match=rf"intervals='sampled' needs a fit by vi, .*: {why}"):
        made.with_intervals("sampled")


def test_counts_on_disk_have_them_too(tmp_path):
    blocks = Blocks(COUNTS.to_numpy(), scratch=tmp_path)
    options = VI(start="random", max_iter=3, tol=0, threads=1)
    made = [bayesnmf.fit(given, rank=K, seed=0, options=options) for given in (blocks, COUNTS.to_numpy())]
    one, two = (each.with_intervals("sampled", warmup=2, draws=8) for each in made)
    np.testing.assert_allclose(one.intervals.draws.loadings, two.intervals.draws.loadings, rtol=1e-5)
    np.testing.assert_allclose(one.intervals.draws.components, two.intervals.draws.components, rtol=1e-5)
    converged = fit()
    stored = replace(converged, counts=open_counts(replace(blocks, nonzeros=300), "float64"))
    one, two = (each.with_intervals("response", draws=8) for each in (stored, converged))
    np.testing.assert_allclose(one.intervals.draws.loadings, two.intervals.draws.loadings, rtol=1e-5)


def test_names_are_refused_before_the_fit():
    for priors, counts in ((Priors(components="parameter"), COUNTS), (Priors(), COUNTS + 0.5)):
        for kind in ("sampled", "response")[: 2 if counts is COUNTS else 1]:
            with pytest.raises(ValueError, match=f"intervals='{kind}' needs a fit by vi"):
                bayesnmf.fit(counts, rank=K, options=plain_vi(intervals=kind, priors=priors))
    with pytest.raises(ValueError, match=r"intervals must be one of 'auto', .*; did you mean 'sampled'"):
        VI(intervals="sample")
    with pytest.raises(ValueError, match="draws must be at least 8"):
        fit().with_intervals("sampled", draws=3)
    for options, method in ((plain_map(max_iter=5), "map"), (Gibbs(chains=1, warmup=2, draws=8), "gibbs")):
        with pytest.raises(ValueError, match=f"the fit is by {method}"):
            bayesnmf.fit(COUNTS, rank=K, method=method, seed=0, options=options).with_intervals()


# --- files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
def test_files_keep_the_draws(tmp_path, suffix):
    made = fit("dirichlet_gamma").with_intervals("sampled", draws=20)
    made.save(tmp_path / f"fit{suffix}")
    again = bayesnmf.load(tmp_path / f"fit{suffix}")
    for side in ("loadings", "components", "scale"):
        one, two = (getattr(each.intervals.draws, side) for each in (made, again))
        np.testing.assert_array_equal(one, two)
        assert one.dtype == two.dtype
    assert again.intervals.r_hat == made.intervals.r_hat
    assert again.options.intervals == "sampled"
    assert again.summary(rows=["s0"]).equals(made.summary(rows=["s0"]))


def test_files_with_other_draws_are_refused():
    made = marked()[0]
    check_saved_shapes(made)
    for wrong in (made.intervals.rows(np.arange(3), (N, K)), replace(made.intervals, kind="guessed")):
        with pytest.raises(ValueError, match="intervals"):
            check_saved_shapes(replace(made, intervals=wrong))


@pytest.mark.long
def test_short_chains_hold_what_long_ones_draw():
    """About 90 % of the draws of a chain of 600 are in the 90 % intervals; far fewer in those of the mean field."""
    counts = bayesnmf.simulate(size=(60, 30), rank=3, totals=2000, seed=4).counts
    made = bayesnmf.fit(counts, rank=3, seed=0)
    long = made.with_intervals("sampled", draws=3000, warmup=300, seed=7).intervals.draws
    held = {}
    for kind in ("sampled", "mean_field"):
        read = reading.for_intervals(made.with_intervals(kind))
        at = np.indices((60, 3))
        low, high = read.estimate.quantiles("loadings", tuple(at), np.array([0.05, 0.95]))
        held[kind] = np.mean((low <= long.loadings[0]) & (long.loadings[0] <= high))
    assert 0.8 < held["sampled"] < 0.95
    assert held["mean_field"] < held["sampled"] - 0.1


@pytest.mark.parametrize("kind", ["sampled", "response"])
def test_draws_and_replicates_are_of_the_draws_that_intervals_are_read_from(kind):
    """Those of q would be narrower, and would hide what `with_intervals` was called for."""
    counts = bayesnmf.simulate("gamma_poisson", (20, 8), 2, totals=200, seed=1).counts
    fit = bayesnmf.fit(counts, rank=2, seed=0, options=bayesnmf.VI(intervals="mean_field"))
    more = fit.with_intervals(kind, draws=60)
    drawn = more.sample_posterior()
    np.testing.assert_array_equal(drawn.loadings.reshape(60, 20, 2), more.intervals.draws.loadings.reshape(60, 20, 2))
    assert more.sample_posterior(20).loadings.shape[:2] == (1, 20)
    with pytest.raises(ValueError, match="with_intervals"):
        more.sample_posterior(61)
    same = np.array_equal(more.sample_posterior_predictive(50), fit.sample_posterior_predictive(50))
    assert same == (kind == "response")
    assert fit.sample_posterior().loadings.shape == (4, 1000, 20, 2)
    back = more.with_intervals("mean_field")
    np.testing.assert_array_equal(back.sample_posterior_predictive(5), fit.sample_posterior_predictive(5))


def test_replicates_of_linear_response_keep_the_mean_of_the_counts():
    """Products of its draws of two Gamma sides, which move along the scale that both share, are 2 to 3 % too small."""
    counts = bayesnmf.simulate("gamma_poisson", (40, 10), 2, totals=100, seed=1).counts
    options = VI(priors=Priors(bayesnmf.Gamma(0.5, 0.5), bayesnmf.Gamma(0.5, 0.5)))
    fit = bayesnmf.fit(counts, rank=2, seed=0, options=options).with_intervals("response")
    assert abs(fit.sample_posterior_predictive(200).mean() / counts.matrix.mean() - 1) < 0.01
    with pytest.raises(ValueError, match=r"draws must be at most 250.*with_intervals\('sampled', draws"):
        fit.with_intervals("sampled").sample_posterior_predictive(251)
