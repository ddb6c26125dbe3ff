"""Statement 10: allocations sum to the evidence, bounds stay below it, and a decomposition climbs to log p(S)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np

from bayesnmf.assessment.bounds import elbo_augmented, elbo_marginal
from bayesnmf.assessment.evidence import MOST_ALLOCATIONS, log_evidence
from bayesnmf.data.counts import Counts
from bayesnmf.inference.marginal.evidence import MOST_DIGITS, count_allocations, digits_of_allocations
from bayesnmf.inference.status import ConvergenceWarning
from bayesnmf.options import BLD
from bayesnmf.priors import Dirichlet, Priors, ScaledDirichlet
from bayesnmf.theorems import explicit
from bayesnmf.theorems.study import Study, joined_notes, permitted_errors, plain_map, plain_vi, rounding_of_bound
from bayesnmf.theorems.table import Claim, Row

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
    before = explicit.log_p_decomposition(counts, (kl_nmf.loadings, kl_nmf.components), ALPHA, ETA, scale)
    assert best.multipliers is not None
    after = explicit.log_p_decomposition(counts, best.multipliers, ALPHA, ETA, scale)
    tolerance = rounding_of_bound(counts, study.rank)
    claim = Claim(10, "log p(S) of KL-NMF: kernel = formula", SOURCE)
    yield claim.equal(float(best.trace[0]), before, tolerance, note)
    claim = Claim(10, "log p(S) of the best decomposition: kernel = formula", SOURCE)
    yield claim.equal(float(best.trace[-1]), after, tolerance, note)
    claim = Claim(10, "log p(S) of KL-NMF ≤ log p(S) of the best decomposition from there", "[K] 10-16")
    yield claim.at_most(before, after, tolerance, joined_notes(note, f"{UPDATES} updates"))
