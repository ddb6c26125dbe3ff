"""Execute every notebook from top to bottom; with --write, keep the outputs.

``python notebooks/run.py`` is what CI runs: it fails on the first cell that raises or warns.
"""

import argparse
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent


def execute(path: Path, write: bool) -> float:
    """Run one notebook in a fresh kernel; return the seconds it took."""
    notebook = nbformat.read(path, as_version=4)
    started = time.perf_counter()
    NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}}
    ).execute()
    if write:
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)
        notebook.metadata.pop("language_info", None)
        nbformat.write(notebook, path)
    return time.perf_counter() - started


def main() -> int:
    """Run them all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the outputs into the notebooks")
    write = parser.parse_args().write
    for path in sorted(FOLDER.glob("*.ipynb")):
        print(f"{path.name}: {execute(path, write):.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
