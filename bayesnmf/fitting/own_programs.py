"""Run a user's NumPyro program as it stands, by NUTS or SVI, and return the fit of its factors.

A program that no closed form fits, because of a prior that is not conjugate, of hyperparameters with priors or of
factors that are functions of other sites, still has loadings U (n, K) and components V (K, m) whose product is the mean
of the counts. They are sites, sampled or deterministic: those whose product, times exposures that are always the same,
is the mean at draws from the prior. Chains start from a closed-form fit if both are sampled. What is deterministic, and
the log joint, is computed from the draws of the sampler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.infer import init_to_value
from numpyro.infer.autoguide import AutoNormal
from numpyro.infer.util import log_density

from bayesnmf.data.counts import Counts
from bayesnmf.fitting.chains import closed_form_fit, fit_of_draws, matched_draws, means_of_draws
from bayesnmf.fitting.elsewhere import SIDES, model_of, unknown_priors
from bayesnmf.fitting.job import Job, resolve_priors
from bayesnmf.fitting.numpyro_bridge import move_inside
from bayesnmf.fitting.nuts_and_svi import diagnostics_of, svi_status
from bayesnmf.fitting.recognition import (
    POINTS,
    Evaluated,
    Traced,
    check_takes_all,
    equal,
    exposures_of,
    jax_in_float64,
    noise_of,
    traced_of,
    unfit,
)
from bayesnmf.inference.sampling.nuts_and_svi import run_nuts, run_svi, starts_by
from bayesnmf.noise.abilities import Noise
from bayesnmf.priors import Priors
from bayesnmf.priors.unknown import OF_PROGRAM
from bayesnmf.priors.values import attach_scale, separate_scale
from bayesnmf.results.record import DISPERSION, SITE, FitRecord
from bayesnmf.types import Array

Sites = dict[str, Array]
DRAWS_OF_GUIDE = 1000
ALIKE = 50  # draws of the prior, whose median sums of components say where a start is to be


class Roles(NamedTuple):
    """Sites of a program that are its factors, whether they are transposed, and exposures (n, m) of the entries."""

    names: dict[str, str]
    turned: tuple[bool, bool]
    exposure: Array

    def value(self, sites: Mapping[str, Any]) -> Any:
        """Return loadings (…, n, K), with their scale if they have one."""
        loadings = sites[self.names["loadings"]]
        loadings = loadings.swapaxes(-1, -2) if self.turned[0] else loadings
        if "scale" not in self.names:
            return loadings
        return attach_scale(loadings, sites[self.names["scale"]].reshape(loadings.shape[:-1]))

    def components(self, sites: Mapping[str, Any]) -> Any:
        """Return components (…, K, m)."""
        values = sites[self.names["components"]]
        return values.swapaxes(-1, -2) if self.turned[1] else values

    def product(self, sites: Mapping[str, Any]) -> Any:
        """Return the product of both, (n, m)."""
        loadings, scale = separate_scale(self.value(sites))
        return (loadings if scale is None else loadings * scale[:, None]) @ self.components(sites)


@dataclass(frozen=True, eq=False)
class OwnProgram:
    """A program as it stands: what a fit of it is a fit of, and which sites are its factors.

    Attributes
    ----------
    traced : Traced
        The program and its counts.
    roles : Roles
        Its factors.
    model, rank, priors, noise, row_exposure, feature_exposure, observed
        As of `bayesnmf.fitting.recognition.Recognised`; priors are unknown.
    seen : str
        Site that observes the counts.
    drawn : str or None
        Parameter of the distribution of the counts that the dispersion of the noise is read from, where it is drawn.
    """

    traced: Traced
    roles: Roles
    model: str
    rank: int
    priors: Priors
    noise: Noise
    row_exposure: Array | None
    feature_exposure: Array | None
    observed: Array | None
    seen: str
    drawn: str | None

    @property
    def names(self) -> dict[str, str]:
        """Names of the sites of both factors, and of their scale if there is one."""
        return self.roles.names

    def run(self, job: Job, kept: Any) -> FitRecord:
        """Run the program by the method of a job; refuse a folder, which could not say of which program it is."""
        if kept is not None:
            raise ValueError("checkpoint needs a model of this library: found a program as it stands; leave it out")
        with jax.enable_x64(job.options.dtype == "float64"):
            return RUNS[job.method](job, self)

    def bound(self) -> Callable[[], Any]:
        """Return the program of its counts, as a function without arguments."""
        counts = self.traced.counts

        def model() -> Any:
            with handlers.seed(rng_seed=0):
                return self.traced.program(jnp.asarray(counts))

        return model


# --- which sites are the factors -------------------------------------------------------------------------


def as_it_stands(
    program: Callable[..., Any], counts: Counts, method: str, named: Mapping[str, str] | None, fault: ValueError
) -> OwnProgram:
    """Return a program that no closed form fits, by a fault; refuse it for methods that do not run it as it stands."""
    with jax_in_float64():
        if method in RUNS:
            return own_program(traced_of(program, counts), named)
        try:
            own_program(traced_of(program, counts), named)
        except ValueError:
            raise fault from None
    raise ValueError(f"{fault}; or method='nuts' or 'svi', which can fit this program as it stands") from fault


def own_program(traced: Traced, named: Mapping[str, str] | None) -> OwnProgram:
    """Return a program as it stands; refuse one whose mean is the product of no two sites, or of several pairs."""
    points = [traced.sites({}, seed) for seed in range(POINTS)]
    found = [traced.at(sites, [], _observed(traced, sites)) for sites in points]
    if not all(np.array_equal(each.mask, found[0].mask) for each in found):
        raise unfit("which entries are masked depends on the factors", "mask the same entries always")
    values = [_matrices(sites) for sites in points]
    roles = _chosen(list(_possible(values, [each.mean for each in found], named)), named)
    value, components = ([read(each) for each in values] for read in (roles.value, roles.components))
    model = model_of(value[0], components[0])
    rows, features = exposures_of(roles.exposure)
    noise, drawn = _noise(found)
    return OwnProgram(
        traced,
        roles,
        model,
        components[0].shape[0],
        unknown_priors(model, components[0], OF_PROGRAM),
        noise,
        None if model == "dirichlet_poisson" else rows,
        features,
        None if found[0].mask.all() else found[0].mask,
        _observed(traced, points[0]),
        drawn,
    )


def _noise(found: list[Evaluated]) -> tuple[Noise, str | None]:
    """Return the noise of the counts, and the parameter that it is read from where its dispersion is drawn."""
    try:
        return noise_of(found), None
    except ValueError:
        for word in ("gate", "concentration", "rate"):
            try:
                each = [noise_of([at._replace(parameters={word: at.parameters[word]})]) for at in found]
            except (KeyError, ValueError):
                continue
            return each[0], word
        raise


def _dispersion(own: OwnProgram, seen: dict[str, Any]) -> Any:
    """Return the dispersion, of all entries or of each row or feature, where the site of the counts is this one."""
    fn: Any = seen["fn"]
    while not hasattr(fn, str(own.drawn)):
        fn = fn.base_dist
    values = jnp.broadcast_to(getattr(fn, str(own.drawn)), jnp.shape(seen["value"]))
    values = values if values.shape == own.traced.counts.shape else values.T
    by = own.noise.by
    values = values[:, 0] if by == "row" else values[0] if by == "feature" else values[0, 0]
    return values if own.drawn == "gate" else 1 / values


def _observed(traced: Traced, sites: Mapping[str, Any]) -> str:
    """Return the name of the site that observes the counts."""
    seen = []
    for name, site in sites.items():
        check_takes_all(name, site)
        if site["type"] == "sample" and site["is_observed"] and traced.observes(np.asarray(site["value"]))[0]:
            seen.append(name)
    if len(seen) != 1:
        raise unfit(f"{len(seen)} of its sites observe the counts", "observe the argument of the program once")
    return seen[0]


def _matrices(sites: Mapping[str, Any]) -> Sites:
    """Return the values of sites that may be factors or scales."""
    kinds = ("sample", "deterministic", "param")
    return {
        name: np.asarray(site["value"], np.float64)
        for name, site in sites.items()
        if site["type"] in kinds and not site.get("is_observed") and np.ndim(site["value"]) in (1, 2)
    }


def _possible(values: list[Sites], means: list[Array], named: Mapping[str, str] | None) -> Iterator[Roles]:
    """Yield factors whose product, times exposures, is the mean of the counts wherever it was evaluated."""
    n, m = means[0].shape
    factors = [name for name, each in values[0].items() if each.ndim == 2]
    scales = [name for name, each in values[0].items() if each.shape in ((n,), (n, 1))]
    for one, two, scale in product(factors, factors, [None, *scales]):
        names = {"loadings": one, "components": two} | ({} if scale is None else {"scale": scale})
        asked = all(names.get(side) == name for side, name in (named or {}).items())
        positive = min(each[name].min() for each in values for name in (one, two)) >= 0
        if not (asked and positive and len({one, two, scale}) == 3):
            continue
        for turned in ((False, False), (False, True), (True, False), (True, True)):
            roles = Roles(names, turned, np.empty(0))
            left, right = (
                values[0][name].T.shape if turn else values[0][name].shape
                for name, turn in zip((one, two), turned, strict=True)
            )
            if (left[0], right[1]) != (n, m) or left[1] != right[0]:
                continue
            if scale is not None and not equal(values[0][one].sum(axis=0 if turned[0] else 1), 1.0):
                continue  # only proportions have a scale of their own
            exposure = _exposure([roles.product(each) for each in values], means)
            if exposure is not None:
                yield roles._replace(exposure=exposure)


def _exposure(products: list[Array], means: list[Array]) -> Array | None:
    """Return exposures that are always the same, r cᵀ, of entries whose means are these products; None without any."""
    if min(each.min() for each in products) <= 0:
        return None
    ratios = [mean / each for mean, each in zip(means, products, strict=True)]
    first = ratios[0]
    same = all(equal(each, first) for each in ratios) and first.min() > 0
    return first if same and equal(first, first[:, :1] * (first[:1] / first[0, 0])) else None


def _chosen(possible: list[Roles], named: Mapping[str, str] | None) -> Roles:
    """Return the only factors; of several, those by the names "loadings" and "components"."""
    if not possible:
        asked = "" if named is None else f" {' and '.join(map(repr, named.values()))}"
        raise unfit(
            f"the mean of the counts is not the product of two sites{asked}, times exposures",
            "name what it is a product of in the program: numpyro.deterministic('loadings', …) and ('components', …)",
        )
    ours = [
        each for each in possible if {*each.names.items()} >= {("loadings", "loadings"), ("components", "components")}
    ]
    possible = ours or possible
    if len(possible) > 1:
        pairs = [f"{each.names['loadings']!r} and {each.names['components']!r}" for each in possible]
        raise unfit(
            f"the mean of the counts is the product of {', and of '.join(dict.fromkeys(pairs))}",
            f"say which are the factors, as bayesnmf.fit(counts, program, sites={possible[0].names})",
        )
    return possible[0]


# --- runs ------------------------------------------------------------------------------------------------


def _by_nuts(job: Job, own: OwnProgram) -> FitRecord:
    model, options = own.bound(), job.options
    values = [{}] * options.chains if options.init_strategy else _starts(job, own, options.chains)
    run = run_nuts(
        model,
        {},
        starts_by(options.init_strategy, values, model, {}, job.seed),
        job.seed,
        options,
        lambda done, total: job.report("nuts of a program", done, total, np.nan),
    )
    sites, log_joint = _all_sites(own, model, run.draws)
    drawn = [own.roles.value(sites), own.roles.components(sites)]
    statistics = {**run.statistics, **_others(own, sites)}
    found = fit_of_draws(job, drawn, log_joint, diagnostics_of(run), run.interrupted, statistics)
    return _with_dispersions(found, sites)


def _by_svi(job: Job, own: OwnProgram) -> FitRecord:
    model, options = own.bound(), job.options
    if options.bound != "marginal":
        raise unfit("bound='augmented' needs the allocations of a model of this library", "leave bound out")
    guide = AutoNormal(model, init_loc_fn=init_to_value(values=_starts(job, own, 1)[0]))
    handlers.seed(guide, job.seed)()  # outside of compiled code, where it looks at the program
    run = run_svi(
        (model, guide),
        {},
        None,
        job.seed,
        options,
        lambda done, value: job.report("svi of a program", done, options.max_iter, value),
    )
    parameters = {name: jnp.asarray(value) for name, value in run.parameters.items()}
    drawn = guide.sample_posterior(jax.random.key(job.seed), parameters, sample_shape=(DRAWS_OF_GUIDE,))
    sites, _ = _all_sites(own, model, {name: np.asarray(each)[None] for name, each in drawn.items()})
    given = own.roles.value(sites), own.roles.components(sites)
    posterior, switching, statistics = matched_draws(job, *given, _others(own, sites) or None)
    found = job.record(
        means_of_draws(posterior.loadings),
        means_of_draws(posterior.components),
        None if posterior.scale is None else means_of_draws(posterior.scale),
        trace=run.bounds,
        status=svi_status(run.bounds, run.interrupted, options.max_iter),
        diagnostics=switching,
        statistics=statistics,
        estimate=posterior,
    )
    return _with_dispersions(found, sites)


def _with_dispersions(fit: FitRecord, sites: Sites) -> FitRecord:
    """Return a fit with drawn dispersions, and with noise of their means, if there are any."""
    if DISPERSION not in sites:
        return fit
    noise: Any = fit.noise
    mean = means_of_draws(sites[DISPERSION])
    statistics = {**(fit.statistics or {}), DISPERSION: sites[DISPERSION]}
    return replace(fit, noise=noise.with_dispersion(mean if mean.ndim else float(mean)), statistics=statistics)


def _starts(job: Job, own: OwnProgram, number: int) -> list[Sites]:
    """Return values of the factors to start from: draws of a closed-form fit, of the size that the program gives them.

    Those of factors that are computed cannot be given, and start="random" gives none.
    """
    sampled = own.traced.sites({}, 0)
    factors = [own.names[side] for side in SIDES]
    if job.options.start != "fit" or any(sampled[name]["type"] != "sample" for name in own.names.values()):
        return [{}] * number
    model = "gamma_poisson" if own.model == "poisson" else own.model
    priors = resolve_priors(model, job.counts, job.rank, Priors())
    q: Any = closed_form_fit(replace(job, model=model, options=replace(job.options, priors=priors))).posterior
    prior = [own.roles.components(_matrices(own.traced.sites({}, seed))).sum(axis=-1) for seed in range(ALIKE)]
    sums, rng, found = float(np.median(prior)), np.random.default_rng(job.seed), []
    for _ in range(number):
        loadings, scale = separate_scale(q.loadings.draw(rng))
        components = move_inside(q.components.draw(rng))
        if own.model == "poisson":
            size = sums / components.sum(axis=-1)
            loadings, components = loadings / size, components * size[:, None]
        sides = [move_inside(loadings), components]
        value = {name: side.T if turn else side
                 for name, side, turn in zip(factors, sides, own.roles.turned, strict=True)}  # fmt: skip
        if scale is not None:
            value[own.names["scale"]] = scale.reshape(np.shape(sampled[own.names["scale"]]["value"]))
        found.append(value)
    return found


def _all_sites(own: OwnProgram, model: Callable[[], Any], draws: Sites) -> tuple[Sites, Array]:
    """Return the draws of all sites, in float64, with those that are computed, and the log joint of each.

    Dispersions of the counts, if they are drawn, are among them.
    """
    shape = next(iter(draws.values())).shape[:2]

    def computed(values: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        density, trace = log_density(model, (), {}, values)
        more = {name: site["value"] for name, site in trace.items() if site["type"] == "deterministic"}
        return density, more if own.drawn is None else {**more, DISPERSION: _dispersion(own, trace[own.seen])}

    flat = {name: jnp.asarray(each).reshape(-1, *each.shape[2:]) for name, each in draws.items()}
    density, more = jax.lax.map(computed, flat)
    sites = {**draws, **{name: np.asarray(each).reshape(*shape, *each.shape[1:]) for name, each in more.items()}}
    return {name: each.astype(np.float64) for name, each in sites.items()}, np.asarray(density, np.float64).reshape(
        shape
    )


def _others(own: OwnProgram, sites: Sites) -> Sites:
    """Return draws of the other sites, as statistics, of no more numbers than both factors have."""
    most = sum(sites[own.names[side]].size for side in SIDES)
    return {f"{SITE}{name}": each for name, each in sites.items()
            if name not in {*own.names.values(), DISPERSION} and each.size <= most}  # fmt: skip


RUNS: dict[str, Callable[[Job, OwnProgram], FitRecord]] = {"nuts": _by_nuts, "svi": _by_svi}
