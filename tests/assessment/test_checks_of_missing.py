"""Scores and predictive checks of fits with missing entries: those of the observed entries, by brute force."""

from dataclasses import replace
from functools import cache

import arviz as az
import numpy as np
import pytest
import xarray as xr
from plain import plain_map, plain_vi
from scipy.sparse import csr_array
from scipy.stats import nbinom, poisson
from smallfits import quietly

import bayesnmf
from bayesnmf import Dirichlet, Gamma, Gibbs, NegativeBinomial, Priors
from bayesnmf.assessment.leave_one_out import loo, relative_efficiency
from bayesnmf.assessment.predictive_statistics import Refitted, measure
from bayesnmf.assessment.replicates import replicate_of
from bayesnmf.assessment.scoring import MIXED, background, pit_coverage, score
from bayesnmf.data.mask import Mask, as_pattern
from bayesnmf.noise.poisson import POISSON
from bayesnmf.results.residuals import structure
from bayesnmf.studies.comparison import measures
from bayesnmf.studies.comparison.comparing import Settings
from bayesnmf.studies.stability.stacking import probabilities_of

pytestmark = quietly
K = 3
PRIORS = Priors(Gamma(1.0, 0.01), Dirichlet(0.5))


def sample(n=60, m=30, seed=2, share=0.3, shapes=(1.0, 100.0)):
    """Return counts that follow the model, and where they were observed: not in one row, and not in one column."""
    rng = np.random.default_rng(seed)
    means = rng.gamma(*shapes, (n, K)) @ rng.dirichlet(np.full(m, 0.5), K)
    observed = rng.random((n, m)) > share
    observed[2], observed[:, 4] = False, False
    return rng.poisson(means), observed


COUNTS, OBSERVED = sample()


def fitted(counts=COUNTS, observed=OBSERVED, rank=K, model="gamma_poisson", noise="poisson", priors=PRIORS):
    options = plain_vi(priors=priors, tol=1e-6, extrapolate=True, threads=1)
    return bayesnmf.fit(counts, model, rank, "vi", seed=0, observed=observed, options=options, noise=noise)


# --- leave-one-out --------------------------------------------------------------------------------------


@cache
def sampled(model):
    priors = Priors(Dirichlet(1.0), Dirichlet(1.0)) if model == "dirichlet_poisson" else PRIORS
    options = Gibbs(chains=2, draws=40, warmup=40, threads=1, start="random", priors=priors)
    return bayesnmf.fit(COUNTS[:12], model, K, "gibbs", seed=0, observed=OBSERVED[:12], options=options)


@pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto")
@pytest.mark.parametrize("given", [False, True], ids=["gamma_poisson", "dirichlet_poisson"])
def test_leave_one_out_is_that_of_observed_entries(given):
    """Those of ArviZ, of probabilities by SciPy; given totals, means of observed entries sum to them in every draw."""
    fit = sampled("dirichlet_poisson" if given else "gamma_poisson")
    means = np.einsum("cdnk,cdkm->cdnm", fit.posterior.loadings, fit.posterior.components)
    if given:
        totals = np.where(OBSERVED[:12], COUNTS[:12], 0).sum(axis=1)
        means *= (totals / np.maximum(np.where(OBSERVED[:12], means, 0).sum(axis=-1), 1e-9))[..., None]
    features = [1, 0, 4, 7]
    rows, columns = np.nonzero(OBSERVED[:12, features])
    columns = np.array(features)[columns]
    logs = poisson.logpmf(COUNTS[rows, columns], means[:, :, rows, columns])
    tree = xr.DataTree.from_dict({"/log_likelihood": xr.Dataset({"x": (("chain", "draw", "entry"), logs)})})
    found = loo(fit, features=features)
    draws = replace(fit.posterior, components=fit.posterior.components[..., features])
    wanted = az.loo(tree, pointwise=True, reff=relative_efficiency(fit, draws))
    assert found.entries == len(rows) == (OBSERVED[:12, features]).sum()
    np.testing.assert_array_equal(found.pointwise[["row", "feature"]].to_numpy(), np.column_stack([rows, columns]))
    np.testing.assert_array_equal(found.pointwise["count"], COUNTS[rows, columns])
    np.testing.assert_allclose(found.pointwise["elpd"], wanted.elpd_i, rtol=1e-9)


def test_a_sample_of_observed_entries_agrees_with_all_of_them():
    fit = sampled("gamma_poisson")
    whole, some = loo(fit), loo(fit, most=120, seed=1)
    assert some.entries == whole.entries == OBSERVED[:12].sum()
    assert 0 < abs(some.elpd - whole.elpd) < 3 * some.sampling_se
    assert all(OBSERVED[entry.row, entry.feature] for entry in some.pointwise.itertuples())
    with pytest.raises(ValueError, match="must have an observed entry: found only missing ones"):
        loo(fit, rows=[2])


@pytest.mark.parametrize("of_missing", [True, False])
def test_observed_entries_are_numbered_row_by_row(of_missing):
    mask = Mask(as_pattern(~OBSERVED if of_missing else OBSERVED), of_missing)
    wanted = np.flatnonzero(OBSERVED)
    np.testing.assert_array_equal(mask.places_of_observed(np.arange(len(wanted))), wanted)
    np.testing.assert_array_equal(mask.places_of_observed(np.array([5, 100, 700])), wanted[[5, 100, 700]])


# --- statistics and replicates --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "noise", [POISSON, NegativeBinomial(dispersion=np.linspace(0.2, 4, 60), by="row"),
              NegativeBinomial("quadratic", dispersion=0.3)], ids=repr
)  # fmt: skip
def test_statistics_are_those_of_observed_entries(noise):
    rng = np.random.default_rng(0)
    loadings, components = rng.gamma(1, 20, (60, K)), rng.dirichlet(np.ones(30), K)
    mask = Mask(as_pattern(~OBSERVED), True)
    found = measure(mask.apply(csr_array(COUNTS.astype(float))), loadings, components, 1, noise, mask)
    x, means = COUNTS[OBSERVED], (loadings @ components)[OBSERVED]
    law = poisson(means)
    if noise != POISSON:
        s = np.broadcast_to(np.reshape(noise.dispersion, (-1, 1)), COUNTS.shape)[OBSERVED]
        sizes = means / s if noise.variance == "linear" else 1 / s
        law = nbinom(sizes, sizes / (sizes + means))
    squares = law.var() + means**2
    wanted = {
        "total": means.sum(), "share of zeros": law.pmf(0).mean(),
        "largest count": means[x.argmax()], "misfit": 0, "structure": 0,
        "dispersion": (squares.mean() - means.mean() ** 2) / means.mean(),
    }  # fmt: skip
    assert found.expected == pytest.approx(wanted, rel=1e-9)
    misfit = (np.sqrt(x) - np.sqrt(means)) ** 2
    wanted = {
        "total": x.sum(), "share of zeros": (x == 0).mean(), "largest count": x.max(), "misfit": misfit.sum(),
        "dispersion": x.var() / x.mean(), "structure": structure(csr_array(COUNTS), loadings, components, mask).ratio,
    }  # fmt: skip
    assert found.values == pytest.approx(wanted, rel=1e-9)
    entries = np.zeros(COUNTS.shape)
    entries[OBSERVED] = misfit
    np.testing.assert_allclose(found.misfits.rows, entries.sum(axis=1), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.misfits.features, entries.sum(axis=0), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("model", ["gamma_poisson", "dirichlet_poisson"])
def test_replicates_have_the_same_entries_missing(model):
    """Counts of observed entries around their means; given totals, with those of the observed entries."""
    priors = Priors(Dirichlet(1.0), Dirichlet(0.5)) if model == "dirichlet_poisson" else PRIORS
    fit = fitted(model=model, priors=priors)
    factors = np.asarray(fit.expected_loadings), np.asarray(fit.exposed_components)
    drawn = np.array([replicate_of(fit, *factors, seed).toarray() for seed in range(300)])
    means = np.where(OBSERVED, factors[0] @ factors[1], 0.0)
    assert not drawn[:, ~OBSERVED].any()
    totals, variance = means.sum(axis=1, keepdims=True), means
    if model == "dirichlet_poisson":
        np.testing.assert_array_equal(drawn.sum(axis=2) - np.where(OBSERVED, COUNTS, 0).sum(axis=1), 0)
        variance = means * (1 - means / np.where(totals > 0, totals, 1))
    assert ((drawn - means) ** 2).mean() / variance.mean() == pytest.approx(1, abs=0.03)
    z = (drawn.mean(axis=0) - means)[OBSERVED] / np.sqrt(variance[OBSERVED] / 300 + 1e-9)
    assert np.sqrt(np.mean(z**2)) == pytest.approx(1, abs=0.08)


# --- predictive checks ----------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["gamma_poisson", "dirichlet_poisson"])
def test_a_right_model_passes_and_one_of_too_few_components_fails(model):
    """Whatever would have been counted in the missing entries."""
    priors = Priors(Dirichlet(1.0), Dirichlet(0.5)) if model == "dirichlet_poisson" else PRIORS
    right = bayesnmf.predictive_checks(fitted(model=model, priors=priors), 20, refits=12)
    assert right.p_value > 0.05
    assert right.features["misfit_ratio"].mean() == pytest.approx(1, abs=0.1)
    assert right.features.loc[4, "p_value"] == 1  # no entries to speak against it
    observed = right.histogram["observed"].to_numpy()
    np.testing.assert_array_equal(
        observed, np.bincount(np.minimum(COUNTS[OBSERVED], 40), minlength=41)[: len(observed)]
    )
    assert "are missing, in replicates as in the counts" in repr(right)
    few = bayesnmf.predictive_checks(fitted(rank=1, model=model, priors=priors), 20, refits=12)
    assert "misfit" in few.failed


def test_refits_leave_missing_entries_out():
    """A replicate that is fitted again is as far from its means as the counts are from theirs."""
    first = Refitted.of(fitted())
    wanted = first.measured(1)
    for each in first.replicates(3, 0):
        assert each.counts.mask is first.counts.mask
        found = each.measured(1)
        assert found.values["total"] == pytest.approx(found.expected["total"], rel=0.01)
        assert found.values["misfit"] == pytest.approx(wanted.values["misfit"], rel=0.1)


@pytest.mark.long
def test_a_right_model_fails_as_often_as_it_says():
    """5 % of 100 sets of 60 × 30 counts, with 30 % of the entries missing; the binomial standard error is 2.2 %."""
    failed = [bool(bayesnmf.predictive_checks(fitted(*sample(seed=seed)), 1, refits=12).failed) for seed in range(100)]
    assert abs(np.mean(failed) - 0.05) <= 0.06


# --- held-out counts, comparisons and modes -------------------------------------------------------------


def test_held_out_counts_are_predicted_among_the_observed_entries():
    """Log-probabilities of multinomials over the observed entries of each row, beside 1e-6 of the background."""
    options = plain_map(priors=PRIORS, max_iter=50, threads=1)
    fit = bayesnmf.fit(COUNTS, rank=K, method="map", seed=0, observed=OBSERVED, options=options)
    means, frequencies = fit.expected_loadings @ fit.components, background(fit.counts)
    shares = means / np.maximum(np.where(OBSERVED, means, 0).sum(axis=1, keepdims=True), 1e-300)
    logs = np.where(OBSERVED, COUNTS, 0) * np.log((1 - MIXED) * shares + MIXED * frequencies)
    found = score(fit, fit.counts, frequencies, 1, 0)
    np.testing.assert_allclose(found.rows, logs.sum(axis=1), rtol=1e-9)
    assert pit_coverage(fit, fit.counts, 1, 0) == pytest.approx(0.9, abs=0.05)
    np.testing.assert_allclose(
        probabilities_of(fit, fit.counts, frequencies, 0),
        ((1 - MIXED) * shares + MIXED * frequencies)[fit.counts.matrix.nonzero()],
        rtol=1e-9,
    )


@pytest.mark.parametrize("model", ["gamma_poisson", "dirichlet_poisson"])
def test_comparisons_leave_missing_entries_out(model, monkeypatch):
    """NaN says the same, and taking missing entries for zeros predicts held-out counts of the others worse."""
    monkeypatch.setattr(measures, "MOST_SCORE_DRAWS", 200)
    options = {"map": plain_map(max_iter=60, threads=1), "vi": plain_vi(max_iter=60, threads=1)}
    settings = Settings(options=options, dispersed=False)
    floats = np.where(OBSERVED, COUNTS, np.nan)
    found, nan, zeros = (
        bayesnmf.compare(counts, model, K, methods, settings=settings, **more)
        for counts, methods, more in (
            (COUNTS, ("map", "vi"), {"observed": OBSERVED}), (floats, ("map",), {"missing": "nan"}),
            (np.where(OBSERVED, COUNTS, 0), ("map",), {}),
        )
    )  # fmt: skip
    assert found.table.loc["map", "heldout_thinned"] == nan.table.loc["map", "heldout_thinned"]
    assert found.split.train.mask.number == (~OBSERVED[found.split.rows]).sum()
    fit, seen = found.fits["map"], OBSERVED[found.split.rows]
    wanted = poisson.logpmf(fit.counts.matrix.toarray(), fit.expected_loadings @ fit.components)[seen].sum()
    assert found.table.loc["map", "loglik"] == pytest.approx(wanted, rel=1e-9)
    for column in ("heldout_thinned", "heldout_withheld"):
        assert (found.table[column] > zeros.table.loc["map", column] + 0.2).all()
    assert found.table.loc["vi", "elbo_augmented"] < found.table.loc["vi", "elbo_marginal"] + 1


@pytest.mark.parametrize("method", ["map", "vi"])
def test_modes_of_observed_entries(method):
    make = plain_map if method == "map" else plain_vi
    options = make(priors=PRIORS, max_iter=40, threads=1)
    given = {"rank": K, "method": method, "starts": 3, "options": options}
    found, zeros = (bayesnmf.modes(COUNTS, observed=seen, **given) for seen in (OBSERVED, None))
    assert all(fit.counts.mask.number == (~OBSERVED).sum() for fit in found.fits)
    default = bayesnmf.modes(COUNTS, observed=OBSERVED, rank=K, method=method, starts=2, scored=0)
    assert default.fits[0].options.algorithm == ("em" if method == "map" else "coordinate")
    assert np.isfinite(found.table["held_out"]).all()
    assert not np.isclose(found.table["held_out"].iloc[0], zeros.table["held_out"].iloc[0])
