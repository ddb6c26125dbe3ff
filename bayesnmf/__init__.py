"""Bayesian non-negative matrix factorisation of counts.

Public names are imported on first use: `import bayesnmf` itself loads nothing larger than NumPy.
"""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np  # noqa: F401  what everything rests on, loaded here so that a first use is not slower for it

from bayesnmf.groups import GROUPS
from bayesnmf.needs import absent_names, needed_for

__version__ = "0.2.0"

# The homes of the public names, as `__init__.pyi` states them for type checkers, too.
_STATED = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_HOMES = {"models": "bayesnmf"} | {
    each.names[0].name: each.module for each in _STATED.body if isinstance(each, ast.ImportFrom)
}

GONE = {"absence": "1 - bayesnmf.assign(fit.counts, fit).presence, whose chances are calibrated"}

__all__ = ["__version__", *sorted({*_HOMES} - absent_names())]

_root = Path(__file__).parent.parent
if not (_root / "bayesnmf" / "models").exists() and (_root / "models" / "likelihood.py").exists():
    __path__.append(str(_root))  # a checkout that is not installed: models/ is next to the package


def __getattr__(name: str) -> Any:
    if name in GROUPS:
        return import_module(f"bayesnmf.{name}")
    if name in _HOMES:
        home = _HOMES[name]
        try:
            return import_module(f"bayesnmf.{name}") if home == "bayesnmf" else getattr(import_module(str(home)), name)
        except ModuleNotFoundError:
            with needed_for(f"bayesnmf.{name}"):
                raise
    if name in GONE:
        raise AttributeError(f"bayesnmf.{name} is gone; call {GONE[name]}")
    from bayesnmf.checks import did_you_mean

    raise AttributeError(f"module 'bayesnmf' has no attribute {name!r}{did_you_mean(name, __dir__())}")


def __dir__() -> list[str]:
    return sorted({*__all__, *GROUPS})  # what an interactive session completes
