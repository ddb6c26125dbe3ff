"""Running a calibration: simulate, fit, rank, many times over."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bayesnmf.calibration.checks import check_calibrated_method, check_draws_of_components, check_enough_draws
from bayesnmf.calibration.quantities import Points, evaluate, names_for, points, truth
from bayesnmf.calibration.result import Calibration
from bayesnmf.checks import check_count, check_instance
from bayesnmf.data.simulation import Simulation, simulate
from bayesnmf.fitting.fit import fit
from bayesnmf.fitting.job import check_combination
from bayesnmf.fitting.progress import ProgressReport, reporting
from bayesnmf.inference.status import INTERRUPTED, ConvergenceWarning
from bayesnmf.options import METHODS, NUTS, SVI, VI, Gibbs, Options
from bayesnmf.options.checks import check_options
from bayesnmf.priors import Priors
from bayesnmf.priors.specification import MODELS
from bayesnmf.results.estimates import evenly_spaced
from bayesnmf.results.mixing import r_hat_and_ess

Array = NDArray[Any]
TOTALS = 20
MOST_SIMULATIONS = 10**6


@dataclass(frozen=True, eq=False)
class Study:
    """What is simulated and how it is fitted, checked and with defaults filled in."""

    model: str
    method: str
    size: tuple[int, int]
    rank: int
    totals: Any
    draws: int
    options: Any
    priors: Priors


def calibrate(
    model: str = "gamma_poisson",
    method: str = "gibbs",
    *,
    size: tuple[int, int] = (6, 5),
    rank: int = 2,
    priors: Priors | None = None,
    totals: ArrayLike | None = None,
    simulations: int = 200,
    draws: int = 99,
    options: Options | None = None,
    seed: int = 0,
    progress: ProgressReport | bool = False,
) -> Calibration:
    """Simulation-based calibration of a method: ranks of true values among posterior draws.

    A pass holds for the size, the rank and the priors that were drawn from, and only against faults that so many
    simulations can show: of 8 × 7 counts of rank 3, an exposure that is 5 % wrong passes 400 simulations, and one that
    is 15 % wrong passes 200 and fails 400.

    Parameters
    ----------
    model : str
        As for `bayesnmf.fit`.
    method : {"gibbs", "nuts", "vi", "svi"}
    size, rank : (n, m), int
        Of the simulated counts. Small ones are fitted fast and mix well.
    priors, totals : optional
        As for `bayesnmf.simulate`; by default 20 counts a row.
    simulations : int
        Data sets drawn and fitted.
    draws : int
        Posterior draws that the truth is ranked among, L: independent ones from q, or evenly spaced among all those
        kept by the chains. They should be nearly independent too; `Calibration.ess` tells.
    options : optional
        Settings of the method. By default one chain from a random state: Gibbs with 400 sweeps of warm-up and 20 for
        each draw, NUTS with 300 steps and 4 for each draw; vi from "svd" alone, without the race of a plain fit, and
        SVI with 1,000 steps. Priors given here stand in place of those drawn from: a
        fault, which the calibration should find.
    seed : int
    progress : bool or callable
        As for `bayesnmf.fit`. Ctrl-C returns the simulations done.

    Returns
    -------
    Calibration

    Raises
    ------
    TypeError, ValueError
        On arguments that make no sense: improper priors, methods without a posterior, too few draws to rank among.

    Examples
    --------
    >>> import bayesnmf
    >>> result = bayesnmf.calibrate("gamma_poisson", "vi", simulations=20, seed=1)
    >>> result.ranks.shape
    (20, 8)
    """
    given = Priors() if priors is None else priors
    check_instance(given, Priors, "priors")
    study = _check(Study(model, method, size, rank, totals, draws, options, given))
    simulations = check_count(simulations, "simulations", most=MOST_SIMULATIONS)
    seed = check_count(seed, "seed", minimum=0)
    with reporting(progress) as report:
        return _run(study, simulations, seed, report)


def _check(study: Study) -> Study:
    """Return the study with its defaults filled in; refuse one that makes no sense."""
    check_calibrated_method(study.method)
    draws = check_count(study.draws, "draws")
    options: Any = defaults(study.method, draws) if study.options is None else study.options
    check_options(options, study.method, METHODS[study.method].options)
    if isinstance(options, Gibbs | NUTS):
        check_enough_draws(draws, options.chains, options.draws)
    totals = TOTALS if study.totals is None and study.priors.loadings is None else study.totals
    first = simulate(study.model, study.size, study.rank, priors=study.priors, totals=totals)
    given_totals = MODELS[study.model].given_totals
    row_totals = first.counts.row_totals if given_totals else None  # elsewhere they are in the priors by now
    sides = (options.priors.loadings, options.priors.components)
    fitted = Priors(*(own or drawn for own, drawn in zip(sides, vars(first.priors).values(), strict=True)))
    check_draws_of_components(fitted.components)
    check_combination(study.model, study.method, study.rank, first.counts, replace(options, priors=fitted))
    return replace(
        study,
        size=first.counts.shape,
        rank=first.rank,
        draws=draws,
        totals=row_totals,
        options=replace(options, priors=fitted),
        priors=first.priors,
    )


def defaults(method: str, draws: int) -> Options:
    """Return the settings by which a method is fitted where none are given."""
    if method == "gibbs":
        return Gibbs(start="random", chains=1, warmup=400, draws=draws, thin=20, threads=1)
    if method == "nuts":
        return NUTS(start="random", chains=1, warmup=300, draws=4 * draws)
    return VI(start="svd", threads=1) if method == "vi" else SVI(max_iter=1000)


def _run(study: Study, simulations: int, seed: int, report: ProgressReport) -> Calibration:
    """Simulate and fit, until all is done or Ctrl-C ends it with at least one done."""
    names = names_for(study.model, study.rank, study.priors)
    label = f"{study.method} {study.model}"
    started = time.perf_counter()
    ranks: list[Array] = []
    sizes: list[Array] = []
    try:
        for done, stream in enumerate(np.random.SeedSequence(seed).spawn(simulations)):
            report(label, done, simulations, np.nan)
            found, ess = _one(study, names, [int(word) for word in stream.generate_state(3)])
            ranks.append(found)
            sizes.append(ess)
        report(label, simulations, simulations, np.nan)
    except KeyboardInterrupt:
        if not ranks:
            raise
    return Calibration(
        model=study.model,
        method=study.method,
        size=study.size,
        rank=study.rank,
        quantities=names,
        ranks=np.array(ranks),
        draws=study.draws,
        ess=np.median(sizes, axis=0),
        priors=_one_line(study.priors),
        settings=_in_words(study.options, study.priors),
        seed=seed,
        seconds=time.perf_counter() - started,
    )


def _one(study: Study, names: tuple[str, ...], seeds: list[int]) -> tuple[Array, Array]:
    """Simulate once, fit, and return the ranks of all quantities and the ESS of their draws."""
    simulation = simulate(study.model, study.size, study.rank, priors=study.priors, totals=study.totals, seed=seeds[0])
    drawn, independent = _posterior_draws(study, simulation, seeds[1])
    values = evaluate(names, drawn)
    true = evaluate(names, truth(simulation))[0]
    ess = np.full(len(names), float(study.draws)) if independent else effective_sizes(values)
    return rank_among(true, values, np.random.default_rng(seeds[2])), ess


def _posterior_draws(study: Study, simulation: Simulation, seed: int) -> tuple[Points, bool]:
    """Fit one simulation and return `study.draws` posterior draws, and whether they are independent."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # judged over all simulations, by ranks and ESS
        fitted = fit(simulation.counts, study.model, study.rank, study.method, seed=seed, options=study.options)
    if fitted.status.reason == INTERRUPTED:
        raise KeyboardInterrupt
    independent = fitted.estimate.kind == "mean field"
    kept: Any = fitted.sample_posterior(study.draws, chains=1, seed=seed) if independent else fitted.posterior
    chosen = evenly_spaced(study.draws, kept.chains * kept.draws)
    return points(kept, simulation, chosen), independent


def rank_among(true: Array, values: Array, rng: np.random.Generator) -> Array:
    """Return how many draws (D, Q) lie below the true value (Q,); a tie counts or not at random.

    Of t draws that tie with the truth, any number from 0 to t count as below, all equally likely: that of t + 1 equal
    values drawn in random order which come before one of them.
    """
    below = (values < true).sum(axis=0)
    return below + rng.integers(0, (values == true).sum(axis=0) + 1)


def effective_sizes(values: Array) -> Array:
    """Bulk effective sample size of draws (D, Q), in the order of their chains; their number where all are equal."""
    _, ess = r_hat_and_ess(values[None])
    return np.where(np.isnan(ess), len(values), ess)  # of three draws or fewer too


def _in_words(options: Any, drawn: Priors) -> str:
    """Write the options that are not the class's own defaults, and priors that are not those drawn from."""
    usual = type(options)()
    said = []
    for field in fields(options):
        value = getattr(options, field.name)
        if field.name == "priors":
            sides = [(name, prior) for name, prior in vars(value).items() if prior is not getattr(drawn, name)]
            said += [f"{name}={_one_line(prior)}" for name, prior in sides]
        elif field.name != "threads" and value != getattr(usual, field.name):
            said.append(f"{field.name}={value!r}" if isinstance(value, str | int | float | tuple) else field.name)
    return f"{type(options).__name__}({', '.join(said)})"


def _one_line(value: Any) -> str:
    return " ".join(repr(value).split())
