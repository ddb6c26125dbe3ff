"""Checks of the options of each method, before counts and model are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bayesnmf.checks import check_choice, check_count, check_flag, check_nonnegative, check_positive, make_plain, shown
from bayesnmf.noise.abilities import Dispersed, Noise
from bayesnmf.noise.poisson import POISSON
from bayesnmf.options.algorithms import ALGORITHMS, SCHEDULES, algorithms_of, methods_for, serves
from bayesnmf.priors import Priors
from bayesnmf.priors.checks import GAMMA_COMPONENTS, check_dispersed, check_has_part, check_tempered

TO_TOTALS, OF_BATCHES = "as others are scaled to the totals of rows", "as others receive counts of missing entries"
STARTS = ("svd", "descent", "random", "random_descent")
MOST_THREADS = 1024


def check_budget(budget: object, draws: object, default: float) -> None:
    """Check a budget of seconds, which a number of draws has no use for."""
    check_positive(budget, "budget")
    if draws != "auto" and budget != default:
        raise ValueError(f"budget needs draws='auto': found draws={draws}, a number; leave one of them out")


def check_coordinate_ascent(options: Any) -> None:
    """Check the options that map and vi share."""
    check_settings(options)
    if options.start is not None:
        check_start(options.start, STARTS)
    if options.schedule is not None:
        check_choice(options.schedule, "schedule", SCHEDULES)
    check_choice(options.order, "order", ("loadings", "components"))
    if options.sweeps is not None:
        check_count(options.sweeps, "sweeps")
    if options.extrapolate is not None:
        check_flag(options.extrapolate, "extrapolate")
    check_count(options.restarts, "restarts")
    check_choice(options.dtype, "dtype", ("float64", "float32"))
    check_count(options.max_iter, "max_iter", minimum=0)
    if options.tol is not None:
        check_nonnegative(options.tol, "tol")
    check_threads(options.threads)
    if options.restarts > 1 and not isinstance(options.start, str | None):
        raise ValueError(
            f"restarts={options.restarts} needs a start by name, such as start='random': a given start is the same "
            "each time; leave start or restarts out"
        )


def check_decomposition(options: Any) -> None:
    """Check the options of bld."""
    check_settings(options)
    check_start(options.start, ("fit", "map", "vi", "random"))
    check_count(options.restarts, "restarts")
    check_count(options.max_iter, "max_iter", minimum=0)
    check_nonnegative(options.tol, "tol")
    check_threads(options.threads)
    if options.restarts > 1 and not isinstance(options.start, str):
        raise ValueError(
            f"restarts={options.restarts} needs a random start: a given start is the same each time; use start='fit'"
        )


def check_map_algorithm(options: Any) -> None:
    """Check the algorithm of map against its other options."""
    if options.algorithm is not None:
        check_choice(options.algorithm, "algorithm", algorithms_of("map"))
    check_nonnegative(options.kkt_tol, "kkt_tol")
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
    if options.algorithm is not None:
        check_choice(options.algorithm, "algorithm", algorithms_of("vi"))
    _check_batches(options)
    if not isinstance(options.learn, tuple | list):
        raise TypeError(f"learn must be a tuple of sides, as in learn=('loadings',): found {shown(options.learn)}")
    if not all(isinstance(side, str) and side in ("loadings", "components") for side in options.learn):
        raise ValueError(f"learn must contain only 'loadings' and 'components': found {shown(options.learn)}")
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
    """Check the batch size and the step sizes, which only algorithm="minibatch" has."""
    for name in ("batch_size", "forgetting", "delay"):
        if getattr(options, name) is not None and options.algorithm != "minibatch":
            raise ValueError(
                f"{name} needs algorithm='minibatch': algorithm={options.algorithm!r} uses all rows at once; "
                f"leave {name} out"
            )
    if options.batch_size is not None:
        check_count(options.batch_size, "batch_size")
    if options.forgetting is not None and not 0.5 < check_positive(options.forgetting, "forgetting") <= 1:
        raise ValueError(
            f"forgetting must be above 0.5 and at most 1, so that the steps converge: found {options.forgetting:g}; "
            "give 0.6"
        )
    if options.delay is not None:
        check_nonnegative(options.delay, "delay")


def check_start(start: Any, words: tuple[str, ...]) -> None:
    """Refuse a start that is not one of the words, a Start or a Fit."""
    if isinstance(start, str):
        check_choice(start, "start", words)
    elif not (hasattr(start, "loadings") and hasattr(start, "components")):
        listed = ", ".join(repr(word) for word in words)
        raise TypeError(
            f"start must be a bayesnmf.Start(loadings, components), a Fit or one of {listed}: found {shown(start)}"
        )


def check_threads(threads: Any) -> None:
    """Refuse a number of threads that is not None or a whole number from 1 to `MOST_THREADS`."""
    if threads is not None and check_count(threads, "threads", most=10**40) > MOST_THREADS:
        raise ValueError(f"threads must be at most {MOST_THREADS:,}; give the number of cores, or leave threads out")


def check_settings(options: Any) -> None:
    """Convert NumPy numbers among the options to Python numbers, and check the class of the priors."""
    make_plain(options)
    if not isinstance(options.priors, Priors):
        raise TypeError(f"priors must be bayesnmf.Priors(loadings=..., components=...): found {shown(options.priors)}")


def check_sampler(options: Any) -> None:
    """Check the options that gibbs and nuts share."""
    check_settings(options)
    check_start(options.start, ("fit", "random"))
    check_count(options.chains, "chains")
    check_draws(options)
    check_count(options.warmup, "warmup", minimum=0)


def check_draws(options: Any) -> None:
    """Refuse a number of draws that is not a whole number or, for a sampler with a budget, "auto"."""
    if not hasattr(options, "budget") or not isinstance(options.draws, str):
        check_count(options.draws, "draws")
    elif options.draws != "auto":
        raise TypeError(f"draws must be 'auto' or a whole number of at least 1, not {shown(options.draws)}")


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
    check_choice(options.device, "device", ("cpu", "gpu", "gpus"))
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
