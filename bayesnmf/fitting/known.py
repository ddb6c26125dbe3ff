"""Take what is given of the components into their prior: known ones, and features that are named beforehand."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from bayesnmf.checks import check_flag, check_rank
from bayesnmf.data.checks import check_drift, check_features_in_columns
from bayesnmf.data.counts import Counts
from bayesnmf.data.covariates.design import Covariates
from bayesnmf.data.files import read_counts
from bayesnmf.data.labels import LISTED, Labelled, Order, is_frame, listed, order_of, says_place, split_labels
from bayesnmf.data.mutations import is_artefact
from bayesnmf.data.naming import check_distinct
from bayesnmf.data.seeds import Seeds, seeds_of
from bayesnmf.data.suspicions import DataWarning, warn_of_data
from bayesnmf.fitting.checks import (
    check_chosen,
    check_drifts,
    check_known_components,
    check_named_once,
    check_room_for_known,
    check_takes_drift,
    check_takes_seeds,
)
from bayesnmf.priors import Priors
from bayesnmf.priors.drifting import Drifting
from bayesnmf.priors.pair import replace_sides, with_favoured
from bayesnmf.priors.partly_known import PartlyKnown
from bayesnmf.priors.specification import stated_components
from bayesnmf.priors.values import rows_to_shares
from bayesnmf.results.record import FitRecord
from bayesnmf.text import readable
from bayesnmf.types import Array

RANK = 10  # without known components


class Beforehand(NamedTuple):
    """What is given of the components, known ones as a frame or array and sets of features, and covariates of rows.

    `names` are those of the first components: of the sets, or of the rows of the frame, if these have names. `drift`
    says how many counts known components weigh that may move.
    """

    known: Any = None
    seeds: Seeds | None = None
    covariates: Covariates | None = None
    names: Sequence[str | None] = ()
    drift: float | Literal["learned"] | None = None


NOTHING: Beforehand = Beforehand()


def with_known_components(
    priors: Priors, given: Any, counts: Counts, rank: int, drift: float | Literal["learned"] | None, beside: float
) -> Priors:
    """Return the priors with the given components as known ones, in the first rows; priors have no None left.

    Parameters
    ----------
    given : array, DataFrame (r, m), Fit or path
        Known components. Features with names are matched by name. They replace components that the priors know already.
    drift : "learned" or float, optional
        How many counts they weigh if they may move.
    beside : float
        Concentration that those that may move have beside these.
    """
    known = check_known_components(in_order_of(counts, given), counts.shape[1], priors.components)
    check_room_for_known(known, rank, priors.components)
    free: Any = stated_components(priors.components).free_prior
    free = free.others if isinstance(free, Drifting) else free
    if drift is not None:
        check_takes_drift(free)
        shares = rows_to_shares(known, known.sum(axis=1))
        return replace_sides(priors, components=Drifting.around(shares, free, drift, rank, beside))
    if free.support == "simplex":
        known = known / known.sum(axis=1, keepdims=True)  # to rounding
    return replace_sides(priors, components=PartlyKnown(known, free, np.arange(len(known))))


def with_seeds(priors: Priors, seeds: Seeds, counts: Counts, rank: int) -> Priors:
    """Return the priors, which have no None left, with the named features favoured by the first components."""
    prior = stated_components(priors.components)
    check_takes_seeds(prior, list(seeds.sets), rank)
    members = seeds.members(counts.feature_names)
    return replace_sides(priors, components=with_favoured(prior, members, seeds.strength, rank))


def with_given_names[F: FitRecord](fit: F, names: Sequence[str | None]) -> F:
    """Return the fit with the given names, if there are any, as those of its first components."""
    return replace(fit, component_names=_titles(names, fit.rank)) if names else fit


def _titles(names: Sequence[str | None], rank: int) -> Array:
    """Return the names of all components, of which the first may be given; others are called as without names."""
    given = [*names, *[None] * (rank - len(names))]
    return np.array([f"component {k}" if name is None else name for k, name in enumerate(given)], dtype=object)


def given_of(rank: Any, fixed_components: Any, seeds: Any, drift: Any = None) -> tuple[int, Beforehand]:
    """Return the number of components, by default as many as are given, and what is given of them."""
    named, drift = seeds_of(seeds), check_drift(drift)
    check_drifts(drift, fixed_components, named)
    if fixed_components is None and rank is None and named is not None:
        rank = max(RANK, len(named.sets))
    rank, known = rank_and_known(rank, fixed_components)
    names, of = (names_of(known), "fixed_components") if named is None else (list(named.sets), "seeds")
    check_distinct(_titles(names, rank), of)
    return rank, Beforehand(known, named, names=names, drift=drift)


def names_of(known: Any) -> list[str | None]:
    """Return the names of known components, None for those that have none; an empty list if no one has."""
    labels = split_labels(known).rows
    names = [] if labels is None else [None if says_place(label) else readable(label) for label in labels]
    return names if any(names) else []


def rank_and_known(rank: Any, given: Any) -> tuple[int, Any]:
    """Return the number of components, by default that of the known ones, and these as a frame if they are a file."""
    known = catalogue_of(given)
    if rank is None:
        rank = len(known) if hasattr(known, "__len__") and len(known) else RANK
    return check_rank(rank), known


def catalogue_of(given: Any) -> Any:
    """Return components as they are given; those of a fit or a file as a frame, components by features."""
    if isinstance(given, FitRecord):
        import pandas as pd

        return pd.DataFrame(given.components, given.component_titles, given.feature_names)
    return read_catalogue(given) if isinstance(given, (str, os.PathLike)) else given


def read_catalogue(path: str | os.PathLike[str], *, only: Any = None, artefacts: bool = True) -> Any:
    """Return the components in a file as a frame, components by features.

    The file is a fit, or a table that `bayesnmf.read_counts` reads: with one component in each row, or in each column
    if its rows are mutation types, as catalogues of COSMIC have them (SBS, DBS, ID, CN and SV). COSMIC's file of one
    signature has a column, and so a component, for each genome: ``.filter(like="GRCh38", axis="index")`` takes one.

    Parameters
    ----------
    path : str or path
        File ``.nc`` or ``.zarr`` of a fit, or a table with commas or tabs.
    only : list of names, or Series, optional
        Components to take, in this order, such as those of a tissue; of a Series, as a column of a table by names,
        those whose value is True or above 0.
    artefacts : bool
        Whether to keep signatures that COSMIC takes for artefacts of sequencing: SBS27, 43, 45 to 60 and 95.

    Returns
    -------
    DataFrame (K, m)

    Raises
    ------
    TypeError, ValueError
        A file that is no such table, or a component that it does not have.

    See Also
    --------
    bayesnmf.assign, bayesnmf.fit : Take such a path in place of the frame.

    Examples
    --------
    >>> import bayesnmf
    >>> known = bayesnmf.read_catalogue("COSMIC_v3.4_SBS_GRCh38.txt", artefacts=False)  # doctest: +SKIP
    >>> tissue = ["SBS1", "SBS2", "SBS5", "SBS13", "SBS40"]
    >>> known = bayesnmf.read_catalogue("COSMIC_v3.3.1_SBS_GRCh38.csv", only=tissue)  # doctest: +SKIP
    """
    check_flag(artefacts, "artefacts")
    found = _read_components(path)
    if only is not None:
        found = found.iloc[check_chosen(only, found.index)]
    return found if artefacts else found[[not is_artefact(name) for name in found.index]]


def _read_components(path: str | os.PathLike[str]) -> Any:
    """Return all components in a file as a frame."""
    import pandas as pd

    if Path(path).suffix.lower() in (".nc", ".zarr"):
        from bayesnmf.results.storage import read_fit

        return catalogue_of(read_fit(Path(path)))
    with warnings.catch_warnings():  # components are normalised, and mostly have types in rows
        for expected in ("counts look (normalised|log-normalised|rescaled|transformed)", "they were turned"):
            warnings.filterwarnings("ignore", f"(?s).*{expected}", DataWarning)
        found = read_counts(path)
    names = [str(name) for name in found.row_names]
    own = [not (name.endswith(" sd") and name.removesuffix(" sd") in names) for name in names]  # as `fit` writes them
    return pd.DataFrame(found.matrix.toarray(), names, found.feature_names)[own]


def in_order_of(counts: Counts, given: Any, argument: str = "fixed_components", of: str = "counts") -> Any:
    """Return the values of given components with the features in the order of the counts.

    All features of the counts must be there, since a component would not say how many of their counts are its own.
    Others are left out, with a DataWarning, and components that sum to 1 then do so over the features of the counts.
    """
    found, names = split_labels(catalogue_of(given)), counts.feature_names
    check_features_in_columns(found, names, argument, of)
    check_named_once(found.rows, argument)
    values = _values_in_order(found, names, argument, of)
    warn_of_twins(found.rows, values, argument)
    return values


def _values_in_order(found: Labelled, names: Array, argument: str, of: str) -> Any:
    """Return values with their columns in the order of these names."""
    more = found.columns is not None and len(found.columns) > len(names)
    places = order_of(found.columns, names, Order(argument, "feature", of, more=more))
    values = found.values.to_numpy() if is_frame(found.values) else found.values
    if places is None:
        return values
    whole = np.asarray(values)
    return whole[:, places] if len(places) == whole.shape[1] else _cut(whole, places, found.columns, argument, of)


def warn_of_twins(labels: Array | None, values: Any, argument: str) -> None:
    """Warn of components that are equal but for their scale, between which no count can tell."""
    array = np.asarray(values)
    if array.ndim != 2 or array.dtype.kind not in "iuf" or not np.isfinite(array).all() or (array < 0).any():
        return  # refused later
    _, first, of = np.unique(np.round(rows_to_shares(array, array.sum(axis=1)), 12), axis=0,
                             return_index=True, return_inverse=True)  # fmt: skip
    names = range(len(array)) if labels is None else labels
    if twins := [(names[first[group]], names[k]) for k, group in enumerate(of.ravel()) if first[group] != k]:
        shown = ", ".join(f"{one!s} and {other!s}" for one, other in twins[:LISTED]) + ", …" * (len(twins) > LISTED)
        warn_of_data(
            f"{argument} has equal components, {shown}: counts cannot tell them apart, and what is found of one may be "
            "of the other; leave one out"
        )


def _cut(whole: Array, places: Array, labels: Any, argument: str, of: str) -> Array:
    """Return components at these places, and say what is left out."""
    beyond = [str(label) for label in np.delete(np.asarray(labels, dtype=object), places)]
    sums, cut = whole.sum(axis=1), whole[:, places]
    shares = bool(np.allclose(sums, 1))
    lost = f"; they had up to {1 - cut.sum(axis=1).min():.1%} of a component, which sums to 1 over the others" * shares
    warn_of_data(f"{argument} have features beyond those of the {of}, {len(beyond):,} left out: {listed(beyond)}{lost}")
    return rows_to_shares(cut, cut.sum(axis=1)) if shares else cut
