"""Chains are judged by all that a reader reads off: `bayesnmf.results.mixing`, held against ArviZ entry by entry."""

from dataclasses import replace

import arviz as az
import numpy as np
import pytest
from realdata import real_counts

import bayesnmf
from bayesnmf import Gibbs, NegativeBinomial
from bayesnmf.data.conversion import as_counts
from bayesnmf.data.powered import working_counts
from bayesnmf.fitting.chains import fit_of_draws
from bayesnmf.fitting.fitted import Fit
from bayesnmf.fitting.job import Job, resolve_priors
from bayesnmf.inference.status import ConvergenceWarning
from bayesnmf.noise.poisson import POISSON
from bayesnmf.results.cautions import cautions_of, mixing_of
from bayesnmf.results.estimates import Draws
from bayesnmf.results.mixing import JUDGED_ROWS, judged_parts, mixing, r_hat_and_ess
from bayesnmf.results.thinning import thin_fit


def awkward(chains, draws, seed=0):
    """Draws of entries that mix well, slowly, in alternation, with ties, in heavy tails, in two places, or none."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(chains, draws, 9))
    found = np.cumsum(rng.normal(size=noise.shape), axis=1) * rng.random(9) + noise
    found[..., 0] = 3.0
    found[..., 1] = rng.integers(0, 3, (chains, draws))
    found[..., 2] = np.exp(20 * noise[..., 2])
    found[..., 3] = noise[..., 3]
    found[..., 4] = (-1.0) ** np.arange(draws) + 0.1 * noise[..., 4]
    found[..., 5] = np.arange(chains)[:, None] % 2 + 0.01 * noise[..., 5]
    found[..., 6] = noise[..., 6] * (1 + np.arange(chains) % 2)[:, None]  # of one median: the folded ranks tell
    found[..., 7] = rng.integers(0, 2, (chains, draws))
    return found


@pytest.mark.parametrize("chains", [1, 2, 4])
@pytest.mark.parametrize("draws", [8, 9, 15, 51, 200])
def test_every_entry_is_judged_as_arviz_does(chains, draws):
    values = awkward(chains, draws)
    r_hat, ess = r_hat_and_ess(values)
    apart = values if chains > 1 else values[:, : draws // 2 * 2].reshape(2, draws // 2, -1)
    with np.errstate(invalid="ignore", divide="ignore"):
        theirs = az.rhat(apart, chain_axis=0, draw_axis=1)
    np.testing.assert_allclose(r_hat, theirs, rtol=1e-12)
    np.testing.assert_allclose(ess, az.ess(values, chain_axis=0, draw_axis=1), rtol=1e-12)
    assert np.isnan(r_hat[0])
    assert ess[0] == chains * (draws // 2 * 2)


def test_blocks_and_threads_change_nothing(monkeypatch):
    values = np.random.default_rng(1).gamma(1.0, size=(2, 20, 7, 5))
    whole = r_hat_and_ess(values, threads=1)
    monkeypatch.setattr("bayesnmf.results.mixing.BLOCK", 120)
    np.testing.assert_array_equal(r_hat_and_ess(values, threads=3), whole)
    assert whole[0].shape == (7, 5)


def test_the_worst_of_all_parts_is_kept():
    rng = np.random.default_rng(2)
    components, loadings, log_joint = (rng.normal(size=size) for size in ((2, 300, 2, 3), (2, 300, 4, 2), (2, 300)))
    well = mixing([components, loadings], log_joint)
    assert well["max_r_hat"] < 1.05
    assert well["share_above"] == 0
    loadings[0, :, 1, 1] += 5
    found = mixing([components, loadings], log_joint)
    assert found["max_r_hat"] == r_hat_and_ess(loadings)[0].max() > 1.5
    assert found["min_ess"] == r_hat_and_ess(loadings)[1].min() < 20
    assert found["share_above"] == 1 / 14
    assert found["r_hat_log_joint"] == well["r_hat_log_joint"]
    log_joint[1] += 9
    assert mixing([components], log_joint)["max_r_hat"] == r_hat_and_ess(log_joint)[0] > 1.5
    assert mixing([components[:, :7]], log_joint[:, :7])["max_r_hat"] == np.inf
    nothing = mixing([np.ones((2, 50, 3))], np.ones((2, 50)))  # nothing is left to draw
    assert (nothing["max_r_hat"], nothing["min_ess"], nothing["r_hat_log_joint"]) == (1.0, 100.0, 1.0)


def test_the_rows_that_are_judged_follow_from_the_seed():
    loadings, scale = np.arange(160.0).reshape(1, 1, 80, 2), np.arange(80.0).reshape(1, 1, 80)
    parts = judged_parts(Draws(loadings, np.ones((1, 1, 2, 3)), scale), seed=4)
    rows = np.random.default_rng(4).choice(80, size=50, replace=False)
    assert JUDGED_ROWS == 50
    np.testing.assert_array_equal(parts[1], loadings[:, :, rows])
    np.testing.assert_array_equal(parts[2], scale[:, :, rows])
    (_, few) = judged_parts(Draws(loadings[:, :, :7], np.ones((1, 1, 2, 3))), seed=4)
    assert few.shape == (1, 1, 7, 2)


COUNTS = np.random.default_rng(0).poisson(3.0, (6, 5)).astype(float)


def of_draws(apart, noise=POISSON, statistics=None):
    """A fit of two chains whose log joint has mixed, and whose components lie `apart`."""
    rng = np.random.default_rng(5)
    components = rng.dirichlet([20, 1, 1, 1, 1], (2, 400, 2))
    components[:, :, 1] = np.roll(components[:, :, 1], 2, axis=-1)
    components[1, :, 1] = np.roll(components[1, :, 1], apart, axis=-1)
    loadings = rng.gamma(5.0, size=(2, 400, 6, 2))
    counts = as_counts(COUNTS)
    options = Gibbs(chains=2)
    options = replace(options, priors=resolve_priors("gamma_poisson", counts, 2, options.priors))
    job = Job(
        working_counts(counts, noise, given_totals=False), "gamma_poisson", 2, "gibbs", 3, options, lambda *_: None
    )
    found = fit_of_draws(job, [loadings, components], rng.normal(size=(2, 400)), {}, False, statistics)
    return Fit.of(replace(found, counts=counts))


def test_a_log_joint_that_has_mixed_is_not_enough():
    """Chains in different modes of the same height: everything that reads the status is told."""
    good, bad = of_draws(0), of_draws(1)
    assert good.status.converged
    assert cautions_of(good) == []
    assert bad.diagnostics["r_hat_log_joint"] < 1.02
    assert bad.diagnostics["max_r_hat"] > 1.5
    assert not bad.status.converged
    assert "not converged: 800 draws; R-hat at most " in repr(bad)
    assert "of the components and loadings)" in bad.status.reason
    assert cautions_of(bad)[0].startswith("R-hat ")
    assert any("CAUTION R-hat" in note for note in bayesnmf.predictive_checks(bad, 5).notes)
    with pytest.warns(ConvergenceWarning, match="R-hat"), pytest.warns(ConvergenceWarning, match="ESS"):
        assert bad.summary().attrs["cautions"] == cautions_of(bad)


def test_a_dispersion_that_has_not_mixed_is_told():
    rng = np.random.default_rng(1)
    good, slow = rng.gamma(9.0, size=(2, 2, 400))
    slow[1] += 20
    judged = [of_draws(0, noise=NegativeBinomial(dispersion=1.0), statistics={"dispersion": s}) for s in (good, slow)]
    assert [fit.status.converged for fit in judged] == [True, False]
    assert judged[1].diagnostics["max_r_hat"] > 1.5
    assert judged[1].noise.dispersion == pytest.approx(slow.mean())
    assert judged[1].diagnostics["r_hat_log_joint"] < 1.02
    few = thin_fit(judged[1], 2**16)
    assert few.diagnostics["kept_every"] > 1
    assert not few.status.converged
    np.testing.assert_array_equal(few.statistics["dispersion"], slow[:, :: int(few.diagnostics["kept_every"])])


@pytest.mark.parametrize(("by", "lines"), [(None, ()), ("row", (6,)), ("feature", (5,))])
def test_drawn_dispersions_are_in_trees_and_summaries(by, lines):
    s = np.random.default_rng(2).gamma(9.0, size=(2, 400, *lines))
    noise = NegativeBinomial(dispersion=np.ones(lines) if lines else 1.0, by=by)
    fit = of_draws(0, noise=noise, statistics={"dispersion": s})
    rows, features = [4, 1], [3, 0]
    chosen = s if by is None else s[:, :, rows if by == "row" else features]
    drawn = fit.to_datatree(rows=rows, features=features, draws=100)["posterior"]["dispersion"]
    assert drawn.dims == ("chain", "draw", *filter(None, [by]))
    np.testing.assert_array_equal(drawn, chosen[:, ::4])
    assert "dispersion" not in fit.to_datatree()["sample_stats"]
    table = fit.summary(rows=rows, features=features)
    names = ["dispersion"] if by is None else [f"dispersion[{name}]" for name in (rows if by == "row" else features)]
    medians = np.median(chosen.reshape(800, -1), axis=0)
    if by == "feature":  # a table has features in the order of the counts
        names, medians = names[::-1], medians[::-1]
    assert [name for name in table.index if "dispersion" in name] == names
    np.testing.assert_allclose(table.loc[names, "median"].astype(float), medians, rtol=0.05)


def test_a_fit_saved_before_parameters_were_judged_is_judged_when_read():
    fit = of_draws(1)
    old = {name: fit.diagnostics[name] for name in ("r_hat_log_joint", "ess_log_joint")}
    before = replace(fit, diagnostics=old)
    assert mixing_of(before)["max_r_hat"] == fit.diagnostics["max_r_hat"]
    assert cautions_of(before) == cautions_of(fit)
    assert mixing_of(replace(fit, diagnostics={})) == {}  # of `transform`


@pytest.mark.long
def test_mutation_counts_that_do_not_mix_are_said_not_to():
    """The log joint of these chains mixes (R-hat 1.01), and the components are in different modes."""
    counts = real_counts("pcawg_breast_sbs96")
    options = Gibbs(warmup=400, draws=400, algorithm="allocations")
    with pytest.warns(ConvergenceWarning, match=r"R-hat at most .* raise warmup and draws in bayesnmf\.Gibbs"):
        fit = bayesnmf.fit(counts, "gamma_poisson", 5, "gibbs", seed=0, options=options)
    assert not fit.status.converged
    assert fit.diagnostics["share_above"] > 0.3
