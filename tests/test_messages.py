"""Messages can be pasted: every call and every setting that a string of the package names exists, as it is written.

Calls of the package stand with `bayesnmf.` or with the object they belong to, so that pasting them works.
"""

import ast
import inspect
import re
from functools import cache, cached_property
from pathlib import Path

import pytest

import bayesnmf
from bayesnmf.assessment.evidence import PARTICLES
from bayesnmf.noise.words import NOISES
from bayesnmf.options import METHODS
from bayesnmf.options.algorithms import ALGORITHMS
from bayesnmf.priors.specification import MODELS
from bayesnmf.studies.comparison.comparing import Comparison
from bayesnmf.studies.selection.selecting import CRITERIA

PACKAGE = Path(bayesnmf.__file__).parent
# Texts of other languages: shell commands, formulas of theorems.
ELSEWHERE = ("cli", "theorems", "kernels", "inference/marginal")
OBJECTS = {
    "fit": (bayesnmf.Fit,), "first": (bayesnmf.Fit,), "reference": (bayesnmf.Fit,), "gibbs": (bayesnmf.Fit,),
    "found": (bayesnmf.Modes, bayesnmf.Assignment, bayesnmf.LinearResponse, bayesnmf.LeaveOneOut, bayesnmf.Selection,
              bayesnmf.PredictiveChecks, Comparison),
}  # fmt: skip
# Names of other libraries, of what the reader has, and of densities.
OF_OTHERS = {
    "CountVectorizer", "make_pipeline", "scanpy", "anndata", "adata", "np", "pd", "pandas", "scipy", "frame", "labels",
    "x", "X", "each", "covariates", "sklearn", "generator", "stream", "int", "range", "print", "exp", "log", "p", "C",
    "counts", "numpyro",
}  # fmt: skip
CALL = re.compile(r"(?<![\w.])(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*\((?!\))|(?<![\w.])(?:[A-Za-z_]\w*\.)+[A-Za-z_]\w*\(\)")
WORDS = {
    "method": (*METHODS, *PARTICLES), "model": MODELS, "noise": NOISES, "algorithm": ALGORITHMS, "criterion": CRITERIA,
    "missing": ("nan", "zeros"), "device": ("cpu", "gpu", "gpus"), "dtype": ("float32", "float64"),
    "basis": ("natural", "log"), "schedule": ("joint", "alternating"), "layout": ("long", "wide"),
}  # fmt: skip
SETTING = re.compile(r"(?<![\w.\"'])([a-z_]+)=('[^']*'|\"[^\"]*\")")


def strings_of(tree: ast.Module) -> dict[int, str]:
    """Return the texts of a module by line, without its docstrings; what f-strings fill in is "…"."""
    holders = (ast.FunctionDef, ast.ClassDef, ast.Module)
    left_out: set[int] = set()
    found = {}
    for each in ast.walk(tree):  # from the outside in
        if isinstance(each, holders) and each.body and isinstance(each.body[0], ast.Expr):
            left_out.add(id(each.body[0].value))
        elif isinstance(each, ast.JoinedStr) and id(each) not in left_out:
            left_out |= {id(part) for part in each.values}
            found[each.lineno] = "".join(p.value if isinstance(p, ast.Constant) else "…" for p in each.values)
        elif isinstance(each, ast.Constant) and isinstance(each.value, str) and id(each) not in left_out:
            found[each.lineno] = each.value
    return found


@cache
def messages() -> list[tuple[str, str]]:
    """Return the sentences of the package, each with its place; patterns with alternatives are none."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        place = str(path.relative_to(PACKAGE))
        text = path.read_text(encoding="utf-8")
        if not place.startswith(ELSEWHERE) and ("raise " in text or "caution" in text or "warn" in text):
            tree = ast.parse(text)
            found += [
                (f"{place}:{line}", text) for line, text in strings_of(tree).items() if " " in text and "|" not in text
            ]
    return found


def whole_call(text: str, start: int) -> str:
    """Return the text of a call from its start to the bracket that closes it; to the end if none does."""
    depth = 0
    for end, letter in enumerate(text[start:], start):
        depth += (letter == "(") - (letter == ")")
        if letter == ")" and not depth:
            return text[start : end + 1]
    return text[start:]


def keywords_of(called) -> set[str] | None:
    """Return the names of the arguments of a function; None if it takes any."""
    parameters = inspect.signature(called).parameters.values()
    return None if any(each.kind is each.VAR_KEYWORD for each in parameters) else {each.name for each in parameters}


def any_call(*args, **settings):
    """Stand for what is reached over an attribute of an object, which is not looked at."""


def reached(owner, path: list[str]):
    """Return what a chain of names leads to from a module or a class; None if it leads nowhere."""
    for step in path:
        stored = inspect.isclass(owner) and step in getattr(owner, "__dataclass_fields__", ())
        owner = any_call if stored else getattr(owner, step, None)
        if owner is None:
            return None
        if owner is any_call or isinstance(owner, property | cached_property):
            return any_call
    return owner


def fault_of_call(call: str) -> str:
    """Return why a call in a sentence cannot be pasted; "" if it can."""
    name = call.partition("(")[0]
    root, *path = name.split(".")
    if root in OF_OTHERS:
        return ""
    if root != "bayesnmf" and not (root in OBJECTS and path):
        return f"{name} stands without the object it belongs to"
    owners = (bayesnmf,) if root == "bayesnmf" else OBJECTS[root]
    called = [each for each in (reached(owner, path) for owner in owners) if each is not None]
    if not called:
        return f"there is no {name}"
    inner = [whole_call(call, each.start()) for each in CALL.finditer(call, len(name) + 1)]
    given = keywords_in(call) - {word for each in inner for word in keywords_in(each)}
    if not any(allowed is None or given <= allowed for allowed in map(keywords_of, called)):
        return f"{name} does not take {given}"
    return ""


def keywords_in(call: str) -> set[str]:
    return set(re.findall(r"[(,]\s*(\w+)=", call))


def faults(text: str) -> list[str]:
    """Return what cannot be pasted of a sentence."""
    found = [fault_of_call(whole_call(text, each.start())) for each in CALL.finditer(text)]
    for name, value in SETTING.findall(text):
        if name in WORDS and "…" not in value and value.strip("'\"") not in WORDS[name]:
            found.append(f"{name} has no word {value}")
    return [each for each in found if each]


def test_every_call_of_a_message_can_be_pasted():
    assert len(messages()) > 1000
    assert not {place: found for place, text in messages() if (found := faults(text))}


@pytest.mark.parametrize(
    "text",
    [
        "use VI(max_iter=500)", "give bayesnmf.VI(max_iters=500)", "make them with with_intervals('sampled')",
        "see bayesnmf.selection(counts)", "give fit.interval('sampled')", "use method='mcmc'",
    ],
)  # fmt: skip
def test_what_cannot_be_pasted_is_found(text):
    assert faults(text)


@pytest.mark.parametrize(
    "text",
    ["use bayesnmf.VI(max_iter=500)", "give bayesnmf.Priors(components=bayesnmf.Gamma(0.3, 0.3))", "log p(X) is lower"],
)
def test_what_can_be_pasted_is_left_alone(text):
    assert not faults(text)
