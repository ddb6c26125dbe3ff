"""The function `fit`, for every model and method."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from bayesnmf.checks import check_choice, check_rank, check_seed, seed_or_new
from bayesnmf.data.batches import with_batch
from bayesnmf.data.conversion import is_of_matrices
from bayesnmf.data.counts import Counts
from bayesnmf.data.covariates.design import read_given
from bayesnmf.data.seeds import Seeds
from bayesnmf.data.several import noise_of_matrices
from bayesnmf.fitting.checkpointing import EACH, run_with_checkpoint, seed_of
from bayesnmf.fitting.fitted import Fit
from bayesnmf.fitting.intervals import NEEDED, check_intervals, with_named_intervals
from bayesnmf.fitting.job import Job, ProgressReport, completed_options, progress_context
from bayesnmf.fitting.known import NOTHING, RANK, Beforehand, given_of, with_given_names
from bayesnmf.fitting.noisy import run_with_noise
from bayesnmf.fitting.problems import with_own_start
from bayesnmf.fitting.reading import read_counts, with_told
from bayesnmf.fitting.recognition import Recognised, check_method, check_not_stated, check_sites, recognise
from bayesnmf.noise.abilities import Noise
from bayesnmf.noise.poisson import POISSON
from bayesnmf.options import METHODS, Options, options_of
from bayesnmf.options.checkpoint import Checkpoint, as_checkpoint
from bayesnmf.options.methods import explains_names
from bayesnmf.priors.checks import check_noise
from bayesnmf.priors.specification import model_and_rank
from bayesnmf.results.cautions import warn_of
from bayesnmf.results.record import FitRecord
from bayesnmf.types import MethodName, ModelName, NoiseName


@explains_names
def fit(
    counts: Any,
    model: ModelName | int | Callable[..., Any] = "gamma_poisson",
    rank: int | None = None,
    method: MethodName = "vi",
    *,
    seed: int | None = None,
    options: Options | None = None,
    fixed_components: Any = None,
    drift: float | Literal["learned"] | None = None,
    seeds: Mapping[str, Sequence[Any]] | Seeds | str | Path | None = None,
    formula: str | None = None,
    covariates: Any = None,
    noise: NoiseName | Noise | Mapping[str, NoiseName | Noise] = "poisson",
    observed: Any = None,
    missing: Any = None,
    weights: Mapping[str, float] | None = None,
    batch: Any = None,
    row_exposure: Any = None,
    feature_exposure: Any = None,
    row_names: Any = None,
    feature_names: Any = None,
    layer: str | None = None,
    feature_labels: str | None = None,
    checkpoint: str | Path | Checkpoint | None = None,
    progress: ProgressReport | bool | None = None,
    sites: Mapping[str, str] | None = None,
) -> Fit:
    """Fit a Bayesian non-negative matrix factorisation of counts; issue a `ConvergenceWarning` if it did not converge.

    `counts` and `rank` are enough. What else there is, in groups:

    - the counts: `row_names`, `feature_names`, `layer` and `feature_labels` (of AnnData), `observed` and `missing`;
    - the model: `model`, `noise`, `row_exposure`, `feature_exposure`, `weights` (of several matrices);
    - what is known: `fixed_components` and their `drift`, `seeds`;
    - what rows differ in: `formula` and `covariates`, `batch`;
    - the computation: `method` and its `options`, `seed`, `checkpoint`, `progress`.

    Parameters
    ----------
    counts : array, SciPy sparse matrix, pandas DataFrame, AnnData, nested list, path, paths or Blocks, (n, m)
        Nonnegative counts with samples in rows, whole for gibbs and smc; or a mapping of names to several, or MuData.
    model : {"poisson", "gamma_poisson", "dirichlet_poisson", "dirichlet_gamma", "hierarchical_poisson"}
        Name of the model (`bayesnmf.priors.specification`); a whole number here is the rank. Or a NumPyro program of
        the counts, which states rank, priors, noise and exposures itself (docs/programs.md).
    rank : int, optional
        Number of components, K; by default that of `fixed_components`, or without them 10, or that of `seeds` if more.
    method : {"map", "vi", "gibbs", "nuts", "smc", "svi", "bld"}
        Point estimate, closed-form VI, Gibbs, Hamiltonian or sequential Monte Carlo, SVI, best latent decomposition.
    seed : int, optional
        Seed of starts and draws, by default a new one; ``fit.seed`` has it.
    options : MAP, VI, Gibbs, NUTS, SMC, SVI or BLD, optional
        Settings of the method: priors, start, schedule, stopping rule; in ``fit.options`` with defaults.
    fixed_components : array, DataFrame (r, m), Fit or path of a catalogue, optional
        Known components, the first r, which get the names of a frame's index, a catalogue or a fit; priors given as
        arrays are for the others. Not for bld, collapsed Gibbs, GPUs.
    drift : float or "learned", optional
        Lets these move, with a Dirichlet prior that weighs so many counts around each; learned by vi. `Fit.moved`.
    seeds : mapping of names to lists of features, Seeds or path of a .gmt file, optional
        Features that the first components are to have, which get the names: a prior and a start, not a constraint.
    formula : str, optional
        What loadings depend on, as "~ age + treatment", by default all covariates (docs/covariates.md).
    covariates : DataFrame, Series, mapping of columns or array (n, p), optional
        Columns that `formula` names, by default of AnnData ``obs``.
    noise : {"poisson", "nb1", "nb2", "quasi", "zip"}, NegativeBinomial, Quasi or ZeroInflated, or one for each matrix
        Noise of counts that vary more than Poisson counts, or have more zeros (docs/noise.md).
    observed : booleans (n, m), optional
        Where somebody counted (`bayesnmf.data.missing`).
    missing : booleans (n, m), "nan" or "zeros", optional
        Where nobody counted.
    weights : mapping of names to numbers, optional
        How often the counts of each of several matrices count (docs/several.md).
    batch : labels (n,) or Batch, optional
        The batch of each row, whose features have factors of their own (docs/batches.md).
    row_exposure : array, mapping or Series (n,), optional
        Multiplies the expected counts of each sample; not under dirichlet_poisson.
    feature_exposure : array, mapping or Series (m,), optional
        Multiplies the expected counts of each feature; for Gamma components.
    row_names : sequence of str, optional
        Names of the samples, in place of those that the counts have.
    feature_names : sequence of str, CountVectorizer or Pipeline, optional
        Names of the features, in place of those that the counts have.
    layer : str, optional
        Of AnnData, the layer of the counts; by default "counts", or X without such a layer.
    feature_labels : str, optional
        Of AnnData, the column of ``var`` with the names of the features.
    checkpoint : str, path or Checkpoint, optional
        Folder that keeps the fit: the same call goes on after a crash to the same numbers (docs/checkpoints.md).
    progress : bool or callable, optional
        Whether to show a line of progress on standard error, or a function of (label, done, total, objective). By
        default there is one in a terminal or a notebook once the call has taken two seconds, unless the environment
        variable BAYESNMF_PROGRESS is 0.
    sites : mapping, optional
        Of a program, its sites that are "loadings" and "components", where several products are the mean.

    Returns
    -------
    Fit

    Raises
    ------
    TypeError, ValueError
        Invalid counts, options or combinations; a checkpoint of another fit.

    See Also
    --------
    Fit : what it returns.
    select, modes, compare : how many components, which of many factorisations, by which method.
    BayesNMF, tl.fit : the same for scikit-learn and for AnnData.

    Examples
    --------
    >>> import bayesnmf
    >>> fit = bayesnmf.fit([[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]], rank=2, seed=0)
    >>> fit.loadings.shape, fit.components.shape
    ((4, 2), (2, 3))

    From a frame, with a method and its options:

    >>> frame = bayesnmf.datasets.cells().to_frame()
    >>> chains = bayesnmf.Gibbs(chains=2, warmup=20, draws=50)
    >>> fit = bayesnmf.fit(frame[["CD3D", "LYZ", "NKG7"]], rank=2, method="gibbs", seed=0, options=chains)
    >>> fit.feature_names.tolist()
    ['CD3D', 'LYZ', 'NKG7']

    From a file:

    >>> frame.to_csv("cells.csv")
    >>> bayesnmf.fit("cells.csv", rank=2, method="map", seed=0).row_names[0]
    'ATGCCAGAACGACT'
    """
    program = model if callable(model) else None
    if program is None:
        named, rank = model_and_rank(model, rank)
    else:  # which states these itself
        named = ""
        check_not_stated(
            options, noise, rank=rank, fixed_components=fixed_components, drift=drift, seeds=seeds, formula=formula,
            covariates=covariates, observed=observed, missing=missing, weights=weights, batch=batch,
            row_exposure=row_exposure, feature_exposure=feature_exposure,
        )  # fmt: skip
    if sites is not None:
        check_sites(sites, program)
    method, asked = check_choice(method, "method", METHODS), _asked(noise)
    (rank, given), options = _given(rank, fixed_components, seeds, drift), options_of(method, options)
    kept, seed = _kept_and_seed(checkpoint, seed)
    with progress_context(progress) as report:
        data, entries = read_counts(counts, options, weights, observed, missing, layer, feature_labels, report)
        own = noise_of_matrices(asked, data) if is_of_matrices(asked, data) else asked
        stated: Any = None
        if program is not None:
            stated = _stated(program, data, method, sites)
            check_method(stated, method)
            named, rank, own, sites = stated.model, stated.rank, stated.noise, stated.names
            options = replace(options, priors=stated.priors)
            row_exposure, feature_exposure = stated.row_exposure, stated.feature_exposure
            entries = (None, stated.observed, None)
            batch = stated.batch if isinstance(stated, Recognised) else None  # others have their own
        data = with_told(data, entries, row_names, feature_names, row_exposure, feature_exposure)
        if batch is not None:
            data = with_batch(data, batch, counts)
        if formula is not None or covariates is not None:
            given = given._replace(covariates=read_given(formula, covariates, counts, data))
        if not isinstance(stated, Recognised | None):
            record = stated.run(Job(data, named, rank, method, seed, options, report, own), kept)
        else:
            options = completed_options(options, named, method, data, rank, given, own)
            if getattr(options, "intervals", None) in NEEDED:
                check_intervals(options, data, rank)
            job = Job(data, named, rank, method, seed, with_own_start(options, data), report, own)
            record = _run(job, kept, given.names)
    return warn_of(Fit.of(record if sites is None else replace(record, sites=sites)), stacklevel=4)


def _stated(program: Callable[..., Any], data: Counts, method: str, sites: Mapping[str, str] | None) -> Any:
    """Return what a program states, or the program as it stands for methods that run it."""
    try:
        return recognise(program, data, sites)
    except ValueError as fault:
        from bayesnmf.fitting.own_programs import as_it_stands

        return as_it_stands(program, data, method, sites, fault)


def _asked(noise: Any) -> Any:
    """Return a noise, or a mapping from matrices to theirs."""
    return noise if isinstance(noise, Mapping) else check_noise(noise)


def _given(rank: int | None, fixed_components: Any, seeds: Any, drift: Any) -> tuple[int, Beforehand]:
    """Return the number of components, and what is given of them, if anything."""
    if fixed_components is None and seeds is None and drift is None:
        return check_rank(RANK if rank is None else rank), NOTHING
    return given_of(rank, fixed_components, seeds, drift)


def _kept_and_seed(checkpoint: Any, seed: int | None) -> tuple[Checkpoint | None, int]:
    """Return the checkpoint, and the seed: the given one, that of the checkpoint or a new one."""
    kept = None if checkpoint is None else as_checkpoint(checkpoint)
    return kept, seed_or_new(seed) if kept is None else seed_of(check_seed(seed), kept)


def run_once(job: Job) -> FitRecord:
    """Run the method of a job, with its noise and batches, and return the record of its fit."""
    plain = job.noise == POISSON and job.counts.batch is None
    return METHODS[job.method].run(job) if plain else run_with_noise(job)


def _run(job: Job, kept: Checkpoint | None, names: Sequence[str | None]) -> FitRecord:
    """Run a job, with a noise, in a folder that keeps it, and with intervals, where these are asked for."""
    found = run_once(job) if kept is None and EACH.get() is None else run_with_checkpoint(run_once, job, kept)
    found = with_given_names(found, names) if names else found
    return with_named_intervals(found, job.report) if getattr(job.options, "intervals", None) in NEEDED else found
