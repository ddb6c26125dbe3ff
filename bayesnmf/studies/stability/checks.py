"""Checks of the arguments of `bayesnmf.modes` and of its results."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesnmf.assessment.checks import check_catalogue
from bayesnmf.checks import check_choice, check_count, check_positive, check_share, shown
from bayesnmf.data.checks import same_counts
from bayesnmf.data.conversion import check_integer_counts
from bayesnmf.data.counts import Counts
from bayesnmf.fitting.fitted import Fit
from bayesnmf.noise.abilities import Noise
from bayesnmf.options import METHODS
from bayesnmf.priors.checks import same_prior
from bayesnmf.results.checks import check_distribution, check_fit

STARTS = ("random", "random_descent", "fit", "map", "vi")  # those that depend on the seed
SCORED = 10  # modes that are scored by held-out counts by default


def methods_with_an_objective() -> tuple[str, ...]:
    """Return the names of the methods that end at an exact objective, by which fits can be compared."""
    return tuple(name for name, each in METHODS.items() if each.posterior != "draws" and not each.estimated)


def check_has_objective(method: Any, what: str = "modes") -> str:
    """Return the name of a method; refuse those whose fits cannot be compared by an objective, for `what` needs it."""
    check_choice(method, "method", METHODS)
    able = methods_with_an_objective()
    if method not in able:
        listed = " or ".join(f"method={name!r}" for name in able)
        raise ValueError(
            f"{what} needs {listed}, which climb to an optimum of an exact objective: found {method!r}; use "
            "method='vi'. Chains can start from such a fit, as with bayesnmf.Gibbs(start=fit)"
        )
    return str(method)


def check_varied_start(start: Any) -> None:
    """Refuse a start that is the same for every seed."""
    if not isinstance(start, str):
        raise ValueError(
            f"options.start must differ from run to run: found {shown(start)}, the same for every run; leave start out "
            "of the options"
        )
    if start not in STARTS:
        raise ValueError(
            f"options.start must differ from run to run: found {start!r}, which is made from the counts; leave start "
            "out of the options"
        )


def check_scored(scored: Any, counts: Counts) -> int:
    """Return how many modes to score; by default ten, and none for counts that cannot be thinned."""
    if scored is None:
        return SCORED if counts.is_integer else 0
    number = check_count(scored, "scored", minimum=0)
    if number:
        check_integer_counts(counts, "held-out scores, which thin them", "round them, or give scored=0")
    return number


def check_factorisation(given: Any, best: Fit) -> np.ndarray:
    """Return components of the rank and with the features of the best fit, (K, m)."""
    _, values = check_catalogue(given, best)
    if len(values) != best.rank:
        raise ValueError(
            f"components must be {best.rank}, as many as those of the fits: found {len(values)}; give all of them"
        )
    return np.asarray(values)


def check_mode(mode: Any, modes: int) -> int:
    """Return the number of a mode; refuse one that was not found."""
    number = check_count(mode, "mode", minimum=0)
    if number >= modes:
        raise ValueError(f"mode must be below {modes}, the number of modes: found {number}; choose from found.table")
    return number


def check_particles(fit: Any, best: Fit, options: Any, noise: Noise) -> None:
    """Refuse anything but a fit by smc of the counts, model, rank and priors of the modes."""
    check_distribution(best, "evidences of modes")
    if not noise.known:
        raise ValueError(
            f"the evidence of modes needs one dispersion for all of them: found noise={noise.word!r}, with one learned "
            "by every run; give noise=found.best.noise to bayesnmf.modes and bayesnmf.fit"
        )
    check_fit(fit)
    if best.batch is not None:
        raise ValueError(
            "the evidence of modes needs counts without batches, as method='smc' has no factors of batches"
        )
    if not fit.by.resampled:
        raise ValueError(
            f"fit must be by method='smc', whose draws are shared out among modes by evidence: found {fit.method!r}; "
            "fit with method='smc'"
        )
    for what, ours, wanted in (("model", fit.model, best.model), ("rank", fit.rank, best.rank)):
        if ours != wanted:
            raise ValueError(f"fit must have the {what} of the modes, {wanted!r}: found {ours!r}; fit with {wanted!r}")
    if not same_counts(fit.counts, best.counts) or not fit.counts.exposed_like(best.counts):
        raise ValueError(
            "fit must be of the counts and exposures of the modes: found others; give found.best.counts to bayesnmf.fit"
        )
    if fit.noise != noise:
        raise ValueError(
            f"fit must have the noise of the modes, {noise!r}: found {fit.noise!r}; give noise=found.noise to "
            "bayesnmf.fit"
        )
    if getattr(options, "learn", ()):
        raise ValueError(
            "the evidence of modes needs one prior for all of them: found options.learn, with which every run has "
            "priors of its own; give their values as priors to bayesnmf.modes"
        )
    for side in ("loadings", "components"):
        if not same_prior(getattr(fit.priors, side), getattr(best.priors, side)):
            raise ValueError(
                f"fit must have the priors of the modes: found another priors.{side}; give "
                "options=bayesnmf.SMC(priors=found.best.priors) to bayesnmf.fit"
            )


def check_has_weights(weights: np.ndarray | None) -> np.ndarray:
    """Return the weights of modes; refuse modes without any."""
    if weights is None:
        raise ValueError("weighted modes need scores: found none; call bayesnmf.modes with scored above 0")
    return weights


def check_consensus(density: Any, neighbourhood: Any, runs: int, movable: int, free: int) -> None:
    """Check the settings of a consensus; refuse one of a single run, or of components that cannot be exchanged."""
    check_positive(density, "density")
    if not check_share(neighbourhood, "neighbourhood"):
        raise ValueError("neighbourhood must be above 0, the share of the runs that are neighbours: found 0; give 0.3")
    if runs < 2:
        raise ValueError("a consensus needs at least two runs: found one; raise starts in bayesnmf.modes")
    if not free:
        raise ValueError("a consensus needs components that are estimated: all are known here; lower fixed_components")
    if movable < free:
        raise ValueError(
            "a consensus needs equal priors of all components, as clusters have no order: found priors that differ "
            "from component to component; give both priors one number for all components"
        )


def check_enough_kept(densities: np.ndarray, density: float, rank: int) -> None:
    """Refuse to form `rank` clusters of fewer components, as all others were filtered out."""
    kept = int(np.sum(densities < density))
    if kept < rank:
        raise ValueError(
            f"density={density:g} must keep at least {rank} components, one for each cluster: found {kept} of "
            f"{len(densities)}, and the smallest local density is {densities.min():.3g}; raise density (2 keeps all), "
            "or raise starts in bayesnmf.modes"
        )


def check_enough_clusters(found: int, rank: int) -> None:
    """Refuse clusters that have no members, as there are fewer distinct components than clusters."""
    if found < rank:
        raise ValueError(
            f"a consensus of {rank} components needs as many distinct ones: found {found}; lower the rank, or raise "
            "density"
        )
