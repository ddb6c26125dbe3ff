"""What pages say: the texts of `words.toml`, with numbers and names in their places."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from importlib.resources import files
from typing import Any

import bayesnmf
from bayesnmf.priors.specification import MODELS
from bayesnmf.priors.unknown import unknown_side
from bayesnmf.results.record import FitRecord


def _on_one_line(value: Any) -> Any:
    """Return texts without their line breaks; code keeps them."""
    if isinstance(value, dict):
        return {name: each if name == "code" else _on_one_line(each) for name, each in value.items()}
    return re.sub(r"\s*\n", " ", value).strip(" ")


WORDS: dict[str, Any] = _on_one_line(
    tomllib.loads(files("bayesnmf.pages").joinpath("words.toml").read_text(encoding="utf-8"))
)
TERMS: dict[str, str] = WORDS["terms"]


def say(name: str, **values: Any) -> str:
    """Return the text of a name, as "failed.idle", with these values in their places."""
    words = WORDS
    *tables, last = name.split(".")
    for table in tables:
        words = words[table]
    return str(words[last].format(**values))


def model_in_words(fit: FitRecord) -> str:
    """Return what a fit is a fit of: its model, or the likelihood alone where its prior is unknown."""
    unknown = unknown_side(fit.priors)
    if unknown is None or MODELS[fit.model].loadings != "positive":
        return say(f"models.{fit.model}.told")
    return str(WORDS["unknown"][unknown.told])


def counted(number: int, what: str) -> str:
    """Return a number of things: "1 sample", "2 samples"."""
    return f"{number:,} {what}{'s' if number != 1 else ''}"


def listed(names: Iterable[str], most: int = 8) -> str:
    """Return names as a list in a sentence: "a", "a and b", "a, b and 3 more"."""
    first, rest = (chosen := list(names))[:most], len(chosen) - most
    if rest > 0:
        first = [*first, f"{rest:,} more"]
    return " and ".join([", ".join(first[:-1]), first[-1]] if len(first) > 1 else first)


def capital(text: str) -> str:
    """Return a text that begins with a capital letter."""
    return text[:1].upper() + text[1:]


def terms_in(text: str) -> dict[str, str]:
    """Return the terms that occur in a text, in singular or plural, with their definitions, in the order of `TERMS`."""
    return {term: told for term, told in TERMS.items() if _pattern_of(term).search(text)}


def _pattern_of(term: str) -> re.Pattern[str]:
    plural = f"{re.escape(term[:-1])}(?:y|ies)" if term.endswith("y") else f"{re.escape(term)}s?"
    return re.compile(rf"(?<![\w-]){plural}(?!\w)", re.IGNORECASE)


def references_of(model: str, methods: Iterable[str], more: Iterable[str] = ()) -> list[str]:
    """Return what to cite for a model, methods and what is computed besides, each once."""
    used = [WORDS["models"][model], *(WORDS["methods"][method] for method in methods)]
    own = say("cite.package", version=bayesnmf.__version__)
    return list(dict.fromkeys([own, *(each["cite"] for each in used if "cite" in each), *map(say, more)]))
