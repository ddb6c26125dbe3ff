"""Measure calls without options: `python -m benchmarks.defaults` fits whole real matrices.

Tasks: `map` and `vi`, gamma_poisson with K = 10; `lda`, dirichlet_poisson with K = 20 and concentrations of 1/20. For
each it measures the objective and the seconds of the plain call, its distance to the best known value, and the time
until it passes the final value of scikit-learn's plain call, with one objective for both. `--search N` looks for a
better "best known" value by long runs from N starts.

It writes table.md and results.json, to which a later run adds, to the folder `--out`. benchmarks/defaults.md has its
output.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import bayesnmf
from bayesnmf import MAP, VI, Dirichlet, Priors
from bayesnmf.data.conversion import as_counts
from bayesnmf.data.counts import Counts
from bayesnmf.fitting.job import resolve_priors
from benchmarks import data, objectives
from benchmarks.defaults_table import as_table

Array = NDArray[Any]
Seen = list[tuple[float, float]]  # seconds since the call, objective

DATA = ("pbmc_small", "digits", "pcawg_breast_sbs96", "mcf7", "nips", "pbmc_facs", "newsgroups")
BEST = Path(__file__).parent / "defaults_best.json"
TASKS: dict[str, tuple[str, str, int]] = {
    "map": ("map", "gamma_poisson", 10),
    "vi": ("vi", "gamma_poisson", 10),
    "lda": ("vi", "dirichlet_poisson", 20),
}
# The plain algorithms from a random start, as options; loadings of vi are still settled at the end.
BEFORE: dict[str, Any] = {
    "map": MAP(start="random", algorithm="em", extrapolate=False),
    "vi": VI(start="random", algorithm="coordinate", extrapolate=False),
}
LONG = 3000  # most iterations of a search


def priors_of(task: str) -> Priors:
    """Return the priors of a task: the model's defaults, except for lda."""
    return Priors(Dirichlet(1 / 20), Dirichlet(1 / 20)) if task == "lda" else Priors()


def fit(counts: Counts, task: str, seed: int, options: Any = None, rank: int | None = None) -> tuple[Any, Seen]:
    """Fit, and record the objective of every iteration with the seconds since the call."""
    method, model, components = TASKS[task]
    options = options or {"map": MAP, "vi": VI}[method]()
    if task == "lda":
        options = replace(options, priors=priors_of(task))
    seen: Seen = []
    began = time.perf_counter()

    def note(label: str, _done: int, _total: int, value: float) -> None:
        if "exchanges" not in label:
            seen.append((time.perf_counter() - began, value))

    fitted = bayesnmf.fit(counts, model, rank or components, method, seed=seed, options=options, progress=note)
    return fitted, seen


def compile_all(task: str) -> None:
    """Fit a small matrix, so that no measured call compiles anything."""
    rng = np.random.default_rng(0)
    for density in (0.1, 1.0):  # sparse and dense counts use different code
        counts = rng.poisson(2.0, (60, 50)) * (rng.random((60, 50)) < density)
        for options in (None, BEFORE[TASKS[task][0]]):
            fit(as_counts(counts), task, 0, options, rank=3)


def ours(counts: Counts, task: str, seed: int, options: Any = None) -> dict[str, Any]:
    """Return objective, seconds, iterations and recorded objectives of one call."""
    fitted, seen = fit(counts, task, seed, options)
    best = np.maximum.accumulate([value for _, value in seen])
    kept = [0, *(np.flatnonzero(np.diff(best) > 0) + 1)]
    chosen = fitted.options
    return {
        "objective": float(fitted.trace[-1]),
        "value": value_of(counts, task, fitted),
        "seconds": fitted.seconds,
        "iterations": fitted.status.iterations,
        "status": fitted.status.reason,
        "converged": fitted.status.converged,
        "options": f"{chosen.start}, {chosen.algorithm}" + (", extrapolated" if chosen.extrapolate else ""),
        "seen": [(seen[k][0], float(best[k])) for k in kept],
    }


def scikit_learn(counts: Counts, task: str, seed: int) -> dict[str, Any]:
    """Return objective and seconds of scikit-learn's plain call, evaluated with our objective."""
    from scipy.sparse import csr_matrix
    from sklearn.decomposition import NMF, LatentDirichletAllocation

    rank = TASKS[task][2]
    given = csr_matrix(counts.matrix)
    if task == "lda":
        model = LatentDirichletAllocation(rank, doc_topic_prior=1 / 20, topic_word_prior=1 / 20, random_state=seed)
    else:
        model = NMF(rank, solver="mu", beta_loss="kullback-leibler", random_state=seed)
    began = time.perf_counter()
    loadings = model.fit_transform(given)
    seconds = time.perf_counter() - began
    return {**judged(counts, task, loadings, model.components_), "seconds": seconds, "iterations": int(model.n_iter_)}


def judged(counts: Counts, task: str, loadings: Array, components: Array) -> dict[str, float]:
    """Return objective and value of another tool's factors, by our formulas."""
    rank = TASKS[task][2]
    problem: Any = data.Problem("", counts, None, rank, {"gamma": np.ones(loadings.shape)}, 1 / 20, 1 / 20, 0)
    if task == "lda":
        bound = objectives.evaluate(problem, "lda", {"nu": components})
        return {"objective": bound, "value": bound}
    sums = components.sum(axis=1, keepdims=True)
    even = np.full_like(components, 1 / components.shape[1])
    components = np.divide(components, sums, out=even, where=sums > 0)
    loadings = loadings * sums.T
    # At the best scales, a row of loadings sums to its total of counts divided by 1 + rate.
    priors: Any = resolve_priors("gamma_poisson", counts, rank, Priors())
    totals, best = loadings.sum(axis=1, keepdims=True), counts.row_totals[:, None] / (1 + priors.loadings.rate)
    loadings = np.divide(loadings * best, totals, out=np.zeros_like(loadings), where=totals > 0)
    start = bayesnmf.Start(loadings, components)
    options = MAP(start=start, algorithm="em", extrapolate=False, max_iter=0, tol=0)
    at = bayesnmf.fit(counts, "gamma_poisson", rank, "map", options=options, seed=0)
    return {"objective": float(at.trace[-1]), "value": value_of(counts, task, at)}


def search(counts: Counts, task: str, seeds: range) -> dict[str, Any]:
    """Return the best of many starts by every algorithm, each with a long run; every second one is random."""
    method = TASKS[task][0]
    algorithms = ("scd", "ccd", "em") if method == "map" else ("settled", "coordinate")
    best: dict[str, Any] = {"value": -np.inf, "by": ""}
    for seed in seeds:
        algorithm = algorithms[seed // 2 % len(algorithms)]
        options = {"map": MAP, "vi": VI}[method](
            start="random" if seed % 2 else "descent", algorithm=algorithm, extrapolate=True, max_iter=LONG, tol=1e-9
        )
        fitted, _ = fit(counts, task, seed, options)
        found = {"value": value_of(counts, task, fitted), "by": f"{algorithm} from {options.start}, seed {seed}"}
        best = found if found["value"] > best["value"] else best
        print(f"  {task}, {found['by']}: {found['value']:,.1f}", flush=True)
    return best


def value_of(counts: Counts, task: str, fitted: Any) -> float:
    """Return the value by which fits are compared: the log-likelihood at the best scales for map, else the bound."""
    if task != "map":
        return float(fitted.trace[-1])
    problem: Any = data.Problem("", counts, None, fitted.rank, {}, 1.0, 1.0, 0)
    return objectives.loglik_at_best_scales(problem, fitted.loadings, fitted.components)


def one_component(counts: Counts, task: str) -> float:
    """Return the value of a fit with one component, on the scale of `value_of`."""
    return value_of(counts, task, fit(counts, task, 0, rank=1)[0])


def published(name: str, task: str) -> dict[str, Any] | None:
    """Return the best log-likelihood that fastTopics published for these counts, if any."""
    path = data.ROOT.parent / "shared" / "golden" / "fasttopics_logliks.csv"
    if task != "map" or not path.exists():
        return None
    lines = [line.split(",") for line in path.read_text(encoding="utf-8").splitlines()[1:]]
    found = [(float(line[4]), line[2]) for line in lines if line[:2] == [name, str(TASKS[task][2])]]
    return {"value": max(found)[0], "by": f"fastTopics, {max(found)[1]}"} if found else None


def better(one: dict[str, Any] | None, two: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the one with the larger value; either may be missing."""
    return max((each for each in (one, two) if each), key=lambda each: each["value"], default=None)


def runs_of(counts: Counts, task: str, seeds: list[int]) -> dict[str, Callable[[], Any]]:
    """Return the measurements of one task on one data set, by label."""
    runs: dict[str, Callable[[], Any]] = {"one component": partial(one_component, counts, task)}
    for seed in seeds:
        runs[f"plain {seed}"] = partial(ours, counts, task, seed)
        runs[f"before {seed}"] = partial(ours, counts, task, seed, BEFORE[TASKS[task][0]])
    if task != "vi":  # scikit-learn has no such model
        runs["scikit-learn"] = partial(scikit_learn, counts, task, seeds[0])
    return runs


def measure(options: argparse.Namespace, results: dict[str, Any], save: Callable[[], None]) -> None:
    """Compute missing results, and save after every cell."""
    best = json.loads(BEST.read_text(encoding="utf-8")) if BEST.exists() else {}
    for task in options.tasks:
        compile_all(task)
        for name in options.data:
            counts, cell = data.read(name, 1, 0), results.setdefault(f"{task} {name}", {})
            cell["size"] = [*counts.shape, counts.nnz]
            known = better(best.get(f"{task} {name}"), published(name, task))
            if options.search:
                known = better(known, search(counts, task, range(options.search)))
            for label, run in runs_of(counts, task, options.seeds).items():
                if label not in cell or label in options.again:
                    print(f"{task} {name}: {label}", flush=True)
                    cell[label] = run()
                    save()
                if label.startswith("plain"):
                    known = better(known, {"value": cell[label]["value"], "by": "the plain call"})
            best[f"{task} {name}"] = cell["best"] = known
            save()
            BEST.write_text(json.dumps(best, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--data", nargs="+", default=list(DATA), help="as for python -m benchmarks")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument(
        "--search", type=int, default=0, metavar="N", help="number of long runs that look for a better best known"
    )
    parser.add_argument("--again", nargs="*", default=[], metavar="LABEL", help='cells to measure again: "plain 0", …')
    parser.add_argument("--out", type=Path, default=data.ROOT / "results" / "defaults")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")  # both tools warn about calls that stop before they converge
    file = options.out / "results.json"
    results = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}

    def save() -> None:
        file.write_text(json.dumps(results), encoding="utf-8")

    measure(options, results, save)
    table = as_table(results)
    (options.out / "table.md").write_text(table, encoding="utf-8")
    print(table)


if __name__ == "__main__":
    main()
