"""`select`: which model, and how many components."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bayesnmf.assessment.checks import check_ranks
from bayesnmf.assessment.predictive_checks import predictive_checks
from bayesnmf.checks import check_count, check_flag, check_words
from bayesnmf.data.blocks.opening import open_counts
from bayesnmf.data.checks import check_complete
from bayesnmf.data.conversion import check_integer_counts
from bayesnmf.data.counts import Counts
from bayesnmf.data.exposures import with_exposures
from bayesnmf.fitting.checkpointing import keep_each_fit, keep_loops
from bayesnmf.fitting.fit import fit
from bayesnmf.fitting.job import check_combination, resolve_priors
from bayesnmf.fitting.progress import ProgressReport, progress_context
from bayesnmf.fitting.settings import describe_options, digest_of_counts
from bayesnmf.inference.status import INTERRUPTED, FitWarning
from bayesnmf.options import VI, Options, options_of
from bayesnmf.options.checkpoint import Checkpoint, as_checkpoint
from bayesnmf.options.naming import explains_names
from bayesnmf.priors.checks import check_one_prior_for_all_rows
from bayesnmf.priors.specification import check_model
from bayesnmf.selection.by_evidence import by_evidence
from bayesnmf.selection.by_stability import by_stability
from bayesnmf.selection.checks import check_criterion, check_data, check_settings_of, share_withheld
from bayesnmf.selection.held_out import by_held_out_counts
from bayesnmf.selection.masked import by_masked_cells
from bayesnmf.selection.result import Candidate, Selection
from bayesnmf.selection.study import Study


@explains_names
def select(
    counts: Any,
    models: Iterable[str] | str = ("gamma_poisson",),
    ranks: Iterable[int] | int = (2, 3, 4, 5, 6, 8, 10),
    method: str | None = None,
    *,
    criterion: Literal["heldout", "masked", "evidence", "stability"] = "heldout",
    splits: int | None = None,
    keep: float | None = None,
    withhold: float | None = None,
    halves: int | None = None,
    check: bool = True,
    seed: int = 0,
    options: Options | None = None,
    row_exposure: Any = None,
    feature_exposure: Any = None,
    checkpoint: str | Path | Checkpoint | None = None,
    progress: ProgressReport | bool = False,
) -> Selection:
    """Rank models and numbers of components by held-out counts, evidence or stability.

    Parameters
    ----------
    counts : array, SciPy sparse matrix, pandas DataFrame, AnnData, nested list, path or Blocks, (n, m)
        Whole-number counts; on disk for "heldout" alone.
    models : iterable of str
        Names of models, as for `bayesnmf.fit`.
    ranks : iterable of int
        Numbers of components, by default 2, 3, 4, 5, 6, 8 and 10.
    method : str, optional
        Method of the fits: "vi" by default, and "smc" with "evidence".
    criterion : {"heldout", "masked", "evidence", "stability"}
        "heldout": log-likelihood of held-out counts (`bayesnmf.selection.held_out`). "masked": that of cells held out
        as missing (`bayesnmf.selection.masked`). "evidence": probability of the counts, for small data
        (`bayesnmf.selection.by_evidence`). "stability": the largest rank whose components come back in other rows
        (`bayesnmf.selection.by_stability`).
    splits : int, optional
        With "heldout" and "masked", the number of splits (masks), each with its own fits: 3, and 5 (large counts: 2).
    keep, withhold : float, optional
        With "heldout", the probability with which a count is a training count, by default 0.8, and the share of the
        rows that are withheld, by default 0.2; 0 for none.
    halves : int, optional
        With "stability", the number of random halves of the rows, by default 10; each candidate is fitted to each.
    check : bool
        Whether to fit the best candidate to all counts and to warn if the model is misfitted (`Selection.checks`).
    seed : int
    options : MAP, VI, Gibbs, NUTS, SMC, SVI or BLD, optional
        Options of the fits; priors left open have shapes of 1. Local optima make scores jump; `restarts` helps.
    row_exposure, feature_exposure : array or Series, as for `bayesnmf.fit`
    checkpoint : str, path or Checkpoint, optional
        Folder that keeps every fit, as for `bayesnmf.fit`: the same call goes on.
    progress : bool or callable
        Progress report, as for `bayesnmf.fit`. Ctrl-C keeps what can be compared.

    Returns
    -------
    Selection

    Raises
    ------
    TypeError, ValueError
        Invalid arguments, before the first fit.
    """
    names = [check_model(model, "models") for model in check_words(models, "models")]
    candidates = [Candidate(model, rank) for model in names for rank in check_ranks(ranks)]
    method = check_criterion(criterion, method)
    check_flag(check, "check")
    kept, given = as_checkpoint(checkpoint), {"splits": splits, "keep": keep, "withhold": withhold, "halves": halves}
    settings, seed = check_settings_of(criterion, given), check_count(seed, "seed", minimum=0)
    options = options_of(method, options)
    with progress_context(progress) as report, warnings.catch_warnings(), keep_each_fit(kept):
        data = with_exposures(open_counts(counts, "float64", told=report), row_exposure, feature_exposure)
        check_integer_counts(check_complete(data, "select"), "select", "round them")
        check_data(criterion, data, options)
        settings["withhold"] = share_withheld(criterion, settings["withhold"], withhold is not None, data)
        _check_candidates(candidates, data, method, options, criterion == "stability" or settings["withhold"] > 0)
        warnings.simplefilter("ignore", FitWarning)  # the table reports it
        found = _by(criterion, study := Study(data, candidates, method, options, seed, report, **settings), kept)
        return _checked(found, study) if check and not found.interrupted else found


def _check_candidates(candidates: list[Candidate], data: Counts, method: str, options: Any, new_rows: bool) -> None:
    """Refuse candidates that cannot be fitted, before the first fit and not after hours of fits."""
    for model, rank in candidates:
        priors = resolve_priors(model, data, rank, options.priors)
        filled = replace(options, priors=priors)
        check_combination(model, method, rank, data, filled)
        if new_rows:
            check_one_prior_for_all_rows(filled.priors.loadings)


BY = {"masked": by_masked_cells, "heldout": by_held_out_counts, "stability": by_stability}


def _by(criterion: str, study: Study, kept: Checkpoint | None) -> Selection:
    if criterion in BY:
        return BY[criterion](study)
    settings = describe_options(study.options) | {"counts": digest_of_counts(study.counts), "seed": str(study.seed)}
    with keep_loops(kept, "evidence", {**settings, "candidates": repr(study.candidates)}):
        return by_evidence(study)


def _checked(found: Selection, study: Study) -> Selection:
    """Return the selection with predictive checks of the best candidate's fit to all counts."""
    if found.best is None:
        return found
    method, options = study.method, study.options_for(found.best, study.counts)
    if found.criterion == "evidence":
        method, options = "vi", VI(priors=options.priors)
    done = "select", len(study.candidates), len(study.candidates), np.nan
    try:
        fitted = fit(
            study.counts, *found.best, method, seed=study.seed, options=options, progress=lambda *_: study.report(*done)
        )
        if fitted.status.reason == INTERRUPTED:
            return replace(found, interrupted=True)
        return replace(found, checks=predictive_checks(fitted, seed=study.seed))
    except KeyboardInterrupt:
        return replace(found, interrupted=True)
