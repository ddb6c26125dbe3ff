"""The sentences with which a comparison begins, for tables that were made up."""

import numpy as np
import pandas as pd
import pytest

import bayesnmf
from bayesnmf import VI, Gibbs, Settings
from bayesnmf.studies.comparison import measures
from bayesnmf.studies.comparison.comparing import finding

SMALL = bayesnmf.simulate(size=(16, 8), rank=2, totals=60, seed=1).counts


def said(reference="nuts", **columns):
    table = pd.DataFrame(columns, index=["map", "vi", "nuts"])
    return " ".join(finding(table, reference))


def test_components_are_found_or_not():
    found = said(cosine_min=[0.72, 0.991, 1.0])
    assert found == (
        "vi found the components of nuts (cosine at least 0.991); "
        "map did not find all components of nuts (least cosine 0.720 for map)."
    )
    assert said(cosine_min=[0.97, 0.96, 1.0]) == ("map and vi found the components of nuts (cosine at least 0.960).")


def test_a_cosine_below_the_limit_is_not_shown_as_the_limit():
    assert "least cosine 0.949 for map" in said(cosine_min=[0.9499, 0.99999, 1.0])
    assert "at least 0.999)" in said(cosine_min=[0.9499, 0.99999, 1.0])


@pytest.mark.parametrize(("held", "verdict"), [(0.68, "too narrow"), (0.9, "about right"), (0.99, "too wide")])
def test_intervals_are_judged_by_what_they_hold(monkeypatch, held, verdict):
    found = said(held=[np.nan, held, np.nan], held_response=[np.nan, 0.844, np.nan])
    assert found == (
        "Of the draws of nuts, 90 % intervals should hold 90 %: "
        f"those of vi hold {held:.0%}, 84% by linear response ({verdict})."
    )


def test_other_starts_are_part_of_it():
    assert "(cosine down to 0.410), so all this is about one of several" in said(
        cosine_other_start=[np.nan, 0.41, 0.99]
    )
    assert said(cosine_other_start=[0.98, np.nan, 0.99]) == (
        "Other starts led to the same components (cosine at least 0.980)."
    )


@pytest.mark.parametrize(("r_hat", "ess", "mixed"), [(1.01, 260, True), (1.06, 260, False), (1.01, 99, False)])
def test_chains_have_mixed_or_not(r_hat, ess, mixed):
    found = said(max_r_hat=[np.nan, np.nan, r_hat], min_ess=[np.nan, np.nan, ess])
    assert found.startswith("The chains of nuts have mixed (R-hat" if mixed else "Not all chains have mixed (R-hat")


@pytest.mark.parametrize(
    ("se", "told"),
    [
        (0.004, "vi behind by 0.01 ± 0.004 nats a count, nuts behind by 0.1 ± 0.004 nats a count"),
        (0.007, "vi as good within two standard errors, nuts behind by 0.1 ± 0.007 nats a count"),
        (0.07, "vi and nuts as good within two standard errors"),
    ],
)
def test_the_best_predictions_are_named_with_those_that_are_as_good(se, told):
    for kind, what in {"thinned": "held-out counts", "withheld": "new samples"}.items():
        behind = {f"heldout_{kind}_behind": [0, 0.01, 0.1], f"heldout_{kind}_behind_se": [0, se, se]}
        assert said(**behind) == f"map predicts {what} best ({told})."


def test_nothing_is_said_without_measures():
    assert said(seconds=[1.0, 2.0, 3.0]) == ""


@pytest.mark.filterwarnings("ignore:.* did not converge:bayesnmf.ConvergenceWarning")
def test_a_comparison_begins_with_it(monkeypatch):
    monkeypatch.setattr(measures, "MOST_SCORE_DRAWS", 200)
    gibbs = Gibbs(start="random", chains=2, warmup=20, draws=40, threads=1)
    settings = Settings(options={"vi": VI(start="svd"), "gibbs": gibbs}, withhold=0.3, dispersed=False)
    result = bayesnmf.compare(SMALL, rank=2, methods=("vi", "gibbs"), settings=settings)
    sentences = finding(result.table, "gibbs")
    for text in (repr(result), result.details()):
        assert " ".join(text.split()).partition(" samples set aside ")[2].startswith(" ".join(sentences))
    assert "the components of gibbs" in sentences[0]
    assert "those of vi hold" in sentences[1]
    assert len(sentences) == 3
    for kind in ("thinned", "withheld"):
        scores, behind = result.table[f"heldout_{kind}"], result.table[f"heldout_{kind}_behind"]
        np.testing.assert_allclose(behind, scores.max() - scores, atol=1e-9)
        assert (result.table[f"heldout_{kind}_behind_se"] > 0).sum() == 1


@pytest.mark.filterwarnings("ignore:.* did not converge:bayesnmf.ConvergenceWarning")
def test_what_is_printed_fits_a_page_and_has_few_rows(monkeypatch):
    result = bayesnmf.compare(SMALL, rank=2, methods=("map", "vi"), settings=Settings(dispersed=False))
    shown, all_of_it = repr(result).splitlines(), result.details().splitlines()
    assert max(map(len, [*shown, *all_of_it])) <= 80
    assert len(result.card().lines) <= 5 < sum("│" in line for line in all_of_it)
