"""Missing cells in the algorithms beside EM and coordinate ascent: coordinate descent, against EM and brute force."""

import numpy as np
import pytest
from plain import plain_map
from scipy.sparse import csr_array
from smallfits import quietly

import bayesnmf
from bayesnmf import Gamma, NegativeBinomial, Priors
from bayesnmf.kernels.cpu.regression import poisson_regression

pytestmark = quietly
K = 2


def sample(n=20, m=12, seed=1, share=0.3):
    """Return counts, and where they were observed: a row and a column are missing as a whole."""
    rng = np.random.default_rng(seed)
    means = rng.gamma(1, 1, (n, K)) @ rng.dirichlet(np.full(m, 0.6), K) * 60
    observed = rng.random((n, m)) > share
    observed[2], observed[:, 4] = False, False
    return rng.poisson(means), observed


COUNTS, OBSERVED = sample()
EXPOSED = {"row_exposure": np.linspace(0.5, 2, 20), "feature_exposure": np.linspace(2, 0.5, 12)}
PRIORS = Priors(Gamma(1.2, 0.05), Gamma(1.3, 1.0))


# --- coordinate descent ---------------------------------------------------------------------------------


@pytest.mark.parametrize("newton_steps", [1, 2])
def test_a_row_is_regressed_on_its_observed_features(newton_steps):
    """Many sweeps end where the gradient of Σ over observed cells, which is computed densely, is 0 or points to 0."""
    rng = np.random.default_rng(0)
    beta, seen = rng.gamma(1, 1, (K, 12)), np.where(OBSERVED, COUNTS, 0).astype(float)
    prior = np.full((1, K), 0.2), np.full((1, K), 0.05)
    found = poisson_regression(
        csr_array(seen), np.ones((20, K)), beta, prior, 200, newton_steps, exposure=OBSERVED @ beta.T
    )
    slope = OBSERVED @ beta.T + prior[1] - (seen / (found @ beta)) @ beta.T - prior[0] / found
    np.testing.assert_allclose(slope * found, 0, atol=1e-8)


@pytest.mark.parametrize("zeros", [False, True], ids=["cells", "zeros"])
@pytest.mark.parametrize("exposed", [False, True])
@pytest.mark.parametrize("algorithm", ["scd", "ccd"])
def test_coordinate_descent_has_the_optimum_of_em(algorithm, exposed, zeros):
    """From the same start, and without ever falling; with all zeros missing, the observed cells are the fewer."""
    start = bayesnmf.Start(np.ones((20, K)) + np.eye(20, K), np.random.default_rng(0).gamma(1, 1, (K, 12)))
    given = {"missing": "zeros"} if zeros else {"observed": OBSERVED}
    fits = []
    for name, limit in (("em", 50_000), (algorithm, 5000)):
        options = plain_map(
            algorithm=name, priors=PRIORS, start=start, tol=1e-13, max_iter=limit, threads=1, basis="natural"
        )
        more = EXPOSED if exposed else {}
        fits.append(bayesnmf.fit(COUNTS, "poisson", K, "map", seed=0, options=options, **given, **more))
    assert np.diff(fits[1].trace).min() > -1e-10 * abs(fits[1].trace[-1])
    assert fits[1].trace[-1] == pytest.approx(fits[0].trace[-1], rel=1e-9)
    rates = [fit.expected_loadings @ fit.exposed_components for fit in fits]
    np.testing.assert_allclose(rates[1], rates[0], rtol=1e-3, atol=1e-3)
    assert fits[1].diagnostics["kkt_residual"] < 1e-3
    assert len(fits[1].trace) < len(fits[0].trace)


@pytest.mark.parametrize("noise", ["quasi", NegativeBinomial(dispersion=0.5)], ids=["quasi", "nb1"])
@pytest.mark.parametrize("flat", [False, True])
def test_coordinate_descent_with_noise_has_the_optimum_of_em(noise, flat):
    priors = Priors(Gamma(1.0, 0.0), Gamma(1.0, 0.0)) if flat else PRIORS
    found = []
    for name in ("em", "scd"):
        options = plain_map(algorithm=name, priors=priors, start="svd", tol=1e-12, max_iter=20_000, threads=1)
        fit = bayesnmf.fit(COUNTS, "poisson", K, "map", seed=0, observed=OBSERVED, options=options, noise=noise)
        found.append(fit.trace[-1])
    assert found[1] == pytest.approx(found[0], rel=1e-7)


def test_coordinate_descent_is_refused_where_sides_are_scaled_to_totals():
    for model in ("gamma_poisson", "dirichlet_poisson"):
        with pytest.raises(ValueError, match="missing cells and algorithm='scd' need Gamma priors on both sides"):
            bayesnmf.fit(COUNTS, model, K, "map", observed=OBSERVED, options=plain_map(algorithm="scd"))
