"""NumPyro programs of counts with missing entries: densities by SciPy, posteriors by Gibbs sampling."""

import jax
import numpy as np
import pytest
from bayesnmf.models.entries import Observed, as_triplets
from bayesnmf.models.likelihood import NegativeBinomialProduct, PoissonProduct
from numpyro.infer.util import log_density
from scipy.sparse import csr_array
from scipy.stats import multinomial, nbinom, poisson
from smallfits import quietly

import bayesnmf
from bayesnmf import NUTS, SVI, Dirichlet, Gamma, Gibbs, NegativeBinomial, Priors
from bayesnmf.fitting.numpyro_bridge import guide_parameters, load_program, program_arguments, sites_of
from bayesnmf.fitting.problems import point_or_mean_field, start_state

RNG = np.random.default_rng(0)
N, M, K = 12, 8, 2
THETA, BETA = RNG.gamma(1, 30, (N, K)), RNG.dirichlet(np.ones(M), K)
COUNTS = RNG.poisson(THETA @ BETA)
SEEN = RNG.random((N, M)) > 0.3
SEEN[3], SEEN[:, 5] = False, False
OBSERVED = [
    Observed(np.asarray(1.0), as_triplets(csr_array(-1.0 * ~SEEN))),
    Observed(np.asarray(0.0), as_triplets(csr_array(1.0 * SEEN))),
]


@pytest.mark.parametrize("observed", OBSERVED, ids=["missing", "observed"])
@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("variance", ["poisson", "linear", "quadratic"])
def test_the_density_is_that_of_observed_entries(variance, dense, observed):
    """Dispersions are those of features, which is where sums over entries are not those of Poisson counts."""
    mean, s = THETA @ BETA, np.linspace(0.2, 2, M)[None]
    size = np.broadcast_to(mean / s if variance == "linear" else 1 / s, mean.shape)
    law = poisson(mean) if variance == "poisson" else nbinom(size, size / (size + mean))
    counts = np.where(SEEN, COUNTS, 0)
    with jax.enable_x64(True):
        product = PoissonProduct(THETA, BETA, observed=observed)
        if variance != "poisson":
            product = NegativeBinomialProduct(THETA, BETA, s, variance, observed)
        found = float(product.log_prob(counts if dense else csr_array(counts)))
    assert found == pytest.approx(law.logpmf(COUNTS)[SEEN].sum(), rel=1e-10)


@pytest.mark.parametrize("observed", OBSERVED, ids=["missing", "observed"])
@pytest.mark.parametrize("dense", [True, False])
def test_given_totals_the_density_is_multinomial(dense, observed):
    """Over the observed entries, times the Poisson probability of each total if its mean is 1."""
    shares, counts = THETA / THETA.sum(axis=1, keepdims=True), np.where(SEEN, COUNTS, 0)
    wanted = poisson.logpmf(counts.sum(axis=1), 1).sum()
    for row, mean, seen in zip(counts, shares @ BETA, SEEN, strict=True):
        if seen.any():
            wanted += multinomial.logpmf(row[seen], row.sum(), mean[seen] / mean[seen].sum())
    with jax.enable_x64(True):
        product = PoissonProduct(shares, BETA, observed=observed, given_totals=True)
        assert float(product.log_prob(counts if dense else csr_array(counts))) == pytest.approx(wanted, rel=1e-10)


def priors_of(model):
    loadings = {"gamma_poisson": Gamma(1.0, 0.02), "dirichlet_poisson": Dirichlet(0.9)}[model]
    return Priors(loadings, Dirichlet(0.8))


@quietly
@pytest.mark.parametrize("model", ["gamma_poisson", "dirichlet_poisson"])
def test_bounds_with_allocations_are_below_the_program(model):
    """At the same values, by Σ X KL of the allocations alone, whatever entries are missing."""
    fit = bayesnmf.fit(COUNTS, model, K, "vi", seed=0, observed=SEEN)
    problem, module = point_or_mean_field(fit.counts, fit.options), load_program(model)
    state = start_state(problem, fit, K, np.random.default_rng(0))
    values = sites_of(state.loadings.value, state.components.matrix, fit.priors) | guide_parameters(state, problem)
    gaps = []
    with jax.enable_x64(True):
        for counts in (fit.counts, fit.counts.with_mask(None)):
            arguments = program_arguments(counts, K, fit.priors, dense=False)
            programs = module.program, module.augmented_bound
            joint, bound = (float(log_density(each, (), arguments, values)[0]) for each in programs)
            gaps.append(joint - bound)
    assert gaps[0] > 0
    assert gaps[0] == pytest.approx(gaps[1], rel=1e-9)


@quietly
@pytest.mark.parametrize("bound", ["marginal", "augmented"])
def test_steps_of_svi_begin_at_the_closed_form_fit(bound):
    """Counts of 0 at the missing entries would move the components by 0.1."""
    options = SVI(max_iter=30, learning_rate=1e-4, bound=bound)
    fit = bayesnmf.fit(COUNTS, rank=1, method="svi", seed=0, observed=SEEN, options=options)
    closed = bayesnmf.fit(COUNTS, rank=1, seed=0, observed=SEEN)
    np.testing.assert_allclose(fit.components, closed.components, atol=0.01)
    assert fit.counts.mask.number == (~SEEN).sum()


@quietly
@pytest.mark.long
@pytest.mark.parametrize(
    ("model", "noise"),
    [
        ("gamma_poisson", "poisson"),
        ("dirichlet_poisson", "poisson"),
        ("gamma_poisson", NegativeBinomial(dispersion=1.0)),
    ],
    ids=["gamma", "given totals", "clusters"],
)
def test_nuts_and_gibbs_sampling_agree(model, noise):
    """Means of expected shares and of the log joint, to a fraction of a standard deviation."""
    given, priors = {"seed": 0, "observed": SEEN, "noise": noise}, priors_of(model)
    options = {
        "nuts": NUTS(chains=2, warmup=400, draws=1500, priors=priors),
        "gibbs": Gibbs(chains=2, warmup=500, draws=8000, priors=priors),
    }
    one, two = (bayesnmf.fit(COUNTS, model, K, method, options=each, **given) for method, each in options.items())
    assert one.trace.mean() == pytest.approx(two.trace.mean(), abs=0.25 * two.trace.std())
    rates = [np.einsum("cdnk,cdkm->cdnm", fit.posterior.loadings, fit.posterior.components) for fit in (one, two)]
    off = (rates[0].mean(axis=(0, 1)) - rates[1].mean(axis=(0, 1))) / rates[1].std(axis=(0, 1))
    assert np.abs(np.delete(off, 3, axis=0)).max() < 0.25
