"""Check the device of a fit."""

from __future__ import annotations

from typing import Any

from bayesnmf.needs import needed_for


def find_gpus(device: str) -> list[Any]:
    """Return JAX's first GPU for device="gpu", and all of them for "gpus"; refuse both if JAX has none."""
    with needed_for(f"device={device!r}"):
        import jax

    try:
        found = jax.devices("gpu")
    except RuntimeError as error:
        raise ValueError(
            f"device={device!r} needs a GPU that JAX can use, but JAX finds none; install jax[cuda12] and warp-lang "
            "on a machine with an NVIDIA GPU (or JAX for your GPU: docs.jax.dev/en/latest/installation.html), or use "
            "device='cpu'"
        ) from error
    return list(found if device == "gpus" else found[:1])
