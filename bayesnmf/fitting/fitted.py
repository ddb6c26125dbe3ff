"""The result of `bayesnmf.fit`, `Fit`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bayesnmf.fitting import projection
from bayesnmf.fitting.intervals import with_intervals
from bayesnmf.fitting.job import ProgressReport
from bayesnmf.results import relabelling, several
from bayesnmf.results.describing import card_of, described
from bayesnmf.results.estimates import Variation
from bayesnmf.results.intervals import WARMUP
from bayesnmf.results.readings import Readings
from bayesnmf.types import Array

if TYPE_CHECKING:
    from bayesnmf.fitting.numpyro_bridge import Program


class Fit(Readings):
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
        Numbers on how the fit ended. Of every fit: ``converged`` (1 or 0), ``iterations``, ``objective`` (of chains,
        the mean), and ``objective_change``, over its size, in the last iteration, or from the first half of the chains
        to all. Gibbs and nuts: R-hat and ESS of entries, dispersions, log joint (`bayesnmf.results.mixing`);
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
    sites : dict or None
        Of a fit of a program, the names that its sites have, by "loadings", "components" and "scale".
    reference : Reference or None
        Of a projection: the ``fit`` it was projected onto, and ``totals`` of the rows as given. It is not in files.

    See Also
    --------
    fit, load : which return it.
    markers, group_contrasts, predictive_checks, report : what to ask of it.

    Examples
    --------
    >>> import bayesnmf
    >>> fit = bayesnmf.fit([[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]], rank=2, seed=0)
    >>> fit.transform([[1, 0, 2]]).shape
    (1, 2)
    >>> fit.rename({0: "first"}).component_labels[0]
    'first'
    """

    def __repr__(self) -> str:
        return described(self)

    def _repr_html_(self) -> str:
        return card_of(self).as_html()

    def rename(self, components: Any = None, *, rows: Any = None, features: Any = None) -> Fit:
        """Return the fit with other names, for tables, figures and files: a list, or a mapping as ``{0: "B cells"}``.

        Raises TypeError or ValueError for names that do not exist, and for components of the same name.
        """
        return Fit.of(relabelling.rename(self, components, rows, features))

    def matrix(self, name: str) -> Fit:
        """Return the fit of one of several matrices, for all that is done with a fit of it alone.

        It has the rows and features of the matrix. Components on the simplex sum to 1 over its features, with loadings
        on the scale of its counts; others are cut, beside the same loadings (`bayesnmf.results.several`). Raises
        ValueError for another name.
        """
        return Fit.of(several.matrix_of(self, name))

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
        missing entries, and those that the fit lacks are left out, with a DataWarning; counts on disk must have the
        features of the fit, in its order. Of several matrices, a mapping may have one or more. A fit with
        `row_exposure`, `covariates` or batches needs those of the new samples (of AnnData, `covariates` are ``obs``);
        factors of a batch that the fit does not have are 1, with a DataWarning. `observed`, `missing`, `layer` and
        `feature_labels` are those of `bayesnmf.fit`. A DataWarning tells of rows without a count. Raises TypeError or
        ValueError for what `fit` would refuse, or no feature of the fit.
        """
        how = row_exposure, seed, observed, missing, batch, layer, feature_labels, covariates
        return projection.transform(self, counts, *how)

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

    def with_intervals(
        self,
        intervals: str = "auto",
        *,
        draws: int | None = None,
        warmup: int = WARMUP,
        seed: int | None = None,
        threads: int | None = None,
        progress: ProgressReport | bool | None = None,
        variation: Variation = "counts",
    ) -> Fit:
        """Return the fit with draws beside its estimate, from which all its intervals and probabilities are read.

        Of vi, "sampled": `draws` (250) of a chain from the fit after `warmup` sweeps; "response": draws of linear
        response; "mean_field": q; "auto": as in `VI`, now. Of map, bld and vi, "bootstrap": estimates of `draws` (100)
        replicates of the counts, or of vi with `variation="rows"` of the rows (`bayesnmf.fitting.intervals`). Raises
        ValueError if the fit cannot have what is named.
        """
        return Fit.of(with_intervals(self, intervals, warmup, draws, seed, threads, progress, variation))

    def program(self) -> Program:
        """Return the fit as a NumPyro program, for NumPyro's own functions: model, guide, arguments and start.

        Its sites are ``loadings``, ``components``, ``scale`` where there is one, and ``counts``. NumPyro works in
        float32 unless ``jax.config.update("jax_enable_x64", True)`` comes first. Raises ValueError for a fit that no
        program states: with batches, covariates, quasi-Poisson noise or zero inflation.

        Examples
        --------
        >>> import bayesnmf, jax
        >>> from numpyro.infer import MCMC, NUTS, init_to_value
        >>> fit = bayesnmf.fit([[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]], rank=2, seed=0)
        >>> program = fit.program()
        >>> kernel = NUTS(program.model, init_strategy=init_to_value(values=program.start))
        >>> mcmc = MCMC(kernel, num_warmup=5, num_samples=5, progress_bar=False)
        >>> mcmc.run(jax.random.key(0), **program.arguments)
        >>> mcmc.get_samples()["components"].shape
        (5, 2, 3)
        """
        from bayesnmf.fitting.numpyro_bridge import program_of

        return program_of(self)
