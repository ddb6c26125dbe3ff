"""How far do Gibbs, NUTS, VI and SVI agree on the posterior? On simulated counts of each model, and on real counts.

``python benchmarks/agreement.py`` runs all cases and writes to ``benchmarks/agreement``, of each, its numbers (CSV),
its table (NAME.md) and a figure, and README.md, which is all NAME.md in one. ``--data NAME`` runs one case alone;
``--table`` runs none and writes README.md from those there are. ``--data pbmc_facs --rank 4 --draws 1000 --out
results/agreement`` is with other settings. Real counts that are not there are left out.
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
from bayesnmf.data.splitting import thin

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
    """Counts, what they are in words, the model and priors they are fitted with, and the truth if there is one."""

    counts: Counts
    said: str
    model: str
    priors: Priors
    rank: int
    truth: Simulation | None = None


def simulated(model: str, rank: int, seed: int) -> Case:
    """Draw counts from a model and fit the same model with the same priors."""
    totals = TOTAL if model == "dirichlet_poisson" else None
    drawn = bayesnmf.simulate(model, SIZE, rank, priors=SIMULATED[model], totals=totals, seed=seed)
    said = f"drawn from the model itself, {SIZE[0]} × {SIZE[1]}, about {TOTAL} counts a row"
    return Case(drawn.counts, said, model, drawn.priors, rank, drawn)


def mutations(rank: int, seed: int, samples: int = 60, total: float | None = 100) -> Case | None:
    """Some of the 192 breast cancers, their mutations thinned binomially to a mean number."""
    counts = read("pcawg_breast_sbs96")
    if counts is None:
        return None
    rng = np.random.default_rng(seed)
    counts = counts.rows(np.sort(rng.choice(counts.shape[0], samples, replace=False)))
    return real(counts, f"{samples} of 192 breast cancers × 96 mutation types", total, rank, rng)


def cells(rank: int, seed: int, genes: int = 100, each: int = 40, total: float | None = 150) -> Case | None:
    """Some cells of three sorted populations, the genes most expressed in all 3,774, thinned to a mean number."""
    counts = read("pbmc_facs")
    if counts is None:
        return None
    rng = np.random.default_rng(seed)
    populations = np.array([str(name).split("-", 2)[2] for name in counts.row_names])
    rows = [rng.choice(np.flatnonzero(populations == name), each, replace=False) for name in POPULATIONS]
    top = np.sort(np.argsort(-counts.feature_totals, kind="stable")[:genes])
    counts = counts.rows(np.sort(np.concatenate(rows)))
    counts = bayesnmf.data.conversion.as_counts(counts.matrix[:, top])
    said = f"{each} each of {', '.join(POPULATIONS)} × the {genes} most expressed genes"
    return real(counts, said, total, rank, rng)


POPULATIONS = ("b_cells", "cd14_monocytes", "cd56_nk")


def real(counts: Counts, said: str, total: float | None, rank: int, rng: np.random.Generator) -> Case:
    """Thin to a mean row total, which leaves Poisson counts Poisson; the model's default priors."""
    mean = counts.total / counts.shape[0]
    if total is not None:
        counts, _ = thin(counts, total / mean, rng)
        said += f", thinned from {mean:,.0f} to {counts.total / counts.shape[0]:,.0f} counts a row"
    else:
        said += f", all counts, {mean:,.0f} a row"
    return Case(counts, said, "gamma_poisson", Priors(), rank)


def read(name: str) -> Counts | None:
    """Read a real count matrix, or say that it is not there."""
    path = Path(os.environ.get("BAYESNMF_DATA") or ROOT.parent / "shared" / "data") / f"{name}.npz"
    if not path.exists():
        print(f"{name} is not there: set BAYESNMF_DATA to the folder that holds it; left out")
        return None
    return bayesnmf.read_counts(path)


def under(make: Maker, model: str) -> Maker:
    """Return the maker of the same real counts under another model, with its default priors."""

    def made(rank: int, seed: int) -> Case | None:
        case = make(rank, seed)
        return None if case is None else replace(case, model=model)

    return made


DRAWS = {"gamma_poisson": 500, "poisson": 250, "dirichlet_poisson": 250, "dirichlet_gamma": 250}  # on real counts
REAL: dict[str, Maker] = {"pcawg_breast_sbs96": mutations, "pbmc_facs": cells}
# Rank, kept draws of each of 4 Gibbs chains (each of 2 NUTS chains keeps twice as many), and the counts.
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
    """Write the numbers, the table and the figure of one case; return the table in words."""
    found = bayesnmf.posterior_agreement(fits, reference=FIRST, truth=case.truth, seed=seed)
    found.table.round(4).to_csv(out / f"{name}.csv")
    figure = plots.posterior_agreement(fits, reference=FIRST, seed=seed)[0, 0].figure
    figure.savefig(out / f"{name}.png", dpi=75)
    plt.close(figure)
    total = f"{case.counts.total:,.0f} counts in all"
    head = f"{case.model}, K = {case.rank}: {case.said}; {total}. {priors_of(fits[FIRST])}."
    section = (
        f"## {name}\n\n{head} {lengths_of(fits, seed)}\n\n```\n{found}\n```\n\n![posteriors of {name}]({name}.png)\n"
    )
    (out / f"{name}.md").write_text(section, encoding="utf-8")
    return section


def lengths_of(fits: dict[str, bayesnmf.Fit], seed: int) -> str:
    """Return the lengths of the chains, and the seed, in one line."""
    said = []
    for name in ("gibbs", "nuts"):
        chains, draws = fits[name].trace.shape
        thin = getattr(fits[name].options, "thin", 1)
        said.append(f"{name} {chains} × {draws:,}" + (f", {thin} sweeps for one" if thin > 1 else ""))
    return f"Chains × draws: {'; '.join(said)}. Seed {seed}."


def report(out: Path) -> str:
    """Return the whole README.md: what all cases that have been run wrote."""
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

Written by `python benchmarks/agreement.py`; every number below is from its runs. Each table holds the posteriors of
one model, fitted to the same counts with the same priors by five methods, against those of Gibbs sampling, entry by
entry, components matched:

- *loadings* as expected counts of a sample from a component, *components* as shares, *expected counts* (the product,
  which no relabelling changes), each at up to 2,000 entries;
- *means*: their correlation; the root mean square difference in posterior sds, and what Monte Carlo error alone would
  make of it (entries hang together, so expect that number only roughly);
- *sd ratio*: median, and the 5 and 95 % quantiles over the entries. Mean-field VI and SVI are too sure of themselves;
  so their intervals hold less than 90 % of the Gibbs posterior (*mass*), and less than 90 % of the true values
  (*truth*), where these are known;
- *max R-hat, min ESS* over the entries: a table whose chains have not mixed compares nothing, and says so.

Gibbs and NUTS rest on two separate statements of the model. Their chains start from draws of one VI fit: what is
compared is the posterior around one mode. The real counts are under all four models, with their default priors, which
are flat on the loadings under poisson (the names without a model are of gamma_poisson). They are thinned binomially,
which leaves Poisson counts Poisson, with the same components, because the chains do not mix on all of them in the time
given: the last table is of all counts of some cancers, and says so.
"""


def main() -> None:
    """Run the cases and write what they show."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", choices=("all", *CASES), default="all", help="one case, or all of them")
    parser.add_argument("--rank", type=int, help="number of components, by default 3 (4 for the last)")
    parser.add_argument("--draws", type=int, help="of each of 4 Gibbs chains; of each of 2 NUTS chains twice as many")
    parser.add_argument("--table", action="store_true", help="run nothing, write README.md from what there is")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "agreement", help="folder of results")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore", bayesnmf.ConvergenceWarning)  # told by R-hat and ESS in every table
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
