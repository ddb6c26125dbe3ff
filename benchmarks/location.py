"""Where the mean field puts the posterior, beside other approximations and short chains, judged by long chains.

    python -m benchmarks.location [--data pcawg_breast_sbs96] [--rank 5] [--shape 1] [--reference FILE] [--seeds 2]

fits gamma_poisson by vi, and prints a table whose rows all begin at that fit. Its columns are the share of a long run's
draws that lies in 90 % intervals (0.9 is best), the median distance between means in standard deviations of the long
run, and the median ratio of standard deviations, each for all loadings / all entries of the components; and processor
seconds, without those of the fit. The long run is marginal Gibbs from starts of its own, 4 chains of 5,000 draws;
--reference keeps it in a file. `benchmarks.copula` has the q of the rows "Laplace", "one Newton step" and "copula".
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import bayesnmf
from bayesnmf import VI, Dirichlet, Fit, Gamma, Gibbs, Priors
from bayesnmf.assessment.linear_response import SHAPES
from bayesnmf.data.counts import Counts
from bayesnmf.inference.alignment import match_components
from bayesnmf.results.mixing import r_hat_and_ess
from benchmarks.copula import Joint, Schedule, fit_copula, mean_field
from benchmarks.data import read

Array = NDArray[Any]
Posterior = dict[str, "Summary"]
LEVELS = 0.05, 0.95
VALUES = {"loadings": "positive", "components": "share"}
DRAWS = 2000  # of a copula, to summarise it

MODE = Schedule(steps=60, draws=2, rate=(0.3, 0.3), momentum=(0.0, 0.0), step=0.3, matched=(), spread=0.0)
NEWTON = Schedule(steps=1, draws=64, rate=(0.9, 0.9), momentum=(0.0, 0.0), step=1.0, matched=())
SLOWLY = Schedule(
    steps=150, rate=(0.3, 0.3), momentum=(0.5, 0.5), step=0.2, matched=tuple(range(5, 110, 10)), coupled=False
)
COPULAS = {
    "Laplace, log": ("log", MODE),
    "one Newton step, log": ("log", NEWTON),
    "copula, log-normal": ("log", Schedule(steps=100)),
    "copula, Gamma": ("gamma", Schedule(steps=100)),
    "copula, truncated normal": ("normal", Schedule()),
    "copula, truncated normal, sides apart": ("normal", SLOWLY),
}
BUDGETS = [(1, 50, 250), (1, 100, 500), (1, 200, 1000), (4, 150, 500)]


class Summary(NamedTuple):
    """Means, standard deviations and 90 % intervals of the entries of one side."""

    mean: Array
    sd: Array
    lower: Array
    upper: Array

    @classmethod
    def of_draws(cls, draws: Array) -> Summary:
        """Return those of draws (S, …)."""
        return cls(draws.mean(axis=0), draws.std(axis=0), *np.quantile(draws, LEVELS, axis=0))

    @classmethod
    def of_moments(cls, mean: Array, sd: Array, values: str) -> Summary:
        """Return those of Gammas or Betas, as values are "positive" or "share"."""
        return cls(mean, sd, *SHAPES[values](mean, sd**2, np.array(LEVELS).reshape(2, 1, 1)))


class Score(NamedTuple):
    """How an approximation of one side compares with a reference."""

    mass: float
    shift: float
    ratio: float


def judge(found: Summary, reference: Array) -> Score:
    """Compare a summary with the draws (S, …) of a reference; the mass is NaN if a standard deviation is."""
    within = float(np.mean([np.mean((each >= found.lower) & (each <= found.upper)) for each in reference]))
    if np.isnan(found.sd).any():
        within = np.nan
    mean, sd = reference.mean(axis=0, dtype=np.float64), reference.std(axis=0, dtype=np.float64)
    return Score(within, float(np.median(np.abs(found.mean - mean) / sd)), float(np.median(found.sd / sd)))


@dataclass(frozen=True)
class Case:
    """Counts with priors of one shape, and their fit by vi."""

    counts: Counts
    rank: int
    shape: float
    fit: Fit

    @classmethod
    def of(cls, counts: Counts, rank: int, shape: float) -> Case:
        """Fit counts; with a shape of 1 the priors are the default ones."""
        options = VI(priors=priors_of(counts, rank, shape), threads=1)
        return cls(counts, rank, shape, bayesnmf.fit(counts, "gamma_poisson", rank, "vi", seed=0, options=options))

    def chains(self, chains: int, warmup: int, draws: int, seed: int, **given: Any) -> Fit:
        """Run marginal Gibbs."""
        sweeps: dict[str, Any] = {"chains": chains, "warmup": warmup, "draws": draws, "keep": "draws", "threads": 1}
        options = Gibbs(priors=self.fit.options.priors, algorithm="marginal", **sweeps, **given)
        return bayesnmf.fit(self.counts, "gamma_poisson", self.rank, "gibbs", seed=seed, options=options)

    def in_order(self, loadings: Array, components: Array) -> dict[str, Array]:
        """Return draws (S, …) with components in the order of the fit by vi."""
        order = match_components(components.mean(axis=0), self.fit.components)
        return {"loadings": loadings[:, :, order], "components": components[:, order]}


def priors_of(counts: Counts, rank: int, shape: float) -> Priors:
    """Return priors of one shape under which rows have the expected total that they have on average."""
    return Priors(Gamma(shape, shape * rank / float(counts.row_totals.mean())), Dirichlet(shape))


def from_mean_field(case: Case, seed: int) -> Posterior:
    """Summarise the fit itself."""
    sd = cast(Any, case.fit.estimate.sd)
    return {side: Summary.of_moments(getattr(case.fit, side), sd(case.fit, side), values)
            for side, values in VALUES.items()}  # fmt: skip


def from_linear_response(case: Case, seed: int) -> Posterior:
    """Summarise the linear response of the fit."""
    response = bayesnmf.linear_response(case.fit, threads=1)
    return {side: Summary.of_moments(getattr(response.fit, side), response.spread(side).sd, values)
            for side, values in VALUES.items()}  # fmt: skip


def from_copula(kind: str, schedule: Schedule, case: Case, seed: int) -> Posterior:
    """Fit a copula and summarise its draws."""
    rng, priors, q = np.random.default_rng(seed), cast(Any, case.fit.priors), cast(Any, case.fit.posterior)
    counts = case.counts.matrix.toarray().astype(np.float64)
    joint = Joint(counts, case.rank, case.shape, float(priors.loadings.rate), case.shape)
    started = mean_field(kind, joint, (q.loadings.shape, q.loadings.rate), q.components.concentration)
    draws = joint.factors(fit_copula(joint, started, schedule, rng).draws(DRAWS, rng))
    return {side: Summary.of_draws(each) for side, each in zip(VALUES, draws, strict=True)}


def from_chains(chains: int, warmup: int, draws: int, case: Case, seed: int) -> Posterior:
    """Run chains from the fit and summarise them."""
    found: Any = case.chains(chains, warmup, draws, seed, start=case.fit).posterior
    flat = [each.reshape(-1, *each.shape[2:]) for each in (found.loadings, found.components)]
    return {side: Summary.of_draws(each) for side, each in case.in_order(*flat).items()}


Way = Callable[[Case, int], Posterior]
EXACT: tuple[Way, ...] = (from_mean_field, from_linear_response)  # no seed


def ways() -> dict[str, Way]:
    """Return what makes a posterior of a fit and a seed, by name."""
    short = {
        f"marginal Gibbs, {chains} × ({warmup:,} + {draws:,}) sweeps": partial(from_chains, chains, warmup, draws)
        for chains, warmup, draws in BUDGETS
    }
    fitted = {name: partial(from_copula, *given) for name, given in COPULAS.items()}
    return {"mean field": from_mean_field, "linear response": from_linear_response, **fitted, **short}


def reference_of(case: Case, name: str, size: tuple[int, int], path: Path | None) -> dict[str, Array]:
    """Return draws (S, …) of a long run, by side, and print how it mixed; they are read from a file that has them."""
    chains, draws = size
    of = f"{name}, K = {case.rank}, shapes {case.shape:g}, {chains} × {draws:,} draws of marginal Gibbs"
    if path is not None and path.exists():
        kept = dict(np.load(path))
        if str(kept["of"]) != of:
            raise SystemExit(f"{path} has {kept['of']}, not {of}: name another file with --reference")
    else:
        began = time.process_time()
        found = case.chains(chains, draws // 5, draws, 0).posterior
        kept = {side: getattr(found, side).astype(np.float32) for side in VALUES}
        kept |= {"of": np.array(of), "seconds": np.array(time.process_time() - began)}
        if path is not None:
            np.savez(path, **kept)
    measures = [r_hat_and_ess(kept[side], 1) for side in VALUES]
    r_hat, ess = (np.concatenate([each[at].ravel() for each in measures]) for at in range(2))
    mixed = f"largest R-hat {np.nanmax(r_hat):.3f}, smallest ESS {np.nanmin(ess):.0f}"
    print(f"Reference: {of}, {mixed}, {float(kept['seconds']):.0f} s.")
    return case.in_order(*(kept[side].reshape(-1, *kept[side].shape[2:]) for side in VALUES))


def measured(way: Way, case: Case, reference: dict[str, Array], seeds: int) -> tuple[Array, float]:
    """Return means over seeds of the scores (sides, measures), and of processor seconds."""
    scores, seconds = [], []
    for seed in range(1, seeds + 1):
        began = time.process_time()
        found = way(case, seed)
        seconds.append(time.process_time() - began)
        scores.append([judge(found[side], reference[side]) for side in VALUES])
    return np.mean(scores, axis=0), float(np.mean(seconds))


def rows(case: Case, reference: dict[str, Array], seeds: int) -> Iterator[str]:
    """Yield the rows of the table."""
    for name, way in ways().items():
        try:
            (a, b), seconds = measured(
                way, case, reference, 1 if way in (from_mean_field, from_linear_response) else seeds
            )
        except np.linalg.LinAlgError:
            yield f"| {name} | fails: a step is not finite, or the precision not positive definite | | | |"
            continue
        pairs = " | ".join(
            f"{one:.{digits}f} / {two:.{digits}f}" for one, two, digits in zip(a, b, (3, 2, 2), strict=True)
        )
        yield f"| {name} | {pairs} | {seconds:.2g} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--data", default="pcawg_breast_sbs96")
    add("--rank", type=int, default=5)
    add("--shape", type=float, default=1.0, help="of the priors of both sides (default: %(default)s)")
    add("--seeds", type=int, default=2, help="that figures of draws are means of (default: %(default)s)")
    add("--size", type=int, nargs=2, default=[4, 5000], help="chains and draws of the long run (default: 4 5000)")
    add("--reference", type=Path, help=".npz file of the long run, which is written if it does not exist")
    given = parser.parse_args()
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", bayesnmf.ConvergenceWarning)  # of short chains
        print_table(given)


def print_table(given: argparse.Namespace) -> None:
    """Print the lines about the fit and the reference, and the table."""
    small = Case.of(read("12x8", 2, 0), 2, given.shape)
    for way in ways().values():
        way(small, 1)  # compiles
    began = time.process_time()
    case = Case.of(read(given.data, given.rank, 0), given.rank, given.shape)
    print(f"The fit by vi took {time.process_time() - began:.2g} s of the processor.")
    reference = reference_of(case, given.data, tuple(given.size), given.reference)
    print("\n| | mass in 90 % intervals | shift of the means, sd | ratio of sds | s |\n|---|--:|--:|--:|--:|")
    for row in rows(case, reference, given.seeds):
        print(row, flush=True)


if __name__ == "__main__":
    main()
