"""Statements 7, 10, 11 and 12: bounds, the evidence, NumPyro's bounds at the same q, and where runs end.

Allocations sum to the evidence, bounds stay below it, and a decomposition climbs to log p(S). Closed-form bounds equal
NumPyro's bounds of the hand-written programs. Two paths lead to one optimum, stochastic gradients come near it on both
bounds, and runs are monotone.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer import TraceMeanField_ELBO

from bayesnmf.assessment.bounds import elbo_augmented, elbo_marginal, state_of_fit
from bayesnmf.assessment.evidence import MOST_ALLOCATIONS, log_evidence
from bayesnmf.data.counts import Counts
from bayesnmf.fitting.fitted import Fit
from bayesnmf.fitting.numpyro_bridge import guide_parameters, load_program, program_arguments
from bayesnmf.inference.marginal.allocation_model import MOST_DIGITS, count_allocations, digits_of_allocations
from bayesnmf.inference.status import ConvergenceWarning
from bayesnmf.models.entries import as_observation
from bayesnmf.options import BLD, SVI, Start
from bayesnmf.priors import Dirichlet, Priors, ScaledDirichlet
from bayesnmf.priors.specification import MODELS
from bayesnmf.results.estimates import VariationalPosterior
from bayesnmf.theorems import explicit
from bayesnmf.theorems.study import Study, joined_notes, permitted_errors, plain_map, plain_vi, rounding_of_bound
from bayesnmf.theorems.table import Claim, Row
from bayesnmf.types import Array

MODEL, SOURCE = "dirichlet_gamma", "[K] 7-9"
ALPHA, ETA, SHAPE = 1.2, 0.9, 2.0
UPDATES = 100
RUNS = 16  # runs of sequential Monte Carlo, enough for a standard error
MOST_WORK = 4e9  # most counts × components × particles in all runs: seconds
WIDEST = 0.5  # sd of p̂ / p up to which the mean of the runs is nearly normal
MARGINAL = 10  # draws for each draw of NumPyro's, as the kernels are faster


def evidence(study: Study) -> Iterator[Row]:
    """Check Σ_S p(S) = p(X) if there are few S; particles estimate it, and both bounds stay below it."""
    priors = Priors(ScaledDirichlet(ALPHA, SHAPE, SHAPE / study.mean_total), Dirichlet(ETA))
    counts, note = study.small
    options = plain_vi(priors=priors, tol=1e-9, extrapolate=True)
    fit = study.fit(counts, MODEL, "vi", options)
    bound, slack = elbo_augmented(fit), rounding_of_bound(counts, study.rank)
    draws = MARGINAL * study.effort.draws
    marginal = elbo_marginal(fit, draws, study.seed)
    off = permitted_errors(draws) * marginal.se + slack
    claim = Claim(10, f"{MODEL}: elbo_augmented ≤ elbo_marginal", "Jensen")
    yield claim.at_most(bound, marginal.mean, off, joined_notes(note, f"± {marginal.se:.2g}"))
    particles = Claim(10, "particles estimate log Σ_S p(S)", "[K] conclusion")
    below = Claim(10, "elbo_augmented ≤ log Σ_S p(S)", SOURCE)
    above = Claim(10, "elbo_marginal ≤ log Σ_S p(S)", SOURCE)
    if (why := _too_large(counts, study.rank)) is not None:
        for each in (particles, below, above):
            yield each.not_computed(why)
        return
    exact = log_evidence(counts, MODEL, study.rank, "exact", priors=priors).log_evidence
    yield _by_particles(study, particles, priors, exact)
    yield below.at_most(bound, exact, slack, note)
    yield above.at_most(marginal.mean, exact, off, joined_notes(note, f"± {marginal.se:.2g}"))


def _by_particles(study: Study, claim: Claim, priors: Priors, exact: float) -> Row:
    """Compare an estimate by particles with the exact evidence, if it has a standard error."""
    counts, note = study.small
    number = study.effort.particles
    if counts.total * study.rank * number * RUNS > MOST_WORK:
        return claim.not_computed(f"needs at most {MOST_WORK / study.rank / number / RUNS:,.0f} counts in all")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # its standard error is in the table
        found = log_evidence(
            counts, MODEL, study.rank, "tokens", priors=priors, particles=number, runs=RUNS, seed=study.seed
        )
    if len(found.estimates) < RUNS:  # after Ctrl-C
        raise KeyboardInterrupt
    note = joined_notes(note, f"{RUNS} runs of {number:,} particles, ± {found.se:.2g}")
    if found.se * np.sqrt(RUNS) > WIDEST:
        return claim.not_judged(found.log_evidence, exact, joined_notes(note, "not judged, as it needs more particles"))
    tolerance = permitted_errors(RUNS) * found.se + rounding_of_bound(counts, study.rank)
    return claim.equal(found.log_evidence, exact, tolerance, note)


def _too_large(counts: Counts, rank: int) -> str | None:
    """Return why the evidence cannot be computed by enumeration, or None."""
    if not counts.is_integer:
        return "needs whole numbers"
    digits = digits_of_allocations(counts, rank)
    if digits > MOST_DIGITS:
        return f"needs at most {MOST_ALLOCATIONS:,} allocations: there are more than 10^{int(digits):,}"
    number = count_allocations(counts, rank)
    if number > MOST_ALLOCATIONS:
        return f"needs at most {MOST_ALLOCATIONS:,} allocations: there are {number:.3g}"
    return None


def decomposition(study: Study) -> Iterator[Row]:
    """Check log p(S) of KL-NMF by the kernel and by [K] 7-9, and how far the best decomposition rises above it."""
    counts, note = study.small
    scale = (SHAPE, SHAPE / study.mean_total)
    kl_nmf = study.fit(counts, "poisson", "map", plain_map(max_iter=max(study.iterations, 1) * 5, tol=0))
    options = BLD(priors=Priors(ScaledDirichlet(ALPHA, *scale), Dirichlet(ETA)), start=kl_nmf, max_iter=UPDATES, tol=0)
    best = study.fit(counts, MODEL, "bld", options)
    before = explicit.log_p_decomposition(counts, kl_nmf.loadings, kl_nmf.components, ALPHA, ETA, *scale)
    assert best.multipliers is not None
    after = explicit.log_p_decomposition(counts, *best.multipliers, ALPHA, ETA, *scale)
    tolerance = rounding_of_bound(counts, study.rank)
    claim = Claim(10, "log p(S) of KL-NMF: kernel = formula", SOURCE)
    yield claim.equal(float(best.trace[0]), before, tolerance, note)
    claim = Claim(10, "log p(S) of the best decomposition: kernel = formula", SOURCE)
    yield claim.equal(float(best.trace[-1]), after, tolerance, note)
    claim = Claim(10, "log p(S) of KL-NMF ≤ log p(S) of the best decomposition from there", "[K] 10-16")
    yield claim.at_most(before, after, tolerance, joined_notes(note, f"{UPDATES} updates"))


SETTLED = 1e-10  # relative change over five iterations at which the optimisers stop
# If steps shrink by a factor r, SETTLED / (1 − r) of the climb then remains: enough for r up to 0.9999.
NEAR = 1e4 * SETTLED
ROUGH = 0.5  # sd of the logarithms by which a rough start's parameters are changed
CLOSED = 0.1  # share of a rough start's loss that may remain after stochastic gradients
NOISES = 8.0  # largest ratio of the noise at one end to its average: a sum of a dozen squares or more


def optimum(study: Study, model: str) -> Fit:
    """Return a fit by coordinate ascent that has converged fully."""
    if model not in study.optima:
        options = plain_vi(tol=SETTLED, extrapolate=True, max_iter=20_000)
        study.optima[model] = study.fit(study.small[0], model, "vi", options)
    return study.optima[model]


def roughened(study: Study, fit: Fit, size: float) -> Start:
    """Return the q of a fit with every parameter multiplied by exp(size × a standard normal)."""
    rng = study.rng(f"rough {fit.model}")
    q: Any = fit.posterior
    assert isinstance(q, VariationalPosterior)
    sides: list[Any] = []
    for side, shape in ((q.loadings, fit.loadings.shape), (q.components, fit.components.shape)):
        full: Any = side.broadcast(shape)
        noise = {name: np.exp(size * rng.standard_normal(value.shape)) for name, value in vars(full).items()}
        sides.append(type(full)(**{name: value * noise[name] for name, value in vars(full).items()}))
    return Start(*sides)


def half_way(one: Fit, other: Fit) -> Start:
    """Return the q whose parameters are the geometric means of those of two fits."""
    sides: list[Any] = []
    for name, shape in (("loadings", one.loadings.shape), ("components", one.components.shape)):
        first, second = (getattr(fit.posterior, name).broadcast(shape) for fit in (one, other))
        sides.append(type(first)(**{key: np.sqrt(value * vars(second)[key]) for key, value in vars(first).items()}))
    return Start(*sides)


def two_paths(study: Study) -> Iterator[Row]:
    """Check that gradient ascent on the collapsed bound ends where coordinate ascent does ([P] 31 and 34-36)."""
    best = optimum(study, "gamma_poisson")
    start = roughened(study, best, 0.01)
    options = plain_vi(priors=best.priors, start=start, algorithm="gradient", tol=SETTLED, max_iter=20_000)
    gradient = study.fit(study.small[0], "gamma_poisson", "vi", options)
    value = elbo_augmented(best)
    claim = Claim(7, "path 1, gradient ascent, ends where path 2, coordinate ascent, does", "[P] 31, 34-36")
    lost = f"started {value - gradient.trace[0]:,.3g} nats below"
    yield claim.equal(elbo_augmented(gradient), value, NEAR * abs(value), joined_notes(study.small[1], lost))


def stochastic_gradients(study: Study) -> Iterator[Row]:
    """Check that SVI comes near coordinate ascent but not above it, and higher on the marginal bound."""
    for model in study.effort.svi_models:
        best = optimum(study, model)
        noise = yield from _augmented(study, best)
        yield from _marginal(study, best, noise)


def _augmented(study: Study, best: Fit) -> Generator[Row, None, float]:
    """Run SVI from a rough start, then coordinate ascent from its end; return the noise of the end in nats.

    A rough start may lead to another optimum than the one it was made from, so SVI is compared with the optimum above
    its own end. Its steps do not shrink to zero, which leaves noise around the place where it should end. Two ends with
    different random numbers show the size of this noise, but no error that they share: where the bound is quadratic,
    the ends are on average twice as far below it as the point half way between them.
    """
    (counts, cut), model, steps = study.small, best.model, study.effort.svi_steps
    start = roughened(study, best, ROUGH)
    climb = SVI(bound="augmented", priors=best.priors, start=start, max_iter=steps)
    ends = [study.fit(counts, model, "svi", climb, stream) for stream in (0, 1)]
    values = [elbo_augmented(end) for end in ends]
    settle = plain_vi(priors=best.priors, start=ends[0], tol=SETTLED, extrapolate=True, max_iter=20_000)
    top = elbo_augmented(study.fit(counts, model, "vi", settle))
    from_start = study.fit(counts, model, "vi", plain_vi(priors=best.priors, start=start, max_iter=0, tol=0))
    lost = top - elbo_augmented(from_start)
    between = study.fit(counts, model, "vi", plain_vi(priors=best.priors, start=half_way(*ends), max_iter=0, tol=0))
    noise = 2 * max(elbo_augmented(between) - float(np.mean(values)), 0.0)
    note = joined_notes(cut, f"{steps:,} steps; Effort(svi_models=…) adds other models")
    claim = Claim(11, f"{model}: SVI on the augmented bound ≤ coordinate ascent from there", "[P] 31")
    yield claim.at_most(values[0], top, NEAR * abs(top), note)
    claim = Claim(11, f"{model}: coordinate ascent − SVI ≤ a tenth of the rough start's loss", "[P] 31")
    note = joined_notes(cut, f"start lost {lost:,.3g} nats; the noise of the last steps is {noise:.2g}")
    yield claim.at_most(top - values[0], CLOSED * lost, NOISES * noise, note)
    return noise


def _marginal(study: Study, best: Fit, noise: float) -> Iterator[Row]:
    """Run SVI on the marginal bound from the optimum of the augmented one, and show both parts of the gap."""
    (counts, cut), model, draws = study.small, best.model, MARGINAL * study.effort.draws
    climb = SVI(bound="marginal", priors=best.priors, start=best, max_iter=study.effort.svi_steps)
    value = elbo_augmented(best)
    first = elbo_marginal(best, draws, study.seed)
    last = elbo_marginal(study.fit(counts, model, "svi", climb), draws, study.seed)
    slack = rounding_of_bound(counts, study.rank)
    off = permitted_errors(draws) * last.se + slack + NOISES * noise
    parts = (
        f"± {last.se:.2g}; {first.mean - value:,.3g} nats as allocations leave q, {last.mean - first.mean:,.3g} climbed"
    )
    claim = Claim(11, f"{model}: coordinate ascent ≤ SVI on the marginal bound", "Jensen")
    yield claim.at_most(value, last.mean, off, joined_notes(cut, parts))
    # Draws of q with common random numbers are correlated, so those of a difference vary by less than this.
    error = float(np.hypot(first.se, last.se))
    claim = Claim(11, f"{model}: marginal bound at coordinate ascent ≤ where SVI on it ends", "NumPyro")
    off = permitted_errors(draws) * error + slack + NOISES * noise
    yield claim.at_most(first.mean, last.mean, off, joined_notes(cut, f"± {error:.2g}"))


def monotone(study: Study) -> Iterator[Row]:
    """Check that no run decreases its objective, by the step that comes nearest to a decrease."""
    claim = Claim(12, "every run is monotone: before ≤ after", "[GP], [C], [P], [K]")
    worst, found = -np.inf, None
    for label, trace, tolerance in study.traces:
        falls = trace[:-1] - trace[1:]
        if np.isnan(worst):  # nothing is worse than NaN
            break
        if len(falls) and not (excess := float(np.max(falls - tolerance))) <= worst:
            at = int(np.argmax(falls))
            worst, found = excess, (label, float(trace[at]), float(trace[at + 1]), tolerance)
    if found is None:
        yield claim.not_computed("no run had two iterates")
        return
    label, before, after, tolerance = found
    note = f"smallest margin among {len(study.traces)} runs: {label}"
    yield claim.at_most(before, after, tolerance, note)


# Most of the time is spent on compiling the samplers; without optimisation this is faster.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def bounds_of_programs(study: Study) -> Iterator[Row]:
    """Compare the bounds of all models with NumPyro's `TraceMeanField_ELBO`, given its standard errors."""
    note = study.small[1]
    for model in MODELS:
        options = plain_vi(max_iter=study.iterations, tol=0)
        fit = study.fit(study.counts, model, "vi", options)
        fit = fit if study.part is None else study.part.restrict_fit(fit)
        closed = elbo_augmented(fit)
        draws = numpyro_bounds(fit, study.effort.draws, study.seed, augmented=study.counts.is_integer)
        slack = rounding_of_bound(fit.counts, fit.rank)  # at K = m = 1 only rounding varies
        means, errors = draws.mean(axis=0), draws.std(axis=0, ddof=1) / np.sqrt(len(draws))
        off = permitted_errors(len(draws)) * errors + slack
        claim = Claim(11, f"{model}: ELBO in closed form = ELBO of the augmented program", "NumPyro")
        if study.counts.is_integer:
            yield claim.equal(closed, means[1], off[1], joined_notes(note, f"± {errors[1]:.2g}"))
        else:
            yield claim.not_computed("needs whole numbers")
        claim = Claim(11, f"{model}: ELBO in closed form ≤ ELBO of the marginal program", "NumPyro")
        yield claim.at_most(closed, means[0], off[0], joined_notes(note, f"± {errors[0]:.2g}"))


def numpyro_bounds(fit: Fit, draws: int, seed: int, augmented: bool) -> Array:
    """Return single-draw estimates of the bounds of the marginal and the augmented program, (draws, 1 or 2)."""
    problem, state = state_of_fit(fit)
    module = load_program(fit.model)
    pairs = [(module.program, module.guide), (module.augmented, module.augmented_guide)][: 1 + augmented]
    with jax.enable_x64(True):
        arguments = program_arguments(fit.counts, fit.rank, fit.priors)
        arguments["counts"] = as_observation(fit.counts.matrix)
        bound = TraceMeanField_ELBO()

        def one(parameters: dict[str, Any], key: jax.Array) -> jax.Array:
            return jnp.stack([-bound.loss(key, parameters, *pair, **arguments) for pair in pairs])

        def every(parameters: dict[str, Any], keys: jax.Array) -> jax.Array:
            return jax.lax.map(lambda key: one(parameters, key), keys)

        keys = jax.random.split(jax.random.key(seed), draws)
        found = jax.jit(every, compiler_options=QUICK)(guide_parameters(state, problem), keys)
        return np.asarray(found)
