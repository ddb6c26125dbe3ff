"""Words in context: the parts of a text in which most of some words stand."""

from __future__ import annotations

import re
from collections.abc import Iterable

BEFORE, WIDTH = 60, 200  # characters of a part, before its first word and in all
MOST = 2000  # words that are looked at in one text


def pattern_of(words: Iterable[str]) -> re.Pattern[str]:
    """Return what finds any of some words, whole and in capital or small letters, with any white space within."""
    longest_first = sorted({word for word in words if word.strip()}, key=lambda word: -len(word))
    either = "|".join(r"\s+".join(map(re.escape, word.split())) for word in longest_first)
    return re.compile(rf"(?<!\w)(?:{either})(?!\w)" if either else r"(?!)", re.IGNORECASE)


def snippets(text: str, marked: re.Pattern[str], number: int = 3) -> list[list[str]]:
    """Return parts of a text with most different marked words, in the order of the text.

    Each is a list of pieces: plain and marked ones in turn, beginning with a plain one, which may be empty.
    """
    found = [each for each, _ in zip(marked.finditer(text), range(MOST), strict=False)]
    windows = []
    for place, first in enumerate(found):
        inside = [first]
        for other in found[place + 1 :]:
            if other.end() > first.start() + WIDTH - BEFORE:
                break
            inside.append(other)
        windows.append((-len({each.group().casefold() for each in inside}), first.start(), inside))
    chosen: list[list[re.Match[str]]] = []
    for _, _, inside in sorted(windows, key=lambda each: each[:2]):
        if len(chosen) == number:
            break
        if all(abs(inside[0].start() - other[0].start()) >= WIDTH for other in chosen):
            chosen.append(inside)
    return [_pieces(text, inside) for inside in sorted(chosen, key=lambda each: each[0].start())]


def _pieces(text: str, inside: list[re.Match[str]]) -> list[str]:
    first = max(inside[0].start() - BEFORE, 0)
    last = min(max(inside[-1].end(), first + WIDTH), len(text))
    first = first if first == 0 else text.find(" ", first, inside[0].start()) + 1 or inside[0].start()
    last = last if last == len(text) else max(text.rfind(" ", inside[-1].end(), last), inside[-1].end())
    pieces = []
    for each in inside:
        pieces += [text[first : each.start()], each.group()]
        first = each.end()
    return [_plain(piece) for piece in [*pieces, text[first:last]]]


def _plain(piece: str) -> str:
    """Return a piece with single spaces in place of line ends and other white space."""
    return re.sub(r"\s+", " ", piece)
