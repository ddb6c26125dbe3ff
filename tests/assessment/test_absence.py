"""The chance that a component is absent from a sample: its bounds, what it finds, and what is refused."""

import numpy as np
import pytest
from plain import even_priors, plain_vi

import bayesnmf
from bayesnmf import MAP, Dirichlet, Gamma, Priors
from bayesnmf.assessment.absence import row_bounds
from bayesnmf.results.given_components import components_of

N, M, K = 200, 30, 5
RNG = np.random.default_rng(0)
KNOWN = RNG.dirichlet(np.full(M, 0.3), K)
LOADINGS = RNG.gamma(1.0, 50.0, (N, K))
GONE = RNG.random((N, K)) < 0.4
COUNTS = RNG.poisson(np.where(GONE, 0, LOADINGS) @ KNOWN)
FIT = bayesnmf.fit(
    COUNTS, rank=K, seed=0, fixed_components=KNOWN, options=plain_vi(threads=1, priors=even_priors(COUNTS, rank=K))
)


@pytest.mark.parametrize("noise", ["poisson", bayesnmf.NegativeBinomial(dispersion=0.8)], ids=["poisson", "nb1"])
@pytest.mark.parametrize("model", ["gamma_poisson", "dirichlet_poisson"])
def test_the_bounds_of_rows_add_up_to_that_of_the_fit(model, noise):
    drawn = bayesnmf.simulate("gamma_poisson", (20, 12), 3, priors=Priors(Gamma(1.0, 0.02), Dirichlet(0.3)), seed=1)
    options = plain_vi(tol=1e-12, priors=even_priors(model=model))  # sparse ones have several optima for a row
    fit = bayesnmf.fit(drawn.counts, model, 3, seed=0, options=options, fixed_components=drawn.components, noise=noise)
    counts = fit.working_counts
    bounds = row_bounds(counts, fit.priors.loadings, components_of(fit))
    added = counts.log_exposure + counts.log_noise
    assert bounds.sum() - counts.log_factorial + added == pytest.approx(fit.trace[-1], rel=1e-9)


@pytest.mark.parametrize("sparse", [False, True])
def test_chances_are_near_the_shares_that_are_absent(sparse):
    """1,000 loadings of which 40 % are 0: of those with a chance above 0.9, 80 to 100 % are; below 0.1, under 3 %."""
    fit = FIT
    if sparse:
        fit = bayesnmf.fit(COUNTS, rank=K, seed=0, fixed_components=KNOWN, options=plain_vi(threads=1))
        assert fit.priors.loadings.smallest_shape < 1
    found = bayesnmf.absence(fit).to_numpy()
    sure, present = found > 0.9, found < 0.1
    assert sure.sum() > 250
    assert 0.8 < GONE[sure].mean() <= 1.0
    assert present.sum() > 400
    assert GONE[present].mean() < 0.03
    assert abs(found.mean() - GONE.mean()) < 0.1


def test_prior_chances_move_the_odds():
    even, rare = bayesnmf.absence(FIT, [1]), bayesnmf.absence(FIT, [1], prior=0.1)
    np.testing.assert_allclose(rare / (1 - rare), even / (1 - even) / 9, rtol=1e-6)
    np.testing.assert_array_equal(even[1], bayesnmf.absence(FIT)[1])


def test_scores_say_that_they_are_no_chances_and_refits_show_progress():
    shown = []
    found = bayesnmf.absence(FIT, [1, 3], progress=lambda *each: shown.append(each[:3]))
    assert any("no calibrated chances" in caution for caution in found.attrs["cautions"])
    assert [each[1:] for each in shown] == [(1, 2), (2, 2)]


@pytest.mark.parametrize(
    ("fit", "arguments", "message"),
    [
        (lambda: "a fit", {}, "fit must be a result of bayesnmf.fit"),
        (
            lambda: bayesnmf.fit(COUNTS[:9], rank=2, method="map", seed=0, options=MAP(start="svd")),
            {},
            "needs a fit by",
        ),
        (lambda: bayesnmf.fit(COUNTS[:9], rank=1, seed=0, options=plain_vi()), {}, "at least two components"),
        (lambda: FIT, {"components": [5]}, "components must be below the rank of the fit, 5: found 5"),
        (lambda: FIT, {"components": [0], "prior": 1.0}, "prior must be below 1"),
    ],
)
def test_what_makes_no_sense_is_refused(fit, arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        bayesnmf.absence(fit(), **arguments)


def test_absence_names_what_replaces_it():
    with pytest.warns(DeprecationWarning, match=r"bayesnmf\.assign"):
        bayesnmf.absence(FIT, [1])
