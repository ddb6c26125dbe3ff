"""`modes`: which of the many factorisations, how good each is, and what they have in common.

A factorisation has many modes: fits from other starts end in other optima of one objective. `modes` fits from many
starts, groups the fits (`bayesnmf.studies.stability.grouping`), counts how often each component comes back,
scores the best modes by held-out counts and stacks their predictions (`stacking`).

By default every run starts at random (``start="random"``; for vi ``"random_descent"``, without which it ends in poor
modes of its own where priors are sparse), while `bayesnmf.fit` by default starts from the counts, which avoids poor
modes and hides that there are many. So the shares of modes say how rugged the objective is.

The share of a mode is not its posterior probability: it depends on how many starts lead to the mode, not on the mass
around it. Distances between objectives are not log-ratios of masses either, as the bound of vi is loose by an amount
that differs from mode to mode; `elbo_marginal` is tighter. Stacking weights say which modes to use for predictions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bayesnmf.cards import Card, Shown
from bayesnmf.checks import check_count, check_fraction
from bayesnmf.data.batches import with_batch
from bayesnmf.data.blocks.opening import open_counts
from bayesnmf.data.covariates.design import read_given
from bayesnmf.data.exposures import with_exposures
from bayesnmf.data.missing import with_missing, without_missing
from bayesnmf.data.seeds import Seeds
from bayesnmf.fitting.fitted import Fit
from bayesnmf.fitting.job import ProgressReport, completed_options, progress_context
from bayesnmf.fitting.known import given_of
from bayesnmf.fitting.many import number_of_jobs
from bayesnmf.noise.abilities import Noise
from bayesnmf.noise.poisson import POISSON
from bayesnmf.options import Options
from bayesnmf.options.checkpoint import Checkpoint, as_checkpoint
from bayesnmf.options.methods import explains_names
from bayesnmf.places import check_folder
from bayesnmf.priors.checks import check_noise
from bayesnmf.priors.pair import free_components, movable_components
from bayesnmf.priors.specification import model_and_rank, stated_components
from bayesnmf.results.cautions import cure_of
from bayesnmf.results.record import FitRecord
from bayesnmf.studies.stability.checks import (
    check_consensus,
    check_factorisation,
    check_has_objective,
    check_has_weights,
    check_mode,
    check_particles,
    check_scored,
)
from bayesnmf.studies.stability.consensus import Consensus, form_consensus, pool_components
from bayesnmf.studies.stability.grouping import Found, Groups, found_in, group_fits, least_cosine, match_found, mode_of
from bayesnmf.studies.stability.mode_evidence import ModeEvidence, evidence_of_modes
from bayesnmf.studies.stability.runs import MOST_STARTS, Runs, fit_from_starts, varied_options, with_one_power
from bayesnmf.studies.stability.stacking import Stacking, bounds_of, predict_held_out, scores_of, stack
from bayesnmf.text import or_dash, plus_minus
from bayesnmf.types import Array, MethodName, ModelName, NoiseName

if TYPE_CHECKING:
    import pandas as pd


def matched_cosines(leader: Found, runs: Sequence[Found], movable: Array) -> Array:
    """Return the cosine of each component of a leader with the matched component of each run, (R, K)."""
    return np.stack([match_found(run, leader, movable)[1] for run in runs])


def recurrence_table(runs: Sequence[Found], groups: Groups, movable: Array, threshold: float) -> pd.DataFrame:
    """Return how each component of each mode comes back, by mode and component."""
    import pandas as pd

    lines = []
    best = runs[groups.leaders[0]]
    for mode, leader in enumerate(groups.leaders):
        cosines = matched_cosines(runs[leader], runs, movable)
        order, with_best = match_found(best, runs[leader], movable)
        total = max(float(runs[leader].size.sum()), np.finfo(np.float64).tiny)
        for k in range(cosines.shape[1]):
            comes_back = cosines[:, k] > threshold
            lines.append(
                {
                    "mode": mode,
                    "component": k,
                    "share_of_counts": float(runs[leader].size[k] / total),
                    "runs": int(comes_back.sum()),
                    "recurrence": float(comes_back.mean()),
                    "closeness": float(cosines[:, k].mean()),
                    "least": float(cosines[:, k].min()),
                    "in_best": int(order[k]),
                    "in_best_cosine": float(with_best[k]),
                }
            )
    return pd.DataFrame(lines).set_index(["mode", "component"])


def run_table(starts: Sequence[int], fits: Sequence[Fit], groups: Groups, cosines: Sequence[float]) -> pd.DataFrame:
    """Return a row for each run, by number of its start.

    Parameters
    ----------
    cosines : sequence of float
        Smallest matched cosine of each run with the best run of its mode.
    """
    import pandas as pd

    objectives = np.array([float(each.trace[-1]) for each in fits])
    columns = {
        "mode": groups.mode,
        "objective": objectives,
        "behind": objectives[groups.leaders[0]] - objectives,
        "cosine": np.asarray(cosines, np.float64),
        "converged": [bool(each.status.converged) for each in fits],
        "iterations": [int(each.status.iterations) for each in fits],
        "seconds": [float(each.seconds) for each in fits],
        "seed": [int(each.seed) for each in fits],
    }
    return pd.DataFrame(columns, index=pd.Index(starts, name="run"))


def mode_table(runs: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each mode: objective of its best run, its distance behind the best, and its runs."""
    by_mode = runs.groupby("mode")
    table = by_mode["objective"].max().to_frame()
    table["behind"] = table["objective"].iloc[0] - table["objective"]
    table["runs"] = by_mode.size()
    table["share"] = table["runs"] / len(runs)
    return table


SELDOM = 0.5  # share of the runs below which a component of the best mode comes back seldom
NAMED = 5  # components or starts that a caution names


def cautions_of_runs(
    runs: pd.DataFrame, fits: list[Fit], options: Options, damaged: tuple[int, ...], interrupted: bool
) -> list[str]:
    """Return what speaks against the runs: some are missing, were fitted again or have not converged."""
    cautions = []
    if interrupted:
        cautions.append("interrupted: some starts or held-out scores are missing")
    if damaged:
        cautions.append(f"fitted again, as the file was damaged: {_listed('start', damaged)}")
    if failed := int((~runs["converged"]).sum()):
        cautions.append(f"{failed} of {len(runs)} fits did not converge; {_cure(fits, options)}")
    return cautions


def cautions_of_modes(table: pd.DataFrame, components: pd.DataFrame, number: int, threshold: float) -> list[str]:
    """Return what speaks against the modes of a number of runs: there may be others, or a mode is not stable."""
    if number == 1:
        return ["a single start cannot show how many modes there are: raise starts"]
    cautions = []
    if len(table) == number:
        cautions.append(
            "every run ended in a mode of its own, so there may be many more: raise starts, lower rank, or rely on "
            "the components that come back"
        )
    elif table["runs"].iloc[0] == 1:
        cautions.append("the best mode was found by one run only, so there may be better ones: raise starts")
    seldom = components.loc[0].query("recurrence < @SELDOM", local_dict={"SELDOM": SELDOM}).index
    if len(table) > 1 and len(seldom):
        cautions.append(
            f"of the best mode, {_listed('component', seldom)} came back in fewer than half of the runs: do not "
            "interpret without the other modes"
        )
    left: Any = table.index[table["refit_cosine"] <= threshold] if "refit_cosine" in table else []
    if len(left):
        cautions.append(f"{_listed('mode', left)} changed when fitted to the training counts alone; raise keep")
    return cautions


def _listed(what: str, numbers: Any) -> str:
    """Return "start 3" or "starts 3, 4 and 7 more"."""
    listed = [str(each) for each in numbers]
    named = ", ".join(listed[:NAMED]) + (f" and {len(listed) - NAMED} more" if len(listed) > NAMED else "")
    return f"{what}{'s' if len(listed) > 1 else ''} {named}"


def _cure(fits: list[Fit], options: Options) -> str:
    """Return advice for fits that have not converged."""
    failed = [each for each in fits if not each.status.converged]
    return cure_of(failed[0]) if failed else f"raise max_iter or tol in bayesnmf.{type(options).__name__}(...)"


LARGE = 1e4  # objective from which on estimates of bounds are shown without decimals


@dataclass(frozen=True, eq=False, repr=False)
class Modes(Shown):
    """Modes of a model on given counts: the different factorisations that fits from many starts end in.

    Attributes
    ----------
    table : DataFrame
        Row for each mode, the best objective first: ``objective`` of its best run; ``behind`` the best mode, in nats;
        ``runs`` that ended in it, and their ``share``. If modes were scored, with NaN for those that were not:
        ``held_out``, the log-probability of held-out counts, in nats for each count, with standard error;
        ``difference`` from the first mode, with its standard error; ``refit_cosine``, the smallest matched cosine of
        the fit to the training counts with the mode; stacking ``weight``; under vi, ``elbo_marginal`` with its standard
        error, from 20 draws.
    runs : DataFrame
        Row for each start: ``mode``, ``objective``, ``behind`` the best run, ``cosine`` (the smallest matched cosine
        with the best run of its mode), ``converged``, ``iterations``, ``seconds`` and ``seed``.
    components : DataFrame
        Row for each component of each mode: share of the counts; number of ``runs`` in which it comes back,
        ``recurrence``, ``closeness`` and ``least`` (docs/modes.md); the
        component of the best mode that is matched to it, and their cosine.
    fits : list of Fit
        Best fit of each mode.
    stack : Stacking or None
        Weights of the modes, and score of their stacked predictions (`bayesnmf.studies.stability.stacking`); None if no
        modes were scored.
    run_components : ndarray (R, K, m)
        Components of every run, in the order of `runs`.
    run_sizes : ndarray (R, K)
        Expected counts of every component of every run.
    options : MAP, VI or BLD
        Options of the runs: ``bayesnmf.fit(counts, model, rank, method, seed=s, options=options, noise=noise)`` repeats
        the run whose seed s is in `runs`.
    noise : Noise
        Noise of the runs; a dispersion that each run has learned is in ``fits[mode].noise``.
    threshold : float
        Cosine that all matched components of two fits of one mode exceed.
    keep : float
        Probability with which a count was a training count for the held-out scores.
    seed : int
    damaged : tuple of int
        Starts that were fitted again, as their files were damaged.
    interrupted : bool
        Whether Ctrl-C ended the call before all fits were done.

    See Also
    --------
    modes : which makes it.
    plots.modes, plots.consensus : draw it.

    Examples
    --------
    >>> import bayesnmf
    >>> counts = [[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]]
    >>> bayesnmf.modes(counts, rank=1, starts=3, seed=0).table["runs"].tolist()
    [3]
    """

    table: pd.DataFrame
    runs: pd.DataFrame
    components: pd.DataFrame
    fits: list[Fit]
    stack: Stacking | None
    run_components: Array
    run_sizes: Array
    options: Options
    noise: Noise
    threshold: float
    keep: float
    seed: int
    damaged: tuple[int, ...]
    interrupted: bool

    @property
    def best(self) -> Fit:
        """Fit with the highest objective."""
        return self.fits[0]

    def assign(self, components: Any) -> int | None:
        """Return the number of the mode that components belong to; None if they belong to none.

        They belong to the first mode with whose best fit every matched cosine exceeds `threshold`.

        Parameters
        ----------
        components : Fit, array or DataFrame (K, m)
            Fit of this rank, or its components in any order. Features with names are matched by name.

        Raises
        ------
        TypeError, ValueError
            Components of another rank or with other features, negative or not finite, or 0 everywhere.
        """
        values = check_factorisation(components, self.best)
        of_fit = isinstance(components, FitRecord)  # of components without a fit, none is empty
        given = Found(values, found_in(components).size if of_fit else np.full(len(values), np.inf))
        leaders = [found_in(each) for each in self.fits]
        return mode_of(given, leaders, movable_components(self.best.priors, self.best.rank), self.threshold)

    def cosines(self, mode: int = 0) -> pd.DataFrame:
        """Return the cosine of each component of a mode with its match in each run: runs × components.

        Components are matched with the largest total cosine (docs/modes.md); the table `components` summarises the
        cosines.

        Parameters
        ----------
        mode : int
            Number of the mode, whose best fit has the components.
        """
        import pandas as pd

        leader = found_in(self.fits[check_mode(mode, len(self.fits))])
        runs = [Found(*pair) for pair in zip(self.run_components, self.run_sizes, strict=True)]
        found = matched_cosines(leader, runs, movable_components(self.best.priors, self.best.rank))
        return pd.DataFrame(found, index=self.runs.index, columns=pd.RangeIndex(self.best.rank, name="component"))

    def consensus(self, density: float = 0.5, neighbourhood: float = 0.3) -> Consensus:
        """Return consensus components over all runs, with outliers filtered out, as cNMF forms them.

        Parameters
        ----------
        density : float
            Mean Euclidean distance to the nearest neighbours, from 0 to √2 for components of length 1, from which on a
            component is an outlier (``density_threshold`` in cNMF); 2 keeps all.
        neighbourhood : float
            Share of the runs that are neighbours (``local_neighborhood_size`` in cNMF).

        Returns
        -------
        Consensus
            Components, members of each cluster, silhouette, and a fit with these components known.

        Raises
        ------
        TypeError, ValueError
            A single run; priors that differ from component to component; fewer components below `density` than there
            are clusters.
        """
        best = self.best
        free = free_components(stated_components(best.priors.components), best.rank)
        movable = movable_components(best.priors, best.rank)
        check_consensus(density, neighbourhood, len(self.runs), len(movable), len(free))
        pool = pool_components(self.run_components, self.run_sizes, self.runs.index.to_numpy(), free)
        return form_consensus(best, pool, len(self.runs), density, neighbourhood, self.seed)

    def sample_posterior_predictive(
        self, draws: int = 100, *, seed: int = 0, rows: Iterable[Any] | None = None
    ) -> Array:
        """Return replicated counts, (draws, rows, m), of modes together, as many of each as its stacking weight says.

        They are those of `Fit.sample_posterior_predictive`, the first mode's first. Raises ValueError without weights.
        """
        seed = check_count(seed, "seed", minimum=0)
        weights = check_has_weights(None if self.stack is None else self.stack.weights)
        ends = np.rint(np.cumsum([0.0, *weights]) * check_count(draws, "draws")).astype(int)
        numbers = np.diff(ends)
        parts = [
            fit.sample_posterior_predictive(int(number), seed=seed + place, rows=rows)
            for place, (fit, number) in enumerate(zip(self.fits, numbers, strict=False))
            if number
        ]
        return np.concatenate(parts)

    def evidence(
        self, fit: Fit, *, jobs: int | None = None, progress: ProgressReport | bool | None = None
    ) -> ModeEvidence:
        """Return the evidence of each mode, and of modes that no start found, from a fit by ``method="smc"``.

        A run by the options of the modes starts from each draw and ends in the draw's mode.

        Parameters
        ----------
        fit : Fit
            Fit by smc of the same counts, model and rank, with ``options=SMC(priors=found.best.priors)``, and with the
            noise of the modes, whose dispersion must be given. What it estimates is printed as unknown if it has not
            converged.
        jobs : int, optional
            Number of runs side by side, by default one for each core; results do not depend on it.
        progress : bool or callable, optional
            Progress report, as for `bayesnmf.fit`.

        Returns
        -------
        ModeEvidence

        Raises
        ------
        TypeError, ValueError
            A fit by another method, or of other counts, another model, rank, noise or priors; priors or dispersions
            learned by each run; quasi-Poisson noise, which is no distribution of counts, so that there is no evidence.
        """
        best, options = self.best, self.options
        check_particles(fit, best, options, self.noise)
        jobs = number_of_jobs(jobs, fit.trace.size, options)
        runs = Runs(best.counts, best.model, best.rank, best.method, options, self.seed, jobs, noise=self.noise)
        with progress_context(progress) as report:
            return evidence_of_modes(runs, self.fits, self.threshold, fit, report)

    @property
    def cautions(self) -> list[str]:
        """Reasons to doubt the modes or their shares."""
        of_runs = cautions_of_runs(self.runs, self.fits, self.options, self.damaged, self.interrupted)
        return [*of_runs, *cautions_of_modes(self.table, self.components, len(self.runs), self.threshold)]

    def card(self) -> Card:
        """Return what is shown of it."""
        best, runs = self.best, self.runs
        scored, bounded = "held_out" in self.table, "elbo_marginal" in self.table
        headings = ["mode", "behind", "runs", *["elbo_marginal"] * bounded]
        headings += ["held-out/count", "minus the first", "weight"] * scored
        rows: Any = self.table.reset_index().itertuples()
        lines = []
        digits = 1 if abs(best.trace[-1]) < LARGE else 0
        for row in rows:
            line = [str(row.mode), f"{row.behind:,.1f}", f"{row.runs} ({row.share:.0%})"]
            line += [plus_minus(row.elbo_marginal, row.elbo_marginal_se, digits)] if bounded else []
            if scored:
                line += [plus_minus(row.held_out, row.held_out_se)]
                line += ["" if not row.mode else plus_minus(row.difference, row.difference_se)]
                line += [or_dash(row.weight)]
            lines.append(line)
        noise = "" if self.noise == POISSON else f", noise {self.noise.word}"
        title = (
            f"{best.model} by {best.method}, rank {best.rank}{noise}: {len(self.table)} "
            f"mode{'s' if len(self.table) > 1 else ''} in {len(runs)} runs"
        )
        calls = [
            "found.best  # the best fit",
            "found.components.loc[0]  # in how many runs each of its components comes back",
        ]
        return Card(title, headings, lines, self._notes(), [*calls, "bayesnmf.plots.modes(found)"])

    def _notes(self) -> list[str]:
        """Return what is written below the table."""
        of_best = self.components.loc[0]
        back = ", ".join(f"{count}" for count in of_best["runs"])
        notes = [
            f"behind: the best {self.best.objective}, {self.table['objective'].iloc[0]:,.1f}, in nats",
            f"one mode: every matched cosine above {self.threshold:g}",
            f"runs in which components 0 … {len(of_best) - 1} of mode 0 come back: {back} (of {len(self.runs)})",
        ]
        if self.stack is not None:
            notes.append(f"held-out: {1 - self.keep:.0%} of the counts, in nats; ± is the standard error over rows")
            if len(self.stack.weights) > 1:
                gain = plus_minus(self.stack.difference, self.stack.difference_se)
                notes.append(
                    f"stacked modes minus the best single one: {gain} "
                    "(weights from one half of the held-out counts, scored on the other)"
                )
        return [*notes, *(f"CAUTION {caution}" for caution in self.cautions)]


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
    drift: float | Literal["learned"] | None = None,
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
    progress: ProgressReport | bool | None = None,
) -> Modes:
    """Fit from many random starts; return the different factorisations, how good each is, and what comes back in all.

    Parameters
    ----------
    counts : array, SciPy sparse matrix, pandas DataFrame, AnnData, nested list, path, paths or Blocks, (n, m)
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
    drift : float or "learned", optional
        How many counts they weigh if they may move, as for `bayesnmf.fit`.
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
    progress : bool or callable, optional
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
    (rank, given), options = given_of(rank, fixed_components, seeds, drift), varied_options(options, method)
    plain, own = without_missing(counts, missing)
    data = with_batch(open_counts(plain, getattr(options, "dtype", "float64"), missing=missing), batch, counts)
    given = given._replace(covariates=read_given(formula, covariates, counts, data))
    data = with_missing(with_exposures(data, row_exposure, feature_exposure), own, observed, missing)
    threshold, keep = check_fraction(threshold, "threshold"), check_fraction(keep, "keep")
    scored = check_scored(scored, data)
    options = completed_options(options, model, method, data, rank, given, noise)
    jobs, kept = number_of_jobs(jobs, starts, options), as_checkpoint(checkpoint)
    if kept is not None:
        check_folder(kept.folder, "checkpoint", private=True)
    runs = Runs(data, model, rank, method, options, seed, jobs, kept, noise, given.names)
    with progress_context(progress) as report:
        return _modes_of(with_one_power(runs, report), starts, threshold, keep, scored, report)


def _modes_of(runs: Runs, starts: int, threshold: float, keep: float, scored: int, report: ProgressReport) -> Modes:
    """Fit from every start, group the fits into modes, and score the best of these."""
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
