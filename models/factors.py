"""Priors of one side of the product: Gamma, Dirichlet, scaled Dirichlet, or a free parameter.

A prior is one of the library (`bayesnmf.Gamma` and others), or a plain mapping of hyperparameters, whose keys identify
the family:

=========================================  =====================================================
``{"shape": a, "rate": b}``                Gamma(a, b) for every entry; a = 1, b = 0 is flat
``{"shape": a, "rate_shape", "rate_rate"}``  Gamma(a, ξ) with sites ``rate_of_…`` ξ ~ Gamma(c, d)
``{"concentration": α}``                   Dirichlet(α) over the last axis
``{"concentration", "shape", "rate"}``     a Dirichlet times a site ``scale`` ~ Gamma(a, b) per row
``"parameter"``                            ``numpyro.param`` on the simplex, no prior
=========================================  =====================================================

With ``"known"`` (r, m) and ``"order"`` (K,) besides, components are the known rows and those of the site, reordered.
Hyperparameters broadcast to the shape of the site. Those of shared rates ξ have the shape of the rates, with length 1
along the axes of the factor that share them.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import digamma
from jax.typing import ArrayLike
from numpyro.distributions import constraints

Prior = Any  # of the library, a mapping of hyperparameters or "parameter"
Start = Callable[[jax.Array], jax.Array]

_FAMILIES = {
    frozenset({"shape", "rate"}): "gamma",
    frozenset({"shape", "rate_shape", "rate_rate"}): "gamma",
    frozenset({"shape", "rate", "rate_shape", "rate_rate"}): "gamma",  # its mean field
    frozenset({"concentration"}): "dirichlet",
    frozenset({"concentration", "shape", "rate"}): "scaled dirichlet",
    frozenset({"parameter"}): "parameter",
}


def draw(name: str, prior: Prior, *families: str, **sizes: int) -> jax.Array:
    """Sample one factor from its prior.

    Parameters
    ----------
    name : str
        Name of the site.
    prior : mapping or "parameter"
        Hyperparameters: ``{"shape": a, "rate": b}``, ``{"concentration": α}`` or another mapping of the table of
        this module.
    *families : str
        Families that the model allows here: "gamma", "dirichlet", "scaled dirichlet", "parameter".
    **sizes : int
        Names and sizes of the axes, which are the plates of the site, in order.

    Returns
    -------
    jax.Array
        The factor, of shape ``tuple(sizes.values())``.
    """
    stated: Mapping[str, Any] | str = hyperparameters_of(prior, tuple(sizes.values()))
    if family(stated) not in families:
        raise ValueError(f"{name} of this model must be {' or '.join(families)}, got {prior!r}")
    if isinstance(stated, str):
        start = _near_even(tuple(sizes.values()))
        return numpyro.param(name, start, constraint=constraints.simplex)
    match stated:
        case {"known": known, "order": order, **others}:
            (axis, rows), (feature, columns) = sizes.items()
            left = rows - len(known)
            plates = {f"free_{axis}": left, feature: columns}
            drawn = [draw(name, others, *families, **plates)] if left else []
            return jnp.concatenate([jnp.asarray(known), *drawn])[jnp.asarray(order)]
        case {"concentration": concentration, "shape": shape, "rate": rate}:
            row, size = next(iter(sizes.items()))
            proportions = _dirichlet(name, concentration, sizes)
            return _gamma("scale", shape, rate, {row: size})[:, None] * proportions
        case {"concentration": concentration}:
            return _dirichlet(name, concentration, sizes)
        case {"shape": shape, "rate_shape": rate_shape, "rate_rate": rate_rate, **own}:
            rates = _shared_rates(name, rate_shape, rate_rate, sizes)
            return _gamma(name, shape, own.get("rate", rates), sizes)
    return _gamma(name, stated["shape"], stated["rate"], sizes)


def hyperparameters_of(prior: Prior, size: tuple[int, ...]) -> Any:
    """Return a prior of the library, for a factor of this size, as a mapping; mappings and words as they are."""
    return prior.program_parameters(size) if hasattr(prior, "program_parameters") else prior


def family(prior: Prior) -> str | None:
    """Return the name of a prior's family, or None if its keys match no family."""
    keys = frozenset([prior] if isinstance(prior, str) else prior)
    return _FAMILIES.get(keys - {"known", "order"})


def free(name: str, prior: Prior, shape: tuple[int, ...]) -> Prior:
    """Return hyperparameters of the prior's own family as ``numpyro.param``: its mean-field posterior.

    Their names are ``{name}_shape``, ``{name}_rate``, ``{name}_concentration``, and for a scaled Dirichlet also
    ``scale_shape`` and ``scale_rate``; each has one number for every element of its site. Those of shared rates are
    ``rate_of_{name}_shape`` and ``rate_of_{name}_rate``.
    """
    prior = hyperparameters_of(prior, shape)
    if isinstance(prior, str):
        return prior
    if "known" in prior:
        known, rest = _separate_known(prior)
        rows = shape[0] - len(prior["known"])
        posterior: Any = free(name, rest, (rows, *shape[1:])) if rows else rest
        return {**posterior, **known}
    if "rate_shape" in prior:
        shared = jnp.shape(prior["rate_shape"])
        entries: Any = free(name, {"shape": prior["shape"], "rate": 1.0}, shape)
        rates: Any = free(f"rate_of_{name}", {"shape": 1.0, "rate": 1.0}, shared)
        return {**entries, "rate_shape": rates["shape"], "rate_rate": rates["rate"]}
    scaled = family(prior) == "scaled dirichlet"
    posterior = {}
    for key in prior:
        of_scale = scaled and key != "concentration"
        site, size = ("scale", shape[:1]) if of_scale else (name, shape)
        posterior[key] = numpyro.param(f"{site}_{key}", _near_one(size), constraint=constraints.positive)
    return posterior


def mean_log(prior: Prior, value: jax.Array) -> jax.Array:
    """Return E log of a factor under these hyperparameters, or the log of its value for a free parameter."""
    if isinstance(prior, str):
        return jnp.log(value)
    if "known" in prior:
        known, rest = _separate_known(prior)
        left = len(value) - len(known["known"])
        parts = [jnp.log(jnp.maximum(jnp.asarray(known["known"]), jnp.finfo(value.dtype).tiny))]
        if left:
            parts.append(mean_log(rest, value[:left]))
        return jnp.concatenate(parts)[jnp.asarray(known["order"])]
    logs = jnp.zeros_like(value)
    if "concentration" in prior:
        concentration = prior["concentration"]
        logs += digamma(concentration) - digamma(concentration.sum(-1, keepdims=True))
    if "shape" in prior:
        scale = digamma(prior["shape"]) - jnp.log(prior["rate"])
        logs += scale if scale.ndim == 2 else scale[:, None]
    return logs


def _gamma(name: str, shape: ArrayLike, rate: ArrayLike, sizes: Mapping[str, int]) -> jax.Array:
    size = tuple(sizes.values())
    if _is_flat(name, shape, rate):
        prior = dist.ImproperUniform(constraints.positive, size, ())
    else:
        prior = dist.Gamma(_filled(shape, size), _filled(rate, size))
    with _plates(sizes):
        return numpyro.sample(name, prior)


def _separate_known(prior: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the known components with their order, and the prior of the others."""
    known = {key: prior[key] for key in ("known", "order")}
    return known, {key: value for key, value in prior.items() if key not in known}


def _shared_rates(name: str, shape: ArrayLike, rate: ArrayLike, sizes: Mapping[str, int]) -> jax.Array:
    shared = jnp.shape(shape)
    axes = {axis: size for (axis, size), length in zip(sizes.items(), shared, strict=True) if length > 1}
    shape, rate = (jnp.reshape(jnp.asarray(each), tuple(axes.values())) for each in (shape, rate))
    return _gamma(f"rate_of_{name}", shape, rate, axes).reshape(shared)


def _dirichlet(name: str, concentration: ArrayLike, sizes: Mapping[str, int]) -> jax.Array:
    *batch, event = sizes
    prior = dist.Dirichlet(_filled(concentration, tuple(sizes.values())))
    with _plates({axis: sizes[axis] for axis in batch}):
        return numpyro.sample(name, prior, infer={"event_dims": [event]})


def _is_flat(name: str, shape: ArrayLike, rate: ArrayLike) -> bool:
    if isinstance(rate, jax.core.Tracer) or np.all(np.asarray(rate) > 0):
        return False
    if np.all(np.asarray(rate) == 0) and np.all(np.asarray(shape) == 1):
        return True
    raise ValueError(f"rate of {name} must be positive, or zero throughout with shape 1 (flat)")


@contextmanager
def _plates(sizes: Mapping[str, int]) -> Iterator[None]:
    with ExitStack() as stack:
        for position, (axis, size) in enumerate(sizes.items()):
            stack.enter_context(numpyro.plate(axis, size, dim=position - len(sizes)))
        yield


def _filled(value: ArrayLike, shape: tuple[int, ...]) -> jax.Array:
    return jnp.broadcast_to(jnp.asarray(value, dtype=float), shape)


def _near_even(shape: tuple[int, ...]) -> Start:
    def start(key: jax.Array) -> jax.Array:
        values = _near_one(shape)(key)
        return values / values.sum(-1, keepdims=True)

    return start


def _near_one(shape: tuple[int, ...]) -> Start:
    # components that are equal at the start have equal gradients and stay equal
    return lambda key: jnp.exp(0.1 * jax.random.normal(key, shape))
