"""Fit new samples with the components fixed, for `transform`."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from bayesnmf.checks import check_count
from bayesnmf.data.annotated import is_annotated
from bayesnmf.data.batches import with_known_batch
from bayesnmf.data.blocks.checks import check_read, check_room_for_rows
from bayesnmf.data.blocks.opening import open_counts, open_several
from bayesnmf.data.checks import check_new_exposure
from bayesnmf.data.conversion import check_integer_counts, is_several
from bayesnmf.data.counts import Counts
from bayesnmf.data.covariates.checks import check_given, check_no_covariates
from bayesnmf.data.covariates.coding import Coding
from bayesnmf.data.covariates.design import design_of
from bayesnmf.data.exposures import with_exposures
from bayesnmf.data.missing import with_missing, without_missing
from bayesnmf.data.naming import of_features
from bayesnmf.data.powered import working_counts
from bayesnmf.data.suspicions import warn_of_empty_rows
from bayesnmf.fitting.checks import check_total
from bayesnmf.fitting.closed_form import fit_of_ascent
from bayesnmf.fitting.job import Job
from bayesnmf.fitting.problems import draws_problem
from bayesnmf.inference.ascent.settled_loadings import even_loadings, settle_rows
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.sampling.gibbs import sweep
from bayesnmf.inference.sampling.marginal_gibbs import factors_of
from bayesnmf.inference.sides import allocate, objective
from bayesnmf.inference.status import Status
from bayesnmf.noise.abilities import Dispersed, Noise
from bayesnmf.options.combinations import FEATURE_EXPOSURE, ROW_EXPOSURE, check_together
from bayesnmf.options.rules import Request
from bayesnmf.priors.checks import check_one_prior_for_all_rows
from bayesnmf.priors.log_linear import EFFECTS, SHAPES
from bayesnmf.priors.pair import replace_sides
from bayesnmf.priors.specification import MODELS
from bayesnmf.priors.values import separate_scale, stack_values
from bayesnmf.results.checks import check_knows_priors
from bayesnmf.results.estimates import Draws
from bayesnmf.results.given_components import components_of, loadings_given_components
from bayesnmf.results.record import HELD, FitRecord, Reference
from bayesnmf.types import Array


def with_covariates_of_rows[F: FitRecord](fit: F, covariates: Any, row_names: Array) -> F:
    """Return the fit with the prior of new rows, which depends on their covariates where the fit had some."""
    prior: Any = fit.priors.loadings
    if not prior.has_effects:
        check_no_covariates(covariates)
        check_one_prior_for_all_rows(prior)
        return fit
    check_given(covariates, "transform")
    coding = Coding.of_text(prior.coding)
    own = replace(prior, design=design_of(coding, covariates, row_names))
    return replace(fit, priors=replace_sides(fit.priors, loadings=own))


def prior_of_draw(prior: Any, statistics: dict[str, Array] | None, place: int) -> Any:
    """Return the prior of loadings with the effects of one draw among those of all chains."""
    if not prior.has_effects or statistics is None:
        return prior
    effects, shapes = statistics[EFFECTS].reshape(-1, *prior.effects.shape), statistics.get(SHAPES)
    shape = None if shapes is None else shapes.reshape(-1, 1, prior.effects.shape[1])[place]
    return prior.with_effects(effects[place], shape)


MAX_ITER, TOL = 2000, 1e-8
COMPONENT_DRAWS = 200
BURN_IN = 100
SWEEPS = 10
ERROR_BATCHES = 20


def project(
    fit: FitRecord,
    counts: Any,
    row_exposure: Any,
    seed: int,
    observed: Any = None,
    missing: Any = None,
    batch: Any = None,
    layer: str | None = None,
    feature_labels: str | None = None,
    covariates: Any = None,
) -> FitRecord:
    """Fit new samples with the components of `fit`, by the method of `fit`.

    Under map, vi and svi: coordinate ascent over the loadings alone, from equal shares, until each row settles, so that
    rows do not affect each other; the trace is the objective at the start and the end.
    Under bld: the same as under map, given the components of the decomposition.
    Under gibbs and nuts: for each of 200 evenly spaced draws of the components, 10 Gibbs sweeps over the loadings,
    which start from the last loadings for the previous draw; `diagnostics` contains the Monte Carlo error of the means,
    in posterior standard deviations.

    Parameters
    ----------
    fit : Fit
    counts : array-like, path or Blocks, (rows, m)
        Counts of new samples. Features are matched by name if both have names: those that the new samples lack are
        missing entries, those that the fit lacks are left out, with a DataWarning. Counts on disk must have those of
        the fit, in its order.
    row_exposure : array-like, mapping or None
        Exposure of the new samples, needed if the fit has exposures of rows.
    seed : int
        Seed of the Gibbs sweeps.
    observed, missing : array, sparse matrix or word, optional
        Missing entries, as for `bayesnmf.fit`.
    batch : list, mapping, Series, Batch or str, optional
        Batches of the new samples, needed if the fit has batches, whose factors are held as they are.
    layer, feature_labels : str, optional
        Layer and names of features of AnnData, as for `bayesnmf.fit`.
    covariates : DataFrame, mapping of columns or array, optional
        Covariates of the new samples, which a fit with covariates needs: their prior is that at these.
    """
    started = time.perf_counter()
    check_knows_priors(fit, "transform, as project,")
    check_count(seed, "seed", minimum=0)
    if covariates is None and fit.priors.loadings.has_effects and is_annotated(counts):  # type: ignore[union-attr]
        covariates = counts.obs
    given, reference = _opened(counts, observed, missing, layer, feature_labels, fit.counts.dtype), fit
    data = of_features(given, fit.counts)
    data = with_known_batch(with_exposures(data, row_exposure), batch, fit.counts.batch, counts)
    check_total(data)
    check_new_exposure(fit.counts, data)
    data = data.with_exposure(data.row_exposure, fit.counts.feature_exposure)
    check_together(Request(fit.model, priors=fit.priors, counts=data), ROW_EXPOSURE, FEATURE_EXPOSURE)
    fit = with_covariates_of_rows(fit, covariates, data.row_names)
    noise, totals = noise_of_new_rows(fit, data), MODELS[fit.model].given_totals
    working = working_counts(data, noise, given_totals=totals, components=fit.priors.components)
    factors = None if fit.batch is None else fit.batch.of_names(data.batch.names)
    working = working if factors is None else factors.around(working, held=True)
    if fit.estimate.kind == "draws":
        check_read(data, "draws of their loadings are kept in memory")
        check_integer_counts(data, "transform with posterior draws", "round them, or use a fit by method='vi'")
        result = _project_draws(fit, fit.estimate, working, seed)
    else:
        result = _project_closed_form(fit, working)
    prior: Any = fit.priors.loadings
    if prior.has_effects:  # what is left of it is the prior of these rows
        result = replace(result, priors=replace_sides(fit.priors, loadings=prior.of_new_rows(fit.loadings)))
    more: Any = {"component_names": fit.component_names, "batch": factors}
    root = reference if reference.reference is None else reference.reference.fit  # its components are from these rows
    more["reference"] = Reference(root, given.row_totals)
    return replace(result, counts=data, noise=noise, seconds=time.perf_counter() - started, **more)


def transform(fit: FitRecord, counts: Any, *how: Any) -> Array:
    """Return the loadings of new samples, and warn of those without counts; parameters as for `project`."""
    found = project(fit, counts, *how)
    warn_of_empty_rows(found.counts)
    return found.loadings


def _opened(
    counts: Any, observed: Any, missing: Any, layer: str | None, feature_labels: str | None, dtype: Any
) -> Counts:
    """Return counts of one or several matrices with their missing entries."""
    if is_several(counts):
        return open_several(counts, dtype, layer, feature_labels, observed=observed, missing=missing)
    counts, own = without_missing(counts, missing)
    return with_missing(open_counts(counts, dtype, layer, feature_labels, missing=missing), own, observed, missing)


def noise_of_new_rows(fit: FitRecord, data: Counts) -> Noise:
    """Return the noise of new rows: that of the fit, with the median of rows where each has its own dispersion."""
    noise = fit.noise
    if not isinstance(noise, Dispersed) or noise.by != "row":
        return noise
    return noise.with_dispersion(np.full(data.shape[0], float(np.median(noise.dispersion))))


def _project_closed_form(fit: FitRecord, data: Counts) -> FitRecord:
    problem, components = loadings_given_components(fit, data), components_of(fit)
    job = Job(data, fit.model, fit.rank, fit.method, fit.seed, fit.options, lambda *_: None)
    check_room_for_rows(data, fit.rank)
    return fit_of_ascent(job, settle_rows(problem, components, TOL, MAX_ITER), {HELD: 1.0})


def factors_of_draws(posterior: Draws, data: Counts, chosen: Array) -> Array | None:
    """Return the factors of chosen draws, (draws, B, m), with 1 for batches that the fit does not have."""
    if posterior.factors is None:
        return None
    found = posterior.factors.reshape(-1, *posterior.factors.shape[2:])[chosen]
    new = np.ones((len(found), data.plain.batch.number - found.shape[1], found.shape[2]))
    return np.concatenate([found, new], axis=1)


def _monte_carlo_errors(loadings: Any) -> dict[str, float]:
    """Return the standard error of the means of draws (draws, n, K), in posterior sds: the largest and the median.

    It is computed from the means of batches, which must be longer than the autocorrelation; it is NaN for too few
    draws.
    """
    number = min(ERROR_BATCHES, len(loadings) // 2)
    if number < 2:
        return {"largest_mc_error": np.nan, "median_mc_error": np.nan}
    length = len(loadings) // number
    means = loadings[: number * length].reshape(number, length, *loadings.shape[1:]).mean(axis=1)
    sds = loadings.std(axis=0, ddof=1)
    errors = np.divide(means.std(axis=0, ddof=1), sds, out=np.zeros_like(sds), where=sds > 0) / np.sqrt(number)
    return {"largest_mc_error": float(errors.max()), "median_mc_error": float(np.median(errors))}


def _with_drawn_loadings(problem: Problem, state: State, rng: np.random.Generator, sweeps: int) -> State:
    """Return a state with its loadings drawn `sweeps` times; parts of counts are summed out, not allocated."""
    if problem.counts.is_integer:
        for _ in range(sweeps):
            state, _ = sweep(problem, state, rng, None)
        return state
    factors = factors_of(problem, state, rng)
    for _ in range(sweeps):
        factors.sweep(None)
    summary: Any = problem.loadings_summary
    return state._replace(loadings=summary.at(problem.loadings_prior, factors.value()[0]))


def _project_draws(fit: FitRecord, posterior: Draws, data: Counts, seed: int) -> FitRecord:
    rng = np.random.default_rng(seed)
    doubles = data.with_matrix(data.matrix.astype(np.float64))
    common = replace(draws_problem(doubles, fit.priors, rng), fixed_components=True)
    total = posterior.chains * posterior.draws
    chosen = np.unique(np.linspace(0, total - 1, min(COMPONENT_DRAWS, total)).astype(int))
    components = posterior.components.reshape(total, *posterior.components.shape[2:])[chosen]
    fitted = posterior.loadings.reshape(total, *posterior.loadings.shape[2:])[chosen]
    factors = factors_of_draws(posterior, data, chosen)
    prior, summary = common.components_prior, common.components_summary
    start = None
    kept: list[Any] = []
    log_joint = np.empty((1, len(chosen)))
    for s, draw in enumerate(components):
        own = prior_of_draw(common.loadings_prior, fit.statistics, int(chosen[s]))
        problem = replace(common, loadings_prior=own.of_new_rows(fitted[s], rng))
        if factors is not None:
            problem = replace(problem, counts=doubles.with_factors(factors[s]))  # type: ignore[attr-defined]
        side = summary.at(prior, np.asfortranarray(draw))  # type: ignore[attr-defined]
        state = State(even_loadings(problem, side, fit.rank) if start is None else start, side)
        state = _with_drawn_loadings(problem, state, rng, SWEEPS if s else BURN_IN)
        log_joint[0, s] = objective(problem, state, allocate(problem, state, None).loglik)
        start = state.loadings
        kept.append(start.value)
    loadings, scale = separate_scale(stack_values(kept))
    draws = Draws(
        loadings[None], components[None], *(each if each is None else each[None] for each in (scale, factors))
    )
    return replace(
        fit,
        loadings=draws.loadings.mean(axis=(0, 1)),
        components=draws.components.mean(axis=(0, 1)),
        scale=None if scale is None else scale.mean(axis=0),
        trace=log_joint,
        status=Status(True, f"{SWEEPS} sweeps for each of {len(chosen)} draws of the components", len(chosen)),
        diagnostics={HELD: 1.0, **_monte_carlo_errors(draws.loadings[0])},
        statistics=None,
        moments=None,
        estimate=draws,
    )
