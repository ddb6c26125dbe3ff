"""Check the device of a fit."""

from __future__ import annotations

from typing import Any


def first_gpu() -> Any:
    """Return JAX's first GPU; refuse device="gpu" if JAX has none."""
    import jax

    try:
        return jax.devices("gpu")[0]
    except RuntimeError as error:
        raise ValueError(
            "device='gpu' needs a GPU that JAX can use, but JAX finds none; install jax[cuda12] on a machine with an "
            "NVIDIA GPU (or JAX for your GPU: docs.jax.dev/en/latest/installation.html), or use device='cpu'"
        ) from error
