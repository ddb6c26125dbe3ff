"""The result of `bayesnmf.fit`, `Fit`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesnmf.fitting import projection
from bayesnmf.fitting.intervals import with_intervals
from bayesnmf.fitting.job import ProgressReport
from bayesnmf.results import allocations as allocations_of_fits
from bayesnmf.results import (
    annotation,
    effects,
    expected,
    leading,
    markers,
    renaming,
    replication,
    several,
    shares,
    summary,
)
from bayesnmf.results import draws as draws_of_fits
from bayesnmf.results.batch_factors import batch_factors
from bayesnmf.results.describing import described
from bayesnmf.results.dispersion import Dispersion, dispersion
from bayesnmf.results.estimates import Draws
from bayesnmf.results.record import FitRecord
from bayesnmf.results.short_chain import WARMUP
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr


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
        Priors of the fit, with defaults filled in; learned priors under VI(learn=...), and effects of covariates.
    options : MAP, VI, Gibbs, NUTS, SMC, SVI or BLD
        Options of the fit, with the algorithm, start, tolerance and priors that were chosen in place of None.
    counts : Counts
        Fitted counts.
    seed : int
        Seed of the fit.
    seconds : float
        Wall time, including a closed-form start.
    diagnostics : dict
        Further results. Gibbs and nuts: R-hat and ESS of entries, dispersions, log joint (`bayesnmf.results.mixing`);
        with Gibbs(draws="auto"), the smallest ESS of the components' shares of the counts, the number of sweeps and of
        sweeps per draw; divergences; label switches within chains, which matching undoes, and the share of draws with
        components too similar to be matched (`bayesnmf.results.relabelling`). Map: the final KKT residual, in
        counts, and the least gradient ([C] A.3), which decide convergence (`bayesnmf.inference.ascent.kkt`).
        With restarts: their number, and the worst final objective.
    residuals : ndarray or None
        KKT residuals of the states of `trace`, in counts, under map.
    multipliers : tuple of ndarray (n, K) and (K, m), or None
        Multipliers μ and ν of the decomposition, S_ikj = X_ij μ_ik ν_kj / Σ_c μ_ic ν_cj, under bld; rows of both sum
        to 1.
    statistics : dict of ndarray (chains, draws), or None
        Statistics of every draw: under nuts divergences, steps, acceptance; under gibbs a drawn ``dispersion``,
        (chains, draws, n) or (chains, draws, m) if each row or feature has its own, and ``effects`` of standardised
        covariates, (chains, draws, p, K), with ``shapes`` of the loadings.
    moments : dict of ndarray, or None
        Moments of all draws if `posterior` contains only every `diagnostics["kept_every"]`-th draw: ``loadings_sd``,
        ``loadings_r_hat`` (split) and ``loadings_ess`` (by batch means), (n, K), and the same for components (K, m) and
        scale (n,). The means of all draws are `loadings`, `components` and `scale`.
    intervals : Intervals or None
        Draws that intervals are read from (`with_intervals`): a kind, ``draws``, and R-hat of their chain.
    noise : Poisson, NegativeBinomial or Quasi
        Distribution of the counts around their means, with the dispersion that was estimated.
    batch : FittedBatches or None
        Factors of batches (`batch_factors`): names, shape of the prior, and means (B, m).
    """

    def __repr__(self) -> str:
        return described(self)

    def rename(self, components: Any = None, *, rows: Any = None, features: Any = None) -> Fit:
        """Return the fit with other names, for tables, figures and files: a list, or a mapping as ``{0: "B cells"}``.

        Raises TypeError or ValueError for names that do not exist, and for components of the same name.
        """
        return Fit.of(renaming.rename(self, components, rows, features))

    def matrix(self, name: str) -> Fit:
        """Return the fit of one of several matrices, for all that is done with a fit of it alone.

        It has the rows and features of the matrix. Components on the simplex sum to 1 over its features, with loadings
        on the scale of its counts; others are cut, beside the same loadings (`bayesnmf.results.several`). Raises
        ValueError for another name.
        """
        return Fit.of(several.matrix_of(self, name))

    def matrices(self, interval: float = 0.9) -> pd.DataFrame:
        """Return the share of each matrix in each component; see `bayesnmf.results.several.shares_of_matrices`."""
        return several.shares_of_matrices(self, interval)

    def transform(
        self,
        counts: Any,
        *,
        row_exposure: Any = None,
        observed: Any = None,
        missing: Any = None,
        batch: Any = None,
        layer: str | None = None,
        feature_labels: str | None = None,
        covariates: Any = None,
        seed: int = 0,
    ) -> Array:
        """Return the loadings of new samples given the components, (rows, K), on the scale of `loadings`.

        They are the mode under map and bld, and the mean of the closed-form q under vi and svi. Under gibbs and nuts,
        they are the mean of loadings sampled, with `seed`, for each of several draws of the components; counts must
        then be whole numbers. Features are matched by name if both have names: those that the new samples lack are
        missing cells, and those that the fit lacks are left out, with a DataWarning; counts on disk must have the
        features of the fit, in its order. Of several matrices, a mapping may have one or more. A fit with
        `row_exposure`, `covariates` or batches needs those of the new samples (of AnnData, `covariates` are ``obs``);
        factors of a batch that the fit does not have are 1, with a DataWarning. `observed`, `missing`, `layer` and
        `feature_labels` are those of `bayesnmf.fit`. Raises TypeError or ValueError for what `fit` would refuse, or no
        feature of the fit.
        """
        cells = {"observed": observed, "missing": missing, "layer": layer, "feature_labels": feature_labels}
        more = {"row_exposure": row_exposure, "covariates": covariates, "batch": batch, "seed": seed}
        return self.project(counts, **more, **cells).loadings

    def project(
        self,
        counts: Any,
        *,
        row_exposure: Any = None,
        observed: Any = None,
        missing: Any = None,
        batch: Any = None,
        layer: str | None = None,
        feature_labels: str | None = None,
        covariates: Any = None,
        seed: int = 0,
    ) -> Fit:
        """Return the fit of new samples with the components fixed; parameters and errors as for `transform`."""
        how = row_exposure, seed, observed, missing, batch, layer, feature_labels, covariates
        return Fit.of(projection.project(self, counts, *how))

    def expected(
        self, rows: Iterable[Any] | None = None, features: Iterable[Any] | None = None, interval: float = 0.9
    ) -> pd.DataFrame:
        """Return expected counts with intervals, of missing cells too; see `bayesnmf.results.expected.expected`."""
        return expected.expected(self, rows, features, interval)

    def effects(self, interval: float = 0.9) -> pd.DataFrame:
        """Return the effects of covariates on each component, a row for each component and term, with intervals.

        Columns are ``effect``, on the log scale of loadings (of concentrations under dirichlet_poisson and
        dirichlet_gamma) and in the units of the covariates, ``low`` and ``high``, ``sd`` and ``lfsr``, the smaller of
        the probabilities that it is at least 0 and at most 0. The intercept is the logarithm of the counts of the
        component that are expected where all covariates are 0, or of its concentration. ``attrs`` has the scale, what
        the intervals are, and cautions. Raises ValueError for a fit without covariates.
        """
        return effects.effects(self, interval)

    def predicted_shares(self, covariates: Any, interval: float = 0.9) -> pd.DataFrame:
        """Return the share of each component in the counts that are expected of rows with these covariates.

        `covariates` has a row for each, with the columns that the fit had. The table has a row for each of them and
        each component: ``share``, ``low`` and ``high``, always between 0 and 1. Raises ValueError for a fit without
        covariates, missing values, and categories that no fitted row has.
        """
        return effects.predicted_shares(self, covariates, interval)

    def sample_posterior(self, draws: int | None = None, *, chains: int | None = None, seed: int = 0) -> Draws:
        """Return draws from q, by default 4 × 1000, or the draws of gibbs and nuts, evenly thinned to `draws`.

        Raises AttributeError for a point estimate, and ValueError for more draws than available or than 2 GiB.
        """
        return draws_of_fits.sample_posterior(self, draws, chains, seed)

    def sample_posterior_predictive(
        self, draws: int = 100, *, seed: int = 0, rows: Iterable[Any] | None = None
    ) -> Array:
        """Return replicated counts, (draws, rows, m), whole numbers, for the rows with the given names (default: all).

        They have the noise of the fit, with its dispersion. Row totals are drawn too, except under dirichlet_poisson,
        where they are given.
        """
        return replication.sample_posterior_predictive(self, draws, seed, rows)

    def with_intervals(
        self,
        intervals: str = "auto",
        *,
        draws: int | None = None,
        warmup: int = WARMUP,
        seed: int | None = None,
        threads: int | None = None,
        progress: ProgressReport | bool = False,
    ) -> Fit:
        """Return the fit with draws beside its estimate, from which all its intervals and probabilities are read.

        Of vi, "sampled": `draws` (250) of a chain from the fit after `warmup` sweeps; "response": draws of linear
        response; "mean_field": q; "auto": as in `VI`, now. Of map, bld and vi, "bootstrap": estimates of `draws` (100)
        replicates of the counts (`bayesnmf.fitting.intervals`). Raises ValueError if the fit cannot have what is named.
        """
        return Fit.of(with_intervals(self, intervals, (warmup, draws), seed, threads, progress))

    def dispersion(self) -> Dispersion:
        """Return how much the counts vary around the means of the fit: 1 if as much as Poisson counts.

        There is one value for all cells, with a standard error, and tables of rows and features. Around the means of a
        fit with quasi-Poisson noise, whose priors weigh more, it is larger. Raises ValueError if there are as many
        parameters as cells.
        """
        return dispersion(self)

    def batch_factors(self, interval: float = 0.9) -> pd.DataFrame:
        """Return mean, lower and upper of the factor of each batch and feature; `bayesnmf.results.batch_factors`."""
        return batch_factors(self, interval)

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
        return summary.summary(self, rows, features, interval)

    def top_features(self, n: int = 10, order: str = "lift") -> pd.DataFrame:
        """Return the names of the `n` leading features of each component, one column per component.

        By "lift", features that are common in the component and rarer in the others, share × log(share / mean share);
        "weight", by share; "next" or "rest": see `bayesnmf.results.markers.leading_features`.
        """
        return markers.top_features(self, n, order)

    def top_rows(self, n: int = 10, interval: float = 0.9) -> pd.DataFrame:
        """Return the rows that show each component best, with intervals; see `bayesnmf.results.shares.top_rows`."""
        return shares.top_rows(self, n, interval)

    def shares(self, rows: Iterable[Any] | None = None, interval: float = 0.9) -> pd.DataFrame:
        """Return the share of each component in the expected counts of rows; see `bayesnmf.results.shares.shares`."""
        return shares.shares(self, rows, interval)

    def leading_components(self, order: str = "lift") -> pd.DataFrame:
        """Return the leading component of each row, the usual assignment, with its share of the row and its lift.

        By "lift", that of the largest share × log(share / mean share over rows) leads; by "share", that of the largest
        share, which may be one that all rows have; see `bayesnmf.results.leading.leading_components`.
        """
        return leading.leading_components(self, order)
