"""The loop of coordinate ascent compiled as a whole, in JAX: many iterations a call, nothing to the host between them.

This file is the one exception to two rules: it states the priors, the updates and the loop a second time, and it is
longer than others. It is kept, apart from what a fit runs (`placing`), until both have been measured side by side on a
GPU (``python -m benchmarks.gpu``): if one number an iteration costs the host's loop little, this file goes.

A side is one or two parts: loadings or components (one), or proportions and their scale (two). Each part has a Gamma or
a Dirichlet conditional; tests hold their formulas equal to the priors' own. Factors and the parameters of conditionals
have the dtype of the counts; logarithms, penalties and objectives are float64.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma, gammaln, xlogy
from scipy.sparse import csr_array

from bayesnmf.inference.ascent.coordinate_ascent import Ascent, Schedule
from bayesnmf.inference.ascent.extrapolation import CUT, GROWTH, LIMIT, START
from bayesnmf.inference.device.checks import check_no_exposures
from bayesnmf.inference.side import Side as HostSide
from bayesnmf.inference.sides import Problem, State
from bayesnmf.inference.status import INTERRUPTED, NOT_A_NUMBER, Status
from bayesnmf.inference.strides import next_length
from bayesnmf.inference.summaries import MeanField
from bayesnmf.kernels.cpu.allocation import Sides, Totals
from bayesnmf.kernels.gpu.allocation import Cells, expected_allocations, place_cells
from bayesnmf.priors import Dirichlet, ScaledDirichlet, ScaledProportions

FLOAT = jnp.float64


class GammaPart(NamedTuple):
    """Gamma(shape, rate), elementwise (`bayesnmf.priors.Gamma`)."""

    shape: Any
    rate: Any

    def conditional(self, total: Any, exposure: Any) -> GammaPart:
        """Gamma(shape + total, rate + exposure)."""
        return GammaPart(self.shape.astype(total.dtype) + total, self.rate.astype(total.dtype) + exposure)

    def mode(self, total: Any, exposure: Any, previous: Any) -> Any:
        """(shape − 1 + total) / (rate + exposure), or `previous` at a rate of 0."""
        rate = self.rate.astype(total.dtype) + exposure
        return jnp.where(rate > 0, _peak(self.shape, total) / jnp.where(rate > 0, rate, 1), previous)

    def imbalance(self, value: Any, total: Any, exposure: Any, less: float) -> Any:
        """Value × (rate + exposure) − (shape − less + total), in counts."""
        return value * (self.rate + exposure) - (_peak(self.shape, total) + (1 - less))

    def mean(self) -> Any:
        """Expectation."""
        return self.shape / self.rate

    def expected_log(self) -> Any:
        """E log."""
        return digamma(self.shape.astype(FLOAT)) - jnp.log(self.rate.astype(FLOAT))

    def log_normaliser(self, size: tuple[int, ...]) -> Any:
        """Σ a log b − logΓ(a) over a factor of the given size."""
        shape, rate = self.shape.astype(FLOAT), self.rate.astype(FLOAT)
        terms = xlogy(shape, jnp.where(rate == 0, 1, rate)) - gammaln(shape)
        return terms.sum() * (np.prod(size) / terms.size)

    def log_density(self, value: Any) -> Any:
        """Sum of log densities."""
        value = value.astype(FLOAT)
        return (xlogy(self.shape - 1, value) - self.rate * value).sum() + self.log_normaliser(value.shape)

    def kl(self, prior: GammaPart, expected_log: Any) -> Any:
        """KL(self ‖ prior), summed."""
        shape, mean = self.shape.astype(FLOAT), self.shape.astype(FLOAT) / self.rate.astype(FLOAT)
        tilt = (shape - prior.shape) * expected_log - shape + prior.rate * mean
        return tilt.sum() + self.log_normaliser(tilt.shape) - prior.log_normaliser(tilt.shape)


class DirichletPart(NamedTuple):
    """Dirichlet(concentration) over the last axis (`bayesnmf.priors.Dirichlet`)."""

    concentration: Any

    def conditional(self, total: Any, exposure: Any) -> DirichletPart:
        """Dirichlet(concentration + total)."""
        return DirichletPart(self.concentration.astype(total.dtype) + total)

    def mode(self, total: Any, exposure: Any, previous: Any) -> Any:
        """∝ concentration − 1 + total, or `previous` in rows where that is 0."""
        peak = _peak(self.concentration, total)
        sums = _row_sums(peak)
        return jnp.where(sums > 0, peak / jnp.where(sums > 0, sums, 1), previous)

    def imbalance(self, value: Any, total: Any, exposure: Any, less: float) -> Any:
        """Value × Σ(α − less + total) − (α − less + total), in counts."""
        peak = _peak(self.concentration, total) + (1 - less)
        return value * _row_sums(peak) - peak

    def mean(self) -> Any:
        """Expectation."""
        return self.concentration / _row_sums(self.concentration)

    def expected_log(self) -> Any:
        """E log."""
        alpha = self.concentration.astype(FLOAT)
        return digamma(alpha) - digamma(alpha.sum(axis=-1, keepdims=True))

    def log_normaliser(self, size: tuple[int, ...]) -> Any:
        """Σ over rows of logΓ(Σα) − Σ logΓ(α)."""
        alpha = self.concentration.astype(FLOAT)
        rows = jnp.broadcast_to(alpha, (*(alpha.shape[:-1] or (1,)), size[-1]))
        terms = gammaln(rows.sum(axis=-1)) - gammaln(rows).sum(axis=-1)
        return terms.sum() * (np.prod(size[:-1]) / terms.size)

    def log_density(self, value: Any) -> Any:
        """Sum of log densities."""
        return xlogy(self.concentration - 1, value.astype(FLOAT)).sum() + self.log_normaliser(value.shape)

    def kl(self, prior: DirichletPart, expected_log: Any) -> Any:
        """KL(self ‖ prior), summed."""
        tilt = (self.concentration.astype(FLOAT) - prior.concentration) * expected_log
        return tilt.sum() + self.log_normaliser(tilt.shape) - prior.log_normaliser(tilt.shape)


Parts = tuple[Any, ...]


def _peak(shape: Any, total: Any) -> Any:
    """Shape − 1 + total, exact where the total is far below 1."""
    return (shape - 1).astype(total.dtype) + total


def _row_sums(values: Any) -> Any:
    """Sums over the last axis, (…, 1), added up in float64."""
    return values.sum(axis=-1, keepdims=True, dtype=FLOAT).astype(values.dtype)


def parts_of(distribution: Any, dtype: Any = np.float64) -> Parts:
    """Return the parts of a prior or a conditional of the host's, as arrays of the given type."""
    arrays = {name: np.asarray(value, dtype) for name, value in vars(distribution).items()}
    if isinstance(distribution, Dirichlet):
        return (DirichletPart(**arrays),)
    if isinstance(distribution, ScaledDirichlet):
        return (DirichletPart(arrays.pop("concentration")), GammaPart(**arrays))
    return (GammaPart(**arrays),)


class Kind(NamedTuple):
    """How a side is carried (`summaries.Mode`, `summaries.MeanField`): part of what is compiled."""

    carried: Literal["natural", "log", "mean field"]
    estimated: bool = False
    component_axis: int = 1


class Side(NamedTuple):
    """`side.Side` with its value in parts; `conditional` is empty for modes."""

    value: Parts
    geometric: Any
    log_shift: Any
    penalty: Any
    conditional: Parts

    @property
    def matrix(self) -> Any:
        """The value as one matrix."""
        return self.value[0] * self.value[1] if len(self.value) == 2 else self.value[0]


def carry(kind: Kind, prior: Parts, total: Any, exposure: Any, previous: Side) -> Side:
    """Carry the conditional of `prior` given a total and an exposure."""
    received = _per_part(prior, total, exposure)
    if kind.carried == "natural":
        return at(kind, prior, tuple(p.mode(*r, v) for p, r, v in zip(prior, received, previous.value, strict=True)))
    conditional = tuple(p.conditional(*r) for p, r in zip(prior, received, strict=True))
    if kind.carried == "log":
        return at(kind, prior, tuple(part.mean() for part in conditional))
    return of(kind, prior, conditional)


def _per_part(prior: Parts, total: Any, exposure: Any) -> list[tuple[Any, Any]]:
    """Total and exposure of each part: a scale receives the whole row, at an exposure of 1."""
    scale = (_row_sums(total), jnp.ones((1, 1), total.dtype))
    return [(total, exposure), scale][: len(prior)]


def at(kind: Kind, prior: Parts, value: Parts) -> Side:
    """Carry a given value, as `summaries.Mode` does."""
    penalty = jnp.zeros((), FLOAT)
    if not kind.estimated:
        penalty = sum((p.log_density(v) for p, v in zip(prior, value, strict=True)), penalty)
    if kind.carried == "log":
        jacobian = sum(jnp.log(v.astype(FLOAT)).sum() for v in value)
        penalty = jnp.where(jnp.isfinite(jacobian), penalty + jacobian, -jnp.inf)
    shift = jnp.log(value[1].astype(FLOAT)) if len(value) == 2 else None
    return Side(value, value[0], shift, penalty, ())


def of(kind: Kind, prior: Parts, conditional: Parts) -> Side:
    """Carry a given mean field, as `summaries.MeanField` does."""
    logs = [part.expected_log() for part in conditional]
    kl = sum(q.kl(p, log) for q, p, log in zip(conditional, prior, logs, strict=True))
    expected_log = sum(logs[1:], logs[0])
    shift = expected_log.max(axis=kind.component_axis, keepdims=True)
    value = tuple(part.mean() for part in conditional)
    return Side(value, jnp.exp(expected_log - shift).astype(value[0].dtype), shift, -kl, conditional)


def given(kind: Kind, prior: Parts, parameters: Parts) -> Side:
    """Carry a side that is stated by `parameters_of`."""
    return of(kind, prior, parameters) if kind.carried == "mean field" else at(kind, prior, parameters)


def parameters_of(side: Side) -> Parts:
    """Return what states a side: the parts of its mean field, or of its value."""
    return side.conditional or side.value


def on_the_simplex(prior: Parts, parameters: Parts) -> Parts:
    """Normalise a mode whose rows must sum to 1; leave everything else as it is."""
    if isinstance(parameters[0], DirichletPart | GammaPart) or not isinstance(prior[0], DirichletPart):
        return parameters
    return (parameters[0] / _row_sums(parameters[0]), *parameters[1:])


def from_host(side: HostSide, dtype: Any) -> Parts:
    """Return what states a side of the host's, as arrays of the given type."""
    if side.conditional is not None:
        return parts_of(side.conditional, dtype)
    value = side.value if isinstance(side.value, ScaledProportions) else (side.value,)
    return tuple(np.asarray(each, dtype) for each in value)


def to_host(summary: Any, prior: Any, parameters: Parts) -> HostSide:
    """Carry, on the host, a side that is stated by parameters on the device."""
    arrays = [np.array(each) for each in jax.tree.leaves(parameters)]
    if isinstance(summary, MeanField):
        return summary.of(prior, type(prior)(*arrays))
    value: Any = ScaledProportions(*arrays) if len(arrays) == 2 else arrays[0]
    return summary.at(prior, value)


Pair = tuple[Side, Side]
Stated = tuple[Parts, Parts]  # both sides by their parameters, which is what a loop carries


class Data(NamedTuple):
    """What an ascent is given, on the device: counts and their constants, priors, tolerances."""

    cells: Cells
    priors: tuple[Parts, Parts]
    margins: tuple[Any, Any]
    log_factorial: Any
    tol: Any
    kkt_tol: Any


class Plan(NamedTuple):
    """What is compiled: how sides are carried, and the schedule."""

    kinds: tuple[Kind, Kind]
    first: int
    alternating: bool
    sweeps: int
    window: int
    extrapolate: bool
    residuals: bool


def plan_of(problem: Problem, schedule: Schedule, extrapolate: bool) -> Plan:
    """Return what is compiled for a problem and a schedule."""
    summaries: tuple[Any, Any] = (problem.loadings_summary, problem.components_summary)
    kinds = tuple(
        Kind("mean field", component_axis=each.component_axis)
        if isinstance(each, MeanField)
        else Kind(each.basis, each.estimated)
        for each in summaries
    )
    return Plan(
        kinds,  # type: ignore[arg-type]
        first=0 if schedule.order == "loadings" else 1,
        alternating=schedule.kind == "alternating",
        sweeps=schedule.sweeps,
        window=schedule.window,
        extrapolate=extrapolate,
        residuals=schedule.kkt_tol is not None,
    )


def data_of(device: Any, problem: Problem, state: State, schedule: Schedule) -> Data:
    """Put the counts, the priors and the tolerances on the device."""
    check_no_exposures(problem.counts)
    counts = problem.counts
    rank = state.components.geometric.shape[0]
    numbers = (
        (parts_of(problem.loadings_prior), parts_of(problem.components_prior)),
        (counts.row_totals, counts.feature_totals),
        *(np.float64(each) for each in (counts.log_factorial, schedule.tol, schedule.kkt_tol or 0.0)),
    )
    return Data(place_cells(counts.matrix, csr_array(counts.matrix.T), rank, device), *jax.device_put(numbers, device))


def beyond(data: Data, new: Stated, before: Stated, weight: Any) -> Stated:
    """Return the state at new + weight × (new − before), in logarithms of the parameters (`extrapolation`)."""

    def moved(new: Any, old: Any) -> Any:
        known = (old > 0) & (new > 0)
        ratio = jnp.where(known, new, 1) / jnp.where(known, old, 1)
        return new * ratio ** weight.astype(new.dtype)

    further = jax.tree.map(moved, new, before)
    return on_the_simplex(data.priors[0], further[0]), on_the_simplex(data.priors[1], further[1])


def carried(data: Data, plan: Plan, stated: Stated) -> Pair:
    """Carry both sides of a state."""
    return tuple(map(given, plan.kinds, data.priors, stated))  # type: ignore[return-value]


def like(new: Any, old: Any) -> Any:
    """Broadcast to the shapes of a loop's state."""
    return jax.tree.map(lambda a, b: jnp.broadcast_to(a, b.shape), new, old)


def _allocate(data: Data, state: Pair, sides: Sides) -> Totals:
    return expected_allocations(data.cells, state[0].geometric, state[1].geometric, sides=sides)


def _needed(side: int, plan: Plan) -> Sides:
    """Whose totals are needed to update one side: both under joint, where the other side goes on with them."""
    if not plan.alternating:
        return "both"
    return "loadings" if side == 0 else "components"


def totals_of(data: Data, state: Pair, plan: Plan) -> Totals:
    """Take the allocation step of an iterate."""
    return _allocate(data, state, "both" if plan.residuals else _needed(plan.first, plan))


def step(data: Data, state: Pair, totals: Totals, plan: Plan) -> Pair:
    """Update both sides once, given the allocation step at `state` (`coordinate_ascent.update_both_sides`)."""
    for position, side in enumerate((plan.first, 1 - plan.first)):
        needed = _needed(side, plan)
        if position == 1 and plan.alternating:
            totals = _allocate(data, state, needed)
        if plan.sweeps > 1 and (position == 0 or plan.alternating):
            state, totals = _sweep_more(data, state, side, totals, plan)
        state = _update(data, state, side, totals, plan)
    return state


def _sweep_more(data: Data, state: Pair, side: int, totals: Totals, plan: Plan) -> tuple[Pair, Totals]:
    """Update one side all times but the last, each followed by a fresh allocation step."""
    needed = _needed(side, plan)

    def once(_: Any, at: tuple[Pair, Totals]) -> tuple[Pair, Totals]:
        state = like(_update(data, at[0], side, at[1], plan), at[0])
        return state, _allocate(data, state, needed)

    return jax.lax.fori_loop(0, plan.sweeps - 1, once, (state, _only(needed, totals)))


def _only(needed: Sides, totals: Totals) -> Totals:
    """Leave out the totals that are not needed, as `expected_allocations` does."""
    empty = totals.loadings[:0]
    A = empty if needed == "components" else totals.loadings
    return totals._replace(loadings=A, components=empty.T if needed == "loadings" else totals.components)


def _update(data: Data, state: Pair, side: int, totals: Totals, plan: Plan) -> Pair:
    """Update one side given an allocation step and the other side's exposure."""
    total: Any = totals[side]
    exposure = _exposures(state)[side].astype(total.dtype)
    new = carry(plan.kinds[side], data.priors[side], total, exposure, state[side])
    return (new, state[1]) if side == 0 else (state[0], new)


def _exposures(state: Pair) -> tuple[Any, Any]:
    """Σ_j β_kj (1, K) for the loadings, Σ_i θ_ik (K, 1) for the components, float64."""
    loadings, components = state
    return (
        components.matrix.sum(axis=1, dtype=FLOAT)[None, :],
        loadings.matrix.sum(axis=0, dtype=FLOAT)[:, None],
    )


def objective(data: Data, state: Pair, loglik: Any) -> Any:
    """The one objective, as `sides.objective` states it."""
    for side, margin in zip(state, data.margins, strict=True):
        if side.log_shift is not None:
            loglik += (margin * jnp.where(margin > 0, side.log_shift.ravel(), 0)).sum()
    exposures = [each.ravel() for each in _exposures(state)]
    return loglik - (exposures[0] * exposures[1]).sum() - data.log_factorial + sum(side.penalty for side in state)


def residual_of(data: Data, state: Pair, totals: Totals, plan: Plan) -> Any:
    """The KKT residual, as `kkt.kkt_residual` states it."""
    found = jnp.zeros((), FLOAT)
    for kind, prior, side, total, exposure in zip(
        plan.kinds, data.priors, state, totals[:2], _exposures(state), strict=True
    ):
        less = 1.0 if kind.carried == "natural" else 0.0
        found = jnp.maximum(found, jnp.abs(prior[0].imbalance(side.value[0], total, exposure, less)).max())
    return found


MOST = 50  # iterations without the host
GOING, NAN, SETTLED, STATIONARY = range(4)


class Loop(NamedTuple):
    """Where a loop stands.

    Attributes
    ----------
    reached : pair of parameters
        The last iterate, whose objective is the last that was recorded.
    next : pair of parameters
        What is tried next.
    plain : pair of parameters
        The plain step, taken where `next` goes further and the objective falls. None without extrapolation.
    stepped, further : bool
        Whether `plain` is a step, not the start; whether `next` goes further than it.
    weight : float
        How much further.
    latest : (window + 1,)
        The last objectives.
    objectives, residuals : (MOST,)
        Those recorded since the host last looked, and how many (`filled`).
    stop : int
        GOING, or why not.
    """

    reached: Stated
    next: Stated
    plain: Stated | None
    stepped: Any
    further: Any
    weight: Any
    latest: Any
    objectives: Any
    residuals: Any
    filled: Any
    stop: Any


def ascend_on(
    device: Any,
    problem: Problem,
    state: State,
    schedule: Schedule,
    extrapolate: bool,
    progress: Callable[[int, float], None],
) -> Ascent:
    """Iterate on a device from `state` until the objective settles, `max_iter` is reached or Ctrl-C is pressed.

    Parameters
    ----------
    device : jax.Device
        Any, a CPU too.
    extrapolate : bool
        Go further along each step, as `bayesnmf.inference.ascent.extrapolation.extrapolated_steps` does.
    progress : callable
        Takes the iteration and its objective, in nats; called for each after the fact, up to `MOST` at a time.

    Returns
    -------
    Ascent
        After Ctrl-C, the last iterate that the host has seen the objective of.
    """
    with jax.enable_x64(True), jax.default_device(device):
        return _ascend(device, problem, state, schedule, plan_of(problem, schedule, extrapolate), progress)


def _ascend(
    device: Any, problem: Problem, state: State, schedule: Schedule, plan: Plan, progress: Callable[[int, float], None]
) -> Ascent:
    trace: list[float] = []
    residuals: list[float] = []
    data = data_of(device, problem, state, schedule)
    loop = jax.device_put(_begin(data, plan, state, problem.counts.dtype), device)
    status = Status(False, f"all {schedule.max_iter} iterations done", schedule.max_iter)
    limit = 1
    try:
        while len(trace) <= schedule.max_iter:
            began = time.perf_counter()
            new = _run(data, loop, min(limit, schedule.max_iter + 1 - len(trace)), plan)
            seen, before = int(new.filled), len(trace)
            objectives, found = (np.asarray(each)[:seen].tolist() for each in (new.objectives, new.residuals))
            loop, trace, residuals = new, trace + objectives, residuals + (found if plan.residuals else [])
            limit = next_length(limit, time.perf_counter() - began, MOST)
            for iteration in range(before, len(trace)):
                progress(iteration, trace[iteration])
            if int(loop.stop) != GOING:
                status = _stopped(int(loop.stop), schedule, len(trace) - 1)
                break
    except KeyboardInterrupt:
        status = Status(False, INTERRUPTED, max(len(trace) - 1, 0))
    end = State(
        to_host(problem.loadings_summary, problem.loadings_prior, loop.reached[0]),
        to_host(problem.components_summary, problem.components_prior, loop.reached[1]),
    )
    return Ascent(problem, end, trace, residuals, status)


def _stopped(stop: int, schedule: Schedule, iterations: int) -> Status:
    reasons = {
        NAN: NOT_A_NUMBER,
        SETTLED: f"objective settled to {schedule.tol:g} relative",
        STATIONARY: f"KKT residual at most {schedule.kkt_tol or 0:g} counts",
    }
    return Status(stop != NAN, reasons[stop], iterations)


def _begin(data: Data, plan: Plan, state: State, dtype: Any) -> Loop:
    """Return the loop before its first iterate, with parameters of the shapes that updates give them or larger."""
    start = (from_host(state.loadings, dtype), from_host(state.components, dtype))
    once = plan._replace(alternating=False, sweeps=1)
    after = jax.eval_shape(partial(_after, once), data, start)
    start = jax.tree.map(lambda a, b: np.broadcast_to(a, np.broadcast_shapes(a.shape, b.shape)), start, after)
    return Loop(
        reached=start,
        next=start,
        plain=start if plan.extrapolate else None,
        stepped=np.zeros((), bool),
        further=np.zeros((), bool),
        weight=np.asarray(START, FLOAT),
        latest=np.full(plan.window + 1, -np.inf, FLOAT),
        objectives=np.zeros(MOST, FLOAT),
        residuals=np.zeros(MOST, FLOAT),
        filled=np.zeros((), int),
        stop=np.zeros((), int),
    )


def _after(plan: Plan, data: Data, state: Stated) -> Stated:
    """Return the state after one step."""
    sides = carried(data, plan, state)
    loadings, components = step(data, sides, totals_of(data, sides, plan), plan)
    return parameters_of(loadings), parameters_of(components)


@partial(jax.jit, static_argnames="plan")
def _run(data: Data, loop: Loop, limit: Any, plan: Plan) -> Loop:
    """Go on for up to `limit` iterations."""

    def going(loop: Loop) -> Any:
        return (loop.stop == GOING) & (loop.filled < limit)

    return jax.lax.while_loop(going, partial(_visit, data, plan), loop._replace(filled=jnp.zeros_like(loop.filled)))


def _visit(data: Data, plan: Plan, loop: Loop) -> Loop:
    """Take the allocation step and the objective at `next`, and find what comes after it."""
    sides = carried(data, plan, loop.next)
    totals = totals_of(data, sides, plan)
    value = objective(data, sides, totals.loglik)
    if loop.plain is None:
        return _accept(data, plan, loop, (sides, totals, value))
    eps = jnp.finfo(sides[0].geometric.dtype).eps
    lowest = loop.latest[-1] - eps * jnp.abs(loop.latest[-1])
    fallen = loop._replace(next=loop.plain, further=jnp.zeros_like(loop.further), weight=loop.weight * CUT)
    return jax.lax.cond(
        loop.further & ~(value >= lowest),
        lambda: fallen,
        lambda: _accept(data, plan, loop, (sides, totals, value)),
    )


def _accept(data: Data, plan: Plan, loop: Loop, here: tuple[Pair, Totals, Any]) -> Loop:
    """Record an iterate, see whether to stop there, and propose the next."""
    sides, totals, value = here
    latest = jnp.append(loop.latest[1:], value)
    residual = residual_of(data, sides, totals, plan) if plan.residuals else jnp.zeros((), FLOAT)
    loadings, components = step(data, sides, totals, plan)
    plain = like((parameters_of(loadings), parameters_of(components)), loop.next)
    accepted = loop._replace(
        reached=loop.next,
        next=plain,
        latest=latest,
        objectives=loop.objectives.at[loop.filled].set(value),
        residuals=loop.residuals.at[loop.filled].set(residual),
        filled=loop.filled + 1,
        stop=_reason(data, latest, residual),
    )
    if loop.plain is None:
        return accepted
    weight = jnp.where(loop.stepped, jnp.minimum(loop.weight * GROWTH, LIMIT["logarithms"]), loop.weight)
    return accepted._replace(
        next=beyond(data, plain, loop.plain, jnp.where(loop.stepped, weight, 0.0)),
        plain=plain,
        stepped=jnp.ones_like(loop.stepped),
        further=loop.stepped,
        weight=weight,
    )


def _reason(data: Data, latest: Any, residual: Any) -> Any:
    """Why to stop: the rules of `coordinate_ascent.ascend`, in its order."""
    change = jnp.abs(latest[-1] - latest[0])
    settled = (data.tol > 0) & jnp.isfinite(latest[0]) & (change < data.tol * jnp.maximum(jnp.abs(latest[-1]), 1))
    stationary = (data.kkt_tol > 0) & (residual <= data.kkt_tol)
    rules = [jnp.isnan(latest[-1]), settled, stationary]
    return jnp.select(rules, [NAN, SETTLED, STATIONARY], GOING).astype(int)
