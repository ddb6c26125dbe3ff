"""Printed is run: every block of Python and every call in backticks of the pages runs on small counts.

With fewer steps where a call leaves them to the defaults (`printed.QUICK`), and with two of several ranks.
"""

import ast
import inspect
import re
import sys
import warnings
from unittest.mock import MagicMock

import matplotlib.pyplot as plt
import pytest
from printed import (
    ELSEWHERE,
    OF_PAGES,
    PAGES,
    REFUSED,
    ROOT,
    Names,
    blocks_of,
    calls_of,
    public,
    quick,
    run_code,
    scanpy_of_guides,
    statement_of,
    topic_pages,
    write_files,
)

import bayesnmf
from bayesnmf.data.real import FOLDER
from bayesnmf.inference.status import FitWarning
from bayesnmf.priors.specification import MODELS

# Pages whose calls take a few seconds together; the others are run by the long tests.
BRIEF = re.compile(r"docs/(models/(dirichlet_poisson|gamma_poisson)|checkpoints|command_line)\.md")
RANKS = re.compile(r"ranks=range\((\d+), [^)]*\)")


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Run in a folder with the files that pages name; libraries of clusters, which tests lack, take all calls."""
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(FOLDER, str(tmp_path))
    for name, stub in {"scanpy": scanpy_of_guides(), "pyLDAvis": topic_pages()}.items():
        monkeypatch.setitem(sys.modules, name, stub)
    for name in ("dask_jobqueue", "dask_kubernetes", "dask_kubernetes.operator"):
        monkeypatch.setitem(sys.modules, name, MagicMock())
    monkeypatch.setattr("distributed.Client", MagicMock())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        warnings.simplefilter("ignore", bayesnmf.DataWarning)
        warnings.filterwarnings("ignore", message=".*infer_string")  # of pandas, about what anndata sets
        yield
    plt.close("all")


def as_here(code: str) -> str:
    """Return code with paths of this machine, numbers of small counts and two of several ranks."""
    for told, here in ELSEWHERE.items():
        code = code.replace(told, here)
    return RANKS.sub(r"ranks=(\1, \1 + 1)", code)


def names_of(page) -> Names:
    """Return the names of a page after its blocks have run, in order."""
    return Names(**OF_PAGES.get(str(page.relative_to(ROOT)), dict)())


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page, id=(title := str(page.relative_to(ROOT))), marks=() if BRIEF.match(title) else pytest.mark.long
        )
        for page in PAGES
    ],
)
def test_what_a_page_prints_runs(page, elsewhere):
    with quick():
        names = names_of(page)
        for number, block in enumerate(blocks_of(page), 1):
            run_code(as_here(block), names, f"{page.name}, block {number}")
        for call in calls_of(page.read_text(encoding="utf-8")):
            own = names.copy()
            run_code(statement_of(as_here(call), own), own, f"{page.name}: {call}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_calls_refused_is_refused(page):
    """A row of a table that says so of a call, on the page of a model by this model."""
    rows = [found[1] for line in page.read_text(encoding="utf-8").splitlines() if (found := REFUSED.match(line))]
    model = page.stem if page.stem in MODELS else "gamma_poisson"
    for quote in rows:
        names = Names()
        call = f"bayesnmf.fit(counts, {model!r}, 2, options=bayesnmf.VI(max_iter=5), {quote.strip('`')})"
        asked = statement_of(call, names)
        with pytest.raises((TypeError, ValueError)):
            run_code(asked, names, quote)


def test_every_model_says_what_goes_with_it():
    pages = [ROOT / "docs" / "models" / f"{model}.md" for model in MODELS]
    for page in pages:
        asked = {quote.split("=")[0] for quote in calls_of(page.read_text(encoding="utf-8"))}
        refused = {line.split("=")[0].strip("| `") for line in page.read_text().splitlines() if REFUSED.match(line)}
        assert {"noise", "batch", "formula", "missing", "seeds"} <= asked | refused, page


@pytest.mark.parametrize(
    "code", ["bayesnmf.fit(counts, ranks=3)", "fit.tops(3)", "bayesnmf.simulate(model, shape=(3, 2))", "loo(fit)"]
)
def test_what_does_not_run_is_found(code):
    with quick(), pytest.raises((TypeError, ValueError, AttributeError, StopIteration)):
        run_code(statement_of(code, names := Names()), names, code)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_call_in_backticks_names_what_exists(page):
    """Without running it: functions, methods and their arguments."""
    names = Names()
    for quote in calls_of(page.read_text(encoding="utf-8")):
        for node in ast.walk(statement_of(quote, names)):
            called = public(node.func, names) if isinstance(node, ast.Call) else None
            if callable(called):
                taken = inspect.signature(called).parameters
                free = any(each.kind is each.VAR_KEYWORD for each in taken.values())
                given = {each.arg for each in node.keywords if each.arg}
                assert free or given <= {*taken}, quote
