"""Rank models and ranks by the evidence, which tempered runs estimate.

Models that share proportions and components (see `bayesnmf.inference.tempering.target`) share the runs of one rank:
only log p(N) of the row totals differs.

A candidate whose runs disagree by more than 1 nat has no known evidence. The logs of unbiased estimates that are nearly
normal with standard deviation σ are too low by σ²/2 on average, and seldom by more than 5 σ beyond this; so such a
candidate could win unless log p̂ + σ²/2 + 5 σ is below the best known evidence. One whose runs agree on less than a
variational bound has no such limit: they all miss most of p(X). While one could win, none is called best.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import logsumexp

from bayesnmf.assessment.evidence import variational_bound
from bayesnmf.data.counts import Counts
from bayesnmf.fitting.checkpointing import keep_loops
from bayesnmf.fitting.job import Job
from bayesnmf.fitting.settings import describe_options, digest_of_counts
from bayesnmf.inference.tempering.annealing import IN_TWENTY, WIDEST_SPREAD, TemperedRuns, agree, log_of_mean, spread_of
from bayesnmf.inference.tempering.target import Target, target_of
from bayesnmf.options import VI, Options
from bayesnmf.studies.selection.criterion import Candidate, Criterion, Line, SelectionPlan, SelectionRecord
from bayesnmf.text import plus_minus
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd

FEWEST_RUNS = 4  # fewer do not show their spread: logs with sd 3 seem to agree in 26 % of pairs, and 5 % of fours
REACH = 5.0  # standard deviations of the runs' logs by which an estimate is hardly ever too low


class Estimated(NamedTuple):
    """Runs of a candidate, which may be shared with others, and the terms that they leave out.

    Attributes
    ----------
    runs : TemperedRuns
    shift : float
        Log-probability of the row totals, minus that of the candidate for which the runs were made.
    bound : float
        Lower bound from a variational fit.
    """

    runs: TemperedRuns
    shift: float
    bound: float

    @property
    def logs(self) -> Array:
        """Log estimates of p(X) of the runs, in nats."""
        return np.asarray(self.runs.logs + self.shift)


@dataclass(frozen=True)
class Evidence(Criterion):
    """Probability of the counts, whatever the parameters, of small data."""

    word: ClassVar[str] = "evidence"
    method: ClassVar[str] = "smc"
    noises: ClassVar[Any] = "poisson"
    column: ClassVar[str] = "log_evidence"
    error: ClassVar[str] = "se"
    label: ClassVar[str] = "log evidence (nats)"
    title: ClassVar[str] = "evidence"
    units: ClassVar[str] = "runs"
    prefers: ClassVar[str] = "The evidence is largest"
    notes: ClassVar[list[str]] = [
        "log p(X) in nats; probability: of each candidate, if all are equally probable before the counts are seen",
        f"unknown: the logs of the runs' estimates have a standard deviation above {WIDEST_SPREAD:g} nat, or are below "
        "a variational bound; the number is then a lower limit",
    ]

    def check(self, method: str, counts: Counts, options: Options) -> None:
        """Refuse other methods, and too few runs."""
        super().check(method, counts, options)
        if method != "smc":
            raise ValueError(f"criterion='evidence' needs method='smc': found method={method!r}; leave method out")
        own: Any = options
        if own.runs < FEWEST_RUNS:
            raise ValueError(
                f"options.runs must be at least {FEWEST_RUNS} for criterion='evidence', as fewer do not show how far "
                f"they disagree: found {own.runs}; leave runs out of the options"
            )

    def compare(self, plan: SelectionPlan) -> SelectionRecord:
        """Estimate the evidence of every candidate; after Ctrl-C, compare those that are done."""
        settings = describe_options(plan.options) | {"counts": digest_of_counts(plan.counts), "seed": str(plan.seed)}
        settings |= {} if plan.seeds is None else {"seeds": repr((dict(plan.seeds.sets), plan.seeds.strength))}
        with keep_loops(plan.checkpoint, "evidence", {**settings, "candidates": repr(plan.candidates)}):
            return by_evidence(plan)

    def fitted_by(self, plan: SelectionPlan, options: Any) -> tuple[str, Any]:
        """Return method and options of the fit of the best candidate that is checked."""
        return "vi", VI(priors=options.priors)

    @classmethod
    def headline(cls, found: SelectionRecord) -> str:
        """Return the title of the table."""
        return f"by the evidence, {len(found.scores)} runs by {found.method}"

    @classmethod
    def headings(cls, found: SelectionRecord) -> Line:
        """Return the headings of what the table says of each candidate."""
        return ["log p(X)", "sd of the runs", "probability"]

    @classmethod
    def line(cls, found: SelectionRecord, each: Any) -> Line:
        """Return what the table says of a candidate."""
        value = plus_minus(each.log_evidence, each.se, 2) if each.known else f"unknown, at least {each.at_least:,.1f}"
        probability = f"{each.probability:.3f}" if np.isfinite(each.probability) else ""
        return [value, f"{each.spread:.2f}", probability]

    @classmethod
    def why_none(cls, found: SelectionRecord) -> str:
        """Return why there is no best candidate."""
        unknown = found.table.index[found.table["could_win"]]
        listed = ", ".join(f"{model} {rank}" for model, rank in unknown)
        return (
            f"no candidate is best: the evidence of {listed} is unknown and could be the largest; raise refinement or "
            "particles in options=bayesnmf.SMC(...), or take fewer rows"
        )


def by_evidence(plan: SelectionPlan) -> SelectionRecord:
    """Estimate the evidence of every candidate; after Ctrl-C, compare those that are done.

    All candidates have runs up a first ladder. Then the candidate with the largest estimate of those that are unknown
    and could win is refined, again and again, until none is left or one cannot be made known within the limit. The
    others are then left as they are, since none would be called best beside it.
    """
    found: dict[Candidate, Estimated] = {}
    interrupted = False
    try:
        _run_all(plan, found)
        table = _table(found)
        while table["could_win"].any():
            first: Any = table["log_evidence"].where(table["could_win"]).idxmax()
            if not found[Candidate(*first)].runs.refine():
                break
            table = _table(found)
        plan.report("select", len(found), len(plan.candidates), np.nan)
    except KeyboardInterrupt:
        interrupted = True
        if not found:
            raise
    interrupted |= any(each.runs.interrupted for each in found.values())
    return _compared(plan, found, interrupted)


def _run_all(plan: SelectionPlan, found: dict[Candidate, Estimated]) -> None:
    """Make the runs of every candidate up a first ladder; candidates with one tempered target share them."""
    shared: dict[tuple[Any, ...], TemperedRuns] = {}

    def tick(*_: Any) -> None:  # a report that raises Ctrl-C ends the runs
        plan.report("select", len(found), len(plan.candidates), np.nan)

    for candidate in plan.candidates:
        tick()
        job = _job(plan, candidate)
        target = target_of(plan.counts, job.options.priors, candidate.rank)
        key = (candidate.rank, *shared_part(target))
        if key not in shared:
            runs = TemperedRuns(target, job.options, plan.seed, tick)
            if runs.interrupted:
                raise KeyboardInterrupt
            shared[key] = runs
        found[candidate] = Estimated(shared[key], target.constant - shared[key].target.constant, variational_bound(job))


def _job(plan: SelectionPlan, candidate: Candidate) -> Job:
    options = plan.options_for(candidate, plan.counts)
    return Job(plan.counts, candidate.model, candidate.rank, "smc", plan.seed, options, lambda *_: None)


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


def _table(found: dict[Candidate, Estimated]) -> pd.DataFrame:
    """Return a row for each candidate."""
    import pandas as pd

    index = pd.MultiIndex.from_tuples(list(found), names=["model", "rank"])
    table = pd.DataFrame([_line(each) for each in found.values()], index=index)
    table["could_win"] = could_win(table)
    return table


def _line(found: Estimated) -> dict[str, float]:
    mean, error = log_of_mean(found.logs)
    spread = spread_of(found.logs)
    known = agree(found.logs) and mean >= found.bound
    return {
        "log_evidence": mean,
        "se": error if known else np.inf,
        "known": known,
        "at_least": max(found.bound, mean - IN_TWENTY),
        "spread": spread,
        "rungs": len(found.runs.ladder) - 1,
    }


def could_win(table: pd.DataFrame) -> Array:
    """Return which unknown candidates could have a larger evidence than the best known one."""
    known, spread = table["known"].to_numpy(bool), np.nan_to_num(table["spread"].to_numpy(), nan=np.inf)
    best = table["log_evidence"].to_numpy()[known].max() if known.any() else -np.inf
    with np.errstate(invalid="ignore"):
        highest = table["log_evidence"] + spread**2 / 2 + REACH * spread
    astray = (table["at_least"] > table["log_evidence"]).to_numpy()  # below the bound: the runs miss most of p(X)
    return np.asarray(~known & (astray | (highest.to_numpy() >= best)))


def _compared(plan: SelectionPlan, found: dict[Candidate, Estimated], interrupted: bool) -> SelectionRecord:
    import pandas as pd

    table = _table(found)
    logs, known = table["log_evidence"].to_numpy(), table["known"].to_numpy(bool)
    best = int(np.argmax(np.where(known, logs, -np.inf)))
    table["difference"] = logs - logs[best] if known.any() else np.nan
    errors = np.hypot(table["se"], table["se"].iloc[best])
    table["difference_se"] = np.where(known.any() & (np.arange(len(logs)) == best), 0.0, errors)
    clear = bool(known.any() and not table["could_win"].any())
    table["probability"] = np.exp(logs - logsumexp(logs)) if clear else np.nan
    scores = pd.concat([pd.Series(each.logs) for each in found.values()], axis=1)
    scores.columns, scores.index.name = table.index, "run"
    named = Candidate(*list(found)[best]) if clear else None
    told: Any = {"interrupted": interrupted, "criterion": Evidence.word}
    return SelectionRecord(table, scores, named, plan.method, **told)
