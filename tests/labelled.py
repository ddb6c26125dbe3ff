"""Public functions that take labelled arguments, and containers whose labels are changed, for the walk over them."""

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
import smallfits
from plain import plain_map, plain_vi

import bayesnmf
from bayesnmf import BayesNMF, MinibatchVI

COUNTS = smallfits.COUNTS
KNOWN = pd.DataFrame(np.random.default_rng(1).dirichlet(np.ones(9), 2), ["one", "two"], COUNTS.columns)
GAMMA = bayesnmf.Priors(components=bayesnmf.Gamma(1.0, 1.0))  # exposures of features need it
GROUPS = pd.Series(["a", "b", "c"] * 4, COUNTS.index)
ROWS = pd.Series(np.linspace(1, 3, 12), COUNTS.index)
FEATURES = pd.Series(np.linspace(1, 3, 9), COUNTS.columns)
QUICK = plain_vi(max_iter=2, threads=1)
QUICK_STREAM = bayesnmf.VI(algorithm="minibatch", batch_size=6, start="random", threads=1)
WITH_GAMMA = replace(QUICK, priors=GAMMA)
MODES = {"starts": 2, "scored": 0, "seed": 0, "progress": False, "jobs": 1}


def as_polars(frame):
    return pytest.importorskip("polars").DataFrame({name: frame[name].to_numpy() for name in frame.columns})


def as_arrow(frame):
    table = pytest.importorskip("pyarrow").Table
    return table.from_arrays([frame.iloc[:, place].to_numpy() for place in range(frame.shape[1])], list(frame.columns))


def as_xarray(frame):
    return pytest.importorskip("xarray").DataArray(frame.to_numpy(), [("row", frame.index), ("column", frame.columns)])


def as_annotated(frame):
    made = pytest.importorskip("anndata").AnnData(frame.to_numpy(dtype=np.float32))
    made.obs_names, made.var_names = frame.index, frame.columns
    return made


def as_array_of_xarray(series):
    return pytest.importorskip("xarray").DataArray(series.to_numpy(), [("label", series.index)])


KINDS = ("reordered", "repeated", "missing", "extra", "NaN")
TABLES = {  # with the kinds of labels that they can have
    "pandas": (lambda frame: frame, KINDS),
    "polars": (as_polars, ("reordered", "missing", "extra")),
    "pyarrow": (as_arrow, ("reordered", "repeated", "missing", "extra")),
    "xarray": (as_xarray, KINDS),
    "AnnData": (as_annotated, ("reordered", "repeated", "missing", "extra")),
}
VECTORS = {
    "pandas": (lambda series: series, KINDS),
    "mapping": (lambda series: series.to_dict(), ("reordered", "missing", "extra", "NaN")),
    "xarray": (as_array_of_xarray, KINDS),
}
UNLABELLED = {
    "polars": lambda series: pytest.importorskip("polars").Series(series.to_list()),
    "pyarrow": lambda series: pytest.importorskip("pyarrow").array(series.to_list()),
    "array": lambda series: series.to_numpy(),
}


def changed(values, kind):
    """Return a table with other labels of columns, or a vector with other labels."""
    if isinstance(values, pd.DataFrame):
        return changed_labels(values.T, kind).T
    return changed_labels(values, kind)


def changed_labels(values, kind):
    labels = list(values.index)
    if kind == "reordered":
        return values.iloc[::-1]
    if kind == "missing":
        return values.iloc[:-1]
    if kind == "extra":
        return pd.concat([values, values.iloc[-1:].set_axis(["another"])])
    last = {"repeated": labels[0], "NaN": np.nan}[kind]
    return values.set_axis(pd.Index([*labels[:-1], last], dtype=object))


def learned(counts=COUNTS, feature_exposure=None, options=QUICK_STREAM, **exposure):
    made = MinibatchVI("gamma_poisson", 2, options=options, seed=0, feature_exposure=feature_exposure)
    return made.partial_fit(counts, **exposure)


stream = cache(learned)


@cache
def exposed():
    return bayesnmf.fit(COUNTS, rank=2, seed=0, options=QUICK, row_exposure=ROWS)


@cache
def exposed_stream():
    return learned(row_exposure=ROWS)


@cache
def estimator():
    return BayesNMF(2, options=QUICK, random_state=0).fit(COUNTS)


@cache
def found_modes():
    return bayesnmf.modes(COUNTS, rank=2, options=QUICK, **MODES)


def fitted(options=QUICK, rank=2, **given):
    found = bayesnmf.fit(COUNTS, rank=rank, seed=0, options=options, **given)
    return found.loadings


def best_of_modes(rank=2, options=QUICK, **given):
    return bayesnmf.modes(COUNTS, rank=rank, options=options, **MODES, **given).best.loadings


def compared(**exposure):
    settings = bayesnmf.Settings(options={"map": plain_map(max_iter=2, threads=1)}, priors=GAMMA)
    found = bayesnmf.compare(COUNTS, rank=2, methods=["map"], settings=settings, seed=0, progress=False, **exposure)
    return next(iter(found.fits.values())).loadings


def selected(**exposure):
    found = bayesnmf.select(
        COUNTS, models="gamma_poisson", ranks=[2], method="map", splits=1, check=False, progress=False, seed=0,
        options=plain_map(max_iter=2, threads=1, priors=GAMMA), **exposure,
    )  # fmt: skip
    return found.scores.select_dtypes("number").to_numpy()


# Arguments whose names are those of features of the fit, the stream or the counts.
OF_FEATURES = {
    "Fit.transform.counts": lambda x: smallfits.fit().transform(x),
    "Fit.project.counts": lambda x: smallfits.fit().project(x).loadings,
    "MinibatchVI.partial_fit.counts": lambda x: learned().partial_fit(x).components,
    "MinibatchVI.transform.counts": lambda x: stream().transform(x),
    "MinibatchVI.result.counts": lambda x: stream().result(x).loadings,
    "MinibatchVI.elbo.counts": lambda x: stream().elbo(x),
    "coherence.counts": lambda x: bayesnmf.coherence(smallfits.fit(), x, n=3).to_numpy(),
}
OF_ESTIMATORS = {  # scikit-learn refuses what is in another order too
    f"BayesNMF.{name}.X": lambda x, name=name: getattr(estimator(), name)(x)
    for name in ("transform", "score", "perplexity")
}
COMPONENTS = {
    "fit.fixed_components": lambda x: fitted(rank=3, fixed_components=x),
    "modes.fixed_components": lambda x: best_of_modes(3, fixed_components=x),
    "match.reference": lambda x: bayesnmf.match(smallfits.fit(), x).table["cosine"],
}
BY_ROW = {
    "group_contrasts.groups": lambda x: bayesnmf.group_contrasts(smallfits.fit(), x, draws=20)["difference"].to_numpy(),
    "fit.row_exposure": lambda x: fitted(row_exposure=x),
    "modes.row_exposure": lambda x: best_of_modes(row_exposure=x),
    "compare.row_exposure": lambda x: compared(row_exposure=x),
    "select.row_exposure": lambda x: selected(row_exposure=x),
    "Fit.transform.row_exposure": lambda x: exposed().transform(COUNTS, row_exposure=x),
    "Fit.project.row_exposure": lambda x: exposed().project(COUNTS, row_exposure=x).loadings,
    "MinibatchVI.partial_fit.row_exposure": lambda x: learned(row_exposure=x).components,
    "MinibatchVI.transform.row_exposure": lambda x: exposed_stream().transform(COUNTS, row_exposure=x),
    "MinibatchVI.result.row_exposure": lambda x: exposed_stream().result(COUNTS, row_exposure=x).loadings,
    "MinibatchVI.elbo.row_exposure": lambda x: exposed_stream().elbo(COUNTS, row_exposure=x),
}
BY_FEATURE = {
    "fit.feature_exposure": lambda x: fitted(WITH_GAMMA, feature_exposure=x),
    "modes.feature_exposure": lambda x: best_of_modes(options=WITH_GAMMA, feature_exposure=x),
    "compare.feature_exposure": lambda x: compared(feature_exposure=x),
    "select.feature_exposure": lambda x: selected(feature_exposure=x),
    "MinibatchVI.feature_exposure": lambda x: (
        learned(feature_exposure=x, options=replace(QUICK_STREAM, priors=GAMMA)).components
    ),
}
# Arguments whose own names become those of the result.
COUNTED = {
    "as_counts.x": bayesnmf.as_counts,
    "fit.counts": lambda x: bayesnmf.fit(x, rank=2),
    "modes.counts": lambda x: bayesnmf.modes(x, rank=2),
    "compare.counts": lambda x: bayesnmf.compare(x, rank=2),
    "select.counts": lambda x: bayesnmf.select(x, ranks=[2]),
    "equivalences.counts": bayesnmf.equivalences,
    "log_evidence.counts": lambda x: bayesnmf.log_evidence(x, "gamma_poisson", 2),
    "assign.counts": lambda x: bayesnmf.assign(x, KNOWN, chains=1, draws=1, warmup=1),
    "BayesNMF.fit.X": lambda x: BayesNMF(2).fit(x),
    "BayesNMF.fit_transform.X": lambda x: BayesNMF(2).fit_transform(x),
    "BayesNMF.partial_fit.X": lambda x: BayesNMF(2).partial_fit(x),
    "MinibatchVI.partial_fit.counts": lambda x: MinibatchVI("gamma_poisson", 2).partial_fit(x),
}


MADE = {}


def made(container, plain, kind, rows=False):
    """Return a container with changed labels, made once."""
    key = container, id(plain), kind, rows
    if key not in MADE:
        MADE[key] = plain, container(changed_labels(plain, kind) if rows else changed(plain, kind))
    return MADE[key][1]
