"""Compiled code on disk: damaged, it is compiled again and rewritten; where nothing can be written, it is not kept."""

import errno
import io
import os
import subprocess
import sys
from pathlib import Path
from types import FunctionType

import numba
import pytest
from numba.core import caching

from bayesnmf.kernels.cpu import compiling
from bayesnmf.kernels.cpu.compiling import compiled_on_disk


def double(x):
    return 2 * x


def times_plus(x, y, z):
    return x * y + z


def by_another(x, y, z):
    return times_plus(x, y, z)


# Prints what is compiled for a plain fit of small counts, by the package and by NumPy's part of Numba.
PLAIN_FIT = """
import warnings
import numpy as np
from numba.core import event
import bayesnmf

class Names(event.Listener):
    def on_start(self, event):
        pass

    def on_end(self, event):
        function = event.data["dispatcher"].py_func
        print("numpy" if "numba" in function.__module__ and "np" in function.__module__ else function.__name__)

event.register("numba:compile", Names())
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
mean = rng.gamma(0.5, 2.0, (30, 3)) @ rng.dirichlet(np.full(20, 0.3), 3)
bayesnmf.fit(rng.poisson(20 * mean), rank=3, seed=0)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    return tmp_path


def found_on_disk():
    """Use a function as a new process would; return whether its code came from disk."""
    compiled = compiled_on_disk()(FunctionType(double.__code__, {"__name__": "math"}, "double"))
    assert compiled(3) == 6
    return bool(sum(compiled.stats.cache_hits.values()))


def flipped(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
@pytest.mark.parametrize(
    "damage",
    [lambda _: b"", lambda content: content[: len(content) // 2], lambda content: b"\xff" * len(content), flipped],
    ids=["empty", "truncated", "overwritten", "one bit"],
)
def test_a_damaged_file_is_rewritten(folder, ending, damage):
    assert [found_on_disk(), found_on_disk()] == [False, True]
    (path,) = folder.rglob(f"*.{ending}")
    path.write_bytes(damage(path.read_bytes()))
    assert [found_on_disk(), found_on_disk()] == [False, True]


def test_rounding_is_a_function_s_own_whichever_calls_it_first(folder):
    """Numba gives a function that says nothing the rules of its first caller: a product and a sum became one here."""
    inner = compiled_on_disk()(FunctionType(times_plus.__code__, {"__name__": "math"}, "times_plus"))
    within = {"__name__": "math", "times_plus": inner}
    outer = compiled_on_disk(fastmath=compiling.FAST)(FunctionType(by_another.__code__, within, "by_another"))
    assert outer(1 + 2.0**-30, 1 + 2.0**-30, -1 - 2.0**-29) == 0.0  # 2⁻⁶⁰ without rounding in between


@pytest.mark.long
def test_a_plain_fit_of_small_counts_compiles_few_functions(tmp_path):
    """Each takes 0.1 to 0.8 s of a first fit. Arrays that loops made for themselves took 0.02 to 0.3 s besides."""
    own = {"NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", PLAIN_FIT], env=os.environ | own, capture_output=True, text=True)
    assert not done.stderr
    named = [name.split("_impl")[0] for name in done.stdout.split() if name != "impl"]  # min and max of two numbers
    assert sorted(named) == [
        "_digamma_and_excess", "_moments", "_move", "_newton", "_regress", "_row_moments", "_settle",
        "_share_out",
    ]  # fmt: skip


def test_code_that_numba_kept_itself_is_compiled_again(folder):
    """It has no checksum."""
    dispatcher = compiled_on_disk()(FunctionType(double.__code__, {"__name__": "math"}, "double"))
    dispatcher.enable_caching()
    assert dispatcher(3) == 6
    assert [found_on_disk(), found_on_disk()] == [False, True]


class FullDisk(io.BytesIO):
    def write(self, _):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_does_not_end_the_program(folder, monkeypatch):
    def opened(path, mode):
        return FullDisk() if "w" in mode else path_open(path, mode)

    path_open = open
    monkeypatch.setattr(caching, "open", opened, raising=False)
    assert [found_on_disk(), found_on_disk()] == [False, False]
    monkeypatch.undo()
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(folder))
    assert [found_on_disk(), found_on_disk()] == [False, True]


def test_a_folder_that_cannot_be_written_to_keeps_nothing(folder, monkeypatch):
    """As in a container; here any warning is an error."""

    def refused(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(caching.tempfile, "TemporaryFile", refused)  # how Numba tries whether it can be written to
    assert [found_on_disk(), found_on_disk()] == [False, False]
    assert not list(folder.rglob("*.nb?"))


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="permissions of POSIX systems")
@pytest.mark.parametrize("mode", [0o777, 0o707, 0o770])
def test_code_that_others_could_have_written_does_not_run(folder, mode):
    """Nor is anything unpickled: a file of others is not opened."""
    assert [found_on_disk(), found_on_disk()] == [False, True]
    (inner,) = {path.parent for path in folder.rglob("*.nbi")}
    os.chown(inner, -1, next(group for group in range(5000, 6000) if not compiling._is_of_one_user(group)))
    inner.chmod(mode)
    assert not found_on_disk()
    inner.chmod(0o700)
    assert found_on_disk()


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="permissions of POSIX systems")
def test_folders_of_others_are_not_trusted(folder, monkeypatch):
    assert compiling.is_trusted(folder)
    owner = folder.stat().st_uid
    monkeypatch.setattr(compiling, "__file__", "/usr/bin/env")  # a package that is not the user's
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    assert compiling.is_trusted(folder) == (Path("/usr/bin").stat().st_uid == owner)
    monkeypatch.setattr(compiling, "__file__", str(folder / "inner" / "file"))
    (folder / "inner").mkdir()
    assert compiling.is_trusted(folder), "who owns the package may write its code"


NOWHERE = """
import numba.core.caching as caching
def refused(*_, **__): raise PermissionError(13, "Permission denied")
caching.tempfile.TemporaryFile = refused  # how Numba tries whether a folder can be written to
import numpy as np
from bayesnmf.kernels.cpu.draws import gamma_draws
print(gamma_draws(np.ones((2, 2)), 1).shape)
"""


@pytest.mark.long
def test_nothing_can_be_written_anywhere(tmp_path):
    """In a process of its own: neither the package's folder nor a home."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-W", "error", "-c", NOWHERE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "(2, 2)\n", "")
    assert not list(tmp_path.rglob("*.nb?"))
