"""The docstrings of the API: each public name has "See Also" and an example, and all examples run."""

import doctest
import inspect
import re
from functools import reduce

import pytest
from test_guides import from_site

import bayesnmf


def public() -> dict:
    """Return the public functions and classes by name, without the NumPyro programs, which import nothing else."""
    reference = from_site("reference")
    names = [name for group in reference.GROUPS.values() for name, _ in reference.entries(group)]
    return {name: reference.find(name) for name in names if not name.startswith("bayesnmf.models")}


PUBLIC = public()
SLOW = {  # examples of more than a second; the first two compile the NumPyro programs of all models for half a minute
    f"bayesnmf.{name}" for name in ("Equivalences", "equivalences", "report", "Batch", "Consensus", "compare", "select")
}


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_points_to_others_and_has_an_example(name):
    text = inspect.getdoc(PUBLIC[name])
    assert "See Also\n--------" in text
    shown_in_gallery = name.startswith("bayesnmf.plots.")  # its code and picture stand on the page of the figure
    assert shown_in_gallery or "Examples\n--------" in text


@pytest.mark.parametrize("name", PUBLIC)
def test_see_also_names_what_exists(name):
    section = re.search(r"See Also\n-+\n(.*?)(\n\n|$)", inspect.getdoc(PUBLIC[name]), re.DOTALL)
    named = [
        each.strip().removeprefix("bayesnmf.")
        for line in section[1].splitlines()
        if not line.startswith(" ")
        for each in line.partition(" : ")[0].split(",")
    ]
    assert named
    for each in named:
        own, _, _ = name.removeprefix("bayesnmf.").rpartition(".")
        assert any(exists(place) for place in (each, f"{own}.{each}")), each


def exists(name: str) -> bool:
    """Return whether the package has a name, with dots, as a reader would write it."""
    try:
        return reduce(getattr, name.split("."), bayesnmf) is not None
    except AttributeError:
        return False


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.long if n in SLOW else ()) for n in PUBLIC])
@pytest.mark.filterwarnings("ignore::bayesnmf.ConvergenceWarning")  # examples are small; some are stopped early
def test_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for example in doctest.DocTestFinder(recurse=False).find(PUBLIC[name], name, globs={}):
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        said: list[str] = []
        runner.run(example, out=said.append)
        assert not runner.summarize(verbose=False).failed, "".join(said)
