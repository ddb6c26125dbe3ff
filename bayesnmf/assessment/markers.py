"""What sets a component apart: features that are more frequent in it than in the others.

With the shares s_kj = β_kj / Σ_j β_kj of feature j in component k, two contrasts are measured in every posterior draw:

- next: log2 s_kj − log2 max_{l ≠ k} s_lj, against the component where the feature is most frequent otherwise;
- rest: log2 s_kj − log2 of the mean share in the other components, each weighted by its expected counts.

A contrast is described by its posterior median, a central 90 % interval, and the local false sign rate (Stephens 2017),
the smaller of the posterior probabilities that it is at least 0 and that it is at most 0. Shares below 10⁻¹² count as
10⁻¹². Intervals and rates are those of the posterior of the fit: mean-field ones are too narrow, as elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bayesnmf.assessment.checks import check_components_to_compare
from bayesnmf.checks import check_choice, check_count
from bayesnmf.priors.simplex import component_sums, rows_to_shares
from bayesnmf.results.checks import check_fit
from bayesnmf.results.record import FitRecord

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[Any]
SMALLEST = 1e-12
CONTRASTS = ("next", "rest")
LEVELS = np.array([0.05, 0.5, 0.95])
LARGEST = 2**29  # bytes of draws that are kept at once


def markers(
    fit: FitRecord, n: int | None = 20, *, against: str = "next", draws: int = 400, seed: int = 0
) -> pd.DataFrame:
    """Return the features that set each component apart from the others, those that do so most surely first.

    Parameters
    ----------
    fit : Fit
        Fit with at least two components. Under map and bld there are no intervals and rates.
    n : int, optional
        Number of features of each component; None for all.
    against : {"next", "rest"}
        Contrast by whose lower limit features are ordered (`bayesnmf.assessment.markers`).
    draws : int
        Number of posterior draws of the components, at most those that the fit has.
    seed : int
        Seed of draws from a closed-form q.

    Returns
    -------
    DataFrame
        Row for each component and feature: ``weight``, the posterior mean share of the feature in the component;
        ``lift``, this share divided by the feature's share of all counts; for both contrasts, in powers of two,
        ``lfc_next`` with ``lfc_next_low``, ``lfc_next_high`` and ``lfsr_next``, and the same for ``rest``.

    Raises
    ------
    TypeError, ValueError
        Not a fit, a single component, or invalid numbers.
    """
    import pandas as pd

    check_fit(fit)
    check_components_to_compare(fit.rank)
    check_choice(against, "against", CONTRASTS)
    number, seed = check_count(draws, "draws"), check_count(seed, "seed", minimum=0)
    m = len(fit.feature_names)
    kept = m if n is None else min(check_count(n, "n"), m)
    columns = _described(fit, fit.estimate.length(number), seed)
    low = columns[f"lfc_{against}"] if fit.estimate.kind == "point" else columns[f"lfc_{against}_low"]
    order = np.lexsort((-columns["weight"], -low), axis=1)[:, :kept]
    table = pd.DataFrame({name: np.take_along_axis(values, order, axis=1).ravel() for name, values in columns.items()})
    table.insert(0, "feature", fit.feature_names[order].ravel())
    table.insert(0, "component", np.repeat(np.arange(fit.rank), kept))
    return table


def _described(fit: FitRecord, draws: int, seed: int) -> dict[str, Array]:
    """Return the columns of the table, (K, m) each."""
    rank, m = fit.components.shape
    width = max(LARGEST // (8 * draws * rank), 1)
    blocks = [_block(fit, slice(first, first + width), draws, seed) for first in range(0, m, width)]
    columns = {name: np.concatenate([block[name] for block in blocks], axis=1) for name in blocks[0]}
    totals = fit.counts.feature_totals
    weight = columns.pop("weight")
    return {"weight": weight, "lift": weight * totals.sum() / np.where(totals > 0, totals, np.nan), **columns}


def _block(fit: FitRecord, features: slice, draws: int, seed: int) -> dict[str, Array]:
    """Describe some features."""
    sizes = fit.expected_sizes
    total: Any = 0.0
    found: dict[str, list[Array]] = {name: [] for name in CONTRASTS}
    for components in component_draws(fit, draws, seed):
        shares = rows_to_shares(components, component_sums(components))[:, features]
        total = total + shares
        for name, values in contrasts(shares, sizes).items():
            found[name].append(values.astype(np.float32))
    columns: dict[str, Array] = {"weight": total / draws}
    for name in CONTRASTS:
        columns |= _summary(name, np.stack(found[name]))
    return columns


def component_draws(fit: FitRecord, draws: int, seed: int) -> Iterator[Array]:
    """Yield draws of the components alone, (K, m), one at a time."""
    q = getattr(fit.estimate, "components", None) if fit.estimate.kind == "mean field" else None
    if q is None:
        for _, _, components in fit.estimate.iterate(fit, draws, seed):
            yield components
        return
    rng, q = np.random.default_rng(seed), q.broadcast(fit.components.shape)
    for _ in range(draws):
        yield q.draw(rng)


def contrasts(shares: Array, sizes: Array) -> dict[str, Array]:
    """Return both contrasts of every component and feature, (K, m), in powers of two."""
    logs, rank = np.log2(np.maximum(shares, SMALLEST)), len(shares)
    largest = np.partition(logs, rank - 2, axis=0)[rank - 2 :]  # the two largest of each feature
    following = np.where(logs == largest[1], largest[0], largest[1])
    weights = sizes / sizes.sum() if sizes.sum() > 0 else np.full(rank, 1 / rank)
    others = np.maximum(1 - weights, SMALLEST)[:, None]
    rest = (weights @ shares - weights[:, None] * shares) / others
    return {"next": logs - following, "rest": logs - np.log2(np.maximum(rest, SMALLEST))}


def _summary(name: str, drawn: Array) -> dict[str, Array]:
    """Return the columns of one contrast, from draws (draws, K, m)."""
    if len(drawn) == 1:
        unknown = np.full(drawn.shape[1:], np.nan)
        low, middle, high, rate = unknown, drawn[0], unknown, unknown
    else:
        low, middle, high = np.quantile(drawn, LEVELS, axis=0)
        rate = np.minimum((drawn >= 0).mean(axis=0), (drawn <= 0).mean(axis=0))
    return {f"lfc_{name}": middle, f"lfc_{name}_low": low, f"lfc_{name}_high": high, f"lfsr_{name}": rate}
