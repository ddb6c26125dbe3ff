"""Factors of batches while a fit goes on: scales that the counts do not tell apart, and the shape of the prior.

The counts say nothing of the product of a feature's factors, against its components, nor of that of a batch's factors,
against the loadings of its rows. Updates of one at a time change these scales slowly. Along b ← e^v b, with the other
side times e^−v, the objective is p v − A e^v − D e^−v but for a constant, with p the sum of the shapes of the factors
less those of the others, A = Σ a b and D the sum of rates times means of the others: its maximum has a closed form.
Where v is drawn, that is its log density (`bayesnmf.inference.sampling.scales`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from bayesnmf.inference.blocked.passes import Pass, pass_over_rows
from bayesnmf.inference.dispersion import DispersionLearner
from bayesnmf.inference.evidence_of_dispersion import Evidence, ShapeEvidence
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.side import Side, empty_side
from bayesnmf.inference.sides import Where, with_rates_at
from bayesnmf.priors import Gamma, ScaledProportions
from bayesnmf.types import Array

NEAR = 1e-4  # change of the logarithm of a scale that is not worth new moments of a side


class Terms(NamedTuple):
    """Shapes of the prior, and rates times values, of each entry, or of the scales of rows."""

    shapes: Array
    rates: Array


def terms_of_side(prior: Any, side: Side, basis: str | None) -> Terms:
    """Return the terms of a side: those of entries, or where entries are proportions those of the scales of rows.

    Shared rates have their optimal q. The density of a mode in the natural basis has shapes that are smaller by 1.
    """
    value, q = side.value, side.conditional
    if isinstance(value, ScaledProportions):
        prior, value = prior.scale, value.scale
    elif q is not None:
        prior, _ = prior.expected_prior(q)
    elif (rates := prior.rates_given(value)) is not None:
        prior = Gamma(prior.shape, rates.mean())
    shape = np.broadcast_to(np.asarray(prior.shape, np.float64), value.shape)
    return Terms(shape - (1.0 if basis == "natural" else 0.0), np.asarray(prior.rate, np.float64) * value)


def scaled_side(side: Side, prior: Any, summary: Any, times: Array) -> Side:
    """Return a side of positive entries, or of proportions with scales, times factors of its rows or features."""
    q: Any = side.conditional
    if q is not None:
        rate = np.asarray(q.rate) / times
        found: Side = summary.of(prior, replace(q, rate=rate.astype(np.asarray(q.rate).dtype)))
        return found
    value: Any = side.value
    if isinstance(value, ScaledProportions):
        moved: Any = value._replace(scale=(value.scale * times).astype(value.scale.dtype))
    else:
        moved = (value * times).astype(value.dtype)
    at: Side = summary.at(prior, moved)
    return at


def moves_features(problem: Problem) -> bool:
    """Return whether the components of a feature can be scaled together: all are free, and positive."""
    prior = problem.components_prior
    return not problem.fixed_components and prior.support == "positive" and not prior.constants


def moves_rows(problem: Problem) -> bool:
    """Return whether the loadings of a row can be scaled together."""
    prior = problem.loadings_prior
    return prior.support in ("positive", "scaled simplex") and not prior.has_effects


type Choose = Callable[[Array, Array, Array], Array]
type TermsOf = Callable[[Any, Side, int], Terms]


def along_both(problem: Problem, state: State, terms_of: TermsOf, choose: Choose) -> tuple[State, Array]:
    """Return a state with the scales of features, then those of batches, changed, and factors (B, m) that go with it.

    Parameters
    ----------
    problem : Problem
        Problem of counts with factors.
    state : State
    terms_of : callable
        Terms of a side, given its prior and the first of its rows.
    choose : callable
        Function of p, A and D that returns v for each feature or batch; `NEAR` 0 changes nothing.
    """
    counts: Any = problem.counts
    factors, a = counts.factors, counts.shape_of_factors
    components = state.components
    if moves_features(problem):
        terms = terms_of(problem.components_prior, components, 0)
        v = choose(a * len(factors) - terms.shapes.sum(axis=0), a * factors.sum(axis=0), terms.rates.sum(axis=0))
        if np.abs(v).max() > NEAR:
            factors = factors * np.exp(v)
            own = problem.components_prior, problem.components_summary
            state = state._replace(components=scaled_side(components, *own, np.exp(-v)))
    if not moves_rows(problem):
        return state, factors

    def add(part: Problem, here: State, at: Where) -> tuple[None, None, Array]:
        terms, batches = terms_of(part.loadings_prior, here.loadings, at.rows.start), part.counts.batches  # type: ignore[attr-defined]
        return None, None, np.asarray(batches.sums(np.column_stack([each.sum(axis=1) for each in terms])))

    alone = State(state.loadings, empty_side())
    sums = pass_over_rows(problem, alone, add, Pass(writes=False, reads=False))[0].more
    v = choose(a * factors.shape[1] - sums[:, 0], a * factors.sum(axis=1), sums[:, 1])
    if not np.abs(v).max() > NEAR:
        return state, factors

    def scale(part: Problem, here: State, at: Where) -> tuple[Side, None, float]:
        times = np.exp(-v)[part.counts.batches.codes][:, None]  # type: ignore[attr-defined]
        return scaled_side(here.loadings, part.loadings_prior, part.loadings_summary, times), None, 0.0

    moved = state._replace(loadings=pass_over_rows(problem, alone, scale, Pass(reads=False))[1])
    return moved, factors * np.exp(v)[:, None]


def best_scales(power: Array, up: Array, down: Array) -> Array:
    """Return the v with the largest p v − A e^v − D e^−v; 0 where there is none."""
    root = np.sqrt(power**2 + 4 * up * down)
    top = np.where(power >= 0, power + root, 4 * up * down / np.where(power < 0, root - power, 1.0))
    return np.log(np.divide(top, 2 * up, out=np.ones_like(top), where=(top > 0) & (up > 0)))


class BatchLearner(DispersionLearner):
    """Moves the scales that counts do not tell apart to their best, and learns the shape of factors, at each state."""

    def evidence_at(self, problem: Problem, state: State) -> Evidence:
        """Return what the expected factors at a state say of their shape."""
        counts: Any = with_rates_at(problem, state, self.threads).counts
        return ShapeEvidence.at(counts)

    def may_fall(self, problem: Problem) -> bool:
        """Return whether a step of Newton's method may lower the objective."""
        return True

    def __call__(self, problem: Problem, state: State) -> tuple[Problem, State]:
        """Return the problem with a new shape and new priors, if these are learned, and the state of better scales."""
        problem = with_rates_at(problem, state, self.threads)
        counts: Any = problem.counts
        if not counts.held:
            basis = problem.loadings_summary.basis
            state, factors = along_both(
                problem, state, lambda prior, side, _: terms_of_side(prior, side, basis), best_scales
            )
            problem = replace(problem, counts=replace(counts, factors=factors))
        if counts.learns_shape:
            problem = self._with_dispersion(problem, state)
        return (problem, state) if self.then is None else self.then(problem, state)
