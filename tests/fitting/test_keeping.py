"""Gibbs chains of which not every draw is kept: running moments of all draws, and everything that uses draws."""

import re
import warnings

import numpy as np
import pytest
from plain import even_priors
from smallfits import COUNTS, K, M, N, fit, quietly
from suites import mostly_long

import bayesnmf
from bayesnmf import Dirichlet, Gamma, Gibbs, Priors, plots
from bayesnmf.fitting import gibbs, keeping
from bayesnmf.inference.sampling.running_moments import BATCHES, Running, summarise_chains
from bayesnmf.results import thinning
from bayesnmf.results.record import trace_of_kept

pytestmark = quietly

FEW = {"start": "random", "chains": 2, "draws": 100, "warmup": 50, "threads": 1}
NEARLY = Priors(Gamma(1.0, np.linspace(0.1, 0.1 + 1e-12, K)), Dirichlet(1.0))  # components are not matched


@pytest.fixture
def small_memory(monkeypatch):
    """Let a tenth of the draws fit."""
    size = 8 * 2 * 100 * K * (N + M)
    monkeypatch.setattr(keeping, "ALL", size - 1)
    monkeypatch.setattr(gibbs, "THINNED", size // 10)
    monkeypatch.setattr(keeping, "THINNED", size // 10)


def fitted(model="gamma_poisson", **options):
    return bayesnmf.fit(COUNTS, model, K, "gibbs", seed=0, options=Gibbs(**{**FEW, **options}))


@pytest.mark.parametrize(
    ("model", "collapsed"),
    mostly_long(
        [("gamma_poisson", True), ("dirichlet_gamma", False), ("gamma_poisson", False), ("dirichlet_poisson", True)], 2
    ),
)
def test_moments_are_those_of_all_draws(model, collapsed, small_memory):
    """The same chain, kept whole: what all draws say against what was summed up while running."""
    priors = NEARLY if model == "gamma_poisson" else Priors()
    whole, kept = (fitted(model, collapsed=collapsed, priors=priors, keep=keep) for keep in ("draws", "moments"))
    np.testing.assert_array_equal(kept.trace, whole.trace)
    assert (kept.posterior.chains, kept.posterior.draws) == (2, 10)
    if model != "gamma_poisson":
        return  # draws are matched one by one there, which of two orders may differ
    for side in ("loadings", "components"):
        draws = getattr(whole.posterior, side)
        np.testing.assert_array_equal(getattr(kept.posterior, side), draws[:, ::10])
        np.testing.assert_allclose(getattr(kept, side), draws.mean(axis=(0, 1)), rtol=1e-10)
        pooled = draws.reshape(200, *draws.shape[2:])
        np.testing.assert_allclose(kept.moments[f"{side}_sd"], pooled.std(axis=0, ddof=1), rtol=1e-8)
        halves = draws.reshape(4, 50, *draws.shape[2:])
        within, between = halves.var(axis=1, ddof=1).mean(axis=0), halves.mean(axis=1).var(axis=0, ddof=1)
        np.testing.assert_allclose(kept.moments[f"{side}_r_hat"], np.sqrt(49 / 50 + between / within), rtol=1e-8)
        batches = draws.reshape(2 * BATCHES, 5, *draws.shape[2:]).mean(axis=1)
        ess = np.minimum(200 * pooled.var(axis=0, ddof=1) / (5 * batches.var(axis=0, ddof=1)), 200)
        np.testing.assert_allclose(kept.moments[f"{side}_ess"], ess, rtol=1e-8)


def test_effective_sample_sizes_and_r_hat_of_known_chains():
    """Autoregressive draws, whose effective sample size is known; and chains apart."""
    rng = np.random.default_rng(0)
    chains, draws, correlation = 4, 4000, 0.6
    values = np.empty((chains, draws, 5, 4))
    values[:, 0] = rng.normal(size=(chains, 5, 4))
    for step in range(1, draws):
        fresh = rng.normal(size=(chains, 5, 4))
        values[:, step] = correlation * values[:, step - 1] + np.sqrt(1 - correlation**2) * fresh
    values[:2, :, 0] += 3.0
    running = [Running(draws, matching=False) for _ in range(chains)]
    for chain, drawn in zip(running, values, strict=True):
        for value in drawn:
            chain.add(value[:1], value[1:])
    found = summarise_chains(running, np.eye(4))
    exact = chains * draws * (1 - correlation) / (1 + correlation)
    np.testing.assert_allclose(found.ess.components.mean(), exact, rtol=0.15)  # 16 entries, each known to 16 %
    assert found.r_hat.components.max() < 1.01
    assert found.r_hat.loadings.min() > 1.5
    assert found.ess.loadings.max() < 0.05 * exact  # no more than the batches make it
    np.testing.assert_allclose(found.sd.components, 1, atol=0.06)


def test_labels_that_switch_are_matched_while_running():
    rng = np.random.default_rng(1)
    profiles = np.array([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]])
    running = [Running(60, matching=True) for _ in range(2)]
    for number, chain in enumerate(running):
        for draw in range(60):
            order = [0, 1] if (draw // 7 + number) % 2 == 0 else [1, 0]
            noise = rng.normal(0, 0.01, (2, 3))
            chain.add(np.array([[1.0, 5.0]])[:, order], (profiles + noise)[order])
    found = summarise_chains(running, profiles[::-1])
    np.testing.assert_allclose(found.mean.components, profiles[::-1], atol=0.01)
    np.testing.assert_allclose(found.mean.loadings, [[5.0, 1.0]])
    assert np.all(found.sd.loadings == 0)
    assert np.all(np.isnan(found.r_hat.loadings))
    assert np.all(found.ess.loadings == 120)


def test_auto_says_once_what_is_kept_and_how_long_it_takes(small_memory):
    with pytest.warns(UserWarning, match="every 10th is kept, 20 in all, with means") as caught:
        found = fitted()
    (message,) = [str(w.message) for w in caught if w.category is UserWarning]
    assert re.search(r"all 2 × 100 draws would take 0\.0 GiB", message)
    assert re.search(r"300 sweeps to go, about \d+ seconds; choose bayesnmf.Gibbs\(keep='moments'\)", message)
    assert next(w for w in caught if w.category is UserWarning).filename == __file__
    assert "2 chains × 100 draws, every 10th kept" in repr(found)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", bayesnmf.ConvergenceWarning)
        asked, whole = fitted(keep="moments"), fitted(keep="draws")
    np.testing.assert_array_equal(asked.posterior.loadings, found.posterior.loadings)
    assert whole.moments is None
    assert whole.posterior.draws == 100


def test_the_status_is_that_of_all_draws_not_of_those_kept(small_memory):
    """Ten draws a chain would have R-hat and effective sample sizes of their own, far worse than those of a hundred."""
    priors = even_priors(COUNTS, "dirichlet_gamma")
    found = fitted("dirichlet_gamma", keep="moments", start=fit("dirichlet_gamma"), priors=priors)
    sides = [found.moments[f"{side}_r_hat"].ravel() for side in ("loadings", "components", "scale")]
    own = found.diagnostics["r_hat_log_joint"]
    assert found.diagnostics["max_r_hat"] == max(np.nanmax(np.concatenate(sides)), own)
    sizes = [found.moments[f"{side}_ess"].min() for side in ("loadings", "components", "scale")]
    assert found.diagnostics["min_ess"] == min(*sizes, found.diagnostics["ess_log_joint"])
    assert found.diagnostics["min_ess"] > found.posterior.components.shape[0] * found.posterior.draws
    assert found.status.reason.startswith(
        f"{found.trace.size} draws; R-hat at most {found.diagnostics['max_r_hat']:.3f}"
    )
    assert found.status.reason.endswith("(by halves and batches)")


def test_ctrl_c_while_moments_are_put_together_keeps_them(small_memory, monkeypatch):
    whole, heard, real = fitted(keep="moments"), [], thinning.with_moments

    def interrupted_once(*given):
        if not heard:
            heard.append(None)
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setattr(gibbs, "with_moments", interrupted_once)
    found = fitted(keep="moments")
    assert (found.status.converged, found.status.reason) == (False, "interrupted")
    np.testing.assert_array_equal(found.moments["loadings_sd"], whole.moments["loadings_sd"])


def test_small_runs_keep_every_draw():
    found = fitted()
    assert found.moments is None
    assert found.posterior.draws == 100
    moments = fitted(keep="moments")
    assert moments.posterior.draws == 100
    assert moments.moments["loadings_sd"].shape == (N, K)


def test_trees_files_and_orders_have_the_moments_of_all_draws(small_memory, tmp_path):
    found = fitted("dirichlet_gamma", keep="moments")
    assert found.diagnostics["kept_every"] == 10
    np.testing.assert_array_equal(trace_of_kept(found), found.trace[:, ::10])
    tree = found.to_datatree(rows=[found.row_names[1]], features=[found.feature_names[0]])
    np.testing.assert_array_equal(tree["sample_stats"]["lp"], found.trace[:, ::10])
    kept = tree["all_draws"]
    assert "split R-hat" in kept.attrs["note"]
    np.testing.assert_array_equal(kept["components_sd"], found.moments["components_sd"][:, :1])
    np.testing.assert_array_equal(kept["loadings_mean"], found.loadings[[1]])
    np.testing.assert_array_equal(kept["scale_ess"], found.moments["scale_ess"][[1]])
    found.save(tmp_path / "x.nc")
    loaded = bayesnmf.load(tmp_path / "x.nc")
    assert loaded.options.keep == "moments"
    for name, value in found.moments.items():
        np.testing.assert_array_equal(loaded.moments[name], value)
    order = np.arange(K)[::-1]
    turned = bayesnmf.results.relabelling.relabel(found, order)
    np.testing.assert_array_equal(turned.moments["loadings_sd"], found.moments["loadings_sd"][:, order])
    np.testing.assert_array_equal(turned.moments["components_ess"], found.moments["components_ess"][order])
    np.testing.assert_array_equal(turned.moments["scale_sd"], found.moments["scale_sd"])


def test_what_is_computed_from_draws_works_on_those_kept(small_memory):
    found = fitted("dirichlet_gamma", keep="moments", draws=50)
    assert found.transform(COUNTS).shape == (N, K)
    assert found.project(COUNTS).moments is None
    assert found.allocations().shape == (N, K, M)
    assert found.sample_posterior(5).draws == 5
    assert bayesnmf.predictive_checks(found, 4).draws == 4
    assert len(found.summary(rows=[found.row_names[0]])) == K + 1
    assert len(plots.chains(found)) > 0
    agreement = bayesnmf.posterior_agreement({"gibbs": found, "vi": fit("dirichlet_gamma")})
    assert agreement.reference == "gibbs"


def test_an_interrupted_run_keeps_what_it_has(small_memory):
    def stop(label, done, total, value):
        if label.startswith("gibbs") and done >= 140:
            raise KeyboardInterrupt

    options = Gibbs(**(FEW | {"chains": 1}), keep="moments")
    found = bayesnmf.fit(COUNTS, rank=K, method="gibbs", seed=0, options=options, progress=stop)
    draws = found.trace.shape[1]
    assert 80 <= draws < 100
    assert found.posterior.draws == -(-draws // found.diagnostics["kept_every"])
    assert np.all(np.isfinite(found.moments["components_sd"]))


def test_more_draws_than_memory_holds_and_unknown_words_are_refused():
    counts = np.ones((2, 2))
    huge = {"chains": 4, "draws": 10**9}
    with pytest.raises(ValueError, match=r"the draws of gibbs .*Gibbs\(keep='moments'\)"):
        bayesnmf.fit(counts, rank=2, method="gibbs", options=Gibbs(**huge, keep="draws"))
    with pytest.raises(ValueError, match="keep must be one of 'auto', 'draws', 'moments'"):
        Gibbs(keep="all")
