"""What goes with what: every pair of things that a call may have fits, or is refused before any work."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from suites import mostly_long

import bayesnmf
from bayesnmf.cli import arguments

DOCS = Path(__file__).parents[2] / "docs"
sys.path.append(str(DOCS))
import combinations  # noqa: E402

PAIRS = [(pair, combinations.merged(*pair)) for pair in combinations.pairs()]
SENTENCE = re.compile(r"^.+ needs? .+: found .+; .+$")
OF_MODELS = re.compile(r"^priors\.components must be Dirichlet for model=")  # what a model is, not what goes with it


@pytest.mark.parametrize("thing", combinations.THINGS)
def test_what_does_not_go_together_is_refused_by_one_sentence_before_any_work(thing):
    found = {pair: combinations.refusal(*pair) for pair, _ in PAIRS if pair[0] == thing}
    for pair, message in found.items():
        assert not message or SENTENCE.match(message) or OF_MODELS.match(message), (pair, message)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("method", "thing"), mostly_long(
    [("map", thing) for thing in combinations.THINGS]
    + [(method, thing) for method in bayesnmf.options.METHODS if method != "map" for thing in combinations.THINGS],
    len(combinations.THINGS),
))  # fmt: skip
def test_what_goes_together_fits(method, thing):
    for pair, call in PAIRS:
        if pair[0] == thing and call.get("method", "map") == method and not combinations.refusal(*pair):
            fit = bayesnmf.fit(**combinations.arguments(call))
            assert np.isfinite(fit.loadings).all(), pair
            assert np.isfinite(fit.components).all(), pair


def test_pages_and_help_print_the_table():
    """If not: `python docs/combinations.py`."""
    assert (DOCS / "combinations.md").read_text(encoding="utf-8") == combinations.page()
    assert combinations.in_help() == arguments.TOGETHER
