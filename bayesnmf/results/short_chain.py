"""A short chain of Gibbs sampling from a fit by vi: intervals that hold, for a known number of seconds.

A mean field is too narrow, because it ignores how loadings and components move together. One chain of marginal Gibbs
sampling (`bayesnmf.inference.sampling.marginal_gibbs`) from a draw of q describes the posterior around the same mode:
docs/posteriors.md has what 50 + 250 sweeps hold of longer runs, and what they cost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bayesnmf.data.counts import Counts
from bayesnmf.inference import alignment
from bayesnmf.inference.ascent.course import Progress
from bayesnmf.inference.draw import Draw
from bayesnmf.inference.problem import Problem
from bayesnmf.inference.sampling.entry_sweeps import marginal_gibbs_chain
from bayesnmf.inference.sampling.gibbs import Chain, Schedule
from bayesnmf.inference.side import Side
from bayesnmf.inference.starts.states import given_state
from bayesnmf.inference.status import BROKEN
from bayesnmf.priors.distribution import OPTIONAL
from bayesnmf.priors.pair import Priors, movable_components
from bayesnmf.priors.specification import PARAMETER, stated_components
from bayesnmf.priors.values import separate_scale
from bayesnmf.results.draws import LIMIT
from bayesnmf.results.estimates import Draws, Intervals
from bayesnmf.results.mixing import judged_parts, r_hat_and_ess
from bayesnmf.results.record import FitRecord

WARMUP, DRAWS = 50, 250
MIXED = 1.2  # R-hat of halves of a chain; short ones of 250 draws reach 1.1 by chance
# Processor seconds of a sweep, and of each of its K nonzeros and K (n + m) entries, by least squares of relative errors
# over 12 sizes, from 100 × 50 (K = 3, 1.2 ms a sweep) to 400 rows of pbmc_facs (K = 6, 95 ms) and 500 of nips (K = 10,
# 126 ms); they were 0.83 to 1.21 times what this predicts. All rows of pbmc_facs: 375 ms, predicted 427.
BY_SWEEP, BY_NONZERO, BY_ENTRY = 0.63e-3, 22e-9, 0.56e-6
STREAM = 2  # of random numbers, beside those of the fit with the same seed


def fault_of_sampling(fit: FitRecord, draws: int = DRAWS, part: str = "entries") -> str:
    """Return why no draws around a fit can be made, by families with an optional part; "" if they can."""
    if fault := f"the fit is by {fit.method}" if fit.method != "vi" else fault_of_part(fit):
        return fault
    loadings: Any = fit.priors.loadings
    if fit.noise.has_entry_rates and loadings.support != "positive":
        return "its loadings are proportions, and its entries have rates; use method='gibbs'"
    return fault_of_parts(fit.counts, fit.priors, fit.rank, draws, part)


def fault_of_part(fit: FitRecord) -> str:
    """Return why a fit is not the end of a fit of all its counts, which draws around it need; "" if it is."""
    if fit.status.reason in BROKEN:
        return f"the fit ended early: {fit.status.reason}"
    if fit.is_of_matrix:
        return "it is of one of several matrices, whose loadings come from all; ask the fit of all, then for the matrix"
    return "its components are held from another fit" if fit.is_projected else ""


def fault_of_parts(counts: Counts, priors: Priors, rank: int, draws: int = DRAWS, part: str = "entries") -> str:
    """Return why no chain can be made with these counts and priors, whose families need an optional part."""
    if priors.components == PARAMETER:
        return "its components are parameters, without a posterior"
    if counts.batch is not None and part == "response":
        return "its counts are in batches, whose factors linear response leaves out"
    if not counts.is_integer and part == "entries":
        return "not all its counts are whole numbers"
    loadings: Any = priors.loadings
    if counts.mask is not None:
        drawn = loadings.support == "positive" and loadings.proper
        if not (drawn if part == "entries" else loadings.support != "scaled simplex"):
            return "entries of its counts are missing"
    sides: Any = priors.loadings, priors.components
    if lacking := [type(prior).__name__ for prior in sides if part not in prior.optional]:
        return f"{lacking[0]} has no {OPTIONAL[part]}"
    return fault_of_size(counts, rank, draws)


def fault_of_size(counts: Counts, rank: int, draws: int) -> str:
    """Return that draws take more memory than is allowed; "" if they do not."""
    size = 8 * draws * rank * sum(counts.shape)
    return f"{draws} draws take {size / 2**30:.1f} GiB, over {LIMIT / 2**30:.0f}; ask for fewer" if size > LIMIT else ""


def expected_seconds(fit: FitRecord, sweeps: int = WARMUP + DRAWS) -> float:
    """Return the processor seconds that a chain is expected to take; where it is long, cores share them."""
    return sweeps * (BY_SWEEP + fit.rank * (BY_NONZERO * fit.counts.nnz + BY_ENTRY * sum(fit.counts.shape)))


def sample_around(
    fit: FitRecord, number: tuple[int, int], seed: int, threads: int | None = None, report: Any = None
) -> Intervals:
    """Return draws of one chain that starts from a draw of q.

    Parameters
    ----------
    fit : FitRecord
        Fit by vi without a fault (`fault_of_sampling`).
    number : tuple of int
        Numbers of warm-up sweeps and of draws.
    seed : int
        Seed of the chain, which is independent of a fit with this seed.
    threads : int, optional
        Number of row blocks processed at once; the draws do not depend on it.
    report : callable, optional
        Progress report.
    """
    rng = np.random.default_rng([seed, STREAM])
    counts, schedule = fit.working_counts.as_type(np.float64), Schedule(*number, 1)
    if fit.batch is not None:
        counts = replace(counts, learned=fit.batch.learned)  # type: ignore[call-arg]
    prior: Any = fit.priors.loadings
    components = stated_components(fit.priors.components)
    problem = Problem(counts, prior, components, Draw(rng, threads), Draw(rng, threads))
    q: Any = fit.estimate
    sides = q.loadings.broadcast(fit.loadings.shape), q.components.broadcast(fit.components.shape)
    state = given_state(problem, sides[0], components.with_known(sides[1]))
    chain = marginal_gibbs_chain(problem, state, rng, schedule, threads, _progress(report, schedule.sweeps))
    if chain.interrupted:
        raise KeyboardInterrupt
    draws = _matched(fit, chain)
    r_hat = np.concatenate([r_hat_and_ess(part, threads)[0].ravel() for part in judged_parts(draws, fit.seed)])
    varying = r_hat[~np.isnan(r_hat)]
    above = float(np.mean(varying > MIXED)) if len(varying) else 0.0
    return Intervals("sampled", draws, float(np.fmax.reduce(varying, initial=1.0)), above)


def _progress(report: Any, sweeps: int) -> Progress | None:
    """Return what a chain calls after every sweep."""
    return report and (lambda done, value, state: report("intervals", done + 1, sweeps, value))


def _matched(fit: FitRecord, chain: Chain) -> Draws:
    """Return the draws of a chain in the order of the components of the fit, in float32; the chain is emptied."""
    number, (n, rank), m = len(chain.draws), fit.loadings.shape, fit.components.shape[1]
    loadings, components = np.empty((1, number, n, rank), np.float32), np.empty((1, number, rank, m), np.float32)
    scale = None if fit.scale is None else np.empty((1, number, n), np.float32)
    movable, of_batches = movable_components(fit.priors, rank), chain.draws[0][2:]
    factors = np.empty((1, number, *of_batches[0].shape), np.float32) if of_batches else None
    for place in reversed(range(number)):
        value, drawn, *more = chain.draws.pop()
        if factors is not None:
            factors[0, place] = more[0]
        assert isinstance(drawn, np.ndarray)  # for mypy
        order = alignment.match_components(drawn, fit.components, movable)
        own, of_scale = separate_scale(value.whole()[0] if isinstance(value, Side) else value)
        loadings[0, place], components[0, place] = own[:, order], drawn[order]
        if scale is not None:
            scale[0, place] = of_scale
    return Draws(loadings, components, scale, factors)
