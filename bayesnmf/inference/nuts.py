"""NUTS on a NumPyro program, in blocks of draws, so that progress shows and Ctrl-C keeps what there is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from numpyro.distributions import biject_to, constraints
from numpyro.infer import MCMC, NUTS

Array = NDArray[Any]
Sites = dict[str, Array]

BLOCKS = 10


class NutsRun(NamedTuple):
    """Draws by site, (chains, draws, …), sampler statistics likewise, and whether Ctrl-C ended it early."""

    draws: Sites
    statistics: Sites
    interrupted: bool


def unconstrain(values: Sites, on_simplex: frozenset[str]) -> dict[str, jax.Array]:
    """Map sites (chains, …) to the real line, where NUTS moves."""
    return {
        name: biject_to(constraints.simplex if name in on_simplex else constraints.positive).inv(jnp.asarray(value))
        for name, value in values.items()
    }


def run_nuts(
    program: Callable[..., Any],
    arguments: dict[str, Any],
    starts: dict[str, jax.Array],
    seed: int,
    options: Any,
    progress: Callable[[int, int], None],
) -> NutsRun:
    """Warm up, then draw in blocks.

    Parameters
    ----------
    program : callable
        The NumPyro program, called with `arguments`.
    starts : dict of array (chains, …)
        Unconstrained.
    options : bayesnmf.NUTS
        Chains, draws, warm-up, acceptance and depth.
    progress : callable
        Told the draws done of all, warm-up included.
    """
    kernel = NUTS(program, target_accept_prob=options.target_accept, max_tree_depth=options.max_tree_depth)
    parallel = jax.local_device_count() >= options.chains
    block = -(-options.draws // BLOCKS)
    sampler = MCMC(
        kernel,
        num_warmup=options.warmup,
        num_samples=block,
        num_chains=options.chains,
        chain_method="parallel" if parallel else "vectorized",
        progress_bar=False,
    )
    warm_key, key = jax.random.split(jax.random.key(seed))
    if options.chains == 1:
        starts = {name: value[0] for name, value in starts.items()}
    fields = ("diverging", "num_steps", "accept_prob", "energy")
    kept: list[tuple[Sites, Sites]] = []
    interrupted = False
    try:
        progress(0, options.warmup + options.draws)
        sampler.warmup(warm_key, init_params=starts, extra_fields=fields, **arguments)
        for done in range(0, options.draws, block):
            progress(options.warmup + done, options.warmup + options.draws)
            sampler.post_warmup_state = sampler.last_state
            sampler.run(jax.random.fold_in(key, done), extra_fields=fields, **arguments)
            draws = _to_numpy(sampler.get_samples(group_by_chain=True))
            kept.append((draws, _to_numpy(sampler.get_extra_fields(group_by_chain=True))))
        progress(options.warmup + options.draws, options.warmup + options.draws)
    except KeyboardInterrupt:
        if not kept:
            raise
        interrupted = True
    draws, statistics = (_concatenate([pair[i] for pair in kept], options.draws) for i in (0, 1))
    return NutsRun(draws, statistics, interrupted)


def _to_numpy(sites: dict[str, jax.Array]) -> Sites:
    return {name: np.asarray(value) for name, value in sites.items()}


def _concatenate(blocks: list[Sites], draws: int) -> Sites:
    return {name: np.concatenate([b[name] for b in blocks], axis=1)[:, :draws] for name in blocks[0]}
