"""Copy problems and states to devices and back; loop, updates and formulas are the same as on the host.

Counts and factors stay on the devices. Of several devices each has some rows of the counts, and the components; the
loadings are split by rows, too, if the number of devices divides that of rows.
`bayesnmf.inference.ascent.coordinate_ascent.ascend` runs on the host, and computes the objective of each iteration
there, from vectors of K, n and m numbers. Each summary of a conditional is compiled as a whole.

Blocks of rows of counts on disk go to the devices one after another. A block is padded to the size of the largest, so
that one compiled program serves all. Its loadings are read from files and its totals are copied back to the host, which
updates the loadings: only the components, their totals and the blocks at work take memory of the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from scipy.sparse import csr_array

from bayesnmf.data.blocks.counts import BlockedCounts
from bayesnmf.data.counts import Counts
from bayesnmf.inference.ascent.coordinate_ascent import Ascent
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.side import Basis, Field, MeanField, Mode, Side
from bayesnmf.kernels.cpu.allocation import Sides
from bayesnmf.kernels.cpu.factors import padded
from bayesnmf.kernels.cpu.mean_field import Moments
from bayesnmf.kernels.gpu.allocation import (
    BY_ROWS,
    EVERYWHERE,
    Entries,
    cut,
    expected_allocations,
    mesh_of,
    place_entries,
    place_shards,
)
from bayesnmf.kernels.gpu.segments import Room
from bayesnmf.priors import Distribution
from bayesnmf.types import Array

Summarised = tuple[Any, ...]  # arrays of a side, the result of a compiled function


@dataclass(frozen=True)
class Compiled:
    """Summary of `bayesnmf.inference.side` with its arithmetic compiled for a device."""

    summary: Mode | MeanField

    def summarise(
        self, prior: Distribution, total: Any, exposure: Any, previous: Side | None, *, reuse: bool = False
    ) -> Side:
        """Return the summary of the conditional of `prior` given a total and an exposure."""
        value = None if previous is None or isinstance(self.summary, MeanField) else previous.value
        return self._side(prior, _compiled_summary(self.summary, type(prior), prior.parameters, total, exposure, value))

    def of(self, prior: Distribution, conditional: Distribution) -> Side:
        """Return the summary of a given distribution."""
        return self._side(prior, _compiled_of(self.summary, type(prior), prior.parameters, conditional.parameters))

    def at(self, prior: Distribution, value: Any) -> Side:
        """Return the side of a given value."""
        return self._side(prior, _compiled_at(self.summary, type(prior), prior.parameters, value))

    def on_rows(self, first: int, beside: bool) -> Compiled:
        """Return the same summary: counts on a device are one block."""
        return self

    @property
    def basis(self) -> Basis | None:
        """Basis of a mode; None for a mean field."""
        return self.summary.basis

    def _side(self, prior: Distribution, carried: Summarised) -> Side:
        if isinstance(self.summary, MeanField):
            parameters, found = carried
            return Field(type(prior)(**parameters), self.summary.component_axis, lambda: Moments(*found))
        return Side(*carried)


def _arrays_of_side(side: Side) -> Summarised:
    if isinstance(side, Field):
        assert side.conditional is not None
        sums = side._sums.get(side._component_axis)
        return side.conditional.parameters, (sums, side.geometric, side.log_shift, -side.penalty)
    return side.value, side.geometric, side.log_shift, side.penalty


@partial(jax.jit, static_argnames=("summary", "family"))
def _compiled_summary(summary: Any, family: Any, parameters: Any, total: Any, exposure: Any, value: Any) -> Summarised:
    previous: Any = None if value is None else SimpleNamespace(value=value)
    return _arrays_of_side(summary.summarise(family(**parameters), total, exposure, previous))


@partial(jax.jit, static_argnames=("summary", "family"))
def _compiled_of(summary: Any, family: Any, parameters: Any, conditional: Any) -> Summarised:
    return _arrays_of_side(summary.of(family(**parameters), family(**conditional)))


@partial(jax.jit, static_argnames=("summary", "family"))
def _compiled_at(summary: Any, family: Any, parameters: Any, value: Any) -> Summarised:
    return _arrays_of_side(summary.at(family(**parameters), value))


def run_on_devices(
    devices: Sequence[Any], ascent: Callable[..., Ascent], problem: Problem, state: State, *more: Any
) -> Ascent:
    """Run an ascent of `bayesnmf.inference.ascent` with its counts and factors on devices.

    Parameters
    ----------
    devices : sequence of jax.Device
        Devices to run on; they may be CPUs.
    ascent : callable
        Function of a problem, a state and `more` that returns an `Ascent`.
    problem, state : Problem, State
        Problem and start, on the host.
    *more : object
        What else the ascent is told.

    Returns
    -------
    Ascent
        Result of the ascent, with the problem and the state on the host.
    """
    if not problem.counts.in_memory:
        entries = StreamedEntries.of(problem.counts, devices)  # type: ignore[arg-type]
        found = ascent(replace(problem, entries=entries), state, *more)
        return found._replace(problem=replace(found.problem, entries=None))
    with jax.enable_x64(True), jax.default_device(devices[0]):
        found = ascent(*_to_devices(devices, problem, state), *more)
        sides = [_side_to_host(problem, found.problem, name, getattr(found.state, name)) for name in State._fields]
    priors = {f"{name}_prior": getattr(found.problem, f"{name}_prior") for name in State._fields}
    return found._replace(problem=replace(problem, **priors), state=State(*sides))


def _to_devices(devices: Sequence[Any], problem: Problem, state: State) -> tuple[Problem, State]:
    matrix, rank = problem.counts.matrix, len(state.components.geometric)
    summaries: Any = problem.loadings_summary, problem.components_summary
    entries: Any
    if len(devices) == 1:
        entries = place_entries(matrix, csr_array(matrix.T), rank, devices[0])
    else:
        entries = place_shards(matrix, rank, devices)
    lengths = {"loadings": matrix.shape[0], "components": None}
    placed = replace(
        problem,
        counts=_with_totals_on(problem.counts, {name: _put(devices, rows) for name, rows in lengths.items()}),
        loadings_summary=Compiled(summaries[0]),
        components_summary=Compiled(summaries[1]),
        entries=entries,
    )
    sides = [
        _side_to_devices(placed, name, side, _put(devices, lengths[name])) for name, side in state._asdict().items()
    ]
    return placed, State(*sides)


def _with_totals_on(counts: Counts, put: dict[str, Callable[[Any], Any]]) -> Counts:
    """Return counts whose totals of rows and features are on devices, where each objective takes them."""
    placed = copy(counts)
    vars(placed).update(
        row_totals=put["loadings"](counts.row_totals), feature_totals=put["components"](counts.feature_totals)
    )
    return placed


def _put(devices: Sequence[Any], rows: int | None) -> Callable[[Any], Any]:
    """Return what copies an array to devices: split over them if it has so many rows, and whole otherwise."""
    if len(devices) == 1:
        return partial(jax.device_put, device=devices[0])
    mesh = mesh_of(devices)

    def put(array: Any) -> Any:
        splits = rows is not None and rows % len(devices) == 0 and np.ndim(array) and len(array) == rows
        return jax.device_put(array, NamedSharding(mesh, BY_ROWS if splits else EVERYWHERE))

    return put


def _side_to_devices(problem: Problem, name: str, side: Side, put: Callable[[Any], Any]) -> Side:
    """Return a copy on devices of a side on the host."""
    prior, summary = getattr(problem, f"{name}_prior"), getattr(problem, f"{name}_summary")
    if side.conditional is not None:
        return summary.of(prior, side.conditional.mapped(put))
    return summary.at(prior, jax.tree.map(lambda value: put(np.ascontiguousarray(value)), side.value))


def _side_to_host(problem: Problem, placed: Problem, name: str, side: Side) -> Side:
    """Return a copy on the host, by the summary of the host, of a side on the device."""
    prior, summary = getattr(placed, f"{name}_prior"), getattr(problem, f"{name}_summary")
    if side.conditional is not None:
        return summary.of(prior, side.conditional.mapped(np.array))
    return summary.at(prior, jax.tree.map(np.array, side.value))


@dataclass(frozen=True)
class StreamedEntries:
    """How blocks of counts are laid out on a device; a worker of a cluster uses its own devices.

    Attributes
    ----------
    platform : str
        JAX's name of the kind of device.
    devices : int
        Number of devices, to which shards of blocks go in turn.
    rows, columns : Room
        Sizes to which blocks are padded, by row and by column.
    """

    platform: str
    devices: int
    rows: Room
    columns: Room

    @classmethod
    def of(cls, counts: BlockedCounts, devices: Sequence[Any]) -> StreamedEntries:
        """Return the layout for the blocks of counts."""
        starts = np.array([counts.store.starts(row, row)[0] for row in counts.bounds])
        rows, nonzeros = int(np.diff(counts.bounds).max()), int(np.diff(starts).max())
        room = Room(rows, nonzeros), Room(counts.shape[1], nonzeros)
        return cls(devices[0].platform, len(devices), *room)

    def tally(self, components: Array, sides: Sides, shard: int) -> StreamedTotals:
        """Return empty totals for a shard of blocks, on the device whose turn it is."""
        devices = jax.devices(self.platform)
        return StreamedTotals(self, components, sides, devices[shard % min(self.devices, len(devices))])


class StreamedTotals:
    """The totals of the components on a device, from one block of rows after another.

    Parameters
    ----------
    layout : StreamedEntries
    components : ndarray of shape (K, m)
        Geometric means of the components, the same for all blocks.
    sides : {"both", "loadings", "components"}
        Sides to return totals for.
    device : jax.Device
    """

    def __init__(self, layout: StreamedEntries, components: Array, sides: Sides, device: Any) -> None:
        self.layout, self.sides, self.device = layout, sides, device
        with jax.enable_x64(True):  # a setting of this thread alone
            self.components = jax.device_put(np.ascontiguousarray(components), device)
            self.received = jax.device_put(np.zeros(components.shape), device)

    def add(self, matrix: csr_array, loadings: Array, spread: None = None) -> tuple[Array, float]:
        """Share out the counts of a block; return the totals of its loadings, if they were asked for, and its ℓ.

        Counts may be unsigned integers. They are Poisson counts, without spreads.
        """
        (rows, rank), layout = loadings.shape, self.layout
        U = np.zeros((layout.rows.rows, rank), loadings.dtype)
        U[:rows] = loadings
        with jax.enable_x64(True), jax.default_device(self.device):
            entries = cut(matrix, csr_array(matrix.T), rank, self.device, (layout.rows, layout.columns))
            placed = jax.device_put((entries, U), self.device)
            received, self.received, loglik = _share_out(*placed, self.components, self.received, self.sides)
            own = np.asarray(received)[:rows]
            totals = padded(own.shape, own.dtype)
            totals[:] = own
            return totals, float(loglik)

    def totals(self) -> Array | None:
        """Return the totals of the components over all blocks, (m, K), float64, if they were asked for."""
        return None if self.sides == "loadings" else np.array(self.received).T


@partial(jax.jit, static_argnames="sides", donate_argnames="received")
def _share_out(entries: Entries, loadings: Any, components: Any, received: Any, sides: Sides) -> tuple[Any, Any, Any]:
    found = expected_allocations(entries, loadings, components, sides=sides)
    if sides != "loadings":
        received = received + found.components.astype(jnp.float64)
    return found.loadings, received, found.loglik
