"""Models and ranks ranked by held-out counts."""

from dataclasses import replace
from functools import cache

import matplotlib.pyplot as plt
import numpy as np
import pytest
from smallfits import COUNTS

import bayesnmf
from bayesnmf import MAP, VI, Dirichlet, Gamma, Gibbs, Priors, plots
from bayesnmf.assessment.scoring import background, score
from bayesnmf.assessment.selection import Candidate
from bayesnmf.data.splitting import split_counts
from bayesnmf.inference.status import ConvergenceWarning

RANKS, MODELS = (1, 2, 3, 4), ("gamma_poisson", "dirichlet_poisson")
OPTIONS = VI(max_iter=300, threads=1, start="svd")  # a race of starts is six times as long


@cache
def drawn():
    priors = Priors(Gamma(1.0, 0.02), Dirichlet(0.3))
    return bayesnmf.simulate("gamma_poisson", (60, 15), 3, priors=priors, seed=2)


@cache
def selected():
    return bayesnmf.select(drawn().counts, MODELS, RANKS, options=OPTIONS, seed=5)


def test_the_rank_that_was_simulated_is_found():
    found = selected()
    assert found.best.rank == 3
    assert found.one_standard_error.rank == 3
    assert not found.interrupted
    fitted = bayesnmf.fit(drawn().counts, *found.best, seed=0)
    assert (fitted.model, fitted.rank) == found.best


def test_scores_are_those_of_fits_to_the_same_thinned_counts():
    found = selected()
    counts = bayesnmf.data.conversion.as_counts(drawn().counts)
    for number in range(2):
        split = split_counts(counts, 0.8, 0.0, np.random.default_rng([5, number]))
        for model, rank in (("gamma_poisson", 2), ("dirichlet_poisson", 3)):
            fitted = bayesnmf.fit(split.train, model, rank, seed=5 + number, options=OPTIONS)
            wanted = score(fitted, split.thinned, background(split.train), 200, 5 + number, 1600)
            assert found.scores.loc[number, (model, rank)] == wanted.per_count


def test_the_table_is_made_of_paired_differences():
    found = selected()
    table, scores = found.table, found.scores.to_numpy()
    best = scores[:, [found.scores.columns.get_loc(found.best)]]
    np.testing.assert_allclose(table["mean"], scores.mean(axis=0))
    np.testing.assert_allclose(table["se"], scores.std(axis=0, ddof=1) / np.sqrt(3))
    np.testing.assert_allclose(table["difference"], (scores - best).mean(axis=0), atol=1e-15)
    np.testing.assert_allclose(table["difference_se"], (scores - best).std(axis=0, ddof=1) / np.sqrt(3), atol=1e-15)
    assert table["difference"].max() == 0
    # paired differences vary less than scores do, which is what pairing is for
    others = table.drop(found.best)
    assert np.median(others["difference_se"]) < 0.5 * np.median(others["se"])
    text = repr(found)
    assert "best" in text
    assert "3 splits" in text
    assert "one se: the smallest rank that falls short of the best by at most one standard error of the paired" in text
    assert f"{table.loc[found.best, 'mean']:.4f} ± {table.loc[found.best, 'se']:.4f}" in text


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
    [("map", MAP(max_iter=50, threads=1)), ("gibbs", Gibbs(chains=1, draws=30, warmup=30, threads=1))],
)
def test_one_split_by_another_method_has_scores_and_no_errors(method, options):
    found = bayesnmf.select(COUNTS, "dirichlet_gamma", [2], method, splits=1, options=options)
    assert found.best == ("dirichlet_gamma", 2)
    assert np.isnan(found.table["se"]).all()
    text = repr(found)
    assert (
        f"by {method}, trained on 80% of the counts, 1 split\n" in "\n".join(map(str.strip, text.splitlines())) + "\n"
    )
    assert f"{found.table['mean'].iloc[0]:.4f} ± –" in text
    assert "nan" not in text
    assert "one se" not in text
    assert "a single split has no standard error: raise splits" in text


def interrupted(at, **settings):
    def stop(label, done, total, objective):
        if done == at:
            raise KeyboardInterrupt

    return bayesnmf.select(COUNTS, ranks=[1, 2, 3], options=OPTIONS, progress=stop, **settings)


def test_interruption_keeps_complete_splits():
    found = interrupted(4)
    assert found.interrupted
    assert found.scores.shape == (1, 3)
    assert list(found.table["splits"]) == [1, 1, 1]
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

    options = (VI if method == "vi" else MAP)(max_iter=3000, tol=1e-4, threads=1)
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
    (caution,) = largest.cautions
    assert caution.startswith(f"the best rank, {max(RANKS)}, is the largest that was tried: try larger ones")
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
