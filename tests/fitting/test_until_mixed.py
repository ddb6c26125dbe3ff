"""Chains of Gibbs sampling that run until they have mixed: when they end, what they keep, and what they say.

Faults that these tests find: a block that does not go on where the last one ended or thins other draws than every
second, a stop that depends on seconds or threads, a checkpoint that loses draws, a status that does not follow from the
figures, and a budget that nothing heeds.
"""

import numpy as np
import pytest

import bayesnmf
from bayesnmf import Gamma, Gibbs, Priors
from bayesnmf.fitting import gibbs, keeping
from bayesnmf.inference.status import ConvergenceWarning
from bayesnmf.results.cautions import cautions_of
from bayesnmf.results.thinning import thin_fit

COUNTS = np.random.default_rng(0).poisson(3.0, (6, 5))
FLAT = Priors(Gamma(1.0, 0.3), Gamma(1.0, 1.0))
FEW = {"priors": FLAT, "start": "random", "chains": 2, "warmup": 7, "algorithm": "allocations", "threads": 1}


def fit(rank=1, seed=0, **options):
    given = {key: options.pop(key) for key in ("checkpoint", "progress") if key in options}
    return bayesnmf.fit(COUNTS, rank=rank, method="gibbs", seed=seed, options=Gibbs(**{**FEW, **options}), **given)


@pytest.fixture
def short_blocks(monkeypatch):
    """Blocks too short for chains to be called mixed, of which eight draws are kept: three that end and thin."""
    monkeypatch.setattr(gibbs, "DRAWS", (16, 24, 32))
    monkeypatch.setattr(keeping, "MOST_KEPT", 8)


def test_chains_end_as_soon_as_they_have_mixed_and_say_so():
    found = fit()
    assert found.status.converged
    assert found.options.draws == "auto"
    figures = found.diagnostics
    assert figures["share_unsettled"] <= 0.01
    assert figures["max_r_hat"] <= 1.05
    assert figures["r_hat_log_joint"] <= 1.01
    assert min(figures["ess_log_joint"], figures["ess_shares"]) >= 400
    assert figures["sweeps"] == 7 + found.posterior.draws * 4 / 3  # the first quarter is discarded
    assert "ESS at least" in found.status.reason
    assert cautions_of(found) == []


@pytest.mark.filterwarnings("ignore::bayesnmf.ConvergenceWarning")
def test_a_run_depends_neither_on_seconds_nor_on_threads(short_blocks):
    one, two = fit(seed=3, budget=200), fit(seed=3, budget=400, threads=2)
    np.testing.assert_array_equal(one.trace, two.trace)
    np.testing.assert_array_equal(one.posterior.components, two.posterior.components)


@pytest.mark.parametrize("algorithm", ["allocations", "marginal"])
def test_blocks_go_on_with_the_same_chains_and_thin_them(short_blocks, algorithm):
    """After 32 draws, every fourth is kept and the first two of these eight are discarded."""
    with pytest.warns(ConvergenceWarning, match="the most draws of a chain, 32, are made.*raise budget, or give a"):
        found = fit(algorithm=algorithm)
    assert not found.status.converged
    with pytest.warns(ConvergenceWarning):
        whole = fit(algorithm=algorithm, draws=32)
    np.testing.assert_array_equal(found.trace, whole.trace[:, 3::4][:, 2:])
    np.testing.assert_array_equal(found.posterior.loadings, whole.posterior.loadings[:, 3::4][:, 2:])
    assert (found.diagnostics["sweeps"], found.diagnostics["sweeps_per_draw"]) == (39, 4)


def test_single_counts_go_on_too(short_blocks):
    """Loadings and components are drawn for kept draws alone, so the stream is not that of another `thin`."""
    options = Gibbs(start="random", chains=1, warmup=2, collapsed=True)
    with pytest.warns(ConvergenceWarning, match="the most draws of a chain, 32, are made"):
        found = bayesnmf.fit([[2, 0, 1], [0, 3, 1]], "dirichlet_poisson", 2, "gibbs", seed=1, options=options)
    assert (found.trace.shape, found.diagnostics["sweeps"]) == ((1, 6), 34)


@pytest.mark.parametrize("at", [5, 50, 60, 70])
def test_a_checkpoint_goes_on_to_the_same_numbers(short_blocks, tmp_path, at):
    """Ctrl-C in the warm-up, in the second block and at its end, and in the third."""
    seen = []

    def stop(_, done, total, value):
        seen.append(done)
        if len(seen) == at:
            raise KeyboardInterrupt

    folder = bayesnmf.Checkpoint(tmp_path / "chains", seconds=0.02)
    with pytest.warns(ConvergenceWarning):
        whole = fit()
    try:
        with pytest.warns(ConvergenceWarning, match="interrupted"):
            fit(checkpoint=folder, progress=stop)
    except KeyboardInterrupt:
        assert at == 5  # no draw yet
    with pytest.warns(ConvergenceWarning, match="most draws"):
        again = fit(checkpoint=folder)
    np.testing.assert_array_equal(again.trace, whole.trace)
    np.testing.assert_array_equal(again.posterior.loadings, whole.posterior.loadings)


def test_a_budget_ends_the_run_and_is_told_beforehand():
    labels = set()
    with pytest.warns(ConvergenceWarning, match=r"the budget of 1e-06 s is spent"):
        found = fit(budget=1e-6, progress=lambda label, *_: labels.add(label))
    assert found.posterior.draws == gibbs.FEWEST * 3 // 4
    assert not found.status.converged
    assert labels == {"gibbs gamma_poisson, to 12 draws, at most 1e-06 s"}


def test_chains_in_different_modes_end_early(short_blocks, monkeypatch):
    monkeypatch.setattr(gibbs, "difference_of_modes", lambda *_: "chains are in different modes: so it is")
    with pytest.warns(ConvergenceWarning, match="different modes: so it is; R-hat.*try another rank, or compare the"):
        found = fit()
    assert found.diagnostics["sweeps"] == 23
    assert not found.status.converged
    assert "different modes" in cautions_of(found)[-1]


def test_thinning_for_files_leaves_the_verdict_as_it_was(short_blocks):
    """By halves and batches chains may look well, although they were judged not to be."""
    with pytest.warns(ConvergenceWarning):
        found = fit(chains=4)
    few = thin_fit(found, most=8 * 4 * 11 * 2)
    assert few.posterior.draws == 2
    assert few.status == found.status
    assert few.diagnostics == {**found.diagnostics, "kept_every": 3.0}


def test_a_number_takes_the_place_of_auto_where_it_must_be_known(monkeypatch):
    counts = bayesnmf.as_counts(COUNTS)
    assert keeping.with_draws(Gibbs(), 2, counts).draws == "auto"
    assert keeping.with_draws(Gibbs(keep="moments"), 2, counts).draws == 1000
    assert keeping.with_draws(Gibbs(draws=3), 2, counts).draws == 3
    monkeypatch.setattr(keeping, "ALL", 8 * 4 * 22 * 249)
    assert keeping.with_draws(Gibbs(), 2, counts).draws == 1000
    monkeypatch.setattr(keeping, "ALL", 8 * 4 * 22 * 250)
    assert keeping.with_draws(Gibbs(), 2, counts).draws == "auto"
    assert keeping.size_kept(Gibbs(), 2, counts.shape) == keeping.ALL
    with pytest.raises(ValueError, match=r"budget needs counts in memory.*leave it out, for draws=1000"):
        keeping.with_draws(Gibbs(keep="moments", budget=60), 2, counts)


def test_a_budget_beside_a_number_of_draws_is_refused():
    with pytest.raises(ValueError, match="budget needs draws='auto': found draws=9, a number"):
        Gibbs(draws=9, budget=60)


@pytest.mark.parametrize(
    "wrong",
    [{"draws": "many"}, {"draws": 0}, {"draws": 2.5}, {"budget": 0}, {"budget": "long"}],
)
def test_nonsense_is_refused(wrong):
    (name,) = wrong
    with pytest.raises((TypeError, ValueError), match=f"{name} must be"):
        Gibbs(**wrong)
