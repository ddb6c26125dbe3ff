"""The default start is a race: of a few short climbs the highest goes on, as if it had climbed alone."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from plain import plain_vi
from registry import plain_counts
from smallfits import quietly

import bayesnmf
from bayesnmf import MAP, VI, Dirichlet, Gamma, Priors
from bayesnmf.data.conversion import as_counts
from bayesnmf.inference.ascent.coordinate_ascent import Ascent, Schedule, ascend
from bayesnmf.inference.ascent.course import WINDOW
from bayesnmf.inference.starts.contestants import choose_contestants
from bayesnmf.inference.starts.racing import (
    LEAST_STARTS,
    MOST_STARTS,
    continue_climb,
    has_ended,
    length_of_race,
    number_of_starts,
    race,
    work_of,
)
from bayesnmf.inference.status import INTERRUPTED, Status
from bayesnmf.options.defaults import resolve_options

COUNTS = plain_counts(size=(12, 9))
SPARSE = Priors(Gamma(0.3, 0.1), Dirichlet(0.2))
TOPICS = SimpleNamespace(
    drawn=Priors(Dirichlet(0.1), Dirichlet(0.1)),
    fitted=Priors(Dirichlet(0.05), Dirichlet(0.05)),
)


class Climber:
    """Climb from 0 towards a top, a third of the way in each iteration; note where the climbs began."""

    def __init__(self, slope: float, top: float, made: list[float]) -> None:
        self.slope, self.top, self.at = slope, top, 0.0
        made.append(top)

    def __call__(self, schedule: Schedule, show) -> Ascent:
        trace = [self.at]
        for iteration in range(schedule.max_iter - schedule.done):
            self.at += min(self.slope, self.top - self.at)
            trace.append(self.at)
            show(iteration + 1, self.at)
        status = Status(self.at == self.top, "top" if self.at == self.top else "all done", schedule.max_iter)
        return Ascent(None, None, trace, [2 * each for each in trace], status)


def run(slopes_and_tops, length, max_iter):
    made, raced, shown = [], [], []
    starts = [lambda pair=pair: Climber(*pair, made) for pair in slopes_and_tops]
    schedule = Schedule(max_iter=max_iter)
    climb, found = race(starts, length, schedule, lambda *each: raced.append(each))
    if not (found.status.converged or has_ended(found, schedule)):
        found = continue_climb(climb, found, schedule, lambda *each: shown.append(each))
    return found, made, raced, shown


def test_the_start_that_is_ahead_goes_on_and_no_other():
    found, made, raced, shown = run([(1, 50), (3, 30), (2, 90)], length=4, max_iter=9)
    assert made == [50, 30, 90]
    np.testing.assert_array_equal(found.trace, 3.0 * np.arange(10))
    np.testing.assert_array_equal(found.residuals, 6.0 * np.arange(10))
    assert found.status == Status(False, "all done", 9)
    assert [each[:2] for each in raced] == [(done, 12) for done in range(1, 13)]
    assert shown == [(iteration, 3.0 * iteration) for iteration in range(5, 10)]


def test_a_winner_may_converge_in_the_race():
    found, _, _, shown = run([(1, 50), (3, 6)], length=4, max_iter=100)
    assert found.trace == [0, 3, 6, 6, 6]
    assert found.status.converged
    assert not shown


def test_the_race_is_no_longer_than_the_whole_ascent():
    found, _, _, shown = run([(1, 50), (3, 60)], length=50, max_iter=2)
    assert found.trace == [0, 3, 6]
    assert not shown


def test_an_objective_that_is_not_a_number_never_wins():
    found, _, _, _ = run([(float("nan"), 50), (1, 60)], length=3, max_iter=3)
    assert found.trace == [0, 1, 2, 3]


def test_an_interrupt_in_the_race_ends_it_with_the_best_so_far():
    def interrupted(schedule, show):
        return Ascent(None, None, [0.0, 1.0], [], Status(False, INTERRUPTED, 1))

    made = []
    starts = [lambda: Climber(3, 50, made), lambda: interrupted, lambda: Climber(9, 90, made)]
    _, found = race(starts, 4, Schedule(max_iter=20), lambda *_: None)
    assert made == [50]  # the third never began
    assert found.trace == [0, 3, 6, 9, 12]
    assert (found.status.converged, found.status.reason) == (False, INTERRUPTED)


def test_an_interrupt_while_a_start_is_made_keeps_the_best_so_far_or_ends_the_fit():
    def unmade():
        raise KeyboardInterrupt

    made = []
    first = [lambda: Climber(3, 50, made)]
    _, found = race([*first, unmade, *first], 4, Schedule(max_iter=20), lambda *_: None)
    assert made == [50]
    assert (found.trace, found.status.reason) == ([0, 3, 6, 9, 12], INTERRUPTED)
    with pytest.raises(KeyboardInterrupt):
        race([unmade, *first], 4, Schedule(max_iter=20), lambda *_: None)


def test_ctrl_c_while_a_start_is_led_up_to_is_heard(monkeypatch):
    """It was taken for the end of the way there, and the fit went on."""
    ways = []

    def interrupted(*arguments):
        ways.append(arguments)
        ascent = ascend(*arguments)
        return ascent._replace(status=ascent.status._replace(reason=INTERRUPTED)) if len(ways) == 2 else ascent

    monkeypatch.setattr("bayesnmf.inference.starts.from_data.ascend", interrupted)
    with pytest.warns(bayesnmf.ConvergenceWarning, match="interrupted"):
        fit = bayesnmf.fit(COUNTS, rank=3, seed=0, options=VI(priors=SPARSE, start="race"))
    assert len(ways) == 2
    assert fit.status.reason == INTERRUPTED
    assert np.isfinite(fit.trace).all()


@pytest.mark.parametrize("algorithm", ["gradient", "minibatch"])
def test_algorithms_without_a_race_restart_at_random(algorithm):
    """After their own start; a race of them is refused by name."""
    options = VI(algorithm=algorithm, restarts=3, max_iter=5)
    fit = bayesnmf.fit(COUNTS, rank=3, seed=0, options=replace(options, tol=0))
    assert fit.options.start == "svd"
    assert fit.diagnostics["restarts"] == 3
    assert fit.diagnostics["worst_restart"] < fit.trace[-1]
    with pytest.raises(ValueError, match="start='race' needs algorithm='coordinate'"):
        VI(algorithm=algorithm, start="race")


def test_large_counts_have_few_starts_and_a_short_race():
    sizes = [10**power for power in range(3, 11)]
    numbers = [number_of_starts(size) for size in sizes]
    lengths = [length_of_race(size, "em") for size in sizes]
    assert numbers == sorted(numbers, reverse=True)
    assert lengths == sorted(lengths, reverse=True)
    assert (numbers[0], numbers[-1]) == (MOST_STARTS, LEAST_STARTS)
    assert all(length_of_race(size, "scd") < length_of_race(size, "em") for size in sizes)


@pytest.fixture
def few_starts(monkeypatch):
    """Let no more than four starts race."""
    for name in ("MOST_STARTS", "LEAST_STARTS"):
        monkeypatch.setattr(f"bayesnmf.inference.starts.racing.{name}", 4)


@pytest.mark.usefixtures("few_starts")
@pytest.mark.parametrize(("method", "options"), [("map", MAP), ("vi", VI)])
def test_the_race_ends_no_lower_than_its_first_start_alone(method, options):
    """At the length of the race both are the same ascent, and the highest is kept."""
    length = length_of_race(work_of(as_counts(COUNTS), 3), "scd" if method == "map" else "coordinate")
    alone, raced = (
        bayesnmf.fit(COUNTS, rank=3, method=method, seed=1, options=options(start=start, max_iter=length, tol=0))
        for start in ("svd", "race")
    )
    assert raced.trace[-1] >= alone.trace[-1]
    assert len(raced.trace) == length + 1


def test_the_winner_climbs_as_if_it_had_climbed_alone(monkeypatch):
    """An extrapolated ascent in three parts is the same as in one: its steps keep what they have learned.

    Of two components, none are exchanged.
    """
    monkeypatch.setattr("bayesnmf.inference.starts.racing.MOST_STARTS", 1)
    monkeypatch.setattr("bayesnmf.inference.starts.racing.LEAST_STARTS", 1)
    monkeypatch.setattr("bayesnmf.inference.starts.racing.MOST_STEPS", 50)
    for algorithm in ("em", "scd"):
        raced, alone = (
            bayesnmf.fit(COUNTS, rank=2, method="map", seed=2, options=MAP(start=start, algorithm=algorithm, tol=1e-9))
            for start in ("race", "svd")
        )
        assert len(alone.trace) > 50 / (5 if algorithm == "scd" else 1)  # it went on after the race
        np.testing.assert_array_equal(raced.trace[: len(alone.trace)], alone.trace)
        assert len(raced.trace) <= len(alone.trace) + WINDOW  # it settles once more


@pytest.mark.usefixtures("few_starts")
def test_restarts_after_a_race_are_random():
    whole = bayesnmf.fit(COUNTS, rank=3, method="map", seed=4, options=MAP(restarts=4))
    ends = [bayesnmf.fit(COUNTS, rank=3, method="map", seed=4, options=MAP()).trace[-1]]
    assert whole.diagnostics["restarts"] == 4
    assert whole.trace[-1] >= ends[0]
    assert whole.options.start == "race"


def test_sparse_priors_are_led_up_to():
    """From poor loadings rows keep to poor components: contestants fit without priors, or settle rows, before."""
    flat, sparse = Priors(Gamma(1.0, 0.1), Dirichlet(1.0)), Priors(Gamma(0.3, 0.1), Dirichlet(0.2))
    assert [each.word for each in choose_contestants(flat, 3, mean_field=True)] == ["svd", "random", "random"]
    assert not any(each.flat or each.explored or each.settled for each in choose_contestants(flat, 9, mean_field=True))
    led = choose_contestants(sparse, 16, mean_field=True)
    assert led[0] == ("svd", 0, False, 0)  # the quickest is first
    assert sum(each.explored for each in led) == 1
    assert {each.flat for each in led} == {0, 5, 20, 50}
    assert {each.settled for each in led} == {0, 15, 100}
    modes = choose_contestants(sparse, 16, mean_field=False)
    assert not any(each.settled for each in modes)  # what settles is a mean field
    assert all(len(choose_contestants(sparse, number, mean_field=True)) == number for number in range(3, 17))


def heights_of_topics(counts, rank, options, seeds):
    """The bounds at which LDA ends from each of some seeds."""
    fits = (bayesnmf.fit(counts, "dirichlet_poisson", rank, "vi", seed=seed, options=options) for seed in seeds)
    return [fit.trace[-1] for fit in fits]


def test_sparse_priors_end_higher_than_from_random_starts():
    """By 50 to 150 nats, on 40 rows of 60 counts."""
    drawn = bayesnmf.simulate("dirichlet_poisson", (40, 16), 3, priors=TOPICS.drawn, totals=60, seed=0)
    [ours] = heights_of_topics(drawn.counts, 3, VI(priors=TOPICS.fitted), [0])
    assert ours > max(heights_of_topics(drawn.counts, 3, plain_vi(priors=TOPICS.fitted), range(3))) + 20


@pytest.mark.long
def test_sparse_priors_end_higher_than_from_a_random_start_on_digits():
    """On 300 digits, LDA with concentrations of 1/20: by 2,500 nats of the 17,000 gained over one component."""
    from bayesnmf.datasets import digits

    counts = digits().rows(slice(300))
    [ours] = heights_of_topics(counts, 10, VI(priors=TOPICS.fitted), [0])
    [random] = heights_of_topics(counts, 10, plain_vi(priors=TOPICS.fitted), [0])
    assert ours > random + 1000


# --- what is chosen for a call ---------------------------------------------------------------------

CHOSEN = [
    ("map", MAP(), ("race", "scd", True)),
    ("vi", VI(priors=SPARSE, algorithm="minibatch"), ("descent", "minibatch", False)),
    ("map", MAP(schedule="joint"), ("race", "em", True)),
    ("map", MAP(basis="log"), ("race", "em", True)),
    ("map", MAP(priors=SPARSE), ("race", "em", True)),
    ("map", MAP(priors=Priors(loadings=Gamma(2.0, 0.1))), ("race", "em", True)),
    ("map", MAP(algorithm="em", extrapolate=False, start="svd"), ("svd", "em", False)),
    ("vi", VI(), ("race", "coordinate", True)),
    ("vi", VI(priors=SPARSE), ("descent", "coordinate", True)),
    ("vi", VI(algorithm="gradient"), ("svd", "gradient", False)),
    ("vi", VI(algorithm="minibatch"), ("svd", "minibatch", False)),
    ("vi", VI(start="random", extrapolate=False), ("random", "coordinate", False)),
]


@pytest.mark.parametrize("options", [MAP, VI])
def test_on_a_gpu_nothing_races(options):
    """Every climb of a race would copy the counts there."""
    flat, sparse = (Priors(Gamma(shape, 0.1), Dirichlet(1.0)) for shape in (1.0, 0.3))
    assert resolve_options(options(device="gpu", priors=flat)).start == "svd"
    assert resolve_options(options(device="gpu", priors=sparse)).start == "descent"


@quietly  # so few iterations do not converge
@pytest.mark.parametrize(("method", "options", "chosen"), CHOSEN)
def test_options_left_out_are_resolved_and_shown(method, options, chosen):
    given = bayesnmf.fit(COUNTS, rank=2, method=method, seed=0, options=replace(options, max_iter=2)).options
    assert (given.start, given.algorithm, given.extrapolate) == chosen
    assert given.tol == {"minibatch": 1e-4, "scd": 1e-9}.get(given.algorithm, 1e-7)
