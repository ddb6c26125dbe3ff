"""`fit`: one entry for every model and method, and what it returns."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bayesnmf.checks import check_choice, check_count, check_rank, check_seed
from bayesnmf.data.conversion import as_counts
from bayesnmf.fitting import projection
from bayesnmf.fitting.job import Job, check_combination, resolve_priors
from bayesnmf.fitting.problems import with_own_start
from bayesnmf.fitting.progress import ProgressReport, reporting
from bayesnmf.inference.status import INTERRUPTED, NOT_A_NUMBER, ConvergenceWarning
from bayesnmf.options import METHODS, Options
from bayesnmf.options.checks import check_options
from bayesnmf.options.defaults import resolve_options
from bayesnmf.priors.specification import MODELS
from bayesnmf.results import allocations as allocations_of_fits
from bayesnmf.results import draws as draws_of_fits
from bayesnmf.results import replication
from bayesnmf.results.cautions import cure_of
from bayesnmf.results.estimates import Draws
from bayesnmf.results.record import FitRecord

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr


Array = NDArray[Any]


class Fit(FitRecord):
    """A fitted model.


    Attributes
    ----------
    model, method : str
    rank : int
        Number of components, K.
    loadings : ndarray (n, K)
        Mode under map and bld, posterior mean otherwise; proportions under dirichlet_poisson and dirichlet_gamma.
    components : ndarray (K, m)
        Likewise.
    scale : ndarray (n,) or None
        Of the loadings, under dirichlet_gamma.
    trace : ndarray
        Objective at the start and after every iteration, in nats, Poisson scale: log joint (map),
        `elbo_augmented` (vi), a running estimate of the bound (svi), log p(S) (bld). Under gibbs and nuts the log joint
        of each draw, (chains, draws).
    status : Status
        Whether and why it stopped.
    priors : Priors
        Those used, defaults filled in.
    counts : Counts
        The data.
    seed : int
    seconds : float
        Wall time, a closed-form start included.
    diagnostics : dict
        What else the method reports. Gibbs and nuts: the greatest R-hat and the least ESS of all components, the
        loadings of up to 50 rows and the log joint, the share of these entries above 1.05 (`bayesnmf.results.mixing`),
        R-hat and ESS of the log joint alone, divergences, how often labels switched within chains (which matching
        undoes) and the share of draws whose components can hardly be told apart
        (`bayesnmf.results.label_switching.label_switching`). Map: the KKT residual and the least gradient at the end
        ([C] A.3), by which it is judged: a least gradient of −0.1 says that an EM update would make some entry 10 %
        larger; if the residual is small, that entry is wrongly stuck at 0 (`bayesnmf.inference.ascent.optimality`).
        Several restarts: how many, and where the worst ended.
    residuals : ndarray or None
        Under map, the KKT residual of the states of `trace`, in counts.
    multipliers : tuple of ndarray (n, K) and (K, m), or None
        Under bld, μ and ν of the decomposition, S_ikj = X_ij μ_ik ν_kj / Σ_c μ_ic ν_cj; rows sum to 1 on both sides.
    statistics : dict of ndarray (chains, draws), or None
        What a sampler says of every draw: under nuts, divergences, steps, acceptance.
    moments : dict of ndarray, or None
        Where `posterior` holds some of the draws only, every `diagnostics["kept_every"]`-th: what all draws say of
        every entry, as ``loadings_sd``, ``loadings_r_hat`` and ``loadings_ess`` (n, K), the same of components
        (K, m) and of scale (n,). R-hat is the split R-hat, the effective sample size that of batch means. Their means
        are `loadings`, `components` and `scale`.
    """

    @classmethod
    def of(cls, record: FitRecord) -> Fit:
        """Return a record with the methods of a fit."""
        return cls(**vars(record))

    def transform(self, counts: Any, *, seed: int = 0) -> Array:
        """Loadings of new samples, components fixed: shape (rows, K), on the scale of `loadings`.

        The mode under map, the mean of the closed-form q under vi and svi, and the mean over posterior draws of the
        components, each with loadings sampled for it, under gibbs and nuts (`seed` is of these draws), which takes
        whole numbers.
        """
        return self.project(counts, seed=seed).loadings

    def project(self, counts: Any, *, seed: int = 0) -> Fit:
        """Fit new samples with the components fixed; return a `Fit`, with the posterior of the new loadings."""
        return Fit.of(projection.project(self, counts, seed))

    def sample_posterior(self, draws: int | None = None, *, chains: int | None = None, seed: int = 0) -> Draws:
        """Draws from q, by default 4 × 1000; of gibbs and nuts their own, evenly thinned to `draws`."""
        return draws_of_fits.sample_posterior(self, draws, chains, seed)

    def sample_posterior_predictive(
        self, draws: int = 100, *, seed: int = 0, rows: Iterable[Any] | None = None
    ) -> Array:
        """Replicated counts, shape (draws, rows, m), whole numbers; `rows` by name.

        Row totals are drawn too, save under dirichlet_poisson, where they are given.
        """
        return replication.sample_posterior_predictive(self, draws, seed, rows)

    def allocations(self, rows: Iterable[Any] | None = None) -> Array:
        """Expected allocations S_ikj, shape (rows, K, m), in counts: their sum over components is the counts.

        `rows` by name. S* of the decomposition under bld; at the modes under map; at the optimum of q (exp E log)
        under vi and svi; under gibbs and nuts the mean over up to 200 evenly spaced draws.
        """
        return allocations_of_fits.allocations(self, rows)

    def to_datatree(self, draws: int | None = None, chains: int | None = None, **selection: Any) -> xr.DataTree:
        """Convert to an ArviZ `DataTree`; see `bayesnmf.results.datatree.Contents` for the keywords."""
        from bayesnmf.results.datatree import to_datatree

        return to_datatree(self, draws, chains, **selection)

    def save(self, path: str | Path) -> None:
        """Write to a NetCDF file (`.nc`) or a Zarr store (`.zarr`): q or draws, settings and counts."""
        from bayesnmf.results.storage import save

        save(self, path)

    def summary(
        self, rows: Iterable[Any] | None = None, features: Iterable[Any] | None = None, interval: float = 0.9
    ) -> pd.DataFrame:
        """Medians and central intervals of some loadings and components; see `bayesnmf.results.summary.summary`."""
        from bayesnmf.results.summary import summary

        return summary(self, rows, features, interval)

    def top_features(self, n: int = 10) -> pd.DataFrame:
        """Names of the `n` features of greatest weight in each component, one column a component."""
        import pandas as pd

        check_count(n, "n")
        order = np.argsort(-self.components, axis=1, kind="stable")[:, :n]
        columns = [f"component {k}" for k in range(self.rank)]
        return pd.DataFrame(self.feature_names[order].T, columns=columns)


def fit(
    counts: Any,
    model: str = "gamma_poisson",
    rank: int = 10,
    method: str = "vi",
    *,
    seed: int | None = None,
    options: Options | None = None,
    progress: ProgressReport | bool = False,
) -> Fit:
    """Fit a Bayesian non-negative matrix factorisation of counts.

    Parameters
    ----------
    counts : array, SciPy sparse matrix, pandas DataFrame, AnnData or nested list, (n, m)
        Nonnegative counts, samples in rows. Whole numbers for gibbs. The fit keeps a copy, 12 bytes a nonzero in
        float64 with positions of 4 bytes, but for `Counts`, which it keeps as they are.
    model : {"poisson", "gamma_poisson", "dirichlet_poisson", "dirichlet_gamma"}
        See `bayesnmf.priors.specification` for the priors of each.
    rank : int
        Number of components, K.
    method : {"map", "vi", "gibbs", "nuts", "svi", "bld"}
        Point estimate, closed-form variational inference, Gibbs sampling, Hamiltonian Monte Carlo, stochastic
        variational inference, best latent decomposition (dirichlet_gamma alone).
    seed : int, optional
        Makes the run reproducible; by default a fresh one, kept in the result. Under map and vi several starts race,
        one of them made from the counts, so fits with other seeds agree more than random starts do: to see how much
        depends on the start, fit with ``start="random"``.
    options : MAP, VI, Gibbs, NUTS, SVI or BLD, optional
        Settings of the method: priors, start, schedule, stopping rule. Those that are left out are resolved for the
        call, and ``fit.options`` shows what was chosen.
    progress : bool or callable
        True shows a progress bar; a callable gets (label, done, total, objective).

    Returns
    -------
    Fit

    Raises
    ------
    TypeError, ValueError
        On counts, options or combinations that make no sense, naming the argument, the rule and the cure.

    Examples
    --------
    >>> import bayesnmf
    >>> counts = [[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]]
    >>> fit = bayesnmf.fit(counts, model="gamma_poisson", rank=2, method="vi", seed=0)
    >>> fit.loadings.shape, fit.components.shape
    ((4, 2), (2, 3))
    """
    check_choice(model, "model", MODELS)
    check_choice(method, "method", METHODS)
    rank = check_rank(rank)
    seed = check_seed(seed)
    options = METHODS[method].options() if options is None else options
    check_options(options, method, METHODS[method].options)
    data = as_counts(counts, dtype=getattr(options, "dtype", "float64"))
    options = resolve_options(replace(options, priors=resolve_priors(model, data, rank, options.priors)))
    check_combination(model, method, rank, data, options)
    if seed is None:
        seed = int(np.random.SeedSequence().generate_state(1)[0])
    with reporting(progress) as report:
        job = Job(data, model, rank, method, seed, with_own_start(options), report)
        result = Fit.of(METHODS[method].run(job))
    _warn_if_not_converged(result)
    return result


def _warn_if_not_converged(result: FitRecord) -> None:
    asked = (getattr(result.options, "tol", 1.0), getattr(result.options, "kkt_tol", 0.0))
    broken = result.status.reason in (INTERRUPTED, NOT_A_NUMBER)
    if result.status.converged or not (any(asked) or broken):
        return
    if result.status.reason == INTERRUPTED:
        more = ["start=fit"]
        more += [] if result.priors is result.options.priors else ["priors=fit.priors"]
        more += ["restarts=1"] if getattr(result.options, "restarts", 1) > 1 else []
        message = f"{result.method} was interrupted: this is what it had reached; continue with {', '.join(more)}"
    else:
        message = f"{result.method} did not converge ({result.status.reason}); {cure_of(result)}"
    warnings.warn(message, ConvergenceWarning, stacklevel=3)


def load(path: str | os.PathLike[str]) -> Fit:
    """Read a fit that `Fit.save` wrote.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    ValueError
        It is no fit, is damaged, or was written by a later version.
    """
    from bayesnmf.results.storage import read_fit

    return Fit.of(read_fit(path))
