"""Which tests depend on rounding: the suite again with perturbed starts, and with other processors' arithmetic.

``python tests/robustness.py [--only NAME ...] [--out FOLDER] [pytest arguments]`` runs the tests under each condition
below, one after another, and prints which fail under which, the comparisons that come within a factor of ten of their
tolerance and move between conditions, and the speed of the allocation step under each name of a processor. A test that
passes here and fails elsewhere compares something that is not mathematically fixed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

HERE = Path(__file__).parent
NEAR, MOVED = 0.1, 1e-3  # shares of the tolerance: nearer than this is reported if rounding moves it by that much

NO_AVX512 = "X86_V4 AVX512_ICL AVX512_SPR"
CONDITIONS = {
    "as it is": {},
    "start + 1e-13": {"BAYESNMF_PERTURB": "1e-13"},
    "start + 1e-13, again": {"BAYESNMF_PERTURB": "1e-13", "BAYESNMF_PERTURB_SEED": "1"},
    "one thread": {"NUMBA_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    "haswell": {
        "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": "",
        "NPY_DISABLE_CPU_FEATURES": NO_AVX512,
        "OPENBLAS_CORETYPE": "Haswell",
        "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
    },
    "generic": {
        "NUMBA_CPU_NAME": "generic",
        "NUMBA_CPU_FEATURES": "",
        "NPY_DISABLE_CPU_FEATURES": f"X86_V3 {NO_AVX512}",
        "OPENBLAS_CORETYPE": "Nehalem",
        "XLA_FLAGS": "--xla_cpu_max_isa=SSE4_2",
    },
    "OpenBLAS of Zen": {"OPENBLAS_CORETYPE": "Zen"},
    "OpenBLAS of Sandybridge": {"OPENBLAS_CORETYPE": "Sandybridge"},
    "OpenBLAS of SkylakeX": {"OPENBLAS_CORETYPE": "SkylakeX"},
}
# These hold a start that is given against itself, to the bit, or against formulas that begin at the one not moved.
OF_THE_START_ITSELF = (
    "test_every_statement_holds_and_says_what_it_needs",
    "test_it_prints_in_120_columns_and_saves",
    "test_every_statement_holds_on_digits",
    "test_every_statement_holds_on_odd_shapes",
    "test_fractions_skip_what_needs_whole_numbers",
    "test_it_fails_where_something_is_wrong_and_only_there",
    "test_a_wrong_exposure_is_found",
    "test_starting_distributions_broadcast",
    "test_a_fit_of_any_model_starts_any_other",
    "test_a_fit_that_is_started_from_keeps_nothing_else_of_it",
)
SPEED = """
import time
import numpy as np, scipy.sparse as sp
from bayesnmf.kernels.cpu.allocation import expected_allocations
rng = np.random.default_rng(0)
X = sp.random_array((4000, 3000), density=0.02, format="csr", rng=rng, data_sampler=rng.standard_exponential)
U, V = rng.gamma(1.0, size=(4000, 32)), np.asfortranarray(rng.gamma(1.0, size=(32, 3000)))
seconds = []
for _ in range(8):
    begun = time.perf_counter()
    expected_allocations(X, U, V, threads=1)
    seconds.append(time.perf_counter() - begun)
print(f"{X.nnz * 32 / min(seconds) / 1e9:.2f}")
"""


def available(settings: dict[str, str]) -> bool:
    """Whether this processor can run the kernels that the settings ask for."""
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else "avx2"
    needs = {"SkylakeX": "avx512f", "Haswell": "avx2", "Zen": "avx2", "Sandybridge": "avx"}.get(
        settings.get("OPENBLAS_CORETYPE", ""), ""
    )
    return needs in flags


def environment(name: str, out: Path) -> dict[str, str]:
    """Return the environment of a condition, with a cache of its own for code compiled for another processor."""
    settings = CONDITIONS[name]
    own = {"NUMBA_CACHE_DIR": str(out / "cache" / name)} if "NUMBA_CPU_NAME" in settings else {}
    path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    return {**os.environ, **settings, **own, "PYTHONPATH": path}


def run(name: str, out: Path, arguments: list[str]) -> dict[str, str]:
    """Run the tests under one condition; return the first line of the message of each that failed."""
    slug = "".join(letter if letter.isalnum() else "_" for letter in name)
    report, margins = out / f"{slug}.xml", out / f"{slug}.json"
    words = ["-p", "rounding", "-n", "0", "-q", "-m", "", "--tb=short", f"--junitxml={report}", *arguments]
    settings = {**environment(name, out), "BAYESNMF_MARGINS": str(margins)}
    if "BAYESNMF_PERTURB" in settings and "-k" not in arguments:
        words += ["-k", f"not ({' or '.join(OF_THE_START_ITSELF)})"]
    with (out / f"{slug}.log").open("w", encoding="utf-8") as log:
        command = [sys.executable, "-m", "pytest", *words]
        ended = subprocess.run(command, env=settings, cwd=HERE.parent, stdout=log, check=False).returncode
    if not report.exists():
        return {"the whole run": f"ended with code {ended}; its log is {log.name}"}
    failed = {}
    for case in ElementTree.parse(report).iter("testcase"):
        for outcome in (*case.findall("failure"), *case.findall("error")):
            test = f"{case.get('classname', '').rsplit('.', 1)[-1]}::{case.get('name')}"
            failed[test] = (outcome.get("message") or "").strip().splitlines()[0][:80]
    return failed


def near(out: Path, names: list[str]) -> list[tuple[float, float, str]]:
    """Return the comparisons near their tolerance that rounding moves: largest share, by how much it moves, place."""
    found: dict[str, list[float]] = {}
    for name in names:
        slug = "".join(letter if letter.isalnum() else "_" for letter in name)
        margins = out / f"{slug}.json"
        recorded = json.loads(margins.read_text(encoding="utf-8")) if margins.exists() else {}
        for place, share in recorded.items():
            found.setdefault(place, []).append(share)
    moved = [(max(shares), max(shares) - min(shares), place) for place, shares in found.items()]
    return sorted((each for each in moved if each[0] > NEAR and each[1] > MOVED), reverse=True)


def main(words: list[str]) -> int:
    """Run all conditions and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=CONDITIONS, default=list(CONDITIONS), metavar="NAME")
    parser.add_argument("--out", type=Path, help="folder for logs, margins and compiled code; by default a new one")
    options, arguments = parser.parse_known_args(words)
    out = (options.out or Path(tempfile.mkdtemp(prefix="robustness-"))).resolve()
    out.mkdir(parents=True, exist_ok=True)
    failures, ran = {}, []
    for name in options.only:
        if not available(CONDITIONS[name]):
            print(f"{name}: this processor cannot run it", flush=True)
            continue
        ran.append(name)
        failures[name] = run(name, out, arguments)
        speed = subprocess.run(
            [sys.executable, "-c", SPEED], env=environment(name, out), capture_output=True, text=True, check=True
        ).stdout.strip()
        print(
            f"{name}: {len(failures[name])} failed; allocation step {speed} billion entries × components a second",
            flush=True,
        )
    for test in sorted({test for each in failures.values() for test in each}):
        print(f"\n{test}")
        for name in ran:
            if test in failures[name]:
                print(f"    {name}: {failures[name][test]}")
    print(f"\nNearer than {NEAR:g} of the tolerance, and moved by rounding (share of the tolerance, moved by, place):")
    for share, change, place in near(out, ran):
        print(f"    {share:8.3f} {change:8.3f}  {place}")
    return int(any(failures.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
