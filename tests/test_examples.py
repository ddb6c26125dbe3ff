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
    f"bayesnmf.{name}"
    for name in ("Equivalences", "NUTS", "equivalences", "report", "Batch", "Consensus", "compare", "select")
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


ENTRY = re.compile(r"^((?:\*{0,2}\w+, )*\*{0,2}\w+)( : .*)?$")


def entries_of(text: str, section: str) -> list[list[str]]:
    """Return the names of each entry of a section of a docstring."""
    found = re.search(rf"^{section}\n-+\n((?:.*\n)*?)(?=[A-Z][\w ]*\n-+\n|\Z)", f"{text}\n", re.MULTILINE)
    matches = map(ENTRY.fullmatch, found[1].splitlines() if found else ())
    return [match[1].replace("*", "").split(", ") for match in matches if match]


def called_by_users(name: str) -> list:
    """Return a public function; of a class, itself unless functions make it, and its methods."""
    value = PUBLIC[name]
    methods = [each for _, each in inspect.getmembers(value, inspect.isfunction) if not each.__name__.startswith("_")]
    made = name.removeprefix("bayesnmf.") in from_site("reference").RESULTS
    return [*([] if made else [value]), *methods] if inspect.isclass(value) else [value]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_parameter_has_an_entry_of_its_own_or_with_one_other(name):
    """An editor shows the entry of the argument that is being written, and no other."""
    for value in filter(callable, called_by_users(name)):
        text = inspect.getdoc(value) or ""
        entries = entries_of(text, "Parameters") or entries_of(text, "Attributes") * inspect.isclass(value)
        if entries:  # short methods say it in a sentence
            asked = {*inspect.signature(value).parameters} - {"self", "cls"}
            assert asked <= {each for entry in entries for each in entry}, value
            assert not [entry for entry in entries if len(entry) > 2], value


def test_entries_of_a_docstring_are_found():
    text = "Do it.\n\nParameters\n----------\na, b : int\n    Two.\n**more\n\nReturns\n-------\nc : int"
    assert entries_of(text, "Parameters") == [["a", "b"], ["more"]]
    assert entries_of(text, "Attributes") == []


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
