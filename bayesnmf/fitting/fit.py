"""The function `fit`, for every model and method, and its result, `Fit`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from bayesnmf.checks import check_choice, check_seed
from bayesnmf.data.blocks.opening import open_counts
from bayesnmf.data.exposures import with_exposures
from bayesnmf.data.naming import with_names
from bayesnmf.fitting import projection
from bayesnmf.fitting.checkpointing import run_kept, seed_of
from bayesnmf.fitting.intervals import check_intervals, with_intervals, with_named_intervals
from bayesnmf.fitting.job import Job, check_combination, resolve_priors
from bayesnmf.fitting.keeping import with_draws
from bayesnmf.fitting.known import rank_and_known
from bayesnmf.fitting.problems import with_own_start
from bayesnmf.fitting.progress import ProgressReport, progress_context
from bayesnmf.options import METHODS, Options
from bayesnmf.options.checkpoint import Checkpoint, as_checkpoint
from bayesnmf.options.checks import check_options
from bayesnmf.options.defaults import resolve_options
from bayesnmf.options.naming import explains_names
from bayesnmf.priors.specification import check_model
from bayesnmf.results import allocations as allocations_of_fits
from bayesnmf.results import annotation, renaming, replication
from bayesnmf.results import draws as draws_of_fits
from bayesnmf.results.cautions import warn_of
from bayesnmf.results.describing import described
from bayesnmf.results.estimates import Draws
from bayesnmf.results.markers import leading_features
from bayesnmf.results.record import FitRecord
from bayesnmf.results.short_chain import DRAWS, WARMUP

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr


Array = NDArray[Any]


class Fit(FitRecord):
    """Fitted model.

    Attributes
    ----------
    model, method : str
        Names of the model and of the method.
    rank : int
        Number of components, K.
    loadings : ndarray (n, K)
        Mode under map and bld, posterior mean otherwise; proportions under dirichlet_poisson and dirichlet_gamma.
    components : ndarray (K, m)
        Mode or posterior mean, as for the loadings.
    scale : ndarray (n,) or None
        Scale of the loadings, in counts, under dirichlet_gamma.
    trace : ndarray
        Objective at the start and after every iteration, in nats, on the Poisson scale: log joint (map),
        `elbo_augmented` (vi), an estimate of the elbo (svi), log p(S) (bld). Under gibbs and nuts, the log joint of
        each draw, (chains, draws).
    status : Status
        Convergence, reason for the stop and number of iterations.
    priors : Priors
        Priors of the fit, with defaults filled in; learned priors under VI(learn=...).
    options : MAP, VI, Gibbs, NUTS, SMC, SVI or BLD
        Options of the fit, with the algorithm, start, tolerance and priors that were chosen in place of None.
    counts : Counts
        Fitted counts.
    seed : int
        Seed of the fit.
    seconds : float
        Wall time, including a closed-form start.
    diagnostics : dict
        Further results. Gibbs and nuts: the largest R-hat and the smallest ESS of all components, the loadings of up to
        50 rows and the log joint; the shares of these entries above 1.05 and 1.01 (`bayesnmf.results.mixing`); R-hat
        and ESS of the log joint alone; with Gibbs(draws="auto"), the smallest ESS of the components' shares of the
        counts, the number of sweeps and of sweeps per draw; divergences; the number of label switches within chains
        (undone by matching) and the share of draws with components too similar to be matched reliably
        (`bayesnmf.results.label_switching.label_switching`). Map: the final KKT residual, in counts, and the least
        gradient ([C] A.3), which decide convergence. A least gradient of −0.1 means that an EM update would make some
        entry 10 % larger; if the residual is small, that entry is wrongly stuck at 0
        (`bayesnmf.inference.ascent.optimality`). With restarts: their number, and the worst final objective.
    residuals : ndarray or None
        KKT residuals of the states of `trace`, in counts, under map.
    multipliers : tuple of ndarray (n, K) and (K, m), or None
        Multipliers μ and ν of the decomposition, S_ikj = X_ij μ_ik ν_kj / Σ_c μ_ic ν_cj, under bld; rows of both sum
        to 1.
    statistics : dict of ndarray (chains, draws), or None
        Statistics of every draw under nuts: divergences, steps, acceptance.
    moments : dict of ndarray, or None
        Moments of all draws if `posterior` contains only every `diagnostics["kept_every"]`-th draw: ``loadings_sd``,
        ``loadings_r_hat`` and ``loadings_ess`` (n, K), and the same for components (K, m) and scale (n,). R-hat is the
        split R-hat, and the effective sample size is by batch means. The means of all draws are `loadings`,
        `components` and `scale`.
    intervals : Intervals or None
        Draws beside q, from which intervals are read (`with_intervals`): a kind, ``draws``, and R-hat of their chain.
    """

    @classmethod
    def of(cls, record: FitRecord) -> Fit:
        """Return a `Fit` with the data of a record."""
        return cls(**vars(record))

    def __repr__(self) -> str:
        return described(self)

    def rename(self, components: Any = None, *, rows: Any = None, features: Any = None) -> Fit:
        """Return the fit with other names, for tables, figures and files: a list, or a mapping as ``{0: "B cells"}``.

        Raises TypeError or ValueError for names that do not exist, and for components of the same name.
        """
        return Fit.of(renaming.rename(self, components, rows, features))

    def transform(self, counts: Any, *, row_exposure: Any = None, seed: int = 0) -> Array:
        """Return the loadings of new samples given the components, (rows, K), on the scale of `loadings`.

        They are the mode under map and bld, and the mean of the closed-form q under vi and svi. Under gibbs and nuts,
        they are the mean of loadings sampled, with `seed`, for each of several draws of the components; counts must
        then be whole numbers. Features are matched by name if both have names. A fit with `row_exposure` needs those of
        the new samples. Raises TypeError or ValueError for what `fit` would refuse, or other features.
        """
        return self.project(counts, row_exposure=row_exposure, seed=seed).loadings

    def project(self, counts: Any, *, row_exposure: Any = None, seed: int = 0) -> Fit:
        """Return the fit of new samples with the components fixed; parameters and errors as for `transform`."""
        return Fit.of(projection.project(self, counts, row_exposure, seed))

    def sample_posterior(self, draws: int | None = None, *, chains: int | None = None, seed: int = 0) -> Draws:
        """Return draws from q, by default 4 × 1000, or the draws of gibbs and nuts, evenly thinned to `draws`.

        Raises AttributeError for a point estimate, and ValueError for more draws than available or than 2 GiB.
        """
        return draws_of_fits.sample_posterior(self, draws, chains, seed)

    def sample_posterior_predictive(
        self, draws: int = 100, *, seed: int = 0, rows: Iterable[Any] | None = None
    ) -> Array:
        """Return replicated counts, (draws, rows, m), whole numbers, for the rows with the given names (default: all).

        Row totals are drawn too, except under dirichlet_poisson, where they are given.
        """
        return replication.sample_posterior_predictive(self, draws, seed, rows)

    def with_intervals(
        self,
        intervals: str = "auto",
        *,
        draws: int = DRAWS,
        warmup: int = WARMUP,
        seed: int | None = None,
        threads: int | None = None,
        progress: ProgressReport | bool = False,
    ) -> Fit:
        """Return the fit by vi with draws beside q, from which all its intervals and probabilities are read.

        "sampled": a chain from the fit, of which `warmup` sweeps are discarded and `draws` are kept, with `seed` (by
        default that of the fit). "response": draws of linear response. "mean_field": q itself. "auto": as in `VI`, now.
        `bayesnmf.fitting.intervals` says more. Raises ValueError if the fit cannot have what is named.
        """
        return Fit.of(with_intervals(self, intervals, (warmup, draws), seed, threads, progress))

    def allocations(self, rows: Iterable[Any] | None = None) -> Array:
        """Return expected allocations S_ikj, (rows, K, m), in counts; their sum over components equals the counts.

        `rows` are names, by default all. The allocations are S* of the decomposition under bld, those at the modes
        under map, those at the optimum of q (exp E log) under vi and svi, and the mean over up to 200 draws
        under gibbs and nuts. Raises ValueError for unknown rows or more than 2 GiB.
        """
        return allocations_of_fits.allocations(self, rows)

    def to_anndata(self, adata: Any = None, *, key_added: str = "bayesnmf", seed: int = 0) -> Any:
        """Write the fit into the AnnData object that was fitted, or into a new one, and return it.

        ``obsm["X_" + key_added]`` has the expected share of each component in each row's counts, (n, K), and
        ``obsm["X_" + key_added + "_sd"]`` its posterior standard deviation, over up to 200 draws made with `seed`;
        ``varm[key_added]`` the components, (m, K); ``uns[key_added]`` the settings. Raises ValueError for other rows.
        """
        return annotation.to_anndata(self, adata, key_added, seed)

    def to_datatree(self, draws: int | None = None, chains: int | None = None, **selection: Any) -> xr.DataTree:
        """Return an ArviZ `DataTree` of the fit; see `bayesnmf.results.datatree.Contents` for the keywords."""
        from bayesnmf.results.datatree import to_datatree

        return to_datatree(self, draws, chains, **selection)

    def save(self, path: str | Path) -> None:
        """Write the fit, with its settings and counts, to a NetCDF file (`.nc`) or a Zarr store (`.zarr`)."""
        from bayesnmf.results.storage import save

        save(self, path)

    def summary(
        self, rows: Iterable[Any] | None = None, features: Iterable[Any] | None = None, interval: float = 0.9
    ) -> pd.DataFrame:
        """Return medians and central intervals of some parameters; see `bayesnmf.results.summary.summary`."""
        from bayesnmf.results.summary import summary

        return summary(self, rows, features, interval)

    def top_features(self, n: int = 10, order: str = "weight") -> pd.DataFrame:
        """Return the names of the `n` leading features of each component, one column per component.

        They lead by "weight", "lift", "next" or "rest"; see `bayesnmf.results.markers.leading_features`.
        """
        import pandas as pd

        return pd.DataFrame(self.feature_names[leading_features(self, n, order)].T, columns=self.component_titles)


@explains_names
def fit(
    counts: Any,
    model: str = "gamma_poisson",
    rank: int | None = None,
    method: str = "vi",
    *,
    seed: int | None = None,
    options: Options | None = None,
    fixed_components: Any = None,
    row_exposure: Any = None,
    feature_exposure: Any = None,
    row_names: Any = None,
    feature_names: Any = None,
    layer: str | None = None,
    feature_labels: str | None = None,
    checkpoint: str | Path | Checkpoint | None = None,
    progress: ProgressReport | bool = False,
) -> Fit:
    """Fit a Bayesian non-negative matrix factorisation of counts; issue a `ConvergenceWarning` if it did not converge.

    Parameters
    ----------
    counts : array, SciPy sparse matrix, pandas DataFrame, AnnData, nested list, path or Blocks, (n, m)
        Nonnegative counts with samples in rows; whole numbers for gibbs and smc. They are copied, but `Counts` are not.
    model : {"poisson", "gamma_poisson", "dirichlet_poisson", "dirichlet_gamma", "hierarchical_poisson"}
        Name of the model (`bayesnmf.priors.specification`).
    rank : int, optional
        Number of components, K; by default that of `fixed_components`, or 10 without them.
    method : {"map", "vi", "gibbs", "nuts", "smc", "svi", "bld"}
        Point estimate, closed-form VI, Gibbs, Hamiltonian or sequential Monte Carlo, SVI, best latent decomposition.
    seed : int, optional
        Seed that makes the run reproducible; by default a new one, which the result contains.
    options : MAP, VI, Gibbs, NUTS, SMC, SVI or BLD, optional
        Settings of the method: priors, start, schedule, stopping rule; in ``fit.options`` with defaults.
    fixed_components : array, DataFrame (r, m), Fit or path of a catalogue, optional
        Known components, the first r (on the simplex if components are); names are matched. Priors given as arrays are
        for the others. Not for bld, collapsed Gibbs and GPUs.
    row_exposure, feature_exposure : array, mapping or Series (n,) and (m,), optional
        Exposures above 0 that multiply expected counts: of samples not under dirichlet_poisson, of features only for
        Gamma components. Labels are matched by name; those that the counts do not have are left out.
    row_names, feature_names, layer, feature_labels : optional
        Names; of AnnData, the layer of the counts (default "counts" or X) and the column of ``var`` with feature names.
    checkpoint : str, path or Checkpoint, optional
        Folder that keeps the fit: the same call goes on after a crash to the same numbers (docs/checkpoints.md).
    progress : bool or callable
        True shows a progress bar; a callable is called with (label, done, total, objective).

    Returns
    -------
    Fit

    Raises
    ------
    TypeError, ValueError
        Invalid counts, options or combinations; a checkpoint of another fit.

    Examples
    --------
    >>> import bayesnmf
    >>> fit = bayesnmf.fit([[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]], rank=2, seed=0)
    >>> fit.loadings.shape, fit.components.shape
    ((4, 2), (2, 3))
    """
    model, method = check_model(model), check_choice(method, "method", METHODS)
    (rank, known), kept = rank_and_known(rank, fixed_components), as_checkpoint(checkpoint)
    seed = seed_of(check_seed(seed), kept)
    options = METHODS[method].options() if options is None else options
    check_options(options, method, METHODS[method].options)
    with progress_context(progress) as report:
        data = open_counts(counts, getattr(options, "dtype", "float64"), layer, feature_labels, report)
        data = with_exposures(with_names(data, row_names, feature_names), row_exposure, feature_exposure)
        priors = resolve_priors(model, data, rank, options.priors, known, METHODS[method].default_shapes)
        options = with_draws(resolve_options(replace(options, priors=priors), data.in_memory), rank, data)
        check_combination(model, method, rank, data, options)
        job = Job(data, model, rank, method, seed, with_own_start(check_intervals(options, data, rank), data), report)
        result = Fit.of(with_named_intervals(run_kept(METHODS[method].run, job, kept), report))
    warn_of(result, stacklevel=4)
    return result
