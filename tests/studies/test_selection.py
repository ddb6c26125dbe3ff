"""Models and ranks ranked by held-out counts."""

import warnings
from dataclasses import replace
from functools import cache

import matplotlib.pyplot as plt
import numpy as np
import pytest
from plain import even_priors
from smallfits import COUNTS, plain_bounds

import bayesnmf
from bayesnmf import MAP, SMC, VI, Dirichlet, Gamma, Gibbs, Priors, Start, plots
from bayesnmf.assessment.scoring import background, score
from bayesnmf.data.splitting import split_counts
from bayesnmf.inference.status import ConvergenceWarning
from bayesnmf.studies.selection import by_evidence, held_out
from bayesnmf.studies.selection.criterion import Candidate
from bayesnmf.studies.selection.held_out import HIDDEN, hidden_features, predict_hidden

RANKS, MODELS = (2, 3, 4), ("gamma_poisson", "dirichlet_poisson")
OPTIONS = VI(max_iter=300, threads=1, tol=1e-5)
DRAWS = 50  # of each posterior that is scored


@pytest.fixture(autouse=True)
def _few_draws(monkeypatch):
    monkeypatch.setattr(held_out, "SCORE_DRAWS", DRAWS)
    monkeypatch.setattr(held_out, "MOST_SCORE_DRAWS", DRAWS)


@pytest.fixture(autouse=True)
def _plain_bound(monkeypatch):
    plain_bounds(monkeypatch)


@cache
def drawn():
    priors = Priors(Gamma(1.0, 0.02), Dirichlet(0.3))
    return bayesnmf.simulate("gamma_poisson", (60, 15), 3, priors=priors, seed=2)


@cache
def selected():
    return bayesnmf.select(drawn().counts, MODELS, RANKS, splits=2, options=OPTIONS, seed=5, criterion="heldout")


def test_the_rank_that_was_simulated_is_found():
    found = selected()
    assert found.best.rank == 3
    assert found.one_standard_error.rank == 3
    assert not found.interrupted
    fitted = bayesnmf.fit(drawn().counts, *found.best, seed=0, options=OPTIONS)
    assert (fitted.model, fitted.rank) == found.best


def with_even_priors(counts, model, rank):
    return replace(OPTIONS, priors=even_priors(counts.matrix.toarray(), model, rank))


def test_scores_are_those_of_fits_to_the_same_thinned_counts():
    found = selected()
    counts = bayesnmf.data.conversion.as_counts(drawn().counts)
    for number in range(2):
        split = split_counts(counts, 0.8, 0.2, np.random.default_rng([5, number]))
        for model, rank in (("gamma_poisson", 4), ("dirichlet_poisson", 3)):
            options = with_even_priors(split.train, model, rank)
            fitted = bayesnmf.fit(split.train, model, rank, seed=5 + number, options=options)
            wanted = score(fitted, split.thinned, background(split.train), DRAWS, 5 + number, DRAWS)
            np.testing.assert_allclose(found.scores.loc[number, (model, rank)], wanted.per_count, rtol=1e-14)


def pooled(logs, counted):
    """Return a ratio of sums over rows and its standard error, by resampling formulas written out."""
    value = sum(logs) / sum(counted)
    left = [log - value * count for log, count in zip(logs, counted, strict=True) if count]
    return value, np.sqrt(len(left) / (len(left) - 1) * sum(x * x for x in left)) / sum(counted)


def test_the_table_pools_rows_over_splits_and_pairs_differences():
    found, counts = selected(), bayesnmf.data.conversion.as_counts(drawn().counts)
    chosen = {found.best: [], ("gamma_poisson", 2): []}
    for number in range(2):
        split = split_counts(counts, 0.8, 0.2, np.random.default_rng([5, number]))
        for candidate, by_split in chosen.items():
            options = with_even_priors(split.train, *candidate)
            fitted = bayesnmf.fit(split.train, *candidate, seed=5 + number, options=options)
            frequencies, one = background(split.train), {name: np.zeros((2, 60)) for name in ("", "rows_")}
            thinned = score(fitted, split.thinned, frequencies, DRAWS, 5 + number, DRAWS)
            one[""][:, split.rows] = thinned.rows, split.thinned.row_totals
            hidden = hidden_features(fitted.components.shape[1], np.random.default_rng([5 + number, HIDDEN]))
            rows = counts.rows(split.withheld_rows)
            one["rows_"][:, split.withheld_rows] = predict_hidden(fitted, rows, hidden, frequencies, 5 + number)
            by_split.append(one)
    for name in ("", "rows_"):
        best, other = (np.sum([one[name] for one in by_split], axis=0) for by_split in chosen.values())
        line = found.table.loc[("gamma_poisson", 2)]
        np.testing.assert_allclose(line[[f"{name}mean", f"{name}se"]].astype(float), pooled(*other))
        if not name or found.best == found.best_for_rows:
            gap = pooled(other[0] - best[0], other[1])
            shown = line[[f"{name}difference", f"{name}difference_se"]].astype(float)
            np.testing.assert_allclose(shown, gap, rtol=1e-9)
    assert found.table["difference"].max() == 0
    others = found.table.drop(found.best)  # paired differences vary less than scores do, which is what pairing is for
    assert np.median(others["difference_se"]) < 0.5 * np.median(others["se"])
    text = repr(found)
    assert "best" in text
    assert "2 splits" in text
    flat = " ".join(text.split())
    assert "one se: the smallest rank that falls short of the best by at most one standard error of the paired" in flat
    assert f"{found.table.loc[found.best, 'mean']:.4f} ± {found.table.loc[found.best, 'se']:.4f}" in text


def test_no_row_is_withheld_if_none_is_asked_for():
    found = bayesnmf.select(
        drawn().counts, ranks=[1, 2], options=OPTIONS, splits=1, withhold=0, check=False, criterion="heldout"
    )
    assert found.table["rows_mean"].isna().all()
    assert found.best_for_rows is None
    assert "withheld rows" not in repr(found)
    rows = Priors(Gamma(np.full((60, 1), 1.0), 0.02), Dirichlet(0.3))
    options = VI(priors=rows, start="svd", max_iter=50)
    with pytest.raises(ValueError, match=r"differs between rows.*withhold=0"):
        bayesnmf.select(drawn().counts, ranks=2, options=options, criterion="heldout")
    assert bayesnmf.select(drawn().counts, ranks=2, options=options, withhold=0, splits=1, check=False).best.rank == 2


def test_one_standard_error_prefers_the_smaller_rank():
    import pandas as pd

    index = pd.MultiIndex.from_tuples([("a", 2), ("a", 5), ("b", 2), ("b", 3)], names=["model", "rank"])
    mean = np.array([-3.0, -2.0, -2.2, -2.05])
    table = pd.DataFrame(
        {"mean": mean, "se": 1.0, "difference": mean + 2.0, "difference_se": [0.1, 0.0, 0.1, 0.1]}, index
    )
    make = bayesnmf.Selection
    # every mean is within the standard error of the best mean: the differences are what is known better
    assert make(table, pd.DataFrame(), ("a", 5), "vi", 0.8, False).one_standard_error == ("b", 3)
    table["difference_se"] = [0.1, 0.0, 0.3, 0.1]
    assert make(table, pd.DataFrame(), ("a", 5), "vi", 0.8, False).one_standard_error == ("b", 2)
    table["difference_se"] = np.nan  # of a single split
    assert make(table, pd.DataFrame(), ("a", 5), "vi", 0.8, False).one_standard_error == ("a", 5)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("map", MAP(start="svd", max_iter=50, threads=1)),
        ("gibbs", Gibbs(start="random", chains=1, draws=30, warmup=30, threads=1)),
    ],
)
def test_one_split_by_another_method_has_scores(method, options):
    found = bayesnmf.select(COUNTS, "dirichlet_gamma", [2], method, splits=1, options=options, criterion="heldout")
    assert found.best == ("dirichlet_gamma", 2)
    assert (found.table["se"] > 0).all()  # over rows
    text = repr(found)
    assert (
        f"by {method}, trained on 80% of the counts, 1 split\n" in "\n".join(map(str.strip, text.splitlines())) + "\n"
    )
    assert f"{found.table['mean'].iloc[0]:.4f} ± {found.table['se'].iloc[0]:.4f}" in text
    assert "nan" not in text
    one = bayesnmf.select(
        COUNTS[:1] + 1, ranks=[1, 2], method=method, splits=1, options=options, check=False, criterion="heldout"
    )
    assert np.isnan(one.table["se"]).all()
    assert "a single row has no standard error" in repr(one)


def interrupted(at, **settings):
    def stop(label, done, total, objective):
        if done == at:
            raise KeyboardInterrupt

    options = MAP(start="svd", max_iter=50, threads=1)
    return bayesnmf.select(
        COUNTS,
        ranks=[1, 2, 3],
        method="map",
        options=options,
        progress=stop,
        check=False,
        **settings,
        criterion="heldout",
    )


def test_interruption_keeps_complete_splits():
    found = interrupted(4)
    assert found.interrupted
    assert found.scores.shape == (1, 3)
    assert list(found.table["fits"]) == [1, 1, 1]
    assert "interrupted" in repr(found)
    first = interrupted(2)  # of the first split, what there is
    assert list(first.scores.columns) == [("gamma_poisson", 1), ("gamma_poisson", 2)]
    np.testing.assert_array_equal(first.scores, found.scores.iloc[:, :2])
    with pytest.raises(KeyboardInterrupt):
        interrupted(0)
    assert not interrupted(10).interrupted
    last = interrupted(9)  # nothing is left to fit, and nothing is lost
    assert last.interrupted
    assert last.scores.shape == (3, 3)


@pytest.mark.parametrize("method", ["map", "vi"])
def test_interruption_in_the_last_report_of_a_fit_ends_the_loop(method):
    """The fit has converged, and its result is kept all the same."""

    def stop(label, done, total, objective):
        if done == total:
            raise KeyboardInterrupt

    options = (VI if method == "vi" else MAP)(start="svd", max_iter=3000, tol=1e-4, threads=1)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        fitted = bayesnmf.fit(COUNTS, rank=2, method=method, seed=0, options=options, progress=stop)
    assert not fitted.status.converged
    assert fitted.status.reason == "interrupted"
    uninterrupted = bayesnmf.fit(COUNTS, rank=2, method=method, seed=0, options=options)
    np.testing.assert_array_equal(fitted.loadings, uninterrupted.loadings)


def test_a_best_rank_at_the_edge_of_those_tried_is_told_of():
    found = selected()
    assert found.cautions == []
    assert "CAUTION" not in repr(found)
    largest, smallest = (replace(found, best=Candidate(MODELS[0], rank)) for rank in (max(RANKS), min(RANKS)))
    assert largest.cautions[0].startswith(
        f"the best rank, {max(RANKS)}, is the largest that was tried: try larger ones"
    )
    assert "CAUTION the best rank" in " ".join(repr(largest).split())
    assert plots.selection(largest).get_title().endswith(f"the best rank, {max(RANKS)}, is the largest that was tried")
    assert bool(smallest.cautions) == (min(RANKS) > 1)
    inner = replace(found, table=found.table.loc[[found.best]])
    assert inner.cautions == []  # a single rank was no choice
    plt.close("all")


def test_counts_models_ranks_and_options_that_cannot_be_are_refused():
    fractions = COUNTS + 0.5
    priors = VI(priors=Priors(Gamma(1.0, 1.0)))
    cases = [
        (ValueError, "counts must be whole numbers for select", fractions, {}),
        (ValueError, "models must be one of", COUNTS, {"models": "lda"}),
        (ValueError, "ranks must name at least one", COUNTS, {"ranks": []}),
        (ValueError, "none twice", COUNTS, {"ranks": [2, 2]}),
        (ValueError, "ranks must be at least 1", COUNTS, {"ranks": 0}),
        (TypeError, "ranks must be a whole number", COUNTS, {"ranks": "3"}),
        (TypeError, r"options must be bayesnmf.VI\(...\)", COUNTS, {"options": MAP()}),
        (ValueError, "keep must be below 1", COUNTS, {"keep": 1.0}),
        (ValueError, "splits must be at least 1", COUNTS, {"splits": 0}),
        (ValueError, "priors.loadings must be Dirichlet", COUNTS, {"models": MODELS, "options": priors}),
        (ValueError, "bld", COUNTS, {"method": "bld"}),
    ]
    for error, message, counts, settings in cases:
        with pytest.raises(error, match=message):
            bayesnmf.select(counts, **{"ranks": [2], **settings})


def test_the_figure_shows_every_score():
    found = selected()
    ax = plots.selection(found)
    assert [text.get_text() for text in ax.get_legend().get_texts()][:2] == ["best", "smallest within one se"]
    drawn_lines = {bars.get_label(): bars.lines[0] for bars in ax.containers}
    for model in MODELS:
        np.testing.assert_allclose(drawn_lines[model].get_ydata(), found.table["mean"].loc[model])
        np.testing.assert_allclose(drawn_lines[model].get_xdata(), RANKS, atol=0.3)
    rings = [line for line in ax.lines if line.get_label() == "best"]
    assert rings[0].get_ydata()[0] == found.table.loc[found.best, "mean"]
    given = plt.subplots()[1]
    assert plots.selection(found, axes=given) is given
    plt.close("all")
    with pytest.raises(TypeError, match=r"selection must be a result of bayesnmf\.select"):
        plots.selection(found.table)


# --- the other criteria -----------------------------------------------------------------------------------


def test_the_evidence_finds_the_rank_and_shares_runs_between_models(monkeypatch):
    calls = []
    run = by_evidence.TemperedRuns

    def counted(target, *more):
        calls.append(target)
        return run(target, *more)

    monkeypatch.setattr(by_evidence, "TemperedRuns", counted)
    counts = small()
    options = SMC(particles=16, runs=4, efficiency=0.9, refinement=1, threads=1)
    models = ("gamma_poisson", "dirichlet_gamma")
    found = bayesnmf.select(counts, models, (1, 2), criterion="evidence", options=options, seed=5, check=False)
    assert len(calls) == 2  # one for each rank
    for model, rank in zip(models, (2, 1), strict=True):
        alone = evidence_of(counts, model, rank, options)
        np.testing.assert_allclose(found.scores[model, rank], alone.estimates, rtol=1e-12)
    gaps = found.scores["gamma_poisson"] - found.scores["dirichlet_gamma"]
    np.testing.assert_allclose(gaps, np.broadcast_to(gaps.iloc[0], gaps.shape), atol=1e-6)  # by log p(N) alone
    assert found.best.rank == 2
    np.testing.assert_allclose(found.table["probability"].sum(), 1.0)
    plots.selection(found)
    plt.close("all")


def small():
    """Return few counts of two components."""
    priors = Priors(Gamma(1.0, 0.025), Dirichlet(0.3))
    return bayesnmf.simulate("gamma_poisson", (10, 8), 2, priors=priors, seed=2).counts


def evidence_of(counts, model, rank, options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return bayesnmf.log_evidence(
            counts, model, rank, "tempered", particles=options.particles, runs=options.runs, seed=5,
            efficiency=options.efficiency, refinement=options.refinement,
        )  # fmt: skip


def evidence_table(logs, spread, bounds=None):
    import pandas as pd

    index = pd.MultiIndex.from_tuples([("a", rank) for rank in range(1, 1 + len(logs))], names=["model", "rank"])
    limits = np.array(logs) - 3 if bounds is None else np.array(bounds)
    known = (np.array(spread) <= 1) & (limits <= logs)
    return pd.DataFrame({"log_evidence": logs, "spread": spread, "known": known, "at_least": limits}, index=index)


def test_no_candidate_is_best_while_an_unknown_one_could_win():
    could = by_evidence.could_win
    assert not could(evidence_table([-10.0, -5.0, -60.0], [0.1, 0.5, 3.0])).any()  # 4.5 + 15 nats are not enough
    assert could(evidence_table([-10.0, -5.0, -20.0], [0.1, 0.5, 3.0])).tolist() == [False, False, True]
    assert could(evidence_table([-10.0, -5.0, 3.0], [0.1, 0.5, 1.2])).tolist() == [False, False, True]
    assert could(evidence_table([-10.0, -50.0], [2.0, 2.0])).all()
    assert could(evidence_table([-10.0, -50.0], [0.2, np.nan])).tolist() == [False, True]  # a single run
    below = evidence_table([-98.0, -120.0], [0.2, 0.3], [-101.0, -100.0])  # the runs agree on less than a bound
    assert could(below).tolist() == [False, True]


def test_the_candidates_that_could_win_are_refined_and_no_others(monkeypatch):
    """The first runs of both ranks are made to disagree, but the evidence of rank 1 is smaller beyond doubt."""
    first = []

    class Disagreeing(by_evidence.TemperedRuns):
        def __post_init__(self):
            super().__post_init__()
            shifts = (3.0, -3.0, 3.0, -3.0)
            self.runs = [
                replace(run, log_estimate=run.log_estimate + shift)
                for run, shift in zip(self.runs, shifts, strict=True)
            ]
            first.append(len(self.ladder) - 1)

    monkeypatch.setattr(by_evidence, "TemperedRuns", Disagreeing)
    counts = 2 * small().matrix.toarray()
    options = SMC(particles=16, runs=4, efficiency=0.9, refinement=64, threads=1)
    found = bayesnmf.select(counts, ranks=(1, 2), criterion="evidence", options=options, seed=5, check=False)
    assert found.best.rank == 2
    assert found.table.loc[found.best, "spread"] <= 1
    more = found.table["rungs"] / first
    assert more.loc[found.best] >= 2
    assert more.loc[("gamma_poisson", 1)] == 1


def test_unknown_evidence_is_said_and_names_no_best():
    counts = np.random.default_rng(0).poisson(60.0 * np.eye(6) + 2)
    options = SMC(particles=2, runs=4, efficiency=0.5, refinement=1)
    found = bayesnmf.select(counts, ranks=(1, 2, 3), criterion="evidence", options=options)
    assert found.best is None
    assert found.one_standard_error is None
    assert found.checks is None
    assert found.cautions[0].startswith("no candidate is best: the evidence of gamma_poisson")
    assert "unknown, at least" in repr(found)
    ax = plots.selection(found)
    assert ax.get_title().endswith("no candidate is best")
    limits = next(line for line in ax.lines if line.get_label() == "at least")
    np.testing.assert_allclose(limits.get_ydata(), found.table["at_least"][~found.table["known"]])
    plt.close("all")


def test_a_misfit_at_the_best_rank_is_told():
    rng = np.random.default_rng(0)
    noisy = rng.poisson(drawn().means * rng.gamma(2.0, 0.5, drawn().means.shape))
    found = bayesnmf.select(noisy, ranks=(2, 3), options=OPTIONS, splits=1, criterion="heldout")
    assert any("the model is misfitted at rank" in caution for caution in found.cautions)
    assert found.checks.p_value < 0.01
    assert (
        bayesnmf.select(noisy, ranks=(2, 3), options=OPTIONS, splits=1, check=False, criterion="heldout").checks is None
    )
    fine = selected()
    assert fine.checks.p_value > 0.05
    assert not any("misfitted" in caution for caution in fine.cautions)


def test_other_rows_that_prefer_fewer_components_beyond_chance_are_told():
    found, best = selected(), selected().best
    for gap, error, told in ((-0.03, 0.01, True), (-0.019, 0.01, False), (-0.03, np.nan, False)):
        table = found.table.copy()
        table["rows_mean"] = -1.0
        table.loc[("gamma_poisson", 2), "rows_mean"] = -0.9
        table.loc[best, "rows_difference"], table.loc[best, "rows_difference_se"] = gap, error
        cautions = replace(found, table=table).cautions
        assert (
            any(each.startswith(f"rank {best.rank} predicts other rows worse than rank 2:") for each in cautions)
            == told
        )
    assert found.cautions == []


def test_without_held_out_counts_nothing_is_best():
    found = bayesnmf.select(
        np.eye(3, dtype=int), ranks=[1, 2], splits=1, keep=0.99, seed=0, options=OPTIONS, criterion="heldout"
    )
    assert found.best is None
    assert found.cautions[0].startswith("no candidate is best: no count was held out")
    assert "no count was held out" in repr(found)
    assert found.one_standard_error is None


def test_fits_that_did_not_converge_are_told():
    found = bayesnmf.select(
        drawn().counts, ranks=(2, 3), options=VI(max_iter=2, start="svd"), splits=2, check=False, criterion="heldout"
    )
    assert any(each.startswith("2 of 2 fits of the best candidate did not converge:") for each in found.cautions)


def test_ctrl_c_in_the_fit_that_is_checked_leaves_the_checks_out():
    ended = []

    def stop(label, done, total, value):
        ended.append(done == total)
        if sum(ended) == 3:  # the first is that of the comparison
            raise KeyboardInterrupt

    found = bayesnmf.select(drawn().counts, ranks=(2, 3), options=OPTIONS, splits=1, progress=stop, criterion="heldout")
    assert found.interrupted
    assert found.checks is None
    assert found.best.rank == 3
    assert "interrupted: other candidates or the checks are missing" in repr(found)


@pytest.mark.parametrize(
    ("message", "settings"),
    [
        ("criterion must be one of 'masked', 'heldout', 'evidence', 'stability'", {"criterion": "elbo"}),
        ("criterion='evidence' needs method='smc': found method='vi'", {"criterion": "evidence", "method": "vi"}),
        (
            "splits needs criterion='masked' or criterion='heldout': found criterion='evidence'",
            {"criterion": "evidence", "splits": 3},
        ),
        ("halves needs criterion='stability'", {"halves": 3}),
        ("resample needs criterion='stability'", {"resample": "counts"}),
        ("resample must be one of 'halves', 'counts'", {"criterion": "stability", "resample": "rows"}),
        ("withhold must be", {"withhold": 1.0}),
        ("method='smc' needs a proper prior", {"models": "poisson", "criterion": "evidence"}),
        ("criterion='stability' needs method='map'", {"criterion": "stability", "method": "gibbs"}),
        ("halves must be at least 5", {"criterion": "stability", "halves": 4}),
        ("options.runs must be at least 4", {"criterion": "evidence", "options": SMC(runs=3)}),
        ("withhold=0.2 needs at least two features", {"counts": [[3], [2], [4], [1], [5]], "withhold": 0.2}),
        ("withhold=0.1 needs at least two features, and rows", {"counts": [[3, 1], [1, 2]], "withhold": 0.1}),
        ("counts must not all be 0", {"counts": [[0, 0], [0, 0]]}),
        (
            "must be made anew for the rows",
            {"criterion": "stability", "options": VI(start=Start(np.ones((4, 2)), np.ones((2, 3))))},
        ),
        ("needs at least two rows", {"criterion": "stability", "counts": [[3, 1, 2]]}),
    ],
)
def test_settings_of_other_criteria_are_refused(message, settings):
    with pytest.raises(ValueError, match=message):
        bayesnmf.select(**{"counts": COUNTS, "ranks": [2], **settings})


def test_ctrl_c_keeps_the_ranks_that_are_done():
    for criterion, options in (
        ("stability", VI(start="random")),
        ("evidence", SMC(particles=4, runs=4, efficiency=0.8)),
    ):

        def stop(label, done, total, objective):
            if done == 2:
                raise KeyboardInterrupt

        found = bayesnmf.select(
            COUNTS, ranks=[1, 2, 3], criterion=criterion, options=options, progress=stop,
            **({"halves": 5} if criterion == "stability" else {}),
        )  # fmt: skip
        assert found.interrupted
        assert len(found.table) == 2


def test_masks_without_counts_have_no_score_and_no_warning():
    """Of 4 × 6 counts, a mask hides two or three entries, and these may all be 0."""
    counts = np.eye(4, 6, dtype=int) * 5
    found = bayesnmf.select(counts, ranks=(1, 2), seed=0, check=False, options=VI(max_iter=2, tol=0, threads=1))
    assert found.scores.isna().any(axis=None)
    assert np.isfinite(found.table["mean"]).all()
    repr(found)
