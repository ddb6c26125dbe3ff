"""Checks of priors: their parameters, families and shapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesnmf.checks import as_numbers, check_choice, shown
from bayesnmf.noise.abilities import Dispersed, Noise
from bayesnmf.noise.words import NOISES, OTHERS
from bayesnmf.priors.distribution import OPTIONAL, Distribution
from bayesnmf.priors.families import names_of
from bayesnmf.priors.specification import MODELS, PARAMETER, on_simplex, uniformises

GAMMA_COMPONENTS = "bayesnmf.Priors(components=bayesnmf.Gamma(0.3, 0.3))"
MOST_RATES = 100_000_000


def check_has_part(prior: Any, side: str, part: str, what: str, cure: str) -> None:
    """Refuse `what` if the family of a prior lacks an optional part."""
    if prior != PARAMETER and part not in prior.optional:
        if "known" in prior.constants:
            raise ValueError(f"{what} does not work with fixed_components; use {cure}, or leave fixed_components out")
        if prior.has_effects:
            raise ValueError(f"{what} does not work with covariates; use {cure}, or leave formula and covariates out")
        raise ValueError(
            f"{what} needs {OPTIONAL[part]}, which {type(prior).__name__} in priors.{side} does not have; "
            f"use {cure}, or another prior"
        )


def check_noise(noise: Any) -> Noise:
    """Return a noise, which may be given by its word."""
    if isinstance(noise, Noise):
        return noise
    if not isinstance(noise, str):
        raise TypeError(f"noise must be a word, as 'nb1', or bayesnmf.NegativeBinomial(...): found {shown(noise)}")
    return NOISES[check_choice(noise, "noise", NOISES, OTHERS)]


def check_length_of_dispersion(noise: Noise, size: tuple[int, int]) -> None:
    """Refuse dispersions that are not one for each row, or feature, of (n, m) counts."""
    if not isinstance(noise, Dispersed) or noise.by in (None, "matrix") or not noise.known:
        return
    length = size[0 if noise.by == "row" else 1]
    if len(noise.dispersion) != length:
        raise ValueError(
            f"dispersion must have one number for each {noise.by} of the counts: found {len(noise.dispersion):,} for "
            f"{length:,}; put it in the order of the counts"
        )


def check_integrates_out(components: Any, what: str, cure: str) -> None:
    """Refuse `what` if loadings and components cannot be integrated out together in closed form."""
    if components == PARAMETER or not on_simplex(components):
        found = repr(PARAMETER) if components == PARAMETER else type(components).__name__
        raise ValueError(
            f"priors.components must be Dirichlet for {what}, else loadings and components cannot be integrated out "
            f"together: found {found}; give bayesnmf.Dirichlet(...), or {cure}"
        )


def check_proper_loadings(loadings: Any, what: str) -> None:
    """Refuse `what` if the prior of the loadings does not integrate to one."""
    if loadings is None or not loadings.proper:
        raise ValueError(
            f"priors.loadings must be a proper prior for {what}: found {shown(loadings)}; give a prior with a rate "
            "above 0, as model='gamma_poisson' has"
        )


def check_proper_components(components: Any, what: str) -> None:
    """Refuse `what` if the components have no prior, or one that does not integrate to one."""
    if components == PARAMETER or not components.proper:
        raise ValueError(
            f"priors.components must be a proper prior for {what}: found {shown(components)}; "
            "give one, with a rate above 0 if it is a Gamma"
        )


def check_integrable(priors: Any, rank: int, posterior: str) -> None:
    """Refuse flat priors of loadings where entries are missing and components are not all known.

    A component that has all of itself in features which some rows miss leaves the loadings of these rows without any
    exposure. Under a flat prior such loadings add to the volume of the posterior, and to the elbo, without limit.
    """
    known, drawn = getattr(priors.components, "constants", {}).get("known"), posterior == "draws"
    if posterior == "point":
        return
    if drawn or known is None or len(known) < rank:
        what = "draws, which would have no distribution" if drawn else "method='vi', whose elbo would have no limit"
        check_proper_loadings(priors.loadings, f"missing entries and {what}")


def check_unseen(mask: Any, priors: Any) -> None:
    """Refuse flat priors of rows or features without an observed entry, whose posterior would not exist."""
    if not mask.seen_rows.all():
        check_proper_loadings(priors.loadings, "a row without an observed entry")
    if not mask.seen_features.all():
        check_proper_components(priors.components, "a feature without an observed entry")


def check_collapsible(
    loadings: Any, components: Any, what: str, cure: str = "elbo_marginal of a fit by method='vi'"
) -> None:
    """Refuse `what` if loadings and components do not integrate out given the allocations."""
    check_integrates_out(components, what, f"use {cure}")
    check_proper_loadings(loadings, what)
    for side, prior in (("loadings", loadings), ("components", components)):
        check_has_part(prior, side, "marginal", what, cure)


def same_prior(one: Any, other: Any) -> bool:
    """Return whether two priors of one side are equal."""
    if type(one) is not type(other) or isinstance(one, str):
        return type(one) is type(other) and bool(one == other)
    same = [np.array_equal(value, other.parameters[name]) for name, value in one.parameters.items()]
    return all(same) and one.settings == other.settings


def same_priors(one: Any, other: Any) -> bool:
    """Return whether the priors of both sides are equal."""
    return all(map(same_prior, vars(one).values(), vars(other).values()))


def check_priors(priors: Any) -> None:
    """Check the classes and parameters of both priors, without a model or counts."""
    for side in ("loadings", "components"):
        prior = getattr(priors, side)
        if prior is None or (side == "components" and isinstance(prior, str) and prior == PARAMETER):
            continue
        if not isinstance(prior, Distribution):
            allowed = names_of("positive", "simplex")
            allowed += names_of("scaled simplex") if side == "loadings" else ["'parameter'"]
            raise TypeError(f"priors.{side} must be one of {', '.join(allowed)} or None: found {shown(prior)}")
        if side not in prior.sides:
            raise ValueError(
                f"priors.{side} must be a prior for {side}: found {shown(prior)}, which is for "
                f"{' and '.join(prior.sides)}; share its rates over another axis"
            )
        for name, value in prior.parameters.items():
            check_parameter(value, f"priors.{side}.{name}", name in prior.may_be_zero)
        if not prior.proper and not prior.flat:
            raise ValueError(
                f"priors.{side}.rate must be positive (found 0); only the flat prior bayesnmf.Gamma(1, 0) has rate 0"
            )


def check_parameter(value: Any, name: str, may_be_zero: bool) -> None:
    """Refuse a parameter with entries that are negative, not finite, or 0 unless `may_be_zero`."""
    array = as_numbers(value, name)
    if not np.all(np.isfinite(array)) or np.any(array < 0) or (not may_be_zero and np.any(array == 0)):
        rule = "nonnegative" if may_be_zero else "positive"
        raise ValueError(f"{name} must be {rule} and finite: found {shown(value)}")


def check_family(model: str, side: str, prior: Any, size: tuple[int, int]) -> None:
    """Refuse a prior that is not conjugate in the model, or does not broadcast to (n, K) or (K, m)."""
    spec = MODELS[model]
    if prior == PARAMETER:
        return
    supports = (spec.loadings,) if side == "loadings" else spec.components
    if prior.support not in supports:
        raise ValueError(
            f"priors.{side} must be {' or '.join(names_of(*supports))} for model={model!r}, so that the updates are "
            f"conjugate: found {type(prior).__name__}"
        )
    check_broadcast(prior, side, size)


def check_exposures(counts: Any, model: str, components: Any) -> None:
    """Refuse exposures of rows whose totals are given, and exposures of features of components on the simplex."""
    if counts.row_exposure is not None and MODELS[model].given_totals:
        raise ValueError(
            f"row_exposure has no effect under model={model!r}, where row totals are given; leave it out, or use "
            "model='dirichlet_gamma' or 'gamma_poisson'"
        )
    if counts.feature_exposure is not None and on_simplex(components):
        found = repr(PARAMETER) if components == PARAMETER else components.free_prior.__class__.__name__
        raise ValueError(
            f"feature_exposure needs a Gamma prior of the components: with {found} the updates have no closed form; "
            f"give priors={GAMMA_COMPONENTS} in the options, or leave feature_exposure out and divide the components "
            "by it afterwards"
        )


def check_broadcast(prior: Distribution, side: str, size: tuple[int, int]) -> None:
    """Refuse a prior with parameters that do not broadcast to (n, K) or (K, m)."""
    sizes = prior.sizes(size)
    if misfit := prior.misfit(size):
        what = "fixed_components" if "known" in prior.constants else "covariates"
        raise ValueError(f"priors.{side} {misfit}; give {what} for these counts and this rank")
    beside = "known" in prior.constants
    of = f", for the {sizes[prior.counted][0]} components besides the known ones" if beside else ""
    for name, value in prior.parameters.items():
        shape, full = np.shape(value), sizes[name]
        try:
            fits = np.broadcast_shapes(shape, full) == full
        except ValueError:
            fits = False
        if not fits:
            raise ValueError(f"priors.{side}.{name} must broadcast to {full}{of}: found shape {shape}")


def check_natural_basis(loadings: Any, components: Any) -> None:
    """Refuse the natural basis if a prior density is unbounded at 0."""
    if loadings.has_effects:
        raise ValueError(
            "basis='natural' does not work with covariates: loadings and their means would go to 0 together, where the "
            "density is unbounded; use basis='log'"
        )
    for side, prior in (("loadings", loadings), ("components", components)):
        if prior != PARAMETER and prior.smallest_shape < 1:
            raise ValueError(
                f"basis='natural' needs priors.{side} at 1 or above, else the density is unbounded at 0: "
                f"found {prior.smallest_shape:g}; use basis='log'"
            )


def check_one_prior_for_all_rows(prior: Any) -> None:
    """Refuse a prior of the loadings that differs between rows, since new rows would have none."""
    if prior.has_effects:
        raise ValueError(
            "covariates differ between rows, so new samples need theirs; give covariates, or leave both out"
        )
    for name, value in prior.parameters.items():
        shape, shared = np.shape(value), prior.sizes((2, 3))[name][1] > 1
        if len(shape) == 2 and shape[0] > 1:
            raise ValueError(
                f"priors.loadings.{name} differs between rows, so new samples have none; give a number"
                f"{' or a parameter of shape (K,)' * shared}, or use neither transform nor withheld samples "
                "(withhold=0) nor criterion='stability'"
            )


def check_dispersed(options: Any, noise: Dispersed, what: str, counts: Any) -> None:
    """Refuse counts and priors that have no likelihood in closed form with a dispersion, and dispersions of others."""
    if not counts.is_integer:
        raise ValueError(f"{what} needs whole-number counts: round them, or use noise='quasi'")
    if getattr(options, "algorithm", None) in ("scd", "ccd") and options.priors.loadings.support != "positive":
        raise ValueError(f"{what} and loadings that are proportions need algorithm='em'; leave algorithm out")
    if getattr(options, "bound", "marginal") != "marginal":
        raise ValueError(
            f"{what} needs bayesnmf.SVI(bound='marginal'), since counts of components are not Poisson given it"
        )
    simplex = options.priors.loadings.support == "simplex"
    if noise.has_entry_rates:
        _check_quadratic(options, simplex, what, counts)
    if simplex:
        _check_given_totals(options, noise, what, counts)
    if uniformises(noise, options.priors.components):
        _check_uniformised(options, f"{what} per {noise.by} and components on the simplex")
    check_length_of_dispersion(noise, counts.shape)


def _check_uniformised(options: Any, what: str) -> None:
    """Refuse what does not draw or expect the clusters of missing shares."""
    if hasattr(options, "collapsed") and options.priors.loadings.support != "positive":
        raise ValueError(f"{what} need loadings without a scale of their own for draws; use model='gamma_poisson'")
    if hasattr(options, "particles") and hasattr(options, "efficiency"):
        raise ValueError(
            f"{what} are not tempered; give priors={GAMMA_COMPONENTS} in the options, or use method='gibbs'"
        )
    algorithm = getattr(options, "algorithm", None)
    if algorithm not in (None, "em", "coordinate", "settled", "gradient", "allocations", "marginal"):
        raise ValueError(
            f"{what} need algorithm='em', 'coordinate', 'settled', 'gradient', 'allocations' or 'marginal': found "
            f"{algorithm!r}; give priors={GAMMA_COMPONENTS} in the options, or leave algorithm out in bayesnmf.fit"
        )


def check_tempered(priors: Any, what: str, counts: Any) -> None:
    """Refuse what cannot be tempered with negative binomial noise."""
    if priors.loadings.support == "scaled simplex":
        raise ValueError(
            f"{what} with method='smc' needs loadings without a scale of their own, which numbers of clusters depend "
            "on: use model='gamma_poisson', or method='gibbs'"
        )
    if counts.mask is not None:
        raise ValueError(f"{what} with method='smc' needs all entries: found missing ones; use method='gibbs'")


def _check_given_totals(options: Any, noise: Noise, what: str, counts: Any) -> None:
    """Refuse what has no Dirichlet-multinomial form, or no program of it."""
    if hasattr(options, "dtype") and not hasattr(options, "algorithm"):
        raise ValueError(
            f"{what} with given totals has no program: use method='vi' or 'gibbs', or model='gamma_poisson'"
        )
    if counts.mask is not None:
        raise ValueError(
            f"{what} with given totals has no form with missing entries, held-out ones among them: use "
            "model='gamma_poisson', or noise='poisson'"
        )
    if noise.by_feature:
        raise ValueError(
            f"{what} per {noise.by} has no closed form where the totals of rows are given; use dispersion='row', or "
            "model='gamma_poisson'"
        )


def _check_quadratic(options: Any, given_totals: bool, what: str, counts: Any) -> None:
    """Refuse given totals, flat loadings of a posterior, which may not exist, and more entries than can have rates."""
    if not hasattr(options, "basis"):
        check_proper_loadings(options.priors.loadings, f"{what}, whose posterior may not exist otherwise")
    if given_totals:
        raise ValueError(
            f"{what} needs loadings with a scale, since rates of entries change the totals of rows; use "
            "model='gamma_poisson', or noise='nb1'"
        )
    n, m = counts.shape
    if n * m > MOST_RATES or not counts.rows_held:
        raise ValueError(
            f"{what} keeps a rate of every entry in memory, of {MOST_RATES:,} at most: found {n:,} × {m:,} = "
            f"{n * m:,}{'' if counts.rows_held else f' beside {counts.nnz:,} nonzeros on disk'}; use noise='nb1', "
            "or fewer rows or features, read into memory"
        )
