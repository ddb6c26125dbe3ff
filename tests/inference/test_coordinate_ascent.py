"""Coordinate ascent over all models, priors, methods, schedules and orders; the theorems are in test_theorems.py."""

import warnings
from functools import cache
from itertools import product

import numpy as np
import pytest
from golden import reference
from plain import PLAIN, even_priors, plain_vi
from registry import (
    MODELS_AND_PRIORS,
    RANK,
    every_entry,
    nasty_counts,
    over,
    plain_counts,
    with_parameter,
)
from scipy import stats
from scipy.special import gammaln, logsumexp
from suites import mostly_long
from turns import FREE, METHODS, ORDERS, SCHEDULES, case_of, in_turn

import bayesnmf
from bayesnmf import ConvergenceWarning, Dirichlet, Gamma, HierarchicalGamma, Priors, ScaledDirichlet, Start
from bayesnmf.kernels.cpu.threads import SERIAL_WORK
from bayesnmf.priors.partly_known import PartlyKnown
from bayesnmf.results.cautions import cautions_of

FLAT = Gamma(1.0, 0.0)
NASTY = nasty_counts()

NATURAL = [entry for entry in MODELS_AND_PRIORS if entry.natural]
# One of each family, for what hardly depends on it.
OF_EACH = (
    "poisson-gammas",
    "dirichlet_poisson",
    "dirichlet_gamma-asymmetric",
    "hierarchical_poisson-asymmetric",
    "partly_known",
)

by_method = pytest.mark.parametrize("method", METHODS)
by_schedule = pytest.mark.parametrize("schedule", SCHEDULES)
natural_entries = over(NATURAL)
sparse_entries = over([entry for entry in MODELS_AND_PRIORS if not entry.natural])


def half_of_all_settings():
    """Of 16 combinations 8 for each entry, all of any three settings; by default one with map and one with vi."""
    settings = METHODS, FREE, SCHEDULES, ORDERS
    cases, default = [], []
    for at, entry in enumerate(MODELS_AND_PRIORS):
        places = [places for places in product(range(2), repeat=4) if (sum(places) + at) % 2 == 0]
        default += [len(cases) + at // 2 % 4, len(cases) + 4 + (at // 2 + 1) % 4]
        names = [[list(axis)[place] for axis, place in zip(settings, each, strict=True)] for each in places]
        cases += [case_of(entry, settings, each) for each in names]
    return mostly_long(cases, default)


def run(counts, model, method, priors, *, rank=RANK, seed=0, max_iter=40, tol=0, progress=False, **settings):
    options = PLAIN[method](priors=priors, max_iter=max_iter, tol=tol, **settings)
    return bayesnmf.fit(counts, model, rank, method, seed=seed, options=options, progress=progress)


def priors_of(entry, free, size=(9, 7), rank=RANK):
    """The priors of an entry; with a free parameter, components must be on the simplex."""
    priors = entry.priors(size, rank)
    return with_parameter(priors) if free else priors


def never_falls(trace, counts=NASTY):
    """To rounding: the terms of the objective, up to Σ log X!, are larger than it is by up to a few digits."""
    fall = trace[:-1] - trace[1:]
    return np.all(fall <= 1e-9 * np.abs(trace[1:]) + np.finfo(float).eps * gammaln(counts + 1).sum())


# --- every combination ------------------------------------------------------------------------------


@pytest.mark.parametrize(("entry", "method", "free", "schedule", "order"), half_of_all_settings())
def test_objective_never_falls(entry, method, free, schedule, order):
    fit = run(NASTY, entry.model, method, priors_of(entry, free), schedule=schedule, order=order)
    assert len(fit.trace) == 41
    assert np.all(np.isfinite(fit.trace))
    assert never_falls(fit.trace)
    assert fit.trace[-1] > fit.trace[0]
    check_factors(fit, NASTY, free)


def check_factors(fit, counts, free=False):
    n, m = counts.shape
    assert fit.loadings.shape == (n, fit.rank)
    assert fit.components.shape == (fit.rank, m)
    for factor in (fit.loadings, fit.components):
        assert np.all(np.isfinite(factor))
        assert np.all(factor >= 0)
    if free or fit.priors.components.support == "simplex":
        np.testing.assert_allclose(fit.components.sum(axis=1), 1, rtol=1e-9)
    if fit.priors.loadings.support != "positive":
        np.testing.assert_allclose(fit.loadings.sum(axis=1), 1, rtol=1e-9)
    assert (fit.scale is None) == (fit.model != "dirichlet_gamma")


@pytest.mark.parametrize(("entry", "method", "free"), in_turn(MODELS_AND_PRIORS, METHODS, FREE))
def test_float32_is_close_to_float64(entry, method, free):
    priors = priors_of(entry, free)
    double, single = (
        run(NASTY, entry.model, method, priors, max_iter=8, dtype=dtype) for dtype in ("float64", "float32")
    )
    assert single.loadings.dtype == single.components.dtype == np.float32
    # The objective is a difference of sums of size Σ log X!, each rounded to 6e-8.
    scale = gammaln(NASTY + 1).sum()
    np.testing.assert_allclose(single.trace, double.trace, rtol=1e-4, atol=1e-6 * scale)
    # Starts are rounded to 6e-8; eight steps amplify that, but not by more than 1e4.
    np.testing.assert_allclose(single.components, double.components, rtol=1e-2, atol=1e-3)
    reach = double.expected_loadings.max()
    np.testing.assert_allclose(single.expected_loadings, double.expected_loadings, rtol=1e-2, atol=1e-3 * reach)


@pytest.mark.parametrize(("entry", "method"), in_turn(MODELS_AND_PRIORS, METHODS, default=OF_EACH))
def test_threads_change_no_bit(entry, method):
    one, two = (run(NASTY, entry.model, method, entry.priors(), max_iter=5, threads=threads) for threads in (1, 2))
    np.testing.assert_array_equal(one.trace, two.trace)
    np.testing.assert_array_equal(one.components, two.components)


@pytest.mark.parametrize(("mean", "rank"), [(0.7, 8), (0.7, 20), (6.0, 20)], ids=["scattered", "gathered", "dense"])
@pytest.mark.parametrize("method", ["map", "vi"])
def test_threads_change_no_bit_of_what_they_share(mean, rank, method):
    """Counts that are worth a second thread: without fixed shards, sums differ in their last digits."""
    counts = np.random.default_rng(0).poisson(mean, (1500, 400))
    assert np.count_nonzero(counts) * rank > SERIAL_WORK
    model = {"map": "poisson", "vi": "gamma_poisson"}[method]
    one, two, three = (
        run(counts, model, method, Priors(), rank=rank, max_iter=2, threads=threads) for threads in (1, 2, 3)
    )
    for other in (two, three):
        np.testing.assert_array_equal(one.trace, other.trace)
        np.testing.assert_array_equal(one.loadings, other.loadings)
        np.testing.assert_array_equal(one.components, other.components)


DEGENERATE = {
    "nothing": (np.zeros((4, 3)), 2),
    "one row": (np.array([[5.0, 0.0, 2.0]]), 2),
    "one column": (np.array([[5.0], [0.0], [2.0]]), 2),
    "one entry": (np.array([[3.0]]), 1),
    "rank above size": (np.array([[1.0, 4.0], [2.0, 0.0]]), 5),
    "fractions": (np.array([[0.5, 1e-3], [2.25, 0.0]]), 2),
    "huge": (np.array([[1e9, 0.0], [1.0, 3e8]]), 2),
}


@pytest.mark.parametrize(("entry", "counts", "method"), in_turn(MODELS_AND_PRIORS, DEGENERATE, METHODS))
def test_degenerate_counts_have_finite_objectives_that_never_fall(entry, method, counts):
    counts, rank = counts
    fit = run(counts, entry.model, method, entry.priors(counts.shape, rank), rank=rank, max_iter=15)
    assert np.all(np.isfinite(fit.trace))
    assert never_falls(fit.trace, counts)
    check_factors(fit, counts)


def test_a_row_without_counts_has_the_loadings_of_its_prior():
    """What mathematics says of a row without counts, for every family of loadings (row 1 of the data)."""
    fit = run(NASTY, "poisson", "map", Priors(FLAT, Dirichlet(1.0)))
    np.testing.assert_array_equal(fit.loadings[1], 0)
    q = run(NASTY, "dirichlet_poisson", "vi", Priors(Dirichlet(0.7), Dirichlet(1.0))).posterior.loadings
    np.testing.assert_array_equal(q.concentration[1], 0.7)
    q = run(NASTY, "gamma_poisson", "vi", Priors(Gamma(0.7, 0.3), Dirichlet(1.0))).posterior.loadings
    np.testing.assert_array_equal(q.shape[1], 0.7)
    np.testing.assert_allclose(np.broadcast_to(q.rate, (*NASTY.shape[:1], RANK))[1], 1.3)
    priors = Priors(ScaledDirichlet(0.7, 2.0, 0.3), Dirichlet(1.0))
    q = run(NASTY, "dirichlet_gamma", "vi", priors).posterior.loadings
    np.testing.assert_array_equal(q.concentration[1], 0.7)
    assert (q.shape[1, 0], q.rate[0, 0]) == (2.0, 1.3)


# --- starting, stopping, going on -------------------------------------------------------------------


@by_method
def test_it_ends_as_soon_as_the_objective_has_settled(method):
    """No warning (they are errors here), and the last change is the first below the tolerance.

    Under vi the loadings are settled after it, which adds to the last value.
    """
    priors = Priors(Gamma(1.3, 0.2), Dirichlet(1.2))
    fit = run(plain_counts(), "gamma_poisson", method, priors, max_iter=5_000, tol=1e-6)
    assert fit.status.converged
    assert fit.status.reason == "objective settled to 1e-06 relative"
    assert fit.status.iterations == len(fit.trace) - 1 < 5_000
    whole = run(plain_counts(), "gamma_poisson", method, priors, max_iter=fit.status.iterations, tol=0)
    np.testing.assert_array_equal(fit.trace[:-1], whole.trace[:-1])
    assert fit.trace[-1] == whole.trace[-1] if method == "map" else fit.trace[-1] > whole.trace[-1]
    changes = np.abs(np.diff(whole.trace)) / np.abs(whole.trace[1:])
    assert changes[-1] < 1e-6
    assert np.all(changes[:-1] >= 1e-6)


@pytest.mark.parametrize(("method", "rule"), [("map", "kkt_tol"), ("vi", "tol")])
def test_without_tol_the_cure_names_an_option_that_the_method_has(method, rule):
    fit = run(plain_counts(), "gamma_poisson", method, Priors(), max_iter=3, tol=0)
    [caution] = cautions_of(fit)
    assert caution.endswith(f"raise max_iter or {rule} in bayesnmf.{type(fit.options).__name__}(...)")
    assert hasattr(fit.options, rule)


@pytest.mark.parametrize(("method", "cure"), [("map", "bayesnmf.MAP"), ("vi", "bayesnmf.VI")])
def test_a_fit_that_stops_early_warns_once(method, cure):
    rule = rf"{method} did not converge \(all 3 iterations done\); raise max_iter or tol in {cure}\(\.\.\.\)"
    with pytest.warns(ConvergenceWarning, match=rule) as caught:
        fit = run(plain_counts(), "gamma_poisson", method, Priors(), max_iter=3, tol=1e-12)
    assert len(caught) == 1
    assert tuple(fit.status) == (False, "all 3 iterations done", 3)
    assert len(fit.trace) == 4


def test_the_warning_points_at_the_caller():
    with pytest.warns(ConvergenceWarning) as caught:
        bayesnmf.fit(plain_counts(), "gamma_poisson", 2, "vi", seed=0, options=plain_vi(max_iter=1))
    assert caught[0].filename == __file__


@by_method
@pytest.mark.parametrize("steps", [0, 1, 17])
def test_zero_tolerance_runs_all_and_does_not_warn(method, steps):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit = run(plain_counts(), "gamma_poisson", method, Priors(), max_iter=steps, tol=0)
    assert tuple(fit.status) == (False, f"all {steps} iterations done", steps)
    assert len(fit.trace) == steps + 1


def interrupted(entry, method, often):
    """A fit that Ctrl-C ends after its third iteration, and the objectives that were reported."""
    seen = []

    def stop(label, done, total, objective):
        assert label == f"{method} {entry.model}"
        if total != 40:  # the last report, that the fit has ended
            assert (done, total) == (3, 3)
        else:
            seen.append(objective)
        if done == 3 and (often or total == 40):
            raise KeyboardInterrupt

    try:
        with pytest.warns(ConvergenceWarning, match="interrupted"):
            return run(NASTY, entry.model, method, entry.priors(), progress=stop, tol=1e-12), seen
    except KeyboardInterrupt:  # or it would end the whole suite
        return pytest.fail("the iterates are lost")


@pytest.mark.parametrize(("entry", "method"), in_turn(MODELS_AND_PRIORS, METHODS, default=OF_EACH))
def test_interruption_keeps_what_there_is(entry, method):
    fit, seen = interrupted(entry, method, often=False)
    whole = run(NASTY, entry.model, method, entry.priors(), max_iter=3)
    assert tuple(fit.status) == (False, "interrupted", 3)
    np.testing.assert_array_equal(fit.trace, seen)
    np.testing.assert_array_equal(fit.trace, whole.trace)
    np.testing.assert_array_equal(fit.loadings, whole.loadings)
    np.testing.assert_array_equal(fit.components, whole.components)


@by_method
def test_a_callback_that_keeps_interrupting_loses_nothing(method):
    fit, _ = interrupted(MODELS_AND_PRIORS[2], method, often=True)
    assert tuple(fit.status) == (False, "interrupted", 3)


@pytest.mark.parametrize(("entry", "method"), in_turn(MODELS_AND_PRIORS, METHODS, default=OF_EACH))
def test_same_seed_same_bits(entry, method):
    one, two, other = (run(NASTY, entry.model, method, entry.priors(), max_iter=5, seed=s) for s in (1, 1, 2))
    for name in ("trace", "loadings", "components"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    assert one.trace[0] != other.trace[0]


def test_a_fresh_seed_is_kept():
    one, two = (run(plain_counts(), "gamma_poisson", "vi", Priors(), seed=None, max_iter=5) for _ in range(2))
    assert one.seed != two.seed
    again = run(plain_counts(), "gamma_poisson", "vi", Priors(), seed=one.seed, max_iter=5)
    np.testing.assert_array_equal(one.trace, again.trace)


@pytest.mark.parametrize(("entry", "method", "free"), in_turn(MODELS_AND_PRIORS, METHODS, FREE))
def test_a_fit_goes_on_from_a_fit(entry, method, free):
    priors = priors_of(entry, free)
    first = run(NASTY, entry.model, method, priors, max_iter=10)
    then = run(NASTY, entry.model, method, priors, max_iter=5, start=first, seed=9)
    whole = run(NASTY, entry.model, method, priors, max_iter=15)
    np.testing.assert_allclose(then.trace[0], first.trace[-1], rtol=1e-12)
    np.testing.assert_allclose(then.trace, whole.trace[10:], rtol=1e-10)


@over(MODELS_AND_PRIORS, default=OF_EACH)
def test_vi_from_a_map_fit_and_map_from_a_vi_fit(entry):
    """The start of one method may be the fit of another: it is better than a random one."""
    priors = entry.priors()
    for method, other in (("map", "vi"), ("vi", "map")):
        first = run(NASTY, entry.model, other, priors, max_iter=25)
        then = run(NASTY, entry.model, method, priors, max_iter=1, start=first)
        assert np.all(np.isfinite(then.trace))
        assert then.trace[1] > run(NASTY, entry.model, method, priors, max_iter=1).trace[1]


@every_entry
def test_the_type_asked_for_is_kept_from_a_fit(entry):
    double = run(NASTY, entry.model, "vi", entry.priors(), max_iter=2)
    single = run(NASTY, entry.model, "vi", entry.priors(), max_iter=2, dtype="float32", start=double)
    assert single.loadings.dtype == single.components.dtype == np.float32


@pytest.mark.parametrize("model", ["dirichlet_poisson", "gamma_poisson"])
@by_method
def test_starting_distributions_broadcast(model, method):
    """Hyperparameters of a start broadcast to the factor, as those of a prior do."""
    narrow = Dirichlet(np.array([1.0, 2.0, 3.0])) if model == "dirichlet_poisson" else Gamma(2.0, [1.0, 2.0, 3.0])
    components = Dirichlet(np.linspace(1, 2, 21).reshape(3, 7))
    fits = [
        run(NASTY, model, method, Priors(), max_iter=3, start=Start(loadings, components))
        for loadings in (narrow, narrow.broadcast((9, 3)))
    ]
    np.testing.assert_array_equal(fits[0].trace, fits[1].trace)


@sparse_entries
def test_a_start_with_zeros_in_the_log_basis(entry):
    """A maximum likelihood fit has exact zeros, where the density in the log basis is 0; it goes on from there."""
    first = run(NASTY, "poisson", "map", Priors(FLAT, "parameter"), max_iter=200)
    zeros = np.where(first.components < 1e-6, 0, first.components)
    loadings = np.full((9, RANK), 1 / RANK)
    start = Start(loadings, zeros / zeros.sum(axis=1, keepdims=True))
    assert np.any(zeros == 0)
    fit = run(NASTY, entry.model, "map", entry.priors(), start=start, max_iter=20)
    assert fit.trace[0] == -np.inf
    assert np.all(np.isfinite(fit.trace[1:]))
    assert never_falls(fit.trace[1:])


# --- modes ------------------------------------------------------------------------------------------


def dense_log_joint(entry, counts, loadings, scale, components):
    """By scipy, without the package's priors."""
    priors = entry.priors(counts.shape, len(components))
    rate = (loadings if scale is None else loadings * scale[:, None]) @ components
    return (
        stats.poisson.logpmf(counts, rate).sum()
        + dense_log_prior(priors.loadings, loadings, scale)
        + dense_log_prior(priors.components, components, None)
    )


def dense_log_prior(prior, value, scale):
    if isinstance(prior, PartlyKnown):
        return dense_log_prior(prior.free, np.delete(value, prior.at, axis=0), scale)
    if isinstance(prior, Gamma):
        flat = prior.flat
        return 0.0 if flat else stats.gamma.logpdf(value, prior.shape, scale=1 / np.asarray(prior.rate)).sum()
    if isinstance(prior, HierarchicalGamma):
        return shared_rates_integrated(prior, value)
    alpha = np.broadcast_to(prior.concentration, value.shape)
    density = sum(stats.dirichlet.logpdf(row / row.sum(), a) for row, a in zip(value, alpha, strict=True))
    if scale is not None:
        density += stats.gamma.logpdf(scale[:, None], prior.shape, scale=1 / np.asarray(prior.rate)).sum()
    return density


def shared_rates_integrated(prior, value):
    """Log density with the rates integrated out by the trapezoidal rule in log ξ, which is exact to rounding here."""
    component = (0,) if prior.side == "loadings" else (1,)
    axes = {"row": (1,), "feature": (0,), "component": component, "all": (0, 1)}[prior.over]
    log_rate = np.linspace(-30, 30, 1201)[:, None, None]
    entries = stats.gamma.logpdf(value, prior.shape, scale=np.exp(-log_rate)).sum(
        axis=tuple(1 + a for a in axes), keepdims=True
    )
    own = stats.gamma.logpdf(np.exp(log_rate), prior.rate.shape, scale=1 / np.asarray(prior.rate.rate)) + log_rate
    return (logsumexp(entries + own, axis=0) + np.log(0.05)).sum()


@pytest.mark.parametrize(("entry", "schedule"), in_turn(NATURAL, SCHEDULES, default=OF_EACH))
def test_map_is_a_maximum(entry, schedule):
    """The log joint, by scipy, is stationary at the fit in random directions that keep rows on their simplex."""
    counts = plain_counts(mean=6.0)
    steps = {"max_iter": 150, "extrapolate": True}
    fit = run(counts, entry.model, "map", entry.priors(rank=2), schedule=schedule, rank=2, **steps)
    rng = np.random.default_rng(0)
    height = dense_log_joint(entry, counts, fit.loadings, fit.scale, fit.components)
    np.testing.assert_allclose(fit.trace[-1], height, rtol=1e-9)

    def moved(value, direction, on_simplex):
        out = value * np.exp(direction)
        return out / out.sum(axis=1, keepdims=True) if on_simplex else out

    simplex = [prior.support != "positive" for prior in (fit.priors.loadings, fit.priors.components)]
    step = 1e-4
    for _ in range(12):
        directions = [step * rng.normal(size=factor.shape) for factor in (fit.loadings, fit.components)]
        directions[1][getattr(fit.priors.components, "at", [])] = 0  # known rows stay
        about = None if fit.scale is None else step * rng.normal(size=fit.scale.shape)

        def at(sign, directions=directions, about=about):
            return dense_log_joint(
                entry,
                counts,
                moved(fit.loadings, sign * directions[0], simplex[0]),
                None if fit.scale is None else fit.scale * np.exp(sign * about),
                moved(fit.components, sign * directions[1], simplex[1]),
            )

        slope = (at(1) - at(-1)) / (2 * step)
        # Nats per unit of 48 logarithms; EM converges linearly, here to 1e-3 or better, differences are good to 1e-5.
        assert abs(slope) < 2e-3


@by_schedule
def test_maximum_likelihood_satisfies_kkt(schedule):
    """[C] A.3: max |θ Σβ − A| and |β Σθ − B| are 0 and no gradient is negative."""
    counts = plain_counts(seed=5, mean=6.0)
    fit = run(counts, "poisson", "map", Priors(FLAT, FLAT), max_iter=20_000, tol=1e-15, schedule=schedule, rank=2)
    theta, beta = fit.loadings, fit.components
    S = reference.allocations(counts, theta, beta)
    # EM's error falls linearly: at a relative change of 1e-15 the residual is below 1e-4 counts of about 400.
    assert np.abs(theta * beta.sum(axis=1) - S.sum(axis=2)).max() < 1e-4
    assert np.abs(beta * theta.sum(axis=0)[:, None] - S.sum(axis=0)).max() < 1e-4
    ratio = np.divide(counts, theta @ beta, where=counts > 0, out=np.zeros_like(counts))
    assert (beta.sum(axis=1) - ratio @ beta.T).min() > -1e-3 * beta.sum(axis=1).max()
    assert (theta.sum(axis=0)[:, None] - theta.T @ ratio).min() > -1e-3 * theta.sum(axis=0).max()
    # At a maximum the totals are fitted exactly.
    np.testing.assert_allclose((theta @ beta).sum(axis=1), counts.sum(axis=1), rtol=1e-6)
    np.testing.assert_allclose((theta @ beta).sum(axis=0), counts.sum(axis=0), rtol=1e-6)


@sparse_entries
def test_sparse_priors_use_the_log_basis(entry):
    """There the mode is inside, and the objective is the log joint plus the Jacobian; the natural basis refuses."""
    priors = entry.priors()
    fit = run(NASTY, entry.model, "map", priors, max_iter=10)
    named = run(NASTY, entry.model, "map", priors, max_iter=10, basis="log")
    np.testing.assert_array_equal(fit.trace, named.trace)
    assert fit.components.min() > 0
    assert fit.loadings.min() > 0
    jacobian = np.log(fit.loadings).sum() + np.log(fit.components).sum()
    jacobian += 0 if fit.scale is None else np.log(fit.scale).sum()
    joint = dense_log_joint(entry, NASTY, fit.loadings, fit.scale, fit.components)
    np.testing.assert_allclose(fit.trace[-1], joint + jacobian, rtol=1e-9)
    with pytest.raises(ValueError, match=r"basis='natural' needs priors.* at 1 or above"):
        run(NASTY, entry.model, "map", priors, basis="natural")


@natural_entries
def test_both_bases_may_be_asked_for(entry):
    if entry.priors().loadings.flat:
        pytest.skip("a flat prior is improper in the log basis")
    log, natural, default = (
        run(NASTY, entry.model, "map", entry.priors(), basis=basis, max_iter=10) for basis in ("log", "natural", None)
    )
    assert never_falls(log.trace)
    assert log.trace[-1] != natural.trace[-1]
    np.testing.assert_array_equal(natural.trace, default.trace)


# --- between models ---------------------------------------------------------------------------------


def test_poisson_and_gamma_poisson_share_one_density():
    """The MAP of one is that of the other with the same priors; the models differ in what is estimated."""
    priors = Priors(Gamma(1.4, 0.3), Dirichlet(1.2))
    one, two = (run(NASTY, model, "map", priors) for model in ("poisson", "gamma_poisson"))
    np.testing.assert_array_equal(one.trace, two.trace)


OTHERS = {
    "poisson": None,
    "gamma_poisson": None,
    "dirichlet_poisson": None,
    "dirichlet_gamma": None,
    "doubly gamma": Priors(Gamma(2.0, 0.1), Gamma(2.0, 3.0)),
}


def run_other(model, method, **settings):
    counts, stated = np.random.default_rng(4).poisson(4, (9, 7)), model.replace("doubly gamma", "gamma_poisson")
    options = PLAIN[method](**settings, priors=OTHERS[model] or even_priors(counts, stated, 2), tol=0)
    return bayesnmf.fit(counts, stated, 2, method, options=options, seed=0)


@cache
def begun_from(other, model, method):
    """A fit of one model, not a step from a fit of another; and that fit."""
    start = run_other(other, method, max_iter=30)
    return run_other(model, method, start=start, max_iter=0), start


def shares(fit):
    means = fit.loadings @ fit.components
    return means / means.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("model", OTHERS)
@pytest.mark.parametrize("other", OTHERS)
@by_method
def test_a_fit_of_any_model_starts_any_other(model, other, method):
    """Its q where the families agree, else its point, on the scale of the priors; fitted shares survive."""
    begun, start = begun_from(other, model, method)
    # Under vi a q of another family is replaced by one update from its point. That moves the largest share by up to
    # 20 % on these counts; a random start is off by more than 100 %.
    np.testing.assert_allclose(shares(begun), shares(start), rtol=1e-9 if method == "map" else 0.3)
    assert np.isfinite(begun.trace).all()


@pytest.mark.parametrize(
    ("other", "model", "method"),
    mostly_long(
        [
            ("dirichlet_gamma", "gamma_poisson", "vi"),
            ("dirichlet_gamma", "dirichlet_gamma", "vi"),
            ("poisson", "doubly gamma", "map"),
            ("gamma_poisson", "dirichlet_poisson", "vi"),
            ("dirichlet_poisson", "poisson", "map"),
        ]
    ),
)
def test_a_start_of_another_model_survives_a_save(other, model, method, tmp_path):
    begun, _ = begun_from(other, model, method)
    begun.save(tmp_path / "fit.nc")
    options = bayesnmf.load(tmp_path / "fit.nc").options
    again = bayesnmf.fit(begun.counts, begun.model, 2, method, options=options, seed=0)
    np.testing.assert_array_equal(again.components, begun.components)


def test_an_objective_that_is_not_a_number_ends_the_fit(monkeypatch):
    """It ran all iterations before, and advised more of them."""
    monkeypatch.setattr("bayesnmf.inference.ascent.coordinate_ascent.objective", lambda *_: np.nan)
    with pytest.warns(ConvergenceWarning, match="not a number"):
        fit = bayesnmf.fit([[1, 2], [3, 4]], "dirichlet_poisson", 2, options=plain_vi(), seed=0)
    assert fit.status.iterations < 5


# --- loadings settled afresh --------------------------------------------------------------------------


@every_entry
def test_settled_steps_never_lower_the_bound(entry):
    """Where settling afresh would, a plain step is taken."""
    fit = run(NASTY, entry.model, "vi", entry.priors(), algorithm="settled", max_iter=12)
    assert never_falls(fit.trace)
    check_factors(fit, NASTY)


def test_settling_afresh_finds_better_loadings_where_concentrations_are_small():
    """Rows of sparse loadings keep what they chose while the components were poor."""
    truth = bayesnmf.simulate(
        "dirichlet_poisson", (80, 30), 4, priors=Priors(Dirichlet(0.1), Dirichlet(0.1)), totals=60, seed=0
    )
    ends = {}
    for algorithm in ("coordinate", "settled"):
        options = plain_vi(priors=Priors(Dirichlet(0.05), Dirichlet(0.1)), algorithm=algorithm, max_iter=100)
        ends[algorithm] = [
            bayesnmf.fit(truth.counts, "dirichlet_poisson", 4, "vi", seed=seed, options=options).trace[-1]
            for seed in range(3)
        ]
    assert np.mean(ends["settled"]) > np.mean(ends["coordinate"])
