"""Make a fit of what was fitted elsewhere: draws, a point, or the parameters of a mean field.

Whatever has factorised the same counts gives loadings U (n, K) and components V (K, m) with means U V. Draws of them
say all that a posterior says of these: labels are matched, chains judged, intervals read. Their prior is unknown unless
it is given (`bayesnmf.priors.unknown`), so their trace is the log likelihood, and what asks for the prior is refused.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from bayesnmf.checks import check_choice, check_instance, check_positive, did_you_mean, shown
from bayesnmf.data.counts import Counts
from bayesnmf.data.labels import Order, order_of
from bayesnmf.fitting.chains import fit_of_draws, log_joints
from bayesnmf.fitting.fitted import Fit
from bayesnmf.fitting.job import Job
from bayesnmf.fitting.reading import read_counts, with_told
from bayesnmf.inference.status import Status
from bayesnmf.noise.abilities import Dispersed, Noise, distribution_of
from bayesnmf.options.classes import Elsewhere
from bayesnmf.priors import Distribution, Priors
from bayesnmf.priors.checks import check_family, check_length_of_dispersion, check_noise
from bayesnmf.priors.pair import replace_sides
from bayesnmf.priors.specification import MODELS, check_model, on_simplex
from bayesnmf.priors.unknown import UNKNOWN, Unknown
from bayesnmf.priors.values import attach_scale, separate_scale
from bayesnmf.results.cautions import warn_of
from bayesnmf.results.estimates import Point, VariationalPosterior
from bayesnmf.results.record import SITE, FitRecord
from bayesnmf.types import Array, ModelName, NoiseName

LARGEST = 2**30  # bytes of draws that are kept unasked, as those of gibbs
ON_SIMPLEX = 1e-3  # how far sums of draws may be from 1, in float32
SIDES = ("loadings", "components")
LEAST = 2  # draws of a chain
# What loadings may be of, by the model that their values are as of, and how messages call it.
POSSIBLE = {
    "poisson": ("positive",), "dirichlet_poisson": ("simplex", "positive"), "dirichlet_gamma": ("scaled simplex",),
}  # fmt: skip
NEEDED = {
    "positive": "loadings without a scale", "simplex": "loadings and components that sum to 1",
    "scaled simplex": "loadings with a scale, as scale='sizes' names it",
}  # fmt: skip


def from_draws(
    counts: Any,
    draws: Any,
    *,
    loadings: str = "loadings",
    components: str = "components",
    scale: str = "scale",
    transposed: Collection[str] | None = None,
    model: ModelName | None = None,
    priors: Priors | None = None,
    noise: NoiseName | Noise = "poisson",
    observed: Any = None,
    missing: Any = None,
    row_exposure: Any = None,
    feature_exposure: Any = None,
    row_names: Any = None,
    feature_names: Any = None,
    layer: str | None = None,
    feature_labels: str | None = None,
    limit: float = LARGEST,
) -> Fit:
    """Make a fit of draws of loadings and components that come from elsewhere, as from PyMC, Stan or NumPyro.

    It has all that its draws say: labels matched across chains, R-hat, markers, checks, figures, reports, topic models,
    trees of ArviZ, files, and a place in `compare`. What asks for the prior is refused, unless `priors` are given.

    Parameters
    ----------
    counts : array, SciPy sparse matrix, pandas DataFrame, AnnData, nested list, path or Blocks, (n, m)
        The counts that were factorised, as for `fit`.
    draws : MCMC, DataTree, InferenceData, mapping of names to arrays, or pair of loadings and components
        Arrays (chains, draws, n, K) and (chains, draws, K, m), or without chains, which is one chain. Matrices (n, K)
        and (K, m) are a point; a `Gamma` or `Dirichlet` with parameters of this size, a mean field.
    loadings, components : str
        Names of these sites in `draws`.
    scale : str
        Name of a site (n,) that multiplies loadings which are proportions, if there is one.
    transposed : collection of "loadings" and "components", optional
        Which of them are (K, n) or (m, K). By default their shapes say so, unless a side is square.
    model : str, optional
        Model of the loadings, as for `fit`; by default "dirichlet_gamma" with a scale, "dirichlet_poisson" if loadings
        and components are both proportions, and "poisson" otherwise.
    priors : Priors, optional
        Priors of both sides, where they are known and of this library: then `Fit.transform`, `Fit.program` and bounds
        of a mean field work too.
    noise : {"poisson"}, NegativeBinomial or ZeroInflated
        Noise of the counts, with its dispersion.
    observed, missing : optional
        Entries that were, or were not, observed, as for `fit`.
    row_exposure, feature_exposure : array, Series or mapping, optional
        Exposures, as for `fit`.
    row_names, feature_names : array of names, optional
        Names of counts that have none, as for `fit`.
    layer, feature_labels : str, optional
        Of AnnData, as for `fit`.
    limit : float
        Bytes of draws to keep, by default 1 GiB. Larger ones are kept in float32, and thinned if that is not enough;
        the status of the fit says so.

    Returns
    -------
    Fit
        Its method is "draws from elsewhere", "mean field from elsewhere" or "point from elsewhere". Other sites of no
        more numbers than both sides are in its `statistics` and trees.

    Raises
    ------
    TypeError, ValueError
        No such site, draws of other counts, negative numbers or NaN, a single draw, shapes that could be either way.

    See Also
    --------
    fit : which runs programs of NumPyro, too.
    compare : puts fits side by side.
    from_topic_model : a point from proportions.

    Examples
    --------
    >>> import bayesnmf
    >>> import numpy as np
    >>> counts, rng = [[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]], np.random.default_rng(0)
    >>> theta, beta = rng.gamma(2.0, size=(4, 100, 4, 2)), rng.dirichlet(np.ones(3), (4, 100, 2))
    >>> fit = bayesnmf.from_draws(counts, {"theta": theta, "beta": beta}, loadings="theta", components="beta")
    >>> fit.method, fit.components.shape
    ('draws from elsewhere', (2, 3))
    """
    started = time.perf_counter()
    check_positive(limit, "limit")
    data, entries = read_counts(counts, None, None, observed, missing, layer, feature_labels, lambda *_: None)
    data = with_told(data, entries, row_names, feature_names, row_exposure, feature_exposure)
    names, sites = {"loadings": loadings, "components": components}, read_sites(draws)
    sides = [_site_of(sites, side, name) for side, name in names.items()]
    if any(isinstance(each.values, Distribution) for each in sides):
        given = _mean_field(sides, data.shape)
    else:
        found = sites.get(scale) if scale not in names.values() else None
        given = _values(sides, data, _turned(sides, data.shape, transposed), found, limit)
    model, priors = _stated(given, model, priors, data)
    job = Job(data, model, given.rank, f"{given.kind} from elsewhere", 0, Elsewhere(priors=priors), lambda *_: None,
              _known_noise(noise, data), started)  # fmt: skip
    rest = {name: site for name, site in sites.items() if name not in {*names.values(), scale}}
    others = _others(rest, given, np.ndim(sides[0].values) == 3) if given.kind == "draws" else {}
    record = replace(_RUNNERS[given.kind](job, given, others), sites=None if names == dict.fromkeys(names) else names)
    return warn_of(Fit.of(record), stacklevel=3)


class Site(NamedTuple):
    """A site of draws: its name, its values, and the labels of its last two axes, None for an axis without."""

    name: str
    values: Any
    labels: tuple[Array | None, Array | None] = (None, None)


class Given(NamedTuple):
    """What came from elsewhere: draws (chains, draws, …) or a point of both sides, or the q of both.

    `thinned` says what was left out of the draws; `every` is how many of them make one that is kept.
    """

    kind: str
    loadings: Any
    components: Any
    scale: Any = None
    every: int = 1
    thinned: str = ""

    @property
    def rank(self) -> int:
        """Number of components."""
        return int(separate_scale(self.point)[0].shape[-1])

    @property
    def point(self) -> Any:
        """Loadings, with their scale: of one draw, the point, or the mean of q."""
        if self.kind == "mean field":
            return self.loadings.mean()
        at = (0, 0) if self.kind == "draws" else ...
        return attach_scale(self.loadings[at], None if self.scale is None else self.scale[at])


# --- forms of draws --------------------------------------------------------------------------------------


def read_sites(draws: Any) -> dict[str, Site]:
    """Return the sites of draws by name: of an MCMC, a tree, a mapping, or a pair of loadings and components."""
    if callable(getattr(draws, "get_samples", None)):
        try:
            draws = draws.get_samples(group_by_chain=True)
        except (AssertionError, TypeError) as error:
            raise ValueError("draws must be of an MCMC that has run: found one that has not; run it") from error
    group = getattr(draws, "posterior", draws)
    if hasattr(group, "data_vars"):
        if not group.data_vars:
            raise ValueError("draws must have a group posterior, with variables: found none; give the tree of a fit")
        return {str(name): _of_variable(str(name), each) for name, each in group.data_vars.items()}
    if isinstance(draws, Mapping):
        return {str(name): Site(str(name), values) for name, values in draws.items()}
    if isinstance(draws, tuple | list) and len(draws) == 2:
        return {side: Site(side, values) for side, values in zip(SIDES, draws, strict=True)}
    raise TypeError(
        f"draws must be a mapping of names to arrays, NumPyro's MCMC, a tree of ArviZ, or a pair: found {shown(draws)}"
        "; give {'loadings': theta, 'components': beta}, each (chains, draws, …)"
    )


def _of_variable(name: str, variable: Any) -> Site:
    """Return a variable of xarray with chains and draws first."""
    first = [dim for dim in ("chain", "draw") if dim in variable.dims]
    variable = variable.transpose(*first, ...)
    labels = [np.asarray(variable.indexes[dim]) if dim in variable.indexes else None for dim in variable.dims[-2:]]
    return Site(name, variable.data, tuple(labels) if len(labels) == 2 else (None, None))  # type: ignore[arg-type]


def _site_of(sites: Mapping[str, Site], side: str, name: str) -> Site:
    """Return the site of a side; refuse draws without it."""
    if name not in sites:
        near = did_you_mean(name, sites)
        example = "loadings='theta', components='beta'"
        raise ValueError(
            f"draws must have a site {name!r}, the {side}: found {', '.join(map(repr, sites)) or 'none'}{near}; give "
            f"their names, as in bayesnmf.from_draws(counts, draws, {example})"
        )
    return sites[name]


def _numbers(site: Site) -> Array:
    """Return the values of a site; refuse what is no number, not finite, or negative."""
    values = np.asarray(site.values)
    if values.dtype.kind not in "iuf":
        raise TypeError(f"{site.name} must be an array of numbers: found {shown(site.values)}; give its draws")
    for wrong, rule, cure in (
        (~np.isfinite(values), "finite", "leave out draws that failed, or give a program in float64"),
        (values < 0, "nonnegative", "give the factor after its transformation, as np.exp(draws)"),
    ):
        if wrong.any():
            place = tuple(map(int, np.argwhere(wrong)[0]))
            raise ValueError(f"{site.name} must be {rule}: found {values[place]} at {place}; {cure}")
    return values


# --- sides -----------------------------------------------------------------------------------------------


def _turned(sides: list[Site], size: tuple[int, int], transposed: Collection[str] | None) -> list[bool]:
    """Return which sides are transposed, as they say or as is told; refuse shapes that are of no or of both kinds."""
    shapes = [np.shape(each.values)[-2:] for each in sides]
    if any(len(shape) < 2 for shape in shapes):
        raise ValueError(
            f"loadings and components must be matrices of each draw: found {_shapes(sides)}; give (chains, draws, n, K)"
            " and (chains, draws, K, m)"
        )
    if transposed is not None:
        for side in (asked := [transposed] if isinstance(transposed, str) else list(transposed)):
            check_choice(side, "transposed", SIDES)
    told = [(False, True) if transposed is None else (side in asked,) for side in SIDES]
    possible = []
    for turned in product(*told):
        (rows, rank), (same, features) = (
            shape[::-1] if turn else shape for shape, turn in zip(shapes, turned, strict=True)
        )
        if (rows, features) == size and rank == same:
            possible.append(list(turned))
    if not possible:
        n, m = size
        raise ValueError(
            f"loadings must be (…, {n}, K) and components (…, K, {m}), perhaps transposed, for {n} × {m} counts: "
            f"found {_shapes(sides)}; give draws of a fit of these counts"
        )
    if len(possible) > 1:
        raise ValueError(
            f"transposed must be given, as shapes do not say it: found {_shapes(sides)} of {size[0]} × {size[1]} "
            "counts; give transposed=() for loadings (n, K) and components (K, m), else which of both is transposed, "
            "as transposed=['components']"
        )
    return possible[0]


def _shapes(sides: list[Site]) -> str:
    return " and ".join(f"{each.name} {np.shape(each.values)}" for each in sides)


def _values(sides: list[Site], data: Counts, turned: list[bool], scale: Site | None, limit: float) -> Given:
    """Return draws or a point of both sides, of the rows and features of the counts, in their order."""
    arrays = [_numbers(each) for each in sides]
    if len({each.shape[:-2] for each in arrays}) > 1 or arrays[0].ndim > 4:
        raise ValueError(
            f"loadings and components must have the same chains and draws: found {_shapes(sides)}; give both as "
            "(chains, draws, …)"
        )
    arrays += [] if scale is None else [_scale(scale, arrays[0].shape[:-2], data.shape[0])]
    kind, every, dtype, thinned = "point", 1, "float64", ""
    if arrays[0].ndim > 2:
        arrays = [each[None] if arrays[0].ndim == 3 else each for each in arrays]
        _check_draws(arrays[0].shape[:2], sides)
        kind, (every, dtype, thinned) = "draws", _kept(arrays, limit)
        arrays = [each[:, ::every] for each in arrays]
    for number, (names, side) in enumerate(((data.row_names, "row"), (data.feature_names, "feature"))):
        values, labels = arrays[number], sides[number].labels
        if turned[number]:
            values, labels = values.swapaxes(-1, -2), labels[::-1]
        places = order_of(labels[number], names, Order(f"the labels of {sides[number].name}", side))
        arrays[number] = values if places is None else np.take(values, places, axis=number - 2)
    ready = [np.ascontiguousarray(each, dtype) for each in arrays]
    return Given(kind, ready[0], ready[1], ready[2] if len(ready) > 2 else None, every, thinned)


def _scale(site: Site, draws: tuple[int, ...], n: int) -> Array:
    """Return a scale with a number for each row."""
    values = _numbers(site)
    values = values[..., 0] if values.shape == (*draws, n, 1) else values
    if values.shape != (*draws, n):
        raise ValueError(
            f"{site.name} must have a number for each row, {(*draws, n)}: found {values.shape}; give scale='' to leave "
            "it out"
        )
    return values


def _check_draws(number: tuple[int, int], sides: list[Site]) -> None:
    """Refuse chains of a single draw."""
    if number[1] < LEAST:
        cure = "draws.swapaxes(0, 1), if they are draws of one chain" if number[0] > 1 else "a point as two matrices"
        raise ValueError(
            f"draws must be {LEAST} or more of each chain: found {number[0]} × {number[1]} in {_shapes(sides)}; give "
            f"more, or {cure}"
        )


def _kept(arrays: list[Array], limit: float) -> tuple[int, str, str]:
    """Return how many draws make one that is kept, its type, and what to say of it."""
    chains, draws = arrays[0].shape[:2]
    size = 8 * sum(each.size for each in arrays)
    if size <= limit:
        return 1, "float64", ""
    every = min(-(-size // (2 * max(int(limit), 1))), draws // LEAST)
    thinned = f", every {every}th" if every > 1 else ""
    return every, "float32", f"kept in float32{thinned} of {chains} × {draws:,}, as all take {size / 2**30:.2g} GiB; "


def _mean_field(sides: list[Site], size: tuple[int, int]) -> Given:
    """Return the q of both sides, with parameters of full size."""
    if not all(isinstance(each.values, Distribution) for each in sides):
        raise TypeError(
            "loadings and components must be both distributions, or both arrays: found "
            f"{' and '.join(type(each.values).__name__ for each in sides)}; give bayesnmf.Gamma(shape, rate) or "
            "bayesnmf.Dirichlet(concentration) for both"
        )
    shapes = [np.broadcast_shapes(*(np.shape(value) for value in each.values.parameters.values())) for each in sides]
    (n, m), rank = size, shapes[0][-1] if len(shapes[0]) == 2 else -1
    if shapes != [(n, rank), (rank, m)]:
        raise ValueError(
            f"parameters of loadings must be ({n}, K) and of components (K, {m}): found {shapes[0]} and {shapes[1]}; "
            "transpose them, or give one number for each entry"
        )
    q = [each.values.mapped(lambda value: np.asarray(value, np.float64)) for each in sides]
    return Given("mean field", q[0].broadcast((n, rank)), q[1].broadcast((rank, m)))


def _others(sites: Mapping[str, Site], given: Given, alone: bool) -> dict[str, Array]:
    """Return draws of other sites as statistics: numbers, no more than both sides have; `alone` is one chain."""
    most, found = (given.loadings.size + given.components.size) * given.every, {}
    for name, site in sites.items():
        values = np.asarray(site.values)
        values = (values[None] if alone else values)[:, :: given.every] if values.ndim > 1 - alone else values
        if values.dtype.kind in "iufb" and values.shape[:2] == given.loadings.shape[:2] and values.size <= most:
            found[f"{SITE}{name}"] = values
    return found


# --- fits ------------------------------------------------------------------------------------------------


def model_of(value: Any, components: Array) -> str:
    """Return the model whose loadings and components have such values."""
    loadings, scale = separate_scale(value)
    if scale is not None:
        return "dirichlet_gamma"
    return "dirichlet_poisson" if _sum_to_one(loadings) and _sum_to_one(components) else "poisson"


def unknown_priors(model: str, components: Array, told: str = UNKNOWN) -> Priors:
    """Return the priors of factors of which these are known values."""
    support: Any = "simplex" if _sum_to_one(components) else "positive"
    return replace_sides(Priors(), loadings=Unknown(MODELS[model].loadings, told), components=Unknown(support, told))


def _sum_to_one(values: Array) -> bool:
    return bool(np.allclose(values.sum(axis=-1), 1, rtol=0, atol=ON_SIMPLEX))


def _stated(given: Given, model: Any, priors: Priors | None, data: Counts) -> tuple[str, Priors]:
    """Return the model and the priors, as given or as values say; refuse those that these values cannot have."""
    whole = given.kind != "mean field"
    value = attach_scale(given.loadings, given.scale) if whole else given.point
    components = given.components if whole else given.components.mean()
    found = model_of(value, components)
    if model is None:
        model = "gamma_poisson" if found == "poisson" and priors is not None else found
    spec, unit = MODELS[check_model(model)], _sum_to_one(components)
    if spec.loadings not in POSSIBLE[found]:
        raise ValueError(
            f"model={model!r} needs {NEEDED[spec.loadings]}: found draws as of {found!r}; leave model out, or give "
            "what it needs"
        )
    if not unit and "positive" not in spec.components:
        raise ValueError(f"model={model!r} needs components that sum to 1: found others; leave model out")
    if priors is None:
        return model, unknown_priors(model, components)
    check_instance(priors, Priors, "priors")
    for side, size in (("loadings", (data.shape[0], given.rank)), ("components", (given.rank, data.shape[1]))):
        if getattr(priors, side) is None:
            raise ValueError(
                f"priors must have both sides: found no {side}; give bayesnmf.Priors(loadings, components)"
            )
        check_family(model, side, getattr(priors, side), size)
    if on_simplex(priors.components) and not unit:
        raise ValueError(
            f"priors.components={priors.components!r} needs components that sum to 1: found others; give the prior "
            "with which they were drawn"
        )
    return model, priors


def _known_noise(noise: Any, data: Counts) -> Noise:
    """Return the noise of the counts; refuse one whose dispersion is not given."""
    noise = check_noise(noise)
    distribution_of(noise, "draws from elsewhere")
    if isinstance(noise, Dispersed) and not noise.known:
        raise ValueError(
            f"noise={noise.word!r} of draws from elsewhere needs its dispersion: found none; give "
            "bayesnmf.NegativeBinomial('quadratic', 0.5), or the mean of its draws"
        )
    check_length_of_dispersion(noise, data.shape)
    return noise


def _log_joints(job: Job, value: Any, components: Array) -> Array:
    return log_joints(job.counts, job.options.priors, value, components, distribution_of(job.noise))


def _fit_of_draws(job: Job, given: Given, others: dict[str, Array]) -> FitRecord:
    value = attach_scale(given.loadings, given.scale)
    log_joint = _log_joints(job, value, given.components)
    found = fit_of_draws(job, [value, given.components], log_joint, {}, False, others or None)
    alone = "one chain, whose halves are compared; " if len(log_joint) == 1 else ""
    return replace(found, status=found.status._replace(reason=f"{given.thinned}{alone}{found.status.reason}"))


def _fit_of_point(job: Job, given: Given, others: dict[str, Array]) -> FitRecord:
    loadings, scale = separate_scale(given.point)
    components: Any = given.components
    estimate: Point | VariationalPosterior = Point()
    if given.kind == "mean field":
        components, estimate = components.mean(), VariationalPosterior(given.loadings, given.components)
    lifted = attach_scale(loadings[None, None], None if scale is None else scale[None, None])
    trace = _log_joints(job, lifted, components[None, None])[0]
    status = Status(True, "whether it is an optimum was not asked", 0)
    return job.record(loadings, components, scale, trace=trace, status=status, estimate=estimate)


_RUNNERS = {"draws": _fit_of_draws, "mean field": _fit_of_point, "point": _fit_of_point}
