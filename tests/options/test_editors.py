"""What an editor offers after a call, and while it is written; what type checkers say of code of users."""

import ast
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

import bayesnmf
from bayesnmf import types
from bayesnmf.groups import GROUPS
from bayesnmf.noise.words import NOISES
from bayesnmf.options import METHODS
from bayesnmf.options.algorithms import algorithms_of
from bayesnmf.options.checks import types_of
from bayesnmf.priors.specification import MODELS
from bayesnmf.studies.selection.selecting import BUILT_IN

USER_CODE = Path(__file__).parents[1] / "typing" / "user_code.py"
COMMANDS = {
    # A cache of its own: under other rules, mypy would throw away the one of the package.
    "mypy": [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--config-file", "pyproject.toml",
             "--cache-dir", ".pytest_cache/mypy"],
    "basedpyright": ["basedpyright", "--level", "error", "--pythonpath", sys.executable],
}  # fmt: skip


@pytest.mark.parametrize(
    ("call", "offered"),
    [("fit([[1]])", "summary"), ("select([[1]])", "best"), ("modes([[1]])", "best"), ("load('fit.nc')", "transform")],
)
def test_an_editor_completes_what_a_call_returns(call, offered):
    jedi = pytest.importorskip("jedi")
    code = f"import bayesnmf\nfound = bayesnmf.{call}\nfound.{offered[:3]}"
    assert offered in {each.name for each in jedi.Script(code).complete(3, 9)}


@pytest.mark.parametrize(
    ("words", "known"),
    [
        (types.ModelWord, MODELS), (types.MethodWord, METHODS), (types.NoiseWord, NOISES),
        (types.CriterionWord, {each.word for each in BUILT_IN}),
    ],
)  # fmt: skip
def test_an_editor_offers_every_word_that_there_is(words, known):
    assert sorted(get_args(words)) == sorted(known)


@pytest.mark.parametrize("method", ["map", "vi", "gibbs"])
def test_the_type_of_an_option_has_every_algorithm(method):
    literal, _ = types_of(METHODS[method].options)["algorithm"]
    assert get_args(literal) == algorithms_of(method)


def test_an_interactive_session_completes_names_in_groups():
    grouped = [name for group in GROUPS.values() for name in group]
    assert sorted({*dir(bayesnmf)} - {*GROUPS}) == sorted(bayesnmf.__all__)  # whose names notebooks import from there
    assert len(grouped) == len(set(grouped))
    for group, names in GROUPS.items():
        assert group in dir(bayesnmf)
        assert dir(getattr(bayesnmf, group)) == sorted(names)
        assert all(getattr(getattr(bayesnmf, group), name) is getattr(bayesnmf, name) for name in names)


@pytest.mark.parametrize("group", GROUPS)
def test_type_checkers_see_the_names_of_groups(group):
    stub = Path(bayesnmf.__file__).parent / group / "__init__.pyi"
    stated = {alias.name for each in ast.parse(stub.read_text(encoding="utf-8")).body[1:] for alias in each.names}
    assert {*GROUPS[group]} <= stated <= {*GROUPS[group], *getattr(getattr(bayesnmf, group), "__all__", ())}


@pytest.mark.long
@pytest.mark.parametrize("checker", COMMANDS)
def test_code_of_users_has_the_types_that_it_says(checker):
    """
    A wrong keyword must be an error, too: `type: ignore` of what is none is one.

    Silent imports, because from a checkout the strict rules would else be asked of the library as well.
    """
    if not (importlib.util.find_spec(checker) if checker == "mypy" else shutil.which(checker)):
        pytest.skip(f"{checker} is not installed")
    folder = Path(bayesnmf.__file__).parents[1]
    done = subprocess.run([*COMMANDS[checker], str(USER_CODE)], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
