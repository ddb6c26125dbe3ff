"""Starts of a plain call: how its descent on the likelihood alone is made, and what that does to the end of the fit.

    python -m benchmarks.starts [--data digits nips] [--rank 5 10 20] [--parts 3]

fits random parts of the rows of real and simulated matrices, of which a fifth of the counts is held back, by the plain
call with several descents: the number of iterations, of sweeps of coordinate descent in each, and whether they are
extrapolated. Beside the first of them, 50 iterations of three sweeps, it prints how much higher the bound ends (in 1e-5
of itself) and the held-out counts are predicted (in thousandths of a nat a count), with standard errors, how often the
bound is higher and lower by more than 1e-5, and the processor seconds of the descent and of the whole fit.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from scipy.sparse import csr_array

import bayesnmf
from bayesnmf import VI
from bayesnmf.inference.starts import states
from bayesnmf.inference.starts.states import QUICK, SLOW, Descent
from bayesnmf.inference.status import FitWarning
from benchmarks.arena.judging import Split, held_out
from benchmarks.data import KEEP, read

DESCENTS = (SLOW, Descent(25, 3, False), QUICK, Descent(50, 1, True))
PARTS = {
    "pcawg_breast_sbs96": 130, "digits": 400, "nips": 250, "newsgroups": 800, "pbmc_facs": 150, "scsim_k14_b": 150,
    "ap_like": 500,
}  # fmt: skip


class End(NamedTuple):
    """Where a fit ends: the bound, held-out counts in nats each, and processor seconds of the descent and of all."""

    bound: float
    score: float
    descent: float
    whole: float


def in_words(descent: Descent) -> str:
    """Return a descent as the table has it."""
    return f"{descent.iterations} × {descent.sweeps}{', extrapolated' * descent.extrapolated}"


def end_of(given: Split, rank: int, seed: int, descent: Descent) -> End:
    """Fit by the plain call with a descent; return where it ends."""
    spent = 0.0

    def descend(*arguments: Any) -> Any:
        nonlocal spent
        begun = time.process_time()
        found = whole(*arguments)
        spent += time.process_time() - begun
        return found

    whole = states._descended_state
    with patch.object(states, "_descended_state", descend), patch.object(states, "descent_for", lambda *_: descent):
        begun = time.process_time()
        fit = bayesnmf.fit(given.train, rank=rank, seed=seed, options=VI(threads=1))
        seconds = time.process_time() - begun
    return End(fit.trace[-1], held_out(fit.loadings, fit.components, given), spent, seconds)


def part_of(name: str, rows: int, number: int) -> Split:
    """Return a random part of the rows of a matrix, with a fifth of its counts held back."""
    rng = np.random.default_rng([12, number])
    whole = csr_array(read(name, 20, 0).matrix)
    chosen = np.sort(rng.permutation(whole.shape[0])[:rows])
    counts = csr_array(whole[chosen])
    counts = csr_array(counts[:, np.flatnonzero(counts.sum(axis=0))])
    train, test = counts.copy(), counts.copy()
    train.data = rng.binomial(counts.data.astype(np.int64), KEEP).astype(float)
    test.data = counts.data - train.data
    return Split(train, test)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--rank", nargs="+", type=int, default=[5, 10, 20])
    parser.add_argument("--parts", type=int, default=3)
    asked = parser.parse_args()
    warnings.simplefilter("ignore", FitWarning)
    ends: dict[Descent, list[End]] = {descent: [] for descent in DESCENTS}
    end_of(part_of("digits", 50, 0), 3, 0, DESCENTS[-1])  # compiles
    for name in asked.data:
        for number in range(asked.parts):
            given = part_of(name, PARTS[name], number)
            for rank in asked.rank:
                for descent in DESCENTS:
                    ends[descent].append(end_of(given, rank, number, descent))
                print(name, number, rank, flush=True)
    print("| descent | bound | held out | higher, lower | seconds of it | of the fit |\n|---|--:|--:|--:|--:|--:|")
    first = np.array(ends[DESCENTS[0]])
    for descent in DESCENTS:
        found = np.array(ends[descent])
        bound = 1e5 * (found[:, 0] - first[:, 0]) / np.abs(first[:, 0])
        score = 1e3 * (found[:, 1] - first[:, 1])
        means = [f"{each.mean():+.1f} ± {each.std() / len(each) ** 0.5:.1f}" for each in (bound, score)]
        counted = f"{(bound > 1).mean():.2f}, {(bound < -1).mean():.2f}"
        seconds = [f"{found[:, column].sum():.0f}" for column in (2, 3)]
        print(f"| {' | '.join([in_words(descent), *means, counted, *seconds])} |")


if __name__ == "__main__":
    main()
