"""The sentences in which a comparison ends, for tables that were made up."""

import numpy as np
import pandas as pd
import pytest

import bayesnmf
from bayesnmf import VI, Gibbs, Settings
from bayesnmf.studies.comparison import measures
from bayesnmf.studies.comparison.finding import finding


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
    assert "(cosine down to 0.410): all this is about one of several" in said(cosine_other_start=[np.nan, 0.41, 0.99])
    assert said(cosine_other_start=[0.98, np.nan, 0.99]) == (
        "Other starts led to the same components (cosine at least 0.980)."
    )


def test_nothing_is_said_without_measures():
    assert said(seconds=[1.0, 2.0, 3.0]) == ""


@pytest.mark.filterwarnings("ignore:.* did not converge:bayesnmf.ConvergenceWarning")
def test_a_comparison_ends_in_it(monkeypatch):
    monkeypatch.setattr(measures, "MOST_SCORE_DRAWS", 200)
    X = bayesnmf.simulate(size=(16, 8), rank=2, totals=60, seed=1).counts
    gibbs = Gibbs(start="random", chains=2, warmup=20, draws=40, threads=1)
    settings = Settings(options={"vi": VI(start="svd"), "gibbs": gibbs}, dispersed=False)
    result = bayesnmf.compare(X, rank=2, methods=("vi", "gibbs"), settings=settings)
    sentences = finding(result.table, "gibbs")
    assert repr(result).splitlines()[-len(sentences) :] == sentences
    assert "the components of gibbs" in sentences[0]
    assert "those of vi hold" in sentences[1]
