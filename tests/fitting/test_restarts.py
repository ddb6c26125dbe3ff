"""Restarts keep the best of several random starts; the KKT residual is followed and can end a fit."""

import numpy as np
import pytest
from golden import reference
from plain import PLAIN
from registry import MODELS_AND_PRIORS, RANK, nasty_counts, over, plain_counts

import bayesnmf
from bayesnmf import ConvergenceWarning, Dirichlet, Gamma, Priors, Start
from bayesnmf.inference.ascent import coordinate_ascent

FLAT = Gamma(1.0, 0.0)
NASTY = nasty_counts()
SPARSE = Priors(Gamma(0.4, 0.1), Dirichlet(0.3))  # many local optima

of_each_family = over(
    MODELS_AND_PRIORS,
    default=("poisson-gammas", "gamma_poisson-sparse", "dirichlet_gamma-asymmetric", "partly_known-gammas"),
)  # fmt: skip
by_method = pytest.mark.parametrize("method", PLAIN)


def run(counts, model, method, priors, *, rank=RANK, seed=0, max_iter=30, tol=0.0, progress=False, **settings):
    options = PLAIN[method](priors=priors, max_iter=max_iter, tol=tol, **settings)
    return bayesnmf.fit(counts, model, rank, method, seed=seed, options=options, progress=progress)


# --- restarts ---------------------------------------------------------------------------------------


def ends_by_hand(method, restarts, **settings):
    """The ends of the single runs that restarts are, from their documented random streams."""
    from bayesnmf.data.conversion import as_counts
    from bayesnmf.fitting.problems import point_or_mean_field, start_state
    from bayesnmf.inference.ascent.coordinate_ascent import ascend
    from bayesnmf.inference.ascent.course import Schedule

    problem = point_or_mean_field(as_counts(NASTY), PLAIN[method](priors=SPARSE))
    ascents = []
    for restart in range(restarts):
        rng = np.random.default_rng(0 if restart == 0 else [0, restart])
        ascents.append(ascend(problem, start_state(problem, "random", RANK, rng), Schedule(max_iter=30, tol=0)))
    return ascents


@by_method
def test_the_best_of_all_starts_is_kept(method):
    ascents = ends_by_hand(method, 9)
    ends = [ascent.trace[-1] for ascent in ascents]
    top = int(np.argmax(ends))
    assert top > 0  # or the first would do
    assert max(ends[top + 1 :]) > ends[0]  # or the last that beats the first would do
    fit = run(NASTY, "gamma_poisson", method, SPARSE, restarts=9)
    best = ascents[top]
    np.testing.assert_array_equal(fit.trace, best.trace)
    np.testing.assert_array_equal(fit.components, best.state.components.matrix)
    assert fit.diagnostics["restarts"] == 9
    assert fit.diagnostics["worst_restart"] == min(ends)


@by_method
@of_each_family
def test_more_starts_are_never_worse(entry, method):
    """The first ones are the same."""
    ends = [run(NASTY, entry.model, method, entry.priors(), max_iter=8, restarts=r).trace[-1] for r in (1, 2, 4)]
    assert ends[0] <= ends[1] <= ends[2]


@by_method
def test_one_start_is_a_plain_fit(method):
    """The same seed has the same start whether or not others follow; without restarts they are not reported."""
    one, plain = (run(NASTY, "gamma_poisson", method, SPARSE, **more) for more in ({"restarts": 1}, {}))
    np.testing.assert_array_equal(one.trace, plain.trace)
    np.testing.assert_array_equal(one.trace, ends_by_hand(method, 1)[0].trace)
    assert not {"restarts", "worst_restart"} & set(one.diagnostics)


@pytest.mark.parametrize(
    "settings", [("map", {"algorithm": "scd"}), ("vi", {"algorithm": "gradient"}), ("vi", {})], ids=str
)
def test_restarts_are_reproducible(settings):
    """Also on other numbers of threads, to rounding."""
    method, more = settings
    priors = Priors(FLAT, FLAT) if "scd" in more.values() else SPARSE
    one, two, threads, other = (
        run(
            NASTY,
            "gamma_poisson" if method == "vi" else "poisson",
            method,
            priors,
            restarts=3,
            max_iter=10,
            **more,
            **x,
        )
        for x in ({}, {}, {"threads": 2}, {"seed": 1})
    )
    np.testing.assert_array_equal(one.trace, two.trace)
    np.testing.assert_array_equal(one.components, two.components)
    np.testing.assert_allclose(one.trace, threads.trace, rtol=1e-8)
    assert one.trace[0] != other.trace[0]


@by_method
def test_interruption_in_a_later_start_keeps_the_best_so_far(method):
    ends = [ascent.trace[-1] for ascent in ends_by_hand(method, 5)]
    reported = []

    def stop(label, done, total, objective):
        if label not in reported:
            reported.append(label)
        if label.endswith("start 5") and done == 2:
            raise KeyboardInterrupt

    with pytest.warns(ConvergenceWarning, match="interrupted"):
        fit = run(NASTY, "gamma_poisson", method, SPARSE, restarts=5, tol=1e-300, progress=stop)
    assert reported == [f"{method} gamma_poisson, start {restart}" for restart in range(1, 6)]
    assert fit.trace[-1] == max(ends[:4])
    assert tuple(fit.status) == (False, "interrupted", 30)
    assert fit.diagnostics["restarts"] == 4  # finished ones
    assert fit.diagnostics["worst_restart"] == min(ends[:4])


def test_interruption_before_the_first_iterate_of_a_later_start(monkeypatch):
    """While it is drawn; in the first start there is nothing to keep."""
    from bayesnmf.fitting import closed_form

    ends = [ascent.trace[-1] for ascent in ends_by_hand("vi", 2)]
    drawn = closed_form.start_state
    calls = 0

    def pressed(*arguments):
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return drawn(*arguments)

    monkeypatch.setattr(closed_form, "start_state", pressed)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        fit = run(NASTY, "gamma_poisson", "vi", SPARSE, restarts=5, tol=1e-300)
    assert fit.trace[-1] == max(ends)
    assert fit.diagnostics["restarts"] == 2
    calls = 2
    with pytest.raises(KeyboardInterrupt):
        run(NASTY, "gamma_poisson", "vi", SPARSE, restarts=5)


def test_a_start_that_is_not_a_number_is_never_the_best(monkeypatch):
    from bayesnmf.fitting import closed_form

    climb = closed_form.run_from_start
    whole = run(NASTY, "gamma_poisson", "vi", SPARSE, restarts=3)

    for lost in range(3):

        def broken(job, problem, device, start, rng, label, lost=lost):
            ascent = climb(job, problem, device, start, rng, label)
            broke = label.endswith(f"start {lost + 1}")
            return ascent._replace(trace=[*ascent.trace[:-1], np.nan]) if broke else ascent

        monkeypatch.setattr(closed_form, "run_from_start", broken)
        fit = run(NASTY, "gamma_poisson", "vi", SPARSE, restarts=3)
        assert np.isfinite(fit.trace[-1])
        assert fit.trace[-1] <= whole.trace[-1]
        assert fit.diagnostics["worst_restart"] == -np.inf


@by_method
@pytest.mark.parametrize("restarts", [0, -1, 1.5])
def test_a_number_of_starts_is_a_positive_whole_number(method, restarts):
    with pytest.raises((ValueError, TypeError), match="restarts must be"):
        PLAIN[method](restarts=restarts)


@by_method
def test_given_starts_are_not_repeated(method):
    start = Start(np.ones((9, RANK)), np.full((RANK, 7), 1 / 7))
    for given in (start, run(NASTY, "gamma_poisson", method, SPARSE, max_iter=1)):
        with pytest.raises(ValueError, match="restarts=2 needs a start by name"):
            PLAIN[method](start=given, restarts=2)


# --- the KKT residual -------------------------------------------------------------------------------


@pytest.mark.parametrize("basis", ["natural", "log"])
@pytest.mark.parametrize("entry", MODELS_AND_PRIORS[2:4], ids=lambda entry: entry.id)
def test_residuals_are_those_of_the_states_of_the_trace(entry, basis):
    """[C] A.3 with priors, by the dense reference: in the log basis a mode is a mean."""
    less = 1 if basis == "natural" else 0
    for steps in (0, 1, 6):
        fit = run(NASTY, entry.model, "map", entry.priors(), basis=basis, max_iter=steps)
        assert len(fit.residuals) == len(fit.trace) == steps + 1
        theta, beta = fit.loadings, fit.components
        S = reference.allocations(NASTY, theta, beta)
        prior, other = fit.priors.loadings, fit.priors.components
        parts = [theta * (prior.rate + beta.sum(axis=1)) - (prior.shape - less + S.sum(axis=2))]
        if isinstance(other, Gamma):
            parts.append(beta * (other.rate + theta.sum(axis=0)[:, None]) - (other.shape - less + S.sum(axis=0)))
        else:
            peak = other.concentration - less + S.sum(axis=0)
            parts.append(beta * peak.sum(axis=1, keepdims=True) - peak)
        # Sums of up to 4e4 counts.
        np.testing.assert_allclose(fit.residuals[-1], max(np.abs(part).max() for part in parts), rtol=1e-9, atol=1e-9)
        assert fit.diagnostics["kkt_residual"] == fit.residuals[-1]


@of_each_family
def test_the_residual_falls_to_nothing(entry):
    """Where the objective has settled to rounding, in the basis of the fit."""
    fit = run(plain_counts(mean=6.0), entry.model, "map", entry.priors(rank=2), rank=2, max_iter=400, extrapolate=True)
    assert fit.residuals[-1] < 1e-2 < fit.residuals[0]


@over(MODELS_AND_PRIORS, default=("dirichlet_gamma-asymmetric",))
def test_the_residual_falls_to_nothing_with_components_that_are_a_parameter(entry):
    priors = Priors(entry.priors(rank=2).loadings, "parameter")
    fit = run(plain_counts(mean=6.0), entry.model, "map", priors, rank=2, max_iter=400, extrapolate=True)
    assert fit.residuals[-1] < 1e-2 < fit.residuals[0]


def test_a_small_residual_ends_the_fit():
    fit = run(
        plain_counts(), "gamma_poisson", "map", Priors(Gamma(1.3, 0.2), Dirichlet(1.2)), kkt_tol=0.05, max_iter=900
    )
    assert fit.status.converged
    assert fit.status.reason == "KKT residual at most 0.05 counts"
    assert fit.residuals[-1] <= 0.05
    assert np.all(fit.residuals[:-1] > 0.05)
    assert len(fit.residuals) == len(fit.trace) == fit.status.iterations + 1


def test_both_rules_are_in_force():
    """Whichever comes first."""
    priors = Priors(Gamma(1.3, 0.2), Dirichlet(1.2))
    loose, tight = (
        run(plain_counts(), "gamma_poisson", "map", priors, tol=1e-6, kkt_tol=k, max_iter=900) for k in (0.05, 1e-12)
    )
    assert "KKT" in loose.status.reason
    assert tight.status.reason == "objective settled to 1e-06 relative"


@pytest.mark.parametrize(("tol", "cure"), [(0, "kkt_tol"), (1e-12, "tol")])
def test_a_residual_that_stays_large_warns(tol, cure):
    """And names the rule that is in force."""
    message = rf"map did not converge \(all 3 iterations done\); raise max_iter or {cure} in bayesnmf\.MAP"
    with pytest.warns(ConvergenceWarning, match=message):
        fit = run(plain_counts(), "gamma_poisson", "map", Priors(), max_iter=3, tol=tol, kkt_tol=1e-9)
    assert not fit.status.converged


def test_an_entry_stuck_at_zero_has_no_residual_but_a_gradient():
    """[C] A.3: EM keeps a 0 for ever; the least gradient, checked against dense formulas, shows that it should grow."""
    counts = plain_counts(mean=6.0)
    rng = np.random.default_rng(3)
    theta, beta = rng.gamma(2.0, size=(9, 2)), rng.gamma(2.0, size=(2, 7))
    beta[0, :4] = 0
    start = Start(theta, beta)
    fit = run(counts, "poisson", "map", Priors(FLAT, FLAT), rank=2, start=start, max_iter=800, extrapolate=True)
    np.testing.assert_array_equal(fit.components[0, :4], 0)
    assert fit.residuals[-1] < 1e-6
    theta, beta = fit.loadings, fit.components
    ratio = counts / (theta @ beta)
    growth = [ratio @ beta.T / beta.sum(axis=1), theta.T @ ratio / theta.sum(axis=0)[:, None]]
    least = 1 - max(part.max() for part in growth)
    # Zeros are looked at 1e-12 of the largest entry inside.
    np.testing.assert_allclose(fit.diagnostics["least_gradient"], least, rtol=1e-6)
    assert least < -0.05


@of_each_family
def test_the_least_gradient_is_the_growth_of_an_em_update_and_has_no_unit(entry):
    """In the basis of the fit: one more update multiplies no entry by more than 1 − least gradient, and one by this."""
    counts = plain_counts(mean=6.0)
    short, longer = (
        run(counts, entry.model, "map", entry.priors(), max_iter=i, schedule="alternating") for i in (5, 6)
    )
    # Of the side that is updated first; the other one moves from elsewhere.
    joint = run(counts, entry.model, "map", entry.priors(), max_iter=1, order="components", start=short)
    growth = max((longer.loadings / short.loadings).max(), (joint.components / short.components).max())
    np.testing.assert_allclose(1 - short.diagnostics["least_gradient"], growth, rtol=1e-9)


@pytest.mark.parametrize("components", [FLAT, Dirichlet(1.0)], ids=["gamma", "dirichlet"])
def test_the_least_gradient_tells_stuck_zeros_from_an_optimum(components):
    """60 × 30 counts by EM: both residuals are small, and the gradients are two orders of magnitude apart."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(20 * rng.gamma(0.5, 1, (60, 3)) @ rng.dirichlet(np.full(30, 0.3), 3))
    settings = {"rank": 3, "max_iter": 200, "extrapolate": True, "seed": 1}
    free = run(counts, "poisson", "map", Priors(FLAT, components), **settings)
    emptied = free.components.copy()
    emptied[0, emptied[0] > emptied[0].mean()] = 0
    emptied /= emptied.sum(axis=1, keepdims=True)
    stuck = run(counts, "poisson", "map", Priors(FLAT, components), start=Start(free.loadings, emptied), **settings)
    assert max(free.residuals[-1], stuck.residuals[-1]) < 0.01
    assert stuck.trace[-1] < free.trace[-1] - 50
    assert stuck.diagnostics["least_gradient"] < -0.5
    assert -0.005 < free.diagnostics["least_gradient"] < 1e-6


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@of_each_family
def test_no_counts_have_finite_diagnostics(entry, dtype):
    fit = run(np.zeros((4, 3)), entry.model, "map", entry.priors((4, 3)), max_iter=3, dtype=dtype)
    assert np.all(np.isfinite(fit.residuals))
    assert np.all(np.isfinite(list(fit.diagnostics.values())))


def test_residuals_are_saved(tmp_path):
    with pytest.warns(ConvergenceWarning, match="KKT residual at most 100000 counts, but one more EM update"):
        fit = run(NASTY, "gamma_poisson", "map", SPARSE, restarts=2, kkt_tol=1e5)
    fit.save(tmp_path / "fit.nc")
    again = bayesnmf.load(tmp_path / "fit.nc")
    np.testing.assert_array_equal(again.residuals, fit.residuals)
    assert again.diagnostics == fit.diagnostics
    assert (again.options.restarts, again.options.kkt_tol) == (2, 1e5)
    bound = run(NASTY, "gamma_poisson", "vi", SPARSE)
    assert bound.residuals is None
    bound.save(tmp_path / "bound.nc")
    assert bayesnmf.load(tmp_path / "bound.nc").residuals is None


def test_residuals_are_not_computed_where_they_are_not_asked_for(monkeypatch):
    """Variational fits have no use for them."""
    monkeypatch.setattr(coordinate_ascent, "kkt_residual", lambda *_: pytest.fail("computed"))
    run(NASTY, "gamma_poisson", "vi", SPARSE, max_iter=2)
