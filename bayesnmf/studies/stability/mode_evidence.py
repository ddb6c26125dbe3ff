"""The evidence of each mode: how much of p(X) the posterior has around it, from a fit by ``method="smc"``.

A draw belongs to the mode in which a run that starts from it ends, by the rule for runs
(`bayesnmf.studies.stability.grouping`). So the posterior is divided into the basins of the runs' own algorithm, and the
components of a draw need not be close to those of the mode. They often are not: with 20 counts in each of 30 rows, none
of 128 draws had all of its matched cosines with a mode above 0.95, and the mode with the largest least cosine was that
in which the run from the draw ended for only 91 of them. All 128 runs ended in one of the two modes. With thousands of
counts in a row (pcawg, 40 rows, K = 3 and 4), all draws have cosines above 0.98, and all rules agree.

Draws of smc are resampled by the estimate p̂_r of their run r and by their weight in it. So N_g of N draws in mode g
give p̂ N_g / N, which is an unbiased estimate of p(X, mode g). Run r contributes in proportion to the number N_gr of its
draws in the mode: the standard error of the log, to first order, is that of the mean of these numbers over the runs,
divided by this mean: std_r(N_gr) / mean_r(N_gr) / √runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesnmf.cards import Card, Shown
from bayesnmf.fitting.fitted import Fit
from bayesnmf.fitting.job import ProgressReport
from bayesnmf.fitting.many import fit_side_by_side
from bayesnmf.inference.tempering.annealing import IN_TWENTY, WIDEST_SPREAD
from bayesnmf.options import Start
from bayesnmf.priors.pair import movable_components
from bayesnmf.priors.values import attach_scale
from bayesnmf.results.cautions import cautions_of
from bayesnmf.results.estimates import Draws
from bayesnmf.studies.stability.grouping import found_in, group_fits, mode_of
from bayesnmf.studies.stability.runs import Runs
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd

NONE = "none"  # label of the draws in no mode
WIDEST_RATIO = float(np.sqrt(np.expm1(WIDEST_SPREAD**2)))  # sd / mean of estimates whose logs have the widest spread


@dataclass(frozen=True, eq=False, repr=False)
class ModeEvidence(Shown):
    """Evidence of each mode, and of the modes that no start found.

    Attributes
    ----------
    table : DataFrame
        Row for each mode, and a row ``"none"`` for modes that no start found: number of ``draws``; number of ``runs``
        of smc that have such draws; ``share`` of the evidence; ``log_evidence``, log p(X, mode), in nats, with its
        standard error ``se``; ``at_least``, a lower limit of log p(X, mode) with a probability of at least 95 %; and
        whether ``log_evidence`` is ``known``. What is unknown is NaN: all shares and evidences if the fit has not
        converged, and the evidence of a mode if the draws of its runs are too uneven (a standard deviation above 1.31
        times their mean, as of estimates whose logs have a standard deviation of 1 nat), or if it has no draws.
    mode : ndarray of int (chains, draws)
        Mode of each draw in ``fit.posterior``; -1 for those in no mode.
    unfound : list of Fit
        Best fit of each mode that no start found, from runs that start from draws; the best objective first.
    fit : Fit
        The fit by smc.
    method : str
        Method of the runs.

    See Also
    --------
    Modes.evidence : which makes it.
    log_evidence

    Examples
    --------
    >>> import bayesnmf
    >>> counts, priors = [[3, 0], [0, 4], [5, 1]], bayesnmf.Priors(bayesnmf.Gamma(1, 0.1), bayesnmf.Dirichlet(1.0))
    >>> runs = bayesnmf.modes(counts, rank=1, starts=2, seed=0, options=bayesnmf.VI(priors=priors))
    >>> options = bayesnmf.SMC(priors=priors, particles=4, runs=2)
    >>> particles = bayesnmf.fit(counts, rank=1, method="smc", seed=0, options=options)
    >>> runs.evidence(particles).fit.method
    'smc'
    """

    table: pd.DataFrame
    mode: Array
    unfound: list[Fit]
    fit: Fit
    method: str

    @property
    def cautions(self) -> list[str]:
        """Reasons to doubt the numbers."""
        return cautions_of(self.fit)

    def card(self) -> Card:
        """Return what is shown of it."""
        fit, runs = self.fit, len(self.fit.trace)
        rows: Any = self.table.itertuples()
        lines = [
            [str(row.Index), f"{row.draws}", f"{row.runs} of {runs}", _share(row.share), _log(row)] for row in rows
        ]
        title = f"{fit.model} by smc, rank {fit.rank}: evidence of {_modes(len(lines) - 1)}"
        headings = ["mode", "draws", "in runs", "share", "log p(X, mode)"]
        return Card(title, headings, lines, self._notes())

    def _notes(self) -> list[str]:
        p, se = self.fit.diagnostics["log_p"], self.fit.diagnostics["log_p_se"]
        total = f"{p:,.2f} ± {se:.2f}" if self.fit.status.converged else f"unknown, at least {p - IN_TWENTY:,.1f}"
        notes = [
            f"log p(X), of all modes, in nats: {total}",
            f"mode of a draw: that in which a run of {self.method} from the draw ends",
        ]
        beyond = self.table.loc[NONE]
        if beyond["draws"]:
            part = "some" if np.isnan(beyond["share"]) else f"{beyond['share']:.1%}"
            notes.append(f"{_modes(len(self.unfound))} that no start found: {part} of the evidence (see unfound)")
        else:
            notes.append("every draw is in a mode that a start found")
        return [*notes, *(f"CAUTION {caution}" for caution in self.cautions)]


def evidence_of_modes(
    runs: Runs, leaders: list[Fit], threshold: float, fit: Fit, report: ProgressReport
) -> ModeEvidence:
    """Run from every draw, assign it to a mode, and return the evidence of each mode.

    Parameters
    ----------
    runs : Runs
        Settings of the runs.
    leaders : list of Fit
        Best fit of each mode.
    threshold : float
        Smallest cosine that all matched components of two runs of one mode exceed.
    fit : Fit
        Fit by smc.

    Raises
    ------
    KeyboardInterrupt
        Ctrl-C before all runs have ended.
    """
    ends, which = run_from_draws(runs, fit, report)
    movable = movable_components(fit.priors, fit.rank)
    found, known = [found_in(each) for each in ends], [found_in(each) for each in leaders]
    numbers = [mode_of(each, known, movable, threshold) for each in found]
    left = [place for place, number in enumerate(numbers) if number is None]
    others = group_fits([found[place] for place in left], [ends[place].trace[-1] for place in left], movable, threshold)
    of_end = np.array([-1 if number is None else number for number in numbers])
    posterior: Any = fit.posterior
    mode = of_end[which].reshape(posterior.chains, posterior.draws)
    unfound = [ends[left[leader]] for leader in others.leaders]
    return ModeEvidence(evidence_table(fit, mode, len(leaders)), mode, unfound, fit, runs.method)


def run_from_draws(runs: Runs, fit: Fit, report: ProgressReport) -> tuple[list[Fit], Array]:
    """Return runs from all distinct draws, and the run of each draw, (chains · draws,).

    Copies of a particle differ in the scales of rows alone, so that one run stands for all of them: the allocations
    that it starts with are the same.
    """
    drawn: Draws = fit.posterior  # type: ignore[assignment]
    loadings, components = (each.reshape(-1, *each.shape[2:]) for each in (drawn.loadings, drawn.components))
    scale = None if drawn.scale is None else drawn.scale.reshape(len(loadings), -1)
    flat = components.reshape(len(components), -1)
    _, first, which = np.unique(flat, axis=0, return_index=True, return_inverse=True)
    options: Any = runs.options

    def one(place: int, tick: ProgressReport) -> Fit:
        draw = int(first[place])
        start = Start(attach_scale(loadings[draw], None if scale is None else scale[draw]), components[draw])
        return runs.fit(tick, options=replace(options, start=start, restarts=1))

    told = report, "runs from draws"
    ends, _ = fit_side_by_side(one, len(first), runs.jobs, told, lambda end: end.trace[-1])
    if len(ends) < len(first):
        raise KeyboardInterrupt
    return [ends[place] for place in range(len(first))], which.ravel()


def evidence_table(fit: Fit, mode: Array, modes: int) -> pd.DataFrame:
    """Return the row of each mode, and of the draws in none.

    Parameters
    ----------
    mode : ndarray of int (chains, draws)
        Mode of each draw; -1 for those in none.
    """
    import pandas as pd

    statistics: Any = fit.statistics
    run, runs = statistics["run"].astype(np.int64), len(fit.trace)
    lines = []
    for number in [*range(modes), -1]:
        counted = np.bincount(run[mode == number], minlength=runs)
        lines.append(_line(counted, mode.size, fit.diagnostics["log_p"], bool(fit.status.converged)))
    return pd.DataFrame(lines, index=pd.Index([*range(modes), NONE], name="mode"))


def _line(counted: Array, draws: int, log_p: float, converged: bool) -> dict[str, Any]:
    """Return the row of a mode from the number of its draws by run, (R,)."""
    total, mean = int(counted.sum()), float(counted.mean())
    ratio = float(counted.std(ddof=1) / mean) if total and len(counted) > 1 else np.inf
    known = converged and ratio <= WIDEST_RATIO
    log_evidence = log_p + float(np.log(total / draws)) if total else -np.inf
    return {
        "draws": total,
        "runs": int(np.count_nonzero(counted)),
        "share": total / draws if converged else np.nan,
        "log_evidence": log_evidence if known else np.nan,
        "se": ratio / np.sqrt(len(counted)) if known else np.nan,
        "at_least": log_evidence - IN_TWENTY,
        "known": known,
    }


def _modes(number: int) -> str:
    return f"{number} mode{'' if number == 1 else 's'}"


def _share(share: float) -> str:
    return "unknown" if np.isnan(share) else f"{share:.1%}"


def _log(row: Any) -> str:
    if row.known:
        return f"{row.log_evidence:,.2f} ± {row.se:.2f}"
    return f"unknown, at least {row.at_least:,.1f}" if row.draws else "unknown"
