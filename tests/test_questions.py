"""Questions in words lead to calls; the page of all questions is that of the file. `test_printed` runs the calls."""

from itertools import groupby

import pytest
from test_guides import ROOT, from_site

import bayesnmf
from bayesnmf.questions import questions

ASKED = from_site("searching").ASKED


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
