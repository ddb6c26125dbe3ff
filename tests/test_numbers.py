"""Numbers that several pages state are those of one file, which benchmarks write."""

from __future__ import annotations

import pytest

from benchmarks.numbers import MARK, filled, numbers, pages


def test_pages_state_the_numbers_of_the_file():
    """A number that was measured again and not filled in, or changed by hand on one page, is found."""
    found, wrong = numbers(), []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if filled(text, found) != text:
            wrong.append(page.name)
    assert wrong == []


def test_every_number_is_stated_and_says_how_it_was_measured():
    stated = {place.group(1, 2) for page in pages() for place in MARK.finditer(page.read_text(encoding="utf-8"))}
    found = numbers()
    assert stated == {(name, value) for name, group in found.items() for value in group["values"]}
    assert all(group["how"] and group["where"] != "to be measured" for group in found.values())


def test_a_changed_number_and_an_unknown_one_are_found():
    found = {"speed": {"values": {"nips": "5"}}}
    assert filled("after <!--speed: nips-->7<!----> s", found) == "after <!--speed: nips-->5<!----> s"
    with pytest.raises(KeyError, match="texts"):
        filled("<!--speed: texts-->7<!---->", found)
