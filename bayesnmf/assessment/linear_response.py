"""Linear response: intervals of a variational fit that include how loadings and components move together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bayesnmf.assessment.bounds import elbo_augmented, state_of_fit
from bayesnmf.assessment.checks import check_response
from bayesnmf.assessment.response_quantities import NOT_OPTIMAL, warn
from bayesnmf.assessment.response_tables import LinearResponse
from bayesnmf.checks import check_size
from bayesnmf.data.several import check_of_all
from bayesnmf.fitting.fitted import Fit
from bayesnmf.fitting.job import ProgressReport, progress_context
from bayesnmf.inference import alignment
from bayesnmf.inference.response.continuing import GRADIENT, MOST_STEPS, Optimum, continue_to_optimum
from bayesnmf.inference.response.spread import Responses
from bayesnmf.inference.status import Status
from bayesnmf.options.checks import check_threads
from bayesnmf.priors.values import separate_scale
from bayesnmf.results.checks import check_no_scale_beside_missing
from bayesnmf.results.estimates import VariationalPosterior
from bayesnmf.results.record import FitRecord
from bayesnmf.types import Array

SAME = 0.95  # cosine of components that are taken to be the same
LARGEST = 64 * 2**30  # bytes
CURE = "give rows, as in fit.project(fit.counts.rows(range(1000))), with given_components=True"


def linear_response(
    fit: FitRecord,
    *,
    given_components: bool = False,
    threads: int | None = None,
    progress: ProgressReport | bool = False,
) -> LinearResponse:
    """Prepare wider intervals for a fit by vi: those of its linear response (Giordano, Broderick & Jordan 2018).

    Mean-field intervals are too narrow, because q ignores how loadings and components move together. How q changes when
    the log joint is tilted a little estimates the covariances with that coupling. It corrects the spread, not the
    location of q, the shape of its tails, or other modes. The fit is first continued to its optimum in float64 by
    Newton's method. Counts on disk are read into memory, where K (K + 12) numbers of each row are beside them.

    Parameters
    ----------
    fit : Fit
        Fit by vi, with the counts that it was fitted to.
    given_components : bool
        Whether to hold the components at what they are in the fit, so that only loadings are uncertain given these.
        It is necessary for components="parameter", which have no q, and for new rows by `Fit.project`.
    threads : int, optional
        Number of threads; by default all.
    progress : bool or callable
        Progress report, as for `bayesnmf.fit`.

    Returns
    -------
    LinearResponse
        Tables, correlations and draws of chosen entries; it says how far the fit moved.

    Raises
    ------
    TypeError, ValueError
        A fit by another method; components that are parameters or held, without `given_components`.

    See Also
    --------
    LinearResponse : what it returns.
    Fit.with_intervals : the same for all tables and figures of a fit.

    Examples
    --------
    >>> import bayesnmf
    >>> fit = bayesnmf.fit([[30, 0, 9], [0, 21, 14], [51, 11, 0], [2, 33, 61]], rank=2, seed=0)
    >>> response = bayesnmf.linear_response(fit)
    >>> list(response.summary(rows=[0]).columns)
    ['mean', 'sd', 'mean_field_sd', 'lower', 'upper']
    """
    check_response(fit, given_components)
    check_of_all(fit, "standard deviations of linear response")
    check_threads(threads)
    check_size(_bytes_of(fit), LARGEST, f"linear response of {len(fit.loadings):,} rows at once", CURE)
    fit = replace(fit, counts=fit.counts.at_hand())
    check_no_scale_beside_missing(fit, "linear response")
    problem, state = state_of_fit(fit)
    problem = replace(problem, fixed_components=given_components)
    with progress_context(progress) as report:
        found = continue_to_optimum(
            problem, state, threads, lambda done, size: report("continuing", done, MOST_STEPS, size)
        )
    if found.gradient > GRADIENT:
        warn(NOT_OPTIMAL.format(found.gradient))
    continued = _continued(fit, found)
    _warn_of_other_components(fit, continued)
    known = {"the learned values": fit.priors is not fit.options.priors, "the components": given_components}
    given = " and ".join(what for what, holds in known.items() if holds)
    gained = elbo_augmented(continued) - elbo_augmented(fit)
    moved = _largest_move(fit, continued)
    about = moved, gained, found.gradient, found.steps, f"given {given}" if given else ""
    return LinearResponse(continued, *about, Responses(found.coupled, threads))


def _bytes_of(fit: FitRecord) -> int:
    """Return the memory that the response takes: a K × K inverse and some 12 numbers a loading, beside the counts."""
    return 8 * fit.loadings.size * (fit.rank + 12) + 12 * fit.counts.nnz


def _continued(fit: FitRecord, found: Optimum) -> Fit:
    """Return the fit at its optimum."""
    state: Any = found.coupled.state
    loadings, scale = separate_scale(state.loadings.value)
    status = Status(
        found.gradient <= GRADIENT,
        f"continued by Newton's method to a gradient of {found.gradient:.1e}",
        fit.status.iterations + found.steps,
    )
    q: list[Any] = [None if side.conditional is None else side.conditional.mapped(_own) for side in state]
    parts: dict[str, Any] = {
        "counts": fit.counts.as_type(np.float64),
        "loadings": np.ascontiguousarray(loadings),
        "components": np.ascontiguousarray(state.components.matrix),
        "estimate": VariationalPosterior(*q),
        "intervals": None,
    }
    return Fit.of(replace(fit, scale=scale, status=status, **parts))


def _warn_of_other_components(before: FitRecord, after: FitRecord) -> None:
    """Warn if the optimum has other components than the given fit."""
    cosine = float(np.min(alignment.fit_cosines(before, after, np.arange(before.rank)), initial=1.0))
    if cosine < SAME:
        warn(
            f"the components changed on the way to the optimum (smallest cosine {cosine:.3f}): linear response is that "
            "of response.fit, not of the given fit; fit with a smaller tol, and give a fit of its own counts"
        )


def _own(value: Array) -> Array:
    """Return a parameter in memory of its own, without padding."""
    return np.array(value, order="K")


def _largest_move(before: FitRecord, after: FitRecord) -> float:
    """Return the largest distance between the means of two fits, in standard deviations of the second."""
    largest = 0.0
    for side in ("loadings", "components"):
        sd = after.estimate.sd(after, side)
        if sd is not None:
            distance = np.abs(getattr(after, side) - getattr(before, side))
            largest = max(largest, float(np.max(distance[sd > 0] / sd[sd > 0], initial=0.0)))
    return largest
