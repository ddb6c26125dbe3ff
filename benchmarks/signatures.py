"""From a matrix of mutations to known signatures: the recipe of docs/fields/signatures.md beside other programs.

    python -m benchmarks.signatures [--cases pcawg 0 1 …] [--tools recipe …] [--out FOLDER] [--sigprofiler PYTHON]

Counts: pcawg_breast_sbs96, and 20 simulated cohorts of 100 tumours with 5 to 8 signatures of COSMIC, SBS1 and SBS5
among them and no artefact of sequencing, each in 30 to 100 % of the tumours with shares from Dirichlet(1), and 2,000
mutations (median; a factor of 2 up or down for two thirds). Rates of single entries vary by 30 % in odd cohorts. What
counts is how many known signatures come out with a cosine of at least 0.9 or 0.95, one to one, and among how many
components; on pcawg_breast_sbs96 all of COSMIC is known, in cohorts those that made them. `--cases rare`: 311 tumours
with 11 signatures, of which five tumours each have three; rates vary by 10 %, ranks 8 to 13.

Tools: `recipe` (rank and noise by masked entries among ranks 2 to 10, and the best of ten starts; without its Gibbs
sampling, which is for intervals), `fit` (one fit with noise "nb2", told the true rank), `stability` and
`stability-counts` (`select` by stability of halves, and of resampled counts, at the same ranks, and a fit at its rank),
`scikit-learn` (NMF with Kullback-Leibler loss, the best of 10 random starts, told the true rank; ranks 4, 5 and 8 on
pcawg_breast_sbs96), and `sigprofiler` (SigProfilerExtractor with 5 replicates and no assignment, all other settings its
defaults; told the true rank; ranks 4 and 5 on pcawg_breast_sbs96). It runs under a Python of its own: ``python -m venv
rivals; rivals/bin/pip install SigProfilerExtractor``. What is done is a file in the folder and is not run again;
--only-print prints the table of what is there.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment

import bayesnmf
from benchmarks.assign import catalogue
from benchmarks.data import read

COHORTS, TUMOURS, MUTATIONS, SPREAD = 20, 100, 2000, 0.3
RANKS, RANKS_OF_RARE = range(2, 11), range(8, 14)
EVERYWHERE = ("SBS1", "SBS5")
ARTEFACTS = [f"SBS{number}" for number in (27, 43, *range(45, 61), 95)]  # as COSMIC marks them
PCAWG, RARE = "pcawg", "rare"
PREVALENCE = {
    "SBS1": 0.95, "SBS5": 0.95, "SBS2": 0.5, "SBS13": 0.5, "SBS3": 0.3, "SBS8": 0.3, "SBS18": 0.25, "SBS17b": 0.1,
    "SBS26": 1e-9, "SBS44": 1e-9, "SBS10a": 1e-9,
}  # fmt: skip
GIVEN = {PCAWG: (4, 5, 8)}  # ranks for scikit-learn where no truth is known
TRIED = {PCAWG: (4, 5)}  # first and last rank for SigProfilerExtractor there
SIGPROFILER = """
import sys
if __name__ == "__main__":
    from SigProfilerExtractor import sigpro
    sigpro.sigProfilerExtractor("matrix", sys.argv[2], sys.argv[1], minimum_signatures=int(sys.argv[3]),
                                maximum_signatures=int(sys.argv[4]), nmf_replicates=5, cpu=2,
                                make_decomposition_plots=False, stop_after_extraction=True)
"""
type Found = dict[int, np.ndarray]  # components by rank


def cohort(number: int, known: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return counts, and the signatures that made them."""
    rng = np.random.default_rng([17, number])
    others = [name for name in known.index if name not in (*EVERYWHERE, *ARTEFACTS)]
    chosen = known.loc[[*EVERYWHERE, *rng.choice(others, rng.integers(3, 7), replace=False)]]
    there = rng.random((TUMOURS, len(chosen))) < rng.uniform(0.3, 1.0, len(chosen))
    there[np.arange(TUMOURS), rng.integers(len(chosen), size=TUMOURS)] = True
    shares = rng.exponential(size=there.shape) * there
    totals = MUTATIONS * np.exp(rng.normal(0, np.log(2), TUMOURS))
    rates = (totals / shares.sum(axis=1))[:, None] * shares @ chosen.to_numpy()
    if number % 2:
        rates = rates * rng.gamma(SPREAD**-2, SPREAD**2, rates.shape)
    names = [f"tumour{i}" for i in range(TUMOURS)]
    return pd.DataFrame(rng.poisson(rates), names, known.columns), chosen


def rare(known: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return counts of 311 tumours, and the 11 signatures that made them, of which five tumours each have three."""
    rng = np.random.default_rng(0)
    chosen = known.loc[list(PREVALENCE)]
    there = rng.random((311, len(chosen))) < list(PREVALENCE.values())
    for k in range(len(chosen)):
        while there[:, k].sum() < 5:
            there[rng.integers(len(there)), k] = True
    shares = rng.gamma(1.0, 1.0, there.shape) * there + 1e-12
    totals = np.clip(np.exp(rng.normal(np.log(3000), 0.8, len(there))), 300, 50000)
    rates = (totals / shares.sum(axis=1))[:, None] * shares @ chosen.to_numpy()
    rates = rates * rng.gamma(100.0, 0.01, rates.shape)
    names = [f"tumour{i}" for i in range(len(there))]
    return pd.DataFrame(rng.poisson(rates), names, known.columns), chosen


def case_of(name: str, known: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the counts of a case, and the signatures to find."""
    if name == RARE:
        return rare(known)
    if name != PCAWG:
        return cohort(int(name), known)
    counts = read("pcawg_breast_sbs96", 1, 0)
    frame = pd.DataFrame(counts.matrix.toarray().astype(int), counts.row_names, counts.feature_names)
    return frame, known[frame.columns]


def ranks_of(name: str) -> range:
    return RANKS_OF_RARE if name == RARE else RANKS


def by_recipe(name: str, counts: pd.DataFrame, known: pd.DataFrame) -> tuple[Found, int]:
    masked = bayesnmf.select(counts, ranks=ranks_of(name), noise=("poisson", "nb2"), seed=0)
    assert masked.best is not None
    rank, noise = masked.best.rank, masked.noise
    runs = bayesnmf.modes(counts, rank=rank, noise=noise, starts=10, seed=0)
    return {rank: runs.best.components}, rank


def by_fit(name: str, counts: pd.DataFrame, known: pd.DataFrame) -> tuple[Found, int]:
    ranks = GIVEN.get(name, (len(known),))
    return {rank: bayesnmf.fit(counts, rank=rank, noise="nb2", seed=0).components for rank in ranks}, max(ranks)


def by_stability(name: str, counts: pd.DataFrame, known: pd.DataFrame, **given: Any) -> tuple[Found, int]:
    chosen = bayesnmf.select(counts, ranks=ranks_of(name), criterion="stability", seed=0, **given).best
    rank = 1 if chosen is None else chosen.rank
    return {rank: bayesnmf.fit(counts, rank=rank, seed=0).components}, rank


def by_scikit_learn(name: str, counts: pd.DataFrame, known: pd.DataFrame) -> tuple[Found, int]:
    from sklearn.decomposition import NMF

    found = {}
    for rank in GIVEN.get(name, (len(known),)):
        shared: Any = {"solver": "mu", "beta_loss": "kullback-leibler", "init": "random", "max_iter": 2000}
        runs = [NMF(rank, random_state=seed, **shared).fit(counts.to_numpy(float)) for seed in range(10)]
        found[rank] = min(runs, key=lambda run: run.reconstruction_err_).components_
    return found, max(found)


def by_sigprofiler(name: str, counts: pd.DataFrame, known: pd.DataFrame, python: str) -> tuple[Found, int]:
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder)
        counts.T.rename_axis("MutationType").sort_index().to_csv(there / "counts.txt", sep="\t")
        first, last = TRIED.get(name, (len(known), len(known)))
        (there / "run.py").write_text(SIGPROFILER, encoding="utf-8")
        given = [str(there / "counts.txt"), str(there / "out"), str(first), str(last)]
        subprocess.run([python, str(there / "run.py"), *given], check=True, capture_output=True, cwd=folder)
        found = {}
        for rank in range(first, last + 1):
            table = next((there / "out").rglob(f"SBS96_S{rank}_Signatures.txt"))
            found[rank] = pd.read_csv(table, sep="\t", index_col=0).loc[counts.columns].to_numpy().T
        stated = pd.read_csv(next((there / "out").rglob("All_solutions_stat.csv")), dtype=str).iloc[:, 0]
        return found, int(next(each for each in stated if "*" in each).strip("*"))


def score(components: np.ndarray, known: pd.DataFrame) -> dict[str, Any]:
    """Return how many known signatures there are among components, matched one to one."""
    lengths = [np.linalg.norm(each, axis=1, keepdims=True) for each in (components, known.to_numpy())]
    similarity = (components / lengths[0]) @ (known.to_numpy() / lengths[1]).T
    ours, theirs = linear_sum_assignment(similarity, maximize=True)
    cosines = similarity[ours, theirs]
    found = {str(known.index[k]): round(float(cosine), 3) for k, cosine in zip(theirs, cosines, strict=True)}
    return {"0.9": int((cosines >= 0.9).sum()), "0.95": int((cosines >= 0.95).sum()), "cosines": found}


def cpu_seconds() -> float:
    """Return the processor seconds of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def measured(tool: Callable[..., tuple[Found, int]], name: str, known: pd.DataFrame) -> dict[str, Any]:
    """Return what a tool finds in a case, and its seconds."""
    counts, truth = case_of(name, known)
    begun = time.perf_counter(), cpu_seconds()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, chosen = tool(name, counts, truth)
    seconds = {"seconds": time.perf_counter() - begun[0], "cpu": cpu_seconds() - begun[1]}
    true = None if name == PCAWG else len(truth)
    return {"true": true, "chosen": chosen, **seconds, "ranks": {k: score(each, truth) for k, each in found.items()}}


def table_of(folder: Path) -> pd.DataFrame:
    """Return a line for each tool and kind of counts."""
    lines = []
    for path in sorted(folder.glob("*.json")):
        tool, name = path.stem.rsplit("_", 1)
        found = json.loads(path.read_text(encoding="utf-8"))
        kind = "cohorts, rates vary by 30 %" if name.isdigit() and int(name) % 2 else "cohorts"
        ranks = found["ranks"] if name == PCAWG else {found["chosen"]: found["ranks"][str(found["chosen"])]}
        for rank, each in ranks.items():
            of_real = {"counts": f"pcawg_breast_sbs96, rank {rank}", "true": np.nan, "rank right": np.nan}
            right = float(found["chosen"] == found["true"])
            made = {"counts": RARE if name == RARE else kind, "true": found["true"], "rank right": right}
            own = {"tool": tool, "cases": 1, "components": int(rank), "0.9": each["0.9"], "0.95": each["0.95"]}
            seconds = {"s": found["seconds"], "cpu s": found["cpu"]}
            lines.append((of_real if name == PCAWG else made) | own | seconds)

    def total(values: pd.Series) -> float:
        return float(values.sum(min_count=1))

    sums = ("cases", "true", "0.9", "0.95", "components", "rank right")
    kept: Any = {**dict.fromkeys(sums, total), "s": "median", "cpu s": "median"}
    return pd.DataFrame(lines).groupby(["counts", "tool"], as_index=False).agg(kept)


def print_table(table: pd.DataFrame) -> None:
    """Print a table as Markdown."""
    print(f"| {' | '.join(table.columns)} |\n|---|---|{'--:|' * (table.shape[1] - 2)}")
    for line in table.itertuples(index=False):
        entries = (each if isinstance(each, str) else "" if np.isnan(each) else f"{each:,.4g}" for each in line)
        print(f"| {' | '.join(entries)} |")


def main() -> None:
    """Run what is missing, and print all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=[PCAWG, *map(str, range(COHORTS))])
    parser.add_argument("--tools", nargs="+", default=["recipe", "stability", "stability-counts", "scikit-learn"])
    parser.add_argument("--out", type=Path, default=Path("signatures_runs"))
    parser.add_argument("--sigprofiler", metavar="PYTHON", help="Python that has SigProfilerExtractor")
    parser.add_argument("--only-print", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(exist_ok=True)
    tools: dict[str, Any] = {
        "recipe": by_recipe, "fit": by_fit, "scikit-learn": by_scikit_learn, "stability": by_stability,
        "stability-counts": partial(by_stability, resample="counts"),
        "sigprofiler": partial(by_sigprofiler, python=options.sigprofiler),
    }  # fmt: skip
    known = catalogue()
    if not options.only_print:
        small = cohort(0, known)[0].iloc[:12]
        for noise in ("poisson", "nb2"):
            bayesnmf.fit(small, rank=2, noise=noise, seed=0)  # compiles
        for name in options.cases:
            for tool in options.tools:
                path = options.out / f"{tool}_{name}.json"
                if not path.exists():
                    path.write_text(json.dumps(measured(tools[tool], name, known)), encoding="utf-8")
                    print(path.stem, path.read_text(encoding="utf-8")[:150], flush=True)
    print_table(table_of(options.out))


if __name__ == "__main__":
    main()
