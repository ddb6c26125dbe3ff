"""The allocation step of counts on disk on a device: blocks of rows go there one after another.

A block is padded to the size of the largest, so that one compiled program serves all. Its loadings are read from files
and its totals are copied back to the host, which updates the loadings: only the components, their totals and the blocks
at work take memory of the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import csr_array

from bayesnmf.data.blocks.counts import BlockedCounts
from bayesnmf.kernels.cpu.allocation import Sides
from bayesnmf.kernels.cpu.factors import padded
from bayesnmf.kernels.gpu.allocation import Entries, Room, expected_allocations, segments
from bayesnmf.types import Array


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
            entries = Entries(segments(matrix, rank, layout.rows), segments(csr_array(matrix.T), rank, layout.columns))
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
