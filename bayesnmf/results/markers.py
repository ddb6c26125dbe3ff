"""What sets a component apart: contrasts of the shares of features in components, and the orders that they give.

With the shares s_kj = β_kj / Σ_j β_kj of feature j in component k, two contrasts are measured in every posterior draw:

- next: log2 s_kj − log2 max_{l ≠ k} s_lj, against the component where the feature is most frequent otherwise;
- rest: log2 s_kj − log2 of the mean share in the other components, each weighted by its expected counts.

A contrast is described by its posterior median, a central 90 % interval, and the local false sign rate (Stephens 2017),
the smaller of the posterior probabilities that it is at least 0 and that it is at most 0. Shares below 10⁻¹² count as
10⁻¹². Intervals and rates are read from what `bayesnmf.results.intervals` says: mean-field ones are too narrow.

They are about the components of these rows, but for those of a bootstrap of rows, which are about other rows, too.

Where a fit by vi has a sparse prior, shares are drawn as if shapes and concentrations of the prior below 1 were 1: q is
changed so, and a Gamma variate of what they lack, in units of one count, is added to each draw beside q.
Else a component that has the few counts of a rare feature would seem to be set apart by it, as the sparse prior puts
its share in all others near 0, where nothing speaks for it or against it. Modes, which are 0 there under a shape of 1,
have a whole variate added in each replicate of a bootstrap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import xlogy

from bayesnmf.checks import check_choice, check_count
from bayesnmf.options.methods import basis_of_mode
from bayesnmf.priors.pair import free_components
from bayesnmf.priors.specification import stated_components
from bayesnmf.priors.values import component_sums, rows_to_shares
from bayesnmf.results.checks import check_components_to_compare
from bayesnmf.results.intervals import for_intervals
from bayesnmf.results.record import FitRecord
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd

SMALLEST = 1e-12
CONTRASTS = ("next", "rest")
ORDERS = ("distinct", "share", "lift", *CONTRASTS)
DRAWS = 400
LEVELS = np.array([0.05, 0.5, 0.95])
LARGEST = 2**29  # bytes of draws that are kept at once


def top_features(fit: FitRecord, n: int, order: str) -> pd.DataFrame:
    """Return the names of the leading features of each component; see `bayesnmf.Fit.top_features`."""
    import pandas as pd

    return pd.DataFrame(fit.feature_names[leading_features(fit, n, order)].T, columns=fit.component_titles)


def leading_features(fit: FitRecord, n: int, order: str) -> Array:
    """Return the positions of the `n` leading features of each component, (K, n).

    The order "distinct" is by √share − √(mean share in the other components, each weighted by its expected counts):
    square roots have the same variance at all means, so that a frequent feature and a rare one weigh the same. "share"
    is of the largest shares; "lift" by share × log(share / mean share over all components), and by share where this is
    0. "next" and "rest" are by the lower limit of the 90 % interval of that contrast, from 400 draws, and by the
    contrast itself for a point estimate.
    """
    number = check_count(n, "n")
    if check_choice(order, "order", ORDERS) in CONTRASTS:
        check_components_to_compare(fit.rank)
        return order_by_contrast(described(fit, DRAWS, 0), order)[:, :number]
    components = fit.components.astype(np.float64)
    shares = rows_to_shares(components, component_sums(components))
    return order_by_share(shares, order, fit.expected_sizes)[:, :number]


def order_by_share(shares: Array, order: str, sizes: Array) -> Array:
    """Return all features in an order for each component, given shares (K, m) and expected counts (K,)."""
    score = shares
    if order == "distinct":
        score = np.sqrt(shares) - np.sqrt(shares_in_rest(shares, sizes))
    elif order == "lift":
        mean = shares.mean(axis=0)
        score = xlogy(shares, shares / np.where(mean > 0, mean, 1.0))
    return np.lexsort((-shares, -score), axis=1)


def order_by_contrast(columns: dict[str, Array], contrast: str) -> Array:
    """Return all features in the order of the lower limit of a contrast, or of itself if there are no limits."""
    low = columns[f"lfc_{contrast}_low"]
    low = columns[f"lfc_{contrast}"] if np.isnan(low).all() else low
    return np.lexsort((-columns["share"], -low), axis=1)


def described(fit: FitRecord, draws: int, seed: int) -> dict[str, Array]:
    """Return the mean ``share`` and the description of both contrasts of every feature, (K, m) each."""
    fit = for_intervals(fit)
    rank, m = fit.components.shape
    number = fit.estimate.length(draws)
    width = max(LARGEST // (8 * number * rank), 1)
    blocks = []
    for first in range(0, m, width):
        features = slice(first, first + width)
        drawn = (
            rows_to_shares(components, component_sums(components))[:, features]
            for components in component_draws(fit, number, seed)
        )
        blocks.append(describe_shares(drawn, fit.expected_sizes))
    found = {name: np.concatenate([block[name] for block in blocks], axis=1) for name in blocks[0]}
    if (q := _mean_field(fit)) is not None:  # exactly, and without what is added to sparse priors
        components = np.asarray(q.broadcast(fit.components.shape).mean(), np.float64)
        found["share"] = rows_to_shares(components, component_sums(components))
    elif fit.intervals is not None:
        shares = (rows_to_shares(each, component_sums(each)) for _, _, each in fit.estimate.iterate(fit, number, seed))
        found["share"] = np.asarray(sum(shares) / number)
    return found


def describe_shares(drawn: Iterable[Array], sizes: Array) -> dict[str, Array]:
    """Describe draws of shares, (K, features) each, of components with these expected counts, (K,)."""
    total: Any = 0.0
    found: dict[str, list[Array]] = {name: [] for name in CONTRASTS}
    for shares in drawn:
        total = total + shares
        for name, values in contrasts(shares, sizes).items():
            found[name].append(values.astype(np.float32))
    columns: dict[str, Array] = {"share": total / len(found["next"])}
    for name in CONTRASTS:
        columns |= _summary(name, np.stack(found[name]))
    return columns


def component_draws(fit: FitRecord, draws: int, seed: int) -> Iterator[Array]:
    """Yield draws of the components alone, (K, m), one at a time; sparse priors of a fit by vi count as even."""
    q, rng = _mean_field(fit), np.random.default_rng(seed)
    if q is None:
        for _, _, components in fit.estimate.iterate(fit, draws, seed):
            yield components if fit.intervals is None else _raised_draw(fit, components, rng)
        return
    q = _raised(q.broadcast(fit.components.shape), fit.priors.components)
    for _ in range(draws):
        yield q.draw(rng)


def _mean_field(fit: FitRecord) -> Any:
    """Return q of the components; None for other estimates, and for components without q."""
    return getattr(fit.estimate, "components", None) if fit.estimate.kind == "mean field" else None


def _raised(q: Any, prior: Any) -> Any:
    """Return q with what shapes and concentrations of its prior lack to 1."""
    lacking = _lacking(prior)
    return q.with_parameters({**q.parameters, **{name: q.parameters[name] + more for name, more in lacking.items()}})


def _raised_draw(fit: FitRecord, components: Array, rng: np.random.Generator) -> Array:
    """Return a draw of the components with what shapes and concentrations of their prior lack, as counts."""
    prior = stated_components(fit.priors.components)
    free, raised = free_components(prior, fit.rank), components.astype(np.float64)
    count = (component_sums(raised) / np.maximum(fit.expected_sizes, 1.0))[free, None]
    of_modes = fit.by.posterior == "point" and basis_of_mode(fit.options) == "natural"
    for more in _lacking(prior, 2 if of_modes else 1).values():  # the mode of Gamma(a + 1) is the mean of Gamma(a)
        raised[free] += count * rng.gamma(np.broadcast_to(more, raised[free].shape))
    return raised


def _lacking(prior: Any, to: int = 1) -> dict[str, Array]:
    """Return what shapes or concentrations of a prior lack to a number, by name."""
    given: dict[str, Any] = prior.parameters
    return {name: np.maximum(to - np.asarray(given[name]), 0) for name in ("shape", "concentration") if name in given}


def contrasts(shares: Array, sizes: Array) -> dict[str, Array]:
    """Return both contrasts of every component and feature, (K, m), in powers of two."""
    logs, rank = np.log2(np.maximum(shares, SMALLEST)), len(shares)
    largest = np.partition(logs, rank - 2, axis=0)[rank - 2 :]  # the two largest of each feature
    following = np.where(logs == largest[1], largest[0], largest[1])
    rest = np.log2(np.maximum(shares_in_rest(shares, sizes), SMALLEST))
    return {"next": logs - following, "rest": logs - rest}


def shares_in_rest(shares: Array, sizes: Array) -> Array:
    """Return mean shares (K, m) in the components beside each, weighted by expected counts (K,)."""
    rank = len(shares)
    weights = sizes / sizes.sum() if sizes.sum() > 0 else np.full(rank, 1 / rank)
    others = np.maximum(1 - weights, SMALLEST)[:, None]
    return np.maximum(weights @ shares - weights[:, None] * shares, 0) / others


def _summary(name: str, drawn: Array) -> dict[str, Array]:
    """Return the columns of one contrast, from draws (draws, K, m)."""
    if len(drawn) == 1:
        unknown = np.full(drawn.shape[1:], np.nan)
        low, middle, high, rate = unknown, drawn[0], unknown, unknown
    else:
        low, middle, high = np.quantile(drawn, LEVELS, axis=0)
        rate = np.minimum((drawn >= 0).mean(axis=0), (drawn <= 0).mean(axis=0))
        rate[np.isnan(middle)] = np.nan
    return {f"lfc_{name}": middle, f"lfc_{name}_low": low, f"lfc_{name}_high": high, f"lfsr_{name}": rate}
