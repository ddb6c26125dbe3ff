"""Checks of the options of each method, before counts and model are known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from bayesnmf.checks import check_choice, check_count, check_flag, check_nonnegative, check_positive, make_plain, shown
from bayesnmf.noise.abilities import Dispersed, Noise
from bayesnmf.noise.poisson import POISSON
from bayesnmf.options.algorithms import ALGORITHMS, algorithms_of, methods_for, serves
from bayesnmf.options.start import Start
from bayesnmf.priors import Priors
from bayesnmf.priors.checks import GAMMA_COMPONENTS, check_dispersed, check_has_part, check_tempered

TO_TOTALS, OF_BATCHES = "as others are scaled to the totals of rows", "as others receive counts of missing entries"
STARTS = ("svd", "descent", "random", "random_descent")
MOST_THREADS = 1024


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


def check_budget(budget: float, draws: object, default: float) -> None:
    """Refuse a budget of seconds beside a number of draws, which has no use for it."""
    if draws != "auto" and budget != default:
        raise ValueError(f"budget needs draws='auto': found draws={draws}, a number; leave one of them out")


def check_varied_restarts(options: Any) -> None:
    """Refuse several starts that would all be the same."""
    if options.restarts > 1 and not isinstance(options.start, str | None):
        raise ValueError(
            f"restarts={options.restarts} needs a start by name, such as start='random': a given start is the same "
            "each time; leave start or restarts out"
        )


def check_map_algorithm(options: Any) -> None:
    """Check the algorithm of map against its other options."""
    if options.algorithm in (None, "em"):
        return
    if options.schedule == "joint":
        raise ValueError(
            f"schedule='joint' needs algorithm='em': {options.algorithm!r} regresses one side on the other; "
            "leave schedule out"
        )
    if options.basis == "log":
        raise ValueError(f"basis='log' needs algorithm='em': {options.algorithm!r} works in the natural basis")


def check_vi_algorithm(options: Any) -> None:
    """Check the algorithm of vi against its other options."""
    _check_batches(options)
    if options.algorithm in (None, "coordinate"):
        return
    algorithm = ALGORITHMS[options.algorithm]
    asked = {
        "schedule": options.schedule is not None,
        "order": options.order != "loadings",
        "sweeps": options.sweeps is not None and options.algorithm != "minibatch",
        "extrapolate": options.extrapolate and not algorithm.extrapolates,
        "learn": bool(options.learn) and not algorithm.extrapolates,
    }
    for name, given in asked.items():
        if given:
            raise ValueError(f"{name} needs algorithm='coordinate': {algorithm.why}; leave {name} out")


def _check_batches(options: Any) -> None:
    """Refuse a batch size and step sizes, which only algorithm="minibatch" has."""
    for name in ("batch_size", "forgetting", "delay"):
        if getattr(options, name) is not None and options.algorithm != "minibatch":
            raise ValueError(
                f"{name} needs algorithm='minibatch': algorithm={options.algorithm!r} uses all rows at once; "
                f"leave {name} out"
            )


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


def check_device(options: Any, method: str) -> None:
    """Check the device of a closed-form method against its other options; the fit checks that there is a GPU."""
    if options.device == "cpu":
        return
    able = [name for name in algorithms_of(method) if ALGORITHMS[name].device]
    if options.algorithm not in (None, *able):
        raise ValueError(
            f"device={options.device!r} needs algorithm={' or '.join(map(repr, able))}: found {options.algorithm!r}, "
            "which runs only on the CPU; leave device or algorithm out"
        )
    if options.threads is not None:
        raise ValueError(f"threads needs device='cpu': found threads={options.threads}; leave threads out")


def check_one_sampler(collapsed: bool, algorithm: Any) -> None:
    """Refuse collapsed Gibbs together with another algorithm."""
    if collapsed and algorithm not in (None, "allocations"):
        raise ValueError(
            f"collapsed=True is an algorithm of its own: found algorithm={algorithm!r}; leave one of them out"
        )


def served_options(options: Any, noise: Noise, method: str, counts: Any) -> Any:
    """Return options for a noise and missing entries, which may choose the sampler; refuse what cannot be fitted."""
    if noise != POISSON:
        _check_noise_served(options, noise, method, counts)
    if method != "gibbs":
        return options
    if counts.mask is not None and options.priors.loadings.support != "positive":
        if noise != POISSON or options.algorithm == "marginal":
            raise ValueError(
                "missing entries and loadings that are proportions need bayesnmf.Gibbs(algorithm='allocations') and "
                "noise='poisson', since counts of missing entries are drawn beside the others; use method='vi'"
            )
        return replace(options, algorithm="allocations")
    if noise.has_entry_rates:
        return _options_with_rates(options, noise)
    return options if noise.whole else replace(options, algorithm="marginal")


def _options_with_rates(options: Any, noise: Noise) -> Any:
    """Return options that allocate counts where loadings are proportions, which receive counts beside their own."""
    if options.priors.loadings.support == "positive":
        return options
    if options.algorithm == "marginal":
        raise ValueError(
            f"noise={noise.word!r} and loadings that are proportions need bayesnmf.Gibbs(algorithm='allocations'), "
            "since counts are drawn beside the others; leave algorithm out"
        )
    return replace(options, algorithm="allocations")


def _check_noise_served(options: Any, noise: Noise, method: str, counts: Any) -> None:
    """Refuse what cannot be fitted with a noise other than Poisson."""
    what, able = f"noise={noise.word!r}", [name for name in ALGORITHMS if serves(name, noise)]
    methods = methods_for(noise)
    if not methods:
        raise ValueError(
            f"{what} is fitted by no method: its counts are neither Poisson, nor in clusters, nor Poisson given rates "
            "of entries (bayesnmf.noise.abilities); use noise='nb1' or 'nb2'"
        )
    if method not in methods:
        *first, last = sorted(methods, key="gibbs".__eq__)
        listed = " or ".join(filter(None, [", ".join(map(repr, first)), repr(last)]))
        raise ValueError(f"{what} needs method={listed}: found {method!r}, which draws or scores Poisson counts")
    if noise.by == "matrix" and noise.groups is None:
        raise ValueError("dispersion='matrix' needs counts of several matrices in bayesnmf.fit; leave it out elsewhere")
    if method == "smc":
        check_tempered(options.priors, what, counts)
    if getattr(options, "device", "cpu") != "cpu":
        raise ValueError(f"{what} needs device='cpu': found {options.device!r}; leave device out")
    if method == "gibbs" and not noise.whole:
        _check_without_allocations(options, what)
    elif getattr(options, "collapsed", False):
        raise ValueError(
            f"{what} needs bayesnmf.Gibbs(collapsed=False): single counts are not exchangeable in their clusters"
        )
    elif getattr(options, "algorithm", None) is not None and options.algorithm not in able:
        listed = " or ".join(repr(each) for each in able if method in ALGORITHMS[each].methods)
        raise ValueError(f"{what} needs algorithm={listed}: found {options.algorithm!r}; leave algorithm out")
    if isinstance(noise, Dispersed):
        check_dispersed(options, noise, what, counts)


def _check_without_allocations(options: Any, what: str) -> None:
    """Refuse Gibbs sampling that allocates counts one by one."""
    if options.collapsed or options.algorithm == "allocations":
        raise ValueError(
            f"{what} needs bayesnmf.Gibbs(algorithm='marginal'), since parts of counts cannot be allocated one by "
            "one; leave algorithm and collapsed out"
        )
    for side in ("loadings", "components"):
        check_has_part(getattr(options.priors, side), side, "entries", f"{what} with method='gibbs'", "method='vi'")


def check_mask_served(options: Any, method: str) -> None:
    """Refuse what cannot be fitted to counts with missing entries."""
    if method == "bld" or getattr(options, "collapsed", False):
        found = "collapsed=True" if method != "bld" else "method='bld'"
        raise ValueError(
            f"missing entries cannot be allocated count by count: found {found}; use method='vi' or 'gibbs'"
        )
    if method == "smc" and options.priors.loadings.support != "positive":
        raise ValueError(
            "missing entries and method='smc' need Gamma loadings, as proportions need counts of missing entries "
            f"beside their own: found {type(options.priors.loadings).__name__}; use method='nuts' or 'gibbs'"
        )
    if getattr(options, "algorithm", None) and not ALGORITHMS[options.algorithm].masks:
        listed = " or ".join(repr(name) for name in algorithms_of(method) if ALGORITHMS[name].masks)
        raise ValueError(
            f"missing entries need algorithm={listed}: found {options.algorithm!r}, which needs all entries; leave "
            "algorithm out"
        )
    sides = options.priors.loadings, options.priors.components
    reasons = {**dict.fromkeys(("scd", "ccd"), TO_TOTALS), "minibatch": OF_BATCHES}
    reason = reasons.get(getattr(options, "algorithm", None) or "")
    if reason and any(getattr(side, "support", "") != "positive" for side in sides):
        cure = f"use algorithm={algorithms_of(method)[0]!r} in bayesnmf.fit"  # a stream has no other algorithm
        if options.priors.loadings.support == "positive":
            cure = f"give priors={GAMMA_COMPONENTS} in the options, or {cure}"
        raise ValueError(
            f"missing entries and algorithm={options.algorithm!r} need Gamma priors on both sides, {reason}; {cure}"
        )
    if getattr(options, "device", "cpu") != "cpu":
        raise ValueError(f"missing entries need device='cpu': found {options.device!r}; leave device out")
