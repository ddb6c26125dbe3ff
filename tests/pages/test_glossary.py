"""The glossary: short, in order, and found in texts."""

import re

import pytest

from bayesnmf.pages.glossary import TERMS, terms_in


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
