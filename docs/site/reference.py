"""The pages of the API: which public names stand on which, each with the docstring of its home."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import cache, reduce
from pydoc import locate
from typing import NamedTuple, cast

import gallery
from gallery_page import body_of

import bayesnmf


class Group(NamedTuple):
    """A page of the API: its title, what it is about, and its names, with those of modules after a dot."""

    title: str
    about: str
    names: tuple[str, ...]


def names_of(module: str) -> tuple[str, ...]:
    """Return the public names of a module of the package."""
    return tuple(f"{module}.{name}" for name in getattr(bayesnmf, module).__all__)


GROUPS = {
    "fits": Group(
        "Fits",
        "`bayesnmf.fit` fits any model by any method and returns a `bayesnmf.Fit`. `bayesnmf.__version__` is a string.",
        ("fit", "from_draws", "Fit", "load", "which", "MinibatchVI", "ConvergenceWarning"),
    ),
    "options": Group(
        "Options of the methods",
        "Each method has a class of options, given as `fit(..., options=...)`. What is left out is chosen. "
        "`bayesnmf.options`, `bayesnmf.priors` and `bayesnmf.results` complete the names of each kind.",
        ("MAP", "VI", "BLD", "Gibbs", "NUTS", "SMC", "SVI", "Start", "Checkpoint"),
    ),
    "priors": Group(
        "Priors and noise",
        "A model is a pair of priors; :doc:`models and priors </models>` lists those that each model allows. "
        ":doc:`Noise </noise>` is how counts vary around their means.",
        (
            "Priors", "Gamma", "Dirichlet", "ScaledDirichlet", "HierarchicalGamma", "NegativeBinomial", "Quasi",
            "ZeroInflated",
            "Seeds", "Batch",
        ),
    ),
    "choosing": Group(
        "Choosing and checking",
        "How many components, how many factorisations, and whether the model could have made the counts.",
        (
            "select", "Selection", "modes", "Modes", "Consensus", "ModeEvidence", "predictive_checks",
            "PredictiveChecks", "loo", "LeaveOneOut", "log_evidence", "log_p_allocation", "elbo_augmented",
            "elbo_marginal",
        ),
    ),
    "findings": Group(
        "From a fit to findings",
        "What sets components apart, where they are used, how sure this is, and a report of it.",
        (
            "markers", "group_contrasts", "assign", "Assignment", "match", "Match", "coherence",
            "linear_response", "LinearResponse", "to_topic_model", "from_topic_model", "TopicModel", "to_pyldavis",
            "report", "browse",
        ),
    ),
    "comparing": Group(
        "Comparing methods",
        "Several methods side by side, and how far their posteriors agree.",
        ("compare", "Settings", "posterior_agreement", "Agreement"),
    ),
    "data": Group(
        "Counts and data sets",
        "Counts in memory, in files and on disk; counts that are simulated, built in or public.",
        (
            "read_counts", "read_catalogue", "as_counts", "Counts", "DataWarning", "Blocks", "simulate", "Simulation",
            "datasets",
        ),
    ),
    "plots": Group(
        "Plots",
        "All figures; the :doc:`/gallery` shows each. `plots.METHOD_COLOURS` maps methods to their colours.",
        ("plots",),
    ),
    "estimators": Group(
        "Estimators and AnnData",
        "Estimators for pipelines of scikit-learn, and a function that fits and writes into AnnData.",
        ("BayesNMF", "BayesLDA", "tl"),
    ),
    "theorems": Group(
        "Theorems and calibration",
        "Checks of the theorems on your own counts, and simulation-based calibration of the posteriors.",
        ("equivalences", "Equivalences", "Effort", "calibrate", "Calibration"),
    ),
    "programs": Group(
        "NumPyro programs",
        "Every model as a NumPyro program, which imports nothing from the rest of the package: `bayesnmf.models` has "
        "`poisson`, `gamma_poisson`, `dirichlet_poisson`, `dirichlet_gamma` and `hierarchical_poisson`, and each of "
        "these `program`, `guide`, `augmented`, `augmented_guide` and `augmented_bound`. :doc:`The models as programs "
        "</programs>` runs them; :doc:`the pages of the models </models>` show their files. `bayesnmf.conjugate_block` "
        "draws the factors of a program of your own.",
        ("conjugate_block", "ConjugateBlock", "models"),
    ),
}  # fmt: skip

MODULES = {
    "datasets": lambda: names_of("datasets"),
    "plots": lambda: names_of("plots"),
    "tl": lambda: ("tl.fit",),
}
PROGRAMS = ("likelihood.PoissonProduct", "likelihood.Triplets", "likelihood.poisson_product", "augmentation.SharedOut",
            "augmentation.mean_field", "augmentation.with_allocations", "augmentation.mean_field_with_allocations",
            "augmentation.with_expected_allocations", "factors.draw")  # fmt: skip


def find(name: str) -> object:
    """Return a public object, whose name may be that of a module, too, as of `bayesnmf.plots.modes`."""
    if name.startswith("bayesnmf.models."):
        return locate(name)
    return reduce(getattr, name.split(".")[1:], bayesnmf)


def home_of(name: str) -> str | None:
    """Return the module and name under which a public function or class is defined; None for a constant."""
    value = find(f"bayesnmf.{name}")
    documented = inspect.isclass(value) or inspect.isroutine(value)
    return f"{value.__module__}.{value.__qualname__}" if documented else None


def entries(group: Group) -> Iterator[tuple[str, str]]:
    """Yield the public names of a page and their homes."""
    for name in group.names:
        if name == "models":
            yield from ((f"bayesnmf.models.{inner}", f"models.{inner}") for inner in PROGRAMS)
            continue
        for each in MODULES[name]() if name in MODULES else (name,):
            home = home_of(each)
            if home is not None:
                yield f"bayesnmf.{each}", home


# What functions return: their attributes matter, not how they are made.
RESULTS = ("Fit", "Selection", "Modes", "Consensus", "ModeEvidence", "PredictiveChecks", "LeaveOneOut", "Match",
           "LinearResponse", "TopicModel", "Agreement", "Counts", "Simulation", "Assignment", "Equivalences",
           "Calibration", "ConjugateBlock", "datasets.RealCounts")  # fmt: skip


INNER = ("of", "card")  # which the package itself calls, as most of what counts can do
OF_COUNTS = ("dtype", "nnz", "rows", "shape")


def members_of(cls: type) -> Iterator[str]:
    """Yield the methods and properties of a class that are for users: not those that algorithms or NumPyro call."""
    if cls.__module__.startswith(("bayesnmf.priors", "bayesnmf.models")):
        return
    for name, member in inspect.getmembers(cls):
        function = member.fget if isinstance(member, property) else member
        home = getattr(function, "__module__", None) or ""
        written = inspect.isroutine(function) and home.startswith("bayesnmf") and inspect.getdoc(function)
        shown = name in OF_COUNTS if cls is bayesnmf.Counts else name not in INNER
        if written and shown and not name.startswith("_"):
            yield name


def made_pages() -> dict[str, str]:
    """Return the pages of the API by their place on the site: the groups, and each object."""
    made = {"reference/index.rst": index()}
    for title, group in GROUPS.items():
        names = [name for name, _ in entries(group)]
        made[f"reference/{title}.rst"] = page_of_group(group, names)
        made |= {f"{page(name)}.rst": page_of_object(name) for name in names}
    return made


INSIDE = re.compile(r"\s*\((?:see )?`(bayesnmf\.[\w.]+)`\)")
SEEN_INSIDE = re.compile(r"(?:[;,:]?\s+[sS]ee|;)\s`(bayesnmf\.[\w.]+)`(?:\s+for\s[^.]*)?\.?(?=\n|$)")
OWN_FIT = re.compile(r"^fit : .*\n(?: +.*\n)*", re.MULTILINE)


@cache
def on_pages() -> frozenset[str]:
    """Return the public names that have a page, those of methods and properties, and those of groups."""
    objects = {name for group in GROUPS.values() for name, _ in entries(group)}
    classes = [name for name in objects if inspect.isclass(find(name))]
    members = {f"{name}.{each}" for name in classes for each in members_of(cast(type, find(name)))}
    groups = {f"bayesnmf.{name}" for name in ("datasets", "models", "options", "plots", "priors", "results", "tl")}
    return frozenset(objects | members | groups | {"bayesnmf.__version__"})


def without_inside(text: str) -> str:
    """Return a docstring for the site, which has no pages of what is inside the package.

    A pointer to the function that does the work becomes the rest of its docstring, without the fit that it takes. One
    to a module goes.
    """
    told = ""

    def show(match: re.Match[str]) -> str:
        nonlocal told
        if match[1] in on_pages():
            return match[0]
        inner = locate(match[1])
        if not inspect.ismodule(inner):
            told = OWN_FIT.sub("", (inspect.getdoc(inner) or "").partition("\n")[2])
        told = told.replace("Parameters\n----------\n\n", "")
        return "" if "See" in match[0] else "."

    text = SEEN_INSIDE.sub(show, text)
    text = f"{text.rstrip()}\n{told}" if told else text
    return INSIDE.sub(lambda match: match[0] if match[1] in on_pages() else "", text)


def page(name: str) -> str:
    """Return where the page of an object stands; no two names differ only in case, which some disks ignore."""
    return f"reference/{name}" + ("-class" if inspect.isclass(find(name)) else "")


def heading(title: str) -> str:
    """Return a title as reStructuredText."""
    return f"{title}\n{'=' * len(title)}\n"


def table(names: list[str]) -> str:
    """Return a table of names with their first sentences, each of which links to its page."""
    return "\n".join([".. autosummary::", "   :nosignatures:", "", *(f"   {name}" for name in names), ""])


def index() -> str:
    """Return the page that leads to the groups."""
    lines = [f"   * - :doc:`{group.title} <{name}>`\n     - {group.about}" for name, group in GROUPS.items()]
    menu = "\n".join([".. toctree::", "   :hidden:", "", *(f"   {name}" for name in GROUPS), ""])
    return "\n".join([heading("API"), ".. list-table::", "   :widths: 30 70", "", *lines, "", menu])


def page_of_group(group: Group, names: list[str]) -> str:
    """Return the page of a group: what it is about, and a table of its names."""
    below = (f"   {name.removeprefix('bayesnmf.')} </{page(name)}>" for name in names)
    menu = "\n".join([".. toctree::", "   :hidden:", "", *below, ""])
    shown = table([f"~{name}" for name in names])
    return "\n".join([heading(group.title), group.about, "", shown, menu])


def page_of_object(name: str) -> str:
    """Return the page of a function, or of a class with a table of its methods and properties on top."""
    found = find(name)
    kind, members = "autofunction", []
    if inspect.isclass(found):
        kind, members = "autoclass", [f"{name}.{each}" for each in members_of(found)]
    parts = [heading(name), f".. currentmodule:: {name.rpartition('.')[0]}\n"]
    if members:
        parts.append(table(["~" + member.removeprefix(f"{name.rpartition('.')[0]}.") for member in members]))
    parts.append(f".. {kind}:: {name}\n")
    for member in members:
        is_property = not inspect.isroutine(getattr(found, member.rpartition(".")[2]))
        parts.append(f"   .. {'autoproperty' if is_property else 'automethod'}:: {member}\n")
    if name.startswith("bayesnmf.plots."):
        parts.append(pictures(name.removeprefix("bayesnmf.plots.")))
    return "\n".join(parts)


def pictures(figure: str) -> str:
    """Return the examples of a figure as the gallery has them."""
    parts = []
    for name, function in gallery.entries().items():
        if gallery.figure_of(name) == figure:
            code = textwrap.indent(body_of(function), "   ")
            label = f":ref:`{name} in the gallery <gallery-{name}>`"
            parts += [f"{inspect.getdoc(function)} ({label})\n", f".. code-block:: python\n\n{code}\n",
                      f".. image:: /gallery/{name}.png\n   :alt: {name}\n"]  # fmt: skip
    return "\n".join([".. rubric:: Gallery", "", *parts])
