"""The language of the table of what goes with what (`bayesnmf.options.combinations`), and what many things need.

A request is what goes into a fit. A rule says that a thing which a request may have needs something of the rest, why,
and what to do instead. All rules have one message: "X needs Y: found Z, why; cure".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from bayesnmf.checks import shown
from bayesnmf.noise.abilities import Noise
from bayesnmf.noise.poisson import POISSON
from bayesnmf.options.algorithms import ALGORITHMS, Algorithm, algorithms_of
from bayesnmf.priors.distribution import OPTIONAL
from bayesnmf.priors.specification import MODELS, PARAMETER, on_simplex

SIDES = ("loadings", "components")
GAMMA_COMPONENTS = "bayesnmf.Priors(components=bayesnmf.Gamma(0.3, 0.3))"


@dataclass(frozen=True)
class Request:
    """What goes into a fit, with the priors filled in; what is not asked for is left out.

    Attributes
    ----------
    model, method : str
    priors : Priors
    options : MAP, VI, Gibbs, NUTS, SMC, SVI or BLD
    noise : Noise
    counts : Counts
    rank : int
    hides : bool
        Whether fits will miss entries that are held out.
    thinned : bool
        Whether a sampler keeps only some of its draws.
    stream : bool
        Whether rows come block by block.
    """

    model: str = ""
    method: str = ""
    priors: Any = None
    options: Any = None
    noise: Noise = POISSON
    counts: Any = None
    rank: int = 0
    hides: bool = False
    thinned: bool = False
    stream: bool = False

    @property
    def loadings(self) -> Any:
        """Prior of the loadings."""
        return self.priors.loadings

    @property
    def components(self) -> Any:
        """Prior of the components, or "parameter"."""
        return self.priors.components

    @property
    def algorithm(self) -> Any:
        """Name of the algorithm, None where it is not chosen."""
        return getattr(self.options, "algorithm", None)

    @property
    def device(self) -> str:
        """Where the fit runs."""
        return getattr(self.options, "device", "cpu")

    @property
    def collapsed(self) -> bool:
        """Whether counts are allocated one by one, with both sides integrated out."""
        return bool(getattr(self.options, "collapsed", False))

    @property
    def proportions(self) -> bool:
        """Whether loadings are proportions, with or without a scale."""
        return bool(self.loadings.support != "positive")

    @property
    def missing(self) -> bool:
        """Whether counts have missing entries."""
        return self.counts is not None and self.counts.mask is not None

    @property
    def matrices(self) -> Any:
        """Names and weights of several matrices; None for one."""
        return getattr(self.counts, "matrices", None)


Text = str | Callable[[Request], str]  # {r} in a text is the request


def _told(text: Text, request: Request) -> str:
    return text.format(r=request) if isinstance(text, str) else text(request)


@dataclass(frozen=True)
class Thing:
    """Something that a request may have.

    Attributes
    ----------
    name : str
        How messages call it.
    has : callable
        Whether a request has it.
    plural : bool
        Whether it "need"s or "needs".
    title : str
        How the documentation calls it, if not by its name.
    """

    name: str
    has: Callable[[Request], Any]
    plural: bool = False
    title: str = ""

    def __and__(self, other: Thing) -> Thing:
        """Return both together."""
        title = f"{self.title or self.name} and {other.title or other.name}"
        return Thing(f"{self.name} and {other.name}", lambda r: self.has(r) and other.has(r), True, title)

    def words(self, request: Request) -> str:
        """Return the beginning of the messages of its rules."""
        return _told(f"{self.name} {'need' if self.plural else 'needs'}", request)


@dataclass(frozen=True)
class Need:
    """Something that a thing may need.

    Attributes
    ----------
    words : str or callable
        What is needed.
    met : callable
        Whether a request has it.
    found : str or callable
        What a request has instead.
    cure : str or callable
        What to do instead, where a rule does not say.
    title : str
        How the documentation calls it, where the words are those of a request.
    """

    words: Text
    met: Callable[[Request], Any]
    found: Text
    cure: Text = ""
    title: str = ""

    def message(self, request: Request, what: str, why: Text = "", cure: Text = "") -> str:
        """Return that a request lacks it; `what` ends with "needs" or "need"."""
        needed, found, reason = (_told(each, request) for each in (self.words, self.found, why))
        return f"{what} {needed}: found {found}{reason and f', {reason}'}; {_told(cure or self.cure, request)}"

    def check(self, request: Request, what: str, why: Text = "", cure: Text = "") -> None:
        """Refuse `what` of a request that lacks it."""
        if not self.met(request):
            raise ValueError(self.message(request, what, why, cure))


@dataclass(frozen=True)
class Rule:
    """That a thing needs something, why, and what to do instead."""

    thing: Thing
    need: Need
    why: Text = ""
    cure: Text = field(default="", kw_only=True)

    def check(self, request: Request) -> None:
        """Refuse a request with the thing and without what it needs."""
        if self.thing.has(request):
            self.need.check(request, self.thing.words(request), self.why, self.cure)

    def in_docs(self) -> tuple[str, str, str] | None:
        """Return thing, need and reason as the documentation has them; None for a thing that nothing has as yet."""
        need, thing, why = self.need, self.thing, self.why
        title, words = thing.title or thing.name, need.title or str(need.words)
        return None if "{" in title else (title, words, why if isinstance(why, str) else "")


def check_rules(request: Request, rules: Iterable[Rule]) -> None:
    """Refuse a request by the first rule that it breaks."""
    for rule in rules:
        rule.check(request)


def alternatives(words: Iterable[Any], last: str = "") -> str:
    """Return words as "'a', 'b' or 'c'"; `last` is put last if it is among them."""
    found = [repr(word) for word in sorted(words, key=last.__eq__)]
    return " or ".join(filter(None, (", ".join(found[:-1]), *found[-1:])))


def given(name: str, value: Any = None) -> Thing:
    """Return that an option is given, not left as it is by default; or that it has a value."""

    def has(r: Request) -> bool:
        fields = getattr(r.options, "__dataclass_fields__", {})
        found = getattr(r.options, name, None)
        return name in fields and (found == value if value is not None else found not in (fields[name].default, []))

    return Thing(name if value in (None, True) else f"{name}={value!r}", has)


def by(*names: str) -> Thing:
    """Return one of these methods."""
    title = f"method={alternatives(names)}" if names else ""
    return Thing("method={r.method!r}", lambda r: r.method in names, title=title)


def algorithm_with(able: Callable[[Algorithm], Any]) -> Thing:
    """Return an algorithm of which this is true."""
    names = [name for name, each in ALGORITHMS.items() if able(each)]
    title = f"algorithm={alternatives(names)}" if names else ""
    return Thing("algorithm={r.algorithm!r}", lambda r: r.algorithm and able(ALGORITHMS[r.algorithm]), title=title)


def methods(*names: str) -> Need:
    """Return the need of one of these methods."""
    words = f"method={alternatives(names)}"
    return Need(words, lambda r: r.method in names, "{r.method!r}", f"use {words}")


def algorithms(able: Callable[[Algorithm], Any], title: str = "") -> Need:
    """Return the need of one of the algorithms of the method of which this is true."""
    return algorithms_for(lambda name, r: able(ALGORITHMS[name]), title or algorithm_with(able).title)


def algorithms_for(able: Callable[[str, Request], Any], title: str) -> Need:
    """Return the need of an algorithm of which this is true together with a request."""
    return Need(
        lambda r: "algorithm=" + " or ".join(repr(name) for name in algorithms_of(r.method) if able(name, r)),
        lambda r: r.algorithm is None or able(r.algorithm, r),
        "{r.algorithm!r}",
        "leave algorithm out",
        title,
    )


def setting(name: str, *allowed: Any, cure: str = "") -> Need:
    """Return the need of one of these values of an option, or of the one that a method chooses."""
    words, cure = f"{name}={' or '.join(map(repr, allowed))}", cure or f"leave {name} out"
    met = (None, *allowed)
    return Need(words, lambda r: getattr(r.options, name, None) in met, f"{name}={{r.options.{name}!r}}", cure)


def proper(side: str) -> Need:
    """Return the need of a prior of a side that integrates to one."""

    def met(r: Request) -> Any:
        prior = getattr(r.priors, side)
        return prior not in (None, PARAMETER) and prior.proper

    cure = "give a prior with a rate above 0" + ", as model='gamma_poisson' has" * (side == "loadings")
    return Need(f"a proper prior of the {side}", met, lambda r: shown(getattr(r.priors, side)), cure)


def ability(part: str, cure: Text, sides: tuple[str, ...] = SIDES) -> Need:
    """Return the need of priors whose families have an ability (`bayesnmf.priors.distribution`)."""

    def lacking(r: Request) -> Any:
        priors = [(side, getattr(r.priors, side)) for side in sides]
        return next((each for each in priors if each[1] != PARAMETER and part not in each[1].optional), None)

    def found(r: Request) -> str:
        side, prior = lacking(r)
        if argument := argument_of(prior):
            return f"{argument}, which have none"
        return f"{type(prior).__name__} in priors.{side}, which has none"

    def instead(r: Request) -> str:
        argument = argument_of(lacking(r)[1])
        return f"use {_told(cure, r)}, or {f'leave {argument} out' if argument else 'another prior'}"

    return Need(OPTIONAL[part], lambda r: not lacking(r), found, instead)


def argument_of(prior: Any) -> str:
    """Return the argument that has made a prior what it is; "" for a prior that is given as it is."""
    return "fixed_components" if "known" in prior.constants else "covariates" if prior.has_effects else ""


def kind_of(prior: Any) -> str:
    """Return the name of the family of a prior, of other components beside known ones, or 'parameter'."""
    return repr(prior) if prior == PARAMETER else type(getattr(prior, "free_prior", prior)).__name__


def small_shape(priors: Any) -> tuple[str, float]:
    """Return the side with a shape or concentration below 1, and the smallest; "" and 1 if there is none."""
    sides = [(side, prior) for side, prior in vars(priors).items() if prior != PARAMETER]
    return next(((side, each.smallest_shape) for side, each in sides if each.smallest_shape < 1), ("", 1.0))


PROPER_LOADINGS, PROPER_COMPONENTS = map(proper, SIDES)
PRIOR_OF_COMPONENTS = Need(
    "a prior of the components", lambda r: r.components != PARAMETER, "priors.components='parameter'",
    "give bayesnmf.Dirichlet(1)",
)  # fmt: skip
SIMPLEX_COMPONENTS = Need(
    "Dirichlet components", lambda r: r.components != PARAMETER and on_simplex(r.components),
    lambda r: kind_of(r.components), "give bayesnmf.Dirichlet(...)",
)  # fmt: skip
BOUNDED = Need(
    lambda r: f"priors.{small_shape(r.priors)[0]} at 1 or above, else the density is unbounded at 0",
    lambda r: not small_shape(r.priors)[0], lambda r: f"{small_shape(r.priors)[1]:g}",
    title="shapes and concentrations of at least 1",
)  # fmt: skip
FLAT_SHARES = Need(
    "a flat prior of the loadings if components are on the simplex",
    lambda r: not on_simplex(r.components) or r.loadings.flat_in_shares, lambda r: shown(r.loadings),
    "give bayesnmf.Gamma(1, rate) with one rate for all components, or concentration 1; give Gamma components, or use "
    "algorithm='em'",
)  # fmt: skip
FREE_TOTALS = Need(
    "a model of the totals of rows", lambda r: not MODELS[r.model].given_totals, "{r.model!r}, where they are given",
    "use model='dirichlet_gamma' or 'gamma_poisson'",
)  # fmt: skip
GPU = replace(given("device"), name="device={r.device!r}", title="device='gpu'")
CPU = Need("device='cpu'", lambda r: not GPU.has(r), "{r.device!r}", "leave device out")
UNEXPOSED = Need("counts without row_exposure and feature_exposure", lambda r: not r.counts.exposed, "exposures")
COLLAPSIBLE = (SIMPLEX_COMPONENTS, PROPER_LOADINGS, ability("marginal", "elbo_marginal of a fit by method='vi'"))
REGRESSED = (ability("regression", "algorithm='em'"), BOUNDED, FLAT_SHARES)  # what coordinate descent needs
