"""Options of a fit: one frozen class for each method, and a start."""

from typing import Any

from bayesnmf.groups import GROUPS, member_of
from bayesnmf.options.classes import BLD, MAP, NUTS, SMC, SVI, VI, Gibbs
from bayesnmf.options.methods import FOREIGN, METHODS, Method, Options, method_of, methods_with, options_of
from bayesnmf.options.start import Start

__all__ = [
    "BLD",
    "FOREIGN",
    "MAP",
    "METHODS",
    "NUTS",
    "SMC",
    "SVI",
    "VI",
    "Gibbs",
    "Method",
    "Options",
    "Start",
    "method_of",
    "methods_with",
    "options_of",
]


def __getattr__(name: str) -> Any:
    return member_of("options", name)


def __dir__() -> list[str]:
    return [*GROUPS["options"]]
