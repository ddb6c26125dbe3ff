"""Recognise a NumPyro program that somebody wrote as a model with closed forms.

A program is a function of the counts X (n, m) that samples its factors and observes the counts once. It is traced, and
evaluated at random values of its factors, in float64:

- the mean of the counts must be E_ij (U V)_ij, where U (n, K) and V (K, m) are sites or their transposes, U perhaps
  times a site of one number for each row, and exposures E = r cᵀ must be the same at all values;
- factors must have Gamma, Exponential or Dirichlet distributions with the same parameters at all values, but that a
  rate may be another Gamma site, times a constant, of each row, feature or component or of all entries;
- the mean may besides have a factor of each feature in each batch of rows, a site (B, m) with a prior Gamma(a, a);
- counts must be Poisson, multinomial given their totals, negative binomial or zero-inflated, with parameters that are
  the same at all values, for all entries, each row or each feature. So must be a mask of the observed entries.

The log joint is then that of the named model, up to what depends on the counts alone.

Of a program with further sites, `recognise_given` finds two factors whose priors are conjugate given these: parameters
of the priors may then change with further sites, but neither they nor other densities with the factors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from bayesnmf.checks import check_size, shown
from bayesnmf.data.batches import Batch
from bayesnmf.data.counts import Counts
from bayesnmf.needs import needed_for
from bayesnmf.noise.abilities import Noise
from bayesnmf.noise.negative_binomial import NegativeBinomial
from bayesnmf.noise.poisson import POISSON
from bayesnmf.noise.zero_inflated import ZeroInflated
from bayesnmf.options import Options
from bayesnmf.priors import Dirichlet, Gamma, HierarchicalGamma, Priors, ScaledDirichlet
from bayesnmf.priors.specification import MODELS, PARAMETER
from bayesnmf.types import Array

LARGEST_MEANS = 2**30  # bytes of the means of all entries, of which a program has several
POINTS = 4  # random values of the factors
MOST_SITES = 6  # two factors, a scale of rows, factors of batches, and a rate of each factor
CLOSE = 1e-9  # relative difference of numbers that count as equal


class Recognised(NamedTuple):
    """What a program states: the arguments of `bayesnmf.fit` that say the same.

    `names` are those of the sites of "loadings", "components" and, if there is one, "scale".
    """

    model: str
    rank: int
    priors: Priors
    noise: Noise
    row_exposure: Array | None
    feature_exposure: Array | None
    observed: Array | None
    names: dict[str, str]
    batch: Batch | None = None


def check_not_stated(options: Options | None, noise: Any, **arguments: Any) -> None:
    """Refuse arguments of `bayesnmf.fit`, by name, that say what a program says itself."""
    given = [name for name, value in arguments.items() if value is not None]
    given += ["noise"] * (noise != "poisson")
    if options is not None and any(each is not None for each in vars(options.priors).values()):
        given.append("options.priors")
    if given:
        raise ValueError(
            f"a program as the model states {given[0]} itself: found {given[0]} beside it; write it into the program, "
            "or fit a model by its name"
        )


def check_sites(sites: Any, program: Any) -> None:
    """Refuse names of sites that are none, or without a program."""
    if program is None:
        raise ValueError("sites need a program as the model: found a model by its name; leave sites out")
    if not isinstance(sites, Mapping) or not {*sites} <= {"loadings", "components", "scale"} or len(sites) < 2:
        raise ValueError(
            f"sites must name both factors: found {shown(sites)}; give "
            "sites={'loadings': 'theta', 'components': 'beta'}"
        )


def check_method(stated: Any, method: str) -> None:
    """Refuse methods that have no factors of batches, where a program was found to state some."""
    if isinstance(stated, Recognised) and stated.batch is not None and method not in ("map", "vi", "gibbs"):
        raise ValueError(
            f"method must be 'map', 'vi' or 'gibbs' for this program, which has factors of batches: found {method!r}"
        )


class Conjugate(NamedTuple):
    """What a program states given its further sites: what a model has, but for the parameters of the priors.

    `seen` is the site of the counts, and `priors` are those at typical values of the further sites.
    """

    traced: Traced
    roles: _Roles
    families: dict[str, str]
    seen: str
    stated: Recognised

    @property
    def sites(self) -> list[str]:
        """Names of the sites of loadings, components and, if there is one, of the scale."""
        return list(self.stated.names.values())

    def parameters(self, values: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Return the parameters of the priors of the factors where all sites have these values; JAX can trace it."""
        found = self.traced.sites(values)
        return {name: _parameters_of(name, found[name]) for name in self.sites}

    def priors(self, parameters: dict[str, dict[str, Array]]) -> Priors:
        """Return the priors that have these parameters."""
        return _model(self.roles, self.families, parameters)[1]


def recognise(program: Callable[..., Any], counts: Counts, named: Mapping[str, str] | None = None) -> Recognised:
    """Return what a program of these counts states, as arguments of `bayesnmf.fit`; refuse others, with the reason.

    Raises
    ------
    ValueError
        A program that is no product of two factors with conjugate priors, or of others than are named, or whose counts
        are not these.
    """
    with jax_in_float64():
        found = _recognised(traced_of(program, counts))
    asked = named or {}
    wrong = [f"{side} {found.names.get(side)!r}" for side in asked if found.names.get(side) != asked[side]]
    if wrong:
        raise ValueError(f"sites must be those that the mean is a product of: {', '.join(wrong)}; leave sites out")
    return found


def recognise_given(program: Callable[..., Any], counts: Counts) -> Conjugate:
    """Return the factors of a program that have conjugate priors given its further sites; refuse others by site.

    Raises
    ------
    ValueError
        A program without two such factors, or whose counts are not these.
    """
    with jax_in_float64():
        return _recognised_given(traced_of(program, counts))


def jax_in_float64() -> Any:
    """Return a context in which JAX has float64."""
    with needed_for("a program as the model"):
        import jax
    return jax.enable_x64(True)


def traced_of(program: Callable[..., Any], counts: Counts) -> Traced:
    """Return a program and its counts; refuse counts that no program is given."""
    n, m = counts.shape
    if not counts.rows_held or getattr(counts, "matrices", None) is not None or counts.mask is not None:
        raise unfit(
            "the counts are on disk, several matrices, or miss entries",
            "give one matrix in memory, and hide entries by numpyro.handlers.mask",
        )
    check_size(8 * n * m, LARGEST_MEANS, "the means of all entries, which a program states one by one,",
               "fit the model by its name")  # fmt: skip
    values = counts.matrix.toarray()
    whole = values.astype(np.int64)
    return Traced(program, whole if np.array_equal(whole, values) else values)


class _Site(NamedTuple):
    """A factor of a program: its name, shape and family, which is "Gamma", "Dirichlet" or "parameter"."""

    name: str
    shape: tuple[int, ...]
    family: str


class Evaluated(NamedTuple):
    """A program at values of its factors: means (n, m) and what else the counts have, and parameters of the priors."""

    kind: str
    mean: Array
    parameters: dict[str, Array]
    mask: Array
    priors: dict[str, dict[str, Array]]


class _Roles(NamedTuple):
    """Which sites are the factors, and whether they are transposed; exposures (n, m) of the entries."""

    loadings: str
    components: str
    transposed: tuple[bool, ...]
    scale: str | None
    exposure: Array


@dataclass(frozen=True)
class Traced:
    """A program of given counts, as a function of the values of its sites."""

    program: Callable[..., Any]
    counts: Array

    def sites(self, values: dict[str, Any], seed: int = 0, others: Callable[..., Any] | None = None) -> dict[str, Any]:
        """Return the sites of the program where sites have these values, and others random ones, by their prior.

        `others` are made by this strategy of NumPyro, such as `init_to_uniform`, instead.
        """
        import jax.numpy as jnp
        from numpyro import handlers

        given = {name: jnp.asarray(value) for name, value in values.items()}
        model = handlers.seed(self.program, seed)
        model = model if others is None else handlers.substitute(model, substitute_fn=others)
        model = handlers.substitute(model, given)
        try:
            return dict(handlers.trace(model).get_trace(jnp.asarray(self.counts)))
        except NotImplementedError as error:  # NumPyro has no draws of an improper prior
            raise unfit("it samples a site without a proper prior", "state it by numpyro.param") from error
        except TypeError as error:
            raise TypeError(
                f"model must be a NumPyro program of the counts alone: it raised {error}; give its other arguments "
                "before, as by functools.partial"
            ) from error

    def latent(self) -> tuple[list[_Site], dict[str, Any], list[str]]:
        """Return what may be a factor, the distributions of other unobserved sites by name, and the observed sites."""
        import numpyro.distributions as dist

        found, others, seen = list[_Site](), dict[str, Any](), list[str]()
        for name, site in self.sites({}).items():
            check_takes_all(name, site)
            if site["type"] == "param":
                found.append(_Site(name, np.shape(site["value"]), _family_of_parameter(site)))
            if site["type"] != "sample":
                continue
            if site["scale"] is not None:
                raise unfit(f"the log density of {name!r} is scaled", "leave numpyro.handlers.scale out")
            prior = bare(site["fn"])[0]
            if site["is_observed"]:
                seen.append(name)
            elif isinstance(prior, dist.Gamma | dist.Exponential | dist.Dirichlet):
                family = "Dirichlet" if isinstance(prior, dist.Dirichlet) else "Gamma"
                found.append(_Site(name, np.shape(site["value"]), family))
            else:
                others[name] = prior
        return found, others, seen

    def factors(self) -> tuple[list[_Site], str]:
        """Return the factors of the program, and the site of its counts; refuse what no model has beside these."""
        found, others, seen = self.latent()
        for name, prior in others.items():
            raise unfit(
                f"the prior {type(prior).__name__} of {name!r} is not conjugate to Poisson counts",
                "use Gamma, Exponential or Dirichlet, or bayesnmf.conjugate_block if it stands beside two such factors",
            )
        if len(seen) != 1:
            raise unfit(f"it observes {_named(seen)}, and factors count as observed", "observe the counts, and no more")
        if not 2 <= len(found) <= MOST_SITES:
            raise _too_many(found)
        return found, seen[0]

    def observes(self, value: Array) -> tuple[bool, bool]:
        """Return whether these are the counts, perhaps transposed, and whether they are transposed."""
        as_they_are = value.shape == self.counts.shape and np.array_equal(value, self.counts)
        return as_they_are or np.array_equal(value.T, self.counts), not as_they_are

    def at(self, sites: dict[str, Any], factors: list[_Site], name: str) -> Evaluated:
        """Return the program where its sites are these, given what may be factors and the site of the counts."""
        seen = sites[name]
        priors = {
            each.name: {word: np.asarray(given, np.float64) for word, given in parameters.items()}
            for each in factors
            if each.family != "parameter"
            for parameters in [_parameters_of(each.name, sites[each.name])]
        }
        value, (fn, mask) = np.asarray(seen["value"]), bare(seen["fn"])
        same, transposed = self.observes(value)
        if not same:
            raise unfit(
                f"{seen['name']!r} observes other numbers than the counts",
                "observe the argument of the program as it is",
            )
        kind, mean, parameters = _likelihood(seen["name"], fn, value)
        if transposed and kind == "multinomial":
            raise unfit("totals of features are given", "let rows of the counts be the samples whose totals are given")
        if kind == "multinomial" and mask.ndim == 1:
            mask = mask[:, None]

        def whole(array: Array) -> Array:
            full = np.broadcast_to(array, value.shape)
            return full.T if transposed else full

        parameters = {name: whole(each) for name, each in parameters.items()}
        return Evaluated(kind, whole(mean), parameters, whole(mask), priors)


def _recognised(traced: Traced) -> Recognised:
    """Return what a traced program states."""
    factors, seen = traced.factors()
    points, rng = [], np.random.default_rng(0)
    for _ in range(POINTS):
        points.append({each.name: _value_of(each, rng) for each in factors})
    found = [traced.at(traced.sites(point), factors, seen) for point in points]
    of_batches = _batches(traced, factors, points, found, seen)
    means = [
        each.mean if of_batches is None else each.mean / point[of_batches.site][of_batches.codes]
        for each, point in zip(found, points, strict=True)
    ]
    orders = (order for length in (2, 3) for order in permutations(factors, length))
    roles = _roles(orders, factors, points, means, traced.counts.shape)
    sides = {"loadings": roles.loadings, "components": roles.components}
    mine = [*sides.values(), roles.scale]
    left = [each for each in factors if each.name not in mine]
    shared = {
        name: above
        for (side, name), turned in zip(sides.items(), roles.transposed, strict=True)
        if (above := _shared_rates(side, name, turned, left, points, found)) is not None
    }
    for name, parameters in found[0].priors.items():
        for word, value in parameters.items():
            varies = not all(equal(each.priors[name][word], value) for each in found)
            if varies and not (word == "rate" and name in shared):
                raise unfit(f"the {word} of the prior of {name!r} depends on other sites", "give it as a number")
    known = [each.site for each in (*shared.values(), of_batches) if each is not None]
    if sorted(known) != sorted(each.name for each in left):
        raise _too_many(factors)
    stated = _stated(roles, factors, points[0], found, shared)
    return stated if of_batches is None else stated._replace(batch=_as_batch(of_batches, stated, found[0]))


class _Shared(NamedTuple):
    """A site that is the rate of a factor: what has a rate of its own, and the parameters of its prior."""

    site: str
    over: Any
    shape: Array
    rate: Array


class _OfBatches(NamedTuple):
    """The site of the factors of batches, (B, m), and the batch of each row, (n,)."""

    site: str
    codes: Array


def _shared_rates(
    side: str, name: str, turned: bool, left: list[_Site], points: list[dict[str, Array]], found: list[Evaluated]
) -> _Shared | None:
    """Return the site that is the rate of a factor, times a constant, wherever it was evaluated; None if none is."""
    if "rate" not in found[0].priors.get(name, {}):
        return None
    rates = [each.priors[name]["rate"].T if turned else each.priors[name]["rate"] for each in found]
    rows, columns = rates[0].shape
    sizes = {"row" if side == "loadings" else "component": (rows, 1), "all": (1, 1)}
    sizes |= {"component" if side == "loadings" else "feature": (1, columns)}
    for each, (over, size) in product(left, sizes.items()):
        if each.family != "Gamma" or np.prod(each.shape) != np.prod(size):
            continue
        ratios = [rate / point[each.name].reshape(size) for rate, point in zip(rates, points, strict=True)]
        unit = ratios[0][: size[0], : size[1]]
        if all(equal(ratio, unit) for ratio in ratios):
            own = {word: value.reshape(size) for word, value in found[0].priors[each.name].items()}
            return _Shared(each.name, over, own["shape"], own["rate"] / unit)  # of the rates themselves
    return None


def _batches(
    traced: Traced, factors: list[_Site], points: list[dict[str, Array]], found: list[Evaluated], seen: str
) -> _OfBatches | None:
    """Return the site whose row of a batch multiplies the means of each row of it, if there is one."""
    for each in factors:
        batches, features = each.shape if len(each.shape) == 2 else (0, 0)
        if each.family != "Gamma" or batches < 2 or features != traced.counts.shape[1]:
            continue  # one component, too, multiplies all means
        if len(factors) < 3:
            continue  # two factors remain beside those of batches
        other = points[0] | {each.name: points[1][each.name]}
        ratio = traced.at(traced.sites(other), factors, seen).mean / found[0].mean
        changes = points[1][each.name] / points[0][each.name]
        alike = np.stack([np.isclose(ratio, change, rtol=CLOSE, atol=0).all(axis=1) for change in changes])
        if alike.any(axis=0).all():
            return _OfBatches(each.name, alike.argmax(axis=0))
    return None


def _as_batch(batches: _OfBatches, stated: Recognised, first: Evaluated) -> Batch:
    """Return batches as an argument of `bayesnmf.fit`; refuse factors with another prior, or given totals."""
    shape, rate = (first.priors[batches.site][word] for word in ("shape", "rate"))
    if not (equal(shape, shape.flat[0]) and equal(rate, shape)):
        raise unfit(
            f"{batches.site!r} are factors of batches without one prior Gamma(a, a)", "give them one, whose mean is 1"
        )
    if len(np.unique(batches.codes)) < len(first.priors[batches.site]["shape"]):
        raise unfit(f"no row of the counts has some of the batches of {batches.site!r}", "leave these out")
    if MODELS[stated.model].given_totals:
        raise unfit(f"totals of rows are given beside the factors of batches {batches.site!r}", "leave them out")
    return Batch(batches.codes.tolist(), float(shape.flat[0]))


def _too_many(factors: list[_Site]) -> ValueError:
    return unfit(
        f"it samples {_named([each.name for each in factors])}",
        "sample two factors, and perhaps a scale for each row, their rates and factors of batches",
    )


def _recognised_given(traced: Traced) -> Conjugate:
    """Return what a traced program states given its further sites."""
    from numpyro.infer import init_to_median, init_to_uniform

    factors, others, observed = traced.latent()
    for each in factors:
        if each.family == "parameter":
            raise unfit(f"{each.name!r} is a parameter, without a prior", "give it one: numpyro.sample")
    for name, prior in others.items():
        if prior.support.is_discrete:
            raise unfit(f"{name!r} is discrete, and NUTS cannot draw it", "sum it out")
    first = traced.sites({})
    same = [name for name in observed if traced.observes(np.asarray(first[name]["value"]))[0]]
    if len(same) != 1:
        raise unfit(
            f"it observes {_named(observed)}, of which {len(same)} have the counts",
            "observe the argument of the program as it is, once",
        )
    (seen,), rng = same, np.random.default_rng(0)
    points, found = [], []
    for seed in range(POINTS):
        values = {each.name: _value_of(each, rng) for each in factors}
        sites = traced.sites(values, seed, init_to_uniform)
        points.append(values | {name: np.asarray(sites[name]["value"]) for name in others})
        found.append(traced.at(sites, factors, seen))
    orders = (order for length in (2, 3) for order in permutations(factors, length))
    try:
        roles = _roles(orders, factors, points, [each.mean for each in found], traced.counts.shape)
    except ValueError as error:
        raise _with_further_sites(error, traced, factors, points, seen) from error
    mine = {name for name in (roles.loadings, roles.components, roles.scale) if name is not None}
    _check_conjugate(traced, points, mine, seen)
    own = [each for each in factors if each.name in mine]
    if len(own) == len(factors) and not others:
        raise unfit("it has no further sites", "fit it: bayesnmf.fit(counts, program, method='gibbs')")
    if found[0].kind not in ("poisson", "multinomial"):
        raise unfit(f"the counts {seen!r} are {found[0].kind}", "let them be Poisson, or multinomial given totals")
    typical = traced.sites({}, 0, init_to_median)
    middle = traced.at(typical, own, seen)
    stated = _stated(roles, own, points[0], [each._replace(priors=middle.priors) for each in found])
    return Conjugate(traced, roles, {each.name: each.family for each in own}, seen, stated)


def _with_further_sites(
    error: ValueError, traced: Traced, factors: list[_Site], points: list[dict[str, Array]], seen: str
) -> ValueError:
    """Return the error that says why the mean is no product, with the further sites that change it, if they do."""
    mean = traced.at(traced.sites(points[0]), [], seen).mean
    matrices = {each.name for each in factors if len(each.shape) == 2}
    changed = [
        name
        for name in points[0]
        if name not in matrices
        and not equal(traced.at(traced.sites(points[0] | {name: points[1][name]}), [], seen).mean, mean)
    ]
    if not changed:
        return error
    return unfit(
        f"the mean of the counts {seen!r} changes with {_named(changed)}, beside two factors",
        "let the parameters of the prior of a factor depend on this instead; a factor itself has a Gamma, Exponential "
        "or Dirichlet prior",
    )


def _check_conjugate(traced: Traced, points: list[dict[str, Array]], mine: set[str], seen: str) -> None:
    """Refuse a program in which a density other than that of the counts changes with the factors."""
    one, two = (traced.sites(points[0] | {name: point[name] for name in mine}) for point in points[:2])
    for name, site in one.items():
        if site["type"] != "sample" or name == seen:
            continue
        if name in mine:
            parameters = _parameters_of(name, site), _parameters_of(name, two[name])
            for word, value in parameters[0].items():
                if not equal(np.asarray(value), np.asarray(parameters[1][word])):
                    raise unfit(
                        f"the {word} of the prior of {name!r} changes with {_named(sorted(mine))}",
                        "let it depend on further sites alone",
                    )
            continue
        before, after = (np.asarray(each[name]["fn"].log_prob(each[name]["value"])) for each in (one, two))
        if not equal(before, after):
            raise unfit(
                f"the density of {name!r} changes with {_named(sorted(mine))}, which are then not conjugate",
                "let it depend on parameters of their priors instead, or run NumPyro's own NUTS",
            )


def _stated(
    roles: _Roles,
    factors: list[_Site],
    point: dict[str, Array],
    found: list[Evaluated],
    shared: Mapping[str, _Shared] = MappingProxyType({}),
) -> Recognised:
    """Return what a program states, given the roles of its factors, rates that are sites, and values of it."""
    first = found[0]
    if not all(np.array_equal(each.mask, first.mask) for each in found):
        raise unfit("which entries are masked depends on the factors", "mask the same entries always")
    families = {each.name: each.family for each in factors}
    noise = noise_of(found)
    model, priors = _model(roles, families, first.priors, shared)
    rows, features = exposures_of(roles.exposure)
    observed = None if first.mask.all() else first.mask
    if model == "dirichlet_poisson":
        if features is not None or noise != POISSON or observed is not None:
            raise unfit(
                f"{roles.loadings!r} are proportions, without a scale, and totals of rows depend on them",
                f"multiply {roles.loadings!r} by a Gamma site for each row",
            )
        rows = None  # the totals' probability has no factors in it
    elif first.kind == "multinomial":
        raise unfit(f"totals are given, and {roles.loadings!r} have a scale", "let them have a Dirichlet prior")
    names = {"loadings": roles.loadings, "components": roles.components}
    names |= {} if roles.scale is None else {"scale": roles.scale}
    rank = point[roles.components].shape[1 if roles.transposed[1] else 0]
    return Recognised(model, rank, priors, noise, rows, features, observed, names)


def _likelihood(name: str, fn: Any, value: Array) -> tuple[str, Array, dict[str, Array]]:
    """Return the kind of the counts' distribution, its mean, or probabilities, and its other parameters."""
    import numpyro.distributions as dist
    from numpyro.distributions.discrete import ZeroInflatedProbs

    from bayesnmf.models.likelihood import NegativeBinomialProduct, PoissonProduct

    if isinstance(fn, dist.MultinomialProbs | dist.MultinomialLogits):
        if not np.array_equal(np.broadcast_to(fn.total_count, value.shape[:-1]), value.sum(axis=-1)):
            raise unfit(f"total_count of {name!r} is not the total of each row", "give the totals of the counts")
        return "multinomial", np.asarray(fn.probs), {}
    if isinstance(fn, dist.GammaPoisson):
        size, rate = np.asarray(fn.concentration), np.asarray(fn.rate)
        return "negative binomial", size / rate, {"concentration": size, "rate": rate}
    if isinstance(fn, PoissonProduct | NegativeBinomialProduct):
        return _of_product(name, fn)
    gate = {}
    if isinstance(fn, ZeroInflatedProbs):
        gate, fn = {"gate": np.asarray(fn.gate)}, fn.base_dist
    if not isinstance(fn, dist.Poisson):
        raise unfit(
            f"{name!r} is {type(fn).__name__}",
            "let counts be Poisson, multinomial, negative binomial or zero-inflated Poisson",
        )
    return "zero-inflated" if gate else "poisson", np.asarray(fn.rate), gate


def _of_product(name: str, fn: Any) -> tuple[str, Array, dict[str, Array]]:
    """Return what `_likelihood` does of the counts in a program of the library."""
    if fn.observed is not None:
        raise unfit(f"some entries of {name!r} are not observed", "hide entries by numpyro.handlers.mask")
    mean, own = np.asarray(fn.mean), getattr(fn, "dispersion", None)
    if own is None:
        return "poisson", mean, {}
    size = mean / np.asarray(own) if fn.form == "linear" else 1 / np.asarray(own)
    size = np.broadcast_to(size, mean.shape)
    return "negative binomial", mean, {"concentration": size, "rate": size / mean}


def noise_of(found: list[Evaluated]) -> Noise:
    """Return the noise of the counts; refuse one that depends on the factors."""
    first = found[0]
    fixed = {word for word, value in first.parameters.items()
             if all(equal(each.parameters[word], value) for each in found)}  # fmt: skip
    if not first.parameters:
        return POISSON
    if "gate" in fixed:
        share, by = _whose(first.parameters["gate"])
        return ZeroInflated(share, by)
    if "concentration" in fixed:
        return NegativeBinomial("quadratic", *_whose(1 / first.parameters["concentration"]))
    if "rate" in fixed:
        return NegativeBinomial("linear", *_whose(1 / first.parameters["rate"]))
    raise unfit(
        "the dispersion of the counts depends on the factors or on other sites",
        "give it as a number, or learn it: bayesnmf.fit(counts, rank=…, noise='nb2')",
    )


def _whose(values: Array) -> tuple[Any, Any]:
    """Return one number, or those of each row or feature, with the word for whose they are."""
    if equal(values, values[:1, :1]):
        return float(values[0, 0]), None
    if equal(values, values[:, :1]):
        return values[:, 0].copy(), "row"
    if equal(values, values[:1]):
        return values[0].copy(), "feature"
    raise unfit("each entry has a parameter of its own", "give one for all entries, for each row or for each feature")


def _roles(
    orders: Iterable[Sequence[_Site]],
    factors: list[_Site],
    points: list[dict[str, Array]],
    means: list[Array],
    size: tuple[int, int],
) -> _Roles:
    """Return the sites, in one of these orders, whose product the means (n, m) are at all points; refuse others."""
    fault = "the mean of the counts is not the product of two factors, times exposures"
    for role in _possible(orders, size):
        values = [_product(role, point) for point in points]
        if not all(np.all(each > 0) for each in values):
            continue
        ratios = [mean / each for mean, each in zip(means, values, strict=True)]
        if not all(equal(each, ratios[0]) for each in ratios):
            continue
        exposure = ratios[0]
        if not np.all(exposure > 0):
            fault = "some entries have a mean of 0 whatever the factors are"
            continue
        if not equal(exposure, exposure[:, :1] * (exposure[:1] / exposure[0, 0])):
            fault = "exposures of entries are no product of those of rows and features"
            continue
        wrong = _over_wrong_axis(role, factors)
        if wrong is None:
            return role._replace(exposure=exposure)
        fault = f"{wrong!r} have a Dirichlet prior over the wrong axis: a model has one over the components of each " \
                "row, and over the features of each component"  # fmt: skip
    raise unfit(fault, "multiply a factor (n, K) by one of (K, m), and hide entries by numpyro.handlers.mask")


def _possible(orders: Iterable[Sequence[_Site]], size: tuple[int, int]) -> Iterator[_Roles]:
    """Yield the roles of loadings, components and perhaps a scale, in order, that shapes and families allow."""
    n, m = size
    none = np.empty(0)
    for order in orders:
        left, right, *more = order
        if more and (more[0].family != "Gamma" or left.family != "Dirichlet" or more[0].shape not in ((n,), (n, 1))):
            continue
        if len(left.shape) != 2 or len(right.shape) != 2 or "parameter" in (left.family, *(e.family for e in more)):
            continue
        for transposed in product((False, True), repeat=2):
            (rows, rank), (other, features) = (
                site.shape[::-1] if turned else site.shape
                for site, turned in zip((left, right), transposed, strict=True)
            )
            if (rows, features) == (n, m) and rank == other:
                yield _Roles(left.name, right.name, transposed, more[0].name if more else None, none)


def _product(role: _Roles, point: dict[str, Array]) -> Array:
    """Return the product of the factors at a point, (n, m)."""
    left, right = point[role.loadings], point[role.components]
    left, right = left.T if role.transposed[0] else left, right.T if role.transposed[1] else right
    return (left if role.scale is None else left * point[role.scale].reshape(-1, 1)) @ right


def _over_wrong_axis(role: _Roles, factors: list[_Site]) -> str | None:
    """Return the name of a factor whose Dirichlet prior is over the rows, or over the components of a feature."""
    on_simplex = {each.name for each in factors if each.family != "Gamma"}
    for name, turned in zip((role.loadings, role.components), role.transposed, strict=True):
        if turned and name in on_simplex:
            return name
    return None


def _model(
    role: _Roles,
    families: dict[str, str],
    parameters: dict[str, dict[str, Array]],
    shared: Mapping[str, _Shared] = MappingProxyType({}),
) -> tuple[str, Priors]:
    """Return the model that has these priors, and them."""

    def prior(name: str, turned: bool) -> Any:
        if families[name] == "parameter":
            return PARAMETER
        own = {word: _smallest(value.T if turned else value) for word, value in parameters[name].items()}
        if name in shared:
            rates = Gamma(_smallest(shared[name].shape), _smallest(shared[name].rate))
            return HierarchicalGamma(own["shape"], rates, shared[name].over)
        return Dirichlet(**own) if families[name] == "Dirichlet" else Gamma(**own)

    loadings, components = map(prior, (role.loadings, role.components), role.transposed)
    if families[role.loadings] == "Gamma":
        hierarchical = bool(shared) and families[role.components] == "Gamma"
        return "hierarchical_poisson" if hierarchical else "gamma_poisson", Priors(loadings, components)
    if families[role.components] == "Gamma":
        raise unfit(
            f"no model has proportions ({role.loadings!r}) as loadings of Gamma components ({role.components!r})",
            f"let {role.components!r} have a Dirichlet prior",
        )
    if role.scale is None:
        return "dirichlet_poisson", Priors(loadings, components)
    scale = {word: _smallest(value.reshape(-1, 1)) for word, value in parameters[role.scale].items()}
    return "dirichlet_gamma", Priors(ScaledDirichlet(loadings.concentration, **scale), components)


def exposures_of(exposure: Array) -> tuple[Array | None, Array | None]:
    """Return the exposures of rows (n,) and features (m,) whose product these are; None where all are 1."""
    rows, features = exposure[:, 0].copy(), exposure[0] / exposure[0, 0]
    if equal(features, 1.0):
        return (None if equal(rows, 1.0) else rows), None
    if equal(rows, rows[0]):
        return None, exposure[0].copy()
    return rows, features


def bare(fn: Any) -> tuple[Any, Array]:
    """Return a distribution without its event dimensions, expansion and masks, and the mask."""
    import numpyro.distributions as dist

    mask = np.ones((), bool)
    while isinstance(fn, dist.Independent | dist.ExpandedDistribution | dist.MaskedDistribution):
        if isinstance(fn, dist.MaskedDistribution):
            mask = mask & np.asarray(fn._mask)
        fn = fn.base_dist
    return fn, mask


def _parameters_of(name: str, site: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of the prior of a factor by our names, of the shape of the factor, as arrays of JAX."""
    import jax.numpy as jnp
    import numpyro.distributions as dist

    prior, mask = bare(site["fn"])
    if not mask.all():
        raise unfit(f"the prior of {name!r} is masked", "mask the counts alone")
    if isinstance(prior, dist.Dirichlet):
        found = {"concentration": prior.concentration}
    elif isinstance(prior, dist.Exponential):
        found = {"shape": 1.0, "rate": prior.rate}
    else:
        found = {"shape": prior.concentration, "rate": prior.rate}
    shape = np.shape(site["value"])
    return {word: jnp.broadcast_to(value, shape) for word, value in found.items()}


def check_takes_all(name: str, site: dict[str, Any]) -> None:
    """Refuse a plate that takes a part of what it is over."""
    if site["type"] == "plate" and site["args"][1] not in (None, site["args"][0]):
        raise unfit(f"it takes a subsample in the plate {name!r}", "leave subsample_size out")


def _family_of_parameter(site: dict[str, Any]) -> str:
    """Return the family of a `numpyro.param`; refuse one that is not on the simplex."""
    from numpyro.distributions import constraints

    if site["kwargs"].get("constraint") is not constraints.simplex:
        raise unfit(
            f"the parameter {site['name']!r} is not on the simplex",
            "give it constraint=constraints.simplex, or a prior",
        )
    return "parameter"


def _value_of(site: _Site, rng: np.random.Generator) -> Array:
    """Return a random value of a factor, of a random size if it is not on the simplex."""
    if site.family == "Gamma":
        return rng.gamma(1.0, size=site.shape) * 10 ** rng.uniform(-3, 1)
    return rng.dirichlet(np.ones(site.shape[-1]), site.shape[:-1])


def _smallest(values: Array) -> Any:
    """Return a number if all values are equal, else one row or one column if they are, else all."""
    if np.all(values == values[:1, :1]):
        return float(values[0, 0])
    if np.all(values == values[:1]):
        return values[:1].copy()
    return values[:, :1].copy() if np.all(values == values[:, :1]) else values.copy()


def equal(one: Array, other: Any) -> bool:
    """Return whether numbers are equal but for rounding, relative to themselves."""
    return bool(np.allclose(one, other, rtol=CLOSE, atol=0))


def _named(names: list[str]) -> str:
    return ", ".join(map(repr, names)) or "nothing"


def unfit(fault: str, cure: str) -> ValueError:
    """Return the error that says why a program is no model, or has no factors."""
    return ValueError(f"model must be a program that a closed form fits: {fault}; {cure}")
