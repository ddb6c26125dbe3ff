"""Labels of counts, groups, exposures and components: one rule, in each public function that takes them."""

import inspect
import warnings
from dataclasses import is_dataclass, replace

import numpy as np
import pandas as pd
import pytest
import smallfits
from labelled import (
    BY_FEATURE,
    BY_ROW,
    COMPONENTS,
    COUNTED,
    COUNTS,
    FEATURES,
    GROUPS,
    KINDS,
    KNOWN,
    OF_ESTIMATORS,
    OF_FEATURES,
    QUICK,
    ROWS,
    TABLES,
    UNLABELLED,
    VECTORS,
    as_annotated,
    as_arrow,
    as_polars,
    changed,
    found_modes,
    made,
)  # fmt: skip

import bayesnmf
from bayesnmf import Dirichlet, Priors
from bayesnmf.noise.abilities import Noise
from bayesnmf.priors import Distribution

pytestmark = [
    smallfits.quietly,
    pytest.mark.filterwarnings("ignore::bayesnmf.DataWarning", "ignore:(Observation|Variable) names are not unique"),
]

REFUSED = r"must have the \d+ (rows|features) of the|must have one (row|column)|must have different names"
NOT_IN_ORDER = "feature names should match|only supported if all input features have string names"  # of scikit-learn
TOLD = "names of (row|feature)s (repeat|are missing)"


SLOW = ("modes", "compare", "select")  # what they share with the others is seen there


def cases(tables, containers, kinds=KINDS):
    """Return each argument with each container and the kinds of labels that are given to it."""
    return pytest.mark.parametrize(
        ("call", "container", "kinds"),
        [
            pytest.param(call, make, [kind for kind in kinds if kind in possible], id=f"{name}-{container}")
            for name, call in tables.items()
            for container, (make, possible) in containers.items()
            if container == "pandas" or not name.startswith(SLOW)
        ],
    )


def check(call, make, kinds, plain, accepted=("reordered",)):
    wanted = call(plain)
    for kind in kinds:
        given = made(make, plain, kind)
        if kind in accepted:
            np.testing.assert_allclose(call(given), wanted, rtol=1e-9)
        else:
            with pytest.raises(ValueError, match=REFUSED):
                call(given)


@cases(OF_FEATURES, TABLES)
def test_features_of_counts_are_matched_or_refused(call, container, kinds, request):
    if request.node.name.split("[")[1].startswith(
        ("Fit.", "MinibatchVI.")
    ):  # which take other features: see tests/fitting/test_other_features
        kinds = [kind for kind in kinds if kind not in ("missing", "extra")]
    check(call, container, kinds, COUNTS)


@cases(OF_ESTIMATORS, TABLES)
def test_features_of_estimators_are_refused_unless_they_are_in_order(call, container, kinds):
    for kind in kinds:
        with pytest.raises((TypeError, ValueError), match=f"{REFUSED}|{NOT_IN_ORDER}"):
            call(made(container, COUNTS, kind))


@pytest.mark.filterwarnings("ignore:.* have features beyond those of the (counts|fit), 1 left out")
@cases(COMPONENTS, {name: TABLES[name] for name in TABLES if name != "AnnData"})
def test_features_of_components_are_matched_or_refused(call, container, kinds):
    check(call, container, kinds, KNOWN, accepted=("reordered", "extra"))  # those beyond the names are left out


@cases(BY_ROW, VECTORS)
def test_rows_are_matched_or_refused(call, container, kinds, request):
    plain = GROUPS if ".groups" in request.node.name else ROWS
    check(call, container, kinds, plain, accepted=("reordered", "extra"))  # those beyond the names are left out


@cases(BY_FEATURE, VECTORS)
def test_exposures_of_features_are_matched_or_refused(call, container, kinds):
    check(call, container, kinds, FEATURES, accepted=("reordered", "extra"))


@pytest.mark.parametrize("make", UNLABELLED.values(), ids=UNLABELLED)
@pytest.mark.parametrize(
    ("call", "plain"), [(BY_ROW["group_contrasts.groups"], GROUPS), (BY_ROW["fit.row_exposure"], ROWS)]
)
def test_what_has_no_labels_goes_by_position_and_has_their_number(call, plain, make):
    np.testing.assert_array_equal(call(make(plain)), call(plain))
    for other in (plain[:-1], pd.concat([plain, plain[:1]])):
        with pytest.raises(ValueError, match=r"must have one (entry for each of 12 rows|number for each row)"):
            call(make(other))


@pytest.mark.parametrize("kind", ["missing", "repeated", "NaN"])
def test_groups_of_pages_and_plots_are_refused_before_anything_is_drawn(kind, tmp_path):
    groups = changed(GROUPS, kind)
    with pytest.raises(ValueError, match=REFUSED):
        bayesnmf.report(smallfits.fit(), tmp_path / "page.html", groups=groups)
    with pytest.raises(ValueError, match=REFUSED):
        bayesnmf.plots.structure(smallfits.fit(), groups)
    with pytest.raises(ValueError, match=REFUSED):
        bayesnmf.plots.group_shares(smallfits.fit(), groups)


@cases(COUNTED, TABLES, ("repeated", "NaN"))
def test_counts_whose_names_repeat_or_are_missing_are_told(call, container, kinds):
    tables = [made(container, COUNTS, kind) for kind in kinds]
    if container not in (as_polars, as_arrow):  # which have no names of rows
        tables += [made(container, COUNTS, kind, rows=True) for kind in kinds]
    for given in tables:
        with warnings.catch_warnings():
            warnings.simplefilter("error", bayesnmf.DataWarning)  # so that nothing is fitted
            with pytest.raises((bayesnmf.DataWarning, ValueError, TypeError), match=f"{TOLD}|{REFUSED}|{NOT_IN_ORDER}"):
                call(given)


@pytest.mark.filterwarnings("ignore:.* have features beyond those of the (counts|fit), 1 left out")
def test_components_of_modes_are_matched_or_refused():
    found = found_modes()
    plain = pd.DataFrame(found.best.components, columns=COUNTS.columns)
    for container, (make, kinds) in TABLES.items():
        if container != "AnnData":
            check(found.assign, make, kinds, plain, accepted=("reordered", "extra"))


@pytest.mark.parametrize("make", [make for make, _ in TABLES.values()], ids=TABLES)
def test_names_go_with_the_counts(make):
    given = COUNTS.iloc[::-1, ::-1]
    found = bayesnmf.as_counts(make(given))
    assert found.feature_names.tolist() == given.columns.tolist()
    if found.row_names[0] != 0:  # tables of polars and pyarrow have no names of rows
        assert found.row_names.tolist() == given.index.tolist()
    np.testing.assert_array_equal(found.matrix.toarray(), given)


@pytest.mark.parametrize("kind", KINDS[:-1])
@pytest.mark.parametrize("rows", [True, False])
def test_results_are_written_into_the_fitted_object_only(kind, rows):
    with pytest.raises(ValueError, match=r"adata must have the (rows|features) of the fit"):
        smallfits.fit().to_anndata(made(as_annotated, COUNTS, kind, rows))


def test_groups_of_repeated_row_names_go_by_position_if_the_names_are_the_same():
    """As where two runs of 10x are concatenated, whose barcodes repeat."""
    once = [f"cell{i}" for i in range(6)]
    fit = fitted_runs(once * 2)
    groups = ["a"] * 6 + ["b"] * 6
    wanted = bayesnmf.group_contrasts(fit, groups, draws=20)
    found = bayesnmf.group_contrasts(fit, pd.Series(groups, once * 2), draws=20)
    pd.testing.assert_frame_equal(found, wanted)
    for other in (pd.Series(groups, once * 2).iloc[::-1], pd.Series(groups[:6], once), dict.fromkeys(once, "a")):
        with pytest.raises(ValueError, match=r"6 names repeated in the fit: .*; make names different"):
            bayesnmf.group_contrasts(fit, other, draws=20)


def fitted_runs(names):
    return bayesnmf.fit(COUNTS.set_axis(names), rank=2, seed=0, options=QUICK)


def test_known_components_may_be_a_file(tmp_path):
    """In rows, or in columns beside mutation types."""
    plain = KNOWN.iloc[:, ::-1]
    plain.to_csv(tmp_path / "known.csv")
    found = bayesnmf.fit(COUNTS, seed=0, options=QUICK, fixed_components=tmp_path / "known.csv")
    wanted = bayesnmf.fit(COUNTS, rank=2, seed=0, options=QUICK, fixed_components=KNOWN)
    assert found.rank == 2
    np.testing.assert_allclose(found.loadings, wanted.loadings, rtol=1e-9)
    types = [f"{a}[{b}]{c}" for b in ("C>A", "C>G", "C>T", "T>A", "T>C", "T>G") for a in "ACGT" for c in "ACGT"]
    rng = np.random.default_rng(0)
    catalogue = pd.DataFrame(rng.dirichlet(np.ones(96), 2), ["SBS1", "SBS2"], types)
    counts = pd.DataFrame(rng.poisson(3, (4, 96)), columns=types)
    catalogue.iloc[:, ::-1].T.rename_axis("Type").to_csv(tmp_path / "COSMIC.txt", sep="\t")
    with warnings.catch_warnings():
        warnings.simplefilter("error", bayesnmf.DataWarning)
        found = bayesnmf.fit(counts, seed=0, options=QUICK, fixed_components=str(tmp_path / "COSMIC.txt"))
    np.testing.assert_allclose(found.components, catalogue, rtol=1e-9)


def test_annotated_objects_give_the_names_of_the_fit_made_in_place():
    made = as_annotated(COUNTS.iloc[:, ::-1])
    found = bayesnmf.tl.fit(made, rank=2, seed=0, options=QUICK)
    assert found.feature_names.tolist() == made.var_names.tolist()
    repeated = as_annotated(changed(COUNTS, "repeated"))
    with pytest.warns(bayesnmf.DataWarning, match="names of features repeat"):
        bayesnmf.tl.fit(repeated, rank=2, seed=0, options=QUICK)


@pytest.mark.parametrize(
    ("container", "make"), [(name, make) for name, (make, _) in TABLES.items() if name != "AnnData"]
)
def test_tables_in_options_have_no_labels(container, make):
    """Options are made before there are counts, whose order their labels could be compared with."""
    table = make(pd.DataFrame(np.ones((2, 9)), columns=COUNTS.columns))
    start = replace(QUICK, start=bayesnmf.Start(np.ones((12, 2)), table))
    with pytest.raises(TypeError, match=r"start\.components must have no labels"):
        bayesnmf.fit(COUNTS, rank=2, options=start)
    with pytest.raises(TypeError, match=r"priors\.components\.concentration must have no labels"):
        Priors(components=Dirichlet(table))


@pytest.mark.parametrize(("side", "given"), [("row", COUNTS.iloc[::-1]), ("feature", COUNTS.iloc[:, ::-1])])
def test_a_fit_to_start_from_has_the_names_of_the_counts_in_their_order(side, given):
    start = bayesnmf.fit(COUNTS, rank=2, seed=0, options=QUICK)
    with pytest.raises(ValueError, match=f"start must have its {side}s in the order of the counts"):
        bayesnmf.fit(given, rank=2, options=replace(QUICK, start=start))
    with pytest.raises(ValueError, match=f"start's {side}_names must have the"):
        bayesnmf.fit(given.rename(str.upper, axis=side == "feature"), rank=2, options=replace(QUICK, start=start))
    unnamed = bayesnmf.fit(given.to_numpy(), rank=2, options=replace(QUICK, start=start))
    assert unnamed.status.iterations > 0


NAMED = {"counts", "X", "x", "adata", "groups", "row_exposure", "feature_exposure", "fixed_components", "components"}
OTHERWISE = {  # what has a parameter of such a name, and why it is not in a table
    "tl.fit.adata": "has a test of its own",
    "Fit.to_anndata.adata": "has a test of its own",
    "plots.loadings_scatter.x": "number of a component",
    "report.groups": "has a test of its own",
    "plots.structure.groups": "has a test of its own",
    "plots.group_shares.groups": "has a test of its own",
    "Fit.rename.components": "names",
    "log_p_allocation.components": "a prior",
    "LinearResponse.contrast.components": "weights by pairs of names",
    "Counts.exposed_components.components": "an array between parts of the library",
    "Counts.with_exposure.row_exposure": "an array between parts of the library",
    "Counts.with_exposure.feature_exposure": "an array between parts of the library",
    "from_draws.counts": "read by the function of fit; labels of draws have tests of their own",
    "from_draws.components": "name of a site",
    "from_draws.row_exposure": "read by the function of fit",
    "from_draws.feature_exposure": "read by the function of fit",
    "conjugate_block.counts": "read by the function of fit",
    "simulate.row_exposure": "of counts that have no names",
    "simulate.feature_exposure": "of counts that have no names",
    "Modes.assign.components": "has a test of its own",
    "BayesNMF.inverse_transform.X": "loadings, which tests of the estimators name",
}


def public_functions():
    """Yield names and objects of all public functions, methods and constructors; records are made by the library."""
    for name in bayesnmf.__all__:
        value = getattr(bayesnmf, name)
        module = inspect.ismodule(value)
        home = value.__name__ if module else "bayesnmf"
        if not module and not callable(value):
            continue
        if not module and not (is_dataclass(value) or hasattr(value, "_fields")) and "Warning" not in name:
            yield name, value
        if (module or inspect.isclass(value)) and not (
            inspect.isclass(value) and issubclass(value, Distribution | Noise)
        ):
            for each, part in inspect.getmembers(value, inspect.isroutine):  # which take arrays of the library
                if not each.startswith("_") and str(getattr(part, "__module__", "")).startswith(home):
                    yield f"{name}.{each}", part


def test_every_argument_with_labels_is_in_a_table():
    tables = {*OF_FEATURES, *OF_ESTIMATORS, *COMPONENTS, *BY_ROW, *BY_FEATURE, *COUNTED}
    found = {
        f"{name}.{parameter}"
        for name, function in public_functions()
        for parameter in inspect.signature(function).parameters
        if parameter in NAMED and not name.startswith("BayesLDA")  # whose methods are those of BayesNMF
    }
    assert found - {"match.reference"} == (tables | {*OTHERWISE}) - {"match.reference"}
