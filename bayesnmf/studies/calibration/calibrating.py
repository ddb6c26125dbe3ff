"""Simulate, fit and rank, many times; the ranks, their uniformity, and what they show about the posteriors.

No quantity that is ranked changes when components are relabelled, since neither the likelihood nor exchangeable priors
identify their order. Quantities that depend on both data and parameters find faults that no function of the parameters
alone can find, such as a sampler that returns the prior.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import xlogy

from bayesnmf.cards import Card, Shown
from bayesnmf.checks import check_choice, check_count, check_fraction, check_instance
from bayesnmf.data.simulation import Simulation, simulate
from bayesnmf.fitting.checkpointing import kept_in
from bayesnmf.fitting.fit import fit
from bayesnmf.fitting.fitted import Fit
from bayesnmf.fitting.job import ProgressReport, check_combination, progress_context
from bayesnmf.fitting.many import uninterrupted
from bayesnmf.fitting.settings import describe_options, describe_value
from bayesnmf.inference.checkpoints.keeper import Keeper
from bayesnmf.inference.checkpoints.slots import NOWHERE, slot_of
from bayesnmf.inference.status import FitWarning
from bayesnmf.needs import needed_for
from bayesnmf.options import METHODS, NUTS, SMC, SVI, VI, Gibbs, Options
from bayesnmf.options.checkpoint import Checkpoint, as_checkpoint
from bayesnmf.options.checks import check_options
from bayesnmf.options.rules import Request
from bayesnmf.priors import Priors, ScaledProportions
from bayesnmf.priors.specification import MODELS
from bayesnmf.results.draws import is_resampled, runs_of_draws, share_effective
from bayesnmf.results.estimates import Draws, evenly_spaced
from bayesnmf.results.mixing import r_hat_and_ess
from bayesnmf.studies.calibration.checks import (
    check_calibrated_method,
    check_calibration_header,
    check_draws_of_components,
    check_enough_draws,
    check_suffix,
    check_without_covariates,
)
from bayesnmf.text import p_value
from bayesnmf.types import Array, MethodName, ModelName
from bayesnmf.writing import replacing

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr


@dataclass(frozen=True, eq=False)
class Points:
    """D parameter values, with the counts and priors of one simulation.

    Attributes
    ----------
    loadings : ndarray (D, n, K)
        Loadings; under dirichlet_poisson and dirichlet_gamma they are proportions.
    components : ndarray (D, K, m)
    scale : ndarray (D, n) or None
    counts : ndarray (n, m)
    priors : Priors
        Priors of the simulation.
    given_totals : bool
        Whether row totals are given.
    """

    loadings: Array
    components: Array
    scale: Array | None
    counts: Array
    priors: Priors
    given_totals: bool

    @cached_property
    def means(self) -> Array:
        """Expected counts (D, n, m)."""
        scale = self.counts.sum(axis=1) if self.given_totals else self.scale
        loadings = self.loadings if scale is None else self.loadings * scale[..., None]
        return loadings @ self.components

    @cached_property
    def shares(self) -> Array:
        """Return the share of each component in each row's expected total, (D, n, K)."""
        parts = self.loadings * self.components.sum(axis=-1)[:, None, :]
        return parts / parts.sum(axis=-1, keepdims=True)

    @cached_property
    def profiles(self) -> Array:
        """Components divided by their sums, (D, K, m)."""
        return self.components / self.components.sum(axis=-1, keepdims=True)


def true_point(simulation: Simulation) -> Points:
    """Return the true parameters of a simulation as one point."""
    scale = None if simulation.scale is None else simulation.scale[None]
    return _points(simulation.loadings[None], simulation.components[None], scale, simulation)


def draws_as_points(draws: Draws, simulation: Simulation, chosen: Array) -> Points:
    """Return the draws at the `chosen` positions as points; positions run through one chain after another."""
    parts = (draws.loadings, draws.components, draws.scale)
    flat: list[Any] = [None if part is None else part.reshape(-1, *part.shape[2:])[chosen] for part in parts]
    return _points(flat[0], flat[1], flat[2], simulation)


def _points(loadings: Array, components: Array, scale: Array | None, simulation: Simulation) -> Points:
    given_totals = MODELS[simulation.model].given_totals
    return Points(loadings, components, scale, simulation.counts.matrix.toarray(), simulation.priors, given_totals)


def first_entry(at: Points) -> Array:
    """Return the expected count of the first row and first feature."""
    return at.means[:, 0, 0]


def last_entry(at: Points) -> Array:
    """Return the expected count of the last row and last feature."""
    return at.means[:, -1, -1]


def row_total(at: Points) -> Array:
    """Return the expected total of the first row; left out if row totals are given."""
    return at.means[:, 0].sum(axis=-1)


def largest_share(at: Points) -> Array:
    """Return the share of the largest component in the first row's expected total."""
    return at.shares[:, 0].max(axis=-1)


def loading_spread(at: Points) -> Array:
    """Return the sum of all squared shares: how far rows are from even mixtures."""
    return (at.shares**2).sum(axis=(-2, -1))


def component_spread(at: Points) -> Array:
    """Return the sum of all squared entries of normalised components: how far components are from even."""
    return (at.profiles**2).sum(axis=(-2, -1))


def log_likelihood(at: Points) -> Array:
    """Return the log-likelihood of the counts, up to a constant of the data, in nats."""
    return (xlogy(at.counts, at.means) - at.means).sum(axis=(-2, -1))


def log_joint(at: Points) -> Array:
    """Return the log-likelihood plus the log prior density of all parameters, in nats."""
    loadings: Any = at.priors.loadings
    components: Any = at.priors.components
    scaled = [None] * len(at.loadings) if at.scale is None else at.scale[..., None]
    prior = [
        loadings.log_density(value if scale is None else ScaledProportions(value, scale))
        + components.log_density(other)
        for value, scale, other in zip(at.loadings, scaled, at.components, strict=True)
    ]
    return log_likelihood(at) + np.array(prior)


_RANKED = first_entry, last_entry, row_total, largest_share, loading_spread, component_spread, log_likelihood, log_joint
QUANTITIES: dict[str, Callable[[Points], Array]] = {each.__name__: each for each in _RANKED}
"""All quantities by name; each takes `Points` and returns one number for each point, (D,)."""


def names_for(model: str, rank: int, priors: Priors) -> tuple[str, ...]:
    """Return the names of the quantities that vary, and differ from each other, under a model and priors.

    Left out are given totals; shares if K is 1; and the log joint if the prior density is constant, as with
    Dirichlet(1) on both sides: it would have the same ranks as the log-likelihood.
    """
    constant = {"row_total"} if MODELS[model].given_totals else set()
    if rank == 1:
        constant |= {"largest_share", "loading_spread"}
    if all(prior.support == "simplex" and prior.flat_in_shares for prior in vars(priors).values()):
        constant |= {"log_joint"}
    return tuple(name for name in QUANTITIES if name not in constant)


def evaluate(names: tuple[str, ...], at: Points) -> Array:
    """Return the quantities of every point, (D, quantities)."""
    return np.stack([QUANTITIES[name](at) for name in names], axis=1)


ALARM, CLEAR = 0.01, 3.0
TAIL = 0.1


@dataclass(frozen=True, eq=False, repr=False)
class Calibration(Shown):
    """Ranks of true values among posterior draws, over many simulations.

    Attributes
    ----------
    model, method : str
    size, rank : (n, m), int
        Size and rank of the simulated counts.
    quantities : tuple of str
        Names of the ranked quantities.
    ranks : ndarray of int (simulations, quantities)
        Number of draws below the truth, 0 … L.
    draws : int
        Number of draws, L.
    ess : ndarray (quantities,)
        Effective sample size of the L draws, median over the simulations; L for independent draws (vi, svi).
    priors, settings : str
        Priors of the simulations, and options of the fits, as text.
    seed : int
    seconds : float

    See Also
    --------
    calibrate : which makes it.
    plots.calibration : draws it.

    Examples
    --------
    >>> import bayesnmf
    >>> found = bayesnmf.calibrate("gamma_poisson", "vi", simulations=30)
    >>> found.ranks.shape[0]
    30
    """

    model: str
    method: str
    size: tuple[int, int]
    rank: int
    quantities: tuple[str, ...]
    ranks: Array
    draws: int
    ess: Array
    priors: str
    settings: str
    seed: int
    seconds: float

    @property
    def simulations(self) -> int:
        """Number of simulations."""
        return len(self.ranks)

    @property
    def pit(self) -> Array:
        """Ranks as numbers between 0 and 1, (rank + uniform) / (L + 1): (simulations, quantities)."""
        noise = np.random.default_rng([self.seed, self.simulations]).random(self.ranks.shape)
        return (self.ranks + noise) / (self.draws + 1)

    def p_values(self, method: str = "pot_c") -> dict[str, float]:
        """Return the p-values of ArviZ's test of uniformity, by quantity, as `az.plot_ecdf_pit` prints them.

        Small values are as rare as they should be, but those of "pot_c" never exceed 1/2: they need not look uniform.

        Parameters
        ----------
        method : {"pot_c", "prit_c", "piet_c"}
            Name of ArviZ's test.
        """
        check_choice(method, "method", ("pot_c", "prit_c", "piet_c"))
        with needed_for("Calibration.p_values"):
            from arviz_stats.base import array_stats

        found = array_stats.uniformity_test(self.pit.T, axis=-1, method=method)[0]
        return dict(zip(self.quantities, map(float, np.atleast_1d(found)), strict=True))

    @property
    def p_value(self) -> float:
        """One p-value for all quantities: the smallest, times their number (Bonferroni), at most 1."""
        return min(1.0, len(self.quantities) * min(self.p_values().values()))

    def coverage(self, probability: float) -> dict[str, float]:
        """Return the share of simulations whose true value lies in the central interval of this probability."""
        check_fraction(probability, "probability")
        inside = np.abs(2 * self.pit - 1) <= probability
        return dict(zip(self.quantities, map(float, inside.mean(axis=0)), strict=True))

    def table(self) -> pd.DataFrame:
        """Return a table with one row for each quantity: p-value, kind of error, coverage, ESS.

        Columns: `p`; `shift`, the mean of the PIT minus 1/2, which is positive if draws are too low; `outer`, the share
        of ranks in the outer tenths, 0.2 for a correct posterior and more for one that is too narrow; `50 %` and `90
        %`, the coverage of the central intervals; `ess`, that of the draws; `reading`, a description of the error if p
        is below 0.01.
        """
        import pandas as pd

        pit = self.pit
        columns = {
            "p": list(self.p_values().values()),
            "shift": pit.mean(axis=0) - 0.5,
            "outer": self._outer(),
            "50 %": list(self.coverage(0.5).values()),
            "90 %": list(self.coverage(0.9).values()),
            "ess": self.ess,
            "reading": self.readings(),
        }
        return pd.DataFrame(columns, index=pd.Index(self.quantities, name="quantity"))

    def _outer(self) -> Array:
        return (np.abs(2 * self.pit - 1) > 1 - 2 * TAIL).mean(axis=0)

    def readings(self) -> list[str]:
        """Return, for each quantity, what is wrong according to its ranks; an empty text if p is at least 0.01.

        A shift or a share of outer ranks is reported if it is three standard errors away from its value for uniform
        ranks.
        """
        root = np.sqrt(self.simulations)
        shifts = (self.pit.mean(axis=0) - 0.5) * root * np.sqrt(12)
        outers = (self._outer() - 2 * TAIL) * root / np.sqrt(2 * TAIL * (1 - 2 * TAIL))
        readings = []
        for p, shift, outer in zip(self.p_values().values(), shifts, outers, strict=True):
            words = []
            if p < ALARM:
                words += ["too low" if shift > 0 else "too high"] if abs(shift) > CLEAR else []
                words += ["too narrow" if outer > 0 else "too wide"] if abs(outer) > CLEAR else []
                words = words or ["not uniform"]
            readings.append(", ".join(words))
        return readings

    def to_datatree(self) -> xr.DataTree:
        """Convert to a `DataTree` with the PIT in group `prior_sbc`, for `az.plot_ecdf_pit(tree)`, and `ranks`."""
        with needed_for("Calibration.to_datatree"):
            import xarray as xr

        groups = {
            f"/{group}": xr.Dataset(
                {
                    name: (("chain", "draw"), values[None])
                    for name, values in zip(self.quantities, table.T, strict=True)
                },
                {"chain": [0], "draw": np.arange(self.simulations)},
                self._about(),
            )
            for group, table in (("prior_sbc", self.pit), ("ranks", self.ranks))
        }
        return xr.DataTree.from_dict(groups)

    def _about(self) -> dict[str, Any]:
        names = ("model", "method", "size", "rank", "draws", "priors", "settings", "seed", "seconds")
        return {name: getattr(self, name) for name in names} | {
            "size": list(self.size),
            "seconds": round(self.seconds, 1),
        }

    def save(self, path: str | Path) -> None:
        """Write the ranks to a CSV file, one line for each simulation, after one line of JSON with the settings."""
        target = check_suffix(path, ".csv")
        about = {**self._about(), "ess": [round(float(size), 1) for size in self.ess]}
        with replacing(target) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
            file.write(f"# {json.dumps(about)}\n{','.join(self.quantities)}\n")
            np.savetxt(file, self.ranks, fmt="%d", delimiter=",")

    @classmethod
    def load(cls, path: str | Path) -> Calibration:
        """Read a file written by `save`.

        Raises
        ------
        FileNotFoundError
            The file does not exist.
        ValueError
            The file is not a saved calibration.
        """
        source = check_suffix(path, ".csv")
        first, _, rest = source.read_text(encoding="utf-8").partition("\n")
        about = check_calibration_header(first, source)
        names, _, numbers = rest.partition("\n")
        about["size"], about["ess"] = tuple(about["size"]), np.array(about["ess"])
        ranks = np.loadtxt(StringIO(numbers), dtype=np.int64, delimiter=",", ndmin=2)
        return cls(quantities=tuple(names.split(",")), ranks=ranks, **about)

    def card(self) -> Card:
        """Return what is shown of it."""
        n, m = self.size
        title = (
            f"{self.model} by {self.method}: {self.simulations} simulations of {n} × {m}, rank {self.rank}, "
            f"{self.draws} draws"
        )
        table = self.table()
        rows: Any = table.itertuples(name=None)
        lines = [
            [name, p_value(p), *(f"{each:.3f}" for each in four), f"{ess:.0f}", said]
            for name, p, *four, ess, said in rows
        ]
        notes = [
            self.priors,
            f"{self.settings}; {self.seconds:.0f} s, seed {self.seed}",
            f"p of all quantities together {self.p_value:.3g}",
        ]
        return Card(title, ["quantity", *table], lines, notes, ["bayesnmf.plots.calibration(found)"])


TOTALS = 20
MOST_SIMULATIONS = 10**6


@dataclass(frozen=True, eq=False)
class CalibrationPlan:
    """Settings of the simulations and the fits, checked and with defaults filled in."""

    model: str
    method: str
    size: tuple[int, int]
    rank: int
    totals: Any
    draws: int
    options: Any
    priors: Priors


def calibrate(
    model: ModelName = "gamma_poisson",
    method: MethodName = "gibbs",
    *,
    size: tuple[int, int] = (6, 5),
    rank: int = 2,
    priors: Priors | None = None,
    totals: ArrayLike | None = None,
    simulations: int = 200,
    draws: int = 99,
    options: Options | None = None,
    seed: int = 0,
    checkpoint: str | Path | Checkpoint | None = None,
    progress: ProgressReport | bool | None = None,
) -> Calibration:
    """Calibrate a method by simulation: rank true values among posterior draws.

    A pass applies to the simulated size, rank and priors, and only to faults that this number of simulations can
    reveal: with 8 × 7 counts of rank 3, an exposure that is 5 % wrong passes 400 simulations, and one that is 15 %
    wrong passes 200 and fails 400.

    Parameters
    ----------
    model : str
        Name of the model, as for `bayesnmf.fit`.
    method : {"gibbs", "nuts", "smc", "vi", "svi"}
    size, rank : (n, m), int
        Size and rank of the simulated counts. Small ones are fitted fast and mix well.
    priors, totals : optional
        Priors and totals of the simulations, as for `bayesnmf.simulate`; by default 20 counts a row.
    simulations : int
        Number of data sets to draw and fit.
    draws : int
        Number L of posterior draws among which the truth is ranked: independent draws from q, or evenly spaced ones
        from all kept draws of the chains or runs. These should be nearly independent too; see `Calibration.ess`.
    options : optional
        Options of the method. The default is one chain from a random state: Gibbs with 400 sweeps of warm-up and 20 for
        each draw, NUTS with 300 steps of warm-up and 4 for each draw; SMC with 8 runs of 32 particles, or of as many as
        give twice the draws; vi from "svd"; and SVI with 1,000 steps. Priors in
        the options replace those of the simulation in the fit: this is a fault that the calibration should find.
    seed : int
        Seed of the simulations and the fits.
    checkpoint : str, path or Checkpoint, optional
        Folder that keeps the simulations that are done; `simulations` may be larger in a later call.
    progress : bool or callable, optional
        Progress report, as for `bayesnmf.fit`. Ctrl-C returns the simulations done so far.

    Returns
    -------
    Calibration

    Raises
    ------
    TypeError, ValueError
        Invalid arguments: improper priors, methods without a posterior, too few draws to rank among.

    See Also
    --------
    Calibration : what it returns.

    Examples
    --------
    >>> import bayesnmf
    >>> result = bayesnmf.calibrate("gamma_poisson", "vi", simulations=20, seed=1)
    >>> result.ranks.shape
    (20, 8)
    """
    given = Priors() if priors is None else priors
    check_instance(given, Priors, "priors")
    plan = _check(CalibrationPlan(model, method, size, rank, totals, draws, options, given))
    simulations = check_count(simulations, "simulations", most=MOST_SIMULATIONS)
    seed = check_count(seed, "seed", minimum=0)
    with progress_context(progress) as report, _kept(plan, seed, as_checkpoint(checkpoint)) as keeper:
        return _run(plan, simulations, seed, report, keeper)


@contextmanager
def _kept(plan: CalibrationPlan, seed: int, checkpoint: Checkpoint | None) -> Iterator[Keeper | None]:
    """Yield the keeper of a folder, if there is a checkpoint; refuse the folder of another plan."""
    if checkpoint is None:
        yield None
        return
    settings = describe_options(plan.options) | {"seed": str(seed)}
    settings |= {name: describe_value(getattr(plan, name)) for name in ("model", "method", "rank", "draws", "totals")}
    settings |= {f"simulated {name}": describe_value(prior) for name, prior in vars(plan.priors).items()}
    with kept_in(checkpoint, {**settings, "size": repr(tuple(plan.size))}) as keeper:
        yield keeper


def _check(plan: CalibrationPlan) -> CalibrationPlan:
    """Return the plan with its defaults filled in; refuse invalid settings."""
    check_calibrated_method(plan.method)
    draws = check_count(plan.draws, "draws")
    options: Any = defaults(plan.method, draws) if plan.options is None else plan.options
    check_options(options, plan.method, METHODS[plan.method].options)
    if METHODS[plan.method].posterior == "draws":
        check_enough_draws(draws, options.chains, options.draws)
    totals = TOTALS if plan.totals is None and plan.priors.loadings is None else plan.totals
    first = simulate(plan.model, plan.size, plan.rank, priors=plan.priors, totals=totals)
    given_totals = MODELS[plan.model].given_totals
    row_totals = first.counts.row_totals if given_totals else None  # otherwise the priors contain them
    sides = (options.priors.loadings, options.priors.components)
    fitted = Priors(*(own or drawn for own, drawn in zip(sides, vars(first.priors).values(), strict=True)))
    check_draws_of_components(fitted.components)
    check_without_covariates(fitted.loadings)
    options = replace(options, priors=fitted)
    check_combination(Request(plan.model, plan.method, fitted, options, counts=first.counts, rank=plan.rank))
    return replace(
        plan,
        size=first.counts.shape,
        rank=first.rank,
        draws=draws,
        totals=row_totals,
        options=options,
        priors=first.priors,
    )


def defaults(method: str, draws: int) -> Options:
    """Return the options with which a method is fitted by default."""
    chosen: dict[str, Options] = {
        "gibbs": Gibbs(start="random", chains=1, warmup=400, draws=draws, thin=20, threads=1),
        "nuts": NUTS(start="random", chains=1, warmup=300, draws=4 * draws),
        "smc": SMC(runs=8, particles=max(draws // 4 + 1, 32)),
        "vi": VI(start="svd", threads=1),
        "svi": SVI(max_iter=1000),
    }
    return chosen.get(method) or METHODS[method].options()


def _run(
    plan: CalibrationPlan, simulations: int, seed: int, report: ProgressReport, keeper: Keeper | None
) -> Calibration:
    """Simulate and fit until all is done, or until Ctrl-C if at least one simulation is done."""
    names = names_for(plan.model, plan.rank, plan.priors)
    label = f"{plan.method} {plan.model}"
    started = time.perf_counter()
    ranks: list[Array] = []
    sizes: list[Array] = []
    try:
        for done, stream in enumerate(np.random.SeedSequence(seed).spawn(simulations)):
            report(label, done, simulations, np.nan)
            slot = NOWHERE if keeper is None else slot_of(keeper, "simulation", None)
            kept = slot.result()
            found, ess = kept or _one(plan, names, [int(word) for word in stream.generate_state(3)])
            if kept is None:
                slot.end((found, ess))
            ranks.append(found)
            sizes.append(ess)
        report(label, simulations, simulations, np.nan)
    except KeyboardInterrupt:
        if not ranks:
            raise
    return Calibration(
        model=plan.model,
        method=plan.method,
        size=plan.size,
        rank=plan.rank,
        quantities=names,
        ranks=np.array(ranks),
        draws=plan.draws,
        ess=np.median(sizes, axis=0),
        priors=_one_line(plan.priors),
        settings=_in_words(plan.options, plan.priors),
        seed=seed,
        seconds=time.perf_counter() - started,
    )


def _one(plan: CalibrationPlan, names: tuple[str, ...], seeds: list[int]) -> tuple[Array, Array]:
    """Simulate once, fit, and return the ranks of all quantities and the ESS of their draws."""
    simulation = simulate(plan.model, plan.size, plan.rank, priors=plan.priors, totals=plan.totals, seed=seeds[0])
    drawn, fitted, chosen = _posterior_draws(plan, simulation, seeds[1])
    values = evaluate(names, drawn)
    true = evaluate(names, true_point(simulation))[0]
    ess = np.full(len(names), float(plan.draws))
    if is_resampled(fitted):
        ess = effective_numbers(values, runs_of_draws(fitted)[chosen], len(fitted.trace))
    elif fitted.estimate.kind == "draws":
        ess = effective_sizes(values)
    return rank_among(true, values, np.random.default_rng(seeds[2])), ess


def _posterior_draws(plan: CalibrationPlan, simulation: Simulation, seed: int) -> tuple[Points, Fit, Array]:
    """Fit one simulation; return `plan.draws` posterior draws, the fit, and the positions of the draws in it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # all simulations are judged together, by ranks and ESS
        fitted = uninterrupted(
            fit(simulation.counts, plan.model, plan.rank, plan.method, seed=seed, options=plan.options)
        )
    independent = fitted.estimate.kind == "mean field"
    kept: Any = fitted.sample_posterior(plan.draws, chains=1, seed=seed) if independent else fitted.posterior
    chosen = evenly_spaced(plan.draws, kept.chains * kept.draws)
    return draws_as_points(kept, simulation, chosen), fitted, chosen


def rank_among(true: Array, values: Array, rng: np.random.Generator) -> Array:
    """Return the number of draws (D, Q) below the true value (Q,); ties are counted at random.

    Of t draws that tie with the truth, any number from 0 to t count as below, with equal probability: the truth has a
    random position among t + 1 equal values.
    """
    below = (values < true).sum(axis=0)
    return below + rng.integers(0, (values == true).sum(axis=0) + 1)


def effective_sizes(values: Array) -> Array:
    """Return the bulk effective sample sizes of draws (D, Q) in chain order; their number if all are equal."""
    _, ess = r_hat_and_ess(values[None])
    return np.where(np.isnan(ess), len(values), ess)  # NaN also for three draws or fewer


def effective_numbers(values: Array, run: Array, runs: int) -> Array:
    """Return effective numbers of resampled draws (D, Q), from their runs (D,): at most D, and D if all are equal."""
    return len(values) * np.fmin(share_effective(values, run, runs), 1.0)


def _in_words(options: Any, drawn: Priors) -> str:
    """Return the options that differ from their class's defaults, and the priors that differ from the simulation's."""
    usual = type(options)()
    settings = []
    for field in fields(options):
        value = getattr(options, field.name)
        if field.name == "priors":
            sides = [(name, prior) for name, prior in vars(value).items() if prior is not getattr(drawn, name)]
            settings += [f"{name}={_one_line(prior)}" for name, prior in sides]
        elif field.name != "threads" and value != getattr(usual, field.name):
            settings.append(f"{field.name}={value!r}" if isinstance(value, str | int | float | tuple) else field.name)
    return f"{type(options).__name__}({', '.join(settings)})"


def _one_line(value: Any) -> str:
    return " ".join(repr(value).split())
