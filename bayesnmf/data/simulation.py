"""Draw parameters and counts from a model, as a known truth to compare posteriors with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from bayesnmf.checks import check_count, check_instance, check_rank, check_size
from bayesnmf.data.batches import with_batch
from bayesnmf.data.checks import check_drawable, check_noise_of_draws, check_totals
from bayesnmf.data.counts import Counts
from bayesnmf.data.covariates.checks import check_has_formula
from bayesnmf.data.covariates.design import read_given, with_covariates
from bayesnmf.data.exposures import with_exposures
from bayesnmf.data.several import joined, noise_for, sizes_of
from bayesnmf.noise.abilities import Distributed, Noise
from bayesnmf.noise.poisson import POISSON
from bayesnmf.options.combinations import FEATURE_EXPOSURE, ROW_EXPOSURE, check_together
from bayesnmf.options.rules import FREE_TOTALS, PROPER_COMPONENTS, PROPER_LOADINGS, Request
from bayesnmf.priors import Priors, matrix
from bayesnmf.priors.checks import (
    check_family,
)
from bayesnmf.priors.pair import replace_sides, with_defaults
from bayesnmf.priors.specification import MODELS, SPARSE, check_model
from bayesnmf.priors.values import separate_scale
from bayesnmf.types import Array, ModelName, NoiseName

MEAN_TOTAL = 200.0
LARGEST_DENSE = 2 * 2**30
SHAPE = 10.0  # of factors of batches


@dataclass(frozen=True, eq=False, repr=False)
class Simulation:
    """Counts drawn from a model, together with the parameters.

    Attributes
    ----------
    counts : Counts (n, m)
    loadings : ndarray (n, K)
        Loadings; under dirichlet_poisson and dirichlet_gamma they are proportions.
    components : ndarray (K, m)
    scale : ndarray (n,) or None
        Scale of each row; dirichlet_gamma only.
    model : str
    priors : Priors
        Priors that the parameters were drawn from, with defaults filled in.
    noise : Poisson or NegativeBinomial
        Noise that the counts were drawn with.
    batch_factors : ndarray (B, m) or None
        Factors of batches and features.

    See Also
    --------
    simulate : which makes it.
    posterior_agreement : compares posteriors with its truth.

    Examples
    --------
    >>> import bayesnmf
    >>> made = bayesnmf.simulate("gamma_poisson", (4, 3), rank=2, seed=0)
    >>> made.counts.shape, made.loadings.shape, made.components.shape
    ((4, 3), (4, 2), (2, 3))
    """

    counts: Counts
    loadings: Array
    components: Array
    scale: Array | None
    model: str
    priors: Priors
    noise: Noise = POISSON
    batch_factors: Array | None = None

    @property
    def rank(self) -> int:
        """Number of components, K."""
        return self.components.shape[0]

    @property
    def means(self) -> Array:
        """Expected counts (n, m), given the row totals under dirichlet_poisson."""
        means = effective(self) @ self.counts.exposed_components(self.components)
        return means if self.batch_factors is None else means * self.batch_factors[self.counts.batch.codes]

    def __repr__(self) -> str:
        noise = "" if self.noise == POISSON else f", {self.noise!r}"
        return f"<bayesnmf.Simulation {self.model}, rank {self.rank}{noise}: {self.counts.in_short()}>"


def effective(simulation: Simulation) -> Array:
    """Return the loadings (n, K) on the scale of the counts: times the scale, or the given totals, and the exposure."""
    loadings = simulation.loadings
    if MODELS[simulation.model].given_totals:
        return simulation.counts.row_totals[:, None] * loadings
    scaled = loadings if simulation.scale is None else simulation.scale[:, None] * loadings
    return np.asarray(simulation.counts.exposed_loadings(scaled))


def simulate(
    model: ModelName = "gamma_poisson",
    size: tuple[int, int | Mapping[str, int]] = (100, 50),
    rank: int = 5,
    *,
    priors: Priors | None = None,
    formula: str | None = None,
    covariates: Any = None,
    effects: ArrayLike | None = None,
    noise: NoiseName | Noise | Mapping[str, NoiseName | Noise] = "poisson",
    totals: ArrayLike | None = None,
    batch: Any = None,
    row_exposure: ArrayLike | None = None,
    feature_exposure: ArrayLike | None = None,
    seed: int = 0,
) -> Simulation:
    """Draw parameters from their priors, and counts given the parameters.

    Parameters
    ----------
    model : str
        Name of the model, as for `bayesnmf.fit`.
    size : (n, m)
        Number of rows and of features, or of those of several matrices by name, as (100, {"sbs": 96, "id": 83}).
    rank : int
        Number of components, K.
    priors : Priors, optional
        Proper priors. The defaults are those of a fit to counts with these totals. The default prior of `poisson` is
        flat, so it cannot be drawn from.
    formula : str, optional
        What loadings depend on, as for `bayesnmf.fit`.
    covariates : DataFrame, Series, mapping of columns or array (n, p), optional
        Columns that `formula` names, as for `bayesnmf.fit`.
    effects : array_like (p, K), optional
        Effects of the covariates in their units, drawn by default: first intercepts, log means of loadings (or log
        concentrations), then a row for each term.
    noise : "poisson" or NegativeBinomial
        Noise with a known dispersion. Under dirichlet_poisson the variance must be linear, and not that of features.
    totals : float or array_like (n,), optional
        Under dirichlet_poisson, the row totals, whole numbers. Otherwise one number, the mean row total for the default
        prior of the loadings, by default 200; not allowed with `priors.loadings`, which already sets the scale.
    batch : labels (n,) or Batch, optional
        The batch of each row, which the counts carry to `bayesnmf.fit`; factors have shape 10 if none is given.
    row_exposure : array, mapping or Series (n,), optional
        Multiplies the expected counts of each sample; the counts carry it to `bayesnmf.fit`.
    feature_exposure : array, mapping or Series (m,), optional
        Multiplies the expected counts of each feature; the counts carry it to `bayesnmf.fit`.
    seed : int

    Returns
    -------
    Simulation

    Raises
    ------
    TypeError, ValueError
        Invalid arguments, improper priors, or a noise without a known distribution.

    See Also
    --------
    Simulation : what it returns.
    datasets.digits, datasets.swimmer : other counts without a download.

    Examples
    --------
    >>> import bayesnmf
    >>> drawn = bayesnmf.simulate("dirichlet_poisson", (4, 6), rank=2, totals=50, seed=0)
    >>> drawn.counts.row_totals
    array([50., 50., 50., 50.])
    """
    check_model(model)
    (n, m, sizes), rank = sizes_of(size), check_rank(rank)
    rng = np.random.default_rng(check_count(seed, "seed", minimum=0))
    check_size(8 * n * m, LARGEST_DENSE, "the counts", "simulate fewer rows at a time")
    check_size(8 * rank * (n + m), LARGEST_DENSE, f"loadings and components of rank {rank}", "lower rank")
    check_instance(given := Priors() if priors is None else priors, Priors, "priors")
    exposed = with_exposures(_empty_counts(n, sizes), row_exposure, feature_exposure)
    law = check_noise_of_draws(noise_for(noise, exposed), (n, m), MODELS[model].given_totals)
    row_totals = check_totals(totals, n, MODELS[model].given_totals, given.loadings is None, MEAN_TOTAL)
    of_rows = read_given(formula, covariates, None, exposed)
    filled = _filled(_with_own(given, model, exposed, rank, row_totals), of_rows, rank, effects, rng)
    _check_drawable_priors(model, filled, (n, m), rank)
    check_together(Request(model, priors=filled, counts=exposed), ROW_EXPOSURE, FEATURE_EXPOSURE)
    value: Any = filled.loadings.broadcast((n, rank)).draw(rng)  # type: ignore[union-attr]
    components: Any = filled.components.broadcast((rank, m)).draw(rng)  # type: ignore[union-attr]
    means = exposed.exposed_loadings(matrix(value)) @ exposed.exposed_components(components)
    exposed, factors, means = _with_factors(exposed, batch, means, model, rng)
    drawn = _drawn(law, means, row_totals if MODELS[model].given_totals else None, rng)
    counts = exposed.with_matrix(csr_array(drawn.astype(np.float64)))
    loadings, scale = separate_scale(value)
    return Simulation(counts, loadings, components, scale, model, filled, law, factors)


def _with_own(given: Priors, model: str, exposed: Counts, rank: int, totals: Array) -> Priors:
    """Return priors with the defaults for counts with these totals."""
    mean_total = float(np.mean(totals) / exposed.row_factor.mean())
    features = exposed.feature_factor * np.ones(exposed.shape[1])
    return with_defaults(given, model, mean_total, rank, features, SPARSE)


def _filled(priors: Priors, covariates: Any, rank: int, effects: Any, rng: np.random.Generator) -> Priors:
    """Return priors with given or drawn effects of covariates, if there are any; those of a fit have some."""
    check_has_formula(effects, covariates)
    if covariates is not None:
        priors = with_covariates(priors, covariates, rank, effects)
    prior: Any = priors.loadings
    if effects is not None or not prior.has_effects:
        return priors
    return replace_sides(priors, loadings=prior.drawn_effects(rng))


def _empty_counts(n: int, sizes: Mapping[str, int]) -> Counts:
    """Return counts of 0, of one matrix without a name or of several."""
    parts = {name: Counts(csr_array((n, m)), np.arange(n), np.arange(m)) for name, m in sizes.items()}
    return parts[""] if "" in parts else joined(parts)


def _with_factors(
    exposed: Counts, batch: Any, means: Array, model: str, rng: np.random.Generator
) -> tuple[Counts, Array | None, Array]:
    """Return counts with batches, factors drawn for them, None without batches, and the means with these factors."""
    if batch is None:
        return exposed, None, means
    FREE_TOTALS.check(Request(model), "batch needs", "and factors change them")
    found = with_batch(exposed, batch)
    a = found.batch.shape or SHAPE
    factors = rng.gamma(a, 1 / a, (found.batch.number, exposed.shape[1]))
    return found, factors, means * factors[found.batch.codes]


def _drawn(noise: Distributed, means: Array, totals: Array | None, rng: np.random.Generator) -> Array:
    """Draw counts with given means, or with given totals and shares that are proportional to the means."""
    if totals is not None:
        return noise.draw_given_totals(totals.astype(np.int64), means / means.sum(axis=1, keepdims=True), rng)
    check_drawable(means, "lower totals, or give priors with smaller means")
    return noise.draw(means, rng)


def _check_drawable_priors(model: str, priors: Priors, size: tuple[int, int], rank: int) -> None:
    """Refuse priors that are improper or that the model does not allow."""
    for need in (PROPER_COMPONENTS, PROPER_LOADINGS):
        need.check(Request(priors=priors), "a simulation needs")
    check_family(model, "loadings", priors.loadings, (size[0], rank))
    check_family(model, "components", priors.components, (rank, size[1]))
