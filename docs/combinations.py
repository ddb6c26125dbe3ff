"""Write the tables of docs/combinations.md, from the table that refuses: `python docs/combinations.py`.

`THINGS` are what a call of `bayesnmf.fit` may have, on small counts; `tests/fitting/test_combinations.py` tries all
pairs of them.
"""

from __future__ import annotations

import warnings
from functools import cache
from itertools import combinations
from pathlib import Path
from textwrap import fill
from typing import Any
from unittest.mock import patch

import numpy as np

import bayesnmf
from bayesnmf import Gamma, Priors
from bayesnmf.fitting import fit as fitting
from bayesnmf.noise.poisson import POISSON
from bayesnmf.noise.words import NOISES
from bayesnmf.options import METHODS
from bayesnmf.options.algorithms import methods_for
from bayesnmf.options.checks import SETTINGS
from bayesnmf.options.combinations import (
    BATCH,
    COVARIATES,
    FEATURE_EXPOSURE,
    MISSING,
    ON_DISK,
    ROW_EXPOSURE,
    RULES,
    WEIGHTS,
)
from bayesnmf.options.rules import alternatives

PAGE = Path(__file__).with_suffix(".md")
COUNTS = np.random.default_rng(0).poisson(3, (6, 5)) + 1
FEW = {"chains": 1, "draws": 4, "warmup": 2, "start": "random"}
QUICK: dict[str, dict[str, Any]] = {
    "map": {"max_iter": 3}, "vi": {"max_iter": 3}, "gibbs": FEW, "nuts": FEW, "smc": {"particles": 4, "runs": 1},
    "svi": {"max_iter": 3}, "bld": {"max_iter": 3},
}  # fmt: skip

# Arguments of the call; "options" are settings of the method. What is in brackets gives way to what another thing says.
THINGS: dict[str, dict[str, Any]] = {
    **{f'method="{word}"': {"method": word} for word in METHODS if word != "bld"},
    'method="bld"': {"method": "bld", "(model)": "dirichlet_gamma"},
    'algorithm="scd"': {"method": "map", "options": {"algorithm": "scd"}},
    'algorithm="settled"': {"method": "vi", "options": {"algorithm": "settled"}},
    'algorithm="gradient"': {"method": "vi", "options": {"algorithm": "gradient"}},
    'algorithm="minibatch"': {"method": "vi", "options": {"algorithm": "minibatch"}},
    "learn": {"method": "vi", "options": {"learn": ("components",)}},
    "collapsed=True": {"method": "gibbs", "options": {"collapsed": True}},
    'algorithm="marginal"': {"method": "gibbs", "options": {"algorithm": "marginal"}},
    'model="poisson"': {"model": "poisson"},
    'model="dirichlet_poisson"': {"model": "dirichlet_poisson"},
    'model="dirichlet_gamma"': {"model": "dirichlet_gamma"},
    'model="hierarchical_poisson"': {"model": "hierarchical_poisson"},
    'components="parameter"': {"priors": Priors(components="parameter")},
    **{f'noise="{word}"': {"noise": word} for word in ("nb1", "nb2", "zip", "quasi")},
    "missing entries": {"missing": COUNTS.max() == COUNTS},
    "batch": {"batch": list("aabbab")},
    "covariates": {"covariates": {"age": [1.0, 4.0, 2.0, 8.0, 3.0, 5.0]}},
    "fixed_components": {"fixed_components": np.full((1, 5), 0.2)},
    "drift": {"fixed_components": np.full((1, 5), 0.2), "drift": 100},
    "seeds": {"seeds": {"first": [0, 1, "a: 0"]}},
    "row_exposure": {"row_exposure": [1.0, 2.0, 1.0, 2.0, 1.0, 2.0]},
    "feature_exposure": {"feature_exposure": [1.0, 2.0, 1.0, 2.0, 1.0], "(priors)": Priors(components=Gamma(1, 1))},
    "counts on disk": {"counts": "disk"},
    "several matrices": {"counts": "several"},
    "weights": {"weights": {"b": 2}, "counts": "several"},
    "fractions": {"counts": COUNTS + 0.5},
}  # fmt: skip
COLUMNS = [name for name in THINGS if name.startswith(("method", "noise")) or name in ("missing entries", "batch")]


def merged(one: str, other: str) -> dict[str, Any] | None:
    """Return the arguments of a call with both things; None if both say what one argument is."""
    first, second = THINGS[one], THINGS[other]
    shared = {*first} & {*second} - {"options"}
    if any(first[name] is not second[name] for name in shared) or {*first.get("options", ())} & {
        *second.get("options", ())
    }:
        return None
    call = {**first, **second, "options": {**first.get("options", {}), **second.get("options", {})}}
    for name in [name for name in call if name.startswith("(")]:
        call.setdefault(name.strip("()"), call[name])
        del call[name]
    return call


def arguments(call: dict[str, Any]) -> dict[str, Any]:
    """Return arguments of `bayesnmf.fit` for a call."""
    method = call.get("method", "map")
    settings = {**QUICK[method], **call["options"]}
    if "priors" in call:
        settings["priors"] = call["priors"]
    counts = call.get("counts", COUNTS)
    if isinstance(counts, str):
        counts = bayesnmf.Blocks(COUNTS) if counts == "disk" else {"a": COUNTS[:, :3], "b": COUNTS[:, 3:]}
    own = {name: value for name, value in call.items() if name not in ("options", "priors", "counts")}
    if isinstance(counts, dict) and "missing" in own:
        own["missing"] = {"a": own["missing"][:, :3], "b": own["missing"][:, 3:]}
    return {
        "rank": 2,
        "seed": 0,
        **own,
        "counts": counts,
        "method": method,
        "options": METHODS[method].options(**settings),
    }


@cache
def refusal(one: str, other: str) -> str:
    """Return why a call with both things is refused before any work; "" if it is not."""
    call = merged(one, other)
    assert call is not None
    with patch.object(fitting, "_run", side_effect=BegunError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            bayesnmf.fit(**arguments(call))
        except BegunError:
            return ""
        except (TypeError, ValueError) as error:
            return str(error)
    raise AssertionError("a call neither begins nor is refused")


class BegunError(Exception):
    """The work of a fit begins."""


def pairs() -> list[tuple[str, str]]:
    """Return the pairs of things that a call can have."""
    return [pair for pair in combinations(THINGS, 2) if merged(*pair) is not None]


def matrix() -> list[str]:
    """Return the lines of a table of which things go with which."""
    lines = [
        f"| | {' | '.join(f'`{each}`' if '=' in each else each for each in COLUMNS)} |",
        "|---" * (len(COLUMNS) + 1) + "|",
    ]
    for name in THINGS:
        cells = []
        for column in COLUMNS:
            pair = sorted((name, column), key=[*THINGS].index)
            empty = name == column or merged(*pair) is None
            cells.append("" if empty else "no" if refusal(*pair) else "yes")
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return lines


def rules() -> list[str]:
    """Return the lines of a table of what needs what, each thing once."""
    needs: dict[str, list[str]] = {}
    for thing, need, why in filter(None, (rule.in_docs() for rule in (*SETTINGS, *RULES))):
        needs.setdefault(thing, []).append(f"| {need} | {why} |")
    first = ["| what | needs | what is found otherwise |", "|---|---|---|"]
    return [
        *first,
        *(f"| {'' if place else thing} {line}" for thing in needs for place, line in enumerate(needs[thing])),
    ]


def in_help() -> str:
    """Return what `bayesnmf fit --help` says, of what has no option of its method."""
    lines = ["what goes with what (more: docs/combinations.md):"]
    kinds = ("method=", "noise=", "a model", "a Gamma", "counts of")
    for thing in (BATCH, COVARIATES, MISSING, ON_DISK, WEIGHTS, ROW_EXPOSURE, FEATURE_EXPOSURE):
        needs = [row[1] for rule in RULES if rule.thing is thing and (row := rule.in_docs())]
        words = "; ".join(need.replace("'", "") for need in needs if need.startswith(kinds))
        lines.append(fill(f"{thing.name}: {words}", 78, initial_indent="  ", subsequent_indent="    "))
    for word, noise in NOISES.items():
        if noise != POISSON:
            lines.append(f"  noise={word}: method={alternatives(methods_for(noise)).replace("'", '')}")
    return "\n".join(lines)


def page() -> str:
    """Return the page with its tables as they should be."""
    text = PAGE.read_text(encoding="utf-8")
    for name, lines in (("pairs", matrix()), ("rules", rules())):
        before, _, rest = text.partition(f"<!-- {name} -->\n")
        after = rest.partition(f"<!-- end of {name} -->")[2]
        text = f"{before}<!-- {name} -->\n" + "\n".join(lines) + f"\n<!-- end of {name} -->{after}"
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
