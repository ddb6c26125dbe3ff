"""Sequential Monte Carlo as a method of `fit`, and tempered evidence as a user meets them."""

import numpy as np
import pytest
from plain import even_priors
from registry import MODELS_AND_PRIORS, over
from scipy import stats
from scipy.special import gammaln
from smallfits import plain_bounds

import bayesnmf
from bayesnmf import SMC, ConvergenceWarning, Dirichlet, Gamma, Gibbs, Priors
from bayesnmf.fitting import smc
from bayesnmf.inference.tempering import annealing
from bayesnmf.inference.tempering.annealing import Run
from bayesnmf.results.cautions import cautions_of

DRAWN = bayesnmf.simulate("gamma_poisson", (30, 12), 2, priors=even_priors(rank=2, total=60), seed=0)
SMALL = bayesnmf.simulate("gamma_poisson", (8, 6), 2, priors=even_priors(rank=2, total=40), seed=0)
FEW = SMC(runs=4, particles=8, efficiency=0.9)
spread = pytest.mark.filterwarnings("ignore::bayesnmf.inference.status.ConvergenceWarning")


def fit_of(counts=SMALL.counts, model="gamma_poisson", options=FEW, **more):
    return bayesnmf.fit(counts, model, 2, "smc", **{"seed": 0, "options": options, **more})


@spread
@over(
    [entry for entry in MODELS_AND_PRIORS if entry.proper],
    default=("doubly_gamma", "dirichlet_poisson-asymmetric"),
)
def test_every_proper_model_is_fitted(entry, tmp_path):
    counts = np.random.default_rng(0).poisson(3.0, (6, 5))
    counts[2], counts[:, 3] = 0, 0
    options = SMC(priors=entry.priors((6, 5), 2), runs=2, particles=4, efficiency=0.5, refinement=1)
    fit = bayesnmf.fit(counts, entry.model, 2, "smc", seed=0, options=options)
    assert fit.posterior.loadings.shape == (2, 4, 6, 2)
    assert fit.trace.shape == (2, 4)
    assert np.isfinite(fit.trace).all()
    np.testing.assert_allclose(fit.loadings, fit.posterior.loadings.mean(axis=(0, 1)))
    path = tmp_path / "fit.nc"
    fit.save(path)
    again = bayesnmf.load(path)
    np.testing.assert_array_equal(again.posterior.components, fit.posterior.components)
    np.testing.assert_array_equal(again.statistics["log_estimate"], fit.statistics["log_estimate"])
    assert again.options.particles == 4
    if "asymmetric" not in entry.id or entry.id in ("gamma_poisson-asymmetric", "dirichlet_poisson-asymmetric"):
        assert fit.transform(counts[:2]).shape == (2, 2)  # others have priors of their own for each row


@spread
def test_the_evidence_of_observed_entries_is_that_of_quadrature():
    """One component of two features: loadings are integrated in closed form, with the exposure of observed entries."""
    rng, (a, b, eta) = np.random.default_rng(1), (1.5, 0.2, 0.8)
    observed = rng.random((8, 2)) > 0.4
    observed[3], observed[4] = False, [True, False]
    counts = rng.poisson(rng.gamma(2, 5, (8, 1)) * np.array([0.3, 0.7]))
    share, seen = np.linspace(1e-6, 1 - 1e-6, 20_001), np.where(observed, counts, 0)
    exposure, totals = np.stack([share, 1 - share], axis=1) @ observed.T, seen.sum(axis=1)
    logs = stats.beta(eta, eta).logpdf(share) + np.log(share) * seen[:, 0].sum() + np.log(1 - share) * seen[:, 1].sum()
    logs += (stats.gamma(a, scale=1 / b).logpdf(1) + b + gammaln(a + totals) - (a + totals) * np.log(b + exposure)).sum(
        1
    )
    logs -= gammaln(seen + 1.0).sum()
    exact, density = np.log(np.trapezoid(np.exp(logs), share)), np.exp(logs) / np.exp(logs).sum()
    options = SMC(priors=Priors(Gamma(a, b), Dirichlet(eta)), runs=8, particles=64)
    fit = bayesnmf.fit(counts, rank=1, method="smc", seed=0, observed=observed, options=options)
    assert fit.diagnostics["log_p"] == pytest.approx(exact, abs=3 * fit.diagnostics["log_p_se"])
    assert fit.diagnostics["log_p_se"] < 0.15
    assert fit.components[0, 0] == pytest.approx(density @ share, abs=0.02)
    found = bayesnmf.log_evidence(fit.counts, rank=1, priors=options.priors, seed=0)
    assert found.method == "tempered"
    assert found.log_evidence == pytest.approx(exact, abs=3 * found.se)
    with pytest.raises(ValueError, match="method='exact' needs counts without missing entries"):
        bayesnmf.log_evidence(fit.counts, rank=1, method="exact")


@spread
def test_draws_of_one_component_are_those_of_the_exact_posterior():
    """With one component loadings are Gamma(a + N_i, r + 1), and the component is Dirichlet(η + Σ_i X_ij)."""
    counts = np.random.default_rng(0).poisson(3.0, (4, 3))
    options = SMC(priors=Priors(Gamma(1.3, 0.2), Dirichlet(1.2)), runs=8, particles=32, efficiency=0.8)
    fit = bayesnmf.fit(counts, "gamma_poisson", 1, "smc", seed=0, options=options)
    shape, nu = 1.3 + counts.sum(axis=1), 1.2 + counts.sum(axis=0)
    for i in range(4):
        law = stats.gamma(shape[i], scale=1 / 1.2)
        assert stats.kstest(fit.posterior.loadings[..., i, 0].ravel(), law.cdf).pvalue > 1e-3
    for j in range(3):
        law = stats.beta(nu[j], nu.sum() - nu[j])
        assert stats.kstest(fit.posterior.components[..., 0, j].ravel(), law.cdf).pvalue > 1e-3


@pytest.mark.long
def test_means_are_those_of_long_chains():
    """Means of expected counts over 512 draws of 16 runs, within their spread over runs."""
    options = SMC(priors=DRAWN.priors, runs=16, particles=32, efficiency=0.97)
    fit = fit_of(DRAWN.counts, seed=1, options=options)
    assert fit.status.converged
    chains = bayesnmf.fit(
        DRAWN.counts, "gamma_poisson", 2, "gibbs", seed=1,
        options=Gibbs(priors=DRAWN.priors, algorithm="marginal", draws=2000),
    )  # fmt: skip
    assert chains.status.converged

    def rates(fit):
        return fit.posterior.loadings[:, :, :8] @ fit.posterior.components

    ours, theirs = rates(fit), rates(chains)
    error = ours.mean(axis=1).std(axis=0, ddof=1) / 4
    off = np.abs(ours.mean(axis=(0, 1)) - theirs.mean(axis=(0, 1))) / error
    assert np.quantile(off, 0.95) < 2.6
    np.testing.assert_allclose(np.median(ours.std(axis=(0, 1)) / theirs.std(axis=(0, 1))), 1.0, atol=0.06)


@spread
def test_draws_are_resampled_by_the_evidence_of_their_runs(monkeypatch):
    ordinary = fit_of()
    logs = ordinary.statistics["log_estimate"][:, 0]
    shares = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()
    counted = np.bincount(ordinary.statistics["run"].astype(int).ravel(), minlength=4)
    assert np.all(np.abs(counted - 32 * shares) <= 1)
    assert np.all(np.diff(ordinary.statistics["run"].ravel()) >= 0)
    climb = annealing.climb_ladder
    made = []

    def raised(*arguments):
        run = climb(*arguments)
        made.append(run)
        run.log_estimate += 40.0 * (len(made) == 1)
        return run

    monkeypatch.setattr(annealing, "climb_ladder", raised)
    one = fit_of(options=SMC(runs=4, particles=8, efficiency=0.9, threads=1))
    assert len(np.unique(one.statistics["run"])) == 1
    assert one.diagnostics["effective_runs"] == pytest.approx(1.0)
    assert not one.status.converged


def test_what_is_said_of_runs_that_disagree():
    counts = np.random.default_rng(0).poisson(40.0 * np.eye(6) + 2)
    with pytest.warns(ConvergenceWarning, match=r"smc did not converge .* raise refinement, particles"):
        fit = fit_of(counts, options=SMC(runs=4, particles=2, efficiency=0.5, refinement=2))
    assert fit.diagnostics["log_p_spread"] > 1
    assert "distinct ancestors" in fit.status.reason
    assert len(cautions_of(fit)) >= 1
    assert "R-hat" not in repr(fit) + str(cautions_of(fit))
    with pytest.warns(ConvergenceWarning, match="did not converge"):
        assert not {"r_hat", "ess_median"} & set(fit.summary(rows=[0]).columns)


@spread
def test_one_ancestor_is_not_a_posterior():
    """Runs may agree on the evidence by chance; a fit of which all draws have one ancestor has not converged."""
    fit = fit_of(options=SMC(runs=1, particles=8, efficiency=0.8))
    assert not fit.status.converged
    assert np.isnan(fit.diagnostics["log_p_spread"])
    assert fit.status.reason.startswith("a single run, which does not show the error")
    assert fit.diagnostics["ancestors"] == len(np.unique(fit.statistics["ancestor"]))


@pytest.mark.parametrize(("ancestors", "enough"), [(6, False), (7, True)])
def test_draws_of_few_ancestors_are_said_not_to_tell_the_modes(ancestors, enough):
    """Runs that agree are not enough, and neither are many draws: each of these has 30, of so many even ancestors."""
    each = np.arange(30) % ancestors
    runs = [Run(None, np.zeros(30), -1.0, each), Run(None, np.zeros(30), -1.0, each)]
    particles = np.tile(np.arange(30), (2, 1))
    figures, text, found = smc._judged(runs, np.zeros((2, 30), int), particles)
    assert figures["effective_ancestors"] == pytest.approx(ancestors, rel=0.03)
    assert found == enough
    assert ("fewer than 6.25: shares of modes are not known" in text) == (not enough)


@spread
def test_the_seed_makes_a_fit_and_threads_do_not():
    fits = [fit_of(options=SMC(runs=2, particles=4, efficiency=0.5, threads=threads)) for threads in (1, 2)]
    np.testing.assert_array_equal(fits[0].posterior.loadings, fits[1].posterior.loadings)
    assert not np.array_equal(fit_of(seed=1, options=fits[0].options).loadings, fits[0].loadings)


@spread
def test_ctrl_c_keeps_the_finished_runs():
    seen = []

    def report(label, done, total, power):
        seen.append(label)
        if "runs" in label and done > 0.6 * total:
            raise KeyboardInterrupt

    fit = fit_of(options=SMC(runs=4, particles=8, efficiency=0.9, threads=1), progress=report)
    assert fit.status.reason == bayesnmf.inference.status.INTERRUPTED
    assert 1 <= fit.trace.shape[0] < 4
    assert any("pilot" in label for label in seen)

    def at_once(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_of(progress=at_once)


@pytest.mark.parametrize(
    ("message", "more"),
    [
        ("method='smc' needs a proper prior of the loadings", {"model": "poisson"}),
        (
            "found the flat .* in priors.components, with which it is improper",
            {"options": SMC(priors=Priors(Gamma(1, 1), Gamma(1, 0)))},
        ),
        ("method='smc' needs a prior", {"options": SMC(priors=Priors(components="parameter"))}),
        ("whole-number counts", {"counts": DRAWN.counts.dense + 0.5}),
    ],
)
def test_what_cannot_be_tempered_is_refused(message, more):
    with pytest.raises(ValueError, match=message):
        fit_of(**more)


@pytest.mark.parametrize(
    ("message", "given"),
    [
        ("particles must be at least 2", {"particles": 1}),
        ("runs must be at least 1", {"runs": 0}),
        ("efficiency must be", {"efficiency": 1.0}),
    ],
)
def test_options_are_checked(message, given):
    with pytest.raises(ValueError, match=message):
        SMC(**given)


# --- the evidence -----------------------------------------------------------------------------------------


def test_the_true_parameters_bound_the_evidence_from_above(monkeypatch):
    plain_bounds(monkeypatch)
    options = {"rank": 2, "method": "tempered", "runs": 3, "particles": 6, "efficiency": 0.8, "seed": 0}
    found = bayesnmf.log_evidence(SMALL.counts, truth=SMALL, **options)
    assert found.known
    assert found.rungs > 10
    assert found.bound < found.log_evidence < found.upper + 1
    assert abs(found.upper - found.log_evidence) < 4
    assert "at most" in repr(found)
    plain = bayesnmf.log_evidence(SMALL.counts, priors=SMALL.priors, **options)
    assert plain.log_evidence == found.log_evidence
    assert plain.at_most == np.inf


@pytest.mark.parametrize(
    ("message", "given"),
    [
        ("its own counts", {"counts": DRAWN.counts.dense + 1}),
        ("rank=2", {"rank": 3}),
        ("priors=truth.priors", {"priors": Priors(Gamma(2, 0.1), Dirichlet(1))}),
        ("truth needs method='tempered'", {"method": "tokens"}),
        ("efficiency needs method='tempered'", {"method": "tokens", "truth": None, "efficiency": 0.9}),
    ],
)
def test_a_truth_that_does_not_fit_is_refused(message, given):
    with pytest.raises(ValueError, match=message):
        bayesnmf.log_evidence(**{"counts": DRAWN.counts, "rank": 2, "truth": DRAWN, **given})


def test_few_counts_are_added_one_by_one_by_default(monkeypatch):
    plain_bounds(monkeypatch)
    assert (
        bayesnmf.log_evidence(
            [[3, 1], [1, 1]], rank=2, priors=even_priors(rank=2, total=3), particles=20, seed=0
        ).method
        == "tokens"
    )
    gammas = Priors(Gamma(1, 1), Gamma(1, 1))
    found = bayesnmf.log_evidence([[3, 1], [1, 1]], rank=2, priors=gammas, particles=16, runs=2, seed=0)
    assert found.method == "tempered"
    assert bayesnmf.log_evidence(DRAWN.counts, rank=1).method == "exact"
    assert bayesnmf.log_evidence(SMALL.counts, rank=1, particles=16, runs=2, seed=0).method == "tempered"
