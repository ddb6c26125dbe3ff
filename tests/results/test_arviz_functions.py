"""Every function of ArviZ on trees of every method: the tables of docs/arviz_functions.md."""

import inspect
import logging
import sys
from pathlib import Path

import arviz_plots
import arviz_stats
import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
sys.path.insert(0, str(DOCS))
import arviz_functions  # noqa: E402


def public(module):
    """Return the names of the functions of a module, and of the plots alone of the module of plots."""
    return {
        name
        for name, value in vars(module).items()
        if callable(value) and not inspect.isclass(value) and not name.startswith("_")
    }


def test_every_function_of_arviz_is_in_one_of_the_tables():
    known = [*arviz_functions.CALLS, *arviz_functions.OUTSIDE]
    assert len(known) == len(set(known))
    assert set(known) == public(arviz_stats) | public(arviz_plots)
    page = (DOCS / "arviz_functions.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in known)
    assert "\n".join(arviz_functions.outside()) in page


@pytest.mark.long
def test_the_page_is_what_is_found():
    """If not: `python docs/arviz_functions.py`."""
    logging.disable(logging.WARNING)
    try:
        assert (DOCS / "arviz_functions.md").read_text(encoding="utf-8") == arviz_functions.page()
    finally:
        logging.disable(logging.NOTSET)
