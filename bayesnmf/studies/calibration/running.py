"""Run a calibration: simulate, fit and rank, many times."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bayesnmf.checks import check_count, check_instance
from bayesnmf.data.simulation import Simulation, simulate
from bayesnmf.fitting.checkpointing import kept_in
from bayesnmf.fitting.fit import fit
from bayesnmf.fitting.fitted import Fit
from bayesnmf.fitting.job import ProgressReport, check_combination, progress_context
from bayesnmf.fitting.many import uninterrupted
from bayesnmf.fitting.settings import describe_options, describe_value
from bayesnmf.inference.ascent.course import NOWHERE
from bayesnmf.inference.checkpoints.keeper import Keeper
from bayesnmf.inference.checkpoints.slots import slot_of
from bayesnmf.inference.status import FitWarning
from bayesnmf.options import METHODS, NUTS, SMC, SVI, VI, Gibbs, Options
from bayesnmf.options.checkpoint import Checkpoint, as_checkpoint
from bayesnmf.options.checks import check_options
from bayesnmf.priors import Priors
from bayesnmf.priors.specification import MODELS
from bayesnmf.results.estimates import evenly_spaced
from bayesnmf.results.mixing import r_hat_and_ess
from bayesnmf.results.resampling import is_resampled, runs_of_draws, share_effective
from bayesnmf.studies.calibration.checks import (
    check_calibrated_method,
    check_draws_of_components,
    check_enough_draws,
    check_without_covariates,
)
from bayesnmf.studies.calibration.quantities import Points, draws_as_points, evaluate, names_for, true_point
from bayesnmf.studies.calibration.result import Calibration
from bayesnmf.types import Array, MethodName, ModelName

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
    progress: ProgressReport | bool = False,
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
    progress : bool or callable
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
    check_combination(plan.model, plan.method, plan.rank, first.counts, replace(options, priors=fitted))
    return replace(
        plan,
        size=first.counts.shape,
        rank=first.rank,
        draws=draws,
        totals=row_totals,
        options=replace(options, priors=fitted),
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
