"""Compare the posteriors of Gibbs, NUTS, VI and SVI, on simulated counts of each model and on real counts.

``python benchmarks/agreement.py`` runs all cases. For each it writes numbers (CSV), a table (NAME.md) and a figure to
``benchmarks/agreement``, and then README.md with all tables. ``--data NAME`` runs one case only; ``--table`` runs none
and writes README.md from the existing tables. ``--data pbmc_facs --rank 4 --draws 1000 --out results/agreement`` uses
other settings. Real counts that are not available are left out.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "published"))
from common import ROOT, Clock

import bayesnmf
from bayesnmf import MAP, NUTS, SVI, VI, Dirichlet, Gamma, Gibbs, Priors, ScaledDirichlet, plots
from bayesnmf.data.counts import Counts
from bayesnmf.data.simulation import Simulation
from bayesnmf.data.splitting import thin_counts

Maker = Callable[[int, int], "Case | None"]

SIZE, TOTAL = (60, 20), 100
SPARSE = Dirichlet(0.3)
SIMULATED = {
    "poisson": Priors(Gamma(1.0, 3 / TOTAL), SPARSE),
    "gamma_poisson": Priors(Gamma(2.0, 6 / TOTAL), SPARSE),
    "dirichlet_poisson": Priors(Dirichlet(0.7), SPARSE),
    "dirichlet_gamma": Priors(ScaledDirichlet(0.7, 4.0, 4 / TOTAL), SPARSE),
}


@dataclass(frozen=True)
class Case:
    """Counts, their description, the model and priors of the fits, and the truth if it is known."""

    counts: Counts
    description: str
    model: str
    priors: Priors
    rank: int
    truth: Simulation | None = None


def simulated(model: str, rank: int, seed: int) -> Case:
    """Draw counts from a model and fit the same model with the same priors."""
    totals = TOTAL if model == "dirichlet_poisson" else None
    drawn = bayesnmf.simulate(model, SIZE, rank, priors=SIMULATED[model], totals=totals, seed=seed)
    description = f"drawn from the model itself, {SIZE[0]} × {SIZE[1]}, about {TOTAL} counts a row"
    return Case(drawn.counts, description, model, drawn.priors, rank, drawn)


def mutations(rank: int, seed: int, samples: int = 60, total: float | None = 100) -> Case | None:
    """Return some of the 192 breast cancers, with mutations thinned binomially to a mean number."""
    counts = read("pcawg_breast_sbs96")
    if counts is None:
        return None
    rng = np.random.default_rng(seed)
    counts = counts.rows(np.sort(rng.choice(counts.shape[0], samples, replace=False)))
    return real(counts, f"{samples} of 192 breast cancers × 96 mutation types", total, rank, rng)


def cells(rank: int, seed: int, genes: int = 100, each: int = 40, total: float | None = 150) -> Case | None:
    """Return some cells of three sorted populations, with the genes most expressed in all 3,774, thinned."""
    counts = read("pbmc_facs")
    if counts is None:
        return None
    rng = np.random.default_rng(seed)
    populations = np.array([str(name).split("-", 2)[2] for name in counts.row_names])
    rows = [rng.choice(np.flatnonzero(populations == name), each, replace=False) for name in POPULATIONS]
    top = np.sort(np.argsort(-counts.feature_totals, kind="stable")[:genes])
    counts = counts.rows(np.sort(np.concatenate(rows)))
    counts = bayesnmf.data.conversion.as_counts(counts.matrix[:, top])
    description = f"{each} each of {', '.join(POPULATIONS)} × the {genes} most expressed genes"
    return real(counts, description, total, rank, rng)


POPULATIONS = ("b_cells", "cd14_monocytes", "cd56_nk")


def real(counts: Counts, description: str, total: float | None, rank: int, rng: np.random.Generator) -> Case:
    """Thin counts to a mean row total, which leaves Poisson counts Poisson; use the model's default priors."""
    mean = counts.total / counts.shape[0]
    if total is not None:
        counts, _ = thin_counts(counts, total / mean, rng)
        description += f", thinned from {mean:,.0f} to {counts.total / counts.shape[0]:,.0f} counts a row"
    else:
        description += f", all counts, {mean:,.0f} a row"
    return Case(counts, description, "gamma_poisson", Priors(), rank)


def read(name: str) -> Counts | None:
    """Return a real count matrix, or print that it is not available."""
    path = Path(os.environ.get("BAYESNMF_DATA") or ROOT.parent / "shared" / "data") / f"{name}.npz"
    if not path.exists():
        print(f"{name} is not there: set BAYESNMF_DATA to the folder that holds it; left out")
        return None
    return bayesnmf.read_counts(path)


def under(make: Maker, model: str) -> Maker:
    """Return a maker of the same real counts for another model, with its default priors."""

    def made(rank: int, seed: int) -> Case | None:
        case = make(rank, seed)
        return None if case is None else replace(case, model=model)

    return made


DRAWS = {"gamma_poisson": 500, "poisson": 250, "dirichlet_poisson": 250, "dirichlet_gamma": 250}  # on real counts
REAL: dict[str, Maker] = {"pcawg_breast_sbs96": mutations, "pbmc_facs": cells}
# Rank, kept draws in each of 4 Gibbs chains (each of 2 NUTS chains keeps twice as many), and the counts.
CASES: dict[str, tuple[int, int, Maker]] = {
    **{f"simulated_{model}": (3, 500, lambda rank, seed, model=model: simulated(model, rank, seed))
       for model in SIMULATED},
    **{f"{name}_{model}".removesuffix("_gamma_poisson"): (3, DRAWS[model], under(make, model))
       for name, make in REAL.items() for model in SIMULATED},
    "pcawg_breast_sbs96_all_counts": (4, 500, lambda rank, seed: mutations(rank, seed, samples=40, total=None)),
}  # fmt: skip


def fit_all(case: Case, draws: int, seed: int) -> dict[str, bayesnmf.Fit]:
    """Fit by every method; the chains start from draws of the same VI fit."""
    options: dict[str, Any] = {
        "map": MAP(priors=case.priors),
        "vi": VI(priors=case.priors, tol=1e-9),
        "svi": SVI(priors=case.priors),
        "gibbs": Gibbs(priors=case.priors, chains=4, warmup=1000, draws=draws, thin=10),
        "nuts": NUTS(priors=case.priors, chains=2, warmup=500, draws=2 * draws),
    }
    fits = {}
    for method, chosen in options.items():
        fits[method] = bayesnmf.fit(case.counts, case.model, case.rank, method, seed=seed, options=chosen)
        print(f"  {method}: {fits[method].seconds:.1f} s", flush=True)
    return fits


def write(case: Case, name: str, fits: dict[str, bayesnmf.Fit], out: Path, seed: int) -> str:
    """Write the numbers, the table and the figure of one case; return the table as text."""
    found = bayesnmf.posterior_agreement(fits, reference=FIRST, truth=case.truth, seed=seed)
    found.table.round(4).to_csv(out / f"{name}.csv")
    figure = plots.posterior_agreement(fits, reference=FIRST, seed=seed)[0, 0].figure
    figure.savefig(out / f"{name}.png", dpi=75)
    plt.close(figure)
    total = f"{case.counts.total:,.0f} counts in all"
    head = f"{case.model}, K = {case.rank}: {case.description}; {total}. {priors_of(fits[FIRST])}."
    section = (
        f"## {name}\n\n{head} {lengths_of(fits, seed)}\n\n```\n{found}\n```\n\n![posteriors of {name}]({name}.png)\n"
    )
    (out / f"{name}.md").write_text(section, encoding="utf-8")
    return section


def lengths_of(fits: dict[str, bayesnmf.Fit], seed: int) -> str:
    """Return the lengths of the chains, and the seed, in one line."""
    lengths = []
    for name in ("gibbs", "nuts"):
        chains, draws = fits[name].trace.shape
        thin = getattr(fits[name].options, "thin", 1)
        lengths.append(f"{name} {chains} × {draws:,}" + (f", {thin} sweeps for one" if thin > 1 else ""))
    return f"Chains × draws: {'; '.join(lengths)}. Seed {seed}."


def report(out: Path) -> str:
    """Return README.md: the tables of all cases that have been run."""
    sections = [out / f"{name}.md" for name in CASES]
    return "\n".join([INTRODUCTION, *(path.read_text(encoding="utf-8") for path in sections if path.exists())])


def priors_of(fit: bayesnmf.Fit) -> str:
    """Return the priors in one line."""
    sides = []
    for side in ("loadings", "components"):
        prior = getattr(fit.priors, side)
        values = ", ".join(f"{name} {float(np.ravel(value)[0]):.3g}" for name, value in vars(prior).items())
        sides.append(f"{side} {type(prior).__name__}({values})")
    return "Priors: " + ", ".join(sides)


FIRST = "gibbs"
INTRODUCTION = """# Posteriors by five methods

Written by `python benchmarks/agreement.py`; every number below is from its runs. Each table compares the
posteriors of one model, fitted to the same counts with the same priors by five methods, with those of Gibbs sampling,
entry by entry, after matching components:

- *loadings* as expected counts of a sample from a component, *components* as shares, *expected counts* (the product,
  which is invariant to relabelling), each at up to 2,000 entries;
- *means*: their correlation; their root mean square difference in posterior sds, and the difference expected from Monte
  Carlo error alone (only roughly, as entries are correlated);
- *sd ratio*: median, and 5 and 95 % quantiles over the entries. Posteriors of mean-field VI and SVI are too narrow, so
  their intervals contain less than 90 % of the Gibbs posterior (*mass*), and less than 90 % of the true values
  (*truth*), if these are known;
- *max R-hat, min ESS* over the entries: if chains have not mixed, the table is no comparison, and says so.

Gibbs and NUTS use two separate implementations of the model. Their chains start from draws of one VI fit, so the tables
compare the posterior around one mode. The real counts are fitted by all four models with their default priors, which
are flat on the loadings under poisson (names without a model refer to gamma_poisson). They are thinned binomially,
which leaves Poisson counts Poisson, with the same components, because chains do not mix on all counts in the available
time: the last table, with all counts of some cancers, shows this.
"""


def main() -> None:
    """Run the cases and write their results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", choices=("all", *CASES), default="all", help="one case, or all of them")
    parser.add_argument("--rank", type=int, help="number of components, by default 3 (4 for the last)")
    parser.add_argument("--draws", type=int, help="in each of 4 Gibbs chains; each of 2 NUTS chains has twice as many")
    parser.add_argument("--table", action="store_true", help="run nothing; write README.md from existing tables")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "agreement", help="folder of results")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore", bayesnmf.ConvergenceWarning)  # every table reports R-hat and ESS
    clock = Clock()
    asked = [] if arguments.table else list(CASES) if arguments.data == "all" else [arguments.data]
    for name in asked:
        rank, draws, make = CASES[name]
        case = make(arguments.rank or rank, arguments.seed)
        if case is None:
            continue
        print(name, flush=True)
        fits = fit_all(case, arguments.draws or draws, arguments.seed)
        print(write(case, name, fits, arguments.out, arguments.seed), flush=True)
    print(f"{clock():.0f} s in all")
    (arguments.out / "README.md").write_text(report(arguments.out), encoding="utf-8")


if __name__ == "__main__":
    main()
