"""Sensitivity of posterior draws to the prior and to the likelihood, by power scaling.

The prior density p or the likelihood is raised to a power α near 1, and the draws are weighed accordingly; what changes
much is sensitive [1]_. The mean of x changes by Cov(x, log p) log α, to first order. Unlike the distance between
distributions that `az.psense` has, this has a sign and a Monte Carlo error, without which nothing can be said here: log
densities of thousands of parameters vary by tens of nats, so chance alone makes distances above the usual limit of
0.05.

.. [1] N. Kallioinen, T. Paananen, P.-C. Bürkner and A. Vehtari (2024). Detecting and diagnosing prior and likelihood
   sensitivity with power-scaling. Statistics and Computing 34, 57.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesnmf.checks import check_positive
from bayesnmf.needs import needed_for
from bayesnmf.noise.abilities import distribution_of
from bayesnmf.priors.specification import MODELS
from bayesnmf.results.cautions import cautions_of
from bayesnmf.results.checks import check_chains, check_distribution, check_fit
from bayesnmf.results.draws import chains_and_draws, noises_of_draws
from bayesnmf.results.estimates import Draws
from bayesnmf.results.intervals import for_intervals, kind_of_intervals
from bayesnmf.results.prior import log_priors
from bayesnmf.results.record import FitRecord, effective_loadings, factors_of_means
from bayesnmf.results.summary import draws_of_parameters
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

POWER, THRESHOLD, SURE = 1.25, 0.2, 2.0  # standard deviations that a mean moves, and Monte Carlo errors around them
CONFLICT, STRONG_PRIOR = "potential prior-data conflict", "potential strong prior / weak likelihood"
UNKNOWN, FINE = "not known: more draws", "✓"
ENDS = "_shift", "_shift_mcse"
FLAT = 1e-12  # share by which log densities that are equal may differ by rounding


def sensitivity(
    fit: FitRecord,
    rows: Iterable[Any] | None = None,
    features: Iterable[Any] | None = None,
    threshold: float = THRESHOLD,
) -> pd.DataFrame:
    """Return how much quantities depend on the prior and on the likelihood, by power scaling.

    Parameters
    ----------
    fit : Fit
        Fit by gibbs or nuts, or by vi with a chain beside q (``fit.with_intervals("sampled")``).
    rows, features : iterable of names, optional
        Rows with the loadings, and features with the weights, to include, as in `Fit.summary`; unasked the leading
        features of each component, and the first row.
    threshold : float
        Standard deviations by which powers of 0.8 and 1.25 must move the mean of a quantity that is sensitive.

    Returns
    -------
    DataFrame
        One row for each quantity: ``share[k]``, the share of component k in the expected counts, and parameters. With
        mean and sd; ``prior_shift`` and ``likelihood_shift``, by how many of its standard deviations the mean rises if
        the power of the prior or of the likelihood is 1.25 instead of 1, by its derivative, so that it falls as much at
        0.8; their Monte Carlo errors, ``…_mcse``; ``prior`` and ``likelihood``, the sensitivities of `az.psense`; and a
        diagnosis, in the words of ArviZ, of what exceeds the threshold by two Monte Carlo errors:

        - "potential prior-data conflict": both shifts do;
        - "potential strong prior / weak likelihood": that of the prior alone does;
        - "not known: more draws": that of the prior may, by its error;
        - "✓": it does not.

        Its `attrs["cautions"]` say what is wrong with the fit: of chains that have not mixed, no shift can be trusted.

    Raises
    ------
    TypeError, ValueError
        Not a fit with chains, names that it does not have, batches or covariates, or a noise that is no distribution.

    See Also
    --------
    Fit.to_datatree : with ``log_prior=True, log_likelihood=True``, for `az.psense_summary` and `az.plot_psense_dist`.

    Examples
    --------
    >>> import bayesnmf
    >>> counts, options = [[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]], bayesnmf.Gibbs(chains=2, warmup=50, draws=50)
    >>> fit = bayesnmf.fit(counts, rank=1, method="gibbs", seed=0, options=options)
    >>> fit.sensitivity(rows=[0], features=[2]).index.tolist()
    ['share[0]', 'loadings[0, 0]', 'components[0, 2]']
    """
    with needed_for("fit.sensitivity"):
        import arviz as az
        import pandas as pd
        import xarray as xr

    check_fit(fit)
    check_distribution(fit, "sensitivity")
    check_positive(threshold, "threshold")
    read = for_intervals(fit)
    check_chains(read, kind_of_intervals(read), "sensitivity")
    values = read.estimate.take(read, chains_and_draws(read, None, None), 0, None)
    names, dims = read.component_labels.astype(str), ("chain", "draw")
    shares = xr.DataArray(_shares(read, values), {"component_name": names}, (*dims, "component_name"))
    group = xr.Dataset({"share": shares, **draws_of_parameters(read, rows, features)}).astype(np.float64)
    logs = {
        "prior": np.sum([*log_priors(read, values, "sensitivity").values()], axis=0),
        "likelihood": _likelihoods(read, values),
    }
    tree = xr.DataTree.from_dict(
        {"/posterior": group, **{f"/log_{name}": xr.Dataset({"all": (dims, each)}) for name, each in logs.items()}}
    )
    with np.errstate(invalid="ignore", divide="ignore"), warnings.catch_warnings():  # constants; few draws
        warnings.filterwarnings("ignore", "Number of tail draws", UserWarning)
        scaled = (group - group.mean(dims)) / group.std(dims) * np.log(POWER)
        own = {"mean": _column(group.mean(dims)), "sd": _column(group.std(dims))}
        table = pd.DataFrame(own, az.summary(group, kind="stats").index)
        for name, each in logs.items():
            changes = scaled * xr.DataArray(each - each.mean(), dims=dims)
            for end, found in zip(ENDS, (changes.mean(dims), az.mcse(changes)), strict=True):
                table[name + end] = _column(found)
            table[name] = 0.0 if np.ptp(each) < FLAT * np.abs(each).max() else _column(az.psense(tree, group=name))
    table["diagnosis"] = _diagnoses(table, threshold)
    table.attrs["cautions"] = cautions_of(fit)
    return table


def _column(found: xr.Dataset) -> Array:
    """Return the values of all variables, in the order of `az.summary`."""
    return np.concatenate([variable.to_numpy().ravel() for variable in found.data_vars.values()])


def _shares(fit: FitRecord, values: Draws) -> Array:
    """Return the share of each component in the expected counts of draws, (chains, draws, K)."""
    loadings = effective_loadings(fit, values.loadings, values.scale, values.components)
    exposed = fit.counts.exposed_components(values.components.astype(np.float64))
    sizes = loadings.sum(axis=-2, dtype=np.float64) * exposed.sum(axis=-1)
    return np.asarray(sizes / sizes.sum(axis=-1, keepdims=True))


def _likelihoods(fit: FitRecord, values: Draws) -> Array:
    """Return log p(X | draw), (chains, draws)."""
    loadings = effective_loadings(fit, values.loadings, values.scale, values.components)
    found, noise_at = np.empty((values.chains, values.draws)), noises_of_draws(fit, (values.chains, values.draws))
    for at in np.ndindex(found.shape):
        left, right = factors_of_means(fit, loadings[at].astype(np.float64), values.components[at], None)
        noise = distribution_of(noise_at(at))
        found[at] = noise.log_likelihood(fit.counts, left, right, MODELS[fit.model].given_totals)
    return found


def _diagnoses(table: pd.DataFrame, threshold: float) -> list[str]:
    """Return what the shifts of each quantity say."""
    shifts, errors = (np.abs(table[[f"{name}{end}" for name in ("prior", "likelihood")]].to_numpy()) for end in ENDS)
    surely, perhaps = shifts - SURE * errors >= threshold, shifts + SURE * errors >= threshold
    return [
        FINE if not maybe else UNKNOWN if not prior else CONFLICT if likelihood else STRONG_PRIOR
        for (prior, likelihood), (maybe, _) in zip(surely, perhaps, strict=True)
    ]
