"""Predict one half of the features of rows that no fit has seen from the other half.

The loadings of a row given its counts of the shown features S have a variational posterior q, in which component k has
the exposure Σ_{j in S} β_kj, with the components at their posterior means. The counts of the hidden features are then
multinomial given their total, with probabilities in proportion to Σ_k θ_k β_kj. Unlike two halves of the counts of a
entry, counts of different entries share no excess beyond the components.

Proportions without a free scale are θ_k = g π_k with g ~ Gamma(Σ α, ρ), where ρ makes the prior mean of the shown total
the observed one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.assessment.scoring import MIXED, entry_probabilities
from bayesnmf.data.counts import Counts
from bayesnmf.fitting.fitted import Fit
from bayesnmf.inference.ascent.settled_loadings import even_loadings, settle_loadings
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.side import MeanField, Mode
from bayesnmf.priors import Gamma
from bayesnmf.types import Array

MAX_ITER, TOL = 500, 1e-6
DRAWS = 100
STAND_IN = Gamma(1.0, 1.0)  # no prior of the components is used, but their sums, which differ from 1


def hidden_features(features: int, rng: np.random.Generator) -> Array:
    """Return which features are hidden, half of them, (m,)."""
    hidden = np.zeros(features, bool)
    hidden[rng.permutation(features)[: features // 2]] = True
    return hidden


def predict_hidden(
    fit: Fit, rows: Counts, hidden: Array, frequencies: Array, seed: int, first: int = 0
) -> tuple[Array, Array]:
    """Return the log-probability of the hidden counts of new rows, and their number, (rows,) each.

    Parameters
    ----------
    rows : Counts
        All counts of the rows.
    hidden : ndarray (m,) of bool
        Features to predict.
    frequencies : ndarray (m,)
        Frequencies of the features, which are mixed in as in `bayesnmf.assessment.scoring.score`.
    seed : int
        Seed of the draws of the loadings.
    first : int
        Place of the first row among all rows that are predicted with this seed.
    """
    shown, asked = _part(rows, ~hidden), _part(rows, hidden).matrix
    components = np.asarray(fit.exposed_components, np.float64)
    q: Any = _loadings_given(fit, shown, components * ~hidden)
    of_hidden, shares = components * hidden, frequencies / frequencies[hidden].sum()
    places = np.repeat(np.arange(asked.shape[0]), np.diff(asked.indptr))
    total, rng = np.full(asked.shape[0], -np.inf), np.random.default_rng(seed)
    for _ in range(DRAWS):
        p = entry_probabilities(asked, places, q.draw_rows(rng, first), of_hidden)
        logs = asked.data * np.log((1 - MIXED) * p + MIXED * shares[asked.indices])
        total = np.logaddexp(total, np.bincount(places, weights=logs, minlength=asked.shape[0]))
    return total - np.log(DRAWS), _part(rows, hidden).row_totals


def _part(rows: Counts, kept: Array) -> Counts:
    """Return the counts of some features; those of the others are 0."""
    matrix = rows.matrix.astype(np.float64)
    matrix.data = matrix.data * kept[matrix.indices]
    matrix.eliminate_zeros()
    return Counts(csr_array(matrix), rows.row_names, rows.feature_names, rows.row_exposure)


def _loadings_given(fit: Fit, shown: Counts, components: Array) -> Any:
    """Return q of the loadings of new rows given components that are 0 at the hidden features."""
    prior = loadings_prior(fit, shown, components)
    problem = Problem(shown, prior, STAND_IN, MeanField(component_axis=1), Mode(estimated=True), fixed_components=True)
    side = Mode(estimated=True).at(STAND_IN, np.asfortranarray(components))
    state = State(even_loadings(problem, side, fit.rank), side)
    found: Any = settle_loadings(problem, state, TOL, MAX_ITER, None).state
    return found.loadings.conditional


def loadings_prior(fit: Fit, shown: Counts, components: Array) -> Any:
    """Return a positive prior of the loadings of new rows."""
    prior: Any = fit.priors.loadings.of_new_rows(fit.loadings)  # type: ignore[union-attr]
    if prior.support == "positive":
        return prior
    alpha = np.broadcast_to(getattr(prior, "proportions", prior).concentration, (1, fit.rank))
    total = np.maximum(shown.row_totals[:, None], 1.0) / shown.row_factor
    return Gamma(alpha, np.asarray((alpha @ components.sum(axis=1))[:, None] / total))
