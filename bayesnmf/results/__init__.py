"""The record of a fit, and functions of it: draws, matching, summaries, files."""

from typing import Any

from bayesnmf.groups import GROUPS, member_of


def __getattr__(name: str) -> Any:
    return member_of("results", name)


def __dir__() -> list[str]:
    return [*GROUPS["results"]]
