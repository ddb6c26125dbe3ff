"""Rules of the code base that no reviewer should have to remember."""

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted([*(ROOT / "bayesnmf").rglob("*.py"), *(ROOT / "models").rglob("*.py")])

# Rooms from the ground up: a file imports only what stands in its own room or in one before it, inside functions too.
ROOMS = [
    "models", "groups", "needs", "types", "text", "checks", "writing", "cards", "questions", "places", "kernels.cpu",
    "kernels.gpu", "noise", "priors", "options", "data", "data.blocks", "datasets", "inference", "inference.blocked",
    "inference.checkpoints", "inference.ascent", "inference.response", "inference.marginal", "inference.starts",
    "inference.device", "inference.sampling", "inference.tempering", "results", "fitting", "tl", "assessment",
    "theorems", "studies", "studies.stability", "studies.selection", "studies.calibration", "estimators", "plots",
    "studies.comparison", "pages", "cli", "__main__",
]  # fmt: skip


@cache
def text_of(path: Path) -> str:
    """Return the source of a file."""
    return path.read_text(encoding="utf-8")


@cache
def tree_of(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(text_of(path))


def name_of(path: Path) -> str:
    """Return the dotted name of a module: `bayesnmf` itself, or what follows it."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "models" else parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {name_of(path): path for path in FILES}


@cache
def room(name: str) -> str:
    """Return the longest of `ROOMS` that a module stands in; what starts a folder of rooms belongs to the first."""
    inside = [each for each in ROOMS if name == each or name.startswith(f"{each}.")]
    return max(inside, key=len) if inside else min((each for each in ROOMS if each.startswith(name)), key=ROOMS.index)


@cache
def imports_of(path: Path) -> frozenset[str]:
    """Modules of the package that a file imports, at its top, inside functions or for type checking."""
    found = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found |= {
                alias.name.removeprefix("bayesnmf.") for alias in node.names if alias.name.startswith("bayesnmf.")
            }
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "bayesnmf":
            folder = (node.module or "").removeprefix("bayesnmf").removeprefix(".")
            inner = {f"{folder}.{alias.name}".removeprefix(".") for alias in node.names}
            found |= {name if name in NAMES else folder for name in inner} - {""}
    return frozenset(found)


def test_imports_point_down() -> None:
    """Of all files but the one of the public names, each of which is imported on first use."""
    rising = [
        f"{name} imports {imported}, which stands above it"
        for name, path in NAMES.items() if name
        for imported in imports_of(path) if ROOMS.index(room(imported)) > ROOMS.index(room(name))
    ]  # fmt: skip
    assert not rising


def test_no_file_imports_itself_by_way_of_others() -> None:
    """Not by imports inside functions either, which hide a circle from Python but not from a reader."""
    graph = {name: imports_of(path) for name, path in NAMES.items() if name}
    list(TopologicalSorter(graph).static_order())
    graph["checks"] = frozenset({"cli"})
    with pytest.raises(CycleError):  # a circle would be seen
        list(TopologicalSorter(graph).static_order())


def test_algorithms_do_not_ask_where_counts_lie() -> None:
    """They are stated once, as work on a block of rows (`bayesnmf.inference.blocked.passes`)."""
    asking = [name for name, path in NAMES.items() if re.search(r"\bin_memory\b", text_of(path))]
    assert {name for name in asking if room(name).startswith("inference")} == {
        "inference.blocked.passes",  # the one place that decides
        "inference.device.placing",
    }
    assert len(asking) <= 10  # lower it with every file fewer
    assert not [name for name in NAMES if name.endswith("on_disk")]


KINDS = {
    *("Poisson", "NegativeBinomial", "Quasi"),
    *(f"{kind}Counts" for kind in ("Wrapped", "Powered", "Dispersed", "Clustered", "Rated", "Uniformised", "Batched")),
}


def asks_for_kinds(tree: ast.AST) -> list[str]:
    """Return what a syntax tree asks of the class or the word of a noise, or of the class of counts with one."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call | ast.Compare | ast.MatchClass):
            continue
        named = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} & KINDS
        called = getattr(getattr(node, "func", None), "id", "") if isinstance(node, ast.Call) else ""
        if named and (called in ("isinstance", "issubclass") or isinstance(node, ast.MatchClass)):
            found.append(f"{node.lineno}: {ast.unparse(node)}")
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            types = any(isinstance(each, ast.Call) and getattr(each.func, "id", "") == "type" for each in sides)
            words = any(isinstance(each, ast.Attribute) and each.attr in ("word", "variance") for each in sides)
            texts = any(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in sides)
            if (named and types) or (words and texts):
                found.append(f"{node.lineno}: {ast.unparse(node)}")
        if called in ("getattr", "hasattr") and "noise" in ast.unparse(node.args[0]):
            found.append(f"{node.lineno}: {ast.unparse(node)}")
    return found


def test_nothing_asks_which_noise_it_is() -> None:
    """What a noise can do is an ability, and what its counts ask of a routine is an answer of these."""
    for path in FILES:
        if room(name_of(path)) != "noise":
            assert not asks_for_kinds(tree_of(path)), path
    for code in ("isinstance(x, A | Quasi)", "type(x) is Poisson", "noise.word == 'nb1'", "getattr(noise, 'by', None)"):
        assert asks_for_kinds(ast.parse(code)), code


def test_rooms_are_few() -> None:
    folders = {path.parent.name for path in (ROOT / "bayesnmf").glob("*/__init__.py")}
    assert len(folders) <= 16
    assert folders == {each.split(".")[0] for each in ROOMS} & folders


def test_tests_mirror_the_rooms() -> None:
    tests = ROOT / "tests"
    folders = {path.parent.name for path in tests.glob("*/test_*.py")}
    assert folders <= {each.split(".")[0] for each in ROOMS}
    names = [path.name for path in tests.rglob("test_*.py")]
    assert len(names) == len(set(names)), "pytest takes files of one name in two folders for one module"


def test_models_import_nothing_of_the_package() -> None:
    for path in (ROOT / "models").glob("*.py"):
        assert not re.search(r"^\s*(from|import) bayesnmf", text_of(path), re.MULTILINE), path


def test_compiled_loops_stand_in_the_kernels_alone() -> None:
    """The allocation step exists once: loops over nonzeros are compiled in `kernels` and nowhere else."""
    using = {path for path in FILES if re.search(r"\bnjit\b|@compiled_(on_disk|for_kernels)\(", text_of(path))}
    assert {room(name_of(path)).split(".")[0] for path in using} == {"kernels"}
    using |= {path for path in FILES if re.search(r"@instruction|\bintrinsic\b", text_of(path))}
    assert {room(name_of(path)).split(".")[0] for path in using} == {"kernels"}
    dividing = re.compile(r"fdiv\(.*\bmean_?\b|divide\(x, mean\b|/ mean\b")
    kernels = ROOT / "bayesnmf" / "kernels"
    dividers = [path for path in sorted(kernels.rglob("*.py")) if dividing.search(text_of(path))]
    found = [str(path.relative_to(kernels)) for path in dividers]
    # By nonzeros; whole, by BLAS; on a GPU. Coordinate descent weighs the nonzeros of a row by their means, too;
    # the tangent is the derivative of the step by nonzeros.
    assert found == [
        "cpu/allocation.py",
        "cpu/dense.py",
        "cpu/regression.py",
        "cpu/tangent.py",
        "gpu/allocation.py",
        "gpu/warps.py",
    ]


def test_user_errors_are_raised_by_checks() -> None:
    """ValueError and TypeError come from the checks of each room, and from what reads, converts and writes data.

    Rooms of one file check by themselves, and so do objects that say themselves what they take.
    """
    allowed = {"cli/arguments", "cli/reading",
               "data/annotated", "data/batches", "data/blocks/sources", "data/blocks/store", "data/conversion",
               "data/covariates/formulas", "data/covariates/design", "data/labels", "data/layouts",
               "data/matrix_files", "data/naming", "data/real", "data/files", "data/several", "data/tables",
               "fitting/elsewhere", "fitting/own_programs", "fitting/recognition",
               "results/annotation", "results/storage", "results/codec", "options/methods", "tl"}  # fmt: skip
    free = {ROOT / "bayesnmf" / f"{name}.py" for name in (*allowed, "places")}
    for path in FILES:
        own = {
            id(node)
            for kind in ast.walk(tree_of(path)) if isinstance(kind, ast.ClassDef)
            for each in kind.body if isinstance(each, ast.FunctionDef) and each.name in ("check", "__post_init__")
            for node in ast.walk(each)
        }  # fmt: skip
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                name = getattr(node.exc.func, "id", "")
                fine = path in free or path.name == "checks.py" or path.parent.name == "models" or id(node) in own
                assert fine or name not in ("ValueError", "TypeError"), f"{path}:{node.lineno}"


def test_nothing_is_swallowed() -> None:
    for path in FILES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ExceptHandler):
                assert node.type is not None, f"{path}:{node.lineno} catches everything"
                assert not isinstance(node.body[0], ast.Pass), f"{path}:{node.lineno} passes over an error"


def test_every_package_ships() -> None:
    """The list of packages in pyproject.toml names every folder with an __init__.py."""
    listed = set(re.findall(r'^    "(bayesnmf[\w.]*)",$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE))
    present = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "bayesnmf").rglob("__init__.py")} | {
        "bayesnmf.models"
    }
    assert listed == present


def loaded_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.split()}


HEAVY = {"scipy", "numba", "jax", "numpyro", "arviz", "xarray", "pandas", "matplotlib", "sklearn", "rich"}


def test_import_loads_nothing_heavier_than_numpy() -> None:
    loaded = loaded_after("import bayesnmf")
    assert "numpy" in loaded
    assert not loaded & HEAVY


def test_closed_form_fits_load_no_jax_and_no_arviz() -> None:
    """Nor does asking for a GPU, before there is a fit."""
    fits = "[bayesnmf.fit([[1, 2], [3, 4]], rank=1, method=method, seed=0) for method in ('map', 'vi')]"
    loaded = loaded_after(f"import bayesnmf; bayesnmf.VI(device='gpu'); {fits}")
    assert "numba" in loaded
    assert not loaded & {"jax", "numpyro", "arviz", "arviz_base", "arviz_stats", "xarray", "pandas", "matplotlib"}


def test_import_sets_no_global_state() -> None:
    """Whatever is imported in this process, JAX and NumPy are as they come."""
    import jax
    import numpy as np
    from bayesnmf.models import poisson

    from bayesnmf.fitting import fit, nuts_and_svi

    assert None not in (fit, nuts_and_svi, poisson)
    assert not jax.config.jax_enable_x64
    assert np.geterr() == {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}


def test_public_names_exist_and_are_documented() -> None:
    import bayesnmf

    for name in bayesnmf.__all__:
        value = getattr(bayesnmf, name)
        assert name.startswith("__") or value.__doc__, f"{name} has no docstring"


def test_compiled_code_is_kept_under_a_digest_of_all_kernels() -> None:
    """Numba looks at one file only: a change of another, compiled in, once left old machine code running."""
    from numba.core.dispatcher import Dispatcher

    from bayesnmf.kernels.cpu import allocation, regression, sampling, urn
    from bayesnmf.kernels.cpu.compiling import DIGEST

    for path in (ROOT / "bayesnmf" / "kernels" / "cpu").glob("*.py"):
        assert path.name == "compiling.py" or "njit(" not in text_of(path), path
    named = [value for module in (allocation, regression, sampling, urn) for value in vars(module).values()]
    dispatchers = [value for value in named if isinstance(value, Dispatcher)]
    assert len(dispatchers) > 10
    assert all(each.py_func.__qualname__.endswith(DIGEST) for each in dispatchers)
    # The same source with other globals inside: apart by name only.
    twins = (allocation._SCATTER, allocation._GATHER, allocation._GATHER_ONLY)
    assert len({each.py_func.__qualname__ for each in twins}) == 3


def test_loops_are_compiled_once_for_any_number_of_threads() -> None:
    """Threads are Python's (`kernels/cpu/threads.py`): Numba's own would compile every loop again."""
    for path in FILES:
        assert not re.search(r"\bprange\b|parallel=True", text_of(path)), path
