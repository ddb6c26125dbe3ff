"""Reasons to doubt modes, or the shares of runs that end in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bayesnmf.fitting.fitted import Fit
from bayesnmf.options import Options
from bayesnmf.results.cautions import cure_of

if TYPE_CHECKING:
    import pandas as pd

SELDOM = 0.5  # share of the runs below which a component of the best mode comes back seldom
NAMED = 5  # components or starts that a caution names


def cautions_of_runs(
    runs: pd.DataFrame, fits: list[Fit], options: Options, damaged: tuple[int, ...], interrupted: bool
) -> list[str]:
    """Return what speaks against the runs: some are missing, were fitted again or have not converged."""
    cautions = []
    if interrupted:
        cautions.append("interrupted: some starts or held-out scores are missing")
    if damaged:
        cautions.append(f"fitted again, as the file was damaged: {_listed('start', damaged)}")
    if failed := int((~runs["converged"]).sum()):
        cautions.append(f"{failed} of {len(runs)} fits did not converge; {_cure(fits, options)}")
    return cautions


def cautions_of_modes(table: pd.DataFrame, components: pd.DataFrame, number: int, threshold: float) -> list[str]:
    """Return what speaks against the modes of a number of runs: there may be others, or a mode is not stable."""
    if number == 1:
        return ["a single start cannot show how many modes there are: raise starts"]
    cautions = []
    if len(table) == number:
        cautions.append(
            "every run ended in a mode of its own, so there may be many more: raise starts, lower rank, or rely on "
            "the components that come back"
        )
    elif table["runs"].iloc[0] == 1:
        cautions.append("the best mode was found by one run only, so there may be better ones: raise starts")
    seldom = components.loc[0].query("recurrence < @SELDOM", local_dict={"SELDOM": SELDOM}).index
    if len(table) > 1 and len(seldom):
        cautions.append(
            f"of the best mode, {_listed('component', seldom)} came back in fewer than half of the runs: do not "
            "interpret without the other modes"
        )
    left: Any = table.index[table["refit_cosine"] <= threshold] if "refit_cosine" in table else []
    if len(left):
        cautions.append(f"{_listed('mode', left)} changed when fitted to the training counts alone; raise keep")
    return cautions


def _listed(what: str, numbers: Any) -> str:
    """Return "start 3" or "starts 3, 4 and 7 more"."""
    listed = [str(each) for each in numbers]
    named = ", ".join(listed[:NAMED]) + (f" and {len(listed) - NAMED} more" if len(listed) > NAMED else "")
    return f"{what}{'s' if len(listed) > 1 else ''} {named}"


def _cure(fits: list[Fit], options: Options) -> str:
    """Return advice for fits that have not converged."""
    failed = [each for each in fits if not each.status.converged]
    return cure_of(failed[0]) if failed else f"raise max_iter or tol in bayesnmf.{type(options).__name__}(...)"
