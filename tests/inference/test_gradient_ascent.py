"""[P] path 1, gradient ascent on the bound with the allocations put back, and that it meets path 2."""

import numpy as np
import pytest
from plain import even_priors, plain_vi
from registry import MODELS_AND_PRIORS, having, nasty_counts, over, plain_counts, with_parameter
from suites import crossed, mostly_long
from turns import FREE, in_turn

import bayesnmf
from bayesnmf import VI, ConvergenceWarning, Dirichlet, Gamma, NegativeBinomial, Priors, ScaledDirichlet, Start
from bayesnmf.data.conversion import as_counts
from bayesnmf.data.missing import with_missing
from bayesnmf.data.powered import working_counts
from bayesnmf.fitting.problems import point_or_mean_field, start_state
from bayesnmf.inference.ascent.coordinate_ascent import evaluate_state
from bayesnmf.inference.ascent.course import Schedule
from bayesnmf.inference.ascent.gradient_ascent import (
    at_logs,
    gradient_ascent,
    gradient_of_logs,
    logs_of_state,
    slope_of_parameters,
    state_of_logs,
)

SIZE, RANK = (9, 7), 2
ENTRIES = having("gradient")
every_entry = over(ENTRIES)
NASTY = nasty_counts()
by_parameter = pytest.mark.parametrize("free", [False, True], ids=["prior", "parameter"])
OF_EACH_KIND = ("gamma_poisson", "doubly_gamma-asymmetric", "dirichlet_poisson", "dirichlet_gamma-asymmetric")
free_in_turn = pytest.mark.parametrize(("entry", "free"), in_turn(ENTRIES, FREE))


def priors_of(entry, free, size=SIZE, rank=RANK):
    priors = entry.priors(size, rank)
    return with_parameter(priors) if free else priors


def run(counts, model, priors, algorithm="gradient", *, rank=RANK, seed=0, max_iter=40, tol=0, progress=False, **more):
    options = plain_vi(priors=priors, algorithm=algorithm, max_iter=max_iter, tol=tol, **more)
    return bayesnmf.fit(counts, model, rank, "vi", seed=seed, options=options, progress=progress)


def never_falls(trace):
    """To rounding: terms are up to Σ log X!, 4e5, so 1e-12 of that."""
    return np.all(trace[:-1] - trace[1:] <= 1e-12 * np.maximum(np.abs(trace[1:]), 4e5))


def begin(entry, free, counts):
    problem = point_or_mean_field(as_counts(counts), plain_vi(priors=priors_of(entry, free, counts.shape)))
    return problem, start_state(problem, "random", RANK, np.random.default_rng(3))


# --- the gradient -----------------------------------------------------------------------------------


@free_in_turn
def test_the_gradient_is_that_of_finite_differences(entry, free):
    """The allocations are optimal, so their dependence on the parameters adds nothing ([P] 31)."""
    counts = plain_counts(size=(5, 6))
    counts[1], counts[:, 2] = 0, 0
    problem, state = begin(entry, free, counts)
    logs = logs_of_state(state)
    logs += 0.3 * np.random.default_rng(4).normal(size=logs.shape)  # off the conditionals, where half of it is 0

    def bound(at):
        return evaluate_state(problem, state_of_logs(problem, state, at), 1).value

    found = gradient_of_logs(evaluate_state(problem, state_of_logs(problem, state, logs), 1))
    step = 1e-5
    expected = np.array([(bound(logs + step * e) - bound(logs - step * e)) / (2 * step) for e in np.eye(len(logs))])
    # Differences lose 1e-16 · 1e3 nats / step = 1e-8, and the third derivative times step², 1e-10 of some tens.
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=2e-7)
    assert np.abs(found).max() > 1


@pytest.mark.parametrize(
    ("entry", "free"),
    mostly_long([(entry, free) for entry in ENTRIES if entry.id in OF_EACH_KIND for free in FREE.values()]),
)
def test_the_gradient_is_zero_where_coordinate_ascent_stands_still(entry, free):
    counts = plain_counts(size=(5, 6))
    fit = run(counts, entry.model, priors_of(entry, free, counts.shape), "coordinate", max_iter=500, extrapolate=True)
    problem, _ = begin(entry, free, counts)
    here = evaluate_state(problem, start_state(problem, fit, RANK, np.random.default_rng(0)), 1)
    # Path 2 stops moving at rounding of the bound, 1e-14 of 100 nats; the gradient is of the order of its root.
    assert np.abs(gradient_of_logs(here)).max() < 1e-5


@by_parameter
@every_entry
def test_parameters_are_unpacked_as_they_were(entry, free):
    problem, state = begin(entry, free, NASTY)
    again = state_of_logs(problem, state, logs_of_state(state))
    for one, two in zip(state, again, strict=True):
        assert type(one.conditional) is type(two.conditional)
        for a, b in zip(one.parameters, two.parameters, strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-300)
    assert np.isclose(evaluate_state(problem, again, 1).value, evaluate_state(problem, state, 1).value, rtol=1e-12)


# --- fits -------------------------------------------------------------------------------------------


def few_counts():
    """Some 20 counts a row, and an empty row."""
    rng = np.random.default_rng(3)
    counts = rng.poisson(rng.gamma(1, 5, (9, 2)) @ rng.dirichlet(np.ones(7), 2) * 2).astype(float)
    counts[4] = 0
    return counts


def easy_counts():
    """Two components that hardly overlap, with an empty row."""
    rng = np.random.default_rng(2)
    beta = np.array([[9.0, 8, 7, 1, 1, 1, 1], [1, 1, 1, 1, 8, 9, 7]]) / 28
    counts = rng.poisson(rng.gamma(2.0, 60.0, (9, 2)) @ beta).astype(float)
    counts[4] = 0
    return counts


WITH_PARAMETER = ("dirichlet_poisson", "doubly_gamma", "dirichlet_gamma-asymmetric")
PATHS = [pytest.param(e, False, id=f"{e.id}-prior") for e in ENTRIES] + [
    pytest.param(e, True, id=f"{e.id}-parameter") for e in ENTRIES if e.id in WITH_PARAMETER
]
BY_DEFAULT = ("doubly_gamma-parameter",)


@pytest.mark.parametrize(
    ("entry", "free"), mostly_long(PATHS, [at for at, e in enumerate(PATHS) if e.id in BY_DEFAULT])
)
def test_both_paths_end_at_one_optimum(entry, free):
    """[P]: from one start the same top, an empty row's q included.

    The start is some steps on its way, so that both climb the same hill. A bound that is short by d leaves q off by
    the order of the root of d, and how far L-BFGS comes depends on rounding: so bounds are compared where the paths
    end, and q where path 2 carries path 1 on to the top.
    """
    priors = priors_of(entry, free)
    settings = {"max_iter": 250, "extrapolate": True}
    start = run(few_counts(), entry.model, priors, "coordinate", max_iter=20)
    one = run(few_counts(), entry.model, priors, start=start, max_iter=250)
    two = run(few_counts(), entry.model, priors, "coordinate", start=start, **settings)
    np.testing.assert_allclose(one.trace[0], two.trace[0], rtol=1e-12)
    assert two.trace[-1] > two.trace[0] + 1e-2
    # L-BFGS is slow where components without a prior go to 0: after 250 steps it is some 3e-6 nats short of 100.
    np.testing.assert_allclose(one.trace[-1], two.trace[-1], rtol=1e-6 if free else 1e-10)
    top = run(few_counts(), entry.model, priors, "coordinate", start=one, **settings)
    np.testing.assert_allclose(top.trace[-1], two.trace[-1], rtol=1e-12)
    # Both have come as far as the slowest direction lets them in 250 steps, within 1e-8 of the top.
    np.testing.assert_allclose(top.components, two.components, atol=1e-6)
    for a, b in zip(vars(top.posterior.loadings).values(), vars(two.posterior.loadings).values(), strict=True):
        np.testing.assert_allclose(a, np.broadcast_to(b, a.shape), rtol=1e-6)


@free_in_turn
def test_the_bound_never_falls(entry, free):
    """A step of the line search is never down; with an empty row and column, and large counts."""
    fit = run(NASTY, entry.model, priors_of(entry, free), max_iter=30)
    assert len(fit.trace) == fit.status.iterations + 1
    assert never_falls(fit.trace)
    assert fit.trace[-1] > fit.trace[0]
    for factor in (fit.loadings, fit.components):
        assert np.all(np.isfinite(factor) & (factor >= 0))
    if free:
        np.testing.assert_allclose(fit.components.sum(axis=1), 1, rtol=1e-9)


def test_empty_rows_have_the_conditional_of_no_counts():
    """Known without a fit: Gammas (components on the simplex) and scales Gamma(a, b + 1), a Dirichlet its prior."""
    settings = {"max_iter": 150}
    q = run(few_counts(), "gamma_poisson", Priors(Gamma(0.7, 0.3), Dirichlet(1.0)), **settings).posterior.loadings
    # Within the root of rounding of the bound, as all of q.
    np.testing.assert_allclose(np.broadcast_to(q.mean(), (9, RANK))[4], 0.7 / 1.3, rtol=1e-3)
    q = run(few_counts(), "dirichlet_poisson", Priors(Dirichlet(0.7), Dirichlet(1.0)), **settings).posterior.loadings
    np.testing.assert_allclose(q.concentration[4], 0.7, rtol=1e-3)
    priors = Priors(ScaledDirichlet(0.7, 2.0, 0.3), Dirichlet(1.0))
    q = run(few_counts(), "dirichlet_gamma", priors, **settings).posterior.loadings
    np.testing.assert_allclose(q.concentration[4], 0.7, rtol=1e-3)
    np.testing.assert_allclose(q.scale.mean()[4], 2 / 1.3, rtol=1e-3)


DEGENERATE = {
    "nothing": (np.zeros((4, 3)), 2, "float64"),
    "one entry": (np.array([[3.0]]), 1, "float64"),
    "huge": (np.array([[1e9, 0.0], [1.0, 3e8]]), 2, "float32"),
}


@pytest.mark.filterwarnings("ignore:float32 rounds its objective")
@pytest.mark.parametrize(("entry", "counts"), in_turn(ENTRIES, DEGENERATE))
def test_degenerate_counts_overflow_nowhere(entry, counts):
    """Line searches look far away; where numbers would overflow they are held back, without a warning."""
    counts, rank, dtype = counts
    fit = run(counts, entry.model, entry.priors(counts.shape, rank), rank=rank, max_iter=10, dtype=dtype)
    assert np.all(np.isfinite(fit.trace))
    assert fit.loadings.dtype == fit.components.dtype == dtype


@pytest.mark.parametrize("model", ["poisson", "gamma_poisson", "dirichlet_poisson"])
def test_an_optimum_to_start_from_stays(model):
    """Rank 1: the first update is the optimum, and no derivative is left to divide by."""
    priors = Priors(Gamma(1.0, 0.5) if model != "dirichlet_poisson" else None, "parameter")
    for counts in ([[2, 0, 1], [1, 0, 3]], [[0, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 0]]):
        start = bayesnmf.fit(counts, model, 1, "vi", seed=1, options=plain_vi(priors=priors, tol=1e-13))
        fit = run(counts, model, priors, rank=1, start=start)
        assert np.isfinite(fit.loadings).all()
        assert np.isfinite(fit.components).all()
        assert np.all(np.diff(fit.trace) >= 0)
        np.testing.assert_allclose(fit.trace[-1], start.trace[-1], rtol=1e-9)


def test_zeros_of_a_component_stay():
    """Logarithms of 0 are kept at the least number there is: the gradient there is 0."""
    components = np.array([[0.0, 0.5, 0.5, 0, 0, 0, 0], [0.2, 0, 0, 0.2, 0.2, 0.2, 0.2]])
    start = Start(np.full((9, 2), 1.0), components)
    fit = run(easy_counts(), "gamma_poisson", Priors(Gamma(1.0, 0.1), "parameter"), start=start, max_iter=20)
    np.testing.assert_array_less(fit.components[components == 0], 1e-100)
    assert fit.trace[-1] > fit.trace[0]


# --- stopping ---------------------------------------------------------------------------------------


def test_it_ends_as_soon_as_the_objective_has_settled():
    """No warning (they are errors here); the change over five steps is below the tolerance, for the first time."""
    counts = plain_counts()  # below a shape of 1, settling the rows at the end may find another optimum of some
    fit = run(counts, "gamma_poisson", even_priors(counts, rank=RANK), max_iter=2_000, tol=1e-6)
    assert fit.status.converged
    assert fit.status.reason == "objective settled to 1e-06 relative"
    assert fit.status.iterations == len(fit.trace) - 1
    changes = np.abs(fit.trace[5:] - fit.trace[:-5]) / np.abs(fit.trace[5:])
    assert changes[-1] < 1e-6
    assert np.all(changes[:-1] >= 1e-6)


def test_it_ends_where_no_step_raises_the_bound():
    fit = run(plain_counts(), "gamma_poisson", Priors(), max_iter=5_000, tol=0)
    assert fit.status.converged
    assert fit.status.reason.startswith("no step raises the objective")


@pytest.mark.parametrize("steps", [0, 1, 7])
def test_as_many_iterations_are_done_as_were_asked_for(steps):
    entry = MODELS_AND_PRIORS[2]
    fit = run(NASTY, entry.model, entry.priors(), max_iter=steps)
    assert tuple(fit.status) == (False, f"all {steps} iterations done", steps)
    assert len(fit.trace) == steps + 1
    if steps == 0:
        same = run(NASTY, entry.model, entry.priors(), "coordinate", max_iter=0)
        np.testing.assert_array_equal(fit.loadings, same.loadings)
        np.testing.assert_array_equal(fit.trace, same.trace)


def test_a_fit_that_stops_early_warns():
    with pytest.warns(ConvergenceWarning, match=r"all 2 iterations done\); raise max_iter or tol in bayesnmf\.VI"):
        run(NASTY, "gamma_poisson", Priors(), max_iter=2, tol=1e-12)


@over(MODELS_AND_PRIORS[2:6])
def test_interruption_keeps_what_there_is(entry):
    seen = []

    def stop(label, done, total, objective):
        assert (label, total) == (f"vi {entry.model}", 40)
        seen.append(objective)
        if done == 3:
            raise KeyboardInterrupt

    with pytest.warns(ConvergenceWarning, match="interrupted"):
        fit = run(NASTY, entry.model, entry.priors(), progress=stop, tol=1e-12)
    whole = run(NASTY, entry.model, entry.priors(), max_iter=3)
    assert tuple(fit.status) == (False, "interrupted", 3)
    np.testing.assert_array_equal(fit.trace, seen)
    np.testing.assert_array_equal(fit.trace, whole.trace)
    np.testing.assert_array_equal(fit.loadings, whole.loadings)
    np.testing.assert_array_equal(fit.components, whole.components)


def test_an_interruption_within_a_line_search_keeps_the_last_iterate(monkeypatch):
    from bayesnmf.inference.ascent import gradient_ascent as module

    problem, state = begin(MODELS_AND_PRIORS[2], False, NASTY)
    whole = gradient_ascent(problem, state, Schedule(max_iter=3, tol=0))
    calls = 0

    def pressed(*arguments):
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt
        return evaluate_state(*arguments)

    monkeypatch.setattr(module, "evaluate_state", pressed)
    ascent = gradient_ascent(problem, state, Schedule(max_iter=9, tol=0))
    assert not ascent.status.converged
    assert ascent.status.reason == "interrupted"
    assert 1 <= len(ascent.trace) == ascent.status.iterations + 1
    np.testing.assert_array_equal(ascent.trace, whole.trace[: len(ascent.trace)])
    calls = 3
    ascent = gradient_ascent(problem, state, Schedule(max_iter=9, tol=0))
    assert (ascent.state, ascent.trace, ascent.status.iterations) == (state, [], 0)


@pytest.mark.parametrize(
    "setting",
    [{"schedule": "joint"}, {"order": "components"}, {"sweeps": 2}, {"extrapolate": True}, {"learn": ("loadings",)}],
)
def test_settings_of_coordinate_ascent_are_refused(setting):
    with pytest.raises(ValueError, match=rf"{next(iter(setting))} needs algorithm='coordinate'"):
        VI(algorithm="gradient", **setting)


# --- noise ------------------------------------------------------------------------------------------

NOISES = {
    "nb1": NegativeBinomial("linear", 1.5),
    "nb1 per row": NegativeBinomial("linear", np.linspace(0.5, 2, 12), "row"),
    "nb1 per feature": NegativeBinomial("linear", np.linspace(0.5, 2, 8), "feature"),
    "nb2": NegativeBinomial("quadratic", 0.3),
}
OF_NOISE = [
    (model, name)
    for model in ("poisson", "gamma_poisson", "dirichlet_gamma", "dirichlet_poisson")
    for name in NOISES
    if model != "dirichlet_poisson" or name in ("nb1", "nb1 per row")
]


def noisy(model):
    drawn = bayesnmf.simulate(size=(12, 8), rank=2, noise=NegativeBinomial(dispersion=2.0), seed=1)
    counts = drawn.counts.matrix.toarray()
    priors = Priors(Gamma(1.0, 0.01), Gamma(0.5, 5.0)) if model == "poisson" else even_priors(counts, model, 2)
    return counts, priors


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("model", "name"), OF_NOISE)
def test_the_gradient_with_noise_is_that_of_finite_differences(model, name, masked):
    """By dispersions, too; rates and clusters are optimal at every point, so the gradient is that with these held."""
    if masked and (model == "dirichlet_poisson" or (name == "nb1 per feature" and model != "poisson")):
        pytest.skip("refused: a share of every entry counts as missing there")
    counts, priors = noisy(model)
    data = as_counts(counts)
    if masked:
        data = with_missing(data, None, np.random.default_rng(2).random(counts.shape) < 0.7, None)
    totals = model == "dirichlet_poisson"
    working = working_counts(data, NOISES[name], given_totals=totals, learned=True, components=priors.components)
    problem = point_or_mean_field(working, plain_vi(priors=priors))
    state = start_state(problem, "random", RANK, np.random.default_rng(3))
    logs = np.append(logs_of_state(state), np.log(problem.counts.parameters))
    logs += 0.2 * np.random.default_rng(4).normal(size=logs.shape)

    def bound(at):
        return evaluate_state(*at_logs(problem, state, at), 1).value

    here = evaluate_state(*at_logs(problem, state, logs), 1)
    found = np.append(gradient_of_logs(here), slope_of_parameters(here, 1))
    step = 1e-5
    expected = np.array([(bound(logs + step * e) - bound(logs - step * e)) / (2 * step) for e in np.eye(len(logs))])
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    assert np.abs(found).max() > 10


@pytest.mark.parametrize(
    ("noise", "model"),
    crossed(
        ["nb1", "nb2", NegativeBinomial(dispersion="row"), NegativeBinomial(dispersion=2.0)],
        ["gamma_poisson", "dirichlet_gamma", "dirichlet_poisson"],
    ),
)
@pytest.mark.filterwarnings("ignore::bayesnmf.ConvergenceWarning")
def test_both_paths_with_noise_meet(model, noise):
    if model == "dirichlet_poisson" and noise == "nb2":
        pytest.skip("refused")
    counts, priors = noisy(model)
    ends = []
    for algorithm in ("coordinate", "gradient"):
        options = plain_vi(priors=priors, algorithm=algorithm, max_iter=1500, tol=1e-12, threads=1, extrapolate=None)
        ends.append(bayesnmf.fit(counts, model, 2, "vi", seed=0, noise=noise, options=options))
        assert never_falls(ends[-1].trace)
    one, two = ends
    assert two.trace[-1] == pytest.approx(one.trace[-1], rel=1e-8)
    np.testing.assert_allclose(two.noise.dispersion, one.noise.dispersion, rtol=1e-2)  # flat there: 1e-9 of the bound


@pytest.mark.filterwarnings("ignore::bayesnmf.ConvergenceWarning")
def test_gradient_ascent_that_learns_a_dispersion_resumes(tmp_path):
    counts, priors = noisy("gamma_poisson")
    options = plain_vi(priors=priors, algorithm="gradient", max_iter=30, tol=0, threads=1, extrapolate=None)
    given = {"model": "gamma_poisson", "rank": 2, "seed": 0, "noise": "nb1", "options": options}
    whole = bayesnmf.fit(counts, **given)
    bayesnmf.fit(counts, checkpoint=tmp_path, **given)
    (tmp_path / "fit.nc").unlink()
    again = bayesnmf.fit(counts, checkpoint=tmp_path, **given)
    np.testing.assert_array_equal(again.components, whole.components)
    assert again.noise == whole.noise
