"""What is read from a fit: methods of `bayesnmf.Fit` that need no further fit."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bayesnmf.needs import needed_for
from bayesnmf.results import (
    annotation,
    coordinates,
    effects,
    expected,
    explained,
    markers,
    replication,
    sensitivity,
    several,
    shares,
    summary,
)
from bayesnmf.results import draws as draws_of_fits
from bayesnmf.results.dispersion import Dispersion, dispersion
from bayesnmf.results.effects import batch_factors
from bayesnmf.results.estimates import Draws
from bayesnmf.results.intervals import with_own_draws
from bayesnmf.results.moved import moved_of
from bayesnmf.results.record import FitRecord
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr


class Readings(FitRecord):
    """Record of a fit, with methods that read tables, draws and files from it."""

    def matrices(self, interval: float = 0.9) -> pd.DataFrame:
        """Return the share of each matrix in each component; see `bayesnmf.results.several.shares_of_matrices`."""
        return several.shares_of_matrices(self, interval)

    def expected(
        self, rows: Iterable[Any] | None = None, features: Iterable[Any] | None = None, interval: float = 0.9
    ) -> pd.DataFrame:
        """Return expected counts with intervals, of missing entries too; see `bayesnmf.results.expected.expected`."""
        return expected.expected(self, rows, features, interval)

    def effects(self, interval: float = 0.9, variation: str = "rows") -> pd.DataFrame:
        """Return the effects of covariates on each component, a row for each component and term, with intervals.

        Columns are ``effect``, on the log scale of loadings (of concentrations under dirichlet_poisson and
        dirichlet_gamma) and in the units of the covariates, ``low`` and ``high``, ``sd`` and ``lfsr``, the smaller of
        the probabilities that it is at least 0 and at most 0. The intercept is the logarithm of the counts of the
        component that are expected where all covariates are 0, or of its concentration. ``attrs`` has the scale, what
        the intervals are, the number of draws, and cautions. Raises ValueError for a fit without covariates.

        `variation` says how loadings vary between rows with the same covariates: "rows", as the rows show it, which
        holds where real counts vary in another way than the prior says (docs/covariates.md); or "prior", which gives
        the posterior of the effects. Of one of several matrices, "rows" needs the fit of all, and is read as "prior".
        """
        return effects.effects(self, interval, variation)

    def predicted_shares(self, covariates: Any, interval: float = 0.9) -> pd.DataFrame:
        """Return the mean share of each component in rows with these covariates, with intervals of that mean.

        `covariates` has a row for each, with the columns that the fit had. The table has a row for each of them and
        each component: ``share``, ``low`` and ``high``, always between 0 and 1. Means are read off the shares of the
        rows of the fit, by a regression that holds whatever their distribution is (docs/covariates.md), and not off the
        fitted prior. ``attrs`` has the scale, what the intervals are, and cautions. Raises ValueError for a fit without
        covariates, missing values, and categories that no fitted row has.
        """
        return effects.predicted_shares(self, covariates, interval)

    def sample_posterior(self, draws: int | None = None, *, chains: int | None = None, seed: int = 0) -> Draws:
        """Return draws from q, by default 4 × 1000, or the draws of gibbs and nuts, evenly thinned to `draws`.

        Of ``fit.with_intervals("sampled")`` or ``"response"``, they are the draws that its intervals are read from.
        Raises AttributeError for a point estimate, and ValueError for more draws than available or than 2 GiB.
        """
        return draws_of_fits.sample_posterior(with_own_draws(self, "sampled", "linear response"), draws, chains, seed)

    def sample_posterior_predictive(
        self, draws: int = 100, *, seed: int = 0, rows: Iterable[Any] | None = None
    ) -> Array:
        """Return replicated counts, (draws, rows, m), whole numbers, for the rows with the given names (default: all).

        They have the noise of the fit, with its dispersion. Row totals are drawn too, except under dirichlet_poisson,
        where they are given. Of ``fit.with_intervals("sampled")`` they are around its draws. Draws of linear response
        are not made for products of loadings and components, so there they are around q.
        """
        return replication.sample_posterior_predictive(with_own_draws(self, "sampled"), draws, seed, rows)

    def dispersion(self) -> Dispersion:
        """Return how much the counts vary around the means of the fit: 1 if as much as Poisson counts.

        There is one value for all entries, with a standard error, and tables of rows and features. Around the means of
        a fit with quasi-Poisson noise, whose priors weigh more, it is larger. Raises ValueError if there are as many
        parameters as entries.
        """
        return dispersion(self)

    @property
    def moved(self) -> pd.DataFrame | None:
        """How far known components have moved from where they were, with `drift=` of `bayesnmf.fit`; else None.

        A row for each: the ``cosine`` between it and the fitted component, and its prior's ``strength``, in counts.
        """
        return moved_of(self)

    def batch_factors(self, interval: float = 0.9) -> pd.DataFrame:
        """Return mean, lower and upper of the factor of each batch and feature; `bayesnmf.results.effects`."""
        return batch_factors(self, interval)

    def allocations(self, rows: Iterable[Any] | None = None) -> Array:
        """Return expected allocations S_ikj, (rows, K, m), in counts; their sum over components equals the counts.

        `rows` are names, by default all. The allocations are S* of the decomposition under bld, those at the modes
        under map, those at the optimum of q (exp E log) under vi and svi, and the mean over up to 200 draws
        under gibbs and nuts. Raises ValueError for unknown rows or more than 2 GiB.
        """
        return expected.allocations(self, rows)

    def to_anndata(self, adata: Any = None, *, key_added: str = "bayesnmf", seed: int = 0) -> Any:
        """Write the fit into the AnnData object that was fitted, or into a new one, and return it.

        ``obsm["X_" + key_added]`` has the expected share of each component in each row's counts, (n, K), and
        ``obsm["X_" + key_added + "_sd"]`` its posterior standard deviation, over up to 200 draws made with `seed`;
        ``varm[key_added]`` the components, (m, K); ``uns[key_added]`` the settings. Raises ValueError for other rows.
        """
        return annotation.to_anndata(self, adata, key_added, seed)

    def to_datatree(
        self, draws: int | Literal["all"] | None = None, chains: int | None = None, **selection: Any
    ) -> xr.DataTree:
        """Return an ArviZ `DataTree` of the fit; see `bayesnmf.results.datatree.Contents` for the keywords.

        Without a number of draws, they are evenly thinned to about 80 MB, but to no less than 100 draws (the attribute
        `thinned` says so); ``draws="all"`` converts all.
        """
        with needed_for("fit.to_datatree"):
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

    def top_features(self, n: int = 10, order: str = "distinct") -> pd.DataFrame:
        """Return the names of the `n` leading features of each component, one column per component.

        "distinct": features that are common in the component and rarer in the rest of the counts, by √share − √(share
        in the rest); "share": of the largest shares; "lift", "next" or "rest": see
        `bayesnmf.results.markers.leading_features`.
        """
        return markers.top_features(self, n, order)

    def top_rows(self, n: int = 10, interval: float = 0.9) -> pd.DataFrame:
        """Return the rows that show each component best, with intervals; see `bayesnmf.results.shares.top_rows`."""
        return shares.top_rows(self, n, interval)

    def sensitivity(
        self, rows: Iterable[Any] | None = None, features: Iterable[Any] | None = None, threshold: float = 0.2
    ) -> pd.DataFrame:
        """Return how much quantities depend on the prior and on the likelihood, by power scaling.

        See `bayesnmf.results.sensitivity.sensitivity`.
        """
        return sensitivity.sensitivity(self, rows, features, threshold)

    def shares(self, rows: Iterable[Any] | None = None, interval: float = 0.9) -> pd.DataFrame:
        """Return the share of each component in the expected counts of rows; see `bayesnmf.results.shares.shares`."""
        return shares.shares(self, rows, interval)

    def explained(self, level: float = 0.05) -> pd.DataFrame:
        """Return how much of each projected row the reference explains, and whether the row is of its kind.

        A row is of its kind if at least a share of `level` of the reference's own rows differ as much from what it
        explains; see `bayesnmf.results.explained.explained`.
        """
        return explained.explained(self, level)

    def leading_components(self, order: str = "lift") -> pd.DataFrame:
        """Return the leading component of each row, the usual assignment, with its share of the row and its lift.

        By "lift", that of the largest share × log(share / mean share over rows) leads; by "specific", that of the
        largest share among components that not all rows have, which sorts rows into groups; by "share", that of the
        largest share, which may be one that all rows have. See `bayesnmf.results.shares.leading_components`.
        """
        return shares.leading_components(self, order)

    def coordinates(self) -> pd.DataFrame:
        """Return where rows lie, (n, K − 1), so that their distances are those of their expected profiles.

        For clusters, neighbours and pictures of rows: components of similar profiles are near to each other. See
        `bayesnmf.results.coordinates.coordinates`.
        """
        return coordinates.coordinates(self)
