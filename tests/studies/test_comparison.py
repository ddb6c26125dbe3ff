"""`compare`: what is measured of each fit, what is refused before any of them, and what is left after Ctrl-C."""

from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import arviz as az
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from plain import plain_vi
from scipy.special import gammaln, xlogy
from suites import mostly_long

import bayesnmf
from bayesnmf import MAP, NUTS, SVI, VI, Dirichlet, Gamma, Gibbs, Priors
from bayesnmf.assessment.bounds import elbo_augmented, elbo_marginal
from bayesnmf.assessment.scoring import background, pit_coverage, score
from bayesnmf.fitting import chains
from bayesnmf.inference import alignment
from bayesnmf.priors.specification import MODELS, on_simplex
from bayesnmf.results.estimates import Draws
from bayesnmf.studies.comparison import comparing, measures
from bayesnmf.studies.comparison.comparing import NOTE, Settings, compare
from bayesnmf.studies.comparison.measures import MEASURES, align, reference_of

every_model = pytest.mark.parametrize("model", mostly_long(MODELS, [list(MODELS).index("gamma_poisson")]))

N, M, K = 30, 12, 2
METHODS = ("map", "vi", "gibbs")
OPTIONS = {
    "map": MAP(start="svd", threads=1),
    "vi": VI(start="svd", threads=1),
    "gibbs": Gibbs(start="random", chains=2, warmup=100, draws=50, threads=1),
    "svi": SVI(max_iter=100),
    "nuts": NUTS(chains=1, warmup=10, draws=10),
}
QUICK = Settings(options=OPTIONS)
# Of fits that need not converge.
UNFINISHED = {
    "map": MAP(start="svd", max_iter=20, threads=1),
    "vi": VI(start="svd", max_iter=20, threads=1),
    "gibbs": Gibbs(start="random", chains=2, warmup=5, draws=5, threads=1),
}
SHORT = {"gibbs": {"chains": 1, "warmup": 20, "draws": 10}, "nuts": {"chains": 1, "warmup": 10, "draws": 10},
         "svi": {"max_iter": 100}}  # fmt: skip
ALWAYS = {"seconds", "loglik", "heldout_thinned", "heldout_withheld", "floored_entries", "coverage90", "cosine",
          "cosine_min", "loadings_corr", "cosine_other_start"}  # fmt: skip


def simulate(seed=0):
    """Counts of two clear components, named."""
    rng = np.random.default_rng(seed)
    components = np.array([[4.0] * 6 + [0.2] * 6, [0.2] * 6 + [4.0] * 6])
    counts = rng.poisson(rng.gamma(1.0, 1.0, (N, K)) @ components)
    return pd.DataFrame(counts, [f"s{i}" for i in range(N)], [f"f{j}" for j in range(M)])


COUNTS = simulate()


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    """Short runs from other starts, and scores that are means of few draws."""
    monkeypatch.setattr(comparing, "DISPERSED", SHORT)
    monkeypatch.setattr(measures, "MOST_SCORE_DRAWS", 200)


@pytest.fixture
def without_figures(monkeypatch):
    """Figures are most of the work of writing a comparison."""
    monkeypatch.setattr(comparing, "figures", lambda *_: [])


_kept = {}


@pytest.fixture
def compared():
    """Results by model, each made once."""

    def of(model="gamma_poisson"):
        if model not in _kept:
            _kept[model] = compare(COUNTS, model, K, METHODS, seed=1, settings=QUICK)
        return _kept[model]

    return of


def run(methods=METHODS, counts=COUNTS, model="gamma_poisson", rank=K, **settings):
    front = {name: settings.pop(name) for name in ("seed", "out", "progress") if name in settings}
    return compare(counts, model, rank, methods, settings=Settings(**{"options": OPTIONS, **settings}), **front)


# --- the table --------------------------------------------------------------------------------------


LAST = "cosine_other_start"
BEHIND = [f"heldout_{kind}_behind{more}" for kind in ("thinned", "withheld") for more in ("", "_se")]


@every_model
def test_every_measure_is_there_and_finite(compared, model):
    result = compared(model)
    table = result.table
    assert list(table.index) == list(result.fits) == list(METHODS)
    assert list(table.columns) == [*(name for name in MEASURES if name in table and name != LAST), LAST]
    determined = on_simplex(result.fits["vi"].priors.components)  # otherwise the loadings have no scale to compare
    assert set(table.columns) == ALWAYS | {
        "heldout_thinned_error", "heldout_withheld_error", *BEHIND,
        "elbo_augmented", "elbo_marginal", "elbo_marginal_se", "min_ess", "max_r_hat"
    } | ({"held", "held_response"} if determined else set())  # fmt: skip
    wanted = {method: set(ALWAYS) for method in METHODS}
    errors = {"heldout_thinned_error", "heldout_withheld_error", *BEHIND}
    for method in METHODS:
        wanted[method] |= errors
    wanted["vi"] |= {"elbo_augmented", "elbo_marginal", "elbo_marginal_se"}
    if determined:
        wanted["vi"] |= {"held", "held_response"}
    wanted["gibbs"] |= {"min_ess", "max_r_hat"}
    for method in METHODS:
        present = set(table.columns[np.isfinite(table.loc[method].to_numpy(float))])
        assert present == wanted[method]
    assert table["seconds"].min() > 0
    assert table["coverage90"].between(0.8, 1).all()  # 324 entries: 0.9 within 6 standard errors
    assert (table["heldout_thinned"] < -np.log(6) + 0.1).all()  # no better than knowing the component
    assert (table["heldout_thinned"] > -np.log(12)).all()  # better than knowing nothing


@every_model
def test_both_bounds_are_there_and_in_their_order(compared, model):
    row = compared(model).table.loc["vi"]
    assert row["elbo_marginal_se"] > 0
    assert row["elbo_marginal"] >= row["elbo_augmented"] - 4 * row["elbo_marginal_se"]
    fitted = compared(model).fits["vi"]
    np.testing.assert_allclose(row["elbo_augmented"], fitted.trace[-1], rtol=1e-10)
    np.testing.assert_allclose(row["elbo_augmented"], elbo_augmented(fitted), rtol=1e-12)
    again = elbo_marginal(fitted, seed=99)  # other draws, the same number
    assert abs(again.mean - row["elbo_marginal"]) < 4.5 * np.hypot(again.se, row["elbo_marginal_se"])


def test_bounds_need_a_variational_fit(compared):
    for bound in (elbo_augmented, elbo_marginal):
        with pytest.raises(ValueError, match=r"an evidence lower bound needs a fit by method='vi' or .*: .* 'gibbs'"):
            bound(compared().fits["gibbs"])


@pytest.mark.parametrize("model", MODELS)
def test_likelihoods_are_those_of_a_naive_computation(compared, model):
    result = compared() if model == "gamma_poisson" else run(("map",), model=model, dispersed=False)
    counts = result.split.train.matrix.toarray()
    for method, fitted in result.fits.items():
        loadings = fitted.loadings if fitted.scale is None else fitted.loadings * fitted.scale[:, None]
        if model == "dirichlet_poisson":
            loadings = loadings * counts.sum(axis=1, keepdims=True)
        means = loadings @ fitted.components
        expected = np.sum(xlogy(counts, means) - means - gammaln(counts + 1))
        np.testing.assert_allclose(result.table.loc[method, "loglik"], expected, rtol=1e-10)


@every_model
def test_scores_are_those_of_the_fits_on_what_was_set_aside(compared, model):
    result = compared(model)
    split, frequencies = result.split, background(result.split.train)
    assert split.train.shape[0] == 27
    assert split.withheld.shape[0] == 3
    total = sum(part.total for part in (split.train, split.thinned, split.seen, split.withheld))
    assert total == COUNTS.to_numpy().sum()
    for method, fitted in result.fits.items():
        row = result.table.loc[method]
        assert fitted.counts.total == split.train.total  # nothing held out was trained on
        thinned = score(fitted, split.thinned, frequencies, 200, 1, 200)
        withheld = score(fitted.project(split.seen, seed=1), split.withheld, frequencies, 200, 1, 200)
        # Sums over components in another order round otherwise, and q draws in the order of the components.
        assert row["heldout_thinned"] == pytest.approx(thinned.per_count, rel=1e-9)
        assert row["heldout_withheld"] == pytest.approx(withheld.per_count, rel=1e-9)
        assert row["floored_entries"] == thinned.floored + withheld.floored
        assert row["coverage90"] == pytest.approx(pit_coverage(fitted, split.thinned, 100, 1))


@every_model
def test_diagnostics_are_the_worst_of_all_parts(compared, model):
    fitted, row = compared(model).fits["gibbs"], compared(model).table.loc["gibbs"]
    draws = fitted.posterior
    parts = [fitted.trace[..., None], draws.components.reshape(2, 50, -1), draws.loadings.reshape(2, 50, -1)]
    r_hats = [np.nanmax(az.rhat(part, chain_axis=0, draw_axis=1)) for part in parts]
    sizes = [np.nanmin(az.ess(part, chain_axis=0, draw_axis=1)) for part in parts]
    assert row["max_r_hat"] == pytest.approx(max(r_hats))  # 27 rows are fewer than 50: all are looked at
    assert row["min_ess"] == pytest.approx(min(sizes))


# --- alignment --------------------------------------------------------------------------------------


@every_model
def test_components_are_in_the_order_of_the_reference(compared, model):
    result = compared(model)
    assert reference_of(result.fits) == "gibbs"
    reference = result.fits["gibbs"].components
    for method, fitted in result.fits.items():
        similar = alignment.cosine(fitted.components, reference)
        assert np.all(np.diag(similar) > 0.9)
        assert np.all(similar[~np.eye(K, dtype=bool)] < 0.5)
        row = result.table.loc[method]
        assert row["cosine"] == pytest.approx(np.diag(similar).mean())
        assert row["cosine_min"] == pytest.approx(np.diag(similar).min())
        ours, theirs = (f.expected_loadings * f.components.sum(axis=1) for f in (fitted, result.fits["gibbs"]))
        assert row["loadings_corr"] == pytest.approx(np.corrcoef(ours.ravel(), theirs.ravel())[0, 1])
    assert result.table.loc["gibbs", ["cosine", "cosine_min", "loadings_corr"]].to_numpy(float) == pytest.approx(1)


def test_a_fit_whose_components_are_swapped_is_put_in_order(compared):
    from bayesnmf.results.relabelling import relabel

    fits = dict(compared().fits)
    swapped = align({**fits, "map": relabel(fits["map"], np.array([1, 0]))})
    np.testing.assert_array_equal(swapped["map"].components, fits["map"].components)
    np.testing.assert_array_equal(swapped["map"].loadings, fits["map"].loadings)


@pytest.mark.parametrize(
    ("names", "reference"),
    [
        (("map", "vi", "svi", "gibbs", "nuts"), "nuts"),
        (("map", "vi", "svi", "gibbs"), "gibbs"),
        (("map", "svi", "vi"), "vi"),
        (("map", "svi"), "svi"),
        (("map",), "map"),
    ],
)
def test_the_reference_is_the_most_exact_method(names, reference):
    assert reference_of({f"by {name}": SimpleNamespace(method=name) for name in names}) == f"by {reference}"


def test_runs_from_other_starts_find_the_same_components_here(compared):
    """Two clear components; and without dispersed starts there is no such column."""
    assert compared().table["cosine_other_start"].min() > 0.95
    labels = []
    result = run(("map", "gibbs"), dispersed=False, progress=lambda label, *_: labels.append(label))
    assert "cosine_other_start" not in result.table
    assert set(labels) == {"map gamma_poisson", "gibbs gamma_poisson", "scoring"}
    assert not any("another start" in caution for caution in result.cautions)


def test_other_starts_are_random_and_of_another_seed(monkeypatch):
    """With as long a run as the first, a sampler gets another start, another seed and the short schedule.

    First it starts from the fit by vi that the table shows.
    """
    asked, made = [], []
    plain = comparing.fit

    def noted(*arguments, **settings):
        asked.append((arguments[3], settings["seed"], settings["options"]))
        made.append(plain(*arguments, **settings))
        return made[-1]

    monkeypatch.setattr(comparing, "fit", noted)
    run(
        ("vi", "gibbs"),
        seed=5,
        rank=1,
        withhold=0.0,
        options={**OPTIONS, "gibbs": replace(OPTIONS["gibbs"], start="fit")},
    )
    assert [(method, seed) for method, seed, _ in asked] == [("vi", 5), ("gibbs", 5), ("vi", 6), ("gibbs", 6)]
    first, other = asked[1][2], asked[3][2]
    assert first.start is made[0]
    assert other.start == "random"
    assert (first.chains, first.draws) == (2, 50)
    assert (other.chains, other.draws, other.warmup) == (1, 10, 20)
    assert asked[2][2].max_iter == OPTIONS["vi"].max_iter


# --- what a reader must know ------------------------------------------------------------------------


def test_short_chains_and_unfinished_ascents_are_cautioned_against():
    options = {"map": MAP(start="svd", max_iter=3), "gibbs": Gibbs(start="random", chains=2, warmup=0, draws=10)}
    result = run(("map", "gibbs"), options=options, dispersed=False)
    map_, *gibbs = result.cautions
    assert map_ == "map did not converge: all 3 iterations done; raise max_iter or tol in bayesnmf.MAP(...)"
    assert any(c.startswith("gibbs: ESS ") and c.endswith(" < 100; raise draws") for c in gibbs)
    row = result.table.loc["gibbs"]
    told = any(c.startswith(f"gibbs: R-hat {row['max_r_hat']:.2f} > 1.05; raise warmup") for c in gibbs)
    assert told == (row["max_r_hat"] > 1.05)
    assert told
    for caution in result.cautions:
        assert f"CAUTION {caution}" in " ".join(str(result).split())


@pytest.mark.parametrize(("chains", "draws"), [(2, 3), (1, 1), (1, 4)])
def test_too_few_draws_to_judge_are_cautioned_against(chains, draws):
    options = {"gibbs": Gibbs(start="random", chains=chains, warmup=5, draws=draws)}
    result = run(("gibbs",), options=options, dispersed=False)
    assert result.table.loc["gibbs", "max_r_hat"] == np.inf
    assert result.table.loc["gibbs", "min_ess"] == 0
    assert len(result.cautions) == 2


def test_divergences_are_cautioned_against(compared):
    from bayesnmf.studies.comparison.measures import cautions_of_all

    fitted = replace(compared().fits["gibbs"], method="nuts", diagnostics={"divergences": 3.0})
    row = {"max_r_hat": 1.0, "min_ess": 500.0}
    assert cautions_of_all({"nuts": fitted}, {"nuts": row}) == ["nuts: 3 divergences; raise target_accept"]


def test_good_chains_need_no_caution():
    options = {**OPTIONS, "gibbs": Gibbs(start="random", chains=2, warmup=50, draws=200, threads=1)}
    result = run(("map", "vi", "gibbs"), rank=1, options=options, dispersed=False, withhold=0.0)
    assert result.cautions == []
    assert not result.interrupted


# --- report and files -------------------------------------------------------------------------------


def test_the_report_has_every_heading_and_the_notes(compared):
    result = compared()
    text = result.details()
    for measure, (_, heading, _) in MEASURES.items():
        of_smc = measure.startswith("log_evidence")
        assert (measure in result.table) != of_smc
        assert (heading in text) != of_smc or heading == "  ± se"
    for word in ("gamma_poisson, rank 2: 27 samples × 12 features", "map", "vi", "gibbs", "nats", "–"):
        assert word in text
    assert f"gibbs: {NOTE}" in text
    split = result.split
    assert f"{split.train.total:,.0f} counts trained on, {split.thinned.total:,.0f} thinned" in text
    assert f"3 new samples: {split.seen.total:,.0f} counts seen, {split.withheld.total:,.0f} predicted" in text
    assert f"{result.table.loc['vi', 'elbo_augmented']:,.1f}" in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_the_report_without_chains_and_without_withheld_samples():
    text = run(("map",), withhold=0.0, dispersed=False).details()
    assert NOTE not in text
    assert "new samples" not in text
    assert "new rows" not in text
    assert "min ESS" not in text


@pytest.mark.usefixtures("without_figures")
@pytest.mark.parametrize("model", mostly_long(["gamma_poisson", "dirichlet_gamma"]))
def test_saved_files_can_be_read(compared, tmp_path, model):
    result = compared(model)
    written = result.save(tmp_path / "deep" / "results")
    names = {path.name for path in written}
    assert {"compare.nc", "table.csv", "report.txt"} < names
    assert {f"{side}_{method}.csv" for side in ("loadings", "components") for method in METHODS} < names
    assert (tmp_path / "deep" / "results" / "report.txt").read_text(encoding="utf-8") == result.details() + "\n"
    table = pd.read_csv(written[1], index_col="method")
    pd.testing.assert_frame_equal(table, result.table, check_dtype=False)
    with xr.open_datatree(written[0], engine="h5netcdf") as tree:
        assert set(tree.children) == {"comparison", *METHODS}
        sizes = {name: dict(tree[f"{name}/posterior"].sizes) for name in METHODS}
        assert (sizes["map"]["chain"], sizes["map"]["draw"]) == (1, 1)
        assert (sizes["vi"]["chain"], sizes["vi"]["draw"]) == (4, 250)
        assert (sizes["gibbs"]["chain"], sizes["gibbs"]["draw"]) == (2, 50)
        np.testing.assert_array_equal(tree["comparison"]["method"].values.astype(str), METHODS)
        np.testing.assert_allclose(tree["comparison"]["loglik"], result.table["loglik"])
        draws = result.fits["gibbs"].posterior
        np.testing.assert_allclose(tree["gibbs/posterior"]["components"], draws.components)
        assert list(tree["map/posterior"]["feature"].values.astype(str)) == list(COUNTS.columns)
    again = az.from_netcdf(written[0])
    assert set(again.children) == {"comparison", *METHODS}


@pytest.mark.long
def test_every_picture_is_saved(compared, tmp_path):
    pictures = [path for path in compared().save(tmp_path) if path.suffix == ".png"]
    assert {path.stem for path in pictures} == {"components", "objectives", "agreement", "loadings_intervals",
                                                "chains_gibbs"}  # fmt: skip
    for path in pictures:
        assert path.stat().st_size > 5_000
        assert path.read_bytes().startswith(b"\x89PNG")


def test_every_picture_of_several_methods_is_named(compared):
    assert comparing.figures_of(compared(), None).keys() == {
        "components", "objectives", "agreement", "loadings_intervals", "chains_gibbs"
    }  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
def test_one_method_alone_can_be_saved(tmp_path, method):
    """A sampler has no objective to draw, a point no intervals."""
    pictures = {"map": {"objectives"}, "vi": {"objectives", "loadings_intervals"},
                "gibbs": {"loadings_intervals", "chains_gibbs"}}[method]  # fmt: skip
    result = run((method,), dispersed=False, withhold=0.0, options=UNFINISHED)
    assert comparing.figures_of(result, None).keys() == {"components"} | pictures
    if method == "map":  # the others are drawn of all three methods
        written = result.save(tmp_path)
        assert {path.stem for path in written if path.suffix == ".png"} == {"components"} | pictures
        assert all(path.stat().st_size > 0 for path in written)
        assert all(path.read_bytes().startswith(b"\x89PNG") for path in written if path.suffix == ".png")


def test_fits_are_saved_as_soon_as_each_is_done(tmp_path):
    seen = {}

    def look(label, *_):
        seen.setdefault(label, sorted(path.name for path in (tmp_path / "new" / "fits").glob("*.nc")))

    result = run(("map", "gibbs"), out=tmp_path / "new", progress=look, seed=1, withhold=0.0, options=UNFINISHED)
    assert seen["map gamma_poisson"] == []
    assert seen["gibbs gamma_poisson"] == ["map.nc"]
    assert seen["map gamma_poisson, other start"] == ["gibbs.nc", "map.nc"]
    for method, fitted in result.fits.items():
        loaded = bayesnmf.load(tmp_path / "new" / "fits" / f"{method}.nc")
        assert loaded.method == method
        order = alignment.match_components(loaded.components, fitted.components)  # saved before they were aligned
        np.testing.assert_array_equal(loaded.components[order], fitted.components)
        np.testing.assert_array_equal(loaded.loadings[:, order], fitted.loadings)
        assert loaded.trace[-1] == pytest.approx(fitted.trace[-1])


# --- seeds, settings, refusals ----------------------------------------------------------------------


def test_results_follow_the_seed():
    one, two = (run(METHODS, COUNTS[:12], seed=1, options=UNFINISHED) for _ in range(2))
    columns = [column for column in one.table if column != "seconds"]
    pd.testing.assert_frame_equal(one.table[columns], two.table[columns])
    for method in METHODS:
        np.testing.assert_array_equal(one.fits[method].components, two.fits[method].components)
    other = run(("map",), COUNTS[:12], seed=2, dispersed=False, options=UNFINISHED)
    assert list(other.split.train.row_names) != list(one.split.train.row_names)
    assert other.table.loc["map", "heldout_thinned"] != one.table.loc["map", "heldout_thinned"]


def test_all_methods_have_the_same_priors():
    priors = Priors(Gamma(2.0, 0.5), Dirichlet(1.5))
    options = {**UNFINISHED, "map": MAP(priors=Priors(Gamma(9.0, 9.0)), start="svd", max_iter=20)}
    result = run(METHODS, priors=priors, options=options, dispersed=False, withhold=0.0)
    for fitted in result.fits.values():
        assert fitted.priors.loadings.shape == 2.0
        assert fitted.priors.loadings.rate == 0.5
        assert fitted.priors.components.concentration == 1.5
    # By default they are those of the counts trained on, once for all.
    result = run(("map", "vi"), dispersed=False, withhold=0.0, options=UNFINISHED)
    assert len({float(fitted.priors.loadings.rate) for fitted in result.fits.values()}) == 1


def test_held_out_fractions_are_as_asked():
    result = run(("map",), keep=0.5, withhold=0.3, dispersed=False)
    assert result.split.seen.shape[0] == 9
    total = result.split.train.total + result.split.thinned.total
    assert abs(result.split.train.total - 0.5 * total) < 4.5 * 0.5 * np.sqrt(total)
    by_row = Priors(Gamma(1.0, np.linspace(0.1, 0.2, N)[:, None]))  # new samples would have none
    result = run(("map",), withhold=0, dispersed=False, priors=by_row)
    assert result.split.seen is None
    assert "heldout_withheld" not in result.table


@pytest.mark.parametrize(
    ("error", "rule", "settings"),
    [
        (ValueError, "keep must be below 1: found 1", {"keep": 1}),
        (ValueError, "keep must be positive and finite: found 0", {"keep": 0}),
        (ValueError, "keep must be positive and finite: found nan", {"keep": np.nan}),
        (TypeError, "keep must be a positive number, not 'all'", {"keep": "all"}),
        (ValueError, "withhold must be below 1: found 1.5", {"withhold": 1.5}),
        (ValueError, "withhold must be at least 0 and finite: found -0.1", {"withhold": -0.1}),
        (ValueError, "options must be one of 'map', .*: found 'gibs'; did you mean 'gibbs'", {"options": {"gibs": 1}}),
        (TypeError, r"options must be bayesnmf.VI\(...\) for method='vi': found MAP", {"options": {"vi": MAP()}}),
    ],
)
def test_settings_that_make_no_sense_are_refused(error, rule, settings):
    with pytest.raises(error, match=rule):
        Settings(**settings)


@contextmanager
def refused(error, rule, monkeypatch):
    """The error comes before anything was fitted."""

    def never(*_, **__):
        pytest.fail("a fit was begun")

    monkeypatch.setattr(comparing, "fit", never)
    with pytest.raises(error, match=rule):
        yield


@pytest.mark.parametrize(
    ("error", "rule", "arguments"),
    [
        (ValueError, "methods must be one of .*: found 'mcmc'", {"methods": ["map", "mcmc"]}),
        (ValueError, "methods must be one of .*: found 'gibs'; did you mean 'gibbs'", {"methods": "gibs"}),
        (ValueError, r"methods must name at least one, and none twice: found \['vi', 'vi'\]", {"methods": ["vi"] * 2}),
        (ValueError, r"methods must name at least one, and none twice: found \[\]", {"methods": []}),
        (ValueError, r"methods must be one of .*: found \['map'\]", {"methods": [["map"]]}),
        (TypeError, "methods must be a list of words, not None", {"methods": None}),
        (ValueError, "model must be one of .*: found 'lda'", {"model": "lda"}),
        (ValueError, "rank must be at least 1: found 0", {"rank": 0}),
        (TypeError, "rank must be a whole number", {"rank": 2.0}),
        (ValueError, "seed must be at least 0: found -1", {"seed": -1}),
        (TypeError, "seed must be a whole number", {"seed": None}),
        (TypeError, "settings must be bayesnmf.Settings.*found {'keep': 0.5}", {"settings": {"keep": 0.5}}),
        (ValueError, r"counts must be whole numbers for compare, which thins them: found 0\.5 at row 0, column 0",
         {"counts": np.full((4, 4), 0.5), "methods": ["vi"]}),
        (ValueError, "counts must be nonnegative", {"counts": -np.ones((4, 4))}),
        (ValueError, r"counts must be at most 2\*\*53 for compare, which thins", {"counts": np.full((4, 4), 1e18)}),
        (ValueError, r"priors.loadings.rate differs between rows, .*withheld samples \(withhold=0\)",
         {"settings": Settings(priors=Priors(Gamma(1.0, np.linspace(0.1, 1, 27)[:, None])))}),
        (ValueError, "method='gibbs' needs a prior of the components",
         {"settings": Settings(priors=Priors(components="parameter"))}),
        (ValueError, r"the posterior of model='gamma_poisson' needs proper priors: found .* in priors.components",
         {"settings": Settings(priors=Priors(components=Gamma(1.0, 0.0)))}),
        (ValueError, "priors.loadings must be Gamma or HierarchicalGamma for model='gamma_poisson'",
         {"settings": Settings(priors=Priors(Dirichlet(1.0)))}),
        (ValueError, r"priors.components.concentration must broadcast to \(2, 12\): found shape \(5,\)",
         {"settings": Settings(priors=Priors(components=Dirichlet(np.ones(5))))}),
        (ValueError, "basis='natural' needs priors.components at 1 or above",
         {"settings": Settings(Priors(components=Dirichlet(0.5)), options={"map": MAP(basis="natural")})}),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_before_any_fit(error, rule, arguments, monkeypatch):
    with refused(error, rule, monkeypatch):
        compare(**{"counts": COUNTS, "rank": K, "methods": METHODS, **arguments})


def test_a_file_in_the_place_of_the_folder_is_refused_before_any_fit(monkeypatch, tmp_path):
    (tmp_path / "taken").write_text("mine")
    with refused(ValueError, "out must be a folder that can be written to", monkeypatch):
        compare(COUNTS, rank=K, methods=METHODS, out=tmp_path / "taken")
    assert (tmp_path / "taken").read_text() == "mine"


def test_options_are_the_given_ones_then_those_of_compare_then_those_of_the_method():
    settings = Settings(options={"vi": VI(max_iter=7), "gibbs": Gibbs(chains=7)})
    assert settings.of("vi").max_iter == 7
    assert settings.of("gibbs").chains == 7
    assert Settings().of("gibbs").draws == comparing.DEFAULTS["gibbs"].draws
    assert Settings().of("nuts").draws == comparing.DEFAULTS["nuts"].draws
    assert Settings().of("map").max_iter == MAP().max_iter


DEGENERATE = [np.zeros((5, 4)), np.full((6, 1), 5), np.full((1, 4), 5), np.eye(6)]


@pytest.mark.parametrize(
    ("counts", "model"),
    mostly_long([(DEGENERATE[(i + j) % 4], model) for i in range(4) for j, model in enumerate(MODELS)], len(MODELS)),
)
def test_degenerate_counts_are_compared_without_warnings(counts, model):
    """Warnings are errors: nothing divides by nothing, and what does not exist is missing."""
    result = run(METHODS, counts, model, options=UNFINISHED, dispersed=False)
    held_out = result.split.thinned.total > 0  # else there is nothing to score
    assert (np.isfinite(result.table[["heldout_thinned", "coverage90"]].to_numpy(float)) == held_out).all()
    assert np.isfinite(result.table["loglik"]).all()
    assert str(result)


# --- Ctrl-C -----------------------------------------------------------------------------------------


def stop_at(label, after=2):
    """A progress report that presses Ctrl-C in its own way, at the n-th report of a fit."""
    told = []

    def report(said, *_):
        told.append(said)
        if told.count(label) == after and said == label:
            raise KeyboardInterrupt

    return report


def interrupted(methods, label, after=2, **settings):
    try:
        return run(methods, progress=stop_at(label, after), **settings)
    except KeyboardInterrupt:  # or it would end the whole suite
        return pytest.fail("what there was is lost")


def test_ctrl_c_in_the_second_method_leaves_both_and_no_more(tmp_path):
    options = {**OPTIONS, "vi": VI(threads=1)}
    label = "vi gamma_poisson"
    result = interrupted(("map", "vi", "gibbs"), label, out=tmp_path, options=options)
    assert list(result.fits) == list(result.table.index) == ["map", "vi"]
    assert result.fits["vi"].status.reason == "interrupted"
    assert result.fits["vi"].status.iterations <= 2
    assert "vi was interrupted; its numbers describe the state at that point" in result.cautions
    assert "gibbs is left out: interrupted before it had a result" in result.cautions
    assert "interrupted: no run from another start for map, vi" in result.cautions
    assert np.isfinite(result.table["heldout_withheld"].to_numpy()).all()
    assert "cosine_other_start" not in result.table
    assert sorted(path.name for path in (tmp_path / "fits").iterdir()) == ["map.nc", "vi.nc"]
    assert "CAUTION vi was interrupted" in str(result)
    assert result.interrupted


def test_ctrl_c_while_chains_warm_up_leaves_the_fits_before():
    """Of the sampler there is nothing yet."""
    result = interrupted(("map", "gibbs"), "gibbs gamma_poisson")
    assert list(result.fits) == ["map"]
    assert "gibbs is left out: interrupted before it had a result" in result.cautions


def test_ctrl_c_while_the_start_of_chains_is_sought_leaves_the_fits_before(monkeypatch):
    """The closed-form fit they start from would keep what it has, and the chains would run all the same."""
    plain = chains.fit_closed_form

    def stopped(job):
        fitted = plain(replace(job, options=plain_vi(priors=job.options.priors, max_iter=5)))
        return replace(fitted, status=fitted.status._replace(converged=False, reason="interrupted"))

    monkeypatch.setattr(chains, "fit_closed_form", stopped)
    result = run(("map", "gibbs"), options={**OPTIONS, "gibbs": replace(OPTIONS["gibbs"], start="fit")})
    assert list(result.fits) == ["map"]
    assert "gibbs is left out: interrupted before it had a result" in result.cautions


def test_ctrl_c_while_chains_draw_keeps_the_draws_there_are():
    options = {**OPTIONS, "gibbs": Gibbs(start="random", chains=1, warmup=10, draws=1_000, threads=1)}
    result = interrupted(("map", "gibbs"), "gibbs gamma_poisson", after=60, options=options)
    assert list(result.fits) == ["map", "gibbs"]
    assert 40 <= result.fits["gibbs"].posterior.draws <= 50
    assert "gibbs was interrupted; its numbers describe the state at that point" in result.cautions


def test_ctrl_c_in_a_run_from_another_start_leaves_all_fits():
    result = interrupted(("map", "vi"), "vi gamma_poisson, other start")
    assert list(result.fits) == ["map", "vi"]
    assert all(fitted.status.converged for fitted in result.fits.values())
    other = result.table["cosine_other_start"]
    assert np.isfinite(other["map"])
    assert np.isnan(other["vi"])
    assert result.cautions == ["interrupted: no run from another start for vi"]
    assert result.interrupted


@pytest.mark.usefixtures("without_figures")
@pytest.mark.parametrize("scored", [0, 1, 2])
def test_ctrl_c_while_scoring_keeps_the_rows_that_are_done(scored, tmp_path):
    result = interrupted(("map", "vi"), "scoring", after=scored + 1)
    assert list(result.fits) == list(result.table.index) == ["map", "vi"]
    missing = ["map", "vi"][scored:]
    caution = f"interrupted: not scored: {', '.join(missing)}" if missing else "interrupted after all scores"
    assert result.cautions == [caution]
    assert result.interrupted
    assert np.isfinite(result.table["seconds"]).all()
    if scored:
        np.testing.assert_array_equal(np.isnan(result.table["heldout_thinned"]), [scored <= n for n in range(2)])
    result.save(tmp_path)
    assert f"CAUTION {caution}" in " ".join((tmp_path / "report.txt").read_text(encoding="utf-8").split())


def test_ctrl_c_before_there_is_anything_is_passed_on():
    options = {"gibbs": Gibbs(start="random", chains=1, warmup=50, draws=10, threads=1)}
    with pytest.raises(KeyboardInterrupt):
        run(("gibbs", "map"), progress=stop_at("gibbs gamma_poisson"), options=options)


# --- with the NumPyro programs ----------------------------------------------------------------------


def test_draws_by_a_program_are_those_of_chains_and_the_reference(compared):
    """Of chains that are said to be by nuts."""
    fits = compared().fits
    result = replace(compared(), fits={"map": fits["map"], "nuts": replace(fits["gibbs"], method="nuts")})
    result = replace(result, table=result.table.loc[["map", "gibbs"]].rename({"gibbs": "nuts"}))
    assert f"nuts: {NOTE}" in result.details()
    assert "last rows: against nuts" in " ".join(str(result).split())
    assert comparing.figures_of(result, None).keys() >= {"agreement", "chains_nuts"}


def test_a_fit_by_noisy_gradients_is_measured_as_one_by_vi(compared):
    fitted = compared().fits["vi"]
    noisy = replace(fitted, method="svi", options=OPTIONS["svi"])
    assert elbo_augmented(noisy) == elbo_augmented(fitted)
    assert elbo_marginal(noisy, seed=1) == elbo_marginal(fitted, seed=1)


@pytest.mark.long
def test_svi_is_compared_as_vi_is():
    result = run(("vi", "svi"), dispersed=False)
    rows = result.table
    assert np.isfinite(rows.loc["svi", ["elbo_augmented", "elbo_marginal", "heldout_withheld"]].to_numpy(float)).all()
    # Started from vi, it ascends the marginal bound; 100 noisy steps lose little of it.
    slack = 4 * np.hypot(*rows["elbo_marginal_se"]) + 0.01 * abs(rows.loc["vi", "elbo_marginal"])
    assert rows.loc["svi", "elbo_marginal"] > rows.loc["vi", "elbo_marginal"] - slack
    svi = rows.loc["svi"]
    assert svi["elbo_marginal"] >= svi["elbo_augmented"] - 4 * svi["elbo_marginal_se"]
    assert svi["cosine"] > 0.99
    assert result.fits["svi"].trace.max() < 0, "a bound of the log-probability of counts"


@pytest.mark.long
def test_nuts_is_the_reference_and_cautioned_against_when_short(tmp_path):
    result = run(("map", "nuts"), dispersed=False)
    assert isinstance(result.fits["nuts"].posterior, Draws)
    assert result.table.loc["nuts", "cosine"] == pytest.approx(1)
    assert result.table.loc["map", "cosine"] > 0.9
    assert any(caution.startswith("nuts: ESS") for caution in result.cautions)
    assert f"nuts: {NOTE}" in result.details()
    assert "last rows: against nuts" in " ".join(str(result).split())
    assert "chains_nuts.png" in {path.name for path in result.save(tmp_path)}
