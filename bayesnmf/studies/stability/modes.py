"""`modes`: which of the many factorisations, how good each is, and what they have in common.

A factorisation has many modes: fits from other starts end in other optima of one objective. `modes` fits from many
starts, groups the fits (`bayesnmf.studies.stability.grouping`), counts how often each component comes back (`tables`),
scores the best modes by held-out counts (`predicting`) and stacks their predictions (`stacking`).

By default every run starts at random (``start="random"``; for vi ``"random_descent"``, without which it ends in poor
modes of its own where priors are sparse), while `bayesnmf.fit` by default starts from the counts, which avoids poor
modes and hides that there are many. So the shares of modes say how rugged the objective is.

The share of a mode is not its posterior probability: it depends on how many starts lead to the mode, not on the mass
around it. Distances between objectives are not log-ratios of masses either, as the bound of vi is loose by an amount
that differs from mode to mode; `elbo_marginal` is tighter. Stacking weights say which modes to use for predictions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesnmf.checks import check_count, check_fraction
from bayesnmf.data.batches import served_with_batch, with_batch
from bayesnmf.data.blocks.opening import open_counts
from bayesnmf.data.checks import check_start_has_seeds
from bayesnmf.data.counts import Counts
from bayesnmf.data.covariates.design import read_given
from bayesnmf.data.exposures import with_exposures
from bayesnmf.data.missing import with_missing, without_missing
from bayesnmf.data.seeds import Seeds
from bayesnmf.fitting.fitted import Fit
from bayesnmf.fitting.job import ProgressReport, check_combination, progress_context, resolve_priors
from bayesnmf.fitting.known import Beforehand, given_of
from bayesnmf.fitting.many import number_of_jobs
from bayesnmf.noise.abilities import Noise
from bayesnmf.options import METHODS, Options
from bayesnmf.options.checkpoint import Checkpoint, as_checkpoint
from bayesnmf.options.checks import served_options
from bayesnmf.options.methods import allows_regression, explains_names, resolve_options
from bayesnmf.places import check_folder
from bayesnmf.priors.checks import check_noise
from bayesnmf.priors.pair import movable_components
from bayesnmf.priors.specification import model_and_rank
from bayesnmf.studies.stability.checks import check_has_objective, check_scored
from bayesnmf.studies.stability.grouping import found_in, group_fits, least_cosine
from bayesnmf.studies.stability.predicting import bounds_of, predict_held_out, scores_of
from bayesnmf.studies.stability.result import Modes
from bayesnmf.studies.stability.running import MOST_STARTS, Runs, fit_from_starts, varied_options, with_one_power
from bayesnmf.studies.stability.stacking import Stacking, stack
from bayesnmf.studies.stability.tables import mode_table, recurrence_table, run_table
from bayesnmf.types import MethodName, ModelName, NoiseName

if TYPE_CHECKING:
    import pandas as pd


@explains_names
def modes(
    counts: Any,
    model: ModelName | int = "gamma_poisson",
    rank: int | None = None,
    method: MethodName = "vi",
    *,
    starts: int = 20,
    options: Options | None = None,
    fixed_components: Any = None,
    seeds: Mapping[str, Sequence[Any]] | Seeds | str | Path | None = None,
    formula: str | None = None,
    covariates: Any = None,
    noise: NoiseName | Noise = "poisson",
    observed: Any = None,
    missing: Any = None,
    batch: Any = None,
    row_exposure: Any = None,
    feature_exposure: Any = None,
    threshold: float = 0.95,
    scored: int | None = None,
    keep: float = 0.9,
    seed: int = 0,
    jobs: int | None = None,
    checkpoint: str | Path | Checkpoint | None = None,
    progress: ProgressReport | bool = False,
) -> Modes:
    """Fit from many random starts; return the different factorisations, how good each is, and what comes back in all.

    Parameters
    ----------
    counts : array, SciPy sparse matrix, pandas DataFrame, AnnData, nested list, path or Blocks, (n, m)
        Counts, as for `bayesnmf.fit`; whole numbers for held-out scores.
    model : str
        Name of the model, as for `bayesnmf.fit`.
    rank : int, optional
        Number of components, as for `bayesnmf.fit`.
    method : {"map", "vi", "bld"}
        Method of the fits, as for `bayesnmf.fit`.
    starts : int
        Number of runs. A run depends on `seed` and its own number alone, so more starts add runs.
    options : MAP, VI or BLD, optional
        Options of the fits, by default with a random start and one thread (see `bayesnmf.studies.stability.modes`).
    fixed_components : array, DataFrame (r, m), Fit or path of a catalogue, optional
        Known components, as for `bayesnmf.fit`.
    seeds : mapping of names to lists of features, Seeds or path of a .gmt file, optional
        Features that the first components are to have, as for `bayesnmf.fit`.
    formula : str, optional
        What loadings depend on, as for `bayesnmf.fit`.
    covariates : DataFrame, Series, mapping of columns or array (n, p), optional
        Columns that `formula` names, as for `bayesnmf.fit`.
    noise : {"poisson", "nb1", "nb2", "quasi", "zip"}, NegativeBinomial, Quasi or ZeroInflated
        Noise of every run, with a dispersion of its own if it is learned; "quasi" has that of a fit from the counts.
    observed : booleans (n, m), optional
        Where somebody counted, as for `bayesnmf.fit`.
    missing : booleans (n, m), "nan" or "zeros", optional
        Where nobody counted, as for `bayesnmf.fit`.
    batch : labels (n,) or Batch, optional
        The batch of each row, as for `bayesnmf.fit`.
    row_exposure : array, mapping or Series (n,), optional
        Multiplies the expected counts of each sample, as for `bayesnmf.fit`.
    feature_exposure : array, mapping or Series (m,), optional
        Multiplies the expected counts of each feature, as for `bayesnmf.fit`.
    threshold : float
        Cosine that all matched components of two runs of one mode exceed.
    scored : int, optional
        Largest number of modes to score by held-out counts; by default 10, or 0 if counts are not whole numbers.
    keep : float
        Probability with which a count is a training count for these scores.
    seed : int
        Seed from which each run has its own.
    jobs : int, optional
        Number of fits side by side, by default one for each core; results do not depend on it.
    checkpoint : str, path or Checkpoint, optional
        Folder that keeps the fits; the same call makes those that are missing. `starts`, `threshold`, … may differ.
    progress : bool or callable
        Progress report, as for `bayesnmf.fit`. Ctrl-C returns the modes of the runs that have ended, if any.

    Returns
    -------
    Modes

    Raises
    ------
    TypeError, ValueError
        Invalid arguments, before the first fit; a folder with fits of other counts or settings.

    See Also
    --------
    Modes : what it returns.
    plots.modes : draws it.
    select : by how many components.

    Examples
    --------
    >>> import bayesnmf
    >>> drawn = bayesnmf.simulate(size=(60, 12), rank=2, seed=0)
    >>> bayesnmf.modes(drawn.counts, rank=2, starts=3).table["runs"].tolist()
    [3]
    """
    model, rank = model_and_rank(model, rank)
    method, noise = check_has_objective(method), check_noise(noise)
    starts, seed = check_count(starts, "starts", most=MOST_STARTS), check_count(seed, "seed", minimum=0)
    (rank, given), options = given_of(rank, fixed_components, seeds), varied_options(options, method)
    plain, own = without_missing(counts, missing)
    data = with_batch(open_counts(plain, getattr(options, "dtype", "float64"), missing=missing), batch, counts)
    given = given._replace(covariates=read_given(formula, covariates, counts, data))
    data = with_missing(with_exposures(data, row_exposure, feature_exposure), own, observed, missing)
    settings = check_fraction(threshold, "threshold"), check_fraction(keep, "keep"), check_scored(scored, data)
    options = _completed(options, data, noise, model, method, (rank, given))
    jobs, kept = number_of_jobs(jobs, starts, options), as_checkpoint(checkpoint)
    if kept is not None:
        check_folder(kept.folder, "checkpoint", private=True)
    runs = Runs(data, model, rank, method, options, seed, jobs, kept, noise, given.names)
    with progress_context(progress) as report:
        return _modes_of(with_one_power(runs, report), starts, settings, report)


def _completed(options: Any, data: Counts, noise: Noise, model: str, method: str, parts: tuple[int, Beforehand]) -> Any:
    """Return the options with priors and defaults filled in; refuse combinations that cannot be fitted."""
    rank, given = parts
    priors = resolve_priors(model, data, rank, options.priors, given, METHODS[method].default_shapes)
    check_start_has_seeds(options.start, given.seeds)
    plain = data.mask is not None or data.batch is not None or not allows_regression(noise, priors)
    options = resolve_options(replace(options, priors=priors), bool(data.rows_held), plain)
    check_combination(model, method, rank, data, options)
    options = served_options(options, noise, method, data)
    return options if data.batch is None else served_with_batch(options, method, model, noise, data)


def _modes_of(runs: Runs, starts: int, settings: tuple[float, float, int], report: ProgressReport) -> Modes:
    """Fit from every start, group the fits into modes, and score the best of these."""
    threshold, keep, scored = settings
    by_start, damaged, interrupted = fit_from_starts(runs, starts, report)
    ended = sorted(by_start)
    fits = [by_start.pop(start) for start in ended]
    found, movable = [found_in(each) for each in fits], movable_components(fits[0].priors, runs.rank)
    groups = group_fits(found, [each.trace[-1] for each in fits], movable, threshold)
    cosines = [
        least_cosine(each, found[groups.leaders[mode]], movable) for each, mode in zip(found, groups.mode, strict=True)
    ]
    by_run = run_table(ended, fits, groups, cosines)
    leaders = [fits[leader] for leader in groups.leaders]
    fits.clear()  # keeps only the best fit of each mode
    by_mode, stacked = mode_table(by_run), None
    if scored and not interrupted:
        scores, stacked, interrupted = _score(runs, leaders[:scored], keep, report)
        by_mode = by_mode.join(scores)
    return Modes(
        table=by_mode,
        runs=by_run,
        components=recurrence_table(found, groups, movable, threshold),
        fits=leaders,
        stack=stacked,
        run_components=np.stack([each.components for each in found]),
        run_sizes=np.stack([each.size for each in found]),
        options=runs.options,
        noise=runs.noise,
        threshold=threshold,
        keep=keep,
        seed=runs.seed,
        damaged=tuple(damaged),
        interrupted=interrupted,
    )


def _score(
    runs: Runs, fits: list[Fit], keep: float, report: ProgressReport
) -> tuple[pd.DataFrame, Stacking | None, bool]:
    """Return columns of the table of modes, the stacking of those that were scored, and whether Ctrl-C came."""
    import pandas as pd

    columns: dict[str, Any] = {}
    stacked, interrupted = None, False
    try:
        predictions, interrupted = predict_held_out(runs, fits, keep, report)
        if predictions is not None:
            stacked = stack(predictions, runs.seed)
            movable = movable_components(fits[0].priors, runs.rank)
            pairs = zip(predictions.refits, fits, strict=False)
            columns = scores_of(predictions)
            columns["refit_cosine"] = [least_cosine(found_in(one), found_in(mode), movable) for one, mode in pairs]
            columns["weight"] = stacked.weights.tolist()
            columns |= bounds_of(fits[: len(predictions.refits)], runs.seed)
    except KeyboardInterrupt:
        interrupted = True
    return pd.DataFrame(columns), stacked, interrupted
