"""Checks of the arguments of `select`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bayesnmf.checks import check_choice, check_count, check_fraction, shown
from bayesnmf.data.counts import Counts
from bayesnmf.data.splitting import rows_aside
from bayesnmf.noise.abilities import Distributed, Noise
from bayesnmf.noise.poisson import POISSON
from bayesnmf.options import METHODS
from bayesnmf.options.algorithms import ALGORITHMS
from bayesnmf.priors.checks import check_noise
from bayesnmf.studies.selection.masks import FOLDS
from bayesnmf.studies.selection.record import UNIT, word_of
from bayesnmf.studies.stability.checks import check_has_objective

DEFAULTS: dict[str, Any] = {"splits": None, "keep": 0.8, "withhold": 0.2, "halves": 10, "resample": "halves"}
SPLITS = 3
FEWEST_HALVES = 5  # fewer cannot show a share of 80 % that is not 100 %
FEWEST_RUNS = 4  # fewer do not show their spread: logs with sd 3 seem to agree in 26 % of pairs, and 5 % of fours
OWN = {
    "masked": ("splits",), "heldout": ("splits", "keep", "withhold"), "evidence": (),
    "stability": ("halves", "resample"),
}  # fmt: skip
METHOD = {"masked": "vi", "heldout": "vi", "evidence": "smc", "stability": "vi"}


def default_criterion(counts: Counts, method: str | None, given: dict[str, Any]) -> str:
    """Return the criterion that settings ask for, or "masked" where entries of the counts can be missing."""
    if any(given[name] is not None for name in ("keep", "withhold")):
        return "heldout"
    served = method is None or any(method in each.methods and each.masks for each in ALGORITHMS.values())
    return "masked" if min(counts.shape) > 1 and served else "heldout"


def check_criterion(criterion: Any, method: str | None) -> str:
    """Return the method, by default that of the criterion; refuse methods that do not serve it."""
    check_choice(criterion, "criterion", tuple(OWN))
    chosen = METHOD[criterion] if method is None else method
    check_choice(chosen, "method", METHODS)
    if criterion == "evidence" and chosen != "smc":
        raise ValueError(f"criterion='evidence' needs method='smc': found method={chosen!r}; leave method out")
    if criterion == "stability":
        check_has_objective(chosen, "criterion='stability'")
    return chosen


def check_noises(criterion: str, noise: Any) -> list[Noise]:
    """Return the noises to compare; refuse those without a distribution, and what a criterion has no use for.

    Masked entries compare noises, and stability takes one; the other criteria are for Poisson counts.
    """
    if not isinstance(noise, str | Noise | Iterable):
        raise TypeError(f"noise must be a word, a noise or a list of them: found {shown(noise)}")
    given = [noise] if isinstance(noise, str | Noise) else list(noise)
    noises = list(dict.fromkeys(check_noise(each) for each in given))
    if not noises:
        raise ValueError("noise must name at least one noise: found none; leave noise out for Poisson counts")
    if len({word_of(each) for each in noises}) < len(noises):
        raise ValueError("noises with arrays of dispersions have one name in the table: compare them one after another")
    if lost := [each for each in noises if not isinstance(each, Distributed)]:
        raise ValueError(
            f"noise={lost[0].word!r} is no distribution of counts, so that nothing scores it; use 'nb1' or 'nb2'"
        )
    others = [word_of(each) for each in noises if each != POISSON]
    if criterion == "stability" and len(noises) > 1:
        raise ValueError(
            "criterion='stability' needs one noise, as it asks which components come back, not which noise is better: "
            f"found {len(noises)}; compare noises by criterion='masked' first"
        )
    if others and criterion not in ("masked", "stability"):
        raise ValueError(
            f"criterion={criterion!r} needs noise='poisson': found {others[0]!r}; use criterion='masked', which "
            "compares noises"
        )
    return noises


def check_covariates_scored(criterion: str, covariates: Any, withhold: float) -> None:
    """Refuse covariates of rows for criteria that score other rows, or temper the posterior."""
    if covariates is not None and (criterion in ("stability", "evidence") or withhold):
        found = f"withhold={withhold:g}" if criterion == "heldout" else repr(criterion)
        raise ValueError(
            f"covariates need criterion='masked', or 'heldout' with withhold=0: found {found}; use one of these, or "
            "leave covariates and formula out"
        )


def check_data(criterion: str, counts: Counts, options: Any) -> None:
    """Refuse counts and options that the criterion has no use for."""
    if not counts.total:
        raise ValueError("counts must not all be 0 to compare ranks: found no count; give other rows or features")
    if criterion == "evidence" and options.runs < FEWEST_RUNS:
        raise ValueError(
            f"options.runs must be at least {FEWEST_RUNS} for criterion='evidence', as fewer do not show how far they "
            f"disagree: found {options.runs}; leave runs out of the options"
        )
    if criterion != "masked" and counts.batch is not None:
        raise ValueError(
            f"batch needs criterion='masked': found {criterion!r}, which has no factors of batches; leave batch out"
        )
    if criterion == "masked" and min(counts.shape) < 2:
        raise ValueError(
            f"criterion='masked' needs at least two rows and two features: found {counts.shape[0]} × "
            f"{counts.shape[1]} counts; use criterion='heldout'"
        )
    if criterion == "stability" and counts.shape[0] < 2:
        raise ValueError(
            "criterion='stability' needs at least two rows, which it splits in halves: found one; use "
            "criterion='evidence'"
        )
    if criterion == "stability" and options.start is not None:
        check_start_of_halves(options.start)


def check_start_of_halves(start: Any) -> None:
    """Refuse a start that does not fit the rows of a half."""
    if not isinstance(start, str):
        raise ValueError(
            f"options.start must be made anew for the rows of each half: found {shown(start)}, made for other rows; "
            "leave start out of the options"
        )


def share_withheld(criterion: str, withhold: float, given: bool, counts: Counts) -> float:
    """Return the share of the rows to withhold; 0 if it is too small for one of them and was not asked for."""
    if criterion != "heldout" or not withhold:
        return 0.0
    n, m = counts.shape
    if m > 1 and rows_aside(n, withhold):
        return withhold
    if given:
        raise ValueError(
            f"withhold={withhold:g} needs at least two features, and rows of which it is at least half a row, beside "
            f"one to fit: found {n} × {m} counts; give withhold=0"
        )
    return 0.0


def check_settings_of(criterion: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with defaults in place of None; refuse those of other criteria."""
    for name, value in given.items():
        if value is not None and name not in OWN[criterion]:
            owners = " or ".join(f"criterion={each!r}" for each, names in OWN.items() if name in names)
            raise ValueError(f"{name} needs {owners}: found criterion={criterion!r}; leave {name} out")
    settings = {name: DEFAULTS[name] if value is None else value for name, value in given.items()}
    if settings["splits"] is not None:
        check_count(settings["splits"], "splits", most=FOLDS if criterion == "masked" else 2**63 - 1)
    settings["splits"] = settings["splits"] or (0 if criterion == "masked" else SPLITS)
    settings["halves"] = check_count(settings["halves"], "halves", minimum=FEWEST_HALVES)
    check_choice(settings["resample"], "resample", UNIT)
    settings["keep"] = check_fraction(settings["keep"], "keep")
    if settings["withhold"] != 0:
        settings["withhold"] = check_fraction(settings["withhold"], "withhold")
    return settings
