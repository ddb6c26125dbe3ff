"""Choose the options that were left out: the values that gave the best results on whole real matrices.

`benchmarks/defaults.md` contains the measurements and the command that repeats them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from bayesnmf.options.algorithms import ALGORITHMS, algorithms_of
from bayesnmf.options.closed_form import MAP, VI
from bayesnmf.options.methods import Options
from bayesnmf.priors import Priors
from bayesnmf.priors.noise import NegativeBinomial, Noise
from bayesnmf.priors.specification import PARAMETER, on_simplex, uniformises


def resolve_options(options: Options, in_memory: bool = True, plain: bool = False) -> Options:
    """Return the options of map or vi with defaults in place of None; their priors must have no None left.

    Counts on disk are fitted by EM or coordinate ascent from the decomposition alone; those with missing cells, or a
    noise that coordinate descent does not serve, by the same algorithms (`plain`).
    """
    if not isinstance(options, MAP | VI):
        return options
    best = (
        _best_algorithm(options)
        if in_memory and not plain
        else algorithms_of("map" if isinstance(options, MAP) else "vi")[0]
    )
    chosen: dict[str, Any] = {"algorithm": options.algorithm or best}
    algorithm = ALGORITHMS[chosen["algorithm"]]
    if options.start is None:
        led_up_to = isinstance(options, VI) or has_sparse_prior(options.priors)
        chosen["start"] = "descent" if led_up_to and in_memory else "svd"
    chosen["extrapolate"] = algorithm.extrapolates if options.extrapolate is None else options.extrapolate
    if options.tol is None:
        chosen["tol"] = algorithm.tol
    return replace(options, **chosen)


def allows_regression(noise: Noise, priors: Priors) -> bool:
    """Return whether coordinate descent is right for this noise: it scales rows of proportions to their counts."""
    loadings: Any = priors.loadings
    able = noise.word in ALGORITHMS["scd"].noises
    proportions = isinstance(noise, NegativeBinomial) and loadings.support != "positive"
    return able and not proportions and not uniformises(noise, priors.components)


def varied_start(options: Any, in_memory: bool = True) -> str:
    """Return the word of the start that differs from seed to seed: for vi in memory with a descent, as its default."""
    return "random_descent" if in_memory and isinstance(options, VI) else "random"


def has_sparse_prior(priors: Priors) -> bool:
    """Return whether a shape or concentration is below 1, so that each row tends to keep its first components."""
    sides: Any = (priors.loadings, priors.components)
    return any(prior != PARAMETER and prior.smallest_shape < 1 for prior in sides)


def _best_algorithm(options: MAP | VI) -> str:
    """Return the name of the best algorithm that priors, schedule, basis and device allow."""
    if isinstance(options, VI):
        return "coordinate"
    stated_for_em = options.schedule == "joint" or options.basis == "log" or options.device != "cpu"
    fault = regression_fault(options.priors.loadings, options.priors.components)
    return "em" if stated_for_em or fault else "scd"


def basis_of_mode(options: Any) -> Literal["natural", "log"]:
    """Return the basis in which a method takes the mode: as requested, else natural if the priors allow it."""
    stated = getattr(options, "basis", None)
    return stated or ("log" if has_sparse_prior(options.priors) else "natural")


def chooses_basis(options: Any, basis: str) -> bool:
    """Return whether a method has the option `basis`, and takes the mode in this one."""
    return hasattr(options, "basis") and basis_of_mode(options) == basis


def regression_fault(loadings: Any, components: Any) -> str:
    """Return a message with what coordinate descent needs from these priors, and the cure; "" if it can fit them."""
    for side, prior in (("loadings", loadings), ("components", components)):
        if prior == PARAMETER:
            continue
        if "regression" not in prior.optional:
            return f"a prior other than {type(prior).__name__} in priors.{side}; use algorithm='em'"
        if prior.smallest_shape < 1:
            return (
                f"priors.{side} at 1 or above, else the density is unbounded at 0: found {prior.smallest_shape:g}; "
                "use algorithm='em', which can use the log basis"
            )
    if on_simplex(components) and not loadings.flat_in_shares:
        return (
            "a flat prior of the loadings if components are on the simplex, Gamma(1, rate) with one rate for all "
            "components or concentration 1, since it moves the scale of a component between the sides; give Gamma "
            "components, or use algorithm='em'"
        )
    return ""
