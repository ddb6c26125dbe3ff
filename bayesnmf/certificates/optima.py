"""Statements 7, 11 and 12: two paths to one optimum, stochastic gradients on both bounds, and monotone runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bayesnmf.bounds import elbo_augmented, elbo_marginal
from bayesnmf.certificates.evidence import MARGINAL, WIDE
from bayesnmf.certificates.study import Study, together
from bayesnmf.certificates.table import Claim, Row
from bayesnmf.options import SVI, VI, Start
from bayesnmf.results import Fit, VariationalPosterior

SETTLED = 1e-10  # relative change over five iterations at which the optimisers stop
# What is then left of a climb whose steps shrink by a factor r is SETTLED / (1 − r): enough for r up to 0.9999.
NEAR = 1e4 * SETTLED
CLOSED = 0.1  # share of what a rough start lost that stochastic gradients may leave open


def optimum(study: Study, model: str) -> Fit:
    """Climb by coordinate ascent until nothing moves."""
    if model not in study.optima:
        options = VI(tol=SETTLED, extrapolate=True, max_iter=20_000)
        study.optima[model] = study.fit(study.small[0], model, "vi", options)
    return study.optima[model]


def roughened(study: Study, fit: Fit, size: float) -> Start:
    """Return the q of a fit with every parameter multiplied by exp(size × a standard normal)."""
    rng = study.rng(f"rough {fit.model}")
    q: Any = fit.posterior
    assert isinstance(q, VariationalPosterior)
    sides: list[Any] = []
    for side, shape in ((q.loadings, fit.loadings.shape), (q.components, fit.components.shape)):
        full: Any = side.broadcast(shape)  # type: ignore[union-attr]
        noise = {name: np.exp(size * rng.standard_normal(value.shape)) for name, value in vars(full).items()}
        sides.append(type(full)(**{name: value * noise[name] for name, value in vars(full).items()}))
    return Start(*sides)


def two_paths(study: Study) -> Iterator[Row]:
    """[P] 31 and 34-36: gradient ascent on the collapsed bound ends where coordinate ascent does."""
    best = optimum(study, "gamma_poisson")
    start = roughened(study, best, 0.01)
    options = VI(priors=best.priors, start=start, algorithm="gradient", tol=SETTLED, max_iter=20_000)
    gradient = study.fit(study.small[0], "gamma_poisson", "vi", options)
    value = elbo_augmented(best)
    claim = Claim(7, "path 1, gradient ascent, ends where path 2, coordinate ascent, does", "[P] 31, 34-36")
    lost = f"started {value - gradient.trace[0]:,.3g} nats below"
    yield claim.equal(elbo_augmented(gradient), value, NEAR * abs(value), together(study.small[1], lost))


def stochastic_gradients(study: Study) -> Iterator[Row]:
    """SVI on the augmented bound comes near coordinate ascent and not above; on the marginal one it ends higher."""
    for model in study.effort.svi_models:
        best = optimum(study, model)
        value, steps = elbo_augmented(best), study.effort.svi_steps
        start = roughened(study, best, 0.1)
        from_there = study.fit(study.small[0], model, "vi", VI(priors=best.priors, start=start, max_iter=0, tol=0))
        lost = value - elbo_augmented(from_there)
        climb = SVI(bound="augmented", priors=best.priors, start=start, max_iter=steps)
        augmented = study.fit(study.small[0], model, "svi", climb)
        reached = elbo_augmented(augmented)
        note = together(study.small[1], f"{steps:,} steps")
        claim = Claim(11, f"{model}: SVI on the augmented bound ≤ coordinate ascent", "[P] 31")
        yield claim.at_most(reached, value, NEAR * abs(value), note)
        claim = Claim(11, f"{model}: coordinate ascent − SVI ≤ a tenth of what its rough start lost", "[P] 31")
        yield claim.at_most(value - reached, CLOSED * lost, 0.0, together(note, f"start lost {lost:,.3g} nats"))
        climb = SVI(bound="marginal", priors=best.priors, start=best, max_iter=steps)
        marginal = study.fit(study.small[0], model, "svi", climb)
        higher = elbo_marginal(marginal, MARGINAL * study.effort.draws, study.seed)
        claim = Claim(11, f"{model}: coordinate ascent ≤ SVI on the marginal bound", "Jensen")
        gap = f"± {higher.se:.2g}; the gap is what allocations in q cost"
        yield claim.at_most(value, higher.mean, WIDE * higher.se, together(note, gap))


def monotone(study: Study) -> Iterator[Row]:
    """The step of any run so far that comes nearest to a fall."""
    claim = Claim(12, "every run is monotone: before ≤ after", "[GP], [C], [P], [K]")
    worst, found = -np.inf, None
    for label, trace, tolerance in study.traces:
        falls = trace[:-1] - trace[1:]
        if len(falls) and not (excess := float(np.max(falls - tolerance))) <= worst:
            at = int(np.argmax(falls))
            worst, found = excess, (label, float(trace[at]), float(trace[at + 1]), tolerance)
    if found is None:
        yield claim.missing("no run had two iterates")
        return
    label, before, after, tolerance = found
    note = f"nearest to a fall among {len(study.traces)} runs: {label}"
    yield claim.at_most(before, after, tolerance, note)
