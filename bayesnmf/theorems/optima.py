"""Statements 7, 11 and 12: two paths to one optimum, stochastic gradients on both bounds, monotone runs."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import numpy as np

from bayesnmf.assessment.bounds import elbo_augmented, elbo_marginal
from bayesnmf.fitting.fitted import Fit
from bayesnmf.options import SVI, Start
from bayesnmf.results.estimates import VariationalPosterior
from bayesnmf.theorems.evidence import MARGINAL
from bayesnmf.theorems.study import Study, joined_notes, permitted_errors, plain_vi, rounding_of_bound
from bayesnmf.theorems.table import Claim, Row

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
