"""What a fit says of itself, printed, as a card and in its diagnostics; a second time computes nothing."""

from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pandas as pd
import pytest
import smallfits
from plain import plain_map, plain_vi
from smallfits import COUNTS, N, quietly
from suites import mostly_long

import bayesnmf
from bayesnmf.cards import BAD, DOUBTFUL
from bayesnmf.inference.status import Status
from bayesnmf.results import dispersion, given_components, intervals
from bayesnmf.results.cautions import cautions_of_model, little_used_components
from bayesnmf.results.estimates import Draws, VariationalPosterior

pytestmark = quietly

CATALOGUE = np.random.default_rng(1).dirichlet(np.full(9, 0.5), 3)
OPTIONS = plain_vi(max_iter=40, threads=1)


def known(model="gamma_poisson", counts=COUNTS, components=CATALOGUE, options=OPTIONS, **more):
    return bayesnmf.fit(counts, model, fixed_components=components, seed=0, options=options, **more)


FITS = {
    "vi": lambda: smallfits.fit(),
    "map": lambda: smallfits.fit(method="map"),
    "gibbs": lambda: smallfits.fit(method="gibbs"),
    "known": known,
    "known, hierarchical": lambda: known("hierarchical_poisson"),
    "known, quasi": lambda: known(noise="quasi"),
    "nb1": lambda: bayesnmf.fit(COUNTS, rank=3, seed=0, noise="nb1", options=OPTIONS),
    "sampled": lambda: smallfits.fit().with_intervals("sampled", draws=20),
    "renamed": lambda: smallfits.fit().rename({0: "first"}),
    "projected": lambda: smallfits.fit().project(COUNTS),
    "missing": lambda: bayesnmf.fit(COUNTS, rank=3, seed=0, observed=COUNTS.to_numpy() > 0, options=OPTIONS),
    "matrices": lambda: bayesnmf.fit({"a": COUNTS, "b": COUNTS[["a", "b"]]}, rank=3, seed=0, options=OPTIONS),
    "matrix": lambda: FITS["matrices"]().matrix("a"),
}
HEAVY = [
    (dispersion, "pearson_sums"), (given_components, "pearson_sums"), (given_components, "settle_rows"),
    (given_components, "replicated_counts"), (intervals, "sample_around"),
    *((kind, name) for kind in (Draws, VariationalPosterior) for name in ("take", "iterate", "sd", "quantiles")),
]  # fmt: skip


def count_calls(monkeypatch):
    """Return a list to which the heavy functions add their names when they are called."""
    called = []
    for owner, name in HEAVY:
        of = getattr(owner, name)
        monkeypatch.setattr(
            owner, name, lambda *given, of=of, name=name, **more: (called.append(name), of(*given, **more))[1]
        )
    return called


@pytest.mark.parametrize("kind", FITS)
def test_printing_a_second_time_computes_nothing(kind, monkeypatch):
    fit = FITS[kind]()
    called = count_calls(monkeypatch)
    first = repr(fit), fit._repr_html_()
    called.clear()
    assert (repr(fit), fit._repr_html_()) == first
    assert called == []


def test_what_is_counted_is_called_the_first_time(monkeypatch):
    fit = known()
    called = count_calls(monkeypatch)
    repr(fit)
    assert {"pearson_sums", "settle_rows", "replicated_counts"} <= set(called)
    assert called.count("settle_rows") == 1  # all replicates at once


def test_rows_of_more_components_than_features_settle_in_few_updates(monkeypatch):
    """Loadings are then not determined, and every update of 50 sets of replicates was done 1,000 times."""
    counts = np.random.default_rng(0).poisson(30, (8, 2))
    fit = known("hierarchical_poisson", counts, np.random.default_rng(0).dirichlet(np.ones(2), 4))
    updates, settle = [], given_components.settle_rows
    monkeypatch.setattr(
        given_components, "settle_rows", lambda *given: (updates.append(settle(*given)), updates[-1])[1]
    )
    repr(fit)
    assert sum(each.status.iterations for each in updates) <= 100


@cache
def spread_out():
    """Return counts that vary twice as much as Poisson counts, and the components that they were made with."""
    rng = np.random.default_rng(3)
    components = rng.dirichlet(np.full(15, 0.5), 4)
    return rng.poisson(rng.gamma(rng.gamma(0.5, 50, (30, 4)) @ components / 2, 2)), components


@pytest.mark.parametrize(
    ("model", "turned"),
    mostly_long(
        product(["gamma_poisson", "hierarchical_poisson", "dirichlet_poisson"], ["rows", "features", "components"]), 3
    ),
)
def test_the_dispersion_of_known_components_depends_on_no_order(model, turned):
    counts, components = spread_out()
    how = {"options": bayesnmf.VI(threads=1), "noise": "quasi"}  # from a start without random numbers
    fit = known(model, counts, components, **how)
    order = np.random.default_rng(4).permutation({"rows": 30, "features": 15, "components": 4}[turned])
    other = {
        "rows": lambda: known(model, counts[order], components, **how),
        "features": lambda: known(model, counts[:, order], components[:, order], **how),
        "components": lambda: known(model, counts, components[order], **how),
    }[turned]()
    assert fit.noise.dispersion > 0.2
    assert other.noise.dispersion == pytest.approx(fit.noise.dispersion, rel=1e-9)
    assert other.trace[-1] == pytest.approx(fit.trace[-1], rel=1e-9)


# --- what is told ---------------------------------------------------------------------------------------------


def with_chain(share, r_hat):
    """Return a fit that has converged, with intervals of a chain that has not mixed in this share of its entries."""
    made = smallfits.fit().with_intervals("sampled", draws=20)
    found = replace(made.intervals, share_above=share, r_hat=r_hat)
    return replace(made, status=Status(True, "objective settled", 9), intervals=found)


@pytest.mark.parametrize(
    ("share", "r_hat", "words"),
    [
        (0.001, 1.22, "it has mixed but for 0.1% of entries, above 1.2, whose intervals are too narrow"),
        (0.04, 1.8, "it has not mixed in 4% of entries, above 1.2, whose intervals are too narrow; fit.with_intervals"),
        (0.41, 3.02, "it has not mixed: 41% of entries are above 1.2, and no interval can be relied on; fit.with_"),
    ],
)
def test_a_chain_that_has_not_mixed_is_told_by_how_much_and_first(share, r_hat, words):
    fit = with_chain(share, r_hat)
    shown = " ".join(repr(fit).split())
    assert words in shown
    assert f"intervals not mixed in {intervals.in_percent(share)} of entries, R-hat up to {r_hat}" in shown
    assert shown.index("not mixed in") < shown.index("converged to an optimum")
    html = fit._repr_html_()
    assert (DOUBTFUL in html) == (share >= 0.01 or bool(cautions_of_model(fit)))


def test_the_cure_of_a_chain_that_has_not_mixed_is_a_longer_one():
    fit = with_chain(0.41, 3.02)
    call = intervals.source_of_intervals(intervals.for_intervals(fit)).split("; ")[-1].split(" runs longer")[0]
    assert eval(call, {"fit": fit}).intervals.draws.draws == 80


def test_a_fit_that_has_not_converged_looks_like_one():
    assert DOUBTFUL in replace(smallfits.fit(), status=Status(False, "all 60 iterations done", 60))._repr_html_()


def test_failed_checks_look_failed():
    found = bayesnmf.predictive_checks(smallfits.fit(), 20, refits=20, seed=0)
    fine, failed = (replace(found, table=found.table.assign(p_adjusted=p)) for p in (0.5, 0.01))
    assert BAD not in fine._repr_html_()
    assert f"border-left:4px solid {BAD}" in failed._repr_html_()
    assert "The counts have what the model does not" in repr(failed)


@pytest.mark.parametrize("kind", ["vi", "map", "gibbs", "known", "sampled", "projected"])
def test_diagnostics_say_how_every_fit_ended(kind, tmp_path):
    fit = FITS[kind]()
    told = fit.diagnostics
    assert (told["converged"], told["iterations"]) == (fit.status.converged, fit.status.iterations)
    assert told["objective"] == (fit.trace.mean() if fit.trace.ndim == 2 else fit.trace[-1])
    if kind == "vi":
        assert told["objective_change"] == (fit.trace[-1] - fit.trace[-2]) / abs(fit.trace[-1])
    assert all(type(value) is float for value in told.values())
    fit.save(tmp_path / "fit.nc")
    assert bayesnmf.load(tmp_path / "fit.nc").diagnostics == told
    ended = replace(fit, status=Status(False, "interrupted", 3))
    assert (ended.diagnostics["converged"], ended.diagnostics["iterations"]) == (0.0, 3.0)


def test_what_was_given_beside_the_counts_is_printed():
    ages = pd.DataFrame({"age": np.linspace(0, 1, N)}, COUNTS.index)
    fit = bayesnmf.fit(
        COUNTS, rank=3, seed=0, options=OPTIONS, seeds={"pets": ["a", "b"]}, covariates=ages, formula="~ age"
    )
    assert "loadings ~ age; seeds: 2 features of pets" in repr(fit)
    assert "loadings ~ age" in fit._repr_html_()
    assert "loadings ~ age" in repr(bayesnmf.fit(COUNTS, rank=3, seed=0, options=OPTIONS, covariates=ages))
    assert "3 of 3 components known" in repr(known())
    assert "known" not in repr(smallfits.fit())


def with_small_component(rows, share):
    """Return a fit of 100 samples of which the third component has this share of some, and nothing of the others."""
    fit = bayesnmf.fit(np.full((100, 6), 100), rank=3, seed=0, method="map", options=plain_map(max_iter=2))
    shares = np.full((100, 3), 0.5)
    shares[:, 2] = 1e-9
    shares[:rows] = [(1 - share) / 2, (1 - share) / 2, share]
    profiles = np.eye(3, 6) + 0.001
    status = Status(True, "settled", 2)
    return replace(fit, loadings=600 * shares, components=profiles / profiles.sum(axis=1, keepdims=True), status=status)


def test_a_component_that_hardly_any_sample_uses_is_told():
    told = "component 2 has 0.30% of the counts: over 10% in 2 of 100 samples, 15% at most"
    fit = with_small_component(2, 0.15)
    assert little_used_components(fit) == told
    assert f"{told}; a lower rank may do" in cautions_of_model(fit)
    assert told in " ".join(repr(fit).split())


@pytest.mark.parametrize(("rows", "share"), [(3, 0.8), (1, 0.25), (50, 0.12)])
def test_a_small_component_that_some_samples_are_made_of_is_honest(rows, share):
    assert little_used_components(with_small_component(rows, share)) == ""


def test_known_components_are_little_used_as_they_were_asked_for():
    components = np.vstack([CATALOGUE, np.eye(1, 9, 8) * 0.999 + 0.001 / 9])
    assert little_used_components(known(components=components)) == ""
