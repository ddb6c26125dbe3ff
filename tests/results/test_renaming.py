"""Names that a user gives to components, rows and features, and where they appear."""

import matplotlib as mpl
import numpy as np
import pytest
from plain import even_priors

import bayesnmf
from bayesnmf import VI, Gibbs, plots
from bayesnmf.results.thinning import components_table, loadings_table

mpl.use("Agg")
COUNTS = np.random.default_rng(3).poisson(4, (12, 7))
QUICK = {"rank": 2, "seed": 0, "options": VI(start="svd", tol=1e-4, intervals="mean_field")}
NAMES = ["B cells", "T <b>cells</b>"]


@pytest.fixture(scope="module")
def named():
    fit = bayesnmf.fit(COUNTS, **QUICK)
    return fit.rename(NAMES, rows={0: "first"}, features=[f"gene {j}" for j in range(7)])


def test_a_list_or_a_mapping_and_the_given_fit_stays_as_it_was(named):
    fit = bayesnmf.fit(COUNTS, **QUICK)
    one = fit.rename({1: "T"})
    assert one.component_names.tolist() == ["component 0", "T"]
    assert one.rename({"T": "U", 0: "V"}).component_names.tolist() == ["V", "U"]
    assert one.rename({"component 0": "V", "1": "U"}).component_names.tolist() == ["V", "U"]
    assert fit.component_names is None
    assert fit.component_titles == ["component 0", "component 1"]
    assert named.row_names[:2].tolist() == ["first", 1]
    assert named.feature_names[-1] == "gene 6"
    np.testing.assert_array_equal(named.counts.matrix.toarray(), COUNTS)


def test_tables_and_arviz_have_the_names(named):
    assert list(named.top_features(3).columns) == NAMES
    assert list(loadings_table(named).columns[:2]) == NAMES
    assert list(components_table(named).columns[2:]) == [f"{name} sd" for name in NAMES]
    tree = named.to_datatree(draws=4, chains=2)
    assert tree["posterior"]["k"].values.tolist() == NAMES
    table = named.summary(rows=["first"])
    assert list(table.index) == [f"loadings[first, {name}]" for name in NAMES]
    assert named.to_anndata().uns["bayesnmf"]["component_names"].tolist() == NAMES
    projected = named.project(COUNTS[:3])
    assert projected.component_names.tolist() == NAMES


def test_files_keep_the_names_and_files_without_names_have_none(named, tmp_path):
    import xarray as xr

    named.save(tmp_path / "named.nc")
    loaded = bayesnmf.load(tmp_path / "named.nc")
    assert loaded.component_names.tolist() == NAMES
    assert loaded.row_names[0] == "first"
    bayesnmf.fit(COUNTS, **QUICK).save(tmp_path / "plain.nc")
    for name in ("named", "plain"):
        with xr.open_datatree(tmp_path / f"{name}.nc", engine="h5netcdf") as tree:
            assert ("component_names" in tree["fit"]) == (name == "named")


@pytest.fixture(scope="module")
def chains():
    options = Gibbs(
        priors=even_priors(COUNTS, rank=2), start=bayesnmf.fit(COUNTS, **QUICK), chains=2, warmup=20, draws=40
    )
    with pytest.warns(bayesnmf.ConvergenceWarning):
        gibbs = bayesnmf.fit(COUNTS, rank=2, method="gibbs", seed=0, options=options)
    return gibbs.rename(["one", "two"])


def texts(drawn):
    figure = np.ravel(drawn)[0].figure
    found = {text.get_text() for text in figure.findobj(mpl.text.Text)}
    mpl.pyplot.close(figure)
    return found


def test_figures_of_a_fit_show_the_names(named):
    assert {*NAMES} <= texts(plots.structure(named))
    assert {*NAMES} <= texts(plots.top_features(named, 3))
    assert {*NAMES} <= texts(plots.loadings_intervals(named, ["first"]))


def test_figures_of_draws_show_the_names(chains):
    assert any("one" in text for text in texts(plots.loadings_scatter({"a": chains, "b": chains}, "a", "b")))
    assert any(text.endswith(("in one", "in two")) for text in texts(plots.chains(chains)))


@pytest.mark.parametrize(
    ("given", "error", "rule"),
    [
        ({"components": {2: "x"}}, ValueError, "components must map names of the fit to new ones: there is no 2"),
        ({"components": ["a", "a"]}, ValueError, "components must have different names"),
        ({"components": ["a", ""]}, ValueError, "components must have different names"),
        ({"components": {0: "component 1"}}, ValueError, "components must have different names"),
        ({"components": ["a"]}, ValueError, "components must have one name for each of the 2 components"),
        ({"components": "ab"}, TypeError, "components must be a list or array of names"),
        ({"features": ["a"]}, ValueError, "features must have one name for each of the 7 features"),
        ({"rows": {"none": "x"}}, ValueError, "rows must map names of the fit to new ones: there is no 'none'"),
    ],
)
def test_names_that_do_not_fit_are_refused(named, given, error, rule):
    with pytest.raises(error, match=rule):
        bayesnmf.fit(COUNTS, **QUICK).rename(**given)
