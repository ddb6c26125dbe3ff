"""Which call answers which question: `which` searches the entries of `questions.toml`.

`python docs/which_call.py` prints the same entries as a page.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from functools import cache
from math import log
from pathlib import Path
from typing import NamedTuple

from bayesnmf.checks import check_words

FILE = Path(__file__).with_suffix(".toml")
SHOWN = 3
COMMON = "a an and are can do does for get have how i in is it my of on or the there to use what with"


class Question(NamedTuple):
    """A question, the guide that says more, and the answer: calls in backticks, and words.

    `also` are the words of other tools and fields for what is asked.
    """

    section: str
    question: str
    page: str
    answer: str
    also: str


class Answers(tuple[Question, ...]):
    """Questions that come close to what was asked, the closest first; a print has their answers."""

    __slots__ = ()

    def __repr__(self) -> str:
        parts = (
            "\n".join(
                [each.question, f"    {each.answer.replace('`', '')}", *([f"    docs/{each.page}"] * bool(each.page))]
            )
            for each in self
        )
        return "\n".join(parts) or "nothing is close to this: docs/which_call.md has all questions"


@cache
def questions() -> tuple[Question, ...]:
    """Return all questions, in the order of the page."""
    return tuple(Question(**each) for each in tomllib.loads(FILE.read_text(encoding="utf-8"))["entry"])


def which(question: str) -> Answers:
    """Return the calls that answer a question, which is given in words.

    Parameters
    ----------
    question : str
        Words, such as "how many topics" or "heatmap". Those of other tools and fields are known, too.

    Returns
    -------
    Answers
        At most three questions that share most words with the given one, and their answers.

    See Also
    --------
    fit : which most answers begin with.

    Examples
    --------
    >>> import bayesnmf
    >>> bayesnmf.which("how many topics")[:1]
    (Question(section='Choose', question='How many components?', page='ranks.md', ...)
    """
    asked = {word for text in check_words(question, "question") for word in _stems(text)}
    everywhere = Counter(word for each in questions() for word in _words_of(each))

    def score(entry: Question) -> float:
        """Return how much is shared: rare words count more, and a whole phrase of the entry most."""
        shared = sum(1 + log(len(questions()) / everywhere[word]) for word in asked & _words_of(entry))
        phrases = (_stems(phrase) for phrase in [entry.question, *entry.also.split(",")])
        return shared + sum(len(phrase) for phrase in phrases if phrase and phrase <= asked)

    ranked = sorted(questions(), key=score, reverse=True)
    return Answers(each for each in ranked[:SHOWN] if score(each) > 0)


@cache
def _words_of(entry: Question) -> frozenset[str]:
    return _stems(f"{entry.question} {entry.also} {entry.answer}")


def _stems(text: str) -> frozenset[str]:
    """Return the words of a text in small letters, without common words, and without the ends that plurals have."""
    words = re.findall(r"[\w-]+", text.lower())
    skipped = COMMON.split()
    return frozenset(word.removesuffix("s")[:7] for word in words if word not in skipped)
