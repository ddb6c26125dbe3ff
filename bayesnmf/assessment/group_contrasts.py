"""Contrasts of loadings between groups of samples: is a component used more under one treatment than under another?

The share L_ik of component k in the expected counts of sample i is compared between groups, by weighted sums Σ_g w_g of
the groups' mean shares, and of their logarithms to base 2. Two sources of uncertainty are told apart:

- Variation between samples. If a group of n_g samples stands for a treatment, its mean has the posterior of the mean of
  a normal distribution under the reference prior: the mean of the samples, plus a Student t with n_g − 1 degrees of
  freedom times s_g / √n_g. For logarithms, the delta method is used, and a mean below s_g / √n_g counts as s_g / √n_g.
  The share of a sample is here not its posterior mean, which the prior pulls towards equal shares, the more so the
  fewer counts the sample has: groups of different depth would differ for no other reason. It is the weighted
  least-squares estimate given the components, (F D⁻¹ Fᵀ)⁻¹ F D⁻¹ x_i / N_i with the overall frequencies on the diagonal
  of D, which is linear in the counts and therefore without bias at any depth (40 against 4,000 counts, 20 simulations
  with 100 samples each: posterior means by vi differed by 0.06, these estimates by 0.001 ± 0.004). The standard
  deviation s_g of these estimates contains the measurement noise of single samples, which is thereby counted once.
- Uncertainty that samples share, from the components. It is what remains of the posterior variance of a contrast after
  that of single samples, Σ_g w_g² Σ_i Var(L_ik) / n_g², is taken away; posterior draws of the contrast are contracted
  to it. A mean field of components on the simplex has none.

Samples without counts have no share and are left out. Where these samples alone are compared, their posterior shares
are, with the prior's pull.

In 100 simulations with 10,000 counts a sample, and 40 more samples that determine the components, 90 % intervals by vi
contained the difference of two populations in 97, 95 and 94 % of all cases with 3, 5 and 10 samples of each; with 100
counts, in 94, 92 and 91 %. They are conservative for few samples, because two variances are unknown. Where the samples
do not determine the components, shares have errors in common: with 10 samples for 3 components (50 simulations),
intervals by vi contained it in 56 % of all cases, those by gibbs in 79 %.

The effect of a factor of two levels is the second level minus the first, and the interaction of two is the effect of
one at the second level of the other minus that at the first. Both are averaged over the levels of all other factors.

Contrasts between the levels of a covariate are adjusted for the other covariates: every row is given each level in
turn, and keeps its others. The average of its linear predictors, of draws of the effects (`bayesnmf.results.effects`),
is the log scale of loadings. The average of its mean shares, from a regression of the shares of rows
(`bayesnmf.results.mean_shares`), is the scale of shares: it is not read off the effects, as a prior of another shape
than that of the loadings has other means than they have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bayesnmf.assessment.checks import check_contrast_weights, check_factors_of_rows
from bayesnmf.checks import check_count, check_flag, check_fraction
from bayesnmf.data.batches import warn_of_confounding
from bayesnmf.data.covariates.checks import check_is_covariate, check_is_population
from bayesnmf.data.covariates.coding import Coding, label_of, scales_of
from bayesnmf.data.covariates.design import design_of, frame_of_design
from bayesnmf.priors.values import component_sums, rows_to_shares
from bayesnmf.results.checks import check_fit, check_groups, check_replicates
from bayesnmf.results.effects import (
    SCALE_OF_SHARES,
    SCALES,
    EffectsDrawn,
    drawn_effects,
    mean_shares_of,
    prior_with_effects,
    told_of_mean_shares,
)
from bayesnmf.results.intervals import cautions_of_intervals, for_intervals, source_of_intervals
from bayesnmf.results.markers import SMALLEST
from bayesnmf.results.mean_shares import unbiased_shares, warn_of_shares
from bayesnmf.results.record import FitRecord, iterate_draws
from bayesnmf.text import with_last
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd


class Design(NamedTuple):
    """Groups of rows and weighted sums of their means.

    Attributes
    ----------
    groups : list of str
        Names of the groups.
    members : list of ndarray
        Positions of the rows of each group.
    contrasts : dict of ndarray (groups,)
        Weights of each contrast by its name.
    """

    groups: list[str]
    members: list[Array]
    contrasts: dict[str, Array]


def design_of_names(groups: Any, contrasts: Any, row_names: Array) -> Design:
    """Return the groups, with all rows, and the weights of all contrasts."""
    if hasattr(groups, "columns"):
        return _factorial(check_factors_of_rows(groups, contrasts, row_names), len(row_names))
    labels, names = check_groups(groups, row_names)
    if contrasts is None:
        contrasts = {f"{name} - {names[0]}": {name: 1.0, names[0]: -1.0} for name in names[1:]}
    weights = check_contrast_weights(contrasts, names)
    return Design(names, [np.flatnonzero(labels == name) for name in names], weights)


def _factorial(factors: dict[str, tuple[Array, list[str]]], n: int) -> Design:
    """Return the combinations of factors with two levels, with main effects and interactions of two factors."""
    names = list(factors)
    places = np.array(np.meshgrid(*[[0, 1]] * len(names), indexing="ij")).reshape(len(names), -1)  # (factors, groups)
    titles, members = [], []
    for group in places.T:
        inside = np.ones(n, dtype=bool)
        for level, (labels, levels) in zip(group, factors.values(), strict=True):
            inside &= labels == levels[level]
        titles.append(", ".join(f"{name}={factors[name][1][level]}" for name, level in zip(names, group, strict=True)))
        members.append(np.flatnonzero(inside))
    signs = dict(zip(names, 2.0 * places - 1, strict=True))
    half = places.shape[1] / 2
    contrasts = {name: sign / half for name, sign in signs.items()}
    contrasts |= {f"{a}:{b}": 2 * signs[a] * signs[b] / half for a, b in combinations(names, 2)}
    return Design(titles, members, contrasts)


SCALE = "difference: shares of counts; lfc: their logarithms to base 2"
SIMULATED = 20_000  # values of each contrast, so that quantiles are accurate in the tails of a Student t


class Shares(NamedTuple):
    """Posterior of the shares of components in samples.

    Attributes
    ----------
    mean, variance : ndarray (n, K)
        Means and posterior variances of all samples. Means are posterior means, or estimates without bias.
    of_groups : ndarray (draws, groups, K)
        Draws of the mean share in each group.
    """

    mean: Array
    variance: Array
    of_groups: Array


def group_contrasts(
    fit: FitRecord,
    groups: Any,
    contrasts: Mapping[str, Mapping[Any, float]] | None = None,
    *,
    population: bool = True,
    interval: float = 0.9,
    draws: int = 400,
    seed: int = 0,
) -> pd.DataFrame:
    """Return how much the use of each component differs between groups of samples.

    Parameters
    ----------
    fit : Fit
    groups : array-like (n,), mapping, Series, DataFrame or str
        Group of each sample, in the order of the rows or, with labels, by row name. Samples with None or NaN are left
        out, and a DataWarning says how many. Columns of a DataFrame are factors of two levels, in alphabetical or
        categorical order: its contrasts are the main effect of each factor and the interaction of each pair. The name
        of a covariate of the fit: its levels (of a number, a rise by its standard deviation) with all others held.
    contrasts : mapping of str to mapping, optional
        Weights of groups by the name of each contrast, with sum 0: ``{"b-a": {"b": 1, "a": -1}}``. By default every
        other group minus the first.
    population : bool
        Whether groups stand for all samples that could have been taken, so that variation between samples makes
        intervals wider. Samples of a group must then be independent. Otherwise these samples alone are compared.
    interval : float
        Probability of the central intervals.
    draws, seed : int
        Number of posterior draws, at most those that the fit has, and their seed.

    Returns
    -------
    DataFrame
        Row for each contrast and component: ``difference`` of mean shares and ``lfc``, the contrast of their logarithms
        to base 2, both with ``_low`` and ``_high``; ``lfsr``, the smaller of the probabilities that the difference is
        at least 0 and that it is at most 0. Differences stay within [−1, 1] (an interaction within [−2, 2]), and a
        DataWarning tells of a mean share outside [0, 1] by more than chance. Point estimates need `population` for
        intervals. Of a covariate, shares are those of `Fit.predicted_shares`, means over rows that are given each level
        in turn; and ``effect``, with ``effect_lfsr``, is on the log scale of loadings. ``attrs`` has the ``scale``,
        what ``intervals`` are (`Fit.with_intervals`), and ``cautions``.

    Raises
    ------
    TypeError, ValueError
        Groups that do not match the rows, weights that do not sum to 0, or groups of one sample with `population`.

    See Also
    --------
    plots.volcano : draws the table.
    plots.group_shares : draws mean shares of groups.
    markers : what sets components apart.

    Examples
    --------
    >>> import bayesnmf
    >>> counts = [[90, 11], [80, 18], [85, 15], [28, 70], [35, 66], [30, 71]]
    >>> fit = bayesnmf.fit(counts, rank=2, fixed_components=[[1, 0], [0, 1]], seed=0)
    >>> table = bayesnmf.group_contrasts(fit, ["control"] * 3 + ["treated"] * 3)
    >>> table[["component", "difference", "difference_low", "difference_high"]].round(2)
       component  difference  difference_low  difference_high
    0          0       -0.54           -0.64            -0.45
    1          1        0.54            0.45             0.63
    """
    check_fit(fit)
    check_flag(population, "population")
    tail = (1 - check_fraction(interval, "interval")) / 2
    number, seed = check_count(draws, "draws"), check_count(seed, "seed", minimum=0)
    if isinstance(groups, str):
        return covariate_contrasts(check_is_population(fit, population), groups, contrasts, tail, number, seed)
    design = design_of_names(groups, contrasts, fit.row_names)
    design = design._replace(members=[rows[fit.counts.row_totals[rows] > 0] for rows in design.members])
    check_replicates(*design, population)
    warn_of_confounding(fit.counts.batch, design.groups, design.members)
    drawn = collect(_shares_of_draws(fit := for_intervals(fit), number, seed), design.members)
    shares = drawn._replace(mean=unbiased_shares(fit)) if population else drawn
    if population:
        warn_of_shares(shares.mean, design.groups, design.members, fit.component_titles)
    return _table(fit, design, shares, np.array([tail, 1 - tail]), seed if population else None)


def _table(fit: FitRecord, design: Design, shares: Shares, levels: Array, seed: int | None) -> pd.DataFrame:
    """Return the table of all contrasts, with cautions."""
    import pandas as pd

    parts = []
    for name, weights in design.contrasts.items():
        rng = None if seed is None else np.random.default_rng((seed, 1))
        columns = described(shares, design, weights, levels, rng)
        parts.append(pd.DataFrame({"contrast": name, "component": fit.component_labels, **columns}))
    about = {"intervals": source_of_intervals(fit), "cautions": cautions_of_intervals(fit), "scale": SCALE}
    return _joined(parts, about)


def _joined(parts: list[pd.DataFrame], about: dict[str, Any]) -> pd.DataFrame:
    """Return the tables of all contrasts as one, which says what it is about."""
    import pandas as pd

    table = with_last(pd.concat(parts, ignore_index=True), ["difference", "difference_low", "difference_high"])
    table.attrs |= about
    return table


def _with_limits(name: str, values: Array, low: Array, high: Array) -> dict[str, Array]:
    return {name: values, f"{name}_low": low, f"{name}_high": high}


def _shares_of_draws(fit: FitRecord, draws: int, seed: int) -> Iterator[Array]:
    for loadings, components in iterate_draws(fit, draws, seed, shares=True):
        expected = loadings * component_sums(components)
        yield rows_to_shares(expected, expected.sum(axis=-1))


def collect(drawn: Iterable[Array], members: list[Array]) -> Shares:
    """Return means, variances and group means of draws of shares, (n, K) each."""
    total: Any = 0.0
    squares: Any = 0.0
    of_groups: list[Array] = []
    draws = iter(drawn)
    first = next(draws)  # sums of what draws differ by lose no digits
    for shares in chain([first], draws):
        total, squares = total + (shares - first), squares + (shares - first) ** 2
        of_groups.append(np.stack([shares[rows].mean(axis=0) for rows in members]))
    number = len(of_groups)
    variance = np.maximum(squares - total**2 / number, 0.0) / max(number - 1, 1)
    return Shares(first + total / number, variance, np.stack(of_groups))


def described(shares: Shares, design: Design, weights: Array, levels: Array, rng: Any = None) -> dict[str, Array]:
    """Return the columns of one contrast, (K,) each: of what the samples stand for if there is an `rng`.

    Parameters
    ----------
    shares : Shares
    design : Design
        Groups; those of weight 0 may have a single row.
    weights : ndarray (groups,)
    levels : ndarray (2,)
        Probabilities of the lower and the upper limit.
    rng : numpy.random.Generator, optional
        Generator for the variation between samples; without it the contrast is that of these samples alone.
    """
    used = np.flatnonzero(weights)
    weights, members = weights[used], [design.members[group] for group in used]
    means, draws = np.stack([shares.mean[rows].mean(axis=0) for rows in members]), shares.of_groups[:, used]
    columns: dict[str, Array] = {}
    errors = np.zeros_like(means)
    if rng is not None:
        errors = np.stack([shares.mean[rows].std(axis=0, ddof=1) / np.sqrt(len(rows)) for rows in members])
    for name, change in (("difference", _itself), ("lfc", _logarithm)):
        values, slopes = change(means if name == "difference" else np.maximum(means, errors))
        drawn = weights @ change(draws)[0]
        if rng is not None:
            drawn = _moved(drawn - drawn.mean(axis=0), shares, members, weights[:, None] * slopes, errors, rng)
            drawn += weights @ values
        elif len(drawn) == 1:
            drawn = np.full_like(drawn, np.nan)
        columns |= _with_limits(name, weights @ values, *np.quantile(drawn, levels, axis=0))
        if name == "difference":
            most = np.abs(weights).sum() / 2  # of a contrast of means in [0, 1]
            columns = {part: np.clip(each, -most, most) for part, each in columns.items()}
            rate = np.minimum((drawn >= 0).mean(axis=0), (drawn <= 0).mean(axis=0))
    return columns | {"lfsr": np.where(np.isnan(columns["difference_low"]), np.nan, rate)}


def _itself(shares: Array) -> tuple[Array, Array]:
    """Return shares and the derivative of that."""
    return shares, np.ones_like(shares)


def _logarithm(shares: Array) -> tuple[Array, Array]:
    """Return logarithms to base 2 and their derivatives."""
    above = np.maximum(shares, SMALLEST)
    return np.log2(above), 1 / (above * np.log(2))


def _moved(
    centred: Array, shares: Shares, members: list[Array], slopes: Array, errors: Array, rng: np.random.Generator
) -> Array:
    """Return draws of a contrast about 0, (simulated, K), from centred posterior draws, (draws, K).

    `slopes` are the derivatives of the contrast by the mean shares of the groups, `errors` the standard errors of these
    means, (groups, K) each.
    """
    sizes = np.array([len(rows) for rows in members])
    noise = np.stack([shares.variance[rows].sum(axis=0) for rows in members]) / sizes[:, None] ** 2
    variance = centred.var(axis=0)
    of_samples = np.divide((slopes**2 * noise).sum(axis=0), variance, out=np.ones_like(variance), where=variance > 0)
    shared = centred * np.sqrt(np.maximum(1 - of_samples, 0.0))
    repeats = -(-SIMULATED // len(centred))
    students = np.stack([rng.standard_t(size - 1, repeats * len(centred)) for size in sizes], axis=1)
    return np.asarray(np.tile(shared, (repeats, 1)) + students @ (slopes * errors))


# --- levels of a covariate ----------------------------------------------------------------------------------


def covariate_contrasts(fit: FitRecord, name: str, contrasts: Any, tail: float, draws: int, seed: int) -> pd.DataFrame:
    """Return contrasts between levels of a covariate, or a rise of a number by its standard deviation.

    Parameters
    ----------
    fit : Fit
        Fit with covariates.
    name : str
        Covariate.
    contrasts : mapping or None
        Weights of levels; by default every other level minus the first.
    tail : float
        Probability below, and above, the intervals.
    draws, seed : int
        Most draws of the effects to read, and the seed that chooses them.
    """
    import pandas as pd

    prior = prior_with_effects(fit)
    coding = Coding.of_text(prior.coding)
    check_is_covariate(name, coding.columns)
    frame = frame_of_design(coding, prior.design, fit.row_names)
    levels = _levels(coding, name, frame)
    weights = check_contrast_weights(
        contrasts or _others_minus_first(levels, name in coding.levels), list(levels), label_of
    )
    drawn = _chosen(drawn_effects(fit), draws, seed)
    designs = [design_of(coding, frame.assign(**{name: level}), fit.row_names) for level in levels.values()]
    effects = np.stack([np.einsum("p,spk->sk", each.mean(axis=0), drawn.standardised) for each in designs], axis=1)
    shares = mean_shares_of(fit, draws, seed)
    parts = []
    for label, weight in weights.items():
        used = np.flatnonzero(weight)
        at, most = ([designs[level] for level in used], weight[used]), np.abs(weight).sum() / 2
        difference = shares.contrast(*at)
        columns = _with_limits("difference", *difference.limits(tail, -most, most))
        columns |= _with_limits("lfc", *shares.contrast(*at, logarithms=True).limits(tail, -np.inf, np.inf))
        moved = np.einsum("l,slk->sk", weight, effects)
        columns |= _with_limits("effect", moved.mean(axis=0), *np.quantile(moved, [tail, 1 - tail], axis=0))
        columns["lfsr"] = difference.false_sign_rate()
        columns["effect_lfsr"] = np.minimum((moved >= 0).mean(axis=0), (moved <= 0).mean(axis=0))
        parts.append(pd.DataFrame({"contrast": label, "component": fit.component_labels, **columns}))
    told = told_of_mean_shares(fit)
    source = told["intervals"]
    if drawn.source != source:
        source += f"; of effects: {drawn.source.removeprefix('intervals: ')}"
    scale = f"difference, lfc, lfsr: {SCALE_OF_SHARES}; effect, effect_lfsr: {SCALES[prior.support]}"
    cautions = list(dict.fromkeys([*told["cautions"], *drawn.cautions]))
    return _joined(parts, {"intervals": source, "scale": scale, "cautions": cautions})


def _levels(coding: Coding, name: str, frame: Any) -> dict[str, Any]:
    """Return what the covariate is set to in each of the cases that are compared."""
    if name in coding.levels:
        return {level: level for level in coding.levels[name]}
    sd = scales_of(np.column_stack([np.ones(len(frame)), frame[name]]))[1][1]
    return {name: frame[name], f"{name} + {sd:.3g}": frame[name] + sd}


def _others_minus_first(levels: dict[str, Any], categories: bool) -> dict[str, dict[str, float]]:
    first, *others = levels
    return {f"{level} - {first}" if categories else level: {level: 1.0, first: -1.0} for level in others}


def _chosen(drawn: EffectsDrawn, draws: int, seed: int) -> EffectsDrawn:
    """Return at most so many of the draws."""
    if draws >= len(drawn.draws):
        return drawn
    kept = np.random.default_rng(seed).choice(len(drawn.draws), draws, replace=False)
    return drawn._replace(standardised=drawn.standardised[kept])
