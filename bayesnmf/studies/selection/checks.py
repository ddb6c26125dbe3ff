"""Checks of the arguments of `select` that no criterion makes of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bayesnmf.checks import check_choice, shown
from bayesnmf.data.counts import Counts
from bayesnmf.data.several import is_weighted, noise_of_matrices
from bayesnmf.noise.abilities import Noise, distribution_of
from bayesnmf.noise.poisson import POISSON
from bayesnmf.options import METHODS
from bayesnmf.options.algorithms import ALGORITHMS
from bayesnmf.priors.checks import check_noise
from bayesnmf.studies.selection.criterion import CRITERIA, Criterion, settings_of, word_of


def default_criterion(counts: Counts, method: str | None, given: dict[str, Any], proper: bool) -> str:
    """Return the criterion that settings ask for, or "masked" where entries of the counts can be missing.

    They cannot where some prior of loadings is not `proper`.
    """
    if any(given[name] is not None for name in ("keep", "withhold")):
        return "heldout"
    served = method is None or any(method in each.methods and each.masks for each in ALGORITHMS.values())
    return "masked" if min(counts.shape) > 1 and served and proper else "heldout"


def check_criterion(given: Any, settings: dict[str, Any]) -> Criterion:
    """Return the criterion of a word, with settings that are not None; refuse those of other criteria."""
    asked = {name: value for name, value in settings.items() if value is not None}
    if isinstance(given, Criterion):
        for name in asked:
            raise ValueError(f"{name} belongs to the criterion where this is an object: leave {name} out of the call")
        return given
    if not isinstance(given, str):
        raise TypeError(f"criterion must be a word or a Criterion: found {shown(given)}; use criterion='masked'")
    kind = CRITERIA[check_choice(given, "criterion", tuple(CRITERIA))]
    for name in asked:
        if name not in settings_of(kind):
            owners = " or ".join(f"criterion={each!r}" for each in CRITERIA if name in settings_of(CRITERIA[each]))
            raise ValueError(f"{name} needs {owners}: found criterion={given!r}; leave {name} out")
    return kind(**asked)


def check_method(criterion: Criterion, method: str | None) -> str:
    """Return the method, by default that of the criterion."""
    return check_choice(criterion.method if method is None else method, "method", METHODS)


def check_noises(criterion: Criterion, noise: Any, counts: Counts) -> list[Noise]:
    """Return the noises to compare; refuse those without a distribution, and what a criterion has no use for."""
    if not isinstance(noise, str | Noise | Iterable):
        raise TypeError(f"noise must be a word, a noise or a list of them: found {shown(noise)}")
    given = [noise] if isinstance(noise, str | Noise | Mapping) else list(noise)
    asked = (noise_of_matrices(each, counts) if isinstance(each, Mapping) else check_noise(each) for each in given)
    noises = list(dict.fromkeys(asked))
    if not noises:
        raise ValueError("noise must name at least one noise: found none; leave noise out for Poisson counts")
    if len({word_of(each) for each in noises}) < len(noises):
        raise ValueError("noises with arrays of dispersions have one name in the table: compare them one after another")
    for each in noises:
        distribution_of(each, "scores of select")
    others = [word_of(each) for each in noises if each != POISSON]
    if criterion.noises == "one" and len(noises) > 1:
        raise ValueError(
            f"criterion={criterion.word!r} needs one noise, as it does not ask which noise is better: found "
            f"{len(noises)}; compare noises by criterion='masked' first"
        )
    if others and criterion.noises == "poisson":
        raise ValueError(
            f"criterion={criterion.word!r} needs noise='poisson': found {others[0]!r}; use criterion='masked', which "
            "compares noises"
        )
    return noises


def check_takes(criterion: Criterion, counts: Counts, covariates: Any, checks: bool) -> None:
    """Refuse covariates, batches or weights that the criterion, or predictive checks after it, have no use for."""
    if covariates is not None and not criterion.takes_covariates:
        raise ValueError(
            "covariates need criterion='masked', or 'heldout' with withhold=0: found "
            f"{criterion.without_covariates}; use one of these, or leave covariates and formula out"
        )
    if counts.batch is not None and not criterion.takes_batch:
        raise ValueError(
            f"batch needs criterion='masked': found {criterion.word!r}, which has no factors of batches; leave batch "
            "out"
        )
    if is_weighted(counts) and (checks or not criterion.takes_weights):
        raise ValueError(
            "weights of matrices need criterion='masked', whose scores they weigh, without predictive checks, as they "
            f"leave no distribution of the counts: found criterion={criterion.word!r}, check={checks}; use "
            "criterion='masked', check=False"
        )
