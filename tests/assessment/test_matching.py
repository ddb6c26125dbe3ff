"""Matches to a catalogue: their names, the intervals of their cosines, and exposures of components that were found."""

import numpy as np
import pandas as pd
import pytest

import bayesnmf
from bayesnmf import VI, Gibbs

KNOWN = pd.DataFrame(
    np.random.default_rng(3).dirichlet(np.full(12, 0.3), 3), ["A", "B", "C"], [f"f{j}" for j in range(12)]
)
LOADINGS = np.random.default_rng(4).gamma(0.5, 200, (40, 3))
COUNTS = pd.DataFrame(np.random.default_rng(5).poisson(LOADINGS @ KNOWN.to_numpy()), columns=KNOWN.columns)

QUICK = VI(start="svd", tol=1e-3, threads=1, intervals="mean_field")


def drawn():
    options = Gibbs(chains=1, draws=60, warmup=60, start="fit", threads=1)
    return bayesnmf.fit(COUNTS, rank=3, method="gibbs", options=options, seed=0)


@pytest.mark.filterwarnings("ignore::bayesnmf.ConvergenceWarning")
def test_intervals_of_cosines_are_those_of_the_draws():
    fit = drawn()
    table = bayesnmf.match(fit, KNOWN).table
    components = np.concatenate(fit.estimate.components).astype(float)  # (draws, K, m)
    for each in table.itertuples():
        reference, ours = KNOWN.loc[each.reference].to_numpy(), components[:, each.component]
        cosines = ours @ reference / np.linalg.norm(ours, axis=1) / np.linalg.norm(reference)
        np.testing.assert_allclose([each.low, each.high], np.quantile(cosines, [0.05, 0.95]), rtol=1e-6)
    assert table["low"].min() > 0.9


def test_names_of_a_match_are_those_of_the_components():
    fit = bayesnmf.fit(COUNTS, rank=4, seed=0, options=QUICK)
    found = bayesnmf.match(fit, KNOWN, least=0.9)
    named = fit.rename(found.names)
    assert set(named.component_titles) == {"A", "B", "C", f"component {found.unmatched[0]}"}
    assert bayesnmf.match(named, KNOWN, least=0.9).table.equals(found.table)
    assert "low" not in found.table  # a mean field without draws
    for k, name in found.names.items():
        np.testing.assert_allclose(named.components[k] / named.components[k].sum(), KNOWN.loc[name], atol=0.05)


def test_components_of_a_fit_serve_as_a_catalogue():
    fit = bayesnmf.fit(COUNTS, rank=3, seed=0, options=QUICK)
    fit = fit.rename(bayesnmf.match(fit, KNOWN).names)
    assigned = bayesnmf.assign(COUNTS, fit, draws=20, warmup=20, chains=1)
    assert list(assigned.component_names) == list(fit.component_titles)
    there = LOADINGS[:, [KNOWN.index.get_loc(name) for name in assigned.component_names]]
    assert (assigned.presence > 0.5)[there > 200].all()
    assert np.corrcoef(assigned.exposures.ravel(), there.ravel())[0, 1] > 0.95  # a few counts of others apart
