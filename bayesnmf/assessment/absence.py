"""A Bayes factor for the absence of a component from a sample, by a refit of the sample without it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit, logit

from bayesnmf.assessment.checks import check_can_be_absent, check_component_numbers
from bayesnmf.checks import check_fraction
from bayesnmf.data.checks import check_complete
from bayesnmf.data.counts import Counts
from bayesnmf.fitting.job import ProgressReport, progress_context
from bayesnmf.inference.ascent.settled_loadings import even_loadings, settle_loadings
from bayesnmf.inference.ascent.single_rows import row_blocks_of
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.side import MeanField, Mode, Side
from bayesnmf.inference.sides import exposure_of_loadings, spread_at
from bayesnmf.kernels.cpu.clusters import cluster_sums
from bayesnmf.priors import Distribution
from bayesnmf.results.given_components import components_of
from bayesnmf.results.record import FitRecord
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd

TOL, MAX_ITER = 1e-8, 2000
NONZEROS = 200_000  # in a block
INSTEAD = "absence will be removed: use bayesnmf.assign(counts, catalogue), whose chances are calibrated"
UNCALIBRATED = "scores of absence are no calibrated chances: rank by them, and set a limit by simulated samples"


def absence(
    fit: FitRecord,
    components: Iterable[int] | None = None,
    *,
    prior: float = 0.5,
    progress: ProgressReport | bool = False,
) -> pd.DataFrame:
    """Return a score from 0 to 1 for the absence of a component from a sample; it is no calibrated chance.

    Deprecated: the chances of `bayesnmf.assign` are calibrated.
    The models here give every component a positive loading in every sample, so this compares two models of a sample:
    with all components, and without one of them. Both have the prior of the loadings of the fit, and the components of
    the fit as they are. A sparse prior, with a shape or concentration below 1, allows a loading so near 0 that both
    models say the same; the loading in question then has shape or concentration 1 in the model with it. The Bayes
    factor is estimated by variational bounds: the elbo of the sample's loadings, fitted with and without it. Where the
    bound is less tight with the component than without, the score is too high, and counts that the fit does not explain
    make it too low. Use it to rank components, with a limit that simulated samples confirm.

    Parameters
    ----------
    fit : Fit
        Fit by vi or svi, of at least two components.
    components : iterable of int, optional
        Numbers of components; by default all.
    prior : float
        Prior chance that a component is absent, between 0 and 1.
    progress : bool or callable
        As for `bayesnmf.fit`, over the refits.

    Returns
    -------
    DataFrame
        Scores with the names of the rows, and a column for each component; ``attrs["cautions"]`` says what they are.

    Raises
    ------
    TypeError, ValueError
        A fit by another method or of one component, or a component that it does not have.

    See Also
    --------
    assign : what to call instead.

    Examples
    --------
    >>> import bayesnmf
    >>> known = [[0.9, 0.1, 0.0], [0.0, 0.2, 0.8]]
    >>> fit = bayesnmf.fit([[40, 6, 0], [18, 9, 21]], rank=2, seed=0, fixed_components=known)
    >>> bayesnmf.absence(fit).round(1)  # doctest: +SKIP
         0    1
    0  0.0  1.0
    1  0.0  0.0
    """
    import pandas as pd

    warnings.warn(INSTEAD, DeprecationWarning, stacklevel=2)
    check_can_be_absent(fit)
    check_complete(fit.counts, "absence")
    numbers, odds = check_component_numbers(components, fit.rank), logit(check_fraction(prior, "prior"))
    of_rows: Any = fit.priors.loadings.of_new_rows(fit.loadings)  # type: ignore[union-attr]
    whole, counts = components_of(fit), fit.working_counts
    chances = {}
    with progress_context(progress) as report:
        with_all = None if of_rows.smallest_shape < 1 else row_bounds(counts, of_rows, whole)
        for done, number in enumerate(numbers, 1):
            present = row_bounds(counts, _present(of_rows, number, fit.rank), whole) if with_all is None else with_all
            chances[number] = expit(odds + _bounds_without(counts, of_rows, whole, number) - present)
            report("refits without a component", done, len(numbers), np.nan)
    table = pd.DataFrame(chances, index=fit.row_names)
    table.attrs["cautions"] = [UNCALIBRATED]
    return table


def _bounds_without(counts: Counts, prior: Any, components: Side, number: int) -> Array:
    """Return the elbo of every row's loadings without one of the components, (n,)."""
    left = np.delete(np.arange(len(components.geometric)), number)
    part = Side(components.matrix[left], components.geometric[left], components.log_shift, 0.0)
    return row_bounds(counts, prior.mapped(lambda value: _chosen(value, left)), part)


def _present(prior: Any, number: int, rank: int) -> Any:
    """Return a prior of loadings in which one component has shape or concentration 1, and its mean is the same."""
    name = "concentration" if "concentration" in prior.parameters else "shape"
    given = prior.parameters[name]
    raised = np.array(np.broadcast_to(given, (*np.shape(given)[:-1], rank)))
    raised[..., number] = np.maximum(raised[..., number], 1.0)
    changed = {name: raised}
    if name == "shape":
        changed["rate"] = prior.rate * raised / given
    return replace(prior, **changed)


def _chosen(value: Array, left: Array) -> Array:
    """Return a parameter of the loadings for some components; one that all components share stays as it is."""
    return value[..., left] if value.ndim and value.shape[-1] == len(left) + 1 else value


def row_bounds(counts: Counts, prior: Distribution, components: Side) -> Array:
    """Return the elbo of every row's loadings given the components, (n,), without Σ log X! and Σ X log(r c).

    Loadings start from equal shares and settle row by row. Where counts cluster, L takes the place of X log mean.
    """
    summary, rank = MeanField(component_axis=1), len(components.geometric)
    bounds = np.empty(counts.shape[0])
    for block, part in row_blocks_of(counts, NONZEROS):
        problem = Problem(part, prior.rows(block), prior, summary, Mode(), fixed_components=True)
        state = State(even_loadings(problem, components, rank), components)
        loadings: Any = settle_loadings(problem, state, TOL, MAX_ITER, None).state.loadings
        fitted = _fitted_of_rows(part, State(loadings, components))
        q = loadings.conditional.broadcast((part.shape[0], rank))
        own = problem.loadings_prior.broadcast((part.shape[0], rank))
        divergence = [summary.of(own.rows([i]), q.rows([i])).penalty for i in range(part.shape[0])]
        expected = (loadings.matrix * exposure_of_loadings(problem, components)).sum(axis=1)
        bounds[block] = fitted - expected + divergence
    return bounds


def _fitted_of_rows(counts: Counts, state: State) -> Array:
    """Return Σ X log(UV) of every row, or ΣL where counts cluster, (n,)."""
    (loadings, components), entries, spread = state, counts.matrix.tocoo(), spread_at(counts, state)
    logs = np.zeros(len(entries.data))
    if spread is None:
        logs = np.log(np.einsum("ck,kc->c", loadings.geometric[entries.row], components.geometric[:, entries.col]))
    logs += loadings.log_shift[entries.row, 0]  # type: ignore[index]
    if components.log_shift is not None:
        logs += components.log_shift[0, entries.col]
    fitted: Array = np.bincount(entries.row, entries.data * logs, minlength=counts.shape[0])
    if spread is not None:
        fitted += cluster_sums(counts.matrix, loadings.geometric, components.geometric, spread)[:, 0]
    return fitted
