"""Questions in words lead to calls; the page of all questions is that of the file. `test_printed` runs the calls."""

from itertools import groupby

import pytest
from test_guides import ROOT, from_site

import bayesnmf
from bayesnmf.questions import questions

ASKED = {
    "number of topics": "ranks.md",
    "how many topics": "ranks.md",
    "how many components": "ranks.md",
    "MCMC": "posteriors.md",
    "heatmap": "gallery.py",
    "custom prior": "programs.md",
    "getting started": "get_started.md",
    "quickstart": "get_started.md",
    "load a csv file": "input.md",
    "overdispersion": "noise.md",
    "negative binomial": "noise.md",
    "batch effect": "batches.md",
    "marker genes": "fields/cells.md",
    "COSMIC signatures": "fields/signatures.md",
    "topic coherence": "fields/texts.md",
    "uncertainty of loadings": "posteriors.md",
    "confidence intervals": "posteriors.md",
    "multi-omics": "several.md",
    "save a fit": "checkpoints.md",
    "recommend items": "fields/items.md",
    "R-hat": "reliability.md",
    "random seeds give different results": "modes.md",
    "out of memory": "on_disk.md",
    "scikit-learn pipeline": "input.md",
    "goodness of fit": "reliability.md",
}


@pytest.mark.parametrize("asked", ASKED)
def test_words_of_users_lead_to_the_guide(asked):
    assert ASKED[asked] in [each.page for each in bayesnmf.which(asked)]


def test_the_page_is_that_of_the_file():
    page = (ROOT / "docs" / "which_call.md").read_text(encoding="utf-8")
    assert page == from_site("which_call").page(), "run python docs/which_call.py"


def test_every_question_has_a_call_a_guide_that_exists_and_other_words():
    sections = [section for section, _ in groupby(questions(), key=lambda each: each.section)]
    assert len(sections) == len({*sections})
    for each in questions():
        assert each.answer
        assert each.also
        assert (ROOT / "docs" / each.page.partition("#")[0]).exists()


def test_answers_are_printed_and_nothing_close_is_said():
    assert repr(bayesnmf.which("how many topics")).startswith(
        "How many components?\n    bayesnmf.select(counts, ranks=range(2, 20))\n    docs/ranks.md\n"
    )
    assert repr(bayesnmf.which("zzz")).startswith("nothing is close")
    with pytest.raises(TypeError, match="question must be a list of words"):
        bayesnmf.which(3)
