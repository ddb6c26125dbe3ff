"""How soon samplers reach the posterior means: Gibbs over allocations, collapsed and marginal Gibbs, and NUTS.

    python -m benchmarks.chains [--data pcawg_breast_sbs96 digits] [--samplers marginal nuts] [--seconds 15]

All counts (of some rows, where the table says so, without features that have no counts there), default priors, four
chains at once from draws of a closed-form fit. Every sampler runs for so many seconds, and the one with the most
effective draws a second runs ten times as long, from other random numbers, as the reference.

Seconds are processor seconds of the process divided by 2, with the closed-form fit and warm-up, without compilation:
what a run takes on two cores that nothing else uses. Runs that are done are kept in the folder `--keep`, and are not
repeated; `chains.csv` has the rows of the table. Without a reference whose largest R-hat is at most 1.01 no seconds to
0.1 sd are given.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import bayesnmf
from bayesnmf import NUTS, Gibbs
from bayesnmf.data.counts import Counts
from bayesnmf.inference.alignment import match_components
from bayesnmf.inference.status import ConvergenceWarning
from bayesnmf.results.mixing import r_hat_and_ess
from benchmarks.data import ROOT, filled, read

Array = NDArray[Any]
ROWS = Path(__file__).with_suffix(".csv")
CHAINS, CORES, STEPS = 4, 2, 300  # STEPS: warm-up of NUTS
KEPT, JUDGED, LOOKS = 10**7, 5000, 60  # numbers kept of a chain; entries judged, chosen at random; times of looking
MIXED, REFERENCE, CLOSE = 1.05, 1.01, 0.1
MEASURED = ("sweeps", "s to 0.1 sd", "largest R-hat", "smallest ESS", "median ESS", "smallest ESS/s")
SAMPLERS: dict[str, dict[str, Any]] = {
    "allocations": {"algorithm": "allocations"},
    "collapsed": {"collapsed": True},
    "marginal": {"algorithm": "marginal"},
    "nuts": {},
}


@dataclass(frozen=True)
class Case:
    """Counts by name, of some of their rows, with a model and a rank."""

    data: str
    rank: int
    rows: int | None = None
    model: str = "gamma_poisson"

    @property
    def name(self) -> str:
        """Name of the counts."""
        return self.data if self.rows is None else f"{self.rows} rows of {self.data}"

    def counts(self) -> Counts:
        """Read the counts, and choose rows at random."""
        counts = read(self.data, self.rank, 0)
        if self.rows is None:
            return counts
        chosen = np.random.default_rng(0).choice(counts.shape[0], self.rows, replace=False)
        return filled(counts.rows(np.sort(chosen)))


CASES = (
    Case("pcawg_breast_sbs96", 5),
    Case("pcawg_breast_sbs96", 5, model="dirichlet_gamma"),
    Case("pbmc_small", 6),
    Case("digits", 8),
    Case("nips", 5, 200),
    Case("pbmc_facs", 6, 500),
)


class Clock:
    """Processor seconds at each report of progress; raises KeyboardInterrupt after a limit, which ends the run.

    Parameters
    ----------
    limit : float
        Seconds after which to end.
    """

    def __init__(self, limit: float) -> None:
        self.limit, self.began = limit, time.process_time()
        self.steps: list[int] = []
        self.seconds: list[float] = []

    def __call__(self, _: str, done: int, __: int, ___: float) -> None:
        """Note the time of a step; the steps of all chains are counted together."""
        self.steps.append(done)
        self.seconds.append((time.process_time() - self.began) / CORES)
        if done and self.seconds[-1] > self.limit:
            raise KeyboardInterrupt

    def at(self, steps: Any) -> Array:
        """Return the seconds at which every chain had done so many steps."""
        order = np.argsort(self.steps, kind="stable")
        return np.interp(CHAINS * np.asarray(steps), np.array(self.steps)[order], np.sort(self.seconds))


def attempt(case: Case, counts: Counts, options: Any, seed: int, limit: float) -> tuple[Any, Clock]:
    """Return the fit, None if it has no draws, and its clock."""
    clock, method = Clock(limit), "nuts" if isinstance(options, NUTS) else "gibbs"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            fit = bayesnmf.fit(counts, case.model, case.rank, method, seed=seed, options=options, progress=clock)
        except KeyboardInterrupt:
            return None, clock
    return fit, clock


def planned(case: Case, counts: Counts, sampler: str, limit: float) -> Any:
    """Return options with which draws fill the limit: warm-up is a tenth of the sweeps, or 300 steps of NUTS."""
    kept = int(min(1000, KEPT // (case.rank * sum(counts.shape))))
    if sampler == "nuts":
        options: Any = NUTS(chains=CHAINS, warmup=STEPS, draws=kept)
        attempt(case, counts, options, 0, 0.0)  # compiles
        return options
    given = SAMPLERS[sampler]
    trial = Gibbs(chains=CHAINS, warmup=2, draws=6, threads=CHAINS, **given)
    attempt(case, counts, replace(trial, warmup=1, draws=1), 0, np.inf)  # compiles
    clock = attempt(case, counts, trial, 0, np.inf)[1]
    each = (clock.seconds[-1] - clock.seconds[0]) / max(clock.steps[-1] - clock.steps[0], 1) * CHAINS
    sweeps = max(int(limit / each), 10)
    thin = max(round(0.9 * sweeps / kept), 1)
    # Half as many draws again, as the clock should end the run.
    draws = int(1.5 * 0.9 * sweeps / thin)
    return Gibbs(
        chains=CHAINS, warmup=sweeps // 10, draws=draws, thin=thin, threads=CHAINS, keep="draws", **given
    )  # fmt: skip


def judged(fit: Any) -> tuple[Array, Array]:
    """Return R-hat and effective sample size of loadings and components, of at most 5,000 chosen at random."""
    draws = np.concatenate([each.reshape(*each.shape[:2], -1) for each in sides_of(fit)], axis=2)
    entries = draws.shape[2]
    chosen = np.random.default_rng(0).choice(entries, min(entries, JUDGED), replace=False)
    return r_hat_and_ess(draws[:, :, np.sort(chosen)], 1)


def sides_of(fit: Any) -> tuple[Array, Array]:
    """Return the draws of loadings, (chains, draws, K, n), and of components, (chains, draws, K, m)."""
    return fit.posterior.loadings.swapaxes(-1, -2), fit.posterior.components


def run(case: Case, sampler: str, seconds: float, seed: int, path: Path) -> None:
    """Run a sampler and save what the table needs: means at several times, and how the chains mix."""
    counts = case.counts()
    options = planned(case, counts, sampler, seconds)
    fit, clock = attempt(case, counts, options, seed, seconds)
    saved: dict[str, Any] = {"draws": 0, "seconds": clock.seconds[-1], "components": counts.shape[1]}
    if fit is not None and fit.posterior.draws >= 8:
        draws = np.concatenate(sides_of(fit), axis=3)
        kept = draws.shape[1]
        looks = np.unique(np.geomspace(2, kept, LOOKS).astype(int))
        means = np.array([draws[:, :look].mean(axis=(0, 1)) for look in looks], np.float32)
        r_hat, ess = judged(fit)
        saved |= {"draws": kept, "sweeps": options.warmup + kept * getattr(options, "thin", 1), "means": means}
        saved |= {"at": clock.at(options.warmup + looks * getattr(options, "thin", 1)), "r_hat": r_hat, "ess": ess}
        saved |= {"sd": draws.std(axis=(0, 1))}
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **saved)


def errors(done: Any, reference: Any) -> Array:
    """Return the root mean square error of the means at each time, in posterior sds of the reference."""
    features = int(done["components"])
    last, right = done["means"][-1], reference["means"][-1]
    order = match_components(last[:, -features:], right[:, -features:])
    found = (done["means"][:, order] - right) / np.maximum(reference["sd"], 1e-30)
    return np.sqrt((found.astype(np.float64) ** 2).mean(axis=(1, 2)))


def when_close(done: Any, reference: Any) -> str:
    """Return the seconds after which the error stays below 0.1 sd."""
    late = np.flatnonzero(errors(done, reference) > CLOSE)
    after = late[-1] + 1 if len(late) else 0
    return f"{done['at'][after]:.1f}" if after < len(done["at"]) else f"> {float(done['seconds']):.0f}"


def row_of(case: Case, sampler: str, done: Any, reference: Any) -> dict[str, str]:
    """Return one row of the table."""
    row = {"data": case.name, "model": case.model, "K": str(case.rank), "sampler": sampler}
    seconds = float(done["seconds"])
    row |= dict.fromkeys(MEASURED, "–")
    row |= {"s": f"{seconds:.0f}", "reference": "–"}
    if not int(done["draws"]):
        return row | {"sweeps": "in warm-up", "s to 0.1 sd": f"> {seconds:.0f}"}
    r_hat, ess = float(np.nanmax(done["r_hat"])), done["ess"]
    row |= {"sweeps": f"{int(done['sweeps']):,}", "largest R-hat": f"{r_hat:.2f}" if r_hat > 1.1 else f"{r_hat:.3f}"}
    row |= {"smallest ESS": f"{ess.min():.0f}", "median ESS": f"{np.median(ess):.0f}"}
    if r_hat <= MIXED:
        row["smallest ESS/s"] = f"{ess.min() / seconds:.2f}"
    if reference is not None:
        of_reference = float(np.nanmax(reference["r_hat"]))
        row["reference"] = f"{of_reference:.3f}, {float(reference['seconds']):.0f} s"
        row["s to 0.1 sd"] = when_close(done, reference) if of_reference <= REFERENCE else "no reference"
    return row


def speed(done: Any) -> float:
    """Return the harmonic mean of the effective sample sizes a second, which 1 / variance of all means follows."""
    return float(1 / np.mean(1 / done["ess"]) / done["seconds"]) if int(done["draws"]) else 0.0


def rows_of(case: Case, samplers: list[str], seconds: float, keep: Path, referenced: bool) -> list[dict[str, str]]:
    """Run what has not run yet, and return the rows of a case; without `referenced`, no reference is run."""

    def path_of(name: str) -> Path:
        return keep / f"{case.name}-{case.model}-{name}-{seconds:g}.npz".replace(" ", "_")

    def done(sampler: str, name: str, times: int) -> Any:
        if not path_of(name).exists():
            run(case, sampler, seconds * times, times, path_of(name))
            print("done:", path_of(name).name, flush=True)
        return np.load(path_of(name))

    found = {sampler: done(sampler, sampler, 1) for sampler in samplers}
    best = max(found, key=lambda sampler: speed(found[sampler]))
    name = f"reference_{best}"
    reference = done(best, name, 10) if referenced or path_of(name).exists() else None
    return [row_of(case, sampler, each, reference) for sampler, each in found.items()]


def main() -> None:
    """Run all cases; print the table and write it as CSV."""
    parser = argparse.ArgumentParser(description="Seconds to posterior means, R-hat and effective sample sizes.")
    parser.add_argument("--data", nargs="+", default=[case.data for case in CASES])
    parser.add_argument("--samplers", nargs="+", default=list(SAMPLERS))
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--keep", type=Path, default=ROOT / "results" / "chains")
    parser.add_argument("--no-reference", action="store_true", help="run no reference that is not there")
    given = parser.parse_args()
    rows: list[dict[str, str]] = []
    for case in CASES:
        if case.data in given.data:
            rows += rows_of(case, given.samplers, given.seconds, given.keep, not given.no_reference)
            with ROWS.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
    print(f"| {' | '.join(rows[0])} |", "|---" * len(rows[0]) + "|", sep="\n")
    for row in rows:
        print(f"| {' | '.join(row.values())} |")


if __name__ == "__main__":
    main()
