"""Convert a fit to an ArviZ `DataTree`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import xarray as xr
from scipy.special import gammaln

import bayesnmf
from bayesnmf.checks import check_count, check_flag, check_keywords, check_names, check_positive, check_size
from bayesnmf.data.checks import check_complete
from bayesnmf.data.several import coordinates_of
from bayesnmf.noise.abilities import Noise, distribution_of
from bayesnmf.priors.log_linear import EFFECTS, SHAPES
from bayesnmf.priors.specification import MODELS
from bayesnmf.results.checks import check_distribution, check_fit, check_whole
from bayesnmf.results.draws import (
    LIMIT,
    chains_and_draws,
    drawn_dispersions,
    draws_size,
    is_resampled,
    noises_of_draws,
    restrict_rows,
)
from bayesnmf.results.effects import variables_of_effects
from bayesnmf.results.estimates import Draws, evenly_spaced, take_features
from bayesnmf.results.intervals import for_draws, source_of_intervals
from bayesnmf.results.prior import draw_priors, log_priors
from bayesnmf.results.record import (
    COMPONENT,
    DISPERSION,
    SITE,
    FitRecord,
    effective_loadings,
    factors_of_means,
    trace_of_kept,
)
from bayesnmf.results.replication import replicate, replication_rng, selected_size
from bayesnmf.text import distinct
from bayesnmf.types import Array

FEWER = "choose some with rows= or features=, ask for fewer draws=, or raise limit="
RESAMPLED = "draws are resampled particles of independent runs, not chains: their R-hat and ESS say nothing"
INDEPENDENT = "draws are independent: their R-hat and ESS say nothing about the quality of the approximation"
GIVEN_TOTALS = (
    "row totals are given, so entries are not independent; each is scored as a count with mean total × "
    "loadings × components by itself"
)
STATISTICS = {"num_steps": "n_steps", "accept_prob": "acceptance_rate"}  # NumPyro's names, and ArviZ's
ALL_DRAWS = "of all draws: split R-hat, effective sample sizes by batch means"
ALL_PARTICLES = "means and standard deviations of all draws"
DEFAULT_BYTES, FEWEST = 80e6, 100  # size of draws and what is computed of them, and their number, unasked
ALL = "all"
TAKEN = ("chain", "draw", "row", COMPONENT, "feature", "batch", "loadings", "components", "scale", DISPERSION)
TRIPLETS = "count_row and count_feature are positions, from 0; all other counts are 0"


@dataclass(frozen=True, eq=False, kw_only=True)
class Contents:
    """Contents of a `DataTree`: the keywords of `to_datatree`.

    Attributes
    ----------
    rows, features : iterable of names or None
        Names of the rows and features to include, in this order; all by default.
    log_likelihood : bool
        Whether to add log p(count | draw) of every entry, zeros included, in nats, as `az.loo` needs.
    posterior_predictive : bool
        Whether to add replicated counts of every draw.
    prior, prior_predictive : bool
        Whether to add as many independent draws from the prior as there are of the posterior, and counts drawn around
        their means, as `az.plot_prior_posterior` and `az.plot_ppc_dist` need; those of a dispersion are of the fit's.
    log_prior : bool
        Whether to add the log prior density of every draw, of all rows and features, as `az.psense_summary` needs.
    entries : bool
        Whether counts, log-likelihood and replicates have one dimension `entry` instead of row × feature, with the
        names as coordinates, as `az.plot_ppc_rootogram` and `az.plot_ppc_pit` need.
    seed : int
        Seed of draws from q and of replicated counts.
    limit : float
        Largest size of the draws and of results computed from them, in bytes; larger observed counts become triplets.
    """

    rows: Iterable[Any] | None = None
    features: Iterable[Any] | None = None
    log_likelihood: bool = False
    posterior_predictive: bool = False
    prior: bool = False
    prior_predictive: bool = False
    log_prior: bool = False
    entries: bool = False
    seed: int = 0
    limit: float = LIMIT

    def __post_init__(self) -> None:
        check_count(self.seed, "seed", minimum=0)
        check_positive(self.limit, "limit")
        for name, default in vars(type(self)).items():
            if default is False:
                check_flag(getattr(self, name), name)


def to_datatree(
    fit: FitRecord, draws: int | Literal["all"] | None = None, chains: int | None = None, **contents: Any
) -> xr.DataTree:
    """Convert a fit to an ArviZ `DataTree`.

    Groups: `posterior` (loadings, components, scale and drawn dispersions by chain and draw), `observed_data`,
    `constant_data` with any exposures; `sample_stats` with the log joint `lp` of draws, the statistics of NUTS by
    ArviZ's names, and under smc each draw's run and ancestor; `optimization` with the objective under the other
    methods, and the KKT residual under map; `all_draws` with means, standard deviations and, of chains, R-hat and
    effective sample sizes, if the posterior contains only some of the draws; on request `log_likelihood`,
    `posterior_predictive`, `prior`, `prior_predictive` and `log_prior`. The dimension of components is `k`.

    Parameters
    ----------
    fit : Fit
        Fit to convert. A point estimate without draws becomes one chain of one draw, with the attribute
        `point_estimate`.
    draws, chains : int, optional
        Numbers of draws and chains; "all" for all draws there are. By default these are evenly thinned to about 80 MB,
        but to no less than 100 draws; the attribute `thinned` says so. There are those of gibbs, nuts and smc
        (`resampled_draws`, with no order), and of vi those beside q, if intervals are read from them
        (`Fit.with_intervals`; the attribute `intervals` says so), unless more are asked for than "auto" makes. Else 4 ×
        1000 independent draws from q, with the attribute `independent_draws`. Components that are parameters are the
        same in all draws, with the attribute `point_estimate`; leave them out of R-hat and ESS by `var_names`.
    **contents
        Keywords of `Contents`: rows, features, log_likelihood, posterior_predictive, prior, prior_predictive,
        log_prior, entries, seed, limit.

    Raises
    ------
    TypeError, ValueError
        Not a fit, unknown keywords or names, or more than `limit` bytes of draws.

    Examples
    --------
    >>> import bayesnmf
    >>> fit = bayesnmf.fit([[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]], rank=2, seed=0)
    >>> tree = fit.to_datatree(draws=100, rows=[0, 2])
    >>> dict(tree["posterior"].sizes)
    {'chain': 4, 'draw': 100, 'row': 2, 'k': 2, 'feature': 3}
    """
    check_fit(fit)
    check_keywords(contents, Contents.__dataclass_fields__, "to_datatree")
    asked = Contents(**contents)
    if asked.log_likelihood or asked.posterior_predictive or asked.prior_predictive:
        check_distribution(fit, "log_likelihood and posterior_predictive")
        check_complete(fit.counts, "log_likelihood and posterior_predictive")
    rows = check_names(asked.rows, fit.row_names, "rows")
    features = check_names(asked.features, fit.feature_names, "features")
    most: Any = None if isinstance(draws, str) and draws == ALL else draws
    traced, fit = fit, for_draws(fit, most, chains)
    number = chains_and_draws(fit, chains, most)
    n, m = selected_size(fit, rows, features)
    entries = 8 * n * m * (asked.log_likelihood + asked.posterior_predictive + asked.prior_predictive)
    size = draws_size(fit, (1, 1), (n, m)) + entries
    if asked.prior or asked.prior_predictive:
        size += draws_size(fit, (1, 1), fit.counts.shape)
    number, thinned = _thinned(number, size) if draws is None else (number, {})
    check_size(number[0] * number[1] * size, asked.limit, "the tree of draws", FEWER)
    part = restrict_rows(fit, rows)
    values = part.estimate.take(part, number, asked.seed, features)
    coords = _coordinates(part, number, features)
    groups = {"posterior": _posterior_group(part, values, features), **_trace_group(traced, number)}
    groups |= _groups_of_part(part, values, features, asked, coords)
    groups |= _groups_of_prior(fit, part, values, rows, features, asked)
    tree = _tree(fit, groups, coords, thinned)
    if fit.sites is not None:
        tree = tree.map_over_datasets(partial(_by_sites, sites=fit.sites))
    return tree.map_over_datasets(_by_entry) if asked.entries else tree


def _by_sites(group: xr.Dataset, sites: Mapping[str, str]) -> xr.Dataset:
    """Return a group whose variables have the names that the sites of a user's program have."""
    taken = {*map(str, group.dims), *map(str, group.variables)}
    return group.rename({ours: own for ours, own in sites.items() if ours in group and own not in taken})


def _thinned(number: tuple[int, int], size: int) -> tuple[tuple[int, int], dict[str, Any]]:
    """Return the numbers of chains and draws, of `size` bytes each, to convert unasked, and an attribute on it."""
    chains, held = number
    draws = min(held, max(int(DEFAULT_BYTES // size), FEWEST) // chains or 1)
    return (chains, draws), {} if draws == held else {
        "thinned": f"{draws} of {held} draws of each chain, evenly spaced; draws={ALL!r} converts all"
    }


def _coordinates(part: FitRecord, number: tuple[int, int], features: Array | None) -> dict[Hashable, Any]:
    """Return the names along each dimension, and of several matrices that of each feature."""
    coords: dict[Hashable, Any] = {
        "chain": np.arange(number[0]),
        "draw": np.arange(number[1]),
        "row": _labels(part.row_names),
        "feature": _labels(take_features(part.feature_names, features)),
        COMPONENT: _labels(part.component_labels),
    }
    if (told := coordinates_of(part.counts)) is not None:
        coords |= {"matrix": told[0], "feature_matrix": ("feature", take_features(told[1], features))}
    return coords


def _groups_of_part(
    part: FitRecord, values: Draws, features: Array | None, asked: Contents, coords: dict[Hashable, Array]
) -> dict[str, xr.Dataset]:
    """Return the groups of the chosen rows and features besides the posterior."""
    groups = {} if part.moments is None else {"all_draws": _moments_group(part, features)}
    if asked.log_likelihood:
        groups["log_likelihood"] = _log_likelihood_group(part, values, features)
    if asked.posterior_predictive:
        rng, noise_at = replication_rng(asked.seed), _noises(part, values)
        groups["posterior_predictive"] = _predictive_group(part, values, features, rng, noise_at)
    groups["observed_data"] = _observed_group(part, features, asked.limit, coords)
    return {**groups, **_exposures_group(part, features)}


def _groups_of_prior(
    fit: FitRecord, part: FitRecord, values: Draws, rows: Array | None, features: Array | None, asked: Contents
) -> dict[str, xr.Dataset]:
    """Return the groups about the prior of a fit, whose rows `part` has, and features."""
    groups = {}
    if asked.log_prior:
        check_whole(rows, features)
        densities = {side: (("chain", "draw"), found) for side, found in log_priors(fit, values).items()}
        groups["log_prior"] = xr.Dataset(densities)
    if asked.prior or asked.prior_predictive:
        drawn = draw_priors(fit, (values.chains, values.draws), asked.seed)
        drawn = replace(drawn, components=take_features(drawn.components, features))
        drawn = drawn if rows is None else drawn.rows(rows, drawn.loadings.shape[2:])
        if asked.prior:
            groups["prior"] = _sides_group(drawn)
        if asked.prior_predictive:
            rng = np.random.default_rng([asked.seed, 3])
            groups["prior_predictive"] = _predictive_group(part, drawn, features, rng, lambda at: fit.noise)
    return groups


def _by_entry(group: xr.Dataset) -> xr.Dataset:
    """Return a group with rows and features of the counts in one dimension, with the names of both."""
    if "counts" not in group:
        return group
    return group.stack(entry=("row", "feature")).reset_index("entry")


def _tree(
    fit: FitRecord, groups: dict[str, xr.Dataset], coords: dict[Hashable, Any], thinned: dict[str, Any]
) -> xr.DataTree:
    """Return a tree of groups, with names as coordinates and a description of the fit as attributes."""
    about: dict[str, Any] = {
        "inference_library": "bayesnmf",
        "inference_library_version": bayesnmf.__version__,
        "model": fit.model,
        "method": fit.method,
        **thinned,
    }
    if fit.estimate.kind == "point":
        about["point_estimate"] = 1
    elif fit.estimate.kind == "mean field":
        about |= {"independent_draws": 1, "note": INDEPENDENT}
    elif is_resampled(fit):
        about |= {"resampled_draws": 1, "note": RESAMPLED}
    if fit.by.posterior != "draws" and (source := source_of_intervals(fit)):
        about["intervals"] = source
    for name, group in groups.items():
        own = {dim: names for dim, names in coords.items() if dim in group.dims}
        if "counts" in group:  # not of draws, as `az.summary` fails where an axis has two coordinates
            own |= {name: names for name, names in coords.items() if isinstance(names, tuple)}
        groups[name] = group.assign_coords(own).assign_attrs({**about, **group.attrs})
    tree = xr.DataTree.from_dict({f"/{name}": group for name, group in groups.items()})
    tree.attrs = about
    return tree


def _labels(names: Array) -> Array:
    """Return names as a coordinate for any file format, where `az.summary` finds each entry by its name.

    Numbers and dates that differ stay as they are; other names become texts, which differ.
    """
    if names.dtype.kind in "OTU" or len({*names.tolist()}) < len(names) or (names != names).any():
        return np.array(distinct(names), dtype=object)
    return names


def _sides_group(values: Draws) -> xr.Dataset:
    """Return draws of loadings, components and scale."""
    group: dict[str, Any] = {
        "loadings": (("chain", "draw", "row", COMPONENT), values.loadings),
        "components": (("chain", "draw", COMPONENT, "feature"), values.components),
    }
    if values.scale is not None:
        group["scale"] = (("chain", "draw", "row"), values.scale)
    return xr.Dataset(group)


def _posterior_group(fit: FitRecord, values: Draws, features: Array | None) -> xr.Dataset:
    group: dict[str, Any] = {str(name): each for name, each in _sides_group(values).variables.items()}
    if values.factors is not None:
        group["batch_factors"] = (("chain", "draw", "batch", "feature"), values.factors)
    dispersions = drawn_dispersions(fit, (values.chains, values.draws), features)
    if dispersions is not None:
        group[DISPERSION] = (("chain", "draw", *filter(None, [fit.noise.by])), dispersions)
    group |= variables_of_effects(fit, (values.chains, values.draws)) | _other_sites(fit, (values.chains, values.draws))
    if fit.estimate.kind == "mean field" and fit.estimate.components is None:
        group["components"].attrs["point_estimate"] = 1
    return xr.Dataset(group, None if fit.batch is None else {"batch": _labels(fit.batch.names)})


def _other_sites(fit: FitRecord, number: tuple[int, int]) -> dict[str, Any]:
    """Return draws of other sites by name, with dimensions named as ArviZ names them; "_site" ends a name of ours."""
    drawn = {name.removeprefix(SITE): each for name, each in (fit.statistics or {}).items() if name.startswith(SITE)}
    found = {}
    for name, values in drawn.items():
        chosen = values[: number[0], evenly_spaced(number[1], values.shape[1])]
        own = f"{name}_site" if name in TAKEN else name
        found[own] = (("chain", "draw", *(f"{own}_dim_{axis}" for axis in range(values.ndim - 2))), chosen)
    return found


def _trace_group(fit: FitRecord, number: tuple[int, int]) -> dict[str, xr.Dataset]:
    """Return the log joint of the chosen draws, or the objective and the KKT residual of the iterations."""
    if fit.trace.ndim == 1:
        group = {"objective": ("iteration", np.array(fit.trace))}
        if fit.residuals is not None:
            group["kkt_residual"] = ("iteration", np.array(fit.residuals))
        return {"optimization": xr.Dataset(group)}
    log_joint = trace_of_kept(fit)
    if log_joint.shape != fit.estimate.held:
        return {}
    statistics = {"lp": log_joint, **(fit.statistics or {})}
    spaced = evenly_spaced(number[1], log_joint.shape[1])
    kept = {
        STATISTICS.get(name, name): (("chain", "draw"), values[: number[0], spaced])
        for name, values in statistics.items()
        if name not in (DISPERSION, EFFECTS, SHAPES) and not name.startswith(SITE)
    }
    return {"sample_stats": xr.Dataset(kept)}


def _moments_group(fit: FitRecord, features: Array | None) -> xr.Dataset:
    """Return means, sds and, of chains, R-hat and effective sample sizes of all draws."""
    dims = {"loadings": ("row", COMPONENT), "components": (COMPONENT, "feature"), "scale": ("row",)}
    values = {f"{side}_mean": getattr(fit, side) for side in dims if getattr(fit, side) is not None}
    values |= fit.moments or {}
    group = {}
    for name, value in values.items():
        side = name.split("_")[0]
        group[name] = (dims[side], take_features(value, features) if side == "components" else value)
    return xr.Dataset(group).assign_attrs(note=ALL_PARTICLES if is_resampled(fit) else ALL_DRAWS)


def _observed_group(fit: FitRecord, features: Array | None, limit: float, coords: dict[Hashable, Array]) -> xr.Dataset:
    """Return the counts as a dense matrix, or as triplets of positions and counts if that would be too large."""
    matrix: Any = take_features(fit.counts.matrix, features)
    if fit.counts.is_integer and fit.counts.mask is None:
        matrix = matrix.astype(np.int64)
    if 8 * matrix.shape[0] * matrix.shape[1] <= limit:
        dense = matrix.toarray()
        if fit.counts.mask is not None:
            dense[take_features(fit.counts.mask.hidden(slice(None)), features)] = np.nan
        return xr.Dataset({"counts": (("row", "feature"), dense)})
    check_complete(fit.counts, "a tree of counts as triplets")
    triplets = matrix.tocoo()
    values = {"count_row": triplets.row, "count_feature": triplets.col, "count_value": triplets.data}
    names = {"row": coords["row"], "feature": coords["feature"]}
    group = xr.Dataset({name: ("nonzero", value) for name, value in values.items()}, names)
    return group.assign_attrs(note=TRIPLETS)


def _exposures_group(fit: FitRecord, features: Array | None) -> dict[str, xr.Dataset]:
    """Return the group of exposures, if there are any."""
    given = {"row": fit.counts.row_exposure, "feature": take_features(fit.counts.feature_exposure, features)}
    values = {f"{dim}_exposure": (dim, value) for dim, value in given.items() if value is not None}
    return {"constant_data": xr.Dataset(values)} if values else {}


def _entries(fit: FitRecord, values: Draws, features: Array | None) -> Iterator[tuple[tuple[int, int], Array]]:
    """Yield the position (chain, draw) and the means (n, m) of every draw."""
    loadings = effective_loadings(fit, values.loadings, values.scale, values.components)
    for at in np.ndindex(values.chains, values.draws):
        own = loadings[at], values.components[at], None if values.factors is None else values.factors[at]
        left, right = factors_of_means(fit, *own, features)
        yield (at[0], at[1]), left @ right


def _noises(fit: FitRecord, values: Draws) -> Callable[[tuple[int, int]], Noise]:
    return noises_of_draws(fit, (values.chains, values.draws))


def _log_likelihood_group(fit: FitRecord, values: Draws, features: Array | None) -> xr.Dataset:
    counts = take_features(fit.counts.matrix, features).toarray().astype(np.float64)
    constant = gammaln(counts + 1)
    out, noise_at = np.empty((values.chains, values.draws, *counts.shape)), _noises(fit, values)
    for at, means in _entries(fit, values, features):
        out[at] = distribution_of(noise_at(at)).of_features(features).log_pmf(counts, means, log_factorials=constant)
    group = xr.Dataset({"counts": (("chain", "draw", "row", "feature"), out)})
    return group.assign_attrs(note=GIVEN_TOTALS) if MODELS[fit.model].given_totals else group


def _predictive_group(
    fit: FitRecord,
    values: Draws,
    features: Array | None,
    rng: np.random.Generator,
    noise_at: Callable[[tuple[int, int]], Noise],
) -> xr.Dataset:
    n, m = fit.counts.shape[0], values.components.shape[-1]
    out = np.empty((values.chains, values.draws, n, m), np.int64)
    for at, means in _entries(fit, values, features):
        out[at] = replicate(fit, means, rng, features, noise_at(at))
    return xr.Dataset({"counts": (("chain", "draw", "row", "feature"), out)})
