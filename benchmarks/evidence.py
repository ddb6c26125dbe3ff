"""Where the evidence is known, at what cost, and how far apart estimates from below and from above are.

    python -m benchmarks.evidence [--tables ranks digits both tokens sizes] [--seconds 600] [--report]

calls `bayesnmf.log_evidence` with default settings and keeps each result as a line of benchmarks/evidence.csv, so that
a run can be stopped and continued; --report prints the tables from this file alone.

- ranks: all counts of 40 breast cancers × 96 mutation types, ranks 1 to 8;
- digits: 301 handwritten digits, rank 8;
- both: counts of 40 × 96 simulated at rank 3 (about 300 and 3,000 a row), from below and, with the truth, from above;
- tokens: single counts against tempering, by total;
- sizes: more and more rows of the cancers and of the digits at several ranks.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import bayesnmf
from bayesnmf import Dirichlet, Gamma, Priors
from bayesnmf.data.counts import Counts
from bayesnmf.inference.status import ConvergenceWarning
from benchmarks.data import read

FILE = Path(__file__).with_name("evidence.csv")
COLUMNS = ("table", "data", "rank", "total", "method", "log_evidence", "se", "spread", "known", "at_least", "upper",
           "rungs", "seconds")  # fmt: skip


class Case(NamedTuple):
    """A call of `log_evidence`."""

    table: str
    data: str
    rank: int
    counts: Counts
    settings: dict[str, Any]


def cancers(rows: int) -> Counts:
    """Return the first rows of pcawg_breast_sbs96."""
    return read("pcawg_breast_sbs96", 5, 0).rows(slice(rows))


def digits(rows: int) -> Counts:
    """Return the first rows of the digits."""
    return read("digits", 8, 0).rows(slice(rows))


def by_rank() -> Iterator[Case]:
    """Yield the cases of the table by rank."""
    for rank in range(1, 9):
        yield Case("ranks", "pcawg, 40 rows", rank, cancers(40), {})


def of_digits() -> Iterator[Case]:
    """Yield the case of the digits."""
    yield Case("digits", "digits, 301 rows", 8, digits(301), {})


def from_both_sides() -> Iterator[Case]:
    """Yield simulated data sets with their truth."""
    for seed in range(6):
        mean = (300.0, 3000.0)[seed % 2]
        priors = Priors(Gamma(1.0, 3 / mean), Dirichlet(0.5))
        drawn = bayesnmf.simulate(size=(40, 96), rank=3, priors=priors, seed=seed)
        yield Case("both", f"seed {seed}, mean row total {mean:,.0f}", 3, drawn.counts, {"truth": drawn})


def of_tokens() -> Iterator[Case]:
    """Yield simulated data sets with fewer and more counts, for both methods."""
    for n, m, rank in ((12, 8, 2), (30, 20, 4)):
        for mean in (3, 5, 10, 20, 40):
            for seed in range(3):
                priors = Priors(Gamma(1.0, rank / mean), Dirichlet(0.5))
                drawn = bayesnmf.simulate(size=(n, m), rank=rank, priors=priors, seed=seed)
                for settings in ({"method": "tokens"}, {"method": "tempered", "refinement": 1}):
                    name = f"{n} × {m}, mean row total {mean}, seed {seed}"
                    yield Case("tokens", name, rank, drawn.counts, {"priors": priors, **settings})


def by_size() -> Iterator[Case]:
    """Yield growing parts of two data sets, without refinement where a pass shows that it is hopeless."""
    for name, rows_of, sizes in (("digits", digits, (10, 20)), ("pcawg", cancers, (5, 10, 20))):
        for rows in sizes:
            for rank in (2, 3, 4, 5):
                yield Case("sizes", f"{name}, {rows} rows", rank, rows_of(rows), {})


TABLES: dict[str, Callable[[], Iterator[Case]]] = {
    "ranks": by_rank, "digits": of_digits, "both": from_both_sides, "tokens": of_tokens, "sizes": by_size,
}  # fmt: skip


def measured(case: Case) -> dict[str, Any]:
    """Return a line for a case."""
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = bayesnmf.log_evidence(case.counts, rank=case.rank, seed=0, **case.settings)
    values = (
        case.table, case.data, case.rank, int(case.counts.total), found.method, round(found.log_evidence, 2),
        round(found.se, 3), round(found.spread, 2), found.known, round(found.at_least, 2), round(found.upper, 2),
        found.rungs, round(time.perf_counter() - started, 1),
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def done() -> list[dict[str, str]]:
    """Return the lines of the file."""
    if not FILE.exists():
        return []
    with FILE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def run(tables: list[str], seconds: float) -> None:
    """Measure the cases that are not in the file, for some seconds."""
    started = time.perf_counter()
    bayesnmf.log_evidence([[3, 1], [1, 2]], rank=2, method="tempered", runs=2, seed=0)  # compiles
    have = {(line["table"], line["data"], int(line["rank"]), line["method"]) for line in done()}
    for case in (case for table in tables for case in TABLES[table]()):
        if any(key[:3] == case[:3] and key[3] == case.settings.get("method", key[3]) for key in have):
            continue
        if time.perf_counter() - started > seconds:
            return
        line, new = measured(case), not FILE.exists()
        with FILE.open("a", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            if new:
                writer.writeheader()
            writer.writerow(line)
        print(line, flush=True)


def report(tables: list[str]) -> None:
    """Print the tables."""
    for table in tables:
        lines = [line for line in done() if line["table"] == table]
        print(f"\n{table}\n\n| {' | '.join(COLUMNS[1:])} |\n|{'---|' * (len(COLUMNS) - 1)}")
        for line in lines:
            print(f"| {' | '.join(line[name] for name in COLUMNS[1:])} |")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--report", action="store_true")
    asked = parser.parse_args()
    if not asked.report:
        run(asked.tables, asked.seconds)
    report(asked.tables)


if __name__ == "__main__":
    main()
