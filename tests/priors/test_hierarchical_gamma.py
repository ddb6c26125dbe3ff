"""A Gamma whose rates are drawn, too: its formulas against dense ones, and what a user does with it."""

import numpy as np
import pytest
from plain import plain_map, plain_vi
from registry import plain_counts
from scipy import stats
from scipy.special import gammaln
from suites import mostly_long

import bayesnmf
from bayesnmf import MAP, NUTS, SVI, VI, Dirichlet, Gamma, Gibbs, HierarchicalGamma, Priors
from bayesnmf.data.conversion import as_counts
from bayesnmf.fitting.problems import point_or_mean_field
from bayesnmf.inference.side import Draw
from bayesnmf.priors.pair import replace_sides

SIZE = (6, 4)
OVER = ["row", "feature", "component", "all"]
quiet = pytest.mark.filterwarnings("ignore::bayesnmf.inference.status.ConvergenceWarning")


def prior_over(over, side=None, shape=1.4, rate=None):
    """A prior on the side on which it can stand; components if it can stand on both, unless a side is given."""
    side = side or ("loadings" if over == "row" else "components")
    return HierarchicalGamma(shape, rate or Gamma(2.5, 0.7), over).on_side(side)


def shared_axes(prior):
    """The axes of the entries that share a rate, stated a second time."""
    component = 0 if prior.side == "loadings" else 1
    return {"row": (1,), "feature": (0,), "component": (component,), "all": (0, 1)}[prior.over]


CASES = [(over, side) for over in OVER for side in prior_over(over).sides]
every_case = pytest.mark.parametrize(("over", "side"), CASES)


# --- formulas ---------------------------------------------------------------------------------------


@every_case
def test_the_conditional_is_where_updates_of_entries_and_rates_in_turn_end(over, side):
    rng = np.random.default_rng(0)
    prior, total = prior_over(over, side), rng.gamma(1.0, 5.0, SIZE)
    total[2], total[:, 1] = 0, 0
    exposure = rng.gamma(1.0, 2.0, (1, SIZE[1]) if side == "loadings" else (SIZE[0], 1))
    exposure.flat[0] = 0
    total *= exposure > 0
    found = prior.conditional(total.copy(), exposure)
    mode = prior.mode(total.copy(), exposure)
    for less, mean in ((0.0, found.mean()), (1.0, mode)):
        rates = np.ones((1, 1))
        for _ in range(20_000):
            values = (prior.shape - less + total) / (rates + exposure)
            shape = prior.rate.shape + np.broadcast_to(prior.shape, SIZE).sum(axis=shared_axes(prior), keepdims=True)
            before, rates = rates, shape / (prior.rate.rate + values.sum(axis=shared_axes(prior), keepdims=True))
            if np.all(np.abs(rates - before) <= 1e-15 * rates):
                break
        np.testing.assert_allclose(mean, values, rtol=1e-9)


@every_case
def test_the_divergence_is_that_of_entries_and_rates(over, side):
    """KL(q(x) q(ξ) ‖ p) summed entry by entry, with the best q(ξ) and with no other one below it."""
    rng = np.random.default_rng(1)
    prior = prior_over(over, side)
    q = Gamma(rng.gamma(3.0, 1.0, SIZE), rng.gamma(3.0, 1.0, SIZE))
    plain, more = prior.expected_prior(q)
    found = q.kl(plain) + more

    def divergence(rates):
        """E over q(ξ) of KL(q(x) ‖ Gamma(a, ξ)), and KL(q(ξ) ‖ p(ξ)), from SciPy's entropies."""
        log_rate, rate = rates.expected_log(), rates.mean()
        a = prior.shape
        cross = a * log_rate - gammaln(a) + (a - 1) * q.expected_log() - rate * q.mean()
        entries = -stats.gamma.entropy(q.shape, scale=1 / q.rate).sum() - cross.sum()
        c, d = prior.rate.shape, prior.rate.rate
        own = c * np.log(d) - gammaln(c) + (c - 1) * log_rate - d * rate
        shape, scale = np.broadcast_arrays(rates.shape, 1 / rates.rate)
        return entries - stats.gamma.entropy(shape, scale=scale).sum() - np.broadcast_to(own, shape.shape).sum()

    best = prior.rates_given(q.mean())
    np.testing.assert_allclose(found, divergence(best), rtol=1e-10)
    for by in (0.9, 1.1):
        assert divergence(Gamma(by * best.shape, best.rate)) > found
        assert divergence(Gamma(best.shape, by * best.rate)) > found


@pytest.mark.parametrize("shape", [0.3, 2.0])
def test_draws_have_the_stated_distribution(shape):
    """Prior draws against SciPy's beta prime: 4,000 of one entry, of which a scale 30 % off is found."""
    prior = prior_over("row", shape=np.full((1, 1), shape), rate=Gamma(3.5, 0.7))
    drawn = prior.draw(np.random.default_rng(2), (4000,)).ravel()
    exact = stats.betaprime(shape, 3.5, scale=0.7)
    assert stats.kstest(drawn, exact.cdf).pvalue > 1e-3
    assert stats.kstest(1.3 * drawn, exact.cdf).pvalue < 1e-3
    at, levels = (np.array([0]), np.array([0])), np.array([0.1, 0.5, 0.9])
    np.testing.assert_allclose(prior.quantiles(at, levels).ravel(), exact.ppf(levels))
    np.testing.assert_allclose([prior.mean().item(), prior.variance().item()], exact.stats("mv"), rtol=1e-10)
    np.testing.assert_allclose(prior.expected_log().item(), exact.expect(np.log), rtol=1e-6)
    assert HierarchicalGamma(1.0, Gamma(1.0, 1.0), "row").mean() == np.inf


def test_rates_of_a_sweep_are_drawn_given_the_entries():
    prior = prior_over("row")
    value = np.random.default_rng(3).gamma(2.0, 1.0, (1, 4))
    rng = np.random.default_rng(4)
    drawn = np.array([prior.drawn(value, rng).rate.item() for _ in range(2000)])
    exact = stats.gamma(2.5 + 4 * 1.4, scale=1 / (0.7 + value.sum()))
    assert stats.kstest(drawn, exact.cdf).pvalue > 1e-3


@pytest.mark.parametrize("method", ["map", "vi"])
def test_rates_that_are_known_make_a_plain_gamma(method):
    """Gamma(1e8 b, 1e8) is the rate b to 1e-4: the same ascent as with Gamma(a, b)."""
    plain = {"map": plain_map, "vi": plain_vi}[method]
    fits = [
        bayesnmf.fit(
            plain_counts(), "gamma_poisson", 2, method, seed=0, options=plain(priors=priors, max_iter=30, tol=0)
        )
        for priors in (
            Priors(Gamma(1.4, 0.3), Gamma(1.2, 0.5)),
            Priors(prior_over("row", rate=Gamma(0.3e8, 1e8)), HierarchicalGamma(1.2, Gamma(0.5e8, 1e8), "feature")),
        )
    ]
    np.testing.assert_allclose(fits[0].components, fits[1].components, rtol=1e-4)
    np.testing.assert_allclose(fits[0].loadings, fits[1].loadings, rtol=1e-4)


# --- fits -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("over", ["row", "component"])
def test_learned_rates_raise_the_bound_and_come_near_the_truth(over):
    rate = Gamma(6.0, 200.0)
    truth = Priors(HierarchicalGamma(2.0, rate, over), Dirichlet(1.0))
    drawn = bayesnmf.simulate("gamma_poisson", (400, 30), 3, priors=truth, totals=None, seed=5)
    begun = Priors(HierarchicalGamma(2.0, Gamma(1.0, 1.0), over), Dirichlet(1.0))
    options = VI(priors=begun, learn=("loadings",), start="random")
    fit = bayesnmf.fit(drawn.counts, "gamma_poisson", 3, "vi", seed=0, options=options)
    assert np.all(np.diff(fit.trace) > -1e-8 * np.abs(fit.trace[1:]))
    learned = fit.priors.loadings
    assert isinstance(learned, HierarchicalGamma)
    assert learned.over == over
    if over == "row":  # 400 rates; a mean over so many is good to 3 %, and loadings are known to 10 %
        assert learned.rate.mean().item() == pytest.approx(0.03, rel=0.1)


def test_relevance_empties_components_that_the_counts_do_not_need():
    drawn = bayesnmf.simulate("gamma_poisson", (120, 40), 3, priors=Priors(Gamma(1.0, 0.05), Dirichlet(0.1)), seed=6)
    used = []
    for loadings in (HierarchicalGamma(1.0, Gamma(1e-3, 1e-3), "component"), Gamma(1.0, 0.05)):
        options = VI(priors=Priors(loadings, Dirichlet(1.0)), start="svd")
        fit = bayesnmf.fit(drawn.counts, "gamma_poisson", 8, "vi", seed=0, options=options)
        totals = (fit.loadings * fit.components.sum(axis=1)).sum(axis=0)
        used.append(int((totals > 1e-3 * totals.sum()).sum()))
    assert used[0] == 3
    assert used[1] > 3


def test_new_rows_have_rates_of_their_own_or_those_of_the_fit():
    counts = plain_counts(mean=8.0)
    for over in ("row", "component", "all"):
        priors = Priors(HierarchicalGamma(1.3, Gamma(2.0, 1.0), over), Dirichlet(1.2))
        fit = bayesnmf.fit(counts, "gamma_poisson", 2, "vi", seed=0, options=VI(priors=priors, tol=1e-10, start="svd"))
        np.testing.assert_allclose(fit.transform(counts), fit.loadings, rtol=2e-3)
        np.testing.assert_allclose(fit.transform(counts[:2]), fit.transform(counts)[:2], rtol=1e-6)


@quiet
@pytest.mark.parametrize("method", mostly_long(["map", "vi", "gibbs", "svi", "nuts"], 3))
def test_every_method_fits_saves_and_transforms(method, tmp_path):
    few = {"chains": 2, "draws": 10, "warmup": 10}
    options = {
        "map": MAP(start="svd", max_iter=30), "vi": VI(start="svd", max_iter=30), "gibbs": Gibbs(start="random", **few),
        "svi": SVI(max_iter=50), "nuts": NUTS(**few),
    }  # fmt: skip
    fit = bayesnmf.fit(plain_counts(), "hierarchical_poisson", 2, method, seed=0, options=options[method])
    assert fit.priors.components.side == "components"
    fit.save(tmp_path / "fit.nc")
    again = bayesnmf.load(tmp_path / "fit.nc")
    assert again.priors.loadings.settings == {"over": "row", "side": "loadings"}
    assert again.priors.loadings.parameters == fit.priors.loadings.parameters
    np.testing.assert_array_equal(again.transform(plain_counts()), fit.transform(plain_counts()))
    assert len(bayesnmf.predictive_checks(fit, draws=20).table) == 6


def test_draws_of_gibbs_use_the_rates_of_their_own_sweep():
    """The side that a sweep draws depends on the entries before it, through their rates."""
    problem = point_or_mean_field(as_counts(plain_counts()), VI(priors=Priors(prior_over("row"), Dirichlet(1.0))))
    prior, total, one = problem.loadings_prior, np.ones((9, 2)), np.ones((1, 2))
    means = []
    for size in (1e-3, 1e3):  # small entries, large rates
        rng = np.random.default_rng(0)
        before = Draw(rng).at(prior, np.full((9, 2), size))
        means.append(np.mean([Draw(rng).summarise(prior, total, one, before).matrix.mean() for _ in range(20)]))
    assert means[0] < 0.5 * means[1]


# --- what is refused --------------------------------------------------------------------------------


@pytest.mark.parametrize(("over", "side"), [("feature", "loadings"), ("row", "components")])
def test_rates_are_shared_along_an_axis_of_their_side(over, side):
    with pytest.raises(ValueError, match=rf"^priors\.{side} must be a prior for {side}: found HierarchicalGamma"):
        Priors(**{side: HierarchicalGamma(1.0, Gamma(1.0, 1.0), over)})


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((1.0, 2.0, "row"), TypeError, r"rate must be bayesnmf\.Gamma"),
        ((1.0, Gamma(1.0, 1.0), "rows"), ValueError, "over must be"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        HierarchicalGamma(*arguments)


@pytest.mark.parametrize("parameters", [(0.0, Gamma(1.0, 1.0)), (1.0, Gamma(0.0, 1.0)), (1.0, Gamma(1.0, 0.0))])
def test_parameters_must_be_positive(parameters):
    with pytest.raises(ValueError, match=r"^priors\.loadings\.(shape|rate_shape|rate_rate) must be positive"):
        Priors(HierarchicalGamma(*parameters, "row"))


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("map", MAP(algorithm="scd"), "algorithm='scd' needs modes that coordinate descent can find"),
        ("vi", VI(algorithm="gradient"), "algorithm='gradient' needs gradients"),
        ("vi", VI(algorithm="minibatch"), "algorithm='minibatch' needs sums of features"),
        (
            "vi",
            VI(priors=Priors(HierarchicalGamma(1.0, Gamma(1.0, 1.0), "all")), learn=("loadings",)),
            "learn='loadings' needs hyperparameters that can be learned",
        ),
        ("gibbs", Gibbs(collapsed=True), "collapsed Gibbs needs allocations whose factors integrate out"),
    ],
)
def test_what_it_lacks_is_refused_by_name(method, options, message):
    with pytest.raises(ValueError, match=f"{message}.*found HierarchicalGamma in priors.loadings, which has none"):
        bayesnmf.fit(plain_counts(), "hierarchical_poisson", 2, method, options=options)


def test_its_plain_default_for_map_is_em():
    fit = bayesnmf.fit(plain_counts(), "hierarchical_poisson", 2, "map", seed=0, options=MAP(start="svd"))
    assert fit.options.algorithm == "em"
    assert fit.status.converged


def test_a_side_is_stated_where_priors_are_replaced():
    prior = HierarchicalGamma(1.0, Gamma(1.0, 1.0), "component")
    assert prior.side is None
    assert replace_sides(Priors(), components=prior).components.side == "components"
