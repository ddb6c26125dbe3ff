"""Consensus components of many runs, as consensus NMF (cNMF) forms them.

Kotliar, Veres, Nagy, Tabrizi, Hodis, Melton & Sabeti (2019, *Identifying gene expression programs of cell-type
identity and cellular activity with single-cell RNA-Seq*, eLife 8:e43803): the K components of all R runs are pooled,
each divided by its Euclidean length. The local density of a component is its mean Euclidean distance to its ρR nearest
neighbours; components at or above a threshold are outliers, found by few runs, and are left out. k-means with K
clusters groups the others, and the median of each cluster, divided by its sum, is a consensus component. Known
components are the same in all runs: they stay as they are, in front, and the others are pooled.

Names in cNMF: `density` is ``density_threshold``, `neighbourhood` is ``local_neighborhood_size``, and components are
spectra.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bayesnmf.assessment.scoring import MIXED
from bayesnmf.cards import Card, Shown
from bayesnmf.fitting.fit import fit
from bayesnmf.fitting.fitted import Fit
from bayesnmf.fitting.known import with_given_names
from bayesnmf.inference.alignment import normalise_rows
from bayesnmf.needs import needed_for
from bayesnmf.options import METHODS
from bayesnmf.priors.pair import free_components
from bayesnmf.priors.specification import on_simplex, stated_components
from bayesnmf.studies.stability.checks import check_enough_clusters, check_enough_kept
from bayesnmf.text import or_dash
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd

KMEANS_STARTS = 10
KEPT_OPTIONS = ("max_iter", "dtype", "threads", "device")  # of the runs, for a fit of the consensus
SMALLEST = 1e-15  # share of a component below which a feature has none: smaller numbers underflow in float32


class Pool(NamedTuple):
    """Components of all runs, run by run.

    Attributes
    ----------
    unit : ndarray (R K, m)
        Components divided by their Euclidean length.
    run, component : ndarray of int (R K,)
        Run and number of each component.
    size, total : ndarray (R K,)
        Share of the counts of each component, and its sum over features.
    """

    unit: Array
    run: Array
    component: Array
    size: Array
    total: Array


@dataclass(frozen=True, eq=False, repr=False)
class Consensus(Shown):
    """Consensus of the components of many runs, as in cNMF.

    Attributes
    ----------
    components : ndarray (K, m)
        Consensus components, each with sum 1: known ones first, then by the median share of the counts of their
        members.
    members : DataFrame
        Row for each pooled component, by run and component: its cluster, which is the number of the consensus
        component, or −1 for an outlier; its local density; whether it was kept; its silhouette; its share of the
        counts.
    clusters : DataFrame
        Row for each cluster: members; runs with a member; mean silhouette; mean cosine of members with the consensus
        component.
    silhouette : float
        Mean silhouette of the kept components, by Euclidean distance: the stability of cNMF. NaN for a single cluster.
    kept : float
        Share of the components that were kept.
    density, neighbourhood : float
        Threshold of the local density, and share of the runs that are neighbours.
    distances : ndarray (R K, R K)
        Euclidean distances between the pooled components, in the order of `members`.
    names : sequence of str or None
        Names of the known components, the first ones, None for one without a name; empty if none has any.

    See Also
    --------
    Modes.consensus : which makes it.
    plots.consensus : draws it.

    Examples
    --------
    >>> import bayesnmf
    >>> runs = bayesnmf.modes(bayesnmf.datasets.swimmer().rows(range(0, 256, 8)), rank=2, starts=3, seed=0)
    >>> runs.consensus().components.shape
    (2, 1024)
    """

    components: Array
    members: pd.DataFrame
    clusters: pd.DataFrame
    silhouette: float
    kept: float
    density: float
    neighbourhood: float
    distances: Array
    best: Fit
    scale: Array
    names: Sequence[str | None] = ()

    @cached_property
    def fit(self) -> Fit:
        """Fit with the consensus components known, so that only the loadings are estimated; made on first use.

        It has the model, method and priors of the runs (map for bld), and the default algorithm for known components.
        If all components are 0 for a feature with counts, which would then be impossible, 10⁻⁶ of the overall
        frequencies is mixed with the components. Gamma components have the median sum of their members, on which the
        prior of the loadings depends.
        """
        best, known = self.best, np.where(self.components < SMALLEST, 0.0, self.components)
        totals = best.counts.feature_totals
        if np.any((known.max(axis=0) <= 0) & (totals > 0)):
            known = (1 - MIXED) * known + MIXED * totals / totals.sum()
        known = known if on_simplex(best.priors.components) else known * self.scale[:, None]
        method = "map" if best.method == "bld" else best.method
        given: Any = best.options
        kept = {name: getattr(given, name) for name in KEPT_OPTIONS if hasattr(given, name)}
        options: Any = METHODS[method].options(priors=best.priors, start="random", **kept)
        made = fit(best.counts, best.model, best.rank, method, seed=best.seed, options=options, fixed_components=known)
        return with_given_names(made, self.names)

    def card(self) -> Card:
        """Return what is shown of it."""
        rows: Any = self.clusters.reset_index().itertuples(index=False)
        lines = [[str(r.cluster), str(r.members), str(r.runs), or_dash(r.silhouette), or_dash(r.cosine)] for r in rows]
        headings = ["component", "members", "runs", "silhouette", "mean cosine"]
        outliers = int((~self.members["kept"]).sum())
        notes = [
            f"kept {self.kept:.0%} of {len(self.members)} components: local density below {self.density:g}; "
            f"{outliers} outliers",
            f"silhouette {or_dash(self.silhouette)}",
        ]
        title = f"consensus of {self.members.index.get_level_values('run').nunique()} runs"
        return Card(title, headings, lines, notes, ["found.fit  # the loadings, given the consensus components"])


def pool_components(components: Array, sizes: Array, starts: Array, free: Array) -> Pool:
    """Pool the components of all runs that are not known.

    Parameters
    ----------
    components : ndarray (R, K, m)
    sizes : ndarray (R, K)
        Expected counts of each component.
    starts : ndarray (R,)
        Number of each run.
    free : ndarray of int
        Components that are not known.
    """
    chosen = components[:, free].astype(np.float64)
    shares = sizes / np.maximum(sizes.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    flat = chosen.reshape(-1, components.shape[-1])
    run, component = np.repeat(starts, len(free)), np.tile(free, len(components))
    return Pool(normalise_rows(flat), run, component, shares[:, free].ravel(), flat.sum(axis=1))


def local_density(distances: Array, neighbours: int) -> Array:
    """Return the mean distance of each point to its nearest neighbours, itself left out, (points,)."""
    nearest = np.sort(distances + np.diag(np.full(len(distances), -1.0)), axis=1)[:, 1 : neighbours + 1]
    return nearest.mean(axis=1)


def form_consensus(best: Fit, pool: Pool, runs: int, density: float, neighbourhood: float, seed: int = 0) -> Consensus:
    """Return the consensus of pooled components.

    Parameters
    ----------
    best : Fit
        Fit with the highest objective, which has the known components.
    pool : Pool
    runs : int
        Number of runs.
    density : float
        Local density from which on components are outliers.
    neighbourhood : float
        Share of the runs that are neighbours, ρ.
    seed : int
        Seed of k-means.
    """
    import pandas as pd

    with needed_for("Modes.consensus"):
        from sklearn.metrics import euclidean_distances

    free = free_components(stated_components(best.priors.components), best.rank)
    distances = euclidean_distances(pool.unit)
    neighbours = min(max(int(neighbourhood * runs), 1), max(len(distances) - 1, 1))
    densities = local_density(distances, neighbours)
    kept = densities < density
    check_enough_kept(densities, density, len(free))
    labels = np.full(len(kept), -1)
    labels[kept] = _clusters_by_size(pool, kept, len(free), seed)
    silhouettes = _silhouettes(distances, labels)
    medians = np.stack([np.median(pool.unit[labels == k], axis=0) for k in range(len(free))])
    medians /= np.maximum(medians.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    known = np.setdiff1d(np.arange(best.rank), free)
    of_known = best.components[known].astype(np.float64)
    sums = of_known.sum(axis=1, keepdims=True)
    components = np.concatenate([of_known / np.where(sums > 0, sums, 1.0), medians])
    scale = np.array([*sums[:, 0], *(np.median(pool.total[labels == k]) for k in range(len(free)))])
    numbers = np.where(labels < 0, -1, labels + len(known))
    index = pd.MultiIndex.from_arrays([pool.run, pool.component], names=["run", "component"])
    members = pd.DataFrame(
        {
            "cluster": numbers,
            "local_density": densities,
            "kept": kept,
            "silhouette": silhouettes,
            "share_of_counts": pool.size,
        },
        index,
    )
    clusters = _cluster_table(members, pool.unit, components, len(known))
    mean = float(np.nanmean(silhouettes)) if np.isfinite(silhouettes).any() else np.nan
    names = () if best.component_names is None else best.component_names[known].tolist()
    return Consensus(
        components, members, clusters, mean, float(kept.mean()), density, neighbourhood, distances, best, scale, names
    )


def _clusters_by_size(pool: Pool, kept: Array, rank: int, seed: int) -> Array:
    """Return the cluster of each kept component, by falling median share of the counts."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    means = KMeans(rank, n_init=KMEANS_STARTS, random_state=seed % 2**32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct points than clusters: see below
        labels = means.fit_predict(pool.unit[kept])
    check_enough_clusters(len(np.unique(labels)), rank)
    shares = np.array([np.median(pool.size[kept][labels == k]) for k in range(rank)])
    place = np.argsort(np.argsort(-shares, kind="stable"), kind="stable")
    return place[labels]


def _silhouettes(distances: Array, labels: Array) -> Array:
    """Return the silhouette of each component; NaN for outliers, and where there is one cluster or one member each."""
    from sklearn.metrics import silhouette_samples

    found, inside = np.full(len(labels), np.nan), labels >= 0
    number = len(np.unique(labels[inside]))
    if 2 <= number < inside.sum():
        among = distances[np.ix_(inside, inside)].copy()
        np.fill_diagonal(among, 0.0)
        found[inside] = silhouette_samples(among, labels[inside], metric="precomputed")
    return found


def _cluster_table(members: pd.DataFrame, unit: Array, components: Array, known: int) -> pd.DataFrame:
    """Return a row for each cluster, by the number of its consensus component."""
    import pandas as pd

    lines = []
    run = members.index.get_level_values("run").to_numpy()
    numbers, silhouettes = members["cluster"].to_numpy(), members["silhouette"].to_numpy()
    directions = normalise_rows(components)
    for number in range(known, len(components)):
        inside = numbers == number
        lines.append(
            {
                "cluster": number,
                "members": int(inside.sum()),
                "runs": len(np.unique(run[inside])),
                "silhouette": float(silhouettes[inside].mean()),
                "cosine": float((unit[inside] @ directions[number]).mean()),
            }
        )
    return pd.DataFrame(lines, columns=["cluster", "members", "runs", "silhouette", "cosine"]).set_index("cluster")
