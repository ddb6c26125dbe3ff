"""Checks of the arguments of `select`."""

from __future__ import annotations

from typing import Any

from bayesnmf.checks import check_choice, check_count, check_fraction
from bayesnmf.data.counts import Counts
from bayesnmf.options import METHODS
from bayesnmf.stability.checks import check_has_objective, check_varied_start

DEFAULTS = {"splits": 3, "keep": 0.8, "withhold": 0.2, "halves": 10}
OWN = {"heldout": ("splits", "keep", "withhold"), "evidence": (), "stability": ("halves",)}
METHOD = {"heldout": "vi", "evidence": "smc", "stability": "vi"}


def check_criterion(criterion: Any, method: str | None) -> str:
    """Return the method, by default that of the criterion; refuse methods that do not serve it."""
    check_choice(criterion, "criterion", tuple(OWN))
    chosen = METHOD[criterion] if method is None else method
    check_choice(chosen, "method", METHODS)
    if criterion == "evidence" and chosen != "smc":
        raise ValueError(f"criterion='evidence' needs method='smc': found method={chosen!r}; leave method out")
    if criterion == "stability":
        check_has_objective(chosen)
    return chosen


def check_can_split(criterion: str, counts: Counts, options: Any) -> None:
    """Refuse, for stability, counts without two halves, and a start that is the same for both."""
    if criterion != "stability":
        return
    if counts.shape[0] < 2:
        raise ValueError(
            "criterion='stability' needs at least two rows, which it splits in halves: found one; use "
            "criterion='evidence'"
        )
    if options.start is not None:
        check_varied_start(options.start)


def check_settings_of(criterion: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with defaults in place of None; refuse those of other criteria."""
    for name, value in given.items():
        if value is not None and name not in OWN[criterion]:
            owner = next(each for each, names in OWN.items() if name in names)
            raise ValueError(f"{name} needs criterion={owner!r}: found criterion={criterion!r}; leave {name} out")
    settings = {name: DEFAULTS[name] if value is None else value for name, value in given.items()}
    settings["splits"], settings["starts"] = (check_count(settings[name], name) for name in ("splits", "halves"))
    settings["keep"] = check_fraction(settings["keep"], "keep")
    if settings["withhold"] != 0:
        settings["withhold"] = check_fraction(settings["withhold"], "withhold")
    return settings
