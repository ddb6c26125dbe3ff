"""Formulas of names, ``+``, ``:``, ``*``, ``C(name)`` and parentheses; what has more is refused by name.

What formulas mean elsewhere beyond this, such as powers, is easily taken for another thing (``x**2`` is x), and powers
of sums have more terms than can be counted; so a formula is read before any of it is multiplied out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import prod

from bayesnmf.data.covariates.checks import (
    check_formula_ends,
    check_number_of_terms,
    check_one_kind,
    check_terms,
    check_with_itself,
    refuse_in_formula,
)

NAME = r"[^\W\d][\w.]*"
TOKEN = re.compile(rf"\s*(?:(?P<quoted>`[^`]+`)|(?P<name>{NAME})|(?P<sign>\*\*|%[^%\s]*%|[\d.]+|\S))")
DEEPEST = 50  # parentheses within parentheses
Term = tuple[str, ...]


@dataclass(frozen=True)
class Formula:
    """Terms of a formula beside the intercept, each a product of columns, and the columns that are named as categories.

    Attributes
    ----------
    terms : list of tuple of str
    categories : set of str
    """

    terms: list[Term]
    categories: frozenset[str]

    @property
    def columns(self) -> list[str]:
        """Names of the columns, in their order in the formula."""
        return list(dict.fromkeys(name for term in self.terms for name in term))

    @property
    def text(self) -> str:
        """The formula as text with all terms, without `C`."""
        return "~ " + " + ".join(":".join(map(_quoted, term)) for term in self.terms)

    def width(self, levels: Mapping[str, Sequence[str]], most: int) -> tuple[int, str]:
        """Return how many columns the design has, and the term with most of them if it has several.

        They are counted before any is made: a term has the products of all but one level of its categories, for each
        subset of these that no term before has. More than `most` are counted of one term alone.
        """
        number = {name: len(each) for name, each in levels.items()}
        of_terms = {term: prod(number.get(name, 1) for name in term) for term in self.terms}
        widest = max(of_terms, key=of_terms.__getitem__)
        name = ":".join(map(_quoted, widest)) if of_terms[widest] > 1 else ""
        if of_terms[widest] > most:
            return of_terms[widest], name
        parts = {frozenset[str](): 1}
        for term in self.terms:
            own = [each for each in term if each in number]
            for chosen in (some for size in range(len(own) + 1) for some in combinations(own, size)):
                part = frozenset(term) - {*own} | {*chosen}
                parts[part] = prod(number[each] - 1 for each in chosen)
        return sum(parts.values()), name

    def moves(self, name: str) -> bool:
        """Return whether the model stays the same if a number is added to a column of numbers."""
        known = {frozenset(term) for term in self.terms} | {frozenset[str]()}
        return all(each - {name} in known for each in known if name in each)


def read_formula(formula: str, columns: list[str]) -> Formula:
    """Return the terms of a formula.

    Parameters
    ----------
    formula : str
    columns : list of str
        Columns of the covariates, of which a cure is made.

    Raises
    ------
    ValueError
        What is no formula of names, ``+``, ``:``, ``*`` and ``C(name)``, or has no covariate.
    """
    reader = _Reader(formula, columns)
    terms = [term for term in reader.whole() if term]
    check_terms(formula, terms)
    check_one_kind(formula, sorted(reader.categories & reader.numbers))
    return Formula(terms, frozenset(reader.categories))


def _quoted(name: str) -> str:
    return name if re.fullmatch(NAME, name) and name != "C" else f"`{name}`"


class _Reader:
    """Reader of one formula, from the left; products bind stronger than sums, and ``:`` stronger than ``*``."""

    def __init__(self, formula: str, columns: list[str]) -> None:
        self.formula, self.columns, self.depth = formula, columns, 0
        self.tokens = list(TOKEN.finditer(formula))
        self.place = 0
        self.categories: set[str] = set()
        self.numbers: set[str] = set()

    def whole(self) -> list[Term]:
        if self.next == "~":
            self.place += 1
        found = self.sum() if self.next else []
        if self.next:
            self.refuse(self.next)
        return found

    @property
    def next(self) -> str:
        """The next token; empty at the end."""
        return self.tokens[self.place].group().strip() if self.place < len(self.tokens) else ""

    def refuse(self, found: str) -> None:
        refuse_in_formula(self.formula, found, self.columns)

    def sum(self) -> list[Term]:
        """Return the terms of a sum; refuse a term that is added twice."""
        parts = list(self.separated("+", self.star))
        single = [frozenset(part[0]) for part in parts if len(part) == 1]
        twice = [":".join(part[0]) for part in parts if len(part) == 1 and single.count(frozenset(part[0])) > 1]
        check_with_itself(self.formula, twice[:1], "+")
        return self.united(term for part in parts for term in part)

    def star(self) -> list[Term]:
        """Return the terms of factors, their products, and so on."""
        found: list[Term] = []
        for place, part in enumerate(self.separated("*", self.interaction)):
            found = self.united([*found, *part, *self.products(found, part, "*")]) if place else part
        return found

    def interaction(self) -> list[Term]:
        """Return the products of factors alone."""
        found: list[Term] = []
        for place, part in enumerate(self.separated(":", self.factor)):
            found = self.united(self.products(found, part, ":")) if place else part
        return found

    def separated(self, sign: str, read: Callable[[], list[Term]]) -> Iterator[list[Term]]:
        yield read()
        while self.next == sign:
            self.place += 1
            yield read()

    def products(self, left: list[Term], right: list[Term], sign: str) -> Iterator[Term]:
        """Yield the products of terms; refuse a column with itself, which is not its square."""
        check_number_of_terms(self.formula, len(left) * len(right))
        for one, other in product(left, right):
            if not (one and other):
                self.refuse("1")
            check_with_itself(self.formula, [name for name in one if name in other][:1], sign)
            yield one + other

    def united(self, terms: Iterable[Term]) -> list[Term]:
        """Return terms once each, whatever the order of their factors."""
        found = list({frozenset(term): term for term in reversed(list(terms))}.values())[::-1]
        check_number_of_terms(self.formula, len(found))
        return found

    def factor(self) -> list[Term]:
        """Return the term of a name, none for the intercept, or what is in parentheses."""
        check_formula_ends(self.formula, bool(self.next))
        token, here = self.tokens[self.place], self.next
        self.place += 1
        if here == "(" and self.depth < DEEPEST:
            self.depth += 1
            found = self.sum()
            check_formula_ends(self.formula, self.next != "")
            if self.next != ")":
                self.refuse(self.next)
            self.place, self.depth = self.place + 1, self.depth - 1
            return found
        if here == "1":
            return [()]
        if token["sign"]:
            self.refuse(here)
        if self.next == "(" and token["name"]:
            name = self.category() if here == "C" else None
            if name is None:
                self.refuse(self.called(token.start()))
            self.categories.add(str(name))
            return [(str(name),)]
        name = here.strip("`")
        self.numbers.add(name)
        return [(name,)]

    def category(self) -> str | None:
        """Return the name in `C(name)`, None for anything else; the reader stands behind the bracket."""
        inside = self.tokens[self.place + 1 : self.place + 3]
        if len(inside) < 2 or inside[1]["sign"] != ")" or inside[0]["sign"]:
            return None
        self.place += 3
        return inside[0].group().strip().strip("`")

    def called(self, start: int) -> str:
        """Return the text of a call that begins at a place."""
        depth = 0
        for place in range(start, len(self.formula)):
            depth += {"(": 1, ")": -1}.get(self.formula[place], 0)
            if self.formula[place] == ")" and depth == 0:
                return self.formula[start : place + 1].strip()
        return self.formula[start:].strip()
