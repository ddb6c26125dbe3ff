"""`select`: which model, and how many components, ranked by a criterion; and how this is printed."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bayesnmf.assessment.checks import check_ranks
from bayesnmf.assessment.predictive_checks import predictive_checks
from bayesnmf.cards import Card, Shown
from bayesnmf.checks import check_count, check_flag, check_given_once, check_words, is_rank, shown
from bayesnmf.data.batches import with_batch
from bayesnmf.data.blocks.opening import open_counts
from bayesnmf.data.checks import check_complete, check_start_has_seeds
from bayesnmf.data.conversion import check_integer_counts
from bayesnmf.data.counts import Counts
from bayesnmf.data.covariates.design import read_given
from bayesnmf.data.exposures import with_exposures
from bayesnmf.data.seeds import Seeds, seeds_of
from bayesnmf.data.several import SeveralCounts, is_weighted
from bayesnmf.fitting.checkpointing import keep_each_fit
from bayesnmf.fitting.fit import fit
from bayesnmf.fitting.job import ProgressReport, check_combination, progress_context, resolve_priors
from bayesnmf.fitting.many import uninterrupted
from bayesnmf.inference.status import FitWarning
from bayesnmf.noise.poisson import POISSON
from bayesnmf.noise.words import NOISES
from bayesnmf.options import Options, options_of
from bayesnmf.options.checkpoint import Checkpoint, as_checkpoint
from bayesnmf.options.methods import explains_names
from bayesnmf.options.rules import Request
from bayesnmf.priors import Priors
from bayesnmf.priors.checks import check_one_prior_for_all_rows
from bayesnmf.priors.specification import DEFAULT_MODEL, check_model
from bayesnmf.studies.selection.by_evidence import Evidence
from bayesnmf.studies.selection.by_stability import Stability
from bayesnmf.studies.selection.checks import (
    check_criterion,
    check_method,
    check_noises,
    check_takes,
    default_criterion,
)
from bayesnmf.studies.selection.criterion import (
    CRITERIA,
    Candidate,
    Criterion,
    Line,
    SelectionPlan,
    SelectionRecord,
    frugal_of,
    word_of,
)
from bayesnmf.studies.selection.held_out import HeldOut
from bayesnmf.studies.selection.masked import Masked
from bayesnmf.text import p_value
from bayesnmf.types import CriterionName, MethodName, ModelName

BUILT_IN = Masked, HeldOut, Evidence, Stability  # whose definition makes them known


class Selection(Shown, SelectionRecord):
    __doc__ = SelectionRecord.__doc__

    @property
    def by(self) -> type[Criterion]:
        """The criterion, as a class."""
        return CRITERIA[self.criterion]

    @property
    def one_standard_error(self) -> Candidate | None:
        """The smallest rank with the best noise whose score is within one standard error of the best, and its model.

        The standard error is that of the differences from the best, paired by row, so the variation that all scores
        share does not enter. With a single row, and with the other criteria, there is none, and the best is returned.
        """
        if self.best is None or not self.by.scored:
            return self.best
        table: Any = self.table if self.table.index.nlevels == 2 else self.table.xs(word_of(self.noise), level="noise")
        return frugal_of(table, "mean", "difference", "difference_se")

    @property
    def cautions(self) -> list[str]:
        """Reasons to doubt the best candidate, or why there is none."""
        if self.best is None:
            return [self.by.why_none(self)]
        return [*_edge(self), *_unconverged(self), *_misfit(self), *self.by.cautions(self)]

    def card(self) -> Card:
        """Return what is shown of it."""
        title, headings, lines = headings_and_lines(self)
        notes = list(self.by.notes)
        if self.by.scored and self.table["se"].isna().all():
            notes = ["a single row has no standard error"]
        notes += ["interrupted: other candidates or the checks are missing"] if self.interrupted else []
        notes += [f"CAUTION {caution}" for caution in self.cautions]
        calls = ["bayesnmf.plots.selection(found)"]
        if self.best is not None:
            word = word_of(self.noise)
            given = repr(word) if word in NOISES else "found.noise"
            noise = "" if self.noise == POISSON else f", noise={given}"
            calls.append(f"bayesnmf.fit(counts, {self.best.model!r}, rank={self.best.rank}{noise})")
        return Card(title, headings, lines, notes, calls)


def headings_and_lines(found: Selection) -> tuple[str, Line, list[Line]]:
    """Return title, headings and lines of the table."""
    lines = []
    for place, each in zip(found.table.index, found.table.itertuples(), strict=True):
        lines.append([*map(str, place), *found.by.line(found, each), ", ".join(_marks(found, place))])
    headings = [*map(str, found.table.index.names), *found.by.headings(found), ""]
    return found.by.headline(found), headings, lines


def _marks(found: Selection, here: Any) -> list[str]:
    if found.best is None:
        return []
    best, frugal = found.place(found.best), found.one_standard_error
    marks = ["best"] if here == best else []
    if "fits" in found.table:
        fits = found.table["fits"]
        marks += ["stopped"] if fits[here] < fits.max() else []
    if found.by.scored:
        marks += ["one se"] if frugal and here == found.place(frugal) != best else []
        marks += ["one se, rows"] if here == found.one_standard_error_for_rows else []
    return marks


def _edge(found: Selection) -> list[str]:
    tried, best = found.table.index.get_level_values("rank"), _best(found)
    if tried.min() == tried.max():
        return []
    if best == tried.max():
        more = "; if the scores go on rising, `predictive_checks` shows what the model misses"
        more = "" if found.by.largest_wins else more
        return [f"the best rank, {best}, is the largest that was tried: try larger ones{more}"]
    if best == tried.min() > 1 and not found.by.largest_wins:
        return [f"the best rank, {best}, is the smallest that was tried: try smaller ones"]
    return []


def _unconverged(found: Selection) -> list[str]:
    if "converged" not in found.table:
        return []
    line: Any = found.table.loc[found.place(found.best)]
    failed = int(line["fits"] - line["converged"])
    if not failed:
        return []
    return [f"{failed} of {int(line['fits'])} fits of the best candidate did not converge: raise max_iter in options"]


def _misfit(found: Selection) -> list[str]:
    if found.checks is None or not found.checks.failed:
        return []
    failed = f"{', '.join(found.checks.failed)}; p-value {p_value(found.checks.p_value)}"
    noise = "" if found.noise == POISSON else f" with noise={word_of(found.noise)!r}"
    return [
        f"the model{noise} is misfitted at rank {_best(found)} ({failed}): either "
        "components are missing, or the counts of single entries vary more than the model allows. In the second case, "
        "further components absorb this variation, and larger ranks may win without being real; that the misfit "
        "disappears at a larger rank is then only weak evidence for this rank"
    ]


def _best(found: Selection) -> int:
    best: Any = found.best
    return int(best.rank)


RANKS = (2, 3, 4, 5, 6, 8, 10)


@explains_names
def select(
    counts: Any,
    models: Iterable[ModelName] | ModelName | Iterable[int] | int = ("gamma_poisson",),
    ranks: Iterable[int] | int = RANKS,
    method: MethodName | None = None,
    *,
    seeds: Mapping[str, Sequence[Any]] | Seeds | str | Path | None = None,
    formula: str | None = None,
    covariates: Any = None,
    noise: Any = "poisson",
    criterion: CriterionName | Criterion | None = None,
    splits: int | None = None,
    keep: float | None = None,
    withhold: float | None = None,
    halves: int | None = None,
    resample: Literal["halves", "counts"] | None = None,
    check: bool | None = None,
    seed: int = 0,
    options: Options | None = None,
    weights: Mapping[str, float] | None = None,
    batch: Any = None,
    row_exposure: Any = None,
    feature_exposure: Any = None,
    checkpoint: str | Path | Checkpoint | None = None,
    progress: ProgressReport | bool | None = None,
) -> Selection:
    """Rank models, numbers of components and noises by held-out entries or counts, evidence or stability.

    Parameters
    ----------
    counts : array, SciPy sparse matrix, pandas DataFrame, AnnData, nested list, path, paths or Blocks, (n, m)
        Whole-number counts; in memory for "evidence", whose particles have loadings of all rows each; or a mapping of
        names to several.
    models : str or iterable of str
        Names of models, as for `bayesnmf.fit`; whole numbers here are the ranks.
    ranks : int or iterable of int
        Numbers of components.
    method : str, optional
        Method of the fits: "vi" by default, and "smc" with "evidence".
    seeds : mapping of names to lists of features, Seeds or path of a .gmt file, optional
        Features that the first components are to have, as for `bayesnmf.fit`.
    formula : str, optional
        What loadings depend on, as for `bayesnmf.fit`.
    covariates : DataFrame, Series, mapping of columns or array (n, p), optional
        Columns that `formula` names, as for `bayesnmf.fit`.
    noise : str, Noise, mapping of matrices to one each, or an iterable of them
        Noise of the fits, as for `bayesnmf.fit`, one with "stability", with "masked" several to compare.
    criterion : {"masked", "heldout", "evidence", "stability"} or Criterion, optional
        "masked", the default: log-likelihood of entries held out as
        missing; "heldout": that of held-out counts (`held_out`); "evidence": probability of the counts, for small data
        (`by_evidence`); "stability": the largest rank whose components return (`by_stability`).
    splits : int, optional
        With "masked" and "heldout", the number of masks (splits), each with its own fits: 5 (large counts: 2), and 3.
        Left out, candidates that are over five standard errors behind the best after two masks or more are fitted to
        no others, which the table tells.
    keep : float, optional
        With "heldout", the probability that a count is a training count, 0.8 by default.
    withhold : float, optional
        With "heldout", the share of the rows that are withheld, 0.2 by default.
    halves : int, optional
        With "stability", the number of halves, or of drawn counts, by default 10; each candidate is fitted to each.
    resample : {"halves", "counts"}, optional
        With "stability", components are to return in random halves of the rows, the default, or in counts of all rows
        that are drawn again around those observed, as components of few rows do.
    check : bool, optional
        Whether to fit the best candidate to all counts and to warn if the model is misfitted (`Selection.checks`), by
        default unless matrices have weights, which leave no distribution of the counts.
    seed : int
        Seed of fits and splits.
    options : MAP, VI, Gibbs, NUTS, SMC, SVI or BLD, optional
        Options of the fits; priors left open have shapes of 1. Local optima make scores jump; `restarts` helps.
    weights : mapping of names to numbers, optional
        How often the counts of each of several matrices count, in fits and scores; with "masked" alone.
    batch : labels (n,) or Batch, optional
        The batch of each row, as for `bayesnmf.fit`; with "masked" alone.
    row_exposure : array, mapping or Series (n,), optional
        Multiplies the expected counts of each sample, as for `bayesnmf.fit`.
    feature_exposure : array, mapping or Series (m,), optional
        Multiplies the expected counts of each feature, as for `bayesnmf.fit`.
    checkpoint : str, path or Checkpoint, optional
        Folder that keeps every fit, so that the same call goes on.
    progress : bool or callable, optional
        Progress report, as for `bayesnmf.fit`. Ctrl-C returns what can be compared.

    Returns
    -------
    Selection

    Raises
    ------
    TypeError, ValueError
        Invalid arguments, before the first fit.

    See Also
    --------
    Selection : what it returns.
    plots.selection, plots.ranks : draw it.
    modes, log_evidence : other questions to a rank.

    Examples
    --------
    >>> import bayesnmf
    >>> counts = bayesnmf.simulate(size=(40, 12), rank=2, seed=0).counts
    >>> found = bayesnmf.select(counts, ranks=(1, 2), splits=2, check=False)
    >>> found.table.shape[0]
    2
    """
    candidates, kept, seed = _candidates(models, ranks), as_checkpoint(checkpoint), check_count(seed, "seed", minimum=0)
    given = {"splits": splits, "keep": keep, "withhold": withhold, "halves": halves, "resample": resample}
    with progress_context(progress) as report, warnings.catch_warnings(), keep_each_fit(kept):
        data = with_batch(open_counts(counts, "float64", told=report, weights=weights), batch, counts)
        data = with_exposures(data, row_exposure, feature_exposure)
        if criterion is None:
            criterion = default_criterion(data, method, given, _all_proper(candidates, data, options))
        by = check_criterion(criterion, given)
        method, noises = check_method(by, method), check_noises(by, noise, data)
        options = options_of(method, options)
        for each in _unweighted(check_complete(data, "select")):
            check_integer_counts(each, "select", "round them")
        by.check(method, data, options)
        by, of_rows = by.settled(data), read_given(formula, covariates, counts, data)
        check = not is_weighted(data) if check is None else check
        check_flag(check, "check")
        check_takes(by, data, of_rows, check)
        plan = SelectionPlan(
            data, candidates, method, options, seed, report, noises=noises, seeds=seeds_of(seeds), covariates=of_rows,
            checkpoint=kept,
        )  # fmt: skip
        _check_candidates(plan, by)
        warnings.simplefilter("ignore", FitWarning)  # the table reports it
        found = Selection(**vars(by.compare(plan)) | {"totals": (data.row_totals, data.feature_totals)})
        return _checked(found, plan, by) if check and not found.interrupted else found


def _unweighted(counts: Counts) -> list[Counts]:
    """Return the counts as they were counted, those of matrices with weights one by one."""
    if not (isinstance(counts, SeveralCounts) and counts.matrices.weighted):
        return [counts]
    return [counts.of(name) for name in counts.matrices.names]


def _candidates(models: Any, ranks: Any) -> list[Candidate]:
    """Return the candidates; whole numbers in place of the models are the ranks of the default model."""
    given = [models] if is_rank(models) else models
    if isinstance(given, Iterable) and not isinstance(given, str) and all(map(is_rank, given := list(given))) and given:
        check_given_once(ranks is RANKS, "ranks", models, ranks, f"models={DEFAULT_MODEL!r}, ranks={shown(given)}")
        models, ranks = DEFAULT_MODEL, given
    names = [check_model(model, "models") for model in check_words(models, "models")]
    return [Candidate(model, rank) for model in names for rank in check_ranks(ranks)]


def _all_proper(candidates: list[Candidate], counts: Counts, options: Any) -> bool:
    """Return whether the loadings of all candidates have a proper prior."""
    given = getattr(options, "priors", Priors())
    priors: list[Any] = [resolve_priors(each.model, counts, each.rank, given) for each in candidates]
    return all(each.loadings.proper for each in priors)


def _check_candidates(plan: SelectionPlan, criterion: Criterion) -> None:
    """Refuse candidates that cannot be fitted, before the first fit and not after hours of fits."""
    check_start_has_seeds(getattr(plan.options, "start", None), plan.seeds)
    for candidate in plan.candidates:
        filled = plan.options_for(candidate, plan.counts)
        for noise in plan.noises:
            asked = (candidate.model, plan.method, filled.priors, filled, noise, plan.counts, candidate.rank)
            check_combination(Request(*asked, hides=criterion.hides_entries))
        if criterion.asks_other_rows:
            check_one_prior_for_all_rows(filled.priors.loadings)


def _checked(found: Selection, plan: SelectionPlan, criterion: Criterion) -> Selection:
    """Return the selection with predictive checks of the best candidate's fit to all counts."""
    if found.best is None:
        return found
    method, options = criterion.fitted_by(plan, plan.options_for(found.best, plan.counts))
    done = "select", len(plan.candidates), len(plan.candidates), np.nan
    try:
        fitted = uninterrupted(fit(
            plan.counts, *found.best, method, seed=plan.seed, options=options, noise=found.noise,
            progress=lambda *_: plan.report(*done),
        ))  # fmt: skip
        return replace(found, checks=predictive_checks(fitted, seed=plan.seed))
    except KeyboardInterrupt:
        return replace(found, interrupted=True)
