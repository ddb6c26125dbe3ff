"""What all tests share."""

import gc
import os
import signal
import sys
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("MPLBACKEND", "Agg")

pytest_plugins = ["seconds"]

# Bytecode is kept, whatever the environment says: without it every process compiles the package, and every worker the
# tests, anew.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Two processes share the cores: a library that starts a thread for each core would only wait for them.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Most of the time of tests of NUTS, SVI and fits on a device goes into compiling. Without optimisation it takes a third
# as long (notebooks and the main job run with it); and what is compiled is kept on disk, under a digest of all that it
# is made of, for every process of this run and of later ones.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "xla"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

# JAX takes the CPU for three devices, so that fits on several of them need no process of their own. XLA reads its flags
# up to the first word that is none.
DEVICES = "--xla_force_host_platform_device_count=3"
if DEVICES not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{DEVICES} {os.environ.get('XLA_FLAGS', '')}".strip()

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


@pytest.fixture
def without_pictures(monkeypatch):
    """Pictures are most of the work of a page whose text is asked for."""
    from matplotlib.figure import Figure

    monkeypatch.setattr(Figure, "savefig", lambda _, file, **__: file.write(bytes(24)))


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect without looking for garbage, and leave what is collected out of later searches: it stays to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000)  # of 700, a twentieth of the run was spent on looking for garbage
        gc.enable()


def pytest_generate_tests(metafunc):
    """Run the tests of a `device` on JAX's CPU backend, and on a GPU where there is one."""
    if "device" in metafunc.fixturenames:
        metafunc.parametrize("device", devices(), ids=lambda device: device.platform)


@cache
def devices():
    """Return a device of each kind that JAX finds here."""
    import jax

    cpu, *_ = jax.devices("cpu")
    return [cpu] if jax.default_backend() == "cpu" else [cpu, jax.devices()[0]]
