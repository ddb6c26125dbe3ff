"""Compare criteria for the number of components on simulated counts whose rank is known.

    python -m benchmarks.ranks [--seconds 600] [--kinds well weak over] [--part 0/2] [--again stability] [--report]
    python -m benchmarks.ranks --real pcawg_breast_sbs96 digits
    python -m benchmarks.ranks --stopped tumours pcawg_breast_sbs96 digits mcf7 simulated

None of the data sets is drawn from the priors of the fits, which are the defaults of gamma_poisson:

- well: 50 sets of 30 × 15, rank 2 to 6, 300 counts a row;
- weak: 20 sets of 60 × 30, rank 5, 100 counts a row;
- over: 20 sets of 30 × 15, rank 3, 300 counts a row, whose rates are multiplied by Gamma noise of mean 1, variance 0.2.

Ranks 1 to 8; --real measures whole real matrices at ranks 1 to 20, without the evidence. Each data set is a file in
benchmarks/ranks/, so that a run can be stopped and continued; --part 0/2 and 1/2 share the work of two processes.
--again measures criteria once more in all sets that have a file, from the first on, as after a change of a criterion.
--report prints how often each criterion finds the rank.

--stopped compares masked entries by default, where candidates far behind are stopped, with all five masks of each: what
they choose, fits, and processor seconds. `tumours` are those of `benchmarks.noise_speed`, `simulated` the first five
sets of each kind. Lines of benchmarks/ranks/stopped.csv are not measured again.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import bayesnmf
from bayesnmf.inference.status import ConvergenceWarning
from bayesnmf.studies.selection.masked import MANY
from bayesnmf.writing import write_text
from benchmarks.data import read
from benchmarks.noise_speed import tumours

FOLDER = Path(__file__).parent / "ranks"
type Ranks = tuple[int, ...]
RANKS: Ranks = tuple(range(1, 9))
REAL_RANKS: Ranks = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20)
SIZES = {"well": (30, 15), "weak": (60, 30), "over": (30, 15)}
KINDS = {"well": 50, "weak": 20, "over": 20}


def simulated(kind: str, seed: int) -> tuple[np.ndarray, int]:
    """Return counts and their rank."""
    rng = np.random.default_rng([sum(map(ord, kind)), seed])
    rank = {"well": 2 + seed % 5, "weak": 5, "over": 3}[kind]
    total, size = 100.0 if kind == "weak" else 300.0, SIZES[kind]
    loadings = rng.gamma(0.7, total / (0.7 * rank), (size[0], rank))
    means = loadings @ rng.dirichlet(np.full(size[1], 0.4), rank)
    if kind == "over":
        means = means * rng.gamma(5.0, 0.2, size)
    return rng.poisson(means), rank


def by_held_out(counts: Any, seed: int, ranks: Ranks) -> pd.DataFrame:
    """Return what held-out counts say of each rank."""
    found = bayesnmf.select(counts, ranks=ranks, criterion="heldout", seed=seed, check=False)
    chosen = {
        "heldout": found.best, "heldout_one_se": found.one_standard_error,
        "rows": found.best_for_rows, "rows_one_se": found.one_standard_error_for_rows,
    }  # fmt: skip
    return found.table.add_prefix("heldout_").assign(**numbers(chosen))


def by_masked(counts: Any, seed: int, ranks: Ranks) -> pd.DataFrame:
    """Return what held-out entries say of each rank."""
    found = bayesnmf.select(counts, ranks=ranks, criterion="masked", seed=seed, check=False)
    chosen = {"masked": found.best, "masked_one_se": found.one_standard_error}
    return found.table.add_prefix("masked_").assign(**numbers(chosen))


def by_stability(counts: Any, seed: int, ranks: Ranks) -> pd.DataFrame:
    """Return what stability says of each rank."""
    found = bayesnmf.select(counts, ranks=ranks, criterion="stability", seed=seed, check=False)
    return found.table.add_prefix("stability_").assign(**numbers({"stability": found.best}))


def by_evidence(counts: Any, seed: int, ranks: Ranks) -> pd.DataFrame:
    """Return what the evidence says of each rank."""
    found = bayesnmf.select(counts, ranks=ranks, criterion="evidence", seed=seed, check=False)
    return found.table.add_prefix("evidence_").assign(**numbers({"evidence": found.best}))


def by_elbo(counts: Any, seed: int, ranks: Ranks) -> pd.DataFrame:
    """Return the elbo of each rank, and how the fit passes the predictive checks."""
    fits = [bayesnmf.fit(counts, rank=rank, seed=seed) for rank in ranks]
    elbo = np.array([fit.trace[-1] for fit in fits])
    misfit = [bayesnmf.predictive_checks(fit).table.loc["misfit", "p_value"] for fit in fits]
    index = pd.MultiIndex.from_product([["gamma_poisson"], ranks], names=["model", "rank"])
    return pd.DataFrame({"elbo": elbo, "misfit": misfit, "chosen_elbo": ranks[int(elbo.argmax())]}, index)


CRITERIA: dict[str, Callable[[Any, int, Ranks], pd.DataFrame]] = {
    "heldout": by_held_out, "masked": by_masked, "stability": by_stability, "evidence": by_evidence, "elbo": by_elbo,
}  # fmt: skip


def numbers(chosen: dict[str, Any]) -> dict[str, int]:
    """Return the chosen ranks; 0 if none is called best."""
    return {f"chosen_{name}": 0 if one is None else one.rank for name, one in chosen.items()}


def measured(counts: Any, seed: int, criteria: Iterable[str], ranks: Ranks = RANKS) -> pd.DataFrame:
    """Return one row for each rank with what the criteria say of it, and the seconds of each."""
    tables = []
    for name in criteria:
        begun = time.perf_counter()
        tables.append(CRITERIA[name](counts, seed, ranks))
        tables[-1][f"seconds_{name}"] = time.perf_counter() - begun
    return pd.concat(tables, axis=1).reset_index()


def run(kinds: list[str], seconds: float, part: tuple[int, int], again: list[str]) -> None:
    """Measure data sets that have no file, or some criteria once more, one kind after another, for some seconds."""
    started, most = time.perf_counter(), max(KINDS.values())
    FOLDER.mkdir(exist_ok=True)
    tasks = sorted((seed / KINDS[kind] * most, kind, seed) for kind in kinds for seed in range(KINDS[kind]))
    for place, (_, kind, seed) in enumerate(tasks):
        path = FOLDER / f"{kind}-{seed:02d}.csv"
        if place % part[1] != part[0] or path.exists() != bool(again):
            continue
        if time.perf_counter() - started > seconds:
            return
        counts, rank = simulated(kind, seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            table = measured(counts, seed, again or CRITERIA)
        if again:
            old = pd.read_csv(path)
            table = pd.concat([old.drop(columns=table.columns, errors="ignore"), table], axis=1)
        else:
            table.insert(0, "true_rank", rank)
        write_text(path, table.to_csv(index=False))
        print(path.stem, rank, {name: int(table[name][0]) for name in table if name.startswith("chosen")}, flush=True)


def run_real(names: list[str]) -> None:
    """Measure all criteria but the evidence on whole real matrices that have no file."""
    for name in names:
        path = FOLDER / f"real-{name}.csv"
        if path.exists():
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            table = measured(read(name, 5, 0), 0, ("heldout", "masked", "stability", "elbo"), REAL_RANKS)
        write_text(path, table.to_csv(index=False))
        print(table.to_string())


def to_stop(names: list[str]) -> Iterator[tuple[str, Any, Ranks, tuple[str, ...]]]:
    """Yield names, counts, ranks and noises of selections in which candidates may be stopped."""
    for name in names:
        if name == "tumours":
            yield name, tumours(), tuple(range(2, 13)), ("poisson", "nb2")
        elif name == "simulated":
            for kind, seed in product(SIZES, range(5)):
                yield f"{kind}-{seed:02d}", simulated(kind, seed)[0], RANKS, ("poisson",)
        else:
            ranks = {"digits": (4, 8, 12, 16, 20, 25), "mcf7": (2, 4, 6, 8)}.get(name, tuple(range(2, 16)))
            noises = ("poisson", "nb1", "nb2") if name == "pcawg_breast_sbs96" else ("poisson",)
            counts = bayesnmf.datasets.digits() if name == "digits" else bayesnmf.datasets.real(name).counts
            yield name, counts, ranks, noises


def run_stopped(names: list[str]) -> None:
    """Compare selections by default with those that score every candidate by all masks."""
    path = FOLDER / "stopped.csv"
    done = pd.read_csv(path).to_dict("records") if path.exists() else []
    for name, counts, ranks, noises in to_stop(names):
        if any(each["counts"] == name for each in done):
            continue
        line: dict[str, Any] = {"counts": name}
        for way, splits in {"default": None, "all": MANY}.items():
            began = time.process_time()
            found = bayesnmf.select(counts, ranks=ranks, noise=noises, splits=splits, seed=0, check=False)
            seconds = time.process_time() - began
            line |= {f"{way}_seconds": round(seconds, 1), f"{way}_fits": int(found.table["fits"].sum())}
            chosen = (found.noise.word, found.best, found.one_standard_error)
            line[f"{way}_chosen"] = f"{chosen[0]} {chosen[1].rank} {chosen[2].rank}"
        done.append(line)
        write_text(path, pd.DataFrame(done).to_csv(index=False))
        print(line, flush=True)
    print(pd.DataFrame(done).to_string(index=False))


def report() -> None:
    """Print how often each criterion names the rank, a smaller one, a larger one, or none."""
    for kind in KINDS:
        tables = [pd.read_csv(path) for path in sorted(FOLDER.glob(f"{kind}-*.csv"))]
        if not tables:
            continue
        print(
            f"\n{kind}: {len(tables)} data sets\n\n"
            "| criterion | right | smaller | larger | of these the largest tried | none |"
        )
        print("|---|--:|--:|--:|--:|--:|")
        for name in [column for column in tables[0] if column.startswith("chosen")]:
            chosen = np.array([table[name][0] for table in tables])
            true = np.array([table["true_rank"][0] for table in tables])
            cells = [chosen == true, (chosen < true) & (chosen > 0), chosen > true, chosen == RANKS[-1], chosen == 0]
            print(f"| {name.removeprefix('chosen_')} | " + " | ".join(f"{each.sum()}" for each in cells) + " |")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--again", nargs="+", default=[], choices=list(CRITERIA))
    parser.add_argument("--real", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--stopped", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--report", action="store_true")
    asked = parser.parse_args()
    if asked.stopped:
        run_stopped(asked.stopped)
        return
    if asked.real:
        run_real(asked.real)
        return
    if not asked.report:
        number, parts = map(int, asked.part.split("/"))
        run(asked.kinds, asked.seconds, (number, parts), asked.again)
    report()


if __name__ == "__main__":
    main()
