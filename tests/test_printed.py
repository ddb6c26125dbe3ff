"""Printed is run: every block of Python and every call in backticks of the pages runs on small counts.

By default with fewer steps where a call leaves them to the defaults (`printed.QUICK`), and with two of several ranks;
the long tests run the blocks as they stand.
"""

import re
import sys
import warnings
from contextlib import nullcontext
from types import ModuleType
from unittest.mock import MagicMock

import matplotlib.pyplot as plt
import pytest
from printed import (
    ELSEWHERE,
    OF_PAGES,
    PAGES,
    ROOT,
    Names,
    blocks_of,
    calls_of,
    quick,
    run_code,
    scanpy_of_guides,
    statement_of,
    write_files,
)

import bayesnmf

RANKS = re.compile(r"ranks=range\((\d+), [^)]*\)")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with the files that pages name."""
    folder = tmp_path_factory.mktemp("printed")
    write_files(folder)
    return folder


@pytest.fixture
def elsewhere(files, monkeypatch):
    """Run in the folder of the files; libraries of other machines, as of a cluster, take every call."""
    monkeypatch.chdir(files)
    monkeypatch.setitem(sys.modules, "scanpy", scanpy_of_guides())
    for name in ("dask_jobqueue", "dask_kubernetes", "dask_kubernetes.operator", "distributed"):
        monkeypatch.setitem(sys.modules, name, MagicMock(spec=ModuleType, **{f"{each}.return_value": None for each in ()}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bayesnmf.ConvergenceWarning)
        warnings.simplefilter("ignore", bayesnmf.DataWarning)
        warnings.filterwarnings("ignore", message=".*infer_string")  # of pandas, about what anndata sets
        yield
    plt.close("all")


def run_page(page, *, calls: bool, shortened: bool):
    """Run the blocks of a page in order, in one set of names, and then the calls in backticks of its text."""
    title = str(page.relative_to(ROOT))
    names = Names(**OF_PAGES.get(title, dict)())
    for block in blocks_of(page):
        for path, here in ELSEWHERE.items():
            block = block.replace(path, here)
        run_code(RANKS.sub(r"ranks=(\1, \1 + 1)", block) if shortened else block, names, title)
    for call in calls_of(page.read_text(encoding="utf-8")) if calls else ():
        own = names.copy()
        run_code(statement_of(RANKS.sub(r"ranks=(\1, \1 + 1)", call), own), own, f"{title}: {call}")
        plt.close("all")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_prints_runs(page, elsewhere):
    with quick():
        run_page(page, calls=True, shortened=True)


@pytest.mark.long
@pytest.mark.parametrize("page", [page for page in PAGES if blocks_of(page)], ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run_as_they_stand(page, elsewhere):
    with nullcontext():
        run_page(page, calls=False, shortened=False)
