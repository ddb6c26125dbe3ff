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
from typing import NoReturn

from bayesnmf.checks import shown

NAME = r"[^\W\d][\w.]*"
TOKEN = re.compile(rf"\s*(?:(?P<quoted>`[^`]+`)|(?P<name>{NAME})|(?P<sign>\*\*|%[^%\s]*%|[\d.]+|\S))")
DEEPEST = 50  # parentheses within parentheses
MOST_TERMS = 1000
MOST_NAMED = 6  # columns that a cure names
RULE = "formula must have names, +, :, * and C(name) alone"
NAMES = "formula must name columns of covariates, as '~ age + treatment'"
OF_COLUMN = (
    "make a column of that in covariates, and name it (columns are standardised by themselves), as "
    "covariates['age_2'] = covariates['age'] ** 2 and '~ age + age_2'"
)
BETWEEN = "put +, : or * between names, and names with spaces in backticks, as `my column`"
POWER = f"x**2 and x^2 are x in formulas elsewhere; {OF_COLUMN}; write products of sums out, as '~ a + b + a:b'"
LEFT = "with nothing left of ~ and no |: loadings are on the left; write '~ age + treatment'"
KEPT = "keep its intercept, the size of a component: leave out 0, -1, and what is not wanted"
IN_PLACE = {
    "~": LEFT,
    "|": LEFT,
    "-": KEPT,
    "0": KEPT,
    "**": POWER,
    "^": POWER,
    "/": "for a/b write '~ a + a:b'",
    "%": "for b %in% a write '~ a:b'",
    ".": "name the columns, as '~ EVERY'",
    "1": "the intercept is there by itself, and has no products; leave it out",
    ",": BETWEEN,
    ")": "a bracket is closed that none opens; leave it out",
    "(": "it has too many brackets within brackets; write the terms out, as '~ a + b + a:b'",
    "+": "a name must stand on both sides of +; leave one + out",
    "*": "a name must stand on both sides of *; leave it out",
    ":": "a name must stand on both sides of :; leave it out",
    "`": "close the name with another `",
    "C(": (
        "C takes one name. The first level is compared with: covariates['arm'] = pd.Categorical("
        "covariates['arm'], categories=['b', 'a']) makes it 'b'"
    ),
}
SQUARE = ", or make a column of its square, covariates['{name}_2'] = covariates['{name}'] ** 2, and name that"
Term = tuple[str, ...]


@dataclass(frozen=True)
class Formula:
    """Terms of a formula beside the intercept, each a product of columns, and the columns that are named as categories.

    Attributes
    ----------
    terms : list of tuple of str
    categories : set of str
    given : bool
        False where there is no formula, and each column of numbers is a term.
    """

    terms: list[Term]
    categories: frozenset[str] = frozenset()
    given: bool = True

    @property
    def columns(self) -> list[str]:
        """Names of the columns, in their order in the formula."""
        return list(dict.fromkeys(name for term in self.terms for name in term))

    @property
    def text(self) -> str | None:
        """The formula as text with all terms, without `C`; None where there is none."""
        return "~ " + " + ".join(":".join(map(_quoted, term)) for term in self.terms) if self.given else None

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


def read_formula(formula: str | None, columns: list[str]) -> Formula:
    """Return the terms of a formula.

    Parameters
    ----------
    formula : str or None
    columns : list of str
        Columns of the covariates, which are the terms without a formula, and of which a cure is made.

    Raises
    ------
    ValueError
        What is no formula of names, ``+``, ``:``, ``*`` and ``C(name)``, or has no covariate.
    """
    if formula is None:
        return Formula([(name,) for name in columns], given=False)
    reader = _Reader(formula, columns)
    terms = [term for term in reader.whole() if term]
    if not terms:
        raise ValueError(f"{NAMES}: found {formula!r}, with no covariate; name one, or leave formula out")
    if both := sorted(reader.categories & reader.numbers):
        name = both[0]
        raise ValueError(
            f"formula must name a column either as {name} or as C({name}): found both in {formula!r}; for both, give "
            f"the categories a column of their own, covariates[{name + '_category'!r}] = "
            f"covariates[{name!r}].astype(str)"
        )
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
        """Return all terms; refuse what follows them."""
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

    def refuse(self, found: str) -> NoReturn:
        """Refuse what formulas have elsewhere and not here, with what to write in its place."""
        if found.startswith("Q(") or re.fullmatch(rf"`.+`|{NAME}", found):
            cure = BETWEEN
        else:
            known = (found, "%" if found.startswith("%") else "", "C(" if found.startswith("C(") else "")
            cure = next((IN_PLACE[each] for each in known if each in IN_PLACE), OF_COLUMN)
        every = " + ".join(name if name.isidentifier() else f"`{name}`" for name in self.columns[:MOST_NAMED])
        raise ValueError(f"{RULE}: found {shown(found)} in {shown(self.formula)}; {cure.replace('EVERY', every)}")

    def refuse_twice(self, names: list[str], sign: str) -> None:
        """Refuse a term beside itself, and the product of a column with itself, which is no square."""
        if names:
            name = names[0]
            cure = f"name it once{'' if sign == '+' else SQUARE.format(name=name)}"
            raise ValueError(
                f"formula must have each name once in a term: found {name!r} {sign} {name!r} in {self.formula!r}; "
                f"{cure}"
            )

    def refuse_many(self, number: int) -> None:
        """Refuse products with more terms than anybody would read."""
        if number > MOST_TERMS:
            raise ValueError(
                f"formula must have at most {MOST_TERMS:,} terms: found more in {shown(self.formula)}; write the "
                "products that are wanted, as '~ a + b + a:b'"
            )

    def refuse_end(self) -> None:
        """Refuse a formula that ends where a name, or a bracket, should follow."""
        if not self.next:
            raise ValueError(
                f"{NAMES}: found {self.formula!r}, which ends before its last name or bracket; complete it"
            )

    def sum(self) -> list[Term]:
        """Return the terms of a sum; refuse a term that is added twice."""
        parts = list(self.separated("+", self.star))
        single = [frozenset(part[0]) for part in parts if len(part) == 1]
        twice = [":".join(part[0]) for part in parts if len(part) == 1 and single.count(frozenset(part[0])) > 1]
        self.refuse_twice(twice, "+")
        return self.united(term for part in parts for term in part)

    def star(self) -> list[Term]:
        """Return the terms of factors, their products, and so on."""
        return self.multiplied("*", self.interaction, beside=True)

    def interaction(self) -> list[Term]:
        """Return the products of factors alone."""
        return self.multiplied(":", self.factor)

    def separated(self, sign: str, read: Callable[[], list[Term]]) -> Iterator[list[Term]]:
        """Yield what is read between signs."""
        yield read()
        while self.next == sign:
            self.place += 1
            yield read()

    def multiplied(self, sign: str, read: Callable[[], list[Term]], beside: bool = False) -> list[Term]:
        """Return the products of what is read between signs, and with `beside` their factors, too."""
        parts = self.separated(sign, read)
        found = next(parts)
        for part in parts:
            factors = [*found, *part] if beside else []
            found = self.united([*factors, *self.products(found, part, sign)])
        return found

    def products(self, left: list[Term], right: list[Term], sign: str) -> Iterator[Term]:
        """Yield the products of terms; refuse a column with itself, which is not its square."""
        self.refuse_many(len(left) * len(right))
        for one, other in product(left, right):
            if not (one and other):
                self.refuse("1")
            self.refuse_twice([name for name in one if name in other], sign)
            yield one + other

    def united(self, terms: Iterable[Term]) -> list[Term]:
        """Return terms once each, whatever the order of their factors."""
        found = list({frozenset(term): term for term in reversed(list(terms))}.values())[::-1]
        self.refuse_many(len(found))
        return found

    def factor(self) -> list[Term]:
        """Return the term of a name, none for the intercept, or what is in parentheses."""
        self.refuse_end()
        token, here = self.tokens[self.place], self.next
        self.place += 1
        if here == "(" and self.depth < DEEPEST:
            self.depth += 1
            found = self.sum()
            self.refuse_end()
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
            self.categories.add(name)
            return [(name,)]
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
