"""What all tests share."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("MPLBACKEND", "Agg")

# Most of the time of tests of NUTS, SVI and fits on a device goes into compiling. Without optimisation it takes a third
# as long (`.ci/run` runs the long tests with it); and what is compiled is kept on disk, under a digest of all that it
# is made of, for every process of this run and of later ones.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "xla"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

# How long examples take is a property of the machine and of what else runs on it.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

# A process that was started in the background, or by nohup, ignores these; so would what tests signal and start.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (getattr(signal, "SIGHUP", None), signal.SIG_DFL)):
    if number is not None and signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


# Files that take longest come first, so that no process is left with one of them while the other has nothing to do.
LONGEST = (
    "test_programs.py",
    "test_certificates.py",
    "test_gpu.py",
    "test_two_statements.py",
    "test_benchmarks.py",
    "test_damaged_files.py",
    "test_comparison.py",
    "test_posteriors.py",
    "test_coordinate_ascent.py",
    "test_cli.py",
)


def pytest_collection_modifyitems(items):
    """Put the longest files first; within a file the order stays."""
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(LONGEST)))


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
