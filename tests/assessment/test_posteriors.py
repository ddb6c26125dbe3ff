"""Posteriors of one model by several methods: they agree where they must, and the table tells where they do not."""

import warnings
from dataclasses import replace
from functools import cache

import matplotlib.pyplot as plt
import numpy as np
import pytest
from plain import plain_vi

import bayesnmf
from bayesnmf import MAP, NUTS, SVI, VI, Dirichlet, Gamma, Gibbs, Priors, ScaledDirichlet, Start, plots
from bayesnmf.assessment.agreement import COLUMNS, QUANTITIES, choose_entries, draw_quantities, values_of_truth
from bayesnmf.priors import ScaledProportions
from bayesnmf.results.estimates import Draws
from bayesnmf.results.relabelling import relabel

N, M, K = SIZE = (30, 8, 2)
# Each component has half of the features; about 100 counts a row, which chains mix on.
APART = np.where(np.arange(M) // 4 == np.arange(K)[:, None], 3.0, 0.5)
PRIORS = {
    "poisson": Priors(Gamma(1.0, 0.3), Gamma(APART, 1.0)),
    "gamma_poisson": Priors(Gamma(1.5, 0.03), Dirichlet(APART)),
    "dirichlet_poisson": Priors(Dirichlet(1.0), Dirichlet(APART)),
    "dirichlet_gamma": Priors(ScaledDirichlet(1.0, 4.0, 0.04), Dirichlet(APART)),
}
every_model = pytest.mark.parametrize("model", PRIORS)


@cache
def drawn(model, seed=1):
    totals = 100 if model == "dirichlet_poisson" else None
    return bayesnmf.simulate(model, (N, M), K, priors=PRIORS[model], totals=totals, seed=seed)


def fit(model, method, options, seed=1):
    """Fit the model that the counts were drawn from, started at the truth: priors tell the components apart."""
    truth = drawn(model, seed)
    loadings = truth.loadings if truth.scale is None else ScaledProportions(truth.loadings, truth.scale[:, None])
    options = replace(options, priors=PRIORS[model], start=Start(loadings, truth.components))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bayesnmf.ConvergenceWarning)  # judged here, by R-hat and ESS of every entry
        return bayesnmf.fit(truth.counts, model, K, method, seed=2, options=options)


OPTIONS = {
    "map": MAP(basis="log", algorithm="em", extrapolate=False, threads=1),
    "vi": VI(algorithm="coordinate", extrapolate=False, tol=1e-9, threads=1, intervals="mean_field"),
    "gibbs": Gibbs(chains=2, warmup=50, draws=200, thin=2, threads=1),
}
LONG = {
    "gibbs": Gibbs(chains=2, warmup=200, draws=800, thin=10),
    "nuts": NUTS(chains=2, warmup=300, draws=2000),
}


@cache
def fits(model):
    """Return a fit by each method, with shorter chains in place of those of NUTS."""
    made = {method: fit(model, method, options) for method, options in OPTIONS.items()}
    other = fit(model, "gibbs", replace(OPTIONS["gibbs"], draws=100))
    return {**made, "nuts": replace(other, method="nuts", options=NUTS(chains=2, draws=100, priors=PRIORS[model]))}


FEW = N * K  # entries of each kind: all loadings, all components, some of the expected counts


@cache
def agreement(model):
    return bayesnmf.posterior_agreement(fits(model), reference="gibbs", truth=drawn(model), entries=FEW)


# --- the posteriors -----------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("model", ["poisson", "dirichlet_gamma"])
def test_gibbs_and_nuts_agree_within_monte_carlo_error(model):
    both = {method: fit(model, method, options) for method, options in LONG.items()}
    table = bayesnmf.posterior_agreement(both, reference="gibbs", truth=drawn(model)).table.loc["nuts"]
    assert table["min_ess"].min() > 100  # or it says nothing; two models, four seeds each: above 350
    # Entries hang together: by chance the ratio exceeds 2 as one z score exceeds 2 if all move as one, 2.5 in 1 of 80;
    # 6 of them here, of fixed seeds.
    assert np.all(table["difference"] < 2.5 * table["by_chance"])
    assert np.all(table["by_chance"] < 0.25)
    # An sd from 60 independent draws is good to 9 %; entries share their errors.
    assert np.all(np.abs(np.log(table["sd_ratio"])) < 0.27)
    assert np.all(np.abs(table["mass"] - 0.9) < 0.06)


def is_too_sure_of_itself(row):
    """Assert what a row of the table shows of a mean field."""
    assert row["sd_ratio"] < 0.95
    assert row["mass"] < 0.89
    # No theorem bounds how far off its means are: 1.5 sds of the components here, a correlation of 0.95 (poisson).
    assert row["correlation"] > 0.93
    assert row["difference"] < 2


@pytest.mark.parametrize("model", ["poisson", "dirichlet_gamma"])
def test_a_mean_field_is_too_sure_of_itself(model):
    for quantity in ("loadings", "components"):
        is_too_sure_of_itself(agreement(model).table.loc[("vi", quantity)])


@pytest.mark.long
def test_a_mean_field_by_svi_is_too_sure_of_itself():
    made = fits("gamma_poisson")
    svi = fit("gamma_poisson", "svi", SVI(max_iter=500, learning_rate=0.02))
    table = bayesnmf.posterior_agreement({"gibbs": made["gibbs"], "vi": made["vi"], "svi": svi}, "gibbs").table
    for quantity in ("loadings", "components"):
        is_too_sure_of_itself(table.loc[("svi", quantity)])
    # The marginal bound lets q be wider than the bound with the allocations in q does.
    assert table.loc[("svi", "loadings"), "sd_ratio"] > table.loc[("vi", "loadings"), "sd_ratio"] - 0.02


@every_model
def test_true_values_are_compared_with_draws_of_the_same_things(model):
    """Draws that are the truth, with the components in either order, have exactly its loadings, components, counts."""
    made, truth = fit(model, "gibbs", Gibbs(chains=1, warmup=2, draws=8, threads=1)), drawn(model)
    scale = None if truth.scale is None else truth.scale[None, None]
    at_truth = Draws(truth.loadings[None, None], truth.components[None, None], scale)
    exact = replace(made, components=truth.components, estimate=at_truth)
    for reference in (exact, replace(exact, components=truth.components[::-1])):
        chosen = choose_entries(made, 12, 0)
        found = draw_quantities(replace(exact), reference, chosen, 0)
        for name, values in values_of_truth(truth, reference, chosen).items():
            np.testing.assert_allclose(found[name][0, 0], values, rtol=1e-12)
    shares = truth.components / truth.components.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(values_of_truth(truth, exact, chosen)["components"], shares[:, chosen.features].ravel())
    entries = truth.means[np.ix_(chosen.rows, chosen.features)].ravel()
    assert set(values_of_truth(truth, exact, chosen)["expected counts"].round(9)) <= set(entries.round(9))


# --- the table ----------------------------------------------------------------------------------------


def test_the_table_is_what_it_says():
    """Every column of one row, computed here from the draws themselves."""
    made, truth = fits("dirichlet_gamma"), drawn("dirichlet_gamma")
    row = agreement("dirichlet_gamma").table.loc[("nuts", "loadings")]
    draws = {name: made[name].posterior for name in ("gibbs", "nuts")}
    theirs, ours = ((d.loadings * d.scale[..., None]).reshape(-1, N * K) for d in (draws["gibbs"], draws["nuts"]))
    assert row["entries"] == N * K
    assert row["correlation"] == pytest.approx(np.corrcoef(ours.mean(0), theirs.mean(0))[0, 1])
    sd = theirs.std(0, ddof=1)
    assert row["difference"] == pytest.approx(np.sqrt(np.mean(((ours.mean(0) - theirs.mean(0)) / sd) ** 2)))
    ratios = ours.std(0, ddof=1) / sd
    for name, level in (("sd_ratio_low", 0.05), ("sd_ratio", 0.5), ("sd_ratio_high", 0.95)):
        assert row[name] == pytest.approx(np.quantile(ratios, level))
    low, high = np.quantile(ours, [0.05, 0.95], axis=0)
    assert row["mass"] == pytest.approx(np.mean((theirs >= low) & (theirs <= high)))
    true = (truth.loadings * truth.scale[:, None]).ravel()
    assert row["coverage"] == pytest.approx(np.mean((true >= low) & (true <= high)))


def test_error_by_chance_is_that_of_q_where_draws_are_independent():
    made = {"one": fits("gamma_poisson")["vi"], "two": replace(fits("gamma_poisson")["vi"], seed=5)}
    row = bayesnmf.posterior_agreement(made, seed=3).table.loc[("two", "loadings")]
    assert row["by_chance"] == pytest.approx(np.sqrt(2 / 4000), rel=0.02)
    assert row["difference"] == pytest.approx(0, abs=1e-12)  # the same q and the same seed


def test_the_order_of_components_changes_nothing():
    """Components in another order change nothing, and of Gamma components the scale changes nothing."""
    made = {"gibbs": fits("poisson")["gibbs"], "vi": relabel(fits("poisson")["vi"], np.array([1, 0]))}
    table = bayesnmf.posterior_agreement(made, truth=drawn("poisson"), entries=FEW).table.loc["vi"]
    wanted = agreement("poisson").table.loc["vi"]
    assert table["correlation"].to_numpy() == pytest.approx(wanted["correlation"].to_numpy(), abs=1e-3)
    chosen = choose_entries(made["gibbs"], 10_000, 0)
    for values in (
        draw_quantities(made["gibbs"], made["gibbs"], chosen, 0),
        values_of_truth(drawn("poisson"), made["gibbs"], chosen),
    ):
        shares = values["components"].reshape(*values["components"].shape[:-1], K, M)
        np.testing.assert_allclose(shares.sum(axis=-1), 1)
        entries = values["loadings"].reshape(*shares.shape[:-2], N, K) @ shares
        np.testing.assert_allclose(values["expected counts"], entries.reshape(*entries.shape[:-2], -1))


def test_points_take_part_with_their_means_alone():
    row = agreement("dirichlet_gamma").table.loc["map"]
    assert np.all(row["correlation"] > 0.99)
    assert row[["sd_ratio", "mass", "coverage", "min_ess"]].isna().all(axis=None)
    options = plain_vi(priors=Priors(PRIORS["gamma_poisson"].loadings, "parameter"), threads=1, max_iter=200)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bayesnmf.ConvergenceWarning)
        free = bayesnmf.fit(drawn("gamma_poisson").counts, rank=K, seed=0, options=options)
    both = {"gibbs": fits("gamma_poisson")["gibbs"], "free": free}
    table = bayesnmf.posterior_agreement(both, entries=FEW).table.loc["free"]
    assert np.isnan(table.loc["components", "sd_ratio"])
    assert table.loc["loadings", "sd_ratio"] > 0


def test_entries_of_empty_rows_are_left_out():
    """The loadings of an empty row are 0 given its total: such entries are left out."""
    counts = drawn("dirichlet_poisson").counts.matrix.toarray()
    counts[3], counts[:, 5] = 0, 0
    options = {"vi": plain_vi(threads=1), "gibbs": Gibbs(start="random", chains=1, draws=40, warmup=20, threads=1)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bayesnmf.ConvergenceWarning)
        made = {m: bayesnmf.fit(counts, "dirichlet_poisson", K, m, seed=0, options=o) for m, o in options.items()}
    found = bayesnmf.posterior_agreement(made)
    table = found.table
    assert table.loc[("vi", "loadings"), "entries"] == (N - 1) * K
    assert table.loc[("vi", "expected counts"), "entries"] == (N - 1) * M
    assert np.isfinite(table.drop(columns=["by_chance", "max_r_hat", "min_ess"])).all(axis=None)
    assert found.reference == "gibbs"
    assert any(caution.startswith("gibbs: R-hat") for caution in found.cautions)


def test_a_few_entries_of_many():
    found = bayesnmf.posterior_agreement(fits("gamma_poisson"), entries=10, seed=4)
    assert found.table["entries"].max() <= 10
    assert found.table.loc[("nuts", "loadings"), "entries"] == 10
    assert found.reference == "nuts"


def test_a_wrong_posterior_is_found():
    """Chains under another prior differ by more than chance: the comparison has teeth."""
    wrong = replace(PRIORS["dirichlet_gamma"], loadings=ScaledDirichlet(6.0, 4.0, 0.04))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bayesnmf.ConvergenceWarning)
        other = bayesnmf.fit(drawn("dirichlet_gamma").counts, "dirichlet_gamma", K, "gibbs", seed=2,
                             options=replace(OPTIONS["gibbs"], start="random", priors=wrong))  # fmt: skip
    row = bayesnmf.posterior_agreement({"nuts": fits("dirichlet_gamma")["nuts"], "gibbs": other}, entries=FEW).table
    row = row.loc[("gibbs", "loadings")]
    assert row["difference"] > 3 * row["by_chance"]


def test_components_under_each_others_priors_are_told():
    made = {method: fits("gamma_poisson")[method] for method in ("vi", "gibbs")}
    swapped = {**made, "gibbs": replace(relabel(made["gibbs"], np.array([1, 0])), priors=made["gibbs"].priors)}
    cautions = bayesnmf.posterior_agreement(swapped, "vi", truth=drawn("gamma_poisson"), entries=5).cautions
    (told,) = [caution for caution in cautions if "another order" in caution]
    assert told.startswith("gibbs: its components match those of vi")
    assert not any("another order" in caution for caution in agreement("gamma_poisson").cautions)
    truth = bayesnmf.posterior_agreement(swapped, "gibbs", truth=drawn("gamma_poisson"), entries=5).cautions
    assert any("truth's in another order" in caution for caution in truth)


def test_the_text_names_everything_and_is_saved_beside_the_table(tmp_path):
    found = agreement("dirichlet_gamma")
    text = repr(found)
    assert text.count("90%") == 2
    assert all(word in text for name in ("mass in", "truth in", *QUANTITIES, *OPTIONS) for word in name.split())
    assert max(map(len, text.splitlines())) <= 90
    written = found.save(tmp_path / "new")
    assert [path.name for path in written] == ["agreement.csv", "agreement.txt"]
    assert written[1].read_text(encoding="utf-8") == text + "\n"
    assert list(found.table.columns) == list(COLUMNS)


def others():
    """Counts of the same size, names and distribution, and yet others."""
    return drawn("gamma_poisson", 2).counts


def test_other_priors_and_other_truths_are_told():
    made = {method: fits("gamma_poisson")[method] for method in ("gibbs", "vi")}

    def told_of(changed, **given):
        return bayesnmf.posterior_agreement(changed, "gibbs", entries=5, **given).cautions

    flat = replace(made["vi"], priors=Priors(Gamma(1.0, 0.03), Dirichlet(APART)))
    (told,) = [c for c in told_of({**made, "vi": flat}) if "its priors" in c]
    assert told.startswith("vi: its priors differ from those of gibbs")
    moved = relabel(made["vi"], np.array([1, 0]))  # its priors go along
    assert not any("its priors" in c for c in told_of({**made, "vi": moved}))
    truth = drawn("gamma_poisson")
    for other, words in (
        (replace(truth, priors=flat.priors), "drawn from other priors"),
        (replace(truth, model="poisson"), "drawn from poisson: intervals under gamma_poisson"),
    ):
        (told,) = [c for c in told_of(made, truth=other) if "truth" in c]
        assert words in told
    assert not any("truth" in c for c in agreement("gamma_poisson").cautions)


def test_fits_of_a_short_run_and_of_ambiguous_draws_are_told():
    made = fits("gamma_poisson")
    doubtful = replace(made["gibbs"], diagnostics={"ambiguous_draws": 0.4})
    stopped = replace(made["vi"], status=made["vi"].status._replace(converged=False, reason="all 3 iterations done"))
    cautions = bayesnmf.posterior_agreement({"gibbs": doubtful, "vi": stopped}).cautions
    assert any(c.startswith("gibbs: in 40% of the draws") for c in cautions)
    assert "vi did not converge: all 3 iterations done; raise max_iter or tol in bayesnmf.VI(...)" in cautions


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda made: {"fits": made["vi"]}, "fits must map labels to fits.* found a Fit; give every fit a label"),
        (lambda made: {"fits": [made["vi"], made["map"]]}, "found a list; give every fit a label in a dict"),
        (lambda made: {"fits": {"vi": made["vi"].counts}}, "found a mapping of Counts; give"),
        (lambda made: {"fits": {"a": made["vi"], "b": replace(made["vi"], counts=others())}}, "of the same counts"),
        (
            lambda made: {"fits": made, "truth": drawn("gamma_poisson", 2)},
            "truth must be the simulation of the fitted counts",
        ),
        (lambda made: {"fits": {}}, "fits must not be empty"),
        (lambda made: {"fits": {"a": made["vi"], "b": fits("dirichlet_gamma")["vi"]}}, "same model"),
        (lambda made: {"fits": {"a": made["vi"], "b": replace(made["vi"], rank=3)}}, "same rank"),
        (lambda made: {"fits": {"map": made["map"]}}, "reference must be .* found none"),
        (lambda made: {"fits": made, "reference": "map"}, "reference must be .* found 'map'"),
        (lambda made: {"fits": made, "reference": "hmc"}, "reference must be"),
        (lambda made: {"fits": made, "truth": made["vi"]}, "truth must be a result of bayesnmf.simulate"),
        (lambda made: {"fits": made, "truth": bayesnmf.simulate(size=(4, 4), rank=2)}, "truth must have the size"),
        (lambda made: {"fits": made, "interval": 1.0}, "interval must be below 1"),
        (lambda made: {"fits": made, "entries": 0}, "entries must be at least 1"),
    ],
)
def test_nonsense_is_refused(change, message):
    arguments = change(fits("gamma_poisson"))
    with pytest.raises((TypeError, ValueError), match=message):
        bayesnmf.posterior_agreement(arguments.pop("fits"), **arguments)


# --- figures ------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def test_figure_of_agreement_shows_means_and_sds():
    made = fits("gamma_poisson")
    axes = plots.posterior_agreement(made, "gibbs")
    assert axes.shape == (2, 2)
    axes[0, 0].figure.canvas.draw()
    gibbs, vi = made["gibbs"].posterior.loadings.reshape(-1, N * K), made["vi"].posterior.loadings
    for ax, (across, up) in zip(
        axes[:, 0], [(gibbs.mean(0), vi.mean()), (gibbs.std(0, ddof=1), np.sqrt(vi.variance()))], strict=True
    ):
        (points,) = [line for line in ax.lines if line.get_label() == "vi"]
        assert points.get_color() == plots.METHOD_COLOURS["vi"]
        np.testing.assert_allclose(points.get_xdata(), across)
        np.testing.assert_allclose(points.get_ydata(), np.ravel(up), rtol=0.12)  # 4,000 draws: 1.6 % of an sd each
    labels = {ax: {line.get_label() for line in ax.lines} for ax in axes.flat}
    assert all("gibbs" not in found and "nuts" in found for found in labels.values())
    assert "map" in labels[axes[0, 1]]
    assert "map" not in labels[axes[1, 1]]
    with pytest.raises(ValueError, match="fits must contain a fit besides the reference"):
        plots.posterior_agreement({"vi": made["vi"]})
    with pytest.raises(ValueError, match="of the same counts"):
        plots.posterior_agreement({**made, "vi": replace(made["vi"], counts=others())})


def test_a_scatter_shows_means_and_intervals_of_loadings():
    made = fits("dirichlet_gamma")
    pair = {"gibbs": made["gibbs"], "vi": relabel(made["vi"], np.array([1, 0])), "map": made["map"]}
    axes = plots.loadings_scatter(pair, interval=0.8)
    assert len(axes) == K
    draws = made["gibbs"].posterior
    counts = draws.loadings * draws.scale[..., None]
    for k, ax in enumerate(axes):
        points = ax.lines[0]
        np.testing.assert_allclose(points.get_xdata(), made["gibbs"].expected_loadings[:, k])
        np.testing.assert_allclose(points.get_ydata(), made["vi"].expected_loadings[:, k])
        ends = np.array(ax.collections[0].get_segments())[:, :, 0]
        np.testing.assert_allclose(ends.T, np.quantile(counts[..., k], [0.1, 0.9], axis=(0, 1)))
        assert len(ax.collections) == 2
        assert ax.get_title().startswith(f"component {k}, r = ")
    (one,) = plots.loadings_scatter(pair, "vi", "map", interval=0.5, together=True)
    assert len(one.collections) == K  # a point has no intervals
    assert (one.get_xlabel(), one.get_ylabel()) == ("vi (mean field), counts", "map, counts")
    one.figure.canvas.draw()
    _, given = plt.subplots(1, K)
    assert list(plots.loadings_scatter(pair, axes=given)) == list(given)


def test_scatter_refuses_what_it_cannot_pair():
    made = fits("dirichlet_gamma")
    with pytest.raises(ValueError, match="fits must be at least two"):
        plots.loadings_scatter({"vi": made["vi"]})
    with pytest.raises(ValueError, match="x must be one of"):
        plots.loadings_scatter(made, x="hmc")
    fewer = replace(made["vi"], counts=made["vi"].counts.rows(np.arange(5)))
    with pytest.raises(ValueError, match="same rows"):
        plots.loadings_scatter({"one": made["vi"], "two": fewer})
    with pytest.raises(ValueError, match="same counts"):
        plots.loadings_scatter({"one": made["vi"], "two": replace(made["vi"], counts=others())})
