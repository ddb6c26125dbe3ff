"""The glossary: short, in order, and found in texts."""

import re
from pathlib import Path

import pytest

from bayesnmf.pages import words
from bayesnmf.pages.words import TERMS, WORDS, terms_in


def test_definitions_are_one_or_two_sentences_in_the_order_of_the_alphabet():
    assert [*TERMS] == sorted(TERMS, key=str.casefold)
    for term, told in TERMS.items():
        assert told.endswith("."), term
        assert 1 <= len(re.findall(r"\.(?= |$)", told)) <= 2, term


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("The loadings of all ENTRIES", {"loading", "entry"}),
        ("R-hats by Gibbs sampling", {"R-hat", "Gibbs sampling"}),
        ("discounts, accounts, downloading, unloading", set()),
        ("log2 change (lfsr)", {"log2 change", "lfsr"}),
    ],
)
def test_terms_are_found_as_whole_words(text, terms):
    assert {*terms_in(text)} == terms


def test_every_text_is_said_somewhere_and_every_name_has_a_text():
    by_kind = {
        "terms",
        "models",
        "methods",
        "intervals",
        "states",
        "larger",
        "smaller",
        "pictures",
        "unknown",
    }  # found by a value
    sources = "".join(path.read_text(encoding="utf-8") for path in Path(words.__file__).parent.glob("*.py"))
    said = {name for name in re.findall(r'"([a-z]+\.[a-z_]+)"', sources) if name.partition(".")[0] in WORDS}
    said.discard("components.html")  # a file, of an example
    said |= {f"trust.{name}" for name in ("few_unmixed", "some_unmixed", "unmixed")}
    assert said == {f"{table}.{name}" for table, texts in WORDS.items() if table not in by_kind for name in texts}
