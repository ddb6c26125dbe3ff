"""Fits with few of their draws, what all draws say beside them, and factors as tables."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from smallfits import COUNTS, K, M, N, fit, quietly
from suites import mostly_long

import bayesnmf
from bayesnmf import Gibbs
from bayesnmf.results.thinning import components_table, draws_within, loadings_table, thin_fit
from bayesnmf.studies.comparison.comparing import Settings, compare

pytestmark = quietly


def test_thinned_fits_know_what_all_draws_say():
    whole = fit("dirichlet_gamma", "gibbs")
    draws = whole.posterior
    few = thin_fit(whole, 8 * 7 * (K * (N + M) + N) * draws.chains)
    every = int(few.diagnostics["kept_every"])
    assert few.posterior.draws <= 7 < draws.draws
    np.testing.assert_array_equal(few.posterior.components, draws.components[:, ::every])
    np.testing.assert_array_equal(few.posterior.scale, draws.scale[:, ::every])
    np.testing.assert_allclose(few.loadings, whole.loadings, rtol=1e-10)
    pooled = draws.loadings.reshape(-1, N, K)
    np.testing.assert_allclose(few.moments["loadings_sd"], pooled.std(axis=0, ddof=1), rtol=1e-8)
    tree = few.to_datatree()
    np.testing.assert_array_equal(tree["sample_stats"]["lp"], whole.trace[:, ::every])
    again = thin_fit(few, 1)
    assert again.posterior.draws == 1
    np.testing.assert_array_equal(again.posterior.components, draws.components[:, :1])
    np.testing.assert_array_equal(again.moments["loadings_sd"], few.moments["loadings_sd"])
    assert thin_fit(whole, 2**40) is whole


def test_fits_without_draws_are_left_alone():
    for method in ("map", "vi"):
        assert thin_fit(fit("gamma_poisson", method), 1) is fit("gamma_poisson", method)
    assert draws_within(fit("gamma_poisson", "vi"), 8 * K * (N + M) * 3) == 3
    assert draws_within(fit("gamma_poisson", "vi"), 1) == 1


def test_tables_of_factors_hold_means_and_standard_deviations():
    names = [f"component {k}" for k in range(K)]
    sds = [f"{name} sd" for name in names]
    q = fit("dirichlet_gamma", "vi")
    found = loadings_table(q)
    assert list(found.columns) == [*names, *sds, "scale", "scale sd"]
    np.testing.assert_array_equal(found[names], q.loadings)
    drawn = q.sample_posterior(4000, seed=1)
    np.testing.assert_allclose(found["scale sd"], drawn.scale.std(axis=(0, 1)), rtol=0.1)
    np.testing.assert_allclose(found[sds], drawn.loadings.std(axis=(0, 1)), rtol=0.1)
    chains = fit("gamma_poisson", "gibbs")
    found = components_table(chains)
    np.testing.assert_array_equal(found[names].T, chains.components)
    pooled = chains.posterior.components.reshape(-1, K, M)
    np.testing.assert_allclose(found[sds].T, pooled.std(axis=0, ddof=1))
    assert list(found.index) == list(COUNTS.columns)
    assert list(components_table(fit("gamma_poisson", "map")).columns) == names


@pytest.mark.parametrize("draws", mostly_long(["thinned", "all"]))
def test_comparisons_leave_few_draws_unless_all_are_asked_for(draws, tmp_path, monkeypatch):
    monkeypatch.setattr(thin_fit, "__defaults__", (20_000,))
    monkeypatch.setattr("bayesnmf.studies.comparison.comparing.figures", lambda *_: [])  # which take seconds to draw
    options = {"gibbs": Gibbs(start="random", chains=2, draws=100, warmup=20, threads=1)}
    settings = Settings(withhold=0.0, options=options, dispersed=False, draws=draws)
    found = compare(COUNTS, rank=K, methods=("gibbs",), settings=settings, out=tmp_path)
    assert found.fits["gibbs"].posterior.draws == 100
    found.save(tmp_path)
    saved = bayesnmf.load(tmp_path / "fits" / "gibbs.nc")
    with xr.open_datatree(tmp_path / "compare.nc", engine="h5netcdf") as tree:
        kept = tree["gibbs/posterior"].sizes["draw"]
        assert ("all_draws" in tree["gibbs"].children) == (draws == "thinned")
        if draws == "thinned":
            np.testing.assert_allclose(tree["gibbs/all_draws"]["components_mean"], found.fits["gibbs"].components)
    assert kept == saved.posterior.draws
    assert (kept < 100) == (draws == "thinned")
    table = pd.read_csv(tmp_path / "loadings_gibbs.csv", index_col="row")
    np.testing.assert_allclose(table.to_numpy()[:, :K], found.fits["gibbs"].loadings, rtol=1e-7)
    with pytest.raises(ValueError, match="draws must be one of 'thinned', 'all'"):
        replace(settings, draws="some")
