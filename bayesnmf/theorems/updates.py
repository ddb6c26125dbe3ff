"""Statements 2, 3, 4, 5, 7 and 8: equal sequences of iterates, and their consequences for the bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array, vstack

from bayesnmf.data.counts import Counts
from bayesnmf.fitting.closed_form import schedule_of
from bayesnmf.fitting.problems import point_or_mean_field, start_state
from bayesnmf.inference.ascent.coordinate_ascent import evaluate_state, next_iterate, plain_steps, update_side
from bayesnmf.inference.sides import allocate
from bayesnmf.options import MAP, VI, Start
from bayesnmf.priors import Dirichlet, Gamma, Priors
from bayesnmf.priors.specification import PARAMETER
from bayesnmf.results.topic_model import topic_model_of
from bayesnmf.theorems import explicit
from bayesnmf.theorems.study import Study, joined_notes, plain_map, plain_vi, rounding_of_bound, rounding_of_step
from bayesnmf.theorems.table import Claim, Row, Worst
from bayesnmf.types import Array

Pair = tuple[Array, Array]
NUDGE = 1e-9  # relative change of a start, to measure how small differences grow


class Point(NamedTuple):
    """One iterate: loadings or the concentrations of their q (n, K), components (K, m), objective in nats."""

    loadings: Array
    components: Array
    value: float


def package_route(counts: Counts, options: MAP | VI, start: Any, rank: int) -> Iterator[Point]:
    """Yield the start and every iterate of a fit with these options, without end."""
    problem = point_or_mean_field(counts, options)
    schedule = schedule_of(options)
    state = start_state(problem, Start(*start), rank, np.random.default_rng(0))
    here = evaluate_state(problem, state, None)
    while True:
        q: Any = here.state.loadings.conditional
        loadings = here.state.loadings.matrix if q is None else getattr(q, "shape", getattr(q, "concentration", None))
        yield Point(np.asarray(loadings), here.state.components.matrix, here.value)
        here = next_iterate(here, plain_steps(schedule), None, None)


def explicit_route(step: Callable[..., Pair], matrix: Any, start: Pair) -> Iterator[Point]:
    """Yield the start and every iterate of an explicit update, without end."""
    here = start
    while True:
        yield Point(*here, np.nan)
        here = step(matrix, *here)


class Comparison(NamedTuple):
    """Comparison of two computations from one start.

    Attributes
    ----------
    loadings, components : Worst
        Entries that differ most, over all iterates.
    objectives : ndarray (iterations + 1, 2)
        Objectives of both computations; NaN for an explicit one.
    tolerance : float
        Tolerance for entries, relative to the sum of their row.
    growth : float
        Factor by which the sequence magnified a small change of its start.
    """

    loadings: Worst
    components: Worst
    objectives: Array
    tolerance: float
    growth: float


def compare_routes(
    study: Study, left: Iterator[Point], right: Callable[[Pair], Iterator[Point]], start: Pair
) -> Comparison:
    """Run `left` and `right(start)`, which should have equal iterates, in parallel for `study.iterations` updates.

    The right one is also run from a start in which every entry is changed by 1e-9, to measure how much the sequence
    magnifies rounding errors. The tolerance is this growth times the rounding error of one update times their number.
    """
    rng = study.rng("nudge")
    first, second = (side * (1 + NUDGE * rng.choice([-1.0, 1.0], side.shape)) for side in start)
    routes = zip(left, right(start), right((first, second)), strict=False)
    sides, drift = (Worst(), Worst()), (Worst(), Worst())
    objectives = np.empty((study.iterations + 1, 2))
    for at, (one, other, beside) in enumerate(islice(routes, study.iterations + 1)):
        objectives[at] = one.value, other.value
        for side, expected in enumerate((other.loadings, other.components)):
            sides[side].compare((one.loadings, one.components)[side], expected)
            drift[side].compare((beside.loadings, beside.components)[side], expected)
    growth = max(1.0, *(each.relative / NUDGE for each in drift))
    step = rounding_of_step(study.counts, study.rank)
    return Comparison(*sides, objectives, max(study.iterations, 1) * growth * step, growth)


FLAT, EVEN = Gamma(1.0, 0.0), Dirichlet(1.0)
PENALTY = 0.5  # τ of the lasso
PSEUDO_COUNT = 0.5  # c − 1 of the Gamma prior of [C] 19


def random_start(study: Study) -> Pair:
    """Return shares of the components in each sample (n, K) and components (K, m), rows inside the simplex."""
    rng = study.rng("start")
    n, m = study.counts.shape
    components = rng.gamma(1.0, size=(study.rank, m)) + 0.1
    return rng.dirichlet(np.full(study.rank, 3.0), n), components / components.sum(axis=1, keepdims=True)


def unscaled_start(study: Study) -> Pair:
    """Return loadings and components with arbitrary sums."""
    shares, components = random_start(study)
    sums = study.rng("sums").uniform(0.5, 2.0, (study.rank, 1))
    return np.maximum(study.counts.row_totals, 1.0)[:, None] * shares, sums * components


def _normalised(pair: Pair) -> Pair:
    loadings, components = (side / side.sum(axis=1, keepdims=True) for side in pair)
    return loadings, components


def _store_trace(study: Study, label: str, objectives: Array) -> None:
    """Store a trace for the statement on monotone runs."""
    study.traces.append((label, objectives, rounding_of_bound(study.counts, study.rank)))


def _compare_factors(
    study: Study, number: int, what: tuple[str, str], source: str, found: Comparison, more: str = ""
) -> Iterator[Row]:
    """Compare the loadings and the components of two sequences."""
    note = joined_notes(more, f"{study.iterations} iterates; small differences grow {found.growth:,.1f}-fold")
    for statement, worst in zip(what, (found.loadings, found.components), strict=True):
        yield worst.judge(Claim(number, statement, source), found.tolerance, note)


# --- [GP]: joint updates, PLSA and the lasso --------------------------------------------------------


def joint_and_plsa(study: Study) -> Iterator[Row]:
    """Check [GP] lemma B.1: joint updates are PLSA."""
    totals = study.counts.row_totals[:, None]
    start = random_start(study)
    joint = plain_map(priors=Priors(FLAT, PARAMETER))
    plsa = plain_map(priors=Priors(EVEN, PARAMETER))
    sums = Worst()

    def left() -> Iterator[Point]:
        for point in package_route(study.counts, joint, (totals * start[0], start[1]), study.rank):
            sums.compare(point.loadings.sum(axis=1, keepdims=True), totals)
            yield point

    def right(pair: Pair) -> Iterator[Point]:
        for point in package_route(study.counts, plsa, _normalised(pair), study.rank):
            yield point._replace(loadings=totals * point.loadings)

    found = compare_routes(study, left(), right, start)
    _store_trace(study, "joint updates", found.objectives[:, 0])
    _store_trace(study, "PLSA", found.objectives[:, 1])
    source = "[GP] lemma B.1"
    what = ("joint updates: θ = Nᵢ θ of PLSA", "joint updates: β of PLSA")
    yield from _compare_factors(study, 2, what, source, found)
    claim = Claim(2, "joint updates: Σₖ θᵢₖ = Nᵢ", source)
    yield sums.judge(claim, rounding_of_step(study.counts, study.rank), f"{study.iterations} iterates")


def lasso(study: Study) -> Iterator[Row]:
    """Check [GP] lemma 6.1 and 24-25: the lasso only rescales the loadings."""
    totals = study.counts.row_totals[:, None]
    shares, components = random_start(study)
    start = (totals * shares, components)
    options = plain_map(priors=Priors(Gamma(1.0, PENALTY), PARAMETER))
    left = package_route(study.counts, options, (start[0] / (1 + PENALTY), components), study.rank)

    def right(pair: Pair) -> Iterator[Point]:
        for point in explicit_route(explicit.joint_step, study.counts.matrix, pair):
            yield point._replace(loadings=point.loadings / (1 + PENALTY))

    found = compare_routes(study, left, right, start)
    _store_trace(study, "lasso", found.objectives[:, 0])
    what = (f"lasso, τ = {PENALTY:g}: θ = θ without penalty / (1+τ)", "lasso: β = β without penalty")
    yield from _compare_factors(study, 5, what, "[GP] lemma 6.1", found)


# --- [GP]: two variational algorithms ---------------------------------------------------------------


def two_bounds(study: Study) -> Iterator[Row]:
    """Check [GP] lemma E.3, and that both bounds differ by a constant of the data ([GP] 34)."""
    totals, rate = study.counts.row_totals, study.rank / study.mean_total
    alpha = np.linspace(0.5, 1.5, study.rank)
    shares, components = random_start(study)
    start = (alpha + totals[:, None] * shares, components)
    gamma = plain_vi(priors=Priors(Gamma(alpha, rate), PARAMETER))
    dirichlet = plain_vi(priors=Priors(Dirichlet(alpha), PARAMETER))
    sums = Worst()

    def left() -> Iterator[Point]:
        for point in package_route(study.counts, gamma, (Gamma(start[0], 1 + rate), components), study.rank):
            sums.compare(point.loadings.sum(axis=1, keepdims=True), (alpha.sum() + totals)[:, None])
            yield point

    def right(pair: Pair) -> Iterator[Point]:
        given = (Dirichlet(pair[0]), pair[1] / pair[1].sum(axis=1, keepdims=True))
        return package_route(study.counts, dirichlet, given, study.rank)

    found = compare_routes(study, left(), right, start)
    _store_trace(study, "vi gamma_poisson", found.objectives[:, 0])
    _store_trace(study, "vi dirichlet_poisson", found.objectives[:, 1])
    source = "[GP] lemma E.3"
    what = ("VI: γ of Gamma–Poisson = γ of Dirichlet–Poisson", "VI: β of Gamma–Poisson = β of Dirichlet–Poisson")
    yield from _compare_factors(study, 3, what, source, found)
    claim = Claim(3, "VI of Gamma–Poisson: Σₖ γᵢₖ = Σα + Nᵢ", source)
    yield sums.judge(claim, rounding_of_step(study.counts, study.rank), f"{study.iterations} iterates")
    yield _constant(study, found.objectives[1:], float(alpha.sum()), rate)


def _constant(study: Study, objectives: Array, alpha: float, rate: float) -> Row:
    totals = study.counts.row_totals
    given = explicit.poisson_logpmf(totals, np.ones(len(totals)))
    constant = float((explicit.log_negative_binomial(totals, alpha, rate) - given).sum())
    differences = objectives[:, 0] - objectives[:, 1]
    farthest = differences[np.argmax(np.abs(differences - constant))]
    claim = Claim(4, "ELBO Gamma–Poisson − ELBO Dirichlet–Poisson = Σ log NB(Nᵢ) − log Poisson(Nᵢ; 1)", "[GP] 34")
    note = f"{len(objectives)} iterates, over which both rise by {np.ptp(objectives[:, 0]):,.1f} nats"
    return claim.equal(farthest, constant, 2 * rounding_of_bound(study.counts, study.rank), note)


# --- [P] and [C]: multiplicative updates and EM ------------------------------------------------------


def multiplicative_updates(study: Study) -> Iterator[Row]:
    """Check that the updates of Lee and Seung are EM ([P] 3-4, [C] 27-28)."""
    start = unscaled_start(study)
    options = plain_map(priors=Priors(FLAT, FLAT), schedule="alternating")
    left = package_route(study.counts, options, start, study.rank)

    def right(pair: Pair) -> Iterator[Point]:
        return explicit_route(explicit.lee_seung, study.counts.matrix, pair)

    found = compare_routes(study, left, right, start)
    _store_trace(study, "alternating updates", found.objectives[:, 0])
    what = ("EM: θ of multiplicative updates", "EM: β of multiplicative updates")
    yield from _compare_factors(study, 7, what, "[P] 3-4, [C] 27-28", found)


def without_expectations(study: Study) -> Iterator[Row]:
    """Check that an update of VI from a q of large concentration c is one of EM up to O(1/c) ([P])."""
    claim = Claim(7, "VI without expectations is EM: gap at concentration c / gap at 10 c = 10", "[P]")
    if study.rank == 1:
        yield claim.not_computed("needs two components: a single one takes all counts in any case")
        return
    shares, components = random_start(study)
    loadings = np.maximum(study.counts.row_totals, 1.0)[:, None] * shares
    least = min(loadings.min(), components.min())
    gaps = [_gap_to_em(study, (loadings, components), c / least) for c in (1e4, 1e5)]
    # ψ(x) = log x − 1/(2x) − 1/(12x²) …: at x ≥ 1e4 the remainder is 1e-4 of the leading term, in several places
    rounded = rounding_of_step(study.counts, study.rank) / gaps[1]
    yield claim.equal(gaps[0] / gaps[1], 10.0, 10 * (1e-3 + rounded), f"gaps {gaps[0]:.2g} and {gaps[1]:.2g}")


def _gap_to_em(study: Study, start: Pair, concentration: float) -> float:
    """Return the largest difference, relative to its row, between an update of VI and one of EM in the log basis."""
    (loadings, components), a, b, eta = start, 0.7, 0.4, 0.6
    R = explicit.ratios(study.counts.matrix, loadings, components)
    received = eta + components * (R.T @ loadings).T
    options = plain_vi(priors=Priors(Gamma(a, b), Dirichlet(eta)))
    q = (Gamma(concentration * loadings, concentration), Dirichlet(concentration * components))
    _, point = islice(package_route(study.counts, options, q, study.rank), 2)
    worst = Worst()
    worst.compare(point.loadings / (b + 1), (a + loadings * (R @ components.T)) / (b + 1))
    worst.compare(point.components, received / received.sum(axis=1, keepdims=True))
    return worst.relative


def topic_model(study: Study) -> Iterator[Row]:
    """Check that EM of the multinomial topic model is a joint update, mapped ([C] 45-49)."""
    start = unscaled_start(study)
    some = (study.counts.row_totals > 0)[:, None]  # an empty sample does not determine its proportions
    mapped = topic_model_of(*start)

    def left() -> Iterator[Point]:
        options = plain_map(priors=Priors(FLAT, FLAT))
        for point in package_route(study.counts, options, start, study.rank):
            model = topic_model_of(point.loadings, point.components)
            yield Point(some * model.proportions, model.components, point.value)

    def right(pair: Pair) -> Iterator[Point]:
        for point in explicit_route(explicit.topic_step, study.counts.matrix, pair):
            yield point._replace(loadings=some * point.loadings)

    found = compare_routes(study, left(), right, (mapped.proportions, mapped.components))
    _store_trace(study, "joint updates, free sums", found.objectives[:, 0])
    what = ("EM of the topic model: L of joint updates, mapped", "EM of the topic model: F of joint updates, mapped")
    yield from _compare_factors(study, 8, what, "[C] 45-49", found)


def half_steps(study: Study) -> Iterator[Row]:
    """Check that each half of an alternating update, mapped, changes its own side as EM does ([C])."""
    start = unscaled_start(study)
    some = (study.counts.row_totals > 0)[:, None]
    before = topic_model_of(*start)
    proportions, components = explicit.topic_step(study.counts.matrix, before.proportions, before.components)
    problem = point_or_mean_field(study.counts, plain_map(priors=Priors(FLAT, FLAT)))
    state = start_state(problem, Start(*start), study.rank, np.random.default_rng(0))
    totals = allocate(problem, state, None)
    moved = (update_side(problem, state, side, totals) for side in ("loadings", "components"))
    first, second = (topic_model_of(each.loadings.matrix, each.components.matrix) for each in moved)
    tilted = before.proportions * second.sums / before.sums
    worst = Worst()
    for found, expected in (
        (some * first.proportions, some * proportions),
        (first.components, before.components),
        (second.components, components),
        (second.proportions, tilted / tilted.sum(axis=1, keepdims=True)),
    ):
        worst.compare(found, expected)
    claim = Claim(8, "each half of an alternating update, mapped, is half a step of EM", "[C]")
    yield worst.judge(claim, 2 * rounding_of_step(study.counts, study.rank), "one update from a random start")


def pseudo_samples(study: Study) -> Iterator[Row]:
    """Check: MAP with Gamma(c, d) components is MLE of [X; c − 1] with [θ; diag(d)] and fixed last rows ([C] 19-20)."""
    start, rank, m = unscaled_start(study), study.rank, study.counts.shape[1]
    held = np.diag(np.linspace(0.5, 2.0, rank))
    data: Any = csr_array(vstack([study.counts.matrix, csr_array(np.full((rank, m), PSEUDO_COUNT))]))
    options = plain_map(
        priors=Priors(FLAT, Gamma(1 + PSEUDO_COUNT, held.sum(axis=1, keepdims=True))), schedule="alternating"
    )
    left = package_route(study.counts, options, start, rank)

    def step(matrix: Any, loadings: Array, components: Array) -> Pair:
        sums = components.sum(axis=1)[None, :]
        R = explicit.ratios(study.counts.matrix, loadings, components)
        stacked = np.vstack([explicit.quotients(loadings * (R @ components.T), sums, loadings), held])
        R = explicit.ratios(matrix, stacked, components)
        return stacked[:-rank], components * (R.T @ stacked).T / stacked.sum(axis=0)[:, None]

    found = compare_routes(study, left, lambda pair: explicit_route(step, data, pair), start)
    _store_trace(study, "MAP with Gamma components", found.objectives[:, 0])
    what = ("MAP: θ of MLE with pseudo-samples", "MAP: β of MLE with pseudo-samples")
    yield from _compare_factors(study, 8, what, "[C] 19-20", found, f"Gamma({1 + PSEUDO_COUNT:g}, d) components")
