"""Checks of fits, of simulations that are compared with them, and of topic models."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Set
from typing import Any, NamedTuple

import numpy as np

from bayesnmf.checks import as_numbers, shown
from bayesnmf.data.checks import same_counts
from bayesnmf.data.labels import Order, in_order, is_missing
from bayesnmf.data.several import check_unweighted
from bayesnmf.data.simulation import Simulation
from bayesnmf.data.suspicions import warn_of_data
from bayesnmf.noise.abilities import distribution_of
from bayesnmf.priors.specification import MODELS
from bayesnmf.priors.unknown import unknown_side
from bayesnmf.results.record import FitRecord


def check_components_have_posterior(components: Any) -> None:
    """Refuse to summarise components that are parameters."""
    if components is None:
        raise ValueError(
            "components are parameters here, without a posterior: found priors.components='parameter'; give only "
            "rows=, or give the components a prior"
        )


def check_comparable(fits: Any) -> None:
    """Refuse anything but a mapping of labels to fits of the same counts, of one model and rank."""
    if not isinstance(fits, Mapping) or not all(isinstance(fit, FitRecord) for fit in fits.values()):
        raise TypeError(
            f"fits must map labels to fits, as in {{'vi': one, 'gibbs': other}}: found {found_in(fits)}; "
            "give every fit a label in a dict"
        )
    if not fits:
        raise ValueError("fits must not be empty; give at least one fit, as in {'gibbs': fit}")
    first_label, first = next(iter(fits.items()))
    for label, fit in fits.items():
        for what, ours, theirs in (
            ("model, or loadings of one kind", MODELS[fit.model].loadings, MODELS[first.model].loadings),
            ("rank", fit.rank, first.rank),
            ("shape of the counts", fit.counts.shape, first.counts.shape),
        ):
            if ours != theirs:
                raise ValueError(
                    f"fits must have the same {what}, else they have no entries in common: found {ours!r} in "
                    f"{label!r}, {theirs!r} in {first_label!r}; compare them separately"
                )
        for what in ("row_names", "feature_names"):
            if not np.array_equal(getattr(fit, what), getattr(first, what)):
                raise ValueError(
                    f"fits must be of the same rows and features in the same order: the {what} of {label!r} differ "
                    f"from those of {first_label!r}; fit the same counts"
                )
        if not same_counts(fit.counts, first.counts):
            raise ValueError(
                f"fits must be of the same counts, else their posteriors cannot be compared: the counts of {label!r} "
                f"differ from those of {first_label!r}; fit the same counts"
            )


def check_are_of_counts(own: Any, counts: Any) -> None:
    """Refuse counts that are not those of given fits, whatever these know of them besides."""
    if own.shape != counts.shape or (own.matrix != counts.matrix).nnz:
        raise ValueError(
            f"fits must be of the given counts: found {counts.shape[0]:,} × {counts.shape[1]:,} counts beside fits of "
            f"{own.shape[0]:,} × {own.shape[1]:,}, or others; give fit.counts"
        )


def check_only_fits(**left_out: bool) -> None:
    """Refuse arguments that say how fits are made beside fits that are made, each by whether it was left out."""
    if given := [name for name, left in left_out.items() if not left]:
        raise ValueError(f"fits are compared as they are: found {given[0]} beside them; leave {given[0]} out")


def found_in(fits: Any) -> str:
    """Return a description of what was given instead of a mapping of labels to fits."""
    if isinstance(fits, Mapping):
        return "a mapping of " + ", ".join(sorted({type(fit).__name__ for fit in fits.values()}))
    return f"a {type(fits).__name__}"


def check_can_have(intervals: str, fault: str) -> None:
    """Refuse intervals that are named and cannot be made."""
    if fault and intervals == "bootstrap":
        raise ValueError(f"intervals='bootstrap' needs a whole fit by map, vi or bld, of counts in memory: {fault}")
    if fault:
        needed = "needs a fit by vi, of counts in memory (whole ones to sample), with a posterior of the components"
        raise ValueError(f"intervals={intervals!r} {needed}: {fault}; read the intervals that the fit has")


def check_variation(variation: str, intervals: str) -> None:
    """Refuse the variation between rows for intervals that have no replicates."""
    if variation == "rows" and intervals != "bootstrap":
        raise ValueError(
            f"variation='rows' is of replicates: found intervals={intervals!r}; "
            "use fit.with_intervals('bootstrap', variation='rows')"
        )


def check_fit(fit: Any) -> None:
    """Refuse anything but one fit."""
    if not isinstance(fit, FitRecord):
        raise TypeError(
            f"fit must be a result of bayesnmf.fit: found {type(fit).__name__}; make one with bayesnmf.fit, read one "
            "with bayesnmf.load, or take one out of several, as in fits['gibbs']"
        )


def check_knows_priors(fit: FitRecord, what: str) -> None:
    """Refuse what needs the priors of a fit that was made elsewhere, or of a program of its own."""
    if (unknown := unknown_side(fit.priors)) is not None:
        unknown.check(what)


def check_has_dispersion(fit: FitRecord, ratio: float) -> None:
    """Refuse a dispersion that no degrees of freedom are left for."""
    if np.isnan(ratio):
        (n, m), rank = fit.counts.shape, fit.rank
        raise ValueError(
            f"a dispersion needs more entries than parameters: found {n} × {m} counts, and rank {rank}; lower rank"
        )


def check_has_batches(fit: FitRecord) -> Any:
    """Return the factors of batches of a fit; refuse a fit without."""
    if fit.batch is None:
        raise ValueError("factors of batches need a fit with batches: found one without; fit with batch=labels")
    return fit.batch


def check_distribution(fit: FitRecord, what: str) -> None:
    """Refuse what needs a distribution of the counts for a fit with a noise that is none."""
    check_unweighted(fit.counts, what)
    distribution_of(fit.noise, what)


def check_prior_without_terms(fit: FitRecord, what: str) -> None:
    """Refuse what needs the prior of loadings and components alone for a fit with batches or covariates."""
    terms = {"batch": fit.batch is not None, "covariates": getattr(fit.priors.loadings, "has_effects", False)}
    for name, has in terms.items():
        if has:
            raise ValueError(
                f"{what} needs a fit whose prior is of loadings and components alone: found one with {name}"
            )


def check_chains(fit: FitRecord, kind: str, what: str) -> None:
    """Refuse what needs draws of chains for a fit whose intervals are read from an estimate of another kind."""
    if kind not in ("draws", "sampled") or fit.by.resampled:
        found = f"found a fit by {fit.method}, whose intervals are of kind {kind!r}"
        cure = "fit by method='gibbs'" if fit.method != "vi" else "call fit.with_intervals('sampled') first"
        raise ValueError(f"{what} needs draws of chains: {found}; {cure}")


def check_whole(rows: Any, features: Any) -> None:
    """Refuse the log prior of some rows or features, which the density of the others goes with."""
    if rows is not None or features is not None:
        raise ValueError(
            "log_prior needs all rows and features: found some; leave out rows= and features=, and choose parameters "
            "by var_names= and coords= of ArviZ's functions"
        )


def check_no_scale_beside_missing(fit: FitRecord, what: str) -> None:
    """Refuse loadings whose scale q would have to move together with the rest, as entries are missing."""
    if fit.counts.mask is not None and fit.scale is not None:
        raise ValueError(
            f"{what} of a scaled Dirichlet needs counts without missing entries: found {fit.counts.mask.number:,}; fit "
            "with model='gamma_poisson', or by method='gibbs'"
        )


def check_components_to_compare(rank: int) -> None:
    """Refuse a single component, which has no others."""
    if rank < 2:
        raise ValueError("fit must have at least two components to compare them: found one; raise rank")


class Groups(NamedTuple):
    """Group of each row as text, None without one, (n,); and the names of the groups in order."""

    labels: np.ndarray
    names: list[str]

    @property
    def ungrouped(self) -> int:
        """Number of rows without a group."""
        return int(np.sum(self.labels == None))  # noqa: E711 (entry by entry)


def check_groups(groups: Any, row_names: np.ndarray) -> Groups:
    """Return the groups of the rows (`read_groups`); say how many rows have none, and are left out."""
    if isinstance(groups, Groups):
        return groups
    found = read_groups(groups, row_names)
    warn_of_ungrouped(found.ungrouped, len(row_names))
    return found


def warn_of_ungrouped(number: int, rows: int) -> None:
    """Give a DataWarning about rows without a group."""
    if number:
        warn_of_data(
            f"groups are missing values for {number:,} of {rows:,} rows, which are left out; name their group, such as "
            "'unknown', to keep them"
        )


def read_groups(groups: Any, row_names: np.ndarray) -> Groups:
    """Return the group of each row, and the groups in order; a single group if `groups` is None.

    What has labels, such as a mapping or a Series, is matched by row name (`bayesnmf.data.labels`). Rows with a missing
    value (None, NaN, or "nan" as NumPy writes it into text) have no group.
    """
    n = len(row_names)
    if groups is None:
        return Groups(np.full(n, "", dtype=object), [""])
    if isinstance(groups, str | Set) or not isinstance(groups, Iterable):
        raise TypeError(
            f"groups must be a list, a mapping or a Series: found {shown(groups)}; give one entry for each row"
        )
    categories = getattr(getattr(groups, "cat", groups), "categories", ())  # for a pandas Categorical or its Series
    values = in_order(groups, row_names, Order("groups", of="fit", more=True))
    flat = getattr(values, "ndim", 1) == 1
    entries = list(values) if flat else []
    if len(entries) != n or any(isinstance(each, list | np.ndarray) and np.ndim(each) for each in entries):
        raise ValueError(
            f"groups must have one entry for each of {n} rows: found {len(entries) if flat else shown(values)}; give "
            "one word or number for each"
        )
    labels = np.array([None if is_missing(each) or each == "nan" else str(each) for each in entries], dtype=object)
    present = {*labels} - {None}
    if not present:
        raise ValueError(f"groups must name a group of at least one row: all {n} are missing values; name some")
    return Groups(labels, [name for name in dict.fromkeys([*map(str, categories), *labels]) if name in present])


def check_replicates(
    groups: list[str], members: list[np.ndarray], contrasts: Mapping[str, np.ndarray], population: bool
) -> None:
    """Refuse to compare groups without samples, and to judge the variation between samples by a single one."""
    compared = np.any(list(contrasts.values()), axis=0)
    for name, rows, used in zip(groups, members, compared, strict=True):
        if used and not len(rows):
            raise ValueError(f"groups must have samples in every combination of factors: found none with {name}")
        if not used or not population or len(rows) > 1:
            continue
        if all(map(_is_number, groups)):
            raise ValueError(
                f"groups must be labels that samples share: found {len(groups)} different numbers, of which {name} has "
                "1 sample; cut the numbers into classes, as with pandas.qcut(values, 2, labels=['low', 'high']), or "
                "fit with covariates"
            )
        raise ValueError(
            f"groups must have at least two samples each, which show how samples vary: found 1 in {name!r}; give "
            "population=False, to compare these samples alone"
        )


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


def check_reference(reference: Any, fits: Mapping[str, Any]) -> str:
    """Return the label of a fit with a posterior: `reference`, or by default the first fit by the preferred method."""
    with_posterior = [label for label, fit in fits.items() if fit.estimate.kind != "point"]
    if reference is None and with_posterior:
        return min(with_posterior, key=lambda label: fits[label].by.preference)
    if isinstance(reference, Hashable) and reference in with_posterior:
        return str(reference)
    found = "none" if reference is None else shown(reference)
    listed = ", ".join(map(repr, with_posterior)) or "none of these has one; add a fit by 'gibbs', 'nuts' or 'vi'"
    raise ValueError(f"reference must be the label of a fit with a posterior: found {found}; choose from {listed}")


def check_truth(truth: Any, fit: FitRecord) -> None:
    """Refuse a truth that is not a simulation of the fit's counts, at its rank."""
    if not isinstance(truth, Simulation):
        raise TypeError(f"truth must be a result of bayesnmf.simulate: found {type(truth).__name__}")
    found, wanted = ((one.counts.shape, one.rank) for one in (truth, fit))
    if found != wanted:
        raise ValueError(
            f"truth must have the size and rank of the fits, {wanted}: found {found}; "
            "give the simulation that was fitted"
        )
    if not same_counts(truth.counts, fit.counts):
        raise ValueError(
            "truth must be the simulation of the fitted counts: the counts of this simulation differ from those of the "
            "fits; give the simulation that was fitted"
        )


def check_factors(pair: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return loadings (…, n, K) and components (…, K, m) in float64; refuse arrays that cannot be multiplied."""
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise TypeError(f"a topic model is made from a Fit or (loadings, components): found {type(pair).__name__}")
    loadings, components = (
        _nonnegative(values, name, 2) for values, name in zip(pair, ("loadings", "components"), strict=True)
    )
    if loadings.shape[:-2] != components.shape[:-2] or loadings.shape[-1] != components.shape[-2]:
        raise ValueError(
            "loadings (…, n, K) and components (…, K, m) must have the same draws and the same K: found shapes "
            f"{loadings.shape} and {components.shape}; transpose one of them"
        )
    return loadings, components


def check_topic_model(model: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return proportions, components, totals and sums in float64; refuse arrays of shapes that do not match."""
    names = ("proportions", "components", "totals", "sums")
    if not isinstance(model, tuple | list) or len(model) != len(names):
        raise TypeError(f"topic_model must be a result of to_topic_model, ({', '.join(names)}): found {shown(model)}")
    wanted = zip(model, names, (2, 2, 1, 1), strict=True)
    proportions, components, totals, sums = (_nonnegative(values, name, axes) for values, name, axes in wanted)
    check_factors((proportions, components))
    for name, found, needed in (
        ("totals", totals.shape, proportions.shape[:-1]),
        ("sums", sums.shape, components.shape[:-1]),
    ):
        if found != needed:
            raise ValueError(f"{name} must have shape {needed}: found {found}; take it from to_topic_model")
    return proportions, components, totals, sums


def check_no_draws(draws: Any, chains: Any) -> None:
    """Refuse to draw from plain arrays."""
    if draws is not None or chains is not None:
        raise ValueError("draws and chains need a Fit: arrays have no posterior; give the arrays of draws themselves")


def check_has_reference(reference: Any) -> None:
    """Refuse a fit that is no projection, and a projection from a file or onto one."""
    if reference is None or reference.fit.is_projected:
        kept = "which files and single matrices do not keep: use reference.project(...)"
        raise ValueError(f"the fit must be a projection onto a reference, {kept}")


def _nonnegative(values: Any, name: str, axes: int) -> np.ndarray:
    array = as_numbers(values, name, "an array of numbers")
    if array.ndim < axes:
        raise ValueError(f"{name} must have at least {axes} axes: found {array.ndim}")
    if not np.all(np.isfinite(array)) or np.any(array < 0):
        raise ValueError(f"{name} must be nonnegative and finite; clip it at 0")
    return array
