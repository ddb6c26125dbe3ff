"""Cures of cautions are calls that work on the very fit that gave them; every producer of cautions is tried here."""

import ast
import inspect
import re
import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bayesnmf
from bayesnmf import MAP, VI, Gamma, Gibbs, Priors
from bayesnmf.inference.status import FitWarning
from bayesnmf.results import cautions
from bayesnmf.results.effects import cautions_of_spread
from bayesnmf.results.intervals import cautions_of_intervals, for_intervals

ROWS = 24
RNG = np.random.default_rng(0)
WILD = RNG.negative_binomial(0.6, 0.02, (ROWS, 10)) // 2
SMALL = RNG.poisson(3, (ROWS, 8))
X = pd.DataFrame({"x": np.arange(ROWS) % 7 + 0.5})
FEW = VI(max_iter=400, threads=1)


def quietly(function, *args, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        warnings.simplefilter("ignore", bayesnmf.DataWarning)
        return function(*args, **settings)


@cache
def fitted(kind: str) -> bayesnmf.Fit:
    """Return a fit that is cautioned about."""
    counts, model, rank, method, settings = FITS[kind]
    return quietly(bayesnmf.fit, counts, model, rank, method, seed=0, **settings)


BATCH = {"batch": list("ab") * (ROWS // 2)}
APART = {
    name: RNG.poisson(RNG.dirichlet(np.full(3, 0.3), ROWS) @ RNG.dirichlet(np.full(9, 0.3), 3) * 3000) for name in "ab"
}
FITS = {
    "wild": (WILD, "gamma_poisson", 2, "vi", {"options": FEW}),
    "wild, map": (WILD, "gamma_poisson", 2, "map", {}),
    "wild, poisson": (WILD, "poisson", 2, "vi", {"options": FEW}),
    "wild, proportions": (WILD, "dirichlet_poisson", 2, "vi", {"options": FEW}),
    "wild, scales": (WILD, "dirichlet_gamma", 2, "vi", {"options": FEW}),
    "wild, rates": (WILD, "hierarchical_poisson", 2, "vi", {"options": FEW}),
    "wild, missing": (WILD, "gamma_poisson", 2, "vi", {"options": FEW, "missing": "zeros"}),
    "wild, missing proportions": (WILD, "dirichlet_poisson", 2, "vi", {"options": FEW, "missing": "zeros"}),
    "wild, batches": (WILD, "gamma_poisson", 2, "vi", {"options": FEW, **BATCH}),
    "wild, parts": (WILD / 2, "gamma_poisson", 2, "vi", {"options": FEW}),
    "wild, parts in batches": (WILD / 2, "gamma_poisson", 2, "vi", {"options": FEW, **BATCH}),
    "wild, learned": (WILD, "gamma_poisson", 2, "vi", {"options": replace(FEW, learn=("loadings",))}),
    "wild, minibatch": (WILD, "gamma_poisson", 2, "vi", {"options": VI(algorithm="minibatch", tol=0.1)}),
    "wild, covariates": (WILD, "gamma_poisson", 2, "vi", {"options": FEW, "formula": "~ x", "covariates": X}),
    "apart": (APART, "gamma_poisson", 2, "vi", {"options": FEW}),
    "stopped": (SMALL, "gamma_poisson", 2, "vi", {"options": VI(max_iter=3)}),
    "stopped, map": (SMALL, "gamma_poisson", 2, "map", {"options": MAP(max_iter=3)}),
    "stopped, bld": (SMALL, "dirichlet_gamma", 2, "bld", {"options": bayesnmf.BLD(max_iter=3)}),
    "short chains": (SMALL, "gamma_poisson", 2, "gibbs", {"options": Gibbs(draws=8, warmup=2, chains=2)}),
    "idle": (np.outer(SMALL[:, 0], SMALL[0]), "gamma_poisson", 4, "vi", {"options": FEW}),
    "rounded": (SMALL * 10**6, "gamma_poisson", 2, "vi", {"options": replace(FEW, dtype="float32", max_iter=5)}),
}  # fmt: skip


def again(fit: bayesnmf.Fit, **changes) -> bayesnmf.Fit:
    """Fit the counts of a fit as it was, but for changes of arguments or of options."""
    known = type(fit.options).__dataclass_fields__
    options = replace(fit.options, **{name: value for name, value in changes.items() if name in known})
    if getattr(options, "algorithm", None) in ("scd", "ccd") and "noise" in changes:
        options = replace(options, algorithm=None)  # the default of a Poisson fit
    given = {"rank": fit.rank, "noise": fit.noise} | {k: v for k, v in changes.items() if k not in known}
    if own := settings_of(fit):
        options = replace(options, priors=type(options)().priors)  # those of the fit have the effects in them
    return quietly(bayesnmf.fit, fit.counts, fit.model, method=fit.method, seed=0, options=options, **own | given)


def settings_of(fit: bayesnmf.Fit) -> dict:
    """Return the formula and covariates of a fit that has some."""
    return {"formula": "~ x", "covariates": X} if fit.priors.loadings.has_effects else {}


def larger(fit: bayesnmf.Fit, name: str) -> dict:
    """Return an option of a fit, twice as large; a tolerance ten times."""
    value = getattr(fit.options, name)
    return {name: value * 10 if name == "tol" else value * 2}


# What a sentence advises, and what it is to do so: a pattern, and the call.
CURES = {
    r"noise='(\w+)'": lambda fit, word: again(fit, noise=word),
    r"compare ranks by (bayesnmf\.select\(.*\)\))": lambda fit, call: quietly(
        eval, f"{call[:-1]}, splits=1, check=False)", {"bayesnmf": bayesnmf, "counts": fit.counts}
    ),
    r"(fit\.matrices)\(\)": lambda fit, _: fit.matrices(),
    r"try rank=(\d+) or more": lambda fit, rank: again(fit, rank=int(rank), start=None),
    r"fit rank (\d+)": lambda fit, rank: again(fit, rank=int(rank), start=None),
    r"raise (\w+) (?:or|and) \w+ in bayesnmf": lambda fit, name: again(fit, **larger(fit, name)),
    r"raise \w+ (?:or|and) (\w+) in bayesnmf": lambda fit, name: again(fit, **larger(fit, name)),
    r"raise (\w+)(?: and \w+)?$": lambda fit, name: again(fit, **larger(fit, name)),
    r"use dtype='(\w+)'": lambda fit, word: again(fit, dtype=word),
    r"fit\.with_intervals\('(\w+)'\)": lambda fit, word: quietly(fit.with_intervals, word),
    r"model='(\w+)'": lambda fit, word: quietly(bayesnmf.fit, fit.counts, word, fit.rank, formula="~ x", covariates=X),
}


def cure(fit: bayesnmf.Fit, text: str) -> int:
    """Do all that a sentence advises; return how much that was."""
    done = 0
    for pattern, call in CURES.items():
        for found in re.finditer(pattern, text):
            call(fit, found[1])
            done += 1
    return done


BRIEF = (
    "wild",
    "wild, batches",
    "wild, missing proportions",
    "apart",
    "stopped, map",
    "idle",
)  # one of each sort of advice


@pytest.mark.parametrize("kind", [pytest.param(k, marks=() if k in BRIEF else pytest.mark.long) for k in FITS])
def test_what_a_caution_of_a_fit_advises_works_on_it(kind):
    fit = fitted(kind)
    told = [*cautions.cautions_of(fit), *cautions.cautions_of_model(fit)]
    assert told
    for text in told:
        assert cure(fit, text), text


def test_of_several_noises_the_likelier_one_is_named():
    text = cautions.caution_of_noise(fitted("wild"))
    assert "noise='nb2' (likelier than 'nb1' around these means) or noise='quasi' widens them" in text


@pytest.mark.parametrize(("kind", "noise"), [("wild, batches", "nb2"), ("wild, parts in batches", "quasi")])
def test_batches_are_advised_a_noise_that_goes_with_them(kind, noise):
    assert f"; noise={noise!r}" in cautions.caution_of_noise(fitted(kind))


def test_cautions_about_intervals_and_spread_advise_what_works():
    large = replace(fitted("wild"), options=replace(FEW, intervals="mean_field"))
    for text in cautions_of_intervals(for_intervals(large)):
        assert cure(large, text), text
    rows = np.where(np.arange(ROWS) == 5, 100, 1)[:, None]
    fit = quietly(bayesnmf.fit, RNG.poisson(rows * np.full((1, 8), 3.0)), rank=1, formula="~ x", covariates=X,
                  options=replace(FEW, priors=Priors(loadings=Gamma(5.0, 1.0))))  # fmt: skip
    found = cautions_of_spread(fit)
    assert found
    assert all(cure(fit, text) for text in found)


# --- no producer is missing -------------------------------------------------------------------------------------------

PRODUCERS = re.compile(r"^_?(cautions?(_of_\w+|_of)?|faults_of_draws|excess_of_noise|with_label)$")
TRIED = {  # by file: what is tried above, or where the tests of its folder ask for its text
    "results/cautions.py": {
        "cautions_of", "cautions_of_model", "caution_of_noise", "caution_of_structure", "caution_of_rounding",
        "caution_of_idle", "caution_of_matrices",
        "_cautions_of_components", "faults_of_draws", "excess_of_noise", "with_label",
    },
    "results/intervals.py": {"cautions_of_intervals"},
    "results/describing.py": {"_cautions"},
    "results/moved.py": {"caution_of_moved"},
    "results/effects.py": {"cautions_of_spread", "_cautions_of_shares"},
    "studies/selection/selecting.py": {"cautions"},
    "studies/selection/by_stability.py": {"cautions"},
    "studies/selection/criterion.py": {"cautions"},
    "studies/selection/held_out.py": {"cautions"},
    "studies/stability/modes.py": {"cautions_of_runs", "cautions_of_modes", "cautions"},
    "studies/stability/mode_evidence.py": {"cautions"},
    "studies/comparison/measures.py": {"cautions_of_all", "cautions_of_evidence", "cautions_of_missing"},
    "assessment/agreement.py": {"_cautions", "_cautions_of_truth"},
    "assessment/assignment.py": {"_cautions", "_cautions_of_common"},
}  # fmt: skip


def producers() -> dict[str, set[str]]:
    """Return the functions of the package that make cautions, by file."""
    package, found = Path(bayesnmf.__file__).parent, {}
    for path in package.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "def " in text and "caution" in text:
            names = {each.name for each in ast.walk(ast.parse(text))
                     if isinstance(each, ast.FunctionDef) and PRODUCERS.match(each.name)}  # fmt: skip
            if names:
                found[path.relative_to(package).as_posix()] = names
    return found


def test_no_producer_of_cautions_is_missing():
    assert producers() == TRIED


@pytest.mark.parametrize(
    ("place", "called"),
    [("selection/selecting", (bayesnmf.select, bayesnmf.SMC, bayesnmf.VI)), ("stability/modes", (bayesnmf.modes,))],
)
def test_studies_advise_arguments_that_they_have(place, called):
    """Their cautions are sentences about arguments of the same call, or about options."""
    text = (Path(bayesnmf.__file__).parent / "studies" / f"{place}.py").read_text(encoding="utf-8")
    asked = set(re.findall(r"[:;,] (?:or )?(?:raise|lower) (\w+)", text)) - {"rank"}
    assert asked
    assert asked <= {name for each in called for name in inspect.signature(each).parameters}
