"""The bootstrap: replicates of the counts of a fit, what is known of their estimates, and who reads them."""

from dataclasses import replace
from functools import cache
from itertools import product

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from plain import plain_map, plain_vi
from smallfits import COUNTS, K, M, N, quietly
from suites import mostly_long

import bayesnmf
from bayesnmf import VI, Blocks, Gibbs, NegativeBinomial, plots
from bayesnmf.assessment import bootstrap
from bayesnmf.assessment.replicates import replicate_of
from bayesnmf.inference.status import FitWarning
from bayesnmf.pages import of_samples
from bayesnmf.pages.reading import Given, read
from bayesnmf.priors.specification import MODELS
from bayesnmf.results.estimates import Draws, Intervals
from bayesnmf.results.storage import check_saved_shapes
from bayesnmf.results.thinning import loadings_table

mpl.use("Agg")
pytestmark = quietly
NAMED = "intervals: bootstrap, 20 replicates"
OPTIONS = {"map": plain_map(max_iter=60, threads=1), "vi": plain_vi(max_iter=60, threads=1)}


@cache
def fit(model="gamma_poisson", method="map"):
    return bayesnmf.fit(COUNTS, model, K, method, seed=0, options=OPTIONS[method])


@cache
def replicated(method="map"):
    return fit(method=method).with_intervals("bootstrap", draws=20)


def sides(made):
    return made.intervals.draws.loadings, made.intervals.draws.components


# --- the replicates -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variance", mostly_long([None, "linear", "quadratic"]))
def test_estimates_of_one_component_have_the_sds_of_sums(variance):
    """A flat loading of one component is the sum of its row, and the component has the shares of the features.

    With 100 replicates an sd has an error of 7 %, and the mean over 40 rows, which are independent, one of 1.1 %; over
    5 shares, of 3 %. Poisson sds would be 9 % too small for the linear variance, and 60 % for the quadratic one.
    """
    rng, noise = np.random.default_rng(0), "poisson"
    counts = rng.poisson(rng.gamma(5.0, 20.0, (40, 1)) * np.array([1.0, 2, 3, 4, 5]))
    noise = NegativeBinomial(variance, 0.2) if variance else "poisson"
    made = bayesnmf.fit(counts, "poisson", 1, "map", seed=0, noise=noise).with_intervals("bootstrap", draws=100)
    means, shares = made.loadings * made.components, made.components[0]
    found = [each[0].std(axis=0) for each in sides(made)]
    if variance == "quadratic":  # the information about the logarithm of a loading, given the component
        weights = means / (1 + 0.2 * means)
        assert np.mean(found[0][:, 0] / made.loadings[:, 0] * np.sqrt(weights.sum(axis=1))) == pytest.approx(
            1, abs=0.05
        )
        return
    more = 1.2 if variance else 1.0
    assert np.mean(found[0][:, 0] / np.sqrt(more * means.sum(axis=1))) == pytest.approx(1, abs=0.04)
    assert np.mean(found[1][0] / np.sqrt(more * shares * (1 - shares) / counts.sum())) == pytest.approx(1, abs=0.1)


def test_shares_of_one_component_have_the_sds_of_a_ratio_of_sums_over_rows():
    """The component of one has the shares Σ_i x_ij / Σ_i N_i, whose sds over other rows are those of x_ij − s_j N_i.

    With 100 replicates an sd has an error of 7 %, and the mean over 5 shares one of 3 %; rows of two kinds make the
    sds of the counts of these rows, which a bootstrap of counts has, 4 times too small. All rows have loadings that are
    drawn given a replicate's component, with the sd of their Poisson counts at least.
    """
    rng = np.random.default_rng(0)
    kinds = np.array([[1.0, 2, 3, 4, 5], [5.0, 4, 3, 2, 1]])[rng.integers(2, size=60)]
    counts = rng.poisson(20 * kinds)
    made = bayesnmf.fit(counts, rank=1, seed=0).with_intervals("bootstrap", draws=100, variation="rows", threads=1)
    loadings, components = (each[0].astype(float) for each in sides(made))
    found = (components / components.sum(axis=2, keepdims=True))[:, 0].std(axis=0)
    shares = counts.sum(axis=0) / counts.sum()
    expected = np.sqrt(((counts - shares * counts.sum(axis=1, keepdims=True)) ** 2).sum(axis=0)) / counts.sum()
    of_counts = np.sqrt(shares * (1 - shares) / counts.sum())
    np.testing.assert_array_less(2 * of_counts[[0, 1, 3, 4]], expected[[0, 1, 3, 4]])
    assert np.mean(found / expected) == pytest.approx(1, abs=0.12)
    assert loadings.shape == (100, 60, 1)
    assert np.mean(loadings.std(axis=0)[:, 0] / made.estimate.sd(made, "loadings")[:, 0]) == pytest.approx(1, abs=0.1)


def test_other_rows_are_named_saved_and_read(tmp_path):
    made = fit(method="vi").with_intervals("bootstrap", draws=8, variation="rows")
    made.save(tmp_path / "fit.nc")
    kept = bayesnmf.load(tmp_path / "fit.nc")
    assert kept.intervals.variation == "rows"
    assert bayesnmf.markers(kept, n=1).attrs["intervals"].startswith("intervals: bootstrap of rows, 8 replicates")
    again = fit(method="vi").with_intervals("bootstrap", draws=8, variation="rows", threads=2)
    for ours, theirs in zip(sides(again), sides(made), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_the_better_of_both_ends_is_kept(monkeypatch):
    """Replicates of rows are fitted from near the estimate, and from the start of the fit; the higher bound decides."""
    made, run, ended = fit(method="vi"), bootstrap.run_once, []

    def remembered(job):
        ended.append(run(job))
        return ended[-1]

    monkeypatch.setattr(bootstrap, "run_once", remembered)
    draws = made.with_intervals("bootstrap", draws=8, variation="rows", threads=1).intervals.draws.components[0]
    assert len(ended) == 16
    for drawn, near, new in zip(draws, ended[::2], ended[1::2], strict=True):
        best = max(near, new, key=lambda each: each.trace[-1]).components
        shares, of_best = (np.sort(each / each.sum(axis=1, keepdims=True), axis=0) for each in (drawn, best))
        np.testing.assert_allclose(shares, of_best, rtol=1e-5, atol=1e-7)  # rounded to float32


def test_estimates_depend_on_the_seed_alone():
    one, two = (fit().with_intervals("bootstrap", draws=n, threads=t) for n, t in ((9, 1), (12, 2)))
    for few, many in zip(sides(one), sides(two), strict=True):
        np.testing.assert_array_equal(few, many[:, :9])
        assert np.ptp(few, axis=1).max() > 0
    other = fit().with_intervals("bootstrap", draws=9, seed=1)
    assert not np.array_equal(sides(other)[0], sides(one)[0])


def test_components_are_in_the_order_of_the_fit_even_where_a_fit_swaps_them(monkeypatch):
    expected = fit().with_intervals("bootstrap", draws=8)
    run, order = bootstrap.run_once, np.array([2, 0, 1])

    def swapped(job):
        found = run(job)
        return replace(found, loadings=found.loadings[:, order], components=found.components[order])

    monkeypatch.setattr(bootstrap, "run_once", swapped)
    for ours, theirs in zip(sides(fit().with_intervals("bootstrap", draws=8)), sides(expected), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(("model", "method"), mostly_long(product(MODELS, ["map", "vi"]), [2, 7]))
def test_every_model_is_replicated_around_its_fit(model, method):
    """Estimates lie on both sides of that of the fit, but for its bias: 2 sds of a mean of 30 are 0.4 sds."""
    counts = bayesnmf.simulate(size=(30, 12), rank=2, totals=2000, seed=3).counts
    made = bayesnmf.fit(counts, model, 2, method, seed=0).with_intervals("bootstrap", draws=30)
    draws = made.intervals.draws
    assert (draws.scale is None) == (made.scale is None)
    for drawn, own in ((draws.loadings[0], made.loadings), (draws.components[0], made.components)):
        assert drawn.shape == (30, *own.shape)
        off, sd = drawn.mean(axis=0) - own, drawn.std(axis=0)
        assert np.median(np.abs(off) / np.maximum(sd, 1e-9)) < 0.5
        assert 0 < np.median(sd / np.maximum(own, 1e-9)) < 0.5
    np.testing.assert_allclose(
        draws.components[0].sum(axis=2), np.tile(made.components.sum(axis=1), (30, 1)), rtol=1e-5
    )
    assert made.intervals.unsettled < 30


def test_best_decompositions_are_replicated():
    made = bayesnmf.fit(COUNTS, "dirichlet_gamma", 2, "bld", seed=0).with_intervals("bootstrap", draws=8)
    share = made.intervals.draws.components[0]
    np.testing.assert_allclose(share.sum(axis=2), 1, rtol=1e-5)
    assert np.abs(share.mean(axis=0) - made.components).max() < 4 * share.std(axis=0).max()


def test_known_components_missing_entries_and_factors_of_batches_are_kept():
    known, observed = np.random.default_rng(0).dirichlet(np.ones(M), 2), np.random.default_rng(1).random((N, M)) < 0.9
    given = {"fixed_components": known, "observed": observed, "batch": ["a", "b"] * (N // 2)}
    made = bayesnmf.fit(COUNTS, rank=K, method="map", seed=0, options=plain_map(max_iter=30), **given)
    draws = made.with_intervals("bootstrap", draws=8).intervals.draws
    np.testing.assert_allclose(draws.components[0, :, :2], np.tile(known, (8, 1, 1)), rtol=1e-6)
    assert np.ptp(draws.components[0, :, 2], axis=0).max() > 0
    assert draws.factors.shape == (1, 8, 2, M)
    assert np.ptp(draws.factors, axis=1).max() > 0
    drawn = replicate_of(made, *made.mean_factors, 0)
    assert drawn.toarray()[~observed].max() == 0


def test_zeros_of_an_estimate_do_not_stay_in_all_replicates():
    """Multiplicative updates from a zero would keep it."""
    components = fit().components.copy()
    components[0, 0] = 0
    made = replace(fit(), components=components / components.sum(axis=1, keepdims=True))
    assert (sides(made.with_intervals("bootstrap", draws=8))[1][0, :, 0, 0] > 0).all()


# --- who reads them -------------------------------------------------------------------------------------------


@cache
def marked():
    """Return a point with estimates of replicates that are all the same, and far from it."""
    rng = np.random.default_rng(5)
    loadings, components = rng.gamma(2.0, 400.0, (N, K)), rng.dirichlet(np.ones(M), K)
    draws = Draws(np.tile(loadings, (1, 20, 1, 1)), np.tile(components, (1, 20, 1, 1)))
    return replace(fit(), intervals=Intervals("bootstrap", draws)), loadings, components


def test_tables_are_of_the_replicates():
    made, loadings, components = marked()
    table = made.summary(rows=["s3"], features=["b"])
    for column in ("median", "eti90_lb", "eti90_ub"):
        np.testing.assert_allclose(table[column].to_numpy(float), [*loadings[3], *components[:, 1]], rtol=0.1)
    assert table.attrs["uncertainty"] == "bootstrap"
    assert table.attrs["note"] == NAMED
    shares = loadings / loadings.sum(axis=1, keepdims=True)
    contrasts = bayesnmf.group_contrasts(made, ["a", "b"] * (N // 2), population=False)
    expected = shares[1::2].mean(axis=0) - shares[::2].mean(axis=0)
    np.testing.assert_allclose(contrasts["difference_low"], expected)
    entries = made.expected(rows=["s3"])
    np.testing.assert_allclose(entries["lower"], loadings[3] @ components)
    adata = made.to_anndata()
    np.testing.assert_allclose(adata.obsm["X_bayesnmf"], shares)
    assert adata.uns["bayesnmf"]["intervals"] == contrasts.attrs["intervals"] == NAMED
    tree = made.to_datatree()
    assert dict(tree["posterior"].sizes)["draw"] == 20
    assert tree.attrs["intervals"] == NAMED
    assert "point_estimate" not in tree.attrs
    assert loadings_table(replicated()).filter(like=" sd").to_numpy().min() > 0
    with pytest.raises(ValueError, match=r"draws must be at most 20, .*with_intervals\('bootstrap', draws=...\)"):
        made.to_datatree(draws=100)


@pytest.mark.parametrize("rank", [1, 2])
def test_nothing_is_known_of_the_shares_of_a_row_without_counts(rank):
    counts = np.array(COUNTS)
    counts[4] = 0  # and so in every replicate
    made = bayesnmf.fit(counts, rank=rank, method="map", seed=0, options=OPTIONS["map"])
    table = made.with_intervals("bootstrap", draws=8).shares()
    assert table.loc[4, ["share", "low", "high"]].to_numpy().tolist() == [[1 / rank, rank == 1, 1]] * rank
    assert (table.loc[3, "high"] - table.loc[3, "low"]).max() < 0.9


def test_figures_and_reports_are_of_the_replicates_and_say_so(monkeypatch):
    made, loadings, _ = marked()
    (ax,) = plots.loadings_intervals(made, ["s3"])
    (points,) = [line for line in ax.lines if line.get_label() == "map (bootstrap)"]
    np.testing.assert_allclose(points.get_ydata(), loadings[3])
    assert ax.figure.get_suptitle().split() == f"Loadings: median and central 90 % interval {NAMED}".split()
    axes = plots.components(made, n_features=M)
    assert NAMED.split()[-3:] == axes[0].figure.get_suptitle().split()[-3:]
    (ax,) = plots.loadings_scatter({"map": made, "other": fit()}, interval=0.5, together=True)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("map (bootstrap), counts", "other, counts")
    monkeypatch.setattr(of_samples, "drawn", lambda *_: "figure")
    section = of_samples.uncertainty(read(made, Given()))
    assert f"{NAMED[:1].upper()}{NAMED[1:]}." in section.text
    assert section.figures == ["figure"]
    assert of_samples.uncertainty(read(fit(), Given())).figures == []
    assert repr(made).endswith(f"\n  {NAMED}>")


def test_markers_of_modes_have_finite_contrasts():
    """A mode is 0 where a component has no counts; a variate of one count stands for what is possible."""
    made = fit().with_intervals("bootstrap", draws=20)
    table = bayesnmf.markers(made, None)
    assert table["lfc_next_high"].max() < 12  # of some 100 counts in a component; 30 without
    assert (table["lfc_next_low"] < table["lfc_next_high"]).all()
    assert table.attrs["intervals"].startswith("intervals: bootstrap, 20 replicates")


def test_what_describes_the_method_stays_with_its_estimate():
    assert replicated("vi").posterior is fit(method="vi").posterior
    with pytest.raises(AttributeError, match="a MAP fit has no posterior"):
        replicated().sample_posterior()
    covariates = pd.DataFrame({"age": np.linspace(-1, 1, N)}, COUNTS.index)
    made = bayesnmf.fit(COUNTS, rank=2, method="map", seed=0, covariates=covariates)
    table = made.with_intervals("bootstrap", draws=8).effects()
    assert "Laplace" in table.attrs["intervals"]
    assert table.equals(made.effects())


def test_fits_that_did_not_converge_are_told():
    made = fit().with_intervals("bootstrap", draws=8)  # 60 plain steps
    assert made.intervals.unsettled == 8
    told = "intervals: bootstrap, 8 replicates; 8 of their fits did not converge"
    assert told in repr(made)
    assert bayesnmf.markers(made, 2).attrs["cautions"] == [told]


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
def test_files_keep_the_replicates(tmp_path, suffix):
    made = replicated()
    made.save(tmp_path / f"fit{suffix}")
    again = bayesnmf.load(tmp_path / f"fit{suffix}")
    for ours, theirs in zip(sides(made), sides(again), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert again.intervals.unsettled == made.intervals.unsettled
    assert again.summary(rows=["s0"]).equals(made.summary(rows=["s0"]))
    with pytest.raises(ValueError, match="intervals beside a point are bootstrap: found 'sampled'"):
        check_saved_shapes(replace(made, intervals=replace(made.intervals, kind="sampled")))


# --- what cannot have them, and what ends early -----------------------------------------------------------------


REFUSED = {
    "the fit is by gibbs; read the intervals of its draws": lambda: bayesnmf.fit(
        COUNTS, rank=2, method="gibbs", seed=0, options=Gibbs(chains=1, warmup=2, draws=8)
    ),
    "its components are held from another fit; fit with fixed_components=": lambda: fit().project(COUNTS),
    "ask the fit of all, then for the matrix": lambda: bayesnmf.fit(
        {"x": COUNTS.iloc[:, :4], "y": COUNTS.iloc[:, 4:]}, rank=2, method="map", seed=0
    ).matrix("x"),
    "need a distribution of the counts, which noise='quasi' is not": lambda: bayesnmf.fit(
        COUNTS, rank=2, method="map", seed=0, noise="quasi"
    ),
    "fit without weights": lambda: bayesnmf.fit(
        {"x": COUNTS.iloc[:, :4], "y": COUNTS.iloc[:, 4:]}, rank=2, method="map", seed=0, weights={"x": 2, "y": 1}
    ),
    "draws must be at least 8": lambda: None,
}
REFUSED_OF_ROWS = {
    "the fit is by map, and other rows need q of the loadings": lambda: fit(),
    "its rows are in batches, or have covariates or priors of their own": lambda: bayesnmf.fit(
        COUNTS, rank=2, seed=0, batch=["a", "b"] * (len(COUNTS) // 2), options=plain_vi(max_iter=5)
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_fits_that_cannot_be_repeated_are_refused_with_the_cure(why):
    made = REFUSED[why]()
    with pytest.raises(ValueError, match=why):
        (made or fit()).with_intervals("bootstrap", draws=20 if made else 7)


@pytest.mark.parametrize("why", REFUSED_OF_ROWS)
def test_fits_of_which_other_rows_say_nothing_are_refused_with_the_cure(why):
    with pytest.raises(ValueError, match=f"{why}.*; variation='counts' keeps the rows"):
        REFUSED_OF_ROWS[why]().with_intervals("bootstrap", variation="rows")


def test_only_replicates_vary_by_rows():
    with pytest.raises(ValueError, match=r"found intervals='sampled'; use fit.with_intervals\('bootstrap', variation"):
        fit(method="vi").with_intervals("sampled", variation="rows")
    with pytest.raises(ValueError, match="variation must be one of 'counts', 'rows'"):
        fit(method="vi").with_intervals("bootstrap", variation="row")


def test_counts_on_disk_are_refused(tmp_path):
    made = bayesnmf.fit(Blocks(COUNTS.to_numpy(), scratch=tmp_path), rank=2, method="map", seed=0)
    with pytest.raises(ValueError, match="its counts are on disk; fit some of the rows in memory"):
        made.with_intervals("bootstrap")


def test_it_is_no_option_of_vi():
    with pytest.raises(ValueError, match="intervals must be one of 'auto', 'sampled', 'response', 'mean_field'"):
        VI(intervals="bootstrap")
    assert replicated("vi").options.intervals == "mean_field"
    assert replicated("vi").with_intervals("mean_field").intervals is None
    assert replicated("vi").with_intervals("auto").intervals is replicated("vi").intervals


def test_ctrl_c_keeps_what_has_ended_if_it_is_enough(monkeypatch):
    make, whole = bootstrap._replicate, sides(replicated())

    def interrupted_at(number):
        def one(fit, seeds, of_counts, place, tick):
            if place == number:
                raise KeyboardInterrupt
            return make(fit, seeds, of_counts, place, tick)

        monkeypatch.setattr(bootstrap, "_replicate", one)

    interrupted_at(10)
    with pytest.warns(FitWarning, match="interrupted after 10 of 20 replicates, of which its intervals are"):
        made = fit().with_intervals("bootstrap", draws=20, threads=1)
    for ours, theirs in zip(sides(made), whole, strict=True):
        np.testing.assert_array_equal(ours, theirs[:, :10])
    interrupted_at(5)
    with pytest.raises(KeyboardInterrupt):
        fit().with_intervals("bootstrap", draws=20, threads=1)


def test_progress_is_told():
    told = []
    fit().with_intervals("bootstrap", draws=8, threads=1, progress=lambda *each: told.append(each[:3]))
    assert told == [("bootstrap", done, 8) for done in range(1, 9)]
