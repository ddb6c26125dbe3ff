"""Checks of the options of each method, before counts and model are known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from bayesnmf.checks import check_choice, check_count, check_flag, check_nonnegative, check_positive, make_plain, shown
from bayesnmf.options.algorithms import ALGORITHMS
from bayesnmf.options.rules import CPU, GPU, Need, Request, Rule, Text, Thing, algorithms, check_rules, given, setting
from bayesnmf.options.start import Start
from bayesnmf.priors import Priors

MOST_THREADS = 1024
EM = algorithms(lambda each: "regression" not in each.needs, "algorithm='em'")
PLAIN = algorithms(lambda each: not each.why, "algorithm='coordinate' under vi")
REPEATED = algorithms(
    lambda each: not each.why or "merged" in each.needs, "algorithm='coordinate' or 'minibatch' under vi"
)
EXTRAPOLATED = algorithms(lambda each: each.extrapolates, "algorithm='coordinate' or 'settled' under vi")
BATCHED = Need("algorithm='minibatch'", lambda r: r.algorithm == "minibatch", "{r.algorithm!r}")
BY_NAME = Need(
    "a start by name", lambda r: isinstance(r.options.start, str | None), lambda r: type(r.options.start).__name__,
    "leave start or restarts out, or give a word, as start='random'",
)  # fmt: skip


def _its_steps(r: Request) -> str:
    return f"where {ALGORITHMS[r.algorithm].why}"


def _setting(thing: Thing, need: Need, why: Text = "") -> Rule:
    return Rule(thing, need, why, cure=f"leave {thing.name.partition('=')[0]} out")


# What options need of each other, before anything else is known: the first part of the table of what goes with what.
SETTINGS = (
    Rule(
        replace(given("restarts"), name="restarts={r.options.restarts}", title="restarts"), BY_NAME,
        "which is the same each time",
    ),
    Rule(given("budget"), setting("draws", "auto", cure="leave one of them out"), "a number"),
    _setting(given("schedule", "joint"), EM, "which regresses one side on the other"),
    _setting(given("basis", "log"), EM, "which works in the natural basis"),
    *(_setting(given(each), BATCHED, "which uses all rows at once") for each in ("batch_size", "forgetting", "delay")),
    *(_setting(given(each), PLAIN, _its_steps) for each in ("schedule", "order")),
    _setting(given("sweeps"), REPEATED, _its_steps),
    *(_setting(each, EXTRAPOLATED, _its_steps) for each in (given("extrapolate", True), given("learn"))),
    Rule(GPU, algorithms(lambda each: each.device), "which runs on the CPU", cure="leave device or algorithm out"),
    _setting(given("threads"), CPU),
    Rule(given("collapsed"), setting("algorithm", "allocations"), "an algorithm of its own"),
)  # fmt: skip


def check_own_settings(options: Any, method: str) -> None:
    """Refuse options that do not go with each other."""
    check_rules(Request(method=method, options=options), SETTINGS)


@cache
def types_of(kind: type) -> dict[str, tuple[Any, ...]]:
    """Return the types that each option of a class may have, of a union each."""
    hints = get_type_hints(kind)
    return {name: get_args(each) if get_origin(each) in (Union, UnionType) else (each,) for name, each in hints.items()}


def check_fields(options: Any) -> None:
    """Refuse an option of the wrong type or out of range; convert NumPy's numbers to Python's.

    The type says which values an option has. The metadata of its field narrow it: `check`, a function of the value and
    the name; `words`, in place of those of the type; `minimum` and `most` of a whole number, which is else at least 1.
    """
    make_plain(options)
    kind: type = type(options)
    for each in fields(options):
        value, name, types, rule = getattr(options, each.name), each.name, types_of(kind)[each.name], each.metadata
        words = rule.get("words") or [word for part in types if get_origin(part) is Literal for word in get_args(part)]
        if value is None and NoneType in types:
            continue
        if "check" in rule:
            rule["check"](value, name)
        elif Priors in types:
            check_priors(value)
        elif Start in types:
            check_start(value, words)
        elif bool in types:
            check_flag(value, name)
        elif int in types:
            check_count(value, name, **rule)
        elif float in types:
            check_nonnegative(value, name)
        else:
            check_choice(value, name, words)


def check_priors(priors: Any) -> None:
    """Refuse priors of another class."""
    if not isinstance(priors, Priors):
        raise TypeError(f"priors must be bayesnmf.Priors(loadings=..., components=...): found {shown(priors)}")


def check_start(start: Any, words: Iterable[str]) -> None:
    """Refuse a start that is not one of the words, a Start or a Fit."""
    if isinstance(start, str):
        check_choice(start, "start", words)
    elif not (hasattr(start, "loadings") and hasattr(start, "components")):
        listed = ", ".join(repr(word) for word in words)
        raise TypeError(
            f"start must be a bayesnmf.Start(loadings, components), a Fit or one of {listed}: found {shown(start)}"
        )


def check_threads(threads: Any, name: str = "threads") -> None:
    """Refuse a number of threads that is not None or a whole number from 1 to `MOST_THREADS`."""
    if threads is not None and check_count(threads, name, most=10**40) > MOST_THREADS:
        raise ValueError(f"{name} must be at most {MOST_THREADS:,}; give the number of cores, or leave {name} out")


def check_draws(draws: Any, name: str) -> None:
    """Refuse a number of draws that is not "auto" or a whole number."""
    if not isinstance(draws, str):
        check_count(draws, name)
    elif draws != "auto":
        raise TypeError(f"{name} must be 'auto' or a whole number of at least 1, not {shown(draws)}")


def check_forgetting(forgetting: Any, name: str) -> None:
    """Refuse an exponent of the step sizes with which they do not converge."""
    if not 0.5 < check_positive(forgetting, name) <= 1:
        raise ValueError(
            f"{name} must be above 0.5 and at most 1, so that the steps converge: found {forgetting:g}; give 0.6"
        )


def check_learn(sides: Any, name: str) -> None:
    """Refuse anything but a tuple of sides."""
    if not isinstance(sides, tuple | list):
        raise TypeError(f"{name} must be a tuple of sides, as in learn=('loadings',): found {shown(sides)}")
    if not all(isinstance(side, str) and side in ("loadings", "components") for side in sides):
        raise ValueError(f"{name} must contain only 'loadings' and 'components': found {shown(sides)}")


def check_options_by_method(options: Any) -> None:
    """Refuse options for several methods that are not a mapping from method to options."""
    if options is not None and not isinstance(options, Mapping):
        raise TypeError(
            f"options must map methods to options, as in {{'vi': bayesnmf.VI(...)}}: found {shown(options)}"
        )


def check_options(options: Any, method: str, expected: type) -> None:
    """Refuse options that are not of the class `expected`, which the method needs."""
    if not isinstance(options, expected):
        raise TypeError(
            f"options must be bayesnmf.{expected.__name__}(...) for method={method!r}: found {type(options).__name__}"
        )
