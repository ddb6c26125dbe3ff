"""Stochastic variational inference: Adam on a bound of a NumPyro program, the closed-form family as the guide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import numpyro
from numpy.typing import NDArray

Array = NDArray[Any]

STRIDE = 100


class SviRun(NamedTuple):
    """Parameters of q by name, an estimate of the bound at each step, and whether Ctrl-C ended it early."""

    parameters: dict[str, Array]
    bounds: Array
    interrupted: bool


def run_svi(
    programs: tuple[Callable[..., Any], Callable[..., Any]],
    arguments: dict[str, Any],
    start: dict[str, Array],
    seed: int,
    options: Any,
    progress: Callable[[int, float], None],
) -> SviRun:
    """Fit the guide to the program (a pair), `options.max_iter` steps from the parameters `start`.

    Strides of 100 steps are compiled once. The learning rate decays to a tenth over the run.
    """

    def rate(step: jax.Array) -> jax.Array:
        return options.learning_rate * 0.1 ** (step / options.max_iter)

    svi = numpyro.infer.SVI(
        *programs, numpyro.optim.Adam(rate), numpyro.infer.TraceMeanField_ELBO(num_particles=options.particles)
    )
    state = svi.init(jax.random.key(seed), init_params=start, **arguments)

    @jax.jit
    def stride(state: Any) -> tuple[Any, jax.Array]:
        return jax.lax.scan(lambda s, _: svi.update(s, **arguments), state, length=STRIDE)

    bounds: list[Array] = []
    interrupted = False
    try:
        for done in range(0, options.max_iter, STRIDE):
            if options.max_iter - done >= STRIDE:
                state, losses = stride(state)
            else:
                rest = options.max_iter - done
                state, losses = jax.lax.scan(lambda s, _: svi.update(s, **arguments), state, length=rest)
            bounds.append(-np.asarray(losses))
            progress(done + len(bounds[-1]), float(bounds[-1][-1]))
    except KeyboardInterrupt:
        if not bounds:
            raise
        interrupted = True
    parameters = {name: np.asarray(value) for name, value in svi.get_params(state).items()}
    return SviRun(parameters, np.concatenate(bounds), interrupted)
