"""What all tests share."""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("MPLBACKEND", "Agg")

# How long examples take is a property of the machine and of what else runs on it.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

# A process that was started in the background, or by nohup, ignores these; so would what tests signal and start.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (getattr(signal, "SIGHUP", None), signal.SIG_DFL)):
    if number is not None and signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


@pytest.fixture(scope="module")
def quick_compilation():
    """Without a GPU, compile without optimisation: compiling is most of what these tests take."""
    import jax

    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", jax.default_backend() == "cpu")
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(params=["cpu", "gpu"])
def device(request):
    """A device of JAX: its CPU backend, and a GPU where there is one."""
    import jax

    try:
        return jax.devices(request.param)[0]
    except RuntimeError:
        return pytest.skip(f"JAX finds no {request.param}")
