"""Whatever a fit can hold is in its file: a covering array of fits is saved, loaded and read, to the bit.

`HELD` lists what a fit can hold, kind by kind; `REFUSED` which values the library does not fit together, with what it
says. The array has every pair of values that can be fitted together. A new value of a kind, a new method of `Fit` and a
new field of a record, an option or a prior join by themselves, or fail until somebody says how they are made.
"""

import re
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache
from itertools import combinations, product

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from sameness import same
from smallfits import quietly
from suites import in_long, mostly_long

import bayesnmf
from bayesnmf import BLD, MAP, NUTS, SMC, SVI, VI, Batch, Dirichlet, Gamma, Gibbs, NegativeBinomial, Priors, Start
from bayesnmf.fitting import fit as fitting
from bayesnmf.options import METHODS
from bayesnmf.results.record import FitRecord

pytestmark = [
    quietly,
    pytest.mark.filterwarnings("ignore::bayesnmf.DataWarning"),
    pytest.mark.filterwarnings("ignore:.*(chain|draws|particles).*:UserWarning"),
    pytest.mark.filterwarnings("ignore:(Observation|Variable) names are not unique:UserWarning"),  # of anndata
]

N, M, K = 12, 5, 2
COUNTS = np.random.default_rng(0).poisson(3, (N, M))
SECOND = np.random.default_rng(1).poisson(4, (N, 3))
AROUND = pd.DataFrame({"age": np.linspace(-1, 1, N), "arm": list("abc") * 4})
AWAY = np.zeros((N, M), bool)
AWAY[2, 1] = AWAY[5, 4] = True
ABSENT = np.repeat([[True], [False]], [2, N - 2], axis=0) & np.ones(3, bool)  # rows that the second matrix lacks
KNOWN = np.array([[0.5, 0.2, 0.1, 0.1, 0.1], [0.1, 0.1, 0.1, 0.2, 0.5]])
LABELS = list("ab") * 6
NO_TEXT = ["", "nan", "a\0", "\ud800", "a ", "a\n", "séq", "x" * 300, *range(4)]

NAMES = {
    "none": None,
    "text": [f"s{i}" for i in range(N)],
    "no text": NO_TEXT,
    "repeated": ["a", "a", "b", *map(str, range(N - 3))],
    "numbers": np.arange(N) / 8,
    "dates": pd.date_range("2020-01-01", periods=N),
}
HELD = {
    "model": ["gamma_poisson", "poisson", "dirichlet_poisson", "dirichlet_gamma", "hierarchical_poisson"],
    "method": ["vi", "map", "gibbs", "bld", "smc"],
    "noise": {
        "poisson": "poisson",
        "nb1": "nb1",
        "nb2 by row": NegativeBinomial("quadratic", "row"),
        "nb1 by feature": NegativeBinomial("linear", "feature"),
        "nb1 array": NegativeBinomial("linear", np.linspace(0.1, 0.5, N), by="row"),
        "quasi": "quasi",
        "by matrix": {"one": "nb2", "two": "poisson"},
    },
    "after": ["nothing", "renamed", "bootstrap", "sampled", "projected", "matrix"],
    "matrices": {"one": {}, "two": {}, "weighted": {"weights": {"one": 2.0}}},
    "missing": {
        "none": {},
        "some": {"missing": AWAY},
        "zeros": {"missing": "zeros"},
    },
    "batch": {"none": None, "learned": LABELS, "given": Batch(LABELS, shape=10.0)},
    "covariates": {
        "none": {},
        "numbers": {"covariates": AROUND[["age"]].to_numpy()},
        "categories": {"covariates": AROUND.to_dict("list"), "formula": "~ age + C(arm)"},
    },
    "before": {"nothing": {}, "seeds": {"seeds": {"first": [0, 1]}},
               "one": {"fixed_components": KNOWN[:1]}, "all": {"fixed_components": KNOWN}},
    "rows": ["text", "no text", "repeated", "numbers", "dates"],
    "features": ["none", "text", "no text", "repeated", "numbers"],
    "exposure": {"none": {}, "row": {"row_exposure": np.linspace(1, 2, N)},
                 "feature": {"feature_exposure": np.linspace(1, 2, M)}},
    "dtype": ["float64", "float32"],
}  # fmt: skip
VALUES = {kind: list(values) for kind, values in HELD.items()}
PLAIN = {kind: values[0] for kind, values in VALUES.items()}
NEGATIVE = ("nb1", "nb2 by row", "nb1 by feature", "nb1 array", "by matrix")
QUADRATIC = ("nb2 by row", "by matrix")
PATCHY = ("some", "zeros")
IN_BATCHES = ("learned", "given")
WITH_COVARIATES = ("numbers", "categories")
SEVERAL = ("two", "weighted")
POINTS = ("map", "bld")
# What the library does not fit together: values of some kinds, and what it says.
REFUSED = [
    ({"method": ["bld"], "model": [each for each in HELD["model"] if each != "dirichlet_gamma"]},
     "method='bld' needs model='dirichlet_gamma'"),
    ({"model": ["dirichlet_poisson"], "noise": QUADRATIC}, "noise='nb2' needs loadings with a scale"),
    ({"model": ["dirichlet_poisson"], "noise": ["nb1 by feature"]}, "given totals need a dispersion"),
    ({"model": ["dirichlet_poisson"], "batch": IN_BATCHES}, "batch needs a model of the totals of rows"),
    ({"model": ["hierarchical_poisson"], "covariates": WITH_COVARIATES}, "covariates need loadings with a Gamma"),
    ({"model": ["hierarchical_poisson"], "before": ["seeds"]}, "seeds need components with a Dirichlet or Gamma prior"),
    ({"model": ["dirichlet_poisson"], "exposure": ["row"]}, "row_exposure needs a model of the totals"),
    ({"model": ["dirichlet_poisson", "dirichlet_gamma"], "exposure": ["feature"]},
     "priors.components must be Dirichlet for model='dirichlet_"),
    ({"method": ["bld"], "noise": [*NEGATIVE, "quasi"]}, "noise='[a-z0-9]+' needs method='map', 'vi'.* found 'bld'"),
    ({"method": ["smc"], "noise": [*QUADRATIC, "quasi"]}, "noise='[a-z0-9]+' needs method='map', 'vi'.* found 'smc'"),
    ({"model": ["dirichlet_gamma"], "method": ["smc"], "noise": ["nb1", "nb1 array"]},
     "noise='nb1' and method='smc' need loadings without a scale"),
    ({"missing": PATCHY, "after": ["sampled"], "model": ["dirichlet_poisson", "dirichlet_gamma"]},
     "intervals='sampled' needs a fit by vi"),
    ({"method": ["smc"], "noise": ["nb1 by feature"]}, "noise='nb1' per feature .* which does not temper them"),
    ({"method": ["bld"], "missing": PATCHY}, "missing entries need .*: found 'bld', which allocates counts one by one"),
    ({"method": ["bld", "smc"], "batch": IN_BATCHES}, "batch needs method='map', 'vi' or 'gibbs'"),
    ({"method": ["bld"], "covariates": WITH_COVARIATES}, "covariates need method='map', 'vi' or 'gibbs'"),
    ({"method": ["smc"], "covariates": WITH_COVARIATES}, "covariates need method='map', 'vi' or 'gibbs'"),
    ({"method": ["bld"], "before": ["one", "all"]}, "method='bld' needs .* found fixed_components"),
    ({"method": ["bld", "smc"], "matrices": ["weighted"]}, "weights need method='map', 'vi' or 'gibbs'"),
    ({"method": ["bld"], "exposure": ["row"]}, "method='bld' needs counts without row_exposure"),
    ({"batch": IN_BATCHES, "matrices": SEVERAL}, "batch needs counts of one matrix: found several"),
    ({"noise": [*NEGATIVE], "matrices": ["weighted"]}, "weights need noise='poisson' or 'quasi'"),
    ({"noise": ["by matrix"], "matrices": ["one"]}, "noise must be one noise for counts of one matrix"),
    ({"model": ["dirichlet_poisson"], "noise": ["nb1", "nb1 array"], "missing": PATCHY}, "given totals need all"),
    ({"model": ["dirichlet_poisson", "dirichlet_gamma"], "method": ["map"], "covariates": WITH_COVARIATES},
     "covariates and method='map' need Gamma loadings"),
    ({"model": ["dirichlet_gamma"], "noise": QUADRATIC, "after": ["sampled"]}, "intervals='sampled' needs a fit by vi"),
    ({"model": ["dirichlet_gamma"], "method": ["smc"], "missing": PATCHY}, "missing entries and method='smc'"),
    ({"model": ["dirichlet_gamma"], "method": ["gibbs"], "missing": PATCHY,
      "noise": ["nb1", "nb1 array", *QUADRATIC, "quasi"]}, "missing entries and loadings that are proportions need"),
    ({"noise": ["quasi"], "after": ["bootstrap"]}, "replicates of a bootstrap need a distribution of the counts"),
    ({"matrices": ["weighted"], "after": ["bootstrap"]}, "replicates of a bootstrap need a distribution of the counts"),
    ({"matrices": SEVERAL, "after": ["projected"]}, "counts must have the 8 features of the fit: found 5"),
    ({"batch": IN_BATCHES, "after": ["projected"]}, "batch must be given for new rows of a fit with batches"),
    ({"covariates": WITH_COVARIATES, "after": ["projected"]}, "transform of a fit with covariates needs those"),
    ({"matrices": ["one"], "after": ["matrix"]}, "fit must be of several matrices for this"),
    ({"method": ["gibbs", "smc"], "after": ["bootstrap"]}, "intervals"),
    ({"method": ["map", "gibbs", "bld", "smc"], "after": ["sampled"]}, "intervals"),
    ({"exposure": ["row"], "after": ["projected"]}, "row_exposure is missing: loadings of this fit are per unit"),
]  # fmt: skip


def clashes(case):
    """Return what the library says of a case, in whole or in part, if it has values that are not fitted together."""
    for values, message in REFUSED:
        for kind, own in values.items():
            if case.get(kind) not in own:
                break
        else:
            return message
    return None


def covering(values, clashing):
    """Return cases that have every pair of values of two kinds which some case without a clash has, few by greed."""
    left = {pair: None for a, b in combinations(values, 2) for pair in product(told(a, values[a]), told(b, values[b]))}
    found = []
    while left:
        pair = next(iter(left))
        del left[pair]
        case = completed(dict(pair), values, left, clashing)
        if case:
            found.append({kind: case[kind] for kind in values})
            for met in combinations(found[-1].items(), 2):
                left.pop(met, None)
    return found


def told(kind, values):
    return [(kind, value) for value in values]


def completed(case, values, left, clashing):
    """Return a case with a value of each kind, which has many of the pairs that are left; None if all of them clash."""
    free = [kind for kind in values if kind not in case]
    if clashing(case) or any(all(clashing({**case, kind: value}) for value in values[kind]) for kind in free):
        return None
    if not free:
        return case
    kind = free[0]

    def gain(value):
        here = (kind, value)
        return sum((other, here) in left or (here, other) in left for other in case.items())

    for value in sorted(values[kind], key=gain, reverse=True) if left else values[kind]:
        found = completed({**case, kind: value}, values, left, clashing)
        if found:
            return found
    return None


def given(case):
    """Return counts and keywords of `bayesnmf.fit` for a case."""
    keywords = {"rank": K, "seed": 0, "model": case["model"], "method": case["method"]}
    keywords["noise"], keywords["batch"] = HELD["noise"][case["noise"]], HELD["batch"][case["batch"]]
    for kind in ("missing", "covariates", "before", "exposure", "matrices"):
        keywords |= HELD[kind][case[kind]]
    keywords["options"] = options_of(case)
    rows, features = NAMES[case["rows"]], NAMES[case["features"]]
    features = features if features is None else features[-M:]
    if "seeds" in keywords:
        keywords["seeds"] = {"first": seeded(case, features)}
    counts = COUNTS if rows is None and features is None else pd.DataFrame(COUNTS, rows, features)
    if case["matrices"] == "one":
        return counts, keywords
    second = pd.DataFrame(SECOND, rows, list("uvw"))
    if case["missing"] == "some":
        keywords["missing"] = {"one": AWAY, "two": ABSENT}
    if "fixed_components" in keywords:
        known = keywords["fixed_components"]
        keywords["fixed_components"] = np.hstack([0.7 * known, np.full((len(known), 3), 0.1)])
    if "feature_exposure" in keywords:
        keywords["feature_exposure"] = np.linspace(1, 2, M + 3)
    return {"one": counts, "two": second}, keywords


def seeded(case, features):
    """Return the names of two features of the first matrix."""
    if features is not None and case["features"] != "numbers":
        return list(map(str, np.asarray(features)[-2:]))
    if features is not None:
        return list(features[-2:])
    return [0, 1] if case["matrices"] == "one" else ["one: 0", "one: 1"]


def options_of(case):
    priors = {}
    if case["model"] == "poisson":
        priors["loadings"] = Gamma(1.5, 0.1)
    if case["exposure"] == "feature":
        priors["components"] = Gamma(1.5, 1.0)
    own = {"priors": Priors(**priors), "threads": 1}
    if case["method"] in ("map", "vi"):
        return METHODS[case["method"]].options(max_iter=4, dtype=case["dtype"], **own)
    of_method = {
        "gibbs": {"chains": 2, "draws": 5, "warmup": 2, "start": "random"},
        "bld": {"max_iter": 4, "start": "random"},
        "smc": {"particles": 4, "runs": 2, "refinement": 1},
    }
    return METHODS[case["method"]].options(**of_method[case["method"]], **own)


def made(case):
    """Return the fit of a case."""
    counts, keywords = given(case)
    fit = bayesnmf.fit(counts, **keywords)
    match case["after"]:
        case "renamed":
            return fit.rename(["x", "séq \ud800"])
        case "bootstrap" | "sampled" as kind:
            return fit.with_intervals(kind, draws=8, **({"warmup": 2} if kind == "sampled" else {}))
        case "projected":
            return fit.project(COUNTS[:4])
        case "matrix":
            return fit.matrix("two")
    return fit


CASES = covering(VALUES, clashes)
FIRST = EACH = 8  # cases of the default suite, in which each reading is of one of them


@cache
def fit_of(number):
    return made(CASES[number])


# --- what is loaded ------------------------------------------------------------------------------------

# How methods of `Fit` are called that need arguments, and what else than a result they may say.
CALLED = {
    "matrix": lambda fit: fit.matrix("two"),
    "predicted_shares": lambda fit: fit.predicted_shares(AROUND.iloc[:2]),
    "project": lambda fit: fit.project(new_rows(fit)),
    "rename": lambda fit: fit.rename({fit.component_labels[0]: "other"}),
    "sample_posterior": lambda fit: fit.sample_posterior(few(fit), seed=1),
    "sample_posterior_predictive": lambda fit: fit.sample_posterior_predictive(2, seed=1),
    "to_datatree": lambda fit: fit.to_datatree(draws=few(fit)),
    "transform": lambda fit: fit.transform(new_rows(fit)),
    "with_intervals": lambda fit: fit.with_intervals(draws=8, warmup=2),
}
DECLINED = {
    "batch_factors": "need a fit with batches",
    "dispersion": "dispersion needs|weights|parameters",
    "effects": "covariates",
    "explained": "project",
    "matrices": "fit must be of several matrices",
    "matrix": "fit must be of several matrices",
    "predicted_shares": "covariates",
    "program": r"fit\.program\(\) needs what method='(nuts|svi)' needs",
    "project": "row_exposure|batch|covariates|features",
    "transform": "row_exposure|batch|covariates|features",
    "sample_posterior": "has no posterior",
    "sample_posterior_predictive": "need a distribution of the counts|missing entries",
    "sensitivity": "sensitivity needs? ",
    "summary": "has no posterior",
    "to_anndata": "needs counts without missing entries",
    "with_intervals": "intervals",
}
WRITTEN = ("of", "save")  # what returns no reading
ELSEWHERE = "reference"  # the field of a fit that is not in files
DRAWN = ("structure", "components", "top_features")


def few(fit):
    """Return a number of draws that a fit has."""
    return 1 if fit.estimate.kind == "point" and fit.intervals is None else 3


def new_rows(fit):
    return fit.counts.matrix[:3]


def call(name):
    return CALLED.get(name, lambda fit: getattr(fit, name)())


def picture(name):
    def drawn(fit):
        axes = getattr(bayesnmf.plots, name)(fit)
        figure = np.ravel(axes)[0].figure
        figure.canvas.draw()
        pixels = np.asarray(figure.canvas.buffer_rgba()).copy()
        plt.close("all")
        return pixels

    return drawn


PUBLIC = [name for name in dir(bayesnmf.Fit) if not name.startswith("_") and name not in WRITTEN]
READINGS = {
    **{name: call(name) for name in PUBLIC if callable(getattr(bayesnmf.Fit, name))},
    **{f"plots.{name}": picture(name) for name in DRAWN},
    "repr": repr,
    "html": lambda fit: fit._repr_html_(),
}


def reading(name, fit):
    """Return what is read from a fit, or what it says in place of it: a sentence that is expected there."""
    try:
        return READINGS[name](fit)
    except (ValueError, AttributeError) as error:
        if not re.search(DECLINED.get(name, "(?!)"), str(error)):
            raise
        return str(error)


def alike(a, b):
    """Equal to the bit, but for the seconds that further fits took."""
    return same(replace(a, seconds=0.0), replace(b, seconds=0.0)) if isinstance(a, FitRecord) else same(a, b)


@pytest.mark.parametrize("number", [case if case < FIRST else in_long(case) for case in range(len(CASES))])
def test_what_is_saved_is_loaded_and_read_as_before(number, tmp_path, request):
    fit, long = fit_of(number), number >= FIRST or "long" in request.config.option.markexpr
    for suffix in (".nc", ".zarr") if long else (".zarr" if number % 4 == 3 else ".nc",):
        fit.save(tmp_path / f"fit{suffix}")
        loaded = bayesnmf.load(tmp_path / f"fit{suffix}")
        assert same(loaded, replace(fit, **{ELSEWHERE: None}))
    fit = replace(fit, **{ELSEWHERE: None})
    for place, name in enumerate(READINGS):
        if long or (place + number) % EACH == 0:
            assert alike(reading(name, fit), reading(name, loaded)), name


# --- what is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("values", "message"), REFUSED)
def test_what_is_not_fitted_together_is_refused_before_work(values, message, monkeypatch):
    def worked(*_):
        raise AssertionError("the fit began")

    clashing = REFUSED.index((values, message))
    others = REFUSED[:clashing] + REFUSED[clashing + 1 :]
    for chosen in combinations_of(values):
        monkeypatch.setattr("test_saved_is_loaded.REFUSED", others, raising=True)
        case = completed(chosen, VALUES, (), clashes) or completed(chosen, VALUES, (), lambda _: None)
        monkeypatch.undo()
        if "after" not in values:
            monkeypatch.setattr(fitting, "run_once", worked)
        with pytest.raises((ValueError, TypeError), match=message):
            made(case)


def combinations_of(values):
    """Return cases with each of the values of each kind, the first of the others."""
    first = {kind: own[0] for kind, own in values.items()}
    return [{**first, kind: value} for kind, own in values.items() for value in own]


# --- what a case may be too: every option of every method ----------------------------------------------------

START = {"start": "random", "threads": 1}
PRIORS = Priors(Gamma(1.5, 0.1), Dirichlet(1.2))
OPTIONS = {
    "map": MAP(priors=PRIORS, start="svd", basis="log", algorithm="em", schedule="alternating", order="components",
               sweeps=2, extrapolate=False, restarts=2, max_iter=3, tol=1e-3, kkt_tol=1e-9, dtype="float32", threads=1),
    "vi": VI(priors=PRIORS, algorithm="coordinate", restarts=2, schedule="alternating", order="components", sweeps=2,
             extrapolate=False, learn=("loadings",), max_iter=3, tol=1e-3, intervals="mean_field", dtype="float32",
             **START),
    "vi, minibatches": VI(algorithm="minibatch", batch_size=4, forgetting=0.8, delay=2.0, max_iter=3, **START),
    "gibbs": Gibbs(priors=PRIORS, chains=2, draws=8, warmup=2, thin=2, algorithm="marginal", keep="moments", **START),
    "gibbs, collapsed": Gibbs(chains=2, draws=8, warmup=2, collapsed=True, **START),
    "smc": SMC(priors=PRIORS, particles=4, runs=2, refinement=1, efficiency=0.9, threads=1),
    "bld": BLD(priors=Priors(None, Dirichlet(1.2)), restarts=2, max_iter=3, tol=1e-3, **START),
    "vi, from factors": VI(start=Start(np.full((N, K), 0.5), KNOWN), max_iter=2, threads=1),
}  # fmt: skip
PROGRAMS = {
    "nuts": NUTS(priors=PRIORS, start="random", chains=1, draws=9, warmup=8, target_accept=0.7, max_tree_depth=3,
                 dense_mass=True, init_strategy="median", chain_method="sequential", dtype="float32"),
    "svi": SVI(priors=PRIORS, start="random", bound="augmented", max_iter=5, learning_rate=0.02, particles=2,
               dtype="float32"),
}  # fmt: skip
GIVEN = {**OPTIONS, **PROGRAMS}
KINDS = {type(each) for each in GIVEN.values()}
UNSET = {("MAP", "device"), ("VI", "device"), ("Gibbs", "budget")}  # a GPU, and the seconds of draws="auto"
every_option = pytest.mark.parametrize("name", [*OPTIONS, *map(in_long, PROGRAMS)])


def of_options(name):
    method = name.split(",")[0]
    model = "dirichlet_gamma" if method == "bld" else "gamma_poisson"
    return {"counts": COUNTS, "model": model, "rank": K, "method": method, "seed": 3, "options": GIVEN[name]}


@every_option
@pytest.mark.parametrize("suffix", [".nc", in_long(".zarr")])
def test_every_option_is_kept(name, suffix, tmp_path):
    fit = bayesnmf.fit(**of_options(name))
    fit.save(tmp_path / f"fit{suffix}")
    assert same(bayesnmf.load(tmp_path / f"fit{suffix}"), fit)


def test_every_option_is_given_by_some_fit():
    """So that a new option fails here until a fit above has it, with another value than its default."""
    for kind in KINDS:
        for field in fields(kind):
            default = field.default_factory() if field.default is MISSING else field.default
            values = [getattr(each, field.name) for each in GIVEN.values() if type(each) is kind]
            known = (kind.__name__, field.name) in UNSET
            assert known or not all(same(each, default) for each in values), (kind, field.name)


@pytest.mark.long
def test_every_part_of_a_fit_is_in_some_file():
    """So that a new field of what a fit holds fails here until a case above has it, and something in it."""
    whole = [fit_of(number) for number in range(len(CASES))] + [bayesnmf.fit(**of_options(name)) for name in OPTIONS]
    held = [each for fit in whole for each in parts_of(fit)]
    met = {(type(each).__name__, name) for each in held for name, value in own_fields(each) if has_something(value)}
    declared = {(type(each).__name__, name) for each in held for name, _ in own_fields(each)}
    # one is refused, and fits of programs are in tests/fitting/test_recognition.py
    assert declared - met == {("SeveralCounts", "batch"), ("Fit", "sites")}


def own_fields(record):
    return [(field.name, getattr(record, field.name)) for field in fields(record)]


def has_something(value):
    return value is not None and not (isinstance(value, (dict, tuple, str)) and not value)


def parts_of(record):
    """Yield a record and all records that it holds, but for options."""
    yield record
    for _, value in own_fields(record):
        if is_dataclass(value) and type(value) not in KINDS:
            yield from parts_of(value)


# --- the same through a checkpoint -----------------------------------------------------------------------


@pytest.mark.parametrize("number", mostly_long(range(len(CASES)), range(0, FIRST, 9)))
def test_an_ended_fit_is_not_done_again(number, tmp_path, monkeypatch):
    counts, keywords = given(CASES[number])
    first = bayesnmf.fit(counts, **keywords, checkpoint=tmp_path / "run")
    monkeypatch.setattr(fitting, "run_once", None)  # nothing is fitted for the second call
    assert same(bayesnmf.fit(counts, **keywords, checkpoint=tmp_path / "run"), first)


@pytest.mark.parametrize("name", [*mostly_long(OPTIONS), *map(in_long, PROGRAMS)])
def test_an_ended_fit_with_every_option_is_not_done_again(name, tmp_path, monkeypatch):
    first = bayesnmf.fit(**of_options(name), checkpoint=tmp_path / "run")
    monkeypatch.setattr(fitting, "run_once", None)
    assert same(bayesnmf.fit(**of_options(name), checkpoint=tmp_path / "run"), first)


def test_every_pair_of_values_is_fitted_or_refused():
    met = {pair for case in CASES for pair in combinations(case.items(), 2)}
    for a, b in combinations(VALUES, 2):
        for pair in product(told(a, VALUES[a]), told(b, VALUES[b])):
            assert (pair in met) == (completed(dict(pair), VALUES, (), clashes) is not None), pair
    assert not any(clashes(case) for case in CASES)
