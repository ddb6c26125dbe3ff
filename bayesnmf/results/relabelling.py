"""Change the order of the components of draws and fits, or their names and those of rows and features.

Switches of labels within chains are counted, and so are draws without a match.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from bayesnmf.data.naming import changed_names, check_distinct
from bayesnmf.inference import alignment
from bayesnmf.priors import Distribution, Priors
from bayesnmf.priors.log_linear import EFFECTS, SHAPES
from bayesnmf.results.record import SITE, FitRecord, component_axis
from bayesnmf.types import Array


def match_all_draws(components: Array, among: Array | None = None) -> tuple[Array, Array]:
    """Return the components of all draws in one order, and the orders (chains, draws, K).

    Draws are matched to the last draw of the first chain, then to the mean of the first chain. Component k of a matched
    draw was component `orders[..., k]`. Only components at the places `among` change places; by default all.
    """
    total = np.broadcast_to(np.arange(components.shape[-2]), components.shape[:-1])
    for reference_of in (lambda values: values[0, -1], lambda values: values[0].mean(axis=0)):
        orders = alignment.match_draws(components, reference_of(components), among)
        components = alignment.reorder(components, orders, axis=-2)
        total = np.take_along_axis(total, orders, axis=-1)
    return components, total


def relabel[F: FitRecord](fit: F, order: Array) -> F:
    """Return the fit with permuted components, posterior and priors: component `order[k]` becomes component k."""
    if np.array_equal(order, np.arange(fit.rank)):
        return fit
    priors, given = _permuted_priors(fit.priors, order), fit.options.priors  # learned priors differ from given ones
    return replace(
        fit,
        loadings=fit.loadings[:, order],
        components=fit.components[order],
        multipliers=None if fit.multipliers is None else (fit.multipliers[0][:, order], fit.multipliers[1][order]),
        moments=None if fit.moments is None else {k: _in_order(k, value, order) for k, value in fit.moments.items()},
        statistics=None if fit.statistics is None else {k: _reordered(k, v, order) for k, v in fit.statistics.items()},
        priors=priors,
        options=replace(fit.options, priors=priors if given is fit.priors else _permuted_priors(given, order)),
        component_names=None if fit.component_names is None else fit.component_names[order],
        intervals=None if fit.intervals is None else fit.intervals.reordered(order),
        estimate=fit.estimate.reordered(order),
    )


def _in_order(name: str, values: Array, order: Array) -> Array:
    """Return the moments of one side with components permuted; a scale has no components."""
    if name.startswith("scale"):
        return values
    return values[order] if name.startswith("components") else values[:, order]


def _reordered(name: str, values: Array, order: Array) -> Array:
    """Return statistics of draws with components permuted, where they belong to these."""
    if name.startswith(SITE) and (axis := component_axis(values.shape[2:], len(order))) is not None:
        return np.take(values, order, axis=axis + 2)
    return values[..., order] if name in (EFFECTS, SHAPES) else values


def _permuted_priors(priors: Priors, order: Array) -> Priors:
    def reordered(prior: Any, axis: int) -> Any:
        return prior.reordered(order, axis) if isinstance(prior, Distribution) else prior

    return Priors(reordered(priors.loadings, -1), reordered(priors.components, -2))


SWITCHED, AMBIGUOUS, AMBIGUOUS_LIMIT = 0.5, 0.25, 0.05


def label_switching(components: Array, orders: Array) -> dict[str, float]:
    """Return the number of label switches within chains, and the share of ambiguous draws.

    Two nearly equal components swap at random. A switch is therefore counted only if it raises the total cosine by at
    least half (`SWITCHED`) of the gain for a draw equal to the relabelled mean. A draw is ambiguous if, for some
    pair of components, swapping the pair would lower the total cosine by less than a quarter (`AMBIGUOUS`) of the loss
    for a draw equal to the mean.

    Parameters
    ----------
    components : ndarray (chains, draws, K, m)
        Components in matched order.
    orders : ndarray (chains, draws, K)
        Orders from `bayesnmf.results.relabelling.match_all_draws`.
    """
    pairs = np.triu_indices(orders.shape[-1], 1)
    switches = ambiguous = 0
    for chain, chain_orders in zip(components, orders, strict=True):
        reference = chain.mean(axis=0)  # of this chain, which may be in another mode than the first chain
        alike = alignment.cosine(reference, reference)
        swapped = 2 - alike - alike.T  # loss when two components of the reference are swapped, (K, K)
        current = chain_orders[0]
        for draw, order in zip(chain, chain_orders, strict=True):
            similar = alignment.cosine(draw, reference)
            kept = np.diag(similar)
            gains = kept[:, None] + kept - similar - similar.T
            ambiguous += bool(np.any(gains[pairs] < AMBIGUOUS * swapped[pairs]))
            if np.array_equal(order, current):
                continue
            before = np.argsort(order)[current]  # components of the matched draw in the previous order
            gain = kept.sum() - similar[before, np.arange(len(before))].sum()
            if gain >= SWITCHED * (len(before) - alike[before, np.arange(len(before))].sum()):
                switches += 1
                current = order
    draws = orders.shape[0] * orders.shape[1]
    return {"label_switches": float(switches), "ambiguous_draws": ambiguous / draws}


def rename(fit: FitRecord, components: Any, rows: Any, features: Any) -> FitRecord:
    """Return a fit with other names, each given as a list of all names or a mapping from old names to new ones."""
    counts, titles = fit.counts, fit.component_names
    if components is not None:
        titles = _titles(fit, components)
        check_distinct(titles, "components")
    if rows is not None:
        counts = replace(counts, row_names=changed_names(counts.row_names, rows, "rows"))
    if features is not None:
        counts = replace(counts, feature_names=changed_names(counts.feature_names, features, "features"))
    return replace(fit, counts=counts, component_names=titles)


def _titles(fit: FitRecord, given: Any) -> Array:
    """Return the new names of the components. In a mapping, the old ones are their names or their numbers."""
    old = np.array(fit.component_titles, dtype=object)
    if isinstance(given, Mapping):
        numbers = {str(k): title for k, title in enumerate(old)}
        given = {key if str(key) in old else numbers.get(str(key), key): new for key, new in given.items()}
    return changed_names(old, given, "components")
