"""What a page says first: it follows from the fit and its checks, and bad news comes with good."""

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
import smallfits
from plain import even_priors, plain_map, plain_vi

import bayesnmf
from bayesnmf.assessment.matching import Match
from bayesnmf.assessment.predictive_checks import PredictiveChecks
from bayesnmf.fitting.fitted import Fit
from bayesnmf.inference.status import INTERRUPTED, NOT_A_NUMBER, Status
from bayesnmf.noise.words import NOISES
from bayesnmf.pages.checks import check_source
from bayesnmf.pages.in_short import in_short, tiles
from bayesnmf.pages.of_components import _table
from bayesnmf.pages.of_evidence import rank_in_words, unstable
from bayesnmf.pages.of_samples import cloud_of, typical_rows
from bayesnmf.pages.reading import Given, Read
from bayesnmf.pages.words import listed, say
from bayesnmf.results.cautions import excess_of_noise
from bayesnmf.results.checks import Groups
from bayesnmf.results.intervals import MANY, for_intervals
from bayesnmf.results.topic_model import to_topic_model
from bayesnmf.studies.comparison.comparing import Comparison
from bayesnmf.studies.selection.criterion import Candidate
from bayesnmf.studies.selection.selecting import Selection

KINDS = (Fit, Comparison)
DRAWN = bayesnmf.simulate(size=(40, 12), rank=3, priors=even_priors(total=400), seed=1)


@cache
def fitted(method="vi"):
    options = {"vi": plain_vi(tol=1e-3, intervals="mean_field"), "map": plain_map(tol=0, max_iter=50)}[method]
    return bayesnmf.fit(DRAWN.counts, rank=3, method=method, seed=0, options=options)


def checked(p_adjusted):
    """Return checks of five statistics, of which the observed ones are larger than expected."""
    names = ["total", "share of zeros", "largest count", "dispersion", "misfit"]
    table = pd.DataFrame({"observed": 2.0, "mean": 1.0, "p_value": p_adjusted, "p_adjusted": p_adjusted}, names)
    replicated = {"misfit": np.zeros(24)}
    return PredictiveChecks(table, table, table, table, replicated, 50, 0.9, "gamma_poisson", "vi", [])


def read(fit, checks=None, given=None, colours=("#000000",) * 3):
    lead = fit.leading_components()["component"].cat.codes.to_numpy(np.intp)
    sizes = fit.expected_sizes / max(fit.expected_sizes.sum(), 1e-300)
    return Read(fit, given or Given(), fit, to_topic_model(fit).proportions, sizes, lead, list(colours), checks, "")


FINE, BAD = checked([0.9] * 5), checked([0.9, 0.9, 0.9, 0.001, 0.001])


def test_a_fit_that_converged_while_checks_fail_says_so_first():
    sentences, shown = dict(in_short(read(fitted(), BAD))), tiles(read(fitted(), BAD))
    assert sentences["Failed"].startswith("Two of 5 checks of the model failed: ")
    assert "counts vary more around their expected values than the model says (by 100 %)" in sentences["Failed"]
    assert "too narrow" in sentences["To be trusted"]
    assert "hold for the model at best" in sentences["To be trusted"]
    assert [(tile.tone, tile.word) for tile in shown[:3]] == [
        ("good", "converged"), ("bad", "2 of 5 failed"), ("doubt", "too narrow")
    ]  # fmt: skip


@pytest.mark.parametrize(("observed", "told"), [(1.96, "by 96 %"), (0.975, "by 2.5 %"), (1.0014, "by 0.14 %")])
def test_a_failed_check_says_by_how_much(observed, told):
    """With many counts, a difference that nobody would see is sure."""
    checks = checked([0.9, 0.001, 0.9, 0.9, 0.9])
    checks.table.loc["share of zeros", "observed"] = observed
    assert dict(in_short(read(fitted(), checks)))["Failed"].endswith(f"({told}).")


def test_a_fit_without_faults_says_that_nothing_failed():
    sentences = dict(in_short(read(fitted(), FINE)))
    assert sentences["Found"].startswith("Three components describe 40 samples, by counts of 12 features. ")
    assert sentences["Found"].endswith(say("ranks.untested"))
    assert sentences["Failed"].startswith("Nothing: the fit came to rest, and none of 5 checks of the model failed")
    assert "checks failed" not in sentences["To be trusted"]


@pytest.mark.parametrize(
    ("status", "tone", "failed", "trusted"),
    [
        (Status(False, "reached max_iter", 9), "doubt", "had not come to rest (reached max_iter)", "provisional"),
        (Status(False, INTERRUPTED, 9), "bad", "was interrupted", "provisional"),
        (Status(False, NOT_A_NUMBER, 9), "bad", "cannot be used", "Nothing on this page"),
    ],
)
def test_a_fit_that_did_not_come_to_rest(status, tone, failed, trusted):
    made = read(replace(fitted(), status=status), FINE)
    sentences = dict(in_short(made))
    assert tiles(made)[0].tone == tone
    assert failed in sentences["Failed"]
    assert trusted in sentences["To be trusted"]


@smallfits.quietly
def test_chains_that_disagree_are_told_without_jargon():
    fit = smallfits.fit(method="gibbs")
    for r_hat, ess, word in ((1.2, 500, "chains do not agree yet"), (1.0, 20, "too few draws")):
        told = replace(fit, diagnostics=fit.diagnostics | {"max_r_hat": r_hat, "min_ess": ess})
        made = read(told, FINE, colours=["#000000"] * fit.rank)
        assert tiles(made)[0].word == word
        assert dict(in_short(made))["To be trusted"].startswith("Take the intervals as provisional")
        assert tiles(made)[2][1:3] == ("doubt", "provisional")


def test_points_have_no_intervals_and_checks_that_were_not_made_are_told():
    made = read(fitted("map"))
    assert tiles(made)[1].word == "not made"
    assert tiles(made)[2].word == "none"
    assert dict(in_short(made))["Failed"].endswith("The model was not checked against simulated counts.")


@cache
def overdispersed(method="vi"):
    """Return a fit to counts that vary several times as much as Poisson counts."""
    counts = np.random.default_rng(0).poisson(DRAWN.means * np.random.default_rng(1).gamma(0.5, 2, DRAWN.means.shape))
    kind = {"vi": plain_vi(tol=1e-3, intervals="sampled"), "map": bayesnmf.MAP()}[method]
    return bayesnmf.fit(counts, rank=3, method=method, seed=0, options=kind)


def opened(fit, checks=None):
    """Return a fit as a page reads it, with intervals and what is known of its noise."""
    return read(fit, checks)._replace(intervals=for_intervals(fit), excess=excess_of_noise(fit))


@pytest.mark.parametrize("checks", [None, FINE], ids=["not checked", "checks passed"])
def test_counts_that_vary_too_much_are_told_with_checks_and_without(checks):
    made = opened(overdispersed(), checks)
    sentences, shown = dict(in_short(made)), tiles(made)
    assert "times as much as Poisson counts would" in sentences["Failed"]
    assert "Nothing" not in sentences["Failed"]
    assert "Since counts vary more than the model says" in sentences["To be trusted"]
    assert "may be taken as 90 %" not in sentences["To be trusted"]
    assert shown[1].tone == "doubt"
    unmixed = made.intervals.intervals.share_above
    assert shown[2].tone == ("bad" if unmixed >= MANY else "doubt")


def test_intervals_of_a_model_whose_checks_failed_are_in_doubt_even_if_the_chain_has_mixed():
    sampled = replace(fitted().with_intervals("sampled", draws=50), diagnostics={})
    intervals = sampled.intervals
    made = read(replace(sampled, intervals=replace(intervals, share_above=0.0)), BAD)
    made = made._replace(intervals=for_intervals(made.fit))
    assert tiles(made)[2][1:3] == ("doubt", "hold for the model at best")
    assert tiles(made._replace(checks=FINE))[2].tone == "good"
    unchecked = made._replace(checks=None)
    assert tiles(unchecked)[2].tone == "plain"
    assert "hold only if counts vary as its noise says" in dict(in_short(unchecked))["To be trusted"]


@pytest.mark.parametrize(
    ("share", "tile", "trusted"),
    [
        (0.0, ("good", "sampled"), "may be taken as 90 % intervals of this one factorisation;"),
        (
            0.001,
            ("good", "sampled"),
            "may be taken as 90 % intervals of this one factorisation, but for 0.1% of entries",
        ),
        (
            0.04,
            ("doubt", "provisional in 4% of entries"),
            "Take the intervals as provisional: their chain had not come",
        ),
        (
            0.41,
            ("bad", "not mixed"),
            "Do not rely on any interval: their chain had not come to rest, in 41% of entries",
        ),
    ],
)
def test_intervals_are_judged_by_how_much_of_their_chain_has_not_mixed(share, tile, trusted):
    sampled = fitted().with_intervals("sampled", draws=50)
    sampled = replace(sampled, intervals=replace(sampled.intervals, share_above=share, r_hat=3.02))
    made = read(sampled, FINE)._replace(intervals=for_intervals(sampled))
    assert tiles(made)[2][1:3] == tile
    assert trusted in dict(in_short(made))["To be trusted"]


@smallfits.quietly
def test_chains_of_a_sampler_are_judged_by_how_many_entries_disagree():
    fit, words = smallfits.fit(method="gibbs"), []
    for share in (0.004, 0.3):
        told = replace(fit, diagnostics=fit.diagnostics | {"max_r_hat": 2.2, "min_ess": 500, "share_above": share})
        words.append(tiles(read(told, FINE))[0][1:3])
    assert words == [("doubt", "chains agree but for 0.4%"), ("bad", "chains do not agree yet")]


def test_a_point_estimate_of_counts_that_vary_too_much_may_be_of_other_components():
    assert "other components than these may be behind" in dict(in_short(opened(overdispersed("map"))))["To be trusted"]


@smallfits.quietly
def test_draws_that_cannot_be_matched_are_told():
    fit = smallfits.fit(method="gibbs")
    fine = fit.diagnostics | {"max_r_hat": 1.0, "min_ess": 500, "ambiguous_draws": 0.0}
    told = replace(fit, diagnostics=fine | {"ambiguous_draws": 0.11}, status=Status(True, "mixed", 9))
    made = read(told, FINE)
    sentences = dict(in_short(made))
    assert sentences["Failed"].startswith("In 11% of the draws two components are too similar to be matched reliably.")
    assert sentences["To be trusted"].startswith("Take the intervals as provisional")
    assert [tile.tone for tile in tiles(made)[:3]] == ["doubt", "good", "doubt"]
    assert tiles(read(replace(told, diagnostics=fine), FINE))[0].word == "chains agree"
    few = replace(told, diagnostics=fine | {"max_r_hat": np.inf, "min_ess": 0.0})
    assert "inf" not in " ".join([*tiles(read(few, FINE))[0], dict(in_short(read(few, FINE)))["Failed"]])


def test_draws_that_are_no_chains_say_in_what_they_converged():
    fit = replace(smallfits.fit(method="gibbs"), diagnostics={}, status=Status(True, "runs agree on the evidence", 9))
    assert tiles(read(fit, FINE))[0] == ("Status", "good", "converged", "runs agree on the evidence")


def test_odd_counts_have_sentences_that_are_right():
    one = bayesnmf.fit([[3, 0, 1, 2]], rank=1, seed=0, options=plain_vi(max_iter=5))
    assert dict(in_short(read(one)))["Found"].startswith("One component describes 1 sample, by counts of 4 features. ")
    nothing = bayesnmf.fit(np.zeros((3, 4)), rank=2, seed=0, options=plain_vi(max_iter=5))
    found = dict(in_short(read(nothing)._replace(sizes=np.zeros(2))))
    assert "All counts are 0" in found["Found"]
    assert "largest" not in found["Found"]
    assert "less than one count of every sample" in found["Failed"]
    equal = read(fitted())._replace(sizes=np.full(3, 1 / 3))
    assert "Each has 33 % of all expected counts" in dict(in_short(equal))["Found"]
    held = fitted().project(DRAWN.counts.rows(slice(4)))
    assert "components were held from another fit" in dict(in_short(read(held)))["Found"]


def compared(*places, best=4, noise="poisson"):
    """Return a comparison of these ranks, or of noises, models and ranks."""
    places = [("gamma_poisson", each) if isinstance(each, int) else each for each in places]
    names = ["noise", "model", "rank"][-len(places[0]) :]
    table = pd.DataFrame({"mean": 1.0}, pd.MultiIndex.from_tuples(places, names=names))
    return Selection(table, table, Candidate("gamma_poisson", best), "map", 0.9, False, noise=NOISES[noise])


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (compared(2, 3, best=3), "Held-out counts are predicted best with 3 components, of 2 and 3 tried."),
        (
            compared(2, 4),
            "Held-out counts are predicted best with 4 components, of 2 and 4 tried. This fit has 3, which was not "
            "tried.",
        ),
        (compared(4), "The comparison has fits of 4 components alone, so that it does not test the number."),
        (
            compared(("poisson", "poisson", 3), ("nb2", "gamma_poisson", 4), noise="nb2"),
            "Held-out counts are predicted best with 4 components, of 3 and 4 tried, under the model gamma_poisson, "
            "with nb2 noise. This fit has 3. This fit has poisson noise.",
        ),
    ],
)
def test_a_comparison_of_ranks_is_told(found, told):
    assert rank_in_words(read(fitted(), given=Given(selection=found))) == told


def test_a_comparison_without_a_best_rank_says_so():
    none = replace(compared(2, 4), best=None)
    assert "no decision" in rank_in_words(read(fitted(), given=Given(selection=none)))


@pytest.mark.parametrize(
    ("cosines", "told"),
    [
        ((0.95, 0.3, 0.2), "1 matches the catalogue with a cosine of at least 0.9 (a)"),
        ((0.95, 0.91, 0.89), "2 match the catalogue with a cosine of at least 0.9 (a and b)"),
        ((0.3, 0.3, 0.2), "none matches the catalogue with a cosine of at least 0.9"),
    ],
)
def test_only_components_that_are_close_to_the_catalogue_match_it(cosines, told):
    table = pd.DataFrame({"component": range(3), "reference": list("abc"), "cosine": cosines})
    given = Given(known=Match(table, np.array([]), np.array([]), fitted().components))
    assert f"; {told}. " in dict(in_short(read(fitted(), given=given)))["Found"]


def test_a_fit_that_no_other_start_reproduces_is_not_to_be_interpreted():
    found = bayesnmf.modes(DRAWN.counts, rank=3, starts=2, seed=0, options=plain_vi(tol=1e-3))
    alone = read(replace(fitted(), components=np.eye(3, 12)), FINE, Given(modes=found))
    assert "no fit from another start ended in this" in dict(in_short(alone))["To be trusted"]
    own = read(found.best, FINE, Given(modes=found))
    assert "no fit from another start" not in dict(in_short(own))["To be trusted"]


def test_comparisons_and_modes_of_other_counts_are_refused():
    other = DRAWN.counts.rows(slice(30))
    quick = plain_vi(max_iter=3)
    chosen = bayesnmf.select(DRAWN.counts, ranks=[3], splits=1, options=quick, seed=0, check=False)
    modes = bayesnmf.modes(DRAWN.counts, rank=3, starts=2, seed=0, options=quick)
    check_source(fitted(), KINDS, Given(selection=chosen, modes=modes))
    fewer = bayesnmf.fit(other, rank=3, seed=0, options=plain_vi(tol=0, max_iter=3))
    with pytest.raises(ValueError, match=r"selection must be made of the counts of the fit, 30 × 12: found 40 × 12"):
        check_source(fewer, KINDS, Given(selection=chosen))
    with pytest.raises(ValueError, match=r"modes must be made of the counts of the fit, 30 × 12: found 40 × 12"):
        check_source(fewer, KINDS, Given(modes=modes))
    turned = bayesnmf.fit(DRAWN.counts.dense[::-1], rank=3, seed=0, options=fewer.options)
    with pytest.raises(ValueError, match=r"modes must be made of .*: found other totals of rows or features"):
        check_source(turned, KINDS, Given(modes=modes))
    with pytest.raises(ValueError, match=r"selection must be made of .*: found other totals of rows or features"):
        check_source(turned, KINDS, Given(selection=chosen))


def test_weights_of_matrices_do_not_make_other_counts():
    counts = DRAWN.counts.dense
    parts, quick = {"a": counts[:, :5], "b": counts[:, 5:]}, plain_vi(tol=1e-3)
    chosen = bayesnmf.select(parts, ranks=[3], splits=1, options=quick, seed=0, check=False)
    weighted, other = (
        bayesnmf.fit({**parts, "a": a}, rank=3, weights={"b": 2.0}, seed=0, options=quick)
        for a in (counts[:, :5], counts[:, :5] + 1)
    )
    check_source(weighted, KINDS, Given(selection=chosen))
    with pytest.raises(ValueError, match=r"selection must be made of .*: found other totals"):
        check_source(other, KINDS, Given(selection=chosen))


def test_components_that_do_not_come_back_are_not_to_be_interpreted():
    found = bayesnmf.modes(DRAWN.counts, rank=3, starts=3, seed=0, options=plain_vi(tol=1e-3))
    fit = bayesnmf.fit(DRAWN.counts, rank=3, seed=0, options=plain_vi(tol=1e-3, start=found.best))
    components = found.components.assign(recurrence=1.0)
    components.loc[(0, 1), "recurrence"] = 0.5
    made = read(fit, FINE, Given(modes=replace(found, components=components)))
    lost = np.argmax(fit.components @ found.best.components[1])
    assert unstable(made) == [f"component {lost}"]
    assert f"Do not interpret component {lost}" in dict(in_short(made))["To be trusted"]


@smallfits.quietly
def test_rates_of_features_are_those_of_the_draws_that_the_fit_has():
    fit = smallfits.fit(method="gibbs")
    held = fit.estimate
    few = replace(fit, estimate=replace(held, loadings=held.loadings[:1, :5], components=held.components[:1, :5]))
    found = bayesnmf.markers(few, 9)
    shown = [row[-1] for row in _table(read(few, FINE), few, found[found["lfc_next"] > 0]).rows]
    assert "< 0.2" in shown
    assert "< 0.005" not in shown


def test_typical_rows_are_those_nearest_to_the_mean_of_the_rows_that_a_component_leads():
    shares = np.array([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.1, 0.9], [0.5, 0.5]])
    assert typical_rows(shares, np.array([0, 0, 0, 1, -1])) == [1, 3]


def test_the_cloud_has_a_dot_for_each_sample_and_grey_beyond_the_leading_components():
    groups = Groups(np.array(["a", None] * 20, dtype=object), ["a"])
    cloud = cloud_of(read(fitted(), given=Given(groups=groups)))
    assert len(cloud.dots) == 40
    assert all(0 <= dot.x <= cloud.width and 0 <= dot.y <= cloud.height for dot in cloud.dots)
    component, group = cloud.legends
    assert [words for _, words in component.colours] == ["component 0", "component 1", "component 2"]
    assert [words for _, words in group.colours] == ["a", "others"]
    lead = fitted().leading_components()["component"].cat.codes.tolist()
    assert [dot.colours for dot in cloud.dots] == [[k, i % 2] for i, k in enumerate(lead)]


@pytest.mark.parametrize(("names", "told"), [([], ""), ("a", "a"), ("ab", "a and b"), ("abcd", "a, b and 2 more")])
def test_names_in_a_sentence(names, told):
    assert listed(names, 2) == told
