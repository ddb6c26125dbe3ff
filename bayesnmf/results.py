"""What a fit returns: point summaries, posterior, trace, status, and everything one can do with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bayesnmf.counts import Counts
from bayesnmf.inference.coordinate_ascent import Status
from bayesnmf.options import Options, Priors
from bayesnmf.priors import Dirichlet, Distribution, Gamma, ScaledProportions
from bayesnmf.specification import MODELS

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class VariationalPosterior:
    """The closed-form q: independent over rows and components.

    Attributes
    ----------
    loadings : Gamma, Dirichlet or ScaledDirichlet
        q of the loadings, parameters (n, K); a ScaledDirichlet holds that of the scale, (n, 1), as well.
    components : Gamma, Dirichlet or None
        q of the components, parameters (K, m). None where they are parameters without a posterior.
    """

    loadings: Distribution
    components: Gamma | Dirichlet | None


@dataclass(frozen=True, eq=False)
class Draws:
    """Posterior draws, matched to one order of the components.

    Attributes
    ----------
    loadings : ndarray (chains, draws, n, K)
        Proportions where there is a scale.
    components : ndarray (chains, draws, K, m)
    scale : ndarray (chains, draws, n) or None
        Under dirichlet_gamma.
    """

    loadings: Array
    components: Array
    scale: Array | None = None

    @property
    def chains(self) -> int:
        """Number of chains."""
        return self.loadings.shape[0]

    @property
    def draws(self) -> int:
        """Draws in each chain."""
        return self.loadings.shape[1]


@dataclass(frozen=True, eq=False, repr=False)
class Fit:
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
        loadings of up to 50 rows and the log joint, the share of these entries above 1.05 (`bayesnmf.mixing`), R-hat
        and ESS of the log joint alone, divergences, how often labels switched within chains (which matching undoes) and
        the share of draws whose components can hardly be told apart (`bayesnmf.sampling.label_switching`). Map: the KKT
        residual and the least gradient at the end ([C] A.3; −0.1: an EM update would make some entry 1.1 times as
        large, which at a small residual is one wrongly stuck at 0), by which it is judged
        (`bayesnmf.inference.optimality`). Several restarts: how many, and where the worst ended.
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

    model: str
    method: str
    rank: int
    loadings: Array
    components: Array
    scale: Array | None
    trace: Array
    status: Status
    priors: Priors
    options: Options
    counts: Counts
    seed: int
    seconds: float
    diagnostics: dict[str, float]
    residuals: Array | None = None
    multipliers: tuple[Array, Array] | None = None
    statistics: dict[str, Array] | None = None
    moments: dict[str, Array] | None = None
    _posterior: VariationalPosterior | Draws | None = None

    @property
    def posterior(self) -> VariationalPosterior | Draws:
        """The closed-form q (vi, svi) or the draws (gibbs, nuts)."""
        if self._posterior is None:
            kind = self.method.upper()
            raise AttributeError(f"a {kind} fit has no posterior; fit with method='vi' (or 'gibbs', 'nuts', 'svi')")
        return self._posterior

    @property
    def row_names(self) -> Array:
        """Names of the samples."""
        return self.counts.row_names

    @property
    def feature_names(self) -> Array:
        """Names of the features."""
        return self.counts.feature_names

    @property
    def expected_loadings(self) -> Array:
        """Loadings on the scale of the counts, (n, K), so that times `components` they are the fitted means."""
        return effective_loadings(self, self.loadings, self.scale)

    def transform(self, counts: Any, *, seed: int = 0) -> Array:
        """Loadings of new samples, components fixed: shape (rows, K), on the scale of `loadings`.

        The mode under map, the mean of the closed-form q under vi and svi, and the mean over posterior draws of the
        components, each with loadings sampled for it, under gibbs and nuts (`seed` is of these draws), which takes
        whole numbers.
        """
        return self.project(counts, seed=seed).loadings

    def project(self, counts: Any, *, seed: int = 0) -> Fit:
        """Fit new samples with the components fixed; return a `Fit`, with the posterior of the new loadings."""
        from bayesnmf.projection import project

        return project(self, counts, seed)

    def sample_posterior(self, draws: int | None = None, *, chains: int | None = None, seed: int = 0) -> Draws:
        """Draws from q, by default 4 × 1000; of gibbs and nuts their own, evenly thinned to `draws`."""
        from bayesnmf.posterior import sample_posterior

        return sample_posterior(self, draws, chains, seed)

    def sample_posterior_predictive(
        self, draws: int = 100, *, seed: int = 0, rows: Iterable[Any] | None = None
    ) -> Array:
        """Replicated counts, shape (draws, rows, m), whole numbers; `rows` by name.

        Row totals are drawn too, save under dirichlet_poisson, where they are given.
        """
        from bayesnmf.posterior import sample_posterior_predictive

        return sample_posterior_predictive(self, draws, seed, rows)

    def allocations(self, rows: Iterable[Any] | None = None) -> Array:
        """Expected allocations S_ikj, shape (rows, K, m), in counts: their sum over components is the counts.

        `rows` by name. S* of the decomposition under bld; at the modes under map; at the optimum of q (exp E log)
        under vi and svi; under gibbs and nuts the mean over up to 200 evenly spaced draws.
        """
        from bayesnmf.allocations import allocations

        return allocations(self, rows)

    def to_datatree(self, draws: int | None = None, chains: int | None = None, **selection: Any) -> xr.DataTree:
        """Convert to an ArviZ `DataTree`; see `bayesnmf.datatree.Contents` for the keywords."""
        from bayesnmf.datatree import to_datatree

        return to_datatree(self, draws, chains, **selection)

    def save(self, path: str | Path) -> None:
        """Write to a NetCDF file (`.nc`) or a Zarr store (`.zarr`): q or draws, settings and counts."""
        from bayesnmf.storage import save

        save(self, path)

    def summary(
        self, rows: Iterable[Any] | None = None, features: Iterable[Any] | None = None, interval: float = 0.9
    ) -> pd.DataFrame:
        """Medians and central intervals of some loadings and components; see `bayesnmf.diagnostics.summary`."""
        from bayesnmf.diagnostics import summary

        return summary(self, rows, features, interval)

    def top_features(self, n: int = 10) -> pd.DataFrame:
        """Names of the `n` features of greatest weight in each component, one column a component."""
        import pandas as pd

        from bayesnmf import checks

        checks.check_count(n, "n")
        order = np.argsort(-self.components, axis=1, kind="stable")[:, :n]
        columns = [f"component {k}" for k in range(self.rank)]
        return pd.DataFrame(self.feature_names[order].T, columns=columns)

    def __repr__(self) -> str:
        n, m = self.counts.shape
        bounds = {"vi": "elbo_augmented", "svi": f"elbo_{getattr(self.options, 'bound', '')}, estimated,"}
        unit = bounds.get(self.method, "log joint" if self.multipliers is None else "log p(S)")
        if self.trace.ndim == 2:
            chains, draws = self.trace.shape
            every = self.diagnostics.get("kept_every", 1)
            kept = f", every {every:.0f}th kept" if every > 1 else ""
            objective = f"{chains} chains × {draws} draws{kept}, mean {unit} {self.trace.mean():,.1f}"
            if switches := self.diagnostics.get("label_switches"):
                objective += f"; labels switched {switches:.0f} times within chains, undone by matching"
        else:
            objective = f"{unit} {self.trace[-1]:,.3f} after {self.status.iterations} iterations"
        state = "converged" if self.status.converged else "not converged"
        return (
            f"<bayesnmf.Fit {self.model} by {self.method}, rank {self.rank}, {n:,} rows × {m:,} features\n"
            f"  {objective}\n"
            f"  {state}: {self.status.reason}; {self.seconds:.2f} s, seed {self.seed}>"
        )


def effective_loadings(fit: Fit, loadings: Array, scale: Array | None) -> Array:
    """Loadings on the scale of the counts: times the scale, or the given row totals."""
    if scale is not None:
        return loadings * scale[..., None]
    if MODELS[fit.model].given_totals:
        return loadings * fit.counts.row_totals[:, None]
    return loadings


def trace_of_kept(fit: Fit) -> Array:
    """Return the log joint of the draws in `posterior`, (chains, draws), those of gibbs and nuts."""
    return fit.trace[:, :: int(fit.diagnostics.get("kept_every", 1))]


def iterate_draws(fit: Fit, draws: int, seed: int, *, shares: bool = False) -> Iterator[tuple[Array, Array]]:
    """Yield pairs of draws: loadings on the scale of the counts (n, K) and components (K, m), one at a time.

    With `shares`, loadings are without the scale or the given row totals, so that rows whose total is 0 have them too.
    From q they are independent; of gibbs and nuts they are evenly spaced among all chains; under map the one point.
    """

    def scaled(loadings: Array, scale: Array | None) -> Array:
        return loadings if shares else effective_loadings(fit, loadings, scale)

    posterior = fit._posterior
    if posterior is None:
        yield scaled(fit.loadings, fit.scale), fit.components
    elif isinstance(posterior, Draws):
        total = posterior.chains * posterior.draws
        for index in np.unique(np.linspace(0, total - 1, min(draws, total)).astype(int)):
            at = divmod(int(index), posterior.draws)
            scale = None if posterior.scale is None else posterior.scale[at]
            yield scaled(posterior.loadings[at], scale), posterior.components[at]
    else:
        rng = np.random.default_rng(seed)
        for _ in range(draws):
            value: Any = posterior.loadings.draw(rng)
            components = fit.components if posterior.components is None else posterior.components.draw(rng)
            split = isinstance(value, ScaledProportions)
            loadings, scale = (value.proportions, value.scale[:, 0]) if split else (value, None)
            yield scaled(loadings, scale), components
