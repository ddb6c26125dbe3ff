"""Components are merged and split where an ascent has all but ended: what is estimated, and what that leads to."""

from dataclasses import replace

import numpy as np
import pytest
from registry import plain_counts
from scipy.special import xlogy
from suites import mostly_long

import bayesnmf
from bayesnmf import MAP, VI, Dirichlet, Gamma, Priors, Start
from bayesnmf.fitting.problems import point_or_mean_field, start_state
from bayesnmf.inference.ascent.coordinate_ascent import Ascent, Extrapolated, ascend, plain_steps
from bayesnmf.inference.ascent.course import Schedule
from bayesnmf.inference.sides import allocate, objective
from bayesnmf.inference.starts.exchanging import Climb, Exchanges, exchange_components
from bayesnmf.inference.starts.states import flat_problem
from bayesnmf.inference.status import INTERRUPTED, Status

RANK = 4
ALL = np.arange(RANK)


def blocks(size=8, seed=0):
    """Counts of four groups of rows, each with features of its own."""
    rng = np.random.default_rng(seed)
    means = np.kron(np.eye(RANK), np.full((size, size), 6.0)) + 0.05
    return bayesnmf.data.conversion.as_counts(rng.poisson(means))


def poor_factors(size=8, tilt=1.1):
    """Two components share the first group, copies but for a tilt, and one has the last two."""
    groups = np.array([[1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1]], float)
    components = np.kron(groups, np.ones(size)) + 0.01
    components[0, : size // 2] *= tilt
    components[1, size // 2 : size] *= tilt
    components /= components.sum(axis=1, keepdims=True)
    loadings = 20 * np.kron(groups.T, np.ones((size, 1))) + 0.01
    return loadings, components


def exchanges_at(counts, factors, options=None):
    problem = point_or_mean_field(counts, options or MAP(priors=Priors(Gamma(1.0, 0.0), Dirichlet(1.0))))
    state = start_state(problem, Start(*factors), RANK, np.random.default_rng(0))
    return Exchanges(problem, state, np.random.default_rng(0), 1), problem, state


def test_the_best_exchange_merges_what_is_one_and_splits_what_is_two():
    counts = blocks()
    exchanges, problem, state = exchanges_at(counts, poor_factors())
    best = exchanges.best(1, ALL)[0]
    assert (best.merged, best.split) == ((0, 1), 3)
    after = exchanges.state_after(best)
    before, now = (objective(problem, each, allocate(problem, each, 1).loglik) for each in (state, after))
    assert best.gain > 100
    assert now - before >= best.gain  # estimated with every count shared out as it was
    parts = after.components.value[[1, 3]]  # one group each
    assert sorted(np.round(parts[:, 16:24].sum(axis=1), 1)) == [0, 1]


def test_the_loss_by_merging_is_that_of_the_bound_at_these_allocations():
    """Σ over entries and components of N log(mean / N), with the rank-one means of each component's totals."""
    counts = blocks(seed=1)
    loadings, components = poor_factors()
    exchanges, _, _ = exchanges_at(counts, (loadings, components))
    X, means = counts.matrix.toarray(), loadings[:, :, None] * components[None]
    N = np.moveaxis(X[:, None, :] * means / means.sum(axis=1, keepdims=True), 1, 0)

    def bound(parts):
        return sum(xlogy(n, np.outer(n.sum(1), n.sum(0)) / n.sum()).sum() - xlogy(n, n).sum() for n in parts)

    gains = np.array([gain for gain, _ in exchanges.splits])
    for exchange in exchanges.best(100, ALL):
        (a, b), c = exchange.merged, exchange.split
        merged = [N[a] + N[b], *(N[k] for k in range(RANK) if k not in (a, b))]
        assert gains[c] - exchange.gain == pytest.approx(bound(N) - bound(merged), rel=1e-9)


def test_an_exchange_keeps_the_totals_of_rows_and_components():
    counts = blocks(seed=2)
    exchanges, _, _ = exchanges_at(counts, poor_factors())
    for exchange in exchanges.best(5, ALL):
        after = exchanges.state_after(exchange)
        np.testing.assert_allclose(after.loadings.value.sum(axis=1), counts.row_totals)
        np.testing.assert_allclose(after.components.value.sum(axis=1), 1)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(("kind", "algorithm", "dtype"), [(MAP, "em", "float64"), (VI, "coordinate", "float32")])
def test_a_copy_is_put_where_a_component_is_missing(kind, algorithm, dtype, large, monkeypatch):
    """Two components are the first group, and one has the last two, whatever is started from; a given start stays."""
    counts, factors = blocks(seed=3), poor_factors(tilt=1.0 if large else 1.5)
    monkeypatch.setattr("bayesnmf.inference.starts.states.LITTLE", 0 if large else 4e5)
    shape = 1.5 if large else 1.0
    priors = Priors(Gamma(shape, 0.1), Dirichlet(shape))
    options = kind(start=Start(*factors), algorithm=algorithm if large else None, dtype=dtype, tol=1e-6, priors=priors)
    method = "map" if kind is MAP else "vi"
    alone = bayesnmf.fit(counts, "gamma_poisson", RANK, method, seed=0, options=options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "bayesnmf.fitting.problems.state_from_word",
            lambda problem, word, rank, rng, _: start_state(problem, Start(*factors), rank, rng),
        )
        plain = bayesnmf.fit(counts, "gamma_poisson", RANK, method, seed=0, options=replace(options, start=None))
    assert len(set(groups_of(alone))) < RANK
    assert len(set(groups_of(plain))) == RANK
    assert plain.status.iterations == len(plain.trace) - 1
    if kind is MAP:
        assert np.all(np.diff(plain.trace) >= -1e-9 * np.abs(plain.trace[-1]))
        assert len(plain.residuals) == len(plain.trace)


def groups_of(fit):
    return fit.components.reshape(RANK, RANK, -1).sum(axis=2).argmax(axis=1)


def test_exchanges_of_many_components_take_little():
    """Of the 102,660 exchanges of 60 components those of the 400 likeliest pairs are looked at."""
    rng = np.random.default_rng(0)
    counts = bayesnmf.data.conversion.as_counts(rng.poisson(0.5, (20, 30)))
    problem = flat_problem(counts)
    state = start_state(problem, "random", 60, rng)
    exchanges = Exchanges(problem, state, rng, 1)
    best = exchanges.best(40, np.arange(60))
    assert len(set(best)) == 40
    assert best == sorted(best, reverse=True)
    assert all(each.split not in each.merged for each in best)


def hill(height, made):
    """What climbs one step at a time to a height, and stays there."""

    def climber(problem, state):
        made.append(state)
        at = [0.0]

        def climb(schedule, show):
            trace = [at[0]]
            for _ in range(schedule.max_iter - schedule.done):
                at[0] = min(at[0] + 1.0, height(state))
                trace.append(at[0])
            return Ascent(problem, state, trace, [], Status(False, "all done", schedule.max_iter))

        return climb

    return climber


def flat_state(counts):
    problem = flat_problem(counts)
    return problem, start_state(problem, Start(*poor_factors()), RANK, np.random.default_rng(0))


def restarted(climber, best, max_iter):
    schedule = Schedule(max_iter=max_iter, threads=1)
    rng = np.random.default_rng(0)
    return exchange_components(climber, (None, best), schedule, rng, lambda *_: None, lambda *_: None)


def test_of_the_exchanges_tried_one_that_ends_higher_is_kept_until_none_does():
    problem, state = flat_state(blocks())
    made = []
    best = Ascent(problem, state, [8.0, 9.0], [], Status(True, "settled", 1))
    found = restarted(hill(lambda _: 15.0 if len(made) < 200 else 5.0, made), best, 100)
    assert found.trace[:8] == [8, 9, 10, 11, 12, 13, 14, 15]
    assert found.status.iterations == len(found.trace) - 1
    made.clear()
    assert restarted(hill(lambda _: 5.0, made), best, 1000) is best
    assert restarted(hill(lambda _: 9.05, made), best, 1000) is best  # a gain that could go on for ever
    assert len(made) > 5


@pytest.mark.parametrize("kind", [MAP, VI])
def test_trials_that_begin_again_end_where_those_that_go_on_do(kind, monkeypatch):
    """Of large counts, whose states take much memory, none is held until its turn comes."""
    schedule, priors = Schedule(tol=1e-6, threads=1), Priors(Gamma(1.0, 0.1), Dirichlet(1.0))
    problem = point_or_mean_field(blocks(seed=3), kind(priors=priors))
    monkeypatch.setattr("bayesnmf.inference.starts.exchanging._to_merge", lambda _: ALL)

    def climber(problem, state):
        steps = Extrapolated(plain_steps(schedule))
        return Climb(lambda *given: ascend(*given, steps=steps), problem, state)

    def show(*_):
        pass

    def ended(small):
        monkeypatch.setattr("bayesnmf.inference.starts.states.LITTLE", small)
        rng = np.random.default_rng(0)
        climb = climber(problem, start_state(problem, Start(*poor_factors(tilt=1.5)), RANK, rng))
        begun = climb(schedule, show)
        return begun, exchange_components(climber, (climb, begun), schedule, rng, show, show)

    (begun, again), (_, on) = ended(0), ended(4e5)
    assert on.trace[-1] > begun.trace[-1] + 10
    assert again.trace == on.trace


def test_nothing_is_tried_on_large_counts_where_every_component_carries_something(monkeypatch):
    """Each of the three components is a group of its own."""
    monkeypatch.setattr("bayesnmf.inference.starts.states.LITTLE", 0)
    problem = flat_problem(blocks())
    factors = poor_factors()
    start = Start(factors[0][:, 1:], factors[1][1:])
    state = start_state(problem, start, RANK - 1, np.random.default_rng(0))
    best, made = Ascent(problem, state, [8.0, 9.0], [], Status(True, "settled", 1)), []
    assert restarted(hill(lambda _: 15.0, made), best, 100) is best
    assert not made


def test_ctrl_c_among_exchanges_keeps_the_best_so_far():
    problem, state = flat_state(blocks())
    best = Ascent(problem, state, [8.0, 9.0], [], Status(True, "settled", 1))

    def climber(problem, state):
        return lambda schedule, show: Ascent(problem, state, [99.0], [], Status(False, INTERRUPTED, 0))

    found = restarted(climber, best, 100)
    assert found.trace == [8, 9]
    assert (found.status.converged, found.status.reason) == (False, INTERRUPTED)


@pytest.mark.parametrize(
    "counts",
    mostly_long([pytest.param([[0, 0, 0], [0, 7, 0]], id="one"), pytest.param(np.zeros((3, 4)), id="zero"),
                 pytest.param(np.eye(4), id="eye")], 1),
)  # fmt: skip
def test_counts_with_nothing_to_exchange_are_fitted(counts):
    for method, kind in (("map", MAP), ("vi", VI)):
        fit = bayesnmf.fit(counts, rank=3, method=method, seed=0, options=kind(tol=1e-4))
        assert np.isfinite(fit.loadings).all()


def test_without_a_tolerance_iterations_are_as_many_as_were_asked_for():
    fit = bayesnmf.fit(plain_counts(), rank=3, method="vi", seed=0, options=VI(tol=0, max_iter=30))
    assert len(fit.trace) == 31
