"""The pages of the API: which public names stand on which, each with the docstring of its home."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import NamedTuple

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
        "`bayesnmf.fit` fits any model by any method, and returns a `Fit`. `bayesnmf.__version__` is the version.",
        ("fit", "Fit", "load", "MinibatchVI", "ConvergenceWarning"),
    ),
    "options": Group(
        "Options of the methods",
        "Each method has a class of options, given as `fit(..., options=...)`. What is left out is chosen.",
        ("MAP", "VI", "BLD", "Gibbs", "NUTS", "SMC", "SVI", "Start", "Checkpoint"),
    ),
    "priors": Group(
        "Priors and noise",
        "A model is a pair of priors; [models and priors](../models.md) lists those that each model allows. "
        "[Noise](../noise.md) is how counts vary around their means.",
        (
            "Priors", "Gamma", "Dirichlet", "ScaledDirichlet", "HierarchicalGamma", "NegativeBinomial", "Quasi",
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
            "markers", "group_contrasts", "assign", "Assignment", "absence", "match", "Match", "coherence",
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
        "All figures; the [gallery](../gallery.md) shows each. `plots.METHOD_COLOURS` maps methods to their colours.",
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
        "Every model as a NumPyro program, which imports nothing from the rest of the package. Each module of a model "
        "has the same five functions: `program`, `guide`, `augmented`, `augmented_guide`, `augmented_bound`; "
        "[the pages of the models](../models.md) show their files.",
        ("models",),
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


def home_of(name: str) -> str | None:
    """Return the module and name under which a public function or class is defined; None for a constant."""
    value = bayesnmf
    for part in name.split("."):
        value = getattr(value, part)
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
RESULTS = ("Fit", "ConvergenceWarning", "Selection", "Modes", "Consensus", "ModeEvidence", "PredictiveChecks",
           "LeaveOneOut", "Match", "LinearResponse", "TopicModel", "Agreement", "Counts", "DataWarning", "Simulation",
           "Equivalences", "Calibration", "datasets.RealCounts")  # fmt: skip


def write_page(group: Group) -> str:
    """Return the Markdown of a page of the API, which mkdocstrings completes."""
    blocks = [f"# {group.title}\n\n{group.about}\n"]
    for name, home in entries(group):
        short = name.split(".", 1)[1]
        options = {
            "heading": name,
            "toc_label": name.rsplit(".", 1)[1],
            "merge_init_into_class": str(short not in RESULTS).lower(),
        }
        lines = [f"::: {home}", "    options:", *(f"      {key}: {value}" for key, value in options.items())]
        blocks.append("\n".join(lines) + "\n")
    return "\n".join(blocks)
