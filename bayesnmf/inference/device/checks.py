"""Check the device of a fit."""

from __future__ import annotations

from typing import Any


def check_no_exposures(counts: Any) -> None:
    """Refuse counts with exposures, which the compiled loop does not know."""
    if counts.exposed:
        raise ValueError("the compiled loop does not know exposures; use bayesnmf.inference.device.placing")


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
