"""How much of the posterior, and of the true values, do 90 % intervals contain?

    python -m benchmarks.intervals [--parts mass short coverage] [--cases NAME …] [--sets 200] [--out FOLDER] [--table]

mass: whole real matrices with all counts. A long run of Gibbs sampling is the reference, with its components matched to
those of a fit by vi. For the mean field, linear response and short runs of Gibbs sampling from the fit: the share of
the reference draws inside each 90 % interval, averaged over the entries.
short: what intervals of a fit by vi are read from (`Fit.with_intervals`), on real matrices, with the default priors of
vi (shapes of 0.3) and with shapes of 1. The share of the draws of a longer chain from the same fit (300 + 600 sweeps)
inside each 90 % interval.
coverage: counts simulated with parameters from the priors. The share of the true values inside the 90 % intervals,
after matching components to the true ones, with a standard error over the data sets.
Finished rows are in FOLDER as CSV files, and a run that was stopped goes on. The tables are printed, and written to
benchmarks/intervals; --table does only this.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import bayesnmf
from bayesnmf import VI, Dirichlet, Gamma, Gibbs, HierarchicalGamma, Priors, ScaledDirichlet
from bayesnmf.assessment.linear_response import SHAPES
from bayesnmf.data.counts import Counts
from bayesnmf.inference.alignment import match_components
from bayesnmf.priors.specification import MODELS, on_simplex
from bayesnmf.results.intervals import for_intervals
from benchmarks.data import ROOT, read

Array = NDArray[Any]
TAILS = np.array([0.05, 0.95])
SIDES = ("loadings", "components", "rates")
FOLDER = Path(__file__).parent / "intervals"
MOST, CHAINED = 45, 8  # rows and features whose rates are examined; simulated sets with chains


class Interval(NamedTuple):
    """Means, standard deviations and ends of the 90 % intervals of some entries."""

    mean: Array
    sd: Array
    ends: Array


Intervals = dict[str, Interval]


# --- intervals --------------------------------------------------------------------------------------------


def chosen(counts: Counts) -> tuple[Array, Array]:
    """Return evenly spaced positions of rows and features, among those with counts."""
    places = (np.flatnonzero(totals) for totals in (counts.row_totals, counts.feature_totals))
    one, two = (each[np.unique(np.linspace(0, len(each) - 1, MOST).astype(int))] for each in places)
    return one, two


def closed(response: bayesnmf.LinearResponse, at: tuple[Array, Array]) -> tuple[Intervals, Intervals]:
    """Return the intervals of the mean field, and those of linear response, with the same shapes."""
    plain, wide = Intervals(), Intervals()
    fit = response.fit
    for side in ("loadings", "components"):
        found, mean = response.spread(side), np.asarray(getattr(fit, side), float)
        prior = getattr(fit.priors, side)
        share = on_simplex(prior) if side == "components" else prior.support != "positive"
        shape = SHAPES["share" if share else "positive"]
        for where, sd in ((plain, found.mean_field_sd), (wide, found.sd)):
            where[side] = Interval(mean, sd, shape(mean, sd**2, TAILS[:, None, None]))
    table = response.rates(fit.row_names[at[0]], fit.feature_names[at[1]])
    mean = table["mean"].to_numpy()
    for where, sd in ((plain, table["mean_field_sd"].to_numpy()), (wide, table["sd"].to_numpy())):
        where["rates"] = Interval(mean, sd, SHAPES["positive"](mean, sd**2, TAILS[:, None]))
    return plain, wide


def drawn(fit: bayesnmf.Fit, at: tuple[Array, Array], components: Array) -> dict[str, Array]:
    """Return draws (draws, …) of each side and of the rates, in the order of some components."""
    order = match_components(fit.components, components)
    posterior: Any = fit.posterior
    theta, beta = posterior.loadings[..., order], posterior.components[..., order, :]
    times = fit.counts.row_totals[at[0]] if MODELS[fit.model].given_totals else 1.0
    if posterior.scale is not None:
        times = posterior.scale[..., at[0]]
    rates = (theta[..., at[0], :] * np.asarray(times)[..., None]) @ beta[..., at[1]]
    return {name: each.reshape(-1, *each.shape[2:]) for name, each in zip(SIDES, (theta, beta, rates), strict=True)}


def sampled(draws: dict[str, Array]) -> Intervals:
    """Return the intervals of draws."""
    return {
        side: Interval(each.mean(axis=0), each.std(axis=0), np.quantile(each, TAILS, axis=0))
        for side, each in ((side, each.reshape(len(each), -1)) for side, each in draws.items())
    }


def inside(values: Array, interval: Interval) -> float:
    """Return the share of values (draws, …) inside their intervals; without entries that have no interval."""
    low, high = interval.ends.reshape(2, -1)
    known = np.isfinite(low) & np.isfinite(high)
    flat = values.reshape(len(values), -1)[:, known]
    return float(((low[known] <= flat) & (flat <= high[known])).mean()) if known.any() else np.nan


def timed[T](work: Callable[[], T]) -> tuple[T, float]:
    """Return a result and its CPU seconds."""
    begun = time.process_time()
    return work(), time.process_time() - begun


def chains(start: bayesnmf.Fit, seed: int, **settings: Any) -> bayesnmf.Fit:
    """Return a fit by Gibbs sampling from another fit, with its priors."""
    options = Gibbs(priors=start.priors, start=start, threads=1, **settings)
    return bayesnmf.fit(start.counts, start.model, start.rank, "gibbs", seed=seed, options=options)


# --- mass -------------------------------------------------------------------------------------------------


class Whole(NamedTuple):
    """A real matrix, or some of its rows, and the reference run on it: four chains, after 1,000 sweeps."""

    rank: int
    draws: int
    thin: int
    rows: int | None = None
    algorithm: str = "marginal"


REAL = {
    "pcawg_breast_sbs96": Whole(5, 1000, 5),
    "digits": Whole(8, 500, 6),
    "nips": Whole(5, 100, 15, 200, "allocations"),
}
SHORT = {f"Gibbs, {each} × (50 + 250)": {"chains": each, "warmup": 50, "draws": 250} for each in (1, 4)}


def mass(name: str) -> Iterator[dict[str, Any]]:
    """Yield a row for each method, and one for the reference."""
    case = REAL[name]
    counts = read(name, case.rank, 0)
    if case.rows is not None:
        counts = counts.rows(np.sort(np.random.default_rng(0).choice(counts.shape[0], case.rows, replace=False)))
        counts = bayesnmf.data.conversion.as_counts(counts.matrix[:, np.flatnonzero(counts.feature_totals)])
    fit, of_fit = timed(lambda: bayesnmf.fit(counts, "gamma_poisson", case.rank, "vi", seed=0, options=VI(threads=1)))
    at = chosen(counts)

    def responded() -> tuple[bayesnmf.LinearResponse, Intervals, Intervals]:
        response = bayesnmf.linear_response(fit, threads=1)
        return response, *closed(response, at)

    (response, plain, wide), of_response = timed(responded)
    print(fit, response, sep="\n", flush=True)
    ways: dict[str, Any] = {"mean field": (plain, of_fit, np.nan), "linear response": (wide, of_response, np.nan)}
    for label, settings in SHORT.items():
        short, seconds = timed(lambda: chains(fit, 1, algorithm=case.algorithm, **settings))  # noqa: B023
        ways[label] = sampled(drawn(short, at, fit.components)), seconds, short.diagnostics["max_r_hat"]
    long, seconds = timed(
        lambda: chains(fit, 2, algorithm=case.algorithm, warmup=1000, draws=case.draws, thin=case.thin)
    )
    print(long, flush=True)
    reference = sampled(draws := drawn(long, at, fit.components))
    ways["reference"] = reference, seconds, long.diagnostics["max_r_hat"]
    for label, (intervals, seconds, r_hat) in ways.items():
        about = {"case": name, "seed": 0, "method": label, "seconds": seconds, "r_hat": r_hat}
        yield about | beside(intervals, reference, draws)


def beside(intervals: Intervals, reference: Intervals, draws: dict[str, Array]) -> dict[str, float]:
    """Return the mass in the intervals, and the medians of distances and of ratios of standard deviations."""
    found = {}
    for side, interval in intervals.items():
        own = reference[side]
        found[f"{side} mass"] = inside(draws[side], interval)
        found[f"{side} shift"] = float(np.nanmedian(np.abs(interval.mean.ravel() - own.mean) / own.sd))
        found[f"{side} ratio"] = float(np.nanmedian(interval.sd.ravel() / own.sd))
    return found


# --- short ------------------------------------------------------------------------------------------------


class Around(NamedTuple):
    """A real matrix, or some of its rows."""

    rank: int
    rows: int | None = None
    response: bool = True


AROUND = {
    "pcawg_breast_sbs96": Around(5),
    "pbmc_small": Around(5),
    "digits": Around(6, 300),
    "pbmc_facs": Around(6, response=False),
}


def short(name: str) -> Iterator[dict[str, Any]]:
    """Yield a row for each kind of intervals and each choice of priors."""
    case = AROUND[name]
    counts = read(name, case.rank, 0)
    if case.rows is not None:
        counts = counts.rows(np.sort(np.random.default_rng(0).choice(counts.shape[0], case.rows, replace=False)))
        counts = bayesnmf.data.conversion.as_counts(counts.matrix[:, np.flatnonzero(counts.feature_totals)])
    for shape in ("0.3 (default)", "1"):
        rate = case.rank / (counts.total / counts.shape[0])
        priors = Priors() if shape != "1" else Priors(Gamma(1.0, rate), Dirichlet(1.0))
        options = VI(priors=priors, threads=1)
        fit, of_fit = timed(lambda: bayesnmf.fit(counts, "gamma_poisson", case.rank, seed=0, options=options))  # noqa: B023
        longer, of_longer = timed(
            lambda: fit.with_intervals("sampled", warmup=300, draws=600, seed=1, threads=1)  # noqa: B023
        )
        kinds = ["mean_field", "sampled", *(["response"] if case.response else [])]
        found = {kind: timed(lambda: fit.with_intervals(kind, threads=1)) for kind in kinds}  # noqa: B023
        found["longer"] = longer, of_longer
        for kind, (read_from, seconds) in found.items():
            yield {"case": name, "seed": 0, "shapes": shape, "method": kind, "vi s": of_fit, "s": seconds} | held(
                for_intervals(read_from), longer.intervals.draws
            )


def held(fit: Any, longer: Any) -> dict[str, float]:
    """Return the size and R-hat of what intervals are read from, and what they hold of the draws of a longer chain."""
    drawn: Any = fit.intervals
    found = {} if drawn is None else {"R-hat": drawn.r_hat, "above 1.2": drawn.share_above}
    size = 0 if drawn is None else drawn.draws.loadings.nbytes + drawn.draws.components.nbytes
    found["MB"] = size / 1e6
    for side in SIDES[:2]:
        entries = tuple(np.indices(getattr(fit, side).shape))
        values = getattr(longer, side)[0]
        low, high = fit.estimate.quantiles(side, entries, TAILS)
        found[f"{side} mass"] = float(np.mean((low <= values) & (values <= high)))
    return found


# --- coverage ---------------------------------------------------------------------------------------------


class Drawn(NamedTuple):
    """What to simulate: a model, priors by their mean total of a row, size, rank and number of sets; and two chains."""

    model: str
    shape: float
    size: tuple[int, int]
    rank: int
    total: float
    sets: int
    gamma: bool = False
    draws: int = 500

    @property
    def priors(self) -> Priors:
        """Proper priors under which a row has the mean total."""
        a, each, m = self.shape, self.total / self.rank, self.size[1]
        if self.model == "hierarchical_poisson":
            loadings = HierarchicalGamma(a, Gamma(5.0, 4 * each / (a * m)), "row")
            return Priors(loadings, HierarchicalGamma(a, Gamma(5.0, 4 * a), "feature"))
        if self.model == "dirichlet_poisson":
            return Priors(Dirichlet(a), Dirichlet(a))
        if self.model == "dirichlet_gamma":
            return Priors(ScaledDirichlet(a, 2.0, 2 / self.total), Dirichlet(a))
        if self.gamma:
            return Priors(Gamma(a, a * m / each), Gamma(a, a))
        return Priors(Gamma(a, a / each), Dirichlet(a))


FAMILIES = {
    "gamma_poisson, Dirichlet": ("gamma_poisson", False),
    "gamma_poisson, Gamma": ("gamma_poisson", True),
    "dirichlet_poisson": ("dirichlet_poisson", False),
    "dirichlet_gamma": ("dirichlet_gamma", False),
    "hierarchical_poisson": ("hierarchical_poisson", False),
}
SIZES = {
    "6 × 5, 60": (1.0, (6, 5), 2, 60, 200),
    "20 × 15, 100": (1.0, (20, 15), 3, 100, 60),
    "20 × 15, 1000": (1.0, (20, 15), 3, 1000, 60),
    "20 × 15, 100, sparse": (0.3, (20, 15), 3, 100, 60),
}
SIMULATED = {
    f"{family}; {size}": Drawn(model, *about, gamma=gamma)
    for family, (model, gamma) in FAMILIES.items()
    for size, about in SIZES.items()
}
LARGE = Drawn("gamma_poisson", 1.0, (192, 96), 5, 7000, 4, draws=2000)
SIMULATED["gamma_poisson, Dirichlet; 192 × 96, 7000"] = LARGE


def cover(name: str, seed: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each method on one simulated data set."""
    case = SIMULATED[name]
    priors = case.priors
    totals = case.total if case.model == "dirichlet_poisson" else None
    truth = bayesnmf.simulate(case.model, case.size, case.rank, priors=priors, totals=totals, seed=seed)
    options = VI(priors=priors, start="svd", threads=1)
    fit = bayesnmf.fit(truth.counts, case.model, case.rank, "vi", seed=0, options=options)
    at = chosen(truth.counts)
    plain, wide = closed(bayesnmf.linear_response(fit, threads=1), at)
    order = match_components(truth.components, fit.components)
    true = {"loadings": truth.loadings[:, order], "components": truth.components[order]}
    true["rates"] = truth.means[np.ix_(*at)]
    ways = {"mean field": plain, "linear response": wide}
    if seed < CHAINED:
        run = chains(fit, seed, algorithm="marginal", chains=2, warmup=case.draws // 4, draws=case.draws)
        ways["Gibbs"] = sampled(drawn(run, at, fit.components))
    for label, intervals in ways.items():
        shares = {side: inside(true[side][None], interval) for side, interval in intervals.items()}
        missing = np.mean([np.isnan(each.ends).mean() for each in intervals.values()])
        yield {"case": name, "seed": seed, "method": label, **shares, "missing": missing}


RUNS = {"mass": (mass, REAL), "short": (short, AROUND), "coverage": (cover, SIMULATED)}

# --- tables -----------------------------------------------------------------------------------------------


def summary(path: Path) -> pd.DataFrame:
    """Return the rows of mass, or the means and standard errors of coverage over the data sets."""
    rows = pd.read_csv(path)
    if path.stem == "mass":
        return rows.drop(columns="seed").set_index(["case", "method"])
    if path.stem == "short":
        return rows.drop(columns="seed").set_index(["case", "shapes", "method"])
    rows["case"] = pd.Categorical(rows["case"], list(SIMULATED))
    by = rows.drop(columns="seed").groupby(["case", "method"], sort=True, observed=True)
    found = by.mean().join(by[list(SIDES)].sem().add_suffix(" error"))
    found.insert(0, "sets", by.size())
    return found


def main() -> None:
    """Run the parts, data set by data set, and print their tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--parts", nargs="+", default=[*RUNS], choices=[*RUNS])
    parser.add_argument("--cases", nargs="+", default=[""], help="beginnings of the names of cases")
    parser.add_argument("--sets", type=int, default=200, help="most simulated sets of a case")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "intervals")
    parser.add_argument("--table", action="store_true", help="run nothing; print the tables")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore", bayesnmf.ConvergenceWarning)  # the tables show R-hat and missing intervals
    for part in given.parts:
        path = given.out / f"{part}.csv"
        before = set(pd.read_csv(path)[["case", "seed"]].itertuples(index=False, name=None)) if path.exists() else set()
        everything = [(name, seed) for seed in range(given.sets) for name in RUNS[part][1]]
        for name, seed in [] if given.table else everything:
            wanted = name.startswith(tuple(given.cases)) and seed < (SIMULATED[name].sets if part == "coverage" else 1)
            if wanted and (name, seed) not in before:
                run: Any = RUNS[part][0]
                rows = pd.DataFrame(list(run(name, seed) if part == "coverage" else run(name)))
                rows.to_csv(path, mode="a", header=not path.exists(), index=False)
        summary(path).round(4).to_csv(FOLDER / path.name)
        print(summary(path).round(3).to_string(), flush=True)


if __name__ == "__main__":
    main()
