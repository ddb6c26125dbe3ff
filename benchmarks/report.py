"""Compute gaps, seconds and tables from checkpoints."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from benchmarks.anchors import Anchor, Sighting
from benchmarks.data import Problem
from benchmarks.race import Run

# Relative to the best value of any tool; held-out log-likelihoods differ by more than the optima of one objective.
FINE = (1e-3, 1e-4, 1e-5, 1e-6)
GAPS = {"likelihood": FINE, "lda": FINE, "gamma_poisson": FINE, "heldout": (1e-2, 3e-3, 1e-3, 1e-4)}
MIXED = 1.05  # R-hat of half chains above which results are not compared
FEWEST_DRAWS = 20
OBJECTIVES = {
    "likelihood": "log-likelihood",
    "lda": "ELBO",
    "gamma_poisson": "ELBO",
    "heldout": "held-out log-likelihood for each count",
    "gibbs": "training log-likelihood for each count",
}
FUNCTIONALS = ("log-likelihood for each count", "largest share")  # of gibbs, in the order of draws


@dataclass
class Result:
    """Results of one race, with the values to compare them with."""

    problem: Problem
    task: str
    threads: int
    budget: float
    runs: list[Run]
    limit: dict[str, float] = field(default_factory=dict)
    anchors: list[Anchor] = field(default_factory=list)
    sightings: list[Sighting] = field(default_factory=list)

    @property
    def title(self) -> str:
        """Description of the problem."""
        problem, (n, m) = self.problem, self.problem.counts.shape
        name = problem.name if problem.keep == 1 else f"{problem.name}, thinned to {problem.keep:g}"
        size = f"{n:,} × {m:,}, {problem.counts.nnz:,} nonzeros"
        priors = f", α = {problem.alpha:g}, η = {problem.eta:g}" if self.task in ("lda", "gibbs") else ""
        chains = f"{max((run.chain + 1 for run in self.runs), default=1)} chains, " if self.task == "gibbs" else ""
        if self.task == "gibbs":
            size += f", {problem.counts.total:,.0f} counts"
        threads = f"{self.threads} thread{'s' * (self.threads > 1)}, {chains}{self.budget:g} s"
        return f"{self.task}: {name}, {size}, K = {problem.rank}{priors}, {threads} a {'chain' if chains else 'tool'}"

    @property
    def best(self) -> float:
        """Largest value that any tool reached at any checkpoint."""
        values = [c.value for run in self.runs for c in run.checkpoints if np.isfinite(c.value)]
        return max(values, default=float("nan"))


def gaps(run: Run, best: float) -> np.ndarray:
    """Return the relative distance of each checkpoint from the best value."""
    return np.array([(best - c.value) / abs(best) for c in run.checkpoints])


def reached(run: Run, best: float, gap: float, what: str = "seconds") -> float:
    """Return the seconds (or iterations) until a tool is within a gap of the best; NaN if it never is.

    Between checkpoints the logarithm of the gap is interpolated linearly; the first checkpoint counts with its own
    seconds.
    """
    distances = gaps(run, best)
    there = np.flatnonzero(distances <= gap)
    if not len(there):
        return float("nan")
    now = there[0]
    here = float(getattr(run.checkpoints[now], what))
    if now == 0 or distances[now] <= 0 or not np.isfinite(distances[now - 1]):
        return here
    before = float(getattr(run.checkpoints[now - 1], what))
    share = np.log(distances[now - 1] / gap) / np.log(distances[now - 1] / distances[now])
    return before + share * (here - before)


def overtaken(run: Run, ours: list[Run]) -> str:
    """Return how many times sooner ours reached a tool's final value, which is robust to different local optima."""
    end = run.checkpoints[-1]
    there = least([reached(each, end.value, 0.0) for each in ours])
    if run.tool.peer == "ours":
        return ""
    return f"{number(there)} ({number(end.seconds / there, 2)}×)" if np.isfinite(there) else "–"


def effective_draws(runs: list[Run]) -> dict[str, dict[str, float]]:
    """Return for each functional of one tool's chains: effective sample size, in total and per second, R-hat, mean.

    Seconds are those of sweeps only, without the evaluation of draws. R-hat compares the halves of all chains; `mcse`
    is the standard error of the mean. Return nothing if there are too few draws.
    """
    import arviz as az

    length = min((len(run.draws) for run in runs), default=0)
    if length < FEWEST_DRAWS:
        return {}
    draws = np.array([run.draws[-length:] for run in runs])  # (chains, draws, functionals)
    seconds = draws.shape[0] * length * float(np.mean([run.per_iteration for run in runs]))
    sizes = {}
    for values, name in zip(np.moveaxis(draws, 2, 0), FUNCTIONALS, strict=True):
        ess, spread = float(az.ess(values)), float(values.std(ddof=1))
        r_hat = float(az.rhat(values[:, : length // 2 * 2].reshape(2 * len(runs), -1)))
        found = {"ess": ess, "ess_per_second": ess / seconds, "r_hat": r_hat, "mean": float(values.mean())}
        sizes[name] = found | {"mcse": spread / np.sqrt(ess)}
    return sizes


def mixed(sizes: dict[str, dict[str, float]]) -> bool:
    """Return whether effective sample sizes are meaningful: the halves of all chains agree in every functional."""
    return bool(sizes) and all(found["r_hat"] < MIXED for found in sizes.values())


def number(value: float, digits: int = 3) -> str:
    """Return a number with this number of digits, or a dash for NaN."""
    if not np.isfinite(value):
        return "–"
    decimals = digits - 1 - int(np.floor(np.log10(abs(value)))) if value else digits - 1
    return f"{value:,.{max(decimals, 0)}f}" if decimals < 7 else f"{value:.{digits - 1}g}"


def beside(value: float, base: float) -> str:
    """Return a number, with its ratio to the base unless that is about 1."""
    if not (np.isfinite(value) and np.isfinite(base)) or 0.95 < value / base < 1.05:
        return number(value)
    return f"{number(value)} ({number(value / base, 2)}×)"


def least(values: list[float]) -> float:
    """Return the smallest value that is not NaN."""
    return min((v for v in values if np.isfinite(v)), default=float("nan"))


def tables(result: Result) -> list[list[list[str]]]:
    """Return all tables of a result, each as rows with the header first."""
    if result.task == "gibbs":
        return [_table_of_draws(result)]
    if result.task != "likelihood":
        return [_table_of_values(result)]
    found = [
        table_of_iterations(result),
        _table_of_values(result),
        table_of_anchors(result),
        table_of_sightings(result),
    ]
    return [rows for rows in found if len(rows) > 1]


def _table_of_values(result: Result) -> list[list[str]]:
    best, wanted = result.best, GAPS[result.task]
    done = [run for run in result.runs if run.checkpoints]
    ours = [run for run in done if run.tool.peer == "ours"]
    quickest = [least([reached(run, best, gap) for run in ours]) for gap in wanted]
    header = ["tool", "s an iteration", "iterations", OBJECTIVES[result.task], "below the best"]
    rows = [[*header, *(f"s to {gap:g}" for gap in wanted), "ours is there after s", "MB", "set-up s"]]
    for run in done:
        end = run.checkpoints[-1]
        cells = [beside(reached(run, best, gap), base) for gap, base in zip(wanted, quickest, strict=True)]
        rows.append([
            run.tool.name, number(run.per_iteration), str(end.iterations),
            f"{end.value:,.{1 if abs(best) > 1e3 else 5}f}", f"{(best - end.value) / abs(best):.1e}",
            *cells, overtaken(run, ours), f"{end.megabytes:.0f}", number(run.setup, 2),
        ])  # fmt: skip
    return rows


def table_of_iterations(result: Result) -> list[list[str]]:
    """Return the table of seconds per iteration, as multiples of ours and of the C loop of the same precision."""
    done = [run for run in result.runs if run.checkpoints]
    plain = {run.tool.dtype: run.per_iteration for run in reversed(done) if run.tool.peer == "ours"}
    nan = float("nan")
    header = ["tool", "one iteration", "s", "× ours EM", "× C loop"]
    rows = [[f"C loop, {dtype}, 1 thread", "one allocation step", number(s), number(s / plain.get(dtype, nan), 2), ""]
            for dtype, s in result.limit.items()]  # fmt: skip
    listed = [(run.tool.name, run.tool.iteration, run.tool.dtype, run.per_iteration) for run in done]
    listed += [(each.name, each.iteration, "float64", each.per_iteration) for each in result.anchors]
    for name, iteration, dtype, seconds in listed:
        ratios = seconds / plain.get(dtype, nan), seconds / result.limit.get(dtype, nan)
        rows.append([name, iteration, number(seconds), *(number(ratio, 2) for ratio in ratios)])
    return [header, *rows]


def table_of_anchors(result: Result) -> list[list[str]]:
    """Return the seconds of fastTopics: its scaled seconds per iteration times the number of our iterations."""
    wanted = GAPS[result.task]
    ours = [run for run in result.runs if run.tool.peer == "ours" and run.checkpoints]
    quickest = [least([reached(run, result.best, gap) for run in ours]) for gap in wanted]
    rows = [["tool", *(f"s to {gap:g}" for gap in wanted)]]
    for anchor in result.anchors:
        for run in ours:
            if run.tool.name == anchor.like:
                steps = [reached(run, result.best, gap, "iterations") for gap in wanted]
                cells = [beside(s * anchor.per_iteration, base) for s, base in zip(steps, quickest, strict=True)]
                rows.append([anchor.name, *cells])
    return rows


def table_of_sightings(result: Result) -> list[list[str]]:
    """Return the values of fastTopics on another machine from its own start, and when our fastest run reaches them."""
    ours = [run for run in result.runs if run.tool.peer == "ours" and run.checkpoints]
    rows = [["tool", "s", OBJECTIVES[result.task], "ours is there after s"]]
    for seen in result.sightings:
        there = least([reached(run, seen.value, 0.0) for run in ours])
        sooner = f"{number(there)} ({number(seen.seconds / there, 2)}×)" if np.isfinite(there) else "–"
        rows.append([seen.name, number(seen.seconds), f"{seen.value:,.0f}", sooner])
    return rows


def chains_of(result: Result) -> list[list[Run]]:
    """Return the runs of each tool whose chains have all finished."""
    tools = dict.fromkeys(run.tool.name for run in result.runs)
    grouped = [[run for run in result.runs if run.tool.name == name] for name in tools]
    return [runs for runs in grouped if all(run.checkpoints and not run.missing for run in runs)]


def _table_of_draws(result: Result) -> list[list[str]]:
    heads = [f"{name}: {what}" for name in FUNCTIONALS for what in ("ESS a second", "R-hat", "mean")]
    rows = [["tool", "s a sweep", "draws", *heads, "MB"]]
    done = [(runs, effective_draws(runs)) for runs in chains_of(result)]
    ours = [(runs, sizes) for runs, sizes in done if runs[0].tool.peer == "ours"]
    sweep = ours[0][0][0].per_iteration if ours else float("nan")
    for runs, sizes in done:
        cells = []
        for name in FUNCTIONALS:
            most = max((s[name]["ess_per_second"] for _, s in ours if mixed(s)), default=float("nan"))
            found = sizes.get(name)
            ess = beside(found["ess_per_second"], most) if found and mixed(sizes) else "not mixed"
            mean = f"{found['mean']:.6f} ± {found['mcse']:.1g}" if found else "–"
            cells += [ess, f"{found['r_hat']:.3f}" if found else "–", mean]
        draws = sum(len(run.draws) for run in runs)
        memory = max(run.checkpoints[-1].megabytes for run in runs)
        rows.append([runs[0].tool.name, beside(runs[0].per_iteration, sweep), f"{draws:,}", *cells, f"{memory:.0f}"])
    return rows


def markdown(rows: list[list[str]]) -> str:
    """Return rows as a Markdown table."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|---|" + "--:|" * (len(rows[0]) - 1))
    return "\n".join(lines)


def left_out(result: Result) -> dict[str, str]:
    """Return the tools without a result, with the reason."""
    return {run.tool.name: run.missing for run in result.runs if run.missing}


def record(result: Result) -> dict[str, Any]:
    """Return a result for JSON, including gaps and derived sizes."""
    best = result.best
    runs = []
    for run in result.runs:
        about: dict[str, Any] = asdict(run)
        if result.task == "gibbs":
            about["sizes"] = effective_draws([run])
        elif run.checkpoints:
            about["seconds_to"] = {f"{gap:g}": reached(run, best, gap) for gap in GAPS[result.task]}
        runs.append(about)
    elsewhere = {key: [vars(row) for row in getattr(result, key)] for key in ("anchors", "sightings")}
    return {"title": result.title, "best": best, "runs": runs, "limit": result.limit, **elsewhere}
