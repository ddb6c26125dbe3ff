"""Rank models and ranks by the evidence, which tempered runs estimate.

Models that share proportions and components (see `bayesnmf.inference.tempering.target`) share the runs of one rank:
only log p(N) of the row totals differs.

A candidate whose runs disagree by more than 1 nat has no known evidence. The logs of unbiased estimates that are nearly
normal with standard deviation σ are too low by σ²/2 on average, and seldom by more than 5 σ beyond this; so such a
candidate could win unless log p̂ + σ²/2 + 5 σ is below the best known evidence. While one could win, none is
called best.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from bayesnmf.assessment.evidence import variational_bound
from bayesnmf.fitting.job import Job, resolve_priors
from bayesnmf.inference.tempering.combining import WIDEST_SPREAD, log_of_mean, spread_of
from bayesnmf.inference.tempering.running import tempered_runs
from bayesnmf.inference.tempering.target import Target, target_of
from bayesnmf.selection.held_out import Study
from bayesnmf.selection.result import Candidate, Selection

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[Any]
REACH = 5.0  # standard deviations of the runs' logs by which an estimate is hardly ever too low


def by_evidence(study: Study) -> Selection:
    """Estimate the evidence of every candidate; after Ctrl-C, compare those that are done."""
    shared: dict[tuple[Any, ...], Array] = {}
    found: dict[Candidate, dict[str, float]] = {}
    estimates: dict[Candidate, Array] = {}
    try:
        for candidate in study.candidates:
            study.report("select", len(found), len(study.candidates), np.nan)
            job = _job(study, candidate)
            target = target_of(study.counts, job.options.priors, candidate.rank)
            key = (candidate.rank, *shared_part(target))
            if key not in shared:
                _, runs, interrupted = tempered_runs(target, job.options, study.seed, lambda *_: _tick(study, found))
                if interrupted:
                    raise KeyboardInterrupt
                shared[key] = np.array([run.log_estimate for run in runs]) - target.constant
            estimates[candidate] = shared[key] + target.constant
            found[candidate] = _line(estimates[candidate], variational_bound(job))
        study.report("select", len(found), len(study.candidates), np.nan)
    except KeyboardInterrupt:
        if not found:
            raise
    return _compared(study, found, estimates)


def _tick(study: Study, found: dict[Candidate, Any]) -> None:
    """Report, so that a report that raises Ctrl-C ends the runs."""
    study.report("select", len(found), len(study.candidates), np.nan)


def _job(study: Study, candidate: Candidate) -> Job:
    priors = resolve_priors(candidate.model, study.counts, candidate.rank, study.options.priors)
    options = replace(study.options, priors=priors)
    return Job(study.counts, candidate.model, candidate.rank, "smc", study.seed, options, lambda *_: None)


def shared_part(target: Target) -> tuple[Any, ...]:
    """Return what the tempered part of a target depends on besides the counts: equal parts share their runs."""
    loadings: Any = target.loadings
    if not target.of_shares:
        return (type(loadings).__name__, *_values(loadings), *_values(target.components))
    proportions = getattr(loadings, "proportions", loadings)
    return ("shares", *_values(proportions), *_values(target.components))


def _values(distribution: Any) -> list[bytes]:
    parts = {**distribution.constants, **distribution.parameters}
    return [np.ascontiguousarray(np.asarray(parts[name], np.float64)).tobytes() for name in sorted(parts)]


def _line(logs: Array, bound: float) -> dict[str, float]:
    """Return a line of the table for the estimates of one candidate and the bound of a variational fit."""
    mean, error = log_of_mean(logs)
    known = bool(spread_of(logs) <= WIDEST_SPREAD and mean >= bound)
    at_least = max(bound, mean - np.log(20))
    return {"log_evidence": mean, "se": error, "known": known, "at_least": at_least, "spread": spread_of(logs)}


def could_win(table: pd.DataFrame) -> Array:
    """Return which unknown candidates could have a larger evidence than the best known one."""
    known, spread = table["known"].to_numpy(bool), np.nan_to_num(table["spread"].to_numpy(), nan=np.inf)
    best = table["log_evidence"].to_numpy()[known].max() if known.any() else -np.inf
    with np.errstate(invalid="ignore"):
        highest = np.maximum(table["log_evidence"] + spread**2 / 2 + REACH * spread, table["at_least"])
    return np.asarray(~known & (highest.to_numpy() >= best))


def _compared(study: Study, found: dict[Candidate, dict[str, float]], estimates: dict[Candidate, Array]) -> Selection:
    import pandas as pd

    index = pd.MultiIndex.from_tuples(list(found), names=["model", "rank"])
    table = pd.DataFrame(list(found.values()), index=index)
    logs, known = table["log_evidence"].to_numpy(), table["known"].to_numpy(bool)
    table["could_win"] = could_win(table)
    best = int(np.argmax(np.where(known, logs, -np.inf)))
    table["difference"] = logs - logs[best]
    table["difference_se"] = np.where(np.arange(len(logs)) == best, 0.0, np.hypot(table["se"], table["se"].iloc[best]))
    clear = bool(known.any() and not table["could_win"].any())
    table["probability"] = np.exp(logs - logsumexp(logs)) if clear else np.nan
    scores = pd.concat([pd.Series(each) for each in estimates.values()], axis=1)
    scores.columns, scores.index.name = index, "run"
    named = Candidate(*list(found)[best]) if clear else None
    return Selection(
        table, scores, named, study.method, study.keep, len(found) < len(study.candidates), criterion="evidence"
    )  # fmt: skip
