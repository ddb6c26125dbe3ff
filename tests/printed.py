"""What a reader can copy: the Python of pages and the calls in backticks, made to run on small counts."""

import ast
import builtins
import importlib
import inspect
import re
import textwrap
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache, wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array, save_npz

import bayesnmf
from bayesnmf import plots
from bayesnmf.data.mutations import sbs96_types
from bayesnmf.data.real import SOURCES
from bayesnmf.options import METHODS

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
REFUSED = re.compile(r"^\| (`\w+=.*`) \| refused")  # a row of a table with a call that does not run
BACKTICKS = re.compile(r"(?<!`)(`{1,2})(?!`)([^`\n]+?)\1(?!`)")


def blocks_of(page: Path) -> list[str]:
    """Return the blocks of Python of a page, in order."""
    found = FENCE.findall(page.read_text(encoding="utf-8"))
    return [code for language, code in found if language == "python"]


def calls_of(text: str) -> list[str]:
    """Return the calls and settings in backticks of a text without its blocks, each once, in order."""
    lines = [line for line in FENCE.sub("", text).splitlines() if not REFUSED.search(line)]
    quoted = [quote for _, quote in BACKTICKS.findall("\n".join(lines))]
    return list(dict.fromkeys(quote.strip() for quote in quoted if is_code(quote)))


SETTING = re.compile(r"(\w+) ?= ?[^=]")
FILE = re.compile(r"\S+\.(nc|json|zarr)")
# Calls of scikit-learn, of formulas, and of mudata, which is not installed for tests.
OF_OTHERS = {
    'NMF(beta_loss="kullback-leibler", solver="mu")', "C(name)", "bayesnmf.tl.fit(mdata, rank=12)", 'fit("cells.h5mu")'
}  # fmt: skip


def is_code(quote: str) -> bool:
    """Return whether a quotation is a call, settings or names of a fit, not a formula or the name of a file."""
    if FILE.fullmatch(quote) or quote in OF_OTHERS or " needs " in quote:  # which is the text of a message
        return False
    return bool(re.search(r"\w\(", quote) or SETTING.match(quote) or re.match(r"fit\.\w+", quote))


# --- what stands for a name that a page does not define ------------------------------------------------------------

FEATURES = [
    *("CD79A", "MS4A1", "CD19", "CD3D", "CD3E", "hockey", "nhl", "nasa", "orbit"),
    *(f"g{j}" for j in range(11)),
]  # fmt: skip
ROWS = [f"r{i}" for i in range(30)]


@cache
def small_counts() -> pd.DataFrame:
    made = bayesnmf.simulate("gamma_poisson", (30, 20), 3, totals=300, seed=3).counts.matrix
    return pd.DataFrame(made.toarray().astype(int), ROWS, FEATURES)


def small_fit(**settings: Any) -> bayesnmf.Fit:
    options = bayesnmf.VI(max_iter=200, restarts=1)
    return bayesnmf.fit(small_counts(), **({"rank": 3, "seed": 0, "options": options} | settings))


@cache
def small_modes() -> bayesnmf.Modes:
    return bayesnmf.modes(small_counts(), rank=3, starts=2)


def annotated() -> Any:
    anndata = __import__("anndata")
    about = {"celltype": pd.Categorical(list("abc") * 10), "batch": list("ab") * 15, "donor": list("xyz") * 10}
    obs = pd.DataFrame({**about, "disease": ["no", "yes"] * 15, "age": np.arange(30.0)}, index=ROWS)
    var = pd.DataFrame({"symbol": FEATURES}, index=[f"ENSG{j}" for j in range(20)])
    counts = small_counts().to_numpy()
    return anndata.AnnData(X=counts.astype(float), obs=obs, var=var, layers={"counts": counts})


def covariates() -> pd.DataFrame:
    values = {"age": np.arange(30) % 17 + 20.0, "treatment": ["no", "yes"] * 15, "x": np.arange(30) % 7 + 0.5}
    return pd.DataFrame(values, index=ROWS)


class Names(dict):
    """Names of a page: what it defines itself, and small stand-ins for the rest, made when they are read."""

    def __init__(self, **given: Any):
        super().__init__({name: getattr(bayesnmf, name) for name in bayesnmf.__all__} | {"plots": plots})
        for name in ("fit", "models"):  # what a page has is a fit and names of models, not the function and the module
            del self[name]
        super().update(bayesnmf=bayesnmf, tl=bayesnmf.tl, **given)

    def copy(self) -> "Names":
        """Return the same names in a set of their own."""
        found = Names()
        found.clear()
        found.update(self)
        return found

    def __missing__(self, name: str) -> Any:
        if name not in STAND_INS:
            raise KeyError(name)
        self[name] = STAND_INS[name]()
        return self[name]


def other_matrix(columns: int) -> pd.DataFrame:
    return pd.DataFrame(
        np.random.default_rng(columns).poisson(2, (30, columns)), ROWS, [f"h{j}" for j in range(columns)]
    )


STAND_INS: dict[str, Any] = {
    "counts": lambda: small_counts().copy(),
    "fit": small_fit,
    "vi": small_fit,
    "gibbs": lambda: small_fit(method="gibbs", options=bayesnmf.Gibbs(draws=20, warmup=10, chains=2)),
    "fits": lambda: {"vi": small_fit(), "map": small_fit(method="map", options=None)},
    "adata": annotated,
    "other": lambda: other_matrix(6),
    "new": lambda: small_counts().iloc[:4].copy(),
    "new_counts": lambda: small_counts().iloc[:4].copy(),
    "new_tumours": lambda: small_counts().iloc[:4].copy(),
    "sbs": lambda: small_counts().copy(),
    "rna": lambda: small_counts().copy(),
    "ids": lambda: other_matrix(6),
    "adt": lambda: other_matrix(6),
    "groups": lambda: ["a", "b", "b"] * 10,
    "subtype": lambda: ["a", "b", "b"] * 10,
    "labels": lambda: ["a", "b", "b"] * 10,
    "frame": covariates,
    "samples": covariates,
    "new_samples": lambda: covariates().iloc[:4],
    "catalogue": lambda: pd.DataFrame(small_fit().components, ["SBS1", "SBS2", "SBS3"], FEATURES),
    "W": lambda: small_fit().components[:2],
    "known": lambda: pd.DataFrame(small_fit().components, ["SBS1", "SBS2", "SBS3"], FEATURES),
    "observed": lambda: np.random.default_rng(0).random((30, 20)) > 0.1,
    "depth": lambda: np.linspace(1, 2, 30),
    "length": lambda: np.linspace(1, 2, 20),
    "τ": lambda: 0.1,
    "tau": lambda: 0.1,
    "a": lambda: 0.5,
    "b": lambda: 0.5,
    "c": lambda: 0.5,
    "d": lambda: 0.5,
    "shape": lambda: 0.5,
    "rate": lambda: 0.5,
    "concentration": lambda: 0.5,
    "S": lambda: np.ones((30, 3, 20), int),
    "X": lambda: small_counts().to_numpy(),
    "loadings": lambda: bayesnmf.Gamma(1.0, 1.0),
    "components": lambda: bayesnmf.Dirichlet(1.0),
    "program": lambda: own_program(further=False),
    "with_a_level": lambda: own_program(further=True),
    "draws": lambda: {"theta": np.ones((1, 3, 30, 2)), "beta": np.full((1, 3, 2, 20), 0.05)},
    "digits": lambda: bayesnmf.datasets.digits().rows(range(0, 300, 10)),
    "of_batches": lambda: bayesnmf.fit(small_counts(), rank=3, method="gibbs", batch=list("ab") * 15, seed=0),
    "path": lambda: "counts.csv",
    "model": lambda: "gamma_poisson",
    "models": lambda: ("gamma_poisson",),
    "method": lambda: "vi",
    "rank": lambda: 2,
    "ranks": lambda: (2, 3),
    "size": lambda: (30, 20),
    "name": lambda: "sbs",
    "sets": lambda: {"T cells": ["CD3D", "CD3E"]},
    "texts": lambda: ["some words of a text about a thing and other words"] * 30,
    "rows": lambda: ROWS[:2],
    "features": lambda: FEATURES[:2],
    "table": lambda: bayesnmf.markers(small_fit(), n=None),
    "runs": small_modes,
    "found": small_modes,
    "block": lambda: small_counts().to_numpy(),
    "matrix": lambda: small_counts().to_numpy(),
    "words": lambda: FEATURES,
    "make_pipeline": lambda: importlib.import_module("sklearn.pipeline").make_pipeline,
    "CountVectorizer": lambda: importlib.import_module("sklearn.feature_extraction.text").CountVectorizer,
    "pipeline": lambda: Names()["make_pipeline"](
        Names()["CountVectorizer"](), bayesnmf.BayesLDA(3, random_state=0)
    ).fit(texts_of_topics()),
    "pyLDAvis": lambda: topic_pages(),
    "vocabulary": lambda: FEATURES,
}


def own_program(further: bool) -> Any:
    """Return a program of the counts with two conjugate factors, and perhaps one further site."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def program(x: Any) -> None:
        n, m = x.shape
        level = numpyro.sample("level", dist.Normal(0.0, 1.0)) if further else 0.0
        theta = numpyro.sample("theta", dist.Gamma(0.5, jnp.exp(-level) * jnp.ones((n, 2))).to_event(2))
        beta = numpyro.sample("beta", dist.Dirichlet(0.5 * jnp.ones((2, m))).to_event(1))
        numpyro.sample("x", dist.Poisson(theta @ beta).to_event(2), obs=x)

    return program


@cache
def of_tumours() -> pd.DataFrame:
    made = bayesnmf.simulate("gamma_poisson", (30, 96), 3, totals=300, seed=3).counts.matrix
    return pd.DataFrame(made.toarray().astype(int), ROWS, sbs96_types())


def write_files(folder: Path) -> None:
    """Write the files that pages name."""
    small_counts().to_csv(folder / "counts.csv")
    of_tumours().T.rename_axis("MutationType").to_csv(folder / "tumours.SBS96.all", sep="\t")
    adata = annotated()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of pandas and Zarr, about what anndata sets
        for name in ("cells", "run1", "run2"):
            adata.write_h5ad(folder / f"{name}.h5ad")
        adata.write_zarr(folder / "cells.zarr")
    parts = bayesnmf.simulate("gamma_poisson", (30, 96), 12, seed=3).components.T
    known = pd.DataFrame(parts, pd.Index(sbs96_types(), name="Type"), [f"SBS{k}" for k in range(1, 13)])
    for name in ("COSMIC_SBS.txt", "COSMIC_v3.4_SBS_GRCh38.txt"):
        known.to_csv(folder / name, sep="\t")
    small_fit().save(folder / "fit.nc")
    plays = small_counts().rename_axis("user").melt(ignore_index=False, var_name="item", value_name="plays")
    plays[plays["plays"] > 0].to_csv(folder / "plays.csv")
    for name in SOURCES:  # in place of a download
        save_npz(folder / f"{name}.npz", csr_array(small_counts().to_numpy()))


def topic_pages() -> SimpleNamespace:
    """Return what stands for pyLDAvis, which is not installed: `prepare` takes the arguments of its version 3.4."""

    def prepare(topic_term_dists, doc_topic_dists, doc_lengths, vocab, term_frequency, R=30, lambda_step=0.01, mds=None,
                n_jobs=-1, plot_opts=None, sort_topics=True, start_index=1):  # fmt: skip
        return (topic_term_dists, doc_topic_dists, doc_lengths, vocab, term_frequency, sort_topics, start_index)

    return SimpleNamespace(prepare=prepare)


def scanpy_of_guides() -> SimpleNamespace:
    """Return scanpy, which is not installed for tests, as far as the guide calls it: shares are where it looks."""

    def neighbors(adata, use_rep):
        assert adata.obsm[use_rep].shape[0] == adata.n_obs

    tools = SimpleNamespace(umap=lambda adata: None, leiden=lambda adata, **_: None)
    return SimpleNamespace(pp=SimpleNamespace(neighbors=neighbors), tl=tools)


# What a page alone needs besides, by name; and what stands for the paths of other machines.
OF_PAGES: dict[str, Any] = {
    "README.md": lambda: {"other": other_matrix(6).iloc[:1].reindex(bayesnmf.datasets.cells().row_names).fillna(2)},
    "docs/command_line.md": lambda: {"path": "report.html"},
    "docs/fields/texts.md": lambda: {
        "texts": texts_of_topics(),
        "groups": ["b" if i % 3 else "a" for i in range(60)],
        "vocabulary": sorted(set(" ".join(texts_of_topics()).split())),
        "frame": pd.DataFrame({"age": np.arange(60.0) % 17}),
        "rows": np.ones((30, 36), int),  # windows of texts
    },
    "docs/input.md": lambda: {"texts": texts_of_topics(), "new_counts": np.ones((4, 36), int)},
    "docs/fields/cells.md": lambda: {"samples": small_counts(), "frame": two_treatments(), "other": other_cells()},
    "docs/fields/items.md": lambda: {"samples": small_counts()},
    "docs/batches.md": lambda: {"new": np.ones((4, 40), int), "labels": list("abab")},
    "docs/several.md": lambda: {"sbs": of_tumours(), "new_tumours": of_tumours().iloc[:4]},
    "docs/modes.md": lambda: {"fit": small_fit(rank=6)},
}
ELSEWHERE = {"/fast/disk": ".", "/shared/scratch": ".", "/shared/run": "run", "range(1000)": "range(10)"}


def other_cells() -> Any:
    anndata = __import__("anndata")
    return anndata.AnnData(
        X=small_counts().to_numpy()[:6].astype(float), var=pd.DataFrame({"symbol": FEATURES}, FEATURES)
    )


def texts_of_topics() -> list[str]:
    topics = [["nasa", "orbit", *(f"space{i}" for i in range(10))], ["hockey", "nhl", *(f"game{i}" for i in range(10))]]
    topics.append([f"car{i}" for i in range(12)])
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(topics[i % 3] + topics[0][:3], 30)) for i in range(60)]


def two_treatments() -> pd.DataFrame:
    return pd.DataFrame({"RA": [True, False] * 15, "TGFb": [True, True, False, False, False] * 6}, index=ROWS)


# --- a call in backticks as a statement that runs ------------------------------------------------------------------

# What stands for "…" or "..." after a keyword, and between the brackets of a function.
VALUES = {
    "model": "'poisson'", "fixed_components": "catalogue", "priors": "Priors()", "strength": "2.0",
    "rows": "fit.row_names[:2]",
    "features": "features", "schedule": "'joint'", "order": "'loadings'", "sweeps": "2", "particles": "4", "runs": "2",
    "learn": "('loadings',)", "intervals": "'sampled'", "observed": "observed[:4]", "covariates": "frame",
    "effects": "[[0.1, 0.2, 0.3]]", "formula": "'~ x'", "over": "'component'", "noise": "'nb1'", "batch": "labels",
    "density": "0.5", "neighbourhood": "0.3", "most": "20", "fits": "{'vi': fit}",
}  # fmt: skip
BETWEEN = {
    "project": "new_counts",
    "transform": "new_counts",
    "rates": "fit.row_names[:2], fit.feature_names[:2]",
    "with_intervals": "'sampled'",
    "modes": "counts, rank=2, starts=2",
}
# What runs for a quotation that stands for something else, or for a fit of another kind.
INSTEAD: dict[str, str] = {
    "simulate(covariates=…, effects=…)":
        "bayesnmf.simulate(size=(30, 8), rank=2, formula='~ x', covariates=frame[['x']], effects=[[.1, .1], [.1, .2]])",
    'bayesnmf.fit(counts, program, method="nuts", sites={"loadings": "amounts", "components": "strokes"})':
        "bayesnmf.fit(counts, program, method='nuts', sites={'loadings': 'theta', 'components': 'beta'})",
    "bayesnmf.conjugate_block(counts, program)": "bayesnmf.conjugate_block(counts, with_a_level)",
    "bayesnmf.compare(counts, fits={…})": "bayesnmf.compare(counts, fits={'vi': vi, 'gibbs': gibbs})",
    'method="bld"': "bayesnmf.fit(counts, 'dirichlet_gamma', 2, 'bld')",
    "fit.effects()": "bayesnmf.fit(counts, 2, formula='~ x', covariates=frame).effects()",
    "bayesnmf.loo(fit)": "bayesnmf.loo(gibbs)",
    "bayesnmf.loo(fit, refit=20)": "bayesnmf.loo(gibbs, refit=1)",
    'noise=("poisson", "nb1", "nb2")': "bayesnmf.select(counts, noise=('poisson', 'nb1', 'nb2'))",
    'fit.diagnostics["sweeps_per_draw"]':
        "bayesnmf.fit(counts, 2, method='gibbs', options=Gibbs(budget=1, draws='auto')).diagnostics['sweeps_per_draw']",
    'fit.matrix("sbs")': "bayesnmf.fit({'sbs': counts, 'id': ids}, 2).matrix('sbs')",
    'refit.rename({7: "new"})': 'bayesnmf.fit(counts, 8, fixed_components=known.iloc[:2]).rename({7: "new"})',
    'fit.with_intervals("bootstrap")': 'vi.with_intervals("bootstrap")',
    "fit.predicted_shares(frame)": "bayesnmf.fit(counts, 2, formula='~ x', covariates=frame).predicted_shares(frame)",
    "found.evidence(fit)":
        "found.evidence(bayesnmf.fit(counts, rank=6, method='smc', options=bayesnmf.SMC(priors=found.best.priors)))",
    "fit.to_anndata(adata)": "bayesnmf.fit(adata, 2).to_anndata(adata)",
    "Comparison.details()": "bayesnmf.compare(counts, methods=('map', 'vi'), rank=2).details()",
    'fit.diagnostics["least_gradient"]': "bayesnmf.fit(counts, rank=2, method='map').diagnostics['least_gradient']",
    "fit.posterior.factors": "of_batches.posterior.factors",
    'fit.statistics["batch_shape"]': "of_batches.statistics['batch_shape']",
    'fit.statistics["dispersion"]': "bayesnmf.fit(counts, 2, method='gibbs', noise='nb1').statistics['dispersion']",
}  # fmt: skip
ELLIPSIS = re.compile(r"…|\.\.\.")


def filled(quote: str) -> str:
    """Return a call with values in place of its ellipses; those that nothing stands for go."""
    quote = re.sub(rf"(\w+)=\s*(?:{ELLIPSIS.pattern})", lambda each: f"{each[1]}={VALUES[each[1]]}", quote)
    quote = re.sub(rf"(\w+)\((?:{ELLIPSIS.pattern})\)", lambda each: f"{each[1]}({BETWEEN.get(each[1], '')})", quote)
    return re.sub(rf",?\s*(?:{ELLIPSIS.pattern})", "", quote)


def public(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """Return the object that a name or a chain of names from a public one is; None for others."""
    if isinstance(node, ast.Name) and node.id == "fit":  # a call of the function has become `bayesnmf.fit`
        return bayesnmf.Fit
    if isinstance(node, ast.Name):
        return getattr(bayesnmf, node.id, None) if node.id in bayesnmf.__all__ else {"bayesnmf": bayesnmf}.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = public(node.value, names)
        return None if owner is None or isinstance(owner, property) else getattr(owner, node.attr, None)
    return None


class AsWritten(ast.NodeTransformer):
    """Calls of pages leave out `bayesnmf.`, `fit.`, and arguments that the sentence around them names."""

    def __init__(self, names: Mapping[str, Any]):
        self.names = names

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name):
            name = node.func.id
            if name == "fit":
                node.func = ast.parse("bayesnmf.fit", mode="eval").body
            elif name not in self.names and name not in STAND_INS and name not in vars(builtins):
                owner = next(each for each in ("fit", "found", "bayesnmf") if self.has(each, name))
                node.func = ast.Attribute(ast.Name(owner, ast.Load()), name, ast.Load())
        called = public(node.func, self.names)
        if callable(called) and not any(isinstance(each, ast.Starred) for each in node.args):
            node.keywords += [ast.keyword(each, ast.Name(each, ast.Load())) for each in missing_of(called, node)]
        return node

    def has(self, owner: str, name: str) -> bool:
        return hasattr({"fit": bayesnmf.Fit, "found": bayesnmf.Modes, "bayesnmf": bayesnmf}[owner], name)


def missing_of(called: Any, node: ast.Call) -> list[str]:
    """Return the parameters without a default that a call leaves out."""
    given = {keyword.arg for keyword in node.keywords}
    if None in given:
        return []
    parameters = [each for each in inspect.signature(called).parameters.values() if each.name != "self"]
    parameters = parameters[len(node.args) :]
    free = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [each.name for each in parameters if each.default is each.empty and each.kind not in free
            and each.name not in given]  # fmt: skip


def statement_of(quote: str, names: Mapping[str, Any]) -> ast.Module:
    """Return what is to be run for a call or settings in backticks."""
    code = INSTEAD.get(quote) or filled(quote)
    code = f"fit{code}" if code.startswith(".") else code
    setting = SETTING.match(code)
    if setting and setting[1] in inspect.signature(bayesnmf.fit).parameters:
        code = f"bayesnmf.fit(counts, {code})"
    elif setting and setting[1] in inspect.signature(bayesnmf.simulate).parameters:
        code = f"bayesnmf.simulate({code})"
    tree = AsWritten(names).visit(ast.parse(textwrap.dedent(code)))
    return ast.fix_missing_locations(tree)


def run_code(tree: ast.Module | str, names: dict, title: str) -> None:
    exec(compile(tree, title, "exec"), names)


# --- quick: fewer steps by default, and once for what draws and writes ---------------------------------------------

QUICK = {
    bayesnmf.VI.__init__: {"max_iter": 60},
    bayesnmf.MAP.__init__: {"max_iter": 60},
    bayesnmf.Gibbs.__init__: {"draws": 12, "warmup": 8, "chains": 2},
    bayesnmf.NUTS.__init__: {"draws": 8, "warmup": 8, "chains": 2},
    bayesnmf.SMC.__init__: {"particles": 4, "runs": 4, "refinement": 4, "efficiency": 0.5},
    bayesnmf.SVI.__init__: {"max_iter": 20},
    inspect.unwrap(bayesnmf.modes): {"starts": 3},
    inspect.unwrap(bayesnmf.select): {"check": False, "ranks": (2, 3)},
    inspect.unwrap(bayesnmf.predictive_checks): {"refits": 10},
    inspect.unwrap(bayesnmf.calibrate): {"simulations": 4, "draws": 9},
    inspect.unwrap(bayesnmf.log_evidence): {"runs": 4, "particles": 4, "refinement": 2},
    inspect.unwrap(bayesnmf.assign): {"draws": 20, "warmup": 10},
}
COSTLY = ("report", "browse", "predictive_checks", "compare", "calibrate")
_DONE: dict[Any, Any] = {inspect.unwrap(bayesnmf.equivalences): None}  # a minute of compiling; it has its own tests


def once(function: Any) -> Any:
    """Return a function that runs once; later calls have their arguments compared with its own, and its result."""

    @wraps(function)
    def call(*args: Any, **settings: Any) -> Any:
        inspect.signature(function).bind(*args, **settings)
        if (called := inspect.unwrap(function)) not in _DONE:
            _DONE[called] = function(*args, **settings)
        return _DONE[called]

    return call


def _lowered(function: Any, changes: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the defaults of a function, by position and by keyword, with some of them lowered."""
    parameters = inspect.signature(function).parameters
    assert changes.keys() <= parameters.keys()
    placed = [each for each in parameters.values() if each.kind is each.POSITIONAL_OR_KEYWORD]
    defaults = tuple(changes.get(each.name, each.default) for each in placed if each.default is not each.empty)
    keywords = function.__kwdefaults__ or {}
    return defaults or None, {name: changes.get(name, value) for name, value in keywords.items()} or None


@contextmanager
def quick() -> Iterator[None]:
    """Lower the defaults of `QUICK`, and run what is costly once, for a while."""
    before = {function: (function.__defaults__, function.__kwdefaults__) for function in QUICK}
    with pytest.MonkeyPatch.context() as patch:
        for name in (*COSTLY, "equivalences"):
            patch.setattr(bayesnmf, name, once(getattr(bayesnmf, name)))
        for name in plots.__all__:
            if inspect.isfunction(drawn := getattr(plots, name)):
                patch.setattr(plots, name, once(drawn))
        for method in METHODS.values():  # rules ask whether an option is as it is by default
            for name, value in QUICK.get(method.options.__init__, {}).items():
                patch.setattr(method.options.__dataclass_fields__[name], "default", value)
        try:
            for function, changes in QUICK.items():
                function.__defaults__, function.__kwdefaults__ = _lowered(function, changes)
            yield
        finally:
            for function, (defaults, keywords) in before.items():
                function.__defaults__, function.__kwdefaults__ = defaults, keywords
