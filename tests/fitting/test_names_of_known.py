"""Names of known components are those of the fit, whatever they are given as."""

import numpy as np
import pandas as pd
import pytest
from plain import plain_vi

import bayesnmf
from bayesnmf import MAP, NUTS, SMC, SVI, Gibbs

FEATURES = [f"g{j}" for j in range(12)]
RNG = np.random.default_rng(0)
TRUE = RNG.dirichlet(np.full(12, 0.3), 3)
COUNTS = pd.DataFrame(RNG.poisson(RNG.gamma(1.0, 50.0, (40, 3)) @ TRUE), columns=FEATURES)
KNOWN = pd.DataFrame(TRUE[:2], ["SBS1", "SBS5"], FEATURES)
NAMES = ["SBS1", "SBS5", "component 2"]
OPTIONS = {
    "map": MAP(start="svd"),
    "vi": plain_vi(start="svd", restarts=2),
    "gibbs": Gibbs(start="random", chains=2, draws=10, warmup=10),
    "smc": SMC(particles=20, refinement=1),
    "nuts": NUTS(start="random", chains=1, draws=5, warmup=5),
    "svi": SVI(start="random", max_iter=5),
}
FEW_STEPS = plain_vi(start="svd", max_iter=5)  # where components are asked for their names alone
pytestmark = pytest.mark.filterwarnings("ignore::bayesnmf.inference.status.ConvergenceWarning")


def fit(known=KNOWN, rank=3, method="vi", **more):
    given = {"options": OPTIONS[method], "seed": 0, **more}
    return bayesnmf.fit(COUNTS, rank=rank, method=method, fixed_components=known, **given)


LONG = [pytest.param(method, marks=pytest.mark.long) for method in ("smc", "nuts", "svi")]  # which take long


@pytest.mark.parametrize("method", ["map", "vi", "gibbs", *LONG])
def test_every_method_names_what_is_known(method, tmp_path):
    found = fit(KNOWN[FEATURES[::-1]], method=method)
    assert found.component_titles == NAMES
    np.testing.assert_allclose(found.components[:2], TRUE[:2], rtol=1e-6)
    found.save(tmp_path / "fit.nc")
    assert bayesnmf.load(tmp_path / "fit.nc").component_titles == NAMES


def test_what_reads_a_fit_has_the_names():
    found = fit()
    assert found.project(COUNTS[:3]).component_titles == NAMES
    assert list(found.top_features(2)) == NAMES
    assert set(bayesnmf.markers(found)["component"]) == set(NAMES)
    assert [f"loadings[0, {name}]" for name in NAMES] == found.summary().index[:3].tolist()
    free = bayesnmf.fit(COUNTS, rank=3, seed=0, options=OPTIONS["vi"])
    assert set(bayesnmf.match(free, found).table["reference"]) == set(NAMES)
    assert {*bayesnmf.match(found, free).table["reference"]} == {0, 1, 2}  # as it has no names


def test_a_fit_and_a_file_give_their_names(tmp_path):
    found = fit()
    found.save(tmp_path / "fit.nc")
    KNOWN.to_csv(tmp_path / "known.csv")
    assert fit(tmp_path / "known.csv", options=FEW_STEPS).component_titles == NAMES
    for known in (found, tmp_path / "fit.nc"):
        assert fit(known, rank=None, options=FEW_STEPS).component_titles == NAMES
        assert fit(known, rank=4, options=FEW_STEPS).component_titles == [*NAMES, "component 3"]


@pytest.mark.parametrize(
    "index", [None, [5, 2], ["7", "2"], [1.0, 2.0], [-1, -2], [True, False], ["component 2", "component 0"]], ids=str
)
def test_numbers_are_no_names(index):
    known = KNOWN.reset_index(drop=True) if index is None else KNOWN.set_axis(index)
    assert fit(known, options=FEW_STEPS).component_names is None


def test_arrays_have_no_names():
    assert fit(TRUE[:2], options=FEW_STEPS).component_names is None


@pytest.mark.parametrize("none", ["component 2", 7, np.nan])
def test_what_has_no_name_is_called_by_its_own_place(none):
    one, two = (fit(KNOWN.set_axis(names), options=FEW_STEPS) for names in (["SBS1", none], [none, "SBS5"]))
    assert one.component_titles == ["SBS1", "component 1", "component 2"]
    assert two.component_titles == ["component 0", "SBS5", "component 2"]


def test_a_match_gives_names_alone():
    """Were "component 2" one, it could be that of another component, too."""
    free = bayesnmf.fit(COUNTS, rank=4, seed=0, options=OPTIONS["vi"])
    found = bayesnmf.match(free, fit())
    assert sorted(found.names.values()) == ["SBS1", "SBS5"]
    assert {"SBS1", "SBS5"} < {*free.rename(found.names).component_titles}


def test_names_that_repeat_are_refused_before_the_fit():
    with pytest.raises(ValueError, match="fixed_components must have different names: found"):
        fit(KNOWN.set_axis(["SBS1", "SBS1"]))


def test_given_names_may_change():
    found = fit()
    assert found.rename({2: "new", "SBS5": "flat"}).component_titles == ["SBS1", "flat", "new"]
    start = OPTIONS["vi"].__class__(start=found, max_iter=3)
    assert fit(KNOWN.set_axis(["A", "B"]), options=start).component_titles == ["A", "B", "component 2"]


def test_a_fit_that_had_ended_has_the_names_of_the_call(tmp_path):
    for known in (KNOWN, KNOWN.set_axis(["A", "B"])):
        assert fit(known, checkpoint=tmp_path / "kept").component_titles == [*known.index, "component 2"]


def test_modes_and_their_consensus_have_the_names():
    options = plain_vi(max_iter=40)
    found = bayesnmf.modes(COUNTS, rank=3, starts=3, options=options, fixed_components=KNOWN, scored=0, jobs=1)
    assert all(each.component_titles == NAMES for each in found.fits)
    assert found.consensus(density=2.0).fit.component_titles == NAMES


TWO = pd.DataFrame([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]], ["A", "B"], list("xyz"))
THREE_FEATURES = pd.DataFrame([[30, 12, 9], [4, 20, 30], [9, 9, 12]], columns=list("xyz"))
FEW = {"chains": 1, "draws": 5, "warmup": 5, "seed": 0}


def takers(catalogue):
    fit = bayesnmf.fit(THREE_FEATURES, rank=2, seed=0, method="map", options=bayesnmf.MAP(max_iter=2, tol=0.0))
    return {
        "catalogue": lambda: bayesnmf.assign(THREE_FEATURES, catalogue, **FEW),
        "reference": lambda: bayesnmf.match(fit, catalogue),
        "fixed_components": lambda: bayesnmf.fit(THREE_FEATURES, fixed_components=catalogue, method="map", seed=0),
    }


@pytest.mark.filterwarnings("ignore::bayesnmf.ConvergenceWarning")
@pytest.mark.parametrize("taker", ["catalogue", "reference", "fixed_components"])
def test_a_catalogue_with_a_name_twice_is_refused_and_one_with_equal_components_told(taker):
    """The presence of a signature was split between its two copies."""
    with pytest.raises(ValueError, match=r"'A'.*twice|'A' 2 times; keep one of each|must have different names"):
        takers(pd.concat([TWO, TWO.iloc[:1]]))[taker]()
    same = pd.concat([TWO, (3 * TWO.iloc[:1] / 3).set_axis(["C"])])
    with pytest.warns(bayesnmf.DataWarning, match=f"{taker} has equal components, A and C: counts cannot"):
        takers(same)[taker]()
