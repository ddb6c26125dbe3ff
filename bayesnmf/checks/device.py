"""Checks of the device that a fit runs on."""

from __future__ import annotations

from typing import Any

from bayesnmf.checks.values import check_choice


def check_device(options: Any) -> None:
    """Check the device of map and vi against their other options; whether there is a GPU shows when a fit starts."""
    check_choice(options.device, "device", ("cpu", "gpu"))
    if options.device == "cpu":
        return
    if options.algorithm not in (None, "em", "coordinate"):
        only = "em" if hasattr(options, "basis") else "coordinate"
        raise ValueError(
            f"device='gpu' must go with algorithm={only!r}: found {options.algorithm!r}, which runs on the CPU alone; "
            "leave device or algorithm out"
        )
    if getattr(options, "learn", ()):
        raise ValueError("learn must go with device='cpu', where the priors are improved; leave device or learn out")
    if options.threads is not None:
        raise ValueError(f"threads must go with device='cpu': found threads={options.threads}; leave threads out")


def first_gpu() -> Any:
    """Return JAX's first GPU; refuse device="gpu" where JAX has none."""
    import jax

    try:
        return jax.devices("gpu")[0]
    except RuntimeError as error:
        raise ValueError(
            "device='gpu' needs a GPU that JAX can use, and it finds none; install jax[cuda12] on a machine with an "
            "NVIDIA GPU (or JAX for your GPU: docs.jax.dev/en/latest/installation.html), or use device='cpu'"
        ) from error
