"""The effects of covariates and of batches, and the mean shares of components at covariates, with intervals.

Effects are on the log scale of loadings, in the units of the covariates: of the mean of a Gamma loading, or of the
concentration of a proportion. The intercept is the logarithm of the counts of a component that are expected of a row
whose covariates are 0, or of its concentration. Intervals come from

draws
    of gibbs, made beside those of both sides.
sampled
    of a fit by vi with draws beside q (`Fit.with_intervals`): effects are drawn given each draw of the loadings.
Laplace
    of a fit by vi without such draws, and by map: a normal distribution about the learned effects, whose curvature
    allows for what is not known of the loadings (`bayesnmf.inference.response.spread`), but not for a location of the
    components that is off. Where components share features it is too narrow: docs/covariates.md has how much. Fits with
    a bootstrap have these intervals, too: its replicates are of the same rows, whose variation effects are judged by.

All of them have the variation between rows that the prior says. By default it is taken out, and the one that rows show
is put in its place (`bayesnmf.inference.response.effects`): permuted rows of real counts say which of them holds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bayesnmf.checks import check_choice, check_fraction
from bayesnmf.data.covariates.checks import check_has_effects
from bayesnmf.data.covariates.coding import Coding
from bayesnmf.data.covariates.design import design_of, names_of_rows
from bayesnmf.data.several import check_of_all
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.response.effects import Known, known_of_effects, terms_of_mean_field
from bayesnmf.inference.sampling.effects import EffectDraws
from bayesnmf.inference.side import MeanField, Mode
from bayesnmf.inference.sides import allocate, conditional_of, update_loadings
from bayesnmf.inference.starts.states import given_state
from bayesnmf.priors.log_linear import EFFECTS, SHAPES, LogLinear
from bayesnmf.priors.specification import PARAMETER, stated_components
from bayesnmf.priors.values import attach_scale, component_sums
from bayesnmf.results.checks import check_has_batches
from bayesnmf.results.estimates import evenly_spaced
from bayesnmf.results.intervals import cautions_of_intervals, for_intervals, kind_of_intervals, source_of_intervals
from bayesnmf.results.mean_shares import MeanShares, mean_shares
from bayesnmf.results.record import COMPONENT, FitRecord
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd

VARIATIONS = ("rows", "prior")
BY_ROWS, BY_PRIOR = "variation between rows as rows show it", "variation between rows as the prior says"
DRAWS = 4000  # at least, about the means of others
SWEEPS = 50  # of loadings given the components of a chain
FIRST_SWEEPS = 20  # over the effects given the first draw of the loadings; one for each draw after it
SHARE_DRAWS = 400  # of the components, for what mean shares do not know of them
SPREAD = 1.5  # times the variance of a Gamma from which on there is a caution
LEAST_APART = 0.02  # of mean shares of proportions, from which on there is one
STREAM = 4  # of random numbers, beside those of the fit with the same seed
LAPLACE = "intervals: Laplace, of the curvature of the marginal likelihood; too narrow where components share features"
SCALE_OF_SHARES = "mean shares of rows with these covariates"
PULLED = "shares of rows with missing entries are posterior ones, which the prior pulls towards its own means"
SCALES = {
    "positive": "log scale of loadings",
    "simplex": "log scale of concentrations of loadings",
    "scaled simplex": "log scale of concentrations of loadings",
}


class EffectsDrawn(NamedTuple):
    """Draws of effects (draws, p, K) in the units of the covariates, their means (p, K), and where they come from.

    `standardised` are the same draws as effects of the standardised design.
    """

    draws: Array
    mean: Array
    standardised: Array
    source: str
    cautions: list[str]


def effects(fit: FitRecord, interval: float = 0.9, variation: str = "rows") -> pd.DataFrame:
    """Return the effects of the covariates on each component; see `bayesnmf.Fit.effects`."""
    import pandas as pd

    tail, prior = (1 - check_fraction(interval, "interval")) / 2, prior_with_effects(fit)
    found, terms = drawn_effects(fit, variation), Coding.of_text(prior.coding).terms
    low, high = np.quantile(found.draws, [tail, 1 - tail], axis=0)
    at_most, at_least = (found.draws <= 0).mean(axis=0), (found.draws >= 0).mean(axis=0)
    columns = {"effect": found.mean, "low": low, "high": high, "sd": found.draws.std(axis=0)}
    columns["lfsr"] = np.minimum(at_most, at_least)
    labels = pd.MultiIndex.from_product([fit.component_labels, terms], names=["component", "term"])
    table = pd.DataFrame({name: values.T.ravel() for name, values in columns.items()}, labels)
    table.attrs |= {"scale": SCALES[prior.support], "intervals": found.source, "cautions": found.cautions}
    table.attrs["draws"] = len(found.draws)
    return table


def predicted_shares(fit: FitRecord, covariates: Any, interval: float = 0.9) -> pd.DataFrame:
    """Return mean shares of the components at given covariates; see `bayesnmf.Fit.predicted_shares`."""
    import pandas as pd

    tail = (1 - check_fraction(interval, "interval")) / 2
    names, coding = names_of_rows(covariates), Coding.of_text(prior_with_effects(fit).coding)
    design, found = design_of(coding, covariates, names), mean_shares_of(fit, SHARE_DRAWS, fit.seed)
    values = found.at(design).limits_of_shares(tail)
    labels = pd.MultiIndex.from_product([names, fit.component_labels], names=["row", "component"])
    columns = zip(("share", "low", "high"), values, strict=True)
    table = pd.DataFrame({name: each.ravel() for name, each in columns}, labels)
    table.attrs |= {"scale": SCALE_OF_SHARES, **told_of_mean_shares(fit)}
    return table


def mean_shares_of(fit: FitRecord, draws: int, seed: int) -> MeanShares:
    """Return the mean shares of a fit with covariates, from its rows."""
    _check_whole(fit)
    return mean_shares(for_intervals(fit), prior_with_effects(fit).design, draws, seed)


def told_of_mean_shares(fit: FitRecord) -> dict[str, Any]:
    """Return what the intervals of mean shares are, and cautions of them, for `attrs` of tables."""
    read = for_intervals(fit)
    told = source_of_intervals(read) or "intervals: variation between rows alone"
    cautions = cautions_of_intervals(read)
    if fit.counts.mask is not None:
        cautions = [*cautions, PULLED]
    return {"intervals": told, "cautions": cautions}


def prior_with_effects(fit: FitRecord) -> LogLinear:
    """Return the prior of the loadings of a fit with covariates; refuse others."""
    prior: Any = fit.priors.loadings
    check_has_effects(prior)
    found: LogLinear = prior
    return found


def drawn_effects(fit: FitRecord, variation: str = "rows") -> EffectsDrawn:
    """Return draws of the effects of a fit, with the intercepts that tables show.

    `variation` is "prior" for draws of the posterior, or "rows" for draws about its means that have the variation
    between rows in the place of that of the prior (`bayesnmf.inference.response.effects`).
    """
    by_rows = check_choice(variation, "variation", VARIATIONS) == "rows" and not fit.is_of_matrix
    prior = prior_with_effects(fit)
    drawn, source, cautions = _posterior(fit, prior)
    mean = in_units(fit, drawn).mean(axis=0)
    if by_rows or len(drawn) == 1:
        drawn = _varied(drawn, known_of_effects(prior, terms_of_mean_field(*_mean_field_of(fit))), by_rows, fit.seed)
    if not by_rows or prior.support != "positive":  # effects on concentrations are none on shares, however they vary
        cautions = [*cautions, *cautions_of_spread(fit)]
    source = f"{source}; {BY_ROWS if by_rows else BY_PRIOR}"
    return EffectsDrawn(in_units(fit, drawn), mean, drawn, source, cautions)


def _posterior(fit: FitRecord, prior: LogLinear) -> tuple[Array, str, list[str]]:
    """Return effects of the standardised design (draws, p, K), what their intervals are, and cautions of these.

    They are draws of chains, or given draws of the loadings beside q, or else the learned effects alone.
    """
    if chains_have_drawn(fit):
        drawn = _of_chains(fit)
        return drawn.reshape(-1, *drawn.shape[2:]), "intervals: draws of the posterior", []
    _check_whole(fit)
    read = for_intervals(fit)
    beside: Any = read.estimate
    if beside.kind != "draws" or kind_of_intervals(read) == "bootstrap":
        return _with_sizes(fit, prior.effects[None], fit.components[None]), LAPLACE, [LAPLACE]
    drawn = _given_draws(prior, beside.loadings.reshape(-1, *fit.loadings.shape), fit.seed)
    drawn = _with_sizes(fit, drawn, beside.components.reshape(-1, *fit.components.shape))
    return drawn, source_of_intervals(read), cautions_of_intervals(read)


def _varied(drawn: Array, known: Known, by_rows: bool, seed: int) -> Array:
    """Return draws about the means of others (draws, p, K), with the variation between rows, or that of the prior.

    What draws vary by beyond that of the prior, as where components are not known, is kept.
    """
    p, rank = drawn.shape[1:]
    mean = drawn.mean(axis=0)
    centred, of_prior = drawn - mean, known.by_prior.diagonal().reshape(rank, p).T
    variance = centred.var(axis=0)
    beyond = np.divide(np.maximum(variance - of_prior, 0), variance, out=np.zeros_like(variance), where=variance > 0)
    repeats = -(-DRAWS // (2 * len(drawn)))
    rng, number = np.random.default_rng([seed, STREAM]), repeats * len(drawn)
    values, vectors = np.linalg.eigh(known.by_rows if by_rows else known.by_prior)
    noise = rng.standard_normal((number, rank * p)) @ (vectors * np.sqrt(np.maximum(values, 0))).T
    if by_rows:
        from scipy.stats import chi2  # which takes a fifth of the time of all imports of a fit

        noise *= np.sqrt(known.freedom / chi2.ppf(rng.random((number, 1)), known.freedom))
    noise = noise.reshape(number, rank, p).transpose(0, 2, 1)
    shared = np.tile(centred * np.sqrt(beyond), (repeats, 1, 1))
    return np.asarray(mean + np.concatenate([shared + noise, shared - noise]))


def _check_whole(fit: FitRecord) -> None:
    """Refuse one of several matrices whose effects no chain has drawn: its rows alone would say less."""
    if not chains_have_drawn(fit):
        check_of_all(fit, "effects of covariates, unless a chain has drawn them,")


def has_effects_to_show(fit: FitRecord) -> bool:
    """Return whether a fit has effects, which that of one of several matrices has where a chain has drawn them."""
    found: Any = fit.priors.loadings
    return found.has_effects and (not fit.is_of_matrix or chains_have_drawn(fit))


def terms_of_effects(fit: FitRecord) -> Array:
    """Return the names of the columns of the design, (p,); none without covariates."""
    prior: Any = fit.priors.loadings
    return np.array(Coding.of_text(prior.coding).terms if prior.has_effects else [], dtype=str)


def cautions_of_spread(fit: FitRecord) -> list[str]:
    """Return a caution if loadings do not vary around their means as by their prior, on which effects rest.

    It compares the variance of Gamma loadings u / μ with 1 / a, and mean proportions with the means of their prior. Of
    the first, 1.0 in simulations, the largest was 1.1 (3 components, 200 rows).
    """
    prior = prior_with_effects(fit)
    if prior.support != "positive":
        return _cautions_of_shares(fit, prior)
    ratio = np.ravel(prior.plain.parameters["shape"]) * ((fit.loadings / prior.mean() - 1) ** 2).mean(axis=0)
    if not (wide := int((ratio > SPREAD).sum())):
        return []
    return [
        f"loadings of {wide} of {fit.rank} components vary up to {ratio.max():.1f} times as much around their means as "
        "Gamma loadings do (variance), so intervals of their effects are too narrow; where sizes of rows mean nothing, "
        "give them as row_exposure, or use a model of shares, as model='dirichlet_poisson'"
    ]


def _cautions_of_shares(fit: FitRecord, prior: LogLinear) -> list[str]:
    """Return a caution if mean proportions of the rows are not the means of their Dirichlet distributions."""
    concentration: Any = np.asarray(prior.given.concentration)
    of_rows = fit.loadings.mean(axis=0)
    of_prior = (concentration / concentration.sum(axis=1, keepdims=True)).mean(axis=0)
    larger, smaller = np.maximum(of_rows, of_prior), np.minimum(of_rows, of_prior)
    other = (larger > SPREAD * smaller) & (larger - smaller > LEAST_APART)
    if not other.any():
        return []
    k = int(np.argmax(np.where(other, larger - smaller, 0.0)))
    return [
        f"shares of {int(other.sum())} of {fit.rank} components are not as Dirichlet distributions have them "
        f"({fit.component_titles[k]}: mean share {of_rows[k]:.3f}, by its concentrations {of_prior[k]:.3f}), so "
        "effects on concentrations do not say how mean shares change: fit.predicted_shares and "
        "bayesnmf.group_contrasts(fit, name) do, which read the rows"
    ]


def chains_have_drawn(fit: FitRecord) -> bool:
    """Return whether chains have drawn effects."""
    return EFFECTS in (fit.statistics or {})


def chains_of_effects(fit: FitRecord) -> Array | None:
    """Return effects that chains have drawn, (chains, draws, p, K), in the units of tables; None if none were drawn."""
    if not chains_have_drawn(fit):
        return None
    return in_units(fit, _of_chains(fit))


def _of_chains(fit: FitRecord) -> Array:
    """Return effects of the standardised design that chains have drawn, those of the draws that are kept."""
    drawn: Any = fit.estimate
    effects = (fit.statistics or {})[EFFECTS]
    return _with_sizes(fit, effects[:, :: effects.shape[1] // drawn.components.shape[1]], drawn.components)


def variables_of_effects(fit: FitRecord, number: tuple[int, int]) -> dict[str, Any]:
    """Return drawn effects and shapes of some chains and draws as variables of xarray; none if none were drawn."""
    effects = chains_of_effects(fit)
    if effects is None:
        return {}
    spaced = evenly_spaced(number[1], effects.shape[1])
    dims, drawn = ("chain", "draw", "term", COMPONENT), fit.statistics or {}
    found: dict[str, Any] = {EFFECTS: (dims, effects[: number[0], spaced]), "term": ("term", terms_of_effects(fit))}
    if SHAPES in drawn:
        found[SHAPES] = (("chain", "draw", COMPONENT), drawn[SHAPES][: number[0], spaced])
    return found


def in_units(fit: FitRecord, effects: Array) -> Array:
    """Return effects (…, p, K) of standardised columns in the units of the covariates, with intercepts of tables."""
    prior = prior_with_effects(fit)
    found = np.asarray(Coding.of_text(prior.coding).unit @ effects)
    found[..., 0, :] += prior.intercepts
    return found


def _with_sizes(fit: FitRecord, effects: Array, components: Array) -> Array:
    """Return effects (…, p, K) whose intercepts are those of counts: components (…, K, m) say what a loading has."""
    if prior_with_effects(fit).support != "positive":
        return effects
    found = effects.copy()
    found[..., 0, :] += np.log(component_sums(fit.counts.exposed_components(components.astype(np.float64))))
    return found


def _given_draws(prior: LogLinear, loadings: Array, seed: int) -> Array:
    """Return draws of the effects given draws of the loadings (draws, n, K), one after the other, (draws, p, K)."""
    rng, sampler = np.random.default_rng([seed, STREAM]), EffectDraws(prior)
    loadings = np.maximum(loadings, np.finfo(loadings.dtype).smallest_subnormal)  # the logarithm of 0 is far off
    for _ in range(FIRST_SWEEPS):
        sampler.draw(loadings[0], rng)
    return np.stack([sampler.draw(each, rng).effects for each in loadings])


def _mean_field_of(fit: FitRecord) -> tuple[Any, State]:
    """Return the problem and q of a fit by vi; of another, q of the loadings is that given its components."""
    counts = fit.working_counts.at_hand().as_type(np.float64)
    kind = fit.estimate.kind
    held = kind != "mean field" or fit.priors.components == PARAMETER
    of_components: Any = stated_components(fit.priors.components)
    summary: Any = Mode(estimated=True) if held else MeanField(0)
    problem = Problem(counts, prior_with_effects(fit), of_components, MeanField(1), summary, fixed_components=held)
    if kind == "mean field":
        q: Any = fit.estimate
        return problem, given_state(problem, q.loadings, fit.components if q.components is None else q.components)
    loadings = np.maximum(fit.loadings, np.finfo(np.float64).tiny)
    if kind == "draws":
        state = given_state(problem, attach_scale(loadings, fit.scale), fit.components)
        for _ in range(SWEEPS):
            state = update_loadings(problem, state, allocate(problem, state, None).loadings)
        return problem, state
    at_modes = replace(problem, loadings_summary=Mode("log"))
    state = given_state(at_modes, loadings, fit.components)
    q = conditional_of(at_modes, state, "loadings", allocate(problem, state, None).loadings)
    return problem, state._replace(loadings=MeanField(1).of(problem.loadings_prior, q))


def batch_factors(fit: FitRecord, interval: float = 0.9) -> pd.DataFrame:
    """Return the factors of batches and features, with central intervals.

    Intervals are read from draws where the fit has some, or makes them as for other intervals (`Fit.with_intervals`);
    else from q, which is too narrow, or under map from the distribution given the modes.

    Returns
    -------
    DataFrame
        By batch and feature: ``mean``, ``lower`` and ``upper``.

    Raises
    ------
    TypeError, ValueError
        A fit without batches, or an interval that is no share.
    """
    import pandas as pd

    batch = check_has_batches(fit)
    tail = (1 - check_fraction(interval, "interval")) / 2
    levels, size = np.array([tail, 1 - tail]), batch.mean.shape
    drawn = getattr(for_intervals(fit).estimate, "factors", None)
    mean, ends = batch.mean, np.tile(batch.mean, (2, 1, 1))
    if drawn is not None:
        mean, ends = drawn.mean(axis=(0, 1)), np.quantile(drawn, levels, axis=(0, 1))
    elif batch.q is not None:
        ends = batch.q.quantiles(tuple(np.indices(size)), levels)
    names = pd.MultiIndex.from_product([batch.names, fit.feature_names], names=["batch", "feature"])
    return pd.DataFrame({"mean": mean.ravel(), "lower": ends[0].ravel(), "upper": ends[1].ravel()}, index=names)
