"""Keep on disk what XLA compiled, so that a later process runs the same program on arrays of the same shapes at once.

Programs lie in a folder beside the code of the kernels, if that may be trusted (`bayesnmf.kernels.cpu.compiling`): what
is read from there runs. Each is found by a digest of its text and of all that XLA's answer depends on besides. None are
kept on other devices than the CPU, where the user has given JAX another default device, or a cache of his own
(`jax_compilation_cache_dir`: what was read from there lacks parts if it is written again), and with the environment
variable BAYESNMF_KEEP_PROGRAMS=0. JAX's settings stay as they are.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

import jax
import jaxlib
import numpyro
from jax.experimental.serialize_executable import deserialize_and_load, serialize
from llvmlite.binding import get_host_cpu_features, get_host_cpu_name

from bayesnmf.kernels.cpu.compiling import trusted_folder
from bayesnmf.writing import remove, write_bytes

VARIABLE = "BAYESNMF_KEEP_PROGRAMS"
MOST_FILES = 40  # of about a megabyte


def compile_kept(lowered: Any) -> Any:
    """Return the program of `jax.jit(f).lower(…)`, compiled, or as an earlier process compiled and kept it."""
    folder = _folder()
    if folder is None:
        return lowered.compile()
    path = folder / f"{_digest(lowered)}.xla"
    found = _read(path)
    if found is None:
        found = lowered.compile()
        _write(path, found)
    return found


def _folder() -> Path | None:
    """Return the folder of programs, or None where none are kept."""
    own = jax.config.jax_compilation_cache_dir is not None or jax.config.jax_default_device is not None
    off = os.environ.get(VARIABLE) == "0" or own
    if off or jax.default_backend() != "cpu":
        return None
    return trusted_folder("programs")


def _digest(lowered: Any) -> str:
    """Return a digest of a program, of the names of arguments and results, of versions, of settings and of the CPU."""
    parts = (
        lowered.as_text(), lowered.in_tree, lowered.out_tree, jax.__version__, jaxlib.__version__, numpyro.__version__,
        sorted(jax.config.values.items()), os.environ.get("XLA_FLAGS"), jax.devices(), get_host_cpu_name(),
        get_host_cpu_features().flatten(),
    )  # fmt: skip
    return hashlib.blake2b("\n".join(map(str, parts)).encode(), digest_size=16).hexdigest()


def _read(path: Path) -> Any:
    """Return the program of a file, or None if there is none, or another than was written."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    if crc32(content[4:]).to_bytes(4, "big") != content[:4]:
        return None
    try:
        program, given, returned = pickle.loads(content[4:])
        # On the first device: a program for all of them refuses arrays where `numpyro.set_host_device_count` made many.
        found = deserialize_and_load(program, given, returned, execution_devices=jax.devices()[:1])
    except (AttributeError, ImportError, ValueError, RuntimeError):  # of another build of a library
        return None
    with suppress(OSError):
        os.utime(path)  # the files that are read least are removed first
    return found


def _write(path: Path, program: Any) -> None:
    """Write a program to a file, and remove the oldest of too many files."""
    try:
        content = pickle.dumps(serialize(program))
    except (AttributeError, TypeError, ValueError, RuntimeError, pickle.PicklingError):
        return  # arguments of a class that another process cannot find, or a program that JAX cannot serialise
    with suppress(OSError):  # such as a full disk: the program is in memory
        write_bytes(path, crc32(content).to_bytes(4, "big") + content)
        files = sorted(path.parent.glob("*.xla"), key=lambda each: each.stat().st_mtime)
        for each in files[:-MOST_FILES]:
            remove(each)
