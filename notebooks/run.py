"""Execute notebooks from top to bottom; with --write, save the outputs.

Call ``python notebooks/run.py [--write] [--jobs N] [NAME …]``, where a NAME is the beginning of a file name, as in
``05``. By default all notebooks are run, as in CI, two at a time where there are two cores; with --write one after the
other, since they print seconds. It fails if a cell raises or warns. It prints seconds, and whether a notebook took more
than 60, or all together more than 300; this is no failure, since machines differ.

Notebooks about real data list the files that they need in their metadata, as ``{"bayesnmf": {"data": ["nips"]}}``. They
are left out, with a message, where the folder that BAYESNMF_DATA names (or ../shared/data beside the repository, which
is then passed on under this name) does not have them. Opened by themselves, they download data with a public source.
"""

import argparse
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent
LONGEST, LONGEST_TOGETHER = 60, 300
# of kernels: nothing in a notebook may warn unseen; readers see cautions as warnings; tqdm misses an unused widget
STRICT = "error::UserWarning,ignore:IProgress not found"


def data_folder() -> Path:
    """Return the folder of real data, and let notebooks find it; without one, parts about real data are left out."""
    beside = FOLDER.parents[1] / "shared" / "data"
    if "BAYESNMF_DATA" not in os.environ and beside.is_dir():
        os.environ["BAYESNMF_DATA"] = str(beside)
    return Path(os.environ.get("BAYESNMF_DATA", beside))


def execute(path: Path, write: bool) -> float:
    """Run one notebook in a fresh kernel; return the seconds it took."""
    notebook = nbformat.read(path, as_version=4)
    started = time.perf_counter()
    NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}}
    ).execute()
    seconds = time.perf_counter() - started
    if write:
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)
        notebook.metadata.pop("language_info", None)
        nbformat.write(notebook, path)
    return seconds


def chosen(names: list[str]) -> list[Path]:
    """Return the notebooks whose file names begin with one of the names, or all; exit if a name matches none."""
    everything = sorted(FOLDER.glob("*.ipynb"))
    for name in names:
        if not any(path.name.startswith(name) for path in everything):
            sys.exit(f"no notebook begins with {name!r}: choose from {', '.join(path.stem for path in everything)}")
    return [path for path in everything if not names or path.name.startswith(tuple(names))]


def missing_data(path: Path) -> list[str]:
    """Return the names of the files that a notebook needs and that are not there."""
    needed = nbformat.read(path, as_version=4).metadata.get("bayesnmf", {}).get("data", [])
    folder = data_folder()
    return [name for name in needed if not (folder / f"{name}.npz").is_file()]


def runnable(paths: list[Path]) -> list[Path]:
    """Return the notebooks whose data are there; print which are left out."""
    found = []
    for path in paths:
        missing = missing_data(path)
        if missing:
            print(f"{path.name}: left out, as {', '.join(missing)} is not in the folder of BAYESNMF_DATA", flush=True)
        else:
            found.append(path)
    return found


def report(label: str, seconds: float, limit: float) -> None:
    """Print the seconds, and whether there are too many."""
    note = f", longer than {limit} s" if seconds > limit else ""
    print(f"{label}: {seconds:.1f} s{note}", flush=True)


def main() -> int:
    """Run the requested notebooks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="beginning of a file name, as in 05; all by default")
    parser.add_argument("--write", action="store_true", help="write the outputs into the notebooks")
    parser.add_argument("--jobs", type=int, metavar="N", help="notebooks that are run at a time")
    asked = parser.parse_args()
    jobs = asked.jobs or (1 if asked.write else min(2, os.cpu_count() or 1))
    if jobs > 1:  # threads of libraries that wait for each other's cores take a third of the time
        for library in ("OMP", "OPENBLAS", "MKL"):
            os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    os.environ["PYTHONWARNINGS"] = STRICT
    os.environ["BAYESNMF_PROGRESS"] = "0"  # no line in the outputs that are committed
    started = time.perf_counter()
    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(execute, path, asked.write): path for path in runnable(chosen(asked.names))}
        try:
            for done in as_completed(running):
                report(running[done].name, done.result(), LONGEST)
        except BaseException:
            pool.shutdown(cancel_futures=True)  # what has not begun is not run
            raise
    report("together", time.perf_counter() - started, LONGEST_TOGETHER)
    return 0


if __name__ == "__main__":
    sys.exit(main())
