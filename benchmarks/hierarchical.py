"""Hierarchical Gamma priors: beside hpfrec, as automatic relevance, and their cost beside plain Gammas.

    python -m benchmarks.hierarchical [--parts hpfrec relevance cost] [--data pcawg_breast_sbs96 nips] [--sets 20]

hpfrec: its q after one iteration and after many, with the bound of each summed term by term from its own parameters,
the rates' included, and by `elbo_augmented`, which gives the rates their best q; and where our fit ends from the first.
relevance: simulated sets of 5 components, fitted with rank 15 and one rate for each component: how many components hold
more than 1e-3 of the expected allocations, beside the rank that `select` prefers by held-out counts.
cost: seconds of 50 iterations and peak memory beyond the counts, taken in turn with a plain Gamma prior.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import digamma, gammaln

import bayesnmf
from bayesnmf import VI, Dirichlet, Gamma, HierarchicalGamma, Priors, Start
from bayesnmf.assessment.bounds import elbo_augmented
from bayesnmf.data.counts import Counts
from bayesnmf.inference.status import ConvergenceWarning
from benchmarks.data import read

Array = NDArray[np.float64]
SHAPE, RATE = 0.3, Gamma(0.3, 0.3)  # hpfrec's defaults
HPF = Priors(HierarchicalGamma(SHAPE, RATE, "row"), HierarchicalGamma(SHAPE, RATE, "feature"))
RELEVANT = 1e-3


# --- hpfrec -----------------------------------------------------------------------------------------


def fit_hpfrec(counts: Counts, rank: int, iterations: int) -> tuple[Any, float]:
    """Return hpfrec's model after so many iterations from its own start, and its seconds."""
    import hpfrec
    import pandas as pd

    entries = counts.matrix.tocoo()
    frame = pd.DataFrame({"UserId": entries.row, "ItemId": entries.col, "Count": entries.data.astype(float)})
    model = hpfrec.HPF(
        k=rank, maxiter=iterations, stop_crit="maxiter", random_seed=1, use_float=False, verbose=False, reindex=False,
        keep_all_objs=True, produce_dicts=False, ncores=2, check_every=min(10, iterations),
    )  # fmt: skip
    started = time.perf_counter()
    model.fit(frame)
    return model, time.perf_counter() - started


def bound_of_hpfrec(counts: Counts, model: Any) -> float:
    """Return the ELBO at hpfrec's own q of all variables, each term summed by itself, allocations at their best."""
    rank = model.Theta.shape[1]
    sides = [(model.Gamma_shp, model.Gamma_rte, model.k_rte), (model.Lambda_shp, model.Lambda_rte, model.t_rte)]
    logs = [digamma(shape) - np.log(rate) for shape, rate, _ in sides]
    entries = counts.matrix.tocoo()
    mean = np.einsum("ck,ck->c", np.exp(logs[0])[entries.row], np.exp(logs[1])[entries.col])
    theta, beta = (shape / rate for shape, rate, _ in sides)
    total = float(entries.data @ np.log(mean)) - float(theta.sum(0) @ beta.sum(0)) - counts.log_factorial
    for (shape, rate, rates), log in zip(sides, logs, strict=True):
        a, c, d = SHAPE, RATE.shape, RATE.rate
        of_rates = c + rank * a
        expected, expected_log = of_rates / rates, digamma(of_rates) - np.log(rates)
        total += float((a * expected_log - gammaln(a) + (a - 1) * log - expected * shape / rate).sum())
        total += float((c * np.log(d) - gammaln(c) + (c - 1) * expected_log - d * expected).sum())
        total += stats.gamma.entropy(shape, scale=1 / rate).sum()
        total += stats.gamma.entropy(np.full(rates.shape, of_rates), scale=1 / rates).sum()
    return total


def our_bound(counts: Counts, model: Any) -> float:
    """Return `elbo_augmented` at hpfrec's q of the factors."""
    start = start_of(model)
    options = VI(priors=HPF, start=start, max_iter=0, tol=0, extrapolate=False)
    return elbo_augmented(fit_quietly(counts, model.Theta.shape[1], options))


def start_of(model: Any) -> Start:
    """Return hpfrec's q as a start."""
    loadings, components = (
        Gamma(np.array(shape, float), np.array(rate, float))
        for shape, rate in ((model.Gamma_shp, model.Gamma_rte), (model.Lambda_shp.T, model.Lambda_rte.T))
    )
    return Start(loadings, components)


def fit_quietly(counts: Any, rank: int, options: VI) -> Any:
    """Return the fit by vi, without the warning that it has not converged."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return bayesnmf.fit(counts, "gamma_poisson", rank, "vi", seed=0, options=options)


def beside_hpfrec(names: list[str], rank: int, iterations: int) -> None:
    """Print the bounds of hpfrec's q, by its own terms and by ours, and where each ends."""
    print_row("data", "K", "iterations of hpfrec", "its q, term by term", "our bound there", "s")
    for name in names:
        counts = read(name, rank, 0)
        first, _ = fit_hpfrec(counts, rank, 1)
        last, seconds = fit_hpfrec(counts, rank, iterations)
        for steps, model, took in ((1, first, 0.0), (iterations, last, seconds)):
            own, bound = bound_of_hpfrec(counts, model), our_bound(counts, model)
            print_row(name, rank, steps, f"{own:,.3f}", f"{bound:,.3f}", f"{took:.1f}")
        ways = {
            "ours, plain steps from its first q": VI(priors=HPF, start=start_of(first), extrapolate=False),
            "ours, plain call": VI(priors=HPF),
        }
        for label, options in ways.items():
            started = time.perf_counter()
            fit = fit_quietly(counts, rank, options)
            print_row(name, rank, label, "", f"{fit.trace[-1]:,.3f}", f"{time.perf_counter() - started:.1f}")


def print_row(*entries: object) -> None:
    """Print a row of a table; under its head, a line."""
    print(f"| {' | '.join(map(str, entries))} |")
    if entries[0] == "data":
        print("|" + "---|" * len(entries))


# --- relevance --------------------------------------------------------------------------------------


def relevance(sets: int) -> None:
    """Print how many components remain in use, and the rank that held-out counts prefer."""
    relevant = Priors(HierarchicalGamma(1.0, Gamma(1e-3, 1e-3), "component"), Dirichlet(1.0))
    true = Priors(Gamma(0.5, 0.5 * 5 / 500), Dirichlet(0.1))
    used, chosen, simplest, seconds = [], [], [], np.zeros(2)
    for seed in range(sets):
        drawn = bayesnmf.simulate("gamma_poisson", (200, 60), 5, priors=true, seed=seed)
        begun = time.perf_counter()
        fit = bayesnmf.fit(drawn.counts, "gamma_poisson", 15, "vi", seed=0, options=VI(priors=relevant))
        middle = time.perf_counter()
        found = bayesnmf.select(drawn.counts, ranks=(3, 4, 5, 6, 7, 8, 10, 15), criterion="heldout", seed=0)
        seconds += middle - begun, time.perf_counter() - middle
        totals = (fit.loadings * fit.components.sum(axis=1)).sum(axis=0)
        used.append(int((totals > RELEVANT * totals.sum()).sum()))
        chosen.append(int(found.best[1]))
        simplest.append(int(found.one_standard_error[1]))
    print(f"\n{sets} sets of 200 × 60 counts, about 500 a row, 5 components, fitted with rank 15")
    for label, ranks in (("in use", used), ("best held-out", chosen), ("within one standard error", simplest)):
        print(f"{label}: {ranks}; 5 in {sum(rank == 5 for rank in ranks)} of {sets}")
    print(f"seconds a set: {seconds[0] / sets:.1f} relevance, {seconds[1] / sets:.1f} select")


# --- cost -------------------------------------------------------------------------------------------


def cost(names: list[str], rank: int) -> None:
    """Print seconds of 50 iterations and peak memory with hierarchical Gammas over those with plain ones."""
    plain = Priors(Gamma(SHAPE, 1.0), Gamma(SHAPE, 1.0))
    print_row("data", "K", "plain, s", "hierarchical / plain", "plain, MB", "hierarchical / plain")
    for name in names:
        counts = read(name, rank, 0)
        times: dict[str, list[float]] = {"plain": [], "hierarchical": []}
        peaks = {}
        for turn in range(4):
            for label, priors in (("plain", plain), ("hierarchical", HPF)):
                options = VI(priors=priors, start="random", extrapolate=False, max_iter=50, tol=0)
                if turn == 3:
                    tracemalloc.start()
                started = time.perf_counter()
                fit_quietly(counts, rank, options)
                times[label].append(time.perf_counter() - started)
                if turn == 3:
                    peaks[label] = tracemalloc.get_traced_memory()[1] / 1e6
                    tracemalloc.stop()
        least = {label: min(each[1:3]) for label, each in times.items()}
        ratios = [f"{each['hierarchical'] / each['plain']:.2f}" for each in (least, peaks)]
        print_row(name, rank, f"{least['plain']:.2f}", ratios[0], f"{peaks['plain']:.0f}", ratios[1])


def main() -> None:
    """Run the chosen parts."""
    parser = argparse.ArgumentParser(description="Hierarchical Gamma priors: hpfrec, relevance, cost.")
    parser.add_argument(
        "--parts", nargs="+", default=["hpfrec", "relevance", "cost"], choices=["hpfrec", "relevance", "cost"]
    )
    parser.add_argument("--data", nargs="+", default=["pcawg_breast_sbs96", "nips"])
    parser.add_argument("--rank", type=int, default=10)
    parser.add_argument("--iterations", type=int, default=1000, help="of hpfrec")
    parser.add_argument("--sets", type=int, default=20)
    given = parser.parse_args()
    if "hpfrec" in given.parts:
        beside_hpfrec(given.data, given.rank, given.iterations)
    if "relevance" in given.parts:
        relevance(given.sets)
    if "cost" in given.parts:
        cost(given.data, given.rank)


if __name__ == "__main__":
    main()
