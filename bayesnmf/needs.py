"""Say what to install where a library is not there, as in a light installation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

# What pip installs for a module that is missing: with arviz comes xarray, and with numpyro JAX.
PACKAGES = {
    "anndata": "anndata",
    "arviz": "arviz[h5netcdf]",
    "arviz_stats": "arviz[h5netcdf]",
    "jax": "numpyro",
    "jinja2": "jinja2",
    "markupsafe": "jinja2",
    "matplotlib": "matplotlib",
    "numpyro": "numpyro",
    "sklearn": "scikit-learn",
    "xarray": "arviz[h5netcdf]",
}
# Public names whose module imports such a library at its top.
NAMES = {
    "sklearn": ("BayesLDA", "BayesNMF"),
    "matplotlib": ("browse", "plots", "report"),
    "arviz_stats": ("LeaveOneOut", "loo"),
    "numpyro": ("ConjugateBlock", "conjugate_block", "equivalences", "models"),
}


def absent_names() -> set[str]:
    """Return the public names that a light installation lacks, which no ``import *`` may ask for."""
    return {name for module, names in NAMES.items() if find_spec(module) is None for name in names}


@contextmanager
def needed_for(what: str) -> Iterator[None]:
    """Import libraries inside; for one that is missing, say what needs it, and what to install.

    Raises
    ------
    ImportError
        One of the modules of `PACKAGES` is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in PACKAGES:
            raise
        package, _, extras = PACKAGES[module].partition("[")
        install = f"'{PACKAGES[module]}'" if extras else package
        told = f"{what} needs {package}, which is not installed: pip install {install}"
        raise ImportError(told, name=module) from error
