"""How often do 90 % intervals contain true values, where counts vary more than Poisson counts?

    python -m benchmarks.noise [--sizes mutations sparse batches] [--sets 10] [--noises …]
                               [--fitted poisson quasi nb1 nb2] [--out FOLDER] [--table]

Counts are simulated with loadings and components from the priors of the fit, and noise beside that of Poisson counts:
"rate 0.3" is Gamma noise of 30 % on the rate of every entry, "linear 4" noise with variance (1 + 4) · mean. Sets of the
size "batches" are those of "mutations" in four batches, whose features have factors with standard deviation 0.22, and
are fitted with `batch`, by a chain and the mean field, with components unknown. Each set is
fitted by vi with each noise, with components unknown and, but for negative binomial noise, known. The share of true
loadings, components and expected counts inside the intervals of a chain from the fit (250 draws, the default of
`Fit.with_intervals("sampled")`), of linear response and of the mean field, with a standard error over the sets.
Finished rows are in FOLDER/noise.csv, and a run that was stopped goes on. The table is printed, and written to
benchmarks/noise.md; --table does only this.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import bayesnmf
from bayesnmf import VI, Dirichlet, Gamma, Priors
from bayesnmf.inference.alignment import match_components

Array = NDArray[Any]
# n, m, K, counts a row, sets
SIZES = {"mutations": (192, 96, 6, 5000, 3), "sparse": (2000, 2000, 8, 200, 1), "batches": (192, 96, 6, 5000, 2)}
BATCHES, SHAPE = 4, 20.0
NOISES = ("rate 0", "rate 0.1", "rate 0.2", "rate 0.3", "rate 0.4", "rate 0.5", "linear 1", "linear 4")
FITTED = ("poisson", "quasi", "nb1", "nb2")
HERE, TAILS, RATES = Path(__file__).parent, (0.05, 0.95), 2000
SHAPES = {"mutations": (1.0, 0.5), "sparse": (0.5, 0.3), "batches": (1.0, 0.5)}  # of loadings and components


class Truth(NamedTuple):
    """True loadings, components, and factors (B, m) of the batches, which rows have in turn; 1 of a single one."""

    loadings: Array
    components: Array
    factors: Array

    @property
    def codes(self) -> Array:
        """Batch of each row."""
        return np.arange(len(self.loadings)) % len(self.factors)


def simulated(size: str, noise: str, rng: np.random.Generator) -> tuple[Array, Truth, Priors]:
    """Return counts, the truth, and the priors."""
    (n, m, rank, total, _), (shape, concentration) = SIZES[size], SHAPES[size]
    rate = shape * rank / total
    loadings = rng.gamma(shape, 1 / rate, (n, rank))
    components = rng.dirichlet(np.full(m, concentration), rank)
    factors = rng.gamma(SHAPE, 1 / SHAPE, (BATCHES, m)) if size == "batches" else np.ones((1, m))
    true = Truth(loadings, components, factors)
    means, (kind, number) = factors[true.codes] * (loadings @ components), noise.split()
    level = float(number)
    if kind == "rate" and level:
        means = means * rng.gamma(1 / level**2, level**2, means.shape)
    elif level:
        means = rng.gamma(means / level, level)
    return rng.poisson(means), true, Priors(Gamma(shape, rate), Dirichlet(concentration))


def shares_inside(fit: bayesnmf.Fit, truth: Truth, rng: np.random.Generator) -> dict[str, float]:
    """Return the share of true values inside 90 % intervals of the draws of a fit, matched to the truth."""
    loadings, components, factors = truth
    order = match_components(fit.components, components)
    draws = fit.intervals.draws if fit.intervals else fit.sample_posterior(250, chains=1)
    theta, beta = draws.loadings[0][:, :, order], draws.components[0][:, order]
    rows, features = rng.integers(len(loadings), size=RATES), rng.integers(components.shape[1], size=RATES)
    rates = np.einsum("drk,dkr->dr", theta[:, rows], beta[:, :, features])
    places, drawn = (truth.codes[rows], features), draws.factors
    of_rates = 1.0 if drawn is None else drawn[0][:, *places]
    true_rates = factors[places] * np.einsum("rk,kr->r", loadings[rows], components[:, features])
    true = {"loadings": (theta, loadings), "components": (beta, components), "rates": (of_rates * rates, true_rates)}
    true |= {} if drawn is None else {"factors": (drawn[0], factors)}
    found = {}
    for name, (drawn, value) in true.items():
        low, high = np.quantile(drawn, TAILS, axis=0)
        found[name] = float(np.mean((low <= value) & (value <= high)))
    return found


def measured(size: str, noise: str, number: int, word: str) -> Iterator[dict[str, Any]]:
    """Fit one set with one noise, and yield a row for each kind of interval."""
    rng = np.random.default_rng([number, NOISES.index(noise), list(SIZES).index(size)])
    counts, true, priors = simulated(size, noise, rng)
    rank, batch = len(true.components), true.codes if len(true.factors) > 1 else None
    for known in (False, True) if word in ("poisson", "quasi") and batch is None else (False,):
        began = time.perf_counter()
        fit = bayesnmf.fit(
            counts, rank=rank, seed=0, noise=word, options=VI(priors=priors, intervals="mean_field"),
            fixed_components=true.components if known else None, batch=batch,
        )  # fmt: skip
        seconds = time.perf_counter() - began
        for kind in ("sampled", "response", "mean_field"):
            if kind == "response" and (size != "mutations" or known or word == "nb2"):
                continue
            began = time.perf_counter()
            made = fit.with_intervals(kind)
            about = {"size": size, "noise": noise, "set": number, "known": known, "fitted": word, "intervals": kind}
            inside = shares_inside(made, true, np.random.default_rng(0))
            if known:
                inside.pop("components")
            own: Any = fit.noise
            ratio = fit.dispersion().ratio if word == "poisson" else own.dispersion + (word != "nb2")
            took = seconds + time.perf_counter() - began
            yield {**about, **inside, "dispersion": ratio, "seconds": round(took, 2)}


def table(rows: pd.DataFrame) -> str:
    """Return the mean shares by case as Markdown."""
    shares = ["loadings", "components", "rates", "factors"]
    titles = "counts", "noise", "dispersion", "known", "fitted as", "intervals", *shares
    lines = [f"| {' | '.join(titles)} |", "|---|---|--:|---|---|---|--:|--:|--:|--:|"]
    cases = rows.groupby(["size", "noise", "known", "fitted", "intervals"], sort=False)
    for (size, noise, known, fitted, kind), part in cases:
        means, errors = (getattr(part.reindex(columns=shares), of)() for of in ("mean", "sem"))
        entries = ["" if np.isnan(mean) else f"{mean:.2f}" for mean in means]
        entries = [
            entry if np.isnan(error) else f"{entry} ± {error:.2f}" for entry, error in zip(entries, errors, strict=True)
        ]
        about = [size, noise, f"{part['dispersion'].mean():.2f}", "yes" if known else "no", fitted, kind]
        lines.append(f"| {' | '.join([*about, *entries])} |")
    return "\n".join(lines)


def main() -> None:
    """Run what is missing, and write the table."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    words.add_argument("--noises", nargs="+", default=list(NOISES), choices=list(NOISES))
    words.add_argument("--fitted", nargs="+", default=list(FITTED), choices=FITTED)
    words.add_argument("--sets", type=int)
    words.add_argument("--out", type=Path, default=HERE / "noise")
    words.add_argument("--table", action="store_true")
    given = words.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / "noise.csv"
    rows = pd.read_csv(path).to_dict("records") if path.exists() else []
    warnings.simplefilter("ignore")
    for size in () if given.table else given.sizes:
        for number in range(given.sets or SIZES[size][-1]):
            for noise, word in product(given.noises, given.fitted):
                case = {"size": size, "noise": noise, "set": number, "fitted": word}
                if any(all(row[key] == value for key, value in case.items()) for row in rows):
                    continue
                for row in measured(size, noise, number, word):
                    rows.append(row)
                    print(row, flush=True)
                pd.DataFrame(rows).to_csv(path, index=False)
    print(table(pd.DataFrame(rows)))


if __name__ == "__main__":
    main()
