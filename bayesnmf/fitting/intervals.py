"""Put draws beside the mean field of a fit by vi, or beside a point estimate, from which its intervals are read.

Mean-field intervals are too narrow, and points have none. `Fit.with_intervals` and `VI(intervals=...)` choose what
every table, figure and report has instead where it has intervals or probabilities; the words there name it:

sampled
    Draws of one short chain of marginal Gibbs sampling from the fit (`bayesnmf.results.intervals`): 50 sweeps of
    warm-up and 250 draws. They describe the posterior around the mode of the fit.
response
    Draws of linear response (`bayesnmf.assessment.linear_response`), which corrects widths, not the location of q.
bootstrap
    Estimates of 100 replicates of the counts, drawn from the fit and fitted as it was, by map, vi and bld
    (`bayesnmf.assessment.bootstrap`). They describe how the estimate varies from counts to counts, with its bias, not a
    posterior. Only `Fit.with_intervals` makes them. With `variation="rows"`, of vi, replicates are of other rows, drawn
    with replacement from these: intervals of the components, and of contrasts of features (`markers`), are of what
    other rows of the same kind would have shown. They know of modes that compete, take two fits for a replicate, and
    are wide where rows are few.
mean_field
    q itself.
auto
    Draws that the fit has already. Else "sampled" if this is expected to take at most 5 s, or as long as the fit took,
    up to a minute; else "mean_field". The first reader of intervals samples, with the seed of the fit, so that fits and
    studies take no longer; what it made is not saved with the fit.

q stays in `Fit.posterior`, and `Fit.sample_posterior` draws from it. Loadings, components, scale and trace stay as they
are. A chain needs whole counts in memory and a posterior of the components; what lacks these has "mean_field", and is
refused if "sampled" is asked for by name.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any, get_args

from bayesnmf.checks import check_choice, check_count, check_seed
from bayesnmf.data.counts import Counts
from bayesnmf.data.suspicions import PACKAGE
from bayesnmf.fitting.job import ProgressReport, progress_context
from bayesnmf.inference.status import BROKEN, FitWarning
from bayesnmf.options.checks import check_threads
from bayesnmf.options.classes import INTERVALS
from bayesnmf.results.checks import check_can_have, check_variation
from bayesnmf.results.estimates import Intervals, Variation
from bayesnmf.results.intervals import (
    DRAWS,
    WARMUP,
    fault_of_parts,
    fault_of_sampling,
    sample_around,
    samples_by_itself,
)
from bayesnmf.results.record import FitRecord

NEEDED = {"sampled": "entries", "response": "response"}  # optional parts of the families of priors
MAKERS = {  # imported when the first draws are made
    "response": ("bayesnmf.assessment.linear_response", "draws_of_response"),
    "bootstrap": ("bayesnmf.assessment.bootstrap", "draws_of_bootstrap"),
}
BOOTSTRAP, REPLICATES = "bootstrap", 100


def with_intervals(
    fit: FitRecord,
    intervals: str = "auto",
    warmup: int = WARMUP,
    draws: int | None = None,
    seed: int | None = None,
    threads: int | None = None,
    progress: ProgressReport | bool | None = None,
    variation: Variation = "counts",
) -> FitRecord:
    """Return a fit with what its intervals are read from; the given one stays as it is.

    Parameters
    ----------
    fit : Fit
        Fit by vi; by map or bld for "bootstrap".
    intervals : {"auto", "sampled", "response", "bootstrap", "mean_field"}
        Where intervals are read from (above).
    warmup : int
        Number of warm-up sweeps of a chain.
    draws : int, optional
        Number of draws or replicates: by default 250 draws, or 100 replicates.
    seed : int, optional
        Seed of the draws; by default that of the fit.
    threads : int, optional
        Number of threads, and of replicates that are fitted at once; what is drawn does not depend on it.
    progress : bool or callable, optional
        Progress report, as for `bayesnmf.fit`.
    variation : {"counts", "rows"}
        Of a bootstrap, what varies between replicates: the counts of these rows, or the rows.

    Raises
    ------
    TypeError, ValueError
        Unknown words or numbers; draws that cannot be made of this fit, if they are asked for by name.

    See Also
    --------
    bayesnmf.linear_response : Exact standard deviations, correlations and contrasts of linear response.

    Examples
    --------
    >>> import bayesnmf
    >>> fit = bayesnmf.fit([[30, 0, 9], [0, 21, 14], [51, 11, 0], [2, 33, 61]], rank=2, seed=0)
    >>> wider = fit.with_intervals("sampled", draws=100)
    >>> wider.intervals.draws.components.shape
    (1, 100, 2, 3)
    >>> point = bayesnmf.fit([[30, 0, 9], [0, 21, 14], [51, 11, 0], [2, 33, 61]], rank=2, method="map", seed=0)
    >>> print(point.with_intervals("bootstrap").summary(rows=[0]).attrs["note"])
    intervals: bootstrap, 100 replicates
    """
    check_choice(intervals, "intervals", (*INTERVALS, BOOTSTRAP))
    check_variation(check_choice(variation, "variation", get_args(Variation)), intervals)
    if draws is None:
        draws = REPLICATES if intervals == BOOTSTRAP else DRAWS
    sizes = check_count(warmup, "warmup", minimum=0), check_count(draws, "draws", minimum=8)
    chosen = check_seed(seed)
    check_threads(threads)
    if intervals != BOOTSTRAP and (fit.method != "vi" or intervals in NEEDED):
        check_can_have(intervals, fault_of_sampling(fit, sizes[1], NEEDED.get(intervals, "entries")))
    found = fit.intervals if intervals == "auto" else None
    samples = intervals == "auto" and found is None and samples_by_itself(fit, *sizes)
    if samples or intervals in (*NEEDED, BOOTSTRAP):
        with progress_context(progress) as report:
            make = _maker("sampled" if samples else intervals)
            if intervals == BOOTSTRAP:
                make = partial(make, variation=variation)
            found = make(fit, sizes, fit.seed if chosen is None else chosen, threads, report)
    given: Any = fit.options
    options = given if intervals == BOOTSTRAP else replace(given, intervals=intervals)
    return replace(fit, intervals=found, options=options)


def check_intervals(options: Any, counts: Counts, rank: int) -> None:
    """Refuse options of vi that name intervals which a fit of these counts cannot have."""
    fault = fault_of_parts(counts, options.priors, rank, DRAWS, NEEDED[options.intervals])
    check_can_have(options.intervals, fault)


def with_own_posterior[T](options: T) -> T:
    """Return options for a comparison of methods, in which "auto" is q: the posterior that the method itself finds."""
    if getattr(options, "intervals", "") != "auto":
        return options
    return replace(options, intervals="mean_field")  # type: ignore[type-var]


def with_named_intervals(fit: FitRecord, report: ProgressReport) -> FitRecord:
    """Return a fit that has ended with the intervals that its options name; after Ctrl-C, without."""
    options: Any = fit.options
    intervals = options.intervals
    if fit.status.reason in BROKEN:
        return fit
    try:
        return replace(fit, intervals=_maker(intervals)(fit, (WARMUP, DRAWS), fit.seed, options.threads, report))
    except KeyboardInterrupt:
        text = f"were interrupted, and are those of the mean field; make them with fit.with_intervals({intervals!r})"
    except ValueError as error:  # a linear response that does not exist
        text = f"are those of the mean field: {error}"
    warnings.warn(f"its intervals {text}", FitWarning, skip_file_prefixes=(PACKAGE,))
    return fit


def _maker(intervals: str) -> Callable[..., Intervals]:
    """Return the function that makes draws."""
    if intervals == "sampled":
        return sample_around
    module, name = MAKERS[intervals]
    made: Callable[..., Intervals] = getattr(import_module(module), name)
    return made
