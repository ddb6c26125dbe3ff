"""What a light installation does, with numpy, scipy, numba, pandas, h5py and rich alone; what the rest asks for."""

import ast
import json
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest
import smallfits

import bayesnmf
from bayesnmf import cli
from bayesnmf.needs import NAMES, PACKAGES, absent_names

ROOT = Path(__file__).parents[1]
LIGHT = {"numpy", "scipy", "numba", "llvmlite", "pandas", "h5py", "rich"}
NOT_LIGHT = {name for names in NAMES.values() for name in names}
COUNTS = smallfits.COUNTS

pytestmark = smallfits.quietly


@cache
def tops_of(module):
    """Return the modules that a file of the package imports when it is imported itself."""
    path = ROOT.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            files = {name for name in inner if ROOT.joinpath(*name.split(".")).with_suffix(".py").is_file()}
            found |= files | {node.module}
    return found


@cache
def reached_from(module):
    """Return all modules that are loaded with one of the package."""
    found, waiting = set(), {module}
    while waiting:
        each = waiting.pop()
        found.add(each)
        if each.partition(".")[0] == "bayesnmf" and not each.startswith("bayesnmf.models"):
            parents = {each.rpartition(".")[0]} - {""}
            waiting |= (tops_of(each) | parents) - found
    return found


def test_all_public_names_but_a_few_load_only_light_libraries():
    heavy = set()
    for name, home in bayesnmf._HOMES.items():
        roots = {
            module.partition(".")[0] for module in reached_from(f"bayesnmf.{name}" if home == "bayesnmf" else home)
        }
        heavy |= {name} if roots - LIGHT - {"bayesnmf"} - set(sys.stdlib_module_names) else set()
    assert heavy | {"models"} == NOT_LIGHT


def test_what_cannot_be_had_is_in_no_star_import(monkeypatch):
    assert absent_names() == set()
    monkeypatch.setattr("bayesnmf.needs.find_spec", lambda module: None if module == "sklearn" else module)
    assert absent_names() == {"BayesLDA", "BayesNMF"}


def test_what_is_asked_for_is_what_the_package_depends_on():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    stated = [*project["dependencies"], *project["optional-dependencies"]["files"]]
    names = {each.split(">")[0].split("[")[0] for each in stated}
    assert {each.split("[")[0] for each in PACKAGES.values()} <= names


CALLS = {
    "fit.summary needs arviz": ("arviz", lambda: smallfits.fit("gamma_poisson", "gibbs").summary()),
    "fit.to_datatree needs arviz": ("xarray", lambda: smallfits.fit("gamma_poisson", "vi").to_datatree()),
    "fit.to_anndata needs anndata": ("anndata", lambda: smallfits.fit("gamma_poisson", "vi").to_anndata()),
    "method='nuts' needs numpyro": ("jax", lambda: bayesnmf.fit(COUNTS, rank=2, method="nuts")),
    "method='svi' needs numpyro": ("jax", lambda: bayesnmf.compare(COUNTS, rank=2, methods=("map", "svi"))),
    "device='gpu' needs numpyro": ("jax", lambda: bayesnmf.fit(COUNTS, rank=2, options=bayesnmf.VI(device="gpu"))),
    "datasets.digits needs scikit-learn": ("sklearn", bayesnmf.datasets.digits),
    "bayesnmf.plots needs matplotlib": ("matplotlib", lambda: bayesnmf.plots),
    "bayesnmf.loo needs arviz": ("xarray", lambda: bayesnmf.loo),
    "bayesnmf.BayesNMF needs scikit-learn": ("sklearn", lambda: bayesnmf.BayesNMF),
}


def hide(library, monkeypatch):
    """Hide a library, and forget what loaded it: the package is as in a new process without it."""
    for name in list(sys.modules):
        if name.startswith("bayesnmf.") and uses(name, library):
            monkeypatch.delitem(sys.modules, name)
            monkeypatch.delattr(bayesnmf, name.removeprefix("bayesnmf."), raising=False)
        if name.partition(".")[0] == library:
            monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, library, None)


@pytest.mark.parametrize("message", CALLS)
def test_what_needs_more_says_what_to_install(message, monkeypatch):
    library, call = CALLS[message]
    hide(library, monkeypatch)
    with pytest.raises(ImportError, match=rf"^{message}, which is not installed: pip install '?[\w-]+"):
        call()


@pytest.mark.parametrize(("command", "library"), [("report", "matplotlib"), ("browse", "markupsafe")])
def test_commands_say_what_to_install(command, library, tmp_path, monkeypatch, capsys):
    smallfits.fit("gamma_poisson", "map").save(tmp_path / "fit.nc")
    hide(library, monkeypatch)
    assert cli.main([command, str(tmp_path / "fit.nc"), "--out", str(tmp_path / "page.html")]) == 2
    said = f"bayesnmf: error: bayesnmf.{command} needs {PACKAGES[library]}, which is not installed: pip install "
    assert capsys.readouterr().err.startswith(said)


def uses(name, library):
    """Return whether a module of the package that is loaded has loaded a library with it."""
    return library in {each.partition(".")[0] for each in reached_from(name)}


REFUSING = """
import sys
sys.modules |= dict.fromkeys({refused!r})  # a module that is None cannot be imported or found
"""
REFUSED = {*PACKAGES, "arviz_base", "arviz_plots", "h5netcdf", "jaxlib", "threadpoolctl"}
WHOLE = (ROOT / ".ci" / "light.py").read_text(encoding="utf-8")


@pytest.mark.long
def test_a_process_without_the_heavy_libraries_fits_saves_and_says_what_it_lacks(tmp_path):
    """What `.ci/wheel` runs in an environment that has only the light ones."""
    code = REFUSING.format(refused=REFUSED) + WHOLE
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == ["map", "vi", "gibbs"]
